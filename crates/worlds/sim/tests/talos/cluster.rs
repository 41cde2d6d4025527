//! Bootstrapping, joining, quorum, snapshots and recovery.

use ichor_machineconfig::pki::Certificate;
use ichor_model::desired::Role;
use ichor_sim::{ground::KubeView, signal::Signal, wire::RpcReply};
use ichor_talos_proto::{Message, common::Data, machine as api};

use crate::bench::{Bench, address, bundle, first, vmid};

fn bootstrap(bench: &mut Bench, last: u8) -> Result<api::BootstrapResponse, (i32, String)> {
    bench.machine(address(last), "Bootstrap", &api::BootstrapRequest::default())
}

fn service(bench: &mut Bench, last: u8, id: &str) -> String {
    let answer: api::ServiceListResponse =
        bench.machine(address(last), "ServiceList", &()).expect("services");
    let services = answer.messages.into_iter().flat_map(|message| message.services);
    services.filter(|service| service.id == id).map(|service| service.state).next().unwrap_or_default()
}

fn snapshot(bench: &mut Bench, last: u8) -> Result<Vec<u8>, (i32, String)> {
    let admin = Some(bench.admin());
    let reply =
        bench.raw(address(last), "/machine.MachineService/EtcdSnapshot", vec![Vec::new()], &[], admin);
    match reply {
        RpcReply::Messages { messages, .. } => {
            Ok(messages.iter().flat_map(|message| Data::decode(&message[..]).expect("data").bytes).collect())
        }
        RpcReply::Status { code, message } => Err((code, message)),
    }
}

#[test]
fn three_control_planes_and_two_workers_come_up() {
    for talos in ["v1.8.4", "v1.12.6", "v1.13.9", "v1.14.0"] {
        let mut bench = Bench::new(talos);
        bench.cluster();
        let members = bench.members(address(12)).expect("a quorum");
        let names: Vec<&str> = members.iter().map(|member| member.hostname.as_str()).collect();
        assert_eq!(members.len(), 3, "{talos}: {names:?}");
        assert!(members.iter().all(|member| !member.is_learner), "{talos}");
        for last in [11, 12, 13, 21, 22] {
            let status = bench.status(address(last));
            assert!(
                status.starts_with("stage: running\nstatus:\n    ready: true"),
                "{talos} {last}: {status}"
            );
        }
        let (cluster, persona) = bench.lab.kube_persona(address(13)).expect("an API server");
        assert_eq!(bench.lab.machines.clusters().keys().collect::<Vec<_>>(), [&cluster]);
        let served = Certificate::from_der(&persona.certificates[0]).expect("a certificate");
        assert!(served.is_signed_by(bench.bundle.kubernetes.certificate()));
        assert_eq!(bench.lab.kube_addresses().len(), 3);
        let found = bench.resource(address(21), "cluster", "Members.cluster.talos.dev", "node-11");
        assert!(found.is_ok(), "{talos}");
    }
}

#[test]
fn bootstrap_is_refused_where_talos_refuses_it() {
    let mut bench = Bench::new("v1.13.9");
    bench.join(11, Role::ControlPlane);
    bench.join(12, Role::ControlPlane);
    bench.join(21, Role::Worker);
    assert_eq!(bench.version(address(21)), Ok("v1.13.9".into()), "trustd answers before bootstrap");
    assert_eq!(service(&mut bench, 11, "etcd"), "Preparing");
    assert_eq!(bench.members(address(11)).expect_err("no etcd yet"), (2, "context deadline exceeded".into()));
    let worker = bootstrap(&mut bench, 21).expect_err("a worker");
    assert_eq!(worker, (12, "bootstrap is only available on control plane nodes".into()));
    bootstrap(&mut bench, 11).expect("the first");
    let again = bootstrap(&mut bench, 11).expect_err("the second");
    assert_eq!(again, (6, "etcd data directory is not empty".into()));
    for _ in 0..3 {
        bench.minute();
    }
    let joined = bootstrap(&mut bench, 12).expect_err("joined by itself");
    assert_eq!(joined, (6, "etcd data directory is not empty".into()));
    let mut older = Bench::new("v1.12.6");
    older.join(11, Role::ControlPlane);
    older.join(21, Role::Worker);
    let worker = bootstrap(&mut older, 21).expect_err("a worker");
    assert_eq!(worker, (9, "bootstrap can only be performed on a control plane node".into()));
}

