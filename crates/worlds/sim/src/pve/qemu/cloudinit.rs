//! The files on the drive of cloud-init, as Proxmox writes them.

use std::collections::BTreeMap;

use sha1::{Digest, Sha1};

use super::{
    config::Section,
    network::{Net, is_net},
    property::{Properties, Shape},
};

/// The files on the drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// `user-data`.
    pub user: String,
    /// `network-config`.
    pub network: String,
    /// `meta-data`.
    pub meta: String,
}

/// How the drive is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `cidata`.
    NoCloud,
    /// `config-2`.
    ConfigDrive,
    /// `CONTEXT`.
    OpenNebula,
}

/// Returns how the drive of a VM is laid out.
pub fn format(config: &Section) -> Format {
    match config.get("citype").map(String::as_str) {
        Some("configdrive2") => Format::ConfigDrive,
        Some("opennebula") => Format::OpenNebula,
        None if config.get("ostype").is_some_and(|kind| kind.starts_with('w')) => Format::ConfigDrive,
        _ => Format::NoCloud,
    }
}

/// Contents of snippets that stand in for generated files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Custom {
    /// In place of `user-data`.
    pub user: Option<String>,
    /// In place of `network-config`.
    pub network: Option<String>,
    /// In place of `meta-data`.
    pub meta: Option<String>,
}

/// What a host's resolver is set to: `search`, `dns1` and so on.
pub type Resolver = BTreeMap<String, String>;

/// Writes the files.
pub fn files(config: &Section, vmid: u32, resolver: &Resolver, custom: Custom) -> Files {
    let user = custom.user.unwrap_or_else(|| user_data(config, vmid, false));
    let network = custom.network.unwrap_or_else(|| network_config(config, resolver));
    let meta = custom.meta.unwrap_or_else(|| meta_data(config, &user, &network));
    Files { user, network, meta }
}

/// Writes `user-data`.
pub fn user_data(config: &Section, vmid: u32, mask_password: bool) -> String {
    let get = |key: &str| config.get(key).map(String::as_str);
    let name = get("name").map_or_else(|| format!("VM{vmid}"), str::to_owned);
    let short = name.split('.').next().unwrap_or_default().to_owned();
    let full = match (name.contains('.'), get("searchdomain")) {
        (false, Some(domain)) => format!("{name}.{domain}"),
        _ => name.clone(),
    };
    let mut text = format!("#cloud-config\nhostname: {short}\nmanage_etc_hosts: true\nfqdn: {full}\n");
    let user = get("ciuser");
    if let Some(user) = user {
        text.push_str(&format!("user: {user}\n"));
        if user == "root" {
            text.push_str("disable_root: False\n");
        }
    }
    if let Some(password) = get("cipassword") {
        text.push_str(&format!("password: {}\n", if mask_password { "**********" } else { password }));
    }
    if let Some(keys) = get("sshkeys") {
        text.push_str("ssh_authorized_keys:\n");
        for key in unescaped(keys).lines().filter(|key| !key.trim().is_empty()) {
            text.push_str(&format!("  - {key}\n"));
        }
    }
    text.push_str("chpasswd:\n  expire: False\n");
    if user != Some("root") {
        text.push_str("users:\n  - default\n");
    }
    if get("ciupgrade") != Some("0") {
        text.push_str("package_upgrade: true\n");
    }
    text
}

/// Writes `network-config`. Who names no servers and domains gets those of the host.
pub fn network_config(config: &Section, resolver: &Resolver) -> String {
    let mut config = config.clone();
    let servers: Vec<&str> =
        ["dns1", "dns2", "dns3"].iter().filter_map(|key| resolver.get(*key)).map(String::as_str).collect();
    config.entry("nameserver".into()).or_insert_with(|| servers.join(" "));
    config
        .entry("searchdomain".into())
        .or_insert_with(|| resolver.get("search").cloned().unwrap_or_default());
    match format(&config) {
        Format::NoCloud => no_cloud_network(&config),
        Format::ConfigDrive | Format::OpenNebula => interfaces_file(&config),
    }
}

