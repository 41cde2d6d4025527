//! Access that was made, for programs.

use std::path::Path;

use ichor_ops::access::{Kind, Made};
use serde_json::{Value, json};

use super::{document, envelope};

/// Returns what was written, without what is in it.
pub fn value(cluster: &str, made: &Made, path: &Path) -> Value {
    let mut value = json!({ "cluster": cluster, "path": envelope::path(path) });
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
