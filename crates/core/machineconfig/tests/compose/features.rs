//! Single features of an inventory, and where they end up.

use ichor_machineconfig::compose::needs;
use ichor_model::SecretRef;

use crate::support::{RELEASES, bundle, machine, resolve, rich, with_composer};

const HEAD: &str = "proxmox: {endpoint: 'https://pve:8006', hosts: [pve1]}\n\
    network: {cidr: 10.0.0.0/24, gateway: 10.0.0.1, dns: 10.0.0.1}\n";

fn small(cluster: &str, rest: &str) -> String {
    format!(
        "cluster: {{name: x, talos: v1.13.9, kubernetes: v1.36.3{cluster}}}\n{HEAD}\
         machines: {{cp: {{role: control-plane}}, w: {{role: worker}}}}\n{rest}"
    )
}

fn text(inventory: &str, name: &str) -> String {
    with_composer(inventory, &[], |desired, composer| {
        let composer = composer.unwrap_or_else(|findings| panic!("{findings:?}"));
        let made = composer.machine(machine(desired, name));
        made.unwrap_or_else(|findings| panic!("{findings:?}")).text().expose().to_owned()
    })
}

#[test]
fn the_installer_is_of_the_image_that_runs() {
    const VANILLA: &str = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba";
    const AGENT: &str = "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515";
    let cases = [
        (
            "image: {extensions: []}",
            "v1.13.9",
            format!("factory.talos.dev/nocloud-installer/{VANILLA}:v1.13.9"),
        ),
        (
            "image: {extensions: [], secureboot: true}",
            "v1.13.9",
            format!("factory.talos.dev/nocloud-installer-secureboot/{VANILLA}:v1.13.9"),
        ),
        ("image: {extensions: []}", "v1.9.5", format!("factory.talos.dev/installer/{VANILLA}:v1.9.5")),
        (
            "image: {extensions: [], factory: 'https://factory.lab.example:8443/'}",
            "v1.13.9",
            format!("factory.lab.example:8443/nocloud-installer/{VANILLA}:v1.13.9"),
        ),
        (
            "image: {source: iso, file: 'local:iso/talos.iso'}\nboot: {address: dhcp}\ndefaults: {agent: true}",
            "v1.13.9",
            // The guest agent that is expected comes with the installer, whatever the file holds.
            format!("factory.talos.dev/metal-installer/{AGENT}:v1.13.9"),
        ),
    ];
    for (image, talos, installer) in cases {
        let inventory = small("", image).replace("v1.13.9", talos);
        let inventory = if talos == "v1.9.5" { inventory.replace("v1.36.3", "v1.32.4") } else { inventory };
        let text = text(&inventory, "w");
        assert!(text.contains(&format!("image: {installer}\n")), "{image}: {installer}");
    }
    let id = AGENT;
    let given = text(&small("", &format!("image: {{schematic: {id}}}")), "w");
    assert!(given.contains(&format!("nocloud-installer/{id}:v1.13.9")));
}

#[test]
fn kube_vip_comes_up_with_the_cluster_on_control_planes() {
    let endpoint = ", endpoint: {kube_vip: {address: 10.0.0.9, interface: eth0, version: v1.1.0}}";
    let control_plane = text(&small(endpoint, ""), "cp");
    for part in [
        "- name: kube-vip\n",
        "ghcr.io/kube-vip/kube-vip:v1.1.0",
        "value: 10.0.0.9\n",
        "value: eth0\n",
        "endpoint: https://10.0.0.9:6443",
        "hostNetwork: true",
    ] {
        assert!(control_plane.contains(part), "{part}");
    }
    assert!(!text(&small(endpoint, ""), "w").contains("kube-vip"));
    let newer = small(endpoint, "").replace("v1.13.9", "v1.14.0").replace("v1.36.3", "v1.37.0");
    assert!(text(&newer, "cp").contains("kind: KubeInlineManifestConfig\nname: kube-vip\n"));
}

