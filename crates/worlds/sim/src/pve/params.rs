//! Parameters of a call.

use std::collections::BTreeMap;

use ichor_model::VmId;
use serde_json::Value;

/// The parameters of a call, from path, query and body.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Params {
    values: BTreeMap<String, Value>,
}

impl Params {
    /// Returns a value as it was sent: forms give strings and lists of them, JSON gives anything.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    /// Returns whether a parameter was given, be it null.
    pub fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Sets a value.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.values.insert(name.to_owned(), value.into());
    }

    /// Takes a value away.
    pub fn remove(&mut self, name: &str) -> Option<Value> {
        self.values.remove(name)
    }

    /// Returns a value as text, the way Perl would print it.
    pub fn text(&self, name: &str) -> Option<String> {
        self.values.get(name).and_then(as_text)
    }

    /// Returns a value as text that is empty when it was not given.
    pub fn text_or_empty(&self, name: &str) -> String {
        self.text(name).unwrap_or_default()
    }

    /// Returns a value that is a text.
    pub fn str(&self, name: &str) -> Option<&str> {
        self.values.get(name).and_then(Value::as_str)
    }

    /// Returns a boolean; absent is false.
    pub fn flag(&self, name: &str) -> bool {
        self.flag_or(name, false)
    }

    /// Returns a boolean, or what it is when it was not given.
    pub fn flag_or(&self, name: &str, default: bool) -> bool {
        self.text(name).map_or(default, |text| !matches!(text.as_str(), "" | "0"))
    }

    /// Returns an integer.
    pub fn integer(&self, name: &str) -> Option<i64> {
        self.text(name)?.trim_start_matches('+').parse().ok()
    }

    /// Returns a number.
    pub fn number(&self, name: &str) -> Option<f64> {
        self.text(name)?.parse().ok()
    }

    /// Returns a VMID.
    pub fn vmid(&self, name: &str) -> Option<VmId> {
        self.text(name)?.parse().ok()
    }

    /// Returns the VMID of the path, which was checked before.
    pub fn path_vmid(&self) -> VmId {
        self.vmid("vmid").or_else(|| "100".parse().ok()).expect("100 is a VMID")
    }

    /// Returns the host of the path; empty where there is none.
    pub fn host(&self) -> String {
        self.text_or_empty("node")
    }

    /// Returns the parts of a list, split as Proxmox splits lists.
    pub fn list(&self, name: &str) -> Vec<String> {
        match self.values.get(name) {
            Some(Value::Array(values)) => values.iter().filter_map(as_text).collect(),
            _ => split_list(&self.text_or_empty(name)),
        }
    }

    /// Returns names and values in order.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.values.iter()
    }

    /// Returns the names in order.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.values.keys()
    }
}

impl FromIterator<(String, Value)> for Params {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(values: I) -> Self {
        Self { values: values.into_iter().collect() }
    }
}

/// Writes a value the way Perl prints it; null and structures have no text.
pub fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(flag) => Some(if *flag { "1" } else { "0" }.into()),
        Value::Number(number) => Some(number_text(number)),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn number_text(number: &serde_json::Number) -> String {
    if number.is_f64() {
        let float = number.as_f64().unwrap_or_default();
        if float.fract() == 0.0 && float.abs() < 1e15 { format!("{float:.0}") } else { format!("{float}") }
    } else {
        number.to_string()
    }
}

/// Splits a list on commas, semicolons, NUL and white space; empty parts are skipped.
pub fn split_list(text: &str) -> Vec<String> {
    text.split(|c: char| matches!(c, ',' | ';' | '\0') || c.is_whitespace())
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}
