//! Upgrades, rollbacks, resets, reboots and shutdowns.

use std::time::Duration;

use ichor_model::desired::Role;
use ichor_sim::{ground::Content, signal::Signal, wire::RpcReply};
use ichor_talos_proto::{Message, machine as api, storage};

use crate::bench::{Bench, EMPTY_SCHEMATIC, address, first, vmid};

fn installer(version: &str) -> String {
    format!("factory.talos.dev/nocloud-installer/{EMPTY_SCHEMATIC}:{version}")
}

/// Runs a call whose answer is a stream to its end.
fn stream<M: Message + Default>(
    bench: &mut Bench,
    method: &str,
    request: &impl Message,
) -> Result<Vec<M>, (i32, String)> {
    let admin = Some(bench.admin());
    match bench.raw(address(11), method, vec![request.encode_to_vec()], &[], admin) {
        RpcReply::Messages { mut messages, stream } => {
            if let Some(stream) = stream {
                let (more, ended) = bench.follow(stream);
                assert!(ended, "{method} ends");
                messages.extend(more);
            }
            Ok(messages.iter().map(|message| M::decode(&message[..]).expect("a message")).collect())
        }
        RpcReply::Status { code, message } => Err((code, message)),
    }
}

fn lifecycle_upgrade(bench: &mut Bench, image: &str) -> Result<i32, (i32, String)> {
    use api::lifecycle_service_install_progress::Response;
    let source = Some(api::InstallArtifactsSource { image_name: image.into() });
    let request = api::LifecycleServiceUpgradeRequest { containerd: None, source };
    let messages: Vec<api::LifecycleServiceUpgradeResponse> =
        stream(bench, "/machine.LifecycleService/Upgrade", &request)?;
    match messages.last().and_then(|message| message.progress.clone()).and_then(|progress| progress.response)
    {
        Some(Response::ExitCode(code)) => Ok(code),
        other => panic!("no exit code: {other:?}"),
    }
}

fn pull(bench: &mut Bench, image: &str) -> Result<usize, (i32, String)> {
    let request = api::ImageServicePullRequest { containerd: None, image_ref: image.into() };
    let messages: Vec<api::ImageServicePullResponse> = stream(bench, "/machine.ImageService/Pull", &request)?;
    Ok(messages.len())
}

fn reboot(bench: &mut Bench) {
    let _: api::RebootResponse =
        bench.machine(address(11), "Reboot", &api::RebootRequest::default()).expect("reboot");
    for _ in 0..5 {
        bench.minute();
    }
}

#[test]
fn the_lifecycle_service_upgrades_without_a_reboot_of_its_own() {
    let mut bench = Bench::new("v1.13.8");
    bench.join(11, Role::ControlPlane);
    let image = installer("v1.13.9");
    let early = lifecycle_upgrade(&mut bench, &image).expect_err("not pulled");
    assert_eq!(early.0, 13);
    assert_eq!(pull(&mut bench, &image), Ok(4));
    let before = bench.boot_id(address(11));
    assert_eq!(lifecycle_upgrade(&mut bench, &image), Ok(0));
    assert_eq!(
        (bench.version(address(11)), bench.boot_id(address(11))),
        (Ok("v1.13.8".into()), before.clone())
    );
    reboot(&mut bench);
    assert_eq!(bench.version(address(11)), Ok("v1.13.9".into()));
    assert_ne!(bench.boot_id(address(11)), before);
}

#[test]
fn what_does_not_boot_is_rolled_back() {
    let mut bench = Bench::new("v1.13.8");
    bench.join(11, Role::ControlPlane);
    bench.lab.machines.mishaps.boots.insert("v1.13.9".into());
    let image = installer("v1.13.9");
    pull(&mut bench, &image).expect("pulled");
    assert_eq!(lifecycle_upgrade(&mut bench, &image), Ok(0));
    reboot(&mut bench);
    assert_eq!(bench.version(address(11)), Ok("v1.13.8".into()), "it came back with what it had");
}

#[test]
fn pulls_and_installers_fail_as_told() {
    let mut bench = Bench::new("v1.13.8");
    bench.join(11, Role::ControlPlane);
    bench.lab.machines.mishaps.pulls.insert("broken".into());
    assert_eq!(pull(&mut bench, "example.org/broken:v1").expect_err("not found").0, 2);
    let image = installer("v1.13.9");
    pull(&mut bench, &image).expect("pulled");
    bench.lab.machines.mishaps.installs.insert("v1.13.9".into());
    assert_eq!(lifecycle_upgrade(&mut bench, &image), Ok(1), "an exit code is data");
    let far = installer("v1.17.0");
    pull(&mut bench, &far).expect("pulled");
    assert_eq!(lifecycle_upgrade(&mut bench, &far), Ok(1), "too far for one step");
    let mut older = Bench::new("v1.12.6");
    older.join(11, Role::ControlPlane);
    assert_eq!(
        pull(&mut older, "x").expect_err("not in 1.12"),
        (12, "unknown service machine.ImageService".into())
    );
}

