//! Steps, and the order between them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The name of a step, such as `machine/cp-1/create-vm`: the same in every run, and shown to people.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepId(String);

impl StepId {
    /// Makes a name.
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// Returns it as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Something that only so many steps may occupy at once: a host, a storage's lock, a template. The part before
/// the slash is its kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Lane(String);

impl Lane {
    /// Names a lane of a kind.
    pub fn new(kind: &str, name: &str) -> Self {
        Self(format!("{kind}/{name}"))
    }

    /// Returns its kind.
    pub fn kind(&self) -> &str {
        self.0.split('/').next().unwrap_or_default()
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Why a step is in a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// What it brings about is not there, in these words.
    Missing(String),
    /// Whether it is there could not be seen, and why.
    Unseen(String),
    /// Another step needs it.
    Needed,
    /// The user asked for it.
    Asked,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(why) | Self::Unseen(why) => f.pad(why),
            Self::Needed => f.pad("other steps need it"),
            Self::Asked => f.pad("asked for"),
        }
    }
}

/// What a step does to what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Impact {
    /// Only looks and waits.
    Waits,
    /// Adds something.
    Adds,
    /// Changes something, and a machine may stop for a while.
    Disrupts,
    /// Removes something.
    Destroys,
}

/// What is known about a condition. What is unknown never counts as holding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It holds.
    Holds,
    /// It does not, and why.
    Fails(String),
    /// Nobody can tell, and why.
    Unknown(String),
}

impl Verdict {
    /// Judges something that is plainly so or not.
    pub fn of(holds: bool, otherwise: impl FnOnce() -> String) -> Self {
        if holds { Self::Holds } else { Self::Fails(otherwise()) }
    }

    /// Judges a second condition if the first holds.
    #[must_use]
    pub fn and(self, other: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Holds => other(),
            failed => failed,
        }
    }
}

/// One change, with every choice made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step<A, C> {
    /// Its name.
    pub id: StepId,
    /// What it does.
    pub action: A,
    /// Why it is in the plan.
    pub because: Reason,
    /// What it does to what is there.
    pub impact: Impact,
    /// Steps that must be done before.
    pub needs: Vec<StepId>,
    /// What must hold just before it runs, judged on a fresh look.
    pub guards: Vec<C>,
    /// What holds afterwards. If it holds beforehand, the step is skipped.
    pub done: C,
    /// What it occupies while it runs.
    pub lanes: Vec<Lane>,
    /// How long it usually takes.
    pub expected: Duration,
    /// How long it may take in all, repetitions and waiting included.
    pub deadline: Duration,
}

/// Steps in an order in which each comes after those that it needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan<A, C> {
    steps: Vec<Step<A, C>>,
}

/// Why steps are no plan.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum BadPlan {
    /// Two steps have one name.
    #[error("two steps are called `{0}`")]
    Twice(StepId),
    /// A step needs one that is not there.
    #[error("step `{step}` needs `{needs}`, which is not in the plan")]
    Missing {
        /// The step.
        step: StepId,
        /// What it needs.
        needs: StepId,
    },
    /// Steps need each other.
    #[error("steps need each other: {}", names(.0))]
    Circle(Vec<StepId>),
}

fn names(ids: &[StepId]) -> String {
    let names: Vec<String> = ids.iter().map(|id| format!("`{id}`")).collect();
    names.join(", ")
}

impl<A, C> Plan<A, C> {
    /// Puts steps in order: each after those that it needs, otherwise as they come.
    pub fn new(steps: Vec<Step<A, C>>) -> Result<Self, BadPlan> {
        let mut places = BTreeMap::new();
        for (place, step) in steps.iter().enumerate() {
            if places.insert(&step.id, place).is_some() {
                return Err(BadPlan::Twice(step.id.clone()));
            }
        }
        let mut needed_by: Vec<Vec<usize>> = vec![Vec::new(); steps.len()];
        let mut open: Vec<usize> = vec![0; steps.len()];
        for (place, step) in steps.iter().enumerate() {
            let needs: BTreeSet<&StepId> = step.needs.iter().collect();
            open[place] = needs.len();
            for need in needs {
                let Some(needed) = places.get(need) else {
                    return Err(BadPlan::Missing { step: step.id.clone(), needs: need.clone() });
                };
                needed_by[*needed].push(place);
            }
        }
        let order = order(&needed_by, open);
        if order.len() < steps.len() {
            let ordered: BTreeSet<usize> = order.into_iter().collect();
            let rest = steps.into_iter().enumerate().filter(|(place, _)| !ordered.contains(place));
            return Err(BadPlan::Circle(rest.map(|(_, step)| step.id).collect()));
        }
        let mut steps: Vec<Option<Step<A, C>>> = steps.into_iter().map(Some).collect();
        Ok(Self { steps: order.into_iter().filter_map(|place| steps[place].take()).collect() })
    }

    /// Returns the steps in order.
    pub fn steps(&self) -> &[Step<A, C>] {
        &self.steps
    }

    /// Whether there is nothing to do, which is the definition of done.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

/// Returns places in an order in which none comes before those that it needs; those of a circle are missing.
fn order(needed_by: &[Vec<usize>], mut open: Vec<usize>) -> Vec<usize> {
    let mut ready: BTreeSet<usize> = (0..open.len()).filter(|place| open[*place] == 0).collect();
    let mut order = Vec::with_capacity(open.len());
    while let Some(place) = ready.pop_first() {
        order.push(place);
        for later in &needed_by[place] {
            open[*later] -= 1;
            if open[*later] == 0 {
                ready.insert(*later);
            }
        }
    }
    order
}
