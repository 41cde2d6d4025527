//! `ichor lab`: a simulated datacentre on this computer.

use std::{collections::BTreeSet, net::SocketAddr, path::Path, sync::Arc};

use ichor_lab::{
    Hall,
    control::{self, Answer, Moment, Wish},
    proxy::Routes,
    serve::{self, Listening, Ports},
};
use ichor_sim::{
    Lab,
    bound::LowerBound,
    faults::{self, Calls, FaultPlan},
    incident::{Incident, NotAnIncident},
    profile,
    pve::{release::Release, world::NewHost},
    setup::{Setup, TOKEN, USER},
};
use serde_json::{Value, json};

use crate::{
    args::{Event, Faults, Global, Host, LabVerb, Output, Profile, PveRelease, Serve, Server},
    exit::Exit,
    failure::Failure,
    files,
    render::document,
    terminal::Terminal,
};

/// Most bytes of a fault plan.
const MAX_PLAN: usize = 1024 * 1024;

/// Does what was asked for.
pub fn run(verb: &LabVerb, global: &Global, terminal: &Terminal) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failed, "the lab cannot start").because(error.to_string()))?;
    runtime.block_on(async {
        match verb {
            LabVerb::Serve(args) => serve(args, global.output, terminal).await,
            LabVerb::State(args) => {
                let state = wish(&args.state, Wish::State).await?.map_err(|why| refused(&args.state, why))?;
                show(&state, global.output, terminal)
            }
            LabVerb::Faults(args) => faults(args, global.output, terminal).await,
            LabVerb::Event(args) => event(args).await,
            LabVerb::Reset(args) => {
                let asked = if args.record { Wish::ForgetCalls } else { Wish::Reset };
                wish(&args.kept.state, asked).await?.map_err(|why| refused(&args.kept.state, why))?;
                Ok(Exit::Done)
            }
        }
    })
}

async fn serve(args: &Serve, output: Output, terminal: &Terminal) -> Result<Exit, Failure> {
    let setup = setup(args)?;
    let kept = match &args.state {
        Some(path) => serve::load(path).map_err(|error| unreadable(path, &error))?,
        None => None,
    };
    if kept.is_some() {
        terminal.tell("the lab goes on as it was; for another set-up, name another file with `--state`");
    }
    let hall = Arc::new(Hall::new(kept.unwrap_or_else(|| begin(&setup))));
    let ports =
        Ports { address: args.listen, pve: args.port, factory: args.factory_port, proxy: args.proxy_port };
    let listening = serve::start(&hall, ports, hall.look(Routes::of)).await.map_err(|error| {
        Failure::new(Exit::Failed, "the lab cannot listen").because(error.to_string()).hint(
            "choose other ports with `--port`, `--factory-port` and `--proxy-port`; 0 is any that is free",
        )
    })?;
    let control = match &args.state {
        Some(path) => Some((path, keep(&hall, path).await.map_err(|error| not_kept(path, &error))?)),
        None => None,
    };
    let Some(access) = hall.look(|lab| access(lab, &listening)) else {
        return Err(Failure::new(Exit::InvalidInput, "the lab has no account for you any more")
            .because(format!("somebody deleted `{USER}` or its token `{TOKEN}`"))
            .hint("begin again: remove the state file"));
    };
    match output {
        Output::Table => terminal.data(shell(&access))?,
        Output::Json | Output::Yaml => drop(show(&access, output, terminal)?),
    }
    terminal.tell("the lab is open; stop it with Ctrl-C");
    let ended = match control {
        None => {
            interrupted().await;
            None
        }
        Some((path, listener)) => tokio::select! {
            () = interrupted() => None,
            error = serve::keep_state(&hall, path) => Some(error),
            () = control::listen(Arc::clone(&hall), listener) => None,
        },
    };
    tell_bound(&hall.look(|lab| lab.ground.bound.lower()), terminal);
    if let Some(path) = &args.state {
        let _ = std::fs::remove_file(control::socket_of(path));
        serve::save(&hall, path).map_err(|error| unwritable(path, &error))?;
        if let Some(error) = ended {
            return Err(unwritable(path, &error));
        }
    }
    Ok(Exit::Done)
}

/// Says how long what was done had to take at least, and why.
fn tell_bound(bound: &LowerBound, terminal: &Terminal) {
    if bound.path.is_empty() {
        return;
    }
    let seconds = |millis: u64| format!("{}.{:03} s", millis / 1000, millis % 1000);
    terminal.tell(&format!(
        "what was done took {}, and at least {} of it were necessary:",
        seconds(bound.took_ms),
        seconds(bound.lower_bound_ms)
    ));
    for stretch in &bound.path {
        terminal.tell(&format!(
            "  {:>12}  {} ({})",
            seconds(stretch.takes_ms),
            stretch.what,
            stretch.subject
        ));
    }
}

