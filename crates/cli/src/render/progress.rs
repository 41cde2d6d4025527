//! A run as it goes: three readers of one stream of events.
//!
//! - [`Course`] keeps what is known about the run: which line is in which phase, since when, and how long the rest
//!   may take;
//! - [`Bars`] draws it on a terminal, one line for each machine;
//! - [`Lines`] writes plain lines where there is no terminal;
//! - [`JsonLines`] writes one JSON object for each event, for programs.
//!
//! [`Progress`] chooses one of them and lets it speak when no event comes: nothing is silent for long.

mod bars;
mod course;
mod json_lines;
mod lines;
mod log;
mod pulse;
mod wait;

use std::{fmt, sync::Arc, time::Duration};

use ichor_engine::EventSink;
use ichor_plan::ClusterPlan;
use serde_json::Value;

use self::pulse::Pulse;
pub use self::{
    bars::Bars,
    course::Course,
    json_lines::{JsonLines, aside, outcome_keys},
    lines::Lines,
    wait::Wait,
};
use crate::terminal::Terminal;

/// Without a word for this long, people wonder whether anything happens.
const LONGEST_SILENCE: Duration = Duration::from_secs(5);

/// How a run is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// For people: bars on a terminal, else lines.
    People,
    /// For programs: JSON on stdout.
    Json,
}

/// Shows a run until it is dropped.
#[derive(Debug)]
pub struct Progress {
    sink: Arc<dyn EventSink>,
    reader: Arc<dyn Reader>,
    _pulse: Pulse,
}

impl Progress {
    /// Begins to show the run of a plan.
    pub fn new(form: Form, plan: &ClusterPlan, terminal: &Terminal) -> Self {
        let clock = Clock::real();
        match (form, terminal.screen()) {
            (Form::Json, _) => Self::of(
                JsonLines::new(plan, clock, terminal.data_pipe(), terminal.options()),
                LONGEST_SILENCE / 5,
            ),
            (Form::People, Some(screen)) => Self::of(Bars::new(plan, clock, screen), bars::REDRAW),
            (Form::People, None) => {
                Self::of(Lines::new(plan, clock, terminal.talk_pipe()), LONGEST_SILENCE / 5)
            }
        }
    }

    fn of(reader: impl Reader + 'static, every: Duration) -> Self {
        let reader = Arc::new(reader);
        let ticked = Arc::clone(&reader);
        let pulse = Pulse::new(every, move || ticked.tick());
        Self { sink: Arc::clone(&reader) as Arc<dyn EventSink>, reader, _pulse: pulse }
    }

    /// Returns where the engine sends its events.
    pub fn sink(&self) -> &Arc<dyn EventSink> {
        &self.sink
    }

    /// Says something in between, without disturbing what is drawn.
    pub fn say(&self, words: &str) {
        self.reader.say(words);
    }

    /// Returns how long each line has taken, by what it is about.
    pub fn lasted(&self) -> Vec<(String, Duration)> {
        self.reader.lasted()
    }

    /// Writes an object to the stream of [`Form::Json`]; people have no use for it.
    pub fn object(&self, object: Value) {
        self.reader.object(object);
    }
}

/// Takes events, and speaks up between them.
trait Reader: EventSink {
    /// Looks at the clock.
    fn tick(&self);

    /// Says something that is no event.
    fn say(&self, words: &str);

    /// Tells how long each line has taken.
    fn lasted(&self) -> Vec<(String, Duration)>;

    /// Takes an object for programs.
    fn object(&self, _object: Value) {}
}

/// Tells how long the run has been going.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl Clock {
    /// Tells the real time, from now on.
    #[expect(clippy::disallowed_methods, reason = "people look at a run in real time")]
    pub fn real() -> Self {
        let began = std::time::Instant::now();
        Self::new(move || began.elapsed())
    }

    /// Tells the time that something else tells.
    pub fn new(tell: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    /// Returns how long it has been.
    pub fn now(&self) -> Duration {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

#[cfg(test)]
mod recording;
