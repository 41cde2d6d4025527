//! Our own clients at the lab's doors: TLS, reason phrases, faults, and the proxy.

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
use ichor_net::{
    Direct, Endpoint, Fingerprint, HttpClient, Trust,
    tls::{Protocol, Secure},
};
use ichor_port::{Http, Method, Request, Response, Secret, TransportError};
use ichor_pve::{Client, Kind, Token, api};
use ichor_sim::{
    faults::FaultPlan,
    profile::Profile,
    pve::storage::checksum::Checksum,
    setup::{Setup, TOKEN, USER},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

struct Open {
    hall: Arc<Hall>,
    at: Listening,
    pin: Fingerprint,
    token: String,
}

async fn open() -> Open {
    let mut setup = Setup::new(1, Profile::Instant);
    setup.begins = ichor_lab::real_time();
    let hall = Arc::new(Hall::new(setup.build()));
    let ports = Ports { address: IpAddr::V4(Ipv4Addr::LOCALHOST), pve: 0, factory: 0, proxy: 0 };
    let routes = Routes::default().with("pve1", 8006, Target::Pve);
    let at = serve::start(&hall, ports, routes).await.expect("ports");
    let (pin, secret) = hall.look(|lab| {
        let persona = lab.own_persona().expect("a certificate");
        (Fingerprint::of(&persona.certificates[0]), lab.pve.access.users[USER].tokens[TOKEN].secret.clone())
    });
    Open { hall, at, pin, token: format!("{USER}!{TOKEN}={secret}") }
}

impl Open {
    fn http(&self, trust: Trust) -> HttpClient {
        let endpoint = Endpoint { host: "127.0.0.1".into(), port: self.at.pve.port(), tls: true };
        HttpClient::new(endpoint, trust, None, Arc::new(Direct)).expect("client")
    }

    fn client(&self, token: &str) -> Client<HttpClient> {
        Client::new(self.http(Trust::Pin(self.pin)), Token::parse(&Secret::new(token)).expect("a token"))
    }

    fn faults(&self, plan: &str) {
        let plan: FaultPlan = serde_json::from_str(plan).expect("a plan");
        self.hall.visit(|lab| lab.ground.faults = plan);
    }
}

async fn get(client: &HttpClient, target: &str) -> Result<Response, TransportError> {
    let request = Request {
        method: Method::Get,
        target: target.into(),
        headers: Vec::new(),
        authorization: None,
        body: Vec::new(),
    };
    client.send(request, Duration::from_secs(20)).await
}

#[tokio::test]
async fn our_client_reads_the_lab() {
    let open = open().await;
    let client = open.client(&open.token);
    assert_eq!(client.send(&api::version()).await.expect("an answer").release, "9.2");
    let hosts = client.send(&api::hosts()).await.expect("an answer");
    assert_eq!(hosts.iter().map(|host| host.node.as_str()).collect::<Vec<_>>().len(), 3);
    assert!(client.send(&api::guests()).await.expect("an answer").is_empty());
}

#[tokio::test]
async fn only_the_pinned_certificate_is_trusted() {
    let open = open().await;
    let other = Fingerprint::of(b"another certificate");
    let refused = get(&open.http(Trust::Pin(other)), "/api2/json/version").await;
    assert!(
        matches!(&refused, Err(TransportError::NotTrusted(why)) if why.contains(&open.pin.to_string())),
        "{refused:?}"
    );
    let unknown = get(&open.http(Trust::System), "/api2/json/version").await;
    assert!(matches!(unknown, Err(TransportError::NotTrusted(_))), "{unknown:?}");
}

#[tokio::test]
async fn a_wrong_token_is_told_in_the_reason_phrase_alone() {
    let open = open().await;
    let wrong = open.client("ichor@pve!lab=00000000-0000-0000-0000-000000000000");
    let error = wrong.send(&api::version()).await.expect_err("no such token");
    assert_eq!(error.refusal(), Some(Kind::Unauthenticated), "{error}");
    assert!(error.to_string().contains("Authentication failed!"), "{error}");
}

#[tokio::test]
async fn faults_reach_the_client_as_what_they_are() {
    let open = open().await;
    let client = open.client(&open.token);
    open.faults(
        r#"[{"server": "pve", "path": "/version", "fault": {"close": "after"}},
            {"server": "pve", "path": "/version", "occurrence": 2, "fault": {"cut": {"bytes": 9}}},
            {"server": "pve", "path": "/version", "occurrence": 3,
             "fault": {"status": {"code": 596, "reason": "Connection timed out", "when": "after"}}},
            {"server": "pve", "path": "/version", "occurrence": 4, "fault": {"payload": "<html>"}}]"#,
    );
    for what in ["closed", "cut", "broken", "nonsense"] {
        let error = client.send(&api::version()).await.expect_err(what);
        assert!(error.may_have_happened(), "{what}: {error}");
    }
    client.send(&api::version()).await.expect("the plan is used up");
}

