//! Bridges, and who answers at addresses that nobody of ours can have.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::ErrorKind,
    net::IpAddr,
    time::Duration,
};

use futures_util::{
    future::join_all,
    stream::{self, StreamExt},
};
use ichor_model::{
    Code, Desired, Finding, HopKind, HostName, MachineName, Observed,
    desired::Machine,
    observed::{Owner, Sight},
};
use ichor_net::Dial;
use ichor_plan::files::host_of;
use ichor_pve::api::{self, Interface};
use tokio::time::timeout;

use super::{Check, Group, WITHIN, addresses, counted, hosts, privileges, some};
use crate::{access::own_address, live::Live};

/// Where servers usually listen; the Talos API and Kubernetes first.
const PORTS: [u16; 6] = [50000, 6443, 22, 443, 80, 53];
/// How long somebody on the same network may take to open the door.
const KNOCK_WITHIN: Duration = Duration::from_secs(3);
/// Most addresses that are knocked at together.
const AT_ONCE: usize = 16;
/// What Proxmox calls the zone of plain bridges.
const PLAIN_BRIDGES: &str = "/sdn/zones/localnetwork";

/// Whether somebody is at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// Somebody opens this port.
    Answers(u16),
    /// Somebody refuses.
    Refuses,
    /// Nobody says anything.
    Silent,
}

/// What was seen of the network.
#[derive(Debug, Default)]
pub struct Seen {
    bridges: BTreeMap<HostName, Result<Vec<Interface>, String>>,
    /// Who is at addresses of machines that nobody of ours can be at.
    addresses: BTreeMap<MachineName, (IpAddr, Life)>,
    gateways: BTreeMap<IpAddr, Life>,
}

/// Looks at bridges, and knocks at addresses.
pub async fn see(live: &Live<'_>, observed: &Observed) -> Seen {
    let up = hosts::used(live.desired).into_iter().filter(|host| observed.hosts.get(host) != Some(&false));
    let bridges = join_all(up.map(|host| async move {
        let told = live.pve.send_within(&api::bridges(&host), WITHIN).await;
        (host, told.map_err(|error| error.to_string()))
    }));
    let (bridges, addresses, gateways) =
        tokio::join!(bridges, knock_at_machines(live, observed), knock_at_gateways(live));
    Seen { bridges: bridges.into_iter().collect(), addresses, gateways }
}

async fn knock_at_machines(live: &Live<'_>, observed: &Observed) -> BTreeMap<MachineName, (IpAddr, Life)> {
    let free = live.desired.machines.iter().filter(|machine| nobody_can_be_there(observed, machine));
    let wanted: Vec<(MachineName, IpAddr)> =
        free.filter_map(|machine| Some((machine.name.clone(), own_address(machine)?))).collect();
    let knocks = stream::iter(wanted)
        .map(|(name, address)| async move { (name, (address, knock(live, address).await)) });
    knocks.buffer_unordered(AT_ONCE).collect().await
}

async fn knock_at_gateways(live: &Live<'_>) -> BTreeMap<IpAddr, Life> {
    let nics = live.desired.machines.iter().flat_map(|machine| &machine.nics);
    let gateways: BTreeSet<IpAddr> = nics.flat_map(|nic| nic.gateways.iter().copied()).collect();
    let knocks = stream::iter(gateways).map(|address| async move { (address, knock(live, address).await) });
    knocks.buffer_unordered(AT_ONCE).collect().await
}

/// Before a machine has a VM, or while that is off, nobody should answer at its address.
fn nobody_can_be_there(observed: &Observed, machine: &Machine) -> bool {
    match observed.vms.get(&machine.vmid) {
        Some(Sight::Seen(None)) => true,
        Some(Sight::Seen(Some(vm))) => vm.owner == Owner::Ours && !vm.running,
        _ => false,
    }
}

async fn knock(live: &Live<'_>, address: IpAddr) -> Life {
    // An SSH server says the same of somebody who refuses and of somebody who is not there.
    let tells_apart = !live.desired.proxmox.jump.iter().any(|hop| hop.kind == HopKind::Ssh);
    let dialer: &dyn Dial = &*live.reach.dialer;
    let host = address.to_string();
    let knocks = PORTS.map(|port| {
        let host = host.as_str();
        async move {
            match timeout(KNOCK_WITHIN, dialer.dial(host, port)).await {
                Ok(Ok(_)) => Life::Answers(port),
                Ok(Err(error)) if tells_apart && error.kind() == ErrorKind::ConnectionRefused => {
                    Life::Refuses
                }
                _ => Life::Silent,
            }
        }
    });
    let told = join_all(knocks).await;
    let open = told.iter().find(|life| matches!(life, Life::Answers(_)));
    open.or_else(|| told.iter().find(|life| **life == Life::Refuses)).copied().unwrap_or(Life::Silent)
}

