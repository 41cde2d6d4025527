//! The lab that an inventory takes for granted: its hosts, storages, bridges and DHCP servers, and what it says is
//! there already. A cluster can be rehearsed in it as it stands.
//!
//! Whatever the inventory does not say is as on a fresh Proxmox: `local` for files, `local-lvm` for disks, and the
//! bridge `vmbr0`. Templates that machines of several hosts are cloned from lie on a storage that these share,
//! unless it is `local-lvm` or `local`, which never are shared.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

use ichor_machineconfig::schematic::{Schematic, image_id};
use ichor_model::{
    Desired,
    desired::{
        AddressDelivery, Hostnames, Image, ImageSource, Late, Machine, Nic, PciAddress, Storage, Template,
    },
};
use ipnet::Ipv4Net;
use serde_json::json;

use crate::{
    Lab,
    ground::{Content, NetworkCard},
    profile::Profile,
    pve::{
        qemu::{Vm, config::Config},
        release::Release,
        storage::{shelves::NewVolume, volume::Naming, web::File},
        world::{self, NewHost},
    },
    setup::Setup,
    talos::lan::{DhcpServer, segment},
    wire::Request,
};

/// How much a host has of which the inventory does not say it.
const THREADS: u32 = 64;
const MEMORY: u64 = 512 << 30;
/// How much each storage holds.
const CAPACITY: u64 = 16 << 40;
/// Hosts of an inventory that leaves them to the live Proxmox.
const HOSTS: [&str; 3] = ["pve1", "pve2", "pve3"];
/// Leases are given from here on, counted from the beginning of the network, if there is room.
const FIRST_LEASE: u32 = 100;
/// Where machines get leases whose network the inventory does not name.
const ELSEWHERE: [[u8; 4]; 3] = [[192, 168, 77, 0], [10, 77, 0, 0], [172, 30, 77, 0]];

/// Sets up the lab of an inventory.
pub fn setup(desired: &Desired, seed: u64, profile: Profile, release: Release) -> Lab {
    let mut names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
    names.extend(authority(&desired.proxmox.endpoint).map(|(host, _)| host));
    names.extend(factories(desired).into_iter().map(|(host, ..)| host));
    let setup =
        Setup { release, hosts: hosts(desired), capacity: CAPACITY, names, ..Setup::new(seed, profile) };
    let mut lab = setup.build();
    add_storages(&mut lab, desired);
    add_bridges(&mut lab, desired);
    add_dhcp(&mut lab, desired);
    add_mappings(&mut lab, desired);
    for (host, port, _) in factories(desired) {
        lab.ground.web.factories.extend([format!("{host}:{port}"), host]);
    }
    for image in &desired.images {
        know_schematic(&mut lab, desired, image);
        add_file(&mut lab, image);
    }
    for template in desired.templates.iter().filter(|template| template.existing) {
        add_template(&mut lab, desired, template);
    }
    lab
}

/// Returns where the Proxmox of an inventory is: host and port.
pub fn proxmox(desired: &Desired) -> Option<(String, u16)> {
    authority(&desired.proxmox.endpoint)
}

/// Returns where the Image Factories of an inventory are, each once: host, port, and whether they speak TLS.
pub fn factories(desired: &Desired) -> BTreeSet<(String, u16, bool)> {
    let place = |image: &Image| {
        let (host, port) = authority(&image.factory)?;
        Some((host, port, !image.factory.starts_with("http://")))
    };
    desired.images.iter().filter_map(place).collect()
}

/// Splits host and port off an address such as `https://pve1.lab.example:8006`.
fn authority(url: &str) -> Option<(String, u16)> {
    let (scheme, rest) = url.split_once("://")?;
    let usual = if scheme == "http" { 80 } else { 443 };
    let authority = rest.split(['/', '?', '#']).next()?;
    let (host, port) = match authority.rsplit_once(':') {
        // The colon may be one inside of `[fd00::1]`.
        Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
        _ => (authority, usual),
    };
    let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
    (!host.is_empty()).then_some((host, port))
}

