//! What readers share that write line by line: the course of a run, and when something was last written.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use ichor_plan::ClusterPlan;

use super::{Clock, Course, LONGEST_SILENCE};
use crate::terminal::Pipe;

/// A log of a run, which several may write to.
#[derive(Debug)]
pub struct Log {
    clock: Clock,
    book: Mutex<Book>,
}

/// A log, while one writes to it.
#[derive(Debug)]
pub struct Book {
    /// What is known about the run.
    pub course: Course,
    pipe: Pipe,
    written: Duration,
}

impl Log {
    /// Writes nothing yet.
    pub fn new(plan: &ClusterPlan, clock: Clock, pipe: Pipe) -> Self {
        let book = Book { course: Course::new(plan), pipe, written: clock.now() };
        Self { clock, book: Mutex::new(book) }
    }

    /// Does something with the log at the present time.
    pub fn with<T>(&self, act: impl FnOnce(&mut Book, Duration) -> T) -> T {
        act(&mut self.book.lock().unwrap_or_else(PoisonError::into_inner), self.clock.now())
    }
}

impl Book {
    /// Returns whether nothing was written for so long that people wonder.
    pub fn is_silent(&self, now: Duration) -> bool {
        now.saturating_sub(self.written) >= LONGEST_SILENCE
    }

    /// Writes a line.
    pub fn write(&mut self, line: &str, now: Duration) {
        self.written = now;
        self.pipe.write(line);
    }
}
