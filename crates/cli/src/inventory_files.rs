//! The files of inventories: which they are, and what is in them.
//!
//! 1. [`locate`] follows the rules of names: which files make up which inventory;
//! 2. [`find`] reads each of them once, within limits, and reports those that cannot be read.
//!
//! This is the only place that opens inventory files.

mod locate;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use ichor_model::{Code, Finding, Findings, SourceId, Span};
use ichor_ops::place::quoted;
use ichor_spec::{Layers, Sources, yaml};

use self::locate::FileSet;
use crate::files::{self, Unreadable};

/// Most bytes that all files together may have. A hundred clusters need a hundredth of it.
const MAX_TOTAL_BYTES: usize = 64 * 1024 * 1024;

/// Everything that was found under a path.
#[derive(Debug, Default)]
pub struct Found {
    /// The files, for findings to point into.
    pub sources: Sources,
    /// The inventories, in the order of their names.
    pub inventories: Vec<InventoryFiles>,
    /// What is wrong with the path itself.
    pub findings: Findings,
}

/// The files of one inventory.
#[derive(Debug)]
pub struct InventoryFiles {
    /// The files, weakest first.
    pub layers: Layers,
    /// Their names as they are shown, weakest first.
    pub names: Vec<String>,
    /// Their paths, weakest first; none on standard input.
    pub paths: Vec<PathBuf>,
    /// The directory that paths in the inventory are relative to.
    pub directory: PathBuf,
    /// Why files could not be read. Unless this is empty, the inventory is not whole.
    pub findings: Findings,
}

/// The path that stands for standard input, and how that is shown.
const STDIN: (&str, &str) = ("-", "<stdin>");

/// Finds and reads the inventories under a path; without one, those of the current directory. `-`
/// is one inventory on standard input, which nothing lies below.
pub fn find(path: Option<&Path>) -> Found {
    if path == Some(Path::new(STDIN.0)) {
        let mut shelf = Shelf::default();
        let inventories = vec![shelf.take_stdin(std::io::stdin().lock())];
        return Found { sources: shelf.sources, inventories, findings: Findings::new() };
    }
    match locate::locate(path) {
        Ok(sets) => {
            let mut shelf = Shelf::default();
            let inventories = sets.iter().map(|set| shelf.take(set)).collect();
            Found { sources: shelf.sources, inventories, findings: Findings::new() }
        }
        Err(finding) => Found { findings: Findings::from_iter([*finding]), ..Found::default() },
    }
}

/// Files that were read, each once.
#[derive(Debug, Default)]
struct Shelf {
    sources: Sources,
    known: BTreeMap<PathBuf, Known>,
    bytes: usize,
}

#[derive(Debug, Clone)]
struct Known {
    source: SourceId,
    problem: Option<Finding>,
}

impl Shelf {
    fn take(&mut self, set: &FileSet) -> InventoryFiles {
        let mut findings = Findings::new();
        let mut read = |path: &PathBuf| {
            let known = self.read_once(path);
            known.problem.into_iter().for_each(|problem| findings.push(problem));
            known.source
        };
        let layers = Layers {
            defaults: set.defaults.iter().map(&mut read).collect(),
            files: set.files.iter().map(&mut read).collect(),
        };
        let paths: Vec<PathBuf> = set.defaults.iter().chain(&set.files).cloned().collect();
        let names = paths.iter().map(|path| shown(path)).collect();
        let directory = set.files.first().and_then(|file| file.parent()).unwrap_or(Path::new("")).to_owned();
        InventoryFiles { layers, names, paths, directory, findings }
    }

    fn take_stdin(&mut self, stdin: impl std::io::Read) -> InventoryFiles {
        let (bytes, unreadable) = match files::read_stream(stdin, yaml::MAX_BYTES) {
            Ok(bytes) => (bytes, None),
            Err(unreadable) => (Vec::new(), Some(unreadable)),
        };
        let source = self.sources.add(STDIN.1, bytes);
        let problem = unreadable.map(|why| describe(Path::new(STDIN.1), source, yaml::MAX_BYTES, &why));
        InventoryFiles {
            layers: Layers { defaults: Vec::new(), files: vec![source] },
            names: vec![STDIN.1.to_owned()],
            paths: Vec::new(),
            directory: PathBuf::new(),
            findings: problem.into_iter().collect(),
        }
    }

    /// Two names of one file are one file: what is wrong with it is said once.
    fn read_once(&mut self, path: &Path) -> Known {
        let key = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let room = MAX_TOTAL_BYTES - self.bytes;
        let (bytes, unreadable) = match files::read_bounded(path, room.min(yaml::MAX_BYTES)) {
            Ok(bytes) => (bytes, None),
            Err(unreadable) => (Vec::new(), Some(unreadable)),
        };
        self.bytes += bytes.len();
        let source = self.sources.add(shown(path), bytes);
        let problem = unreadable.map(|why| describe(path, source, room, &why));
        let known = Known { source, problem };
        self.known.insert(key, known.clone());
        known
    }
}

fn describe(path: &Path, source: SourceId, room: usize, why: &Unreadable) -> Finding {
    let at = Span { source, start: 0, end: 0 };
    match why {
        Unreadable::TooLarge(bytes) if room < yaml::MAX_BYTES => {
            let message = format!("the inventories together have more than {MAX_TOTAL_BYTES} bytes");
            Finding::error(Code::TOO_LARGE, at, message)
                .because(format!("this file of {bytes} bytes was not read"))
                .remedy("name one cluster's inventory with `-f PATH`")
        }
        Unreadable::TooLarge(bytes) => yaml::too_large(source, usize::try_from(*bytes).unwrap_or(usize::MAX)),
        why => unreadable(path, Some(at), why),
    }
}

/// Says that a file cannot be read.
fn unreadable(path: &Path, at: Option<Span>, why: &Unreadable) -> Finding {
    let remedy = match why {
        Unreadable::NotAFile(_) => "write the inventory to a file, and name that".to_owned(),
        Unreadable::Os(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            format!("give yourself access: `chmod u+r {}`", quoted(path))
        }
        why if why.is_missing() => "check the path".to_owned(),
        _ => "check the file and the disk it is on".to_owned(),
    };
    Finding::error(Code::UNREADABLE, at, format!("`{}` cannot be read", shown(path)))
        .because(why.to_string())
        .remedy(remedy)
}

/// Shows a path as it was written.
fn shown(path: &Path) -> String {
    path.display().to_string()
}
