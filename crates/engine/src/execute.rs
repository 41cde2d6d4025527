//! Running a plan.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::stream::{FuturesUnordered, StreamExt};
use ichor_model::step::{Impact, Plan, Step, StepId, Verdict};
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    cancel::{Cancel, Haste},
    effects::{EffectError, Effects, Report, StepContext},
    event::{Event, EventSink},
    journal::{Journal, Past},
    lanes::{Lanes, Limits},
    report::{Outcome, RunReport},
};

/// Between two looks at the world, at first and at most.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));
/// What takes long is looked at less often: what is there is seen late by no more than such a share of the time that it
/// took.
const LOOKS_WITHIN: u32 = 20;
/// Between two attempts, at first and at most.
const TRY_AGAIN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));
/// How long a world that shows nothing is asked again, where an answer is needed to go on.
const BLIND_FOR: Duration = Duration::from_mins(5);
/// After its deadline a step still has this long to see how things stand.
const LAST_LOOK: Duration = Duration::from_secs(10);
/// A run that is to end still looks this long for what has come of its effects.
const SETTLE: Duration = Duration::from_secs(10);
/// Nothing is silent for longer.
const SAY_SOMETHING: Duration = Duration::from_secs(5);

/// How a plan is run.
#[derive(Debug)]
pub struct Policy {
    /// How many steps may occupy a lane.
    pub limits: Limits,
    /// How often a step is tried.
    pub attempts: u32,
    /// What earlier runs left behind.
    pub past: Past,
    /// The way to stop the run.
    pub cancel: Cancel,
}

/// Runs a plan to its end, or as far as it goes. Every step has an outcome afterwards.
pub async fn execute<A, C, E>(
    plan: &Plan<A, C>,
    effects: &E,
    journal: &Journal,
    events: &Arc<dyn EventSink>,
    policy: &Policy,
) -> RunReport
where
    A: Sync,
    C: Sync,
    E: Effects<A, C>,
{
    events.emit(Event::Began { steps: plan.steps().len() });
    let lanes = Mutex::new(Lanes::new(policy.limits.clone()));
    let run = Run { effects, journal, events, policy, lanes: &lanes };
    let mut board = Board::new(plan);
    let mut running = FuturesUnordered::new();
    loop {
        if policy.cancel.haste() == Haste::None {
            for step in board.startable(&lanes) {
                running.push(async move { (step, run.step(step).await) });
            }
        }
        if running.is_empty() {
            break;
        }
        tokio::select! {
            biased;
            Some((step, outcome)) = running.next() => {
                lock(&lanes).leave(&step.lanes, outcome.is_good());
                board.end(&step.id, outcome);
            }
            () = policy.cancel.asked(Haste::Now) => break,
        }
    }
    drop(running);
    // What is lost here costs the next run a look.
    let _ = journal.flush().await;
    let stopped = policy.cancel.haste() != Haste::None;
    if stopped {
        events.emit(Event::Stopping);
    }
    RunReport { outcomes: board.close(), stopped }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which steps wait, run and have ended.
struct Board<'p, A, C> {
    waiting: Vec<&'p Step<A, C>>,
    running: BTreeSet<StepId>,
    outcomes: BTreeMap<StepId, Outcome>,
}

impl<'p, A, C> Board<'p, A, C> {
    fn new(plan: &'p Plan<A, C>) -> Self {
        Self { waiting: plan.steps().iter().collect(), running: BTreeSet::new(), outcomes: BTreeMap::new() }
    }

    /// Takes the steps that can begin now, in the plan's order, and occupies their lanes.
    fn startable(&mut self, lanes: &Mutex<Lanes>) -> Vec<&'p Step<A, C>> {
        let (mut start, mut wait) = (Vec::new(), Vec::new());
        for step in std::mem::take(&mut self.waiting) {
            match self.needs(step) {
                Some(Ok(())) if lock(lanes).enter(&step.lanes) => {
                    self.running.insert(step.id.clone());
                    start.push(step);
                }
                // Steps are in order: those that need this one are seen later in the same round.
                Some(Err(by)) => drop(self.outcomes.insert(step.id.clone(), Outcome::Blocked { by })),
                _ => wait.push(step),
            }
        }
        self.waiting = wait;
        start
    }

    /// Whether all needs are met, one cannot be met any more, or neither yet.
    fn needs(&self, step: &Step<A, C>) -> Option<Result<(), StepId>> {
        let mut all_met = true;
        for need in &step.needs {
            match self.outcomes.get(need) {
                Some(outcome) if outcome.is_good() => {}
                Some(_) => return Some(Err(need.clone())),
                None => all_met = false,
            }
        }
        all_met.then_some(Ok(()))
    }

    fn end(&mut self, step: &StepId, outcome: Outcome) {
        self.running.remove(step);
        self.outcomes.insert(step.clone(), outcome);
    }

    /// Gives an outcome to what has none: a run that stopped at once leaves steps in flight.
    fn close(mut self) -> BTreeMap<StepId, Outcome> {
        for step in self.running {
            let message = "the run was stopped while this was in flight".to_owned();
            self.outcomes.insert(step, Outcome::Unknown { message });
        }
        for step in self.waiting {
            self.outcomes.insert(step.id.clone(), Outcome::NotBegun);
        }
        self.outcomes
    }
}

