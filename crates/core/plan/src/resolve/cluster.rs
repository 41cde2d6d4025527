//! The cluster as a whole: releases, counts, the endpoint, and how Proxmox is reached.

use ichor_model::{
    At, Code, Finding, Hop, KubernetesVersion, Minor, TalosVersion,
    desired::{self as d, EndpointKind, Late, Role, Source},
};
use ichor_spec::{
    Inventory,
    inventory::{Cluster, Endpoint, Store},
    read::OneOrMany,
    values::{Url, is_dns_name},
    yaml,
};

use super::{Context, addons::manifest, expand::Draft, seats::storage};
use crate::support;

/// The number of the inventory's language.
const SCHEMA: u32 = 1;

/// Where API servers listen.
const API_PORT: u16 = 6443;

/// Kubernetes lets a kubelet lag this many minors behind the API server.
const KUBELET_SKEW: u64 = 3;

/// Checks the inventory's own version.
pub fn check_schema(cx: &mut Context<'_>, inventory: &Inventory) {
    if let Some(schema) = inventory.schema.filter(|schema| schema.value.0 != SCHEMA) {
        cx.findings.push(
            Finding::error(
                Code::SCHEMA_NUMBER,
                schema.span,
                format!("schema {} is not known", schema.value.0),
            )
            .remedy(format!("write `schema: {SCHEMA}`, or use the ichor that made this file")),
        );
    }
}

/// Returns what identities are derived from.
pub fn id(cx: &Context<'_>) -> String {
    let named = cx.cluster.name.as_ref().map(|name| name.value.to_string());
    cx.cluster.id.as_ref().map(|id| id.value.clone()).or(named).unwrap_or_default()
}

/// Returns the cluster, or reports why there is none.
pub fn cluster(cx: &mut Context<'_>, drafts: &[Draft], machines: &[d::Machine]) -> Option<d::Cluster> {
    let written = cx.cluster.clone();
    check_required(cx, &written);
    check_talos(cx, written.talos.as_ref());
    check_kubernetes(cx, written.talos.as_ref(), written.kubernetes.as_ref());
    check_machine_releases(cx, drafts, written.talos.as_ref(), written.kubernetes.as_ref());
    check_counts(cx, drafts);
    let endpoint = endpoint(cx, machines);
    let contract = contract(cx, machines);
    let cert_sans = cert_sans(&written);
    let switch = |written: Option<At<bool>>, default| written.map_or(default, |at| at.value);
    Some(d::Cluster {
        id: id(cx),
        name: written.name?.value,
        environment: written.environment.map(|at| at.value),
        talos: written.talos?.value,
        kubernetes: written.kubernetes?.value,
        contract: contract?,
        endpoint: endpoint?,
        ha: switch(written.ha, false),
        protect: switch(written.protect, false),
        schedule_on_control_planes: switch(written.schedule_on_control_planes, false),
        discovery: switch(written.discovery, true),
        domain: written.domain.map_or_else(|| "cluster.local".into(), |at| at.value.0),
        region: written.region.map(|at| at.value),
        cert_sans,
        manifests: written
            .manifests
            .map(|list| list.value.iter().filter_map(|item| manifest(cx, item)).collect())
            .unwrap_or_default(),
    })
}

/// Reports the keys that a cluster cannot do without.
fn check_required(cx: &mut Context<'_>, written: &Cluster) {
    let row = written.talos.as_ref().and_then(|talos| support::of(&talos.value));
    let kubernetes = row.map_or_else(|| KubernetesVersion::new(1, 36, 3), |row| row.default.clone());
    if cx.places.cluster.is_none() && *written == Cluster::default() {
        let talos = newest_talos();
        let remedy = format!("add `cluster: {{name: homelab, talos: {talos}, kubernetes: {kubernetes}}}`");
        cx.missing(None, "cluster", &remedy);
        return;
    }
    for (key, is_written, remedy) in [
        ("name", written.name.is_some(), "add `name: homelab`".to_owned()),
        ("talos", written.talos.is_some(), format!("add `talos: {}`", newest_talos())),
        ("kubernetes", written.kubernetes.is_some(), format!("add `kubernetes: {kubernetes}`")),
    ] {
        if !is_written && !written.unread.has(key) {
            cx.missing(cx.places.cluster, &format!("cluster.{key}"), &remedy);
        }
    }
}

