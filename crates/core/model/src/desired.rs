//! The inventory, resolved: what every machine, image and endpoint is to be, with no choice left.
//!
//! A value that nobody can know before the world is touched is a [`Late`] one, and says where it
//! will come from.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    ClusterName, Hop, HostName, KubernetesVersion, MacAddress, MachineName, Minor, SecretRef, Size,
    SmbiosUuid, Span, TalosVersion, VmId,
};

/// Everything wanted of one cluster.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Desired {
    /// The cluster as a whole.
    pub cluster: Cluster,
    /// How Proxmox is reached.
    pub proxmox: Proxmox,
    /// The hosts machines may run on, with what they give; empty when only the live Proxmox knows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<Host>,
    /// Networks of the cluster.
    pub network: Network,
    /// Operating-system settings of every machine.
    pub os: Os,
    /// Boot images, each once; machines name theirs by [`Image::id`].
    pub images: Vec<Image>,
    /// Template VMs to clone from, when images come that way.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub templates: Vec<Template>,
    /// The machines: control planes first, then workers, each by name.
    pub machines: Vec<Machine>,
    /// Add-ons by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub addons: BTreeMap<String, Addon>,
    /// Where ichor keeps what cannot be asked back.
    pub store: String,
    /// Age recipients that secrets are encrypted to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recipients: Vec<String>,
    /// The file with the Talos secrets bundle, relative to the inventory; absent: the store has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secrets_file: Option<String>,
}

impl Desired {
    /// Returns the machines of one role.
    pub fn of_role(&self, role: Role) -> impl Iterator<Item = &Machine> {
        self.machines.iter().filter(move |machine| machine.role == role)
    }

    /// Returns how many control planes must agree: more than half of them.
    pub fn quorum(&self) -> usize {
        self.of_role(Role::ControlPlane).count() / 2 + 1
    }
}

/// A value that is known, or that the world will give.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Late<T> {
    /// Decided.
    Known(T),
    /// Not to be known yet.
    From(Source),
}

impl<T> Late<T> {
    /// Returns the value if it is known.
    pub const fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::From(_) => None,
        }
    }
}

/// Who gives a [`Late`] value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// A DHCP lease, read through the guest agent.
    Lease,
    /// The live Proxmox: the inventory names no hosts.
    LiveHosts,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Lease => "by DHCP lease",
            Self::LiveHosts => "chosen live",
        })
    }
}

/// What a machine does in the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Runs etcd and the Kubernetes control plane.
    ControlPlane,
    /// Runs workloads.
    Worker,
}

impl Role {
    /// Both roles, control planes first.
    pub const ALL: [Self; 2] = [Self::ControlPlane, Self::Worker];

    /// Returns the word used in inventories.
    pub const fn word(self) -> &'static str {
        match self {
            Self::ControlPlane => "control-plane",
            Self::Worker => "worker",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// A processor architecture.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Arch {
    /// x86-64.
    #[default]
    Amd64,
    /// 64-bit Arm.
    Arm64,
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        })
    }
}

/// The cluster as a whole.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cluster {
    /// Its name.
    pub name: ClusterName,
    /// What identities are derived from; its name unless the inventory says otherwise.
    pub id: String,
    /// A word such as `production`, for tags and for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// The Talos release of machines that name none.
    pub talos: TalosVersion,
    /// The Kubernetes release of machines that name none.
    pub kubernetes: KubernetesVersion,
    /// The machine-config shape, fixed when the cluster is made.
    pub contract: Minor,
    /// How clients reach the Kubernetes API.
    pub endpoint: Endpoint,
    /// Whether losing a control plane must be survivable.
    pub ha: bool,
    /// Whether `destroy` is refused.
    pub protect: bool,
    /// Whether workloads may run on control planes.
    pub schedule_on_control_planes: bool,
    /// Whether machines find each other through the discovery service.
    pub discovery: bool,
    /// DNS domain of services.
    pub domain: String,
    /// Region label of all nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Names and addresses that certificates must carry besides the machines' own.
    pub cert_sans: Vec<String>,
    /// Manifests handed to Talos to apply at bootstrap.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub manifests: Vec<Manifest>,
}

