//! Patching: one table for each rule of Talos.

use ichor_machineconfig::{Config, Patch, apply, emit};
use ichor_model::{Findings, Minor, SourceId};

const ALL: [u64; 7] = [8, 9, 10, 11, 12, 13, 14];

fn read(text: &str) -> Config {
    Config::parse(SourceId(0), text.as_bytes()).unwrap_or_else(|findings| panic!("{text}\n{findings:#?}"))
}

fn patched(config: &str, patches: &[&str], minor: u64) -> Result<Config, Findings> {
    let patches: Result<Vec<_>, _> =
        patches.iter().map(|patch| Patch::parse("test", SourceId(1), patch.as_bytes())).collect();
    apply(&read(config), &patches?, Minor::new(1, minor))
}

/// Asserts that a patch turns a config into another one.
fn becomes(config: &str, patch: &str, wanted: &str, minors: &[u64]) {
    for minor in minors {
        let got = patched(config, &[patch], *minor).unwrap_or_else(|f| panic!("1.{minor}: {patch}\n{f:#?}"));
        assert_eq!(emit(&got), emit(&read(wanted)), "1.{minor}: {config} + {patch}");
    }
}

/// Asserts that a patch is refused with these words.
fn refused(config: &str, patch: &str, words: &str, minors: &[u64]) {
    for minor in minors {
        let findings =
            patched(config, &[patch], *minor).err().unwrap_or_else(|| panic!("1.{minor}: {patch} applied"));
        assert!(findings.iter().any(|finding| finding.message.contains(words)), "1.{minor}: {findings:#?}");
        assert!(findings.iter().all(|finding| finding.remedy.is_some()), "1.{minor}: {findings:#?}");
        let named = |notes: &[String]| notes.iter().any(|note| note == "in patch `test`");
        assert!(findings.iter().all(|finding| named(&finding.notes)), "{findings:#?}");
    }
}

fn document(kind: &str, rest: &str) -> String {
    format!("apiVersion: v1alpha1\nkind: {kind}\n{rest}\n")
}

#[test]
fn scalars_are_replaced_unless_zero() {
    becomes(
        "machine: {type: worker}",
        "machine: {type: controlplane}",
        "machine: {type: controlplane}",
        &ALL,
    );
    becomes("machine: {type: worker}", "machine: {type: ''}", "machine: {type: worker}", &ALL);
    becomes("machine: {type: worker}", "machine: {type: ~}", "machine: {type: worker}", &ALL);
    let interface =
        |mtu: u32| format!("machine: {{network: {{interfaces: [{{interface: e, mtu: {mtu}}}]}}}}");
    becomes(&interface(1500), &interface(0), &interface(1500), &ALL);
    let action = |word: &str| document("NetworkDefaultActionConfig", &format!("ingress: {word}"));
    becomes(&action("block"), &action("accept"), &action("block"), &ALL);
    becomes(&action("accept"), &action("block"), &action("block"), &ALL);
}

#[test]
fn optional_scalars_can_be_set_to_zero() {
    becomes("debug: true\nmachine: {}", "debug: false", "debug: false\nmachine: {}", &ALL);
    let kubespan = |mtu: u32| format!("machine: {{network: {{kubespan: {{mtu: {mtu}}}}}}}");
    becomes(&kubespan(1400), &kubespan(0), &kubespan(1400), &[8, 9, 10, 11]);
    becomes(&kubespan(1400), &kubespan(0), &kubespan(0), &[12, 13, 14]);
    becomes("machine: {network: {kubespan: {}}}", &kubespan(0), &kubespan(0), &ALL);
}

#[test]
fn maps_are_united() {
    becomes(
        "machine: {nodeLabels: {a: '1', b: '2'}}",
        "machine: {nodeLabels: {b: '3', c: '', a: ''}}",
        "machine: {nodeLabels: {a: '1', b: '3', c: ''}}",
        &ALL,
    );
    becomes(
        "machine: {registries: {mirrors: {a: {endpoints: [x]}}}}",
        "machine: {registries: {mirrors: {a: {endpoints: [y], overridePath: true}, b: {endpoints: [z]}}}}",
        "machine: {registries: {mirrors: {a: {endpoints: [x, y], overridePath: true}, b: {endpoints: [z]}}}}",
        &ALL,
    );
}

