//! YAML as a tree of values with their places.
//!
//! Text is kept as it was written: whether `1.30` is a number or a version is for the reader of
//! that key to say. Limits on size, depth and alias expansion bound the work on hostile input.

use std::collections::{BTreeMap, BTreeSet};

use ichor_model::{Code, Finding, Findings, SourceId, Span};
use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, ScanError, Span as Range};

/// Largest file that is read.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Deepest nesting.
const MAX_DEPTH: usize = 64;
/// Most values in a file.
const MAX_NODES: usize = 1_000_000;
/// Most values that aliases may add.
const MAX_ALIAS_NODES: usize = 100_000;

/// The key that merges maps in YAML 1.1.
const MERGE: &str = "<<";

/// A value and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its place; for a map or list that has a key, the place of the key.
    pub span: Span,
    /// The value.
    pub kind: Kind,
}

/// What a value is, before anybody asks what it means.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// Nothing: an empty value, `~` or `null`.
    Null,
    /// A single value.
    Scalar {
        /// Its text.
        text: String,
        /// Whether it stands without quotes, so that readers may take it for something else.
        plain: bool,
    },
    /// A list.
    List(Vec<Node>),
    /// A map, in the order of the file.
    Map(Vec<(Key, Node)>),
}

/// A key and where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// The text.
    pub text: String,
    /// Its place.
    pub span: Span,
    /// Whether it stands without quotes, so that readers may take it for something else.
    pub plain: bool,
}

impl Node {
    /// Says what kind of value this is, for messages.
    pub const fn kind_word(&self) -> &'static str {
        match self.kind {
            Kind::Null => "nothing",
            Kind::Scalar { .. } => "a single value",
            Kind::List(_) => "a list",
            Kind::Map(_) => "a map",
        }
    }

    /// Returns the value of a key, if this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Self> {
        match &self.kind {
            Kind::Map(entries) => entries.iter().find(|(k, _)| k.text == key).map(|(_, node)| node),
            _ => None,
        }
    }
}

/// Reads one file. `None` means that it has no content; findings say why, if anything is wrong.
pub fn parse(source: SourceId, bytes: &[u8], findings: &mut Findings) -> Option<Node> {
    if bytes.len() > MAX_BYTES {
        findings.push(too_large(source, bytes.len()));
        return None;
    }
    let text = match decode(source, bytes) {
        Ok(text) => text,
        Err(finding) => {
            findings.push(finding);
            return None;
        }
    };
    let offset = bytes.len() - text.len();
    let mut builder = Builder { source, offset, ..Builder::default() };
    for event in Parser::new_from_str(text) {
        let step = match event {
            Ok((event, range)) => builder.take(event, range),
            Err(error) => Err(syntax(source, offset, text, &error)),
        };
        if let Err(stop) = step {
            findings.extend(builder.findings);
            findings.extend(stop);
            return None;
        }
    }
    findings.extend(builder.findings);
    builder.root
}

/// Says that a file is over the limit, for callers that do not even read it.
pub fn too_large(source: SourceId, bytes: usize) -> Finding {
    Finding::error(Code::TOO_LARGE, start_of(source), format!("the file has {bytes} bytes"))
        .because(format!("at most {MAX_BYTES} are read"))
        .remedy("check that this is the inventory; use groups with `count` instead of one entry per machine")
}

const fn start_of(source: SourceId) -> Span {
    Span { source, start: 0, end: 0 }
}

fn decode(source: SourceId, bytes: &[u8]) -> Result<&str, Finding> {
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(
            Finding::error(Code::NOT_UTF8, start_of(source), "the file is UTF-16").remedy("save it as UTF-8")
        );
    }
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

/// Offsets fit because no file over [`MAX_BYTES`] is read.
fn to_u32(offset: usize) -> u32 {
    u32::try_from(offset).unwrap_or(u32::MAX)
}

