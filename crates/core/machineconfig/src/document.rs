//! Machine configs: an ordered list of documents, the legacy one first.

mod node;
pub(crate) mod quantity;
pub(crate) mod raw;
pub(crate) mod read;
pub(crate) mod scalar;
pub(crate) mod typed;
pub(crate) mod url;

use std::fmt;

use ichor_model::{Code, Finding, Findings, SourceId, Span};
use serde_json::Value as Json;

pub use node::{Key, Map, Node, Value};
use raw::{Raw, RawKind, Style, show};
use read::Reader;

use crate::{
    schema::{self, Kind},
    suggest::nearest,
};

pub use raw::MAX_BYTES;

/// A machine config.
#[derive(Clone, Default, PartialEq)]
pub struct Config {
    documents: Vec<Document>,
}

/// One document of a machine config.
#[derive(Clone)]
pub struct Document {
    identity: Identity,
    /// Its fields, without `apiVersion` and `kind`.
    body: Map,
    at: Option<Span>,
}

/// What tells a document apart from all others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// `v1alpha1`; empty for the legacy document.
    pub api_version: String,
    /// The kind; `v1alpha1` for the legacy document.
    pub kind: String,
    /// The name, of kinds that have one.
    pub name: String,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", show(&self.api_version), show(&self.kind), show(&self.name))
    }
}

impl Identity {
    /// Returns the identity of the legacy document.
    pub fn legacy() -> Self {
        Self { api_version: String::new(), kind: schema::LEGACY.name.to_owned(), name: String::new() }
    }

    /// Names the document in messages.
    pub fn label(&self) -> String {
        match (self.kind.as_str(), self.name.as_str()) {
            ("v1alpha1", _) => "the v1alpha1 document".to_owned(),
            (kind, "") => show(kind),
            (kind, name) => format!("{} `{}`", show(kind), show(name)),
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.documents).finish()
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.identity)
    }
}

impl PartialEq for Document {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity && self.body == other.body
    }
}

impl Config {
    /// Reads a config and refuses it if anything about its form is wrong.
    pub fn parse(source: SourceId, bytes: &[u8]) -> Result<Self, Findings> {
        let (config, findings) = Self::read(source, bytes);
        if findings.has_errors() { Err(findings) } else { Ok(config) }
    }

    /// Reads as much of a config as can be read, and says what is wrong with the rest.
    ///
    /// Unknown kinds and keys are kept, so that the config of a newer Talos is not maimed.
    pub fn read(source: SourceId, bytes: &[u8]) -> (Self, Findings) {
        match raw::parse(source, bytes) {
            Ok(raws) => Self::from_raws(&raws),
            Err(findings) => (Self::default(), findings),
        }
    }

    /// Makes a config of JSON values, one for each document.
    pub fn from_json(documents: &[Json]) -> Result<Self, Findings> {
        let raws: Vec<Raw> = documents.iter().map(|json| raw::from_json(json, Style::Json)).collect();
        let (config, findings) = Self::from_raws(&raws);
        if findings.has_errors() { Err(findings) } else { Ok(config) }
    }

    /// Makes a config of one document.
    pub(crate) fn from_raw(raw: &Raw) -> Result<Self, Findings> {
        let (config, findings) = Self::from_raws(std::slice::from_ref(raw));
        if findings.has_errors() { Err(findings) } else { Ok(config) }
    }

    fn from_raws(raws: &[Raw]) -> (Self, Findings) {
        let mut findings = Findings::new();
        let mut config = Self::default();
        for raw in raws {
            if let Some(document) = Document::read(raw, &mut findings) {
                match config.documents.iter().find(|other| other.identity == document.identity) {
                    Some(first) => findings.push(twice(&document, first)),
                    None => config.push(document),
                }
            }
        }
        (config, findings)
    }

