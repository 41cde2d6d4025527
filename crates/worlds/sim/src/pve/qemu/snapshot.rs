//! Snapshots of VMs.

// Handlers share one signature, whether they can fail or not.
#![allow(clippy::unnecessary_wraps)]

use std::time::Duration;

use ichor_model::VmId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    config::{Config, Section, drives},
    load, load_mut,
    power::{self, Start},
    update::owns,
    work::Waiter,
};
use crate::{
    ground::{Content, Ground},
    pve::{
        Answer, ApiError, Call, Caller, Datacentre, Lock, Next, Params, Reply, Worker,
        drive::{Drive, is_unused},
        qemu,
        storage::shelves::NewVolume,
        tasks,
    },
};

/// How long a snapshot takes.
const TAKING: Duration = Duration::from_secs(1);

/// Answers `GET .../snapshot`.
pub fn list(dc: &mut Datacentre, _ground: &mut Ground, _call: &mut Call, params: &Params) -> Reply {
    let vm = load(dc, &params.host(), params.path_vmid())?;
    let mut rows: Vec<Value> = vm
        .config
        .snapshots
        .iter()
        .map(|(name, section)| {
            let number = |key: &str| section.get(key).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
            let mut row = json!({
                "name": name,
                "snaptime": number("snaptime"),
                "vmstate": u8::from(section.contains_key("vmstate")),
                "description": section.get("description").map_or("", String::as_str),
            });
            for key in ["parent", "snapstate"] {
                if let Some(value) = section.get(key) {
                    row[key] = value.as_str().into();
                }
            }
            row
        })
        .collect();
    let mut current = json!({
        "name": "current",
        "digest": vm.config.digest(),
        "running": u8::from(vm.runs()),
        "description": "You are here!",
    });
    if let Some(parent) = vm.config.get("parent") {
        current["parent"] = parent.into();
    }
    rows.push(current);
    Ok(Value::Array(rows).into())
}

/// Answers `GET .../snapshot/{snapname}`.
pub fn index(_dc: &mut Datacentre, _ground: &mut Ground, _call: &mut Call, _params: &Params) -> Reply {
    Ok(json!([{ "cmd": "rollback" }, { "cmd": "config" }]).into())
}

/// Answers `GET .../snapshot/{snapname}/config`.
pub fn show(dc: &mut Datacentre, _ground: &mut Ground, _call: &mut Call, params: &Params) -> Reply {
    let vm = load(dc, &params.host(), params.path_vmid())?;
    let name = params.text_or_empty("snapname");
    let shown = vm.config.shown_snapshot(&name).ok_or_else(|| missing(&name))?;
    Ok(Value::Object(shown).into())
}

/// Answers `PUT .../snapshot/{snapname}/config`.
pub fn describe(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let Some(text) = params.text("description") else { return Ok(Answer::null()) };
    let (vmid, host) = (params.path_vmid(), params.host());
    call.lock(dc, ground, &Lock::Vm(vmid))?;
    let config = &mut load_mut(dc, &host, vmid)?.config;
    config.check_lock().map_err(ApiError::server)?;
    let name = params.text_or_empty("snapname");
    let section = config.snapshots.get_mut(&name).ok_or_else(|| missing(&name))?;
    section.insert("description".into(), text);
    config.write().map_err(ApiError::server)?;
    Ok(Answer::null())
}

fn missing(name: &str) -> ApiError {
    ApiError::server(format!("snapshot '{name}' does not exist"))
}

/// Answers `POST .../snapshot`.
pub fn take(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("snapname");
    let reserved = match name.as_str() {
        "current" => Some("current"),
        other if other.eq_ignore_ascii_case("pending") => Some("pending"),
        _ => None,
    };
    if let Some(reserved) = reserved {
        let text = format!("unable to use snapshot name '{reserved}' (reserved name)");
        return Err(ApiError::server(text).into());
    }
    load(dc, &params.host(), params.path_vmid())?;
    let deed = Deed::Take { state: params.flag("vmstate"), description: params.text("description") };
    begin(dc, ground, call, params, "qmsnapshot", deed)
}

