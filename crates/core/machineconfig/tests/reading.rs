//! Reading configs: what each field takes, and what is refused, with its place.

use ichor_machineconfig::{Config, document::MAX_BYTES, emit};
use ichor_model::{Code, Findings, SourceId};

fn read(text: &str) -> Config {
    Config::parse(SourceId(0), text.as_bytes()).unwrap_or_else(|findings| panic!("{text}\n{findings:#?}"))
}

fn refused(text: &str) -> Findings {
    Config::parse(SourceId(0), text.as_bytes()).err().unwrap_or_else(|| panic!("{text} was read"))
}

fn written(text: &str, path: &str) -> String {
    let all = emit(&read(text));
    let line = all.lines().find_map(|line| line.trim_start().strip_prefix(&format!("{path}: ")));
    line.unwrap_or_else(|| panic!("no `{path}` in\n{all}")).to_owned()
}

#[test]
fn fields_decide_what_a_scalar_is() {
    for (text, key, value) in [
        ("debug: yes", "debug", "true"),
        ("debug: 'off'", "debug", "false"),
        ("machine: {env: {a: yes}}", "a", "\"yes\""),
        ("machine: {files: [{permissions: 0644}]}", "permissions", "0o644"),
        ("machine: {files: [{permissions: 420}]}", "permissions", "0o644"),
        ("machine: {nodeLabels: {a: 0644}}", "a", "\"0644\""),
        ("machine: {nodeLabels: {a: }}", "a", "\"\""),
        ("machine: {network: {interfaces: [{interface: e, mtu: 1500.0}]}}", "mtu", "1500"),
        ("machine: {time: {bootTimeout: 90s}}", "bootTimeout", "1m30s"),
        ("machine: {disks: [{device: d, partitions: [{size: 100GB}]}]}", "- size", "100 GB"),
        ("machine: {kubelet: {extraConfig: {a: 0x10}}}", "a", "16"),
        ("machine: {ca: {crt: \"YR==\"}}", "crt", "YQ=="),
        ("cluster: {controlPlane: {endpoint: HTTPS://A:6443}}", "endpoint", "https://A:6443"),
        ("apiVersion: v1alpha1\nkind: HostnameConfig\nauto: OFF", "auto", "\"off\""),
        ("apiVersion: v1alpha1\nkind: DHCPv4Config\nname: e\nduidRaw: AA:bbCC", "duidRaw", "aa:bb:cc"),
        ("apiVersion: v1alpha1\nkind: RoutingRuleConfig\nname: '1'\ntable: 10", "table", "\"10\""),
    ] {
        assert_eq!(written(text, key), value, "{text}");
    }
}

#[test]
fn wrong_values_are_refused_with_a_place_and_a_remedy() {
    for (text, code, wrong) in [
        ("debug: maybe", Code::BAD_BOOLEAN, "maybe"),
        ("debug: 'true'", Code::BAD_BOOLEAN, "'true'"),
        ("machine: {network: {interfaces: [{mtu: 1.5}]}}", Code::BAD_NUMBER, "1.5"),
        ("machine: {network: {interfaces: [{mtu: '1500'}]}}", Code::BAD_NUMBER, "'1500'"),
        ("machine: {files: [{permissions: '0644'}]}", Code::BAD_NUMBER, "'0644'"),
        ("machine: {time: {bootTimeout: 90}}", Code::BAD_NUMBER, "90"),
        ("machine: {certSANs: a}", Code::WRONG_TYPE, "a"),
        ("machine: [a]", Code::WRONG_TYPE, "machine"),
        ("machine: {type: [a]}", Code::WRONG_TYPE, "type"),
        ("machine: {ca: {crt: '%'}}", Code::WRONG_TYPE, "'%'"),
        ("machine: {network: {interfaces: [~]}}", Code::EMPTY_VALUE, "~"),
        ("machine: {registries: {mirrors: {a: ~}}}", Code::EMPTY_VALUE, "~"),
        ("machine: {kubelet: {extraConfig: {a: 2001-01-01}}}", Code::AMBIGUOUS_TEXT, "2001-01-01"),
        ("machine: {kubelet: {extraConfig: {a: {1: b}}}}", Code::BAD_KEY, "1"),
        ("machine: {nonsense: 1}", Code::CONFIG_KEY, "nonsense"),
        ("cluster: {controlPlane: {endpoint: '10.0.0.1:6443'}}", Code::BAD_URL, "'10.0.0.1:6443'"),
        ("apiVersion: v1alpha1\nkind: HostnameConfig\nauto: never", Code::BAD_CHOICE, "never"),
        (
            "apiVersion: v1alpha1\nkind: KubeNetworkConfig\npodSubnets: [10.0.0.0]",
            Code::BAD_ADDRESS,
            "10.0.0.0",
        ),
        (
            "apiVersion: v1alpha1\nkind: VolumeConfig\nname: a\nprovisioning: {minSize: big}",
            Code::BAD_SIZE,
            "big",
        ),
        ("apiVersion: v1alpha1\nkind: LinkConfg\nname: a", Code::CONFIG_KIND, "LinkConfg"),
        ("apiVersion: v1beta1\nkind: LinkConfig\nname: a", Code::CONFIG_KIND, "LinkConfig"),
    ] {
        let findings = refused(text);
        let found: Vec<_> = findings.iter().collect();
        assert_eq!(found.len(), 1, "{text}: {found:#?}");
        assert_eq!(found[0].code, code, "{text}: {found:#?}");
        assert!(found[0].remedy.is_some(), "{text}");
        let at = found[0].at.unwrap_or_else(|| panic!("{text} has no place"));
        assert_eq!(&text[at.start as usize..at.end as usize], wrong, "{text}");
    }
}

