//! `ichor up`: a Ready cluster, from nothing or from what is there.

use std::path::Path;

use ichor_machineconfig::pki::{TALOS_CLIENT_LIFETIME, TalosRole};
use ichor_model::{Code, Desired, Finding, Findings};
use ichor_ops::{
    Halt,
    access::{self, Server, TalosAccess},
    converge::{Goal, look},
    halt::only,
    saved_plan::{self, SavedPlan},
    whole,
};
use ichor_plan::{ClusterPlan, drift, has_network, preflight};
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
    let intent = if args.dry_run { Intent::Look } else { Intent::Make };
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
    let found = preflight(desired, &stage.observed);
    if found.has_errors() {
        return Err(Halt::preflight(found));
    }
    let plan = goal.plan(stage.live, &stage.observed);
    if let Some(saved) = saved {
        same(desired, &plan, saved)?;
    }
    let mut findings = found;
    findings.extend(notes(desired));
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
    let ending = run::carry_out(stage, goal, &plan, asked, terminal)?;
    let exit = ending.exit();
    findings.extend(drift(desired, ending.observed.as_ref().unwrap_or(&stage.observed)));
    if exit == Exit::Done {
        finish(stage, &ending, asked, terminal)?;
    }
    Ok((exit, findings))
}

/// Gives access to the cluster, and shows it.
fn finish(stage: &Stage<'_>, ending: &Ending, asked: &Asked, terminal: &Terminal) -> Result<(), Halt> {
    let observed = match &ending.observed {
        Some(observed) => observed.clone(),
        None => stage.runtime.block_on(look(stage.live))?,
    };
    let kubeconfig = stage.bundle.map(|bundle| write_access(stage, bundle)).transpose()?.flatten();
    if asked.json {
        return Ok(());
    }
    run::show_status(&stage.live.with_leases(), &observed, terminal);
    if let Some(path) = kubeconfig {
        terminal.tell(&format!("{}: kubectl reads {}", text::hint("access"), path.display()));
    }
    if let Some(lab) = stage.lab {
        terminal.tell(&format!("this was a rehearsal: the lab is kept in {}", lab.display()));
    }
    Ok(())
}

/// Writes kubeconfig and talosconfig beside the secrets, where they are as safe. What is valid is kept.
fn write_access(
    stage: &Stage<'_>,
    bundle: &ichor_machineconfig::secrets::Bundle,
) -> Result<Option<std::path::PathBuf>, Halt> {
    let known = stage.live.with_leases();
    if known.cluster.endpoint.host.known().is_none() {
        return Ok(None);
    }
    let kubeconfig = stage.store.file("kubeconfig");
    if !kubeconfig.exists() {
        let made =
            access::kubeconfig(&OperatingSystem, &known, bundle, &Server::Endpoint, KUBECONFIG_LIFETIME)?;
        write(&made, &kubeconfig)?;
    }
    let talosconfig = stage.store.file("talosconfig");
    if !talosconfig.exists() {
        let access = TalosAccess { roles: vec![TalosRole::Admin], lifetime: TALOS_CLIENT_LIFETIME };
        let (made, _) = access::talosconfig(&OperatingSystem, &known, bundle, &access)?;
        write(&made, &talosconfig)?;
    }
    Ok(Some(kubeconfig))
}

fn write(made: &access::Made, path: &Path) -> Result<(), Halt> {
    whole::replace(&OperatingSystem, path, made.text.expose().as_bytes())
        .map_err(|error| Halt::unwritable(path, &error))
}

fn notes(desired: &Desired) -> Findings {
    if has_network(desired) {
        return Findings::new();
    }
    let choice = desired.addons.get("cni").and_then(|cni| cni.choice.clone()).unwrap_or_default();
    let finding = Finding::warning(Code::NO_NETWORK_YET, None, format!("nodes wait for `{choice}`"))
        .because("Talos does not bring it, and this ichor does not install add-ons yet")
        .remedy("install it; the nodes are Ready once it runs");
    only(finding)
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
