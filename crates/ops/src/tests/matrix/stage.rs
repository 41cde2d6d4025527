//! A lab in which a case is played: everything that a process has is lost when a run dies, and what is on disk and
//! in the datacentre stays.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    io,
    panic::{AssertUnwindSafe, resume_unwind},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::FutureExt;
use ichor_engine::{Cancel, Event, EventSink, Journal, Past, journal::Sink};
use ichor_lab::{Hall, Inside, Target, proxy::Routes};
use ichor_machineconfig::compose::needs;
use ichor_model::Desired;
use ichor_net::{Fingerprint, Trust};
use ichor_port::Secret;
use ichor_sim::{
    Lab,
    faults::{FaultPlan, Kind, When},
    setup::{TOKEN, USER},
};
use ichor_spec::Sources;

use super::case::{Blow, Moment, Pattern};
use crate::{
    Halt,
    bundle::{self, Signer},
    converge::{Ended, Goal, converge, first_look},
    live::{Keys, Live, Reach, proxmox},
    materials,
    memory::{Memory, NOW},
    tests::{resolve_in, site},
};

/// What a case begins with.
#[derive(Clone)]
pub struct Scene {
    pub inventory: String,
    /// It, with nothing there yet.
    pub desired: Desired,
    /// What is on the disk of whoever runs ichor.
    pub files: BTreeMap<PathBuf, Vec<u8>>,
    pub journal: String,
    pub lab: Lab,
}

/// How a run ended.
#[derive(Debug)]
pub enum End {
    Ended(Ended),
    Halted(Halt),
    Died,
}

impl End {
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Ended(ended) if ended.done)
    }
}

/// A lab with somebody who runs ichor.
pub struct Stage {
    pub inside: Arc<Inside>,
    pub memory: Memory,
    pub journal: Paper,
    pub heard: Arc<Heard>,
    inventory: String,
    desired: Desired,
    watch: Arc<Mutex<Watch>>,
}

/// What is seen of etcd at every instant.
#[derive(Debug, Default)]
struct Watch {
    had_quorum: BTreeSet<String>,
    lost: Vec<String>,
}

impl Stage {
    /// Must be called on a tokio runtime.
    pub fn new(scene: &Scene) -> Self {
        let routes = Routes::of(&scene.lab).with("pve1", 8006, Target::Pve);
        let inside = Arc::new(Inside::over(Arc::new(Hall::new(scene.lab.clone())), routes));
        let memory = Memory::default();
        *memory.files.borrow_mut() = scene.files.clone();
        // Certificates are checked by the real clock.
        memory.later.set(ichor_lab::real_time().unix_seconds() - NOW);
        let watch = Arc::default();
        tokio::spawn(keep_watch(Arc::clone(inside.hall()), Arc::clone(&watch)));
        let journal = Paper(Arc::new(Mutex::new(scene.journal.clone())));
        let (inventory, desired) = (scene.inventory.clone(), scene.desired.clone());
        Self { inside, memory, journal, heard: Arc::default(), inventory, desired, watch }
    }

    /// Returns everything that another case may begin with.
    pub fn scene(&self) -> Scene {
        let mut lab = self.look(Clone::clone);
        lab.forget_calls();
        Scene {
            inventory: self.inventory.clone(),
            desired: self.desired.clone(),
            files: self.memory.files.borrow().clone(),
            journal: self.journal.text(),
            lab,
        }
    }

    pub fn look<T>(&self, see: impl FnOnce(&Lab) -> T) -> T {
        self.inside.hall().look(see)
    }

    /// Returns the kinds of all calls so far, in their order.
    pub fn calls(&self) -> Vec<Pattern> {
        self.look(|lab| lab.ground.record.calls.iter().map(Pattern::of).collect())
    }

    /// Returns when etcd lost its quorum.
    pub fn lost_quorums(&self) -> Vec<String> {
        lock(&self.watch).lost.clone()
    }

    /// Runs ichor, as a process of its own, until it ends or dies of the blow.
    pub async fn run(&self, goal: &Goal, blow: Option<&Blow>) -> End {
        self.arm(blow);
        let sink = match blow {
            Some(Blow::Record { number, moment }) => self.journal.dying(*number, *moment),
            _ => Box::new(self.journal.clone()),
        };
        let journal = Journal::new("run", sink);
        let end = tokio::select! {
            biased;
            () = self.struck(blow) => End::Died,
            end = AssertUnwindSafe(Box::pin(self.converge(goal, &journal))).catch_unwind() => match end {
                Ok(Ok(ended)) => End::Ended(ended),
                Ok(Err(halt)) => End::Halted(halt),
                Err(panic) if panic.is::<Dies>() => End::Died,
                Err(panic) => resume_unwind(panic),
            },
        };
        self.inside.hall().visit(|lab| lab.ground.faults = FaultPlan::default());
        self.heard.note(&format!("{end:?}"));
        end
    }

    fn arm(&self, blow: Option<&Blow>) {
        let fault = match blow {
            Some(Blow::Fault { call, number, kind, .. }) => call.suffers(*number, kind.clone()),
            Some(Blow::Call { call, number, moment: Moment::Before }) => {
                call.suffers(*number, Kind::Hang(When::Before))
            }
            _ => return,
        };
        self.inside.hall().visit(|lab| lab.ground.faults = FaultPlan(vec![fault]));
    }

