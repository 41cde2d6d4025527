//! Kubernetes: the API servers and controllers of clusters.
//!
//! A cluster is what its etcd holds: objects with versions, and changes that watches tell ([`store`]). The verbs
//! ([`rest`]) keep the rules of the real API server: names, versions, finalizers, ownership of fields, disruption
//! budgets, and its words when they are broken. Controllers look around after every change and whenever
//! something is due ([`controllers`]).

pub mod access;
pub mod apply;
pub mod check;
pub mod controllers;
pub mod discovery;
pub mod fields;
pub mod kinds;
pub mod patch;
pub mod protobuf;
pub mod rest;
pub mod review;
pub mod schema;
pub mod selector;
pub mod shape;
pub mod status;
pub mod store;
pub mod table;
pub mod target;
pub mod value;
pub mod watch;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    clock::Time,
    ground::{Ground, NodeView},
    kube::{
        access::Wish,
        controllers::nodes::NodeLife,
        status::{Failure, json_response},
        store::Store,
        target::Target,
        watch::Watch,
    },
    lab::Progress,
    signal::Signal,
    wire::{Polled, Request, Response, StreamId},
};

/// How many watches are open at most; the oldest end when there are more.
const MOST_WATCHES: usize = 4096;

/// What happens in a cluster by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Controllers of a cluster look around.
    Look(String),
}

/// A Kubernetes cluster.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// Its objects.
    pub store: Store,
    /// The certificates of its authority, as PEM.
    ca_pem: String,
    /// The version of its API servers.
    version: String,
    /// The machines that its nodes stand for.
    nodes: BTreeMap<String, NodeLife>,
    /// When what began with pods is done, by uid.
    pods: BTreeMap<String, controllers::pods::PodLife>,
    /// Tokens of service accounts, and whose they are.
    tokens: BTreeMap<String, String>,
    /// When controllers will look around next, so that they are not called twice.
    look_at: Option<Time>,
    /// Up to which change controllers have looked.
    looked: u64,
}

/// All Kubernetes clusters, by the id of their etcd data.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Clusters {
    all: BTreeMap<String, Cluster>,
    watches: BTreeMap<StreamId, Watch>,
    last_stream: u64,
}

impl Clusters {
    /// Answers a request to the API server of a cluster. Where no cluster is, nobody answers.
    pub fn call(&mut self, ground: &mut Ground, cluster: &str, request: &Request) -> Progress<Response> {
        let Some(found) = self.all.get_mut(cluster) else {
            return Progress::Done(Response { close: true, ..Response::default() });
        };
        let mut response = match found.answer(ground, cluster, request) {
            Ok(Answer::Whole(response)) => response,
            Ok(Answer::Watch(watch)) => {
                self.last_stream += 1;
                let id = StreamId(self.last_stream);
                self.watches.insert(id, *watch);
                while self.watches.len() > MOST_WATCHES {
                    self.watches.pop_first();
                }
                Response {
                    stream: Some(id),
                    body: Vec::new(),
                    ..json_response(200, &serde_json::Value::Null)
                }
            }
            Err(failure) => failure.response(),
        };
        response.headers.push(("audit-id".into(), ground.random.uuid()));
        self.look_after(ground, cluster);
        Progress::Done(response)
    }

    /// Returns what a watch has to say.
    pub fn poll(&mut self, ground: &mut Ground, stream: StreamId) -> Polled {
        let Some(watch) = self.watches.get_mut(&stream) else { return Polled::End };
        let polled = match self.all.get(&watch.cluster) {
            Some(cluster) => watch.poll(cluster, ground.now),
            None => Polled::End,
        };
        if polled == Polled::End {
            self.watches.remove(&stream);
        }
        polled
    }

    /// Returns how many watches are open.
    pub fn open_watches(&self) -> usize {
        self.watches.len()
    }

    /// Forgets a watch whose client has gone.
    pub fn close(&mut self, stream: StreamId) {
        self.watches.remove(&stream);
    }

