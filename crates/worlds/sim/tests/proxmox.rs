//! The Proxmox API of the lab through its door.

use ichor_sim::{
    Door, Lab, Progress, clock::Time, profile::Profile, pve::Release, pve::world, wire::Request,
    wire::Response,
};
use serde_json::Value;

const TOKEN: &str = "PVEAPIToken=ichor@pve!t1=11111111-2222-3333-4444-555555555555";

fn lab() -> Lab {
    let mut lab = Lab::new(7, Profile::Wan);
    world::recorded(&mut lab);
    lab
}

fn request(method: &str, path: &str, body: &str) -> Request {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    Request {
        method: method.into(),
        path: format!("/api2/json{path}"),
        query: query.into(),
        headers: vec![("authorization".into(), TOKEN.into())],
        body: body.as_bytes().to_vec(),
        ..Request::default()
    }
}

/// Sends a request and lets time pass until it is answered.
fn send(lab: &mut Lab, mut request: Request) -> Response {
    request.began = lab.ground.now;
    loop {
        match lab.call(&Door::Pve, &request) {
            Progress::Done(response) => return response,
            Progress::Wait(until) => {
                assert!(until > lab.ground.now, "a call that waits waits for something");
                lab.advance(until);
            }
        }
    }
}

fn data(response: &Response) -> Value {
    serde_json::from_slice::<Value>(&response.body).expect("answers are JSON")["data"].clone()
}

#[test]
fn a_failed_login_is_told_after_three_seconds_without_a_body() {
    let mut lab = lab();
    let before = lab.ground.now;
    let mut wrong = request("GET", "/version", "");
    wrong.headers = vec![("authorization".into(), "PVEAPIToken=ichor@pve!t1=wrong".into())];
    let response = send(&mut lab, wrong);
    assert_eq!((response.status, response.body.len()), (401, 0));
    assert_eq!(lab.ground.now.since(before).as_secs(), 3);
}

#[test]
fn older_releases_tell_errors_in_the_reason_only() {
    let mut lab = lab();
    lab.pve.release = Release::V8_0;
    let response = send(&mut lab, request("GET", "/pools/nope", ""));
    assert_eq!(response.reason.as_deref(), Some("pool 'nope' does not exist"));
    assert_eq!(String::from_utf8_lossy(&response.body), "{\"data\":null}");
    let response = send(&mut lab, request("PUT", "/pools", "poolid=x&comment=y"));
    assert_eq!(response.status, 501, "8.0 has no such endpoint yet");
    let large = "a=".to_owned() + &"x".repeat(70_000);
    assert_eq!(
        send(&mut lab, request("POST", "/pools", &large)).reason.as_deref(),
        Some("for data too large")
    );
    let response = send(&mut lab, request("POST", "/access/roles", "roleid=agent&privs=VM.Monitor"));
    assert_eq!(response.status, 200, "8.0 still knows this privilege");
    let response = send(&mut lab, request("POST", "/cluster/ha/groups", "group=g1&nodes=pve1"));
    assert_eq!(response.status, 200, "8.0 has HA groups");
}

#[test]
fn two_callers_at_once_wait_for_one_lock_and_both_give_up() {
    use ichor_sim::pve::{Lock, Mode, locks::OUTSIDE};
    let mut lab = lab();
    lab.pve.locks.take(Lock::file("user.cfg"), Mode::Exclusive, OUTSIDE);
    let before = lab.ground.now;
    let response = send(&mut lab, request("POST", "/pools", "poolid=talos"));
    assert_eq!(response.status, 500);
    assert_eq!(lab.ground.now.since(before).as_secs(), 10);
    lab.pve.locks.release_all(OUTSIDE);
    assert_eq!(send(&mut lab, request("POST", "/pools", "poolid=talos")).status, 200);
}

#[test]
fn a_saved_lab_goes_on_as_it_would_have() {
    let mut first = lab();
    send(&mut first, request("POST", "/nodes/pve1/qemu", "vmid=401&scsi0=data:1&memory=128"));
    let saved = serde_json::to_string(&first).expect("a lab can be saved");
    let mut second: Lab = serde_json::from_str(&saved).expect("and loaded");
    assert!(first == second, "nothing is lost");
    for lab in [&mut first, &mut second] {
        let until = Time::from_millis(lab.ground.now.millis() + 60_000);
        lab.advance(until);
    }
    let config = |lab: &mut Lab| data(&send(lab, request("GET", "/nodes/pve1/qemu/401/config", "")));
    assert_eq!(config(&mut first), config(&mut second));
}

