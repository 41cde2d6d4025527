//! Private keys: made from entropy, read from PEM, used to sign.

use std::fmt;

use aws_lc_rs::{
    agreement,
    encoding::AsDer,
    rand::SystemRandom,
    rsa,
    signature::{
        ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P521_SHA512_ASN1_SIGNING,
        EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    },
};
use ichor_model::Problem;
use zeroize::Zeroizing;

use super::{
    PkiError, der,
    entropy::{Entropy, draw},
    pem,
};
use crate::secrets::SecretText;

const ED25519_LABEL: &str = "ED25519 PRIVATE KEY";
const EC_LABEL: &str = "EC PRIVATE KEY";
const RSA_LABEL: &str = "RSA PRIVATE KEY";
const PKCS8_LABEL: &str = "PRIVATE KEY";

const ED25519_OID: &[u8] = &[0x2b, 0x65, 0x70];
const EC_KEY_OID: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const RSA_OID: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const RSA_SHA256_OID: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];

/// An Ed25519 key in PKCS#8 version 1 is these 16 bytes and its seed.
const ED25519_PKCS8: &[u8] = &[0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// The order of P-256: private keys are above zero and below it.
const P256_ORDER: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc,
    0xe6, 0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
];

/// A curve that keys of certificate authorities may be on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Curve {
    /// What Talos makes.
    P256,
    /// Seen in authorities that people bring along.
    P384,
    /// Seen in authorities that people bring along.
    P521,
}

impl Curve {
    const ALL: [Self; 3] = [Self::P256, Self::P384, Self::P521];

    fn signing(self) -> &'static EcdsaSigningAlgorithm {
        match self {
            Self::P256 => &ECDSA_P256_SHA256_ASN1_SIGNING,
            Self::P384 => &ECDSA_P384_SHA384_ASN1_SIGNING,
            Self::P521 => &ECDSA_P521_SHA512_ASN1_SIGNING,
        }
    }

    const fn oid(self) -> &'static [u8] {
        match self {
            Self::P256 => &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07],
            Self::P384 => &[0x2b, 0x81, 0x04, 0x00, 0x22],
            Self::P521 => &[0x2b, 0x81, 0x04, 0x00, 0x23],
        }
    }

    /// ECDSA with the SHA-2 of the curve's strength, as Go chooses it.
    const fn signature_oid(self) -> &'static [u8] {
        match self {
            Self::P256 => &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02],
            Self::P384 => &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x03],
            Self::P521 => &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x04],
        }
    }
}

/// What kind of key a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// Edwards curve 25519: Talos' own API.
    Ed25519,
    /// An elliptic curve: Kubernetes and etcd.
    Ecdsa(Curve),
    /// RSA, with its size in bits: service accounts.
    Rsa(usize),
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ed25519 => f.pad("Ed25519"),
            Self::Ecdsa(Curve::P256) => f.pad("ECDSA P-256"),
            Self::Ecdsa(Curve::P384) => f.pad("ECDSA P-384"),
            Self::Ecdsa(Curve::P521) => f.pad("ECDSA P-521"),
            Self::Rsa(bits) => write!(f, "RSA {bits}"),
        }
    }
}

/// A private key, with its PEM text exactly as it was read or made.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey {
    pem: SecretText,
    algorithm: Algorithm,
    public: Vec<u8>,
}

impl PrivateKey {
    /// Makes an Ed25519 key.
    pub fn generate_ed25519(entropy: &mut dyn Entropy) -> Result<Self, PkiError> {
        let mut der = Zeroizing::new([0; 48]);
        der[..16].copy_from_slice(ED25519_PKCS8);
        entropy.fill(&mut der[16..]);
        let pair = Ed25519KeyPair::from_seed_unchecked(&der[16..]).map_err(|_| PkiError::Entropy)?;
        Ok(Self::new(ED25519_LABEL, &der[..], Algorithm::Ed25519, pair.public_key().as_ref()))
    }

    /// Makes an ECDSA key on P-256.
    pub fn generate_p256(entropy: &mut dyn Entropy) -> Result<Self, PkiError> {
        let in_range = |scalar: &[u8; 32]| *scalar != [0; 32] && *scalar < P256_ORDER;
        draw(entropy, |scalar| in_range(scalar).then(|| Self::from_p256_scalar(scalar)).flatten())
            .ok_or(PkiError::Entropy)
    }

    fn from_p256_scalar(scalar: &[u8; 32]) -> Option<Self> {
        let pair = agreement::PrivateKey::from_private_key(&agreement::ECDH_P256, scalar).ok()?;
        let public = pair.compute_public_key().ok()?;
        let algorithm = Algorithm::Ecdsa(Curve::P256);
        Some(Self::new(EC_LABEL, &p256_sec1(scalar, public.as_ref())?[..], algorithm, public.as_ref()))
    }

    fn new(label: &str, der: &[u8], algorithm: Algorithm, public: &[u8]) -> Self {
        Self { pem: pem::encode(label, der).into(), algorithm, public: public.to_vec() }
    }

