//! A set of texts that can be found again in others, whole or in part.
//!
//! Positions in a text are looked up by their first four bytes, so that a search costs little however many
//! texts there are.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hasher},
    ops::Range,
};

use zeroize::Zeroizing;

/// Shortest text that is searched for. Shorter ones are too common to hide, and too short to keep a secret.
const SHORTEST: usize = 4;
/// Shortest part of a text that is searched for: shorter ones stand in long keys by chance.
const SHORTEST_PART: usize = 6;
/// Texts below this length are found as words only, as they may be parts of many.
const LONG: usize = 8;

/// Texts, in lower case.
pub struct Texts {
    /// All of them, one after the other.
    all: Zeroizing<String>,
    /// Hashes of the texts.
    whole: BTreeSet<u64>,
    lengths: BTreeSet<usize>,
    /// How the texts begin.
    starts: Vec<u32>,
    /// Any four bytes that stand side by side in a text.
    grams: Vec<u32>,
    /// Texts below this length are found as words only.
    words_below: usize,
}

impl Texts {
    /// Takes texts that are found as words if they are short, and anywhere if they are long.
    pub fn new(texts: impl IntoIterator<Item = Zeroizing<String>>) -> Self {
        Self::with(texts, LONG)
    }

    /// Takes texts that are found as words.
    pub fn names(texts: impl IntoIterator<Item = Zeroizing<String>>) -> Self {
        Self::with(texts, usize::MAX)
    }

    fn with(texts: impl IntoIterator<Item = Zeroizing<String>>, words_below: usize) -> Self {
        let texts: Vec<Zeroizing<String>> = texts
            .into_iter()
            .filter(|text| text.len() >= SHORTEST && text.chars().any(char::is_alphanumeric))
            .map(|mut text| {
                text.make_ascii_lowercase();
                text
            })
            .collect();
        let mut all = Zeroizing::new(String::with_capacity(texts.iter().map(|text| text.len() + 1).sum()));
        for text in &texts {
            all.push_str(text);
            all.push('\0');
        }
        Self {
            whole: texts.iter().map(|text| hash(text)).collect(),
            lengths: texts.iter().map(|text| text.len()).collect(),
            starts: sorted(texts.iter().filter_map(|text| gram(text.as_bytes(), 0)).collect()),
            grams: sorted((0..all.len()).filter_map(|at| gram(all.as_bytes(), at)).collect()),
            all,
            words_below,
        }
    }

    /// Finds texts of the set in another, which is in lower case.
    pub fn whole_in(&self, text: &str) -> Vec<Range<usize>> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < text.len() {
            match self.whole_at(text, at) {
                Some(length) => {
                    found.push(at..at + length);
                    at += length;
                }
                None => at += 1,
            }
        }
        found
    }

    /// Returns the length of the longest text of the set that stands at a place.
    fn whole_at(&self, text: &str, at: usize) -> Option<usize> {
        self.starts.binary_search(&gram(text.as_bytes(), at)?).ok()?;
        let mut lengths = self.lengths.range(..=text.len() - at).rev().copied();
        lengths.find(|length| {
            text.get(at..at + length).is_some_and(|part| self.whole.contains(&hash(part)))
                && (*length >= self.words_below || stands_alone(text, &(at..at + length)))
        })
    }

    /// Finds words that are parts of the set's texts in a piece of another text, which is in lower case.
    pub fn parts_in(&self, text: &str, piece: Range<usize>) -> Vec<Range<usize>> {
        let ends_word = |c: char| c.is_whitespace() || "`\"',;(){}[]<>|\\…".contains(c);
        let mut found = Vec::new();
        for word in split(text, piece, ends_word) {
            if self.has_part(&text[word.clone()]) {
                found.push(word);
            } else {
                let parts = split(text, word, |c| "/:@=.&?#".contains(c));
                found.extend(parts.into_iter().filter(|part| self.has_part(&text[part.clone()])));
            }
        }
        found
    }

    fn has_part(&self, part: &str) -> bool {
        part.len() >= SHORTEST_PART
            && (0..=part.len() - SHORTEST).all(|at| {
                gram(part.as_bytes(), at).is_some_and(|gram| self.grams.binary_search(&gram).is_ok())
            })
            && self.all.contains(part)
    }
}

/// Splits a piece of a text into words, without the punctuation around them.
fn split(text: &str, piece: Range<usize>, ends_word: impl Fn(char) -> bool) -> Vec<Range<usize>> {
    let mut words = Vec::new();
    let mut at = piece.start;
    for word in text[piece].split(ends_word) {
        // What ends a word has one character.
        let next = at + word.len() + text[at + word.len()..].chars().next().map_or(0, char::len_utf8);
        let start = word.len() - word.trim_start_matches(|c: char| !c.is_alphanumeric()).len();
        let trimmed = word.trim_matches(|c: char| !c.is_alphanumeric());
        if !trimmed.is_empty() {
            words.push(at + start..at + start + trimmed.len());
        }
        at = next;
    }
    words
}

/// Whether no letter or digit stands beside a part of a text.
fn stands_alone(text: &str, part: &Range<usize>) -> bool {
    let before = text[..part.start].chars().next_back();
    let after = text[part.end..].chars().next();
    ![before, after].into_iter().flatten().any(char::is_alphanumeric)
}

/// Returns spans in order, those that touch as one.
pub fn joined(mut spans: Vec<Range<usize>>) -> Vec<Range<usize>> {
    spans.sort_by_key(|span| (span.start, span.end));
    let mut all: Vec<Range<usize>> = Vec::new();
    for span in spans {
        match all.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => all.push(span),
        }
    }
    all
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(text.as_bytes());
    hasher.finish()
}

fn gram(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + SHORTEST)?;
    Some(u32::from_be_bytes(four.try_into().ok()?))
}

fn sorted(mut grams: Vec<u32>) -> Vec<u32> {
    grams.sort_unstable();
    grams.dedup();
    grams
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_at_one_character() {
        let text = "\"é/ab\": `c…`";
        let words = split(text, 0..text.len(), |c| c.is_whitespace() || "\"`…".contains(c));
        assert_eq!(words.iter().map(|word| &text[word.clone()]).collect::<Vec<_>>(), ["é/ab", "c"]);
    }

    #[test]
    fn spans_are_joined() {
        assert_eq!(joined(vec![5..7, 0..2, 1..3, 3..4]), [0..4, 5..7]);
        assert!(joined(Vec::new()).is_empty());
    }
}
