//! What verbs over a living cluster share.
//!
//! 1. The inventory is read, and its world opened: the Proxmox that it names, or a lab;
//! 2. whoever is going to change something keeps others out, before anything is decided;
//! 3. Proxmox is looked at, and the inventory resolved in what was seen: machines stay where they are;
//! 4. the cluster's secrets are read, if it has some, and the files that the inventory names, as far as the verb needs
//!    them;
//! 5. everything else is looked at, and the verb acts on a [`Stage`];
//! 6. a verb that makes clusters has their secrets made once nothing stands in its way and people have agreed
//!    ([`Stage::with_secrets`]), unless machines exist that would know others.

use std::{cell::RefCell, thread};

use ichor_machineconfig::{
    compose::{Materials, needs},
    pki::{PkiError, RsaKey},
    secrets::Bundle,
};
use ichor_model::{Finding, Findings, Observed, Severity};
use ichor_ops::{
    Halt, Site,
    bundle::{self, Found, Signer},
    converge::first_look,
    halt::only,
    live::{Keys, Live, proxmox},
    materials,
    observe::Survey,
    secrets,
    store::Store,
    system::Lock,
};
use ichor_spec::Sources;
use tokio::runtime::Runtime;

use super::session::{Gate, Session};
use crate::{
    args::{Global, Place},
    exit::Exit,
    failure::Failure,
    keeping::{self, Ask, Held},
    operating_system::OperatingSystem,
    render::progress::Wait,
    terminal::Terminal,
    world::{World, with_site_in},
};

/// What a verb means to do with a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// To look. What the inventory names is of use for that, and need not be there.
    Look,
    /// To see what would be done.
    Plan,
    /// To remove it, or to see what that would do. Its secrets are of use for that, and nobody has to have them; what
    /// the inventory names is not even read.
    Remove {
        /// Whether nothing is changed.
        dry_run: bool,
        /// Whether its name is proof enough that VMs are its own.
        by_name: bool,
    },
    /// To make it: its secrets too, if there are none.
    Make,
}

impl Intent {
    /// Returns the verb, as others are told of it.
    const fn verb(self) -> &'static str {
        match self {
            Self::Look | Self::Plan => "plan",
            Self::Remove { .. } => "destroy",
            Self::Make => "up",
        }
    }

    /// Whether something is changed; nobody else may meanwhile.
    const fn changes(self) -> bool {
        matches!(self, Self::Make | Self::Remove { dry_run: false, .. })
    }
}

/// A cluster that was looked at.
pub struct Stage<'s> {
    /// The cluster and its world.
    pub live: &'s Live<'s>,
    /// Where its inventory lies.
    pub site: Site<'s>,
    /// What Proxmox showed.
    pub survey: &'s Survey,
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
    /// The lock, if something is going to be changed.
    pub held: Option<&'s Held>,
    scene: &'s Scene<'s>,
    materials: Option<&'s Materials>,
}

impl Stage<'_> {
    /// Goes on with the cluster's secrets, which are made if it has none. Until here nothing was changed anywhere:
    /// whoever is stopped or says no leaves none behind that stand in the way of those that are brought back.
    pub fn with_secrets<T>(
        &self,
        act: impl FnOnce(&Stage<'_>) -> Result<(T, Findings), Halt>,
    ) -> Result<(T, Findings), Halt> {
        let Some(lock) = self.scene.lock.filter(|_| self.bundle.is_none()) else { return act(self) };
        let mut findings = self.scene.make_secrets(lock)?;
        let Some(found) = self.scene.read_secrets(self.store, &mut findings)? else { return act(self) };
        findings.extend(found.findings.clone());
        let keys = Keys::new(&OperatingSystem, &found.bundle)?;
        let live = self.scene.live(Some((keys, &found.bundle)), self.materials)?;
        let observed = self.scene.observe(&live);
        let stage = Stage {
            live: &live,
            site: self.site,
            survey: self.survey,
            observed,
            store: self.store,
            bundle: Some(&found.bundle),
            runtime: self.runtime,
            lab: self.lab,
            held: self.held,
            scene: self.scene,
            materials: self.materials,
        };
        told_with(findings, act(&stage))
    }
}

