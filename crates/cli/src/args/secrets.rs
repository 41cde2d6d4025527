//! `ichor secrets`.

use std::path::PathBuf;

use clap::{Subcommand, ValueHint, builder::FalseyValueParser};

const EXAMPLES: &str = "\
Examples:
  ichor secrets new                        make the secrets of a new cluster
  ichor secrets import secrets.yaml        take those of a cluster that runs
  ichor secrets show                       what is kept, without any secret
  ichor secrets export > secrets.yaml      for talosctl, or for a backup";

const NEW_EXAMPLES: &str = "\
Examples:
  ichor secrets new                        for the cluster of ./ichor.yaml
  ichor -f clusters/ --cluster lab secrets new";

const IMPORT_EXAMPLES: &str = "\
Examples:
  ichor secrets import secrets.yaml        made by `talosctl gen secrets`
  ichor secrets import controlplane.yaml   a control plane's machine config holds them too
  talosctl -n 10.0.0.11 get machineconfig v1alpha1 -o jsonpath='{.spec}' | ichor secrets import -
  sops -d secrets.sops.yaml | ichor secrets import -";

const EXPORT_EXAMPLES: &str = "\
Examples:
  ichor secrets export --out secrets.yaml  a file for its owner alone
  ichor secrets export | age -r age1... > secrets.yaml.age";

const SHOW_EXAMPLES: &str = "\
Examples:
  ichor secrets show                       fingerprints, ends and algorithms
  ichor secrets show -o json | jq -r '.authorities[].ends'";

/// Makes, imports, exports and shows the secrets of a cluster.
///
/// They are made once and kept for the cluster's whole life: the certificate authorities, keys and tokens
/// from which everything else can be made again. ichor keeps them as talosctl does, in a `secrets.yaml`, in
/// the directory that `store` names (`.ichor` beside the inventory), or in the file that `secrets.file`
/// names.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
pub struct Secrets {
    /// What to do.
    #[command(subcommand)]
    pub verb: SecretsVerb,
}

/// What to do with secrets.
#[derive(Debug, Subcommand)]
pub enum SecretsVerb {
    /// Makes the secrets of a new cluster.
    ///
    /// They are written once and never over others. The machine-config contract of the inventory is recorded
    /// beside them, and kept when Talos is upgraded later.
    #[command(after_help = NEW_EXAMPLES)]
    New,
    /// Imports the secrets of a cluster that runs.
    #[command(after_help = IMPORT_EXAMPLES)]
    Import(Import),
    /// Prints the secrets as talosctl's `secrets.yaml`.
    #[command(after_help = EXPORT_EXAMPLES)]
    Export(Export),
    /// Shows what is kept, without any secret.
    #[command(after_help = SHOW_EXAMPLES)]
    Show,
}

/// `ichor secrets import`.
#[derive(Debug, clap::Args)]
pub struct Import {
    /// A `secrets.yaml`, or the machine config of a control plane; `-` for standard input.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub input: PathBuf,
}

/// `ichor secrets export`.
#[derive(Debug, clap::Args)]
pub struct Export {
    /// A file to write, for its owner alone, in place of standard output.
    #[arg(long, value_name = "FILE", env = "ICHOR_EXPORT_OUT", hide_env_values = true, value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    /// Writes over a file that is there.
    #[arg(long, env = "ICHOR_EXPORT_OVERWRITE", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub overwrite: bool,
}
