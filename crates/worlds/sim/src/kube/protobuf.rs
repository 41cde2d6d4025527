//! Bodies in protobuf: Go clients made from types send built-in kinds so, and take JSON for an answer.
//!
//! The field numbers are those that Kubernetes publishes for its API (`generated.proto`, 1.36); `messages.txt` holds
//! them for the kinds that clients write. What is zero in a message may be unset: an empty text is left out, as Go
//! clients write all texts; numbers and switches are kept.

use std::{collections::BTreeMap, sync::OnceLock};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::value::calendar;

/// What a body in this form begins with.
const MAGIC: &[u8; 4] = b"k8s\0";

/// How deep messages may be nested.
const DEEPEST: usize = 64;

type Fields = BTreeMap<u64, (&'static str, &'static str)>;

fn messages() -> &'static BTreeMap<&'static str, Fields> {
    static MESSAGES: OnceLock<BTreeMap<&'static str, Fields>> = OnceLock::new();
    MESSAGES.get_or_init(|| {
        let lines = include_str!("messages.txt").lines().filter(|line| !line.starts_with('#'));
        lines
            .filter_map(|line| {
                let mut words = line.split(' ');
                let name = words.next()?;
                let fields = words.filter_map(|word| {
                    let mut parts = word.splitn(3, ':');
                    Some((parts.next()?.parse().ok()?, (parts.next()?, parts.next()?)))
                });
                Some((name, fields.collect()))
            })
            .collect()
    })
}

