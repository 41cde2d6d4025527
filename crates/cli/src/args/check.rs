//! `ichor check`.

use clap::builder::FalseyValueParser;

const EXAMPLES: &str = "\
Examples:
  ichor check                            check ./ichor.yaml or ./cluster.yaml
  ichor check -f clusters/               check every cluster of a directory, also against each other
  ichor check -f lab.yaml -o json        for programs: every finding with its place and remedy
  ichor check --deny-warnings            for pipelines: a warning is a failure too";

/// Checks inventories without touching anything.
///
/// Reads the inventory, works out every machine, and reports everything that is wrong at once, each
/// finding with its place and remedy. Neither Proxmox nor any machine is asked.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Check {
    /// Ends with exit code 3 when there are warnings.
    #[arg(long, env = "ICHOR_DENY_WARNINGS", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub deny_warnings: bool,
}
