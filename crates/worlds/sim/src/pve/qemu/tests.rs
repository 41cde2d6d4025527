//! VMs through the API, from a create to what the guest sees.

use std::{collections::BTreeMap, time::Duration};

use ichor_model::VmId;
use serde_json::{Value, json};

use crate::{
    Door, Lab, Progress,
    agenda::Event,
    ground::{AgentView, Content, DiscKind, Hardware},
    profile::Profile,
    pve::{
        Lock, Mode,
        storage::{
            Definition,
            images::put_file,
            web::{File, Page},
        },
        world::{NewHost, add_host, add_user},
    },
    signal::Signal,
    wire::{Polled, Request},
};

/// A lab with two hosts, and a client.
struct Bench {
    lab: Lab,
}

fn qcow2(mib: u64) -> Vec<u8> {
    let mut bytes = b"QFI\xfb\0\0\0\x03".to_vec();
    bytes.extend([0; 16]);
    bytes.extend((mib << 20).to_be_bytes());
    bytes.resize(512, 0);
    bytes
}

impl Bench {
    fn new(profile: Profile) -> Self {
        let mut lab = Lab::new(7, profile);
        for (name, address) in [("pve1", "192.0.2.11"), ("pve2", "192.0.2.12")] {
            let host = NewHost { name: name.into(), address: address.into(), cpus: 8, memory: 64 << 30 };
            add_host(&mut lab.pve, &host);
        }
        lab.pve.cluster = Some("lab".into());
        add_user(&mut lab.pve, "ichor@pve", "t1", "secret", "Administrator");
        let storages = [
            ("local", "/var/lib/vz", "iso,import,backup,snippets", "0"),
            ("data", "/mnt/data", "images", "0"),
            ("shared", "/mnt/shared", "images", "1"),
        ];
        for (name, path, content, shared) in storages {
            let options = [("path", path), ("content", content), ("shared", shared)];
            let options: BTreeMap<String, String> =
                options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            lab.pve
                .storage
                .definitions
                .insert(name.into(), Definition::new("dir", &options).expect("a storage"));
        }
        let image = File::of_bytes(&qcow2(64));
        put_file(&mut lab.pve, &mut lab.ground, "pve1", "local:import/talos.qcow2", image).expect("a file");
        Self { lab }
    }

    /// Sends a request and returns status and body.
    fn send(&mut self, method: &str, path: &str, params: &[(&str, &str)]) -> (u16, Value) {
        let escape = |text: &str| -> String {
            text.bytes()
                .map(|byte| {
                    if byte.is_ascii_alphanumeric() {
                        char::from(byte).to_string()
                    } else {
                        format!("%{byte:02X}")
                    }
                })
                .collect()
        };
        let pairs: Vec<String> =
            params.iter().map(|(name, value)| format!("{}={}", escape(name), escape(value))).collect();
        let form = pairs.join("&");
        let in_query = ["GET", "DELETE"].contains(&method);
        let mut headers = vec![("authorization".to_owned(), "PVEAPIToken=ichor@pve!t1=secret".to_owned())];
        if !in_query {
            headers.push(("content-type".into(), "application/x-www-form-urlencoded".into()));
            headers.push(("content-length".into(), form.len().to_string()));
        }
        let request = Request {
            method: method.into(),
            path: format!("/api2/json{path}"),
            query: if in_query { form.clone() } else { String::new() },
            headers,
            body: if in_query { Vec::new() } else { form.into_bytes() },
            began: self.lab.ground.now,
            ..Request::default()
        };
        loop {
            match self.lab.call(&Door::Pve, &request) {
                Progress::Done(response) => {
                    let body = serde_json::from_slice(&response.body).unwrap_or(Value::Null);
                    return (response.status, body);
                }
                Progress::Wait(until) => self.lab.advance(until),
            }
        }
    }

