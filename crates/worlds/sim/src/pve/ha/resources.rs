//! HA resources.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::{
    ground::Ground,
    pve::{
        Answer, ApiError, Call, Datacentre, Params, Reply, Route,
        firewall::check_digest,
        ha::{Command, Ha},
        params::split_list,
    },
};

/// The endpoints of resources.
pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/cluster/ha/resources", list),
        Route::post("/cluster/ha/resources", create),
        Route::get("/cluster/ha/resources/{sid}", read),
        Route::put("/cluster/ha/resources/{sid}", update),
        Route::delete("/cluster/ha/resources/{sid}", remove),
        Route::post("/cluster/ha/resources/{sid}/migrate", migrate),
        Route::post("/cluster/ha/resources/{sid}/relocate", migrate),
    ]
}

/// Settings of a resource.
const SETTINGS: [&str; 7] =
    ["state", "max_restart", "max_relocate", "comment", "failback", "group", "auto-rebalance"];

/// Returns the full name of a resource: a bare number is a VM.
fn full_name(params: &Params) -> String {
    let name = params.text_or_empty("sid");
    if name.contains(':') {
        name
    } else {
        format!("{}:{name}", params.text("type").unwrap_or_else(|| "vm".into()))
    }
}

fn row(ha: &Ha, name: &str, settings: &BTreeMap<String, String>) -> Value {
    let kind = name.split(':').next().unwrap_or_default();
    let mut row = Map::new();
    row.insert("sid".into(), name.into());
    row.insert("type".into(), kind.into());
    row.insert("digest".into(), ha.digest().into());
    for (key, text) in settings {
        let value = match key.as_str() {
            "max_restart" | "max_relocate" | "failback" => {
                text.parse::<i64>().map_or_else(|_| text.clone().into(), Value::from)
            }
            // Comments are encoded twice (seen).
            "comment" => text.bytes().map(char::from).collect::<String>().into(),
            _ => text.clone().into(),
        };
        row.insert(key.clone(), value);
    }
    row.into()
}

fn list(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let kind = params.text("type").map(|kind| format!("{kind}:"));
    let wanted = |name: &&String| kind.as_ref().is_none_or(|kind| name.starts_with(kind));
    let rows = dc.ha.resources.iter().filter(|(name, _)| wanted(name));
    Ok(rows.map(|(name, settings)| row(&dc.ha, name, settings)).collect::<Vec<_>>().into())
}

fn missing(name: &str) -> ApiError {
    ApiError::server(format!("no such resource '{name}'"))
}

fn read(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let name = full_name(params);
    let settings = dc.ha.resources.get(&name).ok_or_else(|| missing(&name))?;
    Ok(row(&dc.ha, &name, settings).into())
}

fn check_group(dc: &Datacentre, params: &Params) -> Result<(), ApiError> {
    let Some(group) = params.text("group") else { return Ok(()) };
    if dc.release.at_least(9, 0) {
        let text = "invalid parameter 'group': ha groups have been migrated to rules";
        return Err(ApiError::server(text));
    }
    if !dc.ha.groups.contains_key(&group) {
        return Err(ApiError::server(format!("HA group '{group}' does not exist")));
    }
    Ok(())
}

fn create(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let name = full_name(params);
    check_group(dc, params)?;
    let (kind, number) = name.split_once(':').unwrap_or_default();
    let exists = number.parse().is_ok_and(|vmid| dc.vms.contains_key(&vmid));
    if !exists {
        return Err(ApiError::server(format!("resource '{name}' does not exist in cluster")).into());
    }
    if kind == "ct" {
        let text = format!("resource '{name}' - guest with ID {number} is not a container");
        return Err(ApiError::server(text).into());
    }
    if dc.ha.resources.contains_key(&name) {
        let text = format!("create resource failed: resource ID '{name}' already defined");
        return Err(ApiError::server(text).into());
    }
    let mut settings = BTreeMap::from([("state".to_owned(), "started".to_owned())]);
    set(&mut settings, params);
    dc.ha.resources.insert(name, settings);
    Ok(Answer::null())
}

fn set(settings: &mut BTreeMap<String, String>, params: &Params) {
    for key in SETTINGS {
        if let Some(text) = params.text(key) {
            // An old word for the same.
            let text = if key == "state" && text == "enabled" { "started".into() } else { text };
            settings.insert(key.into(), text);
        }
    }
}

fn update(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let name = full_name(params);
    check_group(dc, params)?;
    let fault =
        |error: ApiError| ApiError::server(format!("update resources config failed: {}", error.message));
    check_digest(params, &dc.ha.digest()).map_err(fault)?;
    let settings = dc.ha.resources.get_mut(&name).ok_or_else(|| fault(missing(&name)))?;
    for key in split_list(&params.text_or_empty("delete")) {
        settings.remove(&key);
    }
    set(settings, params);
    Ok(Answer::null())
}

fn remove(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let name = full_name(params);
    if !dc.ha.resources.contains_key(&name) {
        let text = format!("cannot delete service '{name}', not HA managed!");
        return Err(ApiError::server(text).into());
    }
    if params.flag_or("purge", true) {
        forget(&mut dc.ha, &name);
    } else {
        dc.ha.resources.remove(&name);
    }
    Ok(Answer::null())
}

/// Removes a resource, and takes it out of rules; a rule without enough resources goes too.
pub fn forget(ha: &mut Ha, name: &str) {
    ha.resources.remove(name);
    for rule in ha.rules.values_mut() {
        if let Some(resources) = rule.get_mut("resources") {
            let rest: Vec<String> = split_list(resources).into_iter().filter(|known| known != name).collect();
            *resources = rest.join(",");
        }
    }
    ha.rules.retain(|_, rule| rule.get("resources").is_none_or(|resources| !resources.is_empty()));
}

fn migrate(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let name = full_name(params);
    let host = params.text_or_empty("node");
    if !dc.ha.resources.contains_key(&name) {
        return Err(missing(&name).into());
    }
    dc.ha.commands.push_back(Command::Migrate { resource: name.clone(), host: host.clone() });
    if !dc.release.at_least(9, 0) {
        return Ok(Answer::null());
    }
    Ok(json!({ "sid": name, "requested-node": host }).into())
}
