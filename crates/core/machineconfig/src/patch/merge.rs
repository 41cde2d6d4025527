//! Merging a document of a patch into the one that is there.
//!
//! Talos holds documents as Go structs, and its rules are rules about those: what a patch does not
//! mention is usually kept, but values that Talos cannot tell from "not set" (plain switches,
//! sizes, expressions) are reset along with everything else in their document.

use std::collections::BTreeMap;

use ichor_model::{Code, Finding, Findings, Span};

use crate::{
    document::{Document, Key, Map, Node, Value, read::Path, typed::is_zero, url::Url},
    schema::{Field, Keyed, Merge, Struct, Type},
};

/// Merges a document into one with the same identity.
pub fn document(mine: &mut Document, theirs: &Document, release: u8, findings: &mut Findings) {
    let Some(kind) = mine.schema() else {
        *mine = mine.with_body(theirs.body().clone());
        return;
    };
    let label = mine.identity().label();
    let mut merger = Merger { release, document: &label, path: Path::default(), findings };
    merger.fields(mine.body_mut(), theirs.body(), &kind.body);
}

struct Merger<'a> {
    release: u8,
    document: &'a str,
    path: Path,
    findings: &'a mut Findings,
}

impl Merger<'_> {
    fn fields(&mut self, mine: &mut Map, theirs: &Map, body: &Struct) {
        for field in body.fields {
            self.path.key(field.name);
            match theirs.get(field.name) {
                Some(node) => self.field(mine, node, field),
                None => self.reset(mine, field),
            }
            self.path.up();
        }
        for (key, node) in theirs.iter().filter(|(key, _)| body.field(&key.text).is_none()) {
            mine.insert(key.clone(), node.clone());
        }
    }

    /// What happens to a field that the patch does not mention.
    fn reset(&mut self, mine: &mut Map, field: &Field) {
        if field.optional {
            return;
        }
        match field.kind {
            Type::Bool => {
                mine.remove(field.name);
            }
            // Their merge function takes over the patch's value, set or not; 1.8 has none yet.
            Type::ByteSize | Type::Expression if self.release >= 9 => {
                mine.remove(field.name);
            }
            // Sizes with percentages, which came in 1.12, are kept.
            Type::Size if (9..12).contains(&self.release) => {
                mine.remove(field.name);
            }
            Type::Struct(body) => {
                let Some(Node { value: Value::Map(map), .. }) = mine.get_mut(field.name) else { return };
                self.fields(map, &Map::new(), body);
                if map.is_empty() {
                    mine.remove(field.name);
                }
            }
            // Addresses held by value had no merge function before 1.14, so nothing merges.
            Type::Prefix | Type::Address if self.release < 14 => self.unmergeable(None),
            _ => {}
        }
    }

    fn field(&mut self, mine: &mut Map, theirs: &Node, field: &Field) {
        if self.cannot(field, theirs) {
            return;
        }
        let keyed = matches!(field.merge, Merge::Keyed(_));
        let by_value = matches!(field.kind, Type::Struct(_)) && !field.optional;
        if mine.get(field.name).is_none() {
            if !keyed && !by_value {
                mine.push(field.name.into(), theirs.clone());
                return;
            }
            let empty = if keyed { Value::List(Vec::new()) } else { Value::Map(Map::new()) };
            mine.push(field.name.into(), Node { value: empty, at: theirs.at });
        }
        let Some(slot) = mine.get_mut(field.name) else { return };
        match field.merge {
            Merge::Replace => *slot = theirs.clone(),
            Merge::ReplaceSince(since) if self.release >= since => *slot = theirs.clone(),
            Merge::Keyed(keyed) => self.keyed(slot, theirs, keyed, field.kind),
            _ if field.optional && self.ignores_zero(field, theirs) => {}
            _ => self.value(slot, theirs, field.kind),
        }
    }

    /// Before 1.12 an optional number that is set cannot be set to zero.
    fn ignores_zero(&self, field: &Field, theirs: &Node) -> bool {
        self.release < 12
            && !matches!(field.kind, Type::Bool)
            && is_zero(field.kind, &theirs.value)
            && !matches!(theirs.value, Value::Map(_))
    }

    /// Reports fields that this Talos fails to merge at all.
    fn cannot(&mut self, field: &Field, theirs: &Node) -> bool {
        let fails = match field.kind {
            Type::ByteSize | Type::Size | Type::Expression => self.release < 9,
            Type::Prefix | Type::Address => self.release < 14,
            _ => false,
        };
        if fails {
            self.unmergeable(theirs.at);
        }
        fails
    }

    fn unmergeable(&mut self, at: Option<Span>) {
        let message = format!("`{}` in {} cannot be patched", self.path, self.document);
        self.findings.push(
            Finding::error(Code::CONFIG_RELEASE, at, message)
                .because(format!(
                    "Talos 1.{} fails on it: merge not possible, left is not settable",
                    self.release
                ))
                .remedy("delete the document in one patch and write it whole in the next"),
        );
    }

    /// Merges two values of which both are there.
    fn value(&mut self, mine: &mut Node, theirs: &Node, kind: Type) {
        match (kind, &mut mine.value, &theirs.value) {
            (Type::Struct(body), Value::Map(left), Value::Map(right)) => self.fields(left, right, body),
            (Type::Map(item), Value::Map(left), Value::Map(right)) => self.map(left, right, *item),
            (Type::Free, Value::Map(left), Value::Map(right)) => self.free_map(left, right),
            (Type::List(_), Value::List(left), Value::List(right)) => left.extend(right.iter().cloned()),
            (Type::Url(_), Value::Text(left), Value::Text(right)) => {
                let merged = merge_urls(left, right);
                match merged {
                    Some(url) => *mine = Node { value: Value::Text(url), at: theirs.at },
                    None => self.unmergeable(theirs.at),
                }
            }
            // Talos keeps both and writes the bytes.
            (Type::Size, Value::Text(left), Value::Text(right))
                if right.ends_with('%') && !left.ends_with('%') => {}
            (Type::SizeMatcher, ..) => self.unmergeable(theirs.at),
            _ => *mine = theirs.clone(),
        }
    }

    fn map(&mut self, mine: &mut Map, theirs: &Map, item: Type) {
        let mut index: BTreeMap<String, usize> =
            mine.iter().enumerate().map(|(i, (key, _))| (key.text.clone(), i)).collect();
        for (key, node) in theirs.iter() {
            self.path.key(&key.text);
            match index.get(&key.text) {
                None => {
                    index.insert(key.text.clone(), mine.len());
                    mine.push(key.clone(), node.clone());
                }
                Some(i) => {
                    let slot = &mut mine.entries_mut()[*i].1;
                    let empty = matches!(&node.value, Value::Text(text) if text.is_empty());
                    match item {
                        // Arguments became a type of their own in 1.13, which is replaced as such.
                        Type::Argument if self.release >= 13 => *slot = node.clone(),
                        _ if empty => {}
                        _ => self.value(slot, node, item),
                    }
                }
            }
            self.path.up();
        }
    }

    fn keyed(&mut self, mine: &mut Node, theirs: &Node, keyed: Keyed, kind: Type) {
        let (Type::List(Type::Struct(body)), Value::List(left), Value::List(right)) =
            (kind, &mut mine.value, &theirs.value)
        else {
            return;
        };
        let mut index = Index::new(keyed, left);
        for (i, item) in right.iter().enumerate() {
            self.path.index(i);
            match (index.find(item), &item.value) {
                (None, _) => {
                    left.push(item.clone());
                    index.learn(left.len() - 1, item);
                }
                (Some(at), Value::Map(right)) if keyed != Keyed::ImageReplace => {
                    if let Value::Map(left) = &mut left[at].value {
                        self.fields(left, right, body);
                    }
                    index.learn(at, &left[at]);
                }
                (Some(at), _) => left[at] = item.clone(),
            }
            self.path.up();
        }
    }

    fn free_map(&mut self, mine: &mut Map, theirs: &Map) {
        let mut index: BTreeMap<String, usize> =
            mine.iter().enumerate().map(|(i, (key, _))| (key.text.clone(), i)).collect();
        for (key, node) in theirs.iter() {
            self.path.key(&key.text);
            match index.get(&key.text) {
                None => {
                    index.insert(key.text.clone(), mine.len());
                    mine.push(key.clone(), node.clone());
                }
                Some(i) => {
                    let slot = &mut mine.entries_mut()[*i].1;
                    self.free(slot, node, key);
                }
            }
            self.path.up();
        }
    }

    fn free(&mut self, mine: &mut Node, theirs: &Node, key: &Key) {
        match (&mut mine.value, &theirs.value) {
            (Value::Null, _) | (Value::Bool(_), Value::Bool(_)) => *mine = theirs.clone(),
            (Value::Map(left), Value::Map(right)) => self.free_map(left, right),
            (Value::List(left), Value::List(right)) => left.extend(right.iter().cloned()),
            (Value::Text(left), Value::Text(right)) => {
                if !right.is_empty() {
                    right.clone_into(left);
                    mine.at = theirs.at;
                }
            }
            (Value::Int(left), Value::Int(right))
                if go_type(&Value::Int(*left)) == go_type(&Value::Int(*right)) =>
            {
                if *right != 0 {
                    *mine = theirs.clone();
                }
            }
            (Value::Float(_), Value::Float(right)) => {
                if *right != 0.0 {
                    *mine = theirs.clone();
                }
            }
            (left, right) => self.types_differ(go_type(left), go_type(right), theirs.at.or(key.at)),
        }
    }

    fn types_differ(&mut self, left: &str, right: &str, at: Option<Span>) {
        let message =
            format!("`{}` in {}: merge type mismatch left {left} right {right}", self.path, self.document);
        self.findings.push(
            Finding::error(Code::WRONG_TYPE, at, message)
                .because("inside free-form values Talos merges only what is of the same type")
                .remedy("write a value of the same type, or delete the key in a patch before this one"),
        );
    }
}

