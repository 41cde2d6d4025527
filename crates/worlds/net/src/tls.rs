//! Making sure who is at the other end.

use std::{fmt, io, str::FromStr, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime},
    server::ParsedCertificate,
};
use sha2::{Digest, Sha256};
use thiserror::Error;
use tokio_rustls::{TlsConnector, client::TlsStream};
use zeroize::Zeroizing;

use crate::dial::Stream;

/// The SHA-256 of a certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

/// The SHA-256 of a certificate's public key (its `SubjectPublicKeyInfo`), as Talos prints it on the console.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyFingerprint([u8; 32]);

/// A text that is no fingerprint of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the fingerprint of a key is 32 bytes in base64")]
pub struct NotAKeyFingerprint;

impl KeyFingerprint {
    /// Takes the fingerprint of a certificate's key; nothing if it is no certificate.
    pub fn of(certificate: &[u8]) -> Option<Self> {
        let certificate = CertificateDer::from(certificate);
        let parsed = ParsedCertificate::try_from(&certificate).ok()?;
        Some(Self(Sha256::digest(parsed.subject_public_key_info()).into()))
    }
}

impl From<[u8; 32]> for KeyFingerprint {
    fn from(digest: [u8; 32]) -> Self {
        Self(digest)
    }
}

impl FromStr for KeyFingerprint {
    type Err = NotAKeyFingerprint;

    fn from_str(text: &str) -> Result<Self, NotAKeyFingerprint> {
        let bytes = STANDARD.decode(text).map_err(|_| NotAKeyFingerprint)?;
        bytes.try_into().map(Self).map_err(|_| NotAKeyFingerprint)
    }
}

impl fmt::Display for KeyFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for KeyFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyFingerprint({self})")
    }
}

/// A text that is no fingerprint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a fingerprint is 32 bytes in hexadecimal, with or without colons")]
pub struct NotAFingerprint;

impl Fingerprint {
    /// Takes the fingerprint of a certificate.
    pub fn of(certificate: &[u8]) -> Self {
        Self(Sha256::digest(certificate).into())
    }
}

impl FromStr for Fingerprint {
    type Err = NotAFingerprint;

    fn from_str(text: &str) -> Result<Self, NotAFingerprint> {
        let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b':').collect();
        let nibble = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let bytes: Option<Vec<u8>> =
            digits.chunks(2).map(|pair| Some(nibble(pair[0])? << 4 | nibble(*pair.get(1)?)?)).collect();
        bytes.and_then(|bytes| bytes.try_into().ok()).map(Self).ok_or(NotAFingerprint)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes: Vec<String> = self.0.iter().map(|byte| format!("{byte:02X}")).collect();
        f.pad(&bytes.join(":"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// Whom to trust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trust {
    /// Whoever the system's roots vouch for.
    System,
    /// Whoever one of these CAs (DER) vouches for.
    Authorities(Vec<Vec<u8>>),
    /// The one with this certificate, whatever its name and age.
    Pin(Fingerprint),
    /// The one with this key, whatever its certificate says.
    PinKey(KeyFingerprint),
    /// Anybody. The user said so.
    Anybody,
}

/// Why a server is not trusted.
#[derive(Debug, Error)]
pub enum NotTrusted {
    /// What is to be trusted cannot be used.
    #[error("the certificates to trust cannot be used")]
    Trust(#[source] rustls::Error),
    /// The name is no name of a server.
    #[error("`{0}` is no name of a server")]
    Name(String),
    /// The server showed another certificate than the pinned one.
    #[error("the server's certificate has the fingerprint {shown}, not {wanted}")]
    OtherCertificate {
        /// What it showed.
        shown: Fingerprint,
        /// What was wanted.
        wanted: Fingerprint,
    },
    /// The server has another key than the pinned one.
    #[error("the server's key has the fingerprint {}, not {wanted}", .shown.map_or_else(|| "of no certificate".to_owned(), |shown| shown.to_string()))]
    OtherKey {
        /// What it showed.
        shown: Option<KeyFingerprint>,
        /// What was wanted.
        wanted: KeyFingerprint,
    },
    /// The handshake failed.
    #[error("{0}")]
    Handshake(io::Error),
}

/// As whom we present ourselves to a server that asks for a certificate.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    /// The certificate and those that vouch for it (DER), ours first.
    pub certificates: Vec<Vec<u8>>,
    /// Its key (PKCS #8, DER).
    pub key: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("certificates", &self.certificates.len()).finish_non_exhaustive()
    }
}

/// What is spoken inside a secured stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, and so gRPC.
    Http2,
}

