//! The guest agent.

// Handlers share one signature, whether they can fail or not.
#![allow(clippy::unnecessary_wraps)]

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use ichor_model::VmId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    config::Config,
    load,
    property::{Properties, Shape},
};
use crate::{
    ground::{AgentInterface, AgentView, Ground},
    pve::{ApiError, Call, Datacentre, Params, Refusal, Reply},
    signal::Signal,
};

/// How long a probe waits for an agent that does not answer.
const PROBE: Duration = Duration::from_secs(3);

/// An agent in a VM without a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandIn {
    /// Whether it permits reading only, as administrators set it up.
    pub reads_only: bool,
    /// What it says.
    pub view: AgentView,
}

impl StandIn {
    /// An agent that permits reading only, in a guest that has no network.
    pub fn reader(hostname: &str) -> Self {
        let loopback = AgentInterface {
            name: "lo".into(),
            mac: Some("00:00:00:00:00:00".into()),
            addresses: vec![(Ipv4Addr::LOCALHOST.into(), 8), (Ipv6Addr::LOCALHOST.into(), 128)],
        };
        let view = AgentView {
            hostname: hostname.to_owned(),
            version: "v1.11.2".into(),
            kernel: "6.12.48-talos".into(),
            interfaces: vec![loopback],
        };
        Self { reads_only: true, view }
    }
}

/// Commands of the agent: whether a reader permits them, and whether they answer.
const COMMANDS: [(&str, bool, bool); 42] = [
    ("get-cpustats", false, true),
    ("get-diskstats", false, true),
    ("ssh-remove-authorized-keys", false, true),
    ("ssh-add-authorized-keys", false, true),
    ("ssh-get-authorized-keys", false, true),
    ("get-devices", false, true),
    ("get-osinfo", true, true),
    ("get-timezone", true, true),
    ("get-users", false, true),
    ("get-host-name", true, true),
    ("exec", false, true),
    ("exec-status", true, true),
    ("get-memory-block-info", false, true),
    ("set-memory-blocks", false, true),
    ("get-memory-blocks", false, true),
    ("set-user-password", false, true),
    ("get-fsinfo", false, true),
    ("get-disks", false, true),
    ("set-vcpus", false, true),
    ("get-vcpus", false, true),
    ("network-get-interfaces", true, true),
    ("suspend-hybrid", false, false),
    ("suspend-ram", false, false),
    ("suspend-disk", false, false),
    ("fstrim", false, true),
    ("fsfreeze-thaw", true, true),
    ("fsfreeze-freeze-list", true, true),
    ("fsfreeze-freeze", false, true),
    ("fsfreeze-status", true, true),
    ("file-flush", true, true),
    ("file-seek", true, true),
    ("file-write", false, true),
    ("file-read", true, true),
    ("file-close", true, true),
    ("file-open", false, true),
    ("shutdown", false, false),
    ("info", true, true),
    ("set-time", false, true),
    ("get-time", true, true),
    ("ping", true, true),
    ("sync", true, true),
    ("sync-delimited", true, true),
];

/// Returns whether the agent's port is in the config and switched on.
pub fn is_enabled(config: &Config) -> bool {
    let shape = Shape { main: "enabled", aliases: &[], flags: &["enabled"] };
    config.get("agent").is_some_and(|text| Properties::read(shape, text).flag("enabled"))
}

/// Returns whether an agent answers in a running VM. The port is there only if the VM was started with it.
pub fn answers(dc: &Datacentre, ground: &Ground, vmid: VmId) -> bool {
    let Some(run) = dc.vms.get(&vmid).and_then(|vm| vm.run.as_ref()) else { return false };
    has_port(run)
        && (run.agent.is_some() || ground.guests.get(&vmid).is_some_and(|guest| guest.agent.is_some()))
}

fn has_port(run: &super::Run) -> bool {
    let config = Config { current: run.started.clone(), ..Config::default() };
    is_enabled(&config)
}

/// Refuses unless an agent answers; waits for one that does not.
fn available(
    dc: &Datacentre,
    ground: &Ground,
    call: &mut Call,
    host: &str,
    vmid: VmId,
) -> Result<(), Refusal> {
    let vm = load(dc, host, vmid)?;
    if vm.config.get("agent").is_none() {
        return Err(ApiError::server("No QEMU guest agent configured").into());
    }
    let Some(run) = &vm.run else {
        return Err(ApiError::server(format!("VM {vmid} is not running")).into());
    };
    if answers(dc, ground, vmid) {
        return Ok(());
    }
    if has_port(run) {
        call.block(ground, "agent", PROBE)?;
    }
    Err(ApiError::server("QEMU guest agent is not running").into())
}

