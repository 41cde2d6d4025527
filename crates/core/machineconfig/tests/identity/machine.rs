//! Machines to write boot files for.

use std::collections::BTreeMap;

use ichor_model::{
    KubernetesVersion, Size, TalosVersion, VmId,
    desired::{
        AddressDelivery, Bios, Board, Boot, ConfigDelivery, Cpu, Late, Machine, Nic, Role, Source, Verify,
        VmOptions,
    },
    identity::Seed,
};

/// A network card with fixed addresses.
pub fn nic(slot: usize, mac: &str, addresses: &[&str]) -> Nic {
    Nic {
        slot: format!("net{slot}"),
        mac: mac.parse().expect("mac"),
        bridge: "vmbr0".into(),
        vlan: Some(20),
        mtu: None,
        model: "virtio".into(),
        firewall: false,
        queues: None,
        addresses: addresses.iter().map(|text| Late::Known(text.parse().expect("address"))).collect(),
        gateways: Vec::new(),
        dns: Vec::new(),
        routes: Vec::new(),
        written: ichor_model::desired::Written::default(),
    }
}

/// A network card whose address comes from a lease.
pub fn leased(slot: usize, mac: &str) -> Nic {
    Nic { addresses: vec![Late::From(Source::Lease)], ..nic(slot, mac, &[]) }
}

/// A machine with these network cards.
pub fn machine(name: &str, nics: Vec<Nic>) -> Machine {
    Machine {
        name: name.parse().expect("name"),
        group: "cp".into(),
        role: Role::ControlPlane,
        generation: 1,
        host: Late::From(Source::LiveHosts),
        vmid: VmId::new(2000).expect("vmid"),
        uuid: Seed { cluster: "homelab", machine: name, generation: 1 }.uuid(),
        talos: TalosVersion::new(1, 13, 9),
        kubernetes: KubernetesVersion::new(1, 36, 3),
        image: "v1.13.9-nocloud-amd64".into(),
        template: None,
        boot: Boot {
            address: AddressDelivery::Cidata,
            config: ConfigDelivery::Cidata,
            verify: Verify::Cidata,
        },
        cpu: Cpu { cores: 2, sockets: 1, cpu_type: "host".into(), numa: false },
        memory: "4GiB".parse::<Size>().expect("size"),
        disks: Vec::new(),
        nics,
        vm: options(),
        sysctls: BTreeMap::new(),
        kernel_modules: Vec::new(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        taints: BTreeMap::new(),
        patches: Vec::new(),
    }
}

fn options() -> VmOptions {
    VmOptions {
        machine: Board::Q35,
        bios: Bios::Ovmf,
        efi_storage: None,
        tpm: false,
        scsi_controller: "virtio-scsi-pci".into(),
        agent: true,
        on_boot: true,
        protection: false,
        startup: None,
        tags: Vec::new(),
        notes: None,
        pci: Vec::new(),
        cloudinit_storage: None,
    }
}
