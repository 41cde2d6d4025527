//! The store: where a cluster's secrets are kept, and what else cannot be asked back.
//!
//! `<store>/<cluster>/secrets.sops.yaml` is the bundle, in talosctl's own format with its values encrypted, unless
//! the inventory names a file of its own. One in plain, `secrets.yaml`, is read where there is no other.
//! `<store>/<cluster>/cluster.json` is the record: the contract the cluster was made with.
//! The store keeps itself out of git.
//!
//! A store in a bucket has a mirror in `.ichor`, beside the inventory, which looks the same. Verbs read and write the
//! mirror; [`crate::keep`] brings it and the bucket together.

use std::path::{Path, PathBuf};

use ichor_model::{Code, Finding, Findings, Minor};
use ichor_plan::support;
use ichor_store::{Address, BadAddress};
use serde::{Deserialize, Serialize};

use crate::{
    Halt, Keeping, Site, System,
    halt::only,
    place,
    system::{Entry, Links, Lock, Openness, Unreadable, is_absence},
    whole,
};

/// Largest record that is read; it has two lines.
const MAX_RECORD_BYTES: usize = 64 * 1024;
/// What keeps a directory out of git.
const IGNORE_ALL: &[u8] = b"*\n";
/// The bundle's name, and that of one in plain.
const SEALED: &str = "secrets.sops.yaml";
const PLAIN: &str = "secrets.yaml";
/// The record's name.
const RECORD: &str = "cluster.json";
/// Where the mirrors of buckets are, beside the inventory.
const MIRRORS: &str = ".ichor";
/// Most directories beside a store that are looked into.
const MAX_STORES: usize = 100;
/// Most old files that are left beside a new one.
const MAX_ASIDE: usize = 100;
/// The number of the record's language.
const SCHEMA: u32 = 1;

/// Where the secrets of one cluster are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// The inventory's directory.
    home: PathBuf,
    /// The store's directory.
    root: PathBuf,
    /// The cluster's own directory in it.
    directory: PathBuf,
    /// The bundle.
    bundle: PathBuf,
    /// Where one in plain may be in its place.
    plain: Option<PathBuf>,
    /// How it is written.
    keeping: Keeping,
    /// The bucket that the directories mirror; none, if they are the store.
    shared: Option<Address>,
}

/// What becomes of the record when another bundle comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextRecord {
    /// It is that of the same cluster.
    Stays,
    /// It is replaced by these bytes.
    Becomes(Vec<u8>),
    /// It is of another cluster, and nobody knows what to write.
    Goes,
}

