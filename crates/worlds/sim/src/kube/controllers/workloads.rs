//! Deployments, replica sets, daemon sets and stateful sets.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{
    super::{
        Cluster,
        rest::suffix,
        value::{
            Verdict, holds, is_terminating, label, list, name, namespace, number, set, set_condition, text,
            uid,
        },
    },
    is_owned_by, owner,
    schedule::{fits_node, untolerated},
    template_hash,
};
use crate::ground::Ground;

const REPLICA_SETS: &str = "replicasets.apps";

impl Cluster {
    fn workloads(&self, key: &str) -> Vec<Arc<Value>> {
        self.store.shared(key, "").filter(|object| !is_terminating(object)).cloned().collect()
    }

    fn pods_of(&self, object: &Value) -> Vec<Arc<Value>> {
        let owner = uid(object);
        self.store.shared("pods", namespace(object)).filter(|pod| is_owned_by(pod, owner)).cloned().collect()
    }

    /// Makes replica sets of deployments, and moves replicas from old ones to the new one.
    pub(super) fn tend_deployments(&mut self, ground: &mut Ground) {
        for old in self.workloads("deployments.apps") {
            let hash = template_hash(&old["spec"]["template"]);
            let sets: Vec<Arc<Value>> = self
                .store
                .shared(REPLICA_SETS, namespace(&old))
                .filter(|set| is_owned_by(set, uid(&old)))
                .cloned()
                .collect();
            let current = sets.iter().find(|set| label(set, "pod-template-hash") == Some(&hash)).cloned();
            let revision = sets.iter().filter_map(|set| revision_of(set)).max().unwrap_or(0);
            let current = match current {
                Some(current) => current,
                None => {
                    let made = self.make(ground, REPLICA_SETS, replica_set(&old, &hash, revision + 1));
                    let Some(made) = made else { continue };
                    made
                }
            };
            self.roll(&old, &current, &sets);
            self.judge_deployment(ground, &old, &current, &sets);
        }
    }

    fn roll(&mut self, deployment: &Value, current: &Value, sets: &[Arc<Value>]) {
        let wanted = number(deployment, "/spec/replicas").unwrap_or(1).max(0);
        let paused = deployment.pointer("/spec/paused") == Some(&Value::Bool(true));
        let others: Vec<&Arc<Value>> = sets.iter().filter(|set| uid(set) != uid(current)).collect();
        let replicas = |set: &Value| number(set, "/spec/replicas").unwrap_or(0);
        let old_total: i64 = others.iter().map(|set| replicas(set)).sum();
        let recreate = text(deployment, "/spec/strategy/type") == "Recreate";
        let surge = share(deployment.pointer("/spec/strategy/rollingUpdate/maxSurge"), wanted, true);
        let unavailable =
            share(deployment.pointer("/spec/strategy/rollingUpdate/maxUnavailable"), wanted, false);
        let old_pods: i64 = others.iter().map(|set| number(set, "/status/replicas").unwrap_or(0)).sum();
        let next = match (paused, recreate) {
            (true, _) if old_total > 0 => replicas(current),
            (_, true) if old_pods > 0 => 0,
            (_, true) => wanted,
            _ => (wanted + surge.max(i64::from(unavailable == 0)) - old_total)
                .clamp(0, wanted)
                .max(replicas(current).min(wanted)),
        };
        self.scale_set(current, next);
        if paused {
            return;
        }
        let ready = number(current, "/status/readyReplicas").unwrap_or(0);
        let mut keep = if recreate { 0 } else { (wanted - unavailable - ready).max(0) };
        for set in others {
            let left = replicas(set).min(keep);
            keep -= left;
            self.scale_set(set, left);
        }
    }

