//! Numbers and addresses that are somebody else's, and VMs that are not where they were.

use std::time::Duration;

use ichor_plan::Extent;
use ichor_sim::faults::{Kind, Server, When};

use super::{SMALL, shows, shows_untouched, told};
use crate::{
    Halt,
    converge::{Ended, Goal},
    tests::{live::Rehearsal, resolve},
};

#[tokio::test(start_paused = true)]
async fn a_stranger_under_our_number_is_left_alone() {
    let world = Rehearsal::bad(SMALL);
    world.recovers().await;
    // The same name, the same tags, and nothing else.
    let vmid = world.vmid("worker-1");
    world.befall(&format!("vm-replaced {vmid}"));
    let stranger = world.config(vmid);
    shows_untouched("vmid-taken", &world).await;
    world.unwell(&[("vm-ours", "VM 3000 is not ours: its notes have no stamp of ichor")]).await;
    assert_eq!(world.config(vmid), stranger);
    world.befall(&format!("vm-deleted {vmid}"));
    world.recovers().await;
}

/// Two inventories of one name, with secrets of their own, begin at the same time.
#[tokio::test(start_paused = true)]
async fn namesakes_that_begin_together_do_not_mix() {
    let ours = Rehearsal::bad(SMALL);
    let theirs = ours.namesake();
    let (one, other) = tokio::join!(ours.attempt(), theirs.attempt());
    let done = |ended: Result<Ended, Halt>| ended.is_ok_and(|ended| ended.done);
    assert!(!(done(one) && done(other)), "there is one set of numbers");
    let mut left = ours.made();
    assert_eq!(left.len(), 2, "{left:?}");
    for world in [&ours, &theirs] {
        let gone = world.run_to(world.reach(), &world.desired, Goal::Gone(Extent::Machines)).await;
        assert!(gone.is_ok_and(|ended| ended.done));
        left.retain(|_, (print, _)| *print != world.print());
        assert_eq!(world.made(), left, "each removes its own, and leaves the other's as they are");
    }
    assert!(left.is_empty(), "every VM was made by one of them");
    ours.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_is_replaced_during_the_run_is_left_alone() {
    // The first look at a VM that was just made; and the first one after that, if there is one before etcd runs.
    for (number, call) in [(1, "config"), (1, "status/current")] {
        let world = Rehearsal::bad(SMALL);
        let vmid = world.vmid("cp-1");
        let call = format!("GET /nodes/*/qemu/{vmid}/{call}");
        world.befall_with(&call, number, When::Before, &format!("vm-replaced {vmid}"));
        let ended = world.attempt().await;
        if ended.is_ok_and(|ended| ended.done) {
            continue; // It was not there yet, and so was not replaced.
        }
        let config = world.config(vmid);
        assert!(config.contains("size=8G") && !config.contains("ichor:"), "{call} {number}: {config}");
        world.mend();
        shows_untouched("vmid-taken-meanwhile", &world).await;
        world.befall(&format!("vm-deleted {vmid}"));
        world.recovers().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_that_answers_is_not_taken() {
    let world = Rehearsal::bad(SMALL);
    world.befall("impostor 10.0.0.11");
    shows_untouched("address-taken", &world).await;
    world.befall("impostor-gone 10.0.0.11");
    world.befall("impostor 10.0.0.5");
    shows_untouched("vip-taken", &world).await;
    world.befall("impostor-gone 10.0.0.5");
    let vmid = world.vmid("cp-1");
    world.befall_with(
        &format!("POST /nodes/*/qemu/{vmid}/status/start"),
        1,
        When::After,
        "impostor 10.0.0.11",
    );
    shows("address-taken-meanwhile", &world).await;
    let applied = world.inside.hall().look(|lab| {
        let applies = |call: &&ichor_sim::record::Call| call.path.ends_with("/ApplyConfiguration");
        lab.ground.record.calls.iter().filter(applies).count()
    });
    assert!(applied <= 1, "only the worker gets a machine config");
    world.mend();
    world.befall("impostor-gone 10.0.0.11");
    world.recovers().await;
    world.befall("impostor 10.0.0.21");
    world.unwell(&[("talos-reachable", "worker-1: it waits for its machine config")]).await;
}

/// A proxy of consoles may let somebody in and say nothing, and the key that was missed is shown again.
#[tokio::test(start_paused = true)]
async fn a_console_that_does_not_open_holds_nobody_up() {
    let world = Rehearsal::bad(SMALL);
    world.fault(Server::Pve, "GET /nodes/*/qemu/*/vncwebsocket", 1, Kind::Hang(When::Before));
    let began = tokio::time::Instant::now();
    world.recovers().await;
    world.change(|lab| assert!(lab.ground.faults.0[0].seen > 0, "no console was opened"));
    assert!(began.elapsed() < Duration::from_mins(5), "{:?}", began.elapsed());
}

/// Whoever waits for a config at an address need not be the VM that the inventory gives it to.
#[tokio::test(start_paused = true)]
async fn a_machine_that_has_its_config_is_never_reset() {
    let world = Rehearsal::bad(SMALL);
    world.recovers().await;
    world.befall("impostor 10.0.0.31");
    for (from, to) in [("10.0.0.11", "10.0.0.31"), ("10.0.0.21", "10.0.0.31")] {
        let moved = resolve(&SMALL.replace(from, to));
        let ended = world.run_with(world.reach(), &moved).await;
        let said = told(&ended);
        assert!(said.starts_with("Preflight") && said.contains("runs with the address"), "{said}");
    }
    let resets = world.inside.hall().look(|lab| {
        let resets =
            lab.ground.record.changing(Server::Pve).filter(|call| call.path.ends_with("/status/reset"));
        resets.count()
    });
    assert_eq!(resets, 0);
}

#[tokio::test(start_paused = true)]
async fn vms_that_are_moved_are_found_again() {
    for when in [When::Before, When::After] {
        let world = Rehearsal::bad(SMALL);
        let vmid = world.vmid("cp-1");
        let start = format!("POST /nodes/*/qemu/{vmid}/status/start");
        world.befall_with(&start, 1, when, &format!("vm-migrated {vmid} pve3"));
        world.recovers().await;
        world.change(|lab| assert_eq!(lab.pve.vms[&vmid].host, "pve3"));
    }
}
