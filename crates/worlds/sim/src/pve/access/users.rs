//! Users and groups.

use serde_json::{Map, Value, json};

use crate::{
    ground::Ground,
    pve::{
        Answer, ApiError, Call, Datacentre, Lock, Params, Refusal, Reply, Route,
        access::{Group, ROOT, Subject, User, tokens, user_of},
        params::split_list,
    },
};

/// The endpoints below `/access/users` and `/access/groups`.
pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/access/users", list),
        Route::post("/access/users", create),
        Route::get("/access/users/{userid}", read),
        Route::put("/access/users/{userid}", update),
        Route::delete("/access/users/{userid}", remove),
        Route::get("/access/groups", list_groups),
        Route::post("/access/groups", create_group),
        Route::get("/access/groups/{groupid}", read_group),
        Route::put("/access/groups/{groupid}", update_group),
        Route::delete("/access/groups/{groupid}", remove_group),
    ]
}

/// Settings of a user that are kept as they were given.
const FACTS: [&str; 5] = ["comment", "email", "firstname", "keys", "lastname"];

/// Waits for the lock of `user.cfg`; a timeout is told with what was to be done.
pub fn lock_config(dc: &Datacentre, ground: &Ground, call: &mut Call, what: &str) -> Result<(), Refusal> {
    call.lock(dc, ground, &Lock::file("user.cfg")).map_err(|refusal| match refusal {
        Refusal::Error(error) => ApiError::server(format!("{what}: {}", error.message)).into(),
        wait @ Refusal::Wait(_) => wait,
    })
}

/// Returns what the API shows of a user.
fn shown(dc: &Datacentre, id: &str, user: &User) -> Map<String, Value> {
    let mut row = Map::new();
    row.insert("enable".into(), u8::from(user.enabled).into());
    row.insert("expire".into(), user.expire.into());
    for (key, value) in &user.facts {
        row.insert(key.clone(), value.clone().into());
    }
    let realm = id.rsplit('@').next().unwrap_or_default();
    if let Some(realm) = dc.access.realms.get(realm) {
        row.insert("realm-type".into(), realm.kind.clone().into());
    }
    row
}

fn groups_of<'a>(dc: &'a Datacentre, id: &str) -> Vec<&'a str> {
    let groups = dc.access.groups.iter().filter(|(_, group)| group.users.contains(id));
    groups.map(|(name, _)| name.as_str()).collect()
}

fn list(dc: &mut Datacentre, _: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let privileges = ["User.Modify", "Sys.Audit"];
    let all = dc.may_any(&call.caller, "/access/groups", &privileges);
    let by_group = |id: &str| {
        let groups = groups_of(dc, id);
        groups.iter().any(|group| dc.may_any(&call.caller, &format!("/access/groups/{group}"), &privileges))
    };
    let mut rows = Vec::new();
    for (id, user) in &dc.access.users {
        let wanted = !params.has("enabled") || params.flag("enabled") == user.enabled;
        if !wanted || !(all || *id == call.caller.id || by_group(id)) {
            continue;
        }
        let mut row = shown(dc, id, user);
        row.insert("userid".into(), id.clone().into());
        if params.flag("full") {
            row.insert("groups".into(), groups_of(dc, id).join(",").into());
            let tokens = tokens::rows(user);
            row.insert("tokens".into(), if tokens.is_empty() { Value::Null } else { tokens.into() });
        }
        rows.push(Value::Object(row));
    }
    Ok(rows.into())
}

fn read(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let id = params.text_or_empty("userid");
    let Some(user) = dc.access.users.get(&id) else {
        return Err(ApiError::server(format!("no such user ('{id}')")).into());
    };
    let mut row = shown(dc, &id, user);
    row.remove("realm-type");
    row.insert("groups".into(), groups_of(dc, &id).into());
    let tokens: Map<String, Value> =
        user.tokens.iter().map(|(name, token)| (name.clone(), tokens::shown(token))).collect();
    row.insert("tokens".into(), if tokens.is_empty() { Value::Null } else { tokens.into() });
    Ok(Value::Object(row).into())
}

/// Puts a user into groups, all of which must exist.
fn join(dc: &mut Datacentre, id: &str, groups: &[String], what: &str) -> Result<(), ApiError> {
    if let Some(name) = groups.iter().find(|name| !dc.access.groups.contains_key(*name)) {
        return Err(ApiError::server(format!("{what}: no such group '{name}'")));
    }
    for name in groups {
        if let Some(group) = dc.access.groups.get_mut(name) {
            group.users.insert(id.to_owned());
        }
    }
    Ok(())
}

