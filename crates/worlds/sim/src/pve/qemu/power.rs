//! Power: start, stop, shutdown, reboot, reset, suspend, resume.

use std::time::Duration;

use ichor_model::VmId;
use serde::{Deserialize, Serialize};

use super::{
    Run, exists, hardware, load, load_mut,
    property::{Properties, Shape},
    update,
    work::{LOCK_WAIT, Waiter, patience},
};
use crate::{
    clock::Time,
    ground::Ground,
    pve::{
        ApiError, Call, Caller, Datacentre, Exit, Lock, Mode, Next, Params, Reply, Worker, ha, qemu, tasks,
    },
    signal::Signal,
};

/// How long things take on real hardware.
const STARTING: Duration = Duration::from_secs(2);
const STOPPING: Duration = Duration::from_secs(1);
const AGENT_PROBE: Duration = Duration::from_secs(3);
const USUAL_TIMEOUT: u64 = 60;

fn root_only(call: &Call, params: &Params, names: &[&str]) -> Result<(), ApiError> {
    match names.iter().find(|name| params.flag(name) || params.text(name).is_some_and(|text| text.len() > 1))
    {
        Some(name) if !call.caller.is_root() => Err(ApiError::param(name, "Only root may use this option.")),
        _ => Ok(()),
    }
}

/// Answers `POST .../status/start`.
pub fn start(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let names = [
        "stateuri",
        "skiplock",
        "migratedfrom",
        "migration_type",
        "migration_network",
        "targetstorage",
        "force-cpu",
        "with-conntrack-state",
        "nets-host-mtu",
    ];
    root_only(call, params, &names)?;
    let upid = Start::begin(dc, ground, &params.host(), params.path_vmid(), &call.caller, false);
    Ok(upid.into())
}

/// Answers `POST .../status/stop`.
pub fn stop(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    root_only(call, params, &["skiplock", "keepActive", "migratedfrom"])?;
    let vmid = params.path_vmid();
    if dc.ha.commands(vmid) {
        if params.flag("overrule-shutdown") {
            return Err(ApiError::param("overrule-shutdown", "Not applicable for HA resources.").into());
        }
        return Ok(dc.request_ha(ground, &params.host(), &call.caller, ha::Work::Stop(vmid)).into());
    }
    let work = Stop {
        force: true,
        timeout: params.integer("timeout").and_then(|seconds| u64::try_from(seconds).ok()),
        overrule: params.flag("overrule-shutdown"),
        ..Stop::new(vmid, &params.host(), Way::Quit)
    };
    Ok(work.begin(dc, ground, "qmstop", &call.caller).into())
}

/// Answers `POST .../status/shutdown`.
pub fn shutdown(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    root_only(call, params, &["skiplock", "keepActive"])?;
    let (vmid, host) = (params.path_vmid(), params.host());
    let force = params.flag("forceStop");
    let paused = is_paused(dc, vmid);
    if paused && !force {
        return Err(ApiError::server("VM is paused - cannot shutdown").into());
    }
    let timeout = params.integer("timeout").and_then(|seconds| u64::try_from(seconds).ok());
    if dc.ha.commands(vmid) {
        return Ok(dc.request_ha(ground, &host, &call.caller, ha::Work::Stop(vmid)).into());
    }
    let way = if paused { Way::Quit } else { Way::Shutdown };
    let work = Stop { timeout, force, ..Stop::new(vmid, &host, way) };
    Ok(work.begin(dc, ground, "qmshutdown", &call.caller).into())
}

/// Answers `POST .../status/reboot`.
pub fn reboot(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let (vmid, host) = (params.path_vmid(), params.host());
    if is_paused(dc, vmid) {
        return Err(ApiError::server("VM is paused - cannot shutdown").into());
    }
    running(dc, &host, vmid)?;
    let timeout = params.integer("timeout").and_then(|seconds| u64::try_from(seconds).ok());
    let work = Stop { timeout, reboot: true, ..Stop::new(vmid, &host, Way::Shutdown) };
    Ok(work.begin(dc, ground, "qmreboot", &call.caller).into())
}

