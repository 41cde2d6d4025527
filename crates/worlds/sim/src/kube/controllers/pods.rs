//! Pods, as kubelets run them.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    super::{
        Cluster,
        value::{
            Verdict, holds, is_terminating, list, name, namespace, set, set_condition, set_default, text,
            timestamp, uid,
        },
    },
    Due, later,
};
use crate::{clock::Time, ground::Ground};

/// How long a pod takes from its node to being ready: images, network, the first probe.
pub const START: Duration = Duration::from_secs(8);

/// How long a pod that does not go on for ever runs.
const WORK: Duration = Duration::from_secs(5);

/// How long a pod takes to end when it is told to.
const STOP: Duration = Duration::from_secs(2);

/// What a kubelet does with a pod.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PodLife {
    /// When it will be ready.
    starts: Option<Time>,
    /// When its work will be done.
    ends: Option<Time>,
    /// When it will have stopped.
    stops: Option<Time>,
}

/// Fills in what admission fills in for every pod.
pub fn admit(pod: &mut Value) {
    set_default(pod, &["spec", "serviceAccountName"], json!("default"));
    set_default(pod, &["spec", "enableServiceLinks"], json!(true));
    set_default(pod, &["spec", "preemptionPolicy"], json!("PreemptLowerPriority"));
    let priority = match text(pod, "/spec/priorityClassName") {
        "system-node-critical" => 2_000_001_000,
        "system-cluster-critical" => 2_000_000_000,
        _ => 0,
    };
    set_default(pod, &["spec", "priority"], json!(priority));
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        if super::schedule::tolerated_for(pod, key, "NoExecute") == Some(0) {
            let mut tolerations = list(pod, "/spec/tolerations").to_vec();
            tolerations.push(
                json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
            );
            set(pod, &["spec", "tolerations"], Value::Array(tolerations));
        }
    }
    set_default(pod, &["status", "phase"], json!("Pending"));
    let requests = list(pod, "/spec/containers").iter().any(|container| {
        container.pointer("/resources/requests").or_else(|| container.pointer("/resources/limits")).is_some()
    });
    set_default(pod, &["status", "qosClass"], json!(if requests { "Burstable" } else { "BestEffort" }));
}

impl Cluster {
    /// Lets kubelets go on with their pods.
    pub(super) fn tend_pods(&mut self, ground: &mut Ground, due: &mut Due) {
        let pods: Vec<Arc<Value>> = self.store.shared("pods", "").cloned().collect();
        let alive: std::collections::BTreeSet<&str> = pods.iter().map(|pod| uid(pod)).collect();
        self.pods.retain(|uid, _| alive.contains(uid.as_str()));
        for pod in &pods {
            self.tend_pod(ground, pod, due);
        }
    }

    fn tend_pod(&mut self, ground: &mut Ground, old: &Value, due: &mut Due) {
        let node = text(old, "/spec/nodeName");
        if node.is_empty() {
            return;
        }
        if self.store.get("nodes", "", node).is_none() {
            // Nobody runs it any more, and nobody will.
            self.store.delete("pods", namespace(old), name(old));
            return;
        }
        if !self.is_up(node) {
            return;
        }
        let mut life = self.pods.get(uid(old)).cloned().unwrap_or_default();
        if is_terminating(old) {
            let at = *life.stops.get_or_insert_with(|| later(ground, ground.now, STOP));
            self.pods.insert(uid(old).into(), life);
            if due.is_over(at, ground.now) && list(old, "/metadata/finalizers").is_empty() {
                self.store.delete("pods", namespace(old), name(old));
            }
            return;
        }
        match text(old, "/status/phase") {
            "Succeeded" | "Failed" => return,
            _ if holds(old, "Ready") => {}
            _ if !self.can_start(old, node) => {
                let mut pod = Value::clone(old);
                wait(&mut pod, ground.now);
                self.settle("pods", old, pod);
                return;
            }
            _ => {
                let at = *life.starts.get_or_insert_with(|| later(ground, ground.now, START));
                let mut pod = Value::clone(old);
                if due.is_over(at, ground.now) {
                    self.run(&mut pod, node, ground.now);
                } else {
                    wait(&mut pod, ground.now);
                }
                self.settle("pods", old, pod);
            }
        }
        if text(old, "/spec/restartPolicy") != "Always" && holds(old, "Ready") {
            let at = *life.ends.get_or_insert_with(|| later(ground, ground.now, WORK));
            if due.is_over(at, ground.now) {
                let mut pod = Value::clone(old);
                finish(&mut pod, ground.now);
                self.settle("pods", old, pod);
            }
        }
        self.pods.insert(uid(old).into(), life);
    }

    /// Whether a pod has what it needs: a network, unless it uses the node's, and its volumes.
    fn can_start(&self, pod: &Value, node: &str) -> bool {
        let host = pod.pointer("/spec/hostNetwork") == Some(&Value::Bool(true));
        let claims =
            list(pod, "/spec/volumes").iter().map(|volume| text(volume, "/persistentVolumeClaim/claimName"));
        let bound = claims.filter(|claim| !claim.is_empty()).all(|claim| {
            let found = self.store.get("persistentvolumeclaims", namespace(pod), claim);
            found.is_some_and(|claim| text(claim, "/status/phase") == "Bound")
        });
        bound && (host || self.has_network(node))
    }