fn syntax(source: SourceId, offset: usize, text: &str, error: &ScanError) -> Findings {
    let tabs: Findings = tab_indents(text)
        .map(|(start, end)| {
            let span = Span { source, start: to_u32(offset + start), end: to_u32(offset + end) };
            Finding::error(Code::TAB, span, "a tab indents this line").remedy("indent with spaces")
        })
        .take(20)
        .collect();
    if !tabs.is_empty() {
        return tabs;
    }
    let at = to_u32(offset + error.marker().byte_offset().unwrap_or(0).min(text.len()));
    let what = error.to_string();
    let what = what.split(" at byte").next().unwrap_or(&what);
    let what = what.split(" at char").next().unwrap_or(what);
    let (code, message) = match what {
        deep if deep.contains("nesting") || deep.contains("recursion") => {
            (Code::TOO_DEEP, "values are nested too deeply".to_owned())
        }
        alias if alias.contains("unknown anchor") || alias.contains("unresolved alias") => {
            (Code::UNKNOWN_ALIAS, "this alias has no anchor before it".to_owned())
        }
        other => (Code::SYNTAX, format!("this is not valid YAML: {}", in_plain_words(other))),
    };
    let remedy = match code {
        Code::SYNTAX => "check the indentation, colons and quotes here and on the line before",
        Code::TOO_DEEP => "nest values less deeply",
        _ => "mark the value with `&name` before using `*name`, or write it out",
    };
    Findings::from_iter([Finding::error(code, Span { source, start: at, end: at }, message).remedy(remedy)])
}

/// Says the parser's most frequent complaints without its terms.
fn in_plain_words(complaint: &str) -> &str {
    const WORDS: &[(&str, &str)] = &[
        ("simple key expected ':'", "a key has no colon with a space after it"),
        (
            "mapping values are not allowed",
            "a second colon stands in this line, or the line before is not finished",
        ),
        ("did not find expected key", "this line is indented differently from its neighbours"),
        ("did not find expected '-'", "this line is indented differently from its neighbours"),
        ("invalid indentation", "this line is indented differently from its neighbours"),
        ("entries are not allowed", "a list cannot begin here"),
        ("expected ',' or ']'", "a comma or `]` is missing"),
        ("expected ',' or '}'", "a comma or `}` is missing"),
    ];
    WORDS.iter().find(|(theirs, _)| complaint.contains(theirs)).map_or(complaint, |(_, ours)| ours)
}

/// Finds the tabs in the indentation of lines, as byte ranges.
fn tab_indents(text: &str) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut start = 0;
    text.split_inclusive('\n').filter_map(move |line| {
        let line_start = start;
        start += line.len();
        let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
        let tab = line[..indent].find('\t')?;
        Some((line_start + tab, line_start + indent))
    })
}

/// A map or list whose end has not been seen.
#[derive(Debug)]
struct Open {
    span: Span,
    anchor: usize,
    content: OpenKind,
    nodes_before: usize,
}

#[derive(Debug)]
enum OpenKind {
    List(Vec<Node>),
    Map { entries: Vec<(Key, Node)>, seen: BTreeMap<String, Span>, key: Option<Key> },
}

