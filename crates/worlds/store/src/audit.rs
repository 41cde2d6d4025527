//! The audit trail: one entry for every run that changed something.
//!
//! Entries are objects that are only ever created, numbered from one. Each has the SHA-256 of the one before it, so
//! that none can be changed or taken out without breaking what follows. That the newest are missing is known from the
//! newest generation, which says where the trail ended ([`astray`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    Fault, Objects, Put,
    generation::{Seen, numbers},
    objects::{self, digest},
};

const PREFIX: &str = "audit/";
const SCHEMA: u32 = 1;
/// How often somebody else may write an entry first.
const TRIES: usize = 20;

/// What a run did. No field holds a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deed {
    /// When it ended.
    pub at: String,
    /// The person and the machine, as in `ann@laptop`.
    pub who: String,
    /// The verb.
    pub verb: String,
    /// The cluster.
    pub cluster: String,
    /// The run.
    pub run: String,
    /// The SHA-256 of the plan that it carried out, if it had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// How it ended.
    pub outcome: String,
    /// How many steps ended in which way.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u64>,
}

/// An entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The number of the language.
    schema: u32,
    /// Its number.
    pub number: u64,
    /// The SHA-256 of the entry before it; the first has none.
    pub before: Option<String>,
    /// What the run did.
    #[serde(flatten)]
    pub deed: Deed,
}

/// Why nothing was added.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotAdded {
    /// The store did not do it.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The newest entry cannot be read, and nothing can follow it.
    #[error("entry {0} cannot be read")]
    Illegible(u64),
    /// Others were first again and again.
    #[error("others add entries again and again")]
    Busy,
}

/// Where a trail is broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Break {
    /// The first entry that may be another than the one that was written, or is missing.
    pub first: u64,
    /// The last of them.
    pub last: u64,
    /// The last entry before them that the one after it vouches for; 0 if there is none.
    pub sound: u64,
    /// What is wrong.
    pub why: String,
}

impl Break {
    /// Nothing can be known of what these entries said of the one before them.
    fn lost(first: u64, last: u64, why: String) -> Self {
        Self { first, last, sound: first.saturating_sub(2), why }
    }

    fn missing(first: u64, last: u64) -> Self {
        let why = match last.saturating_sub(first) {
            0 => format!("entry {first} is missing"),
            1 => format!("entries {first} and {last} are missing"),
            _ => format!("entries {first} to {last} are missing"),
        };
        Self::lost(first, last, why)
    }

    /// The entry is not the one at which the trail ended.
    fn unanchored(number: u64) -> Self {
        let why =
            format!("entry {number} is another than the one that the newest generation of the store names");
        Self { first: number, last: number, sound: number.saturating_sub(1), why }
    }
}

/// A trail as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trail {
    /// The entries that could be read, in order.
    pub entries: Vec<Entry>,
    /// Where it ends.
    pub end: Option<Seen>,
    /// The first place where it is broken.
    pub broken: Option<Break>,
}

fn key(number: u64) -> String {
    format!("{PREFIX}{number:08}.json")
}

/// Returns the keys of some entries, for people.
pub fn keys(first: u64, last: u64) -> String {
    if first == last { key(first) } else { format!("{}` to `{}", key(first), key(last)) }
}

async fn last(objects: &dyn Objects) -> Result<u64, Fault> {
    Ok(numbers(objects, PREFIX).await?.last().copied().unwrap_or(0))
}

/// Returns where the trail ends.
pub async fn end(objects: &dyn Objects) -> Result<Option<Seen>, Fault> {
    let number = last(objects).await?;
    let there = if number == 0 { None } else { objects.get(&key(number)).await? };
    Ok(there.map(|there| Seen { number, sha256: digest(&there.bytes) }))
}

