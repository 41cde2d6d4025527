//! A cluster as it is: cluster, role, machine, and of each machine its VM, Talos, etcd and node.

use ichor_model::{
    Desired, Observed, VmId,
    desired::{Machine, Role},
    observed::{MachineSeen, Owner, Sight, VmSeen},
};
use ichor_plan::drift;
use serde::Serialize;
use serde_json::{Value, json};

use super::{steps::left, text};

/// The number of the document's language.
const SCHEMA: u32 = 1;
/// Space between columns.
const GAP: usize = 2;

/// A cluster as it is.
#[derive(Debug, Serialize)]
pub struct Status {
    cluster: String,
    endpoint: String,
    endpoint_kind: String,
    talos: String,
    kubernetes: String,
    etcd: Etcd,
    nodes: Nodes,
    machines: Vec<MachineStatus>,
    others: Vec<Other>,
    /// How many differences to the inventory are left as they are; the findings tell them.
    differences: usize,
}

#[derive(Debug, Serialize)]
struct Etcd {
    /// Members that vote; nothing: nobody knows.
    voters: Option<usize>,
    wanted: usize,
    quorum: usize,
    why: Option<String>,
    /// Members that are no control planes of the inventory.
    strangers: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Nodes {
    /// Nodes that are ready; nothing: nobody knows.
    ready: Option<usize>,
    wanted: usize,
    why: Option<String>,
    /// Nodes that are no machines of the inventory.
    strangers: Vec<String>,
}

#[derive(Debug, Serialize)]
struct MachineStatus {
    name: String,
    role: Role,
    vm: VmPart,
    talos: TalosPart,
    etcd: Option<Part>,
    node: NodePart,
}

/// What is known of a part: a word, and why it is so where that is not plain.
#[derive(Debug, Serialize)]
struct Part {
    state: &'static str,
    why: Option<String>,
}

#[derive(Debug, Serialize)]
struct VmPart {
    id: VmId,
    host: Option<String>,
    #[serde(flatten)]
    part: Part,
}

#[derive(Debug, Serialize)]
struct TalosPart {
    version: Option<String>,
    stage: Option<String>,
    ready: Option<bool>,
    address: Option<String>,
    #[serde(flatten)]
    part: Part,
}

#[derive(Debug, Serialize)]
struct NodePart {
    version: Option<String>,
    schedulable: Option<bool>,
    #[serde(flatten)]
    part: Part,
}

/// A VM that is no machine of this cluster but concerns it.
#[derive(Debug, Serialize)]
struct Other {
    vmid: VmId,
    name: String,
    host: String,
    whose: &'static str,
    why: String,
}

/// What could not be seen.
const UNKNOWN: &str = "unknown";

impl Part {
    const fn plain(state: &'static str) -> Self {
        Self { state, why: None }
    }

    fn because(state: &'static str, why: &str) -> Self {
        Self { state, why: Some(why.to_owned()) }
    }
}

impl Status {
    /// Puts together what is wanted and what was seen.
    pub fn new(desired: &Desired, observed: &Observed) -> Self {
        let cluster = &desired.cluster;
        let roles = Role::ALL.into_iter().flat_map(|role| desired.of_role(role));
        Self {
            cluster: cluster.name.to_string(),
            endpoint: cluster.endpoint.url(),
            endpoint_kind: cluster.endpoint.kind.to_string(),
            talos: cluster.talos.to_string(),
            kubernetes: cluster.kubernetes.to_string(),
            etcd: etcd(desired, observed),
            nodes: nodes(desired, observed),
            machines: roles.map(|machine| machine_status(machine, observed)).collect(),
            others: others(desired, observed),
            differences: drift(desired, observed).iter().count(),
        }
    }

