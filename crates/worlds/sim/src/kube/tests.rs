//! Clusters as clients see them: through [`Lab::call`].

mod access;
mod apply;
mod cluster;
mod objects;
mod workloads;

use std::time::Duration;

use serde_json::{Value, json};

use crate::{
    Door, Lab, Progress,
    clock::Time,
    profile::Profile,
    signal::{NodeFacts, Signal},
    wire::{Polled, Request, Response, StreamId},
};

const CA: &str = include_str!("tests/ca.pem");
const ADMIN: &str = include_str!("tests/admin.pem");

/// A lab with one cluster, and who calls it.
struct World {
    lab: Lab,
    certificate: Option<Vec<u8>>,
}

fn der(pem: &str) -> Vec<u8> {
    x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap().1.contents
}

fn facts(name: &str, control_plane: bool, index: usize) -> NodeFacts {
    let taints = if control_plane {
        [("node-role.kubernetes.io/control-plane".to_owned(), "NoSchedule".to_owned())].into()
    } else {
        [].into()
    };
    NodeFacts {
        name: name.into(),
        addresses: vec![format!("10.0.0.{}", 11 + index)],
        control_plane,
        labels: [].into(),
        annotations: [].into(),
        taints,
        kubelet: "v1.36.3".into(),
        talos: "v1.13.9".into(),
        cni_included: true,
        external_cloud_provider: false,
        cpus: 4,
        memory_mib: 8192,
        uuid: format!("00000000-0000-0000-0000-{index:012}"),
        boot_id: format!("boot-{index}"),
    }
}

impl World {
    /// A cluster without nodes.
    fn empty(profile: Profile) -> Self {
        let mut lab = Lab::new(7, profile);
        lab.ground.send(Signal::ClusterBorn { cluster: "c".into(), snapshot: None, ca_pem: CA.into() });
        let mut world = Self { lab, certificate: Some(der(ADMIN)) };
        world.settle();
        world
    }

    /// A cluster of a control plane and two workers.
    fn running(profile: Profile) -> Self {
        let mut world = Self::empty(profile);
        for (index, name) in ["cp-1", "worker-1", "worker-2"].into_iter().enumerate() {
            world.node_up(facts(name, name.starts_with("cp"), index));
        }
        world
    }

    fn node_up(&mut self, facts: NodeFacts) {
        self.lab.ground.send(Signal::NodeUp { cluster: "c".into(), node: Box::new(facts) });
        self.settle();
    }

    fn node_down(&mut self, name: &str) {
        self.lab.ground.send(Signal::NodeDown { cluster: "c".into(), name: name.into() });
        self.settle();
    }

    /// Lets signals arrive.
    fn settle(&mut self) {
        let request = Request { method: "GET".into(), path: "/version".into(), ..Request::default() };
        self.lab.call(&Door::Kube("none".into()), &request);
    }

    fn pass(&mut self, time: Duration) {
        let until = self.lab.ground.now + time;
        self.lab.advance(until);
    }

    fn send(&mut self, method: &str, path: &str, media: &str, body: Vec<u8>) -> Response {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let request = Request {
            method: method.into(),
            path: path.into(),
            query: query.into(),
            headers: vec![
                ("content-type".into(), media.into()),
                ("user-agent".into(), "tests/1.0".into()),
                ("accept".into(), "application/json".into()),
            ],
            body,
            client_certificate: self.certificate.clone(),
            began: self.lab.ground.now,
            ..Request::default()
        };
        self.ask(&request)
    }

    fn ask(&mut self, request: &Request) -> Response {
        match self.lab.call(&Door::Kube("c".into()), request) {
            Progress::Done(response) => response,
            Progress::Wait(until) => panic!("waits until {until}"),
        }
    }

    fn call(&mut self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let response = self.send(method, path, "application/json", body);
        (response.status, serde_json::from_slice(&response.body).unwrap_or(Value::Null))
    }

    fn get(&mut self, path: &str) -> Value {
        let (status, value) = self.call("GET", path, &Value::Null);
        assert_eq!(status, 200, "{path}: {value}");
        value
    }

    fn names(&mut self, path: &str) -> Vec<String> {
        let list = self.get(path);
        list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap().into())
            .collect()
    }

    fn create(&mut self, path: &str, body: &Value) -> Value {
        let (status, value) = self.call("POST", path, body);
        assert_eq!(status, 201, "{path}: {value}");
        value
    }

    fn patch(&mut self, path: &str, media: &str, body: &Value) -> (u16, Value) {
        let response = self.send("PATCH", path, media, body.to_string().into_bytes());
        (response.status, serde_json::from_slice(&response.body).unwrap_or(Value::Null))
    }

    fn watch(&mut self, path: &str) -> StreamId {
        let response = self.send("GET", path, "", Vec::new());
        assert_eq!(response.status, 200, "{}", String::from_utf8_lossy(&response.body));
        response.stream.expect("a watch goes on")
    }

    /// Returns what a watch has to say now, as kind of event and name.
    fn events(&mut self, stream: StreamId) -> Vec<(String, String)> {
        let mut events = Vec::new();
        while let Polled::Pieces(pieces) = self.lab.clusters.poll(&mut self.lab.ground, stream) {
            for piece in pieces {
                let event: Value = serde_json::from_slice(&piece).unwrap();
                let object = &event["object"];
                let name =
                    object["metadata"]["name"].as_str().or(object["reason"].as_str()).unwrap_or_default();
                events.push((event["type"].as_str().unwrap().into(), name.into()));
            }
        }
        events
    }
}

fn config_map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn deployment(name: &str, replicas: u32, image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": name, "image": image}]}}},
    })
}

fn event(kind: &str, name: &str) -> (String, String) {
    (kind.into(), name.into())
}

fn start() -> Time {
    Time::START
}
