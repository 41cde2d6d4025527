//! Everything that must not be lost, as one object for each time that it changed.
//!
//! A generation holds all files. It has a number, a checksum of itself, and that of the generation before it, and is
//! only ever created: whoever comes second is refused. So there is the old generation or the new one, whenever a run
//! ends, and nobody's change is lost. The last [`KEPT`] are kept.
//!
//! Whoever has seen a generation ([`Seen`]) is not shown an older one, nor another of the same number.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    Fault, Objects, Put,
    objects::{self, digest},
};

/// How many generations are kept.
pub const KEPT: u64 = 10;
/// Most bytes of all files together.
pub const MAX_BYTES: usize = 16 * 1024 * 1024;
/// Where generations are, below a store.
pub const PREFIX: &str = "generations/";
/// The number of the language.
const SCHEMA: u32 = 1;

/// Files by their names.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Where a chain ended when something was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// The number of its last link.
    pub number: u64,
    /// The SHA-256 of its bytes.
    pub sha256: String,
}

/// A generation that was read or written.
#[derive(Clone, PartialEq, Eq)]
pub struct Generation {
    /// Which one it is.
    pub here: Seen,
    /// The one before it.
    pub before: Option<Seen>,
    /// When it was written, for people.
    pub at: String,
    /// Who wrote it, for people.
    pub by: String,
    /// Where the audit trail ended.
    pub audit: Option<Seen>,
    /// The files.
    pub files: Files,
}

impl std::fmt::Debug for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Generation({}, {:?})", self.here.number, self.files.keys().collect::<Vec<_>>())
    }
}

/// What stands in a generation, below its checksum.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    schema: u32,
    number: u64,
    before: Option<Seen>,
    at: String,
    by: String,
    audit: Option<Seen>,
    files: BTreeMap<String, String>,
}

/// Why generations cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Flaw {
    /// The store did not do it.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// An object is not what was written.
    #[error("`{key}` {why}")]
    Damaged {
        /// Its key.
        key: String,
        /// What is wrong with it.
        why: String,
    },
    /// Less is there than was seen before.
    #[error("{0}")]
    Replayed(String),
    /// Somebody else wrote the next generation.
    #[error("generation {0} was written by somebody else meanwhile")]
    Overtaken(u64),
    /// There is more than is kept.
    #[error("the files have more than {limit} MiB", limit = MAX_BYTES >> 20)]
    TooLarge,
}

/// What is wrong with a generation in whose place there was another one.
const ANOTHER: &str = "is another than the one after it names";

fn key(number: u64) -> String {
    format!("{PREFIX}{number:08}.json")
}

fn damaged(number: u64, why: &str) -> Flaw {
    Flaw::Damaged { key: key(number), why: why.to_owned() }
}

fn rewritten(number: u64) -> Flaw {
    Flaw::Replayed(format!("its generation {number} is another than was seen before"))
}

