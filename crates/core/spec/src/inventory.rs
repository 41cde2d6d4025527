//! The inventory's language: what may be written, key by key.
//!
//! Every key is optional here. Which ones are required, what the defaults are and which values fit
//! together is decided when the inventory is resolved, because shared defaults may fill the gaps.

mod addons;
mod machine;
mod network;
mod proxmox;
mod template;

use ichor_model::{
    ClusterName, Code, Finding, KubernetesVersion, Minor, Problem, TalosVersion, desired as d,
};

pub use addons::{
    Addon, AddonChoice, AddonSettings, Addons, Chart, Csi, CsiSettings, Git, Gitops, LoadBalancer,
    LoadBalancerSettings, Manifest, StorageClass,
};
pub use machine::{DiskShape, ExtraDisk, Machine, MachineImage, Pci, Roles, Startup, SystemDisk};
pub use network::{MachineNetwork, Network, Nic, Route};
pub use proxmox::{Host, Hosts, Overcommit, Placement, Proxmox, Storage, Tls};
pub use template::{Template, TemplateKey, Templates};

use crate::{
    read::{Map, OneOrMany, Read, Reader, record},
    values::{
        Any, CertSan, Domain, Extension, FilePath, Int, Ip, LooseText, Recipient, SchematicId, Secret,
        TextOrSecret, TimeServer, Url,
    },
    yaml::{Kind, Node, show},
};

/// A list whose items keep their places.
pub type List<T> = Vec<ichor_model::At<T>>;

record! {
    /// An ichor inventory: one Talos Kubernetes cluster on Proxmox VE.
    Inventory {
        /// The number of the inventory's language. This one is 1.
        schema: Int<0, 1_000_000>,
        /// The cluster as a whole.
        cluster: Cluster,
        /// How Proxmox is reached, and what it offers.
        proxmox: Proxmox,
        /// How machines are spread over hosts.
        placement: Placement,
        /// The machines' network, and those of pods and services.
        network: Network,
        /// The boot image.
        image: Image,
        /// How machines get their first address and their machine config.
        boot: Boot,
        /// Operating-system settings of every machine.
        os: Os,
        /// Settings of all machines that do not say otherwise.
        defaults: Machine,
        /// Settings of all machines of a role that do not say otherwise.
        roles: Roles,
        /// The machines: groups with a `count`, and single machines by name.
        machines: Map<ichor_model::MachineName, Machine>,
        /// Patches to machine configs, in order.
        patches: List<Patch>,
        /// What is installed on the cluster.
        addons: Addons,
        /// Where ichor keeps what cannot be asked back: a directory, `.ichor` unless set, or a bucket such as
        /// `s3://bucket/prefix`.
        store: Store,
        /// How secrets are kept.
        secrets: Secrets,
    }
}

record! {
    /// The cluster as a whole.
    Cluster {
        /// The cluster's name: Talos cluster name, context name and first tag of its VMs.
        name: ClusterName,
        /// What the identities of VMs are derived from. The name, unless two clusters share it.
        id: String,
        /// A word such as `production`, for tags and for people.
        environment: String,
        /// The Talos release.
        talos: TalosVersion,
        /// The Kubernetes release.
        kubernetes: KubernetesVersion,
        /// The Talos minor whose machine-config shape is used; fixed when the cluster is made.
        contract: Minor,
        /// How clients reach the Kubernetes API. Absent: the first control plane's own address.
        endpoint: Endpoint,
        /// Demands what surviving the loss of a control plane needs: three or more, an odd number.
        ha: bool,
        /// Refuses `destroy` until it is lifted.
        protect: bool,
        /// Lets workloads run on control planes.
        schedule_on_control_planes: bool,
        /// Lets machines find each other through the Talos discovery service; so unless switched off.
        discovery: bool,
        /// DNS domain of services; `cluster.local` unless set.
        domain: Domain,
        /// Region label of all nodes.
        region: String,
        /// Names and addresses that certificates must carry besides the machines' own.
        cert_sans: List<CertSan>,
        /// Manifests that Talos applies at bootstrap.
        manifests: List<Manifest>,
    }
}

