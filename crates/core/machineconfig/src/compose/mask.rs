//! Keeping secrets out of what is said about machine configs.
//!
//! A patch may hold a secret in any of its values, and a JSON patch may copy one from anywhere in a config to
//! anywhere else. So it does not count where a finding points or which rule made it: before a finding leaves
//! the composer, everything that repeats one of these is taken out of its texts:
//!
//! 1. a secret of the cluster, or one that the inventory names, whole or in part;
//! 2. a value of a patch, whole anywhere, and in part where something is quoted (`values` says what counts
//!    as one);
//! 3. a part of a patch that cannot be read, where nobody knows what is a value.
//!
//! Keys, kinds and names stay, unless they repeat a secret: without them a finding would say nothing.

mod texts;
mod values;

use std::{collections::BTreeSet, ops::Range, sync::LazyLock};

use base64::{Engine, engine::general_purpose::STANDARD};
use ichor_model::{
    Desired, Finding, Findings, SecretRef,
    desired::{PatchContent, Role},
};
use zeroize::Zeroizing;

use self::{
    texts::{Texts, joined},
    values::Contents,
};
use super::Materials;
use crate::{
    schema::{self, Struct, Type},
    secrets::{Bundle, Encryption},
};

/// What stands in place of everything that is hidden.
const HIDDEN: &str = "…";
/// Longest text that is searched; real ones have a few lines.
const MAX_BYTES: usize = 16 * 1024;
/// Words that Talos takes in fields that hold any text.
const WORDS: [&str; 24] = [
    "controlplane",
    "worker",
    "flannel",
    "custom",
    "iptables",
    "nftables",
    "ipvs",
    "json_lines",
    "delete",
    "replace",
    "remove",
    "test",
    "move",
    "copy",
    "v1alpha1",
    "https",
    "http",
    "noschedule",
    "noexecute",
    "prefernoschedule",
    "node",
    "rbac",
    "webhook",
    "metal",
];

/// What findings about the machine configs of a cluster may not repeat.
pub struct Mask {
    secrets: Texts,
    values: Texts,
    unread: Texts,
    /// Keys, kinds and names.
    shown: Texts,
}

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mask").finish_non_exhaustive()
    }
}

impl Mask {
    /// Gathers everything that is hidden, and what is not.
    pub fn new(desired: &Desired, bundle: &Bundle, materials: &Materials) -> Self {
        let of_bundle = secrets_of(bundle);
        let named = materials.secrets.values().map(|secret| Zeroizing::new(secret.expose().to_owned()));
        let secrets: Vec<_> = of_bundle.into_iter().chain(named).flat_map(|secret| forms(&secret)).collect();
        let mut contents = Contents::default();
        let mut seen = BTreeSet::new();
        for patch in desired.machines.iter().flat_map(|machine| &machine.patches) {
            match &patch.content {
                PatchContent::File(path) if seen.insert(path.clone()) => {
                    if let Some(file) = materials.files.get(path) {
                        contents.add_text(&file.bytes);
                    }
                }
                PatchContent::File(_) => {}
                PatchContent::Inline(value) => {
                    if seen.insert(value.to_string()) {
                        contents.add_json(value);
                    }
                }
            }
        }
        let shown = WORDS_OF_SCHEMA.iter().cloned().chain(names_of(desired, materials)).chain(contents.keys);
        Self {
            secrets: Texts::new(secrets),
            values: Texts::new(contents.values.iter().flat_map(|value| written(value))),
            unread: Texts::new(contents.unread.iter().flat_map(|line| written(line))),
            shown: Texts::names(shown.map(Zeroizing::new)),
        }
    }

    /// Returns findings that repeat nothing. Whatever they point at may hold a secret too, so its line is
    /// not shown.
    pub fn over(&self, findings: &Findings) -> Findings {
        let masked = findings.iter().map(|finding| Finding {
            message: self.text(&finding.message),
            notes: finding.notes.iter().map(|note| self.text(note)).collect(),
            related: finding.related.iter().map(|(at, what)| (*at, self.text(what))).collect(),
            remedy: finding.remedy.as_ref().map(|remedy| self.text(remedy)),
            private: finding.private || finding.at.is_some() || !finding.related.is_empty(),
            ..finding.clone()
        });
        masked.collect()
    }

