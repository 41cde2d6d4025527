//! The lab in process: our own client, real TLS, virtual time.

use std::{io, net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use ichor_lab::{Hall, Inside, Target, proxy::Routes, serve};
use ichor_model::{HostName, VmId};
use ichor_net::{
    Dial, Endpoint, Fingerprint, HttpClient, Trust,
    tls::{Protocol, Secure},
};
use ichor_port::{Http, Method, Request, Secret};
use ichor_pve::{
    Client, Exit, Params, Token, Upid,
    api::{self, Download},
};
use ichor_sim::{
    clock::Time,
    profile::Profile,
    record::Record,
    setup::{Setup, TOKEN, USER},
};

const ADDRESS: &str = "10.0.0.11";

struct Visitor {
    inside: Arc<Inside>,
    pve: Client<HttpClient>,
    host: HostName,
}

impl Visitor {
    fn new(profile: Profile, begins: Time) -> Self {
        let mut setup = Setup::new(1, profile);
        setup.begins = begins;
        let lab = setup.build();
        let routes = Routes::of(&lab).with_name("k8s.example", vec![IpAddr::from([10, 0, 0, 11])]);
        let secret = &lab.pve.access.users[USER].tokens[TOKEN].secret;
        let token = Token::parse(&Secret::new(format!("{USER}!{TOKEN}={secret}"))).expect("a token");
        let pin = Fingerprint::of(&lab.own_persona().expect("a certificate").certificates[0]);
        let inside = Arc::new(Inside::over(Arc::new(Hall::opened_at(lab, begins)), routes));
        let endpoint = "https://pve1:8006".parse().expect("an endpoint");
        let pve = Client::new(client(&inside, endpoint, Trust::Pin(pin)), token);
        Self { inside, pve, host: "pve1".parse().expect("a host") }
    }

    async fn wait_for(&self, upid: Upid) {
        loop {
            let status = self.pve.send(&api::task_status(&upid)).await.expect("a status");
            match status.exit() {
                Some(exit) => return assert_eq!(exit, Exit::Good, "{upid}"),
                None => tokio::time::sleep(Duration::from_secs(1)).await,
            }
        }
    }

    /// Has an image made and downloaded, by the names that a real datacentre would use.
    async fn download(&self) {
        let endpoint = "https://factory.talos.dev".parse().expect("an endpoint");
        let request = Request {
            method: Method::Post,
            target: "/schematics".into(),
            headers: Vec::new(),
            authorization: None,
            body: b"customization: {}\n".to_vec(),
        };
        let factory = client(&self.inside, endpoint, Trust::Anybody);
        let posted = factory.send(request, Duration::from_secs(20)).await.expect("an answer");
        let posted: serde_json::Value = serde_json::from_slice(&posted.body).expect("JSON");
        let id = posted["id"].as_str().expect("an id");
        let url = format!("https://factory.talos.dev/image/{id}/v1.13.9/nocloud-amd64.qcow2");
        let file = Download { url: &url, content: "import", filename: "talos.qcow2", sha256: None };
        let task = self.pve.send(&api::download(&self.host, "local", &file)).await.expect("a task");
        self.wait_for(task).await;
    }

    async fn create(&self, vmid: VmId) {
        let mut options = Params::default();
        for (key, value) in [
            ("memory", "4096"),
            ("cpu", "x86-64-v2-AES"),
            ("scsihw", "virtio-scsi-pci"),
            ("scsi0", "local-lvm:0,import-from=local:import/talos.qcow2"),
            ("ide2", "local-lvm:cloudinit"),
            ("net0", "virtio,bridge=vmbr0"),
            ("boot", "order=scsi0"),
            ("ipconfig0", "ip=10.0.0.11/24,gw=10.0.0.1"),
        ] {
            options.set(key, value);
        }
        let task = self.pve.send(&api::create(&self.host, vmid, options)).await.expect("a task");
        self.wait_for(task).await;
    }

    async fn start(&self, vmid: VmId) {
        let task = self.pve.send(&api::start(&self.host, vmid)).await.expect("a task");
        self.wait_for(task).await;
    }

    /// Asks the machine for its version until it answers, and returns the gRPC status.
    async fn maintenance(&self) -> String {
        loop {
            if let Ok(status) = self.version().await {
                return status;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn version(&self) -> io::Result<String> {
        let stream = self.inside.dial(ADDRESS, 50000).await?;
        let secure = Secure::new(Trust::Anybody, None, Protocol::Http2).expect("terms");
        let stream = secure.connect(stream, ADDRESS).await.map_err(io::Error::other)?;
        let (mut sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(io::Error::other)?;
        tokio::spawn(connection);
        let request = hyper::Request::post(format!("https://{ADDRESS}/machine.MachineService/Version"))
            .header("content-type", "application/grpc")
            .body(Full::new(Bytes::from_static(&[0; 5])))
            .expect("a request");
        let answer = sender.send_request(request).await.map_err(io::Error::other)?;
        let body = answer.into_body().collect().await.map_err(io::Error::other)?;
        let status = body.trailers().and_then(|trailers| trailers.get("grpc-status")).expect("a status");
        Ok(status.to_str().expect("text").to_owned())
    }

    fn record(&self) -> Record {
        self.inside.hall().look(|lab| lab.ground.record.clone())
    }
}

fn client(inside: &Arc<Inside>, endpoint: Endpoint, trust: Trust) -> HttpClient {
    let dialer: Arc<dyn Dial> = Arc::<Inside>::clone(inside);
    HttpClient::new(endpoint, trust, None, dialer).expect("a client")
}

/// From nothing to a machine in maintenance mode; returns how long it took by the lab's clock.
async fn first_machine(visitor: &Visitor) -> Duration {
    let began = visitor.inside.hall().now();
    let vmid = VmId::new(211).expect("a VMID");
    visitor.download().await;
    visitor.create(vmid).await;
    visitor.start(vmid).await;
    // Version is a call that machines in maintenance mode answer.
    assert_eq!(visitor.maintenance().await, "0");
    visitor.inside.hall().now().since(began)
}

#[tokio::test(start_paused = true)]
#[allow(clippy::disallowed_methods, reason = "how long it really takes is what is tested")]
async fn what_takes_long_is_over_at_once() {
    let real = std::time::Instant::now();
    let visitor = Visitor::new(Profile::Wan, ichor_lab::real_time());
    let took = first_machine(&visitor).await;
    assert!(took > Duration::from_secs(30), "{took:?}");
    // It takes a tenth of a second. The rest is for computers that do much else.
    assert!(real.elapsed() < took / 3, "{:?}", real.elapsed());
}

#[tokio::test(start_paused = true)]
async fn the_same_calls_give_the_same_record() {
    let begins = ichor_lab::real_time();
    let run = async || {
        let visitor = Visitor::new(Profile::Wan, begins);
        first_machine(&visitor).await;
        visitor.record()
    };
    let first = run().await;
    assert!(first.calls.len() > 10);
    assert_eq!(run().await, first);
}

#[tokio::test]
async fn without_a_paused_clock_the_lab_goes_as_the_real_one() {
    let visitor = Visitor::new(Profile::Instant, ichor_lab::real_time());
    first_machine(&visitor).await;
}

#[tokio::test(start_paused = true)]
async fn an_address_is_closed_or_nobodys_or_unknown() {
    let visitor = Visitor::new(Profile::Wan, ichor_lab::real_time());
    let refusal = async |host: &str, port| {
        let began = visitor.inside.hall().now();
        let error = visitor.inside.dial(host, port).await.err().expect("nobody listens").kind();
        (error, visitor.inside.hall().now().since(began) >= Duration::from_secs(1))
    };
    assert_eq!(refusal(ADDRESS, 50000).await, (io::ErrorKind::HostUnreachable, true));
    assert_eq!(refusal("pve1", 22).await, (io::ErrorKind::ConnectionRefused, false));
    assert_eq!(refusal("elsewhere.example", 443).await, (io::ErrorKind::NotFound, false));
    assert_eq!(refusal("k8s.example", 6443).await, (io::ErrorKind::HostUnreachable, true));
    first_machine(&visitor).await;
    assert_eq!(refusal(ADDRESS, 6443).await, (io::ErrorKind::ConnectionRefused, false));
    assert_eq!(refusal("k8s.example", 6443).await, (io::ErrorKind::ConnectionRefused, false));
    visitor.inside.dial("K8S.example", 50000).await.expect("the machine by a name");
}

#[tokio::test(start_paused = true)]
async fn a_lab_that_slept_for_long_is_there_at_once_under_its_names() {
    // It begins long before the present, and its hosts tell their status every ten seconds.
    let lab = Setup::new(1, Profile::Wan).build();
    let routes = Routes::of(&lab).with("pve.example", 443, Target::Pve);
    let inside = Inside::over(Arc::new(Hall::new(lab)), routes);
    inside.dial("pve.example", 443).await.expect("Proxmox by another name");
}

#[tokio::test(start_paused = true)]
async fn a_kept_lab_goes_on_where_it_was_or_now() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lab.json");
    let real = ichor_lab::real_time();
    let visitor = Visitor::new(Profile::Wan, real);
    first_machine(&visitor).await;
    let saved = visitor.inside.hall().now();
    serve::save(visitor.inside.hall(), &path).expect("saved");
    let again = || serve::load(&path).expect("readable").expect("there");

    // In virtual time it ran ahead of the real clock, and goes on from there.
    assert!(saved > real + Duration::from_secs(30));
    let inside = Inside::open(again());
    assert_eq!(inside.hall().now(), saved);
    inside.dial(ADDRESS, 50000).await.expect("the machine is still there");
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(inside.hall().now() >= saved + Duration::from_secs(5), "time passes");

    // Opened later than it was saved, it is later.
    let later = saved + Duration::from_hours(24 * 30);
    let inside = Inside::over(Arc::new(Hall::opened_at(again(), later)), Routes::default());
    assert_eq!(inside.hall().now(), later);
    inside.dial(ADDRESS, 50000).await.expect("the machine is still there");
}