#[test]
fn documents_need_a_kind_or_the_legacy_keys() {
    for (text, message) in [
        ("version: v1alpha1", "missing kind"),
        ("kind: LinkConfig", "missing apiVersion"),
        ("machine: {}\n---\nmachine: {}", "duplicate document /v1alpha1/ is not allowed"),
        (
            "apiVersion: v1alpha1\nkind: LinkConfig\nname: a\n---\napiVersion: v1alpha1\nkind: LinkConfig\nname: a",
            "duplicate document v1alpha1/LinkConfig/a is not allowed",
        ),
        ("apiVersion: v1alpha1\nkind: Foo", "\"Foo\" \"v1alpha1\": not registered"),
    ] {
        let findings = refused(text);
        assert!(findings.iter().any(|finding| finding.message == message), "{text}: {findings:#?}");
    }
    let names = "apiVersion: v1alpha1\nkind: LinkConfig\nname: a\n---\napiVersion: v1alpha1\nkind: LinkConfig\nname: b";
    assert_eq!(read(names).documents().len(), 2);
}

#[test]
fn all_findings_come_at_once_and_near_misses_are_named() {
    let findings = refused("machine:\n  kublet: {}\n  typ: worker\ncluster:\n  network: {podSubnet: []}\n");
    let remedies: Vec<_> = findings.iter().filter_map(|finding| finding.remedy.clone()).collect();
    assert_eq!(remedies, ["did you mean `kubelet`?", "did you mean `type`?", "did you mean `podSubnets`?"]);
}

#[test]
fn what_cannot_be_understood_is_kept_when_reading_leniently() {
    let text = "machine:\n    type: worker\n    token: \"\"\n    certSANs: []\n    later: {a: [1]}\n";
    let (config, findings) = Config::read(SourceId(0), text.as_bytes());
    assert_eq!(findings.iter().count(), 1);
    assert!(emit(&config).contains("    later:\n        a:\n            - 1\n"));
}

#[test]
fn hostile_input_is_refused_in_good_time() {
    let unknown: String = (0..60_000).map(|i| format!("k{i}: \n")).collect();
    let documents = "---\nkind: a\n".repeat(60_000);
    let large = vec![b'a'; 10 * 1024 * 1024];
    let repeated = format!("a: &a {}\nb: [{}]\n", "x".repeat(10_000), ["*a"; 1_000].join(","));
    let hostile = [unknown.as_bytes(), documents.as_bytes(), &large, repeated.as_bytes()];
    for bytes in hostile.into_iter().chain(["[".repeat(100_000).as_bytes()]) {
        assert!(Config::parse(SourceId(0), bytes).is_err());
    }
    let findings = Config::parse(SourceId(0), &large).expect_err("too large");
    let finding = findings.iter().next().expect("a finding");
    assert_eq!(finding.code, Code::TOO_LARGE);
    assert!(finding.notes[0].contains(&MAX_BYTES.to_string()), "{:?}", finding.notes);
}

#[test]
fn secrets_stand_in_no_message_and_no_debug_output() {
    let config = read("machine: {token: hunter2}\ncluster: {secret: hunter2}");
    assert!(!format!("{config:?} {:?}", config.legacy_value("machine")).contains("hunter2"));
    let findings = refused("machine: {ca: {key: 'hunter2!'}}");
    assert!(
        findings.iter().all(|finding| finding.private && !finding.message.contains("hunter2")),
        "{findings:#?}"
    );
}

#[test]
fn json_values_become_documents() {
    let json = serde_json::json!({"apiVersion": "v1alpha1", "kind": "LinkConfig", "name": "eth0", "mtu": 9000, "up": "yes"});
    let config = Config::from_json(&[json]).expect("reads");
    assert_eq!(emit(&config), "apiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\nup: true\nmtu: 9000\n");
}
