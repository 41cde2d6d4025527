//! The VM of each machine: processors, memory, disks, network cards, firmware.

use std::collections::{BTreeMap, BTreeSet};

use ichor_model::{
    At, Code, Finding, HostName, MachineName, Size, Span,
    desired::{self as d, Arch, Bios, Board, Boot, Late, PciAddress, Role},
    identity::Seed,
};
use ichor_spec::{
    inventory::{DiskShape, ExtraDisk, Machine, MachineNetwork, Nic, Pci},
    values::{Address, Addressing, LabelKey, NicModel, ScsiController},
};

use super::{
    Context,
    addons::{self, texts},
    cluster::values,
    expand::Draft,
    image::{GUEST_AGENT, Images, schematic, secureboot, template_of},
    network::Networks,
    seats::{Hosts, storage},
    vmids::Allocation,
};

/// Talos calls a control plane healthy from 1848 MiB less 150, a worker from 1024 MiB less 150.
const LEAST_MEMORY_MIB: [(Role, u64); 2] = [(Role::ControlPlane, 1848 - 150), (Role::Worker, 1024 - 150)];
/// Talos' own minimum.
const LEAST_DISK: Size = Size::from_gib(6);
/// Proxmox takes scsi0 to scsi30, net0 to net31 and hostpci0 to hostpci15.
const MOST_DISKS: usize = 31;
const MOST_NICS: usize = 32;
const MOST_PCI: usize = 16;
/// Disk names that mean something else to Talos, or to us.
const RESERVED_DISK_NAMES: [&str; 5] = ["system", "state", "ephemeral", "imagecache", "meta"];

/// What was decided before a VM takes its shape.
#[derive(Debug)]
pub struct Parts<'a> {
    /// How machines boot.
    pub boot: Boot,
    /// Their images.
    pub images: &'a Images,
    /// Their VMIDs.
    pub vmids: &'a Allocation,
    /// Their addresses and MACs.
    pub network: &'a Networks,
    /// The hosts.
    pub hosts: &'a Hosts,
    /// Operating-system settings of every machine.
    pub os: &'a d::Os,
    /// Which host each machine goes to; for the others only the live Proxmox can tell.
    pub seats: BTreeMap<MachineName, HostName>,
}

/// Returns how many VMs of this name there have been.
pub fn generation(cx: &Context<'_>, name: &MachineName) -> u32 {
    cx.seen.machine(name).map_or(1, |seen| seen.generation)
}

/// Gives every machine that has an image and a VMID its final shape.
pub fn machines(cx: &mut Context<'_>, drafts: &[Draft], parts: &Parts<'_>) -> Vec<d::Machine> {
    let cluster = super::cluster::id(cx);
    // What a group says is judged once, not once for each of its members.
    let mut judged = BTreeSet::new();
    drafts
        .iter()
        .filter_map(|draft| {
            let first_of_kind = judged.insert(std::rc::Rc::as_ptr(&draft.all));
            if first_of_kind {
                check_settings(cx, draft);
            }
            machine(cx, draft, parts, &cluster)
        })
        .collect()
}

