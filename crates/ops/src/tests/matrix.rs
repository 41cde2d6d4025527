//! The crash matrix: whatever goes wrong in `up` and `destroy`, wherever, running them again gives the cluster that
//! was asked for, once, and touches nothing else.
//!
//! 1. Clean runs tell how many records the journal gets and which calls are made ([`Prepared`]).
//! 2. From that come all cases ([`all`]): the run dies before, in and after each record, and before and after each
//!    call that changes something; and calls of every kind meet every fault of the lab.
//! 3. Each case is played in a lab of its own, in virtual time ([`play`]), and judged ([`verdict`]).
//!
//! A sample is part of the usual tests. Everything:
//!
//! ```sh
//! cargo test --release -p ichor-ops the_whole_matrix -- --ignored --nocapture
//! ```
//!
//! `ICHOR_CASE` chooses those whose names contain a text: a case that went wrong prints its name.

mod canary;
mod case;
mod stage;
mod verdict;

use std::{
    collections::BTreeMap,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use ichor_model::Code;
use ichor_plan::Extent;
use ichor_sim::{incident::Incident, profile::Profile, random::Random, setup::Setup};

use self::{
    case::{Blow, Case, Ground, Moment, Pattern, Verb, faults},
    stage::{End, Scene, Stage},
    verdict::{Holdings, Wrongs},
};
use super::{resolve, rsa, site};
use crate::{converge::Goal, memory::Memory, secrets};

const INVENTORY: &str = "\
cluster: {name: lab, talos: v1.13.9, kubernetes: v1.36.3, endpoint: {vip: 10.0.0.5}}
proxmox: {endpoint: 'https://pve1:8006', hosts: [pve1, pve2, pve3], storage: {disks: local-lvm, images: local}}
network: {cidr: 10.0.0.0/24, gateway: 10.0.0.1, dns: 10.0.0.1}
placement: {overcommit: {cpu: 4}}
machines:
  cp: {role: control-plane, count: 3}
  worker: {role: worker, count: 2}
";

/// The same, with clones in place of imported images.
const CLONED: &str = "image: {source: template, templates: {control-plane: {vmid: 900, host: pve1}, worker: {vmid: 901, host: pve1}}}\n";

const STRANGERS: u32 = 20;
/// How many cases run at once.
const THREADS: usize = 2;
/// After so many cases it is said how far they are.
const SAY_EVERY: usize = 500;
/// How many cases the usual tests play.
const SAMPLE: usize = 24;
/// No run makes more calls than this, whatever it meets. A clean one makes fewer than 200; most by far are looks of a
/// step that waits in vain until its deadline.
const MOST_CALLS: usize = 4_000;

const fn gone() -> Goal {
    Goal::Gone(Extent::Everything)
}

/// What all cases share.
struct Prepared {
    /// Secrets, strangers, and nothing else.
    nothing: Scene,
    /// A cluster.
    standing: Scene,
    /// The same, and the VM of a control plane is gone.
    crippled: Scene,
    up: Course,
    replace: Course,
    destroy: Course,
    without: Holdings,
    with: Holdings,
}

/// What a clean run did.
struct Course {
    records: usize,
    calls: BTreeMap<Pattern, u32>,
}

impl Prepared {
    fn get(ground: Ground) -> &'static Self {
        static IMAGES: OnceLock<Prepared> = OnceLock::new();
        static TEMPLATES: OnceLock<Prepared> = OnceLock::new();
        match ground {
            Ground::Images => IMAGES.get_or_init(|| in_virtual_time(Self::new(INVENTORY.into()))),
            Ground::Templates => {
                // Clones go to another host only where all see the disks.
                let inventory = INVENTORY.replace("[pve1, pve2, pve3]", "[pve1]") + CLONED;
                TEMPLATES.get_or_init(|| in_virtual_time(Self::new(inventory)))
            }
        }
    }

    async fn new(inventory: String) -> Self {
        let memory = Memory::default();
        memory.later.set(ichor_lab::real_time().unix_seconds() - crate::memory::NOW);
        let desired = resolve(&inventory);
        secrets::new(&memory, site(&desired), || Ok(rsa())).expect("secrets");
        let mut lab = Setup { strangers: STRANGERS, ..Setup::new(1, Profile::Lab) }.build();
        // A lab wakes up for an hour before it goes on; once is enough.
        lab.resume(ichor_lab::real_time());
        let files = memory.files.borrow().clone();
        let nothing = Scene { inventory, desired, files, journal: String::new(), lab };
        let stage = Stage::new(&nothing);
        let without = stage.look(Holdings::of);
        assert!(stage.run(&Goal::up(), None).await.is_done(), "{}", stage.heard.text());
        let up = Course::of(&stage);
        let with = stage.look(Holdings::of);
        let standing = stage.scene();
        let stage = Stage::new(&standing);
        lose(&stage, &standing, &["cp-2"]);
        let crippled = stage.scene();
        let replace = Course::from(&crippled, &Goal::up()).await;
        let destroy = Course::from(&standing, &gone()).await;
        Self { nothing, standing, crippled, up, replace, destroy, without, with }
    }
}

