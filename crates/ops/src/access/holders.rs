//! Whose access a file holds, and whether it would be lost.

use std::collections::BTreeSet;

use ichor_machineconfig::talosconfig::Talosconfig;
use serde::Deserialize;

use super::{Kind, MOST_NAMES, Made};

/// What a file gives access to: names of contexts, clusters and users, each with the authority it trusts.
#[derive(Debug, PartialEq, Eq)]
struct Holdings {
    names: BTreeSet<String>,
    authorities: BTreeSet<Vec<u8>>,
}

/// Says what would be lost if a file took the place of another one; nothing, if that gives access to the same
/// cluster and to no other.
pub fn would_lose(made: &Made, there: &[u8]) -> Option<String> {
    let read = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).ok()?;
        match made.kind {
            Kind::Talosconfig => of_talosconfig(text),
            Kind::Kubeconfig => of_kubeconfig(text),
            Kind::Bundle => None,
        }
    };
    let (new, old) = match (made.kind, read(made.text.expose().as_bytes()), read(there)) {
        (Kind::Bundle, ..) => return Some("a bundle is not replaced".to_owned()),
        (_, Some(new), Some(old)) => (new, old),
        (kind, ..) => return Some(format!("it is not a {}", kind.word())),
    };
    let others: Vec<String> = old.names.difference(&new.names).map(|name| shown(name)).collect();
    if !others.is_empty() {
        let more = others.len().saturating_sub(MOST_NAMES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let others: Vec<String> = others.into_iter().take(MOST_NAMES).collect();
        return Some(format!("it also holds {}{more}", others.join(", ")));
    }
    let same = old.authorities.is_subset(&new.authorities);
    (!same)
        .then(|| "it is access to a cluster of the same name with another certificate authority".to_owned())
}

fn shown(name: &str) -> String {
    format!("`{}`", ichor_spec::yaml::show(name))
}

fn of_talosconfig(text: &str) -> Option<Holdings> {
    let config = Talosconfig::parse(text).ok()?;
    let names = config.contexts.iter().map(|context| format!("context {}", context.name)).collect();
    // A context without credentials proves itself in another way, which would be lost.
    let authority = |context: &ichor_machineconfig::talosconfig::Context| {
        context.credentials.as_ref().map_or_else(Vec::new, |it| it.authority.der().to_vec())
    };
    Some(Holdings { names, authorities: config.contexts.iter().map(authority).collect() })
}

/// The parts of a kubeconfig that say whose it is. Keys and tokens are not kept.
#[derive(Debug, Deserialize)]
struct Kubeconfig {
    #[serde(rename = "apiVersion")]
    api_version: String,
    kind: String,
    #[serde(default)]
    clusters: Option<Vec<NamedCluster>>,
    #[serde(default)]
    contexts: Option<Vec<Named>>,
    #[serde(default)]
    users: Option<Vec<Named>>,
}

#[derive(Debug, Deserialize)]
struct Named {
    name: String,
}

#[derive(Debug, Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Debug, Deserialize)]
struct Cluster {
    #[serde(default, rename = "certificate-authority-data")]
    authority: Option<String>,
}

fn of_kubeconfig(text: &str) -> Option<Holdings> {
    let config: Kubeconfig = serde_saphyr::from_str(text).ok()?;
    if config.api_version != "v1" || config.kind != "Config" {
        return None;
    }
    let (clusters, contexts, users) = (
        config.clusters.unwrap_or_default(),
        config.contexts.unwrap_or_default(),
        config.users.unwrap_or_default(),
    );
    let mut names: BTreeSet<String> = clusters.iter().map(|it| format!("cluster {}", it.name)).collect();
    names.extend(contexts.iter().map(|it| format!("context {}", it.name)));
    names.extend(users.iter().map(|it| format!("user {}", it.name)));
    let authorities = clusters.into_iter().map(|it| it.cluster.authority.unwrap_or_default().into_bytes());
    Some(Holdings { names, authorities: authorities.collect() })
}
