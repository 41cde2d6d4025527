//! The lab as a whole: delivers calls, events and signals to its parts.

mod mishap;

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    net::IpAddr,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    agenda::Event,
    clock::Time,
    factory::Factory,
    faults::{Kind, Met, Server},
    ground::Ground,
    hostility::Tap,
    kube,
    profile::Profile,
    pve::{
        Datacentre,
        qemu::console,
        request::{self, Spool},
        storage::web::{Address, Page},
    },
    record::{Call, Record},
    signal::Signal,
    strangers::Stranger,
    talos::Machines,
    tls::Persona,
    wire::{Polled, Request, Response, Rpc, RpcReply, StreamId},
};

/// What came of a call so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress<T> {
    /// The answer.
    Done(T),
    /// The server keeps the caller waiting: ask again at this moment, with the same call (and the same
    /// `began`). [`Time::NEVER`] stands for a server that does not answer any more.
    Wait(Time),
}

/// Where an HTTP call goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Door {
    /// The Proxmox API.
    Pve,
    /// The Image Factory.
    Factory,
    /// The Kubernetes API of a cluster.
    Kube(String),
}

impl Door {
    /// Returns the kind of server behind the door.
    pub const fn server(&self) -> Server {
        match self {
            Self::Pve => Server::Pve,
            Self::Factory => Server::Factory,
            Self::Kube(_) => Server::Kube,
        }
    }

    /// Returns the path of a request as fault plans and records write it.
    fn path<'r>(&self, request: &'r Request) -> &'r str {
        let path = request.path.as_str();
        match self {
            Self::Pve => path.strip_prefix("/api2/json").unwrap_or(path),
            Self::Factory | Self::Kube(_) => path,
        }
    }
}

/// What tells a call that is asked again from others, also from those of the same moment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct CallKey {
    began: Time,
    server: Server,
    method: String,
    path: String,
    /// A digest of what it says.
    said: u64,
}

impl CallKey {
    fn of_http(door: &Door, request: &Request) -> Self {
        Self {
            began: request.began,
            server: door.server(),
            method: request.method.clone(),
            path: door.path(request).to_owned(),
            said: digest(&(&request.query, &request.body, &request.upload)),
        }
    }

    fn of_rpc(address: IpAddr, rpc: &Rpc) -> Self {
        Self {
            began: rpc.began,
            server: Server::Talos,
            method: String::new(),
            path: rpc.method.clone(),
            said: digest(&(address, &rpc.messages)),
        }
    }
}

fn digest(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// The simulated datacentre.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lab {
    /// Time, disks, and what all parts share.
    pub ground: Ground,
    /// Proxmox.
    pub pve: Datacentre,
    /// Talos machines.
    pub machines: Machines,
    /// The Image Factory.
    pub factory: Factory,
    /// Kubernetes clusters.
    pub clusters: kube::Clusters,
    /// As whom the Proxmox API and the Image Factory present themselves.
    #[serde(default)]
    persona: Option<Persona>,
    /// The VMs of others, as they were when they were last left alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) strangers: Vec<Stranger>,
    /// How it was when it began, where somebody may want it to begin again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    beginning: Option<Box<Self>>,
    /// What calls met that are not answered yet.
    #[serde(skip)]
    waiting: BTreeMap<CallKey, Met>,
    /// Answers without end.
    #[serde(skip)]
    taps: BTreeMap<StreamId, Tap>,
}

/// Streams of hostile servers have numbers that no other stream has.
const FIRST_TAP: u64 = 1 << 63;

impl Lab {
    /// Starts an empty lab.
    pub fn new(seed: u64, profile: Profile) -> Self {
        Self {
            ground: Ground::new(seed, profile),
            pve: Datacentre::default(),
            machines: Machines::default(),
            factory: Factory::default(),
            clusters: kube::Clusters::default(),
            persona: None,
            strangers: Vec::new(),
            beginning: None,
            waiting: BTreeMap::new(),
            taps: BTreeMap::new(),
        }
    }

