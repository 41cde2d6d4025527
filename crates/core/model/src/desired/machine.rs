//! A machine, and how it gets its config.

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Cpu, Disk, KernelModule, Late, Nic, Patch, Role, VmOptions};
use crate::{HostName, KubernetesVersion, MachineName, Size, SmbiosUuid, TalosVersion, VmId};

/// One machine, decided to the last detail.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machine {
    /// Its name: of the VM, the host and the Kubernetes node.
    pub name: MachineName,
    /// The entry of `machines:` it comes from.
    pub group: String,
    /// What it does.
    pub role: Role,
    /// 1 for the first VM of that name.
    pub generation: u32,
    /// The Proxmox host.
    pub host: Late<HostName>,
    /// Its VMID.
    pub vmid: VmId,
    /// Its SMBIOS uuid.
    pub uuid: SmbiosUuid,
    /// Its Talos release.
    pub talos: TalosVersion,
    /// Its Kubernetes release.
    pub kubernetes: KubernetesVersion,
    /// The image it boots, by [`Image::id`](super::Image::id).
    pub image: String,
    /// The template it is cloned from, when images come that way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<VmId>,
    /// How it gets its first address and its machine config.
    pub boot: Boot,
    /// Its processors.
    pub cpu: Cpu,
    /// Its memory.
    pub memory: Size,
    /// Its disks; the first is the system disk.
    pub disks: Vec<Disk>,
    /// Its network cards; the first carries the node address.
    pub nics: Vec<Nic>,
    /// Everything else about the VM.
    pub vm: VmOptions,
    /// Kernel parameters: the cluster's and its own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, String>,
    /// Kernel modules: the cluster's and its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernel_modules: Vec<KernelModule>,
    /// Kubernetes labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Kubernetes annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Kubernetes taints, `value:Effect` or `Effect` by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub taints: BTreeMap<String, String>,
    /// Machine-config patches, in the order in which they apply.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<Patch>,
}

impl Machine {
    /// Returns the network card that carries the node address.
    pub fn primary_nic(&self) -> &Nic {
        &self.nics[0]
    }

    /// Returns the system disk.
    pub fn system_disk(&self) -> &Disk {
        &self.disks[0]
    }
}

/// How a machine gets its first address and its machine config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Boot {
    /// What delivers the address.
    pub address: AddressDelivery,
    /// What delivers the machine config.
    pub config: ConfigDelivery,
    /// What vouches for the machine's key.
    pub verify: Verify,
}

/// What delivers a machine's first address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AddressDelivery {
    /// Proxmox's own cloud-init drive.
    Cloudinit,
    /// A cidata volume made by ichor.
    Cidata,
    /// META key 10, baked into an image per machine.
    Meta,
    /// A DHCP server.
    Dhcp,
}

impl fmt::Display for AddressDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cloudinit => "cloudinit",
            Self::Cidata => "cidata",
            Self::Meta => "meta",
            Self::Dhcp => "dhcp",
        })
    }
}

/// What delivers a machine config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ConfigDelivery {
    /// The maintenance API, once the machine's key is known.
    Maintenance,
    /// A cidata volume.
    Cidata,
}

/// What vouches for a machine's key before it is given secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    /// The serial console, read through Proxmox.
    Console,
    /// The config came on the machine's own drive.
    Cidata,
    /// Nobody: the network is trusted.
    Network,
}
