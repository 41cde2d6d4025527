//! A machine: what it is made of, what runs on it, and what is kept on its disk.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::Duration,
};

use ichor_model::{Minor, VmId};
use ichor_talos_proto::{
    Message,
    machine::{self as api, machine_status_event::MachineStage},
};
use serde::{Deserialize, Serialize};

use super::{
    cloud::Platform,
    journal::Journal,
    lan::{Lan, Lease},
    release,
    resources::Store,
    wanted::{Pair, Wanted, WantedLink},
};
use crate::{
    clock::Time,
    ground::{Content, Hardware, Installed, Media, TalosImage},
};

/// A machine that is switched on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Its devices.
    pub hardware: Hardware,
    /// Where its keys come from.
    pub seed: u64,
    /// Which start this is: events of an earlier one no longer concern it.
    pub start: u32,
    /// Talos, once it runs.
    pub run: Option<Run>,
}

/// Talos as it runs on a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// What was booted.
    pub image: TalosImage,
    /// Whether it runs from installation media.
    pub from_iso: bool,
    /// The id that the kernel draws at every boot.
    pub boot_id: String,
    /// When it was booted.
    pub began: Time,
    /// The stage that it reports.
    pub stage: Stage,
    /// What the Talos API is like.
    pub api: Api,
    /// What the platform says.
    pub platform: Platform,
    /// Its network.
    pub network: Network,
    /// Whether its clock is set.
    pub time_synced: bool,
    /// The config in force, as it was submitted.
    pub config: Option<Vec<u8>>,
    /// What that config asks for; absent while it lacks the v1alpha1 document.
    pub wanted: Option<Wanted>,
    /// The config to return to when a trial ends, and the number of the trial.
    pub trial: Option<(u32, Option<Vec<u8>>)>,
    /// How many trials there were.
    pub trials: u32,
    /// Services by id.
    pub services: BTreeMap<String, Service>,
    /// Whether its learner of etcd is about to become a member.
    pub promoting: bool,
    /// Whether the static pods of the control plane are on their way.
    pub pods_coming: bool,
    /// Whether the static pods of the control plane are ready.
    pub static_pods: bool,
    /// The status that was last told: stage and unmet conditions.
    pub told: Option<(Stage, Vec<(String, String)>)>,
    /// What trustd signed a worker's certificate with; a control plane has it in its config.
    pub trusted: Option<Pair>,
    /// Whether its cluster brings a pod network along.
    pub pod_network: bool,
    /// The cluster in which its node was announced, and the node's name.
    pub node: Option<(String, String)>,
    /// What it is about to do, and the id of the call that asked for it.
    pub sequence: Option<(Sequence, String)>,
    /// Whether a config was applied that only a reboot brings into force.
    pub awaits_reboot: bool,
    /// Container images that were pulled.
    pub images: BTreeSet<String>,
    /// Whether an installer runs.
    pub installing: bool,
    /// A snapshot that was uploaded for recovery.
    pub snapshot: Option<Vec<u8>>,
    /// Events, logs and the kernel's messages.
    pub journal: Journal,
    /// Resources as they were last seen.
    pub resources: Store,
}

/// A stage of a machine's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// On the way up.
    Booting,
    /// Being installed.
    Installing,
    /// Waiting for a config.
    Maintenance,
    /// All services run.
    Running,
    /// About to reboot.
    Rebooting,
    /// About to switch itself off.
    ShuttingDown,
    /// Being wiped.
    Resetting,
    /// Being upgraded.
    Upgrading,
}

impl Stage {
    /// Returns the word that resources use.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Booting => "booting",
            Self::Installing => "installing",
            Self::Maintenance => "maintenance",
            Self::Running => "running",
            Self::Rebooting => "rebooting",
            Self::ShuttingDown => "shutting down",
            Self::Resetting => "resetting",
            Self::Upgrading => "upgrading",
        }
    }

    /// Returns the number that events use.
    pub const fn number(self) -> i32 {
        (match self {
            Self::Booting => MachineStage::Booting,
            Self::Installing => MachineStage::Installing,
            Self::Maintenance => MachineStage::Maintenance,
            Self::Running => MachineStage::Running,
            Self::Rebooting => MachineStage::Rebooting,
            Self::ShuttingDown => MachineStage::ShuttingDown,
            Self::Resetting => MachineStage::Resetting,
            Self::Upgrading => MachineStage::Upgrading,
        }) as i32
    }
}

