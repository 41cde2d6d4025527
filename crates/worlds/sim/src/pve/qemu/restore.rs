//! Backups of VMs, and VMs from backups.

use std::time::Duration;

use ichor_model::VmId;
use serde::{Deserialize, Serialize};

use super::{
    config::{Config, Section},
    load_mut,
    network::{Net, is_net, random_mac},
    power::Start,
    rights::{self, Subject},
    work::{LOCK_WAIT, Waiter},
};
use crate::{
    ground::{Content, Ground},
    pve::{
        ApiError, Call, Caller, Datacentre, Exit, Lock, Mode, Next, Params, Reply, Worker,
        drive::{Drive, is_slot},
        qemu,
        storage::{
            images::timestamp,
            shelves::{NewVolume, Shelf, Volume},
            volume::ContentType,
        },
        tasks,
    },
};

/// How long a restore takes.
const RESTORING: Duration = Duration::from_secs(10);

/// Checks an archive before the task.
pub fn check(dc: &Datacentre, subject: Subject, options: &Section, archive: &str) -> Result<(), ApiError> {
    if let Some(slot) = options.keys().find(|key| is_slot(key)) {
        return Err(ApiError::param(slot, "option conflicts with option 'archive'"));
    }
    if archive == "-" {
        return Err(ApiError::server("pipe requires cli environment"));
    }
    rights::check_volume(dc, subject.caller, Some(subject.vmid), archive, Some(ContentType::Backup))?;
    let there = dc.hosts.keys().any(|host| dc.storage.get(host, archive).is_some());
    if there { Ok(()) } else { Err(ApiError::server(format!("volume '{archive}' does not exist"))) }
}

/// Starts the task `qmrestore`.
pub fn begin(
    dc: &mut Datacentre,
    ground: &mut Ground,
    call: &Call,
    params: &Params,
    archive: &str,
    options: Section,
) -> Reply {
    let (vmid, host) = (params.path_vmid(), params.host());
    let work = Restore {
        vmid,
        host: host.clone(),
        caller: call.caller.clone(),
        archive: archive.to_owned(),
        storage: params.text("storage"),
        pool: params.text("pool"),
        unique: params.flag("unique"),
        start: params.flag("start"),
        options,
        waiter: Waiter::default(),
        restoring: false,
    };
    let work = tasks::Work::Qemu(qemu::Work::Restore(Box::new(work)));
    Ok(tasks::start(dc, ground, &host, "qmrestore", &vmid.to_string(), &call.caller.id, work).into())
}

/// The task `qmrestore`. Only its refusals were recorded; its success is plausible.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Restore {
    vmid: VmId,
    host: String,
    caller: Caller,
    archive: String,
    storage: Option<String>,
    pool: Option<String>,
    unique: bool,
    start: bool,
    options: Section,
    waiter: Waiter,
    restoring: bool,
}

/// What the lab keeps in a backup.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Archive {
    config: Section,
    /// Slots, sizes and contents of disks.
    disks: Vec<(String, u64, Content)>,
}

impl Restore {
    /// Does the next stretch.
    pub fn step(&mut self, dc: &mut Datacentre, ground: &mut Ground, worker: &mut Worker) -> Next {
        match self.advance(dc, ground, worker) {
            Ok(Some(next)) => next,
            Ok(None) => Next::Done(Exit::Ok),
            Err(error) => {
                if let Ok(vm) = load_mut(dc, &self.host, self.vmid) {
                    vm.config.current.remove("lock");
                }
                worker.say(format!(
                    "error before or during data restore, some or all disks were not completely restored. VM {} \
                     state is NOT cleaned up.",
                    self.vmid
                ));
                Next::Done(Exit::Failed(error.as_text()))
            }
        }
    }

