//! `ichor secrets new`: the secrets of a new cluster.
//!
//! 1. [`Store::of`]: where they are to be kept;
//! 2. [`Store::refuse_to_write`]: a cluster that has secrets keeps them, and one that lost them is told where they
//!    are ([`past::in_the_way`]);
//! 3. [`crate::recipients`]: to whom they are encrypted, which may make an identity for the user;
//! 4. [`Bundle::generate`]: all keys, certificates and tokens, from the machine's randomness;
//! 5. [`Store::keep`]: the record first, then the bundle, which is never written over another one.

use std::path::PathBuf;

use ichor_machineconfig::{
    pki::{PkiError, RsaKey},
    secrets::Bundle,
};
use ichor_model::{Code, Finding, Findings, Minor};

use crate::{
    Halt, Site, System, entropy::Draws, halt::only, past, recipients::Chosen, sealing, store::Store,
    system::Lock,
};

/// What was made.
#[derive(Debug)]
pub struct New {
    /// Where the bundle is kept.
    pub path: PathBuf,
    /// The cluster's id for discovery.
    pub cluster_id: String,
    /// The contract that was recorded.
    pub contract: Minor,
    /// How it was encrypted; nothing, if it is kept in plain.
    pub chosen: Option<Chosen>,
    /// Warnings.
    pub findings: Findings,
}

/// Makes the secrets of a new cluster. The RSA key takes seconds, so the caller may have begun with it.
pub fn new(
    system: &dyn System,
    site: Site<'_>,
    rsa: impl FnOnce() -> Result<RsaKey, PkiError>,
) -> Result<New, Halt> {
    make(system, site, rsa, None)
}

/// Does the same for a run that holds the cluster's store.
pub fn new_within(
    system: &dyn System,
    site: Site<'_>,
    rsa: impl FnOnce() -> Result<RsaKey, PkiError>,
    held: &Lock,
) -> Result<New, Halt> {
    make(system, site, rsa, Some(held))
}

fn make(
    system: &dyn System,
    site: Site<'_>,
    rsa: impl FnOnce() -> Result<RsaKey, PkiError>,
    held: Option<&Lock>,
) -> Result<New, Halt> {
    let store = Store::of(site).map_err(|finding| Halt::invalid(only(*finding)))?;
    store.sweep(system, held)?;
    if let Some(finding) = past::in_the_way(system, &store) {
        return Err(Halt::refused(only(finding)));
    }
    store.refuse_to_write(system)?;
    let chosen = sealing::choose(system, site, &store)?;
    let mut draws = Draws::new(system);
    let made = rsa().and_then(|rsa| Bundle::generate(&mut draws, system.now(), rsa));
    let bundle = draws.vouch(made).map_err(|error| Halt::failed(only(cannot_make(&error))))?;
    let contract = site.desired.cluster.contract;
    let file = sealing::file(system, &bundle.to_secrets_yaml(), chosen.as_ref())?;
    let findings = store.keep(system, &file, Some(contract), held)?;
    Ok(New { path: store.bundle().to_owned(), cluster_id: bundle.cluster_id, contract, chosen, findings })
}

fn cannot_make(error: &PkiError) -> Finding {
    Finding::error(Code::CERTIFICATE, None, "the secrets cannot be made").because(error.to_string())
}
