//! What steps do, and what must hold before and after them.

use std::fmt;

use ichor_model::{
    HostName, MachineName, Observed, VmId,
    observed::{MachineSeen, MemberSeen, Owner, Sight, VmSeen},
    step::{Step, Verdict},
};
use serde::{Deserialize, Serialize};

use crate::{nodes::stands_for, quorum::quorum_without};

/// A step of ours.
pub type ClusterStep = Step<Action, Condition>;
/// A plan of ours.
pub type ClusterPlan = ichor_model::step::Plan<Action, Condition>;

/// One kind of change each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum Action {
    /// Makes the pool of the cluster.
    MakePool {
        /// Its name.
        pool: String,
    },
    /// Has a host download an image.
    FetchImage {
        /// The image, by [`Image::id`](ichor_model::desired::Image::id).
        image: String,
        /// The host.
        host: HostName,
        /// The volume that it becomes.
        volume: String,
    },
    /// Makes a template VM.
    BuildTemplate {
        /// Its number.
        vmid: VmId,
        /// Where.
        host: HostName,
    },
    /// Removes a template VM that holds something else than wanted.
    RemoveTemplate {
        /// Its number.
        vmid: VmId,
    },
    /// Uploads the cidata volume of a machine.
    UploadSeed {
        /// The machine.
        machine: MachineName,
        /// The host.
        host: HostName,
        /// The volume that it becomes.
        volume: String,
    },
    /// Makes a VM: from an image, with an installation medium, or as a clone of a template.
    CreateVm {
        /// The machine.
        machine: MachineName,
        /// Its number.
        vmid: VmId,
        /// Where.
        host: HostName,
    },
    /// Switches a VM on.
    StartVm {
        /// The machine.
        machine: MachineName,
        /// Its number.
        vmid: VmId,
    },
    /// Waits until Talos answers.
    AwaitTalos {
        /// The machine.
        machine: MachineName,
    },
    /// Gives a machine its machine config.
    ApplyConfig {
        /// The machine.
        machine: MachineName,
    },
    /// Waits until a machine has taken the machine config from its own drive.
    AwaitConfig {
        /// The machine.
        machine: MachineName,
    },
    /// Takes what a machine needed for its first boot alone out of its drives: the installer, and the cidata volume
    /// with its config, whose file is deleted.
    DetachMedium {
        /// The machine.
        machine: MachineName,
        /// Its number.
        vmid: VmId,
    },
    /// Takes the vote of a machine that is gone out of etcd, before another one takes its place.
    RemoveMember {
        /// The machine that is made anew.
        machine: MachineName,
        /// The number of the member that it was.
        #[serde(with = "in_hex")]
        member: u64,
    },
    /// Begins the etcd of the cluster. Happens once in its life.
    BootstrapEtcd {
        /// The machine that it begins on.
        machine: MachineName,
    },
    /// Waits until a control plane votes in etcd.
    AwaitMember {
        /// The machine.
        machine: MachineName,
    },
    /// Waits until Kubernetes answers.
    AwaitKubernetes,
    /// Waits until a node is ready.
    AwaitNode {
        /// The machine.
        machine: MachineName,
    },
    /// Pulls the plug of a VM.
    StopVm {
        /// Its name, for people.
        machine: String,
        /// Its number.
        vmid: VmId,
    },
    /// Deletes a VM with its disks.
    DeleteVm {
        /// Its name, for people.
        machine: String,
        /// Its number.
        vmid: VmId,
    },
    /// Deletes a file from a storage.
    DeleteVolume {
        /// The host.
        host: HostName,
        /// The volume.
        volume: String,
    },
}

/// Numbers of 64 bits, which many readers of JSON would round, as Talos shows them.
mod in_hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    pub fn serialize<S: Serializer>(number: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{number:016x}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        u64::from_str_radix(&String::deserialize(from)?, 16).map_err(D::Error::custom)
    }
}

