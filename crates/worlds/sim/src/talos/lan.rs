//! The lab's networks: one DHCP server for each bridge and VLAN that has one, and what lies between machines.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

use serde::{Deserialize, Serialize};

use crate::ground::NetworkCard;

/// All networks of the lab.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lan {
    /// DHCP servers by [`segment`].
    pub servers: BTreeMap<String, DhcpServer>,
}

/// A DHCP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DhcpServer {
    /// The first address it gives.
    pub first: Ipv4Addr,
    /// The last address it gives.
    pub last: Ipv4Addr,
    /// The prefix length of its network.
    pub prefix: u8,
    /// The gateway it names.
    pub gateway: Option<Ipv4Addr>,
    /// The name servers it names.
    pub resolvers: Vec<IpAddr>,
    /// Addresses, and perhaps host names, that are kept for MAC addresses in lower case.
    pub reservations: BTreeMap<String, (Ipv4Addr, Option<String>)>,
    /// What it has given, by MAC address.
    pub leases: BTreeMap<String, Ipv4Addr>,
}

/// What a DHCP server gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The address and its prefix length.
    pub address: (IpAddr, u8),
    /// The gateway.
    pub gateway: Option<IpAddr>,
    /// Name servers.
    pub resolvers: Vec<IpAddr>,
    /// The host name, if the server gives one.
    pub hostname: Option<String>,
}

/// Names the network that a card is plugged into: `vmbr0`, or `vmbr0.20` with a VLAN.
pub fn segment(card: &NetworkCard) -> String {
    card.vlan.map_or_else(|| card.bridge.clone(), |vlan| format!("{}.{vlan}", card.bridge))
}

impl Lan {
    /// Asks the DHCP server of a card's network.
    pub fn lease(&mut self, card: &NetworkCard) -> Option<Lease> {
        if card.link_down {
            return None;
        }
        self.servers.get_mut(&segment(card))?.lease(&card.mac)
    }
}

impl DhcpServer {
    /// Makes a server for a range of addresses, whose gateway and name server is the first of the network.
    pub fn new(first: Ipv4Addr, last: Ipv4Addr, prefix: u8) -> Self {
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
        let gateway = Ipv4Addr::from((u32::from(first) & mask).saturating_add(1));
        Self {
            first,
            last,
            prefix,
            gateway: Some(gateway),
            resolvers: vec![gateway.into()],
            reservations: BTreeMap::new(),
            leases: BTreeMap::new(),
        }
    }

    /// Gives an address: the reserved one, the one given before, or the first that is free.
    fn lease(&mut self, mac: &str) -> Option<Lease> {
        let (address, hostname) = match self.reservations.get(mac) {
            Some((address, hostname)) => (*address, hostname.clone()),
            None => (self.leases.get(mac).copied().or_else(|| self.free())?, None),
        };
        self.leases.insert(mac.to_owned(), address);
        Some(Lease {
            address: (address.into(), self.prefix),
            gateway: self.gateway.map(IpAddr::V4),
            resolvers: self.resolvers.clone(),
            hostname,
        })
    }

    /// Returns the first address that nobody has.
    pub fn free(&self) -> Option<Ipv4Addr> {
        let reserved = self.reservations.values().map(|(address, _)| *address);
        let taken: BTreeSet<Ipv4Addr> = self.leases.values().copied().chain(reserved).collect();
        let (first, last) = (u32::from(self.first), u32::from(self.last));
        // One more than what is taken is enough to find a free one.
        let most = u32::try_from(taken.len()).unwrap_or(u32::MAX);
        (first..=last.min(first.saturating_add(most)))
            .map(Ipv4Addr::from)
            .find(|address| !taken.contains(address))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_kept_reserved_and_run_out() {
        let address = |last| Ipv4Addr::new(10, 0, 0, last);
        let mut server = DhcpServer::new(address(100), address(101), 24);
        server.reservations.insert("r".into(), (address(100), Some("cp-1".into())));
        let first = server.lease("a").expect("free").address;
        assert_eq!((first, server.gateway), ((address(101).into(), 24), Some(address(1))));
        assert_eq!(server.lease("a").expect("the same").address, first);
        assert_eq!(server.lease("r").expect("reserved").hostname.as_deref(), Some("cp-1"));
        assert_eq!(server.lease("b"), None);
    }
}
