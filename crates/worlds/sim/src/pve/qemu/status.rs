//! Lists of VMs, and what they are doing.

// Handlers share one signature, whether they can fail or not.
#![allow(clippy::unnecessary_wraps)]

use ichor_model::VmId;
use serde_json::{Map, Value, json};

use super::{Vm, boot, config::Section, load};
use crate::{
    ground::Ground,
    pve::{
        Call, Datacentre, Params, Reply,
        drive::numbered,
        qemu::{
            network::is_net,
            property::{Properties, Shape},
        },
    },
};

/// The machine that QEMU shows for an unversioned type (the recordings' stand-in).
const USUAL_MACHINE: &str = "pc-q35-10.0+pve0";

/// Answers `GET /nodes/{node}/qemu`.
pub fn list(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let host = params.host();
    let full = params.flag("full");
    let rows: Vec<Value> = dc
        .vms
        .iter()
        .filter(|(vmid, vm)| vm.host == host && dc.may(&call.caller, &format!("/vms/{vmid}"), &["VM.Audit"]))
        .map(|(vmid, vm)| Value::Object(of(dc, ground, *vmid, vm, full)))
        .collect();
    Ok(Value::Array(rows).into())
}

/// Answers `GET .../status/current`.
pub fn current(dc: &mut Datacentre, ground: &mut Ground, _call: &mut Call, params: &Params) -> Reply {
    let vmid = params.path_vmid();
    let vm = load(dc, &params.host(), vmid)?;
    let mut row = of(dc, ground, vmid, vm, true);
    row.insert("ha".into(), dc.ha_status(vmid));
    if let Some(vga) = vm.config.get("vga") {
        let vga = Properties::read(Shape::plain("type"), vga);
        if vga.get("type").is_some_and(|kind| kind.starts_with("virtio") || kind.starts_with("qxl")) {
            row.insert("spice".into(), 1.into());
        }
        row.insert("clipboard".into(), vga.get("clipboard").map_or(Value::Null, Value::from));
    }
    if super::agent::is_enabled(&vm.config) {
        row.insert("agent".into(), 1.into());
    }
    Ok(Value::Object(row).into())
}

/// Answers `GET .../status`.
pub fn index(dc: &mut Datacentre, _ground: &mut Ground, _call: &mut Call, params: &Params) -> Reply {
    load(dc, &params.host(), params.path_vmid())?;
    let names = ["current", "start", "stop", "reset", "shutdown", "suspend", "reboot"];
    Ok(Value::Array(names.iter().map(|name| json!({ "subdir": name })).collect()).into())
}

/// Answers `GET .../{vmid}`.
pub fn vm_index(_dc: &mut Datacentre, _ground: &mut Ground, _call: &mut Call, _params: &Params) -> Reply {
    let names = [
        "config",
        "cloudinit",
        "pending",
        "status",
        "unlink",
        "vncproxy",
        "termproxy",
        "migrate",
        "resize",
        "move",
        "rrd",
        "rrddata",
        "monitor",
        "agent",
        "snapshot",
        "spiceproxy",
        "sendkey",
        "firewall",
        "mtunnel",
        "remote_migrate",
    ];
    Ok(Value::Array(names.iter().map(|name| json!({ "subdir": name })).collect()).into())
}

