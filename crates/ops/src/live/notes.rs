//! What was seen a moment ago, so that it need not be looked at again at once.
//!
//! A step ends with a look at what it made, and the next one would begin with the same look. Both are spared when
//! this run has just looked, or has just been told by Proxmox that its task went well. Notes are about things that
//! this run alone changes: whoever begins to change one tears its note up first.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ichor_model::{
    HostName, MachineName, Observed, VmId,
    observed::{MachineSeen, Sight, VmSeen, VolumeSeen},
};
use tokio::time::Instant;

/// How long something that was there counts as still there. Whoever puts another VM in the place of one has to stop,
/// delete and create meanwhile, which takes longer.
const THERE: Duration = Duration::from_secs(2);
/// How long something that was not there counts as still missing. Proxmox makes no VM and writes no image over one
/// that is there, so a mistake only costs an attempt.
const MISSING: Duration = Duration::from_secs(10);

/// What was seen a moment ago.
#[derive(Debug, Default)]
pub struct Notes {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    vms: BTreeMap<VmId, Note<VmSeen>>,
    volumes: BTreeMap<(HostName, String), Note<VolumeSeen>>,
    machines: BTreeMap<MachineName, Note<MachineSeen>>,
}

#[derive(Debug, Clone)]
struct Note<T> {
    at: Instant,
    seen: Option<T>,
}

impl<T> Note<T> {
    fn new(at: Instant, seen: Option<T>) -> Self {
        Self { at, seen }
    }

    /// Returns itself while it counts.
    fn fresh(self) -> Option<Self> {
        let within = if self.seen.is_some() { THERE } else { MISSING };
        (self.at.elapsed() < within).then_some(self)
    }
}

impl Notes {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a VM, or that there is none, as it was at a moment.
    pub fn vm(&self, vmid: VmId, seen: Option<VmSeen>, at: Instant) {
        self.inner().vms.insert(vmid, Note::new(at, seen));
    }

    /// Notes that a VM runs now, or does not; what else was seen of it stays as it was.
    pub fn runs(&self, vmid: VmId, seen: Option<VmSeen>, running: bool) {
        if let Some(seen) = seen {
            self.vm(vmid, Some(VmSeen { running, ..seen }), Instant::now());
        }
    }

    /// Tears the note about a VM up, and returns what was there if that is not long ago.
    pub fn take_vm(&self, vmid: VmId) -> Option<VmSeen> {
        self.inner().vms.remove(&vmid).and_then(Note::fresh)?.seen
    }

    /// Notes a file on a storage, or that there is none, as it was at a moment.
    pub fn volume(&self, host: &HostName, volume: &str, seen: Option<VolumeSeen>, at: Instant) {
        self.inner().volumes.insert((host.clone(), volume.to_owned()), Note::new(at, seen));
    }

    /// Tears the note about a file up, and says whether it was missing not long ago.
    pub fn take_missing(&self, host: &HostName, volume: &str) -> bool {
        let note = self.inner().volumes.remove(&(host.clone(), volume.to_owned()));
        note.and_then(Note::fresh).is_some_and(|note| note.seen.is_none())
    }

    /// Notes who answered as a machine.
    pub fn machine(&self, machine: &MachineName, seen: MachineSeen) {
        self.inner().machines.insert(machine.clone(), Note::new(Instant::now(), Some(seen)));
    }

    /// Tears the note about a machine up.
    pub fn forget_machine(&self, machine: &MachineName) {
        self.inner().machines.remove(machine);
    }

    /// Returns who answered as a machine a moment ago.
    pub fn recall_machine(&self, machine: &MachineName) -> Option<Observed> {
        let seen = self.inner().machines.get(machine)?.clone().fresh()?.seen?;
        Some(Observed {
            machines: BTreeMap::from([(machine.clone(), Sight::Seen(seen))]),
            ..Observed::default()
        })
    }

    /// Returns a VM as it was a moment ago.
    pub fn recall_vm(&self, vmid: VmId) -> Option<Observed> {
        let seen = self.inner().vms.get(&vmid)?.clone().fresh()?.seen;
        Some(Observed { vms: BTreeMap::from([(vmid, Sight::Seen(seen))]), ..Observed::default() })
    }

    /// Returns a file as it was a moment ago.
    pub fn recall_volume(&self, host: &HostName, volume: &str) -> Option<Observed> {
        let at = (host.clone(), volume.to_owned());
        let seen = self.inner().volumes.get(&at)?.clone().fresh()?.seen;
        Some(Observed { volumes: BTreeMap::from([(at, Sight::Seen(seen))]), ..Observed::default() })
    }
}

#[cfg(test)]
mod tests {
    use ichor_model::step::Verdict;
    use ichor_plan::Condition;

    use super::*;

    fn vm(running: bool) -> VmSeen {
        VmSeen {
            host: "pve1".parse().expect("host"),
            owner: ichor_model::observed::Owner::Ours,
            name: "cp-1".into(),
            running,
            template: false,
            lock: None,
            differences: Vec::new(),
            drift: Vec::new(),
            addresses: Vec::new(),
            medium: false,
            protected: false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn notes_count_for_a_moment_and_until_something_is_changed() {
        let notes = Notes::default();
        let vmid: VmId = "2000".parse().expect("vmid");
        let runs = || {
            let seen = notes.recall_vm(vmid)?;
            Some(Condition::VmRunning { vmid }.judge(&seen) == Verdict::Holds)
        };
        assert_eq!(runs(), None);
        notes.vm(vmid, Some(vm(false)), Instant::now());
        assert_eq!(runs(), Some(false));
        let seen = notes.take_vm(vmid);
        assert_eq!(runs(), None, "whoever changes it tears the note up");
        notes.runs(vmid, seen, true);
        assert_eq!(runs(), Some(true));
        tokio::time::advance(THERE).await;
        assert_eq!(runs(), None);
        assert_eq!(notes.take_vm(vmid), None, "nothing old is passed on");
        notes.vm(vmid, None, Instant::now());
        tokio::time::advance(THERE).await;
        assert_eq!(runs(), Some(false));
        tokio::time::advance(MISSING).await;
        assert_eq!(runs(), None);
    }
}
