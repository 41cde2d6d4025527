//! The lab against what the real server answered and describes. Both stand in a folder beside the repository that
//! not everybody has; without it these tests say so and pass.

use std::{collections::BTreeSet, fs};

use ichor_sim::{
    judge::{self, shared},
    pve::describe::{self, Kind, Property, Scalar},
    replay,
};
use serde_json::Value;

fn read(path: &std::path::Path) -> Value {
    let text = fs::read_to_string(path).expect("a file that was listed can be read");
    serde_json::from_str(&text).expect("recordings are JSON")
}

/// A call of a recording that the lab answers otherwise, and where the answers differ.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Difference {
    recording: String,
    call: String,
    at: BTreeSet<String>,
}

/// The calls that are known to differ, and why.
fn known_differences() -> Vec<Difference> {
    let known = |recording: &str, call: &str, at: &[&str]| Difference {
        recording: recording.into(),
        call: call.into(),
        at: at.iter().map(ToString::to_string).collect(),
    };
    vec![
        // Two faults of one property string come in the order of a hash, which is another in every process.
        known(
            "create-hostpci",
            r#"admin POST /cluster/mapping/pci {"id":"x","map":"node=pve1,path=1,id=1"}"#,
            &["/errors/map[0]"],
        ),
        // Three storages lie on one file system there and fill together.
        known(
            "protocol-types",
            r#"admin GET /nodes/pve1/storage {"content":["images","iso"]}"#,
            &[
                "/data/0/avail",
                "/data/0/used",
                "/data/1/avail",
                "/data/1/used",
                "/data/2/avail",
                "/data/2/used",
            ],
        ),
    ]
}

/// Returns the place in an answer that a difference begins with.
fn place(difference: &str) -> String {
    difference.split(": ").next().unwrap_or_default().to_owned()
}

#[test]
fn the_lab_answers_as_recorded() {
    let Some(folder) = shared().map(|folder| folder.join("pve-transcripts")).filter(|folder| folder.is_dir())
    else {
        eprintln!("skipped: there are no recordings here");
        return;
    };
    let (mut names, mut differing) = (BTreeSet::new(), Vec::new());
    for entry in fs::read_dir(folder).expect("the folder can be listed").filter_map(Result::ok) {
        let recording = read_if_json(&entry.path());
        if !recording["exchanges"].is_array() {
            continue;
        }
        let replay::Report { name, exchanges } = replay::run(&recording);
        let differences = exchanges.into_iter().filter(|outcome| !outcome.differences.is_empty());
        differing.extend(differences.map(|outcome| Difference {
            recording: name.clone(),
            call: outcome.title,
            at: outcome.differences.iter().map(|difference| place(difference)).collect(),
        }));
        names.insert(name);
    }
    assert!(!names.is_empty(), "the folder has recordings");
    differing.sort();
    let mut known = known_differences();
    known.retain(|difference| names.contains(&difference.recording));
    assert_eq!(differing, known);
}

fn read_if_json(path: &std::path::Path) -> Value {
    if path.extension().is_some_and(|extension| extension == "json") { read(path) } else { Value::Null }
}

#[test]
fn the_description_is_that_of_the_real_api() {
    let Some(schema) = judge::schema() else {
        eprintln!("skipped: there is no schema here");
        return;
    };
    let description = describe::description();
    let mut differing = Vec::new();
    for endpoint in description.endpoints.iter().filter(|endpoint| endpoint.path != "/") {
        let place = format!("{} {}", endpoint.method, endpoint.path);
        let real = &schema["paths"][&endpoint.path][&endpoint.method];
        if real.is_null() {
            differing.push(format!("{place} does not exist"));
            continue;
        }
        let flag = |name: &str| real[name].as_bool().unwrap_or(false) || real[name].is_string();
        if endpoint.protected != flag("protected") || endpoint.proxied != flag("proxyto") {
            differing.push(format!("{place} is answered elsewhere"));
        }
        let since = endpoint.since.map(|since| since.to_string());
        if since.as_deref() != real["since"].as_str() {
            differing.push(format!("{place} is there since {}", real["since"]));
        }
        let Some(properties) = real["parameters"]["properties"].as_object() else { continue };
        for (name, property) in properties {
            match endpoint.params.get(name) {
                None => differing.push(format!("{place} lacks {name}")),
                Some(own) => compare(&format!("{place} {name}"), own, property, &mut differing),
            }
        }
        for name in endpoint.params.keys().filter(|name| !properties.contains_key(*name)) {
            differing.push(format!("{place} has no {name}"));
        }
    }
    for (name, keys) in &description.formats {
        let named = &schema["named_formats"][name];
        let real = if named.is_null() { &schema["formats"][name] } else { named };
        for (key, property) in real.as_object().into_iter().flatten() {
            match keys.get(key) {
                None => differing.push(format!("format {name} lacks {key}")),
                Some(own) => compare(&format!("format {name} {key}"), own, property, &mut differing),
            }
        }
    }
    assert!(description.endpoints.len() > 300, "the description covers what clients use");
    assert!(differing.is_empty(), "{} differences:\n{}", differing.len(), differing.join("\n"));
}

fn compare(place: &str, own: &Property, real: &Value, differing: &mut Vec<String>) {
    if real["alias"].is_string() {
        if own.alias.as_deref() != real["alias"].as_str() {
            differing.push(format!("{place} is an alias"));
        }
        return;
    }
    let inner = if real["type"] == "array" { &real["items"] } else { real };
    let kind = match (real["type"].as_str(), inner["type"].as_str()) {
        (Some("array"), Some("integer")) => Kind::Array(Scalar::Integer),
        (Some("array"), _) => Kind::Array(Scalar::String),
        (Some("integer"), _) => Kind::Integer,
        (Some("number"), _) => Kind::Number,
        (Some("boolean"), _) => Kind::Boolean,
        (Some("string") | None, _) => Kind::String,
        // The schema has a few types that are none.
        _ => Kind::Any,
    };
    let format = inner["format"].as_str().or_else(|| inner["format"]["$ref"].as_str());
    let options: Vec<&str> =
        inner["enum"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let pattern = inner["pattern"].as_str().map(normal_pattern);
    let length = |name: &str| inner[name].as_u64().and_then(|number| usize::try_from(number).ok());
    let checks = [
        ("type", own.kind == kind),
        ("optional", own.optional == real["optional"].as_bool().unwrap_or(false)),
        ("format", own.format.as_deref() == format),
        ("minimum", own.min == inner["minimum"].as_f64()),
        ("maximum", own.max == inner["maximum"].as_f64()),
        ("minLength", own.min_length == length("minLength")),
        ("maxLength", own.max_length == length("maxLength")),
        ("enum", own.options == options),
        ("pattern", own.pattern.as_ref().map(|pattern| pattern.text.clone()) == pattern),
        ("requires", own.requires.as_deref() == real["requires"].as_str()),
        (
            "default_key",
            own.main == real["default_key"].as_u64().is_some_and(|flag| flag == 1)
                || own.main == real["default_key"].as_bool().unwrap_or(false),
        ),
    ];
    differing.extend(checks.iter().filter(|(_, same)| !same).map(|(what, _)| format!("{place}: {what}")));
}

/// Patterns are written for this library: `{,8}` and `\0` are spelled out.
fn normal_pattern(text: &str) -> String {
    text.replace("{,", "{0,").replace("\\0", "\\x00")
}