/// Answers `GET .../agent`.
pub fn index(_dc: &mut Datacentre, _ground: &mut Ground, _call: &mut Call, _params: &Params) -> Reply {
    let mut names = vec!["exec", "exec-status", "file-read", "file-write", "set-user-password"];
    names.extend(PLAIN.iter().map(|(name, _)| *name));
    names.sort_unstable();
    Ok(Value::Array(names.iter().map(|name| json!({ "name": name })).collect()).into())
}

/// Commands without parameters, and whether they are called by `POST`.
pub const PLAIN: [(&str, bool); 20] = [
    ("ping", true),
    ("get-time", false),
    ("info", false),
    ("fsfreeze-status", true),
    ("fsfreeze-freeze", true),
    ("fsfreeze-thaw", true),
    ("fstrim", true),
    ("network-get-interfaces", false),
    ("get-vcpus", false),
    ("get-fsinfo", false),
    ("get-memory-blocks", false),
    ("get-memory-block-info", false),
    ("suspend-hybrid", true),
    ("suspend-ram", true),
    ("suspend-disk", true),
    ("shutdown", true),
    ("get-host-name", false),
    ("get-osinfo", false),
    ("get-users", false),
    ("get-timezone", false),
];

fn plain(dc: &Datacentre, ground: &mut Ground, call: &mut Call, params: &Params, command: &str) -> Reply {
    let (vmid, host) = (params.path_vmid(), params.host());
    available(dc, ground, call, &host, vmid)?;
    Ok(json!({ "result": ask(dc, ground, vmid, command) }).into())
}

/// Answers `POST .../agent`: the old way to name a command.
pub fn command(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let command = params.text_or_empty("command");
    plain(dc, ground, call, params, &command)
}

macro_rules! commands {
    ($($name:ident => $command:literal),* $(,)?) => {
        $(
            #[doc = concat!("Answers the command `", $command, "`.")]
            pub fn $name(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
                plain(dc, ground, call, params, $command)
            }
        )*
    };
}

commands! {
    ping => "ping",
    get_time => "get-time",
    info => "info",
    fsfreeze_status => "fsfreeze-status",
    fsfreeze_freeze => "fsfreeze-freeze",
    fsfreeze_thaw => "fsfreeze-thaw",
    fstrim => "fstrim",
    network_get_interfaces => "network-get-interfaces",
    get_vcpus => "get-vcpus",
    get_fsinfo => "get-fsinfo",
    get_memory_blocks => "get-memory-blocks",
    get_memory_block_info => "get-memory-block-info",
    suspend_hybrid => "suspend-hybrid",
    suspend_ram => "suspend-ram",
    suspend_disk => "suspend-disk",
    shutdown => "shutdown",
    get_host_name => "get-host-name",
    get_osinfo => "get-osinfo",
    get_users => "get-users",
    get_timezone => "get-timezone",
}

/// Answers `POST .../agent/exec`.
pub fn exec(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let command = params.list("command");
    if command.is_empty() && !params.has("input-data") {
        return Err(ApiError::server("command or input-data (or both) required").into());
    }
    with_file(dc, ground, call, params, "exec", command.first().map_or("", String::as_str))
}

/// Answers `GET .../agent/exec-status`.
pub fn exec_status(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let (vmid, host) = (params.path_vmid(), params.host());
    available(dc, ground, call, &host, vmid)?;
    // No process of the agent is ever there.
    Err(ApiError::server("Agent error: Invalid parameter 'pid'").into())
}

/// Answers `GET .../agent/file-read`.
pub fn file_read(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    with_file(dc, ground, call, params, "file-open", &params.text_or_empty("file"))
}

/// Answers `POST .../agent/file-write`.
pub fn file_write(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    with_file(dc, ground, call, params, "file-open", &params.text_or_empty("file"))
}

/// Answers `POST .../agent/set-user-password`.
pub fn set_user_password(
    dc: &mut Datacentre,
    ground: &mut Ground,
    call: &mut Call,
    params: &Params,
) -> Reply {
    with_file(dc, ground, call, params, "set-user-password", "passwd")
}