/// Answers `DELETE .../snapshot/{snapname}`.
pub fn delete(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    begin(dc, ground, call, params, "qmdelsnapshot", Deed::Delete { force: params.flag("force") })
}

/// Answers `POST .../snapshot/{snapname}/rollback`.
pub fn roll_back(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    if params.flag("start") {
        dc.check(&call.caller, &format!("/vms/{}", params.path_vmid()), &["VM.PowerMgmt"])?;
    }
    begin(dc, ground, call, params, "qmrollback", Deed::RollBack { start: params.flag("start") })
}

fn begin(
    dc: &mut Datacentre,
    ground: &mut Ground,
    call: &Call,
    params: &Params,
    kind: &str,
    deed: Deed,
) -> Reply {
    let (vmid, host) = (params.path_vmid(), params.host());
    let work = Snapshot {
        vmid,
        host: host.clone(),
        caller: call.caller.clone(),
        name: params.text_or_empty("snapname"),
        deed,
        waiter: Waiter::default(),
        begun: false,
    };
    let work = tasks::Work::Qemu(qemu::Work::Snapshot(work));
    Ok(tasks::start(dc, ground, &host, kind, &vmid.to_string(), &call.caller.id, work).into())
}

/// The tasks `qmsnapshot`, `qmdelsnapshot` and `qmrollback`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    vmid: VmId,
    host: String,
    caller: Caller,
    name: String,
    deed: Deed,
    waiter: Waiter,
    begun: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Deed {
    Take { state: bool, description: Option<String> },
    Delete { force: bool },
    RollBack { start: bool },
}

