//! The access control list.

use serde_json::{Value, json};

use crate::{
    ground::Ground,
    pve::{
        Answer, ApiError, Call, Datacentre, Params, Reply, Route,
        access::{AclEntry, Subject, lock_config, normal_path},
        params::split_list,
    },
};

/// The endpoints of the list.
pub fn routes() -> Vec<Route> {
    vec![Route::get("/access/acl", list), Route::put("/access/acl", update)]
}

fn list(dc: &mut Datacentre, _: &mut Ground, call: &mut Call, _: &Params) -> Reply {
    let may_audit = dc.may(&call.caller, "/access", &["Sys.Audit"]);
    let visible = |entry: &AclEntry| may_audit || dc.check_modify_acl(&call.caller, &entry.path).is_ok();
    let row = |entry: &AclEntry| {
        let kind = match entry.subject {
            Subject::User => "user",
            Subject::Group => "group",
            Subject::Token => "token",
        };
        json!({
            "path": entry.path,
            "type": kind,
            "ugid": entry.name,
            "roleid": entry.role,
            "propagate": u8::from(entry.propagate),
        })
    };
    Ok(dc.access.acl.iter().filter(|entry| visible(entry)).map(row).collect::<Vec<Value>>().into())
}

/// Returns whether an ACL path is one that the release knows.
fn is_known_path(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        [top] => matches!(*top, "access" | "mapping" | "nodes" | "pool" | "sdn" | "storage" | "vms"),
        ["mapping", kind] => matches!(*kind, "dir" | "pci" | "usb" | "notifications" | "cpu"),
        ["pool", levels @ ..] => levels.len() <= 3,
        ["sdn", kind] => matches!(
            *kind,
            "controllers" | "dns" | "fabrics" | "ipams" | "zones" | "prefix-lists" | "route-maps"
        ),
        ["sdn", "zones", rest @ ..] => rest.len() <= 3,
        ["vms", vmid] => {
            vmid.len() >= 3 && !vmid.starts_with('0') && vmid.bytes().all(|b| b.is_ascii_digit())
        }
        []
        | ["access", "groups" | "realm"]
        | ["access", "groups" | "realm", _]
        | ["mapping", "dir" | "pci" | "usb" | "notifications" | "cpu", _]
        | ["nodes" | "storage", _]
        | ["sdn", "controllers" | "dns" | "fabrics" | "ipams", _] => true,
        _ => false,
    }
}

fn update(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let given = params.text_or_empty("path");
    let lists = ["users", "groups", "tokens"];
    if !lists.iter().any(|name| !params.text_or_empty(name).is_empty()) {
        let text = "either 'users', 'groups' or 'tokens' is required.";
        return Err(ApiError::params(lists.iter().map(|name| ((*name).into(), text.into())).collect()).into());
    }
    let Some(path) = normal_path(&given).filter(|path| is_known_path(path)) else {
        return Err(ApiError::param("path", format!("invalid ACL path '{given}'")).into());
    };
    lock_config(dc, ground, call, "ACL update failed")?;
    if !call.caller.is_root() && !dc.may(&call.caller, &path, &["Permissions.Modify"]) {
        within_own_rights(dc, call, &path, params)?;
    }
    let entries = entries(dc, &path, params)?;
    let remove = params.flag("delete");
    for entry in entries {
        dc.access.acl.retain(|known| {
            (&known.path, known.subject, &known.name, &known.role)
                != (&entry.path, entry.subject, &entry.name, &entry.role)
        });
        if !remove {
            dc.access.acl.push(entry);
        }
    }
    Ok(Answer::null())
}

/// Who may only hand on its own rights must have every privilege of the roles, with propagation if it is asked.
/// The complaint is about a parameter, inside a text of its own.
fn within_own_rights(dc: &Datacentre, call: &Call, path: &str, params: &Params) -> Result<(), ApiError> {
    let has = dc.access.privileges(&call.caller.id, path, dc.release);
    let propagate = params.flag_or("propagate", true);
    let remove = params.flag("delete");
    let verb = if remove { "remove" } else { "add" };
    let refused = |text: String| {
        let text = format!("ACL update failed: 400 Parameter verification failed.\nrole: {text}\n");
        Err(ApiError::server(text))
    };
    for role in split_list(&params.text_or_empty("roles")) {
        for privilege in dc.access.role(&role, dc.release).unwrap_or_default() {
            match has.get(&privilege) {
                None => {
                    return refused(format!(
                        "Cannot {verb} role '{role}' - requires 'Permissions.Modify' or superset of privileges."
                    ));
                }
                Some(false) if propagate && !remove => {
                    return refused(format!(
                        "Cannot {verb} role '{role}' with propagation - requires 'Permissions.Modify' or propagated \
                         superset of privileges."
                    ));
                }
                Some(_) => {}
            }
        }
        if role == "NoAccess" {
            return refused(format!("Cannot {verb} role '{role}' - requires 'Permissions.Modify'"));
        }
    }
    Ok(())
}

/// Returns the entries that were named; roles and subjects must exist.
fn entries(dc: &Datacentre, path: &str, params: &Params) -> Result<Vec<AclEntry>, ApiError> {
    let fault = |text: String| ApiError::server(format!("ACL update failed: {text}"));
    let propagate = params.flag_or("propagate", true);
    let mut entries = Vec::new();
    for role in split_list(&params.text_or_empty("roles")) {
        if dc.access.role(&role, dc.release).is_none() {
            return Err(fault(format!("role '{role}' does not exist")));
        }
        for (list, subject) in
            [("groups", Subject::Group), ("users", Subject::User), ("tokens", Subject::Token)]
        {
            for name in split_list(&params.text_or_empty(list)) {
                let access = &dc.access;
                match subject {
                    Subject::Group if !access.groups.contains_key(&name) => {
                        return Err(fault(format!("group '{name}' does not exist")));
                    }
                    Subject::User if !access.users.contains_key(&name) => {
                        return Err(fault(format!("user '{name}' does not exist")));
                    }
                    Subject::Token if access.token(&name).is_none() => {
                        let (user, token) = name.split_once('!').unwrap_or((&name, ""));
                        if !access.users.contains_key(user) {
                            return Err(fault(format!("no such user ('{user}')")));
                        }
                        return Err(fault(format!("no such token '{token}' for user '{user}'")));
                    }
                    _ => {}
                }
                entries.push(AclEntry {
                    path: path.to_owned(),
                    subject,
                    name,
                    role: role.clone(),
                    propagate,
                });
            }
        }
    }
    Ok(entries)
}
