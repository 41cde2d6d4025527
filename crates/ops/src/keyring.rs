//! The user's own keys, found where sops finds them.
//!
//! 1. `SOPS_AGE_KEY`, then the file of `SOPS_AGE_KEY_FILE`, then `sops/age/keys.txt` in the configuration directory;
//! 2. the file of `SOPS_AGE_SSH_PRIVATE_KEY_FILE`, then `~/.ssh/id_ed25519`;
//! 3. [`Keyring::make`]: where there is none at all, a new age identity in the configuration directory.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use ichor_model::{Code, Finding, Findings};
use ichor_sops::{Flaw, FlawKind, Format, Identity, Opened, Recipient, Sealed, identities};
use zeroize::Zeroizing;

use crate::{
    Halt, System,
    halt::only,
    place,
    system::{Contents, Links, Unreadable},
    whole,
};

/// Largest file with keys that is read.
const MAX_BYTES: usize = 64 * 1024;
const KEYS_FILE: &str = "sops/age/keys.txt";

/// The keys of whoever runs ichor.
#[derive(Debug, Default)]
pub struct Keyring {
    identities: Vec<Identity>,
    /// What is wrong with keys that were found.
    findings: Findings,
    /// Where none were found.
    looked: Vec<String>,
}

/// An identity that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewIdentity {
    /// The file that holds it.
    pub path: PathBuf,
    /// Who it is for others.
    pub recipient: String,
}

impl Keyring {
    /// Finds all keys.
    pub fn load(system: &dyn System) -> Self {
        let mut ring = Self::default();
        match variable(system, "SOPS_AGE_KEY") {
            Some(text) => {
                let lines = Zeroizing::new(text.split_ascii_whitespace().collect::<Vec<_>>().join("\n"));
                ring.take("SOPS_AGE_KEY", identities(&lines));
            }
            None => ring.looked.push("SOPS_AGE_KEY".to_owned()),
        }
        match variable(system, "SOPS_AGE_KEY_FILE") {
            Some(path) => ring.file(system, Path::new(path.as_str()), true, identities),
            None => ring.looked.push("SOPS_AGE_KEY_FILE".to_owned()),
        }
        if let Some(path) = keys_file(system) {
            ring.file(system, &path, false, identities);
        }
        let of_ssh = |text: &str| Identity::from_ssh(text).map(|identity| vec![identity]);
        match variable(system, "SOPS_AGE_SSH_PRIVATE_KEY_FILE") {
            Some(path) => ring.file(system, Path::new(path.as_str()), true, of_ssh),
            None => ring.looked.push("SOPS_AGE_SSH_PRIVATE_KEY_FILE".to_owned()),
        }
        if let Some(home) = variable(system, "HOME") {
            ring.file(system, &Path::new(home.as_str()).join(".ssh/id_ed25519"), false, of_ssh);
        }
        ring
    }

    fn file(
        &mut self,
        system: &dyn System,
        path: &Path,
        is_named: bool,
        read: impl Fn(&str) -> Result<Vec<Identity>, Flaw>,
    ) {
        let shown = path.display().to_string();
        // What somebody named may be a pipe; what lies in a known place must be the file itself.
        let contents = if is_named {
            system.read_given(path, MAX_BYTES)
        } else {
            system.read(path, MAX_BYTES, Links::Refuse)
        };
        match contents {
            Ok(contents) => {
                if contents.open_to_others {
                    self.findings.push(open_to_others(path));
                }
                self.take(&shown, text_of(&contents).and_then(read));
            }
            Err(why) if why.is_missing() && !is_named => self.looked.push(shown),
            Err(why) => self.findings.push(unreadable(&shown, &why)),
        }
    }

    fn take(&mut self, shown: &str, found: Result<Vec<Identity>, Flaw>) {
        match found {
            Ok(found) if found.is_empty() => self.looked.push(shown.to_owned()),
            Ok(found) => self.identities.extend(found),
            Err(flaw) => self.findings.push(bad_key(shown, &flaw)),
        }
    }

    /// Returns the age key that new files are encrypted to, where nobody says otherwise. A key of SSH is for
    /// opening what others encrypted to it.
    pub fn own(&self) -> Option<&Recipient> {
        let mut recipients = self.identities.iter().map(Identity::recipient);
        recipients.find(|recipient| recipient.text().starts_with("age1"))
    }

    /// Whether one of these is for a key of this ring.
    pub fn holds_one_of(&self, recipients: &[Recipient]) -> bool {
        self.identities.iter().any(|identity| recipients.contains(identity.recipient()))
    }

