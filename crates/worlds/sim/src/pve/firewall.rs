//! Firewalls of the cluster, its hosts and its VMs: options, rules, aliases, IP sets and security groups.
//!
//! Nothing is filtered: the lab keeps what is configured and checks it as the real server does.

mod names;
mod rules;

use std::collections::BTreeMap;

use ichor_model::VmId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use self::rules::Rule;
use crate::{
    ground::Ground,
    pve::{
        Answer, ApiError, Call, Datacentre, Params, Reply, Route, describe, describe::Kind, options::digest,
        params::split_list, validate,
    },
};

/// All firewalls, by scope: `cluster`, `host/pve1`, `vm/401`, `vnet/net20`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Firewalls {
    scopes: BTreeMap<String, Firewall>,
}

/// The firewall of one scope, as its file keeps it. It outlives the VM it is for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Firewall {
    options: BTreeMap<String, String>,
    aliases: BTreeMap<String, Alias>,
    sets: BTreeMap<String, Set>,
    rules: Vec<Rule>,
    groups: BTreeMap<String, Group>,
}

/// A name for an address.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Alias {
    /// The name as it was written; it is looked up in lower case.
    name: String,
    cidr: String,
    comment: Option<String>,
}

/// A set of addresses.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Set {
    comment: Option<String>,
    members: BTreeMap<String, Member>,
}

/// An address in a set.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Member {
    comment: Option<String>,
    except: bool,
}

/// Rules that others can take in.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Group {
    comment: Option<String>,
    rules: Vec<Rule>,
}

impl Firewall {
    /// Returns the digest of the file; an empty one has that of nothing.
    fn digest(&self) -> String {
        let text = if *self == Self::default() {
            String::new()
        } else {
            serde_json::to_string(self).unwrap_or_default()
        };
        digest(&text)
    }
}

impl Firewalls {
    fn get(&self, scope: &str) -> Firewall {
        self.scopes.get(scope).cloned().unwrap_or_default()
    }

    fn cluster(&self) -> Firewall {
        self.get("cluster")
    }
}

impl Datacentre {
    /// Copies the firewall of a VM, as a clone does.
    pub fn clone_firewall(&mut self, from: VmId, to: VmId) {
        if let Some(firewall) = self.firewall.scopes.get(&format!("vm/{from}")).cloned() {
            self.firewall.scopes.insert(format!("vm/{to}"), firewall);
        }
    }

    /// Removes the firewall of a VM.
    pub fn remove_firewall(&mut self, vmid: VmId) {
        self.firewall.scopes.remove(&format!("vm/{vmid}"));
    }
}

/// Returns the scope of a path.
fn scope(params: &Params) -> String {
    if let Some(vmid) = params.text("vmid") {
        format!("vm/{vmid}")
    } else if let Some(vnet) = params.text("vnet") {
        format!("vnet/{vnet}")
    } else if let Some(host) = params.text("node") {
        format!("host/{host}")
    } else {
        "cluster".into()
    }
}

/// Says that a file was changed by somebody else.
pub fn check_digest(params: &Params, now: &str) -> Result<(), ApiError> {
    if params.text("digest").is_some_and(|given| !given.is_empty() && given != now) {
        let text = "detected modified configuration - file changed by other user? Try again.";
        return Err(ApiError::server(text));
    }
    Ok(())
}

/// The places where firewalls are in the API.
const PLACES: [&str; 4] = [
    "/cluster/firewall",
    "/nodes/{node}/firewall",
    "/nodes/{node}/qemu/{vmid}/firewall",
    "/cluster/sdn/vnets/{vnet}/firewall",
];

/// What is below each place.
const BELOW: [(&str, &[(&str, crate::pve::Handler)]); 8] = [
    ("", &[("GET", index)]),
    ("/options", &[("GET", read_options), ("PUT", update_options)]),
    ("/rules", &[("GET", rules::list), ("POST", rules::create)]),
    ("/rules/{pos}", &[("GET", rules::read), ("PUT", rules::update), ("DELETE", rules::remove)]),
    ("/aliases", &[("GET", names::list_aliases), ("POST", names::create_alias)]),
    (
        "/aliases/{name}",
        &[("GET", names::read_alias), ("PUT", names::update_alias), ("DELETE", names::remove_alias)],
    ),
    ("/ipset", &[("GET", names::list_sets), ("POST", names::create_set)]),
    ("/refs", &[("GET", names::refs)]),
];

