//! The files of a cluster on Proxmox storages: where each image and cidata volume lies.

use std::collections::{BTreeMap, BTreeSet};

use ichor_model::{
    Desired, HostName, MachineName, Observed,
    desired::{AddressDelivery, ConfigDelivery, Image, ImageSource, Late, Machine, Storage, Template},
    observed::{Owner, Sight},
};

/// What files are called that have their name from what is in them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// The ids of the images' schematics, by [`Image::id`].
    pub schematics: BTreeMap<String, String>,
    /// Digests of the cidata volumes, by machine.
    pub seeds: BTreeMap<MachineName, String>,
}

/// An image on a storage of a host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImagePlace {
    /// The image, by [`Image::id`].
    pub image: String,
    /// The host that downloads it.
    pub host: HostName,
    /// The storage.
    pub storage: String,
    /// The volume.
    pub volume: String,
}

/// Returns the name of an image's file. All that makes its content is in it, so a file of that name never has
/// to be replaced.
pub fn image_file(image: &Image, schematic: &str) -> String {
    let secure = if image.secureboot { "-secureboot" } else { "" };
    let ending = if image.source == ImageSource::Iso { "iso" } else { "qcow2" };
    let recipe: String = schematic.chars().take(24).collect();
    format!("ichor-talos-{}-{}-{}{secure}-{recipe}.{ending}", image.talos, image.platform, image.arch)
}

/// Returns what an image is called on a storage: a file that the inventory names, or the downloaded one.
pub fn image_volume(image: &Image, schematic: &str, storage: &str) -> String {
    let kind = if image.source == ImageSource::Iso { "iso" } else { "import" };
    match &image.file {
        Some(file) => file.clone(),
        None => format!("{storage}:{kind}/{}", image_file(image, schematic)),
    }
}

/// Whether a machine boots with a cidata volume of ours.
pub fn has_seed(machine: &Machine) -> bool {
    machine.boot.address == AddressDelivery::Cidata || machine.boot.config == ConfigDelivery::Cidata
}

/// Returns the storage of images on a host.
pub fn images_storage<'a>(desired: &'a Desired, host: &HostName) -> &'a str {
    &storage_of(desired, host).images
}

/// Returns which storage holds what on a host.
pub fn storage_of<'a>(desired: &'a Desired, host: &HostName) -> &'a Storage {
    let own = desired.hosts.iter().find(|known| known.name == *host);
    own.map_or(&desired.proxmox.storage, |host| &host.storage)
}

/// Returns the cidata volume of a machine.
pub fn seed_volume(desired: &Desired, machine: &Machine, host: &HostName, names: &Names) -> String {
    let digest = names.seeds.get(&machine.name).map_or("unknown", String::as_str);
    format!("{}{digest}.iso", seed_prefix(desired, machine, host))
}

/// Returns what all cidata volumes of a machine begin with: its uuid, which no other machine of any cluster has.
pub fn seed_prefix(desired: &Desired, machine: &Machine, host: &HostName) -> String {
    format!("{}:iso/ichor-cidata-{}-{}-", images_storage(desired, host), machine.name, machine.uuid)
}

/// Returns the cidata volumes of a machine that were seen, and are not the one that it should have.
pub fn stale_seeds(desired: &Desired, observed: &Observed, machine: &Machine, names: &Names) -> Vec<String> {
    let Some(host) = host_of(machine) else { return Vec::new() };
    let (prefix, current) = (seed_prefix(desired, machine, host), seed_volume(desired, machine, host, names));
    let there = observed.volumes.iter().filter(|(_, seen)| matches!(seen, Sight::Seen(Some(_))));
    let there =
        there.filter(|((at, volume), _)| at == host && volume.starts_with(&prefix) && *volume != current);
    there.map(|((_, volume), _)| volume.clone()).collect()
}

/// Whether media of a machine's first boot must not stay in its drives: an installer, which would halt a machine
/// that is installed, and a cidata volume that holds its config with all secrets.
pub fn has_passing_media(desired: &Desired, machine: &Machine) -> bool {
    let image = desired.images.iter().find(|image| image.id == machine.image);
    machine.boot.config == ConfigDelivery::Cidata
        || image.is_some_and(|image| image.source == ImageSource::Iso)
}

/// Finds the place of an image for a host. One that is shared is downloaded once, by the first host that needs
/// it and answers.
pub fn image_place(
    desired: &Desired,
    observed: &Observed,
    image: &Image,
    schematic: &str,
    host: &HostName,
) -> ImagePlace {
    let storage = images_storage(desired, host);
    let shared = observed.storages.get(&(host.clone(), storage.to_owned())).is_some_and(|seen| seen.shared);
    let answers = |user: &HostName| observed.hosts.get(user) != Some(&false);
    let mut users = users_of(desired, observed, image).into_iter().filter(answers);
    let first = users.find(|user| images_storage(desired, user) == storage);
    let host = first.filter(|_| shared).unwrap_or_else(|| host.clone());
    let volume = image_volume(image, schematic, storage);
    ImagePlace { image: image.id.clone(), host, storage: storage.to_owned(), volume }
}

/// Returns the hosts that need an image themselves: those of its templates, else those of its machines.
pub fn users_of(desired: &Desired, observed: &Observed, image: &Image) -> BTreeSet<HostName> {
    if image.source == ImageSource::Template {
        let own =
            desired.templates.iter().filter(|template| template.image == image.id && !template.existing);
        return own.filter_map(|template| template_host(desired, observed, template).cloned()).collect();
    }
    let machines = desired.machines.iter().filter(|machine| machine.image == image.id);
    machines.filter_map(|machine| machine.host.known().cloned()).collect()
}

/// Returns the template that a machine is cloned from.
pub fn template_of<'a>(desired: &'a Desired, machine: &Machine) -> Option<&'a Template> {
    let vmid = machine.template?;
    desired.templates.iter().find(|template| template.vmid == vmid)
}

/// Returns the host of a template: where it is, else where the inventory wants it, else where the first of its
/// machines will be.
pub fn template_host<'a>(
    desired: &'a Desired,
    observed: &'a Observed,
    template: &'a Template,
) -> Option<&'a HostName> {
    let seen = observed.vms.get(&template.vmid).and_then(Sight::seen).and_then(Option::as_ref);
    let seen = seen.filter(|vm| vm.owner == Owner::Ours || template.existing);
    let mut machines = desired.machines.iter().filter(|machine| machine.template == Some(template.vmid));
    let chosen = || template.host.known().or_else(|| machines.find_map(host_of));
    seen.map(|vm| &vm.host).or_else(chosen)
}

/// Returns the host of a machine, which is known once the live hosts are.
pub fn host_of(machine: &Machine) -> Option<&HostName> {
    match &machine.host {
        Late::Known(host) => Some(host),
        Late::From(_) => None,
    }
}
