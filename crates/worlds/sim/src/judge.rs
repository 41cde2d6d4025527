//! Every request to Proxmox against the description that the real server gives of itself. Only for tests.
//!
//! The description stands in a folder beside the repository that not everybody has; `ICHOR_SHARED` names another.
//! Without it nothing is judged, and that is said once. The lab has a description of its own by which it refuses; this
//! is a second opinion about what it accepts.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Mutex, Once, OnceLock, PoisonError},
};

use regex::Regex;
use serde_json::Value;

use crate::{
    pve::{
        params::as_text,
        release::Release,
        request,
        validate::{boolean, is_integer, is_number},
    },
    wire::{Request, Response},
};

/// Finds the folder with recordings and schema.
#[allow(clippy::disallowed_methods, reason = "only tests look for this folder")]
pub fn shared() -> Option<PathBuf> {
    let folder = std::env::var_os("ICHOR_SHARED").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../../shared")),
        PathBuf::from,
    );
    folder.is_dir().then_some(folder)
}

/// Returns the description of the real API, if it is here.
pub fn schema() -> Option<&'static Value> {
    static SCHEMA: OnceLock<Option<Value>> = OnceLock::new();
    let read = || {
        let text = std::fs::read_to_string(shared()?.join("pve-api-schema.json")).ok()?;
        serde_json::from_str(&text).ok()
    };
    SCHEMA.get_or_init(read).as_ref()
}

/// Judges a request that the lab has answered.
///
/// # Panics
///
/// If the lab accepted what the real server would refuse. Values are not told: they may be secret.
pub(crate) fn watch(release: Release, request: &Request, response: &Response) {
    // The description is of one release.
    if release != Release::V9_2 || !(200..300).contains(&response.status) {
        return;
    }
    let Some(schema) = schema() else {
        say_that_nothing_is_judged();
        return;
    };
    judge(schema, request);
}

fn judge(schema: &Value, request: &Request) {
    let faults = faults(schema, request);
    assert!(
        faults.is_empty(),
        "the real server refuses what the lab accepted: {} {}: {}",
        request.method,
        request.path,
        faults.join("; ")
    );
}

#[allow(clippy::print_stderr, reason = "a test says what it did not do")]
fn say_that_nothing_is_judged() {
    static SAID: Once = Once::new();
    SAID.call_once(|| eprintln!("requests are not judged: there is no schema here"));
}

/// Returns what the schema has against a request.
fn faults(schema: &Value, request: &Request) -> Vec<String> {
    let decoded = request::front(request)
        .and_then(|front| Ok((request::decode(request, &front, Release::V9_2, u64::MAX)?, front)));
    let Ok((decoded, front)) = decoded else { return vec!["it cannot be decoded".into()] };
    // Pages for browsers are not described; the other formatters take what this one takes.
    if front.formatter != "json" || front.path == "/" {
        return Vec::new();
    }
    let Some((template, mut given)) = find(schema, &front.path) else {
        return vec!["there is no such path".into()];
    };
    let endpoint = &schema["paths"][template][&request.method];
    if endpoint.is_null() {
        return vec![format!("{template} has no such method")];
    }
    given.extend(decoded.params.iter().map(|(name, value)| (name.clone(), value.clone())));
    let described = &endpoint["parameters"]["properties"];
    let mut faults = Vec::new();
    for (name, value) in &given {
        match property(described, name) {
            Some(property) => check(schema, name, property, value, &mut faults),
            None if endpoint["parameters"]["additionalProperties"] == true => {}
            None => faults.push(format!("`{name}` is unknown")),
        }
    }
    for (name, property) in described.as_object().into_iter().flatten() {
        if !name.ends_with("[n]") && property["optional"] != true && !given.contains_key(name) {
            faults.push(format!("`{name}` is missing"));
        }
        let needed = property["requires"].as_str().filter(|_| given.contains_key(name));
        if let Some(needed) = needed.filter(|needed| !given.contains_key(*needed)) {
            faults.push(format!("`{name}` needs `{needed}`"));
        }
    }
    faults
}

/// Finds the path of the schema that a path stands for, and what stands for the names in it.
fn find<'s>(schema: &'s Value, path: &str) -> Option<(&'s str, BTreeMap<String, Value>)> {
    // The server does not mind repeated slashes.
    let path = path.split('/').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/");
    let templates = schema["paths"].as_object()?.keys();
    let fitting = templates.filter_map(|template| Some((template.as_str(), fit(template, &path)?)));
    // Words are taken before names: a path that says more about itself has fewer of these.
    fitting.min_by_key(|(_, names)| names.len())
}

