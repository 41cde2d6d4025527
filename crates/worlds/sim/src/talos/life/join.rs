//! Joining: etcd, and the Kubernetes node.

use ichor_model::VmId;

use super::Step;
use crate::{
    ground::{Ground, Hardware},
    signal::{NodeFacts, Signal},
    talos::{
        Machines,
        etcd::{Etcd, Member},
        machine::{Run, State, takes},
        wanted::Wanted,
    },
};

impl Machines {
    pub(super) fn progress_etcd(&mut self, ground: &mut Ground, vmid: VmId, wanted: &Wanted) -> bool {
        let now = ground.now;
        let data = self.by_id.get(&vmid).and_then(|machine| machine.etcd_data(&ground.media));
        let leads = data.as_ref().and_then(|(cluster, _)| self.clusters.get(cluster));
        let leads = leads.is_some_and(|etcd| etcd.leader.is_some());
        let member = data.as_ref().is_some_and(|(cluster, member)| {
            self.clusters.get(cluster).is_some_and(|etcd| etcd.members.contains_key(member))
        });
        let learner = data.as_ref().is_some_and(|(cluster, member)| {
            let etcd = self.clusters.get(cluster);
            etcd.and_then(|etcd| etcd.members.get(member)).is_some_and(|member| member.learner)
        });
        let Some(run) = self.run_mut(vmid) else { return false };
        let Some(state) = run.services.get("etcd").map(|service| service.state) else { return false };
        let healthy = run.services.get("etcd").and_then(|service| service.healthy);
        match state {
            State::Waiting | State::Preparing if data.is_some() && !member => {
                let text = "the member has been permanently removed from the cluster";
                run.move_service(now, "etcd", State::Failed, text);
                true
            }
            State::Waiting | State::Preparing if data.is_some() => {
                run.move_service(now, "etcd", State::Starting, "Starting service");
                self.after(ground, vmid, takes::start("etcd"), Step::Started("etcd".into()));
                true
            }
            State::Waiting => {
                run.move_service(now, "etcd", State::Preparing, "Running pre state");
                ground.usable(format!("etcd {vmid}"));
                true
            }
            State::Preparing => self.join(ground, vmid, wanted),
            State::Running if !member => {
                let text = "the member has been permanently removed from the cluster";
                run.move_service(now, "etcd", State::Failed, text);
                run.static_pods = false;
                run.pods_coming = false;
                true
            }
            State::Running if healthy.is_some() && healthy != Some(leads) => {
                run.check_service(now, "etcd", leads);
                true
            }
            State::Running if learner && leads && run.is_healthy("etcd") && !run.promoting => {
                run.promoting = true;
                self.after(ground, vmid, takes::PROMOTION, Step::Promoted);
                true
            }
            State::Running => {
                let ready = run.is_healthy("etcd") && run.is_healthy("kubelet") && !learner;
                if ready && !run.pods_coming {
                    run.pods_coming = true;
                    self.after(ground, vmid, takes::STATIC_PODS, Step::Pods);
                    return true;
                }
                false
            }
            _ => false,
        }
    }

    /// Joins an etcd cluster that can be reached, as a learner.
    pub(super) fn join(&mut self, ground: &mut Ground, vmid: VmId, wanted: &Wanted) -> bool {
        let Some(address) = self.run(vmid).and_then(|run| run.network.first()) else { return false };
        let name = self.run(vmid).map(|run| run.network.hostname.clone()).unwrap_or_default();
        let found = self.clusters.values().find(|etcd| {
            etcd.leader.is_some()
                && etcd.ca == wanted.etcd.certificate
                // etcd takes one learner at a time.
                && !etcd.members.values().any(|member| member.learner && member.vmid != vmid)
                && etcd.members.values().any(|member| {
                    self.run(member.vmid).is_some_and(|run| run.is_healthy("etcd"))
                        && self.reaches(wanted, member.vmid)
                })
        });
        let Some(id) = found.map(|etcd| etcd.id.clone()) else { return false };
        let member = ground.random.bits() | 1;
        let alive = self.alive(ground, &id);
        let Some(etcd) = self.clusters.get_mut(&id) else { return false };
        // Who has the same name is taken for a former self, and goes first; etcd refuses that if it would cost the
        // quorum.
        let stale: Vec<u64> =
            etcd.members.iter().filter(|(_, other)| other.name == name).map(|(id, _)| *id).collect();
        if stale.iter().any(|id| !etcd.can_lose(*id, &alive)) {
            return false;
        }
        etcd.members.retain(|id, _| !stale.contains(id));
        etcd.members.insert(member, Member { name, address, learner: true, vmid });
        etcd.change();
        self.write_etcd(ground, vmid, Some((&id, member)));
        true
    }

