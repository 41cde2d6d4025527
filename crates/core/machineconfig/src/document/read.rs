//! From values as written to values as their fields understand them.

use std::fmt;

use ichor_model::{Code, Finding, Findings, Span};

use super::{
    Key, Map, Node, Value,
    quantity::parse_bytes,
    raw::{Raw, RawKind, Style, show},
    scalar::{Resolved, resolve},
    typed::{
        disk_size, is_zero, listed, read_address, read_address_port, read_base64, read_bool, read_duration,
        read_enum, read_int, read_mac, read_port_range, read_prefix, read_size, read_size_matcher,
        read_table, wanted,
    },
    url::Url,
};
use crate::{
    schema::{Field, Struct, Type},
    suggest::nearest,
};

/// Reads the fields of one document and collects what is wrong with them.
pub struct Reader<'a> {
    /// What is wrong.
    pub findings: &'a mut Findings,
    /// The document, for messages.
    pub document: &'a str,
    path: Path,
    /// Whether the value at hand may be a secret.
    secret: bool,
    unknown: usize,
    /// Whether to report zero values that a patch cannot set. Items of lists are new, so theirs are
    /// left alone.
    pub report_zeros: bool,
}

/// Most unknown keys that are reported of a document: a file of the wrong kind has thousands.
const MAX_UNKNOWN: usize = 50;

/// Where in a document a value is.
#[derive(Debug, Clone, Default)]
pub struct Path(Vec<Step>);

#[derive(Debug, Clone)]
enum Step {
    Key(String),
    Index(usize),
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if i == 0 => write!(f, "{}", show(key))?,
                Step::Key(key) => write!(f, ".{}", show(key))?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

impl Path {
    /// Goes down to a key.
    pub fn key(&mut self, key: &str) {
        self.0.push(Step::Key(key.to_owned()));
    }

    /// Goes down to an item of a list.
    pub fn index(&mut self, index: usize) {
        self.0.push(Step::Index(index));
    }

    /// Goes back up.
    pub fn up(&mut self) {
        self.0.pop();
    }
}

impl<'a> Reader<'a> {
    /// Starts at the root of a document.
    pub fn new(document: &'a str, findings: &'a mut Findings) -> Self {
        Self { findings, document, path: Path::default(), secret: false, unknown: 0, report_zeros: false }
    }

    fn problem(&mut self, code: Code, at: Option<Span>, what: &str, remedy: &str) {
        let message = format!("`{}` in {} {what}", self.path, self.document);
        let finding = Finding::error(code, at, message).remedy(remedy);
        self.findings.push(if self.secret { finding.private() } else { finding });
    }

    /// Reports a value that is not what the field takes, quoting it unless it may be a secret.
    fn wrong(&mut self, raw: &Raw, code: Code, wanted: &str) -> Option<Value> {
        let is = match &raw.kind {
            RawKind::Scalar { text, .. } if !self.secret && !raw.is_null() => format!("`{}`", show(text)),
            _ => raw.word().to_owned(),
        };
        self.problem(code, raw.at, &format!("is {is}"), &format!("write {wanted}"));
        None
    }

    fn mismatch(&mut self, raw: &Raw, wanted: &str) -> Option<Value> {
        self.wrong(raw, Code::WRONG_TYPE, wanted)
    }

    /// Reads a map with known keys. Unknown ones are reported and kept.
    pub fn fields(&mut self, raw: &Raw, body: &Struct) -> Option<Map> {
        let RawKind::Map(entries) = &raw.kind else {
            self.mismatch(raw, "a map");
            return None;
        };
        let mut map = Map::new();
        for field in body.fields {
            if let Some((key, value)) = entries.iter().find(|(key, _)| key.text == field.name) {
                self.path.key(field.name);
                let node = self.field(value, field);
                self.path.up();
                if let Some(node) = node {
                    map.push(key.clone(), node);
                }
            }
        }
        for (key, value) in entries.iter().filter(|(key, _)| body.field(&key.text).is_none()) {
            self.path.key(&key.text);
            self.unknown(key, body);
            if let Some(node) = self.free(value) {
                map.push(key.clone(), node);
            }
            self.path.up();
        }
        Some(map)
    }

    fn unknown(&mut self, key: &Key, body: &Struct) {
        self.unknown += 1;
        if self.unknown > MAX_UNKNOWN {
            return;
        }
        let known: Vec<_> = body.fields.iter().map(|field| field.name).collect();
        let remedy = match nearest(&key.text, &known) {
            Some(near) => format!("did you mean `{near}`?"),
            None if known.is_empty() => "remove it: there are no keys here".to_owned(),
            None => format!("remove it; the keys here are {}", listed(&known)),
        };
        let message = format!("`{}` in {} is not a key of Talos", self.path, self.document);
        self.findings.push(
            Finding::error(Code::CONFIG_KEY, key.at, message)
                .because("every Talos release refuses it: unknown keys found during decoding")
                .remedy(remedy),
        );
    }

