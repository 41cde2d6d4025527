//! `ichor lab`.

use std::{net::IpAddr, path::PathBuf};

use clap::{Subcommand, ValueEnum, ValueHint, builder::FalseyValueParser};

const EXAMPLES: &str = "\
Examples:
  ichor lab serve                          a datacentre of three hosts on 127.0.0.1
  ichor lab serve --state lab.json         the same, remembered in a file
  ichor lab faults --state lab.json faults.json
  ichor lab event --state lab.json host-down pve2
  ichor lab state --state lab.json | jq .pve.vms";

const SERVE_EXAMPLES: &str = "\
Examples:
  ichor lab serve --profile instant        no waiting: tasks end at once
  ichor lab serve --host pve1=32:128 --host pve2=32:128
  curl -k -H \"Authorization: PVEAPIToken=$ICHOR_PVE_TOKEN\" https://127.0.0.1:8006/api2/json/version";

const STATE_EXAMPLES: &str = "\
Examples:
  ichor lab state --state lab.json | jq '.ground.record.calls[-1]'
  ichor lab state --state lab.json | jq .lower_bound     how long the run had to take at least, and why";

const FAULTS_EXAMPLES: &str = "\
Examples:
  ichor lab faults --state lab.json                 the plan, with what was met so far
  ichor lab faults --state lab.json plan.json       sets it; `[]` clears it
  echo '[{\"server\": \"pve\", \"method\": \"POST\", \"path\": \"/nodes/*/qemu\", \"fault\": {\"status\": \
{\"code\": 596, \"when\": \"after\"}}}]' | ichor lab faults --state lab.json -";

const EVENT_EXAMPLES: &str = "\
Examples:
  ichor lab event --state lab.json host-down pve2
  ichor lab event --state lab.json --after 30 vm-replaced 2001
  ichor lab event --state lab.json --on 'POST /nodes/*/qemu' --occurrence 2 storage-full local-lvm pve1

Events:
  vm-migrated VMID HOST           somebody moved the VM with its disks
  vm-stopped VMID                 somebody pulled its plug
  vm-deleted VMID                 somebody deleted it with its disks
  vm-replaced VMID                another has its VMID, name and tags, and nothing else
  host-down HOST, host-up HOST    the host loses its power, and runs again
  storage-full STORAGE [HOST]     others take all its room; `storage-freed` gives it back
  storage-broken STORAGE          it cannot be activated; `storage-mended` ends it
  clock-lost VMID                 the machine's clock is not in sync; `clock-set` ends it
  agent-silent VMID               the guest agent does not answer; `agent-back` ends it
  impostor ADDRESS                a foreign machine answers there; `impostor-gone` ends it
  lease-changed VMID [ADDRESS]    the machine gets another DHCP lease
  certificate-swapped             Proxmox and the Image Factory show another certificate";

const RESET_EXAMPLES: &str = "\
Examples:
  ichor lab reset --state lab.json            begins again, as it was set up
  ichor lab reset --state lab.json --record   keeps the datacentre, and measures anew";

/// Runs a simulated datacentre: Proxmox, Talos machines, an Image Factory and Kubernetes.
///
/// It speaks the real protocols on this computer alone, so that curl, proxmoxer, Terraform, talosctl and kubectl work
/// with it as with the real thing, and nothing real is touched.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true)]
pub struct Lab {
    /// What to do.
    #[command(subcommand)]
    pub verb: LabVerb,
}

/// What to do with a lab.
#[derive(Debug, Subcommand)]
pub enum LabVerb {
    /// Serves a lab until it is interrupted.
    ///
    /// Machines whose addresses begin with 127 answer on these addresses. All others are reached through the proxy
    /// (SOCKS5 and HTTP CONNECT). What clients need is printed as soon as the lab listens, as variables for a shell,
    /// or with `-o json`.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Serve),
    /// Prints the whole state of a lab, as JSON or with `-o yaml`.
    #[command(after_help = STATE_EXAMPLES)]
    State(Kept),
    /// Shows or sets what goes wrong in a lab.
    #[command(after_help = FAULTS_EXAMPLES)]
    Faults(Faults),
    /// Lets something befall a lab: a host goes down, a VM is replaced by a stranger, a storage is full.
    ///
    /// It happens at once, or after a time, or with a call. It works on a lab that runs and on one in a file.
    #[command(after_help = EVENT_EXAMPLES)]
    Event(Event),
    /// Lets a lab begin again, as it was set up: whoever serves it now, and with whatever options.
    #[command(after_help = RESET_EXAMPLES)]
    Reset(Reset),
}

