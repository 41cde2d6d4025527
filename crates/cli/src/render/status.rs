//! A cluster as it is: cluster, role, machine, and of each machine its VM, Talos, etcd and node.

#[cfg(test)]
mod tests;
mod tree;

use ichor_model::{
    Desired, Observed, VmId,
    desired::{Machine, Role},
    observed::{MachineSeen, Owner, Sight, VmSeen},
};
use ichor_plan::{Voters, drift, stale_node, voters};
use serde::Serialize;
use serde_json::{Value, json};

pub use self::tree::text;
use super::text;

/// The number of the document's language.
const SCHEMA: u32 = 1;

/// A cluster as it is.
#[derive(Debug, Serialize)]
pub struct Status {
    cluster: String,
    endpoint: String,
    endpoint_kind: String,
    talos: String,
    kubernetes: String,
    etcd: Etcd,
    nodes: Nodes,
    machines: Vec<MachineStatus>,
    others: Vec<Other>,
    /// How many differences to the inventory are left as they are; the findings tell them.
    differences: usize,
}

#[derive(Debug, Serialize)]
struct Etcd {
    /// Members that vote; nothing: nobody knows.
    voters: Option<usize>,
    /// Those of them whose own etcd runs.
    answering: Option<usize>,
    wanted: usize,
    quorum: usize,
    why: Option<String>,
    /// Members whose machine is gone.
    stale: Vec<String>,
    /// Members that are no control planes of the inventory.
    strangers: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Nodes {
    /// Nodes that are ready; nothing: nobody knows.
    ready: Option<usize>,
    wanted: usize,
    why: Option<String>,
    /// Nodes that are no machines of the inventory.
    strangers: Vec<String>,
}

#[derive(Debug, Serialize)]
struct MachineStatus {
    name: String,
    role: Role,
    vm: VmPart,
    talos: TalosPart,
    etcd: Option<Part>,
    node: NodePart,
}

/// What is known of a part: a word, and why it is so where that is not plain.
#[derive(Debug, Serialize)]
struct Part {
    state: &'static str,
    why: Option<String>,
}

#[derive(Debug, Serialize)]
struct VmPart {
    id: VmId,
    host: Option<String>,
    #[serde(flatten)]
    part: Part,
}

#[derive(Debug, Serialize)]
struct TalosPart {
    version: Option<String>,
    stage: Option<String>,
    ready: Option<bool>,
    address: Option<String>,
    #[serde(flatten)]
    part: Part,
}

#[derive(Debug, Serialize)]
struct NodePart {
    version: Option<String>,
    schedulable: Option<bool>,
    #[serde(flatten)]
    part: Part,
}

/// A VM that is no machine of this cluster but concerns it.
#[derive(Debug, Serialize)]
struct Other {
    vmid: VmId,
    name: String,
    host: String,
    whose: &'static str,
    why: String,
}

/// What could not be seen.
const UNKNOWN: &str = "unknown";

impl Part {
    const fn plain(state: &'static str) -> Self {
        Self { state, why: None }
    }

    fn because(state: &'static str, why: &str) -> Self {
        Self { state, why: Some(why.to_owned()) }
    }
}

impl Status {
    /// Puts together what is wanted and what was seen.
    pub fn new(desired: &Desired, observed: &Observed) -> Self {
        let cluster = &desired.cluster;
        let voters = voters(desired, observed);
        let roles = Role::ALL.into_iter().flat_map(|role| desired.of_role(role));
        Self {
            cluster: cluster.name.to_string(),
            endpoint: cluster.endpoint.url(),
            endpoint_kind: cluster.endpoint.kind.to_string(),
            talos: cluster.talos.to_string(),
            kubernetes: cluster.kubernetes.to_string(),
            etcd: etcd(desired, voters.as_ref(), observed),
            nodes: nodes(desired, observed),
            machines: roles.map(|machine| machine_status(machine, voters.as_ref(), observed)).collect(),
            others: others(desired, observed),
            differences: drift(desired, observed).iter().count(),
        }
    }

