//! What stays when a cluster is destroyed.

use ichor_model::{
    Code, Desired, Finding, Observed, VmId,
    observed::{Owner, Sight},
};
use ichor_ops::observe::{KeptFile, KeptVolume, Remains};
use ichor_plan::Extent;
use serde_json::{Value, json};

use super::text;

/// Most of each kind that are named one by one; programs get them all.
const MOST: usize = 20;

/// What is told about what stays.
#[derive(Debug, Clone, Copy)]
pub struct Stays<'a> {
    /// The cluster.
    pub desired: &'a Desired,
    /// What was seen of it.
    pub observed: &'a Observed,
    /// What stays.
    pub remains: &'a Remains,
    /// How much goes.
    pub extent: Extent,
    /// Where the secrets are, as it is shown, if there are some.
    pub secrets: Option<&'a str>,
}

impl Stays<'_> {
    /// Returns it as text, for whoever is about to say yes.
    pub fn text(&self) -> String {
        let lines = self.lines().into_iter().map(|line| format!("  {line}"));
        [text::bold("This stays:")].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
    }

    /// Returns it as a finding, for the end of a run.
    pub fn finding(&self) -> Finding {
        let finding = Finding::warning(Code::LEFT_ALONE, None, "this stays");
        let finding = self.lines().into_iter().fold(finding, Finding::because);
        if !self.has_data() {
            return finding;
        }
        finding.remedy(
            "volumes and disks hold data, and ichor never deletes them; remove one that nobody needs on its host:\n    pvesm free VOLUME",
        )
    }

    /// Whether something stays that somebody may miss, or pay for.
    fn has_data(&self) -> bool {
        let volumes = self.remains.volumes.seen().is_some_and(|volumes| !volumes.is_empty());
        volumes || !self.remains.disks.is_empty()
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.extent == Extent::Machines {
            let images = self.remains.images.iter().map(|image| format!("image {}", file(image)));
            let templates = &self.remains.templates;
            let templates = templates.iter().map(|(vmid, host)| format!("template {vmid} on host {host}"));
            let kept: Vec<String> = images.chain(templates).collect();
            if !kept.is_empty() {
                lines.push("images and templates, for the next time (`--all` deletes them too):".to_owned());
                lines.extend(named(&kept));
            }
        }
        lines.extend(self.volumes());
        let counted = |files: &[KeptFile], one: &str, what: &str| {
            let all: Vec<String> = files.iter().map(file).collect();
            let first = format!("{}{what}:", text::count(all.len(), one));
            (!all.is_empty()).then(|| [first].into_iter().chain(named(&all)).collect::<Vec<_>>())
        };
        lines.extend(
            counted(&self.remains.disks, "disk", " with the number of a machine, on no VM")
                .into_iter()
                .flatten(),
        );
        lines.extend(
            counted(&self.remains.backups, "backup", " of VMs with these numbers").into_iter().flatten(),
        );
        lines.extend(self.secrets.map(|place| format!("the cluster's secrets, in {place}")));
        lines.extend(self.desired.proxmox.pool.as_ref().map(|pool| format!("the pool `{pool}`")));
        lines.extend(self.foreign());
        lines.extend(self.remains.unseen.iter().map(|what| format!("perhaps more; not seen: {what}")));
        lines
    }

    fn volumes(&self) -> Vec<String> {
        let volumes = match &self.remains.volumes {
            Sight::Seen(volumes) if volumes.is_empty() => return Vec::new(),
            Sight::Seen(volumes) => volumes,
            Sight::Unseen(why) => {
                let line = format!(
                    "perhaps volumes of the Proxmox CSI driver: Kubernetes could not be asked ({why})"
                );
                return vec![line];
            }
        };
        let all: Vec<String> = volumes.iter().map(volume).collect();
        let first = format!("{} of Kubernetes, on disks of Proxmox:", text::count(all.len(), "volume"));
        [first].into_iter().chain(named(&all)).collect()
    }

    /// Names what has the number of a machine or a template, and is somebody else's. All else is none of our business.
    fn foreign(&self) -> Vec<String> {
        let wanted = |vmid: &VmId| {
            self.desired.machines.iter().any(|machine| machine.vmid == *vmid)
                || self.desired.templates.iter().any(|template| template.vmid == *vmid)
        };
        let seen = self.observed.vms.iter().filter_map(|(vmid, sight)| Some((vmid, sight.seen()?.as_ref()?)));
        let foreign = seen.filter(|(vmid, _)| wanted(vmid)).filter_map(|(vmid, vm)| {
            let whose = match &vm.owner {
                Owner::Ours | Owner::OtherMachine(_) => return None,
                Owner::OtherCluster(cluster) => format!("it belongs to cluster `{cluster}`"),
                Owner::Namesake => Owner::NAMESAKE.to_owned(),
                Owner::Foreign(why) => why.clone(),
            };
            Some(format!("VM {vmid} on host {}: {whose}", vm.host))
        });
        foreign.collect()
    }

    /// Returns it for programs.
    pub fn document(&self) -> Value {
        let remains = self.remains;
        let files = |files: &[KeptFile]| -> Vec<Value> {
            let value =
                |file: &KeptFile| json!({"volume": file.volume, "host": file.host, "mib": file.size.mib()});
            files.iter().map(value).collect()
        };
        let keeps = self.extent == Extent::Machines;
        let templates = remains.templates.iter().map(|(vmid, host)| json!({"vmid": vmid, "host": host}));
        let mut document = json!({
            "images": if keeps { files(&remains.images) } else { Vec::new() },
            "templates": if keeps { templates.collect() } else { Vec::new() },
            "disks": files(&remains.disks),
            "backups": files(&remains.backups),
            "secrets": self.secrets,
            "foreign": self.foreign(),
            "unseen": remains.unseen,
        });
        match &remains.volumes {
            Sight::Seen(volumes) => {
                document["volumes"] = volumes.iter().map(volume_document).collect::<Vec<_>>().into();
            }
            // Nothing is not the same as not known.
            Sight::Unseen(why) => {
                document["volumes"] = Value::Null;
                document["volumes_unseen"] = why.clone().into();
            }
        }
        document
    }
}

