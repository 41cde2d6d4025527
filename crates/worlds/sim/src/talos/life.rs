//! How a machine comes up, and what happens when something has become possible.

mod boot;
mod install;
mod join;
mod settle;
mod show;

use std::{net::IpAddr, time::Duration};

use ichor_model::VmId;
use serde::{Deserialize, Serialize};

pub(super) use self::install::{installer, read_config};
use super::{
    Machines,
    machine::{Api, Machine, Run, State, has_check, takes},
};
use crate::{
    agenda,
    ground::{Ground, Guest, Hardware},
    signal::Signal,
};

/// What happens in a machine by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The next step of a machine.
    Step {
        /// The machine.
        vmid: VmId,
        /// Which of its starts is meant.
        start: u32,
        /// The step.
        step: Step,
    },
    /// A cluster elects a leader of its etcd.
    Elect(String),
    /// A machine of a cluster takes a shared address.
    Vip(String, IpAddr),
}

/// A step of a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The firmware has found what boots.
    Firmware,
    /// A boot has failed, and the boot loader takes what booted before.
    FallBack,
    /// Addresses and routes are in place.
    Network,
    /// The API is open in maintenance mode.
    Maintenance,
    /// A config was given in maintenance mode, and the caller has its answer.
    GoOn,
    /// The clock is set.
    TimeSynced,
    /// The installer has ended.
    Installed,
    /// A service runs.
    Started(String),
    /// A service is healthy.
    Healthy(String),
    /// The static pods are ready.
    Pods,
    /// A learner of etcd becomes a member.
    Promoted,
    /// Services are stopped, before a reboot or the like.
    Stop,
    /// Everything is stopped: what was asked for happens.
    Act,
    /// A config that was only tried is taken back.
    TrialOver(u32),
    /// An installer that the lifecycle service runs has ended.
    Written {
        /// The installer.
        image: String,
        /// The disk, for a first installation.
        disk: Option<String>,
    },
    /// An image was pulled.
    Pulled(String),
    /// A service that was restarted through the API comes up again.
    Restarted(String),
}

impl Step {
    /// Returns its name for people.
    fn name(&self) -> String {
        match self {
            Self::Firmware => "firmware".into(),
            Self::FallBack => "fall back".into(),
            Self::Network => "network".into(),
            Self::Maintenance => "maintenance mode".into(),
            Self::GoOn => "config taken".into(),
            Self::TimeSynced => "time synced".into(),
            Self::Installed | Self::Written { .. } => "installed".into(),
            Self::Started(id) => format!("{id} started"),
            Self::Healthy(id) => format!("{id} healthy"),
            Self::Pods => "static pods ready".into(),
            Self::Promoted => "etcd member promoted".into(),
            Self::Stop => "stopping".into(),
            Self::Act => "stopped".into(),
            Self::TrialOver(_) => "trial over".into(),
            Self::Pulled(_) => "image pulled".into(),
            Self::Restarted(id) => format!("{id} restarted"),
        }
    }
}

/// A loop that always finds something to do would be a mistake of ours; it must not hang the lab.
const MOST_ROUNDS: usize = 64;

impl Machines {
    /// Lets an event happen.
    pub fn happen(&mut self, ground: &mut Ground, event: Event) {
        match event {
            Event::Step { vmid, start, step } => {
                if self.by_id.get(&vmid).is_some_and(|machine| machine.start == start) {
                    ground.reached(&step.name(), &format!("machine {vmid}"));
                    let opens = step == Step::Maintenance || step == Step::Started("apid".into());
                    self.step(ground, vmid, step);
                    if opens {
                        ground.usable(format!("api {vmid}"));
                    }
                }
            }
            Event::Elect(cluster) => {
                ground.reached("etcd election", &cluster);
                let alive = self.alive(ground, &cluster);
                if let Some(etcd) = self.clusters.get_mut(&cluster) {
                    etcd.elect(&alive, None);
                }
            }
            Event::Vip(cluster, address) => self.take_vip(&cluster, address),
        }
        self.settle(ground);
    }

    /// Takes a message from another part.
    pub fn hear(&mut self, ground: &mut Ground, signal: &Signal) {
        match signal {
            Signal::PowerOn(hardware) => self.switch_on(ground, hardware),
            Signal::PowerCut(vmid) => {
                self.node_down(ground, *vmid);
                self.by_id.remove(vmid);
                ground.guests.remove(vmid);
            }
            Signal::PowerButton(vmid) => self.power_button(ground, *vmid),
            Signal::Reset(vmid) => {
                self.node_down(ground, *vmid);
                self.restart(ground, *vmid);
            }
            _ => {}
        }
        self.settle(ground);
    }

