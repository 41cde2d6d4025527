//! The networks of machines, pods and services: right size, right family, apart from each other.

use std::collections::BTreeSet;

use ichor_model::{
    At, Code, Finding, Span,
    desired::{Hostnames, Network},
};
use ipnet::IpNet;

use super::{Claim, leased, net_of, nets_of};
use crate::resolve::{Context, expand::Draft};

const POD_NETS: [&str; 2] = ["10.244.0.0/16", "fc00:db8:10::/56"];
const SERVICE_NETS: [&str; 2] = ["10.96.0.0/12", "fc00:db8:20::/112"];

/// A kind of network, for messages and limits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Machines,
    Pods,
    Services,
}

impl Use {
    const fn word(self) -> &'static str {
        match self {
            Self::Machines => "machines",
            Self::Pods => "pods",
            Self::Services => "services",
        }
    }

    fn allows(self, net: &IpNet) -> bool {
        let (shortest, longest) = self.prefixes(net.addr().is_ipv4());
        (shortest..=longest).contains(&net.prefix_len())
    }

    /// Returns the shortest and the longest prefix that works.
    ///
    /// Machines need a network address, a broadcast and room between; Proxmox takes no prefix below
    /// 8. Pods: a /24 (or /64) for each node, and Kubernetes counts at most 16 bits of nodes. Services:
    /// the API server's bitmap ends at 20 bits.
    const fn prefixes(self, ipv4: bool) -> (u8, u8) {
        match (self, ipv4) {
            (Self::Machines, true) => (8, 30),
            (Self::Machines, false) => (8, 126),
            (Self::Pods, true) => (8, 24),
            (Self::Pods, false) => (48, 64),
            (Self::Services, true) => (12, 28),
            (Self::Services, false) => (108, 124),
        }
    }
}

/// Returns the cluster's networks, with defaults that fit the machines' families.
pub fn networks(cx: &mut Context<'_>, machines: usize) -> Network {
    let own = readable(cx, "cidr", nets_of(cx.network.cidr.as_ref()));
    check_nets(cx, &own, Use::Machines);
    if own.is_empty() && !leased(cx) {
        no_network(cx);
    }
    let wants = |ipv4| own.is_empty() && ipv4 || own.iter().any(|net| net.addr().is_ipv4() == ipv4);
    let defaults = |texts: [&str; 2]| -> Vec<At<IpNet>> {
        let nets = texts.iter().filter_map(|text| text.parse::<IpNet>().ok());
        nets.filter(|net| wants(net.addr().is_ipv4())).map(|net| At::new(net, Span::default())).collect()
    };
    let pods = cx.network.pods.as_ref().map_or_else(|| defaults(POD_NETS), |nets| nets_of(Some(nets)));
    let services =
        cx.network.services.as_ref().map_or_else(|| defaults(SERVICE_NETS), |nets| nets_of(Some(nets)));
    let (pods, services) = (readable(cx, "pods", pods), readable(cx, "services", services));
    check_nets(cx, &pods, Use::Pods);
    check_nets(cx, &services, Use::Services);
    check_families(cx, &own, &pods, Use::Pods);
    check_families(cx, &own, &services, Use::Services);
    // What is of the wrong size has been reported, and is compared with nothing else.
    let own = of_right_size(own, Use::Machines);
    let pods = of_right_size(pods, Use::Pods);
    let services = of_right_size(services, Use::Services);
    check_overlaps(cx, &own, &pods, &services);
    check_pod_room(cx, &pods, machines);
    Network {
        cidr: own.into_iter().map(|net| net.value).collect(),
        pods: pods.into_iter().map(|net| net.value).collect(),
        services: services.into_iter().map(|net| net.value).collect(),
        hostnames: cx.network.hostnames.map_or(Hostnames::Inventory, |hostnames| hostnames.value),
    }
}

/// Returns the networks of a key, none if some of them could not be read.
fn readable(cx: &Context<'_>, key: &str, nets: Vec<At<IpNet>>) -> Vec<At<IpNet>> {
    if cx.network.unread.has(key) { Vec::new() } else { nets }
}

