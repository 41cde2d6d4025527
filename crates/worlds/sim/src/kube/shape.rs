//! Which lists are sets or maps, and which maps are one value: what merging needs to know about kinds.
//!
//! For built-in kinds the facts are those of the published types (`listType`, `listMapKey`, `structType`,
//! `patchMergeKey`), told by field names, which are unique enough. For custom kinds the schema says it.

use serde_json::Value;

use super::value::list;

/// How the items of a list are told apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListShape {
    /// The list is one value.
    Atomic,
    /// By their values.
    Set,
    /// By these fields.
    Keyed(Vec<String>),
}

/// A place in an object of a kind.
#[derive(Debug, Clone, Copy)]
pub enum Place<'a> {
    /// In a built-in kind: the name of the field around it, and its own.
    BuiltIn(&'a str, &'a str),
    /// In a custom kind: its schema, where there is one.
    Custom(Option<&'a Value>),
    /// The whole of a custom object.
    CustomRoot(Option<&'a Value>),
}

impl<'a> Place<'a> {
    /// The whole of a built-in object.
    pub const ROOT: Self = Self::BuiltIn("", "");

    /// Returns the place of a field.
    #[must_use]
    pub fn child<'b>(self, key: &'b str) -> Place<'b>
    where
        'a: 'b,
    {
        match self {
            Self::BuiltIn(_, field) => Place::BuiltIn(field, key),
            Self::CustomRoot(_) if key == "metadata" => Place::BuiltIn("", "metadata"),
            Self::Custom(schema) | Self::CustomRoot(schema) => {
                let field = |schema: &'a Value| {
                    let property = schema.get("properties").and_then(|properties| properties.get(key));
                    property.or_else(|| schema.get("additionalProperties"))
                };
                Place::Custom(schema.and_then(field))
            }
        }
    }

    /// Returns the place of the items of a list.
    #[must_use]
    pub fn item(self) -> Self {
        match self {
            Self::Custom(schema) => Self::Custom(schema.and_then(|schema| schema.get("items"))),
            other => other,
        }
    }

    /// Returns how the items of the list here are told apart.
    pub fn list(self) -> ListShape {
        match self {
            Self::BuiltIn(parent, field) => built_in_list(parent, field),
            Self::CustomRoot(_) | Self::Custom(None) => ListShape::Atomic,
            Self::Custom(Some(schema)) => {
                match schema.get("x-kubernetes-list-type").and_then(Value::as_str) {
                    Some("set") => ListShape::Set,
                    Some("map") => {
                        let keys =
                            list(schema, "/x-kubernetes-list-map-keys").iter().filter_map(Value::as_str);
                        ListShape::Keyed(keys.map(Into::into).collect())
                    }
                    _ => ListShape::Atomic,
                }
            }
        }
    }

    /// Whether the map here is one value.
    pub fn is_atomic_map(self) -> bool {
        match self {
            Self::BuiltIn(parent, field) => {
                matches!(
                    field,
                    "selector"
                        | "labelSelector"
                        | "namespaceSelector"
                        | "podSelector"
                        | "objectSelector"
                        | "nodeSelector"
                        | "nodeSelectorTerms"
                        | "secretKeyRef"
                        | "configMapKeyRef"
                        | "fieldRef"
                        | "resourceFieldRef"
                        | "roleRef"
                        | "involvedObject"
                        | "targetRef"
                        | "claimRef"
                        | "imagePullSecrets"
                        | "openAPIV3Schema"
                ) && !(field == "selector" && parent.is_empty())
            }
            Self::CustomRoot(_) => false,
            Self::Custom(schema) => schema
                .and_then(|schema| schema.get("x-kubernetes-map-type"))
                .is_some_and(|kind| kind == "atomic"),
        }
    }

    /// Returns the field by which a strategic merge patch tells the items of the list here apart.
    pub fn merge_key(self) -> Option<&'static str> {
        let Self::BuiltIn(parent, field) = self else { return None };
        Some(match (parent, field) {
            ("containers" | "initContainers" | "ephemeralContainers", "ports") => "containerPort",
            ("spec", "ports") => "port",
            (_, field) if is_named(field) || field == "secrets" => "name",
            (_, "volumeMounts") => "mountPath",
            (_, "volumeDevices") => "devicePath",
            (_, "conditions" | "addresses") => "type",
            (_, "ownerReferences") => "uid",
            (_, "taints") => "key",
            (_, "hostAliases") => "ip",
            (_, "topologySpreadConstraints") => "topologyKey",
            _ => return None,
        })
    }

    /// Whether a strategic merge patch adds to the list of plain values here.
    pub fn merges_values(self) -> bool {
        matches!(self, Self::BuiltIn(_, "finalizers" | "podCIDRs"))
    }
}

/// Whether the items of a list have names.
fn is_named(field: &str) -> bool {
    matches!(
        field,
        "containers"
            | "initContainers"
            | "ephemeralContainers"
            | "env"
            | "volumes"
            | "webhooks"
            | "imagePullSecrets"
            | "resourceClaims"
            | "claims"
    )
}

fn built_in_list(parent: &str, field: &str) -> ListShape {
    let keys: &[&str] = match (parent, field) {
        ("metadata", "finalizers") | ("spec", "podCIDRs") => return ListShape::Set,
        ("containers" | "initContainers" | "ephemeralContainers", "ports") => &["containerPort", "protocol"],
        ("spec", "ports") => &["port", "protocol"],
        (parent, field) if is_named(field) || (parent.is_empty() && field == "secrets") => &["name"],
        (_, "volumeMounts") => &["mountPath"],
        (_, "volumeDevices") => &["devicePath"],
        ("status", "conditions" | "addresses") => &["type"],
        ("metadata", "ownerReferences") => &["uid"],
        (_, "hostAliases") => &["ip"],
        (_, "topologySpreadConstraints") => &["topologyKey", "whenUnsatisfiable"],
        _ => return ListShape::Atomic,
    };
    ListShape::Keyed(keys.iter().map(|key| (*key).to_owned()).collect())
}
