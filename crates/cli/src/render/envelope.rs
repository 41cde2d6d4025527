//! Results for programs: the clusters, and what was found.

use serde_json::{Value, json};

/// Returns one cluster as an object with its findings, several as a list beside theirs.
pub fn envelope(mut clusters: Vec<Value>, findings: Vec<Value>) -> Value {
    if clusters.len() == 1 {
        let mut one = clusters.remove(0);
        one["findings"] = findings.into();
        return one;
    }
    json!({ "clusters": clusters, "findings": findings })
}

/// Returns a path as text. Not every path is text, and a program that reads JSON sees what a person sees.
pub fn path(path: &std::path::Path) -> Value {
    path.display().to_string().into()
}
