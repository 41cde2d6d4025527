//! From a tree to types, without stopping at the first mistake.
//!
//! A type that can be read implements [`Read`]. Records, which are maps with known keys, are made
//! by `record!`: each field is optional and keeps its place, unknown keys become findings, and a
//! record can be laid over another one, field by field. What could not be read is remembered as
//! [`Unread`], so that nobody reports it as missing too.

use std::{collections::BTreeMap, str::FromStr};

use ichor_model::{At, Code, Finding, Findings, Problem, SourceId, Span};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use crate::{
    suggest::nearest,
    yaml::{Key, Kind, Node, names_a_secret, printable, show},
};

/// Collects findings while a tree is read.
#[derive(Debug, Default)]
pub struct Reader {
    /// What was found so far.
    pub findings: Findings,
    /// The way to the value that is being read.
    path: Vec<Step>,
    /// Whether the value of the current key lost one of its items.
    lost: bool,
    /// Where files lie whose directory is not that of the inventory, relative to it.
    bases: BTreeMap<SourceId, String>,
}

/// A step on the way to a value.
#[derive(Debug)]
enum Step {
    /// Into the value of a key.
    Key(Box<str>),
    /// Into an item of a list.
    Item,
}

/// Keys of a record that were written and could not be read, or lost some of their items. They are
/// not missing, and what is wrong with them has been reported.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Unread(Vec<&'static str>);

impl Unread {
    /// Makes the mark of these keys.
    pub fn of(keys: &[&'static str]) -> Self {
        Self(keys.to_vec())
    }

    /// Whether a key is among them.
    pub fn has(&self, key: &str) -> bool {
        self.0.contains(&key)
    }

    /// Adds a key.
    pub fn add(&mut self, key: &'static str) {
        if !self.has(key) {
            self.0.push(key);
        }
    }

    /// Leaves out some keys.
    #[must_use]
    pub fn without(mut self, keys: &[&str]) -> Self {
        self.0.retain(|key| !keys.contains(key));
        self
    }
}

/// A type that can be read from a tree.
pub trait Read: Sized {
    /// Whether nothing at all can be read, as a record of which nothing is said.
    const TAKES_NOTHING: bool = false;

    /// Reads the value, or reports why it cannot be read.
    fn read(node: &Node, reader: &mut Reader) -> Option<Self>;

    /// Lays this value over another one. A plain value hides the one below; records and maps join.
    #[must_use]
    fn over(self, _below: Self) -> Self {
        self
    }
}

/// Lays one optional value over another.
pub fn over<T: Read>(above: Option<At<T>>, below: Option<At<T>>) -> Option<At<T>> {
    match (above, below) {
        (Some(above), Some(below)) => Some(At::new(above.value.over(below.value), above.span)),
        (above, below) => above.or(below),
    }
}

impl Reader {
    /// Makes a reader of files of which some lie elsewhere: by each, the way from the inventory's
    /// directory to its own.
    pub fn with_bases(bases: BTreeMap<SourceId, String>) -> Self {
        Self { bases, ..Self::default() }
    }

    /// Makes a path relative to the inventory, wherever the file lies that names it.
    pub fn rebase(&self, path: &str, at: Span) -> String {
        match self.bases.get(&at.source) {
            Some(base) if !path.starts_with('/') => format!("{base}/{path}"),
            _ => path.to_owned(),
        }
    }

    /// Names the value that is being read.
    pub fn subject(&self) -> String {
        match self.path.last() {
            None => "the inventory".into(),
            Some(Step::Key(_)) => self.key_path(),
            Some(Step::Item) => format!("an item of {}", self.key_path()),
        }
    }

    /// Names the keys on the way to the value that is being read.
    fn key_path(&self) -> String {
        let keys = self.path.iter().filter_map(|step| match step {
            Step::Key(key) => Some(show(key)),
            Step::Item => None,
        });
        let keys: Vec<String> = keys.collect();
        if keys.is_empty() { "the inventory".into() } else { format!("`{}`", keys.join(".")) }
    }

    fn step<T>(&mut self, step: Step, read: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(step);
        let value = read(self);
        self.path.pop();
        value
    }

