//! Drives of a VM: disks, discs, the EFI disk and the TPM's state.

use std::fmt;

use crate::pve::{
    qemu::property::{Properties, Shape, gib_to_kib, parse_size, size_text},
    storage::volume::VolumeId,
};

const SHAPE: Shape = Shape {
    main: "file",
    aliases: &[
        ("volume", "file"),
        ("bps_rd_length", "bps_rd_max_length"),
        ("bps_wr_length", "bps_wr_max_length"),
        ("iops_rd_length", "iops_rd_max_length"),
        ("iops_wr_length", "iops_wr_max_length"),
    ],
    flags: &[
        "backup",
        "detect_zeroes",
        "iothread",
        "pre-enrolled-keys",
        "replicate",
        "ro",
        "scsiblock",
        "shared",
        "snapshot",
        "ssd",
    ],
};

/// Limits that need another one beside them, and pairs that exclude each other: a drive that breaks one of
/// these is not parsed by the server.
const NEEDS: [(&str, &str); 9] = [
    ("mbps_max", "mbps"),
    ("mbps_rd_max", "mbps_rd"),
    ("mbps_wr_max", "mbps_wr"),
    ("bps_max_length", "mbps_max"),
    ("bps_rd_max_length", "mbps_rd_max"),
    ("bps_wr_max_length", "mbps_wr_max"),
    ("iops_max_length", "iops_max"),
    ("iops_rd_max_length", "iops_rd_max"),
    ("iops_wr_max_length", "iops_wr_max"),
];
const EXCLUDES: [(&str, &str); 4] =
    [("mbps_rd", "mbps"), ("mbps_wr", "mbps"), ("iops_rd", "iops"), ("iops_wr", "iops")];

/// The buses, in the order in which the server looks for a disk to boot from, with their numbers of slots.
pub const BUSES: [(&str, u32); 6] =
    [("ide", 4), ("scsi", 31), ("virtio", 16), ("sata", 6), ("efidisk", 1), ("tpmstate", 1)];

/// Returns all slots of drives in the server's order.
pub fn slots() -> impl Iterator<Item = String> {
    BUSES.iter().flat_map(|(bus, count)| (0..*count).map(move |number| format!("{bus}{number}")))
}

/// Returns whether a key of a VM config is a drive.
pub fn is_slot(key: &str) -> bool {
    numbered(key)
        .is_some_and(|(bus, number)| BUSES.iter().any(|(name, count)| *name == bus && number < *count))
}

/// Returns whether a key of a VM config is an unused volume.
pub fn is_unused(key: &str) -> bool {
    numbered(key).is_some_and(|(name, number)| name == "unused" && number < 256)
}

/// Splits a key such as `scsi0`.
pub fn numbered(key: &str) -> Option<(&str, u32)> {
    let digits = key.find(|c: char| c.is_ascii_digit())?;
    let (name, number) = key.split_at(digits);
    if number.len() > 1 && number.starts_with('0') {
        return None;
    }
    Some((name, number.parse().ok()?))
}

/// A drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drive {
    /// Its slot, such as `scsi0`.
    pub slot: String,
    options: Properties,
}

impl Drive {
    /// Reads a drive; absent when the server could not parse it.
    pub fn read(slot: &str, text: &str) -> Option<Self> {
        let mut options = Properties::read(SHAPE, text);
        options.get("file")?;
        for short in ["bps", "bps_rd", "bps_wr"] {
            let Some(value) = options.remove(short) else { continue };
            let long = format!("m{short}");
            if options.get(&long).is_some() {
                return None;
            }
            // The server divides a truth value here, so every limit becomes one byte per second.
            let _ = value;
            options.set(&long, "0.000");
        }
        let set = |key: &str| options.get(key).is_some_and(|value| value != "0" && !value.is_empty());
        if NEEDS.iter().any(|(key, needs)| set(key) && !set(needs))
            || EXCLUDES.iter().any(|(one, other)| set(one) && set(other))
        {
            return None;
        }
        let disc = options.get("media") == Some("cdrom");
        if disc && (set("snapshot") || set("format") || slot.starts_with("virtio")) {
            return None;
        }
        if let Some(size) = options.get("size") {
            let size = size_text(parse_size(size)?);
            options.set("size", size);
        }
        Some(Self { slot: slot.to_owned(), options })
    }

    /// Makes a drive of a volume alone.
    pub fn of_volume(slot: &str, volume: &str) -> Self {
        Self { slot: slot.to_owned(), options: Properties::read(SHAPE, &format!("file={volume}")) }
    }

    /// Returns what is in it: a volume, a path, `none`, `cdrom`, or the wish for a new volume.
    pub fn file(&self) -> &str {
        self.get("file").unwrap_or_default()
    }

    /// Returns the volume in it, if it is one.
    pub fn volume(&self) -> Option<VolumeId> {
        VolumeId::read(self.file())
    }

