//! `ichor completions`.

use clap_complete::Shell;

const EXAMPLES: &str = "\
Examples:
  ichor completions bash > ~/.local/share/bash-completion/completions/ichor
  ichor completions zsh > ~/.zfunc/_ichor
  ichor completions fish > ~/.config/fish/completions/ichor.fish";

/// Prints a completion script for a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Completions {
    /// The shell.
    pub shell: Shell,
}