    fn scale_set(&mut self, replica_set: &Value, replicas: i64) {
        let Some(old) = self.store.share(REPLICA_SETS, namespace(replica_set), name(replica_set)) else {
            return;
        };
        if number(&old, "/spec/replicas") == Some(replicas) {
            return;
        }
        let mut new = Value::clone(&old);
        set(&mut new, &["spec", "replicas"], replicas.into());
        let generation = number(&old, "/metadata/generation").unwrap_or(0) + 1;
        set(&mut new, &["metadata", "generation"], generation.into());
        self.settle(REPLICA_SETS, &old, new);
    }

    fn judge_deployment(&mut self, ground: &Ground, old: &Value, current: &Value, sets: &[Arc<Value>]) {
        let mut all: Vec<&Value> =
            sets.iter().map(|set| &**set).filter(|set| uid(set) != uid(current)).collect();
        let fresh = self.store.share(REPLICA_SETS, namespace(current), name(current)).unwrap_or_default();
        all.push(&fresh);
        let sum = |pointer: &str| all.iter().filter_map(|set| number(set, pointer)).sum::<i64>();
        let wanted = number(old, "/spec/replicas").unwrap_or(1);
        let (replicas, ready) = (sum("/status/replicas"), sum("/status/readyReplicas"));
        let updated = number(&fresh, "/status/replicas").unwrap_or(0);
        let unavailable_allowed =
            share(old.pointer("/spec/strategy/rollingUpdate/maxUnavailable"), wanted, false);
        let mut new = Value::clone(old);
        let mut status = Map::new();
        status.insert("observedGeneration".into(), old["metadata"]["generation"].clone());
        for (key, count) in [
            ("replicas", replicas),
            ("updatedReplicas", updated),
            ("readyReplicas", ready),
            ("availableReplicas", ready),
            ("unavailableReplicas", (wanted - ready).max(0)),
        ] {
            if count > 0 {
                status.insert(key.into(), count.into());
            }
        }
        if let Some(conditions) = old.pointer("/status/conditions") {
            status.insert("conditions".into(), conditions.clone());
        }
        set(&mut new, &["status"], Value::Object(status));
        let (status, reason, message) = if ready >= wanted - unavailable_allowed {
            ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        } else {
            ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
        };
        set_condition(&mut new, ground.now, Verdict { kind: "Available", status, reason, message });
        let done = updated >= wanted && ready >= wanted && replicas <= wanted;
        let (reason, message) = if done {
            (
                "NewReplicaSetAvailable",
                format!("ReplicaSet \"{}\" has successfully progressed.", name(&fresh)),
            )
        } else {
            ("ReplicaSetUpdated", format!("ReplicaSet \"{}\" is progressing.", name(&fresh)))
        };
        set_condition(
            &mut new,
            ground.now,
            Verdict { kind: "Progressing", status: "True", reason, message: &message },
        );
        if let Some(revision) = revision_of(&fresh) {
            set(&mut new, &["metadata", "annotations", REVISION], revision.to_string().into());
        }
        self.settle("deployments.apps", old, new);
    }

    /// Makes and removes pods of replica sets.
    pub(super) fn tend_replica_sets(&mut self, ground: &mut Ground) {
        for old in self.workloads(REPLICA_SETS) {
            let wanted = number(&old, "/spec/replicas").unwrap_or(1).max(0);
            let mut pods: Vec<Arc<Value>> = self.pods_of(&old);
            pods.retain(|pod| {
                !is_terminating(pod) && !matches!(text(pod, "/status/phase"), "Failed" | "Succeeded")
            });
            let missing = usize::try_from(wanted).unwrap_or(0).saturating_sub(pods.len());
            for _ in 0..missing.min(500) {
                let pod = format!("{}-{}", name(&old), suffix(ground));
                let pod = pod_from(&old["spec"]["template"], &old, &pod, ("ReplicaSet", "apps/v1"));
                self.make(ground, "pods", pod);
            }
            let surplus = pods.len().saturating_sub(usize::try_from(wanted).unwrap_or(0));
            // Pods that are not ready go first, then the youngest names.
            pods.sort_by_key(|pod| {
                (holds(pod, "Ready"), text(pod, "/metadata/creationTimestamp").to_owned())
            });
            for pod in pods.iter().take(surplus) {
                self.remove_object(ground, "pods", pod, &json!({}));
            }
            let ready = pods.iter().filter(|pod| holds(pod, "Ready")).count();
            let mut new = Value::clone(&old);
            let mut status = json!({"replicas": pods.len() - surplus + missing, "observedGeneration": old["metadata"]["generation"]});
            if ready > 0 {
                status["readyReplicas"] = ready.into();
                status["availableReplicas"] = ready.into();
            }
            if !pods.is_empty() {
                status["fullyLabeledReplicas"] = pods.len().into();
            }
            set(&mut new, &["status"], status);
            self.settle(REPLICA_SETS, &old, new);
        }
    }

