//! Findings as text, each with its line.

use annotate_snippets::{AnnotationKind, Element, Group, Level, Origin, Renderer, Snippet, Title};
use ichor_model::{Finding, Findings, Severity, Span};
use ichor_spec::{Sources, load::Place};

use super::{
    excerpt::{Excerpt, excerpt},
    places::{Location, Places},
    secrecy::{redact, seems_private},
    text,
};
use crate::terminal::Terminal;

/// Most findings that are shown as text: more than anyone reads, and few enough to scroll back.
const MAX_SHOWN: usize = 100;
/// Most files that the summary names.
const MAX_FILES: usize = 3;

/// Whether a run with errors may have changed something before it stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changes {
    /// It has not.
    None,
    /// It may have; the findings say how far it came.
    Perhaps,
}

/// Tells all findings on stderr, with a summary.
pub fn tell(sources: &Sources, findings: &Findings, changes: Changes, terminal: &Terminal) {
    if !findings.is_empty() {
        terminal.tell(&render(sources, findings, changes));
    }
}

/// Returns the findings as text with colours, and a summary.
fn render(sources: &Sources, findings: &Findings, changes: Changes) -> String {
    let places = Places::new(sources, findings);
    let page = Page { places: &places };
    let mut blocks: Vec<String> =
        findings.iter().take(MAX_SHOWN).map(|finding| page.finding(finding)).collect();
    if let Some(more) = findings.iter().count().checked_sub(MAX_SHOWN).filter(|more| *more > 0) {
        blocks.push(format!("and {more} more; `ichor check -o json` has all of them"));
    }
    blocks.push(summary(findings, changes, &places));
    blocks.join("\n\n")
}

/// What is needed to show a finding.
struct Page<'a> {
    places: &'a Places<'a>,
}

/// What is shown of a place.
enum Shown {
    /// Its line.
    Line { place: String, line: usize, excerpt: Excerpt },
    /// Its file, line and column; the line itself may hold a secret.
    Hidden { place: String },
    /// Its file, which has no lines or is meant as a whole.
    File { name: String },
}

impl Page<'_> {
    fn finding(&self, finding: &Finding) -> String {
        let level = match finding.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
        };
        let title =
            level.primary_title(text::safe_line(&redact(&finding.message))).id(finding.code.to_string());
        let mut drawing = Drawing::new(title);
        if let Some(shown) = finding.at.and_then(|span| self.shown(span, finding.private)) {
            drawing.add(shown, None);
        }
        for (span, what) in &finding.related {
            if let Some(shown) = self.shown(*span, finding.private) {
                drawing.add(shown, Some(text::safe_line(&redact(what))));
            }
        }
        drawing.finish(finding)
    }

    fn shown(&self, span: Span, private: bool) -> Option<Shown> {
        let Location { file, range } = self.places.locate(span)?;
        let name = text::safe_line(file);
        let is_whole_file = span.start == 0 && span.end == 0;
        let Some((Place { line, column }, _)) = range.filter(|_| !is_whole_file) else {
            return Some(Shown::File { name });
        };
        let place = format!("{name}:{line}:{column}");
        if private || seems_private(self.places.bytes(span), span) {
            return Some(Shown::Hidden { place });
        }
        let excerpt = excerpt(self.places.bytes(span), span.start as usize, span.end as usize);
        Some(Shown::Line { place, line, excerpt })
    }
}

/// A finding on its way to becoming text.
///
/// The renderer works out columns from the text it is given, which is wrong for a line that is cut.
/// So it gets a stand-in for each place, and the true one is put there afterwards.
struct Drawing {
    group: Group<'static>,
    places: Vec<(String, String)>,
    has_a_place: bool,
    hides_a_line: bool,
}

impl Drawing {
    fn new(title: Title<'static>) -> Self {
        Self { group: Group::with_title(title), places: Vec::new(), has_a_place: false, hides_a_line: false }
    }

