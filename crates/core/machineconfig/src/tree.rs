//! YAML that may hold secrets, as a tree: text as it was written, with lines, wiped when dropped.
//!
//! Messages name places and never repeat values. Limits on size, depth and the expansion of aliases
//! bound the work on hostile input.

use std::collections::{BTreeMap, BTreeSet};

use ichor_model::Problem;
use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle};
use zeroize::Zeroizing;

use crate::secrets::{Flaw, Flaws};

/// Deepest nesting; machine configs have a dozen levels.
const MAX_DEPTH: usize = 64;
/// Most values that aliases may add.
const MAX_ALIAS_NODES: usize = 10_000;
/// Most text that aliases may add: one long value repeated is a bomb as well.
const MAX_ALIAS_BYTES: usize = 4 * 1024 * 1024;

/// A value and where it stands.
#[derive(Clone)]
pub struct Node {
    /// Its line, counted from 1.
    pub line: usize,
    /// The value.
    pub kind: Kind,
}

/// What a value is.
#[derive(Clone)]
pub enum Kind {
    /// Nothing.
    Null,
    /// A single value, as text.
    Text(Zeroizing<String>),
    /// A list.
    List(Vec<Node>),
    /// A map, in the order of the file.
    Map(Vec<Entry>),
}

/// An entry of a map.
#[derive(Clone)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Its line.
    pub line: usize,
    /// The value.
    pub value: Node,
}

impl Node {
    /// Returns the value of a key, if this is a map that has it; nothing at all counts as absent.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let found = self.entries().iter().find(|entry| entry.key == key).map(|entry| &entry.value);
        found.filter(|value| !matches!(value.kind, Kind::Null))
    }

    /// Follows keys downwards.
    pub fn at(&self, path: &[&str]) -> Option<&Self> {
        path.iter().try_fold(self, |node, key| node.get(key))
    }

    /// Returns the text, if this is a single value.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the entries, if this is a map.
    pub fn entries(&self) -> &[Entry] {
        match &self.kind {
            Kind::Map(entries) => entries,
            _ => &[],
        }
    }

    /// Returns the items, if this is a list.
    pub fn items(&self) -> &[Self] {
        match &self.kind {
            Kind::List(items) => items,
            _ => &[],
        }
    }

    /// Says what kind of value this is, for messages.
    pub const fn kind_word(&self) -> &'static str {
        match self.kind {
            Kind::Null => "nothing",
            Kind::Text(_) => "a single value",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a map",
        }
    }

    fn count(&self) -> usize {
        match &self.kind {
            Kind::Null | Kind::Text(_) => 1,
            Kind::List(items) => 1 + items.iter().map(Self::count).sum::<usize>(),
            Kind::Map(entries) => 1 + entries.iter().map(|entry| entry.value.count()).sum::<usize>(),
        }
    }

    fn text_bytes(&self) -> usize {
        match &self.kind {
            Kind::Null => 0,
            Kind::Text(text) => text.len(),
            Kind::List(items) => items.iter().map(Self::text_bytes).sum(),
            Kind::Map(entries) => {
                entries.iter().map(|entry| entry.key.len() + entry.value.text_bytes()).sum()
            }
        }
    }
}

/// Reads all documents of a text of at most `limit` bytes.
pub fn parse(text: &str, limit: usize) -> Result<Vec<Node>, Flaws> {
    if text.len() > limit {
        let message = format!("has {} bytes, and at most {limit} are read", text.len());
        return Err(Flaws::one("", None, &message, "check that this is the right file"));
    }
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text.strip_prefix('\u{feff}').unwrap_or(text)) {
        // The parser's own words might repeat what stands there; the line is enough.
        let (event, range) = event.map_err(|error| {
            Flaws::one(
                "",
                Some(error.marker().line()),
                "is not valid YAML",
                "mend the YAML, or copy the file again",
            )
        })?;
        builder.take(event, range.start.line())?;
    }
    Flaws::or(builder.flaws, Some(builder.documents))
}

/// A map or list whose end has not been seen.
struct Open {
    line: usize,
    anchor: usize,
    kind: OpenKind,
}

enum OpenKind {
    List(Vec<Node>),
    Map { entries: Vec<Entry>, seen: BTreeSet<String>, key: Option<(String, usize)> },
}

