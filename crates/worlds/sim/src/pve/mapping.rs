//! Names for devices of hosts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    ground::Ground,
    pve::{
        Answer, ApiError, Call, Datacentre, Params, Reply, Route, describe, firewall::check_digest,
        options::digest, params::split_list, validate,
    },
};

/// All names, by kind (`pci` or `usb`) and name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Mappings {
    kinds: BTreeMap<String, BTreeMap<String, Mapping>>,
}

/// A name and the devices it stands for, one line per device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Mapping {
    devices: Vec<String>,
    settings: BTreeMap<String, String>,
}

/// The endpoints below `/cluster/mapping`.
pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/cluster/mapping", |_, _, _, _| {
            let names = ["dir", "pci", "usb"];
            Ok(names.iter().map(|name| json!({ "name": name })).collect::<Vec<Value>>().into())
        }),
        Route::get("/cluster/mapping/pci", |dc, _, call, params| list(dc, call, params, "pci")),
        Route::post("/cluster/mapping/pci", |dc, _, _, params| create(dc, params, "pci")),
        Route::get("/cluster/mapping/pci/{id}", |dc, _, _, params| read(dc, params, "pci")),
        Route::put("/cluster/mapping/pci/{id}", |dc, _, _, params| update(dc, params, "pci")),
        Route::delete("/cluster/mapping/pci/{id}", |dc, _, _, params| remove(dc, params, "pci")),
        Route::get("/cluster/mapping/usb", |dc, _, call, params| list(dc, call, params, "usb")),
        Route::post("/cluster/mapping/usb", |dc, _, _, params| create(dc, params, "usb")),
        Route::get("/cluster/mapping/usb/{id}", |dc, _, _, params| read(dc, params, "usb")),
        Route::put("/cluster/mapping/usb/{id}", |dc, _, _, params| update(dc, params, "usb")),
        Route::delete("/cluster/mapping/usb/{id}", |dc, _, _, params| remove(dc, params, "usb")),
        Route::get("/nodes/{node}/hardware", hardware_index),
        Route::get("/nodes/{node}/hardware/pci", pci_devices),
        Route::get("/nodes/{node}/hardware/usb", |_, _, _, _| Ok(Value::Array(vec![]).into())),
    ]
}

impl Mappings {
    fn digest(&self) -> String {
        digest(&serde_json::to_string(self).unwrap_or_default())
    }

    /// Names a device of every host.
    pub fn add_pci(&mut self, name: &str, hosts: &[String]) {
        let device = |host: &String| format!("node={host},path=0000:00:02.0,id=1234:1111,iommugroup=1");
        let mapping = Mapping { devices: hosts.iter().map(device).collect(), settings: BTreeMap::new() };
        self.kinds.entry("pci".to_owned()).or_default().insert(name.to_owned(), mapping);
    }

    fn of(&self, kind: &str) -> impl Iterator<Item = (&String, &Mapping)> {
        self.kinds.get(kind).into_iter().flatten()
    }
}

impl Datacentre {
    /// Returns whether a name for devices is known and has one on a host.
    pub fn has_mapping(&self, kind: &str, name: &str, host: &str) -> bool {
        self.mapping.of(kind).any(|(known, mapping)| {
            known == name && mapping.devices.iter().any(|device| host_of(kind, device) == host)
        })
    }
}

/// Returns the host of a device.
fn host_of(kind: &str, device: &str) -> String {
    let format = if kind == "pci" { "map~2" } else { "map~3" };
    let keys = describe::description().formats.get(format);
    let found = keys.and_then(|keys| validate::split_property_string(keys, device).ok());
    found.and_then(|mut found| found.remove("node")).unwrap_or_default()
}

fn row(dc: &Datacentre, kind: &str, mapping: &Mapping) -> Value {
    let mut row = json!({ "type": kind, "map": mapping.devices, "digest": dc.mapping.digest() });
    for (key, text) in &mapping.settings {
        row[key] = match key.as_str() {
            "mdev" | "live-migration-capable" => {
                text.parse::<i64>().map_or_else(|_| text.clone().into(), Value::from)
            }
            _ => text.clone().into(),
        };
    }
    row
}

