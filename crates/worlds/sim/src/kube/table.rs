//! Objects as tables, for `kubectl get`.

use serde_json::{Value, json};

use super::{
    kinds,
    store::Store,
    target::Target,
    value::{holds, is_terminating, label, list, name, number, parse_calendar, text},
};
use crate::{clock::Time, wire::Request};

/// What a client wants in place of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Form {
    /// A table.
    Table,
    /// Only metadata.
    Metadata,
}

/// Returns the form that a request asks for first, if it is not objects.
pub fn asked(request: &Request) -> Option<Form> {
    let accept = request.header("accept")?;
    let first = accept.split(',').next()?;
    let has = |word: &str| first.split(';').any(|part| part.trim() == word);
    if !has("g=meta.k8s.io") || !has("v=v1") {
        return None;
    }
    if has("as=Table") {
        Some(Form::Table)
    } else if has("as=PartialObjectMetadataList") || has("as=PartialObjectMetadata") {
        Some(Form::Metadata)
    } else {
        None
    }
}

/// Returns an object's metadata alone.
pub fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}

/// Renders a list.
pub fn render(
    store: &Store,
    target: &Target,
    items: &[Value],
    metadata: &Value,
    form: Form,
    now: Time,
) -> Value {
    if form == Form::Metadata {
        let items: Vec<Value> = items.iter().map(partial).collect();
        return json!({
            "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "items": items,
        });
    }
    let columns = columns(store, target);
    let include = target.query.get("includeObject");
    let rows: Vec<Value> = items
        .iter()
        .map(|item| {
            let cells: Vec<Value> = columns.iter().map(|column| (column.cell)(item, column, now)).collect();
            let mut row = json!({"cells": cells});
            match include {
                "None" => {}
                "Object" => row["object"] = item.clone(),
                _ => row["object"] = partial(item),
            }
            row
        })
        .collect();
    let definitions: Vec<Value> = columns
        .iter()
        .map(|column| {
            json!({
                "name": column.title, "type": column.kind, "format": if column.title == "Name" { "name" } else { "" },
                "description": "", "priority": column.priority,
            })
        })
        .collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
        "columnDefinitions": definitions, "rows": rows,
    })
}

struct Column {
    title: String,
    kind: String,
    priority: i64,
    path: String,
    cell: fn(&Value, &Column, Time) -> Value,
}

fn column(title: &str, cell: fn(&Value, &Column, Time) -> Value) -> Column {
    Column { title: title.into(), kind: "string".into(), priority: 0, path: String::new(), cell }
}

fn wide(title: &str, cell: fn(&Value, &Column, Time) -> Value) -> Column {
    Column { priority: 1, ..column(title, cell) }
}

fn field(title: &str, path: &str) -> Column {
    Column { path: path.into(), ..column(title, |object, column, _| shown(object.pointer(&column.path))) }
}

fn wide_field(title: &str, path: &str) -> Column {
    Column { priority: 1, ..field(title, path) }
}

fn count(title: &str, path: &str) -> Column {
    Column {
        path: path.into(),
        kind: "integer".into(),
        ..column(title, |object, column, _| number(object, &column.path).unwrap_or(0).into())
    }
}

fn shown(value: Option<&Value>) -> Value {
    match value {
        None | Some(Value::Null) => "<none>".into(),
        Some(Value::String(text)) if text.is_empty() => "<none>".into(),
        Some(Value::Array(items)) => {
            let words: Vec<String> =
                items.iter().map(|item| item.as_str().map_or_else(|| item.to_string(), Into::into)).collect();
            words.join(",").into()
        }
        Some(value @ Value::Object(_)) => value.to_string().into(),
        Some(value) => value.clone(),
    }
}

