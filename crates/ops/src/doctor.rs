//! `ichor doctor`: everything that could stand in the way of a cluster, looked at in one go. Nothing is changed.
//!
//! 1. [`store`]: what a team shares, and [`here`]: what lies on this computer, keys, secrets and named files;
//! 2. [`certificate`]: who answers as Proxmox, and for how long that is vouched for;
//! 3. [`Examination`]: what Proxmox, its hosts, the network, the Image Factory and registries show, all at once and
//!    each within a time of its own;
//! 4. [`Examination::checks`]: what that means. Pure: the same sight gives the same checks, in the same order.
//!
//! What could not be looked at is unknown, and never well. Each check says so by itself, so that one that fails keeps
//! no other from speaking.

pub mod certificate;
mod clashes;
pub mod here;
mod hosts;
mod images;
mod network;
pub(crate) mod privileges;
mod storages;
pub mod store;

use std::{collections::BTreeMap, time::Duration};

use ichor_machineconfig::pki::Timestamp;
use ichor_model::{Code, Desired, Finding, Findings, Observed, Severity};
use ichor_plan::preflight;
use serde::Serialize;

pub use self::images::{Suppliers, examine as images};
use crate::{live::Live, observe::Survey};

/// How long a single question may take.
pub(crate) const WITHIN: Duration = Duration::from_secs(15);

/// What a check is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// The store that is shared.
    Store,
    /// This computer.
    Here,
    /// Proxmox as a whole, and what it lets us do.
    Proxmox,
    /// Its hosts.
    Hosts,
    /// Its storages.
    Storage,
    /// Bridges and addresses.
    Network,
    /// Images, and where they come from.
    Images,
    /// VMs and machines.
    Machines,
}

impl Group {
    /// Returns its title.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Here => "this computer",
            Self::Proxmox => "Proxmox",
            Self::Hosts => "hosts",
            Self::Storage => "storage",
            Self::Network => "network",
            Self::Images => "images",
            Self::Machines => "machines",
        }
    }
}

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is as it should be.
    Ok,
    /// Nobody can tell.
    Unknown,
    /// It may not be what was meant.
    Warning,
    /// It stands in the way.
    Error,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// Its name, the same in every run.
    pub id: &'static str,
    /// What it is about.
    pub group: Group,
    /// What was seen, or why nothing was, in a few words.
    pub says: String,
    /// Whether it could be looked at.
    pub known: bool,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

impl Check {
    /// A check that was made.
    pub fn new(id: &'static str, group: Group, says: impl Into<String>) -> Self {
        Self { id, group, says: says.into(), known: true, findings: Vec::new() }
    }

    /// A check that could not be made, and why.
    pub fn unknown(id: &'static str, group: Group, why: impl Into<String>) -> Self {
        Self { known: false, ..Self::new(id, group, why) }
    }

    /// Adds what is wrong.
    #[must_use]
    pub fn with(mut self, findings: impl IntoIterator<Item = Finding>) -> Self {
        self.findings.extend(findings);
        self
    }

    /// Says how it came out.
    pub fn state(&self) -> State {
        match self.findings.iter().map(|finding| finding.severity).min() {
            Some(Severity::Error) => State::Error,
            Some(Severity::Warning) => State::Warning,
            None if self.known => State::Ok,
            None => State::Unknown,
        }
    }
}

/// Whether anything stands in the way.
pub fn has_errors(checks: &[Check]) -> bool {
    checks.iter().any(|check| check.state() == State::Error)
}

/// What was seen of a cluster's world, beyond what every run looks at.
#[derive(Debug)]
pub struct Examination<'a> {
    desired: &'a Desired,
    observed: Observed,
    privileges: privileges::Seen,
    hosts: hosts::Seen,
    clashes: clashes::Seen,
    network: network::Seen,
}

impl<'a> Examination<'a> {
    /// Looks at everything that Proxmox and the network show. `offline` is the cluster as it is without a world, for
    /// which its account was made.
    pub async fn new(live: &'a Live<'_>, survey: &Survey, offline: &Desired, now: Timestamp) -> Self {
        let observed = live.observe(survey).await;
        let (privileges, hosts, clashes, network) = tokio::join!(
            privileges::see(live, offline, survey.release),
            hosts::see(live, survey, now),
            clashes::see(live, survey, &observed),
            network::see(live, &observed),
        );
        Self { desired: live.desired, observed, privileges, hosts, clashes, network }
    }

