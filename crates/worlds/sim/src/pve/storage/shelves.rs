//! What lies on storages: volumes, their sizes and contents.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{
    definition::Definition,
    volume::{
        ContentType, Naming, VolumeId, VolumeName, backup_format, disk_number, image_file, template_format,
    },
};
use crate::ground::{Content, ContentId, Media};

/// How much a folder or pool holds unless the world says something else: as much as in the recordings' world.
pub const USUAL_CAPACITY: u64 = 12_638_257_152;

/// How much of it is taken by what is not a volume.
const TAKEN_BY_OTHERS: u64 = 35_094_528;

/// How many disks one VM can have on one storage.
const MOST_DISKS: u32 = 1024;

/// All storages of the cluster: their definitions, and what lies on them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Storages {
    /// The definitions, by name.
    pub definitions: BTreeMap<String, Definition>,
    /// Storages that cannot be activated, and what activation says.
    pub broken: BTreeMap<String, String>,
    shelves: BTreeMap<String, Shelf>,
}

/// A folder, volume group or pool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Shelf {
    /// How much it holds, in bytes.
    pub capacity: u64,
    /// How much is taken by what others put there, in bytes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub filled: u64,
    volumes: BTreeMap<String, Volume>,
}

impl Default for Shelf {
    fn default() -> Self {
        Self { capacity: USUAL_CAPACITY, filled: 0, volumes: BTreeMap::new() }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

impl Shelf {
    /// Returns how much is taken.
    pub fn used(&self) -> u64 {
        let volumes = self.volumes.values().fold(0u64, |sum, volume| sum.saturating_add(volume.used));
        volumes.saturating_add(TAKEN_BY_OTHERS).saturating_add(self.filled).min(self.capacity)
    }

    /// Returns how much room is left.
    pub fn free(&self) -> u64 {
        self.capacity - self.used()
    }
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    /// Its format.
    pub format: String,
    /// The size that a VM sees, or that of the file.
    pub size: u64,
    /// How much room it takes.
    pub used: u64,
    /// When it was made, in Unix seconds.
    pub made: u64,
    /// What is on it.
    pub content: ContentId,
    /// The volume it is a linked clone of.
    pub base: Option<String>,
    /// Notes of a backup.
    pub notes: Option<String>,
    /// Whether it is a backup that shall be kept.
    pub protected: bool,
    /// Whether something on the host holds it open so that it cannot be removed.
    pub busy: bool,
    /// Its snapshots: the size and content at that time.
    pub snapshots: BTreeMap<String, (u64, ContentId)>,
    /// What is in a file that was brought here.
    pub file: Option<FileFacts>,
}

/// What the lab knows about a file from outside.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileFacts {
    /// Its checksum, where the bytes themselves are not kept.
    pub sha256: Option<String>,
    /// The size of the disk in it, if it is a disk image.
    pub virtual_size: Option<u64>,
    /// What kind of image it is, whatever its name says.
    pub image: Option<String>,
    /// The file that an image says lies behind it.
    pub backing: Option<String>,
    /// How many bytes of the disk are not zero.
    pub data: u64,
}

impl Volume {
    /// Returns the size of the disk in it, which for an image that is to be imported is not that of the file.
    pub fn disk_size(&self) -> u64 {
        self.file.as_ref().and_then(|file| file.virtual_size).unwrap_or(self.size)
    }
}

/// A volume to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewVolume<'a> {
    /// The storage.
    pub storage: &'a str,
    /// The VM it shall belong to.
    pub owner: u32,
    /// Its format.
    pub format: &'a str,
    /// Its name; the next free one when absent.
    pub name: Option<&'a str>,
    /// Its size in KiB.
    pub kib: u64,
}

/// Something that was done to a volume, and what the programs printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// The volume as it is called now.
    pub volume: String,
    /// What was printed.
    pub printed: Vec<String>,
}

/// A volume that was looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its id.
    pub id: VolumeId,
    /// Its name, taken apart.
    pub name: VolumeName,
    /// How its storage names volumes.
    pub naming: Naming,
    /// Whether all hosts see it.
    pub shared: bool,
}

impl Storages {
    /// Returns a definition. Errors are texts as the server prints them, here and below.
    pub fn definition(&self, storage: &str) -> Result<&Definition, String> {
        self.definitions.get(storage).ok_or_else(|| format!("storage '{storage}' does not exist"))
    }