    /// Returns it for programs.
    pub fn document(&self) -> Value {
        let mut whole = json!({"schema": SCHEMA});
        let own = serde_json::to_value(self).expect("a status has text as keys");
        if let (Value::Object(whole), Value::Object(own)) = (&mut whole, own) {
            whole.extend(own);
        }
        whole
    }
}

fn etcd(desired: &Desired, observed: &Observed) -> Etcd {
    let wanted = desired.of_role(Role::ControlPlane).count();
    let known = |name: &str| desired.of_role(Role::ControlPlane).any(|machine| machine.name.as_str() == name);
    let (voters, strangers, why) = match &observed.etcd {
        Sight::Seen(members) => (
            Some(members.values().filter(|member| !member.learner).count()),
            members.keys().filter(|name| !known(name)).cloned().collect(),
            None,
        ),
        Sight::Unseen(why) => (None, Vec::new(), Some(why.clone())),
    };
    Etcd { voters, wanted, quorum: desired.quorum(), why, strangers }
}

fn nodes(desired: &Desired, observed: &Observed) -> Nodes {
    let wanted = desired.machines.len();
    let known = |name: &str| desired.machines.iter().any(|machine| machine.name.as_str() == name);
    let (ready, strangers, why) = match &observed.nodes {
        Sight::Seen(nodes) => (
            Some(nodes.iter().filter(|(name, node)| node.ready && known(name)).count()),
            nodes.keys().filter(|name| !known(name)).cloned().collect(),
            None,
        ),
        Sight::Unseen(why) => (None, Vec::new(), Some(why.clone())),
    };
    Nodes { ready, wanted, why, strangers }
}

fn machine_status(machine: &Machine, observed: &Observed) -> MachineStatus {
    MachineStatus {
        name: machine.name.to_string(),
        role: machine.role,
        vm: vm_part(machine.vmid, observed),
        talos: talos_part(machine, observed),
        etcd: (machine.role == Role::ControlPlane).then(|| etcd_part(machine, observed)),
        node: node_part(machine, observed),
    }
}

fn vm_part(id: VmId, observed: &Observed) -> VmPart {
    let (host, part) = match observed.vms.get(&id) {
        Some(Sight::Seen(Some(vm))) => (Some(vm.host.to_string()), vm_state(vm, observed)),
        Some(Sight::Seen(None)) => (None, Part::plain("missing")),
        Some(Sight::Unseen(why)) => (None, Part::because(UNKNOWN, why)),
        None => (None, Part::because(UNKNOWN, "nobody looked")),
    };
    VmPart { id, host, part }
}

fn vm_state(vm: &VmSeen, observed: &Observed) -> Part {
    if let Some((_, why)) = whose(&vm.owner) {
        return Part::because("not-ours", &why);
    }
    if observed.hosts.get(&vm.host) == Some(&false) {
        return Part::because(UNKNOWN, &format!("host `{}` is offline", vm.host));
    }
    let state = if vm.running { "running" } else { "off" };
    match &vm.lock {
        Some(lock) => Part::because(state, &format!("it is locked ({lock})")),
        None => Part::plain(state),
    }
}

/// Says whose a VM is that is not ours.
fn whose(owner: &Owner) -> Option<(&'static str, String)> {
    match owner {
        Owner::Ours => None,
        Owner::OtherMachine(whose) => Some(("this-cluster", format!("it is {whose}"))),
        Owner::OtherCluster(cluster) => Some(("other-cluster", format!("it belongs to cluster `{cluster}`"))),
        Owner::Foreign(why) => Some(("foreign", format!("it is not ours: {why}"))),
    }
}

fn talos_part(machine: &Machine, observed: &Observed) -> TalosPart {
    let nothing = |part| TalosPart { version: None, stage: None, ready: None, address: None, part };
    match observed.machines.get(&machine.name) {
        Some(Sight::Seen(MachineSeen::Ours(talos))) => TalosPart {
            version: Some(talos.version.clone()),
            stage: Some(talos.stage.clone()),
            ready: Some(talos.ready),
            address: talos.address.map(|address| address.to_string()),
            part: match &talos.unmet[..] {
                unmet if !talos.ready && !unmet.is_empty() => Part::because(
                    "answers",
                    &format!("it waits for {}", text::list_some(unmet, text::MAX_NAMES)),
                ),
                _ => Part::plain("answers"),
            },
        },
        Some(Sight::Seen(MachineSeen::Maintenance)) => nothing(Part::plain("maintenance")),
        Some(Sight::Seen(MachineSeen::Silent(why))) => nothing(Part::because("silent", why)),
        Some(Sight::Seen(MachineSeen::Stranger(why))) => nothing(Part::because("stranger", why)),
        Some(Sight::Unseen(why)) => nothing(Part::because(UNKNOWN, why)),
        None => nothing(Part::because(UNKNOWN, "nobody looked")),
    }
}

/// Why etcd or Kubernetes is silent is said once, of the cluster.
fn etcd_part(machine: &Machine, observed: &Observed) -> Part {
    Part::plain(match &observed.etcd {
        Sight::Seen(members) => match members.get(machine.name.as_str()) {
            Some(member) if member.learner => "learner",
            Some(_) => "member",
            None => "none",
        },
        Sight::Unseen(_) => UNKNOWN,
    })
}

fn node_part(machine: &Machine, observed: &Observed) -> NodePart {
    let nothing = |part| NodePart { version: None, schedulable: None, part };
    match &observed.nodes {
        Sight::Seen(nodes) => match nodes.get(machine.name.as_str()) {
            Some(node) => NodePart {
                version: Some(node.version.clone()),
                schedulable: Some(!node.unschedulable),
                part: match (node.ready, node.says.is_empty()) {
                    (true, _) => Part::plain("ready"),
                    (false, true) => Part::plain("not-ready"),
                    (false, false) => Part::because("not-ready", &node.says),
                },
            },
            None => nothing(Part::plain("none")),
        },
        Sight::Unseen(_) => nothing(Part::plain(UNKNOWN)),
    }
}

/// A VM in a machine's place is said there.
fn others(desired: &Desired, observed: &Observed) -> Vec<Other> {
    let elsewhere = |vmid: VmId| desired.machines.iter().all(|machine| machine.vmid != vmid);
    let seen = observed.vms.iter().filter_map(|(vmid, sight)| Some((*vmid, sight.seen()?.as_ref()?)));
    let other = |(vmid, vm): (VmId, &VmSeen)| {
        let (whose, why) = match whose(&vm.owner) {
            None if vm.template => ("this-cluster", "it is a template".to_owned()),
            None => ("this-cluster", "the inventory has no such machine".to_owned()),
            Some(other) => other,
        };
        Some(Other { vmid, name: vm.name.clone(), host: vm.host.to_string(), whose, why })
    };
    seen.filter(|(vmid, _)| elsewhere(*vmid)).filter_map(other).collect()
}

/// Returns a status as a tree.
pub fn text(status: &Status, width: Option<u16>) -> String {
    let columns = width.map_or(usize::MAX, usize::from);
    let rows = rows(status, columns);
    let mut lines = head(status);
    for role in Role::ALL {
        let of_role: Vec<&Row> = rows.iter().filter(|row| row.role == role).collect();
        if !of_role.is_empty() {
            lines.push(format!("  {}", text::bold(role.word())));
            lines.extend(of_role.iter().flat_map(|row| row.lines.clone()));
        }
    }
    if !status.others.is_empty() {
        lines.push(format!("  {}", text::bold("other VMs")));
        lines.extend(status.others.iter().map(|other| {
            let name = if other.name.is_empty() { String::new() } else { format!(" `{}`", other.name) };
            let line = format!("    VM {}{name} on {}: {}", other.vmid, other.host, other.why);
            text::safe_line(&line)
        }));
    }
    if status.differences > 0 {
        lines.push(format!("  {}", text::warn(&left(status.differences))));
    }
    lines.join("\n") + "\n"
}

fn head(status: &Status) -> Vec<String> {
    let Status { cluster, endpoint, endpoint_kind, talos, kubernetes, etcd, nodes, .. } = status;
    let some = |number: Option<usize>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
    let mut lines = vec![
        format!(
            "{} {} ({endpoint_kind})",
            text::bold(&format!("cluster {cluster}")),
            text::safe_line(endpoint)
        ),
        format!(
            "  Talos {talos}, Kubernetes {kubernetes}, etcd {}/{}, nodes {}/{} ready",
            some(etcd.voters),
            etcd.wanted,
            some(nodes.ready),
            nodes.wanted
        ),
    ];
    let reasons = [("etcd", &etcd.why), ("nodes", &nodes.why)];
    lines.extend(
        reasons
            .iter()
            .filter_map(|(what, why)| Some(format!("  ? {what}: {}", text::safe_line(why.as_ref()?)))),
    );
    for (what, names) in [("member of etcd", &etcd.strangers), ("node", &nodes.strangers)] {
        if !names.is_empty() {
            let named = text::safe_line(&text::list_some(names, text::MAX_NAMES));
            lines.push(format!("  {}: {named}: no machine of the inventory", text::warn(what)));
        }
    }
    lines
}

/// A machine's line, and below it why something is not as it should be.
struct Row {
    role: Role,
    lines: Vec<String>,
}

/// A word in a column, and how it is to be seen.
struct Cell {
    words: String,
    tone: Tone,
}

#[derive(Clone, Copy)]
enum Tone {
    Good,
    Bad,
    Doubtful,
    Plain,
}

impl Cell {
    fn new(words: impl Into<String>, tone: Tone) -> Self {
        Self { words: text::safe_line(&words.into()), tone }
    }

