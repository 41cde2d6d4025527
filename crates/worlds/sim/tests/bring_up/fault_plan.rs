//! Every kind of fault at every server, through the doors of the lab.

use std::{net::IpAddr, time::Duration};

use ichor_sim::{
    Door, Lab, Progress,
    clock::Time,
    faults::FaultPlan,
    hostility::ESCAPES,
    profile::Profile,
    wire::{Polled, Response, RpcReply},
};
use ichor_talos_proto::machine;
use serde_json::{Value, json};

use crate::driver::{Cluster, Driver};

/// A call that has an effect, at each server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Pve,
    Talos,
    Factory,
    Kube,
}

const TARGETS: [Target; 4] = [Target::Pve, Target::Talos, Target::Factory, Target::Kube];

/// What a client sees of a call, whatever the protocol.
#[derive(Debug, Clone, PartialEq)]
enum Seen {
    Well(Vec<u8>),
    Cut(usize),
    Status(u16, String),
    Closed,
    Silence,
}

/// The door of the cluster's Kubernetes API.
fn kube(driver: &Driver<'_>) -> Door {
    let persona = driver.lab.kube_persona(IpAddr::from([10, 0, 0, 11]));
    Door::Kube(persona.expect("a control plane").0)
}

struct Bench<'c> {
    driver: Driver<'c>,
    calls: u32,
}

impl Bench<'_> {
    fn meets(&mut self, target: Target, fault: &Value) {
        let (server, path) = match target {
            Target::Pve => ("pve", "/pools"),
            Target::Talos => ("talos", "/machine.MachineService/MetaWrite"),
            Target::Factory => ("factory", "/schematics"),
            Target::Kube => ("kube", "/api/v1/namespaces"),
        };
        let plan = json!([{ "server": server, "path": path, "fault": fault }]);
        self.driver.lab.ground.faults = serde_json::from_value::<FaultPlan>(plan).expect("a plan");
    }

    /// Calls, and says what the client saw and how long it took.
    fn call(&mut self, target: Target) -> (Seen, Duration) {
        self.calls += 1;
        let began = self.driver.lab.ground.now;
        let seen = match target {
            Target::Talos => self.call_talos(),
            _ => self.call_http(target),
        };
        (seen, self.driver.lab.ground.now.since(began))
    }

    fn call_http(&mut self, target: Target) -> Seen {
        let name = format!("n{}", self.calls);
        let (door, request) = match target {
            Target::Pve => (Door::Pve, self.driver.pve_request("POST", "/pools", &[("poolid", &name)])),
            Target::Kube => {
                let body = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
                let request = self.driver.kube_request("POST", "/api/v1/namespaces", &body.to_string());
                (kube(&self.driver), request)
            }
            _ => {
                let body = format!("customization:\n  extraKernelArgs: [{name}]\n");
                let mut request = self.driver.kube_request("POST", "/schematics", &body);
                request.client_certificate = None;
                (Door::Factory, request)
            }
        };
        match finish(&mut self.driver.lab, |lab| lab.call(&door, &request)) {
            None => Seen::Silence,
            Some(Response { status: 0, .. }) => Seen::Closed,
            Some(Response { cut: Some(bytes), .. }) => Seen::Cut(bytes),
            Some(Response { status: 200..=299, body, .. }) => Seen::Well(body),
            Some(Response { status, reason, body, .. }) => {
                let reason = reason.filter(|reason| !reason.is_empty());
                Seen::Status(status, reason.unwrap_or_else(|| String::from_utf8_lossy(&body).into_owned()))
            }
        }
    }

    fn call_talos(&mut self) -> Seen {
        let query = machine::MetaWriteRequest { key: 10, value: self.calls.to_string().into_bytes() };
        let rpc = self.driver.rpc_request("/machine.MachineService/MetaWrite", &query);
        let address = IpAddr::from([10, 0, 0, 11]);
        match finish(&mut self.driver.lab, |lab| lab.rpc(address, &rpc)) {
            None => Seen::Silence,
            Some(RpcReply::Messages { messages, .. }) => Seen::Well(messages.concat()),
            Some(RpcReply::Status { code: 14, message }) if message.contains("closed") => Seen::Closed,
            Some(RpcReply::Status { code: 14, message }) if message.contains("reset") => Seen::Cut(0),
            Some(RpcReply::Status { code, message }) => {
                Seen::Status(u16::try_from(code).expect("a code"), message)
            }
        }
    }

    /// Whether the last call had its effect.
    fn happened(&self, target: Target) -> bool {
        let lab = &self.driver.lab;
        let name = format!("n{}", self.calls);
        match target {
            Target::Pve => lab.pve.access.pools.contains_key(&name),
            Target::Talos => {
                let machine = lab.machines.owner(IpAddr::from([10, 0, 0, 11])).expect("a machine");
                machine.meta(&lab.ground.media).get(&10).is_some_and(|value| *value == self.calls.to_string())
            }
            Target::Factory => serde_json::to_string(&lab.factory).expect("a state").contains(&name),
            Target::Kube => serde_json::to_string(&lab.clusters).expect("a state").contains(&name),
        }
    }
}

