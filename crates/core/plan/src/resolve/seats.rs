//! Hosts, and which machine goes where.

use std::collections::BTreeMap;

use ichor_model::{
    At, Code, Finding, HostName, MachineName, Size,
    desired::{self as d, Arch, Role},
};
use ichor_spec::{
    inventory::{Host, Storage},
    read::Read,
    values::Strategy,
};

use super::{Context, expand::Draft, machine, words};
use crate::placement::{self, Lack, Loss, Overcommit, Placement, Refusal, Request, Resources, Seat};

/// What stands for the half of a budget that is not declared.
const PLENTY: Resources = Resources { cpu: u32::MAX, memory: Size::from_mib(u64::MAX) };

/// The hosts of this cluster.
#[derive(Debug, Default)]
pub struct Hosts {
    /// What each gives, for the plan.
    pub shapes: Vec<d::Host>,
    /// The same, for placement.
    offers: Vec<placement::Host>,
    /// Bridges that differ from the network's.
    bridges: BTreeMap<HostName, String>,
    known: bool,
}

impl Hosts {
    /// Returns the bridge that a host has in place of the network's.
    pub fn bridge(&self, host: Option<&HostName>) -> Option<&str> {
        host.and_then(|host| self.bridges.get(host)).map(String::as_str)
    }

    /// Whether anybody knows which hosts there are.
    pub fn are_known(&self) -> bool {
        self.known
    }

    fn knows(&self, host: &HostName) -> bool {
        self.offers.iter().any(|offer| offer.name == *host)
    }

    fn has_zone(&self, zone: &str) -> bool {
        self.offers.iter().any(|offer| offer.zone.as_deref() == Some(zone))
    }

    fn names(&self) -> Vec<String> {
        self.offers.iter().map(|offer| offer.name.to_string()).collect()
    }
}

/// A placement with what it was made from, so that questions can be asked of it.
#[derive(Debug)]
pub struct Layout {
    hosts: Vec<placement::Host>,
    requests: Vec<Request>,
    placement: Placement,
}

impl Layout {
    /// Returns where each machine goes and why.
    pub fn seats(&self) -> &[Seat] {
        &self.placement.seats
    }

    /// Tells what would remain if a host were lost.
    pub fn lose(&self, host: &HostName) -> Result<Loss, Finding> {
        let carries = self.placement.seats.iter().any(|seat| seat.host == *host);
        if !carries && !self.hosts.iter().any(|known| known.name == *host) {
            let names: Vec<String> = self.hosts.iter().map(|host| host.name.to_string()).collect();
            return Err(Finding::error(Code::UNKNOWN_HOST, None, format!("there is no host `{host}`"))
                .remedy(format!("the hosts are {}", words(&names))));
        }
        Ok(placement::lose(&self.hosts, &self.requests, &self.placement, host))
    }
}

/// Returns which storage holds what, on a host or in general.
pub fn storage(cx: &Context<'_>, host: Option<&HostName>) -> d::Storage {
    let general = cx.proxmox.storage.as_ref().map(|at| at.value.clone()).unwrap_or_default();
    let own = host.and_then(|host| written(cx, host)).and_then(|host| host.storage);
    let written: Storage = own.map_or_else(|| general.clone(), |own| own.value.over(general.clone()));
    let text = |at: Option<At<String>>, default: &str| at.map_or_else(|| default.to_owned(), |at| at.value);
    let disks = text(written.disks, "local-lvm");
    d::Storage {
        images: text(written.images, "local"),
        templates: text(written.templates, &disks),
        cloudinit: text(written.cloudinit, &disks),
        snippets: written.snippets.map(|at| at.value),
        disks,
    }
}

fn written(cx: &Context<'_>, host: &HostName) -> Option<Host> {
    let hosts = cx.proxmox.hosts.as_ref()?;
    hosts.0.0.iter().find(|(name, _)| name.value == *host).map(|(_, host)| host.value.clone())
}

/// Returns the hosts: those of the inventory, or else those that were seen.
pub fn hosts(cx: &mut Context<'_>) -> Hosts {
    let listed: Vec<(HostName, Option<ichor_model::Span>)> = match &cx.proxmox.hosts {
        Some(hosts) => hosts.0.0.iter().map(|(name, _)| (name.value.clone(), Some(name.span))).collect(),
        None => cx.world.hosts.iter().map(|host| (host.name.clone(), None)).collect(),
    };
    let mut hosts = Hosts { known: cx.proxmox.hosts.is_some() || !listed.is_empty(), ..Hosts::default() };
    for (name, at) in listed {
        if usable(cx, &name, at) {
            add_host(cx, &mut hosts, &name);
        }
    }
    hosts.shapes.sort_by(|a, b| a.name.cmp(&b.name));
    hosts.offers.sort_by(|a, b| a.name.cmp(&b.name));
    hosts
}

