//! The bad days of a datacentre: what happens to it without anybody calling.
//!
//! An incident befalls a lab at once ([`Lab::befall`]), at a moment ([`Lab::befall_at`]), or with a call that a fault
//! plan names ([`crate::faults::Kind::Befall`]). People write it as words, `host-down pve2`; programs as JSON,
//! `{"host_down": {"host": "pve2"}}`.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    str::FromStr,
};

use ichor_model::VmId;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{
    Lab, agenda,
    clock::Time,
    ground::Content,
    pve::{
        Datacentre,
        drive::is_unused,
        qemu::{self, Vm, agent::StandIn, config::Config, power},
        storage::{
            definition::Definition,
            shelves::NewVolume,
            volume::{ContentType, Naming},
        },
        tasks,
    },
    strangers,
};

/// Something bad that happens to a datacentre, or the end of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Incident {
    /// Somebody moved a VM to another host, with its disks; it runs on.
    VmMigrated {
        /// The VM.
        vmid: VmId,
        /// The host that has it now.
        host: String,
    },
    /// Somebody pulled the plug of a VM.
    VmStopped {
        /// The VM.
        vmid: VmId,
    },
    /// Somebody deleted a VM with its disks.
    VmDeleted {
        /// The VM.
        vmid: VmId,
    },
    /// Somebody deleted a VM and made another under its VMID: the same name, tags and pool, and nothing else.
    VmReplaced {
        /// The VM.
        vmid: VmId,
    },
    /// A host lost its power: VMs and tasks on it are gone, and its API does not answer.
    HostDown {
        /// The host.
        host: String,
    },
    /// A host runs again, and starts the VMs that start with it.
    HostUp {
        /// The host.
        host: String,
    },
    /// Others have taken all room of a storage.
    StorageFull {
        /// The storage.
        storage: String,
        /// On which host; absent: on all that have it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<String>,
    },
    /// Others have given the room of a storage back.
    StorageFreed {
        /// The storage.
        storage: String,
        /// On which host; absent: on all that have it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<String>,
    },
    /// A storage cannot be activated.
    StorageBroken {
        /// The storage.
        storage: String,
    },
    /// A storage can be activated again.
    StorageMended {
        /// The storage.
        storage: String,
    },
    /// A machine has lost its time servers.
    ClockLost {
        /// The machine's VM.
        vmid: VmId,
    },
    /// A machine has found its time servers again.
    ClockSet {
        /// The machine's VM.
        vmid: VmId,
    },
    /// A guest agent does not answer any more.
    AgentSilent {
        /// The VM.
        vmid: VmId,
    },
    /// A guest agent answers again.
    AgentBack {
        /// The VM.
        vmid: VmId,
    },
    /// A machine of somebody else answers at an address, in maintenance mode, whoever else has the address.
    Impostor {
        /// The address.
        address: IpAddr,
    },
    /// The machine of somebody else is gone.
    ImpostorGone {
        /// The address.
        address: IpAddr,
    },
    /// A machine gets another lease.
    LeaseChanged {
        /// The machine's VM.
        vmid: VmId,
        /// The address; absent: the next that is free.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        address: Option<Ipv4Addr>,
    },
    /// The Proxmox API and the Image Factory show another certificate, on new connections; old ones are closed.
    CertificateSwapped,
}

/// Why an incident cannot happen.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Impossible(String);

/// A text that is no incident.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{text}` is no event that the lab knows, or lacks a word")]
pub struct NotAnIncident {
    text: String,
}

impl FromStr for Incident {
    type Err = NotAnIncident;

    fn from_str(text: &str) -> Result<Self, NotAnIncident> {
        read(text).ok_or_else(|| NotAnIncident { text: text.chars().take(200).collect() })
    }
}

