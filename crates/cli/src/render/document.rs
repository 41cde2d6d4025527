//! JSON and YAML.

use serde::Serialize;
use serde_json::Value;

/// Returns a value to which something can be added.
pub fn value(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("what is shown has text as keys")
}

/// Returns a value as JSON for people to read too.
pub fn json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).expect("what is shown has text as keys") + "\n"
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
    fn documents_end_with_a_newline() {
        for text in [json(&json!({"a": 1})), yaml(&json!({"a": 1}))] {
            assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{text:?}");
        }
    }
}