    /// Sends a request that must succeed and returns its data.
    fn ok(&mut self, method: &str, path: &str, params: &[(&str, &str)]) -> Value {
        let (status, body) = self.send(method, path, params);
        assert_eq!(status, 200, "{method} {path}: {body}");
        body["data"].clone()
    }

    /// Waits for a task and returns its exit state.
    fn exit(&mut self, upid: &Value) -> String {
        let upid = upid.as_str().expect("a UPID").to_owned();
        for _ in 0..10_000 {
            if let Some(end) = self.lab.pve.tasks.get(&upid).and_then(|task| task.exit.clone()) {
                return end.status;
            }
            let next = self.lab.ground.agenda.next().expect("something to wait for");
            self.lab.advance(next);
        }
        panic!("{upid} does not end");
    }

    /// Starts a task, waits for it, and returns its exit state.
    fn task(&mut self, method: &str, path: &str, params: &[(&str, &str)]) -> String {
        let upid = self.ok(method, path, params);
        self.exit(&upid)
    }

    fn create(&mut self, vmid: &str, more: &[(&str, &str)]) {
        let mut params = vec![("vmid", vmid), ("memory", "512"), ("net0", "virtio,bridge=vmbr0")];
        params.extend(more);
        assert_eq!(self.task("POST", "/nodes/pve1/qemu", &params), "OK");
    }

    /// Lets a task launch and returns what the guest would have been told.
    fn hardware(&mut self, vmid: u32) -> Hardware {
        let vmid = VmId::new(vmid).expect("a VMID");
        super::hardware::of(&self.lab.pve, &self.lab.ground.media, "pve1", vmid).expect("hardware")
    }

    fn config(&mut self, vmid: u32) -> Value {
        self.ok("GET", &format!("/nodes/pve1/qemu/{vmid}/config"), &[])
    }
}

#[test]
fn a_guest_sees_its_disks_cards_and_cloud_init() {
    let mut bench = Bench::new(Profile::Lab);
    let extra = [
        ("name", "cp-1"),
        ("scsi0", "data:0,import-from=local:import/talos.qcow2"),
        ("scsi1", "data:1,serial=data-1"),
        ("ide2", "data:cloudinit"),
        ("ipconfig0", "ip=10.0.0.11/24,gw=10.0.0.1"),
        ("smbios1", "serial=Y3AtMQ==,base64=1"),
        ("boot", "order=scsi1;scsi0"),
        ("agent", "1"),
    ];
    bench.create("401", &extra);
    assert_eq!(bench.task("POST", "/nodes/pve1/qemu/401/status/start", &[]), "OK");
    let hardware = bench.hardware(401);
    let slots: Vec<&str> = hardware.disks.iter().map(|disk| disk.slot.as_str()).collect();
    assert_eq!(slots, ["scsi1", "scsi0"]);
    assert_eq!(hardware.disks[0].serial.as_deref(), Some("data-1"));
    assert_eq!(hardware.disks[1].size, 64 << 20);
    assert!(matches!(bench.lab.ground.media.get(hardware.disks[1].content), Content::Bytes(_)));
    assert_eq!((hardware.serial.as_str(), hardware.memory_mib, hardware.agent), ("cp-1", 512, true));
    assert_eq!(hardware.cards[0].bridge, "vmbr0");
    let DiscKind::CloudInit { network_config, .. } = &hardware.discs[0].kind else { panic!("no cloud-init") };
    assert!(network_config.contains("address: '10.0.0.11'"), "{network_config}");
    let status = bench.ok("GET", "/nodes/pve1/qemu/401/status/current", &[]);
    assert_eq!(status["status"], "running");
}

#[test]
fn a_guest_that_goes_down_ends_the_shutdown() {
    let mut bench = Bench::new(Profile::Lab);
    bench.create("401", &[("scsi0", "data:1")]);
    bench.task("POST", "/nodes/pve1/qemu/401/status/start", &[]);
    let vmid = VmId::new(401).expect("a VMID");
    let upid = bench.ok("POST", "/nodes/pve1/qemu/401/status/shutdown", &[]);
    let soon = bench.lab.ground.now + Duration::from_millis(500);
    bench.lab.advance(soon);
    let (lab, signal) = (&mut bench.lab, Signal::PoweredOff(vmid));
    lab.pve.hear(&mut lab.ground, &signal);
    assert_eq!(bench.exit(&upid), "OK");
    assert_eq!(bench.ok("GET", "/nodes/pve1/qemu/401/status/current", &[])["status"], "stopped");
}

