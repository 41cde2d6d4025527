//! Which values of a file are encrypted.

use regex::{Regex, RegexBuilder};

use crate::Flaw;

/// The suffix of keys whose values stay plain, where nothing else is said.
pub const DEFAULT_SUFFIX: &str = "_unencrypted";
/// Largest program that a pattern may become.
const MAX_PATTERN_BYTES: usize = 1024 * 1024;

/// Which values of a file are encrypted. A value counts as under a key if any of the keys above it fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rule {
    /// All but those under a key with this suffix.
    UnencryptedSuffix(String),
    /// Those under a key with this suffix.
    EncryptedSuffix(String),
    /// All but those under a key that fits the pattern.
    UnencryptedRegex(String),
    /// Those under a key that fits the pattern.
    EncryptedRegex(String),
}

impl Default for Rule {
    fn default() -> Self {
        Self::UnencryptedSuffix(DEFAULT_SUFFIX.to_owned())
    }
}

impl Rule {
    /// Makes the rule that a key of sops' metadata names.
    pub fn of_key(key: &str, text: &str) -> Option<Self> {
        let make = match key {
            "unencrypted_suffix" => Self::UnencryptedSuffix,
            "encrypted_suffix" => Self::EncryptedSuffix,
            "unencrypted_regex" => Self::UnencryptedRegex,
            "encrypted_regex" => Self::EncryptedRegex,
            _ => return None,
        };
        Some(make(text.to_owned()))
    }

    /// Returns the key of sops' metadata, and its value.
    pub fn to_pair(&self) -> (&'static str, &str) {
        match self {
            Self::UnencryptedSuffix(text) => ("unencrypted_suffix", text),
            Self::EncryptedSuffix(text) => ("encrypted_suffix", text),
            Self::UnencryptedRegex(text) => ("unencrypted_regex", text),
            Self::EncryptedRegex(text) => ("encrypted_regex", text),
        }
    }

    /// Makes the rule ready for use.
    pub fn judge(&self) -> Result<Judge, Flaw> {
        let (key, text) = self.to_pair();
        let fits = match self {
            Self::UnencryptedSuffix(_) | Self::EncryptedSuffix(_) => Fits::Suffix(text.to_owned()),
            Self::UnencryptedRegex(_) | Self::EncryptedRegex(_) => {
                let regex = RegexBuilder::new(text).size_limit(MAX_PATTERN_BYTES).build();
                Fits::Pattern(regex.map_err(|_| {
                    Flaw::unsupported(
                        format!("has a pattern in `{key}` that cannot be read"),
                        "mend the pattern",
                    )
                })?)
            }
        };
        Ok(Judge { fits, wanted: key.starts_with("encrypted") })
    }
}

/// A rule that is ready for use.
pub struct Judge {
    fits: Fits,
    /// What it means that a key fits.
    wanted: bool,
}

enum Fits {
    Suffix(String),
    Pattern(Regex),
}

impl Judge {
    /// Whether what is under these keys is encrypted.
    pub fn is_encrypted(&self, keys: &[String]) -> bool {
        let any = keys.iter().any(|key| match &self.fits {
            // Nothing is a suffix of every key, and means that there is no rule.
            Fits::Suffix(suffix) => !suffix.is_empty() && key.ends_with(suffix),
            Fits::Pattern(pattern) => pattern.is_match(key),
        });
        any == self.wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_look_at_all_keys_above() {
        let path = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
        for (key, text, keys, encrypted) in [
            ("unencrypted_suffix", "_unencrypted", "a.b", true),
            ("unencrypted_suffix", "_unencrypted", "a_unencrypted.b", false),
            ("encrypted_suffix", "_secret", "a.b", false),
            ("encrypted_suffix", "_secret", "a_secret.b.c", true),
            ("encrypted_regex", "^(data|stringData)$", "data.x", true),
            ("encrypted_regex", "^(data|stringData)$", "metadata.x", false),
            ("unencrypted_regex", "^meta", "metadata.x", false),
            ("unencrypted_regex", "^meta", "x.y", true),
        ] {
            let judge = Rule::of_key(key, text).expect("a rule").judge().expect("a judge");
            assert_eq!(judge.is_encrypted(&path(keys)), encrypted, "{key} {text} {keys}");
        }
        assert!(Rule::EncryptedRegex("(".to_owned()).judge().is_err());
        assert!(Rule::EncryptedRegex("(a{1000}){1000}".to_owned()).judge().is_err());
    }
}
