//! Runs that were, for tests of how they are shown.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
    time::Duration,
};

use ichor_engine::{Event, Outcome};
use ichor_model::{Desired, step::StepId};

use super::{Clock, Course};
use crate::{
    render::{estimate::Schedule, fixture},
    terminal::Pipe,
};

/// Everything that was written.
#[derive(Debug, Clone, Default)]
pub struct Written(Arc<Mutex<Vec<u8>>>);

impl Written {
    /// Returns what was written since the last time.
    pub fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().expect("lock"))).expect("UTF-8")
    }
}

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("lock").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns a pipe, and what comes out of it.
pub fn memory() -> (Pipe, Written) {
    let written = Written::default();
    (Pipe::new(written.clone()), written)
}

/// The hands of a clock.
#[derive(Debug, Clone, Default)]
pub struct Hands(Arc<Mutex<Duration>>);

impl Hands {
    /// Sets the clock.
    pub fn set(&self, time: Duration) {
        *self.0.lock().expect("lock") = time;
    }
}

/// Returns a clock that stands still until it is set.
pub fn hand_moved() -> (Clock, Hands) {
    let hands = Hands::default();
    let read = hands.clone();
    (Clock::new(move || *read.0.lock().expect("lock")), hands)
}

/// Returns a run in which every step begins when those that it needs have ended, and takes a quarter longer than
/// usual.
pub fn events(desired: &Desired) -> Vec<(Duration, Event)> {
    let plan = fixture::plan_from_nothing(desired);
    let schedule = Schedule::new(plan.steps());
    let mut ends: Vec<Duration> = Vec::new();
    let mut events = vec![(Duration::ZERO, Event::Began { steps: plan.steps().len() })];
    for (place, step) in plan.steps().iter().enumerate() {
        let end = |need: &StepId| plan.steps().iter().position(|other| other.id == *need).map(|it| ends[it]);
        let begins = step.needs.iter().filter_map(end).max().unwrap_or_default();
        let took = schedule.usual(place).mul_f64(1.25);
        let id = || step.id.clone();
        events.push((begins, Event::Started { step: id(), attempt: 1 }));
        let waited = Duration::from_secs(5);
        if took > 2 * waited {
            let why = "it is not there yet".into();
            events.push((begins + waited, Event::Waiting { step: id(), waited, why }));
        }
        events.push((begins + took, Event::Ended { step: id(), outcome: Outcome::Done, took }));
        ends.push(begins + took);
    }
    events.sort_by_key(|(at, _)| *at);
    events
}

/// Returns how that run is after so many seconds.
pub fn course_at(desired: &Desired, seconds: u64) -> Course {
    let mut course = Course::new(&fixture::plan_from_nothing(desired));
    let until = Duration::from_secs(seconds);
    for (at, event) in events(desired).into_iter().filter(|(at, _)| *at <= until) {
        course.take(&event, at);
    }
    course
}

/// Returns how something is tried twice and fails, something is refused, and the user stops the run.
pub fn failure() -> Vec<Event> {
    let create = || StepId::new("machine/cp-1/create");
    let failed = Outcome::Failed {
        message: "Proxmox answered 403: Permission check failed (/storage/local-lvm)".into(),
        hint: Some("grant it".into()),
    };
    let refused = Outcome::Refused { message: "VM 2001 is not ours: it has another uuid".into() };
    vec![
        Event::Started { step: create(), attempt: 1 },
        Event::Retrying { step: create(), after: Duration::from_millis(250), why: "got timeout".into() },
        Event::Started { step: create(), attempt: 2 },
        Event::Ended { step: create(), outcome: failed, took: Duration::from_millis(1_450) },
        Event::Ended { step: StepId::new("machine/cp-2/start"), outcome: refused, took: Duration::ZERO },
        Event::Stopping,
    ]
}

/// Returns a step that waits, in words.
pub fn waiting(step: &str, why: &str) -> Event {
    Event::Waiting { step: StepId::new(step), waited: Duration::from_secs(1), why: why.into() }
}
