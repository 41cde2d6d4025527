//! Links, addresses, names and labels: what ichor knows about a machine.

use std::collections::BTreeMap;

use ichor_model::desired::{AddressDelivery, Late, Machine, Nic};
use serde_json::{Map, Value, json};

use super::{Blueprint, V1_12, V1_14, documents::document, is_control_plane};

/// Adds what is known of the machine, if there is one, and of its networks.
pub fn extend(blueprint: &Blueprint, documents: &mut Vec<Value>) {
    let machine = blueprint.machine.as_deref();
    if let Some(machine) = machine {
        if blueprint.contract < V1_12 {
            documents[0]["machine"]["network"] = legacy_network(blueprint, machine);
        } else {
            links(blueprint, machine, documents);
            name_servers(machine, documents);
            hostname(blueprint, machine, documents);
        }
    }
    node_address(blueprint, machine, documents);
    node_metadata(blueprint, machine, documents);
    time(blueprint, documents);
    kernel_modules(blueprint, documents);
}

/// Finds a document by its kind.
pub fn find<'a>(documents: &'a mut [Value], kind: &str) -> Option<&'a mut Value> {
    documents.iter_mut().find(|document| document["kind"] == kind)
}

fn addresses(nic: &Nic) -> Vec<String> {
    nic.addresses.iter().filter_map(Late::known).map(ToString::to_string).collect()
}

/// The VIP is held by the first network card of control planes.
fn vip(blueprint: &Blueprint, slot: usize) -> Option<String> {
    let holder = slot == 0 && is_control_plane(blueprint.role);
    blueprint.cluster_wide.vip.filter(|_| holder).map(|vip| vip.to_string())
}

/// Whether a card is given its address by DHCP.
fn leases(machine: &Machine, slot: usize, nic: &Nic) -> bool {
    let leased = nic.addresses.iter().any(|address| address.known().is_none());
    leased || slot == 0 && machine.boot.address == AddressDelivery::Dhcp
}

/// MTU 1 is Proxmox's word for the bridge's own, which the card shows to the guest by itself.
fn mtu(nic: &Nic) -> Option<u16> {
    nic.mtu.filter(|mtu| *mtu > 1)
}

fn legacy_network(blueprint: &Blueprint, machine: &Machine) -> Value {
    let mut network = Map::new();
    if !blueprint.cluster_wide.dhcp_hostnames {
        network.insert("hostname".into(), machine.name.as_str().into());
    }
    let interfaces: Vec<Value> =
        machine.nics.iter().enumerate().map(|(slot, nic)| interface(blueprint, machine, slot, nic)).collect();
    network.insert("interfaces".into(), interfaces.into());
    let dns = &machine.primary_nic().dns;
    if !dns.is_empty() {
        network.insert("nameservers".into(), json!(dns));
    }
    Value::Object(network)
}

fn interface(blueprint: &Blueprint, machine: &Machine, slot: usize, nic: &Nic) -> Value {
    let mut interface = Map::new();
    interface.insert("deviceSelector".into(), json!({ "hardwareAddr": nic.mac }));
    let dhcp = leases(machine, slot, nic);
    if !dhcp {
        interface.insert("addresses".into(), json!(addresses(nic)));
        let routes = legacy_routes(nic);
        if !routes.is_empty() {
            interface.insert("routes".into(), routes.into());
        }
    }
    if let Some(mtu) = mtu(nic) {
        interface.insert("mtu".into(), mtu.into());
    }
    interface.insert("dhcp".into(), dhcp.into());
    if let Some(vip) = vip(blueprint, slot) {
        interface.insert("vip".into(), json!({ "ip": vip }));
    }
    Value::Object(interface)
}

fn legacy_routes(nic: &Nic) -> Vec<Value> {
    let default = nic.gateways.iter().map(|gateway| {
        let network = if gateway.is_ipv4() { "0.0.0.0/0" } else { "::/0" };
        json!({ "network": network, "gateway": gateway })
    });
    let others = nic.routes.iter().map(|route| {
        let mut value = json!({ "network": route.to, "gateway": route.via });
        if let Some(metric) = route.metric {
            value["metric"] = metric.into();
        }
        value
    });
    default.chain(others).collect()
}

/// Every card is found by its MAC and called after its Proxmox slot.
fn links(blueprint: &Blueprint, machine: &Machine, documents: &mut Vec<Value>) {
    for (slot, nic) in machine.nics.iter().enumerate() {
        let selector = format!("mac(link.permanent_addr) == \"{}\"", nic.mac);
        documents.push(document(
            "LinkAliasConfig",
            Some(&nic.slot),
            json!({ "selector": { "match": selector } }),
        ));
        documents.push(document("LinkConfig", Some(&nic.slot), link(machine, slot, nic)));
        if leases(machine, slot, nic) {
            documents.push(document("DHCPv4Config", Some(&nic.slot), json!({})));
        }
        if let Some(vip) = vip(blueprint, slot) {
            documents.push(document("Layer2VIPConfig", Some(&vip), json!({ "link": nic.slot })));
        }
    }
}

fn link(machine: &Machine, slot: usize, nic: &Nic) -> Value {
    let mut link = Map::new();
    link.insert("up".into(), true.into());
    if let Some(mtu) = mtu(nic) {
        link.insert("mtu".into(), mtu.into());
    }
    if leases(machine, slot, nic) {
        return Value::Object(link);
    }
    let addresses: Vec<Value> =
        addresses(nic).into_iter().map(|address| json!({ "address": address })).collect();
    link.insert("addresses".into(), addresses.into());
    let default = nic.gateways.iter().map(|gateway| json!({ "gateway": gateway }));
    let others = nic.routes.iter().map(|route| {
        let mut value = json!({ "destination": route.to, "gateway": route.via });
        if let Some(metric) = route.metric {
            value["metric"] = metric.into();
        }
        value
    });
    let routes: Vec<Value> = default.chain(others).collect();
    if !routes.is_empty() {
        link.insert("routes".into(), routes.into());
    }
    Value::Object(link)
}

