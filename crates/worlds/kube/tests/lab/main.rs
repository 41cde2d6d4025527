//! The client against a cluster of the lab, over real TLS on loopback.

mod cluster;

use std::{collections::BTreeMap, time::Duration};

use cluster::Cluster;
use ichor_kube::{
    Client, Deleted, Error, Event, Evicted, Kind, Resource, WatchFrom,
    api::{self, ApplyOptions, Propagation},
};
use ichor_net::HttpClient;
use ichor_port::TransportError;
use ichor_sim::faults::FaultPlan;
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(20);

const fn as_manager(manager: &str, force: bool) -> ApplyOptions<'_> {
    ApplyOptions { manager, force, dry_run: false }
}

fn deployment(replicas: u32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "web:1"}]}}},
    })
}

/// Waits until an object is as it should be, by watching its kind.
async fn wait(client: &Client<HttpClient>, resource: &Resource, holds: impl Fn(&Value) -> bool) {
    let listed = client.list(&api::list(resource, None)).await.expect("a list");
    if listed.items.iter().any(&holds) {
        return;
    }
    let from = WatchFrom::version(listed.resource_version());
    let mut watch = client.watch(resource, None, &from).await.expect("a watch");
    while let Some(event) = watch.next(SOON).await.expect("an event") {
        if matches!(&event, Event::Added(object) | Event::Modified(object) if holds(object)) {
            return;
        }
    }
    panic!("waited in vain");
}

async fn deploy(client: &Client<HttpClient>, replicas: u32) {
    let call = api::apply(
        &Resource::DEPLOYMENTS,
        Some("default"),
        "web",
        deployment(replicas),
        as_manager("ichor", false),
    );
    client.send(&call).await.expect("a deployment");
    wait(client, &Resource::DEPLOYMENTS, |object| {
        object["metadata"]["name"] == "web" && object["status"]["availableReplicas"] == replicas
    })
    .await;
}

#[tokio::test]
async fn nodes_are_listed_with_a_certificate_of_the_clusters_ca() {
    let cluster = Cluster::up().await;
    let client = cluster.admin();
    assert_eq!(client.send(&api::version()).await.expect("a version").git_version, "v1.36.3");
    assert!(client.probe(api::READY).await.expect("an answer").well);
    assert!(client.probe(api::ALIVE).await.expect("an answer").well);
    wait(&client, &Resource::NODES, |node| node["metadata"]["name"] == "m22").await;
    let nodes = client.list(&api::nodes()).await.expect("nodes").items;
    let control_planes: Vec<&str> =
        nodes.iter().filter(|node| node.is_control_plane()).map(|node| node.name.as_str()).collect();
    assert_eq!((nodes.len(), control_planes.as_slice()), (3, ["m11"].as_slice()));
    let node = client.send(&api::node("m21")).await.expect("a node");
    assert_eq!(node.addresses, ["10.0.0.21".parse::<std::net::IpAddr>().expect("an address")]);
    assert!(
        node.kubelet == "v1.36.3" && node.os_image == "Talos (v1.13.9)" && !node.uid.is_empty(),
        "{node:?}"
    );
    assert_eq!(client.find(&api::node("nobody")).await.expect("an answer"), None);
}

#[tokio::test]
async fn strangers_are_refused_on_both_sides() {
    let cluster = Cluster::up().await;
    let (ours, theirs) = (&cluster.bundle.kubernetes, &cluster.other.kubernetes);
    let error = cluster.client(theirs, Some(ours)).send(&api::version()).await.expect_err("another CA");
    assert!(matches!(error, Error::Transport(TransportError::NotTrusted(_))), "{error}");
    assert!(!error.may_have_happened());
    let error = cluster.client_at("10.0.0.99", ours, Some(ours)).send(&api::version()).await;
    let error = error.expect_err("its certificate has another address");
    assert!(matches!(error, Error::Transport(TransportError::NotTrusted(_))), "{error}");
    let error = cluster.client(ours, Some(theirs)).list(&api::nodes()).await.expect_err("unknown to it");
    assert!(
        matches!(error, Error::Transport(_)) || error.refusal() == Some(Kind::Unauthenticated),
        "{error}"
    );
    let error = cluster.client(ours, None).list(&api::nodes()).await.expect_err("anonymous");
    assert!(matches!(error.refusal(), Some(Kind::Forbidden | Kind::Unauthenticated)), "{error}");
}

