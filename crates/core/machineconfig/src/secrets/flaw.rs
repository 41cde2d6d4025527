//! What is wrong with a file that holds secrets, without repeating any of it.

use std::fmt;

use ichor_model::Problem;

/// One thing that is wrong: where, why, and what to do. It never repeats a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaw {
    /// The keys that lead there, such as `certs.k8s.key`; empty when the file as a whole is meant.
    pub path: String,
    /// The line, counted from 1, if there is one to blame.
    pub line: Option<usize>,
    /// What is wrong, and what to do.
    pub problem: Problem,
}

impl Flaw {
    /// Says what is wrong at a path.
    pub fn new(path: impl Into<String>, line: Option<usize>, problem: Problem) -> Self {
        Self { path: path.into(), line, problem }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_str() {
            "" => f.write_str("the file")?,
            path => write!(f, "`{path}`")?,
        }
        if let Some(line) = self.line {
            write!(f, " (line {line})")?;
        }
        write!(f, " {}", self.problem.message)
    }
}

/// Everything that is wrong with a file, at once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct Flaws(Vec<Flaw>);

impl Flaws {
    /// Makes the list of one.
    pub(crate) fn one(path: &str, line: Option<usize>, message: &str, remedy: &str) -> Self {
        Self(vec![Flaw::new(path, line, Problem::new(message, remedy))])
    }

    /// Returns what was read if nothing is wrong.
    pub(crate) fn or<T>(flaws: Vec<Flaw>, value: Option<T>) -> Result<T, Self> {
        match value {
            Some(value) if flaws.is_empty() => Ok(value),
            _ => Err(Self(flaws)),
        }
    }

    /// Returns the flaws, in the order of the parts they are about.
    pub fn iter(&self) -> std::slice::Iter<'_, Flaw> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a Flaws {
    type Item = &'a Flaw;
    type IntoIter = std::slice::Iter<'a, Flaw>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
