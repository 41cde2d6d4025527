//! What verbs over a living cluster share.
//!
//! 1. The inventory is read, and its world opened: the Proxmox that it names, or a lab;
//! 2. whoever is going to change something keeps others out, before anything is decided;
//! 3. Proxmox is looked at, and the inventory resolved in what was seen: machines stay where they are;
//! 4. the cluster's secrets are read; or made, if the verb may, nothing stands in its way, and no machine exists that
//!    would know others;
//! 5. everything else is looked at, and the verb acts on a [`Stage`].

use std::thread;

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
use ichor_plan::preflight;
use ichor_spec::Sources;
use tokio::runtime::Runtime;

use super::session::{Gate, Session};
use crate::{
    args::{Global, Place},
    exit::Exit,
    failure::Failure,
    keeping::{self, Ask, Held},
    operating_system::OperatingSystem,
    terminal::Terminal,
    world::{World, with_site_in},
};

/// What a verb means to do with a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// To look.
    Look,
    /// To remove it, or to see what that would do. Its secrets are of use for that, and nobody has to have them.
    Remove {
        /// Whether nothing is changed.
        dry_run: bool,
    },
    /// To make it: its secrets too, if there are none.
    Make,
}

impl Intent {
    /// Returns the verb, as others are told of it.
    const fn verb(self) -> &'static str {
        match self {
            Self::Look => "plan",
            Self::Remove { .. } => "destroy",
            Self::Make => "up",
        }
    }

    /// Whether something is changed; nobody else may meanwhile.
    const fn changes(self) -> bool {
        matches!(self, Self::Make | Self::Remove { dry_run: false })
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
        let survey = runtime.block_on(first_look(&pve, &site.desired.vmids()))?;
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
            let scene =
                Scene { place, site, runtime: &runtime, world: &world, survey: &survey, intent, lock, held };
            scene.play(making, sources, act)
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
}

impl Scene<'_> {
    fn play<T>(
        &self,
        making: Option<Making>,
        sources: &mut Sources,
        act: impl FnOnce(Stage<'_>) -> Result<(T, Findings), Halt>,
    ) -> Result<(T, Findings), Halt> {
        let system = &OperatingSystem;
        let store = store_of(self.site)?;
        let gather = match self.place {
            Place::Real => materials::gather,
            // A rehearsal needs no real secret of anybody.
            Place::Lab | Place::LabIn(_) => materials::rehearse,
        };
        let materials =
            gather(system, self.site, &needs(self.site.desired), sources).map_err(Halt::invalid)?;
        let mut findings = self.make_secrets(&store, &materials, making)?;
        let found = self.read_secrets(&store, sources, &mut findings)?;
        let keys = found.as_ref().map(|found| Keys::new(system, &found.bundle)).transpose()?;
        let bundle = found.as_ref().map(|found| &found.bundle);
        let live = self.live(keys.zip(bundle), &materials)?;
        let observed = self.runtime.block_on(live.observe(self.survey));
        if bundle.is_none() && self.intent == Intent::Look {
            findings.extend(as_warnings(&secrets::lost(&store, &observed).into_iter().collect()));
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
        };
        if let Some(found) = &found {
            findings.extend(found.findings.clone());
        }
        match act(stage) {
            Ok((value, notes)) => {
                findings.extend(notes);
                Ok((value, findings))
            }
            // What led to a stop is told with it.
            Err(mut halt) => {
                halt.findings.extend(findings);
                Err(halt)
            }
        }
    }

    /// Reads the cluster's secrets, if it has some. Whoever removes it goes on without those that cannot be read.
    fn read_secrets(
        &self,
        store: &Store,
        sources: &mut Sources,
        findings: &mut Findings,
    ) -> Result<Option<Found>, Halt> {
        if !store.has_bundle(&OperatingSystem) {
            return Ok(None);
        }
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
        materials: &'a Materials,
    ) -> Result<Live<'a>, Halt> {
        let pve = proxmox(&self.site.desired.proxmox.endpoint, &self.world.reach)?;
        Live::new(self.site.desired, pve, self.world.reach.clone(), secrets, materials)
    }

    /// Makes the cluster's secrets, if it has none and the verb makes clusters. Whoever would be stopped anyway is
    /// stopped before that: secrets that nobody uses stand in the way of those that are brought back.
    fn make_secrets(
        &self,
        store: &Store,
        materials: &Materials,
        making: Option<Making>,
    ) -> Result<Findings, Halt> {
        let Some(lock) =
            self.lock.filter(|_| self.intent == Intent::Make && !store.has_bundle(&OperatingSystem))
        else {
            return Ok(Findings::new());
        };
        let live = self.live(None, materials)?;
        let observed = self.runtime.block_on(live.observe(self.survey));
        if let Some(lost) = secrets::lost(store, &observed) {
            return Err(Halt::preflight(only(lost)));
        }
        let found = preflight(self.site.desired, &observed);
        if found.has_errors() {
            return Err(Halt::preflight(found));
        }
        let key = || match making {
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