fn set_facts(user: &mut User, params: &Params) {
    for name in FACTS {
        match params.text(name) {
            Some(value) if value.is_empty() => {
                user.facts.remove(name);
            }
            Some(value) => {
                user.facts.insert(name.into(), value);
            }
            None => {}
        }
    }
    if let Some(expire) = params.integer("expire") {
        user.expire = u64::try_from(expire).unwrap_or_default();
    }
}

fn create(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let id = params.text_or_empty("userid");
    lock_config(dc, ground, call, "create user failed")?;
    if dc.access.users.contains_key(&id) {
        return Err(ApiError::server(format!("create user failed: user '{id}' already exists")).into());
    }
    join(dc, &id, &split_list(&params.text_or_empty("groups")), "create user failed")?;
    let mut user = User {
        enabled: params.flag_or("enable", true),
        password: params.text("password"),
        ..User::default()
    };
    set_facts(&mut user, params);
    dc.access.users.insert(id, user);
    Ok(Answer::null())
}

fn update(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let id = params.text_or_empty("userid");
    lock_config(dc, ground, call, "update user failed")?;
    let Some(user) = dc.access.users.get_mut(&id) else {
        return Err(ApiError::server(format!("update user failed: no such user ('{id}')")).into());
    };
    user.enabled = params.flag_or("enable", user.enabled);
    set_facts(user, params);
    if params.has("groups") {
        if !params.flag("append") {
            for group in dc.access.groups.values_mut() {
                group.users.remove(&id);
            }
        }
        join(dc, &id, &split_list(&params.text_or_empty("groups")), "update user failed")?;
    }
    Ok(Answer::null())
}

fn remove(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let id = params.text_or_empty("userid");
    if call.caller.user() == id && !call.caller.token {
        return Err(ApiError::server("delete user failed: cannot delete yourself").into());
    }
    lock_config(dc, ground, call, "delete user failed")?;
    // Root is written into the file again whenever somebody reads it.
    if id != ROOT {
        dc.access.users.remove(&id);
    }
    for group in dc.access.groups.values_mut() {
        group.users.remove(&id);
    }
    dc.access.drop_acl(|entry| match entry.subject {
        Subject::User => entry.name == id,
        Subject::Token => user_of(&entry.name) == id,
        Subject::Group => false,
    });
    Ok(Answer::null())
}

fn group_row(name: &str, group: &Group) -> Value {
    let users: Vec<&str> = group.users.iter().map(String::as_str).collect();
    let mut row = json!({ "groupid": name, "users": users.join(",") });
    if let Some(comment) = &group.comment {
        row["comment"] = comment.clone().into();
    }
    row
}

fn list_groups(dc: &mut Datacentre, _: &mut Ground, call: &mut Call, _: &Params) -> Reply {
    let privileges = ["User.Modify", "Sys.Audit", "Group.Allocate"];
    let visible = |name: &str| dc.may_any(&call.caller, &format!("/access/groups/{name}"), &privileges);
    let groups = dc.access.groups.iter().filter(|(name, _)| visible(name));
    Ok(groups.map(|(name, group)| group_row(name, group)).collect::<Vec<_>>().into())
}

fn create_group(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("groupid");
    lock_config(dc, ground, call, "create group failed")?;
    if dc.access.groups.contains_key(&name) {
        return Err(ApiError::server(format!("create group failed: group '{name}' already exists")).into());
    }
    dc.access.groups.insert(name, Group { comment: params.text("comment"), ..Group::default() });
    Ok(Answer::null())
}

fn read_group(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("groupid");
    let Some(group) = dc.access.groups.get(&name) else {
        return Err(ApiError::server(format!("group '{name}' does not exist")).into());
    };
    let mut row = json!({ "members": group.users });
    if let Some(comment) = &group.comment {
        row["comment"] = comment.clone().into();
    }
    Ok(row.into())
}

fn update_group(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("groupid");
    lock_config(dc, ground, call, "update group failed")?;
    let Some(group) = dc.access.groups.get_mut(&name) else {
        return Err(ApiError::server(format!("update group failed: group '{name}' does not exist")).into());
    };
    group.comment = params.text("comment").or_else(|| group.comment.take());
    Ok(Answer::null())
}

fn remove_group(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("groupid");
    lock_config(dc, ground, call, "delete group failed")?;
    if dc.access.groups.remove(&name).is_none() {
        return Err(ApiError::server(format!("delete group failed: group '{name}' does not exist")).into());
    }
    dc.access.drop_acl(|entry| entry.subject == Subject::Group && entry.name == name);
    Ok(Answer::null())
}