    /// Lets an event happen.
    pub fn happen(&mut self, ground: &mut Ground, event: Event) {
        let Event::Look(id) = event;
        let Some(cluster) = self.all.get_mut(&id) else { return };
        if cluster.look_at.is_some_and(|at| at <= ground.now) {
            cluster.look_at = None;
        }
        let next = cluster.look(ground);
        cluster.looked = cluster.store.revision();
        if let Some(next) = next {
            cluster.look_by(ground, &id, next);
        }
    }

    /// Takes a message from another part.
    pub fn hear(&mut self, ground: &mut Ground, signal: &Signal) {
        let id = match signal {
            Signal::ClusterBorn { cluster, snapshot, ca_pem } => {
                let born =
                    snapshot.as_deref().and_then(|bytes| serde_json::from_slice::<Cluster>(bytes).ok());
                let mut born = born.unwrap_or_default();
                born.ca_pem.clone_from(ca_pem);
                born.begin(ground);
                self.all.insert(cluster.clone(), born);
                cluster
            }
            Signal::NodeUp { cluster, node } => {
                ground.usable(format!("node {cluster} {}", node.name));
                self.all.entry(cluster.clone()).or_default().node_up(ground, node);
                cluster
            }
            Signal::NodeDown { cluster, name } => {
                if let Some(found) = self.all.get_mut(cluster) {
                    found.node_down(ground, name);
                }
                cluster
            }
            _ => return,
        };
        let id = id.clone();
        self.look_after(ground, &id);
    }

    /// Returns a cluster.
    pub fn get(&self, cluster: &str) -> Option<&Cluster> {
        self.all.get(cluster)
    }

    /// Returns the clusters by id.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Cluster)> {
        self.all.iter()
    }

    /// Returns all that a cluster's etcd holds, for a snapshot; `ClusterBorn` takes it back.
    pub fn export(&self, cluster: &str) -> Option<Vec<u8>> {
        serde_json::to_vec(self.all.get(cluster)?).ok()
    }

    /// Lets controllers look around if something changed.
    fn look_after(&mut self, ground: &mut Ground, id: &str) {
        let now = ground.now;
        if let Some(cluster) = self.all.get_mut(id)
            && cluster.store.revision() > cluster.looked
        {
            cluster.look_by(ground, id, now);
        }
    }
}

/// What comes of a request.
enum Answer {
    Whole(Response),
    Watch(Box<Watch>),
}

impl Cluster {
    /// Returns what its nodes show to their machines.
    pub fn node_views(&self) -> BTreeMap<String, NodeView> {
        let nodes = self.store.list("nodes", "").filter_map(|node| {
            let name = node["metadata"]["name"].as_str()?.to_owned();
            let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
            let ready = conditions.into_iter().any(|it| it["type"] == "Ready" && it["status"] == "True");
            Some((name, NodeView { ready, unschedulable: node["spec"]["unschedulable"] == true }))
        });
        nodes.collect()
    }

    /// Returns the version of its API servers.
    pub fn version(&self) -> &str {
        &self.version
    }

    fn look_by(&mut self, ground: &mut Ground, id: &str, at: Time) {
        if self.look_at.is_some_and(|planned| planned <= at) {
            return;
        }
        self.look_at = Some(at);
        ground.agenda.add(at, crate::agenda::Event::Kube(Event::Look(id.into())));
    }

