//! `ichor lock`.

use clap::{Subcommand, builder::FalseyValueParser};

const EXAMPLES: &str = "\
Examples:
  ichor lock show                          who is at work on the cluster
  ichor lock break                         takes the lock away from a run that is dead";

const SHOW_EXAMPLES: &str = "\
Examples:
  ichor lock show -o json | jq -r .holder.who";

const BREAK_EXAMPLES: &str = "\
Examples:
  ichor lock break                         shows who holds it, and asks
  ichor lock break --yes                   without asking";

/// Shows who is at work on a cluster, or takes the lock away from a run that is dead.
///
/// Whoever changes a cluster holds the lock of its store. The lock of a run whose process is gone is taken over by the
/// next run on the same machine; elsewhere, by one that waits (`--lock-timeout`) and sees for two minutes that nobody
/// renews it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Lock {
    /// What to do.
    #[command(subcommand)]
    pub verb: LockVerb,
}

/// What to do with a lock.
#[derive(Debug, Subcommand)]
pub enum LockVerb {
    /// Shows who holds the lock.
    #[command(after_help = SHOW_EXAMPLES)]
    Show,
    /// Takes the lock away from whoever holds it.
    ///
    /// A run that is alive notices when it renews the lock the next time, up to ten seconds later. Until then it goes on,
    /// and what it has in flight then is finished. Break the lock of a run only when you know that it is dead.
    #[command(after_help = BREAK_EXAMPLES)]
    Break {
        /// Goes ahead without asking.
        #[arg(short, long, env = "ICHOR_LOCK_BREAK_YES", hide_env_values = true, value_parser = FalseyValueParser::new())]
        yes: bool,
    },
}
