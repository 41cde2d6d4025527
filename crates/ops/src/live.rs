//! A cluster's world, reached: Proxmox, the Image Factory, the machines and Kubernetes.
//!
//! A [`Live`] is made for one run. It holds the clients and what the run has learnt so far: where VMs are, which
//! addresses were leased, which keys were pinned. All of that can be asked again, so nothing of it is kept.

mod keys;
mod memory;
mod notes;
mod tasks;
mod trouble;

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, OnceLock},
};

use ichor_machineconfig::{
    cidata,
    compose::{Composer, Materials},
    iso9660::Image,
    secrets::{Bundle, SecretText},
};
use ichor_model::{
    Code, Desired, Finding, Findings, HostName, MachineName, Severity,
    desired::{ConfigDelivery, Late, Machine, Role},
    observed::StorageSeen,
    stamp::{Claim, SecretsPrint},
};
use ichor_net::{Dial, Endpoint, HttpClient, Trust};
use ichor_plan::files::{Names, has_seed, host_of, seed_volume};
use ichor_talos::Talos;
use sha2::{Digest, Sha256};

pub(crate) use self::trouble::{factory_trouble, pve_trouble, refused, talos_trouble, transient};
pub use self::{
    keys::{Keys, at},
    memory::{Memory, Pin},
};
pub(crate) use self::{memory::Listening, notes::Notes, tasks::Tasks};
use crate::{
    Halt,
    access::own_address,
    halt::only,
    image::{self, Named},
    observe::{LastMembers, LastNodes},
};

/// So much of a digest is in the name of a cidata volume.
const SEED_DIGITS: usize = 16;

/// How the world of a cluster is reached.
#[derive(Clone)]
pub struct Reach {
    /// Makes connections.
    pub dialer: Arc<dyn Dial>,
    /// Whom to trust as Proxmox.
    pub proxmox: Trust,
    /// Whom to trust as the Image Factory.
    pub factory: Trust,
    /// The token that Proxmox knows us by.
    pub token: ichor_pve::Token,
}

impl std::fmt::Debug for Reach {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reach").field("proxmox", &self.proxmox).finish_non_exhaustive()
    }
}

/// A client of Proxmox.
pub type Pve = ichor_pve::Client<HttpClient>;

/// Makes a client of the Proxmox of an inventory.
pub fn proxmox(endpoint: &str, reach: &Reach) -> Result<Pve, Halt> {
    let client = http(endpoint, reach.proxmox.clone(), reach).map_err(|why| unusable(endpoint, &why))?;
    Ok(ichor_pve::Client::new(client, reach.token.clone()))
}

/// Makes a client of a Proxmox that asks in nobody's name, to log in.
pub fn lobby(endpoint: &str, trust: Trust, dialer: &Arc<dyn Dial>) -> Result<Pve, Halt> {
    let at: Result<Endpoint, _> = endpoint.parse();
    let at = at.map_err(|error: ichor_net::NotAnEndpoint| unusable(endpoint, &error.to_string()))?;
    let client = HttpClient::new(at, trust, None, Arc::clone(dialer));
    client.map(ichor_pve::Client::nobody).map_err(|error| unusable(endpoint, &error.to_string()))
}

fn http(url: &str, trust: Trust, reach: &Reach) -> Result<HttpClient, String> {
    let endpoint: Endpoint = url.parse().map_err(|error: ichor_net::NotAnEndpoint| error.to_string())?;
    HttpClient::new(endpoint, trust, None, Arc::clone(&reach.dialer)).map_err(|error| error.to_string())
}

fn unusable(url: &str, why: &str) -> Halt {
    let message = format!("no connection can be made to `{url}`");
    Halt::invalid(only(Finding::error(Code::UNREACHABLE, None, message).because(why)))
}

