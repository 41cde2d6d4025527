//! From power to maintenance mode, by every way that an address can come.

use ichor_machineconfig::pki::Certificate;
use ichor_model::desired::Role;
use ichor_sim::{
    ground::{Content, DiscKind, OpticalDisc},
    signal::Signal,
    tls::Clients,
};
use ichor_talos_proto::{machine as api, storage};

use crate::bench::{Bench, address, image, mac, vmid};

fn disks(bench: &mut Bench, last: u8) -> Result<usize, (i32, String)> {
    let answer: storage::DisksResponse =
        bench.insecure(address(last), "/storage.StorageService/Disks", &())?;
    Ok(answer.messages[0].disks.len())
}

#[test]
fn the_drive_of_proxmox_gives_a_known_address() {
    let mut bench = Bench::new("v1.13.9");
    let hardware = bench.hardware(11);
    bench.switch_on(&hardware);
    assert_eq!(disks(&mut bench, 11).expect_err("firmware takes time").0, 14);
    bench.minute();
    assert_eq!(disks(&mut bench, 11), Ok(1));
    let guest = &bench.lab.ground.guests[&vmid(111)];
    let agent = guest.agent.as_ref().expect("the agent answers in maintenance mode");
    assert_eq!((agent.hostname.as_str(), agent.interfaces[1].name.as_str()), ("node-11", "eth0"));
    assert_eq!(agent.interfaces[1].addresses, [(address(11), 24)]);
}

#[test]
fn without_a_drive_a_lease_or_a_reservation_is_taken() {
    let mut bench = Bench::new("v1.13.9");
    let server = bench.lab.machines.lan.servers.get_mut("vmbr0").expect("a server");
    server.reservations.insert(mac(12), ([10, 0, 0, 12].into(), Some("reserved".into())));
    for last in [11, 12] {
        let mut hardware = bench.hardware(last);
        hardware.discs.clear();
        bench.switch_on(&hardware);
    }
    bench.minute();
    assert_eq!(disks(&mut bench, 100), Ok(1));
    assert_eq!(disks(&mut bench, 12), Ok(1));
    let agent = bench.lab.ground.guests[&vmid(112)].agent.as_ref().expect("an agent");
    assert_eq!(agent.hostname, "reserved");
}

#[test]
fn a_metal_image_takes_its_network_from_meta_and_no_drive() {
    let mut bench = Bench::new("v1.13.9");
    let hardware = bench.hardware(11);
    let mut metal = image("v1.13.9", "metal", false);
    metal.meta.insert(
        10,
        "addresses: [{address: 10.0.0.50/24, linkName: ens18}]\nhostnames: [{hostname: meta}]\n".into(),
    );
    bench.lab.ground.media.set(hardware.disks[0].content, Content::Image(metal));
    bench.switch_on(&hardware);
    bench.minute();
    assert_eq!(disks(&mut bench, 50), Ok(1));
    assert_eq!(disks(&mut bench, 11).expect_err("nobody").0, 14);
}

#[test]
fn an_uploaded_disc_with_a_config_leads_past_maintenance_mode() {
    for write in [disc as Write, volume] {
        let mut bench = Bench::new("v1.13.9");
        let mut hardware = bench.hardware(11);
        let config = String::from_utf8(bench.config(Role::ControlPlane, "cp-1")).expect("text");
        let network = format!(
            "version: 2\nethernets:\n  eth0:\n    match: {{macaddress: '{}'}}\n    addresses: [10.0.0.11/24]\n",
            mac(11)
        );
        let iso = write(&[
            ("user-data", config.as_bytes()),
            ("meta-data", b"instance-id: x\n"),
            ("network-config", network.as_bytes()),
        ]);
        let content = bench.lab.ground.media.add(Content::Bytes(iso));
        hardware.discs = vec![OpticalDisc { slot: "ide2".into(), kind: DiscKind::File(content) }];
        bench.switch_on(&hardware);
        bench.minute();
        assert_eq!(bench.version(address(11)), Ok("v1.13.9".into()));
        assert!(bench.status(address(11)).starts_with("stage: booting"), "etcd waits for bootstrap");
    }
}

type Write = fn(&[(&str, &[u8])]) -> Vec<u8>;

/// Writes a disc as ichor does, with Joliet names.
fn volume(files: &[(&str, &[u8])]) -> Vec<u8> {
    ichor_machineconfig::iso9660::image("cidata", files).expect("an image").expose().to_vec()
}

