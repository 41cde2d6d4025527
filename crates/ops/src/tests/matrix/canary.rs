//! No secret is said aloud, and nothing steers a terminal, whatever the servers do to a run.
//!
//! The servers of the lab do something to every call while the cluster is looked at by those who change nothing: `plan`,
//! `plan --out`, `status`, `health` and `doctor`. Proxmox and the factory do so with every fault that the lab knows,
//! and while `up` and `destroy` are run, too; machines and Kubernetes with all but those that make each of their many
//! calls long ([`is_brief`]), which they do to single calls of whole runs in the [matrix](super).
//! Everything that comes of it is searched for keys and tokens: events, the journal, the end of the run and its errors,
//! saved plans, what was observed, and each check.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Mutex,
};

use ichor_machineconfig::compose::needs;
use ichor_model::{Findings, Observed};
use ichor_sim::faults::{FaultPlan, Kind, Server};
use ichor_spec::Sources;

use super::{
    Prepared,
    case::{Blow, Ground, Pattern, faults},
    gone, in_virtual_time,
    stage::Stage,
    verdict,
};
use crate::{
    Halt, System,
    bundle::{self, Signer},
    converge::{Goal, first_look},
    doctor::Examination,
    health,
    live::{Keys, Live, proxmox},
    materials,
    saved_plan::SavedPlan,
    tests::site,
};

const SERVERS: [Server; 4] = [Server::Pve, Server::Factory, Server::Talos, Server::Kube];

impl Stage {
    /// Looks at the cluster as those verbs do that change nothing, and notes everything that they could show.
    async fn inspect(&self) -> Result<(), Halt> {
        let desired = self.desired();
        let reach = self.reach();
        self.heard.note(&format!("{reach:?}"));
        let pve = proxmox(&desired.proxmox.endpoint, &reach)?;
        let survey = first_look(&pve, desired).await?;
        let mut sources = Sources::default();
        let found = bundle::of_cluster(&self.memory, site(desired), None, Signer::Talos, &mut sources)?;
        let materials = materials::gather(&self.memory, site(desired), &needs(desired), &mut sources)
            .map_err(Halt::invalid)?;
        self.heard.note(&format!("{found:?} {materials:?} {survey:?}"));
        let keys = Keys::new(&self.memory, &found.bundle)?;
        let live = Live::new(desired, pve, reach, Some((keys, &found.bundle)), &materials)?;
        let observed: Observed = live.observe(&survey).await;
        self.heard.note(&format!("{:?}", health::checks(desired, &observed)));
        for goal in [Goal::up(), gone()] {
            let plan = goal.plan(&live, &observed);
            self.heard.note(&String::from_utf8_lossy(&SavedPlan::new(desired, &plan).bytes()));
            self.heard.note(&format!("{plan:?}"));
        }
        let examined = Box::pin(Examination::new(&live, &survey, desired, self.memory.now())).await;
        self.heard.note(&format!("{:?}", examined.checks(&Findings::new())));
        Ok(())
    }

    /// Lets every call to a server go wrong from now on.
    fn spoil(&self, server: Server, kind: &Kind) {
        let fault = every(server).suffers(0, kind.clone());
        self.inside.hall().visit(|lab| lab.ground.faults = FaultPlan(vec![fault]));
    }
}

fn every(server: Server) -> Pattern {
    Pattern { server, method: String::new(), path: "*".into() }
}

/// Lets a server do something to every call of each verb, and returns what is wrong with what is said.
///
/// Whole runs meet the faults of Proxmox and of the factory here. Those of machines and Kubernetes are met at single
/// calls, in the matrix: a run that waits for them until its deadline looks at them thousands of times.
async fn suffer(server: Server, name: &'static str, kind: &Kind) -> Vec<String> {
    let prepared = Prepared::get(Ground::Images);
    let stage = Stage::new(&prepared.standing);
    stage.spoil(server, kind);
    if let Err(halt) = Box::pin(stage.inspect()).await {
        stage.heard.note(&format!("{halt:?}"));
    }
    let mut wrongs = verdict::always(&stage, &prepared.standing.files);
    let whole: &[_] = match server {
        Server::Pve if !is_lengthy(kind) => &[(&prepared.nothing, Goal::up()), (&prepared.standing, gone())],
        Server::Factory if !is_lengthy(kind) => &[(&prepared.nothing, Goal::up())],
        _ => &[],
    };
    for (scene, goal) in whole {
        let stage = Stage::new(scene);
        let blow = Blow::Fault { call: every(server), number: 0, name, kind: kind.clone() };
        stage.run(goal, Some(&blow)).await;
        wrongs.extend(verdict::always(&stage, &scene.files));
    }
    wrongs
}

/// Machines and Kubernetes are asked so often in one look that answers without end or after a long time, to each call,
/// take minutes. They meet these at single calls in the matrix.
fn is_brief(server: Server, name: &str) -> bool {
    const LENGTHY: [&str; 8] =
        ["hang-before", "hang-after", "slow", "lock-held", "twice", "endless", "drip", "oversized"];
    matches!(server, Server::Pve | Server::Factory) || !LENGTHY.contains(&name)
}

/// Whether calls succeed in the end, so that a run is as long as ever.
const fn is_lengthy(kind: &Kind) -> bool {
    matches!(kind, Kind::Slow { .. } | Kind::LockHeld { .. } | Kind::Twice)
}

#[test]
fn no_fault_of_the_lab_makes_a_verb_tell_a_secret() {
    let of = |server| faults(server).into_iter().map(move |(name, kind)| (server, name, kind));
    let cases: Vec<(Server, &'static str, Kind)> =
        SERVERS.into_iter().flat_map(of).filter(|(server, name, _)| is_brief(*server, name)).collect();
    assert!(cases.len() > 60, "{}", cases.len());
    // It is made in virtual time, too, and not within another.
    Prepared::get(Ground::Images);
    let (next, wrongs) = (Mutex::new(cases.iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..super::THREADS {
            scope.spawn(|| {
                loop {
                    let Some((server, name, kind)) = next.lock().expect("lock").next() else { return };
                    let played =
                        catch_unwind(AssertUnwindSafe(|| in_virtual_time(suffer(*server, name, kind))));
                    let found = played.unwrap_or_else(|_| vec!["it panicked".into()]);
                    let told = found.into_iter().map(|wrong| format!("{server:?} {name}: {wrong}"));
                    wrongs.lock().expect("lock").extend(told);
                }
            });
        }
    });
    assert_eq!(wrongs.into_inner().expect("lock"), Vec::<String>::new());
}

/// The search finds what it is for: a secret in any of the places that are searched, and an escape in any form.
#[test]
fn the_search_finds_what_it_is_for() {
    let prepared = Prepared::get(Ground::Images);
    in_virtual_time(async {
        let secrets = verdict::secrets(&prepared.nothing.files);
        assert!(secrets.len() > 8, "{}", secrets.len());
        for said in secrets.iter().map(String::as_str).chain(["\u{1b}[2J", "\\u{1b}[2J", "\u{202e}"]) {
            let stage = Stage::new(&prepared.nothing);
            assert_eq!(verdict::always(&stage, &prepared.nothing.files), Vec::<String>::new());
            stage.heard.note(&format!("a message with {said} in it"));
            assert_eq!(verdict::always(&stage, &prepared.nothing.files).len(), 1);
        }
    });
}
