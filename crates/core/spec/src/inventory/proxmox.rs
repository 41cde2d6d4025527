//! `proxmox` and `placement`.

use std::collections::BTreeMap;

use ichor_model::{At, Code, Finding, HostName, MachineName, Size, Span, desired::Arch};
use schemars::JsonSchema;

use crate::{
    read::{Map, OneOrMany, Read, Reader, record},
    values::{Factor, FilePath, Fingerprint, Int, Secret, Strategy, Url},
    yaml::{Kind, Node},
};

record! {
    /// How Proxmox is reached, and what it offers.
    Proxmox {
        /// The API's address: `https://HOST:8006`.
        endpoint: Url,
        /// Where the API token (`user@realm!name=secret`) is found.
        token: Secret,
        /// How the server's certificate is checked. Absent: system roots, then trust on first use.
        tls: Tls,
        /// A way into networks that are not reachable directly: `ssh://user@host`, `socks5://host:port`, `http://host:port`, or
        /// a list of them, the nearest first. Everything of the cluster is reached through it.
        jump: OneOrMany<Url>,
        /// The resource pool of all VMs.
        pool: String,
        /// The hosts to use, with budgets and zones. Absent: all hosts that are online.
        hosts: Hosts,
        /// Which storage holds what.
        storage: Storage,
    }
}

record! {
    /// How the server's certificate is checked.
    Tls {
        /// By the SHA-256 fingerprint of the certificate.
        sha256: Fingerprint,
        /// By a CA file.
        ca: FilePath,
        /// Not at all. Named in the output of every run.
        insecure: bool,
    }
}

/// The hosts to use: a list of names, or a map with what each offers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Hosts(pub Map<HostName, Host>);

impl Read for Hosts {
    fn read(node: &Node, reader: &mut Reader) -> Option<Self> {
        match &node.kind {
            Kind::List(items) => Some(Self(Map(named_hosts(items, reader), Vec::new()))),
            Kind::Map(_) => Map::read(node, reader).map(Self),
            _ => {
                reader.wrong_kind(
                    node,
                    "a list of names, as in `[pve1, pve2]`, or a map with what each offers",
                );
                None
            }
        }
    }

    fn over(self, below: Self) -> Self {
        Self(self.0.over(below.0))
    }
}

/// Reads a list of names, each of which stands for a host about which nothing is said.
fn named_hosts(items: &[Node], reader: &mut Reader) -> Vec<(At<HostName>, At<Host>)> {
    let mut seen: BTreeMap<HostName, Span> = BTreeMap::new();
    let mut hosts = Vec::with_capacity(items.len());
    for item in items {
        let Some(name) = reader.item::<HostName>(item) else { continue };
        match seen.get(&name.value) {
            Some(first) => reader.findings.push(
                Finding::error(Code::DUPLICATE_KEY, name.span, format!("`{}` is written twice", name.value))
                    .see(*first, "first written here")
                    .remedy("keep one of them"),
            ),
            None => {
                seen.insert(name.value.clone(), name.span);
                hosts.push((name.clone(), At::new(Host::default(), name.span)));
            }
        }
    }
    hosts
}

impl JsonSchema for Hosts {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Hosts".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let names = generator.subschema_for::<Vec<HostName>>();
        let map = generator.subschema_for::<Map<HostName, Host>>();
        schemars::json_schema!({ "anyOf": [names, map] })
    }
}

record! {
    /// A Proxmox host: what it gives to this cluster, and what is different about it.
    Host {
        /// Virtual processors this cluster may use. Absent: live capacity.
        cpu: Int<1, 100_000>,
        /// Memory this cluster may use. Absent: live capacity.
        memory: Size,
        /// A rack, room or power feed that fails as one.
        zone: String,
        /// Its processor architecture.
        arch: Arch,
        /// The bridge to use on this host in place of `network.bridge`.
        bridge: String,
        /// Storages to use on this host in place of `proxmox.storage`.
        storage: Storage,
    }
}

record! {
    /// Which storage holds what.
    Storage {
        /// VM disks; `local-lvm` unless set.
        disks: String,
        /// Downloaded images and ISOs; `local` unless set.
        images: String,
        /// Template VMs. Absent: as `disks`.
        templates: String,
        /// Cloud-init drives. Absent: as `disks`.
        cloudinit: String,
        /// Snippets.
        snippets: String,
    }
}

record! {
    /// How machines are spread over hosts.
    Placement {
        /// `spread` (the default) evens out, `pack` fills up, `pin` leaves every choice to the inventory.
        strategy: Strategy,
        /// How many times over processors and memory may be given out; 1 unless set.
        overcommit: Overcommit,
        /// Machines that go to a certain host.
        pin: Map<MachineName, HostName>,
    }
}

record! {
    /// How many times over a resource may be given out.
    Overcommit {
        /// Processors.
        cpu: Factor,
        /// Memory.
        memory: Factor,
    }
}
