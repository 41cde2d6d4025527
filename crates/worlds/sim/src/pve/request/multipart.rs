//! Uploads: `multipart/form-data`, read piece by piece as it comes in.
//!
//! The real server writes the file to its disk, however large it is, and hands its name on. The lab counts and digests
//! it and keeps its beginning: that is the whole of a disc that machines read, and of the images of its own factory.

use std::{collections::BTreeMap, fmt};

use memchr::memmem;
use serde::{Deserialize, Serialize};

use crate::{
    ground::as_base64,
    pve::{answer, storage::checksum::Checksum},
    wire::Response,
};

/// A file that was uploaded. The real server writes it to a spool file on the host that was called.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Upload {
    /// The name that the client gave it.
    pub filename: String,
    /// How many bytes it has.
    pub size: u64,
    /// Its first bytes, or all.
    #[serde(with = "as_base64")]
    pub beginning: Vec<u8>,
    /// Its checksums by algorithm: SHA-256, and the one that the client wants to be checked.
    pub checksums: BTreeMap<String, String>,
}

/// An upload as far as it was taken in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Spooled {
    /// The parameters before the file.
    pub params: Vec<(String, String)>,
    /// The file.
    pub file: Option<Upload>,
    trouble: Option<Trouble>,
}

/// Why an upload was not taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Trouble {
    /// The file system of the spool files is full.
    NoRoom,
    /// So many bytes came before any file that the server's buffer is full.
    NoFile,
}

impl Spooled {
    /// Returns what the server answers while it still reads the upload.
    pub fn refusal(&self) -> Option<Response> {
        self.trouble.map(|trouble| match trouble {
            Trouble::NoRoom => {
                answer::plain(500, "write to temporary file failed - No space left on device\n")
            }
            Trouble::NoFile => answer::cut(),
        })
    }
}

/// So many bytes of a file are kept.
const KEPT: usize = 4 << 20;
/// What the server keeps of a body that has not come to its file: as much as of any other body, and headers.
const MOST_BEFORE_FILE: usize = (512 + 8) << 10;

/// Takes an upload in.
pub struct Spool {
    mark: Vec<u8>,
    algorithm: Option<String>,
    room: u64,
    phase: Phase,
    spooled: Spooled,
    checksums: Vec<(String, Checksum)>,
}

enum Phase {
    /// What came before any file.
    Before(Vec<u8>),
    /// The end of what came of the file: it may be the beginning of the mark behind it.
    File(Vec<u8>),
    /// Nothing that follows is looked at.
    Over,
}

impl Spool {
    /// Begins. Parts are separated by the boundary, the query may name an algorithm, and there is room for so many
    /// bytes.
    pub fn new(boundary: &str, algorithm: Option<String>, room: u64) -> Self {
        Self {
            mark: format!("--{boundary}").into_bytes(),
            algorithm,
            room,
            phase: Phase::Before(Vec::new()),
            spooled: Spooled::default(),
            checksums: Vec::new(),
        }
    }

    /// Takes the next piece of the body.
    pub fn take(&mut self, piece: &[u8]) {
        match &mut self.phase {
            Phase::Before(bytes) => {
                bytes.extend_from_slice(piece);
                let parts = Parts::read(bytes, &self.mark);
                if let Some((filename, start)) = parts.file {
                    let begun = bytes.split_off(start);
                    self.begin_file(parts.params, filename);
                    self.take(&begun);
                } else if bytes.len() > MOST_BEFORE_FILE {
                    self.stop(Trouble::NoFile);
                }
            }
            Phase::File(tail) => {
                tail.extend_from_slice(piece);
                let end_mark = [b"\r\n", self.mark.as_slice()].concat();
                let end = memmem::find(tail, &end_mark);
                let sure = end.unwrap_or_else(|| tail.len().saturating_sub(end_mark.len() - 1));
                let unsure = tail.split_off(sure);
                let bytes = std::mem::replace(tail, unsure);
                if end.is_some() {
                    self.phase = Phase::Over;
                }
                self.write(&bytes);
            }
            Phase::Over => {}
        }
    }

    /// Returns whether the rest of the body is of no use to anybody, because the answer is known.
    pub const fn has_failed(&self) -> bool {
        self.spooled.trouble.is_some()
    }

    /// Takes a whole body.
    pub fn all(mut self, body: &[u8]) -> Spooled {
        self.take(body);
        self.finish()
    }

    /// Ends, whether all has come or not.
    pub fn finish(mut self) -> Spooled {
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Before(bytes) => self.spooled.params = Parts::read(&bytes, &self.mark).params,
            Phase::File(tail) => self.write(&tail),
            Phase::Over => {}
        }
        if let Some(file) = &mut self.spooled.file {
            file.checksums = self.checksums.into_iter().map(|(name, sum)| (name, sum.finish())).collect();
        }
        self.spooled
    }

    fn begin_file(&mut self, params: Vec<(String, String)>, filename: String) {
        let of_params = params.iter().find(|(name, _)| name == "checksum-algorithm").map(|(_, value)| value);
        let asked = self.algorithm.as_ref().or(of_params).map_or("sha256", String::as_str);
        let others = (asked != "sha256").then_some(asked);
        let wanted = others.into_iter().chain(["sha256"]);
        self.checksums = wanted.map(|name| (name.to_owned(), Checksum::of(name))).collect();
        self.spooled.params = params;
        self.spooled.file = Some(Upload { filename, ..Upload::default() });
        self.phase = Phase::File(Vec::new());
    }

    fn write(&mut self, bytes: &[u8]) {
        let Some(file) = &mut self.spooled.file else { return };
        file.size += bytes.len() as u64;
        if file.size > self.room {
            return self.stop(Trouble::NoRoom);
        }
        for (_, checksum) in &mut self.checksums {
            checksum.update(bytes);
        }
        let kept = bytes.len().min(KEPT - file.beginning.len());
        file.beginning.extend_from_slice(&bytes[..kept]);
    }

    fn stop(&mut self, trouble: Trouble) {
        self.phase = Phase::Over;
        self.spooled = Spooled { trouble: Some(trouble), ..Spooled::default() };
    }
}

