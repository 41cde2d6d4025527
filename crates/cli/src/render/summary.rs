//! A cluster as a whole, as a block of lines.

use std::collections::BTreeMap;

use ichor_model::{
    Desired,
    desired::{Boot, ConfigDelivery, Image, Verify},
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
    lines.extend(boot_paths(desired).into_iter().map(|path| ("Boot", path)));
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

fn join(nets: &[impl ToString]) -> String {
    nets.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
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
