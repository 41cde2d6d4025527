//! Machines of all kinds.

use std::{collections::BTreeMap, net::IpAddr};

use ichor_model::{
    KubernetesVersion, MacAddress, Size, TalosVersion, VmId,
    desired::{
        AddressDelivery, Bios, Board, Boot, ConfigDelivery, Cpu, Disk, DiskOptions, Late, Machine, Nic,
        PciAddress, PciDevice, Role, Source, Startup, Verify, VmOptions,
    },
    identity::Seed,
    stamp::Claim,
};
use ipnet::IpNet;
use proptest::{
    collection::{btree_set, vec},
    option,
    prelude::*,
    sample::select,
};

/// The cluster that all machines belong to.
pub const CLUSTER: Claim<'_> = Claim { cluster: "homelab", secrets: None };

/// Any machine that an inventory can ask for, of those that boot on amd64 and need no root.
pub fn any_machine() -> impl Strategy<Value = Machine> {
    let size = (1_u32..=8, 1_u32..=2, any::<bool>(), 1_u64..=32);
    let address = select(vec![AddressDelivery::Cloudinit, AddressDelivery::Dhcp]);
    (0_u32..1000, any::<bool>(), size, vec(any_disk(), 1..5), vec(any_nic(), 1..4), any_options(), address)
        .prop_map(|(number, control_plane, size, disks, nics, vm, address)| {
            machine(number, control_plane, size, disks, nics, vm, address)
        })
}

fn machine(
    number: u32,
    control_plane: bool,
    (cores, sockets, numa, gib): (u32, u32, bool, u64),
    mut disks: Vec<Disk>,
    mut nics: Vec<Nic>,
    mut vm: VmOptions,
    address: AddressDelivery,
) -> Machine {
    let name = format!("m-{number}");
    let seed = Seed { cluster: CLUSTER.cluster, machine: &name, generation: 1 };
    for (i, disk) in disks.iter_mut().enumerate() {
        disk.slot = format!("scsi{i}");
    }
    for (i, nic) in nics.iter_mut().enumerate() {
        nic.slot = format!("net{i}");
        nic.mac = seed.mac(i, None, 0);
    }
    vm.cloudinit_storage = (address == AddressDelivery::Cloudinit).then(|| "local-lvm".into());
    vm.efi_storage = (vm.bios == Bios::Ovmf).then(|| disks[0].storage.clone());
    Machine {
        name: name.parse().expect("a name"),
        group: "m".into(),
        role: if control_plane { Role::ControlPlane } else { Role::Worker },
        generation: 1,
        host: Late::Known("pve1".parse().expect("a name")),
        vmid: VmId::new(2000 + number).expect("a VMID"),
        uuid: seed.uuid(),
        talos: TalosVersion::new(1, 13, 9),
        kubernetes: KubernetesVersion::new(1, 36, 3),
        image: "v1.13.9-nocloud-amd64".into(),
        template: None,
        boot: Boot { address, config: ConfigDelivery::Maintenance, verify: Verify::Console },
        cpu: Cpu { cores, sockets, cpu_type: "x86-64-v2-AES".into(), numa },
        memory: Size::from_gib(gib),
        disks,
        nics,
        vm,
        sysctls: BTreeMap::new(),
        kernel_modules: Vec::new(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        taints: BTreeMap::new(),
        patches: Vec::new(),
    }
}

fn any_disk() -> impl Strategy<Value = Disk> {
    let cache = option::of(select(vec!["none", "writeback", "directsync"]).prop_map(str::to_owned));
    let switches = any::<[bool; 5]>();
    (8_u64..64, select(vec!["local-lvm", "shared"]), switches, cache).prop_map(
        |(gib, storage, [ssd, discard, iothread, backup, replicate], cache)| Disk {
            slot: String::new(),
            name: "data".into(),
            size: Size::from_gib(gib),
            storage: storage.into(),
            mount: None,
            filesystem: None,
            options: DiskOptions { ssd, discard, iothread, backup, replicate, cache },
        },
    )
}

fn any_nic() -> impl Strategy<Value = Nic> {
    let address = |text: &str| Late::Known(text.parse::<IpNet>().expect("an address"));
    let addresses = select(vec![
        vec![],
        vec![Late::From(Source::Lease)],
        vec![address("10.0.0.11/24")],
        vec![address("fd00::11/64")],
        vec![address("10.0.0.11/24"), address("fd00::11/64")],
        vec![Late::From(Source::Lease), address("fd00::11/64")],
    ]);
    let gateways = select(vec![vec![], vec!["10.0.0.1"], vec!["10.0.0.1", "fd00::1"]]);
    let model = select(vec!["virtio", "e1000", "e1000e", "vmxnet3", "rtl8139"]);
    let tuning = (
        option::of(1_u16..4095),
        option::of(select(vec![1_u16, 1500, 9000])),
        option::of(1_u16..16),
        any::<bool>(),
    );
    (addresses, gateways, model, tuning).prop_map(|(addresses, gateways, model, tuning)| {
        let (vlan, mtu, queues, firewall) = tuning;
        let ips = |texts: &[&str]| -> Vec<IpAddr> {
            texts.iter().map(|text| text.parse().expect("an address")).collect()
        };
        Nic {
            slot: String::new(),
            mac: MacAddress::unicast([2, 0, 0, 0, 0, 1]),
            bridge: "vmbr0".into(),
            vlan,
            mtu,
            model: model.into(),
            firewall,
            queues,
            written: ichor_model::desired::Written::default(),
            addresses,
            gateways: ips(&gateways),
            dns: ips(&["1.1.1.1", "fd00::53"]),
            routes: Vec::new(),
        }
    })
}

fn any_options() -> impl Strategy<Value = VmOptions> {
    let startup = (option::of(0_u32..10), option::of(0_u32..100), option::of(0_u32..100));
    let startup = option::of(startup.prop_map(|(order, up, down)| Startup { order, up, down }));
    let notes =
        option::of(select(vec!["Rack 3.", "# head\n\n- ü *x* <b>\n- 50% = a;b&c\n", "```ichor\n```"]));
    let tags = btree_set("[a-z0-9_][a-z0-9_.-]{0,9}", 0..4);
    let firmware = select(vec![
        (Board::Q35, Bios::Ovmf, false),
        (Board::Q35, Bios::Ovmf, true),
        (Board::Q35, Bios::Seabios, false),
        (Board::I440fx, Bios::Seabios, false),
    ]);
    let controller = select(vec!["virtio-scsi-pci", "virtio-scsi-single", "lsi", "pvscsi"]);
    let pci = vec((any::<bool>(), any::<bool>()), 0..2);
    (firmware, controller, any::<[bool; 3]>(), startup, tags, notes, pci).prop_map(
        |((machine, bios, tpm), controller, [agent, on_boot, protection], startup, tags, notes, pci)| {
            VmOptions {
                machine,
                bios,
                efi_storage: None,
                tpm,
                scsi_controller: controller.into(),
                agent,
                on_boot,
                protection,
                startup,
                tags: tags.into_iter().collect(),
                notes: notes.map(str::to_owned),
                pci: pci
                    .into_iter()
                    .map(|(pcie, primary_gpu)| PciDevice {
                        device: PciAddress::Mapping("igpu".into()),
                        pcie: pcie && machine == Board::Q35,
                        primary_gpu,
                    })
                    .collect(),
                cloudinit_storage: None,
            }
        },
    )
}
