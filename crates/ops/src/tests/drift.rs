//! An inventory that is changed once the cluster runs: every difference is told, and nothing is done.

use std::collections::BTreeSet;

use ichor_model::{Findings, Observed};
use ichor_plan::{drift, preflight};
use ichor_sim::{faults::Server, profile::Profile};

use super::{live::Rehearsal, messages, resolve, resolve_in};
use crate::converge::{Goal, first_look, look};

const INVENTORY: &str = "\
cluster: {name: lab, talos: v1.13.9, kubernetes: v1.36.3, endpoint: {vip: 10.0.0.5}}
proxmox: {endpoint: 'https://pve1:8006', hosts: [pve1, pve2, pve3], storage: {disks: local-lvm, images: local}}
network: {cidr: 10.0.0.0/24, gateway: 10.0.0.1, dns: 10.0.0.1}
machines:
  cp: {role: control-plane, count: 1, address: 10.0.0.11}
  worker: {role: worker, count: 2, address: 10.0.0.21, memory: 4GiB}
";

/// What the next command sees and has to say after a change of the inventory.
struct Next {
    observed: Observed,
    steps: usize,
    drift: Findings,
    preflight: Findings,
    /// Calls to Proxmox for the whole look.
    calls: usize,
}

async fn after(rehearsal: &mut Rehearsal, from: &str, to: &str) -> Next {
    assert!(INVENTORY.contains(from), "{from}");
    let survey = rehearsal.with(async |live| first_look(&live.pve, live.desired).await.expect("a look"));
    let inventory = INVENTORY.replace(from, to);
    let world = survey.await.world(&resolve(&inventory));
    rehearsal.desired = resolve_in(&inventory, &world).expect("an inventory");
    let calls = || {
        rehearsal
            .inside
            .hall()
            .look(|lab| lab.ground.record.calls.iter().filter(|call| call.server == Server::Pve).count())
    };
    rehearsal
        .with(async |live| {
            let before = calls();
            let observed = look(live).await.expect("a look");
            Next {
                calls: calls() - before,
                steps: Goal::up().plan(live, &observed).steps().len(),
                drift: drift(live.desired, &observed),
                preflight: preflight(live.desired, &observed),
                observed,
            }
        })
        .await
}

#[tokio::test(start_paused = true)]
async fn changes_that_are_not_made_yet_are_told() {
    let mut rehearsal = Rehearsal::new(INVENTORY, Profile::Lab);
    let ended = rehearsal.run(Goal::up()).await;
    assert!(ended.done, "{:#?}", ended.report);
    let same = after(&mut rehearsal, "name: lab", "name: lab").await;
    assert!(same.drift.is_empty() && same.steps == 0, "{:#?}", same.drift);
    assert!(same.calls <= rehearsal.desired.machines.len() + 8, "{} calls", same.calls);
    let cases: [(&str, &str, &[&str], &str); 9] = [
        (
            "talos: v1.13.9",
            "talos: v1.13.8",
            &["ICH-3131", "ICH-3133"],
            "run Talos v1.13.9, and the inventory says v1.13.8",
        ),
        (
            "v1.36.3",
            "v1.36.2",
            &["ICH-3131", "ICH-3133"],
            "run Kubernetes v1.36.3, and the inventory says v1.36.2",
        ),
        ("memory: 4GiB", "memory: 6GiB", &["ICH-3130"], "`memory` is `4096`, wanted `6144`"),
        ("hosts: [", "pool: k8s, hosts: [", &["ICH-3130"], "it is in no pool, wanted `k8s`"),
        ("10.0.0.0/24", "10.0.0.0/16", &["ICH-3130", "ICH-3133"], "wanted `gw=10.0.0.1,ip=10.0.0.21/16`"),
        (
            "network:",
            "image: {extensions: [qemu-guest-agent, iscsi-tools]}\nnetwork:",
            &["ICH-3132", "ICH-3133"],
            "run another image",
        ),
        ("vip: 10.0.0.5", "vip: 10.0.0.6", &["ICH-3133"], "cluster.controlPlane.endpoint"),
        (
            "role: worker, count: 2",
            "role: worker, count: 1",
            &["ICH-3135"],
            "`worker-2` (VM 3001) of this cluster",
        ),
        (
            "machines:",
            "os: {sysctls: {vm.max_map_count: 262144}}\nmachines:",
            &["ICH-3133"],
            "machine.sysctls",
        ),
    ];
    for (from, to, codes, says) in cases {
        let next = after(&mut rehearsal, from, to).await;
        let told: BTreeSet<String> = next.drift.iter().map(|finding| finding.code.to_string()).collect();
        let wanted: BTreeSet<String> = codes.iter().map(|code| (*code).to_owned()).collect();
        assert_eq!(told, wanted, "{to}: {}", messages(&next.drift));
        assert!(messages(&next.drift).contains(says), "{to}: {}", messages(&next.drift));
        assert!(!next.preflight.has_errors() && next.steps == 0, "{to}: {:#?}", next.preflight);
        let shown = serde_json::to_string(&next.observed).expect("JSON");
        assert!(!shown.contains("PRIVATE KEY"), "{to}");
    }
}

