//! How a machine comes up, and what happens when something has become possible.

use std::{net::IpAddr, time::Duration};

use ichor_machineconfig::Config;
use ichor_model::{SourceId, VmId};
use ichor_talos_proto::{Message, machine as api};
use serde::{Deserialize, Serialize};

use super::{
    Machines, Mishaps, cloud,
    etcd::{Etcd, Member, Vip},
    machine::{Api, Machine, Run, Sequence, Stage, State, has_check, is_modern, network, takes},
    release,
    wanted::{Pair, Wanted},
};
use crate::{
    agenda,
    clock::Time,
    ground::{AgentInterface, AgentView, Content, Ground, Guest, Hardware, Installed, TalosImage},
    signal::{NodeFacts, Signal},
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

    /// Prints to the console of a machine on which nothing runs.
    fn print(ground: &mut Ground, vmid: VmId, text: &str) {
        if let Some(guest) = ground.guests.get_mut(&vmid) {
            guest.print(text);
            guest.print("\r\n");
        }
    }

    /// Looks for something to boot, in boot order.
    fn boot(&mut self, ground: &mut Ground, vmid: VmId) {
        let Some(machine) = self.by_id.get(&vmid) else { return };
        let Some((image, from_iso)) = bootable(&machine.hardware, ground) else {
            // What the firmware prints depends on it; not recorded.
            Self::print(ground, vmid, "No bootable device.");
            return;
        };
        let hardware = &machine.hardware;
        // A kernel for x86-64-v2 stops in its first milliseconds on an older processor; not recorded.
        if image.arch == "amd64" && !is_modern(&hardware.cpu_type) {
            Self::print(
                ground,
                vmid,
                "This kernel requires an x86-64-v2 CPU, but only detected an older one.",
            );
            return;
        }
        // Below this the initramfs cannot be unpacked; the exact limit is not recorded.
        if hardware.memory_mib < 512 {
            Self::print(ground, vmid, "Kernel panic - not syncing: System is deadlocked on memory");
            return;
        }
        let installed = hardware.disks.iter().any(|disk| is_installed(ground.media.get(disk.content)));
        if from_iso && installed {
            // Installation media since 1.8 carry `talos.halt_if_installed=1`.
            let text = "[talos] Talos is already installed to disk but booted from another media and \
                        talos.halt_if_installed kernel parameter is set. Please reboot from the disk.";
            Self::print(ground, vmid, text);
            return;
        }
        if self.mishaps.boots.contains(&image.talos) {
            Self::print(ground, vmid, "Kernel panic - not syncing: Attempted to kill init!");
            self.after(ground, vmid, takes::FAILED_BOOT, Step::FallBack);
            return;
        }
        self.begin(ground, vmid, image, from_iso);
    }

    /// Starts Talos.
    fn begin(&mut self, ground: &mut Ground, vmid: VmId, image: TalosImage, from_iso: bool) {
        let boot_id = ground.random.uuid();
        let now = ground.now;
        let Some(machine) = self.by_id.get_mut(&vmid) else { return };
        if !from_iso {
            let disk =
                machine.hardware.disks.iter().find(|disk| is_installed(ground.media.get(disk.content)));
            if let Some(disk) = disk {
                settle_on_disk(ground, disk.content, &image);
            }
        }
        let mut run = Run::new(image, from_iso, boot_id, now);
        run.journal.talos(now, now, &format!("initialize sequence: starting ({})", run.image.talos));
        for id in ["machined", "containerd", "udevd", "syslogd", "auditd", "dashboard"] {
            run.move_service(now, id, State::Running, "Started task");
            if has_check(id) {
                run.check_service(now, id, true);
            }
        }
        for extension in run.image.extensions.clone() {
            let name = extension.rsplit('/').next().unwrap_or_default();
            // Only extensions that bring a service show one; the agent's is the one that the lab knows.
            if name == "qemu-guest-agent" && machine.hardware.agent {
                run.move_service(now, "ext-qemu-guest-agent", State::Running, "Started task");
            }
        }
        let minimum = 1024 - 150;
        if machine.hardware.memory_mib < minimum {
            let text = format!(
                "WARNING: memory size is less than recommended: {} MiB; Talos may not work properly",
                machine.hardware.memory_mib
            );
            run.journal.talos(now, now, &text);
        }
        machine.run = Some(run);
        self.after(ground, vmid, takes::NETWORK, Step::Network);
        if !self.mishaps.clocks.contains(&vmid) {
            self.after(ground, vmid, takes::NETWORK + takes::TIME, Step::TimeSynced);
        }
    }

    /// After a failed boot the boot loader takes what booted before; without that nothing ever happens.
    fn fall_back(&mut self, ground: &mut Ground, vmid: VmId) {
        let Some(machine) = self.by_id.get(&vmid) else { return };
        let Some(previous) =
            machine.installed(&ground.media).and_then(|installed| installed.previous.clone())
        else {
            return;
        };
        machine.change_installed(&mut ground.media, |installed| {
            installed.image = previous;
            installed.previous = None;
        });
        self.restart(ground, vmid);
        ground.send(Signal::Rebooted(vmid));
    }

    /// Finds network and config.
    fn network_up(&mut self, ground: &mut Ground, vmid: VmId) {
        let now = ground.now;
        let Some(machine) = self.by_id.get_mut(&vmid) else { return };
        let meta = machine.meta(&ground.media);
        let stored = machine.installed(&ground.media).and_then(|installed| installed.config.clone());
        let Some(run) = machine.run.as_mut() else { return };
        let network_key = meta.get(&ichor_machineconfig::meta::NETWORK_KEY).map(String::as_str);
        run.platform = cloud::platform(&machine.hardware, &ground.media, &run.image.platform, network_key);
        let delivered = run.platform.config.clone();
        if let Some(bytes) = stored.or(delivered) {
            match read_config(&bytes) {
                Ok(wanted) => {
                    run.config = Some(bytes);
                    run.wanted = wanted;
                }
                Err(error) => {
                    let event = api::ConfigLoadErrorEvent { error: error.clone() };
                    run.journal.event(now, "ConfigLoadErrorEvent", &event.encode_to_vec(), "");
                    run.journal.talos(now, run.began, &format!("failed to load config: {error}"));
                }
            }
        }
        self.set_network(ground, vmid);
        if self.run(vmid).is_some_and(|run| run.wanted.is_some()) {
            self.keep_config(ground, vmid);
            self.go_on(ground, vmid);
        } else {
            self.after(ground, vmid, takes::MAINTENANCE, Step::Maintenance);
        }
    }

    /// Works out the network again, and tells who listens.
    pub(super) fn set_network(&mut self, ground: &Ground, vmid: VmId) {
        let Some(machine) = self.by_id.get_mut(&vmid) else { return };
        let Some(run) = machine.run.as_mut() else { return };
        run.network = network(&machine.hardware, run, &mut self.lan);
        let event = api::AddressEvent {
            hostname: run.network.hostname.clone(),
            addresses: run.network.addresses().map(|(address, _)| address.to_string()).collect(),
        };
        run.journal.event(ground.now, "AddressEvent", &event.encode_to_vec(), "");
    }

    /// Writes the config in force to the STATE partition, if there is one.
    pub(super) fn keep_config(&self, ground: &mut Ground, vmid: VmId) {
        let Some(machine) = self.by_id.get(&vmid) else { return };
        let config = machine.run.as_ref().and_then(|run| run.config.clone());
        machine.change_installed(&mut ground.media, |installed| installed.config = config);
    }

    /// Opens the API in maintenance mode, and says on the console how to go on.
    fn open_maintenance(&mut self, ground: &mut Ground, vmid: VmId) {
        let now = ground.now;
        let persona = self.by_id.get(&vmid).and_then(|machine| machine.maintenance_certificate(now));
        let Some(run) = self.run_mut(vmid).filter(|run| run.wanted.is_none()) else { return };
        run.api = Api::Maintenance;
        run.stage = Stage::Maintenance;
        if release::maintenance_is_whole(run.minor()) {
            run.move_service(now, "apid", State::Running, "Started task");
            run.check_service(now, "apid", true);
        }
        let controller = if release::maintenance_is_whole(run.minor()) {
            "runtime.MaintenanceServiceInformController"
        } else {
            "runtime.MaintenanceServiceController"
        };
        let fields = format!("\"component\": \"controller-runtime\", \"controller\": \"{controller}\"");
        let addresses: Vec<String> =
            run.network.addresses().map(|(address, _)| address.to_string()).collect();
        let mut lines = vec![format!("this machine is reachable at: {{{fields}}}")];
        lines.extend(addresses.iter().map(|address| format!("\t{address} {{{fields}}}")));
        if let Some(client) = persona {
            let fingerprint = client.certificate.fingerprint();
            lines.push(format!("server certificate issued {{{fields}, \"fingerprint\": \"{fingerprint}\"}}"));
            if let Some(first) = addresses.first() {
                let apply = format!("\ttalosctl apply-config --insecure --nodes {first}");
                lines.push(format!("upload configuration using talosctl: {{{fields}}}"));
                lines.push(format!("{apply} --file <config.yaml> {{{fields}}}"));
                lines.push(format!("optionally with node fingerprint check: {{{fields}}}"));
                let pinned = format!("--cert-fingerprint '{fingerprint}'");
                lines.push(format!("{apply} {pinned} --file <config.yaml> {{{fields}}}"));
            }
        }
        let began = run.began;
        for line in lines {
            run.journal.talos(now, began, &line);
        }
    }

    /// Goes on with a config: to the installer, or to the services.
    pub(super) fn go_on(&mut self, ground: &mut Ground, vmid: VmId) {
        let now = ground.now;
        let installed =
            self.by_id.get(&vmid).is_some_and(|machine| machine.installed(&ground.media).is_some());
        let Some(run) = self.run_mut(vmid) else { return };
        run.stage = Stage::Booting;
        let began = run.began;
        if !installed {
            run.api = Api::Closed;
            run.stage = Stage::Installing;
            run.journal.sequence(now, began, "install", api::sequence_event::Action::Start as i32, "");
            self.after(ground, vmid, takes::INSTALL, Step::Installed);
            return;
        }
        run.api = Api::Closed;
        run.services.remove("apid");
        run.journal.sequence(now, began, "boot", api::sequence_event::Action::Start as i32, "");
        let mut waiting = vec!["apid", "cri", "kubelet"];
        if run.is_control_plane() {
            waiting.extend(["etcd", "trustd"]);
        }
        for id in waiting {
            run.move_service(now, id, State::Waiting, "Waiting for conditions");
        }
    }

    fn finish_install(&mut self, ground: &mut Ground, vmid: VmId) {
        let now = ground.now;
        let outcome = self.install(ground, vmid);
        let Some(run) = self.run_mut(vmid) else { return };
        let began = run.began;
        if let Err(reason) = outcome {
            // A real machine tries again after a reboot, for ever; the lab shows the failure and stays.
            let event = api::SequenceEvent {
                sequence: "install".into(),
                action: api::sequence_event::Action::Noop as i32,
                error: Some(ichor_talos_proto::common::Error {
                    message: reason.clone(),
                    ..Default::default()
                }),
            };
            run.journal.event(now, "SequenceEvent", &event.encode_to_vec(), "");
            run.journal.talos(now, began, &format!("install sequence failed: {reason}"));
            return;
        }
        run.journal.sequence(now, began, "install", api::sequence_event::Action::Stop as i32, "");
        self.start_sequence(ground, vmid, Sequence::Reboot, "");
    }

    fn install(&mut self, ground: &mut Ground, vmid: VmId) -> Result<(), String> {
        let machine = self.by_id.get(&vmid).ok_or("no machine")?;
        let run = machine.run.as_ref().ok_or("nothing runs")?;
        let wanted = run.wanted.as_ref().and_then(|wanted| wanted.install.clone()).unwrap_or_default();
        let reference = wanted
            .image
            .clone()
            .unwrap_or_else(|| format!("ghcr.io/siderolabs/installer:{}", run.image.talos));
        if Mishaps::name(&self.mishaps.pulls, &reference) {
            return Err(format!("failed to pull image {reference:?}: not found"));
        }
        if Mishaps::name(&self.mishaps.installs, &reference) {
            return Err("task install failed: exit code 1".into());
        }
        let index = machine
            .find_disk(&wanted.disk, wanted.serial.as_deref())
            .ok_or_else(|| format!("no disk matched the expression: {:?}", wanted.disk))?;
        let image = installer(&reference, &run.image, ground);
        let installed = Installed {
            meta: run.image.meta.clone(),
            image,
            previous: None,
            config: run.config.clone(),
            etcd: None,
            boots: 0,
        };
        let content = machine.hardware.disks[index].content;
        ground.media.set(content, Content::Installed(Box::new(installed)));
        Ok(())
    }

    /// Lets everything happen that has become possible.
    pub(super) fn settle(&mut self, ground: &mut Ground) {
        for _ in 0..MOST_ROUNDS {
            let mut changed = self.settle_clusters(ground);
            let all: Vec<VmId> = self.by_id.keys().copied().collect();
            for vmid in all {
                changed |= self.progress(ground, vmid);
            }
            if !changed {
                break;
            }
        }
        self.show(ground);
    }

    /// Returns the members of a cluster whose machines serve etcd.
    pub fn alive(&self, ground: &Ground, cluster: &str) -> Vec<u64> {
        let Some(etcd) = self.clusters.get(cluster) else { return Vec::new() };
        let serves = |id: &u64, member: &Member| {
            self.by_id.get(&member.vmid).is_some_and(|machine| {
                machine.run.as_ref().is_some_and(Run::serves_etcd)
                    && machine.etcd_data(&ground.media).is_some_and(|data| data == (etcd.id.clone(), *id))
            })
        };
        etcd.members.iter().filter(|(id, member)| serves(id, member)).map(|(id, _)| *id).collect()
    }

    fn settle_clusters(&mut self, ground: &mut Ground) -> bool {
        let mut changed = false;
        let ids: Vec<String> = self.clusters.keys().cloned().collect();
        for id in ids {
            let alive = self.alive(ground, &id);
            let wanted = self.wanted_vips(&id);
            let Some(etcd) = self.clusters.get_mut(&id) else { continue };
            if etcd.leader.is_some_and(|leader| !alive.contains(&leader)) || !etcd.has_quorum(&alive) {
                changed |= etcd.leader.take().is_some();
            }
            if etcd.leader.is_none() && !etcd.electing && etcd.has_quorum(&alive) {
                etcd.electing = true;
                changed = true;
                ground.after(takes::ELECTION, agenda::Event::Talos(Event::Elect(id.clone())));
            }
            changed |= self.settle_vips(ground, &id, &wanted);
        }
        changed
    }

    /// Returns the shared addresses that machines of a cluster want, with those who could hold them.
    fn wanted_vips(&self, cluster: &str) -> Vec<(IpAddr, VmId)> {
        let Some(etcd) = self.clusters.get(cluster) else { return Vec::new() };
        let mut vips = Vec::new();
        for member in etcd.members.values().filter(|member| !member.learner) {
            let Some(run) = self.run(member.vmid) else { continue };
            if run.is_healthy("etcd") && run.sequence.is_none() {
                let wanted = run.wanted.iter().flat_map(|wanted| &wanted.vips);
                vips.extend(wanted.map(|address| (*address, member.vmid)));
            }
        }
        vips.sort_unstable();
        vips
    }

    fn settle_vips(&mut self, ground: &mut Ground, cluster: &str, wanted: &[(IpAddr, VmId)]) -> bool {
        let Some(etcd) = self.clusters.get_mut(cluster) else { return false };
        let has_leader = etcd.leader.is_some();
        for (address, _) in wanted {
            etcd.vips.entry(*address).or_default();
        }
        let mut changed = false;
        for (address, vip) in &mut etcd.vips {
            let able = |holder: VmId| wanted.iter().any(|(other, vmid)| other == address && *vmid == holder);
            // A first holder takes it at once; after a crash the old lease has to run out.
            let delay = if vip.holder.is_some() { takes::VIP } else { takes::ELECTION };
            if vip.holder.is_some_and(|holder| !able(holder)) {
                vip.holder = None;
                changed = true;
            }
            let candidates = wanted.iter().any(|(other, _)| other == address);
            if vip.holder.is_none() && !vip.moving && candidates && has_leader {
                vip.moving = true;
                changed = true;
                ground.after(delay, agenda::Event::Talos(Event::Vip(cluster.to_owned(), *address)));
            }
        }
        changed
    }

    fn take_vip(&mut self, cluster: &str, address: IpAddr) {
        let wanted = self.wanted_vips(cluster);
        let Some(etcd) = self.clusters.get_mut(cluster) else { return };
        let leads = etcd.leader.is_some();
        let holder = wanted.iter().find(|(other, _)| *other == address).map(|(_, vmid)| *vmid);
        etcd.vips.insert(address, Vip { holder: holder.filter(|_| leads), moving: false });
    }

    /// Whether a machine can reach another through discovery or the endpoint of its config.
    fn reaches(&self, from: &Wanted, other: VmId) -> bool {
        let Some(run) = self.run(other) else { return false };
        let Some(wanted) = &run.wanted else { return false };
        let discovered = from.discovery
            && wanted.discovery
            && !from.cluster_id.is_empty()
            && (&from.cluster_id, &from.cluster_secret) == (&wanted.cluster_id, &wanted.cluster_secret);
        let at_endpoint = match from.endpoint_host().parse::<IpAddr>() {
            Ok(address) => self.owner(address).is_some_and(|machine| machine.vmid() == other),
            // The lab has no DNS: a name leads to every control plane with the same endpoint.
            Err(_) => from.endpoint_host() == wanted.endpoint_host(),
        };
        discovered || at_endpoint
    }

    /// Returns what a machine's server certificate is signed with: the CA of its own config, or trustd's.
    fn signs_for(&self, vmid: VmId) -> Option<Pair> {
        let wanted = self.run(vmid)?.wanted.as_ref()?;
        if !wanted.os.key.is_empty() {
            return Some(wanted.os.clone());
        }
        let mut others = self.by_id.values().filter_map(|machine| machine.run.as_ref()?.wanted.as_ref());
        others
            .find(|other| other.os.certificate == wanted.os.certificate && !other.os.key.is_empty())
            .map(|other| other.os.clone())
    }

    /// Whether some control plane's trustd would sign a worker's certificate.
    fn finds_trustd(&self, wanted: &Wanted) -> bool {
        self.by_id.iter().any(|(vmid, machine)| {
            machine.run.as_ref().is_some_and(|run| {
                let same = run.wanted.as_ref().is_some_and(|other| {
                    other.is_control_plane()
                        && other.os.certificate == wanted.os.certificate
                        && other.token == wanted.token
                });
                same && run.runs("trustd") && self.reaches(wanted, *vmid)
            })
        })
    }

    /// Returns the Kubernetes cluster that a machine belongs to, once its API server answers.
    pub(super) fn kubernetes_of(&self, ground: &Ground, vmid: VmId) -> Option<String> {
        let wanted = self.run(vmid)?.wanted.as_ref()?;
        let own = self.by_id.get(&vmid)?.etcd_data(&ground.media).map(|(cluster, _)| cluster);
        self.clusters
            .values()
            .filter(|etcd| etcd.leader.is_some() && own.as_ref().is_none_or(|own| *own == etcd.id))
            .find(|etcd| {
                etcd.members.values().any(|member| {
                    let Some(run) = self.run(member.vmid).filter(|run| run.static_pods) else { return false };
                    let known = run.wanted.as_ref().is_some_and(|other| {
                        other.bootstrap_token == wanted.bootstrap_token
                            && other.kubernetes.certificate == wanted.kubernetes.certificate
                    });
                    known && (member.vmid == vmid || self.reaches(wanted, member.vmid))
                })
            })
            .map(|etcd| etcd.id.clone())
    }

    /// Lets a machine do what it can do now; says whether it did anything.
    fn progress(&mut self, ground: &mut Ground, vmid: VmId) -> bool {
        let now = ground.now;
        let Some(run) = self.run(vmid) else { return false };
        let Some(wanted) = run.wanted.clone() else { return false };
        if run.sequence.is_some() || run.stage == Stage::Installing || !run.network.up {
            return false;
        }
        let trusted = wanted.is_control_plane() || self.finds_trustd(&wanted);
        let ready = run.is_healthy("cri") && run.time_synced;
        let starting: Vec<&str> = [("apid", trusted), ("trustd", true), ("cri", true), ("kubelet", ready)]
            .into_iter()
            .filter(|(id, can)| {
                *can && run.services.get(*id).is_some_and(|service| service.state == State::Waiting)
            })
            .map(|(id, _)| id)
            .collect();
        let mut changed = !starting.is_empty();
        for id in starting {
            if let Some(run) = self.run_mut(vmid) {
                run.move_service(now, id, State::Preparing, "Running pre state");
            }
            self.after(ground, vmid, takes::start(id), Step::Started(id.to_owned()));
        }
        if wanted.is_control_plane() && ready {
            changed |= self.progress_etcd(ground, vmid, &wanted);
        }
        changed |= self.progress_node(ground, vmid, &wanted);
        changed |= self.progress_stage(now, vmid, &wanted);
        changed
    }

    fn progress_etcd(&mut self, ground: &mut Ground, vmid: VmId, wanted: &Wanted) -> bool {
        let now = ground.now;
        let data = self.by_id.get(&vmid).and_then(|machine| machine.etcd_data(&ground.media));
        let leads = data.as_ref().and_then(|(cluster, _)| self.clusters.get(cluster));
        let leads = leads.is_some_and(|etcd| etcd.leader.is_some());
        let member = data.as_ref().is_some_and(|(cluster, member)| {
            self.clusters.get(cluster).is_some_and(|etcd| etcd.members.contains_key(member))
        });
        let learner = data.as_ref().is_some_and(|(cluster, member)| {
            let etcd = self.clusters.get(cluster);
            etcd.and_then(|etcd| etcd.members.get(member)).is_some_and(|member| member.learner)
        });
        let Some(run) = self.run_mut(vmid) else { return false };
        let Some(state) = run.services.get("etcd").map(|service| service.state) else { return false };
        let healthy = run.services.get("etcd").and_then(|service| service.healthy);
        match state {
            State::Waiting | State::Preparing if data.is_some() && !member => {
                let text = "the member has been permanently removed from the cluster";
                run.move_service(now, "etcd", State::Failed, text);
                true
            }
            State::Waiting | State::Preparing if data.is_some() => {
                run.move_service(now, "etcd", State::Starting, "Starting service");
                self.after(ground, vmid, takes::start("etcd"), Step::Started("etcd".into()));
                true
            }
            State::Waiting => {
                run.move_service(now, "etcd", State::Preparing, "Running pre state");
                ground.usable(format!("etcd {vmid}"));
                true
            }
            State::Preparing => self.join(ground, vmid, wanted),
            State::Running if !member => {
                let text = "the member has been permanently removed from the cluster";
                run.move_service(now, "etcd", State::Failed, text);
                run.static_pods = false;
                run.pods_coming = false;
                true
            }
            State::Running if healthy.is_some() && healthy != Some(leads) => {
                run.check_service(now, "etcd", leads);
                true
            }
            State::Running if learner && leads && run.is_healthy("etcd") && !run.promoting => {
                run.promoting = true;
                self.after(ground, vmid, takes::PROMOTION, Step::Promoted);
                true
            }
            State::Running => {
                let ready = run.is_healthy("etcd") && run.is_healthy("kubelet") && !learner;
                if ready && !run.pods_coming {
                    run.pods_coming = true;
                    self.after(ground, vmid, takes::STATIC_PODS, Step::Pods);
                    return true;
                }
                false
            }
            _ => false,
        }
    }

    /// Joins an etcd cluster that can be reached, as a learner.
    fn join(&mut self, ground: &mut Ground, vmid: VmId, wanted: &Wanted) -> bool {
        let Some(address) = self.run(vmid).and_then(|run| run.network.first()) else { return false };
        let name = self.run(vmid).map(|run| run.network.hostname.clone()).unwrap_or_default();
        let found = self.clusters.values().find(|etcd| {
            etcd.leader.is_some()
                && etcd.ca == wanted.etcd.certificate
                // etcd takes one learner at a time.
                && !etcd.members.values().any(|member| member.learner && member.vmid != vmid)
                && etcd.members.values().any(|member| {
                    self.run(member.vmid).is_some_and(|run| run.is_healthy("etcd"))
                        && self.reaches(wanted, member.vmid)
                })
        });
        let Some(id) = found.map(|etcd| etcd.id.clone()) else { return false };
        let member = ground.random.bits() | 1;
        let alive = self.alive(ground, &id);
        let Some(etcd) = self.clusters.get_mut(&id) else { return false };
        // A former self is taken out first; etcd refuses that if it would cost the quorum.
        let stale: Vec<u64> =
            etcd.members.iter().filter(|(_, other)| other.address == address).map(|(id, _)| *id).collect();
        if stale.iter().any(|id| !etcd.can_lose(*id, &alive)) {
            return false;
        }
        etcd.members.retain(|id, _| !stale.contains(id));
        etcd.members.insert(member, Member { name, address, learner: true, vmid });
        etcd.change();
        self.write_etcd(ground, vmid, Some((&id, member)));
        true
    }

    /// Writes down whose member a machine's disk holds.
    pub(super) fn write_etcd(&self, ground: &mut Ground, vmid: VmId, data: Option<(&str, u64)>) {
        let data = data.map(
            |(cluster, member)| serde_json::json!({ "cluster": cluster, "member": format!("{member:016x}") }),
        );
        if let Some(machine) = self.by_id.get(&vmid) {
            machine.change_installed(&mut ground.media, |installed| installed.etcd = data);
        }
    }

    fn promote(&mut self, ground: &mut Ground, vmid: VmId) {
        let data = self.by_id.get(&vmid).and_then(|machine| machine.etcd_data(&ground.media));
        let Some((cluster, id)) = data else { return };
        let alive = self.alive(ground, &cluster);
        let Some(etcd) = self.clusters.get_mut(&cluster) else { return };
        let able = etcd.leader.is_some() && alive.contains(&id);
        if let Some(run) = self.by_id.get_mut(&vmid).and_then(|machine| machine.run.as_mut()) {
            run.promoting = false;
        }
        // Otherwise it is tried again as soon as there is a leader.
        if !able {
            return;
        }
        if let Some(member) = etcd.members.get_mut(&id) {
            member.learner = false;
        }
        etcd.change();
    }

    /// Makes a cluster of one, perhaps from a snapshot.
    pub(super) fn found(&mut self, ground: &mut Ground, vmid: VmId, snapshot: Option<Vec<u8>>) {
        ground.needs(&format!("etcd {vmid}"));
        let Some(run) = self.run(vmid) else { return };
        let (Some(address), Some(wanted)) = (run.network.first(), run.wanted.clone()) else { return };
        let name = run.network.hostname.clone();
        let id = ground.random.bits() | 1;
        let member = Member { name, address, learner: false, vmid };
        let etcd = Etcd::new(id, member, &wanted.etcd.certificate);
        let cluster = etcd.id.clone();
        self.clusters.insert(cluster.clone(), etcd);
        self.write_etcd(ground, vmid, Some((&cluster, id)));
        ground.send(Signal::ClusterBorn { cluster, snapshot, ca_pem: wanted.kubernetes.certificate });
    }

    fn progress_node(&mut self, ground: &mut Ground, vmid: VmId, wanted: &Wanted) -> bool {
        let Some(run) = self.run(vmid) else { return false };
        if run.node.is_some() || !run.is_healthy("kubelet") {
            return false;
        }
        let Some(cluster) = self.kubernetes_of(ground, vmid) else { return false };
        let pod_network = self.brings_pod_network(&cluster);
        let Some(machine) = self.by_id.get_mut(&vmid) else { return false };
        let Some(run) = machine.run.as_mut() else { return false };
        let name = run.network.hostname.clone();
        let node = node_facts(&machine.hardware, run, wanted, pod_network);
        run.pod_network = pod_network;
        run.node = Some((cluster.clone(), name));
        ground.send(Signal::NodeUp { cluster, node: Box::new(node) });
        true
    }

    /// Whether the control plane of a cluster installs a pod network; the configs of workers do not say.
    fn brings_pod_network(&self, cluster: &str) -> bool {
        let members = self.clusters.get(cluster).into_iter().flat_map(|etcd| etcd.members.values());
        members.filter_map(|member| self.run(member.vmid)?.wanted.as_ref()).any(|wanted| wanted.cni_included)
    }

    /// Tells Kubernetes that a node no longer reports.
    pub(super) fn node_down(&mut self, ground: &mut Ground, vmid: VmId) {
        if let Some((cluster, name)) = self.run_mut(vmid).and_then(|run| run.node.take()) {
            ground.send(Signal::NodeDown { cluster, name });
        }
    }

    fn progress_stage(&mut self, now: Time, vmid: VmId, wanted: &Wanted) -> bool {
        let Some(run) = self.run_mut(vmid).filter(|run| run.stage == Stage::Booting) else { return false };
        let mut needed = vec!["apid", "cri", "kubelet"];
        if wanted.is_control_plane() {
            needed.extend(["etcd", "trustd"]);
        }
        if !needed.iter().all(|id| run.is_healthy(id)) {
            return false;
        }
        run.stage = Stage::Running;
        let began = run.began;
        run.journal.sequence(now, began, "boot", api::sequence_event::Action::Stop as i32, "");
        true
    }

    /// Returns what a machine still lacks to be ready.
    pub(super) fn unmet(ground: &Ground, machine: &Machine) -> Vec<(String, String)> {
        let mut unmet = Vec::new();
        let Some(run) = &machine.run else { return unmet };
        let mut add = |name: &str, reason: String| unmet.push((name.to_owned(), reason));
        let Some(wanted) = &run.wanted else { return unmet };
        if !matches!(run.stage, Stage::Booting | Stage::Running) {
            return unmet;
        }
        if !run.time_synced && !wanted.time_disabled {
            add("time", "time is not synced".into());
        }
        if run.network.first().is_none() {
            add("network", "waiting on: address, connectivity".into());
        }
        let mut ids = vec!["apid", "machined", "kubelet"];
        if wanted.is_control_plane() {
            ids.extend(["etcd", "trustd"]);
        }
        ids.sort_unstable();
        let problems: Vec<String> = ids
            .iter()
            .filter(|id| !run.is_healthy(id))
            .map(|id| if run.runs(id) { format!("{id} not healthy") } else { format!("{id} not running") })
            .collect();
        if !problems.is_empty() {
            add("services", problems.join(", "));
        }
        let name = &run.network.hostname;
        if wanted.is_control_plane() && !run.static_pods {
            let pods = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];
            let reasons: Vec<String> =
                pods.iter().map(|pod| format!("kube-system/{pod}-{name} not ready")).collect();
            add("staticPods", reasons.join(", "));
        }
        let view =
            run.node.as_ref().and_then(|(cluster, node)| ground.kubernetes.get(cluster)?.nodes.get(node));
        match (&run.node, view) {
            (Some(_), Some(view)) if view.ready => {}
            (Some(_), Some(_)) => add("nodeReady", format!("node {name:?} is not ready")),
            // Where no part of the lab speaks for Kubernetes, a node with its own pod network counts as ready.
            (Some((cluster, _)), None) if !ground.kubernetes.contains_key(cluster) && run.pod_network => {}
            _ => add("nodeReady", format!("node {name:?} status is not available yet")),
        }
        unmet
    }

    /// Shows consoles and agents to Proxmox, status to those who listen, and resources to those who watch.
    fn show(&mut self, ground: &mut Ground) {
        let all: Vec<VmId> = self.by_id.keys().copied().collect();
        for vmid in all {
            let Some(machine) = self.by_id.get(&vmid) else { continue };
            let unmet = Self::unmet(ground, machine);
            let agent = machine.hardware.agent && !self.mishaps.agents.contains(&vmid);
            let Some(run) = self.run_mut(vmid) else { continue };
            let now = ground.now;
            if run.told.as_ref() != Some(&(run.stage, unmet.clone())) {
                run.tell_status(now, &unmet);
            }
            let printed = run.journal.take_console();
            let view = (agent && run.runs("ext-qemu-guest-agent") && run.network.up).then(|| agent_view(run));
            if let Some(guest) = ground.guests.get_mut(&vmid) {
                guest.print(&printed);
                guest.agent = view;
            }
        }
        self.watch(ground);
    }
}

