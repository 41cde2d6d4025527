//! Findings for programs.

use std::borrow::Cow;

use ichor_model::{Finding, Findings, Severity, Span};
use ichor_spec::Sources;
use serde::Serialize;
use serde_json::{Value, json};

use super::{places::Places, secrecy::redact};
use crate::clusters::{Cluster, Clusters};

#[derive(Debug, Serialize)]
struct Report<'a> {
    findings: Vec<Item<'a>>,
    errors: usize,
    warnings: usize,
    clusters: Vec<Summary<'a>>,
}

#[derive(Debug, Serialize)]
struct Item<'a> {
    code: String,
    severity: &'static str,
    message: Cow<'a, str>,
    #[serde(flatten)]
    place: Place<'a>,
    notes: Vec<Cow<'a, str>>,
    related: Vec<Related<'a>>,
    remedy: Option<Cow<'a, str>>,
    explain: String,
}

#[derive(Debug, Default, Serialize)]
struct Place<'a> {
    file: Option<&'a str>,
    line: Option<usize>,
    column: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end_line: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end_column: Option<usize>,
}

#[derive(Debug, Serialize)]
struct Related<'a> {
    #[serde(flatten)]
    place: Place<'a>,
    message: Cow<'a, str>,
}

#[derive(Debug, Serialize)]
struct Summary<'a> {
    name: Option<&'a str>,
    machines: Option<usize>,
    files: &'a [String],
}

/// Returns everything a check found. No line of any file is in it.
pub fn report(clusters: &Clusters) -> impl Serialize {
    let places = Places::new(&clusters.sources, &clusters.findings);
    Report {
        findings: clusters.findings.iter().map(|finding| item(finding, &places)).collect(),
        errors: clusters.findings.count(Severity::Error),
        warnings: clusters.findings.count(Severity::Warning),
        clusters: clusters.list.iter().map(summary).collect(),
    }
}

/// Returns everything that was found.
pub fn all(clusters: &Clusters) -> Vec<Value> {
    each(&clusters.sources, &clusters.findings)
}

/// Returns findings, with their places in files.
pub fn each(sources: &Sources, findings: &Findings) -> Vec<Value> {
    let places = Places::new(sources, findings);
    findings.iter().map(|finding| json!(item(finding, &places))).collect()
}

/// Returns what was found in files, and what has no place in any.
pub fn about(sources: &Sources, findings: &Findings, files: &[String]) -> Vec<Value> {
    let places = Places::new(sources, findings);
    let is_about = |finding: &&Finding| {
        let location = finding.at.and_then(|span| places.locate(span));
        location.is_none_or(|location| files.iter().any(|file| file == location.file))
    };
    findings.iter().filter(is_about).map(|finding| json!(item(finding, &places))).collect()
}

fn item<'a>(finding: &'a Finding, places: &Places<'a>) -> Item<'a> {
    Item {
        code: finding.code.to_string(),
        severity: finding.severity.word(),
        message: redact(&finding.message),
        place: finding.at.map(|span| place(span, places)).unwrap_or_default(),
        notes: finding.notes.iter().map(|note| redact(note)).collect(),
        related: finding
            .related
            .iter()
            .map(|(span, message)| Related { place: place(*span, places), message: redact(message) })
            .collect(),
        remedy: finding.remedy.as_deref().map(redact),
        explain: format!("ichor explain {}", finding.code),
    }
}

fn place<'a>(span: Span, places: &Places<'a>) -> Place<'a> {
    let Some(location) = places.locate(span) else {
        return Place::default();
    };
    let start = location.range.map(|(start, _)| start);
    let end = location.range.map(|(_, end)| end).filter(|_| span.end > span.start);
    Place {
        file: Some(location.file),
        line: start.map(|place| place.line),
        column: start.map(|place| place.column),
        end_line: end.map(|place| place.line),
        end_column: end.map(|place| place.column),
    }
}

fn summary(cluster: &Cluster) -> Summary<'_> {
    Summary {
        name: cluster.name.as_ref().map(ichor_model::ClusterName::as_str),
        machines: cluster.desired().map(|desired| desired.machines.len()),
        files: &cluster.files,
    }
}
