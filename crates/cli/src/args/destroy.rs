//! `ichor destroy`.

use clap::builder::FalseyValueParser;

const EXAMPLES: &str = "\
Examples:
  ichor destroy                            shows what goes and what stays, and asks for the cluster's name
  ichor --lab destroy --yes                in a lab, without asking
  ichor destroy --all                      images and templates too
  ichor destroy --dry-run                  shows it and changes nothing";

/// Removes a cluster: stops and deletes its VMs with their disks.
///
/// Exactly what is ours goes, found by what each VM carries. Images and templates stay for the next time, unless
/// asked otherwise. A cluster with `protect` in its inventory is refused, and one whose secrets are not here. Secrets are kept. What stays is listed, before
/// the question and at the end: also backups, disks that hang on no VM, and volumes that Kubernetes has on Proxmox, as
/// far as it can still be asked. None of them is ever deleted.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Destroy {
    /// Goes ahead without asking for the cluster's name.
    #[arg(short, long, env = "ICHOR_DESTROY_YES", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub yes: bool,
    /// Deletes the cluster's templates and images too. Other clusters may share the images; they fetch them again.
    #[arg(long, env = "ICHOR_DESTROY_ALL", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub all: bool,
    /// Goes ahead though the cluster's secrets are not here, do not open, or are others than its machines know, and only
    /// its name says that the VMs are of this inventory.
    #[arg(long, env = "ICHOR_DESTROY_WITHOUT_SECRETS", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub without_secrets: bool,
    /// Shows what would go and changes nothing. Exit code 2 if there is something to remove.
    #[arg(long, env = "ICHOR_DESTROY_DRY_RUN", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub dry_run: bool,
    /// Writes what happens to stdout, one JSON object a line, the last of which is the result; needs `--yes` or
    /// `--dry-run`. For the result alone: `-o json`.
    #[arg(long, env = "ICHOR_DESTROY_JSON", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub json: bool,
}
