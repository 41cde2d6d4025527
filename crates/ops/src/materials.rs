//! What an inventory names and does not hold: patch files, certificates, manifests, and secrets.
//!
//! Everything is read, and everything that is wrong is said at once. Files are kept with hidden lines for
//! findings, because a patch may hold a secret on any of them.

use std::{borrow::Cow, collections::BTreeMap, path::Path};

use ichor_machineconfig::{
    compose::{Material, Materials, Needs},
    secrets::SecretText,
};
use ichor_model::{Code, Desired, Finding, Findings, SecretRef, Span, desired::Setting};
use ichor_spec::Sources;
use zeroize::Zeroizing;

use crate::{
    Site, System, masked,
    system::{Links, Unreadable},
};

/// Largest file that an inventory may name. Real patches have a few KiB.
const MAX_BYTES: usize = 1024 * 1024;

/// Reads everything that is needed, or says what cannot be had.
pub fn gather(
    system: &dyn System,
    site: Site<'_>,
    needs: &Needs,
    sources: &mut Sources,
) -> Result<Materials, Findings> {
    let mut findings = Findings::new();
    let mut files = BTreeMap::new();
    for name in &needs.files {
        match read_file(system, site, name) {
            Ok(bytes) => {
                let source = masked::add(sources, site.path(name).display().to_string(), &bytes);
                files.insert(name.clone(), Material { source, bytes: bytes.to_vec() });
            }
            Err(finding) => findings.push(*finding),
        }
    }
    let mut secrets = BTreeMap::new();
    for reference in &needs.secrets {
        match resolve(system, site, reference) {
            Ok(secret) => {
                secrets.insert(reference.clone(), secret);
            }
            Err(finding) => findings.push(*finding),
        }
    }
    if findings.has_errors() { Err(findings) } else { Ok(Materials { files, secrets }) }
}

/// Keeps the lines and values of files out of sight: a patch may hold a secret in any of them.
pub fn hide(materials: &Materials, findings: &Findings) -> Findings {
    findings.iter().map(|finding| hide_values(materials, finding)).collect()
}

fn hide_values(materials: &Materials, finding: &Finding) -> Finding {
    let places = finding.at.iter().chain(finding.related.iter().map(|(at, _)| at));
    let in_files: Vec<(&Material, Span)> = places
        .filter_map(|at| {
            materials.files.values().find(|file| file.source == at.source).map(|file| (file, *at))
        })
        .collect();
    if in_files.is_empty() {
        return finding.clone();
    }
    let values: Vec<Cow<'_, str>> =
        in_files.iter().filter_map(|(file, at)| value_at(&file.bytes, *at)).collect();
    let hidden = |text: &String| without_values(text, &values);
    Finding {
        message: hidden(&finding.message),
        notes: finding.notes.iter().map(hidden).collect(),
        related: finding.related.iter().map(|(at, what)| (*at, hidden(what))).collect(),
        remedy: finding.remedy.as_ref().map(hidden),
        private: true,
        ..finding.clone()
    }
}

/// Returns the value at a place; nothing if a key stands there, which is no secret. A finding about the
/// whole file may be about any of it.
fn value_at(bytes: &[u8], at: Span) -> Option<Cow<'_, str>> {
    let (start, end) = (bytes.len().min(at.start as usize), bytes.len().min(at.end as usize));
    if start >= end {
        return Some(String::from_utf8_lossy(bytes));
    }
    let after = bytes[end..].iter().find(|byte| !matches!(byte, b'"' | b'\'' | b' '));
    (after != Some(&b':')).then(|| String::from_utf8_lossy(&bytes[start..end]))
}