/// Names a free-form value's type as Talos does in its messages.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "nil",
        Value::Bool(_) => "bool",
        Value::Int(int) if *int > i128::from(i64::MAX) => "uint64",
        Value::Int(_) | Value::Octal(_) => "int",
        Value::Float(_) => "float64",
        Value::Text(_) => "string",
        Value::List(_) => "[]interface {}",
        Value::Map(_) => "map[string]interface {}",
    }
}

fn merge_urls(left: &str, right: &str) -> Option<String> {
    let mut url = Url::parse(left).ok()?;
    url.merge(Url::parse(right).ok()?).ok()?;
    Some(url.to_string())
}

/// Where the items of a keyed list are.
struct Index {
    keyed: Keyed,
    places: BTreeMap<String, usize>,
    /// Whether items that a patch adds are found again by later items of the same patch.
    learns: bool,
}

impl Index {
    fn new(keyed: Keyed, items: &[Node]) -> Self {
        let mut index = Self { keyed, places: BTreeMap::new(), learns: true };
        for (at, item) in items.iter().enumerate() {
            index.learn(at, item);
        }
        index.learns = keyed != Keyed::ImageReplace;
        index
    }

    /// Remembers an item by all its keys. The first of several counts, for images the last.
    fn learn(&mut self, at: usize, item: &Node) {
        if !self.learns {
            return;
        }
        let last = self.keyed == Keyed::ImageReplace;
        for key in self.keys(item) {
            let place = self.places.entry(key).or_insert(at);
            *place = if last { at.max(*place) } else { at.min(*place) };
        }
    }

