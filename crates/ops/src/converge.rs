//! Looking, planning and doing until there is nothing left to do.
//!
//! 1. [`look`]: one pass over the world;
//! 2. [`Goal::plan`]: what is left, which is the definition of done when it is empty;
//! 3. [`converge`]: the steps, then the same again. A run that was interrupted anywhere is simply run again.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use ichor_engine::{Cancel, Event, EventSink, Haste, Journal, Limits, Past, Policy, RunReport, execute};
use ichor_model::{Code, Desired, Finding, Findings, Observed, step::Impact};
use ichor_plan::{
    Action, ClusterPlan, ClusterStep, Extent, Phase, destroy, files::host_of, lost_hosts, preflight, up,
};

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
/// How often the world is looked at after the steps, while it does not show itself.
const LOOKS: u32 = 6;
/// Between two such looks, at first; each next pause is twice as long.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// At most so many steps at once for each host: Proxmox has three workers there.
const PER_HOST: usize = 3;
/// A template is copied for so many clones at once.
const PER_TEMPLATE: usize = 3;
/// A host downloads one image at a time.
const DOWNLOADS: usize = 1;
/// Each vote that goes changes what the next one would cost.
const VOTES: usize = 1;

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
    let is_chosen = |machine: &str| only.is_empty() || only.iter().any(|only| only == machine);
    // Steps come after those that they need. One whose need is left out cannot be done: it waits for the run that
    // does it, and so does what needs it.
    let mut left = BTreeSet::new();
    for step in plan.steps() {
        let in_phase = phase.is_none_or(|phase| step.action.phase() <= phase);
        let of_machine = step.action.machine().is_none_or(is_chosen);
        if in_phase && of_machine && step.needs.iter().all(|need| left.contains(need)) {
            left.insert(step.id.clone());
        }
    }
    // What machines share is done for those that were chosen, and for no others.
    let mut wanted = BTreeSet::new();
    for step in plan.steps().iter().rev().filter(|step| left.contains(&step.id)) {
        if only.is_empty() || step.action.machine().is_some() || wanted.contains(&step.id) {
            wanted.insert(step.id.clone());
            wanted.extend(step.needs.iter().cloned());
        }
    }
    let steps = plan.steps().iter().filter(|step| wanted.contains(&step.id)).cloned().collect();
    ClusterPlan::new(steps).unwrap_or_else(|wrong| unreachable!("all needs of these steps are left: {wrong}"))
}

/// Says which names are of no machine.
pub fn strangers(desired: &Desired, only: &[String]) -> Findings {
    let known: Vec<&str> = desired.machines.iter().map(|machine| machine.name.as_str()).collect();
    let unknown = only.iter().filter(|name| !known.contains(&name.as_str()));
    let finding = |name: &String| {
        let message = format!("there is no machine `{name}`");
        let remedy = match ichor_spec::nearest(name, &known) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => "see which there are:\n    ichor plan --offline".to_owned(),
        };
        Finding::error(Code::NO_SUCH_MACHINE, None, message).remedy(remedy)
    };
    unknown.map(finding).collect()
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
    /// Warnings; and errors that say why it is not done, where every step was.
    pub findings: Findings,
}

/// Looks at everything Proxmox shows, and tells what stood in the way if that fails.
pub async fn first_look(pve: &Pve, desired: &Desired) -> Result<Survey, Halt> {
    survey(pve, desired).await.map_err(|error| unseen(&error, pve))
}

