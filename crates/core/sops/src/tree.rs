//! A file as a tree: maps in their order, comments in their places, values of the types that sops knows.

use std::fmt;

use zeroize::Zeroizing;

use crate::{Flaw, MAX_BYTES, emit, json, yaml};

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// YAML, of one document or several.
    Yaml,
    /// JSON; it has no comments.
    Json,
}

impl Format {
    /// Tells by a file's name, as sops does.
    pub fn of_name(name: &str) -> Self {
        let is_json =
            std::path::Path::new(name).extension().is_some_and(|it| it.eq_ignore_ascii_case("json"));
        if is_json { Self::Json } else { Self::Yaml }
    }
}

/// What a file says, in plain.
#[derive(Clone, PartialEq)]
pub struct Tree {
    pub(crate) documents: Vec<Map>,
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tree of {} documents", self.documents.len())
    }
}

/// A map, in the order of the file.
pub type Map = Vec<Entry>;

/// What stands in a map.
#[derive(Clone, PartialEq)]
#[cfg_attr(test, derive(Debug))]
pub enum Entry {
    Comment(Comment),
    Pair(String, Value),
}

/// What stands in a list.
#[derive(Clone, PartialEq)]
#[cfg_attr(test, derive(Debug))]
pub enum Item {
    Comment(Comment),
    Value(Value),
}

/// A value.
#[derive(Clone, PartialEq)]
#[cfg_attr(test, derive(Debug))]
pub enum Value {
    Null,
    Scalar(Scalar),
    List(Vec<Item>),
    Map(Map),
}

/// A comment: everything after the `#`.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(test, derive(Debug))]
pub struct Comment {
    pub text: Zeroizing<String>,
    /// Whether it stands behind the value that comes next in the tree.
    pub is_inline: bool,
}

impl Comment {
    /// Makes a comment of one line: what stands in a second one would be no comment any more.
    pub fn new(text: &str, is_inline: bool) -> Self {
        let text = Zeroizing::new(text.replace(|c: char| c != '\t' && c.is_control(), " "));
        Self { text, is_inline }
    }
}

/// A single value.
#[derive(Clone, PartialEq)]
#[cfg_attr(test, derive(Debug))]
pub enum Scalar {
    Text(Zeroizing<String>),
    Int(i64),
    Float(f64),
    Bool(bool),
    /// A time, in the one form that sops gives it.
    Time(String),
    /// What is no text.
    Bytes(Zeroizing<Vec<u8>>),
}

impl Scalar {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(Zeroizing::new(text.into()))
    }
}

impl Value {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Scalar(Scalar::text(text))
    }
}

/// Returns the value of a key.
pub fn get<'a>(map: &'a Map, key: &str) -> Option<&'a Value> {
    map.iter().find_map(|entry| match entry {
        Entry::Pair(other, value) if other == key => Some(value),
        _ => None,
    })
}

impl Tree {
    /// Reads plain text.
    pub fn parse(bytes: &[u8], format: Format) -> Result<Self, Flaw> {
        if bytes.len() > MAX_BYTES {
            return Err(Flaw::limit(format!("has {} bytes, and at most {MAX_BYTES} are read", bytes.len())));
        }
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let line = 1 + bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
            Flaw::syntax("is not UTF-8 text", line)
        })?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let documents = match format {
            Format::Yaml => yaml::parse(text)?,
            Format::Json => vec![json::parse(text)?],
        };
        Ok(Self { documents })
    }

    /// Writes plain text.
    pub fn to_text(&self, format: Format) -> Zeroizing<String> {
        Zeroizing::new(match format {
            Format::Yaml => emit::yaml(&self.documents),
            Format::Json => emit::json(self.documents.first().map_or(&[], Vec::as_slice)),
        })
    }

    /// Finds the text of a single value by the keys that lead to it. Lists are counted from 0.
    pub fn find(&self, keys: &[&str]) -> Option<Zeroizing<String>> {
        let (first, rest) = keys.split_first()?;
        let mut value = get(self.documents.first()?, first)?;
        for key in rest {
            value = match value {
                Value::Map(map) => get(map, key)?,
                Value::List(items) => {
                    let mut values = items.iter().filter_map(|item| match item {
                        Item::Value(value) => Some(value),
                        Item::Comment(_) => None,
                    });
                    values.nth(key.parse().ok()?)?
                }
                _ => return None,
            };
        }
        match value {
            Value::Scalar(scalar) => Some(emit::bare(scalar)),
            _ => None,
        }
    }
}
