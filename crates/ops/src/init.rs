//! A first inventory: from what Proxmox shows, and from what somebody answers.
//!
//! 1. [`look`] asks Proxmox what there is;
//! 2. [`Surroundings`] suggests an answer to every question, so that a newcomer can say yes to all of them;
//! 3. [`Answers::inventory`] writes the inventory, with a word on what stands in it.
//!
//! Nothing here asks anybody: the command line does, and it resolves the inventory before it writes it.

mod look;
mod probe;
mod text;

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
};

use ichor_model::{HostName, Size};
use ipnet::{IpNet, Ipv4Net};

pub use self::{
    look::look,
    probe::{newest_talos, quiet},
};

/// A bridge that most hosts have.
const USUAL_BRIDGE: &str = "vmbr0";
/// The least memory with which machines are of use.
const SMALL: &str = "2GiB";
/// Where addresses are looked for first: the beginning and the end of a network are where people and routers put theirs.
const FIRST_OFFSET: u32 = 50;

/// What Proxmox shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Its release, in its own words.
    pub release: String,
    /// Hosts that are online.
    pub hosts: Vec<Host>,
    /// Storages.
    pub storages: Vec<Storage>,
    /// Bridges that VMs can be on.
    pub bridges: Vec<Bridge>,
    /// How many VMs and containers there are.
    pub guests: usize,
}

/// A host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Its name.
    pub name: HostName,
    /// Hardware threads, if they are shown.
    pub cpu: Option<u32>,
    /// Memory, if it is shown.
    pub memory: Option<Size>,
}

/// A storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Storage {
    /// Its name.
    pub name: String,
    /// The hosts that have it.
    pub hosts: BTreeSet<HostName>,
    /// What it may hold.
    pub content: BTreeSet<String>,
    /// Free room on the host that has the least, in bytes.
    pub free: u64,
}

/// A bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bridge {
    /// Its name.
    pub name: String,
    /// The hosts that have it.
    pub hosts: BTreeSet<HostName>,
    /// The network that hosts have an address of on it.
    pub network: Option<Ipv4Net>,
    /// The gateway of that network.
    pub gateway: Option<Ipv4Addr>,
    /// Addresses of hosts on it.
    pub addresses: BTreeSet<IpAddr>,
}

/// What somebody answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answers {
    /// The cluster's name.
    pub name: String,
    /// The address of Proxmox.
    pub endpoint: String,
    /// The fingerprint of its certificate, if no authority vouches for it.
    pub fingerprint: Option<String>,
    /// The ways into its network, the nearest first.
    pub jump: Vec<String>,
    /// Where the token is.
    pub token: TokenAt,
    /// The pool of its VMs.
    pub pool: Option<String>,
    /// The hosts.
    pub hosts: Vec<HostName>,
    /// The storage of disks.
    pub disks: String,
    /// The storage of images.
    pub images: String,
    /// The bridge.
    pub bridge: String,
    /// The VLAN.
    pub vlan: Option<u16>,
    /// The network.
    pub cidr: Ipv4Net,
    /// Its gateway.
    pub gateway: Ipv4Addr,
    /// Name servers.
    pub dns: Vec<IpAddr>,
    /// How many control planes.
    pub control_planes: u32,
    /// How many workers.
    pub workers: u32,
    /// The address of the first control plane.
    pub control_planes_from: Ipv4Addr,
    /// The address of the first worker.
    pub workers_from: Ipv4Addr,
    /// The address that control planes share.
    pub vip: Option<Ipv4Addr>,
    /// The release of Talos.
    pub talos: String,
    /// The release of Kubernetes.
    pub kubernetes: String,
    /// Another Image Factory than the public one.
    pub factory: Option<String>,
    /// What machines do with less of than usual.
    pub thrift: Thrift,
}

/// How much less machines ask for than usual, where hosts are full. Memory is never given twice: a host that runs out of
/// it stops VMs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thrift {
    /// How often each processor counts.
    pub times: u32,
    /// Whether machines have the least memory that is of use.
    pub is_small: bool,
}

impl Thrift {
    /// Nothing less than usual.
    pub const NONE: Self = Self { times: 1, is_small: false };

    /// What can be tried, from the least painful on.
    pub const STEPS: [Self; 6] = [
        Self { times: 2, is_small: false },
        Self { times: 4, is_small: false },
        Self { times: 1, is_small: true },
        Self { times: 2, is_small: true },
        Self { times: 4, is_small: true },
        Self { times: 8, is_small: true },
    ];

