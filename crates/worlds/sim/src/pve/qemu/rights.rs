//! Who may set which option of a VM, and use which storage, bridge or device.

use std::collections::BTreeMap;

use ichor_model::VmId;

use super::{
    config::Section,
    network::{Net, is_net},
    property::{Properties, Shape},
};
use crate::pve::{
    ApiError, Caller, Datacentre,
    drive::{Drive, is_slot, is_unused, numbered},
    params::split_list,
    storage::volume::{ContentType, VolumeId},
};

/// For whom and what rights are checked.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// Who asks.
    pub caller: &'a Caller,
    /// The VM.
    pub vmid: VmId,
    /// The pool it shall go to.
    pub pool: Option<&'a str>,
}

const CPU: [&str; 9] =
    ["cores", "cpu", "runningcpu", "cpulimit", "cpuunits", "numa", "smp", "sockets", "vcpus"];
const MEMORY: [&str; 4] = ["memory", "balloon", "shares", "allow-ksm"];
const HARDWARE: [&str; 12] = [
    "acpi",
    "hotplug",
    "kvm",
    "machine",
    "runningmachine",
    "scsihw",
    "smbios1",
    "tablet",
    "vga",
    "watchdog",
    "audio0",
    "rng0",
];
const GENERAL: [&str; 17] = [
    "agent",
    "autostart",
    "bios",
    "description",
    "keyboard",
    "localtime",
    "migrate_downtime",
    "migrate_speed",
    "name",
    "onboot",
    "ostype",
    "protection",
    "reboot",
    "startdate",
    "startup",
    "tdf",
    "template",
];
const DISK: [&str; 3] = ["boot", "bootdisk", "vmstatestorage"];
const CLOUD_INIT: [&str; 8] =
    ["cicustom", "cipassword", "citype", "ciuser", "ciupgrade", "nameserver", "searchdomain", "sshkeys"];

/// Options that only root may set, whose names nobody else needs to know.
const ROOT_ONLY: [&str; 14] = [
    "affinity",
    "amd-sev",
    "arch",
    "args",
    "hookscript",
    "hugepages",
    "intel-tdx",
    "ivshmem",
    "keephugepages",
    "lock",
    "spice_enhancements",
    "vmgenid",
    "meta",
    "snaptime",
];

/// Returns whether an option exists.
pub fn is_option(key: &str) -> bool {
    let plain = [
        CPU.as_slice(),
        &MEMORY,
        &HARDWARE,
        &GENERAL,
        &DISK,
        &CLOUD_INIT,
        &ROOT_ONLY,
        &["freeze", "tags", "efidisk0", "tpmstate0", "vmstate", "parent", "running-nets-host-mtu"],
    ];
    let count = |name: &str| match name {
        "net" | "ipconfig" => 32,
        "serial" => 4,
        "parallel" => 3,
        "usb" => 14,
        "hostpci" => 16,
        "numa" => 8,
        "virtiofs" => 10,
        _ => 0,
    };
    plain.iter().any(|list| list.contains(&key))
        || is_slot(key)
        || is_unused(key)
        || numbered(key).is_some_and(|(name, number)| number < count(name))
}

/// Checks the rights to set or delete options, as far as they do not depend on values.
pub fn check_options<'a>(
    dc: &Datacentre,
    subject: Subject,
    options: impl Iterator<Item = &'a str>,
) -> Result<(), ApiError> {
    if subject.caller.is_root() {
        return Ok(());
    }
    for option in options {
        check_option(dc, subject, option)?;
    }
    Ok(())
}

