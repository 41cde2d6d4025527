//! A plan, step by step: what is done to which machine, why, and what it does to what is there.

use std::collections::BTreeSet;

use ichor_model::{
    Desired,
    desired::{ImageSource, Role},
    step::{Impact, Reason},
};
use ichor_plan::{Action, ClusterPlan, ClusterStep};
use serde_json::{Value, json};

use super::{duration, estimate::Schedule, text};

/// The number of the document's language.
const SCHEMA: u32 = 1;
/// Columns where nobody says how many there are: pipes and files are not broken into lines.
const ENDLESS: usize = 10_000;
/// A reason stands beside its step if that leaves it this many columns, else below.
const ROOM_FOR_REASON: usize = 24;
/// Most columns of what a step does, where a reason stands beside it.
const LONGEST_WHAT: usize = 44;

/// A plan of one cluster.
#[derive(Debug, Clone, Copy)]
pub struct Steps<'a> {
    /// The cluster as it is to be.
    pub desired: &'a Desired,
    /// The way there.
    pub plan: &'a ClusterPlan,
    /// What there is to say if nothing is to be done.
    pub idle: &'a str,
}

/// What `plan` and `up` say when there is nothing to do.
pub const CONVERGED: &str = "the cluster is as the inventory says";

/// Returns what `plan` says when there is nothing to do and so many differences are left as they are.
pub fn idle(differences: usize) -> String {
    match differences {
        0 => CONVERGED.to_owned(),
        number => left(number),
    }
}

/// Says how many differences between the inventory and the cluster no step settles.
pub fn left(differences: usize) -> String {
    let (them, are) = if differences == 1 { ("it is", "is") } else { ("they are", "are") };
    format!("{} to the inventory {are} left as {them}", text::count(differences, "difference"))
}

/// What `destroy` says when there is nothing to do.
pub const GONE: &str = "nothing of this cluster is left";

/// Returns a plan as text.
pub fn text(steps: Steps<'_>, width: Option<u16>) -> String {
    let name = &steps.desired.cluster.name;
    if steps.plan.is_empty() {
        return format!("{}: cluster `{name}`: nothing to do: {}\n", text::good("ok"), steps.idle);
    }
    let columns = width.map_or(ENDLESS, usize::from);
    let groups = groups(steps);
    let lengths = steps.plan.steps().iter().map(|step| what(step).chars().count());
    let widest = lengths.filter(|length| *length <= LONGEST_WHAT).max().unwrap_or(0);
    let layout = Layout { columns, what: widest };
    let mut blocks: Vec<String> = groups.iter().map(|group| layout.group(group)).collect();
    blocks.push(totals(steps, columns));
    blocks.join("\n")
}

/// Steps that are about the same thing.
struct Group<'a> {
    title: String,
    steps: Vec<&'a ClusterStep>,
}

