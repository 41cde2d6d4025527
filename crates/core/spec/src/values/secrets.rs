//! Where secrets are, and whom they are encrypted to.

use ichor_model::{Code, Finding, SecretRef, Span};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

use super::LooseText;
use crate::{
    read::{Read, Reader},
    yaml::{Key, Kind, Node},
};

/// Somebody who can decrypt the cluster's secrets: the public key of age, or of SSH.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipient(pub String);

impl Read for Recipient {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        let (text, _) = reader.scalar(node, "a public key, as in `age1...`")?;
        if is_recipient(text) {
            return Some(Self(text.into()));
        }
        let remedy = "write the public key: `age1...`, `ssh-ed25519 ...` or `ssh-rsa ...`";
        reader.findings.push(bad_secret(node.span, "this is not the public key of a recipient", remedy));
        None
    }
}

/// Whether text is a public key, by its form.
fn is_recipient(text: &str) -> bool {
    let mut words = text.split(' ');
    match (words.next(), words.next()) {
        (Some(key), None) => key.strip_prefix("age1").is_some_and(|data| {
            data.len() >= 58
                && data.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        }),
        (Some("ssh-ed25519" | "ssh-rsa"), Some(key)) => {
            let base64 = |b: u8| b.is_ascii_alphanumeric() || b"+/=".contains(&b);
            key.starts_with("AAAA") && key.len() >= 68 && key.bytes().all(base64)
        }
        _ => false,
    }
}

/// A reference to a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Secret(pub SecretRef);

const SECRET_FORMS: &str = "write where it is: `{env: NAME}`, `{file: path}`, `{sops: path#key}`, `{vault: mount/path#field}` or `{command: [word, ...]}`";

impl Read for Secret {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        match &node.kind {
            Kind::Map(entries) if entries.len() == 1 => {
                let (key, value) = &entries[0];
                read_secret(key, value, reader).map(Self)
            }
            Kind::Map(_) => {
                reader.findings.push(bad_secret(node.span, "a reference has exactly one key", SECRET_FORMS));
                None
            }
            _ => {
                let message = "a secret must not stand in an inventory";
                reader.findings.push(bad_secret(node.span, message, SECRET_FORMS));
                None
            }
        }
    }
}

/// Whatever is written where a secret is wanted may be one: neither it nor its line is ever shown.
fn bad_secret(at: Span, message: &str, remedy: &str) -> Finding {
    Finding::error(Code::BAD_SECRET, at, message).remedy(remedy).private()
}

fn read_secret(key: &Key, value: &Node, reader: &mut Reader) -> Option<SecretRef> {
    let make: fn(String) -> SecretRef = match key.text.as_str() {
        "command" => return read_command(value, reader),
        "env" => SecretRef::Env,
        "file" => SecretRef::File,
        "sops" => SecretRef::Sops,
        "vault" => SecretRef::Vault,
        _ => {
            let message = "this is no place where secrets are found";
            reader.findings.push(bad_secret(key.span, message, SECRET_FORMS));
            return None;
        }
    };
    let Kind::Scalar { text, .. } = &value.kind else {
        reader.findings.push(bad_secret(value.span, "a place of secrets is one text", SECRET_FORMS));
        return None;
    };
    match place_problem(&key.text, text) {
        Some((message, remedy)) => {
            reader.findings.push(bad_secret(value.span, message, remedy));
            None
        }
        None if matches!(key.text.as_str(), "file" | "sops") => Some(make(reader.rebase(text, value.span))),
        None => Some(make(text.clone())),
    }
}

/// Says what is wrong with the place of a secret, and what to write instead.
fn place_problem(kind: &str, place: &str) -> Option<(&'static str, &'static str)> {
    const NO_KEY: &str = "this does not say which value is meant";
    let has_key = place.split_once('#').is_some_and(|(path, key)| !path.is_empty() && !key.is_empty());
    match kind {
        _ if place.is_empty() => Some(("the place of the secret is empty", SECRET_FORMS)),
        "env" if !place.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => Some((
            "this is not the name of an environment variable",
            "write its name alone, as in `{env: ICHOR_PVE_TOKEN}`",
        )),
        "sops" if !has_key => {
            Some((NO_KEY, "add `#` and its key, as in `{sops: secrets.sops.yaml#proxmox.token}`"))
        }
        "vault" if !has_key => Some((NO_KEY, "add `#` and its field, as in `{vault: secret/pve#token}`")),
        _ => None,
    }
}

fn read_command(value: &Node, reader: &mut Reader) -> Option<SecretRef> {
    let words: Option<Vec<String>> = match &value.kind {
        Kind::List(items) if !items.is_empty() => items.iter().map(command_word).collect(),
        _ => None,
    };
    if words.is_none() {
        let remedy = "write it as in `{command: [pass, show, pve]}`";
        reader.findings.push(bad_secret(value.span, "a command is a list of its words", remedy));
    }
    words.map(SecretRef::Command)
}

fn command_word(node: &Node) -> Option<String> {
    match &node.kind {
        Kind::Scalar { text, .. } if !text.is_empty() => Some(text.clone()),
        _ => None,
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let place = |description: &str| json_schema!({ "type": "string", "minLength": 1, "description": description });
        json_schema!({
            "description": "Where a secret is found. Secrets themselves never stand in an inventory.",
            "type": "object",
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": false,
            "properties": {
                "env": place("An environment variable."),
                "file": place("A file, relative to the one that names it."),
                "sops": place("A value in a SOPS file: `path#dotted.key`."),
                "vault": place("A field of a Vault or OpenBao KV v2 secret: `mount/path#field`."),
                "command": {
                    "type": "array", "items": { "type": "string" }, "minItems": 1,
                    "description": "A command whose output is the secret, as a list of its words.",
                },
            },
        })
    }
}

/// Plain text, or a reference to a secret.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema)]
#[schemars(untagged)]
pub enum TextOrSecret {
    /// Plain text.
    Text(LooseText),
    /// A secret.
    Secret(Secret),
}

impl Read for TextOrSecret {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        match &node.kind {
            Kind::Map(_) => Secret::read(node, reader).map(Self::Secret),
            _ => LooseText::read(node, reader).map(Self::Text),
        }
    }
}
