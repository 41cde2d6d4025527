use ichor_model::HostName;
use ichor_plan::files::{has_seed, image_file, image_volume, seed_volume, template_host, users_of};

use crate::stage::{CLONED, POOLED, Stage};

#[test]
fn the_name_of_an_image_says_all_that_makes_its_content() {
    let stage = Stage::of(POOLED);
    let mut image = stage.desired.images[0].clone();
    let schematic = "0123456789abcdef".repeat(4);
    let plain = image_file(&image, &schematic);
    assert_eq!(plain, "ichor-talos-v1.13.9-nocloud-amd64-0123456789abcdef01234567.qcow2");
    assert_eq!(image_volume(&image, &schematic, "local"), format!("local:import/{plain}"));
    image.secureboot = true;
    assert_eq!(
        image_file(&image, &schematic),
        "ichor-talos-v1.13.9-nocloud-amd64-secureboot-0123456789abcdef01234567.qcow2"
    );
    image.source = ichor_model::desired::ImageSource::Iso;
    assert_eq!(
        image_volume(&image, &schematic, "nas"),
        "nas:iso/ichor-talos-v1.13.9-nocloud-amd64-secureboot-0123456789abcdef01234567.iso"
    );
    image.file = Some("local:iso/mine.iso".into());
    assert_eq!(image_volume(&image, &schematic, "nas"), "local:iso/mine.iso");
}

/// Proxmox replaces other characters, and a file of another name would never be found.
#[test]
fn names_of_files_have_only_characters_that_proxmox_keeps() {
    for (name, stage) in Stage::all() {
        for (_, volume) in stage.observed.volumes.keys() {
            let (_, file) = volume.rsplit_once('/').expect("a file");
            assert!(file.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c)), "{name}: {file}");
        }
    }
}

#[test]
fn each_machine_has_a_cidata_volume_of_its_own() {
    let stage = Stage::of(POOLED);
    let machine = stage.machine("cp-1");
    let host = machine.host.known().expect("a host");
    assert!(has_seed(machine));
    let volume = seed_volume(&stage.desired, machine, host, &stage.names);
    assert_eq!(volume, format!("local:iso/ichor-cidata-cp-1-{}-abc.iso", machine.uuid));
    assert!(!Stage::of(CLONED).desired.machines.iter().any(has_seed));
}

#[test]
fn a_template_is_looked_for_where_it_is() {
    let mut stage = Stage::of(CLONED).ready();
    let own = stage.desired.templates.iter().find(|template| !template.existing).expect("one").clone();
    let users = |stage: &Stage| users_of(&stage.desired, &stage.observed, &stage.desired.images[0]);
    stage.vm(own.vmid).host = "pve7".parse().expect("a name");
    assert_eq!(template_host(&stage.desired, &stage.observed, &own).map(HostName::as_str), Some("pve7"));
    assert!(users(&stage).iter().any(|host| host.as_str() == "pve7"));
    stage.vm(own.vmid).owner = ichor_model::observed::Owner::OtherCluster("y".into());
    assert_eq!(template_host(&stage.desired, &stage.observed, &own), stage.machine("cp").host.known());
}
