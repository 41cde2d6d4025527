//! Calls real Talos machines with ichor's client, for `conformance/`.
//!
//! - `caller maintenance ADDRESS KEY OURS CONFIG` is at a machine in maintenance mode that printed KEY, and gives it CONFIG;
//! - `caller node ADDRESS OURS OTHERS NAME MEMBERS SNAPSHOT` is at a control plane of a cluster, and keeps a snapshot of
//!   etcd;
//! - `caller remove ADDRESS OURS NAME` takes a member out of etcd;
//! - `caller recover ADDRESS OURS SNAPSHOT` begins etcd with a snapshot, on a machine where it never ran.
//!
//! OURS and OTHERS are folders with `authority.der`, `client.der` and `key.der` (PKCS #8), of this cluster and of another.
//! Each claim that holds becomes a line; the first that does not ends the program.
#![allow(clippy::print_stderr, clippy::disallowed_methods, reason = "a program of its own, for judges")]

use std::{
    fs,
    io::{self, Write},
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use ichor_net::{Direct, Identity, KeyFingerprint, Trust};
use ichor_talos::{
    Address, Admission, Code, Error, Face, PORT, Talos, api, peek,
    resource::{
        EtcdMember, HostnameStatus, MachineConfig, MachineStatus, MachineType, NodeAddress, NodeStatus,
        Stage, TimeStatus,
    },
};

/// How often something that takes time is looked at, and how many times.
const PAUSE: Duration = Duration::from_millis(500);
const LOOKS: usize = 240;
/// How long a handshake may take.
const PATIENCE: Duration = Duration::from_secs(10);

type Told<T = ()> = Result<T, String>;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let told = match words[..] {
        ["maintenance", address, key, ours, config] => maintenance(address, key, ours, config).await,
        ["node", address, ours, others, name, members, snapshot] => {
            node(address, ours, others, name, members, snapshot).await
        }
        ["remove", address, ours, name] => remove(address, ours, name).await,
        ["recover", address, ours, snapshot] => recover(address, ours, snapshot).await,
        _ => Err("see the first lines of this program for its words".into()),
    };
    match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("caller: {why}");
            ExitCode::FAILURE
        }
    }
}

fn claim(what: &str, holds: bool) -> Told {
    if !holds {
        return Err(format!("does not hold: {what}"));
    }
    writeln!(io::stdout().lock(), "{what}").map_err(|error| error.to_string())
}

fn told<T>(what: &str, result: Result<T, Error>) -> Told<T> {
    result.map_err(|error| format!("{what}: {error}"))
}

/// What must have been refused, and why.
fn refused<T>(what: &str, result: Result<T, Error>) -> Told<Error> {
    result.err().ok_or_else(|| format!("was not refused: {what}"))
}

/// Claims that a refusal is of a kind, and without effect.
fn coded(what: &str, error: &Error, code: Code) -> Told {
    if error.code() != Some(code) || error.may_have_happened() {
        return Err(format!("does not hold: {what}: {error}"));
    }
    claim(what, true)
}

/// Looks again until there is something.
async fn until<T>(what: &str, look: impl AsyncFn() -> Option<T>) -> Told<T> {
    for _ in 0..LOOKS {
        if let Some(found) = look().await {
            claim(what, true)?;
            return Ok(found);
        }
        tokio::time::sleep(PAUSE).await;
    }
    Err(format!("waited in vain: {what}"))
}

fn read(folder: &str, name: &str) -> Told<Vec<u8>> {
    fs::read(Path::new(folder).join(name)).map_err(|error| format!("{name}: {error}"))
}

fn at(address: &str) -> Address {
    Address { host: address.to_owned(), port: PORT }
}

fn identity(folder: &str) -> Told<Identity> {
    Ok(Identity { certificates: vec![read(folder, "client.der")?], key: read(folder, "key.der")?.into() })
}

/// Somebody who trusts the authority of one folder, and is known by the certificate of another.
fn secure(address: &str, trusted: &str, known: &str) -> Told<Talos> {
    let authorities = vec![read(trusted, "authority.der")?];
    Talos::secure(at(address), authorities, &identity(known)?, Arc::new(Direct))
        .map_err(|error| error.to_string())
}

fn pinned(address: &str, trust: Trust) -> Told<Talos> {
    Talos::maintenance(at(address), trust, Arc::new(Direct)).map_err(|error| error.to_string())
}

