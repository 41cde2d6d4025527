//! What tasks about VMs share: waiting for locks, and making volumes one after the other.

use std::{collections::VecDeque, time::Duration};

use ichor_model::VmId;
use serde::{Deserialize, Serialize};

use super::{
    config::Section,
    disks::{self, Copy, MAKING, Made, Owner},
};
use crate::{
    clock::Time,
    ground::Ground,
    pve::{ApiError, Caller, Datacentre, Lock, Mode, Next, Worker, drive::Drive},
};

/// How long tasks wait for most locks.
pub const LOCK_WAIT: Duration = Duration::from_secs(10);

/// How often somebody who waits looks whether a lock is free.
const LOOKS_EVERY: Duration = Duration::from_millis(100);

/// Returns how long patience lasts that lasts so long on real hardware. Where nothing takes time, patience does:
/// else nobody could wait for anybody.
pub fn patience(ground: &Ground, real: Duration) -> Duration {
    let scaled = ground.profile.takes(real);
    if scaled.is_zero() { real } else { scaled }
}

/// Waits for locks and tells so in the task's log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Waiter {
    since: Option<Time>,
    lines: u32,
}

impl Waiter {
    /// Takes the lock of a VM, or says how the task goes on. The error is that it waited too long.
    pub fn take_vm(
        &mut self,
        dc: &mut Datacentre,
        ground: &Ground,
        worker: &mut Worker,
        vmid: VmId,
    ) -> Result<Option<Next>, ApiError> {
        self.take(dc, ground, worker, &Lock::Vm(vmid), Mode::Exclusive, LOCK_WAIT)
    }

    /// Takes a lock, or says how the task goes on. The error is that it waited too long.
    pub fn take(
        &mut self,
        dc: &mut Datacentre,
        ground: &Ground,
        worker: &mut Worker,
        lock: &Lock,
        mode: Mode,
        real: Duration,
    ) -> Result<Option<Next>, ApiError> {
        let cluster = match lock {
            Lock::Cluster(name) => Some(name),
            Lock::Vm(_) | Lock::LocalStorage { .. } => None,
        };
        if worker.can_have(dc, ground, lock, mode) {
            if self.since.take().is_some() && cluster.is_none() {
                worker.say(" OK");
            }
            self.lines = 0;
            dc.locks.take(lock.clone(), mode, &worker.upid);
            return Ok(None);
        }
        let since = *self.since.get_or_insert(ground.now);
        let waited = ground.now.since(since);
        let second = patience(ground, Duration::from_secs(1));
        match cluster {
            None if self.lines == 0 => {
                worker.say("trying to acquire lock...");
                self.lines = 1;
            }
            Some(name) if waited >= second * self.lines && self.lines < 9 => {
                worker.say(format!("trying to acquire cfs lock '{name}' ..."));
                self.lines += 1;
            }
            _ => {}
        }
        let limit = patience(ground, real);
        if waited >= limit {
            self.since = None;
            self.lines = 0;
            return Err(ApiError::server(lock.timeout_text()));
        }
        let again = ground.now + patience(ground, LOOKS_EVERY).max(Duration::from_millis(1));
        Ok(Some(Next::WaitUntil(again.min(since + limit))))
    }
}

/// A drive to be made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Todo {
    /// As an option wishes it.
    New {
        /// Its slot.
        slot: String,
        /// The option.
        text: String,
    },
    /// A copy.
    Copy {
        /// Its slot.
        slot: String,
        /// The drive that is copied.
        source: String,
        /// The snapshot that is copied.
        snapshot: Option<String>,
        /// The storage it goes to.
        storage: Option<String>,
        /// Its format.
        format: Option<String>,
        /// How large the firmware's variables are.
        efi_size: u64,
    },
    /// A linked clone.
    Link {
        /// Its slot.
        slot: String,
        /// The drive that is cloned.
        source: String,
        /// The snapshot that is cloned.
        snapshot: Option<String>,
    },
}

impl Todo {
    fn slot(&self) -> &str {
        match self {
            Self::New { slot, .. } | Self::Copy { slot, .. } | Self::Link { slot, .. } => slot,
        }
    }

    /// Returns the storage that is locked while the volume is made.
    fn storage(&self, default_storage: Option<&str>) -> Option<String> {
        let of = |source: &str| Drive::read(self.slot(), source)?.volume().map(|volume| volume.storage);
        match self {
            Self::New { text, .. } => disks::storage_needed(text, default_storage),
            Self::Copy { storage: Some(storage), .. } => Some(storage.clone()),
            Self::Copy { source, .. } | Self::Link { source, .. } => of(source),
        }
    }

    /// Returns what is printed before the storage is locked.
    fn headline(&self) -> Option<String> {
        let drive = |source: &str| Drive::read(self.slot(), source).map(|drive| drive.file().to_owned());
        match self {
            Self::New { text, slot } => Drive::read(slot, text)?
                .get("import-from")
                .map(|source| format!("create full clone of drive ({source})")),
            Self::Copy { slot, source, .. } => {
                Some(format!("create full clone of drive {slot} ({})", drive(source)?))
            }
            Self::Link { slot, source, .. } => {
                Some(format!("create linked clone of drive {slot} ({})", drive(source)?))
            }
        }
    }
}

