//! Rules about documents together: deprecated fields beside their replacement, and the config as a
//! whole.

use ichor_model::{Code, Finding, Findings, Minor, Severity};

use super::is_control_plane;
use crate::{
    document::{Config, Document, Node, Value},
    schema::release,
};

/// Checks the config as a whole.
pub fn check(config: &Config, talos: Minor, findings: &mut Findings) {
    let release = release(talos);
    for document in config.documents().iter().filter(|document| !document.is_legacy()) {
        findings.extend(replaced_twice(config, document, release));
    }
    vip_on_worker(config, findings);
    if release >= 14 {
        whole(config, findings);
    }
}

/// A field of the legacy document that a document cannot stand beside.
struct Conflict {
    kind: &'static str,
    /// The first Talos 1.x that minds.
    since: u8,
    path: &'static str,
    words: &'static str,
}

const fn conflict(kind: &'static str, since: u8, path: &'static str, words: &'static str) -> Conflict {
    Conflict { kind, since, path, words }
}

#[rustfmt::skip]
const CONFLICTS: &[Conflict] = &[
    conflict("HostnameConfig", 12, "machine.network.hostname", "static hostname is already set in v1alpha1 config"),
    conflict("HostnameConfig", 12, "machine.features.stableHostname", "stable hostname is already set in v1alpha1 config"),
    conflict("ResolverConfig", 12, "machine.network.searchDomains", ".machine.network.searchDomains is already set in v1alpha1 config"),
    conflict("ResolverConfig", 12, "machine.network.nameservers", ".machine.network.nameservers is already set in v1alpha1 config"),
    conflict("ResolverConfig", 12, "machine.network.disableSearchDomain", ".machine.network.disableSearchDomain is already set in v1alpha1 config"),
    conflict("TimeSyncConfig", 12, "machine.time.disabled", "time sync cannot be disabled in both v1alpha1 and new-style configuration"),
    conflict("TimeSyncConfig", 12, "machine.time.servers", "time servers cannot be specified in both v1alpha1 and new-style configuration"),
    conflict("TimeSyncConfig", 12, "machine.time.bootTimeout", "boot timeout cannot be specified in both v1alpha1 and new-style configuration"),
    conflict("KubeSpanConfig", 13, "machine.network.kubespan", "kubespan is already configured in v1alpha1 machine.network.kubespan"),
    conflict("UnattendedInstallConfig", 14, "machine.install", "UnattendedInstallConfig config is incompatible with v1alpha1 config (.machine.install)"),
    conflict("ImageCacheConfig", 14, "machine.features.imageCache", "image cache config is already set in v1alpha1 config"),
    conflict("CRIBaseRuntimeSpecConfig", 14, "machine.baseRuntimeSpecOverrides", "base runtime spec overrides are already set in v1alpha1 config"),
    conflict("DiscoveryIdentityConfig", 14, "cluster.id", "cluster identity is already configured in .cluster.id/.cluster.secret of the v1alpha1 config"),
    conflict("DiscoveryIdentityConfig", 14, "cluster.secret", "cluster identity is already configured in .cluster.id/.cluster.secret of the v1alpha1 config"),
    conflict("DiscoveryServiceConfig", 14, "cluster.discovery", "discovery service is already configured in .cluster.discovery of the v1alpha1 config"),
    conflict("KubeletConfig", 14, "machine.kubelet", "kubelet config is already set in v1alpha1 config (.machine.kubelet)"),
    conflict("KubeCredentialProviderConfig", 14, "machine.kubelet", "cannot use KubeCredentialProviderConfig with legacy kubelet configuration (.machine.kubelet)"),
    conflict("KubeNodeConfig", 14, "machine.kubelet.skipNodeRegistration", ".machine.kubelet.skipNodeRegistration is already set in v1alpha1 config"),
    conflict("KubeNodeConfig", 14, "machine.kubelet.registerWithFQDN", ".machine.kubelet.registerWithFQDN is already set in v1alpha1 config"),
    conflict("KubeNodeConfig", 14, "machine.kubelet.nodeIP", ".machine.kubelet.nodeIP is already set in v1alpha1 config"),
    conflict("KubeNodeConfig", 14, "machine.nodeLabels", ".machine.nodeLabels is already set in v1alpha1 config"),
    conflict("KubeNodeConfig", 14, "machine.nodeAnnotations", ".machine.nodeAnnotations is already set in v1alpha1 config"),
    conflict("KubeNodeConfig", 14, "machine.nodeTaints", ".machine.nodeTaints is already set in v1alpha1 config"),
    conflict("KubeNodeConfig", 14, "cluster.allowSchedulingOnControlPlanes", ".cluster.allowSchedulingOnControlPlanes is already set in v1alpha1 config"),
    conflict("KubeNodeConfig", 14, "cluster.allowSchedulingOnMasters", ".cluster.allowSchedulingOnMasters is already set in v1alpha1 config"),
    conflict("KubePrismConfig", 14, "machine.features.kubePrism", "KubePrism config in v1alpha1 config (.machine.features.kubePrism) can't be used with KubePrismConfig document"),
    conflict("KubeTalosAPIAccessConfig", 14, "machine.features.kubernetesTalosAPIAccess", ".machine.features.kubernetesTalosAPIAccess is already set in v1alpha1 config"),
    conflict("KubeClusterConfig", 14, "cluster.clusterName", "cluster name is already set in the v1alpha1 config (.cluster.clusterName)"),
    conflict("KubeClusterConfig", 14, "cluster.controlPlane.endpoint", "cluster endpoint is already set in the v1alpha1 config (.cluster.controlPlane.endpoint)"),
    conflict("KubeNetworkConfig", 14, "cluster.network", "cluster network config is already set in the v1alpha1 config (.cluster.network)"),
    conflict("KubeFlannelCNIConfig", 14, "cluster.network", "cluster network config in v1alpha1 config (.cluster.network) can't be used with KubeFlannelCNIConfig document"),
    conflict("KubeAPIServerConfig", 14, "cluster.apiServer", "kube-apiserver config is already set in v1alpha1 config (.cluster.apiServer)"),
    conflict("KubeAPIServerConfig", 14, "cluster.controlPlane.localAPIServerPort", "kube-apiserver API port is already set in v1alpha1 config (.cluster.controlPlane.localAPIServerPort)"),
    conflict("KubeAPIServerCAConfig", 14, "cluster.ca", "kube-apiserver CA is already set in v1alpha1 config (.cluster.ca)"),
    conflict("KubeAggregatorCAConfig", 14, "cluster.aggregatorCA", "kube-apiserver aggregator CA is already set in v1alpha1 config (.cluster.aggregatorCA)"),
    conflict("KubeServiceAccountConfig", 14, "cluster.serviceAccount", "service account is already set in v1alpha1 config (.cluster.serviceAccount)"),
    conflict("KubeAdmissionControlConfig", 14, "cluster.apiServer.admissionControl", "admission control plugin config is already set in v1alpha1 config"),
    conflict("KubeAuthorizerConfig", 14, "cluster.apiServer.admissionControl", "admission control plugin config is already set in v1alpha1 config"),
    conflict("KubeAuditPolicyConfig", 14, "cluster.apiServer.auditPolicy", "audit policy config is already set in v1alpha1 config"),
    conflict("KubeEtcdEncryptionConfig", 14, "cluster.secretboxEncryptionSecret", "etcd encryption config is already set in v1alpha1 config"),
    conflict("KubeEtcdEncryptionConfig", 14, "cluster.aescbcEncryptionSecret", "etcd encryption config is already set in v1alpha1 config"),
    conflict("KubeControllerManagerConfig", 14, "cluster.controllerManager", "kube-controller-manager config is already set in v1alpha1 config (.cluster.controllerManager)"),
    conflict("KubeControllerManagerConfig", 14, "machine.controlPlane.controllerManager", "kube-controller-manager config is already set in v1alpha1 config (.machine.controlPlane.controllerManager)"),
    conflict("KubeSchedulerConfig", 14, "cluster.scheduler", "kube-scheduler config is already set in v1alpha1 config (.cluster.scheduler)"),
    conflict("KubeSchedulerConfig", 14, "machine.controlPlane.scheduler", "kube-scheduler config is already set in v1alpha1 config (.machine.controlPlane.scheduler)"),
    conflict("KubeProxyConfig", 14, "cluster.proxy", "cluster proxy config in v1alpha1 config (.cluster.proxy) can't be used with KubeProxyConfig document"),
    conflict("KubeCoreDNSConfig", 14, "cluster.coreDNS", "CoreDNS config is already set in v1alpha1 config (.cluster.coreDNS)"),
];

