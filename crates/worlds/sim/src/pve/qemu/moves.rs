//! Larger disks, and disks that move to another storage or VM.

use std::time::Duration;

use ichor_model::VmId;
use serde::{Deserialize, Serialize};

use super::{
    boot,
    config::Section,
    disks::{self, Copy},
    load, load_mut, rights,
    update::Update,
    work::{LOCK_WAIT, Waiter},
};
use crate::{
    ground::Ground,
    pve::{
        ApiError, Call, Caller, Datacentre, Exit, Lock, Mode, Next, Params, Reply, Worker,
        drive::{Drive, is_cloud_init_volume, is_unused},
        qemu,
        storage::volume::VolumeId,
        tasks,
    },
};

/// Answers `PUT .../resize`.
pub fn resize(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    if params.flag("skiplock") && !call.caller.is_root() {
        return Err(ApiError::param("skiplock", "Only root may use this option.").into());
    }
    let (vmid, host) = (params.path_vmid(), params.host());
    let work = Resize {
        vmid,
        host: host.clone(),
        caller: call.caller.clone(),
        disk: params.text_or_empty("disk"),
        size: params.text_or_empty("size"),
        digest: params.text("digest").filter(|digest| !digest.is_empty()),
        skip_lock: params.flag("skiplock"),
        waiter: Waiter::default(),
    };
    let work = tasks::Work::Qemu(qemu::Work::Resize(work));
    Ok(tasks::start(dc, ground, &host, "resize", &vmid.to_string(), &call.caller.id, work).into())
}

/// The task `resize`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Resize {
    vmid: VmId,
    host: String,
    caller: Caller,
    disk: String,
    size: String,
    digest: Option<String>,
    skip_lock: bool,
    waiter: Waiter,
}

impl Resize {
    /// Does the next stretch.
    pub fn step(&mut self, dc: &mut Datacentre, ground: &mut Ground, worker: &mut Worker) -> Next {
        let lock = Lock::Vm(self.vmid);
        match self.waiter.take(dc, ground, worker, &lock, Mode::Exclusive, LOCK_WAIT) {
            Ok(Some(next)) => next,
            Ok(None) => match self.grow(dc, worker) {
                Ok(()) => Next::Done(Exit::Ok),
                Err(error) => Next::Done(Exit::Failed(error.as_text())),
            },
            Err(error) => Next::Done(Exit::Failed(error.as_text())),
        }
    }

    fn grow(&self, dc: &mut Datacentre, worker: &mut Worker) -> Result<(), ApiError> {
        let vm = load(dc, &self.host, self.vmid)?;
        if self.digest.as_ref().is_some_and(|digest| *digest != vm.config.digest()) {
            return Err(ApiError::server("checksum mismatch (file change by other user?)"));
        }
        if !self.skip_lock {
            vm.config.check_lock().map_err(ApiError::server)?;
        }
        let disk = &self.disk;
        let missing = || ApiError::server(format!("disk '{disk}' does not exist"));
        let text = vm.config.get(disk).ok_or_else(missing)?;
        let mut drive = Drive::read(disk, text).ok_or_else(missing)?;
        let volume = drive.file().to_owned();
        let found = dc.storage.look_up(&volume).map_err(ApiError::server)?;
        if drive.is_disc() {
            return Err(ApiError::server("you can't resize a cdrom"));
        }
        let path = format!("/storage/{}", found.id.storage);
        dc.check(&self.caller, &path, &["Datastore.AllocateSpace"])?;
        dc.storage.activate(&found.id.storage, &self.host).map_err(ApiError::server)?;
        let running = vm.runs();
        let old = dc
            .storage
            .get(&self.host, &volume)
            .map(|there| there.size)
            .ok_or_else(|| ApiError::server(format!("volume '{volume}' does not exist")))?;
        let (grow, text) = match self.size.strip_prefix('+') {
            Some(text) => (true, text),
            None => (false, self.size.as_str()),
        };
        let wanted = super::property::parse_size(text).ok_or_else(|| ApiError::server("internal error"))?;
        let new = if grow { old.saturating_add(wanted) } else { wanted };
        if new < old {
            return Err(ApiError::server("shrinking disks is not supported"));
        }
        if new == old {
            return Ok(());
        }
        if found.naming.is_files() && !["raw", "qcow2"].contains(&found.name.format.as_str()) {
            return Err(ApiError::server("can't resize this image format"));
        }
        if !running && found.naming.is_files() {
            worker.say("Image resized.");
        }
        let mut size = new;
        if let Some(there) = dc.storage.get_mut(&self.host, &volume) {
            there.size = new;
            size = there.size;
        }
        drive.set_size(size);
        let vm = load_mut(dc, &self.host, self.vmid)?;
        vm.config.current.insert(disk.clone(), drive.to_string());
        if let Some(run) = &mut vm.run {
            run.devices.insert(disk.clone(), drive.to_string());
        }
        Ok(())
    }
}

