//! `$patch: delete`: finding the deletions in a patch, and carrying them out.

use std::fmt;

use ichor_model::{Code, Finding, Findings, Span};

use crate::{
    document::{
        Document, Identity, Map, Node, Value,
        raw::{Raw, RawKind, show},
    },
    schema::{Field, Struct, Type},
};

/// What is to be deleted.
#[derive(Debug, Clone)]
pub struct Selector {
    /// The document.
    pub identity: Identity,
    path: Vec<Step>,
    /// For items of a list: the first of them that has this field with this text.
    item: Option<(String, String)>,
    at: Option<Span>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Key(String),
    Item(usize),
}

impl Selector {
    /// Whether the whole document is to go.
    pub const fn is_document(&self) -> bool {
        self.path.is_empty()
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.path))
    }
}

/// Writes a path as Talos does in its messages: `machine.disks.[0]`.
fn shown(path: &[Step]) -> String {
    let words = path.iter().map(|step| match step {
        Step::Key(key) => show(key),
        Step::Item(i) => format!("[{i}]"),
    });
    words.collect::<Vec<_>>().join(".")
}

/// Takes the deletions out of a document; also says whether nothing remains to be merged.
pub fn take(raw: &mut Raw, findings: &mut Findings) -> (Vec<Selector>, bool) {
    let mut finder = Finder { identity: identity(raw), found: Vec::new(), findings, path: Vec::new() };
    let gone = finder.walk(raw, false);
    (finder.found, gone || names_only(raw))
}

/// Returns the identity by the keys alone: any `name` counts here.
fn identity(raw: &Raw) -> Identity {
    let text = |key: &str| raw.get(key).and_then(Raw::text).unwrap_or_default().to_owned();
    match (text("apiVersion"), text("kind")) {
        (api_version, kind) if api_version.is_empty() && kind.is_empty() => Identity::legacy(),
        (api_version, kind) => Identity { api_version, kind, name: text("name") },
    }
}

/// Whether a document says no more than which one it is. `apiVersion` does not count: Talos goes
/// on to merge such a document, which can reset sizes and expressions in it.
fn names_only(raw: &Raw) -> bool {
    match &raw.kind {
        RawKind::Map(entries) => entries.iter().all(|(key, value)| {
            matches!(value.kind, RawKind::Scalar { .. })
                && ["version", "kind", "name"].contains(&key.text.as_str())
        }),
        _ => false,
    }
}

struct Finder<'a> {
    identity: Identity,
    found: Vec<Selector>,
    findings: &'a mut Findings,
    path: Vec<Step>,
}

