//! How a run ended.

use std::collections::BTreeMap;

use ichor_model::step::StepId;
use serde::Serialize;

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// It was done.
    Done,
    /// It was done already.
    Skipped,
    /// It failed; nothing of it is in doubt.
    Failed {
        /// What and why.
        message: String,
        /// What to do next.
        #[serde(skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
    },
    /// It was refused, because a guard did not hold.
    Refused {
        /// Which and why.
        message: String,
    },
    /// It may or may not have happened. The next run looks.
    Unknown {
        /// Why nobody knows.
        message: String,
    },
    /// It was not begun: something that it needs did not come about.
    Blocked {
        /// What.
        by: StepId,
    },
    /// It was not begun: the run was stopped.
    NotBegun,
}

impl Outcome {
    /// Whether what the step is for holds now.
    pub const fn is_good(&self) -> bool {
        matches!(self, Self::Done | Self::Skipped)
    }
}

/// How a run ended, step by step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct RunReport {
    /// The outcome of every step.
    pub outcomes: BTreeMap<StepId, Outcome>,
    /// Whether the user stopped it.
    pub stopped: bool,
}

impl RunReport {
    /// Whether everything is done.
    pub fn is_complete(&self) -> bool {
        self.outcomes.values().all(Outcome::is_good)
    }

    /// Returns the steps with an outcome that a predicate wants.
    pub fn steps(&self, wanted: impl Fn(&Outcome) -> bool) -> impl Iterator<Item = (&StepId, &Outcome)> {
        self.outcomes.iter().filter(move |(_, outcome)| wanted(outcome))
    }
}
