//! Values that others give their meaning: add-on releases, and any YAML at all.

use ichor_model::{Code, Problem};
use schemars::JsonSchema;
use serde_json::Value;

use super::scalars::{ambiguous, is_ambiguous};
use crate::{
    read::{Read, Reader},
    yaml::{Kind, Node},
};

/// Text that may be anything, also empty or a word such as `true`: values of settings that the
/// program behind them reads as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LooseText(pub String);

impl Read for LooseText {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        reader.scalar(node, "text").map(|(text, _)| Self(text.to_owned()))
    }
}

/// The release of an add-on, as its makers write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release(pub String);

impl Read for Release {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        String::read(node, reader).map(Self)
    }
}

/// Any YAML, handed on as it is to Talos, Kubernetes or Helm.
#[derive(Debug, Clone, PartialEq, JsonSchema)]
pub struct Any(pub Value);

impl Read for Any {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        any_value(node, reader).map(Self)
    }
}

fn any_value(node: &Node, reader: &mut Reader) -> Option<Value> {
    match &node.kind {
        Kind::Null => Some(Value::Null),
        Kind::Scalar { text, plain: false } => Some(Value::String(text.clone())),
        Kind::Scalar { text, plain: true } => plain_value(node, text, reader),
        Kind::List(items) => {
            let values: Vec<_> = items.iter().map(|item| any_value(item, reader)).collect();
            values.into_iter().collect::<Option<_>>().map(Value::Array)
        }
        Kind::Map(entries) => {
            let values: Vec<_> =
                entries.iter().map(|(key, value)| (key.text.clone(), any_value(value, reader))).collect();
            values
                .into_iter()
                .map(|(key, value)| value.map(|value| (key, value)))
                .collect::<Option<_>>()
                .map(Value::Object)
        }
    }
}

/// Gives unquoted text the meaning that both YAML 1.1 (Kubernetes, Talos) and 1.2 readers give it,
/// and refuses what they disagree about.
fn plain_value(node: &Node, text: &str, reader: &mut Reader) -> Option<Value> {
    match text {
        "true" => return Some(Value::Bool(true)),
        "false" => return Some(Value::Bool(false)),
        _ => {}
    }
    if is_ambiguous(text) {
        reader.findings.push(ambiguous(node, text, "is text to YAML 1.2", "a switch"));
        return None;
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit() || b == b'_')
    {
        let problem = Problem::new(
            "is a decimal number to some readers and an octal one to others",
            format!("quote it, \"{text}\", or drop the zeros"),
        );
        reader.problem(Code::BAD_NUMBER, node.span, text, problem);
        return None;
    }
    let numeric = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if numeric && !text.starts_with('+') {
        if let Ok(number) = text.parse::<i64>() {
            return Some(number.into());
        }
        let float = text.parse::<f64>().ok().filter(|_| digits.starts_with(|c: char| c.is_ascii_digit()));
        if let Some(number) = float.and_then(serde_json::Number::from_f64) {
            return Some(Value::Number(number));
        }
    }
    Some(Value::String(text.to_owned()))
}