    /// Says what it means.
    pub fn words(self) -> String {
        let processors = format!("processors count {} times, so machines share them", self.times);
        let memory = format!("machines have {SMALL} of memory each, which is little");
        match self {
            Self { times: 1, is_small: false } => "nothing is given twice".to_owned(),
            Self { times: 1, is_small: true } => memory,
            Self { is_small: false, .. } => processors,
            Self { is_small: true, .. } => format!("{processors}, and {memory}"),
        }
    }
}

/// Where the token is that Proxmox knows us by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenAt {
    /// In an environment variable.
    Variable(String),
    /// In an encrypted file, `path#key`.
    Sealed(String),
}

impl Surroundings {
    /// Returns the storages that may hold something, on all of these hosts, the usual ones first, then those with most room.
    pub fn storages_for(&self, content: &str, hosts: &[HostName], usual: &str) -> Vec<&Storage> {
        let fits = |storage: &&Storage| {
            storage.content.contains(content) && hosts.iter().all(|host| storage.hosts.contains(host))
        };
        let mut storages: Vec<&Storage> = self.storages.iter().filter(fits).collect();
        storages.sort_by_key(|storage| {
            (storage.name != usual, std::cmp::Reverse(storage.free), storage.name.clone())
        });
        storages
    }

    /// Returns the bridges that all of these hosts have, the usual one first.
    pub fn bridges_of(&self, hosts: &[HostName]) -> Vec<&Bridge> {
        let everywhere = |bridge: &&Bridge| hosts.iter().all(|host| bridge.hosts.contains(host));
        let mut bridges: Vec<&Bridge> = self.bridges.iter().filter(everywhere).collect();
        bridges.sort_by_key(|bridge| {
            (bridge.name != USUAL_BRIDGE, bridge.gateway.is_none(), bridge.name.clone())
        });
        bridges
    }

    /// Returns a number of control planes that these hosts can carry: one that survives the loss of any of them, if
    /// there are enough.
    pub fn control_planes(hosts: usize) -> u32 {
        if hosts >= 3 { 3 } else { 1 }
    }

    /// Returns addresses of a network that can be asked for signs of life, in the order in which they should be tried.
    /// None of a host, of the gateway, or of those given.
    pub fn candidates(&self, cidr: Ipv4Net, taken: &BTreeSet<Ipv4Addr>) -> Vec<Ipv4Addr> {
        let is_of_host = |address: &Ipv4Addr| {
            self.bridges.iter().any(|bridge| {
                bridge.gateway == Some(*address) || bridge.addresses.contains(&IpAddr::V4(*address))
            })
        };
        let start = u32::from(cidr.network());
        let hosts = u32::from(cidr.broadcast()).saturating_sub(start);
        let first = if hosts > FIRST_OFFSET * 2 { FIRST_OFFSET } else { 2 };
        (first..hosts.min(first + 1024))
            .map(|offset| Ipv4Addr::from(start + offset))
            .filter(|address| !is_of_host(address) && !taken.contains(address))
            .collect()
    }
}

/// Returns the first of so many addresses in a row that nobody has, a round one if there is one: it is remembered more
/// easily, and leaves room behind those before it.
pub fn run_of(free: &[Ipv4Addr], count: u32) -> Option<Ipv4Addr> {
    let count = usize::try_from(count.max(1)).ok()?;
    let in_a_row = |window: &&[Ipv4Addr]| {
        window.windows(2).all(|pair| u32::from(pair[0]).checked_add(1) == Some(u32::from(pair[1])))
    };
    let runs: Vec<Ipv4Addr> = free.windows(count).filter(in_a_row).map(|window| window[0]).collect();
    runs.iter().find(|first| first.octets()[3] % 10 == 0).or(runs.first()).copied()
}

/// Reads the address of Proxmox as people write it: a name alone is enough.
pub fn endpoint(text: &str) -> String {
    let text = text.trim().trim_end_matches('/');
    let (scheme, rest) = text.split_once("://").unwrap_or(("https", text));
    // The web page's address is as good as the API's.
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    let has_port = match authority.rsplit_once(']') {
        Some((_, after)) => after.starts_with(':'),
        None => authority.matches(':').count() == 1,
    };
    let bare_v6 = authority.matches(':').count() > 1 && !authority.starts_with('[');
    let authority = if bare_v6 { format!("[{authority}]") } else { authority.to_owned() };
    if has_port { format!("{scheme}://{authority}") } else { format!("{scheme}://{authority}:8006") }
}

