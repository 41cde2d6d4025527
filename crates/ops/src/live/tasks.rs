//! Tasks of all hosts in one list.
//!
//! Proxmox shows how the latest tasks of all hosts stand in one call, and tells all hosts at once when one ends. So
//! however many tasks are waited for, one list at a time is asked for: by whoever wants to know the soonest, for all.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use ichor_pve::{Exit, TaskStatus, Upid, api};
use tokio::{sync::watch, time::Instant};

use super::Pve;

/// So often in a row the list may fail to show a task of ours that runs before it counts as of no use.
const MOST_UNSEEN: u32 = 3;

/// What is known of all tasks.
#[derive(Debug, Default)]
pub struct Tasks {
    listed: watch::Sender<Listed>,
    asking: tokio::sync::Mutex<()>,
    /// How often in a row the list did not show a task of ours: that takes `Sys.Audit` on everything.
    unseen: AtomicU32,
    /// How long tasks of a kind took in this run, the shortest of each.
    took: Mutex<BTreeMap<String, Duration>>,
}

/// The list as it was at a moment.
#[derive(Debug, Clone, Default)]
pub struct Listed {
    asked: Option<Instant>,
    rows: Arc<BTreeMap<String, TaskStatus>>,
}

impl Listed {
    /// Returns how a task stands. What became of one whose process vanished, only its host can tell.
    pub fn status(&self, task: &Upid) -> Option<&TaskStatus> {
        self.rows.get(task.as_str()).filter(|status| status.exit() != Some(Exit::Vanished))
    }
}

impl Tasks {
    /// Is told of every list.
    pub fn news(&self) -> watch::Receiver<Listed> {
        self.listed.subscribe()
    }

    /// Whether the list does not show our tasks.
    pub fn is_blind(&self) -> bool {
        self.unseen.load(Ordering::Relaxed) >= MOST_UNSEEN
    }

    /// Remembers whether the list shows what it should.
    pub fn shows(&self, shown: bool) {
        if shown {
            self.unseen.store(0, Ordering::Relaxed);
        } else {
            self.unseen.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the list as it is, or as it was when somebody else asked not earlier than a moment.
    pub async fn list(&self, pve: &Pve, not_before: Instant) -> Result<Listed, ichor_pve::Error> {
        let _turn = self.asking.lock().await;
        let last = self.listed.borrow().clone();
        if last.asked.is_some_and(|asked| asked >= not_before) {
            return Ok(last);
        }
        let asked = Some(Instant::now());
        let rows = pve.send(&api::all_tasks()).await?;
        let rows = rows.into_iter().map(|row| (row.upid, TaskStatus::listed(row.status)));
        let listed = Listed { asked, rows: Arc::new(rows.collect()) };
        self.listed.send_replace(listed.clone());
        Ok(listed)
    }

    /// Remembers how long a task took.
    pub fn took(&self, task: &Upid, time: Duration) {
        let mut took = self.took.lock().unwrap_or_else(PoisonError::into_inner);
        let shortest = took.entry(task.kind().to_owned()).or_insert(time);
        *shortest = time.min(*shortest);
    }

    /// Returns how long tasks of the same kind take at least, as far as this run has seen.
    pub fn takes(&self, task: &Upid) -> Option<Duration> {
        self.took.lock().unwrap_or_else(PoisonError::into_inner).get(task.kind()).copied()
    }
}