#[tokio::test]
async fn applying_creates_meets_other_owners_and_takes_over() {
    let cluster = Cluster::up().await;
    let client = cluster.admin();
    let map = |value: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"key": value}});
    let apply =
        |value: &str, options| api::apply(&Resource::CONFIG_MAPS, Some("default"), "m", map(value), options);
    let dry = ApplyOptions { dry_run: true, ..as_manager("ichor", false) };
    client.send(&apply("1", dry)).await.expect("a rehearsal");
    let get = api::get(&Resource::CONFIG_MAPS, Some("default"), "m");
    assert_eq!(client.find(&get).await.expect("an answer"), None, "nothing came of it");

    client.send(&apply("1", as_manager("helm", false))).await.expect("created");
    let error = client.send(&apply("2", as_manager("ichor", false))).await.expect_err("helm has it");
    let Error::Refused(refusal) = &error else { panic!("{error}") };
    assert_eq!((refusal.kind, error.may_have_happened()), (Kind::FieldsOwned, false));
    let conflicts: Vec<String> = refusal.conflicts().iter().map(ToString::to_string).collect();
    assert_eq!(conflicts, ["`.data.key` belongs to `helm`"]);
    let taken = client.send(&apply("2", as_manager("ichor", true))).await.expect("taken");
    assert_eq!(taken["data"]["key"], "2");

    let delete =
        |uid| api::delete(&Resource::CONFIG_MAPS, Some("default"), "m", uid, Propagation::Background);
    assert_eq!(client.delete(&delete(Some("another"))).await.expect("an answer"), Deleted::Missing);
    assert!(client.find(&get).await.expect("an answer").is_some(), "another one was meant");
    assert_eq!(client.delete(&delete(taken["metadata"]["uid"].as_str())).await, Ok(Deleted::Going));
    assert_eq!(client.delete(&delete(None)).await, Ok(Deleted::Missing));
}

#[tokio::test]
async fn a_node_is_cordoned_emptied_and_deleted() {
    let cluster = Cluster::up().await;
    let client = cluster.admin();
    wait(&client, &Resource::NODES, |node| node["metadata"]["name"] == "m22").await;
    for name in ["m21", "m22"] {
        wait(&client, &Resource::NODES, |node| {
            let ready = ichor_kube::condition(node, "Ready").is_some_and(|ready| ready.holds());
            node["metadata"]["name"] == name && ready
        })
        .await;
    }
    deploy(&client, 1).await;
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}});
    client.send(&api::create(&Resource::BUDGETS, Some("default"), budget)).await.expect("a budget");
    wait(&client, &Resource::BUDGETS, |budget| budget["status"]["currentHealthy"] == 1).await;

    let pods = client.list(&api::pods(Some("default"))).await.expect("pods").items;
    let pod = pods.first().expect("one pod").clone();
    let name = pod.node.clone().expect("a node");
    assert!(client.send(&api::cordon(&name)).await.expect("cordoned").unschedulable);
    let there = client.list(&api::pods_on(&name)).await.expect("pods").items;
    assert!(there.iter().any(|there| there.must_leave() && there.uid == pod.uid));
    let stays = there.iter().filter(|pod| !pod.must_leave()).filter_map(|pod| pod.controller.as_ref());
    assert!(stays.into_iter().any(|(kind, _)| kind == "DaemonSet"), "what belongs to the node stays");

    let blocked = client.evict(&pod).await.expect("an answer");
    assert!(
        matches!(&blocked, Evicted::Blocked { why, .. } if why.contains("web needs 1 healthy pods")),
        "{blocked:?}"
    );
    deploy(&client, 2).await;
    wait(&client, &Resource::BUDGETS, |budget| budget["status"]["disruptionsAllowed"] == 1).await;
    assert_eq!(client.evict(&pod).await, Ok(Evicted::Going));
    wait(&client, &Resource::DEPLOYMENTS, |object| object["status"]["availableReplicas"] == 2).await;

    let labels = BTreeMap::from([("ichor.dev/leaving".to_owned(), Some("true".to_owned()))]);
    assert_eq!(
        client.send(&api::label(&name, &labels)).await.expect("labelled").labels["ichor.dev/leaving"],
        "true"
    );
    let uncordoned = client.send(&api::uncordon(&name)).await.expect("uncordoned");
    assert!(!uncordoned.unschedulable);
    let another = api::Node { uid: "another".into(), ..uncordoned.clone() };
    assert_eq!(client.delete(&api::delete_node(&another)).await, Ok(Deleted::Missing));
    assert_eq!(client.delete(&api::delete_node(&uncordoned)).await, Ok(Deleted::Going));
    let nobody = api::Node { name: String::new(), ..uncordoned };
    let error = client.delete(&api::delete_node(&nobody)).await.expect_err("about nobody");
    assert!(matches!(error, Error::Nameless(_)), "{error}");
    assert!(client.list(&api::nodes()).await.expect("nodes").items.len() >= 2, "not all of them");
}

