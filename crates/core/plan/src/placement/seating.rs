//! Seats everybody: first what is settled already, then the rest in ever more determined passes.

use std::cmp::Reverse;

use ichor_model::desired::Role;

use super::{
    Because, Host, Order, Refusal, Request, Seat, Strategy, Usage,
    apart::{self, Prefer},
    board::{Board, Wish},
    contest,
    fit::{self, Spacing},
    rule::Rule,
};

/// What came of placing machines: a seat or a refusal for each.
pub(super) struct Outcome {
    pub order: Order,
    /// By request; nothing for a machine that was refused.
    pub seats: Vec<Option<Seat>>,
    pub usage: Vec<Usage>,
    pub refusals: Vec<Refusal>,
}

/// One way of seating the machines that are free to go anywhere.
#[derive(Debug, Clone, Copy)]
enum Pass {
    /// Control planes take their hosts, then each worker in turn follows the strategy.
    InTurn(Order, Prefer),
    /// Control planes take their hosts, then workers share what remains as tightly as they can.
    Tight(Prefer),
    /// All machines look for room together; control planes stay as far apart, but not by zones.
    Together,
}

/// The ways that are tried until one leaves nobody over, from what people expect to what uses room
/// best. Finding room whenever there is some is bin packing, so there is no last word, but a small
/// cluster is refused only when it cannot be placed, and a large one only when little would be left.
const PASSES: [Pass; 6] = [
    Pass::InTurn(Order::AsListed, Prefer::Name),
    Pass::InTurn(Order::HardestFirst, Prefer::Name),
    Pass::InTurn(Order::HardestFirst, Prefer::LeastRoom),
    Pass::Tight(Prefer::Name),
    Pass::Tight(Prefer::LeastRoom),
    Pass::Together,
];

/// Seats all machines that find a host.
pub(super) fn settle(hosts: &[Host], requests: &[Request], strategy: Strategy) -> Outcome {
    let board = Board::new(hosts, requests);
    let wishes = board.wishes(requests);
    let mut settled = Seating::new(board, &wishes, strategy);
    settled.keep_existing();
    settled.seat_pinned();
    settled.seat_rest().into_outcome()
}

/// What is decided of a machine.
#[derive(Debug, Clone)]
enum Spot {
    Waiting,
    Taken { bay: usize, because: Because },
    Refused,
}

/// All machines, as far as they are decided.
#[derive(Clone)]
struct Seating<'a> {
    board: Board<'a>,
    wishes: &'a [Wish<'a>],
    strategy: Strategy,
    order: Order,
    spots: Vec<Spot>,
}

