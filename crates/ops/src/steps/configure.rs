//! Giving machines their configs: only to a machine whose key is known.
//!
//! A machine in maintenance mode prints its key on its serial console, which Proxmox shows. That is read from the
//! moment the VM starts. A run that comes later has missed it, and resets the VM, which holds nothing yet, to see
//! it printed again.

use std::time::Duration;

use ichor_engine::{EffectError, Report, StepContext};
use ichor_model::{
    HostName,
    desired::{Machine, Verify},
    observed::{MachineSeen, NodeSeen, Sight},
};
use ichor_net::Trust;
use ichor_pve::{
    api as pve,
    console::{ConsoleError, maintenance_key},
};
use ichor_talos::{
    Code, Talos,
    api::{self, ApplyMode},
};

use tokio::time::{sleep, timeout};

use super::task;
use crate::live::{Listening, Live, Pin, pve_trouble, talos_trouble, transient};

/// How long a console may take until the key is on it, from the start of the VM.
const KEY_WITHIN: Duration = Duration::from_mins(10);
/// How long a console may take to open. A proxy that lets us in and then says nothing holds up a machine for no longer.
const OPEN_WITHIN: Duration = Duration::from_secs(30);
/// How long the key may take to be on the console once the machine answers: it is printed just before that.
const HEARD_WITHIN: Duration = Duration::from_secs(20);
/// Between two looks whether a machine has its config already.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// Opens the serial console of a VM that has just started. If that fails, there is a second way later.
pub async fn listen(live: &Live<'_>, machine: &Machine, host: &HostName) {
    live.memory.unpin(&machine.name);
    if let Ok(console) = open(live, machine, host).await {
        live.memory.listen(&machine.name, console);
    }
}

async fn open(live: &Live<'_>, machine: &Machine, host: &HostName) -> Result<Listening, ConsoleError> {
    let opened = timeout(OPEN_WITHIN, live.pve.open_console(host, machine.vmid, KEY_WITHIN)).await;
    opened.unwrap_or_else(|_| Err(ConsoleError::Late(String::new())))
}

/// Reads the key of a machine from its console, if that was opened in time. One that is missed is shown again later.
pub async fn hear(live: &Live<'_>, machine: &Machine) {
    let Some(console) = live.memory.console(&machine.name) else { return };
    if let Ok(Heard::Key(key)) = read_key(live, machine, console).await {
        live.memory.pin(&machine.name, Pin::Console(key));
    }
}

/// What came of listening to a console.
enum Heard {
    /// The key.
    Key([u8; 32]),
    /// The machine has its config, and prints no key, however long one waits.
    Configured,
    /// The machine waits for its config, so its key was printed before anybody listened.
    Missed,
}

/// Reads the key of a machine from its console. Who answers at its address tells when there is nothing to wait for
/// any more.
async fn read_key(live: &Live<'_>, machine: &Machine, mut console: Listening) -> Result<Heard, ConsoleError> {
    let in_vain = async {
        loop {
            sleep(LOOK_AGAIN).await;
            match live.see_face(machine).await {
                Sight::Seen(MachineSeen::Ours(_)) => return Heard::Configured,
                Sight::Seen(MachineSeen::Maintenance) => break,
                _ => {}
            }
        }
        sleep(HEARD_WITHIN).await;
        Heard::Missed
    };
    tokio::select! {
        biased;
        key = console.read_until(maintenance_key) => key.map(Heard::Key),
        heard = in_vain => Ok(heard),
    }
}

/// Gives a machine in maintenance mode its config.
pub async fn apply(live: &Live<'_>, context: &StepContext<'_>, machine: &Machine) -> Result<(), EffectError> {
    let what = format!("configuring {}", machine.name);
    live.notes.forget_machine(&machine.name);
    let known = live.memory.pinned(&machine.name);
    if known.is_none() {
        // Nobody may have waited for its key yet. A console has one reader: the open one is read before another.
        let _ = timeout(HEARD_WITHIN, hear(live, machine)).await;
    }
    let pin = match live.memory.pinned(&machine.name) {
        Some(pin) => pin,
        None => match find_pin(live, context, &what, machine).await? {
            Some(pin) => pin,
            // An interrupted run gave it the config.
            None => return Ok(()),
        },
    };
    match send(live, &what, machine, pin).await? {
        Sent::Taken => Ok(()),
        Sent::NotTrusted(why) if known.is_none() => Err(stranger(live, &what, machine, &why)),
        // It rebooted and has another key now, or somebody else is there: the console tells.
        Sent::NotTrusted(why) => {
            live.memory.unpin(&machine.name);
            let pin = find_pin(live, context, &what, machine).await.map_err(|error| match error {
                EffectError::Transient(report) => {
                    transient(format!("{}; before that: {why}", report.message))
                }
                other => other,
            })?;
            let Some(pin) = pin else { return Ok(()) };
            match send(live, &what, machine, pin).await? {
                Sent::Taken => Ok(()),
                Sent::NotTrusted(why) => Err(stranger(live, &what, machine, &why)),
            }
        }
    }
}

/// What became of a machine config.
enum Sent {
    Taken,
    /// Whoever is there has another key; it was not sent.
    NotTrusted(String),
}

