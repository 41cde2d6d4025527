//! Calls: who asks, of which machine, whether it may, and what comes of it.

mod apply;
mod authority;
mod etcd;
mod images;
mod monitor;
mod power;
mod state;

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use ichor_machineconfig::pki::Certificate;
use ichor_model::VmId;
use ichor_talos_proto::{Message, code, common, google, method};

use super::{
    Machines,
    machine::{Api, Machine},
    streams::Source,
};
use crate::{
    clock::Time,
    ground::Ground,
    lab::Progress,
    wire::{Rpc, RpcReply, StreamId},
};

/// What comes of a call that is not refused.
pub(super) enum Reply {
    /// Messages, and perhaps more that come later.
    Messages(Vec<Vec<u8>>, Option<StreamId>),
    /// Nothing yet.
    Wait(Time),
}

/// Why a call is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    code: i32,
    message: String,
}

pub(super) type Outcome = Result<Reply, Refusal>;

/// Refuses a call.
pub(super) fn refuse<T>(code: i32, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal { code, message: message.into() })
}

/// Answers with one message.
#[allow(clippy::unnecessary_wraps, reason = "handlers end with it as they end with a refusal")]
pub(super) fn one(message: &impl Message) -> Outcome {
    Ok(Reply::Messages(vec![message.encode_to_vec()], None))
}

/// Reads the request of a call; no message stands for an empty one.
pub(super) fn request<M: Message + Default>(rpc: &Rpc) -> Result<M, Refusal> {
    let bytes = rpc.messages.first().map_or(&[][..], Vec::as_slice);
    M::decode(bytes).or_else(|error| {
        refuse(code::INTERNAL, format!("grpc: failed to unmarshal the received message: {error}"))
    })
}

/// Who calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Caller {
    /// Whether the machine is in maintenance mode.
    pub maintenance: bool,
    /// What the caller may do.
    pub roles: BTreeSet<String>,
}

impl Caller {
    /// Whether the caller is an administrator.
    pub(super) fn is_admin(&self) -> bool {
        self.roles.contains("os:admin")
    }
}

/// Puts the name of a machine into a message: metadata is the first field of all.
pub(super) fn sign(hostname: &str, message: Vec<u8>) -> Vec<u8> {
    mark(&common::Metadata { hostname: hostname.to_owned(), ..common::Metadata::default() }, message)
}

fn mark(metadata: &common::Metadata, message: Vec<u8>) -> Vec<u8> {
    let mut out = Vec::with_capacity(message.len() + 32);
    prost::encoding::message::encode(1, metadata, &mut out);
    out.extend(message);
    out
}

/// An answer of the form that all unary calls have: messages in field 1.
#[derive(Clone, PartialEq, Message)]
struct Answers {
    #[prost(bytes = "vec", repeated, tag = "1")]
    messages: Vec<Vec<u8>>,
}

impl Machines {
    /// Answers a call to the Talos API at an address.
    pub fn call(&mut self, ground: &mut Ground, address: IpAddr, rpc: &Rpc) -> Progress<RpcReply> {
        // What Kubernetes has done since may show in the answer.
        self.settle(ground);
        let outcome = self.answer(ground, address, rpc);
        self.settle(ground);
        match outcome {
            Ok(Reply::Messages(messages, stream)) => Progress::Done(RpcReply::Messages { messages, stream }),
            Ok(Reply::Wait(until)) => Progress::Wait(until),
            Err(Refusal { code, message }) => Progress::Done(RpcReply::Status { code, message }),
        }
    }

    fn answer(&mut self, ground: &mut Ground, address: IpAddr, rpc: &Rpc) -> Outcome {
        let machine = self.owner(address).filter(|machine| listens(machine));
        let Some(machine) = machine else { return refuse(code::UNAVAILABLE, refused(address)) };
        let vmid = machine.vmid();
        let caller = identify(machine, rpc)?;
        let proxied = rpc.metadata.iter().any(|(key, _)| key == "proxyfrom");
        // In maintenance mode nothing is routed.
        if caller.maintenance || proxied {
            return self.dispatch(ground, vmid, &caller, rpc);
        }
        self.route(ground, vmid, &caller, rpc)
    }

