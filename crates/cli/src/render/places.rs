//! Lines and columns of many findings in large files.

use std::collections::BTreeMap;

use ichor_model::{Findings, SourceId, Span};
use ichor_spec::{Sources, load::Place};

/// Characters are counted in blocks of this many bytes.
const BLOCK: usize = 1024;

/// Answers where spans are without reading a file from its beginning each time: a hostile file can
/// have a hundred thousand findings, all on one line of megabytes.
#[derive(Debug)]
pub struct Places<'a> {
    sources: &'a Sources,
    indexes: BTreeMap<SourceId, Index>,
}

#[derive(Debug)]
struct Index {
    /// Where lines begin.
    lines: Vec<usize>,
    /// How many characters begin before each block.
    characters: Vec<usize>,
}

/// A span as people see it.
#[derive(Debug, Clone, Copy)]
pub struct Location<'a> {
    /// The file, as it is shown.
    pub file: &'a str,
    /// Where the span begins and ends; absent in a file without text.
    pub range: Option<(Place, Place)>,
}

impl<'a> Places<'a> {
    /// Prepares the files that findings point into.
    pub fn new(sources: &'a Sources, findings: &Findings) -> Self {
        let mut indexes = BTreeMap::new();
        let related = findings.iter().flat_map(|finding| finding.related.iter().map(|(span, _)| *span));
        for span in findings.iter().filter_map(|finding| finding.at).chain(related) {
            if let Some(file) = sources.get(span.source) {
                indexes.entry(span.source).or_insert_with(|| Index::new(&file.bytes));
            }
        }
        Self { sources, indexes }
    }

    /// Returns the content of a span's file.
    pub fn bytes(&self, span: Span) -> &'a [u8] {
        self.sources.get(span.source).map_or(&[], |file| &file.bytes)
    }

    /// Returns where a span is.
    pub fn locate(&self, span: Span) -> Option<Location<'a>> {
        let file = self.sources.get(span.source)?;
        let index = self.indexes.get(&span.source)?;
        let range = (!file.bytes.is_empty()).then(|| {
            (index.place(&file.bytes, span.start as usize), index.place(&file.bytes, span.end as usize))
        });
        Some(Location { file: &file.path, range })
    }
}

impl Index {
    fn new(bytes: &[u8]) -> Self {
        let after_newlines = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(i, _)| i + 1);
        let characters = bytes.chunks(BLOCK).scan(0, |before, block| {
            let at_start = *before;
            *before += count_characters(block);
            Some(at_start)
        });
        Self { lines: [0].into_iter().chain(after_newlines).collect(), characters: characters.collect() }
    }

    fn place(&self, bytes: &[u8], offset: usize) -> Place {
        let offset = offset.min(bytes.len());
        let line = self.lines.partition_point(|start| *start <= offset);
        let start = self.lines[line - 1];
        let mark = usize::from(start == 0 && bytes.starts_with("\u{feff}".as_bytes()) && offset > 0);
        Place { line, column: self.before(bytes, offset) - self.before(bytes, start) - mark + 1 }
    }

    /// Counts the characters that begin before an offset.
    fn before(&self, bytes: &[u8], offset: usize) -> usize {
        let block = offset / BLOCK;
        let whole = self.characters.get(block).copied();
        let (counted, from) = match whole {
            Some(counted) => (counted, block * BLOCK),
            // The end of a file that fills its last block.
            None => (self.characters.last().copied().unwrap_or(0), block.saturating_sub(1) * BLOCK),
        };
        counted + count_characters(&bytes[from..offset])
    }
}

/// Counts the bytes that begin a character in UTF-8.
fn count_characters(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte & 0b1100_0000 != 0b1000_0000).count()
}

#[cfg(test)]
mod tests {
    use ichor_model::{Code, Finding};

    use super::*;

    #[test]
    fn places_are_those_that_sources_tell() {
        let long = "é".repeat(1000);
        let exact = "x".repeat(BLOCK);
        for text in ["a: 1\né: 2\n", "\u{feff}a\nb", "x", "\n\n", &long, &exact, &format!("{long}\n{long}")]
        {
            let mut sources = Sources::default();
            let source = sources.add("x.yaml", text);
            let all = Span { source, start: 0, end: 0 };
            let findings = Findings::from_iter([Finding::error(Code::SYNTAX, all, "")]);
            let places = Places::new(&sources, &findings);
            for offset in (0..=text.len()).filter(|i| text.is_char_boundary(*i)) {
                let offset = u32::try_from(offset).expect("short");
                let span = Span { source, start: offset, end: offset };
                let (start, _) = places.locate(span).expect("known").range.expect("text");
                assert_eq!(Some(start), sources.place(span), "{offset} of {text:.20}");
            }
        }
    }

    #[test]
    fn a_file_without_text_has_no_lines() {
        let mut sources = Sources::default();
        let span = Span { source: sources.add("gone.yaml", ""), start: 0, end: 0 };
        let findings = Findings::from_iter([Finding::error(Code::UNREADABLE, span, "")]);
        let places = Places::new(&sources, &findings);
        let location = places.locate(span).expect("known");
        assert_eq!((location.file, location.range), ("gone.yaml", None));
    }
}
