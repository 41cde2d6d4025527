//! `ichor init`.

use std::net::{IpAddr, Ipv4Addr};

use clap::builder::FalseyValueParser;
use ichor_model::{ClusterName, HostName, KubernetesVersion, TalosVersion};
use ipnet::Ipv4Net;

const EXAMPLES: &str = "\
Examples:
  ichor init                                       ask everything, and write ./ichor.yaml
  ichor init --endpoint pve1.lab.example           ask the rest
  ichor -f prod/ichor.yaml init --name prod        write it elsewhere
  ichor init --endpoint pve1 --yes < /dev/null     take what is suggested, and ask nobody
  ichor lab serve, and then init with what it tells   try it without a Proxmox";

/// Writes a first inventory, from what Proxmox shows and a few answers.
///
/// Proxmox is only looked at. At a terminal every question that no flag answers is asked, with a suggestion from
/// what is there; elsewhere the suggestions are taken. The API token is read from the environment variable that
/// `--token-env` names, or asked for; one that was typed may be kept, encrypted, where the inventory finds it. The inventory is checked before it is written, and a file that is
/// there already is never replaced.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Init {
    /// The cluster's name.
    #[arg(long, value_name = "NAME", env = "ICHOR_INIT_NAME", hide_env_values = true)]
    pub name: Option<ClusterName>,
    /// The address of any host of the Proxmox cluster.
    #[arg(long, value_name = "URL", env = "ICHOR_INIT_ENDPOINT", hide_env_values = true)]
    pub endpoint: Option<String>,
    /// The SHA-256 fingerprint of its certificate, where no authority vouches for it.
    #[arg(long, value_name = "SHA256", env = "ICHOR_INIT_FINGERPRINT", hide_env_values = true)]
    pub fingerprint: Option<ichor_net::Fingerprint>,
    /// A way into its network, such as `ssh://user@host`; several are passed one behind the other.
    #[arg(long, value_name = "URL", env = "ICHOR_INIT_JUMP", hide_env_values = true, value_delimiter = ',')]
    pub jump: Vec<String>,
    /// The environment variable that the API token is in.
    #[arg(
        long,
        value_name = "NAME",
        env = "ICHOR_INIT_TOKEN_ENV",
        hide_env_values = true,
        default_value = "ICHOR_PVE_TOKEN",
        value_parser = variable
    )]
    pub token_env: String,
    /// A resource pool for its VMs.
    #[arg(long, value_name = "NAME", env = "ICHOR_INIT_POOL", hide_env_values = true)]
    pub pool: Option<String>,
    /// The hosts to use; absent: all that are online.
    #[arg(
        long,
        value_name = "HOST",
        env = "ICHOR_INIT_HOSTS",
        hide_env_values = true,
        value_delimiter = ','
    )]
    pub hosts: Vec<HostName>,
    /// The storage of VM disks.
    #[arg(long, value_name = "STORAGE", env = "ICHOR_INIT_DISKS", hide_env_values = true)]
    pub disks: Option<String>,
    /// The storage of downloaded images.
    #[arg(long, value_name = "STORAGE", env = "ICHOR_INIT_IMAGES", hide_env_values = true)]
    pub images: Option<String>,
    /// The bridge that VMs are on.
    #[arg(long, value_name = "BRIDGE", env = "ICHOR_INIT_BRIDGE", hide_env_values = true)]
    pub bridge: Option<String>,
    /// The VLAN on it.
    #[arg(long, value_name = "VLAN", env = "ICHOR_INIT_VLAN", hide_env_values = true, value_parser = clap::value_parser!(u16).range(1..=4094))]
    pub vlan: Option<u16>,
    /// The network of the machines, such as `192.168.1.0/24`.
    #[arg(long, value_name = "CIDR", env = "ICHOR_INIT_CIDR", hide_env_values = true)]
    pub cidr: Option<Ipv4Net>,
    /// Its gateway.
    #[arg(long, value_name = "ADDRESS", env = "ICHOR_INIT_GATEWAY", hide_env_values = true)]
    pub gateway: Option<Ipv4Addr>,
    /// Name servers; absent: the gateway.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "ICHOR_INIT_DNS",
        hide_env_values = true,
        value_delimiter = ','
    )]
    pub dns: Vec<IpAddr>,
    /// How many control planes: an odd number.
    #[arg(long, value_name = "COUNT", env = "ICHOR_INIT_CONTROL_PLANES", hide_env_values = true, value_parser = clap::value_parser!(u32).range(1..=9))]
    pub control_planes: Option<u32>,
    /// How many workers.
    #[arg(long, value_name = "COUNT", env = "ICHOR_INIT_WORKERS", hide_env_values = true, value_parser = clap::value_parser!(u32).range(0..=500))]
    pub workers: Option<u32>,
    /// The address of the first control plane; the others follow it.
    #[arg(long, value_name = "ADDRESS", env = "ICHOR_INIT_ADDRESS", hide_env_values = true)]
    pub address: Option<Ipv4Addr>,
    /// The address of the first worker; the others follow it.
    #[arg(long, value_name = "ADDRESS", env = "ICHOR_INIT_WORKER_ADDRESS", hide_env_values = true)]
    pub worker_address: Option<Ipv4Addr>,
    /// The address that several control planes share.
    #[arg(long, value_name = "ADDRESS", env = "ICHOR_INIT_VIP", hide_env_values = true)]
    pub vip: Option<Ipv4Addr>,
    /// The release of Talos; absent: the newest that the Image Factory has and this ichor knows.
    #[arg(long, value_name = "VERSION", env = "ICHOR_INIT_TALOS", hide_env_values = true)]
    pub talos: Option<TalosVersion>,
    /// The release of Kubernetes; absent: the one that goes with that Talos.
    #[arg(long, value_name = "VERSION", env = "ICHOR_INIT_KUBERNETES", hide_env_values = true)]
    pub kubernetes: Option<KubernetesVersion>,
    /// An Image Factory of your own.
    #[arg(long, value_name = "URL", env = "ICHOR_INIT_FACTORY", hide_env_values = true)]
    pub factory: Option<String>,
    /// Takes what is suggested wherever no flag says otherwise, and asks nothing.
    #[arg(long, short, env = "ICHOR_INIT_YES", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub yes: bool,
}

fn variable(text: &str) -> Result<String, &'static str> {
    let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if plain && text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') {
        Ok(text.to_owned())
    } else {
        Err("the name of a variable has letters, digits and `_`, and does not begin with a digit")
    }
}