#[test]
fn bootstrap_waits_for_services_and_for_the_clock() {
    let mut bench = Bench::new("v1.13.9");
    bench.lab.machines.mishaps.clocks.insert(vmid(111));
    let hardware = bench.hardware(11);
    bench.switch_on(&hardware);
    bench.minute();
    let config = bench.config(Role::ControlPlane, "node-11");
    bench.apply(address(11), config).expect("taken");
    bench.pass(std::time::Duration::from_millis(4500));
    assert_eq!(
        bootstrap(&mut bench, 11).expect_err("too early"),
        (9, "bootstrap is not available yet".into())
    );
    bench.minute();
    let began = bench.lab.ground.now;
    assert_eq!(bootstrap(&mut bench, 11).expect_err("no clock"), (9, "time is not in sync yet".into()));
    assert!(bench.lab.ground.now > began, "it waits before it refuses");
    assert!(bench.status(address(11)).contains("reason: \"time is not synced\""));
}

#[test]
fn machines_of_another_cluster_do_not_join() {
    let mut bench = Bench::new("v1.13.9");
    bench.join(11, Role::ControlPlane);
    bootstrap(&mut bench, 11).expect("bootstrap");
    bench.minute();
    for (last, role, other) in [(12, Role::ControlPlane, bundle(2)), (21, Role::Worker, bundle(3))] {
        let hardware = bench.hardware(last);
        bench.switch_on(&hardware);
        bench.minute();
        let config = bench.config_with(role, "stranger", &other, |_| ());
        bench.apply(address(last), config).expect("a good config");
    }
    for _ in 0..5 {
        bench.minute();
    }
    assert_eq!(bench.members(address(11)).expect("one member").len(), 1);
    assert_eq!(bench.lab.talos_persona(address(21)), None, "no trustd vouches for the worker");
    assert!(bench.lab.talos_persona(address(12)).is_some());
    assert_eq!(bench.version(address(12)).expect_err("other secrets").0, 14);
}

#[test]
fn a_worker_alone_has_no_api() {
    let mut bench = Bench::new("v1.13.9");
    bench.join(21, Role::Worker);
    assert_eq!(bench.version(address(21)).expect_err("nobody signs its certificate").0, 14);
    bench.join(11, Role::ControlPlane);
    bench.minute();
    assert_eq!(bench.version(address(21)), Ok("v1.13.9".into()));
    // Once signed, it does without.
    bench.send(Signal::PowerCut(vmid(111)));
    bench.minute();
    assert_eq!(bench.version(address(21)), Ok("v1.13.9".into()));
}

#[test]
fn without_a_majority_etcd_stands_still() {
    let mut bench = Bench::new("v1.13.9");
    bench.cluster();
    bench.send(Signal::PowerCut(vmid(112)));
    bench.minute();
    assert_eq!(bench.members(address(11)).expect("two of three").len(), 3);
    bench.send(Signal::PowerCut(vmid(113)));
    bench.minute();
    assert_eq!(bench.members(address(11)).expect_err("one of three"), (2, "etcdserver: no leader".into()));
    assert!(snapshot(&mut bench, 11).expect_err("nothing to read").1.contains("no leader"));
    let answer: api::EtcdStatusResponse =
        bench.machine(address(11), "EtcdStatus", &()).expect("the local member answers");
    assert_eq!(answer.messages[0].member_status.as_ref().expect("a status").leader, 0);
    assert!(bench.status(address(11)).contains("etcd not healthy"));
    // With a majority it goes on.
    let hardware = bench.hardware(12);
    let mut back = hardware.clone();
    back.disks[0].content = first_disk(&bench, 112);
    bench.switch_on(&back);
    for _ in 0..3 {
        bench.minute();
    }
    assert_eq!(bench.members(address(11)).expect("two of three").len(), 3);
}

/// The disk that a machine of the bench was started with: media are numbered in the order of their making.
fn first_disk(bench: &Bench, number: u32) -> ichor_sim::ground::ContentId {
    let wanted = format!("node-{}", number - 100);
    let has = |id: &u64| match bench.lab.ground.media.get(ichor_sim::ground::ContentId(*id)) {
        ichor_sim::ground::Content::Installed(installed) => {
            let config = installed.config.as_deref().unwrap_or_default();
            String::from_utf8_lossy(config).contains(&wanted)
        }
        _ => false,
    };
    ichor_sim::ground::ContentId((1..100).find(has).expect("the disk"))
}