/// Asks until there is an answer; nothing: there is none within an hour.
fn finish<T>(lab: &mut Lab, mut ask: impl FnMut(&mut Lab) -> Progress<T>) -> Option<T> {
    for _ in 0..10_000 {
        match ask(lab) {
            Progress::Done(answer) => return Some(answer),
            Progress::Wait(Time::NEVER) => return None,
            Progress::Wait(until) => lab.advance(until),
        }
    }
    panic!("a call waits for ever");
}

fn with_bench(test: impl Fn(&mut Bench<'_>, Target)) {
    let cluster = Cluster::new();
    let mut driver = Driver::new(7, Profile::Lab, &cluster);
    driver.bring_up();
    let mut bench = Bench { driver, calls: 0 };
    for target in TARGETS {
        let (seen, _) = bench.call(target);
        assert!(matches!(seen, Seen::Well(_)), "{target:?}: {seen:?}");
        assert!(bench.happened(target), "{target:?}");
        test(&mut bench, target);
        let (seen, _) = bench.call(target);
        assert!(matches!(seen, Seen::Well(_)), "{target:?} goes on: {seen:?}");
    }
}

#[test]
fn calls_are_refused_and_hang_before_and_after_their_effect() {
    with_bench(|bench, target| {
        for (when, effect) in [("before", false), ("after", true)] {
            bench.meets(target, &json!({ "close": when }));
            assert_eq!(bench.call(target).0, Seen::Closed, "{target:?}");
            assert_eq!(bench.happened(target), effect, "{target:?} {when}");
            bench.meets(target, &json!({ "hang": when }));
            assert_eq!(bench.call(target).0, Seen::Silence, "{target:?}");
            assert_eq!(bench.happened(target), effect, "{target:?} {when}");
            bench.meets(target, &json!({ "status": { "code": 13, "reason": "no", "when": when } }));
            if target != Target::Talos {
                bench.meets(target, &json!({ "status": { "code": 503, "reason": "no", "when": when } }));
            }
            let (seen, _) = bench.call(target);
            assert!(matches!(&seen, Seen::Status(13 | 503, text) if text == "no"), "{target:?} {seen:?}");
            assert_eq!(bench.happened(target), effect, "{target:?} {when}");
        }
    });
}

#[test]
fn bodies_are_cut_replaced_and_late() {
    with_bench(|bench, target| {
        bench.meets(target, &json!({ "cut": { "bytes": 5 } }));
        assert!(matches!(bench.call(target).0, Seen::Cut(_)), "{target:?}");
        assert!(bench.happened(target));
        bench.meets(target, &json!({ "payload": "<html>" }));
        assert_eq!(bench.call(target).0, Seen::Well(b"<html>".to_vec()), "{target:?}");
        assert!(bench.happened(target));
        bench.meets(target, &json!({ "slow": { "millis": 7000 } }));
        let (seen, took) = bench.call(target);
        assert!(matches!(seen, Seen::Well(_)), "{target:?} {seen:?}");
        assert_eq!(took.as_secs(), 7, "{target:?}");
        assert!(bench.happened(target));
    });
}

#[test]
fn a_call_takes_effect_twice() {
    with_bench(|bench, target| {
        bench.meets(target, &json!("twice"));
        let (seen, _) = bench.call(target);
        assert!(bench.happened(target));
        match target {
            // Whoever creates twice is told that it is there already.
            Target::Pve | Target::Kube => {
                assert!(
                    matches!(&seen, Seen::Status(_, text) if text.contains("already exists")),
                    "{seen:?}"
                );
            }
            Target::Talos | Target::Factory => assert!(matches!(seen, Seen::Well(_)), "{seen:?}"),
        }
    });
}

#[test]
fn rights_are_lost() {
    with_bench(|bench, target| {
        bench.meets(target, &json!("permission_lost"));
        let (seen, _) = bench.call(target);
        let expected = match target {
            Target::Pve => (403, "Permission check failed (/pool/"),
            Target::Talos => (7, "not authorized"),
            Target::Factory => (403, "Forbidden"),
            Target::Kube => (403, "cannot create resource"),
        };
        let fits =
            matches!(&seen, Seen::Status(code, text) if *code == expected.0 && text.contains(expected.1));
        assert!(fits, "{target:?} {seen:?}");
        assert!(!bench.happened(target), "{target:?}");
    });
}

#[test]
fn locks_are_held_by_somebody_else() {
    with_bench(|bench, target| {
        bench.meets(target, &json!({ "lock_held": { "millis": 100 } }));
        let (seen, took) = bench.call(target);
        assert!(matches!(seen, Seen::Well(_)), "{target:?}: it waits in vain {seen:?}");
        assert_eq!(took.as_millis(), 100, "{target:?}");
        assert!(bench.happened(target));
        if target == Target::Pve {
            bench.meets(target, &json!({ "lock_held": { "millis": 60_000 } }));
            let (seen, _) = bench.call(target);
            let text = "cfs-lock 'file-user_cfg' error: got lock request timeout";
            assert!(matches!(&seen, Seen::Status(500, it) if it.contains(text)), "{seen:?}");
            assert!(!bench.happened(target));
        }
    });
}

#[test]
fn calls_without_tasks_fail_where_tasks_would() {
    with_bench(|bench, target| {
        bench.meets(target, &json!({ "task_fails": "out of luck" }));
        let (seen, _) = bench.call(target);
        // Making a pool starts no task.
        let expected = if target == Target::Pve { "" } else { "out of luck" };
        let failed = matches!(&seen, Seen::Status(_, text) if text == expected);
        assert_eq!(failed, target != Target::Pve, "{target:?} {seen:?}");
    });
}

#[test]
fn tasks_fail_and_wait_for_locks_in_vain() {
    let cluster = Cluster::new();
    let mut driver = Driver::new(7, Profile::Lab, &cluster);
    driver.image();
    let plan = r#"[{"server": "pve", "method": "POST", "path": "/nodes/*/qemu",
        "fault": {"task_fails": "unable to create VM 211 - no luck"}},
        {"server": "pve", "method": "POST", "path": "/nodes/*/qemu/211/status/start",
        "fault": {"lock_held": {"millis": 60000}}}]"#;
    driver.lab.ground.faults = serde_json::from_str(plan).expect("a plan");
    let ended = |driver: &mut Driver<'_>, upid: &Value| {
        let upid = upid.as_str().expect("a task").to_owned();
        driver.until("the task ends", |driver| driver.lab.pve.tasks.get(&upid).is_some_and(|it| !it.runs()));
        driver.pve("GET", &format!("/nodes/pve1/tasks/{upid}/status"), &[])["exitstatus"].clone()
    };
    let upid = driver.create("pve1", 11);
    assert_eq!(ended(&mut driver, &upid), "unable to create VM 211 - no luck");
    assert!(driver.lab.pve.vms.is_empty(), "it has cleaned up");
    let upid = driver.create("pve1", 11);
    assert_eq!(ended(&mut driver, &upid), "OK");
    let upid = driver.pve("POST", "/nodes/pve1/qemu/211/status/start", &[]);
    let text = "can't lock file '/var/lock/qemu-server/lock-211.conf' - got timeout";
    assert_eq!(ended(&mut driver, &upid), text);
    let upid = driver.pve("POST", "/nodes/pve1/qemu/211/status/start", &[]);
    assert_eq!(ended(&mut driver, &upid), "OK");
}

