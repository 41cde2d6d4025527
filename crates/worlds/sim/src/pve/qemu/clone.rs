//! Clones and templates.

use std::time::Duration;

use ichor_model::VmId;
use serde::{Deserialize, Serialize};

use super::{
    Vm,
    config::{Config, Section},
    create::check_pool,
    disks, exists, load, load_mut,
    network::{Net, is_net, random_mac},
    property::{Properties, Shape},
    rights,
    work::{For, LOCK_WAIT, Making, Todo, Waiter},
};
use crate::{
    ground::Ground,
    pve::{
        ApiError, Call, Caller, Datacentre, Exit, Lock, Mode, Next, Params, Reply, Worker,
        drive::{Drive, is_slot, is_unused},
        qemu,
        storage::volume::{ContentType, VolumeId},
        tasks,
    },
};

/// How long a clone waits for the locks of its VMs.
const WORKING: Duration = Duration::from_secs(1);

/// Answers `POST .../clone`.
pub fn clone(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let (vmid, host) = (params.path_vmid(), params.host());
    let target = params.text("target").filter(|target| *target != host && target != "localhost");
    let running = exists(dc, &host, vmid)?.runs();
    let order = Order {
        vmid,
        host: host.clone(),
        caller: call.caller.clone(),
        new: params.vmid("newid").unwrap_or(vmid),
        name: params.text("name").filter(|name| !name.is_empty()),
        description: params.text("description").filter(|text| !text.is_empty() && text != "0"),
        pool: params.text("pool"),
        snapshot: params.text("snapname").filter(|name| !name.is_empty()),
        storage: params.text("storage"),
        format: params.text("format"),
        target,
        full: params.has("full").then(|| params.flag("full")),
        running,
    };
    order.check(dc)?;
    let work = Clone {
        order,
        stage: Stage::LockSource,
        waiter: Waiter::default(),
        making: Making::default(),
        config: Section::new(),
        written: false,
    };
    let work = tasks::Work::Qemu(qemu::Work::Clone(Box::new(work)));
    Ok(tasks::start(dc, ground, &host, "qmclone", &vmid.to_string(), &call.caller.id, work).into())
}

/// What a clone was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Order {
    vmid: VmId,
    host: String,
    caller: Caller,
    new: VmId,
    name: Option<String>,
    description: Option<String>,
    pool: Option<String>,
    snapshot: Option<String>,
    storage: Option<String>,
    format: Option<String>,
    target: Option<String>,
    full: Option<bool>,
    running: bool,
}

/// What a clone will do.
struct Plan {
    config: Section,
    todo: Vec<Todo>,
    pending: Vec<String>,
}

impl Order {
    /// Checks everything, as the server does before the task and again in it.
    fn check(&self, dc: &Datacentre) -> Result<Plan, ApiError> {
        check_pool(dc, self.pool.as_deref())?;
        if let Some(target) = &self.target
            && !dc.hosts.contains_key(target)
        {
            return Err(ApiError::server(format!("no such cluster node '{target}'")));
        }
        self.check_storage(dc)?;
        let vm = load(dc, &self.host, self.vmid)?;
        vm.config.check_lock().map_err(ApiError::server)?;
        if vm.runs() != self.running {
            return Err(ApiError::server("unexpected state change"));
        }
        let source = match &self.snapshot {
            Some(name) => vm
                .config
                .snapshots
                .get(name)
                .ok_or_else(|| ApiError::server(format!("snapshot '{name}' does not exist")))?,
            None => &vm.config.current,
        };
        let full = self.full.unwrap_or(!vm.config.is_template());
        for (name, value) in [("storage", &self.storage), ("format", &self.format)] {
            if value.is_some() && !full {
                return Err(ApiError::server(format!("parameter '{name}' not allowed for linked clones")));
            }
        }
        let shared = self.check_access(dc, source)?;
        check_mappings(dc, &self.caller, self.vmid, source)?;
        rights::check_bridges(dc, &self.caller, source)?;
        if let Some(target) = self.target.as_ref().filter(|_| !shared) {
            return Err(ApiError::server(format!(
                "can't clone VM to node '{target}' (VM uses local storage)"
            )));
        }
        if dc.is_taken(self.new) {
            // Only a config on this host is found here; one elsewhere stops the clone later.
            let text = format!("unable to create VM {}: config file already exists", self.new);
            return Err(ApiError::server(text));
        }
        self.plan(dc, vm, source, full)
    }

