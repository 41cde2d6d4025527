//! What befalls a datacentre while a cluster runs in it.

use std::{net::IpAddr, time::Duration};

use ichor_model::VmId;
use ichor_sim::{
    Door,
    faults::FaultPlan,
    incident::Incident,
    profile::Profile,
    setup::Setup,
    strangers,
    talos::{lan::DhcpServer, machine::Api},
};
use ichor_talos_proto::machine;
use serde_json::Value;

use crate::driver::{Cluster, Driver};

fn vmid(number: u32) -> VmId {
    VmId::new(number).expect("a VMID")
}

fn befall(driver: &mut Driver<'_>, text: &str) {
    let incident: Incident = text.parse().expect("an incident");
    driver.lab.befall(&incident).unwrap_or_else(|error| panic!("{text}: {error}"));
}

fn resource(driver: &mut Driver<'_>, id: &str) -> Value {
    let all = driver.pve("GET", "/cluster/resources", &[]);
    all.as_array().into_iter().flatten().find(|row| row["id"] == id).cloned().unwrap_or_default()
}

fn answers(driver: &mut Driver<'_>, last: u8) -> bool {
    let query = ();
    driver.rpc::<_, machine::VersionResponse>(last, "/machine.MachineService/Version", &query).is_ok()
}

#[test]
fn a_host_goes_down_with_everything_on_it_and_comes_up_again() {
    let cluster = Cluster::new();
    let mut driver = Driver::new(7, Profile::Lab, &cluster);
    driver.bring_up();
    assert!(answers(&mut driver, 12), "its VM is on pve2");
    driver.pve("PUT", "/nodes/pve2/qemu/222/config", &[("onboot", "1")]);
    let upid = driver.pve("POST", "/nodes/pve2/qemu/212/status/reboot", &[("timeout", "300")]);
    let upid = upid.as_str().expect("a task").to_owned();

    befall(&mut driver, "host-down pve2");
    assert!(!answers(&mut driver, 12), "the machine is gone with its host");
    assert!(answers(&mut driver, 11), "others are not");
    assert_eq!(resource(&mut driver, "qemu/212")["status"], "unknown");
    assert_eq!(resource(&mut driver, "qemu/211")["status"], "running");
    assert_eq!(resource(&mut driver, "node/pve2")["status"], "offline");
    assert_eq!(resource(&mut driver, "storage/pve2/local-lvm")["status"], "unknown");
    let request = driver.pve_request("GET", "/nodes/pve2/qemu/212/status/current", &[]);
    let response = driver.http(&Door::Pve, request);
    assert_eq!((response.status, response.reason.as_deref()), (595, Some("No route to host")));
    assert_eq!(driver.lab.pve.tasks.running().count(), 0, "its task is gone");
    driver.until("its node is lost", |driver| {
        driver.nodes().iter().any(|(name, ready)| name == "m12" && !ready)
    });

    befall(&mut driver, "host-up pve2");
    let task = driver.pve("GET", &format!("/nodes/pve2/tasks/{upid}/status"), &[]);
    assert_eq!((&task["status"], &task["exitstatus"]), (&"stopped".into(), &"unexpected status".into()));
    assert!(driver.lab.pve.vms[&vmid(222)].runs(), "it starts with its host");
    assert!(!driver.lab.pve.vms[&vmid(212)].runs(), "it does not");
    driver.pve("POST", "/nodes/pve2/qemu/212/status/start", &[]);
    driver.until("all nodes are ready again", |driver| driver.nodes().iter().all(|(_, ready)| *ready));
    assert!(driver.lab.befall(&Incident::HostDown { host: "pve9".into() }).is_err());
}

#[test]
fn whoever_talks_to_a_host_that_is_down_talks_to_nobody() {
    let cluster = Cluster::new();
    let mut driver = Driver::new(7, Profile::Lab, &cluster);
    befall(&mut driver, "host-down pve1");
    let request = driver.pve_request("GET", "/version", &[]);
    assert_eq!(driver.http(&Door::Pve, request).status, 0);
    befall(&mut driver, "host-up pve1");
    driver.pve("GET", "/version", &[]);
}

