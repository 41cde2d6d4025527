//! Requests for certificates.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::{
    Cluster,
    value::{Verdict, holds, list, name, set, set_condition, text, timestamp},
};
use crate::ground::Ground;

/// The key of signing requests in the store.
pub const KEY: &str = "certificatesigningrequests.certificates.k8s.io";

impl Cluster {
    /// Approves requests of kubelets: for clients always, for servers when an approver runs.
    ///
    /// Nothing is signed: the lab's API servers have the certificate of their authority, but not its key.
    pub(super) fn tend_requests(&mut self, ground: &mut Ground) {
        let requests: Vec<Arc<Value>> = self.store.shared(KEY, "").cloned().collect();
        for old in requests {
            if holds(&old, "Approved") || holds(&old, "Denied") {
                continue;
            }
            let asker = text(&old, "/spec/username");
            let kubelet = asker.starts_with("system:node:") || asker.starts_with("system:bootstrap:");
            let approved = match text(&old, "/spec/signerName") {
                "kubernetes.io/kube-apiserver-client-kubelet" => kubelet,
                "kubernetes.io/kubelet-serving" => kubelet && self.has_approver(),
                _ => false,
            };
            if !approved {
                continue;
            }
            let mut new = Value::clone(&old);
            let message = "Auto approving kubelet client certificate after SubjectAccessReview.";
            set_condition(
                &mut new,
                ground.now,
                Verdict { kind: "Approved", status: "True", reason: "AutoApproved", message },
            );
            let conditions = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
            for condition in conditions.into_iter().flatten() {
                condition["lastUpdateTime"] = timestamp(ground.now);
            }
            set(
                &mut new,
                &["metadata", "labels"],
                old["metadata"].get("labels").cloned().unwrap_or_else(|| json!({})),
            );
            self.settle(KEY, &old, new);
        }
    }

    fn has_approver(&self) -> bool {
        self.store.list("pods", "").any(|pod| {
            let image = list(pod, "/spec/containers").iter().map(|container| text(container, "/image"));
            let is = |text: &str| text.contains("cert-approver") || text.contains("csr-approver");
            holds(pod, "Ready") && (is(name(pod)) || image.into_iter().any(is))
        })
    }
}
