//! What a run has learnt so far.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ichor_model::{HostName, MachineName, VmId, observed::Release};
use ichor_talos::Talos;

use super::keys::Kube;

/// An open console.
pub(crate) type Listening = ichor_pve::console::Console<ichor_net::Socket>;

/// What vouches for the key of a machine in maintenance mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pin {
    /// Its serial console said so: the SHA-256 of its public key.
    Console([u8; 32]),
    /// Nobody: the inventory trusts the network.
    Network,
}

/// What a run has learnt so far.
#[derive(Debug, Default)]
pub struct Memory {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    release: Option<Release>,
    hosts: BTreeMap<VmId, HostName>,
    ours: BTreeSet<VmId>,
    made: BTreeSet<VmId>,
    bootstrapped: bool,
    leases: BTreeMap<MachineName, IpAddr>,
    pins: BTreeMap<MachineName, Pin>,
    consoles: BTreeMap<MachineName, Listening>,
    bytes: BTreeMap<String, u64>,
    talos: BTreeMap<IpAddr, Arc<Talos>>,
    kube: BTreeMap<IpAddr, Arc<Kube>>,
}

impl Memory {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers the release of Proxmox.
    pub fn runs(&self, release: Option<Release>) {
        self.inner().release = release;
    }

    /// Returns the release of Proxmox, if it is known.
    pub fn release(&self) -> Option<Release> {
        self.inner().release
    }

    /// Remembers where a VM was seen.
    pub fn saw(&self, vmid: VmId, host: &HostName) {
        self.inner().hosts.insert(vmid, host.clone());
    }

    /// Returns where a VM was last seen.
    pub fn host(&self, vmid: VmId) -> Option<HostName> {
        self.inner().hosts.get(&vmid).cloned()
    }

    /// Forgets where a VM is: it was not there.
    pub fn lost(&self, vmid: VmId) {
        let mut inner = self.inner();
        inner.hosts.remove(&vmid);
        inner.ours.remove(&vmid);
    }

    /// Remembers that a VM proved to be ours in this run.
    pub fn is_ours(&self, vmid: VmId) {
        self.inner().ours.insert(vmid);
    }

    /// Whether a VM proved to be ours in this run.
    pub fn proved_ours(&self, vmid: VmId) -> bool {
        self.inner().ours.contains(&vmid)
    }

    /// Remembers that this run made a VM, so that nothing can ever have run on it before.
    pub fn has_made(&self, vmid: VmId) {
        self.inner().made.insert(vmid);
    }

    /// Whether this run made a VM.
    pub fn made(&self, vmid: VmId) -> bool {
        self.inner().made.contains(&vmid)
    }

    /// Remembers that this run begins etcd.
    pub fn bootstraps(&self) {
        self.inner().bootstrapped = true;
    }

    /// Whether this run has begun etcd, or has tried to.
    pub fn has_bootstrapped(&self) -> bool {
        self.inner().bootstrapped
    }

    /// Remembers the address that a machine has leased.
    pub fn leased(&self, machine: &MachineName, address: IpAddr) {
        self.inner().leases.insert(machine.clone(), address);
    }

    /// Returns the address that a machine has leased.
    pub fn lease(&self, machine: &MachineName) -> Option<IpAddr> {
        self.inner().leases.get(machine).copied()
    }

    /// Remembers what vouches for a machine's key.
    pub fn pin(&self, machine: &MachineName, pin: Pin) {
        self.inner().pins.insert(machine.clone(), pin);
    }

    /// Returns what vouches for a machine's key.
    pub fn pinned(&self, machine: &MachineName) -> Option<Pin> {
        self.inner().pins.get(machine).copied()
    }

    /// Forgets what vouches for a machine's key: each boot in maintenance mode makes another one.
    pub fn unpin(&self, machine: &MachineName) {
        self.inner().pins.remove(machine);
    }

    /// Keeps the console of a machine that has just started.
    pub fn listen(&self, machine: &MachineName, console: Listening) {
        self.inner().consoles.insert(machine.clone(), console);
    }

    /// Gives the console of a machine away, if it was opened.
    pub fn console(&self, machine: &MachineName) -> Option<Listening> {
        self.inner().consoles.remove(machine)
    }

    /// Remembers how many bytes a file should have.
    pub fn expect_bytes(&self, volume: &str, bytes: u64) {
        self.inner().bytes.insert(volume.to_owned(), bytes);
    }

    /// Returns how many bytes a file should have, if that is known.
    pub fn expected_bytes(&self, volume: &str) -> Option<u64> {
        self.inner().bytes.get(volume).copied()
    }

    /// Returns the client of a machine, made at the first need.
    pub fn talos<E>(
        &self,
        address: IpAddr,
        make: impl FnOnce() -> Result<Talos, E>,
    ) -> Result<Arc<Talos>, E> {
        let mut inner = self.inner();
        if let Some(client) = inner.talos.get(&address) {
            return Ok(Arc::clone(client));
        }
        let client = Arc::new(make()?);
        inner.talos.insert(address, Arc::clone(&client));
        Ok(client)
    }

    /// Returns the client of the Kubernetes API at an address, made at the first need.
    pub fn kube<E>(&self, address: IpAddr, make: impl FnOnce() -> Result<Kube, E>) -> Result<Arc<Kube>, E> {
        let mut inner = self.inner();
        if let Some(client) = inner.kube.get(&address) {
            return Ok(Arc::clone(client));
        }
        let client = Arc::new(make()?);
        inner.kube.insert(address, Arc::clone(&client));
        Ok(client)
    }
}
