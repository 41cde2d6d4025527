//! Servers that agree to a websocket, and then break its rules; and what floods cost in memory.

use std::{sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use ichor_net::{Dial, Dialled, Endpoint, HttpClient, Socket, Stream, Trust};
use ichor_port::{Http, Method, NotOpened, Received, Request, TransportError, WebSocket, WebSockets};
use sha1::{Digest, Sha1};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    time::{Instant, sleep},
};

/// What a socket is good for here.
const WITHIN: Duration = Duration::from_mins(1);
const PING: [u8; 127] = {
    let mut frame = [b'x'; 127];
    (frame[0], frame[1]) = (0x89, 125);
    frame
};

/// A server in memory that agrees to a websocket, and then sends what it likes.
#[derive(Clone)]
struct Server {
    /// Whether it proves that it speaks websocket.
    proves: bool,
    says: Vec<u8>,
    /// What follows again and again, and how long is waited in between.
    goes_on: Option<(Vec<u8>, Duration)>,
    closes: bool,
}

fn saying(says: &[u8]) -> Server {
    Server { proves: true, says: says.to_vec(), goes_on: None, closes: false }
}

fn endless(more: &[u8], pause: Duration) -> Server {
    Server { goes_on: Some((more.to_vec(), pause)), ..saying(b"") }
}

impl Dial for Server {
    fn dial<'a>(&'a self, _: &'a str, _: u16) -> Dialled<'a> {
        let (near, far) = duplex(64 * 1024);
        tokio::spawn(self.clone().serve(far));
        Box::pin(async move { Ok(Box::new(near) as Box<dyn Stream>) })
    }
}