    /// Returns the definition of a storage that a host has and that is switched on.
    pub fn enabled(&self, storage: &str, host: &str) -> Result<&Definition, String> {
        let definition = self.definition(storage)?;
        if definition.is_disabled() {
            return Err(format!("storage '{storage}' is disabled"));
        }
        if !definition.is_on(host) {
            return Err(format!("storage '{storage}' is not available on node '{host}'"));
        }
        Ok(definition)
    }

    /// Makes sure that a storage can be used on a host.
    pub fn activate(&self, storage: &str, host: &str) -> Result<&Definition, String> {
        let definition = self.enabled(storage, host)?;
        match self.broken.get(storage) {
            Some(why) => Err(why.clone()),
            None => Ok(definition),
        }
    }

    /// Looks up a volume's name, whether the volume exists or not.
    pub fn look_up(&self, volume: &str) -> Result<Found, String> {
        let id = VolumeId::read(volume).ok_or_else(|| format!("unable to parse volume ID '{volume}'"))?;
        let definition = self.definition(&id.storage)?;
        let (naming, shared) = (definition.naming(), definition.is_shared());
        Ok(Found { name: naming.parse(&id.name)?, naming, shared, id })
    }

    /// Returns where a volume lies in the file system of its host.
    pub fn path(&self, volume: &str) -> Result<String, String> {
        let found = self.look_up(volume)?;
        let definition = self.definition(&found.id.storage)?;
        let option = |key: &str| definition.options.get(key).cloned().unwrap_or_default();
        Ok(match definition.path(&found.id.storage) {
            Some(path) => match (found.name.kind, found.name.owner) {
                (ContentType::Images, Some(owner)) => format!("{path}/images/{owner}/{}", found.name.file),
                (kind, _) => format!("{path}/{}/{}", kind.folder(), found.name.file),
            },
            None => match found.naming {
                Naming::Lvm | Naming::LvmThin => format!("/dev/{}/{}", option("vgname"), found.name.file),
                Naming::Zfs => format!("/dev/zvol/{}/{}", option("pool"), found.name.file),
                _ => format!("{}:{}", found.id.storage, found.name.file),
            },
        })
    }

    /// Returns what lies on a storage as a host sees it.
    pub fn shelf(&self, storage: &str, host: &str) -> Option<&Shelf> {
        self.shelves.get(&self.shelf_name(storage, host)?)
    }

    /// Returns what lies on a storage, to change it.
    pub fn shelf_mut(&mut self, storage: &str, host: &str) -> Option<&mut Shelf> {
        let name = self.shelf_name(storage, host)?;
        Some(self.shelves.entry(name).or_default())
    }

    fn shelf_name(&self, storage: &str, host: &str) -> Option<String> {
        let definition = self.definitions.get(storage)?;
        let host = if definition.is_shared() { "" } else { host };
        Some(format!("{host}:{}", definition.ground_name(storage)))
    }

    /// Returns a volume.
    pub fn get(&self, host: &str, volume: &str) -> Option<&Volume> {
        let found = self.look_up(volume).ok()?;
        self.shelf(&found.id.storage, host)?.volumes.get(&found.name.key(found.naming))
    }

    /// Returns a volume, to change it.
    pub fn get_mut(&mut self, host: &str, volume: &str) -> Option<&mut Volume> {
        let found = self.look_up(volume).ok()?;
        self.shelf_mut(&found.id.storage, host)?.volumes.get_mut(&found.name.key(found.naming))
    }

    /// Puts a volume onto a storage, in the place of one of that name.
    pub fn put(&mut self, host: &str, volume: &str, what: Volume) -> Result<(), String> {
        let found = self.look_up(volume)?;
        let key = found.name.key(found.naming);
        if let Some(shelf) = self.shelf_mut(&found.id.storage, host) {
            shelf.volumes.insert(key, what);
        }
        Ok(())
    }

    /// Takes a volume off a storage.
    pub fn remove(&mut self, host: &str, volume: &str) -> Option<Volume> {
        let found = self.look_up(volume).ok()?;
        self.shelf_mut(&found.id.storage, host)?.volumes.remove(&found.name.key(found.naming))
    }