fn machine(cx: &mut Context<'_>, draft: &Draft, parts: &Parts<'_>, cluster: &str) -> Option<d::Machine> {
    let host = match parts.seats.get(&draft.name) {
        Some(host) => Late::Known(host.clone()),
        None if parts.hosts.are_known() => return None,
        None => Late::From(d::Source::LiveHosts),
    };
    let image = parts.images.image(&draft.name)?;
    let storage = storage(cx, host.known());
    let all = &draft.all;
    let generation = generation(cx, &draft.name);
    let seed = Seed { cluster, machine: draft.name.as_str(), generation };
    let disks = disks(draft, &storage.disks);
    let vm = vm_options(cx, draft, image, parts.boot, &storage, &disks[0].storage);
    Some(d::Machine {
        name: draft.name.clone(),
        group: draft.group.to_string(),
        role: draft.role,
        generation,
        vmid: *parts.vmids.get(&draft.name)?,
        uuid: seed.uuid(),
        talos: image.talos.clone(),
        kubernetes: all.kubernetes.as_ref().or(cx.cluster.kubernetes.as_ref())?.value.clone(),
        image: image.id.clone(),
        template: template_of(cx, draft),
        boot: parts.boot,
        cpu: cpu(cx, draft),
        memory: memory(draft),
        nics: nics(cx, draft, parts, host.known())?,
        disks,
        vm,
        sysctls: sysctls(draft, parts.os),
        kernel_modules: kernel_modules(cx, draft, parts.os),
        labels: map(all.labels.as_ref(), |value| value.0.clone()),
        annotations: map(all.annotations.as_ref(), |value| value.0.clone()),
        taints: map(all.taints.as_ref(), |value| value.0.clone()),
        patches: Vec::new(),
        host,
    })
}

/// The cluster's kernel parameters, and the machine's own over them.
fn sysctls(draft: &Draft, os: &d::Os) -> BTreeMap<String, String> {
    let mut all = os.sysctls.clone();
    let removed = draft.all.sysctls.iter().flat_map(|map| &map.1);
    removed.for_each(|key| drop(all.remove(key)));
    all.extend(texts(draft.all.sysctls.as_ref()));
    all
}

/// The cluster's kernel modules and those of every level of the machine; of two with the same name
/// the nearest counts.
fn kernel_modules(cx: &mut Context<'_>, draft: &Draft, os: &d::Os) -> Vec<d::KernelModule> {
    let written: Vec<_> =
        draft.levels(cx).filter_map(|level| level.kernel_modules.as_ref()).cloned().collect();
    let mut all = os.kernel_modules.clone();
    for list in &written {
        for module in addons::kernel_modules(cx, Some(list)) {
            all.retain(|known| known.name != module.name);
            all.push(module);
        }
    }
    all
}

fn map<V>(
    written: Option<&At<ichor_spec::read::Map<LabelKey, V>>>,
    text: impl Fn(&V) -> String,
) -> BTreeMap<String, String> {
    let entries = written.iter().flat_map(|map| &map.0);
    entries.map(|(key, value)| (key.value.0.clone(), text(&value.value))).collect()
}

/// Returns the processors of a machine.
pub fn cpu(cx: &Context<'_>, draft: &Draft) -> d::Cpu {
    let all = &draft.all;
    let model = match cx.arch_of(all) {
        Arch::Amd64 => "x86-64-v2-AES",
        Arch::Arm64 => "host",
    };
    d::Cpu {
        cores: all.cpu.map_or(4, |cpu| cpu.value.0),
        sockets: all.sockets.map_or(1, |sockets| sockets.value.0),
        cpu_type: all.cpu_type.as_ref().map_or_else(|| model.into(), |at| at.value.0.clone()),
        numa: all.numa.is_some_and(|at| at.value),
    }
}

/// Returns the memory of a machine.
pub fn memory(draft: &Draft) -> Size {
    let default = match draft.role {
        Role::ControlPlane => Size::from_gib(4),
        Role::Worker => Size::from_gib(8),
    };
    draft.all.memory.map_or(default, |memory| memory.value)
}

fn system_disk(draft: &Draft) -> DiskShape {
    draft.all.disk.as_ref().map(|disk| disk.shape()).unwrap_or_default()
}

fn system_size(draft: &Draft) -> Size {
    let default = match draft.role {
        Role::ControlPlane => Size::from_gib(20),
        Role::Worker => Size::from_gib(50),
    };
    system_disk(draft).size.map_or(default, |size| size.value)
}

