//! High availability: resources, rules (groups before 9.0), and the manager that acts on them.
//!
//! A manager that has never run knows no host, which matters for rules. One that acts looks around every ten
//! seconds and brings each VM where its resource wants it.

mod act;
mod resources;
mod rules;
mod status;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use ichor_model::VmId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    agenda,
    clock::Time,
    ground::Ground,
    pve::{Datacentre, Event, Exit, Next, Route, Worker, options::digest},
};

/// High availability.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Ha {
    resources: BTreeMap<String, BTreeMap<String, String>>,
    rules: BTreeMap<String, BTreeMap<String, String>>,
    groups: BTreeMap<String, BTreeMap<String, String>>,
    commands: VecDeque<Command>,
    manager: Option<Manager>,
}

/// What the manager knows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct Manager {
    /// Hosts that it has seen.
    hosts: BTreeSet<String>,
    /// When it last wrote its status.
    seen: Time,
    /// Whether it acts, and the hosts' own managers report.
    acts: bool,
    /// States of services by resource.
    services: BTreeMap<String, String>,
}

/// What somebody asked the manager to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Command {
    Stop(String),
    Migrate { resource: String, host: String },
}

/// What a task asks of the manager. It ends before anything happens.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// `hastart`.
    Start(VmId),
    /// `hastop`.
    Stop(VmId),
    /// `hamigrate`.
    Migrate(VmId, String),
}

impl Work {
    /// Does the next stretch.
    pub fn step(&mut self, dc: &mut Datacentre, _: &mut Ground, worker: &mut Worker) -> Next {
        match self {
            Self::Start(vmid) => {
                worker.say(format!("Requesting HA start for VM {vmid}"));
                if let Some(resource) = dc.ha.resources.get_mut(&format!("vm:{vmid}")) {
                    resource.insert("state".into(), "started".into());
                }
            }
            Self::Stop(vmid) => {
                worker.say(format!("Requesting HA stop for VM {vmid}"));
                dc.ha.commands.push_back(Command::Stop(format!("vm:{vmid}")));
            }
            Self::Migrate(vmid, host) => {
                worker.say(format!("Requesting HA migration for VM {vmid} to node {host}"));
                let command = Command::Migrate { resource: format!("vm:{vmid}"), host: host.clone() };
                dc.ha.commands.push_back(command);
            }
        }
        Next::Done(Exit::Ok)
    }
}

impl Ha {
    /// Returns whether a VM is managed.
    pub fn manages(&self, vmid: VmId) -> bool {
        self.resources.contains_key(&format!("vm:{vmid}"))
    }

    /// Returns whether a VM is managed and shall not be left alone.
    pub fn commands(&self, vmid: VmId) -> bool {
        self.resources
            .get(&format!("vm:{vmid}"))
            .is_some_and(|resource| resource.get("state").is_none_or(|state| state != "ignored"))
    }

    /// Returns the state that the cluster's resources show for a VM.
    pub fn state_of(&self, vmid: VmId) -> Option<String> {
        let resource = format!("vm:{vmid}");
        let requested = self.resources.get(&resource)?.get("state").map_or("started", String::as_str);
        let service = self.manager.as_ref().and_then(|manager| manager.services.get(&resource));
        Some(service.cloned().unwrap_or_else(|| requested.to_owned()))
    }

    fn digest(&self) -> String {
        digest(&format!("{:?}", self.resources))
    }

    /// Lets the manager have run: it knows these hosts, and nothing acts.
    pub fn has_run(&mut self, hosts: impl IntoIterator<Item = String>, now: Time) {
        let hosts = hosts.into_iter().collect();
        self.manager = Some(Manager { hosts, seen: now, ..Manager::default() });
    }
}

impl Datacentre {
    /// Returns what the status of a VM says about HA.
    pub fn ha_status(&self, vmid: VmId) -> Value {
        if !self.ha.manages(vmid) {
            return json!({ "managed": 0 });
        }
        let service =
            self.ha.manager.as_ref().and_then(|manager| manager.services.get(&format!("vm:{vmid}")));
        json!({ "managed": 1, "state": service })
    }

