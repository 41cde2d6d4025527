//! One file per verb.

mod access;
mod check;
mod completions;
mod destroy;
mod doctor;
mod explain;
mod health;
mod image;
mod init;
mod kubeconfig;
mod lab;
mod live;
mod lock;
mod log;
mod man;
mod plan;
mod pve;
mod render;
mod run;
mod schema;
mod secrets;
mod session;
mod setup;
mod status;
mod talosconfig;
mod tunnel;
mod up;

use crate::{
    args::{Cli, Verb},
    exit::Exit,
    failure::Failure,
    terminal::Terminal,
};

/// Does what was asked for.
pub fn run(cli: &Cli, terminal: &Terminal) -> Result<Exit, Failure> {
    match &cli.verb {
        Verb::Init(args) => init::run(args, &cli.global, terminal),
        Verb::Check(args) => check::run(args, &cli.global, terminal),
        Verb::Plan(args) => plan::run(args, &cli.global, terminal),
        Verb::Up(args) => up::run(args, &cli.global, terminal),
        Verb::Status(args) => status::run(args, &cli.global, terminal),
        Verb::Doctor(_) => doctor::run(&cli.global, terminal),
        Verb::Health(args) => health::run(args, &cli.global, terminal),
        Verb::Destroy(args) => destroy::run(args, &cli.global, terminal),
        Verb::Secrets(args) => secrets::run(&args.verb, &cli.global, terminal),
        Verb::Lock(args) => lock::run(&args.verb, &cli.global, terminal),
        Verb::Log(args) => log::run(&args.verb, &cli.global, terminal),
        Verb::Render(args) => render::run(args, &cli.global, terminal),
        Verb::Talosconfig(args) => talosconfig::run(args, &cli.global, terminal),
        Verb::Kubeconfig(args) => kubeconfig::run(args, &cli.global, terminal),
        Verb::Tunnel(args) => tunnel::run(args, &cli.global, terminal),
        Verb::Image(args) => image::run(&args.verb, &cli.global, terminal),
        Verb::Pve(args) => pve::run(&args.verb, &cli.global, terminal),
        Verb::Lab(args) => lab::run(&args.verb, &cli.global, terminal),
        Verb::Schema(_) => schema::run(cli.global.output, terminal),
        Verb::Explain(args) => explain::run(args, cli.global.output, terminal),
        Verb::Completions(args) => completions::run(args, terminal),
        Verb::Man(args) => man::run(args, terminal),
    }
}
