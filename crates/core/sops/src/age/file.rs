//! The age file itself.

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use zeroize::Zeroizing;

use super::{Identity, PublicKey, Recipient, armor, primitives as by, ssh};
use crate::Entropy;

const VERSION: &str = "age-encryption.org/v1";
const X25519: &str = "X25519";
const COLUMNS: usize = 64;
/// Largest payload of a chunk; what a SOPS file encrypts this way is one chunk.
const CHUNK: usize = 64 * 1024;
/// Most stanzas that are tried.
const MAX_STANZAS: usize = 1000;
const FILE_KEY: usize = 16;

/// Why a file is not decrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// It is for others.
    NotForUs,
    /// It is not what age writes, or somebody changed it.
    Malformed,
}

/// One recipient's way to the file key.
struct Stanza<'a> {
    words: Vec<&'a str>,
    body: Vec<u8>,
}

/// Encrypts a short text to a recipient; nothing, if the recipient's key is none.
pub fn encrypt(recipient: &Recipient, plain: &[u8], entropy: Entropy<'_>) -> Option<String> {
    let mut file_key = Zeroizing::new([0; FILE_KEY]);
    entropy(file_key.as_mut());
    let mut ephemeral = Zeroizing::new([0; 32]);
    entropy(ephemeral.as_mut());
    let mut nonce = [0; 16];
    entropy(&mut nonce);

    let share = by::public(&ephemeral)?;
    let (words, wrapping) = match &recipient.key {
        PublicKey::X25519(point) => {
            let shared = by::shared(&ephemeral, point)?;
            (
                format!("{X25519} {}", STANDARD_NO_PAD.encode(share)),
                wrapping_key(X25519, &shared, &share, point)?,
            )
        }
        PublicKey::Ssh { wire, point } => {
            let shared = tweaked(&by::shared(&ephemeral, point)?, wire)?;
            let words = format!("{} {} {}", ssh::NAME, ssh::tag(wire), STANDARD_NO_PAD.encode(share));
            (words, wrapping_key(ssh::NAME, &shared, &share, point)?)
        }
    };
    let body = STANDARD_NO_PAD.encode(by::seal(&wrapping, [0; 12], file_key.as_ref())?);
    let header = format!("{VERSION}\n-> {words}\n{body}\n---");
    let mac = by::authenticate(&header_key(&file_key)?, header.as_bytes());
    let mut file = format!("{header} {}\n", STANDARD_NO_PAD.encode(mac)).into_bytes();
    file.extend(nonce);
    file.extend(by::seal(&payload_key(&file_key, &nonce)?, LAST_CHUNK, plain)?);
    Some(armor::wrap(&file))
}

/// Decrypts a short text that was encrypted to one of these identities.
pub fn decrypt(armored: &str, identities: &[Identity]) -> Result<Zeroizing<Vec<u8>>, Refused> {
    let bytes = armor::unwrap(armored).ok_or(Refused::Malformed)?;
    let (header, mac, payload) = split(&bytes).ok_or(Refused::Malformed)?;
    let stanzas = stanzas(header).ok_or(Refused::Malformed)?;
    let tries = stanzas.iter().flat_map(|stanza| identities.iter().map(move |identity| (stanza, identity)));
    let file_key = tries
        .into_iter()
        .find_map(|(stanza, identity)| unwrap(stanza, identity).transpose())
        .ok_or(Refused::NotForUs)??;
    let key = header_key(&file_key).ok_or(Refused::Malformed)?;
    if !by::is_authentic(&key, header.as_bytes(), &mac) {
        return Err(Refused::Malformed);
    }
    let (nonce, sealed) = payload.split_at_checked(16).ok_or(Refused::Malformed)?;
    if sealed.len() > CHUNK {
        return Err(Refused::Malformed);
    }
    let key = payload_key(&file_key, nonce).ok_or(Refused::Malformed)?;
    by::open(&key, LAST_CHUNK, sealed).ok_or(Refused::Malformed)
}

/// The nonce of a chunk that is the first and the last.
const LAST_CHUNK: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

