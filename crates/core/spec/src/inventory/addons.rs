//! `addons`: what is installed on the cluster.

use ichor_model::At;
use schemars::JsonSchema;

use super::List;
use crate::{
    read::{Read, Reader, record},
    values::{Any, FilePath, Release, Secret, Url},
    yaml::{Kind, Node},
};

record! {
    /// What is installed on the cluster, in the order that works.
    Addons {
        /// The pod network: `cilium`, `flannel` (the default) or `none`.
        cni: AddonChoice,
        /// The Proxmox cloud controller manager.
        ccm: Addon,
        /// The Proxmox CSI plugin and its storage classes.
        csi: Csi,
        /// Hands the cluster over to Flux or Argo CD.
        gitops: Gitops,
        /// Gateway API resource definitions.
        gateway_api: Addon,
        /// Approves the kubelets' serving certificates.
        kubelet_cert_approver: Addon,
        /// Metrics for `kubectl top` and autoscaling.
        metrics_server: Addon,
        /// Resource definitions of the Prometheus operator.
        prometheus_crds: Addon,
        /// Monitoring: `kube-prometheus-stack` or `victoria-metrics`.
        monitoring: AddonChoice,
        /// Logs: `loki`.
        logs: AddonChoice,
        /// Ingress: `traefik` or `ingress-nginx`.
        ingress: AddonChoice,
        /// Certificates.
        cert_manager: Addon,
        /// Addresses for services: `metallb` or `cilium`.
        load_balancer: LoadBalancer,
        /// Replicated storage on extra disks.
        longhorn: Addon,
        /// Any other charts.
        charts: List<Chart>,
        /// Any other manifests, applied last.
        manifests: List<Manifest>,
    }
}

record! {
    /// Settings of an add-on.
    AddonSettings {
        /// Its release. Absent: the one this ichor was tested with.
        version: Release,
        /// Values, as for its Helm chart.
        values: Any,
        /// A file with values, relative to the file that names it.
        values_file: FilePath,
    }
}

/// An add-on: `true`, `false`, a release, or a map with settings.
#[derive(Debug, Clone, PartialEq, JsonSchema)]
#[schemars(untagged)]
pub enum Addon {
    /// Installed or not, with defaults.
    Switch(bool),
    /// Installed in this release.
    Version(Release),
    /// Installed with settings.
    Settings(AddonSettings),
}

impl Read for Addon {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        match &node.kind {
            Kind::Scalar { text, .. }
                if text.starts_with('v') || text.starts_with(|c: char| c.is_ascii_digit()) =>
            {
                Release::read(node, reader).map(Self::Version)
            }
            Kind::Scalar { .. } => bool::read(node, reader).map(Self::Switch),
            _ => AddonSettings::read(node, reader).map(Self::Settings),
        }
    }

    fn over(self, below: Self) -> Self {
        match (self, below) {
            (Self::Settings(above), Self::Settings(below)) => Self::Settings(above.over(below)),
            (above, _) => above,
        }
    }
}

impl Addon {
    /// Returns the settings if the add-on is wanted.
    pub fn settings(&self) -> Option<AddonSettings> {
        match self {
            Self::Switch(false) => None,
            Self::Switch(true) => Some(AddonSettings::default()),
            Self::Version(version) => Some(AddonSettings {
                version: Some(At::new(version.clone(), ichor_model::Span::default())),
                ..AddonSettings::default()
            }),
            Self::Settings(settings) => Some(settings.clone()),
        }
    }
}

/// One of several programs: its name, or a map from its name to its settings.
#[derive(Debug, Clone, PartialEq)]
pub struct AddonChoice {
    /// Which one.
    pub name: At<String>,
    /// Its settings.
    pub settings: AddonSettings,
}

impl Read for AddonChoice {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        match &node.kind {
            Kind::Map(entries) if entries.len() == 1 => {
                let (key, value) = &entries[0];
                let settings = AddonSettings::read(value, reader)?;
                Some(Self { name: At::new(key.text.clone(), key.span), settings })
            }
            Kind::Scalar { .. } => {
                let name = String::read(node, reader)?;
                Some(Self { name: At::new(name, node.span), settings: AddonSettings::default() })
            }
            _ => {
                reader.wrong_kind(node, "the name of one program, or a map from its name to its settings");
                None
            }
        }
    }

    fn over(self, below: Self) -> Self {
        if self.name.value == below.name.value {
            return Self { name: self.name, settings: self.settings.over(below.settings) };
        }
        self
    }
}

