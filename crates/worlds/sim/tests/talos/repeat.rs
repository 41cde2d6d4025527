//! The same calls at the same times give the same machines, also after saving and loading.

use ichor_model::desired::Role;
use ichor_sim::{Lab, profile::Profile};
use ichor_talos_proto::machine as api;

use crate::bench::{Bench, address};

fn saved(bench: &Bench) -> String {
    serde_json::to_string(&bench.lab).expect("a lab can be saved")
}

#[test]
fn the_same_seed_gives_the_same_cluster() {
    let run = |seed| {
        let mut bench = Bench::seeded("v1.13.9", seed, Profile::Lab);
        bench.cluster();
        let _ = bench.status(address(21));
        saved(&bench)
    };
    let first = run(7);
    assert!(first == run(7), "the same calls give the same state");
    assert!(first != run(8), "another seed gives another one");
}

#[test]
fn a_lab_saved_on_the_way_goes_on_the_same() {
    let mut bench = Bench::new("v1.13.9");
    for last in 11..=12 {
        bench.join(last, Role::ControlPlane);
    }
    let _: api::BootstrapResponse =
        bench.machine(address(11), "Bootstrap", &api::BootstrapRequest::default()).expect("bootstrap");
    bench.pass(std::time::Duration::from_secs(20));
    let mut other = Bench::new("v1.13.9");
    other.lab = serde_json::from_str::<Lab>(&saved(&bench)).expect("a lab can be loaded");
    assert!(other.lab.machines == bench.lab.machines);
    for bench in [&mut bench, &mut other] {
        for _ in 0..4 {
            bench.minute();
        }
        assert_eq!(bench.members(address(12)).expect("two").len(), 2);
    }
    assert!(saved(&bench) == saved(&other), "they go on the same");
    assert_eq!(bench.lab.talos_persona(address(11)), other.lab.talos_persona(address(11)));
}

#[test]
fn in_no_time_a_cluster_stands_at_once() {
    let mut bench = Bench::seeded("v1.13.9", 7, Profile::Instant);
    bench.cluster();
    assert_eq!(bench.members(address(11)).expect("three").len(), 3);
    assert!(bench.status(address(22)).contains("ready: true"));
}
