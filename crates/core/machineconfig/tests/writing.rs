//! Writing configs in Talos' own form: each golden file reads back to itself.

use ichor_machineconfig::{Config, emit, emit::emit_redacted};
use ichor_model::SourceId;

const CONTROL_PLANE: &str = include_str!("golden/control-plane.yaml");
const WORKER_1_14: &str = include_str!("golden/worker-1.14.yaml");
const NETWORK: &str = include_str!("golden/network.yaml");
const VOLUMES: &str = include_str!("golden/volumes.yaml");

fn read(text: &str) -> Config {
    Config::parse(SourceId(0), text.as_bytes()).unwrap_or_else(|findings| panic!("{findings:#?}"))
}

#[test]
fn golden_configs_read_back_and_render_stably() {
    for golden in [CONTROL_PLANE, WORKER_1_14, NETWORK, VOLUMES] {
        assert_eq!(emit(&read(golden)), golden);
    }
}

#[test]
fn order_style_and_zero_values_are_those_of_talos() {
    let text = "
kind: DHCPv4Config
name: eth0
apiVersion: v1alpha1
---
cluster: {network: {serviceSubnets: [10.96.0.0/12], dnsDomain: cluster.local}}
machine:
  nodeLabels: {b: 1, a10: '', a2: y}
  install: {disk: /dev/sda}
  network: {}
  registries: {}
  kubelet: {}
  files: [{content: \"a\\nb\\n\", path: /var/x}]
";
    let want = "\
version: \"\"
machine:
    type: \"\"
    token: \"\"
    certSANs: []
    kubelet: {}
    network: {}
    install:
        disk: /dev/sda
        wipe: null
    files:
        - content: |
            a
            b
          permissions: 0o0
          path: /var/x
          op: \"\"
    nodeLabels:
        a2: \"y\"
        a10: \"\"
        b: \"1\"
cluster:
    network:
        dnsDomain: cluster.local
        podSubnets: []
        serviceSubnets:
            - 10.96.0.0/12
---
apiVersion: v1alpha1
kind: DHCPv4Config
name: eth0
";
    assert_eq!(emit(&read(text)), want);
}

#[test]
fn secrets_are_hidden_where_people_look() {
    let config = format!("{CONTROL_PLANE}---\n{NETWORK}");
    let shown = emit_redacted(&read(&config));
    for secret in ["0123456789abcdef", "c2VjcmV0", "a2V5"] {
        assert!(emit(&read(&config)).contains(secret), "{secret}");
        let public = shown.lines().filter(|line| !line.contains("publicKey")).collect::<String>();
        assert!(!public.contains(secret), "{secret}\n{shown}");
    }
    assert!(shown.contains("crt: Y2VydGlmaWNhdGU=") && shown.contains("    token: '******'"), "{shown}");
}

#[test]
fn long_and_multi_line_keys_survive() {
    let key = "k".repeat(200);
    let text = format!("machine:\n  sysctls:\n    ? {key}\n    : a\n    \"b\\nc\": d\n");
    let config = read(&text);
    let written = emit(&config);
    assert_eq!(emit(&read(&written)), written);
    assert_eq!(read(&written).legacy_value("machine.sysctls"), config.legacy_value("machine.sysctls"));
}