impl Run {
    /// Says which stage a machine is in and what it lacks.
    fn tell_status(&mut self, now: Time, unmet: &[(String, String)]) {
        use api::machine_status_event::{MachineStatus, machine_status::UnmetCondition};
        let conditions = unmet
            .iter()
            .map(|(name, reason)| UnmetCondition { name: name.clone(), reason: reason.clone() })
            .collect();
        let event = api::MachineStatusEvent {
            stage: self.stage.number(),
            status: Some(MachineStatus { ready: unmet.is_empty(), unmet_conditions: conditions }),
        };
        self.journal.event(now, "MachineStatusEvent", &event.encode_to_vec(), "");
        self.told = Some((self.stage, unmet.to_vec()));
    }
}

impl Machine {
    /// Finds the disk that a config means; without a name it is the first.
    pub(super) fn find_disk(&self, path: &str, serial: Option<&str>) -> Option<usize> {
        let disks = self.disks();
        if let Some(serial) = serial {
            let has = |index: &usize| self.hardware.disks[*index].serial.as_deref() == Some(serial);
            return disks.into_iter().map(|(_, index)| index).find(has);
        }
        let name = path.strip_prefix("/dev/").unwrap_or(path);
        disks.into_iter().find(|(own, _)| name.is_empty() || own == name).map(|(_, index)| index)
    }
}