#[test]
fn the_older_upgrade_drains_installs_and_reboots() {
    let mut bench = Bench::new("v1.12.6");
    bench.cluster();
    let request = api::UpgradeRequest { image: installer("v1.13.9"), ..Default::default() };
    let answer: api::UpgradeResponse = bench.machine(address(11), "Upgrade", &request).expect("taken");
    assert_eq!(answer.messages[0].ack, "Upgrade request received");
    assert!(bench.status(address(11)).starts_with("stage: upgrading"));
    for _ in 0..6 {
        bench.minute();
    }
    assert_eq!(bench.version(address(11)), Ok("v1.13.9".into()));
    assert_eq!(bench.members(address(11)).expect("all back").len(), 3);
    // With a member down an upgrade is refused.
    bench.send(Signal::PowerCut(vmid(113)));
    bench.minute();
    let refused: Result<api::UpgradeResponse, _> = bench.machine(address(12), "Upgrade", &request);
    let (code, message) = refused.expect_err("not healthy");
    assert_eq!(code, 2);
    assert!(message.starts_with("error validating etcd for upgrade: etcd member "), "{message}");
    let missing = api::UpgradeRequest { image: String::new(), ..Default::default() };
    let refused: Result<api::UpgradeResponse, _> = bench.machine(address(21), "Upgrade", &missing);
    assert!(refused.expect_err("no image").1.starts_with("error validating installer image"));
}

#[test]
fn a_graceful_reset_leaves_etcd_and_switches_off() {
    let mut bench = Bench::new("v1.13.9");
    bench.cluster();
    let request = api::ResetRequest { graceful: true, ..Default::default() };
    let _: api::ResetResponse = bench.machine(address(13), "Reset", &request).expect("reset");
    for _ in 0..3 {
        bench.minute();
    }
    assert_eq!(bench.members(address(11)).expect("two").len(), 2);
    assert!(bench.lab.machines.machine(vmid(113)).is_none(), "it switched itself off");
    assert!(!bench.lab.ground.guests.contains_key(&vmid(113)));
}

#[test]
fn wiping_state_and_ephemeral_leads_back_to_maintenance() {
    let mut bench = Bench::new("v1.13.9");
    bench.join(11, Role::ControlPlane);
    let part = |label: &str| api::ResetPartitionSpec { label: label.into(), wipe: true };
    let request = api::ResetRequest {
        reboot: true,
        system_partitions_to_wipe: vec![part("STATE"), part("EPHEMERAL")],
        ..Default::default()
    };
    let wrong = api::ResetRequest { system_partitions_to_wipe: vec![part("NONSENSE")], ..Default::default() };
    let refused: Result<api::ResetResponse, _> = bench.machine(address(11), "Reset", &wrong);
    assert!(
        refused
            .expect_err("no such partition")
            .1
            .starts_with("failed to get volume status with label \"NONSENSE\"")
    );
    let _: api::ResetResponse = bench.machine(address(11), "Reset", &request).expect("reset");
    for _ in 0..3 {
        bench.minute();
    }
    let answer: Result<storage::DisksResponse, _> =
        bench.insecure(address(11), "/storage.StorageService/Disks", &());
    assert_eq!(answer.expect("maintenance mode").messages[0].disks.len(), 1);
}

#[test]
fn a_whole_disk_wiped_boots_no_more() {
    let mut bench = Bench::new("v1.13.9");
    bench.join(11, Role::ControlPlane);
    let content = bench.lab.machines.machine(vmid(111)).expect("on").hardware.disks[0].content;
    let request = api::ResetRequest { reboot: true, ..Default::default() };
    let _: api::ResetResponse = bench.machine(address(11), "Reset", &request).expect("reset");
    for _ in 0..3 {
        bench.minute();
    }
    assert_eq!(bench.lab.ground.media.get(content), &Content::Blank);
    assert!(bench.lab.talos_addresses().is_empty());
}

#[test]
fn a_shutdown_drains_unless_forced_and_hangs_without_an_api_server() {
    let mut bench = Bench::new("v1.13.9");
    bench.cluster();
    let force = api::ShutdownRequest { force: true };
    let _: api::ShutdownResponse = bench.machine(address(22), "Shutdown", &force).expect("forced");
    bench.pass(Duration::from_secs(10));
    assert!(bench.lab.machines.machine(vmid(122)).is_none());
    for number in 111..=113 {
        bench.send(Signal::PowerCut(vmid(number)));
    }
    bench.send(Signal::PowerButton(vmid(121)));
    bench.minute();
    assert!(bench.lab.machines.machine(vmid(121)).is_some(), "it still tries to drain");
    bench.pass(Duration::from_mins(5));
    assert!(bench.lab.machines.machine(vmid(121)).is_none());
}

