//! Something that is done again and again, in a thread of its own.

use std::{
    sync::mpsc::{self, RecvTimeoutError},
    thread::{self, JoinHandle},
    time::Duration,
};

/// Beats until it is dropped, and once more then.
#[derive(Debug)]
pub struct Pulse {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Pulse {
    /// Starts to beat. Where no thread can be had, nothing beats: events are shown all the same.
    pub fn new(every: Duration, mut beat: impl FnMut() + Send + 'static) -> Self {
        let (stop, stopped) = mpsc::channel();
        let body = move || {
            while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                beat();
            }
            beat();
        };
        let thread = thread::Builder::new().name("progress".into()).spawn(body).ok();
        Self { stop: Some(stop), thread }
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // Its beats are shown, not needed: one that panicked has nothing to say.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    #[test]
    fn it_beats_a_last_time_when_it_is_dropped_and_never_after() {
        let beats = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&beats);
        let pulse = Pulse::new(Duration::from_hours(1), move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        drop(pulse);
        assert_eq!(beats.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn it_beats_while_it_lives() {
        let (beat, beaten) = mpsc::channel();
        let pulse = Pulse::new(Duration::from_millis(1), move || {
            let _ = beat.send(());
        });
        for _ in 0..3 {
            beaten.recv_timeout(Duration::from_secs(30)).expect("a beat");
        }
        drop(pulse);
    }
}
