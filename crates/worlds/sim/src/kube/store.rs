//! The objects of a cluster and what happened to them lately.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::value::{name, namespace};

/// How many changes are remembered. Who watches from before them is told that it is too late (410); the real
/// server forgets after five minutes.
const REMEMBERED: usize = 2048;

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Happened {
    /// It came.
    Added,
    /// It changed.
    Modified,
    /// It went.
    Deleted,
}

/// A change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Its number.
    pub revision: u64,
    /// The object's key.
    pub key: String,
    /// What happened.
    pub happened: Happened,
    /// The object afterwards, or before it went.
    pub object: Arc<Value>,
    /// The object before a modification.
    pub previous: Option<Arc<Value>>,
}

/// The objects of a cluster, by keys such as `deployments.apps/default/web`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Store {
    revision: u64,
    // Shared with those who look at them: most objects are looked at often and change seldom.
    objects: BTreeMap<String, Arc<Value>>,
    changes: VecDeque<Change>,
    /// The last change that is forgotten.
    forgotten: u64,
}

impl Default for Store {
    fn default() -> Self {
        // An etcd begins with revision 1.
        Self { revision: 1, objects: BTreeMap::new(), changes: VecDeque::new(), forgotten: 0 }
    }
}

/// Returns the key of an object of a resource such as `deployments.apps`.
pub fn key(resource: &str, namespace: &str, name: &str) -> String {
    format!("{resource}/{namespace}/{name}")
}

impl Store {
    /// Returns the number of the last change.
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the last change that is forgotten.
    pub const fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Returns an object.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<&Value> {
        self.objects.get(&key(resource, namespace, name)).map(|object| &**object)
    }

    /// Returns an object to keep.
    pub fn share(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        self.objects.get(&key(resource, namespace, name)).cloned()
    }

    /// Returns the objects of a resource, of one namespace or, if it is empty, of all, by namespace and name.
    pub fn list<'s>(&'s self, resource: &str, namespace: &str) -> impl Iterator<Item = &'s Value> + use<'s> {
        self.shared(resource, namespace).map(|object| &**object)
    }

    /// Returns the same objects, to be cloned and kept while others change.
    pub fn shared<'s>(
        &'s self,
        resource: &str,
        namespace: &str,
    ) -> impl Iterator<Item = &'s Arc<Value>> + use<'s> {
        let prefix =
            if namespace.is_empty() { format!("{resource}/") } else { format!("{resource}/{namespace}/") };
        self.objects
            .range(prefix.clone()..)
            .take_while(move |(key, _)| key.starts_with(&prefix))
            .map(|(_, object)| object)
    }

    /// Returns all objects with their keys.
    pub fn all(&self) -> impl Iterator<Item = (&String, &Arc<Value>)> {
        self.objects.iter()
    }

    /// Returns how many objects there are.
    pub fn count(&self) -> usize {
        self.objects.len()
    }

    /// Returns the changes after a number.
    pub fn changes_since(&self, revision: u64) -> impl Iterator<Item = &Change> {
        let from = self.changes.partition_point(|change| change.revision <= revision);
        self.changes.range(from..)
    }

    /// Puts an object, and returns it with its new resource version.
    pub fn put(&mut self, resource: &str, mut object: Value) -> Arc<Value> {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let key = key(resource, namespace(&object), name(&object));
        let object = Arc::new(object);
        let previous = self.objects.insert(key.clone(), object.clone());
        let happened = if previous.is_some() { Happened::Modified } else { Happened::Added };
        self.remember(Change { revision: self.revision, key, happened, object: object.clone(), previous });
        object
    }

    /// Removes an object, and returns what it was.
    pub fn delete(&mut self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let key = key(resource, namespace, name);
        let mut object = Value::clone(&*self.objects.remove(&key)?);
        self.revision += 1;
        object["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let object = Arc::new(object);
        self.remember(Change {
            revision: self.revision,
            key,
            happened: Happened::Deleted,
            object: object.clone(),
            previous: None,
        });
        Some(object)
    }

    fn remember(&mut self, change: Change) {
        self.changes.push_back(change);
        while self.changes.len() > REMEMBERED {
            self.forgotten = self.changes.pop_front().map_or(self.forgotten, |change| change.revision);
        }
    }
}
