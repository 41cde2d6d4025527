//! What a VM is and should not be, and how to settle it.

use std::{collections::BTreeSet, fmt};

use ichor_model::{Stamp, desired::Disk};

use super::{Shape, Wish, drives, meaning, options};
use crate::{
    Params,
    api::VmConfig,
    ownership::uuid_of,
    property::{Drive, DriveSource, Properties},
};

/// An option of a VM that is not as wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The option, such as `memory` or `scsi0`.
    pub option: String,
    /// What it says.
    pub is: Option<String>,
    /// What it should say; nothing: it should not be there.
    pub wanted: Option<String>,
    /// What settles it.
    pub change: Change,
}

/// What settles a difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Writing the option.
    Set(String),
    /// Deleting the option.
    Delete,
    /// Growing the disk.
    Grow {
        /// To so many GiB.
        gib: u64,
    },
    /// Nothing that a token may do: root has to run `qm set VMID --OPTION TEXT`.
    ByRoot(String),
    /// Nothing that leaves the disk's data alone, such as shrinking it.
    Rebuild,
}

impl Difference {
    /// Whether an API token can settle it without losing data.
    pub const fn is_ours_to_settle(&self) -> bool {
        matches!(self.change, Change::Set(_) | Change::Delete | Change::Grow { .. })
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |text: &Option<String>| text.as_ref().map_or("absent".into(), |text| format!("`{text}`"));
        write!(f, "`{}` is {}, wanted {}", self.option, shown(&self.is), shown(&self.wanted))
    }
}

/// The calls that settle differences, in their order.
///
/// Several, because Proxmox keeps what came before a part that failed: a clone must not lose the stamp that says it is
/// unfinished before everything else is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// To be sent first: options that fail at once or not at all.
    pub options: Params,
    /// Then: drives, which take time.
    pub drives: Params,
    /// Then: disks to grow, and their sizes in GiB.
    pub grow: Vec<(String, u64)>,
    /// At last: notes, boot order and protection.
    pub last: Params,
}

impl Changes {
    /// Sorts the changes that a token may make into calls.
    pub fn of(differences: &[Difference]) -> Self {
        let mut changes = Self::default();
        let mut deleted = Vec::new();
        for difference in differences {
            let option = difference.option.clone();
            match &difference.change {
                Change::Set(text) if ["description", "boot", "protection"].contains(&option.as_str()) => {
                    changes.last.set(option, text);
                }
                Change::Set(text) if is_drive(&option) => changes.drives.set(option, text),
                Change::Set(text) => changes.options.set(option, text),
                Change::Delete => deleted.push(option),
                Change::Grow { gib } => changes.grow.push((option, *gib)),
                Change::ByRoot(_) | Change::Rebuild => {}
            }
        }
        if !deleted.is_empty() {
            changes.options.set("delete", deleted.join(","));
        }
        changes
    }
}

/// Finds all differences between a machine and its VM.
pub fn find(shape: &Shape<'_>, config: &VmConfig) -> Vec<Difference> {
    let wishes = options::wishes(shape);
    let mut found: Vec<Difference> =
        wishes.iter().filter_map(|wish| difference(shape, wish, config)).collect();
    found.extend(superfluous(&wishes, config));
    for wish in drives::firmware(shape.machine) {
        found.extend(firmware(&wish, config));
    }
    found.extend(cloudinit(shape, config));
    for (i, disk) in shape.machine.disks.iter().enumerate() {
        found.extend(of_disk(disk, i == 0, config));
    }
    found
}

fn difference(shape: &Shape<'_>, wish: &Wish, config: &VmConfig) -> Option<Difference> {
    let is = config.text(&wish.option);
    let change = match wish.option.as_str() {
        "smbios1" => uuid(shape, is.as_deref(), config)?,
        "description" => notes(shape, is.as_deref().unwrap_or_default(), &wish.text)?,
        "boot" => order(is.as_deref(), &wish.text, config)?,
        option if meaning::of(option, is.as_deref()) == meaning::of(option, Some(&wish.text)) => return None,
        _ if meaning::is_root_only(wish) => Change::ByRoot(wish.text.clone()),
        _ => Change::Set(wish.text.clone()),
    };
    Some(Difference { option: wish.option.clone(), is, wanted: Some(wish.text.clone()), change })
}

/// What else SMBIOS says is left as it is.
fn uuid(shape: &Shape<'_>, is: Option<&str>, config: &VmConfig) -> Option<Change> {
    let wanted = shape.machine.uuid;
    let others = Properties::parse(is.unwrap_or_default());
    (uuid_of(config) != Some(wanted)).then(|| Change::Set(others.with("uuid", wanted).to_string()))
}

/// People may write around the stamp and around the inventory's notes. When the inventory drops its notes, they stay:
/// they cannot be told from what people wrote.
fn notes(shape: &Shape<'_>, is: &str, wanted: &str) -> Option<Change> {
    let own = shape.machine.vm.notes.as_deref().map(str::trim).unwrap_or_default();
    let kept = is.trim_end() == wanted.trim_end()
        || (Stamp::read(is).is_some_and(|stamp| stamp.agrees_with(&shape.stamp()))
            && is.replace("\r\n", "\n").contains(own));
    (!kept).then(|| Change::Set(wanted.to_owned()))
}

