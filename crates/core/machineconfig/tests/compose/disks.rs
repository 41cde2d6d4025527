//! Disks: no selector may ever choose another disk than the one it is for.

use ichor_model::{Minor, desired::Machine};
use serde_json::Value;

use crate::support::{RELEASES, machine, resolve, rich, with_composer};
use ichor_machineconfig::generate::DiskPlace;

/// A disk as Talos sees it.
struct Seen {
    slot: String,
    dev_path: String,
    bus_path: String,
    symlinks: Vec<String>,
    system: bool,
}

/// What the guest of a machine sees: its disks, a disk that the CSI plugin attached later, a CD-ROM and a
/// loop device. Linux found the disks in an order of its own.
fn guest(machine: &Machine, trailing: &str) -> Vec<Seen> {
    let single = machine.vm.scsi_controller == "virtio-scsi-single";
    let virtio = machine.vm.scsi_controller.starts_with("virtio-scsi");
    let slots = machine.disks.iter().map(|disk| disk.slot.clone()).chain(["scsi17".to_owned()]);
    let mut slots: Vec<String> = slots.collect();
    slots.reverse();
    let disks = slots.into_iter().zip('a'..).map(|(slot, letter)| {
        let n: usize = slot["scsi".len()..].parse().unwrap();
        let host = if single { 10 - n.min(9) } else { 2 };
        let controller = if virtio { format!("/virtio{host}") } else { String::new() };
        let (target, lun) = if virtio { (0, n) } else { (n, 0) };
        Seen {
            dev_path: format!("/dev/sd{letter}"),
            bus_path: format!(
                "/pci0000:00/0000:00:1e.0/0000:05:0{}.0{controller}/host{host}/target{host}:0:{target}/{host}:0:{target}:{lun}{trailing}",
                n % 8
            ),
            symlinks: vec![
                format!("/dev/disk/by-diskseq/{}", n + 1),
                format!("/dev/disk/by-id/scsi-0QEMU_QEMU_HARDDISK_drive-{slot}"),
            ],
            system: slot == "scsi0",
            slot,
        }
    });
    let other = |slot: &str, dev: &str, path: &str| Seen {
        slot: slot.into(),
        dev_path: dev.into(),
        bus_path: format!("{path}{trailing}"),
        symlinks: Vec::new(),
        system: false,
    };
    let cd = other("ide2", "/dev/sr0", "/pci0000:00/0000:00:1f.2/ata3/host0/target0:0:0/0:0:0:0");
    disks.chain([cd, other("loop0", "/dev/loop0", "/virtual")]).collect()
}