#[test]
fn vms_are_moved_stopped_deleted_and_replaced() {
    let cluster = Cluster::new();
    let mut driver = Driver::new(7, Profile::Lab, &cluster);
    driver.bring_up();
    befall(&mut driver, "vm-migrated 211 pve3");
    assert!(answers(&mut driver, 11), "it runs on");
    let config = driver.pve("GET", "/nodes/pve3/qemu/211/config", &[]);
    let request = driver.pve_request("GET", "/nodes/pve1/qemu/211/config", &[]);
    let gone = driver.http(&Door::Pve, request);
    assert_eq!((gone.status, gone.reason.is_some_and(|it| it.contains("does not exist"))), (500, true));

    befall(&mut driver, "vm-stopped 221");
    assert_eq!(driver.pve("GET", "/nodes/pve1/qemu/221/status/current", &[])["status"], "stopped");

    let before = &driver.lab.pve.vms[&vmid(222)].config.clone();
    befall(&mut driver, "vm-replaced 222");
    let after = &driver.lab.pve.vms[&vmid(222)];
    assert!(after.runs());
    assert_eq!(before.get("name"), after.config.get("name"));
    assert_ne!(before.get("smbios1"), after.config.get("smbios1"));
    assert_ne!(before.get("net0"), after.config.get("net0"));
    assert!(!answers(&mut driver, 22), "nobody is at its address");

    befall(&mut driver, "vm-deleted 211");
    let volume = config["scsi0"].as_str().and_then(|it| it.split(',').next()).expect("a disk").to_owned();
    assert!(driver.lab.pve.storage.get("pve3", &volume).is_none());
    assert!(driver.lab.befall(&"vm-deleted 211".parse().expect("an incident")).is_err());
    assert_eq!(resource(&mut driver, "qemu/211"), Value::Null);
}

#[test]
fn storages_fill_up_and_break() {
    let cluster = Cluster::new();
    let mut driver = Driver::new(7, Profile::Instant, &cluster);
    let allocate = |driver: &mut Driver<'_>, name: &str| {
        let params = [("vmid", "900"), ("size", "1G"), ("filename", name)];
        let request = driver.pve_request("POST", "/nodes/pve1/storage/shared/content", &params);
        let response = driver.http(&Door::Pve, request);
        (response.status, String::from_utf8_lossy(&response.body).into_owned())
    };
    befall(&mut driver, "storage-full shared");
    let status = driver.pve("GET", "/nodes/pve2/storage/shared/status", &[]);
    assert_eq!((&status["avail"], &status["total"]), (&0.into(), &(1_u64 << 40).into()));
    let (refused, text) = allocate(&mut driver, "vm-900-disk-0.qcow2");
    assert_eq!(refused, 500);
    assert!(text.contains("No space left on device"), "{text}");
    befall(&mut driver, "storage-freed shared");
    assert_eq!(allocate(&mut driver, "vm-900-disk-0.qcow2").0, 200);
    befall(&mut driver, "storage-broken shared");
    let (refused, text) = allocate(&mut driver, "vm-900-disk-1.qcow2");
    assert_eq!(refused, 500);
    assert!(text.contains("unable to activate storage 'shared'"), "{text}");
    befall(&mut driver, "storage-mended shared");
    assert_eq!(allocate(&mut driver, "vm-900-disk-1.qcow2").0, 200);
}

#[test]
fn clocks_and_agents_fail_and_recover() {
    let cluster = Cluster::new();
    let mut driver = Driver::new(7, Profile::Lab, &cluster);
    driver.bring_up();
    let ping = |driver: &mut Driver<'_>| {
        let request = driver.pve_request("POST", "/nodes/pve1/qemu/211/agent/ping", &[]);
        driver.http(&Door::Pve, request).status
    };
    assert_eq!(ping(&mut driver), 200);
    befall(&mut driver, "agent-silent 211");
    assert_eq!(ping(&mut driver), 500);
    befall(&mut driver, "agent-back 211");
    assert_eq!(ping(&mut driver), 200);
    let synced = |driver: &Driver<'_>| {
        let run = driver.lab.machines.machine(vmid(211)).and_then(|machine| machine.run.as_ref());
        run.expect("a machine").time_synced
    };
    befall(&mut driver, "clock-lost 211");
    assert!(!synced(&driver));
    befall(&mut driver, "clock-set 211");
    driver.until("the clock is right", |driver| synced(driver));
}

#[test]
fn a_stranger_answers_at_our_address_with_another_key() {
    let cluster = Cluster::new();
    let mut driver = Driver::new(7, Profile::Lab, &cluster);
    driver.bring_up();
    let address = IpAddr::from([10, 0, 0, 11]);
    let ours = driver.lab.talos_persona(address).expect("a persona");
    let mark = driver.lab.machines.mark(address);
    befall(&mut driver, "impostor 10.0.0.11");
    let theirs = driver.lab.talos_persona(address).expect("a persona");
    assert_ne!(ours.certificates, theirs.certificates);
    assert_ne!(driver.lab.machines.mark(address), mark, "connections to the other end");
    let stranger = driver.lab.machines.owner(address).expect("somebody");
    assert_eq!(stranger.run.as_ref().map(|run| run.api), Some(Api::Maintenance));
    assert!(!driver.lab.pve.vms.contains_key(&stranger.vmid()));
    assert_eq!(driver.lab.kube_persona(address), None);
    befall(&mut driver, "impostor-gone 10.0.0.11");
    assert_eq!(
        driver.lab.talos_persona(address).map(|persona| persona.certificates),
        Some(ours.certificates)
    );
    befall(&mut driver, "impostor 10.0.0.99");
    assert!(driver.lab.talos_addresses().contains(&IpAddr::from([10, 0, 0, 99])));
}

