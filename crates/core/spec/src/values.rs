//! Single values: numbers in a range, addresses, ids, paths, references to secrets.

mod kubernetes;
mod loose;
mod network;
mod scalars;
mod secrets;

use std::str::FromStr;

use ichor_model::{
    ClusterName, Code, HostName, KubernetesVersion, MacAddress, MachineName, Minor, Problem, Size,
    TalosVersion, VmId,
    desired::{
        AddressDelivery, Arch, Bios, Board, CloneKind, ConfigDelivery, Hostnames, ImageSource, Role, Verify,
    },
    net::MacPrefix,
};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

pub(crate) use self::scalars::{clear_name, clear_text};
pub use self::{
    kubernetes::{LabelKey, LabelValue, Taint},
    loose::{Any, LooseText, Release},
    network::{Address, CertSan, Cidr, Domain, Ip, TimeServer, Url, is_dns_name},
    scalars::{Factor, Int},
    secrets::{Recipient, Secret, TextOrSecret},
};
use crate::{
    read::{Read, Reader, formed, keys, parsed, words},
    yaml::{Node, show},
};

parsed! {
    Size, BAD_SIZE, "a size with its unit, as in `8GiB`";
    TalosVersion, BAD_VERSION, "a release, as in `v1.13.9`";
    KubernetesVersion, BAD_VERSION, "a release, as in `v1.36.3`";
    Minor, BAD_VERSION, "a minor version, as in `v1.13`";
    VmId, BAD_VMID, "a VMID from 100 to 999999999";
    VmIds, BAD_VMID, "a VMID such as `2000`, or a range such as `2000-2999`";
    MacAddress, BAD_MAC, "a MAC address, as in `bc:24:11:2e:c8:00`";
    MacPrefix, BAD_MAC, "a MAC prefix, as in `BC:24:11`";
    NamePattern, NAME_PATTERN, "a name with `{n}` in it";
    Address, BAD_ADDRESS, "an address, an offset such as `+10`, or `dhcp`";
    LabelKey, BAD_LABEL, "a label key";
    Taint, BAD_LABEL, "a taint, `Effect` or `value:Effect`";
    Extension, EXTENSION, "the name of an extension, as in `siderolabs/qemu-guest-agent`";
    Fingerprint, BAD_FINGERPRINT, "a SHA-256 fingerprint: 32 pairs of hex digits with colons";
    SchematicId, SCHEMATIC, "a schematic id: 64 hex digits";
}

formed! {
    HostName, clear_name, BAD_NAME, "the name of a host";
    MachineName, clear_name, BAD_NAME, "a name";
    ClusterName, clear_name, BAD_NAME, "a name";
    Tag, clear_text, BAD_TAG, "a tag of letters and digits";
    LabelValue, clear_text, BAD_LABEL, "a label value";
    CpuType, clear_text, BAD_NAME, "a processor model, as in `x86-64-v2-AES`";
    CertSan, clear_text, BAD_NAME, "a DNS name or an address";
    TimeServer, clear_text, BAD_NAME, "a DNS name or an address";
    Domain, clear_text, BAD_NAME, "a DNS domain, as in `cluster.local`";
    Notes, clear_text, TOO_LONG, "text";
    PciSlot, clear_text, BAD_ADDRESS, "a PCI address, as in `0000:01:00.0`";
}

words! {
    Role { "control-plane" => ControlPlane, "worker" => Worker, }
    Arch { "amd64" => Amd64, "arm64" => Arm64, }
    Board { "q35" => Q35, "i440fx" => I440fx, "virt" => Virt, }
    Bios { "ovmf" => Ovmf, "seabios" => Seabios, }
    ImageSource { "disk" => Disk, "template" => Template, "iso" => Iso, }
    CloneKind { "full" => Full, "linked" => Linked, }
    AddressDelivery { "cloudinit" => Cloudinit, "cidata" => Cidata, "meta" => Meta, "dhcp" => Dhcp, }
    ConfigDelivery { "maintenance" => Maintenance, "cidata" => Cidata, }
    Verify { "console" => Console, "cidata" => Cidata, "network" => Network, }
    Hostnames { "inventory" => Inventory, "dhcp" => Dhcp, }
    Addressing { "static" => Static, "dhcp" => Dhcp, }
    Strategy { "spread" => Spread, "pin" => Pin, "pack" => Pack, }
    NicModel { "virtio" => Virtio, "e1000" => E1000, "e1000e" => E1000e, "vmxnet3" => Vmxnet3, "rtl8139" => Rtl8139, }
    ScsiController {
        "virtio-scsi-pci" => VirtioScsiPci, "virtio-scsi-single" => VirtioScsiSingle, "lsi" => Lsi, "lsi53c810" => Lsi53c810,
        "megasas" => Megasas, "pvscsi" => Pvscsi,
    }
    CacheMode {
        "none" => None, "writethrough" => Writethrough, "writeback" => Writeback, "unsafe" => Unsafe,
        "directsync" => Directsync,
    }
    Filesystem { "xfs" => Xfs, "ext4" => Ext4, }
}

