//! `ichor health`.

const EXAMPLES: &str = "\
Examples:
  ichor health                             every check, with what to do about those that failed
  ichor health -o json | jq -r '.checks[] | select(.state != \"ok\").id'
  ichor health > /dev/null && echo well    exit code 1 unless all is well";

/// Checks a cluster: Proxmox, Talos, etcd and Kubernetes, each check with a name and a remedy.
///
/// Changes nothing. What cannot be seen is unknown, and not well.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Health {}
