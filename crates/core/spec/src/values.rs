//! Single values: numbers in a range, addresses, ids, paths, references to secrets.

use std::{net::IpAddr, str::FromStr};

use ichor_model::{
    ClusterName, Code, Finding, HostName, KubernetesVersion, MacAddress, MachineName, Minor, Problem,
    SecretRef, Size, Span, TalosVersion, VmId,
    desired::{
        AddressDelivery, Arch, Bios, Board, CloneKind, ConfigDelivery, Hostnames, ImageSource, Role, Verify,
    },
    net::MacPrefix,
};
use ipnet::IpNet;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::Value;

use crate::{
    read::{Read, Reader, formed, keys, parsed, words},
    yaml::{Key, Kind, Node, show},
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

/// Words that YAML readers disagree about.
const AMBIGUOUS: [&str; 8] = ["y", "n", "yes", "no", "on", "off", "true", "false"];

fn is_ambiguous(text: &str) -> bool {
    text.len() <= 5 && AMBIGUOUS.contains(&text.to_ascii_lowercase().as_str())
}

impl Read for String {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let text = clear_text(node, reader, "text")?;
        if text.is_empty() {
            reader.empty(node);
            return None;
        }
        Some(text.to_owned())
    }
}

/// Returns text, unless other YAML readers would take it for a switch.
pub(crate) fn clear_text<'n>(node: &'n Node, reader: &mut Reader, wanted: &str) -> Option<&'n str> {
    let (text, plain) = reader.scalar(node, wanted)?;
    if plain && is_ambiguous(text) {
        reader.findings.push(ambiguous(node, text, "is text here", "a switch"));
        return None;
    }
    Some(text)
}

/// Returns a name, unless other YAML readers would take it for a switch or a number.
pub(crate) fn clear_name<'n>(node: &'n Node, reader: &mut Reader, wanted: &str) -> Option<&'n str> {
    let text = clear_text(node, reader, wanted)?;
    let plain = matches!(node.kind, Kind::Scalar { plain: true, .. });
    if plain && is_number(text) {
        reader.findings.push(ambiguous(node, text, "is a name here", "a number"));
        return None;
    }
    Some(text)
}

/// Whether some YAML reader takes text that begins with a digit for a number: `12`, `1e3`, `0x1f`.
fn is_number(text: &str) -> bool {
    let based = ["0x", "0o", "0b"].iter().find_map(|prefix| text.strip_prefix(prefix));
    let based = based.is_some_and(|digits| u128::from_str_radix(digits, 16).is_ok());
    text.starts_with(|c: char| c.is_ascii_digit()) && (based || text.parse::<f64>().is_ok())
}

fn ambiguous(node: &Node, text: &str, wanted: &str, taken_for: &str) -> Finding {
    Finding::error(
        Code::AMBIGUOUS_TEXT,
        node.span,
        format!("`{text}` {wanted}, but {taken_for} to some YAML readers"),
    )
    .remedy(format!("write \"{text}\" with quotes"))
}

impl Read for bool {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let (text, plain) = reader.scalar(node, "`true` or `false`")?;
        match text {
            "true" if plain => return Some(true),
            "false" if plain => return Some(false),
            _ => {}
        }
        let quoted = !plain && matches!(text, "true" | "false");
        let remedy = match text.to_ascii_lowercase().as_str() {
            "true" | "false" if quoted => format!("write `{text}` without quotes"),
            "yes" | "y" | "on" | "1" | "true" => "write `true`".into(),
            "no" | "n" | "off" | "0" | "false" => "write `false`".into(),
            _ => "write `true` or `false`".into(),
        };
        let message = if quoted {
            format!("\"{text}\" in quotes is text, not a switch")
        } else {
            format!("`{}` is neither true nor false", show(text))
        };
        reader.findings.push(Finding::error(Code::BAD_BOOLEAN, node.span, message).remedy(remedy));
        None
    }
}

