//! `ichor doctor`.

const EXAMPLES: &str = "\
Examples:
  ichor doctor                             everything that could stand in the way, with what to do about it
  ichor --lab doctor                       the same in a lab
  ichor doctor -o json | jq -r '.checks[] | select(.state == \"error\").id'
  ichor doctor > /dev/null && ichor up     exit code 4 if something stands in the way";

/// Looks at everything that could stand in the way of a cluster, before or after it is made. Changes nothing.
///
/// Privileges that are missing or too many, certificates, what the release of Proxmox can do, hosts and their clocks,
/// storages, bridges, addresses that others have, clashes of numbers, MAC addresses and names, the Image Factory,
/// registries, the store and its keys. All of it is told at once: what cannot be looked at is unknown, and keeps
/// nothing else from being told. Warnings alone end with exit code 0.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Doctor {}