impl NextRecord {
    /// Returns the record of a contract, if there is one to write down.
    pub fn of(contract: Option<Minor>) -> Self {
        contract.map_or(Self::Goes, |contract| Self::Becomes(record_of(contract)))
    }
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
        let shared = store.contains("://").then(|| store.parse::<Address>()).transpose();
        let shared = shared.map_err(|why| Box::new(not_a_store(&why)))?;
        let root = match &shared {
            Some(address) => site.path(MIRRORS).join(address.slug()),
            None => site.path(store),
        };
        let directory = root.join(site.name());
        let named = site.desired.secrets_file.as_ref().map(|file| site.path(file));
        let plain = directory.join(PLAIN);
        let (bundle, plain) = match (named, site.keeping) {
            (Some(named), _) => (named, None),
            (None, Keeping::Encrypted) => (directory.join(SEALED), Some(plain)),
            (None, Keeping::Plain) => (plain, None),
        };
        if bundle.extension().is_some_and(|extension| extension == "age") {
            return Err(Box::new(not_as_a_whole(&bundle)));
        }
        let home = site.home().to_owned();
        Ok(Self { home, root, directory, bundle, plain, keeping: site.keeping, shared })
    }

    /// Returns the store's directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the bucket that the store's directory mirrors; nothing, if it is the store.
    pub const fn shared(&self) -> Option<&Address> {
        self.shared.as_ref()
    }

    /// Returns the names of the files that must not be lost, and that everybody who works on the cluster needs. A
    /// bundle in plain is not copied to where nobody would look for one.
    pub fn lasting(&self) -> Vec<String> {
        let bundle = match (self.keeping, &self.shared) {
            (Keeping::Encrypted, _) => SEALED,
            // Those of a lab open nothing, and two who rehearse together need the same.
            (Keeping::Plain, Some(_)) => PLAIN,
            (Keeping::Plain, None) => return vec![RECORD.into()],
        };
        vec![bundle.into(), RECORD.into()]
    }

    /// Whether the bundle is there. What cannot be asked about counts as there.
    pub fn has_bundle(&self, system: &dyn System) -> bool {
        !matches!(system.exists(self.kept(system)), Ok(false))
    }

    /// Returns the path of the bundle that is there: one in plain, if there is no other.
    pub fn kept(&self, system: &dyn System) -> &Path {
        match &self.plain {
            Some(plain) if matches!(system.exists(&self.bundle), Ok(false)) && is_there(system, plain) => {
                plain
            }
            _ => &self.bundle,
        }
    }

    /// Returns bundles of a cluster of this name in other stores of this inventory: the usual directory, and mirrors of
    /// buckets. A store that the inventory has named since does not have them yet.
    pub fn elsewhere(&self, system: &dyn System) -> Vec<PathBuf> {
        let (Some(cluster), name) = (self.directory.file_name(), self.own_name()) else { return Vec::new() };
        let usual = self.home.strip_prefix(".").unwrap_or(&self.home).join(MIRRORS);
        let beside = system.names(&usual, MAX_STORES).unwrap_or_default();
        let mut directories: Vec<PathBuf> =
            beside.iter().map(|store| usual.join(store).join(cluster)).collect();
        directories.push(usual.join(cluster));
        directories.retain(|directory| *directory != self.directory);
        directories.sort();
        let bundles = directories.into_iter().map(|directory| directory.join(name));
        bundles.filter(|path| is_there(system, path)).collect()
    }

    /// Returns the name of a bundle in a store. One of a lab has another name than that of the real cluster, and neither
    /// is of use to the other.
    pub const fn own_name(&self) -> &'static str {
        match self.keeping {
            Keeping::Encrypted => SEALED,
            Keeping::Plain => PLAIN,
        }
    }

    /// Returns all paths that may hold the bundle.
    pub fn bundles(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(self.bundle.as_path()).chain(self.plain.as_deref())
    }

    /// Returns how the bundle is written.
    pub const fn keeping(&self) -> Keeping {
        self.keeping
    }

    /// Whether the bundle lies in the store, and not in a file that the inventory names.
    fn is_own(&self) -> bool {
        self.bundle.parent() == Some(&self.directory)
    }

    /// Returns the path of the bundle.
    pub fn bundle(&self) -> &Path {
        &self.bundle
    }

    /// Returns the cluster's own directory in the store.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the path of the record.
    pub fn record(&self) -> PathBuf {
        self.directory.join(RECORD)
    }

    /// Returns the contract that the cluster was made with, if that was recorded. What is left of secrets that
    /// were moved away says nothing about those that come next.
    pub fn contract(&self, system: &dyn System) -> Result<Option<Minor>, Box<Finding>> {
        if !self.has_bundle(system) {
            return Ok(None);
        }
        read_record(system, &self.record())
    }

    /// Keeps a new bundle. One that is there already is never replaced, also not by two runs at once.
    ///
    /// The bundle comes last: until it is there, the cluster has no secrets, and everything else may be
    /// written again. Whoever holds the store already says so.
    pub fn keep(
        &self,
        system: &dyn System,
        bundle: &[u8],
        contract: Option<Minor>,
        held: Option<&Lock>,
    ) -> Result<Findings, Halt> {
        self.refuse_to_write(system)?;
        let mut findings = self.prepare(system)?;
        let _lock = held.is_none().then(|| self.lock(system)).transpose()?;
        match contract {
            Some(contract) => self.put_record(system, contract)?,
            // One that is left of other secrets would count as that of these.
            None => self.remove_record(system)?,
        }
        if let Some(parent) = self.bundle.parent() {
            system.make_directory(parent).map_err(|error| Halt::unwritable(parent, &error))?;
        }
        whole::create(system, &self.bundle, bundle).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => self.taken(&self.bundle),
            _ => Halt::unwritable(&self.bundle, &error),
        })?;
        if self.keeping == Keeping::Plain && !self.is_own() && !self.is_ignored(system) {
            findings.push(self.not_ignored());
        }
        Ok(findings)
    }

    /// Puts another bundle in the place of the one that is there, which stays under another name. Returns the names of
    /// what was put aside.
    ///
    /// The record goes first, as when there is no bundle yet: until the bundle is there the old one counts.
    pub fn supplant(
        &self,
        system: &dyn System,
        bundle: &[u8],
        next: NextRecord,
    ) -> Result<Vec<PathBuf>, Halt> {
        self.prepare(system)?;
        let _lock = self.lock(system)?;
        let (record, kept) = (self.record(), self.kept(system).to_owned());
        let mut aside = Vec::new();
        match next {
            NextRecord::Stays => {}
            NextRecord::Becomes(bytes) => {
                let same = system.read(&record, bytes.len(), Links::Refuse);
                if !same.is_ok_and(|contents| *contents.bytes == bytes) {
                    aside.extend(set_aside(system, &record)?);
                    whole::replace(system, &record, &bytes)
                        .map_err(|error| Halt::unwritable(&record, &error))?;
                }
            }
            NextRecord::Goes => {
                aside.extend(set_aside(system, &record)?);
                self.remove_record(system)?;
            }
        }
        aside.extend(set_aside(system, &kept)?);
        let parent = place::directory_of(&self.bundle);
        system.make_directory(parent).map_err(|error| Halt::unwritable(parent, &error))?;
        whole::replace(system, &self.bundle, bundle)
            .map_err(|error| Halt::unwritable(&self.bundle, &error))?;
        self.remove_plain(system)?;
        Ok(aside)
    }

    /// Replaces the bundle by the same one, encrypted otherwise: the old file or the new one is there, whenever
    /// the run ends. One in plain goes after that.
    pub fn replace(&self, system: &dyn System, sealed: &[u8], before: &[u8]) -> Result<(), Halt> {
        self.prepare(system)?;
        let _lock = self.lock(system)?;
        let kept = self.kept(system).to_owned();
        let now = system.read(&kept, before.len(), Links::Follow);
        if !now.is_ok_and(|contents| contents.bytes.as_slice() == before) {
            return Err(Halt::busy(system, place::directory_of(&kept)));
        }
        whole::replace(system, &self.bundle, sealed)
            .map_err(|error| Halt::unwritable(&self.bundle, &error))?;
        self.remove_plain(system)
    }

    /// Removes a bundle in plain beside the encrypted one.
    pub fn remove_plain(&self, system: &dyn System) -> Result<(), Halt> {
        let Some(plain) = self.plain.as_ref().filter(|plain| is_there(system, plain)) else { return Ok(()) };
        system
            .remove(plain)
            .and_then(|()| system.sync_directory(place::directory_of(plain)))
            .map_err(|error| Halt::unwritable(plain, &error))
    }

    /// Returns the bundle in plain that lies beside the encrypted one.
    pub fn left_plain(&self, system: &dyn System) -> Option<&Path> {
        let plain = self.plain.as_deref()?;
        (is_there(system, &self.bundle) && is_there(system, plain)).then_some(plain)
    }

    /// Keeps other runs of this cluster out until the lock is dropped, and makes the cluster's directory.
    pub fn hold(&self, system: &dyn System) -> Result<Lock, Halt> {
        self.prepare(system)?;
        self.lock(system)
    }

    /// Returns the path of a file that ichor keeps about the cluster.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn lock(&self, system: &dyn System) -> Result<Lock, Halt> {
        match system.lock(&self.directory) {
            Ok(Some(lock)) => Ok(lock),
            Ok(None) => Err(Halt::busy(system, &self.directory)),
            Err(error) => Err(Halt::unwritable(&self.directory, &error)),
        }
    }

    /// Removes what runs that were killed left behind: it may hold secrets. Whoever holds the store already says so.
    pub fn sweep(&self, system: &dyn System, held: Option<&Lock>) -> Result<(), Halt> {
        let lock = match held {
            Some(_) => None,
            None => system.lock(&self.directory).ok().flatten(),
        };
        // Another run that is at work sweeps for itself.
        if held.is_none() && lock.is_none() {
            return Ok(());
        }
        let bundle = self.bundle.file_name().and_then(|name| name.to_str());
        let is_ours = |name: &str| [".gitignore", RECORD, PLAIN].contains(&name) || Some(name) == bundle;
        whole::sweep(system, &self.root, is_ours)?;
        whole::sweep(system, &self.directory, is_ours)?;
        whole::sweep(system, place::directory_of(&self.bundle), |name| Some(name) == bundle)
    }

    /// Stops if there is a bundle, or anything else of its name.
    pub fn refuse_to_write(&self, system: &dyn System) -> Result<(), Halt> {
        for path in self.bundles() {
            match system.exists(path) {
                Ok(false) => {}
                Ok(true) => return Err(self.taken(path)),
                Err(error) => return Err(Halt::unwritable(path, &error)),
            }
        }
        Ok(())
    }

    /// Writes the record, over an older one.
    pub fn write_record(&self, system: &dyn System, contract: Minor) -> Result<Findings, Halt> {
        let findings = self.prepare(system)?;
        let _lock = self.lock(system)?;
        self.put_record(system, contract)?;
        Ok(findings)
    }

    fn remove_record(&self, system: &dyn System) -> Result<(), Halt> {
        match system.remove(&self.record()) {
            Err(error) if !is_absence(&error) => Err(Halt::unwritable(&self.record(), &error)),
            _ => Ok(()),
        }
    }

    fn put_record(&self, system: &dyn System, contract: Minor) -> Result<(), Halt> {
        let path = self.record();
        whole::replace(system, &path, &record_of(contract)).map_err(|error| Halt::unwritable(&path, &error))
    }

    /// Makes the directories, closes those that are ours, and keeps them out of git before there is a secret
    /// in them.
    pub fn prepare(&self, system: &dyn System) -> Result<Findings, Halt> {
        if place::settle(system, &self.home).starts_with(place::settle(system, &self.root)) {
            return Err(Halt::refused(only(holds_inventory(&self.root))));
        }
        system.make_directory(&self.directory).map_err(|error| Halt::unwritable(&self.directory, &error))?;
        close(system, &self.directory)?;
        let ignore = self.root.join(".gitignore");
        let created = match system.exists(&ignore) {
            Ok(true) => Ok(()),
            Ok(false) => whole::create(system, &ignore, IGNORE_ALL),
            Err(error) => Err(error),
        };
        match created {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(Halt::unwritable(&ignore, &error));
            }
            _ => {}
        }
        // A `.gitignore` of somebody else shows that the directory is not ours alone.
        match system.read(&ignore, MAX_RECORD_BYTES, Links::Follow) {
            Ok(contents) if contents.bytes.as_slice() == IGNORE_ALL => {
                close(system, &self.root)?;
                Ok(Findings::new())
            }
            Ok(contents) if ignores(&contents.bytes, &["*"]) => Ok(Findings::new()),
            _ => Ok(only(does_not_ignore(&ignore))),
        }
    }

    /// Whether a `.gitignore` beside the bundle or the inventory names the bundle.
    fn is_ignored(&self, system: &dyn System) -> bool {
        let name = self.bundle.file_name().unwrap_or_default().to_string_lossy();
        let below = self.bundle.strip_prefix(&self.home).unwrap_or(&self.bundle).display().to_string();
        let lines = ["*", &name, &format!("/{name}"), &below, &format!("/{below}")];
        [place::directory_of(&self.bundle), &self.home].iter().any(|directory| {
            let read = system.read(&directory.join(".gitignore"), MAX_RECORD_BYTES, Links::Follow);
            read.is_ok_and(|contents| ignores(&contents.bytes, &lines))
        })
    }

    fn not_ignored(&self) -> Finding {
        let name = self.bundle.file_name().unwrap_or_default().to_string_lossy();
        let ignore = place::directory_of(&self.bundle).join(".gitignore");
        let message = format!("`{}` holds secrets in plain, and may get into git", self.bundle.display());
        Finding::warning(Code::IN_GIT, None, message)
            .because("it lies outside the store, which keeps itself out of git")
            .remedy(format!("add the line `/{name}` to `{}`", ignore.display()))
    }

    fn taken(&self, bundle: &Path) -> Halt {
        let message = format!("the cluster already has secrets: `{}`", bundle.display());
        Halt::refused(only(
            Finding::error(Code::SECRETS_EXIST, None, message)
                .because("machines that run with them accept nothing that is made from others")
                .remedy(format!("go on with them, as in `ichor render`; {}", self.way_to_others())),
        ))
    }

    /// Says how a new cluster of the same name comes to secrets of its own.
    fn way_to_others(&self) -> String {
        // What is removed from the mirror of a bucket is there again with the next look.
        if let Some(address) = self.shared.as_ref().filter(|_| self.is_own()) {
            return format!(
                "for a new cluster of that name write another prefix than `{address}` into the inventory, under \
                 `store`"
            );
        }
        // The record and the generations go with them: they are about the cluster that they are of.
        moved_away(if self.is_own() { &self.directory } else { &self.bundle })
    }
}

