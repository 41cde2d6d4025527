//! One run at a time.
//!
//! The lock is one object. It says who holds it, and its holder writes it anew, with a higher count, every
//! [`Terms::renew`]. It is taken, renewed, broken and given back by replacing it while it is unchanged, so of two who
//! try at once one is told that the other was first.
//!
//! A holder that could not renew for [`Terms::lease`] stops by itself. Whoever waits takes the lock over when it has
//! seen the same count for [`Terms::patience`], which is three times as long. Both measure with clocks of their own
//! that only run forward, and no time is written down and compared: it does not matter what the clocks on the walls
//! say, as long as no clock runs three times as fast as another.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::Notify;

use crate::objects::{self, Fault, Object, Objects, Put, Version};

/// The key of the lock.
pub const KEY: &str = "lock.json";
/// The number of the lock's language.
const SCHEMA: u32 = 1;
/// How long is waited between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// How often others may be first before it counts as held, for whoever does not wait.
const TRIES: usize = 20;

/// Returns how long the machine has been at work, sleep included.
pub type Uptime = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Who holds a lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The person and the machine, as in `ann@laptop`.
    pub who: String,
    /// The verb that runs.
    pub verb: String,
    /// The run.
    pub run: String,
    /// When it began, for people.
    pub since: String,
    /// The process, for those who can see it.
    pub process: Process,
}

/// A process, told from all others that ever had its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// The machine since it was started, and what of it the process can see; nothing, where that is not known.
    pub world: Option<String>,
    /// Its number.
    pub id: u32,
    /// When it was started, in the machine's own count.
    pub started: Option<u64>,
}

/// How long things take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How long a holder goes on that could not renew.
    pub lease: Duration,
    /// How often it renews.
    pub renew: Duration,
    /// How long the lock must not have changed before somebody else takes it.
    pub patience: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(40),
            renew: Duration::from_secs(10),
            patience: Duration::from_mins(2),
        }
    }
}

/// What is written in the lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Paper {
    schema: u32,
    /// Counts those who held it.
    turn: u64,
    /// Counts how often the holder has renewed.
    beat: u64,
    /// Who holds it; nobody, if it was given back.
    holder: Option<Holder>,
}

impl Paper {
    /// Whether both were written by one holder in one turn.
    fn is_turn_of(&self, other: &Self) -> bool {
        let run = |paper: &Self| paper.holder.as_ref().map(|holder| holder.run.clone());
        self.turn == other.turn && run(self) == run(other)
    }
}

/// Why a lock was not taken.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotTaken {
    /// Somebody holds it.
    #[error("`{}` holds it", .0.who)]
    Held(Box<Holder>),
    /// The store did not do it.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// What stands there is no lock.
    #[error("what is kept as `{KEY}` is no lock of this ichor")]
    Illegible,
}

/// How a lock is asked for.
pub struct Request<'a> {
    /// Who asks.
    pub holder: Holder,
    /// How long things take.
    pub terms: Terms,
    /// How long to wait for somebody else.
    pub wait: Duration,
    /// The clock.
    pub uptime: Uptime,
    /// Whether a process is known not to run any more.
    pub is_dead: &'a (dyn Fn(&Process) -> bool + Sync),
    /// Is told for whom is waited, once for each.
    pub waiting: &'a (dyn Fn(&Holder) + Sync),
}

/// Takes the lock.
///
/// Returns it with those whose turn was cut short: their process is gone, or they have not renewed for so long that
/// they have stopped by themselves.
pub async fn take(
    objects: Arc<dyn Objects>,
    request: Request<'_>,
) -> Result<(Lease, Option<Holder>), NotTaken> {
    let begun = (request.uptime)();
    let mut seen: Option<(Version, Duration)> = None;
    let mut told: Option<String> = None;
    let mut beaten = 0;
    loop {
        let now = (request.uptime)();
        let there = objects.get(KEY).await?;
        let paper = there.as_ref().map(read).transpose()?;
        let holder = paper.as_ref().and_then(|paper| paper.holder.clone());
        if let (Some(holder), Some(there)) = (&holder, &there) {
            let since = match &seen {
                Some((version, since)) if *version == there.version => *since,
                _ => now,
            };
            seen = Some((there.version.clone(), since));
            let is_over =
                (request.is_dead)(&holder.process) || now.saturating_sub(since) >= request.terms.patience;
            if !is_over {
                let left = request.wait.saturating_sub(now.saturating_sub(begun));
                if left.is_zero() {
                    return Err(NotTaken::Held(Box::new(holder.clone())));
                }
                if told.as_ref() != Some(&holder.run) {
                    (request.waiting)(holder);
                    told = Some(holder.run.clone());
                }
                tokio::time::sleep(LOOK.min(left)).await;
                continue;
            }
        }
        let turn = paper.map_or(1, |paper| paper.turn.saturating_add(1));
        let mine = Paper { schema: SCHEMA, turn, beat: 0, holder: Some(request.holder.clone()) };
        let bytes = write(&mine);
        let put = match &there {
            None => objects::create(&*objects, KEY, &bytes).await?,
            Some(there) => objects::replace(&*objects, KEY, &bytes, &there.version).await?,
        };
        match put {
            // The lease counts from before it was asked for: nobody can have seen it earlier.
            Put::Done(version) => return Ok((Lease::new(objects, &request, mine, version, now), holder)),
            Put::Beaten if beaten < TRIES => beaten += 1,
            Put::Beaten => return Err(Fault::Refused("somebody else is first again and again".into()).into()),
        }
    }
}

