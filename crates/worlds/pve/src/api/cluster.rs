//! `/version`, `/cluster` and `/nodes`.

use ichor_model::{HostName, VmId};
use ichor_port::Method;
use serde::Deserialize;

use crate::Call;

/// The release of Proxmox.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Version {
    /// Such as `9.2.11`.
    pub version: String,
    /// Such as `9.2`.
    pub release: String,
}

/// Asks which release answers.
pub fn version() -> Call<Version> {
    Call::new(Method::Get, &["version"])
}

/// A VM or container, wherever it is.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct GuestRow {
    /// Its VMID.
    pub vmid: VmId,
    /// The host that it is on.
    pub node: HostName,
    /// `qemu` or `lxc`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its name; fresh VMs have none for a while.
    #[serde(default)]
    pub name: Option<String>,
    /// `running`, `stopped`, or `unknown` for a while.
    #[serde(default)]
    pub status: Option<String>,
    /// Whether it is a template.
    #[serde(default)]
    pub template: u8,
    /// Virtual processors.
    #[serde(default)]
    pub maxcpu: f64,
    /// Memory in bytes.
    #[serde(default)]
    pub maxmem: u64,
    /// Tags, joined by `;`.
    #[serde(default)]
    pub tags: Option<String>,
    /// The lock on its config.
    #[serde(default)]
    pub lock: Option<String>,
    /// Its pool.
    #[serde(default)]
    pub pool: Option<String>,
}

/// Lists all VMs and containers of the cluster. It lags behind: it tells where a VM is, not how it is.
pub fn guests() -> Call<Vec<GuestRow>> {
    Call::new(Method::Get, &["cluster", "resources"]).with("type", "vm")
}

/// A host.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct HostRow {
    /// Its name.
    pub node: HostName,
    /// `online`, `offline` or `unknown`.
    pub status: String,
    /// Hardware threads; absent without the right to audit.
    #[serde(default)]
    pub maxcpu: Option<u32>,
    /// Memory in bytes.
    #[serde(default)]
    pub maxmem: Option<u64>,
    /// Memory in use, in bytes.
    #[serde(default)]
    pub mem: Option<u64>,
    /// The SHA-256 fingerprint of its certificate.
    #[serde(default)]
    pub ssl_fingerprint: Option<String>,
}

/// Lists the hosts.
pub fn hosts() -> Call<Vec<HostRow>> {
    Call::new(Method::Get, &["nodes"])
}

/// A storage, once for every host that it is on.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct StorageSeen {
    /// Its name.
    pub storage: String,
    /// The host.
    pub node: HostName,
    /// `available`, or `unknown`.
    #[serde(default)]
    pub status: String,
    /// Its kind, such as `dir` or `lvmthin`.
    #[serde(default)]
    pub plugintype: String,
    /// What it may hold, joined by commas in no order; absent while nobody has looked.
    #[serde(default)]
    pub content: String,
    /// Whether all hosts see the same.
    #[serde(default)]
    pub shared: u8,
    /// Bytes in use.
    #[serde(default)]
    pub disk: u64,
    /// All bytes.
    #[serde(default)]
    pub maxdisk: u64,
}

/// Something that a cluster has.
#[derive(Debug, Clone, PartialEq)]
pub enum Resource {
    /// A VM or a container.
    Guest(GuestRow),
    /// A host.
    Host(HostRow),
    /// A storage on a host.
    Storage(StorageSeen),
    /// Something else, such as a network.
    Other,
}

impl<'de> Deserialize<'de> for Resource {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        let read = match value["type"].as_str() {
            Some("qemu" | "lxc") => serde_json::from_value(value).map(Self::Guest),
            Some("node") => serde_json::from_value(value).map(Self::Host),
            Some("storage") => serde_json::from_value(value).map(Self::Storage),
            _ => Ok(Self::Other),
        };
        read.map_err(serde::de::Error::custom)
    }
}

/// Lists hosts, storages and guests at once. It lags behind, as [`guests`] does.
pub fn resources() -> Call<Vec<Resource>> {
    Call::new(Method::Get, &["cluster", "resources"])
}

/// Asks for a VMID that is free. It is not reserved: others may get the same one.
pub fn next_vmid() -> Call<NextVmId> {
    Call::new(Method::Get, &["cluster", "nextid"])
}

/// Asks whether a VMID is free. One that is taken is refused, also where its VM is not shown to the caller.
pub fn is_free(vmid: VmId) -> Call<NextVmId> {
    next_vmid().with("vmid", vmid)
}

/// A VMID, which is written as a text here alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextVmId(pub VmId);

impl<'de> Deserialize<'de> for NextVmId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::String(text) => text,
            other => other.to_string(),
        };
        let vmid = text.parse().map_err(|_| serde::de::Error::custom("this is not a VMID"));
        vmid.map(Self)
    }
}

/// A network interface of a host.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Interface {
    /// Its name.
    pub iface: String,
    /// Its kind, such as `bridge`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The host's own address on it, with the length of its prefix.
    #[serde(default)]
    pub cidr: Option<String>,
    /// The gateway behind it.
    #[serde(default)]
    pub gateway: Option<String>,
    /// Whether VLAN tags pass.
    #[serde(default)]
    pub bridge_vlan_aware: Option<u8>,
    /// What it is connected with, by names; empty: nothing outside its host.
    #[serde(default)]
    pub bridge_ports: Option<String>,
}

/// Lists the bridges of a host.
pub fn bridges(host: &HostName) -> Call<Vec<Interface>> {
    Call::new(Method::Get, &["nodes", host.as_str(), "network"]).with("type", "any_bridge")
}

/// How a host is at the moment.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct HostStatus {
    /// Its processors.
    #[serde(default)]
    pub cpuinfo: Processors,
    /// Its memory.
    #[serde(default)]
    pub memory: MemoryStatus,
    /// What it runs, such as `pve-manager/9.2.11/abcdef`.
    #[serde(default)]
    pub pveversion: String,
}

/// The processors of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Processors {
    /// Such as `Intel(R) Xeon(R)`.
    #[serde(default)]
    pub model: String,
    /// What they can do, joined by blanks.
    #[serde(default)]
    pub flags: String,
}

/// The memory of a host, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct MemoryStatus {
    /// All.
    #[serde(default)]
    pub total: u64,
    /// In use.
    #[serde(default)]
    pub used: u64,
    /// What could be had at once; releases before 9.0 do not tell.
    #[serde(default)]
    pub available: Option<u64>,
}

impl MemoryStatus {
    /// Returns what is left.
    pub fn left(&self) -> u64 {
        self.available.unwrap_or_else(|| self.total.saturating_sub(self.used))
    }
}

/// Asks how a host is.
pub fn host_status(host: &HostName) -> Call<HostStatus> {
    Call::new(Method::Get, &["nodes", host.as_str(), "status"])
}

/// The clock of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct HostTime {
    /// In Unix seconds.
    pub time: u64,
}

/// Asks a host what time it is.
pub fn host_time(host: &HostName) -> Call<HostTime> {
    Call::new(Method::Get, &["nodes", host.as_str(), "time"])
}
