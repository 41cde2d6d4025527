//! Removing VMs and files, and nothing that is not ours.

use ichor_engine::{EffectError, Effects, Report, StepContext, Verdict};
use ichor_model::{HostName, VmId};
use ichor_plan::{Condition, files::has_seed};
use ichor_pve::{
    Kind, Params, Upid,
    api::{self, VmConfig},
};

use tokio::time::Instant;

use super::{task, vm::in_drive};
use crate::live::{Live, pve_trouble};

/// Pulls the plug of a VM. Its machine is to be deleted: nobody waits for it to say goodbye. It may be gone by then: an
/// earlier run that was killed may have begun to delete it, and Proxmox says for seconds that it runs.
pub async fn stop(live: &Live<'_>, context: &StepContext<'_>, vmid: VmId) -> Result<(), EffectError> {
    match unplug(live, context, vmid).await {
        Err(_) if live.judge(&Condition::VmGone { vmid }).await == Verdict::Holds => Ok(()),
        stopped => stopped,
    }
}

async fn unplug(live: &Live<'_>, context: &StepContext<'_>, vmid: VmId) -> Result<(), EffectError> {
    let what = format!("stopping VM {vmid}");
    let seen = live.notes.take_vm(vmid);
    task::follow_earlier(live, context, &what).await;
    let host = place(live, &what, vmid)?;
    let upid = pull_plug(live, &host, vmid).await.map_err(|error| pve_trouble(&what, &error))?;
    task::follow(live, context, &what, &upid).await?;
    // A task of the HA manager only asks for it.
    if upid.kind() == "qmstop" {
        live.notes.runs(vmid, seen, false);
    }
    Ok(())
}

/// A shutdown that is under way is overruled, where Proxmox can do that.
async fn pull_plug(live: &Live<'_>, host: &HostName, vmid: VmId) -> Result<Upid, ichor_pve::Error> {
    match live.pve.send(&api::stop(host, vmid)).await {
        Err(error) if error.to_string().contains("overrule-shutdown") => {
            live.pve.send(&api::plain_stop(host, vmid)).await
        }
        stopped => stopped,
    }
}

/// Deletes a VM with its disks. Protection that the inventory asks for is lifted first: whoever confirmed the cluster's
/// name meant it. So is the plug pulled of one that runs by now: a run that broke off may have left a task behind that
/// starts it.
pub async fn delete(live: &Live<'_>, context: &StepContext<'_>, vmid: VmId) -> Result<(), EffectError> {
    let what = format!("deleting VM {vmid}");
    live.notes.take_vm(vmid);
    let host = place(live, &what, vmid)?;
    let config = match live.pve.send(&api::config(&host, vmid)).await {
        Ok(config) => config,
        Err(error) if error.refusal() == Some(Kind::Missing) => return Ok(()),
        Err(error) => return Err(pve_trouble(&what, &error)),
    };
    if !live.is_of_cluster(vmid, &host, &config).await {
        let message = format!("{what}: it does not belong to this cluster any more");
        return Err(EffectError::Permanent(Report::new(message)));
    }
    let disks = disks_of(vmid, &config);
    delete_seed(live, &what, &host, vmid, &config).await?;
    if task::done_earlier(live, context, &what, &Condition::VmGone { vmid }).await {
        return sweep(live, &what, &host, &disks).await;
    }
    let mut deleted = live.pve.send(&api::delete(&host, vmid)).await;
    if deleted.as_ref().is_err_and(|error| error.to_string().contains("protection")) {
        if !is_protected_by_us(live, vmid) {
            let report = Report::new(format!("{what}: somebody has protected it, and not the inventory"));
            let hint =
                format!("find out who, and lift it on host `{host}`:\n    qm set {vmid} --protection 0");
            return Err(EffectError::Permanent(report.hint(hint)));
        }
        let mut unprotected = Params::default();
        unprotected.switch("protection", false);
        let changed = live.pve.send(&api::configure(&host, vmid, unprotected)).await;
        if let Some(upid) = changed.map_err(|error| pve_trouble(&what, &error))? {
            task::wait(live, &what, &upid).await?;
        }
        deleted = live.pve.send(&api::delete(&host, vmid)).await;
    }
    if deleted.as_ref().is_err_and(|error| error.to_string().contains("is running")) {
        let stopped = pull_plug(live, &host, vmid).await;
        task::wait(live, &what, &stopped.map_err(|error| pve_trouble(&what, &error))?).await?;
        deleted = live.pve.send(&api::delete(&host, vmid)).await;
    }
    let upid = match deleted {
        Ok(upid) => upid,
        Err(error) if error.refusal() == Some(Kind::Missing) => return Ok(()),
        Err(error) => return Err(pve_trouble(&what, &error)),
    };
    if task::heed(live, context, &what, &upid).await? > 0 {
        return sweep(live, &what, &host, &disks).await;
    }
    live.notes.vm(vmid, None, Instant::now());
    Ok(())
}

