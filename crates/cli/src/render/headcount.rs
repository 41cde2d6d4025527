//! How many machines a cluster has, and on how many hosts.

use std::collections::BTreeSet;

use ichor_model::{Desired, desired::Role};

use super::text;

/// Says in one line that a cluster is well.
pub fn ok_line(desired: &Desired) -> String {
    let endpoint = &desired.cluster.endpoint;
    format!(
        "{}: cluster `{}`: {}; endpoint {} ({})\n",
        text::good("ok"),
        desired.cluster.name,
        headcount(desired),
        text::safe_line(&endpoint.url()),
        endpoint.kind,
    )
}

/// Counts machines and hosts: `3 control planes, 2 workers on 3 hosts`.
pub fn headcount(desired: &Desired) -> String {
    let control_planes = desired.of_role(Role::ControlPlane).count();
    let workers = desired.of_role(Role::Worker).count();
    let mut machines = text::count(control_planes, "control plane");
    if workers > 0 {
        machines = format!("{machines}, {}", text::count(workers, "worker"));
    }
    let hosts: BTreeSet<_> = desired.machines.iter().filter_map(|machine| machine.host.known()).collect();
    match hosts.len() {
        0 => format!("{machines} on hosts chosen live"),
        hosts => format!("{machines} on {}", text::count(hosts, "host")),
    }
}

#[cfg(test)]
mod tests {
    use ichor_model::desired::{Late, Source};

    use super::*;
    use crate::render::fixture;

    #[test]
    fn a_cluster_is_summed_up_in_one_line() {
        let line = anstream::adapter::strip_str(&ok_line(&fixture::homelab())).to_string();
        insta::assert_snapshot!(line, @"ok: cluster `homelab`: 3 control planes, 2 workers on 3 hosts; endpoint https://10.0.0.20:6443 (Talos VIP)");
    }

    #[test]
    fn hosts_that_nobody_knows_yet_are_not_counted() {
        let mut desired = fixture::homelab();
        desired.machines.truncate(1);
        assert_eq!(headcount(&desired), "1 control plane on 1 host");
        desired.machines[0].host = Late::From(Source::LiveHosts);
        assert_eq!(headcount(&desired), "1 control plane on hosts chosen live");
    }
}
