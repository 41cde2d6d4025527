//! `ichor destroy`: exactly what is ours goes, and what stays is told before and after.

use ichor_model::{Code, Desired, Finding, Findings};
use ichor_ops::{Halt, converge::Goal, halt::only};
use ichor_plan::{ClusterPlan, Extent};
use serde_json::{Value, json};

use super::{
    live::{self, Intent, Stage},
    run::{self, Asked},
    session::Gate,
};
use crate::{
    args::{Destroy, Global, Output},
    exit::Exit,
    failure::Failure,
    render::{remains::Stays, steps, steps::Steps},
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
        // Whoever reads events has read it all.
        Gate::Open((session, (exit, _))) if args.json || global.output == Output::Table => {
            session.tell();
            Ok(exit)
        }
        Gate::Open((session, (exit, document))) => {
            session.show(String::new, || vec![document])?;
            Ok(exit)
        }
    }
}

/// How it ended, and what programs are told of it.
type Ended = (Exit, Value);

fn act(
    stage: &Stage<'_>,
    extent: Extent,
    asked: &Asked,
    terminal: &Terminal,
) -> Result<(Ended, Findings), Halt> {
    let desired = stage.site.desired;
    if desired.cluster.protect && !asked.dry_run && stage.lab.is_none() {
        return Err(Halt::refused(only(protected(desired))));
    }
    let goal = Goal::Gone(extent);
    let plan = goal.plan(stage.live, &stage.observed);
    let remains = stage.runtime.block_on(stage.live.see_remains(stage.survey, &stage.observed));
    let secrets = stage.bundle.map(|_| stage.store.bundle().display().to_string());
    let stays =
        Stays { desired, observed: &stage.observed, remains: &remains, extent, secrets: secrets.as_deref() };
    let shown = Steps { desired, plan: &plan, idle: steps::GONE };
    if asked.json {
        let event = json!({"event": "stays", "cluster": desired.cluster.name, "stays": stays.document()});
        // Whoever does not read it any more has seen enough.
        let _ = terminal.data(format!("{event}\n"));
    } else {
        terminal.tell(&steps::text(shown, terminal.width()));
    }
    let findings = only(stays.finding());
    if asked.dry_run {
        let exit = if plan.is_empty() { Exit::Done } else { Exit::ChangesPending };
        let mut document = steps::document(shown);
        document["stays"] = stays.document();
        return Ok(((exit, document), findings));
    }
    confirm(stage, &plan, &stays, asked, terminal)?;
    let ending = run::carry_out(stage, &goal, &plan, asked, terminal)?;
    let exit = ending.exit();
    let document = json!({
        "cluster": desired.cluster.name,
        "gone": exit == Exit::Done,
        "exit_code": exit.code(),
        "stays": stays.document(),
    });
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

fn protected(desired: &Desired) -> Finding {
    let message = format!("cluster `{}` is protected", desired.cluster.name);
    Finding::error(Code::PROTECTED, None, message)
        .because("its inventory says `cluster.protect: true`")
        .remedy("take that out of the inventory first, if you are sure")
}