/// Whether a host can take machines, as far as anybody has looked.
fn usable(cx: &mut Context<'_>, name: &HostName, at: Option<ichor_model::Span>) -> bool {
    match cx.seen.host(name) {
        Some(seen) if !seen.online => {
            cx.findings.push(
                Finding::warning(Code::HOST_OFFLINE, at, format!("host `{name}` is offline"))
                    .because("nothing new is placed on it")
                    .remedy("bring it back, or take it out of `proxmox.hosts`"),
            );
            false
        }
        None if !cx.world.hosts.is_empty() => {
            let names = cx.seen.host_names();
            cx.findings.push(
                Finding::error(Code::UNKNOWN_HOST, at, format!("Proxmox has no host `{name}`"))
                    .remedy(format!("its hosts are {}", words(&names))),
            );
            false
        }
        _ => true,
    }
}

fn add_host(cx: &mut Context<'_>, hosts: &mut Hosts, name: &HostName) {
    let host = written(cx, name).unwrap_or_default();
    let seen = cx.seen.host(name);
    if let Some(seen) = seen
        && ((seen.cpu.is_none() && host.cpu.is_none()) || (seen.memory.is_none() && host.memory.is_none()))
    {
        cx.findings.push(unseen(name));
    }
    let zone = host.zone.as_ref().map(|zone| zone.value.clone());
    let arch = host.arch.map(|arch| arch.value).or(seen.map(|seen| seen.arch)).unwrap_or(Arch::Amd64);
    let capacity = capacity(cx, &host, name);
    if let Some(bridge) = host.bridge {
        hosts.bridges.insert(name.clone(), bridge.value);
    }
    hosts.shapes.push(d::Host {
        name: name.clone(),
        zone: zone.clone(),
        arch,
        cpu: capacity.map(|capacity| capacity.cpu).filter(|cpu| *cpu != PLENTY.cpu),
        memory: capacity.map(|capacity| capacity.memory).filter(|memory| *memory != PLENTY.memory),
        storage: storage(cx, Some(name)),
    });
    hosts.offers.push(placement::Host { name: name.clone(), zone, arch, capacity });
}

/// Says that a host counts as large enough because nobody can tell.
fn unseen(name: &HostName) -> Finding {
    let message = format!("Proxmox does not tell what host `{name}` has; it counts as large enough");
    Finding::warning(Code::CAPACITY_UNSEEN, None, message)
        .because("processors and memory are told to those who may audit the host")
        .remedy(format!(
            "give the token `Sys.Audit` on `/nodes/{name}`, for which `ichor doctor` has the command; or write what the host has:\n    proxmox: {{hosts: {{{name}: {{cpu: 16, memory: 64GiB}}}}}}"
        ))
}

/// What a host can give: its declared budget, and never more than it really has left.
///
/// What others use is counted against what the host has, not against the budget, which is already
/// what this cluster may use.
fn capacity(cx: &Context<'_>, host: &Host, name: &HostName) -> Option<Resources> {
    let factor = |at: Option<At<ichor_spec::values::Factor>>| at.map_or(1.0, |at| at.value.0);
    let written = cx.placement.overcommit.clone().map(|at| at.value).unwrap_or_default();
    let overcommit = Overcommit { cpu: factor(written.cpu), memory: factor(written.memory) };
    let declared = (host.cpu.is_some() || host.memory.is_some()).then(|| {
        let cpu = host.cpu.map_or(PLENTY.cpu, |cpu| cpu.value.0);
        let memory = host.memory.map_or(PLENTY.memory, |memory| memory.value);
        let offer = placement::offer(Resources::new(cpu, memory), overcommit, Resources::default());
        Resources::new(
            if host.cpu.is_some() { offer.cpu } else { PLENTY.cpu },
            if host.memory.is_some() { offer.memory } else { PLENTY.memory },
        )
    });
    let seen = cx.seen.host(name).filter(|seen| seen.cpu.is_some() || seen.memory.is_some()).map(|seen| {
        let has = Resources::new(seen.cpu.unwrap_or_default(), seen.memory.unwrap_or_default());
        let offer = placement::offer(has, overcommit, cx.seen.load(name));
        Resources::new(
            if seen.cpu.is_some() { offer.cpu } else { PLENTY.cpu },
            if seen.memory.is_some() { offer.memory } else { PLENTY.memory },
        )
    });
    match (declared, seen) {
        (Some(declared), Some(seen)) => {
            Some(Resources::new(declared.cpu.min(seen.cpu), declared.memory.min(seen.memory)))
        }
        (declared, seen) => declared.or(seen),
    }
}