fn check_option(dc: &Datacentre, subject: Subject, option: &str) -> Result<(), ApiError> {
    let family = numbered(option).map(|(name, _)| name);
    if is_slot(option) || ["cdrom", "tags"].contains(&option) {
        return Ok(());
    }
    if family.is_some_and(|name| ["unused", "serial", "usb", "hostpci", "virtiofs"].contains(&name)) {
        return Ok(());
    }
    let needs = |privileges: &[&str]| dc.check_vm(subject.caller, subject.vmid, subject.pool, privileges);
    if CPU.contains(&option) || family == Some("numa") {
        needs(&["VM.Config.CPU"])
    } else if MEMORY.contains(&option) {
        needs(&["VM.Config.Memory"])
    } else if HARDWARE.contains(&option) {
        needs(&["VM.Config.HWType"])
    } else if GENERAL.contains(&option) {
        needs(&["VM.Config.Options"])?;
        if option == "startup" { dc.check(subject.caller, "/", &["Sys.Modify"]) } else { Ok(()) }
    } else if option == "freeze" {
        needs(&["VM.PowerMgmt"])
    } else if DISK.contains(&option) {
        needs(&["VM.Config.Disk"])
    } else if is_net(option) || option == "running-nets-host-mtu" {
        needs(&["VM.Config.Network"])
    } else if CLOUD_INIT.contains(&option) || family == Some("ipconfig") {
        let any = ["VM.Config.Cloudinit", "VM.Config.Network"];
        let pool =
            subject.pool.is_some_and(|pool| dc.may_any(subject.caller, &format!("/pool/{pool}"), &any));
        if pool { Ok(()) } else { dc.check_any(subject.caller, &format!("/vms/{}", subject.vmid), &any) }
    } else if option == "vmstate" {
        needs(&["VM.Config.Disk", "VM.PowerMgmt"])
    } else {
        Err(ApiError::server(format!("only root can set '{option}' config")))
    }
}

/// Checks the rights that depend on the values of serial ports, USB, PCI, random numbers and folders.
pub fn check_devices(dc: &Datacentre, subject: Subject, options: &Section) -> Result<(), ApiError> {
    if subject.caller.is_root() {
        return Ok(());
    }
    for (option, value) in options.iter().filter(|(option, _)| is_numbered(option, "serial")) {
        if value != "socket" {
            return Err(ApiError::server(format!("only root can set '{option}' config for real devices")));
        }
        dc.check_vm(subject.caller, subject.vmid, subject.pool, &["VM.Config.HWType"])?;
    }
    for family in ["usb", "hostpci", "rng", "virtiofs"] {
        for (option, value) in options.iter().filter(|(option, _)| is_numbered(option, family)) {
            check_device(dc, subject, option, value)?;
        }
    }
    Ok(())
}

fn is_numbered(option: &str, family: &str) -> bool {
    numbered(option).is_some_and(|(name, _)| name == family)
}

/// Checks the right to a device that is passed through.
pub fn check_device(dc: &Datacentre, subject: Subject, option: &str, value: &str) -> Result<(), ApiError> {
    if subject.caller.is_root() {
        return Ok(());
    }
    let Some((family, _)) = numbered(option) else { return Ok(()) };
    let hardware = || dc.check_vm(subject.caller, subject.vmid, subject.pool, &["VM.Config.HWType"]);
    let mapping = |kind: &str, name: &str| {
        dc.check(subject.caller, &format!("/mapping/{kind}/{name}"), &["Mapping.Use"])
    };
    let neither = || ApiError::server("either 'host' or 'mapping' must be set.");
    match family {
        "usb" => {
            hardware()?;
            let device = Properties::read(Shape::plain("host"), value);
            match (device.get("host"), device.get("mapping")) {
                (Some(host), _) if host.eq_ignore_ascii_case("spice") => Ok(()),
                (Some(_), _) => {
                    Err(ApiError::server(format!("only root can set '{option}' config for real devices")))
                }
                (None, Some(name)) => mapping("usb", name),
                (None, None) => Err(neither()),
            }
        }
        "hostpci" => {
            let device = Properties::read(Shape::plain("host"), value);
            match (device.get("host"), device.get("mapping")) {
                (Some(_), _) => Err(ApiError::server(format!(
                    "only root can set '{option}' config for non-mapped devices"
                ))),
                (None, Some(name)) => {
                    mapping("pci", name)?;
                    hardware()
                }
                (None, None) => Err(neither()),
            }?;
            match device.get("romfile") {
                Some(_) => Err(ApiError::param(option, "only root@pam can set 'romfile' option")),
                None => Ok(()),
            }
        }
        "rng" => {
            hardware()?;
            if Properties::read(Shape::plain("source"), value).get("source") == Some("/dev/hwrng") {
                return dc.check(subject.caller, "/mapping/hwrng", &["Mapping.Use"]);
            }
            Ok(())
        }
        "virtiofs" => {
            dc.check_vm(subject.caller, subject.vmid, subject.pool, &["VM.Config.Disk"])?;
            let folder = Properties::read(Shape::plain("dirid"), value);
            mapping("dir", folder.get("dirid").unwrap_or_default())
        }
        _ => Ok(()),
    }
}

