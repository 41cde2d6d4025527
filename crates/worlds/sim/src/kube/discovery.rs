//! What an API server says about itself: versions, groups, resources, descriptions of kinds.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    Cluster,
    kinds::{self, Resource},
    status::{Failure, json_response, text_response},
    store::Store,
    target::Query,
    value::{name, text},
};
use crate::wire::{Request, Response};

/// Answers what is not about objects, if it is that.
pub fn answer(cluster: &Cluster, request: &Request) -> Option<Result<Response, Failure>> {
    let parts: Vec<&str> = request.path.split('/').filter(|part| !part.is_empty()).collect();
    let store = &cluster.store;
    Some(Ok(match parts.as_slice() {
        [] => json_response(
            200,
            &json!({"paths": ["/api", "/api/v1", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]}),
        ),
        ["healthz" | "livez" | "readyz", ..] => health(request, parts[0]),
        ["version"] => json_response(200, &version(&cluster.version)),
        ["api"] if wants_aggregated(request) => aggregated(store, true),
        ["apis"] if wants_aggregated(request) => aggregated(store, false),
        ["api"] => json_response(
            200,
            &json!({
                "kind": "APIVersions", "versions": ["v1"],
                "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "10.96.0.1:443"}],
            }),
        ),
        ["apis"] => {
            let groups: Vec<Value> =
                groups(store).iter().map(|(name, group)| group_object(name, group, false)).collect();
            json_response(200, &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}))
        }
        ["apis", group] => match groups(store).get(*group) {
            Some(found) if !group.is_empty() => json_response(200, &group_object(group, found, true)),
            _ => return Some(Err(Failure::no_such_path())),
        },
        ["api", version] => return Some(resource_list(store, "", version)),
        ["apis", group, version] => return Some(resource_list(store, group, version)),
        ["openapi", "v2"] => openapi_v2(request),
        ["openapi", "v3"] => json_response(200, &openapi_index(store)),
        ["openapi", "v3", "api", version] => return Some(openapi_v3(store, "", version)),
        ["openapi", "v3", "apis", group, version] => return Some(openapi_v3(store, group, version)),
        ["api" | "apis", ..] => return None,
        _ => return Some(Err(Failure::no_such_path())),
    }))
}

fn health(request: &Request, which: &str) -> Response {
    let checks =
        ["ping", "log", "etcd", "poststarthook/start-apiextensions-controllers", "autoregister-completion"];
    if Query::parse(&request.query).get("verbose").is_empty() && !request.query.contains("verbose") {
        return text_response(200, "ok");
    }
    let lines: String = checks.iter().map(|check| format!("[+]{check} ok\n")).collect();
    text_response(200, &format!("{lines}{which} check passed\n"))
}

fn version(version: &str) -> Value {
    let mut numbers = version.trim_start_matches('v').split('.');
    json!({
        "major": numbers.next().unwrap_or("1"),
        "minor": numbers.next().unwrap_or("0"),
        "gitVersion": version,
        "gitCommit": "0000000000000000000000000000000000000000",
        "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
        "goVersion": "go1.26.0",
        "compiler": "gc",
        "platform": "linux/amd64",
    })
}

/// The resources of each version of each group, the preferred version first.
type Groups = BTreeMap<String, Vec<(String, Vec<Resource>)>>;

fn groups(store: &Store) -> Groups {
    let mut groups = core_and_groups(store);
    groups.remove("");
    groups
}

fn core_and_groups(store: &Store) -> Groups {
    let mut groups = Groups::new();
    for resource in kinds::all(store) {
        let versions = groups.entry(resource.group.to_string()).or_default();
        match versions.iter_mut().find(|(version, _)| *version == resource.version) {
            Some((_, resources)) => resources.push(resource),
            None => versions.push((resource.version.to_string(), vec![resource])),
        }
    }
    for versions in groups.values_mut() {
        versions.sort_by_key(|(version, _)| std::cmp::Reverse(rank(version)));
    }
    groups
}

/// Orders versions: final before beta before alpha, higher numbers first.
fn rank(version: &str) -> (u8, u64, u64) {
    let rest = version.trim_start_matches('v');
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let major = rest[..digits].parse().unwrap_or(0);
    let (stage, minor) = match &rest[digits..] {
        "" => (2, ""),
        other => {
            other.strip_prefix("beta").map_or((0, other.trim_start_matches("alpha")), |minor| (1, minor))
        }
    };
    (stage, major, minor.parse().unwrap_or(0))
}