#[test]
fn a_reboot_applies_what_is_pending() {
    let mut bench = Bench::new(Profile::Lab);
    bench.create("401", &[("scsi0", "data:1"), ("cores", "1")]);
    bench.task("POST", "/nodes/pve1/qemu/401/status/start", &[]);
    bench.ok("PUT", "/nodes/pve1/qemu/401/config", &[("cores", "2")]);
    let rows = bench.ok("GET", "/nodes/pve1/qemu/401/pending", &[]);
    assert!(
        rows.as_array().expect("rows").contains(&json!({ "key": "cores", "value": 1, "pending": 2 })),
        "{rows}"
    );
    let upid = bench.ok("POST", "/nodes/pve1/qemu/401/status/reboot", &[]);
    let soon = bench.lab.ground.now + Duration::from_millis(500);
    bench.lab.advance(soon);
    let lab = &mut bench.lab;
    lab.pve.hear(&mut lab.ground, &Signal::PoweredOff(VmId::new(401).expect("a VMID")));
    assert_eq!(bench.exit(&upid), "OK");
    let config = bench.ok("GET", "/nodes/pve1/qemu/401/config", &[("current", "1")]);
    assert_eq!(config["cores"], 2);
    assert_eq!(bench.ok("GET", "/nodes/pve1/qemu/401/status/current", &[])["status"], "running");
}

#[test]
fn devices_are_plugged_while_the_vm_runs() {
    let mut bench = Bench::new(Profile::Lab);
    bench.create("401", &[("scsi0", "data:1"), ("scsihw", "virtio-scsi-single")]);
    bench.task("POST", "/nodes/pve1/qemu/401/status/start", &[]);
    bench.ok("PUT", "/nodes/pve1/qemu/401/config", &[("scsi1", "data:1"), ("name", "new")]);
    let current = bench.ok("GET", "/nodes/pve1/qemu/401/config", &[("current", "1")]);
    assert_eq!(
        (&current["name"], &current["scsi1"]),
        (&json!("new"), &json!("data:401/vm-401-disk-1.raw,size=1G"))
    );
    bench.ok("PUT", "/nodes/pve1/qemu/401/config", &[("delete", "scsi1")]);
    assert_eq!(bench.config(401)["unused0"], "data:401/vm-401-disk-1.raw");
    // The disk it boots from cannot be pulled, and a card needs a guest that lets go of it.
    let (status, body) = bench.send("PUT", "/nodes/pve1/qemu/401/config", &[("delete", "net0")]);
    assert_eq!(status, 400, "{body}");
    assert!(
        body["errors"]["net0"]
            .as_str()
            .is_some_and(|text| text.starts_with("hotplug problem - error on hot-unplugging"))
    );
    let vmid = VmId::new(401).expect("a VMID");
    bench.lab.ground.guests.entry(vmid).or_default().agent = Some(AgentView::default());
    bench.ok("PUT", "/nodes/pve1/qemu/401/config", &[("delete", "net0")]);
    assert_eq!(bench.config(401).get("net0"), None);
}

#[test]
fn creates_on_one_storage_queue_for_its_lock() {
    let mut bench = Bench::new(Profile::Wan);
    let upids: Vec<Value> = ["401", "402", "403"]
        .iter()
        .map(|vmid| bench.ok("POST", "/nodes/pve1/qemu", &[("vmid", vmid), ("scsi0", "data:1")]))
        .collect();
    for upid in &upids {
        assert_eq!(bench.exit(upid), "OK");
    }
    let waited = upids.iter().filter(|upid| {
        let task = bench.lab.pve.tasks.get(upid.as_str().unwrap_or_default());
        task.is_some_and(|task| task.log.first().is_some_and(|line| line == "trying to acquire lock..."))
    });
    assert_eq!(waited.count(), 2);
}

