//! `ichor log`: what was done to a cluster, and whether somebody has changed what is written about it.

use ichor_model::{Finding, Findings};
use ichor_ops::{Halt, Site, halt::only, keep::Keep};
use ichor_store::audit::Trail;

use super::{
    run::{Asked, not_confirmed},
    session::{Gate, Session},
};
use crate::{
    args::{Global, LogVerb},
    exit::Exit,
    failure::Failure,
    keeping::{self, ASKING, Ask},
    operating_system::OperatingSystem,
    render::{keeping as render, progress::Wait},
    terminal::Terminal,
    world::with_site_in,
};

/// Does what was asked for.
pub fn run(verb: &LogVerb, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    if let LogVerb::Accept { yes } = verb {
        let asked = Asked { verb: "log accept", yes: *yes, dry_run: false, json: false };
        asked.check_or("ichor log verify")?;
        return accept(&asked, global, terminal);
    }
    let mut session = match Session::open(global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(exit),
    };
    let verify = matches!(verb, LogVerb::Verify);
    let trail = session.with_one(|site, _| {
        let (trail, broken) = with_site_in(global.world.place(), site, |site| read(site, terminal))?;
        match broken {
            Some(finding) if verify => Err(Halt::refused(only(finding))),
            // Looking is not refused: it is how the place is found.
            finding => Ok((trail, super::live::as_warnings(&finding.into_iter().collect::<Findings>()))),
        }
    })?;
    let mut trail = match trail {
        Gate::Closed(exit) => return Ok(exit),
        Gate::Open(trail) => trail,
    };
    if let LogVerb::Show { last } = verb {
        let older = trail.entries.len().saturating_sub(*last);
        trail.entries.drain(..older);
        return session.show(
            || render::entries_text(&trail, older, terminal.width()),
            || vec![render::entries_value(session.name(), &trail)],
        );
    }
    session.show(|| render::whole_text(&trail), || vec![render::whole_value(session.name(), &trail)])
}

/// Shows what is missing, asks, and goes on without it.
fn accept(asked: &Asked, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    let mut session = match Session::open(global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(exit),
    };
    let accepted = session.with_one(|site, _| {
        let accepted = with_site_in(global.world.place(), site, |site| {
            if let Some(broken) = read(site, terminal)?.0.broken {
                terminal.tell(&broken.why);
            }
            if !asked.confirmed("What is missing will stay so.", "accept") {
                return Err(Halt::refused(only(not_confirmed("the trail is as it was"))));
            }
            keeping::accept(site, Ask { verb: asked.verb, wait: global.lock_wait() }, terminal)
        })?;
        Ok((accepted, Findings::new()))
    })?;
    match accepted {
        Gate::Closed(exit) => Ok(exit),
        Gate::Open(accepted) => session.show(
            || render::accepted_text(accepted.as_ref()),
            || vec![render::accepted_value(session.name(), accepted.as_ref())],
        ),
    }
}

/// Reads the trail, and says where it is broken.
fn read(site: Site<'_>, terminal: &Terminal) -> Result<(Trail, Option<Finding>), Halt> {
    let mut keep = Keep::open(&OperatingSystem, site)?;
    let trail = Wait::on(terminal, keeping::runtime()?.handle(), ASKING, keep.trail())?;
    let broken = trail.broken.as_ref().map(|broken| {
        keep.broken(broken)
            .remedy("ask who has access to the store, and compare it with a version or a backup of it")
    });
    Ok((trail, broken))
}
