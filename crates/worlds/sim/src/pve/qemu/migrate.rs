//! Migration to another host.

use std::{collections::BTreeMap, time::Duration};

use ichor_model::VmId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    config::{Config, drives},
    load, load_mut,
    work::Waiter,
};
use crate::{
    clock::Time,
    ground::Ground,
    pve::{
        ApiError, Call, Datacentre, Exit, Next, Params, Reply, Worker,
        drive::{Drive, is_unused, numbered},
        ha,
        params::split_list,
        qemu,
        storage::{
            definition::Definition,
            volume::{ContentType, VolumeId},
        },
        tasks,
    },
};

/// How long a migration takes, and how much longer for each local disk.
const MOVING: Duration = Duration::from_secs(3);
const COPYING_DISK: Duration = Duration::from_secs(10);

/// Answers `GET .../migrate`: what would stand in the way.
pub fn precondition(dc: &mut Datacentre, _ground: &mut Ground, _call: &mut Call, params: &Params) -> Reply {
    let (vmid, host) = (params.path_vmid(), params.host());
    let vm = load(dc, &host, vmid)?;
    vm.config.check_lock().map_err(ApiError::server)?;
    let (local, mapped) = local_resources(&vm.config);
    let mut allowed = Vec::new();
    let mut not_allowed = Map::new();
    for name in dc.hosts.keys().filter(|name| **name != host) {
        let unavailable = unavailable_storages(dc, &vm.config, name);
        if unavailable.is_empty() {
            allowed.push(name.clone());
            not_allowed.insert(name.clone(), json!({}));
        } else {
            not_allowed.insert(name.clone(), json!({ "unavailable_storages": unavailable }));
        }
    }
    let mapped_info: Map<String, Value> = mapped
        .iter()
        .map(|(key, name)| (key.clone(), json!({ "name": name, "is-live-migratable": 0 })))
        .collect();
    let mut answer = json!({
        "running": u8::from(vm.runs()),
        "allowed_nodes": allowed,
        "not_allowed_nodes": not_allowed,
        "local_disks": local_disks(dc, &vm.config),
        "local_resources": local,
        "mapped-resources": mapped.keys().collect::<Vec<_>>(),
        "mapped-resource-info": mapped_info,
        "has-dbus-vmstate": 1,
    });
    if dc.ha.commands(vmid) {
        answer["dependent-ha-resources"] = json!([]);
    }
    Ok(answer.into())
}

/// Returns devices that stay on their host, and mapped ones by option.
fn local_resources(config: &Config) -> (Vec<String>, BTreeMap<String, String>) {
    let mut local = Vec::new();
    let mut mapped = BTreeMap::new();
    for (key, value) in &config.current {
        let Some((family, _)) = numbered(key) else { continue };
        if !["usb", "hostpci", "serial", "parallel"].contains(&family) || value == "socket" {
            continue;
        }
        if family == "usb" && value.starts_with("spice") {
            continue;
        }
        match value.split(',').find_map(|part| part.strip_prefix("mapping=")) {
            Some(name) => {
                mapped.insert(key.clone(), name.to_owned());
            }
            None => local.push(key.clone()),
        }
    }
    (local, mapped)
}

