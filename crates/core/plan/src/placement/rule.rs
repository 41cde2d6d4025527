//! How machines choose a host one by one.

use ichor_model::desired::Role;

use super::{
    Because, Edge,
    board::Board,
    contest::{Decider, Rank, Winner},
};

/// How one machine chooses among the hosts with room.
#[derive(Debug, Clone, Copy)]
pub(super) enum Rule {
    /// There is no choice.
    Pinned,
    /// The fewest control planes, then the fewest in the zone.
    Share,
    /// The fewest workers, then the fewest in the zone: the next of the interleaved slots.
    Spread,
    /// The fullest.
    Pack,
    /// The least room left.
    Fit,
}

impl Rule {
    /// Returns how good a host is; less is better.
    pub fn rank(self, board: &Board<'_>, bay: usize) -> Rank {
        match self {
            Self::Pinned => [0, 0],
            Self::Share => fewest(board, bay, Role::ControlPlane),
            Self::Spread => fewest(board, bay, Role::Worker),
            Self::Pack => board.bays[bay].fullness().map(|full| u64::MAX - full),
            Self::Fit => [board.bays[bay].room(), 0],
        }
    }

    /// Returns why the winner won.
    pub fn because(self, board: &Board<'_>, winner: Winner<usize>) -> Because {
        let (bay, edge) = (&board.bays[winner.who], self.edge(winner.by));
        match self {
            Self::Pinned => Because::Pinned,
            Self::Share => Because::Shares { control_planes: bay.count(Role::ControlPlane), edge },
            Self::Spread => Because::Slot { slot: bay.count(Role::Worker), edge },
            Self::Pack => Because::Packed { edge },
            Self::Fit => Because::Fitted,
        }
    }

    const fn edge(self, by: Decider) -> Edge {
        match by {
            Decider::Alone => Edge::Only,
            Decider::Second if matches!(self, Self::Share | Self::Spread) => Edge::Zone,
            Decider::First | Decider::Second => Edge::Measure,
            Decider::Name => Edge::Name,
        }
    }
}

fn fewest(board: &Board<'_>, bay: usize, role: Role) -> Rank {
    [board.bays[bay].count(role) as u64, board.count_in_zone(bay, role) as u64]
}
