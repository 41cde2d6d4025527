//! Which files make up which inventory.
//!
//! - An inventory is one file, or a directory of its own with `ichor.yaml` or `cluster.yaml`; a
//!   `nodes.yaml` beside one of those two belongs to it.
//! - A directory without those two is a tree of clusters: its YAML files, and those of its
//!   subdirectories that are inventories.
//! - `defaults.yaml` beside an inventory lies below it, and so does the one in the directory above
//!   when the inventory has a directory of its own. So an inventory means the same whether it is
//!   named alone or found in its tree.

use std::{
    fs,
    path::{Component, Path, PathBuf},
};

use ichor_model::{Code, Finding, name::natural};

use super::{shown, unreadable};
use crate::files::{Unreadable, is_absence};

/// Names of the first file of an inventory that has a directory of its own, in the order in which
/// they are looked for.
const MAIN_FILES: [&str; 2] = ["ichor.yaml", "cluster.yaml"];
const NODES_FILE: &str = "nodes.yaml";
const DEFAULTS_FILE: &str = "defaults.yaml";
/// Most inventories in a tree: above what anyone runs, below what a mistaken `-f /` would find.
const MAX_INVENTORIES: usize = 1000;

/// The paths of one inventory.
#[derive(Debug, PartialEq, Eq)]
pub struct FileSet {
    /// Shared defaults, the outermost first.
    pub defaults: Vec<PathBuf>,
    /// The inventory's own files.
    pub files: Vec<PathBuf>,
}

/// Finds the inventories that a path stands for; without one, those of the current directory.
pub fn locate(path: Option<&Path>) -> Result<Vec<FileSet>, Box<Finding>> {
    let Some(path) = path else {
        return match main_file(Path::new("")) {
            Some(file) => Ok(vec![FileSet::of(file)]),
            None => Err(Box::new(nothing_here())),
        };
    };
    let metadata = fs::metadata(path).map_err(|error| unreadable(path, None, &Unreadable::Os(error)))?;
    if !metadata.is_dir() {
        return Ok(vec![FileSet::of(path.to_owned())]);
    }
    match main_file(path) {
        Some(file) => Ok(vec![FileSet::of(file)]),
        None => locate_in_tree(path),
    }
}

impl FileSet {
    fn of(file: PathBuf) -> Self {
        let directory = file.parent().unwrap_or(Path::new("")).to_owned();
        let owns_directory = is_named(&file, &MAIN_FILES);
        let above = above(&directory).filter(|_| owns_directory);
        let defaults = above
            .into_iter()
            .chain([directory.clone()])
            .map(|directory| directory.join(DEFAULTS_FILE))
            .filter(|path| *path != file && exists(path))
            .collect();
        let nodes = Some(directory.join(NODES_FILE)).filter(|path| owns_directory && exists(path));
        Self { defaults, files: [file].into_iter().chain(nodes).collect() }
    }
}

fn locate_in_tree(directory: &Path) -> Result<Vec<FileSet>, Box<Finding>> {
    let mut files = Vec::new();
    let cannot = |error| unreadable(directory, None, &Unreadable::Os(error));
    for entry in fs::read_dir(directory).map_err(cannot)? {
        files.extend(inventory_at(&entry.map_err(cannot)?.path()));
        if files.len() > MAX_INVENTORIES {
            return Err(Box::new(too_many(directory)));
        }
    }
    files.sort_by(|a, b| natural(&shown(a), &shown(b)));
    if files.is_empty() {
        return Err(Box::new(nothing_in(directory)));
    }
    Ok(files.into_iter().map(FileSet::of).collect())
}

/// Returns the first file of the inventory that an entry of a tree stands for, if it does.
fn inventory_at(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_string_lossy();
    if name.starts_with('.') {
        return None;
    }
    if path.is_dir() {
        return main_file(path);
    }
    let (stem, extension) = name.rsplit_once('.')?;
    let encrypted = stem.rsplit_once('.').is_some_and(|(_, ending)| ending == "sops");
    let is_inventory = matches!(extension, "yaml" | "yml") && !encrypted && name != DEFAULTS_FILE;
    is_inventory.then(|| path.to_owned())
}

fn main_file(directory: &Path) -> Option<PathBuf> {
    MAIN_FILES.map(|name| directory.join(name)).into_iter().find(|path| exists(path))
}

fn is_named(path: &Path, names: &[&str]) -> bool {
    path.file_name().is_some_and(|name| names.iter().any(|other| name == *other))
}

/// Whether there is something of that name. What cannot be asked about counts as there, so that
/// reading it says why.
fn exists(path: &Path) -> bool {
    !matches!(fs::symlink_metadata(path), Err(error) if is_absence(&error))
}

/// Returns the directory above another one, in the user's own words where that is possible.
fn above(directory: &Path) -> Option<PathBuf> {
    match directory.components().next_back() {
        None | Some(Component::CurDir) => Some(PathBuf::from("..")),
        Some(Component::ParentDir) => Some(directory.join("..")),
        Some(Component::Normal(_)) => directory.parent().map(Path::to_owned),
        Some(Component::RootDir | Component::Prefix(_)) => None,
    }
}