fn disks(draft: &Draft, storage: &str) -> Vec<d::Disk> {
    let shared = draft.all.storage.as_ref().map_or(storage, |at| at.value.as_str());
    let on = |own: Option<&At<String>>| own.map_or(shared, |at| at.value.as_str()).to_owned();
    let system = system_disk(draft);
    let first = d::Disk {
        slot: "scsi0".into(),
        name: "system".into(),
        size: system_size(draft),
        storage: on(system.storage.as_ref()),
        mount: None,
        filesystem: None,
        options: disk_options(&system),
    };
    let extra = draft.all.disks.iter().flat_map(|disks| &disks.value).enumerate();
    std::iter::once(first)
        .chain(extra.map(|(i, disk)| extra_disk(i, disk, on(disk.storage.as_ref()))))
        .collect()
}

fn extra_disk(i: usize, disk: &ExtraDisk, storage: String) -> d::Disk {
    let name = disk.name.as_ref().map_or_else(String::new, |name| name.value.clone());
    let mount = match disk.mount.as_ref().map(|mount| mount.value.as_str()) {
        Some("none") => None,
        Some(path) => Some(path.to_owned()),
        None => Some(format!("/var/mnt/{name}")),
    };
    let filesystem = disk.filesystem.map_or("xfs", |filesystem| filesystem.value.word());
    let shape = DiskShape {
        ssd: disk.ssd,
        discard: disk.discard,
        iothread: disk.iothread,
        backup: disk.backup,
        replicate: disk.replicate,
        cache: disk.cache,
        ..DiskShape::default()
    };
    d::Disk {
        slot: format!("scsi{}", i + 1),
        name,
        size: disk.size.map_or(Size::default(), |size| size.value),
        storage,
        filesystem: mount.is_some().then(|| filesystem.to_owned()),
        mount,
        options: disk_options(&shape),
    }
}

fn disk_options(shape: &DiskShape) -> d::DiskOptions {
    let switch = |written: Option<At<bool>>, default| written.map_or(default, |at| at.value);
    d::DiskOptions {
        ssd: switch(shape.ssd, false),
        discard: switch(shape.discard, true),
        iothread: switch(shape.iothread, false),
        backup: switch(shape.backup, true),
        replicate: switch(shape.replicate, true),
        cache: shape.cache.map(|cache| cache.word().to_owned()),
    }
}

fn nics(cx: &Context<'_>, draft: &Draft, parts: &Parts<'_>, host: Option<&HostName>) -> Option<Vec<d::Nic>> {
    let macs = parts.network.macs.get(&draft.name)?;
    let addresses = parts.network.addresses.get(&draft.name)?.clone();
    if addresses.is_empty() {
        return None;
    }
    let mut nics = vec![primary_nic(cx, draft, *macs.first()?, addresses, parts.hosts.bridge(host))];
    let extra = draft.all.nics.iter().flat_map(|nics| &nics.value).enumerate();
    for (i, nic) in extra {
        let address = parts.network.extra.get(&(draft.name.clone(), i)).cloned();
        nics.push(extra_nic(cx, i + 1, nic, *macs.get(i + 1)?, address));
    }
    Some(nics)
}

fn primary_nic(
    cx: &Context<'_>,
    draft: &Draft,
    mac: ichor_model::MacAddress,
    addresses: Vec<Late<ipnet::IpNet>>,
    host_bridge: Option<&str>,
) -> d::Nic {
    let own: MachineNetwork = draft.all.network.as_ref().map(|at| at.value.clone()).unwrap_or_default();
    let shared = &cx.network;
    let fixed = addresses.iter().any(|address| address.known().is_some());
    let ips = |own: Option<&At<ichor_spec::read::OneOrMany<ichor_spec::values::Ip>>>,
               shared: Option<&At<ichor_spec::read::OneOrMany<ichor_spec::values::Ip>>>| {
        own.or(shared).map(|many| many.0.iter().map(|ip| ip.value.0).collect()).unwrap_or_default()
    };
    let bridge = own.bridge.as_ref().map(|at| at.value.as_str()).or(host_bridge);
    let bridge = bridge.or(shared.bridge.as_ref().map(|at| at.value.as_str())).unwrap_or("vmbr0");
    d::Nic {
        slot: "net0".into(),
        mac,
        bridge: bridge.to_owned(),
        vlan: small(own.vlan.or(shared.vlan)),
        mtu: small(own.mtu.or(shared.mtu)),
        model: own.model.or(shared.model).map_or(NicModel::Virtio, |model| model.value).word().into(),
        firewall: own.firewall.or(shared.firewall).is_some_and(|at| at.value),
        queues: small(own.queues.or(shared.queues)),
        addresses,
        written: d::Written(
            draft
                .nearest(cx, |machine| machine.address.as_ref())
                .and_then(|(_, written)| Some(written.0.first()?.span)),
        ),
        gateways: if fixed { ips(own.gateway.as_ref(), shared.gateway.as_ref()) } else { Vec::new() },
        dns: ips(own.dns.as_ref(), shared.dns.as_ref()),
        routes: Vec::new(),
    }
}