/// What led to an end, good or bad, is told with it.
fn told_with<T>(mut findings: Findings, ended: Result<(T, Findings), Halt>) -> Result<(T, Findings), Halt> {
    match ended {
        Ok((value, notes)) => {
            findings.extend(notes);
            Ok((value, findings))
        }
        Err(mut halt) => {
            halt.findings.extend(findings);
            Err(halt)
        }
    }
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
    let mut offline = match Session::open_kept(global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(Gate::Closed(exit)),
    };
    let opened = offline.with_one(|site, _| {
        let making = with_site_in(place, site, |site| make_key(site, intent));
        let held = with_site_in(place, site, |site| take(site, intent, global, &runtime, terminal))?;
        let world = World::open(place, site, &runtime, terminal)?;
        let lock = with_site_in(place, site, |site| hold(site, intent))?;
        let pve = proxmox(&site.desired.proxmox.endpoint, &world.reach)?;
        let waiting = Wait::new(terminal, "looking at Proxmox");
        let survey = runtime.block_on(first_look(&pve, site.desired))?;
        drop(waiting);
        let seen = survey.world(site.desired);
        Ok(((world, held, lock, survey, seen, making), Findings::new()))
    })?;
    let (world, held, lock, survey, seen, making) = match opened {
        Gate::Open(opened) => opened,
        Gate::Closed(exit) => return Ok(Gate::Closed(exit)),
    };
    let mut session = match Session::open_in(global, terminal, &seen)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(Gate::Closed(exit)),
    };
    session.add(world.findings.clone());
    let acted = session.with_one(|site, sources| {
        let done = with_site_in(place, site, |site| {
            let (lock, held) = (lock.as_ref(), held.as_ref());
            let scene = Scene {
                place,
                site,
                runtime: &runtime,
                world: &world,
                survey: &survey,
                intent,
                lock,
                held,
                terminal,
                sources: RefCell::new(std::mem::take(sources)),
                making: RefCell::new(making),
            };
            let played = scene.play(act);
            *sources = scene.sources.into_inner();
            played
        });
        // A rehearsal is kept however it went.
        world.close().and(done)
    })?;
    Ok(match acted {
        Gate::Open(value) => Gate::Open((session, value)),
        Gate::Closed(exit) => Gate::Closed(exit),
    })
}

/// Begins to make the one key that takes seconds, if it will be needed.
fn make_key(site: Site<'_>, intent: Intent) -> Option<Making> {
    let store = Store::of(site).ok()?;
    let needed = intent == Intent::Make && !store.has_bundle(&OperatingSystem);
    needed.then(|| thread::spawn(RsaKey::generate))
}

/// Keeps everybody else from changing the cluster, unless this run only looks.
fn take(
    site: Site<'_>,
    intent: Intent,
    global: &Global,
    runtime: &Runtime,
    terminal: &Terminal,
) -> Result<Option<Held>, Halt> {
    let ask = Ask { verb: intent.verb(), wait: global.lock_wait() };
    intent.changes().then(|| keeping::take(site, ask, runtime, terminal)).transpose()
}

/// Keeps what others of this machine write to the store for a moment out of it, unless this run only looks.
fn hold(site: Site<'_>, intent: Intent) -> Result<Option<Lock>, Halt> {
    let store = store_of(site)?;
    intent.changes().then(|| store.hold(&OperatingSystem)).transpose()
}

fn store_of(site: Site<'_>) -> Result<Store, Halt> {
    Store::of(site).map_err(|finding| Halt::invalid(only(*finding)))
}

/// What stops others is told to those who go on.
pub fn as_warnings(findings: &Findings) -> Findings {
    findings.iter().map(|finding| Finding { severity: Severity::Warning, ..finding.clone() }).collect()
}

struct Scene<'w> {
    place: Place<'w>,
    site: Site<'w>,
    runtime: &'w Runtime,
    world: &'w World,
    survey: &'w Survey,
    intent: Intent,
    lock: Option<&'w Lock>,
    held: Option<&'w Held>,
    terminal: &'w Terminal,
    sources: RefCell<Sources>,
    making: RefCell<Option<Making>>,
}

