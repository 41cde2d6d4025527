//! Servers that mean harm, as one table: each client meets each trick, and ends in bounded time and memory, with a
//! calm message and without a character that steers a terminal.
//!
//! What is asserted, and where. `here` is this file, which plays a trick against all clients that speak HTTP:
//! Proxmox, Kubernetes, the Image Factory and Vault, and the handshake of Proxmox' console.
//!
//! | Trick | HTTP clients | console (websocket) | Talos (gRPC) | bucket | jump host (SSH) |
//! | --- | --- | --- | --- | --- | --- |
//! | redirect: same host, other host, loopback, file | here | here | `talos` | `store` | none in SSH |
//! | endless body, endless refusal | here | here, `net` | `talos` | `store` | `ssh` |
//! | endless headers, endless `100 Continue` | here | here | `talos` | `store` | `ssh` |
//! | compressed, or said to be | here | here | `talos` | `store` | none in SSH |
//! | ANSI, OSC 52, bidi in errors | here | here, `pve` | `talos` | `store` | `ssh` |
//! | ANSI, OSC 52, bidi in names | Proxmox: `cli`; others: no test | `pve` | no test: `talos` cleans them | none are shown | none are shown |
//! | the request itself, with who asked | here | here | none asks by a secret | `store`, `cli` | none in SSH |
//! | deep nesting | here | here | `matrix` | `store` | none in SSH |
//! | another CA, expired, other name, other pin | here | here | here | `store` | `ssh`: other, revoked |
//! | slow-loris | here | here, `net` | `talos` | `store` | no test: `ssh` has silence in the middle |
//! | silence | here | here, `net` | `talos` | `store` | `ssh` |
//! | early close | here | here, `net` | `talos` | `store` | `ssh` |
//! | huge numbers, other types | here | here | `talos` | `store` | none in SSH |
//! | keys twice | here | here | none in protobuf | none in XML | none in SSH |
//! | lists without end | `kube`: `answers` | - | `talos` | `store` | - |
//! | tar in a kubeconfig stream | ichor makes kubeconfigs itself, and reads no such stream | | | | |
//!
//! The names are those of crates, with a `tests/hostile.rs`; for `ssh` it is `tests/jump.rs`, for `net`
//! `tests/websocket.rs`, for `pve` `src/console/tests.rs`. Proxies on the way are in `net`: `proxy`. Whole verbs meet the
//! lab's hostility in [`matrix`](super::matrix), and the real program in `cli`: `tests/cli/hostile_servers.rs`.

use std::{
    fmt::Display,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use ichor_machineconfig::{
    pki::{
        Authority, Client as Identity, Entropy, Server, ServerName, Term, Timestamp, self_signed_server,
        server,
    },
    secrets::Bundle,
};
use ichor_model::SecretRef;
use ichor_net::{Dial, Dialled, Endpoint, Fingerprint, HttpClient, KeyFingerprint, Stream, Trust};
use ichor_port::{Secret, TransportError};
use ichor_spec::Sources;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    time::{Instant, sleep},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    },
};

use super::{lab, site, with_secrets};
use crate::{
    bundle::{self, Signer},
    materials,
    memory::Memory,
};

/// No single call may take longer.
const LONGEST: Duration = Duration::from_mins(2);
/// Most bytes that a client takes in: a body of 32 MiB, and what is on the way.
const MOST: usize = 40 << 20;
/// Most characters of a message.
const LONGEST_MESSAGE: usize = 5_000;
const SECRET: &str = "canary-of-the-token";
/// Another title, the clipboard, a cleared screen, the control characters of C1, a line of its own, and text that
/// runs the other way.
const ESCAPES: &str =
    "\u{1b}]0;owned\u{7}\u{1b}]52;c;AAAA\u{7}\u{1b}[2J\u{9b}31m\u{8}\r\nall is well\u{202e}\u{0}";

// ---- servers

/// What a server sends once the head of a request is there.
#[derive(Clone)]
struct Trick {
    says: Vec<u8>,
    /// What follows again and again, and how long is waited in between.
    goes_on: Option<(Vec<u8>, Duration)>,
    /// Whether the line stays open after that.
    stays: bool,
}

fn once(says: impl Into<Vec<u8>>) -> Trick {
    Trick { says: says.into(), goes_on: None, stays: false }
}

fn silent(says: impl Into<Vec<u8>>) -> Trick {
    Trick { stays: true, ..once(says) }
}

fn endless(says: &str, more: impl Into<Vec<u8>>) -> Trick {
    Trick { goes_on: Some((more.into(), Duration::ZERO)), ..once(says) }
}

