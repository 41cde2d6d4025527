//! Disruption budgets.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    super::{
        Cluster,
        selector::Labels,
        value::{Verdict, holds, is_terminating, list, name, namespace, number, set, set_condition, text},
    },
    workloads::share,
};
use crate::ground::Ground;

impl Cluster {
    /// Counts the pods of budgets.
    pub(super) fn tend_budgets(&mut self, ground: &mut Ground) {
        const KEY: &str = "poddisruptionbudgets.policy";
        let budgets: Vec<Arc<Value>> =
            self.store.shared(KEY, "").filter(|budget| !is_terminating(budget)).cloned().collect();
        for old in budgets {
            let selector = old.pointer("/spec/selector").map(Labels::of);
            let pods: Vec<&Value> = self
                .store
                .list("pods", namespace(&old))
                .filter(|pod| selector.as_ref().is_some_and(|selector| selector.fit(pod)))
                .filter(|pod| !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed"))
                .collect();
            let healthy = pods.iter().filter(|pod| holds(pod, "Ready") && !is_terminating(pod)).count();
            let healthy = i64::try_from(healthy).unwrap_or(0);
            let expected = self.expected(&pods);
            let desired = match (old.pointer("/spec/minAvailable"), old.pointer("/spec/maxUnavailable")) {
                (Some(least), _) => share(Some(least), expected, true),
                (None, Some(most)) => (expected - share(Some(most), expected, true)).max(0),
                (None, None) => (expected - 1).max(0),
            };
            // Pods that were evicted count as gone until they are.
            let leaving: Vec<(String, Value)> = old
                .pointer("/status/disruptedPods")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .filter(|(pod, _)| {
                    pods.iter().any(|known| name(known) == pod.as_str() && !is_terminating(known))
                })
                .map(|(pod, at)| (pod.clone(), at.clone()))
                .collect();
            let healthy = healthy - i64::try_from(leaving.len()).unwrap_or(0);
            let allowed = (healthy - desired).max(0);
            let mut new = Value::clone(&old);
            let conditions = old.pointer("/status/conditions").cloned();
            set(
                &mut new,
                &["status"],
                json!({
                    "currentHealthy": healthy, "desiredHealthy": desired, "disruptionsAllowed": allowed, "expectedPods": expected,
                    "observedGeneration": number(&old, "/metadata/generation"),
                }),
            );
            if let Some(conditions) = conditions {
                set(&mut new, &["status", "conditions"], conditions);
            }
            if !leaving.is_empty() {
                set(&mut new, &["status", "disruptedPods"], Value::Object(leaving.into_iter().collect()));
            }
            let (status, reason) =
                if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
            set_condition(
                &mut new,
                ground.now,
                Verdict { kind: "DisruptionAllowed", status, reason, message: "" },
            );
            self.settle(KEY, &old, new);
        }
    }

    /// Returns how many pods there should be: what their controllers want, and each pod without one.
    fn expected(&self, pods: &[&Value]) -> i64 {
        let mut controllers = std::collections::BTreeMap::new();
        let mut alone = 0;
        for pod in pods {
            let owner =
                list(pod, "/metadata/ownerReferences").iter().find(|owner| owner["controller"] == true);
            let Some(owner) = owner else {
                alone += 1;
                continue;
            };
            let key = match text(owner, "/kind") {
                "ReplicaSet" => "replicasets.apps",
                "StatefulSet" => "statefulsets.apps",
                _ => {
                    alone += 1;
                    continue;
                }
            };
            let found = self.store.get(key, namespace(pod), text(owner, "/name"));
            let wanted = found.and_then(|found| number(found, "/spec/replicas")).unwrap_or(0);
            controllers.insert(text(owner, "/uid").to_owned(), wanted);
        }
        alone + controllers.values().sum::<i64>()
    }
}
