//! What the loss of a host would mean.

use ichor_model::{HostName, MachineName, desired::Role};
use serde::Serialize;

use super::{Host, Placement, Refusal, Request, Resources, Seat, Usage, seating};

/// What the loss of a host would mean.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Loss {
    /// The host.
    pub host: HostName,
    /// The machines on it, in the order of the requests.
    pub machines: Vec<MachineName>,
    /// What is left of the control planes.
    pub quorum: Quorum,
    /// Where lost machines could go among the hosts that remain.
    pub replaced: Vec<Seat>,
    /// The lost machines that would find no host.
    pub stranded: Vec<Refusal>,
    /// What the stranded machines need together.
    pub unplaced: Resources,
    /// What the remaining hosts would carry, with the replaced machines.
    pub usage: Vec<Usage>,
}

/// Control planes that are left, against those that must agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Quorum {
    /// How many control planes there are in all.
    pub total: usize,
    /// How many are left.
    pub left: usize,
    /// How many must agree: more than half of all.
    pub needed: usize,
}

impl Quorum {
    const fn new(total: usize, left: usize) -> Self {
        Self { total, left, needed: total / 2 + 1 }
    }

    /// Whether enough control planes are left to agree.
    pub const fn holds(self) -> bool {
        self.left >= self.needed
    }
}

/// Returns what losing `host` would mean for a placement of `requests` on `hosts`.
///
/// Machines on other hosts stay where they are. A lost machine is placed again by the strategy of
/// the placement and within its own limits: one that is pinned to the lost host is stranded.
pub fn lose(hosts: &[Host], requests: &[Request], placement: &Placement, host: &HostName) -> Loss {
    let remaining: Vec<_> = hosts.iter().filter(|other| other.name != *host).cloned().collect();
    let lost: Vec<_> = placement.seats.iter().map(|seat| seat.host == *host).collect();
    let after: Vec<_> =
        requests.iter().zip(&placement.seats).map(|(request, seat)| unseat(request, seat, host)).collect();
    let outcome = seating::settle(&remaining, &after, placement.strategy);
    let replaced = outcome.seats.into_iter().zip(&lost).filter_map(|(seat, &lost)| seat.filter(|_| lost));
    Loss {
        host: host.clone(),
        machines: names_of_lost(requests, &lost),
        quorum: count_quorum(requests, &lost),
        replaced: replaced.collect(),
        unplaced: sum_of_needs(&outcome.refusals),
        stranded: outcome.refusals,
        usage: outcome.usage,
    }
}

/// Returns the request as it is once `host` is gone: elsewhere the machine exists, there it has to
/// be placed again.
fn unseat(request: &Request, seat: &Seat, host: &HostName) -> Request {
    let stays = (seat.host != *host).then(|| seat.host.clone());
    Request { stays, ..request.clone() }
}

fn names_of_lost(requests: &[Request], lost: &[bool]) -> Vec<MachineName> {
    let named = requests.iter().zip(lost);
    named.filter(|&(_, &lost)| lost).map(|(request, _)| request.name.clone()).collect()
}

fn count_quorum(requests: &[Request], lost: &[bool]) -> Quorum {
    let control_planes = requests.iter().zip(lost).filter(|(request, _)| request.role == Role::ControlPlane);
    let (gone, left): (Vec<_>, Vec<_>) = control_planes.partition(|&(_, &lost)| lost);
    Quorum::new(gone.len() + left.len(), left.len())
}

fn sum_of_needs(refusals: &[Refusal]) -> Resources {
    let needs = refusals.iter().map(Refusal::needs);
    needs.fold(Resources::default(), Resources::saturating_add)
}
