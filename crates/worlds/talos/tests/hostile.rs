//! Servers that misbehave: every call ends, in bounded time and memory, and says what may have happened.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream, server::SendResponse};
use http::{HeaderMap, Request, Response};
use ichor_machineconfig::pki::{Entropy, Server, ServerName, Term, Timestamp, self_signed_server};
use ichor_net::{Dial, Stream, Trust};
use ichor_talos::{
    Address, Call, Code, Error, Face, Talos,
    api::{self, ApplyMode},
    peek,
    resource::{MachineStatus, Member},
};
use ichor_talos_proto::{Message, machine as proto};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    time::{Instant, sleep},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    },
    server::TlsStream,
};

type Act = Pin<Box<dyn Future<Output = ()> + Send>>;
type Line = TlsStream<DuplexStream>;
type Dialled<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send + 'a>>;

/// A server in memory, that serves each connection as a test says; connections are counted from 0.
#[derive(Clone)]
struct Hostile(Arc<Inside>);

struct Inside {
    tls: TlsAcceptor,
    dialled: AtomicUsize,
    serve: Box<dyn Fn(usize, Line) -> Act + Send + Sync>,
}

struct Zeros(u8);

impl Entropy for Zeros {
    fn fill(&mut self, buffer: &mut [u8]) {
        self.0 += 1;
        buffer.fill(self.0);
    }
}

fn tls(protocol: &[u8]) -> TlsAcceptor {
    let now = Timestamp::from_unix_seconds(1_767_225_600);
    let names = [ServerName::new("10.0.0.11")];
    let facts = Server { common_name: Some("maintenance-service.talos.dev"), reached_by: &names };
    let term = Term { now, lifetime: Duration::from_hours(24) };
    let made = self_signed_server(&facts, term, &mut Zeros(0)).expect("a certificate");
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

impl Hostile {
    fn new<F: Future<Output = ()> + Send + 'static>(
        serve: impl Fn(usize, Line) -> F + Send + Sync + 'static,
    ) -> Self {
        Self::speaking(b"h2", serve)
    }

    fn speaking<F: Future<Output = ()> + Send + 'static>(
        protocol: &[u8],
        serve: impl Fn(usize, Line) -> F + Send + Sync + 'static,
    ) -> Self {
        let serve = Box::new(move |number, line| Box::pin(serve(number, line)) as Act);
        Self(Arc::new(Inside { tls: tls(protocol), dialled: AtomicUsize::new(0), serve }))
    }

    /// A server that speaks HTTP/2, and answers each request as a test says.
    fn answering<F: Future<Output = ()> + Send + 'static>(
        answer: impl Fn(Request<RecvStream>, SendResponse<Bytes>) -> F + Clone + Send + Sync + 'static,
    ) -> Self {
        Self::new(move |_, line| http2(line, answer.clone()))
    }

    fn dials(&self) -> usize {
        self.0.dialled.load(Ordering::SeqCst)
    }
}

impl Dial for Hostile {
    fn dial<'a>(&'a self, _: &'a str, _: u16) -> Dialled<'a> {
        let number = self.0.dialled.fetch_add(1, Ordering::SeqCst);
        let (near, far) = duplex(64 * 1024);
        let server = Arc::clone(&self.0);
        tokio::spawn(async move {
            if let Ok(line) = server.tls.accept(far).await {
                (server.serve)(number, line).await;
            }
        });
        Box::pin(async move { Ok(Box::new(near) as Box<dyn Stream>) })
    }
}

async fn http2<F: Future<Output = ()> + Send + 'static>(
    line: Line,
    answer: impl Fn(Request<RecvStream>, SendResponse<Bytes>) -> F,
) {
    let Ok(mut connection) = h2::server::handshake(line).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        tokio::spawn(answer(request, respond));
    }
}

fn at() -> Address {
    "10.0.0.11".parse().expect("an address")
}

fn client(server: &Hostile) -> Talos {
    Talos::maintenance(at(), Trust::Anybody, Arc::new(server.clone())).expect("a client")
}

/// Asks for the version; panics if that takes longer than it may.
async fn ask(server: &Hostile) -> Result<api::Version, Error> {
    ask_for(server, &api::version()).await
}

async fn ask_for<T>(server: &Hostile, call: &Call<T>) -> Result<T, Error> {
    let began = Instant::now();
    let answer = client(server).send(call).await;
    assert!(began.elapsed() < Duration::from_mins(2), "it took {:?}", began.elapsed());
    answer
}

fn grpc() -> Response<()> {
    Response::builder().header("content-type", "application/grpc").body(()).expect("a response")
}

