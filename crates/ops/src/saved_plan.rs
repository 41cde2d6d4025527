//! Plans in files: what was looked at and agreed to, so that nothing else is done.
//!
//! [`SavedPlan::bytes`] writes one and [`SavedPlan::read`] reads it back. Before it is run, the world is looked at
//! and planned again: [`SavedPlan::differences`] says what that plan has that this one has not. Why a step is there
//! and how long it may take is not compared: words such as "connection refused" change by the minute, and
//! what is done does not.

use std::{collections::BTreeMap, fmt};

use ichor_model::{
    Desired,
    step::{Plan, StepId},
};
use ichor_plan::{ClusterPlan, ClusterStep};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// The number of the file's language.
pub const SCHEMA: u32 = 1;
/// Largest file that is read: a hundred thousand steps.
pub const MAX_BYTES: usize = 64 * 1024 * 1024;

/// A plan with the cluster it was made for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedPlan {
    /// The number of the file's language.
    pub schema: u32,
    /// The name of the cluster.
    pub cluster: String,
    /// What its VMs are known by.
    pub cluster_id: String,
    /// The digest of what was desired. What is desired itself is in the inventory.
    pub desired: String,
    /// The steps in order.
    pub steps: Vec<ClusterStep>,
}

/// Why a file is no plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unreadable {
    /// It is too large.
    TooLarge,
    /// It is not a plan at all, and how that shows.
    NotAPlan(String),
    /// It is a plan in a language that this build does not know.
    OtherSchema(u64),
    /// Its steps are no plan, and why.
    BadSteps(String),
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => write!(f, "it has more than {MAX_BYTES} bytes"),
            Self::NotAPlan(why) => write!(f, "it does not hold a plan: {why}"),
            Self::OtherSchema(schema) => {
                write!(f, "it is in schema {schema}, and this build reads schema {SCHEMA}")
            }
            Self::BadSteps(why) => write!(f, "its steps are no plan: {why}"),
        }
    }
}

impl std::error::Error for Unreadable {}

/// What is not as it was when a plan was saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// It was made for another cluster.
    Cluster {
        /// The one it was made for.
        saved: String,
        /// The one of the inventory.
        now: String,
    },
    /// The inventory means something else now.
    Inventory,
    /// A step is not needed any more, or cannot be done any more.
    Gone {
        /// Which.
        step: StepId,
        /// What it would do.
        what: String,
    },
    /// A step is needed that was not.
    New {
        /// Which.
        step: StepId,
        /// What it does.
        what: String,
    },
    /// A step of the same name does something else.
    Changed {
        /// Which.
        step: StepId,
        /// What it would have done.
        saved: String,
        /// What it does now.
        now: String,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster { saved, now } => {
                write!(f, "it was made for cluster `{saved}`, and the inventory is of `{now}`")
            }
            Self::Inventory => f.write_str("the inventory has changed since"),
            Self::Gone { step, what } => write!(f, "step {step} is not called for any more: {what}"),
            Self::New { step, what } => write!(f, "step {step} has come up since: {what}"),
            Self::Changed { step, saved, now } if saved == now => {
                write!(f, "step {step} has other conditions now: {now}")
            }
            Self::Changed { step, saved, now } => write!(f, "step {step} would {saved}, and now would {now}"),
        }
    }
}

impl SavedPlan {
    /// Takes a plan as it is to be saved.
    pub fn new(desired: &Desired, plan: &ClusterPlan) -> Self {
        Self {
            schema: SCHEMA,
            cluster: desired.cluster.name.to_string(),
            cluster_id: desired.cluster.id.clone(),
            desired: digest(desired),
            steps: plan.steps().to_vec(),
        }
    }

    /// Returns what is written to the file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("plans have text as keys");
        bytes.push(b'\n');
        bytes
    }

    /// Reads a file.
    pub fn read(bytes: &[u8]) -> Result<Self, Unreadable> {
        /// The number is looked at first: the rest may be spelt differently.
        #[derive(Deserialize)]
        struct Head {
            schema: u64,
        }
        if bytes.len() > MAX_BYTES {
            return Err(Unreadable::TooLarge);
        }
        let not_a_plan = |error: serde_json::Error| Unreadable::NotAPlan(error.to_string());
        let Head { schema } = serde_json::from_slice(bytes).map_err(not_a_plan)?;
        if schema != u64::from(SCHEMA) {
            return Err(Unreadable::OtherSchema(schema));
        }
        let saved: Self = serde_json::from_slice(bytes).map_err(not_a_plan)?;
        saved.plan()?;
        Ok(saved)
    }

    /// Returns the plan.
    pub fn plan(&self) -> Result<ClusterPlan, Unreadable> {
        Plan::new(self.steps.clone()).map_err(|wrong| Unreadable::BadSteps(wrong.to_string()))
    }

    /// Says what is different from a plan that was made now. Nothing: this one may be run.
    pub fn differences(&self, now: &Self) -> Vec<Difference> {
        if self.cluster_id != now.cluster_id || self.cluster != now.cluster {
            let (saved, now) = (self.cluster.clone(), now.cluster.clone());
            return vec![Difference::Cluster { saved, now }];
        }
        let mut found = Vec::new();
        if self.desired != now.desired {
            found.push(Difference::Inventory);
        }
        let theirs: BTreeMap<&StepId, &ClusterStep> = now.steps.iter().map(|step| (&step.id, step)).collect();
        let ours: BTreeMap<&StepId, &ClusterStep> = self.steps.iter().map(|step| (&step.id, step)).collect();
        for step in &self.steps {
            found.extend(match theirs.get(&step.id) {
                None => Some(Difference::Gone { step: step.id.clone(), what: step.action.to_string() }),
                Some(other) => changed(step, other),
            });
        }
        let new = now.steps.iter().filter(|step| !ours.contains_key(&step.id));
        found
            .extend(new.map(|step| Difference::New { step: step.id.clone(), what: step.action.to_string() }));
        found
    }
}