/// Answers `POST .../move_disk`.
pub fn move_disk(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let (vmid, host) = (params.path_vmid(), params.host());
    let (storage, target) = (params.text("storage"), params.vmid("target-vmid"));
    let both = |text: &str| {
        let errors = ["target-vmid", "storage"].map(|name| (name.to_owned(), text.to_owned()));
        ApiError::params(errors.into())
    };
    let disk = params.text_or_empty("disk");
    match (storage, target) {
        (Some(_), Some(_)) => Err(both("either set 'storage' or 'target-vmid', but not both").into()),
        (None, None) => Err(both("both 'storage' and 'target-vmid' missing, either needs to be set").into()),
        (Some(storage), None) => {
            dc.check(&call.caller, &format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
            let work = Move {
                vmid,
                host: host.clone(),
                disk,
                storage,
                format: params.text("format"),
                delete: params.flag("delete"),
                digest: params.text("digest").filter(|digest| !digest.is_empty()),
                waiter: Waiter::default(),
                stage: Stage::Lock,
            };
            work.check(dc)?;
            let work = tasks::Work::Qemu(qemu::Work::Move(work));
            Ok(tasks::start(dc, ground, &host, "qmmove", &vmid.to_string(), &call.caller.id, work).into())
        }
        (None, Some(target)) => {
            if !call.caller.is_root() {
                dc.check_vm(&call.caller, target, None, &["VM.Config.Disk"])?;
            }
            if target == vmid {
                let text = "must be different than source VMID to reassign disk";
                return Err(ApiError::param("target-vmid", text).into());
            }
            let work = Reassign {
                vmid,
                host: host.clone(),
                target,
                target_disk: params.text("target-disk").unwrap_or_else(|| disk.clone()),
                disk,
                caller: call.caller.clone(),
                digest: params.text("digest").filter(|digest| !digest.is_empty()),
                target_digest: params.text("target-digest").filter(|digest| !digest.is_empty()),
                waiter: Waiter::default(),
                locked: 0,
            };
            let drive = work.check(dc)?;
            let storage = drive.volume().map(|volume| volume.storage).unwrap_or_default();
            dc.check(&call.caller, &format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
            let id = format!("{vmid}-{}>{target}-{}", work.disk, work.target_disk);
            let work = tasks::Work::Qemu(qemu::Work::Reassign(work));
            Ok(tasks::start(dc, ground, &host, "qmmove", &id, &call.caller.id, work).into())
        }
    }
}

fn check_digest(given: Option<&String>, config: &super::config::Config) -> Result<(), ApiError> {
    match given.filter(|digest| **digest != config.digest()) {
        Some(_) => {
            Err(ApiError::server("detected modified configuration - file changed by other user? Try again."))
        }
        None => Ok(()),
    }
}

/// The task `qmmove` to another storage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Move {
    vmid: VmId,
    host: String,
    disk: String,
    storage: String,
    format: Option<String>,
    delete: bool,
    digest: Option<String>,
    waiter: Waiter,
    stage: Stage,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stage {
    Lock,
    Storage,
    Copied { drive: String, late: Vec<String> },
}

impl Move {
    fn check(&self, dc: &Datacentre) -> Result<(Drive, bool), ApiError> {
        let config = &load(dc, &self.host, self.vmid)?.config;
        config.check_lock().map_err(ApiError::server)?;
        check_digest(self.digest.as_ref(), config)?;
        let disk = &self.disk;
        let text =
            config.get(disk).ok_or_else(|| ApiError::server(format!("disk '{disk}' does not exist")))?;
        let drive = Drive::read(disk, text)
            .ok_or_else(|| ApiError::server(format!("disk '{disk}' has no associated volume")))?;
        if drive.is_plain_disc() {
            return Err(ApiError::server("you can't move a cdrom"));
        }
        let found = dc.storage.look_up(drive.file()).map_err(ApiError::server)?;
        let same_format = self.format.as_ref().is_none_or(|format| *format == found.name.format);
        if found.id.storage == self.storage && same_format {
            return Err(ApiError::server("you can't move to the same storage with same format"));
        }
        dc.storage.enabled(&self.storage, &self.host).map_err(ApiError::server)?;
        rights::check_holds_images(dc, &self.storage)?;
        let snapshotted = config.names_volume(drive.file(), disk);
        if snapshotted && self.delete {
            return Err(ApiError::server("you can't move a disk with snapshots and delete the source"));
        }
        Ok((drive, snapshotted))
    }

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
        let failed =
            |error: ApiError| ApiError::server(format!("storage migration failed: {}", error.as_text()));
        if self.stage == Stage::Lock {
            if let Some(next) = self.waiter.take_vm(dc, ground, worker, self.vmid)? {
                return Ok(Some(next));
            }
            let (drive, snapshotted) = self.check(dc)?;
            let old = drive.file();
            let from = drive.volume().map(|volume| volume.storage).unwrap_or_default();
            worker.say(format!(
                "copying volume '{old}' from current storage '{from}' to target storage '{}'",
                self.storage
            ));
            if snapshotted {
                worker.say("moving disk with snapshots, snapshots will not be moved!");
            }
            self.stage = Stage::Storage;
        }
        if self.stage == Stage::Storage {
            let (lock, mode) = disks::storage_lock(dc, &worker.host, &self.storage);
            if let Some(next) =
                self.waiter.take(dc, ground, worker, &lock, mode, LOCK_WAIT).map_err(failed)?
            {
                return Ok(Some(next));
            }
            let config = load(dc, &self.host, self.vmid)?.config.current.clone();
            let source = config.get(&self.disk).and_then(|text| Drive::read(&self.disk, text));
            let source =
                source.ok_or_else(|| ApiError::server(format!("disk '{}' does not exist", self.disk)))?;
            let copy = Copy {
                source,
                snapshot: None,
                vmid: self.vmid,
                slot: &self.disk,
                storage: Some(&self.storage),
                format: self.format.as_deref(),
                efi_size: disks::efi_size_of(&config),
            };
            let copied = disks::copy_drive(dc, ground, &self.host, &copy).map_err(failed)?;
            worker.unlock(dc, &lock);
            worker.log.extend(copied.early);
            self.stage = Stage::Copied { drive: copied.text, late: copied.late };
            return Ok(Some(Next::After(copied.copying.max(Duration::from_millis(1)))));
        }
        if let Stage::Copied { drive, late } = &self.stage {
            worker.log.extend(late.clone());
            self.finish(dc, ground, worker, drive)?;
        }
        Ok(None)
    }

    fn finish(
        &self,
        dc: &mut Datacentre,
        ground: &mut Ground,
        worker: &mut Worker,
        drive: &str,
    ) -> Result<(), ApiError> {
        let vm = load_mut(dc, &self.host, self.vmid)?;
        let old = vm.config.drive(&self.disk).map(|drive| drive.file().to_owned()).unwrap_or_default();
        vm.config.current.insert(self.disk.clone(), drive.to_owned());
        if let Some(run) = &mut vm.run {
            run.devices.insert(self.disk.clone(), drive.to_owned());
        }
        if !self.delete {
            let key = if is_cloud_init_volume(&old) {
                worker.say(format!("found unused cloudinit disk '{old}', removing it"));
                let _ = dc.storage.free(&self.host, &old, &mut ground.media);
                worker.say(
                    "Use of uninitialized value $unused_key in concatenation (.) or string at \
                     /usr/share/perl5/PVE/API2/Qemu.pm line 4960.",
                );
                String::new()
            } else {
                vm.config.add_unused(&old).map_err(ApiError::server)?.unwrap_or_default()
            };
            worker.say(format!("adding source volume '{old}' as '{key}' to config"));
        }
        let vm = load_mut(dc, &self.host, self.vmid)?;
        if vm.config.is_template() {
            let new = Drive::read(&self.disk, drive).map(|drive| drive.file().to_owned()).unwrap_or_default();
            let base = dc.storage.make_base(&self.host, &new).map_err(ApiError::server)?;
            if let Some(mut converted) = Drive::read(&self.disk, drive) {
                converted.set("file", base.volume);
                let config = &mut load_mut(dc, &self.host, self.vmid)?.config;
                config.current.insert(self.disk.clone(), converted.to_string());
            }
        }
        load_mut(dc, &self.host, self.vmid)?.config.write().map_err(ApiError::server)?;
        if self.delete {
            worker.say(format!("removing source volume '{old}' after successful copy"));
            match dc.storage.free(&self.host, &old, &mut ground.media) {
                Ok(done) => worker.log.extend(done.printed),
                Err(text) => worker.say(text),
            }
        }
        Ok(())
    }
}

/// The task `qmmove` to another VM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reassign {
    vmid: VmId,
    host: String,
    disk: String,
    target: VmId,
    target_disk: String,
    caller: Caller,
    digest: Option<String>,
    target_digest: Option<String>,
    waiter: Waiter,
    locked: u8,
}

