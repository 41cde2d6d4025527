//! What is known about a run.

use std::{collections::BTreeMap, time::Duration};

use ichor_engine::{Event, Outcome};
use ichor_model::step::StepId;
use ichor_plan::{Action, ClusterPlan, ClusterStep, Condition};

use crate::render::{estimate::Schedule, text};

/// The course of a run: what each step does, line by line.
#[derive(Debug)]
pub struct Course {
    steps: Vec<Stage>,
    lines: Vec<Line>,
    places: BTreeMap<StepId, usize>,
    schedule: Schedule,
    /// What the world is looked at for, and since when.
    looking: Option<(String, Duration)>,
    /// Whether the user asked to stop.
    pub stopping: bool,
}

/// A step and how far it is.
#[derive(Debug)]
struct Stage {
    line: usize,
    action: Action,
    needs: Vec<usize>,
    state: State,
    /// What it said last.
    note: String,
    /// How far it is, if it says so.
    fraction: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Ahead,
    Running { since: Duration },
    Good { since: Duration, until: Duration, worked: bool },
    Bad { since: Duration, until: Duration, word: &'static str },
}

/// What one line is about, and its steps.
#[derive(Debug)]
struct Line {
    title: String,
    kind: Kind,
    finished: &'static str,
    steps: Vec<usize>,
}

/// What a line is about. Lines come in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Images, templates, the cluster as a whole.
    Shared,
    /// A machine.
    Machine,
}

/// How a line stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// What it is about.
    pub title: String,
    /// Of which kind that is.
    pub kind: Kind,
    /// How it is.
    pub mood: Mood,
    /// What happens, in few words.
    pub phase: String,
    /// What is said about it.
    pub note: String,
    /// How long it has been going on; nothing: it has not begun.
    pub elapsed: Option<Duration>,
    /// How much is done, between 0 and 1.
    pub fraction: f64,
}

/// How a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// Something failed.
    Failed,
    /// Something is being done.
    Working,
    /// It waits for others.
    Waiting,
    /// All is done.
    Finished,
}

/// How many steps there are, and how they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    /// All of them.
    pub all: usize,
    /// Those that are done.
    pub done: usize,
    /// Those that failed.
    pub failed: usize,
    /// Those that run.
    pub running: usize,
}

impl Course {
    /// Begins with a plan of which nothing is done.
    pub fn new(plan: &ClusterPlan) -> Self {
        let steps = plan.steps();
        let places: BTreeMap<StepId, usize> =
            steps.iter().enumerate().map(|(place, step)| (step.id.clone(), place)).collect();
        let mut course = Self {
            steps: Vec::with_capacity(steps.len()),
            lines: Vec::new(),
            schedule: Schedule::new(steps),
            places,
            looking: None,
            stopping: false,
        };
        let mut titles = BTreeMap::new();
        for step in steps {
            course.add(step, &mut titles);
        }
        course
    }

    fn add(&mut self, step: &ClusterStep, titles: &mut BTreeMap<(Kind, String), usize>) {
        let (kind, title) = title(&step.action);
        let line = *titles.entry((kind, title.clone())).or_insert_with(|| {
            self.lines.push(Line { title, kind, finished: "done", steps: Vec::new() });
            self.lines.len() - 1
        });
        self.lines[line].steps.push(self.steps.len());
        if let Some(word) = finished(step) {
            self.lines[line].finished = word;
        }
        self.steps.push(Stage {
            line,
            action: step.action.clone(),
            needs: step.needs.iter().filter_map(|need| self.places.get(need).copied()).collect(),
            state: State::Ahead,
            note: String::new(),
            fraction: None,
        });
    }

