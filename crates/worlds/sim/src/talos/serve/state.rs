//! Reading and watching resources.

use ichor_talos_proto::{
    Message, code,
    cosi::resource::{GetRequest, GetResponse, ListRequest, ListResponse, WatchRequest},
};

use super::{Call, Outcome, Refusal, Reply, one, refuse, request};
use crate::{
    ground::Ground,
    talos::{
        Machines,
        resources::{Definition, NAMESPACES, find},
        streams::Source,
    },
};

impl Machines {
    pub(super) fn call_state(&mut self, ground: &mut Ground, call: &Call<'_>, name: &str) -> Outcome {
        self.refresh(ground, call.vmid);
        match name {
            "Get" => {
                let asked: GetRequest = request(call.rpc)?;
                let definition = allow(call, &asked.r#type, &asked.namespace)?;
                let Some(run) = self.run(call.vmid) else {
                    return refuse(code::UNAVAILABLE, "connection closed");
                };
                match run.resources.get(definition.kind, &asked.namespace, &asked.id) {
                    Some(resource) => one(&GetResponse { resource: Some(resource) }),
                    None => refuse(
                        code::NOT_FOUND,
                        format!(
                            "resource {}({}/{}@undefined) doesn't exist",
                            asked.r#type, asked.namespace, asked.id
                        ),
                    ),
                }
            }
            "List" => {
                let asked: ListRequest = request(call.rpc)?;
                let definition = allow(call, &asked.r#type, &asked.namespace)?;
                let Some(run) = self.run(call.vmid) else {
                    return refuse(code::UNAVAILABLE, "connection closed");
                };
                let resources = run.resources.list(definition.kind, &asked.namespace);
                let messages = resources
                    .into_iter()
                    .map(|resource| ListResponse { resource: Some(resource) }.encode_to_vec());
                Ok(Reply::Messages(messages.collect(), None))
            }
            "Watch" => {
                let asked: WatchRequest = request(call.rpc)?;
                allow(call, &asked.r#type, &asked.namespace)?;
                let Some(run) = self.run(call.vmid) else {
                    return refuse(code::UNAVAILABLE, "connection closed");
                };
                let (watch, messages) = run.resources.watch(&asked);
                let stream = self.open(call.vmid, Source::Watch(Box::new(watch)));
                Ok(Reply::Messages(messages, Some(stream)))
            }
            _ => refuse(code::PERMISSION_DENIED, "write access is not allowed"),
        }
    }
}

/// Says whether a caller may look at a kind in a namespace.
fn allow(call: &Call<'_>, kind: &str, namespace: &str) -> Result<&'static Definition, Refusal> {
    let Some(definition) = find(kind) else {
        return refuse(code::PERMISSION_DENIED, format!("resource type {kind:?} is not supported"));
    };
    if definition.sensitive && !call.caller.is_admin() {
        return refuse(code::PERMISSION_DENIED, "not authorized");
    }
    if !NAMESPACES.contains(&namespace) {
        return refuse(code::PERMISSION_DENIED, format!("namespace {namespace:?} is not supported"));
    }
    Ok(definition)
}