fn read(text: &str) -> Option<Incident> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let vmid = |word: &str| word.parse::<VmId>().ok();
    let name = |word: &&str| (*word).to_owned();
    Some(match words.as_slice() {
        ["vm-migrated", id, host] => Incident::VmMigrated { vmid: vmid(id)?, host: name(host) },
        ["vm-stopped", id] => Incident::VmStopped { vmid: vmid(id)? },
        ["vm-deleted", id] => Incident::VmDeleted { vmid: vmid(id)? },
        ["vm-replaced", id] => Incident::VmReplaced { vmid: vmid(id)? },
        ["host-down", host] => Incident::HostDown { host: name(host) },
        ["host-up", host] => Incident::HostUp { host: name(host) },
        ["storage-full", storage, rest @ ..] if rest.len() < 2 => {
            Incident::StorageFull { storage: name(storage), host: rest.first().map(name) }
        }
        ["storage-freed", storage, rest @ ..] if rest.len() < 2 => {
            Incident::StorageFreed { storage: name(storage), host: rest.first().map(name) }
        }
        ["storage-broken", storage] => Incident::StorageBroken { storage: name(storage) },
        ["storage-mended", storage] => Incident::StorageMended { storage: name(storage) },
        ["clock-lost", id] => Incident::ClockLost { vmid: vmid(id)? },
        ["clock-set", id] => Incident::ClockSet { vmid: vmid(id)? },
        ["agent-silent", id] => Incident::AgentSilent { vmid: vmid(id)? },
        ["agent-back", id] => Incident::AgentBack { vmid: vmid(id)? },
        ["impostor", address] => Incident::Impostor { address: address.parse().ok()? },
        ["impostor-gone", address] => Incident::ImpostorGone { address: address.parse().ok()? },
        ["lease-changed", id] => Incident::LeaseChanged { vmid: vmid(id)?, address: None },
        ["lease-changed", id, address] => {
            Incident::LeaseChanged { vmid: vmid(id)?, address: Some(address.parse().ok()?) }
        }
        ["certificate-swapped"] => Incident::CertificateSwapped,
        _ => return None,
    })
}

impl fmt::Display for Incident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::VmMigrated { vmid, host } => write!(f, "vm-migrated {vmid} {host}"),
            Self::VmStopped { vmid } => write!(f, "vm-stopped {vmid}"),
            Self::VmDeleted { vmid } => write!(f, "vm-deleted {vmid}"),
            Self::VmReplaced { vmid } => write!(f, "vm-replaced {vmid}"),
            Self::HostDown { host } => write!(f, "host-down {host}"),
            Self::HostUp { host } => write!(f, "host-up {host}"),
            Self::StorageFull { storage, host: None } => write!(f, "storage-full {storage}"),
            Self::StorageFull { storage, host: Some(host) } => write!(f, "storage-full {storage} {host}"),
            Self::StorageFreed { storage, host: None } => write!(f, "storage-freed {storage}"),
            Self::StorageFreed { storage, host: Some(host) } => write!(f, "storage-freed {storage} {host}"),
            Self::StorageBroken { storage } => write!(f, "storage-broken {storage}"),
            Self::StorageMended { storage } => write!(f, "storage-mended {storage}"),
            Self::ClockLost { vmid } => write!(f, "clock-lost {vmid}"),
            Self::ClockSet { vmid } => write!(f, "clock-set {vmid}"),
            Self::AgentSilent { vmid } => write!(f, "agent-silent {vmid}"),
            Self::AgentBack { vmid } => write!(f, "agent-back {vmid}"),
            Self::Impostor { address } => write!(f, "impostor {address}"),
            Self::ImpostorGone { address } => write!(f, "impostor-gone {address}"),
            Self::LeaseChanged { vmid, address: None } => write!(f, "lease-changed {vmid}"),
            Self::LeaseChanged { vmid, address: Some(address) } => {
                write!(f, "lease-changed {vmid} {address}")
            }
            Self::CertificateSwapped => f.write_str("certificate-swapped"),
        }
    }
}

impl Incident {
    /// Returns the host and the storage that it names.
    fn place(&self) -> (Option<&str>, Option<&str>) {
        match self {
            Self::VmMigrated { host, .. } | Self::HostDown { host } | Self::HostUp { host } => {
                (Some(host), None)
            }
            Self::StorageFull { storage, host } | Self::StorageFreed { storage, host } => {
                (host.as_deref(), Some(storage))
            }
            Self::StorageBroken { storage } | Self::StorageMended { storage } => (None, Some(storage)),
            _ => (None, None),
        }
    }

    /// Returns the VM that it names.
    const fn vmid(&self) -> Option<VmId> {
        match self {
            Self::VmMigrated { vmid, .. }
            | Self::VmStopped { vmid }
            | Self::VmDeleted { vmid }
            | Self::VmReplaced { vmid }
            | Self::ClockLost { vmid }
            | Self::ClockSet { vmid }
            | Self::AgentSilent { vmid }
            | Self::AgentBack { vmid }
            | Self::LeaseChanged { vmid, .. } => Some(*vmid),
            _ => None,
        }
    }
}

impl Lab {
    /// Lets an incident happen now. Strangers whom it hits count as they are afterwards: it was not a client of the
    /// lab who touched them.
    pub fn befall(&mut self, incident: &Incident) -> Result<(), Impossible> {
        let untouched = strangers::intact(self);
        let happened = self.happen(incident).map_err(Impossible);
        self.settle();
        strangers::seal(self, &untouched);
        happened
    }

