//! Calls that change what a machine does: reboot, shutdown, reset, upgrade, services and META.

use ichor_talos_proto::{
    code,
    machine::{
        MetaDelete, MetaDeleteRequest, MetaDeleteResponse, MetaWrite, MetaWriteRequest, MetaWriteResponse,
        Reboot, RebootRequest, RebootResponse, Reset, ResetRequest, ResetResponse, Rollback,
        RollbackResponse, ServiceRestart, ServiceRestartResponse, ServiceStart, ServiceStartRequest,
        ServiceStartResponse, ServiceStop, ServiceStopResponse, Shutdown, ShutdownRequest, ShutdownResponse,
        Upgrade, UpgradeRequest, UpgradeResponse, reset_request::WipeMode,
    },
};

use super::{Call, Outcome, Refusal, one, refuse, request};
use crate::{
    ground::Ground,
    talos::{
        Machines, Mishaps,
        life::Step,
        machine::{Sequence, State, Wipe, takes},
    },
};

/// The META partition holds no more than that in one value; the exact limit is not recorded.
const MOST_META: usize = 256 * 1024;

impl Machines {
    pub(super) fn call_power(&mut self, ground: &mut Ground, call: &Call<'_>, name: &str) -> Outcome {
        match name {
            "Reboot" => {
                let _: RebootRequest = request(call.rpc)?;
                let actor_id = self.begin_sequence(ground, call, Sequence::Reboot);
                one(&RebootResponse { messages: vec![Reboot { metadata: None, actor_id }] })
            }
            "Shutdown" => {
                let asked: ShutdownRequest = request(call.rpc)?;
                let actor_id = self.begin_sequence(ground, call, Sequence::Shutdown { force: asked.force });
                one(&ShutdownResponse { messages: vec![Shutdown { metadata: None, actor_id }] })
            }
            "Reset" => {
                let asked: ResetRequest = request(call.rpc)?;
                let wipe = self.plan_wipe(ground, call, &asked)?;
                let actor_id = self.begin_sequence(ground, call, Sequence::Reset(wipe));
                one(&ResetResponse { messages: vec![Reset { metadata: None, actor_id }] })
            }
            "Upgrade" => self.upgrade(ground, call),
            "Rollback" => self.roll_back(ground, call),
            "MetaWrite" | "MetaDelete" => self.write_meta(ground, call, name),
            _ => self.change_service(ground, call, name),
        }
    }

    fn begin_sequence(&mut self, ground: &mut Ground, call: &Call<'_>, sequence: Sequence) -> String {
        let actor = ground.random.uuid();
        self.start_sequence(ground, call.vmid, sequence, &actor);
        actor
    }

    /// Checks what a reset is to wipe.
    fn plan_wipe(&self, ground: &Ground, call: &Call<'_>, asked: &ResetRequest) -> Result<Wipe, Refusal> {
        let unknown = |text: String| refuse(code::UNKNOWN, text);
        let Some(machine) = self.by_id.get(&call.vmid) else {
            return refuse(code::UNAVAILABLE, "connection closed");
        };
        let mode = WipeMode::try_from(asked.mode).unwrap_or(WipeMode::All);
        let system = machine.system_disk(&ground.media);
        let mut disks = Vec::new();
        if !asked.user_disks_to_wipe.is_empty() && mode == WipeMode::SystemDisk {
            let text = "reset failed: invalid input, wipe mode SYSTEM_DISK doesn't support UserDisksToWipe parameter";
            return unknown(text.into());
        }
        for path in &asked.user_disks_to_wipe {
            let found = machine.disks().into_iter().find(|(name, _)| format!("/dev/{name}") == *path);
            let Some((_, index)) = found else {
                return unknown(format!("reset user disk failed: device {path} wasn't found"));
            };
            if system == Some(index) {
                return unknown(format!("reset user disk failed: device {path} is the system disk"));
            }
            disks.push(machine.hardware.disks[index].slot.clone());
        }
        if !asked.system_partitions_to_wipe.is_empty() && mode == WipeMode::UserDisks {
            let text = "reset failed: invalid input, wipe mode USER_DISKS doesn't support SystemPartitionsToWipe parameter";
            return unknown(text.into());
        }
        let mut partitions = Vec::new();
        for part in &asked.system_partitions_to_wipe {
            if !matches!(part.label.as_str(), "META" | "STATE" | "EPHEMERAL" | "ETCD") || system.is_none() {
                let text = format!(
                    "failed to get volume status with label {:?}: resource VolumeStatuses.block.talos.dev(runtime/{}@undefined) doesn't exist",
                    part.label, part.label
                );
                return unknown(text);
            }
            if part.wipe {
                partitions.push(part.label.clone());
            }
        }
        Ok(Wipe {
            // Partitions that are named but not to be wiped leave nothing to do at the system disk.
            spare_system: mode == WipeMode::UserDisks
                || partitions.is_empty() && !asked.system_partitions_to_wipe.is_empty(),
            partitions,
            disks,
            graceful: asked.graceful,
            reboot: asked.reboot,
        })
    }