keys!(String, HostName, MachineName, Role, LabelKey);

/// An enum whose words are its variants, for values that Proxmox takes as text.
macro_rules! word_enum {
    ($($(#[$meta:meta])* $name:ident { $($variant:ident = $word:literal,)* })*) => {
        $(
            $(#[$meta])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema)]
            pub enum $name {
                $(#[doc = concat!("`", $word, "`")] #[schemars(rename = $word)] $variant,)*
            }

            impl $name {
                /// Returns the word.
                pub const fn word(self) -> &'static str {
                    match self { $(Self::$variant => $word,)* }
                }
            }
        )*
    };
}

word_enum! {
    /// Who decides on addresses.
    Addressing { Static = "static", Dhcp = "dhcp", }
    /// How machines are spread over hosts.
    Strategy { Spread = "spread", Pin = "pin", Pack = "pack", }
    /// The emulated network card.
    NicModel { Virtio = "virtio", E1000 = "e1000", E1000e = "e1000e", Vmxnet3 = "vmxnet3", Rtl8139 = "rtl8139", }
    /// The emulated SCSI controller.
    ScsiController {
        VirtioScsiPci = "virtio-scsi-pci", VirtioScsiSingle = "virtio-scsi-single", Lsi = "lsi",
        Lsi53c810 = "lsi53c810", Megasas = "megasas", Pvscsi = "pvscsi",
    }
    /// A disk's cache mode.
    CacheMode {
        None = "none", Writethrough = "writethrough", Writeback = "writeback", Unsafe = "unsafe",
        Directsync = "directsync",
    }
    /// The filesystem of an extra disk.
    Filesystem { Xfs = "xfs", Ext4 = "ext4", }
}

/// The JSON schema of a text value: a description, a pattern and an example.
macro_rules! text_schema {
    ($($type:ident, $description:literal, $pattern:literal, $example:literal;)*) => {
        $(impl JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "description": $description, "type": "string", "pattern": $pattern, "examples": [$example],
                })
            }
        })*
    };
}

text_schema! {
    NamePattern, "A name with `{n}` for the number, or `{n:02}` for a padded one.", r"^[^{}]*\{n(:0[1-9])?\}[^{}]*$", "talos-cp-{n:02}";
    Url, "The address of a server, with its scheme.", "^[a-z][a-z0-9+.-]*://[^\\s]+$", "https://pve1.example:8006";
    FilePath, "A path relative to the file that names it.", "^[^/]", "patches/all.yaml";
    CpuType, "A processor model of QEMU, or `custom-NAME` of Proxmox.", "^[A-Za-z0-9][A-Za-z0-9_.+-]*$", "x86-64-v2-AES";
    CertSan, "A DNS name, which may begin with `*.`, or an address.", r"^(\*\.)?[A-Za-z0-9.:-]+$", "k8s.lab.example";
    TimeServer, "A DNS name, an address, or a clock device below `/dev/`.", "^(/dev/)?[A-Za-z0-9.:_-]+$", "pool.ntp.org";
    Domain, "A DNS domain.", "^[a-z0-9.-]+$", "cluster.local";
    PciSlot, "The address of a PCI device on its host; several with `;` between.", r"^[0-9a-fA-F:.;]+$", "0000:01:00.0";
    Recipient, "The public key of an age recipient, or an SSH public key.", "^(age1|ssh-ed25519 |ssh-rsa )", "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p";
    Tag, "A Proxmox tag.", "^[A-Za-z0-9_][A-Za-z0-9_+.-]*$", "kubernetes";
    LabelKey, "A Kubernetes label key.", "^.{1,317}$", "example.com/tier";
    Taint, "A taint: `Effect` or `value:Effect`.", "^([^:]*:)?(NoSchedule|PreferNoSchedule|NoExecute)$", "gpu:NoSchedule";
    Extension, "An official Talos extension.", "^(siderolabs/)?[a-z0-9][a-z0-9._-]*$", "siderolabs/qemu-guest-agent";
    Fingerprint, "The SHA-256 fingerprint of a certificate.", "^([0-9A-Fa-f]{2}:){31}[0-9A-Fa-f]{2}$", "AB:CD:EF:01:23:45:67:89:AB:CD:EF:01:23:45:67:89:AB:CD:EF:01:23:45:67:89:AB:CD:EF:01:23:45:67:89";
    SchematicId, "An Image Factory schematic id.", "^[0-9a-f]{64}$", "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba";
}

