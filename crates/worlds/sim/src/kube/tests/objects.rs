use super::*;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

#[test]
fn failures_are_worded_as_the_api_server_words_them() {
    let mut world = World::empty(Profile::Instant);
    world.create(CONFIG_MAPS, &config_map("one", &json!({})));
    let cases: Vec<(&str, &str, Value, u16, &str, &str)> = vec![
        (
            "GET",
            "/api/v1/namespaces/default/configmaps/none",
            json!(null),
            404,
            "NotFound",
            "configmaps \"none\" not found",
        ),
        (
            "GET",
            "/apis/apps/v1/namespaces/default/deployments/none",
            json!(null),
            404,
            "NotFound",
            "deployments.apps \"none\" not found",
        ),
        (
            "POST",
            CONFIG_MAPS,
            config_map("one", &json!({})),
            409,
            "AlreadyExists",
            "configmaps \"one\" already exists",
        ),
        (
            "POST",
            "/api/v1/namespaces/none/configmaps",
            config_map("x", &json!({})),
            404,
            "NotFound",
            "namespaces \"none\" not found",
        ),
        (
            "GET",
            "/api/v1/nothing",
            json!(null),
            404,
            "NotFound",
            "the server could not find the requested resource",
        ),
        (
            "GET",
            "/apis/none.example/v1/things",
            json!(null),
            404,
            "NotFound",
            "the server could not find the requested resource",
        ),
        (
            "PUT",
            CONFIG_MAPS,
            config_map("one", &json!({})),
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        ),
        (
            "GET",
            "/api/v1/pods?fieldSelector=spec.color=red",
            json!(null),
            400,
            "BadRequest",
            "field label not supported: spec.color",
        ),
        (
            "DELETE",
            "/api/v1/namespaces/default/configmaps/none",
            json!(null),
            404,
            "NotFound",
            "configmaps \"none\" not found",
        ),
        (
            "POST",
            "/apis/apps/v1/namespaces/default/deployments",
            json!({"metadata": {"name": "web"}, "spec": {}}),
            422,
            "Invalid",
            "Deployment.apps \"web\" is invalid: [spec.selector: Required value, spec.template.spec.containers: Required value]",
        ),
    ];
    for (method, path, body, code, reason, message) in cases {
        let (status, answer) = world.call(method, path, &body);
        assert_eq!(
            (status, answer["reason"].as_str(), answer["message"].as_str()),
            (code, Some(reason), Some(message)),
            "{method} {path}"
        );
        assert_eq!(
            (&answer["kind"], &answer["status"], &answer["code"]),
            (&json!("Status"), &json!("Failure"), &json!(code))
        );
    }
}

#[test]
fn names_are_checked() {
    let mut world = World::empty(Profile::Instant);
    let (status, answer) = world.call("POST", CONFIG_MAPS, &config_map("Upper", &json!({})));
    assert_eq!(status, 422);
    let message = answer["message"].as_str().unwrap();
    assert!(message.starts_with("ConfigMap \"Upper\" is invalid: metadata.name: Invalid value: \"Upper\": a lowercase RFC 1123 subdomain"));
    assert_eq!(answer["details"]["causes"][0]["field"], "metadata.name");
}

