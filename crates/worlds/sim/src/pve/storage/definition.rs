//! Definitions of storages, as they stand in `storage.cfg`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::volume::{ContentType, Naming};

/// Facts about a type of storage.
struct Kind {
    name: &'static str,
    /// What it can hold.
    holds: &'static [&'static str],
    /// What it holds unless something else is said.
    default: &'static [&'static str],
    /// Options that must be given and cannot be changed.
    fixed: &'static [&'static str],
    /// Other options.
    optional: &'static [&'static str],
    /// Whether all hosts see the same volumes, always.
    shared: bool,
}

const FILES: [&str; 7] = ["images", "rootdir", "vztmpl", "iso", "backup", "snippets", "import"];
const EVERYWHERE: [&str; 3] = ["nodes", "disable", "content"];
const FILE_OPTIONS: [&str; 12] = [
    "content-dirs",
    "prune-backups",
    "max-protected-backups",
    "format",
    "mkdir",
    "create-base-path",
    "create-subdirs",
    "bwlimit",
    "preallocation",
    "snapshot-as-volume-chain",
    "shared",
    "is_mountpoint",
];

const KINDS: [Kind; 9] = [
    Kind {
        name: "dir",
        holds: &["images", "rootdir", "vztmpl", "iso", "backup", "snippets", "import", "none"],
        default: &["images", "rootdir"],
        fixed: &["path"],
        optional: &FILE_OPTIONS,
        shared: false,
    },
    Kind {
        name: "btrfs",
        holds: &["images", "rootdir", "vztmpl", "iso", "backup", "snippets", "import", "none"],
        default: &["images", "rootdir"],
        fixed: &["path"],
        optional: &FILE_OPTIONS,
        shared: false,
    },
    Kind {
        name: "nfs",
        holds: &FILES,
        default: &["images"],
        fixed: &["server", "export"],
        optional: &[
            "path",
            "options",
            "content-dirs",
            "prune-backups",
            "max-protected-backups",
            "format",
            "mkdir",
            "create-base-path",
            "create-subdirs",
            "bwlimit",
            "preallocation",
            "snapshot-as-volume-chain",
        ],
        shared: true,
    },
    Kind {
        name: "cifs",
        holds: &FILES,
        default: &["images"],
        fixed: &["server", "share"],
        optional: &[
            "path",
            "options",
            "subdir",
            "username",
            "password",
            "domain",
            "smbversion",
            "content-dirs",
            "prune-backups",
            "max-protected-backups",
            "format",
            "mkdir",
            "create-base-path",
            "create-subdirs",
            "bwlimit",
            "preallocation",
            "snapshot-as-volume-chain",
        ],
        shared: true,
    },
    Kind {
        name: "lvm",
        holds: &["images", "rootdir"],
        default: &["images"],
        fixed: &["vgname"],
        optional: &[
            "shared",
            "saferemove",
            "saferemove-stepsize",
            "saferemove_throughput",
            "base",
            "tagged_only",
            "bwlimit",
            "snapshot-as-volume-chain",
        ],
        shared: false,
    },
    Kind {
        name: "lvmthin",
        holds: &["images", "rootdir"],
        default: &["images", "rootdir"],
        fixed: &["thinpool", "vgname"],
        optional: &["bwlimit"],
        shared: false,
    },
    Kind {
        name: "zfspool",
        holds: &["images", "rootdir"],
        default: &["images", "rootdir"],
        fixed: &["pool"],
        optional: &["blocksize", "sparse", "bwlimit", "mountpoint"],
        shared: false,
    },
    Kind {
        name: "rbd",
        holds: &["images", "rootdir"],
        default: &["images"],
        fixed: &[],
        optional: &["monhost", "pool", "data-pool", "namespace", "username", "krbd", "keyring", "bwlimit"],
        shared: true,
    },
    Kind {
        name: "pbs",
        holds: &["backup", "none"],
        default: &["backup"],
        fixed: &["server", "datastore"],
        optional: &[
            "namespace",
            "port",
            "username",
            "password",
            "encryption-key",
            "master-pubkey",
            "prune-backups",
            "max-protected-backups",
            "fingerprint",
        ],
        shared: true,
    },
];

/// A storage as `storage.cfg` defines it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Definition {
    /// Its type, such as `dir`.
    pub kind: String,
    /// Its options as texts, but for content and nodes.
    pub options: BTreeMap<String, String>,
    /// What it holds.
    pub content: BTreeSet<String>,
    /// The hosts that have it; empty: all.
    pub nodes: BTreeSet<String>,
}