#[test]
fn arguments_are_replaced_by_key() {
    let args = |args: &str| format!("cluster: {{apiServer: {{extraArgs: {{{args}}}}}}}");
    becomes(&args("a: x, b: y"), &args("a: z"), &args("a: z, b: y"), &ALL);
    becomes(&args("a: x"), &args("a: ''"), &args("a: x"), &[8, 9, 10, 11, 12]);
    becomes(&args("a: x"), &args("a: ''"), &args("a: ''"), &[13, 14]);
    becomes(&args("a: x"), &args("a: [y, z]"), &args("a: [y, z]"), &[13, 14]);
}

#[test]
fn free_form_values_merge_by_type() {
    let extra = |value: &str| format!("machine: {{kubelet: {{extraConfig: {value}}}}}");
    becomes(
        &extra("{a: 1, b: {c: [1], d: x}, e: true}"),
        &extra("{a: 2, b: {c: [2], d: ''}, e: false, f: ~}"),
        &extra("{a: 2, b: {c: [1, 2], d: x}, e: false, f: ~}"),
        &ALL,
    );
    becomes(&extra("{a: ~}"), &extra("{a: [1]}"), &extra("{a: [1]}"), &ALL);
    becomes(&extra("{a: 1}"), &extra("{}"), &extra("{a: 1}"), &ALL);
    for (left, right, words) in [
        ("{a: 1}", "{a: x}", "merge type mismatch left int right string"),
        ("{a: 1}", "{a: 1.5}", "merge type mismatch left int right float64"),
        (
            "{a: {b: [1]}}",
            "{a: {b: {}}}",
            "merge type mismatch left []interface {} right map[string]interface {}",
        ),
        ("{a: 1}", "{a: ~}", "merge type mismatch left int right nil"),
    ] {
        refused(&extra(left), &extra(right), words, &ALL);
    }
}

#[test]
fn lists_are_appended_replaced_or_merged_by_key() {
    becomes(
        "machine: {certSANs: [a]}",
        "machine: {certSANs: [a, b]}",
        "machine: {certSANs: [a, a, b]}",
        &ALL,
    );
    let subnets = |list: &str| format!("cluster: {{network: {{podSubnets: {list}}}}}");
    becomes(&subnets("[a]"), &subnets("[b]"), &subnets("[b]"), &ALL);
    becomes(&subnets("[a]"), &subnets("[]"), &subnets("[]"), &ALL);
    becomes(&subnets("[a]"), &subnets("~"), &subnets("[a]"), &ALL);
    let rule = |ports: &str| {
        document("NetworkRuleConfig", &format!("name: a\nportSelector: {{ports: {ports}, protocol: tcp}}"))
    };
    becomes(&rule("[80, 81]"), &rule("[82]"), &rule("[82]"), &ALL);
    let domains = |list: &str| document("ResolverConfig", &format!("searchDomains: {{domains: {list}}}"));
    becomes(&domains("[a]"), &domains("[b]"), &domains("[a, b]"), &[12, 13]);
    becomes(&domains("[a]"), &domains("[b]"), &domains("[b]"), &[14]);
}

#[test]
fn interfaces_are_found_by_name_or_selector() {
    let network = |list: &str| format!("machine: {{network: {{interfaces: {list}}}}}");
    becomes(
        &network("[{interface: a, addresses: [1]}, {interface: b}]"),
        &network("[{interface: a, addresses: [2], dhcp: true}, {interface: c}]"),
        &network("[{interface: a, addresses: [1, 2], dhcp: true}, {interface: b}, {interface: c}]"),
        &ALL,
    );
    let selector =
        |mtu: u32| network(&format!("[{{deviceSelector: {{driver: d, hardwareAddr: h}}, mtu: {mtu}}}]"));
    becomes(&selector(1), &selector(2), &selector(2), &ALL);
    // Talos compares the addresses of the two switches, so these never match.
    becomes(
        &network("[{deviceSelector: {physical: true}, mtu: 1}]"),
        &network("[{deviceSelector: {physical: true}, mtu: 2}]"),
        &network("[{deviceSelector: {physical: true}, mtu: 1}, {deviceSelector: {physical: true}, mtu: 2}]"),
        &ALL,
    );
    becomes(
        &network("[{interface: a, vlans: [{vlanId: 4, mtu: 1}]}]"),
        &network("[{interface: a, vlans: [{vlanId: 4, mtu: 2}, {vlanId: 5}]}]"),
        &network("[{interface: a, vlans: [{vlanId: 4, mtu: 2}, {vlanId: 5}]}]"),
        &ALL,
    );
    // Taken over with all it holds, the list is not looked through.
    becomes(
        "machine: {}",
        &network("[{interface: a}, {interface: a}]"),
        &network("[{interface: a}, {interface: a}]"),
        &ALL,
    );
    becomes(
        "machine: {network: {}}",
        &network("[{interface: a}, {interface: a, mtu: 1}]"),
        &network("[{interface: a, mtu: 1}]"),
        &ALL,
    );
}