/// Answers `POST .../status/reset`.
pub fn reset(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    root_only(call, params, &["skiplock"])?;
    button(dc, ground, call, params, Button::Reset, "qmreset")
}

/// Answers `POST .../status/suspend`.
pub fn suspend(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    root_only(call, params, &["skiplock"])?;
    if !params.flag("todisk") {
        return button(dc, ground, call, params, Button::Pause, "qmpause");
    }
    let (vmid, host) = (params.path_vmid(), params.host());
    running(dc, &host, vmid)?;
    if dc.ha.commands(vmid) {
        return Err(ApiError::server("Cannot suspend HA managed VM to disk").into());
    }
    dc.check_vm(&call.caller, vmid, None, &["VM.Config.Disk"])?;
    // What is saved to disk was not recorded: the state is taken as kept, without a volume.
    button(dc, ground, call, params, Button::Hibernate, "qmsuspend")
}

/// Answers `POST .../status/resume`.
pub fn resume(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    root_only(call, params, &["skiplock", "nocheck"])?;
    let (vmid, host) = (params.path_vmid(), params.host());
    let hibernated = load(dc, &host, vmid).is_ok_and(|vm| vm.config.lock() == Some("suspended"));
    if hibernated {
        let work = Start { resume: true, ..Start::new(vmid, &host, &call.caller) };
        let work = tasks::Work::Qemu(qemu::Work::Start(Box::new(work)));
        return Ok(
            tasks::start(dc, ground, &host, "qmresume", &vmid.to_string(), &call.caller.id, work).into()
        );
    }
    button(dc, ground, call, params, Button::Resume, "qmresume")
}

/// Something that is done to a running VM at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Button {
    /// The reset button.
    Reset,
    /// Stop the processors.
    Pause,
    /// Let them go on.
    Resume,
    /// Save the state to disk and quit.
    Hibernate,
}

fn button(
    dc: &mut Datacentre,
    ground: &mut Ground,
    call: &Call,
    params: &Params,
    button: Button,
    kind: &str,
) -> Reply {
    let (vmid, host) = (params.path_vmid(), params.host());
    running(dc, &host, vmid)?;
    let work = Press { vmid, host: host.clone(), button, waiter: Waiter::default() };
    let work = tasks::Work::Qemu(qemu::Work::Press(work));
    Ok(tasks::start(dc, ground, &host, kind, &vmid.to_string(), &call.caller.id, work).into())
}

/// Refuses a VM that is not on the host or not running.
fn running(dc: &Datacentre, host: &str, vmid: VmId) -> Result<(), ApiError> {
    if exists(dc, host, vmid)?.runs() {
        Ok(())
    } else {
        Err(ApiError::server(format!("VM {vmid} not running")))
    }
}

fn is_paused(dc: &Datacentre, vmid: VmId) -> bool {
    dc.vms.get(&vmid).and_then(|vm| vm.run.as_ref()).is_some_and(|run| run.paused)
}

/// The tasks `qmreset`, `qmpause`, `qmresume` and `qmsuspend`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Press {
    vmid: VmId,
    host: String,
    button: Button,
    waiter: Waiter,
}

impl Press {
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
        let vmid = self.vmid;
        let vm = load_mut(dc, &self.host, vmid)?;
        vm.config.check_lock().map_err(ApiError::server)?;
        let Some(run) = &mut vm.run else { return Err(ApiError::server(format!("VM {vmid} not running"))) };
        match self.button {
            // A guest that has not begun is as good as new.
            Button::Reset if run.frozen.is_some() => {}
            Button::Reset => {
                run.paused = false;
                run.agent = None;
                ground.send(Signal::Reset(vmid));
            }
            Button::Pause => run.paused = true,
            Button::Resume => {
                run.paused = false;
                if let Some(hardware) = run.frozen.take() {
                    ground.send(Signal::PowerOn(hardware));
                }
            }
            Button::Hibernate => {
                vm.config.current.insert("lock".into(), "suspended".into());
                switch_off(dc, ground, vmid);
            }
        }
        Ok(None)
    }
}