    /// Returns a text without anything that is hidden.
    fn text(&self, text: &str) -> String {
        let end = text.floor_char_boundary(MAX_BYTES);
        let (text, rest) = (&text[..end], if end < text.len() { HIDDEN } else { "" });
        let lower = text.to_ascii_lowercase();
        let mut spans = self.secrets.whole_in(&lower);
        spans.extend(self.secrets.parts_in(&lower, 0..lower.len()));
        let names = self.shown.whole_in(&lower);
        let is_name =
            |span: &Range<usize>| names.iter().any(|name| name.start <= span.start && span.end <= name.end);
        let values = self.values.whole_in(&lower).into_iter().chain(self.unread.whole_in(&lower));
        let parts = self.values.parts_in(&lower, quoted(&lower));
        let parts = parts.into_iter().chain(self.unread.parts_in(&lower, 0..lower.len()));
        spans.extend(values.chain(parts).filter(|span| !is_name(span)));
        without(text, joined(spans)) + rest
    }
}

/// Returns where values are quoted: from the first quotation mark to the last, and everything after the first
/// line, where a patch is proposed. Values may hold quotation marks themselves, so pairs tell nothing.
fn quoted(text: &str) -> Range<usize> {
    let marks = ['`', '"', '\''];
    let line = text.find('\n');
    let start = text.find(marks).unwrap_or(text.len()).min(line.unwrap_or(text.len()));
    let end = if line.is_some() { text.len() } else { text.rfind(marks).unwrap_or(text.len()) };
    start..end.max(start)
}

/// Puts the sign for something hidden in place of parts of a text.
fn without(text: &str, spans: Vec<Range<usize>>) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut at = 0;
    for span in spans {
        shown.push_str(&text[at..span.start]);
        shown.push_str(HIDDEN);
        // A value that was cut has the sign already.
        at = if text[span.end..].starts_with(HIDDEN) { span.end + HIDDEN.len() } else { span.end };
    }
    shown.push_str(&text[at..]);
    shown
}

/// Returns the secrets of a bundle; certificates and the cluster's id are none.
fn secrets_of(bundle: &Bundle) -> Vec<Zeroizing<String>> {
    let (Encryption::Secretbox(encryption) | Encryption::AesCbc(encryption)) = &bundle.encryption;
    let authorities = [&bundle.etcd, &bundle.kubernetes, &bundle.aggregator, &bundle.os];
    let keys = authorities.iter().map(|authority| authority.key()).chain([&bundle.service_account]);
    [&bundle.cluster_secret, &bundle.bootstrap_token, &bundle.trustd_token, encryption]
        .into_iter()
        .chain(keys.map(crate::pki::PrivateKey::pem))
        .map(|secret| Zeroizing::new(secret.expose().to_owned()))
        .collect()
}

/// Returns a secret in all forms that it may take in a config: as it is, in base64, and what it is the base64
/// of.
fn forms(secret: &str) -> Vec<Zeroizing<String>> {
    let bytes = Zeroizing::new(STANDARD.decode(secret.trim()).unwrap_or_default());
    let decoded = std::str::from_utf8(&bytes).unwrap_or_default();
    let encoded = Zeroizing::new(STANDARD.encode(secret));
    [secret, decoded].into_iter().flat_map(without_armour).chain([encoded]).collect()
}

/// Returns a text as it may be written, and a PEM block without its first and last line, which are no secret.
fn without_armour(text: &str) -> Vec<Zeroizing<String>> {
    if !text.contains("-----BEGIN") {
        return written(text);
    }
    text.lines().filter(|line| !line.starts_with("-----")).flat_map(written).collect()
}

/// Returns a value in all forms in which a message may write it.
fn written(value: &str) -> Vec<Zeroizing<String>> {
    use crate::document::raw::{escaped, show};
    let lines = value.lines().map(|line| line.trim().to_owned());
    let json = serde_json::Value::from(value).to_string();
    let whole = [
        value.to_owned(),
        value.trim().to_owned(),
        escaped(value),
        show(value).trim_end_matches('…').to_owned(),
        value.replace('\'', "''"),
        json[1..json.len() - 1].to_owned(),
    ];
    whole.into_iter().chain(lines).map(Zeroizing::new).collect()
}

/// Keys, kinds and words of Talos.
static WORDS_OF_SCHEMA: LazyLock<BTreeSet<String>> = LazyLock::new(|| {
    let mut words: BTreeSet<String> = WORDS.map(str::to_owned).into();
    for kind in schema::kinds() {
        words.insert(kind.name.to_owned());
        add_words(&kind.body, &mut words);
    }
    words
});