/// What the Talos API of a machine is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// Nobody listens.
    Closed,
    /// Anybody is let in.
    Maintenance,
    /// Only clients with certificates are let in.
    Secure,
}

/// What a machine is about to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sequence {
    /// Reboot.
    Reboot,
    /// Switch itself off; by force: without draining first.
    Shutdown {
        /// By force.
        force: bool,
    },
    /// Wipe itself.
    Reset(Wipe),
    /// Upgrade itself, and reboot.
    Upgrade(String),
}

/// What a reset wipes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wipe {
    /// Partitions of the system disk; none: the whole disk.
    pub partitions: Vec<String>,
    /// Other disks, by slot.
    pub disks: Vec<String>,
    /// Whether the system disk is left alone.
    pub spare_system: bool,
    /// Whether it leaves etcd and Kubernetes first.
    pub graceful: bool,
    /// Whether it reboots afterwards.
    pub reboot: bool,
}

/// A service of a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Its state.
    pub state: State,
    /// What its health check says; absent: it has none, or did not run yet.
    pub healthy: Option<bool>,
    /// When the health last changed.
    pub changed: Time,
    /// What happened to it.
    pub events: Vec<(String, State, Time)>,
}

/// A state of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// Not begun.
    Initialized,
    /// Getting ready.
    Preparing,
    /// Waiting for something.
    Waiting,
    /// Running.
    Running,
    /// Being stopped.
    Stopping,
    /// Ended.
    Finished,
    /// Broken.
    Failed,
    /// Being started.
    Starting,
}

impl State {
    /// Returns the word that lists use.
    pub fn word(self) -> String {
        format!("{self:?}")
    }

    /// Returns the number that events use.
    pub const fn number(self) -> i32 {
        use api::service_state_event::Action;
        (match self {
            Self::Initialized => Action::Initialized,
            Self::Preparing => Action::Preparing,
            Self::Waiting => Action::Waiting,
            Self::Running => Action::Running,
            Self::Stopping => Action::Stopping,
            Self::Finished => Action::Finished,
            Self::Failed => Action::Failed,
            Self::Starting => Action::Starting,
        }) as i32
    }
}

/// The network of a machine.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// Whether addresses, host name and routes are in place.
    pub up: bool,
    /// Its links.
    pub links: Vec<Link>,
    /// The host name.
    pub hostname: String,
    /// Name servers.
    pub resolvers: Vec<IpAddr>,
}

/// A link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// An alias from the config.
    pub alias: Option<String>,
    /// Its MAC address.
    pub mac: String,
    /// Whether the cable is in.
    pub up: bool,
    /// Its addresses.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Its gateways.
    pub gateways: Vec<IpAddr>,
    /// Whether a DHCP server gave it an address.
    pub leased: bool,
}

impl Network {
    /// Returns the addresses of links whose cable is in.
    pub fn addresses(&self) -> impl Iterator<Item = (IpAddr, u8)> {
        self.links.iter().filter(|link| link.up).flat_map(|link| link.addresses.iter().copied())
    }

    /// Returns the first address: what Kubernetes and etcd use.
    pub fn first(&self) -> Option<IpAddr> {
        self.addresses().next().map(|(address, _)| address)
    }
}

impl Machine {
    /// Returns its number.
    pub const fn vmid(&self) -> VmId {
        self.hardware.vmid
    }

    /// Returns the disks in the order in which the kernel names them, with their names.
    pub fn disks(&self) -> Vec<(String, usize)> {
        let mut order: Vec<(bool, u32, u32, usize)> = Vec::new();
        for (index, disk) in self.hardware.disks.iter().enumerate() {
            let digits = disk.slot.trim_start_matches(|c: char| c.is_ascii_alphabetic());
            let bus = &disk.slot[..disk.slot.len() - digits.len()];
            let rank = match bus {
                "ide" => 0,
                "sata" => 1,
                _ => 2,
            };
            order.push((bus == "virtio", rank, digits.parse().unwrap_or(0), index));
        }
        order.sort_unstable();
        let mut counts = BTreeMap::new();
        let named = order.into_iter().map(|(virtio, _, _, index)| {
            let count = counts.entry(virtio).or_insert(0_u8);
            let letter = char::from(b'a' + (*count).min(25));
            *count += 1;
            (format!("{}d{letter}", if virtio { "v" } else { "s" }), index)
        });
        named.collect()
    }

