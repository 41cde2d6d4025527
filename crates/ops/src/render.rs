//! `ichor render`: a cluster as a directory of files, for people and for other tools.
//!
//! 1. [`bundle::of_cluster`]: the secrets, which must be there;
//! 2. [`materials::gather`]: the files and secrets that the inventory names;
//! 3. `draw_up`: every file of the cluster, in memory; all that is wrong is said at once;
//! 4. `look`: what is in the directory already, and whose it is; files of others stop it all here;
//! 5. `carry_out`: the list of what will be ours, then the files, then the list of what is.
//!
//! The list holds the digests of what ichor wrote. While files are being written it holds the old and the
//! new digest of each, so that a run that was stopped anywhere is simply run again.

mod directory;
mod files;
mod list;
mod terraform;

use std::path::{Path, PathBuf};

use ichor_machineconfig::compose::needs;
use ichor_model::Findings;
use ichor_spec::Sources;

pub use self::{directory::State, files::File};
use self::{
    directory::{Wanted, carry_out, look},
    files::draw_up,
    list::Owner,
};
use crate::{
    Halt, Origin, Site, System,
    bundle::{self, Signer},
    contract,
    halt::only,
    materials,
    shared::Fingerprint,
    store::Store,
};

/// What was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The directory that the files go to.
    pub directory: &'a Path,
    /// A bundle in place of the one that is kept.
    pub secrets: Option<&'a Path>,
    /// Whether files of others are written over.
    pub overwrite: bool,
}

/// A cluster that is drawn up, but not yet written.
#[derive(Debug)]
pub struct Drawn {
    /// Where its files go.
    directory: PathBuf,
    /// The cluster.
    owner: Owner,
    /// The files.
    files: Vec<File>,
    /// What is there.
    seen: directory::Seen,
    /// What tells its secrets from those of other clusters.
    pub fingerprint: Fingerprint,
    /// Warnings.
    pub findings: Findings,
}

/// What became of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Its path, below the directory.
    pub path: String,
    /// What it is.
    pub what: String,
    /// What was done.
    pub state: State,
}

/// Draws up all files of a cluster and looks at what is there. Nothing is written.
pub fn draw(
    system: &dyn System,
    site: Site<'_>,
    request: Request<'_>,
    sources: &mut Sources,
) -> Result<Drawn, Halt> {
    if let Ok(store) = Store::of(site) {
        store.sweep(system, None)?;
    }
    let found = bundle::of_cluster(system, site, request.secrets, Signer::Talos, sources)?;
    let mut findings = found.findings;
    findings.extend(unknown_contract(system, site, request.secrets));
    let gathered = materials::gather(system, site, &needs(site.desired), sources).map_err(Halt::invalid)?;
    let (files, notes) = draw_up(system, site.desired, &found.bundle, &gathered, request.directory)?;
    findings.extend(notes);
    let fingerprint = Fingerprint::of(&found.bundle);
    let owner = Owner { cluster: site.name().to_owned(), cluster_id: fingerprint.cluster_id.clone() };
    let (seen, notes) = look(system, site, Wanted { owner: &owner, files: &files, request })?;
    findings.extend(notes);
    Ok(Drawn { directory: request.directory.to_owned(), owner, files, seen, fingerprint, findings })
}

/// Secrets that are given need a contract as much as those that are kept, of which resolving has spoken.
fn unknown_contract(system: &dyn System, site: Site<'_>, given: Option<&Path>) -> Findings {
    let store = Store::of(site).ok();
    let has_bundle = store.as_ref().is_some_and(|store| store.has_bundle(system));
    if given.is_none() || has_bundle || site.contract != Origin::Assumed {
        return Findings::new();
    }
    let record = store.map_or_else(|| site.path("cluster.json"), |store| store.record());
    only(contract::no_record(site, &record))
}

/// Writes the files of a cluster.
pub fn write(system: &dyn System, drawn: &Drawn) -> Result<Vec<Outcome>, Halt> {
    let request = Request { directory: &drawn.directory, secrets: None, overwrite: false };
    carry_out(system, Wanted { owner: &drawn.owner, files: &drawn.files, request }, &drawn.seen)?;
    let outcome = |(file, state): (&File, &State)| Outcome {
        path: file.path.clone(),
        what: file.what.clone(),
        state: *state,
    };
    Ok(drawn.files.iter().zip(&drawn.seen.states).map(outcome).collect())
}
