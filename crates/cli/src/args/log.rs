//! `ichor log`.

use clap::{Subcommand, builder::FalseyValueParser};

const EXAMPLES: &str = "\
Examples:
  ichor log show                           what was done to the cluster, and by whom
  ichor log verify                         whether somebody has changed the trail
  ichor log accept                         go on though its end is lost for good";

const SHOW_EXAMPLES: &str = "\
Examples:
  ichor log show --last 5
  ichor log show -o json | jq -r '.entries[] | [.at, .who, .verb, .outcome] | @tsv'";

const VERIFY_EXAMPLES: &str = "\
Examples:
  ichor log verify && echo whole";

const ACCEPT_EXAMPLES: &str = "\
Examples:
  ichor log accept                         shows what is missing, and asks
  ichor log accept --yes                   without asking";

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
    /// Goes on with a trail whose end is lost for good, and says so in an entry of its own.
    ///
    /// Runs that change something are refused while the entry at which the trail ended is missing, or is another one.
    /// This adds an entry after the gap, with who accepted it. The gap stays, and `verify` goes on to name it.
    #[command(after_help = ACCEPT_EXAMPLES)]
    Accept {
        /// Goes ahead without asking.
        #[arg(short, long, env = "ICHOR_LOG_ACCEPT_YES", hide_env_values = true, value_parser = FalseyValueParser::new())]
        yes: bool,
    },
}