#[derive(Debug, Default)]
struct Builder {
    source: SourceId,
    /// Bytes before the text, when it begins with a byte-order mark.
    offset: usize,
    findings: Findings,
    open: Vec<Open>,
    root: Option<Node>,
    documents: usize,
    nodes: usize,
    alias_nodes: usize,
    anchors: BTreeMap<usize, (Node, usize)>,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, range: Range) -> Result<(), Findings> {
        let span = self.span(range);
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(one(Finding::error(
                        Code::MANY_DOCUMENTS,
                        span,
                        "a second document begins here",
                    )
                    .remedy("remove the `---` line, or move the document to a file of its own")));
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.check_tag(tag.is_some(), span);
                self.count(1, span)?;
                let node = scalar(text.into_owned(), style, span);
                self.remember(anchor, &node, 1);
                self.place(node, span)?;
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.check_tag(tag.is_some(), span);
                self.begin(span, anchor, OpenKind::List(Vec::new()))?;
            }
            Event::MappingStart(_, anchor, tag) => {
                self.check_tag(tag.is_some(), span);
                let map = OpenKind::Map { entries: Vec::new(), seen: BTreeMap::new(), key: None };
                self.begin(span, anchor, map)?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.finish()?,
            Event::Alias(anchor) => self.alias(anchor, span)?,
            _ => {}
        }
        Ok(())
    }

    fn span(&self, range: Range) -> Span {
        let at = |offset: Option<usize>| to_u32(self.offset + offset.unwrap_or(0));
        let start = at(range.start.byte_offset());
        Span { source: self.source, start, end: at(range.end.byte_offset()).max(start) }
    }

    fn check_tag(&mut self, tagged: bool, span: Span) {
        if tagged {
            self.findings.push(
                // Tags such as `!vault` stand before secrets, and `!Passw0rd` is a tag to YAML.
                Finding::error(Code::TAG, span, "a YAML tag stands here")
                    .remedy("remove it, or quote text that begins with `!`; secrets are references such as `{env: NAME}`")
                    .private(),
            );
        }
    }

    fn count(&mut self, nodes: usize, span: Span) -> Result<(), Findings> {
        self.nodes += nodes;
        if self.nodes <= MAX_NODES {
            return Ok(());
        }
        Err(one(Finding::error(Code::TOO_LARGE, span, format!("the file has more than {MAX_NODES} values"))
            .remedy("use groups with `count`, or split the inventory")))
    }

    fn begin(&mut self, span: Span, anchor: usize, content: OpenKind) -> Result<(), Findings> {
        if self.open.len() >= MAX_DEPTH {
            return Err(one(Finding::error(
                Code::TOO_DEEP,
                span,
                format!("values are nested more than {MAX_DEPTH} deep"),
            )
            .remedy("nest values less deeply")));
        }
        self.count(1, span)?;
        // A map or list is pointed at by its key: its own text may go on for pages.
        let span = self.pending_key().map_or(Span { end: span.start, ..span }, |key| key.span);
        self.open.push(Open { span, anchor, content, nodes_before: self.nodes - 1 });
        Ok(())
    }

    fn pending_key(&self) -> Option<&Key> {
        match self.open.last() {
            Some(Open { content: OpenKind::Map { key, .. }, .. }) => key.as_ref(),
            _ => None,
        }
    }

    fn finish(&mut self) -> Result<(), Findings> {
        let Some(Open { span, anchor, content, nodes_before }) = self.open.pop() else {
            return Ok(());
        };
        let kind = match content {
            OpenKind::List(items) => Kind::List(items),
            OpenKind::Map { entries, .. } => Kind::Map(merged(entries)),
        };
        let node = Node { span, kind };
        self.remember(anchor, &node, self.nodes - nodes_before);
        self.place(node, span)
    }

    fn remember(&mut self, anchor: usize, node: &Node, nodes: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), nodes));
        }
    }

    fn alias(&mut self, anchor: usize, span: Span) -> Result<(), Findings> {
        let Some((node, nodes)) = self.anchors.get(&anchor) else {
            return Err(one(Finding::error(
                Code::UNKNOWN_ALIAS,
                span,
                "this alias stands inside the value it repeats",
            )
            .remedy("write the value out")));
        };
        self.alias_nodes += nodes;
        if self.alias_nodes > MAX_ALIAS_NODES {
            return Err(one(Finding::error(
                Code::ALIAS_BOMB,
                span,
                format!("aliases expand to more than {MAX_ALIAS_NODES} values"),
            )
            .remedy("repeat less with `defaults`, `roles` and `like`")));
        }
        let (node, nodes) = (node.clone(), *nodes);
        self.count(nodes, span)?;
        self.place(node, span)
    }

    /// Puts a finished value where it belongs: the root, a list, or a map as key or value.
    fn place(&mut self, node: Node, span: Span) -> Result<(), Findings> {
        match self.open.last_mut().map(|open| &mut open.content) {
            None => self.root = Some(node),
            Some(OpenKind::List(items)) => items.push(node),
            Some(OpenKind::Map { entries, seen, key }) => match key.take() {
                None => *key = Some(as_key(node, span, &mut self.findings)?),
                Some(name) => match seen.get(&name.text) {
                    Some(first) => self.findings.push(written_twice(&name, *first)),
                    None => {
                        seen.insert(name.text.clone(), name.span);
                        entries.push((name, node));
                    }
                },
            },
        }
        Ok(())
    }
}

