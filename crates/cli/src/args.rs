//! What the user typed: one struct per verb, each flag with its own documentation and environment
//! variable.

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
mod lifetime;
mod lock;
mod log;
mod man;
mod plan;
mod pve;
mod render;
mod schema;
mod secrets;
mod status;
mod talosconfig;
mod tunnel;
mod up;
mod world;

use std::{ffi::OsString, path::PathBuf};

use clap::{Parser, Subcommand, ValueEnum, ValueHint};

pub use self::{
    check::Check,
    completions::Completions,
    destroy::Destroy,
    doctor::Doctor,
    explain::Explain,
    health::Health,
    image::{Image, ImageVerb},
    init::Init,
    kubeconfig::Kubeconfig,
    lab::{Event, Faults, Host, Lab, LabVerb, Profile, PveRelease, Serve, Server},
    lock::{Lock, LockVerb},
    log::{Log, LogVerb},
    man::Man,
    plan::{Graph, Plan},
    pve::{Major, Purpose, Pve, PveVerb, Role, Setup, token_of},
    render::Render,
    schema::Schema,
    secrets::{Export, Import, Restore, Secrets, SecretsVerb},
    status::Status,
    talosconfig::Talosconfig,
    tunnel::Tunnel,
    up::Up,
    world::Place,
};
use crate::exit;

const ABOUT: &str = "Talos Linux Kubernetes clusters on Proxmox VE, from one inventory";

const EXAMPLES: &str = "\
Examples:
  ichor init                           write a first inventory, with what Proxmox has
  ichor check                          check ./ichor.yaml or ./cluster.yaml
  ichor -f clusters/ check             check every cluster of a directory
  ichor -f lab.yaml plan --offline     show every VM the inventory stands for
  ichor doctor                         look at everything that could stand in the way
  ichor --lab up                       rehearse the cluster in a simulated datacentre
  ichor up                             make the cluster
  ichor status                         show it as it is
  ichor secrets new                    make the secrets of a new cluster
  ichor render                         write machine configs and all else to ./rendered
  ichor explain ICH-1101               explain a finding";

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "ichor",
    version,
    about = ABOUT,
    after_help = format!("{EXAMPLES}\n\n{}", exit::table()),
    subcommand_required = true,
    arg_required_else_help = true,
)]
pub struct Cli {
    /// Options of every verb.
    #[command(flatten)]
    pub global: Global,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// Options of every verb.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// The inventory: a file, a directory with `cluster.yaml` or `ichor.yaml`, or a directory of clusters.
    ///
    /// Absent: `ichor.yaml`, else `cluster.yaml`, in the current directory. `-` reads one inventory
    /// from standard input. A `nodes.yaml` beside
    /// either belongs to the same inventory. A `defaults.yaml` beside the inventory lies below it;
    /// so does one in the directory above, when the inventory is a directory of its own.
    #[arg(short, long, global = true, value_name = "PATH", env = "ICHOR_FILE", hide_env_values = true, value_hint = ValueHint::AnyPath)]
    pub file: Option<PathBuf>,
    /// Chooses one cluster by its name, where the inventory has several.
    #[arg(long, global = true, value_name = "NAME", env = "ICHOR_CLUSTER", hide_env_values = true)]
    pub cluster: Option<String>,
    /// The form of the output.
    ///
    /// As JSON and YAML, `plan` gives the clusters, each with what is to be said about it under
    /// `findings`, if there is anything. When an error stands in the way it gives the report of
    /// `check` instead, and exit code 3. `secrets export`, `talosconfig` and `kubeconfig` print a file, which is
    /// YAML; as JSON they print the same document.
    #[arg(
        short,
        long,
        global = true,
        value_name = "FORM",
        env = "ICHOR_OUTPUT",
        hide_env_values = true,
        default_value = "table"
    )]
    pub output: Output,
    /// When to colour: `auto` asks the terminal, `NO_COLOR` and `CLICOLOR_FORCE`.
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        env = "ICHOR_COLOR",
        hide_env_values = true,
        default_value = "auto"
    )]
    pub color: Color,
    /// How long to wait for somebody else who is at work on the cluster, as in `5m`. Absent: stops with exit code 5.
    #[arg(long, global = true, value_name = "DURATION", env = "ICHOR_LOCK_TIMEOUT", hide_env_values = true, value_parser = lifetime::parse)]
    pub lock_timeout: Option<std::time::Duration>,
    /// The world that is asked and changed.
    #[command(flatten)]
    pub world: world::World,
}

impl Global {
    /// Returns how long to wait for somebody else.
    pub fn lock_wait(&self) -> std::time::Duration {
        self.lock_timeout.unwrap_or_default()
    }
}

/// What to do. Each verb is described by its own struct, from which its help is made.
#[derive(Debug, Subcommand)]
#[allow(missing_docs)]
pub enum Verb {
    Init(Init),
    Check(Check),
    Plan(Plan),
    Up(Up),
    Status(Status),
    Doctor(Doctor),
    Health(Health),
    Destroy(Destroy),
    Secrets(Secrets),
    Lock(Lock),
    Log(Log),
    Render(Render),
    Talosconfig(Talosconfig),
    Kubeconfig(Kubeconfig),
    Tunnel(Tunnel),
    Image(Image),
    Pve(Pve),
    Lab(Lab),
    Schema(Schema),
    Explain(Explain),
    Completions(Completions),
    Man(Man),
}

impl Verb {
    /// Whether what happens is told to a program as it happens.
    pub const fn tells_events(&self) -> bool {
        matches!(self, Self::Up(Up { json: true, .. }) | Self::Destroy(Destroy { json: true, .. }))
    }
}

