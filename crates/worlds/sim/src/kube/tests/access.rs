use super::*;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

#[test]
fn certificates_of_the_authority_are_let_in() {
    let mut world = World::empty(Profile::Instant);
    let cases = [
        (include_str!("admin.pem"), 200),
        (include_str!("developer.pem"), 403),
        (include_str!("kubelet.pem"), 200),
        (include_str!("expired.pem"), 401),
        (include_str!("stranger.pem"), 401),
    ];
    for (pem, wanted) in cases {
        world.certificate = Some(der(pem));
        assert_eq!(world.call("GET", "/api/v1/nodes", &json!(null)).0, wanted, "{pem}");
    }
    world.certificate = Some(b"nonsense".to_vec());
    assert_eq!(world.call("GET", "/api/v1/nodes", &json!(null)).0, 401);
}

#[test]
fn nobody_may_only_ask_for_health_and_version() {
    let mut world = World::empty(Profile::Instant);
    world.certificate = None;
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        assert_eq!(world.send("GET", path, "", Vec::new()).status, 200, "{path}");
    }
    assert_eq!(world.send("GET", "/healthz", "", Vec::new()).body, b"ok");
    let (status, answer) = world.call("GET", "/api/v1/nodes", &json!(null));
    assert_eq!(status, 403);
    assert_eq!(
        answer["message"],
        "nodes is forbidden: User \"system:anonymous\" cannot list resource \"nodes\" in API group \"\" at the cluster scope"
    );
    let (status, answer) = world.call("GET", "/apis", &json!(null));
    assert_eq!(
        (status, answer["message"].as_str()),
        (403, Some("forbidden: User \"system:anonymous\" cannot get path \"/apis\""))
    );
}

#[test]
fn roles_allow_what_they_say() {
    let mut world = World::empty(Profile::Instant);
    world.create(&format!("{RBAC}/namespaces/default/roles"), &json!({
        "metadata": {"name": "reader"}, "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}],
    }));
    world.create(&format!("{RBAC}/namespaces/default/rolebindings"), &json!({
        "metadata": {"name": "reader"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "Group", "name": "developers"}],
    }));
    world.certificate = Some(der(include_str!("developer.pem")));
    world.get("/api/v1/namespaces/default/configmaps");
    assert_eq!(world.call("GET", "/api/v1/namespaces/kube-system/configmaps", &json!(null)).0, 403);
    let (status, answer) = world.call("DELETE", "/api/v1/namespaces/default/configmaps/x", &json!(null));
    assert_eq!(status, 403);
    assert_eq!(
        answer["message"],
        "configmaps \"x\" is forbidden: User \"dev\" cannot delete resource \"configmaps\" in API group \"\" in the namespace \"default\""
    );
    let review = json!({"spec": {"resourceAttributes": {"verb": "list", "resource": "configmaps", "namespace": "default"}}});
    let answer = world.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review);
    assert_eq!(answer["status"]["allowed"], true);
}

#[test]
fn tokens_of_service_accounts_are_let_in() {
    let mut world = World::empty(Profile::Instant);
    world.create("/api/v1/namespaces/default/serviceaccounts", &json!({"metadata": {"name": "bob"}}));
    let answer = world.create("/api/v1/namespaces/default/serviceaccounts/bob/token", &json!({"spec": {}}));
    let token = answer["status"]["token"].as_str().unwrap().to_owned();
    let ask = |world: &mut World, token: &str| {
        let request = Request {
            method: "POST".into(),
            path: "/apis/authentication.k8s.io/v1/selfsubjectreviews".into(),
            headers: vec![("authorization".into(), format!("Bearer {token}"))],
            body: b"{}".to_vec(),
            ..Request::default()
        };
        let response = world.ask(&request);
        (response.status, serde_json::from_slice::<Value>(&response.body).unwrap())
    };
    let (status, answer) = ask(&mut world, &token);
    assert_eq!(
        (status, &answer["status"]["userInfo"]["username"]),
        (201, &json!("system:serviceaccount:default:bob"))
    );
    assert_eq!(ask(&mut world, "wrong").0, 401);
}
