//! What a check has to say: findings, always plural.

use crate::{Code, Span, name::natural};

/// How serious a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Nothing is done until it is mended.
    Error,
    /// Allowed, and probably not what was meant.
    Warning,
}

impl Severity {
    /// Returns the word shown to people and written to JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// One thing that is wrong, with its place, the reason and the remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The stable code, which `ichor explain` knows.
    pub code: Code,
    /// How serious it is.
    pub severity: Severity,
    /// What is wrong, in one line.
    pub message: String,
    /// Where it is wrong; absent when no line of the inventory is to blame.
    pub at: Option<Span>,
    /// Other places that belong to the story, each with what it is.
    pub related: Vec<(Span, String)>,
    /// Why it is wrong, one line each.
    pub notes: Vec<String>,
    /// What to do about it.
    pub remedy: Option<String>,
    /// Whether the line may hold a secret and must not be shown.
    pub private: bool,
}

impl Finding {
    /// Starts an error.
    pub fn error(code: Code, at: impl Into<Option<Span>>, message: impl Into<String>) -> Self {
        Self {
            code,
            severity: Severity::Error,
            message: message.into(),
            at: at.into(),
            related: Vec::new(),
            notes: Vec::new(),
            remedy: None,
            private: false,
        }
    }

    /// Starts a warning.
    pub fn warning(code: Code, at: impl Into<Option<Span>>, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, at, message) }
    }

    /// Adds a reason.
    #[must_use]
    pub fn because(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Adds another place that belongs to the story.
    #[must_use]
    pub fn see(mut self, span: Span, what: impl Into<String>) -> Self {
        self.related.push((span, what.into()));
        self
    }

    /// Keeps the line itself out of sight: a secret may stand on it.
    #[must_use]
    pub fn private(mut self) -> Self {
        self.private = true;
        self
    }

    /// Says what to do.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

/// Everything a check found, in the order of the files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Findings(Vec<Finding>);

impl Findings {
    /// Returns an empty list.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds one finding.
    pub fn push(&mut self, finding: Finding) {
        self.0.push(finding);
    }

    /// Adds all findings of another list.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// Whether any finding is an error.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|finding| finding.severity == Severity::Error)
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns how many findings there are of a severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.0.iter().filter(|finding| finding.severity == severity).count()
    }

    /// Returns the findings in the order in which they were made.
    pub fn iter(&self) -> std::slice::Iter<'_, Finding> {
        self.0.iter()
    }

    /// Returns the findings by place in the files, those without a place last, each once.
    #[must_use]
    pub fn sorted(mut self) -> Self {
        // All that a finding has takes part, so that equal ones end up side by side.
        self.0.sort_by(|a, b| {
            let order = kind_and_place(a).cmp(&kind_and_place(b));
            order.then_with(|| natural(&a.message, &b.message)).then_with(|| rest(a).cmp(&rest(b)))
        });
        self.0.dedup();
        self
    }
}

fn kind_and_place(finding: &Finding) -> impl Ord {
    (finding.at.is_none(), finding.at, finding.severity, finding.code)
}

fn rest(finding: &Finding) -> impl Ord {
    (&finding.related, &finding.notes, &finding.remedy, finding.private)
}

impl<'a> IntoIterator for &'a Findings {
    type Item = &'a Finding;
    type IntoIter = std::slice::Iter<'a, Finding>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl FromIterator<Finding> for Findings {
    fn from_iter<I: IntoIterator<Item = Finding>>(findings: I) -> Self {
        Self(findings.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_sorted_and_said_once() {
        let finding = |message: &str| Finding::error(Code::NO_FIT, None, message);
        let placed = Finding::warning(Code::VLAN, Span::default(), "placed");
        let noted = finding("`w-2`").because("why");
        let all = [finding("`w-10`"), finding("`w-2`"), noted.clone(), finding("`w-10`"), finding("`w-2`")];
        let sorted = all.into_iter().chain([placed.clone()]).collect::<Findings>().sorted();
        assert_eq!(sorted.0, [placed, finding("`w-2`"), noted, finding("`w-10`")]);
    }
}
