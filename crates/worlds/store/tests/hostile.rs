//! Buckets whose server means harm: every act ends, in bounded time and memory, and says so in calm words.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use ichor_machineconfig::pki::{Entropy, Server, ServerName, Term, Timestamp, self_signed_server};
use ichor_store::{Address, Bucket, Fault, Objects, Put};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
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

/// Nobody waits longer for an act, whatever the server does: a lease must outlive it.
const LONGEST: Duration = Duration::from_secs(40);
/// Most bytes that a client takes: an object, what is on the way in sockets, and as often as it asks again.
const MOST: usize = 3 * (80 << 20);
const SECRET: &str = "CANARY-OF-THE-SECRET-KEY";

/// What a server does with a connection after the head of a request has come in.
#[derive(Clone)]
struct Trick {
    /// What it sends once.
    says: Vec<u8>,
    /// What it sends again and again, and how long it waits in between.
    goes_on: Option<(Vec<u8>, Duration)>,
    /// Whether it keeps the line open when it has said everything.
    stays: bool,
}

impl Trick {
    fn once(says: impl Into<Vec<u8>>) -> Self {
        Self { says: says.into(), goes_on: None, stays: false }
    }

    fn endless(says: impl Into<Vec<u8>>, more: impl Into<Vec<u8>>) -> Self {
        Self { goes_on: Some((more.into(), Duration::ZERO)), ..Self::once(says) }
    }

    fn slow(says: impl Into<Vec<u8>>, more: impl Into<Vec<u8>>) -> Self {
        Self { goes_on: Some((more.into(), Duration::from_secs(1))), ..Self::once(says) }
    }

    fn silent(says: impl Into<Vec<u8>>) -> Self {
        Self { stays: true, ..Self::once(says) }
    }
}

/// How often a server was met, and how much it could send.
#[derive(Default)]
struct Seen {
    met: AtomicUsize,
    sent: AtomicUsize,
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, trick: Trick, seen: Arc<Seen>) {
    let mut head = vec![0; 16 * 1024];
    let mut read = 0;
    while !head[..read].windows(4).any(|four| four == b"\r\n\r\n") {
        match stream.read(&mut head[read..]).await {
            Ok(more) if more > 0 => read += more,
            _ => return,
        }
    }
    if stream.write_all(&trick.says).await.is_err() {
        return;
    }
    while let Some((more, pause)) = &trick.goes_on {
        if stream.write_all(more).await.is_err() {
            return;
        }
        seen.sent.fetch_add(more.len(), Ordering::SeqCst);
        sleep(*pause).await;
    }
    if trick.stays {
        std::future::pending::<()>().await;
    }
    let _ = stream.shutdown().await;
}

/// Starts a server, and returns its port.
async fn start(trick: Trick, tls: Option<TlsAcceptor>) -> (u16, Arc<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let seen = Arc::new(Seen::default());
    let counted = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (trick, seen, tls) = (trick.clone(), Arc::clone(&counted), tls.clone());
            seen.met.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                match tls {
                    None => serve(stream, trick, seen).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            serve(stream, trick, seen).await;
                        }
                    }
                }
            });
        }
    });
    (port, seen)
}

fn bucket(scheme: &str, port: u16) -> Bucket {
    let address: Address =
        format!("s3://team/prod?endpoint={scheme}://127.0.0.1:{port}").parse().expect("an address");
    let variable = |name: &str| match name {
        "AWS_ACCESS_KEY_ID" => Some("somebody".to_owned()),
        "AWS_SECRET_ACCESS_KEY" => Some(SECRET.to_owned()),
        _ => None,
    };
    address.open(variable).expect("a bucket")
}

type Act = for<'a> fn(&'a Bucket) -> BoxFuture<'a, Result<String, Fault>>;

/// Everything that can be done with a bucket.
const ACTS: [(&str, Act); 4] = [
    ("get", |bucket| Box::pin(async { Ok(format!("{:?}", bucket.get("lock.json").await?)) })),
    ("create", |bucket| {
        Box::pin(async {
            let put = bucket.create("lock.json", b"{}").await?;
            Ok(if matches!(put, Put::Beaten) { "beaten".to_owned() } else { "done".to_owned() })
        })
    }),
    ("list", |bucket| Box::pin(async { Ok(format!("{:?}", bucket.list("audit/").await?)) })),
    ("delete", |bucket| Box::pin(async { Ok(format!("{:?}", bucket.delete("lock.json").await?)) })),
];

