//! What differs between the inventory and a cluster that runs, and is left as it is: [`up`](crate::up()) makes what is
//! missing, and changes nothing that runs.

use std::{collections::BTreeMap, net::IpAddr};

use ichor_model::{
    Code, Desired, Finding, Findings, Observed, VmId,
    desired::Machine,
    observed::{MachineSeen, NodeSeen, Owner, Sight, TalosSeen, VmSeen},
};

use ipnet::IpNet;

use crate::{
    files::host_of,
    whereabouts::{Whereabouts, wanted, whereabouts},
};

/// Most machines, options or places that a finding names; the others are counted.
const MOST_NAMED: usize = 8;

/// Finds every difference that can be seen and that no step settles. Machines that differ in the same way share a
/// finding.
pub fn drift(desired: &Desired, observed: &Observed) -> Findings {
    let mut findings: Vec<Finding> = Vec::new();
    findings.extend(vms(desired, observed));
    findings.extend(talos_releases(desired, observed));
    findings.extend(kubernetes_releases(desired, observed));
    findings.extend(images(desired, observed));
    findings.extend(configs(desired, observed));
    findings.extend(desired.machines.iter().filter_map(|machine| address(observed, machine)));
    findings.extend(left_over(desired, observed).map(|(vmid, vm)| not_in_inventory(vmid, vm)));
    findings.into_iter().collect()
}

/// Returns the VMs of this cluster that are neither machines nor templates of the inventory.
pub(crate) fn left_over<'a>(
    desired: &Desired,
    observed: &'a Observed,
) -> impl Iterator<Item = (VmId, &'a VmSeen)> {
    let wanted = desired.vmids();
    let seen = observed.vms.iter().filter_map(|(vmid, sight)| Some((*vmid, sight.seen()?.as_ref()?)));
    seen.filter(move |(vmid, vm)| vm.owner.is_cluster() && !wanted.contains(vmid))
}

/// Puts machines together that differ in the same way, in the order of the first of them.
fn together<'a, D: Ord + Clone>(
    desired: &'a Desired,
    difference: impl Fn(&'a Machine) -> Option<D>,
) -> Vec<(D, Vec<&'a Machine>)> {
    let mut groups: Vec<(D, Vec<&Machine>)> = Vec::new();
    let mut places: BTreeMap<D, usize> = BTreeMap::new();
    for machine in &desired.machines {
        let Some(how) = difference(machine) else { continue };
        let at = *places.entry(how.clone()).or_insert(groups.len());
        match groups.get_mut(at) {
            Some((_, machines)) => machines.push(machine),
            None => groups.push((how, vec![machine])),
        }
    }
    groups
}

fn named(machines: &[&Machine]) -> String {
    let names: Vec<String> = machines.iter().map(|machine| format!("`{}`", machine.name)).collect();
    listed(&names)
}

/// Lists words: `a, b and c`, and how many there are beyond what anybody reads.
pub(crate) fn listed(words: &[String]) -> String {
    match words {
        [first @ .., last] if !first.is_empty() && words.len() <= MOST_NAMED => {
            format!("{} and {last}", first.join(", "))
        }
        _ if words.len() > MOST_NAMED => {
            format!("{} and {} more", words[..MOST_NAMED].join(", "), words.len() - MOST_NAMED)
        }
        _ => words.join(""),
    }
}

fn running<'o>(observed: &'o Observed, machine: &Machine) -> Option<&'o VmSeen> {
    let vm = observed.vms.get(&machine.vmid)?.seen()?.as_ref()?;
    (vm.owner == Owner::Ours && vm.running).then_some(vm)
}

fn talos<'o>(observed: &'o Observed, machine: &Machine) -> Option<&'o TalosSeen> {
    match observed.machines.get(&machine.name)? {
        Sight::Seen(MachineSeen::Ours(talos)) => Some(talos),
        _ => None,
    }
}

fn node<'o>(observed: &'o Observed, machine: &Machine) -> Option<&'o NodeSeen> {
    observed.nodes.seen()?.get(machine.name.as_str())
}

fn vms(desired: &Desired, observed: &Observed) -> Vec<Finding> {
    let differing = together(desired, |machine| {
        let vm = running(observed, machine)?;
        let mut told = vm.drift.clone();
        let wanted = host_of(machine).filter(|host| **host != vm.host);
        told.extend(wanted.map(|wanted| format!("it is on host `{}`, wanted `{wanted}`", vm.host)));
        (!told.is_empty()).then_some(told)
    });
    let finding = |(told, machines): (Vec<String>, Vec<&Machine>)| {
        let (vm, is) = if machines.len() == 1 { ("VM", "is") } else { ("VMs", "are") };
        let message = format!("the {vm} of {} {is} not as the inventory says", named(&machines));
        let finding = Finding::warning(Code::DRIFT_VM, None, message);
        let finding = told.iter().take(MOST_NAMED).fold(finding, Finding::because);
        let more = told.len().saturating_sub(MOST_NAMED);
        let finding = if more > 0 { finding.because(format!("and {more} more")) } else { finding };
        finding.remedy(
            "VMs that run are not changed yet: change it in Proxmox, or write into the inventory what is there",
        )
    };
    differing.into_iter().map(finding).collect()
}

