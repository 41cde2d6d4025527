//! Schemas of custom kinds: pruning, defaults and checks.

use serde_json::Value;

use super::{status::Flaw, value::list};

/// How deep schemas are followed.
const DEEPEST: usize = 64;

/// Removes fields that the schema does not know, and fills in its defaults.
pub fn prune(schema: &Value, object: &mut Value) {
    let Some(map) = object.as_object_mut() else { return };
    let keeps_all = schema["x-kubernetes-preserve-unknown-fields"] == true;
    let properties = schema.get("properties");
    map.retain(|key, _| {
        matches!(key.as_str(), "apiVersion" | "kind" | "metadata")
            || keeps_all
            || properties.is_some_and(|properties| properties.get(key).is_some())
    });
    let Some(properties) = properties.and_then(Value::as_object) else { return };
    for (key, inner) in properties {
        if matches!(key.as_str(), "apiVersion" | "kind" | "metadata") {
            continue;
        }
        if let Some(default) = inner.get("default")
            && !map.contains_key(key)
        {
            map.insert(key.clone(), default.clone());
        }
        if let Some(value) = map.get_mut(key) {
            prune_value(inner, value, 0);
        }
    }
}

fn prune_value(schema: &Value, value: &mut Value, depth: usize) {
    if depth > DEEPEST {
        return;
    }
    match value {
        Value::Array(items) => {
            if let Some(schema) = schema.get("items") {
                for item in items {
                    prune_value(schema, item, depth + 1);
                }
            }
        }
        Value::Object(map) => {
            if let Some(schema) = schema.get("additionalProperties").filter(|schema| schema.is_object()) {
                for value in map.values_mut() {
                    prune_value(schema, value, depth + 1);
                }
                return;
            }
            let keeps_all = schema["x-kubernetes-preserve-unknown-fields"] == true
                || schema["additionalProperties"] == true
                || schema["x-kubernetes-embedded-resource"] == true;
            let properties = schema.get("properties").and_then(Value::as_object);
            if !keeps_all {
                map.retain(|key, _| properties.is_some_and(|properties| properties.contains_key(key)));
            }
            for (key, inner) in properties.into_iter().flatten() {
                if let Some(default) = inner.get("default")
                    && !map.contains_key(key)
                {
                    map.insert(key.clone(), default.clone());
                }
                if let Some(value) = map.get_mut(key) {
                    prune_value(inner, value, depth + 1);
                }
            }
        }
        _ => {}
    }
}

/// Checks types, required fields, enumerations and bounds. Patterns and rules (CEL) are not checked here.
pub fn check(schema: &Value, object: &Value, flaws: &mut Vec<Flaw>) {
    check_value(schema, object, "", flaws, 0);
}

fn check_value(schema: &Value, value: &Value, field: &str, flaws: &mut Vec<Flaw>, depth: usize) {
    if depth > DEEPEST || matches!(field, "metadata" | "apiVersion" | "kind") {
        return;
    }
    if value.is_null() && schema["nullable"] == true {
        return;
    }
    let wanted = schema.get("type").and_then(Value::as_str).unwrap_or_default();
    let is = type_of(value);
    let either = schema["x-kubernetes-int-or-string"] == true && matches!(is, "integer" | "string");
    let fits = wanted.is_empty() || wanted == is || either || (wanted == "number" && is == "integer");
    if !fits {
        let body = format!("Invalid value: \"{is}\": {field} in body must be of type {wanted}: \"{is}\"");
        flaws.push(Flaw { reason: "FieldValueTypeInvalid", body, field: field.into() });
        return;
    }
    let allowed = list(schema, "/enum");
    if !allowed.is_empty() && !allowed.contains(value) {
        let words: Vec<&str> = allowed.iter().filter_map(Value::as_str).collect();
        flaws.push(Flaw::unsupported(field, value, &words));
    }
    bounds(schema, value, field, flaws);
    for key in list(schema, "/required").iter().filter_map(Value::as_str) {
        if value.is_object() && value.get(key).is_none() {
            flaws.push(Flaw::required(join(field, key), ""));
        }
    }
    if let (Some(properties), Some(map)) = (schema.get("properties"), value.as_object()) {
        for (key, inner) in map {
            if let Some(schema) = properties.get(key) {
                check_value(schema, inner, &join(field, key), flaws, depth + 1);
            }
        }
    }
    if let (Some(schema), Some(map)) =
        (schema.get("additionalProperties").filter(|s| s.is_object()), value.as_object())
    {
        for (key, inner) in map {
            check_value(schema, inner, &join(field, key), flaws, depth + 1);
        }
    }
    if let (Some(schema), Some(items)) = (schema.get("items"), value.as_array()) {
        for (at, item) in items.iter().enumerate() {
            check_value(schema, item, &format!("{field}[{at}]"), flaws, depth + 1);
        }
    }
}

fn bounds(schema: &Value, value: &Value, field: &str, flaws: &mut Vec<Flaw>) {
    let limit = |key: &str| schema.get(key).and_then(Value::as_f64);
    if let Some(number) = value.as_f64() {
        if let Some(least) = limit("minimum").filter(|least| number < *least) {
            let why = format!("{field} in body should be greater than or equal to {least}");
            flaws.push(Flaw::invalid(field, value, &why));
        }
        if let Some(most) = limit("maximum").filter(|most| number > *most) {
            let why = format!("{field} in body should be less than or equal to {most}");
            flaws.push(Flaw::invalid(field, value, &why));
        }
    }
}

fn join(field: &str, key: &str) -> String {
    if field.is_empty() { key.into() } else { format!("{field}.{key}") }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
