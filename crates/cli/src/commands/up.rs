//! `ichor up`: a Ready cluster, from nothing or from what is there.

use std::path::{Path, PathBuf};

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
use serde_json::Value;

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
        envelope,
        findings::{self, Changes},
        status::{self, Status},
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
    asked.check()?;
    let saved = args.plan.as_deref().map(read_plan).transpose()?;
    let intent = if args.dry_run { Intent::Plan } else { Intent::Make };
    let done = live::with(global, terminal, intent, |stage| {
        let phase = args.phase.map(Into::into);
        let only = args.only.iter().map(ToString::to_string).collect();
        act(&stage, &Goal::Up { phase, only }, saved.as_ref(), &asked, terminal)
    })?;
    match done {
        Gate::Closed(exit) => Ok(exit),
        Gate::Open((session, (exit, shown))) => session.end(exit, || shown.text, || vec![shown.document]),
    }
}

/// How it ended, and what is shown of it.
type Ended = (Exit, Shown);

/// What people and programs see at the end.
#[derive(Default)]
struct Shown {
    text: String,
    document: Value,
}

fn act(
    stage: &Stage<'_>,
    goal: &Goal,
    saved: Option<&SavedPlan>,
    asked: &Asked,
    terminal: &Terminal,
) -> Result<(Ended, Findings), Halt> {
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
    let idle = steps::idle(left.iter().count());
    let steps = Steps { desired, plan: &plan, idle: &idle };
    if !asked.json {
        terminal.tell(steps::text(steps, terminal.width()).trim_end());
    }
    if asked.dry_run {
        findings.extend(left);
        let exit = if plan.is_empty() { Exit::Done } else { Exit::ChangesPending };
        let shown = Shown { document: steps::document(steps), ..Shown::default() };
        return Ok(((exit, shown), findings));
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
    let (ended, told) = if plan.is_empty() {
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
    Ok((ended, findings))
}

fn carry_out(
    stage: &Stage<'_>,
    goal: &Goal,
    plan: &ClusterPlan,
    asked: &Asked,
    terminal: &Terminal,
) -> Result<(Ended, Findings), Halt> {
    let ending = run::carry_out(stage, goal, plan, asked, terminal)?;
    let exit = ending.exit();
    let left = drift(stage.site.desired, &ending.observed);
    let access = match stage.bundle {
        Some(bundle) if exit == Exit::Done => write_access(stage, bundle)?,
        _ => None,
    };
    Ok(((exit, show(stage, asked, &ending, access.as_ref(), terminal)), left))
}

/// Shows the cluster that was made, and where access to it is. People who were told what went wrong see that alone.
fn show(
    stage: &Stage<'_>,
    asked: &Asked,
    ending: &Ending,
    access: Option<&Access>,
    terminal: &Terminal,
) -> Shown {
    let exit = ending.exit();
    let status = Status::new(&stage.live.with_leases(), &ending.observed);
    let path = |of: fn(&Access) -> &PathBuf| access.map(|access| envelope::path(of(access)));
    let mut document = ending.document(asked, stage.site.name());
    document["status"] = status.document();
    document["kubeconfig"] = path(|access| &access.kubeconfig).into();
    document["talosconfig"] = path(|access| &access.talosconfig).into();
    document["lab"] = stage.lab.map(envelope::path).into();
    if exit != Exit::Done {
        return Shown { document, ..Shown::default() };
    }
    let mut text = status::text(&status, terminal.width());
    if let Some(Access { kubeconfig, .. }) = access {
        text += &format!("{}: kubectl reads {}\n", text::hint("access"), kubeconfig.display());
    }
    if let Some(lab) = stage.lab {
        text += &format!("this was a rehearsal: the lab is kept in {}\n", lab.display());
    }
    Shown { text, document }
}

/// Where access to a cluster was written.
struct Access {
    kubeconfig: PathBuf,
    talosconfig: PathBuf,
}

/// Writes kubeconfig and talosconfig beside the secrets, where they are as safe. What leads to the cluster is kept.
fn write_access(
    stage: &Stage<'_>,
    bundle: &ichor_machineconfig::secrets::Bundle,
) -> Result<Option<Access>, Halt> {
    let known = stage.live.with_leases();
    if known.cluster.endpoint.host.known().is_none() {
        return Ok(None);
    }
    let system = &OperatingSystem;
    let kubeconfig = stage.store.file("kubeconfig");
    let made = access::kubeconfig(system, &known, bundle, &Server::Endpoint, KUBECONFIG_LIFETIME)?;
    access::keep_current(system, &made, &kubeconfig)?;
    let wanted = TalosAccess { roles: vec![TalosRole::Admin], lifetime: TALOS_CLIENT_LIFETIME };
    let talosconfig = stage.store.file("talosconfig");
    let (made, _) = access::talosconfig(system, &known, bundle, &wanted)?;
    access::keep_current(system, &made, &talosconfig)?;
    Ok(Some(Access { kubeconfig, talosconfig }))
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
