//! Images and templates that machines begin with.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Arch, Late};
use crate::{HostName, MachineName, TalosVersion, VmId};

/// How a boot image gets onto a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ImageSource {
    /// A disk image that Proxmox downloads and imports for each VM.
    Disk,
    /// A template VM that is cloned.
    Template,
    /// Installation media that is detached after the install.
    Iso,
}

impl fmt::Display for ImageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Disk => "disk",
            Self::Template => "template",
            Self::Iso => "iso",
        })
    }
}

/// The Talos platform, which decides what tells the machine its first address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    /// Reads Proxmox's cloud-init drive or a cidata volume.
    Nocloud,
    /// Reads META key 10, or takes DHCP.
    Metal,
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Nocloud => "nocloud",
            Self::Metal => "metal",
        })
    }
}

/// A boot image: one release, one recipe, one platform. Machines with the same needs share it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Image {
    /// Its short name in this plan, such as `v1.13.9-nocloud-amd64`.
    pub id: String,
    /// The Talos release.
    pub talos: TalosVersion,
    /// How it gets onto a machine.
    pub source: ImageSource,
    /// The platform it is built for.
    pub platform: Platform,
    /// The processor it is built for.
    pub arch: Arch,
    /// Whether it is signed for secure boot.
    pub secureboot: bool,
    /// System extensions, sorted.
    pub extensions: Vec<String>,
    /// Kernel arguments, in order.
    pub kernel_args: Vec<String>,
    /// A schematic id given by the user in place of extensions and arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schematic: Option<String>,
    /// A file that is already on a Proxmox storage, in place of a download.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The Image Factory.
    pub factory: String,
    /// What META key 10 tells the one machine that boots this image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<MetaNetwork>,
}

/// A machine's network as META key 10 carries it, read by the metal platform alone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct MetaNetwork {
    /// The link that all of it is for. Naming it turns DHCP off there.
    pub link: String,
    /// The machine's name; absent when it takes the name from DHCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<MachineName>,
    /// Its addresses.
    pub addresses: Vec<IpNet>,
    /// Default gateways.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<IpAddr>,
    /// Name servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dns: Vec<IpAddr>,
    /// The MTU of the link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
}

/// A template VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Template {
    /// Its VMID.
    pub vmid: VmId,
    /// Whom it serves: roles and groups by name, sorted.
    pub serves: Vec<String>,
    /// The host it lives on.
    pub host: Late<HostName>,
    /// Whether somebody else made it: it is cloned, and never built, changed or deleted.
    pub existing: bool,
    /// The image it holds.
    pub image: String,
    /// How machines are made from it.
    pub clone: CloneKind,
    /// The storage of its disk.
    pub storage: String,
}

/// How a VM is cloned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CloneKind {
    /// A copy of its own.
    Full,
    /// Shares its base with the template.
    Linked,
}
