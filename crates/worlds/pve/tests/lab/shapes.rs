//! VMs in the lab become what their machines want, whichever way they are made.

use std::collections::BTreeMap;

use ichor_model::{
    VmId,
    desired::{Arch, CloneKind, Image, ImageSource, Late, Machine, PciAddress, Platform, Template},
};
use ichor_pve::{
    Exit, Params, api,
    api::VmConfig,
    machine::{Change, Changes, Media, Shape, System, TemplateShape, eject},
    ownership::{Whose, Why, whose},
};
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};

use super::{
    machines::{CLUSTER, any_machine},
    support::{Bench, IMAGE, ISO},
};

fn shape(machine: &Machine) -> Shape<'_> {
    Shape { claim: CLUSTER, pool: None, machine }
}

fn create(bench: &Bench, machine: &Machine, media: Media<'_>) -> VmConfig {
    let params = shape(machine).create(media);
    bench.finish(&api::create(&bench.host, machine.vmid, params));
    bench.config(machine.vmid)
}

/// Makes all changes, and returns what is different still.
fn settle(bench: &Bench, machine: &Machine) -> Vec<String> {
    let differences = shape(machine).differences(&bench.config(machine.vmid));
    let changes = Changes::of(&differences);
    bench.configure(machine.vmid, changes.options);
    bench.configure(machine.vmid, changes.drives);
    for (disk, gib) in changes.grow {
        let upid = bench.send(&api::resize(&bench.host, machine.vmid, &disk, gib)).expect("a task");
        bench.wait(&upid);
    }
    bench.configure(machine.vmid, changes.last);
    let left = shape(machine).differences(&bench.config(machine.vmid));
    left.iter().map(ToString::to_string).collect()
}

/// One machine, always the same.
fn some_machine() -> Machine {
    let mut runner = TestRunner::deterministic();
    let mut machine = any_machine().new_tree(&mut runner).expect("a machine").current();
    machine.vm.protection = false;
    machine
}

const IMPORTED: Media<'_> = Media { system: System::Import(IMAGE), cidata: None };

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_imported_machine_needs_nothing_but_growing_and_protection(machine in any_machine()) {
        let bench = Bench::new(1);
        let config = create(&bench, &machine, IMPORTED);
        prop_assert_eq!(whose(CLUSTER, &machine, machine.vmid, &config), Whose::Ours);
        for difference in shape(&machine).differences(&config) {
            let late = match difference.option.as_str() {
                "scsi0" => matches!(difference.change, Change::Grow { .. }),
                option => option == "protection",
            };
            prop_assert!(late, "{}", difference);
        }
        prop_assert_eq!(settle(&bench, &machine), Vec::<String>::new());
    }

    #[test]
    fn an_installed_machine_needs_nothing_but_protection(machine in any_machine()) {
        let bench = Bench::new(2);
        let media = Media { system: System::Installer(ISO), cidata: None };
        create(&bench, &machine, media);
        let slots = shape(&machine).slots();
        bench.configure(machine.vmid, eject(&slots.installer));
        let differences = shape(&machine).differences(&bench.config(machine.vmid));
        let options: Vec<&str> = differences.iter().map(|it| it.option.as_str()).collect();
        prop_assert!(options.iter().all(|option| *option == "protection"), "{:?}", options);
        prop_assert_eq!(settle(&bench, &machine), Vec::<String>::new());
    }

    #[test]
    fn a_clone_becomes_the_machine(machine in any_machine(), full in any::<bool>()) {
        let bench = Bench::new(3);
        let mut machine = machine;
        let storage = if full { "local-lvm" } else { "shared" };
        machine.disks[0].storage = if full { machine.disks[0].storage.clone() } else { storage.into() };
        make_template(&bench, storage);
        bench.finish(&api::clone(&bench.host, template_vmid(), &shape(&machine).cloned(full)));
        let config = bench.config(machine.vmid);
        prop_assert_eq!(whose(CLUSTER, &machine, machine.vmid, &config), Whose::OursUnfinished);
        prop_assert_eq!(settle(&bench, &machine), Vec::<String>::new());
        let config = bench.config(machine.vmid);
        prop_assert_eq!(whose(CLUSTER, &machine, machine.vmid, &config), Whose::Ours);
    }

    #[test]
    fn any_machine_can_be_made_into_any_other(one in any_machine(), other in any_machine()) {
        let bench = Bench::new(4);
        create(&bench, &one, IMPORTED);
        settle(&bench, &one);
        let mut wanted = other;
        (wanted.vmid, wanted.name, wanted.uuid) = (one.vmid, one.name.clone(), one.uuid);
        // Disks and firmware stay what they are.
        for (disk, own) in one.disks.iter().zip(&mut wanted.disks) {
            own.storage.clone_from(&disk.storage);
            own.size = own.size.max(disk.size);
        }
        // Notes that nobody wants may be somebody's own.
        wanted.vm.notes = wanted.vm.notes.or(one.vm.notes.clone());
        wanted.vm.efi_storage = wanted.vm.efi_storage.map(|_| one.disks[0].storage.clone());
        prop_assert_eq!(settle(&bench, &wanted), Vec::<String>::new());
        let fresh = Bench::new(4);
        create(&fresh, &wanted, IMPORTED);
        settle(&fresh, &wanted);
        prop_assert_eq!(essence(&bench, &wanted), essence(&fresh, &wanted));
    }
}

