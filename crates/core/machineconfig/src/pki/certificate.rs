//! Certificates: written for our authorities, read from anybody's.

use std::{fmt, net::IpAddr, time::Duration};

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey,
    VerificationAlgorithm,
};
use base64::{Engine, engine::general_purpose::STANDARD};
use ichor_model::Problem;
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{Algorithm, PkiError, PrivateKey, Timestamp, der, pem};

/// How far the clock of the computer that made a certificate may be ahead of ours.
const CLOCK_SKEW: Duration = Duration::from_mins(5);

const ED25519_SIGNATURE: &[u8] = &[0x2b, 0x65, 0x70];
const ECDSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
const ECDSA_SHA384: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03];
const RSA_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];

/// A certificate, with its PEM text exactly as it was read or made.
///
/// When the text holds several, this is the first, and the others belong to its chain.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    pem: String,
    der: Vec<u8>,
    facts: Facts,
}

/// What is asked of a certificate, taken out of it once.
#[derive(Clone, PartialEq, Eq)]
struct Facts {
    not_before: Timestamp,
    not_after: Timestamp,
    authority: bool,
    common_name: Option<String>,
    organizations: Vec<String>,
    subject: Vec<u8>,
    public_key_info: Vec<u8>,
    key_identifier: Option<Vec<u8>>,
    clients_only: bool,
}

impl Certificate {
    /// Reads a certificate as TLS carries it.
    pub fn from_der(der: &[u8]) -> Result<Self, Problem> {
        Self::from_pem(&pem::encode(pem::CERTIFICATE, der))
    }

    /// Reads a certificate, or the first of a chain.
    pub fn from_pem(text: &str) -> Result<Self, Problem> {
        let blocks = pem::decode(text)?;
        if blocks.iter().any(|block| block.label.ends_with("PRIVATE KEY")) {
            return Err(Problem::new(
                "holds a private key where a certificate belongs",
                "give the certificate here, and the key under `key`",
            ));
        }
        if blocks.iter().any(|block| block.label != pem::CERTIFICATE) {
            return Err(Problem::new(
                "is PEM text, but not of a certificate",
                "give blocks labelled `CERTIFICATE` only",
            ));
        }
        let all: Option<Vec<Facts>> = blocks.iter().map(|block| Facts::read(&block.der)).collect();
        let facts = all.and_then(|all| all.into_iter().next()).ok_or_else(|| {
            Problem::new("holds a damaged certificate", "copy the certificate again from where it was made")
        })?;
        Ok(Self { pem: text.into(), der: blocks[0].der.to_vec(), facts })
    }

    /// Returns the PEM text.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// Returns the DER of all certificates that were in the text, the first one first.
    pub fn chain(&self) -> Vec<Vec<u8>> {
        pem::decode(&self.pem).unwrap_or_default().iter().map(|block| block.der.to_vec()).collect()
    }

    /// Returns the certificate as DER.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Returns when it begins to be valid.
    pub const fn not_before(&self) -> Timestamp {
        self.facts.not_before
    }

    /// Returns when it ceases to be valid.
    pub const fn not_after(&self) -> Timestamp {
        self.facts.not_after
    }

    /// Whether it may sign other certificates.
    pub const fn is_authority(&self) -> bool {
        self.facts.authority
    }

    /// Returns the common name of its subject.
    pub fn common_name(&self) -> Option<&str> {
        self.facts.common_name.as_deref()
    }

    /// Returns the organisations of its subject: the roles of a Talos client.
    pub fn organizations(&self) -> &[String] {
        &self.facts.organizations
    }

    /// Whether it may be shown to servers and to nobody else: Talos lets in no other clients.
    pub const fn is_for_clients_only(&self) -> bool {
        self.facts.clients_only
    }

    /// Returns what people compare to recognise a key: the SHA-256 of the `SubjectPublicKeyInfo` in base64.
    pub fn fingerprint(&self) -> String {
        STANDARD.encode(Sha256::digest(&self.facts.public_key_info))
    }

