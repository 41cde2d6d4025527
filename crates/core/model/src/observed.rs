//! What was seen of a cluster at one moment: its VMs and images on Proxmox, its machines, its nodes.
//!
//! What could not be seen is a value of its own, with a reason: it never counts as present or as absent.

use std::{collections::BTreeMap, net::IpAddr};

use serde::{Deserialize, Serialize};

use crate::{HostName, MachineName, VmId};

/// Something that was looked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sight<T> {
    /// It was seen.
    Seen(T),
    /// It could not be seen, and why.
    Unseen(String),
}

impl<T> Sight<T> {
    /// Returns what was seen.
    pub const fn seen(&self) -> Option<&T> {
        match self {
            Self::Seen(value) => Some(value),
            Self::Unseen(_) => None,
        }
    }
}

impl<T> Default for Sight<T> {
    fn default() -> Self {
        Self::Unseen("nobody looked".into())
    }
}

/// What was seen of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Observed {
    /// The release of Proxmox, such as `9.2`.
    pub release: Sight<Release>,
    /// Hosts, and whether they answer.
    pub hosts: BTreeMap<HostName, bool>,
    /// What the token may do, when something is to be done.
    pub rights: Sight<Rights>,
    /// Who has the VIP of a cluster that nobody can have brought up yet, when that was looked for.
    pub vip: Sight<Option<String>>,
    /// Storages as each host sees them, by host and name.
    #[serde(with = "pairs")]
    pub storages: BTreeMap<(HostName, String), StorageSeen>,
    /// Whether the pool of the cluster is there.
    pub pool: Sight<bool>,
    /// Files on storages, by host and volume; nothing: it is not there.
    #[serde(with = "pairs")]
    pub volumes: BTreeMap<(HostName, String), Sight<Option<VolumeSeen>>>,
    /// VMs by number; nothing: the number is free.
    pub vms: BTreeMap<VmId, Sight<Option<VmSeen>>>,
    /// Machines by name.
    pub machines: BTreeMap<MachineName, Sight<MachineSeen>>,
    /// Members of etcd by machine.
    pub etcd: Sight<BTreeMap<String, MemberSeen>>,
    /// Kubernetes nodes by name.
    pub nodes: Sight<BTreeMap<String, NodeSeen>>,
}

/// A release of Proxmox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Release {
    /// The major number.
    pub major: u32,
    /// The minor number.
    pub minor: u32,
}

/// What somebody may do on Proxmox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    /// Who: the name of a token.
    pub who: String,
    /// Privileges by path, and whether paths below have them too.
    pub paths: BTreeMap<String, BTreeMap<String, bool>>,
}

/// A storage as a host sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageSeen {
    /// What it may hold.
    pub content: Vec<String>,
    /// Whether all hosts see the same.
    pub shared: bool,
    /// Whether it works at the moment.
    pub active: bool,
    /// Free bytes, if that is known.
    pub free: Option<u64>,
}

/// A file on a storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeSeen {
    /// Its size in bytes.
    pub bytes: u64,
    /// How many bytes it should have, if somebody knows.
    pub wanted: Option<u64>,
}

/// A VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmSeen {
    /// Where it is.
    pub host: HostName,
    /// Whose it is.
    pub owner: Owner,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// Whether it runs.
    pub running: bool,
    /// Whether it is a template.
    #[serde(default)]
    pub template: bool,
    /// Why Proxmox keeps it locked.
    #[serde(default)]
    pub lock: Option<String>,
    /// Options that are not as they should be, in words, while it is off. Changing a VM that runs is not a part
    /// of making it.
    #[serde(default)]
    pub differences: Vec<String>,
    /// Options that are not as they should be, in words, while it runs. They are told, and left as they are.
    #[serde(default)]
    pub drift: Vec<String>,
    /// Whether something is in its drives that was for the first boot alone: an installer, or a cidata volume that
    /// holds the machine config.
    #[serde(default)]
    pub medium: bool,
    /// Whether Proxmox refuses to delete it.
    #[serde(default)]
    pub protected: bool,
    /// The addresses that its cloud-init gives it, or that its guest agent tells where that was asked.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
}

/// Whose a VM is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// The machine of this cluster that should have its number; number, uuid and stamp agree.
    Ours,
    /// Another machine, or another generation of it, of this cluster.
    OtherMachine(String),
    /// Another cluster that ichor made.
    OtherCluster(String),
    /// Another cluster of the same name that ichor made, with other secrets.
    Namesake,
    /// Somebody else, and how that shows.
    Foreign(String),
}

impl Owner {
    /// How it shows that a VM is that of another cluster of the same name.
    pub const NAMESAKE: &'static str = "another cluster of this name made it, with other secrets";

    /// Whether the VM belongs to this cluster, as the machine that should have its number or as another one.
    pub const fn is_cluster(&self) -> bool {
        matches!(self, Self::Ours | Self::OtherMachine(_))
    }
}

/// What answers at a machine's address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MachineSeen {
    /// Nobody, and how that shows.
    Silent(String),
    /// Talos, waiting for a machine config.
    Maintenance,
    /// Talos of this cluster.
    Ours(TalosSeen),
    /// Somebody else, and how that shows.
    Stranger(String),
}

/// Talos on a machine of this cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TalosSeen {
    /// Its address.
    pub address: Option<IpAddr>,
    /// Its release, such as `v1.13.9`.
    pub version: String,
    /// Its stage, such as `running`.
    pub stage: String,
    /// Whether it says that it is ready.
    pub ready: bool,
    /// What it waits for.
    pub unmet: Vec<String>,
    /// How etcd is on it, in Talos' word; nothing where there is none.
    pub etcd: Option<String>,
    /// What names this boot of it, if it says so.
    #[serde(default)]
    pub boot: Option<String>,
    /// Where its machine config is not the one that the inventory stands for: paths, never values.
    #[serde(default)]
    pub config_drift: Vec<String>,
    /// The schematic of the image that it runs, if the inventory stands for another.
    #[serde(default)]
    pub other_schematic: Option<String>,
}

/// A member of etcd.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberSeen {
    /// Its number.
    pub id: u64,
    /// Whether it does not vote yet.
    pub learner: bool,
}

/// A Kubernetes node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSeen {
    /// Whether it is ready.
    pub ready: bool,
    /// What it says about that.
    pub says: String,
    /// The release of its kubelet.
    pub version: String,
    /// Whether nothing is scheduled on it.
    pub unschedulable: bool,
    /// Its addresses in the cluster's network.
    #[serde(default)]
    pub addresses: Vec<IpAddr>,
    /// What names the boot that its kubelet last spoke of, if it did.
    #[serde(default)]
    pub boot: Option<String>,
}

/// Maps whose keys are pairs, as lists: JSON has texts for keys alone.
mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S, K, V>(map: &BTreeMap<K, V>, serializer: S) -> Result<S::Ok, S::Error>
    where
        S: Serializer,
        K: Serialize,
        V: Serialize,
    {
        serializer.collect_seq(map)
    }

    pub fn deserialize<'de, D, K, V>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        D: Deserializer<'de>,
        K: Deserialize<'de> + Ord,
        V: Deserialize<'de>,
    {
        Ok(Vec::<(K, V)>::deserialize(deserializer)?.into_iter().collect())
    }
}