/// A whole number between two bounds, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Int<const LOW: u32, const HIGH: u32>(pub u32);

impl<const LOW: u32, const HIGH: u32> Read for Int<LOW, HIGH> {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let wanted = format!("a whole number from {LOW} to {HIGH}");
        let (text, _) = reader.scalar(node, &wanted)?;
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if digits && text.len() > 1 && text.starts_with('0') {
            let bare = text.trim_start_matches('0');
            let bare = if bare.is_empty() { "0" } else { bare };
            let message = "starts with a zero, which other YAML readers take for an octal number";
            reader.problem(
                Code::BAD_NUMBER,
                node.span,
                text,
                Problem::new(message, format!("write `{}`", show(bare))),
            );
            return None;
        }
        let number = digits.then(|| text.parse().ok()).flatten();
        if let Some(number) = number.filter(|number| (LOW..=HIGH).contains(number)) {
            return Some(Self(number));
        }
        let message =
            if digits { format!("is not from {LOW} to {HIGH}") } else { "is not a whole number".to_owned() };
        reader.problem(Code::BAD_NUMBER, node.span, text, Problem::new(message, format!("write {wanted}")));
        None
    }
}

impl<const LOW: u32, const HIGH: u32> JsonSchema for Int<LOW, HIGH> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("Int_{LOW}_{HIGH}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": LOW, "maximum": HIGH })
    }
}

/// How many times over a resource may be given out.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Factor(pub f64);

impl Read for Factor {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let (text, _) = reader.scalar(node, "a factor from 0.1 to 100, as in `2.0`")?;
        let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let factor = plain.then(|| text.parse::<f64>().ok()).flatten().filter(|f| (0.1..=100.0).contains(f));
        if factor.is_none() {
            let problem = Problem::new("is not a factor", "write a number from 0.1 to 100, as in `2.0`");
            reader.problem(Code::BAD_NUMBER, node.span, text, problem);
        }
        factor.map(Self)
    }
}

impl JsonSchema for Factor {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Factor".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "minimum": 0.1, "maximum": 100 })
    }
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

/// A machine's address, as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Address {
    /// So many addresses after the network's own.
    Offset(u32),
    /// This one.
    Ip(IpAddr),
    /// Whatever the DHCP server gives.
    Dhcp,
}

impl FromStr for Address {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if text == "dhcp" {
            return Ok(Self::Dhcp);
        }
        if let Some(offset) = text.strip_prefix('+') {
            let digits = !offset.is_empty() && offset.bytes().all(|b| b.is_ascii_digit());
            return digits.then(|| offset.parse().ok()).flatten().map(Self::Offset).ok_or_else(|| {
                Problem::new("is not an offset", "write `+` and a whole number, as in `+10`")
            });
        }
        parse_ip(text).map(Self::Ip)
    }
}

fn parse_ip(text: &str) -> Result<IpAddr, Problem> {
    let (address, prefix) =
        text.split_once('/').map_or((text, None), |(address, rest)| (address, Some(rest)));
    let parsed = address
        .parse()
        .map_err(|_| Problem::new("is not an address", "write it as in `10.0.0.11` or `fd00::11`"))?;
    match prefix {
        None => Ok(parsed),
        Some(_) => {
            Err(Problem::new("has a prefix length; that of the network is used", format!("write `{parsed}`")))
        }
    }
}

impl JsonSchema for Address {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Address".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "An address, an offset from the network's first address such as `+10`, or `dhcp`.",
            // To a YAML reader `+10` is a number.
            "anyOf": [
                { "type": "string", "pattern": r"^(\+[0-9]+|dhcp|[0-9a-fA-F:.]+)$" },
                { "type": "integer", "minimum": 0 },
            ],
            "examples": ["+10", "10.0.0.11", "dhcp"],
        })
    }
}

/// A single address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
#[schemars(transparent)]
pub struct Ip(pub IpAddr);

