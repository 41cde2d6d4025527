//! Checks of a cluster, with what to do about those that failed.

use ichor_model::Desired;
use ichor_ops::health::{Check, State};
use serde_json::{Value, json};

use super::text;
use crate::exit::Exit;

/// The number of the document's language.
const SCHEMA: u32 = 1;

/// Says how the program ends: what is unknown is not well.
pub fn exit(checks: &[Check]) -> Exit {
    if checks.iter().all(|check| check.state == State::Ok) { Exit::Done } else { Exit::Failed }
}

/// Returns checks as text.
pub fn text(desired: &Desired, checks: &[Check], width: Option<u16>) -> String {
    let ids = checks.iter().map(|check| check.id.len()).max().unwrap_or(0);
    let mut shown: String = checks.iter().map(|check| entry(check, ids, width)).collect();
    shown += &format!("\n{}\n", verdict(desired, checks));
    shown
}

fn entry(check: &Check, ids: usize, width: Option<u16>) -> String {
    let state = match check.state {
        State::Ok => text::good("ok     "),
        State::Failed => text::bad("failed "),
        State::Unknown => text::warn("unknown"),
    };
    let mut lines = vec![format!("{state}  {:<ids$}  {}", check.id, check.title)];
    let margin = " ".repeat(9);
    let columns = width.map_or(usize::MAX, |width| usize::from(width).saturating_sub(margin.len()).max(20));
    if let Some(why) = &check.why {
        lines
            .extend(text::wrap(&text::safe_line(why), columns).lines().map(|line| format!("{margin}{line}")));
    }
    if let Some(remedy) = &check.remedy {
        let mut remedy = remedy.lines();
        let first = text::wrap(remedy.next().unwrap_or_default(), columns.saturating_sub(6).max(20));
        let mut head = first.lines();
        lines.push(format!("{margin}{}: {}", text::hint("hint"), head.next().unwrap_or_default()));
        lines.extend(head.map(|line| format!("{margin}  {line}")));
        lines.extend(remedy.map(|command| format!("{margin}{command}")));
    }
    lines.join("\n") + "\n"
}

fn verdict(desired: &Desired, checks: &[Check]) -> String {
    let of = |state| checks.iter().filter(|check| check.state == state).count();
    let (failed, unknown) = (of(State::Failed), of(State::Unknown));
    let name = &desired.cluster.name;
    let all = text::count(checks.len(), "check");
    match (failed, unknown) {
        (0, 0) => format!("{}: cluster `{name}` is healthy: {all} passed", text::good("ok")),
        (0, unknown) => {
            format!("{}: cluster `{name}`: {unknown} of {all} could not be made", text::warn("unknown"))
        }
        (failed, 0) => format!("{}: cluster `{name}`: {failed} of {all} failed", text::bad("failed")),
        (failed, unknown) => {
            format!("{}: cluster `{name}`: {failed} of {all} failed, {unknown} unknown", text::bad("failed"))
        }
    }
}

/// Returns checks for programs.
pub fn document(desired: &Desired, checks: &[Check]) -> Value {
    json!({
        "schema": SCHEMA,
        "cluster": desired.cluster.name,
        "healthy": exit(checks) == Exit::Done,
        "checks": checks,
    })
}

#[cfg(test)]
mod tests {
    use ichor_ops::health::checks;

    use super::*;
    use crate::render::{document as documents, fixture};

    fn shown(checks: &[Check], width: u16) -> String {
        let shown = text(&fixture::live(), checks, Some(width));
        anstream::adapter::strip_str(&shown).to_string()
    }

