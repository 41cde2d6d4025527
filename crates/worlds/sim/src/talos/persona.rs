//! As whom machines present themselves, and who their callers are.

use std::{net::IpAddr, time::Duration};

use ichor_machineconfig::pki::{
    Authority, Certificate, Client, Entropy, PrivateKey, Server, ServerName, Term, Timestamp,
    self_signed_server, server,
};
use sha2::{Digest, Sha256};

use super::{
    Machines,
    machine::{Api, Machine},
    wanted::Pair,
};
use crate::{
    clock::Time,
    ground::Ground,
    tls::{Clients, Persona},
};

/// Server certificates are good for a day, and renewed after half of it.
const LIFETIME: Duration = Duration::from_hours(24);
const RENEWAL: Duration = Duration::from_hours(12);
/// Those of the API server last a year.
const KUBERNETES_LIFETIME: Duration = Duration::from_hours(24 * 365);

/// Random bytes that follow from a seed: keys of the lab are not secret, but they must repeat.
pub(crate) struct Drawn {
    seed: Vec<u8>,
    count: u64,
}

impl Drawn {
    /// Starts from a seed and what it is for.
    pub(crate) fn new(seed: u64, purpose: &str, number: u64) -> Self {
        let seed = [&seed.to_le_bytes()[..], purpose.as_bytes(), &number.to_le_bytes()].concat();
        Self { seed, count: 0 }
    }
}

impl Entropy for Drawn {
    fn fill(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(32) {
            self.count += 1;
            let digest = Sha256::digest([&self.seed[..], &self.count.to_le_bytes()].concat());
            chunk.copy_from_slice(&digest[..chunk.len()]);
        }
    }
}

/// Returns a moment as certificates write it.
pub(crate) fn timestamp(time: Time) -> Timestamp {
    Timestamp::from_unix_seconds(time.unix_seconds())
}

/// Reads a CA and its key.
pub(super) fn authority(pair: &Pair) -> Option<Authority> {
    let certificate = Certificate::from_pem(&pair.certificate).ok()?;
    Authority::new(certificate, PrivateKey::from_pem(&pair.key).ok()?).ok()
}

fn der_of(pem: &str) -> Option<Vec<u8>> {
    Certificate::from_pem(pem).ok().map(|certificate| certificate.der().to_vec())
}

fn persona(client: &Client, clients: Clients) -> Option<Persona> {
    let key = client.key.to_pkcs8_der().ok()?.to_vec();
    Some(Persona { certificates: vec![client.certificate.der().to_vec()], key, clients })
}

impl Machine {
    /// Returns the period that certificates of this moment belong to, and the term of those that it serves with.
    /// They are valid from half a day before they are made: a lab in virtual time runs ahead of the clock by
    /// which its clients judge them.
    fn term(&self, now: Time, lifetime: Duration) -> Option<(u64, Term)> {
        let began = self.run.as_ref()?.began;
        let period = now.since(began).as_secs() / RENEWAL.as_secs();
        let renewed = began + RENEWAL * u32::try_from(period).unwrap_or(u32::MAX);
        let valid_from = timestamp(renewed).minus(RENEWAL);
        Some((period, Term { now: valid_from, lifetime: lifetime + RENEWAL }))
    }

    /// Returns the certificate that it shows in maintenance mode.
    pub(super) fn maintenance_certificate(&self, now: Time) -> Option<Client> {
        let run = self.run.as_ref()?;
        let names: Vec<ServerName> =
            run.network.addresses().map(|(address, _)| ServerName::Address(address)).collect();
        let facts = Server { common_name: Some("maintenance-service.talos.dev"), reached_by: &names };
        let (period, term) = self.term(now, LIFETIME)?;
        self_signed_server(&facts, term, &mut Drawn::new(self.seed, "maintenance", period)).ok()
    }

    fn secure_certificate(&self, now: Time, held: &[IpAddr]) -> Option<Client> {
        let run = self.run.as_ref()?;
        let wanted = run.wanted.as_ref()?;
        let authority = authority(run.trusted.as_ref()?)?;
        let hostname = &run.network.hostname;
        let addresses = run.network.addresses().map(|(address, _)| address).chain(held.iter().copied());
        let mut names: Vec<ServerName> = addresses.map(ServerName::Address).collect();
        names.push(ServerName::Dns(hostname.clone()));
        names.extend(wanted.sans.iter().map(|san| ServerName::new(san)));
        names.sort();
        names.dedup();
        let facts = Server { common_name: Some(hostname), reached_by: &names };
        let (period, term) = self.term(now, LIFETIME)?;
        server(&authority, &facts, term, &mut Drawn::new(self.seed, "apid", period)).ok()
    }

