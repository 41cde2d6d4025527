//! `ichor up`.

use std::path::PathBuf;

use clap::{ValueEnum, ValueHint, builder::FalseyValueParser};
use ichor_model::MachineName;

const EXAMPLES: &str = "\
Examples:
  ichor up                                 shows the plan, asks, and makes the cluster
  ichor --lab up --yes                     rehearses it in a lab
  ichor plan --out plan.json && ichor up plan.json
                                           does what was looked at, or nothing
  ichor up --dry-run                       asks and plans, and changes nothing
  ichor up --phase images                  downloads images and builds templates ahead of time
  ichor up --only worker-3                 that machine and what it needs
  ichor up --yes --json | jq -c 'select(.event == \"ended\")'";

/// Makes a cluster as the inventory says: from nothing, from half, or from what an interrupted run left.
///
/// Looks first, shows what it would do, and asks. What is done already is left alone, so that running it again does
/// nothing, and running it after it was stopped goes on. VMs that are not of this cluster are never touched.
/// Machines that run are not changed: what differs from the inventory is told, and left as it is (exit code 0).
/// Ctrl-C once finishes what is in flight; twice stops at once. Either way the next run goes on.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Up {
    /// A plan that `ichor plan --out` wrote; refused if the inventory or the world has changed since.
    #[arg(value_name = "PLANFILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["phase", "only"])]
    pub plan: Option<PathBuf>,
    /// Goes ahead without asking.
    #[arg(short, long, env = "ICHOR_UP_YES", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub yes: bool,
    /// Shows what would be done and changes nothing. Exit code 2 if there is something to do.
    #[arg(long, env = "ICHOR_UP_DRY_RUN", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub dry_run: bool,
    /// Goes a part of the way only.
    #[arg(long, value_name = "PHASE", env = "ICHOR_PHASE", hide_env_values = true)]
    pub phase: Option<UpTo>,
    /// Only this machine, with what it needs; may be repeated.
    #[arg(long, value_name = "MACHINE", env = "ICHOR_ONLY", hide_env_values = true, value_delimiter = ',', value_parser = parse_machine)]
    pub only: Vec<MachineName>,
    /// Writes what happens to stdout, one JSON object a line, the last of which is the result; needs `--yes` or
    /// `--dry-run`. For the result alone: `-o json`.
    #[arg(long, env = "ICHOR_UP_JSON", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub json: bool,
}

/// A part of the way to a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum UpTo {
    /// Images and templates.
    Images,
    /// VMs, up to machines that have their config.
    Machines,
    /// etcd and Kubernetes, up to nodes that are ready.
    Bootstrap,
}

impl From<UpTo> for ichor_plan::Phase {
    fn from(part: UpTo) -> Self {
        match part {
            UpTo::Images => Self::Images,
            UpTo::Machines => Self::Machines,
            UpTo::Bootstrap => Self::Bootstrap,
        }
    }
}

fn parse_machine(text: &str) -> Result<MachineName, String> {
    MachineName::try_from(text.to_owned())
}
