//! Clusters whose machines are there, and whose secrets are not.

use std::path::PathBuf;

use ichor_model::{Code, Finding, Observed, observed::Sight};

use crate::{
    System,
    past::{self, Past},
    place,
    store::Store,
};

/// Most VMs that are named one by one.
const MOST_NAMES: usize = 9;

/// Says which VMs there are of a cluster that has no secrets. They were made with secrets that are not here, and
/// accept nothing that is made from others. Templates know none.
pub fn lost(system: &dyn System, store: &Store, observed: &Observed) -> Option<Finding> {
    let seen = observed.vms.iter().filter_map(|(vmid, sight)| Some((vmid, Sight::seen(sight)?.as_ref()?)));
    let machines = seen.filter(|(_, vm)| vm.owner.is_cluster() && !vm.template);
    let named: Vec<String> =
        machines.map(|(vmid, vm)| format!("VM {vmid} (`{}`) on host {}", vm.name, vm.host)).collect();
    if named.is_empty() {
        return None;
    }
    let rest = named.len().saturating_sub(MOST_NAMES);
    let more = if rest == 0 { String::new() } else { format!(", and {rest} more") };
    let named = named.into_iter().take(MOST_NAMES).collect::<Vec<_>>().join(", ");
    let past = past::newest(system, store);
    let message = "the cluster has machines, and its secrets are not here";
    Some(
        Finding::error(Code::SECRETS_LOST, None, message)
            .because(format!("{named}{more} accept nothing that is made from other secrets"))
            .because(format!("looked for `{}`", store.bundle().display()))
            .remedy(remedy(past.as_ref(), &store.elsewhere(system))),
    )
}

/// Leads to where the secrets are. That the machines have to go is nobody's first thought: `ichor explain` has it.
fn remedy(past: Option<&Past>, elsewhere: &[PathBuf]) -> String {
    if let Some(past) = past {
        return format!("{} has secrets of the cluster; {}", past.named(), past.way_back());
    }
    match elsewhere {
        [] => "bring the secrets here, from the store that the cluster had before, from whoever made it, from a backup, or from the machine config of a control plane:\n    ichor secrets import FILE".to_owned(),
        found => {
            let commands: String =
                found.iter().map(|path| format!("\n    ichor secrets import {}", place::quoted(path))).collect();
            format!("another store beside the inventory has secrets of a cluster of this name; bring them into this one:{commands}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::past::{Secrets, Written};

    #[test]
    fn the_nearest_place_of_the_secrets_is_named_first() {
        let written = Written { by: "ann@laptop".into(), at: "noon".into() };
        let past = Past { number: 7, written: Some(written), secrets: Secrets::Closed };
        let elsewhere = [PathBuf::from(".ichor/lab/secrets.sops.yaml")];
        let told = remedy(Some(&past), &elsewhere);
        assert!(told.contains("generation 7, which `ann@laptop` wrote at noon"), "{told}");
        assert!(told.ends_with("\n    ichor secrets restore"), "{told}");
        assert!(
            remedy(None, &elsewhere).ends_with("\n    ichor secrets import .ichor/lab/secrets.sops.yaml")
        );
        assert!(remedy(None, &[]).ends_with("\n    ichor secrets import FILE"));
    }
}
