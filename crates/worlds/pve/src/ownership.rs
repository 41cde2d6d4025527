//! Whose VM it is.
//!
//! 1. [`identify`] reads a VM's own words: the stamp in its notes must name the VMID that it is found under, and
//!    the SMBIOS uuid must be the one that follows from the stamp. Name, tags and pool prove nothing.
//! 2. [`whose`] compares that with a machine that is wanted.
//! 3. [`maker`] finds who is at a VMID that is only reserved.
//!
//! While Proxmox makes a VM, its config says nothing but `lock`: notes, uuid and disks are written at once when the
//! last disk is there. So a VM is either a reservation or whole; there is nothing half-made to tell apart. Only a
//! clone is written whole with a uuid of Proxmox's choice: its stamp says that it is unfinished until one change
//! sets uuid and stamp together.

use std::fmt;

use ichor_model::{
    MachineName, SmbiosUuid, Stamp, VmId,
    desired::Machine,
    observed::Owner,
    stamp::{Bearer, Claim, Party, StampedMachine},
};

use crate::{
    Upid,
    api::{TaskRow, VmConfig},
    property::Properties,
};

/// What a VM says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// Some ichor made it: VMID, uuid and stamp agree.
    Stamped(Stamp),
    /// The VMID is taken for a VM that is being made, or whose making was broken off.
    Reserved {
        /// The lock: `create` or `clone`.
        lock: String,
    },
    /// Somebody else's.
    Foreign(Why),
}

/// Why a VM counts as somebody else's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// It has no stamp.
    NoStamp,
    /// It has a stamp that this release cannot read, or that was changed.
    UnreadableStamp,
    /// It is a copy of a VM of ours, with its stamp.
    CopyOf(VmId),
    /// Its uuid is not the one that belongs to its stamp.
    OtherUuid {
        /// The one that it has.
        is: Option<SmbiosUuid>,
        /// The one that belongs to its stamp.
        stamped: SmbiosUuid,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoStamp => f.write_str("its notes have no stamp of ichor"),
            Self::UnreadableStamp => {
                f.write_str("the stamp in its notes was changed, or a newer ichor wrote it")
            }
            Self::CopyOf(vmid) => write!(f, "it is a copy of VM {vmid}, with its stamp"),
            Self::OtherUuid { is: Some(is), stamped } => {
                write!(f, "its SMBIOS uuid is {is}, and its stamp belongs to {stamped}")
            }
            Self::OtherUuid { is: None, stamped } => {
                write!(f, "it has no SMBIOS uuid, and its stamp belongs to {stamped}")
            }
        }
    }
}

/// Reads what the VM under a VMID says of itself.
pub fn identify(vmid: VmId, config: &VmConfig) -> Identity {
    let notes = config.text("description").unwrap_or_default();
    let uuid = uuid_of(config);
    let Some(stamp) = Stamp::read(&notes) else {
        return match config.text("lock") {
            Some(lock) if uuid.is_none() && ["create", "clone"].contains(&lock.as_str()) => {
                Identity::Reserved { lock }
            }
            _ if Stamp::is_in(&notes) => Identity::Foreign(Why::UnreadableStamp),
            _ => Identity::Foreign(Why::NoStamp),
        };
    };
    if stamp.vmid != vmid {
        return Identity::Foreign(Why::CopyOf(stamp.vmid));
    }
    // A clone is written disk by disk, with its notes from the first.
    if let Some(lock) = config.text("lock").filter(|lock| lock == "clone" && is_unfinished(&stamp)) {
        return Identity::Reserved { lock };
    }
    let stamped = stamp.uuid();
    if uuid == Some(stamped) || is_unfinished(&stamp) {
        Identity::Stamped(stamp)
    } else {
        Identity::Foreign(Why::OtherUuid { is: uuid, stamped })
    }
}

/// Returns the SMBIOS uuid of a VM.
///
/// Proxmox may keep the other SMBIOS texts in base64; the uuid is always written out.
pub fn uuid_of(config: &VmConfig) -> Option<SmbiosUuid> {
    Properties::parse(&config.text("smbios1")?).get("uuid")?.parse().ok()
}

const fn is_unfinished(stamp: &Stamp) -> bool {
    matches!(&stamp.bearer, Bearer::Machine(StampedMachine { is_unfinished: true, .. }))
}

