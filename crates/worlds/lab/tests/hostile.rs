//! Our own clients at servers that mean harm: whatever comes, they end in time and keep nothing.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ichor_lab::{
    Hall,
    proxy::Routes,
    serve::{self, Listening, Ports},
};
use ichor_net::{Dial, Direct, Endpoint, Fingerprint, HttpClient, Trust, tls};
use ichor_port::{Http, Method, Request, Response, Secret, TransportError};
use ichor_pve::{Client, Error, Token, api};
use ichor_sim::{
    incident::Incident,
    profile::Profile,
    setup::{Setup, TOKEN, USER},
};

/// A client that does not end in this time does not end at all.
const IN_TIME: Duration = Duration::from_secs(30);

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
    let at = serve::start(&hall, ports, Routes::default()).await.expect("ports");
    let (pin, secret) = hall.look(|lab| {
        let persona = lab.own_persona().expect("a certificate");
        (Fingerprint::of(&persona.certificates[0]), lab.pve.access.users[USER].tokens[TOKEN].secret.clone())
    });
    Open { hall, at, pin, token: format!("{USER}!{TOKEN}={secret}") }
}

impl Open {
    fn pve(&self) -> Client<HttpClient> {
        let endpoint = Endpoint { host: "127.0.0.1".into(), port: self.at.pve.port(), tls: true };
        let http = HttpClient::new(endpoint, Trust::Pin(self.pin), None, Arc::new(Direct)).expect("client");
        Client::new(http, Token::parse(&Secret::new(&self.token)).expect("a token"))
    }

    fn factory(&self) -> HttpClient {
        let endpoint = Endpoint { host: "127.0.0.1".into(), port: self.at.factory.port(), tls: false };
        HttpClient::new(endpoint, Trust::System, None, Arc::new(Direct)).expect("client")
    }

    fn turn(&self, server: &str, path: &str, hostility: &str) {
        let plan = serde_json::json!([{
            "server": server, "path": path, "occurrence": 0, "fault": { "hostile": hostility },
        }]);
        let plan = serde_json::from_value(plan).expect("a plan");
        self.hall.visit(|lab| lab.ground.faults = plan);
    }

    fn befall(&self, text: &str) {
        let incident: Incident = text.parse().expect("an incident");
        self.hall.visit(|lab| lab.befall(&incident)).expect(text);
    }

    async fn until_no_stream_is_open(&self) {
        let mut visits = self.hall.visits();
        let closed = async {
            while self.hall.look(ichor_sim::Lab::open_streams) > 0 {
                visits.changed().await.expect("a hall");
            }
        };
        tokio::time::timeout(IN_TIME, closed).await.expect("streams are closed with their connections");
    }
}

async fn in_time<T>(what: &str, act: impl Future<Output = T>) -> T {
    tokio::time::timeout(IN_TIME, act).await.unwrap_or_else(|_| panic!("{what} does not end"))
}

async fn get(client: &HttpClient, target: &str, within: Duration) -> Result<Response, TransportError> {
    let request = Request {
        method: Method::Get,
        target: target.into(),
        headers: Vec::new(),
        authorization: None,
        body: Vec::new(),
    };
    client.send(request, within).await
}

#[tokio::test]
async fn a_hostile_proxmox_is_an_error_and_no_more() {
    let open = open().await;
    let client = open.pve();
    for hostility in ["endless", "headers", "redirect", "garbage", "nested", "escapes", "oversized"] {
        open.turn("pve", "/version", hostility);
        let answer = in_time(hostility, client.send(&api::version())).await;
        let error = answer.expect_err(hostility);
        let fits = match hostility {
            "endless" | "headers" | "oversized" => {
                matches!(&error, Error::Transport(TransportError::Unreadable(_)))
            }
            "garbage" | "nested" => matches!(&error, Error::Nonsense { .. }),
            _ => matches!(&error, Error::Refused(_)),
        };
        assert!(fits, "{hostility}: {error:?}");
        let text = error.to_string();
        assert!(!text.chars().any(char::is_control), "{hostility}: {text:?}");
        assert!(text.len() < 10_000, "{hostility}: {}", text.len());
    }
    // What the server calls its answer does not matter to somebody who knows what was asked for.
    open.turn("pve", "/version", "content_type");
    client.send(&api::version()).await.expect("it is an answer");
    open.until_no_stream_is_open().await;
}

