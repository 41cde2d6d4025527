//! The questions about a cluster, each with a suggestion from what Proxmox shows.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr},
};

use ichor_model::{HostName, KubernetesVersion, TalosVersion};
use ichor_net::Endpoint;
use ichor_ops::init::{self, Answers, Surroundings, Thrift};
use ichor_plan::support;
use ichor_port::clean;
use ipnet::Ipv4Net;

use super::{Door, Stop, Wizard, missing, read};
use crate::{exit::Exit, failure::Failure, questions::Choice};

/// The public Image Factory.
const FACTORY: &str = "https://factory.talos.dev";
/// The release that is suggested when no factory tells a newer one.
const KNOWN_TALOS: (u64, u64, u64) = (1, 13, 9);

impl Wizard<'_> {
    pub(super) fn answers(&self, door: &Door, there: &Surroundings) -> Result<Answers, Stop> {
        let args = self.args;
        let hosts = self.hosts(there)?;
        let disks = self.storage(
            "Storage for disks",
            "--disks",
            args.disks.as_ref(),
            there,
            ("images", "local-lvm"),
            &hosts,
        )?;
        let images = self.storage(
            "Storage for Talos images",
            "--images",
            args.images.as_ref(),
            there,
            ("import", "local"),
            &hosts,
        )?;
        let (bridge, cidr, gateway, dns) = self.network(there, &hosts)?;
        let control_planes = match args.control_planes {
            Some(count) => count,
            None => self.questions.ask(
                "Control planes",
                Some(Surroundings::control_planes(hosts.len())),
                |typed| match typed.parse() {
                    Ok(count) if (1..=9).contains(&count) && count % 2 == 1 => Ok(count),
                    _ => Err(
                        "an odd number from 1 to 9: of an even one no more may fail than of the one below it"
                            .into(),
                    ),
                },
            )?,
        };
        let workers = match args.workers {
            Some(count) => count,
            None => self.questions.ask("Workers", Some(2), |typed| {
                typed
                    .parse()
                    .ok()
                    .filter(|count| *count <= 500)
                    .ok_or_else(|| "a number from 0 to 500".into())
            })?,
        };
        let places = self.addresses(door, there, (cidr, gateway), (control_planes, workers))?;
        let (talos, kubernetes) = self.releases(door)?;
        Ok(Answers {
            name: door.name.to_string(),
            endpoint: door.endpoint.clone(),
            fingerprint: door.fingerprint.map(|fingerprint| fingerprint.to_string()),
            jump: args.jump.clone(),
            token: door.token.at.clone(),
            pool: args.pool.clone(),
            hosts,
            disks,
            images,
            bridge,
            vlan: args.vlan,
            cidr,
            gateway,
            dns,
            control_planes,
            workers,
            control_planes_from: places.control_planes,
            workers_from: places.workers,
            vip: places.vip,
            talos: talos.to_string(),
            kubernetes: kubernetes.to_string(),
            factory: args.factory.clone(),
            thrift: Thrift::NONE,
        })
    }

    fn hosts(&self, there: &Surroundings) -> Result<Vec<HostName>, Stop> {
        let all: Vec<HostName> = there.hosts.iter().map(|host| host.name.clone()).collect();
        let known = |name: &HostName| all.contains(name);
        let listed = || all.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        if let Some(unknown) = self.args.hosts.iter().find(|name| !known(name)) {
            return Err(Failure::new(
                Exit::InvalidInput,
                format!("there is no host `{unknown}` that is online"),
            )
            .because(format!("there are {}", listed()))
            .into());
        }
        if !self.args.hosts.is_empty() {
            return Ok(self.args.hosts.clone());
        }
        if all.is_empty() {
            return Err(Failure::new(Exit::Preflight, "Proxmox shows no host that is online")
                .hint("see whether the account may look: it needs `Sys.Audit` on `/nodes`")
                .into());
        }
        if all.len() == 1 {
            return Ok(all);
        }
        for host in &there.hosts {
            let cpu = host.cpu.map(|cpu| format!("{cpu} threads")).unwrap_or_default();
            let memory = host.memory.map(|memory| format!(", {memory}")).unwrap_or_default();
            self.questions.say(&format!("  {}  {cpu}{memory}", host.name));
        }
        let answer = self.questions.ask("Hosts to use", Some(listed()), |typed| {
            let names: Vec<&str> = typed.split([',', ' ']).filter(|name| !name.is_empty()).collect();
            match names.iter().find(|name| !name.parse().is_ok_and(|name| known(&name))) {
                Some(name) => Err(format!("there is no host `{}`; there are {}", clean(name), listed())),
                None => Ok(names.join(", ")),
            }
        })?;
        let chosen: BTreeSet<&str> = answer.split(", ").collect();
        Ok(all.into_iter().filter(|name| chosen.contains(name.as_str())).collect())
    }

    fn storage(
        &self,
        question: &str,
        flag: &str,
        given: Option<&String>,
        there: &Surroundings,
        (content, usual): (&str, &str),
        hosts: &[HostName],
    ) -> Result<String, Stop> {
        let fitting = there.storages_for(content, hosts, usual);
        if let Some(given) = given {
            if fitting.iter().any(|storage| storage.name == *given) {
                return Ok(given.clone());
            }
            let names: Vec<&str> = fitting.iter().map(|storage| storage.name.as_str()).collect();
            return Err(Failure::new(
                Exit::InvalidInput,
                format!("`{flag} {}` cannot be used", clean(given)),
            )
            .because(format!(
                "no storage of that name may hold `{content}` on all hosts; these may: {}",
                names.join(", ")
            ))
            .into());
        }
        if fitting.is_empty() {
            return Err(Failure::new(Exit::Preflight, format!("no storage may hold `{content}` on all hosts"))
                .because("Proxmox keeps a list for each storage of what it may hold")
                .hint(format!("let one hold it under Datacenter > Storage > Edit > Content, or on a host, with all that it is to hold:\n    pvesm set {usual} --content iso,vztmpl,backup,{content}"))
                .into());
        }
        let choices: Vec<Choice> = fitting
            .iter()
            .map(|storage| Choice {
                name: storage.name.clone(),
                about: format!("{} GiB free", storage.free >> 30),
            })
            .collect();
        Ok(self.questions.choose(question, &choices)?)
    }

    fn network(
        &self,
        there: &Surroundings,
        hosts: &[HostName],
    ) -> Result<(String, Ipv4Net, Ipv4Addr, Vec<IpAddr>), Stop> {
        let args = self.args;
        let bridges = there.bridges_of(hosts);
        let bridge = match &args.bridge {
            Some(bridge) => bridge.clone(),
            None if bridges.is_empty() => {
                return Err(Failure::new(Exit::Preflight, "no bridge is shown that all hosts have")
                    .hint("name it, as in\n    ichor init --bridge vmbr0")
                    .into());
            }
            None => {
                let about = |network: Option<Ipv4Net>| {
                    network.map_or_else(String::new, |network| network.to_string())
                };
                let choice = |it: &&init::Bridge| Choice { name: it.name.clone(), about: about(it.network) };
                self.questions.choose("Bridge", &bridges.iter().map(choice).collect::<Vec<_>>())?
            }
        };
        // Behind a VLAN there is another network than the hosts' own.
        let own = bridges.iter().find(|it| it.name == bridge && args.vlan.is_none());
        let cidr = match args.cidr {
            Some(cidr) => cidr.trunc(),
            None => self
                .questions
                .ask("Network of the machines", own.and_then(|it| it.network), read)
                .map_err(|none| missing(none, "--cidr", "192.168.1.0/24"))?
                .trunc(),
        };
        let gateway = match args.gateway {
            Some(gateway) => gateway,
            None => {
                let seen = own.and_then(|it| it.gateway).filter(|gateway| cidr.contains(gateway));
                let usual = seen.or_else(|| cidr.hosts().next());
                self.questions.ask("Gateway", usual, read)?
            }
        };
        let dns = if args.dns.is_empty() {
            vec![self.questions.ask("Name server", Some(IpAddr::V4(gateway)), read)?]
        } else {
            args.dns.clone()
        };
        Ok((bridge, cidr, gateway, dns))
    }

    fn addresses(
        &self,
        door: &Door,
        there: &Surroundings,
        (cidr, gateway): (Ipv4Net, Ipv4Addr),
        (control_planes, workers): (u32, u32),
    ) -> Result<Places, Stop> {
        let args = self.args;
        let shared = (control_planes > 1 || args.vip.is_some()).then_some(args.vip);
        let others = (workers > 0).then_some(args.worker_address);
        let is_open = args.address.is_none() || shared == Some(None) || others == Some(None);
        let mut free = if is_open {
            self.free(door, there, (cidr, gateway), control_planes + workers + 2)
        } else {
            Vec::new()
        };
        let mut take =
            |given: Option<Ipv4Addr>, count: u32, question: &str, flag: &str| -> Result<Ipv4Addr, Stop> {
                let within = |typed: &str| {
                    let address: Ipv4Addr = read(typed)?;
                    if cidr.contains(&address) { Ok(address) } else { Err(format!("it is not in {cidr}")) }
                };
                let asked = || self.questions.ask(question, init::run_of(&free, count), within);
                let first =
                    given.map_or_else(asked, Ok).map_err(|none| missing(none, flag, "192.168.1.50"))?;
                let used = u32::from(first)..=u32::from(first).saturating_add(count.saturating_sub(1));
                free.retain(|address| !used.contains(&u32::from(*address)));
                Ok(first)
            };
        let shared = shared.map(|given| take(given, 1, "Address that the control planes share", "--vip"));
        let vip = shared.transpose()?;
        let first = take(args.address, control_planes, "Address of the first control plane", "--address")?;
        let others =
            others.map(|given| take(given, workers, "Address of the first worker", "--worker-address"));
        Ok(Places { vip, control_planes: first, workers: others.transpose()?.unwrap_or(first) })
    }

    /// Returns addresses that nobody answers from, some more than are needed.
    fn free(
        &self,
        door: &Door,
        there: &Surroundings,
        (cidr, gateway): (Ipv4Net, Ipv4Addr),
        wanted: u32,
    ) -> Vec<Ipv4Addr> {
        self.questions.say("Looking for addresses that nobody answers from ...");
        let mut taken = BTreeSet::from([gateway]);
        taken.extend(door.endpoint.parse::<Endpoint>().ok().and_then(|at| at.host.parse::<Ipv4Addr>().ok()));
        let candidates = there.candidates(cidr, &taken);
        let most = usize::try_from(wanted.saturating_mul(4).max(64)).unwrap_or(usize::MAX);
        self.wait("looking for free addresses", init::quiet(&door.dialer, &candidates, most))
    }

    fn releases(&self, door: &Door) -> Result<(TalosVersion, KubernetesVersion), Stop> {
        let args = self.args;
        let talos = match &args.talos {
            Some(talos) => talos.clone(),
            None => {
                let factory = args.factory.as_deref().unwrap_or(FACTORY);
                let newest = self.wait("asking the Image Factory", init::newest_talos(factory, &door.dialer));
                let (major, minor, patch) = KNOWN_TALOS;
                let known = TalosVersion::new(major, minor, patch);
                self.questions.ask("Talos", Some(newest.unwrap_or(known)), read)?
            }
        };
        let default = support::of(&talos).map(|row| row.default.clone());
        let kubernetes = match &args.kubernetes {
            Some(kubernetes) => kubernetes.clone(),
            None => self
                .questions
                .ask("Kubernetes", default, read)
                .map_err(|none| missing(none, "--kubernetes", "v1.36.3"))?,
        };
        Ok((talos, kubernetes))
    }
}

/// Where machines are.
struct Places {
    vip: Option<Ipv4Addr>,
    control_planes: Ipv4Addr,
    workers: Ipv4Addr,
}
