//! `ichor secrets edit`: changes an encrypted file in an editor.
//!
//! 1. [`Holding::read`]: the file, or none yet;
//! 2. `Workplace`: a directory for its owner alone, in memory where there is one, with the plain text in it;
//! 3. the editor;
//! 4. the text is read back, and everything in the directory goes, however it went;
//! 5. [`Holding::write`]: what has changed, encrypted; what has not keeps its encrypted text.

use std::path::{Path, PathBuf};

use ichor_model::{Code, Finding};
use ichor_sops::{Format, Opened, Tree, seal};
use ichor_spec::Sources;
use zeroize::Zeroizing;

use super::subject::{Change, Changed, Holding, Subject, changed};
use crate::{
    Halt, Site, System, bundle,
    halt::only,
    keyring::{Keyring, variable},
    masked,
    recipients::{self, Chosen},
    sealing,
    store::Store,
    system::{Entry, Links, Lock, Openness},
};

const PREFIX: &str = "ichor-edit-";
/// Most names that are removed from a workplace; editors leave a few.
const MAX_NAMES: usize = 1000;
/// What a new file begins with.
const TEMPLATE: &str = "# Values that the inventory refers to, as in `{sops: FILE#proxmox.token}`:\n#proxmox:\n#    token: ichor@pve!ichor=...\n";

/// Edits a file with an editor, which returns once it is done, or says why it cannot be.
pub fn edit(
    system: &dyn System,
    site: Site<'_>,
    subject: Subject<'_>,
    sources: &mut Sources,
    editor: &mut dyn FnMut(&Path) -> Result<(), String>,
) -> Result<Changed, Halt> {
    let holding = Holding::read(system, site, subject)?;
    let mut ring = Keyring::load(system);
    let start = match &holding.before {
        Some(_) => Start::File(holding.open(&ring)?),
        None => Start::Nothing(recipients::choose(system, site, &holding.path, &mut ring)?),
    };
    let plain = match &start {
        Start::File(opened) => opened.plain().to_text(holding.format()),
        Start::Nothing(_) if holding.format() == Format::Json => Zeroizing::new("{}\n".to_owned()),
        Start::Nothing(_) => Zeroizing::new(TEMPLATE.to_owned()),
    };
    let text = edited(system, site, &holding.path, &plain, editor)?;
    if text.as_slice() == plain.as_bytes() {
        return match &start {
            Start::File(opened) => Ok(changed(holding.path.clone(), opened.sealed(), Change::Nothing)),
            Start::Nothing(_) => Err(Halt::refused(only(rejected(&holding, "nothing was written")))),
        };
    }
    let tree = Tree::parse(&text, holding.format()).map_err(|flaw| {
        let line = flaw.line.map(|line| format!(" (line {line})")).unwrap_or_default();
        let why = format!("what was edited {}{line}", flaw.problem.message);
        Halt::invalid(only(rejected(&holding, &why).remedy("edit it again")))
    })?;
    if holding.is_bundle() {
        let source = masked::add(sources, holding.shown(), &text);
        bundle::check(&text, sources, source).map_err(Halt::invalid)?;
    }
    let now = system.now().to_string();
    let sealed = sealing::drawing(system, &holding.shown(), |entropy| match &start {
        Start::File(opened) => opened.reseal(&tree, &now, entropy),
        Start::Nothing(chosen) => seal(&tree, holding.format(), &chosen.policy, &now, entropy),
    })?;
    let path = holding.write(system, &sealed)?;
    let made = match start {
        Start::File(_) => None,
        Start::Nothing(chosen) => chosen.made,
    };
    Ok(Changed { made, ..changed(path, &sealed, Change::Edited) })
}

/// What an edit begins with.
enum Start {
    /// A file that was opened.
    File(Opened),
    /// No file, and whom a new one will be for.
    Nothing(Chosen),
}

fn rejected(holding: &Holding<'_>, why: &str) -> Finding {
    Finding::error(Code::EDITED, None, format!("`{}` is as it was", holding.shown())).because(why)
}

/// Gives a text to an editor, and returns what came of it.
fn edited(
    system: &dyn System,
    site: Site<'_>,
    path: &Path,
    plain: &str,
    editor: &mut dyn FnMut(&Path) -> Result<(), String>,
) -> Result<Zeroizing<Vec<u8>>, Halt> {
    let base = base(system, site)?;
    sweep(system, &base);
    let workplace = Workplace::open(system, &base)?;
    // The name stays, so that editors know what is in the file.
    let file = workplace.directory.join(path.file_name().unwrap_or_default());
    system.write_new(&file, plain.as_bytes()).map_err(|error| Halt::unwritable(&file, &error))?;
    let failed = |why: String| {
        let finding = Finding::error(Code::EDITED, None, format!("`{}` is as it was", path.display()));
        Halt::failed(only(
            finding.because(why).remedy("name an editor in `EDITOR`, and run the command again"),
        ))
    };
    editor(&file).map_err(failed)?;
    let contents = system.read(&file, ichor_sops::MAX_BYTES, Links::Refuse);
    contents
        .map(|contents| contents.bytes)
        .map_err(|why| failed(format!("the edited file cannot be read: {why}")))
}

/// Returns where a workplace is made: in memory for as long as the user is logged in, or else in the store.
fn base(system: &dyn System, site: Site<'_>) -> Result<PathBuf, Halt> {
    let is_closed =
        |path: &PathBuf| matches!(system.entry(path), Ok(Some(Entry::Directory(Openness::Closed))));
    let runtime = variable(system, "XDG_RUNTIME_DIR").map(|text| PathBuf::from(text.as_str()));
    if let Some(runtime) = runtime.filter(is_closed) {
        return Ok(runtime);
    }
    let store = Store::of(site).map_err(|finding| Halt::invalid(only(*finding)))?;
    drop(store.hold(system)?);
    Ok(store.directory().to_owned())
}

/// A directory for plain text. It goes with everything in it when it is dropped.
struct Workplace<'a> {
    system: &'a dyn System,
    directory: PathBuf,
    /// Tells other runs that somebody is at work here.
    _lock: Option<Lock>,
}

impl<'a> Workplace<'a> {
    fn open(system: &'a dyn System, base: &Path) -> Result<Self, Halt> {
        let mut number = [0; 8];
        system.random(&mut number).map_err(|error| Halt::unwritable(base, &error))?;
        let directory = base.join(format!("{PREFIX}{:016x}", u64::from_le_bytes(number)));
        system.make_directory(&directory).map_err(|error| Halt::unwritable(&directory, &error))?;
        let lock = system.lock(&directory).ok().flatten();
        Ok(Self { system, directory, _lock: lock })
    }
}

impl Drop for Workplace<'_> {
    fn drop(&mut self) {
        clear(self.system, &self.directory);
    }
}

/// Removes a directory and the files in it. There is nobody to tell if something stays, and the next run tries again.
fn clear(system: &dyn System, directory: &Path) {
    for name in system.names(directory, MAX_NAMES).unwrap_or_default() {
        let _ = system.remove(&directory.join(name));
    }
    let _ = system.remove_directory(directory);
}

/// Removes what runs that were killed left behind.
fn sweep(system: &dyn System, base: &Path) {
    for name in system.names(base, MAX_NAMES).unwrap_or_default() {
        if name.to_str().is_some_and(|name| name.starts_with(PREFIX)) {
            let directory = base.join(name);
            if let Ok(Some(_lock)) = system.lock(&directory) {
                clear(system, &directory);
            }
        }
    }
}
