//! Watches: answers that go on.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    Cluster,
    selector::{Fields, Labels},
    status::Failure,
    store::{Change, Happened},
    table::{self, Form},
    target::Target,
    value::{name, remove},
};
use crate::{
    clock::Time,
    wire::{Polled, Request},
};

/// How long a watch lasts if the client does not say. The real server draws between 30 and 60 minutes.
const USUAL_LENGTH: Duration = Duration::from_mins(30);

/// How often those who want them get bookmarks.
const BOOKMARKS: Duration = Duration::from_mins(1);

/// How many events come at once.
const MOST_EVENTS: usize = 500;

/// A watch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Watch {
    /// The cluster.
    pub cluster: String,
    path: String,
    query: String,
    labels: Labels,
    fields: Fields,
    name: String,
    form: Option<Form>,
    /// The last change that was told.
    seen: u64,
    /// What is there already and is to be told first.
    backlog: Vec<Value>,
    /// After the backlog, a bookmark says that it is over.
    ends_backlog: bool,
    bookmark: Option<Time>,
    deadline: Time,
    failure: Option<Value>,
    /// After a failure nothing follows.
    over: bool,
    headed: bool,
}

impl Watch {
    /// Begins a watch.
    pub fn new(
        cluster: &Cluster,
        id: &str,
        target: &Target,
        request: &Request,
        now: Time,
    ) -> Result<Self, Failure> {
        let query = &target.query;
        let labels = Labels::parse(query.get("labelSelector"))?;
        let fields = Fields::parse(query.get("fieldSelector"), &target.resource)?;
        let version = query.get("resourceVersion");
        let current = cluster.store.revision();
        let from = match version {
            "" | "0" => None,
            other => Some(other.parse::<u64>().map_err(|_| {
                Failure::bad_request(format!(
                    "resourceVersion: Invalid value: {other:?}: strconv.ParseUint: invalid syntax"
                ))
            })?),
        };
        let initial = query.is_on("sendInitialEvents");
        let failure = from
            .filter(|from| *from < cluster.store.forgotten() && !initial)
            .map(|from| Failure::expired(format!("too old resource version: {from} ({current})")).object());
        let length = query
            .get("timeoutSeconds")
            .parse()
            .ok()
            .filter(|seconds| *seconds > 0)
            .map_or(USUAL_LENGTH, Duration::from_secs);
        let mut watch = Self {
            cluster: id.into(),
            path: request.path.clone(),
            query: request.query.clone(),
            labels,
            fields,
            name: target.name.clone(),
            form: table::asked(request),
            seen: from.filter(|_| !initial).unwrap_or(current),
            backlog: Vec::new(),
            ends_backlog: initial,
            bookmark: query.is_on("allowWatchBookmarks").then(|| now + BOOKMARKS),
            deadline: now + length,
            failure,
            over: false,
            headed: false,
        };
        if (from.is_none() || initial) && query.get("sendInitialEvents") != "false" {
            let all = cluster.store.list(&target.resource.key(), &target.namespace);
            watch.backlog = all.filter(|object| watch.fits(object)).cloned().collect();
        }
        Ok(watch)
    }

    fn fits(&self, object: &Value) -> bool {
        (self.name.is_empty() || name(object) == self.name)
            && self.labels.fit(object)
            && self.fields.fit(object)
    }

    /// Returns what there is to tell.
    pub fn poll(&mut self, cluster: &Cluster, now: Time) -> Polled {
        if let Some(failure) = self.failure.take() {
            self.over = true;
            return Polled::Pieces(vec![line("ERROR", &failure)]);
        }
        if self.over {
            return Polled::End;
        }
        let request = Request {
            method: "GET".into(),
            path: self.path.clone(),
            query: self.query.clone(),
            ..Request::default()
        };
        let Ok(target) = Target::parse(&cluster.store, &request) else { return Polled::End };
        let mut pieces = Vec::new();
        for object in std::mem::take(&mut self.backlog) {
            pieces.push(self.piece("ADDED", cluster, &target, &object, now));
        }
        if std::mem::take(&mut self.ends_backlog) {
            pieces.push(bookmark(&target, cluster.store.revision().min(self.seen), true));
        }
        if self.seen < cluster.store.forgotten() {
            self.over = true;
            let failure = Failure::expired(format!("too old resource version: {}", self.seen));
            pieces.push(line("ERROR", &failure.object()));
            return Polled::Pieces(pieces);
        }
        let prefix = format!(
            "{}/{}",
            target.resource.key(),
            if target.namespace.is_empty() { String::new() } else { format!("{}/", target.namespace) }
        );
        let changes: Vec<Change> =
            cluster.store.changes_since(self.seen).take(MOST_EVENTS).cloned().collect();
        for change in changes {
            self.seen = change.revision;
            if !change.key.starts_with(&prefix) {
                continue;
            }
            if let Some((word, object)) = self.told(&change) {
                pieces.push(self.piece(word, cluster, &target, &object, now));
            }
        }
        if self.bookmark.is_some_and(|at| at <= now) {
            self.bookmark = Some(now + BOOKMARKS);
            pieces.push(bookmark(&target, self.seen, false));
        }
        if !pieces.is_empty() {
            return Polled::Pieces(pieces);
        }
        if now >= self.deadline {
            return Polled::End;
        }
        Polled::Wait(Some(self.bookmark.map_or(self.deadline, |at| at.min(self.deadline))))
    }

    /// Says what a change means to this watch: objects come and go as they begin and cease to fit.
    fn told(&self, change: &Change) -> Option<(&'static str, Value)> {
        let is = self.fits(&change.object);
        let was = change.previous.as_ref().is_some_and(|previous| self.fits(previous));
        let word = match (change.happened, was, is) {
            (Happened::Deleted, _, true) | (Happened::Modified, true, false) => "DELETED",
            (Happened::Added, _, true) | (Happened::Modified, false, true) => "ADDED",
            (Happened::Modified, true, true) => "MODIFIED",
            _ => return None,
        };
        if word == "DELETED" && change.happened == Happened::Modified {
            // As it was when it still fitted, but with the version of the change.
            let mut object = Value::clone(change.previous.as_ref()?);
            object["metadata"]["resourceVersion"] = change.revision.to_string().into();
            return Some((word, object));
        }
        Some((word, Value::clone(&change.object)))
    }

    fn piece(
        &mut self,
        word: &str,
        cluster: &Cluster,
        target: &Target,
        object: &Value,
        now: Time,
    ) -> Vec<u8> {
        let mut object = cluster.shown(target, object, now);
        match self.form {
            Some(Form::Table) => {
                let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                let mut table = table::render(&cluster.store, target, &[object], &metadata, Form::Table, now);
                if std::mem::replace(&mut self.headed, true) {
                    // The columns are told once.
                    remove(&mut table, &["columnDefinitions"]);
                    table["columnDefinitions"] = Value::Null;
                }
                object = table;
            }
            Some(Form::Metadata) => object = table::partial(&object),
            None => {}
        }
        line(word, &object)
    }
}

fn line(word: &str, object: &Value) -> Vec<u8> {
    let mut line = json!({"type": word, "object": object}).to_string().into_bytes();
    line.push(b'\n');
    line
}

fn bookmark(target: &Target, revision: u64, ends_backlog: bool) -> Vec<u8> {
    let mut object = json!({
        "kind": target.resource.kind, "apiVersion": target.resource.api_version(),
        "metadata": {"resourceVersion": revision.to_string(), "creationTimestamp": null},
    });
    if ends_backlog {
        object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    line("BOOKMARK", &object)
}
