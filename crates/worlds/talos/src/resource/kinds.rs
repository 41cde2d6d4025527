//! The kinds of resources that ichor reads.

use std::{fmt, net::IpAddr};

use ipnet::IpNet;
use serde::{Deserialize, Deserializer, de::Error as _};

use super::{Kind, Meta, Resource, Single, from_yaml};

/// Says where kinds are, and that they are read as they stand.
macro_rules! kinds {
    ($($kind:ident in $namespace:literal is $type:literal $(id $id:literal)?;)*) => {
        $(impl Kind for $kind {
            const NAMESPACE: &'static str = $namespace;
            const TYPE: &'static str = $type;

            fn read(_meta: &Meta, yaml: &str) -> Result<Self, String> {
                from_yaml(yaml)
            }
        }
        $(impl Single for $kind {
            const ID: &'static str = $id;
        })?)*
    };
}

kinds! {
    MachineStatus in "runtime" is "MachineStatuses.runtime.talos.dev" id "machine";
    MachineType in "config" is "MachineTypes.config.talos.dev" id "machine-type";
    HostnameStatus in "network" is "HostnameStatuses.net.talos.dev" id "hostname";
    NodeAddress in "network" is "NodeAddresses.net.talos.dev" id "default";
    AddressStatus in "network" is "AddressStatuses.net.talos.dev";
    LinkStatus in "network" is "LinkStatuses.net.talos.dev";
    TimeStatus in "runtime" is "TimeStatuses.v1alpha1.talos.dev" id "node";
    ServiceStatus in "runtime" is "Services.v1alpha1.talos.dev";
    Disk in "runtime" is "Disks.block.talos.dev";
    ExtensionStatus in "runtime" is "ExtensionStatuses.runtime.talos.dev";
    SecurityState in "runtime" is "SecurityStates.talos.dev" id "securitystate";
    PlatformMetadata in "runtime" is "PlatformMetadatas.talos.dev" id "platformmetadata";
    Diagnostic in "runtime" is "Diagnostics.runtime.talos.dev";
    SystemInformation in "hardware" is "SystemInformations.hardware.talos.dev" id "systeminformation";
    EtcdMember in "etcd" is "EtcdMembers.etcd.talos.dev" id "local";
    Member in "cluster" is "Members.cluster.talos.dev";
    Nodename in "k8s" is "Nodenames.kubernetes.talos.dev" id "nodename";
    NodeStatus in "k8s" is "NodeStatuses.kubernetes.talos.dev";
    KubeletSpec in "k8s" is "KubeletSpecs.kubernetes.talos.dev" id "kubelet";
}

/// Reads nothing as an empty value.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// How far a machine is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Stage {
    /// Nobody knows.
    #[default]
    Unknown,
    /// It boots. Control planes stay here until etcd runs.
    Booting,
    /// It installs Talos on its disk.
    Installing,
    /// It waits for a config.
    Maintenance,
    /// It has booted.
    Running,
    /// It reboots.
    Rebooting,
    /// It shuts down.
    ShuttingDown,
    /// It resets.
    Resetting,
    /// It upgrades.
    Upgrading,
}

impl Stage {
    const ALL: [(Self, &'static str); 9] = [
        (Self::Unknown, "unknown"),
        (Self::Booting, "booting"),
        (Self::Installing, "installing"),
        (Self::Maintenance, "maintenance"),
        (Self::Running, "running"),
        (Self::Rebooting, "rebooting"),
        (Self::ShuttingDown, "shutting down"),
        (Self::Resetting, "resetting"),
        (Self::Upgrading, "upgrading"),
    ];

    /// Returns Talos' word for it.
    pub fn word(self) -> &'static str {
        Self::ALL.into_iter().find(|(stage, _)| *stage == self).map_or("unknown", |(_, word)| word)
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl<'de> Deserialize<'de> for Stage {
    /// A stage that a later Talos has is an unknown one.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let word = String::deserialize(from)?;
        Ok(Self::ALL.into_iter().find(|(_, known)| *known == word).map_or(Self::Unknown, |(stage, _)| stage))
    }
}

/// What a machine still waits for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct UnmetCondition {
    /// Its name, as `services`.
    pub name: String,
    /// What is missing, as `etcd not running`.
    pub reason: String,
}

