//! Patches: JSON patch, JSON merge patch and strategic merge patch.

use serde_json::{Map, Value};

use super::{shape::Place, status::Failure};

/// How many operations a JSON patch may have, as in the API server.
const MOST_OPERATIONS: usize = 10_000;

/// Applies a JSON merge patch (RFC 7386).
pub fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(map) = target.as_object_mut() else { return };
    for (key, value) in patch {
        if value.is_null() {
            map.shift_remove(key);
        } else {
            merge(map.entry(key).or_insert(Value::Null), value);
        }
    }
}

/// Applies a JSON patch (RFC 6902).
pub fn json(target: &mut Value, patch: &Value) -> Result<(), Failure> {
    let Some(operations) = patch.as_array() else {
        return Err(Failure::bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type jsonpatch.Patch",
        ));
    };
    if operations.len() > MOST_OPERATIONS {
        return Err(Failure::plain(
            413,
            "RequestEntityTooLarge",
            format!(
                "The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {}",
                operations.len()
            ),
        ));
    }
    for operation in operations {
        step(target, operation).map_err(|why| {
            Failure::plain(
                422,
                "Invalid",
                format!("the server rejected our request due to an error in our request: {why}"),
            )
            .with(serde_json::json!({}))
        })?;
    }
    Ok(())
}

fn step(target: &mut Value, operation: &Value) -> Result<(), String> {
    let word =
        |key: &str| operation.get(key).and_then(Value::as_str).ok_or_else(|| format!("{key} is missing"));
    let value = || operation.get("value").cloned().ok_or_else(|| "value is missing".to_owned());
    let path = word("path")?;
    let missing = || format!("the path {path} does not exist");
    match word("op")? {
        "add" => add(target, path, value()?),
        "replace" => {
            *target.pointer_mut(path).ok_or_else(missing)? = value()?;
            Ok(())
        }
        "remove" => take(target, path).map(drop),
        "test" if target.pointer(path).unwrap_or(&Value::Null) == &value()? => Ok(()),
        "test" => Err(format!("testing value {path} failed: test failed")),
        "move" => {
            let moved = take(target, word("from")?)?;
            add(target, path, moved)
        }
        "copy" => {
            let copied = target.pointer(word("from")?).cloned().ok_or_else(missing)?;
            add(target, path, copied)
        }
        other => Err(format!("unexpected kind: {other}")),
    }
}

fn parent<'v, 'p>(target: &'v mut Value, path: &'p str) -> Result<(&'v mut Value, &'p str), String> {
    let (parent, last) = path.rsplit_once('/').ok_or_else(|| format!("invalid path {path:?}"))?;
    let found = target.pointer_mut(parent).ok_or_else(|| format!("the path {path} does not exist"))?;
    Ok((found, last))
}

fn unescape(token: &str) -> String {
    token.replace("~1", "/").replace("~0", "~")
}

fn add(target: &mut Value, path: &str, value: Value) -> Result<(), String> {
    if path.is_empty() {
        *target = value;
        return Ok(());
    }
    match parent(target, path)? {
        (Value::Object(map), last) => {
            map.insert(unescape(last), value);
        }
        (Value::Array(items), "-") => items.push(value),
        (Value::Array(items), last) => match last.parse::<usize>() {
            Ok(at) if at <= items.len() => items.insert(at, value),
            _ => return Err(format!("invalid index in {path}")),
        },
        _ => return Err(format!("the path {path} does not exist")),
    }
    Ok(())
}

fn take(target: &mut Value, path: &str) -> Result<Value, String> {
    let missing = || format!("the path {path} does not exist");
    match parent(target, path)? {
        (Value::Object(map), last) => map.shift_remove(&unescape(last)).ok_or_else(missing),
        (Value::Array(items), last) => match last.parse::<usize>() {
            Ok(at) if at < items.len() => Ok(items.remove(at)),
            _ => Err(missing()),
        },
        _ => Err(missing()),
    }
}

