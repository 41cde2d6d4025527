//! `ichor check`: everything that is wrong with an inventory, at once.

use ichor_model::{Severity, World};

use crate::{
    args::{Check, Global, Output},
    clusters,
    exit::Exit,
    failure::Failure,
    render::{
        findings::{self, Changes},
        findings_json, headcount,
    },
    terminal::Terminal,
};

/// Checks the inventories.
pub fn run(args: &Check, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    let clusters = clusters::load(global.file.as_deref(), global.cluster.as_deref(), &World::default());
    match global.output {
        Output::Table => {
            findings::tell(&clusters.sources, &clusters.findings, Changes::None, terminal);
            if !clusters.findings.has_errors() {
                terminal.show(&clusters.resolved().map(headcount::ok_line).collect::<String>())?;
            }
        }
        Output::Json => terminal.json(&findings_json::report(&clusters))?,
        Output::Yaml => terminal.yaml(&findings_json::report(&clusters))?,
    }
    let denied = args.deny_warnings && clusters.findings.count(Severity::Warning) > 0;
    Ok(if clusters.findings.has_errors() || denied { Exit::InvalidInput } else { Exit::Done })
}
