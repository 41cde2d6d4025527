//! Pictures of a cluster: what runs where, and what stands behind the endpoint.
//!
//! Both pictures are drawn from one [`Topology`]: zones hold hosts, and hosts hold machines. They
//! are pure text: no clock, no font metrics, no dependency, so the same cluster is the same file.

mod mermaid;
#[cfg(test)]
mod sample;
mod svg;
#[cfg(test)]
mod tests;
mod words;

use std::collections::BTreeMap;

use ichor_model::{
    Desired, HostName, MachineName, Size,
    desired::{EndpointKind, Machine, Role},
};

/// More machines of one role than this on a host are listed instead of drawn one by one.
const LIST_ABOVE: usize = 12;

/// On hosts with more machines than this, lists are cut to [`LIST_ABOVE`] names.
const SUMMARISE_ABOVE: usize = 60;

/// A Proxmox host as the pictures show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphHost {
    /// Its name.
    pub name: HostName,
    /// The zone it stands in.
    pub zone: Option<String>,
    /// Hardware threads, when somebody looked.
    pub cpu: Option<u32>,
    /// Physical memory, when somebody looked.
    pub memory: Option<Size>,
}

/// Renders a Mermaid flowchart.
///
/// `hosts` are drawn in the order given, also when they carry no machine; hosts that only
/// machines name come after them, and machines whose host is not known yet come last.
pub fn mermaid(desired: &Desired, hosts: &[GraphHost]) -> String {
    mermaid::render(desired, &Topology::new(desired, hosts))
}

/// Renders an SVG picture that stands on its own, on light and on dark pages.
///
/// `hosts` are ordered as in [`mermaid()`].
pub fn svg(desired: &Desired, hosts: &[GraphHost]) -> String {
    svg::render(desired, &Topology::new(desired, hosts))
}

/// A cluster as a place: zones, their hosts, and the machines on them.
struct Topology<'a> {
    zones: Vec<Zone<'a>>,
}

/// Hosts that share a zone, or that have none.
struct Zone<'a> {
    name: Option<&'a str>,
    hosts: Vec<Host<'a>>,
}

/// A host with its machines, or the machines that have no host yet.
struct Host<'a> {
    /// Absent: chosen from the live Proxmox.
    name: Option<&'a HostName>,
    cpu: Option<u32>,
    memory: Option<Size>,
    machines: Vec<&'a Machine>,
}

impl<'a> Topology<'a> {
    fn new(desired: &'a Desired, hosts: &'a [GraphHost]) -> Self {
        let mut machines = machines_by_host(desired);
        let live = machines.remove(&None);
        let mut topology = Self { zones: Vec::new() };
        for (i, host) in hosts.iter().enumerate() {
            if hosts[..i].iter().all(|earlier| earlier.name != host.name) {
                let machines = machines.remove(&Some(&host.name)).unwrap_or_default();
                topology.add(host.zone.as_deref(), Host::seen(host, machines));
            }
        }
        for (name, machines) in machines {
            topology.add(None, Host::unseen(name, machines));
        }
        topology.zones.sort_by_key(|zone| zone.name.is_none());
        if let Some(machines) = live {
            topology.add(None, Host::unseen(None, machines));
        }
        topology
    }

    fn add(&mut self, zone: Option<&'a str>, host: Host<'a>) {
        let zone = zone.filter(|name| !name.trim().is_empty());
        match self.zones.iter_mut().find(|known| known.name == zone) {
            Some(known) => known.hosts.push(host),
            None => self.zones.push(Zone { name: zone, hosts: vec![host] }),
        }
    }

    /// Returns whether any host has a zone; without one, zones are not drawn at all.
    fn has_zones(&self) -> bool {
        self.zones.iter().any(|zone| zone.name.is_some())
    }

    fn hosts(&self) -> impl Iterator<Item = &Host<'a>> {
        self.zones.iter().flat_map(|zone| &zone.hosts)
    }
}

impl<'a> Host<'a> {
    fn seen(host: &'a GraphHost, machines: Vec<&'a Machine>) -> Self {
        Self { name: Some(&host.name), cpu: host.cpu, memory: host.memory, machines }
    }

    fn unseen(name: Option<&'a HostName>, machines: Vec<&'a Machine>) -> Self {
        Self { name, cpu: None, memory: None, machines }
    }

    /// Returns how many virtual processors machines of a role take.
    fn cpu_taken(&self, role: Role) -> u64 {
        self.of_role(role).map(|machine| u64::from(machine.cpu.total())).sum()
    }

    /// Returns how much memory machines of a role take, in MiB.
    fn memory_taken_mib(&self, role: Role) -> u64 {
        self.of_role(role).map(|machine| machine.memory.mib()).sum()
    }

    fn of_role(&self, role: Role) -> impl Iterator<Item = &'a Machine> {
        self.machines.iter().copied().filter(move |machine| machine.role == role)
    }
}

/// Groups machines by host, keeping their order: control planes first, then by name.
fn machines_by_host(desired: &Desired) -> BTreeMap<Option<&HostName>, Vec<&Machine>> {
    let mut groups: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for machine in &desired.machines {
        groups.entry(machine.host.known()).or_default().push(machine);
    }
    for machines in groups.values_mut() {
        machines.sort_by_key(|machine| machine.role);
    }
    groups
}

/// Returns the machines that answer behind the endpoint.
fn behind_endpoint(desired: &Desired) -> Vec<&MachineName> {
    let answering = match desired.cluster.endpoint.kind {
        EndpointKind::FirstControlPlane => 1,
        _ => usize::MAX,
    };
    desired.of_role(Role::ControlPlane).take(answering).map(|machine| &machine.name).collect()
}