    /// Makes a volume.
    pub fn alloc(
        &mut self,
        host: &str,
        now: u64,
        media: &mut Media,
        wish: &NewVolume,
    ) -> Result<Done, String> {
        let definition = self.activate(wish.storage, host)?.clone();
        let naming = definition.naming();
        let suffixed = naming.is_files() || naming == Naming::Lvm && wish.format == "qcow2";
        let name = match wish.name {
            Some(name) => name.to_owned(),
            None => self.free_name(host, wish.storage, wish.owner, suffixed.then_some(wish.format))?,
        };
        if naming.is_files() {
            let (format, _) = image_file(&name)?;
            if format != wish.format {
                return Err(format!(
                    "illegal name '{name}' - wrong extension for format ('{format} != '{}')",
                    wish.format
                ));
            }
        } else if !definition.formats().contains(&wish.format) {
            return Err(format!("unsupported format '{}'", wish.format));
        }
        let full_name = if naming.is_files() { format!("{}/{name}", wish.owner) } else { name.clone() };
        let volume = format!("{}:{full_name}", wish.storage);
        let path = self.path(&volume)?;
        if self.get(host, &volume).is_some() {
            return Err(match naming {
                Naming::Files => format!("disk image '{path}' already exists"),
                _ => format!("volume '{volume}' already exists"),
            });
        }
        let Some(bytes) = wish.kib.checked_mul(1024).filter(|bytes| i64::try_from(*bytes).is_ok()) else {
            return Err(
                "unable to create image: qemu-img: Invalid image size specified. Must be between 0 and \
                        9223372036854775807."
                    .into(),
            );
        };
        let bytes = rounded(naming, bytes);
        let used = fresh_size(naming, wish.format, bytes);
        if self.shelf(wish.storage, host).is_some_and(|shelf| shelf.free() < used) {
            return Err(no_space(naming, &path));
        }
        let printed = printed_by_alloc(naming, wish.format, &path, &name, bytes);
        let content = media.add(Content::Blank);
        self.put(host, &volume, Volume::fresh(wish.format, bytes, used, now, content))?;
        Ok(Done { volume, printed })
    }

    /// Makes a linked clone.
    pub fn link(
        &mut self,
        host: &str,
        now: u64,
        media: &mut Media,
        base: &str,
        owner: u32,
        snapshot: Option<&str>,
    ) -> Result<Done, String> {
        let found = self.look_up(base)?;
        self.activate(&found.id.storage, host)?;
        let volume = self.get(host, base).ok_or_else(|| format!("volume '{base}' does not exist"))?;
        let (size, format) = (volume.size, volume.format.clone());
        let content = match snapshot {
            Some(name) => volume.snapshots.get(name).map_or(volume.content, |(_, content)| *content),
            None => volume.content,
        };
        let storage = &found.id.storage;
        let (name, volume, used, printed);
        if found.naming.is_files() {
            if snapshot.is_some() {
                return Err("this storage type does not support clone_image on snapshot".into());
            }
            if !found.name.is_base {
                return Err("clone_image only works on base images".into());
            }
            let base_owner = found.name.owner.unwrap_or_default();
            name = self.free_name(host, storage, owner, Some("qcow2"))?;
            volume = format!("{storage}:{base_owner}/{}/{owner}/{name}", found.name.file);
            used = 528_384;
            let behind = format!("../{base_owner}/{}", found.name.file);
            let preallocation = if format == "qcow2" { "metadata" } else { "off" };
            printed = vec![
                format!("clone {}: images, {name}, {owner} to {name} (base={behind})", found.id.name),
                format!(
                    "Formatting '{}', fmt=qcow2 cluster_size=131072 extended_l2=on preallocation={preallocation} \
                     compression_type=zlib size={size} backing_file={behind} backing_fmt={format} \
                     lazy_refcounts=off refcount_bits=16",
                    self.path(&volume)?
                ),
            ];
        } else {
            name = self.free_name(host, storage, owner, None)?;
            used = 0;
            volume = match found.naming {
                Naming::Zfs | Naming::Rbd => format!("{storage}:{}/{name}", found.name.file),
                _ => format!("{storage}:{name}"),
            };
            printed = match found.naming {
                Naming::LvmThin => vec![format!("  Logical volume \"{name}\" created.")],
                _ => Vec::new(),
            };
        }
        let format = if found.naming.is_files() { "qcow2" } else { "raw" };
        let content = media.copy(content);
        let made = Volume {
            base: Some(found.name.key(found.naming)),
            ..Volume::fresh(format, size, used, now, content)
        };
        self.put(host, &volume, made)?;
        Ok(Done { volume, printed })
    }