fn nothing_here() -> Finding {
    Finding::error(Code::NO_INVENTORY, None, "there is no inventory in the current directory")
        .because("looked for `ichor.yaml`, then for `cluster.yaml`")
        .remedy("name a file or a directory with `-f PATH`, or change to the inventory's directory")
}

fn nothing_in(directory: &Path) -> Finding {
    Finding::error(Code::NO_INVENTORY, None, format!("there is no inventory in `{}`", shown(directory)))
        .because("looked for `ichor.yaml` and `cluster.yaml` in it and in its subdirectories")
        .because("looked for other `.yaml` and `.yml` files in it, except `defaults.yaml` and `*.sops.yaml`")
        .remedy("name the inventory's file, or the directory it is in, with `-f PATH`")
}

fn too_many(directory: &Path) -> Finding {
    let message = format!("`{}` has more than {MAX_INVENTORIES} inventories", shown(directory));
    Finding::error(Code::TOO_LARGE, None, message).remedy("name a directory that holds fewer with `-f PATH`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_above_is_named_in_the_users_words() {
        for (directory, expected) in [
            ("", Some("..")),
            (".", Some("..")),
            ("..", Some("../..")),
            ("a", Some("")),
            ("a/b/", Some("a")),
            ("a/..", Some("a/../..")),
            ("/a", Some("/")),
            ("/", None),
        ] {
            assert_eq!(above(Path::new(directory)).as_deref(), expected.map(Path::new), "{directory}");
        }
    }

    /// Makes the files and says what is found under the directory, paths relative to it.
    fn found(files: &[&str]) -> String {
        let root = tempfile::tempdir().expect("directory");
        let top = root.path().join("top");
        for file in files {
            let path = top.join(file);
            fs::create_dir_all(path.parent().expect("parent")).expect("directories");
            fs::write(path, "").expect("file");
        }
        let show = |paths: &[PathBuf]| {
            let relative = paths.iter().map(|path| shown(path.strip_prefix(&top).unwrap_or(path)));
            relative.collect::<Vec<_>>().join(" + ")
        };
        match locate(Some(&top)) {
            Ok(sets) => sets
                .iter()
                .map(|set| match set.defaults.as_slice() {
                    [] => show(&set.files),
                    defaults => format!("{} over {}", show(&set.files), show(defaults)),
                })
                .collect::<Vec<_>>()
                .join(", "),
            Err(finding) => finding.code.to_string(),
        }
    }

    #[test]
    fn a_directory_is_one_inventory_or_a_tree_of_them() {
        for (files, expected) in [
            (
                &["cluster.yaml", "nodes.yaml", "secrets.sops.yaml", "other.yaml"][..],
                "cluster.yaml + nodes.yaml",
            ),
            (&["ichor.yaml", "cluster.yaml"], "ichor.yaml"),
            (&["ichor.yaml", "defaults.yaml", "nodes.yaml"], "ichor.yaml + nodes.yaml over defaults.yaml"),
            (&["b10.yaml", "b2.yml", "a.yaml"], "a.yaml, b2.yml, b10.yaml"),
            (&["a.yaml", "a.sops.yaml", ".b.yaml", "c.txt", "yaml"], "a.yaml"),
            (&["a.yaml", "defaults.yaml"], "a.yaml over defaults.yaml"),
            (
                &["b/cluster.yaml", "b/nodes.yaml", "b/defaults.yaml", "defaults.yaml", "a.yaml"],
                "a.yaml over defaults.yaml, b/cluster.yaml + b/nodes.yaml over defaults.yaml + b/defaults.yaml",
            ),
            (&["patches/all.yaml", "a/ichor.yaml", ".git/cluster.yaml"], "a/ichor.yaml"),
            (&["defaults.yaml", "patches/all.yaml"], "ICH-1014"),
        ] {
            assert_eq!(found(files), expected, "{files:?}");
        }
    }

    #[test]
    fn an_inventory_means_the_same_alone_and_in_its_tree() {
        let root = tempfile::tempdir().expect("directory");
        let path = |name: &str| root.path().join(name);
        fs::create_dir(path("prod")).expect("directory");
        for name in
            ["defaults.yaml", "lab.yaml", "prod/cluster.yaml", "prod/nodes.yaml", "prod/defaults.yaml"]
        {
            fs::write(path(name), "").expect("file");
        }
        let tree = locate(Some(root.path())).expect("tree");
        let alone = ["lab.yaml", "prod"].map(|name| locate(Some(&path(name))).expect("alone"));
        assert_eq!(tree, alone.into_iter().flatten().collect::<Vec<_>>());
        assert_eq!(locate(Some(&path("prod/cluster.yaml"))), locate(Some(&path("prod"))));
    }

    #[test]
    fn what_does_not_exist_is_said_to_be_missing() {
        let finding = locate(Some(Path::new("no/such/place"))).expect_err("missing");
        assert_eq!(finding.code, Code::UNREADABLE);
        assert_eq!(finding.message, "`no/such/place` cannot be read");
    }

    #[test]
    fn defaults_named_as_an_inventory_do_not_lie_below_themselves() {
        let root = tempfile::tempdir().expect("directory");
        let path = root.path().join(DEFAULTS_FILE);
        fs::write(&path, "").expect("file");
        let sets = locate(Some(&path)).expect("one");
        assert_eq!(sets, [FileSet { defaults: Vec::new(), files: vec![path] }]);
    }
}