    /// Returns it for programs.
    pub fn document(&self) -> Value {
        let mut whole = json!({"schema": SCHEMA});
        let own = serde_json::to_value(self).expect("a status has text as keys");
        if let (Value::Object(whole), Value::Object(own)) = (&mut whole, own) {
            whole.extend(own);
        }
        whole
    }
}

fn etcd(desired: &Desired, voters: Option<&Voters>, observed: &Observed) -> Etcd {
    let wanted = desired.of_role(Role::ControlPlane).count();
    let known = |name: &str| desired.of_role(Role::ControlPlane).any(|machine| machine.name.as_str() == name);
    let (strangers, why) = match &observed.etcd {
        Sight::Seen(members) => (members.keys().filter(|name| !known(name)).cloned().collect(), None),
        Sight::Unseen(why) => (Vec::new(), Some(why.clone())),
    };
    Etcd {
        voters: voters.map(Voters::all),
        answering: voters.map(|voters| voters.answering.len()),
        wanted,
        quorum: voters.map_or_else(|| desired.quorum(), Voters::quorum),
        why,
        stale: voters.map(|voters| voters.stale.clone()).unwrap_or_default(),
        strangers,
    }
}

fn nodes(desired: &Desired, observed: &Observed) -> Nodes {
    let wanted = desired.machines.len();
    let known = |name: &str| desired.machines.iter().any(|machine| machine.name.as_str() == name);
    let (ready, strangers, why) = match &observed.nodes {
        Sight::Seen(nodes) => (
            Some(desired.machines.iter().filter(|machine| is_ready(machine, observed)).count()),
            nodes.keys().filter(|name| !known(name)).cloned().collect(),
            None,
        ),
        Sight::Unseen(why) => (None, Vec::new(), Some(why.clone())),
    };
    Nodes { ready, wanted, why, strangers }
}

fn is_ready(machine: &Machine, observed: &Observed) -> bool {
    node_part(machine, observed).part.state == "ready"
}

fn machine_status(machine: &Machine, voters: Option<&Voters>, observed: &Observed) -> MachineStatus {
    MachineStatus {
        name: machine.name.to_string(),
        role: machine.role,
        vm: vm_part(machine.vmid, observed),
        talos: talos_part(machine, observed),
        etcd: (machine.role == Role::ControlPlane).then(|| etcd_part(machine, voters, observed)),
        node: node_part(machine, observed),
    }
}

fn vm_part(id: VmId, observed: &Observed) -> VmPart {
    let (host, part) = match observed.vms.get(&id) {
        Some(Sight::Seen(Some(vm))) => (Some(vm.host.to_string()), vm_state(vm, observed)),
        Some(Sight::Seen(None)) => (None, Part::plain("missing")),
        Some(Sight::Unseen(why)) => (None, Part::because(UNKNOWN, why)),
        None => (None, Part::because(UNKNOWN, "nobody looked")),
    };
    VmPart { id, host, part }
}

fn vm_state(vm: &VmSeen, observed: &Observed) -> Part {
    if let Some((_, why)) = whose(&vm.owner) {
        return Part::because("not-ours", &why);
    }
    if observed.hosts.get(&vm.host) == Some(&false) {
        return Part::because(UNKNOWN, &format!("host `{}` is offline", vm.host));
    }
    let state = if vm.running { "running" } else { "off" };
    match &vm.lock {
        Some(lock) => Part::because(state, &format!("it is locked ({lock})")),
        None => Part::plain(state),
    }
}

/// Says whose a VM is that is not ours.
fn whose(owner: &Owner) -> Option<(&'static str, String)> {
    match owner {
        Owner::Ours => None,
        Owner::OtherMachine(whose) => Some(("this-cluster", format!("it is {whose}"))),
        Owner::OtherCluster(cluster) => Some(("other-cluster", format!("it belongs to cluster `{cluster}`"))),
        Owner::Namesake => Some(("other-cluster", Owner::NAMESAKE.to_owned())),
        Owner::Foreign(why) => Some(("foreign", format!("it is not ours: {why}"))),
    }
}

fn talos_part(machine: &Machine, observed: &Observed) -> TalosPart {
    let nothing = |part| TalosPart { version: None, stage: None, ready: None, address: None, part };
    match observed.machines.get(&machine.name) {
        Some(Sight::Seen(MachineSeen::Ours(talos))) => TalosPart {
            version: Some(talos.version.clone()),
            stage: Some(talos.stage.clone()),
            ready: Some(talos.ready),
            address: talos.address.map(|address| address.to_string()),
            part: match &talos.unmet[..] {
                unmet if !talos.ready && !unmet.is_empty() => Part::because(
                    "answers",
                    &format!("it waits for {}", text::list_some(unmet, text::MAX_NAMES)),
                ),
                _ => Part::plain("answers"),
            },
        },
        Some(Sight::Seen(MachineSeen::Maintenance)) => nothing(Part::plain("maintenance")),
        Some(Sight::Seen(MachineSeen::Silent(why))) => nothing(Part::because("silent", why)),
        Some(Sight::Seen(MachineSeen::Stranger(why))) => nothing(Part::because("stranger", why)),
        Some(Sight::Unseen(why)) => nothing(Part::because(UNKNOWN, why)),
        None => nothing(Part::because(UNKNOWN, "nobody looked")),
    }
}

/// Why etcd or Kubernetes is silent is said once, of the cluster.
fn etcd_part(machine: &Machine, voters: Option<&Voters>, observed: &Observed) -> Part {
    let (Some(voters), Sight::Seen(members)) = (voters, &observed.etcd) else { return Part::plain(UNKNOWN) };
    let is_among = |names: &[String]| names.iter().any(|name| name == machine.name.as_str());
    Part::plain(match members.get(machine.name.as_str()) {
        Some(member) if member.learner => "learner",
        Some(_) if is_among(&voters.stale) => "stale",
        Some(_) if is_among(&voters.silent) => "silent",
        Some(_) => "member",
        None => "none",
    })
}

fn node_part(machine: &Machine, observed: &Observed) -> NodePart {
    let nothing = |part| NodePart { version: None, schedulable: None, part };
    match &observed.nodes {
        Sight::Seen(nodes) => match nodes.get(machine.name.as_str()) {
            Some(node) => NodePart {
                version: Some(node.version.clone()),
                schedulable: Some(!node.unschedulable),
                part: match (stale_node(observed, machine), node.ready, node.says.is_empty()) {
                    (Some(why), true, _) => Part::because("stale", why),
                    (None, true, _) => Part::plain("ready"),
                    (_, false, true) => Part::plain("not-ready"),
                    (_, false, false) => Part::because("not-ready", &node.says),
                },
            },
            None => nothing(Part::plain("none")),
        },
        Sight::Unseen(_) => nothing(Part::plain(UNKNOWN)),
    }
}

/// A VM in a machine's place is said there.
fn others(desired: &Desired, observed: &Observed) -> Vec<Other> {
    let elsewhere = |vmid: VmId| desired.machines.iter().all(|machine| machine.vmid != vmid);
    let seen = observed.vms.iter().filter_map(|(vmid, sight)| Some((*vmid, sight.seen()?.as_ref()?)));
    let other = |(vmid, vm): (VmId, &VmSeen)| {
        let (whose, why) = match whose(&vm.owner) {
            None if vm.template => ("this-cluster", "it is a template".to_owned()),
            None => ("this-cluster", "the inventory has no such machine".to_owned()),
            Some(other) => other,
        };
        Some(Other { vmid, name: vm.name.clone(), host: vm.host.to_string(), whose, why })
    };
    seen.filter(|(vmid, _)| elsewhere(*vmid)).filter_map(other).collect()
}