    /// Adds the place of the finding, or another one with what it is.
    fn add(&mut self, shown: Shown, what: Option<String>) {
        self.has_a_place = true;
        self.hides_a_line |= matches!(shown, Shown::Hidden { .. });
        let element: Element<'static> = match (shown, what) {
            (Shown::Line { place, line, excerpt }, what) => {
                // Not a character that any text has: those of files and messages are replaced.
                let stand_in = format!("\u{10ffff}{}", self.places.len());
                self.places.push((format!("{stand_in}:{line}:{}", excerpt.column), place));
                let kind = if what.is_none() { AnnotationKind::Primary } else { AnnotationKind::Context };
                let mark = kind.span(excerpt.marked).label(what);
                Snippet::source(excerpt.text).line_start(line).path(stand_in).annotation(mark).into()
            }
            (Shown::Hidden { place: name } | Shown::File { name }, None) => Origin::path(name).into(),
            (Shown::Hidden { place: name } | Shown::File { name }, Some(what)) => {
                Level::NOTE.message(format!("{what}: {name}")).into()
            }
        };
        self.extend([element]);
    }

    fn extend(&mut self, elements: impl IntoIterator<Item = impl Into<Element<'static>>>) {
        let empty = Group::with_level(Level::NOTE);
        self.group = std::mem::replace(&mut self.group, empty).elements(elements);
    }

    fn finish(mut self, finding: &Finding) -> String {
        if self.hides_a_line {
            self.extend([Level::NOTE.message("the line is not shown: a secret may stand on it")]);
        }
        self.extend(finding.notes.iter().map(|note| Level::NOTE.message(text::safe_lines(&redact(note)))));
        self.extend(
            finding.remedy.iter().map(|remedy| Level::HELP.message(text::safe_lines(&redact(remedy)))),
        );
        // Excerpts have their own limit; the renderer's would cut them a second time.
        let drawn = Renderer::styled().term_width(usize::from(u16::MAX)).render(&[self.group]);
        let drawn = if self.has_a_place { drawn } else { without_bars(&drawn) };
        self.places.iter().fold(drawn, |drawn, (stand_in, place)| drawn.replacen(stand_in, place, 1))
    }
}

/// Leaves out the bar that leads from a title to an excerpt, where there is no excerpt.
fn without_bars(drawn: &str) -> String {
    let is_bar = |line: &str| anstream::adapter::strip_str(line).to_string().trim() == "|";
    drawn.lines().filter(|line| !is_bar(line)).collect::<Vec<_>>().join("\n")
}

/// Returns how many findings there are and where, and how to learn more.
fn summary(findings: &Findings, changes: Changes, places: &Places<'_>) -> String {
    let (errors, warnings) = (findings.count(Severity::Error), findings.count(Severity::Warning));
    let counts = [(errors, "error"), (warnings, "warning")];
    let counts: Vec<String> =
        counts.into_iter().filter(|(n, _)| *n > 0).map(|(n, word)| text::count(n, word)).collect();
    let counts = match errors {
        0 => text::warn(&text::list(&counts)),
        _ => text::bad(&text::list(&counts)),
    };
    let outcome = if errors > 0 && changes == Changes::None { "; nothing was changed" } else { "" };
    let gravest = findings.iter().min_by_key(|finding| finding.severity);
    let learn = gravest.map_or_else(String::new, |finding| {
        format!("\n{}: to learn more, run\n    ichor explain {}", text::hint("hint"), finding.code)
    });
    format!("{counts}{}{outcome}{learn}", in_files(findings, places))
}

/// Names the files, if every finding is in one.
fn in_files(findings: &Findings, places: &Places<'_>) -> String {
    if findings.iter().any(|finding| finding.at.is_none()) {
        return String::new();
    }
    let mut files: Vec<String> = Vec::new();
    for span in findings.iter().filter_map(|finding| finding.at) {
        let name = places.locate(span).map(|location| text::safe_line(location.file));
        if let Some(name) = name.filter(|name| files.last() != Some(name)) {
            files.push(name);
        }
    }
    match files.len() {
        0 => String::new(),
        1..=MAX_FILES => format!(" in {}", text::list(&files)),
        more => format!(" in {more} files"),
    }
}

#[cfg(test)]
mod tests {
    use ichor_model::Code;

    use super::*;

    fn plain(sources: &Sources, findings: &[Finding]) -> String {
        let findings = sources.hide_private_lines(&Findings::from_iter(findings.to_vec())).sorted();
        anstream::adapter::strip_str(&render(sources, &findings, Changes::None)).to_string()
    }

    fn span(sources: &Sources, text: &str) -> Span {
        let source = ichor_model::SourceId(0);
        let content = String::from_utf8_lossy(&sources.get(source).expect("file").bytes).into_owned();
        let start = content.find(text).expect("text");
        let to_u32 = |n: usize| u32::try_from(n).expect("short");
        Span { source, start: to_u32(start), end: to_u32(start + text.len()) }
    }

    fn sources(text: &str) -> Sources {
        let mut sources = Sources::default();
        sources.add("cluster.yaml", text);
        sources
    }

