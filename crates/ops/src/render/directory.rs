//! What is in a directory already, and writing to it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
};

use ichor_model::{Code, Finding, Findings};

use super::{
    File, Request,
    list::{self, List, Listed, Owner, digest},
};
use crate::{
    Halt, Site, System,
    halt::only,
    place::{self, Guard},
    system::{Entry, Links, NotAFile, Openness, Unreadable},
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
    /// The list as it was found; absent when there was none that can be used.
    list: Option<List>,
    /// Whether the directory is ichor's alone: it has our list, or nothing at all.
    is_ours: bool,
}

/// What is asked of a directory.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The cluster.
    pub owner: &'a Owner,
    /// Its files.
    pub files: &'a [File],
    /// What was asked for.
    pub request: Request<'a>,
}

/// Looks at what is there. Files of others stop everything, all of them at once, unless they may be written
/// over; what nobody can make again stops it in any case.
pub fn look(system: &dyn System, site: Site<'_>, wanted: Wanted<'_>) -> Result<(Seen, Findings), Halt> {
    let Request { directory, secrets, overwrite } = wanted.request;
    let guard = Guard::new(system, site, None);
    guard.check_directory(system, directory).map_err(|finding| Halt::refused(only(*finding)))?;
    let given = secrets.map(|path| place::settle(system, path));
    let mut in_the_way = Findings::new();
    let listed = List::read(system, directory);
    in_the_way.extend(other_owner(directory, &listed, wanted));
    let list = match listed {
        Listed::List(list) => Some(list),
        Listed::Nothing | Listed::Foreign(_) => None,
    };
    let is_empty = system.names(directory, 1).map_or(true, |names| names.is_empty());
    let is_ours = list.is_some() || is_empty;
    let open = openness(system, directory);
    if open == Openness::Writable && !is_ours && !overwrite {
        in_the_way.push(open_to_all(directory));
    }
    in_the_way.extend(not_directories(system, directory, wanted.files));
    let mut states = Vec::with_capacity(wanted.files.len());
    for file in wanted.files {
        let path = directory.join(&file.path);
        let state = guard
            .check_file(system, &path)
            .and_then(|()| state_of(system, &path, file, list.as_ref(), overwrite))
            .and_then(|state| match &given {
                Some(given) if state != State::Unchanged && *given == place::settle_file(system, &path) => {
                    Err(Box::new(is_given(&path)))
                }
                _ => Ok(state),
            });
        match state {
            Ok(state) => states.push(state),
            Err(finding) => in_the_way.push(*finding),
        }
    }
    if in_the_way.has_errors() {
        return Err(Halt::refused(in_the_way));
    }
    let mut notes =
        list.as_ref().map_or_else(Findings::new, |list| left_over(system, directory, wanted.files, list));
    if open > Openness::Closed && !is_ours {
        notes.push(stays_open(directory));
    }
    Ok((Seen { states, list, is_ours }, notes))
}

/// Returns who else may enter a directory, wherever its name leads. One that is not there is closed.
fn openness(system: &dyn System, directory: &Path) -> Openness {
    match system.entry(&place::settle(system, directory)) {
        Ok(Some(Entry::Directory(open))) => open,
        _ => Openness::Closed,
    }
}

fn open_to_all(directory: &Path) -> Finding {
    let message = format!("others can write to `{}`", directory.display());
    Finding::error(Code::RENDER_PLACE, None, message)
        .because("they could put files of their own in the place of these")
        .remedy("name a directory of its own, which ichor makes and closes, or add `--overwrite`")
}

fn stays_open(directory: &Path) -> Finding {
    Finding::warning(Code::OPEN_SECRETS, None, format!("others can look into `{}`", directory.display()))
        .because("it holds other files too, so ichor does not close it; its own files are closed")
        .remedy(format!("close it if it is yours:\n    chmod 700 {}", place::quoted(directory)))
}

