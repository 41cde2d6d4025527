//! A lab as a server: opens its ports, and keeps its state in a file.
//!
//! 1. [`start`] opens the ports of Proxmox, of the Image Factory and of the proxy, and follows the machines.
//! 2. The clock runs, also while nobody calls.
//! 3. [`keep_state`] writes the state to a file when it has changed.

use std::{
    io::{self, Write},
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use ichor_sim::Lab;

use crate::{
    Hall, Target,
    listen::{self, Behind},
    proxy::Routes,
};

/// Between two savings of a state that changes all the time.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// Where a lab listens. Port 0 is any that is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// The address of all of them.
    pub address: IpAddr,
    /// The Proxmox API.
    pub pve: u16,
    /// The Image Factory, in the clear.
    pub factory: u16,
    /// The SOCKS5 and HTTP CONNECT proxy.
    pub proxy: u16,
}

/// Where a lab listens, once it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listening {
    /// The Proxmox API.
    pub pve: SocketAddr,
    /// The Image Factory.
    pub factory: SocketAddr,
    /// The proxy.
    pub proxy: SocketAddr,
}

/// Opens the ports of a lab. `names` are further names that lead to its servers through the proxy.
pub async fn start(hall: &Arc<Hall>, ports: Ports, names: Routes) -> io::Result<Listening> {
    let at = |port| SocketAddr::new(ports.address, port);
    let pve = listen::open(hall, at(ports.pve), Behind::Server(Target::Pve)).await?;
    let factory = listen::open(hall, at(ports.factory), Behind::Server(Target::Factory)).await?;
    let proxy = listen::open(hall, at(ports.proxy), Behind::Proxy(names)).await?;
    // Hosts download from the factory at the address that clients are told.
    hall.visit(|lab| lab.ground.web.factories.insert(factory.to_string()));
    tokio::spawn(listen::follow_machines(Arc::clone(hall)));
    let clock = Arc::clone(hall);
    tokio::spawn(async move { clock.keep_time().await });
    Ok(Listening { pve, factory, proxy })
}

/// Writes the state to a file whenever it has changed. Returns only when it cannot be written.
pub async fn keep_state(hall: &Arc<Hall>, path: &Path) -> io::Error {
    let mut visits = hall.visits();
    loop {
        if let Err(error) = save_beside(hall, path).await {
            return error;
        }
        tokio::time::sleep(SAVE_EVERY).await;
        if visits.changed().await.is_err() {
            return io::ErrorKind::BrokenPipe.into();
        }
    }
}

/// Writes the state to a file while the lab goes on.
async fn save_beside(hall: &Arc<Hall>, path: &Path) -> io::Result<()> {
    let (hall, path) = (Arc::clone(hall), path.to_owned());
    tokio::task::spawn_blocking(move || save(&hall, &path)).await?
}

/// Writes the state to a file, whole or not at all. It may hold secrets of a rehearsed cluster, so only its
/// owner can read it. One saves at a time, and the last one the latest state.
pub fn save(hall: &Hall, path: &Path) -> io::Result<()> {
    hall.save(|lab| write(&lab, path))
}

fn write(lab: &Lab, path: &Path) -> io::Result<()> {
    let state = serde_json::to_vec(lab)?;
    let unfinished = beside(path);
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&unfinished)?;
    file.write_all(&state)?;
    file.sync_all()?;
    std::fs::rename(&unfinished, path)
}

/// Reads a state that was saved; nothing when there is none.
pub fn load(path: &Path) -> io::Result<Option<Lab>> {
    match std::fs::read(path) {
        Ok(state) => Ok(Some(serde_json::from_slice(&state)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}