#[test]
fn members_leave_are_removed_and_hand_the_lead_on() {
    let mut bench = Bench::new("v1.13.9");
    bench.cluster();
    let members = bench.members(address(11)).expect("members");
    let by_name = |name: &str| members.iter().find(|member| member.hostname == name).expect("a member").id;
    let answer: api::EtcdForfeitLeadershipResponse =
        bench.machine(address(11), "EtcdForfeitLeadership", &()).expect("forfeit");
    let leads = !answer.messages[0].member.is_empty();
    assert!(leads, "the first member led");
    let gone = api::EtcdRemoveMemberByIdRequest { member_id: 12345 };
    let refused: Result<api::EtcdRemoveMemberByIdResponse, _> =
        bench.machine(address(11), "EtcdRemoveMemberByID", &gone);
    assert_eq!(refused.expect_err("no such member").0, 5);
    bench.send(Signal::PowerCut(vmid(113)));
    bench.minute();
    let dead = api::EtcdRemoveMemberByIdRequest { member_id: by_name("node-13") };
    let removed: Result<api::EtcdRemoveMemberByIdResponse, _> =
        bench.machine(address(11), "EtcdRemoveMemberByID", &dead);
    removed.expect("removed");
    assert_eq!(bench.members(address(11)).expect("two").len(), 2);
    // One of two cannot be taken out when the other is dead.
    bench.send(Signal::PowerCut(vmid(112)));
    bench.minute();
    assert!(bench.members(address(11)).is_err());
}

#[test]
fn alarms_are_listed_and_disarmed_and_defragmentation_frees_space() {
    let mut bench = Bench::new("v1.13.9");
    bench.join(11, Role::ControlPlane);
    bootstrap(&mut bench, 11).expect("bootstrap");
    bench.minute();
    let member = bench.members(address(11)).expect("one")[0].id;
    assert!(bench.lab.machines.raise_alarm(member, 1));
    let answer: api::EtcdAlarmListResponse =
        bench.machine(address(11), "EtcdAlarmList", &()).expect("alarms");
    assert_eq!(answer.messages[0].member_alarms[0].alarm, 1);
    let _: api::EtcdAlarmDisarmResponse =
        bench.machine(address(11), "EtcdAlarmDisarm", &()).expect("disarmed");
    let answer: api::EtcdAlarmListResponse =
        bench.machine(address(11), "EtcdAlarmList", &()).expect("alarms");
    assert!(answer.messages[0].member_alarms.is_empty());
    let _: api::EtcdDefragmentResponse =
        bench.machine(address(11), "EtcdDefragment", &()).expect("defragmented");
    let answer: api::EtcdStatusResponse = bench.machine(address(11), "EtcdStatus", &()).expect("status");
    let status = answer.messages[0].member_status.as_ref().expect("a status");
    assert_eq!(status.db_size, status.db_size_in_use);
}

#[test]
fn a_cluster_comes_back_from_a_snapshot() {
    let mut bench = Bench::new("v1.13.9");
    bench.join(11, Role::ControlPlane);
    bootstrap(&mut bench, 11).expect("bootstrap");
    bench.minute();
    let cluster = bench.lab.machines.clusters().keys().next().expect("a cluster").clone();
    let state = b"what Kubernetes knows".to_vec();
    bench.lab.ground.kubernetes.insert(cluster.clone(), KubeView { state, ..KubeView::default() });
    let file = snapshot(&mut bench, 11).expect("a snapshot");
    let reset = api::ResetRequest {
        reboot: true,
        system_partitions_to_wipe: vec![api::ResetPartitionSpec { label: "EPHEMERAL".into(), wipe: true }],
        ..Default::default()
    };
    let _: api::ResetResponse = bench.machine(address(11), "Reset", &reset).expect("reset");
    for _ in 0..3 {
        bench.minute();
    }
    assert_eq!(service(&mut bench, 11, "etcd"), "Preparing", "its data is gone, its config is not");
    let chunks = file
        .chunks(1000)
        .map(|chunk| Data { metadata: None, bytes: chunk.to_vec() }.encode_to_vec())
        .collect();
    let admin = Some(bench.admin());
    let reply = bench.raw(address(11), "/machine.MachineService/EtcdRecover", chunks, &[], admin);
    first::<api::EtcdRecoverResponse>(&reply).expect("uploaded");
    let request = api::BootstrapRequest { recover_etcd: true, recover_skip_hash_check: false };
    let _: api::BootstrapResponse = bench.machine(address(11), "Bootstrap", &request).expect("recovery");
    for _ in 0..3 {
        bench.minute();
    }
    assert_eq!(bench.members(address(11)).expect("one").len(), 1);
    assert!(bench.lab.machines.clusters().len() == 2, "the same machine, another cluster id");
}

