//! Changes of a running VM.

use std::{collections::BTreeMap, time::Duration};

use ichor_model::VmId;

use super::{
    boot,
    config::Config,
    hardware, load, load_mut,
    network::{Net, is_net},
    property::{Properties, Shape},
    update,
};
use crate::{
    ground::Ground,
    pve::{
        ApiError, Caller, Datacentre, Worker,
        drive::{Drive, is_slot, numbered},
        params::split_list,
    },
};

/// How long the server waits for the guest to let go of a device.
pub const UNPLUG_WAIT: Duration = Duration::from_secs(6);

/// Options that mean nothing to a running VM and hold at once.
const FAST: [&str; 12] = [
    "description",
    "hookscript",
    "lock",
    "migrate_downtime",
    "migrate_speed",
    "name",
    "onboot",
    "protection",
    "shares",
    "startup",
    "tags",
    "vmstatestorage",
];

const CLOUD_INIT: [&str; 8] =
    ["cicustom", "cipassword", "citype", "ciuser", "ciupgrade", "nameserver", "searchdomain", "sshkeys"];

fn is_cloud_init(key: &str) -> bool {
    CLOUD_INIT.contains(&key) || numbered(key).is_some_and(|(name, _)| name == "ipconfig")
}

/// Whether the option counts as a change of cloud-init's drive.
fn is_recorded(key: &str) -> bool {
    is_cloud_init(key) || key == "name" || is_net(key)
}

/// How a change ended.
enum Plug {
    /// It holds now.
    Done,
    /// It waits for a restart.
    Later,
}

/// What can be changed while the VM runs.
struct Features {
    network: bool,
    disk: bool,
    usb: bool,
    cpu: bool,
    memory: bool,
    cloud_init: bool,
}

impl Features {
    fn of(config: &Config) -> Self {
        let option = match config.get("hotplug") {
            None | Some("1") => "network,disk,usb",
            Some(option) => option,
        };
        let list = if option == "0" { Vec::new() } else { split_list(option) };
        let has = |name: &str| list.iter().any(|feature| feature == name);
        Self {
            network: has("network"),
            disk: has("disk"),
            usb: has("usb"),
            cpu: has("cpu"),
            memory: has("memory"),
            cloud_init: has("cloudinit"),
        }
    }
}

/// Applies what is pending and can hold now. Returns what went wrong, by option; that stays pending.
pub fn apply(
    dc: &mut Datacentre,
    ground: &mut Ground,
    worker: &mut Worker,
    caller: &Caller,
    host: &str,
    vmid: VmId,
    selection: &[String],
) -> Result<BTreeMap<String, String>, ApiError> {
    let config = &mut load_mut(dc, host, vmid)?.config;
    let fast: Vec<String> = config
        .pending
        .keys()
        .filter(|key| FAST.contains(&key.as_str()) || is_cloud_init(key))
        .cloned()
        .collect();
    for key in fast {
        if let Some(value) = config.pending.remove(&key) {
            record(config, &key, Some(&value));
            config.current.insert(key, value);
        }
    }
    let features = Features::of(config);
    let mut errors = BTreeMap::new();
    let problem = |error: &ApiError| format!("hotplug problem - {}", error.as_text());
    for (key, force) in load(dc, host, vmid)?.config.deletes.clone() {
        if !selection.contains(&key) {
            continue;
        }
        match delete(dc, ground, caller, host, vmid, &key, force, &features) {
            Ok(Plug::Done) => {
                let config = &mut load_mut(dc, host, vmid)?.config;
                record(config, &key, None);
                config.current.remove(&key);
                config.deletes.remove(&key);
            }
            Ok(Plug::Later) => {}
            Err(error) => {
                errors.insert(key.clone(), problem(&error));
            }
        }
    }
    let mut cloud_init_drive = None;
    for (key, value) in load(dc, host, vmid)?.config.pending.clone() {
        if !selection.contains(&key) {
            continue;
        }
        if is_slot(&key) && Drive::read(&key, &value).is_some_and(|drive| drive.is_cloud_init()) {
            cloud_init_drive = Some((key, value));
            continue;
        }
        change(dc, ground, host, vmid, &key, &value, &features, &mut errors)?;
    }
    if let Some((key, value)) = cloud_init_drive {
        change(dc, ground, host, vmid, &key, &value, &features, &mut errors)?;
    }
    load_mut(dc, host, vmid)?.config.write().map_err(ApiError::server)?;
    if features.cloud_init && !load(dc, host, vmid)?.config.cloud_init.is_empty() {
        hardware::regenerate_cloud_init(dc, host, vmid, worker)?;
    }
    update_devices(dc, host, vmid)?;
    Ok(errors)
}

