//! Namespaces, definitions, and objects whose owner has gone.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{
    super::{
        Cluster, kinds,
        value::{
            Verdict, holds, is_terminating, list, name, namespace, parse_calendar, set, set_condition, text,
            uid,
        },
    },
    Due, later,
};
use crate::{clock::Time, ground::Ground};

/// How long a new definition takes to be served.
const ESTABLISH: Duration = Duration::from_secs(1);

impl Cluster {
    /// Gives namespaces what every one has, and empties those that end.
    pub(super) fn tend_namespaces(&mut self, ground: &mut Ground) {
        let namespaces: Vec<Arc<Value>> = self.store.shared("namespaces", "").cloned().collect();
        for found in namespaces {
            let own = name(&found).to_owned();
            if !is_terminating(&found) {
                self.make(
                    ground,
                    "serviceaccounts",
                    json!({"metadata": {"name": "default", "namespace": own}}),
                );
                let ca = self.ca_pem.clone();
                self.make(
                    ground,
                    "configmaps",
                    json!({
                        "metadata": {"name": "kube-root-ca.crt", "namespace": own}, "data": {"ca.crt": ca},
                    }),
                );
                continue;
            }
            let inside: Vec<(String, Arc<Value>)> = self
                .store
                .all()
                .filter(|(_, object)| namespace(object) == own)
                .map(|(key, object)| (key.split('/').next().unwrap_or_default().to_owned(), object.clone()))
                .collect();
            for (key, object) in &inside {
                if !is_terminating(object) {
                    self.remove_object(ground, key, object, &json!({}));
                }
            }
            let foreign = list(&found, "/metadata/finalizers").is_empty();
            if inside.is_empty() && foreign {
                self.store.delete("namespaces", "", &own);
            }
        }
    }

    /// Deletes what nobody owns any more, and owners that wait for what they own.
    pub(super) fn collect_garbage(&mut self, ground: &mut Ground) {
        let alive: BTreeSet<&str> = self.store.all().map(|(_, object)| uid(object)).collect();
        let ending: BTreeSet<&str> = self
            .store
            .all()
            .filter(|(_, object)| waits_for_dependents(object))
            .map(|(_, object)| uid(object))
            .collect();
        let mut doomed: Vec<(String, Arc<Value>)> = Vec::new();
        let mut awaited: BTreeSet<String> = BTreeSet::new();
        for (key, object) in self.store.all() {
            let references = list(object, "/metadata/ownerReferences");
            if references.is_empty() {
                continue;
            }
            let gone = references.iter().all(|reference| !alive.contains(text(reference, "/uid")));
            let last_owner_ends = references.iter().all(|reference| {
                let owner = text(reference, "/uid");
                !alive.contains(owner) || ending.contains(owner)
            });
            awaited.extend(references.iter().map(|reference| text(reference, "/uid").to_owned()));
            if (gone || last_owner_ends) && !is_terminating(object) {
                doomed.push((key.split('/').next().unwrap_or_default().to_owned(), object.clone()));
            }
        }
        let free: Vec<(String, Arc<Value>)> = self
            .store
            .all()
            .filter(|(_, object)| waits_for_dependents(object) && !awaited.contains(uid(object)))
            .map(|(key, object)| (key.split('/').next().unwrap_or_default().to_owned(), object.clone()))
            .collect();
        for (key, object) in doomed {
            self.remove_object(ground, &key, &object, &json!({}));
        }
        for (key, object) in free {
            let mut object = Value::clone(&object);
            if let Some(finalizers) = object.pointer_mut("/metadata/finalizers").and_then(Value::as_array_mut)
            {
                finalizers.retain(|finalizer| finalizer != "foregroundDeletion");
            }
            let done = list(&object, "/metadata/finalizers").is_empty();
            self.store.put(&key, object.clone());
            if done && key != "pods" {
                self.store.delete(&key, namespace(&object), name(&object));
            }
        }
    }

    /// Establishes definitions of custom kinds.
    pub(super) fn tend_definitions(&mut self, ground: &mut Ground, due: &mut Due) {
        let definitions: Vec<Arc<Value>> = self
            .store
            .shared(kinds::CRDS, "")
            .filter(|definition| !is_terminating(definition))
            .cloned()
            .collect();
        for old in definitions {
            let mut new = Value::clone(&old);
            set(&mut new, &["status", "acceptedNames"], old["spec"]["names"].clone());
            let stored: Vec<&Value> = list(&old, "/spec/versions")
                .iter()
                .filter(|version| version["storage"] == true)
                .map(|version| &version["name"])
                .collect();
            if new.pointer("/status/storedVersions").is_none() {
                set(&mut new, &["status", "storedVersions"], json!(stored));
            }
            let verdict = Verdict {
                kind: "NamesAccepted",
                status: "True",
                reason: "NoConflicts",
                message: "no conflicts found",
            };
            set_condition(&mut new, ground.now, verdict);
            let born = parse_calendar(text(&old, "/metadata/creationTimestamp")).unwrap_or(0);
            let born = Time::from_millis(born.saturating_mul(1000));
            if holds(&old, "Established") || due.is_over(later(ground, born, ESTABLISH), ground.now) {
                let message = "the initial names have been accepted";
                let verdict =
                    Verdict { kind: "Established", status: "True", reason: "InitialNamesAccepted", message };
                set_condition(&mut new, ground.now, verdict);
            }
            self.settle(kinds::CRDS, &old, new);
        }
    }
}

fn waits_for_dependents(object: &Value) -> bool {
    is_terminating(object)
        && list(object, "/metadata/finalizers").iter().any(|finalizer| finalizer == "foregroundDeletion")
}
