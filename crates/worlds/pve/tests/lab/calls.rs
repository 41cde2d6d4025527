//! Calls one by one: the lab takes each of them, and the real API describes each of them.

use std::{fs, path::PathBuf, time::Duration};

use ichor_model::VmId;
use ichor_pve::{
    Call, Kind, Params,
    api::{self, CloneOptions, Download, Resource, UploadFile},
    machine::eject,
};
use serde_json::Value;

use super::support::{Bench, IMAGE, ISO};

fn vmid() -> VmId {
    VmId::new(401).expect("a VMID")
}

fn small_vm(bench: &Bench) {
    let mut params = Params::default();
    params.set("name", "small");
    params.set("memory", 2048);
    params.set("cpu", "x86-64-v2-AES");
    params.set("agent", 1);
    params.set("scsihw", "virtio-scsi-pci");
    params.set("scsi0", format!("local-lvm:0,import-from={IMAGE}"));
    params.set("ide0", format!("{ISO},media=cdrom"));
    params.set("ide2", "local-lvm:cloudinit");
    bench.finish(&api::create(&bench.host, vmid(), params));
}

#[test]
fn a_file_is_uploaded_and_deleted() {
    let bench = Bench::new(1);
    let bytes: Vec<u8> = (0..70_000_u32).flat_map(u32::to_le_bytes).collect();
    let file = UploadFile { content: "iso", filename: "cp-1 cidata.iso", bytes: &bytes };
    bench.finish(&api::upload(&bench.host, "local", &file));
    let volume = "local:iso/cp-1_cidata.iso";
    let found = |bench: &Bench| {
        let rows = bench.send(&api::volumes(&bench.host, "local", "iso"));
        rows.into_iter().find(|row| row.volid == volume)
    };
    assert_eq!(found(&bench).map(|row| row.size), Some(bytes.len() as u64));
    if let Some(upid) = bench.send(&api::delete_volume(&bench.host, "local", volume)) {
        bench.wait(&upid);
    }
    assert_eq!(found(&bench), None);
    let refused = bench.try_send(&api::upload(&bench.host, "local-lvm", &file)).expect_err("no files there");
    assert_eq!(refused.refusal(), Some(Kind::Other), "{refused}");
}

#[test]
fn everything_is_listed_in_one_call() {
    let bench = Bench::new(2);
    small_vm(&bench);
    let all = bench.send(&api::resources());
    let count = |is: fn(&Resource) -> bool| all.iter().filter(|resource| is(resource)).count();
    assert_eq!(count(|it| matches!(it, Resource::Host(host) if host.status == "online")), 3);
    assert_eq!(count(|it| matches!(it, Resource::Guest(guest) if guest.vmid == vmid())), 1);
    assert!(count(|it| matches!(it, Resource::Storage(storage) if storage.storage == "local-lvm")) == 3);
}

#[test]
fn pools_are_made_joined_and_deleted() {
    let bench = Bench::new(3);
    small_vm(&bench);
    for pool in ["k8s", "k8s/homelab"] {
        bench.send(&api::create_pool(pool, "ichor"));
        assert!(bench.send(&api::pools()).iter().any(|row| row.poolid == pool));
    }
    bench.send(&api::join_pool("k8s/homelab", vmid()));
    let full = bench.try_send(&api::delete_pool("k8s/homelab")).expect_err("it is not empty");
    assert!(full.to_string().contains("not empty"), "{full}");
    bench.finish(&api::delete(&bench.host, vmid()));
    bench.send(&api::delete_pool("k8s/homelab"));
    bench.send(&api::delete_pool("k8s"));
    let again = bench.try_send(&api::delete_pool("k8s")).expect_err("it is gone");
    assert_eq!(again.refusal(), Some(Kind::Missing), "{again}");
}

