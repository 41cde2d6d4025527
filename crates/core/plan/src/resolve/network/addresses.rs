//! Addresses of machines: given, counted up, or left to DHCP.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ichor_model::{
    At, Code, Finding, MachineName, Span,
    desired::{AddressDelivery, Late, Role, Source},
};
use ichor_spec::values::Address;
use ipnet::IpNet;

use super::{Claim, leased, same_family};
use crate::resolve::{
    Context,
    expand::{Draft, Level},
};

/// Who has which address.
#[derive(Debug)]
pub struct Table {
    claims: BTreeMap<IpAddr, Claim>,
}

impl Table {
    /// Starts with the addresses that are nobody's machine.
    pub fn new(reserved: Vec<Claim>) -> Self {
        Self { claims: reserved.into_iter().map(|claim| (claim.address, claim)).collect() }
    }

    fn is_free(&self, address: IpAddr) -> bool {
        !self.claims.contains_key(&address)
    }

    /// Enters an address, or reports who has it already.
    fn claim(&mut self, cx: &mut Context<'_>, address: IpAddr, owner: &MachineName, at: Span) {
        let claim = Claim { address, owner: format!("`{owner}`"), at: Some(at) };
        if let Some(other) = self.claims.get(&address) {
            let message = if other.owner == claim.owner {
                format!("two network cards of `{owner}` have {address}")
            } else {
                format!("`{owner}` and {} both have {address}", other.owner)
            };
            let finding =
                Finding::error(Code::ADDRESS_TWICE, at, message).remedy("give each an address of its own");
            cx.findings.push(match other.at {
                Some(other) => finding.see(other, "the other one comes from here"),
                None => finding,
            });
            return;
        }
        self.claims.insert(address, claim);
    }
}

/// What a machine wants for its first network card.
struct Wish<'a> {
    draft: &'a Draft,
    addresses: Vec<At<Address>>,
    level: Level,
}

/// Gives every machine its addresses, one per family: fixed ones first.
pub fn allocate(
    cx: &mut Context<'_>,
    drafts: &[Draft],
    nets: &[IpNet],
    delivery: AddressDelivery,
    table: &mut Table,
) -> BTreeMap<MachineName, Vec<Late<IpNet>>> {
    let readable = crate::resolve::expand::as_written(drafts)
        .into_iter()
        .filter(|draft| !draft.all.unread.has("address"));
    let wishes: Vec<Wish<'_>> = readable.map(|draft| wish(cx, draft)).collect();
    let mut addresses = BTreeMap::new();
    let mut later = Vec::new();
    for wish in &wishes {
        if wish.addresses.iter().any(|address| address.value == Address::Dhcp) {
            check_lease(cx, wish);
            addresses.insert(wish.draft.name.clone(), vec![Late::From(Source::Lease)]);
        } else if leased(cx) {
            contradiction(cx, wish);
        } else if matches!(wish.level, Level::Machine | Level::Group) {
            addresses.insert(wish.draft.name.clone(), fixed(cx, wish, nets, table));
        } else {
            later.push(wish);
        }
    }
    let (kept, new): (Vec<_>, Vec<_>) = later
        .into_iter()
        .map(|wish| (wish, existing(cx, wish, nets, table)))
        .partition(|(_, kept)| !kept.is_empty());
    for (wish, kept) in kept {
        for address in &kept {
            let at = wish.addresses.first().map_or(wish.draft.at, |address| address.span);
            table.claim(cx, address.addr(), &wish.draft.name, at);
        }
        addresses.insert(wish.draft.name.clone(), kept.into_iter().map(Late::Known).collect());
    }
    let mut cursors = BTreeMap::new();
    for (wish, _) in new {
        addresses.insert(wish.draft.name.clone(), counted(cx, wish, nets, table, &mut cursors));
    }
    warn_of_unreachable_leases(cx, drafts, &addresses, delivery);
    addresses
}

