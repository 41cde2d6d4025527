//! The way of a call: decoding, login, routing, rights, forwarding, validation, handler.

use std::{collections::BTreeMap, sync::OnceLock, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    clock::Time,
    ground::Ground,
    lab::Progress,
    pve::{
        ApiError, Caller, Datacentre, Lock, Mode, Params, Refusal, Reply,
        access::{self, Login},
        answer::{self, Way},
        backup, cluster,
        describe::{self, Endpoint},
        firewall, ha,
        hosts::{self, Daemon},
        locks::{Blocked, CALL, Patience},
        mapping, options, pools, qemu,
        request::{self, Decoded},
        sdn, storage, tasks, validate,
    },
    wire::{Request, Response},
};

/// What answers an endpoint.
pub type Handler = fn(&mut Datacentre, &mut Ground, &mut Call, &Params) -> Reply;

/// An endpoint and what answers it.
#[derive(Debug, Clone, Copy)]
pub struct Route {
    /// The method.
    pub method: &'static str,
    /// The path as the description writes it, such as `/nodes/{node}/qemu`.
    pub path: &'static str,
    /// What answers it.
    pub handler: Handler,
}

impl Route {
    /// A `GET`.
    pub const fn get(path: &'static str, handler: Handler) -> Self {
        Self { method: "GET", path, handler }
    }

    /// A `POST`.
    pub const fn post(path: &'static str, handler: Handler) -> Self {
        Self { method: "POST", path, handler }
    }

    /// A `PUT`.
    pub const fn put(path: &'static str, handler: Handler) -> Self {
        Self { method: "PUT", path, handler }
    }

    /// A `DELETE`.
    pub const fn delete(path: &'static str, handler: Handler) -> Self {
        Self { method: "DELETE", path, handler }
    }
}

/// All endpoints that the lab answers.
fn routes() -> &'static BTreeMap<(&'static str, &'static str), Handler> {
    static ROUTES: OnceLock<BTreeMap<(&'static str, &'static str), Handler>> = OnceLock::new();
    ROUTES.get_or_init(|| {
        [
            access::routes(),
            backup::routes(),
            cluster::routes(),
            firewall::routes(),
            ha::routes(),
            hosts::routes(),
            mapping::routes(),
            options::routes(),
            pools::routes(),
            qemu::routes(),
            sdn::routes(),
            storage::routes(),
            tasks::routes(),
        ]
        .into_iter()
        .flatten()
        .map(|route| ((route.path, route.method), route.handler))
        .collect()
    })
}

/// A call as its handler sees it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Call {
    /// Who calls.
    pub caller: Caller,
    /// A file that was uploaded with the call.
    pub upload: Option<request::Upload>,
    /// Since when the call waits for what.
    pub patience: Patience,
}

/// How long a call waits for most locks.
const LOCK_WAIT: Duration = Duration::from_secs(10);

impl Call {
    /// Waits until a lock is free, for ten seconds. What the handler then does is over before anybody else looks,
    /// so it need not hold the lock; it must not have changed anything before.
    pub fn lock(&mut self, dc: &Datacentre, ground: &Ground, lock: &Lock) -> Result<(), Refusal> {
        self.lock_for(dc, ground, lock, Mode::Exclusive, LOCK_WAIT)
    }

    /// Waits until a lock is free, for at most a time of real hardware.
    pub fn lock_for(
        &mut self,
        dc: &Datacentre,
        ground: &Ground,
        lock: &Lock,
        mode: Mode,
        real: Duration,
    ) -> Result<(), Refusal> {
        if !ground.mischief.holds_locks(ground.now) && dc.locks.free_for(lock, mode, CALL) {
            return Ok(());
        }
        match self.patience.wait(ground, &format!("{lock:?}"), real) {
            Blocked::Until(time) => Err(Refusal::Wait(time)),
            Blocked::Timeout => Err(ApiError::server(lock.timeout_text()).into()),
        }
    }