    fn painted(&self, columns: usize) -> String {
        let padded = text::pad(&self.words, columns);
        match self.tone {
            Tone::Good => text::good(&padded),
            Tone::Bad => text::bad(&padded),
            Tone::Doubtful => text::warn(&padded),
            Tone::Plain => padded,
        }
    }
}

/// Draws the machines. Where there is no room for all, releases that are as wanted are left out; where there is
/// still none, each machine has two lines.
fn rows(status: &Status, columns: usize) -> Vec<Row> {
    let draw = |full| -> Vec<[Cell; 5]> {
        status.machines.iter().map(|machine| cells(machine, status, full)).collect()
    };
    let fits =
        |cells: &[[Cell; 5]]| widths(cells).iter().map(|width| width + GAP).sum::<usize>() + 2 <= columns;
    let cells = Some(draw(true)).filter(|full| fits(full)).unwrap_or_else(|| draw(false));
    let (widths, broken) = (widths(&cells), !fits(&cells));
    let row = |(machine, cells): (&MachineStatus, &[Cell; 5])| {
        let mut lines = if broken {
            let second = Cell::new("", Tone::Plain);
            let second = [&second, &cells[3], &cells[4]];
            vec![line(&cells.each_ref()[..3], &widths), line(&second, &[widths[0], widths[3], widths[4]])]
        } else {
            vec![line(&cells.each_ref(), &widths)]
        };
        lines.extend(doubts(machine).into_iter().map(|doubt| format!("      {doubt}")));
        Row { role: machine.role, lines }
    };
    status.machines.iter().zip(&cells).map(row).collect()
}

/// Puts cells beside each other; after the last that says something comes nothing.
fn line(cells: &[&Cell], widths: &[usize]) -> String {
    let last = cells.iter().rposition(|cell| !cell.words.is_empty()).unwrap_or(0);
    let mut line = "  ".to_owned();
    for (place, (cell, width)) in cells.iter().zip(widths).enumerate().take(last + 1) {
        let width = if place == last { cell.words.chars().count() } else { *width };
        line += &format!("{}{}", " ".repeat(GAP), cell.painted(width));
    }
    line
}

fn widths(rows: &[[Cell; 5]]) -> [usize; 5] {
    let mut widths = [0; 5];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.words.chars().count());
        }
    }
    widths
}

