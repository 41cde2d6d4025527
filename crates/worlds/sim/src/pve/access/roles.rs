//! Privileges and roles.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::{
    ground::Ground,
    pve::{
        Answer, ApiError, Call, Datacentre, Params, Release, Reply, Route, access::lock_config,
        params::split_list,
    },
};

/// Every privilege of 9.2, with the first letter of the built-in roles that have it: `A` for `PVEAdmin`, `V` and
/// `v` for `PVEVMAdmin` and `PVEVMUser`, `D` and `d` for datastores, `P` and `p` for pools, `S` and `s` for SDN,
/// `M` and `m` for mappings, `U` for `PVEUserAdmin`, `Y` for `PVESysAdmin`, `T` for `PVETemplateUser`, `R` for
/// `PVEAuditor`. `Administrator` has all.
const PRIVILEGES: &[(&str, &str)] = &[
    ("Datastore.Allocate", "AD"),
    ("Datastore.AllocateSpace", "ADd"),
    ("Datastore.AllocateTemplate", "AD"),
    ("Datastore.Audit", "ADdR"),
    ("Group.Allocate", "AU"),
    ("Mapping.Audit", "AMmR"),
    ("Mapping.Modify", "M"),
    ("Mapping.Use", "AMm"),
    ("Permissions.Modify", ""),
    ("Pool.Allocate", "AP"),
    ("Pool.Audit", "APpR"),
    ("Realm.Allocate", ""),
    ("Realm.AllocateUser", "AU"),
    ("SDN.Allocate", "AS"),
    ("SDN.Audit", "ASsR"),
    ("SDN.Use", "ASs"),
    ("Sys.AccessNetwork", ""),
    ("Sys.Audit", "AYR"),
    ("Sys.Console", "AY"),
    ("Sys.Incoming", ""),
    ("Sys.Modify", ""),
    ("Sys.PowerMgmt", ""),
    ("Sys.Syslog", "AY"),
    ("User.Modify", "AU"),
    ("VM.Allocate", "AV"),
    ("VM.Audit", "AVvTR"),
    ("VM.Backup", "AVv"),
    ("VM.Clone", "AVT"),
    ("VM.Config.CDROM", "AVv"),
    ("VM.Config.CPU", "AV"),
    ("VM.Config.Cloudinit", "AVv"),
    ("VM.Config.Disk", "AV"),
    ("VM.Config.HWType", "AV"),
    ("VM.Config.Memory", "AV"),
    ("VM.Config.Network", "AV"),
    ("VM.Config.Options", "AV"),
    ("VM.Console", "AVv"),
    ("VM.GuestAgent.Audit", "AVvR"),
    ("VM.GuestAgent.FileRead", "AVv"),
    ("VM.GuestAgent.FileSystemMgmt", "AVv"),
    ("VM.GuestAgent.FileWrite", "AVv"),
    ("VM.GuestAgent.Unrestricted", "AV"),
    ("VM.Migrate", "AV"),
    ("VM.PowerMgmt", "AVv"),
    ("VM.Replicate", "AV"),
    ("VM.Snapshot", "AV"),
    ("VM.Snapshot.Rollback", "AV"),
];

/// Every built-in role with its letter in [`PRIVILEGES`].
const ROLES: &[(&str, char)] = &[
    ("PVEAdmin", 'A'),
    ("PVEAuditor", 'R'),
    ("PVEDatastoreAdmin", 'D'),
    ("PVEDatastoreUser", 'd'),
    ("PVEMappingAdmin", 'M'),
    ("PVEMappingUser", 'm'),
    ("PVEPoolAdmin", 'P'),
    ("PVEPoolUser", 'p'),
    ("PVESDNAdmin", 'S'),
    ("PVESDNUser", 's'),
    ("PVESysAdmin", 'Y'),
    ("PVETemplateUser", 'T'),
    ("PVEUserAdmin", 'U'),
    ("PVEVMAdmin", 'V'),
    ("PVEVMUser", 'v'),
];

