//! Running a backup at once.

use ichor_model::VmId;
use serde_json::json;

use crate::{
    ground::Ground,
    pve::{
        Answer, ApiError, Call, Datacentre, Params, Reply, Route, Work, params::split_list, qemu,
        qemu::restore::Vzdump, tasks,
    },
};

/// The endpoints below `/nodes/{node}/vzdump`.
pub fn routes() -> Vec<Route> {
    vec![
        Route::post("/nodes/{node}/vzdump", run),
        Route::get("/nodes/{node}/vzdump/defaults", defaults),
        Route::get("/nodes/{node}/vzdump/extractconfig", extract_config),
    ]
}

/// The storage of backups unless another is named.
const STORAGE: &str = "local";

fn run(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let host = params.host();
    let storage = params.text("storage").unwrap_or_else(|| STORAGE.into());
    check_rights(dc, call, params, &storage)?;
    let named = params.text("vmid").filter(|list| !list.is_empty());
    let here = |vmid: &VmId| dc.vms.get(vmid).is_none_or(|vm| vm.host == host);
    let (name, vmids): (String, Vec<VmId>) = if let Some(pool) = params.text("pool") {
        let Some(pool) = dc.access.pools.get(&pool) else {
            return Err(ApiError::server(format!("pool '{pool}' does not exist")).into());
        };
        (String::new(), pool.vms.iter().copied().filter(here).collect())
    } else if params.flag("all") {
        let excluded = split_list(&params.text_or_empty("exclude"));
        let all = dc.vms.keys().copied().filter(|vmid| !excluded.contains(&vmid.to_string()));
        (String::new(), all.filter(here).collect())
    } else if let Some(list) = named {
        let listed = split_list(&list);
        let vmids: Vec<VmId> = listed.iter().filter_map(|name| name.parse().ok()).collect();
        let single = if listed.len() == 1 { listed[0].clone() } else { String::new() };
        (single, vmids.into_iter().filter(here).collect())
    } else {
        return Err(ApiError::param("vmid", "property is missing").into());
    };
    for vmid in vmids.iter().filter(|vmid| dc.vms.contains_key(vmid)) {
        dc.check(&call.caller, &format!("/vms/{vmid}"), &["VM.Backup"])?;
    }
    if vmids.is_empty() {
        return Ok(Answer::from("OK"));
    }
    let mode = params.text("mode").unwrap_or_else(|| "snapshot".into());
    let compress = params.text("compress").unwrap_or_else(|| "0".into());
    let work = Vzdump::new(&host, vmids, &storage, told(params, &host), &mode, &compress);
    let work = Work::Qemu(qemu::Work::Vzdump(Box::new(work)));
    let user = call.caller.id.clone();
    Ok(tasks::start(dc, ground, &host, "vzdump", &name, &user, work).into())
}

fn check_rights(dc: &Datacentre, call: &Call, params: &Params, storage: &str) -> Result<(), ApiError> {
    let caller = &call.caller;
    for name in ["dumpdir", "tmpdir", "script", "job-id"] {
        if params.has(name) && !caller.is_root() {
            return Err(ApiError::param(name, "Only root may set this option."));
        }
    }
    if ["bwlimit", "ionice", "performance"].iter().any(|name| params.has(name)) {
        dc.check(caller, "/", &["Sys.Modify"])?;
    }
    dc.check(caller, &format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
    if params.has("prune-backups") {
        dc.check(caller, &format!("/storage/{storage}"), &["Datastore.Allocate"])?;
    }
    Ok(())
}

/// The call as a command line, as the log of the task tells it.
fn told(params: &Params, host: &str) -> String {
    let mut words = vec![split_list(&params.text_or_empty("vmid")).join(" ")];
    words.retain(|word| !word.is_empty());
    for name in params.names().filter(|name| *name != "vmid") {
        let text = if name == "node" { host.to_owned() } else { params.text_or_empty(name) };
        words.push(format!("--{name} {text}"));
    }
    words.join(" ")
}

fn defaults(_: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let storage = params.text("storage").unwrap_or_else(|| STORAGE.into());
    Ok(json!({
        "all": 0,
        "bwlimit": 0,
        "compress": "0",
        "dumpdir": "/var/lib/vz/dump",
        "fleecing": { "enabled": 0 },
        "ionice": 7,
        "lockwait": 180,
        "mailnotification": "always",
        "mode": "snapshot",
        "notification-mode": "auto",
        "performance": { "max-workers": 16, "pbs-entries-max": 1_048_576 },
        "pigz": 0,
        "prune-backups": "keep-all=1",
        "quiet": 0,
        "remove": 1,
        "stdexcludes": 1,
        "stop": 0,
        "stopwait": 10,
        "storage": storage,
        "zstd": 1,
    })
    .into())
}

fn extract_config(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let volume = params.text_or_empty("volume");
    match dc.storage.get(&params.host(), &volume) {
        // What is inside an archive is known to those who restore it.
        Some(backup) => Ok(backup.notes.clone().unwrap_or_default().into()),
        None => Err(ApiError::server(format!("volume '{volume}' does not exist")).into()),
    }
}
