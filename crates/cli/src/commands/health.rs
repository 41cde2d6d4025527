//! `ichor health`: every check, by name.

use std::time::Duration;

use ichor_model::Observed;
use ichor_ops::{Halt, converge::look, health::checks};
use ichor_plan::drift;
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    live::{self, Intent, Stage},
    session::Gate,
};
use crate::{
    args::{Global, Health},
    exit::Exit,
    failure::Failure,
    render::{
        health::{document, exit, text},
        progress::Wait,
    },
    terminal::Terminal,
};

/// Between two looks.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Checks a cluster.
pub fn run(args: &Health, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    let checked = live::with(global, terminal, Intent::Look, |stage| {
        let desired = stage.site.desired;
        let observed = match args.wait {
            Some(wait) => until_well(&stage, wait, terminal)?,
            None => stage.observed,
        };
        let checks = checks(desired, &observed);
        let shown = text(desired, &checks, terminal.width());
        Ok(((shown, document(desired, &checks), exit(&checks)), drift(desired, &observed)))
    })?;
    match checked {
        Gate::Closed(exit) => Ok(exit),
        Gate::Open((session, (text, document, exit))) => session.end(exit, || text, || vec![document]),
    }
}

/// Looks again and again until all is well or the time is up. A look that fails on the way is not the end.
fn until_well(stage: &Stage<'_>, wait: Duration, terminal: &Terminal) -> Result<Observed, Halt> {
    let mut last = Ok(stage.observed.clone());
    let _waiting = Wait::new(terminal, "waiting until all is well");
    stage.runtime.block_on(async {
        let deadline = Instant::now() + wait;
        while !last.as_ref().is_ok_and(|seen| exit(&checks(stage.site.desired, seen)) == Exit::Done) {
            let again = async {
                sleep(LOOK_AGAIN).await;
                look(stage.live).await
            };
            match timeout_at(deadline, again).await {
                Ok(seen) => last = seen,
                Err(_) => break,
            }
        }
    });
    last
}
