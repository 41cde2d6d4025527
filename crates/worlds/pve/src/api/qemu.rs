//! `/nodes/{host}/qemu`.

use std::{collections::BTreeMap, net::IpAddr};

use ichor_model::{HostName, VmId};
use ichor_port::Method;
use serde::Deserialize;
use serde_json::Value;

use crate::{Call, Params, Upid};

fn vm(method: Method, host: &HostName, vmid: VmId, rest: &[&str]) -> Call<Upid> {
    typed(method, host, vmid, rest)
}

fn typed<T>(method: Method, host: &HostName, vmid: VmId, rest: &[&str]) -> Call<T> {
    let vmid = vmid.to_string();
    let mut segments = vec!["nodes", host.as_str(), "qemu", vmid.as_str()];
    segments.extend(rest);
    Call::new(method, &segments)
}

/// A VM's config: options by name, as the server writes them.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(transparent)]
pub struct VmConfig(pub BTreeMap<String, Value>);

impl VmConfig {
    /// Returns an option as text; numbers count as text too.
    pub fn text(&self, key: &str) -> Option<String> {
        match self.0.get(key)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }

    /// Returns the addresses that cloud-init gives the first network card.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let config = self.text("ipconfig0").unwrap_or_default();
        let nets =
            config.split(',').filter_map(|part| part.strip_prefix("ip=").or(part.strip_prefix("ip6=")));
        nets.filter_map(|net| net.split('/').next()?.parse().ok()).collect()
    }

    /// Returns the options whose names are a word and a number, such as `net0`, in order.
    pub fn numbered<'a>(&'a self, word: &'a str) -> impl Iterator<Item = (&'a str, String)> {
        self.0.keys().filter_map(move |key| {
            let digits = key.strip_prefix(word)?;
            let numbered = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            numbered.then(|| Some((key.as_str(), self.text(key)?))).flatten()
        })
    }
}

/// Reads a VM's config with what is pending applied.
pub fn config(host: &HostName, vmid: VmId) -> Call<VmConfig> {
    typed(Method::Get, host, vmid, &["config"])
}

/// Makes a VM.
pub fn create(host: &HostName, vmid: VmId, options: Params) -> Call<Upid> {
    Call::new(Method::Post, &["nodes", host.as_str(), "qemu"]).with("vmid", vmid).with_all(options)
}

/// Changes a VM's config in the background.
pub fn configure(host: &HostName, vmid: VmId, options: Params) -> Call<Option<Upid>> {
    typed(Method::Post, host, vmid, &["config"]).with_all(options)
}

/// Grows a disk to a size.
pub fn resize(host: &HostName, vmid: VmId, disk: &str, gib: u64) -> Call<Option<Upid>> {
    typed(Method::Put, host, vmid, &["resize"]).with("disk", disk).with("size", format!("{gib}G"))
}

/// Makes a template of a VM.
pub fn make_template(host: &HostName, vmid: VmId) -> Call<Option<Upid>> {
    typed(Method::Post, host, vmid, &["template"])
}

/// How a VM is cloned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloneOptions<'a> {
    /// The VMID of the clone.
    pub newid: VmId,
    /// Its name.
    pub name: &'a str,
    /// Its notes; absent: those of the source.
    pub description: Option<String>,
    /// Its pool.
    pub pool: Option<&'a str>,
    /// The host it is made on, when that is another one.
    pub target: Option<&'a HostName>,
    /// The storage of a full copy; absent: a linked one.
    pub full_on: Option<&'a str>,
}

/// Clones a VM. The task carries the source's VMID.
pub fn clone(host: &HostName, source: VmId, options: &CloneOptions<'_>) -> Call<Upid> {
    let mut params = Params::default();
    params.set("newid", options.newid);
    params.set("name", options.name);
    params.set_some("description", options.description.as_ref());
    params.set_some("pool", options.pool);
    params.set_some("target", options.target);
    params.switch("full", options.full_on.is_some());
    params.set_some("storage", options.full_on);
    vm(Method::Post, host, source, &["clone"]).with_all(params)
}

/// Switches a VM on.
pub fn start(host: &HostName, vmid: VmId) -> Call<Upid> {
    vm(Method::Post, host, vmid, &["status", "start"])
}