/// Finds what a document and the legacy one both say.
pub fn replaced_twice(config: &Config, document: &Document, release: u8) -> Findings {
    let kind = document.identity().kind.as_str();
    let listed = CONFLICTS.iter().filter(|conflict| conflict.kind == kind && conflict.since <= release);
    let mut findings: Findings = listed
        .filter_map(|conflict| {
            let node = config.legacy_value(conflict.path).filter(|node| counts(conflict.path, node))?;
            Some(said_twice(document, conflict.path, node, conflict.words))
        })
        .collect();
    if let Some(finding) = special(config, document, release) {
        findings.push(finding);
    }
    findings
}

/// Whether a legacy value says anything: empty lists and labels do not, nor do these switches when
/// they are off.
fn counts(path: &str, node: &Node) -> bool {
    const SWITCHES: [&str; 3] = ["stableHostname", "disableSearchDomain", "disabled"];
    match &node.value {
        Value::Bool(switch) => *switch || !SWITCHES.iter().any(|key| path.ends_with(key)),
        Value::List(items) => !items.is_empty(),
        Value::Map(map) => !map.is_empty() || !path.starts_with("machine.node"),
        _ => true,
    }
}

/// Conflicts that depend on more than a field being there.
fn special(config: &Config, document: &Document, release: u8) -> Option<Finding> {
    let name = document.identity().name.as_str();
    match document.identity().kind.as_str() {
        "ResolverConfig" if release >= 14 && document.value("hostDNS").is_some() => {
            let node = config.legacy_value("machine.features.hostDNS")?;
            let words = ".machine.features.hostDNS is already set in v1alpha1 config";
            Some(said_twice(document, "machine.features.hostDNS", node, words))
        }
        "VolumeConfig" if release >= 11 && document.value("encryption").is_some() => {
            let path = match name {
                "STATE" => "machine.systemDiskEncryption.state",
                "EPHEMERAL" => "machine.systemDiskEncryption.ephemeral",
                _ => return None,
            };
            let node = config.legacy_value(path)?;
            let words = format!(
                "system disk encryption for \"{name}\" is configured in both v1alpha1.Config and VolumeConfig"
            );
            Some(said_twice(document, path, node, &words))
        }
        _ => None,
    }
}