    /// Reads the value of a field; nothing, and zero where Talos cannot tell, count as not set.
    fn field(&mut self, raw: &Raw, field: &Field) -> Option<Node> {
        let before = self.secret;
        self.secret |= field.secret;
        let node = if raw.is_null() { None } else { self.value(raw, field.kind) };
        self.secret = before;
        let zero = node.as_ref().is_some_and(|node| !field.optional && is_zero(field.kind, &node.value));
        if zero && self.report_zeros && matches!(raw.kind, RawKind::Scalar { .. }) {
            self.without_effect(raw);
        }
        node.filter(|_| !zero)
    }

    fn without_effect(&mut self, raw: &Raw) {
        let message = format!("`{}` in {} has no effect here", self.path, self.document);
        self.findings.push(
            Finding::warning(Code::EMPTY_VALUE, raw.at, message)
                .because(
                    "Talos cannot tell this value from one that was left out, so a patch keeps what is there",
                )
                .remedy(
                    "remove it; to reset the field, write `$patch: delete` as its value: `{$patch: delete}`",
                ),
        );
    }

    fn value(&mut self, raw: &Raw, kind: Type) -> Option<Node> {
        let value = match kind {
            Type::List(item) => self.list(raw, *item),
            Type::Map(item) => self.map(raw, *item),
            Type::Struct(body) | Type::Pem(body) => self.fields(raw, body).map(Value::Map),
            Type::Free if matches!(raw.kind, RawKind::Map(_)) => return self.free_root(raw),
            Type::Free => self.mismatch(raw, "a map"),
            Type::Argument if matches!(raw.kind, RawKind::List(_)) => self.list(raw, Type::Text),
            _ => self.scalar(raw, kind),
        };
        value.map(|value| Node { value, at: raw.at })
    }

    fn list(&mut self, raw: &Raw, item: Type) -> Option<Value> {
        let RawKind::List(items) = &raw.kind else { return self.mismatch(raw, "a list") };
        let mut list = Vec::with_capacity(items.len());
        let report_zeros = std::mem::take(&mut self.report_zeros);
        for (i, raw) in items.iter().enumerate() {
            self.path.index(i);
            if !raw.is_null() {
                list.extend(self.value(raw, item));
            } else if let Type::Struct(_) | Type::Pem(_) = item {
                // Talos 1.14 refuses these; older releases take them and stumble later.
                self.problem(
                    Code::EMPTY_VALUE,
                    raw.at,
                    "is nothing: a null value is not allowed here",
                    "remove the item",
                );
            }
            self.path.up();
        }
        self.report_zeros = report_zeros;
        Some(Value::List(list))
    }

    fn map(&mut self, raw: &Raw, item: Type) -> Option<Value> {
        let RawKind::Map(entries) = &raw.kind else { return self.mismatch(raw, "a map") };
        let mut map = Map::new();
        for (key, raw) in entries {
            self.path.key(&key.text);
            let node = if raw.is_null() { self.zero(raw, item) } else { self.value(raw, item) };
            if let Some(node) = node {
                map.push(key.clone(), node);
            }
            self.path.up();
        }
        Some(Value::Map(map))
    }

    /// Returns what nothing means as the value of a map's key.
    fn zero(&mut self, raw: &Raw, item: Type) -> Option<Node> {
        let value = match item {
            Type::Text | Type::Argument => Value::Text(String::new()),
            Type::Bool => Value::Bool(false),
            _ => {
                self.problem(
                    Code::EMPTY_VALUE,
                    raw.at,
                    "is nothing: a null value is not allowed here",
                    "write `{}` or remove the key",
                );
                return None;
            }
        };
        Some(Node { value, at: raw.at })
    }

