//! Rules of the network documents.

use std::net::IpAddr;

use ichor_model::Code;

use super::{
    judge::Judge,
    text::{endpoint_problem, is_wireguard_key},
};
use crate::document::{Node, quantity::parse_duration, url::Url};

/// Checks a document of this family; others are left alone.
pub fn check(kind: &str, judge: &mut Judge<'_>) {
    match kind {
        "HostnameConfig" => hostname(judge),
        "LinkAliasConfig" => link_alias(judge),
        "VLANConfig" => vlan(judge),
        "BondConfig" => bond(judge),
        "WireguardConfig" => wireguard(judge),
        "VRFConfig" => vrf(judge),
        "VethConfig" => veth(judge),
        "DHCPv4Config" | "DHCPv6Config" => dhcp(judge),
        "Layer2VIPConfig" | "HCloudVIPConfig" => vip(kind, judge),
        "ResolverConfig" => resolver(judge),
        "StaticHostConfig" => static_host(judge),
        "TimeSyncConfig" => time_sync(judge),
        "NetworkRuleConfig" => rule(judge),
        "KubeSpanConfig" => kubespan(judge),
        "BlackholeRouteConfig" => blackhole(judge),
        "RoutingRuleConfig" => routing_rule(judge),
        "TCPProbeConfig" | "HTTPProbeConfig" => probe(kind, judge),
        "BGPInstanceConfig" => bgp(judge),
        _ => {}
    }
    if judge.document.schema().is_some_and(|kind| kind.body.field("multicast").is_some()) {
        link(judge, "");
        link(judge, "peer.");
    }
}

fn hostname(judge: &mut Judge<'_>) {
    let (auto, name) = (judge.text("auto"), judge.text("hostname"));
    let unset = judge.get("auto").is_none();
    if name.is_empty() && (unset || judge.release < 13 && auto == "off") {
        judge.fail(
            Code::CONFIG_REFUSED,
            "auto",
            "either 'auto' or 'hostname' must be set",
            "write `auto: stable`, or `auto: off` and a `hostname`",
        );
    }
    if !name.is_empty() && !unset && auto != "off" {
        judge.conflict(
            "hostname",
            "'auto' and 'hostname' cannot be set at the same time",
            "write `auto: off` beside `hostname`: a patch with `hostname` alone leaves the default `auto: stable`",
        );
    }
    if auto == "talos-addr" {
        judge.fail(
            Code::CONFIG_REFUSED,
            "auto",
            "invalid value for 'auto': talos-addr",
            "write `stable` or `off`",
        );
    }
    let first = name.split('.').next().unwrap_or_default();
    if !name.is_empty() && (name.len() > 253 || first.is_empty() || first.len() > 63) {
        judge.fail(
            Code::CONFIG_REFUSED,
            "hostname",
            "invalid hostname",
            "write at most 253 characters, of which 1 to 63 before the first dot",
        );
    }
}

fn link(judge: &mut Judge<'_>, prefix: &str) {
    for (i, item) in judge.items(&format!("{prefix}addresses")).iter().enumerate() {
        let address = item.get("address").and_then(Node::as_text).unwrap_or_default();
        if address.is_empty() || is_unspecified(address) {
            let words = format!("address {i} must be a valid IP prefix");
            judge.wrong(Code::CONFIG_REFUSED, Some(item), &words, "write it as in `10.0.0.11/24`");
        }
    }
    for (i, item) in judge.items(&format!("{prefix}routes")).iter().enumerate() {
        for (key, what) in [
            ("destination", "an IP prefix; leave it out for a default route"),
            ("gateway", "an IP address"),
            ("source", "an IP address"),
        ] {
            if item.get(key).and_then(Node::as_text).is_some_and(is_unspecified) {
                let words =
                    format!("route {i} {key} must be a valid {}", what.split(';').next().unwrap_or(what));
                judge.wrong(Code::CONFIG_REFUSED, item.get(key), &words, &format!("write {what}"));
            }
        }
    }
}

/// Whether an address, with or without prefix length, is all zeros.
fn is_unspecified(text: &str) -> bool {
    let address = text.split('/').next().unwrap_or(text);
    address.parse().is_ok_and(|address: IpAddr| address.is_unspecified())
}

