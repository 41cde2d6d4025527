//! Whether a store can keep two runs apart.
//!
//! Some servers that speak S3 accept a conditional write and ignore its condition. Nothing would be noticed until two
//! runs met, so they are asked before anything depends on it.

use thiserror::Error;

use crate::{Fault, Objects, Put, Version};

/// Why a store is not fit to be shared.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unfit {
    /// It could not be asked.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// It wrote over an object that was to be created.
    #[error("it created an object twice, where the second writer should have been refused")]
    CreatesTwice,
    /// It wrote over an object that somebody else had changed.
    #[error("it replaced an object that had changed, where the writer should have been refused")]
    ReplacesChanged,
    /// It refused to replace an object that had not changed.
    #[error("it did not replace an object that had not changed")]
    NeverReplaces,
}

/// Asks a store, with an object of a name that nobody else uses.
pub async fn probe(objects: &dyn Objects, nonce: &str) -> Result<(), Unfit> {
    let key = format!("probe/{nonce}");
    let judged = judge(objects, &key).await;
    let removed = objects.delete(&key).await;
    judged?;
    Ok(removed?)
}

async fn judge(objects: &dyn Objects, key: &str) -> Result<(), Unfit> {
    let Put::Done(first) = objects.create(key, b"first").await? else { return Err(Unfit::CreatesTwice) };
    if objects.create(key, b"second").await? != Put::Beaten {
        return Err(Unfit::CreatesTwice);
    }
    // Not every server names the version when it writes.
    let first = match first {
        Version::UNNAMED => objects.get(key).await?.map_or(Version::UNNAMED, |it| it.version),
        first => first,
    };
    if objects.replace(key, b"third", &first).await? == Put::Beaten {
        return Err(Unfit::NeverReplaces);
    }
    match objects.replace(key, b"fourth", &first).await? {
        Put::Beaten => Ok(()),
        Put::Done(_) => Err(Unfit::ReplacesChanged),
    }
}