    /// Returns the disk that Talos is installed on, by its index.
    pub fn system_disk(&self, media: &Media) -> Option<usize> {
        let is_system =
            |index: &usize| matches!(media.get(self.hardware.disks[*index].content), Content::Installed(_));
        (0..self.hardware.disks.len()).find(is_system)
    }

    /// Returns what is installed.
    pub fn installed<'m>(&self, media: &'m Media) -> Option<&'m Installed> {
        match media.get(self.hardware.disks[self.system_disk(media)?].content) {
            Content::Installed(installed) => Some(installed),
            _ => None,
        }
    }

    /// Changes what is installed, if anything is.
    pub fn change_installed(&self, media: &mut Media, change: impl FnOnce(&mut Installed)) {
        let Some(index) = self.system_disk(media) else { return };
        let content = self.hardware.disks[index].content;
        if let Content::Installed(installed) = media.get(content) {
            let mut installed = installed.clone();
            change(&mut installed);
            media.set(content, Content::Installed(installed));
        }
    }

    /// Returns the member of etcd whose data is on its disk: the cluster and the member's id.
    pub fn etcd_data(&self, media: &Media) -> Option<(String, u64)> {
        let data = self.installed(media)?.etcd.as_ref()?;
        let member = data.get("member")?.as_str()?;
        Some((data.get("cluster")?.as_str()?.to_owned(), u64::from_str_radix(member, 16).ok()?))
    }

    /// Returns META values: those of the image, and those written since.
    pub fn meta(&self, media: &Media) -> BTreeMap<u8, String> {
        let mut meta = self.run.as_ref().map(|run| run.image.meta.clone()).unwrap_or_default();
        if let Some(installed) = self.installed(media) {
            meta.clone_from(&installed.meta);
        }
        meta
    }
}

impl Run {
    /// Starts Talos.
    pub fn new(image: TalosImage, from_iso: bool, boot_id: String, began: Time) -> Self {
        Self {
            image,
            from_iso,
            boot_id,
            began,
            stage: Stage::Booting,
            api: Api::Closed,
            platform: Platform::default(),
            network: Network::default(),
            time_synced: false,
            config: None,
            wanted: None,
            trial: None,
            trials: 0,
            services: BTreeMap::new(),
            promoting: false,
            pods_coming: false,
            static_pods: false,
            told: None,
            trusted: None,
            pod_network: false,
            node: None,
            sequence: None,
            awaits_reboot: false,
            images: BTreeSet::new(),
            installing: false,
            snapshot: None,
            journal: Journal::default(),
            resources: Store::default(),
        }
    }

    /// Returns the Talos minor version.
    pub fn minor(&self) -> Minor {
        release::minor(&self.image.talos)
    }

    /// Whether the machine is part of a control plane.
    pub fn is_control_plane(&self) -> bool {
        self.wanted.as_ref().is_some_and(Wanted::is_control_plane)
    }

    /// Whether a service runs.
    pub fn runs(&self, service: &str) -> bool {
        self.services.get(service).is_some_and(|service| service.state == State::Running)
    }

    /// Whether a service runs and its health check passes.
    pub fn is_healthy(&self, service: &str) -> bool {
        self.services
            .get(service)
            .is_some_and(|service| service.state == State::Running && service.healthy != Some(false))
            && self.services.get(service).is_some_and(|found| found.healthy.is_some() || !has_check(service))
    }

    /// Whether it can be a member of etcd that counts.
    pub fn serves_etcd(&self) -> bool {
        self.runs("etcd")
    }

    /// Moves a service to another state, and says so.
    pub fn move_service(&mut self, now: Time, id: &str, state: State, message: &str) {
        let service = self.services.entry(id.to_owned()).or_insert_with(|| Service {
            state: State::Initialized,
            healthy: None,
            changed: now,
            events: Vec::new(),
        });
        service.state = state;
        if state != State::Running {
            service.healthy = None;
        }
        service.events.push((message.to_owned(), state, now));
        if service.events.len() > MOST_SERVICE_EVENTS {
            service.events.remove(0);
        }
        self.tell_service(now, id, message);
    }