#[test]
fn a_call_that_waits_is_counted_once() {
    let cluster = Cluster::new();
    let mut driver = Driver::new(7, Profile::Lab, &cluster);
    let plan = r#"[{"server": "pve", "path": "/pools", "occurrence": 9, "fault": "twice"}]"#;
    driver.lab.ground.faults = serde_json::from_str(plan).expect("a plan");
    driver.lab.pve.locks.take(
        ichor_sim::pve::Lock::file("user.cfg"),
        ichor_sim::pve::Mode::Exclusive,
        ichor_sim::pve::locks::OUTSIDE,
    );
    let request = driver.pve_request("POST", "/pools", &[("poolid", "x")]);
    assert_eq!(driver.http(&Door::Pve, request).status, 500);
    assert_eq!(driver.lab.ground.faults.0[0].seen, 1);
}

#[test]
fn servers_turn_hostile() {
    with_bench(|bench, target| {
        for kind in ["garbage", "nested", "oversized", "content_type", "redirect", "headers", "escapes"] {
            bench.meets(target, &json!({ "hostile": kind }));
            let (seen, _) = bench.call(target);
            assert!(bench.happened(target), "{target:?} {kind}");
            match (kind, seen) {
                ("escapes", Seen::Status(_, text)) => {
                    assert!(text.contains(ESCAPES) || text.contains("\\u001b"), "{text:?}");
                }
                ("redirect", Seen::Status(302, _)) => assert_ne!(target, Target::Talos),
                ("headers", Seen::Status(13, text)) => assert!(text.len() > 1_000_000),
                ("oversized", Seen::Well(body)) => assert!(body.len() > 32 << 20),
                (_, Seen::Well(_)) => {}
                (_, seen) => panic!("{target:?} {kind} {seen:?}"),
            }
        }
    });
}

