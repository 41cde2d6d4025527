//! To whom new files are encrypted.
//!
//! The inventory says it, or else `SOPS_AGE_RECIPIENTS`, or the creation rules in the nearest `.sops.yaml`. Where
//! nobody says it, files are for whoever makes them, who gets an identity if there is none.

use std::path::Path;

use ichor_model::{Code, Finding};
use ichor_sops::{Flaw, Policy, Recipient};
use regex::RegexBuilder;
use serde_json::Value;

use crate::{
    Halt, Site, System,
    halt::only,
    keyring::{Keyring, NewIdentity, variable},
    place,
    system::Links,
};

const RULES: &str = ".sops.yaml";
const MAX_BYTES: usize = 1024 * 1024;
/// How many directories are looked through upwards.
const MAX_LEVELS: usize = 64;
/// Largest program that a pattern may become.
const MAX_PATTERN_BYTES: usize = 1024 * 1024;
/// Keys of a rule that ask for keys of other kinds than age.
const FOREIGN: [&str; 7] =
    ["kms", "gcp_kms", "hckms", "azure_keyvault", "azure_kv", "hc_vault_transit_uri", "pgp"];

/// How a file is to be encrypted, and the identity that was made for it.
#[derive(Debug)]
pub struct Chosen {
    /// How.
    pub policy: Policy,
    /// The identity that was made, if there was none.
    pub made: Option<NewIdentity>,
}

impl Chosen {
    /// Says that an identity was made, where nothing else would.
    pub fn note(&self) -> Option<Finding> {
        let made = self.made.as_ref()?;
        let message = format!("an age identity was made for you, in `{}`", made.path.display());
        let finding = Finding::warning(Code::IDENTITY, None, message);
        Some(
            finding
                .because("the cluster's secrets are encrypted to it, and nobody can open them without it")
                .remedy("make a backup of it, and keep it to yourself"),
        )
    }
}

/// Chooses the recipients of a file. Whoever chooses must be one of them.
pub fn choose(system: &dyn System, site: Site<'_>, file: &Path, ring: &mut Keyring) -> Result<Chosen, Halt> {
    let invalid = |finding: Finding| Halt::invalid(only(finding));
    let Some((recipients, from)) = said(system, site, file).map_err(|finding| invalid(*finding))? else {
        return for_oneself(system, ring);
    };
    if !ring.holds_one_of(&recipients) {
        return Err(Halt::refused(only(not_for_yourself(ring, file, &from))));
    }
    Ok(Chosen { policy: Policy { recipients, ..Policy::default() }, made: None })
}

/// Without anybody else's word, files are for whoever makes them.
fn for_oneself(system: &dyn System, ring: &mut Keyring) -> Result<Chosen, Halt> {
    let made = if ring.own().is_none() { Some(ring.make(system)?) } else { None };
    let recipients = ring.own().cloned().into_iter().collect();
    Ok(Chosen { policy: Policy { recipients, ..Policy::default() }, made })
}

type Said = Option<(Vec<Recipient>, String)>;

fn said(system: &dyn System, site: Site<'_>, file: &Path) -> Result<Said, Box<Finding>> {
    if !site.desired.recipients.is_empty() {
        return parse_all(site.desired.recipients.iter().map(String::as_str), "`secrets.age`").map(Some);
    }
    if let Some(text) = variable(system, "SOPS_AGE_RECIPIENTS") {
        return parse_all(text.split(','), "`SOPS_AGE_RECIPIENTS`").map(Some);
    }
    rules_for(system, file)
}

/// Reads recipients, of which somebody said where they stand.
pub fn parse_all<'a>(
    all: impl Iterator<Item = &'a str>,
    from: &str,
) -> Result<(Vec<Recipient>, String), Box<Finding>> {
    let all = all.map(str::trim).filter(|text| !text.is_empty());
    let mut recipients = Vec::new();
    for text in all {
        let recipient = Recipient::parse(text).map_err(|flaw| Box::new(bad_recipient(from, &flaw)))?;
        if !recipients.contains(&recipient) {
            recipients.push(recipient);
        }
    }
    Ok((recipients, from.to_owned()))
}

