//! Deployments, daemon sets and stateful sets: whether they are as they are wanted.

use ichor_port::Method;
use serde::Deserialize;

use crate::{
    call::Call,
    object::{List, Metadata, ObjectName},
    read::or_default,
    resource::{DAEMON_SETS, DEPLOYMENTS, STATEFUL_SETS},
};

/// A set of pods that something keeps up.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(from = "Raw")]
pub struct Workload {
    /// Which.
    pub name: ObjectName,
    /// Whether its controller has seen what is wanted.
    pub seen: bool,
    /// How many pods are wanted.
    pub wanted: i64,
    /// How many are as they are wanted now.
    pub updated: i64,
    /// How many can be used.
    pub ready: i64,
    /// How many there are, old ones included.
    pub present: i64,
}

impl Workload {
    /// Says why it is not ready; nothing when it is.
    pub fn unready(&self) -> Option<String> {
        let Self { seen, wanted, updated, ready, present, .. } = *self;
        if !seen {
            Some("what is wanted has not been seen yet".into())
        } else if updated < wanted {
            Some(format!("{updated} of {wanted} pods are up to date"))
        } else if ready < wanted {
            Some(format!("{ready} of {wanted} pods are ready"))
        } else if present > wanted {
            Some(format!("{} old pods are still there", present - wanted))
        } else {
            None
        }
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
    /// One, if nobody says how many.
    replicas: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[serde(deserialize_with = "or_default")]
    observed_generation: i64,
    #[serde(deserialize_with = "or_default")]
    replicas: i64,
    #[serde(deserialize_with = "or_default")]
    updated_replicas: i64,
    #[serde(deserialize_with = "or_default")]
    available_replicas: i64,
    // Daemon sets have numbers of their own, and the first of them whenever they have a status.
    desired_number_scheduled: Option<i64>,
    #[serde(deserialize_with = "or_default")]
    current_number_scheduled: i64,
    #[serde(deserialize_with = "or_default")]
    updated_number_scheduled: i64,
    #[serde(deserialize_with = "or_default")]
    number_available: i64,
}

impl From<Raw> for Workload {
    fn from(Raw { metadata, spec, status }: Raw) -> Self {
        let name = metadata.object_name();
        let seen = status.observed_generation >= metadata.generation;
        match status.desired_number_scheduled {
            Some(wanted) => Self {
                name,
                seen,
                wanted,
                updated: status.updated_number_scheduled,
                ready: status.number_available,
                present: status.current_number_scheduled,
            },
            None => Self {
                name,
                seen,
                wanted: spec.replicas.unwrap_or(1),
                updated: status.updated_replicas,
                ready: status.available_replicas,
                present: status.replicas,
            },
        }
    }
}

/// Reads a deployment.
pub fn deployment(namespace: &str, name: &str) -> Call<Workload> {
    Call::about(Method::Get, &DEPLOYMENTS, Some(namespace), name, None)
}

/// Lists deployments, in one namespace or in all.
pub fn deployments(namespace: Option<&str>) -> Call<List<Workload>> {
    Call::about_all(Method::Get, &DEPLOYMENTS, namespace)
}

/// Reads a daemon set.
pub fn daemon_set(namespace: &str, name: &str) -> Call<Workload> {
    Call::about(Method::Get, &DAEMON_SETS, Some(namespace), name, None)
}

/// Lists daemon sets, in one namespace or in all.
pub fn daemon_sets(namespace: Option<&str>) -> Call<List<Workload>> {
    Call::about_all(Method::Get, &DAEMON_SETS, namespace)
}

/// Reads a stateful set.
pub fn stateful_set(namespace: &str, name: &str) -> Call<Workload> {
    Call::about(Method::Get, &STATEFUL_SETS, Some(namespace), name, None)
}

/// Lists stateful sets, in one namespace or in all.
pub fn stateful_sets(namespace: Option<&str>) -> Call<List<Workload>> {
    Call::about_all(Method::Get, &STATEFUL_SETS, namespace)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn unready(generation: i64, spec: &Value, status: &Value) -> Option<String> {
        let object =
            json!({"metadata": {"name": "x", "generation": generation}, "spec": spec, "status": status});
        serde_json::from_value::<Workload>(object).expect("a workload").unready()
    }

    #[test]
    fn a_deployment_is_ready_when_all_its_pods_are() {
        let status = |updated: i64, available: i64, all: i64| {
            json!({"observedGeneration": 2, "replicas": all, "updatedReplicas": updated,
                "readyReplicas": available, "availableReplicas": available})
        };
        let spec = json!({"replicas": 2});
        assert_eq!(unready(2, &spec, &status(2, 2, 2)), None);
        assert_eq!(
            unready(3, &spec, &status(2, 2, 2)).as_deref(),
            Some("what is wanted has not been seen yet")
        );
        assert_eq!(unready(2, &spec, &status(1, 2, 3)).as_deref(), Some("1 of 2 pods are up to date"));
        assert_eq!(unready(2, &spec, &status(2, 1, 2)).as_deref(), Some("1 of 2 pods are ready"));
        assert_eq!(unready(2, &spec, &status(2, 2, 3)).as_deref(), Some("1 old pods are still there"));
        assert!(unready(1, &spec, &json!({})).is_some(), "nobody has looked at it yet");
        assert!(
            unready(1, &json!({}), &json!({"observedGeneration": 1})).is_some(),
            "one is wanted by default"
        );
    }

    #[test]
    fn a_daemon_set_is_ready_on_every_node() {
        let status = |available: i64| {
            json!({"observedGeneration": 1, "desiredNumberScheduled": 3, "currentNumberScheduled": 3,
                "updatedNumberScheduled": 3, "numberReady": available, "numberAvailable": available})
        };
        assert_eq!(unready(1, &json!({}), &status(3)), None);
        assert_eq!(unready(1, &json!({}), &status(2)).as_deref(), Some("2 of 3 pods are ready"));
        assert!(unready(1, &json!({}), &Value::Null).is_some());
    }
}
