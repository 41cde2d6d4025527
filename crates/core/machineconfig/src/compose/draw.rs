//! From what is wanted of a cluster to what its configs must say.

use std::collections::{BTreeMap, BTreeSet};

use ichor_model::{
    Code, Desired, Finding, Findings,
    desired::{self as d, Hostnames, Image, Late, Machine, Role, Setting},
};
use serde_json::Value;

use super::Materials;
use crate::{
    generate::{
        Blueprint, ClusterWide, Cni, DiskPlace, Install, Manifest, ManifestContent, Registry, RegistryTls,
        Service, kube_vip, storage, yaml,
    },
    schematic,
    secrets::SecretText,
};

/// Extensions that bring a network of their own.
const OVERLAYS: [&str; 4] = ["tailscale", "netbird", "nebula", "zerotier"];
const REGION: &str = "topology.kubernetes.io/region";
const ZONE: &str = "topology.kubernetes.io/zone";

/// Draws up what the machines of a role share.
pub fn of_role(
    desired: &Desired,
    role: Role,
    materials: &Materials,
    findings: &mut Findings,
) -> Option<Blueprint> {
    let endpoint = &desired.cluster.endpoint;
    let Late::Known(host) = &endpoint.host else {
        findings.push(
            Finding::error(
                Code::CONFIG_TOO_EARLY,
                None,
                "the endpoint is a leased address that is not known yet",
            )
            .because("every machine config names the endpoint, and certificates are made for it")
            .remedy("add `endpoint: {vip: ...}`, `{host: ...}` or `{address: ...}`"),
        );
        return None;
    };
    let cluster = &desired.cluster;
    let mut blueprint = Blueprint::new(
        role,
        cluster.contract,
        cluster.name.as_str(),
        &endpoint.url(),
        cluster.kubernetes.clone(),
    );
    blueprint.talos = cluster.talos.minor();
    blueprint.sans = sans(desired, host);
    blueprint.domain.clone_from(&cluster.domain);
    blueprint.pods = desired.network.pods.iter().map(ToString::to_string).collect();
    blueprint.services = desired.network.services.iter().map(ToString::to_string).collect();
    (blueprint.cni, blueprint.kube_proxy) = cni(desired);
    blueprint.discovery = cluster.discovery;
    blueprint.schedule_on_control_planes = cluster.schedule_on_control_planes;
    blueprint.external_cloud_provider = desired.addons.contains_key("ccm");
    blueprint.sysctls.clone_from(&desired.os.sysctls);
    blueprint.registries = registries(desired, materials, findings);
    blueprint.cluster_wide = cluster_wide(desired, role, materials, findings);
    let first = desired.of_role(role).next();
    if let Some(machine) = first {
        blueprint.talos = machine.talos.minor();
        blueprint.kubernetes = machine.kubernetes.clone();
    }
    blueprint.system_disk = Some(first.map_or_else(DiskPlace::usual_system_disk, system_disk));
    blueprint.install = Some(install(first.and_then(|machine| image_of(desired, machine))));
    Some(blueprint)
}

/// Draws up the config of a machine over what its role shares.
pub fn of_machine(
    role: &Blueprint,
    desired: &Desired,
    machine: &Machine,
    findings: &mut Findings,
) -> Blueprint {
    for disk in &machine.disks {
        if let Some(why) = storage::refused(role.contract, disk) {
            findings.push(
                Finding::error(
                    Code::CONFIG_DISK,
                    None,
                    format!("disk `{}` of `{}` cannot be mounted as asked", disk.name, machine.name),
                )
                .because(why)
                .remedy("remove `filesystem` and `mount`, or one of them"),
            );
        }
    }
    let mut blueprint = role.clone();
    blueprint.talos = machine.talos.minor();
    blueprint.kubernetes = machine.kubernetes.clone();
    blueprint.sysctls.clone_from(&machine.sysctls);
    blueprint.cluster_wide.kernel_modules = modules(&machine.kernel_modules);
    if let Some(zone) = zone(desired, machine) {
        blueprint.cluster_wide.labels.insert(ZONE.into(), zone);
    }
    blueprint.system_disk = Some(system_disk(machine));
    blueprint.install = Some(install(image_of(desired, machine)));
    blueprint.machine = Some(Box::new(machine.clone()));
    blueprint
}

fn image_of<'a>(desired: &'a Desired, machine: &Machine) -> Option<&'a Image> {
    desired.images.iter().find(|image| image.id == machine.image)
}