#[test]
fn manifests_are_for_control_planes_and_keep_their_text() {
    for (talos, kubernetes) in RELEASES {
        let inventory = rich(talos, kubernetes, "");
        let (control_plane, worker) = (text(&inventory, "cp-1"), text(&inventory, "worker-1"));
        assert!(control_plane.contains("answer: \"42\""), "{talos}");
        assert!(control_plane.contains("https://manifests.lab.example/demo.yaml"), "{talos}");
        assert!(control_plane.contains("kind: Namespace"), "{talos}");
        assert!(!worker.contains("manifests.lab.example") && !worker.contains("kind: Namespace"), "{talos}");
    }
}

#[test]
fn a_tailnet_is_not_where_nodes_and_etcd_live() {
    let tailscale = "os: {extension_services: {tailscale: {environment: {TS_AUTHKEY: {env: KEY}}}}}";
    let fixed = text(&small("", tailscale), "cp");
    assert!(fixed.contains("advertisedSubnets:\n            - 10.0.0.0/24\n"), "{fixed}");
    let inventory = small(", endpoint: {host: k8s.lab.example}", tailscale).replace(
        "network: {cidr: 10.0.0.0/24, gateway: 10.0.0.1, dns: 10.0.0.1}",
        "network: {addressing: dhcp}",
    );
    let leased = text(&inventory, "cp");
    let subnets = "- 0.0.0.0/0\n            - '!100.64.0.0/10'\n            - '!fd7a:115c:a1e0::/48'\n";
    assert!(leased.contains(&format!("advertisedSubnets:\n            {subnets}")), "{leased}");
}

#[test]
fn cloud_controllers_label_nodes_themselves() {
    let region = ", region: cellar";
    assert!(text(&small(region, ""), "w").contains("topology.kubernetes.io/region: cellar"));
    let with_ccm = text(&small(region, "addons: {ccm: true}"), "w");
    assert!(!with_ccm.contains("topology.kubernetes.io"));
    assert!(with_ccm.contains("externalCloudProvider:\n        enabled: true\n"));
    assert!(text(&small(region, "addons: {csi: true}"), "w").contains("topology.kubernetes.io/zone: pve1"));
}

#[test]
fn cilium_takes_over_from_kube_proxy_unless_told_otherwise() {
    let disabled = "proxy:\n        disabled: true\n";
    assert!(text(&small("", "addons: {cni: cilium}"), "cp").contains(disabled));
    let kept = "addons: {cni: {cilium: {values: {kubeProxyReplacement: false}}}}";
    assert!(!text(&small("", kept), "cp").contains(disabled));
    assert!(!text(&small("", "addons: {cni: none}"), "cp").contains(disabled));
}

#[test]
fn an_endpoint_that_nobody_knows_yet_is_said_to_be_one() {
    let inventory = small("", "").replace(
        "network: {cidr: 10.0.0.0/24, gateway: 10.0.0.1, dns: 10.0.0.1}",
        "network: {addressing: dhcp}",
    );
    with_composer(&inventory, &[], |_, composer| {
        let findings = composer.unwrap_err();
        let codes: Vec<String> = findings.iter().map(|finding| finding.code.to_string()).collect();
        assert_eq!(codes, ["ICH-2009"]);
    });
}

#[test]
fn a_cluster_says_what_its_configs_need() {
    let needs = needs(&resolve(&rich("v1.13.9", "v1.36.3", "{file: patches/all.yaml}")));
    let files: Vec<&str> = needs.files.iter().map(String::as_str).collect();
    assert_eq!(files, ["certs/lab.pem", "manifests/namespace.yaml", "patches/all.yaml"]);
    let secrets: Vec<&SecretRef> = needs.secrets.iter().collect();
    assert_eq!(secrets, [&SecretRef::Env("REGISTRY_PASSWORD".into()), &SecretRef::Env("TS_AUTHKEY".into())]);
}

#[test]
fn what_is_debugged_shows_no_secret() {
    let desired = resolve(&rich("v1.13.9", "v1.36.3", ""));
    let materials = crate::support::materials(&desired, &[]);
    let worker = machine(&desired, "worker-1");
    let bundle = bundle();
    let composer = ichor_machineconfig::compose::Composer::new(&desired, &bundle, &materials).unwrap();
    let made = composer.machine(worker).unwrap();
    // A composer holds the blueprints.
    let shown = format!("{composer:?} {made:?} {materials:?}");
    assert!(!shown.contains("value-of-"), "{shown}");
    // And yet it is where it belongs.
    assert!(made.text().expose().contains("value-of-ts_authkey"));
}
