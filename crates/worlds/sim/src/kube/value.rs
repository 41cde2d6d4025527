//! Small steps on objects, which are JSON values.

use serde_json::{Map, Value, json};

use crate::clock::Time;

/// Returns the value at a pointer of plain keys and numbers. Unlike [`Value::pointer`] it makes no copies of them.
pub fn at<'v>(value: &'v Value, pointer: &str) -> Option<&'v Value> {
    pointer.split('/').skip(1).try_fold(value, |value, key| match value {
        Value::Object(map) => map.get(key),
        Value::Array(items) => items.get(key.parse::<usize>().ok()?),
        _ => None,
    })
}

/// Returns the text at a JSON pointer; empty if there is none.
pub fn text<'v>(value: &'v Value, pointer: &str) -> &'v str {
    at(value, pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the number at a JSON pointer.
pub fn number(value: &Value, pointer: &str) -> Option<i64> {
    at(value, pointer).and_then(Value::as_i64)
}

/// Returns the list at a JSON pointer; empty if there is none.
pub fn list<'v>(value: &'v Value, pointer: &str) -> &'v [Value] {
    at(value, pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the name of an object.
pub fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// Returns the namespace of an object; empty for those of the whole cluster.
pub fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

/// Returns the uid of an object.
pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

/// Returns a label.
pub fn label<'v>(object: &'v Value, key: &str) -> Option<&'v str> {
    at(object, "/metadata/labels").and_then(|labels| labels.get(key)).and_then(Value::as_str)
}

/// Whether an object is on its way out.
pub fn is_terminating(object: &Value) -> bool {
    at(object, "/metadata/deletionTimestamp").is_some()
}

/// Sets the value at a path of plain keys, making objects on the way.
pub fn set(value: &mut Value, path: &[&str], new: Value) {
    let mut at = value;
    for key in path {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = at.as_object_mut().expect("made an object just now").entry(*key).or_insert(Value::Null);
    }
    *at = new;
}

/// Sets the value at a path unless there is one.
pub fn set_default(value: &mut Value, path: &[&str], new: Value) {
    let pointer: String = path.iter().flat_map(|key| ["/", key]).collect();
    if at(value, &pointer).is_none_or(Value::is_null) {
        set(value, path, new);
    }
}

/// Removes the value at a path of plain keys.
pub fn remove(value: &mut Value, path: &[&str]) {
    let Some((last, parents)) = path.split_last() else { return };
    let mut at = value;
    for key in parents {
        match at.get_mut(*key) {
            Some(next) => at = next,
            None => return,
        }
    }
    if let Some(map) = at.as_object_mut() {
        map.shift_remove(*last);
    }
}

/// Returns a moment as Kubernetes writes it.
pub fn timestamp(at: Time) -> Value {
    Value::String(calendar(at.unix_seconds()))
}

/// Returns a moment with microseconds, as leases have it.
pub fn micro_timestamp(at: Time) -> Value {
    let seconds = calendar(at.unix_seconds());
    Value::String(format!("{}.{:06}Z", seconds.trim_end_matches('Z'), at.millis() % 1000 * 1000))
}

/// Returns Unix seconds as `2026-01-01T00:00:00Z`.
pub fn calendar(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since the first of March of year 0, in eras of 400 years.
    let shifted = days + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Reads `2026-01-01T00:00:00Z`, with or without a fraction, as Unix seconds.
pub fn parse_calendar(text: &str) -> Option<u64> {
    let digits = |range: std::ops::Range<usize>| text.get(range)?.parse::<u64>().ok();
    let (year, month, day) = (digits(0..4)?, digits(5..7)?, digits(8..10)?);
    let (hour, minute, second) = (digits(11..13)?, digits(14..16)?, digits(17..19)?);
    if !text.ends_with('Z') || !(1..=12).contains(&month) || year < 1970 {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let days =
        365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day.checked_sub(1)?;
    Some((days.checked_sub(719_468)?) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Returns a condition of an object's status.
pub fn condition<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    list(object, "/status/conditions").iter().find(|condition| text(condition, "/type") == kind)
}

/// Whether a condition of an object's status is `True`.
pub fn holds(object: &Value, kind: &str) -> bool {
    condition(object, kind).is_some_and(|condition| text(condition, "/status") == "True")
}

/// What a condition is to say.
#[derive(Debug, Clone, Copy)]
pub struct Verdict<'a> {
    /// Its type.
    pub kind: &'a str,
    /// `True`, `False` or `Unknown`.
    pub status: &'a str,
    /// One word.
    pub reason: &'a str,
    /// A sentence.
    pub message: &'a str,
}

/// Sets a condition of an object's status; its time of transition moves only when its status does.
pub fn set_condition(object: &mut Value, now: Time, verdict: Verdict<'_>) {
    let before = condition(object, verdict.kind).cloned();
    let same = before.as_ref().is_some_and(|before| text(before, "/status") == verdict.status);
    let since = match &before {
        Some(before) if same => before.get("lastTransitionTime").cloned().unwrap_or_else(|| timestamp(now)),
        _ => timestamp(now),
    };
    let mut new = before.unwrap_or_else(|| json!({"type": verdict.kind}));
    set(&mut new, &["status"], verdict.status.into());
    for (key, value) in [("reason", verdict.reason), ("message", verdict.message)] {
        if value.is_empty() {
            remove(&mut new, &[key]);
        } else {
            set(&mut new, &[key], value.into());
        }
    }
    set(&mut new, &["lastTransitionTime"], since);
    set_default(object, &["status", "conditions"], json!([]));
    let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    let Some(conditions) = conditions else { return };
    match conditions.iter_mut().find(|condition| text(condition, "/type") == verdict.kind) {
        Some(condition) => *condition = new,
        None => conditions.push(new),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calendars_read_back_what_they_wrote() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_767_225_600, "2026-01-01T00:00:00Z"),
            (951_826_154, "2000-02-29T12:09:14Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
        ] {
            assert_eq!(calendar(seconds), text);
            assert_eq!(parse_calendar(text), Some(seconds));
        }
        for wrong in ["", "2026", "2026-13-01T00:00:00Z", "xxxx-01-01T00:00:00Z", "2026-01-01T00:00:00+01:00"]
        {
            assert_eq!(parse_calendar(wrong), None, "{wrong}");
        }
    }
}
