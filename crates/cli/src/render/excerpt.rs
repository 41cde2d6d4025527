//! The line of a finding: safe for terminals, and never longer than a few columns.

use std::ops::Range;

use super::text::visible;

/// Longest line that is shown as a whole.
const WIDTH: usize = 160;
/// What is shown of a longer line before the marked part.
const BEFORE: usize = 50;
/// What is shown of the marked part of a longer line.
const MARKED: usize = 70;
/// Bytes that are sure to hold as many characters.
const BYTES: usize = 4 * WIDTH;

/// One line of a file, or a part of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Excerpt {
    /// The text.
    pub text: String,
    /// The bytes of the text that are marked.
    pub marked: Range<usize>,
    /// The column, from 1, where the marked part begins in the text.
    pub column: usize,
}

/// Returns the line where a span begins, with the part of the span that is on it marked.
pub fn excerpt(bytes: &[u8], start: usize, end: usize) -> Excerpt {
    let start = start.min(bytes.len());
    let line_start = line_start(bytes, start);
    let line_end = bytes[start..].iter().position(|b| *b == b'\n').map_or(bytes.len(), |i| start + i);
    let line_end = if bytes[start..line_end].ends_with(b"\r") { line_end - 1 } else { line_end };
    let end = end.clamp(start, line_end);

    let before = decode_end(&bytes[line_start..start]);
    let marked = decode_start(&bytes[start..end]);
    let after = decode_start(&bytes[end..line_end]);
    let fits = line_end - line_start <= BYTES && before.len() + marked.len() + after.len() <= WIDTH;
    if fits {
        Parts { before, marked, after, ..Parts::default() }.join()
    } else {
        cut(before, marked, after).join()
    }
}

/// Returns where the line of an offset begins, after a byte-order mark.
fn line_start(bytes: &[u8], offset: usize) -> usize {
    match bytes[..offset].iter().rposition(|b| *b == b'\n') {
        Some(newline) => newline + 1,
        None if bytes.starts_with("\u{feff}".as_bytes()) && offset >= 3 => 3,
        None => 0,
    }
}

#[derive(Default)]
struct Parts {
    before: Vec<char>,
    marked: Vec<char>,
    after: Vec<char>,
    cut_before: bool,
    cut_marked: bool,
    cut_after: bool,
}

fn cut(mut before: Vec<char>, mut marked: Vec<char>, mut after: Vec<char>) -> Parts {
    let cut_before = before.len() > BEFORE;
    before.drain(..before.len().saturating_sub(BEFORE));
    let cut_marked = marked.len() > MARKED;
    marked.truncate(MARKED);
    let room = if cut_marked { 0 } else { WIDTH - before.len() - marked.len() };
    let cut_after = !cut_marked && after.len() > room;
    after.truncate(room);
    Parts { before, marked, after, cut_before, cut_marked, cut_after }
}

impl Parts {
    fn join(self) -> Excerpt {
        const ELLIPSIS: &str = "…";
        let mut text = String::new();
        if self.cut_before {
            text.push_str(ELLIPSIS);
        }
        text.extend(self.before.into_iter().map(shown));
        let start = text.len();
        let column = text.chars().count() + 1;
        text.extend(self.marked.into_iter().map(shown));
        let marked = start..text.len();
        text.extend(self.after.into_iter().map(shown));
        if self.cut_marked || self.cut_after {
            text.push_str(ELLIPSIS);
        }
        Excerpt { text, marked, column }
    }
}

/// Tabs are left to the drawing of the snippet, which knows how wide they are.
fn shown(c: char) -> char {
    if c == '\t' { c } else { visible(c) }
}

fn decode_start(bytes: &[u8]) -> Vec<char> {
    String::from_utf8_lossy(&bytes[..bytes.len().min(BYTES)]).chars().collect()
}

fn decode_end(bytes: &[u8]) -> Vec<char> {
    String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(BYTES)..]).chars().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str, marked: &str) -> Excerpt {
        let start = text.find(marked).expect("marked");
        excerpt(text.as_bytes(), start, start + marked.len())
    }

    fn marked(excerpt: &Excerpt) -> &str {
        &excerpt.text[excerpt.marked.clone()]
    }

    #[test]
    fn a_short_line_is_shown_as_it_is() {
        let excerpt = of("a: 1\r\nbé: two # three\r\nc: 4\n", "two");
        assert_eq!((excerpt.text.as_str(), marked(&excerpt), excerpt.column), ("bé: two # three", "two", 5));
    }

    #[test]
    fn a_span_over_several_lines_is_marked_on_the_first() {
        let excerpt = of("a: |\n  b\n  c\n", "|\n  b\n  c");
        assert_eq!((excerpt.text.as_str(), marked(&excerpt)), ("a: |", "|"));
    }

    #[test]
    fn a_long_line_is_shown_around_the_mark() {
        let text = format!("{}HERE{}", "a".repeat(500_000), "b".repeat(500_000));
        let excerpt = of(&text, "HERE");
        assert_eq!(marked(&excerpt), "HERE");
        assert!(excerpt.text.starts_with("…aaa") && excerpt.text.ends_with("bbb…"));
        assert!(excerpt.text.chars().count() <= WIDTH + 2, "{}", excerpt.text.chars().count());
    }

    #[test]
    fn a_long_mark_is_cut() {
        let excerpt = of(&"x".repeat(1_000_000), &"x".repeat(1_000_000));
        assert_eq!(excerpt.text.chars().count(), MARKED + 1);
    }

    #[test]
    fn wide_characters_are_cut_whole() {
        let text = format!("{}!{}", "日".repeat(1000), "本".repeat(1000));
        let excerpt = of(&text, "!");
        assert!(!excerpt.text.contains('\u{fffd}'));
        assert_eq!(excerpt.column, BEFORE + 2);
    }

    #[test]
    fn escapes_and_bytes_that_are_no_text_are_replaced() {
        let excerpt = excerpt(b"a: \x1b]0;x\x07\xff\xfe z", 3, 4);
        assert_eq!(excerpt.text, "a: ␛]0;x␇\u{fffd}\u{fffd} z");
        assert_eq!(marked(&excerpt), "␛");
    }

    #[test]
    fn the_end_of_a_file_has_a_line() {
        for text in ["", "a\n", "a"] {
            let excerpt = excerpt(text.as_bytes(), text.len() + 5, text.len() + 9);
            assert!(marked(&excerpt).is_empty(), "{text:?}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_not_shown() {
        let excerpt = of("\u{feff}a: 1\n", "a");
        assert_eq!((excerpt.text.as_str(), excerpt.column), ("a: 1", 1));
    }
}
