//! How kinds are served.

use std::borrow::Cow;

use serde::Deserialize;

/// A kind of object and the path that it is served under.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Resource {
    /// The group; empty for the core.
    pub group: Cow<'static, str>,
    /// The version, such as `v1`.
    pub version: Cow<'static, str>,
    /// The kind, such as `Node`.
    pub kind: Cow<'static, str>,
    /// Its name in paths, such as `nodes`.
    pub plural: Cow<'static, str>,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
}

const fn known(group: &'static str, kind: &'static str, plural: &'static str, namespaced: bool) -> Resource {
    Resource {
        group: Cow::Borrowed(group),
        version: Cow::Borrowed("v1"),
        kind: Cow::Borrowed(kind),
        plural: Cow::Borrowed(plural),
        namespaced,
    }
}

pub(crate) const NODES: Resource = known("", "Node", "nodes", false);
pub(crate) const PODS: Resource = known("", "Pod", "pods", true);
pub(crate) const VOLUMES: Resource = known("", "PersistentVolume", "persistentvolumes", false);
pub(crate) const DEPLOYMENTS: Resource = known("apps", "Deployment", "deployments", true);
pub(crate) const DAEMON_SETS: Resource = known("apps", "DaemonSet", "daemonsets", true);
pub(crate) const STATEFUL_SETS: Resource = known("apps", "StatefulSet", "statefulsets", true);
pub(crate) const SIGNING_REQUESTS: Resource =
    known("certificates.k8s.io", "CertificateSigningRequest", "certificatesigningrequests", false);

impl Resource {
    /// Nodes.
    pub const NODES: Self = NODES;
    /// Pods.
    pub const PODS: Self = PODS;
    /// Volumes that outlive pods.
    pub const VOLUMES: Self = VOLUMES;
    /// Deployments.
    pub const DEPLOYMENTS: Self = DEPLOYMENTS;
    /// Daemon sets.
    pub const DAEMON_SETS: Self = DAEMON_SETS;
    /// Stateful sets.
    pub const STATEFUL_SETS: Self = STATEFUL_SETS;
    /// Requests for certificates.
    pub const SIGNING_REQUESTS: Self = SIGNING_REQUESTS;
    /// Namespaces.
    pub const NAMESPACES: Self = known("", "Namespace", "namespaces", false);
    /// Config maps.
    pub const CONFIG_MAPS: Self = known("", "ConfigMap", "configmaps", true);
    /// Secrets.
    pub const SECRETS: Self = known("", "Secret", "secrets", true);
    /// Budgets for disruptions.
    pub const BUDGETS: Self = known("policy", "PodDisruptionBudget", "poddisruptionbudgets", true);
    /// Definitions of further kinds.
    pub const DEFINITIONS: Self =
        known("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", false);

    /// Returns `apps/v1`, or `v1` for the core.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Returns the path, segment by segment. A namespace means nothing to kinds that are not in one.
    pub(crate) fn segments<'a>(&'a self, namespace: Option<&'a str>) -> Vec<&'a str> {
        let mut segments = group_segments(&self.group, &self.version);
        if let Some(namespace) = namespace.filter(|_| self.namespaced) {
            segments.extend(["namespaces", namespace]);
        }
        segments.push(&self.plural);
        segments
    }
}

fn group_segments<'a>(group: &'a str, version: &'a str) -> Vec<&'a str> {
    if group.is_empty() { vec!["api", version] } else { vec!["apis", group, version] }
}

/// Returns the path of an `apiVersion`, segment by segment.
pub(crate) fn api_segments(api_version: &str) -> Vec<&str> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    group_segments(group, version)
}

/// The kinds of one group and version.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Served {
    #[serde(rename = "groupVersion")]
    api_version: String,
    #[serde(default, deserialize_with = "crate::read::or_default")]
    resources: Vec<ServedRow>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct ServedRow {
    name: String,
    #[serde(default)]
    namespaced: bool,
    kind: String,
}

impl Served {
    /// Finds a kind.
    pub fn find(&self, kind: &str) -> Option<Resource> {
        // `deployments/status` and its like are parts of objects, and often of the same kind.
        let row = self.resources.iter().find(|row| row.kind == kind && !row.name.contains('/'))?;
        let (group, version) = self.api_version.split_once('/').unwrap_or(("", &self.api_version));
        Some(Resource {
            group: group.to_owned().into(),
            version: version.to_owned().into(),
            kind: row.kind.clone().into(),
            plural: row.name.clone().into(),
            namespaced: row.namespaced,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_found_and_not_a_part_of_it() {
        let served: Served = serde_json::from_str(
            r#"{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "apps/v1", "resources": [
                {"name": "deployments/status", "singularName": "", "namespaced": true, "kind": "Deployment"},
                {"name": "deployments", "singularName": "deployment", "namespaced": true, "kind": "Deployment"},
                {"name": "deployments/scale", "group": "autoscaling", "namespaced": true, "kind": "Scale"}]}"#,
        )
        .expect("a list");
        assert_eq!(served.find("Deployment"), Some(DEPLOYMENTS));
        assert_eq!(served.find("Scale"), None);
        let null: Served =
            serde_json::from_str(r#"{"groupVersion": "v1", "resources": null}"#).expect("a list");
        assert_eq!(null.find("Node"), None);
    }

    #[test]
    fn the_core_has_a_path_of_its_own() {
        assert_eq!(NODES.segments(Some("x")), ["api", "v1", "nodes"]);
        assert_eq!(DEPLOYMENTS.segments(Some("x")), ["apis", "apps", "v1", "namespaces", "x", "deployments"]);
        assert_eq!(DEPLOYMENTS.segments(None), ["apis", "apps", "v1", "deployments"]);
        assert_eq!(api_segments("v1"), ["api", "v1"]);
        assert_eq!(api_segments("policy/v1"), ["apis", "policy", "v1"]);
    }
}
