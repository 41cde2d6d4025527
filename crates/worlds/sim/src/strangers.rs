//! The VMs and containers of others, among which ichor's must be found and which nobody may touch.
//!
//! They look like ours wherever that is possible without being ours: names, tags, VMIDs next to those that
//! inventories use, templates, the stamp of another cluster, and disks whose names belong to VMs that do not exist.
//! Each is sealed when it is made; [`untouched`] says whether every seal is whole.

use std::collections::BTreeSet;

use ichor_model::{
    Stamp, VmId,
    desired::Role,
    stamp::{Bearer, StampedMachine},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::{
    Lab,
    ground::Content,
    incident::disks,
    pve::{
        cluster::Container,
        qemu::{Vm, agent::StandIn, config::Config, power},
        storage::shelves::Volume,
    },
    random::Random,
};

/// A VM or container of somebody else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stranger {
    /// Its number.
    pub vmid: VmId,
    /// What it looked like when it was last left alone: a digest of its config, power state and disks.
    pub seal: String,
}

/// Most strangers that a lab takes in.
const MOST: u32 = 1_000;

/// VMIDs that inventories begin to count from; strangers live around them.
const POPULAR: [u32; 4] = [2000, 3000, 400, 100];

/// What a stranger is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A VM with the name and tags of a control plane.
    ControlPlane,
    /// A VM with the name and tags of a worker.
    Worker,
    /// A template of somebody else.
    Template,
    /// A machine of another cluster of the same tool, with its stamp.
    OtherCluster,
    /// A container.
    Container,
    /// A VM whose second disk is named as that of a VM which does not exist.
    BorrowedDisk,
    /// A VM without tags that happens to be called like ours, and is off.
    Idle,
}

const KINDS: [Kind; 7] = [
    Kind::ControlPlane,
    Kind::Worker,
    Kind::Template,
    Kind::OtherCluster,
    Kind::Container,
    Kind::BorrowedDisk,
    Kind::Idle,
];

/// Lets strangers settle in a lab. They have a randomness of their own: the rest of the lab is as it would be
/// without them.
pub fn settle(lab: &mut Lab, seed: u64, count: u32) {
    let hosts: Vec<String> = lab.pve.hosts.keys().cloned().collect();
    if hosts.is_empty() {
        return;
    }
    let own = std::mem::replace(&mut lab.ground.random, Random::new(seed ^ 0x5f5f_7374_7261_6e67));
    for (number, kind) in (0..count.min(MOST)).zip(KINDS.into_iter().cycle()) {
        let Some(vmid) = free_number(lab, number) else { break };
        let place = usize::try_from(number).unwrap_or_default() % hosts.len();
        if move_in(lab, kind, vmid, number, &hosts[place]).is_ok() {
            lab.strangers.push(Stranger { vmid, seal: String::new() });
        }
    }
    lab.settle();
    lab.ground.random = own;
    let all = lab.strangers.iter().map(|stranger| stranger.vmid).collect();
    seal(lab, &all);
}

/// Finds a number near one that people like, but leaves the first ten above it to ichor.
fn free_number(lab: &Lab, number: u32) -> Option<VmId> {
    let around = POPULAR[usize::try_from(number).unwrap_or_default() % POPULAR.len()];
    let taken = |vmid: &VmId| lab.pve.vms.contains_key(vmid) || lab.pve.containers.contains_key(vmid);
    let above = (10..10 + MOST).map(|step| around + step);
    let near = std::iter::once(around - 1).chain(above);
    near.filter_map(VmId::new).find(|vmid| !taken(vmid))
}

