//! Something that takes its time while nothing else is shown.

use std::{borrow::Cow, future::Future, time::Duration};

use tokio::runtime::Handle;

use super::{Clock, LONGEST_SILENCE, pulse::Pulse};
use crate::{
    render::duration,
    terminal::{Pipe, Terminal},
};

/// Says what is waited for, again and again, until it is dropped. What ends soon is not spoken of.
#[derive(Debug)]
pub struct Wait {
    _pulse: Pulse,
}

impl Wait {
    /// Begins to wait: `looking at Proxmox`.
    pub fn new(terminal: &Terminal, what: impl Into<Cow<'static, str>>) -> Self {
        let mut patience = Patience::new(Clock::real(), terminal.talk_pipe(), what.into());
        Self { _pulse: Pulse::new(LONGEST_SILENCE / 5, move || patience.look()) }
    }

    /// Waits for what somebody far away is asked.
    pub fn on<F: Future>(terminal: &Terminal, runtime: &Handle, what: &'static str, asked: F) -> F::Output {
        let _waiting = Self::new(terminal, what);
        runtime.block_on(asked)
    }
}

#[derive(Debug)]
struct Patience {
    clock: Clock,
    pipe: Pipe,
    what: Cow<'static, str>,
    spoke: Duration,
}

impl Patience {
    fn new(clock: Clock, pipe: Pipe, what: Cow<'static, str>) -> Self {
        let spoke = clock.now();
        Self { clock, pipe, what, spoke }
    }

    fn look(&mut self) {
        let now = self.clock.now();
        // A beat comes a moment late: the next one would be too late.
        if now.saturating_sub(self.spoke) + LONGEST_SILENCE / 5 > LONGEST_SILENCE {
            self.spoke = now;
            self.pipe.write(&format!("still {} ({})\n", self.what, duration::clock(now)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::recording::*, *};

    #[test]
    fn nobody_waits_in_silence_for_more_than_five_seconds() {
        let (pipe, written) = memory();
        let (clock, time) = hand_moved();
        let mut patience = Patience::new(clock, pipe, "looking at Proxmox".into());
        for second in 1..=10 {
            time.set(Duration::from_secs(second));
            patience.look();
        }
        assert_eq!(written.take(), "still looking at Proxmox (5s)\nstill looking at Proxmox (10s)\n");
    }
}
