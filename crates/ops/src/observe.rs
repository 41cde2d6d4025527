//! Looking at a cluster: one pass over Proxmox, the machines and Kubernetes, or at the one thing that a condition
//! is about.
//!
//! 1. [`Survey`]: what Proxmox shows of hosts, storages and VMs in two calls, and what VMs that may be ours say of
//!    themselves; it tells resolving what is there ([`Survey::world`]);
//! 2. [`Live::observe`]: the rest, all at once: machines, etcd, nodes, and images when some VM is still to be made;
//! 3. [`Live::see_remains`]: what stays when the VMs go;
//! 4. `look_for`: what a single condition needs, for the engine.

mod drift;
mod kubernetes;
mod last;
mod machines;
mod remains;
mod survey;
mod vms;

use std::collections::BTreeMap;

use ichor_model::{
    MachineName, Observed, VmId,
    desired::{Late, Machine, Role},
    observed::{MachineSeen, Sight, VmSeen},
};
use ichor_plan::Condition;

pub use self::{
    kubernetes::LastNodes,
    machines::LastMembers,
    remains::{KUBERNETES_WITHIN, KeptFile, KeptVolume, Remains},
    survey::{Survey, survey},
    vms::Found,
};
use crate::live::{Live, Pin};

impl Live<'_> {
    /// Looks at everything. `survey` was made for resolving the inventory.
    pub async fn observe(&self, survey: &Survey) -> Observed {
        let mut observed = self.proxmox_side(survey).await;
        let machines = futures_util::future::join_all(self.desired.machines.iter().map(|machine| async {
            let seen = self.see_machine_of_vm(machine, &observed).await;
            (machine.name.clone(), seen)
        }));
        let machines = machines.await.into_iter().collect();
        observed.machines = machines;
        self.compare_machines(&mut observed.machines).await;
        self.ask_where(&mut observed).await;
        observed.vip = self.see_vip(&observed).await;
        let bootstrapped = observed.machines.values().any(|sight| {
            matches!(sight, Sight::Seen(MachineSeen::Ours(talos)) if talos.etcd.as_deref() == Some("Running"))
        });
        (observed.etcd, observed.nodes) = if bootstrapped {
            tokio::join!(self.see_etcd(), self.see_nodes())
        } else {
            let why = "etcd runs on no control plane that answers";
            (Sight::Unseen(why.into()), Sight::Unseen(why.into()))
        };
        observed
    }

    /// Looks at what a condition is about, and at nothing else.
    pub(crate) async fn look_for(&self, condition: &Condition) -> Observed {
        let mut observed = Observed::default();
        match condition {
            Condition::PoolThere => observed.pool = self.see_pool().await,
            Condition::VolumeThere { host, volume } | Condition::VolumeGone { host, volume } => {
                let seen = self.see_volume(host, volume).await;
                observed.volumes.insert((host.clone(), volume.clone()), seen);
            }
            Condition::TemplateReady { vmid } => {
                observed.vms.insert(*vmid, self.see_template(*vmid).await);
            }
            Condition::VmShaped { vmid } => {
                let unfinished = |vm: &VmSeen| vm.lock.is_some() || !vm.differences.is_empty();
                observed.vms.insert(*vmid, self.see_vm(*vmid, unfinished).await);
            }
            Condition::VmRunning { vmid } | Condition::VmOff { vmid } => {
                observed.vms.insert(*vmid, self.see_vm(*vmid, |vm| vm.owner.is_cluster()).await);
            }
            Condition::VmOurs { vmid }
            | Condition::VmOfCluster { vmid }
            | Condition::VmGone { vmid }
            | Condition::NoMedium { vmid } => {
                observed.vms.insert(*vmid, self.see_vm(*vmid, |_| false).await);
            }
            Condition::TalosAnswers { machine }
            | Condition::AddressFree { machine }
            | Condition::Configured { machine } => {
                if let Some(wanted) = self.machine(machine) {
                    let seen = self.see_face(wanted).await;
                    if let Sight::Seen(seen) = &seen {
                        self.notes.machine(machine, seen.clone());
                    }
                    observed.machines.insert(machine.clone(), seen);
                }
            }
            Condition::Bootstrapped { on } => {
                let wanted = on.iter().filter_map(|name| self.machine(name));
                observed.machines = Box::pin(self.see_all(wanted)).await;
            }
            Condition::NeverBootstrapped { on } => {
                let wanted = on.iter().filter_map(|name| self.machine(name));
                let seen = futures_util::future::join_all(
                    wanted.map(|machine| async { (machine.name.clone(), self.see_past(machine).await) }),
                );
                observed.machines = seen.await.into_iter().collect();
            }
            Condition::Votes { machine } => {
                if let Some(wanted) = self.machine(machine) {
                    let (etcd, seen) = tokio::join!(self.see_etcd(), self.see_machine(wanted));
                    observed.etcd = etcd;
                    observed.machines.insert(machine.clone(), seen);
                }
            }
            Condition::MemberGone { .. } => observed.etcd = self.see_etcd().await,
            Condition::QuorumWithout { machine, on } => {
                // First the members: a machine that joins meanwhile is seen to answer.
                observed.etcd = self.see_etcd().await;
                let others = on.iter().filter(|name| *name != machine).filter_map(|name| self.machine(name));
                observed.machines = Box::pin(self.see_all(others)).await;
                if let Some(lost) = self.machine(machine) {
                    observed.machines.insert(machine.clone(), Box::pin(self.see_lost(lost)).await);
                }
            }
            Condition::KubernetesAnswers => observed.nodes = self.see_nodes().await,
            Condition::NodeThere { machine, .. } => {
                if let Some(wanted) = self.machine(machine) {
                    let (nodes, seen) = tokio::join!(self.see_nodes(), self.see_boot(wanted));
                    observed.nodes = nodes;
                    observed.machines.insert(machine.clone(), seen);
                }
            }
        }
        observed
    }

    async fn see_all<'m>(
        &self,
        machines: impl Iterator<Item = &'m Machine>,
    ) -> BTreeMap<MachineName, Sight<MachineSeen>> {
        let seen = futures_util::future::join_all(
            machines.map(|machine| async { (machine.name.clone(), self.see_machine(machine).await) }),
        );
        seen.await.into_iter().collect()
    }

    /// Returns what was seen of a condition's subject a moment ago.
    pub(crate) fn recall_for(&self, condition: &Condition) -> Option<Observed> {
        match condition {
            Condition::VolumeThere { host, volume } => self.notes.recall_volume(host, volume),
            Condition::VmShaped { vmid }
            | Condition::VmOurs { vmid }
            | Condition::VmOfCluster { vmid }
            | Condition::VmRunning { vmid }
            | Condition::VmOff { vmid }
            | Condition::VmGone { vmid } => self.notes.recall_vm(*vmid),
            // The step before has just waited for it to answer.
            Condition::Configured { machine } => self.notes.recall_machine(machine),
            Condition::Bootstrapped { on } | Condition::NeverBootstrapped { on } => self.recall_made(on),
            _ => None,
        }
    }

    /// Nothing was ever on machines whose VMs this run has made, before it begins etcd on one of them.
    fn recall_made(&self, on: &[MachineName]) -> Option<Observed> {
        let made = |name: &MachineName| self.machine(name).is_some_and(|it| self.memory.made(it.vmid));
        if self.memory.has_bootstrapped() || !on.iter().all(made) {
            return None;
        }
        let empty = on.iter().map(|name| (name.clone(), Sight::Seen(MachineSeen::Maintenance)));
        Some(Observed { machines: empty.collect(), ..Observed::default() })
    }

    /// Whether the console of a VM that proved to be ours has told the key of the machine on it: whoever has that key
    /// is that machine, and runs.
    pub(crate) fn console_vouches(&self, vmid: VmId) -> bool {
        let machine = self.desired.machines.iter().find(|machine| machine.vmid == vmid);
        let pin = machine.and_then(|machine| self.memory.pinned(&machine.name));
        matches!(pin, Some(Pin::Console(_))) && self.memory.proved_ours(vmid)
    }

    /// Returns the control planes, first the one that etcd begins on.
    pub(crate) fn control_planes(&self) -> impl Iterator<Item = &Machine> {
        self.desired.of_role(Role::ControlPlane)
    }

    /// Whether a machine's address is leased, so that the guest agent must tell it.
    fn is_leased(machine: &Machine) -> bool {
        machine.primary_nic().addresses.iter().any(|address| matches!(address, Late::From(_)))
    }
}
