//! Installing Talos: onto which disk, and which image.

use ichor_machineconfig::Config;
use ichor_model::{SourceId, VmId};
use ichor_talos_proto::{Message, machine as api};

use super::Step;
use crate::{
    ground::{Content, Ground, Installed, TalosImage},
    talos::{
        Machines, Mishaps,
        machine::{Api, Machine, Sequence, Stage, State, takes},
        wanted::Wanted,
    },
};

impl Machines {
    /// Goes on with a config: to the installer, or to the services.
    pub(in crate::talos) fn go_on(&mut self, ground: &mut Ground, vmid: VmId) {
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

    pub(super) fn finish_install(&mut self, ground: &mut Ground, vmid: VmId) {
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

    pub(super) fn install(&mut self, ground: &mut Ground, vmid: VmId) -> Result<(), String> {
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
}

impl Machine {
    /// Finds the disk that a config means; without a name it is the first.
    pub(in crate::talos) fn find_disk(&self, path: &str, serial: Option<&str>) -> Option<usize> {
        let disks = self.disks();
        if let Some(serial) = serial {
            let has = |index: &usize| self.hardware.disks[*index].serial.as_deref() == Some(serial);
            return disks.into_iter().map(|(_, index)| index).find(has);
        }
        let name = path.strip_prefix("/dev/").unwrap_or(path);
        disks.into_iter().find(|(own, _)| name.is_empty() || own == name).map(|(_, index)| index)
    }
}

/// The first boot of a disk image makes an installed Talos of it.
pub(super) fn settle_on_disk(ground: &mut Ground, content: crate::ground::ContentId, image: &TalosImage) {
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
pub(in crate::talos) fn read_config(bytes: &[u8]) -> Result<Option<Wanted>, String> {
    let config = Config::parse(SourceId::default(), bytes).map_err(|findings| {
        findings.iter().map(|finding| finding.message.clone()).collect::<Vec<_>>().join("; ")
    })?;
    Ok(config.legacy().is_some().then(|| Wanted::read(&config)))
}

/// Returns the image that an installer installs: its tag is the release, its path names platform and schematic.
pub(in crate::talos) fn installer(reference: &str, running: &TalosImage, ground: &Ground) -> TalosImage {
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
