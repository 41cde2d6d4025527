//! `ichor destroy`: exactly what is ours goes, and what stays is told before and after.

use ichor_model::{
    Code, Desired, Finding, Findings,
    desired::Machine,
    observed::{MachineSeen, Owner},
};
use ichor_ops::{Halt, converge::Goal, halt::only, past};
use ichor_plan::{Action, ClusterPlan, Extent, protected_by_others};
use serde_json::{Value, json};

use super::{
    live::{self, Intent, Stage},
    run::{self, Asked},
    session::Gate,
};
use crate::{
    args::{Destroy, Global},
    exit::Exit,
    failure::Failure,
    operating_system::OperatingSystem,
    render::{progress::Wait, remains::Stays, steps, steps::Steps, text},
    terminal::Terminal,
};

/// Removes a cluster.
pub fn run(args: &Destroy, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    let asked = Asked { verb: "destroy", yes: args.yes, dry_run: args.dry_run, json: args.json };
    asked.check()?;
    let extent = if args.all { Extent::Everything } else { Extent::Machines };
    let intent = Intent::Remove { dry_run: args.dry_run, by_name: args.without_secrets };
    let done = live::with(global, terminal, intent, |stage| {
        act(&stage, extent, args.without_secrets, &asked, terminal)
    })?;
    match done {
        Gate::Closed(exit) => Ok(exit),
        Gate::Open((session, (exit, document))) => session.end(exit, String::new, || vec![document]),
    }
}

/// How it ended, and what programs are told of it.
type Ended = (Exit, Value);

fn act(
    stage: &Stage<'_>,
    extent: Extent,
    without_secrets: bool,
    asked: &Asked,
    terminal: &Terminal,
) -> Result<(Ended, Findings), Halt> {
    let desired = stage.site.desired;
    if desired.cluster.protect && !asked.dry_run {
        return Err(Halt::refused(only(protected(desired))));
    }
    let goal = Goal::Gone(extent);
    let plan = goal.plan(stage.live, &stage.observed);
    let unproven = if without_secrets { None } else { unproven(stage, &plan) };
    let against = unproven.into_iter().chain(protected_by_others(desired, &stage.observed, &plan));
    let against: Findings = against.collect();
    if against.has_errors() && !asked.dry_run {
        return Err(Halt::refused(against));
    }
    let waiting = Wait::new(terminal, "looking at what stays");
    let remains = stage.runtime.block_on(stage.live.see_remains(stage.survey, &stage.observed));
    drop(waiting);
    let kept = stage.store.kept(&OperatingSystem);
    let secrets = stage.store.has_bundle(&OperatingSystem).then(|| kept.display().to_string());
    let stays =
        Stays { desired, observed: &stage.observed, remains: &remains, extent, secrets: secrets.as_deref() };
    let shown = Steps { desired, plan: &plan, idle: steps::GONE };
    if asked.json {
        let event = json!({"cluster": desired.cluster.name, "stays": stays.document()});
        // Whoever does not read it any more has seen enough.
        let _ = terminal.event("stays", event);
    } else {
        terminal.tell(&steps::text(shown, terminal.width()));
    }
    let mut findings = live::as_warnings(&against);
    findings.push(stays.finding());
    if asked.dry_run {
        let exit = if plan.is_empty() { Exit::Done } else { Exit::ChangesPending };
        let mut document = steps::document(shown);
        document["stays"] = stays.document();
        return Ok(((exit, document), findings));
    }
    confirm(stage, &plan, &stays, asked, terminal)?;
    let ending = run::carry_out(stage, &goal, &plan, asked, terminal)?;
    let exit = ending.exit();
    let mut document = ending.document(asked, stage.site.name());
    document["gone"] = (exit == Exit::Done).into();
    document["stays"] = stays.document();
    Ok(((exit, document), findings))
}

