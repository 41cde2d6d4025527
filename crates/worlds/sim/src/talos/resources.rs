//! Resources: a view of a machine's state that clients read and watch.
//!
//! [`view`] says what a machine shows at a moment. A [`Store`] remembers what was shown before, so that every change
//! gets a version and reaches those who watch.

mod definitions;
mod spec;
mod view;

use std::collections::{BTreeMap, VecDeque};

use ichor_talos_proto::{
    Message, Timestamp,
    cosi::resource::{self as cosi, EventType},
};
use serde::{Deserialize, Serialize};

pub(super) use definitions::{Definition, NAMESPACES, find};
pub(super) use view::view;

use super::Machines;
use crate::{clock::Time, ground::Ground};

/// So many changes are kept for those who watch.
const MOST_CHANGES: usize = 4096;

/// What a machine shows, under kind, namespace and id.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shown {
    pub kind: &'static str,
    pub namespace: &'static str,
    pub id: String,
    pub yaml: String,
    pub proto: Vec<u8>,
}

/// The resources of a machine as they were last seen.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Store {
    entries: BTreeMap<String, Entry>,
    changes: VecDeque<Change>,
    first: u64,
}

/// A resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Entry {
    kind: String,
    namespace: String,
    id: String,
    version: u64,
    created: Time,
    updated: Time,
    yaml: String,
    proto: Vec<u8>,
}

/// A change of a resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Change {
    kind: i32,
    entry: Entry,
    old: Option<Entry>,
}

/// What somebody watches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Watch {
    kind: String,
    namespace: String,
    id: Option<String>,
    aggregated: bool,
    next: u64,
}

impl Entry {
    fn key(kind: &str, namespace: &str, id: &str) -> String {
        format!("{kind}\n{namespace}\n{id}")
    }

    /// Since 1.12 a config is a text in its resource, and says so; before, the resource was the config itself.
    fn annotations(&self) -> BTreeMap<String, String> {
        let text = self.kind == "MachineConfigs.config.talos.dev" && self.yaml.starts_with('"');
        text.then(|| ("talos.dev/yaml-spec".to_owned(), "1".to_owned())).into_iter().collect()
    }

    fn to_proto(&self) -> cosi::Resource {
        let time = |at: Time| Timestamp {
            seconds: i64::try_from(at.unix_seconds()).unwrap_or(0),
            nanos: i32::try_from(at.millis() % 1000 * 1_000_000).unwrap_or(0),
        };
        cosi::Resource {
            metadata: Some(cosi::Metadata {
                namespace: self.namespace.clone(),
                r#type: self.kind.clone(),
                id: self.id.clone(),
                version: self.version.to_string(),
                phase: "running".into(),
                annotations: self.annotations(),
                created: Some(time(self.created)),
                updated: Some(time(self.updated)),
                ..cosi::Metadata::default()
            }),
            spec: Some(cosi::Spec { proto_spec: self.proto.clone(), yaml_spec: self.yaml.clone() }),
        }
    }
}

impl Store {
    /// Takes note of what a machine shows now.
    fn update(&mut self, now: Time, shown: Vec<Shown>) {
        let mut gone: BTreeMap<String, Entry> = std::mem::take(&mut self.entries);
        for Shown { kind, namespace, id, yaml, proto } in shown {
            let key = Entry::key(kind, namespace, &id);
            let old = gone.remove(&key);
            let (kind, namespace) = (kind.to_owned(), namespace.to_owned());
            let entry = match &old {
                Some(old) if old.yaml == yaml && old.proto == proto => {
                    self.entries.insert(key, old.clone());
                    continue;
                }
                Some(old) => Entry { version: old.version + 1, updated: now, yaml, proto, ..old.clone() },
                None => Entry { kind, namespace, id, version: 1, created: now, updated: now, yaml, proto },
            };
            let change = if old.is_some() { EventType::Updated } else { EventType::Created };
            self.note(change, entry.clone(), old);
            self.entries.insert(key, entry);
        }
        for entry in gone.into_values() {
            self.note(EventType::Destroyed, entry, None);
        }
    }

    fn note(&mut self, kind: EventType, entry: Entry, old: Option<Entry>) {
        self.changes.push_back(Change { kind: kind as i32, entry, old });
        if self.changes.len() > MOST_CHANGES {
            self.changes.pop_front();
            self.first += 1;
        }
    }