#[tokio::test]
async fn the_proxy_leads_into_the_lab_and_nowhere_else() {
    let open = open().await;
    for (target, expected) in [("pve1:8006", "200"), ("127.0.0.1:22", "502"), ("example.org:443", "502")] {
        let mut stream = TcpStream::connect(open.at.proxy).await.expect("the proxy");
        let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.expect("an answer");
        assert_eq!(&answer[9..], expected.as_bytes(), "{target}");
    }
}

#[tokio::test]
async fn a_state_is_kept_and_continued() {
    let open = open().await;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lab.json");
    open.client(&open.token).send(&api::create_pool("talos", "")).await.expect("a pool");
    serve::save(&open.hall, &path).expect("saved");
    let again = serve::load(&path).expect("readable").expect("there");
    assert!(again.pve.access.pools.contains_key("talos"));
    assert_eq!(serve::load(&folder.path().join("none.json")).expect("no error"), None);
}

/// The file that comes last in a body, as clients write it.
fn upload(checksum: &str) -> (String, &'static str) {
    let part = |name: &str, text: &str| {
        format!("--cut\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{text}\r\n")
    };
    let front = part("content", "iso") + &part("checksum-algorithm", "sha256") + &part("checksum", checksum);
    let head = "--cut\r\nContent-Disposition: form-data; name=\"filename\"; filename=\"large.iso\"\r\n\r\n";
    (front + head, "\r\n--cut--\r\n")
}

#[tokio::test]
async fn large_uploads_are_taken_in_without_being_kept() {
    const PIECES: usize = 70;
    let open = open().await;
    let piece = vec![b'x'; 1 << 20];
    let mut sum = Checksum::of("sha256");
    (0..PIECES).for_each(|_| sum.update(&piece));
    let (front, end) = upload(&sum.finish());
    let length = front.len() + PIECES * piece.len() + end.len();
    let head = format!(
        "POST /api2/json/nodes/pve1/storage/local/upload HTTP/1.1\r\nHost: pve1\r\n\
         Authorization: PVEAPIToken={}\r\nContent-Type: multipart/form-data; boundary=cut\r\n\
         Content-Length: {length}\r\n\r\n",
        open.token
    );
    let secure = Secure::new(Trust::Pin(open.pin), None, Protocol::Http1).expect("TLS");
    let stream = TcpStream::connect(open.at.pve).await.expect("a connection");
    let mut stream = secure.connect(stream, "127.0.0.1").await.expect("TLS");
    stream.write_all((head + &front).as_bytes()).await.expect("sent");
    for _ in 0..PIECES {
        stream.write_all(&piece).await.expect("sent");
    }
    stream.write_all(end.as_bytes()).await.expect("sent");
    let mut answer = [0; 15];
    stream.read_exact(&mut answer).await.expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 200 OK");
    let client = open.client(&open.token);
    let there =
        client.send(&api::volumes(&"pve1".parse().expect("a name"), "local", "iso")).await.expect("a list");
    let large = there.iter().find(|file| file.volid.ends_with("large.iso")).expect("it is there");
    assert_eq!(large.size, (PIECES * piece.len()) as u64);
    let state = open.hall.look(|lab| serde_json::to_vec(lab).expect("a state").len());
    assert!(state < 8 << 20, "only its beginning is kept: {state} bytes");
}
