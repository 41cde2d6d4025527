//! The words that both pictures use, made harmless and short.

use ichor_model::{
    Desired, HostName, Size,
    desired::{Disk, Endpoint, Late, Machine, PciAddress, PciDevice, Role, Source},
};

use super::{Host, Topology};

/// Returns text as one line without characters that draw nothing or turn the writing direction.
///
/// Control characters are not allowed in XML 1.0 even when escaped.
pub(super) fn one_line(text: &str) -> String {
    let shown: String = text.chars().map(|c| if is_drawable(c) { c } else { ' ' }).collect();
    shown.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_drawable(c: char) -> bool {
    let turns_direction =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !c.is_control() && !turns_direction && !matches!(c, '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// Returns `3 workers` or `1 worker`.
pub(super) fn count(number: usize, thing: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{ending}")
}

/// Returns a role as people say it.
pub(super) const fn role(role: Role) -> &'static str {
    match role {
        Role::ControlPlane => "control plane",
        Role::Worker => "worker",
    }
}

/// Returns a size as `8 GiB` or `1.5 TiB`.
pub(super) fn size(size: Size) -> String {
    let (amount, unit) = size_parts(size);
    format!("{amount} {unit}")
}

/// Returns a used amount and its whole, naming a shared unit once.
fn size_of(used: Size, whole: Size) -> String {
    let ((used, used_unit), (whole, unit)) = (size_parts(used), size_parts(whole));
    let used_unit = if used_unit == unit || used == "0" { String::new() } else { format!(" {used_unit}") };
    format!("{used}{used_unit} / {whole} {unit}")
}

/// Returns the amount in the largest unit it fills, with at most one decimal.
fn size_parts(size: Size) -> (String, &'static str) {
    let (per_unit, unit) = match size.mib() {
        0..1024 => (1, "MiB"),
        1024..0x10_0000 => (1024, "GiB"),
        _ => (0x10_0000, "TiB"),
    };
    let tenths = (size.mib() * 10 + per_unit / 2) / per_unit;
    match tenths % 10 {
        0 => ((tenths / 10).to_string(), unit),
        rest => (format!("{}.{rest}", tenths / 10), unit),
    }
}

/// Returns a host's name, or that it will be chosen.
pub(super) fn host(name: Option<&HostName>) -> String {
    name.map_or_else(|| Source::LiveHosts.to_string(), ToString::to_string)
}

/// Returns how many processors of a host are taken: `12 / 32 CPU`, or `12 vCPU` of nobody knows what.
pub(super) fn cpu_taken(host: &Host<'_>) -> String {
    let taken: u64 = Role::ALL.iter().map(|role| host.cpu_taken(*role)).sum();
    match host.cpu {
        Some(whole) => format!("{taken} / {whole} CPU"),
        None => format!("{taken} vCPU"),
    }
}

/// Returns how much memory of a host is taken: `40 / 128 GiB`.
pub(super) fn memory_taken(host: &Host<'_>) -> String {
    let taken = Size::from_mib(Role::ALL.iter().map(|role| host.memory_taken_mib(*role)).sum());
    host.memory.map_or_else(|| size(taken), |whole| size_of(taken, whole))
}

/// Returns every address of a machine, the node's own first, or who will give it.
pub(super) fn addresses(machine: &Machine) -> Vec<Late<String>> {
    let addresses = machine.nics.iter().flat_map(|nic| &nic.addresses);
    addresses
        .map(|address| match address {
            Late::Known(net) => Late::Known(net.addr().to_string()),
            Late::From(source) => Late::From(*source),
        })
        .collect()
}

/// Returns a value, or who will give it.
pub(super) fn late(value: &Late<String>) -> String {
    match value {
        Late::Known(value) => value.clone(),
        Late::From(source) => source.to_string(),
    }
}

/// Returns what stands behind the endpoint, and its moving address where the URL does not say it.
pub(super) fn endpoint_kind(endpoint: &Endpoint) -> String {
    let host = endpoint.host.known();
    let moving = endpoint.vip.or(endpoint.kube_vip.as_ref().map(|vip| vip.address));
    match moving.map(|vip| vip.to_string()).filter(|vip| Some(vip) != host) {
        Some(vip) => format!("{} · VIP {vip}", endpoint.kind),
        None => endpoint.kind.to_string(),
    }
}

/// Returns a disk beside the system disk as `data 200 GiB`.
pub(super) fn disk(disk: &Disk) -> String {
    format!("{} {}", one_line(&disk.name), size(disk.size))
}

/// Returns the mapping or address of a passed-through device.
pub(super) fn pci(device: &PciDevice) -> String {
    match &device.device {
        PciAddress::Mapping(name) => one_line(name),
        PciAddress::Address(address) => one_line(address),
    }
}

/// Returns the releases that differ from the cluster's own, as during an upgrade.
pub(super) fn other_releases(machine: &Machine, desired: &Desired) -> Vec<String> {
    let talos = (machine.talos != desired.cluster.talos).then(|| format!("Talos {}", machine.talos));
    let kubernetes = (machine.kubernetes != desired.cluster.kubernetes)
        .then(|| format!("Kubernetes {}", machine.kubernetes));
    talos.into_iter().chain(kubernetes).collect()
}

/// Returns the size of the cluster: `3 control planes · 2 workers · 3 hosts`.
pub(super) fn census(desired: &Desired, topology: &Topology<'_>) -> String {
    let mut parts: Vec<_> = Role::ALL
        .iter()
        .map(|kind| count(desired.of_role(*kind).count(), role(*kind)))
        .chain([count(topology.hosts().filter(|host| host.name.is_some()).count(), "host")])
        .collect();
    if topology.has_zones() {
        parts.push(count(topology.zones.iter().filter(|zone| zone.name.is_some()).count(), "zone"));
    }
    parts.retain(|part| !part.starts_with("0 "));
    parts.join(" · ")
}

/// Returns every bridge the machines are plugged into, with its VLAN, each once.
pub(super) fn bridges(desired: &Desired) -> Vec<String> {
    let nics = desired.machines.iter().flat_map(|machine| &machine.nics);
    let mut bridges: Vec<_> = nics.map(|nic| (one_line(&nic.bridge), nic.vlan)).collect();
    bridges.sort();
    bridges.dedup();
    bridges.into_iter().map(|(bridge, vlan)| with_vlan(bridge, vlan)).collect()
}

fn with_vlan(bridge: String, vlan: Option<u16>) -> String {
    match vlan {
        Some(vlan) => format!("{bridge} · VLAN {vlan}"),
        None => bridge,
    }
}

/// Returns a machine in one line, for those who point at it or have it read out.
pub(super) fn machine(machine: &Machine) -> String {
    let mut parts = vec![format!("{}, {}, VM {}", machine.name, role(machine.role), machine.vmid)];
    parts.extend(addresses(machine).iter().map(late));
    parts.push(resources(machine));
    parts.join(" · ")
}

/// Returns what a machine takes of its host: `4 vCPU · 8 GiB · 40 GiB`.
pub(super) fn resources(machine: &Machine) -> String {
    let mut parts = vec![format!("{} vCPU", machine.cpu.total()), size(machine.memory)];
    parts.extend(machine.disks.first().map(|disk| size(disk.size)));
    parts.join(" · ")
}