impl Definition {
    /// Checks options and makes a definition. The error is what the server says.
    pub fn new(kind: &str, options: &BTreeMap<String, String>) -> Result<Self, String> {
        let facts = facts(kind).ok_or_else(|| format!("unknown storage type '{kind}'"))?;
        if let Some(missing) = facts.fixed.iter().find(|option| !options.contains_key(**option)) {
            return Err(format!("missing value for required option '{missing}'"));
        }
        let mut definition = Self {
            kind: kind.to_owned(),
            options: BTreeMap::new(),
            content: facts.default.iter().map(|name| (*name).to_owned()).collect(),
            nodes: BTreeSet::new(),
        };
        definition.change(options, &[])?;
        Ok(definition)
    }

    /// Changes and deletes options, all or nothing.
    pub fn change(&mut self, options: &BTreeMap<String, String>, delete: &[String]) -> Result<(), String> {
        let facts = facts(&self.kind).ok_or("unknown storage type")?;
        let mut changed = self.clone();
        for (option, value) in options {
            if !facts.knows(option) {
                return Err(format!("unexpected property '{option}'"));
            }
            match option.as_str() {
                "content" => changed.content = facts.content(value)?,
                "nodes" => changed.nodes = split(value).map(str::to_owned).collect(),
                _ => {
                    changed.options.insert(option.clone(), value.clone());
                }
            }
        }
        for option in delete {
            if facts.fixed.contains(&option.as_str()) {
                return Err(format!("unable to delete required option '{option}'"));
            }
            if !facts.knows(option) {
                return Err(format!("no such option '{option}'"));
            }
            if options.contains_key(option) {
                return Err(format!("cannot set and delete property '{option}' at the same time!"));
            }
            match option.as_str() {
                "content" => changed.content = facts.default.iter().map(|name| (*name).to_owned()).collect(),
                "nodes" => changed.nodes.clear(),
                _ => {
                    changed.options.remove(option);
                }
            }
        }
        *self = changed;
        Ok(())
    }

    /// Returns whether it is switched off.
    pub fn is_disabled(&self) -> bool {
        self.flag("disable")
    }

    /// Returns whether all hosts see the same volumes.
    pub fn is_shared(&self) -> bool {
        facts(&self.kind).is_some_and(|facts| facts.shared) || self.flag("shared")
    }

    /// Returns whether a host has it.
    pub fn is_on(&self, host: &str) -> bool {
        self.nodes.is_empty() || self.nodes.contains(host)
    }

    /// Returns whether it holds a type of content.
    pub fn holds(&self, kind: ContentType) -> bool {
        self.content.contains(kind.name())
    }

    /// Returns the folder of its files; absent for block storages.
    pub fn path(&self, name: &str) -> Option<String> {
        match self.kind.as_str() {
            "dir" | "btrfs" => self.options.get("path").cloned(),
            "nfs" | "cifs" | "cephfs" => {
                Some(self.options.get("path").cloned().unwrap_or_else(|| format!("/mnt/pve/{name}")))
            }
            _ => None,
        }
    }

    /// Returns how it names volumes.
    pub fn naming(&self) -> Naming {
        match self.kind.as_str() {
            "lvm" => Naming::Lvm,
            "lvmthin" => Naming::LvmThin,
            "zfspool" => Naming::Zfs,
            "rbd" => Naming::Rbd,
            "pbs" => Naming::Pbs,
            _ => Naming::Files,
        }
    }

    /// Returns the format of new volumes unless another one is said.
    pub fn default_format(&self) -> &str {
        let own = self.options.get("format").map(String::as_str);
        if self.naming().is_files() { own.unwrap_or("raw") } else { "raw" }
    }

    /// Returns the format that a copy gets: the wished one where the storage knows it.
    pub fn format_for<'a>(&'a self, wished: &'a str) -> &'a str {
        if self.formats().contains(&wished) { wished } else { self.default_format() }
    }