/// Optical drives come and go, and Proxmox adds them behind everything else by itself.
fn order(is: Option<&str>, wanted: &str, config: &VmConfig) -> Option<Change> {
    let devices = |text: &str| -> Vec<String> {
        let order = Properties::parse(text).get("order").unwrap_or_default().to_owned();
        order.split([';', ',', ' ']).filter(|device| !device.is_empty()).map(str::to_owned).collect()
    };
    let is_optical = |device: &String| {
        let drive = config.text(device).filter(|_| is_drive(device));
        drive.and_then(|text| Drive::parse(&text)).is_some_and(|drive| drive.is_optical())
    };
    let mut present = devices(is.unwrap_or_default());
    while present.pop_if(|device| is_optical(device)).is_some() {}
    (present != devices(wanted)).then(|| Change::Set(wanted.to_owned()))
}

/// Cards, passed-through devices, addresses and settings that nobody wants. They hold no data.
fn superfluous(wishes: &[Wish], config: &VmConfig) -> Vec<Difference> {
    const FAMILIES: [&str; 3] = ["net", "hostpci", "ipconfig"];
    const SINGLE: [&str; 4] = ["nameserver", "searchdomain", "startup", "tags"];
    let wanted: BTreeSet<&str> = wishes.iter().map(|wish| wish.option.as_str()).collect();
    let numbered = FAMILIES.iter().flat_map(|family| config.numbered(family));
    let single = SINGLE.iter().filter_map(|option| Some((*option, config.text(option)?)));
    numbered
        .chain(single)
        .filter(|(option, _)| !wanted.contains(option))
        .map(|(option, is)| Difference {
            option: option.to_owned(),
            is: Some(is),
            wanted: None,
            change: Change::Delete,
        })
        .collect()
}

/// Firmware's own drives are made once; what they say can never be changed.
fn firmware(wish: &Wish, config: &VmConfig) -> Option<Difference> {
    let is = config.text(&wish.option);
    let wanted = Drive::parse(&wish.text)?;
    let change = match is.as_deref().and_then(Drive::parse) {
        Some(drive) if meaning::of_drive(&drive) == meaning::of_drive(&wanted) => return None,
        Some(_) => Change::Rebuild,
        None => Change::Set(wish.text.clone()),
    };
    Some(Difference { option: wish.option.clone(), is, wanted: Some(wish.text.clone()), change })
}

/// A VM has one cloud-init drive at most, and a clone brings that of its template along, wherever that was.
fn cloudinit(shape: &Shape<'_>, config: &VmConfig) -> Option<Difference> {
    let wish = drives::cloudinit(shape.machine)?;
    let is_cloudinit = |text: &str| {
        let source = Drive::parse(text).map(|drive| drive.source);
        let Some(DriveSource::Volume(volume)) = source else { return false };
        volume.ends_with(":cloudinit") || volume.contains("-cloudinit")
    };
    let there = ["ide", "scsi", "sata"].iter().flat_map(|bus| config.numbered(bus));
    let there = there.map(|(_, text)| text).any(|text| is_cloudinit(&text));
    let is = config.text(&wish.option);
    let change = Change::Set(wish.text.clone());
    (!there).then_some(Difference { option: wish.option, is, wanted: Some(wish.text), change })
}

fn of_disk(disk: &Disk, is_system: bool, config: &VmConfig) -> Vec<Difference> {
    let wanted = drives::text(disk, drives::empty(disk));
    let is = config.text(&disk.slot);
    let drive = is.as_deref().and_then(Drive::parse).filter(|drive| !drive.is_optical());
    let difference = |wanted: String, change| Difference {
        option: disk.slot.clone(),
        is: is.clone(),
        wanted: Some(wanted),
        change,
    };
    let Some(drive) = drive else {
        // An empty system disk in place of one that went missing would boot nothing.
        let free = is.is_none() && !is_system;
        let change = if free { Change::Set(wanted.to_string()) } else { Change::Rebuild };
        return vec![difference(wanted.to_string(), change)];
    };
    let mut found = Vec::new();
    let source = drive.source.clone();
    if drive.storage() != Some(disk.storage.as_str()) {
        found.push(difference(wanted.to_string(), Change::Rebuild));
    }
    if meaning::of_drive(&drive) != meaning::of_drive(&wanted) {
        let text = drives::text(disk, source).to_string();
        found.push(difference(text.clone(), Change::Set(text)));
    }
    found.extend(
        of_size(disk, &drive).map(|change| difference(format!("size={}G", drives::gib(disk)), change)),
    );
    found
}

fn of_size(disk: &Disk, drive: &Drive) -> Option<Change> {
    let wanted = drives::gib(disk).saturating_mul(1 << 30);
    match drive.size()?.cmp(&wanted) {
        std::cmp::Ordering::Less => Some(Change::Grow { gib: drives::gib(disk) }),
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Greater => Some(Change::Rebuild),
    }
}

fn is_drive(option: &str) -> bool {
    let bus = option.trim_end_matches(|c: char| c.is_ascii_digit());
    bus != option && ["ide", "sata", "scsi", "virtio", "efidisk", "tpmstate"].contains(&bus)
}
