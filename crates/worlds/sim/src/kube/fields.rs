//! Sets of fields, as managers own them (`FieldsV1`).

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::shape::{ListShape, Place};

/// A path to a field. Its steps are written as in `FieldsV1`: `f:name`, `k:{"name":"x"}`, `v:"x"`.
pub type Path = Vec<String>;

/// A set of fields.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet(pub BTreeSet<Path>);

impl FieldSet {
    /// Returns the fields that an applied configuration names.
    pub fn of(value: &Value, place: Place<'_>) -> Self {
        let mut set = Self::default();
        collect(value, place, &mut Vec::new(), &mut set.0);
        set
    }

    /// Reads a set as objects have it.
    pub fn from_json(value: &Value) -> Self {
        let mut set = Self::default();
        read(value, &mut Vec::new(), &mut set.0);
        set
    }

    /// Returns the set as objects have it.
    pub fn to_json(&self) -> Value {
        let mut root = Value::Object(Map::new());
        for path in &self.0 {
            mark(&mut root, path);
        }
        drop_lone_dots(&mut root);
        root
    }

    /// Keeps only what lies below a field of the object, or all but that.
    pub fn keep(&mut self, wanted: impl Fn(&Path) -> bool) {
        self.0.retain(wanted);
    }
}

/// Adds a path. A field that has fields of its own in the set is marked with a dot.
fn mark(at: &mut Value, path: &[String]) {
    let Some(map) = at.as_object_mut() else { return };
    match path.split_first() {
        Some((step, rest)) => mark(map.entry(step).or_insert_with(|| Value::Object(Map::new())), rest),
        None => {
            map.insert(".".into(), Value::Object(Map::new()));
        }
    }
}

fn drop_lone_dots(value: &mut Value) {
    let Some(map) = value.as_object_mut() else { return };
    if map.len() == 1 && map.contains_key(".") {
        map.clear();
        return;
    }
    map.values_mut().for_each(drop_lone_dots);
}

fn read(value: &Value, path: &mut Path, out: &mut BTreeSet<Path>) {
    let Some(map) = value.as_object() else { return };
    if map.is_empty() && !path.is_empty() {
        out.insert(path.clone());
    }
    for (step, inner) in map {
        if step == "." {
            out.insert(path.clone());
            continue;
        }
        path.push(step.clone());
        read(inner, path, out);
        path.pop();
    }
}

/// How deep objects are looked into; the API server refuses JSON nested deeper than this anyway.
const DEEPEST: usize = 128;

fn collect(value: &Value, place: Place<'_>, path: &mut Path, out: &mut BTreeSet<Path>) {
    if path.len() > DEEPEST {
        return;
    }
    match value {
        Value::Object(map) if !map.is_empty() && !place.is_atomic_map() => {
            for (key, inner) in map {
                path.push(format!("f:{key}"));
                collect(inner, place.child(key), path, out);
                path.pop();
            }
        }
        Value::Array(items) if !items.is_empty() && place.list() != ListShape::Atomic => {
            for item in items {
                path.push(item_step(item, &place.list()));
                out.insert(path.clone());
                if item.is_object() {
                    collect(item, place.item(), path, out);
                }
                path.pop();
            }
        }
        _ if path.is_empty() => {}
        _ => {
            out.insert(path.clone());
        }
    }
}

/// Returns the step to an item of a list that is a set or a map.
pub fn item_step(item: &Value, shape: &ListShape) -> String {
    let ListShape::Keyed(keys) = shape else { return format!("v:{item}") };
    let mut sorted = keys.clone();
    sorted.sort();
    let pairs = sorted.iter().filter_map(|key| {
        let value = item.get(key).cloned().or_else(|| (key == "protocol").then(|| "TCP".into()))?;
        Some((key.clone(), value))
    });
    format!("k:{}", Value::Object(pairs.collect()))
}

/// Returns the value of a field.
pub fn lookup<'v>(value: &'v Value, place: Place<'_>, path: &[String]) -> Option<&'v Value> {
    let Some((step, rest)) = path.split_first() else { return Some(value) };
    match step.strip_prefix("f:") {
        Some(key) => lookup(value.get(key)?, place.child(key), rest),
        None => {
            let shape = place.list();
            let item = value.as_array()?.iter().find(|item| item_step(item, &shape) == *step)?;
            lookup(item, place.item(), rest)
        }
    }
}

/// Removes a field.
pub fn erase(value: &mut Value, place: Place<'_>, path: &[String]) {
    let Some((step, rest)) = path.split_first() else { return };
    if let Some(key) = step.strip_prefix("f:") {
        let Some(map) = value.as_object_mut() else { return };
        if rest.is_empty() {
            map.shift_remove(key);
        } else if let Some(inner) = map.get_mut(key) {
            erase(inner, place.child(key), rest);
        }
        return;
    }
    let shape = place.list();
    let Some(items) = value.as_array_mut() else { return };
    let Some(at) = items.iter().position(|item| item_step(item, &shape) == *step) else { return };
    if rest.is_empty() {
        items.remove(at);
    } else {
        erase(&mut items[at], place.item(), rest);
    }
}

/// Returns a path as messages show it: `.spec.containers[name="web"].image`.
pub fn show(path: &[String]) -> String {
    let mut out = String::new();
    for step in path {
        if let Some(key) = step.strip_prefix("f:") {
            out.push_str(&format!(".{key}"));
        } else if let Some(keys) = step.strip_prefix("k:") {
            let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
            let pairs: Vec<String> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
            out.push_str(&format!("[{}]", pairs.join(",")));
        } else {
            out.push_str(&format!("[={}]", step.trim_start_matches("v:")));
        }
    }
    out
}

/// Merges a configuration over an object.
pub fn overlay(live: &mut Value, config: &Value, place: Place<'_>) {
    match (live, config) {
        (Value::Object(live), Value::Object(config)) if !place.is_atomic_map() => {
            for (key, value) in config {
                match live.get_mut(key) {
                    Some(old) => overlay(old, value, place.child(key)),
                    None => {
                        live.insert(key.clone(), value.clone());
                    }
                }
            }
        }
        (Value::Array(live), Value::Array(config)) if place.list() != ListShape::Atomic => {
            let shape = place.list();
            for item in config {
                let step = item_step(item, &shape);
                match live.iter_mut().find(|old| item_step(old, &shape) == step) {
                    Some(old) => overlay(old, item, place.item()),
                    None => live.push(item.clone()),
                }
            }
        }
        (live, config) => *live = config.clone(),
    }
}
