//! How many steps may occupy a lane at once.

use std::collections::BTreeMap;

use ichor_model::step::Lane;

/// The most steps at once, by kind of lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    by_kind: BTreeMap<String, usize>,
    other: usize,
}

impl Limits {
    /// Allows this many in lanes of kinds that are not named.
    pub const fn new(other: usize) -> Self {
        Self { by_kind: BTreeMap::new(), other }
    }

    /// Allows this many in each lane of a kind.
    #[must_use]
    pub fn with(mut self, kind: &str, most: usize) -> Self {
        self.by_kind.insert(kind.to_owned(), most);
        self
    }

    fn of(&self, lane: &Lane) -> usize {
        self.by_kind.get(lane.kind()).copied().unwrap_or(self.other).max(1)
    }
}

/// The lanes of a run. One that is congested is narrowed to half and widened again step by step, as senders
/// on a shared line do.
#[derive(Debug)]
pub struct Lanes {
    limits: Limits,
    lanes: BTreeMap<Lane, State>,
}

#[derive(Debug)]
struct State {
    occupied: usize,
    width: usize,
}

impl Lanes {
    pub const fn new(limits: Limits) -> Self {
        Self { limits, lanes: BTreeMap::new() }
    }

    /// Occupies all lanes, or none when one has no room.
    pub fn enter(&mut self, wanted: &[Lane]) -> bool {
        for lane in wanted {
            let width = self.limits.of(lane);
            self.lanes.entry(lane.clone()).or_insert(State { occupied: 0, width });
        }
        let free = wanted.iter().all(|lane| self.lanes[lane].occupied < self.lanes[lane].width);
        if free {
            self.change(wanted, |state, _| state.occupied += 1);
        }
        free
    }

    /// Leaves lanes; a step that went well widens them.
    pub fn leave(&mut self, lanes: &[Lane], went_well: bool) {
        self.change(lanes, |state, limit| {
            state.occupied = state.occupied.saturating_sub(1);
            if went_well {
                state.width = (state.width + 1).min(limit);
            }
        });
    }

    /// Narrows lanes that are congested.
    pub fn narrow(&mut self, lanes: &[Lane]) {
        self.change(lanes, |state, _| state.width = (state.width / 2).max(1));
    }

    fn change(&mut self, lanes: &[Lane], change: impl Fn(&mut State, usize)) {
        for lane in lanes {
            let limit = self.limits.of(lane);
            if let Some(state) = self.lanes.get_mut(lane) {
                change(state, limit);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_congested_lane_is_narrowed_and_widens_again() {
        let lane = [Lane::new("host", "pve1")];
        let mut lanes = Lanes::new(Limits::new(9).with("host", 4));
        let enter_all = |lanes: &mut Lanes| std::iter::from_fn(|| lanes.enter(&lane).then_some(())).count();
        assert_eq!(enter_all(&mut lanes), 4);
        lanes.narrow(&lane);
        (0..4).for_each(|_| lanes.leave(&lane, false));
        assert_eq!(enter_all(&mut lanes), 2);
        (0..2).for_each(|_| lanes.leave(&lane, true));
        assert_eq!(enter_all(&mut lanes), 4);
    }
}
