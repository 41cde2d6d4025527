//! Words: made safe for terminals, counted, listed and wrapped.

use anstyle::{AnsiColor, Style};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

const BOLD: Style = Style::new().bold();
const GOOD: Style = AnsiColor::Green.on_default().bold();
const BAD: Style = AnsiColor::Red.on_default().bold();
const WARN: Style = AnsiColor::Yellow.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default().bold();

/// Most names that a message lists.
pub const MAX_NAMES: usize = 12;
/// Longest piece of foreign text in a message.
const LONGEST: usize = 1000;

/// Makes text bold.
pub fn bold(text: &str) -> String {
    paint(BOLD, text)
}

/// Marks text as good news.
pub fn good(text: &str) -> String {
    paint(GOOD, text)
}

/// Marks text as an error.
pub fn bad(text: &str) -> String {
    paint(BAD, text)
}

/// Marks text as a warning.
pub fn warn(text: &str) -> String {
    paint(WARN, text)
}

/// Marks text as a hint.
pub fn hint(text: &str) -> String {
    paint(HINT, text)
}

fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}

/// Returns a character as it may reach a terminal. Control characters, which could move the cursor
/// or set the window's title, are shown as pictures; characters that are invisible or turn the
/// direction of text are shown as unknown.
pub fn visible(c: char) -> char {
    const UNKNOWN: char = '\u{fffd}';
    match c {
        '\u{0}'..='\u{1f}' => char::from_u32(0x2400 + u32::from(c)).unwrap_or(UNKNOWN),
        '\u{7f}' => '\u{2421}',
        c if c.is_control() => UNKNOWN,
        c if is_invisible(c) => UNKNOWN,
        c => c,
    }
}

fn is_invisible(c: char) -> bool {
    const SINGLE: [char; 8] =
        ['\u{ad}', '\u{61c}', '\u{115f}', '\u{1160}', '\u{180e}', '\u{3164}', '\u{feff}', '\u{ffa0}'];
    SINGLE.contains(&c)
        || matches!(
            c,
            '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
                | '\u{10fffe}'..='\u{10ffff}'
        )
}

/// Makes foreign text fit for one line of a terminal.
pub fn safe_line(text: &str) -> String {
    clip(text).map(visible).collect()
}

/// Makes foreign text fit for a terminal, keeping its lines.
pub fn safe_lines(text: &str) -> String {
    clip(text).map(|c| if c == '\n' { c } else { visible(c) }).collect()
}

fn clip(text: &str) -> impl Iterator<Item = char> + '_ {
    let more = text.chars().nth(LONGEST).map(|_| '…');
    text.chars().take(LONGEST).chain(more)
}

/// Counts things: `1 error`, `2 errors`.
pub fn count(number: usize, thing: &str) -> String {
    match number {
        1 => format!("1 {thing}"),
        _ => format!("{number} {thing}s"),
    }
}

/// Lists words: `a`, `a and b`, `a, b and c`.
pub fn list(words: &[String]) -> String {
    match words {
        [] => String::new(),
        [word] => word.clone(),
        [words @ .., last] => format!("{} and {last}", words.join(", ")),
    }
}

/// Lists at most so many words, and counts the others.
pub fn list_some(words: &[String], most: usize) -> String {
    match words.split_at_checked(most) {
        Some((first, more)) if !more.is_empty() => format!("{} and {} more", first.join(", "), more.len()),
        _ => list(words),
    }
}

/// Cuts text off where a line of so many columns ends.
pub fn fit(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut used = 1;
    let fits = |c: &char| {
        used += c.width().unwrap_or(0);
        used <= columns
    };
    let kept: String = text.chars().take_while(fits).collect();
    if columns == 0 { String::new() } else { kept + "…" }
}

/// Fills text up with spaces to so many columns, or cuts it off there.
pub fn pad(text: &str, columns: usize) -> String {
    let text = fit(text, columns);
    let missing = columns.saturating_sub(text.width());
    text + &" ".repeat(missing)
}

/// Breaks text into lines of at most `width` characters, where it has spaces.
pub fn wrap(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_passes() {
        let hostile = "a\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}b\r\n\u{200b}c\u{7f}";
        let shown = safe_line(hostile);
        assert_eq!(shown, "a␛]0;owned␇\u{fffd}31m\u{fffd}b␍␊\u{fffd}c␡");
        assert_eq!(safe_lines("a\n\tb"), "a\n␉b");
        assert_eq!(safe_line("é — 日本 \u{1f600}"), "é — 日本 \u{1f600}");
    }

    #[test]
    fn foreign_text_is_clipped() {
        assert_eq!(safe_line(&"x".repeat(5000)).chars().count(), LONGEST + 1);
        assert_eq!(safe_line(&"x".repeat(LONGEST)).chars().count(), LONGEST);
    }

    #[test]
    fn things_are_counted_and_listed() {
        assert_eq!((count(0, "error"), count(1, "error")), ("0 errors".into(), "1 error".into()));
        let words = |n: usize| (0..n).map(|i| i.to_string()).collect::<Vec<_>>();
        assert_eq!(list(&words(3)), "0, 1 and 2");
        assert_eq!(list_some(&words(5), 2), "0, 1 and 3 more");
    }

    #[test]
    fn text_is_cut_and_filled_to_columns() {
        assert_eq!(
            (fit("abc", 3), fit("abcd", 3), fit("abcd", 0)),
            ("abc".into(), "ab…".into(), String::new())
        );
        assert_eq!((fit("日本語", 5), pad("日本", 6)), ("日本…".into(), "日本  ".into()));
    }

    #[test]
    fn text_breaks_at_spaces() {
        assert_eq!(wrap("one two three", 7), "one two\nthree");
        assert_eq!(wrap("toolongaword x", 4), "toolongaword\nx");
    }
}
