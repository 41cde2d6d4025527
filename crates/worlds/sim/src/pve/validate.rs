//! Checking parameters against the description, with the texts of the real server.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::pve::{
    ApiError, Datacentre, Params, Release,
    describe::{self, Endpoint, Format, Kind, Property, Scalar},
    formats,
    params::as_text,
};

/// What is wrong, by path of the parameter.
type Errors = BTreeMap<String, String>;

/// Checks the parameters of a call, and brings lists into their one form.
pub fn check(endpoint: &Endpoint, dc: &Datacentre, params: &mut Params) -> Result<(), ApiError> {
    bring_into_form(endpoint, params);
    let mut errors = Errors::new();
    let kind = params.text("type");
    for (name, property) in endpoint.params.iter() {
        let other_kind = !property.kinds.is_empty() && kind.is_none();
        if name.ends_with("[n]") || other_kind || !applies(property, kind.as_deref(), dc.release) {
            continue;
        }
        check_property(name, property, params.get(name), dc, &mut errors);
    }
    let given: Vec<(String, Value)> =
        params.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    for (name, value) in &given {
        let property = described(&endpoint.params, name)
            .filter(|property| applies(property, kind.as_deref(), dc.release));
        let Some(property) = property else {
            if !endpoint.open {
                add(&mut errors, name, NOT_DEFINED);
            }
            continue;
        };
        if !endpoint.params.contains_key(name) {
            check_property(name, property, Some(value), dc, &mut errors);
        }
        if let Some(needed) = property.requires.as_ref().filter(|needed| !is_given(params, needed)) {
            add(&mut errors, needed, &format!("missing property required by '{name}'"));
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(ApiError::params(errors)) }
}

const NOT_DEFINED: &str =
    "property is not defined in schema and the schema does not allow additional properties";
const MISSING: &str = "property is missing and it is not optional";

fn is_given(params: &Params, name: &str) -> bool {
    params.get(name).is_some_and(|value| !value.is_null())
}

fn add(errors: &mut Errors, path: &str, text: &str) {
    errors
        .entry(path.to_owned())
        .and_modify(|known| *known = format!("{known}\\n{text}"))
        .or_insert_with(|| text.to_owned());
}

/// Returns whether a parameter is there in a release and for a value of `type`.
fn applies(property: &Property, kind: Option<&str>, release: Release) -> bool {
    property.since.is_none_or(|since| release.at_least(since.major, since.minor))
        && (property.kinds.is_empty()
            || kind.is_none_or(|kind| property.kinds.iter().any(|known| known == kind)))
}

/// How many of each numbered parameter there are.
const NUMBERED: [(&str, u32); 15] = [
    ("acmedomain", 6),
    ("hostpci", 16),
    ("ide", 4),
    ("ipconfig", 32),
    ("link", 8),
    ("net", 32),
    ("numa", 8),
    ("parallel", 3),
    ("sata", 6),
    ("scsi", 31),
    ("serial", 4),
    ("unused", 256),
    ("usb", 14),
    ("virtio", 16),
    ("virtiofs", 10),
];

/// Finds the description of a parameter, numbered ones included.
pub fn described<'a>(params: &'a BTreeMap<String, Property>, name: &str) -> Option<&'a Property> {
    if let Some(property) = params.get(name).filter(|_| !name.ends_with("[n]")) {
        return Some(property);
    }
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = &name[stem.len()..];
    let number: u32 = digits.parse().ok().filter(|_| digits == "0" || !digits.starts_with('0'))?;
    let (_, count) = NUMBERED.iter().find(|(known, _)| *known == stem)?;
    if number < *count { params.get(&format!("{stem}[n]")) } else { None }
}

/// Wraps a value that is given for a list, and joins a list that is given for a text with lists in it.
fn bring_into_form(endpoint: &Endpoint, params: &mut Params) {
    let names: Vec<String> = params.names().cloned().collect();
    for name in names {
        let Some(property) = described(&endpoint.params, &name) else { continue };
        match (property.kind, params.get(&name)) {
            (Kind::Array(_), Some(value)) if !value.is_array() && !value.is_null() => {
                let value = value.clone();
                params.set(&name, Value::Array(vec![value]));
            }
            (Kind::String, Some(Value::Array(values)))
                if property.format.as_ref().is_some_and(|format| format.ends_with("-list")) =>
            {
                let parts: Vec<String> = values.iter().filter_map(as_text).collect();
                params.set(&name, parts.join(","));
            }
            _ => {}
        }
    }
}

