//! Reading: one object, lists and what continues them.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::{
    clock::Time,
    kube::{
        Cluster,
        selector::{Fields, Labels},
        status::{Failure, json_response},
        table,
        target::Target,
        value::{name, namespace, remove},
    },
    wire::{Request, Response},
};

impl Cluster {
    /// Returns one object.
    pub(in crate::kube) fn get(&self, target: &Target, now: Time) -> Result<Value, Failure> {
        let found = self.store.get(&target.resource.key(), &target.namespace, &target.name);
        found.map(|object| self.shown(target, object, now)).ok_or_else(|| target.not_found())
    }

    /// Returns an object in the version that was asked for, with what changes by itself.
    pub(in crate::kube) fn shown(&self, target: &Target, object: &Value, now: Time) -> Value {
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
    pub(in crate::kube) fn list(
        &self,
        target: &Target,
        request: &Request,
        now: Time,
    ) -> Result<Response, Failure> {
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
}

fn continuation(token: &str) -> Result<String, Failure> {
    if token.is_empty() {
        return Ok(String::new());
    }
    let bytes = URL_SAFE_NO_PAD.decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    bytes.ok_or_else(|| Failure::bad_request("continue key is not valid: illegal base64 data"))
}
