//! Creating VMs.

use std::time::Duration;

use ichor_model::VmId;
use serde::{Deserialize, Serialize};

use super::{
    Vm, boot,
    config::{Config, Section},
    disks, load, options_of,
    power::Start,
    restore,
    rights::{self, Subject},
    work::{For, Making, Todo, Waiter},
};
use crate::{
    ground::Ground,
    pve::{
        ApiError, Call, Datacentre, Exit, Lock, Mode, Next, Params, Refusal, Reply, Worker,
        drive::{Drive, is_slot},
        params::split_list,
        qemu, tasks,
    },
};

/// Parameters that are not options of the VM.
const OTHER: [&str; 12] = [
    "node",
    "vmid",
    "archive",
    "bwlimit",
    "force",
    "pool",
    "start",
    "ha-managed",
    "storage",
    "unique",
    "live-restore",
    "import-working-storage",
];

/// How long a create waits for the VM's lock: first to reserve the VMID, then to work.
const RESERVING: Duration = Duration::from_secs(5);
const WORKING: Duration = Duration::from_secs(1);

/// Answers `POST /nodes/{node}/qemu`.
pub fn create(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let (vmid, host) = (params.path_vmid(), params.host());
    let pool = params.text("pool");
    let storage = params.text("storage");
    let (start, ha_managed) = (params.flag("start"), params.flag("ha-managed"));
    let mut options = options_of(params, &OTHER);
    options.retain(|_, value| value.is_some());
    let mut options: Section = options.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    check_ssh_keys(&options)?;
    clamp_cpu_units(&mut options);
    let subject = Subject { caller: &call.caller, vmid, pool: pool.as_deref() };
    check_rights(dc, subject, storage.as_deref(), start, ha_managed)?;
    let archive = params.text("archive");
    if let Some(archive) = &archive {
        restore::check(dc, subject, &options, archive)?;
    }
    resolve_cdrom(&mut options);
    check_options(dc, subject, &mut options, storage.as_deref())?;
    add_macs(dc, ground, &mut options);
    let verb = if archive.is_some() { "restore" } else { "create" };
    reserve(dc, ground, call, vmid, &host, verb, archive.is_some() && params.flag("force"))?;
    let caller = call.caller.clone();
    if let Some(archive) = archive {
        return restore::begin(dc, ground, call, params, &archive, options);
    }
    for source in imports(&options) {
        if let Some(image) = dc.storage.get(&host, &source) {
            ground.needs(&format!("content {}", image.content.0));
        }
    }
    let todo: Vec<Todo> = options
        .iter()
        .filter(|(key, _)| is_slot(key))
        .map(|(slot, text)| Todo::New { slot: slot.clone(), text: text.clone() })
        .collect();
    let work = Create {
        whom: For { vmid, host: host.clone(), caller: caller.clone(), config: options, storage },
        pool,
        start,
        ha_managed,
        making: Making::new(todo),
        stage: Stage::Lock,
        waiter: Waiter::default(),
    };
    let work = tasks::Work::Qemu(qemu::Work::Create(Box::new(work)));
    Ok(tasks::start(dc, ground, &host, "qmcreate", &vmid.to_string(), &caller.id, work).into())
}

/// Returns the images that drives are made of.
fn imports(options: &Section) -> Vec<String> {
    let drives = options.iter().filter(|(key, _)| is_slot(key));
    drives.filter_map(|(slot, text)| Drive::read(slot, text)?.get("import-from").map(Into::into)).collect()
}

