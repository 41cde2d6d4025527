//! What went wrong, for the engine: whether it may have happened, whether to try again, and what to tell people.

use ichor_engine::{EffectError, Report};
use ichor_port::TransportError;
use ichor_pve::{Kind, Refusal};

/// Judges a call to Proxmox that was to change something.
pub fn pve_trouble(what: &str, error: &ichor_pve::Error) -> EffectError {
    let report = Report::new(format!("{what}: {error}"));
    match error {
        ichor_pve::Error::Transport(error) => transport(report, error),
        ichor_pve::Error::Refused(refusal) => refusal_of(report, refusal),
        ichor_pve::Error::Nonsense { .. } => EffectError::Unsure(report),
    }
}

fn refusal_of(report: Report, refusal: &Refusal) -> EffectError {
    match refusal.kind {
        Kind::Busy => EffectError::Transient(report.congested()),
        // It broke off in the middle, or somebody has made it: looking tells whether it was us.
        Kind::Broken | Kind::Exists => EffectError::Unsure(report),
        Kind::Unauthenticated | Kind::Forbidden | Kind::Missing | Kind::Invalid | Kind::Other => {
            EffectError::Permanent(report)
        }
    }
}

/// Judges a call that may simply be repeated.
fn transport(report: Report, error: &TransportError) -> EffectError {
    match error {
        TransportError::NotReached(_) => EffectError::Transient(report),
        TransportError::NotTrusted(_) => EffectError::Permanent(
            report.hint("compare the fingerprint, and write the right one as `proxmox.tls.sha256`"),
        ),
        TransportError::Lost(_) | TransportError::Unreadable(_) => EffectError::Unsure(report),
    }
}

/// Judges how a task of Proxmox ended badly.
pub fn refused(what: &str, text: &str) -> EffectError {
    let report = Report::new(format!("{what}: the task of Proxmox failed: {text}"));
    match ichor_pve::kind_of(text) {
        Kind::Busy => EffectError::Transient(report.congested()),
        _ => EffectError::Permanent(report),
    }
}

/// Judges a call to a machine that was to change something.
pub fn talos_trouble(what: &str, error: &ichor_talos::Error) -> EffectError {
    let report = Report::new(format!("{what}: {error}"));
    if error.may_pass() && !error.may_have_happened() {
        EffectError::Transient(report)
    } else if error.may_have_happened() {
        EffectError::Unsure(report)
    } else {
        EffectError::Permanent(report)
    }
}

/// Judges a call to the Image Factory. Everything that is asked of it may be asked twice.
pub fn factory_trouble(what: &str, error: &ichor_factory::Error) -> EffectError {
    use ichor_factory::{Error, Kind};
    let report = Report::new(format!("{what}: {error}"));
    match error {
        Error::Transport(TransportError::NotTrusted(_)) | Error::OtherId { .. } => {
            EffectError::Permanent(report)
        }
        Error::Transport(_) | Error::Nonsense { .. } => EffectError::Transient(report),
        Error::Refused(refusal) => match refusal.kind {
            Kind::Broken | Kind::Busy => EffectError::Transient(report),
            _ => EffectError::Permanent(report),
        },
    }
}

/// Something that did not happen, and may when tried again.
pub fn transient(message: impl Into<String>) -> EffectError {
    EffectError::Transient(Report::new(message))
}
