//! Machines that do not come up as they should.

use std::time::Duration;

use ichor_model::{
    Stamp,
    observed::{MachineSeen, Sight},
};
use ichor_sim::{
    Lab,
    faults::{Kind, Server, When},
    profile::Profile,
    setup::Setup,
};

use tokio::time::Instant;

use super::{SMALL, news_spread, shows, shows_untouched};
use crate::{
    converge::{Goal, look},
    steps::configure,
    tests::live::Rehearsal,
};

#[tokio::test(start_paused = true)]
async fn a_silent_guest_agent_is_waited_for_and_named() {
    let leases = [("vmbr0".to_owned(), ([10, 0, 0, 100].into(), [10, 0, 0, 199].into(), 24))];
    let setup = Setup { leases: leases.into(), ..Setup::new(1, Profile::Lab) };
    let inventory = "\
cluster: {name: lab, talos: v1.13.9, kubernetes: v1.36.3, endpoint: {vip: 10.0.0.5}}
proxmox: {endpoint: 'https://pve1:8006', hosts: [pve1, pve2, pve3], storage: {disks: local-lvm, images: local}}
network: {cidr: 10.0.0.0/24, gateway: 10.0.0.1, dns: 10.0.0.1, addressing: dhcp}
image: {extensions: [siderolabs/qemu-guest-agent]}
machines:
  cp: {role: control-plane, count: 1, host: pve2}
";
    let world = Rehearsal::of(inventory, &setup);
    let vmid = world.vmid("cp-1");
    world.befall_with(
        &format!("POST /nodes/*/qemu/{vmid}/status/start"),
        1,
        When::After,
        &format!("agent-silent {vmid}"),
    );
    shows("agent-silent", &world).await;
    world.mend();
    world.befall(&format!("agent-back {vmid}"));
    world.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_stays_in_maintenance_mode_is_named() {
    let world = Rehearsal::bad(SMALL);
    let apply = "/machine.MachineService/ApplyConfiguration";
    world.fault(Server::Talos, apply, 0, Kind::Hang(When::Before));
    shows("maintenance-stays", &world).await;
    world.unwell(&[("talos-reachable", "cp-1, worker-1: it waits for its machine config")]).await;
    world.mend();
    let refusal = Kind::Status {
        code: 3,
        reason: "configuration validation failed: 1 error occurred:\n\t* unknown keys".into(),
        when: When::Before,
    };
    world.fault(Server::Talos, apply, 0, refusal);
    shows("config-refused", &world).await;
    world.mend();
    world.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_not_set_is_waited_for_and_named() {
    let world = Rehearsal::bad(SMALL);
    let vmid = world.vmid("cp-1");
    world.befall_with(
        &format!("POST /nodes/*/qemu/{vmid}/status/start"),
        1,
        When::After,
        &format!("clock-lost {vmid}"),
    );
    shows("clock-lost", &world).await;
    world.unwell(&[("time-in-sync", "cp-1: time: ")]).await;
    world.mend();
    world.befall(&format!("clock-set {vmid}"));
    world.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn machines_of_other_secrets_are_left_alone() {
    let world = Rehearsal::bad(SMALL);
    world.recovers().await;
    let namesake = world.namesake();
    shows_untouched("namesake", &namesake).await;
    namesake.unwell(&[("vm-ours", "another cluster of this name made it, with other secrets")]).await;
    // Stamps need not name secrets: then the machines have to be asked.
    world.change(forget_secrets);
    shows_untouched("other-secrets", &namesake).await;
    namesake.unwell(&[("talos-reachable", "another cluster")]).await;
    world.recovers().await;
}

fn forget_secrets(lab: &mut Lab) {
    for vm in lab.pve.vms.values_mut() {
        let Some(notes) = vm.config.current.get_mut("description") else { continue };
        if let Some(mut stamp) = Stamp::read(notes) {
            stamp.secrets = None;
            *notes = stamp.write(None);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_bootstrap_is_no_second_bootstrap() {
    for fault in [Kind::Close(When::After), Kind::Hang(When::After)] {
        let world = Rehearsal::bad(SMALL);
        world.fault(Server::Talos, "/machine.MachineService/Bootstrap", 1, fault);
        world.recovers().await;
        let answers = world.inside.hall().look(|lab| {
            let bootstraps = lab.ground.record.calls.iter().filter(|call| call.path.ends_with("/Bootstrap"));
            bootstraps.map(|call| call.status).collect::<Vec<_>>()
        });
        // The first was lost. While etcd does not show yet it is asked for again, on the same machine: that begins
        // the same etcd, or is told that it has begun.
        assert!(answers.len() <= 2, "{answers:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn health_says_what_is_wrong() {
    let world = Rehearsal::bad(SMALL);
    world.recovers().await;
    let worker = world.vmid("worker-1");
    world.befall(&format!("vm-stopped {worker}"));
    news_spread().await;
    world.unwell(&[("vm-running", "worker-1: VM 3000 is off")]).await;
    world.recovers().await;
    world.befall("host-down pve3");
    world.unwell(&[("vm-host-online", "worker-1: host `pve3` is offline")]).await;
    world.befall("host-up pve3");
    world.befall(&format!("vm-deleted {worker}"));
    world.unwell(&[("vm-there", "worker-1: there is no VM 3000")]).await;
}

/// Kubernetes believes in a node for the best part of a minute after its machine is gone.
#[tokio::test(start_paused = true)]
async fn a_node_whose_machine_is_gone_is_waited_for_anew() {
    let world = Rehearsal::bad(SMALL);
    world.recovers().await;
    world.befall(&format!("vm-deleted {}", world.vmid("worker-1")));
    let (steps, node) = world
        .with(async |live| {
            let observed = look(live).await.expect("a look");
            let plan = Goal::up().plan(live, &observed);
            let steps: Vec<String> = plan.steps().iter().map(|step| step.id.to_string()).collect();
            (steps, observed.nodes.seen().expect("nodes")["worker-1"].clone())
        })
        .await;
    assert!(node.ready && node.boot.is_some(), "Kubernetes has not noticed yet: {node:?}");
    assert!(steps.iter().any(|step| step == "machine/worker-1/ready"), "{steps:?}");
    // The new machine has its name and its uuid, and answers before its kubelet does.
    let ended = world.attempt().await.expect("no halt");
    assert!(ended.done);
    let boots = |observed: &ichor_model::Observed| {
        let name = "worker-1".parse().expect("a name");
        let Some(Sight::Seen(MachineSeen::Ours(talos))) = observed.machines.get(&name) else {
            panic!("it answers: {:?}", observed.machines)
        };
        (talos.boot.clone(), observed.nodes.seen().expect("nodes")["worker-1"].boot.clone())
    };
    let (machine, kubelet) = boots(&ended.observed);
    assert_eq!(machine, kubelet, "its own kubelet has spoken");
    assert_ne!(kubelet, node.boot);
}

/// A serial port keeps nothing: whoever opens it late waits for a key that was printed long ago.
#[tokio::test(start_paused = true)]
async fn a_key_that_was_missed_is_not_waited_for() {
    let world = Rehearsal::bad(SMALL);
    let refusal = Kind::Status { code: 3, reason: "not now".into(), when: When::Before };
    world.fault(Server::Talos, "/machine.MachineService/ApplyConfiguration", 0, refusal);
    assert!(world.attempt().await.is_ok_and(|ended| !ended.done), "both wait for their configs");
    world.mend();
    let waited = world
        .with(async |live| {
            look(live).await.expect("a look");
            let machine = &live.desired.machines[0];
            let host = live.memory.host(machine.vmid).expect("a host");
            configure::listen(live, machine, &host).await;
            let began = Instant::now();
            configure::hear(live, machine).await;
            assert_eq!(live.memory.pinned(&machine.name), None);
            began.elapsed()
        })
        .await;
    assert!(waited < Duration::from_mins(1), "{waited:?}");
    world.recovers().await;
}
