//! A lab within reach, in virtual time.

use std::{
    future::Future,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use futures_util::FutureExt;
use ichor_model::{HostName, VmId};
use ichor_port::{Http, Request, Response, Secret, TransportError};
use ichor_pve::{
    Call, Client, Error, Exit, Params, Token, Upid,
    api::{self, Download, VmConfig},
};
use ichor_sim::{
    Door, Lab, Progress,
    profile::Profile,
    setup::{Setup, TOKEN, USER},
    wire,
};
use serde::de::DeserializeOwned;

/// The image that [`Bench::new`] puts onto every host.
pub const IMAGE: &str = "local:import/talos.qcow2";
/// The installer that [`Bench::new`] puts onto every host.
pub const ISO: &str = "local:iso/talos.iso";

/// Carries requests into a lab, and lets its time pass while somebody waits.
#[derive(Debug)]
pub struct Inside(Mutex<Lab>);

impl Inside {
    fn lab(&self) -> MutexGuard<'_, Lab> {
        self.0.lock().expect("nobody panicked inside")
    }

    fn answer(&self, door: &Door, mut request: wire::Request) -> wire::Response {
        let mut lab = self.lab();
        request.began = lab.ground.now;
        for _ in 0..1000 {
            match lab.call(door, &request) {
                Progress::Done(response) => return response,
                Progress::Wait(until) => lab.advance(until),
            }
        }
        panic!("{} {} never ends", request.method, request.path);
    }
}

impl Http for &Inside {
    fn send(
        &self,
        request: Request,
        _: Duration,
    ) -> impl Future<Output = Result<Response, TransportError>> + Send {
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        let mut headers: Vec<(String, String)> =
            request.headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        headers.extend(request.authorization.map(|secret| ("authorization".into(), secret.expose().into())));
        if !request.body.is_empty() {
            headers.push(("content-length".into(), request.body.len().to_string()));
        }
        let inner = wire::Request {
            method: request.method.to_string(),
            path: path.to_owned(),
            query: query.to_owned(),
            headers,
            body: request.body,
            ..wire::Request::default()
        };
        let response = self.answer(&Door::Pve, inner);
        std::future::ready(Ok(Response {
            status: response.status,
            reason: response.reason.unwrap_or_default(),
            headers: response.headers,
            body: response.body,
        }))
    }
}

/// A lab and what is needed to work with it.
#[derive(Debug)]
pub struct Bench {
    inside: Inside,
    token: Token,
    /// The host that everything happens on.
    pub host: HostName,
}

impl Bench {
    /// Opens a lab with an image and an installer on its first host.
    pub fn new(seed: u64) -> Self {
        let lab = Setup::new(seed, Profile::Instant).build();
        let secret = lab.pve.access.users[USER].tokens[TOKEN].secret.clone();
        let token = Token::parse(&Secret::new(format!("{USER}!{TOKEN}={secret}"))).expect("a token");
        let bench = Self { inside: Inside(Mutex::new(lab)), token, host: "pve1".parse().expect("a name") };
        let schematic = bench.schematic();
        for (kind, end, name) in [("import", "qcow2", "talos.qcow2"), ("iso", "iso", "talos.iso")] {
            let url = format!("https://factory.talos.dev/image/{schematic}/v1.13.9/nocloud-amd64.{end}");
            let file = Download { url: &url, content: kind, filename: name, sha256: None };
            bench.finish(&api::download(&bench.host, "local", &file));
        }
        bench
    }

    fn schematic(&self) -> String {
        let request = wire::Request {
            method: "POST".into(),
            path: "/schematics".into(),
            body: b"customization: {}\n".to_vec(),
            ..wire::Request::default()
        };
        let answer = self.inside.answer(&Door::Factory, request);
        let answer: serde_json::Value = serde_json::from_slice(&answer.body).expect("a schematic");
        answer["id"].as_str().expect("an id").to_owned()
    }

    /// Lets something be done to the lab from outside.
    pub fn visit<T>(&self, act: impl FnOnce(&mut Lab) -> T) -> T {
        act(&mut self.inside.lab())
    }

    /// Sends a call.
    pub fn try_send<D: DeserializeOwned>(&self, call: &Call<D>) -> Result<D, Error> {
        let client = Client::new(&self.inside, self.token.clone());
        client.send(call).now_or_never().expect("the lab answers at once")
    }

    /// Sends a call that the lab takes.
    pub fn send<D: DeserializeOwned>(&self, call: &Call<D>) -> D {
        self.try_send(call).unwrap_or_else(|error| panic!("{} {}: {error}", call.method, call.path))
    }

    /// Sends a call that starts a task, and waits for its end.
    pub fn finish(&self, call: &Call<Upid>) -> Upid {
        let upid = self.send(call);
        self.wait(&upid);
        upid
    }

    /// Waits until a task has ended well.
    pub fn wait(&self, upid: &Upid) {
        for _ in 0..10_000 {
            if let Some(exit) = self.send(&api::task_status(upid)).exit() {
                let log = || self.send(&api::task_log(upid, 0, 500));
                assert_eq!(exit, Exit::Good, "{upid}: {:?}", log());
                return;
            }
            self.visit(|lab| {
                let next = lab.ground.agenda.next().expect("something is going on");
                lab.advance(next);
            });
        }
        panic!("{upid} never ends");
    }

    /// Changes a VM's config, if there is anything to change.
    pub fn configure(&self, vmid: VmId, params: Params) {
        if params.pairs().is_empty() {
            return;
        }
        if let Some(upid) = self.send(&api::configure(&self.host, vmid, params)) {
            self.wait(&upid);
        }
    }

    /// Reads a VM's config.
    pub fn config(&self, vmid: VmId) -> VmConfig {
        self.send(&api::config(&self.host, vmid))
    }
}
