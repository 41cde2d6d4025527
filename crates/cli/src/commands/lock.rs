//! `ichor lock`: who is at work on a cluster.

use ichor_model::Findings;
use ichor_ops::{Halt, halt::only, keep::Keep};
use ichor_store::lock::Holder;

use super::{
    run::{Asked, not_confirmed},
    session::{Gate, Session},
};
use crate::{
    args::{Global, LockVerb},
    exit::Exit,
    failure::Failure,
    keeping::{self, ASKING},
    operating_system::OperatingSystem,
    render::{
        keeping::{self as render, Seat},
        progress::Wait,
    },
    terminal::Terminal,
    world::with_site_in,
};

/// Does what was asked for.
pub fn run(verb: &LockVerb, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    if let LockVerb::Break { yes } = verb {
        let asked = Asked { verb: "lock break", yes: *yes, dry_run: false, json: false };
        asked.check_or("ichor lock show")?;
        return act(global, terminal, |keep| take_away(keep, &asked, terminal), render::broken_text);
    }
    let look = |keep: &Keep<'_>| Wait::on(terminal, keeping::runtime()?.handle(), ASKING, keep.holder());
    act(global, terminal, look, render::holder_text)
}

fn act(
    global: &Global,
    terminal: &Terminal,
    act: impl FnOnce(&Keep<'_>) -> Result<Option<Holder>, Halt>,
    text: fn(Option<Seat<'_>>) -> String,
) -> Result<Exit, Failure> {
    let mut session = match Session::open(global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(exit),
    };
    let holder = session.with_one(|site, _| {
        let holder =
            with_site_in(global.world.place(), site, |site| act(&Keep::open(&OperatingSystem, site)?))?;
        Ok((holder, Findings::new()))
    })?;
    match holder {
        Gate::Closed(exit) => Ok(exit),
        Gate::Open(holder) => {
            let seat = holder.as_ref().map(seat);
            session.show(|| text(seat), || vec![render::holder_value(session.name(), seat)])
        }
    }
}

/// Looks whether a holder is still at work, as whoever takes the lock does.
fn seat(holder: &Holder) -> Seat<'_> {
    Seat { holder, is_gone: keeping::is_dead(&holder.process) }
}

/// Shows who holds the lock, asks, and takes it away. That it was leaves an entry in the audit trail.
fn take_away(keep: &Keep<'_>, asked: &Asked, terminal: &Terminal) -> Result<Option<Holder>, Halt> {
    let runtime = keeping::runtime()?;
    // What cannot be read can be broken.
    if let Ok(Some(holder)) = Wait::on(terminal, runtime.handle(), ASKING, keep.holder()) {
        terminal.tell(render::holder_text(Some(seat(&holder))).trim_end());
    }
    if !asked.confirmed("If that run is alive, two will be at work at once.", "break") {
        return Err(Halt::refused(only(not_confirmed("the lock is as it was"))));
    }
    let _waiting = Wait::new(terminal, ASKING);
    let holder = runtime.block_on(keep.break_lock())?;
    if let Some(holder) = &holder {
        let breaker = keeping::this_run("lock break")?;
        let outcome = format!("took the lock from {}", holder.who);
        let deed = keep.deed(&breaker, breaker.since.clone(), &outcome);
        runtime.block_on(keep.record(&deed))?;
    }
    Ok(holder)
}