    /// Lets time pass: everything that is due until then happens, in order.
    pub fn advance(&mut self, until: Time) {
        while let Some((at, event)) = self.ground.agenda.take(until) {
            self.ground.now = self.ground.now.max(at);
            if event.is_round() {
                self.ground.agenda.cause = None;
            }
            match event {
                Event::Pve(event) => self.pve.happen(&mut self.ground, event),
                Event::Talos(event) => self.machines.happen(&mut self.ground, event),
                Event::Kube(event) => self.clusters.happen(&mut self.ground, event),
                // What cannot happen any more does not.
                Event::Incident(incident) => drop(self.befall(&incident)),
            }
            self.deliver();
            self.ground.happened += 1;
        }
        self.ground.now = self.ground.now.max(until);
        self.ground.agenda.cause = None;
    }

    /// Goes on at a moment after nobody was there for a while. What was under way has had an hour to end; from then
    /// on the lab has slept, and what comes in rounds does not come for every round that was missed.
    pub fn resume(&mut self, at: Time) {
        const AWAKE: Duration = Duration::from_hours(1);
        self.advance(at.min(self.ground.now + AWAKE));
        self.ground.agenda.put_off(at.since(self.ground.now));
        self.advance(at);
    }

    /// Answers an HTTP call, or says when to ask again.
    pub fn call(&mut self, door: &Door, request: &Request) -> Progress<Response> {
        self.advance(self.ground.now);
        self.ground.called(request.began);
        if let Door::Kube(cluster) = door {
            self.ground.needs(&format!("kubernetes {cluster}"));
        }
        let call = CallKey::of_http(door, request);
        let fault = self.meet(&call);
        #[cfg(feature = "judge")]
        let unharmed = fault.is_none();
        let progress = match fault {
            Some(kind) => mishap::http(self, door, request, &call, kind),
            None => self.answer(door, request),
        };
        #[cfg(feature = "judge")]
        if let (Progress::Done(response), Door::Pve, true) = (&progress, door, unharmed) {
            crate::judge::watch(self.pve.release, request, response);
        }
        if let Progress::Done(response) = &progress {
            self.end(call, Some(response.status).filter(|status| *status != 0));
        }
        progress
    }

    /// Returns what takes in the body of a request, given without it, if Proxmox reads it as an upload. Whoever has
    /// the whole body may as well call with it.
    pub fn spool(&self, request: &Request) -> Option<Spool> {
        request::spool(request, self.pve.spool_room())
    }

    /// Answers a call to the Talos API of whatever machine has an address.
    pub fn rpc(&mut self, address: IpAddr, rpc: &Rpc) -> Progress<RpcReply> {
        self.advance(self.ground.now);
        self.ground.called(rpc.began);
        if let Some(machine) = self.machines.owner(address) {
            self.ground.needs(&format!("api {}", machine.vmid()));
        }
        let call = CallKey::of_rpc(address, rpc);
        let progress = match self.meet(&call) {
            Some(kind) => mishap::rpc(self, address, rpc, &call, kind),
            None => self.answer_rpc(address, rpc),
        };
        if let Progress::Done(reply) = &progress {
            self.end(call, Some(reply.status()));
        }
        progress
    }

    /// Answers as if nothing ever went wrong.
    fn answer(&mut self, door: &Door, request: &Request) -> Progress<Response> {
        let progress = match door {
            // Whoever talks to a host that is down talks to nobody.
            Door::Pve if !self.front_is_up() => {
                Progress::Done(Response { close: true, ..Response::default() })
            }
            Door::Pve => self.pve.call(&mut self.ground, request),
            Door::Factory => {
                let response = self.factory.call(&mut self.ground, request);
                self.factory.show(&mut self.ground);
                Progress::Done(response)
            }
            Door::Kube(cluster) => self.clusters.call(&mut self.ground, cluster, request),
        };
        self.settle();
        progress
    }

    fn answer_rpc(&mut self, address: IpAddr, rpc: &Rpc) -> Progress<RpcReply> {
        // A snapshot holds the whole state, which nobody else needs: it is written out only then.
        if rpc.method.ends_with("/EtcdSnapshot") {
            let states = self.clusters.iter().map(|(id, _)| (id.clone(), self.clusters.export(id)));
            for (id, state) in states.collect::<Vec<_>>() {
                self.ground.kubernetes.entry(id).or_default().state = state.unwrap_or_default();
            }
        }
        let progress = self.machines.call(&mut self.ground, address, rpc);
        self.settle();
        progress
    }

