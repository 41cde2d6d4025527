//! Deleting objects, and what depends on them.

use serde_json::{Value, json};

use super::body;
use crate::{
    ground::Ground,
    kube::{
        Cluster, kinds,
        selector::{Fields, Labels},
        status::{Failure, Flaw, success},
        target::Target,
        value::{is_terminating, list, name, namespace, set, text, timestamp, uid},
    },
    wire::{Request, Response},
};

impl Cluster {
    /// Deletes an object.
    pub(in crate::kube) fn delete(
        &mut self,
        ground: &mut Ground,
        target: &Target,
        request: &Request,
    ) -> Result<Value, Failure> {
        let options = delete_options(target, request)?;
        let old = self.current(target)?;
        for (pointer, is, what) in [
            ("/preconditions/uid", uid(&old), "UID"),
            ("/preconditions/resourceVersion", text(&old, "/metadata/resourceVersion"), "ResourceVersion"),
        ] {
            let wanted = text(&options, pointer);
            if !wanted.is_empty() && wanted != is {
                let why = format!(
                    "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {is}"
                );
                return Err(target.conflict(&why));
            }
        }
        if options.get("dryRun").is_some_and(|dry| *dry == json!(["All"]))
            || target.query.get("dryRun") == "All"
        {
            return Ok(self.shown(target, &old, ground.now));
        }
        let key = target.resource.key();
        match self.remove_object(ground, &key, &old, &options) {
            Some(left) => Ok(self.shown(target, &left, ground.now)),
            None => {
                let mut details = json!({"name": target.name});
                if !target.resource.group.is_empty() {
                    details["group"] = target.resource.group.as_ref().into();
                }
                details["kind"] = target.resource.plural.as_ref().into();
                details["uid"] = uid(&old).into();
                Ok(success(&details))
            }
        }
    }

    /// Deletes an object, or marks it where something must happen before; returns what is left of it.
    pub(in crate::kube) fn remove_object(
        &mut self,
        ground: &Ground,
        key: &str,
        old: &Value,
        options: &Value,
    ) -> Option<Value> {
        let mut new = old.clone();
        let policy = match text(options, "/propagationPolicy") {
            "" if options["orphanDependents"] == true => "Orphan",
            other => other,
        };
        if policy == "Orphan" {
            self.orphan(uid(old));
        }
        let mut finalizers: Vec<Value> = list(&new, "/metadata/finalizers").to_vec();
        if policy == "Foreground" && !finalizers.contains(&json!("foregroundDeletion")) {
            finalizers.push(json!("foregroundDeletion"));
            set(&mut new, &["metadata", "finalizers"], Value::Array(finalizers.clone()));
        }
        let grace = grace(key, old, options);
        if grace == 0 && finalizers.is_empty() && key != "namespaces" {
            if key == kinds::CRDS {
                self.delete_custom_objects(old);
            }
            self.store.delete(key, namespace(old), name(old));
            return None;
        }
        if !is_terminating(&new) || grace == 0 {
            let end = ground.now + std::time::Duration::from_secs(grace);
            set(&mut new, &["metadata", "deletionTimestamp"], timestamp(end));
            set(&mut new, &["metadata", "deletionGracePeriodSeconds"], grace.into());
        }
        if key == "namespaces" {
            set(&mut new, &["status", "phase"], json!("Terminating"));
        }
        if new == *old {
            return Some(new);
        }
        Some(Value::clone(&self.store.put(key, new)))
    }

    fn orphan(&mut self, parent: &str) {
        let owned: Vec<(String, std::sync::Arc<Value>)> = self
            .store
            .all()
            .filter(|(_, object)| {
                list(object, "/metadata/ownerReferences")
                    .iter()
                    .any(|reference| text(reference, "/uid") == parent)
            })
            .map(|(key, object)| (key.split('/').next().unwrap_or_default().to_owned(), object.clone()))
            .collect();
        for (key, object) in owned {
            let mut object = Value::clone(&object);
            if let Some(references) =
                object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut)
            {
                references.retain(|reference| text(reference, "/uid") != parent);
            }
            self.store.put(&key, object);
        }
    }

    fn delete_custom_objects(&mut self, definition: &Value) {
        let key = name(definition).to_owned();
        let objects: Vec<(String, String)> =
            self.store.list(&key, "").map(|object| (namespace(object).into(), name(object).into())).collect();
        for (namespace, name) in objects {
            self.store.delete(&key, &namespace, &name);
        }
    }

    /// Deletes all objects of a list.
    pub(in crate::kube) fn delete_collection(
        &mut self,
        ground: &mut Ground,
        target: &Target,
        request: &Request,
    ) -> Result<Response, Failure> {
        let options = delete_options(target, request)?;
        let answer = self.list(target, request, ground.now)?;
        let labels = Labels::parse(target.query.get("labelSelector"))?;
        let fields = Fields::parse(target.query.get("fieldSelector"), &target.resource)?;
        let key = target.resource.key();
        let found: Vec<Value> = self
            .store
            .list(&key, &target.namespace)
            .filter(|object| labels.fit(object) && fields.fit(object))
            .cloned()
            .collect();
        if target.query.get("dryRun") != "All" {
            for object in found {
                self.remove_object(ground, &key, &object, &options);
            }
        }
        Ok(answer)
    }
}

fn grace(key: &str, old: &Value, options: &Value) -> u64 {
    if key != "pods" || text(old, "/spec/nodeName").is_empty() {
        return 0;
    }
    if matches!(text(old, "/status/phase"), "Succeeded" | "Failed") {
        return 0;
    }
    let asked = options.get("gracePeriodSeconds").and_then(Value::as_u64);
    asked.or_else(|| old.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_u64)).unwrap_or(30)
}

fn delete_options(target: &Target, request: &Request) -> Result<Value, Failure> {
    let mut options = if request.body.is_empty() { json!({}) } else { body(request)? };
    if !options.is_object() {
        return Err(Failure::bad_request(
            "the object provided is unrecognized (must be of type DeleteOptions)",
        ));
    }
    let policy = target.query.get("propagationPolicy");
    if !policy.is_empty() {
        options["propagationPolicy"] = policy.into();
    }
    if let Ok(grace) = target.query.get("gracePeriodSeconds").parse::<u64>() {
        options["gracePeriodSeconds"] = grace.into();
    }
    let policy = text(&options, "/propagationPolicy");
    if !matches!(policy, "" | "Foreground" | "Background" | "Orphan") {
        let flaw = Flaw::unsupported(
            "propagationPolicy",
            &policy.into(),
            &["Background", "Foreground", "Orphan", "nil"],
        );
        return Err(Failure::invalid("DeleteOptions", "meta.k8s.io", "", &[flaw]));
    }
    Ok(options)
}