#[test]
fn a_damaged_snapshot_shows_in_the_service() {
    let mut bench = Bench::new("v1.13.9");
    bench.join(11, Role::ControlPlane);
    let admin = Some(bench.admin());
    let chunk = Data { metadata: None, bytes: vec![1; 544] }.encode_to_vec();
    let reply = bench.raw(address(11), "/machine.MachineService/EtcdRecover", vec![chunk], &[], admin);
    first::<api::EtcdRecoverResponse>(&reply).expect("uploaded");
    let request = api::BootstrapRequest { recover_etcd: true, recover_skip_hash_check: false };
    let _: api::BootstrapResponse =
        bench.machine(address(11), "Bootstrap", &request).expect("answered at once");
    bench.minute();
    assert_eq!(service(&mut bench, 11, "etcd"), "Failed");
}

#[test]
fn calls_are_routed_by_control_planes_only() {
    let mut bench = Bench::new("v1.13.9");
    bench.cluster();
    let admin = Some(bench.admin());
    let version = "/machine.MachineService/Version";
    let hostname = "/machine.MachineService/Hostname";
    let reply = bench.raw(address(11), hostname, vec![Vec::new()], &[("node", "10.0.0.21")], admin.clone());
    let answer: api::HostnameResponse = first(&reply).expect("proxied");
    assert_eq!((answer.messages[0].hostname.as_str(), &answer.messages[0].metadata), ("node-21", &None));
    let many = [("nodes", "10.0.0.12"), ("nodes", "10.0.0.99")];
    let reply = bench.raw(address(11), hostname, vec![Vec::new()], &many, admin.clone());
    let answer: api::HostnameResponse = first(&reply).expect("gathered");
    let metadata: Vec<_> =
        answer.messages.iter().map(|message| message.metadata.clone().expect("metadata")).collect();
    assert_eq!(
        (answer.messages[0].hostname.as_str(), metadata[0].hostname.as_str()),
        ("node-12", "10.0.0.12")
    );
    assert_eq!(metadata[1].status.as_ref().expect("a status").code, 14);
    let mut ask = |to: u8, method: &str, metadata: &[(&str, &str)]| {
        first::<api::VersionResponse>(&bench.raw(
            address(to),
            method,
            vec![Vec::new()],
            metadata,
            admin.clone(),
        ))
    };
    assert_eq!(ask(21, version, &[("node", "10.0.0.11")]), Err((7, "no request forwarding".into())));
    assert!(ask(21, version, &[("node", "10.0.0.21")]).is_ok(), "a local target is no forwarding");
    let two = [("node", "10.0.0.11"), ("node", "10.0.0.12")];
    assert_eq!(ask(11, version, &two), Err((3, "node metadata must be single-valued".into())));
    let text = "one-2-many proxying is not supported for method /cosi.resource.State/Get";
    assert_eq!(ask(11, "/cosi.resource.State/Get", &[("nodes", "10.0.0.11")]), Err((3, text.into())));
}

#[test]
fn a_shared_address_moves_when_its_holder_dies() {
    let mut bench = Bench::new("v1.13.9");
    let vip = address(20);
    for last in 11..=13 {
        let hardware = bench.hardware(last);
        bench.switch_on(&hardware);
        bench.minute();
        let mut config = bench.config(Role::ControlPlane, &format!("node-{last}"));
        config.extend_from_slice(
            b"---\napiVersion: v1alpha1\nkind: Layer2VIPConfig\nname: 10.0.0.20\nlink: eth0\n",
        );
        bench.apply(address(last), config).expect("taken");
        bench.minute();
    }
    assert!(bench.lab.machines.owner(vip).is_none(), "nobody before bootstrap");
    bootstrap(&mut bench, 11).expect("bootstrap");
    for _ in 0..4 {
        bench.minute();
    }
    let holder = bench.lab.machines.owner(vip).expect("somebody").vmid();
    assert!(bench.lab.kube_persona(vip).is_some());
    bench.send(Signal::PowerCut(holder));
    assert!(bench.lab.machines.owner(vip).is_none());
    bench.minute();
    bench.minute();
    assert_ne!(bench.lab.machines.owner(vip).expect("another").vmid(), holder);
}