/// Each answers at the address of the other, and knows our secrets.
#[tokio::test(start_paused = true)]
async fn machines_that_change_places_are_told_apart() {
    let mut rehearsal = Rehearsal::new(INVENTORY, Profile::Lab);
    assert!(rehearsal.run(Goal::up()).await.done);
    let workers = "  worker: {role: worker, count: 2, address: 10.0.0.21, memory: 4GiB}";
    let swapped = format!(
        "{}\n{}",
        workers.replace("worker:", "worker-1:").replace("count: 2, address: 10.0.0.21", "address: 10.0.0.22"),
        workers.replace("worker:", "worker-2:").replace("count: 2, ", ""),
    );
    let next = after(&mut rehearsal, workers, &swapped).await;
    let told = messages(&next.preflight);
    assert!(
        told.contains("`worker-1` runs with the address 10.0.0.21") && next.preflight.has_errors(),
        "{told}"
    );
}

/// An address that nobody wrote follows from the machines before it, and must not when the machine is there.
#[tokio::test(start_paused = true)]
async fn a_group_that_grows_moves_no_machine() {
    let counted = "  a: {role: worker, count: 1}\n  b: {role: worker, count: 1}";
    let from = "  worker: {role: worker, count: 2, address: 10.0.0.21, memory: 4GiB}";
    let mut rehearsal = Rehearsal::new(&INVENTORY.replace(from, counted), Profile::Lab);
    assert!(rehearsal.run(Goal::up()).await.done);
    let grown = counted.replace("a: {role: worker, count: 1", "a: {role: worker, count: 2");
    let grown = after(&mut rehearsal, from, &grown).await;
    assert!(!grown.preflight.has_errors() && grown.steps > 0, "{:#?}", grown.preflight);
    assert!(rehearsal.run(Goal::up()).await.done);
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_moved_or_renamed_is_recognised() {
    let mut rehearsal = Rehearsal::new(INVENTORY, Profile::Lab);
    assert!(rehearsal.run(Goal::up()).await.done);
    for (from, to, name) in [("10.0.0.21", "10.0.0.41", "worker-1"), ("10.0.0.11", "10.0.0.61", "cp-1")] {
        let moved = after(&mut rehearsal, from, to).await;
        let told = messages(&moved.drift);
        let warned = format!("`{name}` has the address {from}, and the inventory says {to}");
        assert!(told.contains(&warned), "`status` warns: {told}");
        let told = messages(&moved.preflight);
        let refused = format!("`{name}` runs with the address {from}, and the inventory gives it {to}");
        assert!(moved.preflight.has_errors() && told.contains(&refused), "{told}");
        let at = moved.preflight.iter().find_map(|finding| finding.at).expect("a place in the inventory");
        let text = INVENTORY.replace(from, to);
        assert_eq!(&text[at.start as usize..at.end as usize], to);
        let changes = rehearsal.changes();
        let halt = rehearsal.try_run(Goal::up()).await.expect_err("nothing is begun");
        assert_eq!((halt.kind, rehearsal.changes()), (crate::HaltKind::Preflight, changes));
    }
    let renamed = after(&mut rehearsal, "  worker:", "  node:").await;
    let told = messages(&renamed.preflight);
    assert!(renamed.preflight.has_errors(), "{told}");
    assert!(told.contains("not in the inventory: `worker-1` (VM 3000) and `worker-2` (VM 3001)"), "{told}");
}