fn bad_recipient(from: &str, flaw: &Flaw) -> Finding {
    Finding::error(Code::RECIPIENTS, None, format!("a recipient in {from} cannot be used"))
        .because(&flaw.problem.message)
        .remedy(&flaw.problem.remedy)
        .private()
}

/// Finds the first creation rule for a file in the nearest `.sops.yaml`.
fn rules_for(system: &dyn System, file: &Path) -> Result<Said, Box<Finding>> {
    let file = place::settle(system, file);
    for directory in file.ancestors().skip(1).take(MAX_LEVELS) {
        let path = directory.join(RULES);
        match system.read(&path, MAX_BYTES, Links::Follow) {
            Ok(contents) => {
                let below = file.strip_prefix(directory).unwrap_or(&file).to_string_lossy().into_owned();
                return rule_of(&contents.bytes, &path, &below);
            }
            Err(why) if why.is_missing() => {}
            Err(why) => return Err(Box::new(bad_rules(&path, &why.to_string()))),
        }
    }
    Ok(None)
}

fn rule_of(bytes: &[u8], path: &Path, below: &str) -> Result<Said, Box<Finding>> {
    let bad = |why: &str| Box::new(bad_rules(path, why));
    let text = std::str::from_utf8(bytes).map_err(|_| bad("it is not UTF-8 text"))?;
    let value: Value = serde_saphyr::from_str(text).map_err(|_| bad("it is not valid YAML"))?;
    for rule in value["creation_rules"].as_array().into_iter().flatten() {
        let pattern = rule["path_regex"].as_str().unwrap_or_default();
        let regex = RegexBuilder::new(pattern).size_limit(MAX_PATTERN_BYTES).build();
        if !regex.map_err(|_| bad("it has a `path_regex` that cannot be read"))?.is_match(below) {
            continue;
        }
        let recipients =
            recipients_of(rule).ok_or_else(|| bad("the rule asks for keys of other kinds than age"))?;
        let from = format!("`{}`", path.display());
        return parse_all(recipients.iter().map(String::as_str), &from).map(Some);
    }
    Ok(None)
}

/// Returns the age recipients of a rule; nothing, if it wants anything else, or several groups of keys.
fn recipients_of(rule: &Value) -> Option<Vec<String>> {
    let groups = rule["key_groups"].as_array().map_or(&[][..], Vec::as_slice);
    let is_foreign = |value: &Value| FOREIGN.iter().any(|kind| !is_empty(&value[*kind]));
    if groups.len() > 1 || is_foreign(rule) || groups.iter().any(is_foreign) {
        return None;
    }
    let all: Vec<String> =
        std::iter::once(rule).chain(groups).flat_map(|value| words(&value["age"])).collect();
    (!all.is_empty()).then_some(all)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Reads a list, or a text with commas.
fn words(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => text.split(',').map(|word| word.trim().to_owned()).collect(),
        Value::Array(items) => items.iter().flat_map(words).collect(),
        _ => Vec::new(),
    }
}

fn bad_rules(path: &Path, why: &str) -> Finding {
    Finding::error(Code::RECIPIENTS, None, format!("the rules in `{}` cannot be used", path.display()))
        .because(why)
        .remedy("name the recipients in the inventory: `secrets: {age: [age1...]}`")
}

fn not_for_yourself(ring: &Keyring, file: &Path, from: &str) -> Finding {
    let message = format!("you could not open `{}` yourself", file.display());
    let finding = Finding::error(Code::RECIPIENTS, None, message)
        .because(format!("{from} names recipients, and none of them is you"))
        .because("everything that ichor does with the cluster needs its secrets");
    match ring.own() {
        Some(own) => finding.remedy(format!("add yourself to them:\n    {}", own.text())),
        None => finding.remedy(
            "set `SOPS_AGE_KEY_FILE` to your identity; if you have none, make one and add its public key:\n    \
             age-keygen -o keys.txt",
        ),
    }
}