#[test]
fn an_update_needs_the_latest_version() {
    let mut world = World::empty(Profile::Instant);
    let first = world.create(CONFIG_MAPS, &config_map("one", &json!({"a": "1"})));
    let mut second = first.clone();
    second["data"] = json!({"a": "2"});
    let (status, updated) = world.call("PUT", &format!("{CONFIG_MAPS}/one"), &second);
    assert_eq!(status, 200);
    assert_ne!(updated["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    let (status, answer) = world.call("PUT", &format!("{CONFIG_MAPS}/one"), &second);
    assert_eq!(status, 409);
    assert_eq!(
        answer["message"],
        "Operation cannot be fulfilled on configmaps \"one\": the object has been modified; please apply your changes to \
         the latest version and try again"
    );
    let (_, same) = world.call("PUT", &format!("{CONFIG_MAPS}/one"), &updated);
    assert_eq!(
        same["metadata"]["resourceVersion"], updated["metadata"]["resourceVersion"],
        "nothing changed"
    );
}

#[test]
fn lists_select_and_come_in_pieces() {
    let mut world = World::empty(Profile::Instant);
    for index in 0..5 {
        let mut object = config_map(&format!("cm-{index}"), &json!({}));
        object["metadata"]["labels"] =
            json!({"parity": if index % 2 == 0 { "even" } else { "odd" }, "ours": "yes"});
        world.create(CONFIG_MAPS, &object);
    }
    assert_eq!(world.names(&format!("{CONFIG_MAPS}?labelSelector=parity%3Deven")), ["cm-0", "cm-2", "cm-4"]);
    assert_eq!(world.names(&format!("{CONFIG_MAPS}?fieldSelector=metadata.name%3Dcm-3")), ["cm-3"]);
    let first = world.get(&format!("{CONFIG_MAPS}?limit=2&labelSelector=ours"));
    assert_eq!(
        (first["items"].as_array().unwrap().len(), &first["metadata"]["remainingItemCount"]),
        (2, &json!(3))
    );
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    assert_eq!(
        world.names(&format!("{CONFIG_MAPS}?labelSelector=ours&continue={token}")),
        ["cm-2", "cm-3", "cm-4"]
    );
    assert!(first["items"][0].get("kind").is_none(), "items of typed lists do not say what they are");
    let (status, _) = world.call("GET", &format!("{CONFIG_MAPS}?resourceVersion=99999"), &json!(null));
    assert_eq!(status, 504, "a version from the future");
}

#[test]
fn watches_tell_what_comes_and_goes() {
    let mut world = World::empty(Profile::Lab);
    let version = world.get(CONFIG_MAPS)["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let all = world.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion={version}&timeoutSeconds=10"));
    let red =
        world.watch(&format!("{CONFIG_MAPS}?watch=1&resourceVersion={version}&labelSelector=color%3Dred"));
    assert_eq!(world.events(all), []);
    let mut object = config_map("one", &json!({}));
    object["metadata"]["labels"] = json!({"color": "red"});
    world.create(CONFIG_MAPS, &object);
    world.patch(
        &format!("{CONFIG_MAPS}/one"),
        "application/merge-patch+json",
        &json!({"metadata": {"labels": {"color": "blue"}}}),
    );
    world.call("DELETE", &format!("{CONFIG_MAPS}/one"), &json!(null));
    assert_eq!(world.events(all), [event("ADDED", "one"), event("MODIFIED", "one"), event("DELETED", "one")]);
    assert_eq!(
        world.events(red),
        [event("ADDED", "one"), event("DELETED", "one")],
        "an object that ceases to fit is gone"
    );
    world.pass(Duration::from_secs(11));
    assert_eq!(world.lab.clusters.poll(&mut world.lab.ground, all), Polled::End);
}

#[test]
fn a_watch_from_the_beginning_tells_what_is_there() {
    let mut world = World::empty(Profile::Instant);
    world.create(CONFIG_MAPS, &config_map("one", &json!({})));
    let stream = world.watch(&format!("{CONFIG_MAPS}?watch=true&fieldSelector=metadata.name%3Done"));
    assert_eq!(world.events(stream), [event("ADDED", "one")]);
    let streamed = format!(
        "{CONFIG_MAPS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&fieldSelector=metadata.name%3Done"
    );
    let stream = world.watch(&streamed);
    assert_eq!(world.events(stream), [event("ADDED", "one"), event("BOOKMARK", "")]);
}

#[test]
fn a_watch_from_too_long_ago_is_told_so() {
    let mut world = World::empty(Profile::Instant);
    world.create(CONFIG_MAPS, &config_map("busy", &json!({})));
    for index in 0..2100 {
        let change = json!({"data": {"count": index.to_string()}});
        world.patch(&format!("{CONFIG_MAPS}/busy"), "application/merge-patch+json", &change);
    }
    let stream = world.watch(&format!("{CONFIG_MAPS}?watch=true&resourceVersion=2"));
    assert_eq!(world.events(stream), [event("ERROR", "Expired")]);
}

#[test]
fn deletion_waits_for_finalizers() {
    let mut world = World::empty(Profile::Instant);
    let mut object = config_map("held", &json!({}));
    object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    world.create(CONFIG_MAPS, &object);
    let path = format!("{CONFIG_MAPS}/held");
    let (status, left) = world.call("DELETE", &path, &json!(null));
    assert_eq!(status, 200);
    assert!(left["metadata"]["deletionTimestamp"].is_string());
    world.get(&path);
    world.patch(
        &path,
        "application/json-patch+json",
        &json!([{"op": "remove", "path": "/metadata/finalizers"}]),
    );
    assert_eq!(world.call("GET", &path, &json!(null)).0, 404);
    let (status, answer) = world.call("DELETE", &path, &json!({"preconditions": {"uid": "other"}}));
    assert_eq!((status, &answer["reason"]), (404, &json!("NotFound")));
    world.create(CONFIG_MAPS, &config_map("other", &json!({})));
    let (status, answer) =
        world.call("DELETE", &format!("{CONFIG_MAPS}/other"), &json!({"preconditions": {"uid": "wrong"}}));
    assert_eq!(status, 409);
    assert!(answer["message"].as_str().unwrap().contains("Precondition failed: UID in precondition: wrong"));
}

#[test]
fn dry_runs_change_nothing() {
    let mut world = World::empty(Profile::Instant);
    let before = world.lab.clusters.export("c");
    let (status, answer) =
        world.call("POST", &format!("{CONFIG_MAPS}?dryRun=All"), &config_map("one", &json!({})));
    assert_eq!((status, &answer["metadata"]["name"]), (201, &json!("one")));
    assert_eq!(world.lab.clusters.export("c"), before);
    assert_eq!(
        world.call("POST", &format!("{CONFIG_MAPS}?dryRun=Some"), &config_map("one", &json!({}))).0,
        422
    );
}

#[test]
fn generated_names_end_in_five_characters() {
    let mut world = World::empty(Profile::Instant);
    let body = json!({"metadata": {"generateName": "job-"}});
    let one = world.create(CONFIG_MAPS, &body)["metadata"]["name"].as_str().unwrap().to_owned();
    let two = world.create(CONFIG_MAPS, &body)["metadata"]["name"].as_str().unwrap().to_owned();
    assert!(one.starts_with("job-") && one.len() == 9 && one != two, "{one} {two}");
}

#[test]
fn a_namespace_ends_after_what_is_in_it() {
    let mut world = World::running(Profile::Lab);
    world.pass(Duration::from_secs(2));
    world.create("/api/v1/namespaces", &json!({"metadata": {"name": "demo"}}));
    world.create("/apis/apps/v1/namespaces/demo/deployments", &deployment("web", 2, "web:1"));
    world.pass(Duration::from_secs(1));
    assert_eq!(world.names("/api/v1/namespaces/demo/serviceaccounts"), ["default"]);
    let (_, namespace) = world.call("DELETE", "/api/v1/namespaces/demo", &json!(null));
    assert_eq!(namespace["status"]["phase"], "Terminating");
    let (status, answer) =
        world.call("POST", "/api/v1/namespaces/demo/configmaps", &config_map("late", &json!({})));
    assert_eq!(status, 403);
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .ends_with("unable to create new content in namespace demo because it is being terminated")
    );
    world.pass(Duration::from_secs(1));
    assert_eq!(world.call("GET", "/api/v1/namespaces/demo", &json!(null)).0, 404);
    assert_eq!(world.names("/api/v1/namespaces/demo/pods"), [""; 0]);
}

