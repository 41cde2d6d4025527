//! Certificates of servers, for the lab's machines: nothing else in ichor is a server.

use super::{
    Authority, Certificate, Client, Entropy, PkiError, PrivateKey, Term,
    authority::serial,
    certificate::{Draft, KeyUsage, Purpose, ServerName, name},
};

/// Who a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server<'a> {
    /// The common name, if it has one.
    pub common_name: Option<&'a str>,
    /// By which names it is reached.
    pub reached_by: &'a [ServerName],
}

/// Makes the certificate of a server.
pub fn server(
    authority: &Authority,
    server: &Server<'_>,
    term: Term,
    entropy: &mut dyn Entropy,
) -> Result<Client, PkiError> {
    let key = authority.leaf_key(entropy)?;
    let issuer =
        (authority.certificate().subject(), authority.certificate().key_identifier(), authority.key());
    sign(server, &key, issuer, term, entropy).map(|certificate| Client { certificate, key })
}

/// Makes the certificate of a server that nobody vouches for, with an Ed25519 key.
pub fn self_signed_server(
    server: &Server<'_>,
    term: Term,
    entropy: &mut dyn Entropy,
) -> Result<Client, PkiError> {
    let key = PrivateKey::generate_ed25519(entropy)?;
    let subject = name(&[], server.common_name);
    sign(server, &key, (&subject, None, &key), term, entropy)
        .map(|certificate| Client { certificate, key: key.clone() })
}

fn sign(
    server: &Server<'_>,
    key: &PrivateKey,
    (issuer, issuer_key, signer): (&[u8], Option<&[u8]>, &PrivateKey),
    Term { now, lifetime }: Term,
    entropy: &mut dyn Entropy,
) -> Result<Certificate, PkiError> {
    if lifetime.as_secs() == 0 {
        return Err(PkiError::NoLifetime);
    }
    Draft {
        serial: serial(entropy)?,
        issuer,
        subject: &name(&[], server.common_name),
        not_before: now,
        not_after: now.plus(lifetime),
        key,
        usage: KeyUsage::DigitalSignature,
        purposes: &[Purpose::Server],
        authority: false,
        issuer_key,
        reached_by: server.reached_by,
    }
    .sign(signer)
}