fn changed(saved: &ClusterStep, now: &ClusterStep) -> Option<Difference> {
    let same = saved.action == now.action
        && saved.impact == now.impact
        && saved.needs == now.needs
        && saved.guards == now.guards
        && saved.done == now.done;
    (!same).then(|| Difference::Changed {
        step: saved.id.clone(),
        saved: saved.action.to_string(),
        now: now.action.to_string(),
    })
}

/// Returns the digest of what is desired: the same for the same inventory in the same world.
fn digest(desired: &Desired) -> String {
    let bytes = serde_json::to_vec(desired).expect("what is desired has only text as keys");
    Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ichor_model::{VmId, step::Reason};
    use ichor_plan::{Action, files::Names};

    use super::*;
    use crate::tests::lab;

    fn saved() -> SavedPlan {
        let desired = lab();
        let plan = ichor_plan::up(desired, &ichor_model::Observed::default(), &Names::default());
        assert!(!plan.is_empty());
        SavedPlan::new(desired, &plan)
    }

    #[test]
    fn a_plan_reads_back_as_it_was_written() {
        let saved = saved();
        assert_eq!(SavedPlan::read(&saved.bytes()), Ok(saved.clone()));
        assert_eq!(saved.differences(&saved), []);
        assert_eq!(saved.plan().expect("a plan").steps(), saved.steps);
    }

    #[test]
    fn words_and_times_are_no_difference() {
        let (saved, mut now) = (saved(), saved());
        now.steps[0].because = Reason::Unseen("no route to host".into());
        now.steps[0].expected += Duration::from_secs(1);
        assert_eq!(saved.differences(&now), []);
    }

    #[test]
    fn everything_else_is_a_difference_and_all_are_said() {
        let (saved, mut now) = (saved(), saved());
        now.desired = "0".repeat(64);
        let gone = now.steps.pop().expect("a step");
        let mut new = gone.clone();
        new.id = StepId::new("machine/x/create");
        let place =
            now.steps.iter().position(|step| matches!(step.action, Action::CreateVm { .. })).expect("a VM");
        if let Action::CreateVm { vmid, .. } = &mut now.steps[place].action {
            *vmid = VmId::new(777).expect("vmid");
        }
        now.steps.push(new.clone());
        let said: Vec<String> = saved.differences(&now).iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 4, "{said:#?}");
        assert_eq!(said[0], "the inventory has changed since");
        assert!(said[1].contains("and now would create VM 777"), "{}", said[1]);
        assert!(said[2].starts_with(&format!("step {} is not called for any more", gone.id)), "{}", said[2]);
        assert_eq!(said[3], format!("step machine/x/create has come up since: {}", new.action));
    }

    #[test]
    fn a_guard_that_is_missing_is_a_difference() {
        let (mut saved, now) = (saved(), saved());
        let place = saved.steps.iter().position(|step| !step.guards.is_empty()).expect("a guard");
        saved.steps[place].guards.clear();
        let said = saved.differences(&now);
        assert!(matches!(&said[..], [Difference::Changed { .. }]), "{said:?}");
        assert!(said[0].to_string().contains("has other conditions now"));
    }

    #[test]
    fn a_plan_of_another_cluster_is_not_compared_further() {
        let (saved, mut now) = (saved(), saved());
        now.cluster_id = "another".into();
        now.steps.clear();
        assert!(matches!(&saved.differences(&now)[..], [Difference::Cluster { .. }]));
    }

    #[test]
    fn what_is_no_plan_is_said_to_be_none() {
        let read = |text: &str| SavedPlan::read(text.as_bytes()).expect_err("no plan");
        assert!(matches!(read("{"), Unreadable::NotAPlan(_)));
        assert!(matches!(read("[]"), Unreadable::NotAPlan(_)));
        assert_eq!(read(r#"{"schema": 2, "other": []}"#), Unreadable::OtherSchema(2));
        assert!(matches!(read(r#"{"schema": 1}"#), Unreadable::NotAPlan(_)));
        let mut circle = saved();
        circle.steps.truncate(1);
        circle.steps[0].needs = vec![circle.steps[0].id.clone()];
        assert!(matches!(SavedPlan::read(&circle.bytes()), Err(Unreadable::BadSteps(_))));
    }
}