fn cells(machine: &MachineStatus, status: &Status, full: bool) -> [Cell; 5] {
    [
        Cell::new(&machine.name, Tone::Plain),
        vm_cell(&machine.vm),
        talos_cell(&machine.talos, &status.talos, full),
        etcd_cell(machine.etcd.as_ref()),
        node_cell(&machine.node, &status.kubernetes, full),
    ]
}

fn vm_cell(vm: &VmPart) -> Cell {
    let host = vm.host.as_ref().map(|host| format!(" {host}")).unwrap_or_default();
    let (word, tone) = match vm.part.state {
        "running" => ("running", Tone::Good),
        UNKNOWN => ("?", Tone::Doubtful),
        "not-ours" => ("not ours", Tone::Bad),
        word => (word, Tone::Bad),
    };
    Cell::new(format!("VM {}{host} {word}", vm.id), tone)
}

fn talos_cell(talos: &TalosPart, wanted: &str, full: bool) -> Cell {
    let Some(stage) = &talos.stage else {
        return match talos.part.state {
            UNKNOWN => Cell::new("Talos ?", Tone::Doubtful),
            word => Cell::new(format!("Talos {word}"), Tone::Bad),
        };
    };
    let version = version(talos.version.as_deref(), wanted, full);
    let ready = talos.ready == Some(true);
    let tone = if ready && stage == "running" { Tone::Good } else { Tone::Bad };
    Cell::new(format!("Talos{version} {stage}{}", if ready { "" } else { ", not ready" }), tone)
}

fn etcd_cell(etcd: Option<&Part>) -> Cell {
    match etcd.map(|part| part.state) {
        None => Cell::new("", Tone::Plain),
        Some("member") => Cell::new("etcd member", Tone::Good),
        Some("learner") => Cell::new("etcd learner", Tone::Doubtful),
        Some(UNKNOWN) => Cell::new("etcd ?", Tone::Doubtful),
        Some(_) => Cell::new("etcd -", Tone::Bad),
    }
}