fn talos_releases(desired: &Desired, observed: &Observed) -> Vec<Finding> {
    let differing = together(desired, |machine| {
        other_release(&talos(observed, machine)?.version, machine.talos.to_string())
    });
    let finding = |((is, wanted), machines): ((String, String), Vec<&Machine>)| {
        release("Talos", &is, &wanted, &machines).remedy(format!(
            "upgrades are not done yet: `talosctl upgrade` does them, machine by machine; or write `talos: {is}` again"
        ))
    };
    differing.into_iter().map(finding).collect()
}

fn kubernetes_releases(desired: &Desired, observed: &Observed) -> Vec<Finding> {
    let differing = together(desired, |machine| {
        other_release(&node(observed, machine)?.version, machine.kubernetes.to_string())
    });
    let finding = |((is, wanted), machines): ((String, String), Vec<&Machine>)| {
        let to = wanted.trim_start_matches('v');
        release("Kubernetes", &is, &wanted, &machines).remedy(format!(
            "upgrades are not done yet: `talosctl upgrade-k8s --to {to}` does it; or write `kubernetes: {is}` again"
        ))
    };
    differing.into_iter().map(finding).collect()
}

/// One that was not told is no difference.
fn other_release(is: &str, wanted: String) -> Option<(String, String)> {
    (!is.is_empty() && is != wanted).then(|| (is.to_owned(), wanted))
}

fn release(what: &str, is: &str, wanted: &str, machines: &[&Machine]) -> Finding {
    let run = if machines.len() == 1 { "runs" } else { "run" };
    let message = format!("{} {run} {what} {is}, and the inventory says {wanted}", named(machines));
    Finding::warning(Code::DRIFT_RELEASE, None, message)
}

fn images(desired: &Desired, observed: &Observed) -> Vec<Finding> {
    let differing = together(desired, |machine| talos(observed, machine)?.other_schematic.clone());
    let finding = |(schematic, machines): (String, Vec<&Machine>)| {
        let run = if machines.len() == 1 { "runs" } else { "run" };
        let message = format!("{} {run} another image than the inventory stands for", named(&machines));
        Finding::warning(Code::DRIFT_IMAGE, None, message)
            .because(format!("what runs has the schematic {schematic}: its extensions, kernel arguments or META values are others"))
            .remedy("upgrades are not done yet: `talosctl upgrade` with the installer of the new schematic does them:\n    ichor image id")
    };
    differing.into_iter().map(finding).collect()
}

fn configs(desired: &Desired, observed: &Observed) -> Vec<Finding> {
    let differing = together(desired, |machine| {
        Some(&talos(observed, machine)?.config_drift).filter(|places| !places.is_empty())
    });
    let finding = |(places, machines): (&Vec<String>, Vec<&Machine>)| {
        let run = if machines.len() == 1 { "runs" } else { "run" };
        let message =
            format!("{} {run} with another machine config than the inventory stands for", named(&machines));
        Finding::warning(Code::DRIFT_CONFIG, None, message)
            .because(format!("it differs at {}", listed(places)))
            .remedy("configs are not applied again yet: `talosctl apply-config` does it, with what this writes:\n    ichor render")
    };
    differing.into_iter().map(finding).collect()
}

/// A node says which address its machine has, also when nobody answers where the inventory has it.
fn address(observed: &Observed, machine: &Machine) -> Option<Finding> {
    running(observed, machine)?;
    let wanted: Vec<IpAddr> = wanted(machine).iter().map(IpNet::addr).collect();
    let first = wanted.first()?;
    let told = || {
        let is = &node(observed, machine)?.addresses;
        is.first().copied().filter(|_| !is.iter().any(|address| wanted.contains(address)))
    };
    let has = match whereabouts(observed, machine)? {
        Whereabouts::Elsewhere(has) => has,
        Whereabouts::AsWanted | Whereabouts::Unknown => told()?,
    };
    let message = format!("`{}` has the address {has}, and the inventory says {first}", machine.name);
    Some(
        Finding::warning(Code::DRIFT_ADDRESS, None, message)
            .because("machines that run keep their address: a run waits at the new one in vain")
            .remedy(format!("write `address: {has}` again")),
    )
}

fn not_in_inventory(vmid: VmId, vm: &VmSeen) -> Finding {
    let (name, host) = (&vm.name, &vm.host);
    if vm.template {
        let message = format!("template `{name}` (VM {vmid}) of this cluster is not in the inventory");
        return Finding::warning(Code::NOT_IN_INVENTORY, None, message)
            .because(format!("it is on host `{host}`"))
            .remedy("templates that nobody uses are left: delete it in Proxmox if no linked clone needs it");
    }
    let message = format!("`{name}` (VM {vmid}) of this cluster is not in the inventory");
    let how = if vm.running { "it runs" } else { "it is off" };
    Finding::warning(Code::NOT_IN_INVENTORY, None, message)
        .because(format!("{how}, on host `{host}`"))
        .remedy("single machines are not removed yet: write it into the inventory again, or take it out by hand; this says how:\n    ichor explain ICH-3135")
}
