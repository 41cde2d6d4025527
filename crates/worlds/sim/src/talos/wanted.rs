//! What a machine config asks of a machine, whichever contract it was written for.

use std::{collections::BTreeMap, net::IpAddr};

use base64::{Engine, engine::general_purpose::STANDARD};
use ichor_machineconfig::{
    Config, Document,
    document::{Map, Node},
};
use serde::{Deserialize, Serialize};

use super::cloud::prefix;

/// A certificate and its key as PEM; empty where there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// The key.
    pub key: String,
}

/// What a config asks for.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Wanted {
    /// `controlplane`, `init` or `worker`; empty while the config has no v1alpha1 document.
    pub kind: String,
    /// The token that trustd asks for.
    pub token: String,
    /// The CA of the Talos API.
    pub os: Pair,
    /// Other CAs whose clients are let in.
    pub accepted: Vec<String>,
    /// More names of the Talos API.
    pub sans: Vec<String>,
    /// The name of the cluster for discovery.
    pub cluster_id: String,
    /// The secret of discovery.
    pub cluster_secret: String,
    /// The cluster's name.
    pub cluster: String,
    /// The URL of the control plane.
    pub endpoint: String,
    /// The bootstrap token of Kubernetes.
    pub bootstrap_token: String,
    /// The CA of etcd.
    pub etcd: Pair,
    /// The CA of Kubernetes.
    pub kubernetes: Pair,
    /// Whether machines find each other through the discovery service.
    pub discovery: bool,
    /// Whether Talos installs a pod network.
    pub cni_included: bool,
    /// Whether kube-proxy runs.
    pub kube_proxy: bool,
    /// Images by component: `kubelet`, `kube-apiserver` and so on.
    pub images: BTreeMap<String, String>,
    /// More names of the Kubernetes API.
    pub kube_sans: Vec<String>,
    /// The port of the API server.
    pub api_port: u16,
    /// Labels of the node.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the node.
    pub annotations: BTreeMap<String, String>,
    /// Taints of the node.
    pub taints: BTreeMap<String, String>,
    /// Whether a cloud controller manager is awaited.
    pub external_cloud_provider: bool,
    /// The host name.
    pub hostname: Option<String>,
    /// Whether a host name is made from the machine's identity when nobody gives one.
    pub stable_hostname: bool,
    /// Links and their addresses.
    pub links: Vec<WantedLink>,
    /// Shared addresses of the control plane.
    pub vips: Vec<IpAddr>,
    /// Name servers.
    pub resolvers: Vec<IpAddr>,
    /// Time servers.
    pub time_servers: Vec<String>,
    /// Whether the clock is left alone.
    pub time_disabled: bool,
    /// Where Talos is to be installed.
    pub install: Option<Install>,
    /// Pod networks.
    pub pods: Vec<String>,
    /// Service networks.
    pub services: Vec<String>,
    /// The DNS domain of the cluster.
    pub domain: String,
}

/// A link of a config.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedLink {
    /// Its name or alias.
    pub name: String,
    /// The MAC address it is recognised by, in lower case.
    pub mac: Option<String>,
    /// Its addresses.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Its gateways.
    pub gateways: Vec<IpAddr>,
    /// Whether it asks a DHCP server.
    pub dhcp: bool,
    /// Whether it is left alone.
    pub ignore: bool,
}

/// Where Talos is to be installed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Install {
    /// The disk; empty: the first that fits the selector.
    pub disk: String,
    /// A serial that the disk must have.
    pub serial: Option<String>,
    /// The installer.
    pub image: Option<String>,
}

impl Wanted {
    /// Whether the machine is part of the control plane.
    pub fn is_control_plane(&self) -> bool {
        matches!(self.kind.as_str(), "controlplane" | "init")
    }