    /// Makes a volume the base of linked clones.
    pub fn make_base(&mut self, host: &str, volume: &str) -> Result<Done, String> {
        let found = self.look_up(volume)?;
        self.activate(&found.id.storage, host)?;
        if found.name.is_base {
            return Err("create_base not possible with base image".into());
        }
        let file = match found.name.file.strip_prefix("vm-") {
            Some(rest) => format!("base-{rest}"),
            None => found.name.file.clone(),
        };
        let name = match found.id.name.rsplit_once('/') {
            Some((before, _)) => format!("{before}/{file}"),
            None => file.clone(),
        };
        let new = format!("{}:{name}", found.id.storage);
        self.rename_to(host, volume, &new)?;
        let printed = match found.naming {
            Naming::LvmThin => {
                vec![format!("  Renamed \"{}\" to \"{file}\" in volume group", found.name.file)]
            }
            _ => Vec::new(),
        };
        Ok(Done { volume: new, printed })
    }

    /// Gives a volume to another VM.
    pub fn give(&mut self, host: &str, volume: &str, owner: u32) -> Result<Done, String> {
        let found = self.look_up(volume)?;
        self.activate(&found.id.storage, host)?;
        let files = found.naming.is_files();
        let name =
            self.free_name(host, &found.id.storage, owner, files.then_some(found.name.format.as_str()))?;
        let base = found.name.base.as_ref().map_or(String::new(), |base| format!("{base}/"));
        let place = if files { format!("{base}{owner}/{name}") } else { format!("{base}{name}") };
        let new = format!("{}:{place}", found.id.storage);
        self.rename_to(host, volume, &new)?;
        Ok(Done { volume: new, printed: Vec::new() })
    }

    fn rename_to(&mut self, host: &str, old: &str, new: &str) -> Result<(), String> {
        let found = self.look_up(old)?;
        let key = found.name.key(found.naming);
        let target = self.look_up(new)?;
        let new_key = target.name.key(target.naming);
        let missing = || format!("volume '{old}' does not exist");
        let place = self.shelf_mut(&found.id.storage, host).ok_or_else(missing)?;
        let volume = place.volumes.remove(&key).ok_or_else(missing)?;
        place.volumes.insert(new_key.clone(), volume);
        for other in place.volumes.values_mut().filter(|other| other.base.as_deref() == Some(&key)) {
            other.base = Some(new_key.clone());
        }
        Ok(())
    }

    /// Removes a volume. What is not there is no error.
    pub fn free(&mut self, host: &str, volume: &str, media: &mut Media) -> Result<Done, String> {
        let found = self.look_up(volume)?;
        self.activate(&found.id.storage, host)?;
        if self.is_base_in_use(host, volume) {
            return Err(format!("base volume '{}' is still in use by linked clones", found.id.name));
        }
        let path = self.path(volume)?;
        let key = found.name.key(found.naming);
        let done = |printed| Ok(Done { volume: volume.to_owned(), printed });
        let Some(place) = self.shelf_mut(&found.id.storage, host) else { return done(Vec::new()) };
        match place.volumes.get(&key) {
            None => match found.naming {
                Naming::Files => done(vec![format!("disk image '{path}' does not exist")]),
                _ => Err(format!("lvremove '{}' error: Failed to find logical volume", found.name.file)),
            },
            Some(there) if there.protected => {
                Err(format!("cannot remove protected volume '{}' on '{}'", found.id.name, found.id.storage))
            }
            Some(there) if there.busy => Err(format!("unlink '{path}' failed - Device or resource busy")),
            Some(_) => {
                if let Some(gone) = place.volumes.remove(&key) {
                    media.remove(gone.content);
                    for (_, content) in gone.snapshots.into_values() {
                        media.remove(content);
                    }
                }
                done(match found.naming {
                    Naming::Lvm | Naming::LvmThin => {
                        vec![format!("  Logical volume \"{}\" successfully removed.", found.name.file)]
                    }
                    _ => Vec::new(),
                })
            }
        }
    }

    /// Returns whether linked clones need a volume. LVM does not tell.
    pub fn is_base_in_use(&self, host: &str, volume: &str) -> bool {
        let Ok(found) = self.look_up(volume) else { return false };
        if !found.name.is_base || found.naming == Naming::LvmThin {
            return false;
        }
        let key = found.name.key(found.naming);
        self.shelf(&found.id.storage, host)
            .is_some_and(|shelf| shelf.volumes.values().any(|other| other.base.as_deref() == Some(&key)))
    }

