//! The verbs: get, list, create, update, patch, delete.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Map, Value, json};

use super::{
    Cluster, apply, check, kinds, patch, schema,
    selector::{Fields, Labels},
    shape::Place,
    status::{Failure, Flaw, json_response, success},
    table,
    target::Target,
    value::{is_terminating, list, name, namespace, remove, set, text, timestamp, uid},
};
use crate::{
    clock::Time,
    ground::Ground,
    wire::{Request, Response},
};

/// The largest body that is read, as in the API server.
const LARGEST_BODY: usize = 3 << 20;

/// How many objects a cluster may have; a client that creates without end must not fill the lab's memory.
const MOST_OBJECTS: usize = 100_000;

const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// Reads the body of a request as a value: JSON, or YAML where it is said to be that.
pub fn body(request: &Request) -> Result<Value, Failure> {
    if request.body.len() > LARGEST_BODY {
        let why = format!("Request entity too large: limit is {LARGEST_BODY}");
        return Err(Failure::plain(413, "RequestEntityTooLarge", why));
    }
    let media = request
        .header("content-type")
        .unwrap_or("application/json")
        .split(';')
        .next()
        .unwrap_or_default()
        .trim();
    if media.ends_with("yaml") {
        let text = std::str::from_utf8(&request.body).unwrap_or_default();
        return serde_saphyr::from_str(text)
            .map_err(|error| Failure::bad_request(format!("error decoding YAML: {error}")));
    }
    if media == "application/vnd.kubernetes.protobuf" {
        let why = "the object provided is unrecognized (no kind with this encoding is registered here)";
        return super::protobuf::decode(&request.body).ok_or_else(|| Failure::bad_request(why));
    }
    if !media.ends_with("json") && media != "*/*" {
        let why = "the body of the request was in an unknown format - accepted media types include: application/json, \
            application/yaml";
        return Err(Failure::plain(415, "UnsupportedMediaType", why));
    }
    serde_json::from_slice(&request.body)
        .map_err(|error| Failure::bad_request(format!("the object provided is unrecognized: {error}")))
}

/// Returns the manager that a request names, or else its user agent's first word.
fn manager(target: &Target, request: &Request) -> String {
    let named = target.query.get("fieldManager");
    if !named.is_empty() {
        return named.chars().take(128).collect();
    }
    let agent = request.header("user-agent").unwrap_or("unknown");
    agent.split('/').next().unwrap_or("unknown").chars().take(128).collect()
}

/// Returns where merging begins in objects of a kind.
fn root<'s>(schema: Option<&'s Value>, target: &Target) -> Place<'s> {
    if target.resource.custom { Place::CustomRoot(schema) } else { Place::ROOT }
}

fn is_dry(target: &Target) -> Result<bool, Failure> {
    match target.query.get("dryRun") {
        "" => Ok(false),
        "All" => Ok(true),
        other => {
            let flaw = Flaw::unsupported("dryRun", &other.into(), &["All"]);
            Err(Failure::invalid("CreateOptions", "meta.k8s.io", "", &[flaw]))
        }
    }
}

impl Cluster {
    /// Returns one object.
    pub(super) fn get(&self, target: &Target, now: Time) -> Result<Value, Failure> {
        let found = self.store.get(&target.resource.key(), &target.namespace, &target.name);
        found.map(|object| self.shown(target, object, now)).ok_or_else(|| target.not_found())
    }

    /// Returns an object in the version that was asked for, with what changes by itself.
    pub(super) fn shown(&self, target: &Target, object: &Value, now: Time) -> Value {
        let mut out = json!({"kind": target.resource.kind, "apiVersion": target.resource.api_version()});
        if let (Some(out), Some(map)) = (out.as_object_mut(), object.as_object()) {
            for (key, value) in map.iter().filter(|(key, _)| !matches!(key.as_str(), "kind" | "apiVersion")) {
                out.insert(key.clone(), value.clone());
            }
        }
        self.refresh(&mut out, now);
        out
    }

