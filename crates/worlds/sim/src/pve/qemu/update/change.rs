//! A change of a config: what is set, deleted and reverted.

use std::{collections::BTreeMap, time::Duration};

use ichor_model::VmId;
use serde::{Deserialize, Serialize};
use sha2::Digest;

use super::{
    OTHER,
    pending::cold_plug,
    volumes::{deallocate, register_unused},
};
use crate::{
    ground::Ground,
    pve::{
        Answer, ApiError, Call, Caller, Datacentre, Lock, Params, Reply, Worker,
        drive::{Drive, is_slot, is_unused, numbered},
        params::split_list,
        qemu::{
            Vm, boot,
            config::{Config, Section, memory_mib},
            create::{check_machine, check_ssh_keys, checked_machine, clamp_cpu_units, resolve_cdrom},
            disks::{self, Owner},
            hotplug, load, load_mut,
            network::{Net, is_net},
            options_of,
            rights::{self, Subject, is_option},
        },
    },
};

/// A change of a VM's config.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Update {
    pub(super) vmid: VmId,
    pub(super) host: String,
    caller: Caller,
    digest: Option<String>,
    skip_lock: bool,
    /// Options to set; absent values are JSON's null.
    set: BTreeMap<String, Option<String>>,
    delete: Vec<String>,
    revert: Vec<String>,
    force: bool,
    /// What the task's log says first.
    told: String,
}

