//! Why a machine goes to its host.

use std::fmt;

use ichor_model::{HostName, MachineName};
use serde::Serialize;

/// Why a machine goes to its host. Shown, it is one sentence about the machine ("it") there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Because {
    /// It exists and never moves.
    Stays,
    /// The inventory says so.
    Pinned,
    /// A control plane gets a host without one.
    Apart {
        /// The hosts without one that were as good by all but the edge, by name; this one included.
        among: Vec<HostName>,
        /// What set this host apart from them.
        edge: Edge,
    },
    /// A control plane gets a host without one, and others move for that or it for them.
    Arranged {
        /// The control planes that it was arranged with.
        with: Vec<MachineName>,
        /// What was gained: a host for each ([`Edge::Only`]), even zones, or room for workers.
        edge: Edge,
    },
    /// A control plane shares its host, for want of hosts.
    Shares {
        /// How many control planes the host had before.
        control_planes: usize,
        /// What set this host apart from others with room.
        edge: Edge,
    },
    /// A worker takes the next of the interleaved slots.
    Slot {
        /// How many workers the host had before.
        slot: usize,
        /// What set this host apart from others with room.
        edge: Edge,
    },
    /// A worker goes to the fullest host with room.
    Packed {
        /// What set this host apart from others with room.
        edge: Edge,
    },
    /// It goes where it leaves room for others, because by the strategy alone not all found room.
    Fitted,
}

/// What set a host apart from its last rivals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Edge {
    /// It had no rival.
    Only,
    /// It came out ahead by the very measure of the choice.
    Measure,
    /// It tied, and its zone had the fewest machines of the role.
    Zone,
    /// It tied, and had the least room to spare, which leaves more to large workers.
    Room,
    /// It tied, and its name comes first.
    Name,
}

const DISTINCT: &str = "control planes go to distinct hosts";
const NO_OTHER: &str = "no other host that it may use has room";
const FIRST_OF_EQUALS: &str = "this one comes first by name among equals";

impl fmt::Display for Because {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stays => f.write_str("already there"),
            Self::Pinned => f.write_str("pinned by the inventory"),
            Self::Apart { among, edge } => show_apart(among, *edge, f),
            Self::Arranged { with, edge } => show_arranged(with, *edge, f),
            Self::Shares { control_planes, edge } => show_shares(*control_planes, *edge, f),
            Self::Slot { slot, edge } => show_slot(*slot, *edge, f),
            Self::Packed { edge } => show_packed(*edge, f),
            Self::Fitted => {
                f.write_str("fitted in tightly; by the strategy alone, not all machines found room")
            }
        }
    }
}

fn show_apart(among: &[HostName], edge: Edge, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let names = Names(among);
    match edge {
        Edge::Only => write!(f, "{DISTINCT}; of those it may use only {names} has room and had none yet"),
        Edge::Zone => write!(f, "{DISTINCT}; {names} had none yet and the zone of this one had the fewest"),
        Edge::Room => write!(f, "{DISTINCT}; {names} had none yet and this one has the least room to spare"),
        Edge::Measure | Edge::Name => match among {
            [first, ..] => write!(f, "{DISTINCT}; {names} had none yet and `{first}` comes first"),
            [] => f.write_str(DISTINCT),
        },
    }
}

fn show_arranged(with: &[MachineName], edge: Edge, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let gain = match edge {
        Edge::Zone => "the zones stay even",
        Edge::Room => "more room is left to workers",
        Edge::Only | Edge::Measure | Edge::Name => "each finds one",
    };
    write!(f, "{DISTINCT}; arranged with {} so that {gain}", Names(with))
}

fn show_shares(control_planes: usize, edge: Edge, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "every host with room for it has a control plane already; ")?;
    match edge {
        Edge::Only => f.write_str(NO_OTHER),
        Edge::Measure => write!(f, "this one has the fewest, {control_planes}"),
        Edge::Zone => {
            write!(f, "none has fewer than {control_planes}, and the zone of this one has the fewest")
        }
        Edge::Room | Edge::Name => write!(f, "none has fewer than {control_planes}, and {FIRST_OF_EQUALS}"),
    }
}

fn show_slot(slot: usize, edge: Edge, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "slot {slot}: ")?;
    match edge {
        Edge::Only => f.write_str(NO_OTHER),
        Edge::Measure => f.write_str("every other host with room has more workers"),
        Edge::Zone => {
            f.write_str("no host with room has fewer workers, and the zone of this one has the fewest")
        }
        Edge::Room | Edge::Name => {
            write!(f, "no host with room has fewer workers, and {FIRST_OF_EQUALS}")
        }
    }
}

fn show_packed(edge: Edge, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match edge {
        Edge::Only => write!(f, "packed: {NO_OTHER}"),
        Edge::Measure => f.write_str("packed: the fullest host with room"),
        Edge::Zone | Edge::Room | Edge::Name => {
            write!(f, "packed: no host with room is fuller, and {FIRST_OF_EQUALS}")
        }
    }
}

/// Names for a sentence. Of many, the first few: a list of 200 hosts explains nothing.
struct Names<'a, T>(&'a [T]);

impl<T> Names<'_, T> {
    const SHOWN: usize = 3;
}

impl<T: fmt::Display> fmt::Display for Names<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = if self.0.len() > Self::SHOWN + 1 { Self::SHOWN } else { self.0.len() };
        for (i, name) in self.0[..shown].iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}`{name}`")?;
        }
        match self.0.len() - shown {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<HostName> {
        (1..=count).map(|i| format!("pve{i}").parse().expect("a host name")).collect()
    }

    #[test]
    fn many_names_are_cut_short() {
        assert_eq!(Names(&names(2)).to_string(), "`pve1`, `pve2`");
        assert_eq!(Names(&names(4)).to_string(), "`pve1`, `pve2`, `pve3`, `pve4`");
        assert_eq!(Names(&names(5)).to_string(), "`pve1`, `pve2`, `pve3` and 2 more");
    }

    #[test]
    fn a_control_plane_names_the_hosts_that_had_none() {
        let because = Because::Apart { among: names(2), edge: Edge::Name };
        assert_eq!(
            because.to_string(),
            "control planes go to distinct hosts; `pve1`, `pve2` had none yet and `pve1` comes first"
        );
    }

    #[test]
    fn a_worker_names_its_slot() {
        let because = Because::Slot { slot: 1, edge: Edge::Measure };
        assert_eq!(because.to_string(), "slot 1: every other host with room has more workers");
    }
}