fn of_right_size(mut nets: Vec<At<IpNet>>, of: Use) -> Vec<At<IpNet>> {
    nets.retain(|net| of.allows(net));
    nets
}

fn no_network(cx: &mut Context<'_>) {
    if cx.network.unread.has("cidr") || cx.network.unread.has("addressing") {
        return;
    }
    let at = cx.places.network;
    let remedy = match at {
        Some(_) => "add `cidr: 10.0.0.0/24` and `gateway: 10.0.0.1`, or set `addressing: dhcp`",
        None => "add `network: {cidr: 10.0.0.0/24, gateway: 10.0.0.1}`, or `network: {addressing: dhcp}`",
    };
    cx.findings.push(
        Finding::error(Code::NO_NETWORK, at, "`network.cidr` is missing, and addresses are static")
            .remedy(remedy),
    );
}

fn is_written(net: &At<IpNet>) -> bool {
    net.span != Span::default()
}

fn check_nets(cx: &mut Context<'_>, nets: &[At<IpNet>], of: Use) {
    for net in nets {
        let (shortest, longest) = of.prefixes(net.addr().is_ipv4());
        if !of.allows(net) {
            cx.findings.push(
                Finding::error(
                    Code::NETWORK_SIZE,
                    net.span,
                    format!("{} is not a size that works for {}", net.value, of.word()),
                )
                .remedy(format!("choose a prefix length from /{shortest} to /{longest}")),
            );
        }
    }
    let families = nets.iter().filter(|net| net.addr().is_ipv4()).count();
    if nets.len() > 2 || nets.len() == 2 && families != 1 {
        cx.findings.push(
            Finding::error(
                Code::FAMILY,
                nets[1].span,
                format!("{} have several networks of one kind", of.word()),
            )
            .remedy("give one IPv4 network, one IPv6 network, or one of each"),
        );
    }
}

fn check_families(cx: &mut Context<'_>, own: &[At<IpNet>], nets: &[At<IpNet>], of: Use) {
    if own.is_empty() || nets.is_empty() || families(own) == families(nets) {
        return;
    }
    let at = nets.iter().chain(own).find(|net| is_written(net)).map(|net| net.span);
    let word = of.word();
    cx.findings.push(
        Finding::error(
            Code::FAMILY,
            at,
            format!("{word} have {}, and machines {}", families(nets), families(own)),
        )
        .remedy(format!("give `{word}` one network for each family of `cidr`")),
    );
}

fn families(nets: &[At<IpNet>]) -> &'static str {
    let has = |ipv4| nets.iter().any(|net| net.addr().is_ipv4() == ipv4);
    match (has(true), has(false)) {
        (true, false) => "IPv4",
        (false, true) => "IPv6",
        _ => "IPv4 and IPv6",
    }
}

fn check_overlaps(cx: &mut Context<'_>, own: &[At<IpNet>], pods: &[At<IpNet>], services: &[At<IpNet>]) {
    let all: Vec<(&At<IpNet>, Use)> = [(own, Use::Machines), (pods, Use::Pods), (services, Use::Services)]
        .into_iter()
        .flat_map(|(nets, of)| nets.iter().map(move |net| (net, of)))
        .collect();
    for (i, (net, of)) in all.iter().enumerate() {
        for (other, other_of) in &all[i + 1..] {
            let overlap = net.value.contains(&other.value) || other.value.contains(&net.value);
            if of != other_of && overlap {
                report_overlap(cx, (net, *of), (other, *other_of));
            }
        }
    }
}

fn report_overlap(cx: &mut Context<'_>, (net, of): (&At<IpNet>, Use), (other, other_of): (&At<IpNet>, Use)) {
    let (blamed, rest) = if is_written(other) { (other, net) } else { (net, other) };
    let mut finding = Finding::error(
        Code::NETWORKS_OVERLAP,
        Some(blamed.span).filter(|_| is_written(blamed)),
        format!(
            "the network of {} ({}) overlaps that of {} ({})",
            of.word(),
            net.value,
            other_of.word(),
            other.value
        ),
    );
    if is_written(rest) && is_written(blamed) {
        finding = finding.see(rest.span, "the other network");
    }
    let key =
        if is_written(other) && of == Use::Machines || other_of != Use::Machines { other_of } else { of };
    cx.findings.push(finding.remedy(format!("choose another network for `network.{}`", key.word())));
}

