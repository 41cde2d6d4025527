use ichor_plan::placement::{Host, Loss, Request, Strategy, lose, place};

use crate::build::*;

fn losing(hosts: &[Host], requests: &[Request], lost: &str) -> Loss {
    let placement = place(hosts, requests, Strategy::Spread).expect("all machines fit");
    lose(hosts, requests, &placement, &host_name(lost))
}

fn replaced(loss: &Loss) -> Vec<String> {
    loss.replaced.iter().map(|seat| format!("{}@{}", seat.machine, seat.host)).collect()
}

#[test]
fn one_of_three_control_planes_can_be_lost() {
    let hosts = [host("pve1", 8), host("pve2", 8), host("pve3", 8)];
    let loss = losing(&hosts, &control_planes(3, 2), "pve2");
    assert_eq!((loss.quorum.total, loss.quorum.left, loss.quorum.needed), (3, 2, 2));
    assert!(loss.quorum.holds());
}

#[test]
fn two_of_three_control_planes_cannot() {
    let hosts = [host("pve1", 8), host("pve2", 8)];
    let loss = losing(&hosts, &control_planes(3, 2), "pve1");
    assert_eq!((loss.quorum.left, loss.quorum.needed, loss.quorum.holds()), (1, 2, false));
}

#[test]
fn half_of_the_control_planes_is_no_quorum() {
    let hosts = [host("pve1", 8), host("pve2", 8)];
    assert!(!losing(&hosts, &control_planes(2, 2), "pve1").quorum.holds());
}

#[test]
fn lost_machines_go_where_there_is_room() {
    let hosts = [host("pve1", 8), host("pve2", 6), host("pve3", 8)];
    let mut requests = control_planes(2, 2);
    requests.extend(workers(3, 2));
    let loss = losing(&hosts, &requests, "pve1");
    let machines: Vec<_> = loss.machines.iter().map(ToString::to_string).collect();
    assert_eq!(machines, ["cp-1", "w-1"]);
    assert_eq!(replaced(&loss), ["cp-1@pve3", "w-1@pve2"]);
    assert_eq!((loss.stranded.len(), loss.unplaced), (0, resources(0, 0)));
}

#[test]
fn the_usage_shows_the_hosts_that_remain() {
    let hosts = [host("pve1", 8), host("pve2", 8)];
    let loss = losing(&hosts, &workers(2, 2), "pve1");
    let usage: Vec<_> = loss.usage.iter().map(|host| (host.host.as_str(), host.used)).collect();
    assert_eq!(usage, [("pve2", resources(4, 4))]);
}

#[test]
fn what_finds_no_room_is_stranded_and_summed_up() {
    let hosts = [host("pve1", 8), host("pve2", 6)];
    let loss = losing(&hosts, &workers(6, 2), "pve1");
    assert_eq!(replaced(&loss), Vec::<String>::new());
    assert_eq!(loss.unplaced, resources(6, 6));
    let first = &loss.stranded[0];
    assert_eq!(
        format!("{first}: {} {}", first.hosts()[0].0, first.hosts()[0].1),
        "`w-1` fits on no host: pve2 is short by 2 vCPU and 2GiB of memory"
    );
}

#[test]
fn a_machine_pinned_to_the_lost_host_is_stranded() {
    let hosts = [host("pve1", 8), host("pve2", 8)];
    let loss = losing(&hosts, &[worker("w-1", 2).pinned_to("pve1")], "pve1");
    let lacks: Vec<_> =
        loss.stranded[0].hosts().iter().map(|(host, lack)| format!("{host} {lack}")).collect();
    assert_eq!(lacks, ["pve1 is not available", "pve2 is not the host it is pinned to"]);
}

#[test]
fn losing_a_host_without_machines_loses_nothing() {
    let hosts = [host("pve1", 8), host("pve2", 8)];
    let loss = losing(&hosts, &control_planes(1, 2), "pve2");
    assert!(loss.machines.is_empty() && loss.replaced.is_empty() && loss.stranded.is_empty());
    assert!(loss.quorum.holds());
}