fn add_words(body: &Struct, words: &mut BTreeSet<String>) {
    for field in body.fields {
        words.insert(field.name.to_owned());
        let mut kind = field.kind;
        while let Type::List(item) | Type::Map(item) = kind {
            kind = *item;
        }
        match kind {
            Type::Struct(inner) | Type::Pem(inner) => add_words(inner, words),
            Type::Enum(choice) => words.extend(choice.words.iter().map(|word| (*word).to_owned())),
            _ => {}
        }
    }
}

/// Names that findings call things by.
fn names_of(desired: &Desired, materials: &Materials) -> Vec<String> {
    let mut names = vec![desired.cluster.name.to_string()];
    names.extend(Role::ALL.map(|role| role.to_string()));
    for machine in &desired.machines {
        names.extend([machine.name.to_string(), machine.group.clone()]);
        names.extend(machine.disks.iter().map(|disk| disk.name.clone()));
        names.extend(machine.patches.iter().filter_map(|patch| match &patch.content {
            PatchContent::File(path) => Some(path.clone()),
            PatchContent::Inline(_) => None,
        }));
    }
    names.extend(desired.cluster.manifests.iter().map(|manifest| manifest.name.clone()));
    names.extend(desired.os.extension_services.keys().cloned());
    names.extend(materials.files.keys().cloned());
    names.extend(materials.secrets.keys().filter_map(|secret| match secret {
        SecretRef::Env(name) | SecretRef::File(name) => Some(name.clone()),
        _ => None,
    }));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(secrets: &[&str], values: &[&str], keys: &[&str]) -> Mask {
        let owned =
            |texts: &[&str]| texts.iter().map(|text| Zeroizing::new((*text).to_owned())).collect::<Vec<_>>();
        Mask {
            secrets: Texts::new(secrets.iter().flat_map(|secret| forms(secret))),
            values: Texts::new(values.iter().flat_map(|value| written(value))),
            unread: Texts::new([]),
            shown: Texts::names(owned(keys)),
        }
    }

    #[test]
    fn values_are_hidden_in_any_quotes_and_in_none() {
        let mask = mask(&[], &["hunter2", "correct horse battery", "http://user:swordfish@host"], &[]);
        for (text, shown) in [
            ("`token` is `hunter2`", "`token` is `…`"),
            ("label \"a: correct horse battery\" is bad", "label \"a: …\" is bad"),
            ("format HUNTER2 is bad", "format … is bad"),
            ("host `swordfish` is bad", "host `…` is bad"),
            ("`battery…` is cut", "`…` is cut"),
            (
                "write:\nmachine:\n    token: hunter2\n    x: horse battery",
                "write:\nmachine:\n    token: …\n    x: horse …",
            ),
            ("hunter23 is another word", "hunter23 is another word"),
        ] {
            assert_eq!(mask.text(text), shown);
        }
    }

    #[test]
    fn keys_stay_and_secrets_do_not() {
        let mask =
            mask(&["hostname", "s3cret"], &["label", "my-label-value"], &["my-label", "hostname", "label"]);
        assert_eq!(mask.text("`my-label` of `label` is `my-label-value`"), "`my-label` of `label` is `…`");
        assert_eq!(mask.text("`hostname` is s3cret"), "`…` is …");
    }

    #[test]
    fn secrets_are_hidden_in_every_form() {
        let pem = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIJ0\nabcdefghijklmnop\n-----END PRIVATE KEY-----\n";
        let mask = mask(&[pem, "YWJjZGVmLWdoaWprbA=="], &[], &[]);
        let base64 = STANDARD.encode(pem);
        for secret in [
            &base64,
            &base64[..60],
            "MC4CAQAwBQYDK2VwBCIEIJ0",
            "cdefghijk",
            "abcdef-ghijkl",
            "YWJjZGVmLWdoaWprbA==",
        ] {
            let told = mask.text(&format!("it is {secret}, and \"{secret}…\""));
            assert_eq!(told, "it is …, and \"…\"", "{secret}");
        }
        assert_eq!(mask.text("a PRIVATE KEY is no secret word"), "a PRIVATE KEY is no secret word");
    }

    #[test]
    fn long_texts_are_cut() {
        let told = mask(&[], &["hunter2"], &[]).text(&"é hunter2 ".repeat(10_000));
        assert!(told.ends_with('…') && told.len() <= MAX_BYTES + 3 && !told.contains("hunter"));
    }
}
