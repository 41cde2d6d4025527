//! Carrying out a plan: asking first, showing how it goes, and telling how it ended.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, IsTerminal, Read, Write},
    path::Path,
};

use ichor_engine::{Cancel, Haste, Journal, Past, RunReport, journal::Sink};
use ichor_model::{Code, Desired, Finding, Observed};
use ichor_ops::{
    Halt, System,
    converge::{Ended, Goal, converge},
};
use ichor_plan::ClusterPlan;

use super::live::Stage;
use crate::{
    exit::Exit,
    failure::Failure,
    operating_system::OperatingSystem,
    render::{
        progress::{Clock, Form, Progress},
        run_report::{self, Finish},
        status::{self, Status},
    },
    terminal::Terminal,
};

/// Most bytes of an old journal that are looked through for what was in flight.
const MAX_JOURNAL: u64 = 64 * 1024 * 1024;

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
    pub fn check(&self, _terminal: &Terminal) -> Result<(), Failure> {
        let silent = self.json || !io::stdin().is_terminal();
        if !silent || self.yes || self.dry_run {
            return Ok(());
        }
        Err(Failure::new(Exit::InvalidInput, format!("`{}` has nobody to ask", self.verb))
            .because("there is no terminal, and it changes things")
            .hint(format!(
                "go ahead without asking, or look first:\n    ichor {0} --yes\n    ichor {0} --dry-run",
                self.verb
            )))
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
    /// What was seen at its end, if anything was done.
    pub observed: Option<Observed>,
    report: Option<RunReport>,
    done: bool,
}

impl Ending {
    /// Returns how the program ends.
    pub fn exit(&self) -> Exit {
        match &self.report {
            Some(report) if !report.is_complete() => run_report::exit(report),
            _ if self.done => Exit::Done,
            _ => Exit::PartWay,
        }
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
        return Ok(Ending { observed: Some(stage.observed.clone()), report: None, done: true });
    }
    let path = stage.store.file("journal.jsonl");
    let past = read_past(&path);
    let clock = Clock::real();
    let journal = open_journal(&path, &past).map_err(|error| Halt::unwritable(&path, &error))?;
    let run = OperatingSystem.now().to_string();
    let journal = Journal::new(run, Box::new(journal));
    let form = if asked.json { Form::Json } else { Form::People };
    let progress = Progress::new(form, plan, terminal);
    let cancel = Cancel::default();
    let ended = stage.runtime.block_on(async {
        let run =
            converge(stage.live, goal, stage.observed.clone(), &journal, past, progress.sink(), &cancel);
        tokio::pin!(run);
        loop {
            tokio::select! {
                ended = &mut run => break ended,
                _ = tokio::signal::ctrl_c() => {
                    cancel.ask();
                    progress.say(match cancel.haste() {
                        Haste::Now => "stopping now; the next run looks at what was in flight",
                        _ => "finishing what is in flight; Ctrl-C again stops at once",
                    });
                }
            }
        }
    })?;
    let Ended { observed, report, done, .. } = ended;
    if let Some(report) = &report {
        let lasted = progress.lasted();
        let finish = Finish {
            verb: asked.verb,
            cluster: stage.site.name(),
            plan,
            report,
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
    Ok(Ending { observed: done.then_some(observed), report, done })
}

/// Shows a cluster as it is.
pub fn show_status(desired: &Desired, observed: &Observed, terminal: &Terminal) {
    let shown = status::text(&Status::new(desired, observed), terminal.width());
    // Whoever does not read it any more has seen enough.
    let _ = terminal.show(&shown);
}

/// Reads what earlier runs left in flight. A journal that cannot be read costs speed, and nothing else.
fn read_past(path: &Path) -> Past {
    let Ok(file) = File::open(path) else { return Past::default() };
    Past::read(BufReader::new(file.take(MAX_JOURNAL))).unwrap_or_default()
}

/// Opens the journal: behind what an interrupted run wrote, or anew when everything is known.
fn open_journal(path: &Path, past: &Past) -> io::Result<JournalFile> {
    let unfinished = past.in_flight().next().is_some();
    let mut options = OpenOptions::new();
    options.create(true).write(true).append(unfinished).truncate(!unfinished);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(JournalFile)
}

struct JournalFile(File);

impl Sink for JournalFile {
    fn append(&mut self, line: &str) -> io::Result<()> {
        self.0.write_all(format!("{line}\n").as_bytes())?;
        self.0.sync_data()
    }

    fn is_slow(&self) -> bool {
        true
    }
}