/// Returns the values of a list without their places.
pub fn values<T: Clone>(list: Option<&At<Vec<At<T>>>>) -> Vec<T> {
    list.map(|list| list.iter().map(|at| at.value.clone()).collect()).unwrap_or_default()
}

fn newest_talos() -> TalosVersion {
    TalosVersion::new(1, 13, 9)
}

fn check_talos(cx: &mut Context<'_>, talos: Option<&At<TalosVersion>>) {
    let Some(talos) = talos else { return };
    if support::of(&talos.value).is_none() {
        let (oldest, newest) = support::talos_range();
        cx.findings.push(
            Finding::error(
                Code::TALOS_UNKNOWN,
                talos.span,
                format!("Talos {} is not supported", talos.value),
            )
            .because(format!("ichor knows Talos {oldest} to {newest}"))
            .remedy(format!("write `talos: {}`", newest_talos())),
        );
    } else if talos.value.is_prerelease() {
        cx.findings.push(
            Finding::warning(Code::PRERELEASE, talos.span, format!("Talos {} is a pre-release", talos.value))
                .remedy("use a stable release for clusters you depend on"),
        );
    }
}

fn check_kubernetes(
    cx: &mut Context<'_>,
    talos: Option<&At<TalosVersion>>,
    kubernetes: Option<&At<KubernetesVersion>>,
) {
    if let Some((talos, kubernetes)) = talos.zip(kubernetes)
        && let Some(finding) = refused_pair(&talos.value, kubernetes)
    {
        cx.findings.push(finding.see(talos.span, "the Talos release"));
    } else if let Some(release) = kubernetes.filter(|release| release.is_prerelease()) {
        let message = format!("Kubernetes {} is a pre-release", release.value);
        cx.findings.push(
            Finding::warning(Code::PRERELEASE, release.span, message)
                .remedy("use a stable release for clusters you depend on"),
        );
    }
}

/// Returns what is wrong with a pair of releases, blamed on the Kubernetes release.
fn refused_pair(talos: &TalosVersion, kubernetes: &At<KubernetesVersion>) -> Option<Finding> {
    let row = support::of(talos).filter(|row| !row.accepts(&kubernetes.value))?;
    let other = support::talos_for(&kubernetes.value)
        .map_or_else(String::new, |minor| format!(", or run Talos {minor}, which accepts it"));
    let message = format!("Talos {talos} does not run Kubernetes {}", kubernetes.value);
    let finding = Finding::error(Code::VERSION_PAIR, kubernetes.span, message)
        .because(format!("Talos {} accepts Kubernetes {} to {}", row.talos, row.oldest, row.newest))
        .remedy(format!("write `kubernetes: {}`{other}", row.default));
    Some(finding)
}

/// Machines may run other releases for a while, as in a half-done upgrade, within limits.
fn check_machine_releases(
    cx: &mut Context<'_>,
    drafts: &[Draft],
    talos: Option<&At<TalosVersion>>,
    kubernetes: Option<&At<KubernetesVersion>>,
) {
    let mut judged = std::collections::BTreeSet::new();
    for draft in drafts {
        let (own_talos, own_kubernetes) = (draft.all.talos.as_ref(), draft.all.kubernetes.as_ref());
        if own_talos.is_none() && own_kubernetes.is_none() {
            continue;
        }
        let places = (own_talos.map(|at| at.span), own_kubernetes.map(|at| at.span), draft.role);
        if !judged.insert(places) {
            continue;
        }
        check_talos(cx, own_talos);
        let pair = own_talos.or(talos).zip(own_kubernetes.or(kubernetes));
        if let Some((talos, release)) = pair
            && let Some(finding) = refused_pair(&talos.value, release)
        {
            // The machine's own release is to blame, whichever of the two it is.
            cx.findings.push(if own_kubernetes.is_some() {
                finding.see(talos.span, "the Talos release")
            } else {
                Finding { at: Some(talos.span), ..finding }.see(release.span, "the Kubernetes release")
            });
        }
        if let (Some(own), Some(cluster)) = (own_kubernetes, kubernetes) {
            check_skew(cx, draft, own, &cluster.value);
        }
    }
}