/// Says how room is made for a new cluster of the same name.
pub fn moved_away(old: &Path) -> String {
    let mut aside = old.as_os_str().to_owned();
    aside.push(".old");
    let (old, aside) = (place::quoted(old), place::quoted(Path::new(&aside)));
    format!("for a new cluster of that name move the old secrets away first:\n    mv {old} {aside}")
}

/// Returns the contract that is recorded beside a bundle in another store, if there is one.
pub fn recorded_beside(system: &dyn System, bundle: &Path) -> Option<Minor> {
    read_record(system, &place::directory_of(bundle).join(RECORD)).ok().flatten()
}

fn read_record(system: &dyn System, path: &Path) -> Result<Option<Minor>, Box<Finding>> {
    let contents = match system.read(path, MAX_RECORD_BYTES, Links::Follow) {
        Ok(contents) => contents,
        Err(why) if why.is_missing() => return Ok(None),
        Err(Unreadable::Os(error)) => return Err(Box::new(unreadable_record(path, &error))),
        Err(why) => return Err(Box::new(bad_record(path, &why.to_string()))),
    };
    let record: Record = serde_json::from_slice(&contents.bytes)
        .map_err(|error| Box::new(bad_record(path, &wrong_json(&error))))?;
    if record.schema != SCHEMA {
        let why = format!("its schema is {}, and this ichor reads {SCHEMA}", record.schema);
        return Err(Box::new(bad_record(path, &why)));
    }
    let (first, last) = support::talos_range();
    if record.contract < first || record.contract > last {
        let why = format!("contract {} is none of {first} to {last}", record.contract);
        return Err(Box::new(bad_record(path, &why)));
    }
    Ok(Some(record.contract))
}