/// Whose the VM under a wanted machine's VMID is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whose {
    /// That machine's.
    Ours,
    /// That machine's, as a clone that still has to be given everything of its own.
    OursUnfinished,
    /// Our cluster's, for another machine or another generation of it.
    OursOther {
        /// The machine.
        machine: MachineName,
        /// Its generation.
        generation: u32,
    },
    /// Our cluster's, as a template.
    OursTemplate,
    /// Another cluster's, by its `id`.
    OtherCluster(String),
    /// That of another cluster of the same `id`: its stamp names other secrets.
    Namesake,
    /// Nobody can tell yet: it is being made, or its making was broken off. [`maker`] tells which.
    Reserved {
        /// The lock: `create` or `clone`.
        lock: String,
    },
    /// Somebody else's: never to be changed, stopped or deleted.
    Foreign(Why),
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ours => f.write_str("it is ours"),
            Self::OursUnfinished => f.write_str("it is ours, and unfinished"),
            Self::OursOther { machine, generation } => {
                write!(f, "it is `{machine}`, generation {generation}, of this cluster")
            }
            Self::OursTemplate => f.write_str("it is a template of this cluster"),
            Self::OtherCluster(cluster) => write!(f, "it belongs to the cluster `{cluster}`"),
            Self::Namesake => f.write_str(Owner::NAMESAKE),
            Self::Reserved { lock } => {
                write!(f, "it is locked ({lock}), and nobody can tell yet whose it is")
            }
            Self::Foreign(why) => why.fmt(f),
        }
    }
}

impl Whose {
    /// Whether it may be changed for the sake of the wanted machine.
    pub const fn is_ours(&self) -> bool {
        matches!(self, Self::Ours | Self::OursUnfinished)
    }
}

/// Compares the VM that was found under a VMID with a machine that a cluster wants.
pub fn whose(claim: Claim<'_>, wanted: &Machine, vmid: VmId, config: &VmConfig) -> Whose {
    let stamp = match identify(vmid, config) {
        Identity::Stamped(stamp) => stamp,
        Identity::Reserved { lock } => return Whose::Reserved { lock },
        Identity::Foreign(why) => return Whose::Foreign(why),
    };
    match claim.party(&stamp) {
        Party::Own => {}
        Party::Namesake => return Whose::Namesake,
        Party::Other => return Whose::OtherCluster(stamp.cluster),
    }
    let Bearer::Machine(found) = stamp.bearer else { return Whose::OursTemplate };
    let same = found.name == wanted.name && found.generation == wanted.generation && vmid == wanted.vmid;
    match (same, found.is_unfinished) {
        (true, true) => Whose::OursUnfinished,
        (true, false) if uuid_of(config) == Some(wanted.uuid) => Whose::Ours,
        _ => Whose::OursOther { machine: found.name, generation: found.generation },
    }
}

