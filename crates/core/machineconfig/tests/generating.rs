//! The shapes of the contracts, and that what is generated reads back and is valid.

use ichor_machineconfig::{
    Config, emit,
    generate::{Blueprint, Cni, Install, documents},
    pki::Timestamp,
    secrets::Bundle,
    validate,
    validate::Mode,
};
use ichor_model::{Minor, desired::Role};
use serde_json::Value;

const SECRETS: &str = include_str!("golden/secrets.yaml");

fn bundle() -> Bundle {
    Bundle::from_secrets_yaml(SECRETS, Timestamp::from_unix_seconds(1_800_000_000))
        .expect("the golden bundle")
}

fn blueprint(role: Role, minor: u64) -> Blueprint {
    let release = format!("v1.{}.0", minor + 22);
    let mut blueprint = Blueprint::new(
        role,
        Minor::new(1, minor),
        "homelab",
        "https://10.0.0.20:6443",
        release.parse().expect("a release"),
    );
    blueprint.install = Some(Install { disk: Some("/dev/sda".into()), image: None, kernel_args: Vec::new() });
    blueprint
}

fn kinds(documents: &[Value]) -> Vec<&str> {
    documents.iter().filter_map(|document| document["kind"].as_str()).collect()
}

#[test]
fn every_contract_gives_configs_that_its_nodes_accept() {
    for minor in 8..=14 {
        for role in Role::ALL {
            let mut config = Config::default();
            for document in documents(&blueprint(role, minor), &bundle()) {
                config.push(ichor_machineconfig::Document::from_json(&document).expect("a known document"));
            }
            for mode in [Mode::Metal, Mode::Cloud] {
                let findings = validate(&config, Minor::new(1, minor), mode);
                assert!(!findings.has_errors(), "1.{minor} {role}: {findings:?}");
            }
            let text = emit(&config);
            assert_eq!(
                emit(&Config::parse(ichor_model::SourceId(0), text.as_bytes()).expect("reads back")),
                text,
                "1.{minor} {role}"
            );
        }
    }
}

#[test]
fn documents_take_over_from_contract_to_contract() {
    let control_plane = |minor| documents(&blueprint(Role::ControlPlane, minor), &bundle());
    assert!(kinds(&control_plane(11)).is_empty());
    assert_eq!(kinds(&control_plane(12)), ["HostnameConfig"]);
    assert_eq!(kinds(&control_plane(13)), ["HostnameConfig"]);
    assert!(kinds(&control_plane(14)).contains(&"KubeFlannelCNIConfig"));
    assert_eq!(control_plane(12)[0]["machine"]["network"], serde_json::json!({}));
    assert_eq!(control_plane(13)[0]["machine"]["network"], Value::Null);
}

#[test]
fn a_worker_gets_no_keys_of_authorities() {
    for minor in [11, 13, 14] {
        let text =
            serde_json::to_string(&documents(&blueprint(Role::Worker, minor), &bundle())).expect("JSON");
        assert!(!text.contains("PRIVATE KEY"), "1.{minor}");
    }
}

#[test]
fn without_a_pod_network_nodes_wait_for_somebody_elses() {
    let mut wanted = blueprint(Role::ControlPlane, 14);
    wanted.cni = Cni::None;
    assert!(!kinds(&documents(&wanted, &bundle())).contains(&"KubeFlannelCNIConfig"));
    wanted.contract = Minor::new(1, 13);
    assert_eq!(documents(&wanted, &bundle())[0]["cluster"]["network"]["cni"]["name"], "none");
}