fn group_object(name: &str, versions: &[(String, Vec<Resource>)], alone: bool) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|(version, _)| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    let mut group = if alone { json!({"kind": "APIGroup", "apiVersion": "v1"}) } else { json!({}) };
    group["name"] = name.into();
    group["preferredVersion"] = versions.first().cloned().unwrap_or_default();
    group["versions"] = versions.into();
    group
}

/// A subresource: its name, its group, version and kind, and its verbs.
type Sub = (&'static str, &'static str, &'static str, &'static str, &'static [&'static str]);

fn subresources(resource: &Resource) -> Vec<Sub> {
    let mut subs: Vec<Sub> = Vec::new();
    if resource.status {
        subs.push(("status", "", "", "", &["get", "patch", "update"]));
    }
    if resource.scale {
        subs.push(("scale", "autoscaling", "v1", "Scale", &["get", "patch", "update"]));
    }
    match resource.key().as_str() {
        "pods" => {
            subs.push(("eviction", "policy", "v1", "Eviction", &["create"]));
            subs.push(("binding", "", "v1", "Binding", &["create"]));
            subs.push(("log", "", "", "", &["get"]));
            subs.push(("exec", "", "v1", "PodExecOptions", &["create", "get"]));
        }
        "serviceaccounts" => subs.push(("token", "authentication.k8s.io", "v1", "TokenRequest", &["create"])),
        "namespaces" => subs.push(("finalize", "", "", "", &["update"])),
        "certificatesigningrequests.certificates.k8s.io" => {
            subs.push(("approval", "", "", "", &["get", "patch", "update"]));
        }
        _ => {}
    }
    subs
}

fn resource_list(store: &Store, group: &str, version: &str) -> Result<Response, Failure> {
    let groups = core_and_groups(store);
    let versions = groups.get(group).ok_or_else(Failure::no_such_path)?;
    let (_, resources) =
        versions.iter().find(|(known, _)| known == version).ok_or_else(Failure::no_such_path)?;
    let mut entries = Vec::new();
    for resource in resources {
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": resource.verbs(),
        });
        if !resource.short_names.is_empty() {
            entry["shortNames"] = json!(resource.short_names);
        }
        if !resource.categories.is_empty() {
            entry["categories"] = json!(resource.categories);
        }
        entries.push(entry);
        for (name, sub_group, sub_version, kind, verbs) in subresources(resource) {
            let mut entry = json!({
                "name": format!("{}/{name}", resource.plural), "singularName": "", "namespaced": resource.namespaced,
            });
            if !sub_group.is_empty() {
                entry["group"] = sub_group.into();
                entry["version"] = sub_version.into();
            }
            entry["kind"] = if kind.is_empty() { resource.kind.as_ref().into() } else { kind.into() };
            entry["verbs"] = json!(verbs);
            entries.push(entry);
        }
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Ok(json_response(
        200,
        &json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": entries,
        }),
    ))
}

fn wants_aggregated(request: &Request) -> bool {
    let accept = request.header("accept").unwrap_or_default();
    accept.split(',').any(|part| {
        let has = |word: &str| part.split(';').any(|other| other.trim() == word);
        has("g=apidiscovery.k8s.io") && has("as=APIGroupDiscoveryList") && has("v=v2")
    })
}

fn aggregated(store: &Store, core: bool) -> Response {
    let groups = core_and_groups(store);
    let wanted = groups.iter().filter(|(name, _)| name.is_empty() == core);
    let items: Vec<Value> = wanted
        .map(|(name, versions)| {
            let versions: Vec<Value> = versions
                .iter()
                .map(|(version, resources)| {
                    let resources: Vec<Value> = resources.iter().map(aggregated_resource).collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if name.is_empty() { json!({}) } else { json!({"name": name}) };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    let list = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    });
    let mut response = json_response(200, &list);
    response.headers[0].1 = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList".into();
    response
}

fn aggregated_resource(resource: &Resource) -> Value {
    let kind =
        |group: &str, version: &str, kind: &str| json!({"group": group, "version": version, "kind": kind});
    let own = kind(&resource.group, &resource.version, &resource.kind);
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": own,
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs(),
    });
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
    let subs: Vec<Value> = subresources(resource)
        .into_iter()
        .map(|(name, group, version, sub_kind, verbs)| {
            let response = if sub_kind.is_empty() { own.clone() } else { kind(group, version, sub_kind) };
            json!({"subresource": name, "responseKind": response, "verbs": verbs})
        })
        .collect();
    if !subs.is_empty() {
        entry["subresources"] = subs.into();
    }
    entry
}