fn check_rights(
    dc: &Datacentre,
    subject: Subject,
    storage: Option<&str>,
    start: bool,
    ha_managed: bool,
) -> Result<(), ApiError> {
    let caller = subject.caller;
    check_pool(dc, subject.pool)?;
    if let Some(storage) = storage {
        dc.check(caller, &format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
    }
    if ha_managed {
        dc.check(caller, "/", &["Sys.Console"])?;
    }
    if start {
        dc.check_vm(caller, subject.vmid, subject.pool, &["VM.PowerMgmt"])?;
    }
    let vm = format!("/vms/{}", subject.vmid);
    let pool = subject.pool.map(|pool| format!("/pool/{pool}"));
    let allowed = dc.may(caller, &vm, &["VM.Allocate"])
        || pool.is_some_and(|pool| dc.may(caller, &pool, &["VM.Allocate"]));
    if allowed { Ok(()) } else { Err(ApiError::forbidden("")) }
}

/// Refuses a pool that is not there.
pub fn check_pool(dc: &Datacentre, pool: Option<&str>) -> Result<(), ApiError> {
    match pool.filter(|pool| !dc.access.pools.contains_key(*pool)) {
        Some(pool) => Err(ApiError::forbidden(&format!("pool '{pool}' does not exist"))),
        None => Ok(()),
    }
}

fn check_options(
    dc: &Datacentre,
    subject: Subject,
    options: &mut Section,
    storage: Option<&str>,
) -> Result<(), ApiError> {
    rights::check_storages(dc, subject, options, storage)?;
    rights::check_options(dc, subject, options.keys().map(String::as_str))?;
    rights::check_devices(dc, subject, options)?;
    rights::check_bridges(dc, subject.caller, options)?;
    rights::normalize_drives(dc, options)
}

/// `cdrom` is another name of `ide2`.
pub fn resolve_cdrom(options: &mut Section) {
    if let Some(value) = options.remove("cdrom") {
        let media = if value.contains("media=") { "" } else { ",media=cdrom" };
        options.insert("ide2".into(), format!("{value}{media}"));
    }
}

/// Gives cards without an address one.
pub fn add_macs(dc: &Datacentre, ground: &mut Ground, options: &mut Section) {
    let prefix = dc.mac_prefix();
    for (_, value) in options.iter_mut().filter(|(key, _)| super::network::is_net(key)) {
        *value = super::network::Net::read(value).with_mac(&prefix, &mut ground.random).to_string();
    }
}

/// The server lowers shares that its control groups do not know.
pub fn clamp_cpu_units(options: &mut Section) {
    if let Some(units) = options.get_mut("cpuunits")
        && units.parse::<u64>().is_ok_and(|units| units > 10_000)
    {
        *units = "10000".into();
    }
}

/// Refuses keys that `ssh-keygen` would not read.
pub fn check_ssh_keys(options: &Section) -> Result<(), ApiError> {
    let Some(keys) = options.get("sshkeys") else { return Ok(()) };
    let keys = super::cloudinit::unescaped(keys);
    let is_key = |line: &str| {
        let mut words =
            line.split_whitespace().skip_while(|word| !word.starts_with("ssh-") && !word.contains("sha2-"));
        let kind = words.next();
        let blob = words.next().unwrap_or_default();
        kind.is_some()
            && blob.starts_with("AAAA")
            && blob.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte))
    };
    let mut lines = keys.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    if lines.all(is_key) { Ok(()) } else { Err(ApiError::server("SSH public key validation error")) }
}

/// Reserves a VMID by a config that is locked.
fn reserve(
    dc: &mut Datacentre,
    ground: &Ground,
    call: &mut Call,
    vmid: VmId,
    host: &str,
    verb: &str,
    existing_allowed: bool,
) -> Result<(), Refusal> {
    let refused = |text: &str| ApiError::server(format!("unable to {verb} VM {vmid} - {text}"));
    call.lock_for(dc, ground, &Lock::Vm(vmid), Mode::Exclusive, RESERVING).map_err(
        |refusal| match refusal {
            Refusal::Error(error) => refused(error.reason()).into(),
            wait @ Refusal::Wait(_) => wait,
        },
    )?;
    if let Some(container) = dc.containers.get(&vmid) {
        return Err(refused(&format!("CT {vmid} already exists on node '{}'", container.host)).into());
    }
    match dc.vms.get_mut(&vmid) {
        Some(vm) if existing_allowed && vm.host == host => {
            vm.config.check_lock().map_err(|text| refused(&text))?;
            vm.config.current.insert("lock".into(), "create".into());
        }
        Some(vm) => return Err(refused(&format!("VM {vmid} already exists on node '{}'", vm.host)).into()),
        None => {
            let config =
                Config { current: Section::from([("lock".into(), "create".into())]), ..Config::default() };
            dc.vms.insert(vmid, Vm { host: host.to_owned(), config, run: None });
        }
    }
    Ok(())
}

/// The task `qmcreate`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Create {
    whom: For,
    pool: Option<String>,
    start: bool,
    ha_managed: bool,
    making: Making,
    stage: Stage,
    waiter: Waiter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stage {
    Lock,
    Drives,
    After,
}

impl Create {
    /// Does the next stretch.
    pub fn step(&mut self, dc: &mut Datacentre, ground: &mut Ground, worker: &mut Worker) -> Next {
        match self.advance(dc, ground, worker) {
            Ok(Some(next)) => next,
            Ok(None) => Next::Done(Exit::Ok),
            Err(error) => {
                self.clean_up(dc, ground);
                Next::Done(Exit::Failed(error.as_text()))
            }
        }
    }

    /// The process was told to end.
    pub fn interrupt(&mut self, dc: &mut Datacentre, ground: &mut Ground) -> Exit {
        if self.stage != Stage::After {
            self.clean_up(dc, ground);
        }
        Exit::Failed(format!("unable to create VM {} - received interrupt", self.whom.vmid))
    }