#[tokio::test]
async fn kinds_are_discovered_and_workloads_judged() {
    let cluster = Cluster::up().await;
    let client = cluster.admin();
    assert_eq!(client.discover("apps/v1", "Deployment").await, Ok(Some(Resource::DEPLOYMENTS)));
    assert_eq!(client.discover("v1", "Node").await, Ok(Some(Resource::NODES)));
    assert_eq!(client.discover("v1", "Gateway").await, Ok(None));
    assert_eq!(client.discover("gateway.networking.k8s.io/v1", "Gateway").await, Ok(None));
    let versions = client.api_versions().await.expect("versions");
    assert!(
        ["v1", "apps/v1", "policy/v1"].iter().all(|version| versions.iter().any(|it| it == version)),
        "{versions:?}"
    );
    wait(&client, &Resource::DAEMON_SETS, |set| {
        set["status"]["desiredNumberScheduled"].as_i64() >= Some(1)
            && set["status"]["desiredNumberScheduled"] == set["status"]["numberAvailable"]
    })
    .await;
    let sets = client.list(&api::daemon_sets(Some("kube-system"))).await.expect("daemon sets").items;
    assert!(sets.iter().any(|set| set.unready().is_none() && set.wanted > 0), "{sets:?}");
    assert!(client.list(&api::volumes()).await.expect("volumes").items.is_empty());
    client.list(&api::stateful_sets(None)).await.expect("stateful sets");
}

#[tokio::test]
async fn a_request_for_a_certificate_is_approved() {
    let cluster = Cluster::up().await;
    let client = cluster.admin();
    let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "ours"},
        "spec": {"request": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K", "signerName": "example.org/ours",
            "usages": ["client auth"]}});
    client.send(&api::create(&Resource::SIGNING_REQUESTS, None, request)).await.expect("a request");
    let listed = client.list(&api::signing_requests()).await.expect("requests").items;
    let ours = listed.iter().find(|request| request.name == "ours").expect("ours");
    assert!(ours.is_pending() && ours.user == "admin", "{ours:?}");
    let approved = client.send(&api::approve(ours, "a test")).await.expect("approved");
    assert!(approved.approved && !approved.is_pending());
    let error = client.send(&api::approve(ours, "as it was")).await.expect_err("it has changed since");
    assert_eq!(error.refusal(), Some(Kind::Conflict), "{error}");
}

