//! `ichor kubeconfig`.

use std::{path::PathBuf, time::Duration};

use clap::{ValueHint, builder::FalseyValueParser};

use super::lifetime;

const EXAMPLES: &str = "\
Examples:
  ichor kubeconfig --offline --out kubeconfig      valid for half a day
  ichor kubeconfig --offline --server cp-1         past a VIP that is not up
  kubectl --kubeconfig <(ichor kubeconfig --offline --lifetime 10m) get nodes";

/// Makes a kubeconfig of an administrator.
///
/// Made from the cluster's secrets, without asking any machine, and short-lived: whoever has the secrets
/// can make another one at any time, and Kubernetes cannot take a certificate back.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Kubeconfig {
    /// Makes it here, without asking the cluster.
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
    /// A file to write, for its owner alone, in place of standard output.
    #[arg(long, value_name = "FILE", env = "ICHOR_KUBECONFIG_OUT", hide_env_values = true, value_hint = ValueHint::FilePath)]
    pub out: Option<PathBuf>,
    /// Writes over a file that is not a kubeconfig, or that holds access to other clusters.
    #[arg(long, env = "ICHOR_KUBECONFIG_OVERWRITE", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub overwrite: bool,
    /// A plain bundle in place of the one that is kept; `-` for standard input.
    #[arg(long, value_name = "FILE", env = "ICHOR_SECRETS", hide_env_values = true, value_hint = ValueHint::FilePath)]
    pub secrets: Option<PathBuf>,
}