/// Every node gets a /24 (or /64) of the pods' network.
fn check_pod_room(cx: &mut Context<'_>, pods: &[At<IpNet>], machines: usize) {
    for net in pods {
        let per_node = if net.addr().is_ipv4() { 24 } else { 64 };
        let bits = u32::from(per_node - net.prefix_len().min(per_node)).min(63);
        if machines as u64 > 1 << bits {
            cx.findings.push(
                Finding::error(
                    Code::NETWORK_SIZE,
                    Some(net.span).filter(|_| is_written(net)).or(cx.places.network),
                    format!(
                        "{} has room for {}, and there are {machines} machines",
                        net.value,
                        if bits == 0 { "one node".into() } else { format!("{} nodes", 1_u64 << bits) },
                    ),
                )
                .because(format!("every node gets a /{per_node} of it"))
                .remedy("choose a larger network for `network.pods`"),
            );
        }
    }
}

/// Networks of further cards must not reach into those of pods and services.
pub fn check_cards(cx: &mut Context<'_>, drafts: &[Draft], networks: &Network) {
    let mut judged = BTreeSet::new();
    let inner = |nets: &[IpNet], of| nets.iter().map(|net| (*net, of)).collect::<Vec<_>>();
    let inner: Vec<(IpNet, Use)> =
        [inner(&networks.pods, Use::Pods), inner(&networks.services, Use::Services)].concat();
    let nics = drafts.iter().flat_map(|draft| draft.all.nics.iter().flat_map(|nics| &nics.value));
    for cidr in nics.filter_map(|nic| nic.cidr) {
        let net = cidr.value.0;
        let clash = inner.iter().find(|(other, _)| net.contains(other) || other.contains(&net));
        if let Some((other, of)) = clash.filter(|_| judged.insert(cidr.span)) {
            let message =
                format!("the network of this card ({net}) overlaps that of {} ({other})", of.word());
            cx.findings.push(
                Finding::error(Code::NETWORKS_OVERLAP, cidr.span, message)
                    .remedy(format!("choose another network for the card, or for `network.{}`", of.word())),
            );
        }
    }
}

/// Returns the addresses that no machine may have, and checks them.
pub fn reserved(cx: &mut Context<'_>, networks: &Network) -> Vec<Claim> {
    let mut claims = name_servers(cx);
    let gateways = cx.network.gateway.clone();
    for gateway in gateways.iter().flat_map(|many| &many.0) {
        let address = gateway.value.0;
        check_inside(cx, networks, address, gateway.span, "the gateway");
        check_not_edge(cx, networks, address, gateway.span, "the gateway");
        claims.push(Claim { address, owner: "the gateway".into(), at: Some(gateway.span) });
    }
    check_one_per_family(cx);
    warn_of_gaps(cx, networks);
    claims.extend(shared_addresses(cx, networks));
    let seen = cx.seen.addresses();
    claims.extend(seen.map(|(address, owner)| Claim { address, owner: owner.to_owned(), at: None }));
    claims
}

/// A machine has one default gateway for each family.
fn check_one_per_family(cx: &mut Context<'_>) {
    let gateways = cx.network.gateway.clone().map(|many| many.value.0).unwrap_or_default();
    for (i, gateway) in gateways.iter().enumerate() {
        let same = |other: &At<ichor_spec::values::Ip>| other.value.0.is_ipv4() == gateway.value.0.is_ipv4();
        if gateways[..i].iter().any(same) {
            cx.findings.push(
                Finding::error(Code::FAMILY, gateway.span, "there are two gateways of one family")
                    .remedy("give one IPv4 gateway, one IPv6 gateway, or one of each"),
            );
        }
    }
}

