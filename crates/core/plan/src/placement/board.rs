//! The hosts in the order of their names, and what is on each so far.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    rc::Rc,
};

use ichor_model::{
    HostName,
    desired::{Arch, Role},
};

use super::{Host, Lack, Request, Resources, Usage};

/// How many machines of each role there are on a host or in a zone.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    control_planes: usize,
    workers: usize,
}

impl Tally {
    const fn of(self, role: Role) -> usize {
        match role {
            Role::ControlPlane => self.control_planes,
            Role::Worker => self.workers,
        }
    }

    const fn count(&mut self, role: Role) {
        match role {
            Role::ControlPlane => self.control_planes += 1,
            Role::Worker => self.workers += 1,
        }
    }
}

/// A host and what is on it so far.
#[derive(Debug, Clone)]
pub(super) struct Bay<'a> {
    pub name: &'a HostName,
    /// Absent for a host that is not listed: it keeps its machines and takes no others.
    host: Option<&'a Host>,
    zone: usize,
    used: Resources,
    tally: Tally,
    /// What is free; absent: not known. It follows from what is used, and so does what is below:
    /// they are kept because choosing looks at them far more often than they change.
    free: Option<Resources>,
    /// How much room there is, as one number; see [`Offered::weigh`].
    room: u64,
    /// The share in use of whichever resource is scarcer.
    fullness: u64,
}

impl<'a> Bay<'a> {
    fn new(name: &'a HostName, host: Option<&'a Host>, zone: usize) -> Self {
        let (used, tally) = (Resources::default(), Tally::default());
        Self { name, host, zone, used, tally, free: None, room: u64::MAX, fullness: 0 }
    }

    fn capacity(&self) -> Option<Resources> {
        self.host.and_then(|host| host.capacity)
    }

    /// Returns what is free; nothing if nobody knows.
    pub const fn free(&self) -> Option<Resources> {
        self.free
    }

    /// Whether there is room; a host that nobody measured always has some.
    pub fn has_room(&self, needs: Resources) -> bool {
        self.free.is_none_or(|free| free.covers(needs))
    }

    /// Returns how much room there is, as one number.
    pub const fn room(&self) -> u64 {
        self.room
    }

    /// Returns how full the host is: the share in use, then the number of machines, which alone
    /// tells hosts apart whose size is not known.
    pub const fn fullness(&self) -> [u64; 2] {
        [self.fullness, (self.tally.control_planes + self.tally.workers) as u64]
    }

    pub const fn count(&self, role: Role) -> usize {
        self.tally.of(role)
    }

    fn charge(&mut self, request: &Request, offered: Offered) {
        self.used = self.used.saturating_add(request.needs);
        self.tally.count(request.role);
        self.measure(offered);
    }

    fn measure(&mut self, offered: Offered) {
        let Some(capacity) = self.capacity() else { return };
        let free = capacity.saturating_sub(self.used);
        let cpu = share(self.used.cpu.into(), capacity.cpu.into());
        self.fullness = cpu.max(share(self.used.memory.mib(), capacity.memory.mib()));
        self.room = offered.weigh(free);
        self.free = Some(free);
    }

    /// Returns what keeps the machine off this host whether or not there is room.
    fn bar(&self, request: &Request) -> Option<Lack> {
        let Some(host) = self.host else { return Some(Lack::Listing) };
        if request.pin.as_ref().is_some_and(|pin| pin != self.name) {
            Some(Lack::Pin)
        } else if !request.hosts.is_empty() && !request.hosts.contains(self.name) {
            Some(Lack::Permission)
        } else if request.arch != host.arch {
            Some(Lack::Arch(host.arch))
        } else if request.zone.is_some() && request.zone != host.zone {
            Some(Lack::Zone(host.zone.clone()))
        } else {
            None
        }
    }

    fn lack(&self, request: &Request) -> Lack {
        self.bar(request).unwrap_or_else(|| {
            let short = self.used.saturating_add(request.needs);
            let short = short.saturating_sub(self.capacity().unwrap_or_default());
            Lack::Room { free: self.free.unwrap_or_default(), short }
        })
    }

    fn usage(&self) -> Usage {
        Usage {
            host: self.name.clone(),
            listed: self.host.is_some(),
            capacity: self.capacity(),
            used: self.used,
            control_planes: self.tally.control_planes,
            workers: self.tally.workers,
        }
    }
}

/// What all hosts of known size offer together: the yardstick that makes processors and memory
/// comparable.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Offered {
    cpu: u64,
    memory_mib: u64,
}

impl Offered {
    fn of(hosts: &[Host]) -> Self {
        let offers = hosts.iter().filter_map(|host| host.capacity);
        offers.fold(Self::default(), |sum, offer| Self {
            cpu: sum.cpu.saturating_add(offer.cpu.into()),
            memory_mib: sum.memory_mib.saturating_add(offer.memory.mib()),
        })
    }

    /// Returns an amount as one number: the scarcer a resource is, the more it counts.
    pub fn weigh(self, amount: Resources) -> u64 {
        let cpu = share(amount.cpu.into(), self.cpu);
        cpu.saturating_add(share(amount.memory.mib(), self.memory_mib))
    }
}