#[test]
fn a_create_that_fails_leaves_nothing() {
    let mut bench = Bench::new(Profile::Lab);
    let params =
        [("vmid", "401"), ("scsi0", "data:1"), ("scsi1", "data:0,import-from=local:import/no.qcow2")];
    let status = bench.task("POST", "/nodes/pve1/qemu", &params);
    assert_eq!(status, "unable to create VM 401 - failed to stat '/var/lib/vz/import/no.qcow2'");
    assert_eq!(bench.ok("GET", "/nodes/pve1/storage/data/content", &[]), json!([]));
    assert!(
        bench.lab.pve.vms.is_empty()
            && bench.lab.pve.locks.holders(&Lock::Vm(VmId::new(401).expect("a VMID"))).next().is_none()
    );
}

#[test]
fn a_call_waits_for_a_lock_and_gives_up() {
    let mut bench = Bench::new(Profile::Wan);
    bench.create("401", &[]);
    let before = bench.lab.ground.now;
    let lock = Lock::Vm(VmId::new(401).expect("a VMID"));
    bench.lab.pve.locks.take(lock, Mode::Exclusive, "somebody");
    let (status, body) = bench.send("PUT", "/nodes/pve1/qemu/401/config", &[("cores", "2")]);
    assert_eq!(status, 500);
    assert!(body["message"].as_str().is_some_and(|text| text.contains("got timeout")), "{body}");
    assert!(bench.lab.ground.now.since(before) >= Duration::from_secs(10));
}

#[test]
fn a_vm_migrates_with_its_local_disks() {
    let mut bench = Bench::new(Profile::Lab);
    bench.create("401", &[("scsi0", "data:1"), ("scsi1", "shared:1")]);
    assert_eq!(bench.task("POST", "/nodes/pve1/qemu/401/migrate", &[("target", "pve2")]), "OK");
    let vm = bench.lab.pve.vms.values().next().expect("a VM");
    assert_eq!(vm.host, "pve2");
    assert!(bench.lab.pve.storage.get("pve2", "data:401/vm-401-disk-0.raw").is_some());
    assert!(bench.lab.pve.storage.get("pve1", "data:401/vm-401-disk-0.raw").is_none());
    let (status, _) = bench.send("GET", "/nodes/pve1/qemu/401/config", &[]);
    assert_eq!(status, 500);
    assert_eq!(bench.ok("GET", "/nodes/pve2/qemu/401/config", &[]).get("lock"), None);
}

#[test]
fn a_backup_can_be_restored() {
    let mut bench = Bench::new(Profile::Lab);
    bench.create("401", &[("scsi0", "data:1"), ("name", "kept")]);
    assert_eq!(bench.task("POST", "/nodes/pve1/vzdump", &[("vmid", "401"), ("storage", "local")]), "OK");
    let rows = bench.ok("GET", "/nodes/pve1/storage/local/content", &[("content", "backup")]);
    let archive = rows[0]["volid"].as_str().expect("a backup").to_owned();
    assert_eq!(bench.task("POST", "/nodes/pve1/qemu", &[("vmid", "402"), ("archive", &archive)]), "OK");
    let config = bench.config(402);
    assert_eq!(
        (&config["name"], &config["scsi0"]),
        (&json!("kept"), &json!("data:402/vm-402-disk-0.raw,size=1G"))
    );
}