    /// Blocks the caller for a time of real hardware, once per name.
    pub fn block(&mut self, ground: &Ground, what: &str, real: Duration) -> Result<(), Refusal> {
        match self.patience.pass(ground, what, real) {
            Some(until) => Err(Refusal::Wait(until)),
            None => Ok(()),
        }
    }
}

/// Calls that were told to ask again.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    calls: Vec<WaitingCall>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct WaitingCall {
    request: Request,
    until: Time,
    patience: Patience,
}

/// How many calls may wait; whoever comes later is treated as new when asking again.
const MOST_WAITING: usize = 4096;

impl Waiting {
    /// Takes the patience of a call that was told to ask again by now.
    fn resume(&mut self, request: &Request, now: Time) -> Patience {
        let place = self.calls.iter().position(|call| call.until <= now && call.request == *request);
        place.map(|place| self.calls.remove(place).patience).unwrap_or_default()
    }

    fn keep(&mut self, request: &Request, until: Time, patience: Patience) {
        if self.calls.len() >= MOST_WAITING {
            self.calls.remove(0);
        }
        self.calls.push(WaitingCall { request: request.clone(), until, patience });
    }
}

/// Answers a request, or says when to ask again.
pub fn call(dc: &mut Datacentre, ground: &mut Ground, request: &Request) -> Progress<Response> {
    let mut call = Call { patience: dc.waiting.resume(request, ground.now), ..Call::default() };
    let answered = answered(dc, ground, request, &mut call);
    dc.access.stripped = None;
    match answered {
        Ok(response) => Progress::Done(response),
        Err(until) => {
            dc.waiting.keep(request, until, call.patience);
            Progress::Wait(until)
        }
    }
}

/// Who tries to log in and fails waits this long.
const FAILED_LOGIN: Duration = Duration::from_secs(3);

fn answered(
    dc: &mut Datacentre,
    ground: &mut Ground,
    request: &Request,
    call: &mut Call,
) -> Result<Response, Time> {
    let front = match request::front(request) {
        Ok(front) => front,
        Err(response) => return Ok(response),
    };
    match access::authenticate(dc, ground.now, request, &front) {
        Login::Caller(caller) => {
            dc.access.stripped = ground.mischief.no_rights.then(|| caller.id.clone());
            call.caller = caller;
        }
        Login::Refused(status, reason) => {
            return match call.patience.pass(ground, "login", FAILED_LOGIN) {
                Some(until) => Err(until),
                None => Ok(answer::bare(status, &reason)),
            };
        }
    }
    let decoded = match request::decode(request, &front, dc.release, dc.spool_room()) {
        Ok(decoded) => decoded,
        Err(response) => return Ok(response),
    };
    call.upload.clone_from(&decoded.upload);
    let outcome = handled(dc, ground, call, &decoded);
    let (reply, way) = match outcome {
        Outcome::Reply(reply, way) => (reply, way),
        Outcome::Response(response) => return Ok(response),
        Outcome::Silence(until) => return Err(until),
    };
    match reply {
        Ok(answer) => Ok(answer::success(&answer, decoded.formatter, way)),
        Err(Refusal::Wait(until)) => Err(until),
        Err(Refusal::Error(error)) => {
            if error.status == 401
                && let Some(until) = call.patience.pass(ground, "login", FAILED_LOGIN)
            {
                return Err(until);
            }
            Ok(answer::failure(&error, dc.release, decoded.formatter, way))
        }
    }
}

/// What came of a decoded call.
enum Outcome {
    Reply(Reply, Way),
    Response(Response),
    Silence(Time),
}

