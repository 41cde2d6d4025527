//! Where machines are that run: a machine keeps the address that it was made with, whatever the inventory says later.

use std::net::IpAddr;

use ichor_model::{
    Code, Finding, Observed,
    desired::{Late, Machine},
    observed::{MachineSeen, NodeSeen, Owner, Sight, VmSeen},
};
use ipnet::IpNet;

/// Where a machine that runs is, if the inventory gives it addresses of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whereabouts {
    /// Where the inventory has it, or nothing speaks against that.
    AsWanted,
    /// At this address.
    Elsewhere(IpAddr),
    /// It does not answer where the inventory has it, and nobody can tell where it is.
    Unknown,
}

/// Finds out where a machine is. Nothing: its VM does not run, or it leases its address.
pub fn whereabouts(observed: &Observed, machine: &Machine) -> Option<Whereabouts> {
    let vm = running(observed, machine)?;
    let wanted = wanted(machine);
    if wanted.is_empty() {
        return None;
    }
    let is_wanted = |address: &IpAddr| wanted.iter().any(|net| net.addr() == *address);
    let node = observed.nodes.seen().and_then(|nodes| nodes.get(machine.name.as_str()));
    if node.is_some_and(|node| node.addresses.iter().any(is_wanted)) {
        return Some(Whereabouts::AsWanted);
    }
    let seen = observed.machines.get(&machine.name).and_then(Sight::seen);
    let answers = matches!(seen, Some(MachineSeen::Ours(_)));
    let other = vm.addresses.iter().find(|has| is_other(machine, has));
    Some(match other {
        // Who answers there may be another machine of ours, with which it has changed places: its node knows.
        Some(has) if !answers || node.is_some_and(|node| node.addresses.contains(has)) => {
            Whereabouts::Elsewhere(*has)
        }
        None if vm.addresses.is_empty() && !answers && seen != Some(&MachineSeen::Maintenance) => {
            node.and_then(|node| told_by(node, &wanted)).map_or(Whereabouts::Unknown, Whereabouts::Elsewhere)
        }
        _ => Whereabouts::AsWanted,
    })
}

fn running<'o>(observed: &'o Observed, machine: &Machine) -> Option<&'o VmSeen> {
    let vm = observed.vms.get(&machine.vmid)?.seen()?.as_ref()?;
    (vm.owner == Owner::Ours && vm.running).then_some(vm)
}

/// Returns the addresses that the inventory gives a machine.
pub fn wanted(machine: &Machine) -> Vec<IpNet> {
    machine.nics.iter().flat_map(|nic| &nic.addresses).filter_map(Late::known).copied().collect()
}

/// Whether an address of a machine's first network card is not the one that the inventory gives it in that family.
fn is_other(machine: &Machine, has: &IpAddr) -> bool {
    let wanted = machine.primary_nic().addresses.iter().filter_map(Late::known).map(IpNet::addr);
    let mut of_family = wanted.filter(|wanted| wanted.is_ipv4() == has.is_ipv4()).peekable();
    of_family.peek().is_some() && !of_family.any(|wanted| wanted == *has)
}

/// A node whose kubelet speaks tells an address. Only one of the same network counts: a node may be known by an
/// address that no inventory gives, such as one of a VPN.
fn told_by(node: &NodeSeen, wanted: &[IpNet]) -> Option<IpAddr> {
    let inside = |address: &&IpAddr| wanted.iter().any(|net| net.contains(*address));
    node.addresses.iter().find(inside).filter(|_| node.ready).copied()
}

/// Refuses an inventory that moves a machine which runs, before anybody waits for it at an address that it will never
/// have.
pub(crate) fn moved(observed: &Observed, machine: &Machine) -> Option<Finding> {
    let (name, vmid, at) = (&machine.name, machine.vmid, machine.primary_nic().written.0);
    let wanted = wanted(machine).first()?.addr();
    match whereabouts(observed, machine)? {
        Whereabouts::AsWanted => None,
        Whereabouts::Elsewhere(has) => {
            let message =
                format!("`{name}` runs with the address {has}, and the inventory gives it {wanted}");
            Some(
                Finding::error(Code::DRIFT_ADDRESS, at, message)
                    .because(format!("machines keep the address that they were made with: nobody would ever answer at {wanted}"))
                    .remedy(format!(
                        "let `{name}` have {has} again; or have it made anew, without what is on its disks: take VM {vmid} out first, as this says:\n    ichor explain ICH-3134"
                    )),
            )
        }
        Whereabouts::Unknown => {
            let message = format!(
                "`{name}` runs, does not answer at {wanted}, and nobody can tell which address it has"
            );
            Some(
                Finding::warning(Code::DRIFT_ADDRESS, at, message)
                    .because("neither its cloud-init, its guest agent nor a ready node says so")
                    .remedy("one that boots will answer; if the inventory gave it another address before, write that again"),
            )
        }
    }
}
