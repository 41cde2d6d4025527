//! One JSON object for each event, for programs.
//!
//! Every object has `schema` and `event`; what happens in a run has `at_ms` (since the run began), and what is about a
//! step has `step`, `machine` (null for those of the whole cluster) and `what`. Lengths of time are whole
//! milliseconds. The last event is always `result`, also when nothing was to be done or something stood in the way.

use std::time::Duration;

use ichor_engine::{Event, EventSink, Outcome};
use ichor_model::step::StepId;
use ichor_plan::ClusterPlan;
use serde_json::{Map, Value, json};

use super::{Clock, Course, Reader, log::Log};
use crate::{here, render::document::inert, terminal::Pipe};

/// The number of the language. It grows when a key changes its meaning or goes; new keys and events may come.
pub const SCHEMA: u32 = 1;

/// Writes events as JSON.
#[derive(Debug)]
pub struct JsonLines {
    log: Log,
    /// What commands in its texts need.
    options: String,
}

impl JsonLines {
    /// Writes nothing yet.
    pub fn new(plan: &ClusterPlan, clock: Clock, pipe: Pipe, options: &str) -> Self {
        Self { log: Log::new(plan, clock, pipe), options: options.to_owned() }
    }

    /// Returns the line of an event of a run.
    fn envelope(&self, object: Value, now: Duration) -> String {
        line([("at_ms", millis(now))], object, &self.options)
    }
}

impl EventSink for JsonLines {
    fn emit(&self, event: Event) {
        self.log.with(|log, now| {
            log.course.take(&event, now);
            let object = object(&log.course, &event);
            log.write(&self.envelope(object, now), now);
        });
    }
}

impl Reader for JsonLines {
    fn tick(&self) {
        self.log.with(|log, now| {
            let count = log.course.count();
            let busy = count.running > 0 || log.course.looking(now).is_some();
            if busy && log.is_silent(now) {
                let left = millis(log.course.left(now));
                let alive =
                    json!({"event": "alive", "done": count.done, "running": count.running, "left_ms": left});
                log.write(&self.envelope(alive, now), now);
            }
        });
    }

    fn say(&self, words: &str) {
        self.log
            .with(|log, now| log.write(&self.envelope(json!({"event": "note", "message": words}), now), now));
    }

    fn lasted(&self) -> Vec<(String, Duration)> {
        self.log.with(|log, now| log.course.lasted(now))
    }

    fn object(&self, object: Value) {
        self.log.with(|log, now| log.write(&self.envelope(object, now), now));
    }
}

/// Returns a line of the stream for what is said before or after a run.
pub fn aside(event: &str, object: Value, options: &str) -> String {
    line([("event", event.into())], object, options)
}

/// Returns a line of the stream: what is common to all, then what is its own. Commands in it are given some options.
fn line(common: [(&str, Value); 1], object: Value, options: &str) -> String {
    let mut whole = Map::from_iter([("schema".to_owned(), SCHEMA.into())]);
    whole.extend(common.map(|(key, value)| (key.to_owned(), value)));
    if let Value::Object(own) = object {
        whole.extend(own);
    }
    let mut whole = Value::Object(whole);
    here::complete_in(&mut whole, options);
    inert(&whole.to_string()) + "\n"
}

fn object(course: &Course, event: &Event) -> Value {
    match event {
        Event::Began { steps } => json!({"event": "began", "steps": steps}),
        Event::Started { step, attempt } => about(course, "started", step, json!({"attempt": attempt})),
        Event::Progress { step, fraction, what } => {
            about(course, "progress", step, json!({"fraction": fraction, "doing": what}))
        }
        Event::Waiting { step, waited, why } => {
            about(course, "waiting", step, json!({"waited_ms": millis(*waited), "why": why}))
        }
        Event::Retrying { step, after, why } => {
            about(course, "retrying", step, json!({"after_ms": millis(*after), "why": why}))
        }
        Event::Ended { step, outcome, took } => {
            let mut own = outcome_keys(outcome);
            own["took_ms"] = millis(*took);
            about(course, "ended", step, own)
        }
        Event::Looking { why } => json!({"event": "looking", "why": why}),
        Event::Stopping => json!({"event": "stopping"}),
    }
}

/// Returns an outcome with keys that are always there: null where there is nothing to say.
pub fn outcome_keys(outcome: &Outcome) -> Value {
    let (word, message, hint) = match outcome {
        Outcome::Done => ("done", None, None),
        Outcome::Skipped => ("skipped", None, None),
        Outcome::Failed { message, hint } => ("failed", Some(message), hint.as_ref()),
        Outcome::Refused { message } => ("refused", Some(message), None),
        Outcome::Unknown { message } => ("unknown", Some(message), None),
        Outcome::Blocked { .. } => ("blocked", None, None),
        Outcome::NotBegun => ("not-begun", None, None),
    };
    let by = match outcome {
        Outcome::Blocked { by } => Some(by),
        _ => None,
    };
    json!({"outcome": word, "message": message, "hint": hint, "by": by})
}

