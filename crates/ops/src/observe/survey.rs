//! What Proxmox shows before anything else is known.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::stream::{self, StreamExt};
use ichor_model::{
    HostName, Size, VmId, World,
    desired::Arch,
    observed::Release,
    stamp::Bearer,
    world::{ForeignVm, SeenHost, SeenMachine},
};
use ichor_pve::{
    api::{self, GuestRow, HostRow, Resource, StorageSeen, VmConfig},
    ownership::{Identity, identify},
};

use tokio::time::Instant;

use crate::live::Pve;

/// Most configs that are asked for at once. Proxmox has three workers.
const AT_ONCE: usize = 6;
/// The tag that all VMs of ours carry, beside the cluster's name or the word for templates. Tags prove nothing; they
/// tell which VMs are worth asking.
const TAG: &str = "ichor";
const TEMPLATE_TAG: &str = "template";

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
}

/// Looks at Proxmox for a cluster. VMs under the numbers that are `wanted` are asked whatever they look like.
pub async fn survey(pve: &Pve, cluster: &str, wanted: &BTreeSet<VmId>) -> Result<Survey, ichor_pve::Error> {
    let at = Instant::now();
    let (version, resources) = (api::version(), api::resources());
    let (version, resources) = tokio::join!(pve.send(&version), pve.send(&resources));
    let mut survey = Survey {
        at,
        release: release(&version?.release),
        hosts: Vec::new(),
        storages: Vec::new(),
        guests: BTreeMap::new(),
        configs: BTreeMap::new(),
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
        .filter(|guest| guest.kind == "qemu" && (wanted.contains(&guest.vmid) || is_tagged(guest, cluster)))
        .map(|guest| (guest.vmid, guest.node.clone()))
        .collect();
    let configs = stream::iter(asked).map(|(vmid, host)| async move {
        let config = pve.send(&api::config(&host, vmid)).await;
        (vmid, config.map_err(|error| error.to_string()))
    });
    survey.configs = configs.buffer_unordered(AT_ONCE).collect().await;
    Ok(survey)
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
    /// Returns what resolving has to know: hosts and what they have, our machines, and everybody else's VMs.
    pub fn world(&self, cluster: &str) -> World {
        let hosts = self.hosts.iter().map(|host| SeenHost {
            name: host.node.clone(),
            cpu: host.maxcpu.unwrap_or_default(),
            memory: mib(host.maxmem.unwrap_or_default()),
            online: host.status == "online",
            arch: Arch::default(),
        });
        let (mut machines, mut foreign) = (Vec::new(), Vec::new());
        for (vmid, guest) in &self.guests {
            match self.machine(*vmid, guest) {
                Some(machine) if machine.cluster.as_deref() == Some(cluster) => machines.push(machine),
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

    fn machine(&self, vmid: VmId, guest: &GuestRow) -> Option<SeenMachine> {
        let config = self.configs.get(&vmid)?.as_ref().ok()?;
        let Identity::Stamped(stamp) = identify(vmid, config) else { return None };
        let Bearer::Machine(machine) = stamp.bearer else { return None };
        Some(SeenMachine {
            name: machine.name,
            host: guest.node.clone(),
            vmid,
            generation: machine.generation,
            addresses: Vec::new(),
            cluster: Some(stamp.cluster),
            cpu: cpus(guest.maxcpu),
            memory: mib(guest.maxmem),
        })
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
