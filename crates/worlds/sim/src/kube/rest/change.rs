//! Changing objects: update, patch, apply and scale.

use serde_json::{Map, Value, json};

use super::{LARGEST_BODY, MODIFIED, body, is_dry, manager, root};
use crate::{
    clock::Time,
    ground::Ground,
    kube::{
        Cluster, apply, check, kinds, patch,
        selector::{Labels, Requirement},
        shape::Place,
        status::{Failure, Flaw},
        target::Target,
        value::{is_terminating, list, name, namespace, number, remove, set, text, uid},
    },
    wire::Request,
};

impl Cluster {
    /// Replaces an object.
    pub(in crate::kube) fn update(
        &mut self,
        ground: &mut Ground,
        target: &Target,
        request: &Request,
    ) -> Result<Value, Failure> {
        let dry = is_dry(target)?;
        let mut object = body(request)?;
        if target.subresource == "scale" {
            let replicas = object.pointer("/spec/replicas").cloned().unwrap_or_else(|| json!(0));
            return self.scale(ground, target, &replicas, request, dry);
        }
        Self::fit_to_path(target, &mut object)?;
        let old = self.current(target)?;
        let given = text(&object, "/metadata/resourceVersion").to_owned();
        if given.is_empty() && target.resource.custom {
            let why = "must be specified for an update";
            let flaw = Flaw {
                reason: "FieldValueInvalid",
                body: format!("Invalid value: 0: {why}"),
                field: "metadata.resourceVersion".into(),
            };
            return Err(Failure::invalid(
                &target.resource.kind,
                &target.resource.group,
                &target.name,
                &[flaw],
            ));
        }
        if !given.is_empty() && given != text(&old, "/metadata/resourceVersion") {
            return Err(target.conflict(MODIFIED));
        }
        let manager = manager(target, request);
        self.replace(ground, target, &old, object, Origin::Update(&manager), dry)
    }

    pub(super) fn current(&self, target: &Target) -> Result<Value, Failure> {
        let found = self.store.get(&target.resource.key(), &target.namespace, &target.name);
        found.cloned().ok_or_else(|| target.not_found())
    }

    /// Puts a new state of an object in place of the old one.
    fn replace(
        &mut self,
        ground: &mut Ground,
        target: &Target,
        old: &Value,
        mut new: Value,
        origin: Origin<'_>,
        dry: bool,
    ) -> Result<Value, Failure> {
        let resource = &target.resource;
        let given = uid(&new).to_owned();
        if !given.is_empty() && given != uid(old) {
            let why = format!(
                "Precondition failed: UID in precondition: {given}, UID in object meta: {}",
                uid(old)
            );
            return Err(target.conflict(&why));
        }
        keep_fixed(old, &mut new);
        match target.subresource.as_str() {
            "status" | "approval" => {
                let (labels, status) = (new["metadata"].clone(), new.get("status").cloned());
                let fields = labels.get("managedFields").cloned();
                let mut kept = old.clone();
                if let Some(status) = status {
                    set(&mut kept, &["status"], status);
                }
                if let Some(fields) = fields {
                    set(&mut kept, &["metadata", "managedFields"], fields);
                }
                new = kept;
            }
            _ if resource.status => match old.get("status") {
                Some(status) => set(&mut new, &["status"], status.clone()),
                None => remove(&mut new, &["status"]),
            },
            _ => {}
        }
        if target.subresource.is_empty() {
            self.complete(ground, target, &mut new);
        }
        let mut flaws = check::metadata(resource, &new);
        flaws.extend(check::unchanging(resource, old, &new));
        flaws.extend(check::particular(&self.store, resource, &new));
        if !flaws.is_empty() {
            return Err(Failure::invalid(&resource.kind, &resource.group, name(&new), &flaws));
        }
        if has_generation(&resource.key(), resource.custom) && is_changed(old, &new) {
            let generation = number(old, "/metadata/generation").unwrap_or(0) + 1;
            set(&mut new, &["metadata", "generation"], generation.into());
        }
        if let Origin::Update(manager) = origin {
            let schema = kinds::schema(&self.store, resource).cloned();
            let api_version = resource.api_version();
            let writer = writer(target, manager, &api_version, ground.now);
            apply::track_update(Some(old), &mut new, root(schema.as_ref(), target), writer, resource.status);
        }
        if dry || new == *old {
            return Ok(self.shown(target, &new, ground.now));
        }
        let key = resource.key();
        let done = is_terminating(&new)
            && list(&new, "/metadata/finalizers").is_empty()
            && key != "pods"
            && key != "namespaces";
        let new = self.store.put(&key, new);
        if done {
            self.store.delete(&key, namespace(&new), name(&new));
        }
        Ok(self.shown(target, &new, ground.now))
    }

