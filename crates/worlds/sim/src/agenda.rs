//! What will happen by itself, and when.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{bound::Cause, clock::Time, incident::Incident, kube, pve, talos};

/// Something that happens at its time without anybody calling.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Something in Proxmox: the next stretch of a task, a status broadcast.
    Pve(pve::Event),
    /// Something in a Talos machine: the next stage of its boot, an election.
    Talos(talos::Event),
    /// Something in a Kubernetes cluster: a pod becomes ready.
    Kube(kube::Event),
    /// Something that nobody in the datacentre wished for.
    Incident(Incident),
}

impl Event {
    /// Whether it comes again and again, whatever anybody does.
    pub(crate) const fn is_round(&self) -> bool {
        matches!(self, Self::Pve(pve::Event::StatusRound | pve::Event::HaRound) | Self::Kube(_))
    }
}

/// The events to come. Those of one moment happen in the order in which they were written down.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Agenda {
    written: u64,
    #[serde(with = "as_list")]
    events: BTreeMap<(Time, u64), Event>,
    /// Why what is written down at the moment will happen; absent: nobody called for it.
    #[serde(default)]
    pub(crate) cause: Option<Cause>,
    /// Why events will happen, by their numbers.
    #[serde(default)]
    causes: BTreeMap<u64, Cause>,
}

impl Agenda {
    /// Writes down an event.
    pub fn add(&mut self, at: Time, event: Event) {
        self.events.insert((at, self.written), event);
        if let Some(cause) = self.cause {
            self.causes.insert(self.written, cause);
        }
        self.written += 1;
    }

    /// Returns when the next event happens.
    pub fn next(&self) -> Option<Time> {
        self.events.first_key_value().map(|((at, _), _)| *at)
    }

    /// Puts everything off.
    pub fn put_off(&mut self, by: Duration) {
        let events = std::mem::take(&mut self.events);
        self.events = events.into_iter().map(|((at, number), event)| ((at + by, number), event)).collect();
    }

    /// Forgets why things will happen.
    pub(crate) fn forget_causes(&mut self) {
        self.cause = None;
        self.causes.clear();
    }

    /// Takes the next event if it happens no later than a moment.
    pub fn take(&mut self, until: Time) -> Option<(Time, Event)> {
        self.next().filter(|at| *at <= until)?;
        self.events.pop_first().map(|((at, number), event)| {
            self.cause = self.causes.remove(&number).map(|cause| cause.until(at));
            (at, event)
        })
    }
}

/// JSON has no maps with pairs as keys.
mod as_list {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::{Event, Time};

    pub fn serialize<S: Serializer>(
        events: &BTreeMap<(Time, u64), Event>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(events.iter())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<(Time, u64), Event>, D::Error> {
        Ok(Vec::deserialize(deserializer)?.into_iter().collect())
    }
}