fn about(course: &Course, event: &str, step: &StepId, own: Value) -> Value {
    let mut whole = json!({
        "event": event,
        "step": step,
        "machine": course.machine(step),
        "what": course.name(step).1,
    });
    if let (Value::Object(whole), Value::Object(own)) = (&mut whole, own) {
        whole.extend(own);
    }
    whole
}

fn millis(time: Duration) -> Value {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).into()
}

#[cfg(test)]
mod tests {
    use super::{super::recording::*, *};
    use crate::render::fixture;

    #[test]
    fn every_event_is_an_object_on_a_line_of_its_own() {
        let mut desired = fixture::live();
        desired.machines.truncate(1);
        let (pipe, written) = memory();
        let (clock, time) = hand_moved();
        let lines = JsonLines::new(&fixture::plan_from_nothing(&desired), clock, pipe, "");
        for (at, event) in events(&desired).into_iter().take(5) {
            time.set(at);
            lines.emit(event);
        }
        for event in failure() {
            lines.emit(event);
        }
        let text = written.take();
        for line in text.lines() {
            let value: Value = serde_json::from_str(line).expect("JSON");
            assert_eq!(value["schema"], SCHEMA);
            assert!(value["event"].is_string() && value["at_ms"].is_u64());
        }
        insta::assert_snapshot!(text, @r#"
        {"schema":1,"at_ms":0,"event":"began","steps":10}
        {"schema":1,"at_ms":0,"event":"started","step":"cluster/pool","machine":null,"what":"make pool `homelab`","attempt":1}
        {"schema":1,"at_ms":0,"event":"started","step":"image/pve1/local:import/ichor-talos-v1.13.9-nocloud-amd64-.qcow2","machine":null,"what":"download image v1.13.9-nocloud-amd64 to local:import/ichor-talos-v1.13.9-nocloud-amd64-.qcow2 on host pve1","attempt":1}
        {"schema":1,"at_ms":1250,"event":"ended","step":"cluster/pool","machine":null,"what":"make pool `homelab`","outcome":"done","message":null,"hint":null,"by":null,"took_ms":1250}
        {"schema":1,"at_ms":5000,"event":"waiting","step":"image/pve1/local:import/ichor-talos-v1.13.9-nocloud-amd64-.qcow2","machine":null,"what":"download image v1.13.9-nocloud-amd64 to local:import/ichor-talos-v1.13.9-nocloud-amd64-.qcow2 on host pve1","waited_ms":5000,"why":"it is not there yet"}
        {"schema":1,"at_ms":5000,"event":"started","step":"machine/cp-1/create","machine":"cp-1","what":"create VM 2000 on host pve1","attempt":1}
        {"schema":1,"at_ms":5000,"event":"retrying","step":"machine/cp-1/create","machine":"cp-1","what":"create VM 2000 on host pve1","after_ms":250,"why":"got timeout"}
        {"schema":1,"at_ms":5000,"event":"started","step":"machine/cp-1/create","machine":"cp-1","what":"create VM 2000 on host pve1","attempt":2}
        {"schema":1,"at_ms":5000,"event":"ended","step":"machine/cp-1/create","machine":"cp-1","what":"create VM 2000 on host pve1","outcome":"failed","message":"Proxmox answered 403: Permission check failed (/storage/local-lvm)","hint":"grant it","by":null,"took_ms":1450}
        {"schema":1,"at_ms":5000,"event":"ended","step":"machine/cp-2/start","machine":null,"what":"","outcome":"refused","message":"VM 2001 is not ours: it has another uuid","hint":null,"by":null,"took_ms":0}
        {"schema":1,"at_ms":5000,"event":"stopping"}
        "#);
    }

    #[test]
    fn it_is_alive_every_five_seconds_while_something_runs() {
        let (pipe, written) = memory();
        let (clock, time) = hand_moved();
        let lines = JsonLines::new(&fixture::plan_from_nothing(&fixture::live()), clock, pipe, "");
        lines.emit(events(&fixture::live())[1].1.clone());
        written.take();
        time.set(Duration::from_secs(5));
        lines.tick();
        lines.say("a word");
        insta::assert_snapshot!(written.take(), @r#"
        {"schema":1,"at_ms":5000,"event":"alive","done":0,"running":1,"left_ms":225000}
        {"schema":1,"at_ms":5000,"event":"note","message":"a word"}
        "#);
    }
}
