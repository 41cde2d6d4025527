//! What of a patch is a value, and what a key or a name.

use ichor_model::SourceId;
use serde_json::Value as Json;
use zeroize::Zeroizing;

use crate::document::{
    raw::{self, Raw, RawKind, Style},
    scalar::{Resolved, resolve},
};

/// Shortest number that is taken for a value to hide: fields rarely need larger ones, and keys of digits are
/// not shorter.
const SHORTEST_NUMBER: usize = 6;

/// What patches are made of.
#[derive(Default)]
pub struct Contents {
    /// Texts, and numbers that are long enough to be a secret.
    pub values: Vec<Zeroizing<String>>,
    /// Lines of patches that cannot be read, without their keys.
    pub unread: Vec<Zeroizing<String>>,
    /// Keys, kinds and names of documents, and what JSON pointers are made of.
    pub keys: Vec<String>,
}

impl Contents {
    /// Adds a patch file.
    pub fn add_text(&mut self, bytes: &[u8]) {
        match raw::parse(SourceId::default(), bytes) {
            Ok(documents) => documents.iter().for_each(|document| self.document(document)),
            Err(_) => String::from_utf8_lossy(bytes).lines().for_each(|line| self.unread_line(line)),
        }
    }

    /// Adds a patch that is written in an inventory.
    pub fn add_json(&mut self, value: &Json) {
        match value {
            Json::String(text) => self.add_text(text.as_bytes()),
            other => self.document(&raw::from_json(other, Style::Quoted)),
        }
    }

    /// A list is one of operations or, in an inventory, of documents.
    fn document(&mut self, raw: &Raw) {
        match &raw.kind {
            RawKind::List(items) => items.iter().for_each(|item| match item.get("op") {
                Some(_) => self.operation(item),
                None => self.document(item),
            }),
            RawKind::Map(entries) if raw.get("kind").is_some() => {
                for (key, value) in entries {
                    match value.text().filter(|_| matches!(key.text.as_str(), "kind" | "name")) {
                        Some(name) => self.name(name),
                        None => self.value(value),
                    }
                    self.name(&key.text);
                }
            }
            _ => self.value(raw),
        }
    }

    fn operation(&mut self, raw: &Raw) {
        let RawKind::Map(entries) = &raw.kind else { return };
        for (key, value) in entries {
            let is_pointer = matches!(key.text.as_str(), "path" | "from");
            match value.text().filter(|text| is_pointer && text.starts_with('/')) {
                Some(pointer) => {
                    self.name(pointer);
                    pointer
                        .split('/')
                        .for_each(|part| self.name(&part.replace("~1", "/").replace("~0", "~")));
                }
                None => self.value(value),
            }
            self.name(&key.text);
        }
    }

    fn value(&mut self, raw: &Raw) {
        match &raw.kind {
            RawKind::Scalar { text, style } => {
                if is_text(text, *style) {
                    self.values.push(Zeroizing::new(text.clone()));
                }
            }
            RawKind::List(items) => items.iter().for_each(|item| self.value(item)),
            RawKind::Map(entries) => {
                for (key, value) in entries {
                    self.name(&key.text);
                    self.value(value);
                }
            }
        }
    }

    fn name(&mut self, name: &str) {
        // Messages write it with its special characters escaped.
        self.keys.extend([name.to_owned(), raw::show(name)]);
    }

    /// What stands before a colon at the beginning of a line looks like a key, whatever is wrong with the
    /// rest.
    fn unread_line(&mut self, line: &str) {
        let line = line.trim_start_matches([' ', '-']).trim_end();
        let key = line.split_once(": ").or_else(|| Some((line.strip_suffix(':')?, "")));
        let is_key =
            |key: &str| !key.is_empty() && key.chars().all(|c| c.is_alphanumeric() || "-_./$".contains(c));
        let rest = match key.filter(|(key, _)| is_key(key)) {
            Some((key, rest)) => {
                self.name(key);
                rest
            }
            None => line,
        };
        self.unread.push(Zeroizing::new(rest.trim_matches(|c: char| "\"' {}[],".contains(c)).to_owned()));
    }
}

/// Whether a value is a text or long enough to be a secret.
fn is_text(text: &str, style: Style) -> bool {
    match resolve(text) {
        Resolved::Null | Resolved::Bool(_) => false,
        Resolved::Int(_) | Resolved::Float(_) if style == Style::Plain => text.len() >= SHORTEST_NUMBER,
        Resolved::Int(_) | Resolved::Float(_) | Resolved::Time | Resolved::Text => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(text: &str) -> (Vec<String>, Contents) {
        let mut contents = Contents::default();
        contents.add_text(text.as_bytes());
        (contents.values.iter().map(|value| value.to_string()).collect(), contents)
    }

    #[test]
    fn names_and_pointers_are_no_values() {
        let (values, document) =
            contents("kind: LinkConfig\nname: eth0\naddresses: [{address: abcd, up: true}]\nmtu: 1500\n");
        assert_eq!(values, ["abcd"]);
        for key in ["LinkConfig", "eth0", "addresses", "address", "mtu"] {
            assert!(document.keys.iter().any(|known| known == key), "{key}");
        }
        let (values, patch) = contents(
            "- {op: add, path: /machine/a~1b, value: {x: hunter2, y: 12345678}}\n- {op: bad!, path: nowhere}",
        );
        assert_eq!(values, ["add", "hunter2", "12345678", "bad!", "nowhere"]);
        assert!(patch.keys.iter().any(|known| known == "a/b"));
    }

    #[test]
    fn lines_that_cannot_be_read_keep_their_keys() {
        let (values, broken) = contents("machine:\n  token: \"hunter2\n  - swordfish\n");
        assert!(values.is_empty());
        let lines: Vec<&str> = broken.unread.iter().map(|line| line.as_str()).collect();
        assert_eq!(lines, ["", "hunter2", "swordfish"]);
        assert!(broken.keys.iter().any(|key| key == "token"));
    }
}
