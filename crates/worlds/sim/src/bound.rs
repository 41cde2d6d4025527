//! How long a run must take at least, whatever the client does.
//!
//! Besides the time when something happens, the lab counts the time that had to pass before it could: what a call
//! starts could have been started at once, what follows after a while could have happened that while after its
//! cause, and what needs something else (a VM its image, a call a machine that listens) not before that. Time
//! that a client lets pass does not count. The largest of these times is the lower bound of the run, and
//! the chain that leads there is its critical path.
//!
//! Some things are taken as they were done: the order of the tasks of one VM, and who waited for whose lock.
//! Of several conditions the one that was met last counts, so the bound may be lower than the best run, but never
//! higher than the run that was made.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{clock::Time, ground::Ground};

/// Most milestones and most marks that are kept; older ones are forgotten.
const MOST: usize = 20_000;

/// Where a chain of causes stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// How many milliseconds had to pass since the first call until now.
    necessary: u64,
    /// When it was.
    at: Time,
    /// The last milestone on the way.
    last: Option<u64>,
}

impl Cause {
    /// A call: nothing had to pass before.
    const fn call(at: Time) -> Self {
        Self { necessary: 0, at, last: None }
    }

    /// Goes on to a later moment; the time between had to pass.
    #[must_use]
    pub(crate) fn until(self, at: Time) -> Self {
        self.within(at, Duration::MAX)
    }

    /// Goes on to a later moment; of the time between no more than this had to pass.
    fn within(self, at: Time, most: Duration) -> Self {
        let passed = u64::try_from(at.since(self.at).min(most).as_millis()).unwrap_or(u64::MAX);
        Self { necessary: self.necessary.saturating_add(passed), at, ..self }
    }
}

/// What is known about how long a run must take.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// When the first call came.
    since: Option<Time>,
    /// How many milestones were reached.
    count: u64,
    milestones: VecDeque<Milestone>,
    /// The number of the one that was the farthest away.
    farthest: Option<u64>,
    /// Who can be used by calls, and since when.
    marks: BTreeMap<String, Cause>,
}

/// Something that was reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Milestone {
    what: String,
    subject: String,
    at: Time,
    necessary: u64,
    after: Option<u64>,
}

/// How long a run must take at least.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LowerBound {
    /// Milliseconds from the first call to what is the farthest away.
    pub lower_bound_ms: u64,
    /// How many it were until the last milestone in the run that was made.
    pub took_ms: u64,
    /// The critical path.
    pub path: Vec<Stretch>,
}

/// A stretch of the critical path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stretch {
    /// What happened, such as `qmcreate`.
    pub what: String,
    /// To whom.
    pub subject: String,
    /// How many milliseconds it took.
    pub takes_ms: u64,
}

impl Bound {
    fn get(&self, number: u64) -> Option<&Milestone> {
        let first = self.count - u64::try_from(self.milestones.len()).unwrap_or(0);
        self.milestones.get(usize::try_from(number.checked_sub(first)?).ok()?)
    }

    fn add(&mut self, milestone: Milestone) -> u64 {
        let number = self.count;
        let farthest = self.farthest.and_then(|number| self.get(number)).map(|farthest| farthest.necessary);
        if farthest.is_none_or(|farthest| milestone.necessary >= farthest) {
            self.farthest = Some(number);
        }
        if self.milestones.len() == MOST {
            self.milestones.pop_front();
        }
        self.milestones.push_back(milestone);
        self.count += 1;
        number
    }

    /// Returns how long the run had to take at least.
    pub fn lower(&self) -> LowerBound {
        let mut path = Vec::new();
        let mut next = self.farthest;
        while let Some(milestone) = next.and_then(|number| self.get(number)) {
            next = milestone.after;
            let before = next.and_then(|number| self.get(number)).map_or(0, |before| before.necessary);
            path.push(Stretch {
                what: milestone.what.clone(),
                subject: milestone.subject.clone(),
                takes_ms: milestone.necessary.saturating_sub(before),
            });
        }
        path.reverse();
        let last = self.milestones.back().map(|last| last.at);
        let took = last.zip(self.since).map_or(Duration::ZERO, |(last, since)| last.since(since));
        LowerBound {
            lower_bound_ms: self
                .farthest
                .and_then(|number| self.get(number))
                .map_or(0, |milestone| milestone.necessary),
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            path,
        }
    }
}

