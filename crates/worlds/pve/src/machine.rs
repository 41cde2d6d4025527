//! From a machine that is wanted to what Proxmox is told.
//!
//! 1. `options` and `drives` say every option of the VM as a `Wish`: the text that is written.
//! 2. [`Shape::create`] sends them all at once, with the image imported or an installer in the drive;
//!    [`Shape::cloned`] begins with a copy of a template, and [`TemplateShape`] makes one.
//! 3. [`Shape::differences`] compares wishes with a VM's config, by what they mean (`meaning`): Proxmox adds
//!    sizes and names, and sorts as it likes. A VM that was just made has none but those that come last.
//! 4. [`Changes`] are the calls that settle differences, so a clone is finished, and a VM that somebody changed is
//!    set right, in one and the same way.
//!
//! Drives that hold data are never taken away, and disks that are not in the inventory are left alone: the CSI
//! driver attaches some of its own.

mod differences;
mod drives;
mod meaning;
mod options;

use std::fmt;

use ichor_model::{
    Stamp,
    desired::{Disk, Image, Machine, Template},
    stamp::Claim,
};

pub use self::{
    differences::{Change, Changes, Difference},
    drives::{Slots, gib},
};
use crate::{
    Params,
    api::{CloneOptions, VmConfig},
    property::{Drive, DriveSource},
};

/// An option of a VM and the text that is written there.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wish {
    option: String,
    text: String,
}

impl Wish {
    fn new(option: impl Into<String>, text: impl fmt::Display) -> Self {
        Self { option: option.into(), text: format!("{text}") }
    }
}

/// A machine that is wanted, and whose it is.
#[derive(Debug, Clone, Copy)]
pub struct Shape<'a> {
    /// Its cluster.
    pub claim: Claim<'a>,
    /// The pool of its cluster.
    pub pool: Option<&'a str>,
    /// The machine.
    pub machine: &'a Machine,
}

/// What a new VM begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Media<'a> {
    /// What its system disk begins with.
    pub system: System<'a>,
    /// A cidata volume in its drive, as in `local:iso/cp-1.iso`.
    pub cidata: Option<&'a str>,
}

/// What a system disk begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System<'a> {
    /// A copy of a disk image, as in `local:import/talos.qcow2`. It is as large as the image until it is grown.
    Import(&'a str),
    /// Nothing: an installer is in the drive, as in `local:iso/talos.iso`.
    Installer(&'a str),
}

impl<'a> Shape<'a> {
    /// Returns the stamp of the machine.
    pub fn stamp(&self) -> Stamp {
        Stamp::of_machine(self.claim, self.machine)
    }

    /// Returns where optical drives of the machine are.
    pub fn slots(&self) -> Slots {
        Slots::of(self.machine)
    }

    /// Returns the options to create the VM with.
    ///
    /// Left out is what only root may set, and protection: it would keep a VM that failed from being deleted.
    pub fn create(&self, media: Media<'_>) -> Params {
        let mut params = self.named();
        let wishes = options::wishes(self).into_iter().filter(|wish| {
            wish.option != "protection" && wish.option != "boot" && !meaning::is_root_only(wish)
        });
        for wish in wishes.chain(drives::firmware(self.machine)).chain(drives::cloudinit(self.machine)) {
            params.set(wish.option, wish.text);
        }
        let (system, others) = self
            .machine
            .disks
            .split_first()
            .map_or((None, &[][..]), |(system, others)| (Some(system), others));
        if let Some(disk) = system {
            params.set(disk.slot.clone(), drives::text(disk, system_source(disk, media.system)));
        }
        for disk in others {
            params.set(disk.slot.clone(), drives::text(disk, drives::empty(disk)));
        }
        self.insert_media(&mut params, media);
        params
    }

    fn named(&self) -> Params {
        let mut params = Params::default();
        params.set_some("pool", self.pool);
        params
    }

    /// The disk comes first: while it is empty the firmware goes on to the installer, and never again after.
    fn insert_media(&self, params: &mut Params, media: Media<'_>) {
        let slots = self.slots();
        let mut order: Vec<String> = options::boot_order(self.machine);
        if let System::Installer(volume) = media.system {
            params.set(slots.installer.clone(), drives::optical(volume));
            order.push(slots.installer);
        }
        if let Some(volume) = media.cidata {
            params.set(slots.cidata, drives::optical(volume));
        }
        params.set("boot", options::boot_text(&order));
    }

    /// Returns how to clone a template for this machine: in full onto the storage of its system disk, or linked.
    ///
    /// The notes say at once whose the clone is. It gets everything else by [`Shape::differences`].
    pub fn cloned(&self, full: bool) -> CloneOptions<'a> {
        let disk = self.machine.disks.first();
        CloneOptions {
            newid: self.machine.vmid,
            name: self.machine.name.as_str(),
            description: Some(self.stamp().unfinished().write(self.machine.vm.notes.as_deref())),
            pool: self.pool,
            target: None,
            full_on: disk.filter(|_| full).map(|disk| disk.storage.as_str()),
        }
    }

    /// Compares the machine with its VM's config.
    pub fn differences(&self, config: &VmConfig) -> Vec<Difference> {
        differences::find(self, config)
    }
}

fn system_source(disk: &Disk, system: System<'_>) -> DriveSource {
    match system {
        System::Import(volume) => {
            DriveSource::Import { storage: disk.storage.clone(), from: volume.to_owned() }
        }
        System::Installer(_) => drives::empty(disk),
    }
}

/// Returns what an optical drive says with a volume in it.
pub fn insert(volume: &str) -> Drive {
    drives::optical(volume)
}

/// Returns the options that empty an optical drive, also of a VM that runs.
pub fn eject(slot: &str) -> Params {
    let mut params = Params::default();
    params.set(slot, Drive::new(DriveSource::Empty).with("media", "cdrom"));
    params
}

/// A template that is wanted, and whose it is.
#[derive(Debug, Clone, Copy)]
pub struct TemplateShape<'a> {
    /// Its cluster.
    pub claim: Claim<'a>,
    /// The pool of its cluster.
    pub pool: Option<&'a str>,
    /// The template.
    pub template: &'a Template,
    /// The image that it holds.
    pub image: &'a Image,
    /// The id of the image's schematic.
    pub schematic: &'a str,
}

impl TemplateShape<'_> {
    /// Returns the stamp of the template.
    pub fn stamp(&self) -> Stamp {
        Stamp::of_template(self.claim, self.template.vmid, self.image, self.schematic)
    }

    /// Returns the options to create the VM with that is then made a template, from an image such as
    /// `local:import/talos.qcow2`.
    ///
    /// It has a disk and nothing else: its clones are told everything anyway.
    pub fn create(&self, volume: &str) -> Params {
        let stamp = self.stamp();
        let disk = DriveSource::Import { storage: self.template.storage.clone(), from: volume.to_owned() };
        let mut params = Params::default();
        params.set_some("pool", self.pool);
        params.set("name", format!("talos-{}", self.image.id));
        params.set("description", stamp.write(None));
        params.set("smbios1", options::smbios(stamp.uuid()));
        params.set("tags", "ichor;template");
        params.set("ostype", "l26");
        params.set("memory", 2048);
        params.set("cpu", "x86-64-v2-AES");
        params.set("scsihw", "virtio-scsi-pci");
        params.set("serial0", "socket");
        params.set("scsi0", Drive::new(disk).with("discard", "on"));
        params.set("boot", options::boot_text(&["scsi0".to_owned()]));
        params
    }
}