/// Places the machines. Where nobody knows the hosts, the live Proxmox will have to tell.
pub fn seat(cx: &mut Context<'_>, drafts: &[Draft], hosts: &Hosts) -> BTreeMap<MachineName, HostName> {
    check_pins(cx, drafts, hosts);
    if hosts.offers.is_empty() {
        return nowhere(cx, drafts);
    }
    // What names a host or zone that is not there has been reported, and could go anywhere.
    let sensible =
        super::expand::as_written(drafts).into_iter().filter(|draft| names_only_known(cx, draft, hosts));
    let requests: Vec<Request> = sensible.map(|draft| request(cx, draft)).collect();
    let strategy = match cx.placement.strategy.map_or(Strategy::Spread, |strategy| strategy.value) {
        Strategy::Spread => placement::Strategy::Spread,
        Strategy::Pin => placement::Strategy::Pin,
        Strategy::Pack => placement::Strategy::Pack,
    };
    match placement::place(&hosts.offers, &requests, strategy) {
        Ok(placement) => {
            warn_of_shared_fate(cx, hosts, &requests, &placement);
            let seats =
                placement.seats.iter().map(|seat| (seat.machine.clone(), seat.host.clone())).collect();
            cx.layout = Some(Layout { hosts: hosts.offers.clone(), requests, placement });
            seats
        }
        Err(refusals) => {
            report_refusals(cx, drafts, &refusals);
            BTreeMap::new()
        }
    }
}

/// With no host to choose from, pins and VMs that exist are all there is; the rest is chosen live.
fn nowhere(cx: &mut Context<'_>, drafts: &[Draft]) -> BTreeMap<MachineName, HostName> {
    if cx.proxmox.hosts.is_some() {
        let at = cx.proxmox.hosts.as_ref().map(|hosts| hosts.span);
        if cx.proxmox.unread.has("hosts") {
            return BTreeMap::new();
        }
        cx.findings.push(
            Finding::error(Code::NO_FIT, at, "there is no host to place machines on")
                .remedy("name at least one host that is online, or remove `hosts`"),
        );
        return BTreeMap::new();
    }
    report_unpinned(cx, drafts);
    let host = |draft: &Draft| {
        let seen = cx.seen.machine(&draft.name).map(|seen| seen.host.clone());
        seen.or_else(|| pin(cx, draft).map(|pin| pin.value))
    };
    drafts.iter().filter_map(|draft| Some((draft.name.clone(), host(draft)?))).collect()
}

/// Reports machines that strategy `pin` leaves without a host, where nobody tries to place them.
fn report_unpinned(cx: &mut Context<'_>, drafts: &[Draft]) {
    let by_hand = cx.placement.strategy.is_some_and(|strategy| strategy.value == Strategy::Pin);
    let seen = |draft: &Draft| cx.seen.machine(&draft.name).is_some();
    let unpinned = drafts.iter().filter(|draft| by_hand && pin(cx, draft).is_none() && !seen(draft));
    let refusals: Vec<Refusal> = unpinned
        .map(|draft| Refusal::Unpinned { machine: draft.name.clone(), needs: needs(cx, draft) })
        .collect();
    report_refusals(cx, drafts, &refusals);
}

/// Returns the host a machine is pinned to.
fn pin(cx: &Context<'_>, draft: &Draft) -> Option<At<HostName>> {
    draft.all.host.clone().or_else(|| cx.pins.get(&draft.name).cloned())
}

fn check_pins(cx: &mut Context<'_>, drafts: &[Draft], hosts: &Hosts) {
    let by_name: BTreeMap<&MachineName, &Draft> = drafts.iter().map(|draft| (&draft.name, draft)).collect();
    for (name, host) in cx.placement.pin.clone().iter().flat_map(|pins| &pins.0) {
        let Some(draft) = by_name.get(&name.value) else {
            report_unknown_pin(cx, name, drafts);
            continue;
        };
        if let Some(other) = draft.all.host.as_ref().filter(|other| other.value != host.value) {
            cx.findings.push(
                Finding::error(
                    Code::PIN_CONFLICT,
                    host.span,
                    format!("`{}` is pinned to `{}` and to `{}`", draft.name, host.value, other.value),
                )
                .see(other.span, "the other host")
                .remedy("keep one of them"),
            );
        }
        check_host(cx, host, hosts);
    }
    let mut judged = std::collections::BTreeSet::new();
    for draft in drafts {
        let own = draft.all.host.iter().chain(draft.all.hosts.iter().flat_map(|hosts| &hosts.value));
        for host in own.cloned().collect::<Vec<_>>() {
            if judged.insert(host.span) {
                check_host(cx, &host, hosts);
            }
        }
        warn_if_moved(cx, draft);
    }
    check_zones(cx, drafts, hosts);
}

