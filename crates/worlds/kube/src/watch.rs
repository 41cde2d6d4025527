//! Changes as they come.

use std::time::Duration;

use ichor_port::{Method, Pieces, clean};
use serde::Deserialize;
use serde_json::Value;

use crate::{call::Call, client::Error, refusal::Refusal, resource::Resource};

/// Most bytes of an event. etcd takes objects of 1.5 MiB.
const MAX_EVENT: usize = 8 * 1024 * 1024;

/// From where, and of what, a watch tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchFrom<'a> {
    /// The version that the caller has seen: of a list, of an object, or of a bookmark.
    pub version: &'a str,
    /// Only the object of this name.
    pub name: Option<&'a str>,
    /// Only objects with these labels, such as `app=web`.
    pub labels: Option<&'a str>,
    /// When the server ends the watch.
    pub lasts: Duration,
}

impl<'a> WatchFrom<'a> {
    /// Watches everything after a version, for five minutes.
    pub const fn version(version: &'a str) -> Self {
        Self { version, name: None, labels: None, lasts: Duration::from_mins(5) }
    }

    pub(crate) fn call(&self, resource: &Resource, namespace: Option<&str>) -> Call<Value> {
        let mut call = Call::about_all(Method::Get, resource, namespace)
            .with("watch", "true")
            .with("allowWatchBookmarks", "true")
            .with("resourceVersion", self.version)
            .with("timeoutSeconds", self.lasts.as_secs().max(1));
        if let Some(name) = self.name {
            call = call.with("fieldSelector", format!("metadata.name={name}"));
        }
        if let Some(labels) = self.labels {
            call = call.with("labelSelector", labels);
        }
        call
    }
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// An object is new, or begins to fit.
    Added(Value),
    /// An object has changed.
    Modified(Value),
    /// An object is gone, or ceases to fit.
    Deleted(Value),
    /// Nothing happened up to this version.
    Bookmark(String),
}

impl Event {
    /// Returns the version to go on from after it.
    pub fn version(&self) -> &str {
        match self {
            Self::Added(object) | Self::Modified(object) | Self::Deleted(object) => version(object),
            Self::Bookmark(version) => version,
        }
    }
}

fn version(object: &Value) -> &str {
    object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default()
}

/// A watch. It ends after its time, or whenever the server likes: the caller goes on from the last version. A
/// refusal of the kind `Expired` means that this version is forgotten, and that the caller must list again.
#[derive(Debug)]
pub struct Watch<P> {
    call: String,
    pieces: P,
    lines: Lines,
}

impl<P: Pieces> Watch<P> {
    pub(crate) const fn new(call: String, pieces: P) -> Self {
        Self { call, pieces, lines: Lines { buffer: Vec::new(), searched: 0 } }
    }

    /// Returns the next event; nothing when the watch has ended. Servers send bookmarks every minute, so that a
    /// longer silence means a broken line. A wait that is given up loses nothing.
    pub async fn next(&mut self, within: Duration) -> Result<Option<Event>, Error> {
        loop {
            while let Some(line) = self.lines.pop() {
                if let Some(event) = read(&line).map_err(|fault| fault.of(&self.call))? {
                    return Ok(Some(event));
                }
            }
            match self.pieces.next(within).await? {
                // What has no newline at its end has broken off.
                None => return Ok(None),
                Some(piece) => self.lines.push(&piece).map_err(|fault| fault.of(&self.call))?,
            }
        }
    }
}

/// Why a line is no event.
#[derive(Debug, PartialEq, Eq)]
enum Fault {
    Refused(Box<Refusal>),
    Nonsense(String),
}

impl Fault {
    fn of(self, call: &str) -> Error {
        match self {
            Self::Refused(refusal) => Error::Refused(refusal),
            Self::Nonsense(why) => Error::Nonsense { call: call.to_owned(), why },
        }
    }
}

