//! What an inventory means.
//!
//! 1. [`expand`]: groups, `like` and the chain of defaults become single machines;
//! 2. [`forms`] and [`cluster`]: names are of the right form, releases, counts and the endpoint fit
//!    together;
//! 3. [`image`]: platform, boot path and extensions become images;
//! 4. [`seen`], [`vmids`] and [`network`]: every machine gets its number, MACs and addresses, and keeps
//!    those it has;
//! 5. [`seats`]: every machine gets its host;
//! 6. [`machine`], [`addons`]: what is left is filled in.
//!
//! Each part reports all it finds and goes on with what is left, so that one run shows everything.

mod addons;
mod cluster;
mod expand;
mod forms;
mod image;
mod machine;
mod network;
mod patches;
mod seats;
mod seen;
mod vmids;

use std::collections::BTreeMap;

use ichor_model::{
    At, Code, Desired, Finding, Findings, HostName, MachineName, Span, World,
    desired::{self as d, Role},
};
use ichor_spec::{
    Inventory,
    inventory::{Boot, Cluster, Image, Machine, Network, Placement, Proxmox, Roles},
    read::Read,
};

use crate::placement::{Loss, Seat};
use seats::Layout;
use seen::Seen;

/// What came of an inventory.
#[derive(Debug, Default)]
pub struct Resolution {
    /// The cluster, when nothing is wrong.
    pub desired: Option<Desired>,
    /// Everything found.
    pub findings: Findings,
    layout: Option<Layout>,
}

impl Resolution {
    /// Returns where each machine goes and why, when hosts are known.
    pub fn seats(&self) -> &[Seat] {
        self.layout.as_ref().map_or(&[], Layout::seats)
    }

    /// Tells what would remain if a host were lost.
    pub fn lose(&self, host: &HostName) -> Result<Loss, Finding> {
        let layout = self.layout.as_ref().ok_or_else(|| {
            Finding::error(Code::UNKNOWN_HOST, None, "no hosts are known to lose one of")
                .remedy("name the hosts under `proxmox.hosts`")
        })?;
        layout.lose(host)
    }
}

/// Resolves an inventory against what is known of the world.
pub fn resolve(inventory: &Inventory, world: &World) -> Resolution {
    let mut cx = Context::new(inventory, world);
    let desired = cx.resolve(inventory);
    let complete = !cx.findings.has_errors();
    Resolution {
        desired: desired.filter(|_| complete),
        findings: fold(&cx.findings.sorted()),
        layout: cx.layout.filter(|_| complete),
    }
}

/// Keeps one of the findings that say the same of several machines: a mistake in a group is one
/// mistake, however many members it has.
fn fold(findings: &Findings) -> Findings {
    let mut kept: Vec<(Finding, usize)> = Vec::new();
    for finding in findings {
        let key = |finding: &Finding| (finding.code, finding.severity, finding.remedy.clone());
        let mut here =
            kept.iter_mut().rev().take_while(|(kept, _)| kept.at.is_some() && kept.at == finding.at);
        match here.find(|(kept, _)| key(kept) == key(finding)) {
            Some((same, _)) if same.message == finding.message => {}
            Some((_, more)) => *more += 1,
            None => kept.push((finding.clone(), 0)),
        }
    }
    let told = |(finding, more): (Finding, usize)| match more {
        0 => finding,
        more => finding.because(format!("the same goes for {more} more")),
    };
    kept.into_iter().map(told).collect()
}

/// The sections of an inventory, the world, and what was found so far.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    world: &'a World,
    seen: Seen<'a>,
    pins: BTreeMap<MachineName, At<HostName>>,
    findings: Findings,
    layout: Option<Layout>,
    cluster: Cluster,
    proxmox: Proxmox,
    placement: Placement,
    network: Network,
    image: Image,
    boot: Boot,
    defaults: Machine,
    roles: Roles,
    places: Places,
    /// Whether it is known which machines there are: every entry of `machines` could be read.
    machines_known: bool,
}

/// Where the sections begin, for findings about what they lack.
#[derive(Debug, Clone, Copy)]
struct Places {
    cluster: Option<Span>,
    proxmox: Option<Span>,
    network: Option<Span>,
    machines: Option<Span>,
}

impl Places {
    fn of(inventory: &Inventory) -> Self {
        Self {
            cluster: inventory.cluster.as_ref().map(|at| at.span),
            proxmox: inventory.proxmox.as_ref().map(|at| at.span),
            network: inventory.network.as_ref().map(|at| at.span),
            machines: inventory.machines.as_ref().map(|at| at.span),
        }
    }
}

/// Returns a section: as it is written, `lost` if it is written and illegible, or else empty.
fn section<T: Clone + Default>(written: Option<&At<T>>, unread: bool, lost: fn() -> T) -> T {
    match written {
        Some(at) => at.value.clone(),
        None if unread => lost(),
        None => T::default(),
    }
}

