//! What a machine config must say, before its shape is chosen.

use std::collections::BTreeMap;

use ichor_model::{
    Desired, KubernetesVersion, Minor,
    desired::{AddressDelivery, Hostnames, ImageSource, Late, Machine, Platform, Role},
};

/// Everything that goes into one machine config but the secrets.
#[derive(Debug, Clone, PartialEq)]
pub struct Blueprint {
    /// What the machine does.
    pub role: Role,
    /// The shape of the config.
    pub contract: Minor,
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
    pub auth: Option<(String, String)>,
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
            cluster: cluster.to_owned(),
            endpoint: endpoint.to_owned(),
            kubernetes,
            sans: Vec::new(),
            install: None,
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

/// Draws up the config of a machine, or why it cannot be drawn up yet.
pub fn blueprint(desired: &Desired, machine: &Machine, schematic: &str) -> Result<Blueprint, String> {
    let Late::Known(host) = &desired.cluster.endpoint.host else {
        return Err("the endpoint is a leased address that is not known yet".into());
    };
    let bracketed = if host.contains(':') { format!("[{host}]") } else { host.clone() };
    let endpoint = format!("https://{bracketed}:{}", desired.cluster.endpoint.port);
    let mut blueprint = Blueprint::new(
        machine.role,
        desired.cluster.contract,
        desired.cluster.name.as_str(),
        &endpoint,
        machine.kubernetes.clone(),
    );
    blueprint.sans = sans(desired, host);
    blueprint.install = install(desired, machine, schematic);
    blueprint.domain.clone_from(&desired.cluster.domain);
    blueprint.pods = desired.network.pods.iter().map(ToString::to_string).collect();
    blueprint.services = desired.network.services.iter().map(ToString::to_string).collect();
    let cni = desired.addons.get("cni").and_then(|addon| addon.choice.as_deref()).unwrap_or("flannel");
    blueprint.cni = if cni == "flannel" { Cni::Flannel } else { Cni::None };
    blueprint.kube_proxy = cni != "cilium";
    blueprint.discovery = desired.cluster.discovery;
    blueprint.schedule_on_control_planes = desired.cluster.schedule_on_control_planes;
    blueprint.external_cloud_provider = desired.addons.contains_key("ccm");
    blueprint.sysctls.clone_from(&desired.os.sysctls);
    blueprint.registries = registries(desired);
    blueprint.cluster_wide = cluster_wide(desired);
    blueprint.machine = Some(Box::new(machine.clone()));
    Ok(blueprint)
}

/// The VIP must be in the certificates even where the URL names something else. The URL's own host is
/// there anyway.
fn sans(desired: &Desired, endpoint_host: &str) -> Vec<String> {
    let endpoint = &desired.cluster.endpoint;
    let kube_vip = endpoint.kube_vip.as_ref().map(|kube_vip| kube_vip.address.to_string());
    let shared = endpoint.vip.map(|vip| vip.to_string()).into_iter().chain(kube_vip);
    let mut seen = std::collections::BTreeSet::from([endpoint_host.to_owned()]);
    shared.chain(desired.cluster.cert_sans.iter().cloned()).filter(|san| seen.insert(san.clone())).collect()
}

/// The installer must be of the platform and flavour of the image that runs: its kernel command line
/// carries both, and an upgrade with another one would change them.
fn install(desired: &Desired, machine: &Machine, schematic: &str) -> Option<Install> {
    let image = desired.images.iter().find(|image| image.id == machine.image)?;
    let factory = image.factory.split_once("://").map_or(image.factory.as_str(), |(_, host)| host);
    let flavour = if image.secureboot { "-secureboot" } else { "" };
    let installer = if image.talos.minor() >= Minor::new(1, 10) {
        format!("{}-installer{flavour}", image.platform)
    } else {
        format!("installer{flavour}")
    };
    let needs_disk = image.source == ImageSource::Iso || image.platform == Platform::Metal;
    Some(Install {
        disk: needs_disk.then(|| "/dev/sda".to_owned()),
        image: Some(format!("{factory}/{installer}/{schematic}:{}", image.talos)),
        kernel_args: Vec::new(),
    })
}

fn registries(desired: &Desired) -> BTreeMap<String, Registry> {
    let mirrors = desired.os.mirrors.iter().map(|(host, mirror)| {
        let registry = Registry {
            mirrors: mirror.endpoints.clone(),
            skip_fallback: mirror.skip_fallback,
            override_path: mirror.override_path,
            auth: None,
        };
        (host.clone(), registry)
    });
    mirrors.collect()
}

fn cluster_wide(desired: &Desired) -> ClusterWide {
    ClusterWide {
        vip: desired.cluster.endpoint.vip,
        node_networks: desired.network.cidr.iter().map(ToString::to_string).collect(),
        dhcp_hostnames: desired.network.hostnames == Hostnames::Dhcp,
        time_servers: desired.os.time_servers.clone(),
        kernel_modules: desired
            .os
            .kernel_modules
            .iter()
            .map(|module| (module.name.clone(), module.parameters.clone()))
            .collect(),
        overlay_network: desired.os.extension_services.contains_key("tailscale"),
    }
}

/// Whether a machine's address comes from DHCP and not from its config.
pub fn takes_dhcp(machine: &Machine) -> bool {
    machine.boot.address == AddressDelivery::Dhcp
}