/// Those of the cluster as a whole come first, then machines in the plan's order.
fn groups(steps: Steps<'_>) -> Vec<Group<'_>> {
    let mut groups: Vec<(Option<&str>, Vec<&ClusterStep>)> = vec![(None, Vec::new())];
    for step in steps.plan.steps() {
        let machine = machine(&step.action);
        match groups.iter_mut().find(|(title, _)| *title == machine) {
            Some((_, steps)) => steps.push(step),
            None => groups.push((machine, vec![step])),
        }
    }
    let named =
        |(machine, list): (Option<&str>, Vec<_>)| Group { title: title(steps.desired, machine), steps: list };
    groups.into_iter().filter(|(_, steps)| !steps.is_empty()).map(named).collect()
}

/// etcd begins on one machine, for all of them.
fn machine(action: &Action) -> Option<&str> {
    match action {
        Action::BootstrapEtcd { .. } => None,
        action => action.machine(),
    }
}

fn title(desired: &Desired, machine: Option<&str>) -> String {
    let Some(machine) = machine else { return format!("cluster {}", desired.cluster.name) };
    let wanted = desired.machines.iter().find(|it| it.name.as_str() == machine);
    match wanted {
        Some(wanted) => format!("{} {machine}", wanted.role),
        None if machine.is_empty() => "VMs without a name".to_owned(),
        None => text::safe_line(machine),
    }
}

/// How wide things are.
struct Layout {
    columns: usize,
    what: usize,
}

impl Layout {
    fn group(&self, group: &Group<'_>) -> String {
        let steps: String = group.steps.iter().map(|step| self.step(step)).collect();
        format!("{}\n{steps}", text::bold(&group.title))
    }

    /// `  + create VM 2000 on host pve1  there is no VM 2000`; a reason that has no room goes below.
    fn step(&self, step: &ClusterStep) -> String {
        const MARGIN: usize = 4;
        let (what, why) = (what(step), text::safe_line(&step.because.to_string()));
        let mark = mark(step.impact);
        let beside = self.columns.saturating_sub(MARGIN + self.what + 2);
        if what.chars().count() <= self.what && beside >= ROOM_FOR_REASON {
            let (first, rest) = first_line(&why, beside);
            let indent = " ".repeat(MARGIN + self.what + 2);
            let below: String = rest.iter().map(|line| format!("{indent}{line}\n")).collect();
            return format!("  {mark} {}  {first}\n{below}", text::pad(&what, self.what));
        }
        let what = indented(&what, MARGIN, self.columns);
        format!("  {mark} {}{}", what.trim_start(), indented(&why, MARGIN + 2, self.columns))
    }
}

fn first_line(why: &str, columns: usize) -> (String, Vec<String>) {
    let wrapped = text::wrap(why, columns);
    let mut lines = wrapped.lines().map(str::to_owned);
    (lines.next().unwrap_or_default(), lines.collect())
}

/// Breaks text into lines with a margin.
fn indented(words: &str, margin: usize, columns: usize) -> String {
    let wrapped = text::wrap(words, columns.saturating_sub(margin).max(ROOM_FOR_REASON));
    wrapped.lines().map(|line| format!("{}{line}\n", " ".repeat(margin))).collect()
}

fn what(step: &ClusterStep) -> String {
    text::safe_line(&step.action.to_string())
}

fn mark(impact: Impact) -> String {
    match impact {
        Impact::Waits => ".".to_owned(),
        Impact::Adds => text::good("+"),
        Impact::Disrupts => text::warn("~"),
        Impact::Destroys => text::bad("-"),
    }
}

/// Sums a plan up.
fn totals(steps: Steps<'_>, columns: usize) -> String {
    const LABELS: usize = 11;
    let lines = [
        ("Steps", Some(counted(steps.plan))),
        ("Reboots", reboots(steps)),
        ("Stops", stops(steps.plan)),
        ("etcd", Some(quorum(steps))),
        ("Time", Some(format!("about {}", duration::rough(Schedule::new(steps.plan.steps()).whole())))),
    ];
    let mut block = String::new();
    for (label, value) in lines.into_iter().filter_map(|(label, value)| Some((label, value?))) {
        let wrapped = text::wrap(&value, columns.saturating_sub(LABELS).max(ROOM_FOR_REASON));
        let indent = format!("\n{}", " ".repeat(LABELS));
        block += &format!("{}{}\n", text::bold(&format!("{label:<LABELS$}")), wrapped.replace('\n', &indent));
    }
    block
}

/// Counts steps by what they do: `34: 18 add (+), 16 wait (.)`.
fn counted(plan: &ClusterPlan) -> String {
    let kinds = [
        (Impact::Adds, "add (+)"),
        (Impact::Disrupts, "disrupt (~)"),
        (Impact::Destroys, "destroy (-)"),
        (Impact::Waits, "wait (.)"),
    ];
    let counts = kinds.map(|(impact, word)| (count(plan, impact), word));
    let named: Vec<String> =
        counts.iter().filter(|(n, _)| *n > 0).map(|(n, word)| format!("{n} {word}")).collect();
    format!("{}: {}", plan.steps().len(), named.join(", "))
}

fn count(plan: &ClusterPlan, impact: Impact) -> usize {
    plan.steps().iter().filter(|step| step.impact == impact).count()
}

/// Names the machines that are away for a while. A plan that stops machines for good says that instead.
fn reboots(steps: Steps<'_>) -> Option<String> {
    let parts =
        [(installing(steps), "once, to install Talos"), (disrupted(steps.plan), "may stop for a while")];
    let concerned = parts.iter().filter(|(machines, _)| !machines.is_empty());
    let said: Vec<String> = concerned.map(|(machines, how)| format!("{} ({how})", names(machines))).collect();
    match said.is_empty() {
        true if stopping(steps.plan).is_empty() => Some("no machine".to_owned()),
        true => None,
        false => Some(said.join("; ")),
    }
}

fn stops(plan: &ClusterPlan) -> Option<String> {
    let stopping = stopping(plan);
    (!stopping.is_empty()).then(|| format!("{}, without a shutdown", names(&stopping)))
}

fn names(names: &BTreeSet<&str>) -> String {
    let names: Vec<String> = names.iter().map(|name| text::safe_line(name)).collect();
    text::list_some(&names, text::MAX_NAMES)
}

/// A machine that boots from a medium installs Talos when it gets its machine config, and starts again from disk.
fn installing(steps: Steps<'_>) -> BTreeSet<&str> {
    let from_medium = |name: &str| {
        let machine = steps.desired.machines.iter().find(|machine| machine.name.as_str() == name);
        let image = machine.and_then(|it| steps.desired.images.iter().find(|image| image.id == it.image));
        image.is_some_and(|image| image.source == ImageSource::Iso)
    };
    let configured = steps.plan.steps().iter().filter_map(|step| match &step.action {
        Action::ApplyConfig { machine } | Action::AwaitConfig { machine } => Some(machine.as_str()),
        _ => None,
    });
    configured.filter(|machine| from_medium(machine)).collect()
}

/// Taking a medium out of a drive stops nothing.
fn disrupted(plan: &ClusterPlan) -> BTreeSet<&str> {
    let disruptive = plan.steps().iter().filter(|step| step.impact == Impact::Disrupts);
    let stops = disruptive.filter(|step| !matches!(step.action, Action::DetachMedium { .. }));
    stops.filter_map(|step| step.action.machine()).collect()
}

fn stopping(plan: &ClusterPlan) -> BTreeSet<&str> {
    let stopped = plan.steps().iter().filter(|step| matches!(step.action, Action::StopVm { .. }));
    stopped.filter_map(|step| step.action.machine()).filter(|name| !name.is_empty()).collect()
}

fn quorum(steps: Steps<'_>) -> String {
    let Etcd { wanted, quorum, removed, replaced, unknown } = etcd(steps);
    if unknown > 0 {
        let others = format!("{unknown} of the VMs that go are not in the inventory, and may be members too");
        return format!("{removed} of {} go; {others}", text::count(wanted, "member"));
    }
    if removed > 0 && removed == wanted {
        return format!("all {} go, with what is in it", text::count(wanted, "member"));
    }
    if removed > 0 {
        return format!("{removed} of {} go; quorum is {quorum}", text::count(wanted, "member"));
    }
    let wanted = format!("{} wanted, quorum {quorum}", text::count(wanted, "member"));
    match replaced {
        0 => wanted,
        1 => format!("{wanted}; the vote of a lost machine goes first"),
        _ => format!("{wanted}; the votes of {replaced} lost machines go first"),
    }
}

struct Etcd {
    wanted: usize,
    quorum: usize,
    removed: usize,
    /// Members that are lost, and whose machines are made anew.
    replaced: usize,
    /// VMs that go and of which the inventory does not say what they are.
    unknown: usize,
}

fn etcd(steps: Steps<'_>) -> Etcd {
    let gone: BTreeSet<u32> = steps
        .plan
        .steps()
        .iter()
        .filter_map(|step| match step.action {
            Action::DeleteVm { vmid, .. } => Some(vmid.number()),
            _ => None,
        })
        .collect();
    let control_planes = || steps.desired.of_role(Role::ControlPlane);
    let named: BTreeSet<u32> = steps.desired.vmids().into_iter().map(ichor_model::VmId::number).collect();
    Etcd {
        wanted: control_planes().count(),
        quorum: steps.desired.quorum(),
        removed: control_planes().filter(|machine| gone.contains(&machine.vmid.number())).count(),
        replaced: steps
            .plan
            .steps()
            .iter()
            .filter(|step| matches!(step.action, Action::RemoveMember { .. }))
            .count(),
        unknown: gone.iter().filter(|vmid| !named.contains(vmid)).count(),
    }
}

/// Returns a plan for programs.
pub fn document(steps: Steps<'_>) -> Value {
    let plan = steps.plan;
    let Etcd { wanted, quorum, removed, replaced, .. } = etcd(steps);
    let reboots: BTreeSet<&str> = installing(steps).into_iter().chain(disrupted(plan)).collect();
    json!({
        "schema": SCHEMA,
        "cluster": steps.desired.cluster.name,
        "cluster_id": steps.desired.cluster.id,
        "empty": plan.is_empty(),
        "steps": plan.steps().iter().map(step_document).collect::<Vec<_>>(),
        "totals": {
            "adds": count(plan, Impact::Adds),
            "disrupts": count(plan, Impact::Disrupts),
            "destroys": count(plan, Impact::Destroys),
            "waits": count(plan, Impact::Waits),
        },
        "reboots": reboots,
        "etcd": {"wanted": wanted, "quorum": quorum, "removed": removed, "replaced": replaced},
        "about_seconds": Schedule::new(plan.steps()).whole().as_secs(),
    })
}

fn step_document(step: &ClusterStep) -> Value {
    let reason = match &step.because {
        Reason::Missing(_) => "missing",
        Reason::Unseen(_) => "unseen",
        Reason::Needed => "needed",
        Reason::Asked => "asked",
    };
    json!({
        "id": step.id,
        "machine": step.action.machine(),
        "action": step.action,
        "what": step.action.to_string(),
        "because": {"reason": reason, "why": step.because.to_string()},
        "impact": step.impact,
        "phase": step.action.phase(),
        "needs": step.needs,
    })
}

#[cfg(test)]
mod tests {
    use ichor_model::{
        Observed,
        observed::{Owner, Sight, VmSeen},
    };
    use ichor_plan::Extent;

    use super::*;
    use crate::render::{document, fixture};

    fn shown(desired: &Desired, plan: &ClusterPlan, width: Option<u16>) -> String {
        let shown = text(Steps { desired, plan, idle: CONVERGED }, width);
        let seen = anstream::adapter::strip_str(&shown).to_string();
        if let Some(width) = width {
            let long =
                |line: &&str| line.chars().count() > width.into() && line.split_whitespace().count() > 1;
            assert_eq!(seen.lines().find(long), None);
        }
        seen
    }

    fn removal(desired: &Desired) -> ClusterPlan {
        let mut observed = Observed::default();
        for machine in &desired.machines {
            let vm = VmSeen {
                host: "pve1".parse().expect("host"),
                owner: Owner::Ours,
                name: machine.name.to_string(),
                running: machine.role == Role::ControlPlane,
                template: false,
                lock: None,
                differences: Vec::new(),
                drift: Vec::new(),
                medium: false,
                protected: false,
                addresses: Vec::new(),
            };
            observed.vms.insert(machine.vmid, Sight::Seen(Some(vm)));
        }
        ichor_plan::destroy(desired, &observed, &ichor_plan::files::Names::default(), Extent::Machines)
    }

    #[test]
    fn steps_are_grouped_by_machine_with_their_reasons() {
        let mut desired = fixture::live();
        desired.machines.drain(1..4);
        let plan = fixture::plan_from_nothing(&desired);
        insta::assert_snapshot!(shown(&desired, &plan, Some(80)), @r"
        cluster homelab
          + make pool `homelab`          nobody looked
          + download image v1.13.9-nocloud-amd64 to
            local:import/ichor-talos-v1.13.9-nocloud-amd64-.qcow2 on host pve1
              nobody looked
          + download image v1.13.9-nocloud-amd64 to
            local:import/ichor-talos-v1.13.9-nocloud-amd64-.qcow2 on host pve2
              nobody looked
          + bootstrap etcd on cp-1       etcd runs on no control plane
          . wait for Kubernetes          Kubernetes does not answer

        control-plane cp-1
          + create VM 2000 on host pve1  there is no VM 2000
          + start VM 2000                there is no VM 2000
          . wait for Talos               nobody answers at its address
          + apply the machine config     nobody answers at its address
          . join etcd                    nobody answers at its address
          . wait for the node            Kubernetes does not answer

        worker worker-2
          + create VM 3001 on host pve2  there is no VM 3001
          + start VM 3001                there is no VM 3001
          . wait for Talos               nobody answers at its address
          + apply the machine config     nobody answers at its address
          . wait for the node            Kubernetes does not answer

        Steps      16: 10 add (+), 6 wait (.)
        Reboots    no machine
        etcd       1 member wanted, quorum 1
        Time       about 4m
        ");
        insta::assert_snapshot!(shown(&desired, &plan, Some(140)), @r"
        cluster homelab
          + make pool `homelab`          nobody looked
          + download image v1.13.9-nocloud-amd64 to local:import/ichor-talos-v1.13.9-nocloud-amd64-.qcow2 on host pve1
              nobody looked
          + download image v1.13.9-nocloud-amd64 to local:import/ichor-talos-v1.13.9-nocloud-amd64-.qcow2 on host pve2
              nobody looked
          + bootstrap etcd on cp-1       etcd runs on no control plane
          . wait for Kubernetes          Kubernetes does not answer

        control-plane cp-1
          + create VM 2000 on host pve1  there is no VM 2000
          + start VM 2000                there is no VM 2000
          . wait for Talos               nobody answers at its address
          + apply the machine config     nobody answers at its address
          . join etcd                    nobody answers at its address
          . wait for the node            Kubernetes does not answer

        worker worker-2
          + create VM 3001 on host pve2  there is no VM 3001
          + start VM 3001                there is no VM 3001
          . wait for Talos               nobody answers at its address
          + apply the machine config     nobody answers at its address
          . wait for the node            Kubernetes does not answer

        Steps      16: 10 add (+), 6 wait (.)
        Reboots    no machine
        etcd       1 member wanted, quorum 1
        Time       about 4m
        ");
    }

    #[test]
    fn a_removal_says_what_stops_and_what_goes() {
        let desired = fixture::live();
        insta::assert_snapshot!(shown(&desired, &removal(&desired), Some(100)), @r"
        control-plane cp-1
          - stop VM 2000    asked for
          - delete VM 2000  asked for

        control-plane cp-2
          - stop VM 2001    asked for
          - delete VM 2001  asked for

        control-plane cp-3
          - stop VM 2002    asked for
          - delete VM 2002  asked for

        worker worker-1
          - delete VM 3000  asked for

        worker worker-2
          - delete VM 3001  asked for

        Steps      8: 8 destroy (-)
        Stops      cp-1, cp-2 and cp-3, without a shutdown
        etcd       all 3 members go, with what is in it
        Time       about 8s
        ");
    }

    #[test]
    fn machines_that_install_reboot() {
        let mut desired = fixture::live();
        desired.images[0].source = ImageSource::Iso;
        let plan = fixture::plan_from_nothing(&desired);
        let shown = shown(&desired, &plan, None);
        assert!(
            shown.contains("Reboots    cp-1, cp-2, cp-3, worker-1 and worker-2 (once, to install Talos)\n"),
            "{shown}"
        );
        assert!(shown.contains("  ~ take the media of the first boot out"), "{shown}");
    }

    #[test]
    fn any_width_will_do() {
        let desired = fixture::live();
        for width in [1, 20, 40, 60, 79] {
            text(
                Steps { desired: &desired, plan: &fixture::plan_from_nothing(&desired), idle: "" },
                Some(width),
            );
        }
    }

    #[test]
    fn an_empty_plan_says_that_all_is_well() {
        let desired = fixture::live();
        let plan = ClusterPlan::new(Vec::new()).expect("a plan");
        assert_eq!(
            shown(&desired, &plan, Some(80)),
            "ok: cluster `homelab`: nothing to do: the cluster is as the inventory says\n"
        );
    }

    #[test]
    fn an_empty_plan_says_how_much_is_left_as_it_is() {
        let desired = fixture::live();
        let plan = ClusterPlan::new(Vec::new()).expect("a plan");
        let said = |differences: usize| {
            let shown = text(Steps { desired: &desired, plan: &plan, idle: &idle(differences) }, Some(80));
            anstream::adapter::strip_str(&shown).to_string()
        };
        assert_eq!(
            said(1),
            "ok: cluster `homelab`: nothing to do: 1 difference to the inventory is left as it is\n"
        );
        assert_eq!(
            said(5),
            "ok: cluster `homelab`: nothing to do: 5 differences to the inventory are left as they are\n"
        );
        assert!(said(0).ends_with(&format!("{CONVERGED}\n")));
    }

    #[test]
    fn programs_get_the_same_with_keys() {
        let mut desired = fixture::live();
        desired.machines.truncate(1);
        let plan = fixture::plan_from_nothing(&desired);
        let mut value = document(Steps { desired: &desired, plan: &plan, idle: CONVERGED });
        assert_eq!(value["steps"].as_array().map(Vec::len), Some(plan.steps().len()));
        value["steps"].as_array_mut().expect("a list").retain(|step| step["id"] == "machine/cp-1/start");
        insta::assert_snapshot!(document::json(&value), @r#"
        {
          "schema": 1,
          "cluster": "homelab",
          "cluster_id": "homelab",
          "empty": false,
          "steps": [
            {
              "id": "machine/cp-1/start",
              "machine": "cp-1",
              "action": {
                "do": "start-vm",
                "machine": "cp-1",
                "vmid": 2000
              },
              "what": "start VM 2000",
              "because": {
                "reason": "missing",
                "why": "there is no VM 2000"
              },
              "impact": "adds",
              "phase": "machines",
              "needs": [
                "machine/cp-1/create"
              ]
            }
          ],
          "totals": {
            "adds": 6,
            "disrupts": 0,
            "destroys": 0,
            "waits": 4
          },
          "reboots": [],
          "etcd": {
            "wanted": 1,
            "quorum": 1,
            "removed": 0,
            "replaced": 0
          },
          "about_seconds": 225
        }
        "#);
    }
}
