//! What a nocloud image finds on its cidata disc, and what a metal image finds in META.
//!
//! Facts: nocloud reads the volume labelled `cidata` or `CIDATA`; a user-data that begins with `#cloud-config` is
//! no machine config; PVE writes version 1 of the network config, others version 2.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::iso;
use crate::ground::{Content, DiscKind, Hardware, Media};

/// The network as a platform describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// The machine config, if the platform delivers one.
    pub config: Option<Vec<u8>>,
    /// The host name.
    pub hostname: Option<String>,
    /// The instance id.
    pub instance: Option<String>,
    /// What the links are to have.
    pub links: Vec<PlatformLink>,
    /// Name servers.
    pub resolvers: Vec<IpAddr>,
}

/// One link of a platform's network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlatformLink {
    /// The MAC address it is recognised by, in lower case.
    pub mac: Option<String>,
    /// The name it is recognised by.
    pub name: Option<String>,
    /// Its addresses with prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Its gateways.
    pub gateways: Vec<IpAddr>,
    /// Whether it asks a DHCP server.
    pub dhcp: bool,
}

/// Reads what the platform of an image delivers.
pub fn platform(hardware: &Hardware, media: &Media, name: &str, network: Option<&str>) -> Platform {
    if name == "nocloud" {
        return hardware
            .discs
            .iter()
            .find_map(|disc| disc_files(&disc.kind, media))
            .map_or_else(Platform::default, |files| nocloud(&files));
    }
    network.map(metal).unwrap_or_default()
}

/// The files of a cidata disc.
struct Files {
    user_data: String,
    meta_data: String,
    network_config: String,
}

fn disc_files(kind: &DiscKind, media: &Media) -> Option<Files> {
    match kind {
        DiscKind::CloudInit { user_data, meta_data, network_config } => Some(Files {
            user_data: user_data.clone(),
            meta_data: meta_data.clone(),
            network_config: network_config.clone(),
        }),
        DiscKind::File(content) => {
            let Content::Bytes(bytes) = media.get(*content) else { return None };
            let disc = iso::read(bytes).filter(|disc| disc.label.eq_ignore_ascii_case("cidata"))?;
            let text = |name| disc.text(name).unwrap_or_default();
            Some(Files {
                user_data: text("user-data"),
                meta_data: text("meta-data"),
                network_config: text("network-config"),
            })
        }
    }
}

/// Reads YAML of a platform; what cannot be read is nothing.
fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or(Value::Null)
}

fn nocloud(files: &Files) -> Platform {
    let is_cloud_config = files.user_data.starts_with("#cloud-config");
    let is_config =
        !is_cloud_config && !files.user_data.starts_with("#include") && !files.user_data.trim().is_empty();
    let meta = yaml(&files.meta_data);
    // PVE puts the host name into its user-data only.
    let user = if is_cloud_config { yaml(&files.user_data) } else { Value::Null };
    let text = |map: &Value, key: &str| {
        map.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let hostname = ["hostname", "local-hostname"]
        .iter()
        .find_map(|key| text(&meta, key))
        .or_else(|| ["hostname", "local-hostname"].iter().find_map(|key| text(&user, key)));
    let network = yaml(&files.network_config);
    let network = network.get("network").unwrap_or(&network);
    let (links, resolvers) = match network.get("version").and_then(Value::as_u64) {
        Some(1) => version_1(network),
        Some(2) => version_2(network),
        _ => (Vec::new(), Vec::new()),
    };
    Platform {
        config: is_config.then(|| files.user_data.clone().into_bytes()),
        hostname,
        instance: text(&meta, "instance-id"),
        links,
        resolvers,
    }
}

fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, key: &str) -> Option<&'a str> {
    value.get(key).and_then(Value::as_str)
}

fn address_of(text: &str) -> Option<IpAddr> {
    text.parse().ok()
}

/// Reads `10.0.0.11/24`; without a length the address stands alone.
pub fn prefix(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) =
        text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
    let address = address_of(address)?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    match length {
        None => Some((address, most)),
        Some(length) => length.parse().ok().filter(|length| *length <= most).map(|length| (address, length)),
    }
}

/// Counts the ones of a netmask.
fn mask_length(mask: &str) -> Option<u8> {
    match address_of(mask)? {
        IpAddr::V4(mask) => u8::try_from(u32::from(mask).leading_ones()).ok(),
        IpAddr::V6(mask) => u8::try_from(u128::from(mask).leading_ones()).ok(),
    }
}

fn version_1(network: &Value) -> (Vec<PlatformLink>, Vec<IpAddr>) {
    let mut links = Vec::new();
    let mut resolvers = Vec::new();
    for entry in list(network, "config") {
        match text(entry, "type") {
            Some("physical") => links.push(physical(entry)),
            Some("nameserver") => match entry.get("address") {
                Some(Value::String(address)) => resolvers.extend(address_of(address)),
                _ => resolvers
                    .extend(list(entry, "address").iter().filter_map(Value::as_str).filter_map(address_of)),
            },
            _ => {}
        }
    }
    (links, resolvers)
}

fn physical(entry: &Value) -> PlatformLink {
    let mut link = PlatformLink {
        mac: text(entry, "mac_address").map(str::to_lowercase),
        name: text(entry, "name").map(str::to_owned),
        ..PlatformLink::default()
    };
    for subnet in list(entry, "subnets") {
        match text(subnet, "type") {
            Some("dhcp" | "dhcp4") => link.dhcp = true,
            Some("static" | "static6") => {
                let address = text(subnet, "address").and_then(prefix);
                let mask = text(subnet, "netmask").and_then(mask_length);
                link.addresses.extend(address.map(|(address, length)| (address, mask.unwrap_or(length))));
                link.gateways.extend(text(subnet, "gateway").and_then(address_of));
            }
            _ => {}
        }
    }
    link
}

