//! `ichor status`.

use clap::builder::FalseyValueParser;

const EXAMPLES: &str = "\
Examples:
  ichor status                             the cluster, its roles and its machines
  ichor status --watch                     again and again, until Ctrl-C
  ichor status -o json | jq '.machines[] | select(.node.state != \"ready\").name'";

/// Shows a cluster as it is: the VM, Talos, etcd and the node of each machine.
///
/// Asks Proxmox, the machines and Kubernetes at the same time, and changes nothing. What cannot be seen is shown as
/// `?` with the reason.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Status {
    /// Looks again every two seconds, until Ctrl-C.
    #[arg(short, long, env = "ICHOR_WATCH", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub watch: bool,
}
