//! Defaults and checks of objects before they are kept.

use serde_json::{Value, json};

use super::{
    kinds::{self, Resource},
    status::{Failure, Flaw},
    store::Store,
    value::{list, name, namespace, number, set, set_default, text},
};

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
    '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
    start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
    '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

/// Whether a text is a DNS label of lower case.
pub fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = text.as_bytes();
    !bytes.is_empty()
        && bytes.iter().all(|byte| inner(*byte) || *byte == b'-')
        && inner(bytes[0])
        && inner(bytes[bytes.len() - 1])
}

fn is_subdomain(text: &str) -> bool {
    !text.is_empty() && text.split('.').all(is_label)
}

/// Checks the name, namespace and labels of an object.
pub fn metadata(resource: &Resource, object: &Value) -> Vec<Flaw> {
    let mut flaws = Vec::new();
    let name = name(object);
    let key = resource.key();
    if name.is_empty() {
        flaws.push(Flaw::required("metadata.name", "name or generateName is required"));
    } else if key.ends_with("rbac.authorization.k8s.io") {
        if name.contains(['/', '%']) || matches!(name, "." | "..") {
            flaws.push(Flaw::invalid("metadata.name", &name.into(), "may not contain '/'"));
        }
    } else {
        let label = matches!(key.as_str(), "namespaces" | "services" | "statefulsets.apps");
        let (fits, longest, rule) =
            if label { (is_label(name), 63, LABEL) } else { (is_subdomain(name), 253, SUBDOMAIN) };
        if !fits {
            flaws.push(Flaw::invalid("metadata.name", &name.into(), rule));
        }
        if name.len() > longest {
            let why = format!("must be no more than {longest} characters");
            flaws.push(Flaw::invalid("metadata.name", &name.into(), &why));
        }
    }
    if let Some(labels) = object.pointer("/metadata/labels").and_then(Value::as_object) {
        for (key, value) in labels {
            label_flaws(key, value, &mut flaws);
        }
    }
    flaws
}

fn label_flaws(key: &str, value: &Value, flaws: &mut Vec<Flaw>) {
    let inner = |c: char| c.is_ascii_alphanumeric();
    let word = |text: &str| {
        text.len() <= 63
            && text.chars().all(|c| inner(c) || "-_.".contains(c))
            && text.starts_with(inner)
            && text.ends_with(inner)
    };
    let (prefix, last) = key.split_once('/').map_or((None, key), |(prefix, last)| (Some(prefix), last));
    if !word(last) || prefix.is_some_and(|prefix| !is_subdomain(prefix)) {
        let why = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
            alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
            '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
        flaws.push(Flaw::invalid("metadata.labels", &key.into(), why));
    }
    let text = value.as_str().unwrap_or("?");
    if !text.is_empty() && !word(text) {
        let why = if text.len() > 63 {
            "must be no more than 63 characters"
        } else {
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
             start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
             validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
        };
        flaws.push(Flaw::invalid("metadata.labels", value, why));
    }
}

