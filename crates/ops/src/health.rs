//! Named checks of a cluster that was looked at: Proxmox, Talos, etcd, Kubernetes.
//!
//! Pure: the same sight gives the same checks, in the same order. What could not be seen is unknown, and
//! neither well nor ill. What is missing fails one check, the one about being there: the others are about what
//! is there.

use std::collections::BTreeMap;

use ichor_model::{
    Desired, HostName, Observed,
    desired::{Machine, Role},
    observed::{MachineSeen, MemberSeen, NodeSeen, Owner, Sight, TalosSeen, VmSeen},
    step::Verdict,
};
use ichor_plan::{files::host_of, stale_node, voters};
use serde::Serialize;

/// Most machines that a check names.
const MAX_NAMED: usize = 6;

/// One thing that is as it should be, or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Its name, the same in every run.
    pub id: &'static str,
    /// What should be.
    pub title: &'static str,
    /// Whether it is.
    pub state: State,
    /// Why not, or why nobody knows.
    pub why: Option<String>,
    /// What to do; a command stands on a line of its own.
    pub remedy: Option<String>,
}

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// It is as it should be.
    Ok,
    /// It is not.
    Failed,
    /// Nobody can tell.
    Unknown,
}

/// Checks a cluster, from the ground up.
pub fn checks(desired: &Desired, observed: &Observed) -> Vec<Check> {
    let sight = View { desired, observed };
    [sight.proxmox(), sight.talos(), sight.etcd(), sight.kubernetes()].concat()
}

#[derive(Clone, Copy)]
struct View<'a> {
    desired: &'a Desired,
    observed: &'a Observed,
}

