//! `ichor tunnel`.

const EXAMPLES: &str = "\
Examples:
  ichor tunnel                             prints what to export; ends with Ctrl-C
  ichor tunnel --port 1080                 always at the same place
  ichor kubeconfig --offline --proxy-url socks5://127.0.0.1:1080 --out kubeconfig";

/// Holds the way into a private network open for kubectl and talosctl.
///
/// Listens on this computer alone, for SOCKS5 and HTTP CONNECT on one port, and leads through `proxmox.jump` to the
/// cluster's machines, its VIP, its endpoint and its Proxmox; anything else is refused. Whoever can log in to this
/// computer can use it while it is open, but needs the keys of Proxmox, Talos or Kubernetes to get any further.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Tunnel {
    /// The port to listen on; 0 is any that is free.
    #[arg(long, value_name = "PORT", env = "ICHOR_TUNNEL_PORT", hide_env_values = true, default_value_t = 0)]
    pub port: u16,
}