fn is_installed(content: &Content) -> bool {
    match content {
        Content::Installed(_) => true,
        Content::Image(image) => !image.iso,
        Content::Blank | Content::Bytes(_) => false,
    }
}

/// Finds what boots: the first device in boot order that holds Talos.
fn bootable(hardware: &Hardware, ground: &Ground) -> Option<(TalosImage, bool)> {
    use crate::ground::DiscKind;
    hardware.boot_order.iter().find_map(|slot| {
        if let Some(disk) = hardware.disks.iter().find(|disk| disk.slot == *slot) {
            return match ground.media.get(disk.content) {
                Content::Installed(installed) => Some((installed.image.clone(), false)),
                Content::Image(image) if !image.iso => Some((image.clone(), false)),
                _ => None,
            };
        }
        let disc = hardware.discs.iter().find(|disc| disc.slot == *slot)?;
        let DiscKind::File(content) = disc.kind else { return None };
        match ground.media.get(content) {
            Content::Image(image) if image.iso => Some((image.clone(), true)),
            _ => None,
        }
    })
}

/// The first boot of a disk image makes an installed Talos of it.
fn settle_on_disk(ground: &mut Ground, content: crate::ground::ContentId, image: &TalosImage) {
    let mut installed = match ground.media.get(content) {
        Content::Installed(installed) => installed.clone(),
        _ => Box::new(Installed {
            image: image.clone(),
            previous: None,
            config: None,
            meta: image.meta.clone(),
            etcd: None,
            boots: 0,
        }),
    };
    installed.boots += 1;
    ground.media.set(content, Content::Installed(installed));
}