    /// Makes and removes pods of daemon sets.
    pub(super) fn tend_daemon_sets(&mut self, ground: &mut Ground) {
        for old in self.workloads("daemonsets.apps") {
            let hash = template_hash(&old["spec"]["template"]);
            let nodes: Vec<Arc<Value>> = self.store.shared("nodes", "").cloned().collect();
            let pods = self.pods_of(&old);
            let sample = daemon_pod(&old, &hash, "", "");
            let (mut desired, mut current, mut ready, mut updated) = (0_i64, 0_i64, 0_i64, 0_i64);
            let mut outdated: Option<Arc<Value>> = None;
            let mut all_ready = true;
            for node in &nodes {
                let here: Vec<&Arc<Value>> =
                    pods.iter().filter(|pod| daemon_node(pod) == name(node)).collect();
                let wanted = fits_node(&sample, node) && untolerated(&sample, node).is_none();
                let live: Vec<&&Arc<Value>> = here.iter().filter(|pod| !is_terminating(pod)).collect();
                if !wanted {
                    for pod in live {
                        // Only a taint that drives pods away makes one leave that is there already.
                        let evicts = untolerated(&sample, node)
                            .is_some_and(|taint| text(taint, "/effect") == "NoExecute");
                        if evicts || !fits_node(&sample, node) {
                            self.remove_object(ground, "pods", pod, &json!({}));
                        }
                    }
                    continue;
                }
                desired += 1;
                match live.first() {
                    None if here.is_empty() => {
                        let pod = format!("{}-{}", name(&old), suffix(ground));
                        self.make(ground, "pods", daemon_pod(&old, &hash, &pod, name(node)));
                        all_ready = false;
                        updated += 1;
                        current += 1;
                    }
                    None => all_ready = false,
                    Some(pod) => {
                        current += 1;
                        ready += i64::from(holds(pod, "Ready"));
                        all_ready &= holds(pod, "Ready");
                        if label(pod, "controller-revision-hash") == Some(&hash) {
                            updated += 1;
                        } else if outdated.as_ref().is_none_or(|known| holds(known, "Ready")) {
                            outdated = Some((**pod).clone());
                        }
                    }
                }
            }
            let rolls = text(&old, "/spec/updateStrategy/type") != "OnDelete";
            if let Some(pod) = outdated.filter(|pod| rolls && (all_ready || !holds(pod, "Ready"))) {
                self.remove_object(ground, "pods", &pod, &json!({}));
            }
            let mut new = Value::clone(&old);
            let mut status = json!({
                "currentNumberScheduled": current, "desiredNumberScheduled": desired, "numberMisscheduled": 0,
                "numberReady": ready, "observedGeneration": old["metadata"]["generation"],
            });
            for (key, count) in [
                ("updatedNumberScheduled", updated),
                ("numberAvailable", ready),
                ("numberUnavailable", desired - ready),
            ] {
                if count > 0 {
                    status[key] = count.into();
                }
            }
            set(&mut new, &["status"], status);
            self.settle("daemonsets.apps", &old, new);
        }
    }