fn check_skew(cx: &mut Context<'_>, draft: &Draft, own: &At<KubernetesVersion>, cluster: &KubernetesVersion) {
    let allowed = if draft.role == Role::Worker { KUBELET_SKEW } else { 1 };
    let lag = cluster.minor().minor.saturating_sub(own.minor().minor);
    if own.value <= *cluster && own.minor().major == cluster.minor().major && lag <= allowed {
        return;
    }
    cx.findings.push(
        Finding::error(
            Code::VERSION_SKEW,
            own.span,
            format!("`{}` would run Kubernetes {} beside {cluster}", draft.name, own.value),
        )
        .because(match draft.role {
            Role::Worker => "a worker may be up to three minors older than the cluster, never newer",
            Role::ControlPlane => "a control plane may be one minor older than the cluster, never newer",
        })
        .remedy(format!("remove `kubernetes` here to run {cluster}, or change the cluster's release first")),
    );
}

fn control_planes_of(count: usize) -> String {
    if count == 1 { "one control plane".into() } else { format!("{count} control planes") }
}

fn check_counts(cx: &mut Context<'_>, drafts: &[Draft]) {
    let control_planes: Vec<&Draft> =
        drafts.iter().filter(|draft| draft.role == Role::ControlPlane).collect();
    let (count, at) = (control_planes.len(), control_planes.last().map(|draft| draft.at));
    if !cx.machines_known {
        return;
    }
    if count == 0 {
        cx.findings.push(
            Finding::error(Code::CONTROL_PLANE_COUNT, cx.places.machines, "there is no control plane")
                .remedy("add a group: `cp: {role: control-plane, count: 3}`"),
        );
        return;
    }
    let even = count.is_multiple_of(2);
    let ha = cx.cluster.ha.filter(|ha| ha.value);
    if let Some(ha) = ha.filter(|_| count < 3 || even) {
        let mut finding =
            Finding::error(Code::HA_COUNT, ha.span, format!("`ha: true` with {}", control_planes_of(count)))
                .remedy(format!(
                    "use {} control planes, or remove `ha`",
                    if count < 3 { 3 } else { count + 1 }
                ));
        if count < 3 {
            finding = finding.because("the loss of one would stop the cluster");
        } else {
            finding = finding.because(format!("{count} survive no more losses than {}", count - 1));
        }
        cx.findings.push(finding);
    } else if even {
        cx.findings.push(
            Finding::warning(
                Code::EVEN_CONTROL_PLANES,
                at,
                format!("{count} control planes, an even number"),
            )
            .because(format!(
                "{} must agree, so {count} survive no more losses than {}",
                count / 2 + 1,
                count - 1
            ))
            .remedy(format!("use {} or {}", count - 1, count + 1)),
        );
    }
}

/// The machine-config shape: the one that is set, else the one the cluster was made with, else that of
/// the oldest Talos in it. Once the cluster exists it stays: patches are written for it.
fn contract(cx: &mut Context<'_>, machines: &[d::Machine]) -> Option<Minor> {
    let cluster = cx.cluster.talos.as_ref().map(|talos| talos.minor());
    let oldest = machines.iter().map(|machine| machine.talos.minor()).chain(cluster).min()?;
    let (recorded, written) = (cx.world.contract, cx.cluster.contract);
    let contract = written.map(|at| at.value).or(recorded).unwrap_or(oldest);
    let (first, _) = support::talos_range();
    if let (Some(written), Some(recorded)) = (written, recorded)
        && written.value != recorded
    {
        cx.findings.push(
            Finding::error(
                Code::CONTRACT,
                written.span,
                format!("contract {} is not the one the cluster was made with", written.value),
            )
            .because(format!("it was made with contract {recorded}, and its patches are written for that"))
            .remedy(format!("write `contract: {recorded}`, or remove it")),
        );
    } else if (written.is_some() || recorded.is_some()) && (contract > oldest || contract < first) {
        let at = written.map(|at| at.span).or(cx.cluster.talos.as_ref().map(|talos| talos.span));
        let mut finding =
            Finding::error(Code::CONTRACT, at, format!("contract {contract} does not fit Talos {oldest}"));
        finding = if written.is_some() {
            finding
                .remedy(format!("write a minor from {first} to {oldest}, the one the cluster was made with"))
        } else {
            finding
                .because(format!("the cluster was made with contract {contract}"))
                .remedy(format!("run Talos {contract} or later on every machine"))
        };
        cx.findings.push(finding);
    }
    Some(contract)
}