/// The old description. Clients ask for it as protobuf and only to validate by themselves, which nobody does who
/// can ask the server to; it is empty here.
fn openapi_v2(request: &Request) -> Response {
    let accept = request.header("accept").unwrap_or_default();
    if accept.contains("protobuf") {
        // Document{swagger: "2.0", info: {title: "Kubernetes", version: "unversioned"}}
        let body = b"\x0a\x032.0\x12\x19\x0a\x0aKubernetes\x12\x0bunversioned".to_vec();
        return Response {
            status: 200,
            headers: vec![(
                "content-type".into(),
                "application/com.github.proto-openapi.spec.v2.v1.0+protobuf".into(),
            )],
            body,
            ..Response::default()
        };
    }
    json_response(
        200,
        &json!({
            "swagger": "2.0", "info": {"title": "Kubernetes", "version": "unversioned"}, "paths": {}, "definitions": {},
        }),
    )
}

fn openapi_index(store: &Store) -> Value {
    let mut paths = json!({});
    for (group, versions) in core_and_groups(store) {
        for (version, _) in versions {
            let path =
                if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
            // Clients keep what they read under this hash; a definition that changes changes the revision.
            paths[&path] =
                json!({"serverRelativeURL": format!("/openapi/v3/{path}?hash={:016X}", hash(store, &group))});
        }
    }
    json!({"paths": paths})
}

fn hash(store: &Store, group: &str) -> u64 {
    let definitions =
        store.list(kinds::CRDS, "").filter(|definition| text(definition, "/spec/group") == group);
    definitions.fold(0xcbf2_9ce4_8422_2325, |hash: u64, definition| {
        let version = text(definition, "/metadata/resourceVersion").bytes();
        name(definition)
            .bytes()
            .chain(version)
            .fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
    })
}

/// Describes the kinds of a version: enough to find them, and the schemas of custom ones.
///
/// Strategic merge patches are left out of what the operations take: the lab does not publish the merge keys of
/// built-in types, and a client that finds no such media type uses those it was built with.
fn openapi_v3(store: &Store, group: &str, version: &str) -> Result<Response, Failure> {
    let groups = core_and_groups(store);
    let versions = groups.get(group).ok_or_else(Failure::no_such_path)?;
    let (_, resources) =
        versions.iter().find(|(known, _)| known == version).ok_or_else(Failure::no_such_path)?;
    let (mut paths, mut schemas) = (json!({}), json!({}));
    let base = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    for resource in resources {
        let kind = json!({"group": group, "version": version, "kind": resource.kind});
        let scope = if resource.namespaced { "/namespaces/{namespace}" } else { "" };
        let parameters: Vec<Value> = ["dryRun", "fieldManager", "fieldValidation", "force"]
            .iter()
            .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}}))
            .collect();
        let operation = |action: &str, parameters: &[Value]| {
            json!({
                "x-kubernetes-action": action, "x-kubernetes-group-version-kind": kind, "parameters": parameters,
                "responses": {"200": {"description": "OK"}},
            })
        };
        let path = format!("{base}{scope}/{}", resource.plural);
        paths[&path] = json!({"get": operation("list", &[]), "post": operation("post", &parameters)});
        paths[format!("{path}/{{name}}")] = json!({
            "get": operation("get", &[]), "put": operation("put", &parameters),
            "patch": operation("patch", &parameters), "delete": operation("delete", &parameters[..1]),
        });
        schemas[schema_name(resource)] = schema(store, resource, &kind);
    }
    Ok(json_response(
        200,
        &json!({
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": "unversioned"},
            "paths": paths,
            "components": {"schemas": schemas},
        }),
    ))
}

fn schema_name(resource: &Resource) -> String {
    let group = if resource.group.is_empty() { "core" } else { &resource.group };
    let reversed: Vec<&str> = group.split('.').rev().collect();
    format!("{}.{}.{}", reversed.join("."), resource.version, resource.kind)
}

fn schema(store: &Store, resource: &Resource, kind: &Value) -> Value {
    let custom = resource.custom.then(|| kinds::schema(store, resource)).flatten().cloned();
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut schema = custom.unwrap_or_else(|| {
        json!({"type": "object", "description": resource.kind, "properties": {"spec": open, "status": open}})
    });
    let basic = [
        ("apiVersion", json!({"type": "string", "description": "The version of the kind."})),
        ("kind", json!({"type": "string", "description": "What this object is."})),
        ("metadata", json!({"type": "object", "description": "Name, labels and the like."})),
    ];
    for (key, value) in basic {
        super::value::set(&mut schema, &["properties", key], value);
    }
    schema["x-kubernetes-group-version-kind"] = json!([kind]);
    schema
}