impl View<'_> {
    fn proxmox(self) -> Vec<Check> {
        vec![
            self.each("vm-there", "every machine has its VM", UP, |machine| {
                self.vm(machine, |vm| match vm {
                    Some(_) => Verdict::Holds,
                    None => Verdict::Fails(format!("there is no VM {}", machine.vmid)),
                })
            }),
            self.each("vm-ours", "every VM is ours", OWNER, |machine| {
                self.vm(machine, |vm| vm.map_or(Verdict::Holds, |vm| ours(machine, vm)))
            }),
            self.each("vm-running", "every VM runs", UP, |machine| {
                self.own_vm(machine, |vm| Verdict::of(vm.running, || format!("VM {} is off", machine.vmid)))
            }),
            self.each("vm-host-online", "every VM is on a host that is online", HOST, |machine| {
                match self.own_vm(machine, |vm| self.online(&vm.host)) {
                    // Nobody can read a VM whose host is down; the inventory knows where it should be.
                    Verdict::Unknown(why) => match host_of(machine).map(|host| self.online(host)) {
                        Some(Verdict::Fails(offline)) => Verdict::Fails(offline),
                        _ => Verdict::Unknown(why),
                    },
                    verdict => verdict,
                }
            }),
        ]
    }

    fn online(self, host: &HostName) -> Verdict {
        match self.observed.hosts.get(host) {
            Some(true) => Verdict::Holds,
            Some(false) => Verdict::Fails(format!("host `{host}` is offline")),
            None => Verdict::Unknown(format!("host `{host}` was not seen")),
        }
    }

    fn talos(self) -> Vec<Check> {
        vec![
            self.each("talos-reachable", "Talos answers on every machine, in this cluster", UP, |machine| {
                self.reachable(machine)
            }),
            self.each("talos-running", "every machine has finished booting", WATCH, |machine| {
                self.machine(machine, |talos| {
                    Verdict::of(talos.stage == "running", || format!("it is in stage `{}`", talos.stage))
                })
            }),
            self.each("talos-ready", "every machine says that it is ready", WATCH, |machine| {
                self.machine(machine, |talos| {
                    Verdict::of(talos.ready, || match &talos.unmet[..] {
                        [] => "it is not ready".to_owned(),
                        unmet => format!("it waits for {}", some(unmet)),
                    })
                })
            }),
            self.each("talos-version", "every machine runs the Talos of the inventory", UPGRADE, |machine| {
                self.machine(machine, |talos| same_version(&talos.version, &machine.talos.to_string()))
            }),
            self.each("time-in-sync", "the clocks of all machines are in sync", TIME, |machine| {
                self.machine(machine, |talos| {
                    let unmet = talos.unmet.iter().find(|unmet| is_about(unmet, "time"));
                    unmet.map_or(Verdict::Holds, |unmet| Verdict::Fails(unmet.clone()))
                })
            }),
        ]
    }

    fn etcd(self) -> Vec<Check> {
        let members =
            |judge: &dyn Fn(&BTreeMap<String, MemberSeen>) -> Verdict| by_sight(&self.observed.etcd, judge);
        vec![
            self.of_role("etcd-members", "every control plane is a member of etcd", UP, |machine| {
                members(&|members| {
                    Verdict::of(members.contains_key(machine.name.as_str()), || "it is no member".into())
                })
            }),
            self.of_role("etcd-voters", "every member of etcd votes", LEARNER, |machine| {
                members(&|members| match members.get(machine.name.as_str()) {
                    Some(member) => Verdict::of(!member.learner, || "it is a learner".into()),
                    None => Verdict::Holds,
                })
            }),
            whole(
                "etcd-consistent",
                "etcd has no members beside the control planes",
                STRANGER,
                members(&|members| self.strangers(members)),
            ),
            whole("etcd-quorum", "enough control planes vote and answer", QUORUM, self.quorum()),
        ]
    }

    fn strangers(self, members: &BTreeMap<String, MemberSeen>) -> Verdict {
        let known = |name: &String| self.control_planes().any(|machine| machine.name.as_str() == name);
        let strangers: Vec<String> = members
            .iter()
            .filter(|(name, _)| !known(name))
            .map(|(name, it)| format!("{name} ({:x})", it.id))
            .collect();
        Verdict::of(strangers.is_empty(), || format!("there is {}", some(&strangers)))
    }

    /// A member counts if it votes and its own etcd runs.
    fn quorum(self) -> Verdict {
        let Some(voters) = voters(self.desired, self.observed) else {
            return by_sight(&self.observed.etcd, |_| Verdict::Holds);
        };
        Verdict::of(voters.has_quorum(), || {
            let (answering, all, quorum) = (voters.answering.len(), voters.all(), voters.quorum());
            format!("{answering} of {all} voters answer, and {quorum} are needed")
        })
    }

    fn kubernetes(self) -> Vec<Check> {
        let ready = if ichor_plan::has_network(self.desired) { NODE } else { NETWORK };
        let upgrade = format!(
            "kubelets follow an upgrade of Kubernetes:\n    talosctl upgrade-k8s --to {}",
            self.desired.cluster.kubernetes
        );
        vec![
            self.each("nodes-registered", "every machine is a node", UP, |machine| {
                by_sight(&self.observed.nodes, |nodes| {
                    Verdict::of(nodes.contains_key(machine.name.as_str()), || "it has not registered".into())
                })
            }),
            self.each("nodes-ready", "every node is ready", ready, |machine| {
                self.node(machine, |node| match stale_node(self.observed, machine) {
                    Some(why) => Verdict::Fails(why.into()),
                    None => Verdict::of(node.ready, || {
                        if node.says.is_empty() { "it is not ready".into() } else { node.says.clone() }
                    }),
                })
            }),
            self.each(
                "kubelet-version",
                "every kubelet is of the inventory's release",
                &upgrade,
                |machine| {
                    self.node(machine, |node| same_version(&node.version, &machine.kubernetes.to_string()))
                },
            ),
            self.each("nodes-schedulable", "no node is cordoned", UNCORDON, |machine| {
                self.node(machine, |node| Verdict::of(!node.unschedulable, || "it is cordoned".into()))
            }),
        ]
    }

    fn control_planes(&self) -> impl Iterator<Item = &Machine> {
        self.desired.of_role(Role::ControlPlane)
    }

    /// Checks something of every machine.
    fn each(
        self,
        id: &'static str,
        title: &'static str,
        remedy: &str,
        judge: impl Fn(&Machine) -> Verdict,
    ) -> Check {
        over(self.desired.machines.iter(), Check::named(id, title), remedy, judge)
    }

    /// Checks something of every control plane.
    fn of_role(
        self,
        id: &'static str,
        title: &'static str,
        remedy: &str,
        judge: impl Fn(&Machine) -> Verdict,
    ) -> Check {
        over(self.desired.of_role(Role::ControlPlane), Check::named(id, title), remedy, judge)
    }

    fn vm(self, machine: &Machine, judge: impl FnOnce(Option<&VmSeen>) -> Verdict) -> Verdict {
        match self.observed.vms.get(&machine.vmid) {
            Some(sight) => by_sight(sight, |vm| judge(vm.as_ref())),
            None => Verdict::Unknown("nobody looked".into()),
        }
    }

    /// Judges a VM that is there and ours; of others there is nothing to say.
    fn own_vm(self, machine: &Machine, judge: impl FnOnce(&VmSeen) -> Verdict) -> Verdict {
        self.vm(machine, |vm| match vm.filter(|vm| vm.owner == Owner::Ours) {
            Some(vm) => judge(vm),
            None => Verdict::Holds,
        })
    }

    fn reachable(self, machine: &Machine) -> Verdict {
        match self.observed.machines.get(&machine.name) {
            Some(sight) => by_sight(sight, |seen| match seen {
                MachineSeen::Ours(_) => Verdict::Holds,
                MachineSeen::Maintenance => Verdict::Fails("it waits for its machine config".into()),
                MachineSeen::Silent(why) | MachineSeen::Stranger(why) => Verdict::Fails(why.clone()),
            }),
            None => Verdict::Unknown("nobody looked".into()),
        }
    }

    /// Judges Talos on a machine. One that does not answer may be anything.
    fn machine(self, machine: &Machine, judge: impl FnOnce(&TalosSeen) -> Verdict) -> Verdict {
        match self.observed.machines.get(&machine.name).and_then(Sight::seen) {
            Some(MachineSeen::Ours(talos)) => judge(talos),
            _ => Verdict::Unknown("it does not answer".into()),
        }
    }

    fn node(self, machine: &Machine, judge: impl FnOnce(&NodeSeen) -> Verdict) -> Verdict {
        by_sight(&self.observed.nodes, |nodes| match nodes.get(machine.name.as_str()) {
            Some(node) => judge(node),
            None => Verdict::Holds,
        })
    }
}