    fn kubernetes_certificate(&self, now: Time, held: &[IpAddr]) -> Option<Client> {
        let run = self.run.as_ref()?;
        let wanted = run.wanted.as_ref()?;
        let authority = authority(&wanted.kubernetes)?;
        let local = [IpAddr::from([127, 0, 0, 1])];
        let addresses =
            run.network.addresses().map(|(address, _)| address).chain(held.iter().copied()).chain(local);
        let mut names: Vec<ServerName> = addresses.map(ServerName::Address).collect();
        names.extend([
            ServerName::new(wanted.endpoint_host()),
            ServerName::Dns(run.network.hostname.clone()),
            ServerName::Dns("kubernetes".into()),
            ServerName::Dns("kubernetes.default.svc".into()),
            ServerName::Dns("localhost".into()),
        ]);
        names.extend(wanted.kube_sans.iter().map(|san| ServerName::new(san)));
        names.sort();
        names.dedup();
        let facts = Server { common_name: Some("kube-apiserver"), reached_by: &names };
        let (period, term) = self.term(now, KUBERNETES_LIFETIME)?;
        server(&authority, &facts, term, &mut Drawn::new(self.seed, "kube-apiserver", period)).ok()
    }
}

impl Machines {
    /// Returns the shared addresses that a machine holds.
    pub(super) fn held(&self, machine: &Machine) -> Vec<IpAddr> {
        let vips = self.clusters.values().flat_map(|etcd| &etcd.vips);
        vips.filter(|(_, vip)| vip.holder == Some(machine.vmid())).map(|(address, _)| *address).collect()
    }

    /// Returns as whom the Talos API at an address presents itself; nothing while nobody listens there.
    pub fn persona(&self, ground: &Ground, address: IpAddr) -> Option<Persona> {
        let machine = self.owner(address)?;
        let run = machine.run.as_ref()?;
        match run.api {
            Api::Closed => None,
            Api::Maintenance => persona(&machine.maintenance_certificate(ground.now)?, Clients::Anyone),
            Api::Secure => {
                let wanted = run.wanted.as_ref()?;
                let authorities = std::iter::once(&wanted.os.certificate).chain(&wanted.accepted);
                let clients = Clients::Required(authorities.filter_map(|pem| der_of(pem)).collect());
                persona(&machine.secure_certificate(ground.now, &self.held(machine))?, clients)
            }
        }
    }

    /// Returns the cluster whose Kubernetes API listens at an address, and as whom it presents itself.
    pub fn kube_persona(&self, ground: &Ground, address: IpAddr) -> Option<(String, Persona)> {
        let machine = self.owner(address)?;
        let run = machine.run.as_ref().filter(|run| run.static_pods)?;
        let (cluster, _) = machine.etcd_data(&ground.media)?;
        let clients =
            Clients::Asked(der_of(&run.wanted.as_ref()?.kubernetes.certificate).into_iter().collect());
        let client = machine.kubernetes_certificate(ground.now, &self.held(machine))?;
        Some((cluster, persona(&client, clients)?))
    }

    /// Returns what tells the Talos API at an address from the one that was there before: a machine that
    /// rebooted or left maintenance mode is another one.
    pub fn mark(&self, address: IpAddr) -> Option<String> {
        let machine = self.owner(address)?;
        let run = machine.run.as_ref().filter(|run| run.api != Api::Closed)?;
        Some(format!("{}/{}/{:?}", machine.vmid(), run.began.millis(), run.api))
    }

    /// Returns the same of the Kubernetes API at an address.
    pub fn kube_mark(&self, address: IpAddr) -> Option<String> {
        let machine = self.owner(address)?;
        let run = machine.run.as_ref().filter(|run| run.static_pods)?;
        Some(format!("{}/{}", machine.vmid(), run.began.millis()))
    }

    /// Returns the addresses where a Talos API listens.
    pub fn addresses(&self) -> Vec<IpAddr> {
        self.listening(|machine| machine.run.as_ref().is_some_and(|run| run.api != Api::Closed))
    }

    /// Returns the addresses and ports where a Kubernetes API listens.
    pub fn kube_addresses(&self) -> Vec<(IpAddr, u16)> {
        let serves = |machine: &Machine| machine.run.as_ref().is_some_and(|run| run.static_pods);
        let port = |address: &IpAddr| {
            self.owner(*address)?.run.as_ref()?.wanted.as_ref().map(|wanted| wanted.api_port)
        };
        let addresses = self.listening(serves);
        addresses.into_iter().filter_map(|address| Some((address, port(&address)?))).collect()
    }

    fn listening(&self, listens: impl Fn(&Machine) -> bool) -> Vec<IpAddr> {
        let mut addresses: Vec<IpAddr> = self
            .by_id
            .values()
            .filter(|machine| listens(machine))
            .flat_map(|machine| {
                let own = machine.run.iter().flat_map(|run| run.network.addresses());
                own.map(|(address, _)| address).chain(self.held(machine)).collect::<Vec<_>>()
            })
            .collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }
}