#[tokio::test]
async fn a_hostile_factory_costs_no_more_than_the_deadline() {
    let open = open().await;
    let client = open.factory();
    let within = Duration::from_secs(1);
    open.turn("factory", "/versions", "drip");
    let lost = in_time("drip", get(&client, "/versions", within)).await;
    assert!(matches!(&lost, Err(TransportError::Lost(why)) if why.contains("within")), "{lost:?}");
    open.turn("factory", "/versions", "redirect");
    let answer = get(&client, "/versions", IN_TIME).await.expect("an answer");
    assert_eq!(answer.status, 302, "nobody follows it");
    open.turn("factory", "/versions", "endless");
    let endless = in_time("endless", get(&client, "/versions", IN_TIME)).await;
    assert!(matches!(endless, Err(TransportError::Unreadable(_))), "{endless:?}");
    open.until_no_stream_is_open().await;
}

#[tokio::test]
async fn a_certificate_that_was_swapped_is_not_trusted() {
    let open = open().await;
    let client = open.pve();
    client.send(&api::version()).await.expect("the pinned one");
    open.befall("certificate-swapped");
    // A call may still meet the closing of the old connection.
    for _ in 0..10 {
        match in_time("swapped", client.send(&api::version())).await {
            Err(Error::Transport(TransportError::NotTrusted(_))) => return,
            Err(Error::Transport(TransportError::Lost(_))) | Ok(_) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the other certificate is trusted");
}

#[tokio::test]
async fn a_host_that_is_down_is_not_reached() {
    let open = open().await;
    open.befall("host-down pve1");
    let error = in_time("down", open.pve().send(&api::version())).await.expect_err("nobody is there");
    assert!(matches!(&error, Error::Transport(TransportError::NotReached(_))), "{error:?}");
    open.befall("host-up pve1");
    open.pve().send(&api::version()).await.expect("it is up again");
}

#[tokio::test]
async fn hostile_machines_are_left_without_a_trace() {
    let open = open().await;
    let host = "127.61.0.9";
    open.befall(&format!("impostor {host}"));
    let dial = async {
        loop {
            if let Ok(stream) = Direct.dial(host, ichor_lab::listen::TALOS_PORT).await {
                return stream;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let stream = in_time("a machine", dial).await;
    let secure = tls::Secure::new(Trust::Anybody, None, tls::Protocol::Http2).expect("TLS");
    let stream = secure.connect(stream, host).await.expect("a connection");
    let io = TokioIo::new(stream);
    let (sender, connection) =
        hyper::client::conn::http2::handshake::<_, _, Full<Bytes>>(TokioExecutor::new(), io)
            .await
            .expect("HTTP/2");
    let connection = tokio::spawn(connection);
    for (hostility, least) in [("oversized", 33 << 20), ("endless", 1 << 20), ("drip", 10), ("nested", 5_000)]
    {
        open.turn("talos", "/machine.MachineService/Version", hostility);
        let request = hyper::Request::post(format!("https://{host}/machine.MachineService/Version"))
            .header("content-type", "application/grpc")
            .body(Full::new(Bytes::from_static(&[0, 0, 0, 0, 0])))
            .expect("a request");
        let mut body = sender.clone().send_request(request).await.expect("an answer").into_body();
        let mut read = 0;
        let enough = async {
            while read < least {
                match body.frame().await {
                    Some(Ok(frame)) => read += frame.data_ref().map_or(0, Bytes::len),
                    other => panic!("{hostility} ends after {read}: {other:?}"),
                }
            }
        };
        in_time(hostility, enough).await;
    }
    drop(sender);
    connection.abort();
    open.until_no_stream_is_open().await;
}