    /// Returns what goes wrong with a call. One that is asked again has met it already.
    fn meet(&mut self, call: &CallKey) -> Option<Kind> {
        if let Some(met) = self.waiting.get(call) {
            return met.kind.clone();
        }
        if self.ground.faults.0.is_empty() {
            return None;
        }
        let mut met = self.ground.faults.meet(call.server, &call.method, &call.path);
        for incident in std::mem::take(&mut met.before) {
            // What cannot happen does not; the call goes on all the same.
            let _ = self.befall(&incident);
        }
        let kind = met.kind.clone();
        self.waiting.insert(call.clone(), met);
        kind
    }

    /// Lets a call meet something else when it is asked again.
    fn meets_next(&mut self, call: &CallKey, kind: Kind) {
        self.waiting.entry(call.clone()).or_default().kind = Some(kind);
    }

    /// A call is answered.
    fn end(&mut self, call: CallKey, status: Option<u16>) {
        for incident in self.waiting.remove(&call).unwrap_or_default().after {
            let _ = self.befall(&incident);
        }
        let CallKey { began: at, server, method, path, .. } = call;
        self.ground.record.add(Call { at, server, method, path, status });
    }

    /// Opens an answer without end.
    fn open_tap(&mut self, tap: Tap) -> StreamId {
        let last = self.taps.last_key_value().map_or(FIRST_TAP, |(id, _)| id.0);
        let id = StreamId(last + 1);
        self.taps.insert(id, tap);
        id
    }

    /// Returns what a stream of an HTTP answer has to say.
    pub fn poll(&mut self, door: &Door, stream: StreamId) -> Polled {
        if let Some(tap) = self.taps.get_mut(&stream) {
            return tap.poll(self.ground.now);
        }
        match door {
            Door::Kube(_) => self.clusters.poll(&mut self.ground, stream),
            Door::Pve | Door::Factory => Polled::End,
        }
    }

    /// Joins a websocket that the Proxmox API let in to the console that listens on a port; nothing where none does.
    pub fn open_console(&mut self, port: u16) -> Option<StreamId> {
        console::connect(&mut self.pve, &self.ground, port)
    }

    /// Takes what the client of a console sent.
    pub fn tell_console(&mut self, client: StreamId, bytes: &[u8]) {
        console::hear(&mut self.pve, &mut self.ground, client, bytes);
    }

    /// Returns what the client of a console is sent now.
    pub fn poll_console(&mut self, client: StreamId) -> Polled {
        console::poll(&mut self.pve, &mut self.ground, client)
    }

    /// The client of a console has gone.
    pub fn close_console(&mut self, client: StreamId) {
        console::hang_up(&mut self.pve, &mut self.ground, client);
    }

    /// Returns what a stream of a machine has to say.
    pub fn poll_rpc(&mut self, _address: IpAddr, stream: StreamId) -> Polled {
        if let Some(tap) = self.taps.get_mut(&stream) {
            return tap.poll_rpc(self.ground.now);
        }
        self.machines.poll(&mut self.ground, stream)
    }

    /// Returns how many answers go on that nobody has closed.
    pub fn open_streams(&self) -> usize {
        self.taps.len() + self.clusters.open_watches() + self.machines.open_streams()
    }

    /// Forgets a stream of an HTTP answer whose client has gone.
    pub fn close(&mut self, door: &Door, stream: StreamId) {
        if self.taps.remove(&stream).is_none() && matches!(door, Door::Kube(_)) {
            self.clusters.close(stream);
        }
    }

    /// Forgets a stream of a machine whose client has gone.
    pub fn close_rpc(&mut self, stream: StreamId) {
        if self.taps.remove(&stream).is_none() {
            self.machines.close(stream);
        }
    }

    /// Returns whether the host is up that clients of the Proxmox API talk to.
    pub fn front_is_up(&self) -> bool {
        self.pve.hosts.get(&self.pve.front).is_none_or(|host| host.online)
    }

    /// Makes the present state the one that the lab begins again with.
    pub fn mark_beginning(&mut self) {
        self.beginning = None;
        self.beginning = Some(Box::new(self.clone()));
    }