    /// Returns the host of the endpoint.
    pub fn endpoint_host(&self) -> &str {
        let rest = self.endpoint.split_once("://").map_or(self.endpoint.as_str(), |(_, rest)| rest);
        let rest = rest.split('/').next().unwrap_or_default();
        match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, _)) => host,
            None => rest.rsplit_once(':').map_or(rest, |(host, _)| host),
        }
    }

    /// Returns the version of an image, such as `v1.36.3`.
    pub fn version_of(&self, component: &str) -> String {
        let image = self.images.get(component).map_or("", String::as_str);
        let tag = image.split('@').next().unwrap_or_default().rsplit_once(':').map_or("", |(_, tag)| tag);
        tag.trim_end_matches("-slim").trim_end_matches("-fat").to_owned()
    }

    /// Reads a config.
    pub fn read(config: &Config) -> Self {
        let mut wanted = Self {
            cni_included: true,
            kube_proxy: true,
            api_port: 6443,
            domain: "cluster.local".into(),
            discovery: config.of_kind("DiscoveryServiceConfig").next().is_some(),
            ..Self::default()
        };
        if let Some(legacy) = config.legacy() {
            wanted.machine(legacy);
            wanted.legacy_network(legacy);
            wanted.legacy_cluster(legacy);
        }
        wanted.kube_documents(config);
        wanted.network_documents(config);
        wanted
    }

    fn machine(&mut self, legacy: &Document) {
        let text = |path: &str| text(legacy.value(path));
        self.kind = text("machine.type");
        self.token = text("machine.token");
        self.os = Pair { certificate: pem(&text("machine.ca.crt")), key: pem(&text("machine.ca.key")) };
        self.accepted = items(legacy.value("machine.acceptedCAs"))
            .iter()
            .map(|item| pem(&text_at(item, "crt")))
            .collect();
        self.sans = texts(legacy.value("machine.certSANs"));
        for (component, path) in [
            ("kubelet", "machine.kubelet.image"),
            ("kube-apiserver", "cluster.apiServer.image"),
            ("kube-controller-manager", "cluster.controllerManager.image"),
            ("kube-scheduler", "cluster.scheduler.image"),
            ("kube-proxy", "cluster.proxy.image"),
        ] {
            let image = text(path);
            if !image.is_empty() {
                self.images.insert(component.to_owned(), image);
            }
        }
        self.labels = map(legacy.value("machine.nodeLabels"));
        self.annotations = map(legacy.value("machine.nodeAnnotations"));
        self.taints = map(legacy.value("machine.nodeTaints"));
        self.time_servers = texts(legacy.value("machine.time.servers"));
        self.time_disabled = flag(legacy.value("machine.time.disabled"), false);
        self.stable_hostname = flag(legacy.value("machine.features.stableHostname"), false);
        self.install = legacy.value("machine.install").map(|install| Install {
            disk: text_at(install, "disk"),
            serial: install.at_path("diskSelector.serial").and_then(Node::as_text).map(str::to_owned),
            image: install.get("image").and_then(Node::as_text).map(str::to_owned),
        });
    }

    fn legacy_network(&mut self, legacy: &Document) {
        self.hostname = legacy.value("machine.network.hostname").and_then(Node::as_text).map(str::to_owned);
        self.resolvers = addresses(&texts(legacy.value("machine.network.nameservers")));
        for interface in items(legacy.value("machine.network.interfaces")) {
            let selector = interface.get("deviceSelector");
            let mac = ["hardwareAddr", "permanentAddr"]
                .iter()
                .find_map(|key| selector?.get(key)?.as_text())
                .map(str::to_lowercase);
            let routes = items(interface.get("routes"));
            let default =
                |route: &&Node| matches!(text_at(route, "network").as_str(), "" | "0.0.0.0/0" | "::/0");
            self.vips.extend(
                interface.at_path("vip.ip").and_then(Node::as_text).and_then(|ip| ip.parse::<IpAddr>().ok()),
            );
            self.links.push(WantedLink {
                name: text_at(interface, "interface"),
                mac,
                addresses: texts(interface.get("addresses")).iter().filter_map(|text| prefix(text)).collect(),
                gateways: addresses(
                    &routes.iter().filter(default).map(|route| text_at(route, "gateway")).collect::<Vec<_>>(),
                ),
                dhcp: flag(interface.get("dhcp"), false),
                ignore: flag(interface.get("ignore"), false),
            });
        }
    }

    fn legacy_cluster(&mut self, legacy: &Document) {
        let text = |path: &str| text(legacy.value(path));
        self.cluster_id = text("cluster.id");
        self.cluster_secret = text("cluster.secret");
        self.cluster = text("cluster.clusterName");
        self.endpoint = text("cluster.controlPlane.endpoint");
        self.bootstrap_token = text("cluster.token");
        self.etcd =
            Pair { certificate: pem(&text("cluster.etcd.ca.crt")), key: pem(&text("cluster.etcd.ca.key")) };
        self.kubernetes =
            Pair { certificate: pem(&text("cluster.ca.crt")), key: pem(&text("cluster.ca.key")) };
        self.discovery |= flag(legacy.value("cluster.discovery.enabled"), false)
            && !flag(legacy.value("cluster.discovery.registries.service.disabled"), false);
        let cni = text("cluster.network.cni.name");
        self.cni_included = legacy.value("cluster").is_some() && !matches!(cni.as_str(), "none");
        self.kube_proxy = !flag(legacy.value("cluster.proxy.disabled"), false);
        self.kube_sans = texts(legacy.value("cluster.apiServer.certSANs"));
        self.pods = texts(legacy.value("cluster.network.podSubnets"));
        self.services = texts(legacy.value("cluster.network.serviceSubnets"));
        let domain = text("cluster.network.dnsDomain");
        if !domain.is_empty() {
            self.domain = domain;
        }
        let port = legacy.value("cluster.controlPlane.localAPIServerPort").and_then(Node::as_int);
        if let Some(port) = port.and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0) {
            self.api_port = port;
        }
        self.external_cloud_provider = flag(legacy.value("cluster.externalCloudProvider.enabled"), false);
        if self.is_control_plane() {
            self.labels.insert("node-role.kubernetes.io/control-plane".into(), String::new());
            let schedulable = flag(legacy.value("cluster.allowSchedulingOnControlPlanes"), false);
            if !schedulable && legacy.value("cluster.network").is_some() {
                self.taints.insert("node-role.kubernetes.io/control-plane".into(), "NoSchedule".into());
            }
        }
    }

    /// Since 1.14 documents take the place of `cluster` and most of `machine`.
    fn kube_documents(&mut self, config: &Config) {
        if let Some(identity) = config.of_kind("DiscoveryIdentityConfig").next() {
            self.cluster_id = text(identity.value("clusterID"));
            self.cluster_secret = text(identity.value("clusterSecret"));
        }
        if let Some(cluster) = config.of_kind("KubeClusterConfig").next() {
            self.cluster = text(cluster.value("clusterName"));
            self.endpoint = text(cluster.value("endpoint"));
            self.cni_included = config.of_kind("KubeFlannelCNIConfig").next().is_some();
        }
        if let Some(ca) = config.of_kind("KubeAPIServerCAConfig").next() {
            let accepted = texts(ca.value("acceptedCAs")).into_iter().next().unwrap_or_default();
            let certificate = text(ca.value("issuingCA.cert"));
            self.kubernetes = Pair {
                certificate: if certificate.is_empty() { accepted } else { certificate },
                key: text(ca.value("issuingCA.key")),
            };
        }
        for (component, kind) in [
            ("kubelet", "KubeletConfig"),
            ("kube-apiserver", "KubeAPIServerConfig"),
            ("kube-controller-manager", "KubeControllerManagerConfig"),
            ("kube-scheduler", "KubeSchedulerConfig"),
            ("kube-proxy", "KubeProxyConfig"),
        ] {
            if let Some(image) = config.of_kind(kind).next().map(|document| text(document.value("image"))) {
                self.images.insert(component.to_owned(), image);
            }
        }
        if let Some(node) = config.of_kind("KubeNodeConfig").next() {
            self.labels.extend(map(node.value("labels")));
            self.annotations.extend(map(node.value("annotations")));
            self.taints.extend(map(node.value("taints")));
        }
        if let Some(server) = config.of_kind("KubeAPIServerConfig").next() {
            self.kube_sans.extend(texts(server.value("certExtraSANs")));
            let port =
                server.value("apiPort").and_then(Node::as_int).and_then(|port| u16::try_from(port).ok());
            self.api_port = port.unwrap_or(self.api_port);
        }
        if let Some(network) = config.of_kind("KubeNetworkConfig").next() {
            self.pods = texts(network.value("podSubnets"));
            self.services = texts(network.value("serviceSubnets"));
            self.domain = text(network.value("dnsDomain"));
        }
        if let Some(proxy) = config.of_kind("KubeProxyConfig").next() {
            self.kube_proxy = flag(proxy.value("enabled"), true);
        }
        if let Some(install) = config.of_kind("UnattendedInstallConfig").next() {
            let selector = text(install.value("provisioning.diskSelector.match"));
            self.install = Some(Install {
                disk: quoted_after(&selector, "disk.dev_path").unwrap_or_default(),
                serial: quoted_after(&selector, "disk.serial"),
                image: install.value("installer.image").and_then(Node::as_text).map(str::to_owned),
            });
        }
    }

    fn network_documents(&mut self, config: &Config) {
        if let Some(hostname) = config.of_kind("HostnameConfig").next() {
            self.stable_hostname = text(hostname.value("auto")) == "stable";
            self.hostname = hostname.value("hostname").and_then(Node::as_text).map(str::to_owned);
        }
        let aliases: BTreeMap<String, String> = config
            .of_kind("LinkAliasConfig")
            .filter_map(|alias| {
                Some((alias.identity().name.clone(), mac_in(&text(alias.value("selector.match")))?))
            })
            .collect();
        for link in config.of_kind("LinkConfig") {
            let default =
                |route: &&Node| matches!(text_at(route, "destination").as_str(), "" | "0.0.0.0/0" | "::/0");
            let routes = items(link.value("routes"));
            let name = link.identity().name.clone();
            self.links.push(WantedLink {
                mac: aliases.get(&name).cloned(),
                addresses: items(link.value("addresses"))
                    .iter()
                    .filter_map(|address| prefix(&text_at(address, "address")))
                    .collect(),
                gateways: addresses(
                    &routes.iter().filter(default).map(|route| text_at(route, "gateway")).collect::<Vec<_>>(),
                ),
                dhcp: config.of_kind("DHCPv4Config").any(|dhcp| dhcp.identity().name == name),
                ignore: false,
                name,
            });
        }
        for dhcp in config.of_kind("DHCPv4Config") {
            let name = &dhcp.identity().name;
            if !self.links.iter().any(|link| link.name == *name) {
                let mac = aliases.get(name).cloned();
                self.links.push(WantedLink { name: name.clone(), mac, dhcp: true, ..WantedLink::default() });
            }
        }
        self.vips.extend(
            config.of_kind("Layer2VIPConfig").filter_map(|vip| vip.identity().name.parse::<IpAddr>().ok()),
        );
        for resolver in config.of_kind("ResolverConfig") {
            let servers: Vec<String> = items(resolver.value("nameservers"))
                .iter()
                .map(|server| text_at(server, "address"))
                .collect();
            self.resolvers.extend(addresses(&servers));
        }
        if let Some(time) = config.of_kind("TimeSyncConfig").next() {
            self.time_servers = texts(time.value("ntp.servers"));
            self.time_disabled = !flag(time.value("enabled"), true);
        }
    }
}

