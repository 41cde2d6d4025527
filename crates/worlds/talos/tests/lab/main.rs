//! Our client at the lab's machines: over TCP on loopback, real TLS and real gRPC.

mod bench;

use std::time::Duration;

use bench::{Bench, PATIENCE, address, authorities, bundle, identity, until};
use ichor_machineconfig::pki::TalosRole;
use ichor_model::desired::Role;
use ichor_net::{Fingerprint, Trust};
use ichor_talos::{
    Admission, Code, Error, Face, api, peek,
    resource::{
        Disk, EtcdMember, ExtensionStatus, HostnameStatus, MachineConfig, MachineStatus, MachineType, Member,
        NodeAddress, NodeStatus, SecurityState, Stage, SystemInformation, TimeStatus, schematic,
    },
};

#[tokio::test]
async fn a_machine_in_maintenance_mode_tells_what_it_is() {
    let bench = Bench::new("v1.13.9").await;
    bench.switch_on(11).await;
    let seen =
        peek(&address(11), &authorities(&bench.bundle), &*bench.tunnel, PATIENCE).await.expect("somebody");
    assert_eq!((seen.face, seen.wants_certificate), (Face::Maintenance, Some(false)), "{seen:?}");
    let machine = bench.maintenance(11, Trust::Pin(seen.fingerprint));
    assert_eq!(machine.send(&api::version()).await.expect("an answer").tag, "v1.13.9");
    let status = machine.find::<MachineStatus>().await.expect("an answer").expect("a status").spec;
    assert_eq!(status.stage, Stage::Maintenance);
    let disks = machine.list::<Disk>().await.expect("disks");
    assert_eq!(disks.iter().map(|disk| disk.spec.dev_path.as_str()).collect::<Vec<_>>(), ["/dev/sda"]);
    assert_eq!(machine.send(&api::disks()).await.expect("disks")[0].size, 20 << 30);
    let uuid = machine.find::<SystemInformation>().await.expect("an answer").expect("a uuid").spec.uuid;
    assert_eq!(uuid, "00000000-0000-4000-8000-00000000000b");
    assert_eq!(
        machine.find_id::<MachineConfig>("v1alpha1").await.map_err(|error| error.code()),
        Err(Some(Code::PermissionDenied))
    );
    let denied =
        machine.send(&api::bootstrap(api::Recovery::None)).await.expect_err("not in maintenance mode");
    // As a real machine of this release answers.
    assert_eq!(denied.code(), Some(Code::PermissionDenied), "{denied}");
    assert!(!denied.may_have_happened(), "{denied}");
}

#[tokio::test]
async fn an_older_machine_in_maintenance_mode_does_not_tell_its_version() {
    let bench = Bench::new("v1.11.6").await;
    bench.switch_on(11).await;
    let error = bench.maintenance(11, Trust::Anybody).send(&api::version()).await.expect_err("too old");
    assert_eq!(error.code(), Some(Code::Unimplemented), "{error}");
}

#[tokio::test]
async fn one_connection_carries_all_calls_and_is_made_again() {
    let bench = Bench::new("v1.13.9").await;
    let client = bench.join(11, Role::ControlPlane).await;
    let before = *bench.tunnel.dialled.lock().expect("a count");
    let (version, services, status) = (api::version(), api::services(), api::get::<MachineStatus>("machine"));
    let (version, services, status) =
        tokio::join!(client.send(&version), client.send(&services), client.send(&status));
    assert!(version.is_ok() && services.is_ok() && status.is_ok(), "{version:?} {services:?} {status:?}");
    assert_eq!(*bench.tunnel.dialled.lock().expect("a count"), before);
    let boot = client.boot_id().await.expect("a boot id");
    client.send(&api::reboot(api::RebootMode::Default)).await.expect("it goes");
    let again = until("another boot", async || client.boot_id().await.ok().filter(|id| *id != boot)).await;
    assert_ne!(again, boot);
    assert!(*bench.tunnel.dialled.lock().expect("a count") > before);
}