fn trailers(status: &'static str) -> HeaderMap {
    [(http::HeaderName::from_static("grpc-status"), http::HeaderValue::from_static(status))]
        .into_iter()
        .collect()
}

fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).expect("a short message").to_be_bytes();
    [&[0], &length[..], message].concat().into()
}

fn version() -> Bytes {
    let version = proto::VersionInfo { tag: "v1.13.9".into(), ..proto::VersionInfo::default() };
    let entry = proto::Version { version: Some(version), ..proto::Version::default() };
    framed(&proto::VersionResponse { messages: vec![entry] }.encode_to_vec())
}

/// Sends as much as is taken, until it is not taken any more.
async fn flood(mut body: SendStream<Bytes>, piece: Bytes) {
    loop {
        body.reserve_capacity(piece.len());
        match poll_fn(|context| body.poll_capacity(context)).await {
            Some(Ok(room)) if room >= piece.len() => {
                if body.send_data(piece.clone(), false).is_err() {
                    return;
                }
            }
            Some(Ok(_)) => tokio::task::yield_now().await,
            _ => return,
        }
    }
}

fn is_lost<T>(answer: &Result<T, Error>) -> bool {
    matches!(answer, Err(error @ Error::Lost { .. }) if error.may_have_happened())
}

fn is_nonsense<T>(answer: &Result<T, Error>) -> bool {
    matches!(answer, Err(error @ Error::Nonsense { .. }) if error.may_have_happened())
}

fn is_not_reached<T>(answer: &Result<T, Error>) -> bool {
    matches!(answer, Err(error @ Error::NotReached { .. }) if !error.may_have_happened())
}

