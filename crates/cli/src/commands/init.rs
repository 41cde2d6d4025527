//! `ichor init`: a first inventory.
//!
//! 1. Where the file goes: nothing that is there is replaced;
//! 2. Proxmox: its address, its certificate, the token; then it is looked at;
//! 3. the rest, with suggestions from what was seen: hosts, storages, network, machines, releases;
//! 4. the inventory is resolved in what was seen, as every verb would, and written.

mod answers;
mod fit;

use std::{
    future::Future,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    sync::Arc,
};

use ichor_model::{ClusterName, Desired, Findings, World};
use ichor_net::{Dial, Endpoint, Fingerprint, Trust};
use ichor_ops::{
    Halt, Keeping, Origin, Site,
    account::tokens,
    init::{self, Answers, Surroundings, Thrift, TokenAt},
    live::{Pve, Reach, proxmox},
    place::quoted,
    system::System,
    whole,
};
use ichor_port::{Secret, clean};
use ichor_pve::Token;
use ichor_spec::{Layers, Sources};
use ipnet::Ipv4Net;
use tokio::runtime::Runtime;

use crate::{
    args::{Global, Init, Place},
    exit::Exit,
    failure::Failure,
    operating_system::OperatingSystem,
    questions::{NoAnswer, Questions},
    render::{
        findings::{self, Changes},
        progress::Wait,
    },
    terminal::Terminal,
    world::{jump, real},
};

/// The file's name if no other is given.
const USUAL_FILE: &str = "ichor.yaml";
/// What is waited for when Proxmox takes its time.
const LOOKING: &str = "looking at Proxmox";

/// Writes a first inventory.
pub fn run(args: &Init, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    if global.world.place() != Place::Real {
        return Err(Failure::new(
            Exit::InvalidInput,
            "a lab of `--lab` is made to fit an inventory, and there is none yet",
        )
        .hint("serve a lab, and give its address, fingerprint and token:\n    ichor lab serve"));
    }
    let file = target(global.file.as_deref())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime
        .map_err(|error| Failure::new(Exit::Failed, "the run cannot start").because(error.to_string()))?;
    let wizard = Wizard { args, terminal, runtime: &runtime, questions: Questions::at(terminal, args.yes) };
    match wizard.run(&file) {
        Ok(exit) => Ok(exit),
        Err(Stop::Failure(failure)) => Err(*failure),
        Err(Stop::Halt(halt)) => {
            let sources = Sources::default();
            findings::tell(&sources, &halt.findings, Changes::None, terminal);
            Ok(super::session::exit_of(halt.kind))
        }
        Err(Stop::NoAnswer(NoAnswer::Gone)) => {
            terminal.tell("\nNothing was written.");
            Ok(Exit::Interrupted)
        }
        Err(Stop::NoAnswer(NoAnswer::Nobody)) => {
            Err(Failure::new(Exit::InvalidInput, "there is nobody to ask, and nothing to suggest"))
        }
    }
}

/// Why no inventory was written.
enum Stop {
    Failure(Box<Failure>),
    Halt(Halt),
    NoAnswer(NoAnswer),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(Box::new(failure))
    }
}

impl From<Halt> for Stop {
    fn from(halt: Halt) -> Self {
        Self::Halt(halt)
    }
}

impl From<NoAnswer> for Stop {
    fn from(none: NoAnswer) -> Self {
        Self::NoAnswer(none)
    }
}

struct Wizard<'w> {
    args: &'w Init,
    terminal: &'w Terminal,
    runtime: &'w Runtime,
    questions: Questions<'w>,
}

/// How Proxmox was reached.
struct Door {
    name: ClusterName,
    endpoint: String,
    fingerprint: Option<Fingerprint>,
    pve: Pve,
    dialer: Arc<dyn Dial>,
    token: Given,
}

/// The token, and where it came from.
struct Given {
    token: Token,
    /// Where the inventory says that it is.
    at: TokenAt,
    /// What was typed, if it is to be kept.
    keeps: Option<Secret>,
}