/// What QEMU has now: everything that is not pending.
fn update_devices(dc: &mut Datacentre, host: &str, vmid: VmId) -> Result<(), ApiError> {
    let vm = load_mut(dc, host, vmid)?;
    if let Some(run) = &mut vm.run {
        run.devices = vm.config.current.clone();
    }
    Ok(())
}

#[allow(clippy::too_many_arguments)]
fn change(
    dc: &mut Datacentre,
    ground: &mut Ground,
    host: &str,
    vmid: VmId,
    key: &str,
    value: &str,
    features: &Features,
    errors: &mut BTreeMap<String, String>,
) -> Result<(), ApiError> {
    match plug(dc, ground, host, vmid, key, value, features) {
        Ok(Plug::Done) => {
            let config = &mut load_mut(dc, host, vmid)?.config;
            record(config, key, Some(value));
            config.pending.remove(key);
            config.current.insert(key.to_owned(), value.to_owned());
        }
        Ok(Plug::Later) => {}
        Err(error) => {
            errors.insert(key.to_owned(), format!("hotplug problem - {}", error.as_text()));
        }
    }
    Ok(())
}

/// Remembers what cloud-init's drive was made from when a value changes.
fn record(config: &mut Config, key: &str, new: Option<&str>) {
    let has_drive = super::config::cloud_init_slot(&config.current, None).is_some();
    if !is_recorded(key) || !has_drive {
        return;
    }
    let old = config.current.get(key).cloned();
    let recorded = config.cloud_init.get(key).cloned();
    let mut added = config.cloud_init.remove("added").map(|list| split_list(&list)).unwrap_or_default();
    let is_added = added.iter().any(|other| other == key);
    match (old, new) {
        (_, Some(new)) if recorded.as_deref() == Some(new) => {
            config.cloud_init.remove(key);
            added.retain(|other| other != key);
        }
        (Some(old), _) if recorded.is_none() && !is_added => {
            config.cloud_init.insert(key.to_owned(), old);
        }
        (None, Some(_)) if recorded.is_none() && !is_added => added.push(key.to_owned()),
        (Some(_), None) if is_added => added.retain(|other| other != key),
        _ => {}
    }
    added.sort();
    if !added.is_empty() {
        config.cloud_init.insert("added".into(), added.join(","));
    }
}

#[allow(clippy::too_many_arguments)]
fn delete(
    dc: &mut Datacentre,
    ground: &mut Ground,
    caller: &Caller,
    host: &str,
    vmid: VmId,
    key: &str,
    force: bool,
    features: &Features,
) -> Result<Plug, ApiError> {
    let config = &load(dc, host, vmid)?.config;
    let later_unless = |can: bool| if can { Ok(Plug::Done) } else { Ok(Plug::Later) };
    if FAST.contains(&key) || is_cloud_init(key) {
        return Ok(Plug::Done);
    }
    if is_net(key) {
        if !features.network {
            return Ok(Plug::Later);
        }
        unplug(dc, ground, vmid, key)?;
        return Ok(Plug::Done);
    }
    if is_slot(key) {
        if !features.disk || !is_pluggable(key) {
            return Ok(Plug::Later);
        }
        unplug(dc, ground, vmid, key)?;
        update::delete_drive(dc, ground, caller, host, vmid, key, force)?;
        return Ok(Plug::Done);
    }
    match key {
        "hotplug" => later_unless(
            config.get("hotplug").is_none_or(|list| !list.contains("cpu") && !list.contains("memory")),
        ),
        "tablet" => later_unless(features.usb),
        "vcpus" => later_unless(features.cpu),
        "memory" => later_unless(features.memory),
        "balloon" => later_unless(config.get("balloon") != Some("0")),
        "cpuunits" | "cpulimit" => Ok(Plug::Done),
        _ if numbered(key).is_some_and(|(name, _)| name == "usb") => later_unless(usb_hot(config, features)),
        _ => Ok(Plug::Later),
    }
}

