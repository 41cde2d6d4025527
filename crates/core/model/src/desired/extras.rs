//! What is laid over machine configs and into the cluster: patches, manifests and add-ons.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::Span;

/// A machine-config patch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Patch {
    /// Whom it is for. It follows from where the patch is listed, so it is not written out again.
    #[serde(skip)]
    pub scope: PatchScope,
    /// The place in the inventory where it is written; absent for files, which have places of their own.
    #[serde(skip)]
    pub at: Option<Span>,
    /// Where it is.
    #[serde(flatten)]
    pub content: PatchContent,
}

/// Whom a patch is for, in the order in which patches apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PatchScope {
    /// Every machine.
    Cluster,
    /// The machines of a role.
    Role,
    /// The machines of a group.
    Group,
    /// One machine.
    Machine,
}

/// Where a patch is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PatchContent {
    /// A file, relative to the inventory.
    File(String),
    /// Written in the inventory.
    Inline(Value),
}

/// A manifest handed to Talos or applied after bootstrap.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Manifest {
    /// Its name.
    pub name: String,
    /// Where it is.
    #[serde(flatten)]
    pub content: ManifestContent,
}

/// Where a manifest is.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ManifestContent {
    /// A file, relative to the inventory.
    File(String),
    /// An address that the machines fetch.
    Url(String),
    /// Written in the inventory.
    Inline(Value),
}

/// An add-on and its settings.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Addon {
    /// Which of several programs, where there is a choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<String>,
    /// Its release; absent: the one this ichor was tested with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// A values file, relative to the inventory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values_file: Option<String>,
    /// Values written in the inventory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub values: Option<Value>,
    /// Settings of this add-on alone, such as storage classes or the git repository.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, Value>,
}
