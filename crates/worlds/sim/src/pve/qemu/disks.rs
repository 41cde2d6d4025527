//! Making drives: new volumes, imported images, copies and linked clones.

use std::time::Duration;

use ichor_model::VmId;

use super::config::{Section, cloud_init_slot};
use crate::{
    ground::{Content, ContentId, Ground, Media},
    pve::{
        ApiError, Caller, Datacentre, Mode,
        drive::{Drive, Wish},
        qemu::{property::Properties, rights},
        storage::{
            definition::Definition,
            shelves::{Done, NewVolume, Shelf, Volume, fresh_size},
            volume::{ContentType, VolumeId},
        },
    },
};

/// How long it takes to make an empty volume on real hardware, with the storage locked.
pub const MAKING: Duration = Duration::from_millis(250);
/// How long it takes to copy a disk, or to import one, if it is a usual one.
const COPYING: Duration = Duration::from_secs(10);
const IMPORTING: Duration = Duration::from_secs(8);
/// What is copied in a second: larger disks take longer.
const COPIED_PER_SECOND: u64 = 200 << 20;

/// How large the drive of cloud-init is.
pub const CLOUD_INIT_SIZE: u64 = 4 << 20;
/// How large the state of a TPM is.
const TPM_SIZE: u64 = 4 << 20;

/// For whom a drive is made.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a> {
    /// The VM.
    pub vmid: VmId,
    /// Its host.
    pub host: &'a str,
    /// Who asked for it.
    pub caller: &'a Caller,
    /// The VM's config so far, with what is pending.
    pub config: &'a Section,
    /// Drives that were made along with it.
    pub beside: &'a Section,
    /// The storage of wishes that name none.
    pub default_storage: Option<&'a str>,
}

/// A drive that was made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Made {
    /// What stands in the config.
    pub text: String,
    /// Volumes that were made for it.
    pub volumes: Vec<String>,
    /// What was printed while the volume was made.
    pub early: Vec<String>,
    /// What was printed when the copy was done.
    pub late: Vec<String>,
    /// How long copying takes.
    pub copying: Duration,
}

/// Returns the storage whose lock is needed to make a drive; none if nothing is made.
pub fn storage_needed(text: &str, default_storage: Option<&str>) -> Option<String> {
    let drive = Drive::read("scsi0", text)?;
    drive.cloud_init_wish().or_else(|| {
        let wish = drive.wish()?;
        wish.storage.or_else(|| default_storage.map(str::to_owned))
    })
}

/// Makes or attaches a drive, as creating or changing a VM does.
pub fn create(
    dc: &mut Datacentre,
    ground: &mut Ground,
    owner: Owner,
    slot: &str,
    text: &str,
) -> Result<Made, ApiError> {
    let mut drive =
        Drive::read(slot, text).ok_or_else(|| ApiError::server("unable to parse drive options"))?;
    if ["none", "cdrom"].contains(&drive.file()) {
        drive.remove("size");
        return Ok(Made { text: drive.to_string(), ..Made::default() });
    }
    if let Some(storage) = drive.cloud_init_wish() {
        return create_cloud_init(dc, ground, owner, drive, &storage);
    }
    match (drive.wish(), drive.remove("import-from")) {
        (Some(wish), Some(source)) => import(dc, ground, owner, drive, &wish, &source),
        (Some(wish), None) => create_empty(dc, ground, owner, drive, &wish),
        (None, _) => attach(dc, owner, drive),
    }
}

/// Finds what fails before a storage is locked.
pub fn precheck(dc: &Datacentre, owner: &Owner, slot: &str, text: &str) -> Result<(), ApiError> {
    let Some(drive) = Drive::read(slot, text) else { return Ok(()) };
    if drive.cloud_init_wish().is_some() {
        return check_single_cloud_init(*owner, slot);
    }
    let Some(source) = drive.get("import-from") else { return Ok(()) };
    let imported = dc.storage.look_up(source).is_ok_and(|found| found.name.kind == ContentType::Import);
    if imported { check_image(dc, owner.host, source) } else { Ok(()) }
}

fn check_single_cloud_init(owner: Owner, slot: &str) -> Result<(), ApiError> {
    let other =
        cloud_init_slot(owner.config, Some(slot)).or_else(|| cloud_init_slot(owner.beside, Some(slot)));
    match other {
        Some(other) => {
            Err(ApiError::server(format!("{slot} - cloud-init drive is already attached at '{other}'")))
        }
        None => Ok(()),
    }
}