impl Update {
    /// Reads and checks a change, as far as that is possible before the VM is locked.
    pub(super) fn read(
        dc: &Datacentre,
        ground: &mut Ground,
        call: &Call,
        params: &Params,
    ) -> Result<Self, ApiError> {
        let (vmid, host) = (params.path_vmid(), params.host());
        let caller = call.caller.clone();
        let told = told(vmid, params);
        let skip_lock = params.flag("skiplock");
        if skip_lock && !caller.is_root() {
            return Err(ApiError::param("skiplock", "Only root may use this option."));
        }
        let given = options_of(params, &OTHER);
        let nulls: Vec<String> =
            given.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| key.clone()).collect();
        let mut options: Section = given.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        check_ssh_keys(&options)?;
        clamp_cpu_units(&mut options);
        let (delete, revert) = (params.list("delete"), params.list("revert"));
        let nothing = options.is_empty() && nulls.is_empty();
        let said = |name: &str| params.text(name).is_some_and(|text| !text.is_empty() && text != "0");
        if nothing && !said("delete") && !said("revert") {
            return Err(ApiError::server("no options specified"));
        }
        resolve_cdrom(&mut options);
        let delete = checked_lists(&options, delete, &revert)?;
        rights::normalize_drives(dc, &mut options)?;
        let prefix = dc.mac_prefix();
        for (key, value) in &mut options {
            if is_net(key) {
                *value = Net::read(value).with_mac(&prefix, &mut ground.random).to_string();
            } else if key == "vmgenid" && value == "1" {
                *value = ground.random.uuid();
            }
        }
        let subject = Subject { caller: &caller, vmid, pool: None };
        rights::check_options(dc, subject, delete.iter().map(String::as_str))?;
        rights::check_options(dc, subject, options.keys().chain(&nulls).map(String::as_str))?;
        rights::check_storages(dc, subject, &options, None)?;
        rights::check_bridges(dc, &caller, &options)?;
        let mut set: BTreeMap<String, Option<String>> =
            options.into_iter().map(|(key, value)| (key, Some(value))).collect();
        set.extend(nulls.into_iter().map(|key| (key, None)));
        let update = Self {
            vmid,
            host,
            caller,
            digest: params.text("digest").filter(|digest| !digest.is_empty()),
            skip_lock,
            set,
            delete,
            revert,
            force: params.flag("force"),
            told,
        };
        update.check(load(dc, &update.host, vmid)?)?;
        Ok(update)
    }

    /// Makes a change that another task wants.
    pub fn of(vmid: VmId, host: &str, caller: &Caller, set: Section, digest: Option<String>) -> Self {
        let pairs: Vec<String> = set.iter().map(|(key, value)| format!("-{key} {value}")).collect();
        Self {
            vmid,
            host: host.to_owned(),
            caller: caller.clone(),
            digest,
            skip_lock: false,
            told: format!("update VM {vmid}: {}", pairs.join(" ")),
            set: set.into_iter().map(|(key, value)| (key, Some(value))).collect(),
            delete: Vec::new(),
            revert: Vec::new(),
            force: false,
        }
    }

    /// Checks a change against the config as it is.
    pub(super) fn check(&self, vm: &Vm) -> Result<(), ApiError> {
        let config = &vm.config;
        if self.digest.as_ref().is_some_and(|digest| *digest != config.digest()) {
            return Err(ApiError::server("checksum mismatch (file change by other user?)"));
        }
        let suspended = config.lock() == Some("suspended") && self.delete.iter().any(|key| key == "vmstate");
        if !self.skip_lock && !suspended {
            config.check_lock().map_err(ApiError::server)?;
        }
        let given = |key: &str| self.set.get(key).and_then(Option::as_deref);
        if given("memory").is_some() || given("balloon").is_some() {
            let held =
                |key: &str| config.pending.get(key).or_else(|| config.current.get(key)).map(String::as_str);
            let memory = memory_mib(given("memory").or_else(|| held("memory")));
            let balloon =
                given("balloon").or_else(|| held("balloon")).and_then(|text| text.parse::<u64>().ok());
            if balloon.is_some_and(|balloon| balloon > memory) {
                return Err(ApiError::server(
                    "balloon value too large (must be smaller than assigned memory)",
                ));
            }
        }
        Ok(())
    }

    /// Returns the storages that are locked while drives are made.
    pub(super) fn storages(&self) -> Vec<String> {
        self.set
            .iter()
            .filter(|(key, _)| is_slot(key))
            .filter_map(|(_, value)| disks::storage_needed(value.as_deref()?, None))
            .collect()
    }

    /// Returns how long the drives take to make.
    pub(super) fn takes(&self) -> Duration {
        let imports = self.set.iter().filter(|(key, value)| {
            is_slot(key) && value.as_ref().is_some_and(|text| text.contains("import-from="))
        });
        Duration::from_secs(8) * u32::try_from(imports.count()).unwrap_or(1)
    }

    /// Makes the change within a call, which waits for locks first.
    pub(super) fn now(&self, dc: &mut Datacentre, ground: &mut Ground, call: &mut Call) -> Reply {
        call.lock(dc, ground, &Lock::Vm(self.vmid))?;
        for storage in self.storages() {
            if dc.storage.activate(&storage, &self.host).is_ok() {
                let (lock, _) = disks::storage_lock(dc, &self.host, &storage);
                call.lock(dc, ground, &lock)?;
            }
        }
        call.block(ground, "making drives", self.takes())?;
        let busy = hotplug::unplug_that_fails(dc, ground, self.vmid, &self.delete, &self.set);
        if busy {
            call.block(ground, "unplugging", hotplug::UNPLUG_WAIT)?;
        }
        self.apply(dc, ground, &mut Worker::default())?;
        Ok(Answer::null())
    }

    /// Makes the change. What was written before an error stays written, as on the server.
    pub fn apply(
        &self,
        dc: &mut Datacentre,
        ground: &mut Ground,
        worker: &mut Worker,
    ) -> Result<(), ApiError> {
        self.check(load(dc, &self.host, self.vmid)?)?;
        worker.say(self.told.clone());
        let mut set = self.set.clone();
        let mut delete = self.delete.clone();
        let config = &load(dc, &self.host, self.vmid)?.config;
        for key in &self.revert {
            if let Some(value) = config.current.get(key) {
                set.insert(key.clone(), Some(value.clone()));
            } else if config.pending.contains_key(key) {
                delete.push(key.clone());
            }
        }
        if delete.iter().any(|key| key == "vmstate") && config.lock() == Some("suspended") {
            load_mut(dc, &self.host, self.vmid)?.config.current.remove("lock");
        }
        let mut modified: Vec<String> = Vec::new();
        let mut order = boot::order(load(dc, &self.host, self.vmid)?.config.get("boot"));
        for key in &delete {
            if self.delete_one(dc, ground, worker, key, &mut order, &mut modified)? {
                modified.push(key.clone());
            }
        }
        for (key, value) in &set {
            modified.push(key.clone());
            self.set_one(
                dc,
                ground,
                worker,
                key,
                value.as_deref(),
                &delete,
                &set,
                &mut order,
                &mut modified,
            )?;
        }
        let config = &mut load_mut(dc, &self.host, self.vmid)?.config;
        config.clean_pending();
        write(config)?;
        if config.pending.is_empty() && config.deletes.is_empty() {
            return Ok(());
        }
        let errors = if load(dc, &self.host, self.vmid)?.runs() {
            hotplug::apply(dc, ground, worker, &self.caller, &self.host, self.vmid, &modified)?
        } else {
            cold_plug(dc, ground, worker, &self.caller, &self.host, self.vmid)?
        };
        if errors.is_empty() { Ok(()) } else { Err(ApiError::params(errors)) }
    }

    fn subject(&self) -> Subject<'_> {
        Subject { caller: &self.caller, vmid: self.vmid, pool: None }
    }

    /// Deletes an option, or notes that it is to be deleted. Says whether there was one.
    fn delete_one(
        &self,
        dc: &mut Datacentre,
        ground: &mut Ground,
        worker: &mut Worker,
        key: &str,
        order: &mut Vec<String>,
        modified: &mut Vec<String>,
    ) -> Result<bool, ApiError> {
        let (host, vmid) = (self.host.as_str(), self.vmid);
        let config = &mut load_mut(dc, host, vmid)?.config;
        let Some(value) = config.current.get(key).or_else(|| config.pending.get(key)).cloned() else {
            worker.say(format!("cannot delete '{key}' - not set in current configuration!"));
            return Ok(false);
        };
        let was_pending = config.pending.remove(key).is_some();
        if order.iter().any(|device| device == key) {
            order.retain(|device| device != key);
            config.pending.insert("boot".into(), boot::written(order));
            modified.push("boot".into());
        }
        if is_unused(key) {
            let volume = value.split(',').next().unwrap_or_default().to_owned();
            config
                .check_protection(&format!("can't remove unused disk '{volume}'"))
                .map_err(ApiError::server)?;
            dc.check_vm(&self.caller, vmid, None, &["VM.Config.Disk"])?;
            deallocate(dc, ground, &self.caller, host, vmid, key, &volume)?;
            load_mut(dc, host, vmid)?.config.current.remove(key);
        } else if key == "vmstate" {
            config.current.remove(key);
        } else if is_slot(key) {
            config.check_protection(&format!("can't remove drive '{key}'")).map_err(ApiError::server)?;
            if let Some(drive) = Drive::read(key, &value) {
                rights::check_drive(dc, &self.caller, vmid, &drive)?;
                if was_pending {
                    register_unused(dc, ground, host, vmid, &drive)?;
                }
            }
            self.note_deletion(dc, key)?;
        } else if key == "tags" {
            rights::check_tags(dc, &self.caller, vmid, &value, "")?;
            load_mut(dc, host, vmid)?.config.current.remove(key);
        } else {
            self.check_deletion(dc, key, &value)?;
            self.note_deletion(dc, key)?;
        }
        write(&mut load_mut(dc, host, vmid)?.config)?;
        Ok(true)
    }

    fn check_deletion(&self, dc: &Datacentre, key: &str, value: &str) -> Result<(), ApiError> {
        match numbered(key).map(|(name, _)| name) {
            Some("serial") if value != "socket" && !self.caller.is_root() => {
                Err(ApiError::server(format!("only root can delete '{key}' config for real devices")))
            }
            Some("serial") => dc.check_vm(&self.caller, self.vmid, None, &["VM.Config.HWType"]),
            Some("usb" | "hostpci" | "rng" | "virtiofs") => {
                rights::check_device(dc, self.subject(), key, value)
            }
            Some("net") => {
                rights::check_bridges(dc, &self.caller, &Section::from([(key.to_owned(), value.to_owned())]))
            }
            _ => Ok(()),
        }
    }

    fn note_deletion(&self, dc: &mut Datacentre, key: &str) -> Result<(), ApiError> {
        load_mut(dc, &self.host, self.vmid)?.config.deletes.insert(key.to_owned(), self.force);
        Ok(())
    }

    /// Sets an option among the pending ones.
    #[allow(clippy::too_many_arguments)]
    fn set_one(
        &self,
        dc: &mut Datacentre,
        ground: &mut Ground,
        worker: &mut Worker,
        key: &str,
        value: Option<&str>,
        delete: &[String],
        set: &BTreeMap<String, Option<String>>,
        order: &mut Vec<String>,
        modified: &mut Vec<String>,
    ) -> Result<(), ApiError> {
        let (host, vmid) = (self.host.as_str(), self.vmid);
        let Some(value) = value else {
            return Err(ApiError::server(format!("unable to parse value of '{key}' - got undefined value")));
        };
        let config = &load(dc, host, vmid)?.config;
        if config.pending.get(key).is_some_and(|pending| pending == value) {
            return Ok(());
        }
        let old = config.current.get(key).cloned();
        let mut new = value.to_owned();
        match numbered(key).map(|(name, _)| name) {
            _ if is_slot(key) => {
                new = self.set_drive(dc, ground, worker, key, value, old.as_deref(), order, modified)?;
            }
            Some("serial") => {
                let sockets = old.as_deref().is_none_or(|old| old == "socket") && value == "socket";
                if sockets {
                    dc.check_vm(&self.caller, vmid, None, &["VM.Config.HWType"])?;
                } else if !self.caller.is_root() {
                    let text = format!("only root can modify '{key}' config for real devices");
                    return Err(ApiError::server(text));
                }
            }
            Some("usb" | "hostpci" | "rng" | "virtiofs") => {
                for value in old.as_deref().into_iter().chain([value]) {
                    rights::check_device(dc, self.subject(), key, value)?;
                }
            }
            Some("net") => {
                if let Some(old) = old {
                    rights::check_bridges(dc, &self.caller, &Section::from([(key.to_owned(), old)]))?;
                }
            }
            _ => match key {
                "tags" => {
                    rights::check_tags(dc, &self.caller, vmid, old.as_deref().unwrap_or_default(), value)?;
                    new = dc.kept_tags(&split_list(value));
                }
                "machine" => check_machine(&disks::machine(Some(value)))?,
                "ostype" => self.pin_machine(dc, worker, value, set, delete)?,
                "boot" => new = self.checked_order(dc, value, delete, set)?,
                "cipassword" => {
                    let config = &mut load_mut(dc, host, vmid)?.config;
                    config.current.insert(key.to_owned(), encrypted(value, &mut ground.random));
                    return write(config);
                }
                _ => {}
            },
        }
        let config = &mut load_mut(dc, host, vmid)?.config;
        if key == "boot" && !boot::order(Some(&new)).is_empty() && config.current.contains_key("bootdisk") {
            config.deletes.insert("bootdisk".into(), false);
        }
        config.pending.insert(key.to_owned(), new);
        config.deletes.remove(key);
        write(config)
    }

    #[allow(clippy::too_many_arguments)]
    fn set_drive(
        &self,
        dc: &mut Datacentre,
        ground: &mut Ground,
        worker: &mut Worker,
        slot: &str,
        text: &str,
        old: Option<&str>,
        order: &mut Vec<String>,
        modified: &mut Vec<String>,
    ) -> Result<String, ApiError> {
        let (host, vmid) = (self.host.as_str(), self.vmid);
        let new = Drive::read(slot, text).ok_or_else(|| ApiError::server("unable to parse drive options"))?;
        if let Some(old) = old.and_then(|old| Drive::read(slot, old)) {
            rights::check_drive(dc, &self.caller, vmid, &old)?;
            let version = |drive: &Drive| drive.get("version").unwrap_or("v1.2").to_owned();
            if slot == "tpmstate0" && old.file() == new.file() && version(&old) != version(&new) {
                return Err(ApiError::server("cannot change TPM state version after creation"));
            }
        }
        rights::check_drive(dc, &self.caller, vmid, &new)?;
        let config = &load(dc, host, vmid)?.config;
        if let Some(pending) = config.pending.get(slot).and_then(|pending| Drive::read(slot, pending)) {
            register_unused(dc, ground, host, vmid, &pending)?;
        }
        let config = &load(dc, host, vmid)?.config;
        let mut section = config.current.clone();
        section.extend(config.pending.clone());
        let owner = Owner {
            vmid,
            host,
            caller: &self.caller,
            config: &section,
            beside: &Section::new(),
            default_storage: None,
        };
        disks::precheck(dc, &owner, slot, text)?;
        let made = disks::create(dc, ground, owner, slot, text)?;
        worker.log.extend(made.early.into_iter().chain(made.late));
        if !order.is_empty() && new.is_plain_disc() && !order.iter().any(|device| device == slot) {
            order.push(slot.to_owned());
            let config = &mut load_mut(dc, host, vmid)?.config;
            config.pending.insert("boot".into(), boot::written(order));
            modified.push("boot".into());
        }
        Ok(made.text)
    }

    fn pin_machine(
        &self,
        dc: &mut Datacentre,
        worker: &mut Worker,
        kind: &str,
        set: &BTreeMap<String, Option<String>>,
        delete: &[String],
    ) -> Result<(), ApiError> {
        let config = &mut load_mut(dc, &self.host, self.vmid)?.config;
        let said = set.contains_key("machine") || delete.iter().any(|key| key == "machine");
        if said || config.pending.contains_key("machine") {
            return Ok(());
        }
        let mut section = config.current.clone();
        section.insert("ostype".into(), kind.to_owned());
        if let Some(machine) = checked_machine(&section, worker)? {
            config.pending.insert("machine".into(), machine);
        }
        Ok(())
    }

    fn checked_order(
        &self,
        dc: &Datacentre,
        value: &str,
        delete: &[String],
        set: &BTreeMap<String, Option<String>>,
    ) -> Result<String, ApiError> {
        let config = &load(dc, &self.host, self.vmid)?.config;
        let devices = boot::order(Some(value));
        for device in &devices {
            let there = config.current.contains_key(device)
                || config.pending.contains_key(device)
                || set.contains_key(device);
            if !there || delete.contains(device) {
                let text = format!("invalid bootorder: device '{device}' does not exist'");
                return Err(ApiError::server(text));
            }
        }
        Ok(if devices.is_empty() { value.to_owned() } else { boot::written(&devices) })
    }
}

