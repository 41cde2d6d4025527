//! Randomness, as an argument.

/// A source of random bytes.
///
/// Everything random in this crate comes from here, so that a test can repeat it, with two
/// exceptions that the crypto library does not let us steer: RSA keys and ECDSA signatures.
pub trait Entropy {
    /// Fills the buffer with random bytes.
    fn fill(&mut self, buffer: &mut [u8]);
}

/// Draws until a value is acceptable, or gives up.
///
/// Every draw in this crate succeeds 98 times out of 100 at least, so a source that fails this often
/// is broken, and waiting for it would hang.
pub fn draw<const N: usize, T>(
    entropy: &mut dyn Entropy,
    mut accept: impl FnMut(&[u8; N]) -> Option<T>,
) -> Option<T> {
    const MOST_DRAWS: usize = 128;
    let mut bytes = zeroize::Zeroizing::new([0; N]);
    for _ in 0..MOST_DRAWS {
        entropy.fill(&mut bytes[..]);
        if let Some(value) = accept(&bytes) {
            return Some(value);
        }
    }
    None
}