    /// Makes and removes pods of stateful sets, in order.
    pub(super) fn tend_stateful_sets(&mut self, ground: &mut Ground) {
        for old in self.workloads("statefulsets.apps") {
            let hash = format!("{}-{}", name(&old), template_hash(&old["spec"]["template"]));
            let wanted = number(&old, "/spec/replicas").unwrap_or(1).clamp(0, 1000);
            let pods = self.pods_of(&old);
            let find =
                |ordinal: i64| pods.iter().find(|pod| name(pod) == format!("{}-{ordinal}", name(&old)));
            let parallel = text(&old, "/spec/podManagementPolicy") == "Parallel";
            for ordinal in 0..wanted {
                match find(ordinal) {
                    Some(pod) if holds(pod, "Ready") && !is_terminating(pod) => {}
                    Some(_) if parallel => {}
                    Some(_) => break,
                    None => {
                        self.make_ordinal(ground, &old, ordinal, &hash);
                        if !parallel {
                            break;
                        }
                    }
                }
            }
            let ordinal_of = |pod: &Value| {
                name(pod).rsplit('-').next().and_then(|last| last.parse::<i64>().ok()).unwrap_or(0)
            };
            let mut live: Vec<&Arc<Value>> = pods.iter().filter(|pod| !is_terminating(pod)).collect();
            live.sort_by_key(|pod| std::cmp::Reverse(ordinal_of(pod)));
            let calm = live.len() == pods.len();
            if let Some(pod) = live.iter().find(|pod| ordinal_of(pod) >= wanted).filter(|_| calm) {
                self.remove_object(ground, "pods", pod, &json!({}));
            } else if calm
                && text(&old, "/spec/updateStrategy/type") != "OnDelete"
                && live.iter().all(|pod| holds(pod, "Ready"))
                && let Some(pod) =
                    live.iter().find(|pod| label(pod, "controller-revision-hash") != Some(&hash))
            {
                self.remove_object(ground, "pods", pod, &json!({}));
            }
            let ready = live.iter().filter(|pod| holds(pod, "Ready")).count();
            let updated =
                live.iter().filter(|pod| label(pod, "controller-revision-hash") == Some(&hash)).count();
            let mut new = Value::clone(&old);
            let done = i64::try_from(updated).unwrap_or(0) == wanted && live.len() == updated;
            let before = text(&old, "/status/currentRevision");
            let revision = if done || before.is_empty() { hash.clone() } else { before.to_owned() };
            set(
                &mut new,
                &["status"],
                json!({
                    "replicas": live.len(), "readyReplicas": ready, "availableReplicas": ready, "updatedReplicas": updated,
                    "currentReplicas": live.len(), "currentRevision": revision, "updateRevision": hash,
                    "observedGeneration": old["metadata"]["generation"], "collisionCount": 0,
                }),
            );
            self.settle("statefulsets.apps", &old, new);
        }
    }

    fn make_ordinal(&mut self, ground: &mut Ground, set_object: &Value, ordinal: i64, hash: &str) {
        let pod_name = format!("{}-{ordinal}", name(set_object));
        let mut pod =
            pod_from(&set_object["spec"]["template"], set_object, &pod_name, ("StatefulSet", "apps/v1"));
        for (key, value) in [
            ("controller-revision-hash", hash.to_owned()),
            ("statefulset.kubernetes.io/pod-name", pod_name.clone()),
            ("apps.kubernetes.io/pod-index", ordinal.to_string()),
        ] {
            set(&mut pod, &["metadata", "labels", key], value.into());
        }
        set(&mut pod, &["spec", "hostname"], pod_name.as_str().into());
        let mut volumes = list(&pod, "/spec/volumes").to_vec();
        for template in list(set_object, "/spec/volumeClaimTemplates") {
            let claim = format!("{}-{pod_name}", name(template));
            let mut object = template.clone();
            set(&mut object, &["metadata", "name"], claim.as_str().into());
            set(&mut object, &["metadata", "namespace"], namespace(set_object).into());
            self.make(ground, "persistentvolumeclaims", object);
            volumes.retain(|volume| text(volume, "/name") != name(template));
            volumes.push(json!({"name": name(template), "persistentVolumeClaim": {"claimName": claim}}));
        }
        if !volumes.is_empty() {
            set(&mut pod, &["spec", "volumes"], Value::Array(volumes));
        }
        self.make(ground, "pods", pod);
    }
}

