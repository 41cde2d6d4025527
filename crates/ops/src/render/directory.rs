//! What is in a directory already, and writing to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
};

use ichor_model::{Code, Finding, Findings};

use super::{
    File, Request,
    list::{self, List, digest},
};
use crate::{
    Halt, Site, System,
    halt::only,
    system::{Links, Unreadable},
    whole,
};

/// Largest file that is compared; a longer one is nobody's that ichor wrote.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// What a file is in relation to what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// There was none.
    New,
    /// One of ours had other content, or was open to others.
    Changed,
    /// Somebody else's was written over, as asked.
    Overwritten,
    /// It is there as it should be.
    Unchanged,
}

impl State {
    /// Returns the word shown to people and programs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Changed => "changed",
            Self::Overwritten => "overwritten",
            Self::Unchanged => "unchanged",
        }
    }
}

/// What is there.
#[derive(Debug)]
pub struct Seen {
    /// The state of each file, in the order of the files.
    pub states: Vec<State>,
    list: List,
}

/// Looks at what is there. Files of others stop everything, all of them at once, unless they may be written
/// over.
pub fn look(
    system: &dyn System,
    site: Site<'_>,
    request: Request<'_>,
    files: &[File],
) -> Result<(Seen, Findings), Halt> {
    let directory = request.directory;
    refuse_home(system, site, directory)?;
    let list = List::read(system, directory).map_err(|why| unusable(&directory.join(list::NAME), &why))?;
    let mut states = Vec::with_capacity(files.len());
    let mut in_the_way = Findings::new();
    for file in files {
        match state_of(system, directory, file, &list, request.overwrite) {
            Ok(state) => states.push(state),
            Err(finding) => in_the_way.push(*finding),
        }
    }
    if in_the_way.has_errors() {
        return Err(Halt::refused(in_the_way));
    }
    let left_over = left_over(system, directory, files, &list);
    Ok((Seen { states, list }, left_over))
}

fn state_of(
    system: &dyn System,
    directory: &Path,
    file: &File,
    list: &List,
    overwrite: bool,
) -> Result<State, Box<Finding>> {
    let path = directory.join(&file.path);
    let wanted = file.content.expose().as_bytes();
    match system.read(&path, MAX_BYTES, Links::Refuse) {
        Err(why) if why.is_missing() => Ok(State::New),
        Err(Unreadable::NotAFile("a directory")) => {
            let message = format!("`{}` is a directory, and a file is to be written there", path.display());
            let finding = Finding::error(Code::NOT_OURS, None, message);
            Err(Box::new(finding.remedy("move it away, or name another directory")))
        }
        Ok(contents) if contents.bytes.as_slice() == wanted => {
            Ok(if contents.open_to_others { State::Changed } else { State::Unchanged })
        }
        Ok(contents) if list.has(&file.path, &contents.bytes) => Ok(State::Changed),
        _ if overwrite => Ok(State::Overwritten),
        Ok(_) if list.files.contains_key(&file.path) => not_ours(&path, "it was changed by hand"),
        Ok(_) => not_ours(&path, "ichor did not write it"),
        Err(why) => not_ours(&path, &why.to_string()),
    }
}

fn not_ours<T>(path: &Path, why: &str) -> Result<T, Box<Finding>> {
    let message = format!("`{}` would be written over", path.display());
    let finding = Finding::error(Code::NOT_OURS, None, message).because(why);
    Err(Box::new(finding.remedy("move it away, render to another directory, or add `--overwrite`")))
}

/// The directory gets a `.gitignore` of its own, which would hide the inventory.
fn refuse_home(system: &dyn System, site: Site<'_>, directory: &Path) -> Result<(), Halt> {
    let (Ok(home), Ok(there)) = (system.canonical(home_of(site)), system.canonical(directory)) else {
        return Ok(());
    };
    if site.files.is_empty() || home != there {
        return Ok(());
    }
    let finding = Finding::error(Code::RENDER_PLACE, None, "files are not rendered beside the inventory")
        .because("the directory gets a `.gitignore` that keeps all of it out of git")
        .remedy("name a directory of its own:\n    ichor render rendered");
    Err(Halt::refused(only(finding)))
}