impl Protocol {
    const fn name(self) -> &'static [u8] {
        match self {
            Self::Http1 => b"http/1.1",
            Self::Http2 => b"h2",
        }
    }
}

/// Secures streams on the same terms; made once for a server, because reading certificates takes time.
#[derive(Clone)]
pub struct Secure {
    trust: Trust,
    config: Arc<ClientConfig>,
}

impl fmt::Debug for Secure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secure").field("trust", &self.trust).finish_non_exhaustive()
    }
}

impl Secure {
    /// Says whom to trust, as whom to present ourselves if we are asked, and what will be spoken.
    pub fn new(trust: Trust, identity: Option<&Identity>, protocol: Protocol) -> Result<Self, NotTrusted> {
        let config = Arc::new(config(&trust, identity, protocol).map_err(NotTrusted::Trust)?);
        Ok(Self { trust, config })
    }

    /// Secures a stream.
    pub async fn connect<S: Stream>(&self, stream: S, host: &str) -> Result<TlsStream<S>, NotTrusted> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| NotTrusted::Name(host.to_owned()))?;
        // A pinned server is accepted by the verifier whatever it shows, and judged here, so that the refusal
        // can say which certificate it was. Nothing was sent to it by then.
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let stream = connector.connect(name, stream).await.map_err(NotTrusted::Handshake)?;
        match self.trust {
            Trust::Pin(wanted) => {
                let shown = shown(&stream);
                if shown != wanted {
                    return Err(NotTrusted::OtherCertificate { shown, wanted });
                }
            }
            Trust::PinKey(wanted) => {
                let shown = KeyFingerprint::of(certificate(&stream));
                if shown != Some(wanted) {
                    return Err(NotTrusted::OtherKey { shown, wanted });
                }
            }
            Trust::System | Trust::Authorities(_) | Trust::Anybody => {}
        }
        Ok(stream)
    }
}

/// Returns the fingerprint of the certificate that a server showed.
pub fn shown<S>(stream: &TlsStream<S>) -> Fingerprint {
    Fingerprint::of(certificate(stream))
}

/// Returns the certificate that a server showed (DER).
pub fn certificate<S>(stream: &TlsStream<S>) -> &[u8] {
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    certificates.first().map_or(&[], AsRef::as_ref)
}

fn config(
    trust: &Trust,
    identity: Option<&Identity>,
    protocol: Protocol,
) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match trust {
        Trust::System => Arc::new(rustls_platform_verifier::Verifier::new(Arc::clone(&provider))?),
        Trust::Authorities(authorities) => {
            let mut roots = RootCertStore::empty();
            for authority in authorities {
                roots.add(CertificateDer::from(authority.clone()))?;
            }
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .build()
                .map_err(|error| rustls::Error::General(error.to_string()))?
        }
        Trust::Pin(_) | Trust::PinKey(_) | Trust::Anybody => Arc::new(AnyCertificate(Arc::clone(&provider))),
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let certificates = identity.certificates.iter().cloned().map(CertificateDer::from).collect();
            let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(identity.key.to_vec()));
            builder.with_client_auth_cert(certificates, key)?
        }
    };
    config.alpn_protocols = vec![protocol.name().to_vec()];
    Ok(config)
}

/// Takes any certificate, but demands that the server has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if certificate.is_empty() {
            return Err(CertificateError::BadEncoding.into());
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_read_with_and_without_colons() {
        let fingerprint = Fingerprint::of(b"certificate");
        let plain: String = fingerprint.to_string().to_lowercase().replace(':', "");
        assert_eq!(plain.parse(), Ok(fingerprint));
        assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
        let key = KeyFingerprint::from([7; 32]);
        assert_eq!(key.to_string().parse(), Ok(key));
        assert_eq!(key.to_string().len(), 44);
        for broken in ["", "BwcH", &plain, &key.to_string()[1..]] {
            assert_eq!(broken.parse::<KeyFingerprint>(), Err(NotAKeyFingerprint), "{broken}");
        }
        assert_eq!(KeyFingerprint::of(b"no certificate"), None);
        for broken in ["", "AB", "zz", &plain[1..], &format!("{plain}00")] {
            assert_eq!(broken.parse::<Fingerprint>(), Err(NotAFingerprint), "{broken}");
        }
    }
}