/// Says why Proxmox could not be looked at.
pub(crate) fn unseen(error: &ichor_pve::Error, pve: &Pve) -> Halt {
    Halt::preflight(only(not_seen(error, pve.token())))
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
        ichor_pve::Error::Refused(refusal) if matches!(refusal.kind, Kind::Broken | Kind::Busy) => {
            Finding::error(Code::UNREACHABLE, None, message)
                .because(refusal.to_string())
                .remedy("see how the host of `proxmox.endpoint` and its cluster are, then run the same command again:\n    pvecm status")
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
    let survey = first_look(&live.pve, live.desired).await?;
    Ok(live.observe(&survey).await)
}

/// Does what is left to do, until nothing is. Once a step was carried out, its report is never lost: whatever
/// stands in the way of the next look or round is told with it.
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
    let mut agreed: Option<ClusterPlan> = None;
    let mut policy = policy(past, cancel);
    for _ in 0..MOST_ROUNDS {
        if matches!(goal, Goal::Up { .. }) {
            let found = preflight(live.desired, &observed);
            if found.has_errors() && last.is_none() {
                return Err(Halt::preflight(found));
            }
            // Rounds repeat what still holds, and what was said before stays said.
            findings.extend(found);
            findings = findings.sorted();
            if findings.has_errors() {
                return Ok(Ended { observed, report: last, done: false, findings });
            }
        }
        let plan = goal.plan(live, &observed);
        if plan.is_empty() {
            return Ok(Ended { observed, report: last, done: true, findings });
        }
        if let Some(finding) = agreed.as_ref().and_then(|agreed| unforeseen(&plan, agreed)) {
            findings.push(finding);
            return Ok(Ended { observed, report: last, done: false, findings });
        }
        let report = Box::pin(execute(&plan, live, journal, events, &policy)).await;
        let (complete, stopped) = (report.is_complete(), report.stopped);
        last = Some(report);
        if !complete || stopped {
            if !stopped && matches!(goal, Goal::Up { .. }) {
                findings.extend(Box::pin(lost_hosts_of(live, events)).await.into_iter().collect());
            }
            return Ok(Ended { observed, report: last, done: false, findings });
        }
        policy.past = Past::default();
        agreed.get_or_insert(plan);
        match Box::pin(look_again(live, events, cancel)).await {
            Ok(seen) => observed = seen,
            Err(finding) => {
                findings.push(finding);
                return Ok(Ended { observed, report: last, done: false, findings });
            }
        }
    }
    let left = goal.plan(live, &observed);
    if !left.is_empty() {
        findings.push(never_done(&left));
    }
    Ok(Ended { observed, report: last, done: left.is_empty(), findings })
}

/// Says which hosts went down in the middle, if that may be why steps failed: what is left without them is more than
/// a step can tell.
async fn lost_hosts_of(live: &Live<'_>, events: &Arc<dyn EventSink>) -> Vec<Finding> {
    events.emit(Event::Looking { why: "looking whether all hosts are there".into() });
    let Ok(survey) = survey(&live.pve, live.desired).await else { return Vec::new() };
    if survey.hosts.iter().all(|host| host.status == "online") {
        return Vec::new();
    }
    let observed = live.observe(&survey).await;
    lost_hosts(live.desired, &observed, |machine| {
        live.memory.host(machine.vmid).or_else(|| host_of(machine).cloned())
    })
}

/// Looks after the steps. Much was done by then, so that a world which does not show itself for a moment is given
/// some more.
async fn look_again(
    live: &Live<'_>,
    events: &Arc<dyn EventSink>,
    cancel: &Cancel,
) -> Result<Observed, Finding> {
    events.emit(Event::Looking { why: "looking whether anything is left".into() });
    let mut pause = LOOK_AGAIN;
    let mut looks = 1;
    loop {
        let error = match survey(&live.pve, live.desired).await {
            Ok(survey) => return Ok(live.observe(&survey).await),
            Err(error) => error,
        };
        if looks >= LOOKS || !may_pass(&error) || cancel.haste() != Haste::None {
            let finding = not_seen(&error, live.pve.token());
            return Err(finding.because("every step was done before; whether anything is left is not known"));
        }
        let after = pause.as_secs();
        events.emit(Event::Looking {
            why: format!(
                "all steps are done, and Proxmox does not show what is left: {error}; again in {after}s"
            ),
        });
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = cancel.asked(Haste::Soon) => {}
        }
        (looks, pause) = (looks + 1, pause * 2);
    }
}

/// Whether the same look may succeed a little later.
fn may_pass(error: &ichor_pve::Error) -> bool {
    use ichor_port::TransportError;
    use ichor_pve::{Error, Kind};
    match error {
        Error::Transport(TransportError::NotTrusted(_)) => false,
        Error::Transport(_) | Error::Nonsense { .. } => true,
        Error::Refused(refusal) => matches!(refusal.kind, Kind::Busy | Kind::Broken | Kind::Other),
    }
}

/// Most steps that are named in a finding.
const MAX_NAMED: usize = 8;

/// Says what a later round would do that nobody has agreed to: the user has seen the plan of the first one. What is
/// in that plan may have to be repeated, and what only adds or waits takes nothing from anybody.
pub fn unforeseen(plan: &ClusterPlan, agreed: &ClusterPlan) -> Option<Finding> {
    let is_agreed = |step: &ClusterStep| {
        agreed.steps().iter().any(|agreed| agreed.id == step.id && agreed.action == step.action)
    };
    let is_harmless = |step: &ClusterStep| match &step.action {
        // A second beginning of etcd would be another, empty cluster.
        Action::BootstrapEtcd { .. } => false,
        // What an interrupted upload left is known when that has ended. It is made from the inventory, and holds
        // secrets.
        Action::DeleteVolume { volume, .. } => volume.contains("ichor-cidata-"),
        // A machine that an earlier run began has its medium still to be taken out when it is Ready.
        Action::DetachMedium { .. } => true,
        _ => step.impact <= Impact::Adds,
    };
    let steps: Vec<&ClusterStep> =
        plan.steps().iter().filter(|step| !is_harmless(step) && !is_agreed(step)).collect();
    if steps.is_empty() {
        return None;
    }
    let message = "something is left that was not in the plan, and it was not done without asking";
    let finding = Finding::error(Code::LEFT_ALONE, None, message);
    Some(name_steps(finding, steps).remedy("run the same command again: it shows what is left first"))
}

