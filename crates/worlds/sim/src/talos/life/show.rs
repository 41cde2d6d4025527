//! What a machine shows of itself: its status, its console and its agent.

use std::net::IpAddr;

use ichor_model::VmId;
use ichor_talos_proto::{Message, machine as api};

use crate::{
    clock::Time,
    ground::{AgentInterface, AgentView, Ground},
    talos::{
        Machines,
        machine::{Machine, Run, Stage},
    },
};

impl Machines {
    /// Returns what a machine still lacks to be ready.
    pub(in crate::talos) fn unmet(ground: &Ground, machine: &Machine) -> Vec<(String, String)> {
        let mut unmet = Vec::new();
        let Some(run) = &machine.run else { return unmet };
        let mut add = |name: &str, reason: String| unmet.push((name.to_owned(), reason));
        let Some(wanted) = &run.wanted else { return unmet };
        if !matches!(run.stage, Stage::Booting | Stage::Running) {
            return unmet;
        }
        if !run.time_synced && !wanted.time_disabled {
            add("time", "time is not synced".into());
        }
        if run.network.first().is_none() {
            add("network", "waiting on: address, connectivity".into());
        }
        let mut ids = vec!["apid", "machined", "kubelet"];
        if wanted.is_control_plane() {
            ids.extend(["etcd", "trustd"]);
        }
        ids.sort_unstable();
        let problems: Vec<String> = ids
            .iter()
            .filter(|id| !run.is_healthy(id))
            .map(|id| if run.runs(id) { format!("{id} not healthy") } else { format!("{id} not running") })
            .collect();
        if !problems.is_empty() {
            add("services", problems.join(", "));
        }
        let name = &run.network.hostname;
        if wanted.is_control_plane() && !run.static_pods {
            let pods = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];
            let reasons: Vec<String> =
                pods.iter().map(|pod| format!("kube-system/{pod}-{name} not ready")).collect();
            add("staticPods", reasons.join(", "));
        }
        let view =
            run.node.as_ref().and_then(|(cluster, node)| ground.kubernetes.get(cluster)?.nodes.get(node));
        match (&run.node, view) {
            (Some(_), Some(view)) if view.ready => {}
            (Some(_), Some(_)) => add("nodeReady", format!("node {name:?} is not ready")),
            // Where no part of the lab speaks for Kubernetes, a node with its own pod network counts as ready.
            (Some((cluster, _)), None) if !ground.kubernetes.contains_key(cluster) && run.pod_network => {}
            _ => add("nodeReady", format!("node {name:?} status is not available yet")),
        }
        unmet
    }

    /// Shows consoles and agents to Proxmox, status to those who listen, and resources to those who watch.
    pub(super) fn show(&mut self, ground: &mut Ground) {
        let all: Vec<VmId> = self.by_id.keys().copied().collect();
        for vmid in all {
            let Some(machine) = self.by_id.get(&vmid) else { continue };
            let unmet = Self::unmet(ground, machine);
            let agent = machine.hardware.agent && !self.mishaps.agents.contains(&vmid);
            let Some(run) = self.run_mut(vmid) else { continue };
            let now = ground.now;
            if run.told.as_ref() != Some(&(run.stage, unmet.clone())) {
                run.tell_status(now, &unmet);
            }
            let printed = run.journal.take_console();
            let view = (agent && run.runs("ext-qemu-guest-agent") && run.network.up).then(|| agent_view(run));
            if let Some(guest) = ground.guests.get_mut(&vmid) {
                guest.print(&printed);
                guest.agent = view;
            }
        }
        self.watch(ground);
    }
}

impl Run {
    /// Says which stage a machine is in and what it lacks.
    fn tell_status(&mut self, now: Time, unmet: &[(String, String)]) {
        use api::machine_status_event::{MachineStatus, machine_status::UnmetCondition};
        let conditions = unmet
            .iter()
            .map(|(name, reason)| UnmetCondition { name: name.clone(), reason: reason.clone() })
            .collect();
        let event = api::MachineStatusEvent {
            stage: self.stage.number(),
            status: Some(MachineStatus { ready: unmet.is_empty(), unmet_conditions: conditions }),
        };
        self.journal.event(now, "MachineStatusEvent", &event.encode_to_vec(), "");
        self.told = Some((self.stage, unmet.to_vec()));
    }
}

/// The release of the kernel that guest agents tell.
const KERNEL: &str = "6.18.9-talos";

fn agent_view(run: &Run) -> AgentView {
    let loopback = AgentInterface {
        name: "lo".into(),
        mac: Some("00:00:00:00:00:00".into()),
        addresses: vec![(IpAddr::from([127, 0, 0, 1]), 8)],
    };
    let links = run.network.links.iter().map(|link| AgentInterface {
        name: link.name.clone(),
        mac: Some(link.mac.clone()),
        addresses: link.addresses.clone(),
    });
    AgentView {
        hostname: run.network.hostname.clone(),
        version: run.image.talos.clone(),
        kernel: KERNEL.into(),
        interfaces: std::iter::once(loopback).chain(links).collect(),
    }
}