fn node_cell(node: &NodePart, wanted: &str, full: bool) -> Cell {
    let version = version(node.version.as_deref(), wanted, full);
    let cordoned = if node.schedulable == Some(false) { ", cordoned" } else { "" };
    match node.part.state {
        "ready" => Cell::new(format!("node Ready{version}{cordoned}"), Tone::Good),
        "not-ready" => Cell::new(format!("node NotReady{version}{cordoned}"), Tone::Bad),
        UNKNOWN => Cell::new("node ?", Tone::Doubtful),
        _ => Cell::new("node -", Tone::Bad),
    }
}

fn version(is: Option<&str>, wanted: &str, full: bool) -> String {
    match is {
        Some(is) if full || is != wanted => format!(" {is}"),
        _ => String::new(),
    }
}

/// Says why parts of a machine are unknown or ill.
fn doubts(machine: &MachineStatus) -> Vec<String> {
    let parts = [("VM", &machine.vm.part), ("Talos", &machine.talos.part), ("node", &machine.node.part)];
    let known = parts.iter().filter_map(|(what, part)| Some((what, part.state, part.why.as_ref()?)));
    known
        .map(|(what, state, why)| {
            let mark = if state == UNKNOWN { "? " } else { "" };
            format!("{mark}{what}: {}", text::safe_line(why))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::{document, fixture};

    fn shown(observed: &Observed, width: Option<u16>) -> String {
        let shown = text(&Status::new(&fixture::live(), observed), width);
        anstream::adapter::strip_str(&shown).to_string()
    }

    #[test]
    fn a_cluster_that_is_well_is_a_tree() {
        let observed = fixture::well(&fixture::live());
        insta::assert_snapshot!(shown(&observed, Some(80)), @r"
        cluster homelab https://10.0.0.20:6443 (Talos VIP)
          Talos v1.13.9, Kubernetes v1.36.3, etcd 3/3, nodes 5/5 ready
          control-plane
            cp-1      VM 2000 pve1 running  Talos running  etcd member  node Ready
            cp-2      VM 2001 pve2 running  Talos running  etcd member  node Ready
            cp-3      VM 2002 pve3 running  Talos running  etcd member  node Ready
          worker
            worker-1  VM 3000 pve1 running  Talos running               node Ready
            worker-2  VM 3001 pve2 running  Talos running               node Ready
        ");
        insta::assert_snapshot!(shown(&observed, Some(140)), @r"
        cluster homelab https://10.0.0.20:6443 (Talos VIP)
          Talos v1.13.9, Kubernetes v1.36.3, etcd 3/3, nodes 5/5 ready
          control-plane
            cp-1      VM 2000 pve1 running  Talos v1.13.9 running  etcd member  node Ready v1.36.3
            cp-2      VM 2001 pve2 running  Talos v1.13.9 running  etcd member  node Ready v1.36.3
            cp-3      VM 2002 pve3 running  Talos v1.13.9 running  etcd member  node Ready v1.36.3
          worker
            worker-1  VM 3000 pve1 running  Talos v1.13.9 running               node Ready v1.36.3
            worker-2  VM 3001 pve2 running  Talos v1.13.9 running               node Ready v1.36.3
        ");
        assert!(shown(&observed, Some(80)).lines().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn what_is_ill_or_unknown_says_why() {
        let narrow = shown(&fixture::ill(&fixture::live()), Some(80));
        let prose = |line: &str| line.starts_with("    VM ");
        assert!(narrow.lines().all(|line| prose(line) || line.chars().count() <= 80), "{narrow}");
        insta::assert_snapshot!(narrow, @r"
        cluster homelab https://10.0.0.20:6443 (Talos VIP)
          Talos v1.13.9, Kubernetes v1.36.3, etcd 2/3, nodes 1/5 ready
          member of etcd: old-1: no machine of the inventory
          control-plane
            cp-1      VM 2000 pve1 running   Talos running
                      etcd member   node Ready, cordoned
            cp-2      VM 2001 pve2 off       Talos silent
                      etcd -        node NotReady
              Talos: no route to 10.0.0.12
              node: Kubelet stopped posting node status.
            cp-3      VM 2002 pve3 running   Talos v1.12.0 booting, not ready
                      etcd learner  node -
              Talos: it waits for time: not in sync and network
          worker
            worker-1  VM 3000 pve1 not ours  Talos ?
                                    node -
              VM: it is not ours: it has another uuid
              ? Talos: its address is not known
            worker-2  VM 3001 pve2 running   Talos maintenance
                                    node -
          other VMs
            VM 3009 `worker-9` on pve2: it is machine `worker-9`, which the inventory has no more
          2 differences to the inventory are left as they are
        ");
        insta::assert_snapshot!(shown(&fixture::ill(&fixture::live()), Some(120)), @r"
        cluster homelab https://10.0.0.20:6443 (Talos VIP)
          Talos v1.13.9, Kubernetes v1.36.3, etcd 2/3, nodes 1/5 ready
          member of etcd: old-1: no machine of the inventory
          control-plane
            cp-1      VM 2000 pve1 running   Talos v1.13.9 running             etcd member   node Ready v1.36.3, cordoned
            cp-2      VM 2001 pve2 off       Talos silent                      etcd -        node NotReady v1.36.3
              Talos: no route to 10.0.0.12
              node: Kubelet stopped posting node status.
            cp-3      VM 2002 pve3 running   Talos v1.12.0 booting, not ready  etcd learner  node -
              Talos: it waits for time: not in sync and network
          worker
            worker-1  VM 3000 pve1 not ours  Talos ?                                         node -
              VM: it is not ours: it has another uuid
              ? Talos: its address is not known
            worker-2  VM 3001 pve2 running   Talos maintenance                               node -
          other VMs
            VM 3009 `worker-9` on pve2: it is machine `worker-9`, which the inventory has no more
          2 differences to the inventory are left as they are
        ");
    }

    #[test]
    fn a_machine_that_left_the_inventory_is_shown() {
        let mut desired = fixture::live();
        let observed = fixture::well(&desired);
        desired.machines.pop();
        let shown = text(&Status::new(&desired, &observed), Some(80));
        let shown = anstream::adapter::strip_str(&shown).to_string();
        assert!(shown.contains("VM 3001 `worker-2` on pve2: the inventory has no such machine\n"), "{shown}");
        assert!(shown.ends_with("  1 difference to the inventory is left as it is\n"), "{shown}");
    }

    #[test]
    fn nothing_that_was_not_seen_looks_well() {
        insta::assert_snapshot!(shown(&Observed::default(), Some(80)), @r"
        cluster homelab https://10.0.0.20:6443 (Talos VIP)
          Talos v1.13.9, Kubernetes v1.36.3, etcd ?/3, nodes ?/5 ready
          ? etcd: nobody looked
          ? nodes: nobody looked
          control-plane
            cp-1      VM 2000 ?  Talos ?  etcd ?  node ?
              ? VM: nobody looked
              ? Talos: nobody looked
            cp-2      VM 2001 ?  Talos ?  etcd ?  node ?
              ? VM: nobody looked
              ? Talos: nobody looked
            cp-3      VM 2002 ?  Talos ?  etcd ?  node ?
              ? VM: nobody looked
              ? Talos: nobody looked
          worker
            worker-1  VM 3000 ?  Talos ?          node ?
              ? VM: nobody looked
              ? Talos: nobody looked
            worker-2  VM 3001 ?  Talos ?          node ?
              ? VM: nobody looked
              ? Talos: nobody looked
        ");
    }

    #[test]
    fn programs_get_the_same_with_keys() {
        let desired = fixture::live();
        let mut value = Status::new(&desired, &fixture::ill(&desired)).document();
        value["machines"].as_array_mut().expect("a list").truncate(1);
        insta::assert_snapshot!(document::json(&value), @r#"
        {
          "schema": 1,
          "cluster": "homelab",
          "endpoint": "https://10.0.0.20:6443",
          "endpoint_kind": "Talos VIP",
          "talos": "v1.13.9",
          "kubernetes": "v1.36.3",
          "etcd": {
            "voters": 2,
            "wanted": 3,
            "quorum": 2,
            "why": null,
            "strangers": [
              "old-1"
            ]
          },
          "nodes": {
            "ready": 1,
            "wanted": 5,
            "why": null,
            "strangers": []
          },
          "machines": [
            {
              "name": "cp-1",
              "role": "control-plane",
              "vm": {
                "id": 2000,
                "host": "pve1",
                "state": "running",
                "why": null
              },
              "talos": {
                "version": "v1.13.9",
                "stage": "running",
                "ready": true,
                "address": null,
                "state": "answers",
                "why": null
              },
              "etcd": {
                "state": "member",
                "why": null
              },
              "node": {
                "version": "v1.36.3",
                "schedulable": false,
                "state": "ready",
                "why": null
              }
            }
          ],
          "others": [
            {
              "vmid": 3009,
              "name": "worker-9",
              "host": "pve2",
              "whose": "this-cluster",
              "why": "it is machine `worker-9`, which the inventory has no more"
            }
          ],
          "differences": 2
        }
        "#);
    }
}