/// Checks the right to use the bridges of network cards.
pub fn check_bridges(dc: &Datacentre, caller: &Caller, options: &Section) -> Result<(), ApiError> {
    if caller.is_root() {
        return Ok(());
    }
    for (_, value) in options.iter().filter(|(option, _)| is_net(option)) {
        let net = Net::read(value);
        let Some(bridge) = net.get("bridge") else { continue };
        let path = format!("/sdn/zones/{}/{bridge}", dc.zone_of(bridge));
        let tag = net.get("tag").filter(|tag| *tag != "0");
        if let Some(tag) = tag {
            dc.check(caller, &format!("{path}/{tag}"), &["SDN.Use"])?;
        }
        let trunks = net.get("trunks");
        for tag in trunks.into_iter().flat_map(trunk_tags) {
            dc.check(caller, &format!("{path}/{tag}"), &["SDN.Use"])?;
        }
        if tag.is_none() && trunks.is_none() {
            dc.check(caller, &path, &["SDN.Use"])?;
        }
    }
    Ok(())
}

/// Returns the VLANs of an option such as `2;5-7`.
fn trunk_tags(trunks: &str) -> Vec<u32> {
    let mut tags = Vec::new();
    for part in split_list(trunks) {
        let (first, last) = part.split_once('-').unwrap_or((&part, &part));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            tags.extend(first..=last.min(4096));
        }
    }
    tags.sort_unstable();
    tags.dedup();
    tags
}

/// Checks the right to read a volume, and that it is of a type if one is asked for.
pub fn check_volume(
    dc: &Datacentre,
    caller: &Caller,
    vmid: Option<VmId>,
    volume: &str,
    kind: Option<ContentType>,
) -> Result<(), ApiError> {
    let Some(id) = VolumeId::read(volume) else {
        if caller.is_root() {
            return Ok(());
        }
        // Perl adds the place where it died, as the text has no line break.
        return Err(ApiError::server(
            "Only root can pass arbitrary filesystem paths. at /usr/share/perl5/PVE/Storage.pm line 651.",
        ));
    };
    let found = dc.storage.look_up(volume).map_err(ApiError::server)?;
    if let Some(kind) = kind
        && found.name.kind != kind
    {
        let text = format!("unable to use volume {volume} - content type needs to be '{}'", kind.name());
        return Err(ApiError::server(text));
    }
    let path = format!("/storage/{}", id.storage);
    if dc.may(caller, &path, &["Datastore.Allocate"]) {
        return Ok(());
    }
    let owner = found.name.owner.and_then(VmId::new);
    match (found.name.kind, owner) {
        (ContentType::Iso | ContentType::Vztmpl | ContentType::Import, _) => {
            dc.check_any(caller, &path, &["Datastore.AllocateSpace", "Datastore.Audit"])
        }
        (_, Some(owner)) if Some(owner) == vmid => Ok(()),
        (ContentType::Backup, Some(owner)) => {
            dc.check(caller, &path, &["Datastore.AllocateSpace"])?;
            dc.check(caller, &format!("/vms/{owner}"), &["VM.Backup"])
        }
        (ContentType::Images | ContentType::Rootdir, Some(owner)) => {
            dc.check(caller, &path, &["Datastore.Audit"])?;
            dc.check(caller, &format!("/vms/{owner}"), &["VM.Config.Disk"])
        }
        _ => Err(ApiError::server(format!("missing privileges to access {volume}"))),
    }
}

