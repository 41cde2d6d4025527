//! Consoles without a socket.

use std::{
    collections::VecDeque,
    future::Future,
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
};

use ichor_port::{Request, Response};

use super::*;
use crate::Token;

const LINE: &str = "[    5.123456] [talos] server certificate issued {\"component\": \"controller-runtime\", \
    \"controller\": \"runtime.MaintenanceServiceInformController\", \"fingerprint\": \
    \"BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=\"}";

#[test]
fn a_ticket_is_read_with_the_port_as_text_or_number_and_never_shown() {
    for port in ["\"5901\"", "5901"] {
        let text =
            format!("{{\"ticket\":\"PVEVNC:1::s+/=\",\"port\":{port},\"upid\":\"U\",\"user\":\"a@pve!t\"}}");
        let ticket: Ticket = serde_json::from_str(&text).expect("a ticket");
        assert_eq!(ticket.introduction(), b"a@pve!t:PVEVNC:1::s+/=\n");
        assert!(!format!("{ticket:?}").contains("PVEVNC"), "{ticket:?}");
        let call = websocket(&host(), vmid(), &ticket);
        assert_eq!(
            call.target(),
            "/api2/json/nodes/pve1/qemu/101/vncwebsocket?port=5901&vncticket=PVEVNC%3A1%3A%3As%2B%2F%3D"
        );
    }
    for port in ["70000", "\"x\"", "null", "-1"] {
        let text = format!("{{\"ticket\":\"\",\"port\":{port},\"user\":\"a\"}}");
        assert!(serde_json::from_str::<Ticket>(&text).is_err(), "{port}");
    }
}

#[test]
fn input_is_framed_by_bytes_and_not_by_characters() {
    assert_eq!(typed("ä\r".as_bytes()), "0:3:ä\r".as_bytes());
    assert_eq!(resized(80, 24), b"1:80:24:");
}

#[test]
fn escape_sequences_are_no_part_of_a_line_wherever_a_message_ends() {
    let printed = b"\x1b[2J\x1b[1;32mgreen\x1b[0m\tand\x1b]0;title\x07 plain\x1b(B\r\nnext\x1bP1$r\x1b\\!\n\x1b[broken\nrest";
    let whole = Lines::default().take(printed);
    assert_eq!(whole, ["green and plain", "next!", "roken"]);
    for cut in 0..printed.len() {
        let mut lines = Lines::default();
        let mut parts = lines.take(&printed[..cut]);
        parts.extend(lines.take(&printed[cut..]));
        assert_eq!(parts, whole, "cut at {cut}");
    }
    let long = [vec![b'x'; 3 * MAX_LINE], b"\n\xff\n".to_vec()].concat();
    let lines = Lines::default().take(&long);
    assert_eq!((lines[0].len(), lines[1].as_str()), (MAX_LINE, "\u{fffd}"));
}

#[test]
fn the_newest_key_is_found() {
    assert_eq!(maintenance_key(LINE), Some([7; 32]));
    let newer = LINE.replacen("BwcH", "CAgI", 1);
    let printed = format!("firmware\r\n\x1b[0m{LINE}\r\nreboot\r\n{newer}\r\n{LINE}");
    let found = newest_maintenance_key(printed.as_bytes()).expect("a key");
    assert_eq!(found[..4], [8, 8, 8, 7], "the last line is not whole yet");
    for broken in [
        "",
        "[talos] server certificate issued {}",
        &LINE.replace("[talos]", "[other]"),
        &LINE.replace("BwcH", ""),
        &LINE.replace("Bwc=\"}", ""),
    ] {
        assert_eq!(maintenance_key(broken), None, "{broken}");
    }
}

/// A server that answers as it was told.
#[derive(Debug, Clone, Default)]
struct Script(Arc<Mutex<Spoken>>);

#[derive(Debug, Default)]
struct Spoken {
    sent: Vec<Vec<u8>>,
    to_say: VecDeque<Received>,
    refuses: Option<u16>,
}

impl Http for Script {
    async fn send(&self, request: Request, _: Duration) -> Result<Response, TransportError> {
        assert_eq!(request.target, "/api2/json/nodes/pve1/qemu/101/termproxy");
        let body = br#"{"data":{"ticket":"PVEVNC:1::s","port":"5900","upid":"U","user":"a@pve!t"}}"#;
        Ok(Response { status: 200, body: body.to_vec(), ..Response::default() })
    }
}

impl WebSockets for Script {
    type Socket = Self;

    async fn open(&self, request: Request, protocol: &'static str, _: Duration) -> Result<Self, NotOpened> {
        assert!(request.authorization.is_some() && request.target.contains("vncwebsocket?port=5900&"));
        assert_eq!(protocol, "binary");
        let refuses = self.0.lock().expect("free").refuses;
        refuses.map_or_else(
            || Ok(self.clone()),
            |status| Err(NotOpened::Answered(Response { status, ..Response::default() })),
        )
    }
}