/// Names so many that somebody reads it.
fn named(all: &[String]) -> Vec<String> {
    let mut lines: Vec<String> = all.iter().take(MOST).map(|line| format!("  {line}")).collect();
    if all.len() > MOST {
        lines.push(format!("  and {} more; `-o json` names them all", all.len() - MOST));
    }
    lines
}

fn file(file: &KeptFile) -> String {
    let size = if file.size.mib() == 0 { String::new() } else { format!(" ({})", file.size) };
    format!("{} on host {}{size}", file.volume, file.host)
}

fn volume(volume: &KeptVolume) -> String {
    let whose = volume.claim.as_deref().unwrap_or(&volume.name);
    let host = volume.host.as_ref().map(|host| format!(" on host {host}")).unwrap_or_default();
    let there = match &volume.there {
        Sight::Seen(true) => String::new(),
        Sight::Seen(false) => ", which is not there".to_owned(),
        Sight::Unseen(why) => format!(", not seen: {why}"),
    };
    let size = if volume.capacity.is_empty() { String::new() } else { format!(" ({})", volume.capacity) };
    text::safe_line(&format!("{whose}: {}{host}{size}{there}", volume.disk))
}

fn volume_document(volume: &KeptVolume) -> Value {
    json!({
        "name": volume.name,
        "claim": volume.claim,
        "capacity": volume.capacity,
        "disk": volume.disk,
        "host": volume.host,
        "there": volume.there.seen(),
    })
}

#[cfg(test)]
mod tests {
    use ichor_model::Size;

    use super::*;
    use crate::render::fixture;

    fn kept(volume: &str) -> KeptFile {
        KeptFile { volume: volume.into(), host: "pve1".parse().expect("a host"), size: Size::from_gib(1) }
    }

    fn volume(name: &str, there: Sight<bool>) -> KeptVolume {
        KeptVolume {
            name: name.into(),
            claim: Some(format!("db/{name}")),
            capacity: "10Gi".into(),
            disk: format!("local-lvm:vm-9999-{name}"),
            host: Some("pve1".into()),
            there,
        }
    }

    #[test]
    fn what_stays_is_named_and_what_is_not_known_too() {
        let desired = fixture::homelab();
        let observed = Observed::default();
        let remains = Remains {
            volumes: Sight::Seen(vec![
                volume("pvc-1", Sight::Seen(true)),
                volume("pvc-2", Sight::Seen(false)),
                volume("pvc-3\u{1b}[2J", Sight::Unseen("no answer".into())),
            ]),
            disks: vec![kept("local-lvm:vm-2000-disk-7")],
            backups: (0..22).map(|n| kept(&format!("local:backup/vzdump-qemu-2000-{n}.vma"))).collect(),
            images: vec![kept("local:import/talos.qcow2")],
            templates: vec![("998".parse().expect("a number"), "pve1".parse().expect("a host"))],
            unseen: vec!["images on storage nas of host pve1: no answer within 10s".into()],
        };
        let stays = |extent, remains| Stays {
            desired: &desired,
            observed: &observed,
            remains,
            extent,
            secrets: Some(".ichor/lab"),
        };
        let text = stays(Extent::Machines, &remains).lines().join("\n");
        for line in [
            "  image local:import/talos.qcow2 on host pve1 (1GiB)",
            "  template 998 on host pve1",
            "3 volumes of Kubernetes, on disks of Proxmox:",
            "  db/pvc-1: local-lvm:vm-9999-pvc-1 on host pve1 (10Gi)",
            "  db/pvc-2: local-lvm:vm-9999-pvc-2 on host pve1 (10Gi), which is not there",
            "1 disk with the number of a machine, on no VM:",
            "22 backups of VMs with these numbers:",
            "  and 2 more; `-o json` names them all",
            "the cluster's secrets, in .ichor/lab",
            "perhaps more; not seen: images on storage nas of host pve1: no answer within 10s",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} is not in\n{text}");
        }
        assert!(!text.contains('\u{1b}'));
        let document = stays(Extent::Everything, &remains).document();
        assert_eq!((&document["images"], &document["templates"]), (&json!([]), &json!([])));
        assert_eq!(document["backups"].as_array().map(Vec::len), Some(22));
        assert_eq!(document["volumes"][1]["there"], false);
        let unseen = Remains { volumes: Sight::Unseen("no control plane runs".into()), ..Remains::default() };
        let stays = stays(Extent::Everything, &unseen);
        assert!(stays.text().contains("Kubernetes could not be asked (no control plane runs)"));
        assert_eq!(stays.document()["volumes"], Value::Null);
        assert!(stays.finding().remedy.is_none());
    }
}