impl Reassign {
    fn check(&self, dc: &Datacentre) -> Result<Drive, ApiError> {
        let (vmid, target, disk) = (self.vmid, self.target, &self.disk);
        let refuse = |text: String| Err(ApiError::server(text));
        let Some(source_vm) = dc.vms.get(&vmid) else { return refuse(format!("could not find VM {vmid}")) };
        let Some(target_vm) = dc.vms.get(&target) else {
            return refuse(format!("could not find target VM {target}"));
        };
        if source_vm.host != target_vm.host {
            let text =
                format!("Both VMs need to be on the same node ({} != {})", source_vm.host, target_vm.host);
            return refuse(text);
        }
        let source = load(dc, &self.host, vmid)?;
        source.config.check_lock().map_err(ApiError::server)?;
        let target_config = &load(dc, &self.host, target)?.config;
        target_config.check_lock().map_err(ApiError::server)?;
        if source.config.is_template() || target_config.is_template() {
            return refuse("Can't move disks from or to template VMs".into());
        }
        let named = |vmid: VmId, error: ApiError| ApiError::server(format!("VM {vmid}: {}", error.message));
        check_digest(self.digest.as_ref(), &source.config).map_err(|error| named(vmid, error))?;
        check_digest(self.target_digest.as_ref(), target_config).map_err(|error| named(target, error))?;
        let Some(text) = source.config.get(disk) else {
            return refuse(format!("Disk '{disk}' for VM '{vmid}' does not exist"));
        };
        if target_config.get(&self.target_disk).is_some() {
            return refuse(format!(
                "Target disk key '{}' is already in use for VM '{target}'",
                self.target_disk
            ));
        }
        let Some(drive) = Drive::read(disk, text) else {
            return refuse("failed to parse source disk - ".into());
        };
        if drive.is_plain_disc() {
            return refuse("CD drive contents can't be moved to another VM".into());
        }
        let volume = drive.file();
        if VolumeId::read(volume).is_none() {
            return refuse(format!("Volume '{volume}' not managed by PVE"));
        }
        if source
            .config
            .snapshots
            .values()
            .any(|section| super::config::drives(section).iter().any(|other| other.file() == volume))
        {
            return refuse("Can't move disk used by a snapshot to another VM".into());
        }
        let found = dc.storage.look_up(volume).map_err(ApiError::server)?;
        let definition = dc.storage.definition(&found.id.storage).map_err(ApiError::server)?;
        if !definition.has_feature("rename", &found.name.format, found.name.is_base, false) {
            return refuse("Storage does not support moving of this disk to another VM".into());
        }
        if source.runs() && !is_unused(disk) {
            let text = "Cannot move disk to another VM while the source VM is running - detach first";
            return refuse(text.into());
        }
        let text = if is_unused(&self.target_disk) { volume } else { text };
        match Drive::read(&self.target_disk, text) {
            Some(drive) => Ok(drive),
            None => refuse("failed to parse source disk for target disk format - ".into()),
        }
    }

