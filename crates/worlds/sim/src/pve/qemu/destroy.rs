//! Deleting VMs.

use std::{collections::BTreeSet, time::Duration};

use ichor_model::VmId;
use serde::{Deserialize, Serialize};

use super::{
    config::drives,
    disks, load, load_mut,
    update::owns,
    work::{LOCK_WAIT, Waiter},
};
use crate::{
    ground::Ground,
    pve::{
        ApiError, Call, Datacentre, Next, Params, Reply, Worker, drive::is_unused, qemu,
        storage::volume::VolumeId, tasks,
    },
};

/// How long it takes to remove a volume.
const REMOVING: Duration = Duration::from_secs(1);

/// Answers `DELETE /nodes/{node}/qemu/{vmid}`.
pub fn destroy(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let (vmid, host) = (params.path_vmid(), params.host());
    if params.flag("skiplock") && !call.caller.is_root() {
        return Err(ApiError::param("skiplock", "Only root may use this option.").into());
    }
    let work = Destroy {
        vmid,
        host: host.clone(),
        purge: params.flag("purge"),
        skip_lock: params.flag("skiplock"),
        unreferenced: params.flag("destroy-unreferenced-disks"),
        waiter: Waiter::default(),
        volumes: None,
        removing: false,
    };
    work.check(dc)?;
    let work = tasks::Work::Qemu(qemu::Work::Destroy(work));
    Ok(tasks::start(dc, ground, &host, "qmdestroy", &vmid.to_string(), &call.caller.id, work).into())
}

/// The task `qmdestroy`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Destroy {
    vmid: VmId,
    host: String,
    purge: bool,
    skip_lock: bool,
    unreferenced: bool,
    waiter: Waiter,
    /// Volumes still to be removed, and whether they were named by the config.
    volumes: Option<Vec<(String, bool)>>,
    removing: bool,
}

impl Destroy {
    fn check(&self, dc: &Datacentre) -> Result<(), ApiError> {
        let vmid = self.vmid;
        let vm = load(dc, &self.host, vmid)?;
        vm.config.check_protection(&format!("can't remove VM {vmid}")).map_err(ApiError::server)?;
        if !self.purge && dc.ha.manages(vmid) {
            let text =
                format!("unable to remove VM {vmid} - used in HA resources and purge parameter not set.");
            return Err(ApiError::server(text));
        }
        if vm.runs() {
            return Err(ApiError::server(format!("VM {vmid} is running - destroy failed")));
        }
        Ok(())
    }

    /// Does the next stretch.
    pub fn step(&mut self, dc: &mut Datacentre, ground: &mut Ground, worker: &mut Worker) -> Next {
        self.advance(dc, ground, worker).into()
    }

    fn advance(
        &mut self,
        dc: &mut Datacentre,
        ground: &mut Ground,
        worker: &mut Worker,
    ) -> Result<Option<Next>, ApiError> {
        if self.volumes.is_none() {
            if let Some(next) = self.waiter.take_vm(dc, ground, worker, self.vmid)? {
                return Ok(Some(next));
            }
            self.check(dc)?;
            self.check_use(dc)?;
            self.volumes = Some(self.volumes_of(dc)?);
        }
        while let Some((volume, named)) = self.volumes.as_ref().and_then(|volumes| volumes.first().cloned()) {
            if let Some(next) = self.remove(dc, ground, worker, &volume, named) {
                return Ok(Some(next));
            }
            if let Some(volumes) = &mut self.volumes {
                volumes.remove(0);
            }
        }
        self.forget(dc, worker)?;
        Ok(None)
    }

    /// Refuses to remove what is locked or what linked clones need.
    fn check_use(&self, dc: &Datacentre) -> Result<(), ApiError> {
        let config = &load(dc, &self.host, self.vmid)?.config;
        if !self.skip_lock && config.lock() != Some("suspended") {
            config.check_lock().map_err(ApiError::server)?;
        }
        if !config.is_template() {
            return Ok(());
        }
        let unused = config.current.iter().filter(|(key, _)| is_unused(key)).map(|(_, value)| value.clone());
        let drives = config.drives().into_iter().filter(|drive| !drive.is_disc());
        for volume in drives.map(|drive| drive.file().to_owned()).chain(unused) {
            if dc.storage.is_base_in_use(&self.host, &volume) {
                let text = format!("base volume '{volume}' is still in use by linked cloned");
                return Err(ApiError::server(text));
            }
        }
        Ok(())
    }

    /// Returns the volumes that the VM owns, in the server's order, each once.
    fn volumes_of(&self, dc: &Datacentre) -> Result<Vec<(String, bool)>, ApiError> {
        let config = &load(dc, &self.host, self.vmid)?.config;
        let mut seen = BTreeSet::new();
        let mut volumes = Vec::new();
        let mut add = |volume: &str| {
            if owns(dc, self.vmid, volume) && seen.insert(volume.to_owned()) {
                volumes.push((volume.to_owned(), true));
            }
        };
        for section in [&config.current, &config.pending] {
            for drive in drives(section).iter().filter(|drive| !drive.is_plain_disc()) {
                add(drive.file());
            }
            for (_, volume) in section.iter().filter(|(key, _)| is_unused(key) || *key == "vmstate") {
                add(volume);
            }
        }
        for volume in config.snapshots.values().filter_map(|section| section.get("vmstate")) {
            add(volume);
        }
        if self.unreferenced {
            for volume in dc.storage.disks_of(&self.host, self.vmid.number()) {
                if !volumes.iter().any(|(other, _)| *other == volume) {
                    volumes.push((volume, false));
                }
            }
        }
        Ok(volumes)
    }

    fn remove(
        &mut self,
        dc: &mut Datacentre,
        ground: &mut Ground,
        worker: &mut Worker,
        volume: &str,
        named: bool,
    ) -> Option<Next> {
        let storage = VolumeId::read(volume).map(|id| id.storage).unwrap_or_default();
        let (lock, mode) = disks::storage_lock(dc, &self.host, &storage);
        let outcome = if self.removing {
            dc.storage.free(&self.host, volume, &mut ground.media)
        } else {
            match self.waiter.take(dc, ground, worker, &lock, mode, LOCK_WAIT) {
                Ok(Some(next)) => return Some(next),
                Ok(None) => {
                    self.removing = true;
                    return Some(Next::After(REMOVING));
                }
                Err(error) => Err(error.reason().to_owned()),
            }
        };
        self.removing = false;
        worker.unlock(dc, &lock);
        match outcome {
            Ok(done) => worker.log.extend(done.printed),
            Err(text) if named => {
                worker.warn(&format!("Could not remove disk '{volume}', check manually: {text}"));
            }
            Err(text) => worker.warn(&text),
        }
        None
    }

    /// Forgets the VM everywhere.
    fn forget(&self, dc: &mut Datacentre, worker: &mut Worker) -> Result<(), ApiError> {
        let vmid = self.vmid;
        load_mut(dc, &self.host, vmid)?;
        dc.forget_vm_access(vmid);
        dc.remove_firewall(vmid);
        if self.purge {
            worker.say(format!("purging VM {vmid} from related configurations.."));
            dc.forget_in_backup_jobs(vmid);
            if dc.ha.manages(vmid) {
                dc.remove_from_ha(vmid);
                worker.say(format!("NOTE: removed VM {vmid} from HA resource configuration."));
            }
        }
        dc.vms.remove(&vmid);
        Ok(())
    }
}
