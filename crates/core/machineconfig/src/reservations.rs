//! DHCP reservations, for those who let their DHCP server hand out the addresses of the inventory.

use std::net::IpAddr;

use ichor_model::desired::{Late, Machine, Nic};

/// Writes a snippet for dnsmasq: one line for each network card whose addresses are known.
///
/// The name goes with the machine's first card only, because dnsmasq gives a name to one lease.
pub fn dnsmasq<'m>(machines: impl IntoIterator<Item = &'m Machine>) -> String {
    machines.into_iter().flat_map(lines).collect()
}

fn lines(machine: &Machine) -> Vec<String> {
    let cards = machine.nics.iter().enumerate().filter_map(|(i, nic)| {
        let addresses = addresses(nic)?;
        let name = if i == 0 { format!(",{}", machine.name) } else { String::new() };
        Some(format!("dhcp-host={},{addresses}{name}\n", nic.mac))
    });
    cards.collect()
}

/// Returns the addresses of a card, IPv6 in brackets as dnsmasq wants it; `None` if there are none.
fn addresses(nic: &Nic) -> Option<String> {
    let known = nic.addresses.iter().filter_map(Late::known).map(|net| match net.addr() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    });
    let all: Vec<String> = known.collect();
    (!all.is_empty()).then(|| all.join(","))
}
