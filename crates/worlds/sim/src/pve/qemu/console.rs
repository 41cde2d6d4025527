//! Consoles: tickets for the serial port and the screen, and the proxy behind the serial port's websocket.
//!
//! 1. `POST .../termproxy` starts a task that listens on a port for one client, for ten seconds.
//! 2. `GET .../vncwebsocket` checks the ticket; the front server then joins the websocket to that port.
//! 3. The client's first line is `user:ticket`. Who is let in is told `OK`, and `qm terminal` runs for them.
//! 4. From then on everything that the guest prints is passed on. A serial port keeps nothing: what was printed
//!    before, nobody sees again. It has one reader; others wait until that one has gone.

// Handlers share one signature, whether they can fail or not.
#![allow(clippy::unnecessary_wraps)]

use std::{collections::BTreeMap, time::Duration};

use ichor_model::VmId;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::load;
use crate::{
    clock::Time,
    ground::Ground,
    pve::{ApiError, Call, Caller, Datacentre, Exit, Next, Params, Reply, tasks},
    wire::{Polled, StreamId},
};

/// The ports that consoles listen on, the last one excluded.
const PORTS: std::ops::Range<u16> = 5900..6000;
/// How long a proxy waits for its client, and then for the client's first line. These are no matters of
/// hardware: a client needs its time in any profile.
const PATIENCE: Duration = Duration::from_secs(10);
/// How old a ticket may be.
const TICKET_LIFE: u64 = 40;
/// Most bytes of a client's first line. Tickets have at most 512 characters.
const MOST_LINE: usize = 4096;
/// How often a proxy with a client makes sure that it is still needed.
const ROUND: Duration = Duration::from_secs(30);

/// The consoles of a datacentre. They are connections, and so not kept with a lab's state.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Consoles {
    tickets: Vec<Ticket>,
    proxies: BTreeMap<u16, Proxy>,
    connected: u64,
}

/// A ticket. The real one is a signature over the same things.
#[derive(Debug, Clone, PartialEq)]
struct Ticket {
    text: String,
    user: String,
    vmid: VmId,
    port: u16,
    screen: bool,
    made: u64,
}

/// A `termproxy` and what it runs.
#[derive(Debug, Clone, PartialEq)]
struct Proxy {
    vmid: VmId,
    host: String,
    ticket: String,
    serial: Option<String>,
    upid: String,
    client: Option<StreamId>,
    stage: Stage,
    /// What the client is still to be sent.
    outbox: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq)]
enum Stage {
    /// Waits for a client.
    Listens,
    /// Waits for the client's first line.
    Asks { line: Vec<u8>, until: Time },
    /// At a serial port of the process with this number.
    Reads { pid: u32, serial: String, seen: Option<u64> },
    /// Says what is left to say, and ends.
    Over,
}

/// The task of a proxy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Serve {
    port: u16,
    vmid: VmId,
    begun: bool,
}

impl Serve {
    /// Does the next stretch.
    pub fn step(&mut self, dc: &mut Datacentre, ground: &Ground, upid: &str) -> Next {
        if !std::mem::replace(&mut self.begun, true) {
            return Next::WaitUntil(ground.now + PATIENCE);
        }
        let proxy = dc.consoles.proxies.get(&self.port).filter(|proxy| proxy.upid == upid);
        if proxy.is_some_and(|proxy| proxy.client.is_some()) {
            return Next::WaitUntil(ground.now + ROUND);
        }
        self.leave(dc, upid);
        Next::Done(failed(self.port, self.vmid))
    }

    /// The process was told to end: its client is cut off.
    pub fn interrupt(&self, dc: &mut Datacentre, upid: &str) -> Exit {
        self.leave(dc, upid);
        Exit::Failed("received interrupt".into())
    }

    fn leave(&self, dc: &mut Datacentre, upid: &str) {
        if dc.consoles.proxies.get(&self.port).is_some_and(|proxy| proxy.upid == upid) {
            dc.consoles.proxies.remove(&self.port);
        }
    }
}

