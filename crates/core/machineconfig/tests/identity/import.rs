//! Bundles out of machine configs.

use base64::{Engine, engine::general_purpose::STANDARD};
use ichor_machineconfig::{
    pki::Authority,
    secrets::{Bundle, Encryption, contracts_of},
};

use crate::support::{bundle, now};

fn pair(authority: &Authority) -> String {
    let (crt, key) = (authority.certificate().pem(), authority.key().pem().expose());
    format!("{{crt: {}, key: {}}}", STANDARD.encode(crt), STANDARD.encode(key))
}

fn block(pem: &str) -> String {
    pem.lines().map(|line| format!("        {line}\n")).collect()
}

fn encryption(bundle: &Bundle) -> &str {
    match &bundle.encryption {
        Encryption::Secretbox(key) | Encryption::AesCbc(key) => key.expose(),
    }
}

/// A control plane's config as contracts up to 1.13 have it, with a document beside it as from 1.12 on.
fn old_config(bundle: &Bundle) -> String {
    format!(
        "version: v1alpha1\nmachine:\n    type: controlplane\n    token: {}\n    ca: {}\n\
         cluster:\n    id: {}\n    secret: {}\n    token: {}\n    secretboxEncryptionSecret: {}\n    ca: {}\n    \
         aggregatorCA: {}\n    serviceAccount:\n        key: {}\n    etcd:\n        ca: {}\n\
         ---\napiVersion: v1alpha1\nkind: HostnameConfig\nauto: stable\n",
        bundle.trustd_token.expose(),
        pair(&bundle.os),
        bundle.cluster_id,
        bundle.cluster_secret.expose(),
        bundle.bootstrap_token.expose(),
        encryption(bundle),
        pair(&bundle.kubernetes),
        pair(&bundle.aggregator),
        STANDARD.encode(bundle.service_account.pem().expose()),
        pair(&bundle.etcd),
    )
}

/// A control plane's config as contracts from 1.14 on have it.
fn new_config(bundle: &Bundle, provider: &str) -> String {
    let authority = |kind: &str, authority: &Authority| {
        let (cert, key) = (block(authority.certificate().pem()), block(authority.key().pem().expose()));
        format!("---\napiVersion: v1alpha1\nkind: {kind}\nissuingCA:\n    cert: |\n{cert}    key: |\n{key}")
    };
    format!(
        "version: v1alpha1\nmachine:\n    type: controlplane\n    token: {}\n    ca: {}\ncluster:\n    token: {}\n    \
         etcd:\n        ca: {}\n---\napiVersion: v1alpha1\nkind: DiscoveryIdentityConfig\nclusterID: {}\n\
         clusterSecret: {}\n{}{}---\napiVersion: v1alpha1\nkind: KubeEtcdEncryptionConfig\nconfig:\n    resources:\n        \
         - providers:\n            - {provider}:\n                keys:\n                    - name: key2\n                      \
         secret: {}\n            - identity: {{}}\n          resources:\n            - secrets\n\
         ---\napiVersion: v1alpha1\nkind: KubeServiceAccountConfig\nissuer:\n    privateKey: |\n{}    issuerURL: https://x\n",
        bundle.trustd_token.expose(),
        pair(&bundle.os),
        bundle.bootstrap_token.expose(),
        pair(&bundle.etcd),
        bundle.cluster_id,
        bundle.cluster_secret.expose(),
        authority("KubeAPIServerCAConfig", &bundle.kubernetes),
        authority("KubeAggregatorCAConfig", &bundle.aggregator),
        encryption(bundle),
        block(bundle.service_account.pem().expose()),
    )
}

fn message(text: &str) -> String {
    Bundle::from_machine_config(text, now()).expect_err("flaws").to_string()
}