fn extra_nic(
    cx: &Context<'_>,
    i: usize,
    nic: &Nic,
    mac: ichor_model::MacAddress,
    address: Option<Late<ipnet::IpNet>>,
) -> d::Nic {
    let shared = cx.network.bridge.as_ref().map_or("vmbr0", |at| at.value.as_str());
    let routes = nic.routes.iter().flat_map(|routes| &routes.value).filter_map(|route| {
        Some(d::Route {
            to: route.to?.value.0,
            via: route.via?.value.0,
            metric: route.metric.map(|metric| metric.value.0),
        })
    });
    d::Nic {
        slot: format!("net{i}"),
        mac,
        bridge: nic.bridge.as_ref().map_or_else(|| shared.to_owned(), |at| at.value.clone()),
        vlan: small(nic.vlan),
        mtu: small(nic.mtu),
        model: nic.model.map_or(NicModel::Virtio, |model| model.value).word().into(),
        firewall: nic.firewall.or(cx.network.firewall).is_some_and(|at| at.value),
        queues: small(nic.queues),
        addresses: address.into_iter().collect(),
        written: d::Written(nic.address.map(|address| address.span)),
        gateways: Vec::new(),
        dns: Vec::new(),
        routes: routes.collect(),
    }
}

/// Numbers in an inventory are read with bounds that fit.
fn small<const LOW: u32, const HIGH: u32>(
    written: Option<At<ichor_spec::values::Int<LOW, HIGH>>>,
) -> Option<u16> {
    written.and_then(|at| u16::try_from(at.value.0).ok())
}

fn board(cx: &Context<'_>, all: &Machine) -> Board {
    let default = match cx.arch_of(all) {
        Arch::Amd64 => Board::Q35,
        Arch::Arm64 => Board::Virt,
    };
    all.machine.map_or(default, |at| at.value)
}

fn vm_options(
    cx: &Context<'_>,
    draft: &Draft,
    image: &d::Image,
    boot: Boot,
    storage: &d::Storage,
    system_storage: &str,
) -> d::VmOptions {
    let all = &draft.all;
    let bios = all.bios.map_or(Bios::Ovmf, |at| at.value);
    let board = board(cx, all);
    d::VmOptions {
        machine: board,
        bios,
        efi_storage: (bios == Bios::Ovmf).then(|| system_storage.to_owned()),
        tpm: all.tpm.map_or(image.secureboot, |at| at.value),
        scsi_controller: all
            .scsi_controller
            .map_or(ScsiController::VirtioScsiPci, |at| at.value)
            .word()
            .into(),
        agent: all.agent.map_or_else(|| has_agent(image), |at| at.value),
        on_boot: all.on_boot.is_none_or(|at| at.value),
        protection: all.protection.is_some_and(|at| at.value),
        startup: all.startup.as_ref().map(|startup| d::Startup {
            order: startup.order.map(|at| at.value.0),
            up: startup.up.map(|at| at.value.0),
            down: startup.down.map(|at| at.value.0),
        }),
        tags: tags(cx, draft),
        notes: all.notes.as_ref().map(|at| at.value.0.clone()),
        pci: all.pci.iter().flat_map(|pci| &pci.value).filter_map(|pci| pci_device(pci, board)).collect(),
        cloudinit_storage: (boot.address == d::AddressDelivery::Cloudinit).then(|| storage.cloudinit.clone()),
    }
}

