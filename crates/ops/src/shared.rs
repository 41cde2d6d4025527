//! Clusters that have the same secrets, by mistake.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use ichor_machineconfig::secrets::Bundle;
use ichor_model::{Code, Finding, Findings};
use sha2::{Digest, Sha256};

use crate::{Site, System, place, store::Store};

/// Finds clusters that keep their secrets in one file.
pub fn by_place<'a>(system: &dyn System, sites: impl IntoIterator<Item = Site<'a>>) -> Findings {
    let mut owners: BTreeMap<PathBuf, &str> = BTreeMap::new();
    let mut findings = Findings::new();
    for site in sites {
        let Ok(store) = Store::of(site) else { continue };
        if let Some(other) = owners.insert(place::settle(system, store.bundle()), site.name()) {
            findings.push(in_one_file(other, site.name(), store.bundle()));
        }
    }
    findings
}

fn in_one_file(one: &str, other: &str, path: &Path) -> Finding {
    Finding::error(Code::SHARED_SECRETS, None, format!("clusters `{one}` and `{other}` share their secrets"))
        .because(format!("both have them in `{}`", path.display()))
        .remedy("give each cluster a `secrets.file` of its own, or leave it out")
}

/// What tells the secrets of one cluster from those of another, and is no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    /// The cluster's id for discovery.
    pub cluster_id: String,
    /// Digests of the certificate authorities that give access.
    authorities: [Vec<u8>; 2],
}

impl Fingerprint {
    /// Returns the fingerprint of a bundle.
    pub fn of(bundle: &Bundle) -> Self {
        let digest = |der: &[u8]| Sha256::digest(der).to_vec();
        Self {
            cluster_id: bundle.cluster_id.clone(),
            authorities: [&bundle.os, &bundle.kubernetes].map(|it| digest(it.certificate().der())),
        }
    }

    /// Says what two clusters share.
    fn shared_with(&self, other: &Self) -> Option<&'static str> {
        if self.authorities[0] == other.authorities[0] {
            return Some("the certificate authority of the Talos API");
        }
        if self.authorities[1] == other.authorities[1] {
            return Some("the certificate authority of Kubernetes");
        }
        (self.cluster_id == other.cluster_id).then_some("the cluster id")
    }
}

/// Finds clusters whose bundles are the same, or share a part that must be one cluster's alone.
pub fn by_content(clusters: &[(&str, &Fingerprint)]) -> Findings {
    let mut findings = Findings::new();
    for (i, (name, one)) in clusters.iter().enumerate() {
        // One finding for each cluster: the first other one will do.
        let other = clusters[..i].iter().find_map(|(other, two)| Some((other, one.shared_with(two)?)));
        if let Some((other, what)) = other {
            let message = format!("clusters `{other}` and `{name}` share their secrets");
            let finding = Finding::error(Code::SHARED_SECRETS, None, message)
                .because(format!("{what} is the same in both bundles"));
            findings.push(
                finding.remedy("give each cluster secrets of its own:\n    ichor --cluster NAME secrets new"),
            );
        }
    }
    findings
}
