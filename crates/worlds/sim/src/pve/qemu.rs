//! VMs: their configs, disks, power, snapshots and guests.

pub mod agent;
pub mod boot;
mod clone;
pub mod cloudinit;
pub mod config;
pub mod console;
mod create;
mod destroy;
pub mod disks;
mod hardware;
mod hotplug;
mod links;
pub mod migrate;
mod moves;
pub mod network;
pub mod power;
pub mod property;
pub mod restore;
pub mod rights;
mod snapshot;
pub mod status;
pub mod update;
pub mod work;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ichor_model::VmId;
use serde::{Deserialize, Serialize};

use self::config::{Config, Section};
pub use self::migrate::migrate;
use crate::{
    clock::Time,
    ground::{Ground, Hardware},
    pve::{ApiError, Datacentre, Exit, Next, Params, Route, Worker, params::as_text},
    signal::Signal,
};

/// A VM.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Vm {
    /// The host whose folder has its config.
    pub host: String,
    /// Its config.
    pub config: Config,
    /// The process, while QEMU runs.
    pub run: Option<Run>,
}

/// A running QEMU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The number of its process.
    pub pid: u32,
    /// Since when it runs.
    pub since: Time,
    /// The options it was started with.
    pub started: Section,
    /// The devices it has now.
    pub devices: Section,
    /// Whether its processors stand still.
    pub paused: bool,
    /// Whether it shall start again when the guest is off.
    pub rebooting: bool,
    /// An agent in a guest that is no machine.
    pub agent: Option<agent::StandIn>,
    /// What is to be switched on when it is told to go on: it was started with its processors frozen.
    #[serde(default)]
    pub frozen: Option<Box<Hardware>>,
}

impl Vm {
    /// Returns whether QEMU runs.
    pub fn runs(&self) -> bool {
        self.run.is_some()
    }
}

/// What happens to VMs by themselves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A guest without a machine has switched off.
    PoweredOff(VmId),
}

/// What a task does with a VM.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// `qmcreate`.
    Create(Box<create::Create>),
    /// `qmclone`.
    Clone(Box<clone::Clone>),
    /// `qmconfig`.
    Config(Box<update::Task>),
    /// `qmdestroy`.
    Destroy(destroy::Destroy),
    /// `qmstart`.
    Start(Box<power::Start>),
    /// `qmstop`, `qmshutdown`, `qmreboot`.
    Stop(Box<power::Stop>),
    /// `qmreset`, `qmpause`, `qmresume`, `qmsuspend`.
    Press(power::Press),
    /// `qmtemplate`.
    Template(clone::Template),
    /// `resize`.
    Resize(moves::Resize),
    /// `qmmove` to another storage.
    Move(moves::Move),
    /// `qmmove` to another VM.
    Reassign(moves::Reassign),
    /// `qmsnapshot`, `qmdelsnapshot`, `qmrollback`.
    Snapshot(snapshot::Snapshot),
    /// `qmigrate`.
    Migrate(Box<migrate::Migrate>),
    /// `qmrestore`.
    Restore(Box<restore::Restore>),
    /// `vzdump`.
    Vzdump(Box<restore::Vzdump>),
    /// `vncproxy`, for a serial console.
    Console(console::Serve),
}

impl Work {
    /// Does the next stretch.
    pub fn step(&mut self, dc: &mut Datacentre, ground: &mut Ground, worker: &mut Worker) -> Next {
        match self {
            Self::Create(work) => work.step(dc, ground, worker),
            Self::Clone(work) => work.step(dc, ground, worker),
            Self::Config(work) => work.step(dc, ground, worker),
            Self::Destroy(work) => work.step(dc, ground, worker),
            Self::Start(work) => work.step(dc, ground, worker),
            Self::Stop(work) => work.step(dc, ground, worker),
            Self::Press(work) => work.step(dc, ground, worker),
            Self::Template(work) => work.step(dc, ground, worker),
            Self::Resize(work) => work.step(dc, ground, worker),
            Self::Move(work) => work.step(dc, ground, worker),
            Self::Reassign(work) => work.step(dc, ground, worker),
            Self::Snapshot(work) => work.step(dc, ground, worker),
            Self::Migrate(work) => work.step(dc, ground, worker),
            Self::Restore(work) => work.step(dc, ground, worker),
            Self::Vzdump(work) => work.step(dc, ground, worker),
            Self::Console(work) => work.step(dc, ground, &worker.upid),
        }
    }

