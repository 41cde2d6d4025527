//! What became of rendered files.

use std::path::PathBuf;

use ichor_ops::render::{Outcome, State};
use serde_json::{Value, json};

use super::{envelope, table::Table, text};

/// A cluster that was rendered.
#[derive(Debug)]
pub struct Rendered {
    /// Its name.
    pub cluster: String,
    /// Where its files are.
    pub directory: PathBuf,
    /// What became of them.
    pub files: Vec<Outcome>,
}

/// Returns a table of all files, and a summary for each cluster.
pub fn text(all: &[Rendered], width: Option<u16>) -> String {
    all.iter().map(|rendered| one_text(rendered, width)).collect::<Vec<_>>().join("\n")
}

fn one_text(rendered: &Rendered, width: Option<u16>) -> String {
    let mut table = Table::new(["FILE", "WHAT", "STATE"]).unbroken([0]);
    for file in &rendered.files {
        table.row([file.path.clone(), file.what.clone(), file.state.word().to_owned()]);
    }
    let directory = text::safe_line(&rendered.directory.display().to_string());
    let head = text::good("rendered:");
    format!("{}\n{head} {}, in {directory}\n", table.render(width), counts(&rendered.files))
}

fn counts(files: &[Outcome]) -> String {
    let count = |state| files.iter().filter(|file| file.state == state).count();
    let states = [State::New, State::Changed, State::Overwritten, State::Unchanged];
    let counts = states.into_iter().map(|state| (count(state), state)).filter(|(count, _)| *count > 0);
    counts.map(|(count, state)| format!("{count} {}", state.word())).collect::<Vec<_>>().join(", ")
}

/// Returns all files of a cluster, for programs.
pub fn value(rendered: &Rendered) -> Value {
    let file = |file: &Outcome| json!({ "path": file.path, "what": file.what, "state": file.state.word() });
    json!({
        "cluster": rendered.cluster,
        "directory": envelope::path(&rendered.directory),
        "files": rendered.files.iter().map(file).collect::<Vec<_>>(),
    })
}
