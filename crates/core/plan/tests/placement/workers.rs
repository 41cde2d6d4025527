use ichor_model::desired::Arch;
use ichor_plan::placement::{Host, Order, Request, Strategy, place};

use crate::build::*;

#[test]
fn workers_take_interleaved_slots() {
    let hosts = [host("pve1", 16), host("pve2", 16), host("pve3", 16)];
    assert_eq!(spread(&hosts, &workers(5, 2)), "w-1@pve1 w-2@pve2 w-3@pve3 w-4@pve1 w-5@pve2");
}

#[test]
fn a_host_with_few_slots_drops_out_of_the_rounds() {
    let hosts = [host("pve1", 2), host("pve2", 8), host("pve3", 4)];
    let seats = spread(&hosts, &workers(7, 2));
    assert_eq!(seats, "w-1@pve1 w-2@pve2 w-3@pve3 w-4@pve2 w-5@pve3 w-6@pve2 w-7@pve2");
}

#[test]
fn control_planes_take_their_share_before_workers() {
    let hosts = [host("pve1", 4), host("pve2", 4)];
    let mut requests = workers(2, 2);
    requests.push(control_plane("cp-1", 4));
    assert_eq!(spread(&hosts, &requests), "w-1@pve2 w-2@pve2 cp-1@pve1");
}

#[test]
fn control_planes_do_not_count_as_workers() {
    let hosts = [host("pve1", 16), host("pve2", 16)];
    let requests = [control_plane("cp-1", 2), worker("w-1", 2)];
    assert_eq!(spread(&hosts, &requests), "cp-1@pve1 w-1@pve1");
}

#[test]
fn existing_workers_use_up_slots() {
    let hosts = [host("pve1", 16), host("pve2", 16)];
    let requests = [
        worker("w-1", 2).staying_on("pve1"),
        worker("w-2", 2).staying_on("pve1"),
        worker("w-3", 2),
        worker("w-4", 2),
        worker("w-5", 2),
    ];
    assert_eq!(spread(&hosts, &requests), "w-1@pve1 w-2@pve1 w-3@pve2 w-4@pve2 w-5@pve1");
}

#[test]
fn workers_of_different_size_take_turns_where_they_fit() {
    let hosts = [host("pve1", 4), host("pve2", 12)];
    let requests = [worker("w-1", 8), worker("w-2", 2), worker("w-3", 2), worker("w-4", 2)];
    assert_eq!(spread(&hosts, &requests), "w-1@pve2 w-2@pve1 w-3@pve1 w-4@pve2");
}

#[test]
fn either_resource_can_be_the_scarce_one() {
    let many_cores = Host { capacity: Some(resources(32, 4)), ..host("pve1", 0) };
    let much_memory = Host { capacity: Some(resources(4, 32)), ..host("pve2", 0) };
    let greedy = Request { needs: resources(2, 8), ..worker("w-1", 0) };
    let busy = Request { needs: resources(8, 2), ..worker("w-2", 0) };
    assert_eq!(spread(&[many_cores, much_memory], &[greedy, busy]), "w-1@pve2 w-2@pve1");
}

#[test]
fn workers_prefer_the_emptier_zone_among_equal_hosts() {
    let hosts = [host_in("a", "pve1", 8), host_in("a", "pve2", 8), host_in("b", "pve3", 8)];
    assert_eq!(spread(&hosts, &workers(4, 2)), "w-1@pve1 w-2@pve3 w-3@pve2 w-4@pve3");
}

#[test]
fn a_machine_goes_only_to_its_zone_its_hosts_and_its_architecture() {
    let arm = Host { arch: Arch::Arm64, ..host_in("b", "pve1", 8) };
    let hosts = [arm, host_in("a", "pve2", 8), host_in("b", "pve3", 8), host_in("b", "pve4", 8)];
    let requests = [
        Request { arch: Arch::Arm64, ..worker("w-1", 2) },
        Request { zone: Some("b".into()), ..worker("w-2", 2) },
        worker("w-3", 2).limited_to(&["pve4", "pve3"]),
    ];
    assert_eq!(spread(&hosts, &requests), "w-1@pve1 w-2@pve3 w-3@pve4");
}

#[test]
fn pinned_machines_are_charged_before_free_ones() {
    let hosts = [host("pve1", 4), host("pve2", 4)];
    let requests = [worker("w-1", 4), worker("w-2", 4).pinned_to("pve1")];
    assert_eq!(spread(&hosts, &requests), "w-1@pve2 w-2@pve1");
}

#[test]
fn a_host_of_unknown_size_is_large_enough() {
    assert_eq!(spread(&[vast("pve1")], &workers(3, 1000)), "w-1@pve1 w-2@pve1 w-3@pve1");
}

#[test]
fn a_machine_stays_on_a_host_that_is_over_full() {
    let hosts = [host("pve1", 2), host("pve2", 4)];
    let requests = [worker("w-1", 8).staying_on("pve1"), worker("w-2", 2)];
    assert_eq!(spread(&hosts, &requests), "w-1@pve1 w-2@pve2");
}

#[test]
fn a_machine_stays_on_a_host_that_is_not_listed_and_others_do_not_join_it() {
    let requests = [worker("w-1", 2).staying_on("old1"), worker("w-2", 2)];
    let placement = place(&[host("pve1", 4)], &requests, Strategy::Spread).expect("all machines fit");
    assert_eq!(shown(&placement), "w-1@old1 w-2@pve1");
    let listed: Vec<_> = placement.usage.iter().map(|host| (host.host.as_str(), host.listed)).collect();
    assert_eq!(listed, [("old1", false), ("pve1", true)]);
}

