//! META: what a machine on the metal platform knows before it has a machine config.
//!
//! Key 10 holds its network. It is baked into an image of its own by the schematic, or handed over as
//! a kernel argument.

use std::io::Write;

use base64::{Engine, engine::general_purpose::STANDARD};
use flate2::{Compression, GzBuilder};
use ichor_model::{
    Problem,
    desired::{Hostnames, Late, Machine, Nic},
};
use serde_json::{Value, json};

/// The key of the network.
pub const NETWORK_KEY: u8 = 10;

/// Longest text that goes into a kernel argument uncompressed.
const PLAIN_LIMIT: usize = 256;
/// The metrics that Talos gives routes for which nobody asks otherwise.
const METRIC: u32 = 1024;
const METRIC_V6: u32 = 2048;

/// Returns the value of key 10 for a machine: JSON on one line, which every release reads as YAML and
/// which schematics need not fold.
///
/// Links are `eth0` and on, so the image must carry the kernel argument `net.ifnames=0`. A link that is
/// named here runs no DHCP; one whose address comes from a lease is left out, and so does.
pub fn network(machine: &Machine, hostnames: Hostnames, time_servers: &[String]) -> Result<String, Problem> {
    let mut config = serde_json::Map::new();
    let mut add = |section: &str, items: Vec<Value>| {
        if !items.is_empty() {
            config.insert(section.into(), items.into());
        }
    };
    let fixed: Vec<(String, &Nic)> = (0..)
        .map(|i: usize| format!("eth{i}"))
        .zip(&machine.nics)
        .filter(|(_, nic)| nic.addresses.iter().all(|address| address.known().is_some()))
        .collect();
    let of_each = |items: fn(&str, &Nic) -> Vec<Value>| -> Vec<Value> {
        fixed.iter().flat_map(|(link, nic)| items(link, nic)).collect()
    };
    add("addresses", of_each(addresses));
    add("links", fixed.iter().map(|(link, nic)| link_of(link, nic)).collect());
    add("routes", of_each(routes));
    if hostnames == Hostnames::Inventory {
        add("hostnames", vec![json!({"hostname": machine.name, "domainname": "", "layer": "platform"})]);
    }
    add("resolvers", resolvers(&fixed));
    if !time_servers.is_empty() {
        add("timeServers", vec![json!({"timeServers": time_servers, "layer": "platform"})]);
    }
    let text = Value::Object(config).to_string();
    check_value(&text).map(|()| text)
}

fn family(address: std::net::IpAddr) -> &'static str {
    if address.is_ipv4() { "inet4" } else { "inet6" }
}

fn addresses(link: &str, nic: &Nic) -> Vec<Value> {
    let known = nic.addresses.iter().filter_map(Late::known);
    known
        .map(|address| {
            json!({
                "address": address, "linkName": link, "family": family(address.addr()),
                "scope": "global", "flags": "permanent", "layer": "platform",
            })
        })
        .collect()
}

fn link_of(link: &str, nic: &Nic) -> Value {
    match guest_mtu(nic) {
        Some(mtu) => json!({"name": link, "up": true, "mtu": mtu, "layer": "platform"}),
        None => json!({"name": link, "up": true, "layer": "platform"}),
    }
}

/// Returns the MTU to set inside the guest. 1 is Proxmox's word for the bridge's own, which the
/// guest's network card already has.
pub(crate) fn guest_mtu(nic: &Nic) -> Option<u16> {
    nic.mtu.filter(|mtu| *mtu > 1)
}

fn routes(link: &str, nic: &Nic) -> Vec<Value> {
    let defaults = nic.gateways.iter().map(|gateway| (String::new(), *gateway, None));
    let others = nic.routes.iter().map(|route| (route.to.to_string(), route.via, route.metric));
    defaults
        .chain(others)
        .map(|(to, via, metric)| {
            let usual = if via.is_ipv4() { METRIC } else { METRIC_V6 };
            json!({
                "family": family(via), "dst": to, "gateway": via, "outLinkName": link, "table": "main",
                "priority": metric.unwrap_or(usual), "scope": "global", "type": "unicast",
                "protocol": "static", "layer": "platform",
            })
        })
        .collect()
}

/// All links share one list of name servers, in order and each once.
fn resolvers(fixed: &[(String, &Nic)]) -> Vec<Value> {
    let mut servers = Vec::new();
    for server in fixed.iter().flat_map(|(_, nic)| &nic.dns) {
        if !servers.contains(server) {
            servers.push(*server);
        }
    }
    if servers.is_empty() { Vec::new() } else { vec![json!({"dnsServers": servers, "layer": "platform"})] }
}

fn check_value(value: &str) -> Result<(), Problem> {
    if value.contains(';') {
        return Err(Problem::new(
            "has a `;`, which ends a META value",
            "remove the `;` from host names and time servers",
        ));
    }
    Ok(())
}

/// Returns the kernel argument that hands META values to the installer.
pub fn kernel_argument(values: &[(u8, &str)]) -> Result<String, Problem> {
    encode(values).map(|text| format!("talos.environment=INSTALLER_META_BASE64={text}"))
}

/// Encodes META values for `INSTALLER_META_BASE64`: pairs joined by `;`, compressed when they are long.
///
/// Talos 1.6.3 and later tell the two apart by gzip's magic number.
pub fn encode(values: &[(u8, &str)]) -> Result<String, Problem> {
    for (_, value) in values {
        check_value(value)?;
    }
    let pairs: Vec<String> = values.iter().map(|(key, value)| format!("{key:#x}={value}")).collect();
    let text = pairs.join(";");
    Ok(STANDARD.encode(if text.len() > PLAIN_LIMIT { compress(text.as_bytes()) } else { text.into_bytes() }))
}

/// Compresses, with no time and no system in the header, so that equal values give equal bytes.
fn compress(bytes: &[u8]) -> Vec<u8> {
    const UNKNOWN_SYSTEM: u8 = 255;
    let mut encoder =
        GzBuilder::new().mtime(0).operating_system(UNKNOWN_SYSTEM).write(Vec::new(), Compression::best());
    // Writing to memory does not fail; if it did, the uncompressed form is read just as well.
    encoder.write_all(bytes).and_then(|()| encoder.finish()).unwrap_or_else(|_| bytes.to_vec())
}
