//! Text, switches and numbers, where YAML readers disagree.

use ichor_model::{Code, Finding, Problem};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::{
    read::{Read, Reader},
    yaml::{Kind, Node, show},
};

/// Words that YAML readers disagree about.
const AMBIGUOUS: [&str; 8] = ["y", "n", "yes", "no", "on", "off", "true", "false"];

pub(super) fn is_ambiguous(text: &str) -> bool {
    text.len() <= 5 && AMBIGUOUS.contains(&text.to_ascii_lowercase().as_str())
}

impl Read for String {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let text = clear_text(node, reader, "text")?;
        if text.is_empty() {
            reader.empty(node);
            return None;
        }
        Some(text.to_owned())
    }
}

/// Returns text, unless other YAML readers would take it for a switch.
pub(crate) fn clear_text<'n>(node: &'n Node, reader: &mut Reader, wanted: &str) -> Option<&'n str> {
    let (text, plain) = reader.scalar(node, wanted)?;
    if plain && is_ambiguous(text) {
        reader.findings.push(ambiguous(node, text, "is text here", "a switch"));
        return None;
    }
    Some(text)
}

/// Returns a name, unless other YAML readers would take it for a switch or a number.
pub(crate) fn clear_name<'n>(node: &'n Node, reader: &mut Reader, wanted: &str) -> Option<&'n str> {
    let text = clear_text(node, reader, wanted)?;
    let plain = matches!(node.kind, Kind::Scalar { plain: true, .. });
    if plain && is_number(text) {
        reader.findings.push(ambiguous(node, text, "is a name here", "a number"));
        return None;
    }
    Some(text)
}

/// Whether some YAML reader takes text that begins with a digit for a number: `12`, `1e3`, `0x1f`.
fn is_number(text: &str) -> bool {
    let based = ["0x", "0o", "0b"].iter().find_map(|prefix| text.strip_prefix(prefix));
    let based = based.is_some_and(|digits| u128::from_str_radix(digits, 16).is_ok());
    text.starts_with(|c: char| c.is_ascii_digit()) && (based || text.parse::<f64>().is_ok())
}

pub(super) fn ambiguous(node: &Node, text: &str, wanted: &str, taken_for: &str) -> Finding {
    Finding::error(
        Code::AMBIGUOUS_TEXT,
        node.span,
        format!("`{text}` {wanted}, but {taken_for} to some YAML readers"),
    )
    .remedy(format!("write \"{text}\" with quotes"))
}

impl Read for bool {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let (text, plain) = reader.scalar(node, "`true` or `false`")?;
        match text {
            "true" if plain => return Some(true),
            "false" if plain => return Some(false),
            _ => {}
        }
        let quoted = !plain && matches!(text, "true" | "false");
        let remedy = match text.to_ascii_lowercase().as_str() {
            "true" | "false" if quoted => format!("write `{text}` without quotes"),
            "yes" | "y" | "on" | "1" | "true" => "write `true`".into(),
            "no" | "n" | "off" | "0" | "false" => "write `false`".into(),
            _ => "write `true` or `false`".into(),
        };
        let message = if quoted {
            format!("\"{text}\" in quotes is text, not a switch")
        } else {
            format!("`{}` is neither true nor false", show(text))
        };
        reader.findings.push(Finding::error(Code::BAD_BOOLEAN, node.span, message).remedy(remedy));
        None
    }
}

/// A whole number between two bounds, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Int<const LOW: u32, const HIGH: u32>(pub u32);

impl<const LOW: u32, const HIGH: u32> Read for Int<LOW, HIGH> {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let wanted = format!("a whole number from {LOW} to {HIGH}");
        let (text, _) = reader.scalar(node, &wanted)?;
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if digits && text.len() > 1 && text.starts_with('0') {
            let bare = text.trim_start_matches('0');
            let bare = if bare.is_empty() { "0" } else { bare };
            let message = "starts with a zero, which other YAML readers take for an octal number";
            reader.problem(
                Code::BAD_NUMBER,
                node.span,
                text,
                Problem::new(message, format!("write `{}`", show(bare))),
            );
            return None;
        }
        let number = digits.then(|| text.parse().ok()).flatten();
        if let Some(number) = number.filter(|number| (LOW..=HIGH).contains(number)) {
            return Some(Self(number));
        }
        let message =
            if digits { format!("is not from {LOW} to {HIGH}") } else { "is not a whole number".to_owned() };
        reader.problem(Code::BAD_NUMBER, node.span, text, Problem::new(message, format!("write {wanted}")));
        None
    }
}

impl<const LOW: u32, const HIGH: u32> JsonSchema for Int<LOW, HIGH> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("Int_{LOW}_{HIGH}").into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": LOW, "maximum": HIGH })
    }
}

/// How many times over a resource may be given out.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Factor(pub f64);

impl Read for Factor {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let (text, _) = reader.scalar(node, "a factor from 0.1 to 100, as in `2.0`")?;
        let plain = text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let factor = plain.then(|| text.parse::<f64>().ok()).flatten().filter(|f| (0.1..=100.0).contains(f));
        if factor.is_none() {
            let problem = Problem::new("is not a factor", "write a number from 0.1 to 100, as in `2.0`");
            reader.problem(Code::BAD_NUMBER, node.span, text, problem);
        }
        factor.map(Self)
    }
}

impl JsonSchema for Factor {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Factor".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "number", "minimum": 0.1, "maximum": 100 })
    }
}