/// Shows what stays, and asks for the cluster's name, unless there is nothing to delete.
fn confirm(
    stage: &Stage<'_>,
    plan: &ClusterPlan,
    stays: &Stays<'_>,
    asked: &Asked,
    terminal: &Terminal,
) -> Result<(), Halt> {
    if plan.is_empty() || asked.yes {
        return Ok(());
    }
    terminal.tell(&stays.text());
    let name = stage.site.name();
    if asked.confirmed(&format!("This deletes cluster `{name}` with all its data."), name) {
        return Ok(());
    }
    Err(Halt::refused(only(run::not_confirmed("nothing was deleted"))))
}

/// Says that nothing but a name makes the VMs those of this inventory. Whoever made them has their secrets; another
/// inventory may have the same name.
fn unproven(stage: &Stage<'_>, plan: &ClusterPlan) -> Option<Finding> {
    let name = stage.site.name();
    let namesakes = namesakes(stage);
    let deletes = plan.steps().iter().any(|step| matches!(step.action, Action::DeleteVm { .. }));
    let (message, why) = if !namesakes.is_empty() && !deletes {
        let vms = text::list_some(&namesakes, text::MAX_NAMES);
        (format!("{vms} of a cluster `{name}` were made with other secrets than are here"), STAMPED.into())
    } else if !deletes {
        return None;
    } else if stage.bundle.is_some() {
        let (machines, why) = strangers(stage)?;
        (format!("{machines} of cluster `{name}` do not know the secrets that are here"), why)
    } else {
        let path = stage.store.bundle();
        let (where_, why) = if stage.store.has_bundle(&OperatingSystem) {
            ("cannot be read", format!("nobody can tell what `{}` holds", path.display()))
        } else {
            ("are not here", format!("looked for `{}`", path.display()))
        };
        (format!("there are VMs of a cluster `{name}`, and its secrets {where_}"), why)
    };
    let here = match past::newest(&OperatingSystem, stage.store) {
        _ if stage.bundle.is_some() => "run it where the secrets of these VMs are".to_owned(),
        Some(past) => format!("{} has secrets of the cluster; {}", past.named(), past.way_back()),
        None => "run it where the cluster's secrets are, or bring them here:\n    ichor secrets import FILE"
            .to_owned(),
    };
    let remedy = format!(
        "{here}\nif they are gone for good, and these VMs are to go:\n    ichor destroy --without-secrets"
    );
    let finding = Finding::error(Code::SECRETS_LOST, None, message)
        .because("they may have been made from another inventory of that name")
        .because(why);
    Some(finding.remedy(remedy))
}

const STAMPED: &str = "the stamps in their notes name the secrets that they were made with";

/// Names VMs under the numbers of our machines that another cluster of the same name has made.
fn namesakes(stage: &Stage<'_>) -> Vec<String> {
    let vm = |machine: &Machine| stage.observed.vms.get(&machine.vmid)?.seen()?.as_ref();
    let machines = stage.site.desired.machines.iter();
    let found = machines.filter(|machine| vm(machine).is_some_and(|vm| vm.owner == Owner::Namesake));
    found.map(|machine| format!("VM {}", machine.vmid)).collect()
}

/// Names machines that run and do not take our word, and says how one of them shows it.
fn strangers(stage: &Stage<'_>) -> Option<(String, String)> {
    let seen = &stage.observed;
    let found = stage.site.desired.machines.iter().filter_map(|machine| {
        let runs = seen.vms.get(&machine.vmid)?.seen()?.as_ref()?.running;
        match seen.machines.get(&machine.name)?.seen()? {
            MachineSeen::Stranger(why) if runs => Some((format!("`{}`", machine.name), why)),
            _ => None,
        }
    });
    let (names, whys): (Vec<String>, Vec<&String>) = found.unzip();
    let why = (*whys.first()?).clone();
    Some((text::list_some(&names, text::MAX_NAMES), why))
}

fn protected(desired: &Desired) -> Finding {
    let message = format!("cluster `{}` is protected", desired.cluster.name);
    Finding::error(Code::PROTECTED, None, message)
        .because("its inventory says `cluster.protect: true`")
        .remedy("take that out of the inventory first, if you are sure")
}
