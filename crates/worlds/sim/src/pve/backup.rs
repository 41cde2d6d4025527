//! Backup jobs. Nobody runs them by themselves in the lab.

mod run;

use std::collections::BTreeMap;

use ichor_model::VmId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    ground::Ground,
    pve::{
        Answer, ApiError, Call, Datacentre, Params, Reply, Route, describe, describe::Kind,
        params::split_list, qemu::Vm, validate,
    },
};

/// All jobs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Jobs {
    jobs: BTreeMap<String, BTreeMap<String, String>>,
    order: Vec<String>,
}

/// The endpoints of jobs.
pub fn routes() -> Vec<Route> {
    let mut routes = vec![
        Route::get("/cluster/backup", list),
        Route::post("/cluster/backup", create),
        Route::get("/cluster/backup/{id}", read),
        Route::put("/cluster/backup/{id}", update),
        Route::delete("/cluster/backup/{id}", remove),
        Route::get("/cluster/backup/{id}/included_volumes", included_volumes),
        Route::get("/cluster/backup-info", |_, _, _, _| Ok(json!([{ "subdir": "not-backed-up" }]).into())),
        Route::get("/cluster/backup-info/not-backed-up", not_backed_up),
    ];
    routes.extend(run::routes());
    routes
}

impl Datacentre {
    /// Takes a VM out of all jobs; a job that named only this VM goes too.
    pub fn forget_in_backup_jobs(&mut self, vmid: VmId) {
        let name = vmid.to_string();
        let mut gone = Vec::new();
        for (id, job) in &mut self.backup.jobs {
            for key in ["vmid", "exclude"] {
                let Some(list) = job.get_mut(key) else { continue };
                let rest: Vec<String> = split_list(list).into_iter().filter(|known| *known != name).collect();
                if rest.is_empty() && key == "vmid" {
                    gone.push(id.clone());
                }
                *list = rest.join(",");
            }
            job.retain(|key, text| key != "exclude" || !text.is_empty());
        }
        for id in gone {
            self.backup.jobs.remove(&id);
            self.backup.order.retain(|known| *known != id);
        }
    }
}

/// Returns a job as it is told: numbers as numbers, property strings as objects.
fn shown(id: &str, job: &BTreeMap<String, String>) -> Map<String, Value> {
    let description = describe::description();
    let endpoint =
        description.endpoints.iter().find(|known| known.path == "/cluster/backup" && known.method == "POST");
    let value = |key: &str, text: &str| -> Value {
        if let Some(keys) = description.formats.get(match key {
            "prune-backups" => "prune-backups",
            "performance" => "backup-performance",
            "fleecing" => "backup-fleecing",
            _ => "",
        }) {
            let found = validate::split_property_string(keys, text).unwrap_or_default();
            return found.into_iter().map(|(key, text)| (key, text.into())).collect::<Map<_, _>>().into();
        }
        match endpoint.and_then(|known| known.params.get(key)).map(|property| property.kind) {
            Some(Kind::Boolean | Kind::Integer) => {
                text.parse::<i64>().map_or_else(|_| text.into(), Value::from)
            }
            Some(Kind::Array(_)) => text.split('\0').collect::<Vec<_>>().into(),
            _ => text.into(),
        }
    };
    let mut row: Map<String, Value> = job.iter().map(|(key, text)| (key.clone(), value(key, text))).collect();
    row.insert("id".into(), id.into());
    row.insert("type".into(), "vzdump".into());
    row
}

/// When a job runs next. Calendars are not simulated: it is always the next midnight.
fn next_run(ground: &Ground) -> u64 {
    (ground.now.unix_seconds() / 86_400 + 1) * 86_400
}

fn list(dc: &mut Datacentre, ground: &mut Ground, _: &mut Call, _: &Params) -> Reply {
    let row = |id: &String| {
        let job = dc.backup.jobs.get(id)?;
        let mut row = shown(id, job);
        if job.get("enabled").is_none_or(|enabled| enabled != "0") {
            row.insert("next-run".into(), next_run(ground).into());
        }
        Some(Value::Object(row))
    };
    Ok(dc.backup.order.iter().filter_map(row).collect::<Vec<_>>().into())
}