#[test]
fn a_vm_lives_and_goes() {
    let bench = Bench::new(4);
    let host = bench.host.clone();
    assert_eq!(bench.send(&api::next_vmid()).0, VmId::new(100).expect("a VMID"));
    small_vm(&bench);
    bench.send(&api::regenerate_cloudinit(&host, vmid()));
    let silent = bench.try_send(&api::agent_ping(&host, vmid())).expect_err("it is off");
    assert!(silent.to_string().contains("not running"), "{silent}");
    bench.finish(&api::start(&host, vmid()));
    assert_eq!(bench.send(&api::status(&host, vmid())).qmpstatus.as_deref(), Some("running"));
    bench.configure(vmid(), eject("ide0"));
    assert_eq!(bench.config(vmid()).text("ide0").as_deref(), Some("none,media=cdrom"));
    let mut memory = Params::default();
    memory.set("memory", 4096);
    bench.configure(vmid(), memory);
    let waiting: Vec<String> = bench
        .send(&api::pending(&host, vmid()))
        .into_iter()
        .filter(api::PendingRow::waits)
        .map(|row| row.key)
        .collect();
    assert_eq!(waiting, ["memory"]);
    bench.finish(&api::stop(&host, vmid()));
    assert!(bench.send(&api::running_tasks(&host)).is_empty());
    let disks = bench.send(&api::disks_of(&host, "local-lvm", vmid()));
    assert_eq!(disks.len(), 2, "{disks:?}");
    let before = bench.send(&api::storage_status(&host, "local-lvm"));
    assert_eq!((before.active, before.kind.as_str()), (1, "lvmthin"));
    bench.finish(&api::delete(&host, vmid()));
    assert_eq!(bench.send(&api::disks_of(&host, "local-lvm", vmid())), []);
}

#[test]
fn a_machine_is_asked_to_shut_down() {
    let bench = Bench::new(5);
    small_vm(&bench);
    bench.finish(&api::start(&bench.host, vmid()));
    // A guest that has not come up yet does not hear it.
    bench.visit(|lab| lab.advance(lab.ground.now + Duration::from_mins(5)));
    let upid = bench.send(&api::shutdown(&bench.host, vmid(), 60));
    bench.wait(&upid);
    assert_eq!(bench.send(&api::status(&bench.host, vmid())).status, "stopped");
}

/// Finds the description of the real API, which not everybody has.
#[allow(clippy::disallowed_methods)] // only tests look for this folder
fn schema() -> Option<Value> {
    let folder = std::env::var_os("ICHOR_SHARED").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../../shared")),
        PathBuf::from,
    );
    let text = fs::read_to_string(folder.join("pve-api-schema.json")).ok()?;
    Some(serde_json::from_str(&text).expect("the schema is JSON"))
}

/// What the schema says against a call.
fn faults<T>(schema: &Value, call: &Call<T>) -> Vec<String> {
    let sent: Vec<&str> = call.path.split('/').collect();
    let paths = schema["paths"].as_object().expect("paths");
    let fits = |path: &&String| {
        let described: Vec<&str> = path.split('/').collect();
        described.len() == sent.len()
            && described.iter().zip(&sent).all(|(one, other)| one.starts_with('{') || one == other)
    };
    // A path without a variable is meant before one with.
    let path = paths.keys().filter(fits).min_by_key(|path| path.matches('{').count());
    let Some(path) = path else { return vec![format!("no such path: {}", call.path)] };
    let method = &schema["paths"][path][call.method.word()];
    if method.is_null() {
        return vec![format!("no {} of {path}", call.method)];
    }
    let properties = method["parameters"]["properties"].as_object().cloned().unwrap_or_default();
    let given: Vec<&str> = call.params.pairs().iter().map(|(key, _)| key.as_str()).collect();
    let known = |key: &str| {
        let word = key.trim_end_matches(|c: char| c.is_ascii_digit());
        properties.contains_key(key) || (word != key && properties.contains_key(&format!("{word}[n]")))
    };
    let unknown = given.iter().filter(|key| !known(key)).map(|key| format!("{path} has no `{key}`"));
    let missing = properties
        .iter()
        .filter(|(key, property)| property["optional"] != true && !path.contains(&format!("{{{key}}}")))
        // The file part of an upload.
        .filter(|(key, _)| key.as_str() != "filename" || !path.ends_with("/upload"))
        .filter(|(key, _)| !given.contains(&key.as_str()))
        .map(|(key, _)| format!("{path} wants `{key}`"));
    unknown.chain(missing).collect()
}