fn columns(store: &Store, target: &Target) -> Vec<Column> {
    let mut all = vec![column("Name", |object, _, _| name(object).into())];
    let age = || column("Age", |object, _, now| age(object, now).into());
    all.extend(match target.resource.key().as_str() {
        "pods" => vec![
            column("Ready", |object, _, _| ready_containers(object).into()),
            column("Status", |object, _, _| pod_status(object).into()),
            column("Restarts", |object, _, _| restarts(object).into()),
            age(),
            wide_field("IP", "/status/podIP"),
            wide_field("Node", "/spec/nodeName"),
            wide_field("Nominated Node", "/status/nominatedNodeName"),
            wide("Readiness Gates", |_, _, _| "<none>".into()),
        ],
        "nodes" => vec![
            column("Status", |object, _, _| node_status(object).into()),
            column("Roles", |object, _, _| roles(object).into()),
            age(),
            field("Version", "/status/nodeInfo/kubeletVersion"),
            wide("Internal-IP", |object, _, _| address(object, "InternalIP").into()),
            wide("External-IP", |object, _, _| address(object, "ExternalIP").into()),
            wide_field("OS-Image", "/status/nodeInfo/osImage"),
            wide_field("Kernel-Version", "/status/nodeInfo/kernelVersion"),
            wide_field("Container-Runtime", "/status/nodeInfo/containerRuntimeVersion"),
        ],
        "namespaces" => vec![field("Status", "/status/phase"), age()],
        "services" => service_columns(age()),
        "deployments.apps" | "statefulsets.apps" | "daemonsets.apps" | "replicasets.apps" => {
            workload_columns(target.resource.kind.as_ref(), age())
        }
        "jobs.batch" => vec![
            column("Status", |object, _, _| {
                let done = if holds(object, "Complete") {
                    "Complete"
                } else if holds(object, "Failed") {
                    "Failed"
                } else {
                    "Running"
                };
                done.into()
            }),
            column("Completions", |object, _, _| {
                let wanted = number(object, "/spec/completions").unwrap_or(1);
                format!("{}/{wanted}", number(object, "/status/succeeded").unwrap_or(0)).into()
            }),
            age(),
        ],
        "configmaps" => vec![column("Data", |object, _, _| entries(object).into()), age()],
        "secrets" => {
            vec![field("Type", "/type"), column("Data", |object, _, _| entries(object).into()), age()]
        }
        "poddisruptionbudgets.policy" => vec![
            column("Min Available", |object, _, _| or_not(object.pointer("/spec/minAvailable"))),
            column("Max Unavailable", |object, _, _| or_not(object.pointer("/spec/maxUnavailable"))),
            count("Allowed Disruptions", "/status/disruptionsAllowed"),
            age(),
        ],
        "persistentvolumeclaims" => vec![
            field("Status", "/status/phase"),
            field("Volume", "/spec/volumeName"),
            field("Capacity", "/status/capacity/storage"),
            field("Access Modes", "/spec/accessModes"),
            field("StorageClass", "/spec/storageClassName"),
            age(),
        ],
        "storageclasses.storage.k8s.io" => vec![
            field("Provisioner", "/provisioner"),
            field("ReclaimPolicy", "/reclaimPolicy"),
            field("VolumeBindingMode", "/volumeBindingMode"),
            field("AllowVolumeExpansion", "/allowVolumeExpansion"),
            age(),
        ],
        kinds::CRDS => vec![field("Created At", "/metadata/creationTimestamp")],
        "certificatesigningrequests.certificates.k8s.io" => vec![
            age(),
            field("SignerName", "/spec/signerName"),
            field("Requestor", "/spec/username"),
            column("Condition", |object, _, _| request_state(object).into()),
        ],
        "events" => {
            return vec![
                column("Last Seen", |object, _, now| since(text(object, "/lastTimestamp"), now).into()),
                field("Type", "/type"),
                field("Reason", "/reason"),
                column("Object", |object, _, _| {
                    let kind = text(object, "/involvedObject/kind").to_lowercase();
                    format!("{kind}/{}", text(object, "/involvedObject/name")).into()
                }),
                field("Message", "/message"),
            ];
        }
        "leases.coordination.k8s.io" => vec![field("Holder", "/spec/holderIdentity"), age()],
        _ if target.resource.custom => custom_columns(store, target, age()),
        _ => vec![age()],
    });
    all
}