/// Checks that drives may be made or attached.
pub fn check_storages(
    dc: &Datacentre,
    subject: Subject,
    options: &Section,
    default_storage: Option<&str>,
) -> Result<(), ApiError> {
    let space = |storage: &str| {
        dc.check(subject.caller, &format!("/storage/{storage}"), &["Datastore.AllocateSpace"])
    };
    for (slot, text) in options.iter().filter(|(option, _)| is_slot(option)) {
        let Some(drive) = Drive::read(slot, text) else { continue };
        check_file(dc, subject, &drive, default_storage)?;
        if let Some(source) = drive.get("import-from") {
            check_import(dc, subject, slot, source)?;
        }
    }
    for (option, text) in options.iter().filter(|(option, _)| is_unused(option)) {
        let volume = text.split(',').next().unwrap_or_default();
        let volume =
            volume.strip_prefix("file=").or_else(|| volume.strip_prefix("volume=")).unwrap_or(volume);
        if VolumeId::read(volume).is_none() {
            return Err(ApiError::param(option, format!("not a valid volid: {volume}")));
        }
        check_volume(dc, subject.caller, Some(subject.vmid), volume, Some(ContentType::Images))?;
    }
    match options.get("vmstatestorage") {
        Some(storage) => space(storage),
        None => Ok(()),
    }
}

