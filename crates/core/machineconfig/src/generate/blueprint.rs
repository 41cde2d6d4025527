//! What a machine config must say, before its shape is chosen.

use std::collections::BTreeMap;

use ichor_model::{
    KubernetesVersion, Minor,
    desired::{Machine, Role},
};

use super::{manifests::Manifest, storage::DiskPlace, system::Service};
use crate::secrets::SecretText;

/// Everything that goes into one machine config but the secrets.
#[derive(Debug, Clone, PartialEq)]
pub struct Blueprint {
    /// What the machine does.
    pub role: Role,
    /// The shape of the config.
    pub contract: Minor,
    /// The Talos that reads it, which decides what there is beside that shape.
    pub talos: Minor,
    /// The cluster's name.
    pub cluster: String,
    /// The URL of the Kubernetes API.
    pub endpoint: String,
    /// The Kubernetes release.
    pub kubernetes: KubernetesVersion,
    /// Names and addresses for certificates of both APIs, besides the machine's own.
    pub sans: Vec<String>,
    /// How Talos gets onto the disk; absent when the image is on it already.
    pub install: Option<Install>,
    /// The disk that Talos is on or goes to, where its place is known; it counts before the path in
    /// [`Install::disk`].
    pub system_disk: Option<DiskPlace>,
    /// DNS domain of services.
    pub domain: String,
    /// Addresses of pods.
    pub pods: Vec<String>,
    /// Addresses of services.
    pub services: Vec<String>,
    /// The pod network that Talos installs.
    pub cni: Cni,
    /// Whether kube-proxy runs.
    pub kube_proxy: bool,
    /// Whether machines find each other through the discovery service.
    pub discovery: bool,
    /// Whether workloads may run on control planes.
    pub schedule_on_control_planes: bool,
    /// The API server's own port, where it is not 6443.
    pub api_port: Option<u16>,
    /// The port of the local load balancer in front of the API servers.
    pub kube_prism_port: Option<u16>,
    /// Whether nodes wait for a cloud controller manager.
    pub external_cloud_provider: bool,
    /// Kernel parameters.
    pub sysctls: BTreeMap<String, String>,
    /// Mirrors and credentials of image registries.
    pub registries: BTreeMap<String, Registry>,
    /// The machine itself, for what only ichor knows; absent for the configs of a role.
    pub machine: Option<Box<Machine>>,
    /// Settings of every machine that have no place above.
    pub cluster_wide: ClusterWide,
}

/// Settings of every machine that have no place in `talosctl gen config`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClusterWide {
    /// The address that Talos moves between control planes.
    pub vip: Option<std::net::IpAddr>,
    /// Networks that node addresses are taken from.
    pub node_networks: Vec<String>,
    /// Whether the DHCP server names the machines.
    pub dhcp_hostnames: bool,
    /// Time servers.
    pub time_servers: Vec<String>,
    /// Kernel modules with their parameters.
    pub kernel_modules: Vec<(String, Vec<String>)>,
    /// Whether an extension brings a network of its own, such as a tailnet.
    pub overlay_network: bool,
    /// Labels of every node; those of a machine count before them.
    pub labels: BTreeMap<String, String>,
    /// Arguments of the kubelet.
    pub kubelet_args: BTreeMap<String, String>,
    /// Whether something keeps executables below `/var`, which contract 1.14 forbids by default.
    pub executables_in_var: bool,
    /// Certificates to trust, by name.
    pub trusted_roots: Vec<(String, String)>,
    /// Settings of system-extension services.
    pub extension_services: Vec<Service>,
    /// Manifests that Talos applies.
    pub manifests: Vec<Manifest>,
}

/// How Talos gets onto the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Install {
    /// The disk.
    pub disk: Option<String>,
    /// The installer image.
    pub image: Option<String>,
    /// Kernel arguments for installers that still take them.
    pub kernel_args: Vec<String>,
}

/// The pod network that Talos installs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cni {
    /// Flannel.
    Flannel,
    /// None: somebody else installs it.
    None,
    /// A manifest by address.
    Custom(String),
}

/// What is special about an image registry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Registry {
    /// Where images are fetched instead.
    pub mirrors: Vec<String>,
    /// Never asks the registry itself.
    pub skip_fallback: bool,
    /// The mirror's path replaces `/v2`.
    pub override_path: bool,
    /// User and password, once they are known.
    pub auth: Option<(String, SecretText)>,
    /// How its certificate is checked, where that is special.
    pub tls: Option<RegistryTls>,
}

/// How the certificate of a registry is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RegistryTls {
    /// By these CA certificates.
    Ca(String),
    /// Not at all.
    Insecure,
}

impl Blueprint {
    /// Starts with what `talosctl gen config` would assume.
    pub fn new(
        role: Role,
        contract: Minor,
        cluster: &str,
        endpoint: &str,
        kubernetes: KubernetesVersion,
    ) -> Self {
        Self {
            role,
            contract,
            talos: contract,
            cluster: cluster.to_owned(),
            endpoint: endpoint.to_owned(),
            kubernetes,
            sans: Vec::new(),
            install: None,
            system_disk: None,
            domain: "cluster.local".into(),
            pods: vec!["10.244.0.0/16".into()],
            services: vec!["10.96.0.0/12".into()],
            cni: Cni::Flannel,
            kube_proxy: true,
            discovery: true,
            schedule_on_control_planes: false,
            api_port: None,
            kube_prism_port: Some(7445),
            external_cloud_provider: false,
            sysctls: BTreeMap::new(),
            registries: BTreeMap::new(),
            machine: None,
            cluster_wide: ClusterWide::default(),
        }
    }

    /// Returns the host part of the endpoint.
    pub fn endpoint_host(&self) -> &str {
        let rest = self.endpoint.split_once("://").map_or(self.endpoint.as_str(), |(_, rest)| rest);
        match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, _)) => host,
            None => rest.rsplit_once(':').map_or(rest, |(host, _)| host),
        }
    }
}