fn version_2(network: &Value) -> (Vec<PlatformLink>, Vec<IpAddr>) {
    let mut links = Vec::new();
    let mut resolvers = Vec::new();
    let ethernets = network.get("ethernets").and_then(Value::as_object);
    for (name, entry) in ethernets.into_iter().flatten() {
        let mac = entry.get("match").and_then(|matched| text(matched, "macaddress")).map(str::to_lowercase);
        let texts = |key| list(entry, key).iter().filter_map(Value::as_str);
        let routes = list(entry, "routes")
            .iter()
            .filter(|route| matches!(text(route, "to"), Some("default" | "0.0.0.0/0" | "::/0")));
        let gateways = ["gateway4", "gateway6"].iter().filter_map(|key| text(entry, key));
        links.push(PlatformLink {
            mac,
            name: Some(name.clone()),
            addresses: texts("addresses").filter_map(prefix).collect(),
            gateways: gateways
                .chain(routes.filter_map(|route| text(route, "via")))
                .filter_map(address_of)
                .collect(),
            dhcp: entry.get("dhcp4").and_then(Value::as_bool).unwrap_or(false),
        });
        let servers = entry.get("nameservers").map_or(&[][..], |servers| list(servers, "addresses"));
        resolvers.extend(servers.iter().filter_map(Value::as_str).filter_map(address_of));
    }
    (links, resolvers)
}

/// Returns the link that an entry names, which may be the first to name it.
fn named<'l>(links: &'l mut Vec<PlatformLink>, entry: &Value, key: &str) -> &'l mut PlatformLink {
    let name = text(entry, key).unwrap_or_default();
    let index = links.iter().position(|link| link.name.as_deref() == Some(name)).unwrap_or_else(|| {
        links.push(PlatformLink { name: Some(name.to_owned()), ..PlatformLink::default() });
        links.len() - 1
    });
    &mut links[index]
}

/// Reads META key 10: the network of a metal platform.
fn metal(value: &str) -> Platform {
    let network = yaml(value);
    let mut links: Vec<PlatformLink> = Vec::new();
    for link in list(&network, "links") {
        named(&mut links, link, "name");
    }
    for address in list(&network, "addresses") {
        let found = text(address, "address").and_then(prefix);
        named(&mut links, address, "linkName").addresses.extend(found);
    }
    for route in list(&network, "routes") {
        let found = text(route, "gateway").and_then(address_of);
        named(&mut links, route, "outLinkName").gateways.extend(found);
    }
    for operator in list(&network, "operators") {
        named(&mut links, operator, "linkName").dhcp |= text(operator, "operator") == Some("dhcp4");
    }
    let servers = list(&network, "resolvers").iter().flat_map(|resolver| list(resolver, "dnsServers"));
    Platform {
        hostname: list(&network, "hostnames")
            .iter()
            .find_map(|entry| text(entry, "hostname"))
            .map(str::to_owned),
        resolvers: servers.filter_map(Value::as_str).filter_map(address_of).collect(),
        links,
        ..Platform::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(user_data: &str, network_config: &str) -> Files {
        Files {
            user_data: user_data.into(),
            meta_data: "instance-id: abc\n".into(),
            network_config: network_config.into(),
        }
    }

    #[test]
    fn the_drive_of_proxmox_gives_addresses_and_a_name_but_no_config() {
        let network = "version: 1\nconfig:\n    - type: physical\n      name: eth0\n      mac_address: 'BC:24:11:00:00:11'\n      \
                       subnets:\n      - type: static\n        address: '10.0.0.11'\n        netmask: '255.255.255.0'\n        \
                       gateway: '10.0.0.1'\n    - type: nameserver\n      address:\n      - '10.0.0.1'\n      search:\n      - 'lan'\n";
        let platform = nocloud(&files("#cloud-config\nhostname: cp-1\nmanage_etc_hosts: true\n", network));
        assert_eq!(platform.config, None);
        assert_eq!(platform.hostname.as_deref(), Some("cp-1"));
        assert_eq!(platform.links[0].mac.as_deref(), Some("bc:24:11:00:00:11"));
        assert_eq!(platform.links[0].addresses, [("10.0.0.11".parse().expect("address"), 24)]);
        assert_eq!(platform.resolvers, ["10.0.0.1".parse::<IpAddr>().expect("address")]);
    }

    #[test]
    fn version_2_and_meta_are_read_too() {
        let network = "version: 2\nethernets:\n  eth0:\n    match: {macaddress: 'bc:24:11:00:00:11'}\n    addresses: [10.0.0.11/24]\n    \
                       routes: [{to: default, via: 10.0.0.1}]\n    nameservers: {addresses: [1.1.1.1]}\n";
        let platform = nocloud(&files("machine: {}\n", network));
        assert!(platform.config.is_some());
        assert_eq!(platform.links[0].gateways.len(), 1);
        let meta =
            metal("addresses: [{address: 10.0.0.12/24, linkName: ens18}]\nhostnames: [{hostname: n1}]\n");
        assert_eq!((meta.links[0].addresses.len(), meta.hostname.as_deref()), (1, Some("n1")));
    }

    #[test]
    fn nonsense_is_nothing() {
        for text in ["", "{", "version: 9\n", "version: 1\nconfig: 5\n", "- 1\n- 2\n"] {
            assert_eq!(nocloud(&files("#cloud-config", text)).links, []);
        }
    }
}