/// What a VM's config says, in Proxmox's own words, but for what it finds out by itself. Drives that nobody asked
/// for are left where they are.
fn essence(bench: &Bench, machine: &Machine) -> BTreeMap<String, String> {
    const FOUND_OUT: [&str; 3] = ["digest", "meta", "vmgenid"];
    const DRIVES: [&str; 5] = ["scsi", "ide", "unused", "efidisk", "tpmstate"];
    let config = bench.config(machine.vmid);
    let wanted = shape(machine).create(IMPORTED);
    let is_wanted = |option: &str| wanted.pairs().iter().any(|(key, _)| key == option);
    let is_drive = |option: &str| {
        let word = option.trim_end_matches(|c: char| c.is_ascii_digit());
        option != word && DRIVES.contains(&word)
    };
    let options = config.0.keys().filter(|option| !FOUND_OUT.contains(&option.as_str()));
    options
        .filter(|option| !is_drive(option) || is_wanted(option))
        .map(|option| {
            let text = config.text(option).expect("a text");
            let volume = text.split(',').next().filter(|_| is_drive(option)).unwrap_or_default();
            let storage = volume.split(':').next().unwrap_or_default();
            (option.clone(), format!("{storage}{}", &text[volume.len()..]).replace(",cache=none", ""))
        })
        // It comes last, and is not mentioned before.
        .filter(|(option, text)| option != "protection" || text != "0")
        // Proxmox adds optical drives behind everything else.
        .map(|(option, text)| {
            let text = if option == "boot" { text.trim_end_matches(";ide2").to_owned() } else { text };
            (option, text)
        })
        .collect()
}

fn template_vmid() -> VmId {
    VmId::new(9000).expect("a VMID")
}

fn make_template(bench: &Bench, storage: &str) {
    let template = Template {
        vmid: template_vmid(),
        serves: Vec::new(),
        host: Late::Known(bench.host.clone()),
        existing: false,
        image: "v1.13.9-nocloud-amd64".into(),
        clone: CloneKind::Full,
        storage: storage.into(),
    };
    let image = Image {
        id: template.image.clone(),
        talos: "v1.13.9".parse().expect("a release"),
        source: ImageSource::Template,
        platform: Platform::Nocloud,
        arch: Arch::Amd64,
        secureboot: false,
        extensions: Vec::new(),
        kernel_args: Vec::new(),
        schematic: None,
        file: None,
        factory: "https://factory.talos.dev".into(),
        meta: None,
    };
    let shape =
        TemplateShape { claim: CLUSTER, pool: None, template: &template, image: &image, schematic: "376567" };
    bench.finish(&api::create(&bench.host, template.vmid, shape.create(IMAGE)));
    let upid = bench.send(&api::make_template(&bench.host, template.vmid)).expect("a task");
    bench.wait(&upid);
    let config = bench.config(template.vmid);
    assert_eq!(whose(CLUSTER, &some_machine(), template.vmid, &config), Whose::OursTemplate);
}

#[test]
fn people_may_write_around_the_stamp() {
    let bench = Bench::new(5);
    let mut machine = some_machine();
    machine.vm.notes = Some("Rack 3.".into());
    let config = create(&bench, &machine, IMPORTED);
    settle(&bench, &machine);
    let notes = config.text("description").expect("notes");
    let mut params = Params::default();
    params.set("description", format!("# Seen by Ada\n\n{notes}\n\nTo be moved."));
    bench.configure(machine.vmid, params);
    assert_eq!(settle(&bench, &machine), Vec::<String>::new());
    assert!(bench.config(machine.vmid).text("description").expect("notes").contains("Ada"));
    machine.vm.notes = Some("Rack 4.".into());
    assert_eq!(settle(&bench, &machine), Vec::<String>::new());
    assert!(bench.config(machine.vmid).text("description").expect("notes").starts_with("Rack 4."));
}

#[test]
fn a_reserved_vmid_is_nobodys_until_the_vm_is_there() {
    let bench = Bench::new(6);
    let machine = some_machine();
    let slow = shape(&machine).create(IMPORTED);
    bench.visit(|lab| lab.ground.profile = ichor_sim::profile::Profile::Wan);
    let upid = bench.send(&api::create(&bench.host, machine.vmid, slow));
    let config = bench.config(machine.vmid);
    let whose_now = whose(CLUSTER, &machine, machine.vmid, &config);
    assert_eq!(whose_now, Whose::Reserved { lock: "create".into() });
    let tasks = bench.send(&api::tasks_of(&bench.host, machine.vmid));
    assert_eq!(ichor_pve::ownership::maker(machine.vmid, None, &tasks), Some(&upid));
    bench.wait(&upid);
    let config = bench.config(machine.vmid);
    assert_eq!(whose(CLUSTER, &machine, machine.vmid, &config), Whose::Ours);
}