/// Deletes VMs behind everybody's back.
fn lose(stage: &Stage, scene: &Scene, vms: &[&str]) {
    for machine in scene.desired.machines.iter().filter(|machine| vms.contains(&machine.name.as_str())) {
        let incident = Incident::VmDeleted { vmid: machine.vmid };
        stage.inside.hall().visit(|lab| lab.befall(&incident)).expect("it can happen");
    }
}

impl Course {
    /// Runs to a goal, from what was there before.
    async fn from(scene: &Scene, goal: &Goal) -> Self {
        let stage = Stage::new(scene);
        let before = stage.journal.lines();
        assert!(stage.run(goal, None).await.is_done(), "{}", stage.heard.text());
        let mut course = Self::of(&stage);
        course.records -= before;
        course
    }

    fn of(stage: &Stage) -> Self {
        let mut calls = BTreeMap::new();
        for call in stage.calls() {
            *calls.entry(call).or_default() += 1;
        }
        Self { records: stage.journal.lines(), calls }
    }

    fn blows(&self) -> Vec<Blow> {
        let records = (1..=self.records).flat_map(|number| {
            [Moment::Before, Moment::Torn, Moment::After].map(|moment| Blow::Record { number, moment })
        });
        let changing = self.calls.iter().filter(|(call, _)| call.changes());
        let deaths = changing.flat_map(|(call, times)| {
            (1..=*times).flat_map(|number| {
                [Moment::Before, Moment::After].map(|moment| Blow::Call {
                    call: call.clone(),
                    number,
                    moment,
                })
            })
        });
        // The first call of a kind, one in the middle and the last one.
        let faults = self.calls.iter().flat_map(|(call, times)| {
            let numbers = std::collections::BTreeSet::from([1, times.div_ceil(2), *times]);
            numbers.into_iter().flat_map(move |number| {
                faults(call.server).into_iter().map(move |(name, kind)| Blow::Fault {
                    call: call.clone(),
                    number,
                    name,
                    kind,
                })
            })
        });
        records.chain(deaths).chain(faults).collect()
    }
}

/// Returns all cases.
fn all() -> Vec<Case> {
    let of = |ground, verb, course: &Course| {
        course.blows().into_iter().map(move |blow| Case { ground, verb, blow })
    };
    let clones = of(Ground::Templates, Verb::Up, &Prepared::get(Ground::Templates).up);
    let clones = clones.filter(|case| !matches!(case.blow, Blow::Fault { .. }));
    let prepared = Prepared::get(Ground::Images);
    let of = |verb, course: &Course| of(Ground::Images, verb, course);
    let abandoned = of(Verb::Abandon, &prepared.up).filter(|case| !matches!(case.blow, Blow::Fault { .. }));
    let after = |case: &Case| matches!(case.blow, Blow::Record { moment: Moment::After, .. });
    let reborn = of(Verb::Reborn, &prepared.up).filter(after);
    let both = of(Verb::Up, &prepared.up).chain(of(Verb::Destroy, &prepared.destroy));
    let replaced = of(Verb::Replace, &prepared.replace);
    both.chain(replaced).chain(abandoned).chain(reborn).chain(clones).collect()
}

fn in_virtual_time<T>(play: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().expect("a runtime").block_on(play)
}

/// What came of a case.
#[derive(Debug, Default)]
struct Played {
    /// Whether it went wrong as it should.
    struck: bool,
    /// Most calls of a run.
    most_calls: usize,
    wrongs: Wrongs,
}

