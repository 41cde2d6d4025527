//! Volumes that outlive pods.

use ichor_port::Method;
use serde::Deserialize;

use crate::{
    call::Call,
    object::{List, Metadata, ObjectName},
    read::{cleaned, cleaned_some, or_default},
    resource::VOLUMES,
};

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "Raw")]
pub struct PersistentVolume {
    /// Its name.
    pub name: String,
    /// How large it is, such as `10Gi`.
    pub capacity: String,
    /// Its storage class.
    pub storage_class: Option<String>,
    /// What becomes of it without its claim: `Delete` or `Retain`.
    pub reclaim: String,
    /// `Bound`, `Released`, `Available`, ...
    pub phase: String,
    /// The claim that has it.
    pub claim: Option<ObjectName>,
    /// The driver that made it, and what that calls it, such as a disk of Proxmox.
    pub csi: Option<CsiVolume>,
}

/// A volume as its driver knows it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CsiVolume {
    /// The driver.
    #[serde(default, deserialize_with = "cleaned")]
    pub driver: String,
    /// The volume.
    #[serde(default, rename = "volumeHandle", deserialize_with = "cleaned")]
    pub handle: String,
}

#[derive(Deserialize)]
struct Raw {
    #[serde(default, deserialize_with = "or_default")]
    metadata: Metadata,
    #[serde(default, deserialize_with = "or_default")]
    spec: Spec,
    #[serde(default, deserialize_with = "or_default")]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(deserialize_with = "or_default")]
    capacity: Capacity,
    #[serde(deserialize_with = "cleaned_some")]
    storage_class_name: Option<String>,
    #[serde(deserialize_with = "cleaned")]
    persistent_volume_reclaim_policy: String,
    claim_ref: Option<ObjectName>,
    csi: Option<CsiVolume>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Capacity {
    #[serde(deserialize_with = "cleaned")]
    storage: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    #[serde(deserialize_with = "cleaned")]
    phase: String,
}

impl From<Raw> for PersistentVolume {
    fn from(Raw { metadata, spec, status }: Raw) -> Self {
        Self {
            name: metadata.name,
            capacity: spec.capacity.storage,
            storage_class: spec.storage_class_name,
            reclaim: spec.persistent_volume_reclaim_policy,
            phase: status.phase,
            claim: spec.claim_ref,
            csi: spec.csi,
        }
    }
}

/// Lists the volumes.
pub fn volumes() -> Call<List<PersistentVolume>> {
    Call::about_all(Method::Get, &VOLUMES, None)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_volume_is_read() {
        let volume: PersistentVolume = serde_json::from_value(json!({
            "metadata": {"name": "pvc-1"},
            "spec": {"capacity": {"storage": "10Gi"}, "storageClassName": "proxmox",
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "db", "name": "data-0"},
                "csi": {"driver": "csi.proxmox.sinextra.dev", "volumeHandle": "lab/pve1/local-lvm/vm-9999-pvc-1"}},
            "status": {"phase": "Bound"}
        }))
        .expect("a volume");
        assert_eq!(volume.claim.expect("a claim").to_string(), "db/data-0");
        assert_eq!(volume.csi.expect("a driver").handle, "lab/pve1/local-lvm/vm-9999-pvc-1");
        assert_eq!((volume.capacity.as_str(), volume.reclaim.as_str()), ("10Gi", "Retain"));
    }
}