    /// Waits until the call is there that the run dies at: unanswered and without effect, or with its effect and
    /// before the answer is read.
    async fn struck(&self, blow: Option<&Blow>) {
        let Some(Blow::Call { call, number, moment }) = blow else { return std::future::pending().await };
        let before = self.look(|lab| lab.ground.record.calls.len());
        let mut visits = self.inside.hall().visits();
        loop {
            let is_there = self.look(|lab| match moment {
                Moment::Before => lab.ground.faults.0.iter().any(|fault| fault.seen >= *number),
                _ => {
                    let calls = lab.ground.record.calls.iter().skip(before);
                    calls.filter(|made| Pattern::of(made) == *call).count() >= *number as usize
                }
            });
            if is_there {
                return;
            }
            // The hall outlives the stage.
            let _ = visits.changed().await;
        }
    }

    /// Returns the cluster as it is wanted, before anything was looked at.
    pub const fn desired(&self) -> &Desired {
        &self.desired
    }

    pub fn reach(&self) -> Reach {
        let (pin, secret) = self.look(|lab| {
            let persona = lab.own_persona().expect("a persona");
            (Fingerprint::of(&persona.certificates[0]), token_secret(lab))
        });
        Reach {
            dialer: Arc::clone(&self.inside) as _,
            proxmox: Trust::Pin(pin),
            factory: Trust::Pin(pin),
            token: ichor_pve::Token::parse(&Secret::new(format!("{USER}!{TOKEN}={secret}")))
                .expect("a token"),
        }
    }

    /// Does what the program does: it resolves the inventory in what it sees, and goes on from there.
    async fn converge(&self, goal: &Goal, journal: &Journal) -> Result<Ended, Halt> {
        let reach = self.reach();
        let pve = proxmox(&self.desired.proxmox.endpoint, &reach)?;
        let survey = first_look(&pve, &self.desired).await?;
        let desired = resolve_in(&self.inventory, &survey.world(&self.desired)).map_err(Halt::invalid)?;
        let (site, mut sources) = (site(&desired), Sources::default());
        let found = bundle::of_cluster(&self.memory, site, None, Signer::Talos, &mut sources)?;
        let materials =
            materials::gather(&self.memory, site, &needs(&desired), &mut sources).map_err(Halt::invalid)?;
        let keys = Keys::new(&self.memory, &found.bundle)?;
        let live = Live::new(&desired, pve, reach, Some((keys, &found.bundle)), &materials)?;
        let observed = live.observe(&survey).await;
        let past = Past::read(self.journal.text().as_bytes()).expect("a journal");
        let events: Arc<dyn EventSink> = Arc::clone(&self.heard) as _;
        converge(&live, goal, observed, journal, past, &events, &Cancel::default()).await
    }
}

/// Returns what nobody may be told: the secret of the token.
pub fn token_secret(lab: &Lab) -> String {
    lab.pve.access.users[USER].tokens[TOKEN].secret.clone()
}

/// Looks at etcd whenever something has happened: time stands still until everybody has looked.
async fn keep_watch(hall: Arc<Hall>, watch: Arc<Mutex<Watch>>) {
    let mut visits = hall.visits();
    loop {
        hall.look(|lab| lock(&watch).see(lab));
        if visits.changed().await.is_err() {
            return;
        }
    }
}

impl Watch {
    fn see(&mut self, lab: &Lab) {
        for (id, etcd) in lab.machines.clusters() {
            let has_quorum = etcd.has_quorum(&lab.machines.alive(&lab.ground, id));
            if has_quorum {
                self.had_quorum.insert(id.clone());
            } else if self.had_quorum.remove(id) {
                self.lost.push(format!("etcd {id} lost its quorum at {:?}", lab.ground.now));
            }
        }
    }
}

/// The process is gone.
struct Dies;

/// A journal on disk.
#[derive(Clone, Default)]
pub struct Paper(Arc<Mutex<String>>);

impl Paper {
    pub fn text(&self) -> String {
        lock(&self.0).clone()
    }

    pub fn lines(&self) -> usize {
        self.text().lines().count()
    }

    fn dying(&self, number: usize, moment: Moment) -> Box<dyn Sink> {
        Box::new(Dying { paper: self.clone(), left: number, moment })
    }
}

impl Sink for Paper {
    fn append(&mut self, line: &str) -> io::Result<()> {
        let mut text = lock(&self.0);
        // A line that was torn ends where the next one begins.
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(line);
        text.push('\n');
        Ok(())
    }
}

/// A journal whose writer dies at a record.
struct Dying {
    paper: Paper,
    left: usize,
    moment: Moment,
}

impl Sink for Dying {
    fn append(&mut self, line: &str) -> io::Result<()> {
        self.left = self.left.saturating_sub(1);
        if self.left > 0 {
            return self.paper.append(line);
        }
        match self.moment {
            Moment::Before => {}
            Moment::Torn => lock(&self.paper.0).push_str(&line[..line.len() / 2]),
            Moment::After => self.paper.append(line)?,
        }
        // Unwinding leaves nothing of the run, and nothing of it comes after this.
        resume_unwind(Box::new(Dies))
    }
}

/// Everything that was said.
#[derive(Debug, Default)]
pub struct Heard(Mutex<String>);

impl Heard {
    pub fn note(&self, text: &str) {
        lock(&self.0).push_str(text);
    }

    pub fn text(&self) -> String {
        lock(&self.0).clone()
    }
}

impl EventSink for Heard {
    fn emit(&self, event: Event) {
        let mut text = lock(&self.0);
        let _ = writeln!(text, "{event:?}");
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