impl Read for Ip {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let (text, _) = reader.scalar(node, "an address, as in `10.0.0.1`")?;
        parse_ip(text)
            .map(Self)
            .map_err(|problem| reader.problem(Code::BAD_ADDRESS, node.span, text, problem))
            .ok()
    }
}

/// A network, named by its first address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr(pub IpNet);

impl Read for Cidr {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let (text, _) = reader.scalar(node, "a network, as in `10.0.0.0/24`")?;
        let Ok(net) = text.parse::<IpNet>() else {
            let problem =
                Problem::new("is not a network", "write it with its prefix length, as in `10.0.0.0/24`");
            reader.problem(Code::BAD_ADDRESS, node.span, text, problem);
            return None;
        };
        if net != net.trunc() {
            let problem = Problem::new("has host bits set", format!("write `{}`", net.trunc()));
            reader.problem(Code::HOST_BITS, node.span, text, problem);
            return None;
        }
        Some(Self(net))
    }
}

impl JsonSchema for Cidr {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Cidr".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A network, named by its first address.",
            "type": "string",
            "pattern": "^[0-9a-fA-F:.]+/[0-9]{1,3}$",
            "examples": ["10.0.0.0/24", "fd00:10::/64"],
        })
    }
}

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// What stands before `://`.
    pub scheme: String,
    /// Everything, without a slash at the end.
    pub text: String,
}

impl Read for Url {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let (text, _) = reader.scalar(node, "a URL, as in `https://pve1.example:8006`")?;
        match text.parse() {
            Ok(url) => Some(url),
            // What stands before an `@` may be a password: neither it nor its line is shown.
            Err(Problem { message, remedy }) if text.contains('@') => {
                let finding = Finding::error(Code::BAD_URL, node.span, format!("this URL {message}"));
                reader.findings.push(finding.remedy(remedy).private());
                None
            }
            Err(problem) => {
                reader.problem(Code::BAD_URL, node.span, text, problem);
                None
            }
        }
    }
}

impl FromStr for Url {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let wrong = |message: &str| Problem::new(message, "write it as in `https://pve1.example:8006`");
        if text.is_empty() || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(wrong("is not a URL"));
        }
        let (scheme, rest) = text.split_once("://").ok_or_else(|| no_scheme(text))?;
        if scheme.is_empty() || !scheme.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()) {
            return Err(wrong("is not a URL"));
        }
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains(',') {
            return Err(Problem::new(
                "names several servers",
                "write one URL for each, as a list where the key takes one",
            ));
        }
        let (user, place) =
            authority.rsplit_once('@').map_or((None, authority), |(user, place)| (Some(user), place));
        if user.is_some_and(|user| user.contains(':')) {
            return Err(Problem::new("has a password in it", "keep secrets out of the inventory: remove it"));
        }
        check_authority(place)?;
        Ok(Self { scheme: scheme.into(), text: text.trim_end_matches('/').into() })
    }
}

fn no_scheme(text: &str) -> Problem {
    if text.contains('@') {
        let remedy = "begin with the scheme, as in `ssh://git@git.example/fleet.git`";
        return Problem::new("has no scheme", remedy);
    }
    Problem::new("has no scheme", format!("write `https://{}`", show(text)))
}

fn check_authority(place: &str) -> Result<(), Problem> {
    let (host, port) = match place.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').unwrap_or(""))),
        None => place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return Err(Problem::new("names no server", "write it as in `https://pve1.example:8006`"));
    }
    if port.is_some_and(|port| port.contains(':')) {
        let remedy = "write the address in brackets, as in `https://[fd00::5]:8006`";
        return Err(Problem::new("has an IPv6 address without brackets, or two ports", remedy));
    }
    if port.is_some_and(|port| port.parse::<u16>().map_or(true, |number| number == 0)) {
        return Err(Problem::new(
            "has a port that is not a number from 1 to 65535",
            "write it as in `:8006`",
        ));
    }
    Ok(())
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

