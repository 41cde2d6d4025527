//! Versions of Talos and Kubernetes.

use std::{fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::Problem;

/// The first two numbers of a version: what support ranges and config contracts are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Minor {
    /// `1` in `1.13`.
    pub major: u64,
    /// `13` in `1.13`.
    pub minor: u64,
}

impl Minor {
    /// Makes `major.minor`.
    pub const fn new(major: u64, minor: u64) -> Self {
        Self { major, minor }
    }
}

impl fmt::Display for Minor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Minor {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let wrong = || Problem::new("is not a minor version", "write it as in `v1.13`");
        let (major, minor) = text.strip_prefix('v').unwrap_or(text).split_once('.').ok_or_else(wrong)?;
        let number = |part: &str| {
            let plain = !part.is_empty()
                && part.bytes().all(|b| b.is_ascii_digit())
                && (part == "0" || !part.starts_with('0'));
            plain.then(|| part.parse().ok()).flatten().ok_or_else(wrong)
        };
        Ok(Self { major: number(major)?, minor: number(minor)? })
    }
}

impl TryFrom<String> for Minor {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map_err(|problem: Problem| format!("`{text}` {}", problem.message))
    }
}

impl From<Minor> for String {
    fn from(minor: Minor) -> Self {
        minor.to_string()
    }
}

impl JsonSchema for Minor {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Minor".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A minor version, such as `v1.13`.",
            // To a YAML reader `1.13` is a number.
            "type": ["string", "number"],
            "pattern": r"^v?[0-9]+\.[0-9]+$",
        })
    }
}

macro_rules! version {
    ($(#[$meta:meta])* $type:ident, $example:literal) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(semver::Version);

        impl $type {
            /// Makes a release version.
            pub const fn new(major: u64, minor: u64, patch: u64) -> Self {
                Self(semver::Version::new(major, minor, patch))
            }

            /// Whether this is an alpha, beta or rc.
            pub fn is_prerelease(&self) -> bool {
                !self.0.pre.is_empty()
            }

            /// Returns the first two numbers.
            pub const fn minor(&self) -> Minor {
                Minor::new(self.0.major, self.0.minor)
            }
        }

        impl FromStr for $type {
            type Err = Problem;

            fn from_str(text: &str) -> Result<Self, Problem> {
                let bare = text.strip_prefix('v').unwrap_or(text);
                if bare.parse::<Minor>().is_ok() {
                    return Err(Problem::new(
                        "has no patch number",
                        format!("write all three numbers, as in `v{bare}.0`"),
                    ));
                }
                let version = semver::Version::parse(bare).map_err(|_| {
                    Problem::new("is not a version", concat!("write it as in `", $example, "`"))
                })?;
                if !version.build.is_empty() {
                    return Err(Problem::new("has build metadata", concat!("write it as in `", $example, "`")));
                }
                Ok(Self(version))
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&format!("v{}", self.0))
            }
        }

        impl TryFrom<String> for $type {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse().map_err(|problem: Problem| format!("`{text}` {}", problem.message))
            }
        }

        impl From<$type> for String {
            fn from(version: $type) -> Self {
                version.to_string()
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "type": "string",
                    "pattern": r"^v?[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$",
                    "examples": [$example],
                })
            }
        }
    };
}

version!(
    /// A Talos release, such as `v1.13.9`.
    TalosVersion, "v1.13.9"
);
version!(
    /// A Kubernetes release, such as `v1.36.3`.
    KubernetesVersion, "v1.36.3"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_with_and_without_v() {
        for text in ["v1.13.9", "1.13.9"] {
            assert_eq!(text.parse::<TalosVersion>().expect(text).to_string(), "v1.13.9");
        }
        assert_eq!("v1.14.0-rc.1".parse::<TalosVersion>().expect("rc").minor(), Minor::new(1, 14));
    }

    #[test]
    fn a_version_without_patch_says_what_is_missing() {
        let problem = "1.30".parse::<KubernetesVersion>().expect_err("no patch");
        assert_eq!(problem.remedy, "write all three numbers, as in `v1.30.0`");
        for text in ["", "v", "latest", "1.2.3.4", "01.2.3", "1.13.9+x"] {
            assert!(text.parse::<TalosVersion>().is_err(), "{text}");
        }
    }
}