    /// Adds a document, or replaces the one with the same identity. The legacy one comes first.
    pub fn push(&mut self, document: Document) {
        let same = self.documents.iter_mut().find(|other| other.identity == document.identity);
        match same {
            Some(old) => *old = document,
            None if document.is_legacy() => self.documents.insert(0, document),
            None => self.documents.push(document),
        }
    }

    /// Takes a document out.
    pub fn remove(&mut self, identity: &Identity) -> Option<Document> {
        let at = self.documents.iter().position(|document| document.identity == *identity)?;
        Some(self.documents.remove(at))
    }

    /// Returns the documents, the legacy one first.
    pub fn documents(&self) -> &[Document] {
        &self.documents
    }

    /// Returns a document by its identity, to be changed.
    pub(crate) fn get_mut(&mut self, identity: &Identity) -> Option<&mut Document> {
        self.documents.iter_mut().find(|document| document.identity == *identity)
    }

    /// Returns the legacy document, if there is one.
    pub fn legacy(&self) -> Option<&Document> {
        self.documents.iter().find(|document| document.is_legacy())
    }

    /// Returns the documents of a kind.
    pub fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Document> {
        self.documents.iter().filter(move |document| document.identity.kind == kind)
    }

    /// Returns a value of the legacy document by its dotted path, as in `machine.network.hostname`.
    pub fn legacy_value(&self, path: &str) -> Option<&Node> {
        self.legacy()?.value(path)
    }
}

fn twice(document: &Document, first: &Document) -> Finding {
    let message = format!("duplicate document {} is not allowed", document.identity);
    let mut finding = Finding::error(Code::CONFIG_REFUSED, document.at, message);
    if let Some(at) = first.at {
        finding = finding.see(at, "first written here");
    }
    finding.remedy("make one document of them, or give them different names")
}

impl Document {
    /// Returns what tells it apart.
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Whether this is the legacy document with `machine` and `cluster`.
    pub fn is_legacy(&self) -> bool {
        self.identity.api_version.is_empty() && self.identity.kind == schema::LEGACY.name
    }

    /// Returns its fields, without `apiVersion` and `kind`.
    pub const fn body(&self) -> &Map {
        &self.body
    }

    /// Returns its fields, to be changed.
    pub(crate) const fn body_mut(&mut self) -> &mut Map {
        &mut self.body
    }

    /// Returns where it begins.
    pub const fn at(&self) -> Option<Span> {
        self.at
    }

    /// Returns what Talos knows of its kind.
    pub fn schema(&self) -> Option<&'static Kind> {
        schema::kind(&self.identity.kind)
            .filter(|kind| kind.is_legacy() || self.identity.api_version == API_VERSION)
    }

    /// Returns a value by its dotted path.
    pub fn value(&self, path: &str) -> Option<&Node> {
        let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
        let node = self.body.get(first)?;
        rest.map_or(Some(node), |rest| node.at_path(rest))
    }

    /// Makes a document with the same identity and other fields.
    pub(crate) fn with_body(&self, body: Map) -> Self {
        Self { identity: self.identity.clone(), body, at: self.at }
    }

    /// Makes a document of a JSON value.
    pub fn from_json(value: &Json) -> Result<Self, Findings> {
        let mut findings = Findings::new();
        match Self::read(&raw::from_json(value, Style::Json), &mut findings) {
            Some(document) if !findings.has_errors() => Ok(document),
            _ => Err(findings),
        }
    }

    /// Makes a document of a kind without a name, with nothing in it.
    pub(crate) fn empty(kind: &str) -> Self {
        let identity =
            Identity { api_version: API_VERSION.to_owned(), kind: kind.to_owned(), name: String::new() };
        Self { identity, body: Map::new(), at: None }
    }

    /// Reads one document.
    pub(crate) fn read(raw: &Raw, findings: &mut Findings) -> Option<Self> {
        Self::read_as(raw, findings, false)
    }

    /// Reads one document of a patch, which may say things that have no effect there.
    pub(crate) fn read_patch(raw: &Raw, findings: &mut Findings) -> Option<Self> {
        Self::read_as(raw, findings, true)
    }

    fn read_as(raw: &Raw, findings: &mut Findings, patch: bool) -> Option<Self> {
        let RawKind::Map(entries) = &raw.kind else {
            let message = format!("a document is {}", raw.word());
            let finding = Finding::error(Code::WRONG_TYPE, raw.at, message);
            findings.push(finding.remedy("write a map with `kind`, or one with `machine` and `cluster`"));
            return None;
        };
        let identity = identify(raw, findings)?;
        let label = identity.label();
        let mut reader = Reader::new(&label, findings);
        if identity == Identity::legacy() {
            reader.report_zeros = patch;
            let body = reader.fields(raw, &schema::LEGACY.body)?;
            return Some(Self { identity, body, at: raw.at });
        }
        let rest = entries.iter().filter(|(key, _)| key.text != "apiVersion" && key.text != "kind").cloned();
        let rest = Raw { at: raw.at, kind: RawKind::Map(rest.collect()) };
        let known = schema::kind(&identity.kind).filter(|_| identity.api_version == API_VERSION);
        let body = match known {
            Some(kind) => reader.fields(&rest, &kind.body)?,
            None => match reader.free(&rest)?.value {
                Value::Map(map) => map,
                _ => Map::new(),
            },
        };
        if known.is_none() {
            findings.push(unknown_kind(raw, &identity));
        }
        Some(Self { identity, body, at: raw.at })
    }
}

