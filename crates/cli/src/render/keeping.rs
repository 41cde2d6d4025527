//! Locks and audit trails, for people and for programs.

use ichor_store::{
    audit::{Break, Entry, Trail},
    lock::Holder,
};
use serde_json::{Value, json};

use super::{table::Table, text};

/// Whoever holds a lock.
#[derive(Debug, Clone, Copy)]
pub struct Seat<'a> {
    /// Who it is.
    pub holder: &'a Holder,
    /// Whether their process is known not to run any more.
    pub is_gone: bool,
}

/// Says who holds a lock.
pub fn holder_text(seat: Option<Seat<'_>>) -> String {
    let Some(Seat { holder, is_gone }) = seat else { return "nobody is at work on the cluster\n".into() };
    let (who, verb) = (text::safe_line(&holder.who), text::safe_line(&holder.verb));
    let (since, run) = (text::safe_line(&holder.since), text::safe_line(&holder.run));
    let process = holder.process.id;
    if is_gone {
        return format!(
            "{who} did not finish `ichor {verb}`, which began at {since}\n\
             its process {process} is gone, its run was {run}; the next run on this machine takes the lock over\n"
        );
    }
    format!(
        "{who} is at work on the cluster, with `ichor {verb}`, since {since}\n\
         its process is {process}, its run {run}\n"
    )
}

/// Says whose lock was taken away.
pub fn broken_text(seat: Option<Seat<'_>>) -> String {
    match seat {
        None => "the lock is free\n".into(),
        Some(seat) => {
            format!("{} the lock of {}\n", text::good("took away"), text::safe_line(&seat.holder.who))
        }
    }
}

/// Returns who holds a lock, for programs.
pub fn holder_value(cluster: &str, seat: Option<Seat<'_>>) -> Value {
    let holder = seat.map(|Seat { holder, is_gone }| {
        json!({
            "who": holder.who, "verb": holder.verb, "run": holder.run, "since": holder.since,
            "process": holder.process.id, "gone": is_gone,
        })
    });
    json!({ "cluster": cluster, "holder": holder })
}

/// Shows entries, of which so many older ones are left out.
pub fn entries_text(trail: &Trail, older: usize, width: Option<u16>) -> String {
    if trail.entries.is_empty() {
        return "nothing was done to the cluster yet\n".into();
    }
    let mut table = Table::new(["NO", "AT", "WHO", "VERB", "OUTCOME", "STEPS"]).numbers([0]);
    for entry in &trail.entries {
        let cells = [
            entry.number.to_string(),
            entry.deed.at.clone(),
            entry.deed.who.clone(),
            entry.deed.verb.clone(),
            entry.deed.outcome.clone(),
            counts(entry),
        ];
        table.row(cells);
    }
    let more = match older {
        0 => String::new(),
        older => format!("{older} older ones are not shown; `--last NUMBER` shows more\n"),
    };
    format!("{}{more}", table.render(width))
}

fn counts(entry: &Entry) -> String {
    let counts = entry.deed.counts.iter().map(|(outcome, count)| format!("{count} {outcome}"));
    counts.collect::<Vec<_>>().join(", ")
}

/// Returns entries for programs.
pub fn entries_value(cluster: &str, trail: &Trail) -> Value {
    json!({ "cluster": cluster, "entries": trail.entries })
}

/// Says that a trail is whole.
pub fn whole_text(trail: &Trail) -> String {
    match &trail.end {
        None => format!("{} there are no entries yet\n", text::good("whole:")),
        Some(end) => {
            format!(
                "{} {}, the last with SHA-256 {}\n",
                text::good("whole:"),
                if end.number == 1 { "1 entry".to_owned() } else { format!("{} entries", end.number) },
                end.sha256
            )
        }
    }
}

/// Returns that a trail is whole, for programs.
pub fn whole_value(cluster: &str, trail: &Trail) -> Value {
    json!({ "cluster": cluster, "whole": true, "entries": trail.entries.len(), "end": trail.end })
}

/// Says what was accepted.
pub fn accepted_text(broken: Option<&Break>) -> String {
    match broken {
        None => "the trail leads to where it ended: there is nothing to accept\n".into(),
        Some(broken) => format!("{} {}\n", text::good("accepted:"), broken.why),
    }
}

/// Returns what was accepted, for programs.
pub fn accepted_value(cluster: &str, broken: Option<&Break>) -> Value {
    json!({ "cluster": cluster, "accepted": broken.map(|broken| &broken.why) })
}