fn system_disk(machine: &Machine) -> DiskPlace {
    machine.disks.first().map_or_else(DiskPlace::usual_system_disk, |disk| DiskPlace::new(machine, disk))
}

/// The VIP must be in the certificates even where the URL names something else. The URL's own host is
/// there anyway.
fn sans(desired: &Desired, endpoint_host: &str) -> Vec<String> {
    let endpoint = &desired.cluster.endpoint;
    let kube_vip = endpoint.kube_vip.as_ref().map(|kube_vip| kube_vip.address.to_string());
    let shared = endpoint.vip.map(|vip| vip.to_string()).into_iter().chain(kube_vip);
    let mut seen = BTreeSet::from([endpoint_host.to_owned()]);
    shared.chain(desired.cluster.cert_sans.iter().cloned()).filter(|san| seen.insert(san.clone())).collect()
}

/// The pod network, and whether kube-proxy runs beside it: Cilium takes over its work, unless its
/// values say otherwise.
fn cni(desired: &Desired) -> (Cni, bool) {
    let addon = desired.addons.get("cni");
    match addon.and_then(|addon| addon.choice.as_deref()).unwrap_or("flannel") {
        "flannel" => (Cni::Flannel, true),
        "cilium" => {
            let values = addon.and_then(|addon| addon.values.as_ref());
            let kept = values.and_then(|values| values.get("kubeProxyReplacement"));
            (Cni::None, kept.is_some_and(|kept| *kept == Value::Bool(false) || *kept == "false"))
        }
        _ => (Cni::None, true),
    }
}

/// The installer must be of the platform and flavour of the image that runs: its kernel command line
/// carries both, and an upgrade with another one would change them. Where there is none to name, the
/// machine keeps what it booted.
fn install(image: Option<&Image>) -> Install {
    Install { disk: None, image: image.map(schematic::installer), kernel_args: Vec::new() }
}

fn registries(
    desired: &Desired,
    materials: &Materials,
    findings: &mut Findings,
) -> BTreeMap<String, Registry> {
    let mut registries: BTreeMap<String, Registry> = BTreeMap::new();
    for (host, mirror) in &desired.os.mirrors {
        let registry = registries.entry(host.clone()).or_default();
        registry.mirrors.clone_from(&mirror.endpoints);
        registry.skip_fallback = mirror.skip_fallback;
        registry.override_path = mirror.override_path;
    }
    for (host, auth) in &desired.os.registry_auth {
        let password = materials.secret(&auth.password, findings);
        registries.entry(host.clone()).or_default().auth =
            password.map(|password| (auth.username.clone(), password));
    }
    for (host, tls) in &desired.os.registry_tls {
        registries.entry(host.clone()).or_default().tls = match tls {
            d::RegistryTls::Ca(path) => materials.certificates(path, findings).map(RegistryTls::Ca),
            d::RegistryTls::Insecure => Some(RegistryTls::Insecure),
        };
    }
    registries
}

fn cluster_wide(
    desired: &Desired,
    role: Role,
    materials: &Materials,
    findings: &mut Findings,
) -> ClusterWide {
    let addon = |name: &str| desired.addons.contains_key(name);
    let mut kubelet_args = BTreeMap::new();
    if addon("kubelet_cert_approver") {
        // Without it kubelets sign their own certificates, and there is nothing to approve.
        kubelet_args.insert("rotate-server-certificates".to_owned(), "true".to_owned());
    }
    // A cloud controller manager sets these labels itself.
    let region = desired.cluster.region.clone().filter(|_| !addon("ccm"));
    ClusterWide {
        vip: desired.cluster.endpoint.vip,
        node_networks: desired.network.cidr.iter().map(ToString::to_string).collect(),
        dhcp_hostnames: desired.network.hostnames == Hostnames::Dhcp,
        time_servers: desired.os.time_servers.clone(),
        kernel_modules: modules(&desired.os.kernel_modules),
        overlay_network: has_overlay(desired),
        labels: region.map(|region| (REGION.to_owned(), region)).into_iter().collect(),
        kubelet_args,
        executables_in_var: addon("longhorn"),
        trusted_roots: trusted_roots(desired, materials, findings),
        extension_services: services(desired, materials, findings),
        manifests: match role {
            Role::ControlPlane => manifests(desired, materials, findings),
            Role::Worker => Vec::new(),
        },
    }
}