/// How clients reach the Kubernetes API, and what provides that address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Endpoint {
    /// The host part of the endpoint's URL.
    pub host: Late<String>,
    /// The port, normally 6443.
    pub port: u16,
    /// What stands behind the host part.
    pub kind: EndpointKind,
    /// The address that Talos moves between control planes, also when the URL names something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vip: Option<IpAddr>,
    /// kube-vip in place of the Talos address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kube_vip: Option<KubeVip>,
}

impl Endpoint {
    /// Returns the URL as people see it.
    pub fn url(&self) -> String {
        let host = match &self.host {
            Late::Known(host) if host.contains(':') => format!("[{host}]"),
            Late::Known(host) => host.clone(),
            Late::From(source) => format!("<{source}>"),
        };
        format!("https://{host}:{}", self.port)
    }
}

/// What stands behind the endpoint's host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndpointKind {
    /// A DNS name kept by somebody else.
    Name,
    /// An address of an external load balancer.
    Address,
    /// A layer-2 address that Talos moves between control planes.
    TalosVip,
    /// An address that kube-vip announces.
    KubeVip,
    /// The first control plane's own address.
    FirstControlPlane,
}

impl fmt::Display for EndpointKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Name => "external name",
            Self::Address => "external load balancer",
            Self::TalosVip => "Talos VIP",
            Self::KubeVip => "kube-vip",
            Self::FirstControlPlane => "first control plane",
        })
    }
}

/// kube-vip's settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KubeVip {
    /// The address it announces.
    pub address: IpAddr,
    /// The interface it announces it on; absent: the machine's first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Its release.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

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

/// How a boot image gets onto a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ImageSource {
    /// A disk image that Proxmox downloads and imports for each VM.
    Disk,
    /// A template VM that is cloned.
    Template,
    /// Installation media that is detached after the install.
    Iso,
}

impl fmt::Display for ImageSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Disk => "disk",
            Self::Template => "template",
            Self::Iso => "iso",
        })
    }
}

/// The Talos platform, which decides what tells the machine its first address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    /// Reads Proxmox's cloud-init drive or a cidata volume.
    Nocloud,
    /// Reads META key 10, or takes DHCP.
    Metal,
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Nocloud => "nocloud",
            Self::Metal => "metal",
        })
    }
}

/// A boot image: one release, one recipe, one platform. Machines with the same needs share it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Image {
    /// Its short name in this plan, such as `v1.13.9-nocloud-amd64`.
    pub id: String,
    /// The Talos release.
    pub talos: TalosVersion,
    /// How it gets onto a machine.
    pub source: ImageSource,
    /// The platform it is built for.
    pub platform: Platform,
    /// The processor it is built for.
    pub arch: Arch,
    /// Whether it is signed for secure boot.
    pub secureboot: bool,
    /// System extensions, sorted.
    pub extensions: Vec<String>,
    /// Kernel arguments, in order.
    pub kernel_args: Vec<String>,
    /// A schematic id given by the user in place of extensions and arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schematic: Option<String>,
    /// A file that is already on a Proxmox storage, in place of a download.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The Image Factory.
    pub factory: String,
    /// What META key 10 tells the one machine that boots this image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta: Option<MetaNetwork>,
}

/// A machine's network as META key 10 carries it, read by the metal platform alone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct MetaNetwork {
    /// The link that all of it is for. Naming it turns DHCP off there.
    pub link: String,
    /// The machine's name; absent when it takes the name from DHCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<MachineName>,
    /// Its addresses.
    pub addresses: Vec<IpNet>,
    /// Default gateways.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<IpAddr>,
    /// Name servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dns: Vec<IpAddr>,
    /// The MTU of the link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
}

/// A template VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Template {
    /// Its VMID.
    pub vmid: VmId,
    /// Whom it serves: roles and groups by name, sorted.
    pub serves: Vec<String>,
    /// The host it lives on.
    pub host: Late<HostName>,
    /// Whether somebody else made it: it is cloned, and never built, changed or deleted.
    pub existing: bool,
    /// The image it holds.
    pub image: String,
    /// How machines are made from it.
    pub clone: CloneKind,
    /// The storage of its disk.
    pub storage: String,
}

/// How a VM is cloned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CloneKind {
    /// A copy of its own.
    Full,
    /// Shares its base with the template.
    Linked,
}