fn unavailable_storages(dc: &Datacentre, config: &Config, host: &str) -> Vec<String> {
    let mut names: Vec<String> = config
        .drives()
        .iter()
        .filter_map(|drive| drive.volume().map(|volume| volume.storage))
        .filter(|name| {
            dc.storage
                .definitions
                .get(name)
                .is_some_and(|definition| definition.is_disabled() || !definition.is_on(host))
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

/// A volume that only one host sees, and how the VM uses it.
fn local_disks(dc: &Datacentre, config: &Config) -> Vec<Value> {
    let mut rows: BTreeMap<String, Value> = BTreeMap::new();
    let mut add = |key: &str, drive: &Drive, attached: bool| {
        let Some(volume) = drive.volume() else { return };
        if dc.storage.definitions.get(&volume.storage).is_none_or(Definition::is_shared) {
            return;
        }
        let replicate = drive.get("replicate").is_none_or(|flag| flag == "1");
        let row = rows.entry(drive.file().to_owned()).or_insert_with(|| {
            json!({
                "volid": drive.file(),
                "cdrom": u8::from(drive.is_disc()),
                "is_cloudinit": u8::from(drive.is_cloud_init()),
                "replicate": u8::from(replicate),
                "shared": u8::from(drive.flag("shared")),
                "is_unused": u8::from(is_unused(key)),
                "is_attached": u8::from(attached && !is_unused(key)),
                "is_vmstate": u8::from(key == "vmstate"),
                "is_tpmstate": u8::from(key == "tpmstate0"),
            })
        });
        if let Some(size) = drive.size() {
            row["size"] = size.into();
        }
        if !is_unused(key) {
            row["drivename"] = key.into();
        }
    };
    for drive in config.drives() {
        add(&drive.slot, &drive, true);
    }
    for (key, value) in config.current.iter().filter(|(key, _)| is_unused(key)) {
        add(key, &Drive::of_volume(key, value), false);
    }
    for (name, section) in &config.snapshots {
        for drive in drives(section) {
            add(&drive.slot, &drive, false);
        }
        let _ = name;
    }
    rows.into_values().collect()
}

/// Answers `POST .../migrate`.
pub fn migrate(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let (vmid, host) = (params.path_vmid(), params.host());
    let target = params.text_or_empty("target");
    if target == host {
        return Err(ApiError::param("target", "target is local node.").into());
    }
    if !dc.hosts.contains_key(&target) {
        return Err(ApiError::server(format!("no such cluster node '{target}'")).into());
    }
    for name in ["force", "migration_type", "migration_network"] {
        let given = params.text(name).is_some_and(|text| !text.is_empty() && text != "0");
        if given && !call.caller.is_root() {
            return Err(ApiError::param(name, "Only root may use this option.").into());
        }
    }
    let vm = load(dc, &host, vmid)?;
    vm.config.check_lock().map_err(ApiError::server)?;
    let online = params.flag("online");
    if vm.runs() && !online {
        return Err(ApiError::server("can't migrate running VM without --online").into());
    }
    let map = params.text("targetstorage").map(|text| StorageMap::read(&text));
    match &map {
        Some(map) if !map.identity => {
            dc.check_vm(&call.caller, vmid, None, &["VM.Config.Disk"])?;
            for storage in map.entries.values().chain(&map.default) {
                dc.storage.enabled(storage, &target).map_err(ApiError::server)?;
                dc.check(&call.caller, &format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
                super::rights::check_holds_images(dc, storage).map_err(|_| {
                    ApiError::server(format!("storage '{storage}' does not support vm images"))
                })?;
            }
        }
        _ => check_availability(dc, &vm.config, &host, &target)?,
    }
    if dc.ha.commands(vmid) {
        return Ok(dc.request_ha(ground, &host, &call.caller, ha::Work::Migrate(vmid, target)).into());
    }
    let work = Migrate {
        vmid,
        host: host.clone(),
        target,
        with_local_disks: params.flag("with-local-disks"),
        map: map.unwrap_or_default(),
        waiter: Waiter::default(),
        began: ground.now,
        stage: Stage::Lock,
    };
    let work = tasks::Work::Qemu(qemu::Work::Migrate(Box::new(work)));
    Ok(tasks::start(dc, ground, &host, "qmigrate", &vmid.to_string(), &call.caller.id, work).into())
}

fn check_availability(dc: &Datacentre, config: &Config, host: &str, target: &str) -> Result<(), ApiError> {
    for drive in config.drives() {
        let Some(volume) = drive.volume() else { continue };
        let definition = dc.storage.enabled(&volume.storage, host).map_err(ApiError::server)?;
        dc.storage.enabled(&volume.storage, target).map_err(ApiError::server)?;
        let kind = dc.storage.look_up(drive.file()).map_err(ApiError::server)?.name.kind;
        if !definition.holds(kind) {
            let text = format!(
                "{}: content type '{}' is not available on storage '{}'",
                drive.file(),
                kind.name(),
                volume.storage
            );
            return Err(ApiError::server(text));
        }
    }
    Ok(())
}

/// Where volumes go: `1`, a storage, or pairs of storages.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct StorageMap {
    identity: bool,
    default: Option<String>,
    entries: BTreeMap<String, String>,
}

impl StorageMap {
    fn read(text: &str) -> Self {
        let mut map = Self::default();
        for part in split_list(text) {
            match part.split_once(':') {
                Some((from, to)) => {
                    map.entries.insert(from.to_owned(), to.to_owned());
                }
                None if part == "1" => map.identity = true,
                None => map.default = Some(part),
            }
        }
        map
    }

    fn target<'a>(&'a self, storage: &'a str) -> &'a str {
        self.entries.get(storage).or(self.default.as_ref()).map_or(storage, String::as_str)
    }
}

/// The task `qmigrate`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Migrate {
    vmid: VmId,
    host: String,
    target: String,
    with_local_disks: bool,
    map: StorageMap,
    waiter: Waiter,
    began: Time,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stage {
    Lock,
    Moving,
}

impl Migrate {
    /// Does the next stretch.
    pub fn step(&mut self, dc: &mut Datacentre, ground: &mut Ground, worker: &mut Worker) -> Next {
        match self.advance(dc, ground, worker) {
            Ok(Some(next)) => next,
            Ok(None) => Next::Done(Exit::Ok),
            Err(error) => {
                let text = error.as_text();
                let duration = self.duration(ground);
                say(
                    ground,
                    worker,
                    &format!("ERROR: migration aborted (duration {duration}): {}", text.trim_end()),
                );
                if let Ok(vm) = load_mut(dc, &self.host, self.vmid)
                    && vm.config.lock() == Some("migrate")
                {
                    vm.config.current.remove("lock");
                }
                Next::Done(Exit::Failed("migration aborted".into()))
            }
        }
    }

    fn advance(
        &mut self,
        dc: &mut Datacentre,
        ground: &mut Ground,
        worker: &mut Worker,
    ) -> Result<Option<Next>, ApiError> {
        if self.stage == Stage::Lock {
            if let Some(next) = self.waiter.take_vm(dc, ground, worker, self.vmid)? {
                return Ok(Some(next));
            }
            let time = self.prepare(dc, ground, worker)?;
            self.stage = Stage::Moving;
            return Ok(Some(Next::After(time)));
        }
        self.arrive(dc, ground, worker)?;
        Ok(None)
    }

    /// Checks the way, locks the VM, and says how long it takes.
    fn prepare(
        &self,
        dc: &mut Datacentre,
        ground: &Ground,
        worker: &mut Worker,
    ) -> Result<Duration, ApiError> {
        let address = dc.hosts.get(&self.target).map(|host| host.address.clone()).unwrap_or_default();
        if dc.hosts.get(&self.target).is_none_or(|host| !host.answers()) {
            say(
                ground,
                worker,
                &format!(
                    "# /usr/bin/ssh -e none -o 'BatchMode=yes' -o 'HostKeyAlias={}' root@{address} /bin/true",
                    self.target
                ),
            );
            say(ground, worker, &format!("ssh: connect to host {address} port 22: Connection refused"));
            return Err(ApiError::server("Can't connect to destination address using public key"));
        }
        let vm = load(dc, &self.host, self.vmid)?;
        vm.config.check_lock().map_err(ApiError::server)?;
        let running = vm.runs();
        let (local, _) = local_resources(&vm.config);
        if !local.is_empty() {
            let text = format!("can't migrate VM which uses local devices: {}", local.join(", "));
            return Err(ApiError::server(text));
        }
        say(
            ground,
            worker,
            &format!("starting migration of VM {} to node '{}' ({address})", self.vmid, self.target),
        );
        let disks = self.local_volumes(dc, &vm.config)?;
        for (volume, key) in &disks {
            let how = if is_unused(key) { "unused" } else { "attached" };
            say(ground, worker, &format!("found local disk '{volume}' ({how})"));
        }
        if running && !disks.is_empty() && !self.with_local_disks {
            return Err(ApiError::server(
                "can't live migrate attached local disks without with-local-disks option",
            ));
        }
        if !disks.is_empty() {
            say(ground, worker, "copying local disk images");
        }
        load_mut(dc, &self.host, self.vmid)?.config.current.insert("lock".into(), "migrate".into());
        Ok(MOVING + COPYING_DISK * u32::try_from(disks.len()).unwrap_or(1))
    }

    /// Returns the volumes that must be copied, and the options that name them.
    fn local_volumes(&self, dc: &Datacentre, config: &Config) -> Result<Vec<(String, String)>, ApiError> {
        let mut volumes = Vec::new();
        let unused = config.current.iter().filter(|(key, _)| is_unused(key));
        let unused = unused.map(|(key, value)| Drive::of_volume(key, value));
        for drive in config.drives().into_iter().chain(unused) {
            let Some(id) = drive.volume() else { continue };
            let definition = dc.storage.definition(&id.storage).map_err(ApiError::server)?;
            if definition.is_shared() {
                continue;
            }
            let kind = dc.storage.look_up(drive.file()).map_err(ApiError::server)?.name.kind;
            if kind != ContentType::Images {
                let text = format!("can't migrate local disk '{}': local cdrom image", drive.file());
                return Err(ApiError::server(text));
            }
            dc.storage.enabled(self.map.target(&id.storage), &self.target).map_err(ApiError::server)?;
            volumes.push((drive.file().to_owned(), drive.slot.clone()));
        }
        Ok(volumes)
    }

    /// The VM is on the other host.
    fn arrive(&self, dc: &mut Datacentre, ground: &mut Ground, worker: &mut Worker) -> Result<(), ApiError> {
        if dc.hosts.get(&self.target).is_none_or(|host| !host.answers()) {
            return Err(ApiError::server(format!("connection to node '{}' was lost", self.target)));
        }
        let volumes = self.local_volumes(dc, &load(dc, &self.host, self.vmid)?.config)?;
        for (volume, key) in volumes {
            let moved = self.carry(dc, &volume)?;
            if moved != volume {
                say(ground, worker, &format!("volume '{volume}' is '{moved}' on the target"));
            }
            let config = &mut load_mut(dc, &self.host, self.vmid)?.config;
            let text = config.get(&key).unwrap_or_default().replacen(&volume, &moved, 1);
            config.current.insert(key, text);
        }
        let vm = load_mut(dc, &self.host, self.vmid)?;
        vm.config.current.remove("lock");
        vm.host.clone_from(&self.target);
        if let Some(run) = &mut vm.run {
            run.devices = vm.config.current.clone();
        }
        let duration = self.duration(ground);
        say(ground, worker, &format!("migration finished successfully (duration {duration})"));
        Ok(())
    }

    /// Carries a volume to the other host.
    fn carry(&self, dc: &mut Datacentre, volume: &str) -> Result<String, ApiError> {
        let id = VolumeId::read(volume).ok_or_else(|| ApiError::server("unable to parse volume ID"))?;
        let moved = format!("{}:{}", self.map.target(&id.storage), id.name);
        let what = dc
            .storage
            .remove(&self.host, volume)
            .ok_or_else(|| ApiError::server(format!("volume '{volume}' does not exist")))?;
        if dc.storage.get(&self.target, &moved).is_some() {
            let text = format!("volume '{moved}' already exists");
            dc.storage.put(&self.host, volume, what).map_err(ApiError::server)?;
            return Err(ApiError::server(text));
        }
        dc.storage.put(&self.target, &moved, what).map_err(ApiError::server)?;
        Ok(moved)
    }

    fn duration(&self, ground: &Ground) -> String {
        let seconds = ground.now.since(self.began).as_secs();
        format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
    }
}

/// Writes a line with the time.
fn say(ground: &Ground, worker: &mut Worker, text: &str) {
    worker.say(format!("{} {text}", crate::pve::storage::images::timestamp(ground.now)));
}
