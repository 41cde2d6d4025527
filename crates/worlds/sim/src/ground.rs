//! What all parts of the lab stand on: time, randomness, disks, and what guests show of themselves.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::IpAddr,
    time::Duration,
};

use ichor_model::VmId;
use serde::{Deserialize, Serialize};

use crate::{
    agenda::{Agenda, Event},
    bound::Bound,
    clock::Time,
    faults::FaultPlan,
    profile::Profile,
    pve::storage::web::Web,
    random::Random,
    record::Record,
    signal::Signal,
};

/// The common ground.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ground {
    /// Now.
    pub now: Time,
    /// Randomness that is not secret.
    pub random: Random,
    /// How long things take.
    pub profile: Profile,
    /// What will happen by itself.
    pub agenda: Agenda,
    /// Messages between parts, not delivered yet.
    pub signals: VecDeque<Signal>,
    /// The contents of disks and files.
    pub media: Media,
    /// What running guests show of themselves.
    pub guests: BTreeMap<VmId, Guest>,
    /// What hosts can download.
    #[serde(default)]
    pub web: Web,
    /// What Kubernetes shows of its clusters to the machines that run them, by the id of their etcd data.
    #[serde(default)]
    pub kubernetes: BTreeMap<String, KubeView>,
    /// The system extensions of the schematics that the Image Factory knows.
    #[serde(default)]
    pub schematics: BTreeMap<String, Vec<String>>,
    /// Those of them whose kernel arguments have `net.ifnames=0`.
    #[serde(default)]
    pub plain_names: BTreeSet<String>,
    /// How many events happened so far.
    #[serde(default)]
    pub happened: u64,
    /// What will go wrong.
    #[serde(default)]
    pub faults: FaultPlan,
    /// What goes wrong in the call at hand, inside Proxmox.
    #[serde(skip)]
    pub mischief: Mischief,
    /// The calls so far.
    #[serde(default)]
    pub record: Record,
    /// How long what was called for has to take at least.
    #[serde(default)]
    pub bound: Bound,
}

/// What a Kubernetes cluster shows to the machines that run it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubeView {
    /// What a snapshot of etcd would hold, written out when one is asked for.
    pub state: Vec<u8>,
    /// Up to which change the nodes are shown.
    #[serde(default)]
    pub revision: u64,
    /// Its nodes by name.
    pub nodes: BTreeMap<String, NodeView>,
}

/// What a node shows to its machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// Whether it is ready.
    pub ready: bool,
    /// Whether nothing is scheduled on it.
    pub unschedulable: bool,
}

/// What goes wrong in a call, inside Proxmox. Whoever does it takes it away.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mischief {
    /// The next task fails with this text.
    pub task_fails: Option<String>,
    /// Somebody else holds every lock until then.
    pub locks_held_until: Option<Time>,
    /// The caller has no rights.
    pub no_rights: bool,
}

impl Mischief {
    /// Returns whether somebody else holds every lock that the call wants.
    pub fn holds_locks(&self, now: Time) -> bool {
        self.locks_held_until.is_some_and(|until| now < until)
    }
}

impl Ground {
    /// Prepares the ground.
    pub fn new(seed: u64, profile: Profile) -> Self {
        Self {
            now: Time::START,
            random: Random::new(seed),
            profile,
            agenda: Agenda::default(),
            signals: VecDeque::new(),
            media: Media::default(),
            guests: BTreeMap::new(),
            web: Web::default(),
            kubernetes: BTreeMap::new(),
            schematics: BTreeMap::new(),
            plain_names: BTreeSet::new(),
            happened: 0,
            faults: FaultPlan::default(),
            mischief: Mischief::default(),
            record: Record::default(),
            bound: Bound::default(),
        }
    }

    /// Writes down an event that follows after what takes this long on real hardware.
    pub fn after(&mut self, real: Duration, event: Event) {
        self.agenda.add(self.now + self.profile.takes(real), event);
    }

    /// Sends a message to another part.
    pub fn send(&mut self, signal: Signal) {
        self.signals.push_back(signal);
    }
}

/// The name of a content. A volume, and the disk that a guest sees, name the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ContentId(pub u64);

/// The contents of all disks and files.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Media {
    last: u64,
    contents: BTreeMap<ContentId, Content>,
}

impl Media {
    /// Adds a content.
    pub fn add(&mut self, content: Content) -> ContentId {
        self.last += 1;
        let id = ContentId(self.last);
        self.contents.insert(id, content);
        id
    }

    /// Makes a copy of a content, as a clone or an import does.
    pub fn copy(&mut self, id: ContentId) -> ContentId {
        let content = self.get(id).clone();
        self.add(content)
    }

    /// Returns a content; what was removed reads as blank.
    pub fn get(&self, id: ContentId) -> &Content {
        self.contents.get(&id).unwrap_or(&Content::Blank)
    }

    /// Changes a content.
    pub fn set(&mut self, id: ContentId, content: Content) {
        self.contents.insert(id, content);
    }

    /// Removes a content.
    pub fn remove(&mut self, id: ContentId) {
        self.contents.remove(&id);
    }
}

/// What is on a disk or in a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Nothing.
    Blank,
    /// Bytes that mean nothing to the lab, or a small file as it is (a cidata ISO that somebody uploaded).
    Bytes(#[serde(with = "as_base64")] Vec<u8>),
    /// A Talos boot image as the Image Factory makes it.
    Image(TalosImage),
    /// Talos, installed: what survives a reboot.
    Installed(Box<Installed>),
}