/// One machine, decided to the last detail.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machine {
    /// Its name: of the VM, the host and the Kubernetes node.
    pub name: MachineName,
    /// The entry of `machines:` it comes from.
    pub group: String,
    /// What it does.
    pub role: Role,
    /// 1 for the first VM of that name.
    pub generation: u32,
    /// The Proxmox host.
    pub host: Late<HostName>,
    /// Its VMID.
    pub vmid: VmId,
    /// Its SMBIOS uuid.
    pub uuid: SmbiosUuid,
    /// Its Talos release.
    pub talos: TalosVersion,
    /// Its Kubernetes release.
    pub kubernetes: KubernetesVersion,
    /// The image it boots, by [`Image::id`].
    pub image: String,
    /// The template it is cloned from, when images come that way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<VmId>,
    /// How it gets its first address and its machine config.
    pub boot: Boot,
    /// Its processors.
    pub cpu: Cpu,
    /// Its memory.
    pub memory: Size,
    /// Its disks; the first is the system disk.
    pub disks: Vec<Disk>,
    /// Its network cards; the first carries the node address.
    pub nics: Vec<Nic>,
    /// Everything else about the VM.
    pub vm: VmOptions,
    /// Kernel parameters: the cluster's and its own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, String>,
    /// Kernel modules: the cluster's and its own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernel_modules: Vec<KernelModule>,
    /// Kubernetes labels.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Kubernetes annotations.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Kubernetes taints, `value:Effect` or `Effect` by key.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub taints: BTreeMap<String, String>,
    /// Machine-config patches, in the order in which they apply.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<Patch>,
}

impl Machine {
    /// Returns the network card that carries the node address.
    pub fn primary_nic(&self) -> &Nic {
        &self.nics[0]
    }

    /// Returns the system disk.
    pub fn system_disk(&self) -> &Disk {
        &self.disks[0]
    }
}

/// How a machine gets its first address and its machine config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Boot {
    /// What delivers the address.
    pub address: AddressDelivery,
    /// What delivers the machine config.
    pub config: ConfigDelivery,
    /// What vouches for the machine's key.
    pub verify: Verify,
}

/// What delivers a machine's first address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AddressDelivery {
    /// Proxmox's own cloud-init drive.
    Cloudinit,
    /// A cidata volume made by ichor.
    Cidata,
    /// META key 10, baked into an image per machine.
    Meta,
    /// A DHCP server.
    Dhcp,
}

impl fmt::Display for AddressDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cloudinit => "cloudinit",
            Self::Cidata => "cidata",
            Self::Meta => "meta",
            Self::Dhcp => "dhcp",
        })
    }
}

/// What delivers a machine config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ConfigDelivery {
    /// The maintenance API, once the machine's key is known.
    Maintenance,
    /// A cidata volume.
    Cidata,
}

/// What vouches for a machine's key before it is given secrets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Verify {
    /// The serial console, read through Proxmox.
    Console,
    /// The config came on the machine's own drive.
    Cidata,
    /// Nobody: the network is trusted.
    Network,
}

/// A machine's processors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Cpu {
    /// Cores of each socket.
    pub cores: u32,
    /// Sockets.
    pub sockets: u32,
    /// The model shown to the guest.
    #[serde(rename = "type")]
    pub cpu_type: String,
    /// Whether NUMA is emulated.
    pub numa: bool,
}

impl Cpu {
    /// Returns how many virtual processors the guest sees.
    pub const fn total(&self) -> u32 {
        self.cores.saturating_mul(self.sockets)
    }
}

/// A disk of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Disk {
    /// Where it is attached, such as `scsi0`.
    pub slot: String,
    /// What it is for: `system`, or the name the inventory gives it.
    pub name: String,
    /// Its size.
    pub size: Size,
    /// The Proxmox storage it lives on.
    pub storage: String,
    /// Where Talos mounts it, for disks beside the system disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mount: Option<String>,
    /// Its filesystem, when it is mounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filesystem: Option<String>,
    /// Its options.
    #[serde(flatten)]
    pub options: DiskOptions,
}

/// How Proxmox presents a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiskOptions {
    /// Shown to the guest as a solid-state disk.
    pub ssd: bool,
    /// Freed blocks are given back.
    pub discard: bool,
    /// Has a thread of its own.
    pub iothread: bool,
    /// Included in backups.
    pub backup: bool,
    /// Included in replication.
    pub replicate: bool,
    /// The cache mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<String>,
}