/// Writes the state for the first time, and opens the socket for those who want to meddle: whoever is told that the
/// lab is open finds both.
async fn keep(hall: &Hall, path: &Path) -> std::io::Result<tokio::net::UnixListener> {
    let listener = control::open(path).await?;
    serve::save(hall, path)?;
    Ok(listener)
}

/// Waits until somebody asks the program to end.
pub async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    // Without a handler for a signal the program ends at once, which is no worse.
    let Ok(mut terminated) = signal(SignalKind::terminate()) else { return };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminated.recv() => {}
    }
}

fn begin(setup: &Setup) -> Lab {
    let mut lab = setup.build();
    lab.mark_beginning();
    lab
}

fn setup(args: &Serve) -> Result<Setup, Failure> {
    let profile = match args.profile {
        Profile::Instant => profile::Profile::Instant,
        Profile::Lab => profile::Profile::Lab,
        Profile::Wan => profile::Profile::Wan,
    };
    let mut setup = Setup::new(args.seed, profile);
    setup.begins = ichor_lab::real_time();
    setup.release = match args.pve {
        PveRelease::V9_2 => Release::V9_2,
        PveRelease::V8_4 => Release::V8_4,
        PveRelease::V8_0 => Release::V8_0,
    };
    setup.names.push(args.listen.to_string());
    setup.strangers = args.strangers;
    if !args.hosts.is_empty() {
        setup.hosts = hosts(&args.hosts)?;
    }
    Ok(setup)
}

/// Returns the hosts that somebody wishes for, each with an address of its own.
fn hosts(wished: &[Host]) -> Result<Vec<NewHost>, Failure> {
    /// Hosts have addresses from 192.0.2.11 on.
    const MOST: usize = 200;
    let mut seen = BTreeSet::new();
    let twice: BTreeSet<&str> =
        wished.iter().map(|host| host.name.as_str()).filter(|name| !seen.insert(*name)).collect();
    let mut reasons: Vec<String> =
        twice.iter().map(|name| format!("`{name}` is there more than once")).collect();
    if wished.len() > MOST {
        reasons.push(format!("there are {} of them, and a lab has room for {MOST}", wished.len()));
    }
    if !reasons.is_empty() {
        let failure = Failure::new(Exit::InvalidInput, "the lab cannot have these hosts");
        return Err(reasons
            .into_iter()
            .fold(failure, Failure::because)
            .hint(format!("a lab has up to {MOST} hosts, each with a name of its own")));
    }
    let made = wished.iter().zip(11..).map(|(host, last)| NewHost {
        name: host.name.clone(),
        address: format!("192.0.2.{last}"),
        cpus: host.cpus,
        memory: host.gib << 30,
    });
    Ok(made.collect())
}

/// What clients need to know.
fn access(lab: &Lab, listening: &Listening) -> Option<Value> {
    let secret = &lab.pve.access.users.get(USER)?.tokens.get(TOKEN)?.secret;
    let certificate = lab.own_persona().and_then(|persona| persona.certificates.first());
    let fingerprint = certificate.map(|certificate| ichor_lab::fingerprint(certificate));
    Some(json!({
        "pve": {
            "url": url("https", listening.pve),
            "token": format!("{USER}!{TOKEN}={secret}"),
            "sha256": fingerprint,
        },
        "factory": { "url": url("http", listening.factory) },
        "proxy": { "socks5": url("socks5", listening.proxy), "http": url("http", listening.proxy) },
    }))
}

fn url(scheme: &str, address: SocketAddr) -> String {
    format!("{scheme}://{address}")
}

/// Variables that ichor and others read.
fn shell(access: &Value) -> String {
    let text = |pointer: &str| access.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    [
        ("ICHOR_PVE_TOKEN", text("/pve/token")),
        ("PROXMOX_VE_ENDPOINT", text("/pve/url")),
        ("PROXMOX_VE_API_TOKEN", text("/pve/token")),
        ("PROXMOX_VE_INSECURE", "true"),
        ("ICHOR_LAB_SHA256", text("/pve/sha256")),
        ("ICHOR_LAB_FACTORY", text("/factory/url")),
        ("ICHOR_LAB_PROXY", text("/proxy/socks5")),
    ]
    .map(|(name, value)| format!("export {name}='{value}'\n"))
    .concat()
        + &format!(
            "# machines that are not on 127.x: HTTPS_PROXY='{}' talosctl ..., kubectl ...\n",
            text("/proxy/http")
        )
}

/// Prints what a lab holds; its own form is JSON.
fn show(what: &Value, output: Output, terminal: &Terminal) -> Result<Exit, Failure> {
    terminal.data(match output {
        Output::Table | Output::Json => document::json(what),
        Output::Yaml => document::yaml(what),
    })?;
    Ok(Exit::Done)
}

