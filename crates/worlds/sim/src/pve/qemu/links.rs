//! What VMs touch in other parts of Proxmox.

use ichor_model::VmId;

use crate::{
    ground::Ground,
    pve::{Caller, Datacentre, ha, tasks},
};

impl Datacentre {
    /// Returns whether a host has a bridge.
    pub fn has_bridge(&self, host: &str, bridge: &str) -> bool {
        let bridges = ["bridge", "OVSBridge"];
        let of_host = self.hosts.get(host).is_some_and(|host| {
            host.interfaces
                .iter()
                .any(|interface| interface.name == bridge && bridges.contains(&interface.kind.as_str()))
        });
        of_host || self.has_vnet(bridge)
    }

    /// Forgets what ACLs and pools say about a VM that is gone.
    pub fn forget_vm_access(&mut self, vmid: VmId) {
        for pool in self.access.pools.values_mut() {
            pool.vms.remove(&vmid);
        }
        let path = format!("/vms/{vmid}");
        self.access.drop_acl(|entry| entry.path == path);
    }

    /// Puts a VM into a pool.
    pub fn join_pool(&mut self, vmid: VmId, pool: &str) {
        if let Some(pool) = self.access.pools.get_mut(pool) {
            pool.vms.insert(vmid);
        }
    }

    /// Asks the HA manager for something in a task that ends at once.
    pub fn request_ha(&mut self, ground: &mut Ground, host: &str, caller: &Caller, work: ha::Work) -> String {
        let (kind, vmid) = match &work {
            ha::Work::Start(vmid) => ("hastart", *vmid),
            ha::Work::Stop(vmid) => ("hastop", *vmid),
            ha::Work::Migrate(vmid, _) => ("hamigrate", *vmid),
        };
        tasks::start(self, ground, host, kind, &vmid.to_string(), &caller.id, tasks::Work::Ha(work))
    }
}
