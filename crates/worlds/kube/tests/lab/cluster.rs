//! A cluster in the lab, brought up in process and then served on loopback.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, LazyLock},
    time::Duration,
};

use ichor_kube::Client;
use ichor_lab::{
    Hall,
    listen::{self, Behind},
    proxy::Routes,
};
use ichor_machineconfig::{
    Config, Document, emit,
    generate::{Blueprint, Install, documents},
    pki::{Authority, Entropy, RsaKey, TalosRole, Term, Timestamp, kubernetes_admin, talos_client},
    secrets::Bundle,
};
use ichor_model::{KubernetesVersion, Minor, desired::Role};
use ichor_net::{Dial, Endpoint, HttpClient, Identity, Trust};
use ichor_sim::{
    Door, Lab, Progress,
    clock::Time,
    profile::Profile,
    setup::{Setup, TOKEN, USER},
    wire::{Request, Response, Rpc, RpcReply},
};
use ichor_talos_proto::{Message, machine};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// The last byte of each machine's address.
const MACHINES: [(u8, Role); 3] = [(11, Role::ControlPlane), (21, Role::Worker), (22, Role::Worker)];
/// The lab begins this long ago, so that what it leaps ahead while it boots is not in the future.
const HEAD_START: Duration = Duration::from_mins(2);

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

fn bundle(seed: u64, now: Timestamp) -> Bundle {
    let file = include_str!("../../../../core/machineconfig/tests/golden/service-account.pem");
    let (_, pem) = file.split_once(".\n").expect("a warning, then the key");
    let rsa = RsaKey::from_pem(pem).expect("the test key");
    Bundle::generate(&mut Seeded(seed, 0), now, rsa).expect("a bundle")
}

fn config(bundle: &Bundle, last: u8, role: Role) -> Vec<u8> {
    let kubernetes: KubernetesVersion = "v1.36.3".parse().expect("a version");
    let mut blueprint = Blueprint::new(role, Minor::new(1, 13), "demo", "https://10.0.0.11:6443", kubernetes);
    blueprint.install = Some(Install { disk: Some("/dev/sda".into()), image: None, kernel_args: Vec::new() });
    let mut config = Config::default();
    for mut document in documents(&blueprint, bundle) {
        if document["kind"] == "HostnameConfig" {
            document["auto"] = "off".into();
            document["hostname"] = format!("m{last}").into();
        }
        config.push(Document::from_json(&document).expect("a document"));
    }
    emit(&config).into_bytes()
}

/// Calls the lab in process, and lets its time pass while it waits.
struct Driver {
    lab: Lab,
    token: String,
    talos_admin: Vec<u8>,
}

impl Driver {
    fn http(&mut self, door: &Door, mut request: Request) -> Response {
        request.began = self.lab.ground.now;
        for _ in 0..1000 {
            match self.lab.call(door, &request) {
                Progress::Done(response) => return response,
                Progress::Wait(until) => self.lab.advance(until),
            }
        }
        panic!("{} {} never ends", request.method, request.path);
    }

    /// Calls Proxmox, and waits for the task that comes of it.
    fn task(&mut self, path: &str, params: &[(&str, &str)]) {
        let encode = |text: &str| -> String { text.bytes().map(|byte| format!("%{byte:02X}")).collect() };
        let form: Vec<String> =
            params.iter().map(|(key, value)| format!("{key}={}", encode(value))).collect();
        let body = form.join("&").into_bytes();
        let headers = vec![
            ("authorization".to_owned(), self.token.clone()),
            ("content-type".to_owned(), "application/x-www-form-urlencoded".to_owned()),
            ("content-length".to_owned(), body.len().to_string()),
        ];
        let path = format!("/api2/json/nodes/pve1/{path}");
        let request = Request { method: "POST".into(), path, headers, body, ..Request::default() };
        let response = self.http(&Door::Pve, request);
        assert_eq!(response.status, 200, "{:?} {}", response.reason, String::from_utf8_lossy(&response.body));
        let upid: serde_json::Value = serde_json::from_slice(&response.body).expect("JSON");
        let path = format!("/api2/json/nodes/pve1/tasks/{}/status", upid["data"].as_str().expect("a task"));
        self.until("the task ends", |driver| {
            let headers = vec![("authorization".to_owned(), driver.token.clone())];
            let request = Request { method: "GET".into(), path: path.clone(), headers, ..Request::default() };
            let status = driver.http(&Door::Pve, request);
            let status: serde_json::Value = serde_json::from_slice(&status.body).expect("JSON");
            assert_ne!(status["data"]["exitstatus"], "unexpected status");
            status["data"]["exitstatus"] == "OK"
        });
    }

