//! Plans run in a small world of our own, with paused time.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, Mutex},
    time::Duration,
};

use ichor_engine::{
    BadPlan, Cancel, EffectError, Effects, Event, EventSink, Impact, Journal, Lane, Limits, Outcome, Past,
    Plan, Policy, Reason, Report, RunReport, Step, StepContext, StepId, Verdict, execute, journal::Sink,
};
use proptest::prelude::*;

/// A world of switches. Performing a step switches on the one of its name.
#[derive(Default)]
struct World {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    on: BTreeSet<String>,
    performed: Vec<String>,
    running: BTreeSet<String>,
    most_at_once: usize,
    /// What goes wrong, by step: each attempt takes one.
    faults: BTreeMap<String, Vec<Fault>>,
    receipts_seen: Vec<String>,
    /// What is known without looking.
    recalled: BTreeMap<String, Verdict>,
    looks: Vec<String>,
}

#[derive(Clone, Copy)]
enum Fault {
    Busy,
    Broken,
    LostBefore,
    LostAfter,
    Hangs,
    /// Succeeds, but nothing comes of it.
    NoEffect,
}

type SwitchStep = Step<String, String>;

impl Effects<String, String> for World {
    async fn judge(&self, condition: &String) -> Verdict {
        self.state.lock().expect("lock").looks.push(condition.clone());
        if let Some(why) = condition.strip_prefix('?') {
            return Verdict::Unknown(why.to_owned());
        }
        if self.state.lock().expect("lock").on.contains(condition) {
            Verdict::Holds
        } else {
            Verdict::Fails(format!("`{condition}` is off"))
        }
    }

    fn recall(&self, condition: &String) -> Option<Verdict> {
        self.state.lock().expect("lock").recalled.get(condition).cloned()
    }

