//! What the manager does with VMs: it uses the same tasks as anybody.

use ichor_model::VmId;

use crate::{
    ground::Ground,
    pve::{Call, Caller, Datacentre, Params, access::ROOT, qemu},
};

/// Returns whether a task about a VM is under way.
fn is_busy(dc: &Datacentre, vmid: VmId) -> bool {
    let id = vmid.to_string();
    dc.tasks.running().any(|task| task.id == id)
}

/// Does something with a VM as root, past the manager itself.
fn with(dc: &mut Datacentre, vmid: VmId, act: impl FnOnce(&mut Datacentre, &mut Call, Params)) {
    if is_busy(dc, vmid) {
        return;
    }
    let Some(host) = dc.vms.get(&vmid).map(|vm| vm.host.clone()) else { return };
    let name = format!("vm:{vmid}");
    let resource = dc.ha.resources.remove(&name);
    let mut call = Call { caller: Caller { id: ROOT.into(), token: false }, ..Call::default() };
    let params = [("vmid", vmid.to_string()), ("node", host)];
    let params: Params = params.into_iter().map(|(key, text)| (key.to_owned(), text.into())).collect();
    act(dc, &mut call, params);
    if let Some(resource) = resource {
        dc.ha.resources.insert(name, resource);
    }
}

/// Starts a VM.
pub fn start(dc: &mut Datacentre, ground: &mut Ground, vmid: VmId) {
    with(dc, vmid, |dc, call, params| {
        let _ = qemu::power::start(dc, ground, call, &params);
    });
}

/// Shuts a VM down.
pub fn stop(dc: &mut Datacentre, ground: &mut Ground, vmid: VmId) {
    with(dc, vmid, |dc, call, mut params| {
        params.set("forceStop", "1");
        let _ = qemu::power::shutdown(dc, ground, call, &params);
    });
}

/// Moves a VM to another host.
pub fn migrate(dc: &mut Datacentre, ground: &mut Ground, vmid: VmId, host: &str) {
    let runs = dc.vms.get(&vmid).is_some_and(qemu::Vm::runs);
    with(dc, vmid, |dc, call, mut params| {
        params.set("target", host);
        params.set("online", if runs { "1" } else { "0" });
        let _ = qemu::migrate(dc, ground, call, &params);
    });
}
