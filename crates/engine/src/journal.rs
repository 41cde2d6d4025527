//! What was intended, begun and done, on disk before and after it happens.
//!
//! The journal is not the truth about the world. It serves to find what was in flight when a run broke off,
//! and to tell the story. Losing it costs speed, never correctness.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, BufRead},
    sync::{Mutex, PoisonError},
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
    /// Adds a line, and returns when it would survive a crash.
    fn append(&mut self, line: &str) -> io::Result<()>;
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
    sink: Mutex<Box<dyn Sink>>,
}

impl fmt::Debug for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Journal").field("run", &self.run).finish_non_exhaustive()
    }
}

impl Journal {
    /// Begins the journal of a run.
    pub fn new(run: impl Into<String>, sink: Box<dyn Sink>) -> Self {
        Self { run: run.into(), sink: Mutex::new(sink) }
    }

    pub(crate) fn started(&self, step: &StepId, attempt: u32) -> io::Result<()> {
        self.append(step, Entry::Started { attempt })
    }

    pub(crate) fn receipt(&self, step: &StepId, receipt: &str) -> io::Result<()> {
        self.append(step, Entry::Receipt { receipt: receipt.to_owned() })
    }

    pub(crate) fn ended(&self, step: &StepId, outcome: &Outcome) -> io::Result<()> {
        let known = !matches!(outcome, Outcome::Unknown { .. });
        let outcome = serde_json::to_string(outcome)?;
        self.append(step, Entry::Ended { known, outcome })
    }

    fn append(&self, step: &StepId, entry: Entry) -> io::Result<()> {
        let line = Line { schema: SCHEMA, run: self.run.clone(), step: step.clone(), entry };
        let line = serde_json::to_string(&line)?;
        self.sink.lock().unwrap_or_else(PoisonError::into_inner).append(&line)
    }
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

    #[test]
    fn what_was_in_flight_is_found_again() {
        let sink = Shared::default();
        let journal = Journal::new("run-1", Box::new(sink.clone()));
        let [done, open, unsure] = ["done", "open", "unsure"].map(StepId::new);
        for step in [&done, &open, &unsure] {
            journal.started(step, 1).expect("started");
            journal.receipt(step, "UPID:1").expect("receipt");
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
}