    /// Reads a key under any label that Talos takes.
    pub fn from_pem(text: &str) -> Result<Self, Problem> {
        let blocks = pem::decode(text)?;
        let [block] = &blocks[..] else {
            return Err(Problem::new(
                format!("holds {} PEM blocks, and one is wanted", blocks.len()),
                "keep only the block of the private key",
            ));
        };
        let pair = Pair::read(block)?;
        Ok(Self { pem: SecretText::new(text), algorithm: pair.algorithm(), public: pair.public() })
    }

    /// Returns the PEM text.
    pub const fn pem(&self) -> &SecretText {
        &self.pem
    }

    /// Returns what kind of key it is.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the public half, as it stands in a certificate.
    pub fn public(&self) -> &[u8] {
        &self.public
    }

    /// Returns the key as PKCS#8, the one form that every TLS library reads.
    ///
    /// Talos' label `ED25519 PRIVATE KEY` is its own, and most PEM readers pass it over.
    pub fn to_pkcs8_der(&self) -> Result<Zeroizing<Vec<u8>>, PkiError> {
        let mut blocks = pem::decode(self.pem.expose()).map_err(|_| PkiError::Signing)?;
        let block = blocks.pop().ok_or(PkiError::Signing)?;
        if !matches!(block.label, EC_LABEL | RSA_LABEL) {
            return Ok(block.der);
        }
        let inner = Zeroizing::new(der::tlv(der::OCTET_STRING, &block.der));
        let parts = [&der::unsigned(&[0]), &self.algorithm.key_identifier(), &inner[..]];
        let content = Zeroizing::new(parts.concat());
        Ok(Zeroizing::new(der::tlv(der::SEQUENCE, &content)))
    }

    /// Returns the `SubjectPublicKeyInfo`.
    pub(crate) fn public_key_info(&self) -> Vec<u8> {
        der::sequence([&self.algorithm.key_identifier(), &der::bits(&self.public)])
    }

    /// Signs a message, by the algorithm that [`Algorithm::signature_identifier`] names.
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, PkiError> {
        let blocks = pem::decode(self.pem.expose()).map_err(|_| PkiError::Signing)?;
        let block = blocks.first().ok_or(PkiError::Signing)?;
        Pair::read(block).map_err(|_| PkiError::Signing)?.sign(message)
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({})", self.algorithm)
    }
}

impl Algorithm {
    fn key_identifier(self) -> Vec<u8> {
        let oid = |bytes| der::tlv(der::OID, bytes);
        match self {
            Self::Ed25519 => der::sequence([&oid(ED25519_OID)]),
            Self::Ecdsa(curve) => der::sequence([&oid(EC_KEY_OID), &oid(curve.oid())]),
            Self::Rsa(_) => der::sequence([&oid(RSA_OID), &der::tlv(der::NULL, &[])]),
        }
    }

    /// Returns the identifier of the signatures that such a key makes.
    pub(crate) fn signature_identifier(self) -> Vec<u8> {
        let oid = |bytes| der::tlv(der::OID, bytes);
        match self {
            Self::Ed25519 => der::sequence([&oid(ED25519_OID)]),
            Self::Ecdsa(curve) => der::sequence([&oid(curve.signature_oid())]),
            Self::Rsa(_) => der::sequence([&oid(RSA_SHA256_OID), &der::tlv(der::NULL, &[])]),
        }
    }
}

