//! YAML as it was written: documents of scalars, lists and maps with their places.
//!
//! What a scalar means is for the field that holds it to say: `0644` is a number to a file mode
//! and text to a label. Limits on size, depth and aliases bound the work on hostile input.

use std::collections::BTreeMap;

use ichor_model::{Code, Finding, Findings, SourceId, Span};
use serde_json::Value as Json;
use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, ScanError, Span as Range, Tag};

use super::Key;

/// Largest config or patch that is read. Talos itself takes 4 MiB over its API.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Deepest nesting; the deepest field of Talos is at 8, free-form values go on from there.
const MAX_DEPTH: usize = 64;
/// Most values in a file.
const MAX_NODES: usize = 1_000_000;
/// Most documents in a file; a rich config has a hundred.
const MAX_DOCUMENTS: usize = 5_000;
/// Most values that aliases may add.
const MAX_ALIAS_NODES: usize = 100_000;
/// Most text that aliases may add: one long value repeated is a bomb as well.
const MAX_ALIAS_BYTES: usize = MAX_BYTES;

/// A value as written.
#[derive(Clone)]
pub struct Raw {
    /// Its place; a map or list is placed at its key.
    pub at: Option<Span>,
    /// What it is.
    pub kind: RawKind,
}

/// What a value is before its field has been asked.
#[derive(Clone)]
pub enum RawKind {
    /// A single value.
    Scalar {
        /// Its text.
        text: String,
        /// How it was written.
        style: Style,
    },
    /// A list.
    List(Vec<Raw>),
    /// A map, in the order of the file.
    Map(Vec<(Key, Raw)>),
}

/// How a scalar was written, which decides what it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Without quotes: a number, switch or nothing if it looks like one.
    Plain,
    /// In quotes or as a block: text.
    Quoted,
    /// Text of a JSON value whose YAML form is not known: the field decides.
    Json,
}

impl Raw {
    /// Whether this is nothing: an empty plain scalar, `~` or `null`.
    pub fn is_null(&self) -> bool {
        matches!(&self.kind, RawKind::Scalar { text, style: Style::Plain } if is_null_text(text))
    }

    /// Returns the value of a key, if this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match &self.kind {
            RawKind::Map(entries) => entries.iter().find(|(k, _)| k.text == key).map(|(_, raw)| raw),
            _ => None,
        }
    }

    /// Returns the text of a scalar that is not nothing.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            RawKind::Scalar { text, .. } if !self.is_null() => Some(text),
            _ => None,
        }
    }

    /// Counts the bytes of text in it, keys included.
    fn text_bytes(&self) -> usize {
        match &self.kind {
            RawKind::Scalar { text, .. } => text.len(),
            RawKind::List(items) => items.iter().map(Self::text_bytes).sum(),
            RawKind::Map(entries) => {
                entries.iter().map(|(key, value)| key.text.len() + value.text_bytes()).sum()
            }
        }
    }

    /// Forgets where it and all it holds was written.
    pub fn forget_places(&mut self) {
        self.at = None;
        match &mut self.kind {
            RawKind::Scalar { .. } => {}
            RawKind::List(items) => items.iter_mut().for_each(Self::forget_places),
            RawKind::Map(entries) => entries.iter_mut().for_each(|(key, value)| {
                key.at = None;
                value.forget_places();
            }),
        }
    }

    /// Says what kind of value this is, for messages.
    pub fn word(&self) -> &'static str {
        match self.kind {
            RawKind::Scalar { .. } if self.is_null() => "nothing",
            RawKind::Scalar { .. } => "a single value",
            RawKind::List(_) => "a list",
            RawKind::Map(_) => "a map",
        }
    }
}

