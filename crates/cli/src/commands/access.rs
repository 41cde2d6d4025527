//! What `kubeconfig` and `talosconfig` share.
//!
//! 1. The inventory and the cluster's secrets are read: those of the lab with `--lab`;
//! 2. addresses that were leased are asked for, if the file has to name them and nobody said `--offline`;
//! 3. the file is made, renamed if asked, and written, merged or printed.

use std::path::{Path, PathBuf};

use ichor_machineconfig::{compose::Materials, secrets::Bundle};
use ichor_model::{Code, Desired, Finding, Findings, MachineName};
use ichor_ops::{
    Halt, Site,
    access::{self, Kind, Made, Merging, Target},
    bundle::{self, Signer},
    converge::first_look,
    halt::only,
    live::{Live, proxmox},
};
use tokio::runtime::Runtime;

use super::session::{Gate, Session, one_reader_of_stdin};
use crate::{
    args::{Global, Place},
    clusters,
    exit::Exit,
    failure::Failure,
    operating_system::OperatingSystem,
    render::{given::Given, progress::Wait},
    terminal::Terminal,
    world::{World, desired_in, keeping_in},
};

/// How access was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// What it is access to.
    pub kind: Kind,
    /// Whether nobody is asked for addresses.
    pub offline: bool,
    /// A bundle in place of the one that is kept.
    pub secrets: Option<&'a Path>,
    /// The file.
    pub out: Option<&'a Path>,
    /// Whether it is added to the file.
    pub merge: bool,
    /// The name of its context.
    pub context: Option<&'a str>,
    /// Whether what others have is replaced.
    pub overwrite: bool,
}

impl<'a> Asked<'a> {
    /// Returns the file; `-` is none.
    fn file(&self) -> Option<&'a Path> {
        self.out.filter(|path| *path != Path::new("-"))
    }

    fn check(&self, global: &Global) -> Result<(), Failure> {
        if self.merge && self.out.is_some() && self.file().is_none() {
            return Err(Failure::new(Exit::InvalidInput, "nothing can be merged into standard output")
                .hint("name a file, or leave out `--out` for the one that is read by default"));
        }
        one_reader_of_stdin(global, self.secrets)
    }
}

/// How access is made, and whether an address is missing for it.
pub struct Recipe<L, M> {
    /// Whether a machine has to be asked for its address.
    pub is_late: L,
    /// Makes it.
    pub make: M,
}

/// Makes access and gives it.
pub fn run<L, M>(
    asked: &Asked<'_>,
    recipe: &Recipe<L, M>,
    global: &Global,
    terminal: &Terminal,
) -> Result<Exit, Failure>
where
    L: Fn(&Desired) -> bool,
    M: Fn(&Desired, &Bundle) -> Result<(Made, Findings), Halt>,
{
    asked.check(global)?;
    let mut session = match Session::open_for(asked.secrets, global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(exit),
    };
    let place = global.world.place();
    let given = session.with_one(|real, sources| {
        let desired = desired_in(place, real.desired);
        let site = Site { desired: &desired, keeping: keeping_in(place), ..real };
        let signer = match asked.kind {
            Kind::Kubeconfig => Signer::Kubernetes,
            Kind::Talosconfig | Kind::Bundle => Signer::Talos,
        };
        let found = bundle::of_cluster(&OperatingSystem, site, asked.secrets, signer, sources)
            .map_err(|halt| rehearse_first(halt, place))?;
        let mut findings = found.findings;
        let late = (recipe.is_late)(&desired) && !asked.offline;
        let known = if late { ask(real, global, terminal) } else { Asking::needless() };
        findings.extend(known.findings);
        let known = known.desired.as_ref().unwrap_or(&desired);
        let (made, notes) = (recipe.make)(known, &found.bundle).map_err(|mut halt| {
            halt.findings.extend(findings.clone());
            halt
        })?;
        findings.extend(notes);
        let given = give(asked, site, made)?;
        Ok((given, findings))
    })?;
    match given {
        Gate::Open(given) => session.give(&given),
        Gate::Closed(exit) => Ok(exit),
    }
}

