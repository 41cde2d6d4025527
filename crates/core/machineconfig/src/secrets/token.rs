//! Tokens of the form `abcdef.0123456789abcdef`.

use ichor_model::Problem;
use zeroize::Zeroizing;

use super::SecretText;
use crate::pki::{Entropy, PkiError, draw};

const ALPHABET: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
const FIRST: usize = 6;
const SECOND: usize = 16;

/// Draws a token.
pub fn generate(entropy: &mut dyn Entropy) -> Result<SecretText, PkiError> {
    let mut token = Zeroizing::new(String::with_capacity(FIRST + 1 + SECOND));
    for i in 0..FIRST + SECOND {
        if i == FIRST {
            token.push('.');
        }
        token.push(character(entropy)?);
    }
    Ok(token.into())
}

/// Draws a character, all with the same chance: bytes above the last multiple of 36 are drawn again.
fn character(entropy: &mut dyn Entropy) -> Result<char, PkiError> {
    const LIMIT: u8 = 252;
    draw(entropy, |[byte]: &[u8; 1]| {
        (*byte < LIMIT).then(|| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]))
    })
    .ok_or(PkiError::Entropy)
}

/// Checks a bootstrap token, for which Kubernetes prescribes the form.
pub fn check(text: &str) -> Result<(), Problem> {
    let fits = |part: &str, length| part.len() == length && part.bytes().all(|b| ALPHABET.contains(&b));
    match text.split_once('.') {
        Some((first, second)) if fits(first, FIRST) && fits(second, SECOND) => Ok(()),
        _ => Err(Problem::new(
            "is not a bootstrap token: 6 and 16 of a to z and 0 to 9, with a dot between",
            "take the token from the cluster's backup",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bytes(Vec<u8>);

    impl Entropy for Bytes {
        fn fill(&mut self, buffer: &mut [u8]) {
            for byte in buffer {
                *byte = self.0.pop().unwrap_or(0);
            }
        }
    }

    #[test]
    fn every_character_has_the_same_chance() {
        let mut counts = std::collections::BTreeMap::new();
        for byte in 0..=255 {
            // A second byte of zero is drawn when the first is refused.
            if let Ok(c) = character(&mut Bytes(vec![byte])) {
                *counts.entry(c).or_insert(0) += 1;
            }
        }
        assert_eq!(counts.remove(&'0'), Some(7 + 4));
        assert_eq!(counts.len(), 35);
        assert!(counts.values().all(|count| *count == 7), "{counts:?}");
    }

    #[test]
    fn a_broken_source_is_noticed() {
        struct Stuck;
        impl Entropy for Stuck {
            fn fill(&mut self, buffer: &mut [u8]) {
                buffer.fill(0xff);
            }
        }
        assert_eq!(generate(&mut Stuck), Err(PkiError::Entropy));
    }

    #[test]
    fn tokens_have_the_form_that_kubernetes_wants() {
        let mut bytes = Bytes((0..22).rev().collect());
        let token = generate(&mut bytes).expect("a token");
        assert_eq!(token.expose(), "012345.6789abcdefghijkl");
        assert_eq!(check(token.expose()), Ok(()));
        for text in
            ["", "abcdef", "abcdef.0123456789abcde", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcdef "]
        {
            assert!(check(text).is_err(), "{text}");
        }
    }
}