fn record_of(contract: Minor) -> Vec<u8> {
    let text = serde_json::to_string_pretty(&Record { schema: SCHEMA, contract }).unwrap_or_default();
    (text + "\n").into_bytes()
}

/// Gives a file a second name that nothing has yet, and returns it; nothing, if there is no such file.
fn set_aside(system: &dyn System, path: &Path) -> Result<Option<PathBuf>, Halt> {
    for number in 1..=MAX_ASIDE {
        let mut name = path.as_os_str().to_owned();
        name.push(if number == 1 { ".old".to_owned() } else { format!(".old-{number}") });
        let aside = PathBuf::from(name);
        match system.link(path, &aside) {
            Ok(()) => return Ok(Some(aside)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) if is_absence(&error) => return Ok(None),
            Err(error) => return Err(Halt::unwritable(&aside, &error)),
        }
    }
    Err(Halt::unwritable(path, &std::io::Error::other(format!("{MAX_ASIDE} old ones are beside it"))))
}

/// Closes a directory, if it is open to others.
fn close(system: &dyn System, path: &Path) -> Result<(), Halt> {
    match system.entry(path) {
        Ok(Some(Entry::Directory(open))) if open > Openness::Closed => {
            system.close(path).map_err(|error| Halt::unwritable(path, &error))
        }
        _ => Ok(()),
    }
}

