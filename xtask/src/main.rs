//! Chores of this repository: `cargo xtask generate` writes the files that are made from code, and
//! `cargo xtask generate --check` says which of them are stale. `cargo xtask replay DIR` replays recorded calls of
//! the Proxmox API against the lab. `cargo xtask conformance` is `conformance/run`.

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod generate;
mod inventory_reference;
mod pictures;
mod replay;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use clap::{Parser, Subcommand};

/// Chores of the ichor repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Write the JSON schema, the reference pages, the man pages and the pictures.
    Generate {
        /// Only say which files are stale, and fail if any is.
        #[arg(long)]
        check: bool,
    },
    /// Replay a folder of recorded calls of the Proxmox API against the lab, and say where it agrees.
    Replay {
        /// The folder with the recordings.
        folder: PathBuf,
        /// Show what differs in this recording (its name, or a part of it); may be given again.
        #[arg(long)]
        show: Vec<String>,
        /// Fail if less than this share of all calls agrees, in percent.
        #[arg(long, default_value_t = 0.0)]
        at_least: f64,
    },
    /// Let real third-party code judge ichor: `conformance/run`, with its arguments.
    #[command(disable_help_flag = true)]
    Conformance {
        /// What `conformance/run --help` lists.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    match Args::parse().chore {
        Chore::Generate { check } => generate(check),
        Chore::Replay { folder, show, at_least } => match replay::run(&folder, &show) {
            Ok(percent) if percent >= at_least => ExitCode::SUCCESS,
            Ok(_) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        },
        Chore::Conformance { arguments } => conformance(&arguments),
    }
}

/// Runs the judges, and ends as they do.
fn conformance(arguments: &[OsString]) -> ExitCode {
    let run = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/run");
    match Command::new(&run).args(arguments).status() {
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(error) => {
            eprintln!("error: {}: {error}", run.display());
            ExitCode::FAILURE
        }
    }
}

fn generate(check: bool) -> ExitCode {
    match generate::run(check) {
        Ok(report) if check && !report.stale.is_empty() => {
            eprintln!("stale: {}\nrun `cargo xtask generate` and commit the result", report.stale.join(", "));
            ExitCode::FAILURE
        }
        Ok(report) => {
            println!("{} generated files are fresh, {} were written", report.fresh, report.stale.len());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