#[derive(Default)]
struct Builder {
    documents: Vec<Node>,
    open: Vec<Open>,
    anchors: BTreeMap<usize, Node>,
    alias_nodes: usize,
    alias_bytes: usize,
    flaws: Vec<Flaw>,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, line: usize) -> Result<(), Flaws> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_tag(tag.is_some(), line);
                let node = Node { line, kind: scalar(text.into_owned(), style) };
                self.remember(anchor, &node);
                self.place(node)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.refuse_tag(tag.is_some(), line);
                self.begin(line, anchor, OpenKind::List(Vec::new()))
            }
            Event::MappingStart(_, anchor, tag) => {
                self.refuse_tag(tag.is_some(), line);
                let map = OpenKind::Map { entries: Vec::new(), seen: BTreeSet::new(), key: None };
                self.begin(line, anchor, map)
            }
            Event::SequenceEnd | Event::MappingEnd => self.finish(),
            Event::Alias(anchor) => self.alias(anchor, line),
            _ => Ok(()),
        }
    }

    fn refuse_tag(&mut self, tagged: bool, line: usize) {
        if tagged {
            let problem = Problem::new("has a YAML tag", "remove the tag");
            self.flaws.push(Flaw::new("", Some(line), problem));
        }
    }

    fn begin(&mut self, line: usize, anchor: usize, kind: OpenKind) -> Result<(), Flaws> {
        if self.open.len() >= MAX_DEPTH {
            return Err(Flaws::one(
                "",
                Some(line),
                "nests values too deeply",
                "check that this is the right file",
            ));
        }
        self.open.push(Open { line, anchor, kind });
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Flaws> {
        let Some(Open { line, anchor, kind }) = self.open.pop() else { return Ok(()) };
        let kind = match kind {
            OpenKind::List(items) => Kind::List(items),
            OpenKind::Map { entries, .. } => Kind::Map(entries),
        };
        let node = Node { line, kind };
        self.remember(anchor, &node);
        self.place(node)
    }

    fn remember(&mut self, anchor: usize, node: &Node) {
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
    }

    fn alias(&mut self, anchor: usize, line: usize) -> Result<(), Flaws> {
        let Some(node) = self.anchors.get(&anchor).cloned() else {
            return Err(Flaws::one(
                "",
                Some(line),
                "has an alias inside its own value",
                "write the value out",
            ));
        };
        self.alias_nodes += node.count();
        self.alias_bytes += node.text_bytes();
        if self.alias_nodes > MAX_ALIAS_NODES || self.alias_bytes > MAX_ALIAS_BYTES {
            return Err(Flaws::one(
                "",
                Some(line),
                "has aliases that expand to too much",
                "write the values out",
            ));
        }
        self.place(Node { line, ..node })
    }

    /// Puts a finished value where it belongs: the root, a list, or a map as key or value.
    fn place(&mut self, node: Node) -> Result<(), Flaws> {
        let Some(open) = self.open.last_mut() else {
            self.documents.push(node);
            return Ok(());
        };
        match &mut open.kind {
            OpenKind::List(items) => items.push(node),
            OpenKind::Map { entries, seen, key } => match key.take() {
                None => *key = Some(as_key(&node)?),
                Some((name, line)) if seen.contains(&name) => {
                    let problem = Problem::new("is written twice in one map", "keep one of them");
                    self.flaws.push(Flaw::new(shown(&name), Some(line), problem));
                }
                Some((name, line)) => {
                    seen.insert(name.clone());
                    entries.push(Entry { key: name, line, value: node });
                }
            },
        }
        Ok(())
    }
}

fn scalar(text: String, style: ScalarStyle) -> Kind {
    match text.as_str() {
        "" | "~" | "null" | "Null" | "NULL" if style == ScalarStyle::Plain => Kind::Null,
        _ => Kind::Text(Zeroizing::new(text)),
    }
}

fn as_key(node: &Node) -> Result<(String, usize), Flaws> {
    node.text().map(|text| (text.to_owned(), node.line)).ok_or_else(|| {
        Flaws::one(
            "",
            Some(node.line),
            "has a key that is not a word",
            "mend the YAML, or copy the file again",
        )
    })
}

/// Returns a key if it may be repeated in a message: damaged files may have secrets for keys.
pub fn shown(key: &str) -> String {
    let word =
        key.len() <= 32 && key.chars().all(|c| c.is_ascii_alphabetic() || matches!(c, '-' | '_' | '.'));
    if word { key.into() } else { "…".into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 1 << 20;

    fn messages(text: &str) -> String {
        parse(text, LIMIT).err().expect("flaws").to_string()
    }

    #[test]
    fn documents_keep_their_lines() {
        let documents = parse("a: {b: x}\n---\nc: |\n  y\n  z\n", LIMIT).expect("two documents");
        assert_eq!(documents[0].at(&["a", "b"]).and_then(Node::text), Some("x"));
        assert_eq!(documents[1].get("c").and_then(Node::text), Some("y\nz\n"));
        assert_eq!(documents[1].entries()[0].line, 3);
    }

    #[test]
    fn aliases_repeat_values() {
        let documents = parse("a: &x {k: v}\nb: *x\n", LIMIT).expect("a document");
        assert_eq!(documents[0].at(&["b", "k"]).and_then(Node::text), Some("v"));
    }

    #[test]
    fn hostile_input_is_refused_early() {
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
        for i in 1..12 {
            let previous = format!("*a{}", i - 1);
            bomb += &format!("a{i}: &a{i} [{}]\n", [previous.as_str(); 9].join(","));
        }
        assert!(messages(&bomb).contains("expand to too much"));
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(10_000), ["*a"; 1_000].join(","));
        assert!(messages(&long).contains("expand to too much"));
        let deep: String = (0..80).map(|i| format!("{}k:\n", " ".repeat(i))).collect();
        assert!(messages(&deep).contains("too deeply"));
        assert!(parse(&"[".repeat(100_000), LIMIT).is_err());
        assert!(messages("a: &x [*x]\n").contains("inside its own value"));
        assert!(parse("abc", 2).err().expect("too large").to_string().contains("3 bytes"));
    }

    #[test]
    fn mistakes_are_named_without_repeating_them() {
        for (text, part) in [
            ("canary: [1", "not valid YAML"),
            ("a: !canary b", "tag"),
            ("[canary]: b", "not a word"),
            ("canary7: 1\ncanary7: 2", "twice"),
            ("a: *canary", "not valid YAML"),
        ] {
            let message = messages(text);
            assert!(message.contains(part) && !message.contains("canary"), "{text}: {message}");
        }
    }
}
