//! A cluster made by hand, for tests of what is shown.

use std::collections::BTreeMap;

use ichor_model::{
    Desired, Minor, Observed, Size, VmId,
    desired::{
        AddressDelivery, Arch, Bios, Board, Boot, Cluster, ConfigDelivery, Cpu, Disk, DiskOptions, Endpoint,
        EndpointKind, Hostnames, Image, ImageSource, Late, Machine, Network, Nic, Os, Platform, Proxmox,
        Role, Source, Storage, Tls, Verify, VmOptions,
    },
    identity::Seed,
    observed::{MachineSeen, MemberSeen, NodeSeen, Owner, Sight, TalosSeen, VmSeen},
};
use ichor_plan::ClusterPlan;

const IMAGE: &str = "v1.13.9-nocloud-amd64";

/// Three control planes on three hosts, a worker with a disk of its own, and one whose host and
/// address are not known yet.
pub fn homelab() -> Desired {
    let mut machines: Vec<Machine> = (0..3).map(control_plane).collect();
    machines.extend([placed_worker(), late_worker()]);
    Desired {
        cluster: cluster(),
        proxmox: Proxmox {
            endpoint: "https://pve1.lab.example:8006".into(),
            token: None,
            tls: Tls::TrustOnFirstUse,
            jump: Vec::new(),
            pool: None,
            storage: Storage {
                disks: "local-lvm".into(),
                images: "local".into(),
                templates: "local-lvm".into(),
                cloudinit: "local-lvm".into(),
                snippets: None,
            },
        },
        hosts: Vec::new(),
        network: Network {
            cidr: vec!["10.0.0.0/24".parse().expect("network")],
            pods: vec!["10.244.0.0/16".parse().expect("network")],
            services: vec!["10.96.0.0/12".parse().expect("network")],
            hostnames: Hostnames::Inventory,
        },
        os: Os::default(),
        images: vec![image()],
        templates: Vec::new(),
        machines,
        addons: BTreeMap::new(),
        store: ".ichor".into(),
        recipients: Vec::new(),
        secrets_file: None,
    }
}

/// The same cluster with every host known, as a verb that asks Proxmox sees it, and with a pool.
pub fn live() -> Desired {
    let mut desired = homelab();
    desired.proxmox.pool = Some("homelab".into());
    for machine in &mut desired.machines {
        if machine.host.known().is_none() {
            machine.host = Late::Known("pve2".parse().expect("host"));
        }
    }
    desired
}

/// The same cluster with so many workers more, all on one host.
pub fn crowd(workers: u32) -> Desired {
    let mut desired = live();
    let last = desired.machines.pop().expect("a worker");
    for number in 0..workers {
        let mut worker = last.clone();
        worker.name = format!("worker-{}", number + 2).parse().expect("name");
        worker.vmid = VmId::new(4000 + number).expect("vmid");
        desired.machines.push(worker);
    }
    desired
}

/// Plans the way to a cluster from a world that was looked at and is empty.
pub fn plan_from_nothing(desired: &Desired) -> ClusterPlan {
    ichor_plan::up(desired, &nothing(desired), &ichor_plan::files::Names::default())
}

/// What is seen before there is anything: hosts, no VMs, nobody who answers.
pub fn nothing(desired: &Desired) -> Observed {
    let silent = || Sight::Seen(MachineSeen::Silent("nobody answers at its address".into()));
    Observed {
        hosts: ["pve1", "pve2", "pve3"].map(|host| (host.parse().expect("host"), true)).into(),
        vms: desired.machines.iter().map(|machine| (machine.vmid, Sight::Seen(None))).collect(),
        machines: desired.machines.iter().map(|machine| (machine.name.clone(), silent())).collect(),
        etcd: Sight::Unseen("no control plane answers".into()),
        nodes: Sight::Unseen("Kubernetes does not answer".into()),
        ..Observed::default()
    }
}