/// Returns the numbers of the objects below a prefix, in order. Names that are none of ours are left alone.
pub(crate) async fn numbers(objects: &dyn Objects, prefix: &str) -> Result<Vec<u64>, Fault> {
    let names = objects.list(prefix).await?;
    let mut numbers: Vec<u64> = names.iter().filter_map(|name| number_of(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Returns the number in the name of an object; nothing, if it is none of ours.
pub fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".json").filter(|digits| digits.len() == 8)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?.filter(|it| *it > 0)
}

async fn read(objects: &dyn Objects, number: u64) -> Result<Option<Generation>, Flaw> {
    let Some(object) = objects.get(&key(number)).await? else { return Ok(None) };
    parse(number, &object.bytes).map(Some)
}

/// Reads the bytes that are kept under a number.
pub fn parse(number: u64, bytes: &[u8]) -> Result<Generation, Flaw> {
    let newline = bytes.iter().position(|byte| *byte == b'\n');
    let (sum, body) = bytes.split_at(newline.unwrap_or(0));
    if sum != digest(body).as_bytes() {
        return Err(damaged(number, "does not have its own checksum"));
    }
    let body: Body =
        serde_json::from_slice(body).map_err(|_| damaged(number, "is none of this ichor's language"))?;
    if body.schema != SCHEMA || body.number != number {
        return Err(damaged(number, "is of another number, or of another language"));
    }
    let mut files = Files::new();
    for (name, text) in body.files {
        if !is_name(&name) {
            return Err(damaged(number, "has a file whose name is none"));
        }
        let bytes =
            BASE64_STANDARD.decode(text).map_err(|_| damaged(number, "has a file that is not base64"))?;
        files.insert(name, bytes);
    }
    let here = Seen { number, sha256: digest(bytes) };
    Ok(Generation { here, before: body.before, at: body.at, by: body.by, audit: body.audit, files })
}

/// One of the generations that are there, which may not be what was written.
pub type Kept = (u64, Result<Generation, Flaw>);

/// Returns all generations that are there, the newest first.
pub async fn all(objects: &dyn Objects) -> Result<Vec<Kept>, Fault> {
    let mut all = Vec::new();
    for number in numbers(objects, PREFIX).await?.into_iter().rev() {
        match read(objects, number).await {
            // One that is removed at this moment is older than the last ten.
            Ok(None) => {}
            Ok(Some(generation)) => all.push((number, Ok(generation))),
            Err(Flaw::Fault(fault)) => return Err(fault),
            Err(flaw) => all.push((number, Err(flaw))),
        }
    }
    Ok(linked(all))
}

/// Finds generations, the newest first, that are others than the ones after them name.
pub fn linked(mut all: Vec<Kept>) -> Vec<Kept> {
    let mut named: Option<Seen> = None;
    for (number, kept) in &mut all {
        let expected = named.take().filter(|named| named.number == *number);
        let Ok(generation) = kept else { continue };
        if expected.is_none_or(|expected| expected == generation.here) {
            named.clone_from(&generation.before);
        } else {
            *kept = Err(damaged(*number, ANOTHER));
        }
    }
    all
}

/// Files go into a directory of ours under these names.
fn is_name(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    !name.is_empty() && name.len() <= 64 && !name.starts_with('.') && name.bytes().all(is_plain)
}

/// Returns the newest generation, whose history must lead to what was seen before.
pub async fn newest(objects: &dyn Objects, seen: Option<&Seen>) -> Result<Option<Generation>, Flaw> {
    let numbers = numbers(objects, PREFIX).await?;
    let Some(last) = numbers.last().copied() else {
        return match seen {
            None => Ok(None),
            Some(seen) => {
                Err(Flaw::Replayed(format!("it is empty, and had generation {} before", seen.number)))
            }
        };
    };
    if let Some(seen) = seen.filter(|seen| seen.number > last) {
        return Err(Flaw::Replayed(format!(
            "its newest generation is {last}, and generation {} was seen before",
            seen.number
        )));
    }
    let Some(newest) = read(objects, last).await? else {
        return Err(damaged(last, "went away while it was read"));
    };
    follow(objects, &newest, &numbers, seen).await?;
    Ok(Some(newest))
}

/// Returns the newest generation that can be read and has another key than the one that cannot.
pub async fn newest_but(objects: &dyn Objects, damaged: &str) -> Option<Generation> {
    let numbers = numbers(objects, PREFIX).await.ok()?;
    for number in numbers.into_iter().rev().filter(|number| key(*number) != damaged) {
        if let Ok(Some(generation)) = read(objects, number).await {
            return Some(generation);
        }
    }
    None
}

/// Goes back from a generation, as far as there are others, and compares them with what was seen.
async fn follow(
    objects: &dyn Objects,
    newest: &Generation,
    numbers: &[u64],
    seen: Option<&Seen>,
) -> Result<(), Flaw> {
    let mut expected = newest.here.clone();
    let mut at = newest.clone();
    loop {
        let number = expected.number;
        if at.here != expected {
            return Err(damaged(number, ANOTHER));
        }
        if let Some(seen) = seen.filter(|seen| seen.number == number) {
            // What led to one that was seen was looked at then.
            return if *seen == expected { Ok(()) } else { Err(rewritten(number)) };
        }
        expected = match at.before {
            None if number == 1 => return Ok(()),
            Some(before) if before.number == number - 1 => before,
            _ => return Err(damaged(number, "does not name the one before it")),
        };
        if !numbers.contains(&expected.number) {
            // Of one that is gone its checksum is left.
            let is_another = seen.is_some_and(|seen| seen.number == expected.number && *seen != expected);
            return if is_another { Err(rewritten(expected.number)) } else { Ok(()) };
        }
        // One that is removed at this moment is older than the last ten.
        let Some(older) = read(objects, expected.number).await? else { return Ok(()) };
        at = older;
    }
}

/// What is to be kept.
#[derive(Clone)]
pub struct Draft<'a> {
    /// The files.
    pub files: &'a Files,
    /// Where the audit trail ends.
    pub audit: Option<&'a Seen>,
    /// When, for people.
    pub at: &'a str,
    /// Who, for people.
    pub by: &'a str,
}

/// Writes the generation after the one that was read. It is refused if somebody else wrote one meanwhile.
pub async fn commit(
    objects: &dyn Objects,
    after: Option<&Generation>,
    draft: Draft<'_>,
) -> Result<Generation, Flaw> {
    if draft.files.values().map(Vec::len).sum::<usize>() > MAX_BYTES {
        return Err(Flaw::TooLarge);
    }
    let before = after.map(|generation| generation.here.clone());
    let number = before.as_ref().map_or(1, |before| before.number + 1);
    let files =
        draft.files.iter().map(|(name, bytes)| (name.clone(), BASE64_STANDARD.encode(bytes))).collect();
    let (at, by, audit) = (draft.at.to_owned(), draft.by.to_owned(), draft.audit.cloned());
    let body = Body {
        schema: SCHEMA,
        number,
        before: before.clone(),
        at: at.clone(),
        by: by.clone(),
        audit: audit.clone(),
        files,
    };
    let body = format!("\n{}\n", serde_json::to_string(&body).unwrap_or_default());
    let bytes = format!("{}{body}", digest(body.as_bytes())).into_bytes();
    if objects::create(objects, &key(number), &bytes).await? == Put::Beaten {
        return Err(Flaw::Overtaken(number));
    }
    prune(objects, number).await;
    let here = Seen { number, sha256: digest(&bytes) };
    Ok(Generation { here, before, at, by, audit, files: draft.files.clone() })
}

/// Removes what is older than the last ten. What cannot be removed now is removed next time.
async fn prune(objects: &dyn Objects, newest: u64) {
    let Ok(numbers) = numbers(objects, PREFIX).await else { return };
    for number in numbers.into_iter().filter(|number| number + KEPT <= newest) {
        let _ = objects.delete(&key(number)).await;
    }
}