/// A part of the way to a cluster, which can be gone alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The pool, images and templates.
    Images,
    /// VMs, up to machines that have their config.
    Machines,
    /// etcd and Kubernetes, up to nodes that are ready.
    Bootstrap,
}

impl Action {
    /// Returns the part of the way that it belongs to.
    pub const fn phase(&self) -> Phase {
        match self {
            // Templates are in the pool, so it belongs to the same part.
            Self::MakePool { .. }
            | Self::FetchImage { .. }
            | Self::BuildTemplate { .. }
            | Self::RemoveTemplate { .. } => Phase::Images,
            Self::BootstrapEtcd { .. }
            | Self::AwaitMember { .. }
            | Self::AwaitKubernetes
            | Self::AwaitNode { .. }
            // Before the machine has joined it may need them once more.
            | Self::DetachMedium { .. } => Phase::Bootstrap,
            _ => Phase::Machines,
        }
    }

    /// Returns the machine that it is about.
    pub fn machine(&self) -> Option<&str> {
        match self {
            Self::UploadSeed { machine, .. }
            | Self::CreateVm { machine, .. }
            | Self::StartVm { machine, .. }
            | Self::AwaitTalos { machine }
            | Self::ApplyConfig { machine }
            | Self::AwaitConfig { machine }
            | Self::DetachMedium { machine, .. }
            | Self::RemoveMember { machine, .. }
            | Self::BootstrapEtcd { machine }
            | Self::AwaitMember { machine }
            | Self::AwaitNode { machine } => Some(machine.as_str()),
            Self::StopVm { machine, .. } | Self::DeleteVm { machine, .. } => Some(machine),
            _ => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::MakePool { pool } => format!("make pool `{pool}`"),
            Self::FetchImage { image, host, volume } => {
                format!("download image {image} to {volume} on host {host}")
            }
            Self::BuildTemplate { vmid, host } => format!("build template VM {vmid} on host {host}"),
            Self::RemoveTemplate { vmid } => format!("remove template VM {vmid}"),
            Self::UploadSeed { volume, host, .. } => format!("upload {volume} on host {host}"),
            Self::CreateVm { vmid, host, .. } => format!("create VM {vmid} on host {host}"),
            Self::StartVm { vmid, .. } => format!("start VM {vmid}"),
            Self::AwaitTalos { .. } => "wait for Talos".into(),
            Self::ApplyConfig { .. } => "apply the machine config".into(),
            Self::AwaitConfig { .. } => "wait until the machine config is taken".into(),
            Self::DetachMedium { .. } => "take the media of the first boot out".into(),
            Self::RemoveMember { member, .. } => {
                format!("take the vote of the lost machine out of etcd (member {member:016x})")
            }
            Self::BootstrapEtcd { machine } => format!("bootstrap etcd on {machine}"),
            Self::AwaitMember { .. } => "join etcd".into(),
            Self::AwaitKubernetes => "wait for Kubernetes".into(),
            Self::AwaitNode { .. } => "wait for the node".into(),
            Self::StopVm { vmid, .. } => format!("stop VM {vmid}"),
            Self::DeleteVm { vmid, .. } => format!("delete VM {vmid}"),
            Self::DeleteVolume { host, volume } => format!("delete {volume} on host {host}"),
        };
        f.pad(&text)
    }
}