impl Snapshot {
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
        if let Some(next) = self.waiter.take_vm(dc, ground, worker, self.vmid)? {
            return Ok(Some(next));
        }
        if !self.begun {
            match &self.deed {
                Deed::Take { .. } => self.prepare(dc, ground)?,
                Deed::Delete { .. } => self.lock_for_deletion(dc)?,
                Deed::RollBack { .. } => self.lock_for_rollback(dc, ground)?,
            }
            self.begun = true;
            // The lock file is let go between preparing and finishing; the config stays locked.
            worker.unlock(dc, &Lock::Vm(self.vmid));
            return Ok(Some(Next::After(TAKING)));
        }
        match self.deed.clone() {
            Deed::Take { .. } => self.commit(dc, ground, worker)?,
            Deed::Delete { .. } => self.remove(dc, ground)?,
            Deed::RollBack { start } => self.restore(dc, ground, start)?,
        }
        Ok(None)
    }

    fn config<'a>(&self, dc: &'a mut Datacentre) -> Result<&'a mut Config, ApiError> {
        Ok(&mut load_mut(dc, &self.host, self.vmid)?.config)
    }

    fn prepare(&self, dc: &mut Datacentre, ground: &mut Ground) -> Result<(), ApiError> {
        let Deed::Take { state, description } = &self.deed else { return Ok(()) };
        let vm = load(dc, &self.host, self.vmid)?;
        let config = &vm.config;
        if config.is_template() {
            return Err(ApiError::server("you can't take a snapshot if it's a template"));
        }
        config.check_lock().map_err(ApiError::server)?;
        if config.snapshots.contains_key(&self.name) {
            return Err(ApiError::server(format!("snapshot name '{}' already used", self.name)));
        }
        if !has_feature(dc, config, "snapshot") {
            return Err(ApiError::server("snapshot feature is not available"));
        }
        let mut section = copied(&config.current);
        let running = vm.runs();
        if *state && running {
            let volume = self.state_volume(dc, ground)?;
            section.insert("vmstate".into(), volume);
            section.insert("runningmachine".into(), "pc-q35-10.0+pve0".into());
        }
        section.insert("snapstate".into(), "prepare".into());
        section.insert("snaptime".into(), ground.now.unix_seconds().to_string());
        if let Some(text) = description.as_ref().filter(|text| !text.is_empty()) {
            section.insert("description".into(), text.clone());
        }
        let config = self.config(dc)?;
        for other in config.snapshots.values_mut() {
            if other.get("parent") == Some(&self.name) {
                other.remove("parent");
            }
        }
        config.snapshots.insert(self.name.clone(), section);
        config.current.insert("lock".into(), "snapshot".into());
        config.write().map_err(ApiError::server)
    }

    /// Makes the volume that keeps the memory of a running VM.
    fn state_volume(&self, dc: &mut Datacentre, ground: &mut Ground) -> Result<String, ApiError> {
        let config = &load(dc, &self.host, self.vmid)?.config;
        let storage = config
            .get("vmstatestorage")
            .map(str::to_owned)
            .or_else(|| {
                let drives = config.drives();
                let disk = drives.iter().find(|drive| !drive.is_disc())?;
                disk.volume().map(|volume| volume.storage)
            })
            .unwrap_or_else(|| "local".into());
        let mib = config.memory_mib().saturating_mul(2).saturating_add(500);
        let files = dc.storage.definition(&storage).map_err(ApiError::server)?.naming().is_files();
        let suffix = if files { ".raw" } else { "" };
        let name = format!("vm-{}-state-{}{suffix}", self.vmid, self.name);
        let wish = NewVolume {
            storage: &storage,
            owner: self.vmid.number(),
            format: "raw",
            name: Some(&name),
            kib: mib.saturating_mul(1024),
        };
        let now = ground.now.unix_seconds();
        let done = dc.storage.alloc(&self.host, now, &mut ground.media, &wish).map_err(ApiError::server)?;
        Ok(done.volume)
    }

    fn commit(&self, dc: &mut Datacentre, ground: &mut Ground, worker: &mut Worker) -> Result<(), ApiError> {
        let running = load(dc, &self.host, self.vmid)?.runs();
        let config = self.config(dc)?;
        if config.lock() != Some("snapshot") {
            return Err(ApiError::server("missing snapshot lock"));
        }
        let section = config.snapshots.get(&self.name).cloned().ok_or_else(|| missing(&self.name))?;
        if let Some(volume) = section.get("vmstate") {
            let storage = volume.split(':').next().unwrap_or_default();
            worker.say(format!("saving VM state and RAM using storage '{storage}'"));
            worker.say("completed saving the VM state in 1s, saved 64.0 MiB");
        }
        for drive in drives(&section).iter().filter(|drive| !drive.is_disc()) {
            worker.say(format!("snapshotting 'drive-{}' ({})", drive.slot, drive.file()));
            let format = dc.storage.look_up(drive.file()).map(|found| found.name.format).unwrap_or_default();
            if running && format == "qcow2" {
                worker.say("internal qemu snapshot");
            }
            if let Some(volume) = dc.storage.get_mut(&self.host, drive.file()) {
                let kept = (volume.size, ground.media.copy(volume.content));
                volume.snapshots.insert(self.name.clone(), kept);
            }
        }
        let config = self.config(dc)?;
        if let Some(section) = config.snapshots.get_mut(&self.name) {
            section.remove("snapstate");
        }
        config.current.remove("lock");
        config.current.insert("parent".into(), self.name.clone());
        config.write().map_err(ApiError::server)
    }

    fn lock_for_deletion(&self, dc: &mut Datacentre) -> Result<(), ApiError> {
        let name = self.name.clone();
        let config = self.config(dc)?;
        if !config.snapshots.contains_key(&name) {
            return Err(missing(&name));
        }
        config.check_lock().map_err(ApiError::server)?;
        if config.is_template() {
            return Err(ApiError::server("you can't delete a snapshot if vm is a template"));
        }
        config.current.insert("lock".into(), "snapshot-delete".into());
        if let Some(section) = config.snapshots.get_mut(&name) {
            section.insert("snapstate".into(), "delete".into());
        }
        Ok(())
    }

    fn remove(&self, dc: &mut Datacentre, ground: &mut Ground) -> Result<(), ApiError> {
        let section =
            self.config(dc)?.snapshots.get(&self.name).cloned().ok_or_else(|| missing(&self.name))?;
        if let Some(volume) = section.get("vmstate") {
            let _ = dc.storage.free(&self.host, volume, &mut ground.media);
        }
        let volumes: Vec<String> = drives(&section)
            .iter()
            .filter(|drive| !drive.is_disc())
            .map(|drive| drive.file().to_owned())
            .collect();
        for volume in &volumes {
            if let Some(there) = dc.storage.get_mut(&self.host, volume)
                && let Some((_, content)) = there.snapshots.remove(&self.name)
            {
                ground.media.remove(content);
            }
        }
        let owned: Vec<String> = volumes.into_iter().filter(|volume| owns(dc, self.vmid, volume)).collect();
        let parent = section.get("parent").cloned();
        let config = self.config(dc)?;
        config.snapshots.remove(&self.name);
        let sections = config.snapshots.values_mut().chain([&mut config.current]);
        for section in sections.filter(|section| section.get("parent") == Some(&self.name)) {
            match &parent {
                Some(parent) => section.insert("parent".into(), parent.clone()),
                None => section.remove("parent"),
            };
        }
        config.current.remove("lock");
        for volume in owned {
            config.add_unused(&volume).map_err(ApiError::server)?;
        }
        config.write().map_err(ApiError::server)
    }

    fn lock_for_rollback(&self, dc: &mut Datacentre, ground: &mut Ground) -> Result<(), ApiError> {
        let config = &load(dc, &self.host, self.vmid)?.config;
        if config.is_template() {
            return Err(ApiError::server("you can't rollback if vm is a template"));
        }
        let section = config.snapshots.get(&self.name).ok_or_else(|| missing(&self.name))?;
        for drive in drives(section).iter().filter(|drive| !drive.is_disc()) {
            self.check_rollback(dc, drive)?;
        }
        if let Some(state) = section.get("snapstate") {
            let text = format!("unable to rollback to incomplete snapshot (snapstate = {state})");
            return Err(ApiError::server(text));
        }
        config.check_lock().map_err(ApiError::server)?;
        power::switch_off(dc, ground, self.vmid);
        self.config(dc)?.current.insert("lock".into(), "rollback".into());
        Ok(())
    }

    /// ZFS goes back to the newest snapshot only.
    fn check_rollback(&self, dc: &Datacentre, drive: &Drive) -> Result<(), ApiError> {
        let Ok(found) = dc.storage.look_up(drive.file()) else { return Ok(()) };
        let Some(volume) = dc.storage.get(&self.host, drive.file()) else {
            return Err(ApiError::server(format!("volume '{}' does not exist", drive.file())));
        };
        let config = &load(dc, &self.host, self.vmid)?.config;
        let time =
            |name: &str| config.snapshots.get(name).and_then(|section| section.get("snaptime")).cloned();
        let newest = volume.snapshots.keys().max_by_key(|name| time(name));
        let is_zfs = found.naming == crate::pve::storage::volume::Naming::Zfs;
        if is_zfs && newest.is_some_and(|newest| *newest != self.name) {
            let (name, file) = (&self.name, drive.file());
            let text = format!("can't rollback, '{name}' is not most recent snapshot on '{file}'");
            return Err(ApiError::server(text));
        }
        Ok(())
    }

    fn restore(&self, dc: &mut Datacentre, ground: &mut Ground, start: bool) -> Result<(), ApiError> {
        let config = self.config(dc)?;
        let section = config.snapshots.get(&self.name).cloned().ok_or_else(|| missing(&self.name))?;
        let kept: Vec<String> = drives(&section).iter().map(|drive| drive.file().to_owned()).collect();
        let lost: Vec<String> = config
            .drives()
            .iter()
            .filter(|drive| !drive.is_plain_disc() && !kept.iter().any(|volume| volume == drive.file()))
            .map(|drive| drive.file().to_owned())
            .collect();
        for drive in drives(&section).iter().filter(|drive| !drive.is_disc()) {
            if let Some(volume) = dc.storage.get_mut(&self.host, drive.file())
                && let Some((size, content)) = volume.snapshots.get(&self.name).copied()
            {
                let content: Content = ground.media.get(content).clone();
                ground.media.set(volume.content, content);
                volume.size = size;
            }
        }
        let config = self.config(dc)?;
        config.current.remove("lock");
        for volume in lost {
            config.add_unused(&volume).map_err(ApiError::server)?;
        }
        let mut current = copied(&section);
        let stays = config.current.iter().filter(|(key, _)| is_unused(key) || *key == "description");
        current.extend(stays.map(|(key, value)| (key.clone(), value.clone())));
        let with_state = section.contains_key("vmstate");
        for key in ["runningmachine", "runningcpu", "running-nets-host-mtu"] {
            current.remove(key);
        }
        if current.contains_key("vmgenid") {
            current.insert("vmgenid".into(), ground.random.uuid());
        }
        current.insert("parent".into(), self.name.clone());
        config.current = current;
        config.pending.clear();
        config.deletes.clear();
        config.write().map_err(ApiError::server)?;
        if with_state {
            power::launch(dc, ground, &self.host, self.vmid)?;
        } else if start {
            Start::begin(dc, ground, &self.host, self.vmid, &self.caller, true);
        }
        Ok(())
    }
}

