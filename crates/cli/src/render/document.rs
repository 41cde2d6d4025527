//! JSON and YAML.

use serde::Serialize;
use serde_json::Value;

use super::text::visible;

/// Returns a value to which something can be added.
pub fn value(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("what is shown has text as keys")
}

/// Returns a value as JSON for people to read too.
pub fn json(value: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(value).expect("what is shown has text as keys");
    inert(&text) + "\n"
}

/// Escapes what JSON may hold as it is and a terminal should not get: it says the same to programs.
pub fn inert(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        // Outside texts there are only these two, and in them they are escaped already.
        if c == '\n' || c == ' ' || visible(c) == c {
            text.push(c);
        } else {
            let mut units = [0; 2];
            text.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    text
}

/// Returns a value as YAML, in the same shape as JSON.
pub fn yaml(value: &impl Serialize) -> String {
    serde_saphyr::to_string(&self::value(value)).expect("JSON values are YAML values")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Value, json, yaml};

    #[test]
    fn text_that_looks_like_something_else_stays_text() {
        let value = json!({
            "switch": "yes", "no": "off", "version": "1.30", "octal": "0777", "nothing": "~", "time": "12:30",
            "mac": "00:11:22:33:44:55", "exponent": "1e3", "hex": "0x1f", "colon": "a: b", "comment": "#x",
            "item": "- x", "lines": "a\nb\n", "escape": "\u{1b}[31m\u{9b}", "empty": "", "space": " x ",
            "date": "2026-01-01", "tag": "!x", "brace": "{x}", "list": [], "map": {}, "null": null,
        });
        let text = yaml(&value);
        assert_eq!(serde_saphyr::from_str::<Value>(&text).expect("YAML"), value);
        assert!(!text.contains('\u{1b}') && !text.contains('\u{9b}'));
    }

    #[test]
    fn what_steers_terminals_is_escaped_and_means_the_same() {
        let value = json!({ "name\u{202e}": "a\u{1b}[2J\u{7f}\u{9b}31m\u{200b}\u{e0001}\u{1f600}\n\"\\" });
        let text = json(&value);
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), value);
        assert!(text.contains('\u{1f600}'), "{text}");
        assert!(text.chars().all(|c| c == '\n' || super::visible(c) == c), "{text:?}");
    }

    #[test]
    fn documents_end_with_a_newline() {
        for text in [json(&json!({"a": 1})), yaml(&json!({"a": 1}))] {
            assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{text:?}");
        }
    }
}