/// Hosts with what the inventory says they have, or plenty. Those of machines are among them in any case.
fn hosts(desired: &Desired) -> Vec<NewHost> {
    let mut found: BTreeMap<String, (u32, u64)> = BTreeMap::new();
    let pinned = desired.machines.iter().filter_map(|machine| machine.host.known());
    let templates = desired.templates.iter().filter_map(|template| template.host.known());
    for host in pinned.chain(templates) {
        found.insert(host.to_string(), (THREADS, MEMORY));
    }
    for host in &desired.hosts {
        let memory = host.memory.map_or(MEMORY, |memory| memory.mib() << 20);
        found.insert(host.name.to_string(), (host.cpu.unwrap_or(THREADS), memory));
    }
    if found.is_empty() {
        found.extend(HOSTS.map(|host| (host.to_owned(), (THREADS, MEMORY))));
    }
    // Clients talk to the host that the endpoint names, where it names one.
    let front = authority(&desired.proxmox.endpoint).map(|(host, _)| host).unwrap_or_default();
    let is_front =
        |name: &str| front == name || front.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
    let mut found: Vec<(String, (u32, u64))> = found.into_iter().collect();
    found.sort_by_key(|(name, _)| !is_front(name));
    let address = |number: usize| {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        Ipv4Addr::from(u32::from(Ipv4Addr::new(192, 0, 2, 11)).saturating_add(number))
    };
    let hosts = found.into_iter().enumerate().map(|(number, (name, (cpus, memory)))| NewHost {
        name,
        address: address(number).to_string(),
        cpus,
        memory,
    });
    hosts.collect()
}

/// What a storage is used for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Use {
    disks: bool,
    files: bool,
    snippets: bool,
    /// Machines of other hosts are cloned from what is here.
    shared: bool,
}

fn uses(desired: &Desired) -> BTreeMap<String, Use> {
    let mut uses: BTreeMap<String, Use> = BTreeMap::new();
    let mut of = |storage: &str, change: fn(&mut Use)| change(uses.entry(storage.to_owned()).or_default());
    let own = desired.hosts.iter().map(|host| &host.storage);
    for Storage { disks, images, templates, cloudinit, snippets } in own.chain([&desired.proxmox.storage]) {
        of(images, |used| used.files = true);
        for storage in [disks, templates, cloudinit] {
            of(storage, |used| used.disks = true);
        }
        if let Some(storage) = snippets {
            of(storage, |used| used.snippets = true);
        }
    }
    for machine in &desired.machines {
        let extra = machine.vm.efi_storage.iter().chain(&machine.vm.cloudinit_storage);
        for storage in machine.disks.iter().map(|disk| &disk.storage).chain(extra) {
            of(storage, |used| used.disks = true);
        }
    }
    for template in &desired.templates {
        of(&template.storage, |used| used.disks = true);
        let clones = desired.machines.iter().filter(|machine| machine.template == Some(template.vmid));
        let at: BTreeSet<_> = clones.map(|machine| machine.host.known()).collect();
        if at.len() > 1 || at.contains(&None) {
            // Proxmox clones to another host only from and onto storages that both have.
            let clones = desired.machines.iter().filter(|machine| machine.template == Some(template.vmid));
            let disks = clones.map(|machine| &machine.system_disk().storage);
            for storage in disks.chain([&template.storage]) {
                of(storage, |used| used.shared = true);
            }
        }
    }
    for file in desired.images.iter().filter_map(|image| image.file.as_deref()) {
        if let Some((storage, _)) = file.split_once(':') {
            of(storage, |used| used.files = true);
        }
    }
    uses
}