    fn advance(
        &mut self,
        dc: &mut Datacentre,
        ground: &mut Ground,
        worker: &mut Worker,
    ) -> Result<Option<Next>, ApiError> {
        if !self.restoring {
            let lock = Lock::Vm(self.vmid);
            let wait = Duration::from_secs(1);
            if let Some(next) = self.waiter.take(dc, ground, worker, &lock, Mode::Exclusive, wait)? {
                return Ok(Some(next));
            }
            let vm = load_mut(dc, &self.host, self.vmid)?;
            let refused =
                |text: &str| ApiError::server(format!("unable to restore VM {} - {text}", self.vmid));
            if vm.config.flag("protection") {
                return Err(refused("protection mode enabled"));
            }
            if vm.runs() {
                return Err(refused("vm is running"));
            }
            self.restoring = true;
            return Ok(Some(Next::After(RESTORING)));
        }
        self.restore(dc, ground, worker)?;
        Ok(None)
    }

    fn restore(&self, dc: &mut Datacentre, ground: &mut Ground, worker: &mut Worker) -> Result<(), ApiError> {
        let volume = dc
            .storage
            .get(&self.host, &self.archive)
            .ok_or_else(|| ApiError::server(format!("volume '{}' does not exist", self.archive)))?;
        let archive: Archive = match ground.media.get(volume.content) {
            Content::Bytes(bytes) => serde_json::from_slice(bytes)
                .map_err(|_| ApiError::server("unable to restore: no VMA header found"))?,
            _ => return Err(ApiError::server("unable to restore: no VMA header found")),
        };
        let old: Vec<String> = load_mut(dc, &self.host, self.vmid)?
            .config
            .drives()
            .iter()
            .filter(|drive| !drive.is_plain_disc())
            .map(|drive| drive.file().to_owned())
            .collect();
        for volume in &old {
            if super::update::owns(dc, self.vmid, volume) {
                let _ = dc.storage.free(&self.host, volume, &mut ground.media);
            }
        }
        let mut config = archive.config;
        for (slot, size, content) in archive.disks {
            let text = self.restore_disk(dc, ground, worker, &config, &slot, size, content)?;
            config.insert(slot, text);
        }
        if self.unique {
            let prefix = dc.mac_prefix();
            for (_, value) in config.iter_mut().filter(|(key, _)| is_net(key)) {
                let mut net = Net::read(value);
                net.set_mac(&random_mac(&prefix, &mut ground.random));
                *value = net.to_string();
            }
        }
        config.insert("vmgenid".into(), ground.random.uuid());
        config.extend(self.options.clone());
        let mut config = Config { current: config, ..Config::default() };
        config.write().map_err(ApiError::server)?;
        load_mut(dc, &self.host, self.vmid)?.config = config;
        if let Some(pool) = &self.pool {
            dc.join_pool(self.vmid, pool);
        }
        if self.start {
            worker.say("Execute autostart");
            Start::begin(dc, ground, &self.host, self.vmid, &self.caller, true);
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments)]
    fn restore_disk(
        &self,
        dc: &mut Datacentre,
        ground: &mut Ground,
        worker: &mut Worker,
        config: &Section,
        slot: &str,
        size: u64,
        content: Content,
    ) -> Result<String, ApiError> {
        let unparsable = || ApiError::server(format!("unable to parse drive options for '{slot}'"));
        let mut drive = config.get(slot).and_then(|text| Drive::read(slot, text)).ok_or_else(unparsable)?;
        let found = drive.volume().ok_or_else(unparsable)?;
        let storage = self.storage.clone().unwrap_or(found.storage);
        let definition = dc.storage.activate(&storage, &self.host).map_err(ApiError::server)?;
        let wished = drive.file().rsplit('.').next().unwrap_or("raw").to_owned();
        let format = definition.format_for(&wished).to_owned();
        let wish = NewVolume {
            storage: &storage,
            owner: self.vmid.number(),
            format: &format,
            name: None,
            kib: size.div_ceil(1024),
        };
        let now = ground.now.unix_seconds();
        let done = dc.storage.alloc(&self.host, now, &mut ground.media, &wish).map_err(ApiError::server)?;
        worker.log.extend(done.printed);
        worker.say(format!("new volume ID is '{}'", done.volume));
        if let Some(volume) = dc.storage.get_mut(&self.host, &done.volume) {
            ground.media.set(volume.content, content);
        }
        drive.set("file", done.volume);
        drive.set_size(size);
        Ok(drive.to_string())
    }
}