    /// Patches an object; applying may create it, which the second part of the answer tells.
    pub(in crate::kube) fn patch(
        &mut self,
        ground: &mut Ground,
        target: &Target,
        request: &Request,
    ) -> Result<(Value, bool), Failure> {
        let dry = is_dry(target)?;
        let media = request.header("content-type").unwrap_or_default();
        let media = media.split(';').next().unwrap_or_default().trim().to_owned();
        if request.body.len() > LARGEST_BODY {
            return Err(Failure::plain(413, "RequestEntityTooLarge", "Request entity too large"));
        }
        if target.subresource == "scale" {
            let change = body(request)?;
            let replicas = change.pointer("/spec/replicas").cloned().unwrap_or_else(|| json!(0));
            return Ok((self.scale(ground, target, &replicas, request, dry)?, false));
        }
        if media == "application/apply-patch+yaml" {
            return self.apply(ground, target, request, dry);
        }
        let old = self.current(target)?;
        let change: Value = serde_json::from_slice(&request.body)
            .map_err(|error| Failure::bad_request(format!("error decoding patch: {error}")))?;
        let mut new = old.clone();
        match media.as_str() {
            "application/json-patch+json" => patch::json(&mut new, &change)?,
            "application/merge-patch+json" => patch::merge(&mut new, &change),
            "application/strategic-merge-patch+json" if !target.resource.custom => {
                patch::strategic(&mut new, &change, Place::ROOT);
            }
            _ => {
                let why = "the body of the request was in an unknown format - accepted media types include: \
                    application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
                return Err(Failure::plain(415, "UnsupportedMediaType", why));
            }
        }
        let given = text(&new, "/metadata/resourceVersion");
        if !given.is_empty() && given != text(&old, "/metadata/resourceVersion") {
            return Err(target.conflict(MODIFIED));
        }
        // A patch may not rename.
        Self::fit_to_path(target, &mut new)?;
        let manager = manager(target, request);
        Ok((self.replace(ground, target, &old, new, Origin::Update(&manager), dry)?, false))
    }

    pub(super) fn apply(
        &mut self,
        ground: &mut Ground,
        target: &Target,
        request: &Request,
        dry: bool,
    ) -> Result<(Value, bool), Failure> {
        if target.query.get("fieldManager").is_empty() {
            let flaw = Flaw::required("fieldManager", "is required for apply patch");
            return Err(Failure::invalid("PatchOptions", "meta.k8s.io", "", &[flaw]));
        }
        let text_body = std::str::from_utf8(&request.body).unwrap_or_default();
        let config: Result<Value, _> = serde_json::from_str(text_body);
        let mut config = match config {
            Ok(config) => config,
            Err(_) => serde_saphyr::from_str(text_body)
                .map_err(|error| Failure::bad_request(format!("error decoding YAML: {error}")))?,
        };
        if config.pointer("/metadata/managedFields").is_some_and(|fields| !fields.is_null()) {
            return Err(Failure::bad_request("metadata.managedFields must be nil"));
        }
        for (pointer, wanted) in
            [("/kind", target.resource.kind.to_string()), ("/apiVersion", target.resource.api_version())]
        {
            if text(&config, pointer) != wanted {
                return Err(Failure::bad_request(format!(
                    "invalid object type: {} in patch, expected {wanted}",
                    text(&config, pointer)
                )));
            }
        }
        let given_version = text(&config, "/metadata/resourceVersion").to_owned();
        Self::fit_to_path(target, &mut config)?;
        let live = self.store.get(&target.resource.key(), &target.namespace, &target.name).cloned();
        if live.is_none() && !target.subresource.is_empty() {
            return Err(target.not_found());
        }
        if let Some(live) = &live
            && !given_version.is_empty()
            && given_version != text(live, "/metadata/resourceVersion")
        {
            return Err(target.conflict(MODIFIED));
        }
        let schema = kinds::schema(&self.store, &target.resource).cloned();
        let manager = manager(target, request);
        let api_version = target.resource.api_version();
        let writer = writer(target, &manager, &api_version, ground.now);
        let how = (target.query.is_on("force"), target.resource.status);
        let place = root(schema.as_ref(), target);
        let object = apply::apply(live.as_ref(), &config, place, writer, how)?;
        match live {
            None => Ok((self.insert(ground, target, object, Origin::Applied, dry)?, true)),
            Some(live) => Ok((self.replace(ground, target, &live, object, Origin::Applied, dry)?, false)),
        }
    }