/// The only version of all kinds so far.
pub(crate) const API_VERSION: &str = "v1alpha1";

/// Keys that make a document without a kind the legacy one.
const LEGACY_KEYS: [&str; 4] = ["machine", "cluster", "debug", "persist"];

/// Finds out which document this is.
pub(crate) fn identify(raw: &Raw, findings: &mut Findings) -> Option<Identity> {
    let text = |key: &str| raw.get(key).and_then(Raw::text).unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let legacy = LEGACY_KEYS.iter().any(|key| raw.get(key).is_some()) || api_version == API_VERSION;
    // `kind: v1alpha1` is the legacy document to Talos, too, with a key that it does not know.
    if kind == schema::LEGACY.name {
        return Some(Identity::legacy());
    }
    if kind.is_empty() {
        if legacy {
            return Some(Identity::legacy());
        }
        findings.push(missing(raw, "kind"));
        return None;
    }
    if api_version.is_empty() {
        findings.push(missing(raw, "apiVersion"));
        return None;
    }
    let named = schema::kind(&kind).is_none_or(|kind| kind.named);
    Some(Identity { api_version, kind, name: if named { text("name") } else { String::new() } })
}

fn missing(raw: &Raw, key: &str) -> Finding {
    Finding::error(Code::MISSING_KEY, raw.at, format!("missing {key}"))
        .because("a document has `apiVersion` and `kind`, or it is the one with `machine` and `cluster`")
        .remedy(match key {
            "kind" => {
                "write `apiVersion: v1alpha1` and `kind: ...`, or put the keys under `machine` or `cluster`"
            }
            _ => "write `apiVersion: v1alpha1`",
        })
}

fn unknown_kind(raw: &Raw, identity: &Identity) -> Finding {
    let at = raw.get("kind").and_then(|kind| kind.at).or(raw.at);
    let message = format!("\"{}\" \"{}\": not registered", show(&identity.kind), show(&identity.api_version));
    let known: Vec<_> = schema::kinds().skip(1).map(|kind| kind.name).collect();
    let remedy = match nearest(&identity.kind, &known) {
        Some(same) if same == identity.kind => "write `apiVersion: v1alpha1`".to_owned(),
        Some(near) => format!("did you mean `{near}`?"),
        None => "check the kind: Talos refuses configs with kinds it does not know".to_owned(),
    };
    Finding::error(Code::CONFIG_KIND, at, message)
        .because(format!("Talos {} to {} have no such kind", schema::OLDEST, schema::NEWEST))
        .remedy(remedy)
}