/// Plays a case: the run that goes wrong, the one that makes up for it, and one that must have nothing to do.
async fn play(case: &Case) -> Played {
    let prepared = Prepared::get(case.ground);
    let (scene, first, then) = match case.verb {
        Verb::Up | Verb::Reborn => (&prepared.nothing, Goal::up(), Goal::up()),
        Verb::Replace => (&prepared.crippled, Goal::up(), Goal::up()),
        Verb::Destroy => (&prepared.standing, gone(), gone()),
        Verb::Abandon => (&prepared.nothing, Goal::up(), gone()),
    };
    let stage = Stage::new(scene);
    let mut played = Played::default();
    let mut count = |stage: &Stage, before: usize| {
        let calls = stage.calls().split_off(before);
        played.most_calls = played.most_calls.max(calls.len());
        calls.iter().filter(|call| call.changes()).cloned().collect::<Vec<_>>()
    };
    let disturbed = stage.run(&first, Some(&case.blow)).await;
    count(&stage, 0);
    let mut before = stage.calls().len();
    let mut second = stage.run(&then, None).await;
    count(&stage, before);
    if case.verb == Verb::Reborn && second.is_done() {
        for goal in [gone(), Goal::up()] {
            before = stage.calls().len();
            second = stage.run(&goal, None).await;
            count(&stage, before);
        }
    }
    let before = stage.calls().len();
    let third = stage.run(&then, None).await;
    let changes = count(&stage, before);
    played.struck = match case.blow {
        Blow::Fault { .. } => true,
        _ => matches!(disturbed, End::Died),
    };
    let mut wrongs = verdict::always(&stage, &scene.files);
    wrongs.extend(match case.verb {
        Verb::Up | Verb::Replace => verdict::there(&stage, &scene.desired, &prepared.with),
        Verb::Reborn => verdict::there_again(&stage, &scene.desired, &prepared.with),
        Verb::Destroy | Verb::Abandon => verdict::gone(&stage, &prepared.without),
    });
    let told = stage.calls().iter().any(|call| call.path.ends_with("/EtcdRemoveMemberByID"));
    if case.verb == Verb::Replace && !told && !matches!(case.blow, Blow::Fault { .. }) {
        wrongs.push("the lost vote did not go by ichor, under its guard".into());
    }
    if !second.is_done() {
        wrongs.push(format!("the second run is not done: {}", brief(&second)));
    }
    if !third.is_done() || !changes.is_empty() {
        wrongs.push(format!("the third run is not idle: {}, {changes:?}", brief(&third)));
    }
    if played.most_calls > MOST_CALLS {
        wrongs.push(format!("a run made {} calls", played.most_calls));
    }
    if !wrongs.is_empty() {
        wrongs.push(format!("the first run: {}", brief(&disturbed)));
    }
    played.wrongs = wrongs;
    played
}

/// Says how a run ended: what is not good of it.
fn brief(end: &End) -> String {
    match end {
        End::Died => "died".into(),
        End::Halted(halt) => format!("halted: {}", super::messages(&halt.findings)),
        End::Ended(ended) if ended.done => "done".into(),
        End::Ended(ended) => {
            let report = ended.report.as_ref();
            let bad = report.into_iter().flat_map(|report| {
                report.steps(|outcome| {
                    use ichor_engine::Outcome::{Blocked, NotBegun};
                    !outcome.is_good() && !matches!(outcome, Blocked { .. } | NotBegun)
                })
            });
            bad.map(|(step, outcome)| format!("{step}: {outcome:?}; ")).collect()
        }
    }
}

/// Plays cases on all threads, says how many there were, and returns what was wrong.
fn play_all(cases: &[Case]) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let (wrongs, missed, most) = (Mutex::new(Vec::new()), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(number) else { break };
                    if number.is_multiple_of(SAY_EVERY) {
                        println!("case {number} of {}: {case}", cases.len());
                    }
                    let played = catch_unwind(AssertUnwindSafe(|| in_virtual_time(play(case))));
                    let played = played.unwrap_or_else(|_| Played {
                        wrongs: vec!["it panicked".into()],
                        struck: true,
                        ..Played::default()
                    });
                    most.fetch_max(played.most_calls, Ordering::Relaxed);
                    missed.fetch_add(usize::from(!played.struck), Ordering::Relaxed);
                    if !played.wrongs.is_empty() {
                        let told = format!("{case}\n    {}", played.wrongs.join("\n    "));
                        println!("WRONG {told}");
                        wrongs.lock().expect("lock").push(told);
                    }
                }
            });
        }
    });
    let wrongs = wrongs.into_inner().expect("lock");
    let kinds = |verb, kind: fn(&Blow) -> bool| {
        cases.iter().filter(|case| case.verb == verb && kind(&case.blow)).count()
    };
    for verb in [Verb::Up, Verb::Replace, Verb::Destroy, Verb::Abandon, Verb::Reborn] {
        println!(
            "{verb:?}: {} deaths at records, {} deaths at calls, {} faults",
            kinds(verb, |blow| matches!(blow, Blow::Record { .. })),
            kinds(verb, |blow| matches!(blow, Blow::Call { .. })),
            kinds(verb, |blow| matches!(blow, Blow::Fault { .. })),
        );
    }
    println!(
        "{} cases, {} wrong, {} whose moment never came, at most {} calls in a run",
        cases.len(),
        wrongs.len(),
        missed.into_inner(),
        most.into_inner()
    );
    wrongs
}