    /// Cleans up after the process was told to end.
    pub fn interrupt(&mut self, dc: &mut Datacentre, ground: &mut Ground, worker: &mut Worker) -> Exit {
        match self {
            Self::Create(work) => work.interrupt(dc, ground),
            Self::Clone(work) => work.interrupt(dc, ground),
            Self::Stop(work) => work.interrupt(dc),
            Self::Console(work) => work.interrupt(dc, &worker.upid),
            _ => Exit::Failed("received interrupt".into()),
        }
    }
}

/// Where VMs are in the API.
macro_rules! vm {
    ($rest:literal) => {
        concat!("/nodes/{node}/qemu/{vmid}", $rest)
    };
}

/// The endpoints below `/nodes/{node}/qemu`, but for the firewall.
pub fn routes() -> Vec<Route> {
    let mut routes = vec![
        Route::get("/nodes/{node}/qemu", status::list),
        Route::post("/nodes/{node}/qemu", create::create),
        Route::get(vm!(""), status::vm_index),
        Route::delete(vm!(""), destroy::destroy),
        Route::get(vm!("/config"), update::show),
        Route::put(vm!("/config"), update::put),
        Route::post(vm!("/config"), update::post),
        Route::get(vm!("/pending"), update::pending),
        Route::put(vm!("/unlink"), update::unlink),
        Route::get(vm!("/cloudinit"), update::cloud_init_pending),
        Route::put(vm!("/cloudinit"), update::cloud_init_update),
        Route::get(vm!("/cloudinit/dump"), update::cloud_init_dump),
        Route::post(vm!("/clone"), clone::clone),
        Route::post(vm!("/template"), clone::template),
        Route::put(vm!("/resize"), moves::resize),
        Route::post(vm!("/move_disk"), moves::move_disk),
        Route::get(vm!("/feature"), snapshot::feature),
        Route::get(vm!("/snapshot"), snapshot::list),
        Route::post(vm!("/snapshot"), snapshot::take),
        Route::get(vm!("/snapshot/{snapname}"), snapshot::index),
        Route::delete(vm!("/snapshot/{snapname}"), snapshot::delete),
        Route::get(vm!("/snapshot/{snapname}/config"), snapshot::show),
        Route::put(vm!("/snapshot/{snapname}/config"), snapshot::describe),
        Route::post(vm!("/snapshot/{snapname}/rollback"), snapshot::roll_back),
        Route::get(vm!("/status"), status::index),
        Route::get(vm!("/status/current"), status::current),
        Route::post(vm!("/status/start"), power::start),
        Route::post(vm!("/status/stop"), power::stop),
        Route::post(vm!("/status/shutdown"), power::shutdown),
        Route::post(vm!("/status/reboot"), power::reboot),
        Route::post(vm!("/status/reset"), power::reset),
        Route::post(vm!("/status/suspend"), power::suspend),
        Route::post(vm!("/status/resume"), power::resume),
        Route::get(vm!("/migrate"), migrate::precondition),
        Route::post(vm!("/migrate"), migrate::migrate),
        Route::post(vm!("/termproxy"), console::term_proxy),
        Route::post(vm!("/vncproxy"), console::vnc_proxy),
        Route::get(vm!("/vncwebsocket"), console::websocket),
    ];
    routes.extend(agent_routes());
    routes
}

