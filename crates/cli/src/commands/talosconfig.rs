//! `ichor talosconfig`: access to the Talos API.

use ichor_ops::{
    access::{self, TalosAccess, Target},
    bundle::{self, Signer},
};

use super::session::{Gate, Session, one_reader_of_stdin};
use crate::{
    args::{Global, Talosconfig},
    exit::Exit,
    failure::Failure,
    operating_system::OperatingSystem,
    terminal::Terminal,
};

/// Makes a talosconfig.
pub fn run(args: &Talosconfig, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    one_reader_of_stdin(global, args.secrets.as_deref())?;
    let mut session = match Session::open(global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(exit),
    };
    let wanted = TalosAccess { roles: args.roles.clone(), lifetime: args.lifetime };
    let made = session.with_one(|site, sources| {
        let given = args.secrets.as_deref();
        let found = bundle::of_cluster(&OperatingSystem, site, given, Signer::Talos, sources)?;
        let (made, mut findings) =
            access::talosconfig(&OperatingSystem, site.desired, &found.bundle, &wanted)?;
        let made = access::through(made, args.proxy_url.as_deref())?;
        findings.extend(found.findings);
        if let Some(path) = &args.out {
            let target = Target { path, overwrite: args.overwrite, given: args.secrets.as_deref() };
            access::write(&OperatingSystem, site, &made, target)?;
        }
        Ok((made, findings))
    })?;
    match made {
        Gate::Open(made) => session.give(&made, args.out.as_deref()),
        Gate::Closed(exit) => Ok(exit),
    }
}
