//! `ichor talosconfig`: access to the Talos API.

use ichor_ops::access::{self, Kind, TalosAccess};

use super::access::{Asked, Recipe, run as give};
use crate::{
    args::{Global, Talosconfig},
    exit::Exit,
    failure::Failure,
    operating_system::OperatingSystem,
    terminal::Terminal,
};

/// Makes a talosconfig.
pub fn run(args: &Talosconfig, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    let wanted = TalosAccess { roles: args.roles.clone(), lifetime: args.lifetime };
    let asked = Asked {
        kind: Kind::Talosconfig,
        offline: args.offline,
        secrets: args.secrets.as_deref(),
        out: args.out.as_deref(),
        merge: args.merge,
        context: args.context.as_deref(),
        overwrite: args.overwrite,
    };
    let recipe = Recipe {
        is_late: |desired: &_| !access::known_endpoints(desired).1.is_empty(),
        make: |desired: &_, bundle: &_| {
            let (made, findings) = access::talosconfig(&OperatingSystem, desired, bundle, &wanted)?;
            Ok((access::through(made, args.proxy_url.as_deref())?, findings))
        },
    };
    give(&asked, &recipe, global, terminal)
}