/// Fills in what the API server fills in.
pub fn default(resource: &Resource, object: &mut Value) {
    match resource.key().as_str() {
        "pods" => default_pod_spec(object.get_mut("spec")),
        "deployments.apps" => {
            set_default(object, &["spec", "replicas"], json!(1));
            set_default(object, &["spec", "revisionHistoryLimit"], json!(10));
            set_default(object, &["spec", "progressDeadlineSeconds"], json!(600));
            set_default(object, &["spec", "strategy", "type"], json!("RollingUpdate"));
            if text(object, "/spec/strategy/type") == "RollingUpdate" {
                set_default(object, &["spec", "strategy", "rollingUpdate", "maxUnavailable"], json!("25%"));
                set_default(object, &["spec", "strategy", "rollingUpdate", "maxSurge"], json!("25%"));
            }
            default_pod_spec(object.pointer_mut("/spec/template/spec"));
        }
        "daemonsets.apps" => {
            set_default(object, &["spec", "revisionHistoryLimit"], json!(10));
            set_default(object, &["spec", "updateStrategy", "type"], json!("RollingUpdate"));
            if text(object, "/spec/updateStrategy/type") == "RollingUpdate" {
                set_default(object, &["spec", "updateStrategy", "rollingUpdate", "maxUnavailable"], json!(1));
                set_default(object, &["spec", "updateStrategy", "rollingUpdate", "maxSurge"], json!(0));
            }
            default_pod_spec(object.pointer_mut("/spec/template/spec"));
        }
        "statefulsets.apps" => {
            set_default(object, &["spec", "replicas"], json!(1));
            set_default(object, &["spec", "revisionHistoryLimit"], json!(10));
            set_default(object, &["spec", "podManagementPolicy"], json!("OrderedReady"));
            set_default(object, &["spec", "updateStrategy", "type"], json!("RollingUpdate"));
            default_pod_spec(object.pointer_mut("/spec/template/spec"));
        }
        "replicasets.apps" => {
            set_default(object, &["spec", "replicas"], json!(1));
            default_pod_spec(object.pointer_mut("/spec/template/spec"));
        }
        "jobs.batch" => {
            set_default(object, &["spec", "completions"], json!(1));
            set_default(object, &["spec", "parallelism"], json!(1));
            set_default(object, &["spec", "backoffLimit"], json!(6));
            set_default(object, &["spec", "completionMode"], json!("NonIndexed"));
            set_default(object, &["spec", "suspend"], json!(false));
            default_pod_spec(object.pointer_mut("/spec/template/spec"));
        }
        "services" => default_service(object),
        "secrets" => default_secret(object),
        "namespaces" => {
            let name = name(object).to_owned();
            set(object, &["metadata", "labels", "kubernetes.io/metadata.name"], name.into());
            set_default(object, &["spec", "finalizers"], json!(["kubernetes"]));
            set_default(object, &["status", "phase"], json!("Active"));
        }
        "persistentvolumeclaims" => {
            set_default(object, &["spec", "volumeMode"], json!("Filesystem"));
            set_default(object, &["status", "phase"], json!("Pending"));
        }
        "storageclasses.storage.k8s.io" => {
            set_default(object, &["reclaimPolicy"], json!("Delete"));
            set_default(object, &["volumeBindingMode"], json!("Immediate"));
        }
        kinds::CRDS => default_definition(object),
        _ => {}
    }
}

fn default_pod_spec(spec: Option<&mut Value>) {
    let Some(spec) = spec else { return };
    for (key, value) in [
        ("restartPolicy", json!("Always")),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("securityContext", json!({})),
    ] {
        set_default(spec, &[key], value);
    }
    for field in ["containers", "initContainers"] {
        let Some(containers) = spec.get_mut(field).and_then(Value::as_array_mut) else { continue };
        for container in containers.iter_mut().filter(|container| container.is_object()) {
            let image = text(container, "/image").to_owned();
            let latest =
                !image.contains('@') && image.rsplit('/').next().is_some_and(|last| !last.contains(':'));
            let latest = latest || image.ends_with(":latest");
            let policy = if latest { "Always" } else { "IfNotPresent" };
            set_default(container, &["imagePullPolicy"], json!(policy));
            set_default(container, &["terminationMessagePath"], json!("/dev/termination-log"));
            set_default(container, &["terminationMessagePolicy"], json!("File"));
            set_default(container, &["resources"], json!({}));
            let ports = container.get_mut("ports").and_then(Value::as_array_mut);
            for port in ports.into_iter().flatten().filter(|port| port.is_object()) {
                set_default(port, &["protocol"], json!("TCP"));
            }
        }
    }
}