/// Finds a list that is not ichor's, or that of another cluster.
fn other_owner(directory: &Path, listed: &Listed, wanted: Wanted<'_>) -> Findings {
    if wanted.request.overwrite {
        return Findings::new();
    }
    let finding = match listed {
        Listed::List(list) if list.owner == *wanted.owner => return Findings::new(),
        Listed::Nothing => return Findings::new(),
        Listed::List(list) => {
            let Owner { cluster, .. } = &list.owner;
            let shown = ichor_spec::yaml::show(cluster);
            let message = format!("`{}` holds the files of cluster `{shown}`", directory.display());
            let finding = Finding::error(Code::NOT_OURS, None, message);
            if *cluster == wanted.owner.cluster {
                finding.because("it has the same name and other secrets")
            } else {
                finding
            }
        }
        Listed::Foreign(why) => {
            let path = directory.join(list::NAME);
            let message = format!("`{}` would be written over", path.display());
            Finding::error(Code::NOT_OURS, None, message).because(why)
        }
    };
    only(finding.remedy("render to another directory, or add `--overwrite`"))
}

/// Finds links and files where directories are to be. A link could lead anywhere, so it is not followed.
fn not_directories(system: &dyn System, directory: &Path, files: &[File]) -> Findings {
    let mut findings = Findings::new();
    for path in directories_of(directory, files).iter().filter(|path| *path != directory) {
        let what = match system.entry(path) {
            Ok(None | Some(Entry::Directory(_))) => continue,
            Ok(Some(Entry::Link)) => "it is a symbolic link, which is not followed".to_owned(),
            Ok(Some(Entry::Other)) => "it is a file".to_owned(),
            Err(error) => error.to_string(),
        };
        let message = format!("`{}` is not a directory, and files are to be written to it", path.display());
        let finding = Finding::error(Code::NOT_OURS, None, message).because(what);
        findings.push(finding.remedy("move it away, or render to another directory"));
    }
    findings
}

fn is_given(path: &Path) -> Finding {
    Finding::error(Code::KEPT_FILE, None, format!("`{}` would be written over", path.display()))
        .because("it is the secrets that were given")
        .remedy("render to another directory")
}

fn state_of(
    system: &dyn System,
    path: &Path,
    file: &File,
    list: Option<&List>,
    overwrite: bool,
) -> Result<State, Box<Finding>> {
    let wanted = file.content.expose().as_bytes();
    match system.read(path, MAX_BYTES, Links::Refuse) {
        Err(why) if why.is_missing() => Ok(State::New),
        Err(Unreadable::NotAFile(NotAFile::Directory)) => {
            let message = format!("`{}` is a directory, and a file is to be written there", path.display());
            let finding = Finding::error(Code::NOT_OURS, None, message);
            Err(Box::new(finding.remedy("move it away, or name another directory")))
        }
        Ok(contents) if contents.bytes.as_slice() == wanted => {
            Ok(if contents.open_to_others { State::Changed } else { State::Unchanged })
        }
        Ok(contents) if list.is_some_and(|list| list.has(&file.path, &contents.bytes)) => Ok(State::Changed),
        _ if overwrite => Ok(State::Overwritten),
        Ok(_) if list.is_some_and(|list| list.files.contains_key(&file.path)) => {
            not_ours(path, "it was changed by hand")
        }
        Ok(_) => not_ours(path, "ichor did not write it"),
        Err(why) => not_ours(path, &why.to_string()),
    }
}

fn not_ours<T>(path: &Path, why: &str) -> Result<T, Box<Finding>> {
    let message = format!("`{}` would be written over", path.display());
    let finding = Finding::error(Code::NOT_OURS, None, message).because(why);
    Err(Box::new(finding.remedy("move it away, render to another directory, or add `--overwrite`")))
}