/// Writes what a task's log says first about a change.
fn told(vmid: VmId, params: &Params) -> String {
    let hidden = ["node", "vmid", "digest", "background_delay", "skip_cloud_init", "import-working-storage"];
    let mut words = Vec::new();
    for (name, _) in params.iter().filter(|(name, _)| !hidden.contains(&name.as_str())) {
        let value = match (name.as_str(), params.text(name)) {
            ("cipassword", _) => "<hidden>".into(),
            (_, Some(text)) => text,
            (_, None) => params.list(name).join(","),
        };
        words.push(format!("-{name} {value}"));
    }
    format!("update VM {vmid}: {}", words.join(" "))
}

fn checked_lists(options: &Section, delete: Vec<String>, revert: &[String]) -> Result<Vec<String>, ApiError> {
    for key in revert {
        if !is_option(key) {
            return Err(ApiError::param("revert", format!("unknown option '{key}'")));
        }
        if options.contains_key(key) {
            let text = format!("you can't use '-{key}' and -revert {key}' at the same time");
            return Err(ApiError::param("delete", text));
        }
    }
    let delete: Vec<String> =
        delete.into_iter().map(|key| if key == "cdrom" { "ide2".into() } else { key }).collect();
    for key in &delete {
        if options.contains_key(key) {
            let text = format!("you can't use '-{key}' and -delete {key}' at the same time");
            return Err(ApiError::param("delete", text));
        }
        if revert.contains(key) {
            let text = format!("you can't use '-delete {key}' and -revert {key}' at the same time");
            return Err(ApiError::param("revert", text));
        }
        if !is_option(key) {
            return Err(ApiError::param("delete", format!("unknown option '{key}'")));
        }
    }
    Ok(delete)
}

pub(super) fn write(config: &mut Config) -> Result<(), ApiError> {
    let before = config.clone();
    config.write().map_err(|text| {
        *config = before;
        // What could not be written is not in the file.
        config.pending.retain(|key, _| !text.contains(&format!("'{key}'")));
        ApiError::server(text)
    })
}

/// Stands for the server's SHA-256 crypt: the lab keeps no password that anybody could use.
fn encrypted(password: &str, random: &mut crate::random::Random) -> String {
    if password.starts_with("$5$") || password.starts_with("$6$") || password.starts_with("$2") {
        return password.to_owned();
    }
    let salt = format!("{:08x}", random.bits() & 0xffff_ffff);
    let sum = sha2::Sha256::digest(format!("{salt}{password}").as_bytes());
    let hex: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("$5${salt}${}", &hex[..43])
}