fn read(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let id = params.text_or_empty("id");
    let Some(job) = dc.backup.jobs.get(&id) else {
        return Err(ApiError::param("id", format!("No such job '{id}'")).into());
    };
    Ok(Value::Object(shown(&id, job)).into())
}

/// Checks what belongs together, in the words of vzdump itself. Its complaints come as text inside a 500.
fn check_selection(job: &BTreeMap<String, String>) -> Result<(), ApiError> {
    let given = |key: &str| job.get(key).is_some_and(|text| !text.is_empty() && text != "0");
    let inside = |name: &str, text: &str| {
        ApiError::server(format!("400 Parameter verification failed.\n{name}: {text}\n"))
    };
    if given("all") && given("vmid") {
        return Err(inside("all", "option conflicts with option 'vmid'"));
    }
    if given("exclude") && given("vmid") {
        return Err(inside("exclude", "option conflicts with option 'vmid'"));
    }
    if given("pool") && given("vmid") {
        return Err(inside("pool", "option conflicts with option 'vmid'"));
    }
    if given("prune-backups") && given("maxfiles") {
        return Err(inside("prune-backups", "option conflicts with option 'maxfiles'"));
    }
    if !given("all") && !given("vmid") && !given("pool") {
        return Err(inside("vmid", "property is missing"));
    }
    Ok(())
}

fn settings(params: &Params) -> BTreeMap<String, String> {
    let other = ["id", "delete", "starttime", "dow", "digest"];
    let names = params.names().filter(|name| !other.contains(&name.as_str()));
    names
        .map(|name| match params.get(name) {
            Some(Value::Array(_)) => (name.clone(), params.list(name).join("\0")),
            _ => (name.clone(), params.text_or_empty(name)),
        })
        .collect()
}

/// Writes the old form of a schedule, a time and days, as the new one.
fn schedule_of(params: &Params) -> Option<String> {
    params.text("schedule").or_else(|| {
        let time = params.text("starttime")?;
        Some(match params.text("dow") {
            Some(days) => format!("{days} {time}"),
            None => time,
        })
    })
}

fn check_pool(dc: &Datacentre, call: &Call, params: &Params) -> Result<(), ApiError> {
    let Some(pool) = params.text("pool") else { return Ok(()) };
    if !dc.access.pools.contains_key(&pool) {
        return Err(ApiError::forbidden(&format!("pool '{pool}' does not exist")));
    }
    dc.check_any(&call.caller, &format!("/pool/{pool}"), &["VM.Backup", "Pool.Audit"])
}

fn create(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    check_pool(dc, call, params)?;
    let Some(schedule) = schedule_of(params) else {
        return Err(ApiError::param("schedule", "neither 'starttime' nor 'schedule' were set").into());
    };
    let id = params.text("id").unwrap_or_else(|| ground.random.uuid());
    if dc.backup.jobs.contains_key(&id) {
        return Err(ApiError::server(format!("Job '{id}' already exists")).into());
    }
    let mut job = settings(params);
    job.insert("schedule".into(), schedule);
    job.entry("enabled".into()).or_insert_with(|| "1".into());
    check_selection(&job)?;
    dc.backup.jobs.insert(id.clone(), job);
    dc.backup.order.push(id);
    Ok(Answer::null())
}

fn update(dc: &mut Datacentre, _: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let id = params.text_or_empty("id");
    check_pool(dc, call, params)?;
    let Some(mut job) = dc.backup.jobs.get(&id).cloned() else {
        return Err(ApiError::server("no such vzdump job").into());
    };
    for key in split_list(&params.text_or_empty("delete")) {
        job.remove(&key);
    }
    job.extend(settings(params));
    if let Some(schedule) = schedule_of(params) {
        job.insert("schedule".into(), schedule);
    }
    // Choosing VMs in one way takes back the others.
    if params.flag("all") {
        job.remove("vmid");
        job.remove("pool");
    } else if params.has("pool") {
        for key in ["vmid", "all", "exclude"] {
            job.remove(key);
        }
    } else if params.has("vmid") {
        for key in ["pool", "all", "exclude"] {
            job.remove(key);
        }
    }
    check_selection(&job)?;
    dc.backup.jobs.insert(id, job);
    Ok(Answer::null())
}

