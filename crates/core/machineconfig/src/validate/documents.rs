//! Which documents may stand beside each other.

use ichor_model::{Code, Finding, Findings, Minor};

use crate::{
    document::{Config, Document},
    schema::release,
};

/// Finds documents that Talos refuses to load together.
pub fn conflicting(config: &Config, talos: Minor) -> Findings {
    let release = release(talos);
    let mut findings = Findings::new();
    let documents: Vec<&Document> =
        config.documents().iter().filter(|document| !document.is_legacy()).collect();
    for (i, document) in documents.iter().enumerate() {
        for other in &documents[..i] {
            if excludes(document, other) || excludes(other, document) {
                findings.push(conflict(other, document));
            } else if release >= 14 {
                findings.extend(same_link(other, document));
            }
        }
    }
    findings
}

fn excludes(document: &Document, other: &Document) -> bool {
    let kind = document.schema();
    kind.is_some_and(|kind| kind.conflicts.contains(&other.identity().kind.as_str()))
        && document.identity().kind != other.identity().kind
        && document.identity().name == other.identity().name
}

fn short(document: &Document) -> String {
    format!("{}/{}", document.identity().kind, document.identity().name)
}

fn conflict(first: &Document, second: &Document) -> Finding {
    let message = format!("conflicting documents: {} and {}", short(first), short(second));
    let finding = Finding::error(Code::CONFLICTING_KEYS, second.at(), message);
    let finding = match first.at() {
        Some(at) => finding.see(at, "the other one"),
        None => finding,
    };
    finding.remedy("keep one of them, or give them different names")
}

/// The other end of a virtual pair is a link, too.
fn same_link(first: &Document, second: &Document) -> Findings {
    let links = |document: &Document| -> Vec<String> {
        let own = document.schema().is_some_and(|kind| kind.body.field("multicast").is_some());
        let peer = document.value("peer.name").and_then(|node| node.as_text());
        let names = own.then(|| document.identity().name.clone()).into_iter();
        names.chain(peer.map(str::to_owned)).collect()
    };
    let theirs = links(second);
    let shared = links(first).into_iter().find(|name| theirs.contains(name));
    shared
        .map(|name| {
            let message = format!(
                "conflicting link configurations: {} and {} both configure \"{name}\"",
                short(first),
                short(second)
            );
            Finding::error(Code::CONFLICTING_KEYS, second.at(), message)
                .remedy("give the links different names")
        })
        .into_iter()
        .collect()
}
