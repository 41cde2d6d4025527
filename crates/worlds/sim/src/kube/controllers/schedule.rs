//! The scheduler.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::{
    Cluster,
    selector::{Labels, node_fits_term},
    value::{
        Verdict, is_terminating, label, list, name, namespace, set, set_condition, text, timestamp, uid,
    },
};
use crate::ground::Ground;

impl Cluster {
    /// Gives pods that wait a node each, or says why none fits.
    pub(super) fn schedule(&mut self, ground: &mut Ground) {
        let waiting: Vec<Arc<Value>> = self
            .store
            .shared("pods", "")
            .filter(|pod| text(pod, "/spec/nodeName").is_empty() && !is_terminating(pod))
            .filter(|pod| text(pod, "/spec/schedulerName") == "default-scheduler")
            .filter(|pod| list(pod, "/spec/schedulingGates").is_empty())
            .cloned()
            .collect();
        for old in waiting {
            let mut pod = Value::clone(&old);
            match self.choose_node(&pod) {
                Ok(node) => {
                    set(&mut pod, &["spec", "nodeName"], node.into());
                    let verdict = Verdict { kind: "PodScheduled", status: "True", reason: "", message: "" };
                    set_condition(&mut pod, ground.now, verdict);
                }
                Err(why) => {
                    let verdict = Verdict {
                        kind: "PodScheduled",
                        status: "False",
                        reason: "Unschedulable",
                        message: &why,
                    };
                    set_condition(&mut pod, ground.now, verdict);
                    self.tell_unschedulable(ground, &pod, &why);
                }
            }
            self.settle("pods", &old, pod);
        }
    }

    fn choose_node(&self, pod: &Value) -> Result<String, String> {
        let nodes: Vec<&Value> = self.store.list("nodes", "").collect();
        let mut reasons: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
        let mut best: Option<(usize, &str)> = None;
        for node in &nodes {
            match self.refuses(node, pod) {
                Some(reason) => *reasons.entry(reason).or_default() += 1,
                None => {
                    let load = self
                        .store
                        .list("pods", "")
                        .filter(|pod| text(pod, "/spec/nodeName") == name(node))
                        .count();
                    if best.is_none_or(|(least, _)| load < least) {
                        best = Some((load, name(node)));
                    }
                }
            }
        }
        if let Some((_, node)) = best {
            return Ok(node.into());
        }
        let reasons: Vec<String> =
            reasons.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        Err(match nodes.len() {
            0 => "no nodes available to schedule pods".into(),
            all => format!("0/{all} nodes are available: {}.", reasons.join(", ")),
        })
    }

    /// Says why a pod cannot go to a node.
    fn refuses(&self, node: &Value, pod: &Value) -> Option<String> {
        if node.pointer("/spec/unschedulable") == Some(&Value::Bool(true))
            && !tolerates(pod, &json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}))
        {
            return Some("node(s) were unschedulable".into());
        }
        if !fits_node(pod, node) {
            return Some("node(s) didn't match Pod's node affinity/selector".into());
        }
        if let Some(taint) = untolerated(pod, node) {
            let value = text(taint, "/value");
            return Some(format!("node(s) had untolerated taint {{{}: {value}}}", text(taint, "/key")));
        }
        let there: Vec<&Value> =
            self.store.list("pods", "").filter(|other| text(other, "/spec/nodeName") == name(node)).collect();
        for (resource, words) in [("cpu", "Insufficient cpu"), ("memory", "Insufficient memory")] {
            let free = quantity(text(node, &format!("/status/allocatable/{resource}")));
            let used: u64 = there.iter().map(|pod| requested(pod, resource)).sum();
            if free > 0 && used + requested(pod, resource) > free {
                return Some(words.into());
            }
        }
        if there.len() >= 110 {
            return Some("Too many pods".into());
        }
        self.is_repelled(pod, node).then(|| "node(s) didn't match pod anti-affinity rules".into())
    }

    /// Whether a pod that must not be near others would be near one of them.
    fn is_repelled(&self, pod: &Value, node: &Value) -> bool {
        let terms =
            list(pod, "/spec/affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution");
        terms.iter().any(|term| {
            let topology = text(term, "/topologyKey");
            let Some(here) = label(node, topology) else { return false };
            let selector = Labels::of(term.get("labelSelector").unwrap_or(&Value::Null));
            self.store.list("pods", namespace(pod)).any(|other| {
                let there = self.store.get("nodes", "", text(other, "/spec/nodeName"));
                there.is_some_and(|there| label(there, topology) == Some(here)) && selector.fit(other)
            })
        })
    }

    fn tell_unschedulable(&mut self, ground: &mut Ground, pod: &Value, why: &str) {
        let event = format!("{}.unschedulable", name(pod));
        if self.store.get("events", namespace(pod), &event).is_some() {
            return;
        }
        self.make(ground, "events", json!({
            "metadata": {"name": event, "namespace": namespace(pod)},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": name(pod), "namespace": namespace(pod), "uid": uid(pod)},
            "reason": "FailedScheduling", "message": why, "type": "Warning", "count": 1,
            "firstTimestamp": timestamp(ground.now), "lastTimestamp": timestamp(ground.now),
            "source": {"component": "default-scheduler"}, "reportingComponent": "default-scheduler", "reportingInstance": "",
        }));
    }
}