#[tokio::test]
async fn a_cluster_comes_to_life() {
    let bench = Bench::new("v1.13.9").await;
    let clients = [
        bench.join(11, Role::ControlPlane).await,
        bench.join(12, Role::ControlPlane).await,
        bench.join(13, Role::ControlPlane).await,
    ];
    let [first, second, _] = &clients;
    assert_eq!(
        first.find::<MachineType>().await.expect("an answer").expect("a type").spec,
        MachineType::ControlPlane
    );
    bench.bootstrap(first).await;
    let twice = first.send(&api::bootstrap(api::Recovery::None)).await.expect_err("it was done");
    assert_eq!(twice.code(), Some(Code::AlreadyExists), "{twice}");
    assert!(!twice.may_have_happened());
    for client in &clients {
        let status = bench.status(client, |status| status.stage == Stage::Running).await;
        assert_eq!(status.stage, Stage::Running);
    }
    let members = until("three members vote", async || {
        let members = second.send(&api::etcd_members(false)).await.ok()?;
        (members.len() == 3 && members.iter().all(|member| !member.is_learner)).then_some(members)
    })
    .await;
    let status = first.send(&api::etcd_status()).await.expect("a status");
    assert!(members.iter().any(|member| member.id == status.leader), "{status:?}");
    let own = first.find::<EtcdMember>().await.expect("an answer").expect("a member").spec.id;
    assert_eq!(own, status.member_id);
    assert_eq!(first.send(&api::etcd_alarm_list()).await, Ok(Vec::new()));
    let etcd = first.send(&api::services()).await.expect("services");
    assert!(etcd.iter().any(|service| service.id == "etcd" && service.is_up()), "{etcd:?}");

    let mut snapshot = Vec::new();
    let length = first.etcd_snapshot(&mut snapshot).await.expect("a snapshot");
    assert_eq!((length, snapshot.is_empty()), (snapshot.len() as u64, false));

    let discovered = first.list::<Member>().await.expect("members");
    assert_eq!(discovered.len(), 3, "{discovered:?}");
    assert!(discovered.iter().all(|member| member.spec.machine_type == MachineType::ControlPlane));
}

#[tokio::test]
async fn resources_are_read() {
    let bench = Bench::new("v1.13.9").await;
    let client = bench.join(11, Role::ControlPlane).await;
    bench.bootstrap(&client).await;
    bench.status(&client, MachineStatus::is_up).await;
    assert_eq!(
        client.find::<HostnameStatus>().await.expect("an answer").expect("a name").spec.hostname,
        "node-11"
    );
    let addresses = client.find::<NodeAddress>().await.expect("an answer").expect("addresses").spec.addresses;
    assert_eq!(addresses[0].to_string(), "10.0.0.11/24");
    assert!(client.find::<TimeStatus>().await.expect("an answer").expect("a clock").spec.is_settled());
    assert!(client.find::<SecurityState>().await.expect("an answer").expect("a state").spec.booted_with_uki);
    let extensions = client.list::<ExtensionStatus>().await.expect("extensions");
    assert_eq!(schematic(&extensions).map(str::len), Some(64));
    let node = client.find_id::<NodeStatus>("node-11").await.expect("an answer").expect("a node").spec;
    assert!(node.node_ready && !node.unschedulable, "{node:?}");
    assert_eq!(client.find_id::<NodeStatus>("nobody").await, Ok(None));
    let unknown =
        client.send(&api::get_raw("runtime", "Dreams.talos.dev", "x")).await.expect_err("no such type");
    assert_eq!(unknown.code(), Some(Code::PermissionDenied), "{unknown}");
}

#[tokio::test]
async fn the_config_is_read_back_as_it_was_sent() {
    for talos in ["v1.9.6", "v1.11.6", "v1.13.9"] {
        let bench = Bench::new(talos).await;
        let client = bench.join(21, Role::ControlPlane).await;
        let sent = String::from_utf8(bench.config(21, Role::ControlPlane, &bench.bundle)).expect("text");
        let active = client.find_id::<MachineConfig>(MachineConfig::ACTIVE).await.expect("an answer");
        assert_eq!(active.expect("a config").spec.0.expose(), sent, "{talos}");
        let persistent = client.find_id::<MachineConfig>(MachineConfig::PERSISTENT).await.expect("an answer");
        assert_eq!(persistent.is_some(), talos != "v1.9.6", "{talos}");
    }
}