    /// Whether an authority signed it, by name and by signature.
    pub fn is_signed_by(&self, authority: &Self) -> bool {
        self.verify(authority).unwrap_or(false)
    }

    fn verify(&self, authority: &Self) -> Option<bool> {
        let (_, certificate) = X509Certificate::from_der(&self.der).ok()?;
        let (_, issuer) = X509Certificate::from_der(&authority.der).ok()?;
        if !authority.is_authority() || certificate.issuer().as_raw() != issuer.subject().as_raw() {
            return Some(false);
        }
        let algorithm: &dyn VerificationAlgorithm = match certificate.signature_algorithm.algorithm.as_bytes()
        {
            ED25519_SIGNATURE => &ED25519,
            ECDSA_SHA256 => &ECDSA_P256_SHA256_ASN1,
            ECDSA_SHA384 => &ECDSA_P384_SHA384_ASN1,
            RSA_SHA256 => &RSA_PKCS1_2048_8192_SHA256,
            _ => return Some(false),
        };
        let key = UnparsedPublicKey::new(algorithm, &issuer.public_key().subject_public_key.data);
        Some(key.verify(certificate.tbs_certificate.as_ref(), &certificate.signature_value.data).is_ok())
    }

    /// Returns the bytes of its subject.
    pub(crate) fn subject(&self) -> &[u8] {
        &self.facts.subject
    }

    /// Returns the identifier of its key, if it carries one.
    pub(crate) fn key_identifier(&self) -> Option<&[u8]> {
        self.facts.key_identifier.as_deref()
    }

    /// Says why it cannot be the certificate of this key, if it cannot.
    pub(crate) fn check_key(&self, key: &PrivateKey) -> Result<(), Problem> {
        if self.facts.public_key_info == key.public_key_info() {
            return Ok(());
        }
        Err(Problem::new(
            format!("is an {} key that does not belong to the certificate beside it", key.algorithm()),
            "take certificate and key from the same place",
        ))
    }

    /// Says why it cannot sign others, if it cannot.
    pub(crate) fn check_authority(&self) -> Result<(), Problem> {
        if self.is_authority() {
            return Ok(());
        }
        Err(Problem::new(
            "is not the certificate of an authority: its basic constraints lack `CA:TRUE`",
            "give the certificate of the authority itself, not one that it signed",
        ))
    }

    /// Says why it is not valid at this time, if it is not.
    pub fn check_validity(&self, now: Timestamp) -> Result<(), Problem> {
        let (begin, end) = (self.not_before(), self.not_after());
        if now > end {
            return Err(Problem::new(
                format!("expired at {end}"),
                "renew it: nobody accepts it any more, nor what it signs",
            ));
        }
        if begin > now.plus(CLOCK_SKEW) {
            return Err(Problem::new(
                format!("is valid from {begin} only, and it is {now}"),
                "set this computer's clock, or wait",
            ));
        }
        Ok(())
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("common_name", &self.common_name())
            .field("organizations", &self.organizations())
            .field("not_after", &self.not_after().to_string())
            .finish_non_exhaustive()
    }
}

impl Facts {
    fn read(der: &[u8]) -> Option<Self> {
        let (rest, certificate) = X509Certificate::from_der(der).ok()?;
        if !rest.is_empty() {
            return None;
        }
        let subject = certificate.subject();
        Some(Self {
            not_before: moment(certificate.validity().not_before.timestamp()),
            not_after: moment(certificate.validity().not_after.timestamp()),
            authority: certificate.is_ca(),
            common_name: texts(subject.iter_common_name()).next(),
            organizations: texts(subject.iter_organization()).collect(),
            subject: subject.as_raw().to_vec(),
            public_key_info: certificate.public_key().raw.to_vec(),
            key_identifier: subject_key_identifier(&certificate),
            clients_only: is_for_clients_only(&certificate),
        })
    }
}

