//! Looking, planning and doing until there is nothing left to do.
//!
//! 1. [`look`]: one pass over the world;
//! 2. [`Goal::plan`]: what is left, which is the definition of done when it is empty;
//! 3. [`converge`]: the steps, then the same again. A run that was interrupted anywhere is simply run again.

use std::{collections::BTreeSet, sync::Arc};

use ichor_engine::{Cancel, EventSink, Journal, Limits, Past, Policy, RunReport, execute};
use ichor_model::{Code, Finding, Findings, Observed, VmId};
use ichor_plan::{ClusterPlan, Extent, Phase, destroy, preflight, up};

use crate::{
    Halt,
    halt::only,
    live::{Live, Pve},
    observe::{Survey, survey},
};

/// How often the world is looked at again after everything was done. Something that undoes our work all the time
/// is told, not fought.
const MOST_ROUNDS: usize = 3;
/// How often a step is tried.
const ATTEMPTS: u32 = 6;
/// At most so many steps at once for each host: Proxmox has three workers there.
const PER_HOST: usize = 3;
/// A template is copied for so many clones at once.
const PER_TEMPLATE: usize = 3;
/// A host downloads one image at a time.
const DOWNLOADS: usize = 1;

/// What is wanted of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Goal {
    /// That it is there and Ready; or a part of the way to it, or of its machines.
    Up {
        /// The part of the way; nothing: all of it.
        phase: Option<Phase>,
        /// The machines; none: all of them.
        only: Vec<String>,
    },
    /// That it is gone.
    Gone(Extent),
}

impl Goal {
    /// Everything, to a Ready cluster.
    pub const fn up() -> Self {
        Self::Up { phase: None, only: Vec::new() }
    }

    /// Plans what is left to do.
    pub fn plan(&self, live: &Live<'_>, observed: &Observed) -> ClusterPlan {
        let names = live.names();
        match self {
            Self::Up { phase, only } => {
                let plan = up(live.desired, observed, names);
                part(plan, *phase, only)
            }
            Self::Gone(extent) => destroy(live.desired, observed, names, *extent),
        }
    }
}

/// Leaves the steps of a part of the way, and of some machines with what they need.
fn part(plan: ClusterPlan, phase: Option<Phase>, only: &[String]) -> ClusterPlan {
    if phase.is_none() && only.is_empty() {
        return plan;
    }
    let wanted = |step: &ichor_plan::ClusterStep| {
        let in_phase = phase.is_none_or(|phase| step.action.phase() <= phase);
        let of_machine = step
            .action
            .machine()
            .is_none_or(|machine| only.is_empty() || only.iter().any(|only| only == machine));
        in_phase && of_machine
    };
    let mut steps: Vec<_> = plan.steps().iter().filter(|step| wanted(step)).cloned().collect();
    let left: BTreeSet<_> = steps.iter().map(|step| step.id.clone()).collect();
    // A step whose need is left out cannot be done: it waits for the run that does it.
    steps.retain(|step| step.needs.iter().all(|need| left.contains(need)));
    ClusterPlan::new(steps).unwrap_or(plan)
}

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    /// What was seen at the end.
    pub observed: Observed,
    /// How the steps of the last round that had any ended; nothing when there was nothing to do.
    pub report: Option<RunReport>,
    /// Whether nothing is left to do.
    pub done: bool,
    /// Warnings.
    pub findings: Findings,
}

/// Looks at everything Proxmox shows, and tells what stood in the way if that fails.
pub async fn first_look(pve: &Pve, cluster: &str, wanted: &BTreeSet<VmId>) -> Result<Survey, Halt> {
    survey(pve, cluster, wanted).await.map_err(|error| Halt::preflight(only(not_seen(&error, pve.token()))))
}

fn not_seen(error: &ichor_pve::Error, token: &str) -> Finding {
    use ichor_port::TransportError;
    use ichor_pve::Kind;
    let message = "Proxmox could not be looked at";
    match error {
        ichor_pve::Error::Transport(TransportError::NotTrusted(why)) => {
            Finding::error(Code::UNTRUSTED, None, "Proxmox is not the one that it should be")
                .because(why)
                .remedy("compare it with what the host says, and write the right one as `proxmox.tls.sha256`:\n    openssl x509 -noout -fingerprint -sha256 -in /etc/pve/local/pve-ssl.pem")
        }
        ichor_pve::Error::Transport(why) => Finding::error(Code::UNREACHABLE, None, message)
            .because(why.to_string())
            .remedy("check `proxmox.endpoint`, and whether it is reached from here"),
        ichor_pve::Error::Refused(refusal) if refusal.kind == Kind::Unauthenticated => {
            let user = token.split('!').next().unwrap_or(token);
            Finding::error(Code::DENIED, None, format!("Proxmox does not let token `{token}` in"))
                .because(refusal.to_string())
                .remedy(format!("see whether it is there and has not expired, and check its secret; a lost secret needs a new token:\n    pveum user token list '{user}'"))
        }
        ichor_pve::Error::Refused(refusal) => Finding::error(Code::DENIED, None, message)
            .because(refusal.to_string())
            .remedy(format!("see what token `{token}` may do, and whether `proxmox.endpoint` is a Proxmox")),
        ichor_pve::Error::Nonsense { .. } => Finding::error(Code::UNREACHABLE, None, message)
            .because(error.to_string())
            .remedy("check that `proxmox.endpoint` is a Proxmox"),
    }
}

/// Looks at the whole world of a cluster.
pub async fn look(live: &Live<'_>) -> Result<Observed, Halt> {
    let wanted = live.desired.machines.iter().map(|machine| machine.vmid);
    let wanted = wanted.chain(live.desired.templates.iter().map(|template| template.vmid)).collect();
    let survey = first_look(&live.pve, live.desired.cluster.name.as_str(), &wanted).await?;
    Ok(live.observe(&survey).await)
}

/// Does what is left to do, until nothing is. `plan` is what the user has seen, for the first round.
pub async fn converge(
    live: &Live<'_>,
    goal: &Goal,
    mut observed: Observed,
    journal: &Journal,
    past: Past,
    events: &Arc<dyn EventSink>,
    cancel: &Cancel,
) -> Result<Ended, Halt> {
    let mut findings = Findings::new();
    let mut last = None;
    let mut policy = policy(past, cancel);
    for _ in 0..MOST_ROUNDS {
        if matches!(goal, Goal::Up { .. }) {
            let found = preflight(live.desired, &observed);
            if found.has_errors() {
                return Err(Halt::preflight(found));
            }
            // Rounds repeat what still holds, and what was said before stays said.
            findings.extend(found);
            findings = findings.sorted();
        }
        let plan = goal.plan(live, &observed);
        if plan.is_empty() {
            return Ok(Ended { observed, report: last, done: true, findings });
        }
        let report = Box::pin(execute(&plan, live, journal, events, &policy)).await;
        let (complete, stopped) = (report.is_complete(), report.stopped);
        last = Some(report);
        if !complete || stopped {
            return Ok(Ended { observed, report: last, done: false, findings });
        }
        policy.past = Past::default();
        observed = Box::pin(look(live)).await?;
    }
    let done = goal.plan(live, &observed).is_empty();
    Ok(Ended { observed, report: last, done, findings })
}

fn policy(past: Past, cancel: &Cancel) -> Policy {
    let limits = Limits::new(usize::MAX)
        .with("host", PER_HOST)
        .with("template", PER_TEMPLATE)
        .with("download", DOWNLOADS);
    Policy { limits, attempts: ATTEMPTS, past, cancel: cancel.clone() }
}
