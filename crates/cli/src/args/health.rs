//! `ichor health`.

use std::time::Duration;

use super::lifetime;

const EXAMPLES: &str = "\
Examples:
  ichor health                             every check, with what to do about those that failed
  ichor health -o json | jq -r '.checks[] | select(.state != \"ok\").id'
  ichor health > /dev/null && echo well    exit code 1 unless all is well
  ichor up --yes && ichor health --wait 5m machines go on booting for a moment when their nodes are ready";

/// Checks a cluster: Proxmox, Talos, etcd and Kubernetes, each check with a name and a remedy.
///
/// Changes nothing. What cannot be seen is unknown, and not well.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Health {
    /// How long to look again and again until all is well, as in `5m`. Absent: looks once.
    #[arg(long, value_name = "DURATION", env = "ICHOR_HEALTH_WAIT", hide_env_values = true, value_parser = lifetime::parse)]
    pub wait: Option<Duration>,
}
