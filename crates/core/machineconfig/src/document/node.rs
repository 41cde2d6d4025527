//! The value tree of a document: what its fields hold after they have been asked what they are.

use std::fmt;

use ichor_model::Span;

/// A value and the place where it was written, if it was written anywhere.
///
/// Places survive merging, so that a finding about a machine's config can point at the line of
/// the patch that caused it. They do not count when nodes are compared.
#[derive(Clone)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Its place.
    pub at: Option<Span>,
}

/// A value.
#[derive(Clone, PartialEq)]
pub enum Value {
    /// Nothing, which only free-form values can hold.
    Null,
    /// A switch.
    Bool(bool),
    /// A whole number.
    Int(i128),
    /// File permissions, written in octal.
    Octal(u32),
    /// Any other number.
    Float(f64),
    /// Text, and everything that is written as text: addresses, durations, sizes.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A map.
    Map(Map),
}

/// A map in the order in which it was read or merged, which does not count when maps are compared.
#[derive(Clone, Default)]
pub struct Map(Vec<(Key, Node)>);

/// A key and its place.
#[derive(Clone)]
pub struct Key {
    /// The text.
    pub text: String,
    /// Whether it stood without quotes.
    pub(crate) plain: bool,
    /// Its place.
    pub at: Option<Span>,
}

impl PartialEq for Node {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl PartialEq for Map {
    fn eq(&self, other: &Self) -> bool {
        let sorted = |map: &'_ Self| -> Vec<usize> {
            let mut order: Vec<usize> = (0..map.0.len()).collect();
            order.sort_by(|a, b| map.0[*a].0.text.cmp(&map.0[*b].0.text));
            order
        };
        self.0.len() == other.0.len()
            && sorted(self).into_iter().zip(sorted(other)).all(|(a, b)| self.0[a] == other.0[b])
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl From<&str> for Key {
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), plain: false, at: None }
    }
}

impl From<Value> for Node {
    fn from(value: Value) -> Self {
        Self { value, at: None }
    }
}

/// Configs hold keys and tokens, so only the shape of a value is ever shown.
impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Value::List(items) => f.debug_list().entries(items).finish(),
            Value::Map(map) => f.debug_map().entries(map.iter().map(|(k, v)| (&k.text, v))).finish(),
            other => f.write_str(other.word()),
        }
    }
}

impl Node {
    /// Makes text without a place.
    pub fn text(text: impl Into<String>) -> Self {
        Value::Text(text.into()).into()
    }

    /// Returns the value of a key, if this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.as_map()?.get(key)
    }

    /// Follows a dotted path through maps.
    pub fn at_path(&self, path: &str) -> Option<&Self> {
        path.split('.').try_fold(self, |node, key| node.get(key))
    }

    /// Returns the map that this is.
    pub fn as_map(&self) -> Option<&Map> {
        match &self.value {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// Returns the list that this is.
    pub fn as_list(&self) -> Option<&[Self]> {
        match &self.value {
            Value::List(items) => Some(items),
            _ => None,
        }
    }

    /// Returns the text that this is.
    pub fn as_text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the switch that this is.
    pub fn as_bool(&self) -> Option<bool> {
        match self.value {
            Value::Bool(switch) => Some(switch),
            _ => None,
        }
    }

    /// Returns the whole number that this is.
    pub fn as_int(&self) -> Option<i128> {
        match self.value {
            Value::Int(int) => Some(int),
            Value::Octal(mode) => Some(mode.into()),
            _ => None,
        }
    }
}

impl Value {
    /// Says what kind of value this is, for messages.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a switch",
            Self::Int(_) | Self::Octal(_) | Self::Float(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

impl Map {
    /// Returns an empty map.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns how many entries there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Key, &Node)> {
        self.0.iter().map(|(key, node)| (key, node))
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.0.iter().find(|(k, _)| k.text == key).map(|(_, node)| node)
    }

    /// Returns the value of a key, to be changed.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        self.0.iter_mut().find(|(k, _)| k.text == key).map(|(_, node)| node)
    }

    /// Sets the value of a key, in its place or at the end.
    pub fn insert(&mut self, key: Key, node: Node) {
        match self.get_mut(&key.text) {
            Some(old) => *old = node,
            None => self.0.push((key, node)),
        }
    }

    /// Adds an entry whose key is known to be new.
    pub(crate) fn push(&mut self, key: Key, node: Node) {
        self.0.push((key, node));
    }

    /// Takes a key out.
    pub fn remove(&mut self, key: &str) -> Option<Node> {
        let at = self.0.iter().position(|(k, _)| k.text == key)?;
        Some(self.0.remove(at).1)
    }

    /// Returns the entries, to be changed where they are.
    pub(crate) fn entries_mut(&mut self) -> &mut Vec<(Key, Node)> {
        &mut self.0
    }

    /// Returns the entries.
    pub(crate) fn into_entries(self) -> Vec<(Key, Node)> {
        self.0
    }
}

impl FromIterator<(Key, Node)> for Map {
    fn from_iter<I: IntoIterator<Item = (Key, Node)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}