const REVISION: &str = "deployment.kubernetes.io/revision";

fn revision_of(object: &Value) -> Option<i64> {
    object.pointer("/metadata/annotations")?.get(REVISION)?.as_str()?.parse().ok()
}

/// Returns a number, or a share of a number such as `25%`.
pub fn share(value: Option<&Value>, of: i64, up: bool) -> i64 {
    match value {
        Some(Value::String(text)) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            let product = of.saturating_mul(percent);
            if up { (product + 99).div_euclid(100) } else { product.div_euclid(100) }
        }
        Some(value) => value.as_i64().unwrap_or(0),
        None => 0,
    }
}

fn replica_set(deployment: &Value, hash: &str, revision: i64) -> Value {
    let mut template = deployment["spec"]["template"].clone();
    set(&mut template, &["metadata", "labels", "pod-template-hash"], hash.into());
    let mut selector = deployment["spec"]["selector"].clone();
    set(&mut selector, &["matchLabels", "pod-template-hash"], hash.into());
    let labels = template["metadata"]["labels"].clone();
    json!({
        "metadata": {
            "name": format!("{}-{hash}", name(deployment)), "namespace": namespace(deployment), "labels": labels,
            "annotations": {REVISION: revision.to_string(), "deployment.kubernetes.io/desired-replicas": deployment["spec"]["replicas"].to_string()},
            "ownerReferences": owner("Deployment", "apps/v1", deployment),
        },
        "spec": {"replicas": 0, "selector": selector, "template": template},
    })
}

/// Returns a pod made from a template.
pub fn pod_from(template: &Value, made_by: &Value, pod: &str, (kind, api_version): (&str, &str)) -> Value {
    let mut object =
        json!({"metadata": {"name": pod, "namespace": namespace(made_by)}, "spec": template["spec"]});
    for key in ["labels", "annotations"] {
        if let Some(value) = template.pointer(&format!("/metadata/{key}")) {
            set(&mut object, &["metadata", key], value.clone());
        }
    }
    set(&mut object, &["metadata", "generateName"], format!("{}-", name(made_by)).into());
    set(&mut object, &["metadata", "ownerReferences"], owner(kind, api_version, made_by));
    object
}

fn daemon_pod(daemon_set: &Value, hash: &str, pod: &str, node: &str) -> Value {
    let mut pod = pod_from(&daemon_set["spec"]["template"], daemon_set, pod, ("DaemonSet", "apps/v1"));
    set(&mut pod, &["metadata", "labels", "controller-revision-hash"], hash.into());
    let mut tolerations = list(&pod, "/spec/tolerations").to_vec();
    for (key, effect) in [
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    ] {
        tolerations.push(
            json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": effect}),
        );
    }
    set(&mut pod, &["spec", "tolerations"], Value::Array(tolerations));
    if !node.is_empty() {
        let field = json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]);
        set(
            &mut pod,
            &[
                "spec",
                "affinity",
                "nodeAffinity",
                "requiredDuringSchedulingIgnoredDuringExecution",
                "nodeSelectorTerms",
            ],
            field,
        );
    }
    pod
}

/// Returns the node that a pod of a daemon set is meant for.
fn daemon_node(pod: &Value) -> &str {
    let pointer = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0";
    text(pod, pointer)
}