fn moment(seconds: i64) -> Timestamp {
    Timestamp::from_unix_seconds(u64::try_from(seconds).unwrap_or(0))
}

fn texts<'a>(
    attributes: impl Iterator<Item = &'a x509_parser::x509::AttributeTypeAndValue<'a>>,
) -> impl Iterator<Item = String> {
    attributes.filter_map(|attribute| attribute.as_str().ok().map(Into::into))
}

fn subject_key_identifier(certificate: &X509Certificate<'_>) -> Option<Vec<u8>> {
    use x509_parser::extensions::ParsedExtension;
    certificate.iter_extensions().find_map(|extension| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(identifier) => Some(identifier.0.to_vec()),
        _ => None,
    })
}

fn is_for_clients_only(certificate: &X509Certificate<'_>) -> bool {
    let Ok(Some(usage)) = certificate.extended_key_usage() else { return false };
    let usage = usage.value;
    let others = usage.any
        || usage.server_auth
        || usage.code_signing
        || usage.email_protection
        || usage.time_stamping
        || usage.ocsp_signing;
    usage.client_auth && !others && usage.other.is_empty()
}

/// What a key may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyUsage {
    /// To sign messages.
    DigitalSignature,
    /// To sign messages and to receive keys.
    SignatureAndEncipherment,
    /// To sign messages and certificates.
    SignatureAndCertificates,
}

impl KeyUsage {
    /// Returns the bits: `digitalSignature` is bit 0, `keyEncipherment` 2, `keyCertSign` 5; the first byte
    /// counts the unused ones at the end.
    const fn bits(self) -> &'static [u8] {
        match self {
            Self::DigitalSignature => &[7, 0x80],
            Self::SignatureAndEncipherment => &[5, 0xa0],
            Self::SignatureAndCertificates => &[2, 0x84],
        }
    }
}

/// The other end that a key may be shown to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To clients, as a server.
    Server,
    /// To servers, as a client.
    Client,
}

impl Purpose {
    const fn oid(self) -> &'static [u8] {
        match self {
            Self::Server => &[0x2b, 6, 1, 5, 5, 7, 3, 1],
            Self::Client => &[0x2b, 6, 1, 5, 5, 7, 3, 2],
        }
    }
}

/// A certificate that is still to be signed.
pub struct Draft<'a> {
    /// Its number.
    pub serial: [u8; 16],
    /// The bytes of the issuer's name.
    pub issuer: &'a [u8],
    /// The bytes of its own name.
    pub subject: &'a [u8],
    /// When it begins.
    pub not_before: Timestamp,
    /// When it ends.
    pub not_after: Timestamp,
    /// Its key, of which only the public half goes in.
    pub key: &'a PrivateKey,
    /// What the key may be used for.
    pub usage: KeyUsage,
    /// Whom it may be shown to.
    pub purposes: &'a [Purpose],
    /// Whether it may sign others, and then also carries the identifier of its key.
    pub authority: bool,
    /// The identifier of the issuer's key.
    pub issuer_key: Option<&'a [u8]>,
    /// The names that a server is reached by.
    pub reached_by: &'a [ServerName],
}

/// A name that a server is reached by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServerName {
    /// A name of the domain name system.
    Dns(String),
    /// An address.
    Address(IpAddr),
}

impl ServerName {
    /// Reads an address, or else a name.
    pub fn new(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Dns(text.to_owned()), Self::Address)
    }

    /// Writes the name as one of the choices of `GeneralName`.
    fn to_der(&self) -> Vec<u8> {
        const DNS: u8 = 0x82;
        const ADDRESS: u8 = 0x87;
        match self {
            Self::Dns(name) => der::tlv(DNS, name.as_bytes()),
            Self::Address(IpAddr::V4(address)) => der::tlv(ADDRESS, &address.octets()),
            Self::Address(IpAddr::V6(address)) => der::tlv(ADDRESS, &address.octets()),
        }
    }
}

