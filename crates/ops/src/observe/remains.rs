//! What a cluster leaves behind when its VMs go.
//!
//! 1. Kubernetes is asked for volumes that it has on Proxmox, before it is gone: a disk of the CSI driver carries the
//!    number of no VM of ours, and nothing on Proxmox says whose it is;
//! 2. storages are asked for disks of our numbers that hang on no VM, for backups, and for our images.
//!
//! Both at once, and nothing of it stands in the way: what could not be asked is told.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures_util::stream::{self, StreamExt};
use ichor_kube::api::{self as kube, PersistentVolume};
use ichor_model::{
    Desired, HostName, Observed, Size, VmId,
    observed::{Sight, VmSeen},
};
use ichor_plan::files::{host_of, image_place, images_storage, users_of};
use ichor_pve::api::{self, VmConfig, VolumeRow};
use tokio::time::timeout;

use super::Survey;
use crate::live::Live;

/// The driver that makes volumes on Proxmox storages.
const DRIVER: &str = "csi.proxmox.sinextra.dev";
/// How long Kubernetes may take to say what it has. Whoever destroys a cluster often does so because it is ill.
pub const KUBERNETES_WITHIN: Duration = Duration::from_secs(5);
/// How long a single API server may take.
const SERVER_WITHIN: Duration = Duration::from_secs(2);
/// How long a storage may take. One that hangs is the host's trouble, and not ours.
const STORAGE_WITHIN: Duration = Duration::from_secs(10);
/// Most storages that are asked at once. Proxmox has three workers.
const AT_ONCE: usize = 6;

/// What stays when the VMs of a cluster go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Remains {
    /// Volumes of Kubernetes that are disks on Proxmox.
    pub volumes: Sight<Vec<KeptVolume>>,
    /// Disks with the number of a VM of ours that hang on none.
    pub disks: Vec<KeptFile>,
    /// Backups of our VMs.
    pub backups: Vec<KeptFile>,
    /// Images of ours.
    pub images: Vec<KeptFile>,
    /// Templates of ours.
    pub templates: Vec<(VmId, HostName)>,
    /// Storages that could not be asked, and why.
    pub unseen: Vec<String>,
}

/// A volume of Kubernetes on a storage of Proxmox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptVolume {
    /// Its name in Kubernetes.
    pub name: String,
    /// The claim that has it, such as `db/data-0`.
    pub claim: Option<String>,
    /// How large it is, in Kubernetes' words.
    pub capacity: String,
    /// The disk that it names, such as `local-lvm:vm-9999-pvc-1`.
    pub disk: String,
    /// The host that has it; nothing on a shared storage.
    pub host: Option<String>,
    /// Whether the disk was seen on its storage.
    pub there: Sight<bool>,
}

/// Something on a storage.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeptFile {
    /// Its name.
    pub volume: String,
    /// The host that showed it.
    pub host: HostName,
    /// Its size.
    pub size: Size,
}