fn has_agent(image: &d::Image) -> bool {
    image.extensions.iter().any(|extension| extension == GUEST_AGENT)
}

/// `ichor`, the cluster, its environment and the role, then what the inventory adds.
fn tags(cx: &Context<'_>, draft: &Draft) -> Vec<String> {
    let cluster = cx.cluster.name.as_ref().map(|name| name.value.to_string());
    let environment = cx.cluster.environment.as_ref().map(|at| at.value.clone());
    let fixed = ["ichor".to_owned(), draft.role.to_string()].into_iter().chain(cluster).chain(environment);
    let fixed = fixed.filter_map(|text| text.parse::<ichor_spec::values::Tag>().ok());
    let own = draft.levels(cx).flat_map(|level| values(level.tags.as_ref()));
    fixed.chain(own).map(|tag| tag.0).collect::<BTreeSet<_>>().into_iter().collect()
}

fn pci_device(pci: &Pci, board: Board) -> Option<d::PciDevice> {
    let device = match (&pci.mapping, &pci.address) {
        (Some(mapping), _) => PciAddress::Mapping(mapping.value.clone()),
        (None, Some(address)) => PciAddress::Address(address.value.0.clone()),
        (None, None) => return None,
    };
    Some(d::PciDevice {
        device,
        pcie: pci.pcie.map_or(board == Board::Q35, |at| at.value),
        primary_gpu: pci.primary_gpu.is_some_and(|at| at.value),
    })
}

/// Reports settings that cannot work, whatever machine they are for.
fn check_settings(cx: &mut Context<'_>, draft: &Draft) {
    check_size(cx, draft);
    check_disks(cx, draft);
    check_firmware(cx, draft);
    check_processor(cx, draft);
    check_pci(cx, draft);
    check_nics(cx, draft);
    check_agent(cx, draft);
}

const fn in_words(role: Role) -> &'static str {
    match role {
        Role::ControlPlane => "control plane",
        Role::Worker => "worker",
    }
}

fn check_size(cx: &mut Context<'_>, draft: &Draft) {
    let least = LEAST_MEMORY_MIB.iter().find(|(role, _)| *role == draft.role).map_or(0, |(_, mib)| *mib);
    let memory = memory(draft);
    if memory.mib() < least {
        cx.findings.push(
            Finding::error(
                Code::TOO_SMALL,
                draft.all.memory.map_or(draft.at, |at| at.span),
                format!("{memory} of memory is too little for a {}", in_words(draft.role)),
            )
            .because(format!("Talos needs {least}MiB"))
            .remedy("write `memory: 4GiB`"),
        );
    }
    let size = system_size(draft);
    let at = system_disk(draft).size.map_or(draft.at, |size| size.span);
    if size < LEAST_DISK {
        cx.findings.push(
            Finding::error(Code::TOO_SMALL, at, format!("a system disk of {size} is too small"))
                .because(format!("Talos needs {LEAST_DISK}"))
                .remedy("write `disk: 20GiB`"),
        );
    }
    check_whole_gib(cx, size, at);
}

fn check_whole_gib(cx: &mut Context<'_>, size: Size, at: Span) {
    if size.whole_gib().is_none() {
        cx.findings.push(
            Finding::error(Code::WHOLE_GIB, at, format!("a disk of {size} is not a whole number of GiB"))
                .remedy(format!("write `{}GiB`", size.mib().div_ceil(1024))),
        );
    }
}

