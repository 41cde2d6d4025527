//! Removing VMs and files, and nothing that is not ours.

use ichor_engine::{EffectError, Report, StepContext};
use ichor_model::{HostName, VmId};
use ichor_plan::files::has_seed;
use ichor_pve::{Kind, Params, api};

use super::{task, vm::in_drive};
use crate::live::{Live, pve_trouble};

/// Pulls the plug of a VM. Its machine is to be deleted: nobody waits for it to say goodbye.
pub async fn stop(live: &Live<'_>, context: &StepContext<'_>, vmid: VmId) -> Result<(), EffectError> {
    let what = format!("stopping VM {vmid}");
    task::follow_earlier(live, context, &what).await;
    let host = place(live, &what, vmid)?;
    let upid = live.pve.send(&api::stop(&host, vmid)).await.map_err(|error| pve_trouble(&what, &error))?;
    task::follow(live, context, &what, &upid).await
}

/// Deletes a VM with its disks. Protection is lifted first: whoever confirmed the cluster's name meant it.
pub async fn delete(live: &Live<'_>, context: &StepContext<'_>, vmid: VmId) -> Result<(), EffectError> {
    let what = format!("deleting VM {vmid}");
    if task::follow_earlier(live, context, &what).await {
        return Ok(());
    }
    let host = place(live, &what, vmid)?;
    delete_seed(live, &what, &host, vmid).await?;
    let mut deleted = live.pve.send(&api::delete(&host, vmid)).await;
    if deleted.as_ref().is_err_and(|error| error.to_string().contains("protection")) {
        let mut unprotected = Params::default();
        unprotected.switch("protection", false);
        let changed = live.pve.send(&api::configure(&host, vmid, unprotected)).await;
        if let Some(upid) = changed.map_err(|error| pve_trouble(&what, &error))? {
            task::wait(live, &what, &upid).await?;
        }
        deleted = live.pve.send(&api::delete(&host, vmid)).await;
    }
    match deleted {
        Ok(upid) => task::follow(live, context, &what, &upid).await,
        Err(error) if error.refusal() == Some(Kind::Missing) => Ok(()),
        Err(error) => Err(pve_trouble(&what, &error)),
    }
}

/// Deletes the cidata volume in the drive of a VM, while the VM still says which one it is.
async fn delete_seed(live: &Live<'_>, what: &str, host: &HostName, vmid: VmId) -> Result<(), EffectError> {
    let machine = live.desired.machines.iter().find(|machine| machine.vmid == vmid && has_seed(machine));
    let Some(machine) = machine else { return Ok(()) };
    let config = match live.pve.send(&api::config(host, vmid)).await {
        Ok(config) => config,
        Err(error) if error.refusal() == Some(Kind::Missing) => return Ok(()),
        Err(error) => return Err(pve_trouble(what, &error)),
    };
    match in_drive(&config, &live.shape(machine).slots().cidata) {
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