    /// Puts a VM under HA.
    pub fn add_to_ha(&mut self, _ground: &mut Ground, vmid: VmId, state: &str) {
        let settings = BTreeMap::from([("state".to_owned(), state.to_owned())]);
        self.ha.resources.entry(format!("vm:{vmid}")).or_insert(settings);
    }

    /// Takes a VM from HA and out of its rules.
    pub fn remove_from_ha(&mut self, vmid: VmId) {
        resources::forget(&mut self.ha, &format!("vm:{vmid}"));
    }
}

/// The endpoints below `/cluster/ha`.
pub fn routes() -> Vec<Route> {
    let mut routes = resources::routes();
    routes.extend(rules::routes());
    routes.extend(status::routes());
    routes
}

/// How often the manager looks around.
const ROUND: Duration = Duration::from_secs(10);

/// Starts a manager that acts.
pub fn start_manager(dc: &mut Datacentre, ground: &mut Ground) {
    let hosts = dc.hosts.keys().cloned().collect();
    dc.ha.manager = Some(Manager { hosts, seen: ground.now, acts: true, services: BTreeMap::new() });
    round(dc, ground);
}

/// The manager's round.
pub fn round(dc: &mut Datacentre, ground: &mut Ground) {
    let Some(manager) = dc.ha.manager.as_mut().filter(|manager| manager.acts) else { return };
    manager.seen = ground.now;
    let commands: Vec<Command> = dc.ha.commands.drain(..).collect();
    for command in commands {
        match command {
            Command::Stop(resource) => {
                if let Some(settings) = dc.ha.resources.get_mut(&resource) {
                    settings.insert("state".into(), "stopped".into());
                }
            }
            Command::Migrate { resource, host } => {
                if let Some(vmid) = vmid_of(&resource).filter(|_| dc.hosts.contains_key(&host)) {
                    act::migrate(dc, ground, vmid, &host);
                }
            }
        }
    }
    let wanted: Vec<(String, String)> = dc
        .ha
        .resources
        .iter()
        .map(|(resource, settings)| {
            (resource.clone(), settings.get("state").cloned().unwrap_or_else(|| "started".into()))
        })
        .collect();
    let mut services = BTreeMap::new();
    for (resource, state) in wanted {
        let Some(vmid) = vmid_of(&resource) else { continue };
        services.insert(resource, serve(dc, ground, vmid, &state));
    }
    if let Some(manager) = dc.ha.manager.as_mut() {
        manager.services = services;
    }
    let pause = ground.profile.takes(ROUND).max(Duration::from_millis(500));
    ground.agenda.add(ground.now + pause, agenda::Event::Pve(Event::HaRound));
}

fn vmid_of(resource: &str) -> Option<VmId> {
    resource.strip_prefix("vm:")?.parse().ok()
}

/// Brings one VM nearer to the state it shall have; returns the state of its service.
fn serve(dc: &mut Datacentre, ground: &mut Ground, vmid: VmId, wanted: &str) -> String {
    let Some(vm) = dc.vms.get(&vmid) else { return "error".into() };
    let host_up = dc.hosts.get(&vm.host).is_some_and(|host| host.online);
    let runs = vm.runs();
    match wanted {
        "started" | "enabled" if !host_up => {
            recover(dc, ground, vmid);
            "recovery".into()
        }
        "started" | "enabled" => {
            if !runs {
                act::start(dc, ground, vmid);
            }
            if runs { "started" } else { "starting" }.into()
        }
        "stopped" | "disabled" => {
            if runs {
                act::stop(dc, ground, vmid);
                return "request_stop".into();
            }
            "stopped".into()
        }
        other => other.to_owned(),
    }
}

/// A VM of a host that is down comes back on another one, the first by name. Real ones choose by rules and load.
fn recover(dc: &mut Datacentre, ground: &mut Ground, vmid: VmId) {
    let Some(target) = dc.hosts.iter().find(|(_, host)| host.answers()).map(|(name, _)| name.clone()) else {
        return;
    };
    if let Some(vm) = dc.vms.get_mut(&vmid) {
        vm.host = target;
    }
    act::start(dc, ground, vmid);
}
