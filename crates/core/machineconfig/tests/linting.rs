//! Linting patches for a Talos and a contract.

use ichor_machineconfig::{
    Patch,
    lint::{Target, lint},
};
use ichor_model::{Findings, Minor, Severity, SourceId};

fn findings(patch: &str, talos: u64, contract: u64) -> Findings {
    let patch = Patch::parse("test", SourceId(0), patch.as_bytes()).unwrap_or_else(|f| panic!("{f:#?}"));
    lint(&patch, Target { talos: Minor::new(1, talos), contract: Minor::new(1, contract) })
}

fn says(patch: &str, versions: (u64, u64), severity: Severity, words: &str) {
    let found = findings(patch, versions.0, versions.1);
    let same = |message: &str| message.contains(words);
    let fits = found.iter().any(|finding| finding.severity == severity && same(&finding.message));
    assert!(fits, "{versions:?} {patch}\nwanted {words}\ngot {found:#?}");
    assert!(found.iter().all(|finding| finding.remedy.is_some()), "{found:#?}");
}

#[test]
fn good_patches_have_no_findings() {
    for (patch, talos, contract) in [
        ("machine: {kubelet: {extraArgs: {a: b}}}", 13, 13),
        ("machine: {network: {hostname: cp-1}}", 11, 11),
        ("machine: {nodeLabels: {a: b}}", 14, 13),
        ("apiVersion: v1alpha1\nkind: HostnameConfig\nauto: off\nhostname: cp-1", 13, 13),
        ("[{op: add, path: /machine/kubelet, value: {}}]", 11, 11),
        ("", 13, 13),
    ] {
        let found = findings(patch, talos, contract);
        assert!(found.is_empty(), "{patch}: {found:#?}");
    }
}

#[test]
fn fields_that_the_target_lacks_are_named_with_their_release() {
    says(
        "machine: {features: {imageCache: {localEnabled: true}}}",
        (8, 8),
        Severity::Error,
        "exists since Talos 1.9",
    );
    says(
        "apiVersion: v1alpha1\nkind: KubeSpanConfig\nenabled: true",
        (12, 12),
        Severity::Error,
        "exist since Talos 1.13",
    );
    says("cluster: {apiServer: {extraArgs: {a: [b]}}}", (12, 12), Severity::Error, "since 1.13");
}

#[test]
fn deprecated_fields_are_named_with_their_replacement() {
    says(
        "machine: {network: {nameservers: [1.1.1.1]}}",
        (13, 13),
        Severity::Warning,
        "`machine.network.nameservers` is deprecated since Talos 1.12",
    );
    says(
        "machine: {install: {extensions: [{image: a}]}}",
        (11, 11),
        Severity::Warning,
        "`machine.install.extensions` is deprecated",
    );
    let both = "machine: {network: {nameservers: [1.1.1.1]}}\n---\napiVersion: v1alpha1\nkind: ResolverConfig\nnameservers: [{address: 1.1.1.1}]";
    says(both, (13, 11), Severity::Error, ".machine.network.nameservers is already set in v1alpha1 config");
}

#[test]
fn documents_of_the_contract_take_legacy_fields() {
    says(
        "machine: {nodeLabels: {a: b}}",
        (14, 14),
        Severity::Error,
        ".machine.nodeLabels is already set in v1alpha1 config",
    );
    says(
        "machine: {features: {hostDNS: {enabled: true}}}",
        (14, 14),
        Severity::Error,
        ".machine.features.hostDNS is already set",
    );
    assert!(!findings("machine: {nodeLabels: {a: b}}", 14, 13).has_errors());
}

#[test]
fn hostname_traps() {
    says(
        "machine: {network: {hostname: a}}",
        (12, 12),
        Severity::Error,
        "static hostname is already set in v1alpha1 config",
    );
    says(
        "machine: {features: {stableHostname: true}}",
        (13, 13),
        Severity::Error,
        "stable hostname is already set in v1alpha1 config",
    );
    assert!(!findings("machine: {network: {hostname: a}}", 13, 11).has_errors());
    let alone = "apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: a";
    says(alone, (13, 13), Severity::Error, "'auto' and 'hostname' cannot be set at the same time");
    assert!(!findings(alone, 13, 11).has_errors());
    says(
        "apiVersion: v1alpha1\nkind: HostnameConfig\nauto: off",
        (12, 12),
        Severity::Warning,
        "early releases of Talos 1.12",
    );
}

#[test]
fn operations_do_not_work_on_contracts_with_several_documents() {
    let patch = "[{op: add, path: /machine/nodeLabels/a, value: b}]";
    says(
        patch,
        (13, 12),
        Severity::Error,
        "JSON6902 patches are not supported for multi-document machine configuration",
    );
    let found = findings(patch, 13, 12);
    let remedy = found.iter().find_map(|finding| finding.remedy.clone()).unwrap_or_default();
    assert!(remedy.ends_with("machine:\n    nodeLabels:\n        a: b\n"), "{remedy}");
}

#[test]
fn values_without_effect_are_reported() {
    says(
        "cluster: {clusterName: ''}",
        (13, 13),
        Severity::Warning,
        "`cluster.clusterName` in the v1alpha1 document has no effect here",
    );
    assert!(findings("machine: {nodeLabels: {a: ''}}", 13, 13).is_empty());
    assert!(findings("debug: false", 13, 13).is_empty());
}
