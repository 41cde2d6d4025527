//! `ichor kubeconfig`: access to Kubernetes.

use ichor_model::Findings;
use ichor_ops::access::{self, Kind, Server};

use super::access::{Asked, Recipe, run as give};
use crate::{
    args::{Global, Kubeconfig},
    exit::Exit,
    failure::Failure,
    operating_system::OperatingSystem,
    terminal::Terminal,
};

/// Makes a kubeconfig.
pub fn run(args: &Kubeconfig, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    let server = Server::of(&args.server);
    let asked = Asked {
        kind: Kind::Kubeconfig,
        offline: args.offline,
        secrets: args.secrets.as_deref(),
        out: args.out.as_deref(),
        merge: args.merge,
        context: args.context.as_deref(),
        overwrite: args.overwrite,
    };
    let recipe = Recipe {
        is_late: |desired: &_| access::is_late(desired, &server),
        make: |desired: &_, bundle: &_| {
            let made = access::kubeconfig(&OperatingSystem, desired, bundle, &server, args.lifetime)?;
            Ok((access::through(made, args.proxy_url.as_deref())?, Findings::new()))
        },
    };
    give(&asked, &recipe, global, terminal)
}