    fn advance(
        &mut self,
        dc: &mut Datacentre,
        ground: &mut Ground,
        worker: &mut Worker,
    ) -> Result<Option<Next>, ApiError> {
        let vmid = self.whom.vmid;
        if self.stage == Stage::Lock {
            if let Some(next) =
                self.waiter.take(dc, ground, worker, &Lock::Vm(vmid), Mode::Exclusive, WORKING)?
            {
                return Ok(Some(next));
            }
            self.stage = Stage::Drives;
        }
        if self.stage == Stage::Drives {
            let prefixed = |error: ApiError| {
                ApiError::server(format!("unable to create VM {vmid} - {}", error.as_text()))
            };
            if let Some(next) = self.making.step(dc, ground, worker, &self.whom).map_err(prefixed)? {
                return Ok(Some(next));
            }
            self.finish(dc, ground, worker).map_err(prefixed)?;
            worker.unlock(dc, &Lock::Vm(vmid));
            self.stage = Stage::After;
        }
        self.afterwards(dc, ground, worker);
        Ok(None)
    }

    /// Writes the VM's config.
    fn finish(&self, dc: &mut Datacentre, ground: &mut Ground, worker: &mut Worker) -> Result<(), ApiError> {
        let vmid = self.whom.vmid;
        let mut section = self.whom.config.clone();
        section.extend(self.making.results.clone());
        let qemu = dc.hosts.get(&self.whom.host).map_or("10.0.2".into(), |host| host.qemu.clone());
        section.insert("meta".into(), format!("creation-qemu={qemu},ctime={}", ground.now.unix_seconds()));
        if section.get("boot").is_none_or(|boot| boot.is_empty() || boot == "0") {
            section.insert("boot".into(), boot::written(&boot::default_order(&section)));
        }
        if !section.contains_key("smbios1") {
            section.insert("smbios1".into(), format!("uuid={}", ground.random.uuid()));
        }
        if section.get("vmgenid").is_none_or(|id| id == "1") {
            section.insert("vmgenid".into(), ground.random.uuid());
        }
        if let Some(machine) = checked_machine(&section, worker)? {
            section.insert("machine".into(), machine);
        }
        if let Some(tags) = section.get("tags").cloned() {
            rights::check_tags(dc, &self.whom.caller, vmid, "", &tags)?;
            section.insert("tags".into(), dc.kept_tags(&split_list(&tags)));
        }
        let mut config = Config { current: section, ..Config::default() };
        config.write().map_err(ApiError::server)?;
        let vm = dc.vms.get_mut(&vmid).ok_or_else(|| {
            ApiError::server(format!(
                "Configuration file 'nodes/{}/qemu-server/{vmid}.conf' does not exist",
                self.whom.host
            ))
        })?;
        vm.config = config;
        if let Some(pool) = &self.pool {
            dc.join_pool(vmid, pool);
        }
        Ok(())
    }

    fn afterwards(&self, dc: &mut Datacentre, ground: &mut Ground, worker: &mut Worker) {
        let vmid = self.whom.vmid;
        if self.ha_managed {
            worker.say("Add as HA resource");
            dc.add_to_ha(ground, vmid, if self.start { "started" } else { "stopped" });
        }
        if self.start {
            worker.say("Execute autostart");
            Start::begin(dc, ground, &self.whom.host, vmid, &self.whom.caller, true);
        }
    }

    fn clean_up(&mut self, dc: &mut Datacentre, ground: &mut Ground) {
        let host = self.whom.host.clone();
        self.making.undo(dc, ground, &host);
        // The file is unlinked whatever it says by now.
        if load(dc, &host, self.whom.vmid).is_ok() {
            dc.vms.remove(&self.whom.vmid);
        }
    }
}

/// Checks a machine type and writes it as the server does; windows gets the newest version pinned.
pub fn checked_machine(section: &Section, worker: &mut Worker) -> Result<Option<String>, ApiError> {
    let mut machine = disks::machine(section.get("machine").map(String::as_str));
    let windows = section.get("ostype").is_some_and(|kind| kind.starts_with('w'));
    let kind = machine.get("type").map(str::to_owned);
    if windows && kind.as_deref().is_none_or(|kind| ["pc", "q35", "virt"].contains(&kind)) {
        let pinned = match kind.as_deref() {
            Some("q35") => "pc-q35-10.0+pve0",
            _ => "pc-i440fx-10.0+pve0",
        };
        worker.say(format!("pinning machine type to '{pinned}' for Windows guest OS"));
        machine.set("type", pinned);
    }
    check_machine(&machine)?;
    let text = machine.to_string();
    Ok((!text.is_empty()).then_some(text))
}

/// Refuses machine types that contradict themselves.
pub fn check_machine(machine: &super::property::Properties) -> Result<(), ApiError> {
    let bits = machine.get("aw-bits");
    if machine.get("viommu") == Some("intel") {
        if machine.get("type").is_none_or(|kind| !kind.contains("q35")) {
            return Err(ApiError::server("to use Intel vIOMMU please set the machine type to q35"));
        }
        if bits.is_some_and(|bits| bits != "39" && bits != "48") {
            return Err(ApiError::server("Intel vIOMMU supports only 39 or 48 bits as address width"));
        }
    }
    if bits.is_some() && machine.get("viommu").is_none() {
        return Err(ApiError::server("cannot set aw-bits if no vIOMMU is configured"));
    }
    Ok(())
}
