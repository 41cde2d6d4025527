//! Changes that wait for the next start.

use std::collections::BTreeMap;

use ichor_model::VmId;
use serde_json::Value;

use super::{
    change::write,
    volumes::{delete_drive, register_unused},
};
use crate::{
    ground::Ground,
    pve::{
        ApiError, Call, Caller, Datacentre, Params, Reply, Worker,
        drive::{Drive, is_slot},
        qemu::{hardware, load, load_mut},
    },
};

/// Answers `GET .../pending`.
pub fn pending(dc: &mut Datacentre, _ground: &mut Ground, _call: &mut Call, params: &Params) -> Reply {
    let vm = load(dc, &params.host(), params.path_vmid())?;
    Ok(Value::Array(vm.config.shown_pending()).into())
}

/// Applies what is pending before a start.
pub fn apply_pending(
    dc: &mut Datacentre,
    ground: &mut Ground,
    worker: &mut Worker,
    caller: &Caller,
    host: &str,
    vmid: VmId,
) -> Result<(), ApiError> {
    let config = &load(dc, host, vmid)?.config;
    if !config.pending.is_empty() || !config.deletes.is_empty() {
        cold_plug(dc, ground, worker, caller, host, vmid)?;
    }
    Ok(())
}

/// Applies what is pending to a VM that is off. Returns what went wrong, by option.
pub(super) fn cold_plug(
    dc: &mut Datacentre,
    ground: &mut Ground,
    worker: &mut Worker,
    caller: &Caller,
    host: &str,
    vmid: VmId,
) -> Result<BTreeMap<String, String>, ApiError> {
    let mut errors = BTreeMap::new();
    let failed =
        |key: &str, error: &ApiError| format!("unable to apply pending change {key} : {}", error.as_text());
    for (key, force) in load(dc, host, vmid)?.config.deletes.clone() {
        if is_slot(&key)
            && let Err(error) = delete_drive(dc, ground, caller, host, vmid, &key, force)
        {
            let text = failed(&key, &error);
            worker.log.extend(text.lines().map(str::to_owned));
            errors.insert(key, text);
            continue;
        }
        let config = &mut load_mut(dc, host, vmid)?.config;
        config.deletes.remove(&key);
        config.current.remove(&key);
    }
    load_mut(dc, host, vmid)?.config.clean_pending();
    let mut cloud_init = false;
    for (key, value) in load(dc, host, vmid)?.config.pending.clone() {
        let old = load(dc, host, vmid)?.config.drive(&key);
        if let Some(old) = old.filter(|_| is_slot(&key)) {
            replace_drive(dc, ground, host, vmid, &old, &value)?;
        }
        cloud_init |= is_slot(&key) && Drive::read(&key, &value).is_some_and(|drive| drive.is_cloud_init());
        let config = &mut load_mut(dc, host, vmid)?.config;
        config.pending.remove(&key);
        config.current.insert(key, value);
    }
    write(&mut load_mut(dc, host, vmid)?.config)?;
    if cloud_init {
        hardware::regenerate_cloud_init(dc, host, vmid, worker)?;
    }
    Ok(errors)
}

/// Notes the volume of a drive that is replaced; one that stays is noted too and forgotten when the config is
/// written.
fn replace_drive(
    dc: &mut Datacentre,
    ground: &mut Ground,
    host: &str,
    vmid: VmId,
    old: &Drive,
    new: &str,
) -> Result<(), ApiError> {
    let same = Drive::read(&old.slot, new).is_some_and(|new| new.file() == old.file());
    if same && old.is_cloud_init() {
        return Ok(());
    }
    register_unused(dc, ground, host, vmid, old)
}