    /// Reads the value of a key, and tells whether it was read whole.
    fn value<T: Read>(&mut self, key: &str, node: &Node) -> (Option<T>, bool) {
        let outer = std::mem::replace(&mut self.lost, false);
        let value = self.step(Step::Key(key.into()), |reader| T::read(node, reader));
        let lost = std::mem::replace(&mut self.lost, outer);
        let whole = value.is_some() && !lost;
        (value, whole)
    }

    /// Reads an item of a list; the list is no longer whole if it cannot be read.
    pub fn item<T: Read>(&mut self, node: &Node) -> Option<At<T>> {
        let value = self.step(Step::Item, |reader| T::read(node, reader));
        self.lost |= value.is_none();
        value.map(|value| At::new(value, node.span))
    }

    /// Reports a value of the wrong kind.
    pub fn wrong_kind(&mut self, node: &Node, wanted: &str) {
        let message = format!("{} is {}", self.subject(), node.kind_word());
        self.findings
            .push(Finding::error(Code::WRONG_TYPE, node.span, message).remedy(format!("write {wanted}")));
    }

    /// Reports a value that is there and holds nothing.
    pub fn empty(&mut self, node: &Node) {
        let message = format!("{} is empty", self.subject());
        let finding = Finding::error(Code::EMPTY_VALUE, node.span, message);
        self.findings.push(finding.remedy("write something, or remove the key"));
    }

    /// Reports text that is not what it should be.
    pub fn problem(&mut self, code: Code, span: Span, text: &str, problem: Problem) {
        let Problem { message, remedy } = problem;
        let message = format!("`{}` {}", show(text), printable(&message));
        self.findings.push(Finding::error(code, span, message).remedy(printable(&remedy)));
    }

    /// Returns the text of a single value.
    pub fn scalar<'n>(&mut self, node: &'n Node, wanted: &str) -> Option<(&'n str, bool)> {
        match &node.kind {
            Kind::Scalar { text, plain } => Some((text, *plain)),
            _ => {
                self.wrong_kind(node, wanted);
                None
            }
        }
    }

    /// Reads a value by its `FromStr`.
    pub fn parse<T: FromStr<Err = Problem>>(&mut self, node: &Node, code: Code, wanted: &str) -> Option<T> {
        let (text, _) = self.scalar(node, wanted)?;
        match text.parse() {
            Ok(value) => Some(value),
            Err(problem) => {
                self.problem(code, node.span, text, problem);
                None
            }
        }
    }

