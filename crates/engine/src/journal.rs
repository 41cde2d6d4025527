//! What was intended, begun and done, on disk before and after it happens.
//!
//! The journal is not the truth about the world. It serves to find what was in flight when a run broke off,
//! and to tell the story. Losing it costs speed, never correctness.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, BufRead},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ichor_model::step::StepId;
use serde::{Deserialize, Serialize};

use crate::report::Outcome;

/// The form of the lines.
const SCHEMA: u32 = 1;
/// Longest line that is read; a longer one is damage.
const MAX_LINE: usize = 1024 * 1024;

/// Where a journal is kept.
pub trait Sink: Send {
    /// Adds a line, or several in one text, and returns when they would survive a crash.
    fn append(&mut self, line: &str) -> io::Result<()>;

    /// Whether that takes so long that others should not have to wait: a disk takes milliseconds, and as long for a
    /// hundred lines as for one. They are then written together, on a thread of their own.
    fn is_slow(&self) -> bool {
        false
    }
}

/// A journal that forgets, for runs that need none.
impl Sink for () {
    fn append(&mut self, _line: &str) -> io::Result<()> {
        Ok(())
    }
}

/// A line of a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The form of the line.
    pub schema: u32,
    /// The run it belongs to.
    pub run: String,
    /// The step.
    pub step: StepId,
    /// What is known of it.
    #[serde(flatten)]
    pub entry: Entry,
}

/// What is known of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Entry {
    /// It is about to be done.
    Started {
        /// How often it was tried, this time included.
        attempt: u32,
    },
    /// The world gave a receipt.
    Receipt {
        /// The receipt.
        receipt: String,
    },
    /// It has ended.
    Ended {
        /// Whether it is known to be done or not done; otherwise the next run looks.
        known: bool,
        /// How, in words.
        outcome: String,
    },
}

/// The journal of a run.
pub struct Journal {
    run: String,
    slow: bool,
    sink: Arc<Mutex<Box<dyn Sink>>>,
    waiting: Mutex<Waiting>,
    written: tokio::sync::Mutex<Written>,
}

/// Lines that were not written yet.
#[derive(Default)]
struct Waiting {
    lines: Vec<String>,
    /// How many lines there have been.
    count: u64,
}

/// How far writing has come.
#[derive(Default)]
struct Written {
    count: u64,
    /// Whether lines were lost: nothing is written behind a gap.
    broken: bool,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("run", &self.run).finish_non_exhaustive()
    }
}

impl Journal {
    /// Begins the journal of a run.
    pub fn new(run: impl Into<String>, sink: Box<dyn Sink>) -> Self {
        Self {
            run: run.into(),
            slow: sink.is_slow(),
            sink: Arc::new(Mutex::new(sink)),
            waiting: Mutex::default(),
            written: tokio::sync::Mutex::default(),
        }
    }

    /// Writes that a step is about to be done. It is on disk when this returns.
    pub(crate) async fn started(&self, step: &StepId, attempt: u32) -> io::Result<()> {
        self.hand_in(step, Entry::Started { attempt })?;
        self.flush().await
    }

    /// Writes that a step begins which changes nothing: that may be on disk later.
    pub(crate) fn waits(&self, step: &StepId, attempt: u32) -> io::Result<()> {
        self.hand_in(step, Entry::Started { attempt })
    }

    /// Writes a receipt. It is on disk when this returns.
    pub(crate) async fn receipt(&self, step: &StepId, receipt: &str) -> io::Result<()> {
        self.hand_in(step, Entry::Receipt { receipt: receipt.to_owned() })?;
        self.flush().await
    }

    /// Writes how a step ended. That may be on disk later: without it the next run looks once more.
    pub(crate) fn ended(&self, step: &StepId, outcome: &Outcome) -> io::Result<()> {
        let known = !matches!(outcome, Outcome::Unknown { .. });
        let outcome = serde_json::to_string(outcome)?;
        self.hand_in(step, Entry::Ended { known, outcome })
    }

    /// Takes a line. What is not slow has it at once.
    fn hand_in(&self, step: &StepId, entry: Entry) -> io::Result<()> {
        let line = Line { schema: SCHEMA, run: self.run.clone(), step: step.clone(), entry };
        let line = serde_json::to_string(&line)?;
        if !self.slow {
            return lock(&self.sink).append(&line);
        }
        let mut waiting = lock(&self.waiting);
        waiting.lines.push(line);
        waiting.count += 1;
        Ok(())
    }

