//! How text is written: plain, in quotes, or as a block.

use crate::document::scalar::{Resolved, old_bool, resolve};

/// Where a value stands.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The column of the map or list that holds it.
    pub indent: usize,
    /// The column of the lines of a block.
    pub content: usize,
}

/// Writes text to the end of its line, or as a block of lines.
pub fn text(out: &mut String, text: &str, place: Place) {
    let shape = Shape::of(text);
    match shape.style(text) {
        Style::Literal => literal(out, text, place),
        Style::Plain => out.push_str(text),
        Style::Single => out.push_str(&single(text)),
        Style::Double => out.push_str(&double(text)),
    }
    if !out.ends_with('\n') {
        out.push('\n');
    }
}

/// Returns a key as it is written, or nothing if it needs a line of its own.
pub fn key(text: &str) -> Option<String> {
    /// go-yaml's bound for keys on the line of their value, in bytes.
    const LONGEST: usize = 128;
    let shape = Shape::of(text);
    if shape.breaks || text.len() > LONGEST {
        return None;
    }
    Some(match shape.style(text) {
        Style::Plain => text.to_owned(),
        Style::Single => single(text),
        Style::Double | Style::Literal => double(text),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

/// What decides between the styles.
#[derive(Default)]
struct Shape {
    /// Spaces or breaks at either end.
    edges: bool,
    trailing_space: bool,
    breaks: bool,
    /// A space just after a break.
    break_space: bool,
    /// A space just before a break.
    space_break: bool,
    tabs: bool,
    /// Characters that have to be escaped.
    special: bool,
    /// Characters that mean something in YAML where they stand.
    indicators: bool,
}

impl Shape {
    fn of(text: &str) -> Self {
        let mut shape = Self { indicators: has_indicators(text), ..Self::default() };
        let blank = |c: char| c == ' ' || is_break(c);
        shape.edges = text.starts_with(blank) || text.ends_with(blank);
        shape.trailing_space = text.ends_with(' ');
        let mut previous = 'x';
        for c in text.chars() {
            shape.breaks |= is_break(c);
            shape.break_space |= is_break(previous) && c == ' ';
            shape.space_break |= previous == ' ' && is_break(c);
            shape.tabs |= c == '\t';
            shape.special |= c != '\t' && is_special(c);
            previous = c;
        }
        shape
    }

    fn style(&self, text: &str) -> Style {
        if text.contains('\n') {
            let block = !(self.trailing_space || self.space_break || self.special);
            let visible = text.contains(|c: char| !c.is_whitespace());
            return if block && visible { Style::Literal } else { Style::Double };
        }
        let ambiguous = resolve(text) != Resolved::Text || old_bool(text).is_some() || is_base_60(text);
        let escapes = self.break_space || self.space_break || self.tabs || self.special;
        match () {
            () if ambiguous || text == "<<" || escapes => Style::Double,
            () if self.edges || self.breaks || self.indicators => Style::Single,
            () => Style::Plain,
        }
    }
}

const fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Whether a character has to be escaped. go-yaml writes the two Unicode line separators
/// unescaped and thereby loses them, so they are escaped here.
const fn is_special(c: char) -> bool {
    let printable = matches!(c,
        '\n' | ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}');
    !printable
}

fn has_indicators(text: &str) -> bool {
    if text.starts_with("---") || text.starts_with("...") {
        return true;
    }
    let chars: Vec<char> = text.chars().collect();
    let blank_after = |i: usize| chars.get(i + 1).is_none_or(|c| matches!(c, ' ' | '\t'));
    chars.iter().enumerate().any(|(i, c)| match (i, c) {
        (
            0,
            '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`',
        ) => true,
        (0, '?' | '-') | (_, ':') => blank_after(i),
        (_, '#') => matches!(chars[i - 1], ' ' | '\t'),
        _ => false,
    })
}

/// Whether text is a number in base 60 to YAML 1.1, as `1:30` is.
fn is_base_60(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (digits, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut parts = digits.split(':');
    let first = parts.next().unwrap_or_default();
    let numeric = |part: &str| part.bytes().all(|b| b.is_ascii_digit() || b == b'_');
    let sixty = |part: &str| match part.as_bytes() {
        [ones] => ones.is_ascii_digit(),
        [tens, ones] => matches!(tens, b'0'..=b'5') && ones.is_ascii_digit(),
        _ => false,
    };
    digits.contains(':')
        && first.starts_with(|c: char| c.is_ascii_digit())
        && numeric(first)
        && numeric(fraction)
        && parts.all(sixty)
}

fn single(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn double(text: &str) -> String {
    // go-yaml escapes everything after a byte-order mark at the start.
    let all = text.starts_with('\u{feff}');
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '\0' => out.push_str("\\0"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            '\u{1b}' => out.push_str("\\e"),
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{85}' => out.push_str("\\N"),
            '\u{2028}' => out.push_str("\\L"),
            '\u{2029}' => out.push_str("\\P"),
            c if all || is_special(c) => out.push_str(&escape(c)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn escape(c: char) -> String {
    match u32::from(c) {
        0xa0 => "\\_".to_owned(),
        code @ 0..=0xff => format!("\\x{code:02X}"),
        code @ 0..=0xffff => format!("\\u{code:04X}"),
        code => format!("\\U{code:08X}"),
    }
}

fn literal(out: &mut String, text: &str, place: Place) {
    out.push('|');
    // Without a hint the reader takes the indentation of the first line that is not empty.
    if text.trim_start_matches('\n').starts_with(' ') {
        out.push_str(&(place.content - place.indent).to_string());
    }
    let body = text.trim_end_matches('\n');
    match text.len() - body.len() {
        0 => out.push('-'),
        1 => {}
        _ => out.push('+'),
    }
    out.push('\n');
    let lines = text.strip_suffix('\n').unwrap_or(text);
    for line in lines.split('\n') {
        if !line.is_empty() {
            out.extend(std::iter::repeat_n(' ', place.content));
            out.push_str(line);
        }
        out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(value: &str) -> String {
        let mut out = String::new();
        text(&mut out, value, Place { indent: 0, content: 4 });
        out
    }

    #[test]
    fn text_is_quoted_when_it_could_be_something_else() {
        for (value, plain) in [
            ("a", "a"),
            ("", "\"\""),
            ("y", "\"y\""),
            ("off", "\"off\""),
            ("true", "\"true\""),
            ("null", "\"null\""),
            ("~", "\"~\""),
            ("~x", "~x"),
            ("1", "\"1\""),
            ("1.5", "\"1.5\""),
            ("1:30", "\"1:30\""),
            ("2001-01-01", "\"2001-01-01\""),
            ("<<", "\"<<\""),
            ("0b2", "0b2"),
            ("-", "'-'"),
            ("-x", "-x"),
            ("*a", "'*a'"),
            ("a: b", "'a: b'"),
            ("a #b", "'a #b'"),
            ("a#b", "a#b"),
            (" x", "' x'"),
            ("it's", "it's"),
            ("'x", "'''x'"),
            ("a\tb", "\"a\\tb\""),
            ("é", "é"),
            ("\u{1f600}", "\"\\U0001F600\""),
            ("\u{feff}x", "\"\\uFEFF\\x78\""),
            ("a\rb", "\"a\\rb\""),
            ("\u{2028}x", "\"\\Lx\""),
            ("---", "'---'"),
        ] {
            assert_eq!(written(value), format!("{plain}\n"), "{value:?}");
        }
    }

    #[test]
    fn lines_are_written_as_blocks() {
        for (value, block) in [
            ("a\nb\n", "|\n    a\n    b\n"),
            ("a\nb", "|-\n    a\n    b\n"),
            ("a\n\n", "|+\n    a\n\n"),
            (" a\nb\n", "|4\n     a\n    b\n"),
            ("\n\n x\n", "|4\n\n\n     x\n"),
            ("a\n\nb\n", "|\n    a\n\n    b\n"),
            ("\n", "\"\\n\"\n"),
            ("a \nb", "\"a \\nb\"\n"),
            ("tab\there\nx\n", "|\n    tab\there\n    x\n"),
        ] {
            assert_eq!(written(value), block, "{value:?}");
        }
    }
}
