//! The store: where a cluster's secrets are kept, and what else cannot be asked back.
//!
//! `<store>/<cluster>/secrets.yaml` is the bundle, in talosctl's own format, unless the inventory names a
//! file of its own. `<store>/<cluster>/cluster.json` is the record: the contract the cluster was made with.
//! The store keeps itself out of git.

use std::path::{Path, PathBuf};

use ichor_model::{Code, Finding, Minor};
use serde::{Deserialize, Serialize};

use crate::{
    Halt, Site, System,
    halt::only,
    system::{Links, Unreadable},
    whole,
};

/// Largest record that is read; it has two lines.
const MAX_RECORD_BYTES: usize = 64 * 1024;
/// The number of the record's language.
const SCHEMA: u32 = 1;

/// Where the secrets of one cluster are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// The store's directory.
    root: PathBuf,
    /// The cluster's own directory in it.
    directory: PathBuf,
    /// The bundle.
    bundle: PathBuf,
    /// Why the bundle must not be written in plain, if the inventory asks for that.
    encrypted: Option<&'static str>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    schema: u32,
    contract: Minor,
}

impl Store {
    /// Returns the store of a cluster, if it is of a kind that can be used.
    pub fn of(site: Site<'_>) -> Result<Self, Box<Finding>> {
        let store = &site.desired.store;
        if store.contains("://") {
            return Err(Box::new(
                Finding::error(Code::STORE_KIND, None, "stores in buckets are not there yet")
                    .because("the inventory keeps its secrets in one")
                    .remedy("use a directory until then: `store: {path: .ichor}`"),
            ));
        }
        let root = site.path(store);
        let directory = root.join(site.name());
        let own = directory.join("secrets.yaml");
        let bundle = site.desired.secrets_file.as_ref().map_or(own, |file| site.path(file));
        let encrypted = encryption_wanted(site, &bundle);
        Ok(Self { root, directory, bundle, encrypted })
    }

    /// Returns the path of the bundle.
    pub fn bundle(&self) -> &Path {
        &self.bundle
    }

    /// Returns the path of the record.
    pub fn record(&self) -> PathBuf {
        self.directory.join("cluster.json")
    }

    /// Returns the contract that the cluster was made with, if that was recorded.
    pub fn contract(&self, system: &dyn System) -> Result<Option<Minor>, Box<Finding>> {
        let path = self.record();
        let contents = match system.read(&path, MAX_RECORD_BYTES, Links::Follow) {
            Ok(contents) => contents,
            Err(why) if why.is_missing() => return Ok(None),
            Err(why) => return Err(Box::new(bad_record(&path, &why.to_string()))),
        };
        let record: Record = serde_json::from_slice(&contents.bytes)
            .map_err(|error| Box::new(bad_record(&path, &wrong_json(&error))))?;
        if record.schema != SCHEMA {
            let why = format!("its schema is {}, and this ichor reads {SCHEMA}", record.schema);
            return Err(Box::new(bad_record(&path, &why)));
        }
        Ok(Some(record.contract))
    }