    #[test]
    fn a_finding_shows_its_line_its_reasons_and_its_remedy() {
        let sources = sources("cluster:\n  name: a\n  talos: v1.13.9\n  name: b\n");
        let finding =
            Finding::error(Code::DUPLICATE_KEY, span(&sources, "name: b"), "`name` is written twice")
                .see(span(&sources, "name: a"), "first written here")
                .because("readers disagree about which counts")
                .remedy("keep one of them");
        insta::assert_snapshot!(plain(&sources, &[finding]), @r"
        error[ICH-1009]: `name` is written twice
         --> cluster.yaml:4:3
          |
        4 |   name: b
          |   ^^^^^^^
          |
         ::: cluster.yaml:2:3
          |
        2 |   name: a
          |   ------- first written here
          |
          = note: readers disagree about which counts
          = help: keep one of them

        1 error in cluster.yaml; nothing was changed
        hint: to learn more, run
            ichor explain ICH-1009
        ");
    }

    #[test]
    fn findings_without_a_line_show_what_there_is() {
        let mut sources = Sources::default();
        let gone = Span { source: sources.add("gone.yaml", ""), start: 0, end: 0 };
        let findings = [
            Finding::error(Code::UNREADABLE, gone, "`gone.yaml` cannot be read").because("no such file"),
            Finding::warning(Code::NO_GATEWAY, None, "the network has no gateway")
                .remedy("set `network.gateway`"),
        ];
        insta::assert_snapshot!(plain(&sources, &findings), @r"
        error[ICH-1015]: `gone.yaml` cannot be read
        --> gone.yaml
         = note: no such file

        warning[ICH-1509]: the network has no gateway
         = help: set `network.gateway`

        1 error and 1 warning; nothing was changed
        hint: to learn more, run
            ichor explain ICH-1015
        ");
    }

    #[test]
    fn a_private_finding_hides_its_line_from_all_findings() {
        let sources = sources("proxmox: {token: hunter2, bogus: 1}\n");
        let findings = [
            Finding::error(Code::BAD_SECRET, span(&sources, "hunter2"), "a secret must not stand here")
                .private(),
            Finding::error(Code::UNKNOWN_KEY, span(&sources, "bogus"), "`bogus` is not a key here")
                .see(span(&sources, "proxmox"), "in this section"),
        ];
        let shown = plain(&sources, &findings);
        assert!(!shown.contains("hunter2"), "{shown}");
        insta::assert_snapshot!(shown, @r"
        error[ICH-1114]: a secret must not stand here
        --> cluster.yaml:1:18
         = note: the line is not shown: a secret may stand on it

        error[ICH-1101]: `bogus` is not a key here
        --> cluster.yaml:1:27
         = note: in this section: cluster.yaml:1:1
         = note: the line is not shown: a secret may stand on it

        2 errors in cluster.yaml; nothing was changed
        hint: to learn more, run
            ichor explain ICH-1114
        ");
    }

    #[test]
    fn the_column_is_the_files_own_when_the_line_is_cut() {
        let sources =
            sources(&format!("a: {{{}bogus: 1{}}}\n", "x: 1, ".repeat(100_000), ", y: 2".repeat(100_000)));
        let finding = Finding::error(Code::UNKNOWN_KEY, span(&sources, "bogus"), "`bogus` is not a key here");
        let shown = plain(&sources, &[finding]);
        assert!(shown.contains("--> cluster.yaml:1:600005\n"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() < 180), "{shown}");
    }

    #[test]
    fn foreign_text_cannot_steer_the_terminal() {
        let mut sources = Sources::default();
        let source = sources.add("a\u{1b}[31m\n.yaml", "k\u{1b}]0;t\u{7}: \u{9b}v\n");
        let finding = Finding::error(Code::UNKNOWN_KEY, Span { source, start: 0, end: 4 }, "\u{1b}[2J")
            .because("\u{1b}[2J")
            .see(Span { source, start: 0, end: 1 }, "\u{1b}[2J")
            .remedy("\u{1b}[2J");
        let shown = plain(&sources, &[finding]);
        assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{shown:?}");
    }

    #[test]
    fn only_the_first_hundred_are_shown() {
        let finding = |i: usize| Finding::error(Code::MISSING_KEY, None, format!("number {i}"));
        let findings: Vec<Finding> = (0..150).map(finding).collect();
        let shown = plain(&Sources::default(), &findings);
        assert!(shown.contains("number 99") && !shown.contains("number 100"));
        assert!(shown.contains("and 50 more; `ichor check -o json` has all of them"));
        assert!(shown.contains("150 errors; nothing was changed"), "{shown}");
    }
}
