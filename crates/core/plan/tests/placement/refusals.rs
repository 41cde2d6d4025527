use ichor_model::desired::Arch;
use ichor_plan::placement::{Host, Lack, Refusal, Request, Strategy, place};

use crate::build::*;

/// Shows a refusal as the machine and what each host lacks.
fn told(refusal: &Refusal) -> String {
    let hosts: Vec<_> = refusal.hosts().iter().map(|(host, lack)| format!("{host} {lack}")).collect();
    format!("{refusal}: {}", hosts.join("; "))
}

#[test]
fn a_refusal_says_how_much_each_host_is_short() {
    let hosts = [
        Host { capacity: Some(resources(4, 64)), ..host("pve1", 0) },
        Host { capacity: Some(resources(16, 8)), ..host("pve2", 0) },
        Host { capacity: Some(resources(2, 2)), ..host("pve10", 0) },
    ];
    let refusals = refused(&hosts, &[Request { needs: resources(8, 16), ..worker("w-1", 0) }]);
    assert_eq!(
        told(&refusals[0]),
        "`w-1` fits on no host: pve1 is short by 4 vCPU; pve2 is short by 8GiB of memory; \
         pve10 is short by 6 vCPU and 14GiB of memory"
    );
}

#[test]
fn a_shortage_counts_what_other_machines_take() {
    let refusals = refused(&[host("pve1", 8)], &workers(3, 4));
    let lack = Lack::Room { free: resources(0, 0), short: resources(4, 4) };
    assert_eq!(refusals[0].machine(), &machine_name("w-3"));
    assert_eq!(refusals[0].hosts(), [(host_name("pve1"), lack)]);
}

#[test]
fn an_over_full_host_is_short_by_its_excess_too() {
    let requests = [worker("w-1", 12).staying_on("pve1"), worker("w-2", 2)];
    let lack = Lack::Room { free: resources(0, 0), short: resources(6, 6) };
    assert_eq!(refused(&[host("pve1", 8)], &requests)[0].hosts(), [(host_name("pve1"), lack)]);
}

#[test]
fn a_refusal_names_every_kind_of_lack() {
    let hosts = [
        Host { arch: Arch::Arm64, ..host_in("a", "pve1", 8) },
        host_in("b", "pve2", 8),
        host("pve3", 8),
        host_in("a", "pve4", 1),
        host_in("a", "pve5", 8),
    ];
    let request = Request { zone: Some("a".into()), ..worker("w-1", 2) };
    let refusals = refused(&hosts, &[request.limited_to(&["pve1", "pve2", "pve3", "pve4", "pve9"])]);
    assert_eq!(
        told(&refusals[0]),
        "`w-1` fits on no host: pve1 is arm64; pve2 is in zone `b`; pve3 is in no zone; \
         pve4 is short by 1 vCPU and 1GiB of memory; pve5 is not among the hosts it may use; \
         pve9 is not available"
    );
}

#[test]
fn a_pinned_machine_is_refused_where_its_host_is_full() {
    let hosts = [host("pve1", 2), host("pve2", 8)];
    assert_eq!(
        told(&refused(&hosts, &[worker("w-1", 4).pinned_to("pve1")])[0]),
        "`w-1` fits on no host: pve1 is short by 2 vCPU and 2GiB of memory; \
         pve2 is not the host it is pinned to"
    );
}

#[test]
fn a_pin_to_a_host_that_is_not_listed_is_refused() {
    let requests = [worker("w-1", 4).pinned_to("old1"), worker("w-2", 4).staying_on("old1")];
    assert_eq!(
        told(&refused(&[host("pve1", 8)], &requests)[0]),
        "`w-1` fits on no host: old1 is not available; pve1 is not the host it is pinned to"
    );
}

#[test]
fn all_refusals_come_at_once_in_the_order_of_the_requests() {
    let requests =
        [worker("w-1", 64), worker("w-2", 2), control_plane("cp-1", 64), worker("w-3", 64).pinned_to("pve1")];
    let refusals = refused(&[host("pve1", 8)], &requests);
    let machines: Vec<_> = refusals.iter().map(|refusal| refusal.machine().as_str()).collect();
    assert_eq!(machines, ["w-1", "cp-1", "w-3"]);
}

#[test]
fn as_few_machines_as_possible_are_refused() {
    let mut requests = workers(5, 2);
    requests.push(worker("large", 10));
    let refusals = refused(&[host("pve1", 10)], &requests);
    let machines: Vec<_> = refusals.iter().map(|refusal| refusal.machine().as_str()).collect();
    assert_eq!(machines, ["large"]);
}

#[test]
fn workers_are_refused_before_control_planes_crowd_on_a_host() {
    // Room for all would take one host with three of the five: its loss would be the cluster's.
    let hosts = [host("pve1", 8), host("pve2", 8), host("pve3", 8)];
    let mut requests = control_planes(5, 1);
    requests[0].needs = resources(3, 3);
    requests[1].needs = resources(3, 3);
    requests.extend(workers(3, 5));
    let refusals = refused(&hosts, &requests);
    let machines: Vec<_> = refusals.iter().map(|refusal| refusal.machine().as_str()).collect();
    assert_eq!(machines, ["w-2", "w-3"]);
}

#[test]
fn workers_are_refused_before_control_planes_use_fewer_hosts() {
    let hosts = [host("pve1", 8), host("pve2", 8), host("pve3", 8)];
    let mut requests = control_planes(4, 4);
    requests.push(worker("w-1", 8));
    let refusals = refused(&hosts, &requests);
    assert_eq!((refusals.len(), refusals[0].machine()), (1, &machine_name("w-1")));
}

#[test]
fn no_hosts_refuse_everything() {
    let refusals = refused(&[], &workers(1, 1));
    assert_eq!((refusals.len(), refusals[0].hosts().len()), (1, 0));
}

#[test]
fn strategy_pin_refuses_what_nobody_pinned() {
    let requests =
        [worker("w-1", 2), worker("w-2", 2).pinned_to("pve1"), worker("w-3", 64).pinned_to("pve1")];
    let refusals = place(&[host("pve1", 8)], &requests, Strategy::Pin).expect_err("one is not pinned");
    let told: Vec<_> = refusals.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["strategy `pin` leaves `w-1` without a host", "`w-3` fits on no host"]);
}
