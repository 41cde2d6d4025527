//! What is written of a document.

use crate::{
    document::{API_VERSION, Document, Map, Node, Value},
    schema::{Field, Merge, Struct, Type},
};

use super::order;

/// Returns the fields of a document as Talos writes them.
pub fn document(document: &Document) -> Map {
    let Some(kind) = document.schema() else {
        return with_header(document, document.body().clone());
    };
    let body = fields(document.body(), &kind.body);
    if document.is_legacy() { body } else { with_header(document, body) }
}

fn with_header(document: &Document, body: Map) -> Map {
    let identity = document.identity();
    let api_version = if identity.api_version.is_empty() { API_VERSION } else { &identity.api_version };
    let header = [("apiVersion", api_version), ("kind", &identity.kind)];
    let header = header.into_iter().map(|(key, text)| (key.into(), Node::text(text)));
    header.chain(body.into_entries()).collect()
}

fn fields(map: &Map, body: &Struct) -> Map {
    let mut written = Map::new();
    for field in body.fields {
        let node = match map.get(field.name) {
            Some(node) if field.always || !left_out(field, node) => Some(value(node, field.kind)),
            None if field.always => zero(field),
            _ => None,
        };
        if let Some(node) = node {
            written.push(field.name.into(), node);
        }
    }
    for (key, node) in map.iter().filter(|(key, _)| body.field(&key.text).is_none()) {
        written.push(key.clone(), node.clone());
    }
    written
}

fn value(node: &Node, kind: Type) -> Node {
    let written = match (kind, &node.value) {
        (Type::List(item), Value::List(items)) => {
            Value::List(items.iter().map(|node| value(node, *item)).collect())
        }
        (Type::Map(item), Value::Map(map)) => Value::Map(order::sorted(
            map.iter().map(|(key, node)| (key.clone(), value(node, *item))).collect(),
        )),
        (Type::Struct(body) | Type::Pem(body), Value::Map(map)) => Value::Map(fields(map, body)),
        (Type::Free, _) => return free(node),
        (_, other) => other.clone(),
    };
    Node { value: written, at: node.at }
}

fn free(node: &Node) -> Node {
    let value = match &node.value {
        Value::List(items) => Value::List(items.iter().map(free).collect()),
        Value::Map(map) => {
            Value::Map(order::sorted(map.iter().map(|(key, node)| (key.clone(), free(node))).collect()))
        }
        other => other.clone(),
    };
    Node { value, at: node.at }
}

/// Whether Talos leaves a value out that it may leave out.
fn left_out(field: &Field, node: &Node) -> bool {
    !field.optional && is_empty(field, &node.value)
}

fn is_empty(field: &Field, value: &Value) -> bool {
    match (field.kind, value) {
        // An empty list of search domains says "none at all" since 1.14, the release that replaces.
        (Type::List(_), Value::List(_)) if matches!(field.merge, Merge::ReplaceSince(_)) => false,
        (_, Value::List(items)) => items.is_empty(),
        (_, Value::Text(text)) => text.is_empty(),
        (Type::Struct(body), Value::Map(map)) => map.iter().all(|(key, node)| {
            body.field(&key.text).is_some_and(|field| !field.optional && is_empty(field, &node.value))
        }),
        (_, Value::Map(map)) => map.is_empty(),
        _ => false,
    }
}

/// Returns what Talos writes for a field that is not set.
fn zero(field: &Field) -> Option<Node> {
    let value = match field.kind {
        _ if field.optional => Value::Null,
        Type::Bool => Value::Bool(false),
        Type::Int(..) | Type::DiskSize => Value::Int(0),
        Type::Octal => Value::Octal(0),
        Type::Duration => Value::Text("0s".to_owned()),
        // Talos would write `Protocol(0)`, which nothing can read.
        Type::Enum(words) => Value::Text(words.zero?.to_owned()),
        Type::Table => Value::Text("unspec".to_owned()),
        Type::List(_) => Value::List(Vec::new()),
        Type::Free | Type::Map(_) => Value::Map(Map::new()),
        Type::Struct(body) | Type::Pem(body) => Value::Map(fields(&Map::new(), body)),
        _ => Value::Text(String::new()),
    };
    Some(value.into())
}

/// Hides every secret of a document.
pub fn hide_secrets(map: &mut Map, body: &Struct) {
    for (key, node) in map.entries_mut() {
        match body.field(&key.text) {
            Some(field) if field.secret => hide(node),
            Some(field) => hide_inside(node, field.kind),
            None => {}
        }
    }
}

fn hide_inside(node: &mut Node, kind: Type) {
    match (kind, &mut node.value) {
        (Type::Struct(body) | Type::Pem(body), Value::Map(map)) => hide_secrets(map, body),
        (Type::List(item), Value::List(items)) => items.iter_mut().for_each(|node| hide_inside(node, *item)),
        (Type::Map(item), Value::Map(map)) => {
            map.entries_mut().iter_mut().for_each(|(_, node)| hide_inside(node, *item));
        }
        _ => {}
    }
}

fn hide(node: &mut Node) {
    match &mut node.value {
        Value::Map(map) => map.entries_mut().iter_mut().for_each(|(_, node)| hide(node)),
        Value::List(items) => items.iter_mut().for_each(hide),
        Value::Text(text) if text.is_empty() => {}
        value => *value = Value::Text("******".to_owned()),
    }
}