/// Every step succeeds, and there are always more.
fn never_done(left: &ClusterPlan) -> Finding {
    let message = format!("steps are left after everything was done {MOST_ROUNDS} times");
    let finding = Finding::error(Code::LEFT_ALONE, None, message);
    name_steps(finding, left.steps())
        .remedy("find out who undoes it, then look at what is left:\n    ichor plan")
}

fn name_steps<'s>(finding: Finding, steps: impl IntoIterator<Item = &'s ClusterStep>) -> Finding {
    let steps = steps.into_iter().take(MAX_NAMED);
    steps.fold(finding, |finding, step| {
        finding.because(format!("{}: {}; {}", step.id, step.action, step.because))
    })
}

fn policy(past: Past, cancel: &Cancel) -> Policy {
    let limits = Limits::new(usize::MAX)
        .with("host", PER_HOST)
        .with("template", PER_TEMPLATE)
        .with("download", DOWNLOADS)
        .with("etcd", VOTES);
    Policy { limits, attempts: ATTEMPTS, past, cancel: cancel.clone() }
}

#[cfg(test)]
mod tests {
    use ichor_plan::files::Names;

    use super::*;
    use crate::tests::lab;

    fn ids(plan: &ClusterPlan) -> Vec<&str> {
        plan.steps().iter().map(|step| step.id.as_str()).collect()
    }

    fn from_nothing() -> ClusterPlan {
        up(lab(), &Observed::default(), &Names::default())
    }

    fn only(names: &[&str]) -> ClusterPlan {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        part(from_nothing(), None, &names)
    }

    #[test]
    fn a_machine_alone_is_done_as_far_as_nobody_else_is_needed() {
        let plan = only(&["worker-1"]);
        let ids = ids(&plan);
        assert!(ids.contains(&"machine/worker-1/configure"), "{ids:?}");
        assert!(!ids.contains(&"machine/worker-1/ready"), "it needs Kubernetes: {ids:?}");
        assert!(ids.iter().all(|id| !id.contains("cp-1") && *id != "cluster/kubernetes"), "{ids:?}");
        assert!(ids.iter().any(|id| id.starts_with("image/")), "it needs its image: {ids:?}");
        assert_eq!(only(&["cp-1", "worker-1"]), from_nothing(), "that is everything");
        assert!(only(&["nobody"]).is_empty());
        let images = part(from_nothing(), Some(Phase::Images), &[]);
        assert!(!images.is_empty() && images.steps().iter().all(|step| step.action.phase() == Phase::Images));
    }

    #[test]
    fn a_machine_that_is_not_there_is_told_with_the_nearest_one() {
        let said = strangers(lab(), &["cp-1", "worker1", "zebra"].map(ToOwned::to_owned));
        let remedies: Vec<_> = said.iter().filter_map(|finding| finding.remedy.as_deref()).collect();
        assert_eq!(remedies, ["did you mean `worker-1`?", "see which there are:\n    ichor plan --offline"]);
    }

    #[test]
    fn what_removes_something_is_done_only_if_it_was_in_the_plan() {
        let agreed = part(from_nothing(), Some(Phase::Machines), &[]);
        let waits = part(from_nothing(), None, &[]);
        let said = unforeseen(&waits, &agreed).expect("etcd would begin, and nobody knew");
        assert!(said.notes.iter().all(|note| format!("{note:?}").contains("cluster/bootstrap")), "{said:?}");
        assert_eq!(unforeseen(&agreed, &waits), None);
        assert_eq!(unforeseen(&waits, &waits), None, "what was agreed to may be repeated");
        let mut steps = agreed.steps().to_vec();
        steps[0].impact = Impact::Destroys;
        let other = ClusterPlan::new(steps.clone()).expect("a plan");
        assert_eq!(unforeseen(&other, &agreed), None, "the same step");
        steps[0].action = Action::DeleteVm { machine: "cp-1".into(), vmid: lab().machines[0].vmid };
        let other = ClusterPlan::new(steps).expect("a plan");
        assert!(unforeseen(&other, &agreed).is_some(), "of the same name, and something else");
    }
}
