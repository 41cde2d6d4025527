//! `ichor up`: a Ready cluster, from nothing or from what is there.

use std::path::Path;

use ichor_machineconfig::pki::{TALOS_CLIENT_LIFETIME, TalosRole};
use ichor_model::{Code, Desired, Finding, Findings};
use ichor_ops::{
    Halt,
    access::{self, Server, TalosAccess},
    converge::{Goal, strangers, unforeseen},
    halt::only,
    saved_plan::{self, SavedPlan},
};
use ichor_plan::{ClusterPlan, drift, preflight};
use ichor_spec::Sources;

use super::{
    live::{self, Intent, Stage},
    run::{self, Asked, Ending},
    session::Gate,
};
use crate::{
    args::{Global, Up},
    exit::Exit,
    failure::Failure,
    files,
    operating_system::OperatingSystem,
    render::{
        findings::{self, Changes},
        steps,
        steps::Steps,
        text,
    },
    terminal::Terminal,
};

/// How long the kubeconfig is good that is written beside the secrets.
const KUBECONFIG_LIFETIME: std::time::Duration = std::time::Duration::from_hours(24 * 365);

/// Makes a cluster.
pub fn run(args: &Up, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    // Whoever names a plan has seen it.
    let yes = args.yes || args.plan.is_some();
    let asked = Asked { verb: "up", yes, dry_run: args.dry_run, json: args.json };
    asked.check(terminal)?;
    let saved = args.plan.as_deref().map(read_plan).transpose()?;
    let intent = if args.dry_run { Intent::Plan } else { Intent::Make };
    let done = live::with(global, terminal, intent, |stage| {
        let phase = args.phase.map(Into::into);
        let only = args.only.iter().map(ToString::to_string).collect();
        act(&stage, &Goal::Up { phase, only }, saved.as_ref(), &asked, terminal)
    })?;
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
    goal: &Goal,
    saved: Option<&SavedPlan>,
    asked: &Asked,
    terminal: &Terminal,
) -> Result<(Exit, Findings), Halt> {
    let desired = stage.site.desired;
    if let Goal::Up { only, .. } = goal {
        let unknown = strangers(desired, only);
        if unknown.has_errors() {
            return Err(Halt::invalid(unknown));
        }
    }
    let found = preflight(desired, &stage.observed);
    if found.has_errors() {
        return Err(Halt::preflight(found));
    }
    let plan = goal.plan(stage.live, &stage.observed);
    if let Some(saved) = saved {
        same(desired, &plan, saved)?;
    }
    let mut findings = found;
    let left = drift(desired, &stage.observed);
    if !asked.json {
        let idle = steps::idle(left.iter().count());
        terminal.tell(steps::text(Steps { desired, plan: &plan, idle: &idle }, terminal.width()).trim_end());
    }
    if asked.dry_run {
        findings.extend(left);
        let exit = if plan.is_empty() { Exit::Done } else { Exit::ChangesPending };
        return Ok((exit, findings));
    }
    if !plan.is_empty() && saved.is_none() {
        if !asked.yes {
            // Whoever is asked must know what the plan does not do.
            findings::tell(&Sources::default(), &left, Changes::None, terminal);
        }
        if !asked.confirmed("Make it so?", "yes") {
            return Err(Halt::refused(only(run::not_confirmed("nothing was changed"))));
        }
    }
    let (exit, told) = if plan.is_empty() {
        carry_out(stage, goal, &plan, asked, terminal)?
    } else {
        stage.with_secrets(|stage| {
            // Cidata volumes are named after what is in them, which the secrets are a part of.
            let now = goal.plan(stage.live, &stage.observed);
            match unforeseen(&now, &plan) {
                Some(finding) => Err(Halt::refused(only(finding))),
                None => carry_out(stage, goal, &now, asked, terminal),
            }
        })?
    };
    findings.extend(told);
    Ok((exit, findings))
}

fn carry_out(
    stage: &Stage<'_>,
    goal: &Goal,
    plan: &ClusterPlan,
    asked: &Asked,
    terminal: &Terminal,
) -> Result<(Exit, Findings), Halt> {
    let ending = run::carry_out(stage, goal, plan, asked, terminal)?;
    let exit = ending.exit();
    let left = drift(stage.site.desired, &ending.observed);
    if exit == Exit::Done {
        finish(stage, &ending, asked, terminal)?;
    }
    Ok((exit, left))
}

/// Gives access to the cluster, and shows it.
fn finish(stage: &Stage<'_>, ending: &Ending, asked: &Asked, terminal: &Terminal) -> Result<(), Halt> {
    let kubeconfig = stage.bundle.map(|bundle| write_access(stage, bundle)).transpose()?.flatten();
    if asked.json {
        return Ok(());
    }
    run::show_status(&stage.live.with_leases(), &ending.observed, terminal);
    if let Some(path) = kubeconfig {
        terminal.tell(&format!("{}: kubectl reads {}", text::hint("access"), path.display()));
    }
    if let Some(lab) = stage.lab {
        terminal.tell(&format!("this was a rehearsal: the lab is kept in {}", lab.display()));
    }
    Ok(())
}

/// Writes kubeconfig and talosconfig beside the secrets, where they are as safe. What leads to the cluster is kept.
fn write_access(
    stage: &Stage<'_>,
    bundle: &ichor_machineconfig::secrets::Bundle,
) -> Result<Option<std::path::PathBuf>, Halt> {
    let known = stage.live.with_leases();
    if known.cluster.endpoint.host.known().is_none() {
        return Ok(None);
    }
    let system = &OperatingSystem;
    let kubeconfig = stage.store.file("kubeconfig");
    let made = access::kubeconfig(system, &known, bundle, &Server::Endpoint, KUBECONFIG_LIFETIME)?;
    access::keep_current(system, &made, &kubeconfig)?;
    let wanted = TalosAccess { roles: vec![TalosRole::Admin], lifetime: TALOS_CLIENT_LIFETIME };
    let (made, _) = access::talosconfig(system, &known, bundle, &wanted)?;
    access::keep_current(system, &made, &stage.store.file("talosconfig"))?;
    Ok(Some(kubeconfig))
}

fn read_plan(path: &Path) -> Result<SavedPlan, Failure> {
    let unreadable = |why: String| {
        Failure::new(Exit::InvalidInput, format!("`{}` holds no plan", path.display()))
            .because(why)
            .hint("make one:\n    ichor plan --out FILE")
    };
    let bytes =
        files::read_bounded(path, saved_plan::MAX_BYTES).map_err(|why| unreadable(why.to_string()))?;
    SavedPlan::read(&bytes).map_err(|why| unreadable(why.to_string()))
}

/// A saved plan is carried out as it was seen, or not at all.
fn same(desired: &Desired, plan: &ClusterPlan, saved: &SavedPlan) -> Result<(), Halt> {
    let differences = saved.differences(&SavedPlan::new(desired, plan));
    if differences.is_empty() {
        return Ok(());
    }
    let finding = Finding::error(Code::WORLD_CHANGED, None, "the saved plan is not the right one any more");
    let finding = differences
        .iter()
        .take(8)
        .fold(finding, |finding, difference| finding.because(difference.to_string()));
    Err(Halt::refused(only(finding.remedy("make a new one and look at it:\n    ichor plan --out FILE"))))
}