/// Whether one of these lines is in a `.gitignore`, and nothing is taken back after it.
fn ignores(bytes: &[u8], lines: &[&str]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let mut ignored = false;
    for line in text.lines().map(str::trim_end) {
        ignored = (ignored && !line.starts_with('!')) || lines.contains(&line);
    }
    ignored
}

fn does_not_ignore(path: &Path) -> Finding {
    let message = format!("`{}` may let secrets get into git", path.display());
    Finding::warning(Code::IN_GIT, None, message)
        .because("ichor did not write it, and it does not keep out everything in its directory")
        .remedy("make `*` its last line")
}

fn not_a_store(why: &BadAddress) -> Finding {
    Finding::error(Code::STORE_KIND, None, "the store of the inventory cannot be used")
        .because(&why.message)
        .remedy(&why.remedy)
}

fn holds_inventory(root: &Path) -> Finding {
    let message = format!("the store `{}` holds the inventory", root.display());
    Finding::error(Code::STORE_PLACE, None, message)
        .because("the store gets a `.gitignore` that keeps all of it out of git")
        .remedy("give the store a directory of its own: `store: {path: .ichor}`")
}

fn is_there(system: &dyn System, path: &Path) -> bool {
    matches!(system.exists(path), Ok(true))
}

fn not_as_a_whole(path: &Path) -> Finding {
    let message = format!("`{}` cannot be the file of the secrets", path.display());
    Finding::error(Code::ENCRYPTED_BUNDLE, None, message)
        .because("its name says that it is encrypted as a whole, and ichor encrypts value by value")
        .remedy("give it a name such as `secrets.sops.yaml`")
}

