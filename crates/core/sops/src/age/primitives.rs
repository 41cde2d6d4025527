//! The four primitives of age, by the crypto library.

use aws_lc_rs::{
    aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey},
    agreement::{PrivateKey, UnparsedPublicKey, X25519, agree},
    hkdf::{HKDF_SHA256, KeyType, Salt},
    hmac,
};
use zeroize::Zeroizing;

/// A key of 32 bytes.
pub type Key = Zeroizing<[u8; 32]>;

/// Returns the public half of a key.
pub fn public(secret: &[u8; 32]) -> Option<[u8; 32]> {
    let key = PrivateKey::from_private_key(&X25519, secret).ok()?;
    key.compute_public_key().ok()?.as_ref().try_into().ok()
}

/// Returns what two keys share; nothing, if the other one is a point that shares the same with everybody.
pub fn shared(secret: &[u8; 32], point: &[u8; 32]) -> Option<Key> {
    let key = PrivateKey::from_private_key(&X25519, secret).ok()?;
    agree(&key, UnparsedPublicKey::new(&X25519, point), (), |bytes| {
        bytes.try_into().map(Zeroizing::new).map_err(|_| ())
    })
    .ok()
}

struct Bytes32;

impl KeyType for Bytes32 {
    fn len(&self) -> usize {
        32
    }
}

/// Derives a key.
pub fn derive(secret: &[u8], salt: &[u8], info: &[u8]) -> Option<Key> {
    let mut key = Zeroizing::new([0; 32]);
    let extracted = Salt::new(HKDF_SHA256, salt).extract(secret);
    extracted.expand(&[info], Bytes32).ok()?.fill(key.as_mut()).ok()?;
    Some(key)
}

/// Encrypts with ChaCha20-Poly1305; the key is used for this nonce once.
pub fn seal(key: &Key, nonce: [u8; 12], plain: &[u8]) -> Option<Vec<u8>> {
    let key = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key.as_ref()).ok()?);
    let mut bytes = plain.to_vec();
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut bytes).ok()?;
    Some(bytes)
}

/// Decrypts what [`seal`] made.
pub fn open(key: &Key, nonce: [u8; 12], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let key = LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key.as_ref()).ok()?);
    let mut bytes = Zeroizing::new(sealed.to_vec());
    let length = key.open_in_place(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut bytes).ok()?.len();
    bytes.truncate(length);
    Some(bytes)
}

/// Returns the HMAC-SHA256 of a text.
pub fn authenticate(key: &Key, text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.as_ref()), text).as_ref().to_vec()
}

/// Whether an HMAC-SHA256 is right.
pub fn is_authentic(key: &Key, text: &[u8], mac: &[u8]) -> bool {
    hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, key.as_ref()), text, mac).is_ok()
}
