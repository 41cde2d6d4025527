//! gRPC without a socket: frames, statuses, and how a time is written.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http::{HeaderMap, StatusCode, header::CONTENT_TYPE};
use ichor_talos_proto::code;

use crate::error::{Code, clean};

/// Before a message stand a byte that tells whether it is compressed, and its length.
const HEAD: usize = 5;

/// Frames a message.
pub fn frame(message: &[u8]) -> Bytes {
    let mut framed = BytesMut::with_capacity(HEAD + message.len());
    framed.put_u8(0);
    framed.put_u32(u32::try_from(message.len()).unwrap_or(u32::MAX));
    framed.put_slice(message);
    framed.freeze()
}

/// Takes messages out of the bytes of an answer, which come in pieces of any size.
#[derive(Debug)]
pub struct Unframer {
    bytes: BytesMut,
    /// Most bytes of a message.
    limit: usize,
}

impl Unframer {
    /// Begins, with a limit for each message.
    pub fn new(limit: usize) -> Self {
        Self { bytes: BytesMut::new(), limit }
    }

    /// Takes a piece.
    pub fn push(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// Returns the next message, once it is whole.
    pub fn next(&mut self) -> Result<Option<Bytes>, String> {
        let Some((head, _)) = self.bytes.split_first_chunk::<HEAD>() else { return Ok(None) };
        let [compressed, length @ ..] = *head;
        if compressed != 0 {
            return Err("a message is compressed, which nobody asked for".into());
        }
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > self.limit {
            return Err(format!("a message has {length} bytes, and more than {} are not read", self.limit));
        }
        if self.bytes.len() - HEAD < length {
            return Ok(None);
        }
        self.bytes.advance(HEAD);
        Ok(Some(self.bytes.split_to(length).freeze()))
    }

    /// Whether nothing is left of a message that has begun.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// Well.
    Well,
    /// With a refusal.
    Refused(Code, String),
}

/// Reads how a call ended from trailers, or from the headers of an answer that has nothing else.
pub fn ending(trailers: &HeaderMap) -> Option<Ending> {
    let number = trailers.get("grpc-status")?.to_str().ok().and_then(|number| number.parse().ok());
    // A status that is no number is an unknown one.
    let number: i32 = number.unwrap_or(code::UNKNOWN);
    if number == code::OK {
        return Some(Ending::Well);
    }
    let text = trailers.get("grpc-message").map_or_else(String::new, |text| percent_decode(text.as_bytes()));
    Some(Ending::Refused(Code::of(number), clean(&text)))
}

/// Judges the beginning of an answer: whether it is one of gRPC at all.
pub fn beginning(status: StatusCode, headers: &HeaderMap) -> Result<(), String> {
    if status != StatusCode::OK {
        return Err(format!("it is HTTP {}, so there is no Talos API", status.as_u16()));
    }
    let kind = headers.get(CONTENT_TYPE).map(|kind| String::from_utf8_lossy(kind.as_bytes()));
    let is_grpc = |kind: &str| {
        kind.strip_prefix("application/grpc")
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['+', ';']))
    };
    match kind {
        Some(kind) if is_grpc(&kind) => Ok(()),
        Some(kind) => Err(format!("it is `{}`, and not gRPC", clean(&kind))),
        None => Err("it does not say what it is".into()),
    }
}

/// Writes a time for `grpc-timeout`, in the finest unit that eight digits hold.
pub fn timeout(within: Duration) -> String {
    const MOST: u128 = 99_999_999;
    let units = [(within.as_micros(), 'u'), (within.as_millis(), 'm'), (u128::from(within.as_secs()), 'S')];
    let fitting = units.into_iter().find(|(number, _)| *number <= MOST);
    fitting.map_or_else(|| format!("{MOST}S"), |(number, unit)| format!("{number}{unit}"))
}

