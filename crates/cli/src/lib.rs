//! The command line of ichor.
//!
//! 1. `args` turns words and environment variables into typed requests;
//! 2. `commands` has one thin file per verb, over `ichor-spec`, `ichor-plan` and `ichor-ops`;
//! 3. `render` turns findings and plans into text, tables, JSON and YAML;
//! 4. `exit` is the one place that knows exit codes.
//!
//! This is the only crate that prints, reads the environment and touches files: `operating_system` is what
//! the verbs see of the machine.

mod args;
mod clusters;
mod commands;
mod exit;
mod failure;
mod files;
mod here;
mod inventory_files;
mod journal;
mod keeping;
#[cfg(target_os = "linux")]
mod occupant;
mod operating_system;
mod programs;
mod questions;
mod render;
mod terminal;
mod world;

use std::{ffi::OsString, io};

use clap::{CommandFactory, Parser};

use crate::{
    args::{Cli, Color, Output},
    failure::Failure,
    terminal::Terminal,
};

pub use exit::Exit;

/// Returns the whole command line with its help, for shell completions, man pages and references.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the program with its arguments, the first of which is its own name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Exit {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    match Cli::try_parse_from(&arguments) {
        Ok(cli) => run_verb(&cli),
        Err(error) => show_usage(&error, Color::looked_for_in(&arguments)),
    }
}

fn run_verb(cli: &Cli) -> Exit {
    let terminal = Terminal::new(cli.global.color).about(here::options(&cli.global));
    let terminal = terminal.in_events(cli.verb.tells_events());
    commands::run(cli, &terminal).unwrap_or_else(|failure| {
        terminal.tell(&render::failure::text(&failure));
        // Whoever does not read it any more knows enough.
        let _ = show_failure(&failure, cli.global.output, &terminal);
        failure.exit
    })
}

/// Tells programs why the run ends, in the form that they asked for.
fn show_failure(failure: &Failure, output: Output, terminal: &Terminal) -> io::Result<()> {
    let document = render::failure::document(failure);
    match output {
        _ if terminal.is_in_events() => terminal.event("result", document),
        Output::Table => Ok(()),
        Output::Json => terminal.json(&document),
        Output::Yaml => terminal.yaml(&document),
    }
}

/// Shows what clap has to say: help and version are asked for, anything else is a mistake.
fn show_usage(error: &clap::Error, color: Color) -> Exit {
    let terminal = Terminal::new(color);
    let text = error.render().ansi().to_string();
    if error.use_stderr() {
        terminal.tell(text.trim_end());
        return Exit::InvalidInput;
    }
    terminal.show(&text).map_or(Exit::Failed, |()| Exit::Done)
}
