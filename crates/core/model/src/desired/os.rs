//! What Talos is told besides the network.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::SecretRef;

/// Operating-system settings of every machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Os {
    /// Time servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub time_servers: Vec<String>,
    /// Kernel parameters.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, String>,
    /// Kernel modules.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernel_modules: Vec<KernelModule>,
    /// Registry mirrors by registry.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub mirrors: BTreeMap<String, Mirror>,
    /// Registry credentials by registry.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub registry_auth: BTreeMap<String, RegistryAuth>,
    /// How certificates of registries are checked, where that is special.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub registry_tls: BTreeMap<String, RegistryTls>,
    /// Files with CA certificates to trust, relative to the inventory.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trusted_roots: Vec<String>,
    /// System-extension services by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extension_services: BTreeMap<String, ExtensionService>,
}

/// A kernel module to load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KernelModule {
    /// Its name.
    pub name: String,
    /// Its parameters.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parameters: Vec<String>,
}

/// A registry mirror.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mirror {
    /// Where images are fetched instead, in order.
    pub endpoints: Vec<String>,
    /// Whether the registry itself is never asked.
    pub skip_fallback: bool,
    /// Whether the endpoint's path replaces `/v2`.
    pub override_path: bool,
}

/// Credentials for a registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RegistryAuth {
    /// The user.
    pub username: String,
    /// Where the password is found.
    pub password: SecretRef,
}

/// How the certificate of a registry is checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RegistryTls {
    /// By a CA file, relative to the inventory.
    Ca(String),
    /// Not at all.
    Insecure,
}

/// The settings of a system-extension service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ExtensionService {
    /// Its environment.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, Setting>,
    /// Its files, by mount path.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, Setting>,
}

/// A value that is written in the inventory, or a secret found elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting {
    /// Plain text.
    Text(String),
    /// A secret.
    Secret(SecretRef),
}
