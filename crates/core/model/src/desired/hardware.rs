//! The virtual hardware of a machine.

use std::net::IpAddr;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Late;
use crate::{MacAddress, Size, Span};

/// A machine's processors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cpu {
    /// Cores of each socket.
    pub cores: u32,
    /// Sockets.
    pub sockets: u32,
    /// The model shown to the guest.
    #[serde(rename = "type")]
    pub cpu_type: String,
    /// Whether NUMA is emulated.
    pub numa: bool,
}

impl Cpu {
    /// Returns how many virtual processors the guest sees.
    pub const fn total(&self) -> u32 {
        self.cores.saturating_mul(self.sockets)
    }
}

/// A disk of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Disk {
    /// Where it is attached, such as `scsi0`.
    pub slot: String,
    /// What it is for: `system`, or the name the inventory gives it.
    pub name: String,
    /// Its size.
    pub size: Size,
    /// The Proxmox storage it lives on.
    pub storage: String,
    /// Where Talos mounts it, for disks beside the system disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
    /// Its filesystem, when it is mounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filesystem: Option<String>,
    /// Its options.
    #[serde(flatten)]
    pub options: DiskOptions,
}

/// How Proxmox presents a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiskOptions {
    /// Shown to the guest as a solid-state disk.
    pub ssd: bool,
    /// Freed blocks are given back.
    pub discard: bool,
    /// Has a thread of its own.
    pub iothread: bool,
    /// Included in backups.
    pub backup: bool,
    /// Included in replication.
    pub replicate: bool,
    /// The cache mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<String>,
}

/// Where something is written in an inventory, if it is. It says nothing about what it is: all are equal.
#[derive(Debug, Clone, Copy, Default)]
pub struct Written(pub Option<Span>);

impl PartialEq for Written {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for Written {}

/// A network card of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Nic {
    /// Where it is attached, such as `net0`.
    pub slot: String,
    /// Its MAC address, by which Talos finds it.
    pub mac: MacAddress,
    /// The bridge it is plugged into.
    pub bridge: String,
    /// Its VLAN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Its MTU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// The emulated model.
    pub model: String,
    /// Whether the Proxmox firewall filters it.
    pub firewall: bool,
    /// Packet queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u16>,
    /// Its addresses.
    pub addresses: Vec<Late<IpNet>>,
    /// Where they are written.
    #[serde(skip)]
    pub written: Written,
    /// Default gateways.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<IpAddr>,
    /// Name servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dns: Vec<IpAddr>,
    /// Other routes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
}

/// A route besides the default one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Route {
    /// Where to.
    pub to: IpNet,
    /// Through whom.
    pub via: IpAddr,
    /// Its metric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
}

/// Everything else about a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VmOptions {
    /// The emulated board.
    pub machine: Board,
    /// The firmware.
    pub bios: Bios,
    /// The storage of the EFI disk, for `ovmf`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub efi_storage: Option<String>,
    /// Whether the VM has a TPM 2.0.
    pub tpm: bool,
    /// The SCSI controller.
    pub scsi_controller: String,
    /// Whether the guest agent is expected.
    pub agent: bool,
    /// Whether the VM starts with its host.
    pub on_boot: bool,
    /// Whether Proxmox refuses to delete it.
    pub protection: bool,
    /// Its place in the host's start order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup: Option<Startup>,
    /// Tags, sorted.
    pub tags: Vec<String>,
    /// Notes of the user, shown above ichor's own stamp.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// Devices passed through.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pci: Vec<PciDevice>,
    /// The storage of the cloud-init drive, when there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloudinit_storage: Option<String>,
}

/// The emulated board.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Board {
    /// The modern chipset, with PCI Express.
    Q35,
    /// The old chipset.
    I440fx,
    /// The board of 64-bit Arm guests.
    Virt,
}

/// The firmware.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Bios {
    /// UEFI.
    Ovmf,
    /// The classic BIOS.
    Seabios,
}

/// A VM's place in the host's start order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Startup {
    /// Lower starts earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<u32>,
    /// Seconds to wait after starting it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up: Option<u32>,
    /// Seconds to wait for it to stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down: Option<u32>,
}

/// A device passed through to the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PciDevice {
    /// The name of a Proxmox resource mapping, or a raw address.
    #[serde(flatten)]
    pub device: PciAddress,
    /// Presented as PCI Express.
    pub pcie: bool,
    /// The guest's first display.
    pub primary_gpu: bool,
}

/// Which device is passed through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PciAddress {
    /// A resource mapping, usable by API tokens.
    Mapping(String),
    /// A raw address, which only root's own login may set.
    Address(String),
}
