//! The store of a cluster as it is shared with others: who this run is, its lock, and what it leaves behind.

use std::{
    fs,
    future::Future,
    io::Read,
    path::Path,
    sync::{Arc, PoisonError},
    time::Duration,
};

use ichor_model::Finding;
use ichor_ops::{
    Halt, Site, System,
    halt::only,
    keep::{JournalCopy, Keep},
    past::Past,
};
use ichor_store::{
    audit::{Break, Deed},
    lock::{self, Holder, Lease, Process, Terms, Uptime},
};
use tokio::{
    runtime::{Handle, Runtime},
    sync::Mutex,
    task::JoinHandle,
};

use crate::{
    operating_system::OperatingSystem,
    render::{progress::Wait, text::safe_line},
    terminal::Terminal,
};

/// What is waited for when a store takes its time.
pub const ASKING: &str = "asking the store";
/// How often the journal of a run is copied to a bucket.
const COPY: Duration = Duration::from_secs(10);
/// Most of the list of users that is read.
const MAX_USERS: u64 = 1024 * 1024;
/// Most of a journal that is copied.
const MAX_JOURNAL: u64 = 32 * 1024 * 1024;

/// A store that nobody else changes. It is given back when it is dropped.
pub struct Held {
    keep: Mutex<Keep<'static>>,
    lease: Arc<Lease>,
    renewing: JoinHandle<()>,
    holder: Holder,
    handle: Handle,
    terminal: Terminal,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Held").field("holder", &self.holder).finish_non_exhaustive()
    }
}

/// How a store is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The verb that is going to change something.
    pub verb: &'a str,
    /// How long to wait for somebody else.
    pub wait: Duration,
}

/// Brings the mirror of a store in a bucket up to date.
pub fn refresh(site: Site<'_>, terminal: &Terminal) -> Result<(), Halt> {
    let mut keep = Keep::open(&OperatingSystem, site)?;
    if !keep.is_shared() {
        return Ok(());
    }
    Wait::on(terminal, runtime()?.handle(), ASKING, keep.refresh())
}

/// Returns the generations of a cluster's store, the newest first.
pub fn past(site: Site<'_>, terminal: &Terminal) -> Result<Vec<Past>, Halt> {
    let keep = Keep::open(&OperatingSystem, site)?;
    Wait::on(terminal, runtime()?.handle(), ASKING, keep.past())
}

/// Makes what a verb needs that has no other use for it.
pub fn runtime() -> Result<Runtime, Halt> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(|error| {
        let finding = Finding::error(ichor_model::Code::STORE_FAILED, None, "the run cannot start");
        Halt::failed(only(finding.because(error.to_string())))
    })
}

/// Takes the lock of a cluster's store, and keeps it.
pub fn take(site: Site<'_>, ask: Ask<'_>, runtime: &Runtime, terminal: &Terminal) -> Result<Held, Halt> {
    take_of(Keep::open(&OperatingSystem, site)?, ask, runtime, terminal)
}

fn take_of(
    mut keep: Keep<'static>,
    ask: Ask<'_>,
    runtime: &Runtime,
    terminal: &Terminal,
) -> Result<Held, Halt> {
    let holder = this_run(ask.verb)?;
    let speaking = std::sync::Mutex::new(Wait::new(terminal, ASKING));
    let waiting = |holder: &Holder| {
        // Whoever can write to the store can write anything there.
        let (who, verb) = (safe_line(&holder.who), safe_line(&holder.verb));
        terminal.tell(&format!("waiting for `{who}`, who is at work with `ichor {verb}`"));
        let patient = Wait::new(terminal, format!("waiting for `{who}`"));
        *speaking.lock().unwrap_or_else(PoisonError::into_inner) = patient;
    };
    let request = lock::Request {
        holder: holder.clone(),
        terms: Terms::default(),
        wait: ask.wait,
        uptime: uptime(),
        is_dead: &is_dead,
        waiting: &waiting,
    };
    let taken = runtime.block_on(keep.take(request));
    drop(speaking);
    let (lease, cut) = taken?;
    let lease = Arc::new(lease);
    let renewed = Arc::clone(&lease);
    let renewing = runtime.spawn(async move {
        renewed.keep().await;
    });
    let handle = runtime.handle().clone();
    let held = Held { keep: Mutex::new(keep), lease, renewing, holder, handle, terminal: terminal.another() };
    if let Some(cut) = cut {
        held.tell_of(&cut, terminal)?;
    }
    Ok(held)
}

impl Held {
    /// Returns the lease.
    pub const fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// Returns the name of the run.
    pub fn run(&self) -> &str {
        &self.holder.run
    }

