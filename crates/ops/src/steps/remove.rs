//! Removing VMs and files, and nothing that is not ours.

use ichor_engine::{EffectError, Report, StepContext};
use ichor_model::{HostName, VmId};
use ichor_pve::{Kind, Params, api};

use super::task;
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