/// Whether plain text stands for nothing.
pub fn is_null_text(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// Turns a JSON value into the form that YAML files are read into; `style` is that of its texts.
pub fn from_json(value: &Json, style: Style) -> Raw {
    let plain = |text: String| RawKind::Scalar { text, style: Style::Plain };
    let kind = match value {
        Json::Null => plain(String::new()),
        Json::Bool(switch) => plain(switch.to_string()),
        Json::Number(number) => plain(number.to_string()),
        Json::String(text) => RawKind::Scalar { text: text.clone(), style },
        Json::Array(items) => RawKind::List(items.iter().map(|item| from_json(item, style)).collect()),
        Json::Object(entries) => RawKind::Map(
            entries
                .iter()
                .map(|(key, value)| {
                    (Key { text: key.clone(), plain: false, at: None }, from_json(value, style))
                })
                .collect(),
        ),
    };
    Raw { at: None, kind }
}

/// Reads a stream of documents; empty ones are left out.
pub fn parse(source: SourceId, bytes: &[u8]) -> Result<Vec<Raw>, Findings> {
    if bytes.len() > MAX_BYTES {
        return Err(one(too_large(source, bytes.len())));
    }
    let text = decode(source, bytes).map_err(one)?;
    let offset = bytes.len() - text.len();
    let mut builder = Builder { source, offset, ..Builder::default() };
    for event in Parser::new_from_str(text) {
        let step = match event {
            Ok((event, range)) => builder.take(event, range),
            Err(error) => Err(syntax(source, offset, text, &error)),
        };
        if let Err(stop) = step {
            builder.findings.extend(stop);
            return Err(builder.findings);
        }
    }
    if builder.findings.is_empty() { Ok(builder.documents) } else { Err(builder.findings) }
}

fn too_large(source: SourceId, bytes: usize) -> Finding {
    Finding::error(Code::TOO_LARGE, start_of(source), format!("the file has {bytes} bytes"))
        .because(format!("at most {MAX_BYTES} are read: Talos takes no larger machine config"))
        .remedy("check that this is a machine config or patch; large manifests belong at a URL")
}

const fn start_of(source: SourceId) -> Span {
    Span { source, start: 0, end: 0 }
}

fn decode(source: SourceId, bytes: &[u8]) -> Result<&str, Finding> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = to_u32(error.valid_up_to());
        Finding::error(
            Code::NOT_UTF8,
            Span { source, start: at, end: at + 1 },
            format!("byte {:#04x} is not UTF-8", bytes[error.valid_up_to()]),
        )
        .remedy("save the file as UTF-8")
    })?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// Offsets fit because nothing over [`MAX_BYTES`] is read.
fn to_u32(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}

fn syntax(source: SourceId, offset: usize, text: &str, error: &ScanError) -> Findings {
    let at = to_u32(offset + error.marker().byte_offset().unwrap_or(0).min(text.len()));
    let what = error.to_string();
    let what = what.split(" at byte").next().unwrap_or(&what);
    let what = what.split(" at char").next().unwrap_or(what);
    let (code, message, remedy) = if what.contains("nesting") || what.contains("recursion") {
        (Code::TOO_DEEP, "values are nested too deeply".to_owned(), "nest values less deeply")
    } else if what.contains("unknown anchor") || what.contains("unresolved alias") {
        let remedy = "mark the value with `&name` before using `*name`, or write it out";
        (Code::UNKNOWN_ALIAS, "this alias has no anchor before it".to_owned(), remedy)
    } else {
        let remedy = "check the indentation, colons and quotes here and on the line before";
        (Code::SYNTAX, format!("this is not valid YAML: {what}"), remedy)
    };
    one(Finding::error(code, Span { source, start: at, end: at }, message).remedy(remedy))
}

fn one(finding: Finding) -> Findings {
    Findings::from_iter([finding])
}

/// A map or list whose end has not been seen.
struct Open {
    at: Span,
    anchor: usize,
    content: OpenKind,
    nodes_before: usize,
}

enum OpenKind {
    List(Vec<Raw>),
    Map { entries: Vec<(Key, Raw)>, seen: BTreeMap<String, Span>, key: Option<(Key, Span)> },
}