/// What a storage holds of one kind, or why that is not known.
type Shelf = Result<Vec<VolumeRow>, String>;
/// What is asked of a storage: by which host, and what of it.
type Question = (HostName, String, &'static str);

impl Live<'_> {
    /// Looks at what stays. `survey` and `observed` are of the same look.
    pub async fn see_remains(&self, survey: &Survey, observed: &Observed) -> Remains {
        let hosts = self.hosts_of(observed);
        let questions = questions(self.desired, survey, &hosts);
        let (volumes, mut shelves) = tokio::join!(self.see_claimed(observed), self.ask_storages(questions));
        let mut remains = Remains { templates: templates(observed), ..Remains::default() };
        remains.volumes = match volumes {
            Ok(volumes) => {
                // A volume may be where no machine of ours is.
                let more = volumes.iter().filter_map(|volume| question_of(survey, volume));
                let more: BTreeSet<Question> =
                    more.filter(|question| !shelves.contains_key(question)).collect();
                shelves.extend(self.ask_storages(more).await);
                Sight::Seen(volumes.into_iter().map(|volume| found(survey, &shelves, volume)).collect())
            }
            Err(why) => Sight::Unseen(why),
        };
        let ours = ours(self.desired.machines.iter().map(|machine| machine.vmid), observed);
        for ((host, storage, kind), shelf) in &shelves {
            let rows = match shelf {
                Ok(rows) => rows,
                Err(why) => {
                    remains.unseen.push(format!("{kind} on storage {storage} of host {host}: {why}"));
                    continue;
                }
            };
            let of_ours = rows.iter().filter(|row| row.vmid.is_some_and(|vmid| ours.contains(&vmid)));
            match *kind {
                "images" => remains.disks.extend(
                    of_ours.filter(|row| hangs_nowhere(row, &survey.configs)).map(|row| kept(row, host)),
                ),
                "backup" => remains.backups.extend(of_ours.map(|row| kept(row, host))),
                _ => {
                    let names = self.image_volumes(observed, host);
                    let images = rows.iter().filter(|row| names.contains(&row.volid));
                    remains.images.extend(images.map(|row| kept(row, host)));
                }
            }
        }
        remains
    }

    /// Returns the hosts that machines of the cluster are on, or are to be on.
    fn hosts_of(&self, observed: &Observed) -> BTreeSet<HostName> {
        let seen = observed.vms.values().filter_map(|sight| sight.seen()?.as_ref());
        let seen = seen.filter(|vm| vm.owner.is_cluster()).map(|vm| vm.host.clone());
        seen.chain(self.desired.machines.iter().filter_map(host_of).cloned()).collect()
    }

    /// Returns the names of the cluster's images on a host.
    fn image_volumes(&self, observed: &Observed, host: &HostName) -> BTreeSet<String> {
        let names = self.names();
        let images = self.desired.images.iter().filter(|image| image.file.is_none());
        let places = images.flat_map(|image| {
            let schematic = names.schematics.get(&image.id).map_or("", String::as_str);
            let users = users_of(self.desired, observed, image).into_iter();
            users.map(|user| image_place(self.desired, observed, image, schematic, &user)).collect::<Vec<_>>()
        });
        places.filter(|place| place.host == *host).map(|place| place.volume).collect()
    }

    /// Asks Kubernetes for its volumes on Proxmox.
    async fn see_claimed(&self, observed: &Observed) -> Result<Vec<KeptVolume>, String> {
        let running = |vm: &VmSeen| vm.owner.is_cluster() && vm.running;
        let any = self.control_planes().any(|machine| match observed.vms.get(&machine.vmid) {
            Some(Sight::Seen(vm)) => vm.as_ref().is_some_and(running),
            Some(Sight::Unseen(_)) => true,
            None => false,
        });
        if !any {
            return Err("no control plane runs".into());
        }
        let asked = timeout(KUBERNETES_WITHIN, self.ask_kubernetes(&kube::volumes(), SERVER_WITHIN)).await;
        let listed =
            asked.map_err(|_| format!("it did not answer within {}s", KUBERNETES_WITHIN.as_secs()))??;
        Ok(listed.items.into_iter().filter_map(on_proxmox).collect())
    }

    async fn ask_storages(&self, questions: BTreeSet<Question>) -> BTreeMap<Question, Shelf> {
        let asked = stream::iter(questions).map(|question| async move {
            let (host, storage, kind) = &question;
            let call = api::volumes(host, storage, kind);
            let answer = match timeout(STORAGE_WITHIN, self.pve.send(&call)).await {
                Ok(answer) => answer.map_err(|error| error.to_string()),
                Err(_) => Err(format!("no answer within {}s", STORAGE_WITHIN.as_secs())),
            };
            (question, answer)
        });
        asked.buffer_unordered(AT_ONCE).collect().await
    }
}

