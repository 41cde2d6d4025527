//! A status as a tree of lines.

use ichor_model::desired::Role;

use super::{Etcd, MachineStatus, NodePart, Part, Status, TalosPart, UNKNOWN, VmPart};
use crate::render::{steps::left, text};

/// Space between columns.
const GAP: usize = 2;

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
            some(etcd.answering),
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
    lines.extend(voices(etcd));
    let foreign = "no machine of the inventory";
    for (what, names, why) in [
        ("stale member of etcd", &etcd.stale, "its machine is gone, and its vote still counts"),
        ("member of etcd", &etcd.strangers, foreign),
        ("node", &nodes.strangers, foreign),
    ] {
        if !names.is_empty() {
            let named = text::safe_line(&text::list_some(names, text::MAX_NAMES));
            lines.push(format!("  {}: {named}: {why}", text::warn(what)));
        }
    }
    lines
}

/// Says who votes in etcd, unless two numbers have said it.
fn voices(etcd: &Etcd) -> Option<String> {
    let (voters, answering) = (etcd.voters?, etcd.answering?);
    if (answering, voters) == (etcd.wanted, etcd.wanted) {
        return None;
    }
    let quorum = if answering < etcd.quorum { text::bad("no quorum") } else { "it has its quorum".into() };
    Some(format!("  etcd: {answering} of {voters} voters answer, {} are needed: {quorum}", etcd.quorum))
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
        Some(word @ ("silent" | "stale")) => Cell::new(format!("etcd {word}"), Tone::Bad),
        Some(UNKNOWN) => Cell::new("etcd ?", Tone::Doubtful),
        Some(_) => Cell::new("etcd -", Tone::Bad),
    }
}

fn node_cell(node: &NodePart, wanted: &str, full: bool) -> Cell {
    let version = version(node.version.as_deref(), wanted, full);
    let cordoned = if node.schedulable == Some(false) { ", cordoned" } else { "" };
    match node.part.state {
        "ready" => Cell::new(format!("node Ready{version}{cordoned}"), Tone::Good),
        "stale" => Cell::new(format!("node stale{version}{cordoned}"), Tone::Bad),
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