    fn rpc(&mut self, last: u8, method: &str, query: Vec<u8>) -> Result<(), (i32, String)> {
        let rpc = Rpc {
            began: self.lab.ground.now,
            method: method.into(),
            metadata: Vec::new(),
            messages: vec![query],
            client_certificate: Some(self.talos_admin.clone()),
        };
        for _ in 0..1000 {
            match self.lab.rpc(IpAddr::from([10, 0, 0, last]), &rpc) {
                Progress::Done(RpcReply::Messages { .. }) => return Ok(()),
                Progress::Done(RpcReply::Status { code, message }) => return Err((code, message)),
                Progress::Wait(until) => self.lab.advance(until),
            }
        }
        panic!("{method} never ends");
    }

    /// Lets things happen until a condition holds, for as long as there is something to happen.
    fn until(&mut self, what: &str, holds: impl Fn(&mut Self) -> bool) {
        let deadline = self.lab.ground.now + HEAD_START / 2;
        while !holds(self) {
            let next = self.lab.ground.agenda.next().filter(|next| *next <= deadline);
            self.lab.advance(next.unwrap_or_else(|| panic!("waited in vain until {what}")));
        }
    }

    fn bring_up(&mut self, bundle: &Bundle) {
        let recipe =
            "{customization: {systemExtensions: {officialExtensions: [siderolabs/qemu-guest-agent]}}}";
        let (method, path) = ("POST".into(), "/schematics".into());
        let posted =
            self.http(&Door::Factory, Request { method, path, body: recipe.into(), ..Request::default() });
        assert_eq!(posted.status, 201);
        let url = "https://factory.talos.dev/image/ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515/v1.13.9/nocloud-amd64.qcow2";
        let download = [("url", url), ("content", "import"), ("filename", "talos.qcow2")];
        self.task("storage/local/download-url", &download);
        for (last, role) in MACHINES {
            self.machine(last);
            let data = config(bundle, last, role);
            let query = machine::ApplyConfigurationRequest { data, ..Default::default() }.encode_to_vec();
            self.until("the machine takes its config", |driver| {
                driver.rpc(last, "/machine.MachineService/ApplyConfiguration", query.clone()).is_ok()
            });
        }
        let query = machine::BootstrapRequest::default().encode_to_vec();
        self.until("etcd is bootstrapped", |driver| {
            driver.rpc(11, "/machine.MachineService/Bootstrap", query.clone()).is_ok()
        });
        self.until("all nodes are there", |driver| {
            let Some((cluster, _)) = driver.lab.kube_persona(IpAddr::from([10, 0, 0, 11])) else {
                return false;
            };
            let nodes = driver.lab.ground.kubernetes.get(&cluster).map_or(0, |view| view.nodes.len());
            nodes == MACHINES.len()
        });
    }

    fn machine(&mut self, last: u8) {
        let (vmid, name) = (format!("2{last}"), format!("m{last}"));
        let address = format!("ip=10.0.0.{last}/24,gw=10.0.0.1");
        let options = [
            ("vmid", vmid.as_str()),
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
        ];
        self.task("qemu", &options);
        self.task(&format!("qemu/{vmid}/status/start"), &[]);
    }
}

/// Leads through the lab's proxy to the control plane, whoever is wanted.
struct Through(SocketAddr);

const CONTROL_PLANE: &str = "10.0.0.11";