impl WebSocket for Script {
    async fn send(&mut self, message: Vec<u8>) -> Result<(), TransportError> {
        self.0.lock().expect("free").sent.push(message);
        Ok(())
    }

    async fn receive(&mut self, _: Duration) -> Result<Received, TransportError> {
        Ok(self.0.lock().expect("free").to_say.pop_front().unwrap_or(Received::Late))
    }
}

fn host() -> HostName {
    "pve1".parse().expect("a name")
}

fn vmid() -> VmId {
    "101".parse().expect("a number")
}

fn says(texts: &[&str]) -> Vec<Received> {
    texts.iter().map(|text| Received::Message(text.as_bytes().to_vec())).collect()
}

/// Reads the key from a console that says these things, and returns what the client sent too.
fn read(to_say: Vec<Received>) -> (Result<[u8; 32], ConsoleError>, Vec<Vec<u8>>) {
    let script = Script::default();
    script.0.lock().expect("free").to_say.extend(to_say);
    let token = Token::parse(&Secret::new("a@pve!t=secret")).expect("a token");
    let client = Client::new(script.clone(), token);
    let found = now(client.read_console(&host(), vmid(), Duration::from_secs(1), maintenance_key));
    let sent = script.0.lock().expect("free").sent.clone();
    (found, sent)
}

/// The script never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("it waits"),
    }
}

#[test]
fn a_key_is_read_however_it_is_cut_into_messages() {
    let text = format!("OK{BEGINS}serial0\r\n\x1b[0mBooting\r\n{LINE}\r\n");
    for size in [1, 2, 3, 50, 4096] {
        let messages: Vec<Received> =
            text.as_bytes().chunks(size).map(|part| Received::Message(part.to_vec())).collect();
        let (found, sent) = read(messages);
        assert_eq!(found, Ok([7; 32]), "in parts of {size}");
        assert_eq!(sent, [b"a@pve!t:PVEVNC:1::s\n".to_vec()]);
    }
}

#[test]
fn a_silent_console_is_shown_that_somebody_is_there() {
    let mut messages = says(&["OK", &format!("{BEGINS}serial0\r\n")]);
    messages.push(Received::Quiet);
    messages.extend(says(&[&format!("{LINE}\r\n")]));
    let (found, sent) = read(messages);
    assert_eq!(found, Ok([7; 32]));
    assert_eq!(sent[1..], [b"2".to_vec()]);
}

#[test]
fn what_is_wrong_is_told_apart() {
    assert_eq!(read(vec![Received::Closed]).0, Err(ConsoleError::NotLetIn));
    assert_eq!(read(says(&["KO"])).0, Err(ConsoleError::NotLetIn));

    let mut off = says(&["OKVM 101 not running\r\n"]);
    off.push(Received::Closed);
    let off = read(off).0.expect_err("it is off");
    assert!(off.is_off() && !off.has_no_port(), "{off}");

    let mut bare = says(&["OKunable to find a serial interface\r\n"]);
    bare.push(Received::Closed);
    let bare = read(bare).0.expect_err("no port");
    assert!(bare.has_no_port() && !bare.is_off(), "{bare}");

    let mut ends = says(&[&format!("OK{BEGINS}serial0\r\nlast\x1b[1m words\r\n")]);
    ends.push(Received::Closed);
    let ends = read(ends).0.expect_err("it ends");
    assert_eq!(ends, ConsoleError::Ended("last words".into()));
    assert!(!ends.is_off() && !ends.has_no_port());

    let late = read(says(&[&format!("OK{BEGINS}serial0\r\nbusy\r\n")])).0;
    assert_eq!(late, Err(ConsoleError::Late("busy".into())));

    let endless = "x".repeat(1024 * 1024);
    let mut messages = says(&[&format!("OK{BEGINS}serial0\r\n")]);
    messages.extend((0..9).flat_map(|_| says(&[&endless])));
    assert_eq!(read(messages).0, Err(ConsoleError::TooMuch));
}

#[test]
fn a_refused_websocket_is_a_refusal() {
    let script = Script::default();
    script.0.lock().expect("free").refuses = Some(401);
    let token = Token::parse(&Secret::new("a@pve!t=secret")).expect("a token");
    let client = Client::new(script, token);
    let error = now(client.open_console(&host(), vmid(), Duration::from_secs(1))).expect_err("refused");
    assert!(
        matches!(&error, ConsoleError::Call(error) if error.refusal() == Some(crate::Kind::Unauthenticated)),
        "{error}"
    );
}