#[test]
fn a_copy_made_by_hand_is_foreign() {
    let bench = Bench::new(7);
    let machine = some_machine();
    create(&bench, &machine, IMPORTED);
    let copy = VmId::new(5000).expect("a VMID");
    let options = api::CloneOptions {
        newid: copy,
        name: machine.name.as_str(),
        description: None,
        pool: None,
        target: None,
        full_on: Some("local-lvm"),
    };
    bench.finish(&api::clone(&bench.host, machine.vmid, &options));
    let wanted = Machine { vmid: copy, ..machine.clone() };
    let found = whose(CLUSTER, &wanted, copy, &bench.config(copy));
    assert_eq!(found, Whose::Foreign(Why::CopyOf(machine.vmid)));
}

#[test]
fn what_only_root_may_set_is_never_sent() {
    let bench = Bench::new(8);
    let mut machine = some_machine();
    machine.vm.pci = vec![ichor_model::desired::PciDevice {
        device: PciAddress::Address("01:00.0".into()),
        pcie: false,
        primary_gpu: false,
    }];
    create(&bench, &machine, IMPORTED);
    let left = settle(&bench, &machine);
    assert_eq!(left, ["`hostpci0` is absent, wanted `host=01:00.0`"]);
    let differences = shape(&machine).differences(&bench.config(machine.vmid));
    assert_eq!(differences[0].change, Change::ByRoot("host=01:00.0".into()));
}

#[test]
fn whatever_is_changed_by_hand_is_found_and_set_right() {
    let bench = Bench::new(11);
    let mut machine = some_machine();
    machine.disks[0].options.discard = true;
    create(&bench, &machine, IMPORTED);
    settle(&bench, &machine);
    let before = essence(&bench, &machine);
    let config = bench.config(machine.vmid);
    let edited = |option: &str, from: &str, to: &str| {
        let text = config.text(option).expect("an option");
        assert!(text.contains(from), "{option}: {text}");
        text.replace(from, to)
    };
    let edits = [
        ("name", "other".to_owned()),
        ("smbios1", "uuid=11112222-3333-4444-5555-666677778888".into()),
        ("description", "mine now".into()),
        ("tags", "ichor;mine".into()),
        ("ostype", "other".into()),
        ("machine", "pc-i440fx-9.0".into()),
        ("bios", "ovmf".into()),
        ("cpu", "host".into()),
        ("cores", "2".into()),
        ("sockets", "3".into()),
        ("numa", "1".into()),
        ("memory", "1024".into()),
        ("balloon", "512".into()),
        ("scsihw", "megasas".into()),
        ("agent", "1".into()),
        ("onboot", "0".into()),
        ("startup", "order=4".into()),
        ("protection", "1".into()),
        ("boot", "order=net0;scsi0".into()),
        ("boot", "order=ide2;scsi0".into()),
        ("net0", edited("net0", "vmbr0", "vmbr0,link_down=1")),
        ("net7", "virtio,bridge=vmbr0".into()),
        ("ipconfig0", "ip=dhcp".into()),
        ("ipconfig7", "ip=dhcp".into()),
        ("nameserver", "10.9.9.9".into()),
        ("searchdomain", "example.org".into()),
        ("scsi0", edited("scsi0", "discard=on", "discard=ignore")),
        ("scsi0", edited("scsi0", "discard=on", "discard=on,ro=1")),
        ("ide2", "none,media=cdrom".into()),
    ];
    for (option, text) in edits {
        let mut params = Params::default();
        params.set(option, &text);
        bench.configure(machine.vmid, params);
        let found = shape(&machine).differences(&bench.config(machine.vmid));
        assert!(found.iter().any(|it| it.option == option), "{option}: {text} is not found: {found:?}");
        assert_eq!(settle(&bench, &machine), Vec::<String>::new(), "{option}: {text}");
        assert_eq!(essence(&bench, &machine), before, "{option}: {text}");
    }
}

#[test]
fn what_cannot_be_settled_is_told_and_left_alone() {
    let bench = Bench::new(9);
    let mut machine = some_machine();
    create(&bench, &machine, IMPORTED);
    settle(&bench, &machine);
    let before = bench.config(machine.vmid);
    machine.disks[0].size = ichor_model::Size::from_gib(1);
    let differences = shape(&machine).differences(&before);
    assert_eq!(differences.len(), 1, "{differences:?}");
    assert_eq!((differences[0].option.as_str(), &differences[0].change), ("scsi0", &Change::Rebuild));
    assert_eq!(Changes::of(&differences), Changes::default());
}

#[test]
fn a_created_machine_starts() {
    let bench = Bench::new(10);
    let mut machine = some_machine();
    machine.vm.pci.clear();
    create(&bench, &machine, IMPORTED);
    settle(&bench, &machine);
    let upid = bench.send(&api::start(&bench.host, machine.vmid));
    bench.wait(&upid);
    assert_eq!(bench.send(&api::task_status(&upid)).exit(), Some(Exit::Good));
    assert_eq!(bench.send(&api::status(&bench.host, machine.vmid)).status, "running");
}