/// Commands that need a program or file, of which the lab's guests have none.
fn with_file(
    dc: &Datacentre,
    ground: &Ground,
    call: &mut Call,
    params: &Params,
    command: &str,
    file: &str,
) -> Reply {
    let (vmid, host) = (params.path_vmid(), params.host());
    available(dc, ground, call, &host, vmid)?;
    let text = if stand_in(dc, vmid).is_some_and(|agent| agent.reads_only) {
        format!("Agent error: Command guest-{command} has been disabled")
    } else if command == "file-open" {
        format!("Agent error: failed to open file '{file}' (mode: 'r'): No such file or directory")
    } else {
        format!(
            "Agent error: Guest agent command failed, error was 'Failed to execute child process “{file}” (No such \
             file or directory)'"
        )
    };
    Err(ApiError::server(text).into())
}

/// Returns the agent of a guest that is no machine.
fn stand_in(dc: &Datacentre, vmid: VmId) -> Option<&StandIn> {
    dc.vms.get(&vmid)?.run.as_ref()?.agent.as_ref()
}

/// Asks the agent that is there.
fn ask(dc: &Datacentre, ground: &mut Ground, vmid: VmId, command: &str) -> Value {
    let stand_in = stand_in(dc, vmid);
    let reads_only = stand_in.is_some_and(|agent| agent.reads_only);
    if reads_only && let Some((_, false, _)) = COMMANDS.iter().find(|(name, _, _)| *name == command) {
        let text = format!("Command guest-{command} has been disabled");
        return json!({ "error": { "class": "CommandNotFound", "desc": text } });
    }
    let view = match stand_in {
        Some(agent) => agent.view.clone(),
        None => ground.guests.get(&vmid).and_then(|guest| guest.agent.clone()).unwrap_or_default(),
    };
    match command {
        "network-get-interfaces" => Value::Array(view.interfaces.iter().map(interface).collect()),
        "get-host-name" => json!({ "host-name": view.hostname }),
        "get-osinfo" => os_info(&view),
        "get-timezone" => json!({ "zone": "UTC", "offset": 0 }),
        "get-time" => (ground.now.millis().saturating_mul(1_000_000)).into(),
        "info" => agent_info(reads_only),
        "get-fsinfo" | "get-users" | "get-memory-blocks" | "get-vcpus" => json!([]),
        "get-memory-block-info" => json!({ "size": 134_217_728 }),
        "fsfreeze-status" => "thawed".into(),
        "fsfreeze-freeze" | "fsfreeze-thaw" => 0.into(),
        "fstrim" => json!({ "paths": [] }),
        "shutdown" => {
            ground.send(Signal::PowerButton(vmid));
            json!({})
        }
        _ => json!({}),
    }
}

fn os_info(view: &AgentView) -> Value {
    json!({
        "id": "talos",
        "name": "Talos",
        "pretty-name": format!("Talos ({})", view.version),
        "version-id": view.version,
        "machine": "x86_64",
        "kernel-release": view.kernel,
        "kernel-version": "#1 SMP PREEMPT_DYNAMIC",
    })
}

fn interface(interface: &AgentInterface) -> Value {
    let mut row = Map::new();
    row.insert("name".into(), interface.name.clone().into());
    if let Some(mac) = &interface.mac {
        row.insert("hardware-address".into(), mac.clone().into());
    }
    if !interface.addresses.is_empty() {
        let addresses = interface.addresses.iter().map(|(address, prefix)| {
            let kind = if address.is_ipv4() { "ipv4" } else { "ipv6" };
            json!({ "ip-address": address.to_string(), "ip-address-type": kind, "prefix": prefix })
        });
        row.insert("ip-addresses".into(), Value::Array(addresses.collect()));
    }
    let counters = ["bytes", "packets", "errs", "dropped"];
    let statistics: Map<String, Value> = ["rx", "tx"]
        .iter()
        .flat_map(|way| counters.iter().map(move |what| (format!("{way}-{what}"), 0.into())))
        .collect();
    row.insert("statistics".into(), statistics.into());
    row.into()
}

fn agent_info(reads_only: bool) -> Value {
    let commands: Vec<Value> = COMMANDS
        .iter()
        .map(|(name, reading, answers)| {
            let enabled = *reading || !reads_only;
            json!({ "name": format!("guest-{name}"), "enabled": enabled, "success-response": answers })
        })
        .collect();
    json!({ "version": "7.2.22", "supported_commands": commands })
}