impl Wizard<'_> {
    fn run(&self, file: &Path) -> Result<Exit, Stop> {
        self.questions.say("A first inventory, in a dozen questions. Enter takes what stands in brackets; nothing is changed on Proxmox.\n");
        let door = self.door()?;
        let there = self.wait(LOOKING, init::look(&door.pve))?;
        self.tell_of(&door, &there);
        let answers = self.answers(&door, &there)?;
        let text = self.fit(&door, &answers, file)?;
        if self.questions.asks() {
            self.terminal.show(&format!("\n{text}\n")).map_err(Failure::from)?;
            if !self.questions.confirm(&format!("Write it to `{}`", file.display()), true)? {
                return Err(NoAnswer::Gone.into());
            }
        }
        self.keep_token(&door, &text, file)?;
        whole::create(&OperatingSystem, file, text.as_bytes())
            .map_err(|error| Halt::unwritable(file, &error))?;
        self.tell_next(&door, file);
        Ok(Exit::Done)
    }

    /// Waits for what somebody far away is asked.
    fn wait<F: Future>(&self, what: &'static str, asked: F) -> F::Output {
        Wait::on(self.terminal, self.runtime.handle(), what, asked)
    }

    /// Asks who and where Proxmox is, and opens the way to it.
    fn door(&self) -> Result<Door, Stop> {
        let args = self.args;
        let name = match &args.name {
            Some(name) => name.clone(),
            None => self.questions.ask("Name of the cluster", "homelab".parse().ok(), read)?,
        };
        let typed = match &args.endpoint {
            Some(endpoint) => endpoint.clone(),
            None => self
                .questions
                .ask("Address of a Proxmox host", None, |typed| {
                    match init::endpoint(typed).parse::<Endpoint>() {
                        Ok(_) => Ok(typed.to_owned()),
                        Err(error) => Err(error.to_string()),
                    }
                })
                .map_err(|none| missing(none, "--endpoint", "pve1.lab.example"))?,
        };
        let endpoint = init::endpoint(&typed);
        let at: Endpoint = endpoint.parse().map_err(|error: ichor_net::NotAnEndpoint| {
            Failure::new(Exit::InvalidInput, error.to_string())
                .hint("write the name or the address of a host, as in `pve1.lab.example`")
        })?;
        let way = provisional(&name, &endpoint, &args.jump)?;
        let dialer = jump::open(&way, self.runtime, self.terminal)?;
        let fingerprint = self.fingerprint(&at, real::Way { dialer: &dialer, jump: &way.proxmox.jump })?;
        let token = self.token(&name)?;
        let proxmox_trust = fingerprint.map_or(Trust::System, Trust::Pin);
        let reach = Reach {
            dialer: Arc::clone(&dialer),
            proxmox: proxmox_trust,
            factory: Trust::System,
            token: token.token.clone(),
        };
        let pve = proxmox(&endpoint, &reach)?;
        Ok(Door { name, endpoint, fingerprint, pve, dialer, token })
    }

    /// Returns the fingerprint of a certificate that no authority vouches for, once somebody has said that it is right.
    fn fingerprint(&self, at: &Endpoint, way: real::Way<'_>) -> Result<Option<Fingerprint>, Stop> {
        if self.args.fingerprint.is_some() || !at.tls {
            return Ok(self.args.fingerprint);
        }
        let Some(shown) = real::meet(at, way, self.runtime, self.terminal)? else { return Ok(None) };
        if !self.questions.asks() {
            return Err(Failure::new(Exit::Preflight, format!("nobody vouches for Proxmox at {at}"))
                .because(format!("it shows a certificate with the SHA-256 {shown}"))
                .hint(format!(
                    "if that is your Proxmox, run the same command with\n    --fingerprint {shown}"
                ))
                .into());
        }
        self.terminal.tell(&format!(
            "\nIts certificate is its own, as usual; Proxmox shows it under Node > System > Certificates:\n  SHA-256 {shown}"
        ));
        if self.questions.confirm("Is it the right one", false)? {
            return Ok(Some(shown));
        }
        Err(NoAnswer::Gone.into())
    }

    /// Reads the token from the environment, or asks for it. One that was typed may be kept, encrypted.
    fn token(&self, cluster: &ClusterName) -> Result<Given, Stop> {
        let name = &self.args.token_env;
        let none = || {
            Failure::new(Exit::InvalidInput, format!("there is no API token in `{name}`"))
                .hint(format!("make one under Datacenter > Permissions > API Tokens, and\n    export {name}='user@realm!name=secret'"))
        };
        let (text, typed) = match OperatingSystem.variable(name) {
            Ok(Some(token)) if !token.expose().is_empty() => (Secret::new(token.expose()), false),
            _ if self.questions.asks() => {
                self.terminal.tell(&format!("\n`{name}` is not set."));
                let typed = self.terminal.ask_secretly("API token (user@realm!name=secret): ");
                (Secret::new(typed.ok_or(NoAnswer::Gone)?.trim()), true)
            }
            _ => return Err(none().into()),
        };
        let token = Token::parse(&text).map_err(|error| none().because(error.to_string()))?;
        let question = format!("Keep it, encrypted, in `{}` beside the inventory", tokens::FILE);
        if typed && self.questions.confirm(&question, true)? {
            let at = TokenAt::Sealed(format!("{}#{cluster}.{}", tokens::FILE, tokens::OWN));
            return Ok(Given { token, at, keeps: Some(text) });
        }
        Ok(Given { token, at: TokenAt::Variable(name.clone()), keeps: None })
    }

    /// Keeps the token that was typed where the inventory will look for it, before there is an inventory.
    fn keep_token(&self, door: &Door, text: &str, file: &Path) -> Result<(), Stop> {
        let Some(token) = &door.token.keeps else { return Ok(()) };
        let (Some(desired), _) = resolve(text, file, &World::default(), &mut Sources::default()) else {
            return Ok(());
        };
        let directory = file.parent().unwrap_or(Path::new(""));
        let site = Site {
            desired: &desired,
            directory,
            files: &[],
            contract: Origin::Assumed,
            keeping: Keeping::Encrypted,
        };
        let place = tokens::Place::of(site, tokens::OWN, None)?;
        if let Some(kept) = place.read(&OperatingSystem, site)?
            && kept.expose() != token.expose()
        {
            return Err(Failure::new(
                Exit::Refused,
                format!("another token is kept as `{}` of `{}`", place.key, place.name),
            )
            .because("Proxmox tells the secret of a token once, so it is not written over")
            .hint(format!(
                "move the file away, or set `{}` and run the same command again",
                self.args.token_env
            ))
            .into());
        }
        let notes = place.prepare(&OperatingSystem, site)?;
        findings::tell(&Sources::default(), &notes, Changes::None, self.terminal);
        Ok(place.write(&OperatingSystem, site, token.expose())?)
    }

    fn tell_of(&self, door: &Door, there: &Surroundings) {
        let hosts: Vec<String> = there.hosts.iter().map(|host| host.name.to_string()).collect();
        self.questions.say(&format!(
            "\nProxmox {} at {}: {} with {} VMs and containers.\n",
            clean(&there.release),
            door.endpoint,
            crate::render::text::list_some(&hosts, crate::render::text::MAX_NAMES),
            there.guests,
        ));
    }

    fn tell_next(&self, door: &Door, file: &Path) {
        let option =
            if file == Path::new(USUAL_FILE) { String::new() } else { format!(" -f {}", quoted(file)) };
        let token = match OperatingSystem.variable(&self.args.token_env) {
            Ok(Some(_)) => String::new(),
            _ if door.token.keeps.is_some() => String::new(),
            _ => format!("  export {}='user@realm!name=secret'\n", self.args.token_env),
        };
        let verb = |words: &str, what: &str| format!("  {:<24}{what}\n", format!("ichor{option} {words}"));
        let next = [
            verb("doctor", "what could stand in the way"),
            verb("--lab up", "rehearse it: nothing real is touched"),
            verb("up", "make the cluster"),
        ];
        let next = next.concat();
        self.terminal.tell(&format!("`{}` is written. Next:\n{token}{}", file.display(), next.trim_end()));
    }
}