/// Adds an entry, and returns where the trail ends now. It comes after `anchor` also when that one is gone: no number is
/// given twice, and a gap stays one.
pub async fn add(objects: &dyn Objects, anchor: Option<&Seen>, deed: &Deed) -> Result<Seen, NotAdded> {
    for _ in 0..TRIES {
        let number = last(objects).await?.max(anchor.map_or(0, |anchor| anchor.number));
        let before = match number {
            0 => None,
            number => Some(sum(objects, number, anchor).await?),
        };
        let entry = Entry { schema: SCHEMA, number: number.saturating_add(1), before, deed: deed.clone() };
        let bytes = format!("{}\n", serde_json::to_string(&entry).unwrap_or_default()).into_bytes();
        if let Put::Done(_) = objects::create(objects, &key(entry.number), &bytes).await? {
            return Ok(Seen { number: entry.number, sha256: digest(&bytes) });
        }
    }
    Err(NotAdded::Busy)
}

/// Returns the checksum of an entry. That of the one at which the trail ended is known, whatever is there now.
async fn sum(objects: &dyn Objects, number: u64, anchor: Option<&Seen>) -> Result<String, NotAdded> {
    if let Some(anchor) = anchor.filter(|anchor| anchor.number == number) {
        return Ok(anchor.sha256.clone());
    }
    let there = objects.get(&key(number)).await?.ok_or(NotAdded::Illegible(number))?;
    Ok(digest(&there.bytes))
}

/// Says what is wrong with the entry at which the trail ended when the newest generation was written. What comes after
/// it is not looked at.
pub async fn astray(objects: &dyn Objects, anchor: &Seen) -> Result<Option<Break>, Fault> {
    if let Some(there) = objects.get(&key(anchor.number)).await? {
        return Ok((digest(&there.bytes) != anchor.sha256).then(|| Break::unanchored(anchor.number)));
    }
    let numbers = numbers(objects, PREFIX).await?;
    let left = numbers.into_iter().rfind(|number| *number < anchor.number).unwrap_or(0);
    Ok(Some(Break::missing(left + 1, anchor.number)))
}

/// Reads the whole trail, and finds the first place where it is broken. `anchor` is where it ended when the newest
/// generation was written.
pub async fn read(objects: &dyn Objects, anchor: Option<&Seen>) -> Result<Trail, Fault> {
    let mut trail = Trail::default();
    let mut last = 0;
    for number in numbers(objects, PREFIX).await? {
        let object = objects.get(&key(number)).await?;
        let bytes = object.as_ref().map(|object| object.bytes.as_slice());
        let (entry, wrong) = judge(number, bytes, trail.end.as_ref(), anchor);
        trail.entries.extend(entry);
        let missing = (number != last + 1).then(|| Break::missing(last + 1, number - 1));
        trail.broken = trail.broken.or(missing).or(wrong);
        trail.end = object.map(|object| Seen { number, sha256: digest(&object.bytes) });
        last = number;
    }
    if let Some(anchor) = anchor.filter(|anchor| anchor.number > last) {
        trail.broken = trail.broken.or_else(|| Some(Break::missing(last + 1, anchor.number)));
    }
    Ok(trail)
}

/// Reads one entry, and says what is wrong with it.
fn judge(
    number: u64,
    bytes: Option<&[u8]>,
    before: Option<&Seen>,
    anchor: Option<&Seen>,
) -> (Option<Entry>, Option<Break>) {
    let Some(bytes) = bytes else { return (None, Some(Break::missing(number, number))) };
    let Ok(entry) = serde_json::from_slice::<Entry>(bytes) else {
        return (None, Some(Break::lost(number, number, format!("entry {number} cannot be read"))));
    };
    let wrong = if entry.schema != SCHEMA || entry.number != number {
        let why = format!("what is kept as entry {number} is of another number, or of another language");
        Some(Break::lost(number, number, why))
    } else if entry.before.as_deref() != before.map(|seen| seen.sha256.as_str()) {
        Some(unlinked(number))
    } else if anchor.is_some_and(|anchor| anchor.number == number && anchor.sha256 != digest(bytes)) {
        Some(Break::unanchored(number))
    } else {
        None
    };
    (Some(entry), wrong)
}

/// The entry follows another one than the one that is there. Either of the two may be the one that was changed.
fn unlinked(number: u64) -> Break {
    if number == 1 {
        return Break::lost(1, 1, "entry 1 was changed: it names one before it".into());
    }
    let before = number - 1;
    let why = format!("entry {before} or {number} was changed: {number} follows another one than {before}");
    Break { first: before, last: number, sound: before - 1, why }
}