impl Server {
    async fn serve(self, mut line: DuplexStream) {
        let mut head = vec![0; 4096];
        let read = line.read(&mut head).await.unwrap_or(0);
        let head = String::from_utf8_lossy(&head[..read]).into_owned();
        let key = head.lines().find_map(|line| line.strip_prefix("sec-websocket-key: ")).unwrap_or_default();
        let key = if self.proves { key } else { "another" };
        let accept = STANDARD.encode(Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11")));
        let agreed = format!(
            "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
             sec-websocket-accept: {accept}\r\n\r\n"
        );
        let mut sent = line.write_all(agreed.as_bytes()).await.and(line.write_all(&self.says).await);
        while let (Ok(()), Some((more, pause))) = (&sent, &self.goes_on) {
            sent = line.write_all(more).await;
            if !pause.is_zero() {
                sleep(*pause).await;
            }
        }
        if !self.closes {
            std::future::pending::<()>().await;
        }
    }
}

async fn open(server: Server, within: Duration) -> Result<Socket, NotOpened> {
    let endpoint = Endpoint { host: "127.0.0.1".into(), port: 8006, tls: false };
    let client = HttpClient::new(endpoint, Trust::Anybody, None, Arc::new(server)).expect("a client");
    client.open(get(), "binary", within).await
}

fn get() -> Request {
    Request {
        method: Method::Get,
        target: "/api2/json/nodes/pve1/qemu/100/vncwebsocket".into(),
        headers: Vec::new(),
        authorization: None,
        body: Vec::new(),
    }
}

/// Opens a websocket, and waits for what comes first that is no silence and no message.
async fn ends(server: Server) -> Result<Received, TransportError> {
    let mut socket = open(server, WITHIN).await.expect("a websocket");
    loop {
        match socket.receive(Duration::from_secs(10)).await {
            Ok(Received::Message(_) | Received::Quiet) => {}
            ended => return ended,
        }
    }
}

fn is_nonsense(ended: &Result<Received, TransportError>) -> bool {
    matches!(ended, Err(TransportError::Unreadable(told)) if !told.contains(char::is_control) && told.len() < 500)
}

#[tokio::test(start_paused = true)]
async fn only_a_server_that_proves_it_is_taken_for_a_websocket() {
    let opened = open(Server { proves: false, ..saying(b"") }, WITHIN).await;
    assert!(matches!(opened, Err(NotOpened::Transport(TransportError::Unreadable(_)))), "{opened:?}");
}

#[tokio::test(start_paused = true)]
async fn frames_that_are_none_end_the_socket() {
    for (name, frame) in [
        ("a frame of exbibytes", &[0x82, 127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, b'x'][..]),
        ("a frame that is too long", &[0x82, 127, 0, 0, 0, 0, 0, 4, 0, 1]),
        ("reserved bits", &[0xf2, 1, b'x']),
        ("an unknown kind", &[0x83, 1, b'x']),
        ("a masked frame", &[0x82, 0x81, 1, 2, 3, 4, b'x']),
        ("the rest of nothing", &[0x80, 1, b'x']),
        ("no text", &[0x81, 2, 0xff, 0xfe]),
    ] {
        let ended = ends(saying(frame)).await;
        assert!(is_nonsense(&ended), "{name}: {ended:?}");
    }
    // A message in pieces without end.
    let pieces = [&[0x02, 125][..], &[b'x'; 125]].concat();
    let server =
        Server { says: pieces, ..endless(&[&[0x00, 125][..], &[b'x'; 125]].concat(), Duration::ZERO) };
    let ended = ends(server).await;
    assert!(is_nonsense(&ended), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn silence_and_slowness_end_in_time() {
    for server in [
        saying(b""),
        // Half a frame, a byte now and then, and signs of life that say nothing.
        saying(&[0x82, 100, b'x']),
        Server { says: vec![0x82, 126, 0xff, 0xff], ..endless(b"x", Duration::from_secs(1)) },
        endless(&PING, Duration::from_secs(1)),
        endless(&[0x82, 0], Duration::from_secs(1)),
    ] {
        let began = Instant::now();
        assert_eq!(ends(server).await, Ok(Received::Late));
        assert!(began.elapsed() < WITHIN + Duration::from_secs(11), "{:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_line_that_is_closed_is_the_end() {
    for says in [&b""[..], &[0x82, 100, b'x'], &[0x88, 0], &[0x88, 2, 3, 0xe8]] {
        let ended = ends(Server { closes: true, ..saying(says) }).await;
        assert_eq!(ended, Ok(Received::Closed), "{says:?}");
    }
}

/// Most bytes that this process has had in memory.
#[cfg(target_os = "linux")]
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
}

/// A server that sends every byte as a piece of its own.
struct Crumbs(usize);

impl Dial for Crumbs {
    fn dial<'a>(&'a self, _: &'a str, _: u16) -> Dialled<'a> {
        let (near, mut far) = duplex(64 * 1024);
        let rounds = self.0 / 1000;
        tokio::spawn(async move {
            let mut head = [0; 4096];
            let _ = far.read(&mut head).await;
            let _ = far.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
            for _ in 0..rounds {
                let _ = far.write_all("1\r\n \r\n".repeat(1000).as_bytes()).await;
            }
            let _ = far.write_all(b"0\r\n\r\n").await;
        });
        Box::pin(async move { Ok(Box::new(near) as Box<dyn Stream>) })
    }
}

/// Floods, one after the other: they are measured in the memory of the whole process.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_cost_time_and_no_memory() {
    const MOST: usize = 24 << 20;
    let before = peak();
    crumbs(400_000).await;
    let grown = peak() - before;
    assert!(grown < MOST, "crumbs took {} MiB", grown >> 20);
    pings().await;
    let grown = peak() - before;
    assert!(grown < MOST, "pings took {} MiB", grown >> 20);
}

async fn crumbs(number: usize) {
    let endpoint = Endpoint { host: "127.0.0.1".into(), port: 8006, tls: false };
    let client = HttpClient::new(endpoint, Trust::Anybody, None, Arc::new(Crumbs(number))).expect("a client");
    let answer = client.send(get(), Duration::from_mins(2)).await.expect("an answer");
    assert_eq!(answer.body.len(), number);
}

/// A server asks for signs of life, as fast as it can, and reads none of them.
async fn pings() {
    let mut socket =
        open(endless(&PING.repeat(500), Duration::ZERO), Duration::from_secs(3)).await.expect("a websocket");
    let began = Instant::now();
    let ended = loop {
        match socket.receive(Duration::from_secs(1)).await {
            Ok(Received::Quiet | Received::Message(_)) => {}
            ended => break ended,
        }
    };
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert!(matches!(ended, Ok(Received::Late) | Err(_)), "{ended:?}");
}
