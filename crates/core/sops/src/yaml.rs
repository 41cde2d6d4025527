//! YAML as a tree, with its comments.
//!
//! Anchors, aliases and tags are refused: sops writes none, and what they stand for would be written out
//! without anybody having asked for it.

use std::collections::BTreeSet;

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, Span, StructureStyle};
use zeroize::Zeroizing;

use crate::{
    Flaw, MAX_DEPTH, MAX_NODES,
    scalar::{Meaning, resolve},
    tree::{Comment, Entry, Item, Map, Scalar, Value},
};

/// Longest key: YAML cannot write a longer one before a colon.
const MAX_KEY_BYTES: usize = 1000;

/// Reads the documents of a text, all of which are maps.
pub fn parse(text: &str) -> Result<Vec<Map>, Flaw> {
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        // The parser's own words might repeat what stands there; the line is enough.
        let (event, span) =
            event.map_err(|error| Flaw::syntax("is not valid YAML", error.marker().line()))?;
        builder.take(event, span)?;
    }
    if builder.documents.is_empty() {
        builder.documents.push(std::mem::take(&mut builder.waiting).into_iter().map(Entry::from).collect());
    }
    Ok(builder.documents)
}

/// A comment that has no place yet.
struct Waiting {
    comment: Comment,
    column: usize,
}

impl From<Waiting> for Entry {
    fn from(waiting: Waiting) -> Self {
        Self::Comment(waiting.comment)
    }
}

impl From<Waiting> for Item {
    fn from(waiting: Waiting) -> Self {
        Self::Comment(waiting.comment)
    }
}

/// A map or list whose end has not been seen.
struct Open {
    /// Where its entries begin; nothing in a flow map or list.
    column: Option<usize>,
    content: Content,
}

enum Content {
    List(Vec<Item>),
    Map { entries: Map, seen: BTreeSet<String>, key: Option<String> },
}