    /// Sends a call on to the machines that it names.
    fn route(&mut self, ground: &mut Ground, vmid: VmId, caller: &Caller, rpc: &Rpc) -> Outcome {
        let values = |wanted: &str| -> Vec<String> {
            rpc.metadata.iter().filter(|(key, _)| key == wanted).map(|(_, value)| value.clone()).collect()
        };
        let (mut node, mut nodes) = (values("node"), values("nodes"));
        if node.len() > 1 {
            return refuse(code::INVALID_ARGUMENT, "node metadata must be single-valued");
        }
        let forwards = self.run(vmid).is_some_and(super::machine::Run::is_control_plane);
        if !forwards {
            let local = |target: &String| self.is_local(vmid, target);
            node.retain(|target| !local(target));
            if matches!(&nodes[..], [target] if local(target)) {
                nodes.clear();
            }
        }
        if !nodes.is_empty() {
            let gathers = [method::MACHINE, method::CLUSTER, method::INSPECT, method::STORAGE, method::TIME];
            if !gathers.iter().any(|service| rpc.method.starts_with(service)) {
                let text = format!("one-2-many proxying is not supported for method {}", rpc.method);
                return refuse(code::INVALID_ARGUMENT, text);
            }
            if !forwards {
                return refuse(code::PERMISSION_DENIED, "no request forwarding");
            }
            return self.gather(ground, vmid, caller, rpc, &nodes);
        }
        match node.first() {
            None => self.dispatch(ground, vmid, caller, rpc),
            Some(_) if !forwards => refuse(code::PERMISSION_DENIED, "no request forwarding"),
            Some(target) => {
                let address = target_address(target)?;
                self.forward(ground, caller, rpc, address)
            }
        }
    }

    fn is_local(&self, vmid: VmId, target: &str) -> bool {
        self.run(vmid).is_some_and(|run| {
            run.network.hostname == target
                || run.network.addresses().any(|(own, _)| own.to_string() == target)
        })
    }

    /// Sends a call on to one machine, which trusts the control plane about the caller's roles.
    fn forward(&mut self, ground: &mut Ground, caller: &Caller, rpc: &Rpc, target: Target) -> Outcome {
        let found = match &target {
            Target::Address(address) => self.owner(*address),
            Target::Name(name) => {
                let named = |machine: &&Machine| {
                    machine.run.as_ref().is_some_and(|run| run.network.up && run.network.hostname == *name)
                };
                self.by_id.values().find(named)
            }
        };
        // Between machines only the secure API is spoken.
        let secure = |machine: &&Machine| machine.run.as_ref().is_some_and(|run| run.api == Api::Secure);
        let Some(vmid) = found.filter(secure).map(Machine::vmid) else {
            let text = match target {
                Target::Address(address) => refused(address),
                Target::Name(name) => format!("name resolver error: produced zero addresses for {name:?}"),
            };
            return refuse(code::UNAVAILABLE, text);
        };
        self.dispatch(ground, vmid, caller, rpc)
    }

    /// Asks several machines, and gathers what they say.
    fn gather(
        &mut self,
        ground: &mut Ground,
        vmid: VmId,
        caller: &Caller,
        rpc: &Rpc,
        nodes: &[String],
    ) -> Outcome {
        const STREAMED: [&str; 11] = [
            "Copy",
            "Dmesg",
            "Events",
            "Kubeconfig",
            "List",
            "DiskUsage",
            "Logs",
            "Read",
            "EtcdSnapshot",
            "ImageList",
            "HealthCheck",
        ];
        let streamed = STREAMED.contains(&rpc.method.rsplit('/').next().unwrap_or_default());
        let mut entries = Vec::new();
        let mut streams = Vec::new();
        for node in nodes {
            let outcome = target_address(node).and_then(|target| self.forward(ground, caller, rpc, target));
            match outcome {
                Ok(Reply::Wait(until)) => return Ok(Reply::Wait(until)),
                Ok(Reply::Messages(messages, stream)) if streamed => {
                    entries.extend(messages.into_iter().map(|message| sign(node, message)));
                    streams.extend(stream.map(|stream| (node.clone(), stream)));
                }
                Ok(Reply::Messages(messages, _)) => {
                    for message in messages {
                        let answers = Answers::decode(&message[..]).unwrap_or_default();
                        entries.extend(answers.messages.into_iter().map(|entry| sign(node, entry)));
                    }
                }
                Err(Refusal { code, message }) => {
                    let status = google::rpc::Status { code, message: message.clone(), details: Vec::new() };
                    let error = format!("rpc error: code = {} desc = {message}", code_name(code));
                    let metadata = common::Metadata { hostname: node.clone(), error, status: Some(status) };
                    entries.push(mark(&metadata, Vec::new()));
                }
            }
        }
        if !streamed {
            return one(&Answers { messages: entries });
        }
        let stream = (!streams.is_empty()).then(|| self.open(vmid, Source::Joined(streams)));
        Ok(Reply::Messages(entries, stream))
    }

