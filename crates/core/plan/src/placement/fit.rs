//! Finds room for all machines at once, going back on choices that lead nowhere.

use ichor_model::desired::Role;

use super::{
    Resources,
    board::{Bay, Board, Wish},
};

/// How many hosts are looked at before giving up: a millisecond or two. It is enough to try every way
/// of placing ten machines on three hosts, or six on seven.
const MOST_LOOKS: usize = 200_000;

/// With more machines the search would only ever vary the last few of them.
const MOST_MACHINES: usize = 100;

/// How far apart control planes have to be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spacing {
    /// The most that one host may have.
    most: usize,
    /// The least number of hosts that must have one.
    hosts: usize,
}

impl Spacing {
    /// Returns how far apart the control planes are now.
    pub fn of(board: &Board<'_>) -> Self {
        let counts = control_planes(board);
        Self { most: counts.iter().copied().max().unwrap_or(0), hosts: count_hosts(&counts) }
    }
}

/// Returns a host for each machine such that all have room, if one is found in reasonable time.
pub(super) fn fit_all(
    board: &Board<'_>,
    wishes: &[Wish<'_>],
    machines: &[usize],
    spacing: Spacing,
) -> Option<Vec<usize>> {
    let needs = machines.iter().map(|&machine| wishes[machine].request.needs);
    let needs = needs.fold(Resources::default(), Resources::saturating_add);
    if machines.len() > MOST_MACHINES || !board.has_room_in_all(needs) {
        return None;
    }
    let mut fitting = Fitting {
        board,
        wishes,
        spacing,
        free: board.bays.iter().map(Bay::free).collect(),
        control_planes: control_planes(board),
        chosen: Vec::new(),
        looks: MOST_LOOKS,
    };
    fitting.fit(machines).then_some(fitting.chosen)
}

struct Fitting<'f> {
    board: &'f Board<'f>,
    wishes: &'f [Wish<'f>],
    spacing: Spacing,
    /// By host: what is free; absent: not known.
    free: Vec<Option<Resources>>,
    /// By host: how many control planes it has.
    control_planes: Vec<usize>,
    /// By machine, as far as they are placed.
    chosen: Vec<usize>,
    /// How many hosts may still be looked at.
    looks: usize,
}

impl Fitting<'_> {
    fn fit(&mut self, machines: &[usize]) -> bool {
        let Some((&machine, rest)) = machines.split_first() else {
            return count_hosts(&self.control_planes) >= self.spacing.hosts;
        };
        self.hosts_for(machine).into_iter().any(|bay| self.fit_with(machine, bay, rest))
    }

    /// Places one machine, and the rest if that is possible; else takes it back.
    fn fit_with(&mut self, machine: usize, bay: usize, rest: &[usize]) -> bool {
        let request = self.wishes[machine].request;
        let before = (self.free[bay], self.control_planes[bay]);
        self.free[bay] = self.free[bay].map(|free| free.saturating_sub(request.needs));
        self.control_planes[bay] += usize::from(request.role == Role::ControlPlane);
        self.chosen.push(bay);
        if self.fit(rest) {
            return true;
        }
        self.chosen.pop();
        (self.free[bay], self.control_planes[bay]) = before;
        false
    }

    /// Returns the hosts that can take a machine, the tightest first; none when time is up.
    fn hosts_for(&mut self, machine: usize) -> Vec<usize> {
        let choices = &self.wishes[machine].choices;
        let Some(looks) = self.looks.checked_sub(choices.len()) else { return Vec::new() };
        self.looks = looks;
        let mut hosts: Vec<_> = choices.iter().copied().filter(|&bay| self.can_take(bay, machine)).collect();
        hosts.sort_by_cached_key(|&bay| {
            self.free[bay].map_or(u64::MAX, |free| self.board.offered.weigh(free))
        });
        hosts
    }

    fn can_take(&self, bay: usize, machine: usize) -> bool {
        let request = self.wishes[machine].request;
        let is_too_close =
            request.role == Role::ControlPlane && self.control_planes[bay] >= self.spacing.most;
        !is_too_close && self.free[bay].is_none_or(|free| free.covers(request.needs))
    }
}

fn control_planes(board: &Board<'_>) -> Vec<usize> {
    board.bays.iter().map(|bay| bay.count(Role::ControlPlane)).collect()
}

fn count_hosts(control_planes: &[usize]) -> usize {
    control_planes.iter().filter(|&&count| count > 0).count()
}
