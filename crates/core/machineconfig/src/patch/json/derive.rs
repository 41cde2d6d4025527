//! The strategic patch that says the same as a list of operations, where there is one.

use serde_json::Value as Json;

use super::{Action, Operation, object};
use crate::{
    document::{
        Config, Map, Node, Value,
        raw::{self, Style},
        read::Reader,
    },
    emit,
    schema::{self, Merge, Struct, Type},
};

/// Returns the patch as text, if every operation can be said by merging or deleting.
pub fn strategic(operations: &[Operation], config: Option<&Config>) -> Option<String> {
    let mut derived = Json::Object(serde_json::Map::new());
    for operation in operations {
        let value = match &operation.action {
            Action::Add(value) | Action::Replace(value) => merged(&operation.path, value, config)?,
            Action::Remove if by_keys(&operation.path) => object("$patch", Json::from("delete")),
            _ => return None,
        };
        let path: Vec<&str> = operation.path.iter().map(String::as_str).filter(|part| *part != "-").collect();
        place(&mut derived, &path, value)?;
    }
    let mut findings = ichor_model::Findings::new();
    let node = Reader::new("", &mut findings).free(&raw::from_json(&derived, Style::Quoted))?;
    match node.value {
        Value::Map(map) if !map.is_empty() => Some(emit::emit_map(&map)),
        _ => None,
    }
}

/// Returns what to merge at a path so that the value ends up there, if merging can do that.
fn merged(path: &[String], value: &Json, config: Option<&Config>) -> Option<Json> {
    if value.is_null() {
        return None;
    }
    let (last, above) = path.split_last()?;
    let (path, value) =
        if last == "-" { (above, Json::Array(vec![value.clone()])) } else { (path, value.clone()) };
    let target = find(path)?;
    let there = config.and_then(|config| existing(config, path));
    let occupied = there.is_some_and(|node| !is_empty(node));
    let append = matches!(target.kind, Type::List(_)) && target.merge == Merge::ByType;
    match (last.as_str(), &value) {
        ("-", _) => append.then_some(value),
        // What is there would stay beside the new value.
        (_, Json::Array(_)) if append && occupied => None,
        (_, Json::Object(_)) if occupied && target.merge != Merge::Replace => None,
        _ => Some(value),
    }
}

struct Target {
    kind: Type,
    merge: Merge,
}

/// Finds the field of the legacy document that a path is about, if it leads through maps alone.
fn find(path: &[String]) -> Option<Target> {
    let mut body: Option<&Struct> = Some(&schema::LEGACY.body);
    let mut target = None;
    let mut kind = Type::Free;
    for part in path {
        let next = match (body, kind) {
            (Some(body), _) => {
                let field = body.field(part)?;
                Target { kind: field.kind, merge: field.merge }
            }
            (None, Type::Map(item)) => Target { kind: *item, merge: Merge::ByType },
            (None, Type::Free) => Target { kind: Type::Free, merge: Merge::ByType },
            _ => return None,
        };
        kind = next.kind;
        body = match kind {
            Type::Struct(inner) | Type::Pem(inner) => Some(inner),
            _ => None,
        };
        target = Some(next);
    }
    target
}

fn by_keys(path: &[String]) -> bool {
    !path.is_empty() && find(path).is_some()
}

fn existing<'a>(config: &'a Config, path: &[String]) -> Option<&'a Node> {
    let (first, rest) = path.split_first()?;
    rest.iter().try_fold(config.legacy()?.body().get(first)?, |node, part| node.get(part))
}

fn is_empty(node: &Node) -> bool {
    match &node.value {
        Value::List(items) => items.is_empty(),
        Value::Map(map) => Map::is_empty(map),
        _ => false,
    }
}

/// Puts a value into the patch; two operations about the same place cannot be told apart.
fn place(root: &mut Json, path: &[&str], value: Json) -> Option<()> {
    let (last, above) = path.split_last()?;
    let mut here = root;
    for part in above {
        here = here.as_object_mut()?.entry(*part).or_insert_with(|| Json::Object(serde_json::Map::new()));
    }
    let map = here.as_object_mut()?;
    match (map.get_mut(*last), value) {
        (None, value) => {
            map.insert((*last).to_owned(), value);
            Some(())
        }
        (Some(Json::Array(items)), Json::Array(more)) => {
            items.extend(more);
            Some(())
        }
        _ => None,
    }
}
