//! Places: what a path really stands for, and what must never be written over.

use std::{
    borrow::Cow,
    path::{Component, Path, PathBuf},
};

use ichor_model::{Code, Finding};

use crate::{Site, System, store::Store};

/// Returns the one true name of a path, also of one that is not there yet: as much of it as exists is
/// followed, and the rest is taken as it is written.
pub fn settle(system: &dyn System, path: &Path) -> PathBuf {
    for above in path.ancestors() {
        let Ok(mut settled) = system.canonical(or_here(above)) else { continue };
        for part in path.strip_prefix(above).unwrap_or(Path::new("")).components() {
            match part {
                Component::Normal(name) => settled.push(name),
                Component::ParentDir => drop(settled.pop()),
                _ => {}
            }
        }
        return settled;
    }
    path.to_owned()
}

/// Returns the one true name of a file that is written: a link of its name is replaced, not followed.
pub fn settle_file(system: &dyn System, path: &Path) -> PathBuf {
    match path.file_name() {
        Some(name) => settle(system, directory_of(path)).join(name),
        None => settle(system, path),
    }
}

/// Returns the directory of a file. That of a bare name is the current one.
pub fn directory_of(path: &Path) -> &Path {
    or_here(path.parent().unwrap_or(Path::new("")))
}

fn or_here(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// Returns a path as a word of a command that a shell reads.
pub fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
    if !path.is_empty() && !path.starts_with('-') && path.chars().all(is_plain) {
        return path;
    }
    // A word that begins with a dash would be taken for an option.
    let path = if path.starts_with('-') { Cow::Owned(format!("./{path}")) } else { Cow::Borrowed(&path) };
    format!("'{}'", path.replace('\'', r"'\''"))
}

/// What must never be written over, because nobody could make it again.
#[derive(Debug)]
pub struct Guard {
    files: Vec<(PathBuf, &'static str)>,
    store: Option<PathBuf>,
    home: PathBuf,
}

impl Guard {
    /// Guards the inventory, the store, the bundle, and the bundle that was given in its place.
    pub fn new(system: &dyn System, site: Site<'_>, given: Option<&Path>) -> Self {
        let store = Store::of(site).ok();
        let inventory = site.files.iter().map(|file| (file.clone(), "the inventory"));
        let kept =
            store.iter().flat_map(Store::bundles).map(|path| (path.to_owned(), "the cluster's secrets"));
        let given = given.map(|path| (path.to_owned(), "the secrets that were given"));
        // A link is guarded, and what it leads to.
        let files = inventory
            .chain(kept)
            .chain(given)
            .flat_map(|(path, what)| [(settle_file(system, &path), what), (settle(system, &path), what)]);
        Self {
            files: files.collect(),
            store: store.map(|store| settle(system, store.root())),
            home: settle(system, site.home()),
        }
    }

    /// Refuses a file that must be kept.
    pub fn check_file(&self, system: &dyn System, path: &Path) -> Result<(), Box<Finding>> {
        let settled = settle_file(system, path);
        let kept = self.files.iter().find(|(kept, _)| *kept == settled).map(|(_, what)| *what);
        let in_store = self.store.as_ref().is_some_and(|store| settled.starts_with(store));
        let Some(what) = kept.or(in_store.then_some("a place of ichor's own store")) else { return Ok(()) };
        let message = format!("`{}` would be written over", path.display());
        let finding = Finding::error(Code::KEPT_FILE, None, message).because(format!("it is {what}"));
        Err(Box::new(finding.remedy("name another file or directory")))
    }

    /// Refuses a directory that would be kept out of git together with the inventory, or that is mixed up
    /// with the store.
    pub fn check_directory(&self, system: &dyn System, path: &Path) -> Result<(), Box<Finding>> {
        let settled = settle(system, path);
        let refuse = |message: String| {
            let finding = Finding::error(Code::RENDER_PLACE, None, message);
            Err(Box::new(finding.remedy("name a directory of its own:\n    ichor render rendered")))
        };
        if self.home.starts_with(&settled) {
            return refuse(format!(
                "files are not rendered to `{}`, which holds the inventory",
                path.display()
            ))
            .map_err(|finding| {
                Box::new(finding.because("the directory gets a `.gitignore` that keeps all of it out of git"))
            });
        }
        match &self.store {
            Some(store) if settled.starts_with(store) => {
                refuse(format!("files are not rendered into the store, where `{}` is", path.display()))
            }
            Some(store) if store.starts_with(&settled) => {
                refuse(format!("files are not rendered to `{}`, which holds the store", path.display()))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    #[test]
    fn what_is_not_there_has_a_name_too() {
        let memory = Memory::default();
        memory.directories.borrow_mut().extend([".".into(), "a".into()]);
        for (path, expected) in
            [("a/b/c", "a/b/c"), ("a/x/../b", "a/b"), ("new", "./new"), ("x/../y/./z", "./y/z"), ("", ".")]
        {
            assert_eq!(settle(&memory, Path::new(path)), Path::new(expected), "{path}");
        }
        assert_eq!(settle_file(&memory, Path::new("a/b")), Path::new("a/b"));
    }

    #[test]
    fn a_shell_reads_one_word() {
        for (path, expected) in [
            (".ichor/lab/secrets.yaml", ".ichor/lab/secrets.yaml"),
            ("my lab/a", "'my lab/a'"),
            ("it's", r"'it'\''s'"),
            ("-rf", "'./-rf'"),
            ("$(x)", "'$(x)'"),
        ] {
            assert_eq!(quoted(Path::new(path)), expected);
        }
    }
}
