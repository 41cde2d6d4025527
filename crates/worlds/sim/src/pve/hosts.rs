//! Hosts.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::{
    clock::Time,
    ground::Ground,
    pve::{
        Answer, ApiError, Call, Caller, Datacentre, Params, Reply, Route, Work, cluster::REPOID, formats,
        options::digest, tasks,
    },
};

/// A host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Its address.
    pub address: String,
    /// Its number in the cluster.
    pub id: u32,
    /// Whether it is a member of the cluster that others see.
    pub online: bool,
    /// Whether its API can be reached.
    pub reachable: bool,
    /// Threads of its processors.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// The root file system in bytes.
    pub root_size: u64,
    /// Since when it runs.
    pub booted: Time,
    /// How long it ran before the lab began.
    pub ran_before: Duration,
    /// The daemon behind the front proxy.
    pub daemon: Daemon,
    /// Its network interfaces.
    pub interfaces: Vec<Interface>,
    /// The greatest QEMU version, such as `10.0.2`.
    pub qemu: String,
    /// What its resolver is set to: `search`, `dns1` and so on.
    pub dns: BTreeMap<String, String>,
}

/// A network interface of a host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its kind: `bridge`, `eth`, `bond`, `vlan`.
    pub kind: String,
    /// Other settings in the words of the API.
    pub facts: serde_json::Map<String, serde_json::Value>,
}

/// How the daemon behind the front proxy behaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Daemon {
    /// It answers.
    #[default]
    Runs,
    /// Nobody listens.
    Stopped,
    /// It accepts the connection and resets it.
    Resets,
    /// It dies in the middle of its answer.
    DiesInBody,
    /// It closes the connection without an answer.
    Closes,
    /// It accepts the request and says nothing.
    Silent,
}

impl Host {
    /// Returns how long the host has been running.
    pub fn uptime(&self, now: Time) -> Duration {
        self.ran_before + now.since(self.booted)
    }

    /// Returns how much of the root file system is taken, in bytes.
    pub const fn root_used(&self) -> u64 {
        self.root_size / 7
    }

    /// Returns whether the host's API answers what others forward to it.
    pub const fn answers(&self) -> bool {
        self.online && self.reachable
    }

    /// Returns what others say who forward to it in vain.
    pub const fn silence(&self) -> &'static str {
        if self.reachable { "No route to host" } else { "Connection refused" }
    }
}

impl Datacentre {
    /// Returns how many bytes an upload may have: it is spooled on the root file system of the host that is called.
    pub fn spool_room(&self) -> u64 {
        self.hosts.get(&self.front).map_or(u64::MAX, |host| host.root_size - host.root_used())
    }
}

/// The endpoints below `/nodes` that are about hosts.
pub fn routes() -> Vec<Route> {
    vec![
        Route::get("/nodes", list),
        Route::get("/nodes/{node}/status", status),
        Route::post("/nodes/{node}/status", |_, _, _, _| Ok(Answer::null())),
        Route::get("/nodes/{node}/network", network),
        Route::get("/nodes/{node}/network/{iface}", interface),
        Route::put("/nodes/{node}/network", |dc, ground, call, params| {
            let (host, user) = (params.host(), call.caller.id.clone());
            let work = Work::Nothing(Duration::from_secs(3));
            Ok(tasks::start(dc, ground, &host, "srvreload", "networking", &user, work).into())
        }),
        Route::get("/nodes/{node}/time", time),
        Route::get("/nodes/{node}/dns", dns),
        Route::get("/nodes/{node}/config", |_, _, _, _| Ok(json!({}).into())),
        Route::get("/nodes/{node}/hosts", hosts_file),
        Route::get("/nodes/{node}/subscription", subscription),
        Route::get("/nodes/{node}/capabilities", |_, _, _, _| Ok(json!([{ "name": "qemu" }]).into())),
        Route::get("/nodes/{node}/capabilities/qemu", |_, _, _, _| {
            let names = ["cpu", "cpu-flags", "machines", "migration"];
            Ok(names.iter().map(|name| json!({ "name": name })).collect::<Vec<Value>>().into())
        }),
        Route::get("/nodes/{node}/capabilities/qemu/cpu", cpu_models),
        Route::get("/nodes/{node}/capabilities/qemu/machines", machines),
    ]
}

