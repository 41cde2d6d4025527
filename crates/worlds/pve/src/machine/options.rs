//! Options of a VM that are not drives.

use std::net::IpAddr;

use ichor_model::{
    SmbiosUuid,
    desired::{Bios, Board, Late, Machine, Nic, PciAddress, PciDevice, Startup},
};

use super::{Shape, Wish};
use crate::property::{NetworkCard, Properties};

/// Returns the wishes for everything but drives.
pub fn wishes(shape: &Shape<'_>) -> Vec<Wish> {
    let machine = shape.machine;
    let mut wishes = identity(shape);
    wishes.extend(hardware(machine));
    wishes.extend(behaviour(machine));
    wishes.extend(cards(machine));
    wishes.extend(passed_through(machine));
    wishes.extend(first_address(machine));
    wishes.push(Wish::new("boot", boot_text(&boot_order(machine))));
    wishes
}

fn identity(shape: &Shape<'_>) -> Vec<Wish> {
    let machine = shape.machine;
    let mut wishes = vec![
        Wish::new("name", &machine.name),
        Wish::new("smbios1", smbios(machine.uuid)),
        Wish::new("description", shape.stamp().write(machine.vm.notes.as_deref())),
    ];
    if !machine.vm.tags.is_empty() {
        wishes.push(Wish::new("tags", machine.vm.tags.join(";")));
    }
    wishes
}

/// Writes the option `smbios1`. The uuid is never in base64, whatever the other texts are in.
pub fn smbios(uuid: SmbiosUuid) -> Properties {
    Properties::default().with("uuid", uuid)
}

fn hardware(machine: &Machine) -> Vec<Wish> {
    let (cpu, vm) = (&machine.cpu, &machine.vm);
    let board = match vm.machine {
        Board::Q35 => "q35",
        Board::I440fx => "pc",
        Board::Virt => "virt",
    };
    let bios = match vm.bios {
        Bios::Ovmf => "ovmf",
        Bios::Seabios => "seabios",
    };
    vec![
        Wish::new("ostype", "l26"),
        Wish::new("machine", board),
        Wish::new("bios", bios),
        Wish::new("cpu", &cpu.cpu_type),
        Wish::new("cores", cpu.cores),
        Wish::new("sockets", cpu.sockets),
        Wish::new("numa", u8::from(cpu.numa)),
        Wish::new("memory", machine.memory.mib()),
        // Kubernetes counts on memory that it was promised.
        Wish::new("balloon", 0),
        Wish::new("scsihw", &vm.scsi_controller),
        // Talos writes its key's fingerprint there.
        Wish::new("serial0", "socket"),
    ]
}

fn behaviour(machine: &Machine) -> Vec<Wish> {
    let vm = &machine.vm;
    let mut wishes = vec![
        Wish::new("agent", u8::from(vm.agent)),
        Wish::new("onboot", u8::from(vm.on_boot)),
        Wish::new("protection", u8::from(vm.protection)),
    ];
    // Proxmox asks for another right as soon as this is given at all.
    wishes.extend(vm.startup.and_then(startup).map(|text| Wish::new("startup", text)));
    wishes
}

fn startup(startup: Startup) -> Option<Properties> {
    let parts = Properties::default()
        .with_some("order", startup.order)
        .with_some("up", startup.up)
        .with_some("down", startup.down);
    (parts != Properties::default()).then_some(parts)
}

fn cards(machine: &Machine) -> impl Iterator<Item = Wish> {
    machine.nics.iter().map(|nic| {
        let card = NetworkCard {
            model: nic.model.clone(),
            mac: nic.mac.to_string(),
            bridge: nic.bridge.clone(),
            vlan: nic.vlan,
            // Other models cannot be told; the guest sets it all the same.
            mtu: nic.mtu.filter(|_| nic.model == "virtio"),
            queues: nic.queues,
            firewall: nic.firewall,
        };
        Wish::new(&nic.slot, card)
    })
}

fn passed_through(machine: &Machine) -> impl Iterator<Item = Wish> {
    let devices = machine.vm.pci.iter().enumerate();
    devices.map(|(i, device)| Wish::new(format!("hostpci{i}"), hostpci(device)))
}

fn hostpci(device: &PciDevice) -> Properties {
    let parts = match &device.device {
        PciAddress::Mapping(name) => Properties::default().with("mapping", name),
        PciAddress::Address(address) => Properties::default().with("host", address),
    };
    parts.with_some("pcie", device.pcie.then_some(1)).with_some("x-vga", device.primary_gpu.then_some(1))
}

/// What Proxmox's cloud-init drive tells about the network. The host name there is the VM's name.
fn first_address(machine: &Machine) -> Vec<Wish> {
    if machine.vm.cloudinit_storage.is_none() {
        return Vec::new();
    }
    let configs = machine.nics.iter().filter_map(|nic| {
        let number = nic.slot.strip_prefix("net")?;
        Some(Wish::new(format!("ipconfig{number}"), ipconfig(nic)?))
    });
    let mut servers: Vec<String> = Vec::new();
    for server in machine.nics.iter().flat_map(|nic| &nic.dns).map(ToString::to_string) {
        if !servers.contains(&server) {
            servers.push(server);
        }
    }
    let servers = (!servers.is_empty()).then(|| Wish::new("nameserver", servers.join(" ")));
    configs.chain(servers).collect()
}

/// There is room for one address of each family; the machine config has all of them.
fn ipconfig(nic: &Nic) -> Option<Properties> {
    let known = |v4: bool| {
        nic.addresses.iter().filter_map(Late::known).find(|address| address.addr().is_ipv4() == v4)
    };
    let gateway = |v4: bool| nic.gateways.iter().find(|gateway: &&IpAddr| gateway.is_ipv4() == v4);
    let leased = nic.addresses.iter().any(|address| address.known().is_none());
    let mut parts = Properties::default();
    match known(true) {
        Some(address) => parts = parts.with("ip", address).with_some("gw", gateway(true)),
        None if leased => parts = parts.with("ip", "dhcp"),
        None => {}
    }
    if let Some(address) = known(false) {
        parts = parts.with("ip6", address).with_some("gw6", gateway(false));
    }
    (parts != Properties::default()).then_some(parts)
}

/// Returns what a machine boots from once it has a system.
pub fn boot_order(machine: &Machine) -> Vec<String> {
    machine.disks.first().map(|disk| disk.slot.clone()).into_iter().collect()
}

/// Writes the option `boot`.
pub fn boot_text(order: &[String]) -> Properties {
    Properties::default().with("order", order.join(";"))
}
