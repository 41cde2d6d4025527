//! `ichor secrets encrypt|rotate-key|add-recipient|remove-recipient`: who can open an encrypted file.
//!
//! 1. [`Holding::read`]: the file as it is;
//! 2. [`Holding::open`]: with the user's keys, unless it was tampered with;
//! 3. the same values, encrypted with another key or to others;
//! 4. [`Holding::write`]: in the place of the old file, at once.

use ichor_model::{Code, Finding};
use ichor_sops::{Recipient, Sealed, Tree, seal};

use super::subject::{Change, Changed, Holding, Subject, changed};
use crate::{
    Halt, Site, System,
    halt::only,
    keyring::{Keyring, sealed_finding},
    recipients, sealing,
    store::Store,
};

/// Encrypts a file that is in plain.
pub fn encrypt(system: &dyn System, site: Site<'_>, subject: Subject<'_>) -> Result<Changed, Halt> {
    let holding = Holding::read(system, site, subject)?;
    if let Some(sealed) = holding.sealed()? {
        return already(system, site, &holding, &sealed);
    }
    let shown = holding.shown();
    let Some(before) = &holding.before else {
        let finding = Finding::error(Code::UNREADABLE, None, format!("there is no `{shown}`"));
        return Err(Halt::invalid(only(finding.remedy("name the file that is to be encrypted"))));
    };
    let plain = Tree::parse(before, holding.format());
    let plain = plain.map_err(|flaw| Halt::invalid(only(sealed_finding(&flaw, &shown))))?;
    let mut ring = Keyring::load(system);
    let target = match subject {
        Subject::File(path) => path.to_owned(),
        Subject::Bundle => {
            Store::of(site).map_err(|finding| Halt::invalid(only(*finding)))?.bundle().to_owned()
        }
    };
    let chosen = recipients::choose(system, site, &target, &mut ring)?;
    let now = system.now().to_string();
    let sealed = sealing::drawing(system, &shown, |entropy| {
        seal(&plain, holding.format(), &chosen.policy, &now, entropy)
    })?;
    let path = holding.write(system, &sealed)?;
    Ok(Changed { made: chosen.made, ..changed(path, &sealed, Change::Encrypted) })
}

/// What is encrypted already stays as it is; what a run that was killed left in plain beside it goes.
fn already(
    system: &dyn System,
    site: Site<'_>,
    holding: &Holding<'_>,
    sealed: &Sealed,
) -> Result<Changed, Halt> {
    let mut change = Change::Nothing;
    if holding.is_bundle() {
        let store = Store::of(site).map_err(|finding| Halt::invalid(only(*finding)))?;
        if store.left_plain(system).is_some() {
            // Only what can be opened is a reason to remove the other one.
            holding.open(&Keyring::load(system))?;
            store.remove_plain(system)?;
            change = Change::Encrypted;
        }
    }
    Ok(changed(holding.path.clone(), sealed, change))
}

/// Encrypts a file with a new key, to the same recipients.
pub fn rotate_key(system: &dyn System, site: Site<'_>, subject: Subject<'_>) -> Result<Changed, Halt> {
    let holding = Holding::read(system, site, subject)?;
    let opened = holding.open(&Keyring::load(system))?;
    let all = present(opened.sealed())?;
    let now = system.now().to_string();
    let sealed = sealing::drawing(system, &holding.shown(), |entropy| opened.rotate(&all, &now, entropy))?;
    let path = holding.write(system, &sealed)?;
    Ok(changed(path, &sealed, Change::Rotated))
}

/// Lets others open a file too.
pub fn add_recipients(
    system: &dyn System,
    site: Site<'_>,
    subject: Subject<'_>,
    added: &[String],
) -> Result<Changed, Halt> {
    let added = given(added)?;
    let holding = Holding::read(system, site, subject)?;
    let opened = holding.open(&Keyring::load(system))?;
    let sealed = sealing::drawing(system, &holding.shown(), |entropy| opened.add(&added, entropy))?;
    if sealed.recipients() == opened.sealed().recipients() {
        return Ok(changed(holding.path.clone(), &sealed, Change::Nothing));
    }
    let path = holding.write(system, &sealed)?;
    Ok(changed(path, &sealed, Change::Added))
}

/// Encrypts a file with a new key that some do not get any more. What they have seen they keep.
pub fn remove_recipients(
    system: &dyn System,
    site: Site<'_>,
    subject: Subject<'_>,
    removed: &[String],
) -> Result<Changed, Halt> {
    let removed = given(removed)?;
    let holding = Holding::read(system, site, subject)?;
    let ring = Keyring::load(system);
    let opened = holding.open(&ring)?;
    let mut left = present(opened.sealed())?;
    if let Some(stranger) = removed.iter().find(|recipient| !left.contains(recipient)) {
        let message = format!("`{}` is not encrypted to {}", holding.shown(), stranger.text());
        return Err(Halt::invalid(only(
            Finding::error(Code::RECIPIENTS, None, message)
                .remedy(format!("name one of its recipients: {}", opened.sealed().recipients().join(", "))),
        )));
    }
    left.retain(|recipient| !removed.contains(recipient));
    if !ring.holds_one_of(&left) {
        let message = format!("you could not open `{}` any more", holding.shown());
        let finding = Finding::error(Code::RECIPIENTS, None, message);
        return Err(Halt::refused(only(
            finding.remedy("let one of those who stay do it, or add yourself first"),
        )));
    }
    let now = system.now().to_string();
    let sealed = sealing::drawing(system, &holding.shown(), |entropy| opened.rotate(&left, &now, entropy))?;
    let path = holding.write(system, &sealed)?;
    Ok(changed(path, &sealed, Change::Removed))
}

fn given(texts: &[String]) -> Result<Vec<Recipient>, Halt> {
    recipients::parse_all(texts.iter().map(String::as_str), "the command")
        .map(|(recipients, _)| recipients)
        .map_err(|finding| Halt::invalid(only(*finding)))
}

/// Returns the recipients of a file, all of which must be of a kind that can be encrypted to.
fn present(sealed: &Sealed) -> Result<Vec<Recipient>, Halt> {
    recipients::parse_all(sealed.recipients().into_iter(), "the file")
        .map(|(recipients, _)| recipients)
        .map_err(|finding| Halt::invalid(only(*finding)))
}