#[derive(Default)]
struct Builder {
    documents: Vec<Map>,
    root: Option<Value>,
    open: Vec<Open>,
    waiting: Vec<Waiting>,
    /// The line that the last single value ended in.
    last_line: usize,
    nodes: usize,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Flaw> {
        let line = span.start.line();
        match event {
            Event::DocumentEnd => self.end_document(line)?,
            Event::Comment(text, _) => self.comment(&text, span),
            Event::Scalar(text, style, anchor, tag) => {
                // sops writes `!!merge <<` where that is a text.
                let name = tag.as_ref().and_then(|tag| tag.suffix_in_namespace("tag:yaml.org,2002:"));
                let is_text = name.is_some_and(|name| name == "merge" || name == "str");
                refuse(anchor, tag.is_some() && !is_text, line)?;
                self.scalar(&text, if is_text { ScalarStyle::DoubleQuoted } else { style }, line)?;
                // Nothing stands behind a text of several lines, which ends where the next line begins.
                let is_block = matches!(style, ScalarStyle::Literal | ScalarStyle::Folded);
                self.last_line = if is_block { 0 } else { span.end.line() };
            }
            Event::SequenceStart(style, anchor, tag) => {
                refuse(anchor, tag.is_some(), line)?;
                self.begin(style, span, Content::List(Vec::new()))?;
            }
            Event::MappingStart(style, anchor, tag) => {
                refuse(anchor, tag.is_some(), line)?;
                let content = Content::Map { entries: Vec::new(), seen: BTreeSet::new(), key: None };
                self.begin(style, span, content)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.finish(span)?,
            Event::Alias(_) | Event::UnresolvedAlias(_) => refuse(1, false, line)?,
            _ => {}
        }
        Ok(())
    }

    fn count(&mut self) -> Result<(), Flaw> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(Flaw::limit(format!("has more than {MAX_NODES} values")));
        }
        Ok(())
    }

    fn comment(&mut self, text: &str, span: Span) {
        let mut comment = Comment { text: Zeroizing::new(text.to_owned()), is_inline: true };
        let is_behind = span.start.line() == self.last_line;
        match self.open.last_mut().map(|open| &mut open.content) {
            Some(Content::List(items)) if is_behind && !items.is_empty() => {
                items.insert(items.len() - 1, Item::Comment(comment));
            }
            Some(Content::Map { entries, key: None, .. }) if is_behind && !entries.is_empty() => {
                entries.insert(entries.len() - 1, Entry::Comment(comment));
            }
            _ => {
                comment.is_inline = false;
                self.waiting.push(Waiting { comment, column: span.start.col() });
            }
        }
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, line: usize) -> Result<(), Flaw> {
        self.count()?;
        let value = if style == ScalarStyle::Plain {
            match resolve(text) {
                Meaning::Null => Value::Null,
                Meaning::Scalar(scalar) => Value::Scalar(scalar),
                Meaning::TooLarge => {
                    return Err(Flaw::unsupported(
                        "has a whole number beyond 63 bits",
                        "put the number in quotes",
                    )
                    .at(line));
                }
            }
        } else {
            Value::text(text)
        };
        self.place(value, line)
    }

    fn begin(&mut self, style: StructureStyle, span: Span, content: Content) -> Result<(), Flaw> {
        self.count()?;
        if self.open.len() >= MAX_DEPTH {
            return Err(Flaw::limit(format!("is nested more than {MAX_DEPTH} deep")).at(span.start.line()));
        }
        // What is above a map in a list belongs to the list, and what is behind the dash to the map.
        if let Some(Open { column, content: Content::List(items) }) = self.open.last_mut() {
            let is_above = |it: &Waiting| column.is_none_or(|column| it.column <= column);
            let above = self.waiting.iter().take_while(|it| is_above(it)).count();
            items.extend(self.waiting.drain(..above).map(Item::from));
        }
        let column = (style == StructureStyle::Block).then(|| span.start.col());
        self.open.push(Open { column, content });
        Ok(())
    }

    fn finish(&mut self, span: Span) -> Result<(), Flaw> {
        let Some(Open { column, content }) = self.open.pop() else { return Ok(()) };
        // Comments at the end belong to what they are indented like.
        let own =
            self.waiting.iter().take_while(|it| column.is_none_or(|column| it.column >= column)).count();
        let own = self.waiting.drain(..own);
        let value = match content {
            Content::List(mut items) => {
                items.extend(own.map(Item::from));
                Value::List(items)
            }
            Content::Map { mut entries, .. } => {
                entries.extend(own.map(Entry::from));
                Value::Map(entries)
            }
        };
        if column.is_none() {
            self.last_line = span.end.line();
        }
        self.place(value, span.start.line())
    }

    /// Puts a finished value where it belongs: the root, a list, or a map as key or value.
    fn place(&mut self, value: Value, line: usize) -> Result<(), Flaw> {
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(value),
            Some(Content::List(items)) => {
                if !matches!(value, Value::List(_) | Value::Map(_)) {
                    items.extend(self.waiting.drain(..).map(Item::from));
                }
                items.push(Item::Value(value));
            }
            Some(Content::Map { entries, seen, key }) => match key.take() {
                Some(name) => entries.push(Entry::Pair(name, value)),
                None => {
                    entries.extend(self.waiting.drain(..).map(Entry::from));
                    let name = as_key(value).ok_or_else(|| bad_key(line))?;
                    if name.len() > MAX_KEY_BYTES {
                        return Err(Flaw::limit("has a key that is too long".to_owned()).at(line));
                    }
                    if !seen.insert(name.clone()) {
                        return Err(Flaw::syntax("has a key twice in one map", line));
                    }
                    *key = Some(name);
                }
            },
        }
        Ok(())
    }

    fn end_document(&mut self, line: usize) -> Result<(), Flaw> {
        let map = match self.root.take() {
            Some(Value::Map(mut entries)) => {
                entries.extend(self.waiting.drain(..).map(Entry::from));
                entries
            }
            None | Some(Value::Null) => self.waiting.drain(..).map(Entry::from).collect(),
            Some(_) => return Err(Flaw::syntax("is no map", line)),
        };
        self.documents.push(map);
        Ok(())
    }
}

fn as_key(value: Value) -> Option<String> {
    match value {
        Value::Scalar(Scalar::Text(text)) => Some(text.as_str().to_owned()),
        _ => None,
    }
}

fn bad_key(line: usize) -> Flaw {
    Flaw::unsupported("has a key that is no text", "put the key in quotes").at(line)
}

fn refuse(anchor: usize, is_tagged: bool, line: usize) -> Result<(), Flaw> {
    if anchor == 0 && !is_tagged {
        return Ok(());
    }
    Err(Flaw::unsupported("has an anchor, an alias or a tag of YAML", "write the value out").at(line))
}
