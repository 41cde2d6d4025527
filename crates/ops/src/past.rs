//! What was kept before: generations of the store that still have the cluster's secrets.
//!
//! Files get lost, emptied and damaged, and of a store in a directory it is the files that count. Its generations have
//! what was in them, so whoever misses something is told which one has it. Those of a bucket are asked for by
//! [`crate::keep`]; its mirror has none.

use std::path::Path;

use ichor_model::{Code, Finding, Findings};
use ichor_store::generation::{self, Generation, Kept, PREFIX};

use crate::{
    Halt, System,
    bundle::{self, Present, Worth},
    shared::Fingerprint,
    store::{Store, moved_away},
    system::Links,
};

/// Most names that are looked at where generations are; there are ten.
const MAX_NAMES: usize = 1000;
/// How secrets are brought back.
const RESTORE: &str = "bring them back:\n    ichor secrets restore";

const RESTORE_WITH_KEY: &str = "no key of yours opens them; get one that does, name its file with `SOPS_AGE_KEY_FILE`, and bring them back:\n    ichor secrets restore";

/// A generation, as far as the cluster's secrets are concerned.
#[derive(Debug)]
pub struct Past {
    /// Its number.
    pub number: u64,
    /// Who wrote it, and when; nothing, if it is not what was written.
    pub written: Option<Written>,
    /// What it has of the secrets.
    pub secrets: Secrets,
}

/// Who wrote a generation, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// Who.
    pub by: String,
    /// When.
    pub at: String,
}

/// What a generation has of the cluster's secrets.
pub enum Secrets {
    /// None.
    None,
    /// All of them.
    Sound(Box<Sound>),
    /// Some that no key here opens.
    Closed,
    /// Something that is no bundle.
    Damaged,
}

/// A bundle that can be used.
pub struct Sound {
    /// Whose it is.
    pub fingerprint: Fingerprint,
    /// Its file, as it was.
    pub bundle: Vec<u8>,
    /// The record beside it, as it was.
    pub record: Option<Vec<u8>>,
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.words())
    }
}

impl Secrets {
    /// Returns a word for people and programs.
    pub const fn words(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Sound(_) => "whole",
            Self::Closed => "closed",
            Self::Damaged => "damaged",
        }
    }

    /// Returns the bundle, if it can be used.
    pub fn sound(&self) -> Option<&Sound> {
        match self {
            Self::Sound(sound) => Some(sound),
            Self::None | Self::Closed | Self::Damaged => None,
        }
    }
}

impl Past {
    /// Looks for the secrets of a cluster in a generation.
    pub fn of(system: &dyn System, store: &Store, (number, kept): Kept) -> Self {
        let Ok(generation) = kept else { return Self { number, written: None, secrets: Secrets::Damaged } };
        let secrets = secrets_of(system, store, &generation);
        Self { number, written: Some(Written { by: generation.by, at: generation.at }), secrets }
    }

    /// Names the generation, who wrote it and when.
    pub fn named(&self) -> String {
        match &self.written {
            Some(Written { by, at }) => {
                format!("generation {}, which `{by}` wrote at {at},", self.number)
            }
            None => format!("generation {}", self.number),
        }
    }

    /// Says how its secrets are brought back; a command stands on a line of its own.
    pub const fn way_back(&self) -> &'static str {
        match self.secrets {
            Secrets::Closed => RESTORE_WITH_KEY,
            _ => RESTORE,
        }
    }

    /// Says what it has.
    pub fn says(&self) -> String {
        let what = match (&self.written, &self.secrets) {
            (None, _) => "is not what was written",
            (_, Secrets::None) => "has no secrets",
            (_, Secrets::Sound(_)) => "has whole secrets",
            (_, Secrets::Closed) => "has secrets that no key of yours opens",
            (_, Secrets::Damaged) => "has damaged secrets",
        };
        format!("{} {what}", self.named())
    }
}

