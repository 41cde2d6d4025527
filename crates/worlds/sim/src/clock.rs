//! Time in the lab.

use std::{fmt, ops::Add, time::Duration};

use serde::{Deserialize, Serialize};

/// A moment, counted in milliseconds as Unix counts seconds, so that certificates made in the lab are valid
/// for real clients when the lab follows the real clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(u64);

impl Time {
    /// When a lab begins that does not follow the real clock: 2026-01-01 00:00 UTC.
    pub const START: Self = Self(1_767_225_600_000);

    /// A moment that never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns the moment that many milliseconds after 1970 began.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Returns the milliseconds since 1970 began.
    pub const fn millis(self) -> u64 {
        self.0
    }

    /// Returns what the calendar shows, in Unix seconds.
    pub const fn unix_seconds(self) -> u64 {
        self.0 / 1000
    }

    /// Returns the time from an earlier moment to this one; zero if it is a later one.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl Default for Time {
    fn default() -> Self {
        Self::START
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}s", self.0 / 1000, self.0 % 1000)
    }
}
