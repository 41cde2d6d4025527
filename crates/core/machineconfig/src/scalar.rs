//! Text as a YAML scalar, byte for byte as Go's YAML library writes it.
//!
//! Files that people compare with talosctl's, and schematics, whose name is the hash of their bytes,
//! leave no room for another emitter's taste. The rules were found by running the Go encoder
//! (go.yaml.in/yaml/v4); they are those of a block mapping's or block sequence's value.

mod resolve;

use resolve::{is_base_60, is_old_switch, is_other_type};

/// Which release of the Go library is imitated, where releases differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// 4.0.0-rc.4, in Talos 1.13.
    Talos,
    /// 4.0.0-rc.6, in Image Factory 1.5.
    Factory,
}

/// Writes a value. `column` is where the lines of a block begin, if the text has several.
///
/// The result ends without a newline, except where the text's own newlines are kept.
pub fn scalar(text: &str, column: usize, dialect: Dialect) -> String {
    let look = Look::at(text);
    if text.contains('\n') {
        return if look.fits_block() { literal(text, column) } else { double_quoted(text) };
    }
    match style(text, &look, dialect) {
        Style::Plain => text.into(),
        Style::Single => format!("'{}'", indent_lines(&text.replace('\'', "''"), column)),
        Style::Double => double_quoted(text),
    }
}

/// Whether releases of the Go library differ in how they write this text.
pub fn is_release_dependent(text: &str) -> bool {
    is_old_switch(text) || is_base_60(text) || text == "<<" || text.starts_with('\n')
}

enum Style {
    Plain,
    Single,
    Double,
}

fn style(text: &str, look: &Look, dialect: Dialect) -> Style {
    let old = is_old_switch(text) || is_base_60(text) || text == "<<";
    if is_other_type(text) || (old && dialect == Dialect::Talos) {
        return Style::Double;
    }
    if look.fits_plain() && !old {
        return Style::Plain;
    }
    if look.fits_single() { Style::Single } else { Style::Double }
}

/// What about a text decides how it may be written.
#[derive(Debug, Default)]
struct Look {
    indicator: bool,
    line_break: bool,
    outer_space: bool,
    trailing_space: bool,
    space_before_break: bool,
    space_after_break: bool,
    only_space: bool,
    tab: bool,
    special: bool,
}

impl Look {
    fn at(text: &str) -> Self {
        let mut look = Self {
            indicator: text.starts_with("---") || text.starts_with("..."),
            outer_space: text.starts_with(' ') || text.ends_with(' '),
            trailing_space: text.ends_with(' '),
            only_space: text.trim().is_empty(),
            ..Self::default()
        };
        let mut previous = None;
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            let next = rest.clone().next();
            look.indicator |= is_indicator(previous, c, next);
            look.line_break |= is_break(c);
            look.tab |= c == '\t';
            look.special |= c != '\t' && !is_printable(c);
            look.space_before_break |= c == ' ' && next.is_some_and(is_break);
            look.space_after_break |= c == ' ' && previous.is_some_and(is_break);
            previous = Some(c);
        }
        look
    }

    const fn fits_plain(&self) -> bool {
        !(self.indicator || self.line_break || self.outer_space) && self.fits_single()
    }

    const fn fits_single(&self) -> bool {
        !(self.space_before_break || self.space_after_break || self.tab || self.special)
    }

    const fn fits_block(&self) -> bool {
        !(self.trailing_space || self.space_before_break || self.only_space || self.special)
    }
}

/// Whether a character would mean something to a YAML reader where it stands.
fn is_indicator(previous: Option<char>, c: char, next: Option<char>) -> bool {
    let blank_follows = next.is_none_or(|next| is_blank(next) || is_break(next));
    match (previous, c) {
        (
            None,
            '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`',
        ) => true,
        (None, '?' | '-') | (_, ':') => blank_follows,
        (Some(previous), '#') => is_blank(previous) || is_break(previous),
        _ => false,
    }
}

const fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

const fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Whether the library writes a character as it is. Beyond the basic plane it does not.
const fn is_printable(c: char) -> bool {
    matches!(c, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}')
}

fn double_quoted(text: &str) -> String {
    // After a byte-order mark the library trusts nothing.
    let marked = text.starts_with('\u{feff}');
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        if !marked && is_printable(c) && !is_break(c) && !matches!(c, '"' | '\\') {
            quoted.push(c);
        } else {
            quoted.push_str(&escape(c));
        }
    }
    quoted.push('"');
    quoted
}

fn escape(c: char) -> String {
    match c {
        '\0' => "\\0".into(),
        '\u{7}' => "\\a".into(),
        '\u{8}' => "\\b".into(),
        '\t' => "\\t".into(),
        '\n' => "\\n".into(),
        '\u{b}' => "\\v".into(),
        '\u{c}' => "\\f".into(),
        '\r' => "\\r".into(),
        '\u{1b}' => "\\e".into(),
        '"' => "\\\"".into(),
        '\\' => "\\\\".into(),
        '\u{85}' => "\\N".into(),
        '\u{a0}' => "\\_".into(),
        '\u{2028}' => "\\L".into(),
        '\u{2029}' => "\\P".into(),
        '\0'..='\u{ff}' => format!("\\x{:02X}", u32::from(c)),
        '\0'..='\u{ffff}' => format!("\\u{:04X}", u32::from(c)),
        _ => format!("\\U{:08X}", u32::from(c)),
    }
}

