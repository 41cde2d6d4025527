//! What lies on this computer: keys, the secrets that they open, and files that the inventory names.

use ichor_machineconfig::compose::{Materials, needs};
use ichor_model::Finding;
use ichor_spec::Sources;

use super::{Check, Group, counted, store::Asked};
use crate::{
    Keeping, Site, System,
    bundle::{self, Found, Signer},
    keyring::Keyring,
    materials, past,
    store::Store,
};

/// The check of the cluster's secrets.
pub const SECRETS: &str = "secrets";

/// What was found on this computer.
#[derive(Debug)]
pub struct Here {
    /// What is to be said.
    pub checks: Vec<Check>,
    /// The cluster's secrets, if they can be read.
    pub secrets: Option<Found>,
    /// Whether there are none: not even some that cannot be read, or that a store which gives no answer may have.
    pub has_none: bool,
    /// What the inventory names, as far as all of it could be had.
    pub materials: Materials,
}

/// Looks at what lies on this computer. Nothing is made that is not there. `asked` is what the store said before.
pub fn examine(system: &dyn System, site: Site<'_>, asked: &Asked, sources: &mut Sources) -> Here {
    let (materials, named) = named_files(system, site, sources);
    let mut here = Here { checks: vec![keys(system, site)], secrets: None, has_none: false, materials };
    if let Ok(store) = Store::of(site) {
        here.has_none = asked.is_read && !store.has_bundle(system);
        let (secrets, read) = secrets(system, site, &store, asked.is_read, sources);
        here.secrets = secrets;
        here.checks.push(read);
    }
    here.checks.push(named);
    here
}

/// Says that the cluster has machines, and that the secrets which they know are not here.
pub fn lost(finding: Finding) -> Check {
    Check::new(SECRETS, Group::Here, "machines of the cluster know some, and they are not here")
        .with([finding])
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
    is_read: bool,
    sources: &mut Sources,
) -> (Option<Found>, Check) {
    const ID: &str = SECRETS;
    if is_read && !store.has_bundle(system) && past::newest(system, store).is_some() {
        return (None, Check::new(ID, Group::Here, "they are gone").with([past::missing(system, store)]));
    }
    if !store.has_bundle(system) {
        return (
            None,
            if is_read {
                Check::new(
                    ID,
                    Group::Here,
                    "the cluster has none; `ichor up` makes them before its first machine",
                )
            } else {
                Check::unknown(ID, Group::Here, "the store does not tell, and its mirror has none")
            },
        );
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