/// A backup run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Vzdump {
    host: String,
    vmids: Vec<VmId>,
    storage: String,
    told: String,
    mode: String,
    compress: String,
    waiter: Waiter,
    stage: DumpStage,
    failed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum DumpStage {
    Begin,
    Next,
    Dumping,
}

impl Vzdump {
    /// Plans a run.
    pub fn new(
        host: &str,
        vmids: Vec<VmId>,
        storage: &str,
        told: String,
        mode: &str,
        compress: &str,
    ) -> Self {
        Self {
            host: host.to_owned(),
            vmids,
            storage: storage.to_owned(),
            told,
            mode: mode.to_owned(),
            compress: compress.to_owned(),
            waiter: Waiter::default(),
            stage: DumpStage::Begin,
            failed: false,
        }
    }

    /// Does the next stretch.
    pub fn step(&mut self, dc: &mut Datacentre, ground: &mut Ground, worker: &mut Worker) -> Next {
        loop {
            match self.stage {
                DumpStage::Begin => {
                    if let Err(text) = self.check(dc) {
                        return Next::Done(Exit::Failed(text));
                    }
                    worker.say(format!("INFO: starting new backup job: vzdump {}", self.told));
                    self.stage = DumpStage::Next;
                }
                DumpStage::Next => {
                    let Some(vmid) = self.vmids.first().copied() else {
                        return self.finished(worker);
                    };
                    match self.begin_one(dc, ground, worker, vmid) {
                        Ok(Some(next)) => return next,
                        Ok(None) => {
                            self.stage = DumpStage::Dumping;
                            return Next::After(RESTORING);
                        }
                        Err(text) => self.fail_one(dc, ground, worker, vmid, &text),
                    }
                }
                DumpStage::Dumping => {
                    let Some(vmid) = self.vmids.first().copied() else { return self.finished(worker) };
                    self.stage = DumpStage::Next;
                    match self.dump(dc, ground, worker, vmid) {
                        Ok(()) => {
                            self.vmids.remove(0);
                            worker.unlock(dc, &Lock::Vm(vmid));
                        }
                        Err(text) => self.fail_one(dc, ground, worker, vmid, &text),
                    }
                }
            }
        }
    }

    fn finished(&self, worker: &mut Worker) -> Next {
        if self.failed {
            worker.say("INFO: Backup job finished with errors");
            return Next::Done(Exit::Failed("job errors".into()));
        }
        worker.say("INFO: Backup job finished successfully");
        Next::Done(Exit::Ok)
    }

    fn check(&self, dc: &Datacentre) -> Result<(), String> {
        let storage = &self.storage;
        if let Err(text) = dc.storage.activate(storage, &self.host) {
            return Err(format!(
                "could not activate storage '{storage}': {text} could not get storage information for '{storage}': \
                 {text}"
            ));
        }
        let holds =
            dc.storage.definition(storage).is_ok_and(|definition| definition.holds(ContentType::Backup));
        if holds {
            return Ok(());
        }
        Err(format!(
            "could not get storage information for '{storage}': can't use storage '{storage}' for backups - wrong \
             content type"
        ))
    }

