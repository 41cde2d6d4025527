//! Why a verb stopped, apart from what is wrong with an inventory (which is a list of findings).

use std::io;

use crate::exit::Exit;

/// What failed, why, and what to do next.
#[derive(Debug)]
pub struct Failure {
    /// How the run ends.
    pub exit: Exit,
    /// What failed, in one line.
    pub message: String,
    /// Why, one line each.
    pub reasons: Vec<String>,
    /// What to do next; a command stands on a line of its own.
    pub hint: Option<String>,
}

impl Failure {
    /// Starts a failure that ends the run with `exit`.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), reasons: Vec::new(), hint: None }
    }

    /// Adds a reason.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reasons.push(reason.into());
        self
    }

    /// Says what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// The only I/O that verbs pass on with `?` is writing their output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(Exit::Failed, "could not write the output").because(error.to_string())
    }
}
