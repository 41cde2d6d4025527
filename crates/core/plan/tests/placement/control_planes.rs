use ichor_plan::placement::{Strategy, place};

use crate::build::*;

#[test]
fn control_planes_go_to_distinct_hosts() {
    let hosts = [host("pve1", 16), host("pve2", 16), host("pve3", 16)];
    assert_eq!(spread(&hosts, &control_planes(3, 2)), "cp-1@pve1 cp-2@pve2 cp-3@pve3");
}

#[test]
fn hosts_are_taken_as_people_count() {
    let hosts = [host("pve10", 16), host("pve9", 16), host("pve2", 16)];
    assert_eq!(spread(&hosts, &control_planes(2, 2)), "cp-1@pve2 cp-2@pve9");
}

#[test]
fn a_host_without_room_is_passed_over() {
    let hosts = [host("pve1", 1), host("pve2", 4), host("pve3", 4)];
    assert_eq!(spread(&hosts, &control_planes(2, 2)), "cp-1@pve2 cp-2@pve3");
}

#[test]
fn a_control_plane_makes_way_for_one_with_fewer_choices() {
    let hosts = [host("pve1", 4), host("pve2", 4)];
    let requests = [control_plane("cp-1", 2), control_plane("cp-2", 2).limited_to(&["pve1"])];
    assert_eq!(spread(&hosts, &requests), "cp-1@pve2 cp-2@pve1");
}

#[test]
fn control_planes_change_places_in_a_chain_if_that_keeps_them_apart() {
    let hosts = [host("pve1", 4), host("pve2", 4), host("pve3", 4)];
    let requests = [
        control_plane("cp-1", 2).limited_to(&["pve1", "pve2"]),
        control_plane("cp-2", 2).limited_to(&["pve2", "pve3"]),
        control_plane("cp-3", 2).limited_to(&["pve1"]),
    ];
    assert_eq!(spread(&hosts, &requests), "cp-1@pve2 cp-2@pve3 cp-3@pve1");
}

#[test]
fn existing_and_pinned_control_planes_keep_others_off_their_host() {
    let hosts = [host("pve1", 16), host("pve2", 16), host("pve3", 16)];
    let requests = [
        control_plane("cp-1", 2),
        control_plane("cp-2", 2).staying_on("pve1"),
        control_plane("cp-3", 2).pinned_to("pve2"),
    ];
    assert_eq!(spread(&hosts, &requests), "cp-1@pve3 cp-2@pve1 cp-3@pve2");
}

#[test]
fn zones_with_the_fewest_control_planes_come_first() {
    let hosts = [
        host_in("a", "pve1", 8),
        host_in("a", "pve2", 8),
        host_in("a", "pve3", 8),
        host_in("b", "pve4", 8),
        host_in("c", "pve5", 8),
    ];
    assert_eq!(spread(&hosts, &control_planes(4, 2)), "cp-1@pve1 cp-2@pve4 cp-3@pve5 cp-4@pve2");
}

#[test]
fn zones_stay_even_when_a_later_control_plane_has_little_choice() {
    let hosts = [host_in("a", "pve1", 8), host_in("a", "pve2", 8), host_in("b", "pve3", 8)];
    let requests = [control_plane("cp-1", 2), control_plane("cp-2", 2).limited_to(&["pve1", "pve2"])];
    assert_eq!(spread(&hosts, &requests), "cp-1@pve3 cp-2@pve1");
}

#[test]
fn zones_stay_even_when_that_takes_an_exchange_within_a_zone() {
    let hosts = [host("pve2", 8), host("pve10", 8), host_in("a", "pve9", 8)];
    let requests = [
        control_plane("cp-1", 2).limited_to(&["pve2", "pve9"]),
        control_plane("cp-2", 2).limited_to(&["pve10"]),
    ];
    assert_eq!(spread(&hosts, &requests), "cp-1@pve9 cp-2@pve10");
}