/// What to ask of which storage. One that all hosts share is asked once; images of ours are on their own storage alone.
fn questions(desired: &Desired, survey: &Survey, hosts: &BTreeSet<HostName>) -> BTreeSet<Question> {
    let mut shared = BTreeSet::new();
    let mut questions = BTreeSet::new();
    for row in survey.storages.iter().filter(|row| hosts.contains(&row.node) && row.status == "available") {
        if row.shared == 1 && !shared.insert(row.storage.as_str()) {
            continue;
        }
        let has_images = images_storage(desired, &row.node) == row.storage;
        let kinds = ["images", "backup"].into_iter();
        for kind in kinds.chain(["import", "iso"].into_iter().filter(|_| has_images)) {
            if row.content.split(',').any(|word| word == kind) {
                questions.insert((row.node.clone(), row.storage.clone(), kind));
            }
        }
    }
    questions
}

/// Returns our VMIDs: those of the inventory that nobody else has, and those of VMs that say they are ours.
fn ours(wanted: impl Iterator<Item = VmId>, observed: &Observed) -> BTreeSet<VmId> {
    let vm = |vmid: &VmId| observed.vms.get(vmid).and_then(Sight::seen).and_then(Option::as_ref);
    let foreign = |vmid: &VmId| vm(vmid).is_some_and(|vm| !vm.owner.is_cluster());
    let seen = observed.vms.keys().filter(|vmid| vm(vmid).is_some_and(|vm| vm.owner.is_cluster()));
    wanted.filter(|vmid| !foreign(vmid)).chain(seen.copied()).collect()
}

fn templates(observed: &Observed) -> Vec<(VmId, HostName)> {
    let seen = observed.vms.iter().filter_map(|(vmid, sight)| Some((*vmid, sight.seen()?.as_ref()?)));
    let ours = seen.filter(|(_, vm)| vm.template && vm.owner.is_cluster());
    ours.map(|(vmid, vm)| (vmid, vm.host.clone())).collect()
}

fn kept(row: &VolumeRow, host: &HostName) -> KeptFile {
    KeptFile {
        volume: ichor_port::clean(&row.volid),
        host: host.clone(),
        size: Size::from_mib(row.size >> 20),
    }
}

/// Whether no VM names a disk, so that it does not go with one. The memory of a snapshot goes with its VM, though the
/// VM's own config does not name it.
fn hangs_nowhere(row: &VolumeRow, configs: &BTreeMap<VmId, Result<VmConfig, String>>) -> bool {
    let name = last(&row.volid);
    if name.contains("-state-") {
        return false;
    }
    let storage = storage_of(&row.volid);
    let names = |config: &VmConfig| {
        let drives = BUSES.iter().flat_map(|bus| config.numbered(bus)).map(|(_, drive)| drive);
        drives.into_iter().any(|drive| {
            let volume = drive.split(',').next().unwrap_or_default();
            storage_of(volume) == storage && last(volume) == name
        })
    };
    configs.values().all(|config| match config {
        Ok(config) => !names(config),
        // It may be this one's.
        Err(_) => false,
    })
}

const BUSES: [&str; 7] = ["scsi", "virtio", "sata", "ide", "efidisk", "tpmstate", "unused"];

fn storage_of(volume: &str) -> &str {
    volume.split(':').next().unwrap_or_default()
}

/// Returns the name of a disk itself: linked clones are also called after what they are clones of.
fn last(volume: &str) -> &str {
    volume.rsplit(['/', ':']).next().unwrap_or(volume)
}

/// Reads a volume that is a disk on Proxmox. The driver calls it `region/zone/storage/disk`; the zone is a host, and
/// empty where the storage is shared.
fn on_proxmox(volume: PersistentVolume) -> Option<KeptVolume> {
    let csi = volume.csi.filter(|csi| csi.driver == DRIVER)?;
    let mut parts = csi.handle.splitn(4, '/').skip(1);
    let (zone, storage, disk) = (parts.next()?, parts.next()?, parts.next()?);
    Some(KeptVolume {
        name: volume.name,
        claim: volume.claim.map(|claim| claim.to_string()),
        capacity: volume.capacity,
        disk: format!("{storage}:{disk}"),
        host: Some(zone.to_owned()).filter(|zone| !zone.is_empty()),
        there: Sight::default(),
    })
}

