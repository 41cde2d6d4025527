//! A cluster as a whole, as a block of lines.

use std::collections::{BTreeMap, BTreeSet};

use ichor_model::{
    Desired,
    desired::{Boot, CloneKind, ConfigDelivery, Image, Storage, Template, Verify},
};

use super::{headcount::headcount, text};

/// Width of the column of labels.
const LABELS: usize = 11;

/// Returns the block. `files` are the inventory's, weakest first.
pub fn block(desired: &Desired, files: &[String]) -> String {
    let cluster = &desired.cluster;
    let name = match &cluster.environment {
        Some(environment) => format!("{} ({environment})", cluster.name),
        None => cluster.name.to_string(),
    };
    let mut lines = vec![
        ("Cluster", name),
        ("Inventory", files.join(", ")),
        ("Releases", format!("Talos {}, Kubernetes {}", cluster.talos, cluster.kubernetes)),
        ("Endpoint", format!("{} ({})", cluster.endpoint.url(), cluster.endpoint.kind)),
        ("Machines", format!("{}; quorum is {}", headcount(desired), desired.quorum())),
        ("Networks", networks(desired)),
    ];
    lines.extend(desired.images.iter().map(|image| ("Image", describe_image(image))));
    lines.extend(desired.templates.iter().map(|template| ("Templates", describe_template(template))));
    lines.extend(boot_paths(desired).into_iter().map(|path| ("Boot", path)));
    lines.push(("Storage", storages(desired)));
    if !desired.addons.is_empty() {
        lines.push(("Add-ons", addons(desired)));
    }
    let mut previous = "";
    let mut block = String::new();
    for (label, value) in lines {
        let shown = if label == previous { "" } else { label };
        block += &format!("{}{}\n", text::bold(&format!("{shown:<LABELS$}")), text::safe_line(&value));
        previous = label;
    }
    block
}

fn networks(desired: &Desired) -> String {
    let network = &desired.network;
    let named = [("machines", &network.cidr), ("pods", &network.pods), ("services", &network.services)];
    let known = named.into_iter().filter(|(_, nets)| !nets.is_empty());
    known.map(|(name, nets)| format!("{name} {}", join(nets))).collect::<Vec<_>>().join("; ")
}

fn join<'a, T: ToString + 'a>(things: impl IntoIterator<Item = &'a T>) -> String {
    things.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

fn describe_image(image: &Image) -> String {
    let mut parts = vec![format!("{} for {}", image.source, image.platform), image.arch.to_string()];
    if image.secureboot {
        parts.push("secure boot".to_owned());
    }
    parts.extend(image.schematic.iter().map(|id| format!("schematic {id}")));
    parts.extend(image.file.iter().map(|file| format!("file {file}")));
    if !image.extensions.is_empty() {
        parts.push(format!("with {}", text::list(&image.extensions)));
    }
    format!("{}: {}", image.id, parts.join(", "))
}

fn describe_template(template: &Template) -> String {
    let clone = match template.clone {
        CloneKind::Full => "full",
        CloneKind::Linked => "linked",
    };
    let Template { vmid, image, .. } = template;
    let made = if template.existing { ", made by hand" } else { "" };
    format!("VMID {vmid} for {}: {image}, {clone} clone{made}", text::list(&template.serves))
}

/// Names the storages that something of this cluster is on, by what that is.
fn storages(desired: &Desired) -> String {
    let machines = &desired.machines;
    let hosts: BTreeSet<_> = machines.iter().filter_map(|machine| machine.host.known()).collect();
    let own = desired.hosts.iter().filter(|host| hosts.contains(&host.name)).map(|host| &host.storage);
    let of_hosts: Vec<&Storage> = match own.collect::<Vec<_>>() {
        own if own.is_empty() => vec![&desired.proxmox.storage],
        own => own,
    };
    let images = of_hosts.iter().filter(|_| !desired.images.is_empty()).map(|storage| &storage.images);
    let kinds: [(&str, BTreeSet<&String>); 5] = [
        ("disks", machines.iter().flat_map(|machine| &machine.disks).map(|disk| &disk.storage).collect()),
        ("EFI", machines.iter().filter_map(|machine| machine.vm.efi_storage.as_ref()).collect()),
        ("cloud-init", machines.iter().filter_map(|machine| machine.vm.cloudinit_storage.as_ref()).collect()),
        ("images", images.collect()),
        ("templates", desired.templates.iter().map(|template| &template.storage).collect()),
    ];
    let used = kinds.iter().filter(|(_, names)| !names.is_empty());
    used.map(|(what, names)| format!("{what} on {}", join(names))).collect::<Vec<_>>().join("; ")
}

fn addons(desired: &Desired) -> String {
    let described = desired.addons.iter().map(|(name, addon)| {
        let choice = addon.choice.as_ref().filter(|choice| *choice != name);
        [Some(name.clone()), choice.map(|choice| format!("({choice})")), addon.version.clone()]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" ")
    });
    described.collect::<Vec<_>>().join(", ")
}

/// Describes each way that machines start; where there are several, with how many take it.
fn boot_paths(desired: &Desired) -> Vec<String> {
    let mut paths: BTreeMap<String, usize> = BTreeMap::new();
    for machine in &desired.machines {
        *paths.entry(describe_boot(machine.boot)).or_default() += 1;
    }
    match paths.len() {
        1 => paths.into_keys().collect(),
        _ => paths.into_iter().map(|(path, n)| format!("{path} ({})", text::count(n, "machine"))).collect(),
    }
}

fn describe_boot(boot: Boot) -> String {
    let config = match boot.config {
        ConfigDelivery::Maintenance => "maintenance API",
        ConfigDelivery::Cidata => "cidata volume",
    };
    let verify = match boot.verify {
        Verify::Console => "key read from the console",
        Verify::Cidata => "on the machine's own drive",
        Verify::Network => "key not verified: the network is trusted",
    };
    format!("address by {}, config by {config}, {verify}", boot.address)
}

#[cfg(test)]
mod tests {
    use ichor_model::{
        VmId,
        desired::{Addon, Late, Source},
    };

    use super::*;
    use crate::render::fixture;

    #[test]
    fn templates_storages_and_add_ons_are_listed_where_there_are_any() {
        let mut desired = fixture::homelab();
        assert!(!block(&desired, &[]).contains("Templates") && !block(&desired, &[]).contains("Add-ons"));
        desired.machines[3].disks[1].storage = "ceph".into();
        desired.templates = vec![Template {
            vmid: VmId::new(998).expect("vmid"),
            serves: vec!["control-plane".into()],
            host: Late::From(Source::LiveHosts),
            existing: false,
            image: desired.images[0].id.clone(),
            clone: CloneKind::Linked,
            storage: "zfs".into(),
        }];
        let cilium =
            Addon { choice: Some("cilium".into()), version: Some("1.18.0".into()), ..Addon::default() };
        desired.addons = [("cni".to_owned(), cilium), ("csi".to_owned(), Addon::default())].into();
        let shown = anstream::adapter::strip_str(&block(&desired, &[])).to_string();
        let is_new =
            |line: &&str| ["Templates", "Storage", "Add-ons"].iter().any(|label| line.starts_with(label));
        let lines: Vec<&str> = shown.lines().filter(is_new).collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        Templates  VMID 998 for control-plane: v1.13.9-nocloud-amd64, linked clone
        Storage    disks on ceph and local-lvm; EFI on local-lvm; cloud-init on local-lvm; images on local; templates on zfs
        Add-ons    cni (cilium) 1.18.0, csi
        ");
    }
}