#[tokio::test]
async fn a_trial_changes_nothing() {
    let bench = Bench::new("v1.13.9").await;
    let client = bench.join(11, Role::ControlPlane).await;
    let config = bench.config(11, Role::ControlPlane, &bench.bundle);
    let applied = client
        .send(&api::apply_configuration(&config, api::ApplyMode::NoReboot, true))
        .await
        .expect("a trial");
    assert!(applied.details.expose().contains("No changes"), "{}", applied.details.expose());
    assert!(!format!("{applied:?}").contains("No changes"), "differences may hold secrets");
    let wrong = api::apply_configuration(b"machine: [", api::ApplyMode::Auto, false);
    let refused = client.send(&wrong).await.expect_err("no config");
    assert!(matches!(refused.code(), Some(Code::InvalidArgument | Code::Unknown)), "{refused}");
}

#[tokio::test]
async fn a_watch_tells_what_is_and_what_comes() {
    let bench = Bench::new("v1.13.9").await;
    let client = bench.join(11, Role::ControlPlane).await;
    let mut watch = client.open(&api::watch::<MachineStatus>(Some("machine"))).await.expect("a watch");
    bench.bootstrap(&client).await;
    let mut seen = Vec::new();
    while !seen.iter().any(MachineStatus::is_up) {
        let next = tokio::time::timeout(PATIENCE, watch.next()).await.expect("in time").expect("no error");
        for event in next.expect("a watch has no end") {
            if let api::Event::Is(resource) = event {
                seen.push(resource.spec);
            }
        }
    }
    assert_eq!(seen[0].stage, Stage::Booting, "{seen:?}");
    let mut members = client.open(&api::watch::<Member>(None)).await.expect("a watch");
    let mut events = Vec::new();
    while !events.contains(&api::Event::Complete) {
        let next = tokio::time::timeout(PATIENCE, members.next()).await.expect("in time").expect("no error");
        events.extend(next.expect("a watch has no end"));
    }
    assert!(matches!(&events[0], api::Event::Is(member) if member.spec.hostname == "node-11"), "{events:?}");
}

#[tokio::test]
async fn strangers_are_told_apart() {
    let bench = Bench::new("v1.13.9").await;
    let admin = identity(&bench.bundle, &[TalosRole::Admin]);

    let nobody = bench.admin(99).send(&api::version()).await.expect_err("nobody is there");
    assert!(matches!(nobody, Error::NotReached { .. }), "{nobody}");
    assert!(nobody.may_pass());

    bench.switch_on(11).await;
    let fresh = bench.admin(11).send(&api::version()).await.expect_err("it has no config");
    assert!(
        matches!(&fresh, Error::NotTrusted { shown: Some(shown), .. } if shown.face == Face::Maintenance),
        "{fresh}"
    );

    let wanted = Fingerprint::of(&authorities(&bench.bundle)[0]).to_string();
    assert!(fresh.to_string().contains(&wanted), "{fresh}");
    assert!(fresh.to_string().contains("it is a machine in maintenance mode"), "{fresh}");

    let wrong = Fingerprint::of(b"another certificate");
    let other =
        bench.maintenance(11, Trust::Pin(wrong)).send(&api::version()).await.expect_err("another one");
    let Error::NotTrusted { why, shown: Some(shown), .. } = &other else { panic!("{other}") };
    assert!(why.contains(&wrong.to_string()) && why.contains(&shown.fingerprint.to_string()), "{why}");

    bench.join_as(12, Role::ControlPlane, &bundle(2)).await;
    let stranger = bench.admin(12).send(&api::version()).await.expect_err("another cluster's");
    assert!(
        matches!(&stranger, Error::NotTrusted { shown: Some(shown), .. } if shown.face == Face::OtherCluster),
        "{stranger}"
    );
    let seen =
        peek(&address(12), &authorities(&bundle(2)), &*bench.tunnel, PATIENCE).await.expect("somebody");
    assert_eq!((seen.face, seen.wants_certificate), (Face::Ours, Some(true)));

    let uninvited =
        bench.client(12, &bundle(2), &admin).send(&api::version()).await.expect_err("not its client");
    assert!(matches!(&uninvited, Error::NotAdmitted { why: Admission::RefusesOurs(_), .. }), "{uninvited}");
    let insecure =
        bench.maintenance(12, Trust::Anybody).send(&api::version()).await.expect_err("it is configured");
    assert!(matches!(&insecure, Error::NotAdmitted { why: Admission::WantsCertificate, .. }), "{insecure}");
    for error in [nobody, fresh, other, stranger, uninvited, insecure] {
        assert!(!error.may_have_happened(), "{error}");
    }
}