/// How a machine is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "WrittenStatus")]
pub struct MachineStatus {
    /// How far it is.
    pub stage: Stage,
    /// Whether it has all that it waits for.
    pub ready: bool,
    /// What it waits for.
    pub unmet: Vec<UnmetCondition>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WrittenStatus {
    stage: Stage,
    #[serde(deserialize_with = "or_default")]
    status: WrittenReadiness,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WrittenReadiness {
    ready: bool,
    #[serde(deserialize_with = "or_default")]
    unmet_conditions: Vec<UnmetCondition>,
}

impl From<WrittenStatus> for MachineStatus {
    fn from(written: WrittenStatus) -> Self {
        let WrittenReadiness { ready, unmet_conditions } = written.status;
        Self { stage: written.stage, ready, unmet: unmet_conditions }
    }
}

impl MachineStatus {
    /// Whether the machine has booted and has all that it waits for.
    pub fn is_up(&self) -> bool {
        self.stage == Stage::Running && self.ready
    }
}

/// What a machine is in its cluster.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MachineType {
    /// A control plane.
    ControlPlane,
    /// A control plane of old, that bootstraps by itself.
    Init,
    /// A worker.
    Worker,
    /// Something else, or not known yet.
    #[default]
    #[serde(other)]
    Unknown,
}

/// A machine's name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct HostnameStatus {
    /// Its name.
    pub hostname: String,
    /// The domain, if it has one.
    pub domainname: String,
}

/// A machine's addresses: `default` has the first, `current` all, `routed` those without the local ones.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeAddress {
    /// The addresses.
    #[serde(deserialize_with = "or_default")]
    pub addresses: Vec<IpNet>,
}

/// An address of a link.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AddressStatus {
    /// The address.
    pub address: IpNet,
    /// The link.
    #[serde(default)]
    pub link_name: String,
    /// How far it is known, as `global`.
    #[serde(default)]
    pub scope: String,
}

/// A link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LinkStatus {
    /// Its MAC address.
    pub hardware_addr: String,
    /// The MAC address that its card was made with.
    pub permanent_addr: String,
    /// Whether it is `up`.
    pub operational_state: String,
    /// Whether a cable is in it.
    pub link_state: bool,
    /// What it is; empty for cards.
    pub kind: String,
}

/// A machine's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TimeStatus {
    /// Whether it was set by a time server.
    pub synced: bool,
    /// Whether it never will be.
    pub sync_disabled: bool,
}

impl TimeStatus {
    /// Whether nothing waits for the clock.
    pub const fn is_settled(self) -> bool {
        self.synced || self.sync_disabled
    }
}

/// A service that runs. One that does not has no resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ServiceStatus {
    /// Whether it runs.
    pub running: bool,
    /// Whether it is well.
    pub healthy: bool,
    /// Whether nobody knows if it is.
    pub unknown: bool,
}

/// A disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Disk {
    /// Its device, as `/dev/sda`.
    pub dev_path: String,
    /// Its size in bytes.
    pub size: u64,
    /// Whether nothing can be written to it.
    pub readonly: bool,
    /// Whether it is an optical drive.
    pub cdrom: bool,
    /// Its model.
    pub model: String,
    /// Its serial number.
    pub serial: String,
    /// Its world-wide name.
    pub wwid: String,
    /// Where it is attached.
    pub bus_path: String,
    /// How it is attached.
    pub transport: String,
    /// Whether it rotates.
    pub rotational: bool,
    /// Further names of its device.
    #[serde(deserialize_with = "or_default")]
    pub symlinks: Vec<String>,
}

/// What an extension is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ExtensionMetadata {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// An extension in the image that a machine runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ExtensionStatus {
    /// Its layer.
    pub image: String,
    /// What it is.
    #[serde(deserialize_with = "or_default")]
    pub metadata: ExtensionMetadata,
}

/// Returns the schematic that an image was made of: the Image Factory adds an extension that only tells it.
pub fn schematic(extensions: &[Resource<ExtensionStatus>]) -> Option<&str> {
    let mut all = extensions.iter().map(|extension| &extension.spec.metadata);
    all.find(|metadata| metadata.name == "schematic").map(|metadata| metadata.version.as_str())
}

/// How a machine was booted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SecurityState {
    /// Whether the firmware checked what it booted.
    #[serde(rename = "secureBoot")]
    pub secure_boot: bool,
    /// Whether it booted a unified kernel image, which carries its own kernel command line.
    #[serde(rename = "bootedWithUKI")]
    pub booted_with_uki: bool,
}

/// What the platform told a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PlatformMetadata {
    /// The platform, as `nocloud`.
    pub platform: String,
    /// The name that it gave.
    pub hostname: String,
    /// Which instance it says that this is.
    pub instance_id: String,
}

/// What a machine found wrong with itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Diagnostic {
    /// What.
    pub message: String,
    /// More about it.
    #[serde(deserialize_with = "or_default")]
    pub details: Vec<String>,
}