impl<'a> Seating<'a> {
    fn new(board: Board<'a>, wishes: &'a [Wish<'a>], strategy: Strategy) -> Self {
        let spots = vec![Spot::Waiting; wishes.len()];
        Self { board, wishes, strategy, order: Order::AsListed, spots }
    }

    fn keep_existing(&mut self) {
        for (machine, wish) in self.wishes.iter().enumerate() {
            if let Some(bay) = wish.request.stays.as_ref().and_then(|host| self.board.find(host)) {
                self.seat(machine, bay, Because::Stays);
            }
        }
    }

    /// Seats machines with a pin; with [`Strategy::Pin`] refuses those without.
    fn seat_pinned(&mut self) {
        for machine in self.waiting(|request| request.pin.is_some()) {
            self.seat_or_refuse(machine, Rule::Pinned);
        }
        if self.strategy == Strategy::Pin {
            self.spots.iter_mut().filter(|spot| matches!(spot, Spot::Waiting)).for_each(Spot::refuse);
        }
    }

    /// Returns the first pass that leaves nobody over, else the one that leaves the fewest.
    fn seat_rest(self) -> Self {
        let unavoidable = self.refused();
        let [first, rest @ ..] = PASSES;
        rest.iter().fold(self.clone().run(first), |best, pass| {
            if best.refused() == unavoidable {
                return best;
            }
            let tried = self.clone().run(*pass);
            if tried.refused() < best.refused() { tried } else { best }
        })
    }

    fn run(mut self, pass: Pass) -> Self {
        match pass {
            Pass::InTurn(order, prefer) => {
                self.order = order;
                self.seat_control_planes(prefer);
                self.seat_workers(self.rule());
            }
            Pass::Tight(prefer) => {
                self.order = Order::HardestFirst;
                self.seat_control_planes(prefer);
                self.fit_all(Spacing::of(&self.board));
                self.seat_workers(Rule::Fit);
            }
            Pass::Together => {
                self.order = Order::HardestFirst;
                self.fit_all(self.best_spacing());
                self.seat_control_planes(Prefer::Name);
                self.seat_workers(Rule::Fit);
            }
        }
        self
    }

    const fn rule(&self) -> Rule {
        match self.strategy {
            Strategy::Pack => Rule::Pack,
            Strategy::Spread | Strategy::Pin => Rule::Spread,
        }
    }

    /// Returns how far apart control planes are when they choose first.
    fn best_spacing(&self) -> Spacing {
        let mut alone = self.clone();
        alone.seat_control_planes(Prefer::Name);
        Spacing::of(&alone.board)
    }

    /// Seats all that wait if there is a way, else nobody.
    fn fit_all(&mut self, spacing: Spacing) {
        let waiting = self.waiting(|_| true);
        if let Some(bays) = fit::fit_all(&self.board, self.wishes, &waiting, spacing) {
            for (machine, bay) in waiting.into_iter().zip(bays) {
                self.seat(machine, bay, Because::Fitted);
            }
        }
    }

    fn seat_control_planes(&mut self, prefer: Prefer) {
        let waiting = self.waiting(|request| request.role == Role::ControlPlane);
        for found in apart::match_hosts(&self.board, self.wishes, &waiting, prefer) {
            self.seat(found.machine, found.bay, found.because);
        }
        for machine in self.waiting(|request| request.role == Role::ControlPlane) {
            self.seat_or_refuse(machine, Rule::Share);
        }
    }

    fn seat_workers(&mut self, rule: Rule) {
        for machine in self.waiting(|request| request.role == Role::Worker) {
            self.seat_or_refuse(machine, rule);
        }
    }

    /// Returns the machines that wait, in the order in which they are served.
    fn waiting(&self, which: impl Fn(&Request) -> bool) -> Vec<usize> {
        let all = 0..self.spots.len();
        let mut waiting: Vec<_> = all
            .filter(|&i| matches!(self.spots[i], Spot::Waiting) && which(self.wishes[i].request))
            .collect();
        if self.order == Order::HardestFirst {
            waiting.sort_by_cached_key(|&machine| self.ease(machine));
        }
        waiting
    }

    fn ease(&self, machine: usize) -> (usize, Reverse<u64>) {
        let Wish { request, choices } = &self.wishes[machine];
        (choices.len(), Reverse(self.board.offered.weigh(request.needs)))
    }

    fn seat_or_refuse(&mut self, machine: usize, rule: Rule) {
        let Wish { request, choices } = &self.wishes[machine];
        let with_room = choices.iter().filter(|&&bay| self.board.bays[bay].has_room(request.needs));
        match contest::hold(with_room.map(|&bay| (bay, rule.rank(&self.board, bay)))) {
            Some(winner) => self.seat(machine, winner.who, rule.because(&self.board, winner)),
            None => self.spots[machine].refuse(),
        }
    }

    fn seat(&mut self, machine: usize, bay: usize, because: Because) {
        self.board.charge(bay, self.wishes[machine].request);
        self.spots[machine] = Spot::Taken { bay, because };
    }

    fn refused(&self) -> usize {
        self.spots.iter().filter(|spot| matches!(spot, Spot::Refused)).count()
    }

    fn into_outcome(self) -> Outcome {
        let refused = self.wishes.iter().zip(&self.spots).filter(|(_, spot)| matches!(spot, Spot::Refused));
        let refusals = refused.map(|(wish, _)| self.refusal(wish.request)).collect();
        let usage = self.board.usage();
        let seats = self.wishes.iter().zip(self.spots).map(|(wish, spot)| match spot {
            Spot::Taken { bay, because } => {
                let host = self.board.bays[bay].name.clone();
                Some(Seat { machine: wish.request.name.clone(), host, because })
            }
            Spot::Waiting | Spot::Refused => None,
        });
        Outcome { order: self.order, seats: seats.collect(), usage, refusals }
    }

    fn refusal(&self, request: &Request) -> Refusal {
        let (machine, needs) = (request.name.clone(), request.needs);
        if self.strategy == Strategy::Pin && request.pin.is_none() {
            return Refusal::Unpinned { machine, needs };
        }
        Refusal::NoFit { machine, needs, hosts: self.board.lacks(request) }
    }
}

impl Spot {
    fn refuse(&mut self) {
        *self = Self::Refused;
    }
}
