//! The three files of a cidata volume, which the nocloud platform reads at its first boot.

use std::net::IpAddr;

use ichor_model::desired::{Hostnames, Late, Machine, Nic};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::{
    iso9660::{self, Image, Unfit},
    meta::guest_mtu,
    scalar::{Dialect, scalar},
    secrets::SecretText,
};

/// The label of the volume.
pub const LABEL: &str = "cidata";

/// The files of a volume. `user-data` holds the cluster's secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// `user-data`: the machine config, if it comes this way.
    pub user_data: SecretText,
    /// `meta-data`: who the machine is.
    pub meta_data: String,
    /// `network-config`: its network.
    pub network_config: String,
}

impl Files {
    /// Makes the volume of them, as an image for an optical drive. The only way to fail is a config of tens of
    /// MiB.
    pub fn iso(&self) -> Result<Image, Unfit> {
        let files = [
            ("user-data", self.user_data.expose()),
            ("meta-data", &self.meta_data),
            ("network-config", &self.network_config),
        ];
        iso9660::image(LABEL, &files.map(|(name, text)| (name, text.as_bytes())))
    }
}

/// Without a config: a first line at which Talos stops reading, and stays in maintenance mode.
const NO_CONFIG: &str = "#cloud-config\n";

/// Writes the files for a machine, with its machine config or without one.
pub fn render(machine: &Machine, hostnames: Hostnames, config: Option<SecretText>) -> Files {
    Files {
        user_data: config.unwrap_or_else(|| SecretText::new(NO_CONFIG)),
        meta_data: meta_data(machine, hostnames),
        network_config: network_config(machine),
    }
}

fn meta_data(machine: &Machine, hostnames: Hostnames) -> String {
    let hostname = match hostnames {
        Hostnames::Inventory => format!("local-hostname: {}\n", text(machine.name.as_str())),
        Hostnames::Dhcp => String::new(),
    };
    format!("instance-id: {}\n{hostname}", text(&machine.uuid.to_string()))
}

/// Writes the network, in version 2 of the format. Cards are found by their MAC; the names are those
/// that the nocloud platform gives them. VLANs are Proxmox's business.
fn network_config(machine: &Machine) -> String {
    let cards: String =
        machine.nics.iter().enumerate().map(|(i, nic)| format!("    eth{i}:\n{}", card(nic))).collect();
    format!("version: 2\nethernets:\n{cards}")
}

fn card(nic: &Nic) -> String {
    // Quoted, because some MACs are numbers in base 60 to YAML 1.1.
    let mut out = format!("        match:\n            macaddress: \"{}\"\n", nic.mac);
    if nic.addresses.iter().any(|address| address.known().is_none()) {
        out.push_str("        dhcp4: true\n");
    }
    let addresses: Vec<String> =
        nic.addresses.iter().filter_map(Late::known).map(ToString::to_string).collect();
    out.push_str(&list(8, "addresses", &addresses));
    if let Some(mtu) = guest_mtu(nic) {
        out.push_str(&format!("        mtu: {mtu}\n"));
    }
    if !nic.dns.is_empty() {
        let servers: Vec<String> = nic.dns.iter().map(ToString::to_string).collect();
        out.push_str("        nameservers:\n");
        out.push_str(&list(12, "addresses", &servers));
    }
    out + &routes(nic)
}

fn routes(nic: &Nic) -> String {
    let defaults = nic.gateways.iter().map(|gateway| (everywhere(*gateway), *gateway, None));
    let others = nic.routes.iter().map(|route| (route.to, route.via, route.metric));
    let items: String = defaults
        .chain(others)
        .map(|(to, via, metric)| {
            let metric =
                metric.map_or_else(String::new, |metric| format!("              metric: {metric}\n"));
            let (to, via) = (text(&to.to_string()), text(&via.to_string()));
            format!("            - to: {to}\n              via: {via}\n{metric}")
        })
        .collect();
    if items.is_empty() { items } else { format!("        routes:\n{items}") }
}

/// Returns the prefix that stands for every address of a gateway's family: releases before `default`
/// was understood take it too.
fn everywhere(gateway: IpAddr) -> IpNet {
    match gateway {
        IpAddr::V4(_) => Ipv4Net::default().into(),
        IpAddr::V6(_) => Ipv6Net::default().into(),
    }
}

fn list(column: usize, key: &str, values: &[String]) -> String {
    if values.is_empty() {
        return String::new();
    }
    let items: String = values.iter().map(|value| format!("{:column$}    - {}\n", "", text(value))).collect();
    format!("{:column$}{key}:\n{items}", "")
}

/// None of these texts has several lines.
fn text(text: &str) -> String {
    scalar(text, 0, Dialect::Talos)
}
