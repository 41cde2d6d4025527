//! Visits an API server with ichor's client, for `conformance/`.
//!
//! `visitor ADDRESS FOLDER` speaks to port 6443. The folder has `authority.der`, `client.der`, `key.der` (PKCS #8), and
//! `asker.csr`, a request for a certificate in base64. Each claim that holds becomes a line; the first that does not
//! ends the visit. There is no kubelet: the visitor is also what nodes and pods say of themselves.
#![allow(clippy::print_stderr, clippy::disallowed_methods, reason = "a program of its own, for judges")]

use std::{
    fs,
    future::Future,
    io::{self, Write},
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use ichor_kube::{
    Call, Client, Content, Deleted, Error, Event, Evicted, Kind, Resource, Truth, WatchFrom,
    api::{self, ApplyOptions, Pod, Propagation},
    condition,
};
use ichor_net::{Direct, Endpoint, HttpClient, Identity, Trust};
use ichor_port::Method;
use serde_json::{Value, json};

/// How often something that takes time is looked at, and how many times.
const PAUSE: Duration = Duration::from_millis(100);
const LOOKS: usize = 600;
/// More than are on a page.
const MANY: usize = 520;
/// What ichor signs its fields with, in this visit.
const OURS: ApplyOptions<'_> = ApplyOptions { manager: "ichor", force: false, dry_run: false };
const THEIRS: ApplyOptions<'_> = ApplyOptions { manager: "stranger", force: false, dry_run: false };
/// Where everything happens.
const PLACE: &str = "visit";

type Told<T = ()> = Result<T, String>;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, folder] = &arguments[..] else {
        eprintln!("usage: visitor ADDRESS FOLDER");
        return ExitCode::from(2);
    };
    match visit(address, Path::new(folder)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("visitor: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn visit(address: &str, folder: &Path) -> Told {
    let visit = Visit { kube: client(address, folder)? };
    visit.server().await?;
    visit.applying().await?;
    visit.definitions().await?;
    visit.pages_and_watches().await?;
    visit.nodes().await?;
    visit.eviction().await?;
    visit.signing(&read(folder, "asker.csr")?).await
}

fn read(folder: &Path, name: &str) -> Told<Vec<u8>> {
    fs::read(folder.join(name)).map_err(|error| format!("{name}: {error}"))
}

fn client(address: &str, folder: &Path) -> Told<Client<HttpClient>> {
    let endpoint = Endpoint { host: address.to_owned(), port: 6443, tls: true };
    let trust = Trust::Authorities(vec![read(folder, "authority.der")?]);
    let identity =
        Identity { certificates: vec![read(folder, "client.der")?], key: read(folder, "key.der")?.into() };
    let http = HttpClient::new(endpoint, trust, Some(&identity), Arc::new(Direct));
    http.map(Client::new).map_err(|error| error.to_string())
}

fn claim(what: &str, holds: bool) -> Told {
    if !holds {
        return Err(format!("does not hold: {what}"));
    }
    writeln!(io::stdout().lock(), "{what}").map_err(|error| error.to_string())
}

/// What the server says in the end, or what the error was.
fn told<T>(what: &str, result: Result<T, Error>) -> Told<T> {
    result.map_err(|error| format!("{what}: {error}"))
}

/// Looks again until something is so.
async fn until<F: Future<Output = Told<bool>>>(what: &str, look: impl Fn() -> F) -> Told {
    for _ in 0..LOOKS {
        if look().await? {
            return claim(what, true);
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(format!("waited in vain: {what}"))
}

fn config_map(name: &str, word: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"word": word}})
}

/// What a kubelet says of its node.
fn ready_status() -> Value {
    json!({"status": {
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "visited"}],
        "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "addresses": [{"type": "InternalIP", "address": "192.0.2.21"}],
        "nodeInfo": {"architecture": "amd64", "bootID": "b", "containerRuntimeVersion": "c", "kernelVersion": "k",
            "kubeProxyVersion": "", "kubeletVersion": "v1.36.4", "machineID": "m", "operatingSystem": "linux",
            "osImage": "Visit", "systemUUID": "AB12CD34-0000-0000-0000-000000000001"}}})
}

struct Visit {
    kube: Client<HttpClient>,
}