fn check_property(
    path: &str,
    property: &Property,
    value: Option<&Value>,
    dc: &Datacentre,
    errors: &mut Errors,
) {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        if !property.optional && property.alias.is_none() {
            add(errors, path, MISSING);
        }
        return;
    };
    if let Kind::Array(items) = property.kind {
        let Value::Array(values) = value else {
            add(errors, path, &format!("type check ('array') failed - got {}", told(value)));
            return;
        };
        let kind = if items == Scalar::Integer { Kind::Integer } else { Kind::String };
        for (place, value) in values.iter().enumerate() {
            let result = check_value(&format!("{path}[{place}]"), property, kind, value, dc);
            if let Err(text) = result {
                add(errors, &format!("{path}[{place}]"), &text);
            }
        }
        return;
    }
    if let Err(text) = check_value(path, property, property.kind, value, dc) {
        add(errors, path, &text);
    }
}

/// Says what a value is in the words of a failed type check.
fn told(value: &Value) -> String {
    match value {
        Value::Array(_) => "ARRAY".into(),
        Value::Object(_) => "HASH".into(),
        Value::Bool(_) => "JSON::PP::Boolean".into(),
        other => format!("'{}'", as_text(other).unwrap_or_default()),
    }
}

fn check_value(
    path: &str,
    property: &Property,
    kind: Kind,
    value: &Value,
    dc: &Datacentre,
) -> Result<(), String> {
    let name = match kind {
        Kind::Integer => "integer",
        Kind::Number => "number",
        Kind::Boolean => "boolean",
        Kind::String | Kind::Any | Kind::Array(_) => "string",
    };
    let refused = || Err(format!("type check ('{name}') failed - got {}", told(value)));
    let text = match value {
        Value::Bool(_) if kind != Kind::Boolean => return refused(),
        Value::Array(_) | Value::Object(_) if kind != Kind::Any => return refused(),
        other => as_text(other).unwrap_or_default(),
    };
    let fits = match kind {
        Kind::Integer => is_integer(&text),
        Kind::Number => is_number(&text),
        Kind::Boolean => text == "0" || text == "1",
        Kind::String | Kind::Any | Kind::Array(_) => true,
    };
    if !fits {
        return refused();
    }
    check_text(path, property, &text, dc)
}

fn check_text(path: &str, property: &Property, text: &str, dc: &Datacentre) -> Result<(), String> {
    if let Some(format) = &property.format {
        check_format(path, format, text, dc).map_err(|text| format!("invalid format - {text}"))?;
    }
    if property.pattern.as_ref().is_some_and(|pattern| !pattern.matches(text)) {
        return Err("value does not match the regex pattern".into());
    }
    let length = text.chars().count();
    if let Some(most) = property.max_length.filter(|most| length > *most) {
        return Err(format!("value may only be {most} characters long"));
    }
    if let Some(least) = property.min_length.filter(|least| length < *least) {
        return Err(format!("value must be at least {least} characters long"));
    }
    if is_number(text) {
        let number: f64 = text.trim_start_matches('+').parse().unwrap_or_default();
        if let Some(most) = property.max.filter(|most| number > *most) {
            return Err(format!("value must have a maximum value of {most}"));
        }
        if let Some(least) = property.min.filter(|least| number < *least) {
            return Err(format!("value must have a minimum value of {least}"));
        }
    }
    if !property.options.is_empty() && !property.options.iter().any(|option| option == text) {
        let options = property.options.join(", ");
        return Err(format!("value '{text}' does not have a value in the enumeration '{options}'"));
    }
    Ok(())
}

