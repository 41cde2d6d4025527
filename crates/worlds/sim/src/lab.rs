//! The lab as a whole: delivers calls, events and signals to its parts.

mod mishap;

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    agenda::Event,
    clock::Time,
    factory::Factory,
    faults::{Kind, Server},
    ground::Ground,
    kube,
    profile::Profile,
    pve::{
        Datacentre,
        storage::web::{Address, Page},
    },
    record::{Call, Record},
    signal::Signal,
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

/// A fault that a call met.
#[derive(Debug, Clone)]
struct Fault {
    kind: Kind,
    /// Whether the call met it before, and is only asked again.
    again: bool,
    call: CallKey,
}

/// What tells a call that is asked again from others.
type CallKey = (Time, Server, String);

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
    /// Faults of calls that are kept waiting.
    #[serde(skip)]
    waiting: BTreeMap<CallKey, Kind>,
}

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
            waiting: BTreeMap::new(),
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
        let fault = self.fault(request.began, door.server(), &request.method, door.path(request));
        #[cfg(feature = "judge")]
        let unharmed = fault.is_none();
        let progress = match fault {
            Some(fault) => mishap::http(self, door, request, fault),
            None => self.answer(door, request),
        };
        #[cfg(feature = "judge")]
        if let (Progress::Done(response), Door::Pve, true) = (&progress, door, unharmed) {
            crate::judge::watch(self.pve.release, request, response);
        }
        if let Progress::Done(response) = &progress {
            let status = Some(response.status).filter(|status| *status != 0);
            self.note(request.began, door.server(), &request.method, door.path(request), status);
        }
        progress
    }

    /// Answers a call to the Talos API of whatever machine has an address.
    pub fn rpc(&mut self, address: IpAddr, rpc: &Rpc) -> Progress<RpcReply> {
        self.advance(self.ground.now);
        self.ground.called(rpc.began);
        if let Some(machine) = self.machines.owner(address) {
            self.ground.needs(&format!("api {}", machine.vmid()));
        }
        let progress = match self.fault(rpc.began, Server::Talos, "", &rpc.method) {
            Some(fault) => mishap::rpc(self, address, rpc, fault),
            None => self.answer_rpc(address, rpc),
        };
        if let Progress::Done(reply) = &progress {
            self.note(rpc.began, Server::Talos, "", &rpc.method, Some(reply.status()));
        }
        progress
    }

    /// Answers as if nothing ever went wrong.
    fn answer(&mut self, door: &Door, request: &Request) -> Progress<Response> {
        let progress = match door {
            Door::Pve => self.pve.call(&mut self.ground, request),
            Door::Factory => {
                let response = self.factory.call(&mut self.ground, request);
                self.ground.schematics = self.factory.extensions();
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

    /// Returns what goes wrong with a call. One that is asked again was met already.
    fn fault(&mut self, began: Time, server: Server, method: &str, path: &str) -> Option<Fault> {
        let call = (began, server, path.to_owned());
        if let Some(kind) = self.waiting.get(&call) {
            return Some(Fault { kind: kind.clone(), again: true, call });
        }
        let kind = self.ground.faults.meet(server, method, path)?;
        self.waiting.insert(call.clone(), kind.clone());
        Some(Fault { kind, again: false, call })
    }

    fn note(&mut self, at: Time, server: Server, method: &str, path: &str, status: Option<u16>) {
        self.waiting.remove(&(at, server, path.to_owned()));
        let (method, path) = (method.to_owned(), path.to_owned());
        self.ground.record.add(Call { at, server, method, path, status });
    }

    /// Returns what a stream of an HTTP answer has to say.
    pub fn poll(&mut self, door: &Door, stream: StreamId) -> Polled {
        match door {
            Door::Kube(_) => self.clusters.poll(&mut self.ground, stream),
            Door::Pve | Door::Factory => Polled::End,
        }
    }

    /// Returns what a stream of a machine has to say.
    pub fn poll_rpc(&mut self, _address: IpAddr, stream: StreamId) -> Polled {
        self.machines.poll(&mut self.ground, stream)
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
    fn settle(&mut self) {
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