    /// Says that the Kubernetes API of a machine's cluster can be called. The first of its servers counts.
    fn kubernetes_answers(&self, ground: &mut Ground, vmid: VmId) {
        let data = self.by_id.get(&vmid).and_then(|machine| machine.etcd_data(&ground.media));
        let Some((cluster, _)) = data else { return };
        let others = self.clusters.get(&cluster).into_iter().flat_map(|etcd| etcd.members.values());
        let mut others = others.filter(|member| member.vmid != vmid);
        if !others.any(|member| self.run(member.vmid).is_some_and(|run| run.static_pods)) {
            ground.usable(format!("kubernetes {cluster}"));
        }
    }

    /// Writes down a step of a machine.
    pub(super) fn after(&self, ground: &mut Ground, vmid: VmId, real: Duration, step: Step) {
        if let Some(machine) = self.by_id.get(&vmid) {
            let event = Event::Step { vmid, start: machine.start, step };
            ground.after(real, agenda::Event::Talos(event));
        }
    }

    pub(super) fn run(&self, vmid: VmId) -> Option<&Run> {
        self.by_id.get(&vmid)?.run.as_ref()
    }

    pub(super) fn run_mut(&mut self, vmid: VmId) -> Option<&mut Run> {
        self.by_id.get_mut(&vmid)?.run.as_mut()
    }

    fn switch_on(&mut self, ground: &mut Ground, hardware: &Hardware) {
        self.starts += 1;
        let machine =
            Machine { hardware: hardware.clone(), seed: ground.random.bits(), start: self.starts, run: None };
        ground.guests.insert(hardware.vmid, Guest::default());
        self.by_id.insert(hardware.vmid, machine);
        self.after(ground, hardware.vmid, takes::FIRMWARE, Step::Firmware);
    }

    /// Starts a machine again with the devices it has.
    pub(super) fn restart(&mut self, ground: &mut Ground, vmid: VmId) {
        self.last_words(ground, vmid);
        self.starts += 1;
        let Some(machine) = self.by_id.get_mut(&vmid) else { return };
        machine.start = self.starts;
        machine.run = None;
        machine.seed = ground.random.bits();
        if let Some(guest) = ground.guests.get_mut(&vmid) {
            guest.agent = None;
        }
        let away = ground.profile.takes(takes::FIRMWARE).max(takes::LEAST_AWAY);
        let event = Event::Step { vmid, start: self.starts, step: Step::Firmware };
        ground.agenda.add(ground.now + away, agenda::Event::Talos(event));
    }

    fn step(&mut self, ground: &mut Ground, vmid: VmId, step: Step) {
        let now = ground.now;
        match step {
            Step::Firmware => self.boot(ground, vmid),
            Step::FallBack => self.fall_back(ground, vmid),
            Step::Network => self.network_up(ground, vmid),
            Step::Maintenance => self.open_maintenance(ground, vmid),
            Step::GoOn => {
                let waits = |run: &Run| run.api == Api::Maintenance && run.wanted.is_some();
                if self.run(vmid).is_some_and(waits) {
                    self.go_on(ground, vmid);
                }
            }
            Step::TimeSynced => {
                if let Some(run) = self.run_mut(vmid) {
                    run.time_synced = true;
                }
            }
            Step::Installed => self.finish_install(ground, vmid),
            Step::Started(id) => {
                let trusted = (id == "apid").then(|| self.signs_for(vmid)).flatten();
                if let Some(run) = self.run_mut(vmid).filter(|run| run.services.contains_key(&id)) {
                    run.move_service(now, &id, State::Running, "Started task");
                    if id == "apid" {
                        run.api = Api::Secure;
                        run.trusted = trusted;
                    }
                    if has_check(&id) {
                        self.after(ground, vmid, takes::health(&id), Step::Healthy(id));
                    }
                }
            }
            Step::Healthy(id) => {
                if let Some(run) = self.run_mut(vmid).filter(|run| run.runs(&id)) {
                    run.check_service(now, &id, true);
                }
            }
            Step::Pods => {
                if let Some(run) = self.run_mut(vmid).filter(|run| run.sequence.is_none()) {
                    run.static_pods = true;
                    self.kubernetes_answers(ground, vmid);
                }
            }
            Step::Promoted => self.promote(ground, vmid),
            Step::Stop => self.stop(ground, vmid),
            Step::Act => self.act(ground, vmid),
            Step::TrialOver(number) => self.end_trial(ground, vmid, number),
            Step::Written { image, disk } => self.written(ground, vmid, &image, disk.as_deref()),
            Step::Pulled(image) => {
                if let Some(run) = self.run_mut(vmid) {
                    run.images.insert(image);
                }
            }
            Step::Restarted(id) => {
                let ended = |run: &&mut Run| {
                    let service = run.services.get(&id);
                    run.sequence.is_none() && service.is_some_and(|service| service.state == State::Finished)
                };
                if let Some(run) = self.run_mut(vmid).filter(ended) {
                    run.move_service(now, &id, State::Waiting, "Restarting");
                }
            }
        }
    }
}