#[test]
fn a_snapshot_brings_disk_and_config_back() {
    let mut bench = Bench::new(Profile::Lab);
    bench.create("401", &[("scsi0", "data:1,format=qcow2"), ("cores", "1")]);
    let disk = bench.hardware(401).disks[0].content;
    bench.lab.ground.media.set(disk, Content::Bytes(vec![1]));
    assert_eq!(bench.task("POST", "/nodes/pve1/qemu/401/snapshot", &[("snapname", "s1")]), "OK");
    bench.lab.ground.media.set(disk, Content::Bytes(vec![2]));
    bench.ok("PUT", "/nodes/pve1/qemu/401/config", &[("cores", "4")]);
    assert_eq!(bench.task("POST", "/nodes/pve1/qemu/401/snapshot/s1/rollback", &[]), "OK");
    assert_eq!(bench.config(401)["cores"], 1);
    assert_eq!(bench.lab.ground.media.get(disk), &Content::Bytes(vec![1]));
    assert_eq!(bench.task("DELETE", "/nodes/pve1/qemu/401/snapshot/s1", &[]), "OK");
    assert_eq!(bench.config(401).get("parent"), None);
}

#[test]
fn downloads_fail_as_servers_fail() {
    let mut bench = Bench::new(Profile::Lab);
    let pages = &mut bench.lab.ground.web.pages;
    pages.insert(
        "http://web.test/a.qcow2".into(),
        Page::of(File::of_bytes(&qcow2(64)), "application/octet-stream"),
    );
    let broken =
        Page { breaks_after: Some(100), ..Page::of(File::of_bytes(&qcow2(64)), "application/octet-stream") };
    pages.insert("http://web.test/cut.qcow2".into(), broken);
    pages.insert("http://web.test/html.qcow2".into(), Page::of(File::of_bytes(b"<html>"), "text/html"));
    let mut download = |url: &str, name: &str| {
        let params = [("url", url), ("content", "import"), ("filename", name)];
        bench.task("POST", "/nodes/pve1/storage/local/download-url", &params)
    };
    assert_eq!(download("http://web.test/a.qcow2", "a.qcow2"), "OK");
    assert_eq!(
        download("http://web.test/a.qcow2", "a.qcow2"),
        "refusing to override existing file '/var/lib/vz/import/a.qcow2'"
    );
    assert_eq!(download("http://web.test/none.qcow2", "b.qcow2"), "download failed: exit code 8");
    assert_eq!(download("http://web.test/cut.qcow2", "c.qcow2"), "download failed: exit code 4");
    assert!(download("http://web.test/html.qcow2", "d.qcow2").ends_with("Image is not in qcow2 format"));
    let rows = bench.ok("GET", "/nodes/pve1/storage/local/content", &[("content", "import")]);
    assert_eq!(rows.as_array().map(Vec::len), Some(2));
}

#[test]
fn nothing_takes_time_in_an_instant_lab_and_it_can_be_saved_in_between() {
    let mut bench = Bench::new(Profile::Instant);
    let upid = bench.ok("POST", "/nodes/pve1/qemu", &[("vmid", "401"), ("scsi0", "data:1"), ("start", "1")]);
    assert_eq!(bench.exit(&upid), "OK");
    let saved = serde_json::to_string(&bench.lab).expect("saved");
    let loaded: Lab = serde_json::from_str(&saved).expect("loaded");
    assert_eq!(loaded, bench.lab);
    assert_eq!(bench.ok("GET", "/nodes/pve1/qemu/401/status/current", &[])["status"], "running");
    assert_eq!(bench.task("POST", "/nodes/pve1/qemu/401/status/stop", &[]), "OK");
    assert_eq!(bench.task("DELETE", "/nodes/pve1/qemu/401", &[]), "OK");
    assert!(!matches!(bench.lab.ground.agenda.take(bench.lab.ground.now), Some((_, Event::Talos(_)))));
}

