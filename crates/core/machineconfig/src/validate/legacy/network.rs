//! Rules of `machine.network`.

use std::{collections::BTreeMap, net::IpAddr};

use ichor_model::Code;

use super::super::{
    judge::Judge,
    text::{is_subnet_or_address, is_wireguard_key, parse_network},
};
use crate::{
    document::{Map, Node, raw::show},
    schema::Enum,
};

/// Checks the section.
pub fn check(judge: &mut Judge<'_>, control_plane: bool) {
    let interfaces = judge.items("machine.network.interfaces");
    let parts = parts_of_links(judge, interfaces);
    for interface in interfaces {
        if !control_plane {
            no_vip(judge, interface);
        }
        if interface.get("ignore").and_then(Node::as_bool) != Some(true) {
            device(judge, interface, &parts);
        }
    }
    kubespan(judge);
}

fn text<'a>(node: &'a Node, key: &str) -> &'a str {
    node.get(key).and_then(Node::as_text).unwrap_or_default()
}

fn list<'a>(node: &'a Node, key: &str) -> &'a [Node] {
    node.get(key).and_then(Node::as_list).unwrap_or_default()
}

fn no_vip(judge: &mut Judge<'_>, interface: &Node) {
    for holder in std::iter::once(interface).chain(list(interface, "vlans")) {
        if let Some(vip) = holder.get("vip") {
            judge.wrong(
                Code::CONFIG_REFUSED,
                Some(vip),
                "virtual (shared) IP is not allowed on non-controlplane nodes",
                "make the patch one for control planes",
            );
        }
    }
}

/// Collects which interfaces are part of a bond or bridge.
fn parts_of_links<'a>(judge: &mut Judge<'_>, interfaces: &'a [Node]) -> BTreeMap<&'a str, &'a str> {
    let mut parts = BTreeMap::new();
    for interface in interfaces {
        let name = text(interface, "interface");
        let (bond, bridge) = (interface.get("bond"), interface.get("bridge"));
        if bond.is_some() && bridge.is_some() {
            let words = format!("interface has both bridge and bond sections set \"{}\"", show(name));
            judge.wrong(Code::CONFIG_REFUSED, Some(interface), &words, "keep one of them");
        }
        if bond.is_some_and(|bond| {
            !list(bond, "interfaces").is_empty() && !list(bond, "deviceSelectors").is_empty()
        }) {
            let words = format!("interface \"{}\" has both interfaces and selectors set", show(name));
            judge.wrong(Code::CONFIG_REFUSED, bond, &words, "keep one of them");
        }
        for part in bridge.or(bond).map(|link| list(link, "interfaces")).unwrap_or_default() {
            let Some(part_name) = part.as_text() else { continue };
            if parts.insert(part_name, name).is_some_and(|other| other != name) {
                let words =
                    format!("interface \"{}\" is declared as part of two separate links", show(part_name));
                judge.wrong(Code::CONFIG_REFUSED, Some(part), &words, "keep it in one of them");
            }
        }
    }
    parts
}

fn device(judge: &mut Judge<'_>, interface: &Node, parts: &BTreeMap<&str, &str>) {
    let name = text(interface, "interface");
    let selector = interface.get("deviceSelector");
    if name.is_empty() == selector.is_none() {
        judge.wrong(
            Code::CONFIG_REFUSED,
            Some(interface),
            "interface or deviceSelector, and only one of them, must be set",
            "name the interface by one of them",
        );
    }
    if selector.and_then(Node::as_map).is_some_and(Map::is_empty) {
        let words = "deviceSelector should contain at least one field";
        judge.wrong(Code::CONFIG_REFUSED, selector, words, "write as in `hardwareAddr: bc:24:11:00:00:11`");
    }
    let addressed = interface.get("dhcp").and_then(Node::as_bool) == Some(true)
        || ["cidr", "vip"].iter().any(|key| interface.get(key).is_some())
        || !list(interface, "addresses").is_empty();
    if !name.is_empty() && parts.contains_key(name) && addressed {
        let words = "bonded/bridged interface shouldn't have any addressing methods configured";
        judge.wrong(Code::CONFIG_REFUSED, Some(interface), words, "put the addresses on the bond or bridge");
    }
    addresses(judge, interface);
    for vlan in list(interface, "vlans") {
        addresses(judge, vlan);
    }
    routes(judge, interface);
    if let Some(bond) = interface.get("bond") {
        check_bond(judge, bond);
    }
    if let Some(wireguard) = interface.get("wireguard") {
        check_wireguard(judge, wireguard);
    }
}

