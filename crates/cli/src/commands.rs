//! One file per verb.

mod check;
mod completions;
mod explain;
mod man;
mod plan;
mod schema;

use crate::{
    args::{Cli, Verb},
    exit::Exit,
    failure::Failure,
    terminal::Terminal,
};

/// Does what was asked for.
pub fn run(cli: &Cli, terminal: &Terminal) -> Result<Exit, Failure> {
    match &cli.verb {
        Verb::Check(args) => check::run(args, &cli.global, terminal),
        Verb::Plan(args) => plan::run(args, &cli.global, terminal),
        Verb::Schema(_) => schema::run(cli.global.output, terminal),
        Verb::Explain(args) => explain::run(args, cli.global.output, terminal),
        Verb::Completions(args) => completions::run(args, terminal),
        Verb::Man(args) => man::run(args, terminal),
    }
}
