//! The order of keys in maps, which go-yaml sorts so that `a2` comes before `a10`.

use std::cmp::Ordering;

use crate::document::{Key, Map, Node};

/// Sorts entries by key.
pub fn sorted(mut entries: Vec<(Key, Node)>) -> Map {
    entries.sort_by(|(a, _), (b, _)| compare(&a.text, &b.text));
    entries.into_iter().collect()
}

/// Compares two keys: letters by code, runs of digits by number, other characters before letters.
fn compare(a: &str, b: &str) -> Ordering {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut digits = false;
    for i in 0..a.len().min(b.len()) {
        if a[i] == b[i] {
            digits = is_digit(a[i]);
            continue;
        }
        return match (a[i].is_alphabetic(), b[i].is_alphabetic()) {
            (true, true) => a[i].cmp(&b[i]),
            // After a digit a letter comes first (`a1b` before `a1-`), elsewhere it comes last.
            (true, false) => {
                if digits {
                    Ordering::Less
                } else {
                    Ordering::Greater
                }
            }
            (false, true) => {
                if digits {
                    Ordering::Greater
                } else {
                    Ordering::Less
                }
            }
            (false, false) => compare_numbers(&a, &b, i),
        };
    }
    a.len().cmp(&b.len())
}

fn compare_numbers(a: &[char], b: &[char], at: usize) -> Ordering {
    // A zero inside a number weighs as much as its place: `10` against `1`.
    let inside = (a[at] == '0' || b[at] == '0')
        && a[..at].iter().rev().take_while(|c| is_digit(**c)).any(|c| *c != '0');
    let number = |text: &[char]| {
        let digits = text[at..].iter().take_while(|c| is_digit(**c)).count();
        let value = text[at..at + digits].iter().fold(i64::from(inside), |value, c| {
            value.wrapping_mul(10).wrapping_add(i64::from(c.to_digit(10).unwrap_or(0)))
        });
        (value, digits)
    };
    number(a).cmp(&number(b)).then(a[at].cmp(&b[at]))
}

/// Digits of other scripts sort by their code, which is close enough.
const fn is_digit(c: char) -> bool {
    c.is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_keys_sort_as_numbers() {
        let mut keys = ["a10", "a2", "b", "a", "a-1", "a.b", "A", "aB", "a1b", "a1-", "1", "10", "9", "a01"];
        keys.sort_by(|a, b| compare(a, b));
        assert_eq!(
            keys,
            ["1", "9", "10", "A", "a", "a-1", "a.b", "a1b", "a1-", "a01", "a2", "a10", "aB", "b"]
        );
    }
}
