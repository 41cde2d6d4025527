//! Names of volumes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The id of a volume: a storage, and the name in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct VolumeId {
    /// The storage.
    pub storage: String,
    /// The name.
    pub name: String,
}

impl VolumeId {
    /// Reads an id; absent when it does not look like one.
    pub fn read(text: &str) -> Option<Self> {
        let (storage, name) = text.split_once(':')?;
        let first = storage.bytes().next()?;
        let last = storage.bytes().last()?;
        let fits = storage.len() >= 2
            && first.is_ascii_alphabetic()
            && last.is_ascii_alphanumeric()
            && storage.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
            && !name.is_empty()
            && !name.contains('\n');
        fits.then(|| Self { storage: storage.to_owned(), name: name.to_owned() })
    }
}

impl fmt::Display for VolumeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.storage, self.name)
    }
}

/// What a volume is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentType {
    /// Disks of VMs.
    Images,
    /// Disks of containers.
    Rootdir,
    /// Discs.
    Iso,
    /// Templates of containers.
    Vztmpl,
    /// Backups.
    Backup,
    /// Small files, such as cloud-init data.
    Snippets,
    /// Disk images to import.
    Import,
}

impl ContentType {
    /// All, in the order in which the server lists them.
    pub const ALL: [Self; 7] =
        [Self::Rootdir, Self::Images, Self::Vztmpl, Self::Iso, Self::Backup, Self::Snippets, Self::Import];

    /// Finds a type by its name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Images => "images",
            Self::Rootdir => "rootdir",
            Self::Iso => "iso",
            Self::Vztmpl => "vztmpl",
            Self::Backup => "backup",
            Self::Snippets => "snippets",
            Self::Import => "import",
        }
    }

    /// Returns its folder below the path of a storage.
    pub const fn folder(self) -> &'static str {
        match self {
            Self::Images => "images",
            Self::Rootdir => "private",
            Self::Iso => "template/iso",
            Self::Vztmpl => "template/cache",
            Self::Backup => "dump",
            Self::Snippets => "snippets",
            Self::Import => "import",
        }
    }
}

/// A volume's name, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeName {
    /// What it is for.
    pub kind: ContentType,
    /// The last part: the name of its file or block device.
    pub file: String,
    /// The VM it belongs to.
    pub owner: Option<u32>,
    /// The volume it is a linked clone of, by the key of [`VolumeName::key`].
    pub base: Option<String>,
    /// Whether it is the base of linked clones.
    pub is_base: bool,
    /// Its format.
    pub format: String,
}

/// How a storage names its volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Naming {
    /// Files in folders.
    Files,
    /// LVM: a volume group.
    Lvm,
    /// LVM with a thin pool: linked clones do not show in the name.
    LvmThin,
    /// ZFS.
    Zfs,
    /// Ceph.
    Rbd,
    /// A backup server.
    Pbs,
}

impl Naming {
    /// Takes a name apart; the error is what the server says.
    pub fn parse(self, name: &str) -> Result<VolumeName, String> {
        match self {
            Self::Files => parse_file_name(name),
            Self::Lvm | Self::LvmThin => {
                let prefixes: &[&str] = if self == Self::LvmThin { &["vm", "base"] } else { &["vm"] };
                block_name(name, prefixes).ok_or_else(|| format!("unable to parse lvm volume name '{name}'"))
            }
            Self::Zfs => {
                based_block_name(name).ok_or_else(|| format!("unable to parse zfs volume name '{name}'"))
            }
            Self::Rbd => {
                based_block_name(name).ok_or_else(|| format!("unable to parse rbd volume name '{name}'"))
            }
            Self::Pbs => {
                parse_pbs_name(name).ok_or_else(|| format!("unable to parse PBS volume name '{name}'"))
            }
        }
    }

    /// Returns whether volumes are files.
    pub const fn is_files(self) -> bool {
        matches!(self, Self::Files)
    }
}

impl VolumeName {
    /// Returns what identifies the volume in its storage: the place of its file, without the base.
    pub fn key(&self, naming: Naming) -> String {
        match (naming, self.kind, self.owner) {
            (Naming::Files, ContentType::Images, Some(owner)) => format!("{owner}/{}", self.file),
            (Naming::Files, kind, _) => format!("{}/{}", kind.name(), self.file),
            (Naming::Pbs, ..) => format!("backup/{}", self.file),
            _ => self.file.clone(),
        }
    }
}

