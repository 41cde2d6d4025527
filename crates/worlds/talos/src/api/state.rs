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
        // Servers refuse watches that do not know that they may be told of several events at once.
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
