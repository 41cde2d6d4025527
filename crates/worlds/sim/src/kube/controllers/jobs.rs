//! Jobs.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    super::{
        Cluster,
        rest::suffix,
        value::{
            Verdict, holds, is_terminating, name, namespace, number, set, set_condition, set_default, text,
            timestamp, uid,
        },
    },
    is_owned_by,
    workloads::pod_from,
};
use crate::ground::Ground;

impl Cluster {
    /// Makes pods of jobs until enough have succeeded. Pods of the lab do not fail.
    pub(super) fn tend_jobs(&mut self, ground: &mut Ground) {
        let jobs: Vec<Arc<Value>> =
            self.store.shared("jobs.batch", "").filter(|job| !is_terminating(job)).cloned().collect();
        for old in jobs {
            if holds(&old, "Complete") || old.pointer("/spec/suspend") == Some(&Value::Bool(true)) {
                continue;
            }
            let mut new = Value::clone(&old);
            if label_job(&mut new) {
                self.settle("jobs.batch", &old, new);
                continue;
            }
            let owner = uid(&old);
            let pods: Vec<&Value> =
                self.store.list("pods", namespace(&old)).filter(|pod| is_owned_by(pod, owner)).collect();
            let count = |phase: &str| pods.iter().filter(|pod| text(pod, "/status/phase") == phase).count();
            let succeeded = count("Succeeded");
            let active = pods
                .iter()
                .filter(|pod| {
                    matches!(text(pod, "/status/phase"), "Pending" | "Running") && !is_terminating(pod)
                })
                .count();
            let ready = pods.iter().filter(|pod| holds(pod, "Ready")).count();
            let wanted = usize::try_from(number(&old, "/spec/completions").unwrap_or(1)).unwrap_or(0);
            let at_once = usize::try_from(number(&old, "/spec/parallelism").unwrap_or(1)).unwrap_or(0);
            let missing = at_once.min(wanted.saturating_sub(succeeded)).saturating_sub(active).min(500);
            for _ in 0..missing {
                let pod = format!("{}-{}", name(&old), suffix(ground));
                let pod = pod_from(&old["spec"]["template"], &old, &pod, ("Job", "batch/v1"));
                self.make(ground, "pods", pod);
            }
            set_default(&mut new, &["status", "startTime"], timestamp(ground.now));
            for (key, value) in [("active", active + missing), ("ready", ready), ("succeeded", succeeded)] {
                set(&mut new, &["status", key], value.into());
            }
            if succeeded >= wanted {
                for kind in ["SuccessCriteriaMet", "Complete"] {
                    let message = "Reached expected number of succeeded pods";
                    set_condition(
                        &mut new,
                        ground.now,
                        Verdict { kind, status: "True", reason: "CompletionsReached", message },
                    );
                }
                set_default(&mut new, &["status", "completionTime"], timestamp(ground.now));
            }
            self.settle("jobs.batch", &old, new);
        }
    }
}

/// Gives a job its own selector and labels; says whether that was new.
fn label_job(job: &mut Value) -> bool {
    if job.pointer("/spec/selector/matchLabels").is_some() {
        return false;
    }
    let (id, job_name) = (uid(job).to_owned(), name(job).to_owned());
    set(job, &["spec", "selector"], json!({"matchLabels": {"batch.kubernetes.io/controller-uid": id}}));
    for (key, value) in [
        ("batch.kubernetes.io/controller-uid", &id),
        ("batch.kubernetes.io/job-name", &job_name),
        ("job-name", &job_name),
    ] {
        set(job, &["spec", "template", "metadata", "labels", key], value.as_str().into());
    }
    true
}
