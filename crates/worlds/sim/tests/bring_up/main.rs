//! A whole cluster in process.

mod bad_days;
mod driver;
mod fault_plan;

use std::time::Duration;

use driver::{Cluster, Driver};
use ichor_sim::profile::Profile;

#[test]
fn a_cluster_comes_up() {
    let cluster = Cluster::new();
    let mut driver = Driver::new(7, Profile::Lab, &cluster);
    driver.bring_up();
    assert_eq!(driver.lab.pve.vms.len(), 5);
}

#[test]
fn the_same_seed_gives_the_same_world() {
    let cluster = Cluster::new();
    let world = |seed| {
        let mut driver = Driver::new(seed, Profile::Instant, &cluster);
        driver.bring_up();
        serde_json::to_string(&driver.lab).expect("a state")
    };
    assert_eq!(world(1), world(1));
    assert_ne!(world(1), world(2));
}

#[test]
fn no_run_is_shorter_than_its_lower_bound() {
    let cluster = Cluster::new();
    let run = |eagerly: bool| {
        let mut driver = Driver::new(7, Profile::Wan, &cluster);
        let began = driver.lab.ground.now;
        if eagerly {
            driver.bring_up_eagerly();
        } else {
            driver.bring_up();
        }
        let took = driver.lab.ground.now.since(began).as_millis();
        let bound = driver.lab.ground.bound.lower();
        assert!(u128::from(bound.lower_bound_ms) <= took, "{bound:#?}");
        let sum: u64 = bound.path.iter().map(|stretch| stretch.takes_ms).sum();
        assert_eq!(sum, bound.lower_bound_ms, "the path explains the bound");
        (u64::try_from(took).expect("not for ever"), bound)
    };
    let (eager, bound) = run(true);
    // Only waits for what a client cannot know of lie between them.
    assert!(bound.lower_bound_ms * 100 >= eager * 95, "{eager} {bound:#?}");
    let path: Vec<&str> = bound.path.iter().map(|stretch| stretch.what.as_str()).collect();
    for what in ["file", "qmcreate", "maintenance mode", "static pods ready", "node ready"] {
        assert!(path.contains(&what), "{what} is missing in {path:?}");
    }
    let (lazy, bound) = run(false);
    assert!(eager <= lazy, "{eager} {lazy} {bound:#?}");
}

#[test]
fn time_that_a_client_wastes_does_not_raise_the_bound() {
    let cluster = Cluster::new();
    let bound = |pause: Duration| {
        let mut driver = Driver::new(7, Profile::Wan, &cluster);
        driver.pause = pause;
        driver.bring_up();
        // Other control planes join etcd in both cases, also where the last node was ready before.
        driver.lab.advance(driver.lab.ground.now + Duration::from_mins(5));
        let bound = driver.lab.ground.bound.lower();
        (bound.lower_bound_ms, bound.took_ms)
    };
    let (brisk, slow) = (bound(Duration::ZERO), bound(Duration::from_mins(2)));
    assert!(slow.1 > brisk.1 + 600_000, "{brisk:?} {slow:?}");
    assert!(slow.0 <= brisk.0, "{brisk:?} {slow:?}");
}