/// A network card of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Nic {
    /// Where it is attached, such as `net0`.
    pub slot: String,
    /// Its MAC address, by which Talos finds it.
    pub mac: MacAddress,
    /// The bridge it is plugged into.
    pub bridge: String,
    /// Its VLAN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Its MTU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u16>,
    /// The emulated model.
    pub model: String,
    /// Whether the Proxmox firewall filters it.
    pub firewall: bool,
    /// Packet queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queues: Option<u16>,
    /// Its addresses.
    pub addresses: Vec<Late<IpNet>>,
    /// Default gateways.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gateways: Vec<IpAddr>,
    /// Name servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dns: Vec<IpAddr>,
    /// Other routes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
}

/// A route besides the default one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Route {
    /// Where to.
    pub to: IpNet,
    /// Through whom.
    pub via: IpAddr,
    /// Its metric.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
}

/// Everything else about a VM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VmOptions {
    /// The emulated board.
    pub machine: Board,
    /// The firmware.
    pub bios: Bios,
    /// The storage of the EFI disk, for `ovmf`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub efi_storage: Option<String>,
    /// Whether the VM has a TPM 2.0.
    pub tpm: bool,
    /// The SCSI controller.
    pub scsi_controller: String,
    /// Whether the guest agent is expected.
    pub agent: bool,
    /// Whether the VM starts with its host.
    pub on_boot: bool,
    /// Whether Proxmox refuses to delete it.
    pub protection: bool,
    /// Its place in the host's start order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup: Option<Startup>,
    /// Tags, sorted.
    pub tags: Vec<String>,
    /// Notes of the user, shown above ichor's own stamp.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notes: Option<String>,
    /// Devices passed through.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pci: Vec<PciDevice>,
    /// The storage of the cloud-init drive, when there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cloudinit_storage: Option<String>,
}

/// The emulated board.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Board {
    /// The modern chipset, with PCI Express.
    Q35,
    /// The old chipset.
    I440fx,
    /// The board of 64-bit Arm guests.
    Virt,
}

/// The firmware.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Bios {
    /// UEFI.
    Ovmf,
    /// The classic BIOS.
    Seabios,
}

/// A VM's place in the host's start order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Startup {
    /// Lower starts earlier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<u32>,
    /// Seconds to wait after starting it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up: Option<u32>,
    /// Seconds to wait for it to stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down: Option<u32>,
}

/// A device passed through to the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PciDevice {
    /// The name of a Proxmox resource mapping, or a raw address.
    #[serde(flatten)]
    pub device: PciAddress,
    /// Presented as PCI Express.
    pub pcie: bool,
    /// The guest's first display.
    pub primary_gpu: bool,
}

/// Which device is passed through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PciAddress {
    /// A resource mapping, usable by API tokens.
    Mapping(String),
    /// A raw address, which only root's own login may set.
    Address(String),
}

/// A machine-config patch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Patch {
    /// Whom it is for. It follows from where the patch is listed, so it is not written out again.
    #[serde(skip)]
    pub scope: PatchScope,
    /// The place in the inventory where it is written; absent for files, which have places of their own.
    #[serde(skip)]
    pub at: Option<Span>,
    /// Where it is.
    #[serde(flatten)]
    pub content: PatchContent,
}

/// Whom a patch is for, in the order in which patches apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PatchScope {
    /// Every machine.
    Cluster,
    /// The machines of a role.
    Role,
    /// The machines of a group.
    Group,
    /// One machine.
    Machine,
}

/// Where a patch is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PatchContent {
    /// A file, relative to the inventory.
    File(String),
    /// Written in the inventory.
    Inline(Value),
}

/// A manifest handed to Talos or applied after bootstrap.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Manifest {
    /// Its name.
    pub name: String,
    /// Where it is.
    #[serde(flatten)]
    pub content: ManifestContent,
}

/// Where a manifest is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ManifestContent {
    /// A file, relative to the inventory.
    File(String),
    /// An address that the machines fetch.
    Url(String),
    /// Written in the inventory.
    Inline(Value),
}

/// An add-on and its settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Addon {
    /// Which of several programs, where there is a choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<String>,
    /// Its release; absent: the one this ichor was tested with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// A values file, relative to the inventory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values_file: Option<String>,
    /// Values written in the inventory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values: Option<Value>,
    /// Settings of this add-on alone, such as storage classes or the git repository.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, Value>,
}
