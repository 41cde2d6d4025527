//! Making objects.

use serde_json::{Value, json};

use super::{
    MOST_OBJECTS, body,
    change::{Origin, has_generation, writer},
    is_dry, manager, root, suffix,
};
use crate::{
    ground::Ground,
    kube::{
        Cluster, apply, check,
        controllers::pods,
        kinds, schema,
        status::Failure,
        target::Target,
        value::{name, namespace, number, remove, set, text, timestamp},
    },
    wire::Request,
};

impl Cluster {
    /// Creates an object.
    pub(in crate::kube) fn create(
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
    pub(super) fn insert(
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
    pub(super) fn complete(&self, ground: &mut Ground, target: &Target, object: &mut Value) {
        check::default(&target.resource, object);
        if target.resource.custom
            && let Some(schema) = kinds::schema(&self.store, &target.resource)
        {
            schema::prune(schema, object);
        }
        match target.resource.key().as_str() {
            "services" => self.allocate_service(ground, object),
            "pods" => pods::admit(object),
            _ => {}
        }
    }

    /// Makes the body of a request say what its path says, or refuses it.
    pub(super) fn fit_to_path(target: &Target, object: &mut Value) -> Result<(), Failure> {
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
            for port in ports.into_iter().flatten().filter(|port| number(port, "/nodePort").unwrap_or(0) == 0)
            {
                port["nodePort"] = (30_000 + ground.random.below(2768)).into();
            }
        }
    }
}
