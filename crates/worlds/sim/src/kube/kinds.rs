//! The kinds of objects that an API server knows.

use std::borrow::Cow;

use serde_json::Value;

use super::{
    store::Store,
    value::{holds, list, text},
};

/// A kind of object and how it is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// The group; empty for the core.
    pub group: Cow<'static, str>,
    /// The version.
    pub version: Cow<'static, str>,
    /// The kind, such as `Deployment`.
    pub kind: Cow<'static, str>,
    /// The name in paths, such as `deployments`.
    pub plural: Cow<'static, str>,
    /// The name of one.
    pub singular: Cow<'static, str>,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// Short names.
    pub short_names: Vec<Cow<'static, str>>,
    /// Categories, such as `all`.
    pub categories: Vec<Cow<'static, str>>,
    /// Whether `status` is written by itself.
    pub status: bool,
    /// Whether it can be scaled.
    pub scale: bool,
    /// Whether a definition made it.
    pub custom: bool,
}

impl Resource {
    /// Returns the name in the store: `deployments.apps`.
    pub fn key(&self) -> String {
        super::status::qualified(&self.plural, &self.group)
    }

    /// Returns `apps/v1`, or `v1` for the core.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Whether only creation makes sense: reviews are answered and not kept.
    pub fn is_review(&self) -> bool {
        self.kind.ends_with("Review")
    }

