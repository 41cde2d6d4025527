//! The serial console of a VM.
//!
//! 1. [`term_proxy`] gives a [`Ticket`]: a proxy waits ten seconds for its holder, on the host that was asked.
//! 2. A websocket to [`websocket`] leads there. The first message is [`Ticket::introduction`], the answer `OK`.
//! 3. What comes then is what the VM prints, and [`Lines`] makes readable lines of it.
//!
//! A serial port keeps nothing: whoever comes late has missed it. A VM that does not run has no port to open, so
//! whoever must miss nothing starts it with `freeze=1`, opens the console, and lets it go on (`status/resume`).
//! API tokens are let in by Proxmox 9.2 (qemu-server 9.1.7) and later; older releases hang up on them.

use std::{fmt, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use ichor_model::{HostName, VmId};
use ichor_port::{Http, Method, NotOpened, Received, Secret, TransportError, WebSocket, WebSockets};
use serde::{Deserialize, Deserializer, de::IgnoredAny};
use serde_json::Value;
use thiserror::Error;

use crate::{
    call::Call,
    client::{Client, Error},
    refusal::Refusal,
};

/// Most bytes that are read from a console. A boot of Talos prints a hundredth of it.
pub const MAX_BYTES: usize = 8 * 1024 * 1024;
/// Most bytes of a line; what is longer is cut. The kernel cuts its own lines at 1 KiB.
const MAX_LINE: usize = 8 * 1024;
/// How long a console may be silent before it is shown that somebody is there, as the web interface does.
const QUIET: Duration = Duration::from_secs(30);
/// The subprotocol of the websocket.
const PROTOCOL: &str = "binary";
/// Says that somebody is there, in the proxy's framing.
const PING: &[u8] = b"2";

/// What opens a console.
#[derive(Clone, PartialEq, Eq, Deserialize)]
pub struct Ticket {
    user: String,
    #[serde(rename = "ticket", deserialize_with = "secret")]
    secret: Secret,
    #[serde(deserialize_with = "port")]
    port: u16,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("user", &self.user).field("port", &self.port).finish_non_exhaustive()
    }
}

fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
    String::deserialize(deserializer).map(Secret::new)
}

/// The description says that ports are numbers; answers have them as text.
fn port<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    let port = match Value::deserialize(deserializer)? {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.as_u64().and_then(|number| u16::try_from(number).ok()),
        _ => None,
    };
    port.ok_or_else(|| serde::de::Error::custom("the port of a console is no port"))
}

impl Ticket {
    /// Returns the first message that the proxy wants.
    pub fn introduction(&self) -> Vec<u8> {
        format!("{}:{}\n", self.user, self.secret.expose()).into_bytes()
    }
}

/// Asks for a ticket for the serial console.
pub fn term_proxy(host: &HostName, vmid: VmId) -> Call<Ticket> {
    let vmid = vmid.to_string();
    Call::new(Method::Post, &["nodes", host.as_str(), "qemu", &vmid, "termproxy"])
}

/// Opens the websocket to a console. The proxy is on the host that gave the ticket, so the same one must be asked.
pub fn websocket(host: &HostName, vmid: VmId, ticket: &Ticket) -> Call<IgnoredAny> {
    let vmid = vmid.to_string();
    Call::new(Method::Get, &["nodes", host.as_str(), "qemu", &vmid, "vncwebsocket"])
        .with("port", ticket.port)
        .with("vncticket", ticket.secret.expose())
}

/// Frames what is typed into a console.
pub fn typed(keys: &[u8]) -> Vec<u8> {
    [format!("0:{}:", keys.len()).as_bytes(), keys].concat()
}

/// Frames the size of a terminal.
pub fn resized(columns: u16, rows: u16) -> Vec<u8> {
    format!("1:{columns}:{rows}:").into_bytes()
}