    /// A run that was killed could write no entry, so whoever comes next does.
    fn tell_of(&self, cut: &Holder, terminal: &Terminal) -> Result<(), Halt> {
        let (who, verb, since) = (safe_line(&cut.who), safe_line(&cut.verb), safe_line(&cut.since));
        terminal.tell(&format!(
            "`{who}` did not finish `ichor {verb}`, which began at {since}; its lock was taken over"
        ));
        self.ask(async {
            let keep = self.keep.lock().await;
            let deed = keep.deed(cut, now(), "cut short");
            keep.record(&deed).await.map(drop)
        })
    }

    /// Writes what has changed in the store as its next generation.
    pub fn commit(&self) -> Result<(), Halt> {
        self.ask(async { self.keep.lock().await.commit(&self.lease, &now(), &self.holder.who).await })
    }

    fn ask<F: Future>(&self, asked: F) -> F::Output {
        Wait::on(&self.terminal, &self.handle, ASKING, asked)
    }

    /// Adds an entry to the audit trail, and writes what has changed. If the lock is not held any more, that is what
    /// the entry says.
    pub fn finish(&self, fill: impl FnOnce(Deed) -> Deed, outcome: &str) -> Result<(), Halt> {
        self.ask(async {
            let mut keep = self.keep.lock().await;
            let deed = fill(keep.deed(&self.holder, now(), outcome));
            keep.finish(&self.lease, deed).await
        })
    }

    /// Copies the journal to a bucket again and again, for the case that this machine dies.
    pub fn copy_journal(&self, path: &Path) -> Copying {
        let (path, objects) = (
            path.to_owned(),
            self.handle.block_on(async {
                let keep = self.keep.lock().await;
                keep.is_shared().then(|| keep.objects().clone())
            }),
        );
        let copy = objects.map(JournalCopy::new);
        let copy = Arc::new(Mutex::new(copy));
        let task = self.handle.spawn({
            let (copy, path) = (Arc::clone(&copy), path.clone());
            async move {
                loop {
                    tokio::time::sleep(COPY).await;
                    send(&copy, &path).await;
                }
            }
        });
        Copying { copy, path, task, handle: self.handle.clone() }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.renewing.abort();
        // Whoever waits for it is told in vain that we are here, for two minutes at most.
        let _ = Wait::on(&self.terminal, &self.handle, "giving the lock back", self.lease.release());
    }
}

/// A journal that is being copied. The last copy is made when it is dropped.
pub struct Copying {
    copy: Arc<Mutex<Option<JournalCopy>>>,
    path: std::path::PathBuf,
    task: JoinHandle<()>,
    handle: Handle,
}

impl Drop for Copying {
    fn drop(&mut self) {
        self.task.abort();
        self.handle.block_on(send(&self.copy, &self.path));
    }
}

async fn send(copy: &Mutex<Option<JournalCopy>>, path: &Path) {
    let mut copy = copy.lock().await;
    let Some(copy) = copy.as_mut() else { return };
    let short = fs::symlink_metadata(path).is_ok_and(|named| named.is_file() && named.len() <= MAX_JOURNAL);
    if let (true, Ok(bytes)) = (short, fs::read(path)) {
        copy.send(bytes).await;
    }
}

/// Changes something in the store of a cluster, alone.
pub fn changing<T>(
    site: Site<'_>,
    ask: Ask<'_>,
    terminal: &Terminal,
    act: impl FnOnce() -> Result<T, Halt>,
) -> Result<T, Halt> {
    let runtime = runtime()?;
    let held = take(site, ask, &runtime, terminal)?;
    let done = act()?;
    held.finish(|deed| deed, "done")?;
    drop(held);
    Ok(done)
}

/// Goes on with an audit trail whose end is gone. Returns what was wrong, if anything was.
pub fn accept(site: Site<'_>, ask: Ask<'_>, terminal: &Terminal) -> Result<Option<Break>, Halt> {
    let runtime = runtime()?;
    let held = take_of(Keep::open(&OperatingSystem, site)?.accepting(), ask, &runtime, terminal)?;
    held.ask(async {
        let mut keep = held.keep.lock().await;
        let deed = keep.deed(&held.holder, now(), "accepted");
        keep.accept(&held.lease, deed).await
    })
}

fn now() -> String {
    OperatingSystem.now().to_string()
}

/// Says who this run is.
pub fn this_run(verb: &str) -> Result<Holder, Halt> {
    let mut number = [0; 8];
    OperatingSystem.random(&mut number).map_err(|error| {
        let finding = Finding::error(ichor_model::Code::STORE_FAILED, None, "the run cannot be given a name");
        Halt::failed(only(finding.because(error.to_string())))
    })?;
    let run = format!("{:016x}", u64::from_be_bytes(number));
    Ok(Holder { who: who(), verb: verb.to_owned(), run, since: now(), process: this_process() })
}

