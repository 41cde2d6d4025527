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
#[derive(Clone, Default, PartialEq)]
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

/// Returns the value of a key, which is made where there is none.
fn at<'a>(map: &'a mut Map, key: &str, make: impl FnOnce() -> Value) -> &'a mut Value {
    let is_it = |entry: &Entry| matches!(entry, Entry::Pair(other, _) if other == key);
    let place = map.iter().position(is_it).unwrap_or_else(|| {
        map.push(Entry::Pair(key.to_owned(), make()));
        map.len() - 1
    });
    match &mut map[place] {
        Entry::Pair(_, value) => value,
        Entry::Comment(_) => unreachable!("a pair was found or made there"),
    }
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

    /// Writes a text under the keys that lead to it, and makes the maps on the way. Whether it could: what is no map
    /// is in the way, and left as it is.
    pub fn set(&mut self, keys: &[&str], text: Zeroizing<String>) -> bool {
        let Some((last, way)) = keys.split_last() else { return false };
        if self.documents.is_empty() {
            self.documents.push(Map::new());
        }
        let mut map = &mut self.documents[0];
        for key in way {
            match at(map, key, || Value::Map(Map::new())) {
                Value::Map(inner) => map = inner,
                _ => return false,
            }
        }
        let value = at(map, last, || Value::Null);
        let takes = matches!(value, Value::Null | Value::Scalar(_));
        if takes {
            *value = Value::Scalar(Scalar::Text(text));
        }
        takes
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_set_beside_the_others() {
        let mut tree = Tree::parse(b"a: 1\nlab:\n    other: x\n", Format::Yaml).expect("a tree");
        let set =
            |tree: &mut Tree, keys: &[&str], text: &str| tree.set(keys, Zeroizing::new(text.to_owned()));
        assert!(set(&mut tree, &["lab", "proxmox"], "one") && set(&mut tree, &["lab", "proxmox"], "two"));
        assert!(set(&mut tree, &["new", "deep", "key"], "three"));
        assert_eq!(tree.find(&["lab", "proxmox"]).as_deref().map(String::as_str), Some("two"));
        assert_eq!(tree.find(&["lab", "other"]).as_deref().map(String::as_str), Some("x"));
        assert_eq!(tree.find(&["new", "deep", "key"]).as_deref().map(String::as_str), Some("three"));
        assert!(
            !set(&mut tree, &["a", "b"], "no")
                && !set(&mut tree, &["lab"], "no")
                && !set(&mut tree, &[], "no")
        );
        assert_eq!(tree.find(&["a"]).as_deref().map(String::as_str), Some("1"));
    }
}