/// What holds, or does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Condition {
    /// The pool is there.
    PoolThere,
    /// A file is there, whole.
    VolumeThere {
        /// The host.
        host: HostName,
        /// The volume.
        volume: String,
    },
    /// A file is not there.
    VolumeGone {
        /// The host.
        host: HostName,
        /// The volume.
        volume: String,
    },
    /// A template is there, is ours, and holds what it should.
    TemplateReady {
        /// Its number.
        vmid: VmId,
    },
    /// A VM is there, is ours, and is as it should be.
    VmShaped {
        /// Its number.
        vmid: VmId,
    },
    /// A VM is ours.
    VmOurs {
        /// Its number.
        vmid: VmId,
    },
    /// A VM belongs to this cluster: to the machine that should have its number, or to another one.
    VmOfCluster {
        /// Its number.
        vmid: VmId,
    },
    /// A VM of ours runs.
    VmRunning {
        /// Its number.
        vmid: VmId,
    },
    /// A VM of this cluster does not run, or is not there.
    VmOff {
        /// Its number.
        vmid: VmId,
    },
    /// There is no VM of this cluster with this number any more.
    VmGone {
        /// Its number.
        vmid: VmId,
    },
    /// Nothing is in the drives of a VM that was for the first boot alone.
    NoMedium {
        /// Its number.
        vmid: VmId,
    },
    /// Talos answers on a machine, in maintenance or in this cluster.
    TalosAnswers {
        /// The machine.
        machine: MachineName,
    },
    /// Nobody who is not ours answers at the address of a machine.
    AddressFree {
        /// The machine.
        machine: MachineName,
    },
    /// A machine has the config of this cluster.
    Configured {
        /// The machine.
        machine: MachineName,
    },
    /// etcd runs on one of the control planes.
    Bootstrapped {
        /// The control planes.
        on: Vec<MachineName>,
    },
    /// etcd has never run on any of the control planes.
    NeverBootstrapped {
        /// The control planes.
        on: Vec<MachineName>,
    },
    /// A control plane votes in etcd.
    Votes {
        /// The machine.
        machine: MachineName,
    },
    /// etcd does not count a member any more.
    MemberGone {
        /// Its number.
        #[serde(with = "in_hex")]
        member: u64,
    },
    /// etcd keeps its quorum without a member whose machine is gone.
    QuorumWithout {
        /// The machine.
        machine: MachineName,
        /// The control planes.
        on: Vec<MachineName>,
    },
    /// Kubernetes answers.
    KubernetesAnswers,
    /// A node is there, and ready if that is asked for.
    NodeThere {
        /// The machine.
        machine: MachineName,
        /// Whether it must be ready.
        ready: bool,
    },
}

