//! Chores of this repository: `cargo xtask generate` writes the files that are made from code, and
//! `cargo xtask generate --check` says which of them are stale.

#![allow(clippy::print_stdout, clippy::print_stderr)]

mod generate;
mod inventory_reference;
mod pictures;

use std::process::ExitCode;

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
}

fn main() -> ExitCode {
    let Args { chore: Chore::Generate { check } } = Args::parse();
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
