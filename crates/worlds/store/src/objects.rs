//! The port: what a store can do.

use std::fmt;

use futures_util::future::BoxFuture;
use sha2::{Digest, Sha256};
use thiserror::Error;

/// Most bytes of one object that are read. A journal is the longest, and is cut before that.
pub const MAX_BYTES: usize = 64 * 1024 * 1024;

/// What an act on a store comes to.
pub type Answer<'a, T> = BoxFuture<'a, Result<T, Fault>>;

/// A place that keeps small objects by their keys, each whole or not at all.
pub trait Objects: Send + Sync + fmt::Debug {
    /// Returns an object, if there is one.
    fn get<'a>(&'a self, key: &'a str) -> Answer<'a, Option<Object>>;

    /// Keeps an object under a key that nobody has taken.
    fn create<'a>(&'a self, key: &'a str, bytes: &'a [u8]) -> Answer<'a, Put>;

    /// Replaces an object that is still the one that was read.
    fn replace<'a>(&'a self, key: &'a str, bytes: &'a [u8], unchanged: &'a Version) -> Answer<'a, Put>;

    /// Returns the names directly below a prefix that ends with a slash, in order.
    fn list<'a>(&'a self, prefix: &'a str) -> Answer<'a, Vec<String>>;

    /// Removes an object. One that is not there is no mistake.
    fn delete<'a>(&'a self, key: &'a str) -> Answer<'a, ()>;
}

/// An object that was read.
#[derive(Clone, PartialEq, Eq)]
pub struct Object {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Which one of those that were ever kept under its key it is.
    pub version: Version,
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Object({} bytes)", self.bytes.len())
    }
}

/// Tells an object from all others that were ever kept under its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// What S3 and Azure, and our directories, call it.
    pub(crate) tag: Option<String>,
    /// What Google calls it.
    pub(crate) number: Option<String>,
}

impl Version {
    /// That of an object whose server does not say.
    pub(crate) const UNNAMED: Self = Self { tag: None, number: None };
}

/// What became of an object that was to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Put {
    /// It is kept.
    Done(Version),
    /// Somebody else was first, and theirs is kept.
    Beaten,
}

/// Why a store did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Fault {
    /// It was not reached, or gave no answer: whether something was kept is not known.
    #[error("{0}")]
    NotReached(String),
    /// It does not know who asks, or does not let them.
    #[error("{0}")]
    Denied(String),
    /// It answered, and did not do it.
    #[error("{0}")]
    Refused(String),
    /// An object is longer than is read.
    #[error("`{0}` has more than {limit} MiB", limit = MAX_BYTES >> 20)]
    TooLarge(String),
}

/// Returns the SHA-256 of some bytes, in hexadecimal.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Creates an object whose bytes nobody else can have. An answer that was lost is found again by looking: what was
/// kept under the key is either ours or somebody else's.
pub(crate) async fn create(objects: &dyn Objects, key: &str, bytes: &[u8]) -> Result<Put, Fault> {
    settle(objects, key, bytes, objects.create(key, bytes).await).await
}

/// Replaces an object by one whose bytes nobody else can have.
pub(crate) async fn replace(
    objects: &dyn Objects,
    key: &str,
    bytes: &[u8],
    unchanged: &Version,
) -> Result<Put, Fault> {
    settle(objects, key, bytes, objects.replace(key, bytes, unchanged).await).await
}

async fn settle(
    objects: &dyn Objects,
    key: &str,
    bytes: &[u8],
    put: Result<Put, Fault>,
) -> Result<Put, Fault> {
    match put {
        Ok(Put::Done(version)) if version != Version::UNNAMED => Ok(Put::Done(version)),
        // Not every server names the version when it writes; and a client that sent a request twice is beaten by
        // itself.
        Ok(_) => match objects.get(key).await? {
            Some(there) if there.bytes == bytes => Ok(Put::Done(there.version)),
            _ => Ok(Put::Beaten),
        },
        Err(Fault::NotReached(why)) => match objects.get(key).await? {
            Some(there) if there.bytes == bytes => Ok(Put::Done(there.version)),
            _ => Err(Fault::NotReached(why)),
        },
        Err(fault) => Err(fault),
    }
}
