//! The cluster as a whole: its members, its resources, and what the status daemons say about them.

use std::{collections::BTreeMap, time::Duration};

use ichor_model::VmId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    agenda,
    ground::Ground,
    pve::{
        Answer, ApiError, Call, Caller, Datacentre, Event, Params, Reply, Route, hosts, params::split_list,
        qemu,
    },
};

/// What the status daemons of the hosts said last.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Broadcast {
    /// How VMs stood.
    pub vms: BTreeMap<VmId, Map<String, Value>>,
    /// How storages stood, by host and name.
    pub storages: BTreeMap<String, Map<String, Value>>,
    /// How hosts stood.
    pub hosts: BTreeMap<String, Map<String, Value>>,
    /// Whether the daemons speak by themselves, every ten seconds; else only when they are told to.
    pub by_itself: bool,
}

/// A container, as far as lists show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Its host.
    pub host: String,
    /// Its name.
    pub name: String,
    /// Its tags.
    pub tags: String,
    /// Whether it runs.
    pub runs: bool,
}

/// How often the status daemons speak.
const ROUND: Duration = Duration::from_secs(10);

/// Starts the status daemons' rounds.
pub fn start_rounds(dc: &mut Datacentre, ground: &mut Ground) {
    dc.broadcast.by_itself = true;
    status_round(dc, ground);
}

/// The status daemons' round. The next one follows at its time, whatever the lab's profile: a lab without pauses
/// would never come to an end with it.
pub fn status_round(dc: &mut Datacentre, ground: &mut Ground) {
    dc.tasks.round();
    let up: Vec<String> =
        dc.hosts.iter().filter(|(_, host)| host.online).map(|(name, _)| name.clone()).collect();
    let vms = dc.vms.iter().filter(|(_, vm)| up.contains(&vm.host));
    dc.broadcast.vms =
        vms.map(|(vmid, vm)| (*vmid, qemu::status::of(dc, ground, *vmid, vm, false))).collect();
    for host in &up {
        dc.broadcast.hosts.insert(host.clone(), hosts::figures(dc, ground, host));
        for storage in dc.storage.definitions.keys() {
            let figures = storage_figures(dc, host, storage);
            dc.broadcast.storages.insert(format!("{host}/{storage}"), figures);
        }
    }
    if dc.broadcast.by_itself {
        let pause = ground.profile.takes(ROUND).max(Duration::from_millis(500));
        ground.agenda.add(ground.now + pause, agenda::Event::Pve(Event::StatusRound));
    }
}

fn storage_figures(dc: &Datacentre, host: &str, storage: &str) -> Map<String, Value> {
    let mut figures = Map::new();
    if dc.storage.activate(storage, host).is_ok() {
        let shelf = dc.storage.shelf(storage, host).cloned().unwrap_or_default();
        figures.insert("maxdisk".into(), shelf.capacity.into());
        figures.insert("disk".into(), shelf.used().into());
    }
    figures
}

/// The endpoints below `/cluster` that are about the cluster itself.
pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/version", version),
        Route::get("/nodes/{node}/version", version),
        Route::get("/cluster", index),
        Route::get("/cluster/status", status),
        Route::get("/cluster/resources", resources),
        Route::get("/cluster/nextid", next_id),
        Route::get("/cluster/log", |_, _, _, _| Ok(Value::Array(vec![]).into())),
        Route::get("/cluster/config/nodes", |_, _, _, _| Ok(Value::Array(vec![]).into())),
    ]
}

/// What identifies the build; the real one is a commit.
pub const REPOID: &str = "a1b2c3d4e5f60718";

fn version(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, _: &Params) -> Reply {
    let release = dc.release;
    Ok(json!({ "release": release.to_string(), "repoid": REPOID, "version": release.version() }).into())
}

fn index(_: &mut Datacentre, _: &mut Ground, _: &mut Call, _: &Params) -> Reply {
    let names = [
        "acme",
        "backup",
        "backup-info",
        "bulk-action",
        "ceph",
        "config",
        "firewall",
        "ha",
        "jobs",
        "log",
        "mapping",
        "metrics",
        "notifications",
        "nextid",
        "options",
        "qemu",
        "replication",
        "resources",
        "status",
        "tasks",
        "sdn",
    ];
    Ok(Value::Array(names.iter().map(|name| json!({ "name": name })).collect()).into())
}

