//! Carrying out a plan: asking first, showing how it goes, and telling how it ended.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, IsTerminal, Write},
};

use ichor_engine::{Cancel, Haste, Journal, Outcome, RunReport};
use ichor_model::{Code, Finding, Observed};
use ichor_ops::{
    Halt, HaltKind, System,
    converge::{Ended, Goal, converge},
    keep::JOURNAL,
    saved_plan::SavedPlan,
};
use ichor_plan::ClusterPlan;
use ichor_store::{audit::Deed, lock::Lease};
use serde_json::{Value, json};

use super::live::Stage;
use crate::{
    exit::Exit,
    failure::Failure,
    journal,
    operating_system::OperatingSystem,
    render::{
        progress::{Clock, Form, Progress},
        run_report::{self, Finish},
    },
    terminal::Terminal,
};

/// The number of the language of results.
const SCHEMA: u32 = 1;

/// How a verb that changes the world was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// The verb.
    pub verb: &'static str,
    /// Whether it goes ahead without asking.
    pub yes: bool,
    /// Whether nothing is changed.
    pub dry_run: bool,
    /// Whether what happens is told to a program.
    pub json: bool,
}

impl Asked {
    /// Refuses what cannot work: nobody can be asked without a terminal.
    pub fn check(&self) -> Result<(), Failure> {
        self.check_or(&format!("ichor {} --dry-run", self.verb))
    }

    /// Like [`Self::check`], for a verb that has another one to look first.
    pub fn check_or(&self, look: &str) -> Result<(), Failure> {
        let why = match (self.json, io::stdin().is_terminal()) {
            _ if self.yes || self.dry_run => return Ok(()),
            (true, _) => "`--json` talks to a program, and it changes things",
            (false, false) => "there is no terminal, and it changes things",
            (false, true) => return Ok(()),
        };
        Err(Failure::new(Exit::InvalidInput, format!("`{}` has nobody to ask", self.verb)).because(why).hint(
            format!("go ahead without asking, or look first:\n    ichor {} --yes\n    {look}", self.verb),
        ))
    }

    /// Returns the command that goes on, asking no more than this one did.
    fn again(&self) -> String {
        format!("ichor {}{}", self.verb, if self.yes { " --yes" } else { "" })
    }

    /// Asks, unless that was answered before.
    pub fn confirmed(&self, question: &str, answer: &str) -> bool {
        if self.yes {
            return true;
        }
        let mut stderr = io::stderr();
        let _ = write!(stderr, "{question} Type `{answer}` to go ahead: ");
        let _ = stderr.flush();
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line).is_ok() && line.trim() == answer
    }
}

/// Says that nobody confirmed.
pub fn not_confirmed(what: &str) -> Finding {
    Finding::error(Code::NOT_CONFIRMED, None, "it was not confirmed").because(what)
}

/// How a run ended.
#[derive(Debug)]
pub struct Ending {
    /// What was last seen.
    pub observed: Observed,
    report: Option<RunReport>,
    done: bool,
}

impl Ending {
    /// Returns how the program ends.
    pub fn exit(&self) -> Exit {
        match &self.report {
            Some(report) => run_report::exit(report, self.done),
            None if self.done => Exit::Done,
            None => Exit::PartWay,
        }
    }

    /// Returns how it ended, for programs.
    pub fn document(&self, asked: &Asked, cluster: &str) -> Value {
        let nothing = RunReport::default();
        let exit = self.exit();
        json!({
            "schema": SCHEMA,
            "cluster": cluster,
            "done": exit == Exit::Done,
            "exit_code": exit.code(),
            "exit": exit.meaning(),
            "counts": run_report::counts(self.report.as_ref().unwrap_or(&nothing)),
            "trouble": run_report::trouble(self.report.as_ref().unwrap_or(&nothing)),
            "next": (exit != Exit::Done).then(|| asked.again()),
        })
    }
}