fn over<'m>(
    machines: impl Iterator<Item = &'m Machine>,
    check: Check,
    remedy: &str,
    judge: impl Fn(&Machine) -> Verdict,
) -> Check {
    let (mut fails, mut unknown) = (Vec::new(), Vec::new());
    for machine in machines {
        match judge(machine) {
            Verdict::Holds => {}
            Verdict::Fails(why) => fails.push((machine, why)),
            Verdict::Unknown(why) => unknown.push((machine, why)),
        }
    }
    match (fails.is_empty(), unknown.is_empty()) {
        (true, true) => check,
        (false, _) => check.failed(&named(&fails), remedy),
        (true, false) => check.unknown(&named(&unknown)),
    }
}

/// Checks something of the cluster as a whole.
fn whole(id: &'static str, title: &'static str, remedy: &str, verdict: Verdict) -> Check {
    let check = Check::named(id, title);
    match verdict {
        Verdict::Holds => check,
        Verdict::Fails(why) => check.failed(&why, remedy),
        Verdict::Unknown(why) => check.unknown(&why),
    }
}

/// What mends most of it: going on to what the inventory says.
const UP: &str = "see what is missing, then make it so:\n    ichor plan\n    ichor up";
const OWNER: &str = "see whose it is, and give the machine another `vmid`:\n    ichor status";
const HOST: &str = "bring the host back, then look again:\n    ichor status";
const WATCH: &str = "\
wait and watch it; if it stays, read what the machine says:\n    ichor status --watch";
const UPGRADE: &str = "\
upgrade the machine, or write into the inventory what runs; the installer to upgrade to is in:
    ichor image id -o json";
const TIME: &str = "\
see which time servers it asks, and whether it reaches them:\n    talosctl -n ADDRESS get timeservers";
const LEARNER: &str = "a learner votes once it has caught up; watch it:\n    ichor status --watch";
const STRANGER: &str = "\
a member that is gone for good is removed by its id:\n    talosctl etcd remove-member ID";
const QUORUM: &str = "\
bring control planes back before anything else; whatever stops another one stops the cluster:
    ichor status";
const NODE: &str = "read why:\n    kubectl describe node NAME";
const NETWORK: &str = "\
nodes become ready when the cluster has a network; the inventory leaves its CNI to you. Read why:
    kubectl describe node NAME";
const UNCORDON: &str = "let pods onto it again:\n    kubectl uncordon NAME";

impl Check {
    const fn named(id: &'static str, title: &'static str) -> Self {
        Self { id, title, state: State::Ok, why: None, remedy: None }
    }

    fn failed(self, why: &str, remedy: &str) -> Self {
        Self { state: State::Failed, why: Some(why.to_owned()), remedy: Some(remedy.to_owned()), ..self }
    }

    fn unknown(self, why: &str) -> Self {
        Self { state: State::Unknown, why: Some(why.to_owned()), ..self }
    }
}

fn ours(machine: &Machine, vm: &VmSeen) -> Verdict {
    let vmid = machine.vmid;
    match &vm.owner {
        Owner::Ours => Verdict::Holds,
        Owner::OtherMachine(whose) => Verdict::Fails(format!("VM {vmid} is {whose}")),
        Owner::OtherCluster(cluster) => Verdict::Fails(format!("VM {vmid} belongs to cluster `{cluster}`")),
        Owner::Namesake => Verdict::Fails(format!("VM {vmid} is not ours: {}", Owner::NAMESAKE)),
        Owner::Foreign(why) => Verdict::Fails(format!("VM {vmid} is not ours: {why}")),
    }
}

