//! Clusters built by hand, for the tests of both pictures.

use std::collections::BTreeMap;

use ichor_model::{
    Desired, HostName, KubernetesVersion, MacAddress, MachineName, Minor, Size, TalosVersion, VmId,
    desired::{
        AddressDelivery, Bios, Board, Boot, Cluster, ConfigDelivery, Cpu, Disk, DiskOptions, Endpoint,
        EndpointKind, Hostnames, Late, Machine, Network, Nic, Os, PciAddress, PciDevice, Proxmox, Role,
        Source, Storage, Tls, Verify, VmOptions,
    },
    identity::Seed,
};

use super::GraphHost;

/// A cluster and its hosts.
pub(super) struct Scene {
    pub(super) name: &'static str,
    pub(super) desired: Desired,
    pub(super) hosts: Vec<GraphHost>,
}

/// Returns every scene that both pictures must get right.
pub(super) fn scenes() -> Vec<Scene> {
    vec![
        single(),
        three_hosts(),
        two_zones(),
        live(),
        one_big_host(),
        eight_hosts(),
        crowded_hosts(),
        thousand_machines(),
        long_names(),
        hostile_text(),
        no_machines(),
    ]
}

/// One host with one machine of each role.
pub(super) fn single() -> Scene {
    let mut desired = cluster("lab", vec![control_plane(1, Some("pve")), worker(1, Some("pve"))]);
    let first = desired.machines[0].nics[0].addresses[0].known().expect("address").addr();
    desired.cluster.endpoint = endpoint(&first.to_string(), EndpointKind::FirstControlPlane);
    desired.cluster.environment = None;
    Scene { name: "single", desired, hosts: vec![host("pve", None)] }
}

/// Three control planes and two workers behind a moving address.
pub(super) fn three_hosts() -> Scene {
    let names = ["pve1", "pve2", "pve3"];
    let mut machines: Vec<_> = (1..=3).map(|i| control_plane(i, Some(names[i - 1]))).collect();
    machines.extend((1..=2).map(|i| worker(i, Some(names[i - 1]))));
    let hosts = names.iter().map(|name| host(name, None)).collect();
    Scene { name: "three-hosts", desired: cluster("homelab", machines), hosts }
}

/// Zones, two address families, more disks, passed-through devices and an upgrade under way.
pub(super) fn two_zones() -> Scene {
    let mut scene = three_hosts();
    scene.name = "two-zones";
    scene.desired.cluster.endpoint.host = Late::Known("k8s.example.net".into());
    scene.desired.cluster.endpoint.kind = EndpointKind::Name;
    scene.desired.network.cidr.push("fd00:10::/64".parse().expect("network"));
    scene.desired.network.pods.push("fd00:10:244::/56".parse().expect("network"));
    scene.desired.network.services.push("fd00:10:96::/112".parse().expect("network"));
    scene.desired.machines.push(worker(3, Some("pve3")));
    for (i, machine) in scene.desired.machines.iter_mut().enumerate() {
        let address = format!("fd00:10::{:x}/64", i + 0x10);
        machine.nics[0].addresses.push(Late::Known(address.parse().expect("address")));
    }
    scene.desired.machines[2].talos = TalosVersion::new(1, 13, 8);
    equip(&mut scene.desired.machines[3]);
    equip(&mut scene.desired.machines[5]);
    scene.desired.machines[5].disks.truncate(2);
    for (host, zone) in scene.hosts.iter_mut().zip(["rack-a", "rack-a", "rack-b"]) {
        host.zone = Some(zone.into());
    }
    scene.hosts[2].memory = Some(Size::from_gib(16));
    scene
}