/// Returns what a snapshot keeps of a config.
fn copied(section: &Section) -> Section {
    let left = ["snapstate", "snaptime", "vmstate", "lock", "digest", "description"];
    section
        .iter()
        .filter(|(key, _)| !left.contains(&key.as_str()) && !is_unused(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Returns whether all disks of a config have a feature.
pub fn has_feature(dc: &Datacentre, config: &Config, feature: &str) -> bool {
    section_has_feature(dc, &config.current, feature, false)
}

/// Returns whether all disks of a section have a feature.
pub fn section_has_feature(dc: &Datacentre, section: &Section, feature: &str, of_snapshot: bool) -> bool {
    drives(section).iter().filter(|drive| !drive.is_disc()).all(|drive| {
        let Ok(found) = dc.storage.look_up(drive.file()) else { return false };
        dc.storage.definition(&found.id.storage).is_ok_and(|definition| {
            definition.has_feature(feature, &found.name.format, found.name.is_base, of_snapshot)
        })
    })
}

/// Answers `GET .../feature`.
pub fn feature(dc: &mut Datacentre, _ground: &mut Ground, _call: &mut Call, params: &Params) -> Reply {
    let (vmid, host) = (params.path_vmid(), params.host());
    super::exists(dc, &host, vmid)?;
    let config = &load(dc, &host, vmid)?.config;
    let snapshot = params.text("snapname").filter(|name| !name.is_empty());
    let section = match &snapshot {
        Some(name) => config.snapshots.get(name).ok_or_else(|| missing(name))?,
        None => &config.current,
    };
    let feature = params.text_or_empty("feature");
    let has = section_has_feature(dc, section, &feature, snapshot.is_some());
    Ok(json!({ "hasFeature": u8::from(has), "nodes": shared_hosts(dc, section, &host) }).into())
}

/// Returns the hosts where all volumes of a VM are.
fn shared_hosts(dc: &Datacentre, section: &Section, host: &str) -> Vec<String> {
    let mut hosts: Vec<String> = dc.hosts.keys().cloned().collect();
    for drive in drives(section) {
        let Some(definition) = drive.volume().and_then(|id| dc.storage.definitions.get(&id.storage)) else {
            continue;
        };
        if definition.is_disabled() {
            hosts.clear();
        } else if !definition.nodes.is_empty() {
            hosts.retain(|name| definition.nodes.contains(name));
        } else if !definition.is_shared() {
            hosts.retain(|name| name == host);
        }
    }
    hosts
}