impl Finder<'_> {
    /// Walks down and takes out what is to be deleted. Returns whether the value itself goes.
    fn walk(&mut self, raw: &mut Raw, in_list: bool) -> bool {
        match &mut raw.kind {
            RawKind::Scalar { .. } => false,
            RawKind::Map(entries) => {
                if let Some(at) = entries.iter().position(|(key, _)| key.text == "$patch") {
                    let place = entries[at].0.at.or(raw.at);
                    if entries[at].1.text() != Some("delete") {
                        self.not_delete(place);
                        return false;
                    }
                    let item = entries.iter().find(|(key, _)| key.text != "$patch");
                    let item = item.map(|(key, value)| (key.text.clone(), scalar_text(value)));
                    self.found_one(in_list, item, place);
                    return true;
                }
                let had = entries.len();
                entries.retain_mut(|(key, value)| {
                    self.path.push(Step::Key(key.text.clone()));
                    let gone = self.walk(value, false);
                    self.path.pop();
                    !gone
                });
                had > 0 && entries.is_empty()
            }
            RawKind::List(items) => {
                let had = items.len();
                let mut index = 0;
                items.retain_mut(|item| {
                    self.path.push(Step::Item(index));
                    let gone = self.walk(item, true);
                    self.path.pop();
                    index += usize::from(!gone);
                    !gone
                });
                had > 0 && items.is_empty()
            }
        }
    }

    fn found_one(&mut self, in_list: bool, item: Option<(String, String)>, at: Option<Span>) {
        let problem = self.problem(in_list, item.is_some());
        if let Some((message, remedy)) = problem {
            self.findings.push(Finding::error(Code::BAD_KEY, at, message).remedy(remedy));
            return;
        }
        let item = item.filter(|_| in_list);
        self.found.push(Selector { identity: self.identity.clone(), path: self.path.clone(), item, at });
    }

    /// Says why something cannot be deleted at all, and what to do instead.
    fn problem(&self, in_list: bool, item: bool) -> Option<(String, &'static str)> {
        let path = shown(&self.path);
        let inside_item = self.path.iter().any(|step| matches!(step, Step::Item(_)));
        let legacy = self.identity == Identity::legacy();
        if in_list && !item {
            let message = format!("no key:val found in sequence node for path {path}");
            return Some((message, "name the item by one of its fields beside `$patch: delete`"));
        }
        if !in_list && inside_item {
            let message = format!("cannot delete an inner key in '{path}'");
            return Some((message, "delete the item of the list and add it anew in a second patch"));
        }
        if legacy && self.path.is_empty() {
            let message = "can't delete the root of the legacy document".to_owned();
            return Some((
                message,
                "delete keys of it; for another document write its `apiVersion` and `kind`",
            ));
        }
        if !legacy && self.identity.api_version.is_empty() != self.identity.kind.is_empty() {
            let message = format!("kind and apiVersion must be both set for path {path}");
            return Some((message, "write `apiVersion: v1alpha1` and the kind"));
        }
        None
    }

    fn not_delete(&mut self, at: Option<Span>) {
        self.findings.push(
            Finding::error(
                Code::BAD_CHOICE,
                at,
                format!("`$patch` at '{}' is not `delete`", shown(&self.path)),
            )
            .because("Talos knows no other directive")
            .remedy("write `$patch: delete`, or remove the key"),
        );
    }
}

/// Returns the text of a scalar as Talos compares it; maps and lists have none.
fn scalar_text(raw: &Raw) -> String {
    match &raw.kind {
        RawKind::Scalar { text, .. } => text.clone(),
        _ => String::new(),
    }
}

/// Says that the document is not there.
pub fn missing_document(selector: &Selector) -> Finding {
    let message = format!("there is no document {} to delete from", selector.identity);
    Finding::error(Code::PATCH_MISSES, selector.at, message)
        .because("Talos before 1.14 writes a broken config in this case")
        .remedy("remove the deletion, or make the patch one for machines that have the document")
}

/// Carries a deletion out.
pub fn apply(document: &mut Document, selector: &Selector, release: u8) -> Result<(), Finding> {
    let Some(kind) = document.schema() else { return Ok(()) };
    let label = document.identity().clone();
    let walk = Walk { selector, release };
    walk.in_fields(document.body_mut(), &kind.body, &selector.path).map_err(|why| {
        let place = format!("{}/{}", label.api_version, label.kind);
        let message = format!(
            "patch delete: path '{selector}' in document '{place}': failed to delete path '{selector}': {why}"
        );
        Finding::error(Code::PATCH_MISSES, selector.at, message)
            .because("Talos refuses to delete what is not there")
            .remedy(match why {
                Why::Lookup => "check the path; for an item of a list name it by a field that holds text",
                Why::Deep => "delete the outer item and add it anew in a second patch",
            })
    })
}

#[derive(Debug, Clone, Copy)]
enum Why {
    Lookup,
    Deep,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lookup => "lookup failed",
            Self::Deep => "searching for complex paths in slices is not supported",
        })
    }
}

struct Walk<'a> {
    selector: &'a Selector,
    release: u8,
}

