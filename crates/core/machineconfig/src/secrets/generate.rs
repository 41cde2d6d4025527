//! Making a new bundle.

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE},
};
use zeroize::Zeroizing;

use super::{Bundle, Encryption, SecretText, token};
use crate::pki::{Authority, Entropy, PkiError, PrivateKey, RsaKey, Timestamp};

/// Makes a bundle. The order of the draws is part of what a seed means: do not change it.
pub fn generate(entropy: &mut dyn Entropy, now: Timestamp, rsa: RsaKey) -> Result<Bundle, PkiError> {
    Ok(Bundle {
        cluster_id: cluster_id(entropy),
        cluster_secret: secret_key(entropy),
        bootstrap_token: token::generate(entropy)?,
        encryption: Encryption::Secretbox(secret_key(entropy)),
        trustd_token: token::generate(entropy)?,
        etcd: kubernetes_authority(Some("etcd"), now, entropy)?,
        kubernetes: kubernetes_authority(Some("kubernetes"), now, entropy)?,
        // Talos drops this authority's name on the way; clients know it by its key.
        aggregator: kubernetes_authority(None, now, entropy)?,
        service_account: rsa.into_key(),
        os: {
            let key = PrivateKey::generate_ed25519(entropy)?;
            Authority::generate(Some("talos"), key, now, entropy)?
        },
    })
}

fn kubernetes_authority(
    organization: Option<&str>,
    now: Timestamp,
    entropy: &mut dyn Entropy,
) -> Result<Authority, PkiError> {
    let key = PrivateKey::generate_p256(entropy)?;
    Authority::generate(organization, key, now, entropy)
}

fn bytes(entropy: &mut dyn Entropy) -> Zeroizing<[u8; 32]> {
    let mut bytes = Zeroizing::new([0; 32]);
    entropy.fill(&mut bytes[..]);
    bytes
}

/// The alphabet is that of Talos up to 1.13, which is safe wherever the id may be put.
fn cluster_id(entropy: &mut dyn Entropy) -> String {
    URL_SAFE.encode(bytes(entropy))
}

fn secret_key(entropy: &mut dyn Entropy) -> SecretText {
    SecretText::new(STANDARD.encode(bytes(entropy)))
}
