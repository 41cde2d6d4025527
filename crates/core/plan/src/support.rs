//! Which Talos runs which Kubernetes.

use ichor_model::{KubernetesVersion, Minor, TalosVersion};
use serde::Serialize;

/// One Talos minor: the Kubernetes minors its nodes accept, and what its last patch ships with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Support {
    /// The Talos minor.
    pub talos: Minor,
    /// The oldest Kubernetes minor it accepts.
    pub oldest: Minor,
    /// The newest Kubernetes minor it accepts.
    pub newest: Minor,
    /// The Kubernetes release it installs by itself.
    pub default: KubernetesVersion,
}

/// A row of the table below; both Talos and Kubernetes are at major version 1.
const fn row(talos: u64, kubernetes: (u64, u64), default: (u64, u64)) -> Support {
    Support {
        talos: Minor::new(1, talos),
        oldest: Minor::new(1, kubernetes.0),
        newest: Minor::new(1, kubernetes.1),
        default: KubernetesVersion::new(1, default.0, default.1),
    }
}

/// What the nodes themselves enforce when a machine config is applied (Talos `compatibility`).
pub const TABLE: &[Support] = &[
    row(8, (26, 31), (31, 4)),
    row(9, (27, 32), (32, 4)),
    row(10, (28, 33), (33, 6)),
    row(11, (29, 34), (34, 1)),
    row(12, (30, 35), (35, 4)),
    row(13, (31, 36), (36, 3)),
    row(14, (32, 37), (37, 0)),
];

/// The oldest and the newest Talos minor in the table.
pub fn talos_range() -> (Minor, Minor) {
    (TABLE[0].talos, TABLE[TABLE.len() - 1].talos)
}

/// Returns the row of a Talos release, if ichor knows it.
pub fn of(talos: &TalosVersion) -> Option<&'static Support> {
    TABLE.iter().find(|row| row.talos == talos.minor())
}

impl Support {
    /// Whether this Talos accepts a Kubernetes release.
    pub fn accepts(&self, kubernetes: &KubernetesVersion) -> bool {
        (self.oldest..=self.newest).contains(&kubernetes.minor())
    }
}

/// Returns the newest Talos minor that accepts a Kubernetes release.
pub fn talos_for(kubernetes: &KubernetesVersion) -> Option<Minor> {
    TABLE.iter().rev().find(|row| row.accepts(kubernetes)).map(|row| row.talos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_accepted() {
        for row in TABLE {
            assert!(row.accepts(&row.default), "{}", row.talos);
        }
    }

    #[test]
    fn the_pairs_of_the_known_setups_are_judged_as_the_nodes_judge_them() {
        for (talos, kubernetes, accepted) in [
            ("v1.11.2", "v1.32.1", true),
            ("v1.8.2", "v1.30.1", true),
            ("v1.13.9", "v1.36.3", true),
            ("v1.8.2", "v1.32.0", false),
            ("v1.13.9", "v1.30.9", false),
        ] {
            let row = of(&talos.parse().expect(talos)).expect("known");
            assert_eq!(row.accepts(&kubernetes.parse().expect(kubernetes)), accepted, "{talos} {kubernetes}");
        }
    }
}