/// Goes on with something until a while after the run is asked to end.
async fn unless_stopped<T>(
    cancel: &Cancel,
    grace: Duration,
    something: impl Future<Output = T>,
) -> Option<T> {
    let stopped = async {
        cancel.asked(Haste::Soon).await;
        sleep(grace).await;
    };
    tokio::select! {
        biased;
        ended = something => Some(ended),
        () = stopped => None,
    }
}

/// What all steps of a run share.
struct Run<'r, E> {
    effects: &'r E,
    journal: &'r Journal,
    events: &'r Arc<dyn EventSink>,
    policy: &'r Policy,
    lanes: &'r Mutex<Lanes>,
}

impl<E> Clone for Run<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for Run<'_, E> {}

impl<E> Run<'_, E> {
    /// Runs a step, and tells its end.
    async fn step<A: Sync, C: Sync>(self, step: &Step<A, C>) -> Outcome
    where
        E: Effects<A, C>,
    {
        let began = Instant::now();
        let mut course = Course { run: self, step, began, deadline: began + step.deadline, said: began };
        let ended = if step.impact == Impact::Waits {
            // Nothing is in flight meanwhile, and the next run waits again.
            let ended = unless_stopped(&self.policy.cancel, Duration::ZERO, course.run()).await;
            ended.unwrap_or(Ok(Outcome::NotBegun))
        } else {
            course.run().await
        };
        let outcome = ended.unwrap_or_else(|error| Outcome::Failed {
            message: format!("the journal cannot be written: {error}"),
            hint: Some("make room or mend the store, then run the same command again".into()),
        });
        let (step, took) = (step.id.clone(), began.elapsed());
        self.events.emit(Event::Ended { step, outcome: outcome.clone(), took });
        outcome
    }
}

/// The course of one step.
struct Course<'r, A, C, E> {
    run: Run<'r, E>,
    step: &'r Step<A, C>,
    began: Instant,
    deadline: Instant,
    /// When something was last said.
    said: Instant,
}

/// What came of looking for a condition until the deadline.
enum Found {
    Holds,
    Fails(String),
    Unknown(String),
}

