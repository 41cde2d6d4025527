//! What SSH asks of this computer.

use std::path::{Path, PathBuf};

use ichor_ops::{
    System,
    system::{Links, NotAFile, Unreadable},
};
use ichor_ssh::{Contents, Local};
use zeroize::Zeroizing;

use crate::operating_system::OperatingSystem;

/// Largest file that is read. The largest are files of known hosts.
const MAX_FILE: usize = 16 * 1024 * 1024;
/// Most names of a directory.
const MAX_NAMES: usize = 10_000;

/// This computer.
#[derive(Debug, Clone, Copy)]
pub struct ThisComputer;

impl Local for ThisComputer {
    fn home(&self) -> Option<PathBuf> {
        self.variable("HOME").map(PathBuf::from)
    }

    fn user(&self) -> Option<String> {
        ["USER", "LOGNAME"].iter().find_map(|name| self.variable(name))
    }

    fn variable(&self, name: &str) -> Option<String> {
        let value = OperatingSystem.variable(name).ok().flatten()?;
        (!value.expose().is_empty()).then(|| value.expose().to_owned())
    }

    fn read(&self, path: &Path) -> Result<Option<Contents>, String> {
        match OperatingSystem.read(path, MAX_FILE, Links::Follow) {
            Ok(contents) => {
                let text =
                    std::str::from_utf8(&contents.bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
                let text = Zeroizing::new(text.to_owned());
                Ok(Some(Contents { text, open_to_others: contents.open_to_others }))
            }
            Err(why) if why.is_missing() => Ok(None),
            // An empty device, as in `UserKnownHostsFile /dev/null`.
            Err(Unreadable::NotAFile(NotAFile::Device)) => Ok(None),
            Err(why) => Err(why.to_string()),
        }
    }

    fn names(&self, directory: &Path) -> Vec<String> {
        let names = OperatingSystem.names(directory, MAX_NAMES).unwrap_or_default();
        let mut names: Vec<String> = names.into_iter().filter_map(|name| name.into_string().ok()).collect();
        names.sort();
        names
    }
}