#[test]
fn other_keyed_lists() {
    let admission = |list: &str| format!("cluster: {{apiServer: {{admissionControl: {list}}}}}");
    becomes(
        &admission("[{name: P, configuration: {a: {b: [1]}}}]"),
        &admission("[{name: P, configuration: {a: {b: [2]}}}, {name: Q, configuration: {}}]"),
        &admission("[{name: P, configuration: {a: {b: [1, 2]}}}, {name: Q, configuration: {}}]"),
        &ALL,
    );
    let files = |list: &str| document("ExtensionServiceConfig", &format!("name: a\nconfigFiles: {list}"));
    becomes(
        &files("[{content: a, mountPath: /a}]"),
        &files("[{content: b, mountPath: /a}, {content: c, mountPath: /c}]"),
        &files("[{content: b, mountPath: /a}, {content: c, mountPath: /c}]"),
        &ALL,
    );
    let rules = |list: &str| document("ImageVerificationConfig", &format!("rules: {list}"));
    becomes(
        &rules("[{image: a, skip: true}, {image: b}]"),
        &rules("[{image: a, deny: true}, {image: c}]"),
        &rules("[{image: a, deny: true}, {image: b}, {image: c}]"),
        &[13, 14],
    );
}

#[test]
fn whole_values_are_replaced() {
    let audit = |policy: &str| format!("cluster: {{apiServer: {{auditPolicy: {policy}}}}}");
    becomes(
        &audit("{kind: Policy, rules: [{level: None}]}"),
        &audit("{rules: []}"),
        &audit("{rules: []}"),
        &ALL,
    );
    becomes(&audit("{kind: Policy}"), &audit("{}"), &audit("{kind: Policy}"), &ALL);
    becomes(
        "machine: {ca: {crt: YQ==, key: Yg==}}",
        "machine: {ca: {crt: Yw==}}",
        "machine: {ca: {crt: Yw==, key: ''}}",
        &ALL,
    );
    let pod = |spec: &str| document("KubeStaticPodConfig", &format!("name: a\npod: {spec}"));
    becomes(&pod("{a: 1, b: 2}"), &pod("{a: x}"), &pod("{a: x}"), &[14]);
}

#[test]
fn urls_merge_part_by_part() {
    let endpoint = |url: &str| format!("cluster: {{controlPlane: {{endpoint: '{url}'}}}}");
    becomes(
        &endpoint("https://old:6443/path?x=1"),
        &endpoint("http://new"),
        &endpoint("http://new/path?x=1"),
        &ALL,
    );
    refused(&endpoint("https://a:b@old"), &endpoint("https://c:d@new"), "cannot be patched", &ALL);
}

#[test]
fn sizes_and_expressions_are_reset_with_their_document() {
    let volume = |spec: &str| document("VolumeConfig", &format!("name: EPHEMERAL\nprovisioning: {spec}"));
    let full = volume("{diskSelector: {match: 'true'}, minSize: 1GB, maxSize: 2GB}");
    becomes(
        &full,
        &volume("{grow: true}"),
        &volume("{diskSelector: {match: 'true'}, grow: true, minSize: 1GB, maxSize: 2GB}"),
        &[8],
    );
    becomes(&full, &volume("{grow: true}"), &volume("{grow: true}"), &[9, 10, 11]);
    becomes(&full, &volume("{grow: true}"), &volume("{grow: true, maxSize: 2GB}"), &[12, 13, 14]);
    becomes(&volume("{maxSize: 2GB}"), &volume("{maxSize: 50%}"), &volume("{maxSize: 2GB}"), &[12, 13, 14]);
    becomes(&volume("{maxSize: 50%}"), &volume("{maxSize: 2GB}"), &volume("{maxSize: 2GB}"), &[12, 13, 14]);
    refused(&full, &volume("{minSize: 3GB}"), "cannot be patched", &[8]);
    let size = |size: &str| format!("machine: {{install: {{diskSelector: {{size: '{size}'}}}}}}");
    refused(&size(">= 1GB"), &size("<= 2GB"), "cannot be patched", &ALL);
}