fn create_cloud_init(
    dc: &mut Datacentre,
    ground: &mut Ground,
    owner: Owner,
    mut drive: Drive,
    storage: &str,
) -> Result<Made, ApiError> {
    check_single_cloud_init(owner, &drive.slot)?;
    let definition = dc.storage.definition(storage).map_err(ApiError::server)?;
    let files = definition.naming().is_files();
    let format = drive.remove("format").unwrap_or_else(|| if files { "qcow2" } else { "raw" }.into());
    let suffix = if files { format!(".{format}") } else { String::new() };
    let name = format!("vm-{}-cloudinit{suffix}", owner.vmid);
    let wish = NewVolume {
        storage,
        owner: owner.vmid.number(),
        format: &format,
        name: Some(&name),
        kib: CLOUD_INIT_SIZE / 1024,
    };
    let done = alloc(dc, ground, owner.host, &wish)?;
    drive.set("file", done.volume.clone());
    drive.set("media", "cdrom");
    Ok(announced(&drive, done))
}

fn create_empty(
    dc: &mut Datacentre,
    ground: &mut Ground,
    owner: Owner,
    mut drive: Drive,
    wish: &Wish,
) -> Result<Made, ApiError> {
    let storage = wished_storage(wish, owner)?;
    let definition = dc.storage.definition(&storage).map_err(ApiError::server)?;
    let format = drive.remove("format").unwrap_or_else(|| definition.default_format().to_owned());
    let (kib, mut late) = match drive.slot.as_str() {
        "efidisk0" => {
            let size = efi_size(&drive);
            if drive.flag("pre-enrolled-keys") && dc.release.at_least(9, 1) {
                drive.set("ms-cert", "2023k");
            }
            (size / 1024, transferred(size, true))
        }
        "tpmstate0" => (TPM_SIZE / 1024, Vec::new()),
        // What is too large to count is too large for every storage.
        _ => (wish.kib().unwrap_or(u64::MAX), Vec::new()),
    };
    let new = NewVolume { storage: &storage, owner: owner.vmid.number(), format: &format, name: None, kib };
    let mut done = alloc(dc, ground, owner.host, &new)?;
    let mut size = kib.saturating_mul(1024);
    if drive.slot == "efidisk0"
        && let Some(volume) = dc.storage.get_mut(owner.host, &done.volume)
    {
        size = volume.size;
        if volume.format == "raw" {
            volume.used = 0;
        }
    }
    if owner.config.get("template").is_some_and(|flag| flag == "1") {
        let base = dc.storage.make_base(owner.host, &done.volume).map_err(ApiError::server)?;
        done.volume = base.volume;
    }
    drive.set("file", done.volume.clone());
    drive.set_size(size);
    let mut made = announced(&drive, done);
    late.append(&mut made.late);
    made.late = late;
    Ok(made)
}

fn wished_storage(wish: &Wish, owner: Owner) -> Result<String, ApiError> {
    wish.storage
        .clone()
        .or_else(|| owner.default_storage.map(str::to_owned))
        .ok_or_else(|| ApiError::server("no storage ID specified (and no default storage)"))
}

/// Returns how large the variables of the firmware are.
fn efi_size(drive: &Drive) -> u64 {
    if drive.get("efitype") == Some("4m") { 540_672 } else { 131_072 }
}

fn announced(drive: &Drive, done: Done) -> Made {
    let text = drive.to_string();
    let late = vec![format!("{}: successfully created disk '{text}'", drive.slot)];
    Made { text, volumes: vec![done.volume], early: done.printed, late, copying: Duration::ZERO }
}

fn alloc(dc: &mut Datacentre, ground: &mut Ground, host: &str, wish: &NewVolume) -> Result<Done, ApiError> {
    let now = ground.now.unix_seconds();
    dc.storage.alloc(host, now, &mut ground.media, wish).map_err(ApiError::server)
}