fn add_storages(lab: &mut Lab, desired: &Desired) {
    let hosts: Vec<String> = lab.pve.hosts.keys().cloned().collect();
    for (number, (name, used)) in uses(desired).into_iter().enumerate() {
        let mut content: BTreeSet<String> = match lab.pve.storage.definitions.get(&name) {
            Some(known) => known.content.clone(),
            None => BTreeSet::new(),
        };
        let mut add = |kinds: &[&str]| content.extend(kinds.iter().map(|kind| (*kind).to_owned()));
        if used.disks {
            add(&["images", "rootdir"]);
        }
        if used.files {
            add(&["iso", "vztmpl"]);
            // Earlier releases know no such content.
            add(if lab.pve.release.at_least(8, 3) { &["import"] } else { &[] });
        }
        if used.snippets {
            add(&["snippets"]);
        }
        let content: Vec<String> = content.into_iter().collect();
        let content = content.join(",");
        let on_files = used.files || used.snippets;
        let definition = match (name.as_str(), on_files, used.shared) {
            ("local", ..) => json!({ "type": "dir", "path": "/var/lib/vz", "content": content }),
            ("local-lvm", false, _) => continue,
            (_, false, true) => json!({ "type": "rbd", "pool": name, "content": content }),
            (_, true, true) => {
                json!({ "type": "nfs", "server": "192.0.2.5", "export": format!("/{name}"), "content": content })
            }
            (_, true, false) => {
                json!({ "type": "dir", "path": format!("/mnt/pve/{name}"), "content": content })
            }
            (_, false, false) => {
                let group = format!("vg{number}");
                json!({ "type": "lvmthin", "vgname": group, "thinpool": "data", "content": content })
            }
        };
        world::set_storage(lab, &name, &definition);
        for host in &hosts {
            if let Some(shelf) = lab.pve.storage.shelf_mut(&name, host) {
                shelf.capacity = CAPACITY;
            }
        }
    }
}

fn add_bridges(lab: &mut Lab, desired: &Desired) {
    let nics = desired.machines.iter().flat_map(|machine| &machine.nics);
    let bridges: BTreeSet<&str> = nics.map(|nic| nic.bridge.as_str()).collect();
    for host in lab.pve.hosts.values_mut() {
        for bridge in &bridges {
            if !host.interfaces.iter().any(|interface| interface.name == **bridge) {
                host.interfaces.push(world::bridge(bridge));
            }
        }
    }
}

/// Devices that machines are given by name are on every host.
fn add_mappings(lab: &mut Lab, desired: &Desired) {
    let devices = desired.machines.iter().flat_map(|machine| &machine.vm.pci);
    let names: BTreeSet<&String> = devices
        .filter_map(|device| match &device.device {
            PciAddress::Mapping(name) => Some(name),
            PciAddress::Address(_) => None,
        })
        .collect();
    let hosts: Vec<String> = lab.pve.hosts.keys().cloned().collect();
    for name in names {
        lab.pve.mapping.add_pci(name, &hosts);
    }
}

/// Names the network of a card.
fn network_of(nic: &Nic) -> String {
    segment(&NetworkCard {
        slot: nic.slot.clone(),
        mac: nic.mac.to_string(),
        bridge: nic.bridge.clone(),
        vlan: nic.vlan,
        link_down: false,
    })
}

/// Every network that machines take addresses from has a DHCP server, which keeps the addresses of the inventory
/// for their cards, and names where it is to give them.
fn add_dhcp(lab: &mut Lab, desired: &Desired) {
    let mut networks: BTreeMap<String, Vec<(&Machine, &Nic)>> = BTreeMap::new();
    for machine in &desired.machines {
        for (place, nic) in machine.nics.iter().enumerate() {
            let leased = nic.addresses.iter().any(|address| matches!(address, Late::From(_)));
            if leased || place == 0 && machine.boot.address == AddressDelivery::Dhcp {
                networks.entry(network_of(nic)).or_default().push((machine, nic));
            }
        }
    }
    let taken = taken(desired);
    for (name, users) in networks {
        let known = users.iter().flat_map(|(_, nic)| addresses(nic)).next();
        let gateway = users.iter().flat_map(|(_, nic)| &nic.gateways).find_map(|gateway| match gateway {
            IpAddr::V4(gateway) => Some(*gateway),
            IpAddr::V6(_) => None,
        });
        let declared = desired.network.cidr.iter().find_map(|cidr| match cidr {
            ipnet::IpNet::V4(cidr) => Some(*cidr),
            ipnet::IpNet::V6(_) => None,
        });
        let network = known.or(declared).map_or_else(|| elsewhere(desired), |network| network.trunc());
        let Some((first, last)) = free_run(network, &taken, users.len()) else { continue };
        let mut server = DhcpServer::new(first, last, network.prefix_len());
        server.gateway = gateway.or(server.gateway);
        for (machine, nic) in users {
            let hostname = (desired.network.hostnames == Hostnames::Dhcp).then(|| machine.name.to_string());
            let address = addresses(nic).next().map(|address| address.addr());
            let kept = address.or_else(|| hostname.as_ref().and_then(|_| server.free()));
            if let Some(address) = kept {
                server.reservations.insert(nic.mac.to_string().to_ascii_lowercase(), (address, hostname));
            }
        }
        lab.machines.lan.servers.insert(name, server);
    }
}