/// Returns whether a text is a whole number as Perl's checks see it.
pub fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns whether a text is a number as Perl's checks see it.
pub fn is_number(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (number, exponent) = match text.split_once(['e', 'E']) {
        Some((number, exponent)) => (number, Some(exponent)),
        None => (text, None),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    digits(whole) && digits(part) && !(whole.is_empty() && part.is_empty()) && exponent.is_none_or(is_integer)
}

/// Checks a value against a format: a property string, a list of scalars, or a scalar. The error ends with a line
/// break, as Perl's do.
pub fn check_format(path: &str, format: &str, text: &str, dc: &Datacentre) -> Result<(), String> {
    if let Some(keys) = describe::description().formats.get(format) {
        let found = property_string(path, keys, text, dc)?;
        return formats::check_whole(format, &found);
    }
    if let Some(scalar) = format.strip_suffix("-list") {
        return crate::pve::params::split_list(text)
            .iter()
            .try_for_each(|part| formats::check_scalar(scalar, part, dc));
    }
    if let Some(scalar) = format.strip_suffix("-opt") {
        return if matches!(text, "" | "0") { Ok(()) } else { formats::check_scalar(scalar, text, dc) };
    }
    formats::check_scalar(format, text, dc)
}

/// Takes a property string apart and checks its keys.
pub fn property_string(
    path: &str,
    keys: &Format,
    text: &str,
    dc: &Datacentre,
) -> Result<BTreeMap<String, String>, String> {
    let found = split_property_string(keys, text)?;
    let mut errors = Errors::new();
    for (key, property) in keys.iter().filter(|(_, property)| property.alias.is_none()) {
        let value = found.get(key).map(|text| Value::String(text.clone()));
        check_property(&format!("{path}.{key}"), property, value.as_ref(), dc, &mut errors);
    }
    for key in found.keys().filter(|key| !keys.contains_key(*key)) {
        add(&mut errors, &format!("{path}.{key}"), NOT_DEFINED);
    }
    for key in found.keys() {
        let needed = keys.get(key).and_then(|property| property.requires.as_ref());
        if let Some(needed) = needed.filter(|needed| !found.contains_key(*needed)) {
            add(
                &mut errors,
                &format!("{path}.{needed}"),
                &format!("missing property required by '{path}.{key}'"),
            );
        }
    }
    if errors.is_empty() {
        return Ok(found);
    }
    let lines: String = errors.iter().map(|(key, error)| format!("{key}: {error}\n")).collect();
    Err(format!("format error\n{lines}"))
}

/// Takes a property string apart: `key=value` pairs with commas, one key of which may be left out.
pub fn split_property_string(keys: &Format, text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut found = BTreeMap::new();
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        match part.split_once('=') {
            Some((key, value)) if !key.is_empty() && !value.is_empty() => {
                if found.contains_key(key) {
                    return Err(format!("duplicate key in comma-separated list property: {key}\n"));
                }
                let key = resolved(keys, key, &mut found)?;
                let value = match keys.get(&key).map(|property| property.kind) {
                    Some(Kind::Boolean) => boolean(value).unwrap_or(value),
                    _ => value,
                };
                found.insert(key, value.to_owned());
            }
            Some(_) => return Err("missing key in comma-separated list property\n".into()),
            None => {
                let Some((key, _)) = keys.iter().find(|(_, property)| property.main) else {
                    return Err("value without key, but schema does not define a default key\n".into());
                };
                if found.insert(key.clone(), part.to_owned()).is_some() {
                    return Err(format!("duplicate key in comma-separated list property: {key}\n"));
                }
            }
        }
    }
    Ok(found)
}

/// Follows an alias, and writes down the name that was used where the format wants it.
fn resolved(keys: &Format, key: &str, found: &mut BTreeMap<String, String>) -> Result<String, String> {
    let property = keys.get(key);
    let Some(alias) = property.and_then(|property| property.alias.as_ref()) else {
        return Ok(key.to_owned());
    };
    if let Some(named) = property.and_then(|property| property.key_alias.as_ref()) {
        if found.contains_key(named) {
            return Err(format!("key alias '{named}' is already defined\n"));
        }
        found.insert(named.clone(), key.to_owned());
    }
    if found.contains_key(alias) {
        return Err(format!("key '{alias}' is already defined (via alias)\n"));
    }
    Ok(alias.clone())
}

/// Reads a boolean of a property string.
pub fn boolean(text: &str) -> Option<&'static str> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "on" | "yes" | "true" => Some("1"),
        "0" | "off" | "no" | "false" => Some("0"),
        _ => None,
    }
}