fn slow(says: &str, more: &str) -> Trick {
    Trick { goes_on: Some((more.into(), Duration::from_secs(1))), ..once(says) }
}

fn answer(head: &str, body: impl Display) -> Trick {
    let body = body.to_string();
    once(format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
}

/// A server in memory. The first of its connections may be served well.
struct Hostile {
    trick: Trick,
    first: Option<Trick>,
    tls: Option<TlsAcceptor>,
    dialled: Mutex<Vec<String>>,
    sent: Arc<AtomicUsize>,
    heard: Arc<AtomicUsize>,
}

impl Hostile {
    fn new(trick: Trick) -> Self {
        let (dialled, sent, heard) = (Mutex::default(), Arc::default(), Arc::default());
        Self { trick, first: None, tls: None, dialled, sent, heard }
    }
}

impl Dial for Hostile {
    fn dial<'a>(&'a self, host: &'a str, port: u16) -> Dialled<'a> {
        let mut dialled = self.dialled.lock().expect("lock");
        let first = self.first.clone().filter(|_| dialled.is_empty());
        dialled.push(format!("{host}:{port}"));
        let (near, far) = duplex(64 * 1024);
        let trick = first.unwrap_or_else(|| self.trick.clone());
        let (sent, heard, tls) = (Arc::clone(&self.sent), Arc::clone(&self.heard), self.tls.clone());
        tokio::spawn(async move {
            match tls {
                None => serve(far, trick, &sent, &heard).await,
                Some(tls) => {
                    if let Ok(line) = tls.accept(far).await {
                        serve(line, trick, &sent, &heard).await;
                    }
                }
            }
        });
        Box::pin(async move { Ok(Box::new(near) as Box<dyn Stream>) })
    }
}

async fn serve(mut line: impl Stream, trick: Trick, sent: &AtomicUsize, heard: &AtomicUsize) {
    let mut request = Vec::new();
    while !request.windows(4).any(|four| four == b"\r\n\r\n") {
        let mut piece = [0; 4096];
        match line.read(&mut piece).await {
            Ok(read) if read > 0 => request.extend(&piece[..read]),
            _ => return,
        }
        heard.fetch_add(1, Ordering::SeqCst);
    }
    if line.write_all(&reflected(&trick.says, &request)).await.is_err() {
        return;
    }
    while let Some((more, pause)) = &trick.goes_on {
        if line.write_all(more).await.is_err() {
            return;
        }
        sent.fetch_add(more.len(), Ordering::SeqCst);
        if !pause.is_zero() {
            sleep(*pause).await;
        }
    }
    if trick.stays {
        std::future::pending::<()>().await;
    }
    let _ = line.shutdown().await;
}

/// Puts the request into an answer that repeats it.
fn reflected(says: &[u8], request: &[u8]) -> Vec<u8> {
    let says = String::from_utf8_lossy(says).into_owned();
    if !says.contains("HEARD") {
        return says.into_bytes();
    }
    let request = String::from_utf8_lossy(request).replace("\r\n", " ");
    let (_, body) = says.split_once("\r\n\r\n").unwrap_or_default();
    let body = body.replace("HEARD", &request);
    let status = says.lines().next().unwrap_or_default();
    format!("{status}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

// ---- clients

type Told = Result<String, String>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Proxmox,
    Console,
    Kubernetes,
    Factory,
    Vault,
}

const CLIENTS: [Who; 5] = [Who::Proxmox, Who::Console, Who::Kubernetes, Who::Factory, Who::Vault];
/// What opens a console.
const TICKET: &str =
    r#"{"data":{"user":"ichor@pve!lab","ticket":"canary-of-the-token","port":"5900","upid":"UPID:x"}}"#;

fn pve(http: HttpClient) -> ichor_pve::Client<HttpClient> {
    let token = Secret::new(format!("ichor@pve!lab={SECRET}"));
    ichor_pve::Client::new(http, ichor_pve::Token::parse(&token).expect("a token"))
}

fn told<T: std::fmt::Debug, E: Display + std::fmt::Debug>(answer: Result<T, E>) -> Told {
    match answer {
        Ok(value) => Ok(format!("{value:?}")),
        Err(error) => {
            assert!(!format!("{error:?}").contains(SECRET), "{error:?}");
            Err(error.to_string())
        }
    }
}

impl Who {
    /// Asks a server once, as this client does.
    async fn ask(self, server: &Arc<Hostile>, url: &str, trust: Trust) -> Told {
        let dialer: Arc<dyn Dial> = Arc::clone(server) as _;
        if self == Self::Vault {
            return ask_vault(dialer, url, trust);
        }
        let endpoint: Endpoint = url.parse().expect("an endpoint");
        let http = HttpClient::new(endpoint, trust, None, dialer).expect("a client");
        match self {
            Self::Proxmox => told(pve(http).send(&ichor_pve::api::version()).await),
            Self::Console => {
                let (host, vmid) = ("pve1".parse().expect("a host"), lab().machines[0].vmid);
                told(pve(http).open_console(&host, vmid, Duration::from_mins(1)).await.map(drop))
            }
            Self::Kubernetes => told(ichor_kube::Client::new(http).list(&ichor_kube::api::nodes()).await),
            Self::Factory => told(ichor_factory::Client::new(http).versions().await),
            Self::Vault => unreachable!("it is asked in its own way"),
        }
    }
}

/// Vault is asked for a secret of the inventory, over a system whose network is the server's.
fn ask_vault(dialer: Arc<dyn Dial>, url: &str, trust: Trust) -> Told {
    let mut memory = Memory { dialer: Some((dialer, trust)), ..Memory::default() };
    memory.variables.insert("VAULT_ADDR".into(), url.into());
    memory.variables.insert("VAULT_TOKEN".into(), SECRET.into());
    let secret = materials::resolve(&memory, site(lab()), &SecretRef::Vault("secret/lab/pve#token".into()));
    secret.map(|secret| format!("{secret:?}")).map_err(|finding| {
        assert!(!format!("{finding:?}").contains(SECRET), "{finding:?}");
        format!("{} {}", finding.message, finding.notes.join(" "))
    })
}

/// Plays a trick against a client, and asserts what holds for all of them.
async fn play(who: Who, name: &str, trick: &Trick) -> Told {
    let mut hostile = Hostile::new(trick.clone());
    hostile.first = (who == Who::Console).then(|| answer("200 OK", TICKET));
    let server = Arc::new(hostile);
    let began = Instant::now();
    let ended = who.ask(&server, "http://127.0.0.1:8200", Trust::Anybody).await;
    let place = format!("{who:?}, {name}");
    judge(&place, &server, began, &ended);
    assert!(server.heard.load(Ordering::SeqCst) > 0, "{place}: nobody asked");
    ended
}

fn judge(place: &str, server: &Hostile, began: Instant, ended: &Told) {
    assert!(began.elapsed() <= LONGEST, "{place} took {:?}", began.elapsed());
    let sent = server.sent.load(Ordering::SeqCst);
    assert!(sent <= MOST, "{place} took in {sent} bytes");
    let dialled = server.dialled.lock().expect("lock").clone();
    let elsewhere = dialled.iter().find(|at| *at != "127.0.0.1:8200" && *at != "127.0.0.1:50000");
    assert_eq!(elsewhere, None, "{place} was led elsewhere");
    assert!(dialled.len() <= 4, "{place} asked {} times", dialled.len());
    if let Err(told) = ended {
        assert!(!told.is_empty() && told.chars().count() < LONGEST_MESSAGE, "{place}: {told}");
        let steers = |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
        assert!(!told.contains(steers), "{place}: {told:?}");
        assert!(!told.contains(SECRET), "{place}: {told}");
    }
}

/// Every client fails at all of these.
fn tricks() -> Vec<(String, Trick)> {
    let block = vec![b'A'; 64 * 1024];
    let json = serde_json::Value::from(ESCAPES);
    let said = format!(r#"{{"message":{json},"errors":{{{json}:{json}}},"reason":{json},"kind":"Status"}}"#);
    let list = format!(r#"{{"errors":[{json},{json}]}}"#);
    let mut tricks: Vec<(String, Trick)> = [
        ("an endless body", endless("HTTP/1.1 200 OK\r\n\r\n{\"data\":\"", block.clone())),
        ("an endless refusal", endless("HTTP/1.1 500 Sick\r\n\r\n{\"message\":\"", block.clone())),
        ("an endless header", endless("HTTP/1.1 200 OK\r\nx: ", block.clone())),
        ("endless headers", endless("HTTP/1.1 200 OK\r\n", "x-lab: 1\r\n".repeat(500))),
        ("an endless reason", endless("HTTP/1.1 500 ", block.clone())),
        (
            "endless chunks",
            endless(
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
                format!("4000\r\n{}\r\n", " ".repeat(0x4000)),
            ),
        ),
        (
            "an endless extension of a chunk",
            endless("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;", block.clone()),
        ),
        (
            "endless trailers",
            endless("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", "x: y\r\n".repeat(500)),
        ),
        (
            "a chunk without end",
            once("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff1\r\n"),
        ),
        ("said to be compressed", answer("200 OK\r\ncontent-encoding: gzip", "\u{1f}\u{8}\u{0}\u{0}")),
        ("errors for terminals", answer("500 Sick", &said)),
        ("a list of errors for terminals", answer("400 Bad", &list)),
        ("a page for terminals", answer("502 Bad Gateway", ESCAPES)),
        ("the request", answer("500 Sick", r#"{"message":"HEARD","errors":["HEARD"],"data":null}"#)),
        ("the request as a page", answer("400 Bad", "<pre>HEARD</pre>")),
        ("deep lists", answer("200 OK", "[".repeat(200_000))),
        ("deep objects", answer("200 OK", "{\"data\":".repeat(200_000))),
        ("a deep refusal", answer("500 Sick", "{\"message\":".repeat(200_000))),
        ("numbers", answer("200 OK", r#"{"data":1e999,"items":99999999999999999999999}"#)),
        ("other types", answer("200 OK", r#"{"data":[[]],"items":7,"metadata":[]}"#)),
        ("nothing", once("")),
        ("half a head", once("HTTP/1.1 200 OK\r\ncontent-len")),
        ("half a body", once("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"data\"")),
        ("another protocol", once("SSH-2.0-OpenSSH_9.2\r\n\r\n")),
        ("two lengths", once("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 3\r\n\r\n[]]")),
        ("no length", once("HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999999\r\n\r\n[]")),
        ("silence", silent("")),
        ("silence in a head", silent("HTTP/1.1 200 OK\r\n")),
        ("silence in a body", silent("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{")),
        ("a slow head", slow("HTTP/1.1 200 OK\r\nx: ", "y")),
        ("a slow body", slow("HTTP/1.1 200 OK\r\ncontent-length: 999999\r\n\r\n{", " ")),
        ("a slow answer without a length", slow("HTTP/1.1 200 OK\r\n\r\n{", " ")),
        ("slow words before the answer", slow("", "HTTP/1.1 100 Continue\r\n\r\n")),
        (
            "another protocol that was not asked for",
            once("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nx"),
        ),
    ]
    .map(|(name, trick)| (name.to_owned(), trick))
    .into();
    for status in ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"] {
        for place in [
            "/elsewhere",
            "http://192.0.2.66:8006/",
            "//192.0.2.66/",
            "http://127.0.0.1:1/",
            "file:///etc/passwd",
        ] {
            let head = format!("{status}\r\nlocation: {place}");
            tricks.push((format!("{status} to {place}"), answer(&head, "")));
        }
    }
    tricks
}

#[tokio::test(start_paused = true)]
async fn every_client_survives_every_trick() {
    for (name, trick) in tricks() {
        for who in CLIENTS {
            let ended = Box::pin(play(who, &name, &trick)).await;
            assert!(ended.is_err(), "{who:?}, {name}: {ended:?}");
        }
    }
}

/// Answers that are strange, and that a client may understand all the same: the last of two keys counts, or none.
#[tokio::test(start_paused = true)]
async fn keys_that_come_twice_are_no_panic() {
    let twice = [
        r#"{"data":{"version":"1","version":"9.2.1","release":"9.2","repoid":"x"},"data":{"version":"8"}}"#,
        r#"{"items":[],"items":[],"metadata":{},"metadata":{}}"#,
        r#"["v1.13.9","v1.13.9"]"#,
        r#"{"data":{"path":"secret/","path":"sys/"},"data":{"data":{"token":"a","token":"b"}}}"#,
    ];
    for body in twice {
        for who in CLIENTS {
            let _ = Box::pin(play(who, body, &answer("200 OK", body))).await;
        }
    }
}

/// As fast as it can, a server says that the answer is still to come.
#[tokio::test]
async fn words_before_an_answer_have_an_end() {
    let trick = endless("", "HTTP/1.1 100 Continue\r\n\r\n".repeat(100));
    let server = Arc::new(Hostile::new(trick));
    let endpoint: Endpoint = "http://127.0.0.1:8200".parse().expect("an endpoint");
    let http = HttpClient::new(endpoint, Trust::Anybody, None, Arc::clone(&server) as _).expect("a client");
    let began = Instant::now();
    let asked = pve(http).send_within(&ichor_pve::api::version(), Duration::from_secs(1)).await;
    let lost = matches!(
        &asked,
        Err(ichor_pve::Error::Transport(TransportError::Lost(_) | TransportError::Unreadable(_)))
    );
    assert!(lost && began.elapsed() < Duration::from_secs(10), "{asked:?} after {:?}", began.elapsed());
}

// ---- certificates

struct Zeros(u8);

impl Entropy for Zeros {
    fn fill(&mut self, buffer: &mut [u8]) {
        self.0 = self.0.wrapping_add(1);
        buffer.fill(self.0);
    }
}

fn term(begins: u64) -> Term {
    Term { now: Timestamp::from_unix_seconds(begins), lifetime: Duration::from_hours(24) }
}

fn acceptor(made: &Identity, protocol: &[u8]) -> TlsAcceptor {
    let key = made.key.to_pkcs8_der().expect("a key").to_vec();
    let mut config = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from(made.certificate.der().to_vec())],
            PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key)),
        )
        .expect("a config");
    config.alpn_protocols = vec![protocol.to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

fn secrets() -> Bundle {
    let memory = with_secrets();
    let found = bundle::of_cluster(&memory, site(lab()), None, Signer::Talos, &mut Sources::default());
    found.expect("secrets").bundle
}

type Asking<'a> = Pin<Box<dyn Future<Output = Told> + 'a>>;

/// Asks with each client that speaks TLS; `h2` for Talos.
fn asking<'a>(who: Option<Who>, server: &'a Arc<Hostile>, trust: &'a Trust) -> Asking<'a> {
    Box::pin(async move {
        match who {
            Some(who) => who.ask(server, "https://127.0.0.1:8200", trust.clone()).await,
            None => {
                let at = "127.0.0.1".parse().expect("an address");
                let talos = ichor_talos::Talos::maintenance(at, trust.clone(), Arc::clone(server) as _);
                told(talos.expect("a client").send(&ichor_talos::api::version()).await)
            }
        }
    })
}

#[tokio::test(start_paused = true)]
async fn whoever_is_not_vouched_for_hears_nothing() {
    let now = ichor_lab::real_time().unix_seconds();
    let bundle = secrets();
    let names = [ServerName::new("127.0.0.1")];
    let own = Server { common_name: Some("server"), reached_by: &names };
    let elsewhere = [ServerName::new("192.0.2.1")];
    let other = Server { common_name: Some("server"), reached_by: &elsewhere };
    let by = |authority: &Authority, facts: &Server<'_>, begins| {
        server(authority, facts, term(begins), &mut Zeros(0)).expect("a certificate")
    };
    let alone = self_signed_server(&own, term(now - 60), &mut Zeros(9)).expect("a certificate");
    let authorities = Trust::Authorities(bundle.kubernetes.certificate().chain());
    let good = by(&bundle.kubernetes, &own, now - 60);
    let pin = Trust::Pin(Fingerprint::of(good.certificate.der()));
    let key = Trust::PinKey(KeyFingerprint::of(good.certificate.der()).expect("a key"));
    let cases = [
        ("another CA", by(&bundle.etcd, &own, now - 60), authorities.clone()),
        ("no CA", alone.clone(), authorities.clone()),
        ("expired", by(&bundle.kubernetes, &own, now - 90_000), authorities.clone()),
        ("not yet", by(&bundle.kubernetes, &own, now + 7_200), authorities.clone()),
        ("another name", by(&bundle.kubernetes, &other, now - 60), authorities.clone()),
        ("another pin", alone.clone(), pin),
        ("another key", alone, key),
    ];
    let everybody = CLIENTS.map(Some).into_iter().chain([None]);
    for who in everybody {
        let protocol: &[u8] = if who.is_none() { b"h2" } else { b"http/1.1" };
        for (name, shown, trust) in &cases {
            let place = format!("{who:?}, {name}");
            let mut hostile = Hostile::new(answer("200 OK", TICKET));
            hostile.tls = Some(acceptor(shown, protocol));
            let server = Arc::new(hostile);
            let began = Instant::now();
            let ended = asking(who, &server, trust).await;
            judge(&place, &server, began, &ended);
            assert!(ended.is_err(), "{place}: {ended:?}");
            assert_eq!(server.heard.load(Ordering::SeqCst), 0, "{place}: it was told something");
        }
        // The right one is heard, so that the others failed for their certificates.
        let mut right = Hostile::new(answer("200 OK", TICKET));
        right.tls = Some(acceptor(&good, protocol));
        let right = Arc::new(right);
        let _ = asking(who, &right, &authorities).await;
        assert_ne!(right.heard.load(Ordering::SeqCst), 0, "{who:?}: the right one is not asked");
    }
}