fn addresses(nic: &Nic) -> impl Iterator<Item = Ipv4Net> + '_ {
    nic.addresses.iter().filter_map(|address| match address.known()? {
        ipnet::IpNet::V4(address) => Some(*address),
        ipnet::IpNet::V6(_) => None,
    })
}

/// Returns the addresses that nobody may lease: those of machines, gateways, name servers, and those that move.
fn taken(desired: &Desired) -> BTreeSet<Ipv4Addr> {
    let endpoint = &desired.cluster.endpoint;
    let moving = endpoint.vip.into_iter().chain(endpoint.kube_vip.as_ref().map(|vip| vip.address));
    let named = endpoint.host.known().and_then(|host| host.parse().ok());
    let nics = || desired.machines.iter().flat_map(|machine| &machine.nics);
    let others = nics().flat_map(|nic| nic.gateways.iter().chain(&nic.dns).copied());
    let others = others.chain(moving).chain(named).filter_map(|address: IpAddr| match address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    });
    nics().flat_map(addresses).map(|address| address.addr()).chain(others).collect()
}

/// Finds addresses one after the other that nobody has: from [`FIRST_LEASE`] on, else from the second one on.
fn free_run(network: Ipv4Net, taken: &BTreeSet<Ipv4Addr>, wanted: usize) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let begins = u32::from(network.network());
    let end = u32::from(network.broadcast());
    let wanted = u32::try_from(wanted).ok()?.max(1);
    // Every taken address ends at most one run, so this many tries find one if there is any.
    let from = |offset: u32| {
        let mut first = begins.checked_add(offset)?;
        for _ in 0..=taken.len() {
            let last = first.checked_add(wanted - 1)?;
            if last >= end {
                return None;
            }
            let within = taken.range(Ipv4Addr::from(first)..=Ipv4Addr::from(last));
            match within.last() {
                Some(address) => first = u32::from(*address) + 1,
                None => return Some((Ipv4Addr::from(first), Ipv4Addr::from(last))),
            }
        }
        None
    };
    from(FIRST_LEASE).or_else(|| from(2))
}

/// Returns a network for an inventory that names none: one that neither pods nor services have.
fn elsewhere(desired: &Desired) -> Ipv4Net {
    let inside: Vec<&ipnet::IpNet> = desired.network.pods.iter().chain(&desired.network.services).collect();
    let networks = ELSEWHERE.map(|bytes| Ipv4Net::new_assert(Ipv4Addr::from(bytes), 24));
    let free = |network: &Ipv4Net| !inside.iter().any(|other| other.contains(&IpAddr::V4(network.addr())));
    networks.into_iter().find(free).unwrap_or(networks[0])
}

/// The factory knows the schematics whose ids the inventory gives, and those of images that are there before
/// anybody asks it. A schematic of which only the id is known has the guest agent, if that is expected.
fn know_schematic(lab: &mut Lab, desired: &Desired, image: &Image) {
    const GUEST_AGENT: &str = "siderolabs/qemu-guest-agent";
    if image.schematic.is_some() || image.file.is_some() || image.source == ImageSource::Template {
        let mut recipe = Schematic::of_image(image);
        let mut users = desired.machines.iter().filter(|machine| machine.image == image.id);
        if image.schematic.is_some() && users.any(|machine| machine.vm.agent) {
            recipe.extensions.push(GUEST_AGENT.to_owned());
        }
        lab.factory.learn(&image_id(image), &recipe.canonical_yaml());
        lab.factory.show(&mut lab.ground);
    }
}