#[test]
fn documents_are_found_by_kind_and_name_or_appended() {
    let link = |name: &str, mtu: u32| document("LinkConfig", &format!("name: {name}\nmtu: {mtu}"));
    let both = format!("{}---\n{}", link("a", 1), link("b", 2));
    becomes(&both, &link("b", 3), &format!("{}---\n{}", link("a", 1), link("b", 3)), &[12, 13, 14]);
    becomes(&both, &link("c", 3), &format!("{both}---\n{}", link("c", 3)), &[12, 13, 14]);
    becomes(
        &link("a", 1),
        "machine: {type: worker}",
        &format!("machine: {{type: worker}}\n---\n{}", link("a", 1)),
        &[12],
    );
    let twice = format!("{}---\n{}", link("a", 3), link("a", 4));
    refused(&both, &twice, "duplicate document v1alpha1/LinkConfig/a is not allowed", &[12, 13]);
    becomes(&link("a", 1), &twice, &link("a", 4), &[14]);
    let dummy = document("DummyLinkConfig", "name: a");
    refused(&both, &dummy, "conflicting documents: LinkConfig/a and DummyLinkConfig/a", &[12, 13, 14]);
}

#[test]
fn deletions_take_out_documents_keys_and_items() {
    let sink = document("EventSinkConfig", "endpoint: a:1");
    let config = format!("machine: {{type: worker}}\n---\n{sink}");
    becomes(&config, &document("EventSinkConfig", "$patch: delete"), "machine: {type: worker}", &ALL);
    becomes(
        "machine: {certSANs: [a], nodeLabels: {x: y, z: w}}",
        "machine: {certSANs: {$patch: delete}, nodeLabels: {x: {$patch: delete}, v: u}}",
        "machine: {nodeLabels: {z: w, v: u}}",
        &ALL,
    );
    becomes(
        "machine: {network: {interfaces: [{interface: a}, {interface: b}]}}",
        "machine: {network: {interfaces: [{interface: b, $patch: delete}, {interface: c}]}}",
        "machine: {network: {interfaces: [{interface: a}, {interface: c}]}}",
        &ALL,
    );
    becomes(
        "machine: {type: worker}",
        "machine: {nodeLabels: {$patch: delete}}",
        "machine: {type: worker}",
        &ALL,
    );
    let link = |list: &str| document("LinkConfig", &format!("name: a\naddresses: {list}"));
    becomes(
        &link("[{address: 10.0.0.1/24}, {address: 10.0.0.2/24}]"),
        &link("[{address: 10.0.0.1/24, $patch: delete}]"),
        &link("[{address: 10.0.0.2/24}]"),
        &[12, 13, 14],
    );
    let routes = |list: &str| document("LinkConfig", &format!("name: a\nroutes: {list}"));
    becomes(
        &routes("[{gateway: 10.0.0.1}, {gateway: 10.0.0.2, table: '10'}]"),
        &routes("[{table: unspec, $patch: delete}]"),
        &routes("[{gateway: 10.0.0.2, table: '10'}]"),
        &[12, 13, 14],
    );
}

#[test]
fn deletions_in_free_form_values_work_since_1_12() {
    let extra = |value: &str| format!("machine: {{kubelet: {{extraConfig: {value}}}}}");
    let delete = extra("{b: {c: {$patch: delete}}}");
    becomes(&extra("{b: {c: 1, d: 2}}"), &delete, &extra("{b: {d: 2}}"), &[12, 13, 14]);
    refused(&extra("{b: {c: 1, d: 2}}"), &delete, "lookup failed", &[8, 9, 10, 11]);
}

#[test]
fn impossible_deletions_are_refused() {
    for (config, patch, words) in [
        (
            "machine: {}",
            "machine: {network: {hostname: {$patch: delete}}}",
            "path 'machine.network.hostname' in document '/v1alpha1': failed to delete path 'machine.network.hostname': lookup failed",
        ),
        ("machine: {nodeLabels: {a: b}}", "machine: {nodeLabels: {c: {$patch: delete}}}", "lookup failed"),
        ("machine: {}", "machine: {nonsense: {$patch: delete}}", "lookup failed"),
        ("machine: {ca: {crt: YQ==}}", "machine: {ca: {key: {$patch: delete}}}", "lookup failed"),
        ("machine: {}", "machine: {}\n$patch: delete", "can't delete the root of the legacy document"),
        (
            "machine: {disks: [{device: a}]}",
            "machine: {disks: [{device: {$patch: delete}}]}",
            "cannot delete an inner key in 'machine.disks.[0].device'",
        ),
        ("machine: {disks: [{device: a}]}", "machine: {disks: [{$patch: delete}]}", "no key:val found"),
        (
            "machine: {network: {interfaces: [{interface: a, vlans: [{vlanId: 4}]}]}}",
            "machine: {network: {interfaces: [{interface: a, vlans: [{vlanId: 4, $patch: delete}]}]}}",
            "searching for complex paths in slices is not supported",
        ),
        ("machine: {}", "machine: {$patch: replace}", "is not `delete`"),
    ] {
        refused(config, patch, words, &ALL);
    }
    let missing = document("EventSinkConfig", "$patch: delete");
    refused(
        "machine: {}",
        &missing,
        "there is no document v1alpha1/EventSinkConfig/ to delete from",
        &[8, 13],
    );
    becomes("machine: {}", &missing, "machine: {}", &[14]);
}

