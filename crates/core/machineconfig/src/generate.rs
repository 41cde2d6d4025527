//! Machine configs from a resolved cluster, one shape per contract.
//!
//! 1. [`Blueprint`]: what a machine's config must say, whatever the contract;
//! 2. `v1alpha1`: the first document, which shrank in 1.12, 1.13 and most of all in 1.14;
//! 3. `documents`: the documents that took over, in the order in which Talos writes them;
//! 4. `network`, `storage`, `system` and `manifests`: what ichor knows of a machine and its cluster, and
//!    `talosctl gen config` does not.
//!
//! The shapes are those of Talos' own generator, byte for byte: contracts 1.8 to 1.11 are one shape,
//! 1.12, 1.13 and 1.14 have their own.

mod blueprint;
mod documents;
mod manifests;
mod network;
pub(crate) mod storage;
mod system;
mod v1alpha1;

use ichor_model::{Minor, desired::Role};
use serde_json::Value;

use crate::secrets::Bundle;

pub use blueprint::{Blueprint, ClusterWide, Cni, Install, Registry, RegistryTls};
pub use manifests::{Manifest, ManifestContent};
pub(crate) use manifests::{kube_vip, yaml};
pub use storage::DiskPlace;
pub use system::Service;

/// Makes the documents of one machine config, the v1alpha1 document first.
pub fn documents(blueprint: &Blueprint, bundle: &Bundle) -> Vec<Value> {
    let mut documents = vec![v1alpha1::document(blueprint, bundle)];
    documents.extend(documents::all(blueprint, bundle));
    network::extend(blueprint, &mut documents);
    if let Some(machine) = &blueprint.machine {
        storage::extend(blueprint, machine, &mut documents);
    }
    system::extend(blueprint, &mut documents);
    manifests::extend(blueprint, &mut documents);
    documents
}

const V1_12: Minor = Minor::new(1, 12);
const V1_13: Minor = Minor::new(1, 13);
const V1_14: Minor = Minor::new(1, 14);

/// Whether a role runs etcd and the control plane.
fn is_control_plane(role: Role) -> bool {
    role == Role::ControlPlane
}

/// The admission rules that Talos gives every cluster: baseline enforced, restricted reported, and
/// `kube-system` left alone.
fn pod_security() -> Value {
    serde_json::json!({
        "apiVersion": "pod-security.admission.config.k8s.io/v1alpha1",
        "defaults": {
            "audit": "restricted", "audit-version": "latest",
            "enforce": "baseline", "enforce-version": "latest",
            "warn": "restricted", "warn-version": "latest",
        },
        "exemptions": { "namespaces": ["kube-system"], "runtimeClasses": [], "usernames": [] },
        "kind": "PodSecurityConfiguration",
    })
}

fn audit_policy() -> Value {
    serde_json::json!({ "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{ "level": "Metadata" }] })
}
