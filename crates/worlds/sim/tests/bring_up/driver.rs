//! A driver without any wits: image, VMs, configs, bootstrap, nodes.

use std::{net::IpAddr, time::Duration};

use ichor_machineconfig::{
    Config, emit,
    generate::{Blueprint, Install, documents},
    pki::{Entropy, RsaKey, TalosRole, Term, Timestamp, kubernetes_admin, talos_client},
    secrets::Bundle,
};
use ichor_model::{KubernetesVersion, Minor, desired::Role};
use ichor_sim::{
    Door, Lab, Progress,
    clock::Time,
    profile::Profile,
    setup::{Setup, TOKEN, USER},
    wire::{Request, Response, Rpc, RpcReply},
};
use ichor_talos_proto::{Message, machine};
use serde_json::Value;
use sha2::{Digest, Sha256};

struct Seeded(u64, u64);

impl Entropy for Seeded {
    fn fill(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(32) {
            self.1 += 1;
            let digest = Sha256::digest([self.0.to_be_bytes(), self.1.to_be_bytes()].concat());
            chunk.copy_from_slice(&digest[..chunk.len()]);
        }
    }
}

/// What a cluster is made of, the same for every seed: keys are not what is tested here.
pub struct Cluster {
    talos_admin: Vec<u8>,
    kube_admin: Vec<u8>,
    configs: Vec<(u8, Vec<u8>)>,
}

const MACHINES: [(u8, Role); 5] = [
    (11, Role::ControlPlane),
    (12, Role::ControlPlane),
    (13, Role::ControlPlane),
    (21, Role::Worker),
    (22, Role::Worker),
];

impl Cluster {
    pub fn new() -> Self {
        let now = Timestamp::from_unix_seconds(Time::START.unix_seconds());
        let file = include_str!("../../../../core/machineconfig/tests/golden/service-account.pem");
        let (_, pem) = file.split_once(".\n").expect("a warning, then the key");
        let rsa = RsaKey::from_pem(pem).expect("the test key");
        let mut entropy = Seeded(1, 0);
        let bundle = Bundle::generate(&mut entropy, now, rsa).expect("a bundle");
        let term = Term { now, lifetime: Duration::from_hours(24) };
        let talos = talos_client(&bundle.os, &[TalosRole::Admin], term, &mut entropy).expect("a client");
        let kube = kubernetes_admin(&bundle.kubernetes, term, &mut entropy).expect("a client");
        let configs = MACHINES.map(|(last, role)| (last, config(&bundle, last, role)));
        Self {
            talos_admin: talos.certificate.der().to_vec(),
            kube_admin: kube.certificate.der().to_vec(),
            configs: configs.to_vec(),
        }
    }
}

fn config(bundle: &Bundle, last: u8, role: Role) -> Vec<u8> {
    let kubernetes: KubernetesVersion = "v1.36.3".parse().expect("a version");
    let endpoint = "https://10.0.0.11:6443";
    let mut blueprint = Blueprint::new(role, Minor::new(1, 13), "demo", endpoint, kubernetes);
    blueprint.install = Some(Install { disk: Some("/dev/sda".into()), image: None, kernel_args: Vec::new() });
    let mut config = Config::default();
    for mut document in documents(&blueprint, bundle) {
        if document["kind"] == "HostnameConfig" {
            document["auto"] = "off".into();
            document["hostname"] = format!("m{last}").into();
        }
        config.push(ichor_machineconfig::Document::from_json(&document).expect("a document"));
    }
    emit(&config).into_bytes()
}

/// How far an eager driver is with a machine.
#[derive(PartialEq)]
enum Stage {
    /// Its image is being downloaded.
    Imaged(Value),
    /// It is being made.
    Created(Value),
    /// It was started.
    Started,
    /// It has its config.
    Configured,
}

pub struct Driver<'c> {
    pub lab: Lab,
    /// How long it dawdles after everything that it waited for.
    pub pause: Duration,
    cluster: &'c Cluster,
    token: String,
}

impl<'c> Driver<'c> {
    pub fn new(seed: u64, profile: Profile, cluster: &'c Cluster) -> Self {
        Self::at(Setup::new(seed, profile).build(), cluster)
    }

    pub fn at(lab: Lab, cluster: &'c Cluster) -> Self {
        let secret = lab.pve.access.users[USER].tokens[TOKEN].secret.clone();
        Self { lab, pause: Duration::ZERO, cluster, token: format!("PVEAPIToken={USER}!{TOKEN}={secret}") }
    }

    pub fn http(&mut self, door: &Door, mut request: Request) -> Response {
        request.began = self.lab.ground.now;
        for _ in 0..1000 {
            match self.lab.call(door, &request) {
                Progress::Done(response) => return response,
                Progress::Wait(until) => self.lab.advance(until),
            }
        }
        panic!("{} {} never ends", request.method, request.path);
    }