/// The task `qmstart`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Start {
    vmid: VmId,
    host: String,
    caller: Caller,
    /// Whether a VM that was saved to disk goes on.
    resume: bool,
    stage: Stage,
    waiter: Waiter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stage {
    Lock,
    Launching,
}

impl Start {
    fn new(vmid: VmId, host: &str, caller: &Caller) -> Self {
        Self {
            vmid,
            host: host.to_owned(),
            caller: caller.clone(),
            resume: false,
            stage: Stage::Lock,
            waiter: Waiter::default(),
        }
    }

    /// Starts the task, or asks the HA manager to start the VM.
    pub fn begin(
        dc: &mut Datacentre,
        ground: &mut Ground,
        host: &str,
        vmid: VmId,
        caller: &Caller,
        nested: bool,
    ) -> String {
        if dc.ha.commands(vmid) {
            return dc.request_ha(ground, host, caller, ha::Work::Start(vmid));
        }
        let work = tasks::Work::Qemu(qemu::Work::Start(Box::new(Self::new(vmid, host, caller))));
        let start = if nested { tasks::start_nested } else { tasks::start };
        start(dc, ground, host, "qmstart", &vmid.to_string(), &caller.id, work)
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
        if self.stage == Stage::Lock {
            if let Some(next) = self.waiter.take_vm(dc, ground, worker, self.vmid)? {
                return Ok(Some(next));
            }
            self.prepare(dc, ground, worker)?;
            self.stage = Stage::Launching;
            return Ok(Some(Next::After(STARTING)));
        }
        launch(dc, ground, &self.host, self.vmid)?;
        Ok(None)
    }

    /// Checks everything that QEMU would stumble over, and applies what is pending.
    fn prepare(&self, dc: &mut Datacentre, ground: &mut Ground, worker: &mut Worker) -> Result<(), ApiError> {
        let (host, vmid) = (self.host.as_str(), self.vmid);
        let vm = load(dc, host, vmid)?;
        if vm.config.is_template() {
            return Err(ApiError::server("you can't start a vm if it's a template"));
        }
        let suspended = vm.config.lock() == Some("suspended");
        if !suspended {
            vm.config.check_lock().map_err(ApiError::server)?;
        }
        if vm.runs() {
            return Err(ApiError::server(format!("VM {vmid} already running")));
        }
        if suspended || self.resume {
            worker.say("Resuming suspended VM");
            load_mut(dc, host, vmid)?.config.current.remove("lock");
        } else {
            update::apply_pending(dc, ground, worker, &self.caller, host, vmid)?;
        }
        hardware::regenerate_cloud_init(dc, host, vmid, worker)?;
        hardware::check(dc, host, vmid)
    }
}

/// Who starts a VM again that was told to reboot.
fn host_itself() -> Caller {
    Caller { id: crate::pve::access::ROOT.into(), token: false }
}

/// Switches a VM on: the task's last moment.
pub fn launch(dc: &mut Datacentre, ground: &mut Ground, host: &str, vmid: VmId) -> Result<(), ApiError> {
    let hardware = hardware::of(dc, &ground.media, host, vmid)?;
    let pid = dc.tasks.next_pid();
    let vm = load_mut(dc, host, vmid)?;
    let run = Run {
        pid,
        since: ground.now,
        started: vm.config.current.clone(),
        devices: vm.config.current.clone(),
        paused: false,
        rebooting: false,
        agent: None,
        frozen: None,
    };
    let frozen = vm.config.get("freeze") == Some("1");
    let run = vm.run.insert(run);
    ground.guests.insert(vmid, crate::ground::Guest::default());
    // QEMU is there with all its sockets, but the guest has not begun (`-S`).
    if frozen {
        run.paused = true;
        run.frozen = Some(Box::new(hardware));
    } else {
        ground.send(Signal::PowerOn(Box::new(hardware)));
    }
    Ok(())
}