    /// Takes what happened. Steps that are not in the plan are passed over.
    pub fn take(&mut self, event: &Event, now: Duration) {
        self.looking = match event {
            Event::Looking { why } => Some((text::safe_line(why), now)),
            Event::Stopping => self.looking.take(),
            _ => None,
        };
        match event {
            Event::Began { .. } | Event::Looking { .. } => {}
            Event::Started { step, attempt } => self.change(step, |stage| {
                stage.begin(now);
                stage.fraction = None;
                stage.note = if *attempt > 1 { format!("attempt {attempt}") } else { String::new() };
            }),
            Event::Progress { step, fraction, what } => self.change(step, |stage| {
                stage.begin(now);
                stage.fraction = Some(fraction.clamp(0.0, 1.0));
                stage.note = text::safe_line(what);
            }),
            Event::Waiting { step, waited, why } => self.change(step, |stage| {
                stage.begin(now.saturating_sub(*waited));
                stage.note = text::safe_line(why);
            }),
            Event::Retrying { step, why, .. } => self.change(step, |stage| {
                stage.begin(now);
                stage.note = format!("again: {}", text::safe_line(why));
            }),
            Event::Ended { step, outcome, took } => {
                self.change(step, |stage| stage.end(outcome, now.saturating_sub(*took), now));
            }
            Event::Stopping => self.stopping = true,
        }
    }

    /// Returns what the world is looked at for at the moment, and for how long already.
    pub fn looking(&self, now: Duration) -> Option<(&str, Duration)> {
        self.looking.as_ref().map(|(why, since)| (why.as_str(), now.saturating_sub(*since)))
    }

    fn change(&mut self, step: &StepId, change: impl FnOnce(&mut Stage)) {
        if let Some(place) = self.places.get(step) {
            change(&mut self.steps[*place]);
        }
    }

    /// Returns what a step is about and what it does, for people.
    pub fn name(&self, step: &StepId) -> (String, String) {
        match self.places.get(step) {
            Some(place) => {
                let stage = &self.steps[*place];
                (self.lines[stage.line].title.clone(), text::safe_line(&stage.action.to_string()))
            }
            None => (text::safe_line(step.as_str()), String::new()),
        }
    }

    /// Returns the machine that a step is about.
    pub fn machine(&self, step: &StepId) -> Option<&str> {
        self.steps.get(*self.places.get(step)?)?.action.machine()
    }

    /// Returns the step that has run longest, as people name it, with how long that is.
    pub fn longest_running(&self, now: Duration) -> Option<(String, String, Duration)> {
        let since = |stage: &Stage| match stage.state {
            State::Running { since } => Some(since),
            _ => None,
        };
        let (since, stage) = self
            .steps
            .iter()
            .filter_map(|stage| Some((since(stage)?, stage)))
            .min_by_key(|(since, _)| *since)?;
        let title = self.lines[stage.line].title.clone();
        Some((title, text::safe_line(&stage.action.to_string()), now.saturating_sub(since)))
    }

    /// Counts steps.
    pub fn count(&self) -> Count {
        let mut count = Count { all: self.steps.len(), ..Count::default() };
        for stage in &self.steps {
            match stage.state {
                State::Ahead => {}
                State::Running { .. } => count.running += 1,
                State::Good { .. } => count.done += 1,
                State::Bad { .. } => count.failed += 1,
            }
        }
        count
    }

    /// Returns how long each line that has begun has taken.
    pub fn lasted(&self, now: Duration) -> Vec<(String, Duration)> {
        self.standings(now).into_iter().filter_map(|one| Some((one.title, one.elapsed?))).collect()
    }

    /// Returns how each line stands: shared ones first, then machines, in the plan's order.
    pub fn standings(&self, now: Duration) -> Vec<Standing> {
        let mut lines: Vec<&Line> = self.lines.iter().collect();
        lines.sort_by_key(|line| line.kind);
        lines.into_iter().map(|line| self.standing(line, now)).collect()
    }

