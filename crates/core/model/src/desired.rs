//! The inventory, resolved: what every machine, image and endpoint is to be, with no choice left.
//!
//! A value that nobody can know before the world is touched is a [`Late`] one, and says where it
//! will come from.

mod cluster;
mod extras;
mod hardware;
mod image;
mod machine;
mod os;
mod proxmox;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use self::{
    cluster::{Cluster, Endpoint, EndpointKind, KubeVip},
    extras::{Addon, Manifest, ManifestContent, Patch, PatchContent, PatchScope},
    hardware::{
        Bios, Board, Cpu, Disk, DiskOptions, Nic, PciAddress, PciDevice, Route, Startup, VmOptions, Written,
    },
    image::{CloneKind, Image, ImageSource, MetaNetwork, Platform, Template},
    machine::{AddressDelivery, Boot, ConfigDelivery, Machine, Verify},
    os::{ExtensionService, KernelModule, Mirror, Os, RegistryAuth, RegistryTls, Setting},
    proxmox::{Host, Hostnames, Network, Proxmox, Storage, Tls},
};
use crate::VmId;

/// Everything wanted of one cluster.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Desired {
    /// The cluster as a whole.
    pub cluster: Cluster,
    /// How Proxmox is reached.
    pub proxmox: Proxmox,
    /// The hosts machines may run on, with what they give; empty when only the live Proxmox knows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<Host>,
    /// Networks of the cluster.
    pub network: Network,
    /// Operating-system settings of every machine.
    pub os: Os,
    /// Boot images, each once; machines name theirs by [`Image::id`].
    pub images: Vec<Image>,
    /// Template VMs to clone from, when images come that way.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub templates: Vec<Template>,
    /// The machines: control planes first, then workers, each by name.
    pub machines: Vec<Machine>,
    /// Add-ons by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub addons: BTreeMap<String, Addon>,
    /// Where ichor keeps what cannot be asked back.
    pub store: String,
    /// Age recipients that secrets are encrypted to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recipients: Vec<String>,
    /// The file with the Talos secrets bundle, relative to the inventory; absent: the store has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets_file: Option<String>,
}

impl Desired {
    /// Returns the machines of one role.
    pub fn of_role(&self, role: Role) -> impl Iterator<Item = &Machine> {
        self.machines.iter().filter(move |machine| machine.role == role)
    }

    /// Returns the numbers of all VMs: machines and templates.
    pub fn vmids(&self) -> BTreeSet<VmId> {
        let machines = self.machines.iter().map(|machine| machine.vmid);
        machines.chain(self.templates.iter().map(|template| template.vmid)).collect()
    }

    /// Whether a machine has a name.
    pub fn has_machine(&self, name: &str) -> bool {
        self.machines.iter().any(|machine| machine.name.as_str() == name)
    }

    /// Returns how many control planes must agree: more than half of them.
    pub fn quorum(&self) -> usize {
        self.of_role(Role::ControlPlane).count() / 2 + 1
    }
}

/// A value that is known, or that the world will give.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Late<T> {
    /// Decided.
    Known(T),
    /// Not to be known yet.
    From(Source),
}

impl<T> Late<T> {
    /// Returns the value if it is known.
    pub const fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::From(_) => None,
        }
    }
}

/// Who gives a [`Late`] value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// A DHCP lease, read through the guest agent.
    Lease,
    /// The live Proxmox: the inventory names no hosts.
    LiveHosts,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Lease => "by DHCP lease",
            Self::LiveHosts => "chosen live",
        })
    }
}

/// What a machine does in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Runs etcd and the Kubernetes control plane.
    ControlPlane,
    /// Runs workloads.
    Worker,
}

impl Role {
    /// Both roles, control planes first.
    pub const ALL: [Self; 2] = [Self::ControlPlane, Self::Worker];

    /// Returns the word used in inventories.
    pub const fn word(self) -> &'static str {
        match self {
            Self::ControlPlane => "control-plane",
            Self::Worker => "worker",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A processor architecture.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Arch {
    /// x86-64.
    #[default]
    Amd64,
    /// 64-bit Arm.
    Arm64,
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        })
    }
}