    #[test]
    fn a_cluster_that_is_well_is_a_list_of_ok() {
        let desired = fixture::live();
        let checks = checks(&desired, &fixture::well(&desired));
        assert_eq!(exit(&checks), Exit::Done);
        insta::assert_snapshot!(shown(&checks, 80), @r"
        ok       vm-there           every machine has its VM
        ok       vm-ours            every VM is ours
        ok       vm-running         every VM runs
        ok       vm-host-online     every VM is on a host that is online
        ok       talos-reachable    Talos answers on every machine, in this cluster
        ok       talos-running      every machine has finished booting
        ok       talos-ready        every machine says that it is ready
        ok       talos-version      every machine runs the Talos of the inventory
        ok       time-in-sync       the clocks of all machines are in sync
        ok       etcd-members       every control plane is a member of etcd
        ok       etcd-voters        every member of etcd votes
        ok       etcd-consistent    etcd has no members beside the control planes
        ok       etcd-quorum        enough control planes vote and answer
        ok       nodes-registered   every machine is a node
        ok       nodes-ready        every node is ready
        ok       kubelet-version    every kubelet is of the inventory's release
        ok       nodes-schedulable  no node is cordoned

        ok: cluster `homelab` is healthy: 17 checks passed
        ");
    }

    #[test]
    fn what_failed_has_a_reason_and_a_remedy() {
        let desired = fixture::live();
        let checks = checks(&desired, &fixture::ill(&desired));
        assert_eq!(exit(&checks), Exit::Failed);
        insta::assert_snapshot!(shown(&checks, 80), @r"
        ok       vm-there           every machine has its VM
        failed   vm-ours            every VM is ours
                 worker-1: VM 3000 is not ours: it has another uuid
                 hint: see whose it is, and give the machine another `vmid`:
                     ichor status
        failed   vm-running         every VM runs
                 cp-2: VM 2001 is off
                 hint: see what is missing, then make it so:
                     ichor plan
                     ichor up
        ok       vm-host-online     every VM is on a host that is online
        failed   talos-reachable    Talos answers on every machine, in this cluster
                 cp-2: no route to 10.0.0.12; worker-2: it waits for its machine config
                 hint: see what is missing, then make it so:
                     ichor plan
                     ichor up
        failed   talos-running      every machine has finished booting
                 cp-3: it is in stage `booting`
                 hint: wait and watch it; if it stays, read what the machine says:
                     ichor status --watch
        failed   talos-ready        every machine says that it is ready
                 cp-3: it waits for time: not in sync, network
                 hint: wait and watch it; if it stays, read what the machine says:
                     ichor status --watch
        failed   talos-version      every machine runs the Talos of the inventory
                 cp-3: it runs v1.12.0, not v1.13.9
                 hint: upgrade the machine, or write into the inventory what runs; the
                   installer to upgrade to is in:
                     ichor image id -o json
        failed   time-in-sync       the clocks of all machines are in sync
                 cp-3: time: not in sync
                 hint: see which time servers it asks, and whether it reaches them:
                     talosctl -n ADDRESS get timeservers
        failed   etcd-members       every control plane is a member of etcd
                 cp-2: it is no member
                 hint: see what is missing, then make it so:
                     ichor plan
                     ichor up
        failed   etcd-voters        every member of etcd votes
                 cp-3: it is a learner
                 hint: a learner votes once it has caught up; watch it:
                     ichor status --watch
        failed   etcd-consistent    etcd has no members beside the control planes
                 there is old-1 (abc)
                 hint: a member that is gone for good is removed by its id:
                     talosctl etcd remove-member ID
        failed   etcd-quorum        enough control planes vote and answer
                 1 of 2 voters answer, and 2 are needed
                 hint: bring control planes back before anything else; whatever stops
                   another one stops the cluster:
                     ichor status
        failed   nodes-registered   every machine is a node
                 cp-3, worker-1, worker-2: it has not registered
                 hint: see what is missing, then make it so:
                     ichor plan
                     ichor up
        failed   nodes-ready        every node is ready
                 cp-2: Kubelet stopped posting node status.
                 hint: read why:
                     kubectl describe node NAME
        ok       kubelet-version    every kubelet is of the inventory's release
        failed   nodes-schedulable  no node is cordoned
                 cp-1: it is cordoned
                 hint: let pods onto it again:
                     kubectl uncordon NAME

        failed: cluster `homelab`: 14 of 17 checks failed
        ");
        let one = &checks[2..3];
        insta::assert_snapshot!(documents::json(&document(&desired, one)), @r#"
        {
          "schema": 1,
          "cluster": "homelab",
          "healthy": false,
          "checks": [
            {
              "id": "vm-running",
              "title": "every VM runs",
              "state": "failed",
              "why": "cp-2: VM 2001 is off",
              "remedy": "see what is missing, then make it so:\n    ichor plan\n    ichor up"
            }
          ]
        }
        "#);
    }

    #[test]
    fn what_is_unknown_is_not_well() {
        let desired = fixture::live();
        let checks = checks(&desired, &ichor_model::Observed::default());
        assert_eq!(exit(&checks), Exit::Failed);
        assert!(
            shown(&checks, 80).ends_with("unknown: cluster `homelab`: 17 of 17 checks could not be made\n")
        );
    }
}