    /// Calls Proxmox and expects success.
    pub fn pve(&mut self, method: &str, path: &str, params: &[(&str, &str)]) -> Value {
        let response = self.http(&Door::Pve, self.pve_request(method, path, params));
        let text = String::from_utf8_lossy(&response.body);
        assert_eq!(response.status, 200, "{method} {path}: {:?} {text}", response.reason);
        serde_json::from_slice::<Value>(&response.body).expect("JSON")["data"].clone()
    }

    pub fn pve_request(&self, method: &str, path: &str, params: &[(&str, &str)]) -> Request {
        let encode = |text: &str| -> String { text.bytes().map(|byte| format!("%{byte:02X}")).collect() };
        let form: Vec<String> =
            params.iter().map(|(key, value)| format!("{key}={}", encode(value))).collect();
        let form = form.join("&");
        let in_body = method == "POST" || method == "PUT";
        let (query, body) = if in_body { (String::new(), form.into_bytes()) } else { (form, Vec::new()) };
        let headers = vec![
            ("authorization".to_owned(), self.token.clone()),
            ("content-type".to_owned(), "application/x-www-form-urlencoded".to_owned()),
            ("content-length".to_owned(), body.len().to_string()),
        ];
        Request {
            began: self.lab.ground.now,
            method: method.into(),
            path: format!("/api2/json{path}"),
            query,
            headers,
            body,
            ..Request::default()
        }
    }

    /// Waits for a task to end well.
    fn wait_for(&mut self, upid: &Value) {
        self.until("the task ends", |driver| driver.ended(upid));
    }

    /// Whether a task has ended well.
    fn ended(&mut self, upid: &Value) -> bool {
        let upid = upid.as_str().expect("a task");
        let host = upid.split(':').nth(1).expect("a host");
        let status = self.pve("GET", &format!("/nodes/{host}/tasks/{upid}/status"), &[]);
        if status["status"] != "stopped" {
            return false;
        }
        assert_eq!(status["exitstatus"], "OK", "{status}");
        true
    }

