//! What to do about a failure that the other side has put into words.

use ichor_engine::{EffectError, Report};
use ichor_model::observed::Release;
use ichor_plan::{Action, privileges::grant};

/// Adds what to do next to a failure that says nothing about it yet.
pub fn advise(error: EffectError, action: &Action, token: &str, release: Option<Release>) -> EffectError {
    let add = |report: Report| match hint(&report.message, action, token, release) {
        Some(hint) if report.hint.is_none() => report.hint(hint),
        _ => report,
    };
    match error {
        EffectError::Transient(report) => EffectError::Transient(add(report)),
        EffectError::Permanent(report) => EffectError::Permanent(add(report)),
        EffectError::Unsure(report) => EffectError::Unsure(add(report)),
    }
}

fn hint(message: &str, action: &Action, token: &str, release: Option<Release>) -> Option<String> {
    let text = message.to_lowercase();
    let says = |phrases: &[&str]| phrases.iter().any(|phrase| text.contains(phrase));
    if let Some((path, privilege)) = refused_privilege(message) {
        let commands = grant(token, [path], release, &[privilege]);
        return Some(format!(
            "token `{token}` lacks `{privilege}` on `{path}`. On a Proxmox host, run:\n{commands}"
        ));
    }
    let hint = if says(&["proxmox answered 401"]) {
        return Some(format!(
            "see whether the token is still there, and whether it has expired:\n    pveum user token list '{}'",
            token.split('!').next().unwrap_or(token)
        ));
    } else if says(&["proxmox answered 403"]) {
        return Some(format!(
            "see what the token `{token}` may do:\n    pveum user token permissions '{}' '{}'",
            token.split('!').next().unwrap_or(token),
            token.split('!').nth(1).unwrap_or_default()
        ));
    } else if says(&["no space left", "not enough space", "out of space", "insufficient free space"]) {
        "make room on the storage, or name another one under `proxmox.storage`"
    } else if says(&[
        "no such logical volume",
        "unable to activate storage",
        "is not online",
        "could not activate",
    ]) {
        "see to the storage, or name another one under `proxmox.storage`"
    } else if says(&["proxmox answered 595", "proxmox answered 596", "proxmox answered 599"]) {
        "the host does not answer the other hosts: bring it back, or pin the machine to another one"
    } else if says(&["is not reached"]) && says(&["proxmox", ":8006"]) {
        "see whether `proxmox.endpoint` is up; any host of the cluster can be written there"
    } else if matches!(action, Action::FetchImage { .. }) && says(&["the image factory calls the schematic"])
    {
        "a factory with accounts, or of another release, names schematics in its own way: name the public one, or one of this release, as `image.factory`"
    } else if says(&["bytes, and the image factory says", "failed to verify file"]) {
        "something between the factory and the host cuts files short, such as a proxy or a full disk; a file that broke off is fetched again"
    } else if matches!(action, Action::FetchImage { .. }) {
        "see whether `image.factory` is reached from here and from the hosts"
    } else {
        return None;
    };
    Some(hint.to_owned())
}

/// Reads which privilege Proxmox found missing: `Permission check failed (/vms/401, VM.PowerMgmt)`.
fn refused_privilege(text: &str) -> Option<(&str, &str)> {
    let (_, rest) = text.split_once("Permission check failed (")?;
    let (path, privileges) = rest.split_once(')')?.0.split_once(", ")?;
    let privilege = privileges.split('|').next()?;
    // It goes into a command: only what a path and a privilege can be.
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-._".contains(c);
    (path.starts_with('/') && path.chars().all(plain) && privilege.chars().all(plain))
        .then_some((path, privilege))
}
