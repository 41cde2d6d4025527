//! Files with secrets as findings see them: every line has its length, and none its text.

use ichor_model::{SourceId, Span};
use ichor_spec::Sources;

/// Adds a file to the sources with every character hidden. Findings can point at its lines, and nothing
/// that shows a line can show a secret.
pub fn add(sources: &mut Sources, path: impl Into<String>, bytes: &[u8]) -> SourceId {
    let hidden: Vec<u8> = bytes.iter().map(|byte| if *byte == b'\n' { b'\n' } else { b'*' }).collect();
    sources.add(path, hidden)
}

/// Returns the place of a line, counted from 1; the whole file if there is none.
pub fn line(sources: &Sources, source: SourceId, line: Option<usize>) -> Span {
    let bytes = sources.get(source).map_or(&[][..], |file| &file.bytes);
    let whole = Span { source, start: 0, end: 0 };
    let Some(line) = line.filter(|line| *line > 0) else { return whole };
    let mut start = 0;
    for _ in 1..line {
        match bytes[start..].iter().position(|byte| *byte == b'\n') {
            Some(length) => start += length + 1,
            None => return whole,
        }
    }
    let length = bytes[start..].iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len() - start);
    let offset = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    Span { source, start: offset(start), end: offset(start + length) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_and_nothing_else() {
        let mut sources = Sources::default();
        let source = add(&mut sources, "secrets.yaml", b"a: 1\nkey: hunter2\n");
        let file = sources.get(source).expect("a file");
        assert_eq!(file.bytes, b"****\n************\n");
        let span = line(&sources, source, Some(2));
        assert_eq!((span.start, span.end), (5, 17));
        assert_eq!(sources.place(span).map(|place| (place.line, place.column)), Some((2, 1)));
        for missing in [None, Some(0), Some(9)] {
            assert_eq!(line(&sources, source, missing), Span { source, start: 0, end: 0 });
        }
    }
}
