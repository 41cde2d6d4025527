//! Looking at a patch before there is a config to apply it to.
//!
//! A patch meets a config that was generated for a contract (the Talos minor at the cluster's
//! creation) on a node that runs some Talos. What the node does not know, what the contract's own
//! documents already say, and what was replaced, is found here.

use ichor_model::{Code, Finding, Findings, Minor, Span};

use crate::{
    document::{Config, Document, Map, Value, read::Path},
    patch::Patch,
    schema::{self, Replaced, Struct, Type, release},
    validate::{replaced_twice, too_new},
};

/// What a patch is meant for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// The Talos that runs on the machines.
    pub talos: Minor,
    /// The Talos minor that configs are generated for.
    pub contract: Minor,
}

impl Target {
    /// A cluster whose contract is that of its Talos.
    pub const fn new(talos: Minor) -> Self {
        Self { talos, contract: talos }
    }
}

/// Says what is wrong with a patch, or will be.
pub fn lint(patch: &Patch, target: Target) -> Findings {
    let mut findings = patch.notes().clone();
    if let Some(finding) = patch.refused_by_contract(target.contract) {
        findings.push(finding);
    }
    let documents: Vec<&Document> = patch.documents().collect();
    findings.extend(too_new(documents.iter().copied(), target.talos));
    let base = base_documents(release(target.contract));
    for document in &documents {
        if document.is_legacy() {
            findings.extend(taken(document, &documents, &base, target));
            findings.extend(deprecated(document, target));
        } else if document.identity().kind == "HostnameConfig" {
            findings.extend(hostname(document, target));
        }
    }
    patch.told(&findings)
}

/// Kinds that configs of a contract have from the beginning and that say what legacy fields said.
fn base_documents(contract: u8) -> Vec<Document> {
    const SINCE_1_14: [&str; 22] = [
        "DiscoveryServiceConfig",
        "DiscoveryIdentityConfig",
        "UnattendedInstallConfig",
        "KubeClusterConfig",
        "KubeNodeConfig",
        "KubeletConfig",
        "KubeNetworkConfig",
        "KubeAPIServerCAConfig",
        "KubePrismConfig",
        "KubeAggregatorCAConfig",
        "KubeAdmissionControlConfig",
        "KubeAuditPolicyConfig",
        "KubeAuthorizerConfig",
        "KubeEtcdEncryptionConfig",
        "KubeServiceAccountConfig",
        "KubeAPIServerConfig",
        "KubeControllerManagerConfig",
        "KubeSchedulerConfig",
        "KubeProxyConfig",
        "KubeFlannelCNIConfig",
        "KubeCoreDNSConfig",
        "ResolverConfig",
    ];
    let hostname = (contract >= 12).then_some("HostnameConfig");
    let later = SINCE_1_14.iter().copied().filter(|_| contract >= 14);
    hostname.into_iter().chain(later).map(Document::empty).collect()
}

/// What the host's resolver is in documents of the 1.14 contract, which no other field tells.
const HOST_DNS: &str = "machine.features.hostDNS";

/// Fields of the legacy document that a document of the patch or of the contract already says.
fn taken(legacy: &Document, patch: &[&Document], base: &[Document], target: Target) -> Findings {
    let mut config = Config::default();
    config.push(legacy.clone());
    let release = self::release(target.talos);
    let mut findings = Findings::new();
    for document in patch.iter().filter(|document| !document.is_legacy()) {
        findings.extend(replaced_twice(&config, document, release));
    }
    for document in base {
        for finding in &replaced_twice(&config, document, release) {
            let kind = &document.identity().kind;
            let note = format!("configs of the {} contract have a {kind} document", target.contract);
            let remedy = format!("say it in a {kind} document of the patch instead");
            findings.push(finding.clone().because(note).remedy(remedy));
        }
    }
    if release >= 14
        && self::release(target.contract) >= 14
        && let Some(node) = legacy.value(HOST_DNS)
    {
        findings.push(
            Finding::error(
                Code::CONFIG_REFUSED,
                node.at,
                format!(".{HOST_DNS} is already set in a ResolverConfig document"),
            )
            .because(format!("configs of the {} contract have a ResolverConfig document", target.contract))
            .remedy("say it in a ResolverConfig document of the patch instead"),
        );
    }
    findings
}

/// Deprecated fields, with what took over.
fn deprecated(legacy: &Document, target: Target) -> Findings {
    let mut walk = Deprecated {
        release: release(target.talos).min(release(target.contract)),
        path: Path::default(),
        findings: Findings::new(),
    };
    walk.fields(legacy.body(), &schema::LEGACY.body);
    walk.findings
}

struct Deprecated {
    release: u8,
    path: Path,
    findings: Findings,
}

impl Deprecated {
    fn fields(&mut self, map: &Map, body: &Struct) {
        for (key, node) in map.iter() {
            let Some(field) = body.field(&key.text) else { continue };
            self.path.key(&key.text);
            match field.replaced {
                Some(replaced) if replaced.since <= self.release => self.report(replaced, key.at.or(node.at)),
                _ => self.value(&node.value, field.kind),
            }
            self.path.up();
        }
    }

    fn value(&mut self, value: &Value, kind: Type) {
        match (kind, value) {
            (Type::Struct(body), Value::Map(map)) => self.fields(map, body),
            (Type::List(item), Value::List(items)) => {
                for (i, node) in items.iter().enumerate() {
                    self.path.index(i);
                    self.value(&node.value, *item);
                    self.path.up();
                }
            }
            _ => {}
        }
    }

    fn report(&mut self, replaced: Replaced, at: Option<Span>) {
        let message = format!("`{}` is deprecated since Talos 1.{}", self.path, replaced.since.max(8));
        let finding = Finding::warning(Code::CONFIG_RELEASE, at, message);
        self.findings.push(finding.remedy(format!("use {}", replaced.by)));
    }
}

/// A name alone is not enough where the contract's own document says `auto: stable`.
fn hostname(document: &Document, target: Target) -> Findings {
    let mut findings = Findings::new();
    let (auto, name) = (document.value("auto"), document.value("hostname"));
    let off = auto.is_some_and(|auto| auto.as_text() == Some("off"));
    if name.is_some() && auto.is_none() && release(target.contract) >= 12 {
        findings.push(
            Finding::error(
                Code::PATCH_HOSTNAME,
                document.at(),
                "'auto' and 'hostname' cannot be set at the same time",
            )
            .because(format!("configs of the {} contract begin with `auto: stable`", target.contract))
            .remedy("write `auto: off` beside `hostname`"),
        );
    }
    if name.is_none() && off && release(target.talos) == 12 {
        let message = "`auto: off` without `hostname` is refused by early releases of Talos 1.12";
        let finding = Finding::warning(Code::CONFIG_RELEASE, document.at(), message);
        findings.push(finding.remedy("set `hostname` as well, or use a later Talos"));
    }
    findings
}
