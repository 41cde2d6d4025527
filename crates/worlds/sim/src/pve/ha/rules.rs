//! HA rules (9.0 and later) and groups (before).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::{
    ground::Ground,
    pve::{
        Answer, ApiError, Call, Datacentre, Params, Reply, Route, firewall::check_digest, options::digest,
        params::split_list,
    },
};

/// The endpoints of rules and groups.
pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/cluster/ha/rules", list),
        Route::post("/cluster/ha/rules", create),
        Route::get("/cluster/ha/rules/{rule}", read),
        Route::put("/cluster/ha/rules/{rule}", update),
        Route::delete("/cluster/ha/rules/{rule}", remove),
        Route::get("/cluster/ha/groups", |dc, _, _, _| {
            gone(dc, "index groups")?;
            Ok(dc.ha.groups.iter().map(|(name, group)| group_row(name, group)).collect::<Vec<_>>().into())
        }),
        Route::post("/cluster/ha/groups", create_group),
        Route::get("/cluster/ha/groups/{group}", read_group),
        Route::put("/cluster/ha/groups/{group}", update_group),
        Route::delete("/cluster/ha/groups/{group}", remove_group),
    ]
}

type Settings = BTreeMap<String, String>;

fn value(key: &str, text: &str) -> Value {
    match key {
        "strict" | "disable" | "restricted" | "nofailback" => {
            text.parse::<i64>().map_or_else(|_| text.into(), Value::from)
        }
        _ => text.into(),
    }
}

fn rule_row(dc: &Datacentre, name: &str, rule: &Settings) -> Value {
    let mut row: Map<String, Value> =
        rule.iter().map(|(key, text)| (key.clone(), value(key, text))).collect();
    row.insert("rule".into(), name.into());
    row.insert("digest".into(), digest(&format!("{:?}", dc.ha.rules)).into());
    row.into()
}

fn list(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let fits = |rule: &Settings| {
        params.text("type").is_none_or(|kind| rule.get("type") == Some(&kind))
            && params.text("resource").is_none_or(|wanted| {
                rule.get("resources").is_some_and(|resources| split_list(resources).contains(&wanted))
            })
    };
    let rules = dc.ha.rules.iter().filter(|(_, rule)| fits(rule));
    Ok(rules.map(|(name, rule)| rule_row(dc, name, rule)).collect::<Vec<_>>().into())
}

fn read(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("rule");
    let rule = dc.ha.rules.get(&name).ok_or_else(|| ApiError::server(format!("no such ha rule '{name}'")))?;
    Ok(rule_row(dc, &name, rule).into())
}

/// Settings of a rule.
const SETTINGS: [&str; 7] = ["type", "resources", "nodes", "strict", "affinity", "disable", "comment"];

/// Writes resources in their full form and order.
fn set(rule: &mut Settings, params: &Params) {
    for key in SETTINGS {
        let Some(text) = params.text(key) else { continue };
        let text = match key {
            "resources" => split_list(&text)
                .into_iter()
                .map(|name| if name.contains(':') { name } else { format!("vm:{name}") })
                .collect::<Vec<_>>()
                .join(","),
            "nodes" => split_list(&text).join(","),
            _ => text,
        };
        rule.insert(key.into(), text);
    }
}

/// Says what makes a rule impossible.
fn fault(dc: &Datacentre, name: &str, rule: &Settings) -> Option<String> {
    let resources = split_list(rule.get("resources").map(String::as_str).unwrap_or_default());
    let unmanaged: Vec<&str> =
        resources.iter().map(String::as_str).filter(|known| !dc.ha.resources.contains_key(*known)).collect();
    if !unmanaged.is_empty() {
        return Some(format!("cannot use unmanaged resource(s) {}.", unmanaged.join(", ")));
    }
    let nodes = split_list(rule.get("nodes").map(String::as_str).unwrap_or_default());
    let hosts = nodes.iter().map(|node| node.split(':').next().unwrap_or_default());
    let unknown: Vec<&str> = hosts.filter(|host| !dc.hosts.contains_key(*host)).collect();
    if !unknown.is_empty() {
        return Some(format!("cannot use non-existent node(s) {}.", unknown.join(", ")));
    }
    let known_hosts = dc.ha.manager.as_ref().map_or(0, |manager| manager.hosts.len());
    let negative = rule.get("affinity").is_some_and(|affinity| affinity == "negative");
    if negative && resources.len() > known_hosts {
        let text = "resources: rule defines more resources than available nodes";
        return Some(format!("400 Rule '{name}' is invalid.\n{text}"));
    }
    if rule.get("type").is_some_and(|kind| kind == "resource-affinity") && resources.len() < 2 {
        let text = "resources: rule is ineffective as there are less than two resources";
        return Some(format!("400 Rule '{name}' is invalid.\n{text}"));
    }
    None
}

