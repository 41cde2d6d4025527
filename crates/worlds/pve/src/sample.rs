//! A machine to test with.

use std::collections::BTreeMap;

use ichor_model::{
    KubernetesVersion, MacAddress, Size, TalosVersion, VmId,
    desired::{
        AddressDelivery, Bios, Board, Boot, ConfigDelivery, Cpu, Disk, DiskOptions, Late, Machine, Nic, Role,
        Verify, VmOptions,
    },
    identity::Seed,
};

/// Returns a control plane with one disk and one card.
pub fn machine() -> Machine {
    let (name, generation) = ("cp-1", 1);
    let seed = Seed { cluster: "homelab", machine: name, generation };
    Machine {
        name: name.parse().expect("a name"),
        group: "cp".into(),
        role: Role::ControlPlane,
        generation,
        host: Late::Known("pve1".parse().expect("a name")),
        vmid: VmId::new(2000).expect("a VMID"),
        uuid: seed.uuid(),
        talos: TalosVersion::new(1, 13, 9),
        kubernetes: KubernetesVersion::new(1, 36, 3),
        image: "v1.13.9-nocloud-amd64".into(),
        template: None,
        boot: Boot {
            address: AddressDelivery::Cloudinit,
            config: ConfigDelivery::Maintenance,
            verify: Verify::Console,
        },
        cpu: Cpu { cores: 4, sockets: 1, cpu_type: "x86-64-v2-AES".into(), numa: false },
        memory: Size::from_gib(8),
        disks: vec![disk("scsi0", "system", 40)],
        nics: vec![nic(&seed)],
        vm: options(),
        sysctls: BTreeMap::new(),
        kernel_modules: Vec::new(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        taints: BTreeMap::new(),
        patches: Vec::new(),
    }
}

/// Returns a disk on `local-lvm`.
pub fn disk(slot: &str, name: &str, gib: u64) -> Disk {
    let options = DiskOptions {
        ssd: false,
        discard: true,
        iothread: false,
        backup: true,
        replicate: true,
        cache: None,
    };
    Disk {
        slot: slot.into(),
        name: name.into(),
        size: Size::from_gib(gib),
        storage: "local-lvm".into(),
        mount: None,
        filesystem: None,
        options,
    }
}

fn nic(seed: &Seed<'_>) -> Nic {
    let mac: MacAddress = seed.mac(0, None, 0);
    Nic {
        slot: "net0".into(),
        mac,
        bridge: "vmbr0".into(),
        vlan: Some(20),
        mtu: None,
        model: "virtio".into(),
        firewall: false,
        queues: None,
        written: ichor_model::desired::Written::default(),
        addresses: vec![Late::Known("10.0.0.11/24".parse().expect("an address"))],
        gateways: vec!["10.0.0.1".parse().expect("an address")],
        dns: vec!["1.1.1.1".parse().expect("an address"), "9.9.9.9".parse().expect("an address")],
        routes: Vec::new(),
    }
}

fn options() -> VmOptions {
    VmOptions {
        machine: Board::Q35,
        bios: Bios::Ovmf,
        efi_storage: Some("local-lvm".into()),
        tpm: false,
        scsi_controller: "virtio-scsi-pci".into(),
        agent: true,
        on_boot: true,
        protection: false,
        startup: None,
        tags: vec!["control-plane".into(), "homelab".into(), "ichor".into()],
        notes: None,
        pci: Vec::new(),
        cloudinit_storage: Some("local-lvm".into()),
    }
}