/// Writes a literal block.
fn literal(text: &str, column: usize) -> String {
    let hint = if text.starts_with(' ') { "4" } else { "" };
    let chomping = match text.strip_suffix('\n') {
        None => "-",
        Some(rest) if rest.ends_with('\n') => "+",
        Some(_) => "",
    };
    let body = text.strip_suffix('\n').unwrap_or(text);
    format!("|{hint}{chomping}{}", indent_lines(&format!("\n{body}"), column))
}

/// Moves every line but the first to a column; empty lines stay empty.
fn indent_lines(text: &str, column: usize) -> String {
    let mut indented = String::with_capacity(text.len());
    let mut after_break = false;
    for c in text.chars() {
        if after_break && !is_break(c) {
            indented.push_str(&" ".repeat(column));
        }
        after_break = is_break(c);
        indented.push(c);
    }
    indented
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(text: &str) -> String {
        let written = scalar(text, 4, Dialect::Talos);
        assert_eq!(written, scalar(text, 4, Dialect::Factory), "{text}");
        written
    }

    #[test]
    fn text_stays_plain_where_it_can() {
        for text in [
            "foo",
            "-dash",
            "?q",
            "it's",
            "a=b&c=d",
            "ip=1.2.3.4::5.6.7.8:x:off",
            "a#b",
            "a:b",
            "::1",
            "fd00::11/64",
            "https://x:6443",
            "a,b[c]{d}",
            "=",
            "<",
            "1.2.3",
            "0x",
            "1e999",
            "12345e.0123456789012345",
            "2026-02-30",
            "2026-01-02T03:04:05",
            "0xFFFFFFFFFFFFFFFFF",
            "._9",
            ".3_",
            "é",
        ] {
            assert_eq!(both(text), text);
        }
    }

    #[test]
    fn what_another_type_would_claim_is_double_quoted() {
        for text in [
            "",
            "~",
            "null",
            "true",
            "False",
            "123",
            "1.5",
            ".5",
            "-1",
            "+1",
            "1_000",
            "0x10",
            "0b11",
            "0o17",
            "017",
            "1e5",
            ".inf",
            "-.INF",
            ".nan",
            ".2_9",
            "18446744073709551615",
            "99999999999999999999",
            "2026-01-01",
            "2026-1-2 3:04:05.6",
            "2026-01-02T03:04:05Z",
            "123456.0123456789012345",
        ] {
            assert_eq!(both(text), format!("\"{text}\""));
        }
    }

    #[test]
    fn what_means_something_to_yaml_is_single_quoted() {
        for text in [
            "# a", "a #b", "a: b", "a:", "- a", "- ", "-", "? a", ": a", ":", "[a", "]", "{", "}", "&a",
            "*a", "!a", "|", ">", "%a", "@a", "`a", "\"a", ", a", " a", "a ", "---", "...", "--- a",
        ] {
            assert_eq!(both(text), format!("'{text}'"));
        }
        assert_eq!(both("'a"), "'''a'");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(both("a\tb"), r#""a\tb""#);
        assert_eq!(both("\0\u{7}\u{1b}\u{7f}\r\u{85}\\\""), r#""\0\a\e\x7F\r\N\\\"""#);
        assert_eq!(both("\u{1f600}"), r#""\U0001F600""#);
    }

    #[test]
    fn lines_make_a_block_where_they_can() {
        for (text, written) in [
            ("a\nb", "|-\n    a\n    b"),
            ("a\nb\n", "|\n    a\n    b"),
            ("a\n\n", "|+\n    a\n"),
            ("a\n\n  b\n", "|\n    a\n\n      b"),
            (" a\nb\n", "|4\n     a\n    b"),
            ("\na", "|-\n\n    a"),
            ("a\tb\n", "|\n    a\tb"),
            ("a \nb", r#""a \nb""#),
            ("a\nb ", r#""a\nb ""#),
            ("a\r\nb", r#""a\r\nb""#),
            ("\n", r#""\n""#),
        ] {
            assert_eq!(both(text), written);
        }
    }

    #[test]
    fn words_and_numbers_of_yaml_1_1_depend_on_the_release() {
        for text in ["on", "No", "y", "12:30", "1:2:3:4:5:6:7:8", "<<"] {
            assert!(is_release_dependent(text), "{text}");
            assert_eq!(scalar(text, 4, Dialect::Talos), format!("\"{text}\""));
            assert_eq!(scalar(text, 4, Dialect::Factory), format!("'{text}'"));
        }
        for text in ["once", "1:60", "a:1", "10:0:0:x"] {
            assert!(!is_release_dependent(text), "{text}");
        }
    }
}