fn addresses(judge: &mut Judge<'_>, holder: &Node) {
    let cidr = holder.get("cidr");
    if cidr.is_some() && !list(holder, "addresses").is_empty() {
        let words = "interface can't have both .cidr and .addresses set";
        judge.wrong(Code::CONFIG_REFUSED, cidr, words, "keep `addresses`");
    }
    for node in list(holder, "addresses").iter().chain(cidr) {
        let address = node.as_text().unwrap_or_default();
        if !is_subnet_or_address(address) {
            let words = format!("failed to parse IP address \"{}\"", show(address));
            judge.wrong(Code::CONFIG_REFUSED, Some(node), &words, "write it as in `10.0.0.11/24`");
        }
    }
    let vip = holder.get("vip");
    if vip.is_some_and(|vip| text(vip, "ip").parse::<IpAddr>().is_err()) {
        judge.wrong(
            Code::CONFIG_REFUSED,
            vip,
            "failed to parse the VIP as IP address",
            "write it as in `10.0.0.10`",
        );
    }
}

fn routes(judge: &mut Judge<'_>, interface: &Node) {
    for (i, route) in list(interface, "routes").iter().enumerate() {
        let (network, gateway, source) =
            (text(route, "network"), text(route, "gateway"), text(route, "source"));
        let address = |text: &str| text.is_empty() || text.parse::<IpAddr>().is_ok();
        if !network.is_empty() && parse_network(network).is_none() || !address(gateway) || !address(source) {
            let words = format!("route[{i}]: invalid network address");
            judge.wrong(
                Code::CONFIG_REFUSED,
                Some(route),
                &words,
                "write `network` as in `10.0.0.0/24`, `gateway` as in `10.0.0.1`",
            );
        }
        if network.is_empty() && gateway.is_empty() {
            let words = format!("route[{i}]: either network or gateway should be set");
            judge.wrong(Code::CONFIG_REFUSED, Some(route), &words, "set `gateway`");
        }
    }
}

fn check_bond(judge: &mut Judge<'_>, bond: &Node) {
    use crate::schema::enums::{
        AD_SELECT, ARP_ALL_TARGETS, ARP_VALIDATE, BOND_MODE, FAIL_OVER_MAC, LACP_RATE, PRIMARY_RESELECT,
        XMIT_HASH_POLICY,
    };
    let words: [(&str, &Enum, bool); 8] = [
        ("mode", &BOND_MODE, true),
        ("xmitHashPolicy", &XMIT_HASH_POLICY, false),
        ("lacpRate", &LACP_RATE, false),
        ("arpValidate", &ARP_VALIDATE, false),
        ("arpAllTargets", &ARP_ALL_TARGETS, false),
        ("primaryReselect", &PRIMARY_RESELECT, false),
        ("failOverMac", &FAIL_OVER_MAC, false),
        ("adSelect", &AD_SELECT, false),
    ];
    for (key, choice, required) in words {
        let word = text(bond, key);
        if choice.find(word).is_none() && (required || !word.is_empty()) {
            let message = format!("invalid bond {key} \"{}\"", show(word));
            let remedy = format!("write one of {}", choice.words.join(", "));
            judge.wrong(Code::CONFIG_REFUSED, bond.get(key).or(Some(bond)), &message, &remedy);
        }
    }
    let number = |key: &str| bond.get(key).and_then(Node::as_int).unwrap_or(0);
    let interval = number("miimon");
    for key in ["updelay", "downdelay"] {
        let delay = number(key);
        if delay != 0 && (interval == 0 || delay % interval != 0) {
            let message = format!("bond.{key} should be a multiple of miimon");
            judge.wrong(
                Code::CONFIG_REFUSED,
                bond.get(key),
                &message,
                "set `miimon`, and a multiple of it here",
            );
        }
    }
    for key in ["arpIPTarget", "adActorSystem"] {
        if bond.get(key).is_some() {
            judge.wrong(
                Code::CONFIG_REFUSED,
                bond.get(key),
                &format!("bond.{key} is not supported"),
                "remove it",
            );
        }
    }
    bond_mode(judge, bond);
}

