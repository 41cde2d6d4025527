//! Nodes: what their kubelets report, and what is thought of them when they do not.

use std::{sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    super::{
        Cluster,
        value::{
            Verdict, condition, holds, label, list, micro_timestamp, name, namespace, remove, set,
            set_condition, set_default, text, timestamp,
        },
    },
    Due, later,
};
use crate::{clock::Time, ground::Ground, signal::NodeFacts};

/// How long nothing is thought of a kubelet that is silent (`--node-monitor-grace-period`).
const GRACE: Duration = Duration::from_secs(40);

/// How long a cloud controller manager takes to look at a node.
const CLOUD: Duration = Duration::from_secs(3);

/// A machine that a node stands for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeLife {
    facts: NodeFacts,
    /// Whether its kubelet reports.
    pub(super) up: bool,
    /// Since when.
    pub(super) since: Time,
    /// When a cloud controller manager will have looked at it.
    cloud: Option<Time>,
}

impl Cluster {
    /// A kubelet begins to report.
    pub(in super::super) fn node_up(&mut self, ground: &mut Ground, facts: &NodeFacts) {
        if self.store.get("namespaces", "", "default").is_none() {
            self.begin(ground);
        }
        if facts.control_plane {
            self.version.clone_from(&facts.kubelet);
        }
        let life = NodeLife { facts: facts.clone(), up: true, since: ground.now, cloud: None };
        self.nodes.insert(facts.name.clone(), life);
        self.register(ground, facts);
        self.install_manifests(ground, facts);
        self.make_static_pods(ground, facts);
        self.restart_pods(ground, &facts.name);
    }

    /// A kubelet falls silent.
    pub(in super::super) fn node_down(&mut self, ground: &mut Ground, node: &str) {
        if let Some(life) = self.nodes.get_mut(node).filter(|life| life.up) {
            life.up = false;
            life.since = ground.now;
            // Nothing in the store has changed yet, but somebody has to look when the grace is over.
            self.looked = 0;
        }
    }