impl Walk<'_> {
    fn in_fields(&self, map: &mut Map, body: &Struct, path: &[Step]) -> Result<(), Why> {
        let (Step::Key(key), rest) = path.split_first().ok_or(Why::Lookup)? else { return Err(Why::Lookup) };
        let field = body.field(key).ok_or(Why::Lookup)?;
        if rest.is_empty() {
            map.remove(key);
            return Ok(());
        }
        match (field.kind, map.get_mut(key)) {
            // A struct that Talos holds by value is always there, if only as zeros.
            (Type::Struct(inner), None) if !field.optional => self.in_fields(&mut Map::new(), inner, rest),
            (_, None) => Err(Why::Lookup),
            (kind, Some(node)) => self.in_value(node, kind, rest),
        }
    }

    fn in_value(&self, node: &mut Node, kind: Type, path: &[Step]) -> Result<(), Why> {
        match (kind, &mut node.value) {
            (Type::Struct(body), Value::Map(map)) => self.in_fields(map, body, path),
            (Type::Map(item), Value::Map(map)) => self.in_map(map, Some(*item), path),
            // Talos looks into free-form values since 1.12.
            (Type::Free, Value::Map(map)) if self.release >= 12 => self.in_map(map, None, path),
            (Type::List(item), Value::List(items)) => self.in_list(items, *item, path),
            _ => Err(Why::Lookup),
        }
    }

    /// Deletes a key of a map; without an item type the map is free-form.
    fn in_map(&self, map: &mut Map, item: Option<Type>, path: &[Step]) -> Result<(), Why> {
        let (Step::Key(key), rest) = path.split_first().ok_or(Why::Lookup)? else { return Err(Why::Lookup) };
        if rest.is_empty() {
            return map.remove(key).map(drop).ok_or(Why::Lookup);
        }
        let node = map.get_mut(key).ok_or(Why::Lookup)?;
        self.in_value(node, item.unwrap_or(Type::Free), rest)
    }

    fn in_list(&self, items: &mut Vec<Node>, item: Type, path: &[Step]) -> Result<(), Why> {
        let [Step::Item(_)] = path else { return Err(Why::Deep) };
        let (Some((key, text)), Type::Struct(body)) = (&self.selector.item, item) else {
            return Err(Why::Lookup);
        };
        let field = body.field(key).ok_or(Why::Lookup)?;
        let found = items.iter().position(|node| self.text_of(node, field).as_deref() == Some(text));
        items.remove(found.ok_or(Why::Lookup)?);
        Ok(())
    }

    /// Returns the text by which Talos compares a field: before 1.12 only text has one.
    fn text_of(&self, node: &Node, field: &Field) -> Option<String> {
        let kind = field.kind;
        let own = matches!(kind, Type::Text | Type::Manifest);
        let written = matches!(
            kind,
            Type::Url(_)
                | Type::Enum(_)
                | Type::Table
                | Type::Address
                | Type::Prefix
                | Type::AddressPort
                | Type::Mac
                | Type::Duration
                | Type::Expression
                | Type::Octal
                | Type::PortRange
        );
        if !(own || written && self.release >= 12) {
            return None;
        }
        Some(match node.get(field.name).map(|node| &node.value) {
            Some(Value::Text(text)) => text.clone(),
            Some(Value::Octal(mode)) => format!("0o{mode:o}"),
            Some(Value::Int(port)) => format!("{port}-{port}"),
            _ if field.optional => return None,
            _ => zero_text(kind)?.to_owned(),
        })
    }
}

/// Returns the text that Talos has for a value that is not set.
const fn zero_text(kind: Type) -> Option<&'static str> {
    match kind {
        Type::Text | Type::Manifest | Type::Mac | Type::Expression => Some(""),
        Type::Enum(words) => words.zero,
        Type::Table => Some("unspec"),
        Type::Duration => Some("0s"),
        Type::Octal => Some("0o0"),
        Type::PortRange => Some("0-0"),
        Type::Address => Some("invalid IP"),
        Type::Prefix => Some("invalid Prefix"),
        Type::AddressPort => Some("invalid AddrPort"),
        _ => None,
    }
}
