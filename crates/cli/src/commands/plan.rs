//! `ichor plan`: what an inventory stands for.
//!
//! 1. [`read_world`]: what was observed, if a file of it is named;
//! 2. [`clusters::load`]: the clusters, resolved against it;
//! 3. [`answer`]: each cluster with what else was asked about it; any error ends here;
//! 4. [`show`]: as tables, a document or a drawing.

use std::path::Path;

use ichor_model::{Code, Desired, Finding, Findings, World};
use ichor_ops::{Halt, converge::Goal, saved_plan::SavedPlan, whole};
use ichor_plan::{drift, preflight};
use serde_json::Value;

use super::{
    live::{self, Intent},
    session::Gate,
};
use crate::{
    args::{Global, Graph, Output, Plan},
    clusters::{self, Cluster, Clusters},
    exit::Exit,
    failure::Failure,
    files,
    operating_system::OperatingSystem,
    render::{
        findings::{self, Changes},
        findings_json,
        graph::{self, GraphHost},
        placement::{Loss, Seat},
        plan,
        plan::Answer,
        steps::{self, Steps},
        text,
    },
    terminal::Terminal,
};

/// Largest file of observations that is read: some hundred thousand VMs.
const MAX_WORLD_BYTES: usize = 64 * 1024 * 1024;

/// Plans the clusters.
pub fn run(args: &Plan, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    let about_the_inventory =
        args.explain || args.lose.is_some() || args.graph.is_some() || args.observed.is_some();
    if !args.offline && !about_the_inventory {
        return live_plan(args, global, terminal);
    }
    let world = args.observed.as_deref().map(read_world).transpose()?.unwrap_or_default();
    let mut clusters = clusters::load(global.file.as_deref(), global.cluster.as_deref(), &world);
    let mut answers: Vec<Answer<'_>> =
        clusters.list.iter().filter_map(|cluster| answer(cluster, args, &mut clusters.findings)).collect();
    if args.graph.is_some() && answers.len() > 1 {
        clusters.findings.push(choose_one(&answers));
    }
    findings::tell(&clusters.sources, &clusters.findings, Changes::None, terminal);
    if clusters.findings.has_errors() {
        report(&clusters, args.graph, global.output, terminal)?;
        return Ok(Exit::InvalidInput);
    }
    for answer in &mut answers {
        answer.findings = findings_json::about(&clusters.sources, &clusters.findings, answer.files);
    }
    show(&answers, args.graph, global.output, terminal)?;
    Ok(Exit::Done)
}

/// Plans against the living world.
fn live_plan(args: &Plan, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    let planned = live::with(global, terminal, Intent::Plan, |stage| {
        let desired = stage.site.desired;
        let found = preflight(desired, &stage.observed);
        if found.has_errors() {
            return Err(Halt::preflight(found));
        }
        let plan = Goal::up().plan(stage.live, &stage.observed);
        if let Some(path) = &args.out {
            let bytes = SavedPlan::new(desired, &plan).bytes();
            whole::replace(&OperatingSystem, path, &bytes).map_err(|error| Halt::unwritable(path, &error))?;
        }
        let left = drift(desired, &stage.observed);
        let idle = steps::idle(left.iter().count());
        let steps = Steps { desired, plan: &plan, idle: &idle };
        let shown = (steps::text(steps, terminal.width()), steps::document(steps), plan.is_empty());
        let mut findings = found;
        findings.extend(left);
        Ok((shown, findings))
    })?;
    match planned {
        Gate::Closed(exit) => Ok(exit),
        Gate::Open((session, (text, document, done))) => {
            let exit = if done { Exit::Done } else { Exit::ChangesPending };
            session.end(exit, || text, || vec![document])
        }
    }
}

/// Tells programs what stands in the way, as `check` does. A drawing has no room for it.
fn report(
    clusters: &Clusters,
    drawing: Option<Graph>,
    output: Output,
    terminal: &Terminal,
) -> Result<(), Failure> {
    match (drawing, output) {
        (Some(_), _) | (None, Output::Table) => {}
        (None, Output::Json) => terminal.json(&findings_json::report(clusters))?,
        (None, Output::Yaml) => terminal.yaml(&findings_json::report(clusters))?,
    }
    Ok(())
}

/// Reads what was observed.
fn read_world(path: &Path) -> Result<World, Failure> {
    let name = path.display();
    let bytes = files::read_bounded(path, MAX_WORLD_BYTES).map_err(|why| {
        Failure::new(Exit::InvalidInput, format!("`{name}` cannot be read"))
            .because(why.to_string())
            .hint(format!("`--observed` takes a JSON file of at most {MAX_WORLD_BYTES} bytes"))
    })?;
    serde_json::from_slice(&bytes).map_err(|error| {
        Failure::new(Exit::InvalidInput, format!("`{name}` does not hold what was observed of a world"))
            .because(error.to_string())
            .hint("`--observed` takes JSON with the keys `hosts`, `machines`, `foreign` and `contract`, all optional")
    })
}

/// Gathers what was asked about one cluster.
fn answer<'a>(cluster: &'a Cluster, args: &Plan, findings: &mut Findings) -> Option<Answer<'a>> {
    let resolution = cluster.resolution.as_ref()?;
    let desired = cluster.desired()?;
    let loss = match args.lose.as_ref().map(|host| resolution.lose(host)).transpose() {
        Ok(loss) => loss.map(|loss| Loss::new(&loss, &desired.hosts)),
        Err(finding) => {
            findings.push(finding);
            None
        }
    };
    Some(Answer {
        desired,
        files: &cluster.files,
        seats: args.explain.then(|| resolution.seats().iter().map(Seat::from).collect()),
        loss,
        findings: Vec::new(),
    })
}

/// A drawing is a document of its own: several in a row are none.
fn choose_one(answers: &[Answer<'_>]) -> Finding {
    let names: Vec<String> =
        answers.iter().map(|answer| format!("`{}`", answer.desired.cluster.name)).collect();
    Finding::error(Code::SEVERAL_CLUSTERS, None, "one cluster is drawn at a time")
        .because(format!("there are {}", text::list_some(&names, text::MAX_NAMES)))
        .remedy("choose one with `--cluster NAME`")
}

fn show(
    answers: &[Answer<'_>],
    drawing: Option<Graph>,
    output: Output,
    terminal: &Terminal,
) -> Result<(), Failure> {
    match (drawing, output) {
        (Some(Graph::Mermaid), _) => terminal.data(draw(answers, graph::mermaid))?,
        (Some(Graph::Svg), _) => terminal.data(draw(answers, graph::svg))?,
        (None, Output::Table) => terminal.show(&plan::text(answers, terminal.width()))?,
        (None, Output::Json) => terminal.json(&whole(answers))?,
        (None, Output::Yaml) => terminal.yaml(&whole(answers))?,
    }
    Ok(())
}

fn draw(answers: &[Answer<'_>], draw_one: fn(&Desired, &[GraphHost]) -> String) -> String {
    answers.iter().map(|answer| draw_one(answer.desired, &hosts(answer.desired))).collect()
}

fn hosts(desired: &Desired) -> Vec<GraphHost> {
    let hosts = desired.hosts.iter().map(|host| GraphHost {
        name: host.name.clone(),
        zone: host.zone.clone(),
        cpu: host.cpu,
        memory: host.memory,
    });
    hosts.collect()
}

/// One cluster is an object, several are a list.
fn whole(answers: &[Answer<'_>]) -> Value {
    match answers {
        [answer] => plan::document(answer),
        answers => answers.iter().map(plan::document).collect(),
    }
}
