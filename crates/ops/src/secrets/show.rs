//! `ichor secrets show`: what is kept, without any of it.
//!
//! 1. [`bundle::of_cluster`]: the bundle;
//! 2. [`authorities`]: fingerprints, algorithms and ends, which are no secrets;
//! 3. [`Store::contract`]: what was recorded when the cluster was made.

use ichor_machineconfig::{
    pki::{self, Timestamp},
    secrets::{Bundle, Encryption},
};
use ichor_model::{Findings, Minor};
use ichor_spec::Sources;
use sha2::{Digest, Sha256};

use crate::{
    Halt, Site, System,
    bundle::{self, Signer},
    halt::only,
    shared::Fingerprint,
    store::Store,
};

/// What may be told about a bundle.
#[derive(Debug)]
pub struct Kept {
    /// Where it is kept, as it is shown.
    pub shown: String,
    /// To whom it is encrypted; nothing, if it is in plain.
    pub recipients: Option<Vec<String>>,
    /// The cluster's id for discovery.
    pub cluster_id: String,
    /// The contract that machine configs are drawn up for.
    pub contract: Minor,
    /// Whether that contract was recorded when the secrets were made.
    pub recorded: bool,
    /// The certificate authorities.
    pub authorities: Vec<Authority>,
    /// The algorithm of the key that signs service-account tokens.
    pub service_account: String,
    /// How Kubernetes' secrets are encrypted in etcd.
    pub encryption: &'static str,
    /// Warnings.
    pub findings: Findings,
    /// What tells it from the bundles of other clusters.
    pub fingerprint: Fingerprint,
}

/// What may be told about a certificate authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    /// What it is for.
    pub name: &'static str,
    /// The algorithm of its key.
    pub algorithm: String,
    /// The SHA-256 of its certificate, in hex with colons.
    pub sha256: String,
    /// Its first second.
    pub begins: Timestamp,
    /// Its last second.
    pub ends: Timestamp,
}

/// Returns what may be told about the bundle of a cluster.
pub fn show(system: &dyn System, site: Site<'_>, sources: &mut Sources) -> Result<Kept, Halt> {
    let found = bundle::of_cluster(system, site, None, Signer::Nobody, sources)?;
    let store = Store::of(site).map_err(|finding| Halt::invalid(only(*finding)))?;
    let recorded = store.contract(system).map_err(|finding| Halt::invalid(only(*finding)))?;
    let bundle = found.bundle;
    Ok(Kept {
        fingerprint: Fingerprint::of(&bundle),
        shown: found.shown,
        recipients: found.recipients,
        contract: site.desired.cluster.contract,
        recorded: recorded.is_some(),
        authorities: authorities(&bundle),
        service_account: format!("{}", bundle.service_account.algorithm()),
        encryption: match bundle.encryption {
            Encryption::Secretbox(_) => "secretbox",
            Encryption::AesCbc(_) => "AES-CBC",
        },
        cluster_id: bundle.cluster_id,
        findings: found.findings,
    })
}

/// Returns what may be told about the authorities of a bundle.
pub fn authorities(bundle: &Bundle) -> Vec<Authority> {
    bundle::authorities(bundle).map(|(name, authority)| describe(name, authority)).to_vec()
}

fn describe(name: &'static str, authority: &pki::Authority) -> Authority {
    let certificate = authority.certificate();
    let digest = Sha256::digest(certificate.der());
    let pairs: Vec<String> = digest.iter().map(|byte| format!("{byte:02X}")).collect();
    Authority {
        name,
        algorithm: authority.key().algorithm().to_string(),
        sha256: pairs.join(":"),
        begins: certificate.not_before(),
        ends: certificate.not_after(),
    }
}