    async fn perform(&self, step: &SwitchStep, context: &StepContext<'_>) -> Result<(), EffectError> {
        let fault = {
            let mut state = self.state.lock().expect("lock");
            state.performed.push(step.action.clone());
            state.running.insert(step.action.clone());
            state.most_at_once = state.most_at_once.max(state.running.len());
            state.receipts_seen.extend(context.earlier_receipt().map(ToOwned::to_owned));
            state.faults.get_mut(&step.action).and_then(Vec::pop)
        };
        context.keep_receipt(&format!("task of {}", step.id)).await?;
        if matches!(fault, Some(Fault::Hangs)) {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut state = self.state.lock().expect("lock");
        state.running.remove(&step.action);
        let switch_on = |state: &mut State| {
            state.on.insert(step.action.clone());
        };
        match fault {
            None => switch_on(&mut state),
            Some(Fault::NoEffect | Fault::Hangs) => {}
            Some(Fault::Busy) => return Err(EffectError::Transient(Report::new("busy").congested())),
            Some(Fault::Broken) => return Err(EffectError::Permanent(Report::new("broken").hint("mend it"))),
            Some(Fault::LostBefore) => return Err(EffectError::Unsure(Report::new("no answer"))),
            Some(Fault::LostAfter) => {
                switch_on(&mut state);
                return Err(EffectError::Unsure(Report::new("no answer")));
            }
        }
        Ok(())
    }
}

/// A journal in memory.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<String>>);

impl Sink for Paper {
    fn append(&mut self, line: &str) -> io::Result<()> {
        let mut text = self.0.lock().expect("lock");
        text.push_str(line);
        text.push('\n');
        Ok(())
    }
}

impl Paper {
    fn past(&self) -> Past {
        Past::read(self.0.lock().expect("lock").as_bytes()).expect("journal")
    }
}

#[derive(Debug, Default)]
struct Listener(Mutex<Vec<Event>>);

impl EventSink for Listener {
    fn emit(&self, event: Event) {
        self.0.lock().expect("lock").push(event);
    }
}

fn step(name: &str, needs: &[&str]) -> SwitchStep {
    Step {
        id: StepId::new(name),
        action: name.to_owned(),
        because: Reason::Asked,
        impact: Impact::Adds,
        needs: needs.iter().map(|need| StepId::new(*need)).collect(),
        guards: Vec::new(),
        done: name.to_owned(),
        lanes: Vec::new(),
        expected: Duration::from_millis(100),
        deadline: Duration::from_mins(1),
    }
}

fn plan(steps: Vec<SwitchStep>) -> Plan<String, String> {
    Plan::new(steps).expect("plan")
}

fn policy() -> Policy {
    Policy { limits: Limits::new(100), attempts: 5, past: Past::default(), cancel: Cancel::default() }
}

async fn run(world: &World, plan: &Plan<String, String>, paper: &Paper, policy: &Policy) -> RunReport {
    let events: Arc<dyn EventSink> = Arc::new(());
    execute(plan, world, &Journal::new("run", Box::new(paper.clone())), &events, policy).await
}

fn with_faults(faults: &[(&str, Fault)]) -> World {
    let world = World::default();
    for (step, fault) in faults.iter().rev() {
        world.state.lock().expect("lock").faults.entry((*step).to_owned()).or_default().push(*fault);
    }
    world
}

fn outcome(report: &RunReport, step: &str) -> Outcome {
    report.outcomes[&StepId::new(step)].clone()
}

#[tokio::test(start_paused = true)]
async fn independent_steps_run_at_once_and_dependent_ones_after() {
    let world = World::default();
    let plan = plan(vec![step("c", &["a", "b"]), step("a", &[]), step("b", &[])]);
    let began = tokio::time::Instant::now();
    let report = run(&world, &plan, &Paper::default(), &policy()).await;
    assert!(report.is_complete());
    assert!(began.elapsed() < Duration::from_millis(2_100), "{:?}", began.elapsed());
    let state = world.state.lock().expect("lock");
    assert_eq!((state.performed.last().map(String::as_str), state.most_at_once), (Some("c"), 2));
}

#[tokio::test(start_paused = true)]
async fn what_was_seen_a_moment_ago_is_not_looked_at_again() {
    let world = World::default();
    let guarded = || SwitchStep { guards: vec!["ours".into()], ..step("a", &[]) };
    let recall = |condition: &str, verdict| {
        world.state.lock().expect("lock").recalled.insert(condition.to_owned(), verdict);
    };
    recall("a", Verdict::Fails("it was off a moment ago".into()));
    recall("ours", Verdict::Holds);
    let report = run(&world, &plan(vec![guarded()]), &Paper::default(), &policy()).await;
    assert_eq!(outcome(&report, "a"), Outcome::Done);
    assert_eq!(world.state.lock().expect("lock").looks, ["a"], "only at the end, by what is there");
    // By now it is on, although that is not what was last seen: a guard that fails is no reason to complain.
    recall("ours", Verdict::Fails("it was not ours a moment ago".into()));
    let report = run(&world, &plan(vec![guarded()]), &Paper::default(), &policy()).await;
    assert_eq!(outcome(&report, "a"), Outcome::Skipped);
    assert_eq!(world.state.lock().expect("lock").performed, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn a_second_run_does_nothing() {
    let world = World::default();
    let plan = plan(vec![step("a", &[]), step("b", &["a"])]);
    run(&world, &plan, &Paper::default(), &policy()).await;
    let report = run(&world, &plan, &Paper::default(), &policy()).await;
    assert!(report.outcomes.values().all(|outcome| *outcome == Outcome::Skipped));
    assert_eq!(world.state.lock().expect("lock").performed.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn lanes_limit_what_runs_at_once() {
    let world = World::default();
    let in_lane = |name: &str| SwitchStep { lanes: vec![Lane::new("host", "pve1")], ..step(name, &[]) };
    let plan = plan((0..9).map(|number| in_lane(&format!("s{number}"))).collect());
    let policy = Policy { limits: Limits::new(100).with("host", 3), ..policy() };
    assert!(run(&world, &plan, &Paper::default(), &policy).await.is_complete());
    assert_eq!(world.state.lock().expect("lock").most_at_once, 3);
}

#[tokio::test(start_paused = true)]
async fn what_failed_blocks_only_what_needs_it() {
    let world = with_faults(&[("a", Fault::Broken)]);
    let plan = plan(vec![step("a", &[]), step("b", &["a"]), step("c", &["b"]), step("d", &[])]);
    let report = run(&world, &plan, &Paper::default(), &policy()).await;
    assert_eq!(
        outcome(&report, "a"),
        Outcome::Failed { message: "broken".into(), hint: Some("mend it".into()) }
    );
    assert_eq!(outcome(&report, "b"), Outcome::Blocked { by: StepId::new("a") });
    assert_eq!(outcome(&report, "c"), Outcome::Blocked { by: StepId::new("b") });
    assert_eq!(outcome(&report, "d"), Outcome::Done);
}

#[tokio::test(start_paused = true)]
async fn what_is_transient_is_repeated_but_not_for_ever() {
    let world = with_faults(&[("a", Fault::Busy), ("a", Fault::Busy)]);
    assert!(run(&world, &plan(vec![step("a", &[])]), &Paper::default(), &policy()).await.is_complete());
    let world = with_faults(&[("a", Fault::Busy); 9]);
    let report = run(&world, &plan(vec![step("a", &[])]), &Paper::default(), &policy()).await;
    assert!(matches!(outcome(&report, "a"), Outcome::Failed { message, .. } if message == "busy"));
    assert_eq!(world.state.lock().expect("lock").performed.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_resolved_by_looking() {
    let world = with_faults(&[("a", Fault::LostAfter)]);
    let report = run(&world, &plan(vec![step("a", &[])]), &Paper::default(), &policy()).await;
    assert_eq!(outcome(&report, "a"), Outcome::Done);
    assert_eq!(world.state.lock().expect("lock").performed.len(), 1, "it happened and is not repeated");
    let world = with_faults(&[("a", Fault::LostBefore)]);
    let report = run(&world, &plan(vec![step("a", &[])]), &Paper::default(), &policy()).await;
    assert_eq!(outcome(&report, "a"), Outcome::Done);
    assert_eq!(world.state.lock().expect("lock").performed.len(), 2, "it had not happened");
}

#[tokio::test(start_paused = true)]
async fn what_nobody_can_tell_stays_unknown() {
    let world = with_faults(&[("a", Fault::LostBefore)]);
    let blind = SwitchStep { done: "?the host is down".into(), ..step("a", &[]) };
    let report = run(&world, &plan(vec![blind, step("b", &["a"])]), &Paper::default(), &policy()).await;
    assert!(
        matches!(outcome(&report, "a"), Outcome::Unknown { message } if message.contains("host is down"))
    );
    assert_eq!(outcome(&report, "b"), Outcome::Blocked { by: StepId::new("a") });
    assert_eq!(world.state.lock().expect("lock").performed.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn guards_refuse_and_nothing_is_written_down() {
    let world = World::default();
    let paper = Paper::default();
    let guarded = SwitchStep { guards: vec!["quorum".into()], ..step("a", &[]) };
    let unsure = SwitchStep { guards: vec!["?etcd does not answer".into()], ..step("b", &[]) };
    let report = run(&world, &plan(vec![guarded, unsure]), &paper, &policy()).await;
    assert_eq!(outcome(&report, "a"), Outcome::Refused { message: "`quorum` is off".into() });
    assert!(matches!(outcome(&report, "b"), Outcome::Refused { message } if message.contains("etcd")));
    assert!(world.state.lock().expect("lock").performed.is_empty());
    assert!(paper.0.lock().expect("lock").is_empty());
}

#[tokio::test(start_paused = true)]
async fn waiting_ends_at_the_deadline_with_the_reason_and_is_never_silent() {
    let world = with_faults(&[("a", Fault::NoEffect)]);
    let listener = Arc::new(Listener::default());
    let events: Arc<dyn EventSink> = listener.clone();
    let plan = plan(vec![step("a", &[])]);
    let report = execute(&plan, &world, &Journal::new("run", Box::new(())), &events, &policy()).await;
    assert!(matches!(outcome(&report, "a"), Outcome::Failed { message, .. } if message.contains("is off")));
    let heard = listener.0.lock().expect("lock");
    let waits: Vec<Duration> = heard
        .iter()
        .filter_map(|event| match event {
            Event::Waiting { waited, .. } => Some(*waited),
            _ => None,
        })
        .collect();
    assert!(waits.windows(2).all(|pair| pair[1] <= pair[0] + Duration::from_secs(7)), "{waits:?}");
    assert!(waits.len() >= 8, "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_never_comes_is_given_up() {
    let world = with_faults(&[("a", Fault::Hangs)]);
    let report = run(&world, &plan(vec![step("a", &[])]), &Paper::default(), &policy()).await;
    assert!(!outcome(&report, "a").is_good());
}

#[tokio::test(start_paused = true)]
async fn stopping_once_finishes_what_is_in_flight() {
    let world = World::default();
    let policy = policy();
    let plan = plan(vec![step("a", &[]), step("b", &["a"])]);
    let paper = Paper::default();
    let stop = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        policy.cancel.ask();
    };
    let (report, ()) = tokio::join!(run(&world, &plan, &paper, &policy), stop);
    assert_eq!((outcome(&report, "a"), outcome(&report, "b")), (Outcome::Done, Outcome::NotBegun));
    assert!(report.stopped);
}

#[tokio::test(start_paused = true)]
async fn stopping_once_does_not_wait_for_what_may_take_long() {
    // Neither comes true: one is only waited for, the other was done and does not show.
    let world = with_faults(&[("waits", Fault::NoEffect), ("adds", Fault::NoEffect)]);
    let policy = policy();
    let long = |name: &str| Step { deadline: Duration::from_mins(10), ..step(name, &[]) };
    let plan = plan(vec![Step { impact: Impact::Waits, ..long("waits") }, long("adds")]);
    let began = tokio::time::Instant::now();
    let stop = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        policy.cancel.ask();
    };
    let paper = Paper::default();
    let (report, ()) = tokio::join!(run(&world, &plan, &paper, &policy), stop);
    assert_eq!(outcome(&report, "waits"), Outcome::NotBegun);
    assert!(matches!(outcome(&report, "adds"), Outcome::Unknown { .. }), "{report:?}");
    assert!(began.elapsed() < Duration::from_secs(45), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn stopping_twice_stops_now_and_the_next_run_has_the_receipt() {
    let world = with_faults(&[("a", Fault::Hangs)]);
    let paper = Paper::default();
    let policy = policy();
    let plan = plan(vec![step("a", &[])]);
    let stop = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        policy.cancel.ask();
        policy.cancel.ask();
    };
    let (report, ()) = tokio::join!(run(&world, &plan, &paper, &policy), stop);
    assert!(matches!(outcome(&report, "a"), Outcome::Unknown { .. }));
    let again = Policy { past: paper.past(), ..self::policy() };
    assert!(run(&world, &plan, &paper, &again).await.is_complete());
    assert_eq!(world.state.lock().expect("lock").receipts_seen, ["task of a"]);
}

#[tokio::test(start_paused = true)]
async fn without_a_journal_nothing_is_done() {
    struct Full;
    impl Sink for Full {
        fn append(&mut self, _line: &str) -> io::Result<()> {
            Err(io::Error::other("no space left on device"))
        }
    }
    let world = World::default();
    let events: Arc<dyn EventSink> = Arc::new(());
    let plan = plan(vec![step("a", &[])]);
    let report = execute(&plan, &world, &Journal::new("run", Box::new(Full)), &events, &policy()).await;
    assert!(matches!(outcome(&report, "a"), Outcome::Failed { message, .. } if message.contains("no space")));
    assert!(world.state.lock().expect("lock").performed.is_empty());
}

#[test]
fn what_is_no_plan_is_said() {
    let circle = Plan::new(vec![step("a", &["b"]), step("b", &["a"]), step("c", &[])]);
    assert_eq!(circle, Err(BadPlan::Circle(vec![StepId::new("a"), StepId::new("b")])));
    assert!(matches!(Plan::new(vec![step("a", &["x"])]), Err(BadPlan::Missing { .. })));
    assert!(matches!(Plan::new(vec![step("a", &[]), step("a", &[])]), Err(BadPlan::Twice(_))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the graph and the faults: every step has an outcome, no step runs before what it needs, and
    /// runs repeated after crashes at any record converge.
    #[test]
    fn any_plan_converges(
        needs in proptest::collection::vec(proptest::collection::vec(any::<prop::sample::Index>(), 0..3), 1..12),
        faults in proptest::collection::vec((any::<prop::sample::Index>(), 0..4_u8), 0..8),
    ) {
        let name = |number: usize| format!("s{number}");
        let steps: Vec<SwitchStep> = needs
            .iter()
            .enumerate()
            .map(|(number, needs)| {
                let earlier = needs.iter().filter(|_| number > 0).map(|need| name(need.index(number)));
                let earlier: BTreeSet<String> = earlier.collect();
                step(&name(number), &earlier.iter().map(String::as_str).collect::<Vec<_>>())
            })
            .collect();
        let faults: Vec<(String, Fault)> = faults
            .iter()
            .map(|(at, kind)| {
                let kind = [Fault::Busy, Fault::Broken, Fault::LostBefore, Fault::LostAfter][usize::from(*kind)];
                (name(at.index(needs.len())), kind)
            })
            .collect();
        let world = with_faults(&faults.iter().map(|(step, fault)| (step.as_str(), *fault)).collect::<Vec<_>>());
        let plan = plan(steps);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
        let paper = Paper::default();
        let mut complete = false;
        for _ in 0..=faults.len() {
            let policy = Policy { past: paper.past(), ..policy() };
            let report = runtime.block_on(run(&world, &plan, &paper, &policy));
            prop_assert_eq!(report.outcomes.len(), plan.steps().len());
            complete = report.is_complete();
        }
        prop_assert!(complete);
        let performed = world.state.lock().expect("lock").performed.clone();
        for step in plan.steps() {
            let first = |name: &str| performed.iter().position(|done| done == name);
            for need in &step.needs {
                prop_assert!(first(need.as_str()) < first(step.id.as_str()));
            }
        }
    }
}