/// Applies a strategic merge patch.
pub fn strategic(target: &mut Value, patch: &Value, place: Place<'_>) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            let rest = patch.iter().filter(|(key, _)| !key.starts_with('$'));
            *target = Value::Object(rest.map(|(key, value)| (key.clone(), value.clone())).collect());
            return;
        }
        Some("delete") => {
            *target = Value::Object(Map::new());
            return;
        }
        _ => {}
    }
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(map) = target.as_object_mut() else { return };
    for (key, value) in patch {
        if let Some(field) = key.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = value.as_array().map_or(&[][..], Vec::as_slice);
            if let Some(items) = map.get_mut(field).and_then(Value::as_array_mut) {
                items.retain(|item| !gone.contains(item));
            }
        } else if key.starts_with("$retainKeys") {
            let kept = value.as_array().map_or(&[][..], Vec::as_slice);
            map.retain(|key, _| kept.iter().any(|kept| kept == key));
        } else if key.starts_with('$') {
            // Orders of lists do not matter here: new items come last.
        } else if value.is_null() {
            map.shift_remove(key);
        } else {
            strategic_field(map.entry(key).or_insert(Value::Null), value, place.child(key));
        }
    }
}

fn strategic_field(target: &mut Value, patch: &Value, place: Place<'_>) {
    match patch {
        Value::Object(_) => strategic(target, patch, place),
        Value::Array(items) => strategic_list(target, items, place),
        _ => *target = patch.clone(),
    }
}

fn strategic_list(target: &mut Value, patch: &[Value], place: Place<'_>) {
    let replaces = patch.iter().any(|item| item.get("$patch").is_some_and(|word| word == "replace"));
    let Some(items) = target.as_array_mut().filter(|_| !replaces) else {
        let fresh = patch.iter().filter(|item| item.get("$patch").is_none());
        *target = Value::Array(fresh.cloned().collect());
        return;
    };
    if place.merges_values() {
        for item in patch.iter().filter(|item| !items.contains(item)).cloned().collect::<Vec<_>>() {
            items.push(item);
        }
        return;
    }
    let Some(key) = place.merge_key() else {
        *items = patch.to_vec();
        return;
    };
    for item in patch {
        let found = items.iter().position(|old| old.get(key).is_some() && old.get(key) == item.get(key));
        let deletes = item.get("$patch").is_some_and(|word| word == "delete");
        match found {
            Some(at) if deletes => drop(items.remove(at)),
            Some(at) => strategic(&mut items[at], item, place.item()),
            None if deletes => {}
            None => items.push(item.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn strategic_patches_merge_lists_by_their_keys() {
        let mut pod = json!({"spec": {"containers": [{"name": "a", "image": "a:1"}, {"name": "b", "image": "b:1"}],
            "tolerations": [{"key": "x"}]}, "metadata": {"finalizers": ["one"]}});
        let patch = json!({"spec": {"containers": [{"name": "b", "image": "b:2"}, {"name": "a", "$patch": "delete"},
            {"name": "c"}], "tolerations": [{"key": "y"}]}, "metadata": {"finalizers": ["two"]}});
        strategic(&mut pod, &patch, Place::ROOT);
        assert_eq!(
            pod,
            json!({"spec": {"containers": [{"name": "b", "image": "b:2"}, {"name": "c"}],
                "tolerations": [{"key": "y"}]}, "metadata": {"finalizers": ["one", "two"]}})
        );
    }

    #[test]
    fn json_patches_say_what_they_could_not_do() {
        let mut value = json!({"a": [1, 2], "b": {"c~/d": 1}});
        let patch = json!([{"op": "test", "path": "/a/0", "value": 1}, {"op": "add", "path": "/a/-", "value": 3},
            {"op": "remove", "path": "/b/c~0~1d"}, {"op": "move", "from": "/a/0", "path": "/first"}]);
        super::json(&mut value, &patch).unwrap();
        assert_eq!(value, json!({"a": [2, 3], "b": {}, "first": 1}));
        for wrong in [
            json!([{"op": "remove", "path": "/none"}]),
            json!([{"op": "test", "path": "/first", "value": 2}]),
            json!([{"op": "add", "path": "/a/9", "value": 2}]),
            json!([{"op": "what", "path": "/a"}]),
            json!([{"path": "nothing"}]),
        ] {
            assert_eq!(super::json(&mut value.clone(), &wrong).unwrap_err().code, 422, "{wrong}");
        }
        assert_eq!(super::json(&mut value, &json!({})).unwrap_err().code, 400);
    }
}
