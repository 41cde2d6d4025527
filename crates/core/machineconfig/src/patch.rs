//! Patches: changing a config exactly as Talos would.
//!
//! 1. [`Patch`] reads a patch: documents to merge (and what they delete), or RFC 6902 operations.
//! 2. [`apply`] takes patches in order. Documents are found by kind and name ([`crate::document::Identity`]);
//!    deletions run before additions (`delete`), then fields are merged by the rules of their
//!    types (`merge`). A document that is not there is appended.
//! 3. RFC 6902 operations (`json`) work on a config of one document only, as in Talos.
//!
//! Talos' rules changed over time (optional numbers, deletion in free-form values, documents that
//! are not there), so the release counts.

mod delete;
mod json;
mod load;
mod merge;

use ichor_model::{Code, Finding, Findings, Minor, SourceId, Span};
use serde_json::Value as Json;

use crate::{
    document::{Config, Document, Identity},
    schema::release,
    validate::{conflicting_documents, too_new},
};

use delete::Selector;
use json::Operation;

/// A patch with the name that messages call it by.
#[derive(Debug, Clone)]
pub struct Patch {
    name: String,
    content: Content,
    /// Where it stands, if its own values have no place.
    at: Option<Span>,
    /// What was odd about it, but no reason to refuse it.
    notes: Findings,
}

#[derive(Debug, Clone)]
enum Content {
    Strategic(Vec<PatchDocument>),
    Json { operations: Vec<Operation>, at: Option<Span> },
}

/// One document of a patch.
#[derive(Debug, Clone)]
struct PatchDocument {
    deletes: Vec<Selector>,
    /// What is merged; absent if the document only deletes.
    document: Option<Document>,
}

impl Patch {
    /// Reads a patch from YAML or JSON text. An empty one changes nothing.
    pub fn parse(name: &str, source: SourceId, bytes: &[u8]) -> Result<Self, Findings> {
        let (content, notes) = load::text(source, bytes).map_err(|findings| told(name, None, &findings))?;
        Ok(Self { name: name.to_owned(), content, at: None, notes })
    }

    /// Takes a patch that was written inside an inventory, at a place if that is known: a document, a
    /// list of documents, a list of operations, or text.
    pub fn from_json(name: &str, at: Option<Span>, value: &Json) -> Result<Self, Findings> {
        let (content, notes) = load::json(value).map_err(|findings| told(name, at, &findings))?;
        Ok(Self { name: name.to_owned(), content, at, notes })
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether this is a list of RFC 6902 operations.
    pub const fn is_json(&self) -> bool {
        matches!(self.content, Content::Json { .. })
    }

    /// Returns the documents that it merges.
    pub fn documents(&self) -> impl Iterator<Item = &Document> {
        self.parts().iter().filter_map(|part| part.document.as_ref())
    }

    /// Says in findings that they are about this patch.
    pub(crate) fn told(&self, findings: &Findings) -> Findings {
        told(&self.name, self.at(), findings)
    }

    /// Says in a finding that it is about this patch.
    pub(crate) fn about(&self, finding: Finding) -> Finding {
        about(&self.name, self.at(), finding)
    }

    /// Returns the place of the whole patch.
    fn at(&self) -> Option<Span> {
        let first = match &self.content {
            Content::Strategic(_) => self.documents().find_map(Document::at),
            Content::Json { at, .. } => *at,
        };
        self.at.or(first)
    }

    /// Returns what was odd about it.
    pub(crate) const fn notes(&self) -> &Findings {
        &self.notes
    }

    /// Says that operations cannot work on configs of a contract, and what to write instead.
    pub(crate) fn refused_by_contract(&self, contract: Minor) -> Option<Finding> {
        match &self.content {
            Content::Json { operations, at } if release(contract) >= 12 && !operations.is_empty() => {
                Some(json::refused(operations, None, *at))
            }
            _ => None,
        }
    }

    fn parts(&self) -> &[PatchDocument] {
        match &self.content {
            Content::Strategic(parts) => parts,
            Content::Json { .. } => &[],
        }
    }
}

/// Says in findings which patch they are about, and where that is if nothing closer is known.
fn told(name: &str, at: Option<Span>, findings: &Findings) -> Findings {
    findings.iter().map(|finding| about(name, at, finding.clone())).collect()
}

fn about(name: &str, at: Option<Span>, finding: Finding) -> Finding {
    Finding { at: finding.at.or(at), ..finding.because(format!("in patch `{name}`")) }
}

/// Applies patches in order, as the given Talos would.
pub fn apply<'p>(
    config: &Config,
    patches: impl IntoIterator<Item = &'p Patch>,
    talos: Minor,
) -> Result<Config, Findings> {
    let mut config = config.clone();
    for patch in patches {
        let mut findings = Findings::new();
        match &patch.content {
            Content::Strategic(parts) => strategic(&mut config, parts, talos, &mut findings),
            Content::Json { operations, at } => {
                config = json::apply(&config, operations, *at).map_err(|found| patch.told(&found))?;
            }
        }
        if findings.has_errors() {
            return Err(patch.told(&findings));
        }
    }
    Ok(config)
}

fn strategic(config: &mut Config, parts: &[PatchDocument], talos: Minor, findings: &mut Findings) {
    let release = release(talos);
    findings.extend(too_new(parts.iter().filter_map(|part| part.document.as_ref()), talos));
    if findings.has_errors() {
        return;
    }
    if release < 14 {
        twice(parts, findings);
    }
    // Before 1.14 a deletion does not see what the patch itself has added.
    let before: Vec<Identity> =
        config.documents().iter().map(|document| document.identity().clone()).collect();
    for part in parts {
        for selector in &part.deletes {
            let visible = release >= 14 || before.contains(&selector.identity);
            match config.get_mut(&selector.identity).filter(|_| visible) {
                Some(_) if selector.is_document() => {
                    config.remove(&selector.identity);
                }
                Some(document) => {
                    if let Err(finding) = delete::apply(document, selector, release) {
                        findings.push(finding);
                    }
                }
                None if release < 14 => findings.push(delete::missing_document(selector)),
                None => {}
            }
        }
        let Some(document) = &part.document else { continue };
        match config.get_mut(document.identity()) {
            Some(mine) => merge::document(mine, document, release, findings),
            None => config.push(document.clone()),
        }
    }
    findings.extend(conflicting_documents(config, talos));
}

/// Before 1.14 a patch may not hold the same document twice.
fn twice(parts: &[PatchDocument], findings: &mut Findings) {
    let mut seen: Vec<&Identity> = Vec::new();
    for document in parts.iter().filter_map(|part| part.document.as_ref()) {
        if seen.contains(&document.identity()) {
            let message = format!("duplicate document {} is not allowed", document.identity());
            let finding = Finding::error(Code::CONFIG_REFUSED, document.at(), message);
            findings.push(finding.remedy("make one document of them, or two patches"));
        }
        seen.push(document.identity());
    }
}