    /// Reads one of several words.
    pub fn choice<T: Copy>(&mut self, node: &Node, choices: &[(&'static str, T)]) -> Option<T> {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let list = words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
        let (text, _) = self.scalar(node, &format!("one of {list}"))?;
        if let Some((_, value)) = choices.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        let remedy = nearest(text, &words).map_or_else(
            || format!("write one of {list}"),
            |word| format!("did you mean `{word}`? ({list})"),
        );
        let message = format!("`{}` is not a choice for {}", show(text), self.key_path());
        self.findings.push(Finding::error(Code::BAD_CHOICE, node.span, message).remedy(remedy));
        None
    }

    /// Opens a map whose keys are known, and reports the others.
    pub fn fields<'n>(&mut self, node: &'n Node, known: &[&'static str]) -> Option<Fields<'n>> {
        let entries = match &node.kind {
            Kind::Map(entries) => entries,
            Kind::Null => return Some(Fields { entries: &[], unread: Unread::default() }),
            _ => {
                self.wrong_kind(
                    node,
                    &format!("a map with keys such as `{}`", known[..known.len().min(3)].join("`, `")),
                );
                return None;
            }
        };
        let is_known = |key: &Key| known.contains(&key.text.as_str());
        let written: Vec<&str> =
            entries.iter().filter(|(key, _)| is_known(key)).map(|(key, _)| key.text.as_str()).collect();
        let mut unread = Unread::default();
        for (key, _) in entries.iter().filter(|(key, _)| !is_known(key)) {
            let meant = nearest(&key.text, known);
            self.unknown_key(key, known, meant);
            if let Some(meant) = meant.filter(|meant| !written.contains(meant)) {
                unread.add(meant);
            }
        }
        Some(Fields { entries, unread })
    }

    fn unknown_key(&mut self, key: &Key, known: &[&str], meant: Option<&str>) {
        let remedy = match meant {
            Some(word) => format!("did you mean `{word}`?"),
            None => match crate::schema::home_of(&key.text) {
                Some(home) => format!("`{}` is a key of `{home}`", key.text),
                None => format!("its keys are {}", list(known)),
            },
        };
        let message = format!("`{}` is not a key of {}", show(&key.text), self.key_path());
        let finding = Finding::error(Code::UNKNOWN_KEY, key.span, message).remedy(remedy);
        self.findings.push(if names_a_secret(&key.text) { finding.private() } else { finding });
    }
}

fn list(words: &[&str]) -> String {
    words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// The entries of a map whose keys are known.
#[derive(Debug, Clone)]
pub struct Fields<'n> {
    entries: &'n [(Key, Node)],
    /// Keys that were misspelt, and from now on those that could not be read.
    pub unread: Unread,
}

impl<'n> Fields<'n> {
    /// Returns the value of a key as it stands in the tree; nothing at all counts as absent.
    pub fn node(&self, key: &str) -> Option<&'n Node> {
        let (_, node) = self.entries.iter().find(|(k, _)| k.text == key)?;
        (node.kind != Kind::Null).then_some(node)
    }

    /// Reads the value of a key with its place.
    pub fn take<T: Read>(&mut self, reader: &mut Reader, key: &'static str) -> Option<At<T>> {
        let node = self.node(key)?;
        let (value, whole) = reader.value(key, node);
        if !whole {
            self.unread.add(key);
        }
        value.map(|value| At::new(value, node.span))
    }
}

/// Defines a record: a map with known keys, every one of them optional.
macro_rules! record {
    ($(#[$meta:meta])* $name:ident { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq, schemars::JsonSchema)]
        #[schemars(deny_unknown_fields)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: Option<ichor_model::At<$type>>,)*
            /// What was written and could not be read.
            #[schemars(skip)]
            pub unread: $crate::read::Unread,
        }

        impl $name {
            /// The keys of this record.
            pub const KEYS: &'static [&'static str] = &[$(stringify!($field)),*];

            /// Reads the record from a map that has been opened.
            pub fn from_fields(
                mut fields: $crate::read::Fields<'_>,
                reader: &mut $crate::read::Reader,
            ) -> Self {
                Self { $($field: fields.take(reader, stringify!($field)),)* unread: fields.unread }
            }

            /// Returns a record of which nothing could be read.
            pub fn illegible() -> Self {
                Self { unread: $crate::read::Unread::of(Self::KEYS), ..Self::default() }
            }
        }

        impl $crate::read::Read for $name {
            const TAKES_NOTHING: bool = true;

            fn read(node: &$crate::yaml::Node, reader: &mut $crate::read::Reader) -> Option<Self> {
                reader.fields(node, Self::KEYS).map(|fields| Self::from_fields(fields, reader))
            }

            fn over(self, below: Self) -> Self {
                let mut unread = self.unread;
                $(if self.$field.is_none() && below.unread.has(stringify!($field)) {
                    unread.add(stringify!($field));
                })*
                Self { $($field: $crate::read::over(self.$field, below.$field),)* unread }
            }
        }
    };
}
pub(crate) use record;

/// Implements [`Read`] for a type by its `FromStr`.
macro_rules! parsed {
    ($($type:ty, $code:ident, $wanted:literal;)*) => {
        $(impl $crate::read::Read for $type {
            fn read(node: &$crate::yaml::Node, reader: &mut $crate::read::Reader) -> Option<Self> {
                reader.parse(node, ichor_model::Code::$code, $wanted)
            }
        })*
    };
}
pub(crate) use parsed;

/// Implements [`Read`] for text by its `FromStr`, unless `$clear` finds that other YAML readers would
/// take it for something else.
macro_rules! formed {
    ($($type:ty, $clear:ident, $code:ident, $wanted:literal;)*) => {
        $(impl $crate::read::Read for $type {
            fn read(node: &$crate::yaml::Node, reader: &mut $crate::read::Reader) -> Option<Self> {
                $crate::values::$clear(node, reader, $wanted)?;
                reader.parse(node, ichor_model::Code::$code, $wanted)
            }
        })*
    };
}
pub(crate) use formed;

/// Implements [`Read`] for an enum by its words.
macro_rules! words {
    ($($type:ty { $($word:literal => $variant:ident,)* })*) => {
        $(impl $crate::read::Read for $type {
            fn read(node: &$crate::yaml::Node, reader: &mut $crate::read::Reader) -> Option<Self> {
                reader.choice(node, &[$(($word, Self::$variant)),*])
            }
        })*
    };
}
pub(crate) use words;

impl<T: Read> Read for Vec<At<T>> {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        match &node.kind {
            Kind::List(items) => Some(items.iter().filter_map(|item| reader.item(item)).collect()),
            _ => {
                reader.wrong_kind(node, "a list, as in `[a, b]`");
                None
            }
        }
    }
}

