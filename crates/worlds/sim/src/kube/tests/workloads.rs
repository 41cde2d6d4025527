use super::*;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn budget(name: &str, least: u32) -> Value {
    json!({"metadata": {"name": name}, "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": name}}}})
}

#[test]
fn a_deployment_becomes_available_over_time() {
    let mut world = World::running(Profile::Wan);
    world.pass(Duration::from_mins(1));
    world.create(DEPLOYMENTS, &deployment("web", 3, "web:1"));
    world.pass(Duration::from_secs(1));
    let early = world.get(&format!("{DEPLOYMENTS}/web"));
    assert_eq!(
        (&early["status"]["replicas"], &early["status"]["unavailableReplicas"]),
        (&json!(3), &json!(3))
    );
    assert_eq!(early["status"]["observedGeneration"], 1);
    world.pass(Duration::from_secs(10));
    let ready = world.get(&format!("{DEPLOYMENTS}/web"));
    assert_eq!(
        (&ready["status"]["readyReplicas"], &ready["status"]["updatedReplicas"]),
        (&json!(3), &json!(3))
    );
    let nodes: std::collections::BTreeSet<String> = world.get(PODS)["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pod| pod["spec"]["nodeName"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(nodes, ["worker-1".to_owned(), "worker-2".to_owned()].into(), "control planes are tainted");
}

#[test]
fn a_new_image_rolls_out_without_a_gap() {
    let mut world = World::running(Profile::Lab);
    world.pass(Duration::from_secs(3));
    world.create(DEPLOYMENTS, &deployment("web", 4, "web:1"));
    world.pass(Duration::from_secs(2));
    let change = json!({"spec": {"template": {"spec": {"containers": [{"name": "web", "image": "web:2"}]}}}});
    world.patch(&format!("{DEPLOYMENTS}/web"), "application/strategic-merge-patch+json", &change);
    let mut least = 4;
    for _ in 0..100 {
        world.pass(Duration::from_millis(100));
        let status = world.get(&format!("{DEPLOYMENTS}/web"))["status"].clone();
        least = least.min(status["readyReplicas"].as_i64().unwrap_or(0));
    }
    assert!(least >= 3, "no more than a quarter was missing, but only {least} were ready");
    let pods = world.get(PODS);
    let images: Vec<&Value> =
        pods["items"].as_array().unwrap().iter().map(|pod| &pod["spec"]["containers"][0]["image"]).collect();
    assert_eq!(images, [&json!("web:2"); 4]);
}

#[test]
fn eviction_respects_disruption_budgets() {
    let mut world = World::running(Profile::Lab);
    world.pass(Duration::from_secs(3));
    world.create(DEPLOYMENTS, &deployment("web", 2, "web:1"));
    world.create("/apis/policy/v1/namespaces/default/poddisruptionbudgets", &budget("web", 1));
    world.pass(Duration::from_secs(2));
    let pods = world.names(PODS);
    let evict = |world: &mut World, pod: &str| {
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "default"}});
        world.call("POST", &format!("{PODS}/{pod}/eviction"), &body)
    };
    let (status, answer) = evict(&mut world, &pods[0]);
    assert_eq!((status, &answer["status"]), (201, &json!("Success")));
    let (status, answer) = evict(&mut world, &pods[1]);
    assert_eq!((status, &answer["reason"]), (429, &json!("TooManyRequests")));
    assert_eq!(answer["message"], "Cannot evict pod as it would violate the pod's disruption budget.");
    assert_eq!(
        answer["details"]["causes"],
        json!([{"reason": "DisruptionBudget", "message": "The disruption budget web needs 1 healthy pods and has 1 currently"}])
    );
    world.pass(Duration::from_secs(2));
    assert_eq!(evict(&mut world, &pods[1]).0, 201, "the first one has been replaced");
    world.create(
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        &json!({
            "metadata": {"name": "second"}, "spec": {"minAvailable": 0, "selector": {}},
        }),
    );
    world.pass(Duration::from_secs(2));
    let pod = world.names(PODS).remove(0);
    let (status, answer) = evict(&mut world, &pod);
    assert_eq!(status, 500);
    assert!(
        answer["message"].as_str().unwrap().starts_with("This pod has more than one PodDisruptionBudget")
    );
}

#[test]
fn cordoned_nodes_get_no_pods() {
    let mut world = World::running(Profile::Instant);
    world.patch(
        "/api/v1/nodes/worker-1",
        "application/strategic-merge-patch+json",
        &json!({"spec": {"unschedulable": true}}),
    );
    world.create(DEPLOYMENTS, &deployment("web", 4, "web:1"));
    world.pass(Duration::from_millis(1));
    let pods = world.get(PODS);
    assert!(pods["items"].as_array().unwrap().iter().all(|pod| pod["spec"]["nodeName"] == "worker-2"));
    let node = world.get("/api/v1/nodes/worker-1");
    assert_eq!(node["spec"]["taints"][0]["key"], "node.kubernetes.io/unschedulable");
    world.patch(
        "/api/v1/nodes/worker-1",
        "application/strategic-merge-patch+json",
        &json!({"spec": {"unschedulable": null}}),
    );
    world.pass(Duration::from_millis(1));
    assert!(world.get("/api/v1/nodes/worker-1")["spec"].get("taints").is_none());
}