    /// Lets an incident happen at a moment. One that cannot happen then does not.
    pub fn befall_at(&mut self, at: Time, incident: Incident) {
        self.ground.agenda.add(at, agenda::Event::Incident(incident));
    }

    /// Says whether an incident that is to happen later names hosts and storages that are there. Neither comes to be
    /// while a lab runs, as VMs do.
    pub fn has_place_of(&self, incident: &Incident) -> Result<(), Impossible> {
        let (host, storage) = incident.place();
        let host = host.filter(|name| !self.pve.hosts.contains_key(*name)).map(no_host);
        let storage = storage.map(|name| self.pve.storage.definition(name).map(drop));
        host.map_or(Ok(()), Err).and(storage.unwrap_or(Ok(()))).map_err(Impossible)
    }

    /// Says whether the VM of an incident that is to happen later is there.
    pub fn has_vm_of(&self, incident: &Incident) -> Result<(), Impossible> {
        incident.vmid().map_or(Ok(()), |vmid| vm(&self.pve, vmid).map(drop)).map_err(Impossible)
    }

    fn happen(&mut self, incident: &Incident) -> Result<(), String> {
        let Self { pve, ground, machines, .. } = self;
        match incident {
            Incident::VmMigrated { vmid, host } => migrate(pve, *vmid, host),
            Incident::VmStopped { vmid } => {
                vm(pve, *vmid)?;
                power::switch_off(pve, ground, *vmid);
                Ok(())
            }
            Incident::VmDeleted { vmid } => self.delete(*vmid).map(drop),
            Incident::VmReplaced { vmid } => self.replace(*vmid),
            Incident::HostDown { host } => self.host_down(host),
            Incident::HostUp { host } => self.host_up(host),
            Incident::StorageFull { storage, host } => fill(pve, storage, host.as_deref(), true),
            Incident::StorageFreed { storage, host } => fill(pve, storage, host.as_deref(), false),
            Incident::StorageBroken { storage } => break_storage(pve, storage),
            Incident::StorageMended { storage } => {
                pve.storage.definition(storage)?;
                pve.storage.broken.remove(storage);
                Ok(())
            }
            Incident::ClockLost { vmid } | Incident::ClockSet { vmid } => {
                vm(pve, *vmid)?;
                machines.set_clock(ground, *vmid, matches!(incident, Incident::ClockSet { .. }));
                Ok(())
            }
            Incident::AgentSilent { vmid } | Incident::AgentBack { vmid } => {
                vm(pve, *vmid)?;
                let speaks = matches!(incident, Incident::AgentBack { .. });
                machines.set_agent(ground, *vmid, speaks);
                let is_machine = machines.machine(*vmid).is_some_and(|machine| machine.run.is_some());
                if let Some(Vm { config, run: Some(run), .. }) = pve.vms.get_mut(vmid) {
                    let agent = || StandIn::reader(config.get("name").unwrap_or_default());
                    run.agent = (speaks && !is_machine).then(agent);
                }
                Ok(())
            }
            Incident::Impostor { address } => machines.usurp(ground, *address).map(drop),
            Incident::ImpostorGone { address } => machines.give_back(ground, *address),
            Incident::LeaseChanged { vmid, address } => {
                machines.change_lease(ground, *vmid, *address).map(drop)
            }
            Incident::CertificateSwapped => self.swap_certificate(),
        }
    }

    /// Deletes a VM, whatever stands in the way, and returns what it was.
    fn delete(&mut self, vmid: VmId) -> Result<Vm, String> {
        let gone = vm(&self.pve, vmid)?.clone();
        power::switch_off(&mut self.pve, &mut self.ground, vmid);
        let owner =
            |volume: &String| self.pve.storage.look_up(volume).ok().and_then(|found| found.name.owner);
        let own = disks(&gone.config).into_iter().filter(|volume| owner(volume) == Some(vmid.number()));
        for volume in own.collect::<Vec<_>>() {
            // What linked clones need stays; whoever deletes by hand is told so too.
            let _ = self.pve.storage.free(&gone.host, &volume, &mut self.ground.media);
        }
        self.pve.forget_vm_access(vmid);
        self.pve.remove_firewall(vmid);
        self.pve.forget_in_backup_jobs(vmid);
        if self.pve.ha.manages(vmid) {
            self.pve.remove_from_ha(vmid);
        }
        self.pve.vms.remove(&vmid);
        self.pve.broadcast.vms.remove(&vmid);
        Ok(gone)
    }

