//! The v1alpha1 document in its four shapes.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Map, Value, json};

use super::{
    Blueprint, Cni, Registry, RegistryTls, V1_12, V1_13, V1_14, audit_policy, is_control_plane, pod_security,
};
use crate::{
    pki::Authority,
    secrets::{Bundle, Encryption},
};

/// Makes the document.
pub fn document(blueprint: &Blueprint, bundle: &Bundle) -> Value {
    json!({
        "version": "v1alpha1",
        "debug": false,
        "persist": true,
        "machine": machine(blueprint, bundle),
        "cluster": cluster(blueprint, bundle),
    })
}

/// A map built key by key, skipping what is absent.
#[derive(Default)]
struct Section(Map<String, Value>);

impl Section {
    fn set(&mut self, key: &str, value: impl Into<Value>) -> &mut Self {
        self.0.insert(key.to_owned(), value.into());
        self
    }

    fn set_if(&mut self, key: &str, value: Option<impl Into<Value>>) -> &mut Self {
        if let Some(value) = value {
            self.set(key, value);
        }
        self
    }
}

fn base64(pem: &str) -> String {
    STANDARD.encode(pem)
}

/// Workers get certificates without keys: they sign nothing.
fn authority(authority: &Authority, with_key: bool) -> Value {
    json!({
        "crt": base64(authority.certificate().pem()),
        "key": if with_key { base64(authority.key().pem().expose()) } else { String::new() },
    })
}

fn machine(blueprint: &Blueprint, bundle: &Bundle) -> Value {
    let control_plane = is_control_plane(blueprint.role);
    let mut machine = Section::default();
    machine
        .set("type", if control_plane { "controlplane" } else { "worker" })
        .set("token", bundle.trustd_token.expose())
        .set("ca", authority(&bundle.os, control_plane))
        .set("certSANs", blueprint.sans.clone());
    if blueprint.contract >= V1_14 {
        machine.set("features", json!({ "diskQuotaSupport": true }));
        return Value::Object(machine.0);
    }
    machine.set("kubelet", kubelet(blueprint));
    if blueprint.contract < V1_13 {
        machine.set("network", json!({}));
    }
    machine.set("install", install(blueprint));
    machine.set_if("sysctls", (!blueprint.sysctls.is_empty()).then(|| json!(blueprint.sysctls)));
    if blueprint.contract < V1_12 {
        machine.set_if("registries", registries(blueprint));
    }
    machine.set("features", features(blueprint));
    if control_plane {
        machine.set("nodeLabels", json!({ "node.kubernetes.io/exclude-from-external-load-balancers": "" }));
    }
    Value::Object(machine.0)
}

fn kubelet(blueprint: &Blueprint) -> Value {
    json!({
        "image": format!("ghcr.io/siderolabs/kubelet:{}", blueprint.kubernetes),
        "defaultRuntimeSeccompProfileEnabled": true,
        "disableManifestsDirectory": true,
    })
}

fn install(blueprint: &Blueprint) -> Value {
    let mut install = Section::default();
    if let Some(wanted) = &blueprint.install {
        match &blueprint.system_disk {
            Some(place) => {
                let (key, value) = place.legacy_install();
                install.set(key, value);
            }
            None => drop(install.set_if("disk", wanted.disk.clone())),
        }
        install
            .set_if("extraKernelArgs", (!wanted.kernel_args.is_empty()).then(|| wanted.kernel_args.clone()));
        install.set_if("image", wanted.image.clone());
    }
    install.set("wipe", false);
    if blueprint.contract >= V1_12 {
        install.set("grubUseUKICmdline", true);
    }
    Value::Object(install.0)
}

fn registries(blueprint: &Blueprint) -> Option<Value> {
    let mut mirrors = Map::new();
    let mut config = Map::new();
    for (host, registry) in &blueprint.registries {
        if !registry.mirrors.is_empty() {
            mirrors.insert(host.clone(), mirror(registry));
        }
        let mut special = Section::default();
        special.set_if("tls", registry.tls.as_ref().map(tls));
        if let Some((username, password)) = &registry.auth {
            special.set("auth", json!({ "username": username, "password": password.expose() }));
        }
        if !special.0.is_empty() {
            config.insert(host.clone(), Value::Object(special.0));
        }
    }
    let mut registries = Section::default();
    registries.set_if("mirrors", (!mirrors.is_empty()).then_some(mirrors));
    registries.set_if("config", (!config.is_empty()).then_some(config));
    (!registries.0.is_empty()).then_some(Value::Object(registries.0))
}

fn tls(tls: &RegistryTls) -> Value {
    match tls {
        RegistryTls::Ca(pem) => json!({ "ca": base64(pem) }),
        RegistryTls::Insecure => json!({ "insecureSkipVerify": true }),
    }
}

fn mirror(registry: &Registry) -> Value {
    let mut mirror = Section::default();
    mirror.set("endpoints", registry.mirrors.clone());
    mirror.set_if("overridePath", registry.override_path.then_some(true));
    mirror.set_if("skipFallback", registry.skip_fallback.then_some(true));
    Value::Object(mirror.0)
}

