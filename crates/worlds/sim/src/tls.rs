//! As whom a server of the lab presents itself.

use serde::{Deserialize, Serialize};

/// A server's certificate and whom it lets in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Persona {
    /// The chain as DER, the server's own certificate first.
    pub certificates: Vec<Vec<u8>>,
    /// Its key as PKCS#8 DER.
    pub key: Vec<u8>,
    /// Which clients are let in.
    pub clients: Clients,
}

/// Which clients a server lets in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clients {
    /// Everybody; nobody is asked for a certificate.
    Anyone,
    /// Everybody; a certificate is asked for and, if it comes, must be from one of these CAs (DER).
    Asked(Vec<Vec<u8>>),
    /// Only those with a certificate from one of these CAs (DER).
    Required(Vec<Vec<u8>>),
}
