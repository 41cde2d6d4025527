//! `ichor kubeconfig`: access to Kubernetes.

use ichor_ops::{
    access::{self, Server, Target},
    bundle::{self, Signer},
};

use super::session::{Gate, Session, one_reader_of_stdin};
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
    one_reader_of_stdin(global, args.secrets.as_deref())?;
    let mut session = match Session::open(global, terminal)? {
        Gate::Open(session) => session,
        Gate::Closed(exit) => return Ok(exit),
    };
    let server = Server::of(&args.server);
    let made = session.with_one(|site, sources| {
        let given = args.secrets.as_deref();
        let found = bundle::of_cluster(&OperatingSystem, site, given, Signer::Kubernetes, sources)?;
        let made = access::kubeconfig(&OperatingSystem, site.desired, &found.bundle, &server, args.lifetime)?;
        let made = access::through(made, args.proxy_url.as_deref())?;
        if let Some(path) = &args.out {
            let target = Target { path, overwrite: args.overwrite, given: args.secrets.as_deref() };
            access::write(&OperatingSystem, site, &made, target)?;
        }
        Ok((made, found.findings))
    })?;
    match made {
        Gate::Open(made) => session.give(&made, args.out.as_deref()),
        Gate::Closed(exit) => Ok(exit),
    }
}