impl Condition {
    /// Judges it by what was seen.
    pub fn judge(&self, observed: &Observed) -> Verdict {
        match self {
            Self::PoolThere => {
                by_sight(&observed.pool, |there| Verdict::of(*there, || "the pool is not there".into()))
            }
            Self::VolumeThere { host, volume } => {
                sight(observed.volumes.get(&(host.clone(), volume.clone())), |file| match file {
                    None => Verdict::Fails(format!("{volume} is not there")),
                    Some(file) => whole(file.bytes, file.wanted),
                })
            }
            Self::VolumeGone { host, volume } => {
                sight(observed.volumes.get(&(host.clone(), volume.clone())), |file| {
                    Verdict::of(file.is_none(), || format!("{volume} is there"))
                })
            }
            Self::TemplateReady { vmid } => own(observed, *vmid, |vm| {
                Verdict::of(vm.template, || format!("VM {vmid} is no template yet")).and(|| shaped(*vmid, vm))
            }),
            Self::VmShaped { vmid } => own(observed, *vmid, |vm| shaped(*vmid, vm)),
            Self::VmOurs { vmid } => own(observed, *vmid, |_| Verdict::Holds),
            Self::VmOfCluster { vmid } => sight(observed.vms.get(vmid), |vm| match vm {
                Some(vm) if vm.owner.is_cluster() => Verdict::Holds,
                Some(_) => Verdict::Fails(format!("VM {vmid} does not belong to this cluster")),
                None => Verdict::Fails(format!("there is no VM {vmid}")),
            }),
            Self::VmRunning { vmid } => {
                own(observed, *vmid, |vm| Verdict::of(vm.running, || format!("VM {vmid} is off")))
            }
            Self::VmOff { vmid } => sight(observed.vms.get(vmid), |vm| {
                let runs = vm.as_ref().is_some_and(|vm| vm.owner.is_cluster() && vm.running);
                Verdict::of(!runs, || format!("VM {vmid} runs"))
            }),
            Self::VmGone { vmid } => sight(observed.vms.get(vmid), |vm| {
                let there = vm.as_ref().is_some_and(|vm| vm.owner.is_cluster());
                Verdict::of(!there, || format!("VM {vmid} is there"))
            }),
            Self::NoMedium { vmid } => own(observed, *vmid, |vm| {
                Verdict::of(!vm.medium, || format!("media of the first boot are in the drives of VM {vmid}"))
            }),
            Self::TalosAnswers { machine } => talos(observed, machine, |seen| match seen {
                MachineSeen::Maintenance | MachineSeen::Ours(_) => Verdict::Holds,
                MachineSeen::Silent(why) | MachineSeen::Stranger(why) => Verdict::Fails(why.clone()),
            }),
            Self::AddressFree { machine } => talos(observed, machine, |seen| match seen {
                MachineSeen::Stranger(why) => Verdict::Fails(why.clone()),
                MachineSeen::Maintenance => {
                    Verdict::Fails("another Talos machine answers at its address".into())
                }
                MachineSeen::Silent(_) | MachineSeen::Ours(_) => Verdict::Holds,
            }),
            Self::Configured { machine } => talos(observed, machine, |seen| match seen {
                MachineSeen::Ours(_) => Verdict::Holds,
                MachineSeen::Maintenance => Verdict::Fails("it waits for its machine config".into()),
                MachineSeen::Silent(why) | MachineSeen::Stranger(why) => Verdict::Fails(why.clone()),
            }),
            Self::Bootstrapped { on } => bootstrapped(observed, on),
            Self::NeverBootstrapped { on } => never_bootstrapped(observed, on),
            Self::Votes { machine } => votes(observed, machine),
            Self::MemberGone { member } => by_sight(&observed.etcd, |members| {
                let counts = members.values().any(|seen| seen.id == *member);
                Verdict::of(!counts, || "etcd counts it still".into())
            }),
            Self::QuorumWithout { machine, on } => quorum_without(observed, machine, on),
            Self::KubernetesAnswers => by_sight(&observed.nodes, |_| Verdict::Holds),
            Self::NodeThere { machine, ready } => {
                by_sight(&observed.nodes, |nodes| match nodes.get(machine.as_str()) {
                    Some(node) if node.ready || !ready => stands_for(observed, machine, node),
                    Some(node) => Verdict::Fails(format!("the node is not ready: {}", node.says)),
                    None => Verdict::Fails("the node has not registered".into()),
                })
            }
        }
    }
}

/// A file that breaks off is worse than none: it would be booted.
fn whole(bytes: u64, wanted: Option<u64>) -> Verdict {
    /// No image is smaller than a sector.
    const SECTOR: u64 = 512;
    match wanted {
        Some(wanted) => Verdict::of(bytes == wanted, || format!("the file has {bytes} bytes, not {wanted}")),
        None => Verdict::of(bytes >= SECTOR, || format!("the file has {bytes} bytes")),
    }
}

fn shaped(vmid: VmId, vm: &VmSeen) -> Verdict {
    // One that runs has been made; a backup may lock it at any time.
    if let Some(lock) = vm.lock.as_ref().filter(|_| !vm.running) {
        return Verdict::Fails(format!("VM {vmid} is locked ({lock})"));
    }
    Verdict::of(vm.differences.is_empty(), || format!("VM {vmid} differs: {}", vm.differences.join(", ")))
}

fn bootstrapped(observed: &Observed, on: &[MachineName]) -> Verdict {
    let mut unseen = None;
    for machine in on {
        match observed.machines.get(machine) {
            Some(Sight::Seen(MachineSeen::Ours(talos))) if etcd_has_run(talos.etcd.as_deref()) => {
                return Verdict::Holds;
            }
            Some(Sight::Seen(_)) => {}
            Some(Sight::Unseen(why)) => unseen = Some(why.clone()),
            None => unseen = Some("nobody looked".into()),
        }
    }
    match unseen {
        Some(why) => Verdict::Unknown(why),
        None => Verdict::Fails("etcd runs on no control plane".into()),
    }
}

