//! Following tasks of Proxmox to their end.

use std::time::Duration;

use ichor_engine::{EffectError, Effects, Report, StepContext, Verdict};
use ichor_plan::Condition;
use ichor_port::TransportError;
use ichor_pve::{Error, Exit, Kind, TaskStatus, Upid, api};
use tokio::time::{Instant, sleep_until};

use crate::live::{Live, pve_trouble, refused};

/// Between two looks at a task, at first and at most.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(60), Duration::from_secs(2));
/// What takes long is looked at less often: its end is seen late by no more than such a share of the time that it took.
const LOOKS_WITHIN: u32 = 10;
/// The list may say for seconds too long that a task runs, so the task itself is asked too, at first after this time.
const ASK_ITSELF: Duration = Duration::from_secs(1);
/// What is often over by the time one asks.
const QUICK: [&str; 5] = ["resize", "download", "qmconfig", "imgdel", "imgcopy"];
/// How many looks in a row may fail before the task counts as lost from sight.
const MOST_BLIND_LOOKS: u32 = 30;

/// Keeps the name of a task, and follows it to its end.
pub async fn follow(
    live: &Live<'_>,
    context: &StepContext<'_>,
    what: &str,
    task: &Upid,
) -> Result<(), EffectError> {
    heed(live, context, what, task).await.map(drop)
}

/// Keeps the name of a task, follows it to its end, and says how many warnings it gave. The name is on disk by then.
pub async fn heed(
    live: &Live<'_>,
    context: &StepContext<'_>,
    what: &str,
    task: &Upid,
) -> Result<u32, EffectError> {
    let ((), warnings) = tokio::try_join!(context.keep_receipt(task.as_str()), end(live, what, task))?;
    Ok(warnings)
}

/// Follows the task of an earlier, interrupted attempt. How it ended is for the next look to say.
pub async fn follow_earlier(live: &Live<'_>, context: &StepContext<'_>, what: &str) -> bool {
    let Some(task) = context.earlier_receipt().and_then(|receipt| receipt.parse::<Upid>().ok()) else {
        return false;
    };
    wait(live, what, &task).await.is_ok()
}

/// Follows the task of an earlier, interrupted attempt, and says whether what it was for is there. The task may be of
/// an earlier life of the cluster: that it went well proves nothing.
pub async fn done_earlier(live: &Live<'_>, context: &StepContext<'_>, what: &str, done: &Condition) -> bool {
    follow_earlier(live, context, what).await && live.judge(done).await == Verdict::Holds
}

/// Waits for the end of a task.
pub async fn wait(live: &Live<'_>, what: &str, task: &Upid) -> Result<(), EffectError> {
    end(live, what, task).await.map(drop)
}

/// Waits for the end of a task, and says how many warnings it gave. Calls that fail meanwhile say nothing about it.
async fn end(live: &Live<'_>, what: &str, task: &Upid) -> Result<u32, EffectError> {
    let began = Instant::now();
    let mut watch = Watch { live, task, began, ask_itself: began + ASK_ITSELF };
    let mut blind = 0;
    let mut look = if QUICK.contains(&task.kind()) { watch.look().await } else { watch.look_later().await };
    loop {
        match look {
            Ok(status) => {
                blind = 0;
                if let Some(exit) = status.exit() {
                    live.tasks.took(task, began.elapsed());
                    return ended(what, exit);
                }
            }
            Err(error) if blind == MOST_BLIND_LOOKS || is_final(&error) => {
                let report = pve_trouble(what, &error).report().clone();
                return Err(EffectError::Unsure(report));
            }
            Err(_) => blind += 1,
        }
        look = watch.look_later().await;
    }
}

fn ended(what: &str, exit: Exit) -> Result<u32, EffectError> {
    match exit {
        Exit::Good => Ok(0),
        Exit::Warnings(warnings) => Ok(warnings),
        Exit::Bad(text) => Err(refused(what, &text)),
        Exit::Vanished => {
            let message = format!("{what}: the task of Proxmox vanished");
            Err(EffectError::Unsure(Report::new(message)))
        }
    }
}

/// A task that is watched.
struct Watch<'w> {
    live: &'w Live<'w>,
    task: &'w Upid,
    began: Instant,
    /// When it is to be asked itself, whatever the list says.
    ask_itself: Instant,
}

impl Watch<'_> {
    /// How long until the next look. A task that will take as long as others of its kind is left alone until then.
    fn length(&self) -> Duration {
        let waited = self.began.elapsed();
        let usual = self.live.tasks.takes(self.task).map_or(Duration::ZERO, |usual| usual * 9 / 10);
        let pause = (waited / LOOKS_WITHIN).clamp(LOOK_AGAIN.0, LOOK_AGAIN.1);
        usual.saturating_sub(waited).min(LOOK_AGAIN.1).max(pause)
    }

    /// Looks after a pause, or when somebody else's look shows that the task has ended.
    async fn look_later(&mut self) -> Result<TaskStatus, Error> {
        let mut news = self.live.tasks.news();
        let mut until = Instant::now() + self.length();
        loop {
            tokio::select! {
                biased;
                () = sleep_until(until) => return self.look().await,
                changed = news.changed() => {
                    let status = news.borrow_and_update().status(self.task).cloned();
                    match status {
                        Some(status) if status.exit().is_some() => return Ok(status),
                        // That was a look at this task too.
                        Some(_) if changed.is_ok() => until = Instant::now() + self.length(),
                        _ => {}
                    }
                }
            }
        }
    }

    /// Looks at the list of all tasks, or at the task itself where the list does not tell.
    async fn look(&mut self) -> Result<TaskStatus, Error> {
        let now = Instant::now();
        if self.live.tasks.is_blind() || now >= self.ask_itself {
            self.ask_itself = now + self.began.elapsed().max(ASK_ITSELF);
            return self.ask().await;
        }
        let recent = now.checked_sub(LOOK_AGAIN.0 / 2).unwrap_or(now);
        let Ok(listed) = self.live.tasks.list(&self.live.pve, recent.max(self.began)).await else {
            return self.ask().await;
        };
        if let Some(status) = listed.status(self.task) {
            self.live.tasks.shows(true);
            return Ok(status.clone());
        }
        let status = self.ask().await?;
        // All that run are in the list, for those who may see them.
        self.live.tasks.shows(status.exit().is_some());
        Ok(status)
    }

    async fn ask(&self) -> Result<TaskStatus, Error> {
        self.live.pve.send(&api::task_status(self.task)).await
    }
}

/// A caller who is not let in any more will not be let in later, and a stranger does not become Proxmox again.
fn is_final(error: &Error) -> bool {
    let stranger = matches!(error, Error::Transport(TransportError::NotTrusted(_)));
    stranger || matches!(error.refusal(), Some(Kind::Unauthenticated | Kind::Forbidden))
}
