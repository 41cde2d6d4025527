//! Tasks: what Proxmox does after it answered, in a process of its own with a log and an exit state.

mod api;

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

pub use self::api::routes;
use crate::{
    agenda,
    clock::Time,
    ground::Ground,
    pve::{
        ApiError, Datacentre, Event, Lock, Mode, ha,
        locks::{Blocked, Patience},
        qemu, storage,
    },
};

/// What a task does, and how far it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Something with a VM.
    Qemu(qemu::Work),
    /// Something with a storage.
    Storage(storage::Work),
    /// A request to the HA manager.
    Ha(ha::Work),
    /// Nothing that is simulated: it ends well after this time of real hardware.
    Nothing(Duration),
}

impl Work {
    /// Does the next stretch.
    pub fn step(&mut self, dc: &mut Datacentre, ground: &mut Ground, worker: &mut Worker) -> Next {
        match self {
            Self::Qemu(work) => work.step(dc, ground, worker),
            Self::Storage(work) => work.step(dc, ground, worker),
            Self::Ha(work) => work.step(dc, ground, worker),
            Self::Nothing(time) => match std::mem::take(time) {
                Duration::ZERO => Next::Done(Exit::Ok),
                time => Next::After(time),
            },
        }
    }

    /// The process was told to end (SIGTERM): it cleans up as an error would make it.
    pub fn interrupt(&mut self, dc: &mut Datacentre, ground: &mut Ground, worker: &mut Worker) -> Exit {
        match self {
            Self::Qemu(work) => work.interrupt(dc, ground, worker),
            Self::Storage(work) => work.interrupt(dc, ground, worker),
            Self::Ha(_) | Self::Nothing(_) => Exit::Failed("received interrupt".into()),
        }
    }
}

/// How a task goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// After a time of real hardware.
    After(Duration),
    /// At a moment: it waits for a lock.
    WaitUntil(Time),
    /// It has ended.
    Done(Exit),
}

/// How a task goes on after a stretch: nothing more is to do, or it fails with what went wrong.
impl From<Result<Option<Self>, ApiError>> for Next {
    fn from(stretch: Result<Option<Self>, ApiError>) -> Self {
        match stretch {
            Ok(Some(next)) => next,
            Ok(None) => Self::Done(Exit::Ok),
            Err(error) => Self::Done(Exit::Failed(error.as_text())),
        }
    }
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// Well; with warnings where the worker counted any.
    Ok,
    /// With an error.
    Failed(String),
    /// It was killed: nobody wrote a last line.
    Killed,
}

/// The process that does a task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Worker {
    /// The task.
    pub upid: String,
    /// The host it runs on.
    pub host: String,
    /// Who started it: user or token.
    pub user: String,
    /// What it wrote to its log since.
    pub log: Vec<String>,
    /// How often it warned.
    pub warnings: u32,
    /// Since when it waits for what.
    pub patience: Patience,
    /// Until when somebody else holds every lock that it wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locks_held_until: Option<Time>,
}

impl Worker {
    /// Writes a line to the log.
    pub fn say(&mut self, line: impl Into<String>) {
        self.log.push(line.into());
    }

    /// Writes a warning to the log and counts it.
    pub fn warn(&mut self, text: &str) {
        self.warnings += 1;
        self.log.push(format!("WARN: {text}"));
    }

    /// Takes a lock, waiting for at most a time of real hardware. The error is what the step must return.
    pub fn lock(
        &mut self,
        dc: &mut Datacentre,
        ground: &Ground,
        lock: &Lock,
        mode: Mode,
        real: Duration,
    ) -> Result<(), Next> {
        let name = format!("{lock:?}");
        if self.can_have(dc, ground, lock, mode) {
            self.patience.forget(&name);
            dc.locks.take(lock.clone(), mode, &self.upid);
            return Ok(());
        }
        match self.patience.wait(ground, &name, real) {
            Blocked::Until(time) => Err(Next::WaitUntil(time)),
            Blocked::Timeout => Err(Next::Done(Exit::Failed(lock.timeout_text()))),
        }
    }

    /// Returns whether nobody else holds a lock.
    pub fn can_have(&self, dc: &Datacentre, ground: &Ground, lock: &Lock, mode: Mode) -> bool {
        self.locks_held_until.is_none_or(|until| until <= ground.now)
            && dc.locks.free_for(lock, mode, &self.upid)
    }

    /// Lets go of a lock before the task ends.
    pub fn unlock(&mut self, dc: &mut Datacentre, lock: &Lock) {
        dc.locks.release(lock, &self.upid);
    }
}