/// A cluster with everything that a run needs to see and change it.
pub struct Live<'a> {
    /// The cluster as it is to be.
    pub desired: &'a Desired,
    /// Proxmox.
    pub pve: Pve,
    /// How everything is reached.
    pub reach: Reach,
    /// What the machines and Kubernetes know us by; nothing before the cluster has secrets.
    pub keys: Option<Keys>,
    /// The images of the cluster, by their names in the plan.
    pub images: BTreeMap<String, Named>,
    /// What the run has learnt so far.
    pub memory: Memory,
    secrets: Option<&'a Bundle>,
    by_name: bool,
    materials: Option<&'a Materials>,
    pub(crate) seen_storages: Mutex<Storages>,
    pub(crate) nodes: LastNodes,
    pub(crate) members: LastMembers,
    pub(crate) notes: Notes,
    pub(crate) tasks: Tasks,
    names: OnceLock<Names>,
}

/// Storages as each host sees them.
type Storages = BTreeMap<(HostName, String), StorageSeen>;

impl std::fmt::Debug for Live<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").field("cluster", &self.desired.cluster.name).finish_non_exhaustive()
    }
}

impl<'a> Live<'a> {
    /// Gets ready to see and change a cluster. Without the files and secrets that the inventory names, no machine
    /// config can be drawn up; looking at a cluster and removing it needs none.
    pub fn new(
        desired: &'a Desired,
        pve: Pve,
        reach: Reach,
        secrets: Option<(Keys, &'a Bundle)>,
        materials: impl Into<Option<&'a Materials>>,
    ) -> Result<Self, Halt> {
        let (keys, secrets) = secrets.unzip();
        let images =
            image::name_all(desired)?.into_iter().map(|named| (named.image.clone(), named)).collect();
        Ok(Self {
            desired,
            pve,
            reach,
            keys,
            images,
            memory: Memory::default(),
            secrets,
            by_name: false,
            materials: materials.into(),
            seen_storages: Mutex::default(),
            nodes: LastNodes::default(),
            members: LastMembers::default(),
            notes: Notes::default(),
            tasks: Tasks::default(),
            names: OnceLock::new(),
        })
    }

    /// Takes the cluster's name for proof that VMs under its numbers are its own, whatever secrets they were made with.
    #[must_use]
    pub const fn by_name(mut self) -> Self {
        self.by_name = true;
        self
    }

    /// Returns what stamps of the cluster say.
    pub(crate) fn claim(&self) -> Claim<'_> {
        let secrets = self.secrets.map(|bundle| SecretsPrint::of(&bundle.cluster_id));
        Claim { cluster: &self.desired.cluster.id, secrets }
    }