#[test]
fn operations_work_on_a_single_document() {
    let config = "machine: {type: worker, certSANs: [a, b], nodeLabels: {a/b: c}}";
    for (patch, wanted) in [
        (
            "[{op: add, path: /machine/certSANs/-, value: c}]",
            "machine: {type: worker, certSANs: [a, b, c], nodeLabels: {a/b: c}}",
        ),
        (
            "[{op: add, path: /machine/certSANs/0, value: c}]",
            "machine: {type: worker, certSANs: [c, a, b], nodeLabels: {a/b: c}}",
        ),
        (
            "[{op: remove, path: /machine/certSANs/-1}]",
            "machine: {type: worker, certSANs: [a], nodeLabels: {a/b: c}}",
        ),
        (
            "[{op: replace, path: /machine/type, value: controlplane}]",
            "machine: {type: controlplane, certSANs: [a, b], nodeLabels: {a/b: c}}",
        ),
        (
            "- op: replace\n  path: /machine/nodeLabels/a~1b\n  value: d",
            "machine: {type: worker, certSANs: [a, b], nodeLabels: {a/b: d}}",
        ),
        (
            "[{op: test, path: /machine/type, value: worker}, {op: remove, path: /machine/nodeLabels}]",
            "machine: {type: worker, certSANs: [a, b]}",
        ),
        (
            "[{op: move, from: /machine/certSANs/1, path: /machine/certSANs/0}]",
            "machine: {type: worker, certSANs: [b, a], nodeLabels: {a/b: c}}",
        ),
        (
            "[{\"op\": \"copy\", \"from\": \"/machine/type\", \"path\": \"/machine/token\"}]",
            "machine: {type: worker, token: worker, certSANs: [a, b], nodeLabels: {a/b: c}}",
        ),
    ] {
        becomes(config, patch, wanted, &ALL);
    }
    for (patch, words) in [
        ("[{op: remove, path: /machine/kubelet}]", "doc is missing path: /machine/kubelet"),
        ("[{op: add, path: /machine/kubelet/image, value: a}]", "doc is missing path"),
        ("[{op: test, path: /machine/type, value: x}]", "failed"),
        ("[{op: add, path: /machine/certSANs/7, value: x}]", "doc is missing path"),
        ("[{op: frobnicate, path: /machine}]", "is not an operation"),
        ("[{op: add}]", "has no usable `path`"),
        ("[{path: /machine}]", "has no `op`"),
        ("[{op: add, path: /machine/nonsense, value: 1}]", "is not a key of Talos"),
    ] {
        refused(config, patch, words, &[13]);
    }
}

#[test]
fn operations_on_several_documents_are_refused_with_the_same_as_a_merge_patch() {
    let config = format!(
        "machine: {{certSANs: [a], nodeLabels: {{a: b}}}}\n---\n{}",
        document("HostnameConfig", "auto: stable")
    );
    let remedy = |patch: &str| {
        let findings = patched(&config, &[patch], 13).expect_err("refused");
        let finding = findings.iter().next().expect("one finding").clone();
        assert_eq!(
            finding.message,
            "JSON6902 patches are not supported for multi-document machine configuration"
        );
        finding.remedy.expect("a remedy")
    };
    let patch = "[{op: add, path: /machine/nodeLabels/c, value: d}, {op: remove, path: /machine/certSANs}, {op: add, path: /machine/kubelet, value: {image: x}}, {op: add, path: /cluster/extraManifests/-, value: u}]";
    let derived = "machine:\n    nodeLabels:\n        c: d\n    certSANs:\n        $patch: delete\n    kubelet:\n        image: x\ncluster:\n    extraManifests:\n        - u\n";
    assert_eq!(remedy(patch), format!("write the same as a strategic merge patch:\n{derived}"));
    assert!(patched(&config, &[derived], 13).is_ok());
    for patch in [
        "[{op: replace, path: /machine/certSANs, value: [b]}]",
        "[{op: replace, path: /machine/certSANs/0, value: b}]",
        "[{op: add, path: /machine/nodeLabels, value: {c: d}}]",
        "[{op: move, from: /machine/type, path: /machine/token}]",
    ] {
        assert!(remedy(patch).starts_with("write a strategic merge patch: a document"), "{patch}");
    }
}