    /// Returns an option.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.options.get(key)
    }

    /// Returns whether a boolean option is set.
    pub fn flag(&self, key: &str) -> bool {
        self.options.flag(key)
    }

    /// Sets an option.
    pub fn set(&mut self, key: &str, value: impl Into<String>) {
        self.options.set(key, value);
    }

    /// Takes an option away.
    pub fn remove(&mut self, key: &str) -> Option<String> {
        self.options.remove(key)
    }

    /// Returns the size that stands in the config, in bytes.
    pub fn size(&self) -> Option<u64> {
        parse_size(self.get("size")?)
    }

    /// Writes the size in bytes.
    pub fn set_size(&mut self, bytes: u64) {
        self.set("size", size_text(bytes));
    }

    /// Returns whether it is an optical drive, be it of cloud-init.
    pub fn is_disc(&self) -> bool {
        self.get("media") == Some("cdrom")
    }

    /// Returns whether it is an optical drive that is not of cloud-init.
    pub fn is_plain_disc(&self) -> bool {
        self.is_disc() && !self.is_cloud_init()
    }

    /// Returns whether it is, or shall become, the drive of cloud-init.
    pub fn is_cloud_init(&self) -> bool {
        is_cloud_init_volume(self.file())
    }

    /// Returns the wish for a new volume: the storage, if one is named, and its size in GiB.
    pub fn wish(&self) -> Option<Wish> {
        let file = self.file();
        let (storage, size) = match file.rsplit_once(':') {
            Some((storage, size)) => (Some(storage), size),
            None => (None, file),
        };
        if storage.is_some_and(|name| {
            name.is_empty() || name.contains(['/', ':']) || name.contains(char::is_whitespace)
        }) {
            return None;
        }
        let (whole, fraction) =
            size.split_once('.').map_or((size, None), |(whole, rest)| (whole, Some(rest)));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        (digits(whole) && fraction.is_none_or(digits))
            .then(|| Wish { storage: storage.map(str::to_owned), gib: size.to_owned() })
    }

    /// Returns the wish for a new drive of cloud-init: the storage.
    pub fn cloud_init_wish(&self) -> Option<String> {
        self.volume().filter(|volume| volume.name == "cloudinit").map(|volume| volume.storage)
    }

    /// Returns the differences in options that only a restart of the VM takes over.
    pub fn differs_coldly(&self, other: &Self) -> bool {
        ["aio", "discard", "iothread", "queues", "product", "cache", "ssd", "vendor", "ro"]
            .iter()
            .any(|key| self.get(key) != other.get(key))
    }
}

impl fmt::Display for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.options.fmt(f)
    }
}

/// The wish for a new volume, as in `local-lvm:32`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// The storage.
    pub storage: Option<String>,
    /// The size in GiB, with decimals.
    pub gib: String,
}

impl Wish {
    /// Returns the size in KiB, rounded up; absent when it is too large to count.
    pub fn kib(&self) -> Option<u64> {
        gib_to_kib(&self.gib)
    }

    /// Returns whether the size is nothing, as an import wants it.
    pub fn is_zero(&self) -> bool {
        self.gib.bytes().all(|byte| matches!(byte, b'0' | b'.'))
    }
}

/// Returns whether a volume is a drive of cloud-init by its name.
pub fn is_cloud_init_volume(file: &str) -> bool {
    let Some(name) = file.rfind([':', '/']).map(|at| &file[at + 1..]) else { return false };
    let name = ["raw", "qcow2", "qcow", "qed", "vmdk", "cloop"]
        .iter()
        .find_map(|format| name.strip_suffix(&format!(".{format}")))
        .unwrap_or(name);
    let name = name
        .strip_prefix("vm-")
        .and_then(|rest| rest.split_once('-'))
        .filter(|(owner, _)| owner.bytes().all(|byte| byte.is_ascii_digit()))
        .map_or(name, |(_, rest)| rest);
    name == "cloudinit"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drive(text: &str) -> Drive {
        Drive::read("scsi0", text).expect("a drive")
    }

    #[test]
    fn a_drive_is_written_as_the_server_writes_it() {
        let mut read = drive("ssd=1,discard=on,file=data:1,serial=abc");
        assert_eq!(read.to_string(), "data:1,discard=on,serial=abc,ssd=1");
        read.set("file", "data:401/vm-401-disk-1.raw");
        read.set_size(1 << 30);
        assert_eq!(read.to_string(), "data:401/vm-401-disk-1.raw,discard=on,serial=abc,size=1G,ssd=1");
    }

    #[test]
    fn a_wish_for_a_volume_is_a_storage_and_a_size() {
        assert_eq!(drive("data:0.5").wish(), Some(Wish { storage: Some("data".into()), gib: "0.5".into() }));
        assert!(drive("data:0").wish().is_some_and(|wish| wish.is_zero()));
        for other in ["data:-1", "data:1 ", "data:abc", "data:401/vm-401-disk-0.raw", "none", "data:1."] {
            assert_eq!(drive(other).wish(), None, "{other}");
        }
    }

    #[test]
    fn drives_of_cloud_init_are_known_by_name() {
        for file in ["data:cloudinit", "data:401/vm-401-cloudinit.qcow2", "lvm:vm-401-cloudinit"] {
            assert!(drive(file).is_cloud_init(), "{file}");
        }
        assert!(!drive("data:401/vm-401-disk-0.raw").is_cloud_init());
        assert!(!drive("local:iso/mycloudinit.iso,media=cdrom").is_cloud_init());
    }

    #[test]
    fn what_the_server_cannot_parse_is_no_drive() {
        for text in ["data:1,mbps=1,mbps_rd=1", "none,media=cdrom,format=raw", "data:1,mbps_max=3", "size=1G"]
        {
            assert_eq!(Drive::read("scsi0", text), None, "{text}");
        }
    }

    #[test]
    fn slots_have_numbers_in_range() {
        assert!(is_slot("scsi30") && is_slot("efidisk0") && is_unused("unused255"));
        assert!(!is_slot("scsi31") && !is_slot("scsi01") && !is_slot("unused0") && !is_slot("scsihw"));
        assert_eq!(slots().next().as_deref(), Some("ide0"));
    }
}