impl fmt::Debug for Spool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spool").field("spooled", &self.spooled).finish_non_exhaustive()
    }
}

/// Finds the boundary in a content type.
pub fn boundary(content_type: &str) -> Option<String> {
    let part = content_type.split(';').map(str::trim).find_map(|part| part.strip_prefix("boundary="))?;
    Some(part.trim_matches('"').to_owned())
}

/// The beginning of a body.
struct Parts {
    /// The parameters before the file.
    params: Vec<(String, String)>,
    /// What the file is called and where it begins.
    file: Option<(String, usize)>,
}

impl Parts {
    /// Reads the parts up to the file. What comes after it is not looked at, which is why its place matters.
    fn read(body: &[u8], mark: &[u8]) -> Self {
        let mut params = Vec::new();
        let end_mark = [b"\r\n", mark].concat();
        let mut at = 0;
        while let Some(start) = memmem::find(&body[at..], mark) {
            let after = at + start + mark.len();
            if body[after..].starts_with(b"--") {
                break;
            }
            let Some(head_length) = memmem::find(&body[after..], b"\r\n\r\n") else { break };
            let head = String::from_utf8_lossy(&body[after..after + head_length]).into_owned();
            let content = after + head_length + 4;
            let name = attribute(&head, "name").unwrap_or_default();
            if let Some(filename) = attribute(&head, "filename").filter(|_| name == "filename") {
                return Self { params, file: Some((filename, content)) };
            }
            let end = memmem::find(&body[content..], &end_mark).map_or(body.len(), |length| content + length);
            params.push((name, String::from_utf8_lossy(&body[content..end]).into_owned()));
            at = end;
        }
        Self { params, file: None }
    }
}

/// Finds an attribute of the header `Content-Disposition`.
fn attribute(head: &str, name: &str) -> Option<String> {
    let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with("content-disposition:"))?;
    let mark = format!("{name}=");
    let part = line.split(';').map(str::trim).find_map(|part| part.strip_prefix(&mark))?;
    Some(part.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(file: &[u8]) -> Vec<u8> {
        let part = |name: &str, text: &str| {
            format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{text}\r\n")
        };
        let head = "--x\r\nContent-Disposition: form-data; name=\"filename\"; filename=\"a.iso\"\r\n\
                    Content-Type: application/octet-stream\r\n\r\n";
        let front = part("content", "iso") + &part("checksum-algorithm", "md5") + head;
        [front.as_bytes(), file, b"\r\n--x--\r\n", part("late", "1").as_bytes()].concat()
    }

    fn spooled(body: &[u8], piece: usize, room: u64) -> Spooled {
        let mut spool = Spool::new("x", None, room);
        for piece in body.chunks(piece) {
            spool.take(piece);
        }
        spool.finish()
    }

    #[test]
    fn an_upload_is_the_same_in_whatever_pieces_it_comes() {
        let file = b"one\r\n--\r\n-x\r\n--y two\r\n\r\n--";
        let body = body(file);
        let whole = spooled(&body, body.len(), u64::MAX);
        let upload = whole.file.as_ref().expect("a file");
        assert_eq!((upload.filename.as_str(), upload.size), ("a.iso", file.len() as u64));
        assert_eq!(upload.beginning, file);
        assert_eq!(upload.checksums.keys().collect::<Vec<_>>(), ["md5", "sha256"]);
        assert_eq!(
            whole.params.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["content", "checksum-algorithm"]
        );
        for piece in 1..body.len() {
            assert_eq!(spooled(&body, piece, u64::MAX), whole, "{piece}");
        }
    }

    #[test]
    fn only_the_beginning_of_a_large_file_is_kept() {
        let file = vec![7; KEPT * 3];
        let upload = spooled(&body(&file), 65_536, u64::MAX).file.expect("a file");
        assert_eq!((upload.size, upload.beginning.len()), (file.len() as u64, KEPT));
        assert_eq!(upload.checksums["sha256"], {
            let mut sum = Checksum::of("sha256");
            sum.update(&file);
            sum.finish()
        });
    }

    #[test]
    fn a_file_beyond_the_room_is_refused_as_a_full_disk_does() {
        assert_eq!(spooled(&body(&[0; 100]), 7, 100).refusal(), None);
        let refused = spooled(&body(&[0; 101]), 7, 100).refusal().expect("refused");
        assert_eq!(refused.status, 500);
        let reason = refused.reason.expect("a reason");
        assert_eq!(reason, "write to temporary file failed - No space left on device");
    }

    #[test]
    fn what_never_comes_to_a_file_is_not_kept() {
        let mut spool = Spool::new("x", None, u64::MAX);
        for _ in 0..600 {
            spool.take(&[b'a'; 1024]);
        }
        assert!(spool.has_failed());
        assert_eq!(spool.finish().refusal().map(|answer| answer.status), Some(0));
    }
}
