//! Text that goes to a server, and text that comes from one.

/// Most characters of a text that is passed on.
const MAX_TEXT: usize = 2_000;

/// Cleans remote text, which is shown to people: one line, printable, and not without end.
pub fn clean(text: &str) -> String {
    let hidden = |c: char| c.is_whitespace() || c.is_control() || is_trick(c);
    // What is cut is measured first, so that the work is bounded too.
    let text: String = text.chars().take(4 * MAX_TEXT).collect();
    let words: Vec<&str> = text.split(hidden).filter(|word| !word.is_empty()).collect();
    words.join(" ").chars().take(MAX_TEXT).collect()
}

/// Characters that turn the direction of text around, or that nobody sees.
const fn is_trick(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Encodes a text for a segment of a path or for a query. Everything but unreserved characters is encoded, so
/// that no name can lead elsewhere.
pub fn percent(text: &str) -> String {
    // A server may take these two for "here" and "above", encoded or not.
    if text == "." || text == ".." {
        return "%2E".repeat(text.len());
    }
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_text_cannot_play_tricks() {
        assert_eq!(clean("a\u{1b}[31m b\r\nc"), "a [31m b c");
        assert_eq!(clean("gnp.\u{202e}exe"), "gnp. exe");
        assert_eq!(clean(&"x".repeat(99_999)).len(), MAX_TEXT);
    }

    #[test]
    fn no_name_leads_elsewhere() {
        assert_eq!(percent("a/b?c#d"), "a%2Fb%3Fc%23d");
        assert_eq!(percent(".."), "%2E%2E");
        assert_eq!(percent("system:node.v1~ü"), "system%3Anode.v1~%C3%BC");
    }
}