/// Returns the person and the machine, as in `ann@laptop`. What a name must not do to a terminal it cannot.
fn who() -> String {
    // Behind a job of CI there is a person, too.
    let user = ["GITHUB_ACTOR", "GITLAB_USER_LOGIN", "USER", "LOGNAME", "USERNAME"]
        .iter()
        .filter_map(|name| OperatingSystem.variable(name).ok().flatten())
        .find(|text| !text.expose().is_empty())
        .map_or_else(user_of_process, |text| text.expose().to_owned());
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let plain = |text: &str| -> String {
        text.chars().filter(|c| c.is_alphanumeric() || "-_.+".contains(*c)).take(64).collect()
    };
    format!("{}@{}", plain(&user), plain(&host))
}

/// Returns the user whose process this is: by name where the machine knows one, as containers often do not.
fn user_of_process() -> String {
    let Some(id) = user_id() else { return "somebody".to_owned() };
    let known = fs::File::open("/etc/passwd").ok().and_then(|file| {
        let mut text = String::new();
        file.take(MAX_USERS).read_to_string(&mut text).ok()?;
        name_in(&text, id)
    });
    known.unwrap_or_else(|| format!("uid-{id}"))
}

/// Returns the number of that user, which whoever runs a process owns it by (proc(5)).
#[cfg(unix)]
fn user_id() -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    fs::metadata("/proc/self").ok().map(|own| own.uid())
}

#[cfg(not(unix))]
fn user_id() -> Option<u32> {
    None
}

/// Finds a user in the lines of passwd(5).
fn name_in(users: &str, id: u32) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, number) = (fields.next()?, fields.nth(1)?);
        (number.parse() == Ok(id) && !name.is_empty()).then(|| name.to_owned())
    })
}

/// Returns this process. Its number alone means nothing on another machine, in another container, or after a start.
fn this_process() -> Process {
    let id = std::process::id();
    Process { world: this_world(), id, started: stat(id).map(|(_, started)| started) }
}

fn this_world() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), namespace.display()))
}

/// Returns the state of a process, and when it was started.
fn stat(id: u32) -> Option<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name of the program stands in parentheses, and may have some of its own.
    let mut words = text.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?.chars().next()?;
    // It is the 22nd word of all (proc_pid_stat(5)), and the first here is the third.
    Some((state, words.nth(18)?.parse().ok()?))
}

/// Whether a process is known not to run any more: it would have to be seen here, and is not.
pub fn is_dead(process: &Process) -> bool {
    let (Some(world), Some(started)) = (&process.world, process.started) else { return false };
    if this_world().as_ref() != Some(world) {
        return false;
    }
    match stat(process.id) {
        Some((state, now)) => now != started || matches!(state, 'Z' | 'X'),
        // Where processes of others are hidden, one that is not seen may be there.
        None => stat(1).is_some(),
    }
}

/// Returns how long the machine has been at work, sleep included: a lease ends also while the machine sleeps.
fn uptime() -> Uptime {
    #[cfg(target_os = "linux")]
    let clock = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let clock = rustix::time::ClockId::Monotonic;
    Arc::new(move || {
        let now = rustix::time::clock_gettime(clock);
        let part = |number: i64| u64::try_from(number).unwrap_or(0);
        Duration::from_secs(part(now.tv_sec)) + Duration::from_nanos(part(now.tv_nsec))
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_alive_and_one_that_has_ended_is_dead() {
        let own = this_process();
        assert!(own.world.is_some() && own.started.is_some(), "{own:?}");
        assert!(!is_dead(&own));
        assert!(
            is_dead(&Process { started: own.started.map(|it| it + 1), ..own.clone() }),
            "another of its number"
        );
        assert!(!is_dead(&Process { world: Some("elsewhere".into()), id: 1, ..own.clone() }));
        assert!(!is_dead(&Process { world: None, ..own.clone() }));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("a process");
        let (_, started) = stat(child.id()).expect("seen");
        let process = Process { id: child.id(), started: Some(started), ..own };
        assert!(!is_dead(&process));
        child.kill().expect("killed");
        // Nobody has asked for its end yet.
        while stat(child.id()).is_some_and(|(state, _)| state != 'Z') {
            std::thread::yield_now();
        }
        assert!(is_dead(&process));
        child.wait().expect("ended");
        assert!(is_dead(&process));
    }

    #[test]
    fn somebody_without_a_name_in_the_environment_is_known_by_that_of_the_machine() {
        let users =
            "root:x:0:0:root:/root:/bin/sh\n\nbad line\nann:x:1000:1000::/home/ann:/bin/sh\n:x:7:7:::\n";
        assert_eq!(name_in(users, 1000).as_deref(), Some("ann"));
        assert_eq!(name_in(users, 0).as_deref(), Some("root"));
        assert_eq!((name_in(users, 7), name_in(users, 100)), (None, None));
        assert_ne!(user_of_process(), "somebody");
        assert!(!user_of_process().is_empty());
    }

    #[test]
    fn the_clock_runs_forward() {
        let uptime = uptime();
        let before = uptime();
        assert!(!before.is_zero() && uptime() >= before);
    }
}