    fn run(&self, pod: &mut Value, node: &str, now: Time) {
        let node_address = self
            .store
            .get("nodes", "", node)
            .map(|node| list(node, "/status/addresses"))
            .and_then(|addresses| addresses.iter().find(|address| text(address, "/type") == "InternalIP"))
            .map_or("", |address| text(address, "/address"))
            .to_owned();
        let host = pod.pointer("/spec/hostNetwork") == Some(&Value::Bool(true));
        let address = if host { node_address.clone() } else { self.free_address(node) };
        set(pod, &["status", "phase"], json!("Running"));
        set(pod, &["status", "hostIP"], node_address.into());
        set(pod, &["status", "podIP"], address.as_str().into());
        set(pod, &["status", "podIPs"], json!([{"ip": address}]));
        set_default(pod, &["status", "startTime"], timestamp(now));
        for kind in ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"] {
            set_condition(pod, now, Verdict { kind, status: "True", reason: "", message: "" });
        }
        let running = json!({"running": {"startedAt": timestamp(now)}});
        set_containers(pod, &running, true);
    }

    /// Returns an address that no pod of a node has.
    fn free_address(&self, node: &str) -> String {
        let index = self.store.list("nodes", "").position(|other| name(other) == node).unwrap_or(0);
        let taken: std::collections::BTreeSet<&str> = self
            .store
            .list("pods", "")
            .filter(|pod| text(pod, "/spec/nodeName") == node)
            .map(|pod| text(pod, "/status/podIP"))
            .collect();
        let free = (2..=254)
            .map(|host| format!("10.244.{}.{host}", index % 256))
            .find(|address| !taken.contains(address.as_str()));
        free.unwrap_or_else(|| "10.244.255.254".into())
    }

    /// A node has started again: its pods start again, too.
    pub(super) fn restart_pods(&mut self, ground: &mut Ground, node: &str) {
        let pods: Vec<Arc<Value>> = self
            .store
            .shared("pods", "")
            .filter(|pod| text(pod, "/spec/nodeName") == node)
            .cloned()
            .collect();
        for old in pods {
            self.pods.remove(uid(&old));
            if !matches!(text(&old, "/status/phase"), "Running") || is_terminating(&old) {
                continue;
            }
            let mut pod = Value::clone(&old);
            for kind in ["Ready", "ContainersReady"] {
                let verdict = Verdict { kind, status: "False", reason: "ContainersNotReady", message: "" };
                set_condition(&mut pod, ground.now, verdict);
            }
            // A pod that does not run its network plugin makes no network.
            set(&mut pod, &["status", "phase"], json!("Pending"));
            let states = pod.pointer_mut("/status/containerStatuses").and_then(Value::as_array_mut);
            for state in states.into_iter().flatten() {
                let count = super::super::value::number(state, "/restartCount").unwrap_or(0) + 1;
                state["ready"] = json!(false);
                state["restartCount"] = count.into();
            }
            self.settle("pods", &old, pod);
        }
    }
}

fn wait(pod: &mut Value, now: Time) {
    set_default(pod, &["status", "startTime"], timestamp(now));
    let message = "containers with unready status";
    set_condition(pod, now, Verdict { kind: "Initialized", status: "True", reason: "", message: "" });
    for kind in ["Ready", "ContainersReady"] {
        set_condition(pod, now, Verdict { kind, status: "False", reason: "ContainersNotReady", message });
    }
    set_condition(pod, now, Verdict { kind: "PodScheduled", status: "True", reason: "", message: "" });
    set_containers(pod, &json!({"waiting": {"reason": "ContainerCreating"}}), false);
}

fn finish(pod: &mut Value, now: Time) {
    set(pod, &["status", "phase"], json!("Succeeded"));
    for kind in ["Ready", "ContainersReady"] {
        set_condition(pod, now, Verdict { kind, status: "False", reason: "PodCompleted", message: "" });
    }
    let ended = json!({"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": timestamp(now)}});
    set_containers(pod, &ended, false);
}

fn set_containers(pod: &mut Value, state: &Value, ready: bool) {
    let before = list(pod, "/status/containerStatuses").to_vec();
    let states: Vec<Value> = list(pod, "/spec/containers")
        .iter()
        .map(|container| {
            let name = text(container, "/name");
            let known = before.iter().find(|state| text(state, "/name") == name);
            let restarts = known.and_then(|state| state.get("restartCount").cloned()).unwrap_or_else(|| json!(0));
            json!({
                "name": name, "image": text(container, "/image"), "imageID": "", "ready": ready, "started": ready,
                "restartCount": restarts, "state": state, "lastState": {},
            })
        })
        .collect();
    set(pod, &["status", "containerStatuses"], Value::Array(states));
}
