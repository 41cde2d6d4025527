//! What lies on this computer: the store, the keys that open it, the secrets, and files that the inventory names.

use ichor_machineconfig::compose::{Materials, needs};
use ichor_model::{Code, Finding};
use ichor_spec::Sources;

use super::{Check, Group, counted};
use crate::{
    Keeping, Site, System,
    bundle::{self, Found, Signer},
    keyring::Keyring,
    materials, place,
    store::Store,
    system::{Entry, Openness},
};

/// What was found on this computer.
#[derive(Debug)]
pub struct Here {
    /// What is to be said.
    pub checks: Vec<Check>,
    /// The cluster's secrets, if they can be read.
    pub secrets: Option<Found>,
    /// What the inventory names, as far as all of it could be had.
    pub materials: Materials,
}

/// Looks at what lies on this computer. Nothing is made that is not there.
pub fn examine(system: &dyn System, site: Site<'_>, sources: &mut Sources) -> Here {
    let (materials, named) = named_files(system, site, sources);
    let store = match Store::of(site) {
        Ok(store) => store,
        Err(finding) => {
            let check = Check::new("store", Group::Here, &site.desired.store).with([*finding]);
            return Here { checks: vec![check, named], secrets: None, materials };
        }
    };
    let (secrets, read) = secrets(system, site, &store, sources);
    let checks = vec![store_check(system, &store), keys(system, site), read, named];
    Here { checks, secrets, materials }
}

fn store_check(system: &dyn System, store: &Store) -> Check {
    let root = store.root();
    let says = format!("`{}`", root.display());
    let check = |says: String| Check::new("store", Group::Here, says);
    match system.entry(root) {
        Ok(None) => check(format!("{says} is made by the first run")),
        Ok(Some(Entry::Directory(Openness::Closed))) => check(says),
        Ok(Some(Entry::Directory(_))) => {
            let message = format!("others can look into `{}`", root.display());
            check(says).with([Finding::warning(Code::OPEN_SECRETS, None, message)
                .because("secrets, plans and journals of clusters are kept there")
                .remedy(format!("keep it to yourself:\n    chmod 700 {}", place::quoted(root)))])
        }
        Ok(Some(_)) => {
            let message = format!("`{}` is no directory", root.display());
            check(says).with([Finding::error(Code::STORE_PLACE, None, message)
                .remedy("move it away, or name another directory: `store: {path: DIRECTORY}`")])
        }
        Err(error) => {
            let message = format!("`{}` cannot be looked at", root.display());
            check(says).with([Finding::error(Code::UNREADABLE, None, message)
                .because(error.to_string())
                .remedy("see to the directory and who may read it")])
        }
    }
}

fn keys(system: &dyn System, site: Site<'_>) -> Check {
    const ID: &str = "keys";
    if site.keeping == Keeping::Plain {
        return Check::new(ID, Group::Here, "secrets of a lab open nothing, and need no key");
    }
    let ring = Keyring::load(system);
    let says = match ring.own() {
        Some(recipient) => format!("yours is {}", recipient.text()),
        None => "you have none; the first secrets make one".to_owned(),
    };
    Check::new(ID, Group::Here, says).with(ring.findings().iter().cloned())
}

fn secrets(
    system: &dyn System,
    site: Site<'_>,
    store: &Store,
    sources: &mut Sources,
) -> (Option<Found>, Check) {
    const ID: &str = "secrets";
    if !store.has_bundle(system) {
        let says = "the cluster has none yet; `ichor up` makes them";
        return (None, Check::new(ID, Group::Here, says));
    }
    let says = format!("`{}`", store.kept(system).display());
    match bundle::of_cluster(system, site, None, Signer::Talos, sources) {
        Ok(found) => {
            let check = Check::new(ID, Group::Here, says).with(found.findings.iter().cloned());
            (Some(found), check)
        }
        Err(halt) => (None, Check::new(ID, Group::Here, says).with(halt.findings.iter().cloned())),
    }
}

fn named_files(system: &dyn System, site: Site<'_>, sources: &mut Sources) -> (Materials, Check) {
    let wanted = needs(site.desired);
    let gather = match site.keeping {
        Keeping::Encrypted => materials::gather,
        // A rehearsal needs no real secret of anybody.
        Keeping::Plain => materials::rehearse,
    };
    let says = format!(
        "{} and {} that the inventory names",
        counted(wanted.files.len(), "file"),
        counted(wanted.secrets.len(), "secret")
    );
    let check = Check::new("materials", Group::Here, says);
    match gather(system, site, &wanted, sources) {
        Ok(materials) => (materials, check),
        Err(findings) => (Materials::default(), check.with(findings.iter().cloned())),
    }
}
