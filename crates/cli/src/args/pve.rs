//! `ichor pve`.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum, ValueHint, builder::FalseyValueParser};

const EXAMPLES: &str = "\
Examples:
  ichor pve setup                          makes the account, and keeps its token encrypted
  ichor pve role                           the account that the inventory needs, as commands for a host's shell";

const ROLE_EXAMPLES: &str = "\
Examples:
  ichor pve role                           look at the commands first
  ichor pve role | ssh root@pve1           make the account; it prints the token's secret once
  ichor pve role --release 8               for Proxmox 8, whose privileges have other names
  ichor pve role -o json | jq .roles       what each role may do";

const SETUP_EXAMPLES: &str = "\
Examples:
  ichor pve setup                          asks for root's password, shows what it will do, and asks
  ichor pve setup --dry-run                shows what is missing, and changes nothing
  ichor pve setup --admin admin@pve        logs in as somebody else
  ichor pve setup --yes --password-file /run/secrets/pve
                                           without anybody to ask; `-` reads standard input
  ichor pve setup --for ccm                the account of the cloud controller manager";

/// Tells what ichor needs of Proxmox, and sees to it.
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
    /// Makes that account over the API: roles, pool, user, token and rights.
    ///
    /// Logs in once as an administrator, with a password that is not kept. Shows what it will do, and asks. The new
    /// token goes encrypted into a SOPS file, and the line for the inventory is told; its secret is not. What is there
    /// already is left alone or put right, so that running it again does nothing, and running it after it was stopped
    /// goes on. An administrator with an authenticator app (TOTP) is asked for the code; those with other second factors
    /// use the commands of `ichor pve role`.
    #[command(after_help = SETUP_EXAMPLES)]
    Setup(Setup),
}

/// Options of `ichor pve setup`.
#[derive(Debug, clap::Args)]
pub struct Setup {
    /// Who logs in, with the realm: somebody who may change users, roles and rights.
    #[arg(long, value_name = "USER@REALM", env = "ICHOR_PVE_SETUP_ADMIN", hide_env_values = true, default_value = "root@pam", value_parser = user)]
    pub admin: String,
    /// A file with the password, `-` for standard input. Absent: it is asked for.
    #[arg(long, value_name = "FILE", env = "ICHOR_PVE_SETUP_PASSWORD_FILE", hide_env_values = true, value_hint = ValueHint::FilePath)]
    pub password_file: Option<PathBuf>,
    /// A file with the code of an authenticator app, `-` for standard input. Absent: it is asked for if Proxmox wants one.
    #[arg(long, value_name = "FILE", env = "ICHOR_PVE_SETUP_TOTP_FILE", hide_env_values = true, value_hint = ValueHint::FilePath)]
    pub totp_file: Option<PathBuf>,
    /// Whose account it is.
    #[arg(
        long = "for",
        value_name = "WHOM",
        env = "ICHOR_PVE_SETUP_FOR",
        hide_env_values = true,
        default_value = "ichor"
    )]
    pub purpose: Purpose,
    /// The user of the account, with its realm; absent: `ichor@pve`, `ichor-ccm@pve` or
    /// `ichor-csi@pve`. It may belong to several clusters of ichor's, and should have no other rights.
    #[arg(long, value_name = "USER@REALM", env = "ICHOR_PVE_SETUP_USER", hide_env_values = true, value_parser = user)]
    pub user: Option<String>,
    /// The name of the token; absent: the cluster's.
    #[arg(long, value_name = "NAME", env = "ICHOR_PVE_SETUP_TOKEN", hide_env_values = true, value_parser = token)]
    pub token: Option<String>,
    /// The SOPS file that the token goes into, relative to the inventory; absent: the one that the inventory names for
    /// its token, else `tokens.sops.yaml`.
    #[arg(long = "into", value_name = "FILE", env = "ICHOR_PVE_SETUP_INTO", hide_env_values = true, value_hint = ValueHint::FilePath)]
    pub into: Option<String>,
    /// Makes a token anew whose secret is not known here; whoever uses it is locked out.
    #[arg(long, env = "ICHOR_PVE_SETUP_NEW_TOKEN", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub new_token: bool,
    /// Puts the token in the place of one of another name that is kept there. That one stays on Proxmox, and its secret
    /// is lost unless somebody else has it.
    #[arg(long, env = "ICHOR_PVE_SETUP_REPLACE_TOKEN", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub replace_token: bool,
    /// Prints the token, with its secret, to standard output besides.
    #[arg(long, env = "ICHOR_PVE_SETUP_SHOW_TOKEN", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub show_token: bool,
    /// Goes ahead without asking.
    #[arg(long, env = "ICHOR_PVE_SETUP_YES", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub yes: bool,
    /// Shows what it would do, and changes nothing; exit code 2 if that is anything.
    #[arg(long, env = "ICHOR_PVE_SETUP_DRY_RUN", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub dry_run: bool,
}

/// Whose account it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Purpose {
    /// Ichor's own, for a cluster.
    Ichor,
    /// That of the Proxmox cloud controller manager.
    Ccm,
    /// That of the Proxmox CSI plugin.
    Csi,
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
    if is_token(text) {
        Ok(text.to_owned())
    } else {
        Err("a name begins with a letter and has two or more letters, digits, `.`, `-` and `_`")
    }
}

/// Whether Proxmox takes a text for the name of a token.
fn is_token(text: &str) -> bool {
    is_plain(text) && text.len() >= 2 && text.starts_with(|first: char| first.is_ascii_alphabetic())
}

/// Returns the usual name of a cluster's token: its own, or one that Proxmox takes.
pub fn token_of(cluster: &str) -> String {
    if is_token(cluster) { cluster.to_owned() } else { format!("ichor-{cluster}") }
}
