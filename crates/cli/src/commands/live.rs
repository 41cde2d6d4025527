//! What verbs over a living cluster share.
//!
//! 1. The inventory is read, and its world opened: the Proxmox that it names, or a lab;
//! 2. Proxmox is looked at, and the inventory resolved in what was seen: machines stay where they are;
//! 3. the cluster's secrets are read, or made if the verb may;
//! 4. everything else is looked at, and the verb acts on a [`Stage`].

use std::{collections::BTreeSet, thread};

use ichor_machineconfig::{
    compose::needs,
    pki::{PkiError, RsaKey},
    secrets::Bundle,
};
use ichor_model::{Findings, Observed, VmId};
use ichor_ops::{
    Halt, Site,
    bundle::{self, Signer},
    converge::first_look,
    halt::only,
    live::{Keys, Live, Pve, proxmox},
    materials,
    observe::Survey,
    secrets,
    store::Store,
};
use ichor_spec::Sources;
use tokio::runtime::Runtime;

use super::session::{Gate, Session};
use crate::{
    args::{Global, Place},
    exit::Exit,
    failure::Failure,
    operating_system::OperatingSystem,
    terminal::Terminal,
    world::{World, desired_in},
};

/// What a verb means to do with a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// To look.
    Look,
    /// To change it; nobody else may meanwhile.
    Change,
    /// To make it: its secrets too, if there are none.
    Make,
}

/// A cluster that was looked at.
pub struct Stage<'s> {
    /// The cluster and its world.
    pub live: &'s Live<'s>,
    /// Where its inventory lies.
    pub site: Site<'s>,
    /// What was seen.
    pub observed: Observed,
    /// What is kept about it.
    pub store: &'s Store,
    /// Its secrets, if it has some.
    pub bundle: Option<&'s Bundle>,
    /// What everything runs on.
    pub runtime: &'s Runtime,
    /// The lab's file, if it is one.
    pub lab: Option<&'s std::path::Path>,
}

type Making = thread::JoinHandle<Result<RsaKey, PkiError>>;

/// Gets everything ready for a verb, and lets it act.
pub fn with<'t, T>(
    global: &Global,
    terminal: &'t Terminal,
    intent: Intent,
    act: impl FnOnce(Stage<'_>) -> Result<(T, Findings), Halt>,
) -> Result<Gate<(Session<'t>, T)>, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| Failure::new(Exit::Failed, "the run cannot start").because(error.to_string()))?;
    let place = global.world.place();
    let mut offline = match Session::open(global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(Gate::Closed(exit)),
    };
    let opened = offline.with_one(|site, _| {
        let making = make_key(place, site, intent);
        let world = World::open(place, site, &runtime, terminal)?;
        let pve = proxmox(&site.desired.proxmox.endpoint, &world.reach)?;
        let survey = runtime.block_on(first_look(&pve, site.name(), &wanted(site)))?;
        let seen = survey.world(&site.desired.cluster.id);
        Ok(((world, pve, survey, seen, making), Findings::new()))
    })?;
    let (world, pve, survey, seen, making) = match opened {
        Gate::Open(opened) => opened,
        Gate::Closed(exit) => return Ok(Gate::Closed(exit)),
    };
    let mut session = match Session::open_in(global, terminal, &seen)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(Gate::Closed(exit)),
    };
    session.add(world.findings.clone());
    let acted = session.with_one(|site, sources| {
        let desired = desired_in(place, site.desired);
        let site = Site { desired: &desired, ..site };
        let scene = Scene { place, site, runtime: &runtime, world: &world, intent };
        let done = scene.play(pve, &survey, making, sources, act);
        // A rehearsal is kept however it went.
        world.close().and(done)
    })?;
    Ok(match acted {
        Gate::Open(value) => Gate::Open((session, value)),
        Gate::Closed(exit) => Gate::Closed(exit),
    })
}

/// The VMIDs that the inventory speaks of.
fn wanted(site: Site<'_>) -> BTreeSet<VmId> {
    let machines = site.desired.machines.iter().map(|machine| machine.vmid);
    machines.chain(site.desired.templates.iter().map(|template| template.vmid)).collect()
}

/// Begins to make the one key that takes seconds, if it will be needed.
fn make_key(place: Place<'_>, site: Site<'_>, intent: Intent) -> Option<Making> {
    let desired = desired_in(place, site.desired);
    let store = Store::of(Site { desired: &desired, ..site }).ok()?;
    let needed = intent == Intent::Make && !store.has_bundle(&OperatingSystem);
    needed.then(|| thread::spawn(RsaKey::generate))
}

struct Scene<'w> {
    place: Place<'w>,
    site: Site<'w>,
    runtime: &'w Runtime,
    world: &'w World,
    intent: Intent,
}

impl Scene<'_> {
    fn play<T>(
        &self,
        pve: Pve,
        survey: &Survey,
        making: Option<Making>,
        sources: &mut Sources,
        act: impl FnOnce(Stage<'_>) -> Result<(T, Findings), Halt>,
    ) -> Result<(T, Findings), Halt> {
        let system = &OperatingSystem;
        let store = Store::of(self.site).map_err(|finding| Halt::invalid(only(*finding)))?;
        let mut findings = self.make_secrets(&store, making)?;
        let found = store
            .has_bundle(system)
            .then(|| bundle::of_cluster(system, self.site, None, Signer::Talos, sources))
            .transpose()?;
        let gather = match self.place {
            Place::Real => materials::gather,
            // A rehearsal needs no real secret of anybody.
            Place::Lab | Place::LabIn(_) => materials::rehearse,
        };
        let materials =
            gather(system, self.site, &needs(self.site.desired), sources).map_err(Halt::invalid)?;
        let keys = found.as_ref().map(|found| Keys::new(system, &found.bundle)).transpose()?;
        let _lock = (self.intent != Intent::Look).then(|| store.hold(system)).transpose()?;
        let bundle = found.as_ref().map(|found| &found.bundle);
        let live = Live::new(self.site.desired, pve, self.world.reach.clone(), keys.zip(bundle), &materials)?;
        let observed = self.runtime.block_on(live.observe(survey));
        let lab = self.world.lab.as_ref().map(|lab| lab.file().as_path());
        let stage = Stage {
            live: &live,
            site: self.site,
            observed,
            store: &store,
            bundle,
            runtime: self.runtime,
            lab,
        };
        let (value, notes) = act(stage)?;
        if let Some(found) = &found {
            findings.extend(found.findings.clone());
        }
        findings.extend(notes);
        Ok((value, findings))
    }

    /// Makes the cluster's secrets, if it has none and the verb makes clusters.
    fn make_secrets(&self, store: &Store, making: Option<Making>) -> Result<Findings, Halt> {
        if self.intent != Intent::Make || store.has_bundle(&OperatingSystem) {
            return Ok(Findings::new());
        }
        let key = || match making {
            Some(making) => making.join().unwrap_or(Err(PkiError::Entropy)),
            None => RsaKey::generate(),
        };
        secrets::new(&OperatingSystem, self.site, key).map(|new| new.findings)
    }
}