#[tokio::test(start_paused = true)]
async fn a_good_server_is_understood() {
    let server = Hostile::answering(|request, mut respond| async move {
        assert_eq!(request.uri().path(), "/machine.MachineService/Version");
        assert_eq!(request.headers()["te"], "trailers");
        assert_eq!(request.headers()["grpc-timeout"], "15000000u");
        let mut body = respond.send_response(grpc(), false).expect("headers");
        body.send_data(version(), false).expect("data");
        body.send_trailers(trailers("0")).expect("trailers");
    });
    assert_eq!(ask(&server).await.expect("an answer").tag, "v1.13.9");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_shakes_hands_is_not_reached() {
    /// Takes connections, and says nothing.
    struct Mute;
    impl Dial for Mute {
        fn dial<'a>(&'a self, _: &'a str, _: u16) -> Dialled<'a> {
            let (near, far) = duplex(64);
            tokio::spawn(async move {
                sleep(Duration::from_hours(1)).await;
                drop(far);
            });
            Box::pin(async move { Ok(Box::new(near) as Box<dyn Stream>) })
        }
    }
    let began = Instant::now();
    let answer = Talos::maintenance(at(), Trust::Anybody, Arc::new(Mute))
        .expect("a client")
        .send(&api::version())
        .await;
    assert!(is_not_reached(&answer), "{answer:?}");
    assert!(began.elapsed() < Duration::from_secs(30));
    let seen = peek(&at(), &[], &Mute, Duration::from_secs(5)).await;
    assert!(is_not_reached(&seen), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_answers_is_given_up() {
    let silent = Hostile::new(|_, line| async move {
        sleep(Duration::from_hours(1)).await;
        drop(line);
    });
    let answer = ask(&silent).await;
    assert!(is_lost(&answer), "{answer:?}");
    let idle = Hostile::answering(|request, respond| async move {
        sleep(Duration::from_hours(1)).await;
        drop((request, respond));
    });
    let answer = ask(&idle).await;
    assert!(is_lost(&answer), "{answer:?}");
    let seen = peek(&at(), &[], &silent, Duration::from_secs(30)).await.expect("a certificate");
    assert_eq!((seen.face, seen.wants_certificate), (Face::Maintenance, None));
}

#[tokio::test(start_paused = true)]
async fn other_protocols_are_no_talos() {
    let web = Hostile::speaking(b"http/1.1", |_, mut line| async move {
        let _ = line.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        sleep(Duration::from_hours(1)).await;
    });
    let answer = ask(&web).await;
    assert!(is_not_reached(&answer), "{answer:?}");
    let liar = Hostile::new(|_, mut line| async move {
        let _ = line.write_all(&[b'x'; 4096]).await;
        sleep(Duration::from_hours(1)).await;
    });
    let answer = ask(&liar).await;
    assert!(matches!(answer, Err(Error::NotReached { .. } | Error::Lost { .. })), "{answer:?}");
    let closed = Hostile::new(|_, _| async {});
    let answer = ask(&closed).await;
    assert!(is_not_reached(&answer), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_no_grpc_make_no_sense() {
    for (status, kind) in [
        (200, "text/html"),
        (502, "application/grpc"),
        (200, "application/grpc-web"),
        (302, "application/grpc"),
        (307, "text/html"),
    ] {
        let server = Hostile::answering(move |_, mut respond| async move {
            let response = Response::builder()
                .status(status)
                .header("content-type", kind)
                .header("location", "https://192.0.2.66:50000/machine.MachineService/Version")
                .body(())
                .expect("one");
            let mut body = respond.send_response(response, false).expect("headers");
            let _ = body.send_data(Bytes::from_static(b"<html>"), true);
        });
        let answer = ask(&server).await;
        assert!(is_nonsense(&answer), "{status} {kind}: {answer:?}");
        assert_eq!(server.dials(), 1, "{status} {kind}: it was followed");
    }
}

#[tokio::test(start_paused = true)]
async fn refusals_may_have_no_body() {
    let server = Hostile::answering(|_, mut respond| async move {
        let mut response = grpc();
        response.headers_mut().extend(trailers("9"));
        response.headers_mut().insert("grpc-message", "not%20yet%1B[31m".parse().expect("a text"));
        respond.send_response(response, true).expect("headers");
    });
    let error = ask(&server).await.expect_err("a refusal");
    assert_eq!(error.code(), Some(Code::FailedPrecondition), "{error}");
    assert_eq!(error.to_string(), "10.0.0.11:50000 answered FailedPrecondition to Version: not yet [31m");
}

#[tokio::test(start_paused = true)]
async fn broken_messages_make_no_sense() {
    let cases: [(&str, Bytes, Option<&str>); 6] = [
        ("a huge one", Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff]), None),
        ("a compressed one", Bytes::from_static(&[1, 0, 0, 0, 0]), None),
        ("none", Bytes::new(), Some("0")),
        ("half of one", Bytes::from_static(&[0, 0, 0, 0, 9, 1]), Some("0")),
        ("no protobuf", framed(&[0xff; 64]), Some("0")),
        ("no answer of a machine", framed(&[]), Some("0")),
    ];
    for (what, bytes, status) in cases {
        let server = Hostile::answering(move |_, mut respond| {
            let bytes = bytes.clone();
            async move {
                let mut body = respond.send_response(grpc(), false).expect("headers");
                let _ = body.send_data(bytes, false);
                match status {
                    Some(status) => drop(body.send_trailers(trailers(status))),
                    None => sleep(Duration::from_hours(1)).await,
                }
            }
        });
        let answer = ask(&server).await;
        assert!(is_nonsense(&answer), "{what}: {answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_status_is_none() {
    let server = Hostile::answering(|_, mut respond| async move {
        let mut body = respond.send_response(grpc(), false).expect("headers");
        let _ = body.send_data(version(), true);
    });
    let answer = ask(&server).await;
    assert!(is_nonsense(&answer), "{answer:?}");
    let two = Hostile::answering(|_, mut respond| async move {
        let mut body = respond.send_response(grpc(), false).expect("headers");
        let _ = body.send_data([version(), version()].concat().into(), false);
        let _ = body.send_trailers(trailers("0"));
    });
    let answer = ask(&two).await;
    assert!(is_nonsense(&answer), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn streams_without_end_are_cut() {
    // A resource of 1 KiB each time; and messages without content.
    let resource = ichor_talos_proto::cosi::resource::ListResponse {
        resource: Some(ichor_talos_proto::cosi::resource::Resource {
            metadata: Some(ichor_talos_proto::cosi::resource::Metadata::default()),
            spec: Some(ichor_talos_proto::cosi::resource::Spec {
                proto_spec: vec![0; 1024],
                yaml_spec: "{}".into(),
            }),
        }),
    };
    let endless = framed(&resource.encode_to_vec());
    let server = Hostile::answering(move |_, mut respond| {
        let endless = endless.clone();
        async move {
            let body = respond.send_response(grpc(), false).expect("headers");
            flood(body, endless).await;
        }
    });
    let began = Instant::now();
    let answer = client(&server).list::<Member>().await;
    assert!(is_nonsense(&answer), "{answer:?}");
    let file = client(&server).read_file("/x", 100).await;
    assert!(is_nonsense(&file), "{file:?}");
    // Nor do messages in which there is nothing.
    let server = Hostile::answering(move |_, mut respond| async move {
        flood(respond.send_response(grpc(), false).expect("headers"), framed(&[])).await;
    });
    let file = client(&server).read_file("/x", 100).await;
    assert!(is_nonsense(&file), "{file:?}");
    let snapshot = client(&server).etcd_snapshot(&mut Vec::new()).await;
    assert!(is_nonsense(&snapshot), "{snapshot:?}");
    assert!(began.elapsed() < Duration::from_mins(1));
}

#[tokio::test(start_paused = true)]
async fn a_message_that_never_ends_is_cut() {
    // The head announces 31 MiB, and 16 KiB come each second.
    let server = Hostile::answering(|_, mut respond| async move {
        let mut body = respond.send_response(grpc(), false).expect("headers");
        let _ = body.send_data(Bytes::from_static(&[0, 1, 0xf0, 0, 0]), false);
        while body.send_data(vec![0; 16 * 1024].into(), false).is_ok() {
            sleep(Duration::from_secs(1)).await;
        }
    });
    let answer = ask(&server).await;
    assert!(is_lost(&answer), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn empty_frames_without_end_are_cut() {
    let server = Hostile::answering(|_, mut respond| async move {
        let mut body = respond.send_response(grpc(), false).expect("headers");
        while body.send_data(Bytes::new(), false).is_ok() {
            sleep(Duration::from_millis(1)).await;
        }
    });
    let answer = ask(&server).await;
    assert!(is_lost(&answer), "{answer:?}");
}

/// Frames of HTTP/2 by hand: settings, and a farewell that says that nothing was processed.
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
const FAREWELL: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Reads until the request is there: the preface and the settings are 24 bytes and some.
async fn hear(line: &mut Line) {
    let mut heard = vec![0; 16 * 1024];
    let mut length = 0;
    while length < 200 {
        length += line.read(&mut heard).await.unwrap_or(200);
    }
}

#[tokio::test(start_paused = true)]
async fn headers_without_end_are_cut() {
    // HEADERS of the first request that are not complete, and CONTINUATION frames that do not complete them: a header
    // each, `x: y` without a place in the table, or nothing at all.
    const HEADERS: [u8; 10] = [0, 0, 1, 1, 0, 0, 0, 0, 1, 0x88];
    const HEADER: [u8; 14] = [0, 0, 5, 9, 0, 0, 0, 0, 1, 0x00, 1, b'x', 1, b'y'];
    const EMPTY: [u8; 9] = [0, 0, 0, 9, 0, 0, 0, 0, 1];
    for more in [&HEADER[..], &EMPTY] {
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&sent);
        let block = more.repeat(500);
        let server = Hostile::new(move |_, mut line| {
            let (counted, block) = (Arc::clone(&counted), block.clone());
            async move {
                let _ = line.write_all(&SETTINGS).await;
                hear(&mut line).await;
                let _ = line.write_all(&HEADERS).await;
                while line.write_all(&block).await.is_ok() {
                    counted.fetch_add(block.len(), Ordering::SeqCst);
                }
            }
        });
        let answer = ask(&server).await;
        assert!(matches!(answer, Err(Error::Lost { .. } | Error::NotReached { .. })), "{answer:?}");
        let text = answer.expect_err("no answer").to_string();
        assert!(!text.contains(char::is_control) && text.len() < 1_000, "{text}");
        assert!(sent.load(Ordering::SeqCst) < 4 << 20, "it took in {} bytes", sent.load(Ordering::SeqCst));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_goodbye_is_asked_again() {
    let server = Hostile::new(|number, mut line| async move {
        if number == 0 {
            let _ = line.write_all(&SETTINGS).await;
            hear(&mut line).await;
            let _ = line.write_all(&FAREWELL).await;
            let _ = line.flush().await;
            sleep(Duration::from_secs(1)).await;
            return;
        }
        http2(line, |_, mut respond| async move {
            let mut body = respond.send_response(grpc(), false).expect("headers");
            let _ = body.send_data(version(), false);
            let _ = body.send_trailers(trailers("0"));
        })
        .await;
    });
    assert_eq!(ask(&server).await.expect("an answer").tag, "v1.13.9");
    assert_eq!(server.dials(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_says_goodbye_in_the_middle_is_not_asked_again() {
    let server = Hostile::new(|_, mut line| async move {
        let _ = line.write_all(&SETTINGS).await;
        hear(&mut line).await;
        // The first request, number 1, is among those that were looked at.
        let mut farewell = FAREWELL;
        farewell[12] = 1;
        let _ = line.write_all(&farewell).await;
        let _ = line.shutdown().await;
    });
    let answer = ask_for(&server, &api::bootstrap(api::Recovery::None)).await;
    assert!(is_lost(&answer), "{answer:?}");
    assert_eq!(server.dials(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_turns_all_calls_away_has_done_nothing() {
    let server =
        Hostile::answering(|_, mut respond| async move { respond.send_reset(Reason::REFUSED_STREAM) });
    let answer = ask_for(&server, &api::bootstrap(api::Recovery::None)).await;
    assert!(is_not_reached(&answer), "{answer:?}");
    assert_eq!(server.dials(), 2);
    let broken =
        Hostile::answering(|_, mut respond| async move { respond.send_reset(Reason::INTERNAL_ERROR) });
    let answer = ask_for(&broken, &api::bootstrap(api::Recovery::None)).await;
    assert!(is_lost(&answer), "{answer:?}");
    assert_eq!(broken.dials(), 1, "what may have happened is not done again");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_vanishes_is_noticed() {
    let server = Hostile::new(|_, line| async move {
        let mut connection = h2::server::handshake(line).await.expect("a client");
        let (_, mut respond) = connection.accept().await.expect("a request").expect("a sound one");
        let mut body = respond.send_response(grpc(), false).expect("headers");
        body.send_data(framed(&[]), false).expect("data");
        // Long enough to send that; then nobody drives the connection any more.
        let _ = tokio::time::timeout(Duration::from_secs(1), connection.accept()).await;
        sleep(Duration::from_hours(10)).await;
        drop((connection, body));
    });
    let client = client(&server);
    let mut watch = client.open(&api::watch::<MachineStatus>(Some("machine"))).await.expect("a watch");
    assert_eq!(watch.next().await, Ok(Some(Vec::new())), "a sign of life");
    let began = Instant::now();
    let next = watch.next().await;
    assert!(is_lost(&next), "{next:?}");
    assert!(began.elapsed() < Duration::from_mins(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_is_not_disturbed_and_an_unused_connection_closes() {
    let server = Hostile::answering(|_, mut respond| async move {
        let mut body = respond.send_response(grpc(), false).expect("headers");
        let _ = body.send_data(framed(&[]), false);
        sleep(Duration::from_mins(40)).await;
        let _ = body.send_data(framed(&[]), false);
        let _ = body.send_trailers(trailers("0"));
    });
    let client = client(&server);
    let mut watch = client.open(&api::watch::<MachineStatus>(Some("machine"))).await.expect("a watch");
    assert_eq!(watch.next().await, Ok(Some(Vec::new())));
    assert_eq!(watch.next().await, Ok(Some(Vec::new())), "forty minutes later");
    assert_eq!(watch.next().await, Ok(None));
    assert_eq!(watch.next().await, Ok(None), "the end stays the end");
    drop(watch);
    assert_eq!(server.dials(), 1);
    sleep(Duration::from_mins(2)).await;
    drop(client.open(&api::watch::<MachineStatus>(None)).await.expect("a new connection"));
    assert_eq!(server.dials(), 2);
}

#[tokio::test(start_paused = true)]
async fn large_requests_wait_until_there_is_room() {
    const SIZE: usize = 5 << 20;
    let server = Hostile::answering(|request, mut respond| async move {
        let mut body = request.into_body();
        let mut length = 0;
        while let Some(Ok(piece)) = body.data().await {
            length += piece.len();
            let _ = body.flow_control().release_capacity(piece.len());
        }
        let status = if length > SIZE { "0" } else { "3" };
        let mut body = respond.send_response(grpc(), false).expect("headers");
        let entry = proto::ApplyConfiguration::default();
        let answer = proto::ApplyConfigurationResponse { messages: vec![entry] };
        let _ = body.send_data(framed(&answer.encode_to_vec()), false);
        let _ = body.send_trailers(trailers(status));
    });
    let call = api::apply_configuration(&vec![b'x'; SIZE], ApplyMode::Auto, false);
    ask_for(&server, &call).await.expect("it arrived");
    client(&server).etcd_recover(&mut &vec![b'x'; SIZE][..]).await.expect("it arrived");
    let short = client(&server).etcd_recover(&mut &b"x"[..]).await.expect_err("too short for this server");
    assert_eq!(short.code(), Some(Code::InvalidArgument), "{short}");
}

#[tokio::test(start_paused = true)]
async fn an_upload_ends_when_it_is_refused() {
    let server = Hostile::answering(|request, mut respond| async move {
        let mut response = grpc();
        response.headers_mut().extend(trailers("9"));
        respond.send_response(response, true).expect("headers");
        // Nothing of the upload is read.
        sleep(Duration::from_secs(5)).await;
        drop(request);
    });
    let error = client(&server).etcd_recover(&mut tokio::io::repeat(7)).await.expect_err("a refusal");
    assert_eq!(error.code(), Some(Code::FailedPrecondition), "{error}");
}