    fn check_storage(&self, dc: &Datacentre) -> Result<(), ApiError> {
        let Some(storage) = &self.storage else { return Ok(()) };
        let definition = dc.storage.enabled(storage, &self.host).map_err(ApiError::server)?;
        if !definition.holds(ContentType::Images) {
            let text = format!("storage '{storage}' does not support vm images");
            return Err(ApiError::param("storage", text));
        }
        let Some(target) = &self.target else { return Ok(()) };
        dc.storage.enabled(storage, target).map_err(ApiError::server)?;
        if definition.is_shared() {
            return Ok(());
        }
        Err(ApiError::server(format!("can't clone to non-shared storage '{storage}'")))
    }

    /// Checks the rights to storages and says whether all volumes are on shared ones.
    fn check_access(&self, dc: &Datacentre, source: &Section) -> Result<bool, ApiError> {
        let mut shared = true;
        for drive in super::config::drives(source) {
            let file = drive.file();
            if file == "none" {
                continue;
            }
            if drive.is_disc() && file == "cdrom" {
                dc.check(&self.caller, "/", &["Sys.Console"])?;
                continue;
            }
            let id = VolumeId::read(file)
                .ok_or_else(|| ApiError::server(format!("unable to parse volume ID '{file}'")))?;
            shared &= dc.storage.definition(&id.storage).map_err(ApiError::server)?.is_shared();
            if !drive.is_disc() {
                let storage = self.storage.as_ref().unwrap_or(&id.storage);
                dc.check(&self.caller, &format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
            }
        }
        if let Some(storage) = source.get("vmstatestorage") {
            dc.check(&self.caller, &format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
        }
        Ok(shared)
    }

    fn plan(&self, dc: &Datacentre, vm: &Vm, source: &Section, full: bool) -> Result<Plan, ApiError> {
        let mut plan = Plan { config: Section::new(), todo: Vec::new(), pending: Vec::new() };
        for (key, value) in source {
            if is_left_behind(key) {
                continue;
            }
            if full && self.running && self.snapshot.is_none() && key == "tpmstate0" {
                return Err(ApiError::server("cannot clone TPM state while VM is running"));
            }
            let Some(drive) = Drive::read(key, value).filter(|_| is_slot(key)) else {
                plan.config.insert(key.clone(), value.clone());
                continue;
            };
            if drive.is_plain_disc() {
                plan.config.insert(key.clone(), value.clone());
                continue;
            }
            plan.todo.push(self.plan_drive(dc, source, &drive, full)?);
        }
        if self.snapshot.is_none() {
            plan.pending = vm.config.pending.keys().cloned().collect();
            if !vm.config.deletes.is_empty() {
                plan.pending.push("delete".into());
            }
        }
        Ok(plan)
    }

    fn plan_drive(
        &self,
        dc: &Datacentre,
        source: &Section,
        drive: &Drive,
        full: bool,
    ) -> Result<Todo, ApiError> {
        let volume = drive.file();
        let found = dc.storage.look_up(volume).map_err(ApiError::server)?;
        let definition = dc.storage.definition(&found.id.storage).map_err(ApiError::server)?;
        let full = full || drive.is_cloud_init() || drive.slot == "tpmstate0";
        let (feature, title) = if full { ("copy", "Full") } else { ("clone", "Linked") };
        let of_snapshot = self.snapshot.is_some();
        if !definition.has_feature(feature, &found.name.format, found.name.is_base, of_snapshot) {
            let of = if of_snapshot { " a snapshot of" } else { "" };
            let slot = &drive.slot;
            let text = format!("{title} clone feature is not supported for{of} '{volume}' ({slot})");
            return Err(ApiError::server(text));
        }
        let (slot, text) = (drive.slot.clone(), drive.to_string());
        Ok(if full {
            Todo::Copy {
                slot,
                source: text,
                snapshot: self.snapshot.clone(),
                storage: self.storage.clone(),
                format: self.format.clone(),
                efi_size: disks::efi_size_of(source),
            }
        } else {
            Todo::Link { slot, source: text, snapshot: self.snapshot.clone() }
        })
    }
}

fn is_left_behind(key: &str) -> bool {
    let left = [
        "parent",
        "snaptime",
        "vmstate",
        "snapstate",
        "runningcpu",
        "runningmachine",
        "running-nets-host-mtu",
        "lock",
    ];
    left.contains(&key) || is_unused(key)
}

/// Checks the right to use devices that the clone would have too.
fn check_mappings(dc: &Datacentre, caller: &Caller, vmid: VmId, source: &Section) -> Result<(), ApiError> {
    if caller.is_root() {
        return Ok(());
    }
    let devices: Section = source
        .iter()
        .filter(|(key, _)| {
            crate::pve::drive::numbered(key)
                .is_some_and(|(name, _)| ["usb", "hostpci", "rng", "virtiofs"].contains(&name))
        })
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    for (key, value) in &devices {
        let device = Properties::read(Shape::plain("host"), value);
        if let Some(name) = device.get("mapping") {
            let kind = if key.starts_with("usb") { "usb" } else { "pci" };
            dc.check(caller, &format!("/mapping/{kind}/{name}"), &["Mapping.Use"])?;
        } else {
            rights::check_device(dc, rights::Subject { caller, vmid, pool: None }, key, value)?;
        }
    }
    Ok(())
}

/// The task `qmclone`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Clone {
    order: Order,
    stage: Stage,
    waiter: Waiter,
    making: Making,
    config: Section,
    /// Whether the new VM's config is there.
    written: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stage {
    LockSource,
    LockTarget,
    Drives,
}

impl Clone {
    /// Does the next stretch.
    pub fn step(&mut self, dc: &mut Datacentre, ground: &mut Ground, worker: &mut Worker) -> Next {
        match self.advance(dc, ground, worker) {
            Ok(Some(next)) => next,
            Ok(None) => Next::Done(Exit::Ok),
            Err(error) if self.written => {
                self.clean_up(dc, ground);
                Next::Done(Exit::Failed(format!("clone failed: {}", error.as_text())))
            }
            Err(error) => Next::Done(Exit::Failed(error.as_text())),
        }
    }

    /// The process was told to end.
    pub fn interrupt(&mut self, dc: &mut Datacentre, ground: &mut Ground) -> Exit {
        if !self.written {
            return Exit::Failed("received interrupt".into());
        }
        self.clean_up(dc, ground);
        Exit::Failed("clone failed: interrupted by signal".into())
    }

    fn advance(
        &mut self,
        dc: &mut Datacentre,
        ground: &mut Ground,
        worker: &mut Worker,
    ) -> Result<Option<Next>, ApiError> {
        if self.stage == Stage::LockSource {
            let mode = if self.order.running { Mode::Exclusive } else { Mode::Shared };
            let lock = Lock::Vm(self.order.vmid);
            if let Some(next) = self.waiter.take(dc, ground, worker, &lock, mode, WORKING)? {
                return Ok(Some(next));
            }
            self.stage = Stage::LockTarget;
        }
        if self.stage == Stage::LockTarget {
            let lock = Lock::Vm(self.order.new);
            if let Some(next) = self.waiter.take(dc, ground, worker, &lock, Mode::Exclusive, WORKING)? {
                return Ok(Some(next));
            }
            self.begin(dc, ground, worker)?;
            self.stage = Stage::Drives;
        }
        let order = &self.order;
        let whom = For {
            vmid: order.new,
            host: order.host.clone(),
            caller: order.caller.clone(),
            config: self.config.clone(),
            storage: None,
        };
        if let Some(next) = self.making.step(dc, ground, worker, &whom)? {
            return Ok(Some(next));
        }
        self.finish(dc)?;
        ground.usable(format!("vm {}", self.order.new));
        Ok(None)
    }

    /// Checks again and reserves the VMID.
    fn begin(
        &mut self,
        dc: &mut Datacentre,
        ground: &mut Ground,
        worker: &mut Worker,
    ) -> Result<(), ApiError> {
        let order = &self.order;
        let plan = order.check(dc)?;
        worker.say(format!("creating a clone of VM {} with ID {}", order.vmid, order.new));
        let mut config = plan.config;
        let prefix = dc.mac_prefix();
        for (_, value) in config.iter_mut().filter(|(key, _)| is_net(key)) {
            let mut net = Net::read(value);
            net.set_mac(&random_mac(&prefix, &mut ground.random));
            *value = net.to_string();
        }
        let shape = Shape { main: "", aliases: &[], flags: &["base64"] };
        let mut smbios = Properties::read(shape, config.get("smbios1").map_or("", String::as_str));
        smbios.set("uuid", ground.random.uuid());
        config.insert("smbios1".into(), smbios.to_string());
        if config.contains_key("vmgenid") {
            config.insert("vmgenid".into(), ground.random.uuid());
        }
        config.remove("template");
        let old = load(dc, &order.host, order.vmid)?;
        let source = match &order.snapshot {
            Some(name) => old.config.snapshots.get(name).unwrap_or(&old.config.current),
            None => &old.config.current,
        };
        let old_name = source.get("name").cloned().unwrap_or_else(|| order.vmid.to_string());
        let name = order.name.clone().unwrap_or_else(|| format!("Copy-of-VM-{old_name}"));
        config.insert("name".into(), name);
        if let Some(description) = &order.description {
            config.insert("description".into(), description.clone());
        }
        let locked =
            Config { current: Section::from([("lock".into(), "clone".into())]), ..Config::default() };
        dc.vms.insert(order.new, Vm { host: order.host.clone(), config: locked, run: None });
        dc.clone_firewall(order.vmid, order.new);
        self.written = true;
        self.config = config;
        self.making = Making::new(plan.todo);
        if !plan.pending.is_empty() {
            let keys = plan.pending.join(",");
            worker.say(format!("found pending changes for '{keys}', discarding for clone"));
        }
        Ok(())
    }

    fn finish(&self, dc: &mut Datacentre) -> Result<(), ApiError> {
        let order = &self.order;
        let mut current = self.config.clone();
        current.extend(self.making.results.clone());
        let mut config = Config { current, ..Config::default() };
        config.write().map_err(ApiError::server)?;
        let vm = load_mut(dc, &order.host, order.new)?;
        vm.config = config;
        if let Some(target) = &order.target {
            vm.host.clone_from(target);
        }
        if let Some(pool) = &order.pool {
            dc.join_pool(order.new, pool);
        }
        Ok(())
    }

    fn clean_up(&mut self, dc: &mut Datacentre, ground: &mut Ground) {
        let host = self.order.host.clone();
        self.making.undo(dc, ground, &host);
        dc.remove_firewall(self.order.new);
        dc.vms.remove(&self.order.new);
    }
}

/// Answers `POST .../template`.
pub fn template(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let (vmid, host) = (params.path_vmid(), params.host());
    let work = Template {
        vmid,
        host: host.clone(),
        disk: params.text("disk"),
        waiter: Waiter::default(),
        slots: None,
    };
    work.check(dc)?;
    let work = tasks::Work::Qemu(qemu::Work::Template(work));
    Ok(tasks::start(dc, ground, &host, "qmtemplate", &vmid.to_string(), &call.caller.id, work).into())
}

/// The task `qmtemplate`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Template {
    vmid: VmId,
    host: String,
    disk: Option<String>,
    waiter: Waiter,
    /// Slots still to be converted.
    slots: Option<Vec<String>>,
}

impl Template {
    fn check(&self, dc: &Datacentre) -> Result<(), ApiError> {
        let vm = load(dc, &self.host, self.vmid)?;
        vm.config.check_lock().map_err(ApiError::server)?;
        if !vm.config.snapshots.is_empty() {
            return Err(ApiError::server("unable to create template, because VM contains snapshots"));
        }
        if vm.config.is_template() && self.disk.is_none() {
            return Err(ApiError::server("you can't convert a template to a template"));
        }
        if vm.runs() {
            return Err(ApiError::server("you can't convert a VM to template if VM is running"));
        }
        Ok(())
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
        if self.slots.is_none() {
            if let Some(next) = self.waiter.take_vm(dc, ground, worker, self.vmid)? {
                return Ok(Some(next));
            }
            self.check(dc)?;
            let config = &mut load_mut(dc, &self.host, self.vmid)?.config;
            config.current.insert("template".into(), "1".into());
            let slots = config.drives().into_iter().filter(|drive| {
                !drive.is_disc() && self.disk.as_ref().is_none_or(|disk| *disk == drive.slot)
            });
            self.slots = Some(slots.map(|drive| drive.slot).collect());
        }
        while let Some(slot) = self.slots.as_ref().and_then(|slots| slots.first().cloned()) {
            if let Some(next) = self.convert(dc, ground, worker, &slot)? {
                return Ok(Some(next));
            }
            if let Some(slots) = &mut self.slots {
                slots.remove(0);
            }
        }
        Ok(None)
    }

    fn convert(
        &mut self,
        dc: &mut Datacentre,
        ground: &Ground,
        worker: &mut Worker,
        slot: &str,
    ) -> Result<Option<Next>, ApiError> {
        let Some(mut drive) = load(dc, &self.host, self.vmid)?.config.drive(slot) else { return Ok(None) };
        let found = dc.storage.look_up(drive.file()).map_err(ApiError::server)?;
        let definition = dc.storage.definition(&found.id.storage).map_err(ApiError::server)?;
        if !definition.has_feature("template", &found.name.format, found.name.is_base, false) {
            return Ok(None);
        }
        let (lock, mode) = disks::storage_lock(dc, &self.host, &found.id.storage);
        if let Some(next) = self.waiter.take(dc, ground, worker, &lock, mode, LOCK_WAIT)? {
            return Ok(Some(next));
        }
        let base = dc.storage.make_base(&self.host, drive.file()).map_err(ApiError::server)?;
        worker.unlock(dc, &lock);
        worker.log.extend(base.printed);
        drive.set("file", base.volume);
        let config = &mut load_mut(dc, &self.host, self.vmid)?.config;
        config.current.insert(slot.to_owned(), drive.to_string());
        Ok(None)
    }
}