fn is_protected_by_us(live: &Live<'_>, vmid: VmId) -> bool {
    live.desired.machines.iter().any(|machine| machine.vmid == vmid && machine.vm.protection)
}

/// Returns the disks that a VM has and that carry its number, by its own config. Another VM may have disks of the
/// same number: names alone prove nothing.
fn disks_of(vmid: VmId, config: &VmConfig) -> Vec<String> {
    const BUSES: [&str; 7] = ["scsi", "virtio", "sata", "ide", "efidisk", "tpmstate", "unused"];
    let drives = BUSES.iter().flat_map(|bus| config.numbered(bus)).map(|(_, drive)| drive);
    let volumes = drives.filter_map(|drive| drive.split(',').next().map(str::to_owned));
    volumes.filter(|volume| volume.contains(&format!("-{vmid}-"))).collect()
}

/// Removes disks that Proxmox has only warned about: it gives up on one when its storage is busy for ten seconds,
/// and forgets the VM all the same.
async fn sweep(live: &Live<'_>, what: &str, host: &HostName, disks: &[String]) -> Result<(), EffectError> {
    for disk in disks {
        let storage = disk.split(':').next().unwrap_or_default();
        let there = live.pve.send(&api::volumes(host, storage, "images")).await;
        let there = there.map_err(|error| pve_trouble(what, &error))?;
        if !there.iter().any(|row| row.volid == *disk) {
            continue;
        }
        let deleted = live.pve.send(&api::delete_volume(host, storage, disk)).await;
        if let Some(upid) = deleted.map_err(|error| pve_trouble(what, &error))? {
            task::wait(live, what, &upid).await?;
        }
    }
    Ok(())
}

/// Deletes the cidata volume in the drive of a VM, while the VM still says which one it is.
async fn delete_seed(
    live: &Live<'_>,
    what: &str,
    host: &HostName,
    vmid: VmId,
    config: &VmConfig,
) -> Result<(), EffectError> {
    let machine = live.desired.machines.iter().find(|machine| machine.vmid == vmid && has_seed(machine));
    let Some(machine) = machine else { return Ok(()) };
    match in_drive(config, &live.shape(machine).slots().cidata) {
        Some(volume) if live.is_seed_of(machine, &volume) => volume_if_there(live, host, &volume, what).await,
        _ => Ok(()),
    }
}

/// Deletes a file from a storage if it is there.
pub async fn volume_if_there(
    live: &Live<'_>,
    host: &HostName,
    volume: &str,
    what: &str,
) -> Result<(), EffectError> {
    let there = live.find_volume(host, volume).await.map_err(|error| pve_trouble(what, &error))?;
    if there.is_none() {
        return Ok(());
    }
    let storage = volume.split(':').next().unwrap_or_default();
    let deleted = live.pve.send(&api::delete_volume(host, storage, volume)).await;
    match deleted.map_err(|error| pve_trouble(what, &error))? {
        Some(upid) => task::wait(live, what, &upid).await,
        None => Ok(()),
    }
}

/// Deletes a file from a storage.
pub async fn volume(
    live: &Live<'_>,
    context: &StepContext<'_>,
    host: &HostName,
    volume: &str,
) -> Result<(), EffectError> {
    let what = format!("deleting {volume}");
    live.notes.take_missing(host, volume);
    let storage = volume.split(':').next().unwrap_or_default();
    let deleted = live.pve.send(&api::delete_volume(host, storage, volume)).await;
    match deleted.map_err(|error| pve_trouble(&what, &error))? {
        Some(upid) => task::follow(live, context, &what, &upid).await,
        None => Ok(()),
    }
}

/// The guard has just seen the VM, and remembered where.
fn place(live: &Live<'_>, what: &str, vmid: VmId) -> Result<HostName, EffectError> {
    live.memory
        .host(vmid)
        .ok_or_else(|| EffectError::Transient(Report::new(format!("{what}: it is not known where it is"))))
}
