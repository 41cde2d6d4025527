//! Proxmox does not let us in, is not there, or has no room.

use ichor_net::{Fingerprint, Trust};
use ichor_port::Secret;
use ichor_sim::faults::{Kind, Server, When};

use super::{SMALL, compare, news_spread, shows, shows_untouched};
use crate::tests::{live::Rehearsal, resolve};

#[tokio::test(start_paused = true)]
async fn a_wrong_token_is_not_let_in() {
    let world = Rehearsal::bad(SMALL);
    let mut reach = world.reach();
    reach.token = ichor_pve::Token::parse(&Secret::new("ichor@pve!lab=00000000-0000-0000-0000-000000000000"))
        .expect("a token");
    compare("wrong-token", &world.attempt_with(reach).await);
    assert_eq!(world.changed(), 0);
    world.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn a_wrong_fingerprint_is_not_trusted() {
    let world = Rehearsal::bad(SMALL);
    let mut reach = world.reach();
    reach.proxmox = Trust::Pin(Fingerprint::of(b"another"));
    compare("wrong-fingerprint", &world.attempt_with(reach).await);
    assert_eq!(world.changed(), 0);
    world.befall_with("POST /nodes/pve2/qemu", 1, When::After, "certificate-swapped");
    shows("fingerprint-changes", &world).await;
    world.mend();
    world.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn a_proxmox_that_is_not_reached_is_named() {
    let world = Rehearsal::bad(SMALL);
    let nowhere = resolve(&SMALL.replace("https://pve1:8006", "https://pve9:8006"));
    compare("unknown-name", &world.run_with(world.reach(), &nowhere).await);
    world.befall("host-down pve1");
    shows_untouched("not-reached", &world).await;
    world.befall("host-up pve1");
    world.befall_with("POST /nodes/pve2/qemu/*/status/start", 1, When::After, "host-down pve1");
    shows("not-reached-any-more", &world).await;
    world.mend();
    world.befall("host-up pve1");
    world.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_down_is_named() {
    let world = Rehearsal::bad(SMALL);
    world.befall("host-down pve2");
    shows_untouched("host-down", &world).await;
    world.befall("host-up pve2");
    world.befall_with("POST /nodes/pve2/qemu/*/status/start", 1, When::After, "host-down pve2");
    shows("host-down-at-start", &world).await;
    world.mend();
    world.befall("host-up pve2");
    world.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_goes_down_while_it_makes_a_vm_leaves_a_lock() {
    let world = Rehearsal::bad(SMALL);
    world.befall_with("POST /nodes/pve2/qemu", 1, When::After, "host-down pve2");
    shows("host-down-at-create", &world).await;
    world.mend();
    world.befall("host-up pve2");
    shows_untouched("lock-of-nobody", &world).await;
    // As the remedy says.
    world.befall(&format!("vm-deleted {}", world.vmid("cp-1")));
    world.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn a_storage_must_be_able_to_hold_what_it_is_for() {
    let world = Rehearsal::bad(SMALL);
    let content = |world: &Rehearsal, storage: &str, kind: &str, there: bool| {
        world.change(|lab| {
            let content = &mut lab.pve.storage.definitions.get_mut(storage).expect("a storage").content;
            if there { content.insert(kind.to_owned()) } else { content.remove(kind) }
        });
    };
    content(&world, "local", "import", false);
    content(&world, "local-lvm", "images", false);
    news_spread().await;
    shows_untouched("storage-content", &world).await;
    content(&world, "local", "import", true);
    content(&world, "local-lvm", "images", true);
    world.befall("storage-broken local-lvm");
    news_spread().await;
    shows_untouched("storage-broken", &world).await;
    world.befall("storage-mended local-lvm");
    world.befall_with("POST /nodes/*/qemu", 1, When::Before, "storage-broken local-lvm");
    shows("storage-breaks", &world).await;
    world.mend();
    world.befall("storage-mended local-lvm");
    world.recovers().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_storage_is_told_before_and_when_it_fails() {
    let world = Rehearsal::bad(SMALL);
    let full = "unable to create image: qemu-img: No space left on device";
    world.fault(Server::Pve, "POST /nodes/*/qemu", 0, Kind::TaskFails(full.into()));
    world.befall("storage-full local-lvm");
    news_spread().await;
    shows("storage-full", &world).await;
    world.mend();
    world.befall("storage-freed local-lvm");
    world.recovers().await;
}

/// A control plane on every host, so that one can be lost.
pub const SPREAD: &str = "\
cluster: {name: lab, talos: v1.13.9, kubernetes: v1.36.3, endpoint: {vip: 10.0.0.5}}
proxmox: {endpoint: 'https://pve1:8006', hosts: [pve1, pve2, pve3], storage: {disks: local-lvm, images: local}}
network: {cidr: 10.0.0.0/24, gateway: 10.0.0.1, dns: 10.0.0.1}
machines:
  cp-1: {role: control-plane, address: 10.0.0.11, host: pve1}
  cp-2: {role: control-plane, address: 10.0.0.12, host: pve2}
  cp-3: {role: control-plane, address: 10.0.0.13, host: pve3}
  worker: {role: worker, address: 10.0.0.21, host: pve3}
";

/// Whoever loses a host wants to know what is left.
#[tokio::test(start_paused = true)]
async fn a_host_that_is_lost_says_what_is_left_without_it() {
    let world = Rehearsal::bad(SPREAD);
    world.recovers().await;
    let worker = world.vmid("worker");
    world.befall(&format!("vm-deleted {worker}"));
    world.befall_with(
        &format!("POST /nodes/pve3/qemu/{worker}/status/start"),
        1,
        When::Before,
        "host-down pve3",
    );
    shows("host-lost", &world).await;
    world.mend();
    shows_untouched("host-lost-before", &world).await;
    world.befall("host-down pve2");
    shows_untouched("quorum-lost", &world).await;
    world.befall("host-up pve2");
    world.befall("host-up pve3");
    world.recovers().await;
}
