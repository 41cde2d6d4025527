//! The `sops` block of a file: who can open it, by which rule its values are encrypted, and its checksum.

use crate::{
    Flaw, Rule,
    tree::{Entry, Item, Map, Scalar, Value, get},
};

/// The key of the block.
pub const KEY: &str = "sops";
/// The release of sops whose format new files have.
const VERSION: &str = "3.13.3";
/// Keys of the block that hold keys of other kinds than age.
const FOREIGN: [&str; 6] = ["kms", "gcp_kms", "hckms", "azure_kv", "hc_vault", "pgp"];
const RULES: [&str; 4] = ["unencrypted_suffix", "encrypted_suffix", "unencrypted_regex", "encrypted_regex"];
const COMMENT_RULES: [&str; 2] = ["unencrypted_comment_regex", "encrypted_comment_regex"];

/// The block.
#[derive(Clone, PartialEq)]
pub struct Metadata {
    /// The data key, for each age recipient.
    pub wrapped: Vec<Wrapped>,
    /// Keys of other kinds, as they were found.
    pub foreign: Vec<(String, Value)>,
    pub rule: Rule,
    pub mac_only_encrypted: bool,
    pub mac: String,
    pub last_modified: String,
    pub version: String,
}

/// The data key for one recipient.
#[derive(Clone, PartialEq, Eq)]
pub struct Wrapped {
    pub recipient: String,
    pub armored: String,
}

impl Metadata {
    /// Returns the block of a new file, without recipients and checksum.
    pub fn new(rule: Rule, mac_only_encrypted: bool) -> Self {
        Self {
            wrapped: Vec::new(),
            foreign: Vec::new(),
            rule,
            mac_only_encrypted,
            mac: String::new(),
            last_modified: String::new(),
            version: VERSION.to_owned(),
        }
    }

    /// Reads the block.
    pub fn parse(block: &Map) -> Result<Self, Flaw> {
        let mut metadata = Self::new(rule(block)?, is_true(block, "mac_only_encrypted"));
        metadata.read_keys(block)?;
        if let Some(Value::List(groups)) = get(block, "key_groups") {
            let mut maps = groups.iter().filter_map(|group| match group {
                Item::Value(Value::Map(map)) => Some(map),
                _ => None,
            });
            match (maps.next(), maps.next()) {
                (Some(group), None) => metadata.read_keys(group)?,
                (Some(_), Some(_)) => return Err(split()),
                _ => {}
            }
        }
        metadata.mac = required(block, "mac")?;
        metadata.last_modified = required(block, "lastmodified")?;
        metadata.version = text(block, "version").unwrap_or_else(|| VERSION.to_owned());
        Ok(metadata)
    }

    fn read_keys(&mut self, block: &Map) -> Result<(), Flaw> {
        if let Some(Value::List(items)) = get(block, "age") {
            for item in items {
                let Item::Value(Value::Map(map)) = item else { continue };
                let (recipient, armored) = (required(map, "recipient")?, required(map, "enc")?);
                self.wrapped.push(Wrapped { recipient, armored });
            }
        }
        for kind in FOREIGN {
            match get(block, kind) {
                Some(Value::List(items)) if !items.is_empty() => {
                    self.foreign.push((kind.to_owned(), Value::List(items.clone())));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes the block, in the order of sops.
    pub fn to_value(&self) -> Value {
        let wrapped = self.wrapped.iter().map(|it| {
            let pairs = [("enc", it.armored.as_str()), ("recipient", &it.recipient)];
            Item::Value(Value::Map(pairs.map(|(key, value)| pair(key, Value::text(value))).into()))
        });
        let wrapped: Vec<Item> = wrapped.collect();
        let mut pairs: Vec<(String, Value)> = self.foreign.clone();
        if !wrapped.is_empty() {
            pairs.push(("age".to_owned(), Value::List(wrapped)));
        }
        let (rule, is) = self.rule.to_pair();
        for (key, value) in [("lastmodified", self.last_modified.as_str()), ("mac", &self.mac), (rule, is)] {
            pairs.push((key.to_owned(), Value::text(value)));
        }
        if self.mac_only_encrypted {
            pairs.push(("mac_only_encrypted".to_owned(), Value::Scalar(Scalar::Bool(true))));
        }
        pairs.push(("version".to_owned(), Value::text(self.version.as_str())));
        pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
        Value::Map(pairs.into_iter().map(|(key, value)| Entry::Pair(key, value)).collect())
    }
}

fn pair(key: &str, value: Value) -> Entry {
    Entry::Pair(key.to_owned(), value)
}

fn text(map: &Map, key: &str) -> Option<String> {
    match get(map, key)? {
        Value::Scalar(Scalar::Text(text)) => Some(text.as_str().to_owned()),
        Value::Scalar(Scalar::Time(text)) => Some(text.clone()),
        _ => None,
    }
}

fn required(map: &Map, key: &str) -> Result<String, Flaw> {
    let found = text(map, key).filter(|text| !text.is_empty());
    found.ok_or_else(|| Flaw::tampered(format!("has no `{key}` in its `sops` block")))
}

fn is_true(map: &Map, key: &str) -> bool {
    matches!(get(map, key), Some(Value::Scalar(Scalar::Bool(true))))
}

fn rule(block: &Map) -> Result<Rule, Flaw> {
    let set = |key: &&str| text(block, key).filter(|text| !text.is_empty());
    if let Some(key) = COMMENT_RULES.iter().find(|key| set(key).is_some()) {
        return Err(Flaw::unsupported(
            format!("decides by comments which values are encrypted (`{key}`)"),
            "encrypt it by the names of keys, as with `encrypted_regex`",
        ));
    }
    let mut rules = RULES.iter().filter_map(|key| set(key).and_then(|text| Rule::of_key(key, &text)));
    match (rules.next(), rules.next()) {
        (None, _) => Ok(Rule::default()),
        (Some(rule), None) => Ok(rule),
        (Some(_), Some(_)) => Err(Flaw::tampered("has two rules about which values are encrypted")),
    }
}

fn split() -> Flaw {
    Flaw::unsupported(
        "splits its key among several groups, all of which are needed",
        "decrypt it for the command, as in\n    sops -d FILE | ichor secrets import -",
    )
}
