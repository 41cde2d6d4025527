//! The list of what ichor wrote into a directory, with digests.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    System,
    system::{Links, Unreadable},
};

/// The name of the list.
pub const NAME: &str = ".rendered.json";
/// Largest list that is read: twenty thousand machines need a tenth of it.
const MAX_BYTES: usize = 64 * 1024 * 1024;
const SCHEMA: u32 = 1;

/// What ichor wrote: for each file the digests that it may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    schema: u32,
    /// By path below the directory.
    pub files: BTreeMap<String, BTreeSet<String>>,
}

impl List {
    /// Makes a list.
    pub const fn of(files: BTreeMap<String, BTreeSet<String>>) -> Self {
        Self { schema: SCHEMA, files }
    }

    /// Reads the list of a directory. One that is missing or damaged lists nothing, and so every file that
    /// differs counts as somebody else's.
    pub fn read(system: &dyn System, directory: &Path) -> Result<Self, Unreadable> {
        match system.read(&directory.join(NAME), MAX_BYTES, Links::Refuse) {
            Ok(contents) => {
                let list: Option<Self> = serde_json::from_slice(&contents.bytes).ok();
                Ok(list.filter(|list| list.schema == SCHEMA).unwrap_or_else(|| Self::of(BTreeMap::new())))
            }
            Err(why) if why.is_missing() => Ok(Self::of(BTreeMap::new())),
            Err(why) => Err(why),
        }
    }

    /// Whether a file of that content is ours.
    pub fn has(&self, path: &str, bytes: &[u8]) -> bool {
        self.files.get(path).is_some_and(|digests| digests.contains(&digest(bytes)))
    }

    /// Returns the text of the list.
    pub fn text(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

/// Returns the SHA-256 of a file, in hex.
pub fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