    /// Returns the ids of the volumes on a storage with a type of content, by name, and the volumes.
    pub fn list(
        &self,
        host: &str,
        storage: &str,
        kinds: &[ContentType],
    ) -> Vec<(String, VolumeName, &Volume)> {
        let Some(definition) = self.definitions.get(storage) else { return Vec::new() };
        let Some(place) = self.shelf(storage, host) else { return Vec::new() };
        let naming = definition.naming();
        let mut rows: Vec<_> = place
            .volumes
            .iter()
            .filter_map(|(key, volume)| {
                let full = match &volume.base {
                    Some(base) if naming != Naming::LvmThin => format!("{base}/{key}"),
                    _ => key.clone(),
                };
                let name = naming.parse(&full).ok()?;
                kinds.contains(&name.kind).then(|| (format!("{storage}:{full}"), name, volume))
            })
            .collect();
        rows.sort_by_key(|(id, _, _)| id.to_lowercase());
        rows
    }

    /// Returns the disks of a VM on all storages of a host that hold disks.
    pub fn disks_of(&self, host: &str, owner: u32) -> Vec<String> {
        let storages: Vec<&String> = self
            .definitions
            .iter()
            .filter(|(name, definition)| {
                definition.holds(ContentType::Images) && self.activate(name, host).is_ok()
            })
            .map(|(name, _)| name)
            .collect();
        storages
            .into_iter()
            .flat_map(|storage| self.list(host, storage, &[ContentType::Images]))
            .filter(|(_, name, _)| name.owner == Some(owner))
            .map(|(id, _, _)| id)
            .collect()
    }

    fn free_name(
        &self,
        host: &str,
        storage: &str,
        owner: u32,
        suffix: Option<&str>,
    ) -> Result<String, String> {
        let taken: BTreeSet<u32> = self
            .list(host, storage, &[ContentType::Images])
            .into_iter()
            .filter(|(_, name, _)| name.owner == Some(owner))
            .filter_map(|(_, name, _)| disk_number(&name.file, owner))
            .collect();
        let number = (0..MOST_DISKS).find(|number| !taken.contains(number)).ok_or_else(|| {
            format!("unable to allocate an image name for VM {owner} in storage '{storage}'")
        })?;
        let suffix = suffix.map_or(String::new(), |format| format!(".{format}"));
        Ok(format!("vm-{owner}-disk-{number}{suffix}"))
    }
}

impl Volume {
    /// A volume without history.
    pub fn fresh(format: &str, size: u64, used: u64, made: u64, content: ContentId) -> Self {
        Self {
            format: format.to_owned(),
            size,
            used,
            made,
            content,
            base: None,
            notes: None,
            protected: false,
            busy: false,
            snapshots: BTreeMap::new(),
            file: None,
        }
    }
}

/// Returns how a file is listed: the format that content lists show.
pub fn listed_format(name: &VolumeName) -> String {
    match name.kind {
        ContentType::Iso => "iso".into(),
        ContentType::Snippets => "snippet".into(),
        ContentType::Vztmpl => template_format(&name.file).unwrap_or("tar").into(),
        ContentType::Backup => backup_format(&name.file).unwrap_or(name.format.as_str()).into(),
        ContentType::Images | ContentType::Rootdir | ContentType::Import => name.format.clone(),
    }
}

/// Block storages count in larger pieces than bytes.
fn rounded(naming: Naming, bytes: u64) -> u64 {
    let piece = match naming {
        Naming::Lvm | Naming::LvmThin => 4 << 20,
        Naming::Zfs | Naming::Rbd => 1 << 20,
        Naming::Files | Naming::Pbs => 1,
    };
    bytes.div_ceil(piece).saturating_mul(piece)
}

/// How much room an empty volume takes. The figures of qcow2 are those of 64 KiB clusters with metadata laid
/// out before, as recorded.
pub fn fresh_size(naming: Naming, format: &str, bytes: u64) -> u64 {
    match (naming, format) {
        (Naming::Files, "qcow2") => {
            let tables = bytes.div_ceil(512 << 20).max(1);
            (3 + tables) * 65_536 + 4096
        }
        (Naming::Files, _) if bytes > 0 => 4096,
        (Naming::Lvm, _) => bytes,
        _ => 0,
    }
}

fn printed_by_alloc(naming: Naming, format: &str, path: &str, name: &str, bytes: u64) -> Vec<String> {
    match (naming, format) {
        (Naming::Files, "qcow2") => vec![format!(
            "Formatting '{path}', fmt=qcow2 cluster_size=65536 extended_l2=off preallocation=metadata \
             compression_type=zlib size={bytes} lazy_refcounts=off refcount_bits=16"
        )],
        (Naming::Files, "vmdk") => {
            vec![format!("Formatting '{path}', fmt=vmdk size={bytes} compat6=off hwversion=undefined")]
        }
        (Naming::Files, format) => {
            vec![format!("Formatting '{path}', fmt={format} size={bytes} preallocation=off")]
        }
        (Naming::Lvm | Naming::LvmThin, _) => vec![format!("  Logical volume \"{name}\" created.")],
        _ => Vec::new(),
    }
}