/// Whether text is a DNS name. One that ends in a number is a mistyped address.
pub fn is_dns_name(text: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = text.rsplit('.').next().unwrap_or_default();
    let numeric = last.bytes().all(|b| b.is_ascii_digit());
    text.len() <= 253 && !numeric && text.split('.').all(label)
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

/// A name or an address that a certificate carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertSan(pub String);

impl FromStr for CertSan {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if text.parse::<IpAddr>().is_ok() || is_dns_name(text.strip_prefix("*.").unwrap_or(text)) {
            return Ok(Self(text.into()));
        }
        Err(Problem::new(
            "is neither a DNS name nor an address",
            "write it without scheme and port: `k8s.lab.example`, `*.lab.example` or `10.0.0.5`",
        ))
    }
}

/// Where a machine gets the time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeServer(pub String);

impl FromStr for TimeServer {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        // Talos takes PTP clocks by their device.
        let device = text.strip_prefix("/dev/").is_some_and(|name| {
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        });
        if device || text.parse::<IpAddr>().is_ok() || is_dns_name(text) {
            return Ok(Self(text.into()));
        }
        Err(Problem::new(
            "is neither a DNS name nor an address",
            "write it without scheme and port, as in `pool.ntp.org` or `10.0.0.1`",
        ))
    }
}

/// A DNS domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain(pub String);

impl FromStr for Domain {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if is_dns_name(text) && !text.bytes().any(|b| b.is_ascii_uppercase()) {
            return Ok(Self(text.into()));
        }
        Err(Problem::new("is not a DNS domain", "use a to z, 0 to 9, `-` and `.`, as in `cluster.local`"))
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

/// Somebody who can decrypt the cluster's secrets: the public key of age, or of SSH.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipient(pub String);

impl Read for Recipient {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let (text, _) = reader.scalar(node, "a public key, as in `age1...`")?;
        if is_recipient(text) {
            return Some(Self(text.into()));
        }
        let remedy = "write the public key: `age1...`, `ssh-ed25519 ...` or `ssh-rsa ...`";
        reader.findings.push(bad_secret(node.span, "this is not the public key of a recipient", remedy));
        None
    }
}

/// Whether text is a public key, by its form.
fn is_recipient(text: &str) -> bool {
    let mut words = text.split(' ');
    match (words.next(), words.next()) {
        (Some(key), None) => key.strip_prefix("age1").is_some_and(|data| {
            data.len() >= 58
                && data.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        }),
        (Some("ssh-ed25519" | "ssh-rsa"), Some(key)) => {
            let base64 = |b: u8| b.is_ascii_alphanumeric() || b"+/=".contains(&b);
            key.starts_with("AAAA") && key.len() >= 68 && key.bytes().all(base64)
        }
        _ => false,
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

/// A key of a Kubernetes label, annotation or taint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelKey(pub String);

impl FromStr for LabelKey {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
        let prefix_ok = prefix.is_none_or(|prefix| {
            !prefix.is_empty()
                && prefix.len() <= 253
                && prefix.split('.').all(|label| label.parse::<MachineName>().is_ok())
        });
        if prefix_ok && !name.is_empty() && is_label_text(name) {
            return Ok(Self(text.into()));
        }
        Err(Problem::new(
            "is not a key for labels, annotations or taints",
            "write `name` or `example.com/name`, the name of at most 63 characters",
        ))
    }
}

fn is_label_text(text: &str) -> bool {
    let ends_ok = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        && ends_ok(text.chars().next())
        && ends_ok(text.chars().last())
}

/// A value of a Kubernetes label; it may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelValue(pub String);

impl FromStr for LabelValue {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if is_label_text(text) {
            return Ok(Self(text.into()));
        }
        Err(Problem::new("is not a label value", "use at most 63 letters, digits, `-`, `_` and `.`"))
    }
}

/// A taint without its key: `NoSchedule` or `value:NoSchedule`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint(pub String);

