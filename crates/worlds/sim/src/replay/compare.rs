//! Comparing an answer with the recorded one.

use serde_json::Value;

use crate::wire::Response;

/// Says what differs; nothing if the answers agree.
pub fn differences(exchange: &Value, response: &Response) -> Vec<String> {
    let recorded = &exchange["response"];
    let vary: Vec<&str> =
        exchange["vary"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let varies = |name: &str| vary.contains(&name);
    let mut differences = Vec::new();
    let status = recorded["status"].as_u64().unwrap_or_default();
    if !varies("status") && u64::from(response.status) != status {
        differences.push(format!("status {} instead of {status}", response.status));
    }
    if status == 0 {
        return differences;
    }
    let reason = response.reason.as_deref().unwrap_or_default();
    let recorded_reason = recorded["reason"].as_str().unwrap_or_default();
    if !varies("reason") && without_place(reason) != without_place(recorded_reason) {
        differences.push(format!("reason {reason:?} instead of {recorded_reason:?}"));
    }
    compare_headers(recorded, response, &vary, &mut differences);
    if !varies("body") && !varies("raw") {
        compare_bodies(recorded, response, &vary, &mut differences);
    }
    differences
}

fn compare_headers(recorded: &Value, response: &Response, vary: &[&str], differences: &mut Vec<String>) {
    for (name, value) in recorded["headers"].as_object().into_iter().flatten() {
        if vary.contains(&format!("header:{name}").as_str()) {
            continue;
        }
        let wanted: Vec<&str> = match value {
            Value::Array(values) => values.iter().filter_map(Value::as_str).collect(),
            value => value.as_str().into_iter().collect(),
        };
        let found: Vec<&str> = response
            .headers
            .iter()
            .filter(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.as_str())
            .collect();
        if found != wanted {
            differences.push(format!("header {name} {found:?} instead of {wanted:?}"));
        }
    }
}

fn compare_bodies(recorded: &Value, response: &Response, vary: &[&str], differences: &mut Vec<String>) {
    let text = String::from_utf8_lossy(&response.body);
    if let Some(raw) = recorded["raw"].as_str() {
        if without_place(&text) != without_place(raw) {
            differences.push(format!("body {text:?} instead of {raw:?}"));
        }
        return;
    }
    if recorded["body"].is_null() {
        if !response.body.is_empty() {
            differences.push(format!("body {text:?} instead of none"));
        }
        return;
    }
    match serde_json::from_str::<Value>(&text) {
        Ok(body) => {
            let marks = Marks::new(vary);
            compare("", &recorded["body"], &body, &marks, differences);
        }
        Err(_) => differences.push(format!("body {text:?} is not JSON")),
    }
}

/// What varies where.
struct Marks {
    values: Vec<Vec<String>>,
    unordered: Vec<Vec<String>>,
    sets: Vec<Vec<String>>,
}

impl Marks {
    fn new(vary: &[&str]) -> Self {
        let parts = |pointer: &str| pointer.split('/').skip(1).map(unescaped).collect::<Vec<_>>();
        let with = |prefix: &str| {
            vary.iter().filter_map(|mark| mark.strip_prefix(prefix)).map(parts).collect::<Vec<_>>()
        };
        let values = vary.iter().filter(|mark| mark.starts_with('/')).map(|mark| parts(mark)).collect();
        Self { values, unordered: with("unordered:"), sets: with("set:") }
    }

    fn has(marks: &[Vec<String>], path: &str) -> bool {
        let parts: Vec<String> = path.split('/').skip(1).map(unescaped).collect();
        marks.iter().any(|mark| {
            mark.len() == parts.len()
                && mark.iter().zip(&parts).all(|(mark, part)| mark == "*" || mark == part)
        })
    }
}

fn unescaped(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

fn below(path: &str, key: &str) -> String {
    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
}

fn compare(path: &str, recorded: &Value, found: &Value, marks: &Marks, differences: &mut Vec<String>) {
    if Marks::has(&marks.values, path) {
        if let (Value::String(recorded), Value::String(found)) = (recorded, found)
            && shape(recorded) != shape(found)
        {
            differences.push(format!("{path}: {found:?} is not of the shape of {recorded:?}"));
        }
        return;
    }
    match (recorded, found) {
        (Value::Object(recorded), Value::Object(found)) => {
            for (key, value) in recorded {
                match found.get(key) {
                    Some(other) => compare(&below(path, key), value, other, marks, differences),
                    None => differences.push(format!("{path}/{key} is missing: {value}")),
                }
            }
            for (key, value) in found.iter().filter(|(key, _)| !recorded.contains_key(*key)) {
                differences.push(format!("{path}/{key} is too much: {value}"));
            }
        }
        (Value::Array(recorded), Value::Array(found)) => {
            compare_lists(path, recorded, found, marks, differences);
        }
        (Value::String(recorded), Value::String(found)) => {
            if !same_text(path, recorded, found, marks) {
                differences.push(format!("{path}: {found:?} instead of {recorded:?}"));
            }
        }
        _ if recorded == found || same_number(recorded, found) => {}
        _ => differences.push(format!("{path}: {found} instead of {recorded}")),
    }
}

fn same_number(recorded: &Value, found: &Value) -> bool {
    matches!((recorded.as_f64(), found.as_f64()), (Some(recorded), Some(found)) if (recorded - found).abs() < 1e-9)
}

fn compare_lists(
    path: &str,
    recorded: &[Value],
    found: &[Value],
    marks: &Marks,
    differences: &mut Vec<String>,
) {
    if recorded.len() != found.len() {
        let list = Value::Array(found.to_vec());
        differences.push(format!("{path}: {} elements instead of {}: {list}", found.len(), recorded.len()));
        return;
    }
    if !Marks::has(&marks.unordered, path) {
        for (place, (recorded, found)) in recorded.iter().zip(found).enumerate() {
            compare(&format!("{path}/{place}"), recorded, found, marks, differences);
        }
        return;
    }
    let mut free: Vec<&Value> = found.iter().collect();
    for (place, recorded) in recorded.iter().enumerate() {
        let fits = |found: &&Value| {
            let mut faults = Vec::new();
            compare(&format!("{path}/{place}"), recorded, found, marks, &mut faults);
            faults
        };
        match free.iter().position(|found| fits(found).is_empty()) {
            Some(found) => {
                free.remove(found);
            }
            None => {
                // The element that differs least is told.
                let nearest = free.iter().min_by_key(|found| fits(found).len());
                differences.extend(nearest.map(fits).unwrap_or_default());
            }
        }
    }
}

fn same_text(path: &str, recorded: &str, found: &str, marks: &Marks) -> bool {
    if Marks::has(&marks.sets, path) {
        let parts = |text: &str| {
            let mut parts: Vec<String> = text.split(',').map(str::to_owned).collect();
            parts.sort();
            parts
        };
        return parts(recorded) == parts(found);
    }
    without_place(recorded) == without_place(found)
        || recorded.starts_with("UPID:") && shape(recorded) == shape(found)
}

/// Removes the place in Perl code that some texts end with.
fn without_place(text: &str) -> String {
    let mut rest = text;
    let mut kept = String::new();
    while let Some(start) = rest.find(" at /usr/share/perl5/") {
        kept.push_str(&rest[..start]);
        let after = &rest[start..];
        let end = after.find(" line ").map_or(after.len(), |place| {
            let digits =
                after[place + 6..].find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len() - place - 6);
            let end = place + 6 + digits;
            if after[end..].starts_with('.') { end + 1 } else { end }
        });
        rest = &after[end..];
    }
    kept.push_str(rest);
    kept
}

/// The shape of a UPID: what it says apart from process and time. Other texts have none.
fn shape(text: &str) -> String {
    let parts: Vec<&str> = text.split(':').collect();
    match parts.as_slice() {
        ["UPID", host, _, _, _, rest @ ..] => format!("UPID:{host}:{}", rest.join(":")),
        _ => String::new(),
    }
}