fn said_twice(document: &Document, path: &str, node: &Node, words: &str) -> Finding {
    let label = document.identity().label();
    let code = match document.identity().kind.as_str() {
        "HostnameConfig" => Code::PATCH_HOSTNAME,
        _ => Code::CONFIG_REFUSED,
    };
    let finding = Finding::error(code, node.at.or(document.at()), words);
    let finding = match document.at() {
        Some(at) => finding.see(at, format!("{label} is here")),
        None => finding,
    };
    finding.because(format!("`{path}` and {label} say the same thing")).remedy(format!(
        "remove `{path}` and say it in {label}, or delete the document with `$patch: delete`"
    ))
}

/// Talos takes it, but a worker has no etcd to elect the holder with.
fn vip_on_worker(config: &Config, findings: &mut Findings) {
    if config.legacy().is_none() || is_control_plane(config.legacy()) {
        return;
    }
    for document in config.of_kind("Layer2VIPConfig").chain(config.of_kind("HCloudVIPConfig")) {
        let message = format!("{} is on a worker", document.identity().label());
        let finding = Finding {
            severity: Severity::Warning,
            ..Finding::error(Code::CONFIG_REFUSED, document.at(), message)
        };
        findings.push(
            finding
                .because("the VIP is elected through etcd, which only control planes run")
                .remedy("make the patch one for control planes"),
        );
    }
}

