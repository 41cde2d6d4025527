//! Ed25519 keys of SSH: the line of a public key, and the file of a private one.

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, STANDARD_NO_PAD},
};
use sha2::{Digest, Sha256, Sha512};
use zeroize::Zeroizing;

use super::primitives::Key;
use crate::Flaw;

/// The name of the algorithm, also in stanzas.
pub const NAME: &str = "ssh-ed25519";

const BEGIN: &str = "-----BEGIN OPENSSH PRIVATE KEY-----";
const END: &str = "-----END OPENSSH PRIVATE KEY-----";
const MAGIC: &[u8] = b"openssh-key-v1\0";

/// Reads the line of a public key.
pub fn public(line: &str) -> Result<Vec<u8>, Flaw> {
    let mut words = line.split_ascii_whitespace();
    let (name, blob) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    if name != NAME {
        return Err(Flaw::bad_key(
            "the recipient is a key of SSH that is not Ed25519",
            "write an `age1…` or `ssh-ed25519 …` key",
        ));
    }
    let wire = STANDARD.decode(blob).map_err(|_| malformed())?;
    ed25519_of(&wire)?;
    Ok(wire)
}

/// Returns a public key as a line has it, without a comment.
pub fn text_of(wire: &[u8]) -> String {
    format!("{NAME} {}", STANDARD.encode(wire))
}

/// Returns the key itself.
pub fn ed25519_of(wire: &[u8]) -> Result<[u8; 32], Flaw> {
    let mut reader = Reader(wire);
    let name = reader.text();
    let key = reader.text().and_then(|key| <[u8; 32]>::try_from(key).ok());
    match (name, key, reader.0) {
        (Some(name), Some(key), []) if name == NAME.as_bytes() => Ok(key),
        _ => Err(malformed()),
    }
}

/// Returns what tells a stanza whom it is for.
pub fn tag(wire: &[u8]) -> String {
    STANDARD_NO_PAD.encode(&Sha256::digest(wire)[..4])
}

/// Returns the secret of X25519 that belongs to the seed of a key.
pub fn scalar(seed: &Key) -> Key {
    let mut digest = Sha512::digest(seed.as_ref());
    let mut scalar = Zeroizing::new([0; 32]);
    scalar.copy_from_slice(&digest[..32]);
    digest.fill(0);
    scalar
}

/// Reads a private key: its seed, and its public half.
pub fn private(pem: &str) -> Result<(Key, Vec<u8>), Flaw> {
    let body = pem.trim().strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(END));
    let body = Zeroizing::new(body.ok_or_else(malformed)?.split_ascii_whitespace().collect::<String>());
    let bytes = Zeroizing::new(STANDARD.decode(body.as_bytes()).map_err(|_| malformed())?);
    read_private(&bytes).ok_or_else(malformed)?
}

fn read_private(bytes: &[u8]) -> Option<Result<(Key, Vec<u8>), Flaw>> {
    let mut file = Reader(bytes.strip_prefix(MAGIC)?);
    let cipher = file.text()?;
    let (_derivation, _options) = (file.text()?, file.text()?);
    if file.number()? != 1 {
        return None;
    }
    let wire = file.text()?.to_vec();
    if cipher != b"none" {
        return Some(Err(with_passphrase()));
    }
    let mut secrets = Reader(file.text()?);
    if secrets.number()? != secrets.number()? {
        return None;
    }
    if secrets.text()? != NAME.as_bytes() {
        return Some(Err(Flaw::bad_key("the SSH key is not Ed25519", "name an Ed25519 key")));
    }
    let public = secrets.text()?;
    let pair = secrets.text()?;
    let (seed, half) = pair.split_at_checked(32)?;
    if half != public || ed25519_of(&wire).ok()?.as_slice() != public {
        return None;
    }
    let mut key = Zeroizing::new([0; 32]);
    key.copy_from_slice(seed);
    Some(Ok((key, wire)))
}

fn with_passphrase() -> Flaw {
    Flaw::bad_key(
        "a passphrase protects the SSH key",
        "use an age identity, or an SSH key without a passphrase; keys of an agent cannot decrypt",
    )
}

/// Says that a key cannot be read.
pub fn malformed() -> Flaw {
    Flaw::bad_key("the SSH key is not what `ssh-keygen -t ed25519` writes", "copy the key again")
}

/// Reads what SSH writes: numbers of four bytes, and texts with their length before them.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_be_bytes)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        self.take(usize::try_from(length).ok()?)
    }
}
