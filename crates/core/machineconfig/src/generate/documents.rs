//! The documents beside v1alpha1, in the order in which Talos writes them.

use serde_json::{Map, Value, json};

use super::{
    Blueprint, Cni, DiskPlace, RegistryTls, V1_12, V1_14, audit_policy, is_control_plane, pod_security,
};
use crate::{
    pki::Authority,
    secrets::{Bundle, Encryption},
};

/// Makes all documents of the contract.
pub fn all(blueprint: &Blueprint, bundle: &Bundle) -> Vec<Value> {
    if blueprint.contract < V1_12 {
        return Vec::new();
    }
    if blueprint.contract < V1_14 {
        return registries(blueprint).into_iter().chain([hostname()]).collect();
    }
    let mut documents = machine_documents(blueprint, bundle);
    documents.extend(registries(blueprint));
    documents.push(hostname());
    documents.extend(kubernetes_documents(blueprint, bundle));
    if is_control_plane(blueprint.role) {
        documents.extend(control_plane_documents(blueprint, bundle));
    }
    documents
}

/// Starts a document: its kind and, for kinds that have one, its name.
pub fn document(kind: &str, name: Option<&str>, body: Value) -> Value {
    let mut document = Map::new();
    document.insert("apiVersion".into(), "v1alpha1".into());
    document.insert("kind".into(), kind.into());
    if let Some(name) = name {
        document.insert("name".into(), name.into());
    }
    if let Value::Object(body) = body {
        document.extend(body);
    }
    Value::Object(document)
}

fn hostname() -> Value {
    document("HostnameConfig", None, json!({ "auto": "stable" }))
}

fn registries(blueprint: &Blueprint) -> Vec<Value> {
    let mirrors = blueprint.registries.iter().filter(|(_, registry)| !registry.mirrors.is_empty());
    let auth =
        blueprint.registries.iter().filter_map(|(host, registry)| Some((host, registry.auth.as_ref()?)));
    let auth = auth.map(|(host, (username, password))| {
        document(
            "RegistryAuthConfig",
            Some(host),
            json!({ "username": username, "password": password.expose() }),
        )
    });
    let tls = blueprint.registries.iter().filter_map(|(host, registry)| {
        let body = match registry.tls.as_ref()? {
            RegistryTls::Ca(pem) => json!({ "ca": pem }),
            RegistryTls::Insecure => json!({ "insecureSkipVerify": true }),
        };
        Some(document("RegistryTLSConfig", Some(host), body))
    });
    let mirrors = mirrors.map(|(host, registry)| {
        let endpoints: Vec<Value> = registry
            .mirrors
            .iter()
            .map(|url| {
                if registry.override_path {
                    json!({ "url": url, "overridePath": true })
                } else {
                    json!({ "url": url })
                }
            })
            .collect();
        let mut body = json!({ "endpoints": endpoints });
        if registry.skip_fallback {
            body["skipFallback"] = true.into();
        }
        document("RegistryMirrorConfig", Some(host), body)
    });
    // Talos sorts them by kind, then by name.
    auth.chain(mirrors).chain(tls).collect()
}

fn machine_documents(blueprint: &Blueprint, bundle: &Bundle) -> Vec<Value> {
    let mut documents = Vec::new();
    if blueprint.discovery {
        let service = json!({ "endpoint": "https://discovery.talos.dev/" });
        documents.push(document("DiscoveryServiceConfig", Some("default"), service));
    }
    let identity =
        json!({ "clusterID": bundle.cluster_id.as_str(), "clusterSecret": bundle.cluster_secret.expose() });
    documents.push(document("DiscoveryIdentityConfig", None, identity));
    documents.extend(install(blueprint));
    let host_dns = json!({ "hostDNS": { "enabled": true, "forwardKubeDNSToHost": true } });
    documents.push(document("ResolverConfig", None, host_dns));
    if !blueprint.sysctls.is_empty() {
        documents.push(document("SysctlConfig", None, json!({ "params": blueprint.sysctls })));
    }
    documents.push(document("VolumeConfig", Some("EPHEMERAL"), json!({ "mount": { "secure": true } })));
    documents.push(document("FilesystemTrimConfig", None, json!({ "interval": "168h0m0s" })));
    documents.push(document("SecurityProfileConfig", None, json!({ "workloadIsolation": true })));
    documents
}

/// Only a machine that is to be installed says onto which disk. One that runs already ignores it.
fn install(blueprint: &Blueprint) -> Option<Value> {
    let install = blueprint.install.as_ref()?;
    let by_path = || install.disk.as_ref().map(|disk| format!("disk.dev_path == \"{disk}\""));
    let disk = blueprint.system_disk.as_ref().map(DiskPlace::expression).or_else(by_path)?;
    let installer = install.image.as_ref().map_or_else(|| json!({}), |image| json!({ "image": image }));
    let body = json!({
        "installer": installer,
        "provisioning": { "diskSelector": { "match": disk }, "wipe": false },
    });
    Some(document("UnattendedInstallConfig", None, body))
}