/// Pulls the plug, also when a shutdown is waiting.
pub fn stop(host: &HostName, vmid: VmId) -> Call<Upid> {
    vm(Method::Post, host, vmid, &["status", "stop"]).with("overrule-shutdown", 1)
}

/// Pulls the plug of a VM on a Proxmox that knows no other way: before 8.1, and where HA looks after the VM.
pub fn plain_stop(host: &HostName, vmid: VmId) -> Call<Upid> {
    vm(Method::Post, host, vmid, &["status", "stop"])
}

/// Asks a VM to shut down, and waits for so many seconds.
pub fn shutdown(host: &HostName, vmid: VmId, seconds: u32) -> Call<Upid> {
    vm(Method::Post, host, vmid, &["status", "shutdown"]).with("timeout", seconds)
}

/// Writes the cloud-init drive anew. It is also written at every start.
pub fn regenerate_cloudinit(host: &HostName, vmid: VmId) -> Call<()> {
    typed(Method::Put, host, vmid, &["cloudinit"])
}

/// An option that waits for a restart.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct PendingRow {
    /// The option.
    pub key: String,
    /// What it says.
    #[serde(default)]
    pub value: Option<Value>,
    /// What it will say.
    #[serde(default)]
    pub pending: Option<Value>,
    /// Whether it will be gone: 1, or 2 when it was forced.
    #[serde(default)]
    pub delete: u8,
}

impl PendingRow {
    /// Whether a restart would change it.
    pub const fn waits(&self) -> bool {
        self.pending.is_some() || self.delete > 0
    }
}

/// Lists all options, with what is pending.
pub fn pending(host: &HostName, vmid: VmId) -> Call<Vec<PendingRow>> {
    typed(Method::Get, host, vmid, &["pending"])
}

/// Resets a VM, as its button does: QEMU goes on, and with it whoever reads its console.
pub fn reset(host: &HostName, vmid: VmId) -> Call<Upid> {
    vm(Method::Post, host, vmid, &["status", "reset"])
}

/// How a VM is at the moment.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct VmStatus {
    /// `running` or `stopped`.
    pub status: String,
    /// How QEMU calls it: `running`, `paused`, `prelaunch` and others.
    #[serde(default)]
    pub qmpstatus: Option<String>,
    /// Seconds since it was switched on.
    #[serde(default)]
    pub uptime: u64,
    /// The lock on its config.
    #[serde(default)]
    pub lock: Option<String>,
}

/// Asks how a VM is.
pub fn status(host: &HostName, vmid: VmId) -> Call<VmStatus> {
    typed(Method::Get, host, vmid, &["status", "current"])
}

/// Deletes a VM with its disks, and what else names it.
pub fn delete(host: &HostName, vmid: VmId) -> Call<Upid> {
    vm(Method::Delete, host, vmid, &[]).with("purge", 1)
}

/// What a guest agent says about interfaces.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct AgentInterfaces {
    /// The interfaces, or what the agent refused.
    pub result: Value,
}

impl AgentInterfaces {
    /// Returns the addresses of the card with a MAC.
    pub fn addresses(&self, mac: &str) -> Vec<IpAddr> {
        let cards = self.result.as_array().into_iter().flatten();
        let own = cards.filter(|card| {
            card["hardware-address"].as_str().is_some_and(|address| address.eq_ignore_ascii_case(mac))
        });
        let all = own.flat_map(|card| card["ip-addresses"].as_array().into_iter().flatten());
        all.filter_map(|address| address["ip-address"].as_str()?.parse().ok()).collect()
    }
}

/// Asks the guest agent for addresses.
pub fn agent_interfaces(host: &HostName, vmid: VmId) -> Call<AgentInterfaces> {
    typed(Method::Get, host, vmid, &["agent", "network-get-interfaces"])
}

/// Asks the guest agent whether it is there. Each call may take three seconds when it is not.
pub fn agent_ping(host: &HostName, vmid: VmId) -> Call<AgentAnswer> {
    typed(Method::Post, host, vmid, &["agent", "ping"])
}

/// What a guest agent answers, if it answers at all.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct AgentAnswer {
    /// Nothing, or what the agent refused.
    #[serde(default)]
    pub result: Value,
}