fn link_alias(judge: &mut Judge<'_>) {
    let name = judge.text("name");
    if let Some((prefix, suffix)) = name.split_once('%')
        && (suffix != "d" || prefix.is_empty())
    {
        let words = format!("name \"{name}\" contains an invalid format verb, use %d suffix");
        judge.fail(Code::CONFIG_REFUSED, "name", &words, "write it as in `net%d`");
    }
    judge.required("selector.match", "link selector is required");
}

fn vlan(judge: &mut Judge<'_>) {
    if !(1..=4094).contains(&judge.int("vlanID")) {
        judge.fail(
            Code::CONFIG_REFUSED,
            "vlanID",
            "vlanID must be specified and between 1 and 4094",
            "write a VLAN from 1 to 4094",
        );
    }
    judge.required("parent", "parent must be specified");
}

fn bond(judge: &mut Judge<'_>) {
    judge.required("links", "at least one link must be specified");
    judge.required("bondMode", "bond mode must be specified");
}

fn wireguard(judge: &mut Judge<'_>) {
    key(judge, None, "privateKey", judge.get("privateKey"), true);
    if !(0..=65535).contains(&judge.int("listenPort")) {
        judge.fail(
            Code::CONFIG_REFUSED,
            "listenPort",
            "wireguard listen port must be between 0 and 65535",
            "write a port",
        );
    }
    for (i, peer) in judge.items("peers").iter().enumerate() {
        key(judge, Some(i), "publicKey", peer.get("publicKey"), true);
        key(judge, Some(i), "presharedKey", peer.get("presharedKey"), false);
        let keepalive = peer.get("persistentKeepaliveInterval");
        if keepalive.and_then(Node::as_text).is_some_and(|text| text.starts_with('-')) {
            let words =
                format!("wireguard peer persistent keepalive interval cannot be negative (peer index {i})");
            judge.wrong(
                Code::CONFIG_REFUSED,
                keepalive,
                &words,
                "write a positive duration, or leave it out",
            );
        }
    }
}

fn key(judge: &mut Judge<'_>, peer: Option<usize>, name: &str, node: Option<&Node>, required: bool) {
    let whose = peer.map_or_else(String::new, |i| format!(" of peer {i}"));
    let good = node.and_then(Node::as_text).map_or(!required, is_wireguard_key);
    if !good {
        let words = format!("wireguard {name}{whose} must be specified and valid");
        judge.wrong(
            Code::CONFIG_REFUSED,
            node,
            &words,
            "write 32 bytes in base64, as `wg genkey` prints them",
        );
    }
}

fn vrf(judge: &mut Judge<'_>) {
    let table = judge.text("table");
    if matches!(table, "" | "unspec" | "local" | "main" | "default") {
        let words = format!("cannot create vrf with reserved table {table}");
        judge.fail(Code::CONFIG_REFUSED, "table", &words, "write a table from 1 to 252");
    }
}

fn veth(judge: &mut Judge<'_>) {
    for (path, what) in [("name", "name"), ("peer.name", "peer name")] {
        let name = judge.text(path);
        let fits = (1..=15).contains(&name.len())
            && !matches!(name, "." | "..")
            && !name.contains(|c: char| matches!(c, '/' | ':') || c.is_whitespace() || c.is_control());
        if !fits {
            let words = format!("{what} must be specified, with at most 15 bytes");
            judge.fail(Code::CONFIG_REFUSED, path, &words, "write the name of a link, as in `veth0`");
        }
    }
    if !judge.text("name").is_empty() && judge.text("name") == judge.text("peer.name") {
        judge.conflict(
            "peer.name",
            "name and peer name must be different",
            "give the two ends different names",
        );
    }
}

fn dhcp(judge: &mut Judge<'_>) {
    let duid = judge.text("clientIdentifier") == "duid";
    let raw = !judge.text("duidRaw").is_empty();
    if raw && !duid {
        judge.conflict(
            "duidRaw",
            "duidRaw can only be set if clientIdentifier is 'duid'",
            "write `clientIdentifier: duid`",
        );
    }
    if duid && !raw {
        judge.required("duidRaw", "duidRaw must be set if clientIdentifier is 'duid'");
    }
}

fn vip(kind: &str, judge: &mut Judge<'_>) {
    let name = judge.text("name");
    if !name.is_empty() && name.parse::<IpAddr>().is_err() {
        judge.fail(
            Code::CONFIG_REFUSED,
            "name",
            "name must be a valid IP address",
            "the VIP itself is the name of the document",
        );
    }
    judge.required("link", "link must be specified");
    if kind == "HCloudVIPConfig" {
        judge.required("apiToken", "apiToken must be specified");
    }
}