impl Dial for Through {
    fn dial<'a>(&'a self, _host: &'a str, port: u16) -> ichor_net::Dialled<'a> {
        Box::pin(async move {
            let mut stream = TcpStream::connect(self.0).await?;
            let connect = format!("CONNECT {CONTROL_PLANE}:{port} HTTP/1.1\r\n\r\n");
            stream.write_all(connect.as_bytes()).await?;
            let mut answer = [0; 39];
            stream.read_exact(&mut answer).await?;
            assert_eq!(&answer, b"HTTP/1.1 200 Connection established\r\n\r\n");
            Ok(Box::new(stream) as Box<dyn ichor_net::Stream>)
        })
    }
}

/// What every test begins with. It is brought up once: the tests are about what comes after.
struct Begin {
    lab: Lab,
    bundle: Bundle,
    other: Bundle,
    now: Timestamp,
}

static BEGIN: LazyLock<Begin> = LazyLock::new(|| {
    let head_start = u64::try_from(HEAD_START.as_millis()).expect("some minutes");
    let begins = Time::from_millis(ichor_lab::real_time().millis() - head_start);
    let now = Timestamp::from_unix_seconds(begins.unix_seconds());
    let (bundle, other) = (bundle(1, now), bundle(2, now));
    let mut setup = Setup::new(1, Profile::Instant);
    setup.begins = begins;
    let lab = setup.build();
    let secret = lab.pve.access.users[USER].tokens[TOKEN].secret.clone();
    let term = Term { now, lifetime: Duration::from_hours(24) };
    let talos = talos_client(&bundle.os, &[TalosRole::Admin], term, &mut Seeded(3, 0)).expect("a client");
    let talos_admin = talos.certificate.der().to_vec();
    let mut driver = Driver { lab, token: format!("PVEAPIToken={USER}!{TOKEN}={secret}"), talos_admin };
    driver.bring_up(&bundle);
    Begin { lab: driver.lab, bundle, other, now }
});

/// A cluster that is served on loopback: one control plane at 10.0.0.11 and two workers.
pub struct Cluster {
    pub hall: Arc<Hall>,
    pub bundle: &'static Bundle,
    /// Another cluster's secrets.
    pub other: &'static Bundle,
    now: Timestamp,
    proxy: SocketAddr,
}

impl Cluster {
    /// Serves a cluster of the test's own.
    pub async fn up() -> Self {
        let Begin { lab, bundle, other, now } = &*BEGIN;
        let hall = Arc::new(Hall::new(lab.clone()));
        let any = ([127, 0, 0, 1], 0).into();
        let proxy = listen::open(&hall, any, Behind::Proxy(Routes::default())).await.expect("a port");
        let clock = Arc::clone(&hall);
        tokio::spawn(async move { clock.keep_time().await });
        Self { hall, bundle, other, now: *now, proxy }
    }

    /// Makes a client that trusts one authority and presents a certificate of another, or none.
    pub fn client(&self, trusts: &Authority, shows: Option<&Authority>) -> Client<HttpClient> {
        self.client_at(CONTROL_PLANE, trusts, shows)
    }

    /// Makes a client that takes the control plane for somebody.
    pub fn client_at(&self, host: &str, trusts: &Authority, shows: Option<&Authority>) -> Client<HttpClient> {
        let endpoint = Endpoint { host: host.into(), port: 6443, tls: true };
        let identity = shows.map(|authority| {
            let term = Term { now: self.now, lifetime: Duration::from_hours(24) };
            let client = kubernetes_admin(authority, term, &mut Seeded(4, 0)).expect("a client");
            let (certificate, key) = client.to_der().expect("a key");
            Identity { certificates: vec![certificate], key }
        });
        let trust = Trust::Authorities(vec![trusts.certificate().der().to_vec()]);
        let dialer = Arc::new(Through(self.proxy));
        Client::new(HttpClient::new(endpoint, trust, identity.as_ref(), dialer).expect("a client"))
    }

    /// Makes a client that may do everything.
    pub fn admin(&self) -> Client<HttpClient> {
        self.client(&self.bundle.kubernetes, Some(&self.bundle.kubernetes))
    }
}
