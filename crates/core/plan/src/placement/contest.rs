//! Chooses the best of several hosts and tells what made the difference.

/// Two measures of a host, the weightier first; less is better.
pub(super) type Rank = [u64; 2];

/// The measure that set the winner apart from its last rivals; the lighter, the later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Decider {
    /// None was needed: there was no rival.
    Alone,
    /// The first measure.
    First,
    /// The second measure.
    Second,
    /// The order of the names, after both measures tied.
    Name,
}

/// The winner of a contest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Winner<T> {
    pub who: T,
    pub rank: Rank,
    pub by: Decider,
}

/// Returns the candidate with the least rank, of equals the earliest.
pub(super) fn hold<T>(candidates: impl IntoIterator<Item = (T, Rank)>) -> Option<Winner<T>> {
    let mut candidates = candidates.into_iter();
    let (who, rank) = candidates.next()?;
    let mut best = Winner { who, rank, by: Decider::Alone };
    for (who, rank) in candidates {
        best.challenge(who, rank);
    }
    Some(best)
}

impl<T> Winner<T> {
    /// Whatever sets a new leader apart from the old one also sets it apart from all that the old
    /// one beat by a lighter measure, so the last decider is known without looking back.
    fn challenge(&mut self, who: T, rank: Rank) {
        let by = decider(self.rank, rank);
        if rank < self.rank {
            *self = Self { who, rank, by };
        } else {
            self.by = self.by.max(by);
        }
    }
}

fn decider(a: Rank, b: Rank) -> Decider {
    if a[0] != b[0] {
        Decider::First
    } else if a[1] != b[1] {
        Decider::Second
    } else {
        Decider::Name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn winner(ranks: &[Rank]) -> Option<(usize, Decider)> {
        hold(ranks.iter().copied().enumerate()).map(|winner| (winner.who, winner.by))
    }

    #[test]
    fn nobody_wins_an_empty_contest() {
        assert_eq!(winner(&[]), None);
    }

    #[test]
    fn the_last_measure_that_was_needed_is_told() {
        for (ranks, expected) in [
            (&[[5, 5]][..], (0, Decider::Alone)),
            (&[[1, 0], [0, 9]], (1, Decider::First)),
            (&[[0, 1], [0, 0], [7, 0]], (1, Decider::Second)),
            (&[[0, 0], [0, 0], [0, 1], [1, 0]], (0, Decider::Name)),
            (&[[2, 0], [2, 0], [1, 3], [1, 2]], (3, Decider::Second)),
            (&[[1, 1], [1, 1], [1, 0]], (2, Decider::Second)),
            (&[[1, 1], [1, 1], [0, 5]], (2, Decider::First)),
        ] {
            assert_eq!(winner(ranks), Some(expected), "{ranks:?}");
        }
    }
}
