//! Checksums of files, by the algorithms that Proxmox knows.

use aws_lc_rs::digest::{self, Context};
use md5::{Digest, Md5};

/// A checksum that is being made.
#[derive(Clone)]
pub struct Checksum(Kind);

#[derive(Clone)]
enum Kind {
    Md5(Md5),
    Sha(Context),
}

impl Checksum {
    /// Begins one; it is SHA-256 where the algorithm is none that Proxmox knows.
    pub fn of(algorithm: &str) -> Self {
        let sha = match algorithm {
            "md5" => return Self(Kind::Md5(Md5::new())),
            "sha1" => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            "sha224" => &digest::SHA224,
            "sha384" => &digest::SHA384,
            "sha512" => &digest::SHA512,
            _ => &digest::SHA256,
        };
        Self(Kind::Sha(Context::new(sha)))
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Kind::Md5(sum) => Digest::update(sum, bytes),
            Kind::Sha(sum) => sum.update(bytes),
        }
    }

    /// Returns the checksum in hexadecimal digits.
    pub fn finish(self) -> String {
        match self.0 {
            Kind::Md5(sum) => hex(&sum.finalize()),
            Kind::Sha(sum) => hex(sum.finish().as_ref()),
        }
    }
}

/// Returns the checksum of bytes that are all there.
pub fn checksum(algorithm: &str, bytes: &[u8]) -> String {
    let mut sum = Checksum::of(algorithm);
    sum.update(bytes);
    sum.finish()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_bytes() {
        for (algorithm, beginning, length) in [
            ("md5", "900150983cd24fb0d6963f7d28e17f72", 32),
            ("sha1", "a9993e364706816aba3e25717850c26c9cd0d89d", 40),
            ("sha224", "23097d22", 56),
            ("sha256", "ba7816bf", 64),
            ("sha384", "cb00753f", 96),
            ("sha512", "ddaf35a1", 128),
        ] {
            let sum = checksum(algorithm, b"abc");
            assert!(sum.starts_with(beginning) && sum.len() == length, "{algorithm}: {sum}");
        }
    }
}