/// Patterns as Talos matches them: a star stands for anything.
fn glob(pattern: &str, text: &str) -> bool {
    let parts: Vec<&str> = pattern.split('*').collect();
    let [first, middle @ .., last] = parts.as_slice() else { return pattern == text };
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    for part in middle {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Evaluates the expressions that ichor writes, and no others.
fn holds(expression: &str, disk: &Seen) -> bool {
    expression.split(" && ").all(|term| {
        let text = |term: &str| term.trim_matches('"').to_owned();
        if term == "!system_disk" {
            !disk.system
        } else if let Some(rest) = term.strip_prefix("glob(\"") {
            glob(rest.strip_suffix("\", disk.bus_path)").expect("a pattern"), &disk.bus_path)
        } else if let Some(link) = term.strip_suffix(" in disk.symlinks") {
            disk.symlinks.contains(&text(link))
        } else {
            disk.dev_path == text(term.strip_prefix("disk.dev_path == ").expect("a known term"))
        }
    })
}

fn chosen(disks: &[Seen], matches: impl Fn(&Seen) -> bool) -> Vec<&str> {
    disks.iter().filter(|disk| matches(disk)).map(|disk| disk.slot.as_str()).collect()
}

/// Documents of a config as JSON, made from its text.
fn documents(text: &str) -> Vec<Value> {
    text.split("---\n").map(|document| serde_saphyr::from_str(document).expect("YAML")).collect()
}

#[test]
fn selectors_choose_their_own_disk_and_no_other() {
    for controller in ["virtio-scsi-pci", "virtio-scsi-single", "lsi", "megasas", "pvscsi"] {
        for (talos, kubernetes) in RELEASES {
            let inventory = rich(talos, kubernetes, "").replace(
                "    role: worker\n",
                &format!("    role: worker\n    scsi_controller: {controller}\n"),
            );
            with_composer(&inventory, &[], |desired, composer| {
                let worker = machine(desired, "worker-1");
                let trailing = if desired.cluster.talos.minor() == Minor::new(1, 8) { "/" } else { "" };
                let guest = guest(worker, trailing);
                let made = composer.unwrap().machine(worker).unwrap();
                let what = format!("{controller} {talos}");
                check(&what, &documents(made.text().expose()), &guest);
            });
        }
    }
}

fn check(what: &str, documents: &[Value], guest: &[Seen]) {
    let machine = &documents[0]["machine"];
    let by_id = |device: &Value| {
        let device = device.as_str().expect("a device").to_owned();
        chosen(guest, |disk| disk.symlinks.contains(&device))
    };
    let install = &machine["install"];
    let unattended = documents.iter().find(|document| document["kind"] == "UnattendedInstallConfig");
    let system = match unattended {
        Some(document) => {
            let expression = document["provisioning"]["diskSelector"]["match"].as_str().expect("a match");
            chosen(guest, |disk| holds(expression, disk))
        }
        None if install["disk"].is_string() => by_id(&install["disk"]),
        None => {
            let pattern = install["diskSelector"]["busPath"].as_str().expect("a pattern");
            chosen(guest, |disk| glob(pattern, &disk.bus_path))
        }
    };
    assert_eq!(system, ["scsi0"], "{what}");
    let mut data = Vec::new();
    for disk in machine["disks"].as_array().into_iter().flatten() {
        data.push(by_id(&disk["device"]));
    }
    for volume in documents.iter().filter(|document| document["kind"] == "UserVolumeConfig") {
        let expression = volume["provisioning"]["diskSelector"]["match"].as_str().expect("a match");
        data.push(chosen(guest, |disk| holds(expression, disk)));
        // Even where the system's place were another's, it is not taken.
        assert!(expression.starts_with("!system_disk && "), "{what}");
    }
    assert_eq!(data, [["scsi1"], ["scsi3"]], "{what}: `scratch`, scsi2, is left alone");
}

#[test]
fn every_slot_of_a_controller_has_a_pattern_of_its_own() {
    let mut desired = resolve(&rich("v1.13.9", "v1.36.3", ""));
    let worker = desired.machines.iter_mut().find(|machine| machine.name.as_str() == "worker-1").unwrap();
    let template = worker.disks[1].clone();
    for n in worker.disks.len()..=16 {
        let mut disk = template.clone();
        disk.slot = format!("scsi{n}");
        worker.disks.push(disk);
    }
    let guest = guest(worker, "");
    for disk in &worker.disks {
        let expression = DiskPlace::new(worker, disk).expression();
        assert_eq!(chosen(&guest, |seen| holds(&expression, seen)), [disk.slot.as_str()]);
    }
}

#[test]
fn a_disk_partitioned_the_older_way_stays_so_after_an_upgrade() {
    let upgraded = rich("v1.13.9", "v1.36.3", "")
        .replace("name: homelab", "name: homelab\n  contract: '1.9'")
        .replace("filesystem: ext4", "mount: /var/lib/data");
    with_composer(&upgraded, &[], |desired, composer| {
        let made = composer.unwrap().machine(machine(desired, "worker-1")).unwrap();
        assert_eq!(made.config.of_kind("UserVolumeConfig").count(), 0);
        assert!(made.config.legacy_value("machine.disks").is_some());
    });
}

#[test]
fn a_filesystem_that_cannot_be_is_refused() {
    let cases = [
        ("v1.9.5", "v1.32.4", "mount: /var/lib/data", "filesystem: ext4"),
        ("v1.13.9", "v1.36.3", "filesystem: ext4", "filesystem: ext4, mount: /var/lib/data"),
    ];
    for (talos, kubernetes, written, wanted) in cases {
        let inventory = rich(talos, kubernetes, "").replace(written, wanted);
        with_composer(&inventory, &[], |desired, composer| {
            let findings = composer.unwrap().machine(machine(desired, "worker-1")).unwrap_err();
            let codes: Vec<String> = findings.iter().map(|finding| finding.code.to_string()).collect();
            assert_eq!(codes, ["ICH-2010"], "{talos}");
        });
    }
}
