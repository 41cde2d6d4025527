//! Bringing images and cidata volumes onto storages.

use ichor_engine::{EffectError, Report, StepContext};
use ichor_factory::{Asset, missing};
use ichor_machineconfig::schematic::Schematic;
use ichor_model::{HostName, desired::Machine};
use ichor_plan::Condition;
use ichor_port::TransportError;
use ichor_pve::api;
use tokio::time::Instant;

use super::{remove, task};
use crate::live::{Live, factory_trouble, pve_trouble, transient};

/// No image of Talos is smaller; what a server says in place of one is.
const SMALLEST: u64 = 1 << 20;

/// Makes the factory ready to serve an image, and has a host download it.
pub async fn fetch(
    live: &Live<'_>,
    context: &StepContext<'_>,
    image: &str,
    host: &HostName,
    volume: &str,
) -> Result<(), EffectError> {
    let what = format!("downloading image {image} to host `{host}`");
    let done = Condition::VolumeThere { host: host.clone(), volume: volume.to_owned() };
    if task::done_earlier(live, context, &what, &done).await {
        return Ok(());
    }
    let wrong = |why: &str| EffectError::Permanent(Report::new(format!("{what}: {why}")));
    let (storage, kind, filename) = parts(volume).ok_or_else(|| wrong("its volume has no name"))?;
    let named = live.images.get(image).ok_or_else(|| wrong("the inventory has no such image"))?;
    let url = named.url.as_deref().ok_or_else(|| wrong("it is not to be downloaded"))?;
    let length = prepare(live, image, &what).await?;
    if let Some(length) = length {
        live.memory.expect_bytes(volume, length);
    }
    // Proxmox writes over no file, so one that broke off is removed first.
    if !live.notes.take_missing(host, volume) {
        remove::volume_if_there(live, host, volume, &what).await?;
    }
    let file = api::Download { url, content: kind, filename, sha256: None };
    let upid = live.pve.send(&api::download(host, storage, &file)).await;
    let upid = upid.map_err(|error| pve_trouble(&what, &error))?;
    task::follow(live, context, &what, &upid).await?;
    whole(live, &what, host, volume, length).await
}

/// A file that broke off is fetched again. Proxmox counts a download as done when the server has closed the line.
async fn whole(
    live: &Live<'_>,
    what: &str,
    host: &HostName,
    volume: &str,
    length: Option<u64>,
) -> Result<(), EffectError> {
    let there = live.find_volume(host, volume).await.map_err(|error| pve_trouble(what, &error))?;
    live.notes.volume(host, volume, there.clone(), Instant::now());
    let Some(why) = there.and_then(|file| not_whole(file.bytes, length)) else { return Ok(()) };
    if length.is_none() {
        // Nobody could tell it from a whole one later.
        remove::volume_if_there(live, host, volume, what).await?;
    }
    Err(transient(format!("{what}: {why}")))
}

/// Says why a file cannot be the whole image. The factory gives no checksum away, and not always a length.
fn not_whole(bytes: u64, length: Option<u64>) -> Option<String> {
    match length {
        Some(length) if bytes != length => {
            Some(format!("the file has {bytes} bytes, and the image factory says {length}"))
        }
        None if bytes < SMALLEST => Some(format!("the file has {bytes} bytes, and no image is that small")),
        _ => None,
    }
}

/// Registers the schematic, makes sure that all its extensions are there, and asks how large the image is.
async fn prepare(live: &Live<'_>, image: &str, what: &str) -> Result<Option<u64>, EffectError> {
    let wrong = |why: String| EffectError::Permanent(Report::new(format!("{what}: {why}")));
    let wanted = live.desired.images.iter().find(|wanted| wanted.id == image);
    let (Some(wanted), Some(named)) = (wanted, live.images.get(image)) else {
        return Err(wrong("the inventory has no such image".into()));
    };
    let factory = live.factory(&wanted.factory).map_err(wrong)?;
    let trouble = |error: ichor_factory::Error| factory_trouble(what, &error);
    if let Some(recipe) = &named.schematic {
        factory.register(recipe, &named.id).await.map_err(trouble)?;
        // What machines install and upgrade from has no META, and so another recipe.
        let installer = Schematic::of_image(wanted);
        if installer.id() != named.id {
            factory.register(&installer.canonical_yaml(), &installer.id()).await.map_err(trouble)?;
        }
        if !wanted.extensions.is_empty() {
            let offered = factory.extensions(&wanted.talos).await.map_err(trouble)?;
            let absent = missing(&wanted.extensions, &offered);
            if !absent.is_empty() {
                let why = format!("the factory has no {} for Talos {}", absent.join(", "), wanted.talos);
                let report = Report::new(format!("{what}: {why}"));
                return Err(EffectError::Permanent(report.hint("correct `image.extensions`")));
            }
        }
    }
    let head = factory.head(&Asset::of(wanted), &named.id, &wanted.talos).await.map_err(trouble)?;
    Ok(head.length)
}

/// Registers what a machine installs from whose installation medium was there already: nobody has asked the factory
/// for it yet. A factory that only the machines reach is told by whoever made the medium.
pub async fn know_installer(live: &Live<'_>, machine: &Machine, what: &str) -> Result<(), EffectError> {
    let image = live.desired.images.iter().find(|image| image.id == machine.image);
    let Some(image) = image.filter(|image| image.file.is_some() && image.schematic.is_none()) else {
        return Ok(());
    };
    let wrong = |why: String| EffectError::Permanent(Report::new(format!("{what}: {why}")));
    let factory = live.factory(&image.factory).map_err(wrong)?;
    let recipe = Schematic::of_image(image);
    match factory.register(&recipe.canonical_yaml(), &recipe.id()).await {
        Ok(()) | Err(ichor_factory::Error::Transport(TransportError::NotReached(_))) => Ok(()),
        Err(error) => Err(factory_trouble(what, &error)),
    }
}

/// Uploads the cidata volume of a machine.
pub async fn upload_seed(
    live: &Live<'_>,
    context: &StepContext<'_>,
    machine: &Machine,
    host: &HostName,
    volume: &str,
) -> Result<(), EffectError> {
    let what = format!("uploading {volume}");
    live.notes.take_missing(host, volume);
    let wrong = |why: String| EffectError::Permanent(Report::new(format!("{what}: {why}")));
    let (storage, _, filename) = parts(volume).ok_or_else(|| wrong("it has no name".into()))?;
    let iso = live.seed(machine).map_err(wrong)?;
    let file = api::UploadFile { content: "iso", filename, bytes: iso.expose() };
    let upid = live.pve.send(&api::upload(host, storage, &file)).await;
    let upid = upid.map_err(|error| pve_trouble(&what, &error))?;
    task::follow(live, context, &what, &upid).await
}

/// Splits `local:import/talos.qcow2`.
fn parts(volume: &str) -> Option<(&str, &str, &str)> {
    let (storage, path) = volume.split_once(':')?;
    let (kind, file) = path.split_once('/')?;
    Some((storage, kind, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_whole_if_its_length_is_right_or_at_least_possible() {
        for (bytes, length, whole) in [
            (100 << 20, Some(100 << 20), true),
            ((100 << 20) - 1, Some(100 << 20), false),
            (512, Some(512), true),
            (100 << 20, None, true),
            (512, None, false),
            (0, None, false),
        ] {
            assert_eq!(not_whole(bytes, length).is_none(), whole, "{bytes} of {length:?}");
        }
    }
}