/// Rules that Talos 1.14 brought for the whole config.
fn whole(config: &Config, findings: &mut Findings) {
    let whole = Whole { config, control_plane: is_control_plane(config.legacy()) };
    findings.extend(whole.control_plane_only());
    let at = config.legacy().and_then(Document::at);
    for (words, remedy) in
        [whole.kubernetes(), whole.encryption(), whole.discovery(), whole.kubespan(), whole.dns()]
            .into_iter()
            .flatten()
    {
        findings.push(Finding::error(Code::CONFIG_REFUSED, at, words).remedy(remedy));
    }
}

/// What is missing, and what to do about it.
type Missing = Option<(&'static str, &'static str)>;

struct Whole<'a> {
    config: &'a Config,
    control_plane: bool,
}

impl Whole<'_> {
    fn has(&self, kind: &str) -> bool {
        self.config.of_kind(kind).next().is_some()
    }

    fn legacy(&self, path: &str) -> bool {
        self.config.legacy_value(path).is_some()
    }

    /// Whether a switch is on in the legacy document or in a document of a kind.
    fn is_on(&self, legacy: &str, kind: &str, path: &str) -> bool {
        let on = |node: Option<&Node>| node.and_then(Node::as_bool) == Some(true);
        on(self.config.legacy_value(legacy))
            || self.config.of_kind(kind).any(|document| on(document.value(path)))
    }

    fn control_plane_only(&self) -> Findings {
        let documents = self.config.documents().iter();
        let wrong = documents.filter(|document| {
            !self.control_plane && document.schema().is_some_and(|kind| kind.control_plane_only)
        });
        wrong
            .map(|document| {
                let kind = &document.identity().kind;
                let words = format!(
                    "the following document kinds are only allowed on control plane machines: [{kind}]"
                );
                let finding = Finding::error(Code::CONFIG_REFUSED, document.at(), words);
                finding.remedy("make the patch one for control planes")
            })
            .collect()
    }

    fn has_authority(&self) -> bool {
        self.has("KubeAPIServerCAConfig") || self.legacy("cluster.ca") || self.legacy("cluster.acceptedCAs")
    }

    fn kubernetes(&self) -> Missing {
        let cluster = self.has("KubeClusterConfig") || self.legacy("cluster.controlPlane.endpoint");
        (self.has_authority() && !cluster).then_some((
            "cluster name and endpoint are required when Kubernetes is configured",
            "add a KubeClusterConfig document",
        ))
    }

    fn encryption(&self) -> Missing {
        let encryption = self.has("KubeEtcdEncryptionConfig")
            || self.legacy("cluster.secretboxEncryptionSecret")
            || self.legacy("cluster.aescbcEncryptionSecret");
        (self.control_plane && self.has_authority() && !encryption).then_some((
            "etcd encryption config is required for control plane machines running kube-apiserver",
            "add a KubeEtcdEncryptionConfig document",
        ))
    }

    fn discovery(&self) -> Missing {
        let legacy = self.legacy("cluster.id") && self.legacy("cluster.secret");
        let identity = self.has("DiscoveryIdentityConfig") || legacy;
        (self.has("DiscoveryServiceConfig") && !identity).then_some((
            "cluster ID and secret should be set when cluster discovery (DiscoveryServiceConfig) is enabled",
            "add a DiscoveryIdentityConfig document",
        ))
    }

    fn kubespan(&self) -> Missing {
        let on = self.is_on("machine.network.kubespan.enabled", "KubeSpanConfig", "enabled");
        let discovery = self.is_on("cluster.discovery.enabled", "", "") || self.has("DiscoveryServiceConfig");
        (on && !discovery).then_some((
            "KubeSpan requires cluster discovery to be enabled",
            "add a DiscoveryServiceConfig document",
        ))
    }

    fn dns(&self) -> Missing {
        let encrypted = self.config.of_kind("ResolverConfig").any(|document| {
            let servers = document.value("nameservers").and_then(Node::as_list).unwrap_or_default();
            servers.iter().any(|server| server.get("protocol").is_some())
        });
        let on = self.is_on("machine.features.hostDNS.enabled", "ResolverConfig", "hostDNS.enabled");
        (encrypted && !on).then_some((
            "hostDNS must be enabled when using non-default DNS protocols",
            "set `hostDNS.enabled: true` in the ResolverConfig",
        ))
    }
}