/// The endpoints of firewalls.
pub fn routes() -> Vec<Route> {
    let mut routes = vec![
        Route::get("/cluster/firewall/macros", macros),
        Route::get("/cluster/firewall/groups", names::list_groups),
        Route::post("/cluster/firewall/groups", names::create_group),
        Route::get("/cluster/firewall/groups/{group}", rules::list),
        Route::post("/cluster/firewall/groups/{group}", rules::create),
        Route::delete("/cluster/firewall/groups/{group}", names::remove_group),
        Route::get("/cluster/firewall/groups/{group}/{pos}", rules::read),
        Route::put("/cluster/firewall/groups/{group}/{pos}", rules::update),
        Route::delete("/cluster/firewall/groups/{group}/{pos}", rules::remove),
    ];
    for endpoint in &describe::description().endpoints {
        let Some(below) = PLACES.iter().find_map(|place| endpoint.path.strip_prefix(place)) else { continue };
        let handler = match (below, endpoint.method.as_str()) {
            ("/ipset/{name}", "GET") => Some(names::list_members as crate::pve::Handler),
            ("/ipset/{name}", "POST") => Some(names::create_member as crate::pve::Handler),
            ("/ipset/{name}", "DELETE") => Some(names::remove_set as crate::pve::Handler),
            ("/ipset/{name}/{cidr}", "GET") => Some(names::read_member as crate::pve::Handler),
            ("/ipset/{name}/{cidr}", "PUT") => Some(names::update_member as crate::pve::Handler),
            ("/ipset/{name}/{cidr}", "DELETE") => Some(names::remove_member as crate::pve::Handler),
            (below, method) => BELOW
                .iter()
                .find(|(known, _)| *known == below)
                .and_then(|(_, handlers)| handlers.iter().find(|(known, _)| *known == method))
                .map(|(_, handler)| *handler),
        };
        if let Some(handler) = handler {
            routes.push(Route { method: endpoint.method.as_str(), path: endpoint.path.as_str(), handler });
        }
    }
    routes
}

fn index(_: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let names: &[&str] = if params.has("vmid") {
        &["rules", "aliases", "ipset", "refs", "options"]
    } else if params.has("node") || params.has("vnet") {
        &["rules", "options", "log"]
    } else {
        &["aliases", "rules", "options", "groups", "ipset", "macros", "refs"]
    };
    Ok(names.iter().map(|name| json!({ "name": name })).collect::<Vec<Value>>().into())
}

/// Returns the description of a scope's options.
fn option_kind(params: &Params, name: &str) -> Kind {
    let place = if params.has("vmid") {
        PLACES[2]
    } else if params.has("vnet") {
        PLACES[3]
    } else if params.has("node") {
        PLACES[1]
    } else {
        PLACES[0]
    };
    let path = format!("{place}/options");
    let endpoint =
        describe::description().endpoints.iter().find(|known| known.path == path && known.method == "PUT");
    endpoint
        .and_then(|known| validate::described(&known.params, name))
        .map(|known| known.kind)
        .unwrap_or_default()
}

fn read_options(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let firewall = dc.firewall.get(&scope(params));
    let value = |name: &str, text: &str| match option_kind(params, name) {
        Kind::Boolean | Kind::Integer => text.parse::<i64>().map_or_else(|_| text.into(), Value::from),
        _ => text.into(),
    };
    let mut told: Map<String, Value> =
        firewall.options.iter().map(|(name, text)| (name.clone(), value(name, text))).collect();
    told.insert("digest".into(), firewall.digest().into());
    Ok(Value::Object(told).into())
}

fn update_options(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let scope = scope(params);
    let mut firewall = dc.firewall.get(&scope);
    check_digest(params, &firewall.digest())?;
    for name in split_list(&params.text_or_empty("delete")) {
        firewall.options.remove(&name);
    }
    for name in
        params.names().filter(|name| !["delete", "digest", "node", "vmid", "vnet"].contains(&name.as_str()))
    {
        firewall.options.insert(name.clone(), params.text_or_empty(name));
    }
    dc.firewall.scopes.insert(scope, firewall);
    Ok(Answer::null())
}

fn macros(_: &mut Datacentre, _: &mut Ground, _: &mut Call, _: &Params) -> Reply {
    let row = |name: &str| json!({ "macro": name, "descr": format!("{name} traffic") });
    Ok(rules::MACROS.split_ascii_whitespace().map(row).collect::<Vec<Value>>().into())
}