/// Answers `POST .../termproxy`: a ticket for the serial console. Whether there is a serial port, and whether the
/// VM runs, only shows when the terminal is opened.
pub fn term_proxy(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let (vmid, host) = (params.path_vmid(), params.host());
    let config = &load(dc, &host, vmid)?.config;
    let serial = params.text("serial").or_else(|| {
        let display = config.get("vga").unwrap_or_default().split(',').next().unwrap_or_default();
        let display = display.strip_prefix("type=").unwrap_or(display);
        display.strip_prefix("serial").is_some().then(|| display.to_owned())
    });
    let port = free_port(dc)?;
    let ticket = ticket(dc, ground, call, vmid, port, false);
    let work = super::Work::Console(Serve { port, vmid, begun: false });
    let front = dc.front.clone();
    let (id, user) = (vmid.to_string(), &call.caller.id);
    let upid = tasks::start(dc, ground, &front, "vncproxy", &id, user, tasks::Work::Qemu(work));
    let proxy = Proxy {
        vmid,
        host,
        ticket: ticket.clone(),
        serial,
        upid: upid.clone(),
        client: None,
        stage: Stage::Listens,
        outbox: Vec::new(),
    };
    dc.consoles.proxies.insert(port, proxy);
    Ok(json!({ "ticket": ticket, "port": port.to_string(), "upid": upid, "user": call.caller.id }).into())
}

/// Answers `POST .../vncproxy`: a ticket for the screen.
pub fn vnc_proxy(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let vmid = params.path_vmid();
    load(dc, &params.host(), vmid)?;
    let port = free_port(dc)?;
    let ticket = ticket(dc, ground, call, vmid, port, true);
    let front = dc.front.clone();
    // The proxy waits for its client and goes when nobody comes.
    let work = tasks::Work::Nothing(PATIENCE);
    let upid = tasks::start(dc, ground, &front, "vncproxy", &vmid.to_string(), &call.caller.id, work);
    Ok(json!({ "ticket": ticket, "port": port.to_string(), "upid": upid, "user": call.caller.id }).into())
}

/// Answers `GET .../vncwebsocket`: whether the front server may join the websocket to the port.
pub fn websocket(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, params: &Params) -> Reply {
    let vmid = params.path_vmid();
    let (given, port) =
        (params.text("vncticket").unwrap_or_default(), params.text("port").unwrap_or_default());
    let number: Option<u16> = port.parse().ok();
    let now = ground.now.unix_seconds();
    // From qemu-server 9.1.7 on a ticket is for one port alone.
    let bound = dc.release.at_least(9, 2);
    let ticket = dc.consoles.tickets.iter().find(|ticket| {
        ticket.text == given
            && ticket.is_for(&call.caller.id, vmid, now)
            && (!bound || Some(ticket.port) == number)
    });
    let Some(ticket) = ticket else {
        return Err(ApiError::status(401, "permission denied - invalid PVEVNC ticket\n").into());
    };
    if ticket.screen {
        return Err(ApiError::status(501, "the lab has no screens").into());
    }
    load(dc, &params.host(), vmid)?;
    Ok(json!({ "port": port }).into())
}

impl Ticket {
    fn is_for(&self, user: &str, vmid: VmId, now: u64) -> bool {
        self.user == user && self.vmid == vmid && now.saturating_sub(self.made) < TICKET_LIFE
    }
}

fn free_port(dc: &Datacentre) -> Result<u16, ApiError> {
    let mut ports = PORTS;
    ports.find(|port| !dc.consoles.proxies.contains_key(port)).ok_or_else(|| {
        let text = format!("unable to find free port ({}-{})\n", PORTS.start, PORTS.end);
        ApiError::server(text)
    })
}

fn ticket(
    dc: &mut Datacentre,
    ground: &mut Ground,
    call: &Call,
    vmid: VmId,
    port: u16,
    screen: bool,
) -> String {
    let made = ground.now.unix_seconds();
    let signature: String = (0..4).map(|_| format!("{:016x}", ground.random.bits())).collect();
    let text = format!("PVEVNC:{made:08X}::{signature}");
    dc.consoles.tickets.retain(|ticket| made.saturating_sub(ticket.made) < TICKET_LIFE);
    let user = call.caller.id.clone();
    dc.consoles.tickets.push(Ticket { text: text.clone(), user, vmid, port, screen, made });
    text
}