fn report_unknown_pin(cx: &mut Context<'_>, name: &At<MachineName>, drafts: &[Draft]) {
    if !cx.machines_known {
        return;
    }
    let of = |members: bool| {
        let fitting = drafts.iter().filter(|draft| !members || draft.group == name.value);
        words(&fitting.map(|draft| draft.name.as_str()).collect::<Vec<_>>())
    };
    let is_group = drafts.iter().any(|draft| draft.group == name.value);
    let (message, remedy) = if is_group {
        (
            format!("`{}` is a group, and machines are pinned", name.value),
            format!("its machines are {}", of(true)),
        )
    } else {
        (format!("there is no machine `{}` to pin", name.value), format!("the machines are {}", of(false)))
    };
    cx.findings.push(Finding::error(Code::UNKNOWN_PIN, name.span, message).remedy(remedy));
}

/// Whether there is such a host, even if it takes no machines at present.
fn exists(cx: &Context<'_>, host: &HostName, hosts: &Hosts) -> bool {
    hosts.knows(host) || written(cx, host).is_some()
}

fn check_host(cx: &mut Context<'_>, host: &At<HostName>, hosts: &Hosts) {
    let unsure = hosts.offers.is_empty() || cx.proxmox.unread.has("hosts");
    if unsure || exists(cx, &host.value, hosts) {
        return;
    }
    cx.findings.push(
        Finding::error(Code::UNKNOWN_HOST, host.span, format!("there is no host `{}`", host.value))
            .remedy(format!("the hosts are {}", words(&hosts.names()))),
    );
}

fn check_zones(cx: &mut Context<'_>, drafts: &[Draft], hosts: &Hosts) {
    let mut judged = std::collections::BTreeSet::new();
    for zone in drafts.iter().filter_map(|draft| draft.all.zone.clone()) {
        let unsure = hosts.offers.is_empty() || cx.proxmox.unread.has("hosts");
        if !unsure && !hosts.has_zone(&zone.value) && judged.insert(zone.span) {
            let zones: std::collections::BTreeSet<&String> =
                hosts.offers.iter().filter_map(|host| host.zone.as_ref()).collect();
            let remedy = if zones.is_empty() {
                "give hosts a zone: `hosts: {pve1: {zone: rack-a}}`".to_owned()
            } else {
                format!("the zones are {}", words(&zones.into_iter().collect::<Vec<_>>()))
            };
            cx.findings.push(
                Finding::error(
                    Code::UNKNOWN_HOST,
                    zone.span,
                    format!("no host is in zone `{}`", ichor_spec::yaml::show(&zone)),
                )
                .remedy(remedy),
            );
        }
    }
}

fn warn_if_moved(cx: &mut Context<'_>, draft: &Draft) {
    let Some(seen) = cx.seen.machine(&draft.name) else { return };
    let Some(pinned) = pin(cx, draft).filter(|pinned| pinned.value != seen.host) else { return };
    cx.findings.push(
        Finding::warning(
            Code::MOVED,
            pinned.span,
            format!("`{}` runs on `{}`, though it is pinned to `{}`", draft.name, seen.host, pinned.value),
        )
        .because("it was moved by HA or by hand; ichor leaves it there")
        .remedy("move it back in Proxmox, or change the pin"),
    );
}

/// Returns what a machine takes from its host; nothing where that could not be read.
fn needs(cx: &Context<'_>, draft: &Draft) -> Resources {
    let unread = |key| draft.all.unread.has(key);
    let cpu = if unread("cpu") || unread("sockets") { 0 } else { machine::cpu(cx, draft).total() };
    let memory = if unread("memory") { Size::default() } else { machine::memory(draft) };
    Resources::new(cpu, memory)
}

fn names_only_known(cx: &Context<'_>, draft: &Draft, hosts: &Hosts) -> bool {
    let listed = draft.all.hosts.iter().flat_map(|hosts| &hosts.value).cloned();
    let zone = draft.all.zone.as_ref();
    pin(cx, draft).into_iter().chain(listed).all(|host| exists(cx, &host.value, hosts))
        && zone.is_none_or(|zone| hosts.has_zone(&zone.value))
}