impl Seen {
    /// Whether each host has the bridges that its machines are plugged into.
    pub fn bridges(&self, desired: &Desired, privileges: &privileges::Seen) -> Check {
        const ID: &str = "bridges";
        let mut wanted: BTreeMap<(HostName, String), BTreeSet<u16>> = BTreeMap::new();
        for machine in &desired.machines {
            let Some(host) = host_of(machine) else { continue };
            for nic in &machine.nics {
                wanted.entry((host.clone(), nic.bridge.clone())).or_default().extend(nic.vlan);
            }
        }
        let names: BTreeSet<&String> = wanted.keys().map(|(_, bridge)| bridge).collect();
        let names: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
        let hosts: BTreeSet<&HostName> = wanted.keys().map(|(host, _)| host).collect();
        let mut check =
            Check::new(ID, Group::Network, format!("{} on {}", some(&names), counted(hosts.len(), "host")));
        let mut islands: BTreeMap<&String, Vec<String>> = BTreeMap::new();
        let mut unaware: BTreeMap<(&String, &BTreeSet<u16>), Vec<String>> = BTreeMap::new();
        for ((host, bridge), vlans) in &wanted {
            let Some(told) = self.bridges.get(host) else { continue };
            let told = match told {
                Ok(told) => told,
                Err(why) => {
                    check.known = false;
                    check.says = format!("the bridges of `{host}` were not told: {why}");
                    continue;
                }
            };
            let seen = told.iter().find(|seen| seen.iface == *bridge);
            if !vlans.is_empty() && seen.is_some_and(is_unaware) {
                unaware.entry((bridge, vlans)).or_default().push(format!("`{host}`"));
            }
            match seen {
                // What the token may not use is not shown to it, and spoken of elsewhere.
                None if may_not_see(privileges, bridge, vlans) => check.known = false,
                None => check.findings.push(no_bridge(host, bridge, told)),
                Some(seen) if hosts.len() > 1 && is_island(seen) => {
                    islands.entry(bridge).or_default().push(format!("`{host}`"));
                }
                Some(_) => {}
            }
        }
        check.findings.extend(islands.iter().map(|(bridge, hosts)| island(hosts, bridge)));
        check
            .findings
            .extend(unaware.iter().map(|((bridge, vlans), hosts)| passes_no_tags(hosts, bridge, vlans)));
        check
    }

    /// Whether somebody is at addresses that are to be ours. `taken` is what Talos' own port showed.
    pub fn addresses(&self, taken: Vec<Finding>) -> Check {
        const ID: &str = "addresses";
        let says = match self.addresses.len() {
            0 => "no address is waiting for its machine".to_owned(),
            count => format!("nobody is at {} of machines to come", addresses(count)),
        };
        let known: Vec<&MachineName> = self
            .addresses
            .iter()
            .filter(|(name, _)| taken.iter().any(|finding| finding.message.contains(&format!("`{name}`"))))
            .map(|(name, _)| name)
            .collect();
        let alive =
            self.addresses.iter().filter(|(name, (_, life))| *life != Life::Silent && !known.contains(name));
        let found: Vec<Finding> =
            alive.map(|(name, (address, life))| somebody_at(name, *address, *life)).collect();
        let says = if taken.is_empty() && found.is_empty() {
            says
        } else {
            format!("{} taken", addresses(taken.len() + found.len()))
        };
        Check::new(ID, Group::Network, says).with(taken).with(found)
    }

    /// Whether gateways are alive. Many say nothing to strangers, which proves nothing.
    pub fn gateway(&self) -> Check {
        const ID: &str = "gateway";
        if self.gateways.is_empty() {
            return Check::new(ID, Group::Network, "machines have no gateway of the inventory's");
        }
        let list = |silent: bool| -> Vec<String> {
            let gateways = self.gateways.iter().filter(|(_, life)| (**life == Life::Silent) == silent);
            gateways.map(|(address, _)| address.to_string()).collect()
        };
        let (alive, silent) = (list(false), list(true));
        if silent.is_empty() {
            return Check::new(ID, Group::Network, format!("{} is alive", some(&alive)));
        }
        let says = format!("{} says nothing to knocking, as many gateways do", some(&silent));
        Check::unknown(ID, Group::Network, says)
    }
}