#[test]
fn whatever_a_client_sends_is_answered() {
    let mut lab = lab();
    let paths = [
        "",
        "/",
        "//",
        "/%",
        "/%ff%00",
        "/nodes/%00/qemu",
        "/nodes/pve1/qemu/99999999999999999999/config",
        "/nodes/pve1/tasks/UPID:::::::::/status",
        "/nodes/pve1/tasks/%3A/log?start=-1&limit=99999999999999999999",
        "/access/acl",
        "/cluster/firewall/ipset/x/%2F%2F",
        "/pools?poolid=%2F%2F%2F",
        "/cluster/nextid?vmid=0",
        "/nodes/pve1/storage/local/content/%3A%3A",
    ];
    let bodies = [
        "",
        "=",
        "&&&===;;;",
        "%",
        "vmid=",
        "vmid=-1",
        "a=b=c",
        "net0=,,,=",
        "path=%2F&roles=,&users=@",
        "vms=1e9&poolid=x",
        "cidr=%00",
        "size=99999999999999999999T&disk=scsi0",
    ];
    let json =
        ["{", "[]", "null", "{\"a\":{\"b\":[[]]}}", "{\"vmid\":1e400}", "{\"vmid\":[[1]],\"cores\":-0.0}"];
    for method in ["GET", "POST", "PUT", "DELETE", "PATCH", "\u{1F980}"] {
        for path in paths {
            send(&mut lab, request(method, path, ""));
            for body in bodies {
                send(&mut lab, request(method, path, body));
            }
            for body in json {
                let mut request = request(method, path, body);
                request.headers.push(("content-type".into(), "application/json".into()));
                send(&mut lab, request);
            }
        }
    }
    let mut upload = request("POST", "/nodes/pve1/storage/local/upload", "--x\r\n\r\n--x--");
    upload.headers.push(("content-type".into(), "multipart/form-data; boundary=x".into()));
    assert_eq!(send(&mut lab, upload).status, 400);
    let mut many = request("GET", "/version", "");
    many.headers.extend((0..100).map(|number| (format!("x-{number}"), "y".into())));
    assert_eq!(send(&mut lab, many).status, 0, "too many headers are not answered");
}

#[test]
fn every_endpoint_that_is_answered_is_described() {
    let mut lab = lab();
    let described = &ichor_sim::pve::describe::description().endpoints;
    for endpoint in
        described.iter().filter(|endpoint| endpoint.method == "GET" && !endpoint.path.contains('{'))
    {
        let response = send(&mut lab, request("GET", &endpoint.path, ""));
        assert_ne!(response.status, 0, "{}", endpoint.path);
    }
}

/// A datacentre of three hosts that goes by itself.
fn three_hosts() -> Lab {
    let mut lab = Lab::new(3, Profile::Lab);
    let host = |number: u8| world::NewHost {
        name: format!("pve{number}"),
        address: format!("10.0.0.{number}"),
        cpus: 16,
        memory: 64 << 30,
    };
    let (user, token, secret) = ("ichor@pve", "t1", "11111111-2222-3333-4444-555555555555");
    let new = world::NewDatacentre {
        release: Release::V9_2,
        cluster: Some("lab".into()),
        hosts: (1..=3).map(host).collect(),
        capacity: 1 << 40,
        shared_storage: true,
        token: (user.into(), token.into(), secret.into()),
    };
    world::build(&mut lab, &new);
    lab
}

fn pass(lab: &mut Lab, seconds: u64) {
    lab.advance(Time::from_millis(lab.ground.now.millis() + seconds * 1000));
}

#[test]
fn the_status_daemons_and_the_ha_manager_act_by_themselves() {
    let mut lab = three_hosts();
    let body = "vmid=401&name=cp-1&memory=512&scsi0=shared%3A1";
    assert_eq!(send(&mut lab, request("POST", "/nodes/pve2/qemu", body)).status, 200);
    let rows = |lab: &mut Lab| data(&send(lab, request("GET", "/cluster/resources?type=vm", "")));
    assert_eq!(rows(&mut lab)[0]["status"], "unknown", "nobody has told yet how the new VM stands");
    pass(&mut lab, 2);
    assert_eq!(rows(&mut lab)[0]["status"], "stopped");
    let added = send(&mut lab, request("POST", "/cluster/ha/resources", "sid=vm%3A401&state=started"));
    assert_eq!(added.status, 200);
    pass(&mut lab, 3);
    assert_eq!(rows(&mut lab)[0]["status"], "running", "the manager started it");
    for (name, host) in &mut lab.pve.hosts {
        if name == "pve2" {
            (host.online, host.reachable) = (false, false);
        }
    }
    ichor_sim::pve::qemu::host_down(&mut lab.pve, &mut lab.ground, "pve2");
    pass(&mut lab, 3);
    let row = rows(&mut lab)[0].clone();
    assert_ne!(row["node"], "pve2", "the VM came back elsewhere: {row}");
    assert_eq!(send(&mut lab, request("GET", "/nodes/pve2/qemu", "")).status, 595);
}
