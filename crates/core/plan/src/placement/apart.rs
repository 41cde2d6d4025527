//! Gives control planes hosts of their own.
//!
//! Machines are matched with hosts one after the other. A machine that finds no host, or only one
//! in a crowded zone, may make others move on: along such a path everybody gets another host, and
//! just one more host is in use at its end. A path costs what that last zone holds already, and the
//! cheapest one is taken. This is the shortest-path method for flows of least cost, from machines
//! over hosts to zones, so the number of distinct hosts is the largest there is, and the zones are
//! as even as that number allows.

use std::iter::successors;

use ichor_model::{MachineName, desired::Role};

use super::{
    Because, Edge,
    board::{Board, Wish},
    contest::{self, Decider, Rank, Winner},
};

/// Which of two hosts in equally used zones comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prefer {
    /// The one whose name does.
    Name,
    /// The one with the least room, which leaves more to large workers.
    LeastRoom,
}

/// A control plane and the host it has to itself.
#[derive(Debug, Clone)]
pub(super) struct Match {
    pub machine: usize,
    pub bay: usize,
    pub because: Because,
}

/// Returns a host of its own for as many of the waiting machines as can have one.
pub(super) fn match_hosts(
    board: &Board<'_>,
    wishes: &[Wish<'_>],
    waiting: &[usize],
    prefer: Prefer,
) -> Vec<Match> {
    let mut matching = Matching::new(board, wishes, waiting, prefer);
    for machine in 0..waiting.len() {
        if matching.unused == 0 {
            break;
        }
        matching.find_host(machine);
    }
    matching.found.into_iter().flatten().collect()
}

/// Machines are numbered by their place among the waiting ones here, hosts by their bay.
struct Matching<'m> {
    board: &'m Board<'m>,
    wishes: &'m [Wish<'m>],
    waiting: &'m [usize],
    prefer: Prefer,
    /// By machine: the hosts it could have to itself.
    choices: Vec<Vec<usize>>,
    /// How many hosts somebody could have, and nobody has.
    unused: usize,
    /// By zone: its control planes, with those that are matched.
    in_zone: Vec<usize>,
    /// By host: the machine it is matched with.
    guest: Vec<Option<usize>>,
    /// By machine: the host it is matched with.
    found: Vec<Option<Match>>,
}

impl<'m> Matching<'m> {
    fn new(board: &'m Board<'m>, wishes: &'m [Wish<'m>], waiting: &'m [usize], prefer: Prefer) -> Self {
        let choices: Vec<_> = waiting.iter().map(|&machine| free_hosts(board, &wishes[machine])).collect();
        Self {
            board,
            wishes,
            waiting,
            prefer,
            unused: count_distinct(&choices, board.bays.len()),
            in_zone: board.count_by_zone(Role::ControlPlane),
            guest: vec![None; board.bays.len()],
            found: vec![None; waiting.len()],
            choices,
        }
    }

    /// Matches one more machine, if that is possible.
    fn find_host(&mut self, machine: usize) {
        let search = self.explore(machine);
        let Some(best) = self.best(&search.ends) else { return };
        match self.best(search.direct_ends()) {
            Some(direct) if direct.who == best.who => {
                let because = self.explain(direct, search.direct_ends());
                self.put(machine, direct.who.bay, because);
            }
            direct => self.rearrange(&search.path_to(best.who), purpose(best, direct)),
        }
        self.unused -= 1;
        self.in_zone[self.board.zone_of(best.who.bay)] += 1;
    }

    /// Finds every host that one more machine could get, whoever has to move for it.
    fn explore(&self, machine: usize) -> Search {
        let mut search = Search::new(machine, self.board.bays.len());
        let mut next = 0;
        while let Some(&Hop { machine, .. }) = search.hops.get(next) {
            for &bay in &self.choices[machine] {
                self.step(&mut search, next, bay);
            }
            next += 1;
        }
        search
    }

    fn step(&self, search: &mut Search, hop: usize, bay: usize) {
        if !search.enter(bay) {
            return;
        }
        if let Some(guest) = self.guest[bay] {
            search.hops.push(Hop { machine: guest, pushed_by: Some(End { hop, bay }) });
            return;
        }
        search.ends.push(End { hop, bay });
        // Taking a host in a zone where another one is given up leaves the zone as full as it was.
        for (other, guest) in self.guests_in_zone_of(bay) {
            if search.enter(other) {
                search.hops.push(Hop { machine: guest, pushed_by: Some(End { hop, bay }) });
            }
        }
    }

    fn guests_in_zone_of(&self, bay: usize) -> impl Iterator<Item = (usize, usize)> {
        let zone = self.board.zone_of(bay);
        let guests = self.guest.iter().enumerate().filter_map(|(bay, guest)| Some((bay, (*guest)?)));
        guests.filter(move |&(other, _)| self.board.zone_of(other) == zone)
    }

    fn best(&self, ends: &[End]) -> Option<Winner<End>> {
        contest::hold(ends.iter().map(|&end| (end, self.rank(end.bay))))
    }

    fn rank(&self, bay: usize) -> Rank {
        let room = match self.prefer {
            Prefer::Name => 0,
            Prefer::LeastRoom => self.board.bays[bay].room(),
        };
        [self.in_zone[self.board.zone_of(bay)] as u64, room]
    }

    fn explain(&self, winner: Winner<End>, ends: &[End]) -> Because {
        let edge = edge(winner.by);
        let rivals = ends.iter().filter(|end| edge != Edge::Name || self.rank(end.bay) == winner.rank);
        Because::Apart { among: rivals.map(|end| self.board.bays[end.bay].name.clone()).collect(), edge }
    }

    /// Moves everybody on a path. All leave before any arrives, since hosts change hands.
    fn rearrange(&mut self, path: &[(usize, usize)], edge: Edge) {
        for &(machine, _) in path {
            if let Some(Match { bay, .. }) = self.found[machine] {
                self.guest[bay] = None;
            }
        }
        let mut everybody: Vec<_> = path.iter().map(|&(machine, _)| machine).collect();
        everybody.sort_unstable();
        for &(machine, bay) in path {
            let others = everybody.iter().filter(|&&other| other != machine);
            let with = others.map(|&other| self.name(other)).collect();
            self.put(machine, bay, Because::Arranged { with, edge });
        }
    }

    fn put(&mut self, machine: usize, bay: usize, because: Because) {
        self.guest[bay] = Some(machine);
        self.found[machine] = Some(Match { machine: self.waiting[machine], bay, because });
    }

    fn name(&self, machine: usize) -> MachineName {
        self.wishes[self.waiting[machine]].request.name.clone()
    }
}