    fn answer(&mut self, ground: &mut Ground, id: &str, request: &Request) -> Result<Answer, Failure> {
        let mut user = access::authenticate(self, ground.now, request)?;
        if ground.mischief.no_rights {
            user.groups.clear();
        }
        if let Some(answer) = discovery::answer(self, request) {
            let verb = request.method.to_lowercase();
            if user.is_anonymous() || !matches!(verb.as_str(), "get" | "head") {
                access::authorize(&self.store, &user, Wish::Path(&verb, &request.path))?;
            }
            return answer.map(Answer::Whole);
        }
        let target = Target::parse(&self.store, request)?;
        access::authorize(
            &self.store,
            &user,
            Wish::Resource {
                verb: target.verb,
                group: &target.resource.group,
                resource: &target.rule_resource(),
                namespace: &target.namespace,
                name: &target.name,
            },
        )?;
        if target.verb == "watch" {
            return Ok(Answer::Watch(Box::new(Watch::new(self, id, &target, request, ground.now)?)));
        }
        self.answer_about(ground, &target, request, &user).map(Answer::Whole)
    }

    fn answer_about(
        &mut self,
        ground: &mut Ground,
        target: &Target,
        request: &Request,
        user: &access::User,
    ) -> Result<Response, Failure> {
        let whole = |value| Ok(json_response(200, &value));
        let resource = target.resource.key();
        if target.resource.is_review() {
            return match target.verb {
                "create" => Ok(json_response(201, &self.review(target, request, user)?)),
                _ => Err(Failure::method_not_allowed()),
            };
        }
        match (target.verb, resource.as_str(), target.subresource.as_str()) {
            ("create", "pods", "eviction") => Ok(json_response(201, &self.evict(ground, target, request)?)),
            ("create", "serviceaccounts", "token") => {
                Ok(json_response(201, &self.issue_token(ground, target, request)?))
            }
            ("get", "pods", "log") => {
                self.get(target, ground.now)?;
                // Containers run nothing here, so they have nothing to say.
                Ok(status::text_response(200, ""))
            }
            ("update", "namespaces", "finalize") => whole(self.update(ground, target, request)?),
            (_, _, "scale") if target.resource.scale => match target.verb {
                "get" => whole(self.get_scale(target)?),
                "update" => whole(self.update(ground, target, request)?),
                "patch" => whole(self.patch(ground, target, request)?.0),
                _ => Err(Failure::method_not_allowed()),
            },
            (_, _, sub) if !is_known_subresource(target, sub) => Err(Failure::no_such_path()),
            ("create", _, "") if target.name.is_empty() => {
                if target.resource.namespaced && target.namespace.is_empty() {
                    return Err(Failure::method_not_allowed());
                }
                let mut created = self.create(ground, target, request)?;
                self.stamp_requestor(target, &mut created, user);
                Ok(json_response(201, &created))
            }
            ("get", ..) => {
                let object = self.get(target, ground.now)?;
                whole(match table::asked(request) {
                    None => object,
                    Some(table::Form::Metadata) => table::partial(&object),
                    Some(form) => {
                        let metadata =
                            serde_json::json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                        table::render(&self.store, target, &[object], &metadata, form, ground.now)
                    }
                })
            }
            ("list", _, "") => self.list(target, request, ground.now),
            ("update", ..) => whole(self.update(ground, target, request)?),
            ("patch", ..) => {
                let (object, created) = self.patch(ground, target, request)?;
                Ok(json_response(if created { 201 } else { 200 }, &object))
            }
            ("delete", _, "") => whole(self.delete(ground, target, request)?),
            ("deletecollection", _, "") => self.delete_collection(ground, target, request),
            _ => Err(Failure::method_not_allowed()),
        }
    }

    /// A signing request says who asked for it; only the server writes that.
    fn stamp_requestor(&mut self, target: &Target, created: &mut serde_json::Value, user: &access::User) {
        if target.resource.key() != controllers::certificates::KEY || target.query.get("dryRun") == "All" {
            return;
        }
        value::set(created, &["spec", "username"], user.name.as_str().into());
        value::set(created, &["spec", "groups"], serde_json::json!(user.groups));
        *created = serde_json::Value::clone(&self.store.put(controllers::certificates::KEY, created.clone()));
    }
}

fn is_known_subresource(target: &Target, sub: &str) -> bool {
    match sub {
        "" => true,
        "status" => target.resource.status,
        "approval" => target.resource.key() == controllers::certificates::KEY,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
