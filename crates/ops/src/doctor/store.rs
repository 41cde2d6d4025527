//! The store: whether it is reached and lets us in, keeps two runs apart, is as it was left, and who is at work.
//!
//! 1. [`examine`] reads the newest generation first: where that gets no answer, nothing else is asked;
//! 2. then all the rest at once, each within a time of its own.
//!
//! Nothing that is kept is changed. A bucket is given an object of our own, which is removed again: whether it keeps
//! two runs apart shows in no other way. Its mirror on this computer is brought up to date.

use std::future::Future;

use ichor_model::{Code, Finding, Severity};
use ichor_store::{
    audit::Trail,
    generation::Generation,
    lock::{Holder, Process},
};
use tokio::time::timeout;

use super::{Check, Group, WITHIN};
use crate::{
    Halt, System,
    keep::Keep,
    place,
    store::Store,
    system::{Entry, Openness},
};

const GENERATIONS: &str = "generations";
const LOCK: &str = "lock";
const AUDIT: &str = "audit";

/// What the store showed.
#[derive(Debug)]
pub struct Asked {
    /// What is to be said.
    pub checks: Vec<Check>,
    /// Whether what it keeps was read: only then is something missing that is not there.
    pub is_read: bool,
}

/// Says who asks, and whose processes can be seen.
#[derive(Clone, Copy)]
pub struct Visitor<'a> {
    /// A name that nobody else has.
    pub run: &'a str,
    /// Whether a process is known not to run any more.
    pub is_dead: &'a dyn Fn(&Process) -> bool,
}

/// Says that a store cannot even be asked. What the inventory says of it may hold what belongs into no output.
pub fn unasked(halt: &Halt) -> Asked {
    let check = Check::new("store", Group::Store, "it cannot be asked").with(all(halt));
    Asked { checks: [vec![check], nobody_tells()].concat(), is_read: false }
}

/// Asks a store.
pub async fn examine(system: &dyn System, store: &Store, keep: &mut Keep<'_>, visitor: Visitor<'_>) -> Asked {
    let check = directory(system, store);
    let late = keep.late(WITHIN);
    let read = match timeout(WITHIN, keep.newest()).await {
        Ok(Ok(newest)) => Ok(generations(newest)),
        Ok(Err(halt)) => Err(halt),
        Err(_) => Err(late),
    };
    let generations = match read {
        // Nobody who gives no answer is asked again.
        Err(halt) if all(&halt).iter().any(|finding| finding.code == Code::STORE_FAILED) => {
            let check = Check { says: format!("`{}`", keep.shown()), ..check }.with(all(&halt));
            return Asked { checks: [vec![check], nobody_tells()].concat(), is_read: false };
        }
        Err(halt) => Check::new(GENERATIONS, Group::Store, "what is kept cannot be used").with(all(&halt)),
        Ok(check) => check,
    };
    let is_read = generations.findings.is_empty();
    let (fit, holder, trail) = tokio::join!(
        within(keep, keep.ask_fit(visitor.run)),
        within(keep, keep.holder()),
        timeout(WITHIN, async {
            keep.prove_whole().await?;
            keep.read_trail().await
        }),
    );
    let check = if keep.is_shared() { bucket(keep, check, fit) } else { check };
    let trail = match trail {
        Ok(Ok(trail)) if is_read => audit(keep, &trail),
        Ok(Ok(_)) => {
            Check::unknown(AUDIT, Group::Store, "the newest generation does not tell where it ended")
        }
        Ok(Err(halt)) => Check::new(AUDIT, Group::Store, "it is not as it should be").with(all(&halt)),
        Err(_) => {
            Check::unknown(AUDIT, Group::Store, "it is long: `ichor log verify` takes its time over it")
        }
    };
    let holder = match holder {
        Ok(holder) => Check::new(LOCK, Group::Store, lock(holder.as_ref(), visitor)),
        Err(halt) => Check::new(LOCK, Group::Store, "it cannot be read").with(all(&halt)),
    };
    Asked { checks: vec![check, generations, holder, trail], is_read }
}

