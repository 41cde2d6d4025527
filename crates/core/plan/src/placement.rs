//! Decides which host each machine runs on.
//!
//! 1. Machines that exist are charged to the host they are on and never move.
//! 2. Pinned machines are charged to their host.
//! 3. Control planes get hosts of their own, as many as can have one, evenly over the zones.
//! 4. Workers take interleaved slots of what remains, in the order of the requests; or, with
//!    [`Strategy::Pack`], the fullest host with room.
//! 5. If a machine is left over, steps 3 and 4 are tried again with the hardest machines first and
//!    ever tighter fits, but never with control planes closer together. Only then is anything
//!    refused, and everything at once.
//!
//! Hosts are considered in the order of their names, whatever the order of the input.

mod apart;
mod board;
mod contest;
mod fit;
mod loss;
mod reason;
mod refusal;
mod resources;
mod rule;
mod seating;

use std::fmt;

use ichor_model::{
    HostName, MachineName,
    desired::{Arch, Role},
};
use serde::Serialize;

pub use self::{
    loss::{Loss, Quorum, lose},
    reason::{Because, Edge},
    refusal::{Lack, Refusal},
    resources::{Overcommit, Resources, offer},
};

/// A host that machines can be placed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its name; no two hosts share one.
    pub name: HostName,
    /// What fails together with it. Hosts without a zone count as one zone more.
    pub zone: Option<String>,
    /// Its processor architecture.
    pub arch: Arch,
    /// What it offers to our machines, see [`offer`]; absent: not known, taken to be large enough.
    pub capacity: Option<Resources>,
}

/// A machine that needs a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Its name.
    pub name: MachineName,
    /// What it does.
    pub role: Role,
    /// What it takes from its host.
    pub needs: Resources,
    /// The architecture its host must have.
    pub arch: Arch,
    /// The one host it must be on.
    pub pin: Option<HostName>,
    /// The hosts it may be on; empty: any.
    pub hosts: Vec<HostName>,
    /// The zone it must be in.
    pub zone: Option<String>,
    /// Where it is already. It stays there, even on a host that is over-full or not listed.
    pub stays: Option<HostName>,
}

/// How machines without a pin are distributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// As widely as possible, in interleaved slots.
    #[default]
    Spread,
    /// Not at all: each machine is pinned, or refused.
    Pin,
    /// On as few hosts as possible; control planes still apart from each other.
    Pack,
}

/// Where every machine goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// How machines without a pin were distributed.
    pub strategy: Strategy,
    /// The order in which they were served.
    pub order: Order,
    /// One seat per request, in the order of the requests.
    pub seats: Vec<Seat>,
    /// What each host then carries, by name.
    pub usage: Vec<Usage>,
}

/// The order in which machines of one role are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// The order of the requests.
    AsListed,
    /// Those with the fewest hosts to choose from first, then the largest: the order that finds
    /// room for machines which the listed order leaves over.
    HardestFirst,
}

/// A machine, its host and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Seat {
    /// The machine.
    pub machine: MachineName,
    /// The host it goes to.
    pub host: HostName,
    /// Why it goes there.
    pub because: Because,
}

impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` on `{}`: {}", self.machine, self.host, self.because)
    }
}

/// What a host carries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// The host.
    pub host: HostName,
    /// Whether it takes new machines; a host that is not listed only keeps those it has.
    pub listed: bool,
    /// What it offers; absent: not known.
    pub capacity: Option<Resources>,
    /// What our machines take of it; more than it offers on an over-full host.
    pub used: Resources,
    /// How many control planes are on it.
    pub control_planes: usize,
    /// How many workers are on it.
    pub workers: usize,
}

/// Finds a host for every machine, or says of every machine without one what each host lacks.
///
/// Refusals come in the order of the requests. Their shortages hold beside all machines that did
/// find a place.
pub fn place(hosts: &[Host], requests: &[Request], strategy: Strategy) -> Result<Placement, Vec<Refusal>> {
    let outcome = seating::settle(hosts, requests, strategy);
    if !outcome.refusals.is_empty() {
        return Err(outcome.refusals);
    }
    let seats = outcome.seats.into_iter().flatten().collect();
    Ok(Placement { strategy, order: outcome.order, seats, usage: outcome.usage })
}
