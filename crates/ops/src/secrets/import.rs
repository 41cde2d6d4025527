//! `ichor secrets import`: the secrets of a cluster that runs.
//!
//! 1. [`bundle::read`]: a `secrets.yaml` or a control plane's machine config, told apart by content, encrypted or
//!    not;
//! 2. the same bundle as the one that is kept is no change, and has its record completed;
//! 3. [`Store::keep`]: any other is kept, unless the cluster already has one. What is there and is no bundle is put
//!    aside ([`Store::supplant`]).

use std::path::PathBuf;

use ichor_machineconfig::secrets::SecretText;
use ichor_model::{Code, Finding, Findings, Minor};
use ichor_spec::Sources;

use super::show::{Authority, authorities};
use crate::{
    Halt, Origin, Site, System,
    bundle::{self, Form, Found, Input, Present, Signer},
    halt::only,
    recipients::Chosen,
    sealing,
    store::{self, NextRecord, Store},
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
    /// How it was encrypted; nothing, if it was there or is kept in plain.
    pub chosen: Option<Chosen>,
    /// What was there and could not be used, under the names that it has now.
    pub aside: Vec<PathBuf>,
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
    store.sweep(system, None)?;
    let mut found = bundle::read(system, input, Signer::Nobody, sources)?;
    // Secrets that come out of another store bring what was recorded there.
    let beside = match input {
        Input::File(path) if site.contract == Origin::Assumed => store::recorded_beside(system, path),
        _ => None,
    };
    let contract = beside.unwrap_or(site.desired.cluster.contract);
    let text = found.bundle.to_secrets_yaml();
    let was_there = is_kept(system, &store, &text);
    let other_shape = found.contracts.filter(|(first, last)| !(*first..=*last).contains(&contract));
    // A contract that nobody said and that does not fit is not written down: it would be kept for ever.
    let recorded =
        (other_shape.is_none() || beside.is_some() || site.contract != Origin::Assumed).then_some(contract);
    let is_damaged = matches!(bundle::present(system, &store), Ok(Present::Damaged));
    let mut aside = Vec::new();
    let (notes, chosen) = if was_there {
        (complete_record(system, &store, recorded)?, None)
    } else {
        if !is_damaged {
            store.refuse_to_write(system)?;
        }
        let chosen = sealing::choose(system, site, &store)?;
        let file = sealing::file(system, &text, chosen.as_ref())?;
        let notes = if is_damaged {
            aside = store.supplant(system, &file, NextRecord::of(recorded))?;
            Findings::new()
        } else {
            store.keep(system, &file, recorded, None)?
        };
        (notes, chosen)
    };
    found.findings.extend(notes);
    found.findings.extend(other_shape.map(|shape| warn_of_shape(contract, shape)).into_iter().collect());
    let authorities = authorities(&found.bundle);
    let path = store.kept(system).to_owned();
    Ok(Imported { found, authorities, contract, path, was_there, chosen, aside })
}

/// Whether the bundle that is kept is this one. One that cannot be opened is another one.
fn is_kept(system: &dyn System, store: &Store, text: &SecretText) -> bool {
    let kept = Input::File(store.kept(system).to_owned());
    bundle::read(system, &kept, Signer::Nobody, &mut Sources::default())
        .is_ok_and(|found| found.bundle.to_secrets_yaml() == *text)
}

/// A record that is there stays: the cluster was made with that contract.
fn complete_record(system: &dyn System, store: &Store, contract: Option<Minor>) -> Result<Findings, Halt> {
    let recorded = store.contract(system).map_err(|finding| Halt::invalid(only(*finding)))?;
    match contract.filter(|_| recorded.is_none()) {
        Some(contract) => store.write_record(system, contract),
        None => Ok(Findings::new()),
    }
}

/// Warns that the cluster's own machine config has another shape than those that ichor would write.
fn warn_of_shape(contract: Minor, (first, last): (Minor, Minor)) -> Finding {
    let nearest = if contract < first { first } else { last };
    let shape =
        if first == last { format!("contract {first}") } else { format!("contracts {first} to {last}") };
    let message =
        format!("the machine config has the shape of {shape}, and the inventory stands for {contract}");
    Finding::warning(Code::CONTRACT, None, message)
        .because("machine configs would change their shape, and patches that fit it would not fit any more")
        .remedy(format!(
            "write the contract that the cluster was made with, as in\n    cluster: {{contract: \"{nearest}\"}}"
        ))
}
