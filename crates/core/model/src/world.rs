//! What is known of the world when an inventory is resolved.
//!
//! Offline it is empty, or read from a file; later it is filled from the live Proxmox.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{HostName, MacAddress, MachineName, Minor, Size, VmId, desired::Arch};

/// Hosts, our machines and everybody else's VMs, as seen at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct World {
    /// The hosts that were seen; empty when nobody looked.
    pub hosts: Vec<SeenHost>,
    /// VMs that are ours by uuid and stamp.
    pub machines: Vec<SeenMachine>,
    /// VMs and containers that are not ours. They are counted, and never touched.
    pub foreign: Vec<ForeignVm>,
    /// The machine-config contract that was recorded when the cluster was made; absent before that.
    pub contract: Option<Minor>,
}

/// A Proxmox host and what it physically has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeenHost {
    /// Its name.
    pub name: HostName,
    /// Hardware threads; absent: not known, which is neither none nor plenty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Physical memory, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,
    /// Whether it answers.
    #[serde(default = "yes")]
    pub online: bool,
    /// Its processor architecture.
    #[serde(default)]
    pub arch: Arch,
}

/// One of our machines that already has a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeenMachine {
    /// Its name.
    pub name: MachineName,
    /// Where the VM runs now, whatever the inventory says.
    pub host: HostName,
    /// Its VMID.
    pub vmid: VmId,
    /// Its generation, read from its stamp.
    #[serde(default = "one")]
    pub generation: u32,
    /// The fixed addresses it was given, kept while the inventory leaves the choice.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// The `id` of its cluster; absent when only one cluster was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Its virtual processors, counted while the inventory does not speak of it.
    #[serde(default)]
    pub cpu: u32,
    /// Its memory, likewise.
    #[serde(default)]
    pub memory: Size,
}

/// A VM that is not ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForeignVm {
    /// Its VMID.
    pub vmid: VmId,
    /// Where it is.
    pub host: HostName,
    /// Its virtual processors.
    #[serde(default)]
    pub cpu: u32,
    /// Its memory.
    #[serde(default)]
    pub memory: Size,
    /// MAC addresses of its network cards.
    #[serde(default)]
    pub macs: Vec<MacAddress>,
}

const fn yes() -> bool {
    true
}

const fn one() -> u32 {
    1
}