    /// Returns the verbs.
    pub fn verbs(&self) -> Vec<&'static str> {
        if self.is_review() {
            return vec!["create"];
        }
        vec!["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    }
}

/// group, version, kind, plural, short names, categories, switches: n(amespaced), s(tatus), c(scale).
type Row = (&'static str, &'static str, &'static str, &'static str, &'static str, &'static str, &'static str);

const ROWS: [Row; 59] = [
    ("", "v1", "Namespace", "namespaces", "ns", "", "s"),
    ("", "v1", "Node", "nodes", "no", "", "s"),
    ("", "v1", "Pod", "pods", "po", "all", "ns"),
    ("", "v1", "PodTemplate", "podtemplates", "", "", "n"),
    ("", "v1", "ReplicationController", "replicationcontrollers", "rc", "all", "nsc"),
    ("", "v1", "Service", "services", "svc", "all", "ns"),
    ("", "v1", "Endpoints", "endpoints", "ep", "", "n"),
    ("", "v1", "ConfigMap", "configmaps", "cm", "", "n"),
    ("", "v1", "Secret", "secrets", "", "", "n"),
    ("", "v1", "ServiceAccount", "serviceaccounts", "sa", "", "n"),
    ("", "v1", "Event", "events", "ev", "", "n"),
    ("", "v1", "LimitRange", "limitranges", "limits", "", "n"),
    ("", "v1", "ResourceQuota", "resourcequotas", "quota", "", "ns"),
    ("", "v1", "PersistentVolume", "persistentvolumes", "pv", "", "s"),
    ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", "pvc", "", "ns"),
    ("apiregistration.k8s.io", "v1", "APIService", "apiservices", "", "api-extensions", "s"),
    ("apps", "v1", "ControllerRevision", "controllerrevisions", "", "", "n"),
    ("apps", "v1", "DaemonSet", "daemonsets", "ds", "all", "ns"),
    ("apps", "v1", "Deployment", "deployments", "deploy", "all", "nsc"),
    ("apps", "v1", "ReplicaSet", "replicasets", "rs", "all", "nsc"),
    ("apps", "v1", "StatefulSet", "statefulsets", "sts", "all", "nsc"),
    ("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", "", "", ""),
    ("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", "", "", ""),
    ("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", "", "", ""),
    ("authorization.k8s.io", "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", "", "", ""),
    ("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", "", "", ""),
    ("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", "hpa", "all", "ns"),
    ("batch", "v1", "CronJob", "cronjobs", "cj", "all", "ns"),
    ("batch", "v1", "Job", "jobs", "", "all", "ns"),
    ("certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests", "csr", "", "s"),
    ("networking.k8s.io", "v1", "Ingress", "ingresses", "ing", "", "ns"),
    ("networking.k8s.io", "v1", "IngressClass", "ingressclasses", "", "", ""),
    ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", "netpol", "", "n"),
    ("networking.k8s.io", "v1", "IPAddress", "ipaddresses", "ip", "", ""),
    ("networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs", "", "", "s"),
    ("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", "pdb", "", "ns"),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", "", "", ""),
    ("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", "", "", ""),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles", "", "", "n"),
    ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", "", "", "n"),
    ("storage.k8s.io", "v1", "CSIDriver", "csidrivers", "", "", ""),
    ("storage.k8s.io", "v1", "CSINode", "csinodes", "", "", ""),
    ("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities", "", "", "n"),
    ("storage.k8s.io", "v1", "StorageClass", "storageclasses", "sc", "", ""),
    ("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", "", "", "s"),
    ("storage.k8s.io", "v1", "VolumeAttributesClass", "volumeattributesclasses", "vac", "", ""),
    (
        "admissionregistration.k8s.io",
        "v1",
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        "",
        "api-extensions",
        "",
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        "",
        "api-extensions",
        "",
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        "",
        "api-extensions",
        "s",
    ),
    (
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        "",
        "api-extensions",
        "",
    ),
    (
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "crd,crds",
        "api-extensions",
        "s",
    ),
    ("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", "pc", "", ""),
    ("coordination.k8s.io", "v1", "Lease", "leases", "", "", "n"),
    ("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", "", "", ""),
    ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", "", "", "n"),
    ("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema", "flowschemas", "", "", "s"),
    (
        "flowcontrol.apiserver.k8s.io",
        "v1",
        "PriorityLevelConfiguration",
        "prioritylevelconfigurations",
        "",
        "",
        "s",
    ),
    ("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", "", "", ""),
    ("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", "", "", "ns"),
];

fn words(text: &'static str) -> Vec<Cow<'static, str>> {
    text.split(',').filter(|word| !word.is_empty()).map(Cow::Borrowed).collect()
}

fn from_row(row: &Row) -> Resource {
    let (group, version, kind, plural, short, categories, switches) = *row;
    Resource {
        group: group.into(),
        version: version.into(),
        kind: kind.into(),
        plural: plural.into(),
        singular: kind.to_lowercase().into(),
        namespaced: switches.contains('n'),
        short_names: words(short),
        categories: words(categories),
        status: switches.contains('s'),
        scale: switches.contains('c'),
        custom: false,
    }
}

/// Returns the kinds that every API server knows.
pub fn built_in() -> impl Iterator<Item = Resource> {
    ROWS.iter().map(from_row)
}

/// Returns all kinds: the built-in ones and those of definitions that are established.
pub fn all(store: &Store) -> Vec<Resource> {
    built_in().chain(custom(store)).collect()
}

fn custom(store: &Store) -> impl Iterator<Item = Resource> + use<'_> {
    let definitions = store.list(CRDS, "").filter(|definition| holds(definition, "Established"));
    definitions.flat_map(|definition| {
        let served = list(definition, "/spec/versions").iter().filter(|version| version["served"] == true);
        served.map(move |version| from_definition(definition, version))
    })
}

/// The key of definitions in the store.
pub const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";

fn from_definition(definition: &Value, version: &Value) -> Resource {
    let owned = |value: &str| Cow::Owned(value.to_owned());
    let names =
        |pointer: &str| list(definition, pointer).iter().filter_map(Value::as_str).map(owned).collect();
    Resource {
        group: owned(text(definition, "/spec/group")),
        version: owned(text(version, "/name")),
        kind: owned(text(definition, "/spec/names/kind")),
        plural: owned(text(definition, "/spec/names/plural")),
        singular: owned(text(definition, "/spec/names/singular")),
        namespaced: text(definition, "/spec/scope") == "Namespaced",
        short_names: names("/spec/names/shortNames"),
        categories: names("/spec/names/categories"),
        status: version.pointer("/subresources/status").is_some(),
        scale: version.pointer("/subresources/scale").is_some(),
        custom: true,
    }
}

/// Finds the kind that is served under a group, version and plural name.
pub fn find(store: &Store, group: &str, version: &str, plural: &str) -> Option<Resource> {
    let fits = |row: &&Row| row.0 == group && row.1 == version && row.3 == plural;
    if let Some(row) = ROWS.iter().find(fits) {
        return Some(from_row(row));
    }
    custom(store)
        .find(|resource| resource.group == group && resource.version == version && resource.plural == plural)
}

/// Finds a kind by its kind, in any version.
pub fn by_kind(store: &Store, api_version: &str, kind: &str) -> Option<Resource> {
    let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
    if let Some(row) = ROWS.iter().find(|row| row.0 == group && row.2 == kind) {
        return Some(from_row(row));
    }
    custom(store).find(|resource| resource.group == group && resource.kind == kind)
}

/// Returns the definition of a custom kind, and the schema of a version.
pub fn schema<'s>(store: &'s Store, resource: &Resource) -> Option<&'s Value> {
    let definition = store.get(CRDS, "", &format!("{}.{}", resource.plural, resource.group))?;
    let version = list(definition, "/spec/versions")
        .iter()
        .find(|version| text(version, "/name") == resource.version)?;
    version.pointer("/schema/openAPIV3Schema")
}
