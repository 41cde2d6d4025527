//! What Proxmox shows before anything else is known.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{
    future::join_all,
    stream::{self, StreamExt},
};
use ichor_model::{
    Desired, HostName, Size, Stamp, VmId, World,
    desired::Arch,
    observed::Release,
    stamp::Bearer,
    world::{ForeignVm, SeenHost, SeenMachine},
};
use ichor_pve::{
    Kind,
    api::{self, GuestRow, HostRow, Resource, StorageSeen, TaskRow, VmConfig},
    ownership::{Identity, identify, maker},
};

use tokio::time::Instant;

use crate::live::Pve;

/// Most configs that are asked for at once. Proxmox has three workers.
const AT_ONCE: usize = 6;
/// The tag that all VMs of ours carry, beside the cluster's name or the word for templates. Tags prove nothing; they
/// tell which VMs are worth asking.
const TAG: &str = "ichor";
const TEMPLATE_TAG: &str = "template";
/// The locks of VMs that are being made. They carry no tag yet.
const MAKING: [&str; 2] = ["create", "clone"];

/// What Proxmox shows: hosts, storages and guests, and the configs of VMs that may be ours.
#[derive(Debug, Clone)]
pub struct Survey {
    /// When it began.
    pub at: Instant,
    /// The release, if it could be read.
    pub release: Option<Release>,
    /// Hosts.
    pub hosts: Vec<HostRow>,
    /// Storages, once for every host.
    pub storages: Vec<StorageSeen>,
    /// VMs and containers.
    pub guests: BTreeMap<VmId, GuestRow>,
    /// What VMs that may be ours say of themselves, or why that could not be read.
    pub configs: BTreeMap<VmId, Result<VmConfig, String>>,
    /// VMs of which there is nothing but a number yet, and which a task of ours may be making: the run that began it
    /// is gone, and Proxmox goes on.
    pub being_made: BTreeSet<VmId>,
}

/// Looks at Proxmox for a cluster. VMs under the numbers that it wants are asked whatever they look like.
pub async fn survey(pve: &Pve, desired: &Desired) -> Result<Survey, ichor_pve::Error> {
    let at = Instant::now();
    let (cluster, wanted) = (desired.cluster.name.as_str(), desired.vmids());
    let (version, resources) = (api::version(), api::resources());
    let (version, resources) = tokio::join!(pve.send(&version), pve.send(&resources));
    let mut survey = Survey {
        at,
        release: release(&version?.release),
        hosts: Vec::new(),
        storages: Vec::new(),
        guests: BTreeMap::new(),
        configs: BTreeMap::new(),
        being_made: BTreeSet::new(),
    };
    for resource in resources? {
        match resource {
            Resource::Guest(guest) => drop(survey.guests.insert(guest.vmid, guest)),
            Resource::Host(host) => survey.hosts.push(host),
            Resource::Storage(storage) => survey.storages.push(storage),
            Resource::Other => {}
        }
    }
    let asked: Vec<(VmId, HostName)> = survey
        .guests
        .values()
        .filter(|guest| {
            guest.kind == "qemu" && (wanted.contains(&guest.vmid) || is_worth_asking(guest, cluster))
        })
        .map(|guest| (guest.vmid, guest.node.clone()))
        .collect();
    survey.configs = configs(pve, asked).await;
    survey.see_makers(pve).await;
    Ok(survey)
}

async fn configs(pve: &Pve, asked: Vec<(VmId, HostName)>) -> BTreeMap<VmId, Result<VmConfig, String>> {
    let configs = stream::iter(asked).map(|(vmid, host)| async move {
        let call = api::config(&host, vmid);
        // Much hangs on the answer: one hiccup is not enough to do without it.
        let config = match pve.send(&call).await {
            Err(error) if may_pass(&error) => pve.send(&call).await,
            config => config,
        };
        (vmid, config.map_err(|error| error.to_string()))
    });
    configs.buffer_unordered(AT_ONCE).collect().await
}

fn may_pass(error: &ichor_pve::Error) -> bool {
    error.refusal().is_none_or(|kind| matches!(kind, Kind::Busy | Kind::Broken | Kind::Other))
}

fn is_worth_asking(guest: &GuestRow, cluster: &str) -> bool {
    let making = guest.lock.as_deref().is_some_and(|lock| MAKING.contains(&lock));
    making || is_tagged(guest, cluster)
}

/// Whether a VM looks like one of a cluster. Those of other clusters need not be asked.
fn is_tagged(guest: &GuestRow, cluster: &str) -> bool {
    let tags = guest.tags.as_deref().unwrap_or_default();
    let has = |wanted: &str| tags.split([';', ',', ' ']).any(|tag| tag.eq_ignore_ascii_case(wanted));
    has(TAG) && (has(cluster) || has(TEMPLATE_TAG))
}

