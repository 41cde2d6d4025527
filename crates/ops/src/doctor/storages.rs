//! Storages: what they may hold, and what room they have.

use std::collections::{BTreeMap, BTreeSet};

use ichor_model::{Desired, HostName, Observed};
use ichor_plan::files::{host_of, storage_of};

use super::{Check, Group, some};

const GIB: u64 = 1 << 30;

/// Returns the storages that machines use, by host.
fn wanted(desired: &Desired) -> BTreeSet<(HostName, String)> {
    let machines = desired.machines.iter().filter_map(|machine| Some((host_of(machine)?, machine)));
    machines
        .flat_map(|(host, machine)| {
            let extra = [&machine.vm.efi_storage, &machine.vm.cloudinit_storage];
            let disks = machine.disks.iter().map(|disk| disk.storage.clone());
            let images = storage_of(desired, host).images.clone();
            let all = disks.chain(extra.into_iter().flatten().cloned()).chain([images]);
            all.map(|storage| (host.clone(), storage)).collect::<Vec<_>>()
        })
        .collect()
}

/// What storages there are.
pub fn contents(desired: &Desired, observed: &Observed) -> Check {
    const ID: &str = "storages";
    if observed.storages.is_empty() {
        return Check::unknown(ID, Group::Storage, "Proxmox shows no storage to this token");
    }
    let names: BTreeMap<String, bool> = wanted(desired)
        .into_iter()
        .map(|at| {
            let shared = observed.storages.get(&at).is_some_and(|seen| seen.shared);
            (at.1, shared)
        })
        .collect();
    let told = |(name, shared): (&String, &bool)| {
        if *shared { format!("`{name}` (shared)") } else { format!("`{name}`") }
    };
    let names: Vec<String> = names.iter().map(told).collect();
    Check::new(ID, Group::Storage, some(&names))
}

/// What room they have.
pub fn room(desired: &Desired, observed: &Observed) -> Check {
    let wanted = wanted(desired);
    let mut rooms: Vec<String> = Vec::new();
    let mut told: BTreeSet<&str> = BTreeSet::new();
    for at in &wanted {
        let Some(seen) = observed.storages.get(at) else { continue };
        // A shared storage has its room once.
        if seen.shared && !told.insert(&at.1) {
            continue;
        }
        let place = if seen.shared { at.1.clone() } else { format!("{} on {}", at.1, at.0) };
        match seen.free {
            Some(free) => rooms.push(format!("{} GiB in {place}", free / GIB)),
            None => rooms.push(format!("unknown in {place}")),
        }
    }
    if rooms.is_empty() {
        return Check::unknown("room", Group::Storage, "none of the storages was seen");
    }
    Check::new("room", Group::Storage, format!("free: {}", some(&rooms)))
}