/// Pulls the plug of a VM.
pub fn switch_off(dc: &mut Datacentre, ground: &mut Ground, vmid: VmId) {
    if let Some(vm) = dc.vms.get_mut(&vmid)
        && vm.run.take().is_some()
    {
        ground.guests.remove(&vmid);
        ground.send(Signal::PowerCut(vmid));
    }
}

/// The guest has switched its VM off.
pub fn has_powered_off(dc: &mut Datacentre, ground: &mut Ground, vmid: VmId) {
    let Some(vm) = dc.vms.get_mut(&vmid) else { return };
    let Some(run) = vm.run.take() else { return };
    ground.guests.remove(&vmid);
    if run.rebooting {
        let host = vm.host.clone();
        let caller = host_itself();
        let mut worker = Worker::default();
        if update::apply_pending(dc, ground, &mut worker, &caller, &host, vmid).is_ok() {
            let _ = hardware::regenerate_cloud_init(dc, &host, vmid, &mut worker);
            let _ = launch(dc, ground, &host, vmid);
        }
    }
}

/// How a VM is made to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Way {
    /// QEMU quits.
    Quit,
    /// The guest is asked.
    Shutdown,
}

/// The tasks `qmstop`, `qmshutdown` and `qmreboot`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    vmid: VmId,
    host: String,
    caller: Caller,
    way: Way,
    timeout: Option<u64>,
    force: bool,
    overrule: bool,
    reboot: bool,
    stage: StopStage,
    waiter: Waiter,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StopStage {
    Lock,
    Probe,
    Ask,
    Wait { deadline: Time },
    Quit,
}

impl Stop {
    fn new(vmid: VmId, host: &str, way: Way) -> Self {
        Self {
            vmid,
            host: host.to_owned(),
            caller: Caller::default(),
            way,
            timeout: None,
            force: false,
            overrule: false,
            reboot: false,
            stage: StopStage::Lock,
            waiter: Waiter::default(),
        }
    }

    fn begin(mut self, dc: &mut Datacentre, ground: &mut Ground, kind: &str, caller: &Caller) -> String {
        let (host, vmid) = (self.host.clone(), self.vmid);
        self.caller = caller.clone();
        let work = tasks::Work::Qemu(qemu::Work::Stop(Box::new(self)));
        tasks::start(dc, ground, &host, kind, &vmid.to_string(), &caller.id, work)
    }

    /// Does the next stretch.
    pub fn step(&mut self, dc: &mut Datacentre, ground: &mut Ground, worker: &mut Worker) -> Next {
        match self.advance(dc, ground, worker) {
            Ok(Some(next)) => next,
            Ok(None) => Next::Done(Exit::Ok),
            Err(error) => {
                self.forget_reboot(dc);
                Next::Done(Exit::Failed(error.as_text()))
            }
        }
    }

    /// The process was told to end.
    pub fn interrupt(&mut self, dc: &mut Datacentre) -> Exit {
        self.forget_reboot(dc);
        Exit::Failed("received interrupt".into())
    }

    fn forget_reboot(&self, dc: &mut Datacentre) {
        if let Some(run) = dc.vms.get_mut(&self.vmid).and_then(|vm| vm.run.as_mut()) {
            run.rebooting = false;
        }
    }