fn agent_routes() -> Vec<Route> {
    vec![
        Route::get(vm!("/agent"), agent::index),
        Route::post(vm!("/agent"), agent::command),
        Route::post(vm!("/agent/ping"), agent::ping),
        Route::get(vm!("/agent/get-time"), agent::get_time),
        Route::get(vm!("/agent/info"), agent::info),
        Route::post(vm!("/agent/fsfreeze-status"), agent::fsfreeze_status),
        Route::post(vm!("/agent/fsfreeze-freeze"), agent::fsfreeze_freeze),
        Route::post(vm!("/agent/fsfreeze-thaw"), agent::fsfreeze_thaw),
        Route::post(vm!("/agent/fstrim"), agent::fstrim),
        Route::get(vm!("/agent/network-get-interfaces"), agent::network_get_interfaces),
        Route::get(vm!("/agent/get-vcpus"), agent::get_vcpus),
        Route::get(vm!("/agent/get-fsinfo"), agent::get_fsinfo),
        Route::get(vm!("/agent/get-memory-blocks"), agent::get_memory_blocks),
        Route::get(vm!("/agent/get-memory-block-info"), agent::get_memory_block_info),
        Route::post(vm!("/agent/suspend-hybrid"), agent::suspend_hybrid),
        Route::post(vm!("/agent/suspend-ram"), agent::suspend_ram),
        Route::post(vm!("/agent/suspend-disk"), agent::suspend_disk),
        Route::post(vm!("/agent/shutdown"), agent::shutdown),
        Route::get(vm!("/agent/get-host-name"), agent::get_host_name),
        Route::get(vm!("/agent/get-osinfo"), agent::get_osinfo),
        Route::get(vm!("/agent/get-users"), agent::get_users),
        Route::get(vm!("/agent/get-timezone"), agent::get_timezone),
        Route::post(vm!("/agent/exec"), agent::exec),
        Route::get(vm!("/agent/exec-status"), agent::exec_status),
        Route::get(vm!("/agent/file-read"), agent::file_read),
        Route::post(vm!("/agent/file-write"), agent::file_write),
        Route::post(vm!("/agent/set-user-password"), agent::set_user_password),
    ]
}

/// Lets an event happen.
pub fn happen(dc: &mut Datacentre, ground: &mut Ground, event: &Event) {
    match event {
        Event::PoweredOff(vmid) => power::has_powered_off(dc, ground, *vmid),
    }
}

/// Takes a message from another part.
pub fn hear(dc: &mut Datacentre, ground: &mut Ground, signal: &Signal) {
    match signal {
        Signal::PoweredOff(vmid) => power::has_powered_off(dc, ground, *vmid),
        // A VM that must not reboot ends instead.
        Signal::Rebooted(vmid) if dc.vms.get(vmid).is_some_and(|vm| vm.config.get("reboot") == Some("0")) => {
            power::switch_off(dc, ground, *vmid);
        }
        _ => {}
    }
}

/// A host has lost its power: its VMs are off.
pub fn host_down(dc: &mut Datacentre, ground: &mut Ground, host: &str) {
    let vmids: Vec<VmId> = dc.vms.iter().filter(|(_, vm)| vm.host == host).map(|(vmid, _)| *vmid).collect();
    for vmid in vmids {
        power::switch_off(dc, ground, vmid);
    }
}

/// Returns a VM whose config is on a host.
pub fn load<'a>(dc: &'a Datacentre, host: &str, vmid: VmId) -> Result<&'a Vm, ApiError> {
    dc.vms.get(&vmid).filter(|vm| vm.host == host).ok_or_else(|| no_file(host, vmid))
}

/// Returns a VM whose config is on a host, to change it.
pub fn load_mut<'a>(dc: &'a mut Datacentre, host: &str, vmid: VmId) -> Result<&'a mut Vm, ApiError> {
    dc.vms.get_mut(&vmid).filter(|vm| vm.host == host).ok_or_else(|| no_file(host, vmid))
}

fn no_file(host: &str, vmid: VmId) -> ApiError {
    ApiError::server(format!("Configuration file 'nodes/{host}/qemu-server/{vmid}.conf' does not exist"))
}

/// Returns a VM; the error is that of calls that look for the file itself.
fn exists<'a>(dc: &'a Datacentre, host: &str, vmid: VmId) -> Result<&'a Vm, ApiError> {
    dc.vms.get(&vmid).filter(|vm| vm.host == host).ok_or_else(|| {
        ApiError::server(format!("unable to find configuration file for VM {vmid} on node '{host}'"))
    })
}

/// Returns the parameters that are options of a VM; absent values are JSON's null.
fn options_of(params: &Params, other: &[&str]) -> BTreeMap<String, Option<String>> {
    params
        .iter()
        .filter(|(name, _)| !other.contains(&name.as_str()))
        .map(|(name, value)| {
            let text = match value {
                serde_json::Value::Array(_) => Some(params.list(name).join(",")),
                value => as_text(value),
            };
            (name.clone(), text)
        })
        .collect()
}