fn written_twice(key: &Key, first: Span) -> Finding {
    let message = format!("`{}` is written twice", show(&key.text));
    let finding = Finding::error(Code::DUPLICATE_KEY, key.span, message)
        .see(first, "first written here")
        .remedy("keep one of them");
    if names_a_secret(&key.text) { finding.private() } else { finding }
}

/// Whether a key may stand before a secret, so that its line must not be shown.
pub(crate) fn names_a_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["token", "secret", "passw", "credential", "auth", "key"].iter().any(|word| key.contains(word))
}

fn one(finding: Finding) -> Findings {
    Findings::from_iter([finding])
}

fn scalar(text: String, style: ScalarStyle, span: Span) -> Node {
    let plain = style == ScalarStyle::Plain;
    let kind = match text.as_str() {
        "" | "~" | "null" | "Null" | "NULL" if plain => Kind::Null,
        _ => Kind::Scalar { text, plain },
    };
    Node { span, kind }
}

/// Does what a merge key means: it has been reported, and what it brings is not missing as well.
fn merged(entries: Vec<(Key, Node)>) -> Vec<(Key, Node)> {
    let (merges, mut own): (Vec<_>, Vec<_>) = entries.into_iter().partition(|(key, _)| key.text == MERGE);
    if merges.is_empty() {
        return own;
    }
    let mut seen: BTreeSet<String> = own.iter().map(|(key, _)| key.text.clone()).collect();
    let brought = merges.into_iter().flat_map(|(_, node)| match node.kind {
        Kind::List(items) => items,
        kind => vec![Node { span: node.span, kind }],
    });
    for node in brought {
        let Kind::Map(more) = node.kind else { continue };
        own.extend(more.into_iter().filter(|(key, _)| seen.insert(key.text.clone())));
    }
    own
}

fn as_key(node: Node, span: Span, findings: &mut Findings) -> Result<Key, Findings> {
    match node.kind {
        Kind::Scalar { text, plain } => {
            if text == MERGE {
                findings.push(
                    Finding::error(Code::MERGE_KEY, node.span, "`<<` is not part of YAML 1.2")
                        .remedy("use `defaults`, `roles` or `like: NAME`"),
                );
            }
            Ok(Key { text, span: node.span, plain })
        }
        _ => {
            let message = format!("{} stands where a key is wanted", node.kind_word());
            let remedy = "write a word; quote it if it looks like something else";
            Err(one(Finding::error(Code::BAD_KEY, span, message).remedy(remedy)))
        }
    }
}

/// Makes text safe to stand in a message: no character of it can do anything to a terminal.
pub fn printable(text: &str) -> String {
    let safe = |c: char| match c {
        '\'' | '"' | '\\' => c.to_string(),
        _ => c.escape_debug().collect(),
    };
    text.chars().map(safe).collect()
}

