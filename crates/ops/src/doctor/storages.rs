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
    let mut least: BTreeMap<String, (Option<u64>, usize, bool)> = BTreeMap::new();
    for at in wanted(desired) {
        let Some(seen) = observed.storages.get(&at) else { continue };
        let room = least.entry(at.1).or_insert((seen.free, 0, seen.shared));
        room.0 = room.0.min(seen.free);
        room.1 += 1;
    }
    let told = |(name, (free, hosts, shared)): (&String, &(Option<u64>, usize, bool))| {
        let free = free.map_or_else(|| "unknown".to_owned(), |free| format!("{} GiB", free / GIB));
        match hosts {
            1 => format!("{free} in `{name}`"),
            // A shared storage has its room once.
            _ if *shared => format!("{free} in `{name}`"),
            hosts => format!("{free} or more in `{name}` on each of {hosts} hosts"),
        }
    };
    let rooms: Vec<String> = least.iter().map(told).collect();
    if rooms.is_empty() {
        return Check::unknown("room", Group::Storage, "none of the storages was seen");
    }
    Check::new("room", Group::Storage, format!("free: {}", some(&rooms)))
}
