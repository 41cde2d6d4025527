//! TLS as a persona of the lab wants it.

use std::sync::Arc;

use ichor_sim::{
    clock::Time,
    tls::{Clients, Persona},
};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, UnixTime},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
    time_provider::TimeProvider,
};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::real_time;

/// Why a connection is not secured.
#[derive(Debug, Error)]
pub enum Refused {
    /// The persona's certificates or keys are of no use.
    #[error("the lab's certificate is of no use")]
    Persona(#[from] rustls::Error),
    /// The CAs of clients are of no use.
    #[error("the lab's CA for clients is of no use")]
    Clients(#[from] rustls::server::VerifierBuilderError),
    /// The client broke off, or was not let in.
    #[error("the client is not let in")]
    Client(#[from] std::io::Error),
}

/// The time by which a client's certificate is judged.
#[derive(Debug)]
struct At(Time);

impl TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(self.0.since(Time::from_millis(0))))
    }
}

/// Secures a connection, and returns the client's certificate if it gave one.
///
/// In virtual time clients come with certificates that the lab made ahead of the real clock, and with others
/// that they made themselves by it: what is valid by the later of the two clocks is valid.
pub async fn accept<S>(
    stream: S,
    persona: &Persona,
    http2: bool,
    now: Time,
) -> Result<(TlsStream<S>, Option<Vec<u8>>), Refused>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let acceptor = TlsAcceptor::from(Arc::new(config(persona, http2, At(now.max(real_time())))?));
    let stream = acceptor.accept(stream).await?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let certificate = certificate.map(|certificate| certificate.to_vec());
    Ok((stream, certificate))
}

fn config(persona: &Persona, http2: bool, at: At) -> Result<ServerConfig, Refused> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_details(Arc::clone(&provider), Arc::new(at))
        .with_safe_default_protocol_versions()?;
    let builder = match &persona.clients {
        Clients::Anyone => builder.with_no_client_auth(),
        Clients::Asked(authorities) => {
            builder.with_client_cert_verifier(verifier(authorities, provider, false)?)
        }
        Clients::Required(authorities) => {
            builder.with_client_cert_verifier(verifier(authorities, provider, true)?)
        }
    };
    let chain = persona.certificates.iter().cloned().map(CertificateDer::from).collect();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(persona.key.clone()));
    let mut config = builder.with_single_cert(chain, key)?;
    if http2 {
        config.alpn_protocols.push(b"h2".to_vec());
    }
    config.alpn_protocols.push(b"http/1.1".to_vec());
    Ok(config)
}

fn verifier(
    authorities: &[Vec<u8>],
    provider: Arc<rustls::crypto::CryptoProvider>,
    required: bool,
) -> Result<Arc<dyn ClientCertVerifier>, Refused> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(CertificateDer::from(authority.clone()))?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = if required { builder } else { builder.allow_unauthenticated() };
    Ok(builder.build()?)
}

/// Returns the SHA-256 fingerprint of a certificate as Proxmox writes it.
pub fn fingerprint(certificate: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    let bytes: Vec<String> = Sha256::digest(certificate).iter().map(|byte| format!("{byte:02X}")).collect();
    bytes.join(":")
}