/// Reads a config that was stored or delivered. Without the v1alpha1 document it asks for nothing yet.
pub(super) fn read_config(bytes: &[u8]) -> Result<Option<Wanted>, String> {
    let config = Config::parse(SourceId::default(), bytes).map_err(|findings| {
        findings.iter().map(|finding| finding.message.clone()).collect::<Vec<_>>().join("; ")
    })?;
    Ok(config.legacy().is_some().then(|| Wanted::read(&config)))
}

/// Returns the image that an installer installs: its tag is the release, its path names platform and schematic.
pub(super) fn installer(reference: &str, running: &TalosImage, ground: &Ground) -> TalosImage {
    let bare = reference.split('@').next().unwrap_or_default();
    let (path, tag) = bare.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')).unwrap_or((bare, ""));
    let parts: Vec<&str> = path.split('/').collect();
    let is_schematic = |part: &&&str| part.len() == 64 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let schematic = parts.iter().find(is_schematic).map(|part| (*part).to_owned());
    let platform = parts
        .iter()
        .find_map(|part| part.strip_suffix("-secureboot").unwrap_or(part).strip_suffix("-installer"));
    let schematic = schematic.unwrap_or_else(|| {
        // The plain installer has no schematic of its own; the empty one stands for it.
        "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba".to_owned()
    });
    let extensions = if schematic == running.schematic {
        running.extensions.clone()
    } else {
        ground.schematics.get(&schematic).cloned().unwrap_or_default()
    };
    // From 1.10 on an installer brings the kernel arguments of its schematic; those before take what is there.
    let plain_names = if schematic == running.schematic {
        running.plain_names
    } else {
        ground.plain_names.contains(&schematic)
    };
    TalosImage {
        talos: if tag.is_empty() { running.talos.clone() } else { tag.to_owned() },
        schematic,
        platform: platform.unwrap_or(&running.platform).to_owned(),
        arch: running.arch.clone(),
        secureboot: parts.iter().any(|part| part.ends_with("-secureboot")),
        iso: false,
        extensions,
        plain_names,
        meta: running.meta.clone(),
        virtual_size: running.virtual_size,
    }
}