async fn faults(args: &Faults, output: Output, terminal: &Terminal) -> Result<Exit, Failure> {
    let state = &args.kept.state;
    let Some(path) = &args.plan else {
        let plan = wish(state, Wish::Faults).await?.map_err(|why| refused(state, why))?;
        return show(&plan, output, terminal);
    };
    let bytes = if path == Path::new("-") {
        files::read_stream(std::io::stdin().lock(), MAX_PLAN)
    } else {
        files::read_bounded(path, MAX_PLAN)
    };
    let invalid = |reasons: Vec<String>| {
        let failure = Failure::new(Exit::InvalidInput, format!("`{}` is no fault plan", path.display()));
        reasons
            .into_iter()
            .fold(failure, Failure::because)
            .hint("a plan is a JSON list; `ichor lab faults --help` shows one")
    };
    let bytes = bytes.map_err(|why| invalid(vec![why.to_string()]))?;
    let plan: FaultPlan = serde_json::from_slice(&bytes).map_err(|error| invalid(vec![error.to_string()]))?;
    wish(state, Wish::SetFaults(plan)).await?.map_err(invalid)?;
    Ok(Exit::Done)
}

async fn event(args: &Event) -> Result<Exit, Failure> {
    let incident: Incident = args.words.join(" ").parse().map_err(|error: NotAnIncident| {
        Failure::new(Exit::InvalidInput, "that cannot befall a lab")
            .because(error.to_string())
            .hint("`ichor lab event --help` says what can")
    })?;
    let moment = moment(args)?;
    let message = match moment {
        Moment::Now => format!("`{incident}` did not happen"),
        Moment::After(_) | Moment::Call(..) => format!("`{incident}` will not happen"),
    };
    let state = &args.kept.state;
    wish(state, Wish::Befall(incident, moment)).await?.map_err(|reasons| {
        reasons
            .into_iter()
            .fold(Failure::new(Exit::Failed, message), Failure::because)
            .hint(format!("see what is there:\n    ichor lab state --state {}", state.display()))
    })?;
    Ok(Exit::Done)
}

fn moment(args: &Event) -> Result<Moment, Failure> {
    let Some(on) = &args.on else {
        return Ok(args.after.map_or(Moment::Now, |seconds| Moment::After(u64::from(seconds) * 1000)));
    };
    let (method, path) = match on.split_once(' ') {
        Some((method, path)) => (Some(method.to_owned()), path.trim()),
        None => (None, on.as_str()),
    };
    if !path.starts_with(['/', '*']) {
        return Err(Failure::new(Exit::InvalidInput, format!("`{on}` is no call"))
            .hint("a call is written `POST /nodes/*/qemu`, or without a method for any"));
    }
    let server = match args.server {
        Server::Pve => faults::Server::Pve,
        Server::Factory => faults::Server::Factory,
        Server::Talos => faults::Server::Talos,
        Server::Kube => faults::Server::Kube,
    };
    Ok(Moment::Call(Calls { server, method, path: path.to_owned() }, args.occurrence))
}

/// Has a wish fulfilled by the lab that runs, or by the one in the file.
async fn wish(state: &Path, wish: Wish) -> Result<Answer, Failure> {
    let asked = control::ask(state, &wish).await;
    if let Some(answer) = asked.map_err(|error| unasked(state, &error))? {
        return Ok(answer);
    }
    let kept = serve::load(state).map_err(|error| unreadable(state, &error))?;
    let Some(mut lab) = kept else {
        return Err(Failure::new(Exit::InvalidInput, format!("there is no lab in `{}`", state.display()))
            .hint(format!("start one:\n    ichor lab serve --state {}", state.display())));
    };
    let unchanged = lab.clone();
    let answer = control::fulfil(&mut lab, wish).map_err(|error| unreadable(state, &error))?;
    if lab != unchanged {
        serve::save(&Hall::new(lab), state).map_err(|error| unwritable(state, &error))?;
    }
    Ok(answer)
}

fn not_kept(path: &Path, error: &std::io::Error) -> Failure {
    if error.kind() != std::io::ErrorKind::AddrInUse {
        return unwritable(path, error);
    }
    Failure::new(Exit::LockHeld, format!("the lab in `{}` is in use", path.display()))
        .because("another `ichor lab serve`, or a run with `--lab`, has it")
        .hint("stop that one, or name another file with `--state`")
}

fn refused(path: &Path, reasons: Vec<String>) -> Failure {
    let failure =
        Failure::new(Exit::InvalidInput, format!("the lab in `{}` does not do that", path.display()));
    reasons.into_iter().fold(failure, Failure::because).hint("remove the file to begin again")
}

fn unasked(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("the lab of `{}` cannot be asked", path.display()))
        .because(error.to_string())
        .hint("it was stopped meanwhile, or what was asked is too long")
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("the lab in `{}` cannot be read", path.display()))
        .because(error.to_string())
        .hint("remove the file to begin again")
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Failed, format!("the lab cannot be kept in `{}`", path.display()))
        .because(error.to_string())
        .hint("name another file with `--state`")
}
