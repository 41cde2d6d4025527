//! Where a secret is found. Never the secret itself.

use serde::Serialize;

/// A reference to a secret, as an inventory writes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretRef {
    /// An environment variable.
    Env(String),
    /// A file, relative to the inventory; its last newline is dropped.
    File(String),
    /// A value in a SOPS file, `path#dotted.key`.
    Sops(String),
    /// A field of a Vault or OpenBao KV v2 secret, `mount/path#field`.
    Vault(String),
    /// What a command prints, given as its words.
    Command(Vec<String>),
}