fn name_servers(machine: &Machine, documents: &mut Vec<Value>) {
    let servers: Vec<Value> =
        machine.primary_nic().dns.iter().map(|address| json!({ "address": address })).collect();
    if servers.is_empty() {
        return;
    }
    match find(documents, "ResolverConfig") {
        Some(resolver) => resolver["nameservers"] = servers.into(),
        None => documents.push(document("ResolverConfig", None, json!({ "nameservers": servers }))),
    }
}

/// A name and `auto: off` go together; without them the DHCP server's name wins over the automatic one.
fn hostname(blueprint: &Blueprint, machine: &Machine, documents: &mut [Value]) {
    if blueprint.cluster_wide.dhcp_hostnames {
        return;
    }
    if let Some(hostname) = find(documents, "HostnameConfig") {
        hostname["auto"] = "off".into();
        hostname["hostname"] = machine.name.as_str().into();
    }
}

/// Addresses that overlay networks give, and that nodes must not take for their own: Tailscale's.
const OVERLAY_ADDRESSES: [&str; 2] = ["!100.64.0.0/10", "!fd7a:115c:a1e0::/48"];

/// With several networks on a machine, Kubernetes and etcd are told which one is theirs.
fn node_address(blueprint: &Blueprint, machine: Option<&Machine>, documents: &mut [Value]) {
    let subnets = node_subnets(blueprint);
    if subnets.is_empty() {
        return;
    }
    if blueprint.contract >= V1_14 {
        if let Some(node) = find(documents, "KubeNodeConfig") {
            node["nodeIP"] = json!({ "validSubnets": subnets });
        }
    } else {
        documents[0]["machine"]["kubelet"]["nodeIP"] = json!({ "validSubnets": subnets });
    }
    let others =
        machine.is_some_and(|machine| machine.nics.len() > 1) || blueprint.cluster_wide.overlay_network;
    if is_control_plane(blueprint.role) && others {
        documents[0]["cluster"]["etcd"]["advertisedSubnets"] = json!(subnets);
    }
}

/// The machines' networks; where nobody knows them, all networks but those of an overlay.
fn node_subnets(blueprint: &Blueprint) -> Vec<String> {
    let cluster = &blueprint.cluster_wide;
    if !cluster.overlay_network || !cluster.node_networks.is_empty() {
        return cluster.node_networks.clone();
    }
    let families = [("0.0.0.0/0", false), ("::/0", true)];
    let all =
        families.into_iter().filter(|(_, v6)| blueprint.pods.iter().any(|net| net.contains(':') == *v6));
    all.map(|(net, _)| net).chain(OVERLAY_ADDRESSES).map(str::to_owned).collect()
}

fn node_metadata(blueprint: &Blueprint, machine: Option<&Machine>, documents: &mut [Value]) {
    let mut labels = blueprint.cluster_wide.labels.clone();
    labels.extend(machine.into_iter().flat_map(|machine| machine.labels.clone()));
    let none = BTreeMap::new();
    let kinds: [(&str, &str, &BTreeMap<String, String>); 3] = [
        ("nodeLabels", "labels", &labels),
        ("nodeAnnotations", "annotations", machine.map_or(&none, |machine| &machine.annotations)),
        ("nodeTaints", "taints", machine.map_or(&none, |machine| &machine.taints)),
    ];
    for (legacy, key, values) in kinds.into_iter().filter(|(_, _, values)| !values.is_empty()) {
        let target = if blueprint.contract >= V1_14 {
            find(documents, "KubeNodeConfig").map(|node| &mut node[key])
        } else {
            Some(&mut documents[0]["machine"][legacy])
        };
        if let Some(target) = target {
            if target.is_null() {
                *target = json!({});
            }
            for (name, value) in values {
                target[name] = value.as_str().into();
            }
        }
    }
}

fn time(blueprint: &Blueprint, documents: &mut Vec<Value>) {
    let servers = &blueprint.cluster_wide.time_servers;
    if servers.is_empty() {
        return;
    }
    if blueprint.contract < V1_12 {
        documents[0]["machine"]["time"] = json!({ "servers": servers });
    } else {
        documents.push(document("TimeSyncConfig", None, json!({ "ntp": { "servers": servers } })));
    }
}

fn kernel_modules(blueprint: &Blueprint, documents: &mut Vec<Value>) {
    let modules = blueprint.cluster_wide.kernel_modules.iter().map(|(name, parameters)| {
        let body = if parameters.is_empty() { json!({}) } else { json!({ "parameters": parameters }) };
        (name, body)
    });
    if blueprint.contract >= V1_14 {
        documents.extend(modules.map(|(name, body)| document("KernelModuleConfig", Some(name), body)));
        return;
    }
    let modules: Vec<Value> = modules
        .map(|(name, body)| {
            let mut module = Map::from_iter([("name".to_owned(), Value::from(name.as_str()))]);
            module.extend(body.as_object().cloned().unwrap_or_default());
            Value::Object(module)
        })
        .collect();
    if !modules.is_empty() {
        documents[0]["machine"]["kernel"] = json!({ "modules": modules });
    }
}