fn handled(dc: &mut Datacentre, ground: &mut Ground, call: &mut Call, decoded: &Decoded) -> Outcome {
    let front = |error: ApiError| Outcome::Reply(Err(error.into()), Way::Front);
    let Some((endpoint, from_path)) = describe::find(&decoded.method, &decoded.path, dc.release) else {
        let text = format!("Method '{} {}' not implemented", decoded.method, decoded.path);
        return front(ApiError::status(501, text));
    };
    let mut params = match merged(&decoded.params, from_path) {
        Ok(params) => params,
        Err(error) => return front(error),
    };
    if endpoint.ticket_only && (call.caller.token || decoded.offers_token) {
        let text = format!("URI '{}' not available with API token, need proper ticket.\n", decoded.path);
        return front(ApiError::forbidden(&text));
    }
    if let Err(error) = dc.check_declared(&endpoint.check, &call.caller, &params) {
        return front(error);
    }
    let mut way = Way::Front;
    if endpoint.proxied {
        match forwarded(dc, &mut params) {
            Ok(Some(response)) => return Outcome::Response(response),
            Ok(None) => {}
            Err(error) => return front(error),
        }
        if params.host() != dc.front {
            way = Way::Forwarded;
        }
    }
    if endpoint.protected {
        way = Way::Forwarded;
        match behind_daemon(dc, ground, call) {
            Ok(None) => {}
            Ok(Some(response)) => return Outcome::Response(response),
            Err(until) => return Outcome::Silence(until),
        }
    }
    if call.upload.is_some() {
        way = Way::Upload;
    }
    Outcome::Reply(executed(dc, ground, call, endpoint, params), way)
}

/// Merges parameters of the path and others; both must agree.
fn merged(given: &Params, from_path: Vec<(String, String)>) -> Result<Params, ApiError> {
    let mut params = given.clone();
    for (name, value) in from_path {
        if given.has(&name) && given.text(&name).as_deref() != Some(&value) {
            let text = "duplicate parameter (already defined in URI) with conflicting values!";
            return Err(ApiError::param(&name, text));
        }
        params.set(&name, value);
    }
    Ok(params)
}

/// Finds the host of the path: an answer if it cannot be reached, an error if nobody knows it.
fn forwarded(dc: &Datacentre, params: &mut Params) -> Result<Option<Response>, ApiError> {
    let name = params.host();
    if name == "localhost" {
        params.set("node", dc.front.clone());
    }
    if name == "localhost" || name == dc.front {
        return Ok(None);
    }
    if let Some(host) = dc.hosts.get(&name) {
        return Ok((!host.answers()).then(|| answer::bare(595, host.silence())));
    }
    // Names are looked up without regard to case, but the name is then no host of the cluster: nobody answered.
    let known = |host: &String| host.eq_ignore_ascii_case(&name);
    if dc.hosts.keys().chain(&dc.resolver).any(known) {
        return Ok(Some(answer::bare(595, "Connection refused")));
    }
    Err(ApiError::server(format!(
        "hostname lookup '{name}' failed - failed to get address info for: {name}: Name or service not known"
    )))
}

/// How long the front proxy waits for the daemon.
const DAEMON_SILENCE: Duration = Duration::from_secs(30);

/// Says what the front proxy answers when the daemon behind it does not.
fn behind_daemon(dc: &Datacentre, ground: &Ground, call: &mut Call) -> Result<Option<Response>, Time> {
    let daemon = dc.hosts.get(&dc.front).map(|host| host.daemon).unwrap_or_default();
    let (status, reason) = match daemon {
        Daemon::Runs => return Ok(None),
        Daemon::Stopped => (595, "Connection refused"),
        Daemon::Resets => (596, "Connection reset by peer"),
        Daemon::DiesInBody => (597, "Connection reset by peer"),
        Daemon::Closes => (596, "Broken pipe"),
        Daemon::Silent => {
            if let Some(until) = call.patience.pass(ground, "daemon", DAEMON_SILENCE) {
                return Err(until);
            }
            (596, "Connection timed out")
        }
    };
    Ok(Some(answer::bare(status, reason)))
}

fn executed(
    dc: &mut Datacentre,
    ground: &mut Ground,
    call: &mut Call,
    endpoint: &Endpoint,
    mut params: Params,
) -> Reply {
    validate::check(endpoint, dc, &mut params)?;
    match routes().get(&(endpoint.path.as_str(), endpoint.method.as_str())) {
        Some(handler) => handler(dc, ground, call, &params),
        None => describe::index(endpoint).map(Into::into).ok_or_else(|| {
            let text = format!("the lab does not answer '{} {}'", endpoint.method, endpoint.path);
            ApiError::status(501, text).into()
        }),
    }
}