#[test]
fn definitions_make_kinds() {
    let mut world = World::empty(Profile::Lab);
    let definition = json!({
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "required": ["size"], "properties": {
                        "size": {"type": "integer", "minimum": 1}, "color": {"type": "string", "default": "red"}}},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]},
    });
    world.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition);
    assert_eq!(world.call("GET", WIDGETS, &json!(null)).0, 404, "not established yet");
    world.pass(Duration::from_secs(1));
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"size": 2, "junk": 1}});
    let made = world.create(WIDGETS, &widget);
    assert_eq!(made["spec"], json!({"size": 2, "color": "red"}), "unknown fields go, defaults come");
    let (status, answer) =
        world.call("POST", WIDGETS, &json!({"metadata": {"name": "x"}, "spec": {"size": "big"}}));
    assert_eq!(status, 422);
    assert_eq!(
        answer["message"],
        "Widget.example.com \"x\" is invalid: spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\""
    );
    let mut seen = made.clone();
    seen["status"] = json!({"seen": true});
    seen["spec"]["size"] = json!(9);
    let (_, updated) = world.call("PUT", &format!("{WIDGETS}/w/status"), &seen);
    assert_eq!(
        (&updated["spec"]["size"], &updated["status"]["seen"]),
        (&json!(2), &json!(true)),
        "only the status was written"
    );
    assert_eq!(updated["metadata"]["generation"], 1);
    let groups = world.get("/apis");
    assert!(groups["groups"].as_array().unwrap().iter().any(|group| group["name"] == "example.com"));
    world.call(
        "DELETE",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com",
        &json!(null),
    );
    assert_eq!(world.call("GET", WIDGETS, &json!(null)).0, 404);
}

