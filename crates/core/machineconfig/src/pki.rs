//! Certificate authorities, certificates of clients and servers, and keys, with the exact shapes that Talos uses.
//!
//! Time and randomness are arguments. Only RSA keys and ECDSA signatures differ from one run to the
//! next with the same entropy: the crypto library draws for those itself.

mod authority;
mod certificate;
mod client;
pub(crate) mod der;
mod entropy;
mod key;
pub(crate) mod pem;
mod server;
mod time;

pub use authority::{AUTHORITY_LIFETIME, Authority};
pub use certificate::{Certificate, ServerName};
pub use client::{
    Client, KUBERNETES_ADMIN_LIFETIME, TALOS_CLIENT_LIFETIME, TalosRole, Term, kubernetes_admin, talos_client,
};
pub use entropy::Entropy;
pub(crate) use entropy::draw;
pub use key::{Algorithm, Curve, PrivateKey, RsaKey};
pub use server::{Server, self_signed_server, server};
pub use time::Timestamp;

/// Why a key or a certificate could not be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PkiError {
    /// The source of randomness is broken.
    #[error("the source of randomness gives no usable bytes")]
    Entropy,
    /// The crypto library refused to sign.
    #[error("the crypto library refused the key")]
    Signing,
    /// A Talos client without a role could do nothing.
    #[error("a Talos client needs a role: `admin`, `operator`, `reader` or `etcd:backup`")]
    NoRole,
    /// A certificate that is never valid.
    #[error("a certificate needs a lifetime of at least one second")]
    NoLifetime,
    /// The authority is past its end.
    #[error("the authority expired at {end}, so nothing it signs would be accepted")]
    Expired {
        /// Its last second.
        end: Timestamp,
    },
}