#[derive(Default)]
struct Builder {
    source: SourceId,
    /// Bytes before the text, when it begins with a byte-order mark.
    offset: usize,
    findings: Findings,
    open: Vec<Open>,
    documents: Vec<Raw>,
    nodes: usize,
    alias_nodes: usize,
    alias_bytes: usize,
    anchors: BTreeMap<usize, (Raw, usize)>,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, range: Range) -> Result<(), Findings> {
        let at = self.span(range);
        match event {
            // Anchors do not reach into the next document.
            Event::DocumentStart(..) => self.anchors.clear(),
            Event::Scalar(text, style, anchor, tag) => {
                let quoted = style != ScalarStyle::Plain || self.forces_text(tag.as_deref(), at);
                self.count(1, at)?;
                let style = if quoted { Style::Quoted } else { Style::Plain };
                let raw = Raw { at: Some(at), kind: RawKind::Scalar { text: text.into_owned(), style } };
                self.remember(anchor, &raw, 1);
                self.place(raw, at)?;
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.forces_text(tag.as_deref(), at);
                self.begin(at, anchor, OpenKind::List(Vec::new()))?;
            }
            Event::MappingStart(_, anchor, tag) => {
                self.forces_text(tag.as_deref(), at);
                let map = OpenKind::Map { entries: Vec::new(), seen: BTreeMap::new(), key: None };
                self.begin(at, anchor, map)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.finish()?,
            Event::Alias(anchor) => self.alias(anchor, at)?,
            _ => {}
        }
        Ok(())
    }

    fn span(&self, range: Range) -> Span {
        let at = |offset: Option<usize>| to_u32(self.offset + offset.unwrap_or(0));
        let start = at(range.start.byte_offset());
        Span { source: self.source, start, end: at(range.end.byte_offset()).max(start) }
    }

    /// Reports tags that Talos would not understand; `!!str` makes text of anything.
    fn forces_text(&mut self, tag: Option<&Tag>, at: Span) -> bool {
        let Some(tag) = tag else { return false };
        let known = tag.core_suffix();
        if known.is_none() {
            let finding = Finding::error(Code::TAG, at, "a YAML tag stands here");
            self.findings.push(finding.remedy("remove the tag: the field alone says what a value is"));
        }
        known == Some("str")
    }

    fn count(&mut self, nodes: usize, at: Span) -> Result<(), Findings> {
        self.nodes += nodes;
        if self.nodes <= MAX_NODES {
            return Ok(());
        }
        let finding =
            Finding::error(Code::TOO_LARGE, at, format!("the file has more than {MAX_NODES} values"));
        Err(one(finding.remedy("check that this is a machine config or patch")))
    }

    fn begin(&mut self, at: Span, anchor: usize, content: OpenKind) -> Result<(), Findings> {
        if self.open.len() >= MAX_DEPTH {
            let message = format!("values are nested more than {MAX_DEPTH} deep");
            return Err(one(Finding::error(Code::TOO_DEEP, at, message).remedy("nest values less deeply")));
        }
        self.count(1, at)?;
        // A map or list is pointed at by its key: its own text may go on for pages.
        let at = self.pending_key().unwrap_or(Span { end: at.start, ..at });
        self.open.push(Open { at, anchor, content, nodes_before: self.nodes - 1 });
        Ok(())
    }

    fn pending_key(&self) -> Option<Span> {
        match self.open.last() {
            Some(Open { content: OpenKind::Map { key, .. }, .. }) => key.as_ref().map(|(_, at)| *at),
            _ => None,
        }
    }

    fn finish(&mut self) -> Result<(), Findings> {
        let Some(Open { at, anchor, content, nodes_before }) = self.open.pop() else {
            return Ok(());
        };
        let kind = match content {
            OpenKind::List(items) => RawKind::List(items),
            OpenKind::Map { entries, .. } => RawKind::Map(entries),
        };
        let raw = Raw { at: Some(at), kind };
        self.remember(anchor, &raw, self.nodes - nodes_before);
        self.place(raw, at)
    }

    fn remember(&mut self, anchor: usize, raw: &Raw, nodes: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, (raw.clone(), nodes));
        }
    }

    fn alias(&mut self, anchor: usize, at: Span) -> Result<(), Findings> {
        let Some((raw, nodes)) = self.anchors.get(&anchor) else {
            let finding =
                Finding::error(Code::UNKNOWN_ALIAS, at, "this alias stands inside the value it repeats");
            return Err(one(finding.remedy("write the value out")));
        };
        self.alias_nodes += nodes;
        if self.alias_nodes <= MAX_ALIAS_NODES {
            self.alias_bytes += raw.text_bytes();
        }
        if self.alias_nodes > MAX_ALIAS_NODES || self.alias_bytes > MAX_ALIAS_BYTES {
            let message = format!(
                "aliases expand to more than {MAX_ALIAS_NODES} values or {MAX_ALIAS_BYTES} bytes of text"
            );
            return Err(one(Finding::error(Code::ALIAS_BOMB, at, message).remedy("write the values out")));
        }
        let (raw, nodes) = (raw.clone(), *nodes);
        self.count(nodes, at)?;
        self.place(raw, at)
    }

    /// Puts a finished value where it belongs: a document, a list, or a map as key or value.
    fn place(&mut self, raw: Raw, at: Span) -> Result<(), Findings> {
        match self.open.last_mut().map(|open| &mut open.content) {
            None if raw.is_null() => {}
            None if self.documents.len() >= MAX_DOCUMENTS => {
                let message = format!("the file has more than {MAX_DOCUMENTS} documents");
                let finding = Finding::error(Code::TOO_LARGE, at, message);
                return Err(one(finding.remedy("check that this is a machine config or patch")));
            }
            None => self.documents.push(raw),
            Some(OpenKind::List(items)) => items.push(raw),
            Some(OpenKind::Map { entries, seen, key }) => match key.take() {
                None => *key = Some((as_key(raw, at, &mut self.findings)?, at)),
                Some((name, at)) => match seen.get(&name.text) {
                    Some(first) => self.findings.push(twice(&name, at, *first)),
                    None => {
                        seen.insert(name.text.clone(), at);
                        entries.push((name, raw));
                    }
                },
            },
        }
        Ok(())
    }
}