/// Reads a text in which everything but printable ASCII is percent-encoded. What is encoded wrongly stays.
fn percent_decode(text: &[u8]) -> String {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, behind @ ..] = rest {
        let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        rest = match byte.filter(|_| *first == b'%') {
            Some(byte) => {
                decoded.push(byte);
                &behind[2..]
            }
            None => {
                decoded.push(*first);
                behind
            }
        };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (http::HeaderName::from_static(name), value.parse().expect("a value")))
            .collect()
    }

    #[test]
    fn messages_come_in_pieces_of_any_size() {
        let bytes = [frame(b"one"), frame(b""), frame(b"three")].concat();
        for size in 1..bytes.len() {
            let mut unframer = Unframer::new(5);
            let mut messages = Vec::new();
            for piece in bytes.chunks(size) {
                unframer.push(piece);
                while let Some(message) = unframer.next().expect("sound frames") {
                    messages.push(message);
                }
            }
            assert_eq!(messages, [&b"one"[..], b"", b"three"], "{size}");
            assert!(unframer.is_empty());
        }
    }

    #[test]
    fn long_and_compressed_messages_are_not_read() {
        let mut unframer = Unframer::new(4);
        unframer.push(&[0, 0, 0, 0, 5]);
        assert!(unframer.next().is_err(), "the head is enough to refuse it");
        let mut unframer = Unframer::new(4);
        unframer.push(&[1, 0, 0, 0, 0]);
        assert!(unframer.next().is_err());
        let mut unframer = Unframer::new(4);
        unframer.push(&[0, 0, 0, 0, 4, 1]);
        assert_eq!(unframer.next(), Ok(None));
        assert!(!unframer.is_empty());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_messages_within_the_limit_or_refused(
            pieces in proptest::collection::vec(proptest::collection::vec(0_u8..4, 0..40), 0..20),
        ) {
            let mut unframer = Unframer::new(300);
            for piece in &pieces {
                unframer.push(piece);
                while let Ok(Some(message)) = unframer.next() {
                    assert!(message.len() <= 300);
                }
            }
        }

        #[test]
        fn any_text_of_a_status_is_printable(text in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let shown = clean(&percent_decode(&text));
            assert!(!shown.chars().any(char::is_control), "{shown:?}");
        }
    }

    #[test]
    fn endings_are_read() {
        assert_eq!(ending(&headers(&[])), None);
        assert_eq!(ending(&headers(&[("grpc-status", "0"), ("grpc-message", "odd")])), Some(Ending::Well));
        let refused = headers(&[("grpc-status", "6"), ("grpc-message", "50 %25 of %C3%A9%0A%zz%4")]);
        assert_eq!(ending(&refused), Some(Ending::Refused(Code::AlreadyExists, "50 % of é %zz%4".into())));
        let odd = headers(&[("grpc-status", "many")]);
        assert_eq!(ending(&odd), Some(Ending::Refused(Code::Unknown, String::new())));
    }

    #[test]
    fn only_grpc_is_an_answer() {
        for kind in ["application/grpc", "application/grpc+proto", "application/grpc;x"] {
            assert_eq!(beginning(StatusCode::OK, &headers(&[("content-type", kind)])), Ok(()), "{kind}");
        }
        for kind in ["text/html", "application/grpc-web", ""] {
            assert!(beginning(StatusCode::OK, &headers(&[("content-type", kind)])).is_err(), "{kind}");
        }
        assert!(beginning(StatusCode::OK, &headers(&[])).is_err());
        assert!(
            beginning(StatusCode::BAD_GATEWAY, &headers(&[("content-type", "application/grpc")])).is_err()
        );
    }

    #[test]
    fn times_have_at_most_eight_digits() {
        assert_eq!(timeout(Duration::from_secs(10)), "10000000u");
        assert_eq!(timeout(Duration::from_mins(10)), "600000m");
        assert_eq!(timeout(Duration::from_hours(48)), "172800S");
        assert_eq!(timeout(Duration::MAX), "99999999S");
    }
}