fn service_columns(age: Column) -> Vec<Column> {
    vec![
        field("Type", "/spec/type"),
        field("Cluster-IP", "/spec/clusterIP"),
        column("External-IP", |object, _, _| {
            let given = list(object, "/status/loadBalancer/ingress").first();
            match (given, text(object, "/spec/type")) {
                (Some(given), _) => text(given, "/ip").into(),
                (None, "LoadBalancer") => "<pending>".into(),
                _ => "<none>".into(),
            }
        }),
        column("Port(s)", |object, _, _| {
            let ports: Vec<String> = list(object, "/spec/ports")
                .iter()
                .map(|port| {
                    let node = number(port, "/nodePort").map_or(String::new(), |port| format!(":{port}"));
                    format!("{}{node}/{}", number(port, "/port").unwrap_or(0), text(port, "/protocol"))
                })
                .collect();
            if ports.is_empty() { "<none>".into() } else { ports.join(",").into() }
        }),
        age,
        wide("Selector", |object, _, _| pairs(object.pointer("/spec/selector")).into()),
    ]
}

fn workload_columns(kind: &str, age: Column) -> Vec<Column> {
    let ready = || {
        column("Ready", |object, _, _| {
            let wanted = number(object, "/spec/replicas").unwrap_or(0);
            format!("{}/{wanted}", number(object, "/status/readyReplicas").unwrap_or(0)).into()
        })
    };
    let tail = [
        wide("Containers", |object, _, _| containers(object, "/name").into()),
        wide("Images", |object, _, _| containers(object, "/image").into()),
    ];
    let mut columns = match kind {
        "Deployment" => vec![
            ready(),
            count("Up-to-date", "/status/updatedReplicas"),
            count("Available", "/status/availableReplicas"),
            age,
        ],
        "StatefulSet" => vec![ready(), age],
        "DaemonSet" => vec![
            count("Desired", "/status/desiredNumberScheduled"),
            count("Current", "/status/currentNumberScheduled"),
            count("Ready", "/status/numberReady"),
            count("Up-to-date", "/status/updatedNumberScheduled"),
            count("Available", "/status/numberAvailable"),
            column("Node Selector", |object, _, _| {
                pairs(object.pointer("/spec/template/spec/nodeSelector")).into()
            }),
            age,
        ],
        _ => vec![
            count("Desired", "/spec/replicas"),
            count("Current", "/status/replicas"),
            count("Ready", "/status/readyReplicas"),
            age,
        ],
    };
    columns.extend(tail);
    if kind != "StatefulSet" {
        columns.push(wide("Selector", |object, _, _| {
            pairs(object.pointer("/spec/selector/matchLabels")).into()
        }));
    }
    columns
}

fn custom_columns(store: &Store, target: &Target, age: Column) -> Vec<Column> {
    let definition = store.get(kinds::CRDS, "", &target.resource.key());
    let versions = definition.map_or(&[][..], |definition| list(definition, "/spec/versions"));
    let version = versions.iter().find(|version| text(version, "/name") == target.resource.version);
    let given = version.map_or(&[][..], |version| list(version, "/additionalPrinterColumns"));
    if given.is_empty() {
        return vec![age];
    }
    given
        .iter()
        .map(|given| Column {
            title: text(given, "/name").into(),
            kind: text(given, "/type").into(),
            priority: number(given, "/priority").unwrap_or(0),
            // Only plain paths are followed; expressions with filters show nothing.
            path: text(given, "/jsonPath").replace('.', "/"),
            cell: |object, column, now| match (column.kind.as_str(), object.pointer(&column.path)) {
                ("date", Some(Value::String(date))) => since(date, now).into(),
                (_, value) => shown(value),
            },
        })
        .collect()
}