    /// Returns the answer to a list.
    pub(super) fn list(&self, target: &Target, request: &Request, now: Time) -> Result<Response, Failure> {
        let labels = Labels::parse(target.query.get("labelSelector"))?;
        let fields = Fields::parse(target.query.get("fieldSelector"), &target.resource)?;
        self.check_version(target.query.get("resourceVersion"))?;
        let limit = target.query.get("limit").parse::<usize>().unwrap_or(0);
        let start = continuation(target.query.get("continue"))?;
        let key = |object: &Value| format!("{}/{}", namespace(object), name(object));
        let mut found = self
            .store
            .list(&target.resource.key(), &target.namespace)
            .filter(|object| target.name.is_empty() || name(object) == target.name)
            .filter(|object| labels.fit(object) && fields.fit(object))
            .filter(|object| start.is_empty() || key(object) > start);
        let take = if limit == 0 { usize::MAX } else { limit };
        let items: Vec<Value> =
            found.by_ref().take(take).map(|object| self.shown(target, object, now)).collect();
        let left = found.count();
        let mut metadata = json!({"resourceVersion": self.store.revision().to_string()});
        if left > 0
            && let Some(last) = items.last()
        {
            metadata["continue"] = URL_SAFE_NO_PAD.encode(key(last)).into();
            metadata["remainingItemCount"] = left.into();
        }
        if let Some(table) = table::asked(request) {
            return Ok(json_response(
                200,
                &table::render(&self.store, target, &items, &metadata, table, now),
            ));
        }
        let items: Vec<Value> = items
            .into_iter()
            .map(|mut item| {
                if !target.resource.custom {
                    // Items of typed lists do not say what they are.
                    remove(&mut item, &["kind"]);
                    remove(&mut item, &["apiVersion"]);
                }
                item
            })
            .collect();
        let list = json!({
            "kind": format!("{}List", target.resource.kind),
            "apiVersion": target.resource.api_version(),
            "metadata": metadata,
            "items": items,
        });
        Ok(json_response(200, &list))
    }

    fn check_version(&self, version: &str) -> Result<(), Failure> {
        if version.is_empty() {
            return Ok(());
        }
        let number: u64 = version.parse().map_err(|_| {
            let why = "strconv.ParseUint: parsing: invalid syntax";
            Failure::bad_request(format!("resourceVersion: Invalid value: {version:?}: {why}"))
        })?;
        if number > self.store.revision() {
            let why = format!("Too large resource version: {number}, current: {}", self.store.revision());
            let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
            return Err(Failure::plain(504, "Timeout", format!("Timeout: {why}"))
                .with_causes(vec![cause])
                .retry_after(1));
        }
        Ok(())
    }

    /// Creates an object.
    pub(super) fn create(
        &mut self,
        ground: &mut Ground,
        target: &Target,
        request: &Request,
    ) -> Result<Value, Failure> {
        let dry = is_dry(target)?;
        let mut object = body(request)?;
        Self::fit_to_path(target, &mut object)?;
        if !text(&object, "/metadata/resourceVersion").is_empty() {
            return Err(Failure::bad_request("resourceVersion should not be set on objects to be created"));
        }
        if name(&object).is_empty() {
            let prefix = text(&object, "/metadata/generateName").to_owned();
            if !prefix.is_empty() {
                let name = format!("{prefix}{}", suffix(ground));
                set(&mut object, &["metadata", "name"], name.into());
            }
        }
        let manager = manager(target, request);
        self.insert(ground, target, object, Origin::Update(&manager), dry)
    }

    /// Adds an object that does not exist yet.
    fn insert(
        &mut self,
        ground: &mut Ground,
        target: &Target,
        mut object: Value,
        origin: Origin<'_>,
        dry: bool,
    ) -> Result<Value, Failure> {
        let resource = &target.resource;
        let key = resource.key();
        // Kubelets register with a status; all others begin without one.
        if resource.status && key != "nodes" {
            remove(&mut object, &["status"]);
        }
        for field in
            ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"]
        {
            remove(&mut object, &["metadata", field]);
        }
        check::admit_into_namespace(&self.store, resource, &object)?;
        self.complete(ground, target, &mut object);
        let mut flaws = check::metadata(resource, &object);
        flaws.extend(check::particular(&self.store, resource, &object));
        if !flaws.is_empty() {
            return Err(Failure::invalid(&resource.kind, &resource.group, name(&object), &flaws));
        }
        if self.store.get(&key, namespace(&object), name(&object)).is_some() {
            return Err(Failure::already_exists(&resource.plural, &resource.group, name(&object)));
        }
        if self.store.count() >= MOST_OBJECTS {
            return Err(Failure::plain(500, "InternalError", "etcdserver: mvcc: database space exceeded"));
        }
        set(&mut object, &["metadata", "uid"], ground.random.uuid().into());
        set(&mut object, &["metadata", "creationTimestamp"], timestamp(ground.now));
        if has_generation(&key, resource.custom) {
            set(&mut object, &["metadata", "generation"], json!(1));
        }
        if let Origin::Update(manager) = origin {
            let schema = kinds::schema(&self.store, resource).cloned();
            let api_version = resource.api_version();
            let writer = writer(target, manager, &api_version, ground.now);
            apply::track_update(None, &mut object, root(schema.as_ref(), target), writer, resource.status);
        }
        if dry {
            return Ok(self.shown(target, &object, ground.now));
        }
        let object = self.store.put(&key, object);
        Ok(self.shown(target, &object, ground.now))
    }

    /// Fills in defaults, and what the server allocates.
    fn complete(&self, ground: &mut Ground, target: &Target, object: &mut Value) {
        check::default(&target.resource, object);
        if target.resource.custom
            && let Some(schema) = kinds::schema(&self.store, &target.resource)
        {
            schema::prune(schema, object);
        }
        match target.resource.key().as_str() {
            "services" => self.allocate_service(ground, object),
            "pods" => super::controllers::pods::admit(object),
            _ => {}
        }
    }