fn features(blueprint: &Blueprint) -> Value {
    let mut features = Section::default();
    if blueprint.contract < V1_12 {
        features.set("rbac", true).set("stableHostname", true).set("apidCheckExtKeyUsage", true);
    }
    features.set("diskQuotaSupport", true);
    features
        .set_if("kubePrism", blueprint.kube_prism_port.map(|port| json!({ "enabled": true, "port": port })));
    features.set("hostDNS", json!({ "enabled": true, "forwardKubeDNSToHost": true }));
    Value::Object(features.0)
}

fn cluster(blueprint: &Blueprint, bundle: &Bundle) -> Value {
    let mut cluster = Section::default();
    if blueprint.contract >= V1_14 {
        return slim_cluster(blueprint, bundle);
    }
    let control_plane = is_control_plane(blueprint.role);
    cluster
        .set("id", bundle.cluster_id.as_str())
        .set("secret", bundle.cluster_secret.expose())
        .set("controlPlane", control_plane_section(blueprint))
        .set("clusterName", blueprint.cluster.clone())
        .set("network", network(blueprint))
        .set("token", bundle.bootstrap_token.expose());
    if control_plane {
        match &bundle.encryption {
            Encryption::AesCbc(key) => cluster.set("aescbcEncryptionSecret", key.expose()),
            Encryption::Secretbox(key) => cluster.set("secretboxEncryptionSecret", key.expose()),
        };
    }
    cluster.set("ca", authority(&bundle.kubernetes, control_plane));
    if control_plane {
        control_plane_components(blueprint, bundle, &mut cluster);
    }
    cluster.set("discovery", discovery(blueprint));
    if control_plane {
        cluster.set("etcd", json!({ "ca": authority(&bundle.etcd, true) }));
    }
    cluster.set_if(
        "externalCloudProvider",
        blueprint.external_cloud_provider.then(|| json!({ "enabled": true })),
    );
    if control_plane && blueprint.schedule_on_control_planes {
        cluster.set("allowSchedulingOnControlPlanes", true);
    }
    Value::Object(cluster.0)
}

/// From 1.14 on only what no document has taken over.
fn slim_cluster(blueprint: &Blueprint, bundle: &Bundle) -> Value {
    let mut cluster = Section::default();
    cluster.set("token", bundle.bootstrap_token.expose());
    if is_control_plane(blueprint.role) {
        cluster.set("etcd", json!({ "ca": authority(&bundle.etcd, true) }));
    }
    cluster.set_if(
        "externalCloudProvider",
        blueprint.external_cloud_provider.then(|| json!({ "enabled": true })),
    );
    Value::Object(cluster.0)
}

fn control_plane_section(blueprint: &Blueprint) -> Value {
    let mut section = Section::default();
    section.set("endpoint", blueprint.endpoint.clone());
    section.set_if("localAPIServerPort", blueprint.api_port.filter(|_| is_control_plane(blueprint.role)));
    Value::Object(section.0)
}

fn network(blueprint: &Blueprint) -> Value {
    let mut network = Section::default();
    match &blueprint.cni {
        Cni::Flannel => {}
        Cni::None => {
            network.set("cni", json!({ "name": "none" }));
        }
        Cni::Custom(url) => {
            network.set("cni", json!({ "name": "custom", "urls": [url] }));
        }
    }
    network
        .set("dnsDomain", blueprint.domain.clone())
        .set("podSubnets", blueprint.pods.clone())
        .set("serviceSubnets", blueprint.services.clone());
    Value::Object(network.0)
}

fn control_plane_components(blueprint: &Blueprint, bundle: &Bundle, cluster: &mut Section) {
    let image = |name: &str| format!("registry.k8s.io/{name}:{}", blueprint.kubernetes);
    cluster.set("aggregatorCA", authority(&bundle.aggregator, true));
    cluster.set("serviceAccount", json!({ "key": base64(bundle.service_account.pem().expose()) }));
    cluster.set("apiServer", api_server(blueprint, image("kube-apiserver")));
    cluster.set("controllerManager", json!({ "image": image("kube-controller-manager") }));
    let mut proxy = Section::default();
    proxy.set_if("disabled", (!blueprint.kube_proxy).then_some(true));
    proxy.set("image", image("kube-proxy"));
    cluster.set("proxy", Value::Object(proxy.0));
    cluster.set("scheduler", json!({ "image": image("kube-scheduler") }));
}

fn api_server(blueprint: &Blueprint, image: String) -> Value {
    let mut server = Section::default();
    server.set("image", image);
    let legacy = blueprint.contract < V1_12;
    // From 1.12 on the node itself adds the endpoint's host.
    let endpoint = legacy.then(|| blueprint.endpoint_host().to_owned());
    let sans: Vec<String> = endpoint.into_iter().chain(blueprint.sans.iter().cloned()).collect();
    server.set_if("certSANs", (!sans.is_empty()).then_some(sans));
    if legacy {
        server.set("disablePodSecurityPolicy", true);
    }
    server.set("admissionControl", json!([{ "name": "PodSecurity", "configuration": pod_security() }]));
    server.set("auditPolicy", audit_policy());
    Value::Object(server.0)
}

fn discovery(blueprint: &Blueprint) -> Value {
    json!({
        "enabled": blueprint.discovery,
        "registries": { "kubernetes": { "disabled": true }, "service": {} },
    })
}
