//! What happened outside the API: the setup of a recording, and events before an exchange.
//!
//! Recordings tell them in words, with the values that matter beside. What a text is about is found by the words
//! that name it; nothing here knows a recording.

use ichor_model::VmId;
use serde_json::Value;

use crate::{
    Lab,
    pve::{
        cluster,
        hosts::Daemon,
        locks::{Lock, Mode, OUTSIDE},
        tasks, world,
    },
    replay::Memory,
};

/// Brings the lab from the starting world into that of a recording.
pub fn set_up(lab: &mut Lab, setup: &Value) {
    if setup["cluster"].as_str().is_some_and(|text| text.starts_with("none")) {
        lab.pve.cluster = None;
    }
    for (name, text) in setup["nodes"].as_object().into_iter().flatten() {
        let text = text.as_str().unwrap_or_default();
        let online = !text.starts_with("offline");
        let reachable = online && !text.contains("nothing listens");
        world::set_host(lab, name, online, reachable);
    }
    for (name, definition) in setup["storages"].as_object().into_iter().flatten() {
        world::set_storage(lab, name, definition);
    }
    if setup["ha"].as_str().is_some_and(|text| text.contains("has run")) {
        let hosts: Vec<String> = lab.pve.hosts.keys().cloned().collect();
        lab.pve.ha.has_run(hosts, lab.ground.now);
    }
    cluster::status_round(&mut lab.pve, &mut lab.ground);
}

/// Lets an event happen that stands before an exchange.
pub fn happen(lab: &mut Lab, memory: &Memory, exchange: &Value, event: &Value) {
    let text = event["event"].as_str().unwrap_or_default();
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let vmid = event["vmid"].as_u64().and_then(|number| VmId::new(u32::try_from(number).ok()?));
    if has(&["released", "free again"]) {
        lab.pve.locks.release_all(OUTSIDE);
    }
    if let Some(lock) = event["lock"].as_str() {
        hold(lab, lock);
        return;
    }
    if let Some(vmid) = vmid {
        happen_to_vm(lab, memory, vmid, event, text);
        return;
    }
    if let Some(volume) = event["volid"].as_str() {
        world::hold_open(lab, volume, !has(&["closed", "no longer"]));
    } else if has(&["pvestatd", "status daemon", "broadcast"]) {
        cluster::status_round(&mut lab.pve, &mut lab.ground);
    } else if has(&["pvedaemon"]) {
        set_daemon(lab, text);
    } else if has(&["worker", "SIGKILL", "killed"]) {
        kill_worker(lab, memory, exchange);
    } else if has(&["quorum"]) {
        lab.pve.assumes_quorum = !has(&["lost", "loses", "no quorum", "without"]);
    }
}

/// Somebody elsewhere takes a lock, and keeps it.
fn hold(lab: &mut Lab, name: &str) {
    let lock = if let Some(vmid) = name.strip_prefix("vm ").and_then(|number| number.parse().ok()) {
        Lock::Vm(vmid)
    } else if let Some(storage) = name.strip_prefix("storage ") {
        let shared = lab
            .pve
            .storage
            .definitions
            .get(storage)
            .is_some_and(crate::pve::storage::definition::Definition::is_shared);
        Lock::storage(&lab.pve.front, storage, shared)
    } else {
        Lock::Cluster(name.to_owned())
    };
    lab.pve.locks.take(lock, Mode::Exclusive, OUTSIDE);
}

fn happen_to_vm(lab: &mut Lab, memory: &Memory, vmid: VmId, event: &Value, text: &str) {
    if text.contains("agent") {
        world::agent_comes_up(
            lab,
            vmid,
            memory.agent_reads_only,
            !text.contains("gone") && !text.contains("stops"),
        );
        return;
    }
    if text.contains("vanish") || text.contains("removed by hand") {
        lab.pve.vms.remove(&vmid);
        return;
    }
    let Some(vm) = lab.pve.vms.get_mut(&vmid) else { return };
    for (key, value) in event["set"].as_object().into_iter().flatten() {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        vm.config.current.insert(key.clone(), text);
    }
    for key in event["delete"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        vm.config.current.remove(key);
    }
}

fn set_daemon(lab: &mut Lab, text: &str) {
    let words = [
        ("runs again", Daemon::Runs),
        ("started", Daemon::Runs),
        ("resets", Daemon::Resets),
        ("dies in the middle", Daemon::DiesInBody),
        ("closes the connection", Daemon::Closes),
        ("silent", Daemon::Silent),
        ("stopped", Daemon::Stopped),
    ];
    let found = words.iter().find(|(word, _)| text.contains(word));
    let front = lab.pve.front.clone();
    if let (Some((_, daemon)), Some(host)) = (found, lab.pve.hosts.get_mut(&front)) {
        host.daemon = *daemon;
    }
}

/// Kills the process of the task that the exchange asks about, or else the one that was started last.
fn kill_worker(lab: &mut Lab, memory: &Memory, exchange: &Value) {
    let path = exchange["path"].as_str().unwrap_or_default();
    let named = memory.bound.iter().find(|(name, _)| path.contains(&format!("{{{name}}}")));
    let named = named.map(|(_, upid)| upid.clone()).filter(|upid| upid.starts_with("UPID:"));
    let last = lab.pve.tasks.running().last().map(|task| task.upid.clone());
    if let Some(upid) = named.or(last) {
        tasks::kill(&mut lab.pve, &mut lab.ground, &upid);
    }
}
