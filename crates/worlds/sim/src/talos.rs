//! Talos machines: what a VM becomes that boots a Talos image.
//!
//! 1. A VM is switched on: firmware looks for something to boot, Talos finds its network and its config
//!    ([`cloud`], [`lan`], [`machine`]).
//! 2. With a config, services start as far as they can: those of a worker wait for a control plane, etcd waits for
//!    bootstrap or for a cluster to join (`life`, [`etcd`]).
//! 3. Calls are judged by who calls, what the release knows, and the state of the machine (`serve`); resources
//!    are a view of that state (`resources`).
//! 4. What a machine does to itself (reboot, reset, upgrade) reaches Proxmox as a signal.
//!
//! Nothing here polls: after every event and call, everything that has become possible happens.

pub mod cloud;
pub mod etcd;
pub mod iso;
mod journal;
pub mod lan;
mod life;
pub mod machine;
pub(crate) mod persona;
mod power;
mod release;
mod resources;
mod serve;
mod snapshot;
mod streams;
mod trouble;
mod wanted;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ichor_model::VmId;
use serde::{Deserialize, Serialize};

pub use life::{Event, Step};

use self::{etcd::Etcd, lan::Lan, machine::Machine, streams::Streams};

/// All machines that are switched on, and the clusters whose data is on their disks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machines {
    /// The networks between them. Whoever builds a lab gives them DHCP servers here.
    pub lan: Lan,
    /// What goes wrong inside machines.
    pub mishaps: Mishaps,
    /// Machines by VMID.
    #[serde(rename = "machines")]
    by_id: BTreeMap<VmId, Machine>,
    /// etcd clusters by id.
    clusters: BTreeMap<String, Etcd>,
    /// Answers that go on.
    streams: Streams,
    /// How many starts there were.
    starts: u32,
}

/// What goes wrong inside machines, as opposed to on the way to them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mishaps {
    /// Images that cannot be pulled: parts of their names.
    pub pulls: BTreeSet<String>,
    /// Installers that end with an error: parts of their names.
    pub installs: BTreeSet<String>,
    /// Talos releases that do not boot.
    pub boots: BTreeSet<String>,
    /// Machines whose clocks cannot be set.
    pub clocks: BTreeSet<VmId>,
    /// Machines whose guest agents say nothing.
    #[serde(default)]
    pub agents: BTreeSet<VmId>,
    /// Addresses at which machines answer that are none of ours, whoever else has them.
    #[serde(default)]
    pub usurped: BTreeMap<IpAddr, VmId>,
}

impl Mishaps {
    fn name(names: &BTreeSet<String>, image: &str) -> bool {
        names.iter().any(|name| image.contains(name.as_str()))
    }
}

impl Machines {
    /// Returns the machine that answers at an address: its own, or one that it holds for its cluster.
    pub fn owner(&self, address: IpAddr) -> Option<&Machine> {
        if let Some(usurper) = self.mishaps.usurped.get(&address) {
            return self.by_id.get(usurper);
        }
        let has = |machine: &&Machine| {
            machine
                .run
                .as_ref()
                .is_some_and(|run| run.network.up && run.network.addresses().any(|(own, _)| own == address))
        };
        self.by_id.values().find(has).or_else(|| {
            let holder = self.clusters.values().find_map(|etcd| etcd.vips.get(&address)?.holder)?;
            self.by_id.get(&holder)
        })
    }

    /// Returns a machine that is switched on.
    pub fn machine(&self, vmid: VmId) -> Option<&Machine> {
        self.by_id.get(&vmid)
    }

    /// Returns the etcd clusters by id.
    pub const fn clusters(&self) -> &BTreeMap<String, Etcd> {
        &self.clusters
    }

    /// Raises an alarm of etcd at a member: 1 is no space, 2 is corruption. Says whether there is such a member.
    pub fn raise_alarm(&mut self, member: u64, alarm: i32) -> bool {
        let etcd = self.clusters.values_mut().find(|etcd| etcd.members.contains_key(&member));
        etcd.is_some_and(|etcd| {
            etcd.alarms.insert(member, alarm);
            true
        })
    }
}