/// Returns the network of an address with its length of prefix.
fn network(cidr: &str) -> Option<(Ipv4Net, IpAddr)> {
    match cidr.parse::<IpNet>().ok()? {
        IpNet::V4(net) => Some((net.trunc(), IpAddr::V4(net.addr()))),
        IpNet::V6(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> HostName {
        name.parse().expect("a host")
    }

    fn storage(name: &str, hosts: &[&str], content: &[&str], free: u64) -> Storage {
        let hosts = hosts.iter().map(|name| host(name)).collect();
        let content = content.iter().map(|word| (*word).to_owned()).collect();
        Storage { name: name.into(), hosts, content, free }
    }

    fn datacentre() -> Surroundings {
        let bridge = |name: &str, hosts: &[&str], cidr: &str| Bridge {
            name: name.into(),
            hosts: hosts.iter().map(|name| host(name)).collect(),
            network: network(cidr).map(|(network, _)| network),
            gateway: Some("10.0.0.1".parse().expect("an address")),
            addresses: network(cidr).map(|(_, address)| address).into_iter().collect(),
        };
        Surroundings {
            release: "9.2.4".into(),
            hosts: vec![],
            storages: vec![
                storage("big", &["pve1", "pve2"], &["images"], 900),
                storage("local", &["pve1", "pve2"], &["import", "iso"], 50),
                storage("local-lvm", &["pve1", "pve2"], &["images"], 100),
                storage("odd", &["pve1"], &["images"], 9000),
            ],
            bridges: vec![
                bridge("vmbr1", &["pve1"], "10.0.0.52/24"),
                bridge("vmbr0", &["pve1", "pve2"], "10.0.0.9/24"),
            ],
            guests: 3,
        }
    }

    #[test]
    fn only_what_all_hosts_have_is_offered() {
        let there = datacentre();
        let names = |content: &str, hosts: &[&str]| -> Vec<String> {
            let hosts: Vec<HostName> = hosts.iter().map(|name| host(name)).collect();
            there.storages_for(content, &hosts, "local-lvm").iter().map(|it| it.name.clone()).collect()
        };
        assert_eq!(names("images", &["pve1"]), ["local-lvm", "odd", "big"]);
        assert_eq!(names("images", &["pve1", "pve2"]), ["local-lvm", "big"]);
        assert_eq!(names("import", &["pve1"]), ["local"]);
        let bridges = there.bridges_of(&[host("pve1"), host("pve2")]);
        assert_eq!(bridges.iter().map(|bridge| bridge.name.as_str()).collect::<Vec<_>>(), ["vmbr0"]);
    }

    #[test]
    fn addresses_are_those_of_nobody() {
        let there = datacentre();
        let cidr: Ipv4Net = "10.0.0.0/24".parse().expect("a network");
        let at = |last: u8| Ipv4Addr::new(10, 0, 0, last);
        let candidates = there.candidates(cidr, &BTreeSet::from([at(50)]));
        assert_eq!(candidates[..2], [at(51), at(53)], "52 is a host");
        assert_eq!(run_of(&candidates, 3), Some(at(60)));
        assert_eq!(run_of(&candidates[..5], 1), Some(at(51)));
        assert_eq!(run_of(&candidates, 1000), None);
        assert_eq!(candidates.last(), Some(&at(254)), "and not the broadcast address");
        let tiny: Ipv4Net = "10.0.0.0/30".parse().expect("a network");
        assert_eq!(there.candidates(tiny, &BTreeSet::new()), [at(2)]);
        let one: Ipv4Net = "10.0.0.0/32".parse().expect("a network");
        assert_eq!(there.candidates(one, &BTreeSet::new()), [] as [Ipv4Addr; 0]);
    }

    #[test]
    fn proxmox_is_found_by_what_people_type() {
        for (typed, meant) in [
            ("pve1", "https://pve1:8006"),
            (" pve1.lab.example/ ", "https://pve1.lab.example:8006"),
            ("https://10.0.0.9:8006/#v1:0:18:4", "https://10.0.0.9:8006"),
            ("10.0.0.9:443", "https://10.0.0.9:443"),
            ("fd00::1", "https://[fd00::1]:8006"),
            ("https://[fd00::1]:8006", "https://[fd00::1]:8006"),
            ("http://127.0.0.1:1", "http://127.0.0.1:1"),
        ] {
            assert_eq!(endpoint(typed), meant);
        }
    }
}