fn text(node: Option<&Node>) -> String {
    node.and_then(Node::as_text).unwrap_or_default().to_owned()
}

fn text_at(node: &Node, key: &str) -> String {
    text(node.get(key))
}

fn items(node: Option<&Node>) -> &[Node] {
    node.and_then(Node::as_list).unwrap_or_default()
}

fn texts(node: Option<&Node>) -> Vec<String> {
    items(node).iter().filter_map(Node::as_text).map(str::to_owned).collect()
}

fn flag(node: Option<&Node>, otherwise: bool) -> bool {
    node.and_then(Node::as_bool).unwrap_or(otherwise)
}

fn map(node: Option<&Node>) -> BTreeMap<String, String> {
    let entries = node.and_then(Node::as_map).into_iter().flat_map(Map::iter);
    entries.map(|(key, value)| (key.text.clone(), value.as_text().unwrap_or_default().to_owned())).collect()
}

fn addresses(texts: &[String]) -> Vec<IpAddr> {
    texts.iter().filter_map(|text| text.parse().ok()).collect()
}

/// The legacy document holds PEM text in base64.
fn pem(text: &str) -> String {
    STANDARD.decode(text.trim()).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

/// Finds the text in quotes that an expression compares something with.
fn quoted_after(expression: &str, what: &str) -> Option<String> {
    let (_, rest) = expression.split_once(what)?;
    let (_, rest) = rest.split_once(['"', '\''])?;
    rest.split(['"', '\'']).next().map(str::to_owned)
}

/// Finds a MAC address in an expression; the lab does not evaluate CEL.
fn mac_in(expression: &str) -> Option<String> {
    let is_mac = |text: &&str| {
        let parts: Vec<&str> = text.split(':').collect();
        parts.len() == 6
            && parts.iter().all(|part| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    expression.split(['"', '\'']).find(is_mac).map(str::to_lowercase)
}
