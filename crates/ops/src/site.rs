//! The cluster that a verb is about, and where its inventory lies.

use std::path::{Path, PathBuf};

use ichor_model::Desired;

/// A resolved cluster and the place of its inventory.
#[derive(Debug, Clone, Copy)]
pub struct Site<'a> {
    /// The cluster as it is to be.
    pub desired: &'a Desired,
    /// The directory of the inventory, which all paths in it are relative to.
    pub directory: &'a Path,
    /// The files of the inventory; none when it came from standard input.
    pub files: &'a [PathBuf],
    /// Where its machine-config contract is from.
    pub contract: Origin,
    /// How its secrets are written.
    pub keeping: Keeping,
}

/// How secrets are written. They are read either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeping {
    /// Encrypted.
    Encrypted,
    /// In plain: those of a lab, which open nothing.
    Plain,
}

/// Where the machine-config contract of a cluster is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It was recorded when the secrets were made or imported.
    Recorded,
    /// The inventory says it.
    Written,
    /// Nobody says it: it is that of the Talos in the inventory.
    Assumed,
}

impl<'a> Site<'a> {
    /// Returns a path of the inventory, as seen from the current directory.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.directory.join(relative)
    }

    /// Returns the inventory's directory; the current one, when it has no name.
    pub fn home(&self) -> &'a Path {
        if self.directory.as_os_str().is_empty() { Path::new(".") } else { self.directory }
    }

    /// Returns the cluster's name.
    pub fn name(&self) -> &'a str {
        self.desired.cluster.name.as_str()
    }
}
