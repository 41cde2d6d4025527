//! `ichor man`.

use std::path::PathBuf;

use clap::ValueHint;

const EXAMPLES: &str = "\
Examples:
  ichor man | man -l -                         read the main page
  ichor man ~/.local/share/man/man1            install a page for ichor and for each verb";

/// Prints the manual, or writes all its pages to a directory.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Man {
    /// The directory to write every page to; it is made if it does not exist.
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub directory: Option<PathBuf>,
}
