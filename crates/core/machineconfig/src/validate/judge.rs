//! Looking at one document and saying what is wrong with it.

use ichor_model::{Code, Finding, Findings, Minor, Severity};

use crate::{
    document::{Config, Document, Node, raw::show},
    schema::release,
};

use super::Mode;

/// One document under judgement, beside the config it is part of.
pub struct Judge<'a> {
    /// The whole config.
    pub config: &'a Config,
    /// The document.
    pub document: &'a Document,
    /// The minor number of Talos 1.x.
    pub release: u8,
    /// Where the machine runs.
    pub mode: Mode,
    talos: Minor,
    findings: &'a mut Findings,
}

impl<'a> Judge<'a> {
    /// Turns to a document.
    pub fn new(
        config: &'a Config,
        document: &'a Document,
        talos: Minor,
        mode: Mode,
        findings: &'a mut Findings,
    ) -> Self {
        Self { config, document, release: release(talos), mode, talos, findings }
    }

    /// Returns the Talos that judges.
    pub const fn talos(&self) -> Minor {
        self.talos
    }

    /// Returns a value by its dotted path.
    pub fn get(&self, path: &str) -> Option<&'a Node> {
        self.document.value(path)
    }

    /// Returns the text at a path, or nothing.
    pub fn text(&self, path: &str) -> &'a str {
        self.get(path).and_then(Node::as_text).unwrap_or_default()
    }

    /// Returns the number at a path, or zero.
    pub fn int(&self, path: &str) -> i128 {
        self.get(path).and_then(Node::as_int).unwrap_or_default()
    }

    /// Whether the switch at a path is on.
    pub fn is_on(&self, path: &str) -> bool {
        self.get(path).and_then(Node::as_bool) == Some(true)
    }

    /// Whether the switch at a path is off, and not just left out.
    pub fn is_off(&self, path: &str) -> bool {
        self.get(path).and_then(Node::as_bool) == Some(false)
    }

    /// Returns the items of the list at a path.
    pub fn items(&self, path: &str) -> &'a [Node] {
        self.get(path).and_then(Node::as_list).unwrap_or_default()
    }

    /// Returns the texts of the list at a path.
    pub fn texts(&self, path: &str) -> impl Iterator<Item = (&'a Node, &'a str)> + use<'a> {
        self.items(path).iter().filter_map(|node| node.as_text().map(|text| (node, text)))
    }

    /// Returns the entries of the map at a path.
    pub fn entries(&self, path: &str) -> Vec<(&'a str, &'a Node)> {
        let map = self.get(path).and_then(Node::as_map);
        map.map(|map| map.iter().map(|(key, node)| (key.text.as_str(), node)).collect()).unwrap_or_default()
    }

    /// Reports something about a value.
    pub fn report(&mut self, severity: Severity, code: Code, node: Option<&Node>, words: &str, remedy: &str) {
        let at = node.and_then(|node| node.at).or(self.document.at());
        let message = format!("{}: {words}", self.document.identity().label());
        let finding = Finding { severity, ..Finding::error(code, at, message).remedy(remedy) };
        self.findings.push(finding);
    }

    /// Reports that a value is wrong.
    pub fn wrong(&mut self, code: Code, node: Option<&Node>, words: &str, remedy: &str) {
        self.report(Severity::Error, code, node, words, remedy);
    }

    /// Reports that the value at a path is wrong; if it is not there, its nearest holder is shown.
    pub fn fail(&mut self, code: Code, path: &str, words: &str, remedy: &str) {
        let node = nearest(self.document, path);
        self.wrong(code, node, words, remedy);
    }

    /// Reports something that Talos takes but that is probably not meant.
    pub fn warn(&mut self, code: Code, path: &str, words: &str, remedy: &str) {
        let node = nearest(self.document, path);
        self.report(Severity::Warning, code, node, words, remedy);
    }

    /// Reports two values that exclude each other.
    pub fn conflict(&mut self, path: &str, words: &str, remedy: &str) {
        self.fail(Code::CONFIG_REFUSED, path, words, remedy);
    }

    /// Reports a value that is missing or empty.
    pub fn required(&mut self, path: &str, words: &str) {
        let there = self.get(path).is_some_and(|node| match node.as_text() {
            Some(text) => !text.is_empty(),
            None => node.as_list().is_none_or(|items| !items.is_empty()),
        });
        if !there {
            self.fail(Code::CONFIG_REFUSED, path, words, &format!("set `{path}`"));
        }
    }

    /// Reports a number or duration below zero.
    pub fn not_negative(&mut self, path: &str, words: &str) {
        if self.int(path) < 0 || self.text(path).starts_with('-') {
            self.fail(Code::CONFIG_REFUSED, path, words, "write a positive value, or leave it out");
        }
    }

    /// Reports a subnet or address, or its negation with `!`, that is none.
    pub fn subnets(&mut self, path: &str, what: &str) {
        for (node, text) in self.texts(path) {
            if !super::text::is_subnet_or_address(text.strip_prefix('!').unwrap_or(text)) {
                let words = format!("{what} is not valid: \"{}\"", show(text));
                self.wrong(Code::CONFIG_REFUSED, Some(node), &words, "write a network as in `10.0.0.0/24`");
            }
        }
    }
}

/// Returns the value at a path or the innermost one on the way there.
fn nearest<'a>(document: &'a Document, path: &str) -> Option<&'a Node> {
    let mut parts = path.split('.');
    let mut here = document.body().get(parts.next()?)?;
    for part in parts {
        match here.get(part) {
            Some(next) => here = next,
            None => break,
        }
    }
    Some(here)
}
