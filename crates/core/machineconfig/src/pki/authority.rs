//! Certificate authorities.

use std::time::Duration;

use ichor_model::Problem;

use super::{
    Algorithm, Certificate, Entropy, PkiError, PrivateKey, Timestamp,
    certificate::{Draft, KeyUsage, Purpose, name},
    entropy::draw,
};

/// How long a new authority is valid: ten years of 365 days, as Talos makes it.
pub const AUTHORITY_LIFETIME: Duration = Duration::from_hours(87_600);

/// A certificate authority: a certificate that may sign others, and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authority {
    certificate: Certificate,
    key: PrivateKey,
}

impl Authority {
    /// Joins a certificate and its key, if they belong together and may sign.
    pub fn new(certificate: Certificate, key: PrivateKey) -> Result<Self, Problem> {
        certificate.check_key(&key)?;
        certificate.check_authority()?;
        Ok(Self { certificate, key })
    }

    /// Makes an authority of its own signature. Its subject is the organisation, or empty.
    pub(crate) fn generate(
        organization: Option<&str>,
        key: PrivateKey,
        now: Timestamp,
        entropy: &mut dyn Entropy,
    ) -> Result<Self, PkiError> {
        let organizations: Vec<&str> = organization.into_iter().collect();
        let subject = name(&organizations, None);
        let certificate = Draft {
            serial: serial(entropy)?,
            issuer: &subject,
            subject: &subject,
            not_before: now,
            not_after: now.plus(AUTHORITY_LIFETIME),
            key: &key,
            usage: KeyUsage::SignatureAndCertificates,
            purposes: &[Purpose::Server, Purpose::Client],
            authority: true,
            issuer_key: None,
            reached_by: &[],
        }
        .sign(&key)?;
        Ok(Self { certificate, key })
    }

    /// Returns the certificate.
    pub const fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    /// Returns the key.
    pub const fn key(&self) -> &PrivateKey {
        &self.key
    }

    /// Makes a key of the kind that this authority's certificates have.
    ///
    /// Under an RSA authority Talos makes RSA keys; ours are P-256, which every client takes, and which
    /// neither need seconds nor escape the entropy.
    pub(crate) fn leaf_key(&self, entropy: &mut dyn Entropy) -> Result<PrivateKey, PkiError> {
        match self.key.algorithm() {
            Algorithm::Ed25519 => PrivateKey::generate_ed25519(entropy),
            Algorithm::Ecdsa(_) | Algorithm::Rsa(_) => PrivateKey::generate_p256(entropy),
        }
    }
}

/// Draws a serial number of 128 bits; zero is not one.
pub fn serial(entropy: &mut dyn Entropy) -> Result<[u8; 16], PkiError> {
    draw(entropy, |bytes: &[u8; 16]| (*bytes != [0; 16]).then_some(*bytes)).ok_or(PkiError::Entropy)
}