    fn find(&self, item: &Node) -> Option<usize> {
        self.keys(item).first().and_then(|key| self.places.get(key)).copied()
    }

    fn keys(&self, item: &Node) -> Vec<String> {
        match self.keyed {
            Keyed::Field(key) => vec![flat(item.get(key))],
            Keyed::ImageReplace => vec![flat(item.get("image"))],
            Keyed::Interface => {
                let name = item.get("interface").map(|name| format!("interface {}", flat(Some(name))));
                // A selector with `physical` is never found again: Talos compares the addresses of
                // the two switches.
                let selector =
                    item.get("deviceSelector").filter(|selector| selector.get("physical").is_none());
                name.into_iter().chain(selector.map(|selector| flat(Some(selector)))).collect()
            }
        }
    }
}

/// Writes a small value so that equal ones are equal text, whatever the order of their keys.
fn flat(node: Option<&Node>) -> String {
    match node.map(|node| &node.value) {
        None => String::new(),
        Some(Value::Map(map)) => {
            let entries: BTreeMap<_, _> =
                map.iter().map(|(key, node)| (&key.text, flat(Some(node)))).collect();
            format!("{entries:?}")
        }
        Some(Value::Text(text)) => format!("{text:?}"),
        Some(Value::Int(int)) => int.to_string(),
        Some(Value::Bool(switch)) => switch.to_string(),
        Some(other) => other.word().to_owned(),
    }
}
