//! What the engine asks of a world.

use std::{future::Future, sync::Arc};

use ichor_model::step::{Step, StepId, Verdict};

use crate::{
    cancel::{Cancel, Haste},
    event::{Event, EventSink},
    journal::Journal,
};

/// What failed, why, and what to do: for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What failed and why, in the other system's words where it has some.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
    /// Whether the other side was busy with others: fewer calls at once may help.
    pub congested: bool,
}

impl Report {
    /// Reports a failure.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None, congested: false }
    }

    /// Adds what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says that the other side was busy.
    #[must_use]
    pub const fn congested(mut self) -> Self {
        self.congested = true;
        self
    }
}

/// Why an effect did not come about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EffectError {
    /// It did not happen, and may succeed when repeated.
    Transient(Report),
    /// It did not happen, and repeating is of no use.
    Permanent(Report),
    /// It may have happened. Look before repeating.
    Unsure(Report),
}

impl EffectError {
    /// Returns what is to be said.
    pub const fn report(&self) -> &Report {
        match self {
            Self::Transient(report) | Self::Permanent(report) | Self::Unsure(report) => report,
        }
    }
}

/// A world that steps change.
pub trait Effects<A, C>: Send + Sync {
    /// Judges a condition on a fresh look.
    fn judge(&self, condition: &C) -> impl Future<Output = Verdict> + Send;

    /// Judges a condition by what was seen a moment ago, if nobody can have changed it since: looking again would
    /// only cost a call. Nothing, if it takes a look.
    fn recall(&self, condition: &C) -> Option<Verdict> {
        let _ = condition;
        None
    }

    /// Does what a step says. The effect may go on when this returns: the engine waits for [`Step::done`].
    fn perform(
        &self,
        step: &Step<A, C>,
        context: &StepContext<'_>,
    ) -> impl Future<Output = Result<(), EffectError>> + Send;
}

/// What a step may know and say while it runs.
#[derive(Debug)]
pub struct StepContext<'run> {
    pub(crate) step: &'run StepId,
    pub(crate) journal: &'run Journal,
    pub(crate) events: &'run Arc<dyn EventSink>,
    pub(crate) cancel: &'run Cancel,
    pub(crate) earlier: Option<String>,
}

impl StepContext<'_> {
    /// Returns the receipt that an earlier, interrupted attempt left, such as the name of a task.
    pub fn earlier_receipt(&self) -> Option<&str> {
        self.earlier.as_deref()
    }

    /// Keeps a receipt. It is on disk when this returns.
    pub async fn keep_receipt(&self, receipt: &str) -> Result<(), EffectError> {
        self.journal.receipt(self.step, receipt).await.map_err(|error| {
            EffectError::Unsure(Report::new(format!("the journal cannot be written: {error}")))
        })
    }

    /// Says how far the step is, between 0 and 1.
    pub fn progress(&self, fraction: f64, what: &str) {
        let (step, what) = (self.step.clone(), what.to_owned());
        self.events.emit(Event::Progress { step, fraction, what });
    }

    /// Whether the run is to end soon; long waits should break off.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.haste() != Haste::None
    }
}