#[test]
fn what_fits_nowhere_says_why() {
    let mut world = World::running(Profile::Instant);
    let mut big = deployment("big", 1, "big:1");
    big["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "64"}});
    world.create(DEPLOYMENTS, &big);
    world.pass(Duration::from_millis(1));
    let pods = world.get(PODS);
    let condition = &pods["items"][0]["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("PodScheduled"), &json!("Unschedulable")));
    assert_eq!(
        condition["message"],
        "0/3 nodes are available: 2 Insufficient cpu, 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }."
    );
}

#[test]
fn deleting_a_deployment_deletes_its_pods() {
    let mut world = World::running(Profile::Lab);
    world.pass(Duration::from_secs(3));
    for policy in ["Background", "Foreground"] {
        world.create(DEPLOYMENTS, &deployment("web", 2, "web:1"));
        world.pass(Duration::from_secs(2));
        assert_eq!(world.names(PODS).len(), 2);
        world.call("DELETE", &format!("{DEPLOYMENTS}/web"), &json!({"propagationPolicy": policy}));
        world.pass(Duration::from_secs(2));
        assert_eq!(world.names(PODS), [""; 0], "{policy}");
        assert_eq!(world.call("GET", &format!("{DEPLOYMENTS}/web"), &json!(null)).0, 404, "{policy}");
    }
    world.create(DEPLOYMENTS, &deployment("web", 2, "web:1"));
    world.pass(Duration::from_secs(2));
    world.call("DELETE", &format!("{DEPLOYMENTS}/web"), &json!({"propagationPolicy": "Orphan"}));
    world.pass(Duration::from_secs(2));
    assert_eq!(world.names(PODS).len(), 2, "orphans stay");
}

#[test]
fn stateful_sets_start_in_order_and_claim_volumes() {
    let mut world = World::running(Profile::Wan);
    world.pass(Duration::from_mins(1));
    world.create("/apis/storage.k8s.io/v1/storageclasses", &json!({
        "metadata": {"name": "fast"}, "provisioner": "csi.example.com", "volumeBindingMode": "WaitForFirstConsumer",
    }));
    world.create("/apis/apps/v1/namespaces/default/statefulsets", &json!({
        "metadata": {"name": "db"},
        "spec": {"replicas": 2, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
            "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "db", "image": "db:1"}]}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"storageClassName": "fast",
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]},
    }));
    world.pass(Duration::from_secs(5));
    assert_eq!(world.names(PODS), ["db-0"]);
    world.pass(Duration::from_mins(1));
    assert_eq!(world.names(PODS), ["db-0", "db-1"]);
    let claims = world.get("/api/v1/namespaces/default/persistentvolumeclaims");
    assert!(claims["items"].as_array().unwrap().iter().all(|claim| claim["status"]["phase"] == "Bound"));
    let set = world.get("/apis/apps/v1/namespaces/default/statefulsets/db");
    assert_eq!(set["status"]["readyReplicas"], 2);
}

#[test]
fn jobs_end() {
    let mut world = World::running(Profile::Lab);
    world.pass(Duration::from_secs(3));
    world.create("/apis/batch/v1/namespaces/default/jobs", &json!({
        "metadata": {"name": "once"}, "spec": {"completions": 3, "template": {"spec": {"restartPolicy": "Never",
            "containers": [{"name": "once", "image": "once:1"}]}}},
    }));
    world.pass(Duration::from_secs(10));
    let job = world.get("/apis/batch/v1/namespaces/default/jobs/once");
    assert_eq!((&job["status"]["succeeded"], &job["status"]["active"]), (&json!(3), &json!(0)));
    assert!(
        job["status"]["conditions"]
            .as_array()
            .unwrap()
            .iter()
            .any(|condition| condition["type"] == "Complete")
    );
}

#[test]
fn services_list_their_pods() {
    let mut world = World::running(Profile::Instant);
    world.create(DEPLOYMENTS, &deployment("web", 2, "web:1"));
    let service = world.create(
        "/api/v1/namespaces/default/services",
        &json!({
            "metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
        }),
    );
    assert!(service["spec"]["clusterIP"].as_str().unwrap().starts_with("10."));
    world.pass(Duration::from_millis(1));
    let endpoints = world.get("/api/v1/namespaces/default/endpoints/web");
    assert_eq!(endpoints["subsets"][0]["addresses"].as_array().unwrap().len(), 2);
    let slices = world.get("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name%3Dweb");
    assert_eq!(slices["items"][0]["endpoints"].as_array().unwrap().len(), 2);
    let api = world.get("/api/v1/namespaces/default/endpoints/kubernetes");
    assert_eq!(api["subsets"][0]["addresses"][0]["ip"], "10.0.0.11");
}