/// Settings that only some modes have.
fn bond_mode(judge: &mut Judge<'_>, bond: &Node) {
    const LACP: &[&str] = &["802.3ad"];
    const BALANCED: &[&str] = &["balance-tlb", "balance-alb"];
    let mode = text(bond, "mode");
    let only: [(&str, &[&str]); 6] = [
        ("lacpRate", LACP),
        ("adActorSysPrio", LACP),
        ("adUserPortKey", LACP),
        ("primary", &["active-backup", "balance-tlb", "balance-alb"]),
        ("packetsPerSlave", &["balance-rr"]),
        ("tlbDynamicLb", BALANCED),
    ];
    let not: [(&str, &[&str]); 2] = [
        ("arpValidate", &["802.3ad", "balance-tlb", "balance-alb"]),
        ("arpInterval", &["802.3ad", "balance-tlb", "balance-alb"]),
    ];
    let wrong = only
        .iter()
        .filter(|(key, modes)| bond.get(key).is_some() && !modes.contains(&mode))
        .chain(not.iter().filter(|(key, modes)| bond.get(key).is_some() && modes.contains(&mode)));
    for (key, _) in wrong.copied().collect::<Vec<_>>() {
        // One packet per member is the default, which every mode takes.
        if key == "packetsPerSlave" && bond.get(key).and_then(Node::as_int) == Some(1) {
            continue;
        }
        let message = format!("bond.{key} is not available in {} mode", show(mode));
        judge.wrong(Code::CONFIG_REFUSED, bond.get(key), &message, "remove it, or choose another `mode`");
    }
}

fn check_wireguard(judge: &mut Judge<'_>, wireguard: &Node) {
    let holders = std::iter::once((wireguard, "privateKey"))
        .chain(list(wireguard, "peers").iter().map(|peer| (peer, "publicKey")));
    for (holder, key) in holders {
        if !is_wireguard_key(text(holder, key)) {
            let words = format!("wireguard {key} is invalid");
            judge.wrong(
                Code::CONFIG_REFUSED,
                Some(holder),
                &words,
                "write 32 bytes in base64, as `wg genkey` prints them",
            );
        }
    }
    for peer in list(wireguard, "peers") {
        for allowed in list(peer, "allowedIPs") {
            if parse_network(allowed.as_text().unwrap_or_default()).is_none() {
                judge.wrong(
                    Code::CONFIG_REFUSED,
                    Some(allowed),
                    "peer allowed IP is invalid",
                    "write a network",
                );
            }
        }
    }
}

fn kubespan(judge: &mut Judge<'_>) {
    let path = "machine.network.kubespan";
    if !judge.is_on(&format!("{path}.enabled")) {
        return;
    }
    let mtu = format!("{path}.mtu");
    if judge.get(&mtu).is_some() && judge.int(&mtu) < 1280 {
        judge.fail(
            Code::CONFIG_REFUSED,
            &mtu,
            "kubespan link MTU must be at least 1280",
            "write 1280 or more",
        );
    }
    judge.subnets(&format!("{path}.filters.endpoints"), "KubeSpan endpoint filter");
    if judge.release >= 14 {
        return;
    }
    if !judge.is_on("cluster.discovery.enabled") {
        judge.conflict(
            path,
            ".cluster.discovery should be enabled when .machine.network.kubespan is enabled",
            "set `cluster.discovery.enabled: true`",
        );
    }
    for key in ["id", "secret"] {
        let words = format!(".cluster.{key} should be set when .machine.network.kubespan is enabled");
        judge.required(&format!("cluster.{key}"), &words);
    }
}