impl Ground {
    /// A client calls: what comes of it could have come at once.
    pub(crate) fn called(&mut self, began: Time) {
        let since = *self.bound.since.get_or_insert(self.now);
        self.agenda.cause = Some(Cause::call(began.max(since).min(self.now)).until(self.now));
    }

    /// What happens now could not happen before somebody could be used.
    pub(crate) fn needs(&mut self, subject: &str) {
        let Some(mark) = self.bound.marks.get(subject) else { return };
        let mark = Cause { at: self.now, ..*mark };
        if self.agenda.cause.is_none_or(|cause| cause.necessary < mark.necessary) {
            self.agenda.cause = Some(mark);
        }
    }

    /// From now on somebody can be used.
    pub(crate) fn usable(&mut self, subject: String) {
        let Some(cause) = self.agenda.cause else { return };
        self.bound.marks.insert(subject, cause);
        if self.bound.marks.len() > MOST {
            self.bound.marks.pop_first();
        }
    }

    /// Something was reached. What nobody's call has led to does not count.
    pub(crate) fn reached(&mut self, what: &str, subject: &str) {
        let Some(mut cause) = self.agenda.cause else { return };
        let (what, subject) = (what.to_owned(), subject.to_owned());
        let Cause { necessary, at, last: after } = cause;
        cause.last = Some(self.bound.add(Milestone { what, subject, at, necessary, after }));
        self.agenda.cause = Some(cause);
    }

    /// Something was reached that takes at most so long after somebody could be used.
    pub(crate) fn reached_after(&mut self, mark: &str, most: Duration, what: &str, subject: &str) {
        let Some(mark) = self.bound.marks.get(mark).copied() else { return };
        let cause = self.agenda.cause.replace(mark.within(self.now, self.profile.takes(most)));
        self.reached(what, subject);
        self.agenda.cause = cause;
    }

    /// Begins to measure anew.
    pub fn measure_anew(&mut self) {
        self.bound = Bound::default();
        self.agenda.forget_causes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{agenda::Event, profile::Profile, pve};

    fn wait(ground: &mut Ground, seconds: u64) {
        ground.after(Duration::from_secs(seconds), Event::Pve(pve::Event::StatusRound));
        let (at, _) = ground.agenda.take(Time::NEVER).expect("an event");
        ground.now = at;
    }

    #[test]
    fn only_time_that_had_to_pass_counts() {
        let mut ground = Ground::new(1, Profile::Wan);
        ground.called(ground.now);
        wait(&mut ground, 10);
        ground.reached("download", "image");
        ground.usable("image".into());
        // The client lets a minute pass, then makes two VMs, one after the other.
        for vm in ["vm 1", "vm 2"] {
            ground.now = ground.now + Duration::from_mins(1);
            ground.called(ground.now);
            ground.needs("image");
            wait(&mut ground, 5);
            ground.reached("create", vm);
        }
        let bound = ground.bound.lower();
        assert_eq!((bound.lower_bound_ms, bound.took_ms), (15_000, 140_000));
        let path: Vec<(&str, u64)> =
            bound.path.iter().map(|stretch| (stretch.subject.as_str(), stretch.takes_ms)).collect();
        assert_eq!(path, [("image", 10_000), ("vm 2", 5_000)]);
    }

    #[test]
    fn what_nobody_called_for_does_not_count() {
        let mut ground = Ground::new(1, Profile::Wan);
        wait(&mut ground, 10);
        ground.reached("round", "");
        assert_eq!(ground.bound.lower(), LowerBound::default());
        ground.called(ground.now);
        wait(&mut ground, 3);
        ground.reached("task", "");
        assert_eq!(ground.bound.lower().lower_bound_ms, 3_000);
        ground.measure_anew();
        assert_eq!(ground.bound.lower(), LowerBound::default());
    }

    #[test]
    fn memory_is_bounded_and_the_farthest_is_not_lost() {
        let mut ground = Ground::new(1, Profile::Wan);
        ground.called(ground.now);
        for _ in 0..MOST + 10 {
            wait(&mut ground, 1);
            ground.reached("step", "");
        }
        let bound = ground.bound.lower();
        assert_eq!(bound.path.len(), MOST);
        assert_eq!(bound.lower_bound_ms, bound.took_ms);
    }
}