    /// The upgrade of releases until 1.12, which later ones still take.
    fn upgrade(&mut self, ground: &mut Ground, call: &Call<'_>) -> Outcome {
        let asked: UpgradeRequest = request(call.rpc)?;
        let installed =
            self.by_id.get(&call.vmid).is_some_and(|machine| machine.installed(&ground.media).is_some());
        if !installed {
            return refuse(code::FAILED_PRECONDITION, "Talos is not installed");
        }
        let image = &asked.image;
        if image.is_empty() || Mishaps::name(&self.mishaps.pulls, image) {
            let text = format!(
                "error validating installer image {image:?}: failed to pull image {image:?}: failed to resolve reference: not found"
            );
            return refuse(code::UNKNOWN, text);
        }
        let control_plane = self.run(call.vmid).is_some_and(super::super::machine::Run::is_control_plane);
        if control_plane && !asked.force && !asked.preserve {
            self.check_etcd_for_upgrade(ground, call)?;
        }
        let actor_id = self.begin_sequence(ground, call, Sequence::Upgrade(image.clone()));
        let ack = "Upgrade request received".to_owned();
        one(&UpgradeResponse { messages: vec![Upgrade { metadata: None, ack, actor_id }] })
    }

    fn check_etcd_for_upgrade(&self, ground: &Ground, call: &Call<'_>) -> Result<(), Refusal> {
        let data = self.by_id.get(&call.vmid).and_then(|machine| machine.etcd_data(&ground.media));
        let etcd = data.as_ref().and_then(|(cluster, _)| self.clusters.get(cluster));
        let Some(etcd) = etcd.filter(|etcd| etcd.leader.is_some()) else {
            return refuse(code::UNKNOWN, "failed to acquire upgrade mutex: context deadline exceeded");
        };
        let invalid =
            |text: String| refuse(code::UNKNOWN, format!("error validating etcd for upgrade: {text}"));
        if etcd.members.len() == 2 {
            return invalid(
                "etcd member count(2) is insufficient to maintain quorum if upgrade commences".into(),
            );
        }
        let alive = self.alive(ground, &etcd.id);
        match etcd.members.keys().find(|id| !alive.contains(id)) {
            Some(id) => invalid(format!(
                "etcd member {id:016x} is not healthy; all members must be healthy to perform an upgrade: context deadline exceeded"
            )),
            None => Ok(()),
        }
    }

    fn roll_back(&mut self, ground: &mut Ground, call: &Call<'_>) -> Outcome {
        let Some(machine) = self.by_id.get(&call.vmid) else {
            return refuse(code::UNAVAILABLE, "connection closed");
        };
        let Some(installed) = machine.installed(&ground.media) else {
            return refuse(code::FAILED_PRECONDITION, "system disk not found");
        };
        let Some(previous) = installed.previous.clone() else {
            return refuse(code::UNKNOWN, "previous boot entry not found");
        };
        machine.change_installed(&mut ground.media, |installed| {
            installed.previous = Some(std::mem::replace(&mut installed.image, previous));
        });
        self.begin_sequence(ground, call, Sequence::Reboot);
        one(&RollbackResponse { messages: vec![Rollback::default()] })
    }

