//! The cluster as a whole, and where its API is.

use std::{fmt, net::IpAddr};

use serde::Serialize;

use super::{Late, Manifest};
use crate::{ClusterName, KubernetesVersion, Minor, TalosVersion};

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