    /// Returns what was seen by everything else.
    pub const fn observed(&self) -> &Observed {
        &self.observed
    }

    /// Judges everything. `placed` is what resolving the inventory among what is there had to say.
    pub fn checks(&self, placed: &Findings) -> Vec<Check> {
        let mut sorted = Sorted::of(&preflight(self.desired, &self.observed));
        let mut checks = vec![
            release(&self.observed).with(sorted.take("release")),
            self.privileges.missing(),
            self.privileges.excess(),
            hosts::there(self.desired, &self.observed).with(sorted.take("hosts")),
            self.hosts.clocks(),
            self.hosts.processors(self.desired),
            self.hosts.capacity(self.desired, &self.observed),
            placement(self.desired, placed),
            storages::contents(self.desired, &self.observed).with(sorted.take("storages")),
            storages::room(self.desired, &self.observed).with(sorted.take("room")),
            self.network.bridges(self.desired, &self.privileges),
            self.network.addresses(sorted.take("addresses")),
            network::vip(self.desired, &self.observed, sorted.take("vip")),
            self.network.gateway(),
            self.clashes.vmids(self.desired, sorted.take("vmids")),
            self.clashes.macs(self.desired),
            self.clashes.names(self.desired),
        ];
        let rest = sorted.take("machines");
        checks.push(Check::new("machines", Group::Machines, "what is there fits together").with(rest));
        checks
    }
}

/// Findings by the check that they belong to.
struct Sorted(BTreeMap<&'static str, Vec<Finding>>);

impl Sorted {
    fn of(findings: &Findings) -> Self {
        let mut sorted: BTreeMap<&str, Vec<Finding>> = BTreeMap::new();
        for finding in findings {
            sorted.entry(check_of(finding)).or_default().push(finding.clone());
        }
        Self(sorted)
    }

    fn take(&mut self, check: &str) -> Vec<Finding> {
        self.0.remove(check).unwrap_or_default()
    }
}

fn check_of(finding: &Finding) -> &'static str {
    match finding.code {
        Code::PVE_RELEASE => "release",
        // What is missing is told by name, path and command elsewhere.
        Code::DENIED => "privileges",
        Code::NO_HOSTS | Code::HOST_DOWN => "hosts",
        Code::STORAGE_CONTENT => "storages",
        Code::STORAGE_FULL => "room",
        Code::ADDRESS_TAKEN if finding.message.contains("VIP") => "vip",
        Code::ADDRESS_TAKEN => "addresses",
        Code::VM_NOT_OURS | Code::VM_UNSEEN | Code::VM_LOCKED => "vmids",
        _ => "machines",
    }
}

/// What releases of Proxmox cannot do, by the first that can.
const SINCE: [(u32, u32, &str); 3] = [
    (8, 2, "let a token download images with `Sys.AccessNetwork`"),
    (8, 4, "import disk images by its API"),
    (9, 2, "show consoles to API tokens"),
];

fn release(observed: &Observed) -> Check {
    let Some(release) = observed.release.seen() else {
        return Check::unknown("release", Group::Proxmox, "the release of Proxmox is not known");
    };
    let older = SINCE.iter().filter(|(major, minor, _)| (release.major, release.minor) < (*major, *minor));
    let cannot: Vec<&str> = older.map(|(_, _, what)| *what).collect();
    let runs = format!("Proxmox {}.{}", release.major, release.minor);
    let says =
        if cannot.is_empty() { runs } else { format!("{runs}, which cannot {}", cannot.join(", nor ")) };
    Check::new("release", Group::Proxmox, says)
}

fn placement(desired: &Desired, placed: &Findings) -> Check {
    let hosts = hosts::used(desired);
    let says = format!("{} on {}", counted(desired.machines.len(), "machine"), counted(hosts.len(), "host"));
    Check::new("placement", Group::Hosts, says).with(placed.iter().cloned())
}

/// Returns a number with its noun.
pub(crate) fn counted(number: usize, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{plural}")
}

/// Returns a number of addresses.
pub(crate) fn addresses(number: usize) -> String {
    if number == 1 { "1 address".to_owned() } else { format!("{number} addresses") }
}

/// Returns words as a list, cut after a few.
pub(crate) fn some(words: &[String]) -> String {
    const MOST: usize = 6;
    let more = words.len().saturating_sub(MOST);
    let shown = words[..words.len().min(MOST)].join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}