/// `ichor lab serve`.
#[derive(Debug, clap::Args)]
pub struct Serve {
    /// The address to listen on.
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "ICHOR_LAB_LISTEN",
        hide_env_values = true,
        default_value = "127.0.0.1"
    )]
    pub listen: IpAddr,
    /// The port of the Proxmox API; 0 for any that is free.
    #[arg(long, value_name = "PORT", env = "ICHOR_LAB_PORT", hide_env_values = true, default_value_t = 8006)]
    pub port: u16,
    /// The port of the Image Factory; 0 for any that is free.
    #[arg(
        long,
        value_name = "PORT",
        env = "ICHOR_LAB_FACTORY_PORT",
        hide_env_values = true,
        default_value_t = 8008
    )]
    pub factory_port: u16,
    /// The port of the proxy; 0 for any that is free.
    #[arg(
        long,
        value_name = "PORT",
        env = "ICHOR_LAB_PROXY_PORT",
        hide_env_values = true,
        default_value_t = 8009
    )]
    pub proxy_port: u16,
    /// A host, its threads and its memory in GiB; may be repeated. Absent: three of 16 threads and 64 GiB.
    #[arg(long = "host", value_name = "NAME=CPUS:GIB", env = "ICHOR_LAB_HOSTS", hide_env_values = true, value_delimiter = ',', value_parser = parse_host)]
    pub hosts: Vec<Host>,
    /// The release of Proxmox that all hosts run.
    #[arg(
        long,
        value_name = "RELEASE",
        env = "ICHOR_LAB_PVE",
        hide_env_values = true,
        default_value = "9.2"
    )]
    pub pve: PveRelease,
    /// How long things take.
    #[arg(
        long,
        value_name = "PROFILE",
        env = "ICHOR_LAB_PROFILE",
        hide_env_values = true,
        default_value = "lab"
    )]
    pub profile: Profile,
    /// What randomness is derived from: the same seed and the same calls give the same lab.
    #[arg(long, value_name = "NUMBER", env = "ICHOR_LAB_SEED", hide_env_values = true, default_value_t = 1)]
    pub seed: u64,
    /// How many VMs and containers of others there are: names, tags and VMIDs like ours, and none of our business.
    #[arg(
        long,
        value_name = "NUMBER",
        env = "ICHOR_LAB_STRANGERS",
        hide_env_values = true,
        default_value_t = 0,
        value_parser = clap::value_parser!(u32).range(..=1000)
    )]
    pub strangers: u32,
    /// A file that keeps the state. One that is there is continued.
    #[arg(long, value_name = "FILE", env = "ICHOR_LAB_STATE", hide_env_values = true, value_hint = ValueHint::FilePath)]
    pub state: Option<PathBuf>,
}

/// A lab with a state file.
#[derive(Debug, clap::Args)]
pub struct Kept {
    /// The file that keeps the lab's state.
    #[arg(long, value_name = "FILE", env = "ICHOR_LAB_STATE", hide_env_values = true, value_hint = ValueHint::FilePath)]
    pub state: PathBuf,
}

/// `ichor lab faults`.
#[derive(Debug, clap::Args)]
pub struct Faults {
    /// The lab.
    #[command(flatten)]
    pub kept: Kept,
    /// A fault plan as JSON; `-` for standard input. Absent: the plan is shown.
    #[arg(value_name = "PLAN", value_hint = ValueHint::FilePath)]
    pub plan: Option<PathBuf>,
}

/// `ichor lab reset`.
#[derive(Debug, clap::Args)]
pub struct Reset {
    /// The lab.
    #[command(flatten)]
    pub kept: Kept,
    /// Forgets only the calls so far, and measures anew how long a run has to take at least.
    #[arg(long, env = "ICHOR_LAB_RESET_RECORD", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub record: bool,
}

/// `ichor lab event`.
#[derive(Debug, clap::Args)]
pub struct Event {
    /// The lab.
    #[command(flatten)]
    pub kept: Kept,
    /// Let it happen after so many seconds of the lab's time.
    #[arg(
        long,
        value_name = "SECONDS",
        env = "ICHOR_LAB_EVENT_AFTER",
        hide_env_values = true,
        conflicts_with = "on"
    )]
    pub after: Option<u32>,
    /// Let it happen when such a call comes, before it has its effect; `*` in the path stands for any text.
    #[arg(long, value_name = "METHOD PATH", env = "ICHOR_LAB_EVENT_ON", hide_env_values = true)]
    pub on: Option<String>,
    /// The server that the call goes to.
    #[arg(
        long,
        value_name = "SERVER",
        env = "ICHOR_LAB_EVENT_SERVER",
        hide_env_values = true,
        default_value = "pve"
    )]
    pub server: Server,
    /// Which of these calls; 0 is every one.
    #[arg(
        long,
        value_name = "NUMBER",
        env = "ICHOR_LAB_EVENT_OCCURRENCE",
        hide_env_values = true,
        default_value_t = 1
    )]
    pub occurrence: u32,
    /// What happens, such as `host-down pve2`.
    #[arg(value_name = "EVENT", required = true)]
    pub words: Vec<String>,
}

/// A kind of server in a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Server {
    /// The Proxmox API; paths below `/api2/json`.
    Pve,
    /// The Image Factory.
    Factory,
    /// The Talos API; paths are methods, without a word before them.
    Talos,
    /// The Kubernetes API.
    Kube,
}

/// How long things take in a lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// No time at all.
    Instant,
    /// A twentieth of the real time.
    Lab,
    /// The real time.
    Wan,
}

/// A release of Proxmox that a lab knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PveRelease {
    /// 9.2, whose answers were recorded.
    #[value(name = "9.2")]
    V9_2,
    /// 8.4.
    #[value(name = "8.4")]
    V8_4,
    /// 8.0, which cannot import disk images.
    #[value(name = "8.0")]
    V8_0,
}

/// A host of a lab.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Threads of its processors.
    pub cpus: u32,
    /// Memory.
    pub gib: u64,
}

fn parse_host(text: &str) -> Result<Host, String> {
    let wrong = || "a host is written `NAME=CPUS:GIB`, as in `pve1=16:64`".to_owned();
    let (name, size) = text.split_once('=').ok_or_else(wrong)?;
    let (cpus, gib) = size.split_once(':').ok_or_else(wrong)?;
    name.parse::<ichor_model::HostName>().map_err(|_| format!("`{name}` is no name of a host"))?;
    let (cpus, gib): (u32, u64) = (cpus.parse().map_err(|_| wrong())?, gib.parse().map_err(|_| wrong())?);
    if !(1..=4096).contains(&cpus) || !(1..=65_536).contains(&gib) {
        return Err("a host has 1 to 4096 threads and 1 to 65536 GiB".to_owned());
    }
    Ok(Host { name: name.to_owned(), cpus, gib })
}