#[test]
fn the_proxy_of_a_console_waits_for_its_client_and_no_longer() {
    let mut bench = Bench::new(Profile::Instant);
    bench.create("111", &[("serial0", "socket")]);
    let proxy = bench.ok("POST", "/nodes/pve1/qemu/111/termproxy", &[]);
    assert_eq!(proxy["port"], "5900");
    let (port, ticket) = (5900, proxy["ticket"].as_str().expect("a ticket").to_owned());
    let websocket = "/nodes/pve1/qemu/111/vncwebsocket";
    let query = [("port", "5900"), ("vncticket", ticket.as_str())];
    assert_eq!(bench.ok("GET", websocket, &query), json!({ "port": "5900" }));
    assert!(bench.exit(&proxy["upid"]).ends_with("failed: exit code 1"));
    // The ticket outlives the proxy, and then it ends too.
    assert_eq!(bench.lab.open_console(port), None);
    assert_eq!(bench.ok("GET", websocket, &query), json!({ "port": "5900" }));
    bench.lab.advance(bench.lab.ground.now + Duration::from_secs(40));
    assert_eq!(bench.send("GET", websocket, &query).0, 401);
}

#[test]
fn a_client_that_says_nothing_is_cut_off_and_frees_the_port() {
    let mut bench = Bench::new(Profile::Instant);
    bench.create("111", &[("serial0", "socket")]);
    let proxy = bench.ok("POST", "/nodes/pve1/qemu/111/termproxy", &[]);
    let client = bench.lab.open_console(5900).expect("somebody listens");
    assert_eq!(bench.lab.open_console(5900), None, "a proxy has one client");
    bench.lab.tell_console(client, b"ichor@pve!t1");
    let Polled::Wait(Some(until)) = bench.lab.poll_console(client) else { panic!("it waits") };
    bench.lab.advance(until);
    assert_eq!(bench.lab.poll_console(client), Polled::End);
    assert!(bench.exit(&proxy["upid"]).ends_with("failed: exit code 1"));
    // Ports are as many as there are, and come back.
    for number in 5900..6000 {
        let proxy = bench.ok("POST", "/nodes/pve1/qemu/111/termproxy", &[]);
        assert_eq!(proxy["port"], number.to_string());
    }
    let (status, body) = bench.send("POST", "/nodes/pve1/qemu/111/termproxy", &[]);
    assert_eq!((status, body["message"].as_str()), (500, Some("unable to find free port (5900-6000)\n")));
    bench.lab.advance(bench.lab.ground.now + Duration::from_secs(11));
    assert_eq!(bench.ok("POST", "/nodes/pve1/qemu/111/termproxy", &[])["port"], "5900");
}

#[test]
fn a_console_goes_with_its_task_and_a_longer_first_line_than_any_ticket_is_refused() {
    let mut bench = Bench::new(Profile::Instant);
    bench.create("111", &[("serial0", "socket"), ("freeze", "1")]);
    assert_eq!(bench.task("POST", "/nodes/pve1/qemu/111/status/start", &[]), "OK");
    let status = bench.ok("GET", "/nodes/pve1/qemu/111/status/current", &[]);
    assert_eq!(status["qmpstatus"], "prelaunch");
    let proxy = bench.ok("POST", "/nodes/pve1/qemu/111/termproxy", &[]);
    let client = bench.lab.open_console(5900).expect("somebody listens");
    let line = format!("ichor@pve!t1:{}\n", proxy["ticket"].as_str().expect("a ticket"));
    bench.lab.tell_console(client, line.as_bytes());
    let begins = b"OKstarting serial terminal on interface serial0\r\n".to_vec();
    assert_eq!(bench.lab.poll_console(client), Polled::Pieces(vec![begins]));
    assert_eq!(bench.lab.poll_console(client), Polled::Wait(None));
    let upid = proxy["upid"].as_str().expect("a task");
    bench.ok("DELETE", &format!("/nodes/pve1/tasks/{upid}"), &[]);
    assert_eq!(bench.lab.poll_console(client), Polled::End);

    bench.ok("POST", "/nodes/pve1/qemu/111/termproxy", &[]);
    let client = bench.lab.open_console(5900).expect("somebody listens");
    bench.lab.tell_console(client, &"x".repeat(100_000).into_bytes());
    assert_eq!(bench.lab.poll_console(client), Polled::End);
}