/// Names files that an earlier run wrote and nobody needs now.
fn left_over(system: &dyn System, directory: &Path, files: &[File], list: &List) -> Findings {
    let needed: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let unneeded = list.files.keys().filter(|path| !needed.contains(path.as_str()));
    let there = unneeded.filter(|path| is_there(system, directory, path));
    let findings = there.map(|path| {
        let path = directory.join(path);
        Finding::warning(Code::LEFT_OVER, None, format!("`{}` is left over", path.display()))
            .because("the inventory has no use for it any more, and it may hold secrets")
            .remedy(format!("remove it:\n    rm {}", place::quoted(&path)))
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
pub fn carry_out(system: &dyn System, wanted: Wanted<'_>, seen: &Seen) -> Result<(), Halt> {
    let Wanted { files, owner, request: Request { directory, .. } } = wanted;
    let pairs = files.iter().zip(&seen.states);
    let to_write: Vec<&File> =
        pairs.filter(|(_, state)| **state != State::Unchanged).map(|(file, _)| file).collect();
    let done = finished(system, directory, owner, files, seen.list.as_ref());
    let directories = directories_of(directory, files);
    let is_done = to_write.is_empty() && Some(&done) == seen.list.as_ref();
    if !is_done {
        for path in &directories {
            system.make_directory(path).map_err(|error| Halt::unwritable(path, &error))?;
        }
    }
    let _lock = match system.lock(directory) {
        Ok(Some(lock)) => lock,
        Ok(None) => return Err(Halt::busy(system, directory)),
        Err(error) => return Err(Halt::unwritable(directory, &error)),
    };
    tidy(system, directory, &directories, files, seen.is_ours)?;
    if is_done {
        return Ok(());
    }
    // Whoever has written since the look had other reasons, which were not looked at.
    match (List::read(system, directory), &seen.list) {
        (Listed::List(now), Some(before)) if now == *before => {}
        (Listed::Nothing | Listed::Foreign(_), None) => {}
        _ => return Err(Halt::busy(system, directory)),
    }
    write_list(system, directory, &both(&done, seen.list.as_ref()))?;
    let all = to_write.len();
    for (written, file) in to_write.iter().enumerate() {
        let path = directory.join(&file.path);
        whole::put(system, &path, file.content.expose().as_bytes())
            .map_err(|error| Halt::part_way(&path, &error, written, all))?;
    }
    // The list may forget the old files only once the new ones are on disk.
    for path in &directories {
        system.sync_directory(path).map_err(|error| Halt::part_way(path, &error, all, all))?;
    }
    let path = directory.join(list::NAME);
    whole::replace(system, &path, done.text().as_bytes())
        .map_err(|error| Halt::part_way(&path, &error, all, all))
}

/// Removes what runs that were killed left behind, and closes the directories that are ours.
fn tidy(
    system: &dyn System,
    directory: &Path,
    directories: &BTreeSet<PathBuf>,
    files: &[File],
    is_ours: bool,
) -> Result<(), Halt> {
    let mut names: BTreeMap<PathBuf, BTreeSet<&str>> = BTreeMap::new();
    for file in files {
        let (above, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
        names.entry(directory.join(above)).or_default().insert(name);
    }
    for path in directories {
        let here = *path == *directory;
        let is_stray_of = |name: &str| {
            (here && name == list::NAME) || names.get(path).is_some_and(|names| names.contains(name))
        };
        whole::sweep(system, path, is_stray_of)?;
        let open = openness(system, path);
        if open > Openness::Closed && (is_ours || !here) {
            system.close(path).map_err(|error| Halt::unwritable(path, &error))?;
        }
    }
    Ok(())
}

/// Returns the directory and every one below it that files lie in.
fn directories_of(directory: &Path, files: &[File]) -> BTreeSet<PathBuf> {
    let above = files.iter().flat_map(|file| Path::new(&file.path).ancestors().skip(1));
    above
        .map(|below| if below.as_os_str().is_empty() { directory.to_owned() } else { directory.join(below) })
        .collect()
}

fn write_list(system: &dyn System, directory: &Path, list: &List) -> Result<(), Halt> {
    let path = directory.join(list::NAME);
    whole::replace(system, &path, list.text().as_bytes()).map_err(|error| Halt::unwritable(&path, &error))
}

/// Returns the list as it is in the end. What is left over stays on it as long as it is there: it is ours.
fn finished(
    system: &dyn System,
    directory: &Path,
    owner: &Owner,
    files: &[File],
    before: Option<&List>,
) -> List {
    let listed = before.into_iter().flat_map(|list| &list.files);
    let left = listed.filter(|(path, _)| is_there(system, directory, path));
    let mut all: BTreeMap<String, BTreeSet<String>> =
        left.map(|(path, digests)| (path.clone(), digests.clone())).collect();
    for file in files {
        let digest = digest(file.content.expose().as_bytes());
        all.insert(file.path.clone(), BTreeSet::from([digest]));
    }
    List::of(owner.clone(), all)
}

/// Joins two lists: while files are written, each may be the old or the new one.
fn both(new: &List, old: Option<&List>) -> List {
    let mut joined = new.clone();
    for (path, digests) in old.into_iter().flat_map(|list| &list.files) {
        joined.files.entry(path.clone()).or_default().extend(digests.iter().cloned());
    }
    joined
}
