//! Which documents may stand beside each other.

use std::collections::BTreeMap;

use ichor_model::{Code, Finding, Findings, Minor};

use crate::{
    document::{Config, Document},
    schema::release,
};

/// Finds documents that Talos refuses to load together.
pub fn conflicting(config: &Config, talos: Minor) -> Findings {
    let mut findings = Findings::new();
    let mut by_name: BTreeMap<&str, Vec<&Document>> = BTreeMap::new();
    for document in config.documents().iter().filter(|document| document.schema().is_some()) {
        let same_name = by_name.entry(&document.identity().name).or_default();
        if let Some(other) =
            same_name.iter().find(|other| excludes(document, other) || excludes(other, document))
        {
            findings.push(conflict(other, document));
        }
        same_name.push(document);
    }
    if release(talos) >= 14 && !findings.has_errors() {
        findings.extend(same_links(config));
    }
    findings
}

fn excludes(document: &Document, other: &Document) -> bool {
    let kind = document.schema();
    kind.is_some_and(|kind| kind.conflicts.contains(&other.identity().kind.as_str()))
        && document.identity().kind != other.identity().kind
}

fn short(document: &Document) -> String {
    format!("{}/{}", document.identity().kind, document.identity().name)
}

fn conflict(first: &Document, second: &Document) -> Finding {
    let message = format!("conflicting documents: {} and {}", short(first), short(second));
    let finding = Finding::error(Code::CONFIG_REFUSED, second.at(), message);
    let finding = match first.at() {
        Some(at) => finding.see(at, "the other one"),
        None => finding,
    };
    finding.remedy("keep one of them, or give them different names")
}

/// Finds links that two documents configure: the other end of a virtual pair is a link, too.
fn same_links(config: &Config) -> Findings {
    let mut owners: BTreeMap<&str, &Document> = BTreeMap::new();
    let mut findings = Findings::new();
    for document in config.documents() {
        let link = document.schema().is_some_and(|kind| kind.body.field("multicast").is_some());
        let own = link.then(|| document.identity().name.as_str());
        let peer = document.value("peer.name").and_then(|node| node.as_text()).filter(|_| link);
        for name in own.into_iter().chain(peer) {
            let Some(owner) = owners.insert(name, document) else { continue };
            let (first, second) = (short(owner), short(document));
            let message =
                format!("conflicting link configurations: {first} and {second} both configure \"{name}\"");
            let finding = Finding::error(Code::CONFIG_REFUSED, document.at(), message);
            findings.push(finding.remedy("give the links different names"));
        }
    }
    findings
}