fn or_not(value: Option<&Value>) -> Value {
    value.cloned().unwrap_or_else(|| "N/A".into())
}

fn entries(object: &Value) -> i64 {
    let count = object.get("data").and_then(Value::as_object).map_or(0, serde_json::Map::len);
    i64::try_from(count).unwrap_or(0)
}

fn containers(object: &Value, pointer: &str) -> String {
    let names: Vec<&str> =
        list(object, "/spec/template/spec/containers").iter().map(|item| text(item, pointer)).collect();
    names.join(",")
}

fn pairs(map: Option<&Value>) -> String {
    let Some(map) = map.and_then(Value::as_object).filter(|map| !map.is_empty()) else {
        return "<none>".into();
    };
    let mut words: Vec<String> =
        map.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    words.sort();
    words.join(",")
}

fn ready_containers(pod: &Value) -> String {
    let states = list(pod, "/status/containerStatuses");
    let ready = states.iter().filter(|state| state["ready"] == true).count();
    format!("{ready}/{}", list(pod, "/spec/containers").len())
}

fn pod_status(pod: &Value) -> String {
    if is_terminating(pod) {
        return "Terminating".into();
    }
    let waiting =
        list(pod, "/status/containerStatuses").iter().map(|state| text(state, "/state/waiting/reason"));
    if let Some(reason) = waiting.into_iter().find(|reason| !reason.is_empty()) {
        return reason.into();
    }
    match text(pod, "/status/phase") {
        "Succeeded" => "Completed".into(),
        phase => phase.into(),
    }
}

fn restarts(pod: &Value) -> i64 {
    list(pod, "/status/containerStatuses").iter().filter_map(|state| number(state, "/restartCount")).sum()
}

fn node_status(node: &Value) -> String {
    let ready = if holds(node, "Ready") { "Ready" } else { "NotReady" };
    if node.pointer("/spec/unschedulable") == Some(&Value::Bool(true)) {
        format!("{ready},SchedulingDisabled")
    } else {
        ready.into()
    }
}

fn roles(node: &Value) -> String {
    let labels = node.pointer("/metadata/labels").and_then(Value::as_object);
    let mut roles: Vec<&str> = labels
        .into_iter()
        .flatten()
        .filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/"))
        .collect();
    roles.extend(label(node, "kubernetes.io/role"));
    roles.sort_unstable();
    if roles.is_empty() { "<none>".into() } else { roles.join(",") }
}

fn address(node: &Value, kind: &str) -> String {
    let found = list(node, "/status/addresses").iter().find(|address| text(address, "/type") == kind);
    found.map_or_else(|| "<none>".into(), |address| text(address, "/address").into())
}

fn request_state(request: &Value) -> String {
    let mut words: Vec<&str> = Vec::new();
    for kind in ["Approved", "Denied", "Failed"] {
        if holds(request, kind) {
            words.push(kind);
        }
    }
    if words.is_empty() {
        words.push("Pending");
    }
    if !text(request, "/status/certificate").is_empty() {
        words.push("Issued");
    }
    words.join(",")
}

fn age(object: &Value, now: Time) -> String {
    since(text(object, "/metadata/creationTimestamp"), now)
}

/// Returns how long ago something was, as people like to read it.
pub fn since(moment: &str, now: Time) -> String {
    let Some(then) = parse_calendar(moment) else { return "<unknown>".into() };
    let seconds = now.unix_seconds().saturating_sub(then);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let with = |rest: u64, unit: &str| if rest == 0 { String::new() } else { format!("{rest}{unit}") };
    match seconds {
        ..120 => format!("{seconds}s"),
        120..600 => format!("{minutes}m{}", with(seconds % 60, "s")),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => format!("{hours}h{}", with(minutes % 60, "m")),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => format!("{days}d{}", with(hours % 24, "h")),
        _ => format!("{days}d"),
    }
}
