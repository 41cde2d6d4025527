//! Software-defined networks, as configuration: zones, vnets and subnets.
//!
//! Changes are pending until they are applied; applying gives every host the vnets as bridges.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    ground::Ground,
    pve::{
        Answer, ApiError, Call, Datacentre, Params, Reply, Route, Work, firewall::check_digest,
        options::digest, params::split_list, tasks,
    },
};

type Settings = BTreeMap<String, String>;

/// What is configured, and what runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sdn {
    wanted: Networks,
    applied: Networks,
}

/// Zones, vnets and subnets by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Networks {
    zones: BTreeMap<String, Settings>,
    vnets: BTreeMap<String, Settings>,
    subnets: BTreeMap<String, Settings>,
}

/// The endpoints below `/cluster/sdn`.
pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/cluster/sdn", |_, _, _, _| {
            let names = ["vnets", "zones", "controllers", "ipams", "dns", "fabrics"];
            Ok(names.iter().map(|name| json!({ "id": name })).collect::<Vec<Value>>().into())
        }),
        Route::put("/cluster/sdn", apply),
        Route::get("/cluster/sdn/zones", list_zones),
        Route::post("/cluster/sdn/zones", create_zone),
        Route::get("/cluster/sdn/zones/{zone}", read_zone),
        Route::put("/cluster/sdn/zones/{zone}", update_zone),
        Route::delete("/cluster/sdn/zones/{zone}", remove_zone),
        Route::get("/cluster/sdn/vnets", list_vnets),
        Route::post("/cluster/sdn/vnets", create_vnet),
        Route::get("/cluster/sdn/vnets/{vnet}", read_vnet),
        Route::put("/cluster/sdn/vnets/{vnet}", update_vnet),
        Route::delete("/cluster/sdn/vnets/{vnet}", remove_vnet),
        Route::get("/cluster/sdn/vnets/{vnet}/subnets", list_subnets),
        Route::post("/cluster/sdn/vnets/{vnet}/subnets", create_subnet),
        Route::get("/cluster/sdn/vnets/{vnet}/subnets/{subnet}", read_subnet),
        Route::put("/cluster/sdn/vnets/{vnet}/subnets/{subnet}", update_subnet),
        Route::delete("/cluster/sdn/vnets/{vnet}/subnets/{subnet}", remove_subnet),
    ]
}

impl Datacentre {
    /// Returns the zone that a bridge belongs to as far as rights are concerned.
    pub fn zone_of(&self, bridge: &str) -> String {
        let zone = self.sdn.wanted.vnets.get(bridge).and_then(|vnet| vnet.get("zone"));
        zone.cloned().unwrap_or_else(|| "localnetwork".into())
    }

    /// Returns whether a network is a vnet that has been applied.
    pub fn has_vnet(&self, name: &str) -> bool {
        self.sdn.applied.vnets.contains_key(name)
    }
}

/// Settings that are numbers in answers.
const NUMBERS: [&str; 10] = [
    "tag",
    "vlanaware",
    "isolate-ports",
    "mtu",
    "snat",
    "vxlan-port",
    "service-vlan",
    "vrf-vxlan",
    "advertise-subnets",
    "exitnodes-local-routing",
];

fn shown(settings: &Settings) -> Map<String, Value> {
    let value = |key: &str, text: &str| {
        if NUMBERS.contains(&key) {
            text.parse::<i64>().map_or_else(|_| text.into(), Value::from)
        } else {
            text.into()
        }
    };
    settings.iter().map(|(key, text)| (key.clone(), value(key, text))).collect()
}

fn settings(params: &Params, other: &[&str]) -> Settings {
    let skipped = ["delete", "digest", "lock-token", "pending", "running"];
    params
        .names()
        .filter(|name| !skipped.contains(&name.as_str()) && !other.contains(&name.as_str()))
        .map(|name| match params.get(name) {
            Some(Value::Array(_)) => (name.clone(), params.list(name).join(";")),
            _ => (name.clone(), params.text_or_empty(name)),
        })
        .collect()
}

/// Which of the three kinds something is.
#[derive(Clone, Copy)]
enum Sort {
    Zone,
    Vnet,
    Subnet,
}