/// Takes out of a message what repeats a value or its beginning: between backticks, and in the lines of a
/// patch that is proposed.
fn without_values(text: &str, values: &[Cow<'_, str>]) -> String {
    let repeats = |quoted: &str| {
        let quoted = quoted.trim_end_matches('…').trim_matches(['"', '\'']);
        !quoted.is_empty() && values.iter().any(|value| value.contains(quoted))
    };
    let (first, proposed) = text.split_once('\n').map_or((text, None), |(first, rest)| (first, Some(rest)));
    let parts = first.split('`').enumerate();
    let hidden = parts.map(|(i, part)| if i % 2 == 1 && repeats(part) { "…" } else { part });
    let first = hidden.collect::<Vec<_>>().join("`");
    let Some(proposed) = proposed else { return first };
    let lines = proposed.lines().map(|line| {
        let (key, value) = split_entry(line);
        if repeats(value.trim()) { format!("{key}…") } else { line.to_owned() }
    });
    [first].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
}

fn read_file(system: &dyn System, site: Site<'_>, name: &str) -> Result<Zeroizing<Vec<u8>>, Box<Finding>> {
    let path = site.path(name);
    let shown = path.display();
    let bad = |why: String, remedy: &str| {
        let message = format!("`{shown}`, which the inventory names, cannot be used");
        Box::new(Finding::error(Code::BAD_MATERIAL, None, message).because(why).remedy(remedy))
    };
    if is_inventory(system, site, &path) {
        return Err(bad("it is the inventory itself".into(), "name another file"));
    }
    let contents = system.read(&path, MAX_BYTES, Links::Follow).map_err(|why| match why {
        why if why.is_missing() => bad(why.to_string(), "write the file, or correct the path"),
        Unreadable::TooLarge(bytes) => bad(
            format!("it has {bytes} bytes, and at most {MAX_BYTES} are read"),
            "name the right file, or split it",
        ),
        why => bad(why.to_string(), "name a regular file that you may read"),
    })?;
    match std::str::from_utf8(&contents.bytes) {
        Ok(_) => Ok(contents.bytes),
        Err(_) => Err(bad("it is not UTF-8 text".into(), "save it as UTF-8")),
    }
}

/// Whether a path is another name of a file of the inventory.
fn is_inventory(system: &dyn System, site: Site<'_>, path: &Path) -> bool {
    let Ok(path) = system.canonical(path) else { return false };
    site.files.iter().any(|file| system.canonical(file).is_ok_and(|file| file == path))
}

/// Finds the secret that a reference stands for.
pub fn resolve(
    system: &dyn System,
    site: Site<'_>,
    reference: &SecretRef,
) -> Result<SecretText, Box<Finding>> {
    let place = places(site.desired, reference);
    let bad = |message: String, why: &str, remedy: String| {
        let finding = Finding::error(Code::UNRESOLVED_SECRET, None, message).because(why);
        let finding = if place.is_empty() { finding } else { finding.because(format!("it is for {place}")) };
        Box::new(finding.remedy(remedy))
    };
    match reference {
        SecretRef::Env(name) => {
            let message = || format!("the secret in the environment variable `{name}` cannot be had");
            let set = || format!("set it:\n    export {name}=...");
            match system.variable(name) {
                Ok(Some(value)) if value.expose().is_empty() => Err(bad(message(), "it is empty", set())),
                Ok(Some(value)) => Ok(value),
                Ok(None) => Err(bad(message(), "it is not set", set())),
                Err(_) => Err(bad(message(), "it is not UTF-8 text", set())),
            }
        }
        SecretRef::File(name) => {
            let path = site.path(name);
            let message = || format!("the secret in the file `{}` cannot be had", path.display());
            let remedy = || "write the secret to the file, or correct the path".to_owned();
            let contents = system.read(&path, MAX_BYTES, Links::Follow);
            let contents = contents.map_err(|why| bad(message(), &why.to_string(), remedy()))?;
            let text = std::str::from_utf8(&contents.bytes)
                .map_err(|_| bad(message(), "it is not UTF-8 text", remedy()))?;
            match without_last_newline(text) {
                "" => Err(bad(message(), "it is empty", remedy())),
                text => Ok(SecretText::new(text)),
            }
        }
        later => Err(Box::new(not_yet(later, &place))),
    }
}

fn without_last_newline(text: &str) -> &str {
    let text = text.strip_suffix('\n').unwrap_or(text);
    text.strip_suffix('\r').unwrap_or(text)
}

fn not_yet(reference: &SecretRef, place: &str) -> Finding {
    let kind = match reference {
        SecretRef::Sops(_) => "sops",
        SecretRef::Vault(_) => "vault",
        SecretRef::Command(_) => "command",
        SecretRef::Env(_) => "env",
        SecretRef::File(_) => "file",
    };
    let finding = Finding::error(Code::SECRET_SOURCE, None, format!("secrets by `{kind}` are not read yet"));
    let finding = if place.is_empty() { finding } else { finding.because(format!("one is for {place}")) };
    finding.remedy("put the secret into the environment until then, and write `{env: NAME}`")
}

/// Says where in the inventory a secret is used.
fn places(desired: &Desired, reference: &SecretRef) -> String {
    let os = &desired.os;
    let registries = os.registry_auth.iter().filter(|(_, auth)| auth.password == *reference);
    let registries = registries.map(|(name, _)| format!("`os.registries.{name}`"));
    let services = os.extension_services.iter().flat_map(|(name, service)| {
        let settings = service.environment.iter().chain(&service.files);
        let used = settings.filter(|(_, setting)| **setting == Setting::Secret(reference.clone()));
        used.map(move |(key, _)| format!("`{key}` of extension service `{name}`"))
    });
    registries.chain(services).collect::<Vec<_>>().join(", ")
}

/// Splits a line of YAML before its value.
fn split_entry(line: &str) -> (&str, &str) {
    let start = line.find(|c: char| c != ' ' && c != '-').unwrap_or(line.len());
    match line.find(": ") {
        Some(at) => line.split_at(at + 2),
        None if line.ends_with(':') => (line, ""),
        None => line.split_at(start),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(patch: &str, part: &str, message: &str) -> String {
        let start = patch.find(part).expect("a part");
        let offset = |at: usize| u32::try_from(at).expect("short");
        let at = Span { start: offset(start), end: offset(start + part.len()), ..Span::default() };
        let file = Material { source: at.source, bytes: patch.into() };
        let materials = Materials { files: [("p".to_owned(), file)].into(), ..Materials::default() };
        let finding = Finding::error(Code::WRONG_TYPE, at, message);
        let hidden = hide(&materials, &Findings::from_iter([finding]));
        let finding = hidden.iter().next().expect("a finding");
        assert!(finding.private);
        finding.message.clone()
    }

    #[test]
    fn values_are_taken_out_and_keys_stay() {
        let patch = "machine:\n  token: hunter2-and-more\n  tokn: x\n";
        assert_eq!(told(patch, "hunter2-and-more", "`token` is `hunter2-and-more`"), "`token` is `…`");
        assert_eq!(told(patch, "hunter2-and-more", "`token` is `hunter2…`"), "`token` is `…`");
        assert_eq!(told(patch, "tokn", "`tokn` is not known"), "`tokn` is not known");
        assert_eq!(
            told(
                patch,
                "hunter2-and-more",
                "write:\nmachine:\n    token: hunter2-and-more\n    other:\n    - hunter2"
            ),
            "write:\nmachine:\n    token: …\n    other:\n    - …"
        );
    }
}
