//! Stopping a run: once to finish what is in flight, twice to stop now.

use tokio::sync::watch;

/// How soon a run is to end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Haste {
    /// When it is done.
    #[default]
    None,
    /// When what is in flight is done.
    Soon,
    /// At once; what is in flight is left unknown.
    Now,
}

/// The way to stop a run; clones stop the same one.
#[derive(Debug, Clone)]
pub struct Cancel(watch::Sender<Haste>);

impl Default for Cancel {
    fn default() -> Self {
        Self(watch::Sender::new(Haste::None))
    }
}

impl Cancel {
    /// Asks to stop: the first time soon, the second time now.
    pub fn ask(&self) {
        self.0.send_modify(|haste| {
            *haste = if *haste == Haste::None { Haste::Soon } else { Haste::Now };
        });
    }

    /// Returns how soon the run is to end.
    pub fn haste(&self) -> Haste {
        *self.0.borrow()
    }

    /// Waits until the run is to end at least this soon.
    pub async fn asked(&self, haste: Haste) {
        let mut asked = self.0.subscribe();
        // The sender lives as long as `self`, so this waits and never fails.
        let _ = asked.wait_for(|now| *now >= haste).await;
    }
}