/// Puts access where it was asked for.
fn give(asked: &Asked<'_>, site: Site<'_>, mut made: Made) -> Result<Given, Halt> {
    let system = &OperatingSystem;
    if asked.merge {
        let path = match asked.file() {
            Some(path) => path.to_owned(),
            None => access::default_file(system, asked.kind)?,
        };
        let merging =
            Merging { path: &path, context: asked.context, overwrite: asked.overwrite, given: asked.secrets };
        let merged = access::merge(system, site, &made, merging)?;
        return Ok(Given { made, path: Some(path), merged: Some(merged) });
    }
    if let Some(context) = asked.context {
        made = access::rename(made, site.name(), context)?;
    }
    if let Some(path) = asked.file() {
        let target = Target { path, overwrite: asked.overwrite, given: asked.secrets };
        access::write(system, site, &made, target)?;
    }
    Ok(Given { made, path: asked.file().map(PathBuf::from), merged: None })
}

/// What came of asking for addresses.
struct Asking {
    /// The cluster with them; nothing, if nobody could be asked.
    desired: Option<Desired>,
    findings: Findings,
}

impl Asking {
    const fn needless() -> Self {
        Self { desired: None, findings: Findings::new() }
    }
}

/// Asks for the addresses that control planes have leased. Whether it matters that some are missing is for others to
/// say.
fn ask(site: Site<'_>, global: &Global, terminal: &Terminal) -> Asking {
    match look(site, global, terminal) {
        Ok((desired, unknown)) => {
            let findings = unknown.iter().map(|(machine, why)| untold(machine, why)).collect();
            Asking { desired: Some(desired), findings }
        }
        Err(halt) => {
            let finding =
                Finding::warning(Code::LATE_ADDRESS, None, "leased addresses could not be asked for");
            let told = halt.findings.iter().map(|finding| {
                let notes = finding.notes.iter().map(String::as_str);
                [finding.message.as_str()].into_iter().chain(notes).collect::<Vec<_>>().join(": ")
            });
            let finding = told.fold(finding, Finding::because);
            let remedy = halt.findings.iter().find_map(|finding| finding.remedy.clone());
            let finding = remedy.into_iter().fold(finding, Finding::remedy);
            Asking { desired: None, findings: only(finding) }
        }
    }
}

fn untold(machine: &MachineName, why: &str) -> Finding {
    let message = format!("nobody could tell the address that `{machine}` has leased");
    Finding::warning(Code::LATE_ADDRESS, None, message).because(why)
}

type Leases = (Desired, Vec<(MachineName, String)>);

fn look(site: Site<'_>, global: &Global, terminal: &Terminal) -> Result<Leases, Halt> {
    let place = global.world.place();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| {
        let finding = Finding::error(Code::UNREACHABLE, None, "the run cannot start");
        Halt::failed(only(finding.because(error.to_string())))
    })?;
    let world = World::open(place, site, &runtime, terminal)?;
    let leases = leases(site, global, terminal, &world, &runtime);
    world.close().and(leases)
}

fn leases(
    site: Site<'_>,
    global: &Global,
    terminal: &Terminal,
    world: &World,
    runtime: &Runtime,
) -> Result<Leases, Halt> {
    let pve = proxmox(&site.desired.proxmox.endpoint, &world.reach)?;
    let survey = Wait::on(terminal, runtime.handle(), "looking at Proxmox", first_look(&pve, site.desired))?;
    // Machines that exist keep their numbers, whatever the inventory would give them now.
    let seen = survey.world(site.desired);
    let clusters = clusters::load(global.file.as_deref(), Some(site.name()), &seen);
    let resolved = clusters.resolved().next().unwrap_or(site.desired);
    let desired = desired_in(global.world.place(), resolved);
    let materials = Materials::default();
    let live = Live::new(&desired, pve, world.reach.clone(), None, &materials)?;
    let unknown = Wait::on(
        terminal,
        runtime.handle(),
        "asking machines for their addresses",
        live.learn_leases(&survey),
    );
    Ok((live.with_leases(), unknown))
}

/// In a lab there is nothing to import, and secrets come with the cluster.
fn rehearse_first(mut halt: Halt, place: Place<'_>) -> Halt {
    if place != Place::Real && halt.findings.iter().any(|finding| finding.code == Code::NO_SECRETS) {
        let finding = Finding::error(Code::NO_SECRETS, None, "the cluster is not in the lab yet");
        halt.findings = only(finding.remedy("rehearse it first:\n    ichor --lab up"));
    }
    halt
}