/// A free host that can be reached, and the hop that reaches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct End {
    hop: usize,
    bay: usize,
}

/// A machine that has to find a host.
struct Hop {
    machine: usize,
    /// Why it has to: an earlier machine takes a host, which is its own or one in the same zone.
    pushed_by: Option<End>,
}

/// The hosts that one more machine could get, nearest first.
struct Search {
    hops: Vec<Hop>,
    ends: Vec<End>,
    entered: Vec<bool>,
}

impl Search {
    fn new(machine: usize, hosts: usize) -> Self {
        let hops = vec![Hop { machine, pushed_by: None }];
        Self { hops, ends: Vec::new(), entered: vec![false; hosts] }
    }

    /// Marks a host; returns whether it was new.
    fn enter(&mut self, bay: usize) -> bool {
        !std::mem::replace(&mut self.entered[bay], true)
    }

    /// Returns the hosts that nobody has to move for.
    fn direct_ends(&self) -> &[End] {
        &self.ends[..self.ends.iter().take_while(|end| end.hop == 0).count()]
    }

    /// Returns who gets which host if the path to an end is taken.
    fn path_to(&self, end: End) -> Vec<(usize, usize)> {
        let ends = successors(Some(end), |end| self.hops[end.hop].pushed_by);
        ends.map(|end| (self.hops[end.hop].machine, end.bay)).collect()
    }
}

/// Returns the hosts with room that have no control plane.
fn free_hosts(board: &Board<'_>, wish: &Wish<'_>) -> Vec<usize> {
    let is_free = |bay: usize| {
        board.bays[bay].count(Role::ControlPlane) == 0 && board.bays[bay].has_room(wish.request.needs)
    };
    wish.choices.iter().copied().filter(|&bay| is_free(bay)).collect()
}

fn count_distinct(choices: &[Vec<usize>], hosts: usize) -> usize {
    let mut chosen = vec![false; hosts];
    choices.iter().flatten().for_each(|&bay| chosen[bay] = true);
    chosen.into_iter().filter(|chosen| *chosen).count()
}

/// Returns what a detour gains over the best host that nobody has to move for.
fn purpose(best: Winner<End>, direct: Option<Winner<End>>) -> Edge {
    match direct {
        None => Edge::Only,
        Some(direct) if direct.rank[0] > best.rank[0] => Edge::Zone,
        Some(_) => Edge::Room,
    }
}

const fn edge(by: Decider) -> Edge {
    match by {
        Decider::Alone => Edge::Only,
        Decider::First => Edge::Zone,
        Decider::Second => Edge::Room,
        Decider::Name => Edge::Name,
    }
}