async fn maintenance(address: &str, key: &str, ours: &str, config: &str) -> Told {
    let authorities = [read(ours, "authority.der")?];
    let seen = until("it prints its key, and then it answers", async || {
        peek(&at(address), &authorities, &Direct, PATIENCE).await.ok()
    })
    .await?;
    claim("a machine without a config is known as one", seen.face == Face::Maintenance)?;
    claim("it demands no certificate", seen.wants_certificate == Some(false))?;
    claim("its key is the one that it printed", seen.key == key)?;

    let wrong = pinned(address, Trust::PinKey(KeyFingerprint::from([7; 32])))?;
    let error = refused("another key", wrong.send(&api::version()).await)?;
    let is_it = matches!(&error, Error::NotTrusted { shown: Some(shown), .. } if shown.key == key);
    claim("a machine with another key than expected is not spoken to", is_it)?;
    claim("which has had no effect", !error.may_have_happened())?;
    let early = refused("mutual TLS", secure(address, ours, ours)?.send(&api::version()).await)?;
    let is_it = matches!(&early, Error::NotTrusted { shown: Some(it), .. } if it.face == Face::Maintenance);
    claim("nor is it taken for one of the cluster", is_it)?;

    let key: KeyFingerprint = key.parse().map_err(|_| "the key is none")?;
    let machine = pinned(address, Trust::PinKey(key))?;
    let version = told("version", machine.send(&api::version()).await)?;
    claim("with the right key it tells its release", version.tag.starts_with("v1."))?;
    let status = told("status", machine.find::<MachineStatus>().await)?.ok_or("no status")?.spec;
    claim("it says that it is in maintenance mode", status.stage == Stage::Maintenance)?;
    let secret = refused("its config", machine.find_id::<MachineConfig>(MachineConfig::ACTIVE).await)?;
    coded("it does not show its config", &secret, Code::PermissionDenied)?;
    let early = refused("bootstrap", machine.send(&api::bootstrap(api::Recovery::None)).await)?;
    coded("nor does it bootstrap", &early, Code::PermissionDenied)?;
    let broken = api::apply_configuration(b"machine: [", api::ApplyMode::Auto, false);
    let error = refused("a broken config", machine.send(&broken).await)?;
    let known = matches!(error.code(), Some(Code::InvalidArgument | Code::Unknown));
    claim("a config that is none is refused", known && !error.may_have_happened())?;

    let config = read("", config)?;
    told("apply", machine.send(&api::apply_configuration(&config, api::ApplyMode::Auto, false)).await)?;
    claim("the config that ichor rendered is taken", true)?;
    let machine = secure(address, ours, ours)?;
    until("the machine is known by its cluster's authority then", async || {
        machine.send(&api::version()).await.ok()
    })
    .await?;
    let active = told("config", machine.find_id::<MachineConfig>(MachineConfig::ACTIVE).await)?;
    let active = active.ok_or("there is no active config")?;
    claim("and has the very config", active.spec.0.expose().as_bytes() == config)
}

async fn node(address: &str, ours: &str, others: &str, name: &str, members: &str, snapshot: &str) -> Told {
    let members: usize = members.parse().map_err(|_| "how many members is a number")?;
    strangers(address, ours, others).await?;
    let node = secure(address, ours, ours)?;
    resources(&node, address, name).await?;
    etcd(&node, members).await?;
    let mut kept = Vec::new();
    let length = told("snapshot", node.etcd_snapshot(&mut kept).await)?;
    claim("a snapshot of etcd is taken", length > 100_000)?;
    fs::write(snapshot, &kept).map_err(|error| error.to_string())?;
    let twice = refused("bootstrap", node.send(&api::bootstrap(api::Recovery::None)).await)?;
    coded("etcd is not bootstrapped twice", &twice, Code::AlreadyExists)
}

async fn strangers(address: &str, ours: &str, others: &str) -> Told {
    let seen = told("peek", peek(&at(address), &[read(ours, "authority.der")?], &Direct, PATIENCE).await)?;
    claim("a configured machine is known as ours", seen.face == Face::Ours)?;
    claim("and demands a certificate", seen.wants_certificate == Some(true))?;
    let foreign = refused("another cluster", secure(address, others, others)?.send(&api::version()).await)?;
    let is_it =
        matches!(&foreign, Error::NotTrusted { shown: Some(it), .. } if it.face == Face::OtherCluster);
    claim("who expects another cluster does not speak to it", is_it)?;
    let uninvited = refused("uninvited", secure(address, ours, others)?.send(&api::version()).await)?;
    let is_it = matches!(&uninvited, Error::NotAdmitted { why: Admission::RefusesOurs(_), .. });
    claim("who is known by another cluster's certificate is not let in", is_it)?;
    let insecure = refused("nobody", pinned(address, Trust::Anybody)?.send(&api::version()).await)?;
    let is_it = matches!(&insecure, Error::NotAdmitted { why: Admission::WantsCertificate, .. });
    claim("nor who shows none", is_it)?;
    let sent = [foreign, uninvited, insecure].iter().any(Error::may_have_happened);
    claim("and nothing of that has had an effect", !sent)
}

