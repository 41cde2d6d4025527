//! The machine that a verb runs on: time, randomness, environment and files, behind one trait.
//!
//! Verbs decide what is written and in which order; a [`System`] carries out one small act at a time. The
//! real one is in the command line; tests have one in memory that can stop after any act.

use std::{
    any::Any,
    ffi::OsString,
    fmt,
    io::{self, ErrorKind},
    path::{Path, PathBuf},
    time::Duration,
};

use ichor_machineconfig::{pki::Timestamp, secrets::SecretText};
use ichor_net::{Endpoint, Trust};
use ichor_port::{Request, Response, TransportError};
use zeroize::Zeroizing;

/// What a verb may ask of the machine it runs on.
pub trait System {
    /// Returns the time.
    fn now(&self) -> Timestamp;

    /// Fills a buffer with random bytes.
    fn random(&self, buffer: &mut [u8]) -> io::Result<()>;

    /// Returns an environment variable; an error if it is not text.
    fn variable(&self, name: &str) -> Result<Option<SecretText>, NotText>;

    /// Reads standard input, at most `limit` bytes.
    fn read_stdin(&self, limit: usize) -> Result<Zeroizing<Vec<u8>>, Unreadable>;

    /// Reads a regular file of at most `limit` bytes.
    fn read(&self, path: &Path, limit: usize, links: Links) -> Result<Contents, Unreadable>;

    /// Reads what a user named in a command: a regular file, or a pipe, of at most `limit` bytes.
    fn read_given(&self, path: &Path, limit: usize) -> Result<Contents, Unreadable>;

    /// Says what is of that name, itself and not what it links to; nothing, if there is nothing.
    fn entry(&self, path: &Path) -> io::Result<Option<Entry>>;

    /// Whether there is anything of that name, a dangling link too.
    fn exists(&self, path: &Path) -> io::Result<bool> {
        self.entry(path).map(|entry| entry.is_some())
    }

    /// Returns the names in a directory, at most `limit` of them.
    fn names(&self, path: &Path, limit: usize) -> io::Result<Vec<OsString>>;

    /// Returns the one true name of something that exists.
    fn canonical(&self, path: &Path) -> io::Result<PathBuf>;

    /// Makes a directory and those above it that are missing, for the owner alone.
    fn make_directory(&self, path: &Path) -> io::Result<()>;

    /// Closes a directory to everybody but its owner.
    fn close(&self, path: &Path) -> io::Result<()>;

    /// Keeps other runs out of a directory until the lock is dropped; nothing, if another run is in it.
    fn lock(&self, path: &Path) -> io::Result<Option<Lock>>;

    /// Says who keeps other runs out of a directory, where that can be told, as in `process 4711`.
    fn occupant(&self, _path: &Path) -> Option<String> {
        None
    }

    /// Writes a new file for the owner alone and waits until it is on disk. Fails if the name is taken.
    fn write_new(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Gives a file a second name. Fails if the name is taken.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Moves a file over another one, or to a new name.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Removes an empty directory.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;

    /// Runs a program by its words, without a shell, and returns what it prints.
    fn output_of(
        &self,
        words: &[String],
        place: &Path,
        limits: Limits,
    ) -> Result<Zeroizing<Vec<u8>>, NoOutput>;

    /// Sends a request to a server and waits for its answer.
    fn ask(
        &self,
        server: &Endpoint,
        trust: &Trust,
        request: Request,
        within: Duration,
    ) -> Result<Response, TransportError>;

    /// Waits until the names in a directory are on disk.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
}

/// How long a program may run, and how much it may print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How long it may run.
    pub deadline: Duration,
    /// Most bytes it may print.
    pub bytes: usize,
}

/// Why a program gave nothing. What it said is not repeated: it may be a secret.
#[derive(Debug)]
pub enum NoOutput {
    /// It could not be started.
    NotStarted(io::Error),
    /// It ended with this status; none if a signal ended it.
    Failed(Option<i32>),
    /// It ran for too long, and was ended.
    TooLong(Duration),
    /// It printed too much, and was ended.
    TooLarge(usize),
}

impl fmt::Display for NoOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted(error) => write!(f, "it could not be started: {error}"),
            Self::Failed(Some(status)) => write!(f, "it ended with status {status}"),
            Self::Failed(None) => f.write_str("a signal ended it"),
            Self::TooLong(deadline) => write!(f, "it had not ended after {} seconds", deadline.as_secs()),
            Self::TooLarge(bytes) => write!(f, "it printed more than {bytes} bytes"),
        }
    }
}

/// Keeps other runs out of a directory for as long as it lives.
pub struct Lock(#[expect(dead_code, reason = "it is kept, and never used")] Box<dyn Any>);

impl Lock {
    /// Keeps whatever it is that keeps others out.
    pub fn new(held: impl Any) -> Self {
        Self(Box::new(held))
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lock")
    }
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// A directory, and who else may do what in it.
    Directory(Openness),
    /// A symbolic link, wherever it leads.
    Link,
    /// A file, or anything else.
    Other,
}

/// Who else may do what in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Openness {
    /// Nobody else.
    Closed,
    /// Others may look.
    Readable,
    /// Others may add, remove and rename files.
    Writable,
}

/// An environment variable whose bytes are not text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotText;

/// Whether a symbolic link is followed when it is the last part of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Links {
    /// It is.
    Follow,
    /// It is not: the link is no file.
    Refuse,
}

/// A file that was read.
#[derive(Clone)]
pub struct Contents {
    /// Its bytes, which may be secret.
    pub bytes: Zeroizing<Vec<u8>>,
    /// Whether users other than the owner may read it.
    pub open_to_others: bool,
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Contents({} bytes)", self.bytes.len())
    }
}

/// Why a file was not read.
#[derive(Debug)]
pub enum Unreadable {
    /// The operating system refused, in its own words.
    Os(io::Error),
    /// It is something that may never end, or never begin.
    NotAFile(NotAFile),
    /// It has more bytes than are read.
    TooLarge(u64),
}

/// What something is that is no file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAFile {
    /// A directory.
    Directory,
    /// A symbolic link, where none is followed.
    Link,
    /// A named pipe.
    Pipe,
    /// A socket.
    Socket,
    /// A device.
    Device,
    /// Something else.
    Other,
}

impl NotAFile {
    /// Returns a few words for people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Directory => "a directory",
            Self::Link => "a symbolic link",
            Self::Pipe => "a pipe",
            Self::Socket => "a socket",
            Self::Device => "a device",
            Self::Other => "something else",
        }
    }
}

impl Unreadable {
    /// Whether nothing of that name exists.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Os(error) if is_absence(error))
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Os(error) => error.fmt(f),
            Self::NotAFile(kind) => write!(f, "it is {}, not a file", kind.words()),
            Self::TooLarge(bytes) => write!(f, "it has {bytes} bytes"),
        }
    }
}

/// Whether an error says that there is no such file.
pub fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}
