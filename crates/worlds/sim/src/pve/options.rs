//! Options of the datacentre.

use std::{collections::BTreeMap, fmt::Write as _};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha1::{Digest, Sha1};

use crate::{
    ground::Ground,
    pve::{
        Answer, ApiError, Call, Caller, Datacentre, Lock, Params, Refusal, Reply, Route,
        describe::{self, Kind},
        params::split_list,
        qemu::config::unique_tags,
        validate,
    },
};

/// The options of the datacentre, as `datacenter.cfg` keeps them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// The options as they were given.
    pub values: BTreeMap<String, String>,
}

/// Returns the SHA-1 digest of a text, as configuration files have it.
pub fn digest(text: &str) -> String {
    let mut hex = String::new();
    for byte in Sha1::digest(text) {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

/// The endpoints of the options.
pub fn routes() -> Vec<Route> {
    vec![Route::get("/cluster/options", read), Route::put("/cluster/options", update)]
}

/// The beginning of MAC addresses unless something else was set; 8.1 and later.
const MAC_PREFIX: &str = "BC:24:11";

impl Datacentre {
    /// Returns the tags that only those may use who may change these options.
    pub fn registered_tags(&self) -> Vec<String> {
        self.options.values.get("registered-tags").map(|tags| split_list(tags)).unwrap_or_default()
    }

    /// Returns the first bytes of generated MAC addresses; empty before 8.1: they are random then.
    pub fn mac_prefix(&self) -> String {
        let default = if self.release.at_least(8, 1) { MAC_PREFIX } else { "" };
        self.options.values.get("mac_prefix").map_or_else(|| default.into(), Clone::clone)
    }

    /// Returns the tags of a VM as the server keeps them, which the option `tag-style` can change.
    pub fn kept_tags(&self, tags: &[String]) -> String {
        let sensitive = self.option_key("tag-style", "case-sensitive").is_some_and(|flag| flag == "1");
        let as_given = self.option_key("tag-style", "ordering").is_some_and(|order| order == "config");
        if !sensitive && !as_given {
            return unique_tags(tags);
        }
        let mut kept: Vec<String> = Vec::new();
        for tag in tags {
            let tag = if sensitive { tag.clone() } else { tag.to_lowercase() };
            if !kept.contains(&tag) {
                kept.push(tag);
            }
        }
        if !as_given {
            kept.sort();
        }
        kept.join(";")
    }

    /// Returns a key of an option that is a property string.
    pub fn option_key(&self, option: &str, key: &str) -> Option<String> {
        let text = self.options.values.get(option)?;
        let keys = describe::description().formats.get(option)?;
        validate::split_property_string(keys, text).ok()?.remove(key)
    }

    /// Returns the tags that somebody may use although they are restricted.
    fn allowed_tags(&self, caller: &Caller) -> Vec<String> {
        let mut tags = Vec::new();
        if self.may(caller, "/", &["Sys.Modify"]) {
            tags = self.registered_tags();
        }
        tags.extend(split_list(&self.option_key("user-tag-access", "user-allow-list").unwrap_or_default()));
        tags.sort();
        tags.dedup();
        tags
    }
}

fn read(dc: &mut Datacentre, _: &mut Ground, call: &mut Call, _: &Params) -> Reply {
    let mut told = Map::new();
    told.insert("description".into(), "".into());
    told.insert("mac_prefix".into(), dc.mac_prefix().into());
    told.insert("allowed-tags".into(), dc.allowed_tags(&call.caller).into());
    for (name, text) in &dc.options.values {
        let value = match name.as_str() {
            "registered-tags" => split_list(text).into(),
            "description" => text.clone().into(),
            _ => shown(name, text),
        };
        told.insert(name.clone(), value);
    }
    Ok(Value::Object(told).into())
}

/// Returns an option as it is told: a property string as an object.
fn shown(name: &str, text: &str) -> Value {
    let Some(keys) = describe::description().formats.get(name) else { return text.into() };
    let Ok(found) = validate::split_property_string(keys, text) else { return text.into() };
    let value = |key: &str, text: String| match keys.get(key).map(|property| property.kind) {
        Some(Kind::Boolean) => json!(i32::from(text == "1")),
        _ => text.into(),
    };
    found.into_iter().map(|(key, text)| (key.clone(), value(&key, text))).collect::<Map<_, _>>().into()
}

fn update(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    call.lock(dc, ground, &Lock::file("datacenter.cfg"))?;
    check_next_id(params)?;
    let mut values = dc.options.values.clone();
    // Whoever writes the file anew writes the tags in order.
    if let Some(tags) = values.get_mut("registered-tags") {
        let mut sorted = split_list(tags);
        sorted.sort();
        *tags = sorted.join(";");
    }
    for name in split_list(&params.text_or_empty("delete")) {
        values.remove(&name);
    }
    for name in params.names().filter(|name| *name != "delete") {
        let mut text = params.text_or_empty(name);
        if name == "description" && !text.ends_with('\n') {
            text.push('\n');
        }
        values.insert(name.clone(), text);
    }
    dc.options.values = values;
    Ok(Answer::null())
}

fn check_next_id(params: &Params) -> Result<(), Refusal> {
    let Some(keys) = describe::description().formats.get("next-id") else { return Ok(()) };
    let found = validate::split_property_string(keys, &params.text_or_empty("next-id")).unwrap_or_default();
    let number =
        |key: &str, default: u64| found.get(key).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (lower, upper) = (number("lower", 100), number("upper", 1_000_000));
    if lower > upper {
        let text = format!("lower ({lower}) <= upper ({upper}) boundary rule broken");
        return Err(ApiError::server(text).into());
    }
    Ok(())
}
