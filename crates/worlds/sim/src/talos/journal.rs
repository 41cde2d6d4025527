//! What a machine writes down: events, logs of services, and the kernel's messages.

use std::collections::{BTreeMap, VecDeque};

use ichor_talos_proto::{Any, Message, machine as api};
use serde::{Deserialize, Serialize};

use crate::clock::Time;

/// Talos keeps so many events.
const MOST_EVENTS: usize = 1000;
/// The lab keeps so many lines of each log.
const MOST_LINES: usize = 2000;

/// What a machine writes down.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Journal {
    /// Events, with the number of the first.
    events: VecDeque<Noted>,
    first_event: u64,
    /// Logs by service.
    logs: BTreeMap<String, Lines>,
    /// The kernel's messages.
    kernel: Lines,
    /// What was not yet shown on the console.
    console: String,
}

/// An event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Noted {
    at: Time,
    kind: String,
    data: Vec<u8>,
    actor: String,
}

/// Lines, with the number of the first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Lines {
    lines: VecDeque<String>,
    first: u64,
}

impl Lines {
    fn push(&mut self, line: String) {
        self.lines.push_back(line);
        if self.lines.len() > MOST_LINES {
            self.lines.pop_front();
            self.first += 1;
        }
    }

    /// Returns the number that the next line will have.
    pub fn end(&self) -> u64 {
        self.first + self.lines.len() as u64
    }

    /// Returns the lines from a number on.
    pub fn since(&self, number: u64) -> impl Iterator<Item = &str> {
        let skip = usize::try_from(number.saturating_sub(self.first)).unwrap_or(usize::MAX);
        self.lines.iter().skip(skip).map(String::as_str)
    }
}

impl Journal {
    /// Notes an event; `kind` is the name of its message.
    pub fn event(&mut self, at: Time, kind: &str, data: &[u8], actor: &str) {
        self.events.push_back(Noted {
            at,
            kind: kind.to_owned(),
            data: data.to_vec(),
            actor: actor.to_owned(),
        });
        if self.events.len() > MOST_EVENTS {
            self.events.pop_front();
            self.first_event += 1;
        }
    }

    /// Notes a message of Talos itself, as the kernel's log and the console show it.
    pub fn talos(&mut self, at: Time, began: Time, text: &str) {
        let since = at.since(began);
        let line = format!("[{:>5}.{:06}] [talos] {text}", since.as_secs(), since.subsec_micros());
        self.log("machined", text);
        self.console.push_str(&line);
        self.console.push_str("\r\n");
        self.kernel.push(line);
    }

    /// Notes a line of a service.
    pub fn log(&mut self, service: &str, line: &str) {
        self.logs.entry(service.to_owned()).or_default().push(line.to_owned());
    }

    /// Takes what the console is to show.
    pub fn take_console(&mut self) -> String {
        std::mem::take(&mut self.console)
    }

    /// Returns the log of a service.
    pub fn of(&self, service: &str) -> Option<&Lines> {
        self.logs.get(service)
    }

    /// Returns the kernel's messages.
    pub const fn kernel(&self) -> &Lines {
        &self.kernel
    }

    /// Returns the number that the next event will have.
    pub fn event_end(&self) -> u64 {
        self.first_event + self.events.len() as u64
    }

    /// Returns events from a number on, as the API sends them.
    pub fn events_since(&self, number: u64) -> impl Iterator<Item = (Time, api::Event)> {
        let first = self.first_event;
        let skip = usize::try_from(number.saturating_sub(first)).unwrap_or(usize::MAX);
        self.events.iter().enumerate().skip(skip).map(move |(index, noted)| {
            let event = api::Event {
                metadata: None,
                data: Some(Any {
                    type_url: format!("talos/runtime/machine.{}", noted.kind),
                    value: noted.data.clone(),
                }),
                id: event_id(first + index as u64),
                actor_id: noted.actor.clone(),
            };
            (noted.at, event)
        })
    }

    /// Returns the number of an event by its id.
    pub fn event_number(&self, id: &str) -> Option<u64> {
        (self.first_event..self.event_end()).find(|number| event_id(*number) == id)
    }

    /// Notes the beginning or the end of a sequence.
    pub fn sequence(&mut self, at: Time, began: Time, name: &str, action: i32, actor: &str) {
        let event = api::SequenceEvent { sequence: name.to_owned(), action, error: None };
        self.event(at, "SequenceEvent", &event.encode_to_vec(), actor);
        let word = if action == api::sequence_event::Action::Start as i32 { "starting" } else { "done" };
        self.talos(at, began, &format!("{name} sequence: {word}"));
    }
}

/// Ids have the form of an xid: 20 digits of base 32 that grow.
fn event_id(number: u64) -> String {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
    let mut id = [b'c'; 20];
    for (index, digit) in id.iter_mut().rev().enumerate().take(13) {
        let bits = number.checked_shr(u32::try_from(index).unwrap_or(0) * 5).unwrap_or(0);
        *digit = DIGITS[usize::try_from(bits & 31).unwrap_or(0)];
    }
    id.iter().map(|byte| char::from(*byte)).collect()
}
