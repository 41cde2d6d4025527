//! Pools.

use ichor_model::VmId;
use serde_json::{Value, json};

use crate::{
    ground::Ground,
    pve::{
        Answer, ApiError, Call, Datacentre, Params, Reply, Route,
        access::{Pool, lock_config},
        cluster,
        params::split_list,
    },
};

/// The endpoints below `/pools`.
pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/pools", list),
        Route::post("/pools", create),
        Route::put("/pools", update),
        Route::delete("/pools", remove),
        Route::get("/pools/{poolid}", read),
        Route::put("/pools/{poolid}", update),
        Route::delete("/pools/{poolid}", remove),
    ]
}

fn row(name: &str, pool: &Pool) -> Value {
    let mut row = json!({ "poolid": name });
    if let Some(comment) = &pool.comment {
        row["comment"] = comment.clone().into();
    }
    row
}

fn list(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    if let Some(name) = params.text("poolid") {
        dc.check(&call.caller, &format!("/pool/{name}"), &["Pool.Audit"])?;
        return Ok(Value::Array(vec![with_members(dc, ground, &name, params)?]).into());
    }
    let visible = |name: &str| dc.may(&call.caller, &format!("/pool/{name}"), &["Pool.Audit"]);
    let pools = dc.access.pools.iter().filter(|(name, _)| visible(name));
    Ok(pools.map(|(name, pool)| row(name, pool)).collect::<Vec<_>>().into())
}

fn read(dc: &mut Datacentre, ground: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("poolid");
    Ok(with_members(dc, ground, &name, params)?.into())
}

fn with_members(dc: &Datacentre, ground: &Ground, name: &str, params: &Params) -> Result<Value, ApiError> {
    let Some(pool) = dc.access.pools.get(name) else {
        return Err(ApiError::server(format!("pool '{name}' does not exist")));
    };
    let wanted = |kind: &str| params.text("type").is_none_or(|wanted| wanted == kind);
    let mut members: Vec<Value> = Vec::new();
    if wanted("qemu") {
        members.extend(pool.vms.iter().filter_map(|vmid| cluster::vm_row(dc, ground, *vmid)));
        for member in &mut members {
            if let Some(member) = member.as_object_mut() {
                for key in ["pool", "tags", "lock", "hastate"] {
                    member.remove(key);
                }
            }
        }
    }
    if wanted("storage") {
        let rows = pool.storages.iter().filter_map(|storage| cluster::storage_row(dc, &dc.front, storage));
        members.extend(rows);
    }
    let mut row = row(name, pool);
    row["members"] = members.into();
    Ok(row)
}

fn create(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("poolid");
    lock_config(dc, ground, call, "create pool failed")?;
    let fault = |text: String| Err(ApiError::server(format!("create pool failed: {text}")).into());
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return fault("pool name must start with a letter".into());
    }
    if dc.access.pools.contains_key(&name) {
        return fault(format!("pool '{name}' already exists"));
    }
    if let Some((parent, _)) = name.rsplit_once('/')
        && !dc.access.pools.contains_key(parent)
    {
        return fault(format!("parent '{parent}' of pool '{name}' does not exist"));
    }
    dc.access.pools.insert(name, Pool { comment: params.text("comment"), ..Pool::default() });
    Ok(Answer::null())
}

fn update(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("poolid");
    lock_config(dc, ground, call, "update pools failed")?;
    let fault = |error: ApiError| ApiError::server(format!("update pools failed: {}", error.as_text()));
    let pools = updated(dc, call, &name, params).map_err(fault)?;
    dc.access.pools = pools;
    Ok(Answer::null())
}

/// Returns the pools as they are after a change; nothing is written unless all of it is right.
fn updated(
    dc: &Datacentre,
    call: &Call,
    name: &str,
    params: &Params,
) -> Result<std::collections::BTreeMap<String, Pool>, ApiError> {
    let mut pools = dc.access.pools.clone();
    let Some(pool) = pools.get_mut(name) else {
        return Err(ApiError::server(format!("pool '{name}' does not exist")));
    };
    if let Some(comment) = params.text("comment") {
        pool.comment = Some(comment);
    }
    let remove = params.flag("delete");
    for vmid in split_list(&params.text_or_empty("vms")) {
        dc.check_modify_acl(&call.caller, &format!("/vms/{vmid}"))?;
        let Ok(vmid) = vmid.parse::<VmId>() else { continue };
        let member = pools.get(name).is_some_and(|pool| pool.vms.contains(&vmid));
        match (remove, member) {
            (true, false) => return Err(ApiError::server(format!("VM {vmid} is not a pool member"))),
            (false, true) => return Err(ApiError::server(format!("VM {vmid} is already a pool member"))),
            (false, false) => leave_other_pool(dc, call, &mut pools, vmid, params)?,
            (true, true) => {}
        }
        if let Some(pool) = pools.get_mut(name) {
            if remove {
                pool.vms.remove(&vmid)
            } else {
                pool.vms.insert(vmid)
            };
        }
    }
    for storage in split_list(&params.text_or_empty("storage")) {
        dc.check_modify_acl(&call.caller, &format!("/storage/{storage}"))?;
        let Some(pool) = pools.get_mut(name) else { continue };
        match (remove, pool.storages.contains(&storage)) {
            (true, false) => {
                return Err(ApiError::server(format!("Storage '{storage}' is not a pool member")));
            }
            (false, true) => {
                return Err(ApiError::server(format!("Storage '{storage}' is already a pool member")));
            }
            (true, true) => pool.storages.remove(&storage),
            (false, false) => pool.storages.insert(storage),
        };
    }
    Ok(pools)
}

/// A VM is in one pool at most.
fn leave_other_pool(
    dc: &Datacentre,
    call: &Call,
    pools: &mut std::collections::BTreeMap<String, Pool>,
    vmid: VmId,
    params: &Params,
) -> Result<(), ApiError> {
    let Some((other, pool)) = pools.iter_mut().find(|(_, pool)| pool.vms.contains(&vmid)) else {
        return Ok(());
    };
    if !params.flag("allow-move") {
        let text = format!("VM {vmid} belongs already to pool '{other}' and 'allow-move' is not set");
        return Err(ApiError::server(text));
    }
    dc.check(&call.caller, &format!("/pool/{other}"), &["Pool.Allocate"])?;
    pool.vms.remove(&vmid);
    Ok(())
}

fn remove(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("poolid");
    lock_config(dc, ground, call, "delete pool failed")?;
    let fault = |text: String| Err(ApiError::server(format!("delete pool failed: {text}")).into());
    let Some(pool) = dc.access.pools.get(&name) else {
        return fault(format!("pool '{name}' does not exist"));
    };
    let below = format!("{name}/");
    let contains = if let Some(vmid) = pool.vms.iter().find(|vmid| dc.vms.contains_key(vmid)) {
        Some(format!("VM {vmid}"))
    } else if let Some(storage) = pool.storages.iter().next() {
        Some(format!("storage '{storage}'"))
    } else {
        dc.access.pools.keys().find(|other| other.starts_with(&below)).map(|other| format!("pool '{other}'"))
    };
    if let Some(what) = contains {
        return fault(format!("pool '{name}' is not empty (contains {what})"));
    }
    dc.access.pools.remove(&name);
    let path = format!("/pool/{name}");
    dc.access.drop_acl(|entry| entry.path == path);
    Ok(Answer::null())
}