    fn advance(
        &mut self,
        dc: &mut Datacentre,
        ground: &mut Ground,
        worker: &mut Worker,
    ) -> Result<Option<Next>, ApiError> {
        loop {
            match self.stage {
                StopStage::Lock => {
                    if std::mem::take(&mut self.overrule) {
                        self.overrule_shutdowns(dc, ground, worker);
                    }
                    let lock = Lock::Vm(self.vmid);
                    if let Some(next) =
                        self.waiter.take(dc, ground, worker, &lock, Mode::Exclusive, LOCK_WAIT)?
                    {
                        return Ok(Some(next));
                    }
                    let vm = exists(dc, &self.host, self.vmid)?;
                    if !vm.runs() {
                        return Ok(None);
                    }
                    vm.config.check_lock().map_err(ApiError::server)?;
                    if self.timeout.is_none() && self.way == Way::Shutdown {
                        self.timeout = startup_down(vm.config.get("startup"));
                    }
                    self.stage = match self.way {
                        Way::Quit => StopStage::Quit,
                        Way::Shutdown if super::agent::is_enabled(&vm.config) => StopStage::Probe,
                        Way::Shutdown => StopStage::Ask,
                    };
                    if self.stage == StopStage::Quit {
                        return Ok(Some(Next::After(STOPPING)));
                    }
                    if self.stage == StopStage::Probe && !super::agent::answers(dc, ground, self.vmid) {
                        return Ok(Some(Next::After(AGENT_PROBE)));
                    }
                }
                StopStage::Probe => {
                    if !super::agent::answers(dc, ground, self.vmid) {
                        worker.say(format!(
                            "QEMU Guest Agent is not running - VM {} qga command 'guest-ping' failed - got timeout",
                            self.vmid
                        ));
                    }
                    self.stage = StopStage::Ask;
                }
                StopStage::Ask => {
                    if let Some(run) = dc.vms.get_mut(&self.vmid).and_then(|vm| vm.run.as_mut()) {
                        run.rebooting = self.reboot;
                        if run.agent.is_some() {
                            // An agent without a machine behind it: the VM is off as soon as it is asked.
                            let event = qemu::Event::PoweredOff(self.vmid);
                            let event = crate::agenda::Event::Pve(crate::pve::Event::Qemu(event));
                            ground.after(Duration::from_secs(1), event);
                        } else {
                            ground.send(Signal::PowerButton(self.vmid));
                        }
                    }
                    let limit = Duration::from_secs(self.timeout.unwrap_or(USUAL_TIMEOUT));
                    self.stage = StopStage::Wait { deadline: ground.now + patience(ground, limit) };
                    return Ok(Some(self.look_again(ground)));
                }
                StopStage::Wait { deadline } => {
                    let gone = dc
                        .vms
                        .get(&self.vmid)
                        .is_none_or(|vm| vm.run.as_ref().is_none_or(|run| self.reboot && !run.rebooting));
                    if gone {
                        return Ok(None);
                    }
                    if ground.now < deadline {
                        return Ok(Some(self.look_again(ground)));
                    }
                    if !self.force {
                        return Err(ApiError::server("VM quit/powerdown failed - got timeout"));
                    }
                    worker.say("VM still running - terminating now with SIGTERM");
                    self.stage = StopStage::Quit;
                    return Ok(Some(Next::After(STOPPING)));
                }
                StopStage::Quit => {
                    switch_off(dc, ground, self.vmid);
                    return Ok(None);
                }
            }
        }
    }

    fn look_again(&self, ground: &Ground) -> Next {
        let look = ground.now + patience(ground, Duration::from_secs(1));
        match self.stage {
            StopStage::Wait { deadline } => Next::WaitUntil(look.min(deadline.max(ground.now))),
            _ => Next::WaitUntil(look),
        }
    }

    fn overrule_shutdowns(&self, dc: &mut Datacentre, ground: &mut Ground, worker: &mut Worker) {
        let all = dc.may(&self.caller, &format!("/nodes/{}", self.host), &["Sys.Modify"]);
        let id = self.vmid.to_string();
        let upids: Vec<String> = dc
            .tasks
            .running()
            .filter(|task| task.kind == "qmshutdown" && task.id == id && task.host == self.host)
            .filter(|task| all || task.user == self.caller.id || task.user_only() == self.caller.id)
            .map(|task| task.upid.clone())
            .collect();
        for upid in &upids {
            tasks::interrupt(dc, ground, upid);
        }
        if !upids.is_empty() {
            worker.say(format!("overruled qmshutdown tasks: {}", upids.join(", ")));
        }
    }
}

/// Returns how long a VM may take to go down by its own option.
fn startup_down(startup: Option<&str>) -> Option<u64> {
    Properties::read(Shape::plain("order"), startup?).get("down")?.parse().ok().filter(|seconds| *seconds > 0)
}