/// Writes `meta-data`: nothing but an id that follows the other files.
pub fn meta_data(config: &Section, user: &str, network: &str) -> String {
    let digest = Sha1::new().chain_update(user.as_bytes()).chain_update(network.as_bytes()).finalize();
    let id: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    match format(config) {
        Format::NoCloud => format!("instance-id: {id}\n"),
        Format::ConfigDrive | Format::OpenNebula => format!(
            "{{\n     \"uuid\": \"{id}\",\n     \"network_config\": {{ \"content_path\": \"/content/0000\" }}\n}}\n"
        ),
    }
}

/// A card with its addresses.
struct Card {
    number: String,
    mac: String,
    addresses: Properties,
}

/// Returns the cards that have addresses, in the order of their names.
fn cards(config: &Section) -> Vec<Card> {
    config
        .iter()
        .filter(|(key, _)| is_net(key))
        .filter_map(|(key, value)| {
            let number = key.strip_prefix("net")?.to_owned();
            let addresses = config.get(&format!("ipconfig{number}"))?;
            Some(Card {
                number,
                mac: Net::read(value).mac().unwrap_or_default().to_lowercase(),
                addresses: Properties::read(Shape::plain(""), addresses),
            })
        })
        .collect()
}

fn no_cloud_network(config: &Section) -> String {
    let mut text = String::from("version: 1\nconfig:\n");
    for card in cards(config) {
        text.push_str(&format!(
            "    - type: physical\n      name: eth{}\n      mac_address: '{}'\n      subnets:\n",
            card.number, card.mac
        ));
        let get = |key: &str| card.addresses.get(key);
        match get("ip") {
            Some("dhcp") => text.push_str("      - type: dhcp4\n"),
            Some(address) => {
                let (address, mask) = address_and_mask(address);
                text.push_str(&format!(
                    "      - type: static\n        address: '{address}'\n        netmask: '{mask}'\n"
                ));
                if let Some(gateway) = get("gw") {
                    text.push_str(&format!("        gateway: '{gateway}'\n"));
                }
            }
            None => {}
        }
        match get("ip6") {
            Some("dhcp") => text.push_str("      - type: dhcp6\n"),
            Some("auto") => text.push_str("      - type: ipv6_slaac\n"),
            Some(address) => {
                text.push_str(&format!("      - type: static6\n        address: '{address}'\n"));
                if let Some(gateway) = get("gw6") {
                    text.push_str(&format!("        gateway: '{gateway}'\n"));
                }
            }
            None => {}
        }
    }
    text.push_str("    - type: nameserver\n");
    for (title, option) in [("address", "nameserver"), ("search", "searchdomain")] {
        let values: Vec<&str> =
            config.get(option).map_or_else(Vec::new, |list| list.split_whitespace().collect());
        if !values.is_empty() {
            text.push_str(&format!("      {title}:\n"));
            for value in values {
                text.push_str(&format!("      - '{value}'\n"));
            }
        }
    }
    text
}

/// Writes a file in the form of `/etc/network/interfaces`.
fn interfaces_file(config: &Section) -> String {
    let mut text = String::from("auto lo\niface lo inet loopback\n\n");
    for (title, option) in [("dns_nameservers", "nameserver"), ("dns_search", "searchdomain")] {
        let values: Vec<&str> =
            config.get(option).map_or_else(Vec::new, |list| list.split_whitespace().collect());
        if !values.is_empty() {
            text.push_str(&format!("        {title} {}\n", values.join(" ")));
        }
    }
    for card in cards(config) {
        let name = format!("eth{}", card.number);
        text.push_str(&format!("auto {name}\n"));
        let get = |key: &str| card.addresses.get(key);
        match get("ip") {
            Some("dhcp") => text.push_str(&format!("iface {name} inet dhcp\n")),
            Some(address) => {
                let (address, mask) = address_and_mask(address);
                text.push_str(&static_interface(&name, "inet", &address, &mask, get("gw")));
            }
            None => {}
        }
        match get("ip6") {
            Some(way @ ("dhcp" | "auto")) => text.push_str(&format!("iface {name} inet6 {way}\n")),
            Some(address) => {
                let (address, prefix) = address.split_once('/').unwrap_or((address, ""));
                text.push_str(&static_interface(&name, "inet6", address, prefix, get("gw6")));
            }
            None => {}
        }
    }
    text
}