    /// Puts the node object, as a kubelet does when it starts.
    fn register(&mut self, ground: &mut Ground, facts: &NodeFacts) {
        if self.store.get("nodes", "", &facts.name).is_none() {
            let mut taints: Vec<Value> = facts.taints.iter().map(|(key, value)| taint(key, value)).collect();
            taints.push(json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}));
            if facts.external_cloud_provider {
                taints.push(json!({
                    "key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule",
                }));
            }
            let node = json!({"metadata": {"name": facts.name}, "spec": {"taints": taints}});
            self.make(ground, "nodes", node);
        }
        let Some(old) = self.store.share("nodes", "", &facts.name) else { return };
        let mut node = Value::clone(&old);
        label_node(&mut node, facts);
        set(&mut node, &["status", "addresses"], addresses(facts));
        let memory = facts.memory_mib * 1024;
        let resources = |cpu: String, memory: u64| {
            json!({"cpu": cpu, "memory": format!("{memory}Ki"), "pods": "110", "ephemeral-storage": "20961280Ki",
                "hugepages-2Mi": "0"})
        };
        set(&mut node, &["status", "capacity"], resources(facts.cpus.to_string(), memory));
        // What Talos keeps back for the system is not recorded; these are kubelet-like shares.
        let allocatable =
            resources(format!("{}m", facts.cpus * 1000 - 50), memory.saturating_sub(300 * 1024));
        set(&mut node, &["status", "allocatable"], allocatable);
        set(
            &mut node,
            &["status", "nodeInfo"],
            json!({
                "architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": facts.kubelet, "kubeProxyVersion": "",
                "osImage": format!("Talos ({})", facts.talos), "kernelVersion": "6.18.0-talos",
                "containerRuntimeVersion": "containerd://2.1.4", "machineID": "", "systemUUID": facts.uuid, "bootID": facts.boot_id,
            }),
        );
        set_default(&mut node, &["status", "daemonEndpoints"], json!({"kubeletEndpoint": {"Port": 10250}}));
        self.settle("nodes", &old, node);
        let lease = json!({
            "metadata": {"name": facts.name, "namespace": "kube-node-lease"},
            "spec": {"holderIdentity": facts.name, "leaseDurationSeconds": 40, "renewTime": micro_timestamp(ground.now)},
        });
        self.make(ground, "leases.coordination.k8s.io", lease);
    }

    fn make_static_pods(&mut self, ground: &mut Ground, facts: &NodeFacts) {
        if !facts.control_plane {
            return;
        }
        for component in ["kube-apiserver", "kube-controller-manager", "kube-scheduler"] {
            let pod = format!("{component}-{}", facts.name);
            let image = format!("registry.k8s.io/{component}:{}", facts.kubelet);
            let known = self.store.get("pods", "kube-system", &pod);
            let same = known.is_some_and(|known| text(known, "/spec/containers/0/image") == image);
            if known.is_some() && !same {
                self.store.delete("pods", "kube-system", &pod);
            }
            let node = self
                .store
                .get("nodes", "", &facts.name)
                .map(|node| super::super::value::uid(node).to_owned());
            self.make(ground, "pods", json!({
                "metadata": {"name": pod, "namespace": "kube-system",
                    "labels": {"tier": "control-plane", "k8s-app": component, "component": component},
                    "annotations": {"kubernetes.io/config.mirror": component, "kubernetes.io/config.source": "file",
                        "talos.dev/config-version": "1"},
                    "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": facts.name, "uid": node, "controller": true}]},
                "spec": {"nodeName": facts.name, "hostNetwork": true, "priorityClassName": "system-cluster-critical",
                    "tolerations": [{"effect": "NoExecute", "operator": "Exists"}],
                    "containers": [{"name": component, "image": image}]},
            }));
        }
    }

    /// Judges all nodes.
    pub(super) fn tend_nodes(&mut self, ground: &mut Ground, due: &mut Due) {
        let names: Vec<String> = self.store.list("nodes", "").map(|node| name(node).to_owned()).collect();
        for node in names {
            self.tend_node(ground, &node, due);
        }
    }

    fn tend_node(&mut self, ground: &mut Ground, node: &str, due: &mut Due) {
        let Some(old) = self.store.share("nodes", "", node) else { return };
        let mut new = Value::clone(&old);
        let Some(life) = self.nodes.get(node).cloned() else { return };
        let silent = !life.up && due.is_over(later(ground, life.since, GRACE), ground.now);
        if life.up || silent {
            let network = self.has_network(node);
            judge(&mut new, silent, network, ground.now);
        }
        let ready = condition(&new, "Ready").map_or("Unknown", |ready| text(ready, "/status")).to_owned();
        let cordoned = new.pointer("/spec/unschedulable") == Some(&Value::Bool(true));
        let wanted = [
            ("node.kubernetes.io/not-ready", "NoSchedule", ready == "False"),
            ("node.kubernetes.io/not-ready", "NoExecute", ready == "False"),
            ("node.kubernetes.io/unreachable", "NoSchedule", ready == "Unknown"),
            ("node.kubernetes.io/unreachable", "NoExecute", ready == "Unknown"),
            ("node.kubernetes.io/unschedulable", "NoSchedule", cordoned),
        ];
        for (key, effect, is) in wanted {
            set_taint(&mut new, key, effect, is, ground.now);
        }
        if has_taint(&new, UNINITIALIZED) && life.up && self.has_cloud_controller() {
            let at = life.cloud.unwrap_or_else(|| later(ground, ground.now, CLOUD));
            if let Some(life) = self.nodes.get_mut(node) {
                life.cloud = Some(at);
            }
            if due.is_over(at, ground.now) {
                set_taint(&mut new, UNINITIALIZED, "NoSchedule", false, ground.now);
            }
        }
        self.settle("nodes", &old, new);
        if silent {
            self.doubt_pods(ground, node);
            self.evict_from(ground, node, life.since, due);
        }
    }

    /// Pods of a silent node are not ready any more, whatever they do.
    fn doubt_pods(&mut self, ground: &Ground, node: &str) {
        let pods: Vec<Arc<Value>> = self
            .store
            .shared("pods", "")
            .filter(|pod| text(pod, "/spec/nodeName") == node)
            .cloned()
            .collect();
        for old in pods.into_iter().filter(|pod| holds(pod, "Ready")) {
            let mut pod = Value::clone(&old);
            let verdict = Verdict { kind: "Ready", status: "False", reason: "", message: "" };
            set_condition(&mut pod, ground.now, verdict);
            self.settle("pods", &old, pod);
        }
    }

    /// Deletes pods from a silent node when they tolerate it no longer. They stay terminating, as nobody ends them.
    fn evict_from(&mut self, ground: &mut Ground, node: &str, since: Time, due: &mut Due) {
        let pods: Vec<Arc<Value>> = self
            .store
            .shared("pods", "")
            .filter(|pod| text(pod, "/spec/nodeName") == node && !super::super::value::is_terminating(pod))
            .cloned()
            .collect();
        for pod in pods {
            let tolerated =
                super::schedule::tolerated_for(&pod, "node.kubernetes.io/unreachable", "NoExecute");
            let Some(seconds) = tolerated else { continue };
            let at = later(ground, later(ground, since, GRACE), Duration::from_secs(seconds));
            if due.is_over(at, ground.now) {
                self.remove_object(ground, "pods", &pod, &json!({}));
            }
        }
    }

    /// Whether a pod network works on a node: a pod of a network plugin runs there.
    pub(super) fn has_network(&self, node: &str) -> bool {
        self.store.list("pods", "").any(|pod| {
            text(pod, "/spec/nodeName") == node
                && text(pod, "/status/phase") == "Running"
                && is_network_plugin(pod)
        })
    }

    fn has_cloud_controller(&self) -> bool {
        self.store.list("pods", "").any(|pod| {
            let named = name(pod).contains("cloud-controller-manager");
            let image = list(pod, "/spec/containers")
                .iter()
                .any(|item| text(item, "/image").contains("cloud-controller-manager"));
            (named || image) && holds(pod, "Ready")
        })
    }

    /// Whether the kubelet of a node reports.
    pub(super) fn is_up(&self, node: &str) -> bool {
        self.nodes.get(node).is_some_and(|life| life.up)
    }

    /// Brings up to date what kubelets renew all the time. Nobody could tell if each renewal were an event.
    pub(in super::super) fn refresh(&self, object: &mut Value, now: Time) {
        let is_node = object["kind"] == "Node";
        let is_lease = object["kind"] == "Lease" && namespace(object) == "kube-node-lease";
        if !is_node && !is_lease {
            return;
        }
        let Some(life) = self.nodes.get(name(object)) else { return };
        let last = if life.up { now } else { life.since };
        if is_lease {
            set(object, &["spec", "renewTime"], micro_timestamp(last));
            return;
        }
        let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten() {
            condition["lastHeartbeatTime"] = timestamp(last);
        }
    }
}