impl Sort {
    const fn key(self) -> &'static str {
        match self {
            Self::Zone => "zone",
            Self::Vnet => "vnet",
            Self::Subnet => "subnet",
        }
    }

    const fn of(self, networks: &Networks) -> &BTreeMap<String, Settings> {
        match self {
            Self::Zone => &networks.zones,
            Self::Vnet => &networks.vnets,
            Self::Subnet => &networks.subnets,
        }
    }
}

/// Returns the rows of a list: as wanted, as it runs, or with what is pending.
fn rows(
    dc: &Datacentre,
    params: &Params,
    sort: Sort,
    visible: impl Fn(&str, &Settings) -> bool,
) -> Vec<Value> {
    let wanted = sort.of(&dc.sdn.wanted);
    let applied = sort.of(&dc.sdn.applied);
    let digest = digest(&format!("{wanted:?}"));
    if params.flag("pending") {
        return pending_rows(wanted, applied, sort, &digest);
    }
    let (source, digest) = if params.flag("running") { (applied, None) } else { (wanted, Some(digest)) };
    let row = |(name, settings): (&String, &Settings)| {
        let mut row = shown(settings);
        row.insert(sort.key().into(), name.clone().into());
        if let Some(digest) = &digest {
            row.insert("digest".into(), digest.clone().into());
        }
        Value::Object(row)
    };
    source.iter().filter(|(name, settings)| visible(name, settings)).map(row).collect()
}

fn pending_rows(
    wanted: &BTreeMap<String, Settings>,
    applied: &BTreeMap<String, Settings>,
    sort: Sort,
    digest: &str,
) -> Vec<Value> {
    let mut rows = Vec::new();
    for (name, settings) in wanted {
        let kind = settings.get("type").cloned().unwrap_or_default();
        let row = match applied.get(name) {
            None => {
                let mut pending = shown(settings);
                pending.remove("type");
                json!({ sort.key(): name, "type": kind, "state": "new", "pending": pending, "digest": null })
            }
            Some(running) => {
                let mut row = shown(running);
                row.insert(sort.key().into(), name.clone().into());
                row.insert("digest".into(), digest.into());
                let changed: Settings = settings
                    .iter()
                    .filter(|(key, text)| running.get(*key) != Some(text))
                    .map(|(key, text)| (key.clone(), text.clone()))
                    .collect();
                if !changed.is_empty() {
                    row.insert("state".into(), "changed".into());
                    row.insert("pending".into(), shown(&changed).into());
                }
                Value::Object(row)
            }
        };
        rows.push(row);
    }
    for (name, settings) in applied.iter().filter(|(name, _)| !wanted.contains_key(*name)) {
        let mut row = shown(settings);
        row.insert(sort.key().into(), name.clone().into());
        row.insert("state".into(), "deleted".into());
        rows.push(row.into());
    }
    rows
}

fn one(dc: &Datacentre, name: &str, sort: Sort) -> Reply {
    let wanted = sort.of(&dc.sdn.wanted);
    let Some(settings) = wanted.get(name) else {
        return Err(ApiError::server(format!("sdn {} '{name}' does not exist", sort.key())).into());
    };
    let mut row = shown(settings);
    row.insert(sort.key().into(), name.into());
    row.insert("digest".into(), digest(&format!("{wanted:?}")).into());
    Ok(Value::Object(row).into())
}

fn already_defined(sort: Sort, name: &str) -> ApiError {
    let kind = sort.key();
    ApiError::server(format!(
        "create sdn {kind} object failed: sdn {kind} object ID '{name}' already defined"
    ))
}

fn list_zones(dc: &mut Datacentre, _: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let visible = |name: &str, settings: &Settings| {
        params.text("type").is_none_or(|kind| settings.get("type") == Some(&kind))
            && dc.may_any(
                &call.caller,
                &format!("/sdn/zones/{name}"),
                &["SDN.Audit", "SDN.Use", "SDN.Allocate"],
            )
    };
    Ok(rows(dc, params, Sort::Zone, visible).into())
}

/// What each type of zone needs.
const NEEDED: [(&str, &[&str]); 5] = [
    ("vlan", &["bridge"]),
    ("qinq", &["bridge", "tag"]),
    ("vxlan", &[]),
    ("evpn", &["controller", "vrf-vxlan"]),
    ("simple", &[]),
];

