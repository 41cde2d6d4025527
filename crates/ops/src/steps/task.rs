//! Following tasks of Proxmox to their end.

use std::time::Duration;

use ichor_engine::{EffectError, Effects, Report, StepContext, Verdict};
use ichor_plan::Condition;
use ichor_port::TransportError;
use ichor_pve::{Exit, Kind, Upid, api};
use tokio::time::sleep;

use crate::live::{Live, pve_trouble, refused};

/// Between two looks at a task, at first and at most.
const LOOK_AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));
/// How many looks in a row may fail before the task counts as lost from sight.
const MOST_BLIND_LOOKS: u32 = 30;

/// Keeps the name of a task, and follows it to its end.
pub async fn follow(
    live: &Live<'_>,
    context: &StepContext<'_>,
    what: &str,
    task: &Upid,
) -> Result<(), EffectError> {
    context.keep_receipt(task.as_str())?;
    wait(live, what, task).await
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

/// Waits for the end of a task. Calls that fail meanwhile say nothing about it.
pub async fn wait(live: &Live<'_>, what: &str, task: &Upid) -> Result<(), EffectError> {
    heed(live, what, task).await.map(drop)
}

/// Waits for the end of a task, and says how many warnings it gave.
pub async fn heed(live: &Live<'_>, what: &str, task: &Upid) -> Result<u32, EffectError> {
    let mut pause = LOOK_AGAIN.0;
    let mut blind = 0;
    loop {
        match live.pve.send(&api::task_status(task)).await {
            Ok(status) => {
                blind = 0;
                match status.exit() {
                    Some(Exit::Good) => return Ok(0),
                    Some(Exit::Warnings(warnings)) => return Ok(warnings),
                    Some(Exit::Bad(text)) => return Err(refused(what, &text)),
                    Some(Exit::Vanished) => {
                        let message = format!("{what}: the task of Proxmox vanished");
                        return Err(EffectError::Unsure(Report::new(message)));
                    }
                    None => {}
                }
            }
            Err(error) if blind == MOST_BLIND_LOOKS || is_final(&error) => {
                let report = pve_trouble(what, &error).report().clone();
                return Err(EffectError::Unsure(report));
            }
            Err(_) => blind += 1,
        }
        sleep(pause).await;
        pause = (pause * 3 / 2).min(LOOK_AGAIN.1);
    }
}

/// A caller who is not let in any more will not be let in later, and a stranger does not become Proxmox again.
fn is_final(error: &ichor_pve::Error) -> bool {
    let stranger = matches!(error, ichor_pve::Error::Transport(TransportError::NotTrusted(_)));
    stranger || matches!(error.refusal(), Some(Kind::Unauthenticated | Kind::Forbidden))
}