fn wrapping_key(name: &str, shared: &by::Key, share: &[u8; 32], point: &[u8; 32]) -> Option<by::Key> {
    let salt = [share.as_slice(), point].concat();
    by::derive(shared.as_ref(), &salt, format!("{VERSION}/{name}").as_bytes())
}

/// Binds a shared secret to the key of SSH, whose point alone would not tell it from that of age.
fn tweaked(shared: &by::Key, wire: &[u8]) -> Option<by::Key> {
    let tweak = by::derive(&[], wire, format!("{VERSION}/{}", ssh::NAME).as_bytes())?;
    by::shared(&tweak, shared)
}

fn header_key(file_key: &[u8; FILE_KEY]) -> Option<by::Key> {
    by::derive(file_key, &[], b"header")
}

fn payload_key(file_key: &[u8; FILE_KEY], nonce: &[u8]) -> Option<by::Key> {
    by::derive(file_key, nonce, b"payload")
}

/// Splits a file into its header up to the three dashes, the MAC, and the rest.
fn split(bytes: &[u8]) -> Option<(&str, Vec<u8>, &[u8])> {
    let at = bytes.windows(5).position(|it| it == b"\n--- ")?;
    let (header, rest) = bytes.split_at(at + 4);
    let rest = rest.strip_prefix(b" ")?;
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let mac = STANDARD_NO_PAD.decode(&rest[..end]).ok()?;
    Some((std::str::from_utf8(header).ok()?, mac, &rest[end + 1..]))
}

fn stanzas(header: &str) -> Option<Vec<Stanza<'_>>> {
    let mut lines = header.strip_suffix("\n---")?.split('\n');
    if lines.next()? != VERSION {
        return None;
    }
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        let words: Vec<&str> = line.strip_prefix("-> ")?.split(' ').collect();
        let mut text = String::new();
        loop {
            let line = lines.next()?;
            text.push_str(line);
            // A full line is never the last one.
            match line.len() {
                COLUMNS => {}
                length if length < COLUMNS => break,
                _ => return None,
            }
        }
        found.push(Stanza { words, body: STANDARD_NO_PAD.decode(text).ok()? });
        if found.len() > MAX_STANZAS {
            return None;
        }
    }
    Some(found)
}

/// Takes the file key out of a stanza; nothing, if it is for somebody else.
fn unwrap(stanza: &Stanza<'_>, identity: &Identity) -> Result<Option<Zeroizing<[u8; FILE_KEY]>>, Refused> {
    let wrapping = match (&identity.recipient.key, stanza.words.as_slice()) {
        (PublicKey::X25519(point), [X25519, share]) => {
            let share = read_share(share)?;
            let shared = by::shared(&identity.secret, &share).ok_or(Refused::Malformed)?;
            wrapping_key(X25519, &shared, &share, point)
        }
        (PublicKey::Ssh { wire, point }, [ssh::NAME, tag, share]) if *tag == ssh::tag(wire) => {
            let share = read_share(share)?;
            let shared = by::shared(&identity.secret, &share).ok_or(Refused::Malformed)?;
            tweaked(&shared, wire).and_then(|shared| wrapping_key(ssh::NAME, &shared, &share, point))
        }
        _ => return Ok(None),
    };
    let wrapping = wrapping.ok_or(Refused::Malformed)?;
    if stanza.body.len() != FILE_KEY + 16 {
        return Err(Refused::Malformed);
    }
    // The key of another X25519 recipient does not open it, which is no fault.
    let Some(opened) = by::open(&wrapping, [0; 12], &stanza.body) else { return Ok(None) };
    let mut key = Zeroizing::new([0; FILE_KEY]);
    key.copy_from_slice(&opened);
    Ok(Some(key))
}

fn read_share(text: &str) -> Result<[u8; 32], Refused> {
    let bytes = STANDARD_NO_PAD.decode(text).map_err(|_| Refused::Malformed)?;
    bytes.try_into().map_err(|_| Refused::Malformed)
}
