//! Proxmox: hosts, storages, and how it is reached.

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Arch;
use crate::{Hop, HostName, SecretRef, Size};

/// How Proxmox is reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Proxmox {
    /// The API's address, without a path.
    pub endpoint: String,
    /// Where the API token is found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<SecretRef>,
    /// How the server's certificate is checked.
    pub tls: Tls,
    /// The way into networks that are not reachable directly, the nearest server first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jump: Vec<Hop>,
    /// The resource pool of all VMs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Which storage holds what, on hosts that do not say otherwise.
    pub storage: Storage,
}

/// Which storage holds what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Storage {
    /// VM disks.
    pub disks: String,
    /// Downloaded images and ISOs.
    pub images: String,
    /// Template VMs.
    pub templates: String,
    /// Cloud-init drives.
    pub cloudinit: String,
    /// Snippets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snippets: Option<String>,
}

/// A host and what it gives to this cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Host {
    /// Its name.
    pub name: HostName,
    /// What fails together with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Its processor architecture.
    pub arch: Arch,
    /// Virtual processors it can give, overcommit included; absent when nobody knows yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<u32>,
    /// Memory it can give, overcommit included; absent when nobody knows yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Size>,
    /// Which storage holds what on it.
    pub storage: Storage,
}

/// How a server's certificate is checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tls {
    /// By the system's roots; an unknown certificate is shown once and remembered.
    TrustOnFirstUse,
    /// By a CA file.
    Ca(String),
    /// By the SHA-256 fingerprint of the certificate.
    Sha256(String),
    /// Not at all.
    Insecure,
}

/// Networks of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Network {
    /// The machines' networks, one per address family.
    pub cidr: Vec<IpNet>,
    /// Addresses of pods.
    pub pods: Vec<IpNet>,
    /// Addresses of services.
    pub services: Vec<IpNet>,
    /// Whether machines take their host name from DHCP.
    pub hostnames: Hostnames,
}

/// Who names the machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Hostnames {
    /// The inventory.
    Inventory,
    /// The DHCP server.
    Dhcp,
}