#[test]
fn a_machine_gets_another_lease() {
    let cluster = Cluster::new();
    let mut driver = Driver::new(7, Profile::Lab, &cluster);
    let range = [[10, 0, 0, 100], [10, 0, 0, 110]].map(std::net::Ipv4Addr::from);
    driver.lab.machines.lan.servers.insert("vmbr0".into(), DhcpServer::new(range[0], range[1], 24));
    driver.image();
    driver.create("pve1", 11);
    driver.until("it is made", |driver| driver.lab.pve.tasks.running().next().is_none());
    driver.pve("PUT", "/nodes/pve1/qemu/211/config", &[("delete", "ipconfig0")]);
    driver.pve("POST", "/nodes/pve1/qemu/211/status/start", &[]);
    let at = |last| IpAddr::from([10, 0, 0, last]);
    driver.until("it answers", |driver| driver.lab.talos_addresses() == [at(100)]);
    befall(&mut driver, "lease-changed 211");
    assert_eq!(driver.lab.talos_addresses(), [at(101)]);
    befall(&mut driver, "lease-changed 211 10.0.0.105");
    assert_eq!(driver.lab.talos_addresses(), [at(105)]);
    let agent = driver.pve("GET", "/nodes/pve1/qemu/211/agent/network-get-interfaces", &[]);
    assert!(agent.to_string().contains("10.0.0.105"), "{agent}");
}

#[test]
fn incidents_come_at_a_moment_or_with_a_call() {
    let cluster = Cluster::new();
    let mut driver = Driver::new(7, Profile::Lab, &cluster);
    let at = driver.lab.ground.now + Duration::from_mins(1);
    driver.lab.befall_at(at, Incident::HostDown { host: "pve3".into() });
    let kept = serde_json::to_string(&driver.lab).expect("a state");
    driver.lab = serde_json::from_str(&kept).expect("a lab");
    driver.lab.advance(at + Duration::from_millis(1));
    assert!(!driver.lab.pve.hosts["pve3"].online);
    let plan = r#"[{"server": "pve", "method": "GET", "path": "/version", "occurrence": 2,
        "fault": {"befall": {"event": {"host_up": {"host": "pve3"}}, "when": "after"}}},
        {"server": "pve", "method": "GET", "path": "/nodes", "fault":
        {"befall": {"event": {"host_down": {"host": "pve2"}}, "when": "before"}}}]"#;
    driver.lab.ground.faults = serde_json::from_str::<FaultPlan>(plan).expect("a plan");
    for expected in [false, true] {
        driver.pve("GET", "/version", &[]);
        assert_eq!(driver.lab.pve.hosts["pve3"].online, expected);
    }
    let hosts = driver.pve("GET", "/nodes", &[]);
    let offline = hosts.as_array().into_iter().flatten().filter(|host| host["status"] == "offline");
    assert_eq!(offline.map(|host| host["node"].clone()).collect::<Vec<_>>(), ["pve2"]);
}

#[test]
fn a_cluster_comes_up_among_strangers_and_touches_none() {
    let cluster = Cluster::new();
    let mut setup = Setup::new(7, Profile::Lab);
    setup.strangers = 14;
    let mut driver = Driver::at(setup.build(), &cluster);
    assert_eq!(strangers::all(&driver.lab).len(), 14);
    driver.bring_up();
    strangers::untouched(&driver.lab).expect("nobody was touched");
    let containers = driver.pve("GET", "/cluster/resources", &[("type", "vm")]);
    let container = containers.as_array().into_iter().flatten().find(|row| row["type"] == "lxc");
    let container = container.expect("a container").clone();
    let taken = container["vmid"].to_string();
    let request = driver.pve_request("POST", "/nodes/pve1/qemu", &[("vmid", &taken)]);
    let refused = driver.http(&Door::Pve, request);
    let text = format!("CT {taken} already exists on node");
    assert!(refused.reason.as_deref().is_some_and(|it| it.contains(&text)), "{:?}", refused.reason);

    let (stranger, host) = {
        let own = strangers::all(&driver.lab);
        let mut vms = driver.lab.pve.vms.iter().filter(|(vmid, vm)| own.contains(vmid) && vm.runs());
        let (vmid, vm) = vms.next().expect("a stranger");
        (*vmid, vm.host.clone())
    };
    driver.pve("POST", &format!("/nodes/{host}/qemu/{stranger}/status/stop"), &[]);
    driver.until("it is off", |driver| !driver.lab.pve.vms[&stranger].runs());
    let touched = strangers::untouched(&driver.lab).expect_err("somebody was touched");
    assert!(touched.contains(&stranger.to_string()), "{touched}");
}