/// One value, or a list of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OneOrMany<T>(pub Vec<At<T>>);

impl<T: Read> Read for OneOrMany<T> {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        match &node.kind {
            Kind::List(items) if items.is_empty() => {
                reader.empty(node);
                None
            }
            Kind::List(_) => Vec::read(node, reader).map(Self),
            _ => T::read(node, reader).map(|value| Self(vec![At::new(value, node.span)])),
        }
    }
}

impl<T: JsonSchema> JsonSchema for OneOrMany<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("OneOrMany_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let item = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [item, { "type": "array", "items": item, "minItems": 1 }] })
    }
}

/// A map whose keys the user chooses, in the order of the file, and the keys that `~` removes from
/// what lies below.
#[derive(Debug, Clone, PartialEq)]
pub struct Map<K, V>(pub Vec<(At<K>, At<V>)>, pub Vec<K>);

impl<K, V> Default for Map<K, V> {
    fn default() -> Self {
        Self(Vec::new(), Vec::new())
    }
}

impl<K: FromKey, V: Read> Read for Map<K, V> {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let Kind::Map(entries) = &node.kind else {
            reader.wrong_kind(node, "a map, as in `{name: value}`");
            return None;
        };
        let mut map = Vec::with_capacity(entries.len());
        let mut removed = Vec::new();
        for (key, value) in entries {
            let name = K::from_key(key, reader);
            if value.kind == Kind::Null && !V::TAKES_NOTHING {
                removed.extend(name);
                continue;
            }
            let read = reader.step(Step::Key(key.text.as_str().into()), |reader| V::read(value, reader));
            match (name, read) {
                (Some(name), Some(read)) => {
                    map.push((At::new(name, key.span), At::new(read, value.span)));
                }
                _ => reader.lost = true,
            }
        }
        Some(Self(map, removed))
    }

    fn over(self, below: Self) -> Self {
        let Self(mut joined, mut removed) = below;
        joined.retain(|(key, _)| !self.1.contains(&key.value));
        removed.retain(|key| !self.0.iter().any(|(k, _)| k.value == *key));
        removed.extend(self.1);
        for (key, value) in self.0 {
            match joined.iter().position(|(k, _)| k.value == key.value) {
                Some(i) => {
                    let (_, below) = joined.remove(i);
                    joined.insert(i, (key, At::new(value.value.over(below.value), value.span)));
                }
                None => joined.push((key, value)),
            }
        }
        Self(joined, removed)
    }
}

impl<K: JsonSchema, V: JsonSchema> JsonSchema for Map<K, V> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        format!("Map_of_{}", V::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let keys = generator.subschema_for::<K>();
        let values = generator.subschema_for::<V>();
        // Not `anyOf`: editors could then no longer say which key of a record is wrong.
        let values = json_schema!({ "if": { "type": "null" }, "else": values });
        json_schema!({ "type": "object", "propertyNames": keys, "additionalProperties": values })
    }
}

/// A type that can be the key of a [`Map`].
pub trait FromKey: Sized + PartialEq + Clone {
    /// Reads the key, or reports why it cannot be read.
    fn from_key(key: &Key, reader: &mut Reader) -> Option<Self>;
}

/// Implements [`FromKey`] through [`Read`], as if the key were a value.
macro_rules! keys {
    ($($type:ty),*) => {
        $(impl $crate::read::FromKey for $type {
            fn from_key(key: &$crate::yaml::Key, reader: &mut $crate::read::Reader) -> Option<Self> {
                let kind = $crate::yaml::Kind::Scalar { text: key.text.clone(), plain: key.plain };
                <$type as $crate::read::Read>::read(&$crate::yaml::Node { span: key.span, kind }, reader)
            }
        })*
    };
}
pub(crate) use keys;
