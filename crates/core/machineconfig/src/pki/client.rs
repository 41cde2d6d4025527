//! Certificates of clients: of the Talos API and of Kubernetes.

use std::{fmt, str::FromStr, time::Duration};

use ichor_model::Problem;
use zeroize::Zeroizing;

use super::{
    Authority, Certificate, Entropy, PkiError, PrivateKey, Timestamp,
    authority::serial,
    certificate::{Draft, KeyUsage, Purpose, name},
};

/// How long a Talos client's certificate is valid unless somebody asks otherwise.
pub const TALOS_CLIENT_LIFETIME: Duration = Duration::from_hours(365 * 24);
/// How long our Kubernetes certificates are valid: they are made anew for every use.
pub const KUBERNETES_ADMIN_LIFETIME: Duration = Duration::from_hours(24);

/// The API server's clock may be this much behind ours.
const KUBERNETES_CLOCK_SKEW: Duration = Duration::from_secs(10);

/// What a client of the Talos API may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TalosRole {
    /// Everything.
    Admin,
    /// Everything that neither reads secrets nor changes machine configs.
    Operator,
    /// Looking, but no secrets.
    Reader,
    /// Taking snapshots of etcd.
    EtcdBackup,
}

impl TalosRole {
    /// All roles, the mightiest first.
    pub const ALL: [Self; 4] = [Self::Admin, Self::Operator, Self::Reader, Self::EtcdBackup];

    /// Returns the word that stands in certificates.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Admin => "os:admin",
            Self::Operator => "os:operator",
            Self::Reader => "os:reader",
            Self::EtcdBackup => "os:etcd:backup",
        }
    }
}

impl fmt::Display for TalosRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for TalosRole {
    type Err = Problem;

    /// Reads `os:admin` or `admin`.
    fn from_str(text: &str) -> Result<Self, Problem> {
        let bare = text.strip_prefix("os:").unwrap_or(text);
        Self::ALL.into_iter().find(|role| role.word().strip_prefix("os:") == Some(bare)).ok_or_else(|| {
            Problem::new(
                "is not a role of the Talos API",
                "write `os:admin`, `os:operator`, `os:reader` or `os:etcd:backup`",
            )
        })
    }
}

/// A client's certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// The certificate.
    pub certificate: Certificate,
    /// Its key.
    pub key: PrivateKey,
}

impl Client {
    /// Returns the certificate and its key as TLS takes them: DER, the key as PKCS #8.
    pub fn to_der(&self) -> Result<(Vec<u8>, Zeroizing<Vec<u8>>), PkiError> {
        Ok((self.certificate.der().to_vec(), self.key.to_pkcs8_der()?))
    }
}

/// When a certificate is made, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term {
    /// Now.
    pub now: Timestamp,
    /// How long it is to be valid; never longer than its authority.
    pub lifetime: Duration,
}

/// Makes the certificate of a client of the Talos API.
///
/// The roles are its organisations, and its subject holds nothing else. Machines refuse it if it may
/// be used for anything but clients.
pub fn talos_client(
    authority: &Authority,
    roles: &[TalosRole],
    term: Term,
    entropy: &mut dyn Entropy,
) -> Result<Client, PkiError> {
    if roles.is_empty() {
        return Err(PkiError::NoRole);
    }
    let mut words: Vec<&str> = roles.iter().map(|role| role.word()).collect();
    words.sort_unstable();
    words.dedup();
    let subject = name(&words, None);
    sign(authority, &subject, KeyUsage::DigitalSignature, (term.now, term), entropy)
}

/// Makes the certificate of a Kubernetes administrator.
pub fn kubernetes_admin(
    authority: &Authority,
    term: Term,
    entropy: &mut dyn Entropy,
) -> Result<Client, PkiError> {
    let subject = name(&["system:masters"], Some("admin"));
    let begin = term.now.minus(KUBERNETES_CLOCK_SKEW);
    sign(authority, &subject, KeyUsage::SignatureAndEncipherment, (begin, term), entropy)
}

fn sign(
    authority: &Authority,
    subject: &[u8],
    usage: KeyUsage,
    (not_before, Term { now, lifetime }): (Timestamp, Term),
    entropy: &mut dyn Entropy,
) -> Result<Client, PkiError> {
    if lifetime.as_secs() == 0 {
        return Err(PkiError::NoLifetime);
    }
    let end = authority.certificate().not_after();
    if now > end {
        return Err(PkiError::Expired { end });
    }
    let key = authority.leaf_key(entropy)?;
    let certificate = Draft {
        serial: serial(entropy)?,
        issuer: authority.certificate().subject(),
        subject,
        not_before,
        not_after: now.plus(lifetime).min(end),
        key: &key,
        usage,
        purposes: &[Purpose::Client],
        authority: false,
        issuer_key: authority.certificate().key_identifier(),
        reached_by: &[],
    }
    .sign(authority.key())?;
    Ok(Client { certificate, key })
}