fn wish<'a>(cx: &Context<'_>, draft: &'a Draft) -> Wish<'a> {
    if let Some((level, written)) = draft.nearest(cx, |machine| machine.address.as_ref()) {
        return Wish { draft, addresses: written.0.clone(), level };
    }
    let address = match (leased(cx), draft.role) {
        (true, _) => Address::Dhcp,
        (false, Role::ControlPlane) => Address::Offset(10),
        (false, Role::Worker) => Address::Offset(20),
    };
    Wish { draft, addresses: vec![At::new(address, draft.at)], level: Level::Role }
}

fn check_lease(cx: &mut Context<'_>, wish: &Wish<'_>) {
    if wish.addresses.len() > 1 {
        let at = wish.addresses[1].span;
        cx.findings.push(
            Finding::error(
                Code::DHCP_AND_STATIC,
                at,
                format!("`{}` has `dhcp` and a fixed address", wish.draft.name),
            )
            .remedy("keep one of them"),
        );
    }
}

fn contradiction(cx: &mut Context<'_>, wish: &Wish<'_>) {
    let at = wish.addresses.first().map_or(wish.draft.at, |address| address.span);
    cx.findings.push(
        Finding::error(
            Code::DHCP_AND_STATIC,
            at,
            format!("`{}` has a fixed address, but `network.addressing` is `dhcp`", wish.draft.name),
        )
        .remedy("for reservations by MAC set `addressing: static` and `boot.address: dhcp`; else remove `address`"),
    );
}

/// Addresses that the machine or its group fixes.
fn fixed(cx: &mut Context<'_>, wish: &Wish<'_>, nets: &[IpNet], table: &mut Table) -> Vec<Late<IpNet>> {
    let steps = if wish.level == Level::Group { wish.draft.ordinal } else { 0 };
    let mut found = Vec::new();
    for (net, written) in per_family(cx, wish, nets) {
        let start = match written.value {
            Address::Ip(address) => Some(address),
            Address::Offset(offset) => nth(net.network(), u128::from(offset)),
            Address::Dhcp => None,
        };
        let address = start.and_then(|start| nth(start, u128::from(steps)));
        let past_end = |address: &IpAddr| steps > 0 && edge(&net, *address).is_some();
        match address.filter(|address| net.contains(address) && !past_end(address)) {
            Some(address) => {
                check_edge(cx, &net, address, &wish.draft.name, written.span);
                table.claim(cx, address, &wish.draft.name, written.span);
                found.push(with_prefix(address, &net));
            }
            None => outside(cx, wish, &net, address, written.span),
        }
    }
    found
}

/// The addresses a machine already has, if it has one in every network: counting up again could
/// give it others when a group before it has grown. One that the inventory gives to somebody else is not kept: what
/// runs at it is for the live preflight to say.
fn existing(cx: &Context<'_>, wish: &Wish<'_>, nets: &[IpNet], table: &Table) -> Vec<IpNet> {
    let addresses = cx.seen.machine(&wish.draft.name).map_or(&[][..], |seen| &seen.addresses);
    let of_net = |net: &IpNet| {
        let mut own = addresses.iter().filter(|address| table.is_free(**address));
        let address = own.find(|address| net.contains(*address))?;
        IpNet::new(*address, net.prefix_len()).ok()
    };
    nets.iter().map(of_net).collect::<Option<_>>().unwrap_or_default()
}

/// Addresses counted up from an offset that several groups share.
fn counted(
    cx: &mut Context<'_>,
    wish: &Wish<'_>,
    nets: &[IpNet],
    table: &mut Table,
    cursors: &mut BTreeMap<IpAddr, IpAddr>,
) -> Vec<Late<IpNet>> {
    let mut found = Vec::new();
    for (net, written) in per_family(cx, wish, nets) {
        let start = match written.value {
            Address::Ip(address) => Some(address),
            Address::Offset(offset) => nth(net.network(), u128::from(offset)),
            Address::Dhcp => None,
        };
        let mut next = start.map(|start| *cursors.get(&start).unwrap_or(&start));
        while let Some(address) = next.filter(|address| net.contains(address)) {
            if table.is_free(address) && edge(&net, address).is_none() {
                break;
            }
            next = nth(address, 1);
        }
        match next.filter(|address| net.contains(address)) {
            Some(address) => {
                if let (Some(start), Some(after)) = (start, nth(address, 1)) {
                    cursors.insert(start, after);
                }
                table.claim(cx, address, &wish.draft.name, written.span);
                found.push(with_prefix(address, &net));
            }
            None => outside(cx, wish, &net, None, written.span),
        }
    }
    found
}

