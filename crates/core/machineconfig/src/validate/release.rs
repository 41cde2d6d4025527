//! What a release of Talos does not know yet.

use ichor_model::{Code, Finding, Findings, Minor, Span};

use crate::{
    document::{Document, Map, Node, Value, read::Path},
    schema::{Field, Struct, Type, release},
};

/// Finds kinds, keys and words that came later than a release, and keys that no release knows.
pub fn too_new<'a>(documents: impl IntoIterator<Item = &'a Document>, talos: Minor) -> Findings {
    let mut findings = Findings::new();
    for document in documents {
        let label = document.identity().label();
        let mut walk = Walk {
            release: release(talos),
            document: &label,
            path: Path::default(),
            findings: &mut findings,
        };
        match document.schema() {
            Some(kind) if kind.since > walk.release => walk.late_kind(document, kind.since),
            Some(kind) => walk.fields(document.body(), &kind.body),
            None => walk.unknown_kind(document),
        }
    }
    findings
}

struct Walk<'a> {
    release: u8,
    document: &'a str,
    path: Path,
    findings: &'a mut Findings,
}

impl Walk<'_> {
    fn fields(&mut self, map: &Map, body: &Struct) {
        for (key, node) in map.iter() {
            self.path.key(&key.text);
            match body.field(&key.text) {
                None => self.unknown(key.at),
                Some(field) if field.since > self.release => self.late(field, key.at.or(node.at)),
                Some(field) => self.value(node, field.kind),
            }
            self.path.up();
        }
    }

    fn value(&mut self, node: &Node, kind: Type) {
        match (kind, &node.value) {
            (Type::Struct(body) | Type::Pem(body), Value::Map(map)) => self.fields(map, body),
            (Type::Map(item), Value::Map(map)) => {
                for (key, node) in map.iter() {
                    self.path.key(&key.text);
                    self.value(node, *item);
                    self.path.up();
                }
            }
            (Type::List(item), Value::List(items)) => {
                for (i, node) in items.iter().enumerate() {
                    self.path.index(i);
                    self.value(node, *item);
                    self.path.up();
                }
            }
            (Type::Enum(words), Value::Text(text)) => self.form(node, words.since(text), "this word"),
            (Type::Argument, Value::List(_)) => self.form(node, 13, "a list of arguments"),
            (Type::Size | Type::ByteSize, Value::Text(text)) => {
                let since = if text.starts_with('-') {
                    13
                } else if text.ends_with('%') {
                    12
                } else {
                    0
                };
                self.form(node, since, "a size of this form");
            }
            _ => {}
        }
    }

    /// Reports a form of a value that came later.
    fn form(&mut self, node: &Node, since: u8, what: &str) {
        if since <= self.release {
            return;
        }
        let message = format!("`{}` in {}: Talos takes {what} since 1.{since}", self.path, self.document);
        let finding = Finding::error(Code::CONFIG_RELEASE, node.at, message);
        self.findings.push(finding.remedy(format!("write it in another form, or use Talos 1.{since}")));
    }

    fn late(&mut self, field: &Field, at: Option<Span>) {
        let message = format!("`{}` in {} exists since Talos 1.{}", self.path, self.document, field.since);
        self.findings.push(
            Finding::error(Code::CONFIG_RELEASE, at, message)
                .because(format!("Talos 1.{} refuses it: unknown keys found during decoding", self.release))
                .remedy(format!("remove it, or use Talos 1.{}", field.since)),
        );
    }

    fn late_kind(&mut self, document: &Document, since: u8) {
        let kind = &document.identity().kind;
        let message = format!("{kind} documents exist since Talos 1.{since}");
        self.findings.push(
            Finding::error(Code::CONFIG_RELEASE, document.at(), message)
                .because(format!(
                    "Talos 1.{} refuses it: \"{kind}\" \"v1alpha1\": not registered",
                    self.release
                ))
                .remedy(format!(
                    "say the same in the v1alpha1 document where it can be said, or use Talos 1.{since}"
                )),
        );
    }

    fn unknown(&mut self, at: Option<Span>) {
        let message = format!("`{}` in {} is not a key of Talos", self.path, self.document);
        self.findings.push(
            Finding::error(Code::CONFIG_KEY, at, message)
                .because("every Talos release refuses it: unknown keys found during decoding")
                .remedy("remove it"),
        );
    }

    fn unknown_kind(&mut self, document: &Document) {
        let identity = document.identity();
        let message = format!("\"{}\" \"{}\": not registered", identity.kind, identity.api_version);
        let finding = Finding::error(Code::CONFIG_KIND, document.at(), message);
        self.findings
            .push(finding.remedy("check the kind: Talos refuses configs with kinds it does not know"));
    }
}