#[test]
fn endless_answers_go_on_until_they_are_closed() {
    let cluster = Cluster::new();
    let mut driver = Driver::new(7, Profile::Lab, &cluster);
    driver.lab.ground.faults = serde_json::from_value(json!([
        { "server": "pve", "path": "/version", "fault": { "hostile": "endless" } },
        { "server": "factory", "path": "/versions", "fault": { "hostile": "drip" } },
    ]))
    .expect("a plan");
    let request = driver.pve_request("GET", "/version", &[]);
    let stream = driver.http(&Door::Pve, request).stream.expect("a stream");
    for _ in 0..3 {
        assert!(matches!(driver.lab.poll(&Door::Pve, stream), Polled::Pieces(_)));
    }
    driver.lab.close(&Door::Pve, stream);
    assert_eq!(driver.lab.poll(&Door::Pve, stream), Polled::End);
    let request = driver.kube_request("GET", "/versions", "");
    let stream = driver.http(&Door::Factory, request).stream.expect("a stream");
    assert_eq!(driver.lab.poll(&Door::Factory, stream), Polled::Pieces(vec![b" ".to_vec()]));
    assert!(matches!(driver.lab.poll(&Door::Factory, stream), Polled::Wait(Some(_))));
}

#[test]
fn streams_are_forgotten_when_their_clients_go() {
    let cluster = Cluster::new();
    let mut driver = Driver::new(7, Profile::Lab, &cluster);
    driver.bring_up();
    assert_eq!(driver.lab.open_streams(), 0);
    let mut request = driver.kube_request("GET", "/api/v1/nodes", "");
    request.query = "watch=true".into();
    let door = kube(&driver);
    let watch = driver.http(&door, request).stream.expect("a watch");
    let query = machine::EventsRequest::default();
    let rpc = driver.rpc_request("/machine.MachineService/Events", &query);
    let address = IpAddr::from([10, 0, 0, 11]);
    let reply = finish(&mut driver.lab, |lab| lab.rpc(address, &rpc));
    let Some(RpcReply::Messages { stream: Some(events), .. }) = reply else { panic!("{reply:?}") };
    assert_eq!(driver.lab.open_streams(), 2);
    driver.lab.close(&door, watch);
    driver.lab.close_rpc(events);
    assert_eq!(driver.lab.open_streams(), 0);
    assert_eq!(driver.lab.poll(&door, watch), Polled::End);
}
