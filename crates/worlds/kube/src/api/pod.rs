//! Pods, as far as nodes are emptied.

use ichor_port::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    call::{Call, Content},
    object::{Condition, List, Metadata, ObjectName},
    read::{cleaned, cleaned_some, or_default},
    resource::PODS,
};

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "Raw")]
pub struct Pod {
    /// Which.
    pub name: ObjectName,
    /// What tells it from others that had its name.
    pub uid: String,
    /// Where it runs.
    pub node: Option<String>,
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: String,
    /// Whether it is ready, and why not.
    pub ready: Condition,
    /// The kind and name of what makes another in its place.
    pub controller: Option<(String, String)>,
    /// Whether it stands for a static pod, which only its machine can stop.
    pub is_mirror: bool,
    /// Whether data that only its node has would be lost.
    pub has_local_data: bool,
    /// Whether it is on its way out.
    pub terminating: bool,
}

impl Pod {
    /// Whether it must go before its node can be taken away: not what belongs to the node, nor what has ended.
    pub fn must_leave(&self) -> bool {
        let belongs = self.is_mirror || self.controller.as_ref().is_some_and(|(kind, _)| kind == "DaemonSet");
        !belongs && !matches!(self.phase.as_str(), "Succeeded" | "Failed")
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
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(deserialize_with = "cleaned_some")]
    node_name: Option<String>,
    #[serde(deserialize_with = "or_default")]
    volumes: Vec<Volume>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Volume {
    empty_dir: Option<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    #[serde(deserialize_with = "cleaned")]
    phase: String,
    #[serde(deserialize_with = "or_default")]
    conditions: Vec<Condition>,
}

impl From<Raw> for Pod {
    fn from(Raw { metadata, spec, status }: Raw) -> Self {
        let controller = metadata.owner_references.iter().find(|owner| owner.controller);
        let ready = status.conditions.into_iter().find(|condition| condition.kind == "Ready");
        Self {
            name: metadata.object_name(),
            controller: controller.map(|owner| (owner.kind.clone(), owner.name.clone())),
            is_mirror: metadata.annotations.contains_key("kubernetes.io/config.mirror"),
            has_local_data: spec.volumes.iter().any(|volume| volume.empty_dir.is_some()),
            terminating: metadata.deletion_timestamp.is_some(),
            uid: metadata.uid,
            node: spec.node_name,
            phase: status.phase,
            ready: ready.unwrap_or_default(),
        }
    }
}

/// Lists pods, in one namespace or in all.
pub fn pods(namespace: Option<&str>) -> Call<List<Pod>> {
    Call::about_all(Method::Get, &PODS, namespace)
}

/// Lists the pods of a node.
pub fn pods_on(node: &str) -> Call<List<Pod>> {
    pods(None).with("fieldSelector", format!("spec.nodeName={node}"))
}

/// Asks for the eviction of a pod; only of the very one that was seen. [`crate::Client::evict`] says what came of it.
pub fn evict(pod: &Pod) -> Call<Value> {
    let ObjectName { namespace, name } = &pod.name;
    let eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": namespace, "name": name},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    });
    // Without its namespace the call is about nobody, and is not sent.
    let namespace = Some(namespace.as_deref().unwrap_or_default());
    Call::about(Method::Post, &PODS, namespace, name, Some("eviction")).carrying(Content::Json, eviction)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(extra: &Value) -> Pod {
        let mut pod = json!({
            "metadata": {"name": "web-1", "namespace": "default", "uid": "u-1", "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u-0", "controller": true}]},
            "spec": {"nodeName": "w1", "volumes": [{"name": "x", "configMap": {}}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        for (key, value) in extra.as_object().expect("a map") {
            *pod.pointer_mut(key).expect("a place") = value.clone();
        }
        serde_json::from_value(pod).expect("a pod")
    }

    #[test]
    fn what_belongs_to_a_node_stays_with_it() {
        assert!(pod(&json!({})).must_leave());
        assert!(!pod(&json!({"/status/phase": "Succeeded"})).must_leave());
        assert!(!pod(&json!({"/metadata/ownerReferences/0/kind": "DaemonSet"})).must_leave());
        let mirror =
            pod(&json!({"/metadata": {"name": "m", "annotations": {"kubernetes.io/config.mirror": "1"}}}));
        assert!(mirror.is_mirror && !mirror.must_leave());
        assert!(pod(&json!({"/spec/volumes/0": {"name": "x", "emptyDir": {}}})).has_local_data);
    }

    #[test]
    fn an_eviction_is_about_one_pod() {
        let call = evict(&pod(&json!({})));
        assert_eq!(call.target(), "/api/v1/namespaces/default/pods/web-1/eviction");
        assert_eq!(call.body.expect("a body").1["deleteOptions"]["preconditions"]["uid"], "u-1");
        assert!(evict(&pod(&json!({"/metadata/namespace": null}))).is_nameless());
    }
}