    /// Keeps a new bundle. One that is there already is never replaced, also not by two runs at once.
    ///
    /// The bundle comes last: until it is there, the cluster has no secrets, and everything else may be
    /// written again.
    pub fn keep(&self, system: &dyn System, bundle: &[u8], contract: Minor) -> Result<(), Halt> {
        self.refuse_to_write(system)?;
        self.prepare(system)?;
        self.write_record(system, contract)?;
        if let Some(parent) = self.bundle.parent() {
            system.make_directory(parent).map_err(|error| Halt::unwritable(parent, &error))?;
        }
        whole::create(system, &self.bundle, bundle).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => self.taken(),
            _ => Halt::unwritable(&self.bundle, &error),
        })
    }

    /// Stops if there is a bundle, or anything else of its name, or if it is to be encrypted.
    pub fn refuse_to_write(&self, system: &dyn System) -> Result<(), Halt> {
        if let Some(why) = self.encrypted {
            return Err(Halt::refused(only(cannot_encrypt(&self.bundle, why))));
        }
        match system.exists(&self.bundle) {
            Ok(false) => Ok(()),
            Ok(true) => Err(self.taken()),
            Err(error) => Err(Halt::unwritable(&self.bundle, &error)),
        }
    }

    /// Writes the record, over an older one.
    pub fn write_record(&self, system: &dyn System, contract: Minor) -> Result<(), Halt> {
        self.prepare(system)?;
        let path = self.record();
        let text = serde_json::to_string_pretty(&Record { schema: SCHEMA, contract }).unwrap_or_default();
        whole::replace(system, &path, (text + "\n").as_bytes())
            .map_err(|error| Halt::unwritable(&path, &error))
    }

    /// Makes the directories, and keeps them out of git before there is a secret in them.
    fn prepare(&self, system: &dyn System) -> Result<(), Halt> {
        system.make_directory(&self.directory).map_err(|error| Halt::unwritable(&self.directory, &error))?;
        let ignore = self.root.join(".gitignore");
        match system.exists(&ignore) {
            Ok(true) => Ok(()),
            Ok(false) => match whole::create(system, &ignore, b"*\n") {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    Err(Halt::unwritable(&ignore, &error))
                }
                _ => Ok(()),
            },
            Err(error) => Err(Halt::unwritable(&ignore, &error)),
        }
    }

    fn taken(&self) -> Halt {
        let path = self.bundle.display();
        let message = format!("the cluster already has secrets: `{path}`");
        Halt::refused(only(
            Finding::error(Code::SECRETS_EXIST, None, message)
                .because("machines that run with them accept nothing that is made from others")
                .remedy(format!(
                    "go on with them, as in `ichor render`; for a new cluster of that name move the old \
                     secrets away first:\n    mv {path} {path}.old"
                )),
        ))
    }
}

/// Returns why the inventory wants a bundle to be encrypted, if it does.
fn encryption_wanted(site: Site<'_>, bundle: &Path) -> Option<&'static str> {
    let name = bundle.file_name().unwrap_or_default().to_string_lossy();
    if !site.desired.recipients.is_empty() {
        return Some("the inventory names age recipients that the secrets are encrypted to");
    }
    (name.contains(".sops.") || name.ends_with(".age")).then_some("the file's name says that it is encrypted")
}

fn cannot_encrypt(path: &Path, why: &str) -> Finding {
    let message = format!("`{}` would hold the secrets in plain", path.display());
    Finding::error(Code::ENCRYPTED_BUNDLE, None, message)
        .because(why)
        .because("encryption is not there yet")
        .remedy("leave out `secrets` in the inventory until then, and ichor keeps them in its store")
}

/// Says that there is no bundle yet.
pub fn no_secrets(path: &Path) -> Finding {
    Finding::error(Code::NO_SECRETS, None, "the cluster has no secrets yet")
        .because(format!("looked for `{}`", path.display()))
        .remedy(
            "make them:\n    ichor secrets new\nor import those of a cluster that runs:\n    ichor secrets import FILE",
        )
}

/// Says that a file with secrets could not be read.
pub fn unreadable(path: &str, why: &Unreadable) -> Finding {
    let remedy = match why {
        Unreadable::Os(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            format!("give yourself access: `chmod u+r {path}`")
        }
        Unreadable::TooLarge(_) => "name the right file: a bundle has about 12 KiB".to_owned(),
        Unreadable::NotAFile(_) => "name the file itself".to_owned(),
        Unreadable::Os(_) => "check the path".to_owned(),
    };
    Finding::error(Code::UNREADABLE, None, format!("`{path}` cannot be read"))
        .because(why.to_string())
        .remedy(remedy)
}

/// Says where the JSON is wrong. What stands there is not repeated: the file lies beside secrets.
fn wrong_json(error: &serde_json::Error) -> String {
    format!("it is not what ichor wrote, from line {} column {} on", error.line(), error.column())
}

fn bad_record(path: &Path, why: &str) -> Finding {
    Finding::error(Code::BAD_RECORD, None, format!("`{}` cannot be used", path.display()))
        .because(why)
        .remedy("restore it from a backup, or set `cluster.contract` in the inventory and remove the file")
}