fn default_service(object: &mut Value) {
    set_default(object, &["spec", "type"], json!("ClusterIP"));
    set_default(object, &["spec", "sessionAffinity"], json!("None"));
    if text(object, "/spec/type") != "ExternalName" {
        set_default(object, &["spec", "internalTrafficPolicy"], json!("Cluster"));
        set_default(object, &["spec", "ipFamilies"], json!(["IPv4"]));
        set_default(object, &["spec", "ipFamilyPolicy"], json!("SingleStack"));
    }
    if matches!(text(object, "/spec/type"), "NodePort" | "LoadBalancer") {
        set_default(object, &["spec", "externalTrafficPolicy"], json!("Cluster"));
        set_default(object, &["spec", "allocateLoadBalancerNodePorts"], json!(true));
    }
    let ports = object.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter(|port| port.is_object()) {
        set_default(port, &["protocol"], json!("TCP"));
        let number = port.get("port").cloned().unwrap_or(Value::Null);
        set_default(port, &["targetPort"], number);
    }
    set_default(object, &["status", "loadBalancer"], json!({}));
}

fn default_secret(object: &mut Value) {
    use base64::Engine as _;
    set_default(object, &["type"], json!("Opaque"));
    let plain = object.as_object_mut().and_then(|map| map.shift_remove("stringData"));
    let Some(Value::Object(plain)) = plain else { return };
    for (key, value) in plain {
        let encoded = base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
        set(object, &["data", &key], encoded.into());
    }
}

fn default_definition(object: &mut Value) {
    let kind = text(object, "/spec/names/kind").to_owned();
    set_default(object, &["spec", "names", "singular"], kind.to_lowercase().into());
    set_default(object, &["spec", "names", "listKind"], format!("{kind}List").into());
    set_default(object, &["spec", "conversion", "strategy"], json!("None"));
}

/// Checks what is particular to a kind.
pub fn particular(store: &Store, resource: &Resource, object: &Value) -> Vec<Flaw> {
    let mut flaws = Vec::new();
    let key = resource.key();
    match key.as_str() {
        "pods" => pod_spec_flaws(object.get("spec"), "spec", &mut flaws),
        "deployments.apps" | "daemonsets.apps" | "statefulsets.apps" | "replicasets.apps" => {
            workload_flaws(object, &mut flaws);
        }
        "jobs.batch" => {
            pod_spec_flaws(object.pointer("/spec/template/spec"), "spec.template.spec", &mut flaws);
            let policy = text(object, "/spec/template/spec/restartPolicy");
            if !matches!(policy, "Never" | "OnFailure") {
                let field = "spec.template.spec.restartPolicy";
                flaws.push(Flaw::unsupported(field, &policy.into(), &["OnFailure", "Never"]));
            }
        }
        "services" => {
            let headless = matches!(text(object, "/spec/type"), "ExternalName")
                || text(object, "/spec/clusterIP") == "None";
            if list(object, "/spec/ports").is_empty() && !headless {
                flaws.push(Flaw::required("spec.ports", ""));
            }
        }
        "poddisruptionbudgets.policy"
            if object.pointer("/spec/minAvailable").is_some()
                && object.pointer("/spec/maxUnavailable").is_some() =>
        {
            let why = "minAvailable and maxUnavailable cannot be both set";
            flaws.push(Flaw::invalid("spec", &object["spec"], why));
        }
        kinds::CRDS => definition_flaws(object, &mut flaws),
        _ if resource.custom => {
            if let Some(schema) = kinds::schema(store, resource) {
                super::schema::check(schema, object, &mut flaws);
            }
        }
        _ => {}
    }
    flaws
}

fn workload_flaws(object: &Value, flaws: &mut Vec<Flaw>) {
    let selector = object.pointer("/spec/selector").filter(|selector| !selector.is_null());
    match selector {
        None => flaws.push(Flaw::required("spec.selector", "")),
        Some(selector) => {
            let template = object.pointer("/spec/template").cloned().unwrap_or_default();
            if !super::selector::Labels::of(selector).fit(&template) {
                let labels = template.pointer("/metadata/labels").cloned().unwrap_or_else(|| json!(null));
                let why = "`selector` does not match template `labels`";
                flaws.push(Flaw::invalid("spec.template.metadata.labels", &labels, why));
            }
        }
    }
    if number(object, "/spec/replicas").is_some_and(|replicas| replicas < 0) {
        let why = "must be greater than or equal to 0";
        flaws.push(Flaw::invalid("spec.replicas", &object["spec"]["replicas"], why));
    }
    pod_spec_flaws(object.pointer("/spec/template/spec"), "spec.template.spec", flaws);
}