/// Says that a file with secrets could not be read.
pub fn unreadable(path: &str, why: &Unreadable, limit: usize) -> Finding {
    let remedy = match why {
        Unreadable::Os(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            format!("give yourself access: `chmod u+r {}`", place::quoted(Path::new(path)))
        }
        Unreadable::TooLarge(_) => {
            format!(
                "name the right file: a bundle has about 12 KiB, and at most {} MiB are read",
                limit >> 20
            )
        }
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

/// A record that is only out of reach is not to be removed.
fn unreadable_record(path: &Path, error: &std::io::Error) -> Finding {
    let remedy = match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            format!("give yourself access:\n    chmod u+r {}", place::quoted(path))
        }
        _ => "see to the file and the disk it is on, then run the same command again".to_owned(),
    };
    Finding::error(Code::BAD_RECORD, None, format!("`{}` cannot be read", path.display()))
        .because(error.to_string())
        .remedy(remedy)
}

fn bad_record(path: &Path, why: &str) -> Finding {
    Finding::error(Code::BAD_RECORD, None, format!("`{}` cannot be used", path.display()))
        .because(why)
        .remedy("restore it from a backup, or set `cluster.contract` in the inventory and remove the file")
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    #[test]
    fn a_record_out_of_reach_is_not_to_be_removed() {
        for kind in [ErrorKind::PermissionDenied, ErrorKind::TimedOut] {
            let finding = unreadable_record(Path::new("my lab/cluster.json"), &kind.into());
            let remedy = finding.remedy.expect("a remedy");
            assert!(!remedy.contains("remove"), "{remedy}");
            assert_eq!(
                remedy.contains("chmod u+r 'my lab/cluster.json'"),
                kind == ErrorKind::PermissionDenied
            );
        }
    }
}
