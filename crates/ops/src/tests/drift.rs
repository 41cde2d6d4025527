//! An inventory that is changed once the cluster runs: every difference is told, and nothing is done.

use std::collections::BTreeSet;

use ichor_model::{Findings, Observed};
use ichor_plan::{drift, preflight};
use ichor_sim::{faults::Server, profile::Profile};

use super::{live::Rehearsal, messages, resolve_in};
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
    let world = survey.await.world(&rehearsal.desired);
    rehearsal.desired = resolve_in(&INVENTORY.replace(from, to), &world).expect("an inventory");
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

#[tokio::test(start_paused = true)]
async fn a_machine_that_is_moved_or_renamed_is_recognised() {
    let mut rehearsal = Rehearsal::new(INVENTORY, Profile::Lab);
    assert!(rehearsal.run(Goal::up()).await.done);
    let moved = after(&mut rehearsal, "10.0.0.21", "10.0.0.41").await;
    let told = messages(&moved.drift);
    assert!(
        told.contains("`worker-1` has the address 10.0.0.21, and the inventory says 10.0.0.41"),
        "{told}"
    );
    let moved = after(&mut rehearsal, "10.0.0.11", "10.0.0.61").await;
    let told = messages(&moved.drift);
    assert!(told.contains("`ipconfig0` is `gw=10.0.0.1,ip=10.0.0.11/24`"), "{told}");
    let renamed = after(&mut rehearsal, "  worker:", "  node:").await;
    let told = messages(&renamed.preflight);
    assert!(renamed.preflight.has_errors(), "{told}");
    assert!(told.contains("not in the inventory: `worker-1` (VM 3000) and `worker-2` (VM 3001)"), "{told}");
}