/// Makes text safe and short enough to stand in a message.
pub fn show(text: &str) -> String {
    const LONGEST: usize = 60;
    if text.is_empty() {
        return "\"\"".into();
    }
    let start: String = text.chars().take(LONGEST).collect();
    let mut shown = printable(&start);
    if text.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn codes(text: &[u8]) -> Vec<String> {
        let mut findings = Findings::new();
        parse(SourceId(0), text, &mut findings);
        findings.iter().map(|finding| finding.code.to_string()).collect()
    }

    fn tree(text: &str) -> Node {
        let mut findings = Findings::new();
        let node = parse(SourceId(0), text.as_bytes(), &mut findings);
        assert!(findings.is_empty(), "{findings:?}");
        node.expect("content")
    }

    #[test]
    fn places_are_byte_ranges() {
        let text = "\u{feff}a: {é: x}\n";
        let node = tree(text);
        let inner = node.get("a").and_then(|a| a.get("é")).expect("a.é");
        let Span { start, end, .. } = inner.span;
        assert_eq!(&text.as_bytes()[start as usize..end as usize], b"x");
    }

    #[test]
    fn aliases_repeat_values() {
        let node = tree("a: &x {k: v}\nb: *x\n");
        assert_eq!(node.get("b").and_then(|b| b.get("k")), node.get("a").and_then(|a| a.get("k")));
    }

    #[test]
    fn a_merge_key_is_reported_once_and_then_followed() {
        let text = b"a: &a {x: 1, y: 2}\nb: &b {z: 3}\nc:\n  <<: [*a, *b]\n  y: 4\n";
        let mut findings = Findings::new();
        let node = parse(SourceId(0), text, &mut findings).expect("content");
        assert_eq!(findings.iter().map(|finding| finding.code).collect::<Vec<_>>(), [Code::MERGE_KEY]);
        let Some(Node { kind: Kind::Map(entries), .. }) = node.get("c") else { panic!("a map") };
        let shown = entries.iter().map(|(key, node)| match &node.kind {
            Kind::Scalar { text, .. } => format!("{}{text}", key.text),
            _ => String::new(),
        });
        assert_eq!(shown.collect::<Vec<_>>(), ["y4", "x1", "z3"]);
    }

    #[test]
    fn hostile_input_is_refused_early() {
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
        for i in 1..12 {
            let previous = format!("*a{}", i - 1);
            bomb += &format!("a{i}: &a{i} [{}]\n", [previous.as_str(); 9].join(","));
        }
        assert_eq!(codes(bomb.as_bytes()), ["ICH-1007"]);
        assert_eq!(codes("[".repeat(100_000).as_bytes()), ["ICH-1006"]);
        let deep: String = (0..80).map(|i| format!("{}k:\n", " ".repeat(i))).collect();
        assert_eq!(codes(deep.as_bytes()), ["ICH-1006"]);
        assert_eq!(codes(&vec![b'a'; MAX_BYTES + 1]), ["ICH-1002"]);
        assert_eq!(codes(b"a: &x [*x]\n"), ["ICH-1010"]);
    }

    #[test]
    fn each_syntax_mistake_has_its_code() {
        for (text, code) in [
            (&b"a: \xff"[..], "ICH-1003"),
            (b"\xff\xfea\0", "ICH-1003"),
            (b"a: [1", "ICH-1004"),
            (b"a:\n\tb: c", "ICH-1005"),
            (b"a: 1\n---\nb: 2", "ICH-1008"),
            (b"a: 1\na: 2", "ICH-1009"),
            (b"a: *x", "ICH-1010"),
            (b"[a]: b", "ICH-1011"),
            (b"a: !vault b", "ICH-1012"),
            (b"a: &x {b: c}\nd: {<<: *x}", "ICH-1013"),
        ] {
            assert_eq!(codes(text), [code], "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn shown_text_is_short_and_has_no_control_characters() {
        assert_eq!(show("a\u{1b}[31m\n"), "a\\u{1b}[31m\\n");
        assert_eq!(show(&"x".repeat(100)).chars().count(), 61);
    }
}