impl JsonSchema for AddonChoice {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AddonChoice".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let settings = generator.subschema_for::<AddonSettings>();
        schemars::json_schema!({
            "description": "One of several programs: its name, or a map from its name to its settings.",
            "anyOf": [
                { "type": "string" },
                { "type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": settings },
            ],
        })
    }
}

/// The Proxmox CSI plugin: `true`, `false`, or a map with settings.
#[derive(Debug, Clone, PartialEq, JsonSchema)]
#[schemars(untagged)]
pub enum Csi {
    /// Installed or not, with defaults.
    Switch(bool),
    /// Installed with settings.
    Settings(CsiSettings),
}

impl Read for Csi {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        match &node.kind {
            Kind::Scalar { .. } => bool::read(node, reader).map(Self::Switch),
            _ => CsiSettings::read(node, reader).map(Self::Settings),
        }
    }
}

impl Csi {
    /// Returns the settings if the plugin is wanted.
    pub fn settings(&self) -> Option<CsiSettings> {
        match self {
            Self::Switch(false) => None,
            Self::Switch(true) => Some(CsiSettings::default()),
            Self::Settings(settings) => Some(settings.clone()),
        }
    }
}

record! {
    /// Settings of the Proxmox CSI plugin.
    CsiSettings {
        /// Its release.
        version: Release,
        /// Values, as for its Helm chart.
        values: Any,
        /// A file with values, relative to the file that names it.
        values_file: FilePath,
        /// Storage classes to make.
        storage_classes: List<StorageClass>,
    }
}

record! {
    /// A Kubernetes storage class on a Proxmox storage.
    StorageClass {
        /// Its name.
        name: String,
        /// The Proxmox storage.
        storage: String,
        /// The filesystem of its volumes.
        filesystem: crate::values::Filesystem,
        /// Makes it the default class.
        default: bool,
        /// Keeps volumes when their claim is deleted.
        retain: bool,
    }
}

record! {
    /// Hands the cluster over to a GitOps agent.
    Gitops {
        /// Flux.
        flux: Git,
        /// Argo CD.
        argocd: Git,
    }
}

record! {
    /// The repository that a GitOps agent follows.
    Git {
        /// The agent's release.
        version: Release,
        /// The repository. Absent: the agent is installed and follows nothing yet.
        url: Url,
        /// The branch.
        branch: String,
        /// The directory inside the repository.
        path: String,
        /// The user, for https.
        username: String,
        /// The password or token, for https.
        password: Secret,
        /// The private key, for ssh.
        ssh_key: Secret,
        /// The age key that decrypts SOPS files in the repository.
        sops_key: Secret,
        /// Values, as for the agent's Helm chart.
        values: Any,
    }
}

/// Addresses for services of type `LoadBalancer`.
#[derive(Debug, Clone, PartialEq, JsonSchema)]
#[schemars(untagged)]
pub enum LoadBalancer {
    /// The program, without address pools.
    Name(String),
    /// The program with its settings.
    Settings(LoadBalancerSettings),
}

record! {
    /// Settings of the load balancer.
    LoadBalancerSettings {
        /// `metallb` or `cilium`.
        kind: String,
        /// Its release.
        version: Release,
        /// Address pools: networks, or ranges such as `10.0.0.200-10.0.0.220`.
        pools: List<String>,
        /// Values, as for its Helm chart.
        values: Any,
    }
}

impl LoadBalancer {
    /// Returns the settings in their full form.
    pub fn settings(&self, span: ichor_model::Span) -> LoadBalancerSettings {
        match self {
            Self::Name(name) => LoadBalancerSettings {
                kind: Some(At::new(name.clone(), span)),
                ..LoadBalancerSettings::default()
            },
            Self::Settings(settings) => settings.clone(),
        }
    }
}

impl Read for LoadBalancer {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        match node.kind {
            Kind::Scalar { .. } => String::read(node, reader).map(Self::Name),
            _ => LoadBalancerSettings::read(node, reader).map(Self::Settings),
        }
    }
}

record! {
    /// A Helm chart.
    Chart {
        /// The release's name.
        name: String,
        /// The chart: `oci://registry/path`, or its name in `repository`.
        chart: String,
        /// The chart repository.
        repository: Url,
        /// The chart's version.
        version: Release,
        /// The namespace.
        namespace: String,
        /// Values.
        values: Any,
        /// A file with values, relative to the file that names it.
        values_file: FilePath,
    }
}

record! {
    /// A manifest: a file, an address, or written here.
    Manifest {
        /// Its name.
        name: String,
        /// A file, relative to the file that names it.
        file: FilePath,
        /// An address to fetch it from.
        url: Url,
        /// The manifest itself.
        inline: Any,
    }
}