/// How the task of a proxy ends that did not get along with its client.
fn failed(port: u16, vmid: VmId) -> Exit {
    Exit::Failed(format!(
        "command '/usr/bin/termproxy {port} --path /vms/{vmid} --perm VM.Console -- /usr/sbin/qm terminal {vmid} \
         -escape 0' failed: exit code 1"
    ))
}

/// Connects a client to the port of a proxy; nothing where nobody listens. A proxy takes one client.
pub fn connect(dc: &mut Datacentre, ground: &Ground, port: u16) -> Option<StreamId> {
    let consoles = &mut dc.consoles;
    let proxy = consoles.proxies.get_mut(&port).filter(|proxy| proxy.stage == Stage::Listens)?;
    let client = StreamId(consoles.connected);
    consoles.connected += 1;
    proxy.client = Some(client);
    proxy.stage = Stage::Asks { line: Vec::new(), until: ground.now + PATIENCE };
    Some(client)
}

/// Takes what a client sent. After the first line it is input, which no machine of the lab reads.
pub fn hear(dc: &mut Datacentre, ground: &mut Ground, client: StreamId, bytes: &[u8]) {
    let Some(port) = dc.consoles.port_of(client) else { return };
    let Some(proxy) = dc.consoles.proxies.get_mut(&port) else { return };
    let Stage::Asks { line, .. } = &mut proxy.stage else { return };
    line.extend_from_slice(&bytes[..bytes.len().min(MOST_LINE)]);
    match line.iter().position(|byte| *byte == b'\n') {
        Some(end) => {
            let line = String::from_utf8_lossy(&line[..end]).into_owned();
            let (outbox, stage) =
                if let_in(dc, ground, port, &line) { begin(dc, port) } else { (Vec::new(), Stage::Over) };
            if let Some(proxy) = dc.consoles.proxies.get_mut(&port) {
                proxy.outbox = outbox;
                proxy.stage = stage;
            }
        }
        None if line.len() >= MOST_LINE => proxy.stage = Stage::Over,
        None => {}
    }
}

/// Whether a client's first line lets it in.
fn let_in(dc: &Datacentre, ground: &Ground, port: u16, line: &str) -> bool {
    let Some(proxy) = dc.consoles.proxies.get(&port) else { return false };
    let Some((user, given)) = line.split_once(':') else { return false };
    let token = user.contains('!');
    // Releases before 9.2 ask the call that logs users in, which knows no tokens (qemu-server before 9.1.7).
    if token && !dc.release.at_least(9, 2) {
        return false;
    }
    let now = ground.now.unix_seconds();
    let known = |ticket: &Ticket| ticket.text == given && ticket.is_for(user, proxy.vmid, now);
    let caller = Caller { id: user.to_owned(), token };
    let path = format!("/vms/{}", proxy.vmid);
    // The ticket is pinned since 9.2; before, any ticket for the VM would do.
    let pinned = !dc.release.at_least(9, 2) || proxy.ticket == given;
    pinned && dc.consoles.tickets.iter().any(known) && dc.check(&caller, &path, &["VM.Console"]).is_ok()
}

/// Runs `qm terminal`: what the client is sent first, and where that leaves the proxy.
fn begin(dc: &Datacentre, port: u16) -> (Vec<u8>, Stage) {
    let said = |text: &str| format!("OK{text}\r\n").into_bytes();
    let Some(proxy) = dc.consoles.proxies.get(&port) else { return (Vec::new(), Stage::Over) };
    match terminal(dc, proxy) {
        Ok((serial, pid)) => {
            let text = format!("starting serial terminal on interface {serial}");
            (said(&text), Stage::Reads { pid, serial, seen: None })
        }
        Err(text) => (said(&text), Stage::Over),
    }
}