fn release(text: &str) -> Option<Release> {
    let (major, minor) = text.split_once('.')?;
    Some(Release { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

impl Survey {
    /// Looks for tasks of ours that make VMs of which nothing can be told yet.
    async fn see_makers(&mut self, pve: &Pve) {
        let reserved = self.reserved();
        if reserved.is_empty() {
            return;
        }
        let up = self.hosts.iter().filter(|host| host.status == "online");
        let tasks = join_all(up.map(|host| async { pve.send(&api::running_tasks(&host.node)).await })).await;
        let ours = |task: &TaskRow| task.is_running() && task.upid.user() == pve.token();
        let tasks: Vec<TaskRow> = tasks.into_iter().flatten().flatten().filter(ours).collect();
        // A clone's task speaks of its source alone: any may be the one.
        let clones = tasks.iter().any(|task| task.upid.kind() == "qmclone");
        let makes = |vmid: VmId| clones || maker(vmid, None, &tasks).is_some();
        let (making, ended): (Vec<_>, Vec<_>) = reserved.into_iter().partition(|(vmid, _)| makes(*vmid));
        self.being_made = making.into_iter().map(|(vmid, _)| vmid).collect();
        // Those may have been finished between the two looks.
        self.configs.extend(configs(pve, ended).await);
    }

    fn reserved(&self) -> Vec<(VmId, HostName)> {
        let nameless = |vmid: VmId, config: &VmConfig| {
            matches!(identify(vmid, config), Identity::Reserved { .. }) && stamp_of(vmid, config).is_none()
        };
        let configs = self.configs.iter().filter_map(|(vmid, config)| Some((*vmid, config.as_ref().ok()?)));
        let reserved = configs.filter(|(vmid, config)| nameless(*vmid, config));
        reserved.filter_map(|(vmid, _)| Some((vmid, self.guests.get(&vmid)?.node.clone()))).collect()
    }

    /// Whether a VM may be a machine of ours though nobody can tell: it could not be asked, and what little is known
    /// of it does not speak against it.
    pub fn may_be_ours(&self, vmid: VmId, desired: &Desired) -> bool {
        let name = self.guests.get(&vmid).and_then(|guest| guest.name.as_deref());
        matches!(self.configs.get(&vmid), Some(Err(_))) && name.is_none_or(|name| desired.has_machine(name))
    }

    /// Returns what resolving has to know: hosts and what they have, our machines, and everybody else's VMs.
    ///
    /// What may be ours is neither: were it counted as somebody else's, its machine would be given another number and
    /// be made a second time. `desired` is the cluster as it would be if nothing were there.
    pub fn world(&self, desired: &Desired) -> World {
        let cluster = desired.cluster.id.as_str();
        let hosts = self.hosts.iter().map(|host| SeenHost {
            name: host.node.clone(),
            // Neither is told to a token that may not audit the host.
            cpu: host.maxcpu,
            memory: host.maxmem.map(mib),
            online: host.status == "online",
            arch: Arch::default(),
        });
        let (mut machines, mut foreign) = (Vec::new(), Vec::new());
        for (vmid, guest) in &self.guests {
            match self.machine(*vmid, guest) {
                Some(mut machine) if machine.cluster.as_deref() == Some(cluster) => {
                    // The address of one that has left the inventory may be meant for its successor, which is for
                    // the preflight to refuse: the cluster can be looked at and removed all the same.
                    if !desired.has_machine(machine.name.as_str()) {
                        machine.addresses.clear();
                    }
                    machines.push(machine);
                }
                None if self.is_own_template(*vmid, desired) => {}
                None if self.being_made.contains(vmid) || self.may_be_ours(*vmid, desired) => {}
                _ => foreign.push(ForeignVm {
                    vmid: *vmid,
                    host: guest.node.clone(),
                    cpu: cpus(guest.maxcpu),
                    memory: mib(guest.maxmem),
                    macs: Vec::new(),
                }),
            }
        }
        World { hosts: hosts.collect(), machines, foreign, contract: None }
    }

    /// Whether a VM is a template that the inventory names and this cluster made.
    fn is_own_template(&self, vmid: VmId, desired: &Desired) -> bool {
        let stamp = self.configs.get(&vmid).and_then(|config| stamp_of(vmid, config.as_ref().ok()?));
        let own =
            |stamp: Stamp| stamp.cluster == desired.cluster.id && matches!(stamp.bearer, Bearer::Template(_));
        stamp.is_some_and(own) && desired.templates.iter().any(|template| template.vmid == vmid)
    }

    fn machine(&self, vmid: VmId, guest: &GuestRow) -> Option<SeenMachine> {
        let config = self.configs.get(&vmid)?.as_ref().ok()?;
        let stamp = stamp_of(vmid, config)?;
        let Bearer::Machine(machine) = stamp.bearer else { return None };
        Some(SeenMachine {
            name: machine.name,
            host: guest.node.clone(),
            vmid,
            generation: machine.generation,
            addresses: config.addresses(),
            cluster: Some(stamp.cluster),
            cpu: cpus(guest.maxcpu),
            memory: mib(guest.maxmem),
        })
    }
}

/// Returns the stamp of a VM of ichor's, be it finished or a clone that is being made.
fn stamp_of(vmid: VmId, config: &VmConfig) -> Option<Stamp> {
    match identify(vmid, config) {
        Identity::Stamped(stamp) => Some(stamp),
        Identity::Reserved { .. } => Stamp::read(&config.text("description")?),
        Identity::Foreign(_) => None,
    }
}

const fn mib(bytes: u64) -> Size {
    Size::from_mib(bytes >> 20)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of processors is small"
)]
fn cpus(count: f64) -> u32 {
    count.clamp(0.0, f64::from(u16::MAX)) as u32
}