record! {
    /// How clients reach the Kubernetes API.
    Endpoint {
        /// A DNS name kept by somebody else.
        host: String,
        /// The address of an external load balancer. Beside `host`, the address behind that name: certificates carry both.
        address: Ip,
        /// An address that Talos moves between control planes on their network.
        vip: Ip,
        /// kube-vip in place of the Talos address.
        kube_vip: KubeVip,
        /// The port of a load balancer that does not listen on 6443, where API servers do.
        port: Int<1, 65535>,
    }
}

record! {
    /// An address announced by kube-vip.
    KubeVip {
        /// The address.
        address: Ip,
        /// The interface it is announced on.
        interface: String,
        /// kube-vip's release.
        version: String,
    }
}

record! {
    /// The boot image.
    Image {
        /// How the image gets onto machines; `disk` unless set.
        source: d::ImageSource,
        /// The processor architecture of machines that do not say; `amd64` unless set.
        arch: d::Arch,
        /// Official Talos extensions. Absent: `siderolabs/qemu-guest-agent`, so that addresses can be found; a list
        /// replaces it.
        extensions: List<Extension>,
        /// Extra kernel arguments.
        kernel_args: List<String>,
        /// Uses the image signed for secure boot.
        secureboot: bool,
        /// The id of a schematic made elsewhere, in place of extensions and arguments.
        schematic: SchematicId,
        /// An ISO that is already on a Proxmox storage, such as `local:iso/talos.iso`. It must be a nocloud
        /// one for machines that get anything by cloud-init or cidata; for DHCP either will do.
        file: String,
        /// The Image Factory; `https://factory.talos.dev` unless set.
        factory: Url,
        /// The template of each role or group, for `source: template`: its VMID, or a map with more. A group's own
        /// template wins over that of its role.
        templates: Templates,
        /// How machines are made from a template; `full` unless set.
        clone: d::CloneKind,
    }
}

record! {
    /// How machines get their first address and their machine config.
    Boot {
        /// What delivers the address; `cloudinit` unless set, `dhcp` under `addressing: dhcp`.
        address: d::AddressDelivery,
        /// What delivers the machine config; `maintenance` unless set.
        config: d::ConfigDelivery,
        /// What vouches for a machine's key before it is given secrets; `console` unless set.
        verify: d::Verify,
    }
}

record! {
    /// Operating-system settings of every machine.
    Os {
        /// Time servers.
        time_servers: List<TimeServer>,
        /// Kernel parameters.
        sysctls: Map<String, LooseText>,
        /// Kernel modules, by name or with parameters.
        kernel_modules: List<Module>,
        /// Files with CA certificates that every machine trusts besides the well-known ones.
        trusted_roots: List<FilePath>,
        /// Mirrors, credentials and certificates of image registries.
        registries: Map<String, Registry>,
        /// Settings of system-extension services.
        extension_services: Map<String, ExtensionService>,
    }
}

/// A kernel module: its name, or a map with its parameters.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema)]
#[schemars(untagged)]
pub enum Module {
    /// Its name.
    Name(String),
    /// Its name and parameters.
    Full(KernelModule),
}

impl Module {
    /// Returns the module in its full form.
    pub fn full(&self, span: ichor_model::Span) -> KernelModule {
        match self {
            Self::Name(name) => KernelModule {
                name: Some(ichor_model::At::new(name.clone(), span)),
                ..KernelModule::default()
            },
            Self::Full(module) => module.clone(),
        }
    }
}

impl Read for Module {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        match node.kind {
            Kind::Scalar { .. } => String::read(node, reader).map(Self::Name),
            _ => KernelModule::read(node, reader).map(Self::Full),
        }
    }
}

record! {
    /// A kernel module and its parameters.
    KernelModule {
        /// Its name.
        name: String,
        /// Its parameters.
        parameters: List<String>,
    }
}

