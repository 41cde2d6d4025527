//! The secret that a reference in an inventory stands for.

use std::time::Duration;

use ichor_machineconfig::secrets::SecretText;
use ichor_model::{Code, Finding, Findings, SecretRef};

use super::{MAX_BYTES, places, vault::Vault};
use crate::{
    Site, System,
    keyring::{self, Keyring, sealed_finding},
    system::{Limits, Links},
};

/// Largest encrypted file that is read.
const MAX_SEALED_BYTES: usize = ichor_sops::MAX_BYTES;
/// Long enough for somebody who types a passphrase.
const COMMAND_LIMITS: Limits = Limits { deadline: Duration::from_mins(1), bytes: 64 * 1024 };

/// Finds the secret that a reference stands for.
pub fn resolve(
    system: &dyn System,
    site: Site<'_>,
    reference: &SecretRef,
) -> Result<SecretText, Box<Finding>> {
    resolve_with(system, site, &Vault::new(system), reference)
}

/// Finds one of several secrets, with a login that serves for all of them.
pub fn resolve_with(
    system: &dyn System,
    site: Site<'_>,
    vault: &Vault<'_>,
    reference: &SecretRef,
) -> Result<SecretText, Box<Finding>> {
    let found = match reference {
        SecretRef::Env(name) => of_environment(system, name),
        SecretRef::File(name) => of_file(system, site, name),
        SecretRef::Sops(place) => of_sealed(system, site, place),
        SecretRef::Command(words) => of_command(system, site, words),
        SecretRef::Vault(place) => vault.read(place),
    };
    found.map_err(|finding| {
        let place = places(site.desired, reference);
        Box::new(if place.is_empty() { finding } else { finding.because(format!("it is for {place}")) })
    })
}

fn unresolved(message: String, why: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding::error(Code::UNRESOLVED_SECRET, None, message).because(why).remedy(remedy)
}

fn of_environment(system: &dyn System, name: &str) -> Result<SecretText, Finding> {
    let bad = |why: &str| {
        let message = format!("the secret in the environment variable `{name}` cannot be had");
        unresolved(message, why, format!("set it:\n    export {name}=..."))
    };
    match system.variable(name) {
        Ok(Some(value)) if value.expose().is_empty() => Err(bad("it is empty")),
        Ok(Some(value)) => Ok(value),
        Ok(None) => Err(bad("it is not set")),
        Err(_) => Err(bad("it is not UTF-8 text")),
    }
}

fn of_file(system: &dyn System, site: Site<'_>, name: &str) -> Result<SecretText, Finding> {
    let path = site.path(name);
    let bad = |why: &str| {
        let message = format!("the secret in the file `{}` cannot be had", path.display());
        unresolved(message, why, "write the secret to the file, or correct the path")
    };
    let contents = system.read(&path, MAX_BYTES, Links::Follow).map_err(|why| bad(&why.to_string()))?;
    text_of(&contents.bytes).map_err(bad)
}

/// Reads `path#dotted.key`.
fn of_sealed(system: &dyn System, site: Site<'_>, place: &str) -> Result<SecretText, Finding> {
    let (name, key) = place.split_once('#').unwrap_or((place, ""));
    let path = site.path(name);
    let shown = path.display().to_string();
    let bad = |why: &str, remedy: String| {
        unresolved(format!("the secret `{key}` in `{shown}` cannot be had"), why, remedy)
    };
    let contents = system.read(&path, MAX_SEALED_BYTES, Links::Follow).map_err(|why| {
        let is_token = site.desired.proxmox.token.as_ref() == Some(&SecretRef::Sops(place.to_owned()));
        let remedy = if is_token && why.is_missing() {
            "make the account on Proxmox, and its token:\n    ichor pve setup\nor correct the path"
        } else {
            "write the file, or correct the path"
        };
        bad(&why.to_string(), remedy.to_owned())
    })?;
    let sealed = keyring::parse(&contents.bytes, &shown).map_err(|flaw| sealed_finding(&flaw, &shown))?;
    let opened = Keyring::load(system).open(&sealed, &shown).map_err(|findings| first(&findings))?;
    let keys: Vec<&str> = key.split('.').collect();
    match opened.plain().find(&keys) {
        Some(text) if text.is_empty() => Err(bad("it is empty", "write the value".to_owned())),
        Some(text) => Ok(SecretText::from(text)),
        None => {
            let remedy = format!("add it, or correct the key:\n    ichor secrets edit {name}");
            Err(bad("the file has no single value of that key", remedy))
        }
    }
}

/// Returns the finding that says why a file stays closed; the others are about keys that were not used.
fn first(findings: &Findings) -> Finding {
    let first = findings.iter().next().cloned();
    first.unwrap_or_else(|| Finding::error(Code::SEALED, None, "an encrypted file cannot be opened"))
}

fn of_command(system: &dyn System, site: Site<'_>, words: &[String]) -> Result<SecretText, Finding> {
    // What follows the name of the program may be anything.
    let program = words.first().map_or("", String::as_str);
    let bad = |why: &str| {
        let message = format!("the secret that the command `{program}` prints cannot be had");
        unresolved(message, why, "run the command yourself, and see what it says")
    };
    let output = system.output_of(words, site.home(), COMMAND_LIMITS).map_err(|why| bad(&why.to_string()))?;
    text_of(&output).map_err(bad)
}

fn text_of(bytes: &[u8]) -> Result<SecretText, &'static str> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8 text")?;
    match without_last_newline(text) {
        "" => Err("it is empty"),
        text => Ok(SecretText::new(text)),
    }
}

fn without_last_newline(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}
