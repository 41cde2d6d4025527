//! What an inventory names and does not hold: patch files, certificates, manifests, and secrets.
//!
//! Everything is read, and everything that is wrong is said at once. Files are kept with hidden lines for
//! findings, because a patch may hold a secret on any of them.

mod references;
mod vault;

use std::{collections::BTreeMap, path::Path};

use ichor_machineconfig::{
    compose::{Material, Materials, Needs},
    secrets::SecretText,
};
use ichor_model::{Code, Desired, Finding, Findings, SecretRef, desired::Setting};
use ichor_spec::Sources;
use zeroize::Zeroizing;

use self::{references::resolve_with, vault::Vault};

pub use self::references::resolve;

use crate::{
    Site, System, masked,
    system::{Links, Unreadable},
};

/// Largest file that an inventory may name. Real patches have a few KiB.
const MAX_BYTES: usize = 1024 * 1024;

/// Stands for a secret that a rehearsal does without.
const STAND_IN: &str = "stand-in-of-a-rehearsal";

/// Reads everything that is needed, or says what cannot be had.
pub fn gather(
    system: &dyn System,
    site: Site<'_>,
    needs: &Needs,
    sources: &mut Sources,
) -> Result<Materials, Findings> {
    let vault = Vault::new(system);
    gather_with(system, site, needs, sources, |reference| resolve_with(system, site, &vault, reference))
}

/// Reads everything that a rehearsal needs: files as they are, and stand-ins for all secrets.
pub fn rehearse(
    system: &dyn System,
    site: Site<'_>,
    needs: &Needs,
    sources: &mut Sources,
) -> Result<Materials, Findings> {
    gather_with(system, site, needs, sources, |_| Ok(SecretText::new(STAND_IN)))
}

fn gather_with(
    system: &dyn System,
    site: Site<'_>,
    needs: &Needs,
    sources: &mut Sources,
    resolve: impl Fn(&SecretRef) -> Result<SecretText, Box<Finding>>,
) -> Result<Materials, Findings> {
    let mut findings = Findings::new();
    let mut files = BTreeMap::new();
    for name in &needs.files {
        match read_file(system, site, name) {
            Ok(bytes) => {
                let source = masked::add(sources, site.path(name).display().to_string(), &bytes);
                files.insert(name.clone(), Material { source, bytes: bytes.to_vec() });
            }
            Err(finding) => findings.push(*finding),
        }
    }
    let mut secrets = BTreeMap::new();
    for reference in &needs.secrets {
        match resolve(reference) {
            Ok(secret) => {
                secrets.insert(reference.clone(), secret);
            }
            Err(finding) => findings.push(*finding),
        }
    }
    if findings.has_errors() { Err(findings) } else { Ok(Materials { files, secrets }) }
}

fn read_file(system: &dyn System, site: Site<'_>, name: &str) -> Result<Zeroizing<Vec<u8>>, Box<Finding>> {
    let path = site.path(name);
    let shown = path.display();
    let bad = |why: String, remedy: &str| {
        let message = format!("`{shown}`, which the inventory names, cannot be used");
        Box::new(Finding::error(Code::BAD_MATERIAL, None, message).because(why).remedy(remedy))
    };
    if is_inventory(system, site, &path) {
        return Err(bad("it is the inventory itself".into(), "name another file"));
    }
    let contents = system.read(&path, MAX_BYTES, Links::Follow).map_err(|why| match why {
        why if why.is_missing() => bad(why.to_string(), "write the file, or correct the path"),
        Unreadable::TooLarge(bytes) => bad(
            format!("it has {bytes} bytes, and at most {MAX_BYTES} are read"),
            "name the right file, or split it",
        ),
        why => bad(why.to_string(), "name a regular file that you may read"),
    })?;
    match std::str::from_utf8(&contents.bytes) {
        Ok(_) => Ok(contents.bytes),
        Err(_) => Err(bad("it is not UTF-8 text".into(), "save it as UTF-8")),
    }
}

/// Whether a path is another name of a file of the inventory.
fn is_inventory(system: &dyn System, site: Site<'_>, path: &Path) -> bool {
    let Ok(path) = system.canonical(path) else { return false };
    site.files.iter().any(|file| system.canonical(file).is_ok_and(|file| file == path))
}

/// Says where in the inventory a secret is used.
fn places(desired: &Desired, reference: &SecretRef) -> String {
    let os = &desired.os;
    let registries = os.registry_auth.iter().filter(|(_, auth)| auth.password == *reference);
    let registries = registries.map(|(name, _)| format!("`os.registries.{name}`"));
    let services = os.extension_services.iter().flat_map(|(name, service)| {
        let settings = service.environment.iter().chain(&service.files);
        let used = settings.filter(|(_, setting)| **setting == Setting::Secret(reference.clone()));
        used.map(move |(key, _)| format!("`{key}` of extension service `{name}`"))
    });
    registries.chain(services).collect::<Vec<_>>().join(", ")
}