/// A task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Its name.
    pub upid: String,
    /// The host it runs on.
    pub host: String,
    /// The number of its process.
    pub pid: u32,
    /// When its process began, in ticks since the host's start.
    pub pstart: u64,
    /// When it began, in Unix seconds.
    pub start: u64,
    /// Its kind, such as `qmcreate`.
    pub kind: String,
    /// What it is about, such as a VMID; may be empty.
    pub id: String,
    /// Who started it: user or token.
    pub user: String,
    /// Its log.
    pub log: Vec<String>,
    /// What it does; absent once it has ended.
    work: Option<Work>,
    worker: Worker,
    /// How it ended.
    pub exit: Option<Ended>,
    /// What it fails with before it has done anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    doomed: Option<String>,
    /// Whether another task started it.
    nested: bool,
    /// Whether the list of active tasks still names it: a task that another task started stays there until the
    /// status daemon's next round.
    pub listed_as_running: bool,
}

/// The end of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// When, in Unix seconds.
    pub at: u64,
    /// What its exit state says, such as `OK`.
    pub status: String,
}

impl Task {
    /// Returns whether its process is there.
    pub const fn runs(&self) -> bool {
        self.exit.is_none()
    }

    /// Returns the user without the token.
    pub fn user_only(&self) -> &str {
        self.user.split('!').next().unwrap_or_default()
    }

    /// Returns the name of the token, if one started it.
    pub fn token(&self) -> Option<&str> {
        self.user.split_once('!').map(|(_, token)| token)
    }
}

/// All tasks that anybody remembers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tasks {
    last_pid: u32,
    order: Vec<String>,
    by_upid: BTreeMap<String, Task>,
}

/// How many tasks are remembered; the real archive keeps more, but a lab runs long.
const REMEMBERED: usize = 20_000;

impl Tasks {
    /// Returns a task.
    pub fn get(&self, upid: &str) -> Option<&Task> {
        self.by_upid.get(upid)
    }

    /// Returns all tasks in the order of their start.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Task> {
        self.order.iter().filter_map(|upid| self.by_upid.get(upid))
    }

    /// Returns the tasks whose processes are there.
    pub fn running(&self) -> impl Iterator<Item = &Task> {
        self.iter().filter(|task| task.runs())
    }

    /// Returns the number for a new process.
    pub fn next_pid(&mut self) -> u32 {
        self.last_pid = if self.last_pid == 0 { 1100 } else { self.last_pid + 1 };
        if self.last_pid > 4_194_303 {
            self.last_pid = 300;
        }
        self.last_pid
    }

    /// The status daemon's round: tasks that have ended leave the list of active ones.
    pub fn round(&mut self) {
        for task in self.by_upid.values_mut().filter(|task| task.exit.is_some()) {
            task.listed_as_running = false;
        }
    }
}

/// Starts a task and returns its UPID.
pub fn start(
    dc: &mut Datacentre,
    ground: &mut Ground,
    host: &str,
    kind: &str,
    id: &str,
    user: &str,
    work: Work,
) -> String {
    ground.needs(&format!("vm {id}"));
    let pid = dc.tasks.next_pid();
    let start = ground.now.unix_seconds();
    let booted_ticks = dc.hosts.get(host).map_or(0, |host| host.uptime(ground.now).as_millis() / 10);
    let pstart = u64::try_from(booted_ticks).unwrap_or_default();
    let upid = format!("UPID:{host}:{pid:08X}:{pstart:08X}:{start:08X}:{kind}:{id}:{user}:");
    let worker = Worker {
        upid: upid.clone(),
        host: host.to_owned(),
        user: user.to_owned(),
        locks_held_until: ground.mischief.locks_held_until,
        ..Worker::default()
    };
    let task = Task {
        upid: upid.clone(),
        host: host.to_owned(),
        pid,
        pstart,
        start,
        kind: kind.to_owned(),
        id: id.to_owned(),
        user: user.to_owned(),
        log: Vec::new(),
        work: Some(work),
        worker,
        exit: None,
        doomed: ground.mischief.task_fails.take(),
        nested: false,
        listed_as_running: true,
    };
    dc.tasks.order.push(upid.clone());
    dc.tasks.by_upid.insert(upid.clone(), task);
    forget_oldest(&mut dc.tasks);
    ground.agenda.add(ground.now, agenda::Event::Pve(Event::Task(upid.clone())));
    upid
}