/// What programs say when a storage is full. Not recorded; the words are those of the programs.
fn no_space(naming: Naming, path: &str) -> String {
    match naming {
        Naming::Files => {
            format!(
                "unable to create image: qemu-img: {path}: Could not resize file: No space left on device"
            )
        }
        Naming::Zfs => format!("zfs error: cannot create '{path}': out of space"),
        _ => format!("lvcreate '{path}' error: insufficient free space"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn storages() -> Storages {
        let mut storages = Storages::default();
        for (name, path, shared) in [("data", "/mnt/pve/data", "0"), ("shared1", "/mnt/pve/shared1", "1")] {
            let options = BTreeMap::from([
                ("path".to_owned(), path.to_owned()),
                ("shared".to_owned(), shared.to_owned()),
                ("content".to_owned(), "images".to_owned()),
            ]);
            storages.definitions.insert(name.into(), Definition::new("dir", &options).expect("ok"));
        }
        storages
    }

    fn disk(storages: &mut Storages, media: &mut Media, storage: &str, format: &str) -> Done {
        let wish = NewVolume { storage, owner: 401, format, name: None, kib: 1 << 20 };
        storages.alloc("pve1", 7, media, &wish).expect("a volume")
    }

    #[test]
    fn disks_are_numbered_by_the_first_free_number() {
        let (mut storages, mut media) = (storages(), Media::default());
        assert_eq!(disk(&mut storages, &mut media, "data", "raw").volume, "data:401/vm-401-disk-0.raw");
        assert_eq!(disk(&mut storages, &mut media, "data", "qcow2").volume, "data:401/vm-401-disk-1.qcow2");
        storages.free("pve1", "data:401/vm-401-disk-0.raw", &mut media).expect("freed");
        assert_eq!(disk(&mut storages, &mut media, "data", "raw").volume, "data:401/vm-401-disk-0.raw");
        assert_eq!(disk(&mut storages, &mut media, "shared1", "raw").volume, "shared1:401/vm-401-disk-0.raw");
    }

    #[test]
    fn a_base_stays_while_a_linked_clone_needs_it() {
        let (mut storages, mut media) = (storages(), Media::default());
        let made = disk(&mut storages, &mut media, "data", "qcow2");
        let base = storages.make_base("pve1", &made.volume).expect("a base").volume;
        assert_eq!(base, "data:401/base-401-disk-0.qcow2");
        let clone = storages.link("pve1", 8, &mut media, &base, 402, None).expect("a clone");
        assert_eq!(clone.volume, "data:401/base-401-disk-0.qcow2/402/vm-402-disk-0.qcow2");
        assert!(storages.is_base_in_use("pve1", &base));
        assert_eq!(
            storages.free("pve1", &base, &mut media),
            Err("base volume '401/base-401-disk-0.qcow2' is still in use by linked clones".into())
        );
        storages.free("pve1", &clone.volume, &mut media).expect("freed");
        storages.free("pve1", &base, &mut media).expect("freed");
        assert_eq!(storages.list("pve1", "data", &ContentType::ALL).len(), 0);
    }

    #[test]
    fn shared_volumes_are_seen_on_every_host_and_local_ones_are_not() {
        let (mut storages, mut media) = (storages(), Media::default());
        for storage in ["data", "shared1"] {
            disk(&mut storages, &mut media, storage, "raw");
        }
        assert!(storages.get("pve2", "shared1:401/vm-401-disk-0.raw").is_some());
        assert!(storages.get("pve2", "data:401/vm-401-disk-0.raw").is_none());
        assert_eq!(storages.disks_of("pve1", 401).len(), 2);
    }

    #[test]
    fn a_full_storage_says_so() {
        let (mut storages, mut media) = (storages(), Media::default());
        storages.shelf_mut("data", "pve1").expect("a shelf").capacity = 0;
        let wish = NewVolume { storage: "data", owner: 401, format: "raw", name: None, kib: 1 };
        assert!(storages.alloc("pve1", 7, &mut media, &wish).expect_err("full").contains("No space left"));
    }
}