fn parse_file_name(name: &str) -> Result<VolumeName, String> {
    let unparsable = || format!("unable to parse directory volume name '{name}'");
    let volume = |kind, file: &str, owner, format: &str| VolumeName {
        kind,
        file: file.to_owned(),
        owner,
        base: None,
        is_base: false,
        format: format.to_owned(),
    };
    let (folder, rest) = name.split_once('/').ok_or_else(unparsable)?;
    if !folder.is_empty() && folder.bytes().all(|byte| byte.is_ascii_digit()) {
        return parse_image_name(name).ok_or_else(unparsable)?;
    }
    if rest.is_empty() || rest.contains('/') && folder != "import" {
        return Err(unparsable());
    }
    let found = match folder {
        "iso" if has_iso_extension(rest) => Some(volume(ContentType::Iso, rest, None, "raw")),
        "vztmpl" if template_format(rest).is_some() => Some(volume(ContentType::Vztmpl, rest, None, "raw")),
        "backup" if backup_format(rest).is_some() => {
            Some(volume(ContentType::Backup, rest, backup_owner(rest), "raw"))
        }
        "snippets" => Some(volume(ContentType::Snippets, rest, None, "raw")),
        "import" => parse_import_name(rest).map(|format| volume(ContentType::Import, rest, None, &format)),
        _ => None,
    };
    found.ok_or_else(unparsable)
}

/// Names such as `401/vm-401-disk-0.raw` and `9000/base-9000-disk-0.qcow2/401/vm-401-disk-0.qcow2`.
fn parse_image_name(name: &str) -> Option<Result<VolumeName, String>> {
    let parts: Vec<&str> = name.split('/').collect();
    let (base, owner, file) = match parts.as_slice() {
        [owner, file] => (None, owner, file),
        [base_owner, base, owner, file] => (Some((base_owner, base)), owner, file),
        _ => return None,
    };
    if file.is_empty() || file.contains(char::is_whitespace) {
        return None;
    }
    let owner = owner.parse().ok()?;
    Some((|| {
        if let Some((_, base)) = base {
            image_file(base)?;
        }
        let (format, is_base) = image_file(file)?;
        Ok(VolumeName {
            kind: ContentType::Images,
            file: (*file).to_owned(),
            owner: Some(owner),
            base: base.map(|(owner, file)| format!("{owner}/{file}")),
            is_base,
            format,
        })
    })())
}

/// Returns the format of an image's file, and whether it is a base.
pub fn image_file(file: &str) -> Result<(String, bool), String> {
    let format = ["raw", "qcow2", "vmdk", "subvol"]
        .into_iter()
        .find(|format| file.strip_suffix(format).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')));
    match format {
        Some(format) if !file.contains('/') && !file.contains(char::is_whitespace) => {
            Ok((format.to_owned(), file.starts_with("base-")))
        }
        _ => Err(format!("unable to parse volume filename '{file}'")),
    }
}

fn parse_import_name(rest: &str) -> Option<String> {
    let safe = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" -.+=_".contains(&byte))
    };
    let extension = |text: &str, known: &[&str]| {
        let (stem, extension) = text.rsplit_once('.')?;
        (safe(stem) && known.contains(&extension)).then(|| extension.to_owned())
    };
    match rest.split_once('/') {
        Some((archive, inner)) if extension(archive, &["ova"]).is_some() => {
            extension(inner, &["qcow2", "raw", "vmdk"]).map(|format| format!("ova+{format}"))
        }
        Some(_) => None,
        None => extension(rest, &["ova", "ovf", "qcow2", "raw", "vmdk"]),
    }
}

/// Returns whether a file name is one of a disc.
pub fn has_iso_extension(file: &str) -> bool {
    let lower = file.to_ascii_lowercase();
    [".iso", ".img"].iter().any(|extension| lower.len() > extension.len() && lower.ends_with(extension))
}

/// Returns the format of a container template.
pub fn template_format(file: &str) -> Option<&'static str> {
    let lower = file.to_ascii_lowercase();
    [(".tar.gz", "tgz"), (".tar.xz", "txz"), (".tar.zst", "tzst"), (".tar.bz2", "tbz2"), (".tar", "tar")]
        .into_iter()
        .find(|(extension, _)| lower.len() > extension.len() && lower.ends_with(extension))
        .map(|(_, format)| format)
}

/// Returns the format of a backup.
pub fn backup_format(file: &str) -> Option<&'static str> {
    [
        "tgz", "tar", "tar.gz", "tar.lzo", "tar.zst", "tar.bz2", "vma", "vma.gz", "vma.lzo", "vma.zst",
        "vma.bz2",
    ]
    .into_iter()
    .rfind(|format| file.strip_suffix(format).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')))
}

/// Returns the format of a disk image that may be uploaded to be imported.
pub fn upload_import_format(file: &str) -> Option<&str> {
    let (stem, extension) = file.rsplit_once('.')?;
    let safe =
        stem.bytes().next_back().is_some_and(|byte| byte.is_ascii_alphanumeric() || b"-.+=_".contains(&byte));
    (safe && ["ova", "qcow2", "raw", "vmdk"].contains(&extension)).then_some(extension)
}

