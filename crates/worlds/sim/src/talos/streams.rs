//! Answers that go on: events, logs, watches, and the progress of installers.

use std::collections::{BTreeMap, BTreeSet};

use ichor_model::VmId;
use ichor_talos_proto::{Message, common};
use serde::{Deserialize, Serialize};

use super::{Machines, machine::Api, resources::Watch};
use crate::{
    clock::Time,
    ground::Ground,
    wire::{Polled, StreamId},
};

/// Callers who went away without a word leave their streams behind; the oldest are forgotten.
const MOST_STREAMS: usize = 512;

/// All streams.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Streams {
    last: u64,
    streams: BTreeMap<u64, Stream>,
}

/// A stream, and the start of the machine that it belongs to: with that it ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Stream {
    vmid: VmId,
    start: u32,
    api: Api,
    source: Source,
}

/// Where the messages of a stream come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Events from a number on; only those of an actor, if one is named.
    Events(u64, String),
    /// Lines of a service's log from a number on.
    Log(String, u64),
    /// Lines of the kernel from a number on.
    Kernel(u64),
    /// Changes of resources.
    Watch(Box<Watch>),
    /// Messages at their times.
    Script(Vec<(Time, Vec<u8>)>),
    /// What was still to be said when the machine stopped.
    Rest(Vec<Vec<u8>>),
    /// Streams of several machines, with the names they were asked by.
    Joined(Vec<(String, StreamId)>),
}

impl Machines {
    /// Opens a stream of a machine.
    pub(super) fn open(&mut self, vmid: VmId, source: Source) -> StreamId {
        let (start, api) = self.by_id.get(&vmid).map_or((0, Api::Closed), |machine| {
            (machine.start, machine.run.as_ref().map_or(Api::Closed, |run| run.api))
        });
        self.streams.last += 1;
        self.streams.streams.insert(self.streams.last, Stream { vmid, start, api, source });
        if self.streams.streams.len() > MOST_STREAMS {
            self.streams.streams.pop_first();
        }
        StreamId(self.streams.last)
    }

    /// Returns the machines whose resources somebody watches.
    pub(super) fn watched(&self) -> Vec<VmId> {
        let is_watch = |stream: &&Stream| matches!(stream.source, Source::Watch(_));
        let machines = self.streams.streams.values().filter(is_watch).map(|stream| stream.vmid);
        machines.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns what a stream has to say.
    pub fn poll(&mut self, ground: &mut Ground, stream: StreamId) -> Polled {
        self.settle(ground);
        self.poll_one(ground, stream)
    }

    /// Returns how many streams are open.
    pub fn open_streams(&self) -> usize {
        self.streams.streams.len()
    }

    /// Forgets a stream whose caller has gone, with the streams that it joins.
    pub fn close(&mut self, stream: StreamId) {
        if let Some(Stream { source: Source::Joined(parts), .. }) = self.streams.streams.remove(&stream.0) {
            for (_, part) in parts {
                self.streams.streams.remove(&part.0);
            }
        }
    }

    /// Lets the streams of a machine that stops say what they have not yet said: nobody who followed it would
    /// miss its last words, however fast it goes.
    pub(super) fn last_words(&mut self, ground: &Ground, vmid: VmId) {
        let of_machine = |stream: &Stream| {
            stream.vmid == vmid
                && !matches!(stream.source, Source::Joined(_) | Source::Script(_) | Source::Rest(_))
        };
        let streams = self.streams.streams.iter().filter(|(_, stream)| of_machine(stream));
        let ids: Vec<u64> = streams.map(|(id, _)| *id).collect();
        for id in ids {
            let Some(mut stream) = self.streams.streams.remove(&id) else { continue };
            if let Polled::Pieces(rest) = self.poll_source(ground, &mut stream) {
                stream.source = Source::Rest(rest);
            }
            self.streams.streams.insert(id, stream);
        }
    }

    fn poll_one(&mut self, ground: &Ground, id: StreamId) -> Polled {
        let Some(mut stream) = self.streams.streams.remove(&id.0) else { return Polled::End };
        let polled = match &mut stream.source {
            Source::Joined(parts) => self.poll_joined(ground, parts),
            Source::Rest(rest) if rest.is_empty() => Polled::End,
            Source::Rest(rest) => Polled::Pieces(std::mem::take(rest)),
            _ => self.poll_source(ground, &mut stream),
        };
        if polled != Polled::End {
            self.streams.streams.insert(id.0, stream);
        }
        polled
    }

    fn poll_joined(&mut self, ground: &Ground, parts: &mut Vec<(String, StreamId)>) -> Polled {
        let mut pieces = Vec::new();
        let mut next: Option<Time> = None;
        parts.retain(|(hostname, id)| match self.poll_one(ground, *id) {
            Polled::Pieces(more) => {
                pieces.extend(more.into_iter().map(|piece| super::serve::sign(hostname, piece)));
                true
            }
            Polled::Wait(at) => {
                next = next.into_iter().chain(at).min();
                true
            }
            Polled::End => false,
        });
        match (pieces.is_empty(), parts.is_empty()) {
            (false, _) => Polled::Pieces(pieces),
            (true, true) => Polled::End,
            (true, false) => Polled::Wait(next),
        }
    }

    fn poll_source(&mut self, ground: &Ground, stream: &mut Stream) -> Polled {
        let Some(machine) = self.by_id.get(&stream.vmid).filter(|machine| machine.start == stream.start)
        else {
            return Polled::End;
        };
        let Some(run) = machine.run.as_ref().filter(|run| run.api == stream.api) else { return Polled::End };
        let data = |line: &str| {
            common::Data { metadata: None, bytes: format!("{line}\n").into_bytes() }.encode_to_vec()
        };
        let pieces: Vec<Vec<u8>> = match &mut stream.source {
            Source::Events(next, actor) => {
                let events = run.journal.events_since(*next).map(|(_, event)| event);
                let wanted = events.filter(|event| actor.is_empty() || event.actor_id == *actor);
                let pieces = wanted.map(|event| event.encode_to_vec()).collect();
                *next = run.journal.event_end();
                pieces
            }
            Source::Log(service, next) => {
                let lines = run.journal.of(service);
                let pieces = lines.into_iter().flat_map(|lines| lines.since(*next)).map(data).collect();
                *next = lines.map_or(0, super::journal::Lines::end);
                pieces
            }
            Source::Kernel(next) => {
                let pieces = run.journal.kernel().since(*next).map(data).collect();
                *next = run.journal.kernel().end();
                pieces
            }
            Source::Watch(watch) => run.resources.since(watch),
            Source::Script(script) => {
                let due = script.iter().take_while(|(at, _)| *at <= ground.now).count();
                let pieces: Vec<Vec<u8>> = script.drain(..due).map(|(_, piece)| piece).collect();
                if pieces.is_empty() {
                    return script.first().map_or(Polled::End, |(at, _)| Polled::Wait(Some(*at)));
                }
                pieces
            }
            Source::Rest(_) | Source::Joined(_) => Vec::new(),
        };
        if pieces.is_empty() { Polled::Wait(None) } else { Polled::Pieces(pieces) }
    }
}