fn resolver(judge: &mut Judge<'_>) {
    if judge.release < 14 {
        return;
    }
    let on = judge.is_on("hostDNS.enabled");
    for path in ["hostDNS.forwardKubeDNSToHost", "hostDNS.resolveMemberNames"] {
        if !on && judge.is_on(path) {
            let words = format!("{path} cannot be enabled when hostDNS.enabled is false");
            judge.conflict(path, &words, "set `hostDNS.enabled: true` as well");
        }
    }
    for (i, server) in judge.items("nameservers").iter().enumerate() {
        let text = |key: &str| server.get(key).and_then(Node::as_text).unwrap_or_default();
        let encrypted = matches!(text("protocol"), "DoT" | "DoH");
        if text("address").is_empty() {
            let words = format!("nameserver address must be a valid IP: entry {i}");
            judge.wrong(Code::CONFIG_REFUSED, Some(server), &words, "write `address: 10.0.0.1`");
        }
        if encrypted == text("tlsServerName").is_empty() {
            let must = if encrypted { "set" } else { "empty" };
            let protocol = if encrypted { text("protocol") } else { "Do53" };
            let words = format!("tlsServerName must be {must} when protocol is {protocol}: entry {i}");
            judge.wrong(
                Code::CONFIG_REFUSED,
                Some(server),
                &words,
                "set both `protocol` and `tlsServerName`",
            );
        }
    }
}

fn static_host(judge: &mut Judge<'_>) {
    let name = judge.text("name");
    if !name.is_empty() && name.parse::<IpAddr>().is_err() {
        judge.fail(
            Code::CONFIG_REFUSED,
            "name",
            "name must be a valid IP address",
            "the address is the name",
        );
    }
    judge.required("hostnames", "at least one hostname is required");
}

fn time_sync(judge: &mut Judge<'_>) {
    judge.not_negative("bootTimeout", "bootTimeout cannot be negative");
    if judge.get("ntp").is_some() && judge.get("ptp").is_some() {
        judge.conflict("ptp", "only one of ntp or ptp configuration can be specified", "keep one of them");
    }
    if judge.is_on("ntp.useNTS") {
        for (node, server) in judge.texts("ntp.servers") {
            if server.parse::<IpAddr>().is_ok() {
                let words = format!("NTS requires hostnames, not IP addresses: \"{server}\"");
                judge.wrong(Code::CONFIG_REFUSED, Some(node), &words, "write the server's name");
            }
        }
    }
}

fn rule(judge: &mut Judge<'_>) {
    judge.required("portSelector.ports", "portSelector.ports is required");
    let mut ranges: Vec<(u32, u32)> = judge.items("portSelector.ports").iter().filter_map(range).collect();
    ranges.sort_unstable();
    let backwards = ranges.iter().any(|(low, high)| low > high);
    if backwards || ranges.windows(2).any(|pair| pair[1].0 <= pair[0].1) {
        judge.fail(
            Code::CONFIG_REFUSED,
            "portSelector.ports",
            "invalid port range: ranges overlap or run backwards",
            "write each port once, ranges as in `8000-8010`",
        );
    }
    for item in judge.items("ingress") {
        if item.get("subnet").is_none() {
            judge.wrong(Code::CONFIG_REFUSED, Some(item), "invalid subnet", "write `subnet: 10.0.0.0/24`");
        }
    }
}

fn range(node: &Node) -> Option<(u32, u32)> {
    if let Some(port) = node.as_int() {
        let port = u32::try_from(port).ok()?;
        return Some((port, port));
    }
    let (low, high) = node.as_text()?.split_once('-')?;
    Some((low.parse().ok()?, high.parse().ok()?))
}

fn kubespan(judge: &mut Judge<'_>) {
    if judge.get("mtu").is_some() && judge.int("mtu") < 1280 {
        judge.fail(
            Code::CONFIG_REFUSED,
            "mtu",
            "kubespan link MTU must be at least 1280",
            "write 1280 or more",
        );
    }
    judge.subnets("filters.endpoints", "KubeSpan endpoint filter");
}

fn blackhole(judge: &mut Judge<'_>) {
    let name = judge.text("name");
    if !name.is_empty() && super::text::parse_network(name).is_none() {
        judge.fail(
            Code::CONFIG_REFUSED,
            "name",
            "name must be a valid address prefix",
            "the network is the name",
        );
    }
}

