//! Looking at who is at an address, without saying anything.

use std::{fmt, io, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use ichor_net::{
    Dial, Fingerprint, Trust,
    tls::{NotTrusted, Protocol, Secure},
};
use rustls::{
    CertificateError, RootCertStore,
    client::{WebPkiServerVerifier, danger::ServerCertVerifier},
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use sha2::{Digest, Sha256};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};
use x509_parser::{certificate::X509Certificate, prelude::FromDer};

use crate::{Address, Error, error::clean};

/// The name in the certificates that machines make themselves in maintenance mode.
const MAINTENANCE: &str = "maintenance-service.talos.dev";
/// Servers of HTTP/2 speak first; one that is silent for so long is not waited for.
pub(crate) const FIRST_WORD: Duration = Duration::from_secs(3);

/// Who shows a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Face {
    /// A machine in maintenance mode.
    Maintenance,
    /// Somebody for whom our CA vouches.
    Ours,
    /// A machine of another cluster: its certificate is one of a Talos CA, and not of ours.
    OtherCluster,
    /// Somebody else.
    Stranger,
}

impl fmt::Display for Face {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Maintenance => "a machine in maintenance mode",
            Self::Ours => "a machine of this cluster",
            Self::OtherCluster => "a machine of another cluster",
            Self::Stranger => "somebody unknown",
        })
    }
}

/// What was seen at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peeked {
    /// The SHA-256 of the certificate.
    pub fingerprint: Fingerprint,
    /// The SHA-256 of its public key in base64, as Talos writes it on the console in maintenance mode.
    pub key: String,
    /// Who shows it.
    pub face: Face,
    /// Whom the certificate is for, and who vouches for it.
    pub names: String,
    /// Whether a certificate is demanded of us; nothing: that could not be seen.
    pub wants_certificate: Option<bool>,
}

/// Looks at the certificate of whoever is at an address: a TLS handshake, and not a byte more. `authorities` are the
/// CAs (DER) of our cluster, and may be none.
pub async fn peek(
    at: &Address,
    authorities: &[Vec<u8>],
    dialer: &dyn Dial,
    within: Duration,
) -> Result<Peeked, Error> {
    let not_reached = |why: String| Error::NotReached { at: at.clone(), why };
    match timeout(within, look(at, authorities, dialer)).await {
        Ok(seen) => seen.map_err(not_reached),
        Err(_) => Err(not_reached(format!("there was no handshake within {within:?}"))),
    }
}

async fn look(at: &Address, authorities: &[Vec<u8>], dialer: &dyn Dial) -> Result<Peeked, String> {
    let secure =
        Secure::new(Trust::Anybody, None, Protocol::Http2).map_err(|error| clean(&error.to_string()))?;
    let stream = dialer.dial(&at.host, at.port).await.map_err(|error| clean(&error.to_string()))?;
    let mut stream = secure.connect(stream, &at.host).await.map_err(|error| clean(&error.to_string()))?;
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let certificates: Vec<Vec<u8>> = certificates.iter().map(|certificate| certificate.to_vec()).collect();
    let mut first = [0; 1];
    let wants_certificate = match timeout(FIRST_WORD, stream.read(&mut first)).await {
        Ok(Ok(1..)) => Some(false),
        Ok(Err(error)) if certificate_alert(&error).is_some() => Some(true),
        _ => None,
    };
    // How whoever is there takes the farewell does not matter.
    let _ = timeout(FIRST_WORD, stream.shutdown()).await;
    judge(&certificates, authorities, &at.host, wants_certificate)
}

/// Says who shows certificates.
fn judge(
    certificates: &[Vec<u8>],
    authorities: &[Vec<u8>],
    host: &str,
    wants_certificate: Option<bool>,
) -> Result<Peeked, String> {
    let (leaf, chain) = certificates.split_first().ok_or("no certificate was shown")?;
    let (_, certificate) =
        X509Certificate::from_der(leaf).map_err(|_| "what was shown is no certificate".to_owned())?;
    let subject = certificate.subject();
    let is_called = |name: &str| subject.iter_common_name().any(|common| common.as_str() == Ok(name));
    let of_talos = certificate.issuer().iter_organization().any(|name| name.as_str() == Ok("talos"));
    let face = if is_ours(leaf, chain, authorities, host, &certificate) {
        Face::Ours
    } else if is_called(MAINTENANCE) {
        Face::Maintenance
    } else if of_talos {
        Face::OtherCluster
    } else {
        Face::Stranger
    };
    let names = clean(&format!("`{subject}`, vouched for by `{}`", certificate.issuer()));
    let key = STANDARD.encode(Sha256::digest(certificate.public_key().raw));
    Ok(Peeked { fingerprint: Fingerprint::of(leaf), key, face, names, wants_certificate })
}

/// Whether one of our CAs has signed a certificate, whatever its names and its age.
fn is_ours(
    leaf: &[u8],
    chain: &[Vec<u8>],
    authorities: &[Vec<u8>],
    host: &str,
    certificate: &X509Certificate<'_>,
) -> bool {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities.iter().cloned().map(CertificateDer::from));
    let provider = aws_lc_rs::default_provider().into();
    let Ok(verifier) = WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build() else {
        return false;
    };
    let Ok(name) = ServerName::try_from(host) else { return false };
    let chain: Vec<CertificateDer<'_>> =
        chain.iter().map(|der| CertificateDer::from(der.as_slice())).collect();
    // At its first moment a certificate has not expired.
    let began = u64::try_from(certificate.validity().not_before.timestamp()).unwrap_or(0);
    let then = UnixTime::since_unix_epoch(Duration::from_secs(began));
    match verifier.verify_server_cert(&CertificateDer::from(leaf), &chain, &name, &[], then) {
        Ok(_) => true,
        // The names are looked at once the signature is found good.
        Err(rustls::Error::InvalidCertificate(why)) => {
            matches!(why, CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. })
        }
        Err(_) => false,
    }
}

/// Returns what the other end says of our certificate, or of its absence, if that is why it hung up.
pub(crate) fn certificate_alert(error: &io::Error) -> Option<String> {
    use rustls::AlertDescription as Alert;
    match rustls_error(error)? {
        rustls::Error::AlertReceived(
            alert @ (Alert::CertificateRequired
            | Alert::BadCertificate
            | Alert::UnknownCA
            | Alert::DecryptError
            | Alert::AccessDenied
            | Alert::CertificateUnknown
            | Alert::CertificateExpired
            | Alert::CertificateRevoked
            | Alert::UnsupportedCertificate
            | Alert::NoCertificate),
        ) => Some(format!("{alert:?}")),
        _ => None,
    }
}

/// Whether a handshake failed because of the certificate that was shown, and not because of the line.
pub(crate) fn is_distrust(error: &NotTrusted) -> bool {
    match error {
        NotTrusted::Handshake(error) => {
            matches!(rustls_error(error), Some(rustls::Error::InvalidCertificate(_)))
        }
        _ => true,
    }
}

fn rustls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}