/// Privileges of a release with their letters. Before 9.0 there was `VM.Monitor` (of admins only) instead of the
/// agent's privileges; `Sys.AccessNetwork` came with 8.2.
fn known(release: Release) -> Vec<(&'static str, &'static str)> {
    let new = release.at_least(9, 0);
    let mut known: Vec<_> = PRIVILEGES
        .iter()
        .copied()
        .filter(|(name, _)| {
            (new || !name.starts_with("VM.GuestAgent.") && *name != "VM.Replicate")
                && (release.at_least(8, 2) || *name != "Sys.AccessNetwork")
        })
        .collect();
    if !new {
        known.push(("VM.Monitor", "AV"));
    }
    known
}

/// Returns all privileges of a release.
pub fn all_privileges(release: Release) -> BTreeSet<String> {
    known(release).into_iter().map(|(name, _)| name.to_owned()).collect()
}

/// Returns the privileges of a built-in role.
pub fn built_in(name: &str, release: Release) -> Option<BTreeSet<String>> {
    match name {
        "Administrator" => return Some(all_privileges(release)),
        "NoAccess" => return Some(BTreeSet::new()),
        _ => {}
    }
    let (_, letter) = ROLES.iter().find(|(role, _)| *role == name)?;
    let has = known(release).into_iter().filter(|(_, letters)| letters.contains(*letter));
    Some(has.map(|(name, _)| name.to_owned()).collect())
}

/// The endpoints below `/access/roles`.
pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/access/roles", list),
        Route::post("/access/roles", create),
        Route::get("/access/roles/{roleid}", read),
        Route::put("/access/roles/{roleid}", update),
        Route::delete("/access/roles/{roleid}", remove),
    ]
}

fn list(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, _: &Params) -> Reply {
    let row = |name: &str, special: u8, privs: &BTreeSet<String>| {
        let privs: Vec<&str> = privs.iter().map(String::as_str).collect();
        json!({ "roleid": name, "special": special, "privs": privs.join(",") })
    };
    let names = ["Administrator", "NoAccess"].into_iter().chain(ROLES.iter().map(|(name, _)| *name));
    let mut rows: Vec<Value> = names
        .filter_map(|name| Some(row(name, 1, &built_in(name, dc.release)?)))
        .chain(dc.access.roles.iter().map(|(name, privs)| row(name, 0, privs)))
        .collect();
    rows.sort_by(|a, b| a["roleid"].as_str().cmp(&b["roleid"].as_str()));
    Ok(rows.into())
}

fn create(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let role = params.text_or_empty("roleid");
    if role.to_lowercase().starts_with("pve") {
        let text = "cannot use role ID starting with the (case-insensitive) 'PVE' namespace";
        return Err(ApiError::param("roleid", text).into());
    }
    lock_config(dc, ground, call, "create role failed")?;
    if dc.access.role(&role, dc.release).is_some() {
        return Err(ApiError::server(format!("create role failed: role '{role}' already exists")).into());
    }
    let privs = split_list(&params.text_or_empty("privs")).into_iter().collect();
    dc.access.roles.insert(role, privs);
    Ok(Answer::null())
}

fn read(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let role = params.text_or_empty("roleid");
    let Some(privs) = dc.access.role(&role, dc.release) else {
        return Err(ApiError::server(format!("role '{role}' does not exist")).into());
    };
    let privs: Map<String, Value> = privs.into_iter().map(|name| (name, 1.into())).collect();
    Ok(Value::Object(privs).into())
}

fn update(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let role = params.text_or_empty("roleid");
    if built_in(&role, dc.release).is_some() {
        return Err(ApiError::server(format!("auto-generated role '{role}' cannot be modified")).into());
    }
    lock_config(dc, ground, call, "update role failed")?;
    let Some(has) = dc.access.roles.get_mut(&role) else {
        return Err(ApiError::server(format!("update role failed: role '{role}' does not exist")).into());
    };
    if !params.flag("append") {
        has.clear();
    }
    has.extend(split_list(&params.text_or_empty("privs")));
    Ok(Answer::null())
}

fn remove(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let role = params.text_or_empty("roleid");
    if built_in(&role, dc.release).is_some() {
        return Err(ApiError::server(format!("auto-generated role '{role}' cannot be deleted")).into());
    }
    lock_config(dc, ground, call, "delete role failed")?;
    if dc.access.roles.remove(&role).is_none() {
        return Err(ApiError::server(format!("delete role failed: role '{role}' does not exist")).into());
    }
    dc.access.drop_acl(|entry| entry.role == role);
    Ok(Answer::null())
}
