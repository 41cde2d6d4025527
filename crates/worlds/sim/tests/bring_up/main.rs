//! A whole cluster in process.

mod bad_days;
mod driver;
mod fault_plan;

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