fn static_interface(name: &str, family: &str, address: &str, mask: &str, gateway: Option<&str>) -> String {
    let mut text =
        format!("iface {name} {family} static\n        address {address}\n        netmask {mask}\n");
    if let Some(gateway) = gateway {
        text.push_str(&format!("        gateway {gateway}\n"));
    }
    text
}

fn address_and_mask(address: &str) -> (String, String) {
    let (address, prefix) = address.split_once('/').unwrap_or((address, "32"));
    let prefix: u32 = prefix.parse().unwrap_or(32).min(32);
    let bits = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
    (address.to_owned(), std::net::Ipv4Addr::from(bits).to_string())
}

/// Decodes percent signs.
pub fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        match hex.and_then(|pair| u8::from_str_radix(pair, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Section {
        [
            ("name", "cp-1"),
            ("net0", "virtio=02:AA:00:00:00:01,bridge=vmbr0"),
            ("net1", "virtio=02:AA:00:00:00:02,bridge=vmbr1"),
            ("ipconfig0", "ip=10.0.0.11/24,gw=10.0.0.1,ip6=auto"),
            ("nameserver", "10.0.0.2 10.0.0.3"),
            ("sshkeys", "ssh-ed25519%20AAAA%20me%0A"),
        ]
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
    }

    #[test]
    fn the_network_is_told_in_version_1() {
        assert_eq!(
            network_config(&config(), &Resolver::new()),
            "version: 1\n\
             config:\n    \
                 - type: physical\n      name: eth0\n      mac_address: '02:aa:00:00:00:01'\n      subnets:\n      \
                 - type: static\n        address: '10.0.0.11'\n        netmask: '255.255.255.0'\n        \
                 gateway: '10.0.0.1'\n      - type: ipv6_slaac\n    \
                 - type: nameserver\n      address:\n      - '10.0.0.2'\n      - '10.0.0.3'\n"
        );
    }

    #[test]
    fn the_host_lends_its_resolver() {
        let mut config = config();
        config.remove("nameserver");
        let host =
            Resolver::from([("dns1".into(), "10.9.9.9".into()), ("search".into(), "example.test".into())]);
        let text = network_config(&config, &host);
        assert!(
            text.ends_with("address:\n      - '10.9.9.9'\n      search:\n      - 'example.test'\n"),
            "{text}"
        );
    }

    #[test]
    fn the_user_data_names_the_host() {
        let text = user_data(&config(), 401, false);
        assert!(
            text.starts_with("#cloud-config\nhostname: cp-1\nmanage_etc_hosts: true\nfqdn: cp-1\n"),
            "{text}"
        );
        assert!(text.contains("ssh_authorized_keys:\n  - ssh-ed25519 AAAA me\n"), "{text}");
        assert!(text.ends_with("users:\n  - default\npackage_upgrade: true\n"), "{text}");
    }

    #[test]
    fn the_meta_data_is_an_id_that_follows_the_rest() {
        let write = |config: &Section| files(config, 401, &Resolver::new(), Custom::default());
        let first = write(&config());
        let mut other = config();
        other.insert("nameserver".into(), "10.0.0.9".into());
        assert!(first.meta.starts_with("instance-id: ") && first.meta.len() == 13 + 40 + 1);
        assert_ne!(first.meta, write(&other).meta);
    }
}