    /// Notes what a service's health check says.
    pub fn check_service(&mut self, now: Time, id: &str, healthy: bool) {
        let Some(service) = self.services.get_mut(id) else { return };
        if service.healthy == Some(healthy) {
            return;
        }
        service.healthy = Some(healthy);
        service.changed = now;
        let message = if healthy {
            "Health check successful"
        } else {
            "Health check failed: context deadline exceeded"
        };
        let state = service.state;
        service.events.push((message.to_owned(), state, now));
        self.tell_service(now, id, message);
    }

    fn tell_service(&mut self, now: Time, id: &str, message: &str) {
        let Some(service) = self.services.get(id) else { return };
        let event = api::ServiceStateEvent {
            service: id.to_owned(),
            action: service.state.number(),
            message: message.to_owned(),
            health: Some(api::ServiceHealth {
                unknown: service.healthy.is_none(),
                healthy: service.healthy.unwrap_or(false),
                ..api::ServiceHealth::default()
            }),
        };
        let line = format!("service[{id}]({}): {message}", service.state.word());
        self.journal.event(now, "ServiceStateEvent", &event.encode_to_vec(), "");
        self.journal.talos(now, self.began, &line);
        self.journal.log(id, &line);
    }
}

/// A service's list shows no more than that.
const MOST_SERVICE_EVENTS: usize = 25;

/// Whether a service has a health check.
pub fn has_check(service: &str) -> bool {
    !matches!(service, "dashboard" | "syslogd" | "auditd") && !service.starts_with("ext-")
}

/// How long things take on real hardware.
pub mod takes {
    use super::Duration;

    /// Firmware, boot loader and kernel.
    pub const FIRMWARE: Duration = Duration::from_secs(15);
    /// So long a machine goes on after it was told to stop where nothing takes time: talosctl begins to
    /// follow its events at the same moment, and must not come too late for the last of them.
    pub const LEAST_NOTICE: Duration = Duration::from_millis(500);
    /// So long a machine that reboots is away, even where nothing takes time: talosctl looks a second after the
    /// reboot began, and asks for events of the past only if the machine does not answer then.
    pub const LEAST_AWAY: Duration = Duration::from_secs(2);
    /// Addresses, routes, and a DHCP exchange.
    pub const NETWORK: Duration = Duration::from_secs(4);
    /// From the network to an open API in maintenance mode.
    pub const MAINTENANCE: Duration = Duration::from_secs(3);
    /// From a config that is taken to the end of maintenance mode.
    pub const ANSWER: Duration = Duration::from_secs(2);
    /// Setting the clock.
    pub const TIME: Duration = Duration::from_secs(3);
    /// Pulling and running the installer.
    pub const INSTALL: Duration = Duration::from_secs(45);
    /// Pulling an image.
    pub const PULL: Duration = Duration::from_secs(15);
    /// Stopping everything before a reboot.
    pub const STOP: Duration = Duration::from_secs(8);
    /// Cordoning and draining, when the API server answers.
    pub const DRAIN: Duration = Duration::from_secs(15);
    /// After that Talos no longer tries to drain.
    pub const DRAIN_LIMIT: Duration = Duration::from_mins(5);
    /// Wiping a disk or partitions.
    pub const WIPE: Duration = Duration::from_secs(5);
    /// From a running etcd and kubelet to ready static pods.
    pub const STATIC_PODS: Duration = Duration::from_secs(25);
    /// From learner to member.
    pub const PROMOTION: Duration = Duration::from_secs(10);
    /// Electing another leader of etcd.
    pub const ELECTION: Duration = Duration::from_secs(2);
    /// Until another machine takes the shared address of one that is gone.
    pub const VIP: Duration = Duration::from_secs(30);
    /// A boot that fails, until the boot loader takes the image before.
    pub const FAILED_BOOT: Duration = Duration::from_mins(2);

    /// How long a service takes to start.
    pub fn start(service: &str) -> Duration {
        Duration::from_secs(match service {
            "kubelet" => 12,
            "etcd" => 8,
            "cri" => 4,
            _ => 1,
        })
    }

    /// How long a service takes to become healthy.
    pub fn health(service: &str) -> Duration {
        Duration::from_secs(match service {
            "kubelet" | "etcd" => 5,
            _ => 1,
        })
    }
}

