//! What becomes possible when something else has happened, until nothing more does.

use std::net::IpAddr;

use ichor_model::VmId;
use ichor_talos_proto::machine as api;

use super::{Event, MOST_ROUNDS, Step};
use crate::{
    agenda,
    clock::Time,
    ground::Ground,
    talos::{
        Machines,
        etcd::{Member, Vip},
        machine::{Run, Stage, State, takes},
        wanted::{Pair, Wanted},
    },
};

impl Machines {
    /// Lets everything happen that has become possible.
    pub(in crate::talos) fn settle(&mut self, ground: &mut Ground) {
        for _ in 0..MOST_ROUNDS {
            let mut changed = self.settle_clusters(ground);
            let all: Vec<VmId> = self.by_id.keys().copied().collect();
            for vmid in all {
                changed |= self.progress(ground, vmid);
            }
            if !changed {
                break;
            }
        }
        self.show(ground);
    }

    /// Returns the members of a cluster whose machines serve etcd.
    pub fn alive(&self, ground: &Ground, cluster: &str) -> Vec<u64> {
        let Some(etcd) = self.clusters.get(cluster) else { return Vec::new() };
        let serves = |id: &u64, member: &Member| {
            self.by_id.get(&member.vmid).is_some_and(|machine| {
                machine.run.as_ref().is_some_and(Run::serves_etcd)
                    && machine.etcd_data(&ground.media).is_some_and(|data| data == (etcd.id.clone(), *id))
            })
        };
        etcd.members.iter().filter(|(id, member)| serves(id, member)).map(|(id, _)| *id).collect()
    }

    fn settle_clusters(&mut self, ground: &mut Ground) -> bool {
        let mut changed = false;
        let ids: Vec<String> = self.clusters.keys().cloned().collect();
        for id in ids {
            let alive = self.alive(ground, &id);
            let wanted = self.wanted_vips(&id);
            let Some(etcd) = self.clusters.get_mut(&id) else { continue };
            if etcd.leader.is_some_and(|leader| !alive.contains(&leader)) || !etcd.has_quorum(&alive) {
                changed |= etcd.leader.take().is_some();
            }
            if etcd.leader.is_none() && !etcd.electing && etcd.has_quorum(&alive) {
                etcd.electing = true;
                changed = true;
                ground.after(takes::ELECTION, agenda::Event::Talos(Event::Elect(id.clone())));
            }
            changed |= self.settle_vips(ground, &id, &wanted);
        }
        changed
    }

    /// Returns the shared addresses that machines of a cluster want, with those who could hold them.
    fn wanted_vips(&self, cluster: &str) -> Vec<(IpAddr, VmId)> {
        let Some(etcd) = self.clusters.get(cluster) else { return Vec::new() };
        let mut vips = Vec::new();
        for member in etcd.members.values().filter(|member| !member.learner) {
            let Some(run) = self.run(member.vmid) else { continue };
            if run.is_healthy("etcd") && run.sequence.is_none() {
                let wanted = run.wanted.iter().flat_map(|wanted| &wanted.vips);
                vips.extend(wanted.map(|address| (*address, member.vmid)));
            }
        }
        vips.sort_unstable();
        vips
    }

    fn settle_vips(&mut self, ground: &mut Ground, cluster: &str, wanted: &[(IpAddr, VmId)]) -> bool {
        let Some(etcd) = self.clusters.get_mut(cluster) else { return false };
        let has_leader = etcd.leader.is_some();
        for (address, _) in wanted {
            etcd.vips.entry(*address).or_default();
        }
        let mut changed = false;
        for (address, vip) in &mut etcd.vips {
            let able = |holder: VmId| wanted.iter().any(|(other, vmid)| other == address && *vmid == holder);
            // A first holder takes it at once; after a crash the old lease has to run out.
            let delay = if vip.holder.is_some() { takes::VIP } else { takes::ELECTION };
            if vip.holder.is_some_and(|holder| !able(holder)) {
                vip.holder = None;
                changed = true;
            }
            let candidates = wanted.iter().any(|(other, _)| other == address);
            if vip.holder.is_none() && !vip.moving && candidates && has_leader {
                vip.moving = true;
                changed = true;
                ground.after(delay, agenda::Event::Talos(Event::Vip(cluster.to_owned(), *address)));
            }
        }
        changed
    }

    pub(super) fn take_vip(&mut self, cluster: &str, address: IpAddr) {
        let wanted = self.wanted_vips(cluster);
        let Some(etcd) = self.clusters.get_mut(cluster) else { return };
        let leads = etcd.leader.is_some();
        let holder = wanted.iter().find(|(other, _)| *other == address).map(|(_, vmid)| *vmid);
        etcd.vips.insert(address, Vip { holder: holder.filter(|_| leads), moving: false });
    }