/// What the firmware says of a machine. The uuid is the one of the VM.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SystemInformation {
    /// Who made it.
    pub manufacturer: String,
    /// Its uuid.
    pub uuid: String,
    /// Its serial number.
    #[serde(rename = "serialnumber")]
    pub serial: String,
}

/// The member of etcd on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct EtcdMember {
    /// Its number.
    #[serde(rename = "memberID", deserialize_with = "hexadecimal")]
    pub id: u64,
}

fn hexadecimal<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    u64::from_str_radix(&String::deserialize(from)?, 16).map_err(D::Error::custom)
}

/// A machine of the cluster, as discovery tells.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Member {
    /// Its identity in discovery.
    pub node_id: String,
    /// Its addresses.
    #[serde(deserialize_with = "or_default")]
    pub addresses: Vec<IpAddr>,
    /// Its name.
    pub hostname: String,
    /// What it is.
    pub machine_type: MachineType,
    /// What it runs, as `Talos (v1.13.9)`.
    pub operating_system: String,
}

/// The name of a machine's node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Nodename {
    /// The name.
    pub nodename: String,
}

/// A node, as its own machine sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeStatus {
    /// Its name.
    pub nodename: String,
    /// Whether it is ready.
    pub node_ready: bool,
    /// Whether nothing new is scheduled on it.
    pub unschedulable: bool,
}

/// What a machine's kubelet is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct KubeletSpec {
    /// Its image.
    pub image: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<K: Kind>(yaml: &str) -> Result<K, String> {
        K::read(&Meta::default(), yaml)
    }

    #[test]
    fn statuses_say_what_is_missing() {
        let yaml = "stage: booting\nstatus:\n    ready: false\n    unmetConditions:\n        - name: services\n          \
                    reason: etcd not running\n";
        let status: MachineStatus = read(yaml).expect("readable");
        assert_eq!((status.stage, status.ready), (Stage::Booting, false));
        assert_eq!(status.unmet[0].reason, "etcd not running");
        let running: MachineStatus =
            read("stage: running\nstatus:\n  ready: true\n  unmetConditions: null\n").expect("readable");
        assert!(running.is_up());
        let later: MachineStatus = read("stage: dreaming\n").expect("readable");
        assert_eq!(later, MachineStatus::default());
        assert_eq!(
            read::<MachineStatus>("stage: shutting down\n").expect("readable").stage,
            Stage::ShuttingDown
        );
    }

    #[test]
    fn addresses_have_a_prefix_or_none() {
        let node: NodeAddress =
            read("addresses:\n    - 10.0.0.11/24\n    - fd00::11/64\n").expect("readable");
        assert_eq!(node.addresses.len(), 2);
        let member: Member = read(
            "nodeId: abc\naddresses:\n    - 10.0.0.11\nhostname: cp-1\nmachineType: controlplane\noperatingSystem: Talos \
             (v1.13.9)\ncontrolPlane:\n    port: 6443\n",
        )
        .expect("readable");
        assert_eq!(member.machine_type, MachineType::ControlPlane);
        assert!(read::<NodeAddress>("addresses: [nowhere]\n").is_err());
    }

    #[test]
    fn single_words_are_read() {
        assert_eq!(read("controlplane\n"), Ok(MachineType::ControlPlane));
        assert_eq!(read("worker\n"), Ok(MachineType::Worker));
        assert_eq!(read("poet\n"), Ok(MachineType::Unknown));
        assert_eq!(read::<EtcdMember>("memberID: \"00000000000000ff\"\n").map(|member| member.id), Ok(255));
        assert!(read::<EtcdMember>("memberID: many\n").is_err());
        assert!(read::<EtcdMember>("{}\n").is_err());
    }

    #[test]
    fn the_schematic_is_an_extension() {
        let extension = |name: &str, version: &str| Resource {
            meta: Meta::default(),
            spec: read::<ExtensionStatus>(&format!(
                "image: 0.sqsh\nmetadata:\n  name: {name}\n  version: \"{version}\"\n"
            ))
            .expect("readable"),
        };
        let all = [extension("qemu-guest-agent", "10.0.0"), extension("schematic", "376567")];
        assert_eq!(schematic(&all), Some("376567"));
        assert_eq!(schematic(&all[..1]), None);
    }

    #[test]
    fn bombs_are_not_unpacked() {
        let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for (outer, inner) in
            ["b", "c", "d", "e", "f", "g", "h", "i"].iter().zip(["a", "b", "c", "d", "e", "f", "g", "h"])
        {
            bomb.push_str(&format!(
                "{outer}: &{outer} [*{inner}, *{inner}, *{inner}, *{inner}, *{inner}, *{inner}]\n"
            ));
        }
        assert!(read::<Disk>(&format!("{bomb}symlinks: *i\n")).is_err());
    }
}