/// Why a console could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ConsoleError {
    /// Proxmox gave no ticket, or did not accept it.
    #[error(transparent)]
    Call(#[from] Error),
    /// The connection broke.
    #[error("{0}")]
    Transport(#[from] TransportError),
    /// The proxy hung up on us instead of letting us in, as releases before 9.2 do to API tokens.
    #[error("the console did not let us in; Proxmox before 9.2 does not let API tokens read consoles")]
    NotLetIn,
    /// The console has ended.
    #[error("the console ended{}", last_words(.0))]
    Ended(String),
    /// What was waited for was not printed in time.
    #[error("the console did not show what was waited for in time{}", last_words(.0))]
    Late(String),
    /// What was waited for was not among all that was printed.
    #[error("the console printed more than {MAX_BYTES} bytes without what was waited for")]
    TooMuch,
}

fn last_words(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!("; it last said `{words}`") }
}

impl ConsoleError {
    /// Whether the VM does not run, so that there is nothing to read yet.
    pub fn is_off(&self) -> bool {
        matches!(self, Self::Ended(words) if words.starts_with("VM ") && words.ends_with(" not running"))
    }

    /// Whether the VM has no serial port.
    pub fn has_no_port(&self) -> bool {
        matches!(self, Self::Ended(words) if words.contains("serial interface") && !words.starts_with("starting"))
    }
}

/// An open console.
#[derive(Debug)]
pub struct Console<S> {
    socket: S,
    lines: Lines,
    /// Lines that were read and not yet looked at.
    read: std::collections::VecDeque<String>,
    bytes: usize,
    last: String,
}

impl<T: Http + WebSockets> Client<T> {
    /// Opens the serial console of a VM that runs. Everything must happen within a time, reading included. When it
    /// is open, nothing that the VM prints from then on is missed.
    pub async fn open_console(
        &self,
        host: &HostName,
        vmid: VmId,
        within: Duration,
    ) -> Result<Console<T::Socket>, ConsoleError> {
        let ticket = self.send(&term_proxy(host, vmid)).await?;
        let request = self.request(&websocket(host, vmid, &ticket));
        let opened = self.transport.open(request, PROTOCOL, within).await;
        let mut socket = opened.map_err(|error| match error {
            NotOpened::Transport(error) => ConsoleError::Transport(error),
            NotOpened::Answered(response) => Error::Refused(Refusal::read(&response)).into(),
        })?;
        socket.send(ticket.introduction()).await?;
        let mut console = Console {
            socket,
            lines: Lines::default(),
            read: std::collections::VecDeque::new(),
            bytes: 0,
            last: String::new(),
        };
        console.enter().await?;
        // The terminal says that it begins; an error is said in its place.
        console.read_until(|line| line.starts_with(BEGINS).then_some(())).await?;
        Ok(console)
    }

    /// Reads the serial console of a VM that runs until a line is found.
    pub async fn read_console<F>(
        &self,
        host: &HostName,
        vmid: VmId,
        within: Duration,
        until: impl FnMut(&str) -> Option<F>,
    ) -> Result<F, ConsoleError> {
        self.open_console(host, vmid, within).await?.read_until(until).await
    }
}

/// How a terminal begins.
const BEGINS: &str = "starting serial terminal on interface ";
/// What the proxy says to those whom it lets in.
const LET_IN: &[u8] = b"OK";

impl<S: WebSocket> Console<S> {
    /// Waits until the proxy lets us in. What the terminal says may follow in the same message.
    async fn enter(&mut self) -> Result<(), ConsoleError> {
        let mut said = Vec::new();
        while said.len() < LET_IN.len() {
            match self.socket.receive(QUIET).await? {
                Received::Message(bytes) => said.extend(bytes),
                Received::Quiet => {}
                Received::Closed => return Err(ConsoleError::NotLetIn),
                Received::Late => return Err(ConsoleError::Late(String::new())),
            }
        }
        let rest = said.strip_prefix(LET_IN).ok_or(ConsoleError::NotLetIn)?;
        self.read.extend(self.lines.take(rest));
        Ok(())
    }

