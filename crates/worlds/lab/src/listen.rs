//! Ports of the lab.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use tokio::{net::TcpListener, task::JoinHandle};

use crate::{Hall, Target, attend::attend, proxy};

/// The port of the Talos API.
pub const TALOS_PORT: u16 = 50000;

/// What waits behind a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Behind {
    /// A server of the lab.
    Server(Target),
    /// The proxy that leads to all of them.
    Proxy(proxy::Routes),
}

/// Opens a port and serves whoever comes; returns the address that it has got.
pub async fn open(hall: &Arc<Hall>, address: SocketAddr, behind: Behind) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    tokio::spawn(accept(Arc::clone(hall), listener, behind));
    Ok(address)
}

async fn accept(hall: Arc<Hall>, listener: TcpListener, behind: Behind) {
    loop {
        // An accept that fails is one connection less; the port stays open.
        let Ok((stream, _)) = listener.accept().await else {
            tokio::task::yield_now().await;
            continue;
        };
        let hall = Arc::clone(&hall);
        match behind.clone() {
            Behind::Server(target) => drop(tokio::spawn(attend(hall, stream, target))),
            Behind::Proxy(routes) => drop(tokio::spawn(proxy::lead(hall, stream, routes))),
        }
    }
}

/// Keeps a port open for every machine on a loopback address, and for its Kubernetes API. Never returns.
pub async fn follow_machines(hall: Arc<Hall>) {
    let mut visits = hall.visits();
    let mut ports: BTreeMap<SocketAddr, JoinHandle<()>> = BTreeMap::new();
    loop {
        visits.mark_unchanged();
        let wanted = wanted(&hall);
        ports.retain(|address, port| {
            let keep = wanted.contains_key(address) && !port.is_finished();
            if !keep {
                port.abort();
            }
            keep
        });
        for (address, target) in wanted {
            if ports.contains_key(&address) {
                continue;
            }
            // An address that somebody else has is tried again at the next change.
            if let Ok(listener) = TcpListener::bind(address).await {
                let behind = Behind::Server(target);
                ports.insert(address, tokio::spawn(accept(Arc::clone(&hall), listener, behind)));
            }
        }
        if visits.changed().await.is_err() {
            return;
        }
    }
}

fn wanted(hall: &Hall) -> BTreeMap<SocketAddr, Target> {
    hall.look(|lab| {
        let talos = lab.talos_addresses().into_iter().map(|ip| (ip, TALOS_PORT, Target::Talos(ip)));
        let kube = lab.kube_addresses().into_iter().map(|(ip, port)| (ip, port, Target::Kube(ip)));
        let loopback = talos.chain(kube).filter(|(ip, _, _)| is_loopback(*ip));
        loopback.map(|(ip, port, target)| (SocketAddr::new(ip, port), target)).collect()
    })
}

fn is_loopback(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(address) if address.is_loopback())
}
