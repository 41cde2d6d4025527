//! `ichor destroy`: exactly what is ours goes.

use ichor_model::{Code, Desired, Finding, Findings, Observed, observed::Owner};
use ichor_ops::{Halt, converge::Goal, halt::only};
use ichor_plan::Extent;

use super::{
    live::{self, Intent, Stage},
    run::{self, Asked},
    session::Gate,
};
use crate::{
    args::{Destroy, Global},
    exit::Exit,
    failure::Failure,
    render::{steps, steps::Steps},
    terminal::Terminal,
};

/// Removes a cluster.
pub fn run(args: &Destroy, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    let asked = Asked { verb: "destroy", yes: args.yes, dry_run: args.dry_run, json: args.json };
    asked.check(terminal)?;
    let extent = if args.all { Extent::Everything } else { Extent::Machines };
    let intent = if args.dry_run { Intent::Look } else { Intent::Change };
    let done = live::with(global, terminal, intent, |stage| act(&stage, extent, &asked, terminal))?;
    match done {
        Gate::Closed(exit) => Ok(exit),
        Gate::Open((session, exit)) => {
            session.tell();
            Ok(exit)
        }
    }
}

fn act(
    stage: &Stage<'_>,
    extent: Extent,
    asked: &Asked,
    terminal: &Terminal,
) -> Result<(Exit, Findings), Halt> {
    let desired = stage.site.desired;
    if desired.cluster.protect && !asked.dry_run && stage.lab.is_none() {
        return Err(Halt::refused(only(protected(desired))));
    }
    let goal = Goal::Gone(extent);
    let plan = goal.plan(stage.live, &stage.observed);
    if !asked.json {
        terminal.tell(&steps::text(Steps { desired, plan: &plan, idle: steps::GONE }, terminal.width()));
    }
    let findings = stays(desired, &stage.observed, extent);
    if asked.dry_run {
        return Ok((if plan.is_empty() { Exit::Done } else { Exit::ChangesPending }, findings));
    }
    let name = stage.site.name();
    if !plan.is_empty()
        && !asked.confirmed(&format!("This deletes cluster `{name}` with all its data."), name)
    {
        return Err(Halt::refused(only(run::not_confirmed("nothing was deleted"))));
    }
    let ending = run::carry_out(stage, &goal, &plan, asked, terminal)?;
    Ok((ending.exit(), findings))
}

fn protected(desired: &Desired) -> Finding {
    let message = format!("cluster `{}` is protected", desired.cluster.name);
    Finding::error(Code::PROTECTED, None, message)
        .because("its inventory says `cluster.protect: true`")
        .remedy("take that out of the inventory first, if you are sure")
}

/// Lists what is left on purpose.
fn stays(desired: &Desired, observed: &Observed, extent: Extent) -> Findings {
    let mut left = Vec::new();
    if extent == Extent::Machines && !desired.images.is_empty() {
        left.push("images and templates, for the next time (`--all` deletes them too)".to_owned());
    }
    left.push("the cluster's secrets".to_owned());
    if let Some(pool) = &desired.proxmox.pool {
        left.push(format!("the pool `{pool}`"));
    }
    let foreign = observed.vms.iter().filter_map(|(vmid, sight)| {
        let vm = sight.seen()?.as_ref()?;
        let whose = match &vm.owner {
            Owner::Ours | Owner::OtherMachine(_) => return None,
            Owner::OtherCluster(cluster) => format!("it belongs to cluster `{cluster}`"),
            Owner::Foreign(why) => why.clone(),
        };
        Some(format!("VM {vmid} on host {}: {whose}", vm.host))
    });
    left.extend(foreign);
    let finding = Finding::warning(Code::LEFT_ALONE, None, "this stays");
    let finding = left.into_iter().fold(finding, Finding::because);
    only(finding.remedy(
        "volumes that Kubernetes made on Proxmox storages stay too, unless they were disks of these VMs",
    ))
}