/// Starts a task from within another one: see [`Task::listed_as_running`].
pub fn start_nested(
    dc: &mut Datacentre,
    ground: &mut Ground,
    host: &str,
    kind: &str,
    id: &str,
    user: &str,
    work: Work,
) -> String {
    let upid = start(dc, ground, host, kind, id, user, work);
    if let Some(task) = dc.tasks.by_upid.get_mut(&upid) {
        task.nested = true;
    }
    upid
}

fn forget_oldest(tasks: &mut Tasks) {
    while tasks.order.len() > REMEMBERED {
        let Some(place) =
            tasks.order.iter().position(|upid| tasks.by_upid.get(upid).is_none_or(|t| !t.runs()))
        else {
            return;
        };
        let upid = tasks.order.remove(place);
        tasks.by_upid.remove(&upid);
    }
}

/// Does the next stretch of a task.
pub fn step(dc: &mut Datacentre, ground: &mut Ground, upid: &str) {
    let Some((mut work, mut worker)) = take_work(dc, upid) else { return };
    let next = match dc.tasks.by_upid.get_mut(upid).and_then(|task| task.doomed.take()) {
        Some(text) => {
            // It cleans up as it does when it is told to end, and says what the fault plan wants it to.
            let _ = work.interrupt(dc, ground, &mut worker);
            Next::Done(Exit::Failed(text))
        }
        None => work.step(dc, ground, &mut worker),
    };
    put_back(dc, upid, work, worker);
    match next {
        Next::After(real) => ground.after(real, agenda::Event::Pve(Event::Task(upid.to_owned()))),
        Next::WaitUntil(time) => {
            ground.agenda.add(time.max(ground.now), agenda::Event::Pve(Event::Task(upid.to_owned())));
        }
        Next::Done(exit) => end(dc, ground, upid, &exit),
    }
}

fn take_work(dc: &mut Datacentre, upid: &str) -> Option<(Work, Worker)> {
    let task = dc.tasks.by_upid.get_mut(upid).filter(|task| task.runs())?;
    Some((task.work.take()?, std::mem::take(&mut task.worker)))
}

fn put_back(dc: &mut Datacentre, upid: &str, work: Work, mut worker: Worker) {
    if let Some(task) = dc.tasks.by_upid.get_mut(upid) {
        task.log.append(&mut worker.log);
        task.worker = worker;
        task.work = Some(work);
    }
}

/// Ends a task, if it runs.
pub fn end(dc: &mut Datacentre, ground: &mut Ground, upid: &str, exit: &Exit) {
    dc.locks.release_all(upid);
    let at = ground.now.unix_seconds();
    let Some(task) = dc.tasks.by_upid.get_mut(upid).filter(|task| task.runs()) else { return };
    let status = match exit {
        Exit::Ok if task.worker.warnings == 0 => {
            task.log.push("TASK OK".into());
            "OK".to_owned()
        }
        Exit::Ok => {
            let status = format!("WARNINGS: {}", task.worker.warnings);
            task.log.push(format!("TASK {status}"));
            status
        }
        Exit::Failed(text) => {
            let text = text.trim_end_matches('\n');
            task.log.extend(format!("TASK ERROR: {text}").lines().map(str::to_owned));
            text.replace('\n', " ")
        }
        Exit::Killed => "unexpected status".into(),
    };
    let (kind, id) = (task.kind.clone(), task.id.clone());
    task.work = None;
    task.listed_as_running = task.nested;
    task.exit = Some(Ended { at, status });
    ground.reached(&kind, &id);
    ground.usable(format!("vm {id}"));
}

/// Tells a task's process to end, as its abortion does (SIGTERM).
pub fn interrupt(dc: &mut Datacentre, ground: &mut Ground, upid: &str) {
    let Some((mut work, mut worker)) = take_work(dc, upid) else { return };
    let exit = work.interrupt(dc, ground, &mut worker);
    put_back(dc, upid, work, worker);
    end(dc, ground, upid, &exit);
}

/// A host has lost its power: its tasks are gone, and what they began stays as it is.
pub fn host_down(dc: &mut Datacentre, ground: &mut Ground, host: &str) {
    let tasks = dc.tasks.running().filter(|task| task.host == host);
    let upids: Vec<String> = tasks.map(|task| task.upid.clone()).collect();
    for upid in upids {
        kill(dc, ground, &upid);
    }
}

/// Kills a task's process (SIGKILL): what it held is free, what it began stays.
pub fn kill(dc: &mut Datacentre, ground: &mut Ground, upid: &str) {
    end(dc, ground, upid, &Exit::Killed);
}