impl FromStr for Taint {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let (value, effect) = text.rsplit_once(':').unwrap_or(("", text));
        if is_label_text(value) && ["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
            return Ok(Self(text.into()));
        }
        Err(Problem::new(
            "is not a taint",
            "write `NoSchedule`, `PreferNoSchedule` or `NoExecute`, or `value:NoSchedule`",
        ))
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

/// A reference to a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret(pub SecretRef);

const SECRET_FORMS: &str = "write where it is: `{env: NAME}`, `{file: path}`, `{sops: path#key}`, `{vault: mount/path#field}` or `{command: [word, ...]}`";

impl Read for Secret {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        match &node.kind {
            Kind::Map(entries) if entries.len() == 1 => {
                let (key, value) = &entries[0];
                read_secret(key, value, reader).map(Self)
            }
            Kind::Map(_) => {
                reader.findings.push(bad_secret(node.span, "a reference has exactly one key", SECRET_FORMS));
                None
            }
            _ => {
                let message = "a secret must not stand in an inventory";
                reader.findings.push(bad_secret(node.span, message, SECRET_FORMS));
                None
            }
        }
    }
}

/// Whatever is written where a secret is wanted may be one: neither it nor its line is ever shown.
fn bad_secret(at: Span, message: &str, remedy: &str) -> Finding {
    Finding::error(Code::BAD_SECRET, at, message).remedy(remedy).private()
}

fn read_secret(key: &Key, value: &Node, reader: &mut Reader) -> Option<SecretRef> {
    let make: fn(String) -> SecretRef = match key.text.as_str() {
        "command" => return read_command(value, reader),
        "env" => SecretRef::Env,
        "file" => SecretRef::File,
        "sops" => SecretRef::Sops,
        "vault" => SecretRef::Vault,
        _ => {
            let message = "this is no place where secrets are found";
            reader.findings.push(bad_secret(key.span, message, SECRET_FORMS));
            return None;
        }
    };
    let Kind::Scalar { text, .. } = &value.kind else {
        reader.findings.push(bad_secret(value.span, "a place of secrets is one text", SECRET_FORMS));
        return None;
    };
    match place_problem(&key.text, text) {
        Some((message, remedy)) => {
            reader.findings.push(bad_secret(value.span, message, remedy));
            None
        }
        None if matches!(key.text.as_str(), "file" | "sops") => Some(make(reader.rebase(text, value.span))),
        None => Some(make(text.clone())),
    }
}

/// Says what is wrong with the place of a secret, and what to write instead.
fn place_problem(kind: &str, place: &str) -> Option<(&'static str, &'static str)> {
    const NO_KEY: &str = "this does not say which value is meant";
    let has_key = place.split_once('#').is_some_and(|(path, key)| !path.is_empty() && !key.is_empty());
    match kind {
        _ if place.is_empty() => Some(("the place of the secret is empty", SECRET_FORMS)),
        "env" if !place.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => Some((
            "this is not the name of an environment variable",
            "write its name alone, as in `{env: ICHOR_PVE_TOKEN}`",
        )),
        "sops" if !has_key => {
            Some((NO_KEY, "add `#` and its key, as in `{sops: secrets.sops.yaml#proxmox.token}`"))
        }
        "vault" if !has_key => Some((NO_KEY, "add `#` and its field, as in `{vault: secret/pve#token}`")),
        _ => None,
    }
}

fn read_command(value: &Node, reader: &mut Reader) -> Option<SecretRef> {
    let words: Option<Vec<String>> = match &value.kind {
        Kind::List(items) if !items.is_empty() => items.iter().map(command_word).collect(),
        _ => None,
    };
    if words.is_none() {
        let remedy = "write it as in `{command: [pass, show, pve]}`";
        reader.findings.push(bad_secret(value.span, "a command is a list of its words", remedy));
    }
    words.map(SecretRef::Command)
}