fn home_of(site: Site<'_>) -> &Path {
    if site.directory.as_os_str().is_empty() { Path::new(".") } else { site.directory }
}

fn unusable(path: &Path, why: &Unreadable) -> Halt {
    let finding = Finding::error(Code::UNREADABLE, None, format!("`{}` cannot be read", path.display()))
        .because(why.to_string())
        .remedy("see to the file, or name another directory");
    Halt::invalid(only(finding))
}

/// Names files that an earlier run wrote and nobody needs now.
fn left_over(system: &dyn System, directory: &Path, files: &[File], list: &List) -> Findings {
    let needed: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let unneeded = list.files.keys().filter(|path| !needed.contains(path.as_str()));
    let there = unneeded.filter(|path| is_there(system, directory, path));
    let findings = there.map(|path| {
        let path = directory.join(path);
        let path = path.display();
        Finding::warning(Code::LEFT_OVER, None, format!("`{path}` is left over"))
            .because("the inventory has no use for it any more, and it may hold secrets")
            .remedy(format!("remove it:\n    rm {path}"))
    });
    findings.collect()
}

/// Whether a file of the list is there. The list lies in a directory that others may write to, so a path
/// that leads out of it is not looked at.
fn is_there(system: &dyn System, directory: &Path, path: &str) -> bool {
    let stays = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    stays && system.exists(&directory.join(path)).unwrap_or(false)
}

/// Writes what has to be written.
pub fn carry_out(system: &dyn System, directory: &Path, files: &[File], seen: &Seen) -> Result<(), Halt> {
    let pairs = files.iter().zip(&seen.states);
    let to_write: Vec<&File> =
        pairs.filter(|(_, state)| **state != State::Unchanged).map(|(file, _)| file).collect();
    let done = finished(system, directory, files, &seen.list);
    if to_write.is_empty() && done == seen.list {
        return Ok(());
    }
    let directories = directories_of(directory, files);
    for path in &directories {
        system.make_directory(path).map_err(|error| Halt::unwritable(path, &error))?;
    }
    write_list(system, directory, &both(&done, &seen.list))?;
    for file in to_write {
        let path = directory.join(&file.path);
        whole::put(system, &path, file.content.expose().as_bytes())
            .map_err(|error| Halt::unwritable(&path, &error))?;
    }
    // The list may forget the old files only once the new ones are on disk.
    for path in &directories {
        system.sync_directory(path).map_err(|error| Halt::unwritable(path, &error))?;
    }
    write_list(system, directory, &done)
}

fn directories_of(directory: &Path, files: &[File]) -> BTreeSet<PathBuf> {
    let paths = files.iter().map(|file| directory.join(&file.path));
    paths.filter_map(|path| path.parent().map(Path::to_owned)).collect()
}

fn write_list(system: &dyn System, directory: &Path, list: &List) -> Result<(), Halt> {
    let path = directory.join(list::NAME);
    whole::replace(system, &path, list.text().as_bytes()).map_err(|error| Halt::unwritable(&path, &error))
}

/// Returns the list as it is in the end. What is left over stays on it as long as it is there: it is ours.
fn finished(system: &dyn System, directory: &Path, files: &[File], before: &List) -> List {
    let left = before.files.iter().filter(|(path, _)| is_there(system, directory, path));
    let mut all: BTreeMap<String, BTreeSet<String>> =
        left.map(|(path, digests)| (path.clone(), digests.clone())).collect();
    for file in files {
        let digest = digest(file.content.expose().as_bytes());
        all.insert(file.path.clone(), BTreeSet::from([digest]));
    }
    List::of(all)
}

/// Joins two lists: while files are written, each may be the old or the new one.
fn both(new: &List, old: &List) -> List {
    let mut joined = new.clone();
    for (path, digests) in &old.files {
        joined.files.entry(path.clone()).or_default().extend(digests.iter().cloned());
    }
    joined
}
