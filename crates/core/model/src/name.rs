//! Names of clusters, machines and hosts.

use std::{cmp::Ordering, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::Problem;

/// A DNS-1123 label, which is what Kubernetes takes as a node name without dots and what Proxmox
/// takes as a VM name (its `dns-name` format has no underscore).
const LABEL_PATTERN: &str = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$";

/// Proxmox names its nodes after their short host name; upper case is allowed there.
const HOST_PATTERN: &str = "^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$";

macro_rules! name {
    ($(#[$meta:meta])* $type:ident, $pattern:expr, $check:ident) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(Box<str>);

        impl $type {
            /// Returns the name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = Problem;

            fn from_str(text: &str) -> Result<Self, Problem> {
                $check(text).map(|()| Self(text.into()))
            }
        }

        impl TryFrom<String> for $type {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse().map_err(|problem: Problem| format!("`{text}` {}", problem.message))
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> Self {
                name.0.into()
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl PartialOrd for $type {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $type {
            fn cmp(&self, other: &Self) -> Ordering {
                natural(&self.0, &other.0)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern, "maxLength": 63 })
            }
        }
    };
}

name!(
    /// The name of a cluster: the Talos cluster name, the context name, and the first tag of its VMs.
    ClusterName, LABEL_PATTERN, check_cluster
);
name!(
    /// The name of a machine: its VM name, host name and Kubernetes node name are this one word.
    MachineName, LABEL_PATTERN, check_machine
);
name!(
    /// The name of a Proxmox host, as `GET /nodes` lists it.
    HostName, HOST_PATTERN, check_host
);

const LABEL_CHARACTERS: &str = "a to z, 0 to 9 and `-`";

fn check_machine(text: &str) -> Result<(), Problem> {
    const UNDERSCORE: &str = "has an underscore, which Proxmox VM names and DNS names forbid";
    const UPPER_CASE: &str = "has upper-case letters, which Kubernetes node names forbid";
    check_label(text, UNDERSCORE, UPPER_CASE)
}

fn check_cluster(text: &str) -> Result<(), Problem> {
    const UNDERSCORE: &str = "has an underscore, which DNS names forbid";
    const UPPER_CASE: &str = "has upper-case letters, which Proxmox does not keep in tags";
    check_label(text, UNDERSCORE, UPPER_CASE)
}

fn check_label(text: &str, underscore: &str, upper_case: &str) -> Result<(), Problem> {
    if let Some(problem) = common_problem(text) {
        return Err(problem);
    }
    let remedy = suggestion(text)
        .map_or_else(|| format!("use only {LABEL_CHARACTERS}"), |name| format!("write `{name}`"));
    if text.contains('_') {
        return Err(Problem::new(underscore, remedy));
    }
    if text.chars().any(char::is_uppercase) {
        return Err(Problem::new(upper_case, remedy));
    }
    check_characters(text, remedy)
}

fn check_host(text: &str) -> Result<(), Problem> {
    if let Some(problem) = common_problem(text) {
        return Err(problem);
    }
    if text.contains('.') {
        return Err(Problem::new(
            "has a dot; Proxmox knows its hosts by their short name",
            format!("write `{}`", text.split('.').next().unwrap_or(text)),
        ));
    }
    let trimmed = text.trim_matches('-');
    let is_good = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let remedy = if !trimmed.is_empty() && trimmed.chars().all(is_good) {
        format!("write `{trimmed}`")
    } else {
        "use only letters, digits and `-`".to_owned()
    };
    check_characters(text, remedy)
}

fn common_problem(text: &str) -> Option<Problem> {
    if text.is_empty() {
        return Some(Problem::new("is empty", "give it a name of 1 to 63 characters"));
    }
    let length = text.chars().count();
    (length > 63).then(|| {
        Problem::new(
            format!("is {length} characters long; at most 63 fit in a DNS name"),
            "choose a shorter name",
        )
    })
}

fn check_characters(text: &str, remedy: String) -> Result<(), Problem> {
    if let Some(bad) = text.chars().find(|c| !c.is_ascii_alphanumeric() && *c != '-') {
        return Err(Problem::new(format!("has `{}`", bad.escape_debug()), remedy));
    }
    if text.starts_with('-') || text.ends_with('-') {
        return Err(Problem::new("starts or ends with `-`", remedy));
    }
    Ok(())
}

/// Returns the nearest valid name, if it is plain which that is: lower case, with `-` for `_`, `.`
/// and spaces.
fn suggestion(text: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ');
    if !text.chars().all(is_plain) {
        return None;
    }
    let lowered: String =
        text.to_lowercase().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let trimmed = lowered.trim_matches('-');
    (!trimmed.is_empty()).then(|| trimmed.to_owned())
}

/// Compares names the way people count: `pve2` before `pve10`.
///
/// Equal numbers of different length (`a1`, `a01`) are told apart by their text, so the order is
/// total and agrees with equality.
pub fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a, b);
    while !left.is_empty() && !right.is_empty() {
        let (left_run, left_rest) = split_run(left);
        let (right_run, right_rest) = split_run(right);
        let order = match (is_number(left_run), is_number(right_run)) {
            (true, true) => compare_numbers(left_run, right_run),
            _ => left_run.cmp(right_run),
        };
        if order != Ordering::Equal {
            return order;
        }
        (left, right) = (left_rest, right_rest);
    }
    left.len().cmp(&right.len()).then_with(|| a.cmp(b))
}

fn is_number(run: &str) -> bool {
    run.starts_with(|c: char| c.is_ascii_digit())
}

fn split_run(text: &str) -> (&str, &str) {
    let number = is_number(text);
    let end = text.find(|c: char| c.is_ascii_digit() != number).unwrap_or(text.len());
    text.split_at(end)
}

fn compare_numbers(a: &str, b: &str) -> Ordering {
    let (a, b) = (a.trim_start_matches('0'), b.trim_start_matches('0'));
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_names_are_dns_labels() {
        for good in ["cp-1", "a", "0", &"x".repeat(63)] {
            assert!(good.parse::<MachineName>().is_ok(), "{good}");
        }
        for bad in ["", "Cp-1", "cp_1", "-cp", "cp-", "cp.1", "../x", "π", &"x".repeat(64)] {
            assert!(bad.parse::<MachineName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_bad_name_comes_with_a_good_one() {
        for (bad, remedy) in [
            ("Control_Plane", "write `control-plane`"),
            ("-x", "write `x`"),
            ("x-", "write `x`"),
            ("worker.lab", "write `worker-lab`"),
            ("../x", "use only a to z, 0 to 9 and `-`"),
            ("π", "use only a to z, 0 to 9 and `-`"),
            ("--", "use only a to z, 0 to 9 and `-`"),
        ] {
            assert_eq!(bad.parse::<MachineName>().expect_err(bad).remedy, remedy);
            assert_eq!(bad.parse::<ClusterName>().expect_err(bad).remedy, remedy);
        }
        for (bad, remedy) in [
            ("-Pve", "write `Pve`"),
            ("pve1.lab", "write `pve1`"),
            ("pve_1", "use only letters, digits and `-`"),
        ] {
            assert_eq!(bad.parse::<HostName>().expect_err(bad).remedy, remedy);
        }
    }

    #[test]
    fn a_cluster_is_no_node() {
        for bad in ["Lab", "my_lab", "lab.", "-lab", ""] {
            let problem = bad.parse::<ClusterName>().expect_err(bad);
            assert!(!problem.message.contains("node") && !problem.message.contains("VM"), "{problem:?}");
        }
    }

    #[test]
    fn names_sort_as_people_count() {
        let mut names = ["pve10", "pve2", "pve1", "a1", "a01", "pve"];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(names, ["a01", "a1", "pve", "pve1", "pve2", "pve10"]);
    }
}
