//! Endpoints of services.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    super::{
        Cluster,
        selector::Labels,
        value::{holds, is_terminating, label, list, name, namespace, number, set, text, uid},
    },
    owner,
};
use crate::ground::Ground;

const SLICES: &str = "endpointslices.discovery.k8s.io";

impl Cluster {
    /// Lists the pods behind each service.
    pub(super) fn tend_endpoints(&mut self, ground: &mut Ground) {
        let services: Vec<Arc<Value>> =
            self.store.shared("services", "").filter(|service| !is_terminating(service)).cloned().collect();
        for service in services {
            if name(&service) == "kubernetes" && namespace(&service) == "default" {
                self.tend_api_endpoints(ground, &service);
                continue;
            }
            let Some(selector) = service
                .pointer("/spec/selector")
                .filter(|map| map.as_object().is_some_and(|map| !map.is_empty()))
            else {
                continue;
            };
            let selector = Labels::of_map(Some(selector));
            let pods: Vec<Arc<Value>> = self
                .store
                .shared("pods", namespace(&service))
                .filter(|pod| selector.fit(pod) && !text(pod, "/status/podIP").is_empty())
                .cloned()
                .collect();
            let entries: Vec<Value> = pods
                .iter()
                .map(|pod| {
                    let (ready, ending) = (holds(pod, "Ready"), is_terminating(pod));
                    json!({
                        "addresses": [text(pod, "/status/podIP")],
                        "conditions": {"ready": ready && !ending, "serving": ready, "terminating": ending},
                        "nodeName": text(pod, "/spec/nodeName"),
                        "targetRef": {"kind": "Pod", "name": name(pod), "namespace": namespace(pod), "uid": uid(pod)},
                    })
                })
                .collect();
            self.put_endpoints(ground, &service, &entries);
        }
    }

    fn tend_api_endpoints(&mut self, ground: &mut Ground, service: &Value) {
        let entries: Vec<Value> = self
            .store
            .list("nodes", "")
            .filter(|node| {
                label(node, "node-role.kubernetes.io/control-plane").is_some() && self.is_up(name(node))
            })
            .filter_map(|node| {
                list(node, "/status/addresses").iter().find(|address| text(address, "/type") == "InternalIP")
            })
            .map(|address| json!({"addresses": [text(address, "/address")], "conditions": {"ready": true}}))
            .collect();
        self.put_endpoints(ground, service, &entries);
    }

    fn put_endpoints(&mut self, ground: &mut Ground, service: &Value, entries: &[Value]) {
        let ports: Vec<Value> = list(service, "/spec/ports")
            .iter()
            .map(|port| {
                let number = number(port, "/targetPort").or_else(|| number(port, "/port")).unwrap_or(0);
                json!({"name": text(port, "/name"), "port": number, "protocol": text(port, "/protocol")})
            })
            .collect();
        let mut labels = json!({"kubernetes.io/service-name": name(service),
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"});
        for (key, value) in
            service.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten()
        {
            labels[key] = value.clone();
        }
        let slice = format!("{}-{}", name(service), &super::template_hash(&json!(uid(service)))[..5]);
        let metadata = |own: &str| json!({"name": own, "namespace": namespace(service)});
        let mut fresh = json!({"metadata": metadata(&slice), "addressType": "IPv4", "endpoints": entries, "ports": ports});
        set(&mut fresh, &["metadata", "labels"], labels);
        set(&mut fresh, &["metadata", "ownerReferences"], owner("Service", "v1", service));
        self.put_like(ground, SLICES, &fresh, &["endpoints", "ports"]);
        let of = |ready: bool| -> Vec<Value> {
            let chosen = entries.iter().filter(|entry| (entry["conditions"]["ready"] == true) == ready);
            chosen.map(|entry| json!({"ip": entry["addresses"][0], "nodeName": entry["nodeName"], "targetRef": entry["targetRef"]})).collect()
        };
        let mut subset = json!({"ports": ports});
        for (key, addresses) in [("addresses", of(true)), ("notReadyAddresses", of(false))] {
            if !addresses.is_empty() {
                subset[key] = addresses.into();
            }
        }
        let subsets = if entries.is_empty() { json!([]) } else { json!([subset]) };
        let mut old_form = json!({"metadata": metadata(name(service)), "subsets": subsets});
        if let Some(labels) = service.pointer("/metadata/labels") {
            set(&mut old_form, &["metadata", "labels"], labels.clone());
        }
        // Unlike slices these have no owner; they go with the service by name.
        set(&mut old_form, &["metadata", "ownerReferences"], owner("Service", "v1", service));
        self.put_like(ground, "endpoints", &old_form, &["subsets"]);
    }

    /// Makes an object, or brings some fields of the one that exists up to date.
    fn put_like(&mut self, ground: &mut Ground, key: &str, fresh: &Value, fields: &[&str]) {
        let Some(old) = self.store.share(key, namespace(fresh), name(fresh)) else {
            self.make(ground, key, fresh.clone());
            return;
        };
        let mut new = Value::clone(&old);
        for field in fields {
            set(&mut new, &[field], fresh[*field].clone());
        }
        self.settle(key, &old, new);
    }
}