fn equip(machine: &mut Machine) {
    machine.disks.push(disk("scsi1", "data", Size::from_gib(200)));
    machine.disks.push(disk("scsi2", "longhorn", Size::from_gib(1536)));
    let device = PciAddress::Mapping("gpu-a2000".into());
    machine.vm.pci.push(PciDevice { device, pcie: true, primary_gpu: false });
    let mut storage = nic("net1", "vmbr1", Some(30), 1);
    storage.addresses = vec![Late::Known("192.168.30.7/24".parse().expect("address"))];
    machine.nics.push(storage);
}

/// Hosts and addresses that nobody knows yet.
pub(super) fn live() -> Scene {
    let mut machines: Vec<_> = (1..=3).map(|i| control_plane(i, None)).collect();
    machines.extend((1..=2).map(|i| worker(i, None)));
    for machine in &mut machines {
        machine.nics[0].addresses = vec![Late::From(Source::Lease)];
    }
    let mut desired = cluster("adhoc", machines);
    desired.cluster.endpoint.host = Late::From(Source::Lease);
    desired.cluster.endpoint.kind = EndpointKind::FirstControlPlane;
    desired.cluster.endpoint.vip = None;
    Scene { name: "live", desired, hosts: Vec::new() }
}

/// Everything on one host.
pub(super) fn one_big_host() -> Scene {
    let mut machines: Vec<_> = (1..=3).map(|i| control_plane(i, Some("epyc"))).collect();
    machines.extend((1..=8).map(|i| worker(i, Some("epyc"))));
    Scene { name: "one-big-host", desired: cluster("bench", machines), hosts: vec![host("epyc", None)] }
}

/// Hosts in two rows, with control planes in both, and one host without machines.
pub(super) fn eight_hosts() -> Scene {
    let names: Vec<_> = (1..=8).map(|i| format!("node{i}")).collect();
    let mut machines: Vec<_> = [1, 3, 4, 6, 8]
        .iter()
        .enumerate()
        .map(|(i, at)| control_plane(i + 1, Some(&names[at - 1])))
        .collect();
    machines.extend((1..=14).map(|i| worker(i, Some(&names[i % 7]))));
    let mut hosts: Vec<_> = names.iter().map(|name| host(name, None)).collect();
    hosts.push(host("spare", None));
    Scene { name: "eight-hosts", desired: cluster("metro", machines), hosts }
}

/// Lists, cut lists, and hosts that no list of hosts names.
pub(super) fn crowded_hosts() -> Scene {
    let mut machines: Vec<_> = (1..=13).map(|i| control_plane(i, Some("dense"))).collect();
    machines.extend((1..=60).map(|i| worker(i, Some("dense"))));
    machines.extend((61..=90).map(|i| worker(i, Some("full"))));
    machines.extend((91..=92).map(|i| worker(i, Some("calm"))));
    Scene { name: "crowded-hosts", desired: cluster("crowd", machines), hosts: vec![host("dense", None)] }
}

/// A thousand machines on 32 hosts in four zones.
pub(super) fn thousand_machines() -> Scene {
    let names: Vec<_> = (1..=32).map(|i| format!("pve-{i:02}")).collect();
    let mut machines: Vec<_> = (1..=5).map(|i| control_plane(i, Some(&names[(i - 1) * 7]))).collect();
    machines.extend((1..=995).map(|i| worker(i, Some(&names[i % 32]))));
    let hosts = names.iter().enumerate().map(|(i, name)| host(name, Some(&format!("hall {}", i / 8 + 1))));
    let hosts =
        hosts.map(|host| GraphHost { cpu: Some(256), memory: Some(Size::from_gib(1024)), ..host }).collect();
    Scene { name: "thousand-machines", desired: cluster("thousand", machines), hosts }
}