    /// Lets things happen until a condition holds, for an hour at most.
    pub fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let deadline = self.lab.ground.now + Duration::from_hours(1);
        while !holds(self) {
            let next = self.lab.ground.agenda.next().filter(|next| *next <= deadline);
            let Some(next) = next else {
                let consoles =
                    self.lab.ground.guests.iter().map(|(vmid, guest)| format!("{vmid}: {}", guest.console));
                panic!("waited in vain until {what}\n{}", consoles.collect::<Vec<_>>().join("\n"));
            };
            self.lab.advance(next);
        }
        self.lab.advance(self.lab.ground.now + self.pause);
    }

    pub fn rpc<Q: Message, A: Message + Default>(
        &mut self,
        last: u8,
        method: &str,
        query: &Q,
    ) -> Result<A, (i32, String)> {
        let rpc = self.rpc_request(method, query);
        for _ in 0..1000 {
            match self.lab.rpc(IpAddr::from([10, 0, 0, last]), &rpc) {
                Progress::Done(RpcReply::Messages { messages, .. }) => {
                    return Ok(A::decode(messages.first().map_or(&[][..], Vec::as_slice)).expect("a message"));
                }
                Progress::Done(RpcReply::Status { code, message }) => return Err((code, message)),
                Progress::Wait(until) => self.lab.advance(until),
            }
        }
        panic!("{method} never ends");
    }

    pub fn rpc_request<Q: Message>(&self, method: &str, query: &Q) -> Rpc {
        Rpc {
            began: self.lab.ground.now,
            method: method.into(),
            metadata: Vec::new(),
            messages: vec![query.encode_to_vec()],
            client_certificate: Some(self.cluster.talos_admin.clone()),
        }
    }

    pub fn kube_request(&self, method: &str, path: &str, body: &str) -> Request {
        Request {
            began: self.lab.ground.now,
            method: method.into(),
            path: path.into(),
            headers: vec![("content-type".into(), "application/json".into())],
            body: body.into(),
            client_certificate: Some(self.cluster.kube_admin.clone()),
            ..Request::default()
        }
    }

    pub fn nodes(&mut self) -> Vec<(String, bool)> {
        let Some((cluster, _)) = self.lab.kube_persona(IpAddr::from([10, 0, 0, 11])) else {
            return Vec::new();
        };
        let response = self.http(&Door::Kube(cluster), self.kube_request("GET", "/api/v1/nodes", ""));
        let list: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        let nodes = list["items"].as_array().into_iter().flatten().map(|node| {
            let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
            let ready = conditions.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "True");
            (node["metadata"]["name"].as_str().unwrap_or_default().to_owned(), ready)
        });
        nodes.collect()
    }

    pub fn bring_up(&mut self) {
        self.image();
        let hosts = ["pve1", "pve2", "pve3"];
        let created: Vec<Value> = MACHINES
            .iter()
            .zip(hosts.iter().cycle())
            .map(|((last, _), host)| self.create(host, *last))
            .collect();
        for upid in &created {
            self.wait_for(upid);
        }
        let started: Vec<Value> = MACHINES
            .iter()
            .zip(hosts.iter().cycle())
            .map(|((last, _), host)| {
                self.pve("POST", &format!("/nodes/{host}/qemu/2{last:02}/status/start"), &[])
            })
            .collect();
        for upid in &started {
            self.wait_for(upid);
        }
        for (last, config) in self.cluster.configs.clone() {
            self.until("the machine takes its config", |driver| driver.apply(last, &config));
        }
        self.bootstrap();
    }

    /// Tries to give a machine its config.
    fn apply(&mut self, last: u8, config: &[u8]) -> bool {
        let query = machine::ApplyConfigurationRequest { data: config.to_vec(), ..Default::default() };
        let applied: Result<machine::ApplyConfigurationResponse, _> =
            self.rpc(last, "/machine.MachineService/ApplyConfiguration", &query);
        match applied {
            Ok(_) => true,
            Err((14, _)) => false,
            Err((code, message)) => panic!("m{last} refuses its config: {code} {message}"),
        }
    }

    /// Makes a cluster of the machines, and waits for its nodes.
    fn bootstrap(&mut self) {
        self.until("etcd is bootstrapped", |driver| {
            let query = machine::BootstrapRequest::default();
            let made: Result<machine::BootstrapResponse, _> =
                driver.rpc(11, "/machine.MachineService/Bootstrap", &query);
            made.is_ok()
        });
        self.until("all nodes are ready", |driver| {
            let nodes = driver.nodes();
            nodes.len() == MACHINES.len() && nodes.iter().all(|(_, ready)| *ready)
        });
    }

    /// Does everything as soon as it can be done, for all machines at once.
    pub fn bring_up_eagerly(&mut self) {
        let downloads = self.downloads();
        let hosts = ["pve1", "pve2", "pve3"];
        let mut stages: Vec<Stage> =
            (0..MACHINES.len()).map(|number| Stage::Imaged(downloads[number % 3].clone())).collect();
        let configs = self.cluster.configs.clone();
        self.until("all machines have their configs", |driver| {
            for (number, (last, config)) in configs.iter().enumerate() {
                driver.go_on(&mut stages[number], hosts[number % 3], *last, config);
            }
            stages.iter().all(|stage| *stage == Stage::Configured)
        });
        self.bootstrap();
    }

    /// Does the next thing for a machine if it can be done.
    fn go_on(&mut self, stage: &mut Stage, host: &str, last: u8, config: &[u8]) {
        match stage {
            Stage::Imaged(task) if self.ended(task) => *stage = Stage::Created(self.create(host, last)),
            Stage::Created(task) if self.ended(task) => {
                self.pve("POST", &format!("/nodes/{host}/qemu/2{last:02}/status/start"), &[]);
                *stage = Stage::Started;
            }
            Stage::Started if self.apply(last, config) => *stage = Stage::Configured,
            _ => {}
        }
    }

    /// Has all hosts download the image.
    pub fn image(&mut self) {
        for upid in self.downloads() {
            self.wait_for(&upid);
        }
    }

    /// Starts downloads on all hosts, and returns their tasks.
    fn downloads(&mut self) -> Vec<Value> {
        let recipe =
            "customization:\n  systemExtensions:\n    officialExtensions: [siderolabs/qemu-guest-agent]\n";
        let request = Request {
            method: "POST".into(),
            path: "/schematics".into(),
            body: recipe.into(),
            ..Request::default()
        };
        let posted = self.http(&Door::Factory, request);
        let posted: Value = serde_json::from_slice(&posted.body).expect("a schematic");
        let id = posted["id"].as_str().expect("an id");
        let url = format!("https://factory.talos.dev/image/{id}/v1.13.9/nocloud-amd64.qcow2");
        ["pve1", "pve2", "pve3"]
            .map(|host| {
                self.pve(
                    "POST",
                    &format!("/nodes/{host}/storage/local/download-url"),
                    &[("url", &url), ("content", "import"), ("filename", "talos.qcow2")],
                )
            })
            .to_vec()
    }

    pub fn create(&mut self, host: &str, last: u8) -> Value {
        let (vmid, name) = (format!("2{last:02}"), format!("m{last}"));
        let address = format!("ip=10.0.0.{last}/24,gw=10.0.0.1");
        self.pve(
            "POST",
            &format!("/nodes/{host}/qemu"),
            &[
                ("vmid", &vmid),
                ("name", &name),
                ("memory", "4096"),
                ("cores", "2"),
                ("cpu", "x86-64-v2-AES"),
                ("scsihw", "virtio-scsi-pci"),
                ("scsi0", "local-lvm:0,import-from=local:import/talos.qcow2"),
                ("ide2", "local-lvm:cloudinit"),
                ("net0", "virtio,bridge=vmbr0"),
                ("boot", "order=scsi0"),
                ("serial0", "socket"),
                ("agent", "1"),
                ("ipconfig0", &address),
            ],
        )
    }
}
