//! `ichor talosconfig`: access to the Talos API.

use ichor_ops::{
    access::{self, Kind, TalosAccess},
    bundle,
};

use super::session::{Gate, Session, exit_of};
use crate::{
    args::{Global, Talosconfig},
    exit::Exit,
    failure::Failure,
    operating_system::OperatingSystem,
    terminal::Terminal,
};

/// Makes a talosconfig.
pub fn run(args: &Talosconfig, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    let mut session = match Session::open(global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(exit),
    };
    let wanted = TalosAccess { roles: args.roles.clone(), lifetime: args.lifetime };
    let made = session.with_one(|site, sources| {
        let found = bundle::of_cluster(&OperatingSystem, site, args.secrets.as_deref(), sources)?;
        let (text, mut findings) =
            access::talosconfig(&OperatingSystem, site.desired, &found.bundle, &wanted)?;
        findings.extend(found.findings);
        Ok((text, findings))
    })?;
    let text = match made {
        Gate::Open(text) => text,
        Gate::Closed(exit) => return Ok(exit),
    };
    session.tell();
    let Some(path) = &args.out else {
        terminal.data(text.expose())?;
        return Ok(Exit::Done);
    };
    match access::write(&OperatingSystem, path, &text, Kind::Talosconfig, args.overwrite) {
        Ok(()) => {
            terminal.tell(&format!("wrote {}", path.display()));
            Ok(Exit::Done)
        }
        Err(halt) => session.close(halt.findings, exit_of(halt.kind)),
    }
}