/// Whether node selector and required affinity of a pod allow a node.
pub fn fits_node(pod: &Value, node: &Value) -> bool {
    if !Labels::of_map(pod.pointer("/spec/nodeSelector")).fit(node) {
        return false;
    }
    let pointer =
        "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let terms = list(pod, pointer);
    terms.is_empty() || terms.iter().any(|term| node_fits_term(node, term))
}

/// Returns the first taint of a node that keeps a pod off it.
pub fn untolerated<'n>(pod: &Value, node: &'n Value) -> Option<&'n Value> {
    list(node, "/spec/taints")
        .iter()
        .find(|taint| text(taint, "/effect") != "PreferNoSchedule" && !tolerates(pod, taint))
}

fn tolerates(pod: &Value, taint: &Value) -> bool {
    list(pod, "/spec/tolerations").iter().any(|toleration| matches(toleration, taint))
}

fn matches(toleration: &Value, taint: &Value) -> bool {
    let (key, effect) = (text(toleration, "/key"), text(toleration, "/effect"));
    if !effect.is_empty() && effect != text(taint, "/effect") {
        return false;
    }
    if !key.is_empty() && key != text(taint, "/key") {
        return false;
    }
    match text(toleration, "/operator") {
        "Exists" => true,
        _ => !key.is_empty() && text(toleration, "/value") == text(taint, "/value"),
    }
}

/// Returns for how many seconds a pod tolerates a taint; nothing if for ever.
pub fn tolerated_for(pod: &Value, key: &str, effect: &str) -> Option<u64> {
    let taint = json!({"key": key, "effect": effect});
    let mut least = Some(0);
    for toleration in list(pod, "/spec/tolerations").iter().filter(|toleration| matches(toleration, &taint)) {
        match toleration.get("tolerationSeconds").and_then(Value::as_i64) {
            None => return None,
            Some(seconds) => least = Some(u64::try_from(seconds).unwrap_or(0)),
        }
    }
    least
}

fn requested(pod: &Value, resource: &str) -> u64 {
    let pointer = format!("/resources/requests/{resource}");
    list(pod, "/spec/containers")
        .iter()
        .filter_map(|container| container.pointer(&pointer))
        .map(|value| value.as_str().map_or_else(|| quantity(&value.to_string()), quantity))
        .sum()
}

/// Reads a quantity in thousandths: `100m`, `2`, `70Mi`, `1Gi`.
pub fn quantity(text: &str) -> u64 {
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let fraction: u64 =
        format!("{fraction:0<3}").get(..3).and_then(|digits| digits.parse().ok()).unwrap_or(0);
    let thousandths = whole.parse::<u64>().unwrap_or(0).saturating_mul(1000).saturating_add(fraction);
    let scale: u64 = match unit {
        "m" => return thousandths / 1000,
        "k" => 1000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => 1,
    };
    thousandths.saturating_mul(scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_in_thousandths() {
        for (text, thousandths) in [
            ("100m", 100),
            ("2", 2000),
            ("1.5", 1500),
            ("70Mi", 70 * (1 << 20) * 1000),
            ("1Gi", (1 << 30) * 1000),
            ("", 0),
            ("x", 0),
        ] {
            assert_eq!(quantity(text), thousandths, "{text}");
        }
    }
}