fn pod_spec_flaws(spec: Option<&Value>, field: &str, flaws: &mut Vec<Flaw>) {
    let containers = spec.map_or(&[][..], |spec| list(spec, "/containers"));
    if containers.is_empty() {
        flaws.push(Flaw::required(format!("{field}.containers"), ""));
    }
    for (at, container) in containers.iter().enumerate() {
        if text(container, "/name").is_empty() {
            flaws.push(Flaw::required(format!("{field}.containers[{at}].name"), ""));
        }
        if text(container, "/image").is_empty() {
            flaws.push(Flaw::required(format!("{field}.containers[{at}].image"), ""));
        }
    }
}

fn definition_flaws(object: &Value, flaws: &mut Vec<Flaw>) {
    let wanted = format!("{}.{}", text(object, "/spec/names/plural"), text(object, "/spec/group"));
    if name(object) != wanted {
        let why = "must be spec.names.plural+\".\"+spec.group";
        flaws.push(Flaw::invalid("metadata.name", &name(object).into(), why));
    }
    let scope = text(object, "/spec/scope");
    if !matches!(scope, "Namespaced" | "Cluster") {
        flaws.push(Flaw::unsupported("spec.scope", &scope.into(), &["Cluster", "Namespaced"]));
    }
    let versions = list(object, "/spec/versions");
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        flaws.push(Flaw::invalid("spec.versions", &object["spec"]["versions"], why));
    }
    for (at, version) in versions.iter().enumerate() {
        if version.pointer("/schema/openAPIV3Schema").is_none() {
            let field = format!("spec.versions[{at}].schema.openAPIV3Schema");
            flaws.push(Flaw::required(field, "schemas are required"));
        }
    }
}

/// Checks what must not change.
pub fn unchanging(resource: &Resource, old: &Value, new: &Value) -> Vec<Flaw> {
    let mut flaws = Vec::new();
    let fields: &[(&str, &str)] = match resource.key().as_str() {
        "deployments.apps" | "daemonsets.apps" | "replicasets.apps" => &[("/spec/selector", "spec.selector")],
        "statefulsets.apps" => {
            &[("/spec/selector", "spec.selector"), ("/spec/serviceName", "spec.serviceName")]
        }
        "storageclasses.storage.k8s.io" => &[("/provisioner", "provisioner"), ("/parameters", "parameters")],
        "clusterrolebindings.rbac.authorization.k8s.io" | "rolebindings.rbac.authorization.k8s.io" => {
            &[("/roleRef", "roleRef")]
        }
        "secrets" => &[("/type", "type")],
        _ => &[],
    };
    for (pointer, field) in fields {
        if let (Some(before), after) = (old.pointer(pointer), new.pointer(pointer).unwrap_or(&Value::Null))
            && before != after
        {
            flaws.push(Flaw::invalid(*field, after, "field is immutable"));
        }
    }
    if matches!(resource.key().as_str(), "secrets" | "configmaps")
        && old["immutable"] == true
        && old.get("data") != new.get("data")
    {
        flaws.push(Flaw::forbidden("data", "field is immutable when `immutable` is set"));
    }
    flaws
}

/// Refuses objects that cannot come into being in their namespace.
pub fn admit_into_namespace(store: &Store, resource: &Resource, object: &Value) -> Result<(), Failure> {
    if !resource.namespaced {
        return Ok(());
    }
    let namespace = namespace(object);
    let Some(found) = store.get("namespaces", "", namespace) else {
        return Err(Failure::not_found("namespaces", "", namespace));
    };
    if text(found, "/status/phase") == "Terminating" {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let cause = json!({
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        });
        return Err(Failure::forbidden(&resource.plural, &resource.group, name(object), &why)
            .with_causes(vec![cause]));
    }
    Ok(())
}
