//! `ichor secrets export`: talosctl's `secrets.yaml`, for leaving or for a backup.
//!
//! 1. [`bundle::of_cluster`]: the bundle that is kept;
//! 2. its text, byte for byte as talosctl would write it.

use ichor_model::Findings;
use ichor_spec::Sources;

use crate::{
    Halt, Site, System,
    access::{Kind, Made},
    bundle::{self, Signer},
};

/// Returns the bundle as `secrets.yaml`, with warnings.
pub fn export(system: &dyn System, site: Site<'_>, sources: &mut Sources) -> Result<(Made, Findings), Halt> {
    let found = bundle::of_cluster(system, site, None, Signer::Nobody, sources)?;
    let text = found.bundle.to_secrets_yaml();
    Ok((Made { text, kind: Kind::Bundle, ends: None, leads_to: Vec::new() }, found.findings))
}
