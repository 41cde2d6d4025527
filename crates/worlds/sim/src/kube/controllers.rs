//! What a cluster does by itself: controllers, scheduler, kubelets.
//!
//! All of them look at the objects and change them, as the real ones do; they run after every change until
//! nothing changes any more. What takes time is due later, and each look says when the next is due.

pub mod born;
pub mod certificates;
pub mod disruption;
pub mod endpoints;
pub mod garbage;
pub mod jobs;
pub mod nodes;
pub mod pods;
pub mod schedule;
pub mod storage;
pub mod workloads;

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{
    Cluster, check, kinds,
    value::{name, set, timestamp, uid},
};
use crate::{clock::Time, ground::Ground};

/// How often controllers may react to one another at one moment before the rest waits for the next look. Real
/// controllers that fight do so for ever; the lab goes on.
const MOST_ROUNDS: usize = 200;

/// The earliest moment that something is due, so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Due(Option<Time>);

impl Due {
    /// Notes that something is due.
    pub fn at(&mut self, at: Time) {
        self.0 = Some(self.0.map_or(at, |earliest| earliest.min(at)));
    }

    /// Whether a moment has come; if not, notes it.
    pub fn is_over(&mut self, at: Time, now: Time) -> bool {
        if at > now {
            self.at(at);
        }
        at <= now
    }
}

/// Returns the moment after something that takes this long on real hardware.
pub fn later(ground: &Ground, from: Time, real: Duration) -> Time {
    from + ground.profile.takes(real)
}

impl Cluster {
    /// Lets everything happen that can; returns when something is due again.
    pub(super) fn look(&mut self, ground: &mut Ground) -> Option<Time> {
        let mut due = Due::default();
        for _ in 0..MOST_ROUNDS {
            let before = self.store.revision();
            due = Due::default();
            self.tend_definitions(ground, &mut due);
            self.tend_namespaces(ground);
            self.collect_garbage(ground);
            self.tend_nodes(ground, &mut due);
            self.tend_deployments(ground);
            self.tend_replica_sets(ground);
            self.tend_daemon_sets(ground);
            self.tend_stateful_sets(ground);
            self.tend_jobs(ground);
            self.tend_claims(ground, &mut due);
            self.schedule(ground);
            self.tend_pods(ground, &mut due);
            self.tend_endpoints(ground);
            self.tend_budgets(ground);
            self.tend_requests(ground);
            if self.store.revision() == before {
                break;
            }
        }
        due.0
    }

    /// Keeps a new state of an object if it differs from the old one.
    fn settle(&mut self, key: &str, old: &Value, new: Value) {
        if *old != new {
            self.store.put(key, new);
        }
    }

    /// Adds an object that the cluster itself makes, unless there is one of that name.
    fn make(&mut self, ground: &mut Ground, key: &str, mut object: Value) -> Option<Arc<Value>> {
        let (group, plural) = key.split_once('.').map_or(("", key), |(plural, group)| (group, plural));
        let resource = kinds::built_in().find(|known| known.group == group && known.plural == plural)?;
        if self.store.get(key, super::value::namespace(&object), name(&object)).is_some() {
            return None;
        }
        check::default(&resource, &mut object);
        if key == "pods" {
            pods::admit(&mut object);
        }
        set(&mut object, &["kind"], resource.kind.as_ref().into());
        set(&mut object, &["apiVersion"], resource.api_version().into());
        set(&mut object, &["metadata", "uid"], ground.random.uuid().into());
        set(&mut object, &["metadata", "creationTimestamp"], timestamp(ground.now));
        if resource.group == "apps" || matches!(plural, "jobs" | "poddisruptionbudgets") {
            set(&mut object, &["metadata", "generation"], json!(1));
        }
        Some(self.store.put(key, object))
    }
}

/// Returns the reference by which an object names the controller that made it.
fn owner(kind: &str, api_version: &str, object: &Value) -> Value {
    json!([{
        "apiVersion": api_version, "kind": kind, "name": name(object), "uid": uid(object),
        "controller": true, "blockOwnerDeletion": true,
    }])
}

/// Whether an object was made by the controller with a uid.
fn is_owned_by(object: &Value, owner: &str) -> bool {
    let mut references = super::value::list(object, "/metadata/ownerReferences").iter();
    references
        .any(|reference| reference["controller"] == true && super::value::text(reference, "/uid") == owner)
}

/// Returns a short name for the content of a template, as `pod-template-hash` has it.
fn template_hash(template: &Value) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let text = template.to_string();
    let mut hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let mut out = String::new();
    for _ in 0..10 {
        out.push(char::from(LETTERS[usize::try_from(hash % 27).unwrap_or(0)]));
        hash /= 27;
    }
    out
}
