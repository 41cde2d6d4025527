//! The API server itself: its version, how it is, and what it serves.

use ichor_port::{Method, clean};
use serde::Deserialize;

use crate::{
    call::Call,
    read::{cleaned, or_default},
    resource::{Served, api_segments},
};

/// Asks an API server whether it can do its work.
pub const READY: &str = "readyz";
/// Asks an API server whether it lives.
pub const ALIVE: &str = "livez";

/// Most failing checks that are told.
const MOST_CHECKS: usize = 50;

/// The release of an API server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// Such as `v1.36.3`.
    #[serde(deserialize_with = "cleaned")]
    pub git_version: String,
    /// Such as `1`.
    #[serde(default, deserialize_with = "cleaned")]
    pub major: String,
    /// Such as `36`.
    #[serde(default, deserialize_with = "cleaned")]
    pub minor: String,
}

/// Asks which release answers.
pub fn version() -> Call<Version> {
    Call::new(Method::Get, &["version"])
}

/// Reads the names of the checks that fail, from lines such as `[-]etcd failed: reason withheld`.
pub(crate) fn failing_checks(text: &str) -> Vec<String> {
    let failing = text.lines().filter_map(|line| line.strip_prefix("[-]"));
    failing.map(|line| clean(line.split(" failed").next().unwrap_or(line))).take(MOST_CHECKS).collect()
}

/// Asks which kinds a group and version have, such as `apps/v1` or `v1`.
pub fn served(api_version: &str) -> Call<Served> {
    Call::new(Method::Get, &api_segments(api_version))
}

/// The versions of the core.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct CoreVersions {
    #[serde(default, deserialize_with = "or_default")]
    versions: Vec<String>,
}

impl CoreVersions {
    /// Returns them as objects name them.
    pub fn names(&self) -> impl Iterator<Item = String> + '_ {
        self.versions.iter().map(|version| clean(version))
    }
}

/// Asks for the versions of the core.
pub fn core_versions() -> Call<CoreVersions> {
    Call::new(Method::Get, &["api"])
}

/// The groups and their versions.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Groups {
    #[serde(default, deserialize_with = "or_default")]
    groups: Vec<Group>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Group {
    #[serde(default, deserialize_with = "or_default")]
    versions: Vec<GroupVersion>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroupVersion {
    #[serde(deserialize_with = "cleaned")]
    group_version: String,
}

impl Groups {
    /// Returns them as objects name them, such as `apps/v1`.
    pub fn names(&self) -> impl Iterator<Item = String> + '_ {
        self.groups.iter().flat_map(|group| &group.versions).map(|version| version.group_version.clone())
    }
}

/// Asks for the groups.
pub fn groups() -> Call<Groups> {
    Call::new(Method::Get, &["apis"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_that_fail_are_named() {
        let text = "[+]ping ok\n[-]etcd failed: reason withheld\n[+]log ok\n[-]poststarthook/x failed: y\nreadyz check failed\n";
        assert_eq!(failing_checks(text), ["etcd", "poststarthook/x"]);
        assert_eq!(failing_checks("ok"), [""; 0]);
        assert_eq!(failing_checks(&"[-]x failed\n".repeat(9_999)).len(), MOST_CHECKS);
    }
}