#[tokio::test]
async fn long_lists_come_in_pages_and_old_versions_are_gone() {
    let cluster = Cluster::up().await;
    let client = cluster.admin();
    for number in 0..5 {
        let map =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("p{number}")}});
        client.send(&api::create(&Resource::CONFIG_MAPS, Some("default"), map)).await.expect("created");
    }
    let first = api::list(&Resource::CONFIG_MAPS, Some("default")).with("limit", 2);
    let page = client.send(&first).await.expect("a page");
    assert_eq!(page.items.len(), 2);
    let next = page.next().expect("more").to_owned();
    let page = client.send(&first.clone().with("continue", next)).await.expect("a page");
    assert_eq!(page.items[0]["metadata"]["name"], "p1", "after the cluster's own and p0");
    let all = client.list(&api::list(&Resource::CONFIG_MAPS, Some("default"))).await.expect("all");
    assert!(all.items.len() >= 5);

    let mut watch = client
        .watch(
            &Resource::CONFIG_MAPS,
            Some("default"),
            &WatchFrom { name: Some("p3"), ..WatchFrom::version(all.resource_version()) },
        )
        .await
        .expect("a watch");
    for name in ["p2", "p3"] {
        let gone = api::delete(&Resource::CONFIG_MAPS, Some("default"), name, None, Propagation::Background);
        client.delete(&gone).await.expect("deleted");
    }
    let event = watch.next(SOON).await.expect("an event").expect("one");
    assert!(matches!(&event, Event::Deleted(object) if object["metadata"]["name"] == "p3"), "{event:?}");
    assert!(!event.version().is_empty());

    let short = WatchFrom { lasts: Duration::from_secs(1), ..WatchFrom::version(event.version()) };
    let mut watch = client.watch(&Resource::SECRETS, Some("nowhere"), &short).await.expect("a watch");
    assert_eq!(watch.next(SOON).await, Ok(None), "it ends by itself");
    let wrong =
        client.watch(&Resource::SECRETS, None, &WatchFrom::version("x")).await.expect_err("no version");
    assert_eq!(wrong.refusal(), Some(Kind::Invalid), "{wrong}");
}

#[tokio::test]
async fn mishaps_are_told_apart() {
    let cluster = Cluster::up().await;
    let client = cluster.admin();
    let plan: FaultPlan = serde_json::from_str(
        r#"[{"server": "kube", "method": "GET", "path": "/version", "fault": {"close": "after"}},
            {"server": "kube", "method": "GET", "path": "/version", "occurrence": 2, "fault": {"cut": {"bytes": 9}}},
            {"server": "kube", "method": "GET", "path": "/version", "occurrence": 3,
             "fault": {"status": {"code": 503, "reason": "Service Unavailable", "when": "before"}}},
            {"server": "kube", "method": "GET", "path": "/version", "occurrence": 4, "fault": {"payload": "<html>"}},
            {"server": "kube", "method": "GET", "path": "/version", "occurrence": 5,
             "fault": {"status": {"code": 429, "when": "before"}}},
            {"server": "kube", "method": "GET", "path": "/version", "occurrence": 6, "fault": {"hang": "before"}}]"#,
    )
    .expect("a plan");
    cluster.hall.visit(|lab| lab.ground.faults = plan);
    for what in ["closed", "cut", "broken", "a page"] {
        let error = client.send(&api::version()).await.expect_err(what);
        assert!(error.may_have_happened(), "{what}: {error}");
    }
    let busy = client.send(&api::version()).await.expect_err("busy");
    assert_eq!((busy.refusal(), busy.may_have_happened()), (Some(Kind::Busy), false), "{busy}");
    let hasty = cluster.admin().within(Duration::from_millis(200));
    let silent = hasty.send(&api::version()).await.expect_err("silent");
    assert!(matches!(silent, Error::Transport(TransportError::Lost(_))), "{silent}");
    client.send(&api::version()).await.expect("the plan is used up");
}