/// Does everything with a bucket at a server; whatever comes of it must be bounded and calm. Returns what is said.
async fn endure(name: &str, scheme: &str, trick: &Trick, tls: Option<TlsAcceptor>) -> Vec<(String, String)> {
    let mut said = Vec::new();
    for (act, run) in ACTS {
        let (port, seen) = start(trick.clone(), tls.clone()).await;
        let bucket = bucket(scheme, port);
        let began = Instant::now();
        let ended = run(&bucket).await;
        let took = began.elapsed();
        assert!(took <= LONGEST, "{name}: {act} took {took:?}");
        let sent = seen.sent.load(Ordering::SeqCst);
        assert!(sent <= MOST, "{name}: {act} took in {sent} bytes");
        let told = match ended {
            Ok(done) => format!("ok {done}"),
            Err(fault) => {
                let told = fault.to_string();
                assert!(!told.is_empty() && told.chars().count() < 400, "{name}: {act}: {told}");
                told
            }
        };
        let steers = |c: char| c.is_control() || ('\u{202a}'..='\u{202e}').contains(&c);
        assert!(!told.contains(steers), "{name}: {act}: {told:?}");
        assert!(!told.contains(SECRET), "{name}: {act}: {told}");
        said.push((act.to_owned(), told));
    }
    said
}

fn answer(head: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\netag: \"x\"\r\nlast-modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n{body}", body.len()).into_bytes()
}

fn is_refused(said: &[(String, String)]) -> bool {
    said.iter().all(|(_, told)| !told.starts_with("ok"))
}

#[tokio::test]
async fn nobody_follows_a_server_elsewhere() {
    let (elsewhere, visited) = start(Trick::once(answer("200 OK", "{}")), None).await;
    for status in ["301 Moved", "302 Found", "307 Temporary Redirect", "308 Permanent Redirect"] {
        for place in [
            format!("http://127.0.0.1:{elsewhere}/team/prod/lock.json"),
            format!("http://localhost:{elsewhere}/"),
            format!("//127.0.0.1:{elsewhere}/"),
            "/team/prod/other.json".to_owned(),
            "file:///etc/passwd".to_owned(),
        ] {
            let head = format!("HTTP/1.1 {status}\r\nlocation: {place}\r\ncontent-length: 0\r\n\r\n");
            let said = endure(status, "http", &Trick::once(head), None).await;
            assert!(is_refused(&said), "{status} {place}: {said:?}");
        }
    }
    assert_eq!(visited.met.load(Ordering::SeqCst), 0, "somebody was led elsewhere");
}

#[tokio::test]
async fn answers_without_end_are_not_kept() {
    let block = vec![b'A'; 1 << 20];
    for (name, head) in [
        ("a body", "HTTP/1.1 200 OK\r\netag: \"x\"\r\nconnection: close\r\n\r\n"),
        ("a long body", "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\netag: \"x\"\r\n\r\n"),
        ("an error", "HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n<Error><Code>"),
        ("a sick server", "HTTP/1.1 500 Sick\r\nconnection: close\r\n\r\n<Error><Code>"),
        ("headers", "HTTP/1.1 200 OK\r\nx-a: "),
    ] {
        let said = endure(name, "http", &Trick::endless(head, block.clone()), None).await;
        // What was deleted is gone, whatever is said about it at length.
        assert!(
            said.iter().all(|(act, told)| act == "delete" || act == "create" || !told.starts_with("ok")),
            "{name}: {said:?}"
        );
    }
    let many = Trick::endless("HTTP/1.1 200 OK\r\n", "x-lab: 1\r\n".repeat(1000));
    assert!(is_refused(&endure("many headers", "http", &many, None).await));
}

#[tokio::test]
async fn a_list_that_always_has_one_more_page_is_given_up() {
    let page = "<ListBucketResult><IsTruncated>true</IsTruncated>\
                <NextContinuationToken>more</NextContinuationToken></ListBucketResult>";
    let (port, seen) = start(Trick::once(answer("200 OK", page)), None).await;
    let listed = tokio::time::timeout(LONGEST, bucket("http", port).list("audit/")).await.expect("it ends");
    assert!(matches!(listed, Err(Fault::NotReached(_))), "{listed:?}");
    assert!(seen.met.load(Ordering::SeqCst) > 100, "it was asked again and again");
}

