//! What the tests share.

use ichor_machineconfig::{
    pki::{Entropy, RsaKey, Timestamp},
    secrets::Bundle,
};
use sha2::{Digest, Sha256};

/// The bundle that talosctl's machinery has read and written again without a change.
pub const GOLDEN: &str = include_str!("../golden/secrets.yaml");

/// Entropy that a test can repeat: SHA-256 of a seed and a counter.
pub struct Seeded {
    seed: u64,
    block: u64,
}

impl Seeded {
    pub const fn new(seed: u64) -> Self {
        Self { seed, block: 0 }
    }
}

impl Entropy for Seeded {
    fn fill(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(32) {
            self.block += 1;
            let digest = Sha256::digest([self.seed.to_be_bytes(), self.block.to_be_bytes()].concat());
            chunk.copy_from_slice(&digest[..chunk.len()]);
        }
    }
}

/// 2026-11-15T23:00:00Z, when the golden bundle was made.
pub const fn now() -> Timestamp {
    Timestamp::from_unix_seconds(1_794_783_600)
}

/// An RSA key that need not be made first.
pub fn rsa() -> RsaKey {
    let file = include_str!("../golden/service-account.pem");
    let (_, pem) = file.split_once(".\n").expect("a warning, then the key");
    RsaKey::from_pem(pem).expect("the test key")
}

/// A bundle of a seed.
pub fn bundle(seed: u64) -> Bundle {
    Bundle::generate(&mut Seeded::new(seed), now(), rsa()).expect("a bundle")
}

/// A day later, when the authorities of [`foreign`] are valid too.
pub const fn later() -> Timestamp {
    now().plus(std::time::Duration::from_hours(24))
}

/// A certificate and key of an authority that was made with openssl: `rsa` or `p384`.
pub fn foreign(kind: &str) -> (&'static str, &'static str) {
    match kind {
        "rsa" => (include_str!("../golden/foreign/rsa.crt"), include_str!("../golden/foreign/rsa.key")),
        _ => (include_str!("../golden/foreign/p384.crt"), include_str!("../golden/foreign/p384.key")),
    }
}
