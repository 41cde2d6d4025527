//! The cloud-init drive of a VM: what is pending for it, and what it holds.

use serde_json::{Value, json};

use crate::{
    ground::Ground,
    pve::{
        Answer, ApiError, Call, Datacentre, Lock, Params, Reply, Worker,
        params::split_list,
        qemu::{cloudinit, config::shown_value, hardware, load},
    },
};

/// Answers `GET .../cloudinit`: what the drive was made from, and what has changed since.
pub fn cloud_init_pending(
    dc: &mut Datacentre,
    _ground: &mut Ground,
    _call: &mut Call,
    params: &Params,
) -> Reply {
    let vm = load(dc, &params.host(), params.path_vmid())?;
    let (config, made_from) = (&vm.config.current, &vm.config.cloud_init);
    let shown = |key: &str, value: &str| -> Value {
        if key == "cipassword" { "**********".into() } else { shown_value(key, value) }
    };
    let added = made_from.get("added").map(|list| split_list(list)).unwrap_or_default();
    let mut rows: Vec<Value> = added
        .iter()
        .map(|key| json!({ "key": key, "pending": config.get(key).map(|value| shown(key, value)) }))
        .collect();
    for key in CLOUD_INIT_KEYS.iter().filter(|key| !added.iter().any(|other| other == **key)) {
        let Some(value) = config.get(*key).filter(|value| !value.is_empty() && *value != "0") else {
            continue;
        };
        rows.push(match made_from.get(*key) {
            Some(old) => json!({ "key": key, "value": shown(key, old), "pending": shown(key, value) }),
            None => json!({ "key": key, "value": shown(key, value) }),
        });
    }
    for key in made_from.keys().filter(|key| *key != "added" && !config.contains_key(*key)) {
        rows.push(json!({ "key": key, "delete": 1 }));
    }
    Ok(Value::Array(rows).into())
}

const CLOUD_INIT_KEYS: [&str; 8] =
    ["cicustom", "cipassword", "citype", "ciuser", "ciupgrade", "nameserver", "searchdomain", "sshkeys"];

/// Answers `PUT .../cloudinit`: makes the drive anew.
pub fn cloud_init_update(
    dc: &mut Datacentre,
    ground: &mut Ground,
    call: &mut Call,
    params: &Params,
) -> Reply {
    let (vmid, host) = (params.path_vmid(), params.host());
    call.lock(dc, ground, &Lock::Vm(vmid))?;
    load(dc, &host, vmid)?.config.check_lock().map_err(ApiError::server)?;
    hardware::regenerate_cloud_init(dc, &host, vmid, &mut Worker::default())?;
    Ok(Answer::null())
}

/// Answers `GET .../cloudinit/dump`.
pub fn cloud_init_dump(dc: &mut Datacentre, _ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let vmid = params.path_vmid();
    let vm = load(dc, &params.host(), vmid)?;
    let config = &vm.config.current;
    let mask = !dc.may(&call.caller, &format!("/vms/{vmid}"), &["VM.Config.Cloudinit"]);
    let resolver = dc.hosts.get(&vm.host).map(|host| host.dns.clone()).unwrap_or_default();
    Ok(match params.str("type") {
        Some("user") => cloudinit::user_data(config, vmid.number(), mask),
        Some("network") => cloudinit::network_config(config, &resolver),
        _ => cloudinit::files(config, vmid.number(), &resolver, cloudinit::Custom::default()).meta,
    }
    .into())
}
