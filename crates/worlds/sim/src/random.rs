//! Randomness with a seed.

use serde::{Deserialize, Serialize};

/// A small generator (SplitMix64): the same seed gives the same numbers, also after saving and loading.
/// It stands for pids, MAC addresses and uuids, never for keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Starts from a seed.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next 64 bits.
    pub const fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below a limit, which must not be zero.
    pub const fn below(&mut self, limit: u64) -> u64 {
        self.bits() % limit
    }

    /// Fills bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let bits = self.bits().to_le_bytes();
            chunk.copy_from_slice(&bits[..chunk.len()]);
        }
    }

    /// Returns a random uuid (version 4) in its usual form.
    pub fn uuid(&mut self) -> String {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let mut first = Random::new(7);
        let mut second = Random::new(7);
        assert_eq!((first.bits(), first.uuid()), (second.bits(), second.uuid()));
        assert_ne!(Random::new(8).bits(), Random::new(7).bits());
    }
}
