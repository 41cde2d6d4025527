//! Drives of a VM.

use ichor_model::desired::{Bios, Board, Disk, Machine};

use super::Wish;
use crate::property::{Drive, DriveSource};

/// Where optical drives of a machine are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slots {
    /// The installer's.
    pub installer: String,
    /// That of Proxmox's cloud-init drive, or of a cidata volume: they exclude each other.
    pub cidata: String,
}

impl Slots {
    /// A q35 board has `ide0` and `ide2` alone; Arm boards have no IDE, but room behind the disks.
    pub(super) fn of(machine: &Machine) -> Self {
        if machine.vm.machine != Board::Virt {
            return Self { installer: "ide0".into(), cidata: "ide2".into() };
        }
        let mut free = (0..=30_u8)
            .rev()
            .map(|number| format!("scsi{number}"))
            .filter(|slot| machine.disks.iter().all(|disk| disk.slot != *slot));
        let mut next = || free.next().unwrap_or_else(|| "scsi30".into());
        Self { cidata: next(), installer: next() }
    }
}

/// Writes a disk.
///
/// It gets no serial number: with one, the guest would find it under that, and no longer under its slot.
pub fn text(disk: &Disk, source: DriveSource) -> Drive {
    let options = &disk.options;
    let mut drive = Drive::new(source);
    let switches = [("backup", options.backup, true), ("replicate", options.replicate, true)];
    for (key, on, usual) in switches.into_iter().chain([("iothread", options.iothread, false)]) {
        if on != usual {
            drive = drive.with(key, u8::from(on));
        }
    }
    if options.ssd && !disk.slot.starts_with("virtio") {
        drive = drive.with("ssd", 1);
    }
    if options.discard {
        drive = drive.with("discard", "on");
    }
    match &options.cache {
        Some(cache) => drive.with("cache", cache),
        None => drive,
    }
}

/// Returns the source of a new, empty disk. Sizes are whole GiB; a part of one would be rounded up.
pub fn empty(disk: &Disk) -> DriveSource {
    DriveSource::New { storage: disk.storage.clone(), gib: gib(disk) }
}

/// Returns the size of a disk.
pub fn gib(disk: &Disk) -> u64 {
    disk.size.mib().div_ceil(1024)
}

/// Returns the drives that firmware keeps its variables and keys in.
///
/// Talos brings its own keys for secure boot, and enrols them into firmware that has none.
pub fn firmware(machine: &Machine) -> Vec<Wish> {
    let system = machine.disks.first().map(|disk| disk.storage.as_str()).unwrap_or_default();
    let storage = machine.vm.efi_storage.as_deref().unwrap_or(system);
    let new = || Drive::new(DriveSource::New { storage: storage.to_owned(), gib: 1 });
    let mut wishes = Vec::new();
    if machine.vm.bios == Bios::Ovmf {
        wishes.push(Wish::new("efidisk0", new().with("efitype", "4m").with("pre-enrolled-keys", 0)));
    }
    if machine.vm.tpm {
        wishes.push(Wish::new("tpmstate0", new().with("version", "v2.0")));
    }
    wishes
}

/// Returns Proxmox's own cloud-init drive.
pub fn cloudinit(machine: &Machine) -> Option<Wish> {
    let storage = machine.vm.cloudinit_storage.as_ref()?;
    let drive = Drive::new(DriveSource::Volume(format!("{storage}:cloudinit")));
    Some(Wish::new(Slots::of(machine).cidata, drive))
}

/// Writes an optical drive with a volume in it.
pub fn optical(volume: &str) -> Drive {
    Drive::new(DriveSource::Volume(volume.to_owned())).with("media", "cdrom")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn optical_drives_are_never_where_a_disk_is() {
        let mut machine = sample::machine();
        let slots = Slots::of(&machine);
        assert_eq!((slots.installer.as_str(), slots.cidata.as_str()), ("ide0", "ide2"));
        machine.vm.machine = Board::Virt;
        machine.disks.push(sample::disk("scsi30", "data", 10));
        let slots = Slots::of(&machine);
        assert_eq!((slots.installer.as_str(), slots.cidata.as_str()), ("scsi28", "scsi29"));
    }

    #[test]
    fn disks_say_only_what_is_unusual() {
        let mut disk = sample::disk("scsi1", "data", 10);
        assert_eq!(text(&disk, empty(&disk)).to_string(), "local-lvm:10,discard=on");
        (disk.options.backup, disk.options.ssd, disk.options.discard) = (false, true, false);
        disk.options.cache = Some("writeback".into());
        assert_eq!(text(&disk, empty(&disk)).to_string(), "local-lvm:10,backup=0,cache=writeback,ssd=1");
    }
}