/// What is seen of a cluster that is well.
pub fn well(desired: &Desired) -> Observed {
    let mut observed = nothing(desired);
    let (mut members, mut nodes) = (BTreeMap::new(), BTreeMap::new());
    for (machine, id) in desired.machines.iter().zip(1..) {
        observed.vms.insert(machine.vmid, Sight::Seen(Some(vm(machine))));
        let talos = TalosSeen {
            version: machine.talos.to_string(),
            stage: "running".into(),
            ready: true,
            etcd: (machine.role == Role::ControlPlane).then(|| "Running".to_owned()),
            ..TalosSeen::default()
        };
        observed.machines.insert(machine.name.clone(), Sight::Seen(MachineSeen::Ours(talos)));
        if machine.role == Role::ControlPlane {
            members.insert(machine.name.to_string(), MemberSeen { id, learner: false });
        }
        let version = machine.kubernetes.to_string();
        let node = NodeSeen {
            ready: true,
            says: String::new(),
            version,
            unschedulable: false,
            addresses: Vec::new(),
            boot: None,
        };
        nodes.insert(machine.name.to_string(), node);
    }
    observed.etcd = Sight::Seen(members);
    observed.nodes = Sight::Seen(nodes);
    observed
}

fn vm(machine: &Machine) -> VmSeen {
    VmSeen {
        host: machine.host.known().expect("a host").clone(),
        owner: Owner::Ours,
        name: machine.name.to_string(),
        running: true,
        template: false,
        lock: None,
        differences: Vec::new(),
        drift: Vec::new(),
        medium: false,
        protected: false,
        addresses: Vec::new(),
    }
}

/// The same with an illness of every kind.
pub fn ill(desired: &Desired) -> Observed {
    let mut observed = well(desired);
    let [cp_1, cp_2, cp_3, worker_1, worker_2] = &desired.machines[..] else { panic!("five machines") };
    let vm_of = |machine: &Machine, change: fn(&mut VmSeen)| {
        let mut vm = vm(machine);
        change(&mut vm);
        Sight::Seen(Some(vm))
    };
    observed.vms.insert(cp_2.vmid, vm_of(cp_2, |vm| vm.running = false));
    observed
        .machines
        .insert(cp_2.name.clone(), Sight::Seen(MachineSeen::Silent("no route to 10.0.0.12".into())));
    observed
        .vms
        .insert(worker_1.vmid, vm_of(worker_1, |vm| vm.owner = Owner::Foreign("it has another uuid".into())));
    observed.machines.insert(worker_1.name.clone(), Sight::Unseen("its address is not known".into()));
    observed.vms.insert(
        VmId::new(3009).expect("vmid"),
        vm_of(worker_2, |vm| {
            vm.owner = Owner::OtherMachine("machine `worker-9`, which the inventory has no more".into());
            vm.name = "worker-9".into();
        }),
    );
    let talos = TalosSeen {
        version: "v1.12.0".into(),
        stage: "booting".into(),
        unmet: vec!["time: not in sync".into(), "network".into()],
        ..TalosSeen::default()
    };
    observed.machines.insert(cp_3.name.clone(), Sight::Seen(MachineSeen::Ours(talos)));
    observed.machines.insert(worker_2.name.clone(), Sight::Seen(MachineSeen::Maintenance));
    let member = |id, learner| MemberSeen { id, learner };
    observed.etcd = Sight::Seen(
        [
            (cp_1.name.to_string(), member(1, false)),
            (cp_3.name.to_string(), member(3, true)),
            ("old-1".into(), member(0xabc, false)),
        ]
        .into(),
    );
    let node = |ready, says: &str, unschedulable| NodeSeen {
        ready,
        says: says.into(),
        version: "v1.36.3".into(),
        unschedulable,
        addresses: Vec::new(),
        boot: None,
    };
    observed.nodes = Sight::Seen(
        [
            (cp_1.name.to_string(), node(true, "", true)),
            (cp_2.name.to_string(), node(false, "Kubelet stopped posting node status.", false)),
        ]
        .into(),
    );
    observed
}

