//! A lab in place of the inventory's Proxmox, kept from one command to the next.

use std::{
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use ichor_lab::{Hall, Inside, Target, control, proxy::Routes, serve};
use ichor_model::{Code, Desired, Finding, Findings, desired::Role};
use ichor_net::{Dial, Fingerprint, Trust};
use ichor_ops::{Halt, HaltKind, Site, System, access::own_address, halt::only, live::Reach, place};
use ichor_port::Secret;
use ichor_pve::Token;
use ichor_sim::{
    Lab,
    profile::Profile,
    pve::release::Release,
    rehearsal,
    setup::{TOKEN, USER},
};
use tokio::runtime::Runtime;

use super::World;
use crate::operating_system::OperatingSystem;

/// Where Kubernetes' API servers listen.
const API_PORT: u16 = 6443;
/// What randomness in a rehearsal is derived from: the same inventory gives the same lab.
const SEED: u64 = 1;

/// A lab that a run acts on.
#[derive(Debug)]
pub struct LabRun {
    hall: Arc<Hall>,
    file: PathBuf,
    keeper: tokio::task::JoinHandle<()>,
}

/// Opens the lab of a cluster: the one that is kept in a file, or one that is made to fit the inventory.
pub fn open(site: Site<'_>, file: PathBuf, runtime: &Runtime) -> Result<World, Halt> {
    let _context = runtime.enter();
    if runtime.block_on(control::is_served(&file)) {
        return Err(served(&file));
    }
    let kept = serve::load(&file).map_err(|error| broken(&file, &error))?;
    let fresh = || rehearsal::setup(site.desired, SEED, Profile::Lab, Release::V9_2);
    let hall = Arc::new(Hall::new(kept.unwrap_or_else(fresh)));
    let routes = hall.look(|lab| routes(lab, site.desired));
    let inside = Arc::new(Inside::over(Arc::clone(&hall), routes));
    let reach = hall.look(|lab| reach(lab, inside)).ok_or_else(|| other_lab(&file))?;
    if let Some(directory) = file.parent() {
        OperatingSystem.make_directory(directory).map_err(|error| Halt::unwritable(directory, &error))?;
    }
    serve::save(&hall, &file).map_err(|error| Halt::unwritable(&file, &error))?;
    let keeper = runtime.spawn(keep(Arc::clone(&hall), file.clone()));
    Ok(World { reach, lab: Some(LabRun { hall, file, keeper }), findings: Findings::new() })
}

/// A run that is killed leaves the lab as it was a moment before.
async fn keep(hall: Arc<Hall>, file: PathBuf) {
    // What cannot be written now is told when the run ends.
    let _ = serve::keep_state(&hall, &file).await;
}

impl LabRun {
    /// Returns the file that the lab is kept in.
    pub const fn file(&self) -> &PathBuf {
        &self.file
    }

    /// Keeps the lab as it is at the end of a run.
    pub fn close(self) -> Result<(), Halt> {
        self.keeper.abort();
        serve::save(&self.hall, &self.file).map_err(|error| Halt::unwritable(&self.file, &error))
    }
}

/// Names of the inventory that lead into the lab: its Proxmox, its factories, and its endpoint.
fn routes(lab: &Lab, desired: &Desired) -> Routes {
    let mut routes = Routes::of(lab);
    if let Some((host, port)) = rehearsal::proxmox(desired) {
        routes = routes.with(&host, port, Target::Pve);
    }
    for (host, port, tls) in rehearsal::factories(desired) {
        routes = routes.with(&host, port, if tls { Target::FactoryTls } else { Target::Factory });
    }
    let endpoint = &desired.cluster.endpoint;
    if let Some(host) = endpoint.host.known() {
        let control_planes = desired.of_role(Role::ControlPlane).filter_map(own_address);
        let backends = control_planes.map(|address| SocketAddr::new(address, API_PORT)).collect();
        routes = routes.with_balancer(host, endpoint.port, backends);
    }
    routes
}

/// Returns how the lab's own account reaches it.
fn reach(lab: &Lab, dialer: Arc<dyn Dial>) -> Option<Reach> {
    let pin = Trust::Pin(Fingerprint::of(lab.own_persona()?.certificates.first()?));
    let secret = &lab.pve.access.users.get(USER)?.tokens.get(TOKEN)?.secret;
    let token = Token::parse(&Secret::new(format!("{USER}!{TOKEN}={secret}"))).ok()?;
    Some(Reach { dialer, proxmox: pin.clone(), factory: pin, token })
}

fn served(file: &Path) -> Halt {
    let message = format!("the lab in `{}` is being served", file.display());
    let finding = Finding::error(Code::BUSY, None, message)
        .because("a lab has one master at a time")
        .remedy("stop `ichor lab serve`, or reach the lab as it tells, without `--lab`");
    Halt { kind: HaltKind::Busy, findings: only(finding) }
}

fn broken(file: &Path, error: &io::Error) -> Halt {
    let message = format!("`{}` holds no lab", file.display());
    let finding = Finding::error(Code::BAD_LAB, None, message).because(error.to_string());
    Halt::invalid(only(finding.remedy(format!("begin again without it:\n    rm {}", place::quoted(file)))))
}

fn other_lab(file: &Path) -> Halt {
    let message = format!("the lab in `{}` was set up for something else", file.display());
    let finding = Finding::error(Code::BAD_LAB, None, message).because("ichor has no account in it");
    Halt::invalid(only(finding.remedy(format!("begin again without it:\n    rm {}", place::quoted(file)))))
}