    fn begin_one(
        &mut self,
        dc: &mut Datacentre,
        ground: &Ground,
        worker: &mut Worker,
        vmid: VmId,
    ) -> Result<Option<Next>, String> {
        let host = self.host.clone();
        if dc.vms.get(&vmid).is_none_or(|vm| vm.host != host) {
            return Err(format!("unable to find VM '{vmid}'"));
        }
        let lock = Lock::Vm(vmid);
        let taken = self.waiter.take(dc, ground, worker, &lock, Mode::Exclusive, LOCK_WAIT);
        if let Some(next) = taken.map_err(|error| error.reason().to_owned())? {
            return Ok(Some(next));
        }
        let vm = load_mut(dc, &host, vmid).map_err(|error| error.reason().to_owned())?;
        vm.config.check_lock()?;
        worker.say(format!("INFO: Starting Backup of VM {vmid} (qemu)"));
        worker.say(format!("INFO: Backup started at {}", timestamp(ground.now)));
        worker.say(format!("INFO: status = {}", if vm.runs() { "running" } else { "stopped" }));
        worker.say(format!("INFO: backup mode: {}", if vm.runs() { self.mode.as_str() } else { "stop" }));
        worker.say(format!("INFO: VM Name: {}", vm.config.get("name").unwrap_or("VM")));
        vm.config.current.insert("lock".into(), "backup".into());
        Ok(None)
    }

    fn fail_one(
        &mut self,
        dc: &mut Datacentre,
        ground: &Ground,
        worker: &mut Worker,
        vmid: VmId,
        text: &str,
    ) {
        worker.say(format!("ERROR: Backup of VM {vmid} failed - {text}"));
        worker.say(format!("INFO: Failed at {}", timestamp(ground.now)));
        worker.unlock(dc, &Lock::Vm(vmid));
        if let Some(vm) = dc.vms.get_mut(&vmid)
            && vm.config.lock() == Some("backup")
        {
            vm.config.current.remove("lock");
        }
        self.vmids.remove(0);
        self.stage = DumpStage::Next;
        self.failed = true;
    }

    fn dump(
        &self,
        dc: &mut Datacentre,
        ground: &mut Ground,
        worker: &mut Worker,
        vmid: VmId,
    ) -> Result<(), String> {
        let vm = load_mut(dc, &self.host, vmid).map_err(|error| error.reason().to_owned())?;
        vm.config.current.remove("lock");
        let config = vm.config.clone();
        let mut archive = Archive { config: config.current.clone(), disks: Vec::new() };
        archive.config.retain(|key, _| !["parent", "lock"].contains(&key.as_str()));
        let mut bytes = 1 << 16;
        for drive in config.drives().iter().filter(|drive| !drive.is_disc()) {
            if drive.get("backup") == Some("0") {
                archive.config.remove(&drive.slot);
                continue;
            }
            let volume = dc
                .storage
                .get(&self.host, drive.file())
                .ok_or_else(|| format!("volume '{}' does not exist", drive.file()))?;
            bytes += volume.used;
            archive.disks.push((drive.slot.clone(), volume.size, ground.media.get(volume.content).clone()));
        }
        let text = serde_json::to_vec(&archive).map_err(|error| error.to_string())?;
        let suffix = match self.compress.as_str() {
            "gzip" => ".gz",
            "lzo" | "1" => ".lzo",
            "zstd" => ".zst",
            _ => "",
        };
        let time = timestamp(ground.now).replace('-', "_").replace(' ', "-").replace(':', "_");
        let name = format!("{}:backup/vzdump-qemu-{vmid}-{time}.vma{suffix}", self.storage);
        let path = dc.storage.path(&name)?;
        let free = dc.storage.shelf(&self.storage, &self.host).map_or(u64::MAX, Shelf::free);
        if free < bytes {
            return Err("vma_queue_write: write error - No space left on device".into());
        }
        let content = ground.media.add(Content::Bytes(text));
        let volume = Volume::fresh("vma", bytes, bytes, ground.now.unix_seconds(), content);
        dc.storage.put(&self.host, &name, volume)?;
        worker.say(format!("INFO: creating vzdump archive '{path}'"));
        worker.say(format!("INFO: archive file size: {}", super::disks::rendered(bytes)));
        worker.say(format!("INFO: Finished Backup of VM {vmid} (00:00:10)"));
        Ok(())
    }
}
