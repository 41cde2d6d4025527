//! Why a machine finds no host.

use std::fmt;

use ichor_model::{HostName, MachineName, desired::Arch};
use serde::Serialize;

use super::Resources;

/// A machine that finds no host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Refusal {
    /// No host can take it.
    NoFit {
        /// The machine.
        machine: MachineName,
        /// What it needs.
        needs: Resources,
        /// What each host lacks, by name; with those it names that are not listed.
        hosts: Vec<(HostName, Lack)>,
    },
    /// The strategy is to pin, and nobody pinned it.
    Unpinned {
        /// The machine.
        machine: MachineName,
        /// What it needs.
        needs: Resources,
    },
}

impl Refusal {
    /// Returns the machine that was refused.
    pub const fn machine(&self) -> &MachineName {
        match self {
            Self::NoFit { machine, .. } | Self::Unpinned { machine, .. } => machine,
        }
    }

    /// Returns what the machine needs.
    pub const fn needs(&self) -> Resources {
        match self {
            Self::NoFit { needs, .. } | Self::Unpinned { needs, .. } => *needs,
        }
    }

    /// Returns what each host lacks, by name; nothing for a machine that was not tried.
    pub fn hosts(&self) -> &[(HostName, Lack)] {
        match self {
            Self::NoFit { hosts, .. } => hosts,
            Self::Unpinned { .. } => &[],
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFit { machine, .. } => write!(f, "`{machine}` fits on no host"),
            Self::Unpinned { machine, .. } => write!(f, "strategy `pin` leaves `{machine}` without a host"),
        }
    }
}

/// What a host lacks to take a machine. Shown, it continues the host's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lack {
    /// It is not among the hosts that were given: not known, offline or lost.
    Listing,
    /// It is not the host that the machine is pinned to.
    Pin,
    /// It is not among the hosts that the machine may use.
    Permission,
    /// It is of another architecture, which this is.
    Arch(Arch),
    /// It is in another zone, which this is, or in none.
    Zone(Option<String>),
    /// It is too full.
    Room {
        /// What is free on it.
        free: Resources,
        /// What is missing for this machine; nothing of what suffices.
        short: Resources,
    },
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listing => f.write_str("is not available"),
            Self::Pin => f.write_str("is not the host it is pinned to"),
            Self::Permission => f.write_str("is not among the hosts it may use"),
            Self::Arch(arch) => write!(f, "is {arch}"),
            Self::Zone(Some(zone)) => write!(f, "is in zone `{zone}`"),
            Self::Zone(None) => f.write_str("is in no zone"),
            Self::Room { short, .. } => show_shortage(*short, f),
        }
    }
}

fn show_shortage(short: Resources, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match (short.cpu, short.memory.mib()) {
        (cpu, 0) => write!(f, "is short by {cpu} vCPU"),
        (0, _) => write!(f, "is short by {} of memory", short.memory),
        _ => write!(f, "is short by {short} of memory"),
    }
}

#[cfg(test)]
mod tests {
    use ichor_model::Size;

    use super::*;

    #[test]
    fn a_lack_continues_the_name_of_its_host() {
        let short = |cpu, gib| Lack::Room {
            free: Resources::default(),
            short: Resources::new(cpu, Size::from_gib(gib)),
        };
        for (lack, shown) in [
            (Lack::Listing, "is not available"),
            (Lack::Pin, "is not the host it is pinned to"),
            (Lack::Permission, "is not among the hosts it may use"),
            (Lack::Arch(Arch::Arm64), "is arm64"),
            (Lack::Zone(Some("b".into())), "is in zone `b`"),
            (Lack::Zone(None), "is in no zone"),
            (short(2, 0), "is short by 2 vCPU"),
            (short(0, 4), "is short by 4GiB of memory"),
            (short(2, 4), "is short by 2 vCPU and 4GiB of memory"),
        ] {
            assert_eq!(lack.to_string(), shown);
        }
    }
}
