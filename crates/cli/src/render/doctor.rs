//! What the doctor has seen: short where it is well, and with a remedy where it is not.

use ichor_model::{Finding, Findings, Severity};
use ichor_ops::doctor::{Check, State, has_errors};
use ichor_spec::Sources;
use serde_json::{Value, json};

use super::{findings_json, places::Places, secrecy::redact, text};
use crate::exit::Exit;

/// The number of the document's language.
const SCHEMA: u32 = 1;
/// What stands before a check.
const MARGIN: &str = "  ";

/// Says how the program ends: warnings and what nobody knows stand in nobody's way.
pub fn exit(checks: &[Check]) -> Exit {
    if has_errors(checks) { Exit::Preflight } else { Exit::Done }
}

/// Returns checks as text.
pub fn text(cluster: &str, checks: &[Check], sources: &Sources, width: Option<u16>) -> String {
    let ids = checks.iter().map(|check| check.id.len()).max().unwrap_or(0);
    let page = Page { ids, sources, columns: width.map_or(usize::MAX, usize::from) };
    let mut shown = String::new();
    let mut group = None;
    for check in checks {
        if group != Some(check.group) {
            let gap = if group.is_some() { "\n" } else { "" };
            shown += &format!("{gap}{}\n", text::bold(check.group.title()));
            group = Some(check.group);
        }
        shown += &page.entry(check);
    }
    shown + &format!("\n{}\n", verdict(cluster, checks))
}

struct Page<'a> {
    ids: usize,
    sources: &'a Sources,
    columns: usize,
}

impl Page<'_> {
    fn entry(&self, check: &Check) -> String {
        let state = match check.state() {
            State::Ok => text::good("ok     "),
            State::Unknown => text::warn("unknown"),
            State::Warning => text::warn("warning"),
            State::Error => text::bad("error  "),
        };
        let ids = self.ids;
        let head = format!("{MARGIN}{state}  {:<ids$}  ", check.id);
        let indent = MARGIN.len() + 7 + 2 + ids + 2;
        let mut lines = self.wrapped(&text::safe_line(&redact(&check.says)), indent);
        let first = if lines.is_empty() { String::new() } else { lines.remove(0) };
        let mut shown = vec![format!("{head}{first}").trim_end().to_owned()];
        shown.extend(lines.into_iter().map(|line| format!("{}{line}", " ".repeat(indent))));
        shown.extend(check.findings.iter().flat_map(|finding| self.finding(finding)));
        shown.join("\n") + "\n"
    }

    fn finding(&self, finding: &Finding) -> Vec<String> {
        let margin = " ".repeat(MARGIN.len() + 9);
        let word = match finding.severity {
            Severity::Error => text::bad("error"),
            Severity::Warning => text::warn("warning"),
        };
        let indented = |text: &str, more: usize| -> Vec<String> {
            let lines = self.wrapped(text, margin.len() + more);
            lines.into_iter().map(|line| format!("{margin}{}{line}", " ".repeat(more))).collect()
        };
        let message = text::safe_line(&redact(&finding.message));
        let label = format!("[{}]: ", finding.code);
        let mut lines = self.wrapped(&message, margin.len() + 7 + label.len());
        let first = if lines.is_empty() { String::new() } else { lines.remove(0) };
        let mut shown = vec![format!("{margin}{word}{label}{first}")];
        shown.extend(lines.into_iter().map(|line| format!("{margin}  {line}")));
        shown.extend(self.place(finding).map(|place| format!("{margin}  --> {place}")));
        for note in &finding.notes {
            shown.extend(indented(&text::safe_line(&redact(note)), 2));
        }
        if let Some(remedy) = &finding.remedy {
            shown.extend(self.remedy(&text::safe_lines(&redact(remedy)), &margin));
        }
        shown
    }

    /// Commands are never broken, so that they can be copied.
    fn remedy(&self, remedy: &str, margin: &str) -> Vec<String> {
        let mut shown = Vec::new();
        for (index, line) in remedy.lines().enumerate() {
            if line.starts_with("    ") {
                shown.push(format!("{margin}  {line}"));
                continue;
            }
            let mut wrapped = self.wrapped(line, margin.len() + 8).into_iter();
            let lead = if index == 0 { format!("{}: ", text::hint("hint")) } else { "  ".to_owned() };
            shown.extend(wrapped.next().map(|line| format!("{margin}  {lead}{line}")));
            shown.extend(wrapped.map(|line| format!("{margin}    {line}")));
        }
        shown
    }

    fn place(&self, finding: &Finding) -> Option<String> {
        let span = finding.at.filter(|span| (span.start, span.end) != (0, 0))?;
        let only = Findings::from_iter([finding.clone()]);
        let places = Places::new(self.sources, &only);
        let location = places.locate(span)?;
        let (start, _) = location.range?;
        Some(format!("{}:{}:{}", text::safe_line(location.file), start.line, start.column))
    }

    fn wrapped(&self, text: &str, indent: usize) -> Vec<String> {
        let columns = self.columns.saturating_sub(indent).max(30);
        text::wrap(text, columns).lines().map(str::to_owned).collect()
    }
}

fn verdict(cluster: &str, checks: &[Check]) -> String {
    let findings = || checks.iter().flat_map(|check| &check.findings);
    let of = |severity| findings().filter(|finding| finding.severity == severity).count();
    let (errors, warnings) = (of(Severity::Error), of(Severity::Warning));
    let unknown = checks.iter().filter(|check| check.state() == State::Unknown).count();
    let made = text::count(checks.len(), "check");
    let open = if unknown == 0 { String::new() } else { format!(", {unknown} unknown") };
    let words = match (errors, warnings) {
        (0, 0) => {
            return format!(
                "{}: nothing stands in the way of cluster `{cluster}`: {made}{open}",
                text::good("ok")
            );
        }
        (0, warnings) => {
            format!("{}: cluster `{cluster}`: {}", text::warn("warning"), text::count(warnings, "warning"))
        }
        (errors, 0) => {
            format!("{}: cluster `{cluster}`: {}", text::bad("error"), text::count(errors, "error"))
        }
        (errors, warnings) => format!(
            "{}: cluster `{cluster}`: {} and {}",
            text::bad("error"),
            text::count(errors, "error"),
            text::count(warnings, "warning")
        ),
    };
    let gravest = findings().min_by_key(|finding| finding.severity).map(|finding| finding.code);
    let learn = gravest.map_or_else(String::new, |code| {
        format!("\n{}: to learn more, run\n    ichor explain {code}", text::hint("hint"))
    });
    format!("{words} in {made}{open}; nothing was changed{learn}")
}

/// Returns checks for programs.
pub fn document(cluster: &str, checks: &[Check], sources: &Sources) -> Value {
    let of = |check: &Check| {
        let findings: Findings = check.findings.iter().cloned().collect();
        json!({
            "id": check.id,
            "group": check.group,
            "state": check.state(),
            "says": redact(&check.says),
            "findings": findings_json::each(sources, &findings),
        })
    };
    json!({
        "schema": SCHEMA,
        "cluster": cluster,
        "ready": !has_errors(checks),
        "checks": checks.iter().map(of).collect::<Vec<Value>>(),
    })
}
