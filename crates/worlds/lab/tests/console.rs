//! Our own client at the serial console of a machine, from a VM that is off to a connection with a pinned key.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use ichor_lab::{
    Hall, Target,
    proxy::Routes,
    serve::{self, Listening, Ports},
};
use ichor_model::{HostName, VmId};
use ichor_net::{
    Dial, Direct, Endpoint, Fingerprint, HttpClient, KeyFingerprint, Trust,
    tls::{NotTrusted, Protocol, Secure},
};
use ichor_port::{Method, NotOpened, Received, Request, Secret, WebSocket, WebSockets};
use ichor_pve::{
    Call, Client, Kind, Params, Token, Upid, api,
    console::{ConsoleError, maintenance_key},
};
use ichor_sim::{
    profile::Profile,
    pve::Release,
    setup::{Setup, TOKEN, USER},
};

/// An address that only the lab knows.
const ADDRESS: (&str, &str) = ("ipconfig0", "ip=10.0.0.11/24,gw=10.0.0.1");
const WITHIN: Duration = Duration::from_secs(30);

struct Open {
    hall: Arc<Hall>,
    at: Listening,
    pin: Fingerprint,
    token: String,
}

impl Open {
    fn http(&self) -> HttpClient {
        let endpoint = Endpoint { host: "127.0.0.1".into(), port: self.at.pve.port(), tls: true };
        HttpClient::new(endpoint, Trust::Pin(self.pin), None, Arc::new(Direct)).expect("client")
    }

    fn client(&self) -> Client<HttpClient> {
        Client::new(self.http(), Token::parse(&Secret::new(&self.token)).expect("a token"))
    }

    /// Asks without our client, as somebody with mistakes would.
    async fn ask(&self, target: &str) -> Result<ichor_net::Socket, NotOpened> {
        let authorization = Some(Secret::new(format!("PVEAPIToken={}", self.token)));
        let target = format!("/api2/json{target}");
        let request = Request { method: Method::Get, target, headers: vec![], authorization, body: vec![] };
        self.http().open(request, "binary", WITHIN).await
    }
}

async fn open(release: Release) -> Open {
    let mut setup = Setup::new(1, Profile::Instant);
    setup.begins = ichor_lab::real_time();
    setup.release = release;
    let hall = Arc::new(Hall::new(setup.build()));
    let ports = Ports { address: IpAddr::V4(Ipv4Addr::LOCALHOST), pve: 0, factory: 0, proxy: 0 };
    let at =
        serve::start(&hall, ports, Routes::default().with("pve1", 8006, Target::Pve)).await.expect("ports");
    let (pin, secret) = hall.look(|lab| {
        let persona = lab.own_persona().expect("a certificate");
        (Fingerprint::of(&persona.certificates[0]), lab.pve.access.users[USER].tokens[TOKEN].secret.clone())
    });
    Open { hall, at, pin, token: format!("{USER}!{TOKEN}={secret}") }
}

fn host() -> HostName {
    "pve1".parse().expect("a name")
}

fn vmid() -> VmId {
    "401".parse().expect("a number")
}