/// A Talos boot image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TalosImage {
    /// The release, such as `v1.13.9`.
    pub talos: String,
    /// The schematic it was made from.
    pub schematic: String,
    /// The platform: `nocloud` or `metal`.
    pub platform: String,
    /// The processor: `amd64` or `arm64`.
    pub arch: String,
    /// Whether it is signed for secure boot.
    pub secureboot: bool,
    /// Whether it is installation media and not a disk.
    pub iso: bool,
    /// System extensions of the schematic.
    pub extensions: Vec<String>,
    /// Whether it boots with `net.ifnames=0`: cards are `eth0` and on, whatever their slots.
    #[serde(default)]
    pub plain_names: bool,
    /// META values of the schematic, by key.
    pub meta: BTreeMap<u8, String>,
    /// How large the disk is when unpacked.
    pub virtual_size: u64,
}

/// Talos on a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installed {
    /// What boots.
    pub image: TalosImage,
    /// What booted before the last upgrade, for rollback.
    pub previous: Option<TalosImage>,
    /// The STATE partition: the machine config as it was submitted.
    pub config: Option<Vec<u8>>,
    /// META values written since.
    pub meta: BTreeMap<u8, String>,
    /// The EPHEMERAL partition: the machine's member of an etcd cluster, as JSON of the talos part.
    pub etcd: Option<serde_json::Value>,
    /// How often it was booted.
    pub boots: u32,
}

/// A VM's devices as its guest sees them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hardware {
    /// The VM.
    pub vmid: VmId,
    /// The Proxmox host that it runs on.
    pub host: String,
    /// Its SMBIOS uuid.
    pub uuid: String,
    /// Its SMBIOS serial.
    pub serial: String,
    /// Processors.
    pub cpus: u32,
    /// The processor model, such as `x86-64-v2-AES`.
    pub cpu_type: String,
    /// Memory.
    pub memory_mib: u64,
    /// Whether the firmware is UEFI.
    pub uefi: bool,
    /// Whether there is a TPM.
    pub tpm: bool,
    /// Whether the guest agent's port is there.
    pub agent: bool,
    /// Whether there is a serial console.
    pub serial_console: bool,
    /// Disks in boot order first, then the others by slot.
    pub disks: Vec<HardDisk>,
    /// Optical discs, likewise.
    pub discs: Vec<OpticalDisc>,
    /// Network cards by slot.
    pub cards: Vec<NetworkCard>,
    /// Devices in boot order by slot, disks, discs and cards.
    pub boot_order: Vec<String>,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HardDisk {
    /// Its slot, such as `scsi0`.
    pub slot: String,
    /// Its serial, where one was given.
    pub serial: Option<String>,
    /// Its size in bytes.
    pub size: u64,
    /// What is on it.
    pub content: ContentId,
}

/// An optical disc.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpticalDisc {
    /// Its slot, such as `ide2`.
    pub slot: String,
    /// What is on it.
    pub kind: DiscKind,
}

/// What an optical disc is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiscKind {
    /// Proxmox's cloud-init drive, labelled `cidata`.
    CloudInit {
        /// The file `user-data`.
        user_data: String,
        /// The file `meta-data`.
        meta_data: String,
        /// The file `network-config`.
        network_config: String,
    },
    /// A file from a storage.
    File(ContentId),
}

/// A network card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkCard {
    /// Its slot, such as `net0`.
    pub slot: String,
    /// Its MAC address in lower case.
    pub mac: String,
    /// The bridge.
    pub bridge: String,
    /// The VLAN.
    pub vlan: Option<u16>,
    /// Whether the cable is unplugged.
    pub link_down: bool,
}

/// What a running guest shows of itself to Proxmox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// What its agent says; absent while none answers.
    pub agent: Option<AgentView>,
    /// The end of what it printed to the serial console.
    pub console: String,
    /// How many bytes it printed in all.
    #[serde(default)]
    pub printed: u64,
}

/// So much of what a guest printed is kept.
const MOST_CONSOLE: usize = 64 * 1024;

impl Guest {
    /// Prints to the serial console.
    pub fn print(&mut self, text: &str) {
        self.console.push_str(text);
        self.printed += text.len() as u64;
        if self.console.len() > MOST_CONSOLE {
            let mut cut = self.console.len() - MOST_CONSOLE / 2;
            while !self.console.is_char_boundary(cut) {
                cut += 1;
            }
            self.console.drain(..cut);
        }
    }

    /// Returns what was printed after that many bytes, as far as it is kept.
    pub fn printed_since(&self, seen: u64) -> &str {
        let new = usize::try_from(self.printed.saturating_sub(seen)).unwrap_or(usize::MAX);
        let mut from = self.console.len().saturating_sub(new);
        while !self.console.is_char_boundary(from) {
            from += 1;
        }
        &self.console[from..]
    }
}

/// What a guest agent says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentView {
    /// The host name.
    pub hostname: String,
    /// The Talos release.
    pub version: String,
    /// The release of the kernel.
    #[serde(default)]
    pub kernel: String,
    /// Its interfaces.
    pub interfaces: Vec<AgentInterface>,
}

/// An interface as the guest agent shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentInterface {
    /// Its name, such as `eth0`.
    pub name: String,
    /// Its MAC address; absent for interfaces without one.
    pub mac: Option<String>,
    /// Its addresses with prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// Bytes as base64: a list of numbers would have four times their length.
pub(crate) mod as_base64 {
    use base64::{Engine, engine::general_purpose::STANDARD};
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        STANDARD.decode(String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}
