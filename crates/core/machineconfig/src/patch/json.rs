//! RFC 6902 operations, and what they would be as a strategic patch.

use ichor_model::{Code, Finding, Findings, Span};
use serde_json::{Map as JsonMap, Value as Json};

use crate::{
    document::{
        Config, Document, Map, Node, Value,
        raw::{self, Raw, RawKind, Style},
        scalar::{Resolved, resolve},
    },
    emit,
};

mod derive;

pub use derive::strategic as derive_strategic;

/// One operation.
#[derive(Clone)]
pub struct Operation {
    action: Action,
    path: Vec<String>,
    at: Option<Span>,
}

#[derive(Clone)]
enum Action {
    Add(Json),
    Replace(Json),
    Test(Json),
    Remove,
    Move(Vec<String>),
    Copy(Vec<String>),
}

/// Values may be secrets, so only what is done to which path is shown.
impl std::fmt::Debug for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.word(), pointer(&self.path))
    }
}

impl Operation {
    const fn word(&self) -> &'static str {
        match self.action {
            Action::Add(_) => "add",
            Action::Replace(_) => "replace",
            Action::Test(_) => "test",
            Action::Remove => "remove",
            Action::Move(_) => "move",
            Action::Copy(_) => "copy",
        }
    }
}

/// Reads a list of operations.
pub fn read(items: &[Raw]) -> Result<Vec<Operation>, Findings> {
    let mut findings = Findings::new();
    let operations: Vec<_> = items.iter().filter_map(|raw| operation(raw, &mut findings)).collect();
    if findings.has_errors() { Err(findings) } else { Ok(operations) }
}

fn operation(raw: &Raw, findings: &mut Findings) -> Option<Operation> {
    let mut fail = |code: Code, at: Option<Span>, message: String, remedy: &str| {
        findings.push(Finding::error(code, at.or(raw.at), message).remedy(remedy));
        None
    };
    let example =
        "write `{op: add, path: /machine/kubelet, value: {}}`; lists of documents need `---` between them";
    let Some(op) = raw.get("op").and_then(Raw::text) else {
        return fail(Code::MISSING_KEY, None, "an operation has no `op`".to_owned(), example);
    };
    let path = raw.get("path").and_then(Raw::text).map(segments);
    let Some(Some(path)) = path else {
        let message = format!("the operation `{}` has no usable `path`", raw::show(op));
        return fail(Code::MISSING_KEY, None, message, "write a path that begins with `/`");
    };
    let value = || raw.get("value").map_or(Json::Null, to_json);
    let from = || raw.get("from").and_then(Raw::text).and_then(segments);
    let action = match op {
        "add" => Action::Add(value()),
        "replace" => Action::Replace(value()),
        "test" => Action::Test(value()),
        "remove" => Action::Remove,
        "move" | "copy" => {
            let Some(from) = from() else {
                let message = format!("the operation `{op}` has no usable `from`");
                return fail(Code::MISSING_KEY, None, message, "write a path that begins with `/`");
            };
            if op == "move" { Action::Move(from) } else { Action::Copy(from) }
        }
        other => {
            let message = format!("`{}` is not an operation", raw::show(other));
            let at = raw.get("op").and_then(|op| op.at);
            return fail(Code::BAD_CHOICE, at, message, "use add, remove, replace, move, copy or test");
        }
    };
    Some(Operation { action, path, at: raw.at })
}

/// Splits a JSON pointer; the empty one is the whole document.
fn segments(pointer: &str) -> Option<Vec<String>> {
    if pointer.is_empty() {
        return Some(Vec::new());
    }
    let rest = pointer.strip_prefix('/')?;
    Some(rest.split('/').map(|part| part.replace("~1", "/").replace("~0", "~")).collect())
}

fn pointer(path: &[String]) -> String {
    path.iter().map(|part| format!("/{}", raw::show(part).replace('~', "~0").replace('/', "~1"))).collect()
}

/// Turns a value as written into JSON.
fn to_json(raw: &Raw) -> Json {
    match &raw.kind {
        RawKind::Scalar { text, style: Style::Plain } => match resolve(text) {
            Resolved::Null => Json::Null,
            Resolved::Bool(switch) => Json::Bool(switch),
            Resolved::Int(int) => integer(int),
            Resolved::Float(float) => serde_json::Number::from_f64(float).map_or(Json::Null, Json::Number),
            Resolved::Time | Resolved::Text => Json::String(text.clone()),
        },
        RawKind::Scalar { text, .. } => Json::String(text.clone()),
        RawKind::List(items) => Json::Array(items.iter().map(to_json).collect()),
        RawKind::Map(entries) => {
            Json::Object(entries.iter().map(|(key, raw)| (key.text.clone(), to_json(raw))).collect())
        }
    }
}

fn integer(int: i128) -> Json {
    let signed = i64::try_from(int).map(Json::from);
    signed.or_else(|_| u64::try_from(int).map(Json::from)).unwrap_or(Json::Null)
}

/// Turns a document into JSON, as it would be written.
fn document_json(document: &Document) -> Json {
    map_json(&emit::canonical_form(document))
}

fn map_json(map: &Map) -> Json {
    Json::Object(map.iter().map(|(key, node)| (key.text.clone(), node_json(node))).collect())
}

fn node_json(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(switch) => Json::Bool(*switch),
        Value::Int(int) => integer(*int),
        Value::Octal(mode) => Json::from(*mode),
        Value::Float(float) => serde_json::Number::from_f64(*float).map_or(Json::Null, Json::Number),
        Value::Text(text) => Json::String(text.clone()),
        Value::List(items) => Json::Array(items.iter().map(node_json).collect()),
        Value::Map(map) => map_json(map),
    }
}

