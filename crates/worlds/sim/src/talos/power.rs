//! What a machine does to itself: reboot, shutdown, reset and upgrade.

use std::time::Duration;

use ichor_model::VmId;
use ichor_talos_proto::{Message, common, machine as api};

use super::{
    Machines, Mishaps,
    life::{Event, Step, installer, read_config},
    machine::{Api, Run, Sequence, Stage, State, Wipe, takes},
    release,
};
use crate::{
    agenda,
    ground::{Content, Ground, Installed},
    profile::Profile,
    signal::Signal,
};

impl Sequence {
    const fn name(&self) -> &'static str {
        match self {
            Self::Reboot => "reboot",
            Self::Shutdown { .. } => "shutdown",
            Self::Reset(_) => "reset",
            Self::Upgrade(_) => "upgrade",
        }
    }

    const fn stage(&self) -> Stage {
        match self {
            Self::Reboot => Stage::Rebooting,
            Self::Shutdown { .. } => Stage::ShuttingDown,
            Self::Reset(_) => Stage::Resetting,
            Self::Upgrade(_) => Stage::Upgrading,
        }
    }

    /// Whether the node is cordoned and drained first.
    const fn drains(&self) -> bool {
        match self {
            Self::Reboot => false,
            Self::Shutdown { force } => !*force,
            Self::Reset(wipe) => wipe.graceful,
            Self::Upgrade(_) => true,
        }
    }
}

impl Machines {
    /// The power button: a machine that runs shuts down as through its API, any other at once.
    pub(super) fn power_button(&mut self, ground: &mut Ground, vmid: VmId) {
        if self.run(vmid).is_some() {
            self.start_sequence(ground, vmid, Sequence::Shutdown { force: false }, "");
        }
    }

    /// Begins a sequence, unless another is under way; a shutdown takes over.
    pub(super) fn start_sequence(
        &mut self,
        ground: &mut Ground,
        vmid: VmId,
        sequence: Sequence,
        actor: &str,
    ) {
        let now = ground.now;
        let drain = self.drain_time(ground, vmid, &sequence);
        let Some(run) = self.run_mut(vmid) else { return };
        let took_over = matches!(sequence, Sequence::Shutdown { .. });
        let same = run.sequence.as_ref().is_some_and(|(other, _)| other.name() == sequence.name());
        if run.sequence.is_some() && (!took_over || same) {
            let error = common::Error {
                code: common::Code::Locked as i32,
                message: "locked".into(),
                details: Vec::new(),
            };
            let event =
                api::SequenceEvent { sequence: sequence.name().into(), action: 0, error: Some(error) };
            run.journal.event(now, "SequenceEvent", &event.encode_to_vec(), actor);
            return;
        }
        let began = run.began;
        run.stage = sequence.stage();
        run.journal.sequence(now, began, sequence.name(), api::sequence_event::Action::Start as i32, actor);
        run.sequence = Some((sequence, actor.to_owned()));
        let instant = ground.profile == Profile::Instant;
        let notice = if instant { takes::LEAST_NOTICE } else { ground.profile.takes(drain) };
        if let Some(machine) = self.by_id.get(&vmid) {
            let event = Event::Step { vmid, start: machine.start, step: Step::Stop };
            ground.agenda.add(now + notice, agenda::Event::Talos(event));
        }
    }

    /// Returns how long draining takes: with no API server to ask, until the limit.
    fn drain_time(&self, ground: &Ground, vmid: VmId, sequence: &Sequence) -> Duration {
        let Some((cluster, _)) = self.run(vmid).and_then(|run| run.node.clone()) else {
            return Duration::ZERO;
        };
        if !sequence.drains() {
            return Duration::ZERO;
        }
        let own = self.kubernetes_of(ground, vmid);
        if own.is_some_and(|own| own == cluster) { takes::DRAIN } else { takes::DRAIN_LIMIT }
    }

