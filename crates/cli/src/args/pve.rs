//! `ichor pve`.

use clap::{Subcommand, ValueEnum};

const EXAMPLES: &str = "\
Examples:
  ichor pve role                           the account that the inventory needs, as commands for a host's shell";

const ROLE_EXAMPLES: &str = "\
Examples:
  ichor pve role                           look at the commands first
  ichor pve role | ssh root@pve1           make the account; it prints the token's secret once
  ichor pve role --release 8               for Proxmox 8, whose privileges have other names
  ichor pve role -o json | jq .roles       what each role may do";

/// Tells what ichor needs of Proxmox.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
pub struct Pve {
    /// What to tell.
    #[command(subcommand)]
    pub verb: PveVerb,
}

/// What to tell of Proxmox.
#[derive(Debug, Subcommand)]
pub enum PveVerb {
    /// Prints the account that a cluster is run with: it may do what the inventory needs, and nothing else.
    ///
    /// The commands are for the shell of a Proxmox host, as root. Nothing is asked or changed. With `proxmox.pool` the
    /// account may touch the VMs of that pool alone; without, all VMs.
    #[command(after_help = ROLE_EXAMPLES)]
    Role(Role),
}

/// Options of `ichor pve role`.
#[derive(Debug, clap::Args)]
pub struct Role {
    /// The major release of Proxmox.
    #[arg(
        long,
        value_name = "RELEASE",
        env = "ICHOR_PVE_ROLE_RELEASE",
        hide_env_values = true,
        default_value = "9"
    )]
    pub release: Major,
    /// The user, with its realm.
    #[arg(long, value_name = "USER@REALM", env = "ICHOR_PVE_ROLE_USER", hide_env_values = true, default_value = "ichor@pve", value_parser = user)]
    pub user: String,
    /// The name of the token; absent: the cluster's.
    #[arg(long, value_name = "NAME", env = "ICHOR_PVE_ROLE_TOKEN", hide_env_values = true, value_parser = token)]
    pub token: Option<String>,
}

/// A major release of Proxmox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Major {
    /// Proxmox 8.
    #[value(name = "8")]
    Eight,
    /// Proxmox 9.
    #[value(name = "9")]
    Nine,
}

/// The words end up in a shell: nothing that it would read in a way of its own.
fn is_plain(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.len() <= 60
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

fn user(text: &str) -> Result<String, &'static str> {
    let plain = text.rsplit_once('@').is_some_and(|(name, realm)| is_plain(name) && is_plain(realm));
    if plain {
        Ok(text.to_owned())
    } else {
        Err("a user is NAME@REALM, of letters, digits, `.`, `-` and `_`")
    }
}

fn token(text: &str) -> Result<String, &'static str> {
    if is_plain(text) { Ok(text.to_owned()) } else { Err("a name has letters, digits, `.`, `-` and `_`") }
}