    /// Writes down whose member a machine's disk holds.
    pub(in crate::talos) fn write_etcd(&self, ground: &mut Ground, vmid: VmId, data: Option<(&str, u64)>) {
        let data = data.map(
            |(cluster, member)| serde_json::json!({ "cluster": cluster, "member": format!("{member:016x}") }),
        );
        if let Some(machine) = self.by_id.get(&vmid) {
            machine.change_installed(&mut ground.media, |installed| installed.etcd = data);
        }
    }

    pub(super) fn promote(&mut self, ground: &mut Ground, vmid: VmId) {
        let data = self.by_id.get(&vmid).and_then(|machine| machine.etcd_data(&ground.media));
        let Some((cluster, id)) = data else { return };
        let alive = self.alive(ground, &cluster);
        let Some(etcd) = self.clusters.get_mut(&cluster) else { return };
        let able = etcd.leader.is_some() && alive.contains(&id);
        if let Some(run) = self.by_id.get_mut(&vmid).and_then(|machine| machine.run.as_mut()) {
            run.promoting = false;
        }
        // Otherwise it is tried again as soon as there is a leader.
        if !able {
            return;
        }
        if let Some(member) = etcd.members.get_mut(&id) {
            member.learner = false;
        }
        etcd.change();
    }

    /// Makes a cluster of one, perhaps from a snapshot.
    pub(in crate::talos) fn found(&mut self, ground: &mut Ground, vmid: VmId, snapshot: Option<Vec<u8>>) {
        ground.needs(&format!("etcd {vmid}"));
        let Some(run) = self.run(vmid) else { return };
        let (Some(address), Some(wanted)) = (run.network.first(), run.wanted.clone()) else { return };
        let name = run.network.hostname.clone();
        let id = ground.random.bits() | 1;
        let member = Member { name, address, learner: false, vmid };
        let etcd = Etcd::new(id, member, &wanted.etcd.certificate);
        let cluster = etcd.id.clone();
        self.clusters.insert(cluster.clone(), etcd);
        self.write_etcd(ground, vmid, Some((&cluster, id)));
        ground.send(Signal::ClusterBorn { cluster, snapshot, ca_pem: wanted.kubernetes.certificate });
    }

    pub(super) fn progress_node(&mut self, ground: &mut Ground, vmid: VmId, wanted: &Wanted) -> bool {
        let Some(run) = self.run(vmid) else { return false };
        if run.node.is_some() || !run.is_healthy("kubelet") {
            return false;
        }
        let Some(cluster) = self.kubernetes_of(ground, vmid) else { return false };
        let pod_network = self.brings_pod_network(&cluster);
        let Some(machine) = self.by_id.get_mut(&vmid) else { return false };
        let Some(run) = machine.run.as_mut() else { return false };
        let name = run.network.hostname.clone();
        let node = node_facts(&machine.hardware, run, wanted, pod_network);
        run.pod_network = pod_network;
        run.node = Some((cluster.clone(), name));
        ground.send(Signal::NodeUp { cluster, node: Box::new(node) });
        true
    }

    /// Whether the control plane of a cluster installs a pod network; the configs of workers do not say.
    fn brings_pod_network(&self, cluster: &str) -> bool {
        let members = self.clusters.get(cluster).into_iter().flat_map(|etcd| etcd.members.values());
        members.filter_map(|member| self.run(member.vmid)?.wanted.as_ref()).any(|wanted| wanted.cni_included)
    }

    /// Tells Kubernetes that a node no longer reports.
    pub(in crate::talos) fn node_down(&mut self, ground: &mut Ground, vmid: VmId) {
        if let Some((cluster, name)) = self.run_mut(vmid).and_then(|run| run.node.take()) {
            ground.send(Signal::NodeDown { cluster, name });
        }
    }
}

fn node_facts(hardware: &Hardware, run: &Run, wanted: &Wanted, cni_included: bool) -> NodeFacts {
    NodeFacts {
        name: run.network.hostname.clone(),
        addresses: run.network.addresses().map(|(address, _)| address.to_string()).collect(),
        control_plane: wanted.is_control_plane(),
        labels: wanted.labels.clone(),
        annotations: wanted.annotations.clone(),
        taints: wanted.taints.clone(),
        kubelet: wanted.version_of("kubelet"),
        talos: run.image.talos.clone(),
        cni_included,
        external_cloud_provider: wanted.external_cloud_provider,
        cpus: hardware.cpus,
        memory_mib: hardware.memory_mib,
        uuid: hardware.uuid.clone(),
        boot_id: run.boot_id.clone(),
    }
}