fn create(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("rule");
    let refused = |text: String| Err(ApiError::server(format!("create ha rule failed: {text}")).into());
    if dc.ha.rules.contains_key(&name) {
        return refused(format!("HA rule '{name}' already defined"));
    }
    let mut rule = Settings::new();
    set(&mut rule, params);
    if let Some(text) = fault(dc, &name, &rule) {
        return refused(text);
    }
    dc.ha.rules.insert(name, rule);
    Ok(Answer::null())
}

fn update(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("rule");
    let refused = |text: String| ApiError::server(format!("update ha rules failed: {text}"));
    let Some(mut rule) = dc.ha.rules.get(&name).cloned() else {
        return Err(refused(format!("HA rule '{name}' does not exist")).into());
    };
    check_digest(params, &digest(&format!("{:?}", dc.ha.rules))).map_err(|error| refused(error.message))?;
    for key in split_list(&params.text_or_empty("delete")) {
        rule.remove(&key);
    }
    set(&mut rule, params);
    if let Some(text) = fault(dc, &name, &rule) {
        return Err(refused(text).into());
    }
    dc.ha.rules.insert(name, rule);
    Ok(Answer::null())
}

fn remove(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    dc.ha.rules.remove(&params.text_or_empty("rule"));
    Ok(Answer::null())
}

/// From 9.0 on there are no groups any more.
fn gone(dc: &Datacentre, what: &str) -> Result<(), ApiError> {
    if dc.release.at_least(9, 0) {
        return Err(ApiError::server(format!("cannot {what}: ha groups have been migrated to rules")));
    }
    Ok(())
}

fn group_row(name: &str, group: &Settings) -> Value {
    let mut row: Map<String, Value> =
        group.iter().map(|(key, text)| (key.clone(), value(key, text))).collect();
    row.insert("group".into(), name.into());
    row.insert("type".into(), "group".into());
    row.into()
}

const GROUP_SETTINGS: [&str; 4] = ["nodes", "restricted", "nofailback", "comment"];

fn create_group(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    gone(dc, "create group")?;
    let name = params.text_or_empty("group");
    if dc.ha.groups.contains_key(&name) {
        let text = format!("create ha group failed: ha group ID '{name}' already defined");
        return Err(ApiError::server(text).into());
    }
    let settings = GROUP_SETTINGS.iter().filter_map(|key| Some(((*key).to_owned(), params.text(key)?)));
    dc.ha.groups.insert(name, settings.collect());
    Ok(Answer::null())
}

fn no_group(name: &str) -> ApiError {
    ApiError::server(format!("no such ha group '{name}'"))
}

fn read_group(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    gone(dc, "read group")?;
    let name = params.text_or_empty("group");
    Ok(group_row(&name, dc.ha.groups.get(&name).ok_or_else(|| no_group(&name))?).into())
}

fn update_group(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    gone(dc, "update group")?;
    let name = params.text_or_empty("group");
    let group = dc.ha.groups.get_mut(&name).ok_or_else(|| no_group(&name))?;
    for key in split_list(&params.text_or_empty("delete")) {
        group.remove(&key);
    }
    for key in GROUP_SETTINGS {
        if let Some(text) = params.text(key) {
            group.insert(key.into(), text);
        }
    }
    Ok(Answer::null())
}

fn remove_group(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    gone(dc, "delete group")?;
    let name = params.text_or_empty("group");
    if let Some((user, _)) = dc.ha.resources.iter().find(|(_, settings)| settings.get("group") == Some(&name))
    {
        return Err(ApiError::server(format!("ha group is used by service '{user}'")).into());
    }
    dc.ha.groups.remove(&name);
    Ok(Answer::null())
}