fn create_zone(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("zone");
    let kind = params.text_or_empty("type");
    let needed = NEEDED.iter().find(|(known, _)| *known == kind).map_or(&[][..], |(_, needed)| needed);
    if let Some(option) = needed.iter().find(|option| !params.has(option)) {
        return Err(ApiError::server(format!("missing value for required option '{option}'")).into());
    }
    if dc.sdn.wanted.zones.contains_key(&name) {
        return Err(already_defined(Sort::Zone, &name).into());
    }
    dc.sdn.wanted.zones.insert(name, settings(params, &["zone"]));
    Ok(Answer::null())
}

fn read_zone(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    one(dc, &params.text_or_empty("zone"), Sort::Zone)
}

fn change(known: &mut Settings, params: &Params, other: &[&str]) {
    for key in split_list(&params.text_or_empty("delete")) {
        known.remove(&key);
    }
    known.extend(settings(params, other));
}

fn update_zone(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("zone");
    check_digest(params, &digest(&format!("{:?}", dc.sdn.wanted.zones)))?;
    let Some(zone) = dc.sdn.wanted.zones.get_mut(&name) else {
        return Err(ApiError::server(format!("sdn zone '{name}' does not exist")).into());
    };
    change(zone, params, &["zone"]);
    Ok(Answer::null())
}

fn remove_zone(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("zone");
    let user = dc.sdn.wanted.vnets.iter().find(|(_, vnet)| vnet.get("zone") == Some(&name));
    if let Some((vnet, _)) = user {
        let place = "/usr/share/perl5/PVE/Network/SDN/Zones/Plugin.pm line 149";
        let text = format!("delete sdn zone object failed: zone {name} is used by vnet {vnet} at {place}.");
        return Err(ApiError::server(text).into());
    }
    dc.sdn.wanted.zones.remove(&name);
    Ok(Answer::null())
}

fn list_vnets(dc: &mut Datacentre, _: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let visible = |name: &str, settings: &Settings| {
        let zone = settings.get("zone").cloned().unwrap_or_default();
        let rights = ["SDN.Audit", "SDN.Use", "SDN.Allocate"];
        dc.may_any(&call.caller, &format!("/sdn/zones/{zone}/{name}"), &rights)
    };
    Ok(rows(dc, params, Sort::Vnet, visible).into())
}

/// Checks a vnet against its zone.
fn check_vnet(dc: &Datacentre, vnet: &Settings, what: &str) -> Result<(), ApiError> {
    let zone = vnet.get("zone").cloned().unwrap_or_default();
    let Some(zone) = dc.sdn.wanted.zones.get(&zone) else {
        let place = "/usr/share/perl5/PVE/API2/Network/SDN/Vnets.pm line 326";
        let text = format!("{what} sdn vnet object failed: cannot lookup undefined type! at {place}.");
        return Err(ApiError::server(text));
    };
    let tagged =
        zone.get("type").is_some_and(|kind| matches!(kind.as_str(), "vlan" | "qinq" | "vxlan" | "evpn"));
    if tagged && !vnet.contains_key("tag") {
        let text = format!(
            "{what} sdn vnet object failed: 400 Parameter verification failed.\ntag: missing vlan tag"
        );
        return Err(ApiError::server(text));
    }
    Ok(())
}

fn create_vnet(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("vnet");
    if dc.sdn.wanted.vnets.contains_key(&name) {
        return Err(already_defined(Sort::Vnet, &name).into());
    }
    let mut vnet = settings(params, &["vnet"]);
    vnet.insert("type".into(), "vnet".into());
    check_vnet(dc, &vnet, "create")?;
    dc.sdn.wanted.vnets.insert(name, vnet);
    Ok(Answer::null())
}

fn check_zone(dc: &Datacentre, call: &Call, vnet: &str, rights: &[&str]) -> Result<(), ApiError> {
    let Some(settings) = dc.sdn.wanted.vnets.get(vnet) else {
        return Err(ApiError::server(format!("sdn vnet '{vnet}' does not exist")));
    };
    let zone = settings.get("zone").cloned().unwrap_or_default();
    dc.check_any(&call.caller, &format!("/sdn/zones/{zone}/{vnet}"), rights)
}