/// For whom drives are made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct For {
    /// The VM.
    pub vmid: VmId,
    /// Its host.
    pub host: String,
    /// Who asked.
    pub caller: Caller,
    /// The VM's config so far.
    pub config: Section,
    /// The storage of wishes that name none.
    pub storage: Option<String>,
}

/// Makes drives one after the other.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Making {
    todo: VecDeque<Todo>,
    stage: Stage,
    waiter: Waiter,
    /// Volumes made so far: who fails removes them.
    pub volumes: Vec<String>,
    /// Drives made so far, as they stand in the config.
    pub results: Section,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stage {
    /// The next one begins.
    #[default]
    Begin,
    /// It was looked at and told.
    Told,
    /// Its storage is locked.
    Locked,
    /// Its volume is being filled.
    Filling { slot: String, text: String, late: Vec<String> },
}

impl Making {
    /// Plans drives.
    pub fn new(todo: impl IntoIterator<Item = Todo>) -> Self {
        Self { todo: todo.into_iter().collect(), ..Self::default() }
    }

    /// Goes on; says nothing when all are made.
    pub fn step(
        &mut self,
        dc: &mut Datacentre,
        ground: &mut Ground,
        worker: &mut Worker,
        whom: &For,
    ) -> Result<Option<Next>, ApiError> {
        loop {
            match std::mem::take(&mut self.stage) {
                Stage::Filling { slot, text, late } => {
                    worker.log.extend(late);
                    self.results.insert(slot, text);
                }
                Stage::Begin => {
                    let Some(todo) = self.todo.front() else { return Ok(None) };
                    let todo = todo.clone();
                    self.precheck(dc, whom, &todo)?;
                    if let Some(line) = todo.headline() {
                        worker.say(line);
                    }
                    self.stage = Stage::Told;
                }
                Stage::Told => {
                    let storage = self.todo.front().and_then(|todo| todo.storage(whom.storage.as_deref()));
                    if let Some(storage) = storage {
                        let (lock, mode) = disks::storage_lock(dc, &worker.host, &storage);
                        if let Some(next) = self.waiter.take(dc, ground, worker, &lock, mode, LOCK_WAIT)? {
                            self.stage = Stage::Told;
                            return Ok(Some(next));
                        }
                        self.stage = Stage::Locked;
                        return Ok(Some(Next::After(MAKING)));
                    }
                    self.stage = Stage::Locked;
                }
                Stage::Locked => {
                    let Some(todo) = self.todo.pop_front() else { return Ok(None) };
                    let made = self.make(dc, ground, whom, &todo)?;
                    if let Some(storage) = todo.storage(whom.storage.as_deref()) {
                        let (lock, _) = disks::storage_lock(dc, &worker.host, &storage);
                        worker.unlock(dc, &lock);
                    }
                    let skip = usize::from(todo.headline().is_some());
                    worker.log.extend(made.early.into_iter().skip(skip));
                    self.volumes.extend(made.volumes);
                    self.stage =
                        Stage::Filling { slot: todo.slot().to_owned(), text: made.text, late: made.late };
                    if !made.copying.is_zero() {
                        return Ok(Some(Next::After(made.copying)));
                    }
                }
            }
        }
    }

    /// Finds what fails before anything is locked.
    fn precheck(&self, dc: &Datacentre, whom: &For, todo: &Todo) -> Result<(), ApiError> {
        if let Todo::New { slot, text } = todo {
            disks::precheck(dc, &whom.owner(&self.results), slot, text)?;
        }
        match todo.storage(whom.storage.as_deref()) {
            Some(storage) => {
                dc.storage.activate(&storage, &whom.host).map_err(ApiError::server)?;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn make(
        &self,
        dc: &mut Datacentre,
        ground: &mut Ground,
        whom: &For,
        todo: &Todo,
    ) -> Result<Made, ApiError> {
        let unparsable = || ApiError::server("unable to parse drive options");
        match todo {
            Todo::New { slot, text } => disks::create(dc, ground, whom.owner(&self.results), slot, text),
            Todo::Copy { slot, source, snapshot, storage, format, efi_size } => {
                let copy = Copy {
                    source: Drive::read(slot, source).ok_or_else(unparsable)?,
                    snapshot: snapshot.as_deref(),
                    vmid: whom.vmid,
                    slot,
                    storage: storage.as_deref(),
                    format: format.as_deref(),
                    efi_size: *efi_size,
                };
                disks::copy_drive(dc, ground, &whom.host, &copy)
            }
            Todo::Link { slot, source, snapshot } => {
                let source = Drive::read(slot, source).ok_or_else(unparsable)?;
                disks::link_drive(dc, ground, &whom.host, &source, whom.vmid, snapshot.as_deref())
            }
        }
    }

    /// Removes the volumes made so far. What cannot be removed stays.
    pub fn undo(&mut self, dc: &mut Datacentre, ground: &mut Ground, host: &str) {
        for volume in std::mem::take(&mut self.volumes) {
            let _ = dc.storage.free(host, &volume, &mut ground.media);
        }
    }
}

impl For {
    fn owner<'a>(&'a self, beside: &'a Section) -> Owner<'a> {
        Owner {
            vmid: self.vmid,
            host: &self.host,
            caller: &self.caller,
            config: &self.config,
            beside,
            default_storage: self.storage.as_deref(),
        }
    }
}