async fn resources(node: &Talos, address: &str, name: &str) -> Told {
    let version = told("version", node.send(&api::version()).await)?;
    claim(
        "it tells its release and platform",
        version.tag.starts_with("v1.") && version.platform == "container",
    )?;
    until("it is up, and waits for nothing", async || {
        node.find::<MachineStatus>().await.ok()?.filter(|status| status.spec.is_up())
    })
    .await?;
    let kind = told("type", node.find::<MachineType>().await)?.ok_or("no type")?.spec;
    claim("it is a control plane", kind == MachineType::ControlPlane)?;
    let hostname = told("hostname", node.find::<HostnameStatus>().await)?.ok_or("no hostname")?.spec.hostname;
    claim("it has its name", hostname == name)?;
    let addresses =
        told("addresses", node.find::<NodeAddress>().await)?.ok_or("no addresses")?.spec.addresses;
    let has_it = addresses.iter().any(|it| it.addr().to_string() == address);
    claim("it has its address", has_it)?;
    let time = told("time", node.find::<TimeStatus>().await)?.ok_or("no clock")?.spec;
    claim("its clock is settled", time.is_settled())?;
    let seen = told("node", node.find_id::<NodeStatus>(name).await)?.ok_or("no node")?.spec;
    claim("it sees its node ready", seen.node_ready && !seen.unschedulable)?;
    let nobody = told("node", node.find_id::<NodeStatus>("nobody").await)?;
    claim("and no other", nobody.is_none())?;
    let unknown = refused("a kind", node.send(&api::get_raw("runtime", "Dreams.talos.dev", "x")).await)?;
    coded("kinds that there are not are refused", &unknown, Code::PermissionDenied)?;
    let services = told("services", node.send(&api::services()).await)?;
    let wanted = ["apid", "containerd", "cri", "etcd", "kubelet", "machined", "trustd"];
    let up = |id: &&str| services.iter().any(|service| service.id == **id && service.is_up());
    claim("its services are up", wanted.iter().all(up))?;
    let boot = told("boot id", node.boot_id().await)?;
    claim("a file is read", boot.len() == 36)?;
    let mut watch = told("watch", node.open(&api::watch::<MachineStatus>(Some("machine"))).await)?;
    // Messages without events are signs of life.
    let mut events = Vec::new();
    while events.is_empty() {
        let next = tokio::time::timeout(PATIENCE, watch.next()).await.map_err(|_| "a watch says nothing")?;
        events = told("watch", next)?.ok_or("a watch has ended")?;
    }
    let is_it = matches!(&events[..], [api::Event::Is(status)] if status.spec.stage == Stage::Running);
    claim("a watch begins with what is", is_it)?;
    let active = told("config", node.find_id::<MachineConfig>(MachineConfig::ACTIVE).await)?;
    let config = active.ok_or("there is no active config")?.spec.0.expose().as_bytes().to_vec();
    let trial = api::apply_configuration(&config, api::ApplyMode::NoReboot, true);
    let trial = told("trial", node.send(&trial).await)?;
    claim("a trial of its own config finds no changes", trial.details.expose().contains("No changes"))?;
    // Where it is a container, it has nothing to reboot.
    let reboot = refused("reboot", node.send(&api::reboot(api::RebootMode::Default)).await)?;
    coded("what it cannot do is refused without effect", &reboot, Code::FailedPrecondition)
}

async fn etcd(node: &Talos, members: usize) -> Told {
    let voting = until("all members of etcd vote", async || {
        let known = node.send(&api::etcd_members(false)).await.ok()?;
        (known.len() == members && known.iter().all(|member| !member.is_learner)).then_some(known)
    })
    .await?;
    let local = told("members", node.send(&api::etcd_members(true)).await)?;
    claim("the member itself knows the same", local.len() == voting.len())?;
    let status = told("status", node.send(&api::etcd_status()).await)?;
    claim("one of them leads", voting.iter().any(|member| member.id == status.leader))?;
    let own = told("member", node.find::<EtcdMember>().await)?.ok_or("it is no member")?.spec.id;
    claim("it knows its own number", own == status.member_id)?;
    let alarms = told("alarms", node.send(&api::etcd_alarm_list()).await)?;
    claim("there is no alarm", alarms.is_empty())?;
    told("defragment", node.send(&api::etcd_defragment().within(Duration::from_mins(1))).await)?;
    claim("etcd is defragmented", true)
}

async fn remove(address: &str, ours: &str, name: &str) -> Told {
    let node = secure(address, ours, ours)?;
    let members = told("members", node.send(&api::etcd_members(false)).await)?;
    let goes = members.iter().find(|member| member.hostname == name).ok_or("there is no such member")?;
    let nobody = refused("nobody", node.send(&api::etcd_remove_member(1)).await)?;
    claim("a member that there is not is not removed", nobody.code().is_some())?;
    told("remove", node.send(&api::etcd_remove_member(goes.id)).await)?;
    let left = told("members", node.send(&api::etcd_members(false)).await)?;
    let gone = left.len() + 1 == members.len() && left.iter().all(|member| member.id != goes.id);
    claim("a member is removed, and the others stay", gone)
}

async fn recover(address: &str, ours: &str, snapshot: &str) -> Told {
    let node = secure(address, ours, ours)?;
    let snapshot = read("", snapshot)?;
    until("the snapshot is taken", async || node.etcd_recover(&mut &snapshot[..]).await.ok()).await?;
    until("etcd begins with it", async || node.send(&api::bootstrap(api::Recovery::Snapshot)).await.ok())
        .await?;
    until("it has one member then", async || {
        node.send(&api::etcd_members(false)).await.ok().filter(|members| members.len() == 1)
    })
    .await?;
    Ok(())
}