#[tokio::test]
async fn what_makes_no_sense_is_told_calmly() {
    let zip = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    let mut bomb = b"HTTP/1.1 400 Bad\r\ncontent-encoding: gzip\r\ncontent-length: 10\r\n\r\n".to_vec();
    bomb.extend(zip);
    let tricks = "\u{1b}]52;c;AAAA\u{7}\u{1b}[2J\u{9b}1mall is well\r\u{202e}";
    let deep = "<a>".repeat(100_000);
    for (name, says) in [
        ("gzip", bomb),
        (
            "words for terminals",
            answer(
                "403 Forbidden",
                &format!("<Error><Code>{tricks}</Code><Message>{tricks}</Message></Error>"),
            ),
        ),
        ("a reason for terminals", answer("400 \u{1b}[2J", tricks)),
        ("deep XML", answer("400 Bad", &deep)),
        ("no XML", answer("400 Bad", "{\"a\":")),
        ("no HTTP", b"SSH-2.0-OpenSSH_9.2\r\n\r\n".to_vec()),
        ("nothing", Vec::new()),
        ("half a head", b"HTTP/1.1 200 OK\r\ncontent-le".to_vec()),
        (
            "an impossible length",
            b"HTTP/1.1 400 Bad\r\ncontent-length: 99999999999999999999999\r\n\r\n".to_vec(),
        ),
        ("two lengths", b"HTTP/1.1 400 Bad\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab".to_vec()),
    ] {
        let said = endure(name, "http", &Trick::once(says), None).await;
        assert!(is_refused(&said), "{name}: {said:?}");
    }
    let said = endure("half a body", "http", &Trick::once("HTTP/1.1 200 OK\r\ncontent-length: 100\r\netag: \"x\"\r\nlast-modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n{"), None).await;
    assert!(
        said.iter().all(|(act, told)| !["get", "list"].contains(&act.as_str()) || !told.starts_with("ok")),
        "{said:?}"
    );
    let said = endure("deep XML in a list", "http", &Trick::once(answer("200 OK", &deep)), None).await;
    assert!(!said[2].1.starts_with("ok"), "{said:?}");
    let numbers = answer(
        "200 OK",
        "<ListBucketResult><Contents><Key>a</Key><Size>99999999999999999999999</Size></Contents></ListBucketResult>",
    );
    assert!(!endure("huge numbers", "http", &Trick::once(numbers), None).await[2].1.starts_with("ok"));
}

#[tokio::test(start_paused = true)]
async fn a_slow_server_is_left_in_time() {
    for (name, trick) in [
        ("silence", Trick::silent("")),
        ("half a head", Trick::silent("HTTP/1.1 200 OK\r\n")),
        ("half a body", Trick::silent("HTTP/1.1 200 OK\r\ncontent-length: 9\r\netag: \"x\"\r\n\r\n{")),
        ("slow headers", Trick::slow("HTTP/1.1 200 OK\r\n", "x: y\r\n")),
        ("a slow refusal", Trick::slow("HTTP/1.1 400 Bad\r\ncontent-length: 9999\r\n\r\n", "x")),
    ] {
        let said = endure(name, "http", &trick, None).await;
        assert!(
            said.iter().all(|(act, told)| act == "delete" || act == "create" || !told.starts_with("ok")),
            "{name}: {said:?}"
        );
    }
}

struct Zeros(u8);

impl Entropy for Zeros {
    fn fill(&mut self, buffer: &mut [u8]) {
        self.0 += 1;
        buffer.fill(self.0);
    }
}

/// A server that vouches for itself.
fn self_signed(name: &str, begins: u64) -> TlsAcceptor {
    let names = [ServerName::new(name)];
    let facts = Server { common_name: Some("a bucket"), reached_by: &names };
    let term = Term { now: Timestamp::from_unix_seconds(begins), lifetime: Duration::from_hours(24) };
    let made = self_signed_server(&facts, term, &mut Zeros(0)).expect("a certificate");
    let key = made.key.to_pkcs8_der().expect("a key").to_vec();
    let config = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from(made.certificate.der().to_vec())],
            PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key)),
        )
        .expect("a config");
    TlsAcceptor::from(Arc::new(config))
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_is_told_nothing() {
    for (name, tls) in [
        ("another CA", self_signed("127.0.0.1", 1_767_225_600)),
        ("expired", self_signed("127.0.0.1", 1_000_000_000)),
        ("another name", self_signed("s3.example", 1_767_225_600)),
    ] {
        let said = endure(name, "https", &Trick::once(answer("200 OK", "{}")), Some(tls)).await;
        assert!(is_refused(&said), "{name}: {said:?}");
    }
    // TLS where there is none, and none where it is wanted.
    let said = endure("no TLS", "https", &Trick::once(answer("200 OK", "{}")), None).await;
    assert!(is_refused(&said), "{said:?}");
}
