//! Access that was made and put somewhere.

use std::path::{Path, PathBuf};

use ichor_ops::access::{Kind, Made, Merged};
use serde_json::{Value, json};

use super::{document, envelope, text::safe_line};

/// Access that was made, and where it was put.
#[derive(Debug)]
pub struct Given {
    /// The access.
    pub made: Made,
    /// The file; nothing: standard output.
    pub path: Option<PathBuf>,
    /// What became of it in a file that was there.
    pub merged: Option<Merged>,
}

/// Says what was written.
pub fn text(given: &Given, path: &Path) -> String {
    let path = safe_line(&path.display().to_string());
    let Some(merged) = &given.merged else { return format!("wrote {path}") };
    let context = safe_line(&merged.context);
    let mut text = format!("merged into {path}: context `{context}`, which is the current one now");
    if let Some(taken) = &merged.taken {
        let taken = safe_line(taken);
        text.push_str(&format!("\n`{taken}` is there and leads to another cluster, which was left alone"));
    }
    text
}

/// Returns what was written, without what is in it.
pub fn value(cluster: &str, given: &Given, path: &Path) -> Value {
    let made = &given.made;
    let mut value = json!({ "cluster": cluster, "path": envelope::path(path) });
    if let Some(merged) = &given.merged {
        value["context"] = merged.context.clone().into();
    }
    if let Some(ends) = made.ends {
        value["ends"] = ends.to_string().into();
    }
    match made.kind {
        Kind::Talosconfig => value["endpoints"] = made.leads_to.clone().into(),
        Kind::Kubeconfig => value["server"] = made.leads_to.first().cloned().into(),
        Kind::Bundle => {}
    }
    value
}

/// Returns the file itself as JSON, which is the same document.
pub fn json(made: &Made) -> String {
    let value: Value = serde_saphyr::from_str(made.text.expose()).unwrap_or_default();
    document::json(&value)
}