fn secrets_of(system: &dyn System, store: &Store, generation: &Generation) -> Secrets {
    let name = store.own_name();
    let Some(bytes) = generation.files.get(name) else { return Secrets::None };
    match bundle::judge(system, bytes, name) {
        Worth::Closed => Secrets::Closed,
        Worth::Damaged => Secrets::Damaged,
        Worth::Sound(bundle) => {
            let record = store.record();
            let record = record.file_name().and_then(|name| generation.files.get(name.to_str()?));
            Secrets::Sound(Box::new(Sound {
                fingerprint: Fingerprint::of(&bundle),
                bundle: bytes.clone(),
                record: record.cloned(),
            }))
        }
    }
}

/// Returns the newest generation of a store in a directory that has the cluster's secrets: whole ones, or else some that
/// no key here opens.
pub fn newest(system: &dyn System, store: &Store) -> Option<Past> {
    if store.shared().is_some() {
        return None;
    }
    let directory = store.file(PREFIX);
    let names = system.names(&directory, MAX_NAMES).unwrap_or_default();
    let mut numbers: Vec<u64> =
        names.iter().filter_map(|name| generation::number_of(name.to_str()?)).collect();
    numbers.sort_unstable();
    let all =
        numbers.into_iter().rev().filter_map(|number| Some((number, read(system, &directory, number)?)));
    let mut closed = None;
    for kept in generation::linked(all.collect()) {
        let past = Past::of(system, store, kept);
        match past.secrets {
            Secrets::Sound(_) => return Some(past),
            Secrets::Closed => closed = closed.or(Some(past)),
            Secrets::None | Secrets::Damaged => {}
        }
    }
    closed
}

fn read(system: &dyn System, directory: &Path, number: u64) -> Option<Result<Generation, generation::Flaw>> {
    let path = directory.join(format!("{number:08}.json"));
    let contents = system.read(&path, ichor_store::MAX_BYTES, Links::Refuse).ok()?;
    Some(generation::parse(number, &contents.bytes))
}

/// Says that there is no bundle, and which generation has one.
pub fn missing(system: &dyn System, store: &Store) -> Finding {
    let looked = format!("looked for `{}`", store.kept(system).display());
    match newest(system, store) {
        None => Finding::error(Code::NO_SECRETS, None, "the cluster has no secrets yet")
            .because(looked)
            .remedy(
                "make them:\n    ichor secrets new\nor import those of a cluster that runs:\n    ichor secrets import FILE",
            ),
        Some(past) => Finding::error(Code::NO_SECRETS, None, "the cluster's secrets are gone")
            .because(looked)
            .because(format!("{} has them", past.named()))
            .remedy(past.way_back()),
    }
}

/// Says that secrets would be made in the place of those that got lost.
pub fn in_the_way(system: &dyn System, store: &Store) -> Option<Finding> {
    let what = match bundle::present(system, store) {
        Ok(Present::Nothing) => "are gone",
        Ok(Present::Damaged) => "are damaged",
        Ok(Present::Sound(_) | Present::Closed) | Err(_) => return None,
    };
    let past = newest(system, store)?;
    let message = format!("the cluster's secrets {what}, and can be brought back");
    Some(
        Finding::error(Code::SECRETS_EXIST, None, message)
            .because(format!("{} has them, in `{}`", past.named(), store.file(PREFIX).display()))
            .because("machines that run with them accept nothing that is made from others")
            .remedy(format!("{}\n{}", past.way_back(), moved_away(store.directory()))),
    )
}

/// Adds to what is wrong with a bundle which generation has a whole one.
pub fn lead_back(system: &dyn System, store: &Store, halt: Halt) -> Halt {
    if !matches!(bundle::present(system, store), Ok(Present::Damaged)) {
        return halt;
    }
    let Some(past) = newest(system, store) else { return halt };
    let mut findings: Vec<Finding> = halt.findings.iter().cloned().collect();
    if let Some(first) = findings.first_mut() {
        let other = first.remedy.take().map(|remedy| format!("\nor {remedy}")).unwrap_or_default();
        first.notes.push(format!("{} has the cluster's secrets", past.named()));
        first.remedy = Some(format!("{}{other}", past.way_back()));
    }
    Halt { findings: Findings::from_iter(findings), ..halt }
}
