//! Exit codes: the one place that knows them.

use std::process::ExitCode;

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// What was asked for is done, or nothing was to be done.
    Done,
    /// Something failed.
    Failed,
    /// The world differs from the inventory.
    ChangesPending,
    /// The inventory or the command line is not valid.
    InvalidInput,
    /// The world is not ready for what was asked.
    Preflight,
    /// Another run holds the lock.
    LockHeld,
    /// Stopped between two steps; running again continues.
    PartWay,
    /// Refused, because it could lose data or quorum.
    Refused,
    /// Interrupted by the user.
    Interrupted,
}

impl Exit {
    /// Every outcome, by code.
    pub const ALL: [Self; 9] = [
        Self::Done,
        Self::Failed,
        Self::ChangesPending,
        Self::InvalidInput,
        Self::Preflight,
        Self::LockHeld,
        Self::PartWay,
        Self::Refused,
        Self::Interrupted,
    ];

    /// Returns the number given to the shell.
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::ChangesPending => 2,
            Self::InvalidInput => 3,
            Self::Preflight => 4,
            Self::LockHeld => 5,
            Self::PartWay => 6,
            Self::Refused => 7,
            Self::Interrupted => 130,
        }
    }

    /// Says what the code means, in a few words.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Done => "done, or nothing to do",
            Self::Failed => "failed",
            Self::ChangesPending => "changes are pending",
            Self::InvalidInput => "invalid input: the inventory or the command line",
            Self::Preflight => "a preflight check failed; nothing was changed",
            Self::LockHeld => "another run holds the lock",
            Self::PartWay => "stopped part-way; running again continues",
            Self::Refused => "refused as unsafe",
            Self::Interrupted => "interrupted",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// Lists all codes, for `--help`.
pub fn table() -> String {
    let lines = Exit::ALL.map(|exit| format!("  {:>3}  {}", exit.code(), exit.meaning()));
    format!("Exit codes:\n{}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_distinct_and_in_order() {
        assert!(Exit::ALL.windows(2).all(|pair| pair[0].code() < pair[1].code()));
    }
}
