//! Clusters that live side by side must not get into each other's way.

use std::collections::BTreeMap;

use ichor_model::{
    Code, Desired, Finding, Findings,
    desired::{Nic, Role},
};

/// Reports what several clusters cannot share: names, identities, VMIDs and addresses.
pub fn check_together(clusters: &[&Desired]) -> Findings {
    let mut findings = Findings::new();
    check_names(clusters, &mut findings);
    let mut by_proxmox: BTreeMap<&str, Vec<&Desired>> = BTreeMap::new();
    for cluster in clusters {
        by_proxmox.entry(&cluster.proxmox.endpoint).or_default().push(cluster);
    }
    for neighbours in by_proxmox.values() {
        check_claims(neighbours, Code::VMID_TWICE, "VMID", vmids, &mut findings);
        check_claims(neighbours, Code::ADDRESS_TWICE, "address", addresses, &mut findings);
        check_claims(neighbours, Code::MAC_TWICE, "MAC", macs, &mut findings);
    }
    findings
}

fn check_names(clusters: &[&Desired], findings: &mut Findings) {
    let mut names = BTreeMap::new();
    let mut ids = BTreeMap::new();
    for (i, cluster) in clusters.iter().enumerate() {
        if names.insert(&cluster.cluster.name, i).is_some() {
            findings.push(
                Finding::error(
                    Code::CLUSTER_TWICE,
                    None,
                    format!("two inventories are called `{}`", cluster.cluster.name),
                )
                .remedy("give each cluster a name of its own"),
            );
        } else if ids.insert(&cluster.cluster.id, i).is_some() {
            findings.push(
                Finding::error(
                    Code::CLUSTER_TWICE,
                    None,
                    format!("two clusters have the id `{}`", cluster.cluster.id),
                )
                .because("they would take each other's VMs for theirs")
                .remedy("give each a `cluster.id` of its own"),
            );
        }
    }
}

/// What a cluster claims for itself, and for whom.
type Claims = Vec<(String, String)>;

fn check_claims(
    clusters: &[&Desired],
    code: Code,
    what: &str,
    claims: fn(&Desired) -> Claims,
    findings: &mut Findings,
) {
    let mut seen: BTreeMap<String, (usize, String)> = BTreeMap::new();
    for (i, cluster) in clusters.iter().enumerate() {
        for (value, owner) in claims(cluster) {
            let owner = format!("{owner} of cluster `{}`", cluster.cluster.name);
            match seen.get(&value) {
                Some((other, first)) if *other != i => findings.push(
                    Finding::error(code, None, format!("{first} and {owner} both have {what} {value}"))
                        .because("both clusters are on the same Proxmox")
                        .remedy("give the clusters ranges of their own"),
                ),
                Some(_) => {}
                None => {
                    seen.insert(value, (i, owner));
                }
            }
        }
    }
}

fn vmids(cluster: &Desired) -> Claims {
    let machines =
        cluster.machines.iter().map(|machine| (machine.vmid.to_string(), format!("`{}`", machine.name)));
    // A template that somebody else made may serve several clusters.
    let own = cluster.templates.iter().filter(|template| !template.existing);
    let templates = own.map(|template| {
        (template.vmid.to_string(), format!("the template of `{}`", template.serves.join("`, `")))
    });
    machines.chain(templates).collect()
}

/// Addresses count as the same only on the same bridge and VLAN: private networks may repeat.
fn addresses(cluster: &Desired) -> Claims {
    let mut claims = Claims::new();
    for machine in &cluster.machines {
        for nic in &machine.nics {
            for address in nic.addresses.iter().filter_map(|address| address.known()) {
                let wire = wire(nic);
                claims.push((format!("{} on {wire}", address.addr()), format!("`{}`", machine.name)));
            }
        }
    }
    claims.extend(shared_addresses(cluster));
    claims
}

/// The VIPs are on the wire of the control planes.
fn shared_addresses(cluster: &Desired) -> Claims {
    let endpoint = &cluster.cluster.endpoint;
    let vips = [
        (endpoint.vip, "the VIP"),
        (endpoint.kube_vip.as_ref().map(|kube_vip| kube_vip.address), "kube-vip's address"),
    ];
    let Some(nic) =
        cluster.of_role(Role::ControlPlane).next().map(ichor_model::desired::Machine::primary_nic)
    else {
        return Claims::new();
    };
    let claims = vips.into_iter().filter_map(|(vip, owner)| Some((vip?, owner)));
    claims.map(|(vip, owner)| (format!("{vip} on {}", wire(nic)), owner.to_owned())).collect()
}

/// Where a network card is plugged in.
fn wire(nic: &Nic) -> String {
    nic.vlan.map_or_else(|| nic.bridge.clone(), |vlan| format!("{}, VLAN {vlan}", nic.bridge))
}

fn macs(cluster: &Desired) -> Claims {
    let nics = cluster.machines.iter().flat_map(|machine| machine.nics.iter().map(move |nic| (machine, nic)));
    nics.map(|(machine, nic)| (nic.mac.to_string(), format!("`{}`", machine.name))).collect()
}