    /// Returns what the stamp of a VM under one of the cluster's numbers has to say.
    pub(crate) fn claim_to_own(&self) -> Claim<'_> {
        let claim = self.claim();
        Claim { secrets: claim.secrets.filter(|_| !self.by_name), ..claim }
    }

    /// Draws up the machine config of a machine.
    pub(crate) fn config(&self, machine: &Machine) -> Result<SecretText, String> {
        let desired = self.known();
        let composed = self.composer(&desired)?.machine(machine);
        composed.map(|config| config.text()).map_err(|findings| first_error(&findings))
    }

    /// Gets ready to draw up machine configs of the cluster as far as it is [known](Self::known).
    pub(crate) fn composer<'d>(&'d self, known: &'d Desired) -> Result<Composer<'d>, String> {
        let secrets = self.secrets.ok_or("the cluster has no secrets yet")?;
        let materials = self.materials.ok_or("the files that the inventory names were not read")?;
        Composer::new(known, secrets, materials).map_err(|findings| first_error(&findings))
    }

    /// Draws up the cidata volume of a machine.
    pub(crate) fn seed(&self, machine: &Machine) -> Result<Image, String> {
        let carries = machine.boot.config == ConfigDelivery::Cidata;
        let config = carries.then(|| self.config(machine)).transpose()?;
        let files = cidata::render(machine, self.desired.network.hostnames, config);
        files.iso().map_err(|unfit| unfit.to_string())
    }

    /// Returns what the files of the cluster are called. Cidata volumes are drawn up once for that: whoever finds one
    /// of another name has a stale one.
    pub fn names(&self) -> &Names {
        self.names.get_or_init(|| {
            let schematics = self.images.iter().map(|(image, named)| (image.clone(), named.id.clone()));
            let seeded = self.desired.machines.iter().filter(|machine| has_seed(machine));
            // One that cannot be drawn up has no name either, and uploading it says why.
            let seeds = seeded.filter_map(|machine| {
                let volume = self.seed(machine).ok()?;
                let digest: String =
                    Sha256::digest(volume.expose()).iter().map(|byte| format!("{byte:02x}")).collect();
                Some((machine.name.clone(), digest[..SEED_DIGITS].to_owned()))
            });
            Names { schematics: schematics.collect(), seeds: seeds.collect() }
        })
    }

    /// Returns the cidata volume of a machine, if it boots with one.
    pub(crate) fn seed_volume(&self, machine: &Machine) -> Option<String> {
        let host = host_of(machine).filter(|_| has_seed(machine))?;
        Some(seed_volume(self.desired, machine, host, self.names()))
    }

    /// Makes a client of the factory that has an image.
    pub(crate) fn factory(&self, url: &str) -> Result<ichor_factory::Client<HttpClient>, String> {
        http(url.trim_end_matches('/'), self.reach.factory.clone(), &self.reach)
            .map(ichor_factory::Client::new)
    }

    /// Returns a machine by its name.
    pub(crate) fn machine(&self, name: &MachineName) -> Option<&'a Machine> {
        self.desired.machines.iter().find(|machine| machine.name == *name)
    }

    /// Returns the address of a machine: the one it was given, or the one it has leased, as far as that is known.
    pub(crate) fn address(&self, machine: &Machine) -> Option<IpAddr> {
        own_address(machine).or_else(|| self.memory.lease(&machine.name))
    }

    /// Returns the Talos API of a configured machine. Connections are kept between calls.
    pub(crate) fn talos(&self, machine: &Machine) -> Option<Result<Arc<Talos>, String>> {
        let (address, keys) = (self.address(machine)?, self.keys.as_ref()?);
        Some(self.memory.talos(address, || keys.talos(address, Arc::clone(&self.reach.dialer))))
    }

    /// Returns the Kubernetes API on a control plane's own address: the endpoint may be a VIP that nobody holds
    /// yet.
    pub(crate) fn kubernetes(
        &self,
        machine: &Machine,
    ) -> Option<Result<Arc<crate::live::keys::Kube>, String>> {
        let (address, keys) = (self.address(machine)?, self.keys.as_ref()?);
        Some(self.memory.kube(address, || keys.kube(address, Arc::clone(&self.reach.dialer))))
    }

    /// Returns the cluster with everything that machines have leased, to tell people where they are. Machine configs
    /// are not drawn up from it: a lease is no address of one's own.
    pub fn with_leases(&self) -> Desired {
        let mut desired = self.known();
        for machine in &mut desired.machines {
            let Some(lease) = self.memory.lease(&machine.name) else { continue };
            if let Some(address) = machine.nics.first_mut().and_then(|nic| nic.addresses.first_mut()) {
                *address = Late::Known(lease.into());
            }
        }
        desired
    }

    /// Returns the cluster with the endpoint filled in once it is known: a first control plane that takes a lease
    /// has its address only when it runs.
    pub fn known(&self) -> Desired {
        let mut desired = self.desired.clone();
        if desired.cluster.endpoint.host.known().is_none() {
            let first = desired.of_role(Role::ControlPlane).next();
            if let Some(address) = first.and_then(|machine| self.address(machine)) {
                desired.cluster.endpoint.host = Late::Known(address.to_string());
            }
        }
        desired
    }
}

fn first_error(findings: &Findings) -> String {
    let error = findings.iter().find(|finding| finding.severity == Severity::Error);
    error.map_or_else(|| "it cannot be drawn up".to_owned(), |finding| finding.message.clone())
}