    /// Makes an identity, in the file where sops looks for it.
    pub fn make(&mut self, system: &dyn System) -> Result<NewIdentity, Halt> {
        let Some(path) = keys_file(system) else { return Err(Halt::failed(only(no_place()))) };
        let mut failed = false;
        let identity = Identity::generate(&mut |buffer| failed |= system.random(buffer).is_err());
        let identity = identity.ok().filter(|_| !failed);
        let text = identity.as_ref().and_then(Identity::to_text);
        let (Some(identity), Some(text)) = (identity, text) else {
            return Err(Halt::failed(only(not_made(&path, "the system gives no random bytes"))));
        };
        let recipient = identity.recipient().text().to_owned();
        let lines = format!("# created: {}\n# public key: {recipient}\n{}\n", system.now(), text.as_str());
        let lines = Zeroizing::new(lines);
        let directory = place::directory_of(&path);
        system.make_directory(directory).map_err(|error| Halt::unwritable(directory, &error))?;
        whole::create(system, &path, lines.as_bytes()).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => Halt::refused(only(not_made(&path, "there is a file of that name"))),
            _ => Halt::unwritable(&path, &error),
        })?;
        self.identities.insert(0, identity);
        Ok(NewIdentity { path, recipient })
    }

    /// Opens an encrypted file, or says why it stays closed.
    pub fn open(&self, sealed: &Sealed, shown: &str) -> Result<Opened, Findings> {
        self.try_open(sealed).map_err(|flaw| {
            let mut findings = only(self.closed(&flaw, shown));
            if flaw.kind == FlawKind::NoKey {
                findings.extend(self.findings.clone());
            }
            findings
        })
    }

    /// Does the same for whoever needs no words.
    pub fn try_open(&self, sealed: &Sealed) -> Result<Opened, Flaw> {
        sealed.open(&self.identities)
    }

    fn closed(&self, flaw: &Flaw, shown: &str) -> Finding {
        let finding = sealed_finding(flaw, shown);
        if flaw.kind != FlawKind::NoKey {
            return finding;
        }
        let own: Vec<&str> = self.identities.iter().map(|identity| identity.recipient().text()).collect();
        if own.is_empty() {
            return finding.because(format!("no key of yours was found in {}", self.looked.join(", ")));
        }
        finding.because(format!("your keys are those of {}", own.join(", ")))
    }

    /// Returns what is wrong with the keys that were found.
    pub fn findings(&self) -> &Findings {
        &self.findings
    }
}

/// Reads an encrypted file of a known name.
pub fn parse(bytes: &[u8], shown: &str) -> Result<Sealed, Flaw> {
    Sealed::parse(bytes, Format::of_name(shown))
}

/// Says why an encrypted file cannot be used.
pub fn sealed_finding(flaw: &Flaw, shown: &str) -> Finding {
    let line = flaw.line.map(|line| format!(" (line {line})")).unwrap_or_default();
    let message = format!("`{shown}` {}{line}", flaw.problem.message);
    Finding::error(Code::SEALED, None, message).remedy(&flaw.problem.remedy)
}

/// Returns an environment variable that is text and not empty.
pub fn variable(system: &dyn System, name: &str) -> Option<Zeroizing<String>> {
    let value = system.variable(name).ok()??;
    (!value.expose().is_empty()).then(|| Zeroizing::new(value.expose().to_owned()))
}

/// Returns the file in which sops looks for identities.
fn keys_file(system: &dyn System) -> Option<PathBuf> {
    configuration(system).map(|directory| directory.join(KEYS_FILE))
}

fn configuration(system: &dyn System) -> Option<PathBuf> {
    let path = |name: &str| variable(system, name).map(|text| PathBuf::from(text.as_str()));
    if cfg!(windows) {
        return path("AppData");
    }
    let below = if cfg!(target_os = "macos") { "Library/Application Support" } else { ".config" };
    path("XDG_CONFIG_HOME").or_else(|| path("HOME").map(|home| home.join(below)))
}

fn text_of(contents: &Contents) -> Result<&str, Flaw> {
    std::str::from_utf8(&contents.bytes).map_err(|_| Flaw {
        kind: FlawKind::BadKey,
        line: None,
        problem: ichor_model::Problem::new("it is not UTF-8 text", "name another file"),
    })
}

fn open_to_others(path: &Path) -> Finding {
    Finding::warning(Code::OPEN_SECRETS, None, format!("others can read `{}`", path.display()))
        .because("whoever reads it opens everything that is encrypted to you")
        .remedy(format!("keep it to yourself:\n    chmod 600 {}", place::quoted(path)))
}

fn unreadable(shown: &str, why: &Unreadable) -> Finding {
    Finding::warning(Code::IDENTITY, None, format!("the keys in `{shown}` are left out"))
        .because(why.to_string())
        .remedy("name the file itself, one that you may read")
}

fn bad_key(shown: &str, flaw: &Flaw) -> Finding {
    let line = flaw.line.map(|line| format!(", line {line}")).unwrap_or_default();
    Finding::warning(Code::IDENTITY, None, format!("the keys in `{shown}` are left out"))
        .because(format!("{}{line}", flaw.problem.message))
        .remedy(&flaw.problem.remedy)
}

fn no_place() -> Finding {
    Finding::error(Code::IDENTITY, None, "there is no place for a key of yours")
        .because("neither `HOME` nor `XDG_CONFIG_HOME` is set")
        .remedy("set one of them, or give a key in `SOPS_AGE_KEY`")
}

fn not_made(path: &Path, why: &str) -> Finding {
    Finding::error(Code::IDENTITY, None, format!("no age identity could be made in `{}`", path.display()))
        .because(why)
        .remedy("see to that file, or name another one in `SOPS_AGE_KEY_FILE`")
}