fn routing_rule(judge: &mut Judge<'_>) {
    let priority: Option<u32> = judge.text("name").parse().ok();
    // Those of the kernel and of KubeSpan are taken.
    let taken = [0, 32500, 32766, 32767];
    if !judge.text("name").is_empty() && priority.is_none_or(|priority| taken.contains(&priority)) {
        judge.fail(
            Code::CONFIG_REFUSED,
            "name",
            "priority must be between 1 and 32765 (excluding reserved priorities [0 32500 32766 32767])",
            "the priority is the name, as in `name: \"1000\"`",
        );
    }
    let table = matches!(judge.text("table"), "" | "unspec");
    if table && matches!(judge.text("action"), "" | "unspec" | "unicast") {
        judge.fail(
            Code::CONFIG_REFUSED,
            "table",
            "either table or a non-unicast action must be specified",
            "set `table`, or an `action` such as `blackhole`",
        );
    }
    if judge.int("fwMask") != 0 && judge.int("fwMark") == 0 {
        judge.fail(Code::CONFIG_REFUSED, "fwMask", "fwMask requires fwMark to be set", "set `fwMark`");
    }
}

fn probe(kind: &str, judge: &mut Judge<'_>) {
    judge.not_negative("interval", "probe interval cannot be negative");
    judge.not_negative("failureThreshold", "probe failure threshold cannot be negative");
    judge.not_negative("timeout", "probe timeout cannot be negative");
    if kind == "TCPProbeConfig" {
        judge.required("endpoint", "TCP probe endpoint is required");
        return;
    }
    let url = Url::parse(judge.text("url")).unwrap_or_default();
    let web = matches!(url.scheme(), "http" | "https");
    if !web || endpoint_problem(judge.text("url")).is_some() {
        judge.fail(
            Code::CONFIG_REFUSED,
            "url",
            "HTTP probe URL must be an absolute http or https URL with a non-empty host",
            "write it as in `https://lab.example/health`",
        );
    }
}

fn bgp(judge: &mut Judge<'_>) {
    if judge.int("localASN") == 0 {
        judge.fail(Code::CONFIG_REFUSED, "localASN", "localASN must be specified", "set `localASN`");
    }
    if judge.text("routerID").contains(':') {
        judge.fail(
            Code::CONFIG_REFUSED,
            "routerID",
            "routerID must be an IPv4 address",
            "write an IPv4 address",
        );
    }
    for (i, neighbor) in judge.items("neighbors").iter().enumerate() {
        if neighbor.get("address").is_some() == neighbor.get("link").is_some() {
            let words = format!("neighbor[{i}]: exactly one of address or link must be set");
            judge.wrong(Code::CONFIG_REFUSED, Some(neighbor), &words, "keep one of them");
        }
        let hold = neighbor.get("holdTime").and_then(Node::as_text).and_then(parse_duration);
        if hold.is_some_and(|hold| hold < 0) {
            let words = format!("neighbor[{i}]: holdTime must not be negative");
            judge.wrong(Code::CONFIG_REFUSED, neighbor.get("holdTime"), &words, "write a positive duration");
        }
        if neighbor.get("bfd").is_some() && !judge.text("vrf").is_empty() {
            let words = format!("neighbor[{i}]: bfd is not supported for VRF-bound BGP instances");
            judge.wrong(Code::CONFIG_REFUSED, neighbor.get("bfd"), &words, "remove `bfd`");
        }
    }
    for (i, route) in judge.items("importRoutes").iter().enumerate() {
        let prefixes = route.get("prefixes").and_then(Node::as_list).unwrap_or_default();
        let masked = |node: &Node| {
            let network = node.as_text().and_then(super::text::parse_network);
            network.is_some_and(|(address, bits)| !super::text::has_host_bits(address, bits))
        };
        if route.get("bgpInstance").is_none() {
            let words = format!("importRoutes[{i}]: bgpInstance must be specified");
            judge.wrong(Code::CONFIG_REFUSED, Some(route), &words, "set `bgpInstance`");
        }
        if prefixes.is_empty() || !prefixes.iter().all(masked) {
            let words =
                format!("importRoutes[{i}]: at least one prefix must be specified, and all must be masked");
            judge.wrong(Code::CONFIG_REFUSED, Some(route), &words, "write networks as in `10.0.0.0/24`");
        }
    }
}