    /// Deletes a VM and makes another that looks like it.
    fn replace(&mut self, vmid: VmId) -> Result<(), String> {
        let pools = self.pve.access.pools.iter().filter(|(_, pool)| pool.vms.contains(&vmid));
        let pool = pools.map(|(name, _)| name.clone()).next();
        let gone = self.delete(vmid)?;
        let storage = disks(&gone.config)
            .first()
            .and_then(|volume| volume.split_once(':').map(|(it, _)| it.to_owned()));
        let disk = match storage {
            Some(storage) => Some(self.foreign_disk(&gone.host, &storage, vmid)?),
            None => None,
        };
        let mut config = Config::default();
        let mut set = |key: &str, value: String| {
            config.current.insert(key.to_owned(), value);
        };
        for key in ["name", "tags", "memory", "cores", "sockets", "cpu", "ostype", "scsihw", "onboot"] {
            if let Some(value) = gone.config.get(key) {
                set(key, value.to_owned());
            }
        }
        set("smbios1", format!("uuid={}", self.ground.random.uuid()));
        set("vmgenid", self.ground.random.uuid());
        let card = strangers::mac(&mut self.ground.random);
        set("net0", format!("virtio={card},bridge=vmbr0"));
        if let Some(disk) = disk {
            set("scsi0", disk);
            set("boot", "order=scsi0".into());
        }
        self.pve.vms.insert(vmid, Vm { host: gone.host.clone(), config, run: None });
        if let Some(pool) = pool.and_then(|name| self.pve.access.pools.get_mut(&name)) {
            pool.vms.insert(vmid);
        }
        if gone.runs() {
            power::launch(&mut self.pve, &mut self.ground, &gone.host, vmid)
                .map_err(|error| error.as_text())?;
        }
        Ok(())
    }

    /// Makes a disk with somebody else's data on it.
    pub(crate) fn foreign_disk(&mut self, host: &str, storage: &str, owner: VmId) -> Result<String, String> {
        const GIB: u64 = 8;
        let files = self.pve.storage.definition(storage)?.naming() == Naming::Files;
        let wish = NewVolume {
            storage,
            owner: owner.number(),
            format: if files { "qcow2" } else { "raw" },
            name: None,
            kib: GIB << 20,
        };
        let now = self.ground.now.unix_seconds();
        let made = self.pve.storage.alloc(host, now, &mut self.ground.media, &wish)?;
        if let Some(volume) = self.pve.storage.get(host, &made.volume) {
            let data = format!("the data of somebody else, {}", self.ground.random.uuid());
            self.ground.media.set(volume.content, Content::Bytes(data.into_bytes()));
        }
        Ok(format!("{},size={GIB}G", made.volume))
    }

    fn host_down(&mut self, name: &str) -> Result<(), String> {
        let host = self.pve.hosts.get_mut(name).ok_or_else(|| no_host(name))?;
        host.online = false;
        tasks::host_down(&mut self.pve, &mut self.ground, name);
        qemu::host_down(&mut self.pve, &mut self.ground, name);
        // Others forget what a lost member said last.
        let said = &mut self.pve.broadcast;
        said.hosts.remove(name);
        said.storages.retain(|key, _| key.split_once('/').is_none_or(|(host, _)| host != name));
        let vms = &self.pve.vms;
        said.vms.retain(|vmid, _| vms.get(vmid).is_some_and(|vm| vm.host != name));
        Ok(())
    }

    fn host_up(&mut self, name: &str) -> Result<(), String> {
        let now = self.ground.now;
        let host = self.pve.hosts.get_mut(name).ok_or_else(|| no_host(name))?;
        if host.online {
            return Err(format!("host `{name}` is up already"));
        }
        host.online = true;
        host.booted = now;
        host.ran_before = std::time::Duration::ZERO;
        let starts = |vm: &Vm| vm.host == name && vm.config.flag("onboot") && !vm.config.is_template();
        let vms = self.pve.vms.iter().filter(|(_, vm)| starts(vm) && !vm.runs());
        let vmids: Vec<VmId> = vms.map(|(vmid, _)| *vmid).collect();
        for vmid in vmids {
            // A VM that cannot start stays off; its host says so in a log that nobody reads here.
            let _ = power::launch(&mut self.pve, &mut self.ground, name, vmid);
        }
        Ok(())
    }
}

fn vm(dc: &Datacentre, vmid: VmId) -> Result<&Vm, String> {
    dc.vms.get(&vmid).ok_or_else(|| format!("there is no VM {vmid}"))
}