fn status(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, _: &Params) -> Reply {
    let mut rows = Vec::new();
    if let Some(name) = &dc.cluster {
        rows.push(json!({
            "id": "cluster",
            "type": "cluster",
            "name": name,
            "nodes": dc.hosts.len(),
            "quorate": u8::from(dc.is_quorate()),
            "version": dc.hosts.len() + 1,
        }));
    }
    for (name, host) in &dc.hosts {
        let mut row = json!({
            "id": format!("node/{name}"),
            "type": "node",
            "name": name,
            "nodeid": if dc.cluster.is_some() { host.id } else { 0 },
            "online": u8::from(host.online),
            "local": u8::from(*name == dc.front),
            "level": "",
        });
        if host.online {
            row["ip"] = host.address.clone().into();
        }
        rows.push(row);
    }
    Ok(rows.into())
}

impl Datacentre {
    /// Returns whether a VM or a container has a number.
    pub fn is_taken(&self, vmid: VmId) -> bool {
        self.vms.contains_key(&vmid) || self.containers.contains_key(&vmid)
    }

    /// Returns whether most hosts are there.
    pub fn is_quorate(&self) -> bool {
        let up = self.hosts.values().filter(|host| host.online).count();
        self.cluster.is_none() || up * 2 > self.hosts.len() || self.assumes_quorum
    }
}

fn resources(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let kind = params.text("type");
    let wanted = |name: &str| kind.as_deref().is_none_or(|kind| kind == name);
    let caller = &call.caller;
    let mut rows: Vec<Value> = Vec::new();
    if wanted("vm") {
        for (name, pool) in dc.access.pools.iter().filter(|_| kind.is_none()) {
            let _ = pool;
            if dc.may(caller, &format!("/pool/{name}"), &["Pool.Audit"]) {
                rows.push(json!({ "id": format!("/pool/{name}"), "type": "pool", "pool": name }));
            }
        }
        let may_see = |pool: &str| dc.may(caller, &format!("/pool/{pool}"), &["Pool.Audit"]);
        let seen = dc.vms.keys().filter(|vmid| dc.may(caller, &format!("/vms/{vmid}"), &["VM.Audit"]));
        for mut row in seen.filter_map(|vmid| vm_row(dc, ground, *vmid)) {
            let hidden = row["pool"].as_str().is_some_and(|pool| !may_see(pool));
            if let Some(row) = row.as_object_mut().filter(|_| hidden) {
                row.remove("pool");
            }
            rows.push(row);
        }
    }
    if wanted("vm") {
        let seen = dc.containers.iter();
        let seen = seen.filter(|(vmid, _)| dc.may(caller, &format!("/vms/{vmid}"), &["VM.Audit"]));
        rows.extend(seen.map(|(vmid, container)| container_row(dc, *vmid, container)));
    }
    if wanted("node") {
        rows.extend(dc.hosts.keys().map(|name| hosts::row(dc, caller, name, true)));
    }
    if kind.is_none() || !dc.release.at_least(9, 1) && wanted("sdn") {
        rows.extend(local_networks(dc, caller));
    }
    if wanted("storage") {
        for host in dc.hosts.keys() {
            for (storage, definition) in &dc.storage.definitions {
                let visible = dc.may_any(
                    caller,
                    &format!("/storage/{storage}"),
                    &["Datastore.Audit", "Datastore.AllocateSpace"],
                );
                if visible && !definition.is_disabled() && definition.is_on(host) {
                    rows.extend(storage_row(dc, host, storage));
                }
            }
        }
    }
    Ok(rows.into())
}

/// Returns the zone of plain bridges on each host, which is always there.
fn local_networks(dc: &Datacentre, caller: &Caller) -> Vec<Value> {
    if !dc.may_any(caller, "/sdn/zones/localnetwork", &["SDN.Audit", "SDN.Use", "SDN.Allocate"]) {
        return Vec::new();
    }
    let hosts = dc.hosts.iter().filter(|(_, host)| host.online);
    let row = |name: &String| {
        if dc.release.at_least(9, 1) {
            json!({
                "id": format!("network/{name}/zone/localnetwork"),
                "type": "network",
                "network": "localnetwork",
                "network-type": "zone",
                "node": name,
                "status": "ok",
            })
        } else {
            let id = format!("sdn/{name}/localnetwork");
            json!({ "id": id, "type": "sdn", "sdn": "localnetwork", "node": name, "status": "ok" })
        }
    };
    hosts.map(|(name, _)| row(name)).collect()
}