    /// Returns when every line that was handed in before is on disk. One writer writes for all who wait.
    pub(crate) async fn flush(&self) -> io::Result<()> {
        let wanted = lock(&self.waiting).count;
        let mut written = self.written.lock().await;
        if written.broken {
            return Err(io::Error::other("an earlier line could not be written"));
        }
        if written.count >= wanted {
            return Ok(());
        }
        let (lines, count) = {
            let mut waiting = lock(&self.waiting);
            (std::mem::take(&mut waiting.lines), waiting.count)
        };
        // Whoever is dropped meanwhile has taken the lines along: then nobody may go on as if they were written.
        written.broken = true;
        let sink = Arc::clone(&self.sink);
        let wrote = tokio::task::spawn_blocking(move || lock(&sink).append(&lines.join("\n"))).await;
        wrote.map_err(io::Error::other)??;
        *written = Written { count, broken: false };
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What earlier runs left behind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Past {
    in_flight: BTreeMap<StepId, Option<String>>,
    /// Lines that could not be read. The last one of a run that broke off may be cut.
    pub damaged: usize,
}

impl Past {
    /// Reads a journal.
    pub fn read(journal: impl BufRead) -> io::Result<Self> {
        let mut past = Self::default();
        for line in journal.split(b'\n') {
            let line = line?;
            if line.is_empty() {
                continue;
            }
            let parsed =
                (line.len() <= MAX_LINE).then(|| serde_json::from_slice::<Line>(&line).ok()).flatten();
            match parsed.filter(|line| line.schema == SCHEMA) {
                Some(line) => past.take(line),
                None => past.damaged += 1,
            }
        }
        Ok(past)
    }

    fn take(&mut self, line: Line) {
        match line.entry {
            Entry::Started { .. } => drop(self.in_flight.insert(line.step, None)),
            Entry::Receipt { receipt } => drop(self.in_flight.insert(line.step, Some(receipt))),
            Entry::Ended { known: true, .. } => drop(self.in_flight.remove(&line.step)),
            Entry::Ended { known: false, .. } => {}
        }
    }

    /// Returns the steps that were begun and have no known end.
    pub fn in_flight(&self) -> impl Iterator<Item = &StepId> {
        self.in_flight.keys()
    }

    /// Returns the receipt of a step that was begun and has no known end.
    pub fn receipt(&self, step: &StepId) -> Option<&str> {
        self.in_flight.get(step)?.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<String>>);

    impl Sink for Shared {
        fn append(&mut self, line: &str) -> io::Result<()> {
            let mut text = self.0.lock().expect("lock");
            text.push_str(line);
            text.push('\n');
            Ok(())
        }
    }

    #[tokio::test]
    async fn what_was_in_flight_is_found_again() {
        let sink = Shared::default();
        let journal = Journal::new("run-1", Box::new(sink.clone()));
        let [done, open, unsure] = ["done", "open", "unsure"].map(StepId::new);
        for step in [&done, &open, &unsure] {
            journal.started(step, 1).await.expect("started");
            journal.receipt(step, "UPID:1").await.expect("receipt");
        }
        journal.ended(&done, &Outcome::Done).expect("ended");
        journal.ended(&unsure, &Outcome::Unknown { message: "no answer".into() }).expect("ended");
        let mut text = sink.0.lock().expect("lock").clone();
        text.push_str("{\"schema\":1,\"run\":\"ru");
        let past = Past::read(text.as_bytes()).expect("past");
        assert_eq!(past.in_flight().collect::<Vec<_>>(), [&open, &unsure]);
        assert_eq!(past.receipt(&open), Some("UPID:1"));
        assert_eq!((past.receipt(&done), past.damaged), (None, 1));
    }

    /// Counts how often it is written to, and fails from some time on.
    struct Disk(Arc<Mutex<Vec<String>>>, usize);

    impl Sink for Disk {
        fn append(&mut self, line: &str) -> io::Result<()> {
            let mut written = self.0.lock().expect("lock");
            if written.len() == self.1 {
                return Err(io::Error::other("full"));
            }
            written.push(line.to_owned());
            Ok(())
        }

        fn is_slow(&self) -> bool {
            true
        }
    }

    #[tokio::test]
    async fn lines_of_many_steps_are_written_together_and_in_order() {
        let written = Arc::new(Mutex::new(Vec::new()));
        let journal = Journal::new("run-1", Box::new(Disk(Arc::clone(&written), usize::MAX)));
        let steps: Vec<StepId> = (0..20).map(|number| StepId::new(format!("step-{number:02}"))).collect();
        let all = steps.iter().map(|step| async {
            journal.started(step, 1).await.expect("started");
            journal.ended(step, &Outcome::Done).expect("ended");
        });
        futures_util::future::join_all(all).await;
        journal.flush().await.expect("flushed");
        let written = written.lock().expect("lock");
        assert!(written.len() <= 3, "{} writes", written.len());
        let text = written.join("\n");
        assert_eq!(text.lines().count(), 40);
        assert_eq!(Past::read(text.as_bytes()).expect("past"), Past::default());
    }

    #[tokio::test]
    async fn nobody_goes_on_behind_a_line_that_was_lost() {
        let journal = Journal::new("run-1", Box::new(Disk(Arc::default(), 1)));
        let step = StepId::new("step");
        journal.started(&step, 1).await.expect("started");
        journal.receipt(&step, "UPID:1").await.expect_err("full");
        journal.receipt(&step, "UPID:2").await.expect_err("still full");
    }
}