    /// Answers a call at the machine that it is meant for.
    fn dispatch(&mut self, ground: &mut Ground, vmid: VmId, caller: &Caller, rpc: &Rpc) -> Outcome {
        let Some(run) = self.run(vmid) else { return refuse(code::UNAVAILABLE, "connection closed") };
        authority::check(run.minor(), caller, &rpc.method)?;
        let call = Call { vmid, caller, rpc };
        let name = rpc.method.rsplit('/').next().unwrap_or_default();
        if rpc.method.starts_with(method::STATE) {
            return self.call_state(ground, &call, name);
        }
        if rpc.method.starts_with(method::LIFECYCLE) || rpc.method.starts_with(method::IMAGE) {
            return self.call_images(ground, &call, name);
        }
        if rpc.method.starts_with(method::MACHINE) {
            if name == "ApplyConfiguration" {
                return self.apply_configuration(ground, &call);
            }
            if name.starts_with("Etcd") || name == "Bootstrap" {
                return self.call_etcd(ground, &call, name);
            }
            if matches!(name, "ImageList" | "ImagePull") {
                return self.call_images(ground, &call, name);
            }
            if matches!(
                name,
                "Reboot" | "Shutdown" | "Reset" | "Upgrade" | "Rollback" | "MetaWrite" | "MetaDelete"
            ) || name.starts_with("Service") && name != "ServiceList"
            {
                return self.call_power(ground, &call, name);
            }
        }
        self.call_monitor(ground, &call, name)
    }
}

/// A call at the machine that it is meant for.
pub(super) struct Call<'a> {
    pub vmid: VmId,
    pub caller: &'a Caller,
    pub rpc: &'a Rpc,
}

impl Call<'_> {
    /// Keeps the caller waiting until so much real time has passed since it called; says whether it has passed.
    fn waited(&self, ground: &Ground, real: Duration) -> Result<(), Time> {
        let until = self.rpc.began + ground.profile.takes(real);
        if ground.now >= until { Ok(()) } else { Err(until) }
    }
}

fn listens(machine: &Machine) -> bool {
    machine.run.as_ref().is_some_and(|run| run.api != Api::Closed)
}

fn refused(address: IpAddr) -> String {
    let host = if address.is_ipv6() { format!("[{address}]") } else { address.to_string() };
    format!(
        "connection error: desc = \"transport: Error while dialing: dial tcp {host}:50000: connect: connection refused\""
    )
}

/// Finds out who calls. What TLS would refuse is refused as TLS does.
fn identify(machine: &Machine, rpc: &Rpc) -> Result<Caller, Refusal> {
    let Some(run) = &machine.run else { return refuse(code::UNAVAILABLE, "connection closed") };
    if run.api == Api::Maintenance {
        return Ok(Caller { maintenance: true, roles: BTreeSet::from(["os:reader".to_owned()]) });
    }
    let tls = |what: &str| {
        refuse(code::UNAVAILABLE, format!("error reading server preface: remote error: tls: {what}"))
    };
    let Some(der) = &rpc.client_certificate else { return tls("certificate required") };
    let Ok(certificate) = Certificate::from_der(der) else { return tls("bad certificate") };
    let wanted = run.wanted.as_ref();
    let trusted =
        wanted.into_iter().flat_map(|wanted| std::iter::once(&wanted.os.certificate).chain(&wanted.accepted));
    let signed = trusted
        .filter_map(|pem| Certificate::from_pem(pem).ok())
        .any(|authority| certificate.is_signed_by(&authority));
    if !signed {
        return tls("unknown certificate authority");
    }
    if !certificate.is_for_clients_only() {
        return tls("bad certificate");
    }
    Ok(Caller { maintenance: false, roles: certificate.organizations().iter().cloned().collect() })
}

/// Where a call is to go.
enum Target {
    Address(IpAddr),
    Name(String),
}

fn target_address(target: &str) -> Result<Target, Refusal> {
    if let Ok(address) = target.parse() {
        return Ok(Target::Address(address));
    }
    if target.is_empty() || target.contains(':') {
        return refuse(code::INTERNAL, format!("invalid target {target:?}"));
    }
    Ok(Target::Name(target.to_owned()))
}

/// Returns the word that Go prints for a status.
fn code_name(code: i32) -> &'static str {
    match code {
        1 => "Canceled",
        3 => "InvalidArgument",
        4 => "DeadlineExceeded",
        5 => "NotFound",
        6 => "AlreadyExists",
        7 => "PermissionDenied",
        8 => "ResourceExhausted",
        9 => "FailedPrecondition",
        12 => "Unimplemented",
        13 => "Internal",
        14 => "Unavailable",
        16 => "Unauthenticated",
        _ => "Unknown",
    }
}
