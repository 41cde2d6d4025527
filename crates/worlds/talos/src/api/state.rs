//! Resources: getting one, listing a kind, watching.

use std::time::Duration;

use ichor_talos_proto::{cosi::resource as proto, method};

use super::SHORT;
use crate::{
    Call, StreamCall,
    call::{Unread, decode},
    error::clean,
    resource::{Kind, Raw, Resource},
};

/// How long one watch lasts, unless the caller says otherwise.
const WATCH: Duration = Duration::from_hours(1);

fn required<T>(
    resource: Option<proto::Resource>,
    read: fn(proto::Resource) -> Result<T, String>,
) -> Result<T, Unread> {
    let resource = resource.ok_or_else(|| Unread::Nonsense("there is no resource in it".into()))?;
    read(resource).map_err(Unread::Nonsense)
}

fn get_request(namespace: &str, kind: &str, id: &str) -> proto::GetRequest {
    let (namespace, r#type, id) = (namespace.to_owned(), kind.to_owned(), id.to_owned());
    proto::GetRequest { namespace, r#type, id, options: None }
}

fn list_request(namespace: &str, kind: &str) -> proto::ListRequest {
    proto::ListRequest { namespace: namespace.to_owned(), r#type: kind.to_owned(), options: None }
}

/// Gets a resource. `NotFound` is the answer when there is none.
pub fn get<K: Kind>(id: &str) -> Call<Resource<K>> {
    Call::new(method::state("Get"), &get_request(K::NAMESPACE, K::TYPE, id), SHORT, |bytes| {
        required(decode::<proto::GetResponse>(bytes)?.resource, Resource::read)
    })
}

/// Gets a resource of any kind, as text.
pub fn get_raw(namespace: &str, kind: &str, id: &str) -> Call<Resource<Raw>> {
    Call::new(method::state("Get"), &get_request(namespace, kind, id), SHORT, |bytes| {
        required(decode::<proto::GetResponse>(bytes)?.resource, Resource::read_raw)
    })
}

/// Lists the resources of a kind.
pub fn list<K: Kind>() -> StreamCall<Resource<K>> {
    StreamCall::new(method::state("List"), &list_request(K::NAMESPACE, K::TYPE), SHORT, |bytes| {
        required(decode::<proto::ListResponse>(bytes)?.resource, Resource::read)
    })
}

/// Lists the resources of any kind, as text.
pub fn list_raw(namespace: &str, kind: &str) -> StreamCall<Resource<Raw>> {
    StreamCall::new(method::state("List"), &list_request(namespace, kind), SHORT, |bytes| {
        required(decode::<proto::ListResponse>(bytes)?.resource, Resource::read_raw)
    })
}

/// What happened to a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event<K> {
    /// It is so now: made, changed, or seen for the first time.
    Is(Resource<K>),
    /// The one with this id is gone, or was never there.
    Gone(String),
    /// Everything that was there when the watch began has been told.
    Complete,
    /// The watch has failed.
    Failed(String),
}

/// Watches one resource, or all of a kind. First comes what is there: for one id its state, or that it is gone; for a
/// kind all of them, and [`Event::Complete`]. Messages without events are signs of life.
pub fn watch<K: Kind>(id: Option<&str>) -> StreamCall<Vec<Event<K>>> {
    let options = proto::WatchOptions { bootstrap_contents: id.is_none(), ..proto::WatchOptions::default() };
    let request = proto::WatchRequest {
        namespace: K::NAMESPACE.to_owned(),
        r#type: K::TYPE.to_owned(),
        id: id.map(ToOwned::to_owned),
        options: Some(options),
        // Without it the end of what was there, and failures, are not told.
        api_version: 1,
    };
    StreamCall::new(method::state("Watch"), &request, WATCH, |bytes| {
        let events = decode::<proto::WatchResponse>(bytes)?.event;
        events.into_iter().filter_map(|event| event_of(event).transpose()).collect()
    })
}

fn event_of<K: Kind>(event: proto::Event) -> Result<Option<Event<K>>, Unread> {
    use proto::EventType;
    let kind = EventType::try_from(event.event_type)
        .map_err(|_| Unread::Nonsense(format!("there is no event {}", event.event_type)))?;
    Ok(Some(match kind {
        EventType::Created | EventType::Updated => Event::Is(required(event.resource, Resource::read)?),
        EventType::Destroyed => {
            Event::Gone(event.resource.and_then(|resource| resource.metadata).unwrap_or_default().id)
        }
        EventType::Bootstrapped => Event::Complete,
        EventType::Errored => Event::Failed(clean(&event.error.unwrap_or_default())),
        EventType::Noop => return Ok(None),
    }))
}

#[cfg(test)]
mod tests {
    use ichor_talos_proto::Message;

    use super::*;
    use crate::resource::{MachineType, Single};

    fn told(kind: proto::EventType, yaml: Option<&str>) -> Result<Vec<Event<MachineType>>, Unread> {
        let metadata = proto::Metadata { id: "machine-type".into(), ..proto::Metadata::default() };
        let resource = yaml.map(|yaml| proto::Resource {
            metadata: Some(metadata),
            spec: Some(proto::Spec { proto_spec: Vec::new(), yaml_spec: yaml.into() }),
        });
        let error = Some("lost\n".to_owned());
        let event = proto::Event { resource, event_type: kind.into(), error, ..proto::Event::default() };
        let answer = proto::WatchResponse { event: vec![event] };
        (watch::<MachineType>(None).read)(answer.encode_to_vec().into())
    }

    #[test]
    fn events_are_read() {
        use proto::EventType as Type;
        for kind in [Type::Created, Type::Updated] {
            let events = told(kind, Some("worker\n")).expect("readable");
            assert!(
                matches!(&events[..], [Event::Is(resource)] if resource.spec == MachineType::Worker),
                "{events:?}"
            );
            assert!(told(kind, None).is_err());
            assert!(told(kind, Some("[")).is_err());
        }
        // What is gone is not read: a tombstone holds nothing.
        assert_eq!(told(Type::Destroyed, Some("")), Ok(vec![Event::Gone("machine-type".into())]));
        assert_eq!(told(Type::Bootstrapped, None), Ok(vec![Event::Complete]));
        assert_eq!(told(Type::Errored, None), Ok(vec![Event::Failed("lost".into())]));
        assert_eq!(told(Type::Noop, None), Ok(Vec::new()));
        let empty = (watch::<MachineType>(None).read)(proto::WatchResponse::default().encode_to_vec().into());
        assert_eq!(empty, Ok(Vec::new()), "a sign of life");
    }

    #[test]
    fn one_resource_is_watched_without_a_replay() {
        for (id, replay) in [(Some(MachineType::ID), false), (None, true)] {
            let request =
                proto::WatchRequest::decode(watch::<MachineType>(id).head.request).expect("a message");
            assert_eq!(request.id.as_deref(), id);
            assert_eq!(request.options.map(|options| options.bootstrap_contents), Some(replay));
            assert_eq!((request.namespace.as_str(), request.api_version), ("config", 1));
        }
    }
}
