//! Reading patches.

use ichor_model::{Code, Finding, Findings, SourceId};
use serde_json::Value as Json;

use super::{Content, PatchDocument, delete, json};
use crate::document::{
    Document,
    raw::{self, Raw, RawKind, Style},
};

/// A patch and what was odd about it.
pub type Loaded = (Content, Findings);

/// Reads text.
pub fn text(source: SourceId, bytes: &[u8]) -> Result<Loaded, Findings> {
    documents(raw::parse(source, bytes)?)
}

fn documents(raws: Vec<Raw>) -> Result<Loaded, Findings> {
    match raws.as_slice() {
        [Raw { kind: RawKind::List(items), at }] => {
            let operations = json::read(items)?;
            Ok((Content::Json { operations, at: *at }, Findings::new()))
        }
        _ => strategic(raws),
    }
}

/// Reads a value of an inventory.
pub fn json(value: &Json) -> Result<Loaded, Findings> {
    match value {
        Json::Null => Ok((Content::Strategic(Vec::new()), Findings::new())),
        Json::String(text) => {
            let raws = raw::parse(SourceId::default(), text.as_bytes());
            let mut raws = raws.map_err(|findings| without_places(&findings))?;
            raws.iter_mut().for_each(Raw::forget_places);
            documents(raws)
        }
        Json::Array(items) if items.iter().all(|item| item.get("op").is_some()) && !items.is_empty() => {
            let items: Vec<Raw> = items.iter().map(lenient).collect();
            Ok((Content::Json { operations: json::read(&items)?, at: None }, Findings::new()))
        }
        Json::Array(items) => strategic(items.iter().map(lenient).collect()),
        other => strategic(vec![lenient(other)]),
    }
}

/// Whether a text was quoted in the inventory is not known any more, so the field decides.
fn lenient(value: &Json) -> Raw {
    raw::from_json(value, Style::Json)
}

/// Text inside an inventory has places of its own, which would point into the wrong file.
fn without_places(findings: &Findings) -> Findings {
    let cleared = findings.iter().cloned().map(|mut finding| {
        finding.at = None;
        finding.related.clear();
        finding
    });
    cleared.collect()
}

fn strategic(raws: Vec<Raw>) -> Result<Loaded, Findings> {
    let mut findings = Findings::new();
    let mut parts = Vec::new();
    for raw in raws {
        if let Some(part) = part(raw, &mut findings) {
            parts.push(part);
        }
    }
    if findings.has_errors() { Err(findings) } else { Ok((Content::Strategic(parts), findings)) }
}

fn part(mut raw: Raw, findings: &mut Findings) -> Option<PatchDocument> {
    if !matches!(raw.kind, RawKind::Map(_)) {
        let message = format!("a document of the patch is {}", raw.word());
        let finding = Finding::error(Code::WRONG_TYPE, raw.at, message);
        findings
            .push(finding.remedy("write a map like the config it changes, or a single list of operations"));
        return None;
    }
    let (deletes, emptied) = delete::take(&mut raw, findings);
    let document = if emptied { None } else { Document::read_patch(&raw, findings) };
    Some(PatchDocument { deletes, document })
}
