//! `ichor image id`: what the Image Factory calls the images of a cluster, without asking it.
//!
//! 1. the recipe of each image: extensions, kernel arguments, and for images of one machine its META value;
//! 2. the SHA-256 of its canonical YAML, which is the id;
//! 3. where the factory has the image, and the installer for upgrades.

use ichor_factory::Asset;
use ichor_machineconfig::{
    meta,
    schematic::{Schematic, image_id, installer},
};
use ichor_model::{Code, Desired, Finding, desired::Image};
use serde::Serialize;

use crate::{Halt, halt::only};

/// An image as the factory knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Named {
    /// Its name in the plan.
    pub image: String,
    /// The id of its schematic.
    pub id: String,
    /// The recipe, ready to be posted to the factory; absent when the inventory gives the id itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schematic: Option<String>,
    /// The installer for machines that run this image.
    pub installer: String,
    /// Where the image is downloaded; absent when it is already on a storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The file that is already on a storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The machines that boot it.
    pub machines: Vec<String>,
}

/// Names all images of a cluster.
pub fn name_all(desired: &Desired) -> Result<Vec<Named>, Halt> {
    desired.images.iter().map(|image| name(desired, image)).collect()
}

fn name(desired: &Desired, image: &Image) -> Result<Named, Halt> {
    let recipe = recipe(desired, image)?;
    let id = recipe.as_ref().map_or_else(|| image_id(image), Schematic::id);
    let users = desired.machines.iter().filter(|machine| machine.image == image.id);
    Ok(Named {
        image: image.id.clone(),
        installer: installer(image),
        url: image.file.is_none().then(|| Asset::of(image).url(&image.factory, &id, &image.talos)),
        schematic: recipe.map(|recipe| recipe.canonical_yaml()),
        file: image.file.clone(),
        machines: users.map(|machine| machine.name.to_string()).collect(),
        id,
    })
}

/// Returns the recipe, unless the inventory gives an id in its place.
fn recipe(desired: &Desired, image: &Image) -> Result<Option<Schematic>, Halt> {
    if image.schematic.is_some() {
        return Ok(None);
    }
    let recipe = Schematic::of_image(image);
    let user = desired.machines.iter().find(|machine| machine.image == image.id);
    let Some(machine) = user.filter(|_| image.meta.is_some()) else { return Ok(Some(recipe)) };
    let value =
        meta::network(machine, desired.network.hostnames, &desired.os.time_servers).map_err(|problem| {
            let message = format!("the META value of `{}` {}", machine.name, problem.message);
            Halt::invalid(only(Finding::error(Code::BOOT_PATH, None, message).remedy(problem.remedy)))
        })?;
    Ok(Some(recipe.with_meta(meta::NETWORK_KEY, value)))
}
