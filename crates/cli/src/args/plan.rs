//! `ichor plan`.

use std::path::PathBuf;

use clap::{ValueEnum, ValueHint, builder::FalseyValueParser};
use ichor_model::HostName;

const EXAMPLES: &str = "\
Examples:
  ichor plan                                    what `up` would do, and why; exit code 2 if there is something
  ichor plan --out plan.json                    and keeps it for `ichor up plan.json`
  ichor plan --offline                          the machines, their hosts, numbers and addresses
  ichor plan --offline --explain                and why each machine goes to its host
  ichor plan --offline --lose pve1              what would be left without host `pve1`
  ichor plan --offline --graph svg > plan.svg   a picture of it
  ichor plan --offline -o json | jq '.machines[].vmid'
  ichor plan --offline --observed world.json    against hosts and VMs that were seen before";

/// Shows what has to be done for the cluster to be as the inventory says, step by step; offline, what it stands for.
///
/// Looks at Proxmox, the machines and Kubernetes, and changes nothing. With `--offline` the inventory alone is
/// worked out, down to every VMID, address and MAC. The same input gives the same plan, everywhere and always.
///
/// What differs on machines that run, and no step settles, is told as warnings: options of VMs, releases, images,
/// machine configs, addresses, and machines that are not in the inventory. They do not change the exit code: it is 2
/// if there are steps, and 0 if there are none.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Plan {
    /// Plans without asking Proxmox.
    #[arg(long, env = "ICHOR_OFFLINE", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub offline: bool,
    /// Says of each machine why it goes to its host.
    #[arg(long, env = "ICHOR_EXPLAIN", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub explain: bool,
    /// Tells what would be left if a host were lost: quorum, and where its machines could go.
    #[arg(long, value_name = "HOST", env = "ICHOR_LOSE", hide_env_values = true, value_parser = parse_host)]
    pub lose: Option<HostName>,
    /// Draws the cluster; takes the place of `--output`.
    #[arg(long, value_name = "FORM", env = "ICHOR_GRAPH", hide_env_values = true)]
    pub graph: Option<Graph>,
    /// A JSON file of hosts and VMs that were seen, to plan against without asking Proxmox.
    #[arg(long, value_name = "FILE", env = "ICHOR_OBSERVED", hide_env_values = true, value_hint = ValueHint::FilePath)]
    pub observed: Option<PathBuf>,
    /// A file to keep the plan in, for `ichor up FILE`: it does these steps, or refuses if the world has changed.
    #[arg(long, value_name = "FILE", env = "ICHOR_PLAN_OUT", hide_env_values = true, value_hint = ValueHint::FilePath, conflicts_with = "offline")]
    pub out: Option<PathBuf>,
}

/// The form of a drawing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Graph {
    /// Text that GitHub and many editors draw.
    Mermaid,
    /// A picture.
    Svg,
}

fn parse_host(text: &str) -> Result<HostName, String> {
    HostName::try_from(text.to_owned())
}