/// Returns how a VM stands, as lists show it, or in full.
pub fn of(dc: &Datacentre, ground: &Ground, vmid: VmId, vm: &Vm, full: bool) -> Map<String, Value> {
    let config = &vm.config;
    let host_cpus = dc.hosts.get(&vm.host).map_or(1, |host| u64::from(host.cpus));
    let mut row = Map::new();
    let mut put = |key: &str, value: Value| {
        row.insert(key.into(), value);
    };
    put("vmid", vmid.number().into());
    put("status", if vm.runs() { "running" } else { "stopped" }.into());
    for key in ["disk", "uptime", "cpu", "mem", "memhost", "netin", "netout"] {
        put(key, 0.into());
    }
    put("maxdisk", boot::boot_disk_size(&config.current).into());
    let cores = config.number("sockets").unwrap_or(1).saturating_mul(config.number("cores").unwrap_or(1));
    let cpus = config.number("vcpus").filter(|count| *count > 0).unwrap_or(cores.min(host_cpus));
    put("cpus", cpus.into());
    put("name", config.get("name").map_or_else(|| format!("VM {vmid}"), str::to_owned).into());
    put("maxmem", config.memory_mib().saturating_mul(1 << 20).into());
    if let Some(balloon) = config.number("balloon").filter(|balloon| *balloon > 0) {
        put("balloon_min", balloon.saturating_mul(1 << 20).into());
        put("shares", config.number("shares").unwrap_or(1000).into());
    }
    if config.is_template() {
        put("template", 1.into());
    }
    if has_serial(&config.current) {
        put("serial", 1.into());
    }
    for key in ["lock", "tags"] {
        if let Some(value) = config.get(key) {
            put(key, value.into());
        }
    }
    if let Some(run) = &vm.run {
        put("pid", run.pid.into());
        put("uptime", ground.now.since(run.since).as_secs().into());
        for kind in ["cpu", "io", "memory"] {
            for share in ["some", "full"] {
                put(&format!("pressure{kind}{share}"), 0.into());
            }
        }
    }
    if full {
        row.extend(in_full(dc, vmid, vm));
    }
    row
}

fn has_serial(config: &Section) -> bool {
    config.keys().any(|key| numbered(key).is_some_and(|(name, number)| name == "serial" && number < 4))
}

fn in_full(dc: &Datacentre, vmid: VmId, vm: &Vm) -> Map<String, Value> {
    let mut row = Map::new();
    let Some(run) = &vm.run else {
        row.insert("qmpstatus".into(), "stopped".into());
        return row;
    };
    let state = match (run.paused, &run.frozen) {
        (_, Some(_)) => "prelaunch",
        (true, None) => "paused",
        (false, None) => "running",
    };
    row.insert("qmpstatus".into(), state.into());
    let nics: Map<String, Value> = run
        .devices
        .keys()
        .filter(|key| is_net(key))
        .filter_map(|key| {
            Some((format!("tap{vmid}i{}", key.strip_prefix("net")?), json!({ "netin": 0, "netout": 0 })))
        })
        .collect();
    if !nics.is_empty() {
        row.insert("nics".into(), nics.into());
    }
    row.insert("diskread".into(), 0.into());
    row.insert("diskwrite".into(), 0.into());
    let drives: Map<String, Value> = super::config::drives(&run.devices)
        .into_iter()
        .filter(|drive| !["efidisk0", "tpmstate0"].contains(&drive.slot.as_str()))
        .map(|drive| (drive.slot, block_statistics()))
        .collect();
    row.insert("blockstat".into(), drives.into());
    let machine = super::disks::machine(run.devices.get("machine").map(String::as_str));
    let machine = machine.get("type").filter(|kind| kind.contains('.')).unwrap_or(USUAL_MACHINE).to_owned();
    row.insert("running-machine".into(), machine.into());
    let qemu = dc.hosts.get(&vm.host).map_or("10.0.2".into(), |host| host.qemu.clone());
    row.insert("running-qemu".into(), qemu.into());
    row.insert(
        "proxmox-support".into(),
        json!({
            "backup-fleecing": true,
            "backup-max-workers": true,
            "pbs-dirty-bitmap": true,
            "pbs-dirty-bitmap-migration": true,
            "pbs-dirty-bitmap-savevm": true,
            "pbs-library-version": "1.5.1",
            "pbs-masterkey": true,
            "query-bitmap-info": true,
        }),
    );
    row
}

fn block_statistics() -> Value {
    let mut row = Map::new();
    let kinds = ["rd", "wr", "unmap", "zone_append"];
    for kind in kinds {
        for what in ["bytes", "operations", "merged", "total_time_ns"] {
            row.insert(format!("{kind}_{what}"), 0.into());
        }
    }
    for kind in ["rd", "wr", "unmap", "zone_append", "flush"] {
        row.insert(format!("failed_{kind}_operations"), 0.into());
        row.insert(format!("invalid_{kind}_operations"), 0.into());
    }
    for what in ["flush_operations", "flush_total_time_ns", "wr_highest_offset"] {
        row.insert(what.into(), 0.into());
    }
    row.insert("account_failed".into(), true.into());
    row.insert("account_invalid".into(), true.into());
    row.insert("timed_stats".into(), Value::Array(Vec::new()));
    row.into()
}