/// Returns the file to write, which must not be there.
fn target(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let file = match given {
        None => PathBuf::from(USUAL_FILE),
        Some(path) if path.is_dir() => path.join(USUAL_FILE),
        Some(path) => path.to_owned(),
    };
    let beside = file.with_file_name("cluster.yaml");
    for there in [&file, &beside] {
        match OperatingSystem.exists(there) {
            Ok(false) => {}
            Ok(true) => {
                return Err(Failure::new(
                    Exit::InvalidInput,
                    format!("there is a `{}` already", there.display()),
                )
                .because("an inventory is never replaced")
                .hint("change it, or write another one:\n    ichor -f new/ichor.yaml init"));
            }
            Err(error) => {
                return Err(Failure::new(Exit::Failed, format!("`{}` cannot be looked at", there.display()))
                    .because(error.to_string()));
            }
        }
    }
    Ok(file)
}

/// Returns a cluster that says how Proxmox is reached, and nothing else that counts.
fn provisional(name: &ClusterName, endpoint: &str, jump: &[String]) -> Result<Desired, Stop> {
    let (talos, kubernetes) = ("v1.13.9".to_owned(), "v1.36.3".to_owned());
    let address = Ipv4Addr::new(192, 0, 2, 10);
    let answers = Answers {
        name: name.to_string(),
        endpoint: endpoint.to_owned(),
        fingerprint: None,
        jump: jump.to_vec(),
        token: TokenAt::Variable("ICHOR_PVE_TOKEN".into()),
        pool: None,
        hosts: vec!["pve".parse().map_err(|_| NoAnswer::Nobody)?],
        disks: "local-lvm".into(),
        images: "local".into(),
        bridge: "vmbr0".into(),
        vlan: None,
        cidr: Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 2, 0), 24),
        gateway: Ipv4Addr::new(192, 0, 2, 1),
        dns: vec![IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))],
        control_planes: 1,
        workers: 0,
        control_planes_from: address,
        workers_from: address,
        vip: None,
        talos,
        kubernetes,
        factory: None,
        thrift: Thrift::NONE,
    };
    let (desired, found) =
        resolve(&answers.inventory(), Path::new(USUAL_FILE), &World::default(), &mut Sources::default());
    desired.ok_or_else(|| Stop::Halt(Halt::invalid(found)))
}