fn list(dc: &mut Datacentre, call: &mut Call, params: &Params, kind: &str) -> Reply {
    let rights = ["Mapping.Use", "Mapping.Modify", "Mapping.Audit"];
    let mut rows = Vec::new();
    for (name, mapping) in dc.mapping.of(kind) {
        if !dc.may_any(&call.caller, &format!("/mapping/{kind}/{name}"), &rights) {
            continue;
        }
        let mut row = row(dc, kind, mapping);
        row["id"] = name.clone().into();
        if let Some(host) = params.text("check-node") {
            row["checks"] = checks(kind, mapping, &host);
        }
        rows.push(row);
    }
    Ok(rows.into())
}

/// Hosts of the lab have no such devices, so every check of one fails.
fn checks(kind: &str, mapping: &Mapping, host: &str) -> Value {
    let devices = mapping.devices.iter().filter(|device| host_of(kind, device) == host);
    let check = |device: &String| {
        let part = |key: &str| {
            device.split(',').find_map(|part| part.strip_prefix(key)?.strip_prefix('=')).unwrap_or_default()
        };
        let text = if kind == "pci" {
            format!("Invalid configuration: pci device '{}' not found\n", part("path"))
        } else {
            format!("Invalid configuration: USB device '{}' not found\n", part("id"))
        };
        json!({ "severity": "error", "message": text })
    };
    let found: Vec<Value> = devices.map(check).collect();
    if found.is_empty() {
        let text = format!("No mapping for node {host}.");
        return json!([{ "severity": "warning", "message": text }]);
    }
    found.into()
}

fn missing(name: &str) -> ApiError {
    ApiError::server(format!("mapping '{name}' not found"))
}

fn read(dc: &mut Datacentre, params: &Params, kind: &str) -> Reply {
    let name = params.text_or_empty("id");
    let mapping =
        dc.mapping.kinds.get(kind).and_then(|known| known.get(&name)).ok_or_else(|| missing(&name))?;
    Ok(row(dc, kind, mapping).into())
}

fn set(mapping: &mut Mapping, params: &Params) {
    if params.has("map") {
        mapping.devices = params.list("map");
    }
    let other = ["id", "map", "delete", "digest"];
    for name in params.names().filter(|name| !other.contains(&name.as_str())) {
        mapping.settings.insert(name.clone(), params.text_or_empty(name));
    }
}

fn create(dc: &mut Datacentre, params: &Params, kind: &str) -> Reply {
    let name = params.text_or_empty("id");
    let known = dc.mapping.kinds.entry(kind.to_owned()).or_default();
    if known.contains_key(&name) {
        let text = format!("create hardware mapping failed: {kind} ID '{name}' already defined");
        return Err(ApiError::server(text).into());
    }
    let mut mapping = Mapping::default();
    set(&mut mapping, params);
    known.insert(name, mapping);
    Ok(Answer::null())
}

fn update(dc: &mut Datacentre, params: &Params, kind: &str) -> Reply {
    let name = params.text_or_empty("id");
    check_digest(params, &dc.mapping.digest())?;
    let known = dc.mapping.kinds.entry(kind.to_owned()).or_default();
    let Some(mapping) = known.get_mut(&name) else {
        let text = format!("update hardware mapping failed: {kind} ID '{name}' does not exist");
        return Err(ApiError::server(text).into());
    };
    for key in split_list(&params.text_or_empty("delete")) {
        mapping.settings.remove(&key);
    }
    set(mapping, params);
    Ok(Answer::null())
}

fn remove(dc: &mut Datacentre, params: &Params, kind: &str) -> Reply {
    if let Some(known) = dc.mapping.kinds.get_mut(kind) {
        known.remove(&params.text_or_empty("id"));
    }
    Ok(Answer::null())
}

fn hardware_index(_: &mut Datacentre, _: &mut Ground, _: &mut Call, _: &Params) -> Reply {
    Ok(json!([{ "type": "pci" }, { "type": "usb" }]).into())
}

/// The one device that every host of the lab shows, so that clients see a row.
fn pci_devices(_: &mut Datacentre, _: &mut Ground, _: &mut Call, _: &Params) -> Reply {
    Ok(json!([{
        "id": "0000:00:02.0",
        "class": "0x030000",
        "vendor": "0x1234",
        "device": "0x1111",
        "iommugroup": -1,
    }])
    .into())
}
