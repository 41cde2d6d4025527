//! Setting up a lab: hosts, storages, networks and an account to begin with.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    time::Duration,
};

use ichor_machineconfig::pki::{Server, ServerName, Term, self_signed_server};

use crate::{
    Lab,
    clock::Time,
    profile::Profile,
    pve::{
        access::ROOT,
        release::Release,
        world::{self, NewDatacentre, NewHost},
    },
    strangers,
    talos::{lan::DhcpServer, persona::Drawn, persona::timestamp},
    tls::{Clients, Persona},
};

/// The user whose token may do everything.
pub const USER: &str = "ichor@pve";
/// The name of its token.
pub const TOKEN: &str = "lab";

/// The password of the lab's administrator, `root@pam`: a lab guards nothing.
pub const ROOT_PASSWORD: &str = "ichor-lab";

/// How a lab begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// What randomness is derived from.
    pub seed: u64,
    /// How long things take.
    pub profile: Profile,
    /// When it begins.
    pub begins: Time,
    /// What all hosts run.
    pub release: Release,
    /// The hosts.
    pub hosts: Vec<NewHost>,
    /// How much each storage of a host holds, in bytes.
    pub capacity: u64,
    /// Whether the hosts share a storage besides.
    pub shared_storage: bool,
    /// Bridges with a DHCP server, and what it leases.
    pub leases: BTreeMap<String, (Ipv4Addr, Ipv4Addr, u8)>,
    /// How many VMs and containers of others there are.
    pub strangers: u32,
    /// Names and addresses that the Proxmox API is reached by, besides those of the hosts.
    pub names: Vec<String>,
}

impl Setup {
    /// A lab of three hosts of 16 threads and 64 GiB.
    pub fn new(seed: u64, profile: Profile) -> Self {
        let hosts = (1..=3).map(|number| NewHost {
            name: format!("pve{number}"),
            address: format!("192.0.2.{}", 10 + number),
            cpus: 16,
            memory: 64 << 30,
        });
        Self {
            seed,
            profile,
            begins: Time::START,
            release: Release::V9_2,
            hosts: hosts.collect(),
            capacity: 1 << 40,
            shared_storage: true,
            leases: BTreeMap::new(),
            strangers: 0,
            names: vec!["127.0.0.1".into(), "localhost".into()],
        }
    }

    /// Sets the lab up.
    pub fn build(&self) -> Lab {
        let mut lab = Lab::new(self.seed, self.profile);
        lab.ground.now = self.begins;
        let secret = lab.ground.random.uuid();
        let datacentre = NewDatacentre {
            release: self.release,
            cluster: Some("lab".into()),
            hosts: self.hosts.clone(),
            capacity: self.capacity,
            shared_storage: self.shared_storage,
            token: (USER.into(), TOKEN.into(), secret),
        };
        world::build(&mut lab, &datacentre);
        for host in lab.pve.hosts.values_mut() {
            host.booted = self.begins;
        }
        if let Some(root) = lab.pve.access.users.get_mut(ROOT) {
            root.password = Some(ROOT_PASSWORD.into());
        }
        for (bridge, (first, last, prefix)) in &self.leases {
            lab.machines.lan.servers.insert(bridge.clone(), DhcpServer::new(*first, *last, *prefix));
        }
        if let Some(persona) = self.persona() {
            lab.present_as(persona);
        }
        strangers::settle(&mut lab, self.seed, self.strangers);
        lab
    }

    /// The servers of the lab present themselves with one certificate that nobody vouches for, as a fresh
    /// Proxmox does for those who do not know its CA.
    fn persona(&self) -> Option<Persona> {
        let of_hosts = self.hosts.iter().flat_map(|host| [host.name.as_str(), host.address.as_str()]);
        let names: BTreeSet<&str> = of_hosts.chain(self.names.iter().map(String::as_str)).collect();
        let first = self.hosts.first().map(|host| host.name.as_str());
        persona(&mut Drawn::new(self.seed, "pve", 0), self.begins, first, &names)
    }
}

fn persona(
    entropy: &mut Drawn,
    begins: Time,
    common_name: Option<&str>,
    names: &BTreeSet<&str>,
) -> Option<Persona> {
    const TEN_YEARS: Duration = Duration::from_hours(87_600);
    let term = Term { now: timestamp(begins), lifetime: TEN_YEARS };
    let names: Vec<ServerName> = names.iter().map(|name| ServerName::new(name)).collect();
    let facts = Server { common_name, reached_by: &names };
    let server = self_signed_server(&facts, term, entropy).ok()?;
    let certificates = vec![server.certificate.der().to_vec()];
    Some(Persona { certificates, key: server.key.to_pkcs8_der().ok()?.to_vec(), clients: Clients::Anyone })
}

impl Lab {
    /// Lets the Proxmox API and the Image Factory show another certificate, with the same names.
    pub(crate) fn swap_certificate(&mut self) -> Result<(), String> {
        let mut entropy = Drawn::new(self.ground.random.bits(), "swapped", 0);
        let hosts = self.pve.hosts.iter().flat_map(|(name, host)| [name.as_str(), host.address.as_str()]);
        let names: BTreeSet<&str> = hosts.chain(["127.0.0.1", "localhost"]).collect();
        let other = persona(&mut entropy, self.ground.now, Some(&self.pve.front), &names);
        self.present_as(other.ok_or("no other certificate can be made")?);
        Ok(())
    }
}