async fn done(client: &Client<HttpClient>, call: &Call<Upid>) {
    let upid = client.send(call).await.expect("a task");
    for _ in 0..200 {
        if let Some(exit) = client.send(&api::task_status(&upid)).await.expect("its state").exit() {
            assert_eq!(exit, ichor_pve::Exit::Good, "{upid}");
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("{upid} does not end");
}

fn power(what: &str) -> Call<Upid> {
    Call::new(Method::Post, &["nodes", "pve1", "qemu", "401", "status", what])
}

/// Makes a VM that boots Talos, with these options besides.
async fn make(client: &Client<HttpClient>, more: &[(&str, &str)]) {
    let url = "https://factory.talos.dev/image/\
               376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba/v1.13.9/nocloud-amd64.qcow2";
    let image = Call::new(Method::Post, &["nodes", "pve1", "storage", "local", "download-url"])
        .with("url", url)
        .with("content", "import")
        .with("filename", "talos.qcow2");
    done(client, &image).await;
    let mut options = Params::default();
    for (key, value) in [
        ("name", "m1"),
        ("memory", "2048"),
        ("cores", "2"),
        ("cpu", "x86-64-v2-AES"),
        ("scsihw", "virtio-scsi-single"),
        ("scsi0", "local-lvm:0,import-from=local:import/talos.qcow2"),
        ("ide2", "local-lvm:cloudinit"),
        ("net0", "virtio,bridge=vmbr0"),
        ("boot", "order=scsi0"),
    ]
    .into_iter()
    .chain(more.iter().copied())
    {
        options.set(key, value);
    }
    done(client, &api::create(&host(), vmid(), options)).await;
}

async fn connect(trust: Trust) -> Result<(), NotTrusted> {
    let stream = Direct.dial("127.61.0.11", 50000).await.expect("the machine listens");
    Secure::new(trust, None, Protocol::Http2)?.connect(stream, "127.61.0.11").await.map(drop)
}

#[tokio::test]
async fn the_key_that_the_console_shows_is_the_key_of_the_machine() {
    let open = open(Release::V9_2).await;
    let client = open.client();
    let address = ("ipconfig0", "ip=127.61.0.11/24,gw=127.61.0.1");
    make(&client, &[("serial0", "socket"), ("freeze", "1"), address]).await;
    done(&client, &power("start")).await;
    // The guest has not begun: whoever opens the console now misses nothing.
    let mut console = client.open_console(&host(), vmid(), WITHIN).await.expect("a console");
    done(&client, &power("resume")).await;
    let key = KeyFingerprint::from(console.read_until(maintenance_key).await.expect("a key"));

    for _ in 0..500 {
        if Direct.dial("127.61.0.11", 50000).await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    connect(Trust::PinKey(key)).await.expect("the machine has this key");
    let other = KeyFingerprint::from([1; 32]);
    let refused = connect(Trust::PinKey(other)).await.expect_err("another key");
    assert!(
        matches!(refused, NotTrusted::OtherKey { shown: Some(shown), wanted } if shown == key && wanted == other)
    );

    // A machine that boots again has another certificate, and the same console shows it.
    done(&client, &power("reset")).await;
    let newer = KeyFingerprint::from(console.read_until(maintenance_key).await.expect("a newer key"));
    assert_ne!(newer, key);
}

#[tokio::test]
async fn a_console_keeps_nothing_for_those_who_come_late() {
    let open = open(Release::V9_2).await;
    let client = open.client();
    make(&client, &[("serial0", "socket"), ADDRESS]).await;
    done(&client, &power("start")).await;
    let shown =
        open.hall.look(|lab| lab.ground.guests[&vmid()].console.contains("server certificate issued"));
    assert!(shown, "an instant machine has printed it by now");
    let late = client.read_console(&host(), vmid(), Duration::from_millis(300), maintenance_key).await;
    assert!(
        matches!(&late, Err(ConsoleError::Late(words)) if words.starts_with("starting serial")),
        "{late:?}"
    );
    // The task of a console ends with its client.
    let running = || open.hall.visit(|lab| lab.pve.tasks.running().count());
    for _ in 0..500 {
        if running() == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(running(), 0);
}

#[tokio::test]
async fn a_serial_port_has_one_reader_and_the_next_one_waits() {
    let open = open(Release::V9_2).await;
    let client = open.client();
    make(&client, &[("serial0", "socket"), ADDRESS, ("freeze", "1")]).await;
    done(&client, &power("start")).await;
    let mut first = client.open_console(&host(), vmid(), WITHIN).await.expect("a console");
    let mut second = client.open_console(&host(), vmid(), WITHIN).await.expect("another");
    done(&client, &power("resume")).await;
    let key = first.read_until(maintenance_key).await.expect("a key");
    drop(first);
    done(&client, &power("reset")).await;
    let newer = second.read_until(maintenance_key).await.expect("a newer key");
    assert_ne!(newer, key, "what the first one read is gone");
    // When the VM goes, so does the console.
    done(&client, &power("stop")).await;
    let ended = second.read_until(|_| None::<()>).await;
    assert!(matches!(ended, Err(ConsoleError::Ended(_))), "{ended:?}");
}

#[tokio::test]
async fn what_is_wrong_with_a_vm_is_said_on_its_console() {
    let open = open(Release::V9_2).await;
    let client = open.client();
    make(&client, &[]).await;
    let bare = client.open_console(&host(), vmid(), WITHIN).await.expect_err("no port");
    assert!(bare.has_no_port(), "{bare}");
    let mut port = Params::default();
    port.set("serial0", "socket");
    client.send(&api::configure(&host(), vmid(), port)).await.expect("a port");
    let off = client.open_console(&host(), vmid(), WITHIN).await.expect_err("it is off");
    assert!(off.is_off(), "{off}");
    let missing = client.open_console(&host(), "999".parse().expect("a number"), WITHIN).await;
    let missing = missing.expect_err("no such VM");
    assert!(
        matches!(&missing, ConsoleError::Call(error) if error.refusal() == Some(Kind::Missing)),
        "{missing}"
    );
}

#[tokio::test]
async fn releases_before_9_2_hang_up_on_tokens() {
    let open = open(Release::V8_4).await;
    let client = open.client();
    make(&client, &[("serial0", "socket"), ADDRESS]).await;
    done(&client, &power("start")).await;
    let refused = client.open_console(&host(), vmid(), WITHIN).await.expect_err("a token");
    assert_eq!(refused, ConsoleError::NotLetIn);
}

/// What `termproxy` answers: the port, and the ticket as it stands in a query.
async fn ticket(client: &Client<HttpClient>) -> (String, String) {
    let call: Call<serde_json::Value> =
        Call::new(Method::Post, &["nodes", "pve1", "qemu", "401", "termproxy"]);
    let answer = client.send(&call).await.expect("a ticket");
    let text = |key: &str| answer[key].as_str().expect("text").to_owned();
    (text("port"), text("ticket"))
}

#[tokio::test]
async fn only_the_holder_of_the_ticket_is_let_in() {
    let open = open(Release::V9_2).await;
    let client = open.client();
    make(&client, &[("serial0", "socket"), ADDRESS]).await;
    done(&client, &power("start")).await;
    let path = "/nodes/pve1/qemu/401/vncwebsocket";
    let (port, secret) = ticket(&client).await;

    for query in
        [format!("port={port}&vncticket=PVEVNC%3A00000000%3A%3Ano"), format!("port=5950&vncticket={secret}")]
    {
        let refused = open.ask(&format!("{path}?{query}")).await;
        let Err(NotOpened::Answered(answer)) = refused else { panic!("{query}: {refused:?}") };
        assert_eq!(
            (answer.status, answer.reason.as_str()),
            (401, "permission denied - invalid PVEVNC ticket")
        );
    }
    let outside = open.ask(&format!("{path}?port=22&vncticket={secret}")).await;
    assert!(matches!(&outside, Err(NotOpened::Answered(answer)) if answer.status == 400), "{outside:?}");

    // The ticket opens the line; whoever then gives another one is cut off, and the port is used up.
    let mut socket = open.ask(&format!("{path}?port={port}&vncticket={secret}")).await.expect("a line");
    socket.send(format!("{USER}!{TOKEN}:PVEVNC:other\n").into_bytes()).await.expect("sent");
    assert_eq!(socket.receive(WITHIN).await, Ok(Received::Closed));

    // Rights are looked at again when the line is open.
    let (port, secret) = ticket(&client).await;
    let mut socket = open.ask(&format!("{path}?port={port}&vncticket={secret}")).await.expect("a line");
    open.hall.visit(|lab| lab.pve.access.acl.clear());
    socket.send(format!("{USER}!{TOKEN}:{secret}\n").into_bytes()).await.expect("sent");
    assert_eq!(socket.receive(WITHIN).await, Ok(Received::Closed));
    let refused = client.open_console(&host(), vmid(), WITHIN).await.expect_err("no right");
    assert!(
        matches!(&refused, ConsoleError::Call(error) if error.refusal() == Some(Kind::Forbidden)),
        "{refused}"
    );
}
