use ichor_plan::placement::{Host, Request, Strategy, place};

use crate::build::*;

/// Returns the reasons of all seats, one line each.
fn explained(hosts: &[Host], requests: &[Request], strategy: Strategy) -> String {
    let placement = place(hosts, requests, strategy).expect("all machines fit");
    let lines: Vec<_> = placement.seats.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

#[test]
fn what_is_settled_says_so() {
    let hosts = [host("pve1", 8), host("pve2", 8)];
    let requests = [worker("w-1", 2).staying_on("pve2"), worker("w-2", 2).pinned_to("pve1")];
    assert_eq!(
        explained(&hosts, &requests, Strategy::Spread),
        "`w-1` on `pve2`: already there\n\
         `w-2` on `pve1`: pinned by the inventory"
    );
}

#[test]
fn spread_explains_itself() {
    let hosts = [host("pve1", 8), host("pve2", 8), host("pve3", 6)];
    let mut requests = control_planes(4, 2);
    requests.extend(workers(7, 2));
    insta::assert_snapshot!(explained(&hosts, &requests, Strategy::Spread), @r"
    `cp-1` on `pve1`: control planes go to distinct hosts; `pve1`, `pve2`, `pve3` had none yet and `pve1` comes first
    `cp-2` on `pve2`: control planes go to distinct hosts; `pve2`, `pve3` had none yet and `pve2` comes first
    `cp-3` on `pve3`: control planes go to distinct hosts; of those it may use only `pve3` has room and had none yet
    `cp-4` on `pve1`: every host with room for it has a control plane already; none has fewer than 1, and this one comes first by name among equals
    `w-1` on `pve1`: slot 0: no host with room has fewer workers, and this one comes first by name among equals
    `w-2` on `pve2`: slot 0: no host with room has fewer workers, and this one comes first by name among equals
    `w-3` on `pve3`: slot 0: every other host with room has more workers
    `w-4` on `pve1`: slot 1: no host with room has fewer workers, and this one comes first by name among equals
    `w-5` on `pve2`: slot 1: no host with room has fewer workers, and this one comes first by name among equals
    `w-6` on `pve3`: slot 1: every other host with room has more workers
    `w-7` on `pve2`: slot 2: no other host that it may use has room
    ");
}

#[test]
fn zones_are_part_of_the_reason() {
    let hosts = [host_in("a", "pve1", 8), host_in("a", "pve2", 8), host_in("b", "pve3", 8)];
    let mut requests = control_planes(4, 2);
    requests.extend(workers(4, 1));
    insta::assert_snapshot!(explained(&hosts, &requests, Strategy::Spread), @r"
    `cp-1` on `pve1`: control planes go to distinct hosts; `pve1`, `pve2`, `pve3` had none yet and `pve1` comes first
    `cp-2` on `pve3`: control planes go to distinct hosts; `pve2`, `pve3` had none yet and the zone of this one had the fewest
    `cp-3` on `pve2`: control planes go to distinct hosts; of those it may use only `pve2` has room and had none yet
    `cp-4` on `pve3`: every host with room for it has a control plane already; none has fewer than 1, and the zone of this one has the fewest
    `w-1` on `pve1`: slot 0: no host with room has fewer workers, and this one comes first by name among equals
    `w-2` on `pve3`: slot 0: no host with room has fewer workers, and the zone of this one has the fewest
    `w-3` on `pve2`: slot 0: every other host with room has more workers
    `w-4` on `pve3`: slot 1: no host with room has fewer workers, and the zone of this one has the fewest
    ");
}

#[test]
fn making_way_is_part_of_the_reason() {
    let hosts = [host("pve1", 4), host("pve2", 4), host("pve3", 4)];
    let requests = [
        control_plane("cp-1", 2).limited_to(&["pve1", "pve2"]),
        control_plane("cp-2", 2).limited_to(&["pve2", "pve3"]),
        control_plane("cp-3", 2).limited_to(&["pve1"]),
    ];
    insta::assert_snapshot!(explained(&hosts, &requests, Strategy::Spread), @r"
    `cp-1` on `pve2`: control planes go to distinct hosts; arranged with `cp-2`, `cp-3` so that each finds one
    `cp-2` on `pve3`: control planes go to distinct hosts; arranged with `cp-1`, `cp-3` so that each finds one
    `cp-3` on `pve1`: control planes go to distinct hosts; arranged with `cp-1`, `cp-2` so that each finds one
    ");
}

#[test]
fn even_zones_are_part_of_the_reason() {
    let hosts = [host_in("a", "pve1", 8), host_in("a", "pve2", 8), host_in("b", "pve3", 8)];
    let requests = [control_plane("cp-1", 2), control_plane("cp-2", 2).limited_to(&["pve1", "pve2"])];
    insta::assert_snapshot!(explained(&hosts, &requests, Strategy::Spread), @r"
    `cp-1` on `pve3`: control planes go to distinct hosts; arranged with `cp-2` so that the zones stay even
    `cp-2` on `pve1`: control planes go to distinct hosts; arranged with `cp-1` so that the zones stay even
    ");
}

#[test]
fn a_host_that_was_given_up_is_free_for_the_next() {
    let hosts = [host("pve2", 8), host("pve10", 8), host_in("a", "pve9", 8)];
    let requests = [
        control_plane("cp-1", 2).limited_to(&["pve2", "pve9"]),
        control_plane("cp-2", 2).limited_to(&["pve10"]),
        control_plane("cp-3", 2).limited_to(&["pve2"]),
    ];
    insta::assert_snapshot!(explained(&hosts, &requests, Strategy::Spread), @r"
    `cp-1` on `pve9`: control planes go to distinct hosts; arranged with `cp-2` so that the zones stay even
    `cp-2` on `pve10`: control planes go to distinct hosts; arranged with `cp-1` so that the zones stay even
    `cp-3` on `pve2`: control planes go to distinct hosts; of those it may use only `pve2` has room and had none yet
    ");
}

#[test]
fn pack_explains_itself() {
    let hosts = [host("pve1", 4), host("pve2", 8), host("pve3", 2)];
    insta::assert_snapshot!(explained(&hosts, &workers(7, 2), Strategy::Pack), @r"
    `w-1` on `pve1`: packed: no host with room is fuller, and this one comes first by name among equals
    `w-2` on `pve1`: packed: the fullest host with room
    `w-3` on `pve2`: packed: no host with room is fuller, and this one comes first by name among equals
    `w-4` on `pve2`: packed: the fullest host with room
    `w-5` on `pve2`: packed: the fullest host with room
    `w-6` on `pve2`: packed: the fullest host with room
    `w-7` on `pve3`: packed: no other host that it may use has room
    ");
}

#[test]
fn the_last_resort_explains_itself() {
    let hosts = [host("pve1", 8), host("pve2", 5)];
    let requests = [worker("w-1", 4), worker("w-2", 4), worker("w-3", 5)];
    insta::assert_snapshot!(explained(&hosts, &requests, Strategy::Spread), @r"
    `w-1` on `pve1`: fitted in tightly; by the strategy alone, not all machines found room
    `w-2` on `pve1`: fitted in tightly; by the strategy alone, not all machines found room
    `w-3` on `pve2`: fitted in tightly; by the strategy alone, not all machines found room
    ");
}

#[test]
fn control_planes_that_leave_room_explain_themselves() {
    let hosts = [host("pve1", 32), host("pve2", 9), host("pve3", 8)];
    let mut requests = control_planes(2, 4);
    requests.push(worker("w-1", 32));
    insta::assert_snapshot!(explained(&hosts, &requests, Strategy::Spread), @r"
    `cp-1` on `pve3`: control planes go to distinct hosts; `pve1`, `pve2`, `pve3` had none yet and this one has the least room to spare
    `cp-2` on `pve2`: control planes go to distinct hosts; `pve1`, `pve2` had none yet and this one has the least room to spare
    `w-1` on `pve1`: slot 0: no other host that it may use has room
    ");
}