fn fit(template: &str, path: &str) -> Option<BTreeMap<String, Value>> {
    let mut names = BTreeMap::new();
    let mut wanted = template.split('/').filter(|part| !part.is_empty()).peekable();
    let mut rest = path;
    while let Some(part) = wanted.next() {
        // The last name takes the rest: volumes have slashes.
        let takes_rest = wanted.peek().is_none() && part == "{volume}";
        let (word, after) = if takes_rest { (rest, "") } else { rest.split_once('/').unwrap_or((rest, "")) };
        rest = after;
        match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
            Some(name) if !word.is_empty() => {
                names.insert(name.to_owned(), Value::String(word.to_owned()));
            }
            None if word == part => {}
            _ => return None,
        }
    }
    rest.is_empty().then_some(names)
}

/// Returns the description of a parameter, numbered ones included.
fn property<'s>(described: &'s Value, name: &str) -> Option<&'s Value> {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let numbered = || described.get(format!("{stem}[n]")).filter(|_| stem != name);
    described.get(name).or_else(numbered)
}

/// Checks a value against its description.
fn check(schema: &Value, name: &str, property: &Value, value: &Value, faults: &mut Vec<String>) {
    if property["type"] == "array" {
        let values = value.as_array().map_or_else(|| vec![value], |values| values.iter().collect());
        for value in values {
            check(schema, name, &property["items"], value, faults);
        }
        return;
    }
    let text = match value {
        // A list that is given for a text is joined.
        Value::Array(values) => values.iter().filter_map(as_text).collect::<Vec<_>>().join(","),
        value => as_text(value).unwrap_or_default(),
    };
    let mut fault = |what: &str| faults.push(format!("`{name}` {what}"));
    match property["type"].as_str() {
        Some("integer") if !is_integer(&text) => fault("is no integer"),
        Some("number") if !is_number(&text) => fault("is no number"),
        Some("boolean") if boolean(&text).is_none() => fault("is no boolean"),
        _ => {}
    }
    let mut options = property["enum"].as_array().into_iter().flatten().filter_map(as_text).peekable();
    if options.peek().is_some() && !options.any(|option| option == text) {
        fault("is none of the possible values");
    }
    if property["pattern"].as_str().is_some_and(|pattern| !matches(pattern, &text)) {
        fault("does not match its pattern");
    }
    let number = text.parse::<f64>().ok();
    let beyond = |name: &str| number.zip(property[name].as_f64());
    if beyond("minimum").is_some_and(|(number, least)| number < least)
        || beyond("maximum").is_some_and(|(number, most)| number > most)
    {
        fault("is out of its range");
    }
    let length = u64::try_from(text.chars().count()).unwrap_or(u64::MAX);
    if property["minLength"].as_u64().is_some_and(|least| length < least)
        || property["maxLength"].as_u64().is_some_and(|most| length > most)
    {
        fault("has a wrong length");
    }
    if let Some(keys) = keys(schema, &property["format"]) {
        check_parts(schema, name, keys, &text, faults);
    }
}

/// The server anchors patterns at both ends. What this library cannot read is not judged.
fn matches(pattern: &str, text: &str) -> bool {
    static KNOWN: Mutex<BTreeMap<String, Option<Regex>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let regex = known.entry(pattern.to_owned()).or_insert_with(|| {
        let pattern = pattern.replace("{,", "{0,").replace("\\0", "\\x00");
        Regex::new(&format!("^(?:{pattern})\n?$")).ok()
    });
    regex.as_ref().is_none_or(|regex| regex.is_match(text))
}

/// Returns the keys of a property string.
fn keys<'s>(schema: &'s Value, format: &Value) -> Option<&'s serde_json::Map<String, Value>> {
    let found = match format["$ref"].as_str() {
        Some(name) => &schema["formats"][name],
        None => &schema["named_formats"][format.as_str()?],
    };
    found.as_object()
}

