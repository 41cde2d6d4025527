//! Why a verb stopped: always as findings, so that people and programs are told the same.

use std::{io, path::Path};

use ichor_model::{Code, Finding, Findings};

use crate::System;

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
    /// The machine failed it between two files; running it again continues.
    PartWay,
    /// Another run is at work in the same place.
    Busy,
    /// The world is not ready for what was asked.
    Preflight,
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

    /// Stops because the world is not ready.
    pub fn preflight(findings: Findings) -> Self {
        Self { kind: HaltKind::Preflight, findings }
    }

    /// Stops because another run is at work.
    pub fn busy(system: &dyn System, path: &Path) -> Self {
        let finding = Finding::error(Code::BUSY, None, format!("another run writes to `{}`", path.display()));
        let finding = match system.occupant(path) {
            Some(who) => finding.because(format!("it is {who}")),
            None => finding,
        };
        let finding = finding.remedy("run the same command again when it has ended");
        Self { kind: HaltKind::Busy, findings: only(finding) }
    }

    /// Says that a file or directory could not be written.
    pub fn unwritable(path: &Path, error: &io::Error) -> Self {
        Self::failed(only(unwritable(path, error)))
    }

    /// Says that a file could not be written after others were.
    pub fn part_way(path: &Path, error: &io::Error, written: usize, all: usize) -> Self {
        let kind = if written == 0 { HaltKind::Failed } else { HaltKind::PartWay };
        let said = format!("{written} of {all} files were written");
        Self { kind, findings: only(unwritable(path, error).because(said)) }
    }
}

fn unwritable(path: &Path, error: &io::Error) -> Finding {
    Finding::error(Code::UNWRITABLE, None, format!("`{}` could not be written", path.display()))
        .because(error.to_string())
        .remedy("see to the directory and the disk it is on, then run the same command again")
}

/// Makes a list of one finding.
pub fn only(finding: Finding) -> Findings {
    Findings::from_iter([finding])
}
