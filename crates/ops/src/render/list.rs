//! The list of what ichor wrote into a directory, with digests.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{System, system::Links};

/// The name of the list.
pub const NAME: &str = ".rendered.json";
/// Largest list that is read: twenty thousand machines need a tenth of it.
const MAX_BYTES: usize = 64 * 1024 * 1024;
const SCHEMA: u32 = 1;

/// The cluster that a directory is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Owner {
    /// Its name.
    pub cluster: String,
    /// Its id for discovery, which new secrets change.
    pub cluster_id: String,
}

/// The list as it was found.
#[derive(Debug)]
pub enum Listed {
    /// There is none.
    Nothing,
    /// There is one.
    List(List),
    /// There is something else of its name.
    Foreign(String),
}

/// What ichor wrote: for each file the digests that it may have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    schema: u32,
    /// Whose files they are.
    pub owner: Owner,
    /// By path below the directory.
    pub files: BTreeMap<String, BTreeSet<String>>,
}

impl List {
    /// Makes a list.
    pub const fn of(owner: Owner, files: BTreeMap<String, BTreeSet<String>>) -> Self {
        Self { schema: SCHEMA, owner, files }
    }

    /// Reads the list of a directory.
    pub fn read(system: &dyn System, directory: &Path) -> Listed {
        match system.read(&directory.join(NAME), MAX_BYTES, Links::Refuse) {
            Ok(contents) => match serde_json::from_slice::<Self>(&contents.bytes) {
                Ok(list) if list.schema == SCHEMA => Listed::List(list),
                _ => Listed::Foreign("it is not a list that ichor wrote".to_owned()),
            },
            Err(why) if why.is_missing() => Listed::Nothing,
            Err(why) => Listed::Foreign(why.to_string()),
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
