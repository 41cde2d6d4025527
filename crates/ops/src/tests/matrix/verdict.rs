//! What must hold after a case.

use std::collections::{BTreeMap, BTreeSet};

use ichor_model::{Desired, VmId};
use ichor_sim::{Lab, strangers};

use super::stage::{Stage, token_secret};

/// What is wrong, in words.
pub type Wrongs = Vec<String>;

/// Volumes by storage and place.
type Volumes = BTreeSet<String>;

/// What is there of a cluster.
pub struct Holdings {
    /// VMs that are nobody else's, with their uuids.
    pub vms: BTreeMap<VmId, String>,
    pub volumes: Volumes,
}

impl Holdings {
    pub fn of(lab: &Lab) -> Self {
        Self { vms: ours(lab), volumes: volumes(lab) }
    }
}

/// Returns all volumes of a lab.
fn volumes(lab: &Lab) -> Volumes {
    let storage = serde_json::to_value(&lab.pve.storage).expect("storages");
    let shelves = storage["shelves"].as_object().expect("shelves");
    let of = |(shelf, facts): (&String, &serde_json::Value)| {
        let volumes = facts["volumes"].as_object().cloned().unwrap_or_default();
        volumes.keys().map(|volume| format!("{shelf} {volume}")).collect::<Vec<_>>()
    };
    shelves.iter().flat_map(of).collect()
}

/// Returns the uuids of all VMs that are nobody else's.
fn ours(lab: &Lab) -> BTreeMap<VmId, String> {
    let others = strangers::all(lab);
    let own = lab.pve.vms.iter().filter(|(vmid, _)| !others.contains(vmid));
    let uuid = |smbios: &str| {
        let uuid = smbios.split(',').find_map(|part| part.strip_prefix("uuid="));
        uuid.unwrap_or_default().to_owned()
    };
    own.map(|(vmid, vm)| (*vmid, uuid(vm.config.get("smbios1").unwrap_or_default()))).collect()
}

/// What must hold whatever was asked for.
pub fn always(stage: &Stage, files_before: &BTreeMap<std::path::PathBuf, Vec<u8>>) -> Wrongs {
    let mut wrongs = Wrongs::new();
    if let Err(touched) = stage.look(strangers::untouched) {
        wrongs.push(touched);
    }
    if *stage.memory.files.borrow() != *files_before {
        wrongs.push("the secrets are others now".into());
    }
    let said = stage.heard.text() + &stage.journal.text();
    let secrets = secrets(files_before).into_iter().chain([stage.look(token_secret)]);
    if secrets.into_iter().any(|secret| said.contains(&secret)) {
        wrongs.push("a secret was said aloud".into());
    }
    // Some of it is written as Rust writes texts, with escapes.
    if ["\u{1b}", "\\u{1b}", "\u{202e}", "\\u{202e}"].iter().any(|trick| said.contains(trick)) {
        wrongs.push("something steers terminals".into());
    }
    wrongs
}

/// What must hold when a cluster is there.
pub fn there(stage: &Stage, desired: &Desired, expected: &Holdings) -> Wrongs {
    let mut wrongs = stage.lost_quorums();
    wrongs.extend(alive(stage, desired, expected, 1));
    wrongs
}

/// What must hold when a cluster is there after it was gone, which ends its first etcd.
pub fn there_again(stage: &Stage, desired: &Desired, expected: &Holdings) -> Wrongs {
    alive(stage, desired, expected, 2)
}

fn alive(stage: &Stage, desired: &Desired, expected: &Holdings, lives: usize) -> Wrongs {
    let mut wrongs = Wrongs::new();
    stage.look(|lab| {
        let (is, wanted) = (ours(lab), &expected.vms);
        if is != *wanted {
            wrongs.push(format!("VMs are {is:?}, not {wanted:?}"));
        }
        for machine in &desired.machines {
            if lab.pve.vms.get(&machine.vmid).is_some_and(|vm| vm.run.is_none()) {
                wrongs.push(format!("VM {} is off", machine.vmid));
            }
            if is.get(&machine.vmid) != Some(&machine.uuid.to_string()) {
                wrongs.push(format!("VM {} is not `{}`", machine.vmid, machine.name));
            }
        }
        differ(&volumes(lab), &expected.volumes, &mut wrongs);
        let begun = lab.machines.clusters();
        if begun.len() != lives {
            wrongs.push(format!("etcd has begun {} times", begun.len()));
        }
        let control_planes = desired.of_role(ichor_model::desired::Role::ControlPlane).count();
        let complete = begun.values().filter(|etcd| etcd.voters() == control_planes && etcd.leader.is_some());
        if complete.count() != 1 {
            wrongs.push("etcd is not complete".into());
        }
    });
    wrongs
}

/// What must hold when a cluster is gone.
pub fn gone(stage: &Stage, expected: &Holdings) -> Wrongs {
    let mut wrongs = Wrongs::new();
    stage.look(|lab| {
        let left = ours(lab);
        if !left.is_empty() {
            wrongs.push(format!("VMs are left: {left:?}"));
        }
        differ(&volumes(lab), &expected.volumes, &mut wrongs);
    });
    wrongs
}

fn differ(is: &Volumes, expected: &Volumes, wrongs: &mut Wrongs) {
    let over: Vec<_> = is.difference(expected).collect();
    let missing: Vec<_> = expected.difference(is).collect();
    if !over.is_empty() || !missing.is_empty() {
        wrongs.push(format!("volumes are left over: {over:?}; missing: {missing:?}"));
    }
}

/// Returns what nobody may be told out of the files of a cluster: keys and tokens, and not certificates.
pub fn secrets(files: &BTreeMap<std::path::PathBuf, Vec<u8>>) -> Vec<String> {
    let bundle = files.iter().find(|(path, _)| path.ends_with("secrets.yaml")).expect("secrets").1;
    let lines = String::from_utf8_lossy(bundle).into_owned();
    let values = lines.lines().filter_map(|line| line.trim().split_once(": "));
    let secret = values.filter(|(key, value)| !matches!(*key, "crt" | "id") && value.len() > 12);
    secret.map(|(_, value)| value.trim_matches(['"', '\'']).to_owned()).collect()
}