/// Returns the machines that `placement` pins, by name.
fn pins(inventory: &Inventory) -> BTreeMap<MachineName, At<HostName>> {
    let written = inventory.placement.as_ref().and_then(|placement| placement.pin.as_ref());
    written.iter().flat_map(|pins| &pins.0).map(|(name, host)| (name.value.clone(), host.clone())).collect()
}

/// Lists words for a message.
fn words<T: AsRef<str>>(words: &[T]) -> String {
    const MOST: usize = 12;
    let quoted = |word: &T| format!("`{}`", ichor_spec::yaml::printable(word.as_ref()));
    let mut shown: Vec<String> = words.iter().take(MOST).map(quoted).collect();
    if words.len() > MOST {
        shown.push(format!("and {} more", words.len() - MOST));
    }
    shown.join(", ")
}

impl<'a> Context<'a> {
    fn new(inventory: &Inventory, world: &'a World) -> Self {
        let unread = |key| inventory.unread.has(key);
        Self {
            world,
            seen: Seen::default(),
            pins: pins(inventory),
            findings: Findings::new(),
            layout: None,
            cluster: section(inventory.cluster.as_ref(), unread("cluster"), Cluster::illegible),
            proxmox: section(inventory.proxmox.as_ref(), unread("proxmox"), Proxmox::illegible),
            placement: section(inventory.placement.as_ref(), unread("placement"), Placement::illegible),
            network: section(inventory.network.as_ref(), unread("network"), Network::illegible),
            image: section(inventory.image.as_ref(), unread("image"), Image::illegible),
            boot: section(inventory.boot.as_ref(), unread("boot"), Boot::illegible),
            defaults: section(inventory.defaults.as_ref(), unread("defaults"), Machine::illegible),
            roles: section(inventory.roles.as_ref(), false, Roles::default),
            places: Places::of(inventory),
            machines_known: !unread("machines"),
        }
    }

    fn role_settings(&self, role: Role) -> Option<&Machine> {
        self.roles.of(role)
    }

    /// Lays a machine's settings over those of its role and of the cluster.
    fn chain(&self, role: Role, machine: Machine) -> Machine {
        let role = self.role_settings(role).cloned().unwrap_or_default();
        machine.over(role.over(self.defaults.clone()))
    }

    fn resolve(&mut self, inventory: &Inventory) -> Option<Desired> {
        cluster::check_schema(self, inventory);
        let drafts = match &inventory.machines {
            Some(machines) => expand::expand(self, machines),
            None => {
                if std::mem::take(&mut self.machines_known) {
                    self.missing(None, "machines", "add `machines: {cp: {role: control-plane, count: 3}}`");
                }
                Vec::new()
            }
        };
        forms::check(self, &drafts);
        seen::check(self, self.world);
        self.seen = Seen::new(self.world, &cluster::id(self), &drafts);
        let boot = image::boot(self);
        let images = image::images(self, &drafts, boot);
        let addons = addons::addons(self, inventory.addons.as_ref());
        let vmids = vmids::allocate(self, &drafts, addons.contains_key("csi"));
        let network = network::resolve(self, &drafts, boot.address);
        let hosts = seats::hosts(self);
        let seats = seats::seat(self, &drafts, &hosts);
        let os = addons::os(self, inventory.os.as_ref());
        let parts = machine::Parts {
            boot,
            images: &images,
            vmids: &vmids,
            network: &network,
            hosts: &hosts,
            os: &os,
            seats,
        };
        let mut machines = machine::machines(self, &drafts, &parts);
        patches::assign(self, inventory.patches.as_ref(), &drafts, &mut machines);
        let templates = image::templates(self, &images, &drafts);
        vmids::check_unique(self, &drafts, &vmids, &templates);
        if addons.contains_key("csi") {
            vmids::check_reserved(self, &templates);
        }
        let images = image::bake(images, &mut machines, network.of_cluster.hostnames);
        let cluster = cluster::cluster(self, &drafts, &machines);
        let proxmox = cluster::proxmox(self);
        Some(Desired {
            cluster: cluster?,
            proxmox: proxmox?,
            hosts: hosts.shapes,
            network: network.of_cluster,
            os,
            images,
            templates,
            machines,
            addons,
            store: cluster::store(inventory),
            recipients: cluster::recipients(inventory),
            secrets_file: cluster::secrets_file(inventory),
        })
    }

    /// Reports a required key that is not there.
    fn missing(&mut self, at: Option<Span>, key: &str, remedy: &str) {
        self.findings
            .push(Finding::error(Code::MISSING_KEY, at, format!("`{key}` is missing")).remedy(remedy));
    }

    /// Returns the architecture of a machine.
    fn arch_of(&self, machine: &Machine) -> d::Arch {
        machine.arch.or(self.image.arch).map_or(d::Arch::Amd64, |arch| arch.value)
    }
}
