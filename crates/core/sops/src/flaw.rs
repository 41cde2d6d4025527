//! Why a file cannot be used.

use ichor_model::Problem;

/// Something wrong with a file. Messages name places and keys, and never repeat values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    /// Of what kind it is.
    pub kind: FlawKind,
    /// The line it is in, counted from 1, where it is in one.
    pub line: Option<usize>,
    /// What is wrong, and what to do about it.
    pub problem: Problem,
}

/// Kinds of flaws, for those who can do something about one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlawKind {
    /// It is not text of its format.
    Syntax,
    /// It is larger or deeper than what is read.
    Limit,
    /// It is not encrypted.
    NotSealed,
    /// It uses something of sops that is not there.
    Unsupported,
    /// None of the identities opens it.
    NoKey,
    /// It was changed by somebody who does not have the key, or damaged.
    Tampered,
    /// A recipient or an identity cannot be read.
    BadKey,
}

impl Flaw {
    pub(crate) fn new(kind: FlawKind, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { kind, line: None, problem: Problem { message: message.into(), remedy: remedy.into() } }
    }

    pub(crate) fn at(self, line: usize) -> Self {
        Self { line: Some(line), ..self }
    }

    pub(crate) fn syntax(message: &str, line: usize) -> Self {
        Self::new(FlawKind::Syntax, message, "mend the file, or copy it again").at(line)
    }

    pub(crate) fn limit(message: String) -> Self {
        Self::new(FlawKind::Limit, message, "check that this is the right file")
    }

    pub(crate) fn tampered(message: impl Into<String>) -> Self {
        Self::new(
            FlawKind::Tampered,
            message,
            "restore the file from a backup or from git, and find out who changed it",
        )
    }

    pub(crate) fn unsupported(message: impl Into<String>, remedy: &str) -> Self {
        Self::new(FlawKind::Unsupported, message, remedy)
    }

    pub(crate) fn bad_key(message: impl Into<String>, remedy: &str) -> Self {
        Self::new(FlawKind::BadKey, message, remedy)
    }
}