    fn write_meta(&mut self, ground: &mut Ground, call: &Call<'_>, name: &str) -> Outcome {
        let key =
            |key: u32| u8::try_from(key).or_else(|_| refuse(code::INVALID_ARGUMENT, "key must be a uint8"));
        let Some(machine) = self.by_id.get(&call.vmid) else {
            return refuse(code::UNAVAILABLE, "connection closed");
        };
        if name == "MetaWrite" {
            let asked: MetaWriteRequest = request(call.rpc)?;
            let key = key(asked.key)?;
            if asked.value.len() > MOST_META {
                return refuse(code::RESOURCE_EXHAUSTED, "meta write failed");
            }
            let value = String::from_utf8_lossy(&asked.value).into_owned();
            machine.change_installed(&mut ground.media, |installed| {
                installed.meta.insert(key, value);
            });
            return one(&MetaWriteResponse { messages: vec![MetaWrite::default()] });
        }
        let asked: MetaDeleteRequest = request(call.rpc)?;
        let key = key(asked.key)?;
        if !machine.meta(&ground.media).contains_key(&key) {
            return refuse(code::NOT_FOUND, "meta key not found");
        }
        machine.change_installed(&mut ground.media, |installed| {
            installed.meta.remove(&key);
        });
        one(&MetaDeleteResponse { messages: vec![MetaDelete::default()] })
    }

    /// Starts, stops and restarts services; only some can be.
    fn change_service(&mut self, ground: &mut Ground, call: &Call<'_>, name: &str) -> Outcome {
        let asked: ServiceStartRequest = request(call.rpc)?;
        let id = asked.id;
        let now = ground.now;
        let verb = match name {
            "ServiceStart" => "start",
            "ServiceStop" => "stop",
            _ => "restart",
        };
        let Some(run) = self.run_mut(call.vmid) else {
            return refuse(code::UNAVAILABLE, "connection closed");
        };
        if !run.services.contains_key(&id) {
            return refuse(code::UNKNOWN, format!("service {id:?} not defined"));
        }
        // Extensions' services take all three; of Talos' own only some can be restarted.
        let can = id.starts_with("ext-")
            || verb == "restart"
                && matches!(id.as_str(), "kubelet" | "etcd" | "cri" | "trustd" | "apid" | "dashboard");
        if !can {
            return refuse(code::UNKNOWN, format!("service {id:?} doesn't support {verb} operation via API"));
        }
        match verb {
            "start" => run.move_service(now, &id, State::Running, "Started task"),
            "stop" => run.move_service(now, &id, State::Finished, "Service finished successfully"),
            _ if id.starts_with("ext-") || id == "dashboard" || id == "apid" => {
                run.move_service(now, &id, State::Running, "Started task");
                run.check_service(now, &id, true);
            }
            _ => {
                run.move_service(now, &id, State::Finished, "Service finished successfully");
                self.after(ground, call.vmid, takes::start("apid"), Step::Restarted(id.clone()));
            }
        }
        if id == "kubelet" {
            self.node_down(ground, call.vmid);
        }
        let resp = format!(
            "Service {id:?} {}",
            match verb {
                "start" => "started",
                "stop" => "stopped",
                _ => "restarted",
            }
        );
        match verb {
            "start" => one(&ServiceStartResponse { messages: vec![ServiceStart { metadata: None, resp }] }),
            "stop" => one(&ServiceStopResponse { messages: vec![ServiceStop { metadata: None, resp }] }),
            _ => one(&ServiceRestartResponse { messages: vec![ServiceRestart { metadata: None, resp }] }),
        }
    }
}
