//! `ichor secrets import`: the secrets of a cluster that runs.
//!
//! 1. [`bundle::read`]: a `secrets.yaml` or a control plane's machine config, told apart by content;
//! 2. the same bundle as the one that is kept is no change, and has its record completed;
//! 3. [`Store::keep`]: any other is kept, unless the cluster already has one.

use std::path::PathBuf;

use ichor_model::Minor;
use ichor_spec::Sources;

use super::show::{Authority, authorities};
use crate::{
    Halt, Site, System,
    bundle::{self, Form, Found, Input},
    halt::only,
    store::Store,
    system::Links,
};

/// What was imported.
#[derive(Debug)]
pub struct Imported {
    /// The bundle as it was found.
    pub found: Found,
    /// Its certificate authorities.
    pub authorities: Vec<Authority>,
    /// The contract that was recorded.
    pub contract: Minor,
    /// Where the bundle is kept.
    pub path: PathBuf,
    /// Whether it was there already.
    pub was_there: bool,
}

impl Imported {
    /// Returns what the file was.
    pub const fn form(&self) -> Form {
        self.found.form
    }
}

/// Imports a bundle.
pub fn import(
    system: &dyn System,
    site: Site<'_>,
    input: &Input,
    sources: &mut Sources,
) -> Result<Imported, Halt> {
    let store = Store::of(site).map_err(|finding| Halt::invalid(only(*finding)))?;
    let found = bundle::read(system, input, sources)?;
    let contract = site.desired.cluster.contract;
    let text = found.bundle.to_secrets_yaml();
    let was_there = is_kept(system, &store, text.expose().as_bytes());
    if was_there {
        complete_record(system, &store, contract)?;
    } else {
        store.keep(system, text.expose().as_bytes(), contract)?;
    }
    let authorities = authorities(&found.bundle);
    Ok(Imported { authorities, contract, path: store.bundle().to_owned(), was_there, found })
}

fn is_kept(system: &dyn System, store: &Store, bytes: &[u8]) -> bool {
    system
        .read(store.bundle(), bytes.len(), Links::Follow)
        .is_ok_and(|contents| contents.bytes.as_slice() == bytes)
}

/// A record that is there stays: the cluster was made with that contract.
fn complete_record(system: &dyn System, store: &Store, contract: Minor) -> Result<(), Halt> {
    match store.contract(system).map_err(|finding| Halt::invalid(only(*finding)))? {
        Some(_) => Ok(()),
        None => store.write_record(system, contract),
    }
}
