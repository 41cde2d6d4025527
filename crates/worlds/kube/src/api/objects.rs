//! Objects of any kind.

use ichor_port::Method;
use serde_json::{Value, json};

use crate::{
    call::{Call, Content},
    client::Deleted,
    object::List,
    resource::Resource,
};

/// Reads an object.
pub fn get(resource: &Resource, namespace: Option<&str>, name: &str) -> Call<Value> {
    Call::about(Method::Get, resource, namespace, name, None)
}

/// Lists objects, in one namespace or in all. Selectors can be added with [`Call::with`].
pub fn list(resource: &Resource, namespace: Option<&str>) -> Call<List<Value>> {
    Call::about_all(Method::Get, resource, namespace)
}

/// Makes an object that must not be there yet.
pub fn create(resource: &Resource, namespace: Option<&str>, object: Value) -> Call<Value> {
    Call::about_all(Method::Post, resource, namespace).carrying(Content::Json, object)
}

/// How an object is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApplyOptions<'a> {
    /// In whose name.
    pub manager: &'a str,
    /// Whether fields of others are taken from them.
    pub force: bool,
    /// Whether the server only says what would come of it.
    pub dry_run: bool,
}

/// Makes or changes an object, as far as the caller cares. It must have `apiVersion` and `kind`.
pub fn apply(
    resource: &Resource,
    namespace: Option<&str>,
    name: &str,
    object: Value,
    options: ApplyOptions<'_>,
) -> Call<Value> {
    let call = Call::about(Method::Patch, resource, namespace, name, None)
        .with("fieldManager", options.manager)
        .with("force", options.force)
        .carrying(Content::Apply, object);
    if options.dry_run { call.with("dryRun", "All") } else { call }
}

/// Lays a patch over an object: what is null is taken away, and lists are replaced.
pub fn merge(resource: &Resource, namespace: Option<&str>, name: &str, patch: Value) -> Call<Value> {
    Call::about(Method::Patch, resource, namespace, name, None).carrying(Content::MergePatch, patch)
}

/// What happens to what an object owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// It goes too, later.
    Background,
    /// It goes first.
    Foreground,
    /// It stays.
    Orphan,
}

impl Propagation {
    const fn word(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

/// Deletes an object. With a uid, only that very one: another of the same name stays.
pub fn delete(
    resource: &Resource,
    namespace: Option<&str>,
    name: &str,
    uid: Option<&str>,
    propagation: Propagation,
) -> Call<Deleted> {
    let mut options =
        json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation.word()});
    if let Some(uid) = uid {
        options["preconditions"] = json!({"uid": uid});
    }
    Call::about(Method::Delete, resource, namespace, name, None).carrying(Content::Json, options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn applying_names_its_manager() {
        let options = ApplyOptions { manager: "ichor", force: false, dry_run: true };
        let call = apply(&Resource::CONFIG_MAPS, Some("a"), "b", json!({"kind": "ConfigMap"}), options);
        let target = "/api/v1/namespaces/a/configmaps/b?fieldManager=ichor&force=false&dryRun=All";
        assert_eq!((call.method, call.target().as_str()), (Method::Patch, target));
        assert_eq!(call.body.expect("a body").0.media_type(), "application/apply-patch+yaml");
    }

    #[test]
    fn only_the_very_object_is_deleted() {
        let call = delete(&Resource::NODES, None, "cp-1", Some("u-1"), Propagation::Background);
        let body = call.body.expect("a body").1;
        assert_eq!(
            (&body["preconditions"]["uid"], &body["propagationPolicy"]),
            (&json!("u-1"), &json!("Background"))
        );
    }
}
