//! Reading a bundle out of a control plane's machine config, whatever its contract.
//!
//! Up to contract 1.13 all secrets stand in the `v1alpha1` document, with PEM as base64. From 1.14 on
//! most have documents of their own, with PEM as it is. A part is taken from its own document if
//! there is one, so that configs between the two shapes are read too.

use ichor_model::Minor;

use super::{
    Bundle, Flaws,
    draft::{Draft, Form, Pair, Slot},
};
use crate::{
    pki::Timestamp,
    tree::{self, Node},
};

/// Largest machine config that is read: inline manifests may be long.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// Reads a bundle, or says everything that is wrong with it.
pub fn read(text: &str, now: Option<Timestamp>) -> Result<Bundle, Flaws> {
    let documents = tree::parse(text, MAX_BYTES)?;
    let config = Config { documents: &documents };
    let Some(machine) = config.legacy().and_then(|legacy| legacy.get("machine")) else {
        let remedy = "give the machine config of a control plane";
        return Err(Flaws::one(
            "",
            None,
            "is not a Talos machine config: it has no `machine` section",
            remedy,
        ));
    };
    match machine.get("type").and_then(Node::text) {
        Some("controlplane" | "init") => config.draft().finish(now, Vec::new()),
        Some("worker" | "join") => Err(Flaws::one(
            "machine.type",
            machine.get("type").map(|node| node.line),
            "is that of a worker, whose config has no keys of the cluster's authorities",
            "give the machine config of a control plane",
        )),
        _ => Err(Flaws::one(
            "machine.type",
            Some(machine.line),
            "is neither `controlplane` nor `worker`",
            "give the machine config of a control plane",
        )),
    }
}

/// Returns the contracts whose shape a machine config has, the first and the last of them, if it shows any.
///
/// Up to 1.11 the features that later releases always have are switched on one by one; 1.12 brought the
/// document that names the machine, and 1.14 documents for everything about Kubernetes.
pub fn contracts_of(text: &str) -> Option<(Minor, Minor)> {
    let documents = tree::parse(text, MAX_BYTES).ok()?;
    let has_kind = |matches: fn(&str) -> bool| {
        documents.iter().filter_map(|document| document.get("kind").and_then(Node::text)).any(matches)
    };
    let features = Config { documents: &documents }.legacy()?.get("machine")?.get("features");
    if features.is_some_and(|features| features.get("rbac").is_some()) {
        return Some((Minor::new(1, 8), Minor::new(1, 11)));
    }
    if has_kind(|kind| kind.starts_with("Kube")) {
        return Some((Minor::new(1, 14), Minor::new(1, 14)));
    }
    has_kind(|kind| kind == "HostnameConfig").then_some((Minor::new(1, 12), Minor::new(1, 13)))
}

/// The documents of a machine config.
struct Config<'t> {
    documents: &'t [Node],
}

impl<'t> Config<'t> {
    /// Returns the document that has no kind: `v1alpha1`.
    fn legacy(&self) -> Option<&'t Node> {
        self.documents
            .iter()
            .find(|document| document.get("kind").is_none() && !document.entries().is_empty())
    }

    /// Returns the document of a kind.
    fn document(&self, kind: &str) -> Option<&'t Node> {
        self.documents.iter().find(|document| document.get("kind").and_then(Node::text) == Some(kind))
    }

    fn draft(&self) -> Draft<'t> {
        let (secretbox, aescbc) = self.encryption();
        Draft {
            cluster_id: self.either(&["cluster", "id"], "DiscoveryIdentityConfig", &["clusterID"]),
            cluster_secret: self.either(
                &["cluster", "secret"],
                "DiscoveryIdentityConfig",
                &["clusterSecret"],
            ),
            bootstrap_token: self.old(&["cluster", "token"]),
            secretbox,
            aescbc,
            trustd_token: self.old(&["machine", "token"]),
            etcd: self.old_pair(&["cluster", "etcd", "ca"]),
            kubernetes: self.pair(&["cluster", "ca"], "KubeAPIServerCAConfig"),
            aggregator: self.pair(&["cluster", "aggregatorCA"], "KubeAggregatorCAConfig"),
            service_account: self.either(
                &["cluster", "serviceAccount", "key"],
                "KubeServiceAccountConfig",
                &["issuer", "privateKey"],
            ),
            os: self.old_pair(&["machine", "ca"]),
        }
    }

    /// Takes a part from the `v1alpha1` document.
    fn old(&self, path: &[&str]) -> Slot<'t> {
        let value = self.legacy().and_then(|legacy| legacy.at(path));
        Slot { path: path.join("."), value, form: Form::Base64 }
    }

    /// Takes a part from its own document, or else from the `v1alpha1` document.
    fn either(&self, old: &[&str], kind: &str, new: &[&str]) -> Slot<'t> {
        match self.document(kind) {
            Some(document) => {
                Slot { path: format!("{kind}.{}", new.join(".")), value: document.at(new), form: Form::Plain }
            }
            None => self.old(old),
        }
    }

    fn old_pair(&self, path: &[&str]) -> Pair<'t> {
        let half = |name| self.old(&[path, &[name]].concat());
        Pair { certificate: half("crt"), key: half("key") }
    }

    fn pair(&self, old: &[&str], kind: &str) -> Pair<'t> {
        let half =
            |old_name, new_name| self.either(&[old, &[old_name]].concat(), kind, &["issuingCA", new_name]);
        Pair { certificate: half("crt", "cert"), key: half("key", "key") }
    }

    /// Takes the key of etcd's data: the first provider is the one that writes.
    fn encryption(&self) -> (Slot<'t>, Slot<'t>) {
        const KIND: &str = "KubeEtcdEncryptionConfig";
        let Some(document) = self.document(KIND) else {
            return (
                self.old(&["cluster", "secretboxEncryptionSecret"]),
                self.old(&["cluster", "aescbcEncryptionSecret"]),
            );
        };
        let slot = |name: &str, value| Slot { path: format!("{KIND}.{name}"), value, form: Form::Plain };
        let first = providers(document).find(|(name, _)| matches!(*name, "secretbox" | "aescbc"));
        let value = |wanted| {
            first.filter(|(name, _)| *name == wanted).and_then(|(_, provider)| first_secret(provider))
        };
        (slot("secretbox", value("secretbox")), slot("aescbc", value("aescbc")))
    }
}

/// Returns the encryption providers of all resources, in order, by their names.
fn providers(document: &Node) -> impl Iterator<Item = (&str, &Node)> {
    let resources = document.at(&["config", "resources"]).map(Node::items).unwrap_or_default();
    resources
        .iter()
        .flat_map(|resource| resource.get("providers").map(Node::items).unwrap_or_default())
        .flat_map(Node::entries)
        .map(|entry| (entry.key.as_str(), &entry.value))
}

fn first_secret(provider: &Node) -> Option<&Node> {
    provider.get("keys")?.items().first()?.get("secret")
}