fn remove(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let id = params.text_or_empty("id");
    if dc.backup.jobs.remove(&id).is_none() {
        let text = format!("400 Parameter verification failed.\nid: No such job '{id}'\n");
        return Err(ApiError::server(text).into());
    }
    dc.backup.order.retain(|known| *known != id);
    Ok(Answer::null())
}

/// Returns the VMs that a job covers.
fn covered(dc: &Datacentre, job: &BTreeMap<String, String>) -> Vec<String> {
    let list = |key: &str| split_list(job.get(key).map(String::as_str).unwrap_or_default());
    if let Some(pool) = job.get("pool").and_then(|pool| dc.access.pools.get(pool)) {
        return pool.vms.iter().map(VmId::to_string).collect();
    }
    if job.get("all").is_some_and(|all| all != "0") {
        let excluded = list("exclude");
        return dc.vms.keys().map(VmId::to_string).filter(|vmid| !excluded.contains(vmid)).collect();
    }
    list("vmid")
}

/// Returns the disks of a VM: slot, volume, and whether backups take them.
fn disks(vm: &Vm) -> Vec<(String, String, bool)> {
    let is_disk = |slot: &str| {
        let stem = slot.trim_end_matches(|c: char| c.is_ascii_digit());
        stem.len() < slot.len() && matches!(stem, "ide" | "sata" | "scsi" | "virtio" | "efidisk" | "tpmstate")
    };
    let options =
        vm.config.current.iter().filter(|(slot, text)| is_disk(slot) && !text.contains("media=cdrom"));
    options
        .map(|(slot, text)| {
            let mut parts = text.split(',');
            let file = parts.next().unwrap_or_default().trim_start_matches("file=").to_owned();
            (slot.clone(), file, !parts.any(|part| part == "backup=0"))
        })
        .collect()
}

fn included_volumes(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let id = params.text_or_empty("id");
    let Some(job) = dc.backup.jobs.get(&id) else {
        return Err(ApiError::param("id", format!("No such job '{id}'")).into());
    };
    let mut children: Vec<Value> = Vec::new();
    for name in covered(dc, job) {
        let number: u32 = name.parse().unwrap_or_default();
        let Some((vmid, vm)) = VmId::new(number).and_then(|vmid| dc.vms.get_key_value(&vmid)) else {
            children.push(json!({ "id": number, "type": "unknown", "leaf": 1 }));
            continue;
        };
        let volume = |(slot, file, wanted): (String, String, bool)| {
            json!({
                "id": format!("{vmid}:{slot}"),
                "name": file,
                "leaf": 1,
                "included": u8::from(wanted),
                "reason": if wanted { "backup=yes" } else { "backup=no" },
            })
        };
        children.push(json!({
            "id": number,
            "type": "qemu",
            "name": vm.config.get("name").map_or_else(|| format!("VM {vmid}"), str::to_owned),
            "leaf": 0,
            "children": disks(vm).into_iter().map(volume).collect::<Vec<_>>(),
        }));
    }
    // Guests that are not there come first (seen).
    children.sort_by_key(|child| child["type"] != "unknown");
    Ok(json!({ "children": children }).into())
}

fn not_backed_up(dc: &mut Datacentre, _: &mut Ground, call: &mut Call, _: &Params) -> Reply {
    let backed_up: Vec<String> = dc.backup.jobs.values().flat_map(|job| covered(dc, job)).collect();
    let row = |(vmid, vm): (&VmId, &Vm)| {
        json!({
            "vmid": vmid.number(),
            "type": "qemu",
            "name": vm.config.get("name").map_or_else(|| format!("VM {vmid}"), str::to_owned),
        })
    };
    let visible = |vmid: &VmId| dc.may(&call.caller, &format!("/vms/{vmid}"), &["VM.Audit"]);
    let missing = dc.vms.iter().filter(|(vmid, _)| !backed_up.contains(&vmid.to_string()) && visible(vmid));
    Ok(missing.map(row).collect::<Vec<_>>().into())
}