fn check_file(
    dc: &Datacentre,
    subject: Subject,
    drive: &Drive,
    default_storage: Option<&str>,
) -> Result<(), ApiError> {
    let file = drive.file();
    if file == "none" || file == "cloudinit" || drive.cloud_init_wish().is_some() {
        return Ok(());
    }
    if drive.is_disc() && file == "cdrom" {
        return dc.check(subject.caller, "/", &["Sys.Console"]);
    }
    if let Some(wish) = drive.wish().filter(|_| !drive.is_disc()) {
        let storage = wish.storage.as_deref().or(default_storage);
        let Some(storage) = storage else {
            return Err(ApiError::server("no storage ID specified (and no default storage)"));
        };
        dc.check(subject.caller, &format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
        return check_holds_images(dc, storage);
    }
    check_volume(dc, subject.caller, Some(subject.vmid), file, None)?;
    let Ok(found) = dc.storage.look_up(file) else { return Ok(()) };
    if matches!(found.name.kind, ContentType::Images | ContentType::Iso) {
        return Ok(());
    }
    Err(ApiError::param(&drive.slot, "content type needs to be 'images' or 'iso'"))
}

/// Checks that a storage is there and holds disks.
pub fn check_holds_images(dc: &Datacentre, storage: &str) -> Result<(), ApiError> {
    let definition = dc.storage.definition(storage).map_err(ApiError::server)?;
    if definition.holds(ContentType::Images) {
        return Ok(());
    }
    Err(ApiError::param("storage", format!("storage '{storage}' does not support vm images")))
}

fn check_import(dc: &Datacentre, subject: Subject, slot: &str, source: &str) -> Result<(), ApiError> {
    if VolumeId::read(source).is_none() {
        return check_volume(dc, subject.caller, Some(subject.vmid), source, None);
    }
    let found = dc.storage.look_up(source).map_err(ApiError::server)?;
    let kind = found.name.kind;
    if !matches!(kind, ContentType::Images | ContentType::Import) {
        let name = kind.name();
        let text = format!("{source} has wrong type '{name}' - needs to be 'images' or 'import'");
        return Err(ApiError::param(slot, text));
    }
    match found.name.owner.filter(|_| kind == ContentType::Images) {
        Some(owner) => dc.check(subject.caller, &format!("/vms/{owner}"), &["VM.Clone"]),
        None => check_volume(dc, subject.caller, Some(subject.vmid), source, None),
    }
}

/// Checks drives as such and writes them as the server does.
pub fn normalize_drives(dc: &Datacentre, options: &mut Section) -> Result<(), ApiError> {
    let slots: Vec<String> = options.keys().filter(|option| is_slot(option)).cloned().collect();
    for slot in slots {
        let text = options.get(&slot).cloned().unwrap_or_default();
        let mut drive = Drive::read(&slot, &text)
            .ok_or_else(|| ApiError::param(&slot, "unable to parse drive options"))?;
        if drive.get("import-from").is_some() {
            check_import_form(&drive)?;
        }
        let file = drive.file().to_owned();
        let plain = !["none", "cdrom"].contains(&file.as_str());
        if plain
            && !file.starts_with("/dev/")
            && !file.contains(':')
            && !file.bytes().all(|b| b.is_ascii_digit())
        {
            let text = format!("unable to associate path '{file}' to any storage");
            return Err(ApiError::param(&slot, text));
        }
        if !plain && drive.get("media").is_none() {
            drive.set("media", "cdrom");
        }
        if VolumeId::read(&file).is_some() && drive.wish().is_none() && drive.cloud_init_wish().is_none() {
            let found = dc.storage.look_up(&file).map_err(ApiError::server)?;
            if found.name.kind == ContentType::Iso && !drive.is_disc() {
                return Err(ApiError::param(&slot, "explicit 'media=cdrom' is required for iso images"));
            }
        }
        options.insert(slot, drive.to_string());
    }
    Ok(())
}

fn check_import_form(drive: &Drive) -> Result<(), ApiError> {
    let slot = &drive.slot;
    if drive.wish().is_none_or(|wish| !wish.is_zero()) {
        let text = "'import-from' requires special syntax - use <storage ID>:0,import-from=<source>";
        return Err(ApiError::param(slot, text));
    }
    let needed = BTreeMap::from([
        ("efidisk0", ["efitype", "pre-enrolled-keys"].as_slice()),
        ("tpmstate0", ["version"].as_slice()),
    ]);
    for option in needed.get(slot.as_str()).copied().unwrap_or_default() {
        if drive.get(option).is_none() {
            let text = format!("need to specify '{option}' when using 'import-from'");
            return Err(ApiError::param(slot, text));
        }
    }
    Ok(())
}

/// Checks that a drive may be attached or taken away.
pub fn check_drive(dc: &Datacentre, caller: &Caller, vmid: VmId, drive: &Drive) -> Result<(), ApiError> {
    let privileges: &[&str] = if drive.is_cloud_init() {
        &["VM.Config.Cloudinit", "VM.Config.CDROM"]
    } else if drive.is_plain_disc() {
        &["VM.Config.CDROM"]
    } else {
        &["VM.Config.Disk"]
    };
    dc.check_vm(caller, vmid, None, privileges)
}

/// Checks that tags may be given or taken.
pub fn check_tags(
    dc: &Datacentre,
    caller: &Caller,
    vmid: VmId,
    old: &str,
    new: &str,
) -> Result<(), ApiError> {
    dc.check_vm(caller, vmid, None, &["VM.Config.Options"])?;
    if dc.may(caller, "/", &["Sys.Modify"]) {
        return Ok(());
    }
    let (old, new) = (split_list(old), split_list(new));
    let changed = |tag: &&String| {
        old.iter().filter(|other| other == tag).count() != new.iter().filter(|other| other == tag).count()
    };
    let privileged = dc.registered_tags();
    match old.iter().chain(&new).filter(changed).find(|tag| privileged.contains(tag)) {
        Some(tag) => Err(ApiError::forbidden(&format!("/, Sys.Modify for modifying tag '{tag}'"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_known_by_name() {
        for option in ["cores", "net31", "scsi30", "unused0", "ipconfig0", "lock", "tags", "hostpci15"] {
            assert!(is_option(option), "{option}");
        }
        for option in ["bogus", "net32", "scsi31", "serial4", "digest"] {
            assert!(!is_option(option), "{option}");
        }
    }

    #[test]
    fn trunks_are_lists_of_ranges() {
        assert_eq!(trunk_tags("2;5-7;6"), [2, 5, 6, 7]);
    }
}
