//! Machine configs as text, byte for byte as Talos itself writes them.
//!
//! Two steps: `canonical` decides what is written (fields in Talos' order, zero values where it
//! always writes them, maps sorted), `block` and `scalar` decide how. Talos writes with
//! go-yaml: four spaces, sequences indented below their key, no folding. Where releases differ
//! (quotes around `y` and its like), the form of 1.8 to 1.13 is written.

mod block;
mod canonical;
mod order;
mod scalar;

use crate::document::{Config, Document, Map};

/// Writes a config.
pub fn emit(config: &Config) -> String {
    config.documents().iter().map(emit_document).collect::<Vec<_>>().join("---\n")
}

/// Writes one document.
pub fn emit_document(document: &Document) -> String {
    block::document(&canonical_form(document))
}

/// Writes a config for people to look at: keys, tokens and passwords are hidden. What free-form
/// values, manifests and files hold is shown.
pub fn emit_redacted(config: &Config) -> String {
    let documents = config.documents().iter().map(|document| {
        let mut form = canonical_form(document);
        if let Some(kind) = document.schema() {
            canonical::hide_secrets(&mut form, &kind.body);
        }
        block::document(&form)
    });
    documents.collect::<Vec<_>>().join("---\n")
}

/// Writes a map as it is, for messages.
pub(crate) fn emit_map(map: &Map) -> String {
    block::document(map)
}

/// Returns everything that is written of a document, in order.
pub(crate) fn canonical_form(document: &Document) -> Map {
    canonical::document(document)
}