fn backup_owner(file: &str) -> Option<u32> {
    let rest = ["vzdump-qemu-", "vzdump-lxc-", "vzdump-openvz-"]
        .iter()
        .find_map(|start| file.strip_prefix(start))?;
    rest.split_once('-')?.0.parse().ok()
}

fn block_name(name: &str, prefixes: &[&str]) -> Option<VolumeName> {
    let (prefix, rest) = name.split_once('-')?;
    let (owner, rest) = rest.split_once('-')?;
    let owner = owner.parse().ok()?;
    if !prefixes.contains(&prefix)
        || rest.is_empty()
        || name.contains(char::is_whitespace)
        || name.contains('/')
    {
        return None;
    }
    let qcow2 = prefixes == ["vm"] && name.rsplit('.').next() == Some("qcow2");
    let format = if qcow2 { "qcow2" } else { "raw" };
    Some(VolumeName {
        kind: ContentType::Images,
        file: name.to_owned(),
        owner: Some(owner),
        base: None,
        is_base: prefix == "base",
        format: format.to_owned(),
    })
}

fn based_block_name(name: &str) -> Option<VolumeName> {
    match name.split_once('/') {
        Some((base, clone)) => {
            block_name(base, &["base"])?;
            let clone = block_name(clone, &["vm", "base"])?;
            Some(VolumeName { base: Some(base.to_owned()), ..clone })
        }
        None => block_name(name, &["vm", "base"]),
    }
}

fn parse_pbs_name(name: &str) -> Option<VolumeName> {
    let rest = name.strip_prefix("backup/")?;
    let mut parts = rest.split('/');
    let (kind, owner, time) = (parts.next()?, parts.next()?, parts.next()?);
    (["vm", "ct", "host"].contains(&kind) && !time.is_empty() && parts.next().is_none()).then(|| VolumeName {
        kind: ContentType::Backup,
        file: rest.to_owned(),
        owner: owner.parse().ok(),
        base: None,
        is_base: false,
        format: format!("pbs-{kind}"),
    })
}

/// Returns the number of a disk's name, such as 3 in `vm-401-disk-3.raw`.
pub fn disk_number(file: &str, owner: u32) -> Option<u32> {
    let rest = ["vm", "base", "subvol", "basevol"]
        .iter()
        .find_map(|prefix| file.strip_prefix(&format!("{prefix}-{owner}-disk-")))?;
    let digits = rest.split('.').next()?;
    digits.parse().ok()
}

/// Makes a file's name safe, as the server does with names from outside.
pub fn normalize_file_name(name: &str) -> String {
    let name = name.strip_suffix('\n').unwrap_or(name);
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    name.chars().map(|c| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(name: &str) -> (ContentType, String, bool) {
        let parsed = Naming::Files.parse(name).expect(name);
        (parsed.kind, parsed.key(Naming::Files), parsed.is_base)
    }

    #[test]
    fn names_of_files_are_taken_apart() {
        assert_eq!(
            parsed("401/vm-401-disk-0.raw"),
            (ContentType::Images, "401/vm-401-disk-0.raw".into(), false)
        );
        assert_eq!(
            parsed("9000/base-9000-disk-0.qcow2/401/vm-401-disk-0.qcow2"),
            (ContentType::Images, "401/vm-401-disk-0.qcow2".into(), false)
        );
        assert!(parsed("9000/base-9000-disk-0.raw").2);
        assert_eq!(parsed("iso/UPPER.ISO").1, "iso/UPPER.ISO");
        assert_eq!(parsed("import/a b.qcow2").0, ContentType::Import);
    }

    #[test]
    fn the_errors_are_those_of_the_server() {
        let error = |name: &str| Naming::Files.parse(name).expect_err(name);
        assert_eq!(error("1"), "unable to parse directory volume name '1'");
        assert_eq!(error("bogus/x"), "unable to parse directory volume name 'bogus/x'");
        assert_eq!(error("401/vm-401-d"), "unable to parse volume filename 'vm-401-d'");
        assert_eq!(Naming::LvmThin.parse("x").expect_err("no name"), "unable to parse lvm volume name 'x'");
    }

    #[test]
    fn ids_have_a_storage() {
        assert_eq!(VolumeId::read("data:1").map(|id| id.storage), Some("data".into()));
        for text in ["data:", ":2", "2", "x:1", "data", "/dev/sdb"] {
            assert_eq!(VolumeId::read(text), None, "{text}");
        }
    }

    #[test]
    fn linked_clones_on_zfs_name_their_base() {
        let clone = Naming::Zfs.parse("base-9000-disk-0/vm-401-disk-1").expect("a clone");
        assert_eq!((clone.base.as_deref(), clone.owner), (Some("base-9000-disk-0"), Some(401)));
        assert_eq!(disk_number(&clone.file, 401), Some(1));
    }
}
