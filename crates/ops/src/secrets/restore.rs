//! `ichor secrets restore`: secrets that got lost come back out of a generation of the store.
//!
//! 1. `choose`: the generation that was asked for, or else the newest one whose secrets are whole;
//! 2. [`bundle::present`]: secrets that are whole stay, unless somebody asked for others of the same cluster, or said
//!    that those of another one are to be replaced;
//! 3. [`Store::supplant`]: the bundle comes back with the record beside it, and what was there stays under another name.

use std::path::PathBuf;

use ichor_model::{Code, Finding};

use crate::{
    Halt, Site, System,
    bundle::{self, Present},
    halt::only,
    past::{Past, Secrets, Sound},
    shared::Fingerprint,
    store::{NextRecord, Store},
};

/// What is wanted back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Wanted {
    /// The number of a generation; absent: the newest that has whole secrets.
    pub generation: Option<u64>,
    /// Whether secrets that may be good are replaced by those of another cluster.
    pub replace: bool,
}

/// What came back.
#[derive(Debug)]
pub struct Restored<'p> {
    /// The generation that it came out of.
    pub past: &'p Past,
    /// The cluster's id for discovery.
    pub cluster_id: String,
    /// Where the bundle is.
    pub path: PathBuf,
    /// Whether nothing had to be done.
    pub was_there: bool,
    /// What was there before, under the names that it has now.
    pub aside: Vec<PathBuf>,
}

/// Brings secrets back out of one of the generations that there are, the newest first.
pub fn restore<'p>(
    system: &dyn System,
    site: Site<'_>,
    all: &'p [Past],
    wanted: Wanted,
) -> Result<Restored<'p>, Halt> {
    let store = Store::of(site).map_err(|finding| Halt::invalid(only(*finding)))?;
    store.sweep(system, None)?;
    let (past, sound) = choose(all, wanted.generation, &store)?;
    let present = bundle::present(system, &store).map_err(|finding| Halt::invalid(only(*finding)))?;
    let cluster_id = sound.fingerprint.cluster_id.clone();
    let restored = |was_there, aside| {
        let path = store.kept(system).to_owned();
        Ok(Restored { past, cluster_id, path, was_there, aside })
    };
    let next = match &present {
        Present::Sound(bundle) if Fingerprint::of(bundle) == sound.fingerprint => {
            // Secrets that are whole may be newer than any generation: nobody goes back without saying to which.
            if wanted.generation.is_none() || is_kept(system, &store, &sound.bundle) {
                return restored(true, Vec::new());
            }
            NextRecord::Stays
        }
        Present::Sound(_) | Present::Closed if !wanted.replace => {
            return Err(Halt::refused(only(another(&store, past, sound, &present))));
        }
        Present::Sound(_) | Present::Closed => NextRecord::Goes,
        Present::Nothing | Present::Damaged => NextRecord::Stays,
    };
    let next = sound.record.clone().map_or(next, NextRecord::Becomes);
    let aside = store.supplant(system, &sound.bundle, next)?;
    restored(false, aside)
}

fn is_kept(system: &dyn System, store: &Store, bytes: &[u8]) -> bool {
    let read = system.read(store.bundle(), bytes.len(), crate::system::Links::Follow);
    read.is_ok_and(|contents| contents.bytes.as_slice() == bytes)
}

/// Returns the generation that is wanted and its secrets, or says what there is.
fn choose<'p>(all: &'p [Past], wanted: Option<u64>, store: &Store) -> Result<(&'p Past, &'p Sound), Halt> {
    let mut usable = all.iter().filter_map(|past| Some((past, past.secrets.sound()?)));
    match wanted {
        None => usable.next(),
        Some(number) => usable.find(|(past, _)| past.number == number),
    }
    .ok_or_else(|| Halt::invalid(only(none(all, wanted, store))))
}

fn none(all: &[Past], wanted: Option<u64>, store: &Store) -> Finding {
    let message = match wanted {
        None => "no generation has secrets that can be brought back".to_owned(),
        Some(number) if all.iter().any(|past| past.number == number) => {
            format!("generation {number} has no secrets that can be brought back")
        }
        Some(number) => format!("there is no generation {number}"),
    };
    let finding = Finding::error(Code::NO_GENERATION, None, message);
    let finding = all.iter().fold(finding, |finding, past| finding.because(past.says()));
    if all.iter().any(|past| past.secrets.sound().is_some()) {
        return finding
            .remedy("choose another one, or the newest whose secrets are whole:\n    ichor secrets restore");
    }
    if let Some(closed) = all.iter().find(|past| matches!(past.secrets, Secrets::Closed)) {
        return finding.remedy(closed.way_back());
    }
    let place = match store.shared() {
        Some(address) => address.to_string(),
        None => store.directory().display().to_string(),
    };
    finding.because(format!("looked into `{place}`")).remedy(
        "take them from a backup, from whoever made the cluster, or from the machine config of a control plane:\n    ichor secrets import FILE",
    )
}

fn another(store: &Store, past: &Past, sound: &Sound, present: &Present) -> Finding {
    let path = store.bundle().display();
    let number = past.number;
    let finding = match present {
        Present::Sound(bundle) => {
            let message = format!("the secrets that are here are whole, and generation {number} has others");
            Finding::error(Code::SECRETS_EXIST, None, message).because(format!(
                "those in `{path}` are of the cluster with the id `{}`, the others of `{}`",
                bundle.cluster_id, sound.fingerprint.cluster_id
            ))
        }
        _ => {
            let message =
                format!("no key of yours opens the secrets that are here, and they may be whole: `{path}`");
            Finding::error(Code::SECRETS_EXIST, None, message)
        }
    };
    finding.because("machines accept nothing that is made from other secrets than theirs").remedy(format!(
        "if the machines know those of generation {number}, say so; what is here stays beside them:\n    ichor secrets restore {number} --replace"
    ))
}
