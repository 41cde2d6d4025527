//! Proxmox VE: a cluster of hosts behind one API.
//!
//! 1. [`request`] decodes what a client sent, with all quirks of the real HTTP server.
//! 2. [`access`] says who calls; [`describe`] knows every endpoint: its parameters and who may call it.
//! 3. [`dispatch`] checks rights, forwards to the daemon or another host, validates ([`validate`]) and calls the
//!    handler of the endpoint.
//! 4. Handlers answer at once, refuse, or say until when they block; what takes longer is a task ([`tasks`]).

// Handlers share one signature, whether they can fail or not.
#![allow(clippy::unnecessary_wraps)]

pub mod access;
pub mod answer;
pub mod backup;
pub mod cluster;
pub mod describe;
pub mod dispatch;
pub mod drive;
pub mod firewall;
pub mod formats;
pub mod ha;
pub mod hosts;
pub mod locks;
pub mod mapping;
pub mod options;
pub mod params;
pub mod pools;
pub mod qemu;
pub mod release;
pub mod request;
pub mod sdn;
pub mod storage;
pub mod tasks;
pub mod validate;
pub mod world;

use std::collections::{BTreeMap, BTreeSet};

use ichor_model::VmId;
use serde::{Deserialize, Serialize};

pub use crate::pve::{
    access::Caller,
    answer::{Answer, ApiError, Refusal, Reply},
    dispatch::{Call, Handler, Route},
    locks::{Lock, Mode},
    params::Params,
    release::Release,
    tasks::{Exit, Next, Work, Worker},
};
use crate::{
    ground::Ground,
    lab::Progress,
    signal::Signal,
    wire::{Request, Response},
};

/// What happens in Proxmox by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The next stretch of a task.
    Task(String),
    /// A task that was told to end and did not is killed.
    Kill(String),
    /// Something in a VM or on a storage.
    Qemu(qemu::Event),
    /// The status daemon's round.
    StatusRound,
    /// The HA manager's round.
    HaRound,
}

/// A Proxmox cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Datacentre {
    /// The release that all hosts run.
    pub release: Release,
    /// The cluster's name; absent for a single host.
    pub cluster: Option<String>,
    /// Whether the cluster is quorate whatever its members do, as one with a quorum device is.
    pub assumes_quorum: bool,
    /// The hosts by name.
    pub hosts: BTreeMap<String, hosts::Host>,
    /// The host that clients talk to.
    pub front: String,
    /// Names of hosts that can be looked up although they are none of the cluster.
    pub resolver: BTreeSet<String>,
    /// Users, tokens, roles, ACLs and pools.
    pub access: access::Access,
    /// Who holds which lock.
    pub locks: locks::Locks,
    /// Tasks.
    pub tasks: tasks::Tasks,
    /// Storages and their volumes.
    pub storage: storage::Storages,
    /// VMs.
    pub vms: BTreeMap<VmId, qemu::Vm>,
    /// Containers; the lab knows no more of them than what lists show.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub containers: BTreeMap<VmId, cluster::Container>,
    /// What the status daemon said last.
    pub broadcast: cluster::Broadcast,
    /// Options of the datacentre.
    pub options: options::Options,
    /// Firewalls.
    pub firewall: firewall::Firewalls,
    /// High availability.
    pub ha: ha::Ha,
    /// Backup jobs.
    pub backup: backup::Jobs,
    /// Software-defined networks.
    pub sdn: sdn::Sdn,
    /// Names for devices of hosts.
    pub mapping: mapping::Mappings,
    /// Consoles.
    #[serde(skip)]
    pub consoles: qemu::console::Consoles,
    /// Calls that the server keeps waiting.
    pub waiting: dispatch::Waiting,
}

impl Datacentre {
    /// Answers a request to the API.
    pub fn call(&mut self, ground: &mut Ground, request: &Request) -> Progress<Response> {
        dispatch::call(self, ground, request)
    }

    /// Lets an event happen.
    pub fn happen(&mut self, ground: &mut Ground, event: Event) {
        match event {
            Event::Task(upid) => tasks::step(self, ground, &upid),
            Event::Kill(upid) => tasks::kill(self, ground, &upid),
            Event::Qemu(event) => qemu::happen(self, ground, &event),
            Event::StatusRound => cluster::status_round(self, ground),
            Event::HaRound => ha::round(self, ground),
        }
    }

    /// Takes a message from another part.
    pub fn hear(&mut self, ground: &mut Ground, signal: &Signal) {
        qemu::hear(self, ground, signal);
    }
}