/// Name servers need not be in the machines' network; no machine can take the place of one.
fn name_servers(cx: &Context<'_>) -> Vec<Claim> {
    let servers = cx.network.dns.iter().flat_map(|many| &many.0);
    servers
        .map(|server| Claim {
            address: server.value.0,
            owner: "the name server".into(),
            at: Some(server.span),
        })
        .collect()
}

fn warn_of_gaps(cx: &mut Context<'_>, networks: &Network) {
    let unread = |key| cx.network.unread.has(key);
    let (no_gateway, no_resolver) =
        (cx.network.gateway.is_none() && !unread("gateway"), cx.network.dns.is_none() && !unread("dns"));
    if leased(cx) || networks.cidr.is_empty() || unread("addressing") {
        return;
    }
    let at = cx.network.cidr.as_ref().map(|cidr| cidr.span);
    if no_gateway {
        cx.findings.push(
            Finding::warning(Code::NO_GATEWAY, at, "the network has no gateway")
                .because("machines reach no registry and no time server outside their network")
                .remedy("add `network.gateway`, unless the network is meant to be closed"),
        );
    }
    if no_resolver {
        cx.findings.push(
            Finding::warning(Code::NO_RESOLVER, at, "no name server is given")
                .because("Talos falls back to public name servers")
                .remedy("add `network.dns`"),
        );
    }
}

/// The VIP and the load balancer: addresses of the endpoint, not of a machine.
fn shared_addresses(cx: &mut Context<'_>, networks: &Network) -> Vec<Claim> {
    let endpoint = cx.cluster.endpoint.clone().map(|at| at.value).unwrap_or_default();
    let mut claims = Vec::new();
    let kube_vip = endpoint.kube_vip.and_then(|kube_vip| kube_vip.value.address);
    for (vip, owner) in [(endpoint.vip, "the VIP"), (kube_vip, "kube-vip's address")] {
        let Some(vip) = vip else { continue };
        let address = vip.value.0;
        check_inside(cx, networks, address, vip.span, owner);
        check_not_edge(cx, networks, address, vip.span, owner);
        check_not_gateway(cx, address, vip.span, owner);
        claims.push(Claim { address, owner: owner.into(), at: Some(vip.span) });
    }
    // The load balancer is somebody else's, and may well be the gateway.
    if let Some(at) = endpoint.address {
        claims.push(Claim { address: at.value.0, owner: "the load balancer".into(), at: Some(at.span) });
    }
    claims
}

fn check_not_gateway(cx: &mut Context<'_>, address: std::net::IpAddr, at: Span, owner: &str) {
    let gateway =
        cx.network.gateway.iter().flat_map(|many| &many.0).find(|gateway| gateway.value.0 == address);
    if let Some(gateway) = gateway {
        let finding =
            Finding::error(Code::ADDRESS_TWICE, at, format!("{owner} {address} is also the gateway"))
                .see(gateway.span, "the gateway")
                .remedy("choose a free address of the network");
        cx.findings.push(finding);
    }
}

fn check_inside(cx: &mut Context<'_>, networks: &Network, address: std::net::IpAddr, at: Span, owner: &str) {
    if networks.cidr.is_empty() || networks.cidr.iter().any(|net| net.contains(&address)) {
        return;
    }
    let nets: Vec<String> = networks.cidr.iter().map(ToString::to_string).collect();
    cx.findings.push(
        Finding::error(
            Code::OUTSIDE_NETWORK,
            at,
            format!("{owner} {address} is outside {}", nets.join(" and ")),
        )
        .remedy(super::addresses::room_in(&networks.cidr)),
    );
}

fn check_not_edge(
    cx: &mut Context<'_>,
    networks: &Network,
    address: std::net::IpAddr,
    at: Span,
    owner: &str,
) {
    if let Some(net) = net_of(&networks.cidr, address)
        && let Some(edge) = super::addresses::edge(net, address)
    {
        cx.findings.push(
            Finding::error(Code::RESERVED_ADDRESS, at, format!("{owner} {address} is {edge} of {net}"))
                .remedy(super::addresses::room_in(&[*net])),
        );
    }
}
