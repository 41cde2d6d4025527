//! Manifests that Talos applies when the cluster is born: the user's, and kube-vip.

use ichor_model::desired::KubeVip;
use serde_json::{Value, json};

use super::{Blueprint, V1_14, documents::document, is_control_plane};
use crate::{
    document::{Map, Node, Value as Tree},
    emit::emit_map,
};

/// The release of kube-vip for inventories that name none.
const KUBE_VIP: &str = "v1.2.3";

/// A manifest and where Talos finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub content: ManifestContent,
}

/// Where a manifest is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManifestContent {
    /// Here, as YAML.
    Text(String),
    /// At an address that the machines can reach.
    Url(String),
}

/// Adds the manifests to the config of a control plane.
pub fn extend(blueprint: &Blueprint, documents: &mut Vec<Value>) {
    let manifests = &blueprint.cluster_wide.manifests;
    if !is_control_plane(blueprint.role) || manifests.is_empty() {
        return;
    }
    if blueprint.contract >= V1_14 {
        documents.extend(manifests.iter().map(|manifest| match &manifest.content {
            ManifestContent::Text(text) => {
                document("KubeInlineManifestConfig", Some(&manifest.name), json!({ "manifest": text }))
            }
            ManifestContent::Url(url) => {
                document("KubeExternalManifestConfig", Some(&manifest.name), json!({ "url": url }))
            }
        }));
        return;
    }
    let (mut inline, mut extra) = (Vec::new(), Vec::new());
    for manifest in manifests {
        match &manifest.content {
            ManifestContent::Text(text) => inline.push(json!({ "name": manifest.name, "contents": text })),
            ManifestContent::Url(url) => extra.push(Value::from(url.as_str())),
        }
    }
    for (key, list) in [("extraManifests", extra), ("inlineManifests", inline)] {
        if !list.is_empty() {
            documents[0]["cluster"][key] = list.into();
        }
    }
}

/// Writes Kubernetes objects as YAML, one document each.
pub fn yaml(objects: &[Value]) -> String {
    let documents = objects.iter().map(|object| match node(object).value {
        Tree::Map(map) => emit_map(&map),
        _ => String::new(),
    });
    documents.collect::<Vec<_>>().join("---\n")
}

fn node(json: &Value) -> Node {
    let tree = match json {
        Value::Null => Tree::Null,
        Value::Bool(switch) => Tree::Bool(*switch),
        Value::Number(number) => match number.as_i128() {
            Some(int) => Tree::Int(int),
            None => Tree::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => Tree::Text(text.clone()),
        Value::Array(items) => Tree::List(items.iter().map(node).collect()),
        Value::Object(entries) => {
            let mut map = Map::new();
            for (key, value) in entries {
                map.push(key.as_str().into(), node(value));
            }
            Tree::Map(map)
        }
    };
    tree.into()
}

/// Returns the manifest of kube-vip.
///
/// It runs in the cluster, not as a static pod: it elects its leader through the API, and Talos has no
/// credentials on disk that a static pod could use. On the host's network it needs no pod network, and
/// it reaches the API through the machine's own load balancer, so it comes up before its address does.
pub fn kube_vip(settings: &KubeVip, kube_prism_port: u16, api_port: u16) -> Manifest {
    let objects = [service_account(), role(), binding(), daemon_set(settings, kube_prism_port, api_port)];
    Manifest { name: "kube-vip".into(), content: ManifestContent::Text(yaml(&objects)) }
}

fn service_account() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": { "name": "kube-vip", "namespace": "kube-system" },
    })
}

fn role() -> Value {
    let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({ "apiGroups": groups, "resources": resources, "verbs": verbs });
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": "system:kube-vip-role" },
        "rules": [
            rule(&[""], &["services/status"], &["update"]),
            rule(&[""], &["services", "endpoints"], &["list", "get", "watch", "update"]),
            rule(&[""], &["nodes"], &["list", "get", "watch", "update", "patch"]),
            rule(&[""], &["pods"], &["list"]),
            rule(&["coordination.k8s.io"], &["leases"], &["list", "get", "watch", "update", "create"]),
            rule(&["discovery.k8s.io"], &["endpointslices"], &["list", "get", "watch", "update"]),
        ],
    })
}

fn binding() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": "system:kube-vip-binding" },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "system:kube-vip-role",
        },
        "subjects": [{ "kind": "ServiceAccount", "name": "kube-vip", "namespace": "kube-system" }],
    })
}

fn daemon_set(settings: &KubeVip, kube_prism_port: u16, api_port: u16) -> Value {
    let labels = json!({ "app.kubernetes.io/name": "kube-vip" });
    let version = settings.version.as_deref().unwrap_or(KUBE_VIP);
    let version = if version.starts_with('v') { version.to_owned() } else { format!("v{version}") };
    json!({
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": { "name": "kube-vip-ds", "namespace": "kube-system", "labels": labels },
        "spec": {
            "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": {
                    "serviceAccountName": "kube-vip",
                    "hostNetwork": true,
                    "priorityClassName": "system-node-critical",
                    "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{ "matchExpressions": [
                            { "key": "node-role.kubernetes.io/control-plane", "operator": "Exists" },
                        ] }],
                    } } },
                    "tolerations": [
                        { "effect": "NoSchedule", "operator": "Exists" },
                        { "effect": "NoExecute", "operator": "Exists" },
                    ],
                    "containers": [{
                        "name": "kube-vip",
                        "image": format!("ghcr.io/kube-vip/kube-vip:{version}"),
                        "args": ["manager"],
                        "env": environment(settings, kube_prism_port, api_port),
                        "securityContext": {
                            "capabilities": { "add": ["NET_ADMIN", "NET_RAW"], "drop": ["ALL"] },
                        },
                    }],
                },
            },
        },
    })
}

fn environment(settings: &KubeVip, kube_prism_port: u16, api_port: u16) -> Vec<Value> {
    let prefix = if settings.address.is_ipv4() { "32" } else { "128" };
    let mut variables = vec![
        ("KUBERNETES_SERVICE_HOST", "localhost".to_owned()),
        ("KUBERNETES_SERVICE_PORT", kube_prism_port.to_string()),
        ("address", settings.address.to_string()),
        ("port", api_port.to_string()),
        ("vip_subnet", prefix.to_owned()),
    ];
    // Without a name it takes the interface of the default route.
    variables.extend(settings.interface.clone().map(|interface| ("vip_interface", interface)));
    let fixed = [
        ("vip_arp", "true"),
        ("cp_enable", "true"),
        ("cp_namespace", "kube-system"),
        ("svc_enable", "false"),
        ("vip_leaderelection", "true"),
        ("vip_leaseduration", "5"),
        ("vip_renewdeadline", "3"),
        ("vip_retryperiod", "1"),
    ];
    variables.extend(fixed.map(|(name, value)| (name, value.to_owned())));
    let named = variables.into_iter().map(|(name, value)| json!({ "name": name, "value": value }));
    let node =
        json!({ "name": "vip_nodename", "valueFrom": { "fieldRef": { "fieldPath": "spec.nodeName" } } });
    named.chain([node]).collect()
}
