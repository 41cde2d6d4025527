//! Trusted roots, extension services and settings of the kubelet: the same on every machine.

use serde_json::{Value, json};

use super::{Blueprint, V1_14, documents::document, network::find};
use crate::secrets::SecretText;

/// The settings of a system-extension service, once their secrets are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// The service's name.
    pub name: String,
    /// Its environment.
    pub environment: Vec<(String, SecretText)>,
    /// Its files, by mount path.
    pub files: Vec<(String, SecretText)>,
}

/// Adds what every machine has.
pub fn extend(blueprint: &Blueprint, documents: &mut Vec<Value>) {
    let cluster = &blueprint.cluster_wide;
    if cluster.executables_in_var
        && let Some(ephemeral) =
            documents.iter_mut().find(|it| it["kind"] == "VolumeConfig" && it["name"] == "EPHEMERAL")
    {
        ephemeral["mount"]["secure"] = false.into();
    }
    if !cluster.kubelet_args.is_empty() {
        let kubelet = if blueprint.contract >= V1_14 {
            find(documents, "KubeletConfig")
        } else {
            Some(&mut documents[0]["machine"]["kubelet"])
        };
        if let Some(kubelet) = kubelet {
            kubelet["extraArgs"] = json!(cluster.kubelet_args);
        }
    }
    let roots = cluster.trusted_roots.iter();
    documents.extend(
        roots.map(|(name, pem)| document("TrustedRootsConfig", Some(name), json!({ "certificates": pem }))),
    );
    documents.extend(cluster.extension_services.iter().map(service));
}

fn service(service: &Service) -> Value {
    let mut body = json!({});
    if !service.files.is_empty() {
        let files =
            service.files.iter().map(|(path, text)| json!({ "content": text.expose(), "mountPath": path }));
        body["configFiles"] = files.collect();
    }
    if !service.environment.is_empty() {
        let variables = service.environment.iter().map(|(name, text)| format!("{name}={}", text.expose()));
        body["environment"] = variables.collect();
    }
    document("ExtensionServiceConfig", Some(&service.name), body)
}