async fn within<T>(keep: &Keep<'_>, asked: impl Future<Output = Result<T, Halt>>) -> Result<T, Halt> {
    timeout(WITHIN, asked).await.unwrap_or_else(|_| Err(keep.late(WITHIN)))
}

fn nobody_tells() -> Vec<Check> {
    [GENERATIONS, LOCK, AUDIT].map(|id| Check::unknown(id, Group::Store, "the store does not tell")).into()
}

/// Looks at the directory of a store, or at the mirror of a bucket.
fn directory(system: &dyn System, store: &Store) -> Check {
    let root = store.root();
    let says = format!("`{}`", root.display());
    let check = |says: String| Check::new("store", Group::Store, says);
    match system.entry(root) {
        Ok(None) => check(format!("{says} is made by the first run")),
        Ok(Some(Entry::Directory(Openness::Closed))) => check(says),
        Ok(Some(Entry::Directory(_))) => {
            let message = format!("others can look into `{}`", root.display());
            check(says).with([Finding::warning(Code::OPEN_SECRETS, None, message)
                .because("secrets, plans and journals of clusters are kept there")
                .remedy(format!("keep it to yourself:\n    chmod 700 {}", place::quoted(root)))])
        }
        Ok(Some(_)) => {
            let message = format!("`{}` is no directory", root.display());
            check(says).with([Finding::error(Code::STORE_PLACE, None, message)
                .remedy("move it away, or name another directory: `store: {path: DIRECTORY}`")])
        }
        Err(error) => {
            let message = format!("`{}` cannot be looked at", root.display());
            check(says).with([Finding::error(Code::UNREADABLE, None, message)
                .because(error.to_string())
                .remedy("see to the directory and who may read it")])
        }
    }
}

/// What a bucket says to writing.
fn bucket(keep: &Keep<'_>, mirror: Check, fit: Result<(), Halt>) -> Check {
    let shown = keep.shown();
    match fit {
        Ok(()) => Check { says: format!("`{shown}` lets you in, and keeps two runs apart"), ..mirror },
        Err(halt) => {
            Check { says: format!("`{shown}` is read, and not to be written to"), ..mirror }.with(all(&halt))
        }
    }
}

fn generations(newest: Option<&Generation>) -> Check {
    let says = match newest {
        None => "there is none yet".to_owned(),
        Some(newest) => {
            format!("the newest is {}, written by `{}` at {}", newest.here.number, newest.by, newest.at)
        }
    };
    Check::new(GENERATIONS, Group::Store, says)
}

fn lock(holder: Option<&Holder>, visitor: Visitor<'_>) -> String {
    let Some(Holder { who, verb, since, process, .. }) = holder else {
        return "nobody is at work".to_owned();
    };
    if (visitor.is_dead)(process) {
        return format!("`{who}` did not finish `ichor {verb}` of {since}; the next run takes the lock over");
    }
    format!("`{who}` is at work with `ichor {verb}`, since {since}")
}

/// A trail that was changed in its middle keeps nobody from going on, and is worth a look.
fn audit(keep: &Keep<'_>, trail: &Trail) -> Check {
    let entries = match trail.entries.len() {
        0 => "there is no entry yet".to_owned(),
        1 => "1 entry".to_owned(),
        count => format!("{count} entries, each of which leads to the one before it"),
    };
    let Some(broken) = &trail.broken else { return Check::new(AUDIT, Group::Store, entries) };
    let finding = keep.broken(broken).remedy("see the whole of it, and who was at work:\n    ichor log show");
    let says =
        format!("not all of it is as it was written; entries that can be read: {}", trail.entries.len());
    Check::new(AUDIT, Group::Store, says).with([Finding { severity: Severity::Warning, ..finding }])
}

fn all(halt: &Halt) -> Vec<Finding> {
    halt.findings.iter().cloned().collect()
}