/// The form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Table,
    /// For programs, as JSON.
    Json,
    /// For programs, as YAML.
    Yaml,
}

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// When the stream is a terminal and nothing in the environment speaks against it.
    Auto,
    /// In any case.
    Always,
    /// In no case.
    Never,
}

/// Longest name of a context.
const MAX_NAME: usize = 253;

/// Reads the name of a context: any text that fits a line.
fn context_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.len() > MAX_NAME || text.chars().any(char::is_control) {
        return Err(format!("a name has 1 to {MAX_NAME} characters on one line"));
    }
    Ok(text.to_owned())
}

impl Color {
    /// Finds the wish in arguments that could not be parsed, so that the complaint follows it too.
    #[expect(clippy::disallowed_methods, reason = "clap, which reads the environment, gave up")]
    pub fn looked_for_in(arguments: &[OsString]) -> Self {
        let words: Vec<&str> = arguments.iter().filter_map(|word| word.to_str()).collect();
        let apart = words.windows(2).find(|pair| pair[0] == "--color").map(|pair| pair[1]);
        let joined = words.iter().find_map(|word| word.strip_prefix("--color="));
        let from_environment = std::env::var("ICHOR_COLOR").ok();
        joined
            .or(apart)
            .or(from_environment.as_deref())
            .and_then(|word| Self::from_str(word, false).ok())
            .unwrap_or(Self::Auto)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Parses a command line.
    fn live(words: &[&str]) -> Result<Cli, clap::error::ErrorKind> {
        let words = ["ichor"].iter().chain(words);
        Cli::try_parse_from(words).map_err(|error| error.kind())
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_lab_is_kept_in_the_store_or_in_a_file() {
        use world::Place;
        let place = |words: &[&str], is: Place<'_>| {
            assert_eq!(live(words).expect("a command line").global.world.place(), is, "{words:?}");
        };
        place(&["status"], Place::Real);
        place(&["--lab", "status"], Place::Lab);
        place(&["status", "--lab"], Place::Lab);
        place(
            &["up", "--lab", "--lab-state", "lab.json", "plan.json"],
            Place::LabIn(std::path::Path::new("lab.json")),
        );
    }

    #[test]
    fn a_plan_in_a_file_is_done_as_a_whole() {
        let Verb::Up(up) = live(&["up", "plan.json", "--yes"]).expect("a command line").verb else {
            panic!("another verb");
        };
        assert!(up.plan.is_some() && up.yes && !up.dry_run);
        let conflict = Err(clap::error::ErrorKind::ArgumentConflict);
        assert_eq!(live(&["up", "plan.json", "--only", "cp-1"]).map(drop), conflict);
        assert_eq!(live(&["up", "plan.json", "--phase", "images"]).map(drop), conflict);
    }

    #[test]
    fn machines_are_named_one_by_one_or_together() {
        let Verb::Up(up) = live(&["up", "--only", "cp-1,cp-2", "--only", "w"]).expect("names").verb else {
            panic!("another verb");
        };
        let names: Vec<String> = up.only.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["cp-1", "cp-2", "w"]);
        assert!(live(&["up", "--only", "CP 1"]).is_err());
    }

    /// Returns a command and all below it; `help` describes others.
    fn with_verbs_below(command: &clap::Command) -> Vec<&clap::Command> {
        let below = command.get_subcommands().filter(|verb| verb.get_name() != "help");
        [command].into_iter().chain(below.flat_map(with_verbs_below)).collect()
    }

    #[test]
    fn every_flag_is_documented_and_has_an_environment_variable() {
        let mut commands = [Cli::command()];
        commands.iter_mut().for_each(clap::Command::build);
        for verb in commands.iter().flat_map(with_verbs_below) {
            for flag in verb.get_arguments().filter(|flag| flag.get_long().is_some()) {
                let name = flag.get_id().as_str();
                assert!(flag.get_help().is_some(), "{} --{name}", verb.get_name());
                if !["help", "version"].contains(&name) {
                    assert!(flag.get_env().is_some(), "{} --{name}", verb.get_name());
                }
            }
        }
    }

    #[test]
    fn a_variable_means_the_same_to_every_verb_that_reads_it() {
        /// Those that several verbs read, because they ask for the same thing.
        const SHARED: [&str; 3] = ["ICHOR_LAB_STATE", "ICHOR_OFFLINE", "ICHOR_SECRETS"];
        let command = Cli::command();
        let verbs = with_verbs_below(&command).into_iter();
        let own = verbs.flat_map(clap::Command::get_arguments);
        let names: Vec<&str> = own.filter_map(|flag| flag.get_env()?.to_str()).collect();
        for name in names.iter().filter(|name| !SHARED.contains(name)) {
            assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{name}");
        }
    }

    #[test]
    fn every_verb_has_examples() {
        let command = Cli::command();
        for verb in with_verbs_below(&command).into_iter().skip(1) {
            let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("Examples:\n  ichor "), "{}", verb.get_name());
        }
    }

    #[test]
    fn a_wish_for_colour_is_found_in_arguments_that_do_not_parse() {
        let find = |words: &[&str]| {
            Color::looked_for_in(&words.iter().map(OsString::from).collect::<Vec<OsString>>())
        };
        assert_eq!(find(&["ichor", "--color", "never", "nonsense"]), Color::Never);
        assert_eq!(find(&["ichor", "nonsense", "--color=always"]), Color::Always);
        assert_eq!(find(&["ichor", "--color", "loud"]), Color::Auto);
    }
}