/// Returns a share as a whole number, so that comparing two is exact on every computer.
fn share(part: u64, whole: u64) -> u64 {
    let share = (u128::from(part) << 32) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

/// What decides which hosts a machine may use. Machines of one group share it.
#[derive(PartialEq, Eq, Hash)]
struct Terms<'a> {
    pin: Option<&'a HostName>,
    hosts: &'a [HostName],
    arch: Arch,
    zone: Option<&'a str>,
}

impl<'a> Terms<'a> {
    fn of(request: &'a Request) -> Self {
        let Request { pin, hosts, arch, zone, .. } = request;
        Self { pin: pin.as_ref(), hosts, arch: *arch, zone: zone.as_deref() }
    }
}

/// A request and the hosts it may use, whether or not they have room.
#[derive(Debug)]
pub(super) struct Wish<'a> {
    pub request: &'a Request,
    pub choices: Rc<[usize]>,
}

/// All hosts by name.
#[derive(Debug, Clone)]
pub(super) struct Board<'a> {
    pub bays: Vec<Bay<'a>>,
    pub offered: Offered,
    zones: Vec<Tally>,
}

impl<'a> Board<'a> {
    /// Makes an empty board of the listed hosts and of those where machines stay.
    pub fn new(hosts: &'a [Host], requests: &'a [Request]) -> Self {
        let mut zones = BTreeMap::new();
        let mut bays = BTreeMap::new();
        for host in hosts {
            let next = zones.len();
            let zone = *zones.entry(host.zone.as_deref()).or_insert(next);
            bays.insert(&host.name, Bay::new(&host.name, Some(host), zone));
        }
        // Nobody knows the zone of an unlisted host, so what is on it counts in none of the others.
        let elsewhere = zones.len();
        for name in requests.iter().filter_map(|request| request.stays.as_ref()) {
            bays.entry(name).or_insert_with(|| Bay::new(name, None, elsewhere));
        }
        let offered = Offered::of(hosts);
        let mut bays: Vec<_> = bays.into_values().collect();
        for bay in &mut bays {
            bay.measure(offered);
        }
        Self { bays, offered, zones: vec![Tally::default(); elsewhere + 1] }
    }

    /// Returns the requests with the hosts that each may use.
    pub fn wishes(&self, requests: &'a [Request]) -> Vec<Wish<'a>> {
        let mut known: HashMap<Terms<'_>, Rc<[usize]>> = HashMap::new();
        let mut choices =
            |request| Rc::clone(known.entry(Terms::of(request)).or_insert_with(|| self.choices(request)));
        requests.iter().map(|request| Wish { request, choices: choices(request) }).collect()
    }

    fn choices(&self, request: &Request) -> Rc<[usize]> {
        (0..self.bays.len()).filter(|&bay| self.bays[bay].bar(request).is_none()).collect()
    }

    /// Returns the host of that name.
    pub fn find(&self, name: &HostName) -> Option<usize> {
        self.bays.binary_search_by(|bay| bay.name.cmp(name)).ok()
    }

    /// Puts a machine on a host.
    pub fn charge(&mut self, bay: usize, request: &Request) {
        self.bays[bay].charge(request, self.offered);
        self.zones[self.bays[bay].zone].count(request.role);
    }

    /// Returns how many machines of a role there are in the zone of a host.
    pub fn count_in_zone(&self, bay: usize, role: Role) -> usize {
        self.zones[self.bays[bay].zone].of(role)
    }

    /// Returns how many machines of a role there are in each zone.
    pub fn count_by_zone(&self, role: Role) -> Vec<usize> {
        self.zones.iter().map(|tally| tally.of(role)).collect()
    }

    /// Returns the zone of a host.
    pub fn zone_of(&self, bay: usize) -> usize {
        self.bays[bay].zone
    }

    /// Whether all hosts together have that much room, which does not mean that it fits.
    pub fn has_room_in_all(&self, needs: Resources) -> bool {
        let mut listed = self.bays.iter().filter(|bay| bay.host.is_some());
        let free = listed.try_fold(Resources::default(), |sum, bay| Some(sum.saturating_add(bay.free?)));
        free.is_none_or(|free| free.covers(needs))
    }

    /// Returns what each host lacks for a machine, with the hosts it names that are not listed.
    pub fn lacks(&self, request: &Request) -> Vec<(HostName, Lack)> {
        let listed = self.bays.iter().filter(|bay| bay.host.is_some());
        let mut lacks: Vec<_> = listed.map(|bay| (bay.name.clone(), bay.lack(request))).collect();
        let unlisted: BTreeSet<_> =
            request.pin.iter().chain(&request.hosts).filter(|name| !self.lists(name)).collect();
        if !unlisted.is_empty() {
            lacks.extend(unlisted.into_iter().map(|name| (name.clone(), Lack::Listing)));
            lacks.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
        lacks
    }

    fn lists(&self, name: &HostName) -> bool {
        self.find(name).is_some_and(|bay| self.bays[bay].host.is_some())
    }

    /// Returns what each host carries.
    pub fn usage(&self) -> Vec<Usage> {
        self.bays.iter().map(Bay::usage).collect()
    }
}