fn read_vnet(dc: &mut Datacentre, _: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("vnet");
    check_zone(dc, call, &name, &["SDN.Audit", "SDN.Allocate"])?;
    one(dc, &name, Sort::Vnet)
}

fn update_vnet(dc: &mut Datacentre, _: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("vnet");
    check_zone(dc, call, &name, &["SDN.Allocate"])?;
    check_digest(params, &digest(&format!("{:?}", dc.sdn.wanted.vnets)))?;
    let mut vnet = dc.sdn.wanted.vnets.get(&name).cloned().unwrap_or_default();
    change(&mut vnet, params, &["vnet"]);
    check_vnet(dc, &vnet, "update")?;
    dc.sdn.wanted.vnets.insert(name, vnet);
    Ok(Answer::null())
}

fn remove_vnet(dc: &mut Datacentre, _: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let name = params.text_or_empty("vnet");
    check_zone(dc, call, &name, &["SDN.Allocate"])?;
    if dc.sdn.wanted.subnets.values().any(|subnet| subnet.get("vnet") == Some(&name)) {
        // The exact words are not recorded.
        let text = format!("delete sdn vnet object failed: Can't delete vnet if subnets exists: {name}");
        return Err(ApiError::server(text).into());
    }
    dc.sdn.wanted.vnets.remove(&name);
    Ok(Answer::null())
}

/// Returns the name of a subnet: zone, address and length, with dashes.
fn subnet_name(dc: &Datacentre, params: &Params) -> String {
    let cidr = params.text_or_empty("subnet");
    if !cidr.contains('/') {
        return cidr;
    }
    format!("{}-{}", dc.zone_of(&params.text_or_empty("vnet")), cidr.replace('/', "-"))
}

fn list_subnets(dc: &mut Datacentre, _: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let vnet = params.text_or_empty("vnet");
    check_zone(dc, call, &vnet, &["SDN.Audit", "SDN.Allocate"])?;
    let visible = |_: &str, settings: &Settings| settings.get("vnet") == Some(&vnet);
    Ok(rows(dc, params, Sort::Subnet, visible).into())
}

fn create_subnet(dc: &mut Datacentre, _: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let vnet = params.text_or_empty("vnet");
    check_zone(dc, call, &vnet, &["SDN.Allocate"])?;
    let name = subnet_name(dc, params);
    if dc.sdn.wanted.subnets.contains_key(&name) {
        return Err(already_defined(Sort::Subnet, &name).into());
    }
    let mut subnet = settings(params, &["subnet"]);
    subnet.insert("type".into(), "subnet".into());
    subnet.insert("cidr".into(), params.text_or_empty("subnet"));
    dc.sdn.wanted.subnets.insert(name, subnet);
    Ok(Answer::null())
}

fn read_subnet(dc: &mut Datacentre, _: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    check_zone(dc, call, &params.text_or_empty("vnet"), &["SDN.Audit", "SDN.Allocate"])?;
    one(dc, &subnet_name(dc, params), Sort::Subnet)
}

fn update_subnet(dc: &mut Datacentre, _: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    check_zone(dc, call, &params.text_or_empty("vnet"), &["SDN.Allocate"])?;
    let name = subnet_name(dc, params);
    let Some(subnet) = dc.sdn.wanted.subnets.get_mut(&name) else {
        return Err(ApiError::server(format!("sdn subnet '{name}' does not exist")).into());
    };
    change(subnet, params, &["subnet", "vnet"]);
    Ok(Answer::null())
}

fn remove_subnet(dc: &mut Datacentre, _: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    check_zone(dc, call, &params.text_or_empty("vnet"), &["SDN.Allocate"])?;
    let name = subnet_name(dc, params);
    dc.sdn.wanted.subnets.remove(&name);
    Ok(Answer::null())
}

/// How long it takes until hosts have reloaded their networks.
const RELOAD: Duration = Duration::from_secs(4);

fn apply(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, _: &Params) -> Reply {
    dc.sdn.applied = dc.sdn.wanted.clone();
    let (host, user) = (dc.front.clone(), call.caller.id.clone());
    let upid = tasks::start(dc, ground, &host, "reloadnetworkall", "", &user, Work::Nothing(RELOAD));
    Ok(upid.into())
}
