//! `ichor kubeconfig`.

use std::{path::PathBuf, time::Duration};

use clap::{ValueHint, builder::FalseyValueParser};

use super::lifetime;

const EXAMPLES: &str = "\
Examples:
  ichor kubeconfig --merge                         into ~/.kube/config, beside what is there
  ichor kubeconfig --out kubeconfig                valid for half a day
  ichor kubeconfig --server cp-1                   past a VIP that is not up
  ichor --lab kubeconfig                           that of the rehearsed cluster
  kubectl --kubeconfig <(ichor kubeconfig --lifetime 10m) get nodes";

/// Makes a kubeconfig of an administrator.
///
/// Made from the cluster's secrets, and short-lived: whoever has the secrets can make another one at any time, and
/// Kubernetes cannot take a certificate back. Nobody is asked, unless the server's address is one that was leased:
/// then the machine's guest agent is, through Proxmox.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Kubeconfig {
    /// Asks nobody, also not for an address that was leased.
    #[arg(long, env = "ICHOR_OFFLINE", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub offline: bool,
    /// How long it is valid, as in `12h`, `90m` or `7d`; never longer than the authority.
    #[arg(long, value_name = "TIME", env = "ICHOR_KUBECONFIG_LIFETIME", hide_env_values = true, default_value = "12h", value_parser = lifetime::parse)]
    pub lifetime: Duration,
    /// The server it names: `endpoint`, `vip`, or the name of a control plane.
    #[arg(
        long,
        value_name = "SERVER",
        env = "ICHOR_KUBECONFIG_SERVER",
        hide_env_values = true,
        default_value = "endpoint"
    )]
    pub server: String,
    /// A proxy that kubectl goes through, as in `socks5://127.0.0.1:1080`; see `ichor tunnel`.
    #[arg(long, value_name = "URL", env = "ICHOR_KUBECONFIG_PROXY_URL", hide_env_values = true)]
    pub proxy_url: Option<String>,
    /// A file to write, for its owner alone, in place of standard output; `-` is standard output.
    #[arg(long, value_name = "FILE", env = "ICHOR_KUBECONFIG_OUT", hide_env_values = true, value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    /// Adds it to the file, and makes it the current context: `--out`, or what kubectl reads.
    ///
    /// That is the file in `KUBECONFIG`, or `~/.kube/config`. Contexts of other clusters stay. One of this cluster is
    /// renewed, and keeps what was set in it, such as a namespace. If another cluster has the name, this one's gets a
    /// number. Comments are not kept.
    #[arg(long, env = "ICHOR_KUBECONFIG_MERGE", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub merge: bool,
    /// The name of the context. Absent: `admin@CLUSTER`.
    #[arg(long, value_name = "NAME", env = "ICHOR_KUBECONFIG_CONTEXT", hide_env_values = true, value_parser = super::context_name)]
    pub context: Option<String>,
    /// Writes over a file that is not a kubeconfig, or that holds access to other clusters.
    ///
    /// With `--merge`: replaces a context of the same name that leads to another cluster, and nothing else.
    #[arg(long, visible_alias = "force", env = "ICHOR_KUBECONFIG_OVERWRITE", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub overwrite: bool,
    /// A plain bundle in place of the one that is kept; `-` for standard input.
    #[arg(long, value_name = "FILE", env = "ICHOR_SECRETS", hide_env_values = true, value_hint = ValueHint::FilePath)]
    pub secrets: Option<PathBuf>,
}
