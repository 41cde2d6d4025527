//! `ichor talosconfig`.

use std::{path::PathBuf, time::Duration};

use clap::{ValueHint, builder::FalseyValueParser};
use ichor_machineconfig::pki::TalosRole;

use super::lifetime;

const EXAMPLES: &str = "\
Examples:
  ichor talosconfig --merge                into ~/.talos/config, beside what is there
  ichor talosconfig --out talosconfig      for `talosctl --talosconfig talosconfig`
  ichor talosconfig --role os:reader --lifetime 24h
  ichor talosconfig --role os:operator --role os:etcd:backup";

/// Makes a talosconfig: access to the Talos API of every machine.
///
/// Made from the cluster's secrets. Its endpoints are the control planes' own addresses, never the VIP, which is not
/// there when it is most needed. Nobody is asked, unless some of them were leased: then the guest agents are, through
/// Proxmox.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Talosconfig {
    /// Asks nobody, also not for addresses that were leased.
    #[arg(long, env = "ICHOR_OFFLINE", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub offline: bool,
    /// What its holder may do: `os:admin`, `os:operator`, `os:reader` or `os:etcd:backup`; may be repeated.
    #[arg(
        long = "role",
        value_name = "ROLE",
        env = "ICHOR_TALOSCONFIG_ROLE",
        hide_env_values = true,
        value_delimiter = ',',
        default_value = "os:admin",
        value_parser = parse_role
    )]
    pub roles: Vec<TalosRole>,
    /// How long it is valid, as in `24h`, `90m` or `365d`; never longer than the authority.
    #[arg(long, value_name = "TIME", env = "ICHOR_TALOSCONFIG_LIFETIME", hide_env_values = true, default_value = "8760h", value_parser = lifetime::parse)]
    pub lifetime: Duration,
    /// A proxy that talosctl, which reads it from 1.14 on, goes through, as in `socks5://127.0.0.1:1080`; see `ichor tunnel`.
    #[arg(long, value_name = "URL", env = "ICHOR_TALOSCONFIG_PROXY_URL", hide_env_values = true)]
    pub proxy_url: Option<String>,
    /// A file to write, for its owner alone, in place of standard output; `-` is standard output.
    #[arg(long, value_name = "FILE", env = "ICHOR_TALOSCONFIG_OUT", hide_env_values = true, value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    /// Adds it to the file, and makes it the current context: `--out`, or what talosctl reads.
    ///
    /// That is the file in `TALOSCONFIG`, or `~/.talos/config`. Contexts of other clusters stay. One of this cluster is
    /// renewed, and keeps what was set in it, such as nodes. If another cluster has the name, this one's gets a
    /// number. Comments are not kept.
    #[arg(long, env = "ICHOR_TALOSCONFIG_MERGE", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub merge: bool,
    /// The name of the context. Absent: that of the cluster.
    #[arg(long, value_name = "NAME", env = "ICHOR_TALOSCONFIG_CONTEXT", hide_env_values = true, value_parser = super::context_name)]
    pub context: Option<String>,
    /// Writes over a file that is not a talosconfig, or that holds access to other clusters.
    ///
    /// With `--merge`: replaces a context of the same name that leads to another cluster, and nothing else.
    #[arg(long, visible_alias = "force", env = "ICHOR_TALOSCONFIG_OVERWRITE", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub overwrite: bool,
    /// A plain bundle in place of the one that is kept; `-` for standard input.
    #[arg(long, value_name = "FILE", env = "ICHOR_SECRETS", hide_env_values = true, value_hint = ValueHint::FilePath)]
    pub secrets: Option<PathBuf>,
}

fn parse_role(text: &str) -> Result<TalosRole, String> {
    text.parse()
        .map_err(|problem: ichor_model::Problem| format!("it {}; {}", problem.message, problem.remedy))
}
