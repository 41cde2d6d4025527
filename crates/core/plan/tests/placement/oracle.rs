//! Slow and obvious answers to compare with.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use ichor_model::{HostName, Size, desired::Role};
use ichor_plan::placement::{Host, Placement, Request, Resources};

/// Places uniform workers as the text of the slot table says, word by word:
/// 1. subtract what control planes (here: all machines that exist) take on each host;
/// 2. divide the residual capacity by the size of a worker: that many slots;
/// 3. sort the slots and interleave them: A 0, B 0, C 0, A 1 ...;
/// 4. assign workers to the slots in sequence.
///
/// Slots of workers that exist are used. Returns nothing if there are fewer slots than workers.
pub fn slot_table(hosts: &[Host], existing: &[Request], workers: &[Request]) -> Option<Vec<HostName>> {
    let size = workers.first().map_or(Resources::new(1, Size::from_gib(1)), |worker| worker.needs);
    let mut slots: Vec<(usize, HostName)> = Vec::new();
    for host in hosts {
        let here: Vec<_> =
            existing.iter().filter(|request| request.stays.as_ref() == Some(&host.name)).collect();
        let taken = here.iter().fold(Resources::default(), |sum, request| sum.saturating_add(request.needs));
        let residual = host.capacity.map(|capacity| capacity.saturating_sub(taken));
        let free = residual.map_or(workers.len(), |residual| divide(residual, size));
        let used = here.iter().filter(|r| r.role == Role::Worker).count();
        slots.extend((used..used + free).map(|slot| (slot, host.name.clone())));
    }
    slots.sort();
    (slots.len() >= workers.len())
        .then(|| slots.into_iter().take(workers.len()).map(|(_, host)| host).collect())
}

fn divide(residual: Resources, size: Resources) -> usize {
    let by_cpu = u64::from(residual.cpu / size.cpu);
    usize::try_from(by_cpu.min(residual.memory.mib() / size.memory.mib())).expect("small numbers")
}

/// Whether a machine may be on a host, room aside.
pub fn allows(host: &Host, request: &Request) -> bool {
    request.pin.as_ref().is_none_or(|pin| *pin == host.name)
        && (request.hosts.is_empty() || request.hosts.contains(&host.name))
        && request.zone.as_ref().is_none_or(|zone| host.zone.as_ref() == Some(zone))
        && request.arch == host.arch
}

/// How well control planes are spread: on how many hosts that had none, and how unevenly over zones
/// (the sum of the squares of their counts).
#[derive(Debug, PartialEq, Eq)]
pub struct Spread {
    pub hosts: usize,
    pub unevenness: usize,
}

/// Hosts after existing and pinned machines were charged, and the control planes that remain.
pub struct Settled<'a> {
    /// With the capacity that is left.
    hosts: Vec<Host>,
    /// By host: how many control planes are settled there.
    occupied: Vec<usize>,
    /// The other control planes, with the host that each went to.
    pub free: Vec<(&'a Request, usize)>,
}

impl<'a> Settled<'a> {
    pub fn new(hosts: &[Host], requests: &'a [Request], placement: &Placement) -> Self {
        let mut board = Self { hosts: hosts.to_vec(), occupied: vec![0; hosts.len()], free: Vec::new() };
        for (request, seat) in requests.iter().zip(&placement.seats) {
            if let Some(at) = hosts.iter().position(|host| host.name == seat.host) {
                board.take(request, at);
            }
        }
        board
    }

    fn take(&mut self, request: &'a Request, at: usize) {
        let is_control_plane = request.role == Role::ControlPlane;
        if request.stays.is_some() || request.pin.is_some() {
            let left = self.hosts[at].capacity.map(|capacity| capacity.saturating_sub(request.needs));
            self.hosts[at].capacity = left;
            self.occupied[at] += usize::from(is_control_plane);
        } else if is_control_plane {
            self.free.push((request, at));
        }
    }

    /// Returns what the placement achieves.
    pub fn seen(&self) -> Spread {
        self.measure(self.free.iter().map(|&(_, at)| at))
    }

    /// Returns the best that any assignment to distinct hosts achieves, by trying them all.
    pub fn best(&self) -> Spread {
        let choices: Vec<_> = self.free.iter().map(|(request, _)| self.choices(request)).collect();
        let mut best = Spread { hosts: 0, unevenness: usize::MAX };
        search(&choices, 0, &mut vec![None; choices.len()], &mut |taken| {
            let found = self.measure(taken.iter().copied().flatten());
            if (found.hosts, Reverse(found.unevenness)) > (best.hosts, Reverse(best.unevenness)) {
                best = found;
            }
        });
        best
    }

    fn choices(&self, request: &Request) -> Vec<usize> {
        let has_room = |host: &Host| host.capacity.is_none_or(|capacity| capacity.covers(request.needs));
        let can_take = |at: usize| self.occupied[at] == 0 && allows(&self.hosts[at], request);
        (0..self.hosts.len()).filter(|&at| can_take(at) && has_room(&self.hosts[at])).collect()
    }

    fn measure(&self, taken: impl Iterator<Item = usize>) -> Spread {
        let mut counts = self.occupied.clone();
        let mut used = BTreeSet::new();
        for at in taken {
            counts[at] += 1;
            used.extend((self.occupied[at] == 0).then_some(at));
        }
        let mut zones = BTreeMap::new();
        for (host, count) in self.hosts.iter().zip(counts) {
            *zones.entry(&host.zone).or_insert(0) += count;
        }
        Spread { hosts: used.len(), unevenness: zones.values().map(|count| count * count).sum() }
    }
}

fn search(
    choices: &[Vec<usize>],
    next: usize,
    taken: &mut Vec<Option<usize>>,
    visit: &mut impl FnMut(&[Option<usize>]),
) {
    if next == choices.len() {
        return visit(taken);
    }
    search(choices, next + 1, taken, visit);
    for &bay in &choices[next] {
        if !taken[..next].contains(&Some(bay)) {
            taken[next] = Some(bay);
            search(choices, next + 1, taken, visit);
            taken[next] = None;
        }
    }
}

/// Whether all machines fit on some hosts, control planes on distinct ones: tries every way.
pub fn fits_somehow(hosts: &[Host], requests: &[Request], allowed: &[Vec<usize>]) -> bool {
    let Some((request, rest)) = requests.split_first() else { return true };
    allowed[0].iter().any(|&bay| {
        let Some(after) = charge(hosts, bay, request) else { return false };
        let apart = |choices: &Vec<usize>| choices.iter().copied().filter(|&other| other != bay).collect();
        let clash = |other: &Request| other.role == Role::ControlPlane && request.role == Role::ControlPlane;
        let left = rest.iter().zip(&allowed[1..]);
        let allowed: Vec<_> = left.map(|(r, c)| if clash(r) { apart(c) } else { c.clone() }).collect();
        fits_somehow(&after, rest, &allowed)
    })
}

/// Takes a machine's needs from a host, if it has them or if the machine is there anyway.
fn charge(hosts: &[Host], bay: usize, request: &Request) -> Option<Vec<Host>> {
    let mut hosts = hosts.to_vec();
    if let Some(capacity) = hosts[bay].capacity {
        if !capacity.covers(request.needs) && request.stays.is_none() {
            return None;
        }
        hosts[bay].capacity = Some(capacity.saturating_sub(request.needs));
    }
    Some(hosts)
}