fn modules(modules: &[d::KernelModule]) -> Vec<(String, Vec<String>)> {
    modules.iter().map(|module| (module.name.clone(), module.parameters.clone())).collect()
}

/// The zone of a machine's host. The CSI plugin knows hosts by their names and takes them for zones.
fn zone(desired: &Desired, machine: &Machine) -> Option<String> {
    if desired.addons.contains_key("ccm") {
        return None;
    }
    let host = machine.host.known()?;
    if desired.addons.contains_key("csi") {
        return Some(host.to_string());
    }
    desired.hosts.iter().find(|known| known.name == *host)?.zone.clone()
}

fn has_overlay(desired: &Desired) -> bool {
    let services = desired.os.extension_services.keys().map(String::as_str);
    let extensions = desired.images.iter().flat_map(|image| &image.extensions);
    let extensions = extensions.filter_map(|name| name.strip_prefix("siderolabs/"));
    services.chain(extensions).any(|name| OVERLAYS.contains(&name))
}

/// Documents are named after their files, in letters that any reader takes.
fn trusted_roots(desired: &Desired, materials: &Materials, findings: &mut Findings) -> Vec<(String, String)> {
    let mut roots: Vec<(String, String)> = Vec::new();
    for path in desired.os.trusted_roots.iter().collect::<BTreeSet<_>>() {
        let Some(pem) = materials.certificates(path, findings) else { continue };
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let name: String = path.trim_matches(|c| c == '.' || c == '/').chars().map(plain).collect();
        let taken = roots.iter().filter(|(known, _)| known.starts_with(&name)).count();
        roots.push((if taken == 0 { name } else { format!("{name}-{}", taken + 1) }, pem));
    }
    roots
}

fn services(desired: &Desired, materials: &Materials, findings: &mut Findings) -> Vec<Service> {
    let mut values = |settings: &BTreeMap<String, Setting>| -> Vec<(String, SecretText)> {
        let known = settings.iter().filter_map(|(name, setting)| match setting {
            Setting::Text(text) => Some((name.clone(), SecretText::new(text.clone()))),
            Setting::Secret(secret) => Some((name.clone(), materials.secret(secret, findings)?)),
        });
        known.collect()
    };
    let services = desired.os.extension_services.iter();
    // Talos refuses a document that sets nothing.
    let services =
        services.filter(|(_, service)| !service.environment.is_empty() || !service.files.is_empty());
    services
        .map(|(name, service)| Service {
            name: name.clone(),
            environment: values(&service.environment),
            files: values(&service.files),
        })
        .collect()
}

fn manifests(desired: &Desired, materials: &Materials, findings: &mut Findings) -> Vec<Manifest> {
    let mut manifests: Vec<Manifest> = Vec::new();
    if let Some(settings) = &desired.cluster.endpoint.kube_vip {
        manifests.push(kube_vip(settings, KUBE_PRISM_PORT, API_PORT));
    }
    for manifest in &desired.cluster.manifests {
        let content = match &manifest.content {
            d::ManifestContent::File(path) => materials.text(path, findings).map(ManifestContent::Text),
            d::ManifestContent::Url(url) => Some(ManifestContent::Url(url.clone())),
            d::ManifestContent::Inline(value) => inline(&manifest.name, value, findings),
        };
        manifests.extend(content.map(|content| Manifest { name: manifest.name.clone(), content }));
    }
    manifests
}

/// The port of the load balancer that every machine runs for itself.
const KUBE_PRISM_PORT: u16 = 7445;
/// Where API servers listen.
const API_PORT: u16 = 6443;

/// A manifest in the inventory is one object, a list of them, or text.
fn inline(name: &str, value: &Value, findings: &mut Findings) -> Option<ManifestContent> {
    let objects: Option<&[Value]> = match value {
        Value::String(text) if !text.trim().is_empty() => return Some(ManifestContent::Text(text.clone())),
        Value::Object(_) => Some(std::slice::from_ref(value)),
        Value::Array(items) if !items.is_empty() && items.iter().all(Value::is_object) => Some(items),
        _ => None,
    };
    if objects.is_none() {
        findings.push(
            Finding::error(Code::CONFIG_REFUSED, None, format!("manifest `{name}` is no Kubernetes object"))
                .remedy("write an object with `apiVersion` and `kind`, a list of objects, or YAML text"),
        );
    }
    objects.map(|objects| ManifestContent::Text(yaml(objects)))
}
