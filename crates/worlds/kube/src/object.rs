//! What all objects have in common.

use std::{collections::BTreeMap, fmt};

use serde::Deserialize;
use serde_json::Value;

use crate::read::{cleaned, cleaned_some, or_default};

/// Which object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
pub struct ObjectName {
    /// The namespace; absent for kinds that are in none.
    #[serde(default, deserialize_with = "cleaned_some")]
    pub namespace: Option<String>,
    /// The name.
    #[serde(default, deserialize_with = "cleaned")]
    pub name: String,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => f.pad(&format!("{namespace}/{}", self.name)),
            None => f.pad(&self.name),
        }
    }
}

/// What every object carries.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Metadata {
    #[serde(deserialize_with = "cleaned")]
    pub name: String,
    #[serde(deserialize_with = "cleaned_some")]
    pub namespace: Option<String>,
    #[serde(deserialize_with = "cleaned")]
    pub uid: String,
    #[serde(deserialize_with = "cleaned")]
    pub resource_version: String,
    #[serde(deserialize_with = "or_default")]
    pub generation: i64,
    pub deletion_timestamp: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    pub annotations: BTreeMap<String, String>,
    #[serde(deserialize_with = "or_default")]
    pub owner_references: Vec<OwnerReference>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct OwnerReference {
    #[serde(deserialize_with = "cleaned")]
    pub kind: String,
    #[serde(deserialize_with = "cleaned")]
    pub name: String,
    #[serde(deserialize_with = "or_default")]
    pub controller: bool,
}

impl Metadata {
    pub(crate) fn object_name(&self) -> ObjectName {
        ObjectName { namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

/// Whether something holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum Truth {
    /// It holds.
    True,
    /// It does not.
    False,
    /// Nobody can tell; what is written otherwise counts as this.
    #[default]
    #[serde(other)]
    Unknown,
}

/// A condition of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Condition {
    /// Which one, such as `Ready`.
    #[serde(rename = "type", deserialize_with = "cleaned")]
    pub kind: String,
    /// Whether it holds.
    pub status: Truth,
    /// Why, in a word.
    #[serde(deserialize_with = "cleaned")]
    pub reason: String,
    /// Why, in a sentence.
    #[serde(deserialize_with = "cleaned")]
    pub message: String,
}

impl Condition {
    /// Whether it holds.
    pub const fn holds(&self) -> bool {
        matches!(self.status, Truth::True)
    }
}

/// Returns a condition of any object, such as `Established` of a definition.
pub fn condition(object: &Value, kind: &str) -> Option<Condition> {
    let all = object.pointer("/status/conditions")?.as_array()?;
    let found = all.iter().find(|condition| condition["type"] == kind)?;
    Condition::deserialize(found).ok()
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct List<T> {
    #[serde(default)]
    metadata: ListMetadata,
    /// The objects. Those of a list say neither their kind nor their version.
    #[serde(deserialize_with = "or_default", bound(deserialize = "T: Deserialize<'de>"))]
    pub items: Vec<T>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMetadata {
    #[serde(deserialize_with = "or_default")]
    resource_version: String,
    #[serde(rename = "continue", deserialize_with = "or_default")]
    next: String,
}

impl<T> List<T> {
    /// Returns the version that the list shows, which a watch can begin from.
    pub fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }

    /// Returns what to ask the next page with, if there is one.
    pub fn next(&self) -> Option<&str> {
        Some(self.metadata.next.as_str()).filter(|next| !next.is_empty())
    }

    /// Adds the next page.
    pub(crate) fn join(&mut self, page: Self) {
        self.items.extend(page.items);
        self.metadata = page.metadata;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_are_read_from_any_object() {
        let object = json!({"status": {"conditions": [
            {"type": "NamesAccepted", "status": "True"},
            {"type": "Established", "status": "False", "reason": "Installing", "message": "the\n\u{1b}rest"}]}});
        let condition = condition(&object, "Established").expect("a condition");
        assert!(!condition.holds());
        assert_eq!((condition.reason.as_str(), condition.message.as_str()), ("Installing", "the rest"));
        assert_eq!(super::condition(&object, "Ready"), None);
        assert_eq!(super::condition(&json!({"status": {"conditions": 7}}), "Ready"), None);
        let strange: Condition =
            serde_json::from_value(json!({"type": "Ready", "status": "Maybe"})).expect("read");
        assert_eq!(strange.status, Truth::Unknown);
    }

    #[test]
    fn go_writes_empty_lists_as_null() {
        let list: List<Value> =
            serde_json::from_str(r#"{"metadata": {"resourceVersion": "7"}, "items": null}"#).expect("a list");
        assert_eq!((list.items.len(), list.resource_version(), list.next()), (0, "7", None));
    }
}