fn usb_hot(config: &Config, features: &Features) -> bool {
    features.usb && matches!(config.get("ostype"), Some("l26" | "win8" | "win10" | "win11"))
}

fn plug(
    dc: &mut Datacentre,
    ground: &mut Ground,
    host: &str,
    vmid: VmId,
    key: &str,
    value: &str,
    features: &Features,
) -> Result<Plug, ApiError> {
    if is_net(key) {
        return plug_net(dc, ground, host, vmid, key, value, features);
    }
    if is_slot(key) {
        return plug_drive(dc, ground, host, vmid, key, value, features);
    }
    let config = &load(dc, host, vmid)?.config;
    let later_unless = |can: bool| if can { Ok(Plug::Done) } else { Ok(Plug::Later) };
    match key {
        "hotplug" => {
            let old = config.get("hotplug").unwrap_or_default();
            later_unless(!["memory", "cpu"].iter().any(|word| value.contains(word) || old.contains(word)))
        }
        "tablet" => later_unless(features.usb),
        "vcpus" => later_unless(features.cpu),
        "memory" => later_unless(features.memory),
        "balloon" => later_unless((config.get("balloon") == Some("0")) == (value == "0")),
        "cpuunits" | "cpulimit" => Ok(Plug::Done),
        "agent" => later_unless(agent_changes_nothing(config.get("agent"), value)),
        _ if numbered(key).is_some_and(|(name, _)| name == "usb") => later_unless(usb_hot(config, features)),
        _ => Ok(Plug::Later),
    }
}

/// Only the trimming of disks can be changed while QEMU runs.
fn agent_changes_nothing(old: Option<&str>, new: &str) -> bool {
    let Some(old) = old.filter(|old| !old.is_empty() && *old != "0") else { return false };
    let read = |text: &str| {
        let mut agent = Properties::read(
            Shape { main: "enabled", aliases: &[], flags: &["enabled", "fstrim_cloned_disks", "freeze-fs"] },
            text,
        );
        agent.remove("fstrim_cloned_disks");
        if agent.flag("enabled") { agent.to_string() } else { String::new() }
    };
    read(old) == read(new)
}

fn plug_net(
    dc: &mut Datacentre,
    ground: &Ground,
    host: &str,
    vmid: VmId,
    key: &str,
    value: &str,
    features: &Features,
) -> Result<Plug, ApiError> {
    let new = Net::read(value);
    if let Some(old) = load(dc, host, vmid)?.config.get(key).map(Net::read) {
        if old.changes_in_place(&new) {
            hardware::check_bridge(dc, host, &new)?;
            return Ok(Plug::Done);
        }
        if !features.network {
            return Ok(Plug::Later);
        }
        unplug(dc, ground, vmid, key)?;
    }
    if !features.network {
        return Ok(Plug::Later);
    }
    hardware::check_bridge(dc, host, &new)?;
    Ok(Plug::Done)
}