fn attach(dc: &Datacentre, owner: Owner, mut drive: Drive) -> Result<Made, ApiError> {
    let file = drive.file().to_owned();
    rights::check_volume(dc, owner.caller, Some(owner.vmid), &file, None)?;
    let Some(id) = VolumeId::read(&file) else {
        // A device or file of the host, which only root may name.
        return Ok(Made { text: drive.to_string(), ..Made::default() });
    };
    let found = dc.storage.look_up(&file).map_err(ApiError::server)?;
    if !matches!(found.name.kind, ContentType::Images | ContentType::Iso) {
        let text = format!("cannot use volume {file} - content type needs to be 'images' or 'iso'");
        return Err(ApiError::server(text));
    }
    if let Some(format) = drive.get("format")
        && format != found.name.format
    {
        return Err(ApiError::server(format!(
            "drive '{}' - volume '{file}' - 'format={format}' option different from storage format '{}'",
            drive.slot, found.name.format
        )));
    }
    if drive.is_cloud_init() {
        check_single_cloud_init(owner, &drive.slot)?;
    }
    dc.storage.activate(&id.storage, owner.host).map_err(ApiError::server)?;
    let volume = dc
        .storage
        .get(owner.host, &file)
        .ok_or_else(|| ApiError::server(format!("volume '{file}' does not exist")))?;
    drive.set_size(volume.size);
    Ok(Made { text: drive.to_string(), ..Made::default() })
}

fn import(
    dc: &mut Datacentre,
    ground: &mut Ground,
    owner: Owner,
    mut drive: Drive,
    wish: &Wish,
    source: &str,
) -> Result<Made, ApiError> {
    let storage = wished_storage(wish, owner)?;
    if VolumeId::read(source).is_none() {
        // The lab's hosts have no files besides those on storages.
        return Err(ApiError::server(format!("failed to stat '{source}'")));
    }
    let found = dc.storage.look_up(source).map_err(ApiError::server)?;
    if found.name.kind == ContentType::Import {
        check_image(dc, owner.host, source)?;
    }
    let prefixed =
        |error: ApiError| ApiError::server(format!("cannot import from '{source}' - {}", error.message));
    if crate::pve::drive::is_cloud_init_volume(source) {
        return Err(prefixed(ApiError::server("cannot import from cloudinit disk")));
    }
    let format = drive.remove("format");
    let source_drive = source_drive(dc, source);
    let copy = Copy {
        source: source_drive.unwrap_or_else(|| Drive::of_volume("", source)),
        snapshot: None,
        vmid: owner.vmid,
        slot: &drive.slot,
        storage: Some(&storage),
        format: format.as_deref(),
        efi_size: efi_size(&drive),
    };
    let mut made = copy_drive(dc, ground, owner.host, &copy).map_err(prefixed)?;
    made.copying = made.copying.max(IMPORTING).min(made.copying + IMPORTING);
    let copied = Drive::read(&drive.slot, &made.text);
    if let Some(copied) = copied {
        drive.set("file", copied.file());
        drive.set_size(copied.size().unwrap_or_default());
    }
    made.text = drive.to_string();
    made.late.push(format!("{}: successfully created disk '{}'", drive.slot, made.text));
    Ok(made)
}

/// Returns the drive of a VM that names a volume.
fn source_drive(dc: &Datacentre, volume: &str) -> Option<Drive> {
    let owner = dc.storage.look_up(volume).ok()?.name.owner.and_then(VmId::new)?;
    dc.vms.get(&owner)?.config.drives().into_iter().find(|drive| drive.file() == volume)
}

/// Checks an image from outside as `qemu-img` would.
fn check_image(dc: &Datacentre, host: &str, volume: &str) -> Result<(), ApiError> {
    let path = dc.storage.path(volume).map_err(ApiError::server)?;
    let there =
        dc.storage.get(host, volume).ok_or_else(|| ApiError::server(format!("failed to stat '{path}'")))?;
    let format = dc.storage.look_up(volume).map_err(ApiError::server)?.name.format;
    check_image_facts(&path, &format, there.file.as_ref())
}

/// Checks what is known of an image against the format that its name says.
pub fn check_image_facts(
    path: &str,
    format: &str,
    facts: Option<&crate::pve::storage::shelves::FileFacts>,
) -> Result<(), ApiError> {
    let Some(facts) = facts else { return Ok(()) };
    if ["qcow2", "vmdk"].contains(&format) && facts.image.as_deref() != Some(format) {
        let wrong = match format {
            "qcow2" => "Image is not in qcow2 format",
            _ => "Could not find a VMDK image",
        };
        return Err(ApiError::server(format!("qemu-img: Could not open '{path}': {wrong}")));
    }
    if format != "raw" && facts.backing.is_some() {
        return Err(ApiError::server(format!("backing file not allowed for untrusted image '{path}'!")));
    }
    Ok(())
}

