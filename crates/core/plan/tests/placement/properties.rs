//! What holds whatever the input.

use std::collections::{BTreeMap, BTreeSet};

use ichor_model::{
    HostName, Size,
    desired::{Arch, Role},
};
use ichor_plan::placement::{
    Because, Host, Lack, Overcommit, Placement, Refusal, Request, Resources, Strategy as Way, lose, offer,
    place,
};
use proptest::{prelude::*, sample::subsequence};

use crate::{
    build::*,
    oracle::{Settled, allows, fits_somehow, slot_table},
};

/// Hosts that requests may name; `old1` is never listed.
const NAMES: [&str; 8] = ["pve1", "pve2", "pve3", "pve4", "pve9", "pve10", "Rack-1", "old1"];

fn any_arch() -> impl Strategy<Value = Arch> {
    prop_oneof![8 => Just(Arch::Amd64), 1 => Just(Arch::Arm64)]
}

fn any_zone() -> impl Strategy<Value = Option<String>> {
    prop_oneof![2 => Just(None), 1 => Just(Some("a".into())), 1 => Just(Some("b".into()))]
}

fn any_capacity() -> impl Strategy<Value = Option<Resources>> {
    prop_oneof![6 => (0_u32..24, 0_u64..48).prop_map(|(cpu, gib)| Some(resources(cpu, gib))), 1 => Just(None)]
}

fn any_hosts() -> impl Strategy<Value = Vec<Host>> {
    let names = subsequence(&NAMES[..7], 1..=7).prop_shuffle();
    names.prop_flat_map(|names| {
        let hosts = names.into_iter().map(|name| {
            (any_zone(), any_arch(), any_capacity()).prop_map(move |(zone, arch, capacity)| Host {
                zone,
                arch,
                capacity,
                ..host(name, 0)
            })
        });
        hosts.collect::<Vec<_>>()
    })
}

/// Hosts with a third of the room, so that machines just about fit.
fn tight_hosts() -> impl Strategy<Value = Vec<Host>> {
    let third = |size: Resources| Resources::new(size.cpu / 3, Size::from_mib(size.memory.mib() / 3));
    any_hosts().prop_map(move |hosts| {
        hosts.into_iter().map(|host| Host { capacity: host.capacity.map(third), ..host }).collect()
    })
}

fn any_name() -> impl Strategy<Value = Option<HostName>> {
    prop_oneof![6 => Just(None), 1 => (0..NAMES.len()).prop_map(|i| Some(host_name(NAMES[i])))]
}

prop_compose! {
    fn any_request()(
        is_worker in prop::bool::weighted(0.6),
        (cpu, gib) in (1_u32..6, 1_u64..8),
        (arch, pin, stays) in (any_arch(), any_name(), any_name()),
        hosts in prop_oneof![3 => Just(Vec::new()), 1 => subsequence(&NAMES[..], 1..6)],
        zone in prop_oneof![4 => Just(None), 1 => any_zone()],
    ) -> Request {
        let role = if is_worker { Role::Worker } else { Role::ControlPlane };
        let hosts = hosts.into_iter().map(host_name).collect();
        Request { role, needs: resources(cpu, gib), arch, pin, hosts, zone, stays, ..worker("m", 0) }
    }
}

fn any_requests(most: usize) -> impl Strategy<Value = Vec<Request>> {
    prop::collection::vec(any_request(), 0..=most).prop_map(|requests| named("m", requests))
}

fn named(prefix: &str, requests: Vec<Request>) -> Vec<Request> {
    let names = (1..).map(|i| machine_name(&format!("{prefix}-{i}")));
    requests.into_iter().zip(names).map(|(request, name)| Request { name, ..request }).collect()
}

fn any_way() -> impl Strategy<Value = Way> {
    prop_oneof![4 => Just(Way::Spread), 3 => Just(Way::Pack), 1 => Just(Way::Pin)]
}

/// Returns those of the machines that find a place without refusals, so that a property about
/// placements is not drowned by hopeless inputs.
fn fitting(hosts: &[Host], mut requests: Vec<Request>, way: Way) -> (Vec<Request>, Placement) {
    loop {
        match place(hosts, &requests, way) {
            Ok(placement) => return (requests, placement),
            Err(refusals) => {
                let refused: BTreeSet<_> = refusals.iter().map(Refusal::machine).collect();
                requests.retain(|request| !refused.contains(&request.name));
            }
        }
    }
}