    /// Stops everything, after leaving etcd where that was asked for.
    pub(super) fn stop(&mut self, ground: &mut Ground, vmid: VmId) {
        let Some((sequence, actor)) = self.run(vmid).and_then(|run| run.sequence.clone()) else { return };
        let leaves = matches!(&sequence, Sequence::Reset(wipe) if wipe.graceful);
        if leaves && let Err(reason) = self.leave_etcd(ground, vmid) {
            self.abort(ground, vmid, &sequence, &actor, &reason);
            return;
        }
        self.node_down(ground, vmid);
        let now = ground.now;
        let Some(run) = self.run_mut(vmid) else { return };
        run.static_pods = false;
        // Clients that follow a reset or a shutdown wait for this task.
        let task =
            api::TaskEvent { task: "stopAllServices".into(), action: api::task_event::Action::Start as i32 };
        run.journal.event(now, "TaskEvent", &task.encode_to_vec(), &actor);
        for id in ["kubelet", "etcd", "cri", "trustd"] {
            if run.services.contains_key(id) {
                run.move_service(now, id, State::Finished, "Service finished successfully");
            }
        }
        let work = match sequence {
            Sequence::Upgrade(_) => takes::INSTALL,
            Sequence::Reset(_) => takes::WIPE,
            Sequence::Reboot | Sequence::Shutdown { .. } => Duration::ZERO,
        };
        self.after(ground, vmid, takes::STOP + work, Step::Act);
    }

    /// Gives a sequence up and goes on as before.
    fn abort(&mut self, ground: &Ground, vmid: VmId, sequence: &Sequence, actor: &str, reason: &str) {
        let now = ground.now;
        let Some(run) = self.run_mut(vmid) else { return };
        let error = common::Error { message: reason.to_owned(), ..common::Error::default() };
        let event = api::SequenceEvent { sequence: sequence.name().into(), action: 0, error: Some(error) };
        run.journal.event(now, "SequenceEvent", &event.encode_to_vec(), actor);
        let began = run.began;
        run.journal.talos(now, began, &format!("{} failed: {reason}", sequence.name()));
        run.sequence = None;
        run.stage = if run.wanted.is_some() { Stage::Booting } else { Stage::Maintenance };
    }

    /// Takes a machine's member out of etcd, and its data from its disk.
    pub(super) fn leave_etcd(&mut self, ground: &mut Ground, vmid: VmId) -> Result<(), String> {
        let data = self.by_id.get(&vmid).and_then(|machine| machine.etcd_data(&ground.media));
        let Some((cluster, member)) = data else { return Ok(()) };
        let alive = self.alive(ground, &cluster);
        let Some(etcd) = self.clusters.get_mut(&cluster) else { return Ok(()) };
        if etcd.leader.is_none() {
            return Err("failed to leave cluster: etcdserver: no leader".into());
        }
        if etcd.members.len() > 1 && !etcd.can_lose(member, &alive) {
            let reason = "etcdserver: re-configuration failed due to not enough started members";
            return Err(format!("failed to remove member {member}: {reason}"));
        }
        etcd.members.remove(&member);
        etcd.alarms.remove(&member);
        etcd.change();
        if etcd.leader == Some(member) {
            let rest: Vec<u64> = alive.into_iter().filter(|id| *id != member).collect();
            etcd.elect(&rest, None);
        }
        self.write_etcd(ground, vmid, None);
        let now = ground.now;
        if let Some(run) = self.run_mut(vmid) {
            run.move_service(now, "etcd", State::Finished, "Service finished successfully");
            run.static_pods = false;
            run.pods_coming = false;
        }
        Ok(())
    }

    /// Does what was asked for, now that everything is stopped.
    pub(super) fn act(&mut self, ground: &mut Ground, vmid: VmId) {
        let Some((sequence, _)) = self.run(vmid).and_then(|run| run.sequence.clone()) else { return };
        match sequence {
            Sequence::Reboot => self.reboot_now(ground, vmid),
            Sequence::Shutdown { .. } => self.power_off(ground, vmid),
            Sequence::Reset(wipe) => {
                self.wipe(ground, vmid, &wipe);
                if wipe.reboot {
                    self.reboot_now(ground, vmid);
                } else {
                    self.power_off(ground, vmid);
                }
            }
            Sequence::Upgrade(image) => {
                // An installer that fails leaves everything as it was; the machine reboots all the same.
                if self.install_exit_code(ground, vmid, &image) == 0 {
                    self.replace_image(ground, vmid, &image);
                }
                self.reboot_now(ground, vmid);
            }
        }
    }

    fn reboot_now(&mut self, ground: &mut Ground, vmid: VmId) {
        self.node_down(ground, vmid);
        self.restart(ground, vmid);
        ground.send(Signal::Rebooted(vmid));
    }