#[test]
fn a_machine_that_exists_ignores_its_pin() {
    let hosts = [host("pve1", 4), host("pve2", 4)];
    assert_eq!(spread(&hosts, &[worker("w-1", 2).staying_on("pve2").pinned_to("pve1")]), "w-1@pve2");
}

#[test]
fn packing_fills_the_fullest_host_first() {
    let hosts = [host("pve1", 8), host("pve2", 8), host("pve3", 8)];
    let mut requests = vec![worker("w-0", 2).staying_on("pve2")];
    requests.extend(workers(5, 2));
    let seats = placed(&hosts, &requests, Strategy::Pack);
    assert_eq!(seats, "w-0@pve2 w-1@pve2 w-2@pve2 w-3@pve2 w-4@pve1 w-5@pve1");
}

#[test]
fn packing_measures_fullness_by_the_scarcer_resource() {
    let busy = Request { needs: resources(6, 1), ..worker("w-1", 0) }.staying_on("pve2");
    let greedy = Request { needs: resources(1, 3), ..worker("w-2", 0) }.staying_on("pve1");
    let hosts = [host("pve1", 8), host("pve2", 8)];
    let seats = placed(&hosts, &[busy, greedy, worker("w-3", 1)], Strategy::Pack);
    assert_eq!(seats, "w-1@pve2 w-2@pve1 w-3@pve2");
}

#[test]
fn packing_on_hosts_of_unknown_size_joins_what_is_there() {
    let hosts = [vast("pve1"), vast("pve2")];
    let requests = [worker("w-1", 2).staying_on("pve2"), worker("w-2", 2), worker("w-3", 2)];
    assert_eq!(placed(&hosts, &requests, Strategy::Pack), "w-1@pve2 w-2@pve2 w-3@pve2");
}

#[test]
fn pinning_by_hand_takes_only_what_is_pinned_or_exists() {
    let hosts = [host("pve1", 8), host("pve2", 8)];
    let requests = [worker("w-1", 2).pinned_to("pve2"), worker("w-2", 2).staying_on("pve1")];
    assert_eq!(placed(&hosts, &requests, Strategy::Pin), "w-1@pve2 w-2@pve1");
}

#[test]
fn the_listed_order_is_kept_while_everybody_finds_room() {
    let requests = [worker("w-1", 2), worker("w-2", 8)];
    let placement = place(&[host("pve1", 8), host("pve2", 8)], &requests, Strategy::Spread);
    let placement = placement.expect("all machines fit");
    assert_eq!((shown(&placement).as_str(), placement.order), ("w-1@pve1 w-2@pve2", Order::AsListed));
}

#[test]
fn the_largest_go_first_when_the_listed_order_leaves_one_over() {
    let hosts = [host("pve1", 8), host("pve2", 4)];
    let requests = [worker("w-1", 2), worker("w-2", 2), worker("w-3", 8)];
    let placement = place(&hosts, &requests, Strategy::Spread).expect("all machines fit");
    assert_eq!(shown(&placement), "w-1@pve2 w-2@pve2 w-3@pve1");
    assert_eq!(placement.order, Order::HardestFirst);
}

#[test]
fn the_choosiest_go_first_when_the_listed_order_leaves_one_over() {
    let hosts = [host("pve1", 4), host("pve2", 4)];
    let requests = [worker("w-1", 4), worker("w-2", 2).limited_to(&["pve1"])];
    assert_eq!(spread(&hosts, &requests), "w-1@pve2 w-2@pve1");
}

#[test]
fn a_tight_fit_comes_before_a_refusal() {
    let hosts = [host("pve1", 8), host("pve2", 5)];
    let requests = [worker("w-1", 4), worker("w-2", 4), worker("w-3", 5)];
    assert_eq!(spread(&hosts, &requests), "w-1@pve1 w-2@pve1 w-3@pve2");
}

#[test]
fn choices_that_lead_nowhere_are_taken_back() {
    // Largest first and tightest first, 5 + 4 fills neither host well: only 5 + 3 + 2 and 4 + 4 + 2 do.
    let hosts = [host("pve1", 10), host("pve2", 10)];
    let requests = [
        worker("w-1", 2),
        worker("w-2", 2),
        worker("w-3", 3),
        worker("w-4", 4),
        worker("w-5", 4),
        worker("w-6", 5),
    ];
    assert_eq!(spread(&hosts, &requests), "w-1@pve1 w-2@pve2 w-3@pve1 w-4@pve2 w-5@pve2 w-6@pve1");
}

#[test]
fn many_machines_find_a_tight_fit_too() {
    let hosts: Vec<_> =
        (1..=60).flat_map(|i| [host(&format!("a{i}"), 8), host(&format!("b{i}"), 5)]).collect();
    let mut requests = workers(120, 4);
    requests.extend((1..=60).map(|i| worker(&format!("large-{i}"), 5)));
    let placement = place(&hosts, &requests, Strategy::Spread).expect("all machines fit");
    assert!(placement.usage.iter().all(|host| host.capacity == Some(host.used)));
}

#[test]
fn ten_thousand_machines_spread_evenly_over_two_hundred_hosts() {
    let hosts: Vec<_> = (1..=200).map(|i| host(&format!("pve{i}"), 128)).collect();
    let mut requests = control_planes(5, 4);
    requests.extend(workers(9_995, 2));
    let placement = place(&hosts, &requests, Strategy::Spread).expect("all machines fit");
    let counts: Vec<_> = placement.usage.iter().map(|host| host.workers).collect();
    assert_eq!((counts.iter().min(), counts.iter().max()), (Some(&49), Some(&50)));
}

#[test]
fn nothing_to_place_is_placed() {
    let placement = place(&[], &[], Strategy::Spread).expect("nothing to refuse");
    assert!(placement.seats.is_empty() && placement.usage.is_empty());
}