    fn standing(&self, line: &Line, now: Duration) -> Standing {
        let stages = || line.steps.iter().map(|step| &self.steps[*step]);
        let begun = stages().filter_map(|stage| stage.state.since()).min();
        let mut end = now;
        let (mood, phase, note) = if let Some((stage, word)) = stages().find_map(Stage::bad) {
            end = stages().filter_map(|stage| stage.state.until()).max().unwrap_or(now);
            (Mood::Failed, format!("{word} {}", doing(&stage.action)), stage.note.clone())
        } else if let Some(stage) =
            stages().filter(|stage| stage.is_running()).min_by_key(|stage| stage.state.since())
        {
            (Mood::Working, doing(&stage.action).to_owned(), stage.note.clone())
        } else if let Some(next) = line.steps.iter().find(|step| self.steps[**step].state == State::Ahead) {
            (Mood::Waiting, self.awaited(*next), String::new())
        } else {
            end = stages().filter_map(|stage| stage.state.until()).max().unwrap_or(now);
            (Mood::Finished, line.finished.to_owned(), String::new())
        };
        let elapsed = begun.map(|begun| end.saturating_sub(begun));
        let fraction = self.fraction(&line.steps, now);
        Standing { title: line.title.clone(), kind: line.kind, mood, phase, note, elapsed, fraction }
    }

    /// Says what a step that has not begun waits for.
    fn awaited(&self, step: usize) -> String {
        let stage = &self.steps[step];
        let open = stage.needs.iter().map(|need| &self.steps[*need]).find(|need| !need.is_good());
        match open {
            Some(need) if need.line != stage.line => format!("waits for {}", self.lines[need.line].title),
            _ => "waits for its turn".to_owned(),
        }
    }

    fn fraction(&self, steps: &[usize], now: Duration) -> f64 {
        let weight = |step: &usize| self.schedule.usual(*step).as_secs_f64();
        let all: f64 = steps.iter().map(weight).sum();
        let done: f64 =
            steps.iter().map(|step| weight(step) * self.steps[*step].fraction(weight(step), now)).sum();
        if all > 0.0 { done / all } else { 1.0 }
    }

    /// Returns how long the rest may take, judged by the steps that ended. What cannot begin any more does not
    /// count.
    pub fn left(&self, now: Duration) -> Duration {
        let pace = self.pace();
        let mut lost = vec![false; self.steps.len()];
        for (place, stage) in self.steps.iter().enumerate() {
            lost[place] = stage.bad().is_some() || stage.needs.iter().any(|need| lost[*need]);
        }
        self.schedule.time(|step| {
            let usual = self.schedule.usual(step).mul_f64(pace);
            match self.steps[step].state {
                State::Ahead if lost[step] || self.stopping => Duration::ZERO,
                State::Ahead => usual,
                State::Good { .. } | State::Bad { .. } => Duration::ZERO,
                // One that takes longer than usual is not done all the same.
                State::Running { since } => {
                    let elapsed = now.saturating_sub(since);
                    match self.steps[step].fraction {
                        Some(done) if done > 0.05 => elapsed.mul_f64((1.0 - done) / done),
                        _ => usual.saturating_sub(elapsed).max(usual / 10),
                    }
                }
            }
        })
    }

    /// Returns how much longer steps take here than usual.
    fn pace(&self) -> f64 {
        /// A lab is that much faster than the slowest server, and no more can be told from a few steps.
        const BOUNDS: (f64, f64) = (0.01, 10.0);
        let (mut took, mut usual) = (0.0, 0.0);
        for (place, stage) in self.steps.iter().enumerate() {
            if let State::Good { since, until, worked: true } = stage.state {
                took += until.saturating_sub(since).as_secs_f64();
                usual += self.schedule.usual(place).as_secs_f64();
            }
        }
        if usual > 0.0 { (took / usual).clamp(BOUNDS.0, BOUNDS.1) } else { 1.0 }
    }
}

impl State {
    const fn since(self) -> Option<Duration> {
        match self {
            Self::Ahead => None,
            Self::Running { since } | Self::Good { since, .. } | Self::Bad { since, .. } => Some(since),
        }
    }

    const fn until(self) -> Option<Duration> {
        match self {
            Self::Ahead | Self::Running { .. } => None,
            Self::Good { until, .. } | Self::Bad { until, .. } => Some(until),
        }
    }
}

