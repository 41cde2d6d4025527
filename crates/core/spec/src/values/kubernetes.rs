//! Labels and taints.

use std::str::FromStr;

use ichor_model::{MachineName, Problem};

/// A key of a Kubernetes label, annotation or taint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelKey(pub String);

impl FromStr for LabelKey {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let (prefix, name) = text.split_once('/').map_or((None, text), |(prefix, name)| (Some(prefix), name));
        let prefix_ok = prefix.is_none_or(|prefix| {
            !prefix.is_empty()
                && prefix.len() <= 253
                && prefix.split('.').all(|label| label.parse::<MachineName>().is_ok())
        });
        if prefix_ok && !name.is_empty() && is_label_text(name) {
            return Ok(Self(text.into()));
        }
        Err(Problem::new(
            "is not a key for labels, annotations or taints",
            "write `name` or `example.com/name`, the name of at most 63 characters",
        ))
    }
}

fn is_label_text(text: &str) -> bool {
    let ends_ok = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        && ends_ok(text.chars().next())
        && ends_ok(text.chars().last())
}

/// A value of a Kubernetes label; it may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelValue(pub String);

impl FromStr for LabelValue {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        if is_label_text(text) {
            return Ok(Self(text.into()));
        }
        Err(Problem::new("is not a label value", "use at most 63 letters, digits, `-`, `_` and `.`"))
    }
}

/// A taint without its key: `NoSchedule` or `value:NoSchedule`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint(pub String);

impl FromStr for Taint {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let (value, effect) = text.rsplit_once(':').unwrap_or(("", text));
        if is_label_text(value) && ["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
            return Ok(Self(text.into()));
        }
        Err(Problem::new(
            "is not a taint",
            "write `NoSchedule`, `PreferNoSchedule` or `NoExecute`, or `value:NoSchedule`",
        ))
    }
}
