//! Reading and changing the config of a VM.

mod change;
mod cloud_init;
mod pending;
mod volumes;

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::{
    change::Update,
    cloud_init::{cloud_init_dump, cloud_init_pending, cloud_init_update},
    pending::{apply_pending, pending},
    volumes::{deallocate, delete_drive, owns, register_unused},
};
use super::{
    disks, load,
    work::{LOCK_WAIT, Waiter, patience},
};
use crate::{
    ground::Ground,
    pve::{Answer, ApiError, Call, Datacentre, Next, Params, Refusal, Reply, Worker, qemu, tasks},
};

/// Parameters that are not options of the VM.
const OTHER: [&str; 10] = [
    "node",
    "vmid",
    "digest",
    "background_delay",
    "skip_cloud_init",
    "import-working-storage",
    "skiplock",
    "delete",
    "revert",
    "force",
];

/// Answers `GET .../config`.
pub fn show(dc: &mut Datacentre, _ground: &mut Ground, _call: &mut Call, params: &Params) -> Reply {
    let snapshot = params.text("snapshot").filter(|name| !name.is_empty());
    if snapshot.is_some() && params.flag("current") {
        let text = "cannot use 'snapshot' parameter with 'current'";
        let errors = ["snapshot", "current"].map(|name| (name.to_owned(), text.to_owned()));
        return Err(ApiError::params(BTreeMap::from(errors)).into());
    }
    let vm = load(dc, &params.host(), params.path_vmid())?;
    let Some(name) = snapshot else {
        return Ok(Value::Object(vm.config.shown(params.flag("current"))).into());
    };
    let mut shown = vm
        .config
        .shown_snapshot(&name)
        .ok_or_else(|| ApiError::server(format!("snapshot '{name}' does not exist")))?;
    shown.insert("digest".into(), vm.config.digest().into());
    Ok(Value::Object(shown).into())
}

/// Answers `PUT .../config`.
pub fn put(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let update = Update::read(dc, ground, call, params)?;
    update.now(dc, ground, call)
}

/// Answers `PUT .../unlink`.
pub fn unlink(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let mut params = params.clone();
    if let Some(list) = params.remove("idlist") {
        params.set("delete", list);
    }
    put(dc, ground, call, &params)
}

/// Answers `POST .../config`.
pub fn post(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    // The task of a call that waits for it was started when the call came first.
    if let Some(upid) = call.patience.note("task") {
        return finished_in_background(dc, ground, call, params, &upid);
    }
    let update = Update::read(dc, ground, call, params)?;
    let (vmid, host) = (update.vmid, update.host.clone());
    let work = Task { update, waiter: Waiter::default(), locked: false, slept: false };
    let work = tasks::Work::Qemu(qemu::Work::Config(Box::new(work)));
    let upid = tasks::start(dc, ground, &host, "qmconfig", &vmid.to_string(), &call.caller.id, work);
    if params.integer("background_delay").is_none() {
        return Ok(upid.into());
    }
    call.patience.set_note("task", &upid);
    finished_in_background(dc, ground, call, params, &upid)
}

fn finished_in_background(
    dc: &Datacentre,
    ground: &Ground,
    call: &mut Call,
    params: &Params,
    upid: &str,
) -> Reply {
    let delay =
        params.integer("background_delay").and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0);
    let vmid = params.path_vmid();
    match dc.tasks.get(upid).and_then(|task| task.exit.as_ref()) {
        Some(end) if end.status == "OK" || end.status.starts_with("WARNINGS") => Ok(Answer::null()),
        Some(end) => Err(ApiError::server(format!("failed to update VM {vmid}: {}", end.status)).into()),
        None => {
            let began = call.patience.began("background", ground.now);
            let limit = began + patience(ground, Duration::from_secs(delay));
            if ground.now >= limit {
                return Ok(upid.to_owned().into());
            }
            let look =
                ground.now + patience(ground, Duration::from_millis(200)).max(Duration::from_millis(1));
            Err(Refusal::Wait(look.min(limit)))
        }
    }
}

/// The task `qmconfig`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    update: Update,
    waiter: Waiter,
    locked: bool,
    slept: bool,
}

impl Task {
    /// Does the next stretch.
    pub fn step(&mut self, dc: &mut Datacentre, ground: &mut Ground, worker: &mut Worker) -> Next {
        self.advance(dc, ground, worker).into()
    }

    fn advance(
        &mut self,
        dc: &mut Datacentre,
        ground: &mut Ground,
        worker: &mut Worker,
    ) -> Result<Option<Next>, ApiError> {
        if !self.locked {
            if let Some(next) = self.waiter.take_vm(dc, ground, worker, self.update.vmid)? {
                return Ok(Some(next));
            }
            self.locked = true;
        }
        for storage in self.update.storages() {
            if dc.storage.activate(&storage, &self.update.host).is_err() {
                continue;
            }
            let (lock, mode) = disks::storage_lock(dc, &self.update.host, &storage);
            if let Some(next) = self.waiter.take(dc, ground, worker, &lock, mode, LOCK_WAIT)? {
                return Ok(Some(next));
            }
        }
        if !std::mem::replace(&mut self.slept, true) && !self.update.takes().is_zero() {
            return Ok(Some(Next::After(self.update.takes())));
        }
        self.update.apply(dc, ground, worker)?;
        Ok(None)
    }
}