impl<A: Sync, C: Sync, E: Effects<A, C>> Course<'_, A, C, E> {
    /// 1. what is done is skipped; 2. guards; 3. intent, effect, outcome; 4. waiting until it is done.
    async fn run(&mut self) -> io::Result<Outcome> {
        let recalled = self.run.effects.recall(&self.step.done);
        let by_memory = recalled.is_some();
        let done = match recalled {
            Some(done) => done,
            None => self.judge(&self.step.done).await,
        };
        if done == Verdict::Holds {
            return Ok(Outcome::Skipped);
        }
        let cancel = &self.run.policy.cancel;
        let refused = unless_stopped(cancel, SETTLE, self.guards()).await.unwrap_or(Some(Outcome::NotBegun));
        if let Some(outcome) = refused {
            // Somebody may have done it since it was last seen.
            let done = by_memory && self.judge(&self.step.done).await == Verdict::Holds;
            return Ok(if done { Outcome::Skipped } else { outcome });
        }
        let outcome = self.attempts().await?;
        self.run.journal.ended(&self.step.id, &outcome)?;
        Ok(outcome)
    }

    async fn judge(&self, condition: &C) -> Verdict {
        let until = self.deadline.max(Instant::now() + LAST_LOOK);
        match timeout_at(until, self.run.effects.judge(condition)).await {
            Ok(verdict) => verdict,
            Err(_) => Verdict::Unknown("the world did not answer in time".into()),
        }
    }

    /// What cannot be judged now may be judged a moment later; what fails is refused at once.
    async fn guards(&mut self) -> Option<Outcome> {
        for guard in &self.step.guards {
            if self.run.effects.recall(guard) == Some(Verdict::Holds) {
                continue;
            }
            let message = match self.look_for(guard, false).await {
                Found::Holds => continue,
                Found::Fails(why) => why,
                Found::Unknown(why) => format!("it could not be checked: {why}"),
            };
            return Some(Outcome::Refused { message });
        }
        None
    }

    async fn attempts(&mut self) -> io::Result<Outcome> {
        let mut pause = TRY_AGAIN.0;
        let mut last: Option<Report> = None;
        for attempt in 1.. {
            match self.step.impact {
                Impact::Waits => self.run.journal.waits(&self.step.id, attempt)?,
                _ => self.run.journal.started(&self.step.id, attempt).await?,
            }
            self.run.events.emit(Event::Started { step: self.step.id.clone(), attempt });
            let report = match self.perform(attempt, last.as_ref()).await {
                Ok(()) => return Ok(self.wait_until_done().await),
                Err(EffectError::Permanent(report)) => return Ok(failed(report)),
                Err(EffectError::Unsure(report)) => match self.look_for_done(false).await {
                    Found::Holds => return Ok(Outcome::Done),
                    Found::Fails(why) => came_to_nothing(report, &why),
                    Found::Unknown(why) => {
                        return Ok(Outcome::Unknown { message: in_doubt(&report.message, &why) });
                    }
                },
                Err(EffectError::Transient(report)) => report,
            };
            if report.congested {
                lock(self.run.lanes).narrow(&self.step.lanes);
            }
            let no_more = attempt >= self.run.policy.attempts || Instant::now() + pause >= self.deadline;
            if no_more || self.run.policy.cancel.haste() != Haste::None {
                return Ok(failed(report));
            }
            let (step, why) = (self.step.id.clone(), report.message.clone());
            self.run.events.emit(Event::Retrying { step, after: pause, why });
            last = Some(report);
            sleep(pause).await;
            pause = (pause * 2).min(TRY_AGAIN.1);
        }
        Ok(Outcome::NotBegun)
    }

    async fn perform(&self, attempt: u32, last: Option<&Report>) -> Result<(), EffectError> {
        // Only the first attempt continues what an earlier run began: later ones know that it came to nothing.
        let earlier = (attempt == 1).then(|| self.run.policy.past.receipt(&self.step.id)).flatten();
        let context = StepContext {
            step: &self.step.id,
            journal: self.run.journal,
            events: self.run.events,
            cancel: &self.run.policy.cancel,
            earlier: earlier.map(ToOwned::to_owned),
        };
        let performed = self.run.effects.perform(self.step, &context);
        timeout_at(self.deadline, performed).await.unwrap_or_else(|_| {
            let mut report = Report::new(format!("no answer within {}", minutes(self.step.deadline)));
            // What went wrong before is the best that can be said about why.
            if let Some(last) = last {
                report.message = format!("{}; before that: {}", report.message, last.message);
                report.hint.clone_from(&last.hint);
            }
            Err(EffectError::Unsure(report))
        })
    }

    async fn wait_until_done(&mut self) -> Outcome {
        if self.run.effects.recall(&self.step.done) == Some(Verdict::Holds) {
            return Outcome::Done;
        }
        match self.look_for_done(true).await {
            Found::Holds => Outcome::Done,
            Found::Fails(why) => {
                failed(Report::new(format!("not done within {}: {why}", minutes(self.step.deadline))))
            }
            Found::Unknown(message) => Outcome::Unknown { message },
        }
    }

    /// Looks for what has come of the effect. A run that is to end leaves that to the next one before long.
    async fn look_for_done(&mut self, patient: bool) -> Found {
        let (cancel, done) = (&self.run.policy.cancel, &self.step.done);
        let found = unless_stopped(cancel, SETTLE, self.look_for(done, patient)).await;
        found.unwrap_or_else(|| Found::Unknown("the run was stopped before that was seen".into()))
    }

    /// Looks again and again: until a condition is known or, with patience, until it holds.
    async fn look_for(&mut self, condition: &C, patient: bool) -> Found {
        let since = Instant::now();
        let until = if patient { self.deadline } else { self.deadline.min(since + BLIND_FOR) };
        loop {
            let found = match self.judge(condition).await {
                Verdict::Holds => return Found::Holds,
                Verdict::Fails(why) if !patient => return Found::Fails(why),
                Verdict::Fails(why) => Found::Fails(why),
                Verdict::Unknown(why) => Found::Unknown(why),
            };
            let pause = (since.elapsed() / LOOKS_WITHIN).clamp(LOOK_AGAIN.0, LOOK_AGAIN.1);
            if Instant::now() + pause >= until {
                return found;
            }
            if let Found::Fails(why) | Found::Unknown(why) = &found {
                self.say(why);
            }
            sleep(pause).await;
        }
    }

    fn say(&mut self, why: &str) {
        let now = Instant::now();
        if now.duration_since(self.said) < SAY_SOMETHING && self.said != self.began {
            return;
        }
        self.said = now;
        let (step, waited) = (self.step.id.clone(), now.duration_since(self.began));
        self.run.events.emit(Event::Waiting { step, waited, why: why.to_owned() });
    }
}

/// Says that nobody knows, and why: once, where the effect and the look failed for the same reason.
fn in_doubt(effect: &str, look: &str) -> String {
    if effect.ends_with(look) {
        format!("{effect}; whether it happened is not known")
    } else {
        format!("{effect}; whether it happened is not known: {look}")
    }
}

/// Says that looking has shown that nothing came of an effect.
fn came_to_nothing(mut report: Report, look: &str) -> Report {
    if !report.message.contains(look) {
        report.message = format!("{}; nothing came of it: {look}", report.message);
    }
    report
}

fn minutes(time: Duration) -> String {
    match (time.as_secs() / 60, time.as_secs() % 60) {
        (0, _) => format!("{time:?}"),
        (minutes, 0) => format!("{minutes}m"),
        (minutes, seconds) => format!("{minutes}m {seconds}s"),
    }
}

fn failed(report: Report) -> Outcome {
    Outcome::Failed { message: report.message, hint: report.hint }
}