    fn scale(
        &mut self,
        ground: &mut Ground,
        target: &Target,
        replicas: &Value,
        request: &Request,
        dry: bool,
    ) -> Result<Value, Failure> {
        let old = self.current(target)?;
        let mut new = old.clone();
        set(&mut new, &["spec", "replicas"], replicas.clone());
        let whole = Target { subresource: String::new(), ..target.clone() };
        let manager = manager(target, request);
        let new = self.replace(ground, &whole, &old, new, Origin::Update(&manager), dry)?;
        Ok(scale_of(&new))
    }

    /// Returns how an object is scaled.
    pub(in crate::kube) fn get_scale(&self, target: &Target) -> Result<Value, Failure> {
        self.current(target).map(|object| scale_of(&object))
    }
}

/// Where an object comes from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Origin<'a> {
    /// Somebody wrote it; who owns what follows from the difference.
    Update(&'a str),
    /// Somebody applied it; who owns what stands in it.
    Applied,
}

pub(super) fn writer<'a>(
    target: &'a Target,
    manager: &'a str,
    api_version: &'a str,
    now: Time,
) -> apply::Writer<'a> {
    apply::Writer { manager, api_version, subresource: &target.subresource, now }
}

fn keep_fixed(old: &Value, new: &mut Value) {
    let fixed = [
        "uid",
        "creationTimestamp",
        "generation",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
    ];
    for field in fixed.into_iter().chain(["resourceVersion"]) {
        match old.pointer(&format!("/metadata/{field}")) {
            Some(value) => set(new, &["metadata", field], value.clone()),
            None => remove(new, &["metadata", field]),
        }
    }
    if new.pointer("/metadata/managedFields").is_none()
        && let Some(fields) = old.pointer("/metadata/managedFields")
    {
        set(new, &["metadata", "managedFields"], fields.clone());
    }
}

/// Whether something but metadata and status changed.
fn is_changed(old: &Value, new: &Value) -> bool {
    let rest = |value: &Value| -> Map<String, Value> {
        let map = value.as_object().cloned().unwrap_or_default();
        map.into_iter()
            .filter(|(key, _)| !matches!(key.as_str(), "metadata" | "status" | "kind" | "apiVersion"))
            .collect()
    };
    rest(old) != rest(new)
}

pub(super) fn has_generation(key: &str, custom: bool) -> bool {
    custom
        || matches!(
            key,
            "deployments.apps"
                | "daemonsets.apps"
                | "statefulsets.apps"
                | "replicasets.apps"
                | "poddisruptionbudgets.policy"
                | "jobs.batch"
                | "cronjobs.batch"
                | "ingresses.networking.k8s.io"
                | "ingressclasses.networking.k8s.io"
                | "networkpolicies.networking.k8s.io"
                | "pods"
                | kinds::CRDS
        )
        || key.ends_with("admissionregistration.k8s.io")
        || key.ends_with("flowcontrol.apiserver.k8s.io")
}

fn scale_of(object: &Value) -> Value {
    let selector = Labels::of(object.pointer("/spec/selector").unwrap_or(&Value::Null));
    let words: Vec<String> = selector
        .0
        .iter()
        .filter_map(|requirement| match requirement {
            Requirement::In(key, values) => Some(format!("{key}={}", values.first()?)),
            _ => None,
        })
        .collect();
    json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": name(object),
            "namespace": namespace(object),
            "uid": uid(object),
            "resourceVersion": text(object, "/metadata/resourceVersion"),
            "creationTimestamp": text(object, "/metadata/creationTimestamp"),
        },
        "spec": {"replicas": object.pointer("/spec/replicas").cloned().unwrap_or_else(|| json!(0))},
        "status": {
            "replicas": object.pointer("/status/replicas").cloned().unwrap_or_else(|| json!(0)),
            "selector": words.join(","),
        },
    })
}