impl Scene<'_> {
    fn play<T>(
        &self,
        act: impl FnOnce(Stage<'_>) -> Result<(T, Findings), Halt>,
    ) -> Result<(T, Findings), Halt> {
        let store = store_of(self.site)?;
        let mut findings = Findings::new();
        let materials = self.gather(&mut findings)?;
        let found = self.read_secrets(&store, &mut findings)?;
        let keys = found.as_ref().map(|found| Keys::new(&OperatingSystem, &found.bundle)).transpose()?;
        let bundle = found.as_ref().map(|found| &found.bundle);
        let live = self.live(keys.zip(bundle), materials.as_ref())?;
        let observed = self.observe(&live);
        if let Some(lost) = secrets::lost(&OperatingSystem, &store, &observed).filter(|_| bundle.is_none()) {
            match self.intent {
                Intent::Make => return Err(Halt::preflight(only(lost))),
                Intent::Look | Intent::Plan => findings.extend(as_warnings(&only(lost))),
                Intent::Remove { .. } => {}
            }
        }
        let lab = self.world.lab.as_ref().map(|lab| lab.file().as_path());
        let stage = Stage {
            live: &live,
            site: self.site,
            survey: self.survey,
            observed,
            store: &store,
            bundle,
            runtime: self.runtime,
            lab,
            held: self.held,
            scene: self,
            materials: materials.as_ref(),
        };
        if let Some(found) = &found {
            findings.extend(found.findings.clone());
        }
        told_with(findings, act(stage))
    }

    fn observe(&self, live: &Live<'_>) -> Observed {
        let _waiting = Wait::new(self.terminal, "looking at the cluster");
        self.runtime.block_on(live.observe(self.survey))
    }

    /// Reads the files and secrets that the inventory names, if the verb needs them.
    fn gather(&self, findings: &mut Findings) -> Result<Option<Materials>, Halt> {
        let gather = match self.place {
            Place::Real => materials::gather,
            // A rehearsal needs no real secret of anybody.
            Place::Lab | Place::LabIn(_) => materials::rehearse,
        };
        if matches!(self.intent, Intent::Remove { .. }) {
            return Ok(None);
        }
        let needs = needs(self.site.desired);
        match gather(&OperatingSystem, self.site, &needs, &mut self.sources.borrow_mut()) {
            Ok(materials) => Ok(Some(materials)),
            Err(missing) if self.intent == Intent::Look => {
                findings.extend(as_warnings(&missing));
                Ok(None)
            }
            Err(missing) => Err(Halt::invalid(missing)),
        }
    }

    /// Reads the cluster's secrets, if it has some. Whoever removes it goes on without those that cannot be read.
    fn read_secrets(&self, store: &Store, findings: &mut Findings) -> Result<Option<Found>, Halt> {
        if !store.has_bundle(&OperatingSystem) {
            return Ok(None);
        }
        let sources = &mut self.sources.borrow_mut();
        match bundle::of_cluster(&OperatingSystem, self.site, None, Signer::Talos, sources) {
            Ok(found) => Ok(Some(found)),
            Err(halt) if matches!(self.intent, Intent::Remove { .. }) => {
                findings.extend(as_warnings(&halt.findings));
                Ok(None)
            }
            Err(halt) => Err(halt),
        }
    }

    fn live<'a>(
        &'a self,
        secrets: Option<(Keys, &'a Bundle)>,
        materials: Option<&'a Materials>,
    ) -> Result<Live<'a>, Halt> {
        let pve = proxmox(&self.site.desired.proxmox.endpoint, &self.world.reach)?;
        let live = Live::new(self.site.desired, pve, self.world.reach.clone(), secrets, materials)?;
        Ok(if matches!(self.intent, Intent::Remove { by_name: true, .. }) { live.by_name() } else { live })
    }

    /// Makes the cluster's secrets.
    fn make_secrets(&self, lock: &Lock) -> Result<Findings, Halt> {
        let _waiting = Wait::new(self.terminal, "making the cluster's secrets");
        let key = || match self.making.take() {
            Some(making) => making.join().unwrap_or(Err(PkiError::Entropy)),
            None => RsaKey::generate(),
        };
        let mut new = secrets::new_within(&OperatingSystem, self.site, key, lock)?;
        // Nothing is made with secrets that others could not have.
        self.held.map_or(Ok(()), Held::commit)?;
        new.findings.extend(new.chosen.and_then(|chosen| chosen.note()).into_iter().collect());
        Ok(new.findings)
    }
}