/// Decodes a body; nothing if it is damaged or of a kind that is not known here.
pub fn decode(body: &[u8]) -> Option<Value> {
    let mut reader = Reader(body.strip_prefix(MAGIC)?);
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    while let Some((number, field)) = reader.next()? {
        match (number, field) {
            (1, Field::Bytes(bytes)) => {
                let mut inner = Reader(bytes);
                while let Some((number, field)) = inner.next()? {
                    match (number, field) {
                        (1, Field::Bytes(bytes)) => api_version = text(bytes),
                        (2, Field::Bytes(bytes)) => kind = text(bytes),
                        _ => {}
                    }
                }
            }
            (2, Field::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let group =
        api_version.split_once('/').map_or("core", |(group, _)| group.split('.').next().unwrap_or_default());
    let name =
        if kind == "DeleteOptions" { "meta.DeleteOptions".to_owned() } else { format!("{group}.{kind}") };
    let mut object = message(&name, raw, 0)?;
    object["kind"] = kind.into();
    object["apiVersion"] = api_version.into();
    Some(object)
}

enum Field<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    /// Returns the next field; the outer nothing is damage, the inner one the end.
    #[allow(clippy::option_option)]
    fn next(&mut self) -> Option<Option<(u64, Field<'b>)>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let key = self.varint()?;
        let field = match key & 7 {
            0 => Field::Number(self.varint()?),
            1 => Field::Number(u64::from_le_bytes(*self.take(8)?.first_chunk()?)),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Field::Bytes(self.take(length)?)
            }
            5 => Field::Number(u64::from(u32::from_le_bytes(*self.take(4)?.first_chunk()?))),
            _ => return None,
        };
        Some(Some((key >> 3, field)))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Fields whose own fields stand in the object around them.
const INLINE: [&str; 6] = [
    "volumeSource",
    "persistentVolumeSource",
    "localObjectReference",
    "handler",
    "ephemeralContainerCommon",
    "crossVersionObjectReference",
];

fn message(name: &str, bytes: &[u8], depth: usize) -> Option<Value> {
    let fields = messages().get(name).filter(|_| depth < DEEPEST)?;
    let mut object = Map::new();
    let mut reader = Reader(bytes);
    while let Some((number, field)) = reader.next()? {
        let Some((name, kind)) = fields.get(&number) else { continue };
        if let Some(kind) = kind.strip_prefix('*') {
            let items = object.entry(*name).or_insert_with(|| json!([]));
            let item = value(kind, &field, depth)?.unwrap_or_else(|| json!(""));
            items.as_array_mut()?.push(item);
        } else if let Some(kind) = kind.strip_prefix('M') {
            let Field::Bytes(bytes) = field else { return None };
            let (key, entry) = map_entry(kind, bytes, depth)?;
            let map = object.entry(*name).or_insert_with(|| json!({}));
            map.as_object_mut()?.insert(key, entry);
        } else if let Some(value) = value(kind, &field, depth)? {
            match value {
                Value::Object(inner) if INLINE.contains(name) => object.extend(inner),
                value => {
                    object.insert((*name).into(), value);
                }
            }
        }
    }
    Some(Value::Object(object))
}

fn map_entry(kind: &str, bytes: &[u8], depth: usize) -> Option<(String, Value)> {
    let (mut key, mut entry) = (String::new(), json!(""));
    let mut reader = Reader(bytes);
    while let Some((number, field)) = reader.next()? {
        match (number, &field) {
            (1, Field::Bytes(bytes)) => key = text(bytes),
            (2, _) => entry = value(kind, &field, depth)?.unwrap_or_else(|| json!("")),
            _ => {}
        }
    }
    Some((key, entry))
}

/// Returns a value; the outer nothing is damage, the inner one what is unset.
#[allow(clippy::option_option)]
fn value(kind: &str, field: &Field<'_>, depth: usize) -> Option<Option<Value>> {
    Some(match (kind, field) {
        ("b", Field::Number(number)) => Some((*number != 0).into()),
        ("i", Field::Number(number)) => Some(number.cast_signed().into()),
        ("d", Field::Number(number)) => Some(f64::from_bits(*number).into()),
        ("s", Field::Bytes(bytes)) => Some(text(bytes)).filter(|text| !text.is_empty()).map(Into::into),
        ("y", Field::Bytes(bytes)) => Some(STANDARD.encode(bytes).into()),
        ("T" | "U", Field::Bytes(bytes)) => time(bytes, kind == "U")?,
        ("Q", Field::Bytes(bytes)) => first_text(bytes)?,
        ("X", Field::Bytes(bytes)) => number_or_text(bytes)?,
        ("R" | "F", Field::Bytes(bytes)) => {
            let raw = first_text(bytes)?;
            raw.and_then(|raw| serde_json::from_str(raw.as_str().unwrap_or_default()).ok())
        }
        (name, Field::Bytes(bytes)) if name.len() > 1 => {
            let inner = message(name, bytes, depth + 1)?;
            Some(inner)
        }
        _ => return None,
    })
}

#[allow(clippy::option_option)]
fn first_text(bytes: &[u8]) -> Option<Option<Value>> {
    let mut reader = Reader(bytes);
    while let Some((number, field)) = reader.next()? {
        if let (1, Field::Bytes(bytes)) = (number, field) {
            return Some(Some(text(bytes).into()));
        }
    }
    Some(None)
}

#[allow(clippy::option_option)]
fn time(bytes: &[u8], fraction: bool) -> Option<Option<Value>> {
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = Reader(bytes);
    while let Some((number, field)) = reader.next()? {
        match (number, field) {
            (1, Field::Number(number)) => seconds = number,
            (2, Field::Number(number)) => nanos = number,
            _ => {}
        }
    }
    // The far future and the far past are no moments that anybody means.
    if seconds == 0 || seconds > 253_402_300_799 {
        return Some(None);
    }
    let whole = calendar(seconds);
    let shown = if fraction {
        format!("{}.{:06}Z", whole.trim_end_matches('Z'), nanos / 1000 % 1_000_000)
    } else {
        whole
    };
    Some(Some(shown.into()))
}

#[allow(clippy::option_option)]
fn number_or_text(bytes: &[u8]) -> Option<Option<Value>> {
    let (mut is_text, mut number, mut word) = (false, 0_i64, String::new());
    let mut reader = Reader(bytes);
    while let Some((at, field)) = reader.next()? {
        match (at, field) {
            (1, Field::Number(kind)) => is_text = kind == 1,
            (2, Field::Number(value)) => number = value.cast_signed(),
            (3, Field::Bytes(bytes)) => word = text(bytes),
            _ => {}
        }
    }
    Some(Some(if is_text { word.into() } else { number.into() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        out.extend(bytes);
        out
    }

    fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &meta), field(2, raw)].concat()
    }

    #[test]
    fn a_config_map_is_read_as_its_json() {
        let label = [field(1, b"app"), field(2, b"web")].concat();
        let metadata = [field(1, b"settings"), field(3, b""), field(11, &label), field(8, b"")].concat();
        let entry = [field(1, b"key"), field(2, b"value")].concat();
        let raw = [field(1, &metadata), field(2, &entry)].concat();
        assert_eq!(
            decode(&body("v1", "ConfigMap", &raw)).unwrap(),
            json!({"metadata": {"name": "settings", "labels": {"app": "web"}}, "data": {"key": "value"},
                "kind": "ConfigMap", "apiVersion": "v1"})
        );
    }

    #[test]
    fn options_of_a_deletion_are_read() {
        let raw =
            [vec![1 << 3, 0], field(2, &field(1, b"some-uid")), field(4, b"Foreground"), field(5, b"All")]
                .concat();
        let options = decode(&body("policy/v1", "DeleteOptions", &raw)).unwrap();
        assert_eq!(options["gracePeriodSeconds"], 0);
        assert_eq!(options["preconditions"]["uid"], "some-uid");
        assert_eq!(
            (&options["propagationPolicy"], &options["dryRun"]),
            (&json!("Foreground"), &json!(["All"]))
        );
    }

    #[test]
    fn damage_is_not_read() {
        let whole = body("v1", "ConfigMap", &field(1, &field(1, b"name")));
        for end in 0..whole.len() {
            let _ = decode(&whole[..end]);
        }
        assert!(decode(&whole[..whole.len() - 1]).is_none());
        assert!(decode(&body("v1", "Unknown", b"")).is_none());
        assert!(decode(&[MAGIC.as_slice(), &[0xff; 40]].concat()).is_none());
    }
}
