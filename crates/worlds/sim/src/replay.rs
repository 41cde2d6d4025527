//! Replaying recorded calls against the lab: does it answer as the real server did?
//!
//! A recording is a JSON document: what differs from the starting world (`setup`), and exchanges in order. Each
//! exchange is sent to a fresh lab in virtual time; values that vary from run to run are compared by shape.

mod compare;
mod happenings;
mod request;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    Door, Lab, Progress,
    clock::Time,
    profile::Profile,
    pve::world,
    wire::{Request, Response},
};

/// How a recording went.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Its name.
    pub name: String,
    /// How each exchange went, in order.
    pub exchanges: Vec<Outcome>,
}

impl Report {
    /// Returns how many exchanges agreed.
    pub fn agreed(&self) -> usize {
        self.exchanges.iter().filter(|outcome| outcome.differences.is_empty()).count()
    }
}

/// How an exchange went.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// What was called.
    pub title: String,
    /// What differs from the recorded answer.
    pub differences: Vec<String>,
}

/// What the replay remembers: values that later calls use.
#[derive(Debug, Clone, Default)]
struct Memory {
    bound: BTreeMap<String, String>,
    secrets: BTreeMap<String, Vec<String>>,
    /// Checksums of files that took the place of recorded ones, with the recorded checksums.
    stand_ins: BTreeMap<String, String>,
    /// Whether the guests' agents permit reading only.
    agent_reads_only: bool,
}

/// How long calls are apart.
const PAUSE_MILLIS: u64 = 30;

/// How long a poll is repeated, in virtual time.
const POLL_MILLIS: u64 = 180_000;

/// How long a single call may block, in virtual time.
const LONGEST_CALL_MILLIS: u64 = 600_000;

/// Replays a recording.
pub fn run(recording: &Value) -> Report {
    let name = recording["name"].as_str().unwrap_or("unnamed").to_owned();
    let mut lab = Lab::new(1, Profile::Wan);
    world::recorded(&mut lab);
    happenings::set_up(&mut lab, &recording["setup"]);
    let exchanges = recording["exchanges"].as_array().cloned().unwrap_or_default();
    let agent = recording["setup"]["agent"].as_str().unwrap_or_default();
    let mut memory = Memory { agent_reads_only: agent.contains("only reading"), ..Memory::default() };
    let mut outcomes = Vec::new();
    let mut place = 0;
    while place < exchanges.len() {
        let mark = &exchanges[place]["concurrent"];
        let together = if mark.is_null() {
            1
        } else {
            exchanges[place..].iter().take_while(|exchange| exchange["concurrent"] == *mark).count()
        };
        let group = &exchanges[place..place + together];
        outcomes.extend(replayed(&mut lab, &mut memory, group));
        place += together;
    }
    Report { name, exchanges: outcomes }
}

/// Replays one exchange, or several that were sent at the same moment.
fn replayed(lab: &mut Lab, memory: &mut Memory, group: &[Value]) -> Vec<Outcome> {
    for exchange in group {
        for event in exchange["before"].as_array().into_iter().flatten() {
            happenings::happen(lab, memory, exchange, event);
        }
    }
    let requests: Vec<Request> = group.iter().map(|exchange| request::build(lab, memory, exchange)).collect();
    let mut answers = if let [exchange] = group {
        vec![answer(lab, memory, exchange, &requests[0])]
    } else {
        answers_together(lab, group, &requests)
    };
    for answer in &mut answers {
        tell_recorded_checksums(memory, answer);
    }
    let judged = if group.len() == 1 {
        vec![compare::differences(&group[0], &answers[0])]
    } else {
        answers = in_recorded_order(group, answers);
        group.iter().zip(&answers).map(|(exchange, answer)| compare::differences(exchange, answer)).collect()
    };
    let outcomes = group.iter().zip(&judged).enumerate().map(|(place, (exchange, differences))| {
        remember(memory, exchange, &answers[place]);
        Outcome { title: title(exchange), differences: differences.clone() }
    });
    let outcomes = outcomes.collect();
    pass(lab, PAUSE_MILLIS);
    outcomes
}