fn command_word(node: &Node) -> Option<String> {
    match &node.kind {
        Kind::Scalar { text, .. } if !text.is_empty() => Some(text.clone()),
        _ => None,
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let place = |description: &str| json_schema!({ "type": "string", "minLength": 1, "description": description });
        json_schema!({
            "description": "Where a secret is found. Secrets themselves never stand in an inventory.",
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": false,
            "properties": {
                "env": place("An environment variable."),
                "file": place("A file, relative to the one that names it."),
                "sops": place("A value in a SOPS file: `path#dotted.key`."),
                "vault": place("A field of a Vault or OpenBao KV v2 secret: `mount/path#field`."),
                "command": {
                    "type": "array", "items": { "type": "string" }, "minItems": 1,
                    "description": "A command whose output is the secret, as a list of its words.",
                },
            },
        })
    }
}

/// Plain text, or a reference to a secret.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(untagged)]
pub enum TextOrSecret {
    /// Plain text.
    Text(LooseText),
    /// A secret.
    Secret(Secret),
}

impl Read for TextOrSecret {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        match &node.kind {
            Kind::Map(_) => Secret::read(node, reader).map(Self::Secret),
            _ => LooseText::read(node, reader).map(Self::Text),
        }
    }
}

/// Text that may be anything, also empty or a word such as `true`: values of settings that the
/// program behind them reads as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LooseText(pub String);

impl Read for LooseText {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        reader.scalar(node, "text").map(|(text, _)| Self(text.to_owned()))
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

/// The release of an add-on, as its makers write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release(pub String);

impl Read for Release {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        String::read(node, reader).map(Self)
    }
}

/// Any YAML, handed on as it is to Talos, Kubernetes or Helm.
#[derive(Debug, Clone, PartialEq, JsonSchema)]
pub struct Any(pub Value);

impl Read for Any {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        any_value(node, reader).map(Self)
    }
}

fn any_value(node: &Node, reader: &mut Reader) -> Option<Value> {
    match &node.kind {
        Kind::Null => Some(Value::Null),
        Kind::Scalar { text, plain: false } => Some(Value::String(text.clone())),
        Kind::Scalar { text, plain: true } => plain_value(node, text, reader),
        Kind::List(items) => {
            let values: Vec<_> = items.iter().map(|item| any_value(item, reader)).collect();
            values.into_iter().collect::<Option<_>>().map(Value::Array)
        }
        Kind::Map(entries) => {
            let values: Vec<_> =
                entries.iter().map(|(key, value)| (key.text.clone(), any_value(value, reader))).collect();
            values
                .into_iter()
                .map(|(key, value)| value.map(|value| (key, value)))
                .collect::<Option<_>>()
                .map(Value::Object)
        }
    }
}

/// Gives unquoted text the meaning that both YAML 1.1 (Kubernetes, Talos) and 1.2 readers give it,
/// and refuses what they disagree about.
fn plain_value(node: &Node, text: &str, reader: &mut Reader) -> Option<Value> {
    match text {
        "true" => return Some(Value::Bool(true)),
        "false" => return Some(Value::Bool(false)),
        _ => {}
    }
    if is_ambiguous(text) {
        reader.findings.push(ambiguous(node, text, "is text to YAML 1.2", "a switch"));
        return None;
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit() || b == b'_')
    {
        let problem = Problem::new(
            "is a decimal number to some readers and an octal one to others",
            format!("quote it, \"{text}\", or drop the zeros"),
        );
        reader.problem(Code::BAD_NUMBER, node.span, text, problem);
        return None;
    }
    let numeric = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if numeric && !text.starts_with('+') {
        if let Ok(number) = text.parse::<i64>() {
            return Some(number.into());
        }
        let float = text.parse::<f64>().ok().filter(|_| digits.starts_with(|c: char| c.is_ascii_digit()));
        if let Some(number) = float.and_then(serde_json::Number::from_f64) {
            return Some(Value::Number(number));
        }
    }
    Some(Value::String(text.to_owned()))
}
