//! The boot order of a VM.

use super::{
    config::{Section, drives},
    network::is_net,
    property::{Properties, Shape},
};
use crate::pve::{drive::is_slot, params::split_list};

const SHAPE: Shape = Shape::plain("legacy");

/// Returns the devices of an option such as `order=scsi0;net0`.
pub fn order(option: Option<&str>) -> Vec<String> {
    let Some(option) = option else { return Vec::new() };
    Properties::read(SHAPE, option).get("order").map(split_list).unwrap_or_default()
}

/// Writes a boot order.
pub fn written(devices: &[String]) -> String {
    if devices.is_empty() { String::new() } else { format!("order={}", devices.join(";")) }
}

/// Returns the order that a new VM gets: its first disk, its first disc, its first card.
pub fn default_order(section: &Section) -> Vec<String> {
    let drives = drives(section);
    let bootable = |disc: bool| {
        drives
            .iter()
            .find(|drive| {
                drive.is_disc() == disc
                    && !drive.slot.starts_with("efidisk")
                    && !drive.slot.starts_with("tpmstate")
            })
            .map(|drive| drive.slot.clone())
    };
    let net = (0..32).map(|number| format!("net{number}")).find(|key| section.contains_key(key));
    [bootable(false), bootable(true), net].into_iter().flatten().collect()
}

/// Returns the drives that a VM boots from.
pub fn boot_drives(section: &Section) -> Vec<String> {
    let option = section.get("boot").map(String::as_str);
    match option.map(|option| Properties::read(SHAPE, option)) {
        Some(boot) if boot.get("legacy").is_none() => {
            order(option).into_iter().filter(|device| is_slot(device)).collect()
        }
        _ => section.get("bootdisk").cloned().into_iter().collect(),
    }
}

/// Returns the devices that firmware tries, in order.
pub fn boot_order(section: &Section) -> Vec<String> {
    let option = section.get("boot").map(String::as_str);
    let boot = option.map(|option| Properties::read(SHAPE, option)).unwrap_or_default();
    if boot.get("order").is_some() || option.is_some() && boot.get("legacy").is_none() {
        return order(option);
    }
    let drives = drives(section);
    let mut devices = Vec::new();
    for letter in boot.get("legacy").unwrap_or("cdn").chars() {
        match letter {
            'c' => devices.extend(section.get("bootdisk").cloned()),
            'd' => devices
                .extend(drives.iter().filter(|drive| drive.is_plain_disc()).map(|drive| drive.slot.clone())),
            'n' => devices.extend(section.keys().filter(|key| is_net(key)).cloned()),
            _ => {}
        }
    }
    devices
}

/// Returns the size of the disk that a VM boots from, as its config tells it.
pub fn boot_disk_size(section: &Section) -> u64 {
    let drives = drives(section);
    boot_drives(section)
        .iter()
        .filter_map(|slot| drives.iter().find(|drive| drive.slot == *slot && !drive.is_disc()))
        .find(|drive| !drive.file().is_empty())
        .and_then(crate::pve::drive::Drive::size)
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(pairs: &[(&str, &str)]) -> Section {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_new_vm_boots_from_disk_disc_and_net() {
        let vm = section(&[
            ("scsi0", "data:401/vm-401-disk-0.raw,size=1G"),
            ("ide2", "local:iso/talos.iso,media=cdrom,size=98K"),
            ("net0", "virtio=02:00:00:00:00:01,bridge=vmbr0"),
            ("efidisk0", "data:401/vm-401-disk-1.raw,size=528K"),
        ]);
        assert_eq!(written(&default_order(&vm)), "order=scsi0;ide2;net0");
        assert_eq!(written(&default_order(&section(&[]))), "");
    }

    #[test]
    fn the_size_is_that_of_the_first_disk_in_the_order() {
        let mut vm = section(&[
            ("boot", "order=net0;scsi1"),
            ("scsi1", "data:x,size=2G"),
            ("scsi0", "data:y,size=1G"),
        ]);
        assert_eq!(boot_disk_size(&vm), 2 << 30);
        vm.insert("boot".into(), " ".into());
        assert_eq!(boot_disk_size(&vm), 0);
        vm.remove("boot");
        vm.insert("bootdisk".into(), "scsi0".into());
        assert_eq!(boot_disk_size(&vm), 1 << 30);
    }
}
