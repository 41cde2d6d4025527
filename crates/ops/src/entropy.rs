//! Randomness of the machine, for the library that makes keys.

use ichor_machineconfig::pki::{Entropy, PkiError};

use crate::System;

/// Draws from a system, and remembers whether a draw failed.
pub struct Draws<'a> {
    system: &'a dyn System,
    failed: bool,
}

impl<'a> Draws<'a> {
    /// Draws from a system.
    pub const fn new(system: &'a dyn System) -> Self {
        Self { system, failed: false }
    }

    /// Keeps what was made, unless it was made without randomness.
    pub fn vouch<T>(self, made: Result<T, PkiError>) -> Result<T, PkiError> {
        if self.failed { Err(PkiError::Entropy) } else { made }
    }
}

impl Entropy for Draws<'_> {
    fn fill(&mut self, buffer: &mut [u8]) {
        self.failed |= self.system.random(buffer).is_err();
    }
}
