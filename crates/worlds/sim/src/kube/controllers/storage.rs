//! Claims of volumes.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{
    super::{
        Cluster,
        value::{is_terminating, list, name, namespace, parse_calendar, set, text, uid},
    },
    Due, later,
};
use crate::{clock::Time, ground::Ground};

/// How long making a volume takes.
const PROVISION: Duration = Duration::from_secs(3);

const CLAIMS: &str = "persistentvolumeclaims";

impl Cluster {
    /// Makes volumes for claims whose class exists. Whether its driver runs is not looked at.
    pub(super) fn tend_claims(&mut self, ground: &mut Ground, due: &mut Due) {
        let claims: Vec<Arc<Value>> = self
            .store
            .shared(CLAIMS, "")
            .filter(|claim| text(claim, "/status/phase") == "Pending" && !is_terminating(claim))
            .cloned()
            .collect();
        for old in claims {
            let Some(class) = self.class_of(&old) else { continue };
            let wanted = text(&class, "/volumeBindingMode") != "WaitForFirstConsumer" || self.is_used(&old);
            let born = parse_calendar(text(&old, "/metadata/creationTimestamp")).unwrap_or(0);
            let born = Time::from_millis(born.saturating_mul(1000));
            if !wanted || !due.is_over(later(ground, born, PROVISION), ground.now) {
                continue;
            }
            let volume = format!("pvc-{}", uid(&old));
            let size =
                old.pointer("/spec/resources/requests/storage").cloned().unwrap_or_else(|| json!("1Gi"));
            self.make(ground, "persistentvolumes", json!({
                "metadata": {"name": volume},
                "spec": {"capacity": {"storage": size}, "accessModes": old["spec"]["accessModes"],
                    "storageClassName": name(&class), "persistentVolumeReclaimPolicy": text(&class, "/reclaimPolicy"),
                    "volumeMode": "Filesystem",
                    "claimRef": {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "name": name(&old), "namespace": namespace(&old), "uid": uid(&old)},
                    "csi": {"driver": text(&class, "/provisioner"), "volumeHandle": volume}},
                "status": {"phase": "Bound"},
            }));
            let mut new = Value::clone(&old);
            set(&mut new, &["spec", "volumeName"], volume.into());
            set(&mut new, &["spec", "storageClassName"], name(&class).into());
            set(
                &mut new,
                &["status"],
                json!({"phase": "Bound", "accessModes": old["spec"]["accessModes"], "capacity": {"storage": size}}),
            );
            self.settle(CLAIMS, &old, new);
        }
    }

    fn class_of(&self, claim: &Value) -> Option<Arc<Value>> {
        const KEY: &str = "storageclasses.storage.k8s.io";
        if let Some(class) = claim.pointer("/spec/storageClassName").and_then(Value::as_str) {
            return self.store.share(KEY, "", class);
        }
        let marked = |class: &&Arc<Value>| {
            let annotations = class.pointer("/metadata/annotations");
            annotations
                .and_then(|all| all.get("storageclass.kubernetes.io/is-default-class"))
                .is_some_and(|value| value == "true")
        };
        self.store.shared(KEY, "").find(marked).cloned()
    }

    fn is_used(&self, claim: &Value) -> bool {
        self.store.list("pods", namespace(claim)).any(|pod| {
            !text(pod, "/spec/nodeName").is_empty()
                && list(pod, "/spec/volumes")
                    .iter()
                    .any(|volume| text(volume, "/persistentVolumeClaim/claimName") == name(claim))
        })
    }
}
