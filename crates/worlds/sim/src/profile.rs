//! How long things take.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long things take in the lab, as a share of what they take on real hardware.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// No time at all: every task ends within the call that starts it.
    Instant,
    /// A twentieth of the real time, to rehearse and to try clients.
    #[default]
    Lab,
    /// The real time, behind a long line.
    Wan,
}

impl Profile {
    /// Returns how long something takes here that takes this long on real hardware.
    pub fn takes(self, real: Duration) -> Duration {
        match self {
            Self::Instant => Duration::ZERO,
            Self::Lab => real / 20,
            Self::Wan => real,
        }
    }

    /// Returns how long the line to the lab takes for a round trip.
    pub const fn round_trip(self) -> Duration {
        match self {
            Self::Instant => Duration::ZERO,
            Self::Lab => Duration::from_millis(1),
            Self::Wan => Duration::from_millis(80),
        }
    }
}