fn move_in(lab: &mut Lab, kind: Kind, vmid: VmId, number: u32, host: &str) -> Result<(), String> {
    let index = number / u32::try_from(KINDS.len()).unwrap_or(1) + 1;
    let (name, tags) = match kind {
        Kind::ControlPlane => (format!("cp-{index}"), "control-plane;ichor;production"),
        Kind::Worker => (format!("worker-{index}"), "homelab;ichor;worker"),
        Kind::Template => (format!("talos-v1.13.9-{index}"), "ichor;template"),
        Kind::OtherCluster => (format!("cp-{index}"), "control-plane;homelab;ichor"),
        Kind::Container => (format!("worker-{index}"), "ichor;worker"),
        Kind::BorrowedDisk => (format!("gpu-{index}"), "ichor;worker"),
        Kind::Idle => (format!("cp-{}", index + 1), ""),
    };
    if kind == Kind::Container {
        let container = Container { host: host.to_owned(), name, tags: tags.into(), runs: true };
        lab.pve.containers.insert(vmid, container);
        return Ok(());
    }
    let storage = storage_for(lab).ok_or("there is no storage for disks")?;
    let mut config = Config::default();
    let mut set = |key: &str, value: String| {
        config.current.insert(key.to_owned(), value);
    };
    set("name", name.clone());
    if !tags.is_empty() {
        set("tags", tags.into());
    }
    set("memory", "2048".into());
    set("cores", "2".into());
    set("ostype", "l26".into());
    set("scsihw", "virtio-scsi-single".into());
    set("agent", "1".into());
    set("onboot", "1".into());
    set("boot", "order=scsi0".into());
    set("smbios1", format!("uuid={}", lab.ground.random.uuid()));
    set("vmgenid", lab.ground.random.uuid());
    set("net0", format!("virtio={},bridge=vmbr0", mac(&mut lab.ground.random)));
    set("scsi0", lab.foreign_disk(host, &storage, vmid)?);
    if kind == Kind::OtherCluster {
        let machine = StampedMachine {
            name: name.clone().try_into()?,
            generation: 1,
            role: Role::ControlPlane,
            is_unfinished: false,
        };
        let cluster = lab.ground.random.uuid();
        let stamp = Stamp { cluster, secrets: None, vmid, bearer: Bearer::Machine(machine) };
        set("smbios1", format!("uuid={}", stamp.uuid()));
        set("description", stamp.write(None));
    }
    if kind == Kind::Template {
        set("template", "1".into());
    }
    if kind == Kind::BorrowedDisk {
        // `destroy-unreferenced-disks` of a VM with that number would take it away.
        let owner = POPULAR[usize::try_from(index).unwrap_or_default() % POPULAR.len()];
        let owner = VmId::new(owner).ok_or("no such VMID")?;
        set("scsi1", lab.foreign_disk(host, &storage, owner)?);
    }
    lab.pve.vms.insert(vmid, Vm { host: host.to_owned(), config, run: None });
    if !matches!(kind, Kind::Template | Kind::Idle) {
        power::launch(&mut lab.pve, &mut lab.ground, host, vmid).map_err(|error| error.as_text())?;
        if let Some(run) = lab.pve.vms.get_mut(&vmid).and_then(|vm| vm.run.as_mut()) {
            run.agent = Some(StandIn::reader(&name));
        }
    }
    Ok(())
}

/// Returns a storage that has disks, one of a single host first.
fn storage_for(lab: &Lab) -> Option<String> {
    let definitions = lab.pve.storage.definitions.iter();
    let fit = definitions.filter(|(_, definition)| definition.content.contains("images"));
    fit.min_by_key(|(_, definition)| definition.is_shared()).map(|(name, _)| name.clone())
}

/// Returns a MAC address with the prefix that Proxmox gives.
pub(crate) fn mac(random: &mut Random) -> String {
    let bits = random.bits();
    format!("BC:24:11:{:02X}:{:02X}:{:02X}", bits & 0xff, bits >> 8 & 0xff, bits >> 16 & 0xff)
}

/// Says whether nobody has touched a stranger. The error names those who were touched, and how.
pub fn untouched(lab: &Lab) -> Result<(), String> {
    let touched: Vec<String> = lab
        .strangers
        .iter()
        .filter(|stranger| seal_of(lab, stranger.vmid) != stranger.seal)
        .map(|stranger| match state(lab, stranger.vmid) {
            None => format!("{} is gone", stranger.vmid),
            Some(state) => format!("{} is now {state}", stranger.vmid),
        })
        .collect();
    if touched.is_empty() { Ok(()) } else { Err(format!("strangers were touched: {}", touched.join("; "))) }
}

/// Returns the VMIDs of all strangers.
pub fn all(lab: &Lab) -> BTreeSet<VmId> {
    lab.strangers.iter().map(|stranger| stranger.vmid).collect()
}

/// Returns the strangers whom nobody has touched.
pub(crate) fn intact(lab: &Lab) -> BTreeSet<VmId> {
    let whole = |stranger: &&Stranger| seal_of(lab, stranger.vmid) == stranger.seal;
    lab.strangers.iter().filter(whole).map(|stranger| stranger.vmid).collect()
}

/// Seals strangers as they are now.
pub(crate) fn seal(lab: &mut Lab, vmids: &BTreeSet<VmId>) {
    let seals: Vec<(VmId, String)> = vmids.iter().map(|vmid| (*vmid, seal_of(lab, *vmid))).collect();
    for (vmid, seal) in seals {
        for stranger in lab.strangers.iter_mut().filter(|stranger| stranger.vmid == vmid) {
            stranger.seal.clone_from(&seal);
        }
    }
}