impl Stage {
    fn begin(&mut self, at: Duration) {
        if self.state == State::Ahead {
            self.state = State::Running { since: at };
        }
    }

    fn end(&mut self, outcome: &Outcome, since: Duration, until: Duration) {
        let bad = |word| State::Bad { since, until, word };
        (self.state, self.note) = match outcome {
            Outcome::Done => (State::Good { since, until, worked: true }, String::new()),
            Outcome::Skipped => (State::Good { since, until, worked: false }, String::new()),
            Outcome::Failed { message, .. } => (bad("failed"), text::safe_line(message)),
            Outcome::Refused { message } => (bad("refused"), text::safe_line(message)),
            Outcome::Unknown { message } => (bad("unknown"), text::safe_line(message)),
            Outcome::Blocked { by } => (bad("blocked"), text::safe_line(by.as_str())),
            Outcome::NotBegun => (bad("not begun"), String::new()),
        };
    }

    const fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    const fn is_good(&self) -> bool {
        matches!(self.state, State::Good { .. })
    }

    const fn bad(&self) -> Option<(&Self, &'static str)> {
        match self.state {
            State::Bad { word, .. } => Some((self, word)),
            _ => None,
        }
    }

    /// Returns how much of it is done; one that runs is never quite done.
    fn fraction(&self, usual: f64, now: Duration) -> f64 {
        match self.state {
            State::Ahead | State::Bad { .. } => 0.0,
            State::Good { .. } => 1.0,
            State::Running { since } => self
                .fraction
                .unwrap_or_else(|| (now.saturating_sub(since).as_secs_f64() / usual.max(0.1)).min(0.9)),
        }
    }
}

/// Says on which line a step is shown.
fn title(action: &Action) -> (Kind, String) {
    let shared = |title: &str| (Kind::Shared, title.to_owned());
    match action {
        Action::FetchImage { .. } => shared("images"),
        Action::BuildTemplate { .. } | Action::RemoveTemplate { .. } => shared("templates"),
        Action::DeleteVolume { .. } => shared("files"),
        Action::StopVm { machine, vmid } | Action::DeleteVm { machine, vmid } if machine.is_empty() => {
            (Kind::Machine, format!("VM {vmid}"))
        }
        action => match action.machine() {
            Some(machine) => (Kind::Machine, text::safe_line(machine)),
            None => shared("cluster"),
        },
    }
}

/// Says what a line has come to when this step, its last, is done.
const fn finished(step: &ClusterStep) -> Option<&'static str> {
    match (&step.action, &step.done) {
        (Action::AwaitNode { .. }, Condition::NodeThere { ready: false, .. }) => Some("registered"),
        (Action::AwaitNode { .. }, _) => Some("ready"),
        (Action::DeleteVm { .. }, _) => Some("gone"),
        _ => None,
    }
}

/// Says what happens while a step runs.
const fn doing(action: &Action) -> &'static str {
    match action {
        Action::MakePool { .. } => "making the pool",
        Action::FetchImage { .. } => "downloading",
        Action::BuildTemplate { .. } => "building",
        Action::RemoveTemplate { .. } => "removing",
        Action::UploadSeed { .. } => "uploading",
        Action::CreateVm { .. } => "creating",
        Action::StartVm { .. } => "starting",
        Action::AwaitTalos { .. } => "waiting for Talos",
        Action::ApplyConfig { .. } | Action::AwaitConfig { .. } => "configuring",
        Action::DetachMedium { .. } => "detaching the medium",
        Action::RemoveMember { .. } => "leaving etcd",
        Action::BootstrapEtcd { .. } => "bootstrapping etcd",
        Action::AwaitMember { .. } => "joining etcd",
        Action::AwaitKubernetes => "waiting for Kubernetes",
        Action::AwaitNode { .. } => "waiting for the node",
        Action::StopVm { .. } => "stopping",
        Action::DeleteVm { .. } | Action::DeleteVolume { .. } => "deleting",
    }
}