fn check_parts(
    schema: &Value,
    name: &str,
    keys: &serde_json::Map<String, Value>,
    text: &str,
    faults: &mut Vec<String>,
) {
    let mut given = BTreeSet::new();
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let is_main =
            |property: &Value| property["default_key"] == true || property["default_key"].as_u64() == Some(1);
        let main = keys.iter().find(|(_, property)| is_main(property)).map(|(key, _)| key.as_str());
        let pair = part.split_once('=').or_else(|| Some((main?, part)));
        let Some((key, value)) = pair else {
            faults.push(format!("`{name}` has a part without a key"));
            continue;
        };
        // The name of an alias may itself be a value: `virtio=<mac>` gives model and macaddr.
        if let Some(named) = keys.get(key).and_then(|property| property["keyAlias"].as_str()) {
            given.insert(named.to_owned());
        }
        let key = keys.get(key).and_then(|property| property["alias"].as_str()).unwrap_or(key);
        match keys.get(key) {
            Some(property) => {
                check(schema, &format!("{name}.{key}"), property, &Value::String(value.into()), faults);
            }
            None => faults.push(format!("`{name}.{key}` is unknown")),
        }
        if !given.insert(key.to_owned()) {
            faults.push(format!("`{name}.{key}` is given twice"));
        }
    }
    let needed =
        keys.iter().filter(|(_, property)| property["optional"] != true && property["alias"].is_null());
    for (key, _) in needed.filter(|(key, _)| !given.contains(*key)) {
        faults.push(format!("`{name}.{key}` is missing"));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn small() -> Value {
        json!({
            "formats": {"disk": {
                "file": {"type": "string", "default_key": true},
                "volume": {"alias": "file"},
                "cache": {"type": "string", "optional": true, "enum": ["none", "writeback"]},
                "ssd": {"type": "boolean", "optional": true},
            }},
            "named_formats": {},
            "paths": {
                "/nodes/{node}/qemu": {"POST": {"parameters": {"additionalProperties": false, "properties": {
                    "node": {"type": "string"},
                    "vmid": {"type": "integer", "minimum": 100},
                    "scsi[n]": {"type": "string", "optional": true, "format": {"$ref": "disk"}},
                    "start": {"type": "boolean", "optional": true},
                    "size": {"type": "string", "optional": true, "pattern": "\\d+G", "requires": "start"},
                }}}},
                "/nodes/{node}/storage/{storage}/content/{volume}": {"DELETE": {"parameters": {"properties": {
                    "node": {"type": "string"}, "storage": {"type": "string"}, "volume": {"type": "string"},
                }}}},
            },
        })
    }

    fn told(method: &str, path: &str, form: &str) -> String {
        // The server ends a value at a bare `=`.
        let pairs = form.split('&').filter_map(|pair| pair.split_once('='));
        let form: Vec<String> =
            pairs.map(|(name, value)| format!("{name}={}", value.replace('=', "%3D"))).collect();
        let request = Request {
            method: method.into(),
            path: format!("/api2/json{path}"),
            body: form.join("&").into(),
            ..Request::default()
        };
        faults(&small(), &request).join("; ")
    }

    #[test]
    fn requests_are_judged_by_the_schema() {
        for (form, expected) in [
            ("vmid=100&scsi0=local:1,cache=none,ssd=on", ""),
            ("vmid=100&scsi30=volume=local:1", ""),
            ("start=1", "`vmid` is missing"),
            ("vmid=99", "`vmid` is out of its range"),
            ("vmid=x", "`vmid` is no integer"),
            ("vmid=100&name=x", "`name` is unknown"),
            ("vmid=100&start=maybe", "`start` is no boolean"),
            ("vmid=100&scsi0=local:1,cache=some", "`scsi0.cache` is none of the possible values"),
            ("vmid=100&scsi0=cache=none", "`scsi0.file` is missing"),
            ("vmid=100&scsi0=local:1,file=other", "`scsi0.file` is given twice"),
            ("vmid=100&scsi0=local:1,iothread=1", "`scsi0.iothread` is unknown"),
            ("vmid=100&start=1&size=5G", ""),
            ("vmid=100&start=1&size=x5G", "`size` does not match its pattern"),
            ("vmid=100&size=5G", "`size` needs `start`"),
        ] {
            assert_eq!(told("POST", "/nodes/a/qemu", form), expected, "{form}");
        }
        assert_eq!(told("DELETE", "/nodes/a/storage/local/content/local:iso/x.iso", ""), "");
        assert_eq!(told("GET", "/nodes/a/qemu", ""), "/nodes/{node}/qemu has no such method");
        assert_eq!(told("GET", "/nodes/a/lxc", ""), "there is no such path");
    }

    #[test]
    #[should_panic(expected = "POST /api2/json/nodes/a/qemu: `bogus` is unknown; `vmid` is missing")]
    fn what_the_lab_accepts_wrongly_stops_the_test_and_tells_no_values() {
        let request = Request {
            method: "POST".into(),
            path: "/api2/json/nodes/a/qemu".into(),
            query: "bogus=secret".into(),
            ..Request::default()
        };
        judge(&small(), &request);
    }
}