    /// Makes the body of a request say what its path says, or refuses it.
    fn fit_to_path(target: &Target, object: &mut Value) -> Result<(), Failure> {
        if !object.is_object() {
            return Err(Failure::bad_request("the object provided is unrecognized (must be an object)"));
        }
        let resource = &target.resource;
        let (kind, version) = (text(object, "/kind").to_owned(), text(object, "/apiVersion").to_owned());
        if !kind.is_empty() && kind != resource.kind {
            return Err(Failure::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {}: converting to the expected kind failed",
                resource.kind
            )));
        }
        if !version.is_empty() && version != resource.api_version() {
            return Err(Failure::bad_request(format!(
                "the API version in the data ({version}) does not match the expected API version ({})",
                resource.api_version()
            )));
        }
        if !object.get("metadata").is_some_and(Value::is_object) {
            object["metadata"] = json!({});
        }
        set(object, &["kind"], resource.kind.as_ref().into());
        set(object, &["apiVersion"], resource.api_version().into());
        if resource.namespaced {
            let given = namespace(object).to_owned();
            if !given.is_empty() && given != target.namespace {
                return Err(Failure::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
            set(object, &["metadata", "namespace"], target.namespace.as_str().into());
        } else {
            remove(object, &["metadata", "namespace"]);
        }
        if !target.name.is_empty() {
            let given = name(object).to_owned();
            if !given.is_empty() && given != target.name {
                return Err(Failure::bad_request(format!(
                    "the name of the object ({given}) does not match the name on the URL ({})",
                    target.name
                )));
            }
            set(object, &["metadata", "name"], target.name.as_str().into());
        }
        Ok(())
    }

    /// Replaces an object.
    pub(super) fn update(
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

    fn current(&self, target: &Target) -> Result<Value, Failure> {
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
            let generation = super::value::number(old, "/metadata/generation").unwrap_or(0) + 1;
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
    pub(super) fn patch(
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

    fn apply(
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
    pub(super) fn get_scale(&self, target: &Target) -> Result<Value, Failure> {
        self.current(target).map(|object| scale_of(&object))
    }

    /// Deletes an object.
    pub(super) fn delete(
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
    pub(super) fn remove_object(
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
    pub(super) fn delete_collection(
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

    /// Gives a service its addresses and ports.
    fn allocate_service(&self, ground: &mut Ground, service: &mut Value) {
        if text(service, "/spec/type") == "ExternalName" {
            return;
        }
        if text(service, "/spec/clusterIP").is_empty() {
            let used = |address: &str| {
                self.store.list("services", "").any(|other| text(other, "/spec/clusterIP") == address)
            };
            let address = loop {
                let bits = ground.random.below(0xf_fffe) + 1;
                let address = format!("10.{}.{}.{}", 96 + (bits >> 16), bits >> 8 & 0xff, bits & 0xff);
                if !used(&address) {
                    break address;
                }
            };
            set(service, &["spec", "clusterIP"], address.into());
        }
        let address = service["spec"]["clusterIP"].clone();
        set(service, &["spec", "clusterIPs"], json!([address]));
        if matches!(text(service, "/spec/type"), "NodePort" | "LoadBalancer") {
            let ports = service.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
            for port in ports
                .into_iter()
                .flatten()
                .filter(|port| super::value::number(port, "/nodePort").unwrap_or(0) == 0)
            {
                port["nodePort"] = (30_000 + ground.random.below(2768)).into();
            }
        }
    }
}

/// Where an object comes from.
#[derive(Debug, Clone, Copy)]
enum Origin<'a> {
    /// Somebody wrote it; who owns what follows from the difference.
    Update(&'a str),
    /// Somebody applied it; who owns what stands in it.
    Applied,
}

fn writer<'a>(target: &'a Target, manager: &'a str, api_version: &'a str, now: Time) -> apply::Writer<'a> {
    apply::Writer { manager, api_version, subresource: &target.subresource, now }
}

/// Returns five characters as generated names end.
pub fn suffix(ground: &mut Ground) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    (0..5).map(|_| char::from(LETTERS[usize::try_from(ground.random.below(27)).unwrap_or(0)])).collect()
}

fn continuation(token: &str) -> Result<String, Failure> {
    if token.is_empty() {
        return Ok(String::new());
    }
    let bytes = URL_SAFE_NO_PAD.decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    bytes.ok_or_else(|| Failure::bad_request("continue key is not valid: illegal base64 data"))
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

fn has_generation(key: &str, custom: bool) -> bool {
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

fn scale_of(object: &Value) -> Value {
    let selector = super::selector::Labels::of(object.pointer("/spec/selector").unwrap_or(&Value::Null));
    let words: Vec<String> = selector
        .0
        .iter()
        .filter_map(|requirement| match requirement {
            super::selector::Requirement::In(key, values) => Some(format!("{key}={}", values.first()?)),
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
