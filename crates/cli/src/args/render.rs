//! `ichor render`.

use std::path::PathBuf;

use clap::{ValueHint, builder::FalseyValueParser};

const EXAMPLES: &str = "\
Examples:
  ichor render                             write to ./rendered
  ichor render out                         write to ./out
  ichor render -o json | jq -r '.files[] | select(.state != \"unchanged\").path'
  ichor render --secrets secrets.yaml      with these secrets in place of those that are kept";

/// Writes machine configs and everything that goes with them to a directory.
///
/// One machine config for each machine and for each role, the secrets, a talosconfig, the machines as a
/// variable for Terraform, and what the boot path needs: files of cidata volumes, values of META key 10,
/// reservations for dnsmasq. Everything is checked before anything is written. Rendering again writes
/// nothing unless something changed. Files are for their owner alone and kept out of git; those that ichor
/// did not write, or that were changed since, are not written over. The secrets, their record and the
/// inventory never are.
///
/// The directory is closed to others, if it holds nothing but these files. One that others can write to and
/// that holds something else is refused, unless `--overwrite` is given.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Render {
    /// The directory; several clusters get one each in it, also when one of them is chosen.
    #[arg(value_name = "DIR", default_value = "rendered", value_hint = ValueHint::DirPath)]
    pub directory: PathBuf,
    /// A plain bundle in place of the one that is kept; `-` for standard input.
    #[arg(long, value_name = "FILE", env = "ICHOR_SECRETS", hide_env_values = true, value_hint = ValueHint::FilePath)]
    pub secrets: Option<PathBuf>,
    /// Writes over files that ichor did not write, or that were changed since.
    #[arg(long, env = "ICHOR_RENDER_OVERWRITE", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub overwrite: bool,
}
