//! What parts of the lab tell each other.

use ichor_model::VmId;
use serde::{Deserialize, Serialize};

use crate::ground::Hardware;

/// A message from one part of the lab to another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// A VM was switched on (Proxmox to Talos).
    PowerOn(Box<Hardware>),
    /// The plug was pulled (Proxmox to Talos). The VM is off already.
    PowerCut(VmId),
    /// The power button was pressed, or the guest agent asked: the guest shuts down when it likes (Proxmox to
    /// Talos).
    PowerButton(VmId),
    /// The reset button was pressed (Proxmox to Talos).
    Reset(VmId),
    /// The guest switched its VM off (Talos to Proxmox).
    PoweredOff(VmId),
    /// The guest rebooted by itself: devices stay as they were plugged (Talos to Proxmox).
    Rebooted(VmId),
    /// A host wants a page of the Image Factory (Proxmox to the factory): the answer comes to lie in
    /// [`crate::pve::storage::web::Web::fetched`].
    Fetch(String),
    /// A machine's kubelet has begun to report its node (Talos to Kubernetes).
    NodeUp {
        /// Which cluster: the id of its etcd data.
        cluster: String,
        /// The node.
        node: Box<NodeFacts>,
    },
    /// A machine's kubelet reports no more (Talos to Kubernetes).
    NodeDown {
        /// Which cluster.
        cluster: String,
        /// The node's name.
        name: String,
    },
    /// A cluster was made by bootstrap, or again from a snapshot (Talos to Kubernetes).
    ClusterBorn {
        /// Which cluster.
        cluster: String,
        /// Its state, when it comes from a snapshot.
        snapshot: Option<Vec<u8>>,
        /// The certificate of the Kubernetes CA as PEM; clients with its certificates are let in.
        ca_pem: String,
    },
}

/// What a kubelet says about its node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// Whether it is a control plane.
    pub control_plane: bool,
    /// Labels from the machine config.
    pub labels: std::collections::BTreeMap<String, String>,
    /// Annotations from the machine config.
    pub annotations: std::collections::BTreeMap<String, String>,
    /// Taints from the machine config, `value:Effect` or `Effect` by key.
    pub taints: std::collections::BTreeMap<String, String>,
    /// The kubelet's version, such as `v1.36.3`.
    pub kubelet: String,
    /// The Talos version, such as `v1.13.9`.
    pub talos: String,
    /// Whether Talos itself installs a pod network.
    pub cni_included: bool,
    /// Whether the node waits for a cloud controller manager.
    pub external_cloud_provider: bool,
    /// Processors.
    pub cpus: u32,
    /// Memory.
    pub memory_mib: u64,
    /// The SMBIOS uuid of the machine.
    #[serde(default)]
    pub uuid: String,
    /// What names this boot of the machine.
    #[serde(default)]
    pub boot_id: String,
}
