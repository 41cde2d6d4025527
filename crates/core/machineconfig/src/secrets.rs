//! The secrets of a cluster: made once, kept for its whole life.
//!
//! A [`Bundle`] is made from entropy, or read from talosctl's `secrets.yaml` or from the machine
//! config of a control plane. Certificates and keys keep the exact text they were read with, so that
//! a file which is read and written again is the same file.

mod draft;
mod flaw;
mod generate;
mod import;
mod read;
mod text;
mod token;
mod write;

pub use flaw::{Flaw, Flaws};
pub use import::contracts_of;
pub use text::SecretText;

use crate::pki::{Authority, Entropy, PkiError, PrivateKey, RsaKey, Timestamp};

/// All secrets of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    /// The cluster's name for discovery; not a secret by itself.
    pub cluster_id: String,
    /// The key that discovery data are encrypted with.
    pub cluster_secret: SecretText,
    /// The token that kubelets join with.
    pub bootstrap_token: SecretText,
    /// The key that Kubernetes' secrets are encrypted with in etcd.
    pub encryption: Encryption,
    /// The token that machines get their certificates with.
    pub trustd_token: SecretText,
    /// Signs etcd's certificates.
    pub etcd: Authority,
    /// Signs Kubernetes' certificates.
    pub kubernetes: Authority,
    /// Signs the certificates of Kubernetes' aggregation layer.
    pub aggregator: Authority,
    /// Signs service-account tokens.
    pub service_account: PrivateKey,
    /// Signs the certificates of the Talos API.
    pub os: Authority,
}

/// How Kubernetes' secrets are encrypted in etcd, with the key as base64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Encryption {
    /// Contracts from 1.3 on.
    Secretbox(SecretText),
    /// Older clusters.
    AesCbc(SecretText),
}

impl Bundle {
    /// Makes the secrets of a new cluster.
    pub fn generate(entropy: &mut dyn Entropy, now: Timestamp, rsa: RsaKey) -> Result<Self, PkiError> {
        generate::generate(entropy, now, rsa)
    }

    /// Reads talosctl's `secrets.yaml`, or says everything that is wrong with it. Without a time, authorities
    /// that have ended are no flaw.
    pub fn from_secrets_yaml(text: &str, now: impl Into<Option<Timestamp>>) -> Result<Self, Flaws> {
        read::read(text, now.into())
    }

    /// Writes `secrets.yaml`, byte for byte as talosctl does.
    pub fn to_secrets_yaml(&self) -> SecretText {
        write::write(self)
    }

    /// Reads the secrets out of a control plane's machine config of any contract. Without a time, authorities
    /// that have ended are no flaw.
    pub fn from_machine_config(text: &str, now: impl Into<Option<Timestamp>>) -> Result<Self, Flaws> {
        import::read(text, now.into())
    }
}
