use super::*;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const APPLY: &str = "application/apply-patch+yaml";

#[test]
fn applying_creates_then_changes_and_owns_fields() {
    let mut world = World::empty(Profile::Instant);
    let path = format!("{DEPLOYMENTS}/web?fieldManager=ichor");
    let (status, made) = world.patch(&path, APPLY, &deployment("web", 2, "web:1"));
    assert_eq!(status, 201, "{made}");
    let entry = &made["metadata"]["managedFields"][0];
    assert_eq!(
        (&entry["manager"], &entry["operation"], &entry["fieldsType"]),
        (&json!("ichor"), &json!("Apply"), &json!("FieldsV1"))
    );
    assert_eq!(
        entry["fieldsV1"]["f:spec"]["f:template"]["f:spec"]["f:containers"]["k:{\"name\":\"web\"}"],
        json!({".": {}, "f:image": {}, "f:name": {}})
    );
    let version = made["metadata"]["resourceVersion"].clone();
    let settled = world.get(&format!("{DEPLOYMENTS}/web"))["metadata"]["resourceVersion"].clone();
    let (status, again) = world.patch(&path, APPLY, &deployment("web", 2, "web:1"));
    assert_eq!(
        (status, &again["metadata"]["resourceVersion"]),
        (200, &settled),
        "the same again changes nothing"
    );
    assert_ne!(version, json!(null));
    let (_, changed) = world.patch(&path, APPLY, &deployment("web", 2, "web:2"));
    assert_eq!(changed["metadata"]["generation"], 2);
}

#[test]
fn conflicts_name_manager_and_field() {
    let mut world = World::empty(Profile::Instant);
    world.patch(&format!("{DEPLOYMENTS}/web?fieldManager=one"), APPLY, &deployment("web", 2, "web:1"));
    let path = format!("{DEPLOYMENTS}/web?fieldManager=two");
    let (status, answer) = world.patch(&path, APPLY, &deployment("web", 3, "web:1"));
    assert_eq!((status, &answer["reason"]), (409, &json!("Conflict")));
    assert_eq!(answer["message"], "Apply failed with 1 conflict: conflict with \"one\": .spec.replicas");
    assert_eq!(
        answer["details"]["causes"],
        json!([{"reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".spec.replicas"}])
    );
    let (status, forced) = world.patch(&format!("{path}&force=true"), APPLY, &deployment("web", 3, "web:1"));
    assert_eq!((status, &forced["spec"]["replicas"]), (200, &json!(3)));
}

#[test]
fn applying_without_a_manager_or_kind_is_refused() {
    let mut world = World::empty(Profile::Instant);
    let (status, answer) = world.patch(&format!("{DEPLOYMENTS}/web"), APPLY, &deployment("web", 1, "web:1"));
    assert_eq!(status, 422);
    assert_eq!(
        answer["message"],
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
    );
    let (status, _) = world.patch(
        &format!("{DEPLOYMENTS}/web?fieldManager=x"),
        APPLY,
        &json!({"metadata": {"name": "web"}}),
    );
    assert_eq!(status, 400);
}

#[test]
fn yaml_is_applied_too() {
    let mut world = World::empty(Profile::Instant);
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: one\ndata:\n  key: value\n";
    let path = "/api/v1/namespaces/default/configmaps/one?fieldManager=x";
    let response = world.send("PATCH", path, APPLY, yaml.into());
    assert_eq!(response.status, 201);
    assert_eq!(world.get("/api/v1/namespaces/default/configmaps/one")["data"]["key"], "value");
}
