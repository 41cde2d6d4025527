//! The encrypted file that a verb is about: the cluster's bundle, or another one.

use std::path::{Path, PathBuf};

use ichor_model::{Code, Finding, Findings};
use ichor_sops::{Format, Opened, Sealed};
use zeroize::Zeroizing;

use crate::{
    Halt, Site, System, bundle,
    halt::only,
    keyring::{Keyring, NewIdentity, sealed_finding},
    past, place, store,
    store::Store,
    system::Links,
    whole,
};

/// Which file is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject<'a> {
    /// The cluster's secrets.
    Bundle,
    /// A file of values that the inventory refers to.
    File(&'a Path),
}

/// What became of the file.
#[derive(Debug)]
pub struct Changed {
    /// Where it is.
    pub path: PathBuf,
    /// To whom it is encrypted now.
    pub recipients: Vec<String>,
    /// What was done.
    pub change: Change,
    /// The identity that was made for it.
    pub made: Option<NewIdentity>,
    /// Warnings.
    pub findings: Findings,
}

/// What was done with the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Nothing: it is as it was.
    Nothing,
    /// It was in plain, and is encrypted.
    Encrypted,
    /// It has a new key.
    Rotated,
    /// Others can open it too.
    Added,
    /// Somebody cannot open it any more, and it has a new key.
    Removed,
    /// It says something else.
    Edited,
}

/// A file as it was found.
pub struct Holding<'a> {
    site: Site<'a>,
    subject: Subject<'a>,
    /// Where it is.
    pub path: PathBuf,
    /// Its bytes; none if there is no such file.
    pub before: Option<Zeroizing<Vec<u8>>>,
}

impl<'a> Holding<'a> {
    /// Reads the file. A link is not followed: it would be replaced by what is written.
    pub fn read(system: &dyn System, site: Site<'a>, subject: Subject<'a>) -> Result<Self, Halt> {
        let path = match subject {
            Subject::File(path) => path.to_owned(),
            Subject::Bundle => store_of(site)?.kept(system).to_owned(),
        };
        let shown = path.display().to_string();
        let before = match system.read(&path, ichor_sops::MAX_BYTES, Links::Refuse) {
            Ok(contents) => Some(contents.bytes),
            Err(why) if why.is_missing() => None,
            Err(why) => {
                let finding = store::unreadable(&shown, &why, ichor_sops::MAX_BYTES);
                return Err(Halt::invalid(only(finding)));
            }
        };
        if before.is_none() && subject == Subject::Bundle {
            return Err(Halt::invalid(only(past::missing(system, &store_of(site)?))));
        }
        Ok(Self { site, subject, path, before })
    }

    /// Returns the name of the file, as it is shown.
    pub fn shown(&self) -> String {
        self.path.display().to_string()
    }

    /// Returns how the file is written.
    pub fn format(&self) -> Format {
        Format::of_name(&self.shown())
    }

    /// Whether it is the cluster's bundle.
    pub fn is_bundle(&self) -> bool {
        self.subject == Subject::Bundle
    }

    /// Returns the file if it is encrypted; nothing, if it is in plain or not there.
    pub fn sealed(&self) -> Result<Option<Sealed>, Halt> {
        let Some(before) = &self.before else { return Ok(None) };
        bundle::sealed(before, &self.shown())
            .map_err(|flaw| Halt::invalid(only(sealed_finding(&flaw, &self.shown()))))
    }

    /// Opens the file, which must be encrypted.
    pub fn open(&self, ring: &Keyring) -> Result<Opened, Halt> {
        let sealed = self.sealed()?.ok_or_else(|| Halt::invalid(only(self.not_encrypted())))?;
        ring.open(&sealed, &self.shown()).map_err(Halt::invalid)
    }

    fn not_encrypted(&self) -> Finding {
        let file = if self.is_bundle() { String::new() } else { format!(" {}", place::quoted(&self.path)) };
        if self.before.is_none() {
            let finding = Finding::error(Code::UNREADABLE, None, format!("there is no `{}`", self.shown()));
            return finding.remedy(format!("write it:\n    ichor secrets edit{file}"));
        }
        Finding::error(Code::PLAIN_SECRETS, None, format!("`{}` is not encrypted", self.shown()))
            .remedy(format!("encrypt it first:\n    ichor secrets encrypt{file}"))
    }

    /// Writes the file. The old one or the new one is there, whenever the run ends.
    pub fn write(&self, system: &dyn System, sealed: &Sealed) -> Result<PathBuf, Halt> {
        let text = Zeroizing::new(sealed.to_text());
        let before = self.before.as_ref().map_or(&[][..], |bytes| bytes.as_slice());
        if self.is_bundle() {
            let store = store_of(self.site)?;
            store.replace(system, text.as_bytes(), before)?;
            return Ok(store.bundle().to_owned());
        }
        let directory = place::directory_of(&self.path);
        system.make_directory(directory).map_err(|error| Halt::unwritable(directory, &error))?;
        let _lock = match system.lock(directory) {
            Ok(Some(lock)) => lock,
            Ok(None) => return Err(Halt::busy(system, directory)),
            Err(error) => return Err(Halt::unwritable(directory, &error)),
        };
        let unwritable = |error: std::io::Error| Halt::unwritable(&self.path, &error);
        if self.before.is_none() {
            whole::create(system, &self.path, text.as_bytes()).map_err(unwritable)?;
            return Ok(self.path.clone());
        }
        let now = system.read(&self.path, before.len(), Links::Refuse);
        if !now.is_ok_and(|contents| contents.bytes.as_slice() == before) {
            return Err(Halt::busy(system, directory));
        }
        whole::replace(system, &self.path, text.as_bytes()).map_err(unwritable)?;
        Ok(self.path.clone())
    }
}

/// Says what became of a file.
pub fn changed(path: PathBuf, sealed: &Sealed, change: Change) -> Changed {
    let recipients = sealed.recipients().into_iter().map(str::to_owned).collect();
    Changed { path, recipients, change, made: None, findings: Findings::new() }
}

fn store_of(site: Site<'_>) -> Result<Store, Halt> {
    Store::of(site).map_err(|finding| Halt::invalid(only(*finding)))
}
