//! `ichor kubeconfig`: access to Kubernetes.

use ichor_ops::{
    access::{self, Kind, Server},
    bundle,
};

use super::session::{Gate, Session, exit_of};
use crate::{
    args::{Global, Kubeconfig},
    exit::Exit,
    failure::Failure,
    operating_system::OperatingSystem,
    terminal::Terminal,
};

/// Makes a kubeconfig.
pub fn run(args: &Kubeconfig, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    if !args.offline {
        return Err(Failure::new(Exit::Failed, "this build does not ask a cluster for a kubeconfig")
            .because("with the cluster's secrets one can be made here, without the cluster")
            .hint("add `--offline`:\n    ichor kubeconfig --offline"));
    }
    let mut session = match Session::open(global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(exit),
    };
    let server = Server::of(&args.server);
    let made = session.with_one(|site, sources| {
        let found = bundle::of_cluster(&OperatingSystem, site, args.secrets.as_deref(), sources)?;
        let text = access::kubeconfig(&OperatingSystem, site.desired, &found.bundle, &server, args.lifetime)?;
        Ok((text, found.findings))
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
    match access::write(&OperatingSystem, path, &text, Kind::Kubeconfig, args.overwrite) {
        Ok(()) => {
            terminal.tell(&format!("wrote {}", path.display()));
            Ok(Exit::Done)
        }
        Err(halt) => session.close(halt.findings, exit_of(halt.kind)),
    }
}
