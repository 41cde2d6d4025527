//! The configs of the rich cluster, as they are reviewed. One that differs is left beside the test's own
//! files; after a change that is meant, read the difference and copy it over.

use std::path::PathBuf;

use ichor_machineconfig::{Config, compose::Composed, emit, validate, validate::Mode};
use ichor_model::{Minor, SourceId, desired::Role};

use crate::support::{RELEASES, machine, rich, with_composer};

fn check(name: &str, made: &Composed) {
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/compose").join(name);
    let text = made.text();
    if std::fs::read_to_string(&golden).is_ok_and(|expected| expected == text.expose()) {
        return;
    }
    let new = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&new, text.expose()).expect("the new file is written");
    panic!("{name} is not as reviewed; compare:\n  diff {} {}", golden.display(), new.display());
}

/// What a node must accept: both modes, and again after reading.
fn accepted(what: &str, made: &Composed, talos: Minor) {
    for mode in [Mode::Metal, Mode::Cloud] {
        let findings = validate(&made.config, talos, mode);
        assert!(!findings.has_errors(), "{what}: {findings:?}");
    }
    let text = made.text();
    let again = Config::parse(SourceId(0), text.expose().as_bytes()).expect("reads back");
    assert!(again == made.config, "{what} is another config after reading");
    assert_eq!(emit(&again), text.expose(), "{what}");
}

#[test]
fn every_release_accepts_every_config_of_the_rich_cluster() {
    for (talos, kubernetes) in RELEASES {
        with_composer(&rich(talos, kubernetes, ""), &[], |desired, composer| {
            let composer = composer.unwrap_or_else(|findings| panic!("{findings:?}"));
            for machine in &desired.machines {
                let made = composer.machine(machine).unwrap_or_else(|findings| panic!("{findings:?}"));
                accepted(machine.name.as_str(), &made, machine.talos.minor());
            }
            for role in Role::ALL {
                accepted(role.word(), &composer.role(role).unwrap(), desired.cluster.talos.minor());
            }
        });
    }
}

#[test]
fn configs_of_every_contract_are_as_reviewed() {
    for (talos, kubernetes) in RELEASES.into_iter().skip(1) {
        with_composer(&rich(talos, kubernetes, ""), &[], |desired, composer| {
            let composer = composer.unwrap();
            let contract = desired.cluster.contract;
            // 1.9 is the last with the older disks; 1.10 and 1.11 are one shape.
            if contract == Minor::new(1, 10) {
                return;
            }
            for name in ["cp-1", "worker-1"] {
                let made = composer.machine(machine(desired, name)).unwrap();
                check(&format!("{contract}-{name}.yaml"), &made);
            }
            if contract == Minor::new(1, 13) {
                for role in Role::ALL {
                    check(&format!("{contract}-role-{role}.yaml"), &composer.role(role).unwrap());
                }
            }
        });
    }
}