/// Whether somebody has the VIP, as long as nobody of ours can.
pub fn vip(desired: &Desired, observed: &Observed, taken: Vec<Finding>) -> Check {
    const ID: &str = "vip";
    let Some(vip) = desired.cluster.endpoint.vip else {
        return Check::new(ID, Group::Network, "the cluster has no VIP");
    };
    let says = match observed.vip.seen() {
        Some(None) => format!("nobody has {vip} yet"),
        Some(Some(_)) => format!("{vip} is taken"),
        None => format!("{vip} is the cluster's"),
    };
    Check::new(ID, Group::Network, says).with(taken)
}

/// Whether a plain bridge of Linux knows nothing of VLANs. Those of Open vSwitch and of SDN have ways of their own.
fn is_unaware(seen: &Interface) -> bool {
    seen.kind == "bridge" && seen.bridge_vlan_aware.unwrap_or_default() == 0
}

/// Proxmox then makes a bridge for each VLAN, `vmbr0v5` over `eno1.5`, which takes a port that can have VLANs.
fn passes_no_tags(hosts: &[String], bridge: &str, vlans: &BTreeSet<u16>) -> Finding {
    let vlans: Vec<String> = vlans.iter().map(ToString::to_string).collect();
    let message = format!("bridge `{bridge}` on {} is not VLAN-aware", some(hosts));
    Finding::warning(Code::BRIDGE, None, message)
        .because(format!("machines use it with VLAN {}", some(&vlans)))
        .because("Proxmox makes a bridge of its own for each VLAN then, which works only where the port beneath is no VLAN itself")
        .remedy("tick `VLAN aware` for the bridge under Node > System > Network, and apply it; or name a bridge that is in the VLAN already, without `vlan`")
}

fn may_not_see(privileges: &privileges::Seen, bridge: &str, vlans: &BTreeSet<u16>) -> bool {
    let path = format!("{PLAIN_BRIDGES}/{bridge}");
    let of_vlans = vlans.iter().map(|vlan| format!("{path}/{vlan}"));
    of_vlans.chain([path.clone()]).any(|path| privileges.lacks(&path, "SDN.Use"))
}

fn is_island(bridge: &Interface) -> bool {
    let ports = bridge.bridge_ports.as_deref().map(str::trim);
    bridge.kind == "bridge" && ports.is_some_and(|ports| ports.is_empty() || ports == "none")
}

fn no_bridge(host: &HostName, bridge: &str, told: &[Interface]) -> Finding {
    let names: Vec<String> =
        told.iter().map(|seen| format!("`{}`", ichor_port::clean(&seen.iface))).collect();
    let has = if names.is_empty() {
        "it shows none to this token".to_owned()
    } else {
        format!("it has {}", some(&names))
    };
    Finding::error(Code::BRIDGE, None, format!("host `{host}` has no bridge `{bridge}`"))
        .because(has)
        .remedy("name another one under `network.bridge`, or make it on the host")
}

fn island(hosts: &[String], bridge: &str) -> Finding {
    Finding::warning(Code::BRIDGE, None, format!("bridge `{bridge}` of host {} leads nowhere", some(hosts)))
        .because("it has no port, and machines on other hosts are not reached through it")
        .remedy("give it a port on the host, or keep all machines on one host")
}

fn somebody_at(name: &MachineName, address: IpAddr, life: Life) -> Finding {
    let how = match life {
        Life::Answers(port) => format!("port {port} is open"),
        Life::Refuses | Life::Silent => "connections are refused, which somebody has to do".to_owned(),
    };
    Finding::error(Code::ADDRESS_TAKEN, None, format!("somebody is at {address}, the address of `{name}`"))
        .because(how)
        .because("the machine does not run")
        .remedy("give the machine another `address`, or find out who has it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hosts_call_their_bridges_cannot_play_tricks() {
        let host: HostName = "pve1".parse().expect("a name");
        let seen = Interface {
            iface: "vmbr1\u{1b}]52;c;x\u{7}".into(),
            kind: "bridge".into(),
            cidr: None,
            gateway: None,
            bridge_vlan_aware: None,
            bridge_ports: None,
        };
        let finding = no_bridge(&host, "vmbr0", std::slice::from_ref(&seen));
        assert_eq!(finding.message, "host `pve1` has no bridge `vmbr0`");
        assert!(!finding.notes[0].contains(char::is_control), "{:?}", finding.notes);
        assert!(!is_island(&seen), "nothing is known of its ports");
        assert!(is_island(&Interface { bridge_ports: Some("none".into()), ..seen }));
    }
}
