//! What an inventory means.
//!
//! 1. [`expand`]: groups, `like` and the chain of defaults become single machines;
//! 2. [`cluster`]: releases, counts and the endpoint fit together;
//! 3. [`image`]: platform, boot path and extensions become images;
//! 4. [`vmids`] and [`network`]: every machine gets its number, MACs and addresses;
//! 5. [`seats`]: every machine gets its host;
//! 6. [`machine`], [`addons`]: what is left is filled in.
//!
//! Each part reports all it finds and goes on with what is left, so that one run shows everything.

mod addons;
mod cluster;
mod expand;
mod image;
mod machine;
mod network;
mod patches;
mod seats;
mod vmids;

use ichor_model::{
    At, Code, Desired, Finding, Findings, HostName, World,
    desired::{self as d, Role},
};
use ichor_spec::{
    Inventory,
    inventory::{Boot, Cluster, Image, Machine, Network, Placement, Proxmox, Roles},
    read::Read,
};

use crate::placement::{Loss, Seat};
use seats::Layout;

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
        findings: cx.findings.sorted(),
        layout: cx.layout.filter(|_| complete),
    }
}

/// The sections of an inventory, the world, and what was found so far.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    world: &'a World,
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
}

/// Returns a section, empty if it is not written.
fn section<T: Clone + Default>(written: Option<&At<T>>) -> T {
    written.map(|at| at.value.clone()).unwrap_or_default()
}

/// Lists words for a message.
fn words<T: AsRef<str>>(words: &[T]) -> String {
    const MOST: usize = 12;
    let mut shown: Vec<String> = words.iter().take(MOST).map(|word| format!("`{}`", word.as_ref())).collect();
    if words.len() > MOST {
        shown.push(format!("and {} more", words.len() - MOST));
    }
    shown.join(", ")
}

impl<'a> Context<'a> {
    fn new(inventory: &Inventory, world: &'a World) -> Self {
        Self {
            world,
            findings: Findings::new(),
            layout: None,
            cluster: section(inventory.cluster.as_ref()),
            proxmox: section(inventory.proxmox.as_ref()),
            placement: section(inventory.placement.as_ref()),
            network: section(inventory.network.as_ref()),
            image: section(inventory.image.as_ref()),
            boot: section(inventory.boot.as_ref()),
            defaults: section(inventory.defaults.as_ref()),
            roles: section(inventory.roles.as_ref()),
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
                self.missing(None, "machines", "add `machines:` with at least one control plane");
                Vec::new()
            }
        };
        let boot = image::boot(self);
        let images = image::images(self, &drafts, boot);
        let addons = addons::addons(self, inventory.addons.as_ref());
        let vmids = vmids::allocate(self, &drafts, addons.contains_key("csi"));
        let network = network::resolve(self, &drafts, boot.address);
        let hosts = seats::hosts(self);
        let seats = seats::seat(self, &drafts, &hosts);
        let parts =
            machine::Parts { boot, images: &images, vmids: &vmids, network: &network, hosts: &hosts, seats };
        let mut machines = machine::machines(self, &drafts, &parts);
        patches::assign(self, inventory.patches.as_ref(), &drafts, &mut machines);
        let templates = image::templates(self, &images, &machines);
        vmids::check_unique(self, &drafts, &vmids, &templates);
        let cluster = cluster::cluster(self, &drafts, &machines);
        let proxmox = cluster::proxmox(self);
        Some(Desired {
            cluster: cluster?,
            proxmox: proxmox?,
            hosts: hosts.shapes,
            network: network.cluster,
            os: addons::os(self, inventory.os.as_ref()),
            images: images.list,
            templates,
            machines,
            addons,
            store: cluster::store(inventory),
            recipients: cluster::recipients(inventory),
        })
    }

    /// Reports a required key that is not there.
    fn missing(&mut self, at: Option<ichor_model::Span>, key: &str, remedy: &str) {
        self.findings
            .push(Finding::error(Code::MISSING_KEY, at, format!("`{key}` is missing")).remedy(remedy));
    }

    /// Returns the architecture of a machine.
    fn arch_of(&self, machine: &Machine) -> d::Arch {
        machine.arch.or(self.image.arch).map_or(d::Arch::Amd64, |arch| arch.value)
    }
}