/// Returns the figures of a host that the status daemon tells.
pub fn figures(dc: &Datacentre, ground: &Ground, name: &str) -> Map<String, Value> {
    let mut figures = Map::new();
    let Some(host) = dc.hosts.get(name) else { return figures };
    figures.insert("cpu".into(), 0.into());
    figures.insert("maxcpu".into(), host.cpus.into());
    figures.insert("mem".into(), used_memory(dc, name).into());
    figures.insert("maxmem".into(), host.memory.into());
    figures.insert("disk".into(), host.root_used().into());
    figures.insert("maxdisk".into(), host.root_size.into());
    figures.insert("uptime".into(), host.uptime(ground.now).as_secs().into());
    figures
}

/// Memory that the host itself and its running VMs take.
fn used_memory(dc: &Datacentre, name: &str) -> u64 {
    let Some(host) = dc.hosts.get(name) else { return 0 };
    let vms = dc.vms.values().filter(|vm| vm.host == name && vm.runs());
    let guests: u64 = vms.map(|vm| memory_of(vm).saturating_mul(1 << 20)).sum();
    (host.memory / 20 + guests).min(host.memory)
}

fn memory_of(vm: &crate::pve::qemu::Vm) -> u64 {
    let text = vm.config.get("memory").unwrap_or("512");
    text.trim_start_matches("current=").split(',').next().and_then(|text| text.parse().ok()).unwrap_or(512)
}

/// Returns a host as lists show it; figures only for those who may audit it.
pub fn row(dc: &Datacentre, caller: &Caller, name: &str, resource: bool) -> Value {
    let mut row = json!({ "id": format!("node/{name}"), "type": "node", "node": name });
    let online = dc.hosts.get(name).is_some_and(|host| host.online);
    row["status"] = if online { "online" } else { "offline" }.into();
    if !online {
        return row;
    }
    row["level"] = "".into();
    if resource && dc.release.at_least(8, 0) {
        row["cgroup-mode"] = 2.into();
    }
    if dc.may(caller, &format!("/nodes/{name}"), &["Sys.Audit"])
        && let Some(said) = dc.broadcast.hosts.get(name)
    {
        for (key, value) in said {
            row[key] = value.clone();
        }
    }
    row
}

/// Returns the fingerprint of a host's certificate: made up from its name, as the core has no certificates.
fn fingerprint(name: &str) -> String {
    let bytes = Sha256::digest(format!("certificate of {name}"));
    bytes.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
}

fn list(dc: &mut Datacentre, _: &mut Ground, call: &mut Call, _: &Params) -> Reply {
    let rows = dc.hosts.iter().map(|(name, host)| {
        let mut row = row(dc, &call.caller, name, false);
        row["ssl_fingerprint"] = if host.online { fingerprint(name).into() } else { Value::Null };
        row
    });
    Ok(rows.collect::<Vec<_>>().into())
}

/// The kernel that the lab's hosts say they run.
const KERNEL: &str = "6.17.2-1-pve";

/// Flags of the lab's processors.
const FLAGS: &str = "fpu vme de pse tsc msr pae mce cx8 apic sep mtrr pge mca cmov pat pse36 clflush mmx fxsr sse sse2 \
    ht syscall nx pdpe1gb rdtscp lm constant_tsc pni pclmulqdq ssse3 fma cx16 sse4_1 sse4_2 x2apic movbe popcnt aes \
    xsave avx f16c rdrand hypervisor lahf_lm";

fn status(dc: &mut Datacentre, ground: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let name = params.host();
    let Some(host) = dc.hosts.get(&name) else { return Ok(Value::Null.into()) };
    let used = used_memory(dc, &name);
    let free = host.memory - used;
    let root_used = host.root_used();
    let build = format!("#1 SMP PREEMPT_DYNAMIC PMX {}", KERNEL.trim_end_matches("-pve"));
    let mut memory = json!({ "total": host.memory, "used": used, "free": free });
    if dc.release.at_least(9, 0) {
        memory["available"] = free.into();
    }
    let mut answer = json!({
        "cpu": 0,
        "idle": 0,
        "wait": 0,
        "loadavg": ["0.10", "0.10", "0.10"],
        "uptime": host.uptime(ground.now).as_secs(),
        "cpuinfo": {
            "cpus": host.cpus,
            "cores": host.cpus,
            "sockets": 1,
            "model": "generic x86-64 CPU",
            "vendor": "GenuineIntel",
            "family": "6",
            "mhz": "2600.000",
            "user_hz": 100,
            "hvm": "",
            "flags": FLAGS,
        },
        "memory": memory,
        "swap": { "total": 0, "used": 0, "free": 0 },
        "ksm": { "shared": 0 },
        "rootfs": {
            "total": host.root_size,
            "used": root_used,
            "free": host.root_size - root_used,
            "avail": host.root_size - root_used,
        },
        "pveversion": format!("pve-manager/{}/{REPOID}", dc.release.version()),
        "kversion": format!("Linux {KERNEL} {build}"),
        "current-kernel": { "sysname": "Linux", "release": KERNEL, "version": build, "machine": "x86_64" },
    });
    if dc.release.at_least(8, 0) {
        answer["boot-info"] = json!({ "mode": "legacy-bios" });
    }
    Ok(answer.into())
}