/// Writes a disc with Rock Ridge names: descriptor, end, directory, files.
fn disc(files: &[(&str, &[u8])]) -> Vec<u8> {
    const SECTOR: usize = 2048;
    let record = |sector: usize, length: usize, flags: u8, name: &[u8], rock: &str| {
        let mut record = vec![0_u8; 33];
        record[2..6].copy_from_slice(&u32::try_from(sector).expect("small").to_le_bytes());
        record[10..14].copy_from_slice(&u32::try_from(length).expect("small").to_le_bytes());
        record[25] = flags;
        record[32] = u8::try_from(name.len()).expect("short");
        record.extend_from_slice(name);
        if name.len().is_multiple_of(2) {
            record.push(0);
        }
        if !rock.is_empty() {
            record.extend_from_slice(&[b'N', b'M', u8::try_from(rock.len() + 5).expect("short"), 1, 0]);
            record.extend_from_slice(rock.as_bytes());
        }
        record[0] = u8::try_from(record.len()).expect("short");
        record
    };
    let mut image = vec![0; 19 * SECTOR];
    for (sector, code) in [(16, 1), (17, 255)] {
        image[sector * SECTOR] = code;
        image[sector * SECTOR + 1..sector * SECTOR + 6].copy_from_slice(b"CD001");
    }
    image[16 * SECTOR + 40..16 * SECTOR + 72].fill(b' ');
    image[16 * SECTOR + 40..16 * SECTOR + 46].copy_from_slice(b"CIDATA");
    let root = record(18, SECTOR, 2, &[0], "");
    image[16 * SECTOR + 156..16 * SECTOR + 156 + root.len()].copy_from_slice(&root);
    let mut directory = root;
    for (index, (name, content)) in files.iter().enumerate() {
        directory.extend(record(
            image.len() / SECTOR,
            content.len(),
            0,
            format!("F{index};1").as_bytes(),
            name,
        ));
        image.extend_from_slice(content);
        image.resize(image.len().div_ceil(SECTOR) * SECTOR, 0);
    }
    image[18 * SECTOR..18 * SECTOR + directory.len()].copy_from_slice(&directory);
    image
}

#[test]
fn the_console_shows_the_fingerprint_of_the_certificate_in_use() {
    for talos in ["v1.11.5", "v1.13.9"] {
        let mut bench = Bench::new(talos);
        let hardware = bench.hardware(11);
        bench.switch_on(&hardware);
        bench.minute();
        let persona = bench.lab.talos_persona(address(11)).expect("somebody listens");
        assert_eq!(persona.clients, Clients::Anyone);
        let certificate = Certificate::from_der(&persona.certificates[0]).expect("a certificate");
        assert_eq!(certificate.common_name(), Some("maintenance-service.talos.dev"));
        let console = &bench.lab.ground.guests[&vmid(111)].console;
        let line = format!("\"fingerprint\": \"{}\"}}\r\n", certificate.fingerprint());
        assert!(console.contains("[talos] server certificate issued {"), "{console}");
        assert!(console.contains(&line), "{console}");
    }
}

#[test]
fn what_cannot_boot_stays_silent() {
    let mut bench = Bench::new("v1.13.9");
    let mut old = bench.hardware(11);
    old.cpu_type = "kvm64".into();
    let mut empty = bench.hardware(12);
    empty.boot_order = vec!["net0".into()];
    bench.switch_on(&old);
    bench.switch_on(&empty);
    bench.minute();
    assert!(bench.lab.talos_addresses().is_empty());
    assert!(bench.lab.ground.guests[&vmid(111)].console.contains("x86-64-v2"));
}

#[test]
fn installation_media_install_reboot_and_refuse_to_run_again() {
    let mut bench = Bench::new("v1.13.9");
    let hardware = bench.hardware_with_iso(11);
    bench.switch_on(&hardware);
    bench.minute();
    let config = bench.config(Role::ControlPlane, "cp-1");
    bench.apply(address(100), config).expect("taken");
    bench.pass(std::time::Duration::from_secs(5));
    assert!(bench.lab.talos_addresses().is_empty(), "the API closes while it installs");
    bench.minute();
    assert!(matches!(bench.lab.ground.media.get(hardware.disks[0].content), Content::Installed(_)));
    bench.minute();
    bench.minute();
    assert_eq!(bench.version(address(100)), Ok("v1.13.9".into()), "the disk is first in the boot order");
    // With the media first it halts.
    bench.send(Signal::PowerCut(vmid(111)));
    let mut media_first = hardware.clone();
    media_first.boot_order = vec!["ide2".into(), "scsi0".into()];
    bench.switch_on(&media_first);
    bench.minute();
    assert!(bench.lab.talos_addresses().is_empty());
    assert!(bench.lab.ground.guests[&vmid(111)].console.contains("talos.halt_if_installed"));
}

#[test]
fn an_extension_is_needed_for_the_agent() {
    let mut bench = Bench::new("v1.13.9");
    let hardware = bench.hardware(11);
    let mut bare = image("v1.13.9", "nocloud", false);
    bare.extensions.clear();
    bench.lab.ground.media.set(hardware.disks[0].content, Content::Image(bare));
    bench.switch_on(&hardware);
    bench.minute();
    assert_eq!(disks(&mut bench, 11), Ok(1));
    assert_eq!(bench.lab.ground.guests[&vmid(111)].agent, None);
}

#[test]
fn older_maintenance_mode_knows_few_calls() {
    let mut bench = Bench::new("v1.12.6");
    let hardware = bench.hardware(11);
    bench.switch_on(&hardware);
    bench.minute();
    let version: Result<api::VersionResponse, _> =
        bench.insecure(address(11), "/machine.MachineService/Version", &());
    assert_eq!(version, Err((12, "API is not implemented in maintenance mode".into())));
    let mut bench = Bench::new("v1.13.9");
    let hardware = bench.hardware(11);
    bench.switch_on(&hardware);
    bench.minute();
    let version: Result<api::VersionResponse, _> =
        bench.insecure(address(11), "/machine.MachineService/Version", &());
    assert_eq!(version.expect("readers may").messages[0].version.as_ref().expect("a version").tag, "v1.13.9");
    let reset: Result<api::ResetResponse, _> =
        bench.insecure(address(11), "/machine.MachineService/Reset", &api::ResetRequest::default());
    assert_eq!(reset, Err((7, "not authorized".into())));
}