/// Pieces, cut anew at newlines.
#[derive(Debug, Default)]
struct Lines {
    buffer: Vec<u8>,
    /// How far there is no newline, so that a long line is not searched again with every piece.
    searched: usize,
}

impl Lines {
    fn push(&mut self, piece: &[u8]) -> Result<(), Fault> {
        if self.buffer.len() + piece.len() > MAX_EVENT {
            return Err(Fault::Nonsense("an event has no end".into()));
        }
        self.buffer.extend(piece);
        Ok(())
    }

    fn pop(&mut self) -> Option<Vec<u8>> {
        let Some(end) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = self.buffer.len();
            return None;
        };
        let rest = self.buffer.split_off(self.searched + end + 1);
        self.searched = 0;
        Some(std::mem::replace(&mut self.buffer, rest))
    }
}

#[derive(Deserialize)]
struct Raw {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

/// Reads a line; nothing if it is empty or of a kind that is not known.
fn read(line: &[u8]) -> Result<Option<Event>, Fault> {
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let nonsense = |error: serde_json::Error| Fault::Nonsense(clean(&error.to_string()));
    let Raw { kind, object } = serde_json::from_slice(line).map_err(nonsense)?;
    Ok(Some(match kind.as_str() {
        "ADDED" => Event::Added(object),
        "MODIFIED" => Event::Modified(object),
        "DELETED" => Event::Deleted(object),
        "BOOKMARK" => Event::Bookmark(version(&object).to_owned()),
        "ERROR" => {
            let refusal = Refusal::in_watch(&object);
            return Err(refusal.map_or_else(
                || Fault::Nonsense("it tells of an error that is none".into()),
                |refusal| Fault::Refused(Box::new(refusal)),
            ));
        }
        _ => return Ok(None),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Kind;

    #[test]
    fn lines_are_cut_wherever_pieces_end() {
        let mut lines = Lines::default();
        let mut cut = Vec::new();
        for piece in ["{\"a\"", ":1}\n{}\n", "\n{", "}", "\n"] {
            lines.push(piece.as_bytes()).expect("short");
            cut.extend(std::iter::from_fn(|| lines.pop()).map(|line| String::from_utf8(line).expect("text")));
        }
        assert_eq!(cut, ["{\"a\":1}\n", "{}\n", "\n", "{}\n"]);
    }

    #[test]
    fn a_line_without_end_is_given_up() {
        let mut lines = Lines::default();
        let piece = vec![b'x'; 1 << 20];
        let given_up = (0..9).find_map(|_| {
            let pushed = lines.push(&piece).err();
            assert_eq!(lines.pop(), None);
            pushed
        });
        assert_eq!(given_up, Some(Fault::Nonsense("an event has no end".into())));
    }

    #[test]
    fn events_are_read() {
        let line =
            br#"{"type": "BOOKMARK", "object": {"kind": "Node", "metadata": {"resourceVersion": "12"}}}"#;
        assert_eq!(read(line), Ok(Some(Event::Bookmark("12".into()))));
        let line = br#"{"type": "ADDED", "object": {"metadata": {"name": "a", "resourceVersion": "7"}}}"#;
        assert_eq!(read(line).expect("an event").expect("one").version(), "7");
        assert_eq!(read(b" \n"), Ok(None));
        assert_eq!(read(br#"{"type": "NEWS", "object": {}}"#), Ok(None));
        assert!(matches!(read(b"{}"), Err(Fault::Nonsense(_))));
        let line = br#"{"type": "ERROR", "object": {"kind": "Status", "status": "Failure", "code": 410,
                        "reason": "Expired", "message": "too old resource version: 1 (9)"}}"#;
        let Err(Fault::Refused(refusal)) = read(line) else { panic!("no refusal") };
        assert_eq!(refusal.kind, Kind::Expired);
        assert!(matches!(read(br#"{"type": "ERROR", "object": 7}"#), Err(Fault::Nonsense(_))));
    }
}
