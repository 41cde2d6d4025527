//! Nodes.

use std::{collections::BTreeMap, net::IpAddr};

use ichor_port::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Propagation, delete};
use crate::{
    call::{Call, Content},
    client::Deleted,
    object::{Condition, List, Metadata},
    read::{cleaned, cleaned_some, or_default},
    resource::NODES,
};

/// A node.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "Raw")]
pub struct Node {
    /// Its name.
    pub name: String,
    /// What tells it from others that had its name.
    pub uid: String,
    /// The version of the object.
    pub version: String,
    /// Whether it is ready, and why not. A node that never said so is not.
    pub ready: Condition,
    /// The release of its kubelet, such as `v1.36.3`.
    pub kubelet: String,
    /// Its operating system, such as `Talos (v1.13.9)`.
    pub os_image: String,
    /// Its addresses inside the cluster's network.
    pub addresses: Vec<IpAddr>,
    /// What a cloud provider calls it.
    pub provider_id: Option<String>,
    /// Whether new pods stay away from it.
    pub unschedulable: bool,
    /// What keeps pods away from it.
    pub taints: Vec<Taint>,
    /// The uuid of its machine, in lower case.
    pub system_uuid: String,
    /// What changes with every boot.
    pub boot_id: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Whether it is on its way out.
    pub terminating: bool,
}

/// What keeps pods away from a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Taint {
    /// Its name.
    #[serde(deserialize_with = "cleaned")]
    pub key: String,
    /// Its value.
    #[serde(deserialize_with = "cleaned")]
    pub value: String,
    /// What it does, such as `NoSchedule`.
    #[serde(deserialize_with = "cleaned")]
    pub effect: String,
}

impl Node {
    /// Whether it runs a control plane.
    pub fn is_control_plane(&self) -> bool {
        self.labels.contains_key("node-role.kubernetes.io/control-plane")
    }
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
#[serde(default)]
struct Spec {
    #[serde(rename = "providerID", deserialize_with = "cleaned_some")]
    provider_id: Option<String>,
    #[serde(deserialize_with = "or_default")]
    unschedulable: bool,
    #[serde(deserialize_with = "or_default")]
    taints: Vec<Taint>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[serde(deserialize_with = "or_default")]
    conditions: Vec<Condition>,
    #[serde(deserialize_with = "or_default")]
    addresses: Vec<Address>,
    #[serde(deserialize_with = "or_default")]
    node_info: NodeInfo,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Address {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeInfo {
    #[serde(deserialize_with = "cleaned")]
    kubelet_version: String,
    #[serde(deserialize_with = "cleaned")]
    os_image: String,
    #[serde(rename = "systemUUID", deserialize_with = "cleaned")]
    system_uuid: String,
    #[serde(rename = "bootID", deserialize_with = "cleaned")]
    boot_id: String,
}

impl From<Raw> for Node {
    fn from(Raw { metadata, spec, status }: Raw) -> Self {
        let internal = status.addresses.iter().filter(|address| address.kind == "InternalIP");
        let ready = status.conditions.into_iter().find(|condition| condition.kind == "Ready");
        Self {
            name: metadata.name,
            uid: metadata.uid,
            version: metadata.resource_version,
            ready: ready.unwrap_or_default(),
            kubelet: status.node_info.kubelet_version,
            os_image: status.node_info.os_image,
            addresses: internal.filter_map(|address| address.address.parse().ok()).collect(),
            provider_id: spec.provider_id,
            unschedulable: spec.unschedulable,
            taints: spec.taints,
            system_uuid: status.node_info.system_uuid.to_ascii_lowercase(),
            boot_id: status.node_info.boot_id,
            labels: metadata.labels,
            terminating: metadata.deletion_timestamp.is_some(),
        }
    }
}

/// Lists the nodes.
pub fn nodes() -> Call<List<Node>> {
    Call::about_all(Method::Get, &NODES, None)
}

/// Reads a node.
pub fn node(name: &str) -> Call<Node> {
    Call::about(Method::Get, &NODES, None, name, None)
}

fn patch(name: &str, patch: Value) -> Call<Node> {
    Call::about(Method::Patch, &NODES, None, name, None).carrying(Content::MergePatch, patch)
}

/// Keeps new pods away from a node.
pub fn cordon(name: &str) -> Call<Node> {
    patch(name, json!({"spec": {"unschedulable": true}}))
}

/// Lets new pods onto a node again.
pub fn uncordon(name: &str) -> Call<Node> {
    patch(name, json!({"spec": {"unschedulable": null}}))
}

/// Sets labels of a node, and takes away those without a value.
pub fn label(name: &str, labels: &BTreeMap<String, Option<String>>) -> Call<Node> {
    let labels: Map<String, Value> =
        labels.iter().map(|(key, value)| (key.clone(), value.clone().into())).collect();
    patch(name, json!({"metadata": {"labels": labels}}))
}

/// Deletes a node; only the very one that was seen.
pub fn delete_node(node: &Node) -> Call<Deleted> {
    delete(&NODES, None, &node.name, Some(&node.uid), Propagation::Background)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Truth;

    #[test]
    fn a_node_is_read() {
        let node: Node = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "cp-1", "uid": "u-1", "resourceVersion": "42",
                "labels": {"node-role.kubernetes.io/control-plane": ""}},
            "spec": {"providerID": "proxmox://lab/101", "podCIDR": "10.244.0.0/24",
                "taints": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]},
            "status": {
                "addresses": [{"type": "Hostname", "address": "cp-1"}, {"type": "InternalIP", "address": "10.0.0.11"},
                    {"type": "InternalIP", "address": "fd00::11"}, {"type": "InternalIP", "address": "nowhere"}],
                "conditions": [{"type": "MemoryPressure", "status": "False"},
                    {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "no\nCNI"}],
                "nodeInfo": {"kubeletVersion": "v1.36.3", "osImage": "Talos (v1.13.9)", "bootID": "b-1",
                    "systemUUID": "AB12CD34-0000-0000-0000-000000000001"}}
        }))
        .expect("a node");
        assert!(node.is_control_plane() && !node.unschedulable && !node.ready.holds());
        assert_eq!((node.ready.status, node.ready.message.as_str()), (Truth::False, "no CNI"));
        assert_eq!(
            node.addresses,
            ["10.0.0.11", "fd00::11"].map(|address| address.parse::<IpAddr>().expect("one"))
        );
        assert_eq!(node.provider_id.as_deref(), Some("proxmox://lab/101"));
        assert_eq!(node.system_uuid, "ab12cd34-0000-0000-0000-000000000001");
        assert_eq!(node.taints[0].effect, "NoSchedule");
    }

    #[test]
    fn a_node_that_has_said_nothing_is_not_ready() {
        let node: Node = serde_json::from_str(r#"{"metadata": {"name": "w"}, "spec": {}, "status": null}"#)
            .expect("a node");
        assert!(!node.ready.holds());
        assert_eq!(node.ready.status, Truth::Unknown);
    }

    #[test]
    fn patches_touch_nothing_else() {
        assert_eq!(uncordon("a").body.expect("one").1, json!({"spec": {"unschedulable": null}}));
        let labels = BTreeMap::from([("a".to_owned(), Some("1".to_owned())), ("b".to_owned(), None)]);
        let body = label("x", &labels).body.expect("one").1;
        assert_eq!(body, json!({"metadata": {"labels": {"a": "1", "b": null}}}));
    }
}
