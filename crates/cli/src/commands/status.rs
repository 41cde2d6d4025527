//! `ichor status`: a cluster as it is.

use std::time::Duration;

use ichor_model::Findings;
use ichor_ops::converge::look;
use ichor_plan::drift;

use super::{
    live::{self, Intent},
    session::Gate,
};
use crate::{
    args::{Global, Output, Status as Args},
    exit::Exit,
    failure::Failure,
    render::status::{Status, text},
    terminal::Terminal,
};

/// Between two looks.
const WATCH_EVERY: Duration = Duration::from_secs(2);

/// Shows a cluster.
pub fn run(args: &Args, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    let shown = live::with(global, terminal, Intent::Look, |stage| {
        // An endpoint that was leased is known by now.
        let desired = &stage.live.with_leases();
        let first = Status::new(desired, &stage.observed);
        if !args.watch || global.output != Output::Table {
            let document = first.document();
            let shown = (text(&first, terminal.width()), vec![document]);
            return Ok((shown, drift(stage.site.desired, &stage.observed)));
        }
        let mut screen = terminal.screen();
        let mut drawn = 0;
        let mut status = first;
        loop {
            let lines: Vec<String> = text(&status, terminal.width()).lines().map(str::to_owned).collect();
            match &mut screen {
                Some(screen) => screen.draw(drawn, &lines),
                None => drop(terminal.show(&(lines.join("\n") + "\n"))),
            }
            drawn = lines.len();
            let stopped = stage.runtime.block_on(async {
                tokio::select! {
                    _ = tokio::signal::ctrl_c() => true,
                    () = tokio::time::sleep(WATCH_EVERY) => false,
                }
            });
            if stopped {
                return Ok(((String::new(), Vec::new()), Findings::new()));
            }
            let observed = stage.runtime.block_on(look(stage.live))?;
            status = Status::new(desired, &observed);
        }
    })?;
    match shown {
        Gate::Closed(exit) => Ok(exit),
        Gate::Open((session, (text, documents))) => session.show(|| text, || documents),
    }
}
