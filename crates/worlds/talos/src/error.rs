//! What can become of a call.

use std::fmt;

use ichor_talos_proto::code;
use thiserror::Error;

use crate::{Address, peek::Peeked};

/// Most characters of a text that is passed on. Refused configs come with a difference, which is long.
const MAX_TEXT: usize = 4_000;

/// Why a call gave nothing.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// The machine was not reached: the call has had no effect.
    #[error("{at} is not reached: {why}")]
    NotReached {
        /// Where.
        at: Address,
        /// Why.
        why: String,
    },
    /// Whoever is there is not the one that it should be: the call was not sent.
    #[error("{at} is not trusted: {why}")]
    NotTrusted {
        /// Where.
        at: Address,
        /// Why, with the certificate shown and the one wanted.
        why: String,
        /// Who is there instead, if that could be seen.
        shown: Option<Box<Peeked>>,
    },
    /// The machine does not let us in: the call was not sent.
    #[error("{at} does not let us in: {why}")]
    NotAdmitted {
        /// Where.
        at: Address,
        /// Why.
        why: Admission,
    },
    /// The machine refused.
    #[error("{0}")]
    Refused(Refusal),
    /// The connection broke or was silent for too long: whether the call had an effect is not known.
    #[error("the answer of {at} to {call} is lost: {why}")]
    Lost {
        /// Where.
        at: Address,
        /// The call.
        call: String,
        /// Why.
        why: String,
    },
    /// The answer is not what this call gives.
    #[error("the answer of {at} to {call} makes no sense: {why}")]
    Nonsense {
        /// Where.
        at: Address,
        /// The call.
        call: String,
        /// Why.
        why: String,
    },
    /// What was to be sent cannot be read here, or what came cannot be stored.
    #[error("{call}: {why}")]
    Local {
        /// The call.
        call: String,
        /// Why.
        why: String,
    },
}

/// Why a machine does not let us in.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Admission {
    /// It demands a certificate, and we showed none: it is configured, and not in maintenance mode.
    #[error("it demands a certificate, so it is configured and not in maintenance mode")]
    WantsCertificate,
    /// It does not accept the certificate that we showed.
    #[error("it does not accept our certificate ({0})")]
    RefusesOurs(String),
}

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Who refused.
    pub at: Address,
    /// What was called.
    pub call: String,
    /// What kind of refusal it is.
    pub code: Code,
    /// What Talos says, cleaned of control characters.
    pub text: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answered {} to {}: {}", self.at, self.code, self.call, self.text)
    }
}

/// What kind of refusal it is: the status of gRPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The caller gave up.
    Canceled,
    /// An error without a number: what Talos' own errors become.
    Unknown,
    /// The request is wrong, whatever the state of the machine.
    InvalidArgument,
    /// The machine had no answer in time.
    DeadlineExceeded,
    /// There is no such thing.
    NotFound,
    /// It is there already.
    AlreadyExists,
    /// Our roles do not allow it.
    PermissionDenied,
    /// No room is left.
    ResourceExhausted,
    /// The machine is not in a state for it.
    FailedPrecondition,
    /// This Talos, or this mode, does not know the call.
    Unimplemented,
    /// Something inside the machine broke.
    Internal,
    /// A service inside the machine does not answer now.
    Unavailable,
    /// It does not know who we are.
    Unauthenticated,
    /// Another one.
    Other(i32),
}

impl Code {
    /// Reads the number of a status that is no success.
    pub const fn of(number: i32) -> Self {
        match number {
            code::CANCELED => Self::Canceled,
            code::UNKNOWN => Self::Unknown,
            code::INVALID_ARGUMENT => Self::InvalidArgument,
            code::DEADLINE_EXCEEDED => Self::DeadlineExceeded,
            code::NOT_FOUND => Self::NotFound,
            code::ALREADY_EXISTS => Self::AlreadyExists,
            code::PERMISSION_DENIED => Self::PermissionDenied,
            code::RESOURCE_EXHAUSTED => Self::ResourceExhausted,
            code::FAILED_PRECONDITION => Self::FailedPrecondition,
            code::UNIMPLEMENTED => Self::Unimplemented,
            code::INTERNAL => Self::Internal,
            code::UNAVAILABLE => Self::Unavailable,
            code::UNAUTHENTICATED => Self::Unauthenticated,
            other => Self::Other(other),
        }
    }

    /// Whether a machine that answers so may have begun what it was asked for.
    const fn leaves_doubt(self) -> bool {
        matches!(
            self,
            Self::Canceled
                | Self::Unknown
                | Self::DeadlineExceeded
                | Self::ResourceExhausted
                | Self::Internal
                | Self::Unavailable
                | Self::Other(_)
        )
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(number) => write!(f, "status {number}"),
            named => f.pad(&format!("{named:?}")),
        }
    }
}

impl Error {
    /// Returns what kind of refusal it is; nothing for other errors.
    pub const fn code(&self) -> Option<Code> {
        match self {
            Self::Refused(refusal) => Some(refusal.code),
            _ => None,
        }
    }

    /// Whether a call that was to change something may have done so.
    pub const fn may_have_happened(&self) -> bool {
        match self {
            Self::NotReached { .. } | Self::NotTrusted { .. } | Self::NotAdmitted { .. } => false,
            Self::Refused(refusal) => refusal.code.leaves_doubt(),
            Self::Lost { .. } | Self::Nonsense { .. } | Self::Local { .. } => true,
        }
    }

    /// Whether the machine cannot answer now but may later, as while it boots: asking again makes sense, if what
    /// was asked for may happen twice or is looked for first.
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::NotReached { .. } | Self::Lost { .. } => true,
            Self::Refused(refusal) => {
                matches!(refusal.code, Code::Unavailable | Code::DeadlineExceeded | Code::Canceled)
            }
            Self::NotTrusted { .. }
            | Self::NotAdmitted { .. }
            | Self::Nonsense { .. }
            | Self::Local { .. } => false,
        }
    }
}

/// Remote text is shown to people: one line, printable, and not without end.
pub(crate) fn clean(text: &str) -> String {
    let hidden = |c: char| c.is_whitespace() || c.is_control() || is_trick(c);
    let words: Vec<&str> = text.split(hidden).filter(|word| !word.is_empty()).collect();
    words.join(" ").chars().take(MAX_TEXT).collect()
}

/// Characters that turn the direction of writing, or take no room.
const fn is_trick(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: Code) -> Error {
        let at = Address { host: "10.0.0.11".into(), port: 50000 };
        Error::Refused(Refusal { at, call: "Bootstrap".into(), code, text: "no".into() })
    }

    #[test]
    fn only_clear_refusals_leave_no_doubt() {
        for number in 1..=16 {
            let code = Code::of(number);
            let clear = matches!(number, 3 | 5 | 6 | 7 | 9 | 12 | 16);
            assert_eq!(refused(code).may_have_happened(), !clear, "{code}");
        }
        assert_eq!(
            refused(Code::AlreadyExists).to_string(),
            "10.0.0.11:50000 answered AlreadyExists to Bootstrap: no"
        );
        assert_eq!(refused(Code::of(10)).to_string(), "10.0.0.11:50000 answered status 10 to Bootstrap: no");
    }

    #[test]
    fn remote_text_cannot_play_tricks() {
        assert_eq!(clean("a\u{1b}[31m b\r\nc\u{202e}d"), "a [31m b c d");
        assert_eq!(clean(&"x".repeat(9_999)).len(), MAX_TEXT);
    }
}