fn seal_of(lab: &Lab, vmid: VmId) -> String {
    let state = state(lab, vmid).unwrap_or_default().to_string();
    Sha256::digest(state.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Everything about a stranger that a client could change.
fn state(lab: &Lab, vmid: VmId) -> Option<serde_json::Value> {
    if let Some(container) = lab.pve.containers.get(&vmid) {
        return serde_json::to_value(container).ok();
    }
    let vm = lab.pve.vms.get(&vmid)?;
    let run = vm.run.as_ref();
    let pools = lab.pve.access.pools.iter().filter(|(_, pool)| pool.vms.contains(&vmid));
    let volumes: Vec<(String, Option<(Volume, Content)>)> = disks(&vm.config)
        .into_iter()
        .map(|name| {
            let volume = lab.pve.storage.get(&vm.host, &name).cloned();
            let full = volume.map(|volume| {
                let content = lab.ground.media.get(volume.content).clone();
                (volume, content)
            });
            (name, full)
        })
        .collect();
    let volumes = serde_json::to_value(volumes).ok()?;
    Some(json!({
        "host": vm.host,
        "config": vm.config,
        "running": run.map(|run| json!([run.pid, run.since, run.paused, run.devices])),
        "pools": pools.map(|(name, _)| name).collect::<Vec<_>>(),
        "volumes": volumes,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{incident::Incident, profile::Profile, setup::Setup};

    fn lab(seed: u64) -> Lab {
        let mut setup = Setup::new(seed, Profile::Lab);
        setup.strangers = 21;
        setup.build()
    }

    #[test]
    fn strangers_look_like_ours_and_are_the_same_for_a_seed() {
        let first = lab(1);
        assert_eq!(first.strangers.len(), 21);
        assert!(first == lab(1));
        assert_ne!(first.strangers, lab(2).strangers);
        let named = |name: &str| first.pve.vms.values().any(|vm| vm.config.get("name") == Some(name));
        assert!(named("cp-1") && named("worker-1"));
        assert!(first.pve.vms.values().any(|vm| vm.config.is_template()));
        assert!(first.pve.vms.contains_key(&VmId::new(1999).expect("a VMID")));
        assert!(!first.pve.vms.contains_key(&VmId::new(2000).expect("a VMID")), "left to ichor");
        let secret =
            |lab: &Lab| lab.pve.access.users[crate::setup::USER].tokens[crate::setup::TOKEN].secret.clone();
        assert_eq!(secret(&first), secret(&Setup::new(1, Profile::Lab).build()), "the rest is the same");
    }

    #[test]
    fn every_touch_breaks_a_seal() {
        let whole = lab(1);
        assert_eq!(untouched(&whole), Ok(()));
        let running = |lab: &Lab| *lab.pve.vms.iter().find(|(_, vm)| vm.runs()).expect("one").0;
        let touches: [fn(&mut Lab, VmId); 6] = [
            |lab, vmid| drop(lab.pve.vms.remove(&vmid)),
            |lab, vmid| lab.pve.vms.get_mut(&vmid).expect("a VM").run = None,
            |lab, vmid| lab.pve.vms.get_mut(&vmid).expect("a VM").host = "pve9".into(),
            |lab, vmid| {
                let vm = lab.pve.vms.get_mut(&vmid).expect("a VM");
                vm.config.pending.insert("memory".into(), "4096".into());
            },
            |lab, vmid| {
                let vm = &lab.pve.vms[&vmid];
                let volume = disks(&vm.config).remove(0);
                lab.pve.storage.remove(&vm.host.clone(), &volume);
            },
            |lab, vmid| {
                let vm = &lab.pve.vms[&vmid];
                let volume = disks(&vm.config).remove(0);
                let content = lab.pve.storage.get(&vm.host, &volume).expect("a volume").content;
                lab.ground.media.set(content, Content::Blank);
            },
        ];
        for (number, touch) in touches.into_iter().enumerate() {
            let mut lab = whole.clone();
            let vmid = running(&lab);
            touch(&mut lab, vmid);
            let error = untouched(&lab).expect_err(&format!("touch {number}"));
            assert!(error.contains(&vmid.to_string()), "{error}");
        }
    }

    #[test]
    fn incidents_are_no_touch() {
        let mut lab = lab(1);
        lab.befall(&Incident::HostDown { host: "pve2".into() }).expect("it is up");
        assert_eq!(untouched(&lab), Ok(()));
        lab.befall(&Incident::HostUp { host: "pve2".into() }).expect("it is down");
        assert_eq!(untouched(&lab), Ok(()));
    }

    #[test]
    fn strangers_are_kept_with_the_state() {
        let lab = lab(3);
        let kept: Lab = serde_json::from_str(&serde_json::to_string(&lab).expect("a state")).expect("a lab");
        assert!(kept == lab);
        assert_eq!(untouched(&kept), Ok(()));
    }
}
