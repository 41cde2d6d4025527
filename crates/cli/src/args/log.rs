//! `ichor log`.

use clap::Subcommand;

const EXAMPLES: &str = "\
Examples:
  ichor log show                           what was done to the cluster, and by whom
  ichor log verify                         whether somebody has changed the trail";

const SHOW_EXAMPLES: &str = "\
Examples:
  ichor log show --last 5
  ichor log show -o json | jq -r '.entries[] | [.at, .who, .verb, .outcome] | @tsv'";

const VERIFY_EXAMPLES: &str = "\
Examples:
  ichor log verify && echo whole";

/// Shows what was done to a cluster and by whom, or checks that nobody has changed it.
///
/// Every run that changes something leaves one entry in the store, with the checksum of the entry before it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Log {
    /// What to do.
    #[command(subcommand)]
    pub verb: LogVerb,
}

/// What to do with an audit trail.
#[derive(Debug, Subcommand)]
pub enum LogVerb {
    /// Shows the entries, the newest last.
    #[command(after_help = SHOW_EXAMPLES)]
    Show {
        /// Shows so many of the newest entries.
        #[arg(
            long,
            value_name = "NUMBER",
            env = "ICHOR_LOG_LAST",
            hide_env_values = true,
            default_value_t = 20
        )]
        last: usize,
    },
    /// Checks every entry, and names the first that was changed or is missing. Exit code 7 if there is one.
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify,
}