    /// Reads whole lines until one is found, and returns what was found in it. Going on afterwards continues
    /// behind that line.
    pub async fn read_until<F>(
        &mut self,
        mut until: impl FnMut(&str) -> Option<F>,
    ) -> Result<F, ConsoleError> {
        loop {
            while let Some(line) = self.read.pop_front() {
                let found = until(&line);
                if !line.is_empty() {
                    self.last = ichor_port::clean(&line);
                }
                if let Some(found) = found {
                    return Ok(found);
                }
            }
            match self.socket.receive(QUIET).await? {
                Received::Message(bytes) => {
                    self.bytes = self.bytes.saturating_add(bytes.len());
                    if self.bytes > MAX_BYTES {
                        return Err(ConsoleError::TooMuch);
                    }
                    self.read.extend(self.lines.take(&bytes));
                }
                Received::Quiet => self.socket.send(PING.to_vec()).await?,
                Received::Closed => return Err(ConsoleError::Ended(self.last.clone())),
                Received::Late => return Err(ConsoleError::Late(self.last.clone())),
            }
        }
    }

    /// Types into the console.
    pub async fn send(&mut self, keys: &[u8]) -> Result<(), ConsoleError> {
        Ok(self.socket.send(typed(keys)).await?)
    }
}

/// Makes lines of what a console prints: without escape sequences, and no longer than they should be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lines {
    line: Vec<u8>,
    escape: Escape,
}

/// Where in an escape sequence a text is (ECMA-48).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Escape {
    /// In none.
    #[default]
    Text,
    /// After ESC.
    Begun,
    /// After `ESC [`: until a final byte.
    Control,
    /// After `ESC ]` and the like: until BEL or `ESC \`.
    Command,
    /// After ESC in a command.
    CommandEnds,
}

impl Lines {
    /// Takes more bytes, and returns the lines that they complete.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for byte in bytes {
            if self.escape.passes(*byte) {
                match byte {
                    b'\n' => {
                        let line = std::mem::take(&mut self.line);
                        lines.push(String::from_utf8_lossy(&line).trim_end().to_owned());
                    }
                    b'\t' => self.push(b' '),
                    0x00..=0x1f | 0x7f => {}
                    _ => self.push(*byte),
                }
            }
        }
        lines
    }

    fn push(&mut self, byte: u8) {
        if self.line.len() < MAX_LINE {
            self.line.push(byte);
        }
    }
}

impl Escape {
    /// Moves on by a byte, and returns whether it is text.
    #[expect(clippy::match_same_arms, reason = "the arms follow the sequences, not their ends")]
    fn passes(&mut self, byte: u8) -> bool {
        let (next, text) = match (*self, byte) {
            // Whatever was begun, a line ends it: a broken sequence must not swallow all that follows.
            (_, b'\n') => (Self::Text, true),
            (Self::Text | Self::Control | Self::Begun, 0x1b) => (Self::Begun, false),
            (Self::Text, _) => (Self::Text, true),
            (Self::Begun, b'[') => (Self::Control, false),
            (Self::Begun, b']' | b'P' | b'X' | b'^' | b'_') => (Self::Command, false),
            // ESC ( B and the like have one byte more.
            (Self::Begun, 0x20..=0x2f) => (Self::Begun, false),
            (Self::Begun, _) | (Self::Control, 0x40..=0x7e) => (Self::Text, false),
            (Self::Control, _) => (Self::Control, false),
            (Self::Command, 0x07) | (Self::CommandEnds, b'\\') => (Self::Text, false),
            (Self::Command | Self::CommandEnds, 0x1b) => (Self::CommandEnds, false),
            (Self::Command | Self::CommandEnds, _) => (Self::Command, false),
        };
        *self = next;
        text
    }
}

/// Finds in a line the key with which a Talos machine waits for its config: the SHA-256 of the certificate's
/// `SubjectPublicKeyInfo`. Talos prints it when the certificate is issued, once, and anew after every reboot.
pub fn maintenance_key(line: &str) -> Option<[u8; 32]> {
    let (_, said) = line.split_once("[talos] server certificate issued ")?;
    let (_, rest) = said.split_once("\"fingerprint\": \"")?;
    let (fingerprint, _) = rest.split_once('"')?;
    STANDARD.decode(fingerprint).ok()?.try_into().ok()
}

/// Finds the newest key in what a console printed.
pub fn newest_maintenance_key(printed: &[u8]) -> Option<[u8; 32]> {
    Lines::default().take(printed).iter().rev().find_map(|line| maintenance_key(line))
}

#[cfg(test)]
mod tests;
