//! Locks: files that processes of a host hold, and locks of the whole cluster.
//!
//! Who finds a lock taken waits for it and gives up after a while, with a text that names the lock. The config
//! lock of a VM (its option `lock`) is none of these: it stands in the VM's config.

use std::{collections::BTreeMap, time::Duration};

use ichor_model::VmId;
use serde::{Deserialize, Serialize};

use crate::{clock::Time, ground::Ground};

/// A lock.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lock {
    /// The lock file of a VM on its host.
    Vm(VmId),
    /// The lock file of a storage that is not shared: each host has its own.
    LocalStorage {
        /// The host.
        host: String,
        /// The storage.
        storage: String,
    },
    /// A lock of the cluster, such as `storage-shared1` or `file-user_cfg`.
    Cluster(String),
}

impl Lock {
    /// Returns the lock of a storage, for a process on a host.
    pub fn storage(host: &str, name: &str, shared: bool) -> Self {
        if shared {
            Self::Cluster(format!("storage-{name}"))
        } else {
            Self::LocalStorage { host: host.to_owned(), storage: name.to_owned() }
        }
    }

    /// Returns the lock of a configuration file of the cluster, such as `user.cfg`.
    pub fn file(name: &str) -> Self {
        Self::Cluster(format!("file-{}", name.replace(['.', '/'], "_")))
    }

    /// Returns what Proxmox says after waiting in vain.
    pub fn timeout_text(&self) -> String {
        match self {
            Self::Vm(vmid) => {
                format!("can't lock file '/var/lock/qemu-server/lock-{vmid}.conf' - got timeout")
            }
            Self::LocalStorage { storage: name, .. } => {
                format!("can't lock file '/var/lock/pve-manager/pve-storage-{name}' - got timeout")
            }
            Self::Cluster(name) => format!("cfs-lock '{name}' error: got lock request timeout"),
        }
    }
}

/// How a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Others may hold it likewise.
    Shared,
    /// Nobody else may hold it.
    Exclusive,
}

/// The holder of locks that somebody outside the lab took.
pub const OUTSIDE: &str = "outside";

/// The holder that a synchronous call is: it is over before anybody else looks.
pub const CALL: &str = "call";

/// Who holds which lock.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Locks {
    held: Vec<Held>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Held {
    lock: Lock,
    mode: Mode,
    holder: String,
}

impl Locks {
    /// Returns whether somebody can have a lock that others may hold.
    pub fn free_for(&self, lock: &Lock, mode: Mode, holder: &str) -> bool {
        self.held
            .iter()
            .filter(|held| held.lock == *lock && held.holder != holder)
            .all(|held| held.mode == Mode::Shared && mode == Mode::Shared)
    }

    /// Gives a lock to a holder.
    pub fn take(&mut self, lock: Lock, mode: Mode, holder: &str) {
        self.held.push(Held { lock, mode, holder: holder.to_owned() });
    }

    /// Takes a lock from its holder.
    pub fn release(&mut self, lock: &Lock, holder: &str) {
        self.held.retain(|held| held.lock != *lock || held.holder != holder);
    }

    /// Takes all locks from a holder: its process has ended.
    pub fn release_all(&mut self, holder: &str) {
        self.held.retain(|held| held.holder != holder);
    }

    /// Returns who holds a lock.
    pub fn holders(&self, lock: &Lock) -> impl Iterator<Item = &str> {
        self.held.iter().filter(move |held| held.lock == *lock).map(|held| held.holder.as_str())
    }
}

/// Since when somebody waits for what.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Patience {
    since: BTreeMap<String, Time>,
    /// What whoever waits must not forget, such as the task it waits for.
    #[serde(default)]
    notes: BTreeMap<String, String>,
}

/// Why somebody does not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blocked {
    /// Ask again at this moment.
    Until(Time),
    /// It waited long enough.
    Timeout,
}

/// How often somebody who waits looks whether the lock is free.
const LOOKS_EVERY: Duration = Duration::from_millis(100);

impl Patience {
    /// Waits for a lock that is not free, for at most a time of real hardware.
    pub fn wait(&mut self, ground: &Ground, what: &str, real: Duration) -> Blocked {
        let since = *self.since.entry(what.to_owned()).or_insert(ground.now);
        let deadline = since + ground.profile.takes(real);
        if ground.now >= deadline {
            self.since.remove(what);
            return Blocked::Timeout;
        }
        let look = ground.now + ground.profile.takes(LOOKS_EVERY).max(Duration::from_millis(1));
        Blocked::Until(look.min(deadline))
    }

    /// Lets a time of real hardware pass, once per name: says until when, or nothing when it is over.
    pub fn pass(&mut self, ground: &Ground, what: &str, real: Duration) -> Option<Time> {
        let until = *self.since.entry(what.to_owned()).or_insert(ground.now) + ground.profile.takes(real);
        (ground.now < until).then_some(until)
    }

    /// Returns since when it waits for something: from now on if it did not before.
    pub fn began(&mut self, what: &str, now: Time) -> Time {
        *self.since.entry(what.to_owned()).or_insert(now)
    }

    /// Returns a note.
    pub fn note(&self, name: &str) -> Option<String> {
        self.notes.get(name).cloned()
    }

    /// Keeps a note for when the call is asked again.
    pub fn set_note(&mut self, name: &str, text: &str) {
        self.notes.insert(name.to_owned(), text.to_owned());
    }

    /// Forgets that it waited for something.
    pub fn forget(&mut self, what: &str) {
        self.since.remove(what);
    }
}