fn node_facts(hardware: &Hardware, run: &Run, wanted: &Wanted, cni_included: bool) -> NodeFacts {
    NodeFacts {
        name: run.network.hostname.clone(),
        addresses: run.network.addresses().map(|(address, _)| address.to_string()).collect(),
        control_plane: wanted.is_control_plane(),
        labels: wanted.labels.clone(),
        annotations: wanted.annotations.clone(),
        taints: wanted.taints.clone(),
        kubelet: wanted.version_of("kubelet"),
        talos: run.image.talos.clone(),
        cni_included,
        external_cloud_provider: wanted.external_cloud_provider,
        cpus: hardware.cpus,
        memory_mib: hardware.memory_mib,
    }
}

/// The release of the kernel that guest agents tell.
const KERNEL: &str = "6.18.9-talos";

fn agent_view(run: &Run) -> AgentView {
    let loopback = AgentInterface {
        name: "lo".into(),
        mac: Some("00:00:00:00:00:00".into()),
        addresses: vec![(IpAddr::from([127, 0, 0, 1]), 8)],
    };
    let links = run.network.links.iter().map(|link| AgentInterface {
        name: link.name.clone(),
        mac: Some(link.mac.clone()),
        addresses: link.addresses.clone(),
    });
    AgentView {
        hostname: run.network.hostname.clone(),
        version: run.image.talos.clone(),
        kernel: KERNEL.into(),
        interfaces: std::iter::once(loopback).chain(links).collect(),
    }
}