/// Releases are written with and without a `v`.
fn same_version(is: &str, wanted: &str) -> Verdict {
    let bare = |version: &str| version.trim_start_matches('v').to_owned();
    Verdict::of(bare(is) == bare(wanted), || format!("it runs {is}, not {wanted}"))
}

/// Whether an unmet condition has this name, with or without what is said about it.
fn is_about(unmet: &str, name: &str) -> bool {
    unmet.strip_prefix(name).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '-'))
}

fn by_sight<T>(sight: &Sight<T>, judge: impl FnOnce(&T) -> Verdict) -> Verdict {
    match sight {
        Sight::Seen(value) => judge(value),
        Sight::Unseen(why) => Verdict::Unknown(why.clone()),
    }
}

/// Names machines with what is said of each. What is the same of all is said once.
fn named(machines: &[(&Machine, String)]) -> String {
    let names: Vec<String> = machines.iter().map(|(machine, _)| machine.name.to_string()).collect();
    match machines {
        [] => String::new(),
        [(_, first), rest @ ..] if rest.iter().all(|(_, why)| why == first) => {
            format!("{}: {first}", some(&names))
        }
        several => {
            let each: Vec<String> =
                several.iter().map(|(machine, why)| format!("{}: {why}", machine.name)).collect();
            let more = each.len().saturating_sub(MAX_NAMED);
            let shown = each[..each.len() - more].join("; ");
            if more > 0 { format!("{shown}; and {more} more") } else { shown }
        }
    }
}