/// Returns who holds the lock.
pub async fn holder(objects: &dyn Objects) -> Result<Option<Holder>, NotTaken> {
    let there = objects.get(KEY).await?;
    Ok(there.as_ref().map(read).transpose()?.and_then(|paper| paper.holder))
}

/// Takes the lock away from whoever holds it, and returns who that was. If it changes hands meanwhile it is left alone.
pub async fn break_now(objects: &dyn Objects) -> Result<Option<Holder>, NotTaken> {
    let Some(there) = objects.get(KEY).await? else { return Ok(None) };
    // What cannot be read may be broken too: that is what the command is for.
    let paper = read(&there).ok();
    if matches!(&paper, Some(Paper { holder: None, .. })) {
        return Ok(None);
    }
    let turn = paper.as_ref().map_or(1, |paper| paper.turn.saturating_add(1));
    let free = write(&Paper { schema: SCHEMA, turn, beat: 0, holder: None });
    let holder = paper.and_then(|paper| paper.holder);
    match objects::replace(objects, KEY, &free, &there.version).await? {
        Put::Done(_) => Ok(holder),
        Put::Beaten => Err(NotTaken::Fault(Fault::Refused(
            "it was renewed or changed hands at this moment: whoever holds it is alive".into(),
        ))),
    }
}

fn read(object: &Object) -> Result<Paper, NotTaken> {
    let paper: Paper = serde_json::from_slice(&object.bytes).map_err(|_| NotTaken::Illegible)?;
    if paper.schema == SCHEMA { Ok(paper) } else { Err(NotTaken::Illegible) }
}

fn write(paper: &Paper) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(paper).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// A lock that was taken. It is held until it is given back, or not renewed in time.
pub struct Lease {
    objects: Arc<dyn Objects>,
    terms: Terms,
    uptime: Uptime,
    state: Mutex<State>,
    /// Set when it is known to be somebody else's.
    lost: AtomicBool,
    stopped: Notify,
}

struct State {
    paper: Paper,
    version: Version,
    good_until: Duration,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("lost", &self.lost).finish_non_exhaustive()
    }
}

/// Says that a lock is not held any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the lock was not renewed in time, or was taken by somebody else")]
pub struct Lost;

impl Lease {
    fn new(
        objects: Arc<dyn Objects>,
        request: &Request<'_>,
        paper: Paper,
        version: Version,
        asked: Duration,
    ) -> Self {
        let state = State { paper, version, good_until: asked + request.terms.lease };
        Self {
            objects,
            terms: request.terms,
            uptime: request.uptime.clone(),
            state: Mutex::new(state),
            lost: AtomicBool::new(false),
            stopped: Notify::new(),
        }
    }

    /// Says whether the lock is held for certain, without asking anybody.
    pub fn check(&self) -> Result<(), Lost> {
        let good_until = self.state.lock().unwrap_or_else(PoisonError::into_inner).good_until;
        if self.lost.load(Ordering::SeqCst) || (self.uptime)() >= good_until {
            return Err(Lost);
        }
        Ok(())
    }

    /// Renews the lock again and again, and returns when it is lost.
    pub async fn keep(&self) -> Lost {
        let mut pause = self.terms.renew;
        loop {
            tokio::time::sleep(pause).await;
            if self.check().is_err() {
                return self.lose();
            }
            match self.renew().await {
                Ok(Put::Done(_)) => pause = self.terms.renew,
                Ok(Put::Beaten) => return self.lose(),
                // Soon again: there is time for some more tries before it is lost.
                Err(_) => pause = self.terms.renew / 5,
            }
        }
    }

    /// Waits until the lock is known to be lost.
    pub async fn lost(&self) -> Lost {
        let told = self.stopped.notified();
        if self.lost.load(Ordering::SeqCst) {
            return Lost;
        }
        told.await;
        Lost
    }

    fn lose(&self) -> Lost {
        self.lost.store(true, Ordering::SeqCst);
        self.stopped.notify_waiters();
        Lost
    }

    /// Renews the lock once.
    pub async fn renew(&self) -> Result<Put, Fault> {
        let asked = (self.uptime)();
        let (paper, version) = {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            (Paper { beat: state.paper.beat + 1, ..state.paper.clone() }, state.version.clone())
        };
        let put = objects::replace(&*self.objects, KEY, &write(&paper), &version).await?;
        if let Put::Done(version) = &put {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            *state = State { paper, version: version.clone(), good_until: asked + self.terms.lease };
        }
        Ok(put)
    }

    /// Gives the lock back. Nobody may be renewing it any more.
    pub async fn release(&self) -> Result<(), Fault> {
        let (mine, mut version) = {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            (state.paper.clone(), state.version.clone())
        };
        self.lost.store(true, Ordering::SeqCst);
        let free = write(&Paper { beat: 0, holder: None, ..mine.clone() });
        // A renewal whose answer nobody waited for may have changed it once.
        for _ in 0..2 {
            if objects::replace(&*self.objects, KEY, &free, &version).await? != Put::Beaten {
                return Ok(());
            }
            match self.objects.get(KEY).await? {
                Some(there) if read(&there).is_ok_and(|paper| paper.is_turn_of(&mine)) => {
                    version = there.version;
                }
                // Somebody else who has it already needs it no less.
                _ => return Ok(()),
            }
        }
        Ok(())
    }
}
