//! Networks, and the addresses and MACs of every machine.

mod addresses;
mod macs;
mod nets;

use std::{collections::BTreeMap, net::IpAddr};

use ichor_model::{
    MacAddress, MachineName, Span,
    desired::{AddressDelivery, Late, Network},
};
use ichor_spec::values::{Addressing, Cidr};
use ipnet::IpNet;

use super::{Context, expand::Draft};

/// The networks, and what each machine got of them.
#[derive(Debug)]
pub struct Networks {
    /// The cluster's networks.
    pub of_cluster: Network,
    /// Addresses of the first network card, by machine.
    pub addresses: BTreeMap<MachineName, Vec<Late<IpNet>>>,
    /// Addresses of the other network cards, by machine and card.
    pub extra: BTreeMap<(MachineName, usize), Late<IpNet>>,
    /// MACs of all network cards, by machine.
    pub macs: BTreeMap<MachineName, Vec<MacAddress>>,
}

/// Decides on networks, addresses and MACs, and reports everything that clashes.
pub fn resolve(cx: &mut Context<'_>, drafts: &[Draft], delivery: AddressDelivery) -> Networks {
    let networks = nets::networks(cx, drafts.len());
    nets::check_cards(cx, drafts, &networks);
    let reserved = nets::reserved(cx, &networks);
    let mut table = addresses::Table::new(reserved);
    let addresses = addresses::allocate(cx, drafts, &networks.cidr, delivery, &mut table);
    let extra = addresses::allocate_extra(cx, drafts, &mut table);
    let macs = macs::derive(cx, drafts);
    Networks { of_cluster: networks, addresses, extra, macs }
}

/// Whether addresses are leased for machines that do not say.
fn leased(cx: &Context<'_>) -> bool {
    cx.network.addressing.is_some_and(|addressing| addressing.value == Addressing::Dhcp)
}

/// An address and who claims it.
#[derive(Debug, Clone)]
struct Claim {
    address: IpAddr,
    owner: String,
    /// Where it is written; absent for what was only seen.
    at: Option<Span>,
}

fn same_family(a: &IpNet, address: IpAddr) -> bool {
    a.addr().is_ipv4() == address.is_ipv4()
}

/// Returns the network of an address's family.
fn net_of(nets: &[IpNet], address: IpAddr) -> Option<&IpNet> {
    nets.iter().find(|net| same_family(net, address))
}

fn nets_of(
    written: Option<&ichor_model::At<ichor_spec::read::OneOrMany<Cidr>>>,
) -> Vec<ichor_model::At<IpNet>> {
    written.map(|many| many.0.iter().map(|cidr| cidr.map(|cidr| cidr.0)).collect()).unwrap_or_default()
}
