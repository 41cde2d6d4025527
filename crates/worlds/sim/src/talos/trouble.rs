//! What happens to machines from outside: clocks, agents, leases, and strangers at their addresses.

use std::net::{IpAddr, Ipv4Addr};

use ichor_model::VmId;

use super::{
    Machines,
    lan::segment,
    life::Step,
    machine::{Api, Link, Machine, Network, Run, Stage, takes},
};
use crate::ground::{Content, Ground, HardDisk, Hardware, NetworkCard, TalosImage};

/// Strangers at our addresses are no VMs of the datacentre, and have numbers that no VM has.
const FIRST_STRANGER: u32 = VmId::MAX - 1_000;

impl Machines {
    /// Lets a machine lose its time servers, or find them again.
    pub fn set_clock(&mut self, ground: &mut Ground, vmid: VmId, right: bool) {
        if right {
            self.mishaps.clocks.remove(&vmid);
            self.after(ground, vmid, takes::TIME, Step::TimeSynced);
        } else {
            self.mishaps.clocks.insert(vmid);
            if let Some(run) = self.run_mut(vmid) {
                run.time_synced = false;
            }
        }
        self.settle(ground);
    }

    /// Lets the guest agent of a machine fall silent, or speak again.
    pub fn set_agent(&mut self, ground: &mut Ground, vmid: VmId, speaks: bool) {
        if speaks {
            self.mishaps.agents.remove(&vmid);
        } else {
            self.mishaps.agents.insert(vmid);
        }
        self.settle(ground);
    }

    /// Gives a machine another lease than it has, and returns it. Without a wish it is the next that is free.
    pub fn change_lease(
        &mut self,
        ground: &mut Ground,
        vmid: VmId,
        wish: Option<Ipv4Addr>,
    ) -> Result<Ipv4Addr, String> {
        let none = || format!("VM {vmid} has no lease");
        let machine = self.by_id.get(&vmid).ok_or_else(none)?;
        let leased = machine.hardware.cards.iter().find_map(|card| {
            let server = segment(card);
            let lease = *self.lan.servers.get(&server)?.leases.get(&card.mac)?;
            Some((server, card.mac.clone(), lease))
        });
        let (server, mac, lease) = leased.ok_or_else(none)?;
        let server = self.lan.servers.get_mut(&server).ok_or_else(none)?;
        let address = wish.or_else(|| server.free()).filter(|address| *address != lease);
        let address = address.ok_or_else(|| format!("there is no other address for VM {vmid}"))?;
        if let Some((reserved, _)) = server.reservations.get_mut(&mac) {
            *reserved = address;
        }
        server.leases.insert(mac, address);
        if self.run(vmid).is_some_and(|run| run.network.up) {
            self.set_network(ground, vmid);
        }
        self.settle(ground);
        Ok(address)
    }

    /// Lets a machine that is none of ours answer at an address, in maintenance mode and with its own key. Returns
    /// the number by which it is known here; Proxmox has no such VM.
    pub fn usurp(&mut self, ground: &mut Ground, address: IpAddr) -> Result<VmId, String> {
        if let Some(usurper) = self.mishaps.usurped.get(&address) {
            return Ok(*usurper);
        }
        let used = |vmid: &VmId| self.by_id.contains_key(vmid);
        let free = (FIRST_STRANGER..=VmId::MAX).filter_map(VmId::new).find(|vmid| !used(vmid));
        let vmid = free.ok_or("there are too many strangers")?;
        self.starts += 1;
        let hardware = strange_hardware(ground, vmid);
        let run = strange_run(ground, &hardware, address);
        let machine = Machine { hardware, seed: ground.random.bits(), start: self.starts, run: Some(run) };
        self.by_id.insert(vmid, machine);
        self.mishaps.usurped.insert(address, vmid);
        self.settle(ground);
        Ok(vmid)
    }

    /// Takes the stranger from an address.
    pub fn give_back(&mut self, ground: &mut Ground, address: IpAddr) -> Result<(), String> {
        let usurper = self.mishaps.usurped.remove(&address);
        let vmid = usurper.ok_or_else(|| format!("there is no stranger at {address}"))?;
        self.node_down(ground, vmid);
        self.by_id.remove(&vmid);
        self.settle(ground);
        Ok(())
    }
}

fn strange_hardware(ground: &mut Ground, vmid: VmId) -> Hardware {
    let disk = ground.media.add(Content::Blank);
    let mac = format!("52:54:00:{:02x}:{:02x}:{:02x}", 0, vmid.number() >> 8 & 0xff, vmid.number() & 0xff);
    Hardware {
        vmid,
        host: String::new(),
        uuid: ground.random.uuid(),
        serial: String::new(),
        cpus: 2,
        cpu_type: "host".into(),
        memory_mib: 4096,
        uefi: true,
        tpm: false,
        agent: false,
        serial_console: false,
        disks: vec![HardDisk { slot: "scsi0".into(), serial: None, size: 20 << 30, content: disk }],
        discs: Vec::new(),
        cards: vec![NetworkCard {
            slot: "net0".into(),
            mac,
            bridge: String::new(),
            vlan: None,
            link_down: false,
        }],
        boot_order: vec!["scsi0".into()],
    }
}

fn strange_run(ground: &mut Ground, hardware: &Hardware, address: IpAddr) -> Run {
    let image = TalosImage {
        talos: "v1.13.9".into(),
        // That of an image without extensions and options.
        schematic: "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba".into(),
        platform: "metal".into(),
        arch: "amd64".into(),
        secureboot: false,
        iso: true,
        extensions: Vec::new(),
        plain_names: false,
        meta: std::collections::BTreeMap::new(),
        virtual_size: 0,
    };
    let mut run = Run::new(image, true, ground.random.uuid(), ground.now);
    let mac = hardware.cards.first().map(|card| card.mac.clone()).unwrap_or_default();
    let prefix = if address.is_ipv4() { 24 } else { 64 };
    let link = Link {
        name: "eth0".into(),
        alias: None,
        mac,
        up: true,
        addresses: vec![(address, prefix)],
        gateways: Vec::new(),
        leased: false,
    };
    run.network = Network { up: true, links: vec![link], ..Network::default() };
    run.network.hostname = "talos-stranger".into();
    run.stage = Stage::Maintenance;
    run.api = Api::Maintenance;
    run.time_synced = true;
    run
}