    /// Begins again, as the lab was when its beginning was marked, whoever set it up; says whether it was. Time goes
    /// on, and hosts still find the Image Factory where it listens now.
    #[must_use]
    pub fn begin_again(&mut self) -> bool {
        let Some(beginning) = self.beginning.take() else { return false };
        let now = self.ground.now;
        let factories = std::mem::take(&mut self.ground.web.factories);
        *self = Self { beginning: Some(beginning.clone()), ..*beginning };
        self.ground.web.factories.extend(factories);
        self.resume(now);
        true
    }

    /// Forgets the calls so far, and measures anew how long what follows has to take.
    pub fn forget_calls(&mut self) {
        self.ground.record = Record::default();
        self.ground.measure_anew();
    }

    /// Returns as whom the Proxmox API and the Image Factory present themselves.
    pub const fn own_persona(&self) -> Option<&Persona> {
        self.persona.as_ref()
    }

    /// Says as whom the Proxmox API and the Image Factory present themselves.
    pub fn present_as(&mut self, persona: Persona) {
        self.persona = Some(persona);
    }

    /// Returns as whom the Talos API at an address presents itself; nothing while nobody listens there.
    pub fn talos_persona(&self, address: IpAddr) -> Option<Persona> {
        self.machines.persona(&self.ground, address)
    }

    /// Returns the cluster whose Kubernetes API listens at an address, and as whom it presents itself.
    pub fn kube_persona(&self, address: IpAddr) -> Option<(String, Persona)> {
        self.machines.kube_persona(&self.ground, address)
    }

    /// Returns the addresses where a Talos API listens.
    pub fn talos_addresses(&self) -> Vec<IpAddr> {
        self.machines.addresses()
    }

    /// Returns the addresses and ports where a Kubernetes API listens.
    pub fn kube_addresses(&self) -> Vec<(IpAddr, u16)> {
        self.machines.kube_addresses()
    }

    /// Shows every part what others have to show it: nodes to their machines, schematics to installers.
    fn show(&mut self) {
        for (id, cluster) in self.clusters.iter() {
            let view = self.ground.kubernetes.entry(id.clone()).or_default();
            if view.revision != cluster.store.revision() {
                view.revision = cluster.store.revision();
                let before = std::mem::replace(&mut view.nodes, cluster.node_views());
                let is_new = |name: &String| !before.get(name).is_some_and(|node| node.ready);
                let ready = view.nodes.iter().filter(|(name, node)| node.ready && is_new(name));
                let ready: Vec<String> = ready.map(|(name, _)| name.clone()).collect();
                for name in ready {
                    let mark = format!("node {id} {name}");
                    self.ground.reached_after(&mark, kube::controllers::pods::START, "node ready", &name);
                }
            }
        }
    }

    /// Lets happen what is due at this very moment.
    pub(crate) fn settle(&mut self) {
        self.deliver();
        self.advance(self.ground.now);
    }

    /// Lets the Image Factory answer a host.
    fn fetch(&mut self, url: &str) {
        let Some(address) = Address::read(url) else { return };
        let (path, query) = address.path.split_once('?').unwrap_or((&address.path, ""));
        let host = ("host".to_owned(), address.host.clone());
        let request = Request {
            method: "GET".into(),
            path: path.to_owned(),
            query: query.to_owned(),
            headers: vec![host],
            ..Request::default()
        };
        let response = self.factory.call(&mut self.ground, &request);
        self.ground.web.fetched.insert(url.to_owned(), Page::answered(&response));
    }

    /// Delivers signals until none is left; a signal may cause others.
    fn deliver(&mut self) {
        self.show();
        while let Some(signal) = self.ground.signals.pop_front() {
            match &signal {
                Signal::PowerOn(_) | Signal::PowerCut(_) | Signal::PowerButton(_) | Signal::Reset(_) => {
                    self.machines.hear(&mut self.ground, &signal);
                }
                Signal::PoweredOff(_) | Signal::Rebooted(_) => self.pve.hear(&mut self.ground, &signal),
                Signal::Fetch(url) => self.fetch(url),
                Signal::NodeUp { .. } | Signal::NodeDown { .. } | Signal::ClusterBorn { .. } => {
                    self.clusters.hear(&mut self.ground, &signal);
                }
            }
        }
    }
}
