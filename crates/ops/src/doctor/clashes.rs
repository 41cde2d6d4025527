//! Numbers, MAC addresses and names that others have.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::stream::{self, StreamExt};
use ichor_model::{Code, Desired, Finding, HostName, Observed, VmId, observed::Sight};
use ichor_pve::{
    Kind,
    api::{self, VmConfig},
    property::NetworkCard,
};

use super::{Check, Group, WITHIN, counted};
use crate::{live::Live, observe::Survey};

/// Most VMs of others that are asked for their MAC addresses.
const MOST_ASKED: usize = 256;
/// Most of them that are asked together. Proxmox has three workers.
const AT_ONCE: usize = 6;

/// What others have.
#[derive(Debug, Default)]
pub struct Seen {
    /// Numbers of machines to come that are taken by somebody whom the token may not see.
    hidden: BTreeSet<VmId>,
    /// Network cards of others: MAC address, and whose.
    macs: Vec<(String, VmId)>,
    /// Names of others.
    names: Vec<(String, VmId, HostName)>,
    /// How many VMs of others were not asked.
    left_out: usize,
    asked: usize,
}

/// Asks what others have, as far as the token may.
pub async fn see(live: &Live<'_>, survey: &Survey, observed: &Observed) -> Seen {
    let ours = |vmid: &VmId| match observed.vms.get(vmid) {
        Some(Sight::Seen(Some(vm))) => vm.owner.is_cluster(),
        Some(Sight::Unseen(_)) => true,
        _ => false,
    };
    let others: Vec<(VmId, HostName)> = survey
        .guests
        .values()
        .filter(|guest| guest.kind == "qemu" && !ours(&guest.vmid))
        .map(|guest| (guest.vmid, guest.node.clone()))
        .collect();
    let names = survey.guests.values().filter(|guest| !ours(&guest.vmid));
    let names = names.filter_map(|guest| Some((guest.name.clone()?, guest.vmid, guest.node.clone())));
    let left_out = others.len().saturating_sub(MOST_ASKED);
    let (hidden, cards) = tokio::join!(hidden(live, observed), cards(live, &others));
    let asked = others.len() - left_out;
    Seen { hidden, macs: cards, names: names.collect(), left_out, asked }
}

/// A token sees the VMs that it may audit; whether a number is free, everybody is told.
async fn hidden(live: &Live<'_>, observed: &Observed) -> BTreeSet<VmId> {
    let free = |vmid: &VmId| matches!(observed.vms.get(vmid), Some(Sight::Seen(None)));
    let wanted: Vec<VmId> = live.desired.vmids().into_iter().filter(free).collect();
    let asked = stream::iter(wanted).map(|vmid| async move {
        let told = live.pve.send_within(&api::is_free(vmid), WITHIN).await;
        let taken = told.is_err_and(|error| error.refusal() == Some(Kind::Exists));
        taken.then_some(vmid)
    });
    asked.buffer_unordered(AT_ONCE).filter_map(|taken| async move { taken }).collect().await
}

async fn cards(live: &Live<'_>, others: &[(VmId, HostName)]) -> Vec<(String, VmId)> {
    let asked = stream::iter(others.iter().take(MOST_ASKED)).map(|(vmid, host)| async move {
        let config = live.pve.send_within(&api::config(host, *vmid), WITHIN).await;
        config
            .map(|config| macs_of(&config))
            .unwrap_or_default()
            .into_iter()
            .map(|mac| (mac, *vmid))
            .collect()
    });
    let found: Vec<Vec<(String, VmId)>> = asked.buffer_unordered(AT_ONCE).collect().await;
    found.into_iter().flatten().collect()
}

fn macs_of(config: &VmConfig) -> Vec<String> {
    config.numbered("net").filter_map(|(_, text)| NetworkCard::parse(&text)).map(|card| card.mac).collect()
}

impl Seen {
    /// Whether numbers are free. `known` is what the survey showed.
    pub fn vmids(&self, desired: &Desired, known: Vec<Finding>) -> Check {
        let hidden = self.hidden.iter().map(|vmid| {
            let machine = desired.machines.iter().find(|machine| machine.vmid == *vmid);
            let whom = machine.map_or_else(|| "a template".to_owned(), |it| format!("`{}`", it.name));
            Finding::error(
                Code::VM_NOT_OURS,
                None,
                format!("VM {vmid}, meant for {whom}, is somebody else's"),
            )
            .because("the number is taken, by a VM or container that this token may not see")
            .remedy("choose another `vmid` or range of them (`proxmox.vmids`); the VM is left as it is")
        });
        let says = format!("{} are free or ours", counted(desired.vmids().len(), "number"));
        Check::new("vmids", Group::Machines, says).with(known).with(hidden)
    }

    /// Whether somebody else has a MAC address of ours.
    pub fn macs(&self, desired: &Desired) -> Check {
        let mut ours: BTreeMap<String, &str> = BTreeMap::new();
        for machine in &desired.machines {
            for nic in &machine.nics {
                ours.insert(nic.mac.to_string().to_lowercase(), machine.name.as_str());
            }
        }
        let clashes = self.macs.iter().filter_map(|(mac, vmid)| {
            let machine = ours.get(mac)?;
            let message = format!("VM {vmid} has the MAC address {mac} of `{machine}`");
            Some(
                Finding::error(Code::CLASH, None, message)
                    .because("two machines with one address on a network take each other's packets")
                    .remedy(
                        "give one of them another MAC address (`mac` of the machine), or keep them apart",
                    ),
            )
        });
        let more =
            if self.left_out == 0 { String::new() } else { format!("; {} were not asked", self.left_out) };
        let says = match self.asked {
            0 => "no VM of others is seen".to_owned(),
            asked => format!("{} of others asked{more}", counted(asked, "VM")),
        };
        Check::new("macs", Group::Machines, says).with(clashes)
    }

    /// Whether somebody else has the name of a machine of ours.
    pub fn names(&self, desired: &Desired) -> Check {
        let same = self.names.iter().filter(|(name, _, _)| desired.has_machine(name));
        let findings = same.map(|(name, vmid, host)| {
            Finding::warning(Code::CLASH, None, format!("VM {vmid} on host `{host}` is called `{name}` too"))
                .because("Proxmox allows it, and people take one for the other")
                .remedy("rename one of them")
        });
        let says = format!("{} of others seen", counted(self.names.len(), "guest"));
        Check::new("names", Group::Machines, says).with(findings)
    }
}