#[test]
fn tables_are_what_kubectl_shows() {
    let mut world = World::running(Profile::Instant);
    let request = Request {
        method: "GET".into(),
        path: "/api/v1/nodes".into(),
        headers: vec![(
            "accept".into(),
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json".into(),
        )],
        client_certificate: world.certificate.clone(),
        ..Request::default()
    };
    let table: Value = serde_json::from_slice(&world.ask(&request).body).unwrap();
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    let titles: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    assert_eq!(titles[..5], ["Name", "Status", "Roles", "Age", "Version"]);
    assert_eq!(
        table["rows"][0]["cells"].as_array().unwrap()[..5],
        [json!("cp-1"), json!("Ready"), json!("control-plane"), json!("0s"), json!("v1.36.3")]
    );
}

#[test]
fn discovery_names_every_resource_in_both_forms() {
    let mut world = World::empty(Profile::Instant);
    let mut request = Request {
        method: "GET".into(),
        path: "/apis".into(),
        headers: vec![(
            "accept".into(),
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json".into(),
        )],
        client_certificate: world.certificate.clone(),
        ..Request::default()
    };
    for path in ["/api", "/apis"] {
        request.path = path.into();
        let response = world.ask(&request);
        assert!(response.headers[0].1.contains("as=APIGroupDiscoveryList"));
        let list: Value = serde_json::from_slice(&response.body).unwrap();
        for group in list["items"].as_array().unwrap() {
            let name = group["metadata"]["name"].as_str().unwrap_or_default();
            for version in group["versions"].as_array().unwrap() {
                let number = version["version"].as_str().unwrap();
                let path =
                    if name.is_empty() { format!("/api/{number}") } else { format!("/apis/{name}/{number}") };
                let legacy = world.get(&path);
                let has = |resource: &Value| {
                    legacy["resources"].as_array().unwrap().iter().any(|known| known["name"] == *resource)
                };
                for resource in version["resources"].as_array().unwrap() {
                    assert!(has(&resource["resource"]), "{path} {resource}");
                }
                world.get(&format!("/openapi/v3{path}"));
            }
        }
    }
}

#[test]
fn hostile_requests_get_answers() {
    let mut world = World::running(Profile::Instant);
    let paths = [
        "",
        "/",
        "//",
        "/api",
        "/api/",
        "/api/v1/",
        "/api/v1/namespaces//pods",
        "/apis//",
        "/apis/apps/v1/namespaces/x/deployments/y/z/w",
        "/api/v1/pods?limit=-1",
        "/api/v1/pods?continue=%%%",
        "/api/v1/pods?labelSelector=%ff%fe((",
        "/api/v1/watch/pods",
        "/api/v1/pods?resourceVersion=abc",
        "/api/v1/pods?watch=1&resourceVersion=abc",
        "/%00%ff",
    ];
    let deep = format!("{}1{}", "[".repeat(100), "]".repeat(100));
    let bodies = [
        "",
        "null",
        "[]",
        "1",
        "{",
        "{\"metadata\":1}",
        "{\"metadata\":{\"name\":[]}}",
        "{\"spec\":null}",
        &deep,
        "{\"metadata\":{\"name\":\"x\",\"labels\":[1]},\"spec\":{\"containers\":{\"a\":1},\"ports\":[1],\"taints\":3}}",
    ];
    let media = [
        "application/json",
        "application/yaml",
        "application/apply-patch+yaml",
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/vnd.kubernetes.protobuf",
        "text/x",
    ];
    let targets = [
        "/api/v1/namespaces/default/pods",
        "/api/v1/nodes/worker-1",
        "/api/v1/namespaces/default/services",
        "/apis/apps/v1/namespaces/kube-system/deployments/coredns?fieldManager=x&force=true",
        "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/api/v1/namespaces/default/secrets",
    ];
    for path in paths {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
            let response = world.send(method, path, "application/json", b"{}".to_vec());
            assert!((200..600).contains(&response.status), "{method} {path}");
        }
    }
    for target in targets {
        for body in bodies {
            for media in media {
                for method in ["POST", "PUT", "PATCH"] {
                    let response = world.send(method, target, media, body.into());
                    assert!((200..600).contains(&response.status));
                }
            }
        }
    }
}