/// Has the factory make an image.
fn make(lab: &mut Lab, image: &Image, ending: &str) -> File {
    let secure = if image.secureboot { "-secureboot" } else { "" };
    let file = format!("{}-{}{secure}.{ending}", image.platform, image.arch);
    let path = format!("/image/{}/{}/{file}", image_id(image), image.talos);
    let request = Request { method: "GET".into(), path, ..Request::default() };
    let answer = lab.factory.call(&mut lab.ground, &request);
    File::of_bytes(&answer.body)
}

/// Puts a file onto the storages of all hosts that the inventory says is there.
fn add_file(lab: &mut Lab, image: &Image) {
    let Some(volume) = &image.file else { return };
    let ending = volume.rsplit('.').next().unwrap_or("iso").to_owned();
    let file = make(lab, image, if image.source == ImageSource::Iso { "iso" } else { &ending });
    let hosts: Vec<String> = lab.pve.hosts.keys().cloned().collect();
    for host in hosts {
        world::add_file_on(lab, &host, volume, file.clone());
    }
}

/// Makes a template of somebody else, which holds the image that the inventory says.
fn add_template(lab: &mut Lab, desired: &Desired, template: &Template) {
    const MIB: u64 = 1 << 20;
    let Some(image) = desired.images.iter().find(|image| image.id == template.image) else { return };
    let user = desired.machines.iter().find(|machine| machine.template == Some(template.vmid));
    let at = template.host.known().or_else(|| user.and_then(|machine| machine.host.known()));
    let host = at.map_or_else(|| lab.pve.front.clone(), ToString::to_string);
    let Ok(definition) = lab.pve.storage.definition(&template.storage) else { return };
    let files = definition.naming() == Naming::Files;
    let vmid = template.vmid;
    let name = if files { format!("base-{vmid}-disk-0.raw") } else { format!("base-{vmid}-disk-0") };
    let file = make(lab, image, "raw");
    let Content::Image(content) = &file.content else { return };
    let size = content.virtual_size.next_multiple_of(MIB);
    let wish = NewVolume {
        storage: &template.storage,
        owner: vmid.number(),
        format: "raw",
        name: Some(&name),
        kib: size >> 10,
    };
    let now = lab.ground.now.unix_seconds();
    let Ok(made) = lab.pve.storage.alloc(&host, now, &mut lab.ground.media, &wish) else { return };
    if let Some(volume) = lab.pve.storage.get(&host, &made.volume) {
        lab.ground.media.set(volume.content, file.content);
    }
    let mut config = Config::default();
    let settings = [
        ("name", format!("talos-{}", image.talos)),
        ("memory", "2048".into()),
        ("cores", "2".into()),
        ("cpu", "x86-64-v2-AES".into()),
        ("ostype", "l26".into()),
        ("scsihw", "virtio-scsi-pci".into()),
        ("boot", "order=scsi0".into()),
        ("smbios1", format!("uuid={}", lab.ground.random.uuid())),
        ("vmgenid", lab.ground.random.uuid()),
        ("scsi0", format!("{},size={}M", made.volume, size / MIB)),
        ("template", "1".into()),
    ];
    config.current.extend(settings.map(|(key, value)| (key.to_owned(), value)));
    lab.pve.vms.insert(vmid, Vm { host, config, run: None });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_where_nobody_is() {
        let network = Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 24);
        let at = |last| Ipv4Addr::new(10, 0, 0, last);
        let taken = BTreeSet::from([at(1), at(101), at(104)]);
        assert_eq!(free_run(network, &taken, 2), Some((at(102), at(103))));
        assert_eq!(free_run(network, &taken, 3), Some((at(105), at(107))));
        assert_eq!(free_run(network, &taken, 400), None);
        let small = Ipv4Net::new_assert(at(0), 29);
        assert_eq!(free_run(small, &taken, 2), Some((at(2), at(3))));
    }

    #[test]
    fn addresses_have_a_host_and_a_port() {
        let is =
            |url: &str, host: &str, port| assert_eq!(authority(url), Some((host.to_owned(), port)), "{url}");
        is("https://pve1.lab.example:8006", "pve1.lab.example", 8006);
        is("https://[fd00::1]/", "fd00::1", 443);
        is("http://[fd00::1]:80/x:y", "fd00::1", 80);
        assert_eq!(authority("nothing"), None);
    }
}
