//! Disks: which one Talos is installed on, and what becomes of the others.
//!
//! Linux names SCSI disks in the order in which it finds them, so `/dev/sda` may be any of them. What
//! stays is the place that Proxmox gives a disk: `scsi3` is LUN 3 behind a virtio-scsi controller, and
//! its identification says `drive-scsi3` behind every controller.

use ichor_model::{
    Minor,
    desired::{Disk, Machine},
};
use serde_json::{Value, json};

use super::{Blueprint, V1_14, documents::document};

/// The first contract with volumes for users. The contract counts and not the Talos that runs: a disk that
/// was partitioned the older way is no volume, and an upgrade must not lose it.
const USER_VOLUMES: Minor = Minor::new(1, 10);
/// Where Talos mounts them.
const VOLUME_ROOT: &str = "/var/mnt/";
/// Any disk of a whole GiB has this much room, and XFS takes no less.
const LEAST_ROOM: &str = "300MiB";

/// Where a virtual disk is attached, which tells it from all others inside the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskPlace {
    slot: String,
    virtio_scsi: bool,
}

impl DiskPlace {
    /// Returns the place of a disk of a machine.
    pub fn new(machine: &Machine, disk: &Disk) -> Self {
        Self { slot: disk.slot.clone(), virtio_scsi: machine.vm.scsi_controller.starts_with("virtio-scsi") }
    }

    /// Returns the place of the system disk of machines that nobody knows yet.
    pub fn usual_system_disk() -> Self {
        Self { slot: "scsi0".into(), virtio_scsi: true }
    }

    /// Returns its number, if it is a SCSI disk.
    fn scsi(&self) -> Option<u8> {
        self.slot.strip_prefix("scsi")?.parse().ok()
    }

    /// Returns a pattern for the path on the guest's buses, where the place shows in it.
    ///
    /// The path ends in host, channel, target and LUN, as in `.../virtio2/host2/target2:0:0/2:0:0:1`. Only
    /// a CD-ROM has LUN 0 too, and it is behind another controller.
    fn bus_path(&self) -> Option<String> {
        self.scsi().filter(|_| self.virtio_scsi).map(|lun| format!("*/virtio*/host*/target*/*:0:0:{lun}"))
    }

    /// Returns a device path that leads to this disk and to no other.
    pub fn device(&self) -> String {
        match self.scsi() {
            Some(_) => format!("/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_drive-{}", self.slot),
            None => self.by_letter(),
        }
    }

    /// Disks that are not SCSI have nothing but their order: `virtio1` is `/dev/vdb`.
    fn by_letter(&self) -> String {
        let digits = self.slot.trim_start_matches(|c: char| !c.is_ascii_digit());
        let letter = digits.parse::<u8>().ok().and_then(|index| b'a'.checked_add(index)).unwrap_or(b'a');
        let driver = if self.slot.starts_with("virtio") { "vd" } else { "sd" };
        format!("/dev/{driver}{}", char::from(letter))
    }

    /// Returns an expression that is true of this disk alone.
    pub fn expression(&self) -> String {
        match (self.bus_path(), self.scsi()) {
            (Some(pattern), _) => format!("glob(\"{pattern}\", disk.bus_path)"),
            (None, Some(_)) => format!("\"{}\" in disk.symlinks", self.device()),
            (None, None) => format!("disk.dev_path == \"{}\"", self.device()),
        }
    }

    /// Returns the part of `machine.install` that chooses this disk.
    ///
    /// Talos 1.8 ends bus paths with a slash, which the last star allows for; no other LUN begins with 0.
    pub fn legacy_install(&self) -> (&'static str, Value) {
        match self.bus_path().filter(|_| self.scsi() == Some(0)) {
            Some(pattern) => ("diskSelector", json!({ "busPath": format!("{pattern}*") })),
            None => ("disk", self.device().into()),
        }
    }
}

/// Says why a disk cannot be mounted as asked.
pub fn refused(contract: Minor, disk: &Disk) -> Option<String> {
    let path = disk.mount.as_deref()?;
    let filesystem = disk.filesystem.as_deref().filter(|filesystem| *filesystem != "xfs")?;
    if is_volume(contract, disk, path) {
        return None;
    }
    Some(if contract < USER_VOLUMES {
        format!("configs of contract {contract} format disks with XFS alone, not with {filesystem}")
    } else {
        format!("Talos can mount {filesystem} at `{VOLUME_ROOT}{}` alone, not at `{path}`", disk.name)
    })
}

/// Whether a disk can be a volume of its own; what is mounted elsewhere takes the older way.
fn is_volume(contract: Minor, disk: &Disk, path: &str) -> bool {
    contract >= USER_VOLUMES && path.strip_prefix(VOLUME_ROOT) == Some(&disk.name)
}

/// Adds the machine's other disks.
pub fn extend(blueprint: &Blueprint, machine: &Machine, documents: &mut Vec<Value>) {
    let mounted: Vec<(&Disk, &str)> =
        machine.disks.iter().skip(1).filter_map(|disk| Some((disk, disk.mount.as_deref()?))).collect();
    let (volumes, older): (Vec<_>, Vec<_>) =
        mounted.iter().partition(|(disk, path)| is_volume(blueprint.contract, disk, path));
    if !older.is_empty() {
        let disks = older.iter().map(|(disk, path)| {
            json!({ "device": DiskPlace::new(machine, disk).device(), "partitions": [{ "mountpoint": path }] })
        });
        documents[0]["machine"]["disks"] = disks.collect();
    }
    if !mounted.is_empty() && blueprint.contract < V1_14 {
        let mounts = mounted.iter().map(|(_, path)| kubelet_mount(path));
        documents[0]["machine"]["kubelet"]["extraMounts"] = mounts.collect();
    }
    documents.extend(volumes.iter().map(|(disk, _)| volume(machine, disk)));
}

/// Pods that mount filesystems below such a path, as those of Longhorn do, need them to reach the host.
fn kubelet_mount(path: &str) -> Value {
    json!({ "destination": path, "type": "bind", "source": path, "options": ["bind", "rshared", "rw"] })
}

fn volume(machine: &Machine, disk: &Disk) -> Value {
    let place = DiskPlace::new(machine, disk).expression();
    let body = json!({
        "provisioning": {
            "diskSelector": { "match": format!("!system_disk && {place}") },
            "grow": true,
            "minSize": LEAST_ROOM,
        },
        "filesystem": { "type": disk.filesystem.as_deref().unwrap_or("xfs") },
    });
    document("UserVolumeConfig", Some(&disk.name), body)
}