fn endpoint(cx: &mut Context<'_>, machines: &[d::Machine]) -> Option<d::Endpoint> {
    let unread = cx.cluster.unread.has("endpoint");
    let written: Endpoint = super::section(cx.cluster.endpoint.as_ref(), unread, Endpoint::illegible);
    check_endpoint(cx, &written);
    let kube_vip = kube_vip(cx, &written);
    let vip = written.vip.map(|vip| vip.value.0);
    let (host, kind) = if let Some(host) = &written.host {
        (Late::Known(host.value.clone()), EndpointKind::Name)
    } else if let Some(address) = written.address {
        (Late::Known(address.value.0.to_string()), EndpointKind::Address)
    } else if let Some(vip) = vip {
        (Late::Known(vip.to_string()), EndpointKind::TalosVip)
    } else if let Some(kube_vip) = &kube_vip {
        (Late::Known(kube_vip.address.to_string()), EndpointKind::KubeVip)
    } else if ["host", "address", "vip", "kube_vip"].iter().any(|key| written.unread.has(key)) {
        return None;
    } else {
        (first_control_plane(cx, machines)?, EndpointKind::FirstControlPlane)
    };
    check_port(cx, &written, kind);
    let port = written.port.and_then(|port| u16::try_from(port.value.0).ok()).unwrap_or(API_PORT);
    Some(d::Endpoint { host, port, kind, vip, kube_vip })
}

/// Only somebody else's load balancer can listen on another port and pass on to the API servers'.
fn check_port(cx: &mut Context<'_>, written: &Endpoint, kind: EndpointKind) {
    let (what, at) = match kind {
        EndpointKind::Name | EndpointKind::Address => return,
        EndpointKind::TalosVip => ("the VIP", written.vip.map(|at| at.span)),
        EndpointKind::KubeVip => ("kube-vip", written.kube_vip.as_ref().map(|at| at.span)),
        EndpointKind::FirstControlPlane => ("the first control plane", None),
    };
    let Some(port) = written.port.filter(|port| port.value.0 != u32::from(API_PORT)) else { return };
    let finding = Finding::error(
        Code::CONFLICTING_KEYS,
        port.span,
        format!("nothing listens on port {} of {what}", port.value.0),
    )
    .because(format!("API servers listen on {API_PORT}, and only a load balancer can map another port to it"))
    .remedy("remove `port`, or name the load balancer by `host` or `address`");
    cx.findings.push(match at {
        Some(at) => finding.see(at, "the endpoint"),
        None => finding,
    });
}

/// The names that are asked for, and the address behind the endpoint's name: clients may use it too.
fn cert_sans(written: &Cluster) -> Vec<String> {
    let mut names: Vec<String> = values(written.cert_sans.as_ref()).into_iter().map(|name| name.0).collect();
    let endpoint = written.endpoint.as_ref();
    let behind = endpoint.filter(|endpoint| endpoint.host.is_some()).and_then(|endpoint| endpoint.address);
    if let Some(address) = behind.map(|address| address.value.0.to_string())
        && !names.contains(&address)
    {
        names.push(address);
    }
    names
}