/// Writes a P-256 key as SEC1 with its curve and its public half, as Go does: always 121 bytes.
fn p256_sec1(scalar: &[u8; 32], public: &[u8]) -> Option<Zeroizing<[u8; 121]>> {
    const HEAD: &[u8] = &[0x30, 0x77, 2, 1, 1, 4, 0x20];
    const CURVE: &[u8] = &[0xa0, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
    const PUBLIC: &[u8] = &[0xa1, 0x44, 3, 0x42, 0];
    let mut der = Zeroizing::new([0; 121]);
    let mut at = 0;
    for part in [HEAD, scalar, CURVE, PUBLIC, public] {
        der.get_mut(at..at + part.len())?.copy_from_slice(part);
        at += part.len();
    }
    (at == der.len()).then_some(der)
}

/// A key in the crypto library's hands.
enum Pair {
    Ed25519(Ed25519KeyPair),
    Ecdsa(Curve, EcdsaKeyPair),
    Rsa(rsa::KeyPair),
}

impl Pair {
    fn read(block: &pem::Block<'_>) -> Result<Self, Problem> {
        let der = &block.der[..];
        let pair = match block.label {
            ED25519_LABEL => Self::ed25519(der),
            EC_LABEL => is_sec1(der).then(|| Self::ecdsa(der)).flatten(),
            RSA_LABEL => rsa::KeyPair::from_der(der).ok().map(Self::Rsa),
            PKCS8_LABEL => Self::ed25519(der)
                .or_else(|| Self::ecdsa(der))
                .or_else(|| rsa::KeyPair::from_pkcs8(der).ok().map(Self::Rsa)),
            label => return Err(foreign_label(label)),
        };
        pair.ok_or_else(|| {
            Problem::new(
                "holds no key of a kind that Talos takes, or a damaged one",
                "give an Ed25519 key, an ECDSA key on P-256, P-384 or P-521, or an RSA key of 2048 to 8192 bits, under its own label",
            )
        })
    }

    fn ed25519(der: &[u8]) -> Option<Self> {
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok().map(Self::Ed25519)
    }

    fn ecdsa(der: &[u8]) -> Option<Self> {
        Curve::ALL.into_iter().find_map(|curve| {
            let pair = EcdsaKeyPair::from_private_key_der(curve.signing(), der).ok()?;
            Some(Self::Ecdsa(curve, pair))
        })
    }

    fn algorithm(&self) -> Algorithm {
        match self {
            Self::Ed25519(_) => Algorithm::Ed25519,
            Self::Ecdsa(curve, _) => Algorithm::Ecdsa(*curve),
            Self::Rsa(pair) => Algorithm::Rsa(pair.public_modulus_len() * 8),
        }
    }

    fn public(&self) -> Vec<u8> {
        match self {
            Self::Ed25519(pair) => pair.public_key().as_ref().to_vec(),
            Self::Ecdsa(_, pair) => pair.public_key().as_ref().to_vec(),
            Self::Rsa(pair) => pair.public_key().as_ref().to_vec(),
        }
    }

    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, PkiError> {
        let rng = SystemRandom::new();
        match self {
            Self::Ed25519(pair) => pair.try_sign(message).map(|signature| signature.as_ref().to_vec()),
            Self::Ecdsa(_, pair) => pair.sign(&rng, message).map(|signature| signature.as_ref().to_vec()),
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &rng, message, &mut signature).map(|()| signature)
            }
        }
        .map_err(|_| PkiError::Signing)
    }
}

/// Tells SEC1 (version 1) from PKCS#8 (version 0), which the library would take under any label.
fn is_sec1(der: &[u8]) -> bool {
    der::expect(der::SEQUENCE, der)
        .and_then(|(content, _)| der::expect(der::INTEGER, content))
        .is_some_and(|(version, _)| version == [1])
}

fn foreign_label(label: &str) -> Problem {
    let plain = label.len() <= 40 && label.chars().all(|c| c.is_ascii_alphanumeric() || c == ' ');
    let shown = if plain { format!("`{label}`") } else { "an unknown label".into() };
    let remedy = match label {
        "ENCRYPTED PRIVATE KEY" => "decrypt the key first: `openssl pkey -in FILE -out FILE`",
        pem::CERTIFICATE => "give the private key here, not the certificate",
        _ => {
            "give a block labelled `ED25519 PRIVATE KEY`, `EC PRIVATE KEY`, `RSA PRIVATE KEY` or `PRIVATE KEY`"
        }
    };
    Problem::new(format!("is PEM text of {shown}, not a private key"), remedy)
}

/// An RSA key of 4096 bits, for service accounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RsaKey(PrivateKey);

impl RsaKey {
    /// Makes a key. This takes a second or more and cannot be repeated from a seed: start it early, in
    /// a thread of its own.
    pub fn generate() -> Result<Self, PkiError> {
        let pair = rsa::KeyPair::generate(rsa::KeySize::Rsa4096).map_err(|_| PkiError::Entropy)?;
        let pkcs8 =
            AsDer::<aws_lc_rs::encoding::Pkcs8V1Der<'_>>::as_der(&pair).map_err(|_| PkiError::Entropy)?;
        let pkcs1 = unwrap_pkcs8(pkcs8.as_ref()).ok_or(PkiError::Entropy)?;
        let algorithm = Algorithm::Rsa(pair.public_modulus_len() * 8);
        Ok(Self(PrivateKey::new(RSA_LABEL, pkcs1, algorithm, pair.public_key().as_ref())))
    }

    /// Takes a key that was made before, if it is an RSA key.
    pub fn from_pem(text: &str) -> Result<Self, Problem> {
        let key = PrivateKey::from_pem(text)?;
        match key.algorithm {
            Algorithm::Rsa(_) => Ok(Self(key)),
            other => Err(Problem::new(format!("is an {other} key"), "give an RSA key")),
        }
    }

    /// Returns the key as any other.
    pub fn into_key(self) -> PrivateKey {
        self.0
    }
}

/// Returns the key inside PKCS#8: what follows the version and the algorithm.
fn unwrap_pkcs8(der: &[u8]) -> Option<&[u8]> {
    let (content, _) = der::expect(der::SEQUENCE, der)?;
    let (_, rest) = der::expect(der::INTEGER, content)?;
    let (_, rest) = der::expect(der::SEQUENCE, rest)?;
    der::expect(der::OCTET_STRING, rest).map(|(key, _)| key)
}