fn network(dc: &mut Datacentre, _: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let name = params.host();
    let Some(host) = dc.hosts.get(&name) else { return Ok(Value::Array(vec![]).into()) };
    let wanted = params.text("type");
    let rights = ["SDN.Audit", "SDN.Use"];
    let mut rows = Vec::new();
    for (place, interface) in host.interfaces.iter().enumerate() {
        let bridge = interface.kind == "bridge" || interface.kind == "OVSBridge";
        let fits = match wanted.as_deref() {
            None => true,
            Some("any_bridge" | "any_local_bridge" | "include_sdn") => bridge,
            Some(kind) => interface.kind == kind,
        };
        let path = format!("/sdn/zones/localnetwork/{}", interface.name);
        let visible = !bridge
            || dc.may_any(&call.caller, &path, &rights)
            || dc.access.acl.iter().any(|entry| {
                entry.path.strip_prefix(&path).is_some_and(|rest| rest.starts_with('/'))
                    && dc.may_any(&call.caller, &entry.path, &rights)
            });
        if fits && visible {
            rows.push(interface_row(interface, place));
        }
    }
    Ok(rows.into())
}

fn interface_row(interface: &Interface, place: usize) -> Value {
    let mut row = json!({ "iface": interface.name, "type": interface.kind, "priority": place + 3 });
    for (key, value) in &interface.facts {
        row[key] = value.clone();
    }
    row
}

fn interface(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let wanted = params.text_or_empty("iface");
    let host = dc.hosts.get(&params.host());
    let found = host.and_then(|host| host.interfaces.iter().position(|known| known.name == wanted));
    match (host, found) {
        (Some(host), Some(place)) => {
            let mut row = interface_row(&host.interfaces[place], place);
            if let Some(row) = row.as_object_mut() {
                row.remove("iface");
            }
            Ok(row.into())
        }
        _ => Err(ApiError::param("iface", "interface does not exist").into()),
    }
}

fn time(_: &mut Datacentre, ground: &mut Ground, _: &mut Call, _: &Params) -> Reply {
    let now = ground.now.unix_seconds();
    Ok(json!({ "timezone": "Etc/UTC", "time": now, "localtime": now }).into())
}

fn dns(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    Ok(dc.hosts.get(&params.host()).map_or_else(|| json!({}), |host| json!(host.dns)).into())
}

fn hosts_file(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, _: &Params) -> Reply {
    let lines: String = dc
        .hosts
        .iter()
        .map(|(name, host)| format!("{} {name}.example.test {name}\n", host.address))
        .collect();
    let data = format!("127.0.0.1 localhost\n{lines}");
    Ok(json!({ "data": data, "digest": digest(&data) }).into())
}

fn subscription(_: &mut Datacentre, _: &mut Ground, _: &mut Call, _: &Params) -> Reply {
    Ok(json!({
        "status": "notfound",
        "message": "There is no subscription key",
        "serverid": null,
        "url": "https://www.proxmox.com/en/proxmox-virtual-environment/pricing",
    })
    .into())
}

fn cpu_models(_: &mut Datacentre, _: &mut Ground, _: &mut Call, _: &Params) -> Reply {
    let row = |name: &str| json!({ "name": name, "custom": 0, "vendor": "default" });
    Ok(formats::cpu_models().map(row).collect::<Vec<Value>>().into())
}

fn machines(dc: &mut Datacentre, _: &mut Ground, _: &mut Call, params: &Params) -> Reply {
    let qemu = dc.hosts.get(&params.host()).map_or_else(|| "10.0.2".to_owned(), |host| host.qemu.clone());
    let version = qemu.rsplit_once('.').map_or(qemu.as_str(), |(version, _)| version);
    let row = |id: String, kind: &str| json!({ "id": id, "type": kind, "version": version });
    let rows = [row(format!("pc-i440fx-{version}"), "i440fx"), row(format!("pc-q35-{version}"), "q35")];
    Ok(rows.to_vec().into())
}