#[test]
fn the_real_api_describes_every_call() {
    let Some(schema) = schema() else {
        eprintln!("skipped: there is no schema here");
        return;
    };
    let host = "pve1".parse().expect("a name");
    let upid = "UPID:pve1:0000A1B2:00C3D4E5:6912AB34:qmcreate:401:ichor@pve!t1:".parse().expect("upid");
    let file = UploadFile { content: "iso", filename: "a.iso", bytes: b"" };
    let download =
        Download { url: "https://x.example/a", content: "import", filename: "a.qcow2", sha256: Some("00") };
    let clone = CloneOptions {
        newid: vmid(),
        name: "a",
        description: Some("a".into()),
        pool: Some("a"),
        target: Some(&host),
        full_on: Some("a"),
    };
    let checks = [
        faults(&schema, &api::version()),
        faults(&schema, &api::hosts()),
        faults(&schema, &api::guests()),
        faults(&schema, &api::resources()),
        faults(&schema, &api::next_vmid()),
        faults(&schema, &api::bridges(&host)),
        faults(&schema, &api::permissions()),
        faults(&schema, &api::pools()),
        faults(&schema, &api::create_pool("a", "b")),
        faults(&schema, &api::join_pool("a", vmid())),
        faults(&schema, &api::join_pool("a/b", vmid())),
        faults(&schema, &api::delete_pool("a")),
        faults(&schema, &api::delete_pool("a/b")),
        faults(&schema, &api::storages(&host)),
        faults(&schema, &api::storage_status(&host, "local")),
        faults(&schema, &api::volumes(&host, "local", "iso")),
        faults(&schema, &api::disks_of(&host, "local", vmid())),
        faults(&schema, &api::delete_volume(&host, "local", "local:iso/a.iso")),
        faults(&schema, &api::download(&host, "local", &download)),
        faults(&schema, &api::upload(&host, "local", &file)),
        faults(&schema, &api::config(&host, vmid())),
        faults(&schema, &api::pending(&host, vmid())),
        faults(&schema, &api::create(&host, vmid(), every_option())),
        faults(&schema, &api::configure(&host, vmid(), every_option())),
        faults(&schema, &api::resize(&host, vmid(), "scsi0", 9)),
        faults(&schema, &api::make_template(&host, vmid())),
        faults(&schema, &api::clone(&host, vmid(), &clone)),
        faults(&schema, &api::start(&host, vmid())),
        faults(&schema, &api::stop(&host, vmid())),
        faults(&schema, &api::shutdown(&host, vmid(), 60)),
        faults(&schema, &api::status(&host, vmid())),
        faults(&schema, &api::regenerate_cloudinit(&host, vmid())),
        faults(&schema, &api::delete(&host, vmid())),
        faults(&schema, &api::agent_interfaces(&host, vmid())),
        faults(&schema, &api::agent_ping(&host, vmid())),
        faults(&schema, &api::task_status(&upid)),
        faults(&schema, &api::task_log(&upid, 0, 50)),
        faults(&schema, &api::stop_task(&upid)),
        faults(&schema, &api::tasks_of(&host, vmid())),
        faults(&schema, &api::running_tasks(&host)),
    ];
    assert_eq!(checks.concat(), Vec::<String>::new());
    // The check itself finds what is wrong.
    assert_eq!(faults(&schema, &api::version().with("colour", "red")), ["/version has no `colour`"]);
}

/// Every option that a machine's VM can have.
fn every_option() -> Params {
    let mut params = Params::default();
    for option in [
        "name",
        "smbios1",
        "description",
        "tags",
        "ostype",
        "machine",
        "bios",
        "cpu",
        "cores",
        "sockets",
        "numa",
        "memory",
        "balloon",
        "scsihw",
        "serial0",
        "agent",
        "onboot",
        "protection",
        "startup",
        "net0",
        "net31",
        "hostpci0",
        "hostpci15",
        "ipconfig0",
        "nameserver",
        "boot",
        "efidisk0",
        "tpmstate0",
        "ide0",
        "ide2",
        "scsi0",
        "scsi30",
    ] {
        params.set(option, "1");
    }
    params
}