fn check_endpoint(cx: &mut Context<'_>, written: &Endpoint) {
    if let (Some(vip), Some(kube_vip)) = (&written.vip, &written.kube_vip) {
        cx.findings.push(
            Finding::error(Code::CONFLICTING_KEYS, kube_vip.span, "`vip` and `kube_vip` do the same job")
                .see(vip.span, "the Talos VIP")
                .remedy("keep one of them"),
        );
    }
    if let Some(host) = written.host.as_ref().filter(|host| !is_dns_name(&host.value)) {
        let address = host.value.parse::<std::net::IpAddr>().is_ok();
        let remedy = if address {
            "write `address:` for an address"
        } else {
            "write a name such as `k8s.lab.example`"
        };
        cx.findings.push(
            Finding::error(
                Code::BAD_NAME,
                host.span,
                format!("`{}` is not a DNS name", ichor_spec::yaml::show(&host.value)),
            )
            .remedy(remedy),
        );
    }
}

fn kube_vip(cx: &mut Context<'_>, written: &Endpoint) -> Option<d::KubeVip> {
    let kube_vip = written.kube_vip.as_ref()?;
    if kube_vip.address.is_none() && !kube_vip.unread.has("address") {
        let remedy = "add the address it announces: `kube_vip: {address: 10.0.0.5}`";
        cx.missing(Some(kube_vip.span), "cluster.endpoint.kube_vip.address", remedy);
    }
    if let Some(interface) =
        kube_vip.interface.as_ref().filter(|interface| interface.starts_with("tailscale"))
    {
        cx.findings.push(
            Finding::error(Code::VIP, interface.span, format!("kube-vip cannot announce on `{}`", ichor_spec::yaml::show(interface)))
                .because("that interface answers no ARP, and tailnet peers route only what their server knows")
                .remedy("use a Talos `vip` on the LAN and a subnet route for it, or the MagicDNS names in `cert_sans`"),
        );
    }
    Some(d::KubeVip {
        address: kube_vip.address?.value.0,
        interface: kube_vip.interface.as_ref().map(|at| at.value.clone()),
        version: kube_vip.version.as_ref().map(|at| at.value.clone()),
    })
}

fn first_control_plane(cx: &mut Context<'_>, machines: &[d::Machine]) -> Option<Late<String>> {
    let mut control_planes = machines.iter().filter(|machine| machine.role == Role::ControlPlane);
    let first = control_planes.next()?;
    let at = cx.places.cluster;
    let shared = "add `endpoint: {vip: ...}`, `{host: ...}` or `{address: ...}`";
    if control_planes.next().is_some() {
        cx.findings.push(
            Finding::warning(
                Code::SINGLE_ENDPOINT,
                at,
                format!("the endpoint is `{}` alone, though there are several control planes", first.name),
            )
            .because("when that machine is down the API has no address")
            .remedy(shared),
        );
    }
    match first.primary_nic().addresses.first()? {
        Late::Known(address) => Some(Late::Known(address.addr().to_string())),
        Late::From(_) => {
            cx.findings.push(
                Finding::warning(
                    Code::DHCP_ENDPOINT,
                    at,
                    format!("the endpoint is the leased address of `{}`", first.name),
                )
                .because("when the lease changes, certificates and kubeconfigs no longer fit")
                .remedy(shared),
            );
            Some(Late::From(Source::Lease))
        }
    }
}

/// Returns how Proxmox is reached.
pub fn proxmox(cx: &mut Context<'_>) -> Option<d::Proxmox> {
    let written = cx.proxmox.clone();
    let tls = tls(cx);
    if written.endpoint.is_none() && !written.unread.has("endpoint") {
        let remedy = match cx.places.proxmox {
            Some(_) => "add `endpoint: https://pve1.lab.example:8006`",
            None => "add `proxmox: {endpoint: https://pve1.lab.example:8006}`",
        };
        cx.missing(cx.places.proxmox, "proxmox.endpoint", remedy);
    }
    if let Some(endpoint) = written.endpoint.as_ref().filter(|endpoint| endpoint.scheme != "https") {
        cx.findings.push(
            Finding::error(Code::PLAIN_HTTP, endpoint.span, format!("`{}` is not https", endpoint.text))
                .remedy("write `https://` and port 8006"),
        );
    }
    let jump = written.jump.map(|jump| hops(cx, &jump.value)).unwrap_or_default();
    Some(d::Proxmox {
        endpoint: base_of(&written.endpoint?.text),
        token: written.token.map(|token| token.value.0),
        tls,
        jump,
        pool: written.pool.map(|pool| pool.value),
        storage: storage(cx, None),
    })
}