/// Works out the network of a machine from its platform, its config and the lab's DHCP servers.
pub fn network(hardware: &Hardware, run: &Run, lan: &mut Lan) -> Network {
    let mut network = Network { up: true, ..Network::default() };
    let mut leased_name = None;
    let nothing = Wanted::default();
    let wanted = run.wanted.as_ref().unwrap_or(&nothing);
    for (index, card) in hardware.cards.iter().enumerate() {
        // nocloud images boot with `net.ifnames=0` always, others if their schematic says so; else cards are
        // named by their slot.
        let name = if run.image.platform == "nocloud" || run.image.plain_names {
            format!("eth{index}")
        } else {
            format!("ens{}", 18 + index)
        };
        let platform = run.platform.links.iter().find(|link| match &link.mac {
            Some(mac) => *mac == card.mac,
            None => link.name.as_deref() == Some(&name),
        });
        let configured = wanted.links.iter().find(|link| is_for(link, &name, &card.mac));
        let mut link = Link {
            alias: configured
                .map(|link| link.name.clone())
                .filter(|alias| *alias != name && !alias.is_empty()),
            name,
            mac: card.mac.clone(),
            up: !card.link_down,
            addresses: Vec::new(),
            gateways: Vec::new(),
            leased: false,
        };
        if let Some(platform) = platform {
            link.addresses.extend(&platform.addresses);
            link.gateways.extend(&platform.gateways);
        }
        if let Some(configured) = configured {
            link.addresses.extend(&configured.addresses);
            link.gateways.extend(&configured.gateways);
        }
        let asked = platform.is_some_and(|link| link.dhcp) || configured.is_some_and(|link| link.dhcp);
        let unmentioned = platform.is_none() && configured.is_none();
        let lease = if asked || unmentioned { lan.lease(card) } else { None };
        if let Some(Lease { address, gateway, resolvers, hostname }) = lease {
            link.addresses.push(address);
            link.gateways.extend(gateway);
            link.leased = true;
            network.resolvers.extend(resolvers);
            leased_name = leased_name.or(hostname);
        }
        link.addresses.sort_unstable();
        link.addresses.dedup();
        link.gateways.dedup();
        network.links.push(link);
    }
    if !run.platform.resolvers.is_empty() {
        network.resolvers.clone_from(&run.platform.resolvers);
    }
    if !wanted.resolvers.is_empty() {
        network.resolvers.clone_from(&wanted.resolvers);
    }
    // Layers: config over DHCP over platform over a name of its own.
    let given = wanted.hostname.clone().or(leased_name).or_else(|| run.platform.hostname.clone());
    network.hostname = given.unwrap_or_else(|| own_name(hardware, wanted, network.first()));
    network
}

fn is_for(link: &WantedLink, name: &str, mac: &str) -> bool {
    !link.ignore && link.mac.as_deref().map_or(link.name == name, |wanted| wanted == mac)
}

/// A name from the machine's identity, or in the older way from its address.
fn own_name(hardware: &Hardware, wanted: &Wanted, address: Option<IpAddr>) -> String {
    use sha2::{Digest, Sha256};
    match address {
        Some(IpAddr::V4(address)) if !wanted.stable_hostname && !wanted.kind.is_empty() => {
            let [a, b, c, d] = address.octets();
            format!("talos-{a}-{b}-{c}-{d}")
        }
        _ => {
            let digest = Sha256::digest(hardware.uuid.as_bytes());
            let letters = b"abcdefghijklmnopqrstuvwxyz0123456789";
            let pick = |index: usize| char::from(letters[usize::from(digest[index]) % letters.len()]);
            format!("talos-{}{}{}-{}{}{}", pick(0), pick(1), pick(2), pick(3), pick(4), pick(5))
        }
    }
}

/// Whether a processor model has what Talos needs: x86-64-v2.
pub fn is_modern(cpu_type: &str) -> bool {
    const TOO_OLD: [&str; 14] = [
        "kvm32", "kvm64", "qemu32", "qemu64", "486", "pentium", "pentium2", "pentium3", "coreduo",
        "core2duo", "athlon", "phenom", "Conroe", "Penryn",
    ];
    let name = cpu_type.split(',').next().unwrap_or_default();
    !TOO_OLD.contains(&name) && !name.starts_with("Opteron_G1") && !name.starts_with("Opteron_G2")
}
