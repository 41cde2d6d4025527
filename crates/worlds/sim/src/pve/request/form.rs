//! Forms: `key=value` pairs, as a body or a query.

use serde_json::Value;

/// Reads a form as the real server does: pairs end at `&` and at `;`, a value ends at the next `=`, and a key
/// that comes again makes a list.
pub fn parse(text: &str) -> Vec<(String, Value)> {
    let mut pairs: Vec<(String, Value)> = Vec::new();
    for pair in text.split(['&', ';']).filter(|pair| !pair.is_empty()) {
        let mut parts = pair.split('=');
        let key = unescaped(&parts.next().unwrap_or_default().replace('+', " "));
        if key.is_empty() {
            continue;
        }
        let value = Value::String(unescaped(&parts.next().unwrap_or_default().replace('+', " ")));
        match pairs.iter_mut().find(|(known, _)| *known == key) {
            Some((_, Value::Array(values))) => values.push(value),
            Some((_, known)) => *known = Value::Array(vec![known.take(), value]),
            None => pairs.push((key, value)),
        }
    }
    pairs
}

/// Decodes `%xx`; what is no such code stays.
pub fn unescaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut place = 0;
    while place < bytes.len() {
        let code = (bytes[place] == b'%').then(|| bytes.get(place + 1..place + 3)).flatten();
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok().filter(|_| !code.starts_with('+'))) {
            Some(byte) => {
                decoded.push(byte);
                place += 3;
            }
            None => {
                decoded.push(bytes[place]);
                place += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_ends_at_semicolon_and_second_equals_sign() {
        let pairs = parse("boot=order=scsi0;net0&name=a%3Db+c&vms=1&vms=2");
        let expected = [
            ("boot".to_owned(), json!("order")),
            ("net0".to_owned(), json!("")),
            ("name".to_owned(), json!("a=b c")),
            ("vms".to_owned(), json!(["1", "2"])),
        ];
        assert_eq!(pairs, expected);
    }

    #[test]
    fn broken_codes_stay_as_they_are() {
        assert_eq!(unescaped("100%&%4&%zz%41"), "100%&%4&%zzA");
    }
}