#[test]
fn both_shapes_of_config_give_the_same_bundle() {
    let bundle = bundle(4);
    for text in [old_config(&bundle), new_config(&bundle, "secretbox")] {
        let read = Bundle::from_machine_config(&text, now()).expect("a bundle");
        assert!(read.to_secrets_yaml() == bundle.to_secrets_yaml(), "the bundle changed on the way");
    }
    let read = Bundle::from_machine_config(&new_config(&bundle, "aescbc"), now()).expect("a bundle");
    assert!(matches!(read.encryption, Encryption::AesCbc(_)));
}

#[test]
fn a_config_between_the_shapes_is_read_too() {
    let bundle = bundle(4);
    let extra = format!(
        "---\napiVersion: v1alpha1\nkind: DiscoveryIdentityConfig\nclusterID: other\nclusterSecret: {}\n",
        bundle.cluster_secret.expose()
    );
    let read = Bundle::from_machine_config(&(old_config(&bundle) + &extra), now()).expect("a bundle");
    assert_eq!(read.cluster_id, "other");
}

#[test]
fn a_worker_has_no_bundle_to_give() {
    let text = old_config(&bundle(4)).replace("type: controlplane", "type: worker");
    assert!(message(&text).starts_with("`machine.type` (line 3) is that of a worker"));
}

#[test]
fn redacted_and_missing_parts_are_named_at_once() {
    let bundle = bundle(4);
    let key = STANDARD.encode(bundle.os.key().pem().expose());
    let text = old_config(&bundle).replace(&key, "'******'").replace("    aggregatorCA:", "    extra:");
    let found = message(&text);
    let lines: Vec<&str> = found.lines().collect();
    assert_eq!(lines.len(), 3, "{found}");
    assert_eq!(lines[0], "`cluster.aggregatorCA.crt` is missing");
    assert_eq!(lines[1], "`cluster.aggregatorCA.key` is missing");
    assert!(lines[2].starts_with("`machine.ca.key` (line 5) is redacted"), "{found}");

    let text =
        new_config(&bundle, "kms").replace("clusterID", "clusterIDs").replace("    key: |", "    keys: |");
    let paths: Vec<String> = Bundle::from_machine_config(&text, now())
        .expect_err("flaws")
        .iter()
        .map(|flaw| flaw.path.clone())
        .collect();
    assert_eq!(
        paths,
        [
            "DiscoveryIdentityConfig.clusterID",
            "KubeEtcdEncryptionConfig.secretbox",
            "KubeAPIServerCAConfig.issuingCA.key",
            "KubeAggregatorCAConfig.issuingCA.key",
        ]
    );
}

#[test]
fn what_is_no_machine_config_is_refused() {
    for text in ["", "a: 1", "kind: Pod\nmachine: {type: controlplane}", "machine: [1]", "- machine"] {
        let found = message(text);
        assert!(found.contains("machine"), "{text}: {found}");
    }
    assert!(message("machine: {type: other}").contains("neither"));
}

#[test]
fn a_config_shows_the_contracts_whose_shape_it_has() {
    let bundle = bundle(1);
    let shape = |text: &str| contracts_of(text).map(|(first, last)| format!("{first}-{last}"));
    let with_features = old_config(&bundle)
        .replace("    type: controlplane\n", "    type: controlplane\n    features: {rbac: true}\n");
    assert_eq!(shape(&with_features).as_deref(), Some("1.8-1.11"));
    assert_eq!(shape(&old_config(&bundle)).as_deref(), Some("1.12-1.13"));
    assert_eq!(shape(&new_config(&bundle, "secretbox")).as_deref(), Some("1.14-1.14"));
    for text in ["", "machine: {type: controlplane}\n", "- 1\n", "machine: [\n"] {
        assert_eq!(shape(text), None, "{text}");
    }
}

#[test]
fn authorities_that_have_ended_are_no_flaw_where_nobody_asks_for_the_time() {
    let bundle = bundle(1);
    let config = old_config(&bundle);
    let late = now().plus(std::time::Duration::from_hours(20 * 365 * 24));
    assert!(Bundle::from_machine_config(&config, late).is_err());
    assert_eq!(Bundle::from_machine_config(&config, None), Ok(bundle));
}