const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Whether a pod is that of a network plugin: it writes its configuration on the node, or is known by name.
fn is_network_plugin(pod: &Value) -> bool {
    let writes = list(pod, "/spec/volumes")
        .iter()
        .any(|volume| text(volume, "/hostPath/path").starts_with("/etc/cni"));
    let known =
        ["cilium", "kube-flannel", "calico-node", "canal", "antrea-agent", "kube-router", "weave-net"];
    let owned_by_set = list(pod, "/metadata/ownerReferences").iter().any(|owner| {
        text(owner, "/kind") == "DaemonSet" && known.iter().any(|known| text(owner, "/name") == *known)
    });
    writes || owned_by_set || label(pod, "k8s-app") == Some("cilium")
}

fn judge(node: &mut Value, silent: bool, network: bool, now: Time) {
    let healthy = [
        ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ];
    let lost = ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.");
    for (kind, reason, message) in healthy {
        let (status, reason, message) = if silent { lost } else { ("False", reason, message) };
        set_condition(node, now, Verdict { kind, status, reason, message });
    }
    let (status, reason, message) = match (silent, network) {
        (true, _) => lost,
        (false, true) => ("True", "KubeletReady", "kubelet is posting ready status"),
        (false, false) => (
            "False",
            "KubeletNotReady",
            "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin \
             returns error: cni plugin not initialized",
        ),
    };
    set_condition(node, now, Verdict { kind: "Ready", status, reason, message });
}

fn label_node(node: &mut Value, facts: &NodeFacts) {
    let mut labels: Vec<(String, String)> = vec![
        ("beta.kubernetes.io/arch".into(), "amd64".into()),
        ("beta.kubernetes.io/os".into(), "linux".into()),
        ("kubernetes.io/arch".into(), "amd64".into()),
        ("kubernetes.io/hostname".into(), facts.name.clone()),
        ("kubernetes.io/os".into(), "linux".into()),
    ];
    if facts.control_plane {
        labels.push(("node-role.kubernetes.io/control-plane".into(), String::new()));
    }
    labels.extend(facts.labels.iter().map(|(key, value)| (key.clone(), value.clone())));
    for (key, value) in labels {
        set(node, &["metadata", "labels", &key], value.into());
    }
    for (key, value) in &facts.annotations {
        set(node, &["metadata", "annotations", key], value.as_str().into());
    }
}

fn addresses(facts: &NodeFacts) -> Value {
    let internal = facts.addresses.iter().map(|address| json!({"type": "InternalIP", "address": address}));
    internal.chain([json!({"type": "Hostname", "address": facts.name})]).collect()
}

/// Reads a taint as machine configs write it: `value:Effect`, or `Effect`.
fn taint(key: &str, value: &str) -> Value {
    match value.rsplit_once(':') {
        Some((value, effect)) if !value.is_empty() => json!({"key": key, "value": value, "effect": effect}),
        Some((_, effect)) => json!({"key": key, "effect": effect}),
        None => json!({"key": key, "effect": value}),
    }
}

fn has_taint(node: &Value, key: &str) -> bool {
    list(node, "/spec/taints").iter().any(|taint| text(taint, "/key") == key)
}

fn set_taint(node: &mut Value, key: &str, effect: &str, wanted: bool, now: Time) {
    let is = |taint: &Value| text(taint, "/key") == key && text(taint, "/effect") == effect;
    let present = list(node, "/spec/taints").iter().any(is);
    if present == wanted {
        return;
    }
    let mut taints = list(node, "/spec/taints").to_vec();
    if wanted {
        let mut taint = json!({"key": key, "effect": effect});
        if effect == "NoExecute" || key.ends_with("unschedulable") {
            taint["timeAdded"] = timestamp(now);
        }
        taints.push(taint);
    } else {
        taints.retain(|taint| !is(taint));
    }
    if taints.is_empty() {
        remove(node, &["spec", "taints"]);
    } else {
        set(node, &["spec", "taints"], Value::Array(taints));
    }
}