/// Finds the serial port that a terminal opens, and the process it belongs to.
fn terminal(dc: &Datacentre, proxy: &Proxy) -> Result<(String, u32), String> {
    let vmid = proxy.vmid;
    let host = dc.hosts.get(&proxy.host);
    if proxy.host != dc.front
        && let Some(silent) = host.filter(|host| !host.answers())
    {
        return Err(format!("ssh: connect to host {} port 22: {}", proxy.host, silent.silence()));
    }
    let vm = load(dc, &proxy.host, vmid).map_err(|error| error.as_text())?;
    let serial = match &proxy.serial {
        Some(serial) => match vm.config.get(serial) {
            None => return Err(format!("serial interface '{serial}' is not configured")),
            Some("socket") => serial.clone(),
            Some(_) => return Err(format!("wrong serial type on interface '{serial}'")),
        },
        None => (0..4)
            .map(|number| format!("serial{number}"))
            .find(|serial| vm.config.get(serial) == Some("socket"))
            .ok_or("unable to find a serial interface")?,
    };
    let Some(run) = &vm.run else { return Err(format!("VM {vmid} not running")) };
    // A port that was added since has no socket yet.
    if run.devices.get(&serial).map(String::as_str) != Some("socket") {
        return Err(format!(
            "connect(, AF=1 \"/var/run/qemu-server/{vmid}.{serial}\"): No such file or directory"
        ));
    }
    Ok((serial, run.pid))
}

/// Returns what a client is sent now.
pub fn poll(dc: &mut Datacentre, ground: &mut Ground, client: StreamId) -> Polled {
    let Some(port) = dc.consoles.port_of(client) else { return Polled::End };
    let Some(proxy) = dc.consoles.proxies.get(&port) else { return Polled::End };
    let news = news(dc, ground, proxy);
    let Some(proxy) = dc.consoles.proxies.get_mut(&port) else { return Polled::End };
    let mut bytes = std::mem::take(&mut proxy.outbox);
    match (&mut proxy.stage, news) {
        (Stage::Asks { until, .. }, _) if ground.now < *until => return Polled::Wait(Some(*until)),
        (Stage::Reads { seen, .. }, News::Printed(text, end)) => {
            *seen = Some(end);
            bytes.extend(text);
        }
        (Stage::Reads { .. }, News::Another) => {}
        (stage, _) => *stage = Stage::Over,
    }
    if !bytes.is_empty() {
        return Polled::Pieces(vec![bytes]);
    }
    if proxy.stage == Stage::Over {
        let exit = failed(port, proxy.vmid);
        end(dc, ground, port, &exit);
        return Polled::End;
    }
    Polled::Wait(None)
}

/// What a serial port has for a reader.
enum News {
    /// This, up to this place.
    Printed(Vec<u8>, u64),
    /// Nothing, because another reader is there.
    Another,
    /// The process is gone.
    Gone,
}

fn news(dc: &Datacentre, ground: &Ground, proxy: &Proxy) -> News {
    let Stage::Reads { pid, serial, seen } = &proxy.stage else { return News::Gone };
    let run = dc.vms.get(&proxy.vmid).and_then(|vm| vm.run.as_ref());
    if run.is_none_or(|run| run.pid != *pid) {
        return News::Gone;
    }
    let before = |other: &&Proxy| {
        let same =
            matches!(&other.stage, Stage::Reads { pid: at, serial: port, .. } if at == pid && port == serial);
        same && other.client < proxy.client
    };
    if dc.consoles.proxies.values().any(|other| before(&other)) {
        return News::Another;
    }
    // Talos writes to the first serial port only.
    let Some(guest) = ground.guests.get(&proxy.vmid).filter(|_| serial == "serial0") else {
        return News::Printed(Vec::new(), 0);
    };
    let text = seen.map(|seen| guest.printed_since(seen)).unwrap_or_default();
    News::Printed(text.as_bytes().to_vec(), guest.printed)
}

/// A client has gone.
pub fn hang_up(dc: &mut Datacentre, ground: &mut Ground, client: StreamId) {
    if let Some(port) = dc.consoles.port_of(client) {
        end(dc, ground, port, &Exit::Ok);
    }
}

fn end(dc: &mut Datacentre, ground: &mut Ground, port: u16, exit: &Exit) {
    if let Some(proxy) = dc.consoles.proxies.remove(&port) {
        tasks::end(dc, ground, &proxy.upid, exit);
    }
}

impl Consoles {
    fn port_of(&self, client: StreamId) -> Option<u16> {
        let mut proxies = self.proxies.iter();
        proxies.find(|(_, proxy)| proxy.client == Some(client)).map(|(port, _)| *port)
    }
}