/// Silence is no proof: a control plane that does not answer may have etcd data.
fn never_bootstrapped(observed: &Observed, on: &[MachineName]) -> Verdict {
    for machine in on {
        match observed.machines.get(machine) {
            Some(Sight::Seen(MachineSeen::Ours(talos))) if etcd_has_run(talos.etcd.as_deref()) => {
                return Verdict::Fails(format!("etcd runs on {machine} already"));
            }
            Some(Sight::Seen(MachineSeen::Ours(_) | MachineSeen::Maintenance)) => {}
            Some(Sight::Seen(MachineSeen::Silent(why) | MachineSeen::Stranger(why)) | Sight::Unseen(why)) => {
                return Verdict::Unknown(format!("whether etcd ever ran on {machine} cannot be seen: {why}"));
            }
            None => return Verdict::Unknown(format!("nobody looked at {machine}")),
        }
    }
    Verdict::Holds
}

/// Before bootstrap etcd waits and prepares, and never starts.
fn etcd_has_run(state: Option<&str>) -> bool {
    state.is_some_and(|state| matches!(state, "Starting" | "Running" | "Finished" | "Failed" | "Stopping"))
}

/// A member is listed by the name of its machine, also when the machine is long gone: its own etcd must run.
fn votes(observed: &Observed, machine: &MachineName) -> Verdict {
    let runs = sight(observed.machines.get(machine), |seen| match seen {
        MachineSeen::Ours(talos) => {
            let runs = talos.etcd.as_deref() == Some("Running");
            Verdict::of(runs, || "etcd does not run on it".into())
        }
        MachineSeen::Maintenance => Verdict::Fails("it has no config yet".into()),
        MachineSeen::Silent(why) | MachineSeen::Stranger(why) => Verdict::Fails(why.clone()),
    });
    if runs != Verdict::Holds {
        return runs;
    }
    by_sight(&observed.etcd, |members| match members.get(machine.as_str()) {
        Some(MemberSeen { learner: false, .. }) => Verdict::Holds,
        Some(_) => Verdict::Fails("it does not vote in etcd yet".into()),
        None => Verdict::Fails("it is no member of etcd".into()),
    })
}

fn by_sight<T>(sight: &Sight<T>, judge: impl FnOnce(&T) -> Verdict) -> Verdict {
    match sight {
        Sight::Seen(value) => judge(value),
        Sight::Unseen(why) => Verdict::Unknown(why.clone()),
    }
}

fn sight<T>(found: Option<&Sight<T>>, judge: impl FnOnce(&T) -> Verdict) -> Verdict {
    found.map_or_else(|| Verdict::Unknown("nobody looked".into()), |sight| by_sight(sight, judge))
}

fn talos(observed: &Observed, machine: &MachineName, judge: impl FnOnce(&MachineSeen) -> Verdict) -> Verdict {
    sight(observed.machines.get(machine), judge)
}

fn own(observed: &Observed, vmid: VmId, judge: impl FnOnce(&VmSeen) -> Verdict) -> Verdict {
    sight(observed.vms.get(&vmid), |vm| match vm {
        None => Verdict::Fails(format!("there is no VM {vmid}")),
        Some(vm) => match &vm.owner {
            Owner::Ours => judge(vm),
            Owner::OtherMachine(whose) => Verdict::Fails(format!("VM {vmid} is {whose}")),
            Owner::OtherCluster(cluster) => {
                Verdict::Fails(format!("VM {vmid} belongs to cluster `{cluster}`"))
            }
            Owner::Namesake => Verdict::Fails(format!("VM {vmid} is not ours: {}", Owner::NAMESAKE)),
            Owner::Foreign(why) => Verdict::Fails(format!("VM {vmid} is not ours: {why}")),
        },
    })
}