/// Finds a task that may be making the VM under a reserved VMID.
///
/// A clone's task carries the VMID of its source, not of the clone: while several clones of one `source` are made,
/// any of them may be the one. Nothing: nobody is at it any more, and only root can take the lock away (`qm unlock`).
pub fn maker(vmid: VmId, source: Option<VmId>, tasks: &[TaskRow]) -> Option<&Upid> {
    let is_about = |upid: &Upid, vmid: VmId| upid.about() == vmid.to_string();
    let mut running = tasks.iter().filter(|task| task.is_running()).map(|task| &task.upid);
    running.find(|upid| match upid.kind() {
        "qmcreate" | "qmrestore" => is_about(upid, vmid),
        "qmclone" => source.is_some_and(|source| is_about(upid, source)),
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use ichor_model::{desired::Role, stamp::SecretsPrint};
    use serde_json::{Value, json};

    use super::*;
    use crate::sample;

    const CLUSTER: Claim<'_> = Claim { cluster: "homelab", secrets: None };

    fn vmid(number: u32) -> VmId {
        VmId::new(number).expect("a VMID")
    }

    fn stamp() -> Stamp {
        Stamp::of_machine(CLUSTER, &sample::machine())
    }

    fn config(options: Value) -> VmConfig {
        serde_json::from_value(options).expect("a config")
    }

    fn made(stamp: &Stamp) -> VmConfig {
        let uuid = stamp.uuid().to_string().to_uppercase();
        config(json!({
            "description": stamp.write(Some("mine")),
            "smbios1": format!("base64=1,manufacturer=SWNob3I=,uuid={uuid}"),
        }))
    }

    #[test]
    fn a_vm_is_ours_when_vmid_uuid_and_stamp_agree() {
        let wanted = sample::machine();
        assert_eq!(whose(CLUSTER, &wanted, wanted.vmid, &made(&stamp())), Whose::Ours);
    }

    #[test]
    fn look_alikes_are_foreign() {
        let wanted = sample::machine();
        let whole = made(&stamp());
        let without = |key: &str| {
            let mut config = whole.clone();
            config.0.remove(key);
            whose(CLUSTER, &wanted, wanted.vmid, &config)
        };
        let stamped = wanted.uuid;
        assert_eq!(without("smbios1"), Whose::Foreign(Why::OtherUuid { is: None, stamped }));
        assert_eq!(without("description"), Whose::Foreign(Why::NoStamp));
        let named = config(json!({"name": "cp-1", "tags": "control-plane;homelab;ichor"}));
        assert_eq!(whose(CLUSTER, &wanted, wanted.vmid, &named), Whose::Foreign(Why::NoStamp));
        // Restored from a backup under another VMID: notes and uuid are those of the original.
        let elsewhere = whose(CLUSTER, &wanted, vmid(4444), &whole);
        assert_eq!(elsewhere, Whose::Foreign(Why::CopyOf(wanted.vmid)));
        let mut changed = whole;
        let notes = changed.text("description").expect("notes").replace("generation: 1", "generation: one");
        changed.0.insert("description".into(), notes.into());
        assert_eq!(whose(CLUSTER, &wanted, wanted.vmid, &changed), Whose::Foreign(Why::UnreadableStamp));
    }

    #[test]
    fn other_machines_generations_and_clusters_are_told_apart() {
        let wanted = sample::machine();
        let found = |cluster: &str, name: &str, generation| {
            let name = name.parse().expect("a name");
            let machine = StampedMachine { name, generation, role: Role::ControlPlane, is_unfinished: false };
            let stamp = Stamp { cluster: cluster.into(), bearer: Bearer::Machine(machine), ..stamp() };
            whose(CLUSTER, &wanted, wanted.vmid, &made(&stamp))
        };
        let other =
            |name: &str, generation| Whose::OursOther { machine: name.parse().expect("a name"), generation };
        assert_eq!(found(CLUSTER.cluster, "cp-1", 2), other("cp-1", 2));
        assert_eq!(found(CLUSTER.cluster, "cp-2", 1), other("cp-2", 1));
        assert_eq!(found("office", "cp-1", 1), Whose::OtherCluster("office".into()));
    }

    #[test]
    fn clusters_of_one_name_are_told_apart_by_their_secrets() {
        let wanted = sample::machine();
        let print = |id: &str| Some(SecretsPrint::of(id));
        let found = |made_with, here| {
            let stamp = Stamp { secrets: made_with, ..stamp() };
            whose(Claim { secrets: here, ..CLUSTER }, &wanted, wanted.vmid, &made(&stamp))
        };
        assert_eq!(found(print("a"), print("a")), Whose::Ours);
        assert_eq!(found(print("a"), print("b")), Whose::Namesake);
        // Nobody can tell, and the name counts: VMs without a print, and clusters whose secrets are not here.
        assert_eq!(found(None, print("b")), Whose::Ours);
        assert_eq!(found(print("a"), None), Whose::Ours);
    }

    #[test]
    fn a_reservation_is_nobodys_until_its_task_ends() {
        let wanted = sample::machine();
        for lock in ["create", "clone"] {
            let reserved = config(json!({"lock": lock, "digest": "x"}));
            assert_eq!(
                whose(CLUSTER, &wanted, wanted.vmid, &reserved),
                Whose::Reserved { lock: lock.into() }
            );
        }
        let backup = config(json!({"lock": "backup"}));
        assert_eq!(whose(CLUSTER, &wanted, wanted.vmid, &backup), Whose::Foreign(Why::NoStamp));
        // Being restored over: the config is still that of the VM before.
        let restored =
            config(json!({"lock": "create", "smbios1": "uuid=11112222-3333-4444-5555-666677778888"}));
        assert_eq!(whose(CLUSTER, &wanted, wanted.vmid, &restored), Whose::Foreign(Why::NoStamp));
    }

    #[test]
    fn a_clone_is_ours_before_it_has_our_uuid() {
        let wanted = sample::machine();
        let stamp = stamp().unfinished();
        let cloned = config(json!({
            "description": stamp.write(None),
            "smbios1": "uuid=11112222-3333-4444-5555-666677778888",
        }));
        assert_eq!(whose(CLUSTER, &wanted, wanted.vmid, &cloned), Whose::OursUnfinished);
        let mut locked = cloned.clone();
        locked.0.insert("lock".into(), "clone".into());
        assert_eq!(whose(CLUSTER, &wanted, wanted.vmid, &locked), Whose::Reserved { lock: "clone".into() });
        assert_eq!(whose(CLUSTER, &wanted, vmid(4444), &cloned), Whose::Foreign(Why::CopyOf(wanted.vmid)));
    }

    #[test]
    fn the_maker_of_a_reservation_is_found() {
        let row = |kind: &str, about: &str, status: Option<&str>| TaskRow {
            upid: format!("UPID:pve1:0000A1B2:00C3D4E5:6912AB34:{kind}:{about}:ichor@pve!t1:")
                .parse()
                .expect("upid"),
            kind: kind.into(),
            status: status.map(str::to_owned),
        };
        let id = vmid(2000);
        let ended = row("qmcreate", "2000", Some("OK"));
        let running = row("qmcreate", "2000", Some("RUNNING"));
        let clone = row("qmclone", "9000", None);
        assert_eq!(maker(id, None, &[ended.clone(), running.clone()]), Some(&running.upid));
        assert_eq!(maker(id, None, &[ended]), None);
        let clone = std::slice::from_ref(&clone);
        assert_eq!(maker(id, None, clone), None);
        assert_eq!(maker(id, Some(vmid(9001)), clone), None);
        assert_eq!(maker(id, Some(vmid(9000)), clone), Some(&clone[0].upid));
    }
}