/// Resolves an inventory that is not on disk yet.
fn resolve(text: &str, file: &Path, world: &World, sources: &mut Sources) -> (Option<Desired>, Findings) {
    let source = sources.add(file.display().to_string(), text.as_bytes().to_vec());
    let layers = Layers { files: vec![source], ..Layers::default() };
    let mut found = Findings::new();
    let Some(inventory) = ichor_spec::load(sources, &layers, &mut found) else { return (None, found) };
    let resolution = ichor_plan::resolve(&inventory, world);
    found.extend(resolution.findings);
    let desired = resolution.desired.filter(|_| !found.has_errors());
    (desired, found)
}

fn read<T: std::str::FromStr>(typed: &str) -> Result<T, String>
where
    T::Err: std::fmt::Display,
{
    typed.parse().map_err(|error: T::Err| error.to_string())
}

/// Names the flag that answers a question where nobody can.
fn missing(none: NoAnswer, flag: &str, example: &str) -> Stop {
    match none {
        NoAnswer::Gone => Stop::NoAnswer(none),
        NoAnswer::Nobody => Failure::new(Exit::InvalidInput, format!("`{flag}` is missing"))
            .because("there is nobody to ask, and nothing to suggest")
            .hint(format!("give it, as in\n    ichor init {flag} {example}"))
            .into(),
    }
}
