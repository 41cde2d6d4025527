//! A lab in place of the inventory's Proxmox, kept from one command to the next.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use ichor_lab::{Hall, Inside, control, proxy::Routes, serve};
use ichor_model::{Code, Finding, Findings};
use ichor_net::{Dial, Fingerprint, Trust};
use ichor_ops::{Halt, HaltKind, Site, System, halt::only, live::Reach, place};
use ichor_port::Secret;
use ichor_pve::Token;
use ichor_sim::{
    Lab,
    profile::Profile,
    pve::release::Release,
    rehearsal,
    setup::{TOKEN, USER},
};
use tokio::{net::UnixListener, runtime::Runtime};

use super::World;
use crate::operating_system::OperatingSystem;

/// What randomness in a rehearsal is derived from: the same inventory gives the same lab.
const SEED: u64 = 1;

/// A lab that a run acts on.
#[derive(Debug)]
pub struct LabRun {
    hall: Arc<Hall>,
    file: PathBuf,
    keeper: tokio::task::JoinHandle<()>,
    runtime: tokio::runtime::Handle,
}

/// Opens the lab of a cluster: the one that is kept in a file, or one that is made to fit the inventory.
pub fn open(site: Site<'_>, file: PathBuf, runtime: &Runtime) -> Result<World, Halt> {
    let _context = runtime.enter();
    let kept = serve::load(&file).map_err(|error| broken(&file, &error))?;
    let hall = Arc::new(Hall::new(kept.unwrap_or_else(|| rehearsal_of(site))));
    let routes = hall.look(|lab| Routes::of_cluster(lab, site.desired));
    let inside = Arc::new(Inside::over(Arc::clone(&hall), routes));
    let reach = hall.look(|lab| reach(lab, inside)).ok_or_else(|| other_lab(&file))?;
    if let Some(directory) = file.parent() {
        OperatingSystem.make_directory(directory).map_err(|error| Halt::unwritable(directory, &error))?;
    }
    // Whoever has the socket is the one master of the lab; events and faults come through it.
    let listener = runtime.block_on(control::open(&file)).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => served(&file),
        _ => Halt::unwritable(&file, &error),
    })?;
    serve::save(&hall, &file).map_err(|error| Halt::unwritable(&file, &error))?;
    let keeper = runtime.spawn(keep(Arc::clone(&hall), listener, file.clone()));
    let lab = LabRun { hall, file, keeper, runtime: runtime.handle().clone() };
    Ok(World { reach, lab: Some(lab), findings: Findings::new() })
}

fn rehearsal_of(site: Site<'_>) -> Lab {
    let mut lab = rehearsal::setup(site.desired, SEED, Profile::Lab, Release::V9_2);
    lab.mark_beginning();
    lab
}

/// A run that is killed leaves the lab as it was a moment before.
async fn keep(hall: Arc<Hall>, listener: UnixListener, file: PathBuf) {
    // What cannot be written now is told when the run ends.
    tokio::join!(serve::keep_state(&hall, &file), control::listen(Arc::clone(&hall), listener));
}

impl LabRun {
    /// Returns the file that the lab is kept in.
    pub const fn file(&self) -> &PathBuf {
        &self.file
    }

    /// Keeps the lab as it is at the end of a run.
    pub fn close(self) -> Result<(), Halt> {
        self.keeper.abort();
        // It was stopped, which is what waiting for it says.
        let _ = self.runtime.block_on(self.keeper);
        let saved = serve::save(&self.hall, &self.file);
        // Whoever finds no socket becomes the next master, and must find the last state.
        let _ = std::fs::remove_file(control::socket_of(&self.file));
        saved.map_err(|error| Halt::unwritable(&self.file, &error))
    }
}

/// Returns how the lab's own account reaches it.
fn reach(lab: &Lab, dialer: Arc<dyn Dial>) -> Option<Reach> {
    let pin = Trust::Pin(Fingerprint::of(lab.own_persona()?.certificates.first()?));
    let secret = &lab.pve.access.users.get(USER)?.tokens.get(TOKEN)?.secret;
    let token = Token::parse(&Secret::new(format!("{USER}!{TOKEN}={secret}"))).ok()?;
    Some(Reach { dialer, proxmox: pin.clone(), factory: pin, token })
}

fn served(file: &Path) -> Halt {
    let message = format!("the lab in `{}` is in use", file.display());
    let finding = Finding::error(Code::BUSY, None, message).because("a lab has one master at a time").remedy(
        "wait for the other run, stop `ichor lab serve`, or reach the lab as that tells, without `--lab`",
    );
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