fn title(exchange: &Value) -> String {
    let text = |key: &str| exchange[key].as_str().unwrap_or_default().to_owned();
    format!("{} {} {} {}", text("as"), text("method"), text("path"), exchange["params"])
}

fn pass(lab: &mut Lab, millis: u64) {
    let until = Time::from_millis(lab.ground.now.millis() + millis);
    lab.advance(until);
}

/// Sends a call until it is answered; a polled one until it is answered as recorded.
fn answer(lab: &mut Lab, memory: &Memory, exchange: &Value, request: &Request) -> Response {
    let began = lab.ground.now.millis();
    loop {
        let mut response = finished(lab, request.clone());
        tell_recorded_checksums(memory, &mut response);
        let polled = !exchange["poll"].is_null();
        if !polled
            || compare::differences(exchange, &response).is_empty()
            || lab.ground.now.millis() > began + POLL_MILLIS
        {
            return response;
        }
        pass(lab, 500);
    }
}

fn finished(lab: &mut Lab, mut request: Request) -> Response {
    request.began = lab.ground.now;
    let latest = lab.ground.now.millis() + LONGEST_CALL_MILLIS;
    loop {
        match lab.call(&Door::Pve, &request) {
            Progress::Done(response) => return response,
            Progress::Wait(until) if until.millis() > latest => return Response::default(),
            Progress::Wait(until) => lab.advance(until),
        }
    }
}

/// Sends calls at the same moment; who waits is asked again at its time. Which of them wins is open, so those that
/// won when they were recorded come first.
fn answers_together(lab: &mut Lab, group: &[Value], requests: &[Request]) -> Vec<Response> {
    let began = lab.ground.now;
    let latest = began.millis() + LONGEST_CALL_MILLIS;
    let mut answers: Vec<Option<Response>> = vec![None; requests.len()];
    let mut next: Vec<Time> = vec![began; requests.len()];
    while let Some(place) = (0..requests.len())
        .filter(|place| answers[*place].is_none())
        .min_by_key(|place| (next[*place], group[*place]["response"]["status"].as_u64()))
    {
        lab.advance(next[place]);
        // Equal calls at one moment are told apart by a moment of their own.
        let place_millis = u64::try_from(place).unwrap_or_default();
        let request =
            Request { began: Time::from_millis(began.millis() + place_millis), ..requests[place].clone() };
        match lab.call(&Door::Pve, &request) {
            Progress::Done(response) => answers[place] = Some(response),
            Progress::Wait(until) if until.millis() > latest => answers[place] = Some(Response::default()),
            Progress::Wait(until) => next[place] = until,
        }
    }
    answers.into_iter().map(Option::unwrap_or_default).collect()
}

/// The set of outcomes counts: each answer may stand for the recorded answer of any call of the group.
fn in_recorded_order(group: &[Value], mut answers: Vec<Response>) -> Vec<Response> {
    for (place, exchange) in group.iter().enumerate() {
        let found =
            (place..answers.len()).find(|other| compare::differences(exchange, &answers[*other]).is_empty());
        if let Some(found) = found {
            answers.swap(place, found);
        }
    }
    answers
}

/// Puts recorded checksums in the place of those of files that stood in.
fn tell_recorded_checksums(memory: &Memory, response: &mut Response) {
    for (found, recorded) in &memory.stand_ins {
        let text = String::from_utf8_lossy(&response.body).replace(found, recorded);
        response.body = text.into_bytes();
    }
}

/// Keeps values that later calls use.
fn remember(memory: &mut Memory, exchange: &Value, response: &Response) {
    let Ok(body) = serde_json::from_slice::<Value>(&response.body) else { return };
    for (name, pointer) in exchange["bind"].as_object().into_iter().flatten() {
        let value = body.pointer(pointer.as_str().unwrap_or_default()).cloned().unwrap_or_default();
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        memory.bound.insert(name.clone(), text);
    }
    if let (Some(id), Some(secret)) = (body["data"]["full-tokenid"].as_str(), body["data"]["value"].as_str())
    {
        memory.secrets.entry(id.to_owned()).or_default().push(secret.to_owned());
    }
}