fn some(words: &[String]) -> String {
    let more = words.len().saturating_sub(MAX_NAMED);
    let shown = words[..words.len() - more].join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::lab;

    /// A cluster that is well.
    fn well() -> Observed {
        let desired = lab();
        let mut observed =
            Observed { hosts: [("pve1".parse().expect("host"), true)].into(), ..Observed::default() };
        let (mut members, mut nodes) = (BTreeMap::new(), BTreeMap::new());
        for (machine, id) in desired.machines.iter().zip(1..) {
            let vm = VmSeen {
                host: "pve1".parse().expect("host"),
                owner: Owner::Ours,
                name: machine.name.to_string(),
                running: true,
                template: false,
                lock: None,
                differences: Vec::new(),
                drift: Vec::new(),
                medium: false,
                protected: false,
                addresses: Vec::new(),
            };
            observed.vms.insert(machine.vmid, Sight::Seen(Some(vm)));
            let talos = TalosSeen {
                version: "v1.13.9".into(),
                stage: "running".into(),
                ready: true,
                etcd: (machine.role == Role::ControlPlane).then(|| "Running".to_owned()),
                ..TalosSeen::default()
            };
            observed.machines.insert(machine.name.clone(), Sight::Seen(MachineSeen::Ours(talos)));
            if machine.role == Role::ControlPlane {
                members.insert(machine.name.to_string(), MemberSeen { id, learner: false });
            }
            let node = NodeSeen {
                ready: true,
                says: String::new(),
                version: "v1.36.3".into(),
                unschedulable: false,
                addresses: Vec::new(),
                boot: None,
            };
            nodes.insert(machine.name.to_string(), node);
        }
        observed.etcd = Sight::Seen(members);
        observed.nodes = Sight::Seen(nodes);
        observed
    }

    /// Returns the checks that are not well, as `id: state: why`.
    fn ill(observed: &Observed) -> Vec<String> {
        let checks = checks(lab(), observed);
        let ids: std::collections::BTreeSet<_> = checks.iter().map(|check| check.id).collect();
        assert_eq!(ids.len(), checks.len(), "ids are unique");
        for check in &checks {
            assert_eq!(check.state == State::Ok, check.why.is_none(), "{check:?}");
            assert_eq!(check.state == State::Failed, check.remedy.is_some(), "{check:?}");
            assert!(check.remedy.iter().all(|remedy| remedy.contains("\n    ")), "a command: {check:?}");
        }
        let ill = checks.iter().filter(|check| check.state != State::Ok);
        ill.map(|check| {
            format!("{}: {:?}: {}", check.id, check.state, check.why.as_deref().unwrap_or_default())
        })
        .collect()
    }

    fn talos<'o>(observed: &'o mut Observed, machine: &str) -> &'o mut TalosSeen {
        match observed.machines.get_mut(&machine.parse().expect("name")) {
            Some(Sight::Seen(MachineSeen::Ours(talos))) => talos,
            other => panic!("{other:?}"),
        }
    }

    fn node<'o>(observed: &'o mut Observed, machine: &str) -> &'o mut NodeSeen {
        match &mut observed.nodes {
            Sight::Seen(nodes) => nodes.get_mut(machine).expect("a node"),
            Sight::Unseen(why) => panic!("{why}"),
        }
    }

    #[test]
    fn a_cluster_that_is_well_passes() {
        assert_eq!(ill(&well()), [""; 0]);
    }

    #[test]
    fn what_nobody_looked_at_is_unknown_and_never_well() {
        let checks = checks(lab(), &Observed::default());
        assert!(checks.iter().all(|check| check.state == State::Unknown), "{checks:#?}");
    }

    #[test]
    fn each_illness_is_found_where_it_is() {
        let mut observed = well();
        talos(&mut observed, "worker-1").unmet = vec!["time: not in sync".into()];
        talos(&mut observed, "worker-1").ready = false;
        node(&mut observed, "worker-1").unschedulable = true;
        node(&mut observed, "cp-1").version = "v1.35.0".into();
        assert_eq!(
            ill(&observed),
            [
                "talos-ready: Failed: worker-1: it waits for time: not in sync",
                "time-in-sync: Failed: worker-1: time: not in sync",
                "kubelet-version: Failed: cp-1: it runs v1.35.0, not v1.36.3",
                "nodes-schedulable: Failed: worker-1: it is cordoned",
            ]
        );
    }

    #[test]
    fn a_vm_that_is_off_or_elsewhere_is_named() {
        let mut observed = well();
        let vmid = lab().machines[1].vmid;
        if let Some(Sight::Seen(Some(vm))) = observed.vms.get_mut(&vmid) {
            vm.running = false;
            vm.host = "pve9".parse().expect("host");
        }
        observed.hosts.insert("pve9".parse().expect("host"), false);
        assert_eq!(
            ill(&observed),
            [
                format!("vm-running: Failed: worker-1: VM {vmid} is off"),
                "vm-host-online: Failed: worker-1: host `pve9` is offline".to_owned(),
            ]
        );
        if let Some(Sight::Seen(Some(vm))) = observed.vms.get_mut(&vmid) {
            vm.owner = Owner::Foreign("it has another uuid".into());
        }
        assert!(
            ill(&observed)
                .contains(&format!("vm-ours: Failed: worker-1: VM {vmid} is not ours: it has another uuid"))
        );
    }

    #[test]
    fn learners_and_strangers_in_etcd_are_found() {
        let mut observed = well();
        let learner = MemberSeen { id: 1, learner: true };
        let stranger = MemberSeen { id: 0xabc, learner: false };
        observed.etcd = Sight::Seen([("cp-1".to_owned(), learner), ("old-1".to_owned(), stranger)].into());
        assert_eq!(
            ill(&observed),
            [
                "etcd-voters: Failed: cp-1: it is a learner",
                "etcd-consistent: Failed: there is old-1 (abc)",
                "etcd-quorum: Failed: 0 of 1 voters answer, and 1 are needed",
            ]
        );
    }

    #[test]
    fn what_is_missing_is_said_once() {
        let mut observed = well();
        let (vmid, name) = (lab().machines[1].vmid, lab().machines[1].name.clone());
        observed.vms.insert(vmid, Sight::Seen(None));
        observed.machines.insert(name, Sight::Seen(MachineSeen::Silent("nobody answers".into())));
        if let Sight::Seen(nodes) = &mut observed.nodes {
            nodes.remove("worker-1");
        }
        assert_eq!(
            ill(&observed).into_iter().filter(|check| check.contains("Failed")).collect::<Vec<_>>(),
            [
                format!("vm-there: Failed: worker-1: there is no VM {vmid}"),
                "talos-reachable: Failed: worker-1: nobody answers".to_owned(),
                "nodes-registered: Failed: worker-1: it has not registered".to_owned(),
            ]
        );
    }

    #[test]
    fn a_silent_kubernetes_is_unknown_and_says_so_once_per_check() {
        let mut observed = well();
        observed.nodes = Sight::Unseen("the endpoint does not answer".into());
        assert_eq!(
            ill(&observed)[0],
            "nodes-registered: Unknown: cp-1, worker-1: the endpoint does not answer"
        );
        assert_eq!(ill(&observed).len(), 4);
    }

    #[test]
    fn conditions_are_told_apart_by_their_whole_name() {
        assert!(is_about("time", "time") && is_about("time: late", "time"));
        assert!(!is_about("timestamps", "time") && !is_about("network", "time"));
    }
}