fn listed<'a>(hosts: &'a [Host], name: &HostName) -> Option<&'a Host> {
    hosts.iter().find(|host| host.name == *name)
}

fn covers(capacity: Option<Resources>, needs: Resources) -> bool {
    capacity.is_none_or(|capacity| capacity.covers(needs))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_seat_is_where_its_request_allows(
        hosts in any_hosts(), requests in any_requests(12), way in any_way(),
    ) {
        let (requests, placement) = fitting(&hosts, requests, way);
        prop_assert_eq!(placement.seats.len(), requests.len());
        for (seat, request) in placement.seats.iter().zip(&requests) {
            prop_assert_eq!(&seat.machine, &request.name);
            match &request.stays {
                Some(host) => prop_assert_eq!(&seat.host, host),
                None => prop_assert!(listed(&hosts, &seat.host).is_some_and(|host| allows(host, request))),
            }
        }
    }

    #[test]
    fn no_host_gets_a_machine_beyond_its_capacity(
        hosts in any_hosts(), requests in any_requests(12), way in any_way(),
    ) {
        let (requests, placement) = fitting(&hosts, requests, way);
        let seats = placement.seats.iter().zip(&requests);
        let grown: BTreeSet<_> =
            seats.filter(|(_, request)| request.stays.is_none()).map(|(seat, _)| &seat.host).collect();
        for usage in placement.usage.iter().filter(|usage| grown.contains(&usage.host)) {
            prop_assert!(covers(usage.capacity, usage.used), "{:?}", usage);
        }
    }

    #[test]
    fn the_usage_is_the_sum_of_the_seats(
        hosts in any_hosts(), requests in any_requests(12), way in any_way(),
    ) {
        let (requests, placement) = fitting(&hosts, requests, way);
        for usage in &placement.usage {
            let here = placement.seats.iter().zip(&requests).filter(|(seat, _)| seat.host == usage.host);
            let needs = here.map(|(_, request)| request.needs);
            prop_assert_eq!(usage.used, needs.fold(Resources::default(), Resources::saturating_add));
        }
        prop_assert!(placement.usage.is_sorted_by(|a, b| a.host < b.host));
    }

    #[test]
    fn the_order_of_the_hosts_does_not_matter(
        (hosts, shuffled) in any_hosts().prop_flat_map(|hosts| (Just(hosts.clone()), Just(hosts).prop_shuffle())),
        requests in any_requests(12), way in any_way(),
    ) {
        prop_assert_eq!(place(&hosts, &requests, way), place(&shuffled, &requests, way));
    }

    #[test]
    fn new_machines_never_move_existing_ones(
        hosts in any_hosts(), requests in any_requests(8), more in any_requests(6), way in any_way(),
    ) {
        let (requests, before) = fitting(&hosts, requests, way);
        let existing = requests.iter().zip(&before.seats);
        let existing = existing.map(|(request, seat)| Request { stays: Some(seat.host.clone()), ..request.clone() });
        let grown: Vec<_> = named("new", more).into_iter().chain(existing).collect();
        let (_, after) = fitting(&hosts, grown, way);
        let hosts_before: BTreeMap<_, _> = before.seats.iter().map(|seat| (&seat.machine, &seat.host)).collect();
        let hosts_after: BTreeMap<_, _> = after.seats.iter().map(|seat| (&seat.machine, &seat.host)).collect();
        for (machine, host) in hosts_before {
            prop_assert_eq!(hosts_after.get(machine), Some(&host));
        }
    }

    #[test]
    fn control_planes_are_apart_and_in_even_zones_whenever_that_is_possible(
        hosts in prop_oneof![any_hosts(), tight_hosts()], requests in any_requests(7),
        way in prop_oneof![Just(Way::Spread), Just(Way::Pack)],
    ) {
        let (requests, placement) = fitting(&hosts, requests, way);
        let board = Settled::new(&hosts, &requests, &placement);
        let (seen, best) = (board.seen(), board.best());
        prop_assert_eq!(seen.hosts, best.hosts);
        // Where machines barely fit, zones are given up for room; where control planes share hosts,
        // the oracle does not know which.
        let is_plain = placement.seats.iter().all(|seat| seat.because != Because::Fitted);
        if is_plain && best.hosts == board.free.len() {
            prop_assert_eq!(seen.unevenness, best.unevenness);
        }
    }

    #[test]
    fn uniform_workers_take_the_slots_of_the_slot_table(
        hosts in any_hosts(), masters in 0_usize..4, existing in prop::collection::vec(0..7_usize, 0..5),
        count in 0_usize..30, (cpu, gib) in (1_u32..5, 1_u64..6),
    ) {
        // The text knows no zones and no architectures.
        let hosts: Vec<_> = hosts.into_iter().map(|h| Host { zone: None, arch: Arch::Amd64, ..h }).collect();
        let sized = |request: Request| Request { needs: resources(cpu, gib), ..request };
        let (masters, seats) = fitting(&hosts, control_planes(masters, 2), Way::Spread);
        let mut requests: Vec<_> = masters.into_iter().zip(seats.seats)
            .map(|(request, seat)| Request { stays: Some(seat.host), ..request }).collect();
        requests.extend(existing.iter().enumerate().map(|(i, at)| {
            sized(worker(&format!("old-{i}"), 0)).staying_on(hosts[at % hosts.len()].name.as_str())
        }));
        let new: Vec<_> = workers(count, 0).into_iter().map(sized).collect();
        let expected = slot_table(&hosts, &requests, &new);

        let settled = requests.len();
        requests.extend(new);
        let found = place(&hosts, &requests, Way::Spread).ok();
        let found = found.map(|placement| placement.seats[settled..].iter().map(|seat| seat.host.clone()).collect());
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn a_small_cluster_is_refused_only_if_it_cannot_be_placed(
        hosts in tight_hosts(), requests in any_requests(6), way in prop_oneof![Just(Way::Spread), Just(Way::Pack)],
    ) {
        let is_listed = |host: &HostName| listed(&hosts, host).is_some();
        let mut requests: Vec<_> =
            requests.into_iter().filter(|request| request.stays.as_ref().is_none_or(is_listed)).collect();
        // The oracle takes machines as they come, and those that exist have to come first.
        requests.sort_by_key(|request| request.stays.is_none());
        let allowed: Vec<Vec<usize>> = requests.iter().map(|request| {
            (0..hosts.len()).filter(|&i| match &request.stays {
                Some(host) => hosts[i].name == *host,
                None => allows(&hosts[i], request),
            }).collect()
        }).collect();
        if fits_somehow(&hosts, &requests, &allowed) {
            prop_assert!(place(&hosts, &requests, way).is_ok());
        }
    }

    #[test]
    fn refusals_name_every_listed_host_and_a_real_lack(
        hosts in any_hosts(), requests in any_requests(14), way in any_way(),
    ) {
        for refusal in place(&hosts, &requests, way).err().unwrap_or_default() {
            let Refusal::NoFit { hosts: lacks, .. } = &refusal else {
                prop_assert_eq!(way, Way::Pin);
                continue;
            };
            prop_assert!(lacks.is_sorted_by(|(a, _), (b, _)| a < b));
            prop_assert!(hosts.iter().all(|host| lacks.iter().any(|(name, _)| *name == host.name)));
            for (host, lack) in lacks {
                match lack {
                    Lack::Listing => prop_assert!(listed(&hosts, host).is_none()),
                    Lack::Room { short, .. } => prop_assert_ne!(*short, Resources::default()),
                    _ => prop_assert!(listed(&hosts, host).is_some()),
                }
            }
        }
    }

    #[test]
    fn a_loss_accounts_for_every_machine(
        hosts in any_hosts(), requests in any_requests(12), way in any_way(), at in 0_usize..7,
    ) {
        let (requests, placement) = fitting(&hosts, requests, way);
        let gone = &hosts[at % hosts.len()].name;
        let loss = lose(&hosts, &requests, &placement, gone);
        prop_assert_eq!(loss.machines.len(), loss.replaced.len() + loss.stranded.len());
        prop_assert!(loss.replaced.iter().all(|seat| seat.host != *gone));
        prop_assert!(loss.usage.iter().all(|usage| usage.host != *gone));
        let carried: usize = loss.usage.iter().map(|usage| usage.control_planes + usage.workers).sum();
        prop_assert_eq!(carried, requests.len() - loss.stranded.len());
    }

    #[test]
    fn an_offer_never_exceeds_the_stretched_budget(
        cpu in any::<u32>(), mib in any::<u64>(), factor in any::<f64>(), taken in any::<u32>(),
    ) {
        let overcommit = Overcommit { cpu: factor, memory: 1.0 };
        let foreign = Resources::new(taken, Size::default());
        let offered = offer(Resources::new(cpu, Size::from_mib(mib)), overcommit, foreign);
        prop_assert!(f64::from(offered.cpu) <= (f64::from(cpu) * factor).max(0.0) + 1e-6);
    }
}