/// Returns what to ask to learn whether a volume's disk is there: its host, or any that sees the storage.
fn question_of(survey: &Survey, volume: &KeptVolume) -> Option<Question> {
    let storage = storage_of(&volume.disk);
    let sees = |row: &&api::StorageSeen| {
        row.storage == storage
            && row.status == "available"
            && volume.host.as_deref().is_none_or(|host| row.shared == 1 || row.node.as_str() == host)
    };
    let row = survey.storages.iter().find(sees)?;
    Some((row.node.clone(), row.storage.clone(), "images"))
}

fn found(survey: &Survey, shelves: &BTreeMap<Question, Shelf>, volume: KeptVolume) -> KeptVolume {
    let there = match question_of(survey, &volume).and_then(|question| shelves.get(&question)) {
        Some(Ok(rows)) => Sight::Seen(rows.iter().any(|row| row.volid == volume.disk)),
        Some(Err(why)) => Sight::Unseen(why.clone()),
        None => Sight::Unseen("its storage is not there, or does not work".into()),
    };
    KeptVolume { there, ..volume }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn volume(driver: &str, handle: &str) -> Option<KeptVolume> {
        let object = json!({"metadata": {"name": "pvc-1"}, "spec": {"capacity": {"storage": "10Gi"},
            "csi": {"driver": driver, "volumeHandle": handle}}});
        on_proxmox(serde_json::from_value(object).expect("a volume"))
    }

    #[test]
    fn a_handle_names_a_disk() {
        for (handle, disk, host) in [
            ("lab/pve1/local-lvm/vm-9999-pvc-1", "local-lvm:vm-9999-pvc-1", Some("pve1")),
            ("lab//ceph/vm-9999-pvc-1", "ceph:vm-9999-pvc-1", None),
            ("lab/pve1/nas/9999/vm-9999-pvc-1.raw", "nas:9999/vm-9999-pvc-1.raw", Some("pve1")),
        ] {
            let volume = volume(DRIVER, handle).expect(handle);
            assert_eq!((volume.disk.as_str(), volume.host.as_deref()), (disk, host));
        }
        assert_eq!(volume(DRIVER, "pvc-1"), None);
        assert_eq!(volume("driver.longhorn.io", "lab/pve1/local-lvm/vm-9999-pvc-1"), None);
    }

    #[test]
    fn a_disk_hangs_where_a_config_names_it() {
        let config: VmConfig = serde_json::from_value(json!({
            "scsi0": "local-zfs:base-998-disk-0/vm-2000-disk-0,size=20G", "ide2": "nas:2000/vm-2000-cloudinit.qcow2,media=cdrom",
            "unused0": "local-lvm:vm-2000-disk-9", "net0": "virtio=BC:24:11:00:00:01,bridge=vmbr0"}))
        .expect("a config");
        let vmid: VmId = "2000".parse().expect("a number");
        let configs = BTreeMap::from([(vmid, Ok(config))]);
        let row = |volid: &str| serde_json::from_value(json!({"volid": volid, "vmid": 2000})).expect("a row");
        for (volid, nowhere) in [
            ("local-zfs:vm-2000-disk-0", false),
            ("local-zfs:base-998-disk-0/vm-2000-disk-0", false),
            ("nas:2000/vm-2000-cloudinit.qcow2", false),
            ("local-lvm:vm-2000-disk-9", false),
            ("local-lvm:vm-2000-state-before", false),
            ("local-lvm:vm-2000-disk-0", true),
            ("local-zfs:vm-2000-disk-1", true),
        ] {
            assert_eq!(hangs_nowhere(&row(volid), &configs), nowhere, "{volid}");
        }
        let unreadable = BTreeMap::from([(vmid, Err("denied".to_owned()))]);
        assert!(!hangs_nowhere(&row("local-lvm:vm-2000-disk-0"), &unreadable), "it may be that one's");
    }
}
