//! What becomes of volumes that a config no longer names.

use ichor_model::VmId;

use crate::{
    ground::Ground,
    pve::{
        ApiError, Caller, Datacentre,
        drive::Drive,
        qemu::{load, load_mut},
        storage::volume::VolumeId,
    },
};

/// Notes a drive's volume as unused, or removes it if it is cloud-init's.
pub fn register_unused(
    dc: &mut Datacentre,
    ground: &mut Ground,
    host: &str,
    vmid: VmId,
    drive: &Drive,
) -> Result<(), ApiError> {
    let volume = drive.file().to_owned();
    if drive.is_cloud_init() {
        let _ = dc.storage.free(host, &volume, &mut ground.media);
        load_mut(dc, host, vmid)?.config.cloud_init.clear();
        return Ok(());
    }
    if drive.is_disc() || VolumeId::read(&volume).is_none() || !owns(dc, vmid, &volume) {
        return Ok(());
    }
    load_mut(dc, host, vmid)?.config.add_unused(&volume).map_err(ApiError::server)?;
    Ok(())
}

/// Returns whether a volume belongs to a VM.
pub fn owns(dc: &Datacentre, vmid: VmId, volume: &str) -> bool {
    dc.storage.look_up(volume).is_ok_and(|found| found.name.owner == Some(vmid.number()))
}

/// Removes the volume of a drive that is deleted for good, if the VM owns it.
pub fn deallocate(
    dc: &mut Datacentre,
    ground: &mut Ground,
    caller: &Caller,
    host: &str,
    vmid: VmId,
    key: &str,
    volume: &str,
) -> Result<(), ApiError> {
    if !owns(dc, vmid, volume) {
        return Ok(());
    }
    let storage = VolumeId::read(volume).map(|id| id.storage).unwrap_or_default();
    dc.check(caller, &format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
    if load(dc, host, vmid)?.config.names_volume(volume, key) {
        let text = format!("unable to delete '{volume}' - volume is still in use (snapshot?)");
        return Err(ApiError::server(text));
    }
    dc.storage.free(host, volume, &mut ground.media).map_err(ApiError::server)?;
    Ok(())
}

/// Deletes a drive from the config: its volume is destroyed by force, or noted as unused.
pub fn delete_drive(
    dc: &mut Datacentre,
    ground: &mut Ground,
    caller: &Caller,
    host: &str,
    vmid: VmId,
    slot: &str,
    force: bool,
) -> Result<(), ApiError> {
    let Some(drive) = load(dc, host, vmid)?.config.drive(slot) else { return Ok(()) };
    if !force {
        return register_unused(dc, ground, host, vmid, &drive);
    }
    dc.check_vm(caller, vmid, None, &["VM.Config.Disk"])?;
    if drive.is_plain_disc() {
        return Ok(());
    }
    deallocate(dc, ground, caller, host, vmid, slot, drive.file())
}