/// Applies operations to a config of one document.
pub fn apply(config: &Config, operations: &[Operation], at: Option<Span>) -> Result<Config, Findings> {
    if operations.is_empty() {
        return Ok(config.clone());
    }
    let [document] = config.documents() else {
        return Err(Findings::from_iter([refused(operations, Some(config), at)]));
    };
    let mut json = document_json(document);
    for operation in operations {
        perform(&mut json, operation).map_err(|why| {
            let message = format!("the operation `{operation:?}` does not apply: {why}");
            let finding = Finding::error(Code::PATCH_MISSES, operation.at, message);
            let words = "Talos says: failure applying rfc6902 patches to talos machine config";
            Findings::from_iter([finding.because(words).remedy("check the path against the config")])
        })?;
    }
    Config::from_raw(&raw::from_json(&json, Style::Quoted))
}

/// Says that the config has several documents, and what to write instead.
pub fn refused(operations: &[Operation], config: Option<&Config>, at: Option<Span>) -> Finding {
    let message = "JSON6902 patches are not supported for multi-document machine configuration";
    let finding = Finding::error(Code::JSON_PATCH, at, message)
        .because("configs have several documents from the 1.12 contract on");
    match derive_strategic(operations, config) {
        Some(patch) => finding.remedy(format!("write the same as a strategic merge patch:\n{patch}")),
        None => finding.remedy("write a strategic merge patch: a document that holds only what it changes"),
    }
}

type Outcome<T = ()> = Result<T, String>;

fn perform(root: &mut Json, operation: &Operation) -> Outcome {
    let path = &operation.path;
    match &operation.action {
        Action::Add(value) => add(root, path, value.clone()),
        Action::Replace(value) => replace(root, path, value.clone()),
        Action::Remove => remove(root, path).map(drop),
        Action::Test(value) if look(root, path)? == *value => Ok(()),
        Action::Test(_) => Err(format!("testing value {} failed", pointer(path))),
        Action::Move(from) => {
            let value = remove(root, from)?;
            add(root, path, value)
        }
        Action::Copy(from) => {
            let value = look(root, from)?;
            add(root, path, value)
        }
    }
}

fn missing(path: &[String]) -> String {
    format!("doc is missing path: {}", pointer(path))
}

/// Finds the place of an existing item; negative numbers count from the end.
fn position(part: &str, length: usize) -> Option<usize> {
    let index: i64 = part.parse().ok()?;
    let length = i64::try_from(length).ok()?;
    let index = if index < 0 { index + length } else { index };
    (0..length).contains(&index).then(|| usize::try_from(index).ok()).flatten()
}

fn get_mut<'a>(root: &'a mut Json, path: &[String]) -> Outcome<&'a mut Json> {
    path.iter().try_fold(root, |value, part| {
        let found = match value {
            Json::Object(map) => map.get_mut(part),
            Json::Array(items) => position(part, items.len()).and_then(|i| items.get_mut(i)),
            _ => None,
        };
        found.ok_or_else(|| missing(path))
    })
}

fn parent<'a, 'p>(root: &'a mut Json, path: &'p [String]) -> Outcome<(&'a mut Json, &'p str)> {
    let (last, above) = path.split_last().ok_or("the whole document cannot be replaced")?;
    Ok((get_mut(root, above)?, last))
}

fn add(root: &mut Json, path: &[String], value: Json) -> Outcome {
    let (parent, last) = parent(root, path)?;
    match parent {
        Json::Object(map) => {
            map.insert(last.to_owned(), value);
            Ok(())
        }
        Json::Array(items) if last == "-" => {
            items.push(value);
            Ok(())
        }
        Json::Array(items) => {
            // One past the end is a place here, and -1 is that one.
            let at = position(last, items.len() + 1).ok_or_else(|| missing(path))?;
            items.insert(at, value);
            Ok(())
        }
        _ => Err(missing(path)),
    }
}

/// Sets a key whether it is there or not, as Talos' library does, or an item that is there.
fn replace(root: &mut Json, path: &[String], value: Json) -> Outcome {
    if path.is_empty() {
        *root = value;
        return Ok(());
    }
    let (parent, last) = parent(root, path)?;
    match parent {
        Json::Object(map) => {
            map.insert(last.to_owned(), value);
            Ok(())
        }
        Json::Array(items) => {
            let at = position(last, items.len()).ok_or_else(|| missing(path))?;
            items[at] = value;
            Ok(())
        }
        _ => Err(missing(path)),
    }
}

/// Returns a copy of a value; a key that is not there is nothing.
fn look(root: &mut Json, path: &[String]) -> Outcome<Json> {
    if path.is_empty() {
        return Ok(root.clone());
    }
    let (parent, last) = parent(root, path)?;
    match parent {
        Json::Object(map) => Ok(map.get(last).cloned().unwrap_or(Json::Null)),
        _ => get_mut(parent, &[last.to_owned()]).cloned().map_err(|_| missing(path)),
    }
}

fn remove(root: &mut Json, path: &[String]) -> Outcome<Json> {
    let (parent, last) = parent(root, path)?;
    let removed = match parent {
        Json::Object(map) => map.shift_remove(last),
        Json::Array(items) => position(last, items.len()).map(|at| items.remove(at)),
        _ => None,
    };
    removed.ok_or_else(|| missing(path))
}

/// An object with one key.
fn object(key: &str, value: Json) -> Json {
    Json::Object(JsonMap::from_iter([(key.to_owned(), value)]))
}