fn no_host(name: &str) -> String {
    format!("there is no host `{name}`")
}

/// Returns the volumes that a config names and that are disks.
pub(crate) fn disks(config: &Config) -> Vec<String> {
    let drives = config.drives().into_iter().filter(|drive| !drive.is_plain_disc());
    let unused = config.current.iter().filter(|(key, _)| is_unused(key)).map(|(_, value)| value.clone());
    drives
        .filter(|drive| drive.volume().is_some())
        .map(|drive| drive.file().to_owned())
        .chain(unused)
        .collect()
}

/// Moves a VM and the disks that only its host sees.
fn migrate(dc: &mut Datacentre, vmid: VmId, host: &str) -> Result<(), String> {
    let moved = vm(dc, vmid)?.clone();
    let target = dc.hosts.get(host).ok_or_else(|| no_host(host))?;
    if !target.answers() {
        return Err(format!("host `{host}` is down"));
    }
    for volume in disks(&moved.config) {
        let found = dc.storage.look_up(&volume)?;
        let shared = dc.storage.definitions.get(&found.id.storage).is_some_and(Definition::is_shared);
        if shared || found.name.kind != ContentType::Images {
            continue;
        }
        if dc.storage.get(host, &volume).is_some() {
            return Err(format!("host `{host}` has a volume `{volume}` already"));
        }
        if let Some(what) = dc.storage.remove(&moved.host, &volume) {
            dc.storage.put(host, &volume, what)?;
        }
    }
    if let Some(vm) = dc.vms.get_mut(&vmid) {
        host.clone_into(&mut vm.host);
    }
    Ok(())
}

fn fill(dc: &mut Datacentre, storage: &str, host: Option<&str>, full: bool) -> Result<(), String> {
    let definition = dc.storage.definition(storage)?.clone();
    if let Some(host) = host
        && !dc.hosts.contains_key(host)
    {
        return Err(no_host(host));
    }
    let all = dc.hosts.keys().filter(|name| host.is_none_or(|host| host == *name) && definition.is_on(name));
    let hosts: Vec<String> = all.cloned().collect();
    if hosts.is_empty() {
        return Err(format!("no such host has storage `{storage}`"));
    }
    for host in hosts {
        if let Some(shelf) = dc.storage.shelf_mut(storage, &host) {
            shelf.filled = if full { shelf.filled.saturating_add(shelf.free()) } else { 0 };
        }
    }
    Ok(())
}

/// Lets a storage be unusable, in the words that its kind has for it.
fn break_storage(dc: &mut Datacentre, storage: &str) -> Result<(), String> {
    let definition = dc.storage.definition(storage)?;
    let option = |key: &str| definition.options.get(key).cloned().unwrap_or_default();
    let text = match definition.path(storage) {
        Some(path) if definition.kind == "dir" => {
            format!(
                "unable to activate storage '{storage}' - directory '{path}' does not exist or is unreachable"
            )
        }
        Some(_) => format!("storage '{storage}' is not online"),
        None if definition.kind == "lvmthin" => {
            format!("no such logical volume {}/{}", option("vgname"), option("thinpool"))
        }
        None => format!("could not activate storage '{storage}'"),
    };
    dc.storage.broken.insert(storage.to_owned(), text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incidents_are_written_as_words_and_as_json() {
        let texts = [
            "vm-migrated 201 pve2",
            "vm-stopped 201",
            "vm-deleted 201",
            "vm-replaced 201",
            "host-down pve2",
            "host-up pve2",
            "storage-full local-lvm",
            "storage-full local-lvm pve1",
            "storage-freed local-lvm",
            "storage-freed local-lvm pve1",
            "storage-broken shared",
            "storage-mended shared",
            "clock-lost 201",
            "clock-set 201",
            "agent-silent 201",
            "agent-back 201",
            "impostor 10.0.0.11",
            "impostor-gone 10.0.0.11",
            "lease-changed 201",
            "lease-changed 201 10.0.0.77",
            "certificate-swapped",
        ];
        for text in texts {
            let incident: Incident = text.parse().expect(text);
            assert_eq!(incident.to_string(), text);
            let json = serde_json::to_string(&incident).expect("JSON");
            assert_eq!(serde_json::from_str::<Incident>(&json).expect("the same"), incident, "{json}");
        }
        for wrong in ["", "host-down", "host-down a b", "vm-stopped x", "storage-full a b c", "earthquake"] {
            assert!(wrong.parse::<Incident>().is_err(), "{wrong}");
        }
    }
}
