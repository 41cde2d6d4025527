//! Lists that answer many questions.

use std::time::Duration;

use tokio::time::Instant;

/// How long a list answers, at first and at most.
const FRESH: (Duration, Duration) = (Duration::from_millis(25), Duration::from_secs(1));
/// It answers for such a share of the time since it was first asked for: who waits for long waits a little longer.
const SHARE: u32 = 40;

/// The last list of something. Every member is waited for on its own, and one list answers for all of them.
#[derive(Debug)]
pub struct Last<T>(tokio::sync::Mutex<Option<Answer<T>>>);

#[derive(Debug)]
struct Answer<T> {
    /// When it was first asked for.
    first: Instant,
    /// When it was asked for.
    at: Instant,
    list: T,
}

impl<T> Default for Last<T> {
    fn default() -> Self {
        Self(tokio::sync::Mutex::default())
    }
}

impl<T: Clone> Last<T> {
    /// Returns the list, asked for anew unless that was just done.
    pub async fn get<F: Future<Output = T>>(&self, ask: impl FnOnce() -> F) -> T {
        let mut kept = self.0.lock().await;
        let now = Instant::now();
        if let Some(answer) = kept.as_ref() {
            let fresh = ((now - answer.first) / SHARE).clamp(FRESH.0, FRESH.1);
            if now - answer.at < fresh {
                return answer.list.clone();
            }
        }
        let first = kept.as_ref().map_or(now, |answer| answer.first);
        let list = ask().await;
        *kept = Some(Answer { first, at: now, list: list.clone() });
        list
    }
}