fn kubernetes_documents(blueprint: &Blueprint, bundle: &Bundle) -> Vec<Value> {
    let cluster = json!({ "clusterName": blueprint.cluster, "endpoint": blueprint.endpoint });
    let kubelet = json!({
        "image": format!("ghcr.io/siderolabs/kubelet:{}", blueprint.kubernetes),
        "config": {},
        "defaultRuntimeSeccompProfileEnabled": true,
    });
    let network = json!({
        "dnsDomain": blueprint.domain, "podSubnets": blueprint.pods, "serviceSubnets": blueprint.services,
    });
    let ca = if is_control_plane(blueprint.role) {
        issuing(&bundle.kubernetes)
    } else {
        json!({ "acceptedCAs": [bundle.kubernetes.certificate().pem()] })
    };
    let mut documents = vec![
        document("KubeClusterConfig", None, cluster),
        document("KubeNodeConfig", None, node(blueprint)),
        document("KubeletConfig", None, kubelet),
        document("KubeNetworkConfig", None, network),
        document("KubeAPIServerCAConfig", None, ca),
    ];
    documents.extend(
        blueprint.kube_prism_port.map(|port| document("KubePrismConfig", None, json!({ "port": port }))),
    );
    documents
}

fn issuing(authority: &Authority) -> Value {
    json!({ "issuingCA": { "cert": authority.certificate().pem(), "key": authority.key().pem().expose() } })
}

fn node(blueprint: &Blueprint) -> Value {
    let mut node = json!({ "nodeIP": {} });
    if is_control_plane(blueprint.role) {
        node["labels"] = json!({
            "node-role.kubernetes.io/control-plane": "",
            "node.kubernetes.io/exclude-from-external-load-balancers": "",
        });
        if !blueprint.schedule_on_control_planes {
            node["taints"] = json!({ "node-role.kubernetes.io/control-plane": "NoSchedule" });
        }
    }
    node
}

fn control_plane_documents(blueprint: &Blueprint, bundle: &Bundle) -> Vec<Value> {
    let mut documents = vec![
        document("KubeAggregatorCAConfig", None, issuing(&bundle.aggregator)),
        document(
            "KubeAdmissionControlConfig",
            Some("PodSecurity"),
            json!({ "configuration": pod_security() }),
        ),
        document("KubeAuditPolicyConfig", None, json!({ "configuration": audit_policy() })),
        document("KubeAuthenticationConfig", None, json!({ "configuration": authentication() })),
        document("KubeAuthorizerConfig", Some("node"), json!({ "type": "Node" })),
        document("KubeAuthorizerConfig", Some("rbac"), json!({ "type": "RBAC" })),
        document("KubeEtcdEncryptionConfig", None, json!({ "config": encryption(&bundle.encryption) })),
    ];
    let issuer =
        json!({ "privateKey": bundle.service_account.pem().expose(), "issuerURL": blueprint.endpoint });
    documents.push(document("KubeServiceAccountConfig", None, json!({ "issuer": issuer })));
    documents.extend(components(blueprint));
    if blueprint.cni == Cni::Flannel {
        let flannel = json!({ "backendType": "vxlan", "backendPort": 4789 });
        documents.push(document("KubeFlannelCNIConfig", None, flannel));
    }
    documents.push(document("KubeCoreDNSConfig", None, json!({ "enabled": true })));
    if let Cni::Custom(url) = &blueprint.cni {
        documents.push(document("KubeExternalManifestConfig", Some("custom-cni"), json!({ "url": url })));
    }
    documents
}

/// Health endpoints answer without credentials, and nothing else does.
fn authentication() -> Value {
    json!({
        "anonymous": {
            "conditions": [{ "path": "/livez" }, { "path": "/readyz" }, { "path": "/healthz" }],
            "enabled": true,
        },
        "jwt": [],
    })
}

fn encryption(encryption: &Encryption) -> Value {
    let provider = match encryption {
        Encryption::Secretbox(key) => {
            json!({ "secretbox": { "keys": [{ "name": "key2", "secret": key.expose() }] } })
        }
        Encryption::AesCbc(key) => {
            json!({ "aescbc": { "keys": [{ "name": "key1", "secret": key.expose() }] } })
        }
    };
    json!({ "resources": [{ "providers": [provider], "resources": ["secrets"] }] })
}

fn components(blueprint: &Blueprint) -> Vec<Value> {
    let image = |name: &str| format!("registry.k8s.io/{name}:{}", blueprint.kubernetes);
    let mut server = json!({ "image": image("kube-apiserver") });
    if let Some(port) = blueprint.api_port {
        server["apiPort"] = port.into();
    }
    if !blueprint.sans.is_empty() {
        server["certExtraSANs"] = json!(blueprint.sans);
    }
    let proxy = if blueprint.kube_proxy {
        json!({ "image": image("kube-proxy"), "config": {} })
    } else {
        json!({ "enabled": false, "image": image("kube-proxy"), "config": {} })
    };
    vec![
        document("KubeAPIServerConfig", None, server),
        document("KubeControllerManagerConfig", None, json!({ "image": image("kube-controller-manager") })),
        document("KubeSchedulerConfig", None, json!({ "image": image("kube-scheduler"), "config": {} })),
        document("KubeProxyConfig", None, proxy),
    ]
}
