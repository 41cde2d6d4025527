//! Releases of Proxmox VE, as far as they behave differently.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A release such as 9.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Release {
    /// The part before the dot.
    pub major: u8,
    /// The part after it.
    pub minor: u8,
}

impl Release {
    /// 8.0: errors are told in the reason phrase only, small bodies, HA groups.
    pub const V8_0: Self = Self { major: 8, minor: 0 };
    /// 8.4: errors also in the body, import of disk images, HA groups.
    pub const V8_4: Self = Self { major: 8, minor: 4 };
    /// 9.2, the one whose answers were recorded.
    pub const V9_2: Self = Self { major: 9, minor: 2 };

    /// Returns whether this release is no older than another.
    pub const fn at_least(self, major: u8, minor: u8) -> bool {
        self.major > major || self.major == major && self.minor >= minor
    }

    /// Returns the version of the package `pve-manager` that stands for it.
    pub fn version(self) -> String {
        match self {
            Self::V9_2 => "9.2.11".into(),
            Self::V8_4 => "8.4.1".into(),
            Self::V8_0 => "8.0.3".into(),
            Self { major, minor } => format!("{major}.{minor}.1"),
        }
    }

    /// Returns whether errors are told in the body (from `libpve-http-server-perl` 5.2.0 on).
    pub const fn tells_errors_in_body(self) -> bool {
        self.at_least(8, 4)
    }

    /// Returns how large a body may be.
    pub const fn body_limit(self) -> usize {
        if self.at_least(8, 4) { 512 * 1024 } else { 64 * 1024 }
    }
}

impl Default for Release {
    fn default() -> Self {
        Self::V9_2
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Release {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (major, minor) = text.split_once('.').ok_or(())?;
        Ok(Self { major: major.parse().map_err(|_| ())?, minor: minor.parse().map_err(|_| ())? })
    }
}
