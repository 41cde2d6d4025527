//! `network`, and network cards of machines.

use ichor_model::{MacAddress, desired::Hostnames, net::MacPrefix};

use super::List;
use crate::{
    read::{OneOrMany, record},
    values::{Address, Addressing, Cidr, Int, Ip, NicModel},
};

record! {
    /// The machines' network, and those of pods and services.
    Network {
        /// The machines' network; two of them, one per family, for dual stack.
        cidr: OneOrMany<Cidr>,
        /// The default gateway; two of them for dual stack.
        gateway: OneOrMany<Ip>,
        /// Name servers.
        dns: OneOrMany<Ip>,
        /// The Proxmox bridge; `vmbr0` unless set.
        bridge: String,
        /// The VLAN.
        vlan: Int<1, 4094>,
        /// The MTU; 1 takes the bridge's.
        mtu: Int<1, 65520>,
        /// The emulated network card; `virtio` unless set.
        model: NicModel,
        /// Lets the Proxmox firewall filter the cards.
        firewall: bool,
        /// Packet queues of a card.
        queues: Int<1, 64>,
        /// The first three bytes of derived MAC addresses. Absent: locally administered ones.
        mac_prefix: MacPrefix,
        /// Whether addresses are fixed (`static`, the default) or leased (`dhcp`).
        addressing: Addressing,
        /// Who names the machines: this inventory, or the DHCP server.
        hostnames: Hostnames,
        /// Addresses of pods; `10.244.0.0/16` unless set, for IPv4.
        pods: OneOrMany<Cidr>,
        /// Addresses of services; `10.96.0.0/12` unless set, for IPv4.
        services: OneOrMany<Cidr>,
    }
}

record! {
    /// What is different about the first network card of a machine.
    MachineNetwork {
        /// The Proxmox bridge.
        bridge: String,
        /// The VLAN.
        vlan: Int<1, 4094>,
        /// The MTU; 1 takes the bridge's.
        mtu: Int<1, 65520>,
        /// The emulated network card.
        model: NicModel,
        /// Lets the Proxmox firewall filter the card.
        firewall: bool,
        /// Packet queues.
        queues: Int<1, 64>,
        /// The default gateway.
        gateway: OneOrMany<Ip>,
        /// Name servers.
        dns: OneOrMany<Ip>,
    }
}

record! {
    /// One more network card.
    Nic {
        /// The Proxmox bridge.
        bridge: String,
        /// The VLAN.
        vlan: Int<1, 4094>,
        /// The MTU; 1 takes the bridge's.
        mtu: Int<1, 65520>,
        /// The emulated network card.
        model: NicModel,
        /// Lets the Proxmox firewall filter the card.
        firewall: bool,
        /// Packet queues.
        queues: Int<1, 64>,
        /// Its MAC address. Absent: derived.
        mac: MacAddress,
        /// Its network.
        cidr: Cidr,
        /// Its address: fixed, an offset into `cidr`, or `dhcp`. Absent: none.
        address: Address,
        /// Routes through it.
        routes: List<Route>,
    }
}

record! {
    /// A route besides the default one.
    Route {
        /// Where to.
        to: Cidr,
        /// Through whom.
        via: Ip,
        /// Its metric.
        metric: Int<0, 4_294_967_295>,
    }
}