impl Draft<'_> {
    /// Signs the certificate with the issuer's key.
    pub fn sign(&self, issuer: &PrivateKey) -> Result<Certificate, PkiError> {
        let unsigned = self.unsigned(issuer.algorithm());
        let signature = der::bits(&issuer.sign(&unsigned)?);
        let der = der::sequence([&unsigned, &issuer.algorithm().signature_identifier(), &signature]);
        Certificate::from_pem(&pem::encode(pem::CERTIFICATE, &der)).map_err(|_| PkiError::Signing)
    }

    fn unsigned(&self, signer: Algorithm) -> Vec<u8> {
        // Version 3 is written as 2.
        let version = der::join(der::context(0), [&der::unsigned(&[2])]);
        let validity = der::sequence([&self.not_before.to_der(), &self.not_after.to_der()]);
        let extensions = der::join(der::context(3), [&der::tlv(der::SEQUENCE, &self.extensions().concat())]);
        der::sequence([
            &version,
            &der::unsigned(&self.serial),
            &signer.signature_identifier(),
            self.issuer,
            &validity,
            self.subject,
            &self.key.public_key_info(),
            &extensions,
        ])
    }

    /// Returns the extensions in the order in which Go writes them.
    fn extensions(&self) -> Vec<Vec<u8>> {
        let oids: Vec<Vec<u8>> =
            self.purposes.iter().map(|purpose| der::tlv(der::OID, purpose.oid())).collect();
        let mut extensions = vec![
            extension(0x0f, true, &der::tlv(der::BIT_STRING, self.usage.bits())),
            extension(0x25, false, &der::tlv(der::SEQUENCE, &oids.concat())),
        ];
        if self.authority {
            let key = der::key_identifier(self.key.public());
            extensions.push(extension(0x13, true, &der::sequence([&der::tlv(der::BOOLEAN, &[0xff])])));
            extensions.push(extension(0x0e, false, &der::tlv(der::OCTET_STRING, &key)));
        }
        if let Some(key) = self.issuer_key {
            // Context-specific, but not constructed: the identifier itself.
            extensions.push(extension(0x23, false, &der::sequence([&der::tlv(0x80, key)])));
        }
        if !self.reached_by.is_empty() {
            let names: Vec<Vec<u8>> = self.reached_by.iter().map(ServerName::to_der).collect();
            extensions.push(extension(0x11, false, &der::tlv(der::SEQUENCE, &names.concat())));
        }
        extensions
    }
}

/// Writes an extension of the family 2.5.29.
fn extension(number: u8, critical: bool, value: &[u8]) -> Vec<u8> {
    let oid = der::tlv(der::OID, &[0x55, 0x1d, number]);
    let critical = if critical { der::tlv(der::BOOLEAN, &[0xff]) } else { Vec::new() };
    der::sequence([&oid, &critical, &der::tlv(der::OCTET_STRING, value)])
}

/// Writes a name of organisations and perhaps a common name, in Go's order and shape: all
/// organisations in one set. Both are text that `PrintableString` can hold.
pub fn name(organizations: &[&str], common_name: Option<&str>) -> Vec<u8> {
    const ORGANIZATION: u8 = 10;
    const COMMON_NAME: u8 = 3;
    let mut sets = Vec::new();
    if !organizations.is_empty() {
        sets.push(der::set_of(organizations.iter().map(|text| attribute(ORGANIZATION, text)).collect()));
    }
    if let Some(text) = common_name {
        sets.push(der::set_of(vec![attribute(COMMON_NAME, text)]));
    }
    der::tlv(der::SEQUENCE, &sets.concat())
}

/// Writes an attribute of the family 2.5.4.
fn attribute(number: u8, text: &str) -> Vec<u8> {
    let oid = der::tlv(der::OID, &[0x55, 4, number]);
    der::sequence([&oid, &der::tlv(der::PRINTABLE_STRING, text.as_bytes())])
}