/// Most servers between this computer and a private network. Nobody has more than three.
const MAX_HOPS: usize = 8;

/// Returns the servers that lead into a private network.
fn hops(cx: &mut Context<'_>, jump: &OneOrMany<Url>) -> Vec<Hop> {
    if let Some(beyond) = jump.0.get(MAX_HOPS) {
        let message = format!("`proxmox.jump` has {} hops", jump.0.len());
        let finding = Finding::error(Code::BAD_URL, beyond.span, message);
        cx.findings.push(finding.remedy(format!("leave at most {MAX_HOPS}")));
    }
    let mut hops = Vec::new();
    for url in &jump.0 {
        match url.text.parse::<Hop>() {
            Ok(hop) => hops.push(hop),
            Err(problem) => {
                let message = format!("`{}` {}", yaml::show(&url.text), problem.message);
                cx.findings.push(Finding::error(Code::BAD_URL, url.span, message).remedy(problem.remedy));
            }
        }
    }
    hops
}

/// People paste the address with the API's path; the path is ichor's business.
fn base_of(url: &str) -> String {
    url.strip_suffix("/api2/json").unwrap_or(url).to_owned()
}

fn tls(cx: &mut Context<'_>) -> d::Tls {
    let Some(tls) = cx.proxmox.tls.clone() else {
        return d::Tls::TrustOnFirstUse;
    };
    let ways = [
        tls.sha256.as_ref().map(|at| at.span),
        tls.ca.as_ref().map(|at| at.span),
        tls.insecure.filter(|at| at.value).map(|at| at.span),
    ];
    let mut given = ways.into_iter().flatten();
    if let (Some(first), Some(second)) = (given.next(), given.next()) {
        cx.findings.push(
            Finding::error(Code::CONFLICTING_KEYS, second, "the certificate is checked in one way only")
                .see(first, "another way")
                .remedy("keep one of `sha256`, `ca` and `insecure`"),
        );
    }
    if let Some(sha256) = &tls.sha256 {
        return d::Tls::Sha256(sha256.value.0.clone());
    }
    if let Some(ca) = &tls.ca {
        return d::Tls::Ca(ca.value.0.clone());
    }
    match tls.insecure {
        Some(insecure) if insecure.value => {
            cx.findings.push(
                Finding::warning(
                    Code::INSECURE_TLS,
                    insecure.span,
                    "the connection to Proxmox is not verified",
                )
                .remedy("pin the certificate: `tls: {sha256: ...}`"),
            );
            d::Tls::Insecure
        }
        _ => d::Tls::TrustOnFirstUse,
    }
}

/// Returns where ichor keeps what cannot be asked back.
pub fn store(inventory: &Inventory) -> String {
    match inventory.store.as_ref().map(|store| &store.value) {
        Some(Store::Url(url)) => url.text.clone(),
        Some(Store::Directory(directory)) => {
            directory.path.as_ref().map_or_else(|| ".ichor".into(), |path| path.value.0.clone())
        }
        None => ".ichor".into(),
    }
}

/// Returns the age recipients.
pub fn recipients(inventory: &Inventory) -> Vec<String> {
    let written = inventory.secrets.as_ref().map(|secrets| values(secrets.age.as_ref())).unwrap_or_default();
    written.into_iter().map(|recipient| recipient.0).collect()
}

/// Returns the file with the Talos secrets bundle.
pub fn secrets_file(inventory: &Inventory) -> Option<String> {
    let file = inventory.secrets.as_ref()?.file.as_ref()?;
    Some(file.value.0.clone())
}