fn check_disks(cx: &mut Context<'_>, draft: &Draft) {
    let Some(disks) = draft.all.disks.clone() else { return };
    if disks.len() >= MOST_DISKS {
        too_many(cx, disks.span, "disks", disks.len() + 1, MOST_DISKS);
    }
    let mut names: BTreeMap<String, Span> = BTreeMap::new();
    for disk in &disks.value {
        match &disk.name {
            None if disk.unread.has("name") => {}
            None => cx.missing(Some(disk.span), "name", "name the disk: `{name: longhorn, size: 200GiB}`"),
            Some(name) => {
                check_disk_name(cx, name);
                if let Some(first) = names.insert(name.value.clone(), name.span) {
                    cx.findings.push(
                        Finding::error(
                            Code::DISK_NAME,
                            name.span,
                            format!("two disks are called `{}`", ichor_spec::yaml::show(name)),
                        )
                        .see(first, "the first one")
                        .remedy("give each disk a name of its own"),
                    );
                }
            }
        }
        match disk.size {
            None if disk.unread.has("size") => {}
            None => cx.missing(
                Some(disk.span),
                "size",
                "say how large the disk is: `{name: longhorn, size: 200GiB}`",
            ),
            Some(size) => check_whole_gib(cx, size.value, size.span),
        }
        check_mount(cx, disk);
    }
    check_mounts_apart(cx, &disks.value);
}

/// Two disks at one place would hide each other. (Those of one name have been reported.)
fn check_mounts_apart(cx: &mut Context<'_>, disks: &[At<ExtraDisk>]) {
    let mut mounts: BTreeMap<String, Option<Span>> = BTreeMap::new();
    for disk in disks {
        let Some(path) = extra_disk(0, disk, String::new()).mount else { continue };
        let own = disk.mount.as_ref().map(|at| at.span);
        let shown = ichor_spec::yaml::show(&path);
        if let Some(at) = mounts.insert(path, own).and_then(|other| own.or(other)) {
            cx.findings.push(
                Finding::error(Code::BAD_PATH, at, format!("two disks are mounted at `{shown}`"))
                    .remedy("give each disk a `mount` of its own"),
            );
        }
    }
}

fn check_disk_name(cx: &mut Context<'_>, name: &At<String>) {
    let plain = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    let reserved = RESERVED_DISK_NAMES.contains(&name.value.as_str());
    if !plain || reserved || name.len() > 34 || name.starts_with('-') || name.ends_with('-') {
        let why = if reserved { "means something else to Talos" } else { "cannot name a Talos volume" };
        cx.findings.push(
            Finding::error(Code::DISK_NAME, name.span, format!("`{}` {why}", ichor_spec::yaml::show(name)))
                .remedy("use 1 to 34 of a to z, 0 to 9 and `-`, such as `longhorn`"),
        );
    }
}

fn check_mount(cx: &mut Context<'_>, disk: &ExtraDisk) {
    if let Some(mount) = disk.mount.as_ref().filter(|mount| {
        mount.value != "none" && (!mount.starts_with("/var/") || mount.contains("..") || mount.ends_with('/'))
    }) {
        cx.findings.push(
            Finding::error(
                Code::BAD_PATH,
                mount.span,
                format!("Talos cannot mount a disk at `{}`", ichor_spec::yaml::show(mount)),
            )
            .remedy("choose a path below `/var/`, or `none`"),
        );
    }
}

fn too_many(cx: &mut Context<'_>, at: Span, what: &str, count: usize, most: usize) {
    cx.findings.push(
        Finding::error(Code::TOO_MANY_DEVICES, at, format!("{count} {what} are more than Proxmox takes"))
            .remedy(format!("use at most {most}")),
    );
}