#[test]
fn patches_of_an_inventory_are_documents_lists_operations_or_text() {
    let config = read("machine: {type: worker}");
    let json = |value: serde_json::Value| {
        let patch = Patch::from_json("inline", None, &value).unwrap_or_else(|f| panic!("{f:#?}"));
        emit(&apply(&config, &[patch], Minor::new(1, 13)).unwrap_or_else(|f| panic!("{f:#?}")))
    };
    let sink = serde_json::json!({"apiVersion": "v1alpha1", "kind": "EventSinkConfig", "endpoint": "a:1"});
    let controlplane = serde_json::json!({"machine": {"type": "controlplane"}});
    assert!(json(controlplane.clone()).contains("type: controlplane"));
    assert!(json(serde_json::json!([controlplane, sink])).contains("endpoint: a:1"));
    assert!(
        json(serde_json::json!([{"op": "replace", "path": "/machine/type", "value": "x"}]))
            .contains("type: x")
    );
    assert!(json(serde_json::json!("machine: {type: y}\n---\n")).contains("type: \"y\""));
    assert!(json(serde_json::Value::Null).contains("type: worker"));
    // Whether a number was quoted is not known any more; the field decides.
    let file = serde_json::json!({"machine": {"files": [{"permissions": "0644", "content": "1"}]}});
    assert!(json(file).contains("permissions: 0o644"));
}

#[test]
fn releases_refuse_patches_with_what_they_do_not_know() {
    let worker = "machine: {type: worker}";
    refused(worker, &document("HostnameConfig", "auto: stable"), "exist since Talos 1.12", &[8, 9, 10, 11]);
    refused(worker, "machine: {install: {grubUseUKICmdline: true}}", "exists since Talos 1.12", &[8, 11]);
    refused(
        "machine: {kubelet: {}}",
        "machine: {kubelet: {extraArgs: {v: ['2']}}}",
        "since 1.13",
        &[8, 9, 10, 11, 12],
    );
}

#[test]
fn before_1_14_a_deletion_does_not_see_what_its_patch_added() {
    let worker = "machine: {type: worker}";
    let watchdog = document("WatchdogTimerConfig", "device: /dev/watchdog0");
    let both = format!("{watchdog}---\n{}", document("WatchdogTimerConfig", "$patch: delete"));
    refused(worker, &both, "no document v1alpha1/WatchdogTimerConfig", &[8, 9, 10, 11, 12, 13]);
    becomes(worker, &both, worker, &[14]);
}

#[test]
fn patches_apply_in_order() {
    let order = |patches: &[&str]| emit(&patched("machine: {certSANs: [a]}", patches, 13).expect("applies"));
    let (one, two) = ("machine: {type: x, certSANs: [b]}", "machine: {type: z, certSANs: [c]}");
    assert!(order(&[one, two]).contains("type: z\n"));
    assert!(order(&[one, two]).contains("- a\n        - b\n        - c\n"));
    assert!(order(&[two, one]).contains("- a\n        - c\n        - b\n"));
}

#[test]
fn large_keyed_lists_merge_in_good_time() {
    let items: String = (0..20_000).map(|i| format!("{{interface: eth{i}, mtu: 1}},")).collect();
    let network = format!("machine: {{network: {{interfaces: [{items}]}}}}");
    let config = patched(&network, &[&network], 13).expect("applies");
    let merged = config.legacy_value("machine.network.interfaces").and_then(|node| node.as_list());
    assert_eq!(merged.map(<[_]>::len), Some(20_000));
}

#[test]
fn places_survive_merging() {
    let config = patched("machine: {type: worker, token: t}", &["machine: {type: controlplane}"], 13)
        .expect("applies");
    let source = |path: &str| config.legacy_value(path).and_then(|node| node.at).map(|at| at.source);
    assert_eq!(source("machine.type"), Some(SourceId(1)));
    assert_eq!(source("machine.token"), Some(SourceId(0)));
}