/// Returns a VM as the cluster's resources show it: figures of the last broadcast, if there was one since the VM
/// came to be, and what is live.
pub fn vm_row(dc: &Datacentre, _: &Ground, vmid: VmId) -> Option<Value> {
    let vm = dc.vms.get(&vmid)?;
    let mut row = json!({
        "id": format!("qemu/{vmid}"),
        "vmid": vmid.number(),
        "type": "qemu",
        "node": vm.host,
        "status": "unknown",
    });
    if let Some(said) = dc.broadcast.vms.get(&vmid) {
        row["status"] = said.get("status").cloned().unwrap_or_else(|| "unknown".into());
        row["maxcpu"] = said.get("cpus").cloned().unwrap_or_default();
        row["template"] = said.get("template").cloned().unwrap_or_else(|| 0.into());
        row["diskread"] = 0.into();
        row["diskwrite"] = 0.into();
        for key in ["name", "uptime", "cpu", "mem", "maxmem", "disk", "maxdisk", "netin", "netout", "memhost"]
        {
            if let Some(value) = said.get(key) {
                row[key] = value.clone();
            }
        }
    }
    for key in ["tags", "lock"] {
        if let Some(value) = vm.config.get(key) {
            row[key] = value.into();
        }
    }
    if let Some((name, _)) = dc.access.pools.iter().find(|(_, pool)| pool.vms.contains(&vmid)) {
        row["pool"] = name.clone().into();
    }
    if let Some(state) = dc.ha.state_of(vmid) {
        row["hastate"] = state.into();
    }
    Some(row)
}

fn container_row(dc: &Datacentre, vmid: VmId, container: &Container) -> Value {
    let known = dc.hosts.get(&container.host).is_some_and(|host| host.online);
    let status = match (known, container.runs) {
        (false, _) => "unknown",
        (true, true) => "running",
        (true, false) => "stopped",
    };
    let mut row = json!({
        "id": format!("lxc/{vmid}"),
        "vmid": vmid.number(),
        "type": "lxc",
        "node": container.host,
        "status": status,
        "tags": container.tags,
    });
    if known {
        row["name"] = container.name.clone().into();
        row["template"] = 0.into();
    }
    row
}

/// Returns a storage as the cluster's resources show it.
pub fn storage_row(dc: &Datacentre, host: &str, storage: &str) -> Option<Value> {
    let definition = dc.storage.definitions.get(storage)?;
    let content: Vec<&str> = definition.content.iter().map(String::as_str).collect();
    let mut row = json!({
        "id": format!("storage/{host}/{storage}"),
        "type": "storage",
        "storage": storage,
        "node": host,
        "plugintype": definition.kind,
        "content": content.join(","),
        "shared": u8::from(definition.is_shared()),
        "status": "unknown",
    });
    let said = dc.broadcast.storages.get(&format!("{host}/{storage}")).filter(|said| !said.is_empty());
    if let Some(said) = said {
        row["status"] = "available".into();
        for (key, value) in said {
            row[key] = value.clone();
        }
    }
    Some(row)
}

/// The range of VMIDs unless something else was set.
const RANGE: (u32, u32) = (100, 1_000_000);

fn next_id(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    if let Some(vmid) = params.vmid("vmid") {
        if dc.is_taken(vmid) {
            return Err(ApiError::param("vmid", format!("VM {vmid} already exists")).into());
        }
        return Ok(Answer::from(vmid.to_string()));
    }
    let number = |key: &str, default: u32| {
        dc.option_key("next-id", key).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (lower, upper) = (number("lower", RANGE.0), number("upper", RANGE.1));
    let free = (lower..upper).find(|number| VmId::new(*number).is_none_or(|vmid| !dc.is_taken(vmid)));
    match free {
        Some(number) => Ok(Answer::from(number.to_string())),
        None => {
            Err(ApiError::server(format!("unable to get any free VMID in range [{lower}, {upper}]")).into())
        }
    }
}

/// Returns the VMIDs of a list; what is none is left out.
pub fn vmids(text: &str) -> Vec<VmId> {
    split_list(text).iter().filter_map(|part| part.parse().ok()).collect()
}