/// Pairs every network with what is written for its family; an offset alone is for all of them.
fn per_family(cx: &mut Context<'_>, wish: &Wish<'_>, nets: &[IpNet]) -> Vec<(IpNet, At<Address>)> {
    let offset = wish.addresses.iter().find(|address| matches!(address.value, Address::Offset(_)));
    let mut pairs = Vec::new();
    let strangers = strangers(cx, wish, nets);
    for net in nets {
        let own = wish.addresses.iter().find(|address| match address.value {
            Address::Ip(ip) => same_family(net, ip),
            _ => false,
        });
        match own.or(offset) {
            Some(address) => pairs.push((*net, *address)),
            None if strangers => {}
            None => {
                let at = wish.addresses.first().map_or(wish.draft.at, |address| address.span);
                let family = if net.addr().is_ipv4() { "IPv4" } else { "IPv6" };
                let message = format!("`{}` has no {family} address in {net}", wish.draft.name);
                let finding =
                    Finding::error(Code::FAMILY, at, message).remedy("give it one address for each family");
                cx.findings.push(finding);
            }
        }
    }
    pairs
}

/// Reports addresses of a family that no network has, and tells whether there are any.
fn strangers(cx: &mut Context<'_>, wish: &Wish<'_>, nets: &[IpNet]) -> bool {
    let mut found = false;
    for address in &wish.addresses {
        if let Address::Ip(ip) = address.value
            && !nets.is_empty()
            && !nets.iter().any(|net| same_family(net, ip))
        {
            let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
            let message =
                format!("{ip} of `{}` is {family}, and `network.cidr` has no such network", wish.draft.name);
            let finding = Finding::error(Code::FAMILY, address.span, message);
            cx.findings.push(finding.remedy(room_in(nets)));
            found = true;
        }
    }
    found
}

fn outside(cx: &mut Context<'_>, wish: &Wish<'_>, net: &IpNet, address: Option<IpAddr>, at: Span) {
    let name = &wish.draft.name;
    let given = wish.level == Level::Machine || wish.level == Level::Group && wish.draft.ordinal == 0;
    let full = Finding::error(Code::NETWORK_FULL, at, format!("{net} has no address left for `{name}`"));
    let leaves = |what: String| {
        let message = format!("{what} of `{name}` is outside {net}");
        Finding::error(Code::OUTSIDE_NETWORK, at, message).remedy(room_in(&[*net]))
    };
    cx.findings.push(match address {
        Some(address) if given => leaves(address.to_string()),
        None if given => leaves("the address".into()),
        _ => full.remedy("start lower, or choose a larger network"),
    });
}

fn check_edge(cx: &mut Context<'_>, net: &IpNet, address: IpAddr, name: &MachineName, at: Span) {
    if let Some(edge) = edge(net, address) {
        cx.findings.push(
            Finding::error(Code::RESERVED_ADDRESS, at, format!("{address} of `{name}` is {edge} of {net}"))
                .remedy(room_in(&[*net])),
        );
    }
}

/// Says what an address is when no machine can have it: the first of its network, or the last of
/// an IPv4 one.
pub fn edge(net: &IpNet, address: IpAddr) -> Option<&'static str> {
    match address {
        _ if address == net.network() => Some("the network address"),
        IpAddr::V4(_) if address == net.broadcast() => Some("the broadcast address"),
        _ => None,
    }
}