async fn send(live: &Live<'_>, what: &str, machine: &Machine, pin: Pin) -> Result<Sent, EffectError> {
    let trust = match pin {
        Pin::Console(key) => Trust::PinKey(key.into()),
        Pin::Network => Trust::Anybody,
    };
    let address = live.address(machine);
    let address = address.ok_or_else(|| transient(format!("{what}: its address is not known yet")))?;
    let config = live.config(machine).map_err(|why| permanent(format!("{what}: {why}")))?;
    let at = crate::live::at(address);
    let talos = Talos::maintenance(at, trust, std::sync::Arc::clone(&live.reach.dialer))
        .map_err(|error| permanent(format!("{what}: {error}")))?;
    let call = api::apply_configuration(config.expose().as_bytes(), ApplyMode::Auto, false);
    match talos.send(&call).await {
        Ok(_) => Ok(Sent::Taken),
        Err(error @ ichor_talos::Error::NotTrusted { .. }) => Ok(Sent::NotTrusted(error.to_string())),
        Err(error) => Err(match error.code() {
            // Another call is at work, or it reboots into the config that it has got.
            Some(Code::FailedPrecondition) => EffectError::Unsure(Report::new(format!("{what}: {error}"))),
            // What Talos says about the config is passed on: it names fields, and never their values.
            _ => talos_trouble(what, &error),
        }),
    }
}

/// The key that was just read from the machine's own console is not the one at its address.
fn stranger(live: &Live<'_>, what: &str, machine: &Machine, why: &str) -> EffectError {
    live.memory.unpin(&machine.name);
    let message = format!("{what}: somebody else answers at its address: {why}");
    EffectError::Permanent(Report::new(message).hint(
        "it got no machine config: find out who has the address, or give the machine another `address`",
    ))
}

fn permanent(message: String) -> EffectError {
    EffectError::Permanent(Report::new(message))
}

/// Makes sure that a VM holds nothing yet, so that it may be reset: whoever waits for a config at its address need
/// not be it.
async fn blank(live: &Live<'_>, what: &str, machine: &Machine, host: &HostName) -> Result<(), EffectError> {
    if live.memory.made(machine.vmid) {
        return Ok(());
    }
    let config = live.pve.send(&pve::config(host, machine.vmid)).await;
    let config = config.map_err(|error| pve_trouble(what, &error))?;
    let differences = live.shape(machine).differences(&config);
    if let Some(other) = differences.iter().find(|difference| difference.option.starts_with("ipconfig")) {
        return Err(not_blank(what, machine, &format!("it was made for another address: {other}")));
    }
    if let (Ok(answer), Some(address)) =
        (live.pve.send(&pve::agent_interfaces(host, machine.vmid)).await, live.address(machine))
    {
        let has = answer.addresses(&machine.primary_nic().mac.to_string());
        if !has.contains(&address) {
            return Err(not_blank(
                what,
                machine,
                &format!("its guest agent does not know the address {address}"),
            ));
        }
    }
    let name = machine.name.as_str();
    let (etcd, nodes) = tokio::join!(live.see_etcd(), live.see_nodes());
    let is_member = matches!(&etcd, Sight::Seen(members) if members.contains_key(name));
    // The node of an earlier machine stays until somebody deletes it, and nobody speaks for it: it had the address
    // at which this one waits for its config.
    let speaks = |node: &NodeSeen| {
        let here = live.address(machine).is_some_and(|address| node.addresses.contains(&address));
        node.ready || !here
    };
    let is_node = nodes.seen().and_then(|nodes| nodes.get(name)).is_some_and(speaks);
    if is_member || is_node {
        return Err(not_blank(what, machine, "the cluster knows it as a node"));
    }
    Ok(())
}

fn not_blank(what: &str, machine: &Machine, why: &str) -> EffectError {
    let message = format!(
        "{what}: a machine in maintenance mode answers at its address, and VM {} may not be it: {why}",
        machine.vmid
    );
    EffectError::Permanent(Report::new(message).hint(
        "the VM was not reset: find out who has the address, or write the `address` that the machine was made with",
    ))
}

/// Finds out what vouches for a machine's key; nothing does for one that has its config already.
async fn find_pin(
    live: &Live<'_>,
    context: &StepContext<'_>,
    what: &str,
    machine: &Machine,
) -> Result<Option<Pin>, EffectError> {
    if machine.boot.verify != Verify::Console {
        live.memory.pin(&machine.name, Pin::Network);
        return Ok(Some(Pin::Network));
    }
    let host = live.memory.host(machine.vmid);
    let host = host.ok_or_else(|| transient(format!("{what}: it is not known where its VM is")))?;
    let unread = |error: ConsoleError| {
        let message = format!("{what}: its serial console cannot be read: {error}");
        EffectError::Transient(Report::new(message).hint(
            "API tokens may read consoles since Proxmox 9.2, with `VM.Console`; otherwise choose `boot: {config: cidata}`, or trust the network with `boot: {verify: network}`",
        ))
    };
    // One that opens may be read: what is missing then is on the machine's side.
    let unheard = |error: ConsoleError| {
        let message = format!("{what}: its serial console does not show its key: {error}");
        EffectError::Transient(Report::new(message).hint(format!(
            "Talos prints it to the first serial port: see what VM {0} says there, and whether its image has the kernel argument `console=ttyS0`:\n    qm terminal {0}",
            machine.vmid
        )))
    };
    blank(live, what, machine, &host).await?;
    let console = open(live, machine, &host).await.map_err(unread)?;
    context.progress(0.0, "resetting the VM to see its key on the console");
    let upid = live.pve.send(&pve::reset(&host, machine.vmid)).await;
    let upid = upid.map_err(|error| pve_trouble(what, &error))?;
    task::wait(live, what, &upid).await?;
    match read_key(live, machine, console).await.map_err(unheard)? {
        Heard::Key(key) => {
            live.memory.pin(&machine.name, Pin::Console(key));
            Ok(Some(Pin::Console(key)))
        }
        Heard::Configured => Ok(None),
        Heard::Missed => {
            Err(unheard(ConsoleError::Late("nothing with a key, though Talos waits for its config".into())))
        }
    }
}
