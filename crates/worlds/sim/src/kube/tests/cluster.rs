use super::*;

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn ready(world: &mut World, node: &str) -> String {
    let node = world.get(&format!("/api/v1/nodes/{node}"));
    let conditions = node["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|condition| condition["type"] == "Ready").unwrap()["status"]
        .as_str()
        .unwrap()
        .into()
}

fn taints(world: &mut World, node: &str) -> Vec<String> {
    let node = world.get(&format!("/api/v1/nodes/{node}"));
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    taints
        .iter()
        .map(|taint| format!("{}:{}", taint["key"].as_str().unwrap(), taint["effect"].as_str().unwrap()))
        .collect()
}

#[test]
fn a_node_is_ready_when_its_network_is() {
    let mut world = World::empty(Profile::Wan);
    let mut without = facts("cp-1", true, 0);
    without.cni_included = false;
    world.node_up(without);
    world.pass(Duration::from_mins(5));
    assert_eq!(ready(&mut world, "cp-1"), "False");
    assert!(taints(&mut world, "cp-1").contains(&"node.kubernetes.io/not-ready:NoSchedule".to_owned()));
    let dns = world.get("/apis/apps/v1/namespaces/kube-system/deployments/coredns");
    assert_eq!(dns["status"]["readyReplicas"], json!(null), "nothing runs without a network");
    world.create("/apis/apps/v1/namespaces/kube-system/daemonsets", &json!({
        "metadata": {"name": "cilium"},
        "spec": {"selector": {"matchLabels": {"k8s-app": "cilium"}}, "template": {"metadata": {"labels": {"k8s-app": "cilium"}},
            "spec": {"hostNetwork": true, "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "agent", "image": "quay.io/cilium/cilium:v1.20.1"}]}}},
    }));
    world.pass(Duration::from_secs(9));
    assert_eq!(ready(&mut world, "cp-1"), "True");
    assert_eq!(taints(&mut world, "cp-1"), ["node-role.kubernetes.io/control-plane:NoSchedule"]);
    world.pass(Duration::from_secs(20));
    let dns = world.get("/apis/apps/v1/namespaces/kube-system/deployments/coredns");
    assert_eq!(dns["status"]["readyReplicas"], 2);
}

#[test]
fn a_node_waits_for_its_cloud_controller() {
    let mut world = World::empty(Profile::Lab);
    let mut external = facts("cp-1", true, 0);
    external.external_cloud_provider = true;
    external.taints.clear();
    world.node_up(external);
    world.pass(Duration::from_secs(5));
    let uninitialized = "node.cloudprovider.kubernetes.io/uninitialized:NoSchedule".to_owned();
    assert_eq!(taints(&mut world, "cp-1"), [uninitialized]);
    let mut manager =
        deployment("proxmox-cloud-controller-manager", 1, "ghcr.io/x/proxmox-cloud-controller-manager:v1");
    manager["spec"]["template"]["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
    world.create("/apis/apps/v1/namespaces/kube-system/deployments", &manager);
    world.pass(Duration::from_secs(3));
    assert_eq!(taints(&mut world, "cp-1"), [""; 0]);
}

#[test]
fn a_silent_node_is_doubted_then_emptied() {
    let mut world = World::running(Profile::Wan);
    world.pass(Duration::from_mins(1));
    world.create("/apis/apps/v1/namespaces/default/deployments", &deployment("web", 2, "web:1"));
    world.pass(Duration::from_mins(1));
    world.node_down("worker-1");
    world.pass(Duration::from_secs(30));
    assert_eq!(ready(&mut world, "worker-1"), "True", "within its grace");
    world.pass(Duration::from_secs(15));
    assert_eq!(ready(&mut world, "worker-1"), "Unknown");
    assert!(taints(&mut world, "worker-1").contains(&"node.kubernetes.io/unreachable:NoExecute".to_owned()));
    world.pass(Duration::from_secs(320));
    let pods = world.get("/api/v1/namespaces/default/pods");
    let pods = pods["items"].as_array().unwrap();
    let stuck = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_string()).count();
    let well = pods.iter().filter(|pod| pod["spec"]["nodeName"] == "worker-2").count();
    assert_eq!((stuck, well), (1, 2), "the lost pod cannot end, and another took its place");
    world.node_up(facts("worker-1", false, 1));
    world.pass(Duration::from_secs(30));
    assert_eq!(ready(&mut world, "worker-1"), "True");
    assert_eq!(world.names("/api/v1/namespaces/default/pods").len(), 2);
}

#[test]
fn control_planes_show_their_static_pods() {
    let mut world = World::running(Profile::Instant);
    let names = world.names("/api/v1/namespaces/kube-system/pods?labelSelector=tier%3Dcontrol-plane");
    assert_eq!(names, ["kube-apiserver-cp-1", "kube-controller-manager-cp-1", "kube-scheduler-cp-1"]);
    world.call("DELETE", "/api/v1/nodes/cp-1", &json!(null));
    world.pass(Duration::from_millis(1));
    assert_eq!(
        world.names("/api/v1/namespaces/kube-system/pods?labelSelector=tier%3Dcontrol-plane"),
        [""; 0]
    );
}

#[test]
fn a_snapshot_brings_a_cluster_back() {
    let mut world = World::running(Profile::Instant);
    world.create("/api/v1/namespaces/default/configmaps", &config_map("kept", &json!({"a": "b"})));
    let snapshot = world.lab.clusters.export("c").unwrap();
    world.create("/api/v1/namespaces/default/configmaps", &config_map("lost", &json!({})));
    world.lab.ground.send(Signal::ClusterBorn {
        cluster: "c".into(),
        snapshot: Some(snapshot),
        ca_pem: CA.into(),
    });
    world.settle();
    let names = world.names("/api/v1/namespaces/default/configmaps");
    assert!(names.contains(&"kept".to_owned()) && !names.contains(&"lost".to_owned()), "{names:?}");
    assert_eq!(world.names("/api/v1/nodes").len(), 3);
}

#[test]
fn the_same_calls_give_the_same_cluster() {
    let run = || {
        let mut world = World::running(Profile::Lab);
        world.create("/apis/apps/v1/namespaces/default/deployments", &deployment("web", 3, "web:1"));
        world.pass(Duration::from_secs(5));
        serde_json::to_string(&world.lab).unwrap()
    };
    assert_eq!(run(), run());
}

#[test]
fn a_lab_goes_on_after_saving_and_loading() {
    let mut world = World::running(Profile::Lab);
    world.create("/apis/apps/v1/namespaces/default/deployments", &deployment("web", 3, "web:1"));
    world.pass(Duration::from_millis(200));
    let saved = serde_json::to_string(&world.lab).unwrap();
    let mut loaded =
        World { lab: serde_json::from_str(&saved).unwrap(), certificate: world.certificate.clone() };
    assert_eq!(loaded.lab, world.lab);
    world.pass(Duration::from_secs(5));
    loaded.pass(Duration::from_secs(5));
    assert_eq!(loaded.lab, world.lab);
    assert_eq!(loaded.get("/apis/apps/v1/namespaces/default/deployments/web")["status"]["readyReplicas"], 3);
}

#[test]
fn kubelets_get_their_certificates_approved() {
    let mut world = World::running(Profile::Instant);
    let request = |name: &str, signer: &str| json!({"metadata": {"name": name}, "spec": {"request": "eA==", "signerName": signer, "usages": ["client auth"]}});
    world.create(REQUESTS, &request("mine", "kubernetes.io/kube-apiserver-client"));
    world.certificate = Some(der(include_str!("kubelet.pem")));
    let made = world.create(REQUESTS, &request("node", "kubernetes.io/kube-apiserver-client-kubelet"));
    assert_eq!(made["spec"]["username"], "system:node:worker-1");
    world.pass(Duration::from_millis(1));
    let approved = |world: &mut World, name: &str| {
        let request = world.get(&format!("{REQUESTS}/{name}"));
        request["status"]["conditions"]
            .as_array()
            .is_some_and(|all| all.iter().any(|one| one["type"] == "Approved"))
    };
    assert!(approved(&mut world, "node"));
    assert!(!approved(&mut world, "mine"));
    world.certificate = Some(der(ADMIN));
    let mut mine = world.get(&format!("{REQUESTS}/mine"));
    mine["status"]["conditions"] = json!([{"type": "Approved", "status": "True", "reason": "ByHand"}]);
    assert_eq!(world.call("PUT", &format!("{REQUESTS}/mine/approval"), &mine).0, 200);
    assert!(approved(&mut world, "mine"));
}

#[test]
fn where_no_cluster_is_nobody_answers() {
    let mut lab = Lab::new(1, Profile::Instant);
    let answer = lab.call(&Door::Kube("none".into()), &Request::default());
    assert!(matches!(answer, Progress::Done(Response { status: 0, close: true, .. })));
    assert_eq!(lab.ground.now, start());
}