fn check_firmware(cx: &mut Context<'_>, draft: &Draft) {
    let all = draft.all.clone();
    let (arch, board) = (cx.arch_of(&all), board(cx, &all));
    let secureboot = secureboot(cx, &all);
    let bios = all.bios.map_or(Bios::Ovmf, |at| at.value);
    let at = all.machine.map(|at| at.span).or(all.bios.map(|at| at.span)).or(secureboot.map(|at| at.span));
    if arch == Arch::Arm64 && (board != Board::Virt || bios != Bios::Ovmf || secureboot.is_some()) {
        cx.findings.push(
            Finding::error(
                Code::ARCH,
                at.unwrap_or(draft.at),
                "this board, firmware or secure boot is amd64 only",
            )
            .remedy("for `arch: arm64` use `machine: virt` and `bios: ovmf`, without secure boot"),
        );
    } else if arch == Arch::Amd64 && board == Board::Virt {
        cx.findings.push(
            Finding::error(Code::ARCH, at.unwrap_or(draft.at), "`virt` is the board of arm64 guests")
                .remedy("use `machine: q35`"),
        );
    } else if let Some(secureboot) = secureboot.filter(|_| board != Board::Q35 || bios != Bios::Ovmf) {
        cx.findings.push(
            Finding::error(
                Code::SECUREBOOT,
                at.unwrap_or(secureboot.span),
                "secure boot needs `q35` and `ovmf`",
            )
            .see(secureboot.span, "secure boot is asked for here")
            .remedy("use `machine: q35` and `bios: ovmf`, or drop secure boot"),
        );
    }
}

fn check_processor(cx: &mut Context<'_>, draft: &Draft) {
    const TOO_OLD: [&str; 6] = ["kvm64", "qemu64", "kvm32", "qemu32", "486", "pentium"];
    if let Some(model) = draft.all.cpu_type.as_ref().filter(|model| TOO_OLD.contains(&model.0.as_str())) {
        cx.findings.push(
            Finding::error(Code::CPU_TYPE, model.span, format!("Talos does not boot on `{}`", model.0))
                .because("it lacks x86-64-v2")
                .remedy("write `cpu_type: x86-64-v2-AES`, or `host`"),
        );
    }
    if let Some(controller) =
        draft.all.scsi_controller.filter(|controller| controller.value == ScsiController::VirtioScsiSingle)
    {
        cx.findings.push(
            Finding::warning(
                Code::SCSI_CONTROLLER,
                controller.span,
                "`virtio-scsi-single` hangs Talos on some Intel hosts",
            )
            .remedy("write `scsi_controller: virtio-scsi-pci`, unless you know that yours works"),
        );
    }
}

fn check_pci(cx: &mut Context<'_>, draft: &Draft) {
    let Some(devices) = draft.all.pci.clone() else { return };
    if devices.len() > MOST_PCI {
        too_many(cx, devices.span, "PCI devices", devices.len(), MOST_PCI);
    }
    let q35 = board(cx, &draft.all) == Board::Q35;
    for device in &devices.value {
        match (&device.mapping, &device.address) {
            (Some(_), Some(address)) => cx.findings.push(
                Finding::error(
                    Code::CONFLICTING_KEYS,
                    address.span,
                    "a device has a mapping or an address, not both",
                )
                .remedy("keep `mapping`"),
            ),
            (None, None) if device.unread.has("mapping") || device.unread.has("address") => {}
            (None, None) => {
                let remedy = "name a Proxmox resource mapping: `{mapping: igpu}`";
                cx.missing(Some(device.span), "mapping", remedy);
            }
            (None, Some(address)) => cx.findings.push(
                Finding::warning(Code::RAW_PCI, address.span, "a raw PCI address needs root's own login")
                    .because("API tokens may only use resource mappings")
                    .remedy("make a mapping in Proxmox and write `{mapping: NAME}`"),
            ),
            (Some(_), None) => {}
        }
        if let Some(pcie) = device.pcie.filter(|pcie| pcie.value && !q35) {
            cx.findings.push(
                Finding::error(Code::CONFLICTING_KEYS, pcie.span, "PCI Express needs `machine: q35`")
                    .remedy("use `q35`, or remove `pcie`"),
            );
        }
    }
}