record! {
    /// What is special about an image registry.
    Registry {
        /// Where images are fetched instead, in order.
        mirrors: OneOrMany<Url>,
        /// Never asks the registry itself.
        skip_fallback: bool,
        /// The mirror's path replaces `/v2`.
        override_path: bool,
        /// The user.
        username: String,
        /// Where the user's password is found.
        password: Secret,
        /// A file with the CA that signed its certificate, in place of the well-known ones.
        ca: FilePath,
        /// Does not check its certificate.
        insecure: bool,
    }
}

record! {
    /// Settings of a system-extension service.
    ExtensionService {
        /// Its environment.
        environment: Map<String, TextOrSecret>,
        /// Its files, by mount path.
        files: Map<String, TextOrSecret>,
    }
}

/// A patch to machine configs: a file, or a map with `file` or `inline` and whom it is for.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema)]
#[schemars(untagged)]
pub enum Patch {
    /// A file for all machines.
    File(FilePath),
    /// A patch with its target.
    Full(Box<PatchFor>),
}

record! {
    /// A patch and whom it is for.
    PatchFor {
        /// A file, relative to the file that names it.
        file: FilePath,
        /// The patch itself.
        inline: Any,
        /// Only for machines of this role.
        role: d::Role,
        /// Only for members of this group.
        group: String,
        /// Only for this machine.
        machine: String,
    }
}

impl Patch {
    /// Returns the patch in its full form.
    pub fn full(&self, span: ichor_model::Span) -> PatchFor {
        match self {
            Self::File(path) => {
                PatchFor { file: Some(ichor_model::At::new(path.clone(), span)), ..PatchFor::default() }
            }
            Self::Full(patch) => (**patch).clone(),
        }
    }
}

impl Read for Patch {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        match node.kind {
            Kind::Scalar { .. } => FilePath::read(node, reader).map(Self::File),
            _ => PatchFor::read(node, reader).map(|patch| Self::Full(Box::new(patch))),
        }
    }
}

/// A directory, or the URL of a bucket.
#[derive(Debug, Clone, PartialEq, schemars::JsonSchema)]
#[schemars(untagged)]
pub enum Store {
    /// The URL of a bucket.
    Url(Url),
    /// A directory beside the inventory.
    Directory(StoreDirectory),
}

record! {
    /// A directory beside the inventory.
    StoreDirectory {
        /// The directory.
        path: FilePath,
    }
}

impl Read for Store {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        match node.kind {
            Kind::Scalar { ref text, .. } if !text.contains("://") => {
                let remedy = format!("for a directory write `store: {{path: {}}}`", show(text));
                let problem =
                    Problem::new("is not the URL of a bucket, such as `s3://bucket/prefix`", remedy);
                reader.problem(Code::BAD_URL, node.span, text, problem);
                None
            }
            Kind::Scalar { .. } => bucket(Url::read(node, reader)?, node, reader).map(Self::Url),
            _ => StoreDirectory::read(node, reader).map(Self::Directory),
        }
    }
}

/// The kinds of buckets, as their URLs begin.
const BUCKETS: [&str; 4] = ["s3", "gs", "azure", "az"];

/// Refuses the URL of anything but a bucket. Nothing of it but its kind is repeated: whoever writes `ftp://` may write a
/// password behind it.
fn bucket(url: Url, node: &Node, reader: &mut Reader) -> Option<Url> {
    if BUCKETS.contains(&url.scheme.as_str()) {
        return Some(url);
    }
    let message = format!("`{}://` is no kind of store", show(&url.scheme));
    let finding = Finding::error(Code::STORE_KIND, node.span, message);
    let finding = finding.remedy(
        "write the URL of a bucket, `s3://`, `gs://` or `azure://`, or use a directory: `store: {path: .ichor}`",
    );
    let is_bare = !url.text.contains(['@', '?']);
    reader.findings.push(if is_bare { finding } else { finding.private() });
    None
}

record! {
    /// How secrets are kept.
    Secrets {
        /// Age recipients that secrets are encrypted to.
        age: List<Recipient>,
        /// The file with the Talos secrets bundle, relative to the file that names it. Absent: ichor keeps it in `store`.
        file: FilePath,
    }
}