/// Names as long as DNS allows.
pub(super) fn long_names() -> Scene {
    let long =
        |word: &str, i: usize| format!("{word}-{}-{i}", "of-the-northern-data-centre-".repeat(2) + "x");
    let cut = |text: String| text[..text.len().min(61)].to_owned() + &text[text.len() - 2..];
    let mut scene = three_hosts();
    scene.name = "long-names";
    scene.desired.cluster.name = cut(long("cluster", 1)).parse().expect("name");
    for (i, machine) in scene.desired.machines.iter_mut().enumerate() {
        machine.name = cut(long(machine.role.word(), i)).parse().expect("name");
        machine.vmid = VmId::new(999_999_900 + u32::try_from(i).expect("small")).expect("vmid");
        machine.nics[0].addresses = vec![Late::Known(
            format!("2001:db8:1234:5678:9abc:def0:1234:{i:x}abc/64").parse().expect("address"),
        )];
        machine.disks[0].storage = "a-storage-with-a-name-that-never-ends".into();
    }
    for (i, host) in scene.hosts.iter_mut().enumerate() {
        let name: HostName = cut(long("host", i)).parse().expect("name");
        for machine in &mut scene.desired.machines {
            if machine.host == Late::Known(host.name.clone()) {
                machine.host = Late::Known(name.clone());
            }
        }
        host.name = name;
        host.zone = Some(format!("zone {} {i}", "with a very long description ".repeat(3)));
    }
    scene
}

/// Text that means something to XML, to Mermaid, or to the terminal.
pub(super) const HOSTILE: &str =
    "<b>\"x\"&amp;]]>#quot;'%%{init: {}}%%`style: a#b;\n\u{7}\u{202e}--> end [/]{|} 🚀é日 </svg>";

/// [`HOSTILE`] text wherever text is free.
pub(super) fn hostile_text() -> Scene {
    let mut scene = two_zones();
    scene.name = "hostile-text";
    scene.desired.cluster.environment = Some(HOSTILE.into());
    scene.desired.cluster.endpoint.host = Late::Known(HOSTILE.into());
    let machine = &mut scene.desired.machines[3];
    machine.disks[0].storage = HOSTILE.into();
    machine.disks[1].name = HOSTILE.into();
    machine.vm.pci[0].device = PciAddress::Address(HOSTILE.into());
    machine.nics[1].bridge = HOSTILE.into();
    scene.hosts[0].zone = Some(HOSTILE.into());
    scene
}

/// An empty cluster, which no inventory resolves to.
pub(super) fn no_machines() -> Scene {
    Scene { name: "no-machines", desired: cluster("void", Vec::new()), hosts: Vec::new() }
}

/// Returns a host with 32 threads and 128 GiB.
pub(super) fn host(name: &str, zone: Option<&str>) -> GraphHost {
    GraphHost {
        name: name.parse().expect("host name"),
        zone: zone.map(Into::into),
        cpu: Some(32),
        memory: Some(Size::from_gib(128)),
    }
}

fn control_plane(number: usize, host: Option<&str>) -> Machine {
    machine(Role::ControlPlane, &format!("cp-{number}"), number, host)
}

fn worker(number: usize, host: Option<&str>) -> Machine {
    let mut machine = machine(Role::Worker, &format!("worker-{number}"), 100 + number, host);
    machine.cpu = Cpu { cores: 8, sockets: 1, ..machine.cpu };
    machine.memory = Size::from_gib(24);
    machine.disks[0].size = Size::from_gib(100);
    machine
}