fn request(cx: &Context<'_>, draft: &Draft) -> Request {
    let pin = pin(cx, draft).map(|pin| pin.value);
    // A certain host is a nearer word than a choice of several.
    let choice = draft.all.hosts.as_ref().filter(|_| pin.is_none());
    Request {
        name: draft.name.clone(),
        role: draft.role,
        needs: needs(cx, draft),
        arch: cx.arch_of(&draft.all),
        hosts: choice.map(|list| list.iter().map(|host| host.value.clone()).collect()).unwrap_or_default(),
        zone: draft.all.zone.as_ref().map(|zone| zone.value.clone()),
        stays: cx.seen.machine(&draft.name).map(|seen| seen.host.clone()),
        pin,
    }
}

/// Three control planes on one host, or in one zone, survive the loss of a VM, and not of that.
fn warn_of_shared_fate(cx: &mut Context<'_>, hosts: &Hosts, requests: &[Request], placement: &Placement) {
    let Some(ha) = cx.cluster.ha.filter(|ha| ha.value) else { return };
    let control_planes = requests.iter().zip(&placement.seats);
    let control_planes = control_planes.filter(|(request, _)| request.role == Role::ControlPlane);
    let seats: Vec<&HostName> = control_planes.map(|(_, seat)| &seat.host).collect();
    let zone_of = |host: &HostName| hosts.offers.iter().find(|offer| offer.name == *host)?.zone.clone();
    let zones: Vec<Option<String>> = seats.iter().map(|host| zone_of(host)).collect();
    let by_host = most_of(seats.iter().map(|host| format!("host `{host}`")));
    let by_zone =
        most_of(zones.into_iter().flatten().map(|zone| format!("zone `{}`", ichor_spec::yaml::show(&zone))));
    let total = seats.len();
    let fatal = |(_, most): &(String, usize)| total >= 3 && total - most < total / 2 + 1;
    let Some((what, most)) = by_host.filter(fatal).or(by_zone.filter(fatal)) else { return };
    cx.findings.push(
        Finding::warning(
            Code::SHARED_FATE,
            ha.span,
            format!("losing {what} takes {most} of {total} control planes, and quorum with them"),
        )
        .remedy("add hosts, so that none, and no zone, has half of the control planes"),
    );
}

/// Returns the most frequent word and how often it occurs.
fn most_of(words: impl Iterator<Item = String>) -> Option<(String, usize)> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for word in words {
        *counts.entry(word).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count)
}

fn report_refusals(cx: &mut Context<'_>, drafts: &[Draft], refusals: &[Refusal]) {
    let by_name: BTreeMap<&MachineName, &Draft> = drafts.iter().map(|draft| (&draft.name, draft)).collect();
    let pins_lost = cx.placement.unread.has("pin");
    for refusal in refusals {
        if pins_lost && matches!(refusal, Refusal::Unpinned { .. }) {
            continue;
        }
        let at = by_name.get(refusal.machine()).map(|draft| draft.at);
        cx.findings.push(refusal_finding(refusal, at));
    }
}

fn refusal_finding(refusal: &Refusal, at: Option<ichor_model::Span>) -> Finding {
    match refusal {
        Refusal::Unpinned { machine, .. } => {
            Finding::error(Code::UNPINNED, at, format!("`{machine}` has no host, and the strategy is `pin`"))
                .remedy("add it to `placement.pin`, or use `strategy: spread`")
        }
        Refusal::NoFit { machine, needs, hosts } => {
            const MOST: usize = 12;
            let mut finding = Finding::error(Code::NO_FIT, at, format!("`{machine}` fits on no host"))
                .because(format!("it needs {needs}"));
            for (host, lack) in hosts.iter().take(MOST) {
                let lack = ichor_spec::yaml::printable(&lack.to_string());
                finding = finding.because(format!("`{host}`: {lack}"));
            }
            if hosts.len() > MOST {
                finding = finding.because(format!("and {} more hosts", hosts.len() - MOST));
            }
            finding.remedy(remedy_for(hosts))
        }
    }
}

/// Says what helps against what the hosts lack.
fn remedy_for(hosts: &[(HostName, Lack)]) -> &'static str {
    let any = |is: fn(&Lack) -> bool| hosts.iter().any(|(_, lack)| is(lack));
    if any(|lack| matches!(lack, Lack::Room { .. })) {
        "make the machine smaller, add a host, or raise `placement.overcommit`"
    } else if any(|lack| matches!(lack, Lack::Zone(_) | Lack::Pin | Lack::Permission)) {
        "change the `host`, `hosts` or `zone` of the machine, or its pin"
    } else {
        "add a host of the machine's architecture, or say which hosts have it: `hosts: {pve1: {arch: arm64}}`"
    }
}