    fn end(&self) -> u64 {
        self.first + self.changes.len() as u64
    }

    /// Returns a resource.
    pub(super) fn get(&self, kind: &str, namespace: &str, id: &str) -> Option<cosi::Resource> {
        self.entries.get(&Entry::key(kind, namespace, id)).map(Entry::to_proto)
    }

    /// Returns the resources of a kind.
    pub(super) fn list(&self, kind: &str, namespace: &str) -> Vec<cosi::Resource> {
        let of_kind = |entry: &&Entry| entry.kind == kind && entry.namespace == namespace;
        self.entries.values().filter(of_kind).map(Entry::to_proto).collect()
    }

    /// Starts to watch; returns the messages that come at once.
    pub(super) fn watch(&self, request: &cosi::WatchRequest) -> (Watch, Vec<Vec<u8>>) {
        let options = request.options.clone().unwrap_or_default();
        let watch = Watch {
            kind: request.r#type.clone(),
            namespace: request.namespace.clone(),
            id: request.id.clone(),
            aggregated: options.aggregated,
            next: self.end(),
        };
        // An empty answer says that the watch is set up.
        let mut messages = vec![cosi::WatchResponse::default().encode_to_vec()];
        let event = |kind: EventType, resource| cosi::Event {
            resource,
            event_type: kind as i32,
            ..cosi::Event::default()
        };
        let mut events = Vec::new();
        if let Some(id) = &request.id {
            events.push(match self.get(&request.r#type, &request.namespace, id) {
                Some(resource) => event(EventType::Created, Some(resource)),
                None => event(EventType::Destroyed, Some(tombstone(request, id))),
            });
        } else if options.bootstrap_contents {
            let contents = self.list(&request.r#type, &request.namespace);
            events.extend(contents.into_iter().map(|resource| event(EventType::Created, Some(resource))));
            events.push(event(EventType::Bootstrapped, None));
        }
        messages.extend(watch.pack(events));
        (watch, messages)
    }

    /// Returns the changes since a watch was last asked.
    pub(super) fn since(&self, watch: &mut Watch) -> Vec<Vec<u8>> {
        let skip = usize::try_from(watch.next.saturating_sub(self.first)).unwrap_or(usize::MAX);
        let changes = self.changes.iter().skip(skip).filter(|change| {
            change.entry.kind == watch.kind
                && change.entry.namespace == watch.namespace
                && watch.id.as_ref().is_none_or(|id| *id == change.entry.id)
        });
        let events = changes
            .map(|change| cosi::Event {
                resource: Some(change.entry.to_proto()),
                event_type: change.kind,
                old: change.old.as_ref().map(Entry::to_proto),
                ..cosi::Event::default()
            })
            .collect();
        watch.next = self.end();
        watch.pack(events)
    }
}

impl Watch {
    /// Packs events into messages: one each, or all together where that was asked for.
    fn pack(&self, events: Vec<cosi::Event>) -> Vec<Vec<u8>> {
        if events.is_empty() {
            return Vec::new();
        }
        let pack = |event| cosi::WatchResponse { event }.encode_to_vec();
        if self.aggregated {
            vec![pack(events)]
        } else {
            events.into_iter().map(|event| pack(vec![event])).collect()
        }
    }
}

/// Stands for a resource that is not there.
fn tombstone(request: &cosi::WatchRequest, id: &str) -> cosi::Resource {
    cosi::Resource {
        metadata: Some(cosi::Metadata {
            namespace: request.namespace.clone(),
            r#type: request.r#type.clone(),
            id: id.to_owned(),
            version: "undefined".into(),
            phase: "running".into(),
            ..cosi::Metadata::default()
        }),
        spec: Some(cosi::Spec::default()),
    }
}

impl Machines {
    /// Brings the resources of a machine up to date.
    pub(super) fn refresh(&mut self, ground: &Ground, vmid: ichor_model::VmId) {
        let Some(machine) = self.by_id.get(&vmid) else { return };
        let shown = view(self, ground, machine);
        if let Some(run) = self.run_mut(vmid) {
            run.resources.update(ground.now, shown);
        }
    }

    /// Brings the resources that somebody watches up to date.
    pub(super) fn watch(&mut self, ground: &Ground) {
        for vmid in self.watched() {
            self.refresh(ground, vmid);
        }
    }
}