fn twice(key: &Key, at: Span, first: Span) -> Finding {
    Finding::error(Code::DUPLICATE_KEY, at, format!("`{}` is written twice", show(&key.text)))
        .because("Talos refuses it: mapping key already defined")
        .see(first, "first written here")
        .remedy("keep one of them")
}

fn as_key(raw: Raw, at: Span, findings: &mut Findings) -> Result<Key, Findings> {
    let word = raw.word();
    match raw.kind {
        // Talos drops such a key with its value, and says nothing.
        RawKind::Scalar { text, style } if style != Style::Plain || !is_null_text(&text) => {
            let plain = style == Style::Plain;
            if plain && text == "<<" {
                findings.push(
                    Finding::error(Code::MERGE_KEY, at, "a merge key `<<` stands here")
                        .because("Talos refuses it in most places, and 1.14 everywhere")
                        .remedy("write the keys out; plain aliases (`key: *name`) are understood"),
                );
            }
            Ok(Key { text, plain, at: Some(at) })
        }
        _ => {
            let finding = Finding::error(Code::BAD_KEY, at, format!("{word} cannot be a key"));
            Err(one(finding.remedy("write a word; quote it if it looks like something else")))
        }
    }
}

/// Makes text safe and short enough to stand in a message.
pub fn show(text: &str) -> String {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", escaped(&text[..end])),
        None => escaped(text),
    }
}

/// Makes text safe to stand in a message.
pub fn escaped(text: &str) -> String {
    let escaped: String = text.chars().flat_map(char::escape_debug).collect();
    escaped.replace("\\'", "'").replace("\\\"", "\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(text: &[u8]) -> Vec<Code> {
        match parse(SourceId(0), text) {
            Ok(_) => Vec::new(),
            Err(findings) => findings.iter().map(|finding| finding.code).collect(),
        }
    }

    #[test]
    fn documents_are_split_and_empty_ones_left_out() {
        let documents = parse(SourceId(0), b"a: 1\n---\n---\n# nothing\n---\nb: 2\n").unwrap_or_default();
        assert_eq!(documents.len(), 2);
        assert_eq!(documents[1].get("b").and_then(Raw::text), Some("2"));
    }

    #[test]
    fn hostile_input_is_refused_early() {
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
        for i in 1..12 {
            let previous = format!("*a{}", i - 1);
            bomb += &format!("a{i}: &a{i} [{}]\n", [previous.as_str(); 9].join(","));
        }
        assert_eq!(codes(bomb.as_bytes()), [Code::ALIAS_BOMB]);
        assert_eq!(codes("[".repeat(100_000).as_bytes()), [Code::TOO_DEEP]);
        assert_eq!(codes(&vec![b'a'; 10 * 1024 * 1024]), [Code::TOO_LARGE]);
        assert_eq!(codes(b"a: &x [*x]\n"), [Code::UNKNOWN_ALIAS]);
    }

    #[test]
    fn each_mistake_has_its_code() {
        for (text, code) in [
            (&b"a: \xff"[..], Code::NOT_UTF8),
            (b"a: [1", Code::SYNTAX),
            (b"a: 1\na: 2", Code::DUPLICATE_KEY),
            (b"a: *x", Code::UNKNOWN_ALIAS),
            (b"[a]: b", Code::BAD_KEY),
            (b"~: b", Code::BAD_KEY),
            (b"a: !vault b", Code::TAG),
            (b"a: &x {b: c}\nd: {<<: *x}", Code::MERGE_KEY),
            (b"a: &x 1\n---\nb: *x", Code::UNKNOWN_ALIAS),
        ] {
            assert_eq!(codes(text), [code], "{}", String::from_utf8_lossy(text));
        }
        assert_eq!(codes(b"a: !!str 1\nb: !!int 2"), []);
    }
}