    fn power_off(&mut self, ground: &mut Ground, vmid: VmId) {
        self.node_down(ground, vmid);
        self.last_words(ground, vmid);
        self.by_id.remove(&vmid);
        ground.guests.remove(&vmid);
        ground.send(Signal::PoweredOff(vmid));
    }

    fn wipe(&self, ground: &mut Ground, vmid: VmId, wipe: &Wipe) {
        let Some(machine) = self.by_id.get(&vmid) else { return };
        for slot in &wipe.disks {
            if let Some(disk) = machine.hardware.disks.iter().find(|disk| disk.slot == *slot) {
                ground.media.set(disk.content, Content::Blank);
            }
        }
        if wipe.spare_system {
            return;
        }
        if wipe.partitions.is_empty() {
            if let Some(index) = machine.system_disk(&ground.media) {
                ground.media.set(machine.hardware.disks[index].content, Content::Blank);
            }
            return;
        }
        machine.change_installed(&mut ground.media, |installed| {
            for label in &wipe.partitions {
                match label.as_str() {
                    "STATE" => installed.config = None,
                    "EPHEMERAL" | "ETCD" => installed.etcd = None,
                    "META" => installed.meta.clear(),
                    _ => {}
                }
            }
        });
    }

    /// Returns how an installer ends on a machine.
    pub(super) fn install_exit_code(&self, ground: &Ground, vmid: VmId, image: &str) -> i32 {
        if Mishaps::name(&self.mishaps.installs, image) {
            return 1;
        }
        let Some(run) = self.run(vmid) else { return 1 };
        let wanted = release::minor(&installer(image, &run.image, ground).talos);
        let (first, end) = release::upgradable_from(wanted);
        // `host version X is too old to upgrade to Talos Y`
        i32::from(run.minor() < first || run.minor() >= end)
    }

    /// Puts another image in front of the one that booted.
    pub(super) fn replace_image(&self, ground: &mut Ground, vmid: VmId, reference: &str) {
        let Some(machine) = self.by_id.get(&vmid) else { return };
        let Some(run) = &machine.run else { return };
        let image = installer(reference, &run.image, ground);
        let running = run.image.clone();
        machine.change_installed(&mut ground.media, |installed| {
            installed.previous = Some(running);
            installed.image = image;
        });
    }

    /// Notes that an installer of the lifecycle service has ended.
    pub(super) fn written(&mut self, ground: &mut Ground, vmid: VmId, image: &str, disk: Option<&str>) {
        if self.install_exit_code(ground, vmid, image) == 0 {
            match disk {
                None => self.replace_image(ground, vmid, image),
                Some(disk) => self.write_disk(ground, vmid, image, disk),
            }
        }
        if let Some(run) = self.run_mut(vmid) {
            run.installing = false;
        }
    }

    fn write_disk(&self, ground: &mut Ground, vmid: VmId, image: &str, disk: &str) {
        let Some(machine) = self.by_id.get(&vmid) else { return };
        let Some(run) = &machine.run else { return };
        let Some(index) = machine.find_disk(disk, None) else { return };
        let installed = Installed {
            image: installer(image, &run.image, ground),
            previous: None,
            config: run.config.clone(),
            meta: run.image.meta.clone(),
            etcd: None,
            boots: 0,
        };
        ground.media.set(machine.hardware.disks[index].content, Content::Installed(Box::new(installed)));
    }

    /// Takes back a config that was only tried.
    pub(super) fn end_trial(&mut self, ground: &mut Ground, vmid: VmId, number: u32) {
        let Some(run) = self.run_mut(vmid) else { return };
        if run.trial.as_ref().is_none_or(|(trial, _)| *trial != number) {
            return;
        }
        let Some((_, before)) = run.trial.take() else { return };
        let wanted = before.as_deref().and_then(|bytes| read_config(bytes).ok().flatten());
        run.config = before;
        run.wanted = wanted;
        if run.wanted.is_none() {
            run.close_services();
        }
        self.set_network(ground, vmid);
        if self.run(vmid).is_some_and(|run| run.wanted.is_none()) {
            self.after(ground, vmid, takes::MAINTENANCE, Step::Maintenance);
        }
    }
}

impl Run {
    /// Back to a machine without a config.
    fn close_services(&mut self) {
        self.api = Api::Closed;
        for id in ["apid", "cri", "kubelet", "etcd", "trustd"] {
            self.services.remove(id);
        }
    }
}