fn plug_drive(
    dc: &mut Datacentre,
    ground: &mut Ground,
    host: &str,
    vmid: VmId,
    slot: &str,
    value: &str,
    features: &Features,
) -> Result<Plug, ApiError> {
    if slot == "efidisk0" || slot == "tpmstate0" {
        return Ok(Plug::Later);
    }
    let Some(new) = Drive::read(slot, value) else { return Ok(Plug::Later) };
    if let Some(old) = load(dc, host, vmid)?.config.drive(slot) {
        if old.is_disc() != new.is_disc() {
            return Err(ApiError::server("unable to change media type"));
        }
        if old.is_disc() {
            if new.file() == "none" && old.is_cloud_init() {
                update::register_unused(dc, ground, host, vmid, &old)?;
            }
            return Ok(Plug::Done);
        }
        if old.file() == new.file() {
            return Ok(if old.differs_coldly(&new) { Plug::Later } else { Plug::Done });
        }
        if !features.disk {
            return Ok(Plug::Later);
        }
        unplug(dc, ground, vmid, slot)?;
        update::register_unused(dc, ground, host, vmid, &old)?;
    }
    Ok(if features.disk && is_pluggable(slot) { Plug::Done } else { Plug::Later })
}

/// Pulls a device out of a running VM. Devices on the PCI bus need a guest that lets go of them.
fn unplug(dc: &Datacentre, ground: &Ground, vmid: VmId, device: &str) -> Result<(), ApiError> {
    let Some(run) = dc.vms.get(&vmid).and_then(|vm| vm.run.as_ref()) else { return Ok(()) };
    if !run.devices.contains_key(device) {
        return Ok(());
    }
    let config = dc.vms.get(&vmid).map(|vm| &vm.config.current);
    if config.is_some_and(|config| boot::boot_drives(config).iter().any(|slot| slot == device)) {
        return Err(ApiError::server(format!("can't unplug bootdisk '{device}'")));
    }
    if needs_guest(device) && !has_system(dc, ground, vmid) {
        return Err(ApiError::server(format!(
            "error on hot-unplugging device '{device}' - still busy in guest?"
        )));
    }
    Ok(())
}

/// Returns whether a drive can be plugged into a running VM.
fn is_pluggable(slot: &str) -> bool {
    numbered(slot).is_some_and(|(bus, _)| ["scsi", "virtio"].contains(&bus))
}

fn needs_guest(device: &str) -> bool {
    is_net(device) || numbered(device).is_some_and(|(bus, _)| bus == "virtio")
}

/// Returns whether an operating system runs in a VM.
fn has_system(dc: &Datacentre, ground: &Ground, vmid: VmId) -> bool {
    let stand_in = dc.vms.get(&vmid).and_then(|vm| vm.run.as_ref()).is_some_and(|run| run.agent.is_some());
    let shows =
        ground.guests.get(&vmid).is_some_and(|guest| guest.agent.is_some() || !guest.console.is_empty());
    stand_in || shows
}

/// Returns whether a change will wait in vain for the guest to let go of a device.
pub fn unplug_that_fails(
    dc: &Datacentre,
    ground: &Ground,
    vmid: VmId,
    delete: &[String],
    set: &BTreeMap<String, Option<String>>,
) -> bool {
    let Some(vm) = dc.vms.get(&vmid).filter(|vm| vm.runs()) else { return false };
    if has_system(dc, ground, vmid) {
        return false;
    }
    let boots = boot::boot_drives(&vm.config.current);
    let plugged =
        |key: &String| needs_guest(key) && vm.config.current.contains_key(key) && !boots.contains(key);
    let replaced = |key: &String, value: &Option<String>| {
        let (Some(old), Some(new)) = (vm.config.get(key), value.as_deref()) else { return false };
        if is_net(key) {
            return !Net::read(old).changes_in_place(&Net::read(new));
        }
        let file = |text: &str| Drive::read(key, text).map(|drive| drive.file().to_owned());
        file(old) != file(new)
    };
    delete.iter().any(plugged) || set.iter().any(|(key, value)| plugged(key) && replaced(key, value))
}
