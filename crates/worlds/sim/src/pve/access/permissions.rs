//! What somebody may do, as the API tells it.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::{
    ground::Ground,
    pve::{Call, Datacentre, Params, Reply, Route, access::user_of},
};

/// The endpoint that tells rights.
pub fn routes() -> Vec<Route> {
    vec![Route::get("/access/permissions", read)]
}

/// Paths that are always told.
const TOP: [&str; 8] = ["/", "/access", "/access/groups", "/nodes", "/pool", "/sdn", "/storage", "/vms"];

fn read(dc: &mut Datacentre, _: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let asked = params.text("userid");
    let id = asked.unwrap_or_else(|| call.caller.id.clone());
    let own = id == call.caller.id || !call.caller.token && user_of(&id) == call.caller.id;
    if !own {
        dc.check(&call.caller, "/access", &["Sys.Audit"])?;
    }
    let paths: BTreeSet<String> = match params.text("path") {
        Some(path) => BTreeSet::from([path]),
        None => known_paths(dc),
    };
    let single = params.has("path");
    let mut told = Map::new();
    for path in paths {
        let privileges = dc.access.privileges(&id, &path, dc.release);
        if privileges.is_empty() && !single {
            continue;
        }
        let privileges: Map<String, Value> =
            privileges.into_iter().map(|(name, propagate)| (name, u8::from(propagate).into())).collect();
        told.insert(path, privileges.into());
    }
    Ok(Value::Object(told).into())
}

fn known_paths(dc: &Datacentre) -> BTreeSet<String> {
    let mut paths: BTreeSet<String> = TOP.iter().map(|path| (*path).to_owned()).collect();
    for entry in &dc.access.acl {
        let mut path = String::new();
        for part in entry.path.split('/').filter(|part| !part.is_empty()) {
            path = format!("{path}/{part}");
        }
        paths.insert(if path.is_empty() { "/".into() } else { path });
    }
    for (name, pool) in &dc.access.pools {
        paths.insert(format!("/pool/{name}"));
        paths.extend(pool.vms.iter().map(|vmid| format!("/vms/{vmid}")));
        paths.extend(pool.storages.iter().map(|storage| format!("/storage/{storage}")));
    }
    paths
}
