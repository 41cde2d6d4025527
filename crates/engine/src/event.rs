//! What a run says. Text, progress bars and JSON are readers of this one stream.

use std::{fmt, time::Duration};

use ichor_model::step::StepId;
use serde::Serialize;

use crate::report::Outcome;

/// Something that happened in a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The run began.
    Began {
        /// How many steps there are.
        steps: usize,
    },
    /// A step began.
    Started {
        /// Which.
        step: StepId,
        /// How often it was tried, this time included.
        attempt: u32,
    },
    /// A step says how far it is.
    Progress {
        /// Which.
        step: StepId,
        /// Between 0 and 1.
        fraction: f64,
        /// What is done at the moment.
        what: String,
    },
    /// A step waits for something.
    Waiting {
        /// Which.
        step: StepId,
        /// For how long already.
        waited: Duration,
        /// For what.
        why: String,
    },
    /// A step is tried again.
    Retrying {
        /// Which.
        step: StepId,
        /// After how long.
        after: Duration,
        /// Why.
        why: String,
    },
    /// A step has ended.
    Ended {
        /// Which.
        step: StepId,
        /// How.
        outcome: Outcome,
        /// How long it took.
        took: Duration,
    },
    /// No step runs, and the world is looked at.
    Looking {
        /// What for.
        why: String,
    },
    /// The user asked to stop.
    Stopping,
}

/// Takes the events of a run.
pub trait EventSink: fmt::Debug + Send + Sync {
    /// Takes an event.
    fn emit(&self, event: Event);
}

/// Nobody listens.
impl EventSink for () {
    fn emit(&self, _event: Event) {}
}