/// Carries out a plan, and what turns out to be left after it.
pub fn carry_out(
    stage: &Stage<'_>,
    goal: &Goal,
    plan: &ClusterPlan,
    asked: &Asked,
    terminal: &Terminal,
) -> Result<Ending, Halt> {
    if plan.is_empty() {
        return Ok(Ending { observed: stage.observed.clone(), report: None, done: true });
    }
    let path = stage.store.file(JOURNAL);
    let past = journal::read_past(&path);
    let clock = Clock::real();
    let journal = journal::open(&path, &past).map_err(|error| Halt::unwritable(&path, &error))?;
    let run = match stage.held {
        Some(held) => held.run().to_owned(),
        None => OperatingSystem.now().to_string(),
    };
    let lease = stage.held.map(|held| held.lease().clone());
    let journal = Journal::new(run, Box::new(journal::Guarded::new(journal, lease.clone())));
    let copying = stage.held.map(|held| held.copy_journal(&path));
    let form = if asked.json { Form::Json } else { Form::People };
    let progress = Progress::new(form, plan, terminal);
    let cancel = Cancel::default();
    let ended = stage.runtime.block_on(async {
        let run =
            converge(stage.live, goal, stage.observed.clone(), &journal, past, progress.sink(), &cancel);
        tokio::pin!(run);
        let mut stop = Stop::listen();
        let lost = lost(lease.as_deref());
        tokio::pin!(lost);
        let mut is_held = true;
        loop {
            tokio::select! {
                ended = &mut run => break ended,
                () = &mut lost, if is_held => {
                    is_held = false;
                    // Nothing new is begun; what is in flight cannot be called back.
                    cancel.ask();
                    progress.say("the lock was lost: finishing what is in flight, and nothing more");
                }
                () = stop.asked() => {
                    cancel.ask();
                    progress.say(match cancel.haste() {
                        Haste::Now => "stopping now; the next run looks at what was in flight",
                        _ => "finishing what is in flight; Ctrl-C again stops at once",
                    });
                }
            }
        }
    });
    drop(journal);
    drop(copying);
    let ended = match ended {
        Ok(ended) => ended,
        Err(halt) => {
            drop(progress);
            leave(stage, plan, None, "failed")?;
            return Err(halt);
        }
    };
    let Ended { observed, report, done, findings } = ended;
    if let Some(report) = &report {
        let lasted = progress.lasted();
        let finish = Finish {
            verb: asked.verb,
            cluster: stage.site.name(),
            plan,
            report,
            done,
            took: clock.now(),
            lasted: &lasted,
            again: &format!("ichor {}", asked.verb),
            then: "",
        };
        if asked.json {
            progress.object(run_report::document(finish));
            drop(progress);
        } else {
            drop(progress);
            terminal.tell(run_report::text(finish).trim_end());
        }
    }
    let ending = Ending { observed, report, done };
    let outcome = if findings.has_errors() { Exit::PartWay } else { ending.exit() };
    leave(stage, plan, ending.report.as_ref(), in_a_word(outcome))?;
    if findings.has_errors() {
        // Much was done before they were met, and the report says what.
        return Err(Halt { kind: HaltKind::PartWay, findings });
    }
    Ok(ending)
}

/// Waits until the lock is lost, if there is one.
async fn lost(lease: Option<&Lease>) {
    match lease {
        Some(lease) => drop(lease.lost().await),
        None => std::future::pending().await,
    }
}

/// Leaves an entry in the audit trail, and what has changed in the store. Fails if the lock was lost.
fn leave(
    stage: &Stage<'_>,
    plan: &ClusterPlan,
    report: Option<&RunReport>,
    outcome: &str,
) -> Result<(), Halt> {
    let Some(held) = stage.held else { return Ok(()) };
    let mut counts = BTreeMap::new();
    for outcome in report.iter().flat_map(|report| report.outcomes.values()) {
        *counts.entry(word(outcome).to_owned()).or_default() += 1;
    }
    let plan = ichor_store::digest(&SavedPlan::new(stage.site.desired, plan).bytes());
    held.finish(|deed| Deed { plan: Some(plan), counts, ..deed }, outcome)
}

/// Says how a run ended, for the audit trail.
const fn in_a_word(exit: Exit) -> &'static str {
    match exit {
        Exit::Done => "done",
        Exit::PartWay => "part-way",
        Exit::Refused => "refused",
        Exit::Interrupted => "interrupted",
        _ => "failed",
    }
}

const fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "done",
        Outcome::Skipped => "skipped",
        Outcome::Failed { .. } => "failed",
        Outcome::Refused { .. } => "refused",
        Outcome::Unknown { .. } => "unknown",
        Outcome::Blocked { .. } => "blocked",
        Outcome::NotBegun => "not begun",
    }
}

/// Whether the signal of a terminal that is closed was ignored when the program began. Only Linux tells without ado.
#[cfg(unix)]
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // SIGHUP is the first signal.
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// Asks to end: Ctrl-C, and what a service or CI sends before it kills.
struct Stop {
    #[cfg(unix)]
    terminate: Option<tokio::signal::unix::Signal>,
    #[cfg(unix)]
    hangup: Option<tokio::signal::unix::Signal>,
}

impl Stop {
    /// Must be called within a runtime.
    fn listen() -> Self {
        #[cfg(unix)]
        {
            use tokio::signal::unix::{SignalKind, signal};
            // A terminal that is closed must not cut a run off, either. Whoever says `nohup` wants it to go on.
            let hangup = if ignores_hangup() { None } else { signal(SignalKind::hangup()).ok() };
            Self { terminate: signal(SignalKind::terminate()).ok(), hangup }
        }
        #[cfg(not(unix))]
        Self {}
    }

    /// Waits until the run is asked to end.
    async fn asked(&mut self) {
        #[cfg(unix)]
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            () = arrives(self.terminate.as_mut()) => {}
            () = arrives(self.hangup.as_mut()) => {}
        }
        #[cfg(not(unix))]
        let _ = tokio::signal::ctrl_c().await;
    }
}

/// Waits for a signal; one that is not listened to never comes.
#[cfg(unix)]
async fn arrives(signal: Option<&mut tokio::signal::unix::Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}