/// Where VMIDs are taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VmIds {
    /// Counting up from a number; for a single machine the number itself.
    From(VmId),
    /// The first free ones of a range, both ends included.
    Range(VmId, VmId),
}

impl FromStr for VmIds {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let Some((first, last)) = text.split_once('-') else {
            return text.parse().map(Self::From);
        };
        let (first, last) = (first.trim().parse()?, last.trim().parse()?);
        if first > last {
            return Err(Problem::new("ends before it begins", format!("write `{last}-{first}`")));
        }
        Ok(Self::Range(first, last))
    }
}

impl JsonSchema for VmIds {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "VmIds".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A first VMID, counted up for groups, or a range such as `2000-2999`.",
            "anyOf": [
                { "type": "integer", "minimum": VmId::MIN, "maximum": VmId::MAX },
                { "type": "string", "pattern": "^[1-9][0-9]{2,8} ?- ?[1-9][0-9]{2,8}$" },
            ],
        })
    }
}

/// A pattern that makes the names of a group's members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamePattern {
    before: String,
    width: usize,
    after: String,
}

impl NamePattern {
    /// Makes the pattern of a group that has none: its name, a dash and the number.
    pub fn of_group(group: &str) -> Self {
        Self { before: format!("{group}-"), width: 0, after: String::new() }
    }

    /// Returns the name of the member with a number.
    pub fn name(&self, number: u32) -> String {
        format!("{}{number:0width$}{}", self.before, self.after, width = self.width)
    }
}

impl FromStr for NamePattern {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let wrong =
            |message: &str| Problem::new(message, "write the number as `{n}` or, padded, `{n:02}`: `cp-{n}`");
        let (before, rest) = text.split_once('{').ok_or_else(|| {
            let remedy = format!(
                "write `{}-{{n}}` for a group; a single machine is called by its key, without `name`",
                show(text)
            );
            Problem::new("has no `{n}` for the number", remedy)
        })?;
        let (number, after) = rest.split_once('}').ok_or_else(|| wrong("has a `{` that is never closed"))?;
        if before.contains('}') || after.contains(['{', '}']) {
            return Err(wrong("has more than one number"));
        }
        let width = match number.strip_prefix('n') {
            Some("") => 0,
            Some(padding) => padding
                .strip_prefix(":0")
                .and_then(|digits| digits.parse().ok())
                .filter(|width| (1..=9).contains(width))
                .ok_or_else(|| wrong("has a padding that is not understood"))?,
            None => return Err(wrong("has a placeholder that is not `{n}`")),
        };
        Ok(Self { before: before.into(), width, after: after.into() })
    }
}

/// A path, relative to the directory of the inventory. It is written relative to the file that names
/// it, which may be shared defaults in a directory above.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePath(pub String);

impl Read for FilePath {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let Self(path) = reader.parse(node, Code::BAD_PATH, "a path relative to this file")?;
        Some(Self(reader.rebase(&path, node.span)))
    }
}

impl FromStr for FilePath {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if text.starts_with('/') {
            let remedy = "copy the file beside the inventory and write its path from there; `..` is allowed";
            return Err(Problem::new("is an absolute path", remedy));
        }
        if text.is_empty() || text.ends_with('/') || text.chars().any(char::is_control) {
            return Err(Problem::new(
                "is not the path of a file",
                "write the path of a file, relative to this one",
            ));
        }
        Ok(Self(text.into()))
    }
}

/// The processor model shown to a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuType(pub String);