#[test]
fn distinct_hosts_matter_more_than_zones() {
    let hosts = [host_in("a", "pve1", 16), host_in("a", "pve2", 16), host_in("b", "pve3", 16)];
    assert_eq!(spread(&hosts, &control_planes(3, 2)), "cp-1@pve1 cp-2@pve3 cp-3@pve2");
}

#[test]
fn hosts_without_a_zone_count_as_one_zone() {
    let hosts = [host("pve1", 8), host("pve2", 8), host_in("b", "pve3", 8)];
    assert_eq!(spread(&hosts, &control_planes(2, 2)), "cp-1@pve1 cp-2@pve3");
}

#[test]
fn with_too_few_hosts_control_planes_are_balanced() {
    let hosts = [host("pve1", 16), host("pve2", 16)];
    let requests = control_planes(5, 2);
    assert_eq!(spread(&hosts, &requests), "cp-1@pve1 cp-2@pve2 cp-3@pve1 cp-4@pve2 cp-5@pve1");
}

#[test]
fn control_planes_that_must_share_spread_over_zones() {
    let hosts = [host_in("a", "pve1", 16), host_in("a", "pve2", 16), host_in("b", "pve3", 16)];
    let requests = control_planes(4, 2);
    assert_eq!(spread(&hosts, &requests), "cp-1@pve1 cp-2@pve3 cp-3@pve2 cp-4@pve3");
}

#[test]
fn a_single_host_takes_everything() {
    let mut requests = control_planes(3, 2);
    requests.extend(workers(2, 2));
    assert_eq!(spread(&[host("pve1", 10)], &requests), "cp-1@pve1 cp-2@pve1 cp-3@pve1 w-1@pve1 w-2@pve1");
}

#[test]
fn packing_still_keeps_control_planes_apart() {
    let hosts = [host("pve1", 64), host("pve2", 64), host("pve3", 64)];
    let seats = placed(&hosts, &control_planes(3, 2), Strategy::Pack);
    assert_eq!(seats, "cp-1@pve1 cp-2@pve2 cp-3@pve3");
}

#[test]
fn a_large_control_plane_is_not_refused_because_a_small_one_came_first() {
    let hosts = [host("pve1", 10), host("pve2", 4)];
    let requests =
        [control_plane("cp-1", 2), control_plane("cp-2", 10), control_plane("cp-3", 2).staying_on("pve2")];
    assert_eq!(spread(&hosts, &requests), "cp-1@pve2 cp-2@pve1 cp-3@pve2");
}

#[test]
fn control_planes_leave_the_only_large_host_to_a_large_worker() {
    let hosts = [host("pve1", 32), host("pve2", 8), host("pve3", 8), host("pve4", 8)];
    let mut requests = control_planes(3, 4);
    requests.push(worker("w-1", 32));
    assert_eq!(spread(&hosts, &requests), "cp-1@pve2 cp-2@pve3 cp-3@pve4 w-1@pve1");
}

#[test]
fn control_planes_stay_apart_even_in_the_tightest_fit() {
    let hosts = [host("pve1", 10), host("pve2", 8), host("pve3", 3)];
    let requests = [control_plane("cp-1", 3), control_plane("cp-2", 3), worker("w-1", 7), worker("w-2", 8)];
    assert_eq!(spread(&hosts, &requests), "cp-1@pve1 cp-2@pve3 w-1@pve1 w-2@pve2");
}

#[test]
fn the_usage_counts_control_planes_and_workers() {
    let hosts = [host("pve1", 16), host("pve2", 16)];
    let mut requests = control_planes(3, 2);
    requests.extend(workers(1, 4));
    let usage = place(&hosts, &requests, Strategy::Spread).expect("all machines fit").usage;
    let counts: Vec<_> = usage.iter().map(|host| (host.control_planes, host.workers, host.used)).collect();
    assert_eq!(counts, [(2, 1, resources(8, 8)), (1, 0, resources(2, 2))]);
}