    /// Does the next stretch.
    pub fn step(&mut self, dc: &mut Datacentre, ground: &mut Ground, worker: &mut Worker) -> Next {
        while self.locked < 2 {
            let lock = Lock::Vm(if self.locked == 0 { self.vmid } else { self.target });
            match self.waiter.take(dc, ground, worker, &lock, Mode::Exclusive, LOCK_WAIT) {
                Ok(Some(next)) => return next,
                Ok(None) => self.locked += 1,
                Err(error) => return Next::Done(Exit::Failed(error.as_text())),
            }
        }
        match self.reassign(dc, ground, worker) {
            Ok(()) => Next::Done(Exit::Ok),
            Err(error) => Next::Done(Exit::Failed(error.as_text())),
        }
    }

    fn reassign(
        &self,
        dc: &mut Datacentre,
        ground: &mut Ground,
        worker: &mut Worker,
    ) -> Result<(), ApiError> {
        let mut drive = self.check(dc)?;
        let (vmid, target, disk, target_disk) = (self.vmid, self.target, &self.disk, &self.target_disk);
        worker.say(format!("reassign disk '{disk}' from VM '{vmid}' as '{target_disk}' to VM '{target}'"));
        let done = dc.storage.give(&self.host, drive.file(), target.number()).map_err(ApiError::server)?;
        drive.set("file", done.volume);
        let config = &mut load_mut(dc, &self.host, vmid)?.config;
        let mut order = boot::boot_order(&config.current);
        if order.iter().any(|device| device == disk) {
            worker.say(format!("removing disk '{disk}' from boot order config"));
            order.retain(|device| device != disk);
            config.current.insert("boot".into(), boot::written(&order));
        }
        config.current.remove(disk);
        worker.say(format!("removing disk '{disk}' from VM '{vmid}' config"));
        config.write().map_err(ApiError::server)?;
        if is_unused(target_disk) {
            let config = &mut load_mut(dc, &self.host, target)?.config;
            config.current.insert(target_disk.clone(), drive.to_string());
            return config.write().map_err(ApiError::server);
        }
        let set = Section::from([(target_disk.clone(), drive.to_string())]);
        Update::of(target, &self.host, &self.caller, set, self.target_digest.clone())
            .apply(dc, ground, worker)
    }
}