impl FromStr for CpuType {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let first_ok = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if !first_ok || !text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.+-".contains(&b)) {
            let remedy = "write one that Proxmox lists, such as `x86-64-v2-AES` or `host`, or `custom-NAME`";
            return Err(Problem::new("is not a processor model", remedy));
        }
        Ok(Self(text.into()))
    }
}

/// Notes on a VM.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(transparent)]
pub struct Notes(#[schemars(length(max = 8192))] pub String);

impl Notes {
    /// Proxmox takes so many characters.
    const MOST: usize = 8192;
}

impl FromStr for Notes {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let count = text.chars().count();
        if count > Self::MOST {
            let message = format!("begins notes of {count} characters");
            return Err(Problem::new(message, format!("use at most {}", Self::MOST)));
        }
        Ok(Self(text.into()))
    }
}

/// The address of a PCI device on its host, or several of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PciSlot(pub String);

impl FromStr for PciSlot {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let hex = |part: &str, digits: std::ops::RangeInclusive<usize>| {
            digits.contains(&part.len()) && part.bytes().all(|b| b.is_ascii_hexdigit())
        };
        let is_slot = |slot: &str| {
            let (slot, function) = slot.split_once('.').map_or((slot, None), |(slot, f)| (slot, Some(f)));
            let parts: Vec<&str> = slot.split(':').collect();
            let slot_ok = match parts.as_slice() {
                [bus, device] => hex(bus, 2..=2) && hex(device, 2..=2),
                [domain, bus, device] => hex(domain, 4..=8) && hex(bus, 2..=2) && hex(device, 2..=2),
                _ => false,
            };
            slot_ok && function.is_none_or(|function| hex(function, 1..=1))
        };
        if text.split(';').all(is_slot) {
            return Ok(Self(text.into()));
        }
        Err(Problem::new("is not a PCI address", "write it as `lspci` does: `0000:01:00.0` or `01:00`"))
    }
}

/// A Proxmox tag; Proxmox keeps them in lower case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag(pub String);

impl FromStr for Tag {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let first_ok = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        if !first_ok || !text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-+.".contains(&b)) {
            return Err(Problem::new("is not a tag", "use letters, digits, `_`, `-`, `+` and `.`"));
        }
        if text.len() > 64 {
            return Err(Problem::new("is too long for a tag", "use at most 64 characters"));
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}

/// A Talos extension, with its publisher.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Extension(pub String);

impl FromStr for Extension {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let name = text.strip_prefix("siderolabs/").unwrap_or(text);
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
        if name.is_empty()
            || !name.bytes().all(plain)
            || !name.starts_with(|c: char| c.is_ascii_alphanumeric())
        {
            return Err(Problem::new(
                "is not the name of an official extension",
                "write it as in `siderolabs/qemu-guest-agent`, without a version",
            ));
        }
        Ok(Self(format!("siderolabs/{name}")))
    }
}

/// The SHA-256 fingerprint of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint(pub String);

impl FromStr for Fingerprint {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let pairs: Vec<&str> = text.split(':').collect();
        let pair_ok = |pair: &&str| pair.len() == 2 && pair.bytes().all(|b| b.is_ascii_hexdigit());
        if pairs.len() == 32 && pairs.iter().all(pair_ok) {
            return Ok(Self(text.to_ascii_uppercase()));
        }
        Err(Problem::new(
            "is not a SHA-256 fingerprint",
            "copy it from the Proxmox UI (Node, Certificates): 32 pairs of hex digits with colons",
        ))
    }
}

/// The id of an Image Factory schematic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchematicId(pub String);

impl FromStr for SchematicId {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
            return Ok(Self(text.into()));
        }
        Err(Problem::new(
            "is not a schematic id",
            "write the 64 hex digits that the Image Factory gave, in lower case",
        ))
    }
}

/// The JSON schema of text that other YAML readers may take for something else.
macro_rules! loose_text_schema {
    ($($type:ident, $kinds:tt, $description:literal, $example:literal;)*) => {
        $(impl JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "description": $description, "type": $kinds, "examples": [$example],
                })
            }
        })*
    };
}

loose_text_schema! {
    LooseText, ["string", "number", "boolean"], "Text, which may look like a number or a switch.", "1024";
    Release, ["string", "number"], "A release, such as `v1.18.2`.", "v1.18.2";
    LabelValue, ["string", "number"], "A Kubernetes label value, at most 63 characters.", "apps";
}
