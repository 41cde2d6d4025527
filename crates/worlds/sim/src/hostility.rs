//! Servers that mean harm: answers that want to exhaust a client, lead it elsewhere, or play tricks on its terminal.
//!
//! They are made of what every server can send, so they come through the doors of the lab like other answers. What
//! has no meaning in gRPC (a redirection, another content type) is a message without sense there.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    clock::Time,
    ground::Ground,
    wire::{Polled, Response, RpcReply},
};

/// A way to harm a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hostility {
    /// The answer has no end.
    Endless,
    /// The answer has thousands of long headers; in gRPC a status of a megabyte.
    Headers,
    /// A byte or an empty message comes now and then, for ever.
    Drip,
    /// The answer leads to another host.
    Redirect,
    /// The answer says that it is compressed, and is nothing.
    Garbage,
    /// The answer is nested deeper than any reader should follow.
    Nested,
    /// The answer is right, and says that it is a web page.
    ContentType,
    /// The server refuses in words that steer terminals and break lines.
    Escapes,
    /// The answer is one piece of 40 MiB.
    Oversized,
}

/// What steers terminals: another title, a cleared screen, colours, a backspace, and a line of its own.
pub const ESCAPES: &str = "\u{1b}]0;owned\u{7}\u{1b}[2J\u{1b}[31mall is well\u{8}\u{8}\r\nichor: everything succeeded\u{9b}1m\u{202e}";

const OVERSIZED: usize = 40 * 1024 * 1024;
const HEADERS: usize = 4_000;
const NESTED: usize = 100_000;
const NESTED_MESSAGES: usize = 5_000;
const DRIP_EVERY: Duration = Duration::from_millis(500);
const INTERNAL: i32 = 13;

/// An answer that goes on as long as somebody reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tap {
    /// As fast as it is read.
    Open,
    /// A little at a time; the next at this moment.
    Drip(Time),
}

impl Tap {
    /// Returns more of an HTTP answer.
    pub fn poll(&mut self, now: Time) -> Polled {
        match self {
            Self::Open => Polled::Pieces(vec![vec![b'A'; 64 * 1024]]),
            Self::Drip(next) => drip(next, now, b" ".to_vec()),
        }
    }

    /// Returns more messages of a gRPC answer.
    pub fn poll_rpc(&mut self, now: Time) -> Polled {
        match self {
            Self::Open => Polled::Pieces(vec![filler(16 * 1024)]),
            Self::Drip(next) => drip(next, now, Vec::new()),
        }
    }
}

fn drip(next: &mut Time, now: Time, piece: Vec<u8>) -> Polled {
    if now < *next {
        return Polled::Wait(Some(*next));
    }
    *next = now + DRIP_EVERY;
    Polled::Pieces(vec![piece])
}

/// A message of any type: one field that nobody knows, number 1000, with zeros in it.
fn filler(length: usize) -> Vec<u8> {
    let mut message = vec![0xc2, 0x3e];
    message.extend(varint(length));
    message.resize(message.len() + length, 0);
    message
}

fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(u8::try_from(number & 0x7f).unwrap_or(0) | 0x80);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).unwrap_or(0));
    bytes
}

/// Makes a hostile HTTP answer of a right one.
pub fn http(kind: Hostility, answer: &Response, ground: &mut Ground) -> (Response, Option<Tap>) {
    let body = |body: Vec<u8>| Response { body, ..answer.clone() };
    let header = |mut answer: Response, name: &str, value: &str| {
        answer.headers.retain(|(other, _)| other != name);
        answer.headers.push((name.to_owned(), value.to_owned()));
        answer
    };
    let whole = match kind {
        Hostility::Endless => return (body(b"{\"data\":\"".to_vec()), Some(Tap::Open)),
        Hostility::Drip => return (body(b"{".to_vec()), Some(Tap::Drip(ground.now))),
        Hostility::Headers => {
            let mut answer = answer.clone();
            let value = "A".repeat(1024);
            answer.headers.extend((0..HEADERS).map(|number| (format!("x-lab-{number}"), value.clone())));
            answer
        }
        Hostility::Redirect => {
            let answer = Response { status: 302, reason: Some("Found".into()), ..body(Vec::new()) };
            header(answer, "location", "https://192.0.2.66:8006/api2/json/version")
        }
        Hostility::Garbage => header(body(garbage(ground)), "content-encoding", "gzip"),
        Hostility::Nested => body([b"{\"data\":".to_vec(), vec![b'['; NESTED]].concat()),
        Hostility::ContentType => header(answer.clone(), "content-type", "text/html; charset=utf-8"),
        Hostility::Escapes => {
            let said = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 500,
                "reason": ESCAPES, "message": ESCAPES, "errors": { ESCAPES: ESCAPES }, "data": null,
            });
            Response { status: 500, reason: None, ..body(said.to_string().into_bytes()) }
        }
        Hostility::Oversized => {
            let filler = vec![b'A'; OVERSIZED];
            body([b"{\"data\":\"".as_slice(), &filler, b"\"}"].concat())
        }
    };
    (Response { stream: None, ..whole }, None)
}

/// Makes a hostile gRPC answer.
pub fn rpc(kind: Hostility, ground: &mut Ground) -> (RpcReply, Option<Tap>) {
    let one = |message: Vec<u8>| RpcReply::Messages { messages: vec![message], stream: None };
    let status = |message: String| RpcReply::Status { code: INTERNAL, message };
    let reply = match kind {
        Hostility::Endless => return (RpcReply::default(), Some(Tap::Open)),
        Hostility::Drip => return (RpcReply::default(), Some(Tap::Drip(ground.now))),
        Hostility::Headers => status("A".repeat(1024 * 1024)),
        Hostility::Redirect | Hostility::Garbage | Hostility::ContentType => one(garbage(ground)),
        Hostility::Nested => one(nested_message()),
        Hostility::Escapes => status(ESCAPES.into()),
        Hostility::Oversized => one(filler(OVERSIZED)),
    };
    (reply, None)
}

fn garbage(ground: &mut Ground) -> Vec<u8> {
    let mut bytes = vec![0; 64 * 1024];
    ground.random.fill(&mut bytes);
    // No message, no text and no gzip begins so.
    bytes[..2].copy_from_slice(&[0xff, 0xff]);
    bytes
}

/// A message in a message in a message, each in the first field of the other.
fn nested_message() -> Vec<u8> {
    let mut message: Vec<u8> = Vec::new();
    for _ in 0..NESTED_MESSAGES {
        let mut outer = vec![0x0a];
        outer.extend(varint(message.len()));
        outer.extend(&message);
        message = outer;
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fillers_are_messages_of_any_type() {
        use ichor_talos_proto::{Message, machine};
        machine::VersionResponse::decode(filler(16 * 1024).as_slice()).expect("a message");
        machine::VersionResponse::decode(nested_message().as_slice()).expect_err("too deep");
    }

    #[test]
    fn a_drip_waits_for_its_time() {
        let mut tap = Tap::Drip(Time::START);
        assert!(matches!(tap.poll(Time::START), Polled::Pieces(_)));
        assert_eq!(tap.poll(Time::START), Polled::Wait(Some(Time::START + DRIP_EVERY)));
    }
}