impl Visit {
    async fn server(&self) -> Told {
        let probe = told("ready", self.kube.probe(api::READY).await)?;
        claim("the server is ready, and lists no failing check", probe.well && probe.failing.is_empty())?;
        let version = told("version", self.kube.send(&api::version()).await)?;
        claim("it tells its release", version.git_version.starts_with("v1.") && version.major == "1")?;
        let served = told("versions", self.kube.api_versions().await)?;
        let all = ["v1", "apps/v1", "policy/v1", "apiextensions.k8s.io/v1"];
        claim("it tells what it serves", all.iter().all(|one| served.iter().any(|it| it == one)))?;
        let nodes = told("nodes", self.kube.list(&api::nodes()).await)?;
        claim("it has no nodes yet", nodes.items.is_empty() && !nodes.resource_version().is_empty())?;
        let missing = told("find", self.kube.find(&api::node("nobody")).await)?;
        claim("a node that is not there is missing", missing.is_none())
    }

    async fn applying(&self) -> Told {
        let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PLACE}});
        let make = api::create(&Resource::NAMESPACES, None, space);
        told("namespace", self.kube.send(&make).await)?;
        let again = self.kube.send(&make).await.map_err(|error| error.refusal());
        claim("what is there cannot be made again", again == Err(Some(Kind::Exists)))?;

        let maps = &Resource::CONFIG_MAPS;
        let apply = |word: &str, options| api::apply(maps, Some(PLACE), "a", config_map("a", word), options);
        told("apply", self.kube.send(&apply("one", OURS)).await)?;
        let word = async || -> Told<Value> {
            let map = told("get", self.kube.send(&api::get(maps, Some(PLACE), "a")).await)?;
            Ok(map["data"]["word"].clone())
        };
        claim("what is applied is there", word().await? == "one")?;
        let before = told("get", self.kube.send(&api::get(maps, Some(PLACE), "a")).await)?;
        let after = told("apply", self.kube.send(&apply("one", OURS)).await)?;
        let version = "/metadata/resourceVersion";
        claim("applying it again changes nothing", before.pointer(version) == after.pointer(version))?;
        let dry = ApplyOptions { dry_run: true, ..OURS };
        let would = told("dry run", self.kube.send(&apply("two", dry)).await)?;
        claim("a dry run says what would be", would["data"]["word"] == "two" && word().await? == "one")?;
        let Err(Error::Refused(refusal)) = self.kube.send(&apply("three", THEIRS)).await else {
            return Err("a stranger took a field".into());
        };
        claim("a stranger's field is a conflict", refusal.kind == Kind::FieldsOwned)?;
        let conflicts: Vec<String> = refusal.conflicts().iter().map(ToString::to_string).collect();
        claim("which names owner and field", conflicts == ["`.data.word` belongs to `ichor`"])?;
        let force = ApplyOptions { force: true, ..THEIRS };
        told("force", self.kube.send(&apply("three", force)).await)?;
        claim("who insists gets it", word().await? == "three")?;
        let ours = self.kube.send(&apply("one", OURS)).await.map_err(|error| error.refusal());
        claim("and we are told in turn", ours == Err(Some(Kind::FieldsOwned)))?;
        let wrong = api::apply(maps, Some(PLACE), "b", json!({"kind": "ConfigMap"}), OURS);
        let wrong = self.kube.send(&wrong).await.map_err(|error| error.refusal());
        claim("an object without a version is invalid", wrong == Err(Some(Kind::Invalid)))?;
        let delete = api::delete(maps, Some(PLACE), "a", Some("another"), Propagation::Background);
        let deleted = told("delete", self.kube.delete(&delete).await)?;
        claim("only the very object that was seen is deleted", deleted == Deleted::Missing)?;
        let delete = api::delete(maps, Some(PLACE), "a", None, Propagation::Foreground);
        claim("and then it is", told("delete", self.kube.delete(&delete).await)? == Deleted::Going)?;
        until("it is gone", || async {
            Ok(told("get", self.kube.find(&api::get(maps, Some(PLACE), "a")).await)?.is_none())
        })
        .await
    }

    async fn definitions(&self) -> Told {
        let name = "blooms.visit.example";
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": name},
            "spec": {"group": "visit.example", "scope": "Namespaced",
                "names": {"plural": "blooms", "singular": "bloom", "kind": "Bloom"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "properties": {"spec": {"type": "object",
                        "properties": {"petals": {"type": "integer"}},
                        "x-kubernetes-validations": [{"rule": "self.petals < 9", "message": "too many petals"}]}}}}}]}});
        let none = told("discover", self.kube.discover("visit.example/v1", "Bloom").await)?;
        claim("a kind that nobody defined is not served", none.is_none())?;
        told(
            "define",
            self.kube.send(&api::apply(&Resource::DEFINITIONS, None, name, definition, OURS)).await,
        )?;
        until("the definition is established", || async {
            let definition = self.kube.send(&api::get(&Resource::DEFINITIONS, None, name)).await;
            Ok(condition(&told("definition", definition)?, "Established").is_some_and(|it| it.holds()))
        })
        .await?;
        until("and its kind is served", || async {
            Ok(told("discover", self.kube.discover("visit.example/v1", "Bloom").await)?.is_some())
        })
        .await?;
        let blooms = told("discover", self.kube.discover("visit.example/v1", "Bloom").await)?;
        let blooms = blooms.ok_or("it is served no more")?;
        claim("under its own name, in namespaces", blooms.plural == "blooms" && blooms.namespaced)?;
        let bloom = |petals: u8| {
            let bloom = json!({"apiVersion": "visit.example/v1", "kind": "Bloom", "metadata": {"name": "a"},
                "spec": {"petals": petals}});
            api::apply(&blooms, Some(PLACE), "a", bloom, OURS)
        };
        told("bloom", self.kube.send(&bloom(8)).await)?;
        let Err(Error::Refused(refusal)) = self.kube.send(&bloom(9)).await else {
            return Err("a rule of the definition is not kept".into());
        };
        let said = refusal.kind == Kind::Invalid && refusal.to_string().contains("too many petals");
        claim("what its rule forbids is invalid, and says why", said)
    }

    async fn pages_and_watches(&self) -> Told {
        let maps = &Resource::CONFIG_MAPS;
        for number in 0..MANY {
            let map = config_map(&format!("m{number}"), "many");
            told("create", self.kube.send(&api::create(maps, Some(PLACE), map)).await)?;
        }
        let list = told("list", self.kube.list(&api::list(maps, Some(PLACE))).await)?;
        let ours = list.items.iter().filter(|map| map["data"]["word"] == "many").count();
        claim("a list of more than a page is whole", ours == MANY)?;

        let from = WatchFrom { name: Some("m7"), ..WatchFrom::version(list.resource_version()) };
        let mut watch = told("watch", self.kube.watch(maps, Some(PLACE), &from).await)?;
        for (name, word) in [("m6", "x"), ("m7", "y")] {
            let patch = json!({"data": {"word": word}});
            told("merge", self.kube.send(&api::merge(maps, Some(PLACE), name, patch)).await)?;
        }
        let within = Duration::from_secs(30);
        let event = told("watch", watch.next(within).await)?;
        let is_it = matches!(&event, Some(Event::Modified(map)) if map["data"]["word"] == "y");
        claim("a watch tells of what it is to look at, and of nothing else", is_it)?;
        let delete = api::delete(maps, Some(PLACE), "m7", None, Propagation::Background);
        told("delete", self.kube.delete(&delete).await)?;
        let event = told("watch", watch.next(within).await)?;
        claim("and of its end", matches!(event, Some(Event::Deleted(_))))?;
        let short = WatchFrom { lasts: Duration::from_secs(1), ..from };
        let mut watch = told("watch", self.kube.watch(maps, Some(PLACE), &short).await)?;
        let mut events = 0;
        while told("watch", watch.next(within).await)?.is_some() {
            events += 1;
        }
        claim("a watch begins where the list ended, and ends after its time", events >= 2)
    }

    async fn nodes(&self) -> Told {
        for name in ["n1", "n2", "forgotten"] {
            let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
            told("node", self.kube.send(&api::create(&Resource::NODES, None, node)).await)?;
        }
        let fresh = told("node", self.kube.send(&api::node("n1")).await)?;
        claim("a node that has said nothing is not ready", !fresh.ready.holds())?;
        for name in ["n1", "n2", "forgotten"] {
            let status = Call::<Value>::about(Method::Patch, &Resource::NODES, None, name, Some("status"));
            told("status", self.kube.send(&status.carrying(Content::MergePatch, ready_status())).await)?;
        }
        let leases = told("discover", self.kube.discover("coordination.k8s.io/v1", "Lease").await)?;
        let leases = leases.ok_or("leases are not served")?;
        until("nodes become ready, and are read as they are", || async {
            self.renew(&leases, 0).await?;
            let nodes = told("nodes", self.kube.list(&api::nodes()).await)?;
            let known = nodes.items.iter().all(|node| {
                node.kubelet == "v1.36.4" && node.addresses.len() == 1 && node.system_uuid.starts_with("ab12")
            });
            let tainted = nodes.items.iter().any(|node| !node.taints.is_empty());
            Ok(known && !tainted && nodes.items.iter().all(|node| node.ready.holds()))
        })
        .await?;
        let mut beats = 0;
        let forgotten = loop {
            beats += 1;
            self.renew(&leases, beats).await?;
            let node = told("node", self.kube.send(&api::node("forgotten")).await)?;
            if !node.ready.holds() || beats > LOOKS {
                break node;
            }
            tokio::time::sleep(PAUSE).await;
        };
        claim(
            "a node that nobody hears of is neither ready nor not",
            forgotten.ready.status == Truth::Unknown,
        )?;
        let kept = told("nodes", self.kube.list(&api::nodes()).await)?;
        let ready = kept.items.iter().filter(|node| node.ready.holds()).count();
        claim("nodes with a renewed lease stay ready", ready == 2)?;
        let mut other = forgotten.clone();
        other.uid = fresh.uid;
        let deleted = told("delete", self.kube.delete(&api::delete_node(&other)).await)?;
        claim("a node of another uid is not deleted", deleted == Deleted::Missing)?;
        let deleted = told("delete", self.kube.delete(&api::delete_node(&forgotten)).await)?;
        claim("the one that was seen is", deleted == Deleted::Going)?;
        let labels = [("visit".to_owned(), Some("yes".to_owned()))].into();
        let labelled = told("label", self.kube.send(&api::label("n1", &labels)).await)?;
        claim("a node is labelled", labelled.labels.get("visit").is_some_and(|it| it == "yes"))?;
        let cordoned = told("cordon", self.kube.send(&api::cordon("n2")).await)?;
        claim("a node is cordoned", cordoned.unschedulable)
    }

    /// Renews the leases of two nodes. What counts is that the time grows.
    async fn renew(&self, leases: &Resource, beat: usize) -> Told {
        let time = format!("2026-01-01T00:{:02}:{:02}.000000Z", beat / 60, beat % 60);
        for name in ["n1", "n2"] {
            let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
                "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": time}});
            let namespace = Some("kube-node-lease");
            match self.kube.send(&api::apply(leases, namespace, name, lease, OURS)).await {
                // The namespace is made by the server, a moment after it is ready.
                Err(error) if error.refusal() == Some(Kind::Missing) => {}
                applied => drop(told("lease", applied)?),
            }
        }
        Ok(())
    }

    async fn eviction(&self) -> Told {
        let leases = told("discover", self.kube.discover("coordination.k8s.io/v1", "Lease").await)?;
        let leases = &leases.ok_or("leases are not served")?;
        let beats = std::cell::Cell::new(LOOKS);
        let beat = async || {
            beats.set(beats.get() + 1);
            self.renew(leases, beats.get()).await
        };
        let labels = json!({"app": "web"});
        let web = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels},
                "spec": {"terminationGracePeriodSeconds": 0, "containers": [{"name": "web", "image": "none.example/web"}]}}}});
        let budget = |least: u8| {
            let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
                "spec": {"minAvailable": least, "selector": {"matchLabels": labels}}});
            api::apply(&Resource::BUDGETS, Some(PLACE), "web", budget, OURS)
        };
        told(
            "apply",
            self.kube.send(&api::apply(&Resource::DEPLOYMENTS, Some(PLACE), "web", web, OURS)).await,
        )?;
        told("budget", self.kube.send(&budget(2)).await)?;
        until("its pods are scheduled where they may", || async {
            beat().await?;
            Ok(self.on("n1").await?.len() == 2 && self.on("n2").await?.is_empty())
        })
        .await?;
        let deployment = told("deployment", self.kube.send(&api::deployment(PLACE, "web")).await)?;
        claim("a deployment says what it waits for", deployment.unready().is_some())?;
        until("it is ready when its pods are", || async {
            beat().await?;
            self.pods_are_well().await?;
            let deployment = told("deployment", self.kube.send(&api::deployment(PLACE, "web")).await)?;
            Ok(deployment.unready().is_none() && self.allowed().await? == Some(0))
        })
        .await?;

        told("uncordon", self.kube.send(&api::uncordon("n2")).await)?;
        told("cordon", self.kube.send(&api::cordon("n1")).await)?;
        let pods = self.on("n1").await?;
        let blocked = told("evict", self.kube.evict(&pods[0]).await)?;
        let Evicted::Blocked { why, .. } = &blocked else { return Err(format!("not blocked: {blocked:?}")) };
        claim("a budget blocks an eviction, and is named", why.contains("web"))?;
        told("budget", self.kube.send(&budget(1)).await)?;
        until("a smaller budget allows one", || async {
            beat().await?;
            Ok(self.allowed().await? == Some(1))
        })
        .await?;
        claim("a pod is evicted", told("evict", self.kube.evict(&pods[0]).await)? == Evicted::Going)?;
        claim("and not twice", told("evict", self.kube.evict(&pods[0]).await)? == Evicted::Missing)?;
        let second = told("evict", self.kube.evict(&pods[1]).await)?;
        claim("the next one has to wait", matches!(second, Evicted::Blocked { .. }))?;
        until("until another is well elsewhere", || async {
            beat().await?;
            self.pods_are_well().await?;
            Ok(told("evict", self.kube.evict(&pods[1]).await)? == Evicted::Going)
        })
        .await?;
        until("then the node is empty, and the deployment whole", || async {
            beat().await?;
            self.pods_are_well().await?;
            let deployment = told("deployment", self.kube.send(&api::deployment(PLACE, "web")).await)?;
            Ok(self.on("n1").await?.is_empty() && deployment.unready().is_none())
        })
        .await
    }

    /// The pods of a node that must leave it.
    async fn on(&self, node: &str) -> Told<Vec<Pod>> {
        let pods = told("pods", self.kube.list(&api::pods_on(node)).await)?.items;
        Ok(pods.into_iter().filter(Pod::must_leave).collect())
    }

    /// Says of all pods that have a node what a kubelet says of those that are well.
    async fn pods_are_well(&self) -> Told {
        for pod in told("pods", self.kube.list(&api::pods(Some(PLACE))).await)?.items {
            if pod.node.is_some() && !pod.ready.holds() && !pod.terminating {
                let conditions = ["Ready", "ContainersReady"].map(|it| json!({"type": it, "status": "True"}));
                let status = json!({"status": {"phase": "Running", "conditions": conditions}});
                let name = &pod.name.name;
                let call =
                    Call::<Value>::about(Method::Patch, &Resource::PODS, Some(PLACE), name, Some("status"));
                told("pod", self.kube.find(&call.carrying(Content::MergePatch, status)).await)?;
            }
        }
        Ok(())
    }

    /// How many evictions the budget allows.
    async fn allowed(&self) -> Told<Option<i64>> {
        let budget = told("budget", self.kube.send(&api::get(&Resource::BUDGETS, Some(PLACE), "web")).await)?;
        let seen = budget.pointer("/status/observedGeneration") == budget.pointer("/metadata/generation");
        Ok(budget.pointer("/status/disruptionsAllowed").and_then(Value::as_i64).filter(|_| seen))
    }

    async fn signing(&self, asked: &[u8]) -> Told {
        let request = String::from_utf8_lossy(asked).trim().to_owned();
        let object = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
            "metadata": {"name": "asker"}, "spec": {"request": request, "usages": ["client auth"],
                "signerName": "kubernetes.io/kube-apiserver-client"}});
        told("request", self.kube.send(&api::create(&Resource::SIGNING_REQUESTS, None, object)).await)?;
        let find = async || -> Told<api::SigningRequest> {
            let all = told("requests", self.kube.list(&api::signing_requests()).await)?.items;
            all.into_iter().find(|request| request.name == "asker").ok_or_else(|| "no request".to_owned())
        };
        let pending = find().await?;
        claim("a request waits for somebody to decide", pending.is_pending() && !pending.issued)?;
        told("approve", self.kube.send(&api::approve(&pending, "visited")).await)?;
        let again = self.kube.send(&api::approve(&pending, "visited")).await.map_err(|error| error.refusal());
        claim("an approval is of what was seen", again == Err(Some(Kind::Conflict)))?;
        until("an approved request is signed", || async { Ok(find().await?.issued) }).await
    }
}
