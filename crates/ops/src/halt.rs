//! Why a verb stopped: always as findings, so that people and programs are told the same.

use std::{io, path::Path};

use ichor_model::{Code, Finding, Findings};

/// Why a verb stopped.
#[derive(Debug)]
pub struct Halt {
    /// What kind of stop it is.
    pub kind: HaltKind,
    /// Everything that stood in the way.
    pub findings: Findings,
}

/// What kind of stop it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HaltKind {
    /// What was given cannot be used.
    Invalid,
    /// It could be done, and something would be lost.
    Refused,
    /// The machine that the verb runs on failed it.
    Failed,
}

impl Halt {
    /// Stops because of what was given.
    pub fn invalid(findings: Findings) -> Self {
        Self { kind: HaltKind::Invalid, findings }
    }

    /// Stops before something is lost.
    pub fn refused(findings: Findings) -> Self {
        Self { kind: HaltKind::Refused, findings }
    }

    /// Stops because something failed.
    pub fn failed(findings: Findings) -> Self {
        Self { kind: HaltKind::Failed, findings }
    }

    /// Says that a file or directory could not be written.
    pub fn unwritable(path: &Path, error: &io::Error) -> Self {
        let finding =
            Finding::error(Code::UNWRITABLE, None, format!("`{}` could not be written", path.display()))
                .because(error.to_string())
                .remedy("see to the directory and the disk it is on, then run the same command again");
        Self::failed(only(finding))
    }
}

/// Makes a list of one finding.
pub fn only(finding: Finding) -> Findings {
    Findings::from_iter([finding])
}