#[test]
fn a_rollback_swaps_the_images() {
    let mut bench = Bench::new("v1.13.8");
    bench.join(11, Role::ControlPlane);
    let refused: Result<api::RollbackResponse, _> =
        bench.machine(address(11), "Rollback", &api::RollbackRequest {});
    assert_eq!(refused.expect_err("nothing before").0, 2);
    let image = installer("v1.13.9");
    pull(&mut bench, &image).expect("pulled");
    assert_eq!(lifecycle_upgrade(&mut bench, &image), Ok(0));
    reboot(&mut bench);
    assert_eq!(bench.version(address(11)), Ok("v1.13.9".into()));
    let _: api::RollbackResponse =
        bench.machine(address(11), "Rollback", &api::RollbackRequest {}).expect("rollback");
    for _ in 0..3 {
        bench.minute();
    }
    assert_eq!(bench.version(address(11)), Ok("v1.13.8".into()));
}

#[test]
fn services_restart_where_talos_lets_them() {
    let mut bench = Bench::new("v1.13.9");
    bench.cluster();
    let request = api::ServiceRestartRequest { id: "kubelet".into() };
    let answer: api::ServiceRestartResponse =
        bench.machine(address(21), "ServiceRestart", &request).expect("restarted");
    assert_eq!(answer.messages[0].resp, "Service \"kubelet\" restarted");
    let request = api::ServiceStopRequest { id: "machined".into() };
    let refused: Result<api::ServiceStopResponse, _> = bench.machine(address(21), "ServiceStop", &request);
    assert_eq!(refused.expect_err("never").1, "service \"machined\" doesn't support stop operation via API");
    bench.minute();
    bench.minute();
    assert!(bench.status(address(21)).contains("ready: true"), "{}", bench.status(address(21)));
}

#[test]
fn meta_is_written_read_and_deleted() {
    let mut bench = Bench::new("v1.13.9");
    bench.join(11, Role::ControlPlane);
    let write = api::MetaWriteRequest { key: 12, value: b"hello".to_vec() };
    let _: api::MetaWriteResponse = bench.machine(address(11), "MetaWrite", &write).expect("written");
    assert_eq!(
        bench.resource(address(11), "runtime", "MetaKeys.runtime.talos.dev", "0x0c"),
        Ok("value: hello\n".into())
    );
    let large = api::MetaWriteRequest { key: 300, value: Vec::new() };
    let refused: Result<api::MetaWriteResponse, _> = bench.machine(address(11), "MetaWrite", &large);
    assert_eq!(refused.expect_err("no such key").0, 3);
    let delete = api::MetaDeleteRequest { key: 12 };
    let _: api::MetaDeleteResponse = bench.machine(address(11), "MetaDelete", &delete).expect("deleted");
    let again: Result<api::MetaDeleteResponse, _> = bench.machine(address(11), "MetaDelete", &delete);
    assert_eq!(again.expect_err("gone").0, 5);
}

#[test]
fn access_is_given_from_the_config_alone() {
    use std::io::Read;
    let mut bench = Bench::new("v1.13.9");
    bench.join(11, Role::ControlPlane);
    let admin = Some(bench.admin());
    let reply = bench.raw(address(11), "/machine.MachineService/Kubeconfig", vec![Vec::new()], &[], admin);
    let data: ichor_talos_proto::common::Data = first(&reply).expect("a kubeconfig");
    let mut tar = Vec::new();
    flate2::read::GzDecoder::new(&data.bytes[..]).read_to_end(&mut tar).expect("gzip");
    let text = String::from_utf8_lossy(&tar);
    assert!(
        text.starts_with("kubeconfig\0")
            && text.contains("admin@dev")
            && text.contains("https://10.0.0.11:6443")
    );
    let request = api::GenerateClientConfigurationRequest {
        roles: vec!["os:reader".into()],
        crt_ttl: Some(ichor_talos_proto::Duration { seconds: 3600, nanos: 0 }),
    };
    let answer: api::GenerateClientConfigurationResponse =
        bench.machine(address(11), "GenerateClientConfiguration", &request).expect("a talosconfig");
    let client =
        ichor_machineconfig::pki::Certificate::from_pem(&String::from_utf8_lossy(&answer.messages[0].crt))
            .expect("PEM");
    assert_eq!(client.organizations(), ["os:reader"]);
}