/// A copy of a drive to be made.
#[derive(Debug, Clone)]
pub struct Copy<'a> {
    /// The drive; its slot is empty when no VM names the volume.
    pub source: Drive,
    /// The snapshot to copy.
    pub snapshot: Option<&'a str>,
    /// The VM that gets the copy.
    pub vmid: VmId,
    /// The slot of the copy.
    pub slot: &'a str,
    /// The storage; that of the source when absent.
    pub storage: Option<&'a str>,
    /// The format; that of the source when absent.
    pub format: Option<&'a str>,
    /// How large the firmware's variables are.
    pub efi_size: u64,
}

/// Copies a drive.
pub fn copy_drive(
    dc: &mut Datacentre,
    ground: &mut Ground,
    host: &str,
    copy: &Copy,
) -> Result<Made, ApiError> {
    let source = copy.source.file().to_owned();
    let from = if copy.source.slot.is_empty() { String::new() } else { format!("{} ", copy.source.slot) };
    let mut early = vec![format!("create full clone of drive {from}({source})")];
    let found = dc.storage.look_up(&source).map_err(ApiError::server)?;
    let storage = copy.storage.unwrap_or(&found.id.storage).to_owned();
    let definition = dc.storage.definition(&storage).map_err(ApiError::server)?;
    let format = definition.format_for(copy.format.unwrap_or(&found.name.format)).to_owned();
    let files = definition.naming().is_files();
    if let Some(wished) = copy.format.filter(|wished| *wished != format) {
        early.push(format!(
            "format '{wished}' is not supported by the target storage '{storage}' - using '{format}' instead"
        ));
    }
    let cloud_init = copy.source.is_cloud_init();
    let there = dc.storage.get(host, &source);
    let size = match copy.slot {
        _ if cloud_init => CLOUD_INIT_SIZE,
        "efidisk0" => copy.efi_size,
        "tpmstate0" => TPM_SIZE,
        _ => there.map_or(0, Volume::disk_size),
    };
    if there.is_none() && !cloud_init {
        return Err(ApiError::server(format!("volume '{source}' does not exist")));
    }
    let (content, data) = there.map_or((None, 0), |volume| {
        let content = match copy.snapshot {
            Some(name) => volume.snapshots.get(name).map_or(volume.content, |(_, content)| *content),
            None => volume.content,
        };
        let data = volume.file.as_ref().map_or_else(|| data_size(&ground.media, content), |facts| facts.data);
        (Some(content), data)
    });
    let raw_source = found.name.format == "raw";
    let source_used = there.map_or(0, |volume| volume.used);
    let suffix = if files { format!(".{format}") } else { String::new() };
    let name = cloud_init.then(|| format!("vm-{}-cloudinit{suffix}", copy.vmid));
    let wish = NewVolume {
        storage: &storage,
        owner: copy.vmid.number(),
        format: &format,
        name: name.as_deref(),
        kib: size / 1024,
    };
    let done = alloc(dc, ground, host, &wish)?;
    early.extend(done.printed);
    early.push(format!("allocated target volume '{}'", done.volume));
    let mut late = Vec::new();
    if !cloud_init && copy.slot != "efidisk0" {
        late = transferred(size, raw_source);
    }
    fill(
        dc,
        ground,
        host,
        &done.volume,
        content.filter(|_| !cloud_init),
        data,
        raw_source && source_used > 0,
    )?;
    let mut drive = Drive::read(copy.slot, &copy.source.to_string()).unwrap_or(copy.source.clone());
    drive.remove("format");
    drive.set("file", done.volume.clone());
    if !copy.source.slot.starts_with("unused") {
        drive.set_size(dc.storage.get(host, &done.volume).map_or(size, |volume| volume.size));
    }
    let copying = if cloud_init { Duration::ZERO } else { copying_time(data) };
    Ok(Made { text: drive.to_string(), volumes: vec![done.volume], early, late, copying })
}