#[test]
fn a_machine_whose_host_is_away_is_not_made_again_elsewhere() {
    let prepared = Prepared::get(Ground::Images);
    in_virtual_time(async {
        let stage = Stage::new(&prepared.standing);
        let befall =
            |incident| stage.inside.hall().visit(|lab| lab.befall(&incident)).expect("it can happen");
        befall(Incident::HostDown { host: "pve2".into() });
        // Its VMs are in the list for as long as the host is away, and after some minutes without their names.
        tokio::time::sleep(Duration::from_mins(10)).await;
        let before = stage.calls().len();
        let end = stage.run(&Goal::up(), None).await;
        let End::Halted(halt) = &end else { panic!("{}", brief(&end)) };
        assert!(halt.findings.iter().any(|finding| finding.code == Code::VM_UNSEEN), "{}", brief(&end));
        assert!(!stage.calls().iter().skip(before).any(Pattern::changes), "something was changed");
        befall(Incident::HostUp { host: "pve2".into() });
        assert!(stage.run(&Goal::up(), None).await.is_done());
        assert_eq!(verdict::there(&stage, &prepared.standing.desired, &prepared.with), Wrongs::new());
    });
}

/// Runs `up` after VMs were deleted, which must not even begin; returns what is said.
fn halts_without(vms: &[&str]) -> Vec<Code> {
    let prepared = Prepared::get(Ground::Images);
    in_virtual_time(async {
        let stage = Stage::new(&prepared.standing);
        lose(&stage, &prepared.standing, vms);
        let before = stage.calls().len();
        let end = stage.run(&Goal::up(), None).await;
        let End::Halted(halt) = &end else { panic!("{}", brief(&end)) };
        assert!(!stage.calls().iter().skip(before).any(Pattern::changes), "something was changed");
        halt.findings.iter().map(|finding| finding.code).collect()
    })
}

#[test]
fn lost_control_planes_are_not_replaced_by_an_empty_cluster() {
    assert!(halts_without(&["cp-1", "cp-2", "cp-3"]).contains(&Code::CONTROL_PLANES_LOST));
}

#[test]
fn a_lost_control_plane_is_made_anew_and_its_old_vote_is_gone() {
    let prepared = Prepared::get(Ground::Images);
    in_virtual_time(async {
        let stage = Stage::new(&prepared.crippled);
        let voters = |lab: &ichor_sim::Lab| -> Vec<u64> {
            lab.machines.clusters().values().flat_map(|etcd| etcd.members.keys().copied()).collect()
        };
        let before = stage.look(voters);
        assert!(stage.run(&Goal::up(), None).await.is_done(), "{}", stage.heard.text());
        assert_eq!(verdict::there(&stage, &prepared.standing.desired, &prepared.with), Wrongs::new());
        let after = stage.look(voters);
        assert_eq!((before.len(), after.len()), (3, 3));
        assert_eq!(after.iter().filter(|id| !before.contains(id)).count(), 1, "one member is a new one");
        let told = stage.calls().into_iter().filter(|call| call.path.ends_with("/EtcdRemoveMemberByID"));
        assert_eq!(told.count(), 1, "etcd was told, and only once");
    });
}

#[test]
fn a_sample_of_the_matrix_holds() {
    let mut cases = all();
    let mut random = Random::new(5);
    let sample: Vec<Case> = (0..SAMPLE)
        .map(|_| {
            let at = usize::try_from(random.bits()).unwrap_or_default() % cases.len();
            cases.swap_remove(at)
        })
        .collect();
    assert_eq!(play_all(&sample), Vec::<String>::new());
}

#[test]
#[ignore = "takes minutes: cargo test --release -p ichor-ops the_whole_matrix -- --ignored --nocapture"]
#[expect(clippy::disallowed_methods, reason = "a single case is chosen by hand")]
fn the_whole_matrix_holds() {
    let mut cases = all();
    if let Ok(part) = std::env::var("ICHOR_CASE") {
        cases.retain(|case| case.to_string().contains(&part));
    }
    assert_eq!(play_all(&cases), Vec::<String>::new());
}