fn cluster() -> Cluster {
    Cluster {
        name: "homelab".parse().expect("name"),
        id: "homelab".into(),
        environment: Some("production".into()),
        talos: "v1.13.9".parse().expect("version"),
        kubernetes: "v1.36.3".parse().expect("version"),
        contract: Minor::new(1, 13),
        endpoint: Endpoint {
            host: Late::Known("10.0.0.20".into()),
            port: 6443,
            kind: EndpointKind::TalosVip,
            vip: Some([10, 0, 0, 20].into()),
            kube_vip: None,
        },
        ha: true,
        protect: true,
        schedule_on_control_planes: false,
        discovery: true,
        domain: "cluster.local".into(),
        region: None,
        cert_sans: Vec::new(),
        manifests: Vec::new(),
    }
}

fn image() -> Image {
    Image {
        id: IMAGE.into(),
        talos: "v1.13.9".parse().expect("version"),
        source: ImageSource::Disk,
        platform: Platform::Nocloud,
        arch: Arch::Amd64,
        secureboot: false,
        extensions: vec!["siderolabs/qemu-guest-agent".into()],
        kernel_args: Vec::new(),
        schematic: None,
        file: None,
        factory: "https://factory.talos.dev".into(),
        meta: None,
    }
}

fn control_plane(index: u32) -> Machine {
    machine(
        Role::ControlPlane,
        &format!("cp-{}", index + 1),
        2000 + index,
        11 + index,
        &format!("pve{}", index + 1),
    )
}

fn placed_worker() -> Machine {
    let mut worker = machine(Role::Worker, "worker-1", 3000, 21, "pve1");
    worker.memory = Size::from_gib(16);
    worker.disks.push(disk("scsi1", "longhorn", 200));
    worker
}

fn late_worker() -> Machine {
    let mut worker = machine(Role::Worker, "worker-2", 3001, 22, "pve2");
    worker.host = Late::From(Source::LiveHosts);
    worker.nics[0].addresses = vec![Late::From(Source::Lease)];
    worker.boot.address = AddressDelivery::Dhcp;
    worker
}

fn machine(role: Role, name: &str, vmid: u32, address: u32, host: &str) -> Machine {
    let seed = Seed { cluster: "homelab", machine: name, generation: 1 };
    Machine {
        name: name.parse().expect("name"),
        group: role.word().into(),
        role,
        generation: 1,
        host: Late::Known(host.parse().expect("host")),
        vmid: VmId::new(vmid).expect("vmid"),
        uuid: seed.uuid(),
        talos: "v1.13.9".parse().expect("version"),
        kubernetes: "v1.36.3".parse().expect("version"),
        image: IMAGE.into(),
        template: None,
        boot: Boot {
            address: AddressDelivery::Cloudinit,
            config: ConfigDelivery::Maintenance,
            verify: Verify::Console,
        },
        cpu: Cpu { cores: 4, sockets: 1, cpu_type: "x86-64-v2-AES".into(), numa: false },
        memory: Size::from_gib(8),
        disks: vec![disk("scsi0", "system", 40)],
        nics: vec![nic(&seed, address)],
        vm: vm_options(),
        sysctls: BTreeMap::new(),
        kernel_modules: Vec::new(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        taints: BTreeMap::new(),
        patches: Vec::new(),
    }
}

fn disk(slot: &str, name: &str, size_gib: u64) -> Disk {
    Disk {
        slot: slot.into(),
        name: name.into(),
        size: Size::from_gib(size_gib),
        storage: "local-lvm".into(),
        mount: None,
        filesystem: None,
        options: DiskOptions {
            ssd: true,
            discard: true,
            iothread: true,
            backup: true,
            replicate: true,
            cache: None,
        },
    }
}

fn nic(seed: &Seed<'_>, address: u32) -> Nic {
    Nic {
        slot: "net0".into(),
        mac: seed.mac(0, None, 0),
        bridge: "vmbr0".into(),
        vlan: None,
        mtu: None,
        model: "virtio".into(),
        firewall: false,
        queues: None,
        written: ichor_model::desired::Written::default(),
        addresses: vec![Late::Known(format!("10.0.0.{address}/24").parse().expect("address"))],
        gateways: vec![[10, 0, 0, 1].into()],
        dns: Vec::new(),
        routes: Vec::new(),
    }
}

fn vm_options() -> VmOptions {
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
        tags: vec!["homelab".into()],
        notes: None,
        pci: Vec::new(),
        cloudinit_storage: Some("local-lvm".into()),
    }
}
