//! From power on to the network, and to maintenance mode where there is no config.

use ichor_model::VmId;
use ichor_talos_proto::{Message, machine as api};

use super::{
    Step,
    install::{read_config, settle_on_disk},
};
use crate::{
    ground::{Content, Ground, Hardware, TalosImage},
    signal::Signal,
    talos::{
        Machines, cloud,
        machine::{Api, Run, Stage, State, has_check, is_modern, network, takes},
        release,
    },
};

impl Machines {
    /// Prints to the console of a machine on which nothing runs.
    pub(super) fn print(ground: &mut Ground, vmid: VmId, text: &str) {
        if let Some(guest) = ground.guests.get_mut(&vmid) {
            guest.print(text);
            guest.print("\r\n");
        }
    }

    /// Looks for something to boot, in boot order.
    pub(super) fn boot(&mut self, ground: &mut Ground, vmid: VmId) {
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
    pub(super) fn fall_back(&mut self, ground: &mut Ground, vmid: VmId) {
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
    pub(super) fn network_up(&mut self, ground: &mut Ground, vmid: VmId) {
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
    pub(in crate::talos) fn set_network(&mut self, ground: &Ground, vmid: VmId) {
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
    pub(in crate::talos) fn keep_config(&self, ground: &mut Ground, vmid: VmId) {
        let Some(machine) = self.by_id.get(&vmid) else { return };
        let config = machine.run.as_ref().and_then(|run| run.config.clone());
        machine.change_installed(&mut ground.media, |installed| installed.config = config);
    }

    /// Opens the API in maintenance mode, and says on the console how to go on.
    pub(super) fn open_maintenance(&mut self, ground: &mut Ground, vmid: VmId) {
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
