//! The lab between calls: who is inside, what time it is, who waits.
//!
//! The clock is tokio's, counted from the moment when the hall opens. It keeps pace with the real one; where
//! a test pauses tokio's clock, the lab runs in virtual time, and what takes minutes is over at once.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use ichor_sim::{
    Lab, Progress,
    clock::Time,
    profile::Profile,
    wire::{Polled, StreamId},
};
use tokio::{sync::watch, time::Instant};

/// Longest that anybody sleeps before looking again. It bounds what a wrong wake-up time can cost.
const LONGEST_NAP: Duration = Duration::from_hours(1);

/// The lab, shared by all connections.
#[derive(Debug)]
pub struct Hall {
    lab: Mutex<Lab>,
    /// Counts visits, so that those who wait look again when something may have changed.
    visits: watch::Sender<u64>,
    /// When the hall was opened, by tokio's clock and by the lab's.
    opened: (Instant, Time),
    /// How far the lab's clock has leapt ahead of tokio's. An instant lab leaps instead of waiting.
    ahead: Mutex<Duration>,
    /// Held by whoever saves the lab.
    saving: Mutex<()>,
}

impl Hall {
    /// Opens the hall at the real time, or where the lab's own time stands if that is later: a lab may be
    /// loaded that leapt ahead. From here on its clock goes as tokio's does.
    pub fn new(lab: Lab) -> Self {
        Self::opened_at(lab, real_time())
    }

    /// Opens the hall at a moment, but no earlier than where the lab's own time stands.
    pub fn opened_at(mut lab: Lab, moment: Time) -> Self {
        let moment = moment.max(lab.ground.now);
        lab.resume(moment);
        Self {
            lab: Mutex::new(lab),
            visits: watch::Sender::new(0),
            opened: (Instant::now(), moment),
            ahead: Mutex::new(Duration::ZERO),
            saving: Mutex::new(()),
        }
    }

    /// Looks at the lab, or changes it, at the present time.
    pub fn visit<T>(&self, act: impl FnOnce(&mut Lab) -> T) -> T {
        let (result, _) = self.enter(act);
        self.announce();
        result
    }

    /// Lets due things happen, then acts; also says whether anything did happen.
    fn enter<T>(&self, act: impl FnOnce(&mut Lab) -> T) -> (T, bool) {
        let now = self.now();
        let mut lab = lock(&self.lab);
        let before = lab.ground.happened;
        lab.advance(now);
        (act(&mut lab), lab.ground.happened > before)
    }

    fn announce(&self) {
        self.visits.send_modify(|visits| *visits = visits.wrapping_add(1));
    }

    /// Looks at the lab without changing anything.
    pub fn look<T>(&self, see: impl FnOnce(&Lab) -> T) -> T {
        see(&lock(&self.lab))
    }

    /// Saves the lab as it is when all who came before have saved it.
    pub fn save<T>(&self, write: impl FnOnce(Lab) -> T) -> T {
        let _turn = lock(&self.saving);
        write(self.look(Clone::clone))
    }

    /// Is told of every visit.
    pub fn visits(&self) -> watch::Receiver<u64> {
        self.visits.subscribe()
    }

    /// Returns the present time, which is never before the lab's own: whoever visits may let time pass.
    pub fn now(&self) -> Time {
        let (instant, moment) = self.opened;
        let own = self.look(|lab| lab.ground.now);
        own.max(moment + instant.elapsed() + *lock(&self.ahead))
    }

    /// Asks until there is an answer, and waits as the lab says.
    pub async fn ask<T>(&self, mut question: impl FnMut(&mut Lab) -> Progress<T>) -> T {
        loop {
            match self.visit(&mut question) {
                Progress::Done(answer) => return answer,
                Progress::Wait(until) => self.wait(until).await,
            }
        }
    }

    /// Waits for the next pieces of a stream; nothing: it has ended. Looking for them is not announced as a
    /// visit, or two streams would wake each other for ever.
    pub async fn next_pieces(
        &self,
        stream: StreamId,
        mut poll: impl FnMut(&mut Lab, StreamId) -> Polled,
    ) -> Option<Vec<Vec<u8>>> {
        loop {
            let mut visits = self.visits();
            let (polled, happened) = self.enter(|lab| poll(lab, stream));
            if happened {
                self.announce();
            }
            match polled {
                Polled::Pieces(pieces) => return Some(pieces),
                Polled::End => return None,
                Polled::Wait(until) => tokio::select! {
                    biased;
                    () = self.sleep(until.unwrap_or(Time::NEVER)) => {}
                    _ = visits.changed() => {}
                },
            }
        }
    }

    /// Lets things happen at their time although nobody calls. Never returns.
    pub async fn keep_time(&self) {
        let mut visits = self.visits();
        loop {
            let next = self.look(|lab| lab.ground.agenda.next());
            visits.mark_unchanged();
            // Always looked at in the same order, so that a run in virtual time can be repeated.
            tokio::select! {
                biased;
                () = self.sleep(next.unwrap_or(Time::NEVER)) => self.visit(|_| ()),
                _ = visits.changed() => {}
            }
        }
    }

    /// Waits until a moment. An instant lab leaps there, unless it is a moment that never comes.
    async fn wait(&self, until: Time) {
        let instant = self.look(|lab| lab.ground.profile == Profile::Instant);
        if instant && until != Time::NEVER {
            let leap = until.since(self.now());
            *lock(&self.ahead) += leap;
        } else {
            self.sleep(until).await;
        }
    }

    async fn sleep(&self, until: Time) {
        tokio::time::sleep(until.since(self.now()).min(LONGEST_NAP)).await;
    }
}

/// A panic in one visit must not stop the others: the lab stays as that visit left it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the time of the real clock.
#[expect(
    clippy::disallowed_methods,
    reason = "here the lab meets the real clock, for the certificates' sake"
)]
pub fn real_time() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
