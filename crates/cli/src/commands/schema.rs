//! `ichor schema`: the JSON Schema of inventories.

use crate::{args::Output, exit::Exit, failure::Failure, render::document, terminal::Terminal};

/// Prints the schema: as JSON, unless YAML is asked for.
pub fn run(output: Output, terminal: &Terminal) -> Result<Exit, Failure> {
    let schema = ichor_spec::json_schema();
    terminal.data(match output {
        Output::Yaml => document::yaml(&schema),
        Output::Table | Output::Json => document::json(&schema),
    })?;
    Ok(Exit::Done)
}