/// Puts a copied content onto a new volume.
fn fill(
    dc: &mut Datacentre,
    ground: &mut Ground,
    host: &str,
    volume: &str,
    content: Option<ContentId>,
    data: u64,
    touched: bool,
) -> Result<(), ApiError> {
    let found = dc.storage.look_up(volume).map_err(ApiError::server)?;
    let Some(content) = content else { return Ok(()) };
    let room = dc.storage.shelf(&found.id.storage, host).map_or(0, Shelf::free);
    if room < data {
        // Not recorded; the words are those of `qemu-img`.
        let text = "copy failed: command '/usr/bin/qemu-img convert' failed: No space left on device";
        let _ = dc.storage.free(host, volume, &mut ground.media);
        return Err(ApiError::server(text));
    }
    ground.needs(&format!("content {}", content.0));
    let copied = ground.media.copy(content);
    if let Some(there) = dc.storage.get_mut(host, volume) {
        ground.media.remove(there.content);
        there.content = copied;
        there.used = match there.format.as_str() {
            "qcow2" => {
                let fresh = fresh_size(found.naming, "qcow2", there.size);
                fresh + data + if touched && there.size >= 1 << 30 { 65_536 } else { 0 }
            }
            _ => data,
        };
    }
    Ok(())
}

fn data_size(media: &Media, content: ContentId) -> u64 {
    match media.get(content) {
        Content::Blank => 0,
        // An image of which nothing but the file is known is taken as empty.
        Content::Bytes(bytes) if bytes.starts_with(b"QFI\xfb") => 0,
        Content::Bytes(bytes) => bytes.len() as u64,
        Content::Image(image) => image.virtual_size.min(1 << 30),
        Content::Installed(installed) => installed.image.virtual_size.min(2 << 30),
    }
}

fn copying_time(data: u64) -> Duration {
    COPYING.max(Duration::from_secs(data / COPIED_PER_SECOND))
}

/// Makes a linked clone of a drive.
pub fn link_drive(
    dc: &mut Datacentre,
    ground: &mut Ground,
    host: &str,
    source: &Drive,
    vmid: VmId,
    snapshot: Option<&str>,
) -> Result<Made, ApiError> {
    let mut early = vec![format!("create linked clone of drive {} ({})", source.slot, source.file())];
    let now = ground.now.unix_seconds();
    let done = dc
        .storage
        .link(host, now, &mut ground.media, source.file(), vmid.number(), snapshot)
        .map_err(ApiError::server)?;
    early.extend(done.printed);
    let mut drive = source.clone();
    drive.remove("format");
    drive.set("file", done.volume.clone());
    if let Some(volume) = dc.storage.get(host, &done.volume) {
        drive.set_size(volume.size);
    }
    let copying = Duration::from_millis(500);
    Ok(Made { text: drive.to_string(), volumes: vec![done.volume], early, late: Vec::new(), copying })
}

/// What `qemu-img` prints while it copies: for a raw source the end is told twice (seen).
fn transferred(size: u64, raw_source: bool) -> Vec<String> {
    let all = rendered(size);
    let end = format!("transferred {all} of {all} (100.00%)");
    let mut lines = vec![format!("transferred 0.0 B of {all} (0.00%)"), end.clone()];
    if raw_source {
        lines.push(end);
    }
    lines
}

/// Writes bytes with one decimal and a unit.
pub fn rendered(bytes: u64) -> String {
    let mut unit = "B";
    let mut divisor = 1u64;
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB"] {
        if bytes / divisor < 1024 {
            break;
        }
        divisor = divisor.saturating_mul(1024);
        unit = next;
    }
    let tenths = u128::from(bytes) * 10 / u128::from(divisor);
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

/// Returns how large the variables of a VM's firmware are.
pub fn efi_size_of(config: &Section) -> u64 {
    let drive = config.get("efidisk0").and_then(|text| Drive::read("efidisk0", text));
    drive.map_or(131_072, |drive| efi_size(&drive))
}

/// Returns the lock of a storage, for a process on a host.
pub fn storage_lock(dc: &Datacentre, host: &str, storage: &str) -> (crate::pve::Lock, Mode) {
    let shared = dc.storage.definition(storage).is_ok_and(Definition::is_shared);
    (crate::pve::Lock::storage(host, storage, shared), Mode::Exclusive)
}

/// Returns the properties of a machine type, such as `q35,viommu=intel`.
pub fn machine(option: Option<&str>) -> Properties {
    Properties::read(super::property::Shape::plain("type"), option.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_with_one_decimal() {
        assert_eq!(
            [0, 131_072, 64 << 20, 1 << 30, 1536].map(rendered),
            ["0.0 B", "128.0 KiB", "64.0 MiB", "1.0 GiB", "1.5 KiB"]
        );
    }

    #[test]
    fn a_raw_source_tells_its_end_twice() {
        assert_eq!(transferred(64 << 20, false).len(), 2);
        assert_eq!(transferred(64 << 20, true).len(), 3);
    }
}