fn machine(role: Role, name: &str, number: usize, host: Option<&str>) -> Machine {
    let name: MachineName = name.parse().expect("machine name");
    Machine {
        group: role.word().into(),
        role,
        generation: 1,
        host: host
            .map_or(Late::From(Source::LiveHosts), |host| Late::Known(host.parse().expect("host name"))),
        vmid: VmId::new(400 + u32::try_from(number).expect("small")).expect("vmid"),
        uuid: Seed { cluster: "sample", machine: name.as_str(), generation: 1 }.uuid(),
        name,
        talos: TALOS,
        kubernetes: KUBERNETES,
        image: "v1.13.9-nocloud-amd64".into(),
        template: None,
        boot: Boot {
            address: AddressDelivery::Cloudinit,
            config: ConfigDelivery::Maintenance,
            verify: Verify::Console,
        },
        cpu: Cpu { cores: 2, sockets: 2, cpu_type: "host".into(), numa: false },
        memory: Size::from_gib(8),
        disks: vec![disk("scsi0", "system", Size::from_gib(40))],
        nics: vec![nic("net0", "vmbr0", Some(20), number)],
        vm: vm_options(),
        sysctls: BTreeMap::new(),
        kernel_modules: Vec::new(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        taints: BTreeMap::new(),
        patches: Vec::new(),
    }
}

const TALOS: TalosVersion = TalosVersion::new(1, 13, 9);
const KUBERNETES: KubernetesVersion = KubernetesVersion::new(1, 36, 2);

fn disk(slot: &str, name: &str, size: Size) -> Disk {
    let options =
        DiskOptions { ssd: true, discard: true, iothread: true, backup: true, replicate: true, cache: None };
    Disk {
        slot: slot.into(),
        name: name.into(),
        size,
        storage: "local-lvm".into(),
        mount: None,
        filesystem: None,
        options,
    }
}

fn nic(slot: &str, bridge: &str, vlan: Option<u16>, number: usize) -> Nic {
    let address = format!("10.0.{}.{}/20", 10 + number / 250, 1 + number % 250);
    Nic {
        slot: slot.into(),
        mac: MacAddress::unicast([0xbc, 0x24, 0x11, 0, 0, 1]),
        bridge: bridge.into(),
        vlan,
        mtu: None,
        model: "virtio".into(),
        firewall: false,
        queues: None,
        written: ichor_model::desired::Written::default(),
        addresses: vec![Late::Known(address.parse().expect("address"))],
        gateways: Vec::new(),
        dns: Vec::new(),
        routes: Vec::new(),
    }
}

fn vm_options() -> VmOptions {
    VmOptions {
        machine: Board::Q35,
        bios: Bios::Ovmf,
        efi_storage: None,
        tpm: false,
        scsi_controller: "virtio-scsi-single".into(),
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

fn cluster(name: &str, machines: Vec<Machine>) -> Desired {
    Desired {
        cluster: Cluster {
            name: name.parse().expect("cluster name"),
            id: name.into(),
            environment: Some("production".into()),
            talos: TALOS,
            kubernetes: KUBERNETES,
            contract: Minor::new(1, 13),
            endpoint: endpoint("10.0.10.10", EndpointKind::TalosVip),
            ha: true,
            protect: false,
            schedule_on_control_planes: false,
            discovery: true,
            domain: "cluster.local".into(),
            region: None,
            cert_sans: Vec::new(),
            manifests: Vec::new(),
        },
        proxmox: Proxmox {
            endpoint: "https://pve.example.net:8006".into(),
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
            cidr: vec!["10.0.0.0/20".parse().expect("network")],
            pods: vec!["10.244.0.0/16".parse().expect("network")],
            services: vec!["10.96.0.0/12".parse().expect("network")],
            hostnames: Hostnames::Inventory,
        },
        os: Os::default(),
        images: Vec::new(),
        templates: Vec::new(),
        machines,
        addons: BTreeMap::new(),
        store: "cluster".into(),
        recipients: Vec::new(),
        secrets_file: None,
    }
}

fn endpoint(host: &str, kind: EndpointKind) -> Endpoint {
    let vip = (kind == EndpointKind::TalosVip).then(|| host.parse().expect("address"));
    Endpoint { host: Late::Known(host.into()), port: 6443, kind, vip, kube_vip: None }
}

/// Machines with long names spread evenly over hosts.
pub(super) fn spread(machines: usize, hosts: usize) -> Scene {
    let machines = (1..=machines).map(|i| {
        let name = format!("m-{i}-with-a-name");
        machine(Role::Worker, &name, i, Some(&format!("host-{}", i % hosts)))
    });
    Scene { name: "spread", desired: cluster("spread", machines.collect()), hosts: Vec::new() }
}