    fn scalar(&mut self, raw: &Raw, kind: Type) -> Option<Value> {
        let RawKind::Scalar { text, style } = &raw.kind else {
            return self.mismatch(raw, wanted(kind));
        };
        let text = text.as_str();
        let read = match kind {
            Type::Text | Type::Argument | Type::Expression => Some(Value::Text(text.to_owned())),
            Type::Manifest => {
                Some(Value::Text(text.trim_start_matches(['\t', '\n', '\u{b}', '\u{c}', '\r']).to_owned()))
            }
            Type::Bool => read_bool(text, *style).map(Value::Bool),
            Type::Int(low, high) => read_int(text, *style)
                .filter(|int| (i128::from(low)..=i128::from(high)).contains(int))
                .map(Value::Int),
            Type::Octal => read_int(text, *style).and_then(|int| u32::try_from(int).ok()).map(Value::Octal),
            Type::Duration => read_duration(text).map(Value::Text),
            Type::Url(_) => return self.url(raw, text),
            Type::Enum(words) => read_enum(text, words).map(|word| Value::Text(word.to_owned())),
            Type::Table => read_table(text).map(Value::Text),
            Type::Address => read_address(text).map(Value::Text),
            Type::Prefix => read_prefix(text).map(Value::Text),
            Type::AddressPort => read_address_port(text).map(Value::Text),
            Type::Mac => read_mac(text).map(Value::Text),
            Type::ByteSize => read_size(text, false).map(Value::Text),
            Type::Size => read_size(text, true).map(Value::Text),
            Type::DiskSize => parse_bytes(text).map(disk_size),
            Type::SizeMatcher => read_size_matcher(text).map(Value::Text),
            Type::Base64 => read_base64(text).map(Value::Text),
            Type::PortRange => read_port_range(text, *style),
            Type::Free | Type::List(_) | Type::Map(_) | Type::Struct(_) | Type::Pem(_) => None,
        };
        if read.is_none() {
            return self.refused(raw, kind);
        }
        read
    }

    fn refused(&mut self, raw: &Raw, kind: Type) -> Option<Value> {
        let wanted = match kind {
            Type::Enum(words) => format!("one of {}", listed(words.words)),
            Type::Int(low, high) => format!("a whole number from {low} to {high}"),
            other => wanted(other).to_owned(),
        };
        let code = match kind {
            Type::Bool => Code::BAD_BOOLEAN,
            Type::Enum(_) => Code::BAD_CHOICE,
            Type::Address | Type::Prefix | Type::AddressPort => Code::BAD_ADDRESS,
            Type::Mac => Code::BAD_MAC,
            Type::ByteSize | Type::Size | Type::DiskSize | Type::SizeMatcher => Code::BAD_SIZE,
            Type::Base64 => Code::WRONG_TYPE,
            _ => Code::BAD_NUMBER,
        };
        self.wrong(raw, code, &wanted)
    }

    fn url(&mut self, raw: &Raw, text: &str) -> Option<Value> {
        match Url::parse(text) {
            Ok(url) => Some(Value::Text(url.to_string())),
            Err(what) => {
                self.problem(Code::BAD_URL, raw.at, what, "write a URL, as in `https://10.0.0.10:6443`");
                None
            }
        }
    }

    /// Reads the top of a free-form value, whose keys are text however they are written.
    fn free_root(&mut self, raw: &Raw) -> Option<Node> {
        let RawKind::Map(entries) = &raw.kind else { return None };
        let mut map = Map::new();
        for (key, value) in entries {
            self.path.key(&key.text);
            if let Some(node) = self.free(value) {
                map.push(key.clone(), node);
            }
            self.path.up();
        }
        Some(Node { value: Value::Map(map), at: raw.at })
    }

    /// Reads a value that no field describes.
    pub fn free(&mut self, raw: &Raw) -> Option<Node> {
        let value = match &raw.kind {
            RawKind::Scalar { text, style: Style::Plain } => self.free_plain(raw, text)?,
            RawKind::Scalar { text, .. } => Value::Text(text.clone()),
            RawKind::List(items) => {
                let mut list = Vec::with_capacity(items.len());
                for (i, item) in items.iter().enumerate() {
                    self.path.index(i);
                    list.extend(self.free(item));
                    self.path.up();
                }
                Value::List(list)
            }
            RawKind::Map(entries) => {
                for (key, _) in entries {
                    self.free_key(key);
                }
                return self.free_root(raw);
            }
        };
        Some(Node { value, at: raw.at })
    }

    fn free_plain(&mut self, raw: &Raw, text: &str) -> Option<Value> {
        Some(match resolve(text) {
            Resolved::Null => Value::Null,
            Resolved::Bool(switch) => Value::Bool(switch),
            Resolved::Int(int) => Value::Int(int),
            Resolved::Float(float) => Value::Float(float),
            Resolved::Text => Value::Text(text.to_owned()),
            Resolved::Time => {
                let what = "is a time to Talos, which cannot handle one here";
                self.problem(Code::AMBIGUOUS_TEXT, raw.at, what, "put it in quotes");
                return None;
            }
        })
    }

    /// Inside free-form values Talos tells `1: x` from `"1": x`, and fails on the former later.
    fn free_key(&mut self, key: &Key) {
        if key.plain && resolve(&key.text) != Resolved::Text {
            self.path.key(&key.text);
            let what = "has a key that is not text to Talos";
            self.problem(Code::BAD_KEY, key.at, what, "put the key in quotes");
            self.path.up();
        }
    }
}
