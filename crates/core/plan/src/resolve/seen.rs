//! What was seen of the world, sorted by whose it is.
//!
//! Machines of this cluster that the inventory names keep what they have. Everything else that was
//! seen is in the way: foreign VMs, machines of other clusters, and machines of ours that have left
//! the inventory and are not gone yet.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ichor_model::{
    Code, Finding, HostName, MacAddress, MachineName, Size, VmId, World,
    world::{SeenHost, SeenMachine},
};

use super::{Context, expand::Draft};
use crate::placement::Resources;

/// What was seen, sorted by whose it is.
#[derive(Debug, Default)]
pub struct Seen<'a> {
    hosts: BTreeMap<&'a HostName, &'a SeenHost>,
    ours: BTreeMap<&'a MachineName, &'a SeenMachine>,
    vmids: BTreeMap<VmId, String>,
    addresses: BTreeMap<IpAddr, String>,
    macs: BTreeMap<MacAddress, String>,
    load: BTreeMap<&'a HostName, (u32, u64)>,
}

impl<'a> Seen<'a> {
    /// Sorts what was seen. `cluster` is the id of this cluster, `drafts` its machines.
    pub fn new(world: &'a World, cluster: &str, drafts: &[Draft]) -> Self {
        let wanted: BTreeSet<&MachineName> = drafts.iter().map(|draft| &draft.name).collect();
        let mut seen =
            Self { hosts: world.hosts.iter().map(|host| (&host.name, host)).collect(), ..Self::default() };
        for vm in &world.foreign {
            let owner = format!("foreign VM {}", vm.vmid);
            seen.macs.extend(vm.macs.iter().map(|mac| (*mac, owner.clone())));
            seen.vmids.insert(vm.vmid, owner);
            seen.charge(&vm.host, vm.cpu, vm.memory);
        }
        for machine in &world.machines {
            let ours = machine.cluster.as_ref().is_none_or(|id| id == cluster);
            if ours && wanted.contains(&machine.name) {
                seen.ours.insert(&machine.name, machine);
                continue;
            }
            let owner = match &machine.cluster {
                Some(id) if !ours => {
                    format!("`{}` of cluster `{}`", machine.name, ichor_spec::yaml::show(id))
                }
                _ => format!("`{}`, which is not gone yet", machine.name),
            };
            seen.addresses.extend(machine.addresses.iter().map(|address| (*address, owner.clone())));
            seen.vmids.insert(machine.vmid, owner);
            seen.charge(&machine.host, machine.cpu, machine.memory);
        }
        seen
    }

    fn charge(&mut self, host: &'a HostName, cpu: u32, memory: Size) {
        let (used, mib) = self.load.entry(host).or_default();
        *used = used.saturating_add(cpu);
        *mib = mib.saturating_add(memory.mib());
    }

    /// Returns a host, if it was seen.
    pub fn host(&self, name: &HostName) -> Option<&'a SeenHost> {
        self.hosts.get(name).copied()
    }

    /// Returns the names of the hosts that were seen.
    pub fn host_names(&self) -> Vec<String> {
        self.hosts.keys().map(ToString::to_string).collect()
    }

    /// Returns one of this cluster's machines, if it has a VM.
    pub fn machine(&self, name: &MachineName) -> Option<&'a SeenMachine> {
        self.ours.get(name).copied()
    }

    /// Returns who is in the way of a VMID.
    pub fn holder_of_vmid(&self, vmid: VmId) -> Option<&str> {
        self.vmids.get(&vmid).map(String::as_str)
    }

    /// Returns the VMIDs that cannot be given out.
    pub fn vmids(&self) -> impl Iterator<Item = VmId> {
        self.vmids.keys().copied()
    }

    /// Returns the addresses that cannot be given out, and who has them.
    pub fn addresses(&self) -> impl Iterator<Item = (IpAddr, &str)> {
        self.addresses.iter().map(|(address, owner)| (*address, owner.as_str()))
    }

    /// Returns the MACs that cannot be given out, and who has them.
    pub fn macs(&self) -> impl Iterator<Item = (MacAddress, &str)> {
        self.macs.iter().map(|(mac, owner)| (*mac, owner.as_str()))
    }

    /// Returns what others use of a host.
    pub fn load(&self, host: &HostName) -> Resources {
        let (cpu, mib) = self.load.get(host).copied().unwrap_or_default();
        Resources::new(cpu, Size::from_mib(mib))
    }
}

/// Reports observations that contradict each other.
pub fn check(cx: &mut Context<'_>, world: &World) {
    let mut problems = Vec::new();
    let mut hosts = BTreeSet::new();
    problems.extend(
        world
            .hosts
            .iter()
            .filter(|host| !hosts.insert(&host.name))
            .map(|host| format!("host `{}` is listed twice", host.name)),
    );
    let mut names = BTreeSet::new();
    let mut vmids = BTreeSet::new();
    for machine in &world.machines {
        if !names.insert((&machine.cluster, &machine.name)) {
            problems.push(format!("machine `{}` is listed twice", machine.name));
        }
        if !vmids.insert(machine.vmid) {
            problems.push(format!("VMID {} is listed twice", machine.vmid));
        }
        if !hosts.is_empty() && !hosts.contains(&machine.host) {
            problems.push(format!(
                "machine `{}` is on host `{}`, which is not listed",
                machine.name, machine.host
            ));
        }
    }
    problems.extend(
        world
            .foreign
            .iter()
            .filter(|vm| !vmids.insert(vm.vmid))
            .map(|vm| format!("VMID {} is listed twice", vm.vmid)),
    );
    for problem in problems {
        cx.findings.push(
            Finding::error(Code::WORLD, None, format!("what was observed contradicts itself: {problem}"))
                .remedy("look again, or mend the file that `--observed` names"),
        );
    }
}