fn check_nics(cx: &mut Context<'_>, draft: &Draft) {
    if let Some(nics) = draft.all.nics.as_ref().filter(|nics| nics.len() >= MOST_NICS) {
        too_many(cx, nics.span, "network cards", nics.len() + 1, MOST_NICS);
    }
    let own = draft.all.network.as_ref().and_then(|network| network.mtu).or(cx.network.mtu);
    let extra = draft.all.nics.iter().flat_map(|nics| &nics.value).filter_map(|nic| nic.mtu);
    for mtu in own.into_iter().chain(extra).collect::<Vec<_>>() {
        if (2..1280).contains(&mtu.value.0) {
            cx.findings.push(
                Finding::error(Code::VLAN, mtu.span, format!("an MTU of {} is too small", mtu.value.0))
                    .remedy("write 1280 to 65520, or 1 for the bridge's own"),
            );
        }
    }
    let nics = draft.all.nics.clone();
    for routes in nics.iter().flat_map(|nics| &nics.value).filter_map(|nic| nic.routes.as_ref()) {
        for route in &routes.value {
            let lacks = |key, absent: bool| absent && !route.unread.has(key);
            if lacks("to", route.to.is_none()) || lacks("via", route.via.is_none()) {
                cx.missing(Some(route.span), "to` or `via", "write both: `{to: 10.9.0.0/16, via: 10.0.0.2}`");
            }
        }
    }
}

fn check_agent(cx: &mut Context<'_>, draft: &Draft) {
    let wanted = draft.all.agent;
    let known = schematic(cx, &draft.all).is_none() && cx.image.file.is_none();
    let present = !known || has_agent_extension(cx, draft);
    if let Some(agent) = wanted.filter(|agent| agent.value && !present) {
        cx.findings.push(
            Finding::warning(Code::AGENT, agent.span, "the guest agent is expected but not in the image")
                .remedy(format!("add `{GUEST_AGENT}` to `image.extensions`")),
        );
    }
    let expected = wanted.map_or(known && present, |agent| agent.value);
    if !is_leased(cx, draft) || expected || draft.all.unread.has("agent") {
        return;
    }
    let (at, remedy) = if let Some(agent) = wanted {
        (Some(agent.span), "remove `agent: false`, or give the machine an address".to_owned())
    } else if known {
        let recipe = cx.image.extensions.as_ref().map(|extensions| extensions.span);
        (recipe, format!("add `{GUEST_AGENT}` to `image.extensions`"))
    } else {
        let image = cx.image.file.as_ref().map(|file| file.span);
        let image = image.or(schematic(cx, &draft.all).map(|id| id.span));
        (
            image,
            format!(
                "if this image has `{GUEST_AGENT}`, add `defaults: {{agent: true}}`; else give the machines addresses"
            ),
        )
    };
    cx.findings.push(
        Finding::error(
            Code::AGENT,
            at.unwrap_or(draft.at),
            format!("the leased address of `{}` cannot be found without the guest agent", draft.name),
        )
        .remedy(remedy),
    );
}

/// Whether the image of a machine has the guest agent; one that lists no extensions has it.
fn has_agent_extension(cx: &Context<'_>, draft: &Draft) -> bool {
    let Some(recipe) = &cx.image.extensions else { return true };
    let own = draft.levels(cx).flat_map(|level| values(level.extensions.as_ref()));
    cx.image.unread.has("extensions")
        || draft.all.unread.has("extensions")
        || recipe.iter().map(|at| at.value.clone()).chain(own).any(|extension| extension.0 == GUEST_AGENT)
}

fn is_leased(cx: &Context<'_>, draft: &Draft) -> bool {
    draft.nearest(cx, |machine| machine.address.as_ref()).map_or_else(
        || cx.network.addressing.is_some_and(|at| at.value == Addressing::Dhcp),
        |(_, addresses)| addresses.0.iter().any(|at| at.value == Address::Dhcp),
    )
}