#[tokio::test]
async fn roles_bound_what_is_allowed() {
    let bench = Bench::new("v1.13.9").await;
    bench.join(11, Role::ControlPlane).await;
    let reader = bench.client(11, &bench.bundle, &identity(&bench.bundle, &[TalosRole::Reader]));
    reader.send(&api::version()).await.expect("readers may ask");
    let refused = reader.send(&api::reboot(api::RebootMode::Default)).await.expect_err("readers may not");
    assert_eq!(refused.code(), Some(Code::PermissionDenied), "{refused}");
}

#[tokio::test]
async fn etcd_begins_again_with_a_snapshot() {
    let bench = Bench::new("v1.13.9").await;
    let client = bench.join(11, Role::ControlPlane).await;
    bench.bootstrap(&client).await;
    bench.status(&client, MachineStatus::is_up).await;
    let mut snapshot = Vec::new();
    client.etcd_snapshot(&mut snapshot).await.expect("a snapshot");
    let boot = client.boot_id().await.expect("a boot id");
    let wipe = api::Wipe::Partitions(vec!["EPHEMERAL".into()]);
    client.send(&api::reset(&api::Reset { graceful: false, reboot: true, wipe })).await.expect("it begins");
    until("another boot", async || client.boot_id().await.ok().filter(|id| *id != boot)).await;
    until("the snapshot is taken", async || client.etcd_recover(&mut &snapshot[..]).await.ok()).await;
    let mut bootstrapped = false;
    until("etcd begins again", async || {
        bootstrapped |= client.send(&api::bootstrap(api::Recovery::Snapshot)).await.is_ok();
        bootstrapped.then_some(())
    })
    .await;
    bench.status(&client, MachineStatus::is_up).await;
    assert_eq!(client.send(&api::etcd_members(false)).await.expect("members").len(), 1);
}

#[tokio::test]
async fn machines_are_upgraded_both_ways() {
    let image = "factory.talos.dev/nocloud-installer/376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba";
    let new = Bench::new("v1.13.8").await;
    let client = new.join(11, Role::ControlPlane).await;
    let wanted = format!("{image}:v1.13.9");
    let news = client.gather(&api::pull_image(&wanted)).await.expect("an image");
    assert!(matches!(news.last(), Some(api::Pull::Done(_))), "{news:?}");
    let news = client.gather(&api::lifecycle_upgrade(&wanted)).await.expect("an upgrade");
    assert_eq!(news.last(), Some(&api::Progress::Ended(0)), "{news:?}");
    client.send(&api::reboot(api::RebootMode::Default)).await.expect("it goes");
    let is_new = async || client.send(&api::version()).await.ok().filter(|version| version.tag == "v1.13.9");
    until("the new version runs", is_new).await;

    let old = Bench::new("v1.11.5").await;
    let client = old.join(11, Role::ControlPlane).await;
    old.bootstrap(&client).await;
    old.status(&client, MachineStatus::is_up).await;
    let how = api::UpgradeRequest {
        image: format!("{image}:v1.11.6"),
        stage: false,
        force: false,
        power_cycle: false,
    };
    let said = client.send(&api::upgrade(&how)).await.expect("an upgrade");
    assert_eq!(said, "Upgrade request received");
    let is_new = async || client.send(&api::version()).await.ok().filter(|version| version.tag == "v1.11.6");
    until("the new version runs", is_new).await;
    let missing = client.gather(&api::lifecycle_upgrade("x")).await.expect_err("too old");
    assert_eq!(missing.code(), Some(Code::Unimplemented), "{missing}");
}

#[tokio::test]
async fn a_machine_that_answers_late_is_given_up() {
    let bench = Bench::new("v1.13.9").await;
    let client = bench.join(11, Role::ControlPlane).await;
    let error = client.send(&api::version().within(Duration::ZERO)).await.expect_err("no time at all");
    assert!(matches!(error, Error::NotReached { .. } | Error::Lost { .. }), "{error}");
    client.send(&api::version()).await.expect("the next call is not harmed");
}
