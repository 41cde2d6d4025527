//! A cluster that uses everything, and what its configs are made of.

use ichor_machineconfig::{
    compose::{Composer, Material, Materials, needs},
    pki::Timestamp,
    secrets::{Bundle, SecretText},
};
use ichor_model::{Desired, Findings, SecretRef, SourceId, World, desired::Machine};
use ichor_spec::{Layers, Sources};

/// A Talos release and a Kubernetes that it runs, for every contract.
pub const RELEASES: [(&str, &str); 7] = [
    ("v1.8.3", "v1.31.4"),
    ("v1.9.5", "v1.32.4"),
    ("v1.10.6", "v1.33.6"),
    ("v1.11.6", "v1.34.1"),
    ("v1.12.7", "v1.35.4"),
    ("v1.13.9", "v1.36.3"),
    ("v1.14.0", "v1.37.0"),
];

/// An inventory that uses everything a machine config can say.
pub const RICH: &str = r#"
cluster:
  name: homelab
  talos: TALOS
  kubernetes: KUBERNETES
  endpoint: {vip: 10.0.0.20, host: k8s.lab.example}
  cert_sans: [api.lab.example]
  region: cellar
  manifests:
    - {name: from-file, file: manifests/namespace.yaml}
    - {name: from-url, url: 'https://manifests.lab.example/demo.yaml'}
    - name: written-here
      inline: {apiVersion: v1, kind: ConfigMap, metadata: {name: demo, namespace: default}, data: {answer: "42"}}
proxmox:
  endpoint: https://pve:8006
  hosts: {pve1: {zone: rack-a}, pve2: {zone: rack-b}}
network:
  cidr: [10.0.0.0/24, 'fd00:10::/64']
  gateway: [10.0.0.1, 'fd00:10::1']
  dns: [10.0.0.1]
  pods: [10.244.0.0/16, 'fd00:244::/56']
  services: [10.96.0.0/12, 'fd00:96::/112']
image: {extensions: [siderolabs/qemu-guest-agent, siderolabs/tailscale, siderolabs/iscsi-tools]}
os:
  time_servers: [ntp.lab.example]
  sysctls: {vm.max_map_count: '262144'}
  kernel_modules: [nvme_tcp]
  trusted_roots: [certs/lab.pem]
  registries:
    docker.io: {mirrors: ['https://mirror.lab.example']FALLBACK}
    registry.lab.example: {username: puller, password: {env: REGISTRY_PASSWORD}, ca: certs/lab.pem}
    plain.lab.example: {insecure: true}
  extension_services:
    tailscale:
      environment: {TS_AUTHKEY: {env: TS_AUTHKEY}, TS_ACCEPT_DNS: 'false'}
      files: {/var/etc/tailscale/note: hello}
machines:
  cp:
    role: control-plane
    count: 3
    address: [+10, 'fd00:10::10']
    vmid: 2000
  worker:
    role: worker
    count: 2
    address: [+30, 'fd00:10::30']
    vmid: 3000
    disks:
      - {name: longhorn, size: 200GiB}
      - {name: scratch, size: 10GiB, mount: none}
      - {name: data, size: 50GiB, FILESYSTEM}
    nics: [{bridge: vmbr1, vlan: 30, cidr: 10.9.0.0/24, address: +30}]
    sysctls: {vm.nr_hugepages: '1024'}
    kernel_modules: [{name: vfio_pci, parameters: [disable_idle_d3=1]}]
    labels: {tier: apps}
    annotations: {lab.example/owner: me}
    taints: {lab.example/dedicated: 'apps:NoSchedule'}
addons: {cni: cilium, longhorn: true, kubelet_cert_approver: true}
patches: [PATCHES]
"#;

/// A certificate, for files that must hold one.
pub const CERTIFICATE: &str = include_str!("../golden/foreign/p384.crt");

/// The rich inventory for a release.
pub fn rich(talos: &str, kubernetes: &str, patches: &str) -> String {
    // Older releases know XFS alone, and the oldest always asks the registry itself.
    let ext4 = !talos.starts_with("v1.8.") && !talos.starts_with("v1.9.");
    RICH.replace("TALOS", talos)
        .replace("KUBERNETES", kubernetes)
        .replace("FILESYSTEM", if ext4 { "filesystem: ext4" } else { "mount: /var/lib/data" })
        .replace("FALLBACK", if talos.starts_with("v1.8.") { "" } else { ", skip_fallback: true" })
        .replace("PATCHES", patches)
}

/// Resolves an inventory.
pub fn resolve(inventory: &str) -> Desired {
    let mut sources = Sources::default();
    let layers =
        Layers { defaults: Vec::new(), files: vec![sources.add("ichor.yaml", inventory.to_owned())] };
    let mut findings = Findings::new();
    let inventory = ichor_spec::load(&sources, &layers, &mut findings).expect("an inventory");
    assert!(!findings.has_errors(), "{findings:?}");
    let resolution = ichor_plan::resolve(&inventory, &World::default());
    resolution.desired.unwrap_or_else(|| panic!("{:?}", resolution.findings))
}

/// The golden bundle.
pub fn bundle() -> Bundle {
    let secrets = include_str!("../golden/secrets.yaml");
    Bundle::from_secrets_yaml(secrets, Timestamp::from_unix_seconds(1_800_000_000)).expect("the bundle")
}

/// Everything a cluster needs, and patch files besides.
pub fn materials(desired: &Desired, patches: &[(&str, &str)]) -> Materials {
    let needs = needs(desired);
    let mut materials = Materials::default();
    for (i, path) in (1..).zip(&needs.files) {
        let patch = patches.iter().find(|(name, _)| name == path).map(|(_, text)| *text);
        let text = patch.unwrap_or(if path.contains("certs/") {
            CERTIFICATE
        } else {
            "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: demo\n"
        });
        let material = Material { source: SourceId(i), bytes: text.as_bytes().to_vec() };
        materials.files.insert(path.clone(), material);
    }
    for secret in needs.secrets {
        let SecretRef::Env(name) = &secret else { panic!("{secret:?}") };
        let value = format!("value-of-{}", name.to_lowercase());
        materials.secrets.insert(secret, SecretText::new(value));
    }
    materials
}

/// Returns a machine by its name.
pub fn machine<'a>(desired: &'a Desired, name: &str) -> &'a Machine {
    desired.machines.iter().find(|machine| machine.name.as_str() == name).expect("a machine")
}

/// Runs something with the composer of an inventory and some patch files.
pub fn with_composer<T>(
    inventory: &str,
    patches: &[(&str, &str)],
    run: impl FnOnce(&Desired, Result<Composer<'_>, Findings>) -> T,
) -> T {
    let desired = resolve(inventory);
    let (bundle, materials) = (bundle(), materials(&desired, patches));
    run(&desired, Composer::new(&desired, &bundle, &materials))
}