    /// Returns the formats of volumes it knows.
    pub fn formats(&self) -> &'static [&'static str] {
        match self.naming() {
            Naming::Files if self.kind == "dir" || self.kind == "btrfs" => {
                &["qcow2", "raw", "subvol", "vmdk"]
            }
            Naming::Files => &["qcow2", "raw", "vmdk"],
            Naming::Lvm => &["qcow2", "raw"],
            Naming::Zfs => &["raw", "subvol"],
            Naming::LvmThin | Naming::Rbd | Naming::Pbs => &["raw"],
        }
    }

    /// Returns what it stands on, so that two definitions of one folder show the same files.
    pub fn ground_name(&self, name: &str) -> String {
        match (self.path(name), self.kind.as_str()) {
            (Some(path), _) => path,
            (None, "lvm" | "lvmthin") => {
                let option = |key: &str| self.options.get(key).cloned().unwrap_or_default();
                format!("lvm:{}/{}", option("vgname"), option("thinpool"))
            }
            (None, kind) => {
                let option = |key: &str| self.options.get(key).cloned().unwrap_or_default();
                format!("{kind}:{}/{}/{}", option("server"), option("pool"), option("datastore"))
            }
        }
    }

    /// Returns whether a volume can be copied, cloned, made a template, snapshotted or renamed.
    pub fn has_feature(&self, feature: &str, format: &str, is_base: bool, of_snapshot: bool) -> bool {
        let files = matches!(format, "raw" | "qcow2" | "vmdk");
        match (self.naming(), feature) {
            (Naming::Files, "snapshot") => format == "qcow2" && (of_snapshot || !is_base),
            (Naming::Files, "clone") => files && is_base && !of_snapshot,
            (Naming::Files, "template" | "rename") => files && !is_base && !of_snapshot,
            (Naming::Files, "copy") => files && (!of_snapshot || format == "qcow2"),
            (Naming::Lvm, "copy") => !of_snapshot || format == "qcow2",
            (Naming::Lvm, "snapshot") => format == "qcow2",
            (Naming::LvmThin | Naming::Zfs | Naming::Rbd, "snapshot") => of_snapshot || !is_base,
            (Naming::LvmThin | Naming::Rbd, "clone") => is_base || of_snapshot,
            (Naming::Zfs, "clone") => is_base && !of_snapshot,
            (Naming::Lvm, "rename")
            | (Naming::LvmThin | Naming::Zfs | Naming::Rbd, "template" | "rename") => {
                !is_base && !of_snapshot
            }
            (Naming::LvmThin | Naming::Rbd, "copy") => true,
            (Naming::Zfs, "copy") => !of_snapshot,
            _ => false,
        }
    }

    fn flag(&self, option: &str) -> bool {
        self.options.get(option).is_some_and(|value| matches!(value.as_str(), "1" | "yes" | "on" | "true"))
    }
}

impl Kind {
    fn knows(&self, option: &str) -> bool {
        EVERYWHERE.contains(&option) || self.fixed.contains(&option) || self.optional.contains(&option)
    }

    /// Reads a list of content types. Those that the storage cannot hold are left out, with no more than a
    /// warning in the server's own log.
    fn content(&self, list: &str) -> Result<BTreeSet<String>, String> {
        let content: BTreeSet<String> =
            split(list).filter(|name| self.holds.contains(name)).map(str::to_owned).collect();
        if content.contains("none") && content.len() > 1 {
            return Err("unable to combine 'none' with other content types".into());
        }
        if content.is_empty() && !self.holds.contains(&"none") {
            return Err("storage does not support content type 'none'".into());
        }
        Ok(content)
    }
}

fn facts(kind: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|facts| facts.name == kind)
}

fn split(list: &str) -> impl Iterator<Item = &str> {
    list.split(|c: char| matches!(c, ',' | ';' | '\0') || c.is_whitespace()).filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_definition_needs_its_fixed_options() {
        assert_eq!(
            Definition::new("dir", &options(&[])),
            Err("missing value for required option 'path'".to_owned())
        );
        let thin = options(&[("vgname", "pve"), ("thinpool", "data"), ("content", "iso")]);
        assert_eq!(
            Definition::new("lvmthin", &thin),
            Err("storage does not support content type 'none'".to_owned())
        );
    }

    #[test]
    fn a_change_is_all_or_nothing() {
        let mut extra =
            Definition::new("dir", &options(&[("path", "/mnt/x"), ("content", "iso,import")])).expect("ok");
        let before = extra.clone();
        assert!(extra.change(&options(&[("content", "images")]), &["nope".into()]).is_err());
        assert_eq!(extra, before);
        extra.change(&options(&[("disable", "1")]), &[]).expect("ok");
        assert!(extra.is_disabled() && !extra.is_shared() && extra.is_on("pve1"));
    }

    #[test]
    fn raw_files_have_no_snapshots_and_thin_volumes_do() {
        let dir = Definition::new("dir", &options(&[("path", "/mnt/x")])).expect("ok");
        let thin =
            Definition::new("lvmthin", &options(&[("vgname", "pve"), ("thinpool", "data")])).expect("ok");
        assert!(!dir.has_feature("snapshot", "raw", false, false));
        assert!(dir.has_feature("snapshot", "qcow2", false, false));
        assert!(thin.has_feature("snapshot", "raw", false, false));
        assert_eq!((dir.format_for("qcow2"), thin.format_for("qcow2")), ("qcow2", "raw"));
    }
}
