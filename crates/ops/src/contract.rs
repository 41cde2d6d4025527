//! The machine-config contract of a cluster: the one it was made with, wherever that is said.

use std::path::{Path, PathBuf};

use ichor_model::{Code, Finding, Findings, Minor, World};
use ichor_plan::Resolution;
use ichor_spec::Inventory;

use crate::{Keeping, Origin, Site, System, halt::only, store::Store};

/// An inventory, resolved with the contract that its cluster was made with.
#[derive(Debug)]
pub struct AsMade {
    /// What came of it.
    pub resolution: Resolution,
    /// Where the contract is from.
    pub contract: Origin,
    /// What is to be said about the record.
    pub findings: Findings,
}

/// Resolves an inventory with the contract that the cluster was made with. Where that is recorded only the
/// resolved inventory says, so a record that changes something is followed by a second look.
pub fn resolve(
    system: &dyn System,
    inventory: &Inventory,
    (directory, files): (&Path, &[PathBuf]),
    world: &World,
) -> AsMade {
    let written = inventory.cluster.as_ref().is_some_and(|cluster| cluster.contract.is_some());
    let said = if written { Origin::Written } else { Origin::Assumed };
    let first = ichor_plan::resolve(inventory, world);
    let Some(desired) = &first.desired else {
        return AsMade { resolution: first, contract: said, findings: Findings::new() };
    };
    let site = Site { desired, directory, files, contract: said, keeping: Keeping::Encrypted };
    let (recorded, findings) = recorded(system, site);
    match recorded {
        None => AsMade { resolution: first, contract: said, findings },
        Some(contract) if contract == desired.cluster.contract => {
            AsMade { resolution: first, contract: Origin::Recorded, findings }
        }
        contract => {
            let resolution = ichor_plan::resolve(inventory, &World { contract, ..world.clone() });
            AsMade { resolution, contract: Origin::Recorded, findings }
        }
    }
}

/// Returns the contract that was recorded. Secrets without one are worth a warning.
fn recorded(system: &dyn System, site: Site<'_>) -> (Option<Minor>, Findings) {
    let Ok(store) = Store::of(site) else { return (None, Findings::new()) };
    match store.contract(system) {
        Ok(None) if site.contract == Origin::Assumed && store.has_bundle(system) => {
            (None, only(no_record(site, &store.record())))
        }
        Ok(contract) => (contract, Findings::new()),
        Err(finding) => (None, only(*finding)),
    }
}

/// Says that nobody knows the contract of a cluster that has secrets.
pub fn no_record(site: Site<'_>, record: &Path) -> Finding {
    let contract = site.desired.cluster.contract;
    let message = format!("it is not known which contract cluster `{}` was made with", site.name());
    Finding::warning(Code::NO_RECORD, None, message)
        .because(format!("there is no `{}`, and the inventory does not say it", record.display()))
        .because(format!("machine configs get the shape of contract {contract}, that of the Talos in the inventory"))
        .remedy(format!(
            "write the contract that the cluster was made with, as in\n    cluster: {{contract: \"{contract}\"}}"
        ))
}
