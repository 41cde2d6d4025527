//! `ichor completions`: a completion script for a shell.

use crate::{args::Completions, exit::Exit, failure::Failure, terminal::Terminal};

/// Prints the script.
pub fn run(args: &Completions, terminal: &Terminal) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::command(), "ichor", &mut script);
    terminal.data(script)?;
    Ok(Exit::Done)
}