/// Says which addresses machines can have.
pub fn room_in(nets: &[IpNet]) -> String {
    let room = nets.iter().map(|net| {
        let first = nth(net.network(), 1).unwrap_or(net.network());
        let last = match net.broadcast() {
            IpAddr::V4(last) => IpAddr::V4(Ipv4Addr::from_bits(last.to_bits().saturating_sub(1))),
            last @ IpAddr::V6(_) => last,
        };
        format!("{first} to {last}")
    });
    format!("choose an address from {}", room.collect::<Vec<_>>().join(", or from "))
}

/// Returns the address so many steps further on.
fn nth(address: IpAddr, steps: u128) -> Option<IpAddr> {
    match address {
        IpAddr::V4(v4) => {
            let sum = u128::from(v4.to_bits()).checked_add(steps)?;
            u32::try_from(sum).ok().map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits)))
        }
        IpAddr::V6(v6) => v6.to_bits().checked_add(steps).map(|bits| IpAddr::V6(Ipv6Addr::from_bits(bits))),
    }
}

fn with_prefix(address: IpAddr, net: &IpNet) -> Late<IpNet> {
    Late::Known(IpNet::new_assert(address, net.prefix_len()))
}

/// A leased address is found through the guest agent, or not at all.
fn warn_of_unreachable_leases(
    cx: &mut Context<'_>,
    drafts: &[Draft],
    addresses: &BTreeMap<MachineName, Vec<Late<IpNet>>>,
    delivery: AddressDelivery,
) {
    if matches!(delivery, AddressDelivery::Cidata | AddressDelivery::Meta) {
        for draft in drafts {
            let leased =
                addresses.get(&draft.name).is_some_and(|list| list.iter().any(|late| late.known().is_none()));
            if leased {
                let at =
                    draft.nearest(cx, |machine| machine.address.as_ref()).map_or(draft.at, |(_, at)| at.span);
                cx.findings.push(
                    Finding::error(
                        Code::DHCP_AND_STATIC,
                        at,
                        format!(
                            "`{}` is to lease its address, but `boot.address` is `{delivery}`",
                            draft.name
                        ),
                    )
                    .remedy("set `boot.address: dhcp`, or give the machine an address"),
                );
            }
        }
    }
}

/// Gives the other network cards their addresses.
pub fn allocate_extra(
    cx: &mut Context<'_>,
    drafts: &[Draft],
    table: &mut Table,
) -> BTreeMap<(MachineName, usize), Late<IpNet>> {
    let mut extra = BTreeMap::new();
    let mut cursors = BTreeMap::new();
    for draft in crate::resolve::expand::as_written(drafts) {
        let nics = draft.all.nics.clone();
        for (i, nic) in nics.iter().flat_map(|nics| &nics.value).enumerate() {
            let Some(address) = nic.address else { continue };
            let Some(late) = extra_address(cx, draft, nic, address, table, &mut cursors) else { continue };
            extra.insert((draft.name.clone(), i), late);
        }
    }
    extra
}

fn extra_address(
    cx: &mut Context<'_>,
    draft: &Draft,
    nic: &ichor_spec::inventory::Nic,
    written: At<Address>,
    table: &mut Table,
    cursors: &mut BTreeMap<IpAddr, IpAddr>,
) -> Option<Late<IpNet>> {
    if written.value == Address::Dhcp {
        return Some(Late::From(Source::Lease));
    }
    let Some(net) = nic.cidr.map(|cidr| cidr.value.0) else {
        cx.findings.push(
            Finding::error(Code::NO_NETWORK, written.span, "this network card has an address and no network")
                .remedy("add `cidr` to it"),
        );
        return None;
    };
    let level = draft.nearest(cx, |machine| machine.nics.as_ref()).map_or(Level::Group, |(level, _)| level);
    let wish = Wish { draft, addresses: vec![written], level };
    let found = match level {
        Level::Machine | Level::Group => fixed(cx, &wish, &[net], table),
        Level::Role | Level::Cluster => counted(cx, &wish, &[net], table, cursors),
    };
    found.into_iter().next()
}