    /// Whether a machine can reach another through discovery or the endpoint of its config.
    pub(super) fn reaches(&self, from: &Wanted, other: VmId) -> bool {
        let Some(run) = self.run(other) else { return false };
        let Some(wanted) = &run.wanted else { return false };
        let discovered = from.discovery
            && wanted.discovery
            && !from.cluster_id.is_empty()
            && (&from.cluster_id, &from.cluster_secret) == (&wanted.cluster_id, &wanted.cluster_secret);
        let at_endpoint = match from.endpoint_host().parse::<IpAddr>() {
            Ok(address) => self.owner(address).is_some_and(|machine| machine.vmid() == other),
            // The lab has no DNS: a name leads to every control plane with the same endpoint.
            Err(_) => from.endpoint_host() == wanted.endpoint_host(),
        };
        discovered || at_endpoint
    }

    /// Returns what a machine's server certificate is signed with: the CA of its own config, or trustd's.
    pub(super) fn signs_for(&self, vmid: VmId) -> Option<Pair> {
        let wanted = self.run(vmid)?.wanted.as_ref()?;
        if !wanted.os.key.is_empty() {
            return Some(wanted.os.clone());
        }
        let mut others = self.by_id.values().filter_map(|machine| machine.run.as_ref()?.wanted.as_ref());
        others
            .find(|other| other.os.certificate == wanted.os.certificate && !other.os.key.is_empty())
            .map(|other| other.os.clone())
    }

    /// Whether some control plane's trustd would sign a worker's certificate.
    fn finds_trustd(&self, wanted: &Wanted) -> bool {
        self.by_id.iter().any(|(vmid, machine)| {
            machine.run.as_ref().is_some_and(|run| {
                let same = run.wanted.as_ref().is_some_and(|other| {
                    other.is_control_plane()
                        && other.os.certificate == wanted.os.certificate
                        && other.token == wanted.token
                });
                same && run.runs("trustd") && self.reaches(wanted, *vmid)
            })
        })
    }

    /// Returns the Kubernetes cluster that a machine belongs to, once its API server answers.
    pub(in crate::talos) fn kubernetes_of(&self, ground: &Ground, vmid: VmId) -> Option<String> {
        let wanted = self.run(vmid)?.wanted.as_ref()?;
        let own = self.by_id.get(&vmid)?.etcd_data(&ground.media).map(|(cluster, _)| cluster);
        self.clusters
            .values()
            .filter(|etcd| etcd.leader.is_some() && own.as_ref().is_none_or(|own| *own == etcd.id))
            .find(|etcd| {
                etcd.members.values().any(|member| {
                    let Some(run) = self.run(member.vmid).filter(|run| run.static_pods) else { return false };
                    let known = run.wanted.as_ref().is_some_and(|other| {
                        other.bootstrap_token == wanted.bootstrap_token
                            && other.kubernetes.certificate == wanted.kubernetes.certificate
                    });
                    known && (member.vmid == vmid || self.reaches(wanted, member.vmid))
                })
            })
            .map(|etcd| etcd.id.clone())
    }

    /// Lets a machine do what it can do now; says whether it did anything.
    fn progress(&mut self, ground: &mut Ground, vmid: VmId) -> bool {
        let now = ground.now;
        let Some(run) = self.run(vmid) else { return false };
        let Some(wanted) = run.wanted.clone() else { return false };
        if run.sequence.is_some() || run.stage == Stage::Installing || !run.network.up {
            return false;
        }
        let trusted = wanted.is_control_plane() || self.finds_trustd(&wanted);
        let ready = run.is_healthy("cri") && run.time_synced;
        let starting: Vec<&str> = [("apid", trusted), ("trustd", true), ("cri", true), ("kubelet", ready)]
            .into_iter()
            .filter(|(id, can)| {
                *can && run.services.get(*id).is_some_and(|service| service.state == State::Waiting)
            })
            .map(|(id, _)| id)
            .collect();
        let mut changed = !starting.is_empty();
        for id in starting {
            if let Some(run) = self.run_mut(vmid) {
                run.move_service(now, id, State::Preparing, "Running pre state");
            }
            self.after(ground, vmid, takes::start(id), Step::Started(id.to_owned()));
        }
        if wanted.is_control_plane() && ready {
            changed |= self.progress_etcd(ground, vmid, &wanted);
        }
        changed |= self.progress_node(ground, vmid, &wanted);
        changed |= self.progress_stage(now, vmid, &wanted);
        changed
    }

    fn progress_stage(&mut self, now: Time, vmid: VmId, wanted: &Wanted) -> bool {
        let Some(run) = self.run_mut(vmid).filter(|run| run.stage == Stage::Booting) else { return false };
        let mut needed = vec!["apid", "cri", "kubelet"];
        if wanted.is_control_plane() {
            needed.extend(["etcd", "trustd"]);
        }
        if !needed.iter().all(|id| run.is_healthy(id)) {
            return false;
        }
        run.stage = Stage::Running;
        let began = run.began;
        run.journal.sequence(now, began, "boot", api::sequence_event::Action::Stop as i32, "");
        true
    }
}
