//! A resource's content, written once and shown twice: as YAML, and as the protobuf that typed clients decode.
//!
//! Facts: fields that are zero are left out of the protobuf; addresses and prefixes are small messages of their own.

use std::{collections::BTreeMap, net::IpAddr};

use ichor_talos_proto::Message;
use serde_json::Value as Json;

/// The content of a resource, or of a part of it: fields in the order of the YAML.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Spec(pub Vec<Field>);

/// A field: its key in YAML, its number in protobuf, and its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    key: &'static str,
    number: u32,
    value: Value,
    /// Whether YAML leaves it out while it is empty.
    optional: bool,
}

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Text.
    Text(String),
    /// A switch.
    Bool(bool),
    /// A number that is not negative.
    Number(u64),
    /// A word of a fixed set, with its number.
    Word(&'static str, u64),
    /// A list.
    List(Vec<Value>),
    /// A part with fields of its own.
    Part(Spec),
    /// An address.
    Address(IpAddr),
    /// An address with a prefix length.
    Prefix(IpAddr, u8),
    /// A MAC address.
    Mac(String),
    /// Texts by key.
    Dictionary(BTreeMap<String, String>),
    /// Anything.
    Free(Json),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<bool> for Value {
    fn from(switch: bool) -> Self {
        Self::Bool(switch)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<Spec> for Value {
    fn from(spec: Spec) -> Self {
        Self::Part(spec)
    }
}

impl<V: Into<Value>> From<Vec<V>> for Value {
    fn from(items: Vec<V>) -> Self {
        Self::List(items.into_iter().map(Into::into).collect())
    }
}

impl Spec {
    /// Adds a field.
    #[must_use]
    pub fn with(mut self, key: &'static str, number: u32, value: impl Into<Value>) -> Self {
        self.0.push(Field { key, number, value: value.into(), optional: false });
        self
    }

    /// Adds a field that YAML shows only when it holds something.
    #[must_use]
    pub fn maybe(mut self, key: &'static str, number: u32, value: impl Into<Value>) -> Self {
        self.0.push(Field { key, number, value: value.into(), optional: true });
        self
    }

    /// Returns the content as YAML.
    pub fn to_yaml(&self) -> String {
        let mut out = String::new();
        self.write_yaml(&mut out, 0);
        if out.is_empty() { "{}\n".to_owned() } else { out }
    }

    fn shown(&self) -> impl Iterator<Item = &Field> {
        self.0.iter().filter(|field| !field.optional || !field.value.is_zero())
    }

    fn write_yaml(&self, out: &mut String, indent: usize) {
        for field in self.shown() {
            out.push_str(&" ".repeat(indent));
            out.push_str(field.key);
            out.push(':');
            field.value.write_yaml(out, indent + 4);
        }
    }

    /// Returns the content as protobuf.
    pub fn to_proto(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for field in &self.0 {
            field.value.write_proto(field.number, &mut out);
        }
        out
    }
}

impl Value {
    fn is_zero(&self) -> bool {
        match self {
            Self::Text(text) | Self::Mac(text) => text.is_empty(),
            Self::Bool(switch) => !switch,
            Self::Number(number) | Self::Word(_, number) => *number == 0,
            Self::List(items) => items.is_empty(),
            Self::Part(spec) => spec.0.iter().all(|field| field.value.is_zero()),
            Self::Dictionary(map) => map.is_empty(),
            Self::Free(value) => value.as_object().is_none_or(serde_json::Map::is_empty),
            Self::Address(_) | Self::Prefix(..) => false,
        }
    }

    fn write_yaml(&self, out: &mut String, indent: usize) {
        match self {
            Self::List(items) if items.is_empty() => out.push_str(" []\n"),
            Self::List(items) => {
                out.push('\n');
                for item in items {
                    out.push_str(&" ".repeat(indent));
                    out.push('-');
                    item.write_item(out, indent);
                }
            }
            Self::Part(spec) if spec.shown().next().is_none() => out.push_str(" {}\n"),
            Self::Part(spec) => {
                out.push('\n');
                spec.write_yaml(out, indent);
            }
            Self::Dictionary(map) if map.is_empty() => out.push_str(" {}\n"),
            Self::Dictionary(map) => {
                out.push('\n');
                for (key, value) in map {
                    out.push_str(&format!("{}{}: {}\n", " ".repeat(indent), quoted(key), quoted(value)));
                }
            }
            scalar => out.push_str(&format!(" {}\n", scalar.scalar())),
        }
    }

    /// Writes an item of a list: the first line goes behind the dash.
    fn write_item(&self, out: &mut String, indent: usize) {
        match self {
            Self::Part(spec) => {
                let mut inner = String::new();
                spec.write_yaml(&mut inner, indent + 2);
                let inner = inner.trim_start_matches(' ');
                out.push(' ');
                out.push_str(if inner.is_empty() { "{}\n" } else { inner });
            }
            scalar => out.push_str(&format!(" {}\n", scalar.scalar())),
        }
    }

    fn scalar(&self) -> String {
        match self {
            Self::Text(text) | Self::Mac(text) => quoted(text),
            Self::Bool(switch) => switch.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Word(word, _) => quoted(word),
            Self::Address(address) => quoted(&address.to_string()),
            Self::Prefix(address, length) => format!("{address}/{length}"),
            // JSON is YAML in one line.
            Self::Free(value) => value.to_string(),
            Self::List(_) | Self::Part(_) | Self::Dictionary(_) => "{}".to_owned(),
        }
    }

    fn write_proto(&self, number: u32, out: &mut Vec<u8>) {
        if self.is_zero() {
            return;
        }
        match self {
            Self::Text(text) => put_bytes(number, text.as_bytes(), out),
            Self::Bool(switch) => put_number(number, u64::from(*switch), out),
            Self::Number(value) | Self::Word(_, value) => put_number(number, *value, out),
            Self::List(items) => {
                for item in items {
                    item.write_proto(number, out);
                }
            }
            Self::Part(spec) => put_bytes(number, &spec.to_proto(), out),
            Self::Address(address) => put_bytes(number, &address_message(*address, None), out),
            Self::Prefix(address, length) => {
                put_bytes(number, &address_message(*address, Some(*length)), out);
            }
            Self::Mac(mac) => {
                let bytes: Vec<u8> =
                    mac.split(':').filter_map(|part| u8::from_str_radix(part, 16).ok()).collect();
                put_bytes(number, &bytes, out);
            }
            Self::Dictionary(map) => {
                for (key, value) in map {
                    let entry = Spec::default().with("key", 1, key).with("value", 2, value);
                    put_bytes(number, &entry.to_proto(), out);
                }
            }
            Self::Free(value) => put_bytes(number, &structure(value).encode_to_vec(), out),
        }
    }
}

fn address_message(address: IpAddr, length: Option<u8>) -> Vec<u8> {
    let bytes = match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let mut message = Vec::new();
    put_bytes(1, &bytes, &mut message);
    if let Some(length) = length.filter(|length| *length > 0) {
        put_number(2, u64::from(length), &mut message);
    }
    message
}

fn put_number(field: u32, value: u64, out: &mut Vec<u8>) {
    prost::encoding::uint64::encode(field, &value, out);
}

fn put_bytes(field: u32, value: &[u8], out: &mut Vec<u8>) {
    prost::encoding::bytes::encode(field, &value.to_vec(), out);
}

/// Turns a JSON object into protobuf's own.
fn structure(value: &Json) -> ichor_talos_proto::Struct {
    let fields = value.as_object().into_iter().flatten();
    ichor_talos_proto::Struct { fields: fields.map(|(key, value)| (key.clone(), free(value))).collect() }
}

fn free(value: &Json) -> ichor_talos_proto::Value {
    use ichor_talos_proto::{ListValue, value::Kind};
    let kind = match value {
        Json::Null => Kind::NullValue(0),
        Json::Bool(switch) => Kind::BoolValue(*switch),
        Json::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or(0.0)),
        Json::String(text) => Kind::StringValue(text.clone()),
        Json::Array(items) => Kind::ListValue(ListValue { values: items.iter().map(free).collect() }),
        Json::Object(_) => Kind::StructValue(structure(value)),
    };
    ichor_talos_proto::Value { kind: Some(kind) }
}

/// Writes text plainly where that is safe, and in JSON's quotes otherwise.
pub fn quoted(text: &str) -> String {
    let begins = text.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '/');
    let plain =
        text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '(' | ')'))
            && !matches!(
                text.to_ascii_lowercase().as_str(),
                "y" | "n" | "yes" | "no" | "on" | "off" | "true" | "false" | "null"
            );
    if begins && plain { text.to_owned() } else { Json::String(text.to_owned()).to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_is_yaml_and_protobuf() {
        let address: IpAddr = "10.0.0.1".parse().expect("address");
        let spec = Spec::default()
            .with("stage", 1, Value::Word("shutting down", 6))
            .with("status", 2, Spec::default().with("ready", 1, false).with("unmet", 2, Vec::<String>::new()))
            .maybe("alias", 3, "")
            .with("addresses", 4, Value::List(vec![Value::Prefix(address, 24)]))
            .with("parts", 5, vec![Spec::default().with("a", 1, "on").with("b", 2, 3_u64)]);
        let yaml = "stage: \"shutting down\"\nstatus:\n    ready: false\n    unmet: []\naddresses:\n    - 10.0.0.1/24\n\
                    parts:\n    - a: \"on\"\n      b: 3\n";
        assert_eq!(spec.to_yaml(), yaml);
        let proto = [8, 6, 34, 8, 10, 4, 10, 0, 0, 1, 16, 24, 42, 6, 10, 2, b'o', b'n', 16, 3];
        assert_eq!(spec.to_proto(), proto);
    }
}
